//! CreateTopics.

use std::collections::BTreeSet;

use ringmain_metadata::{Assignment, Controller, CreatedTopic, NewTopic, Refusal};
use ringmain_session::Request;
use ringmain_types::{ErrorCode, Now};
use ringmain_wire::create_topics::{CreatableTopic, CreatableTopicConfigs, CreatableTopicResult};
use ringmain_wire::{CREATE_TOPICS, CreateTopicsRequest, CreateTopicsResponse};

use super::control::{Outcome, refusals};
use super::{answered, body};

pub(super) fn decide(controller: &mut Controller, now: Now, request: &Request) -> Outcome {
    let asked: CreateTopicsRequest<'_> = body(&CREATE_TOPICS, request)?;
    let wanted: Vec<NewTopic> = asked.topics.iter().map(|topic| new_topic(&topic)).collect();
    let decision = controller.create_topics(now, &wanted, asked.validate_only);
    // A name given twice was refused twice, and is answered once.
    let mut seen = BTreeSet::new();
    let topics = wanted
        .iter()
        .zip(&decision.results)
        .filter(|(new, _)| seen.insert(&new.name))
        .map(|(new, result)| answer(&new.name, result))
        .collect();
    let errors = refusals(&decision.results);
    let reply = CreateTopicsResponse { topics, ..Default::default() };
    Ok((decision.records, answered(&CREATE_TOPICS, request, &reply, errors)))
}

fn new_topic(topic: &CreatableTopic<'_>) -> NewTopic {
    NewTopic {
        name: topic.name.to_owned(),
        partitions: topic.num_partitions,
        replication_factor: topic.replication_factor,
        assignments: topic
            .assignments
            .iter()
            .map(|it| Assignment { partition: it.partition_index, replicas: it.broker_ids.iter().collect() })
            .collect(),
        configs: topic.configs.iter().map(|it| (it.name.to_owned(), it.value.map(str::to_owned))).collect(),
    }
}

fn answer<'a>(name: &'a str, result: &'a Result<CreatedTopic, Refusal>) -> CreatableTopicResult<'a> {
    match result {
        Ok(created) => CreatableTopicResult {
            name,
            topic_id: created.id,
            error_code: ErrorCode::None,
            num_partitions: created.partitions,
            replication_factor: created.replication_factor,
            configs: Some(
                created
                    .configs
                    .iter()
                    .map(|entry| CreatableTopicConfigs {
                        name: entry.name,
                        value: entry.value.as_deref(),
                        read_only: entry.read_only,
                        config_source: entry.source as i8,
                        is_sensitive: entry.sensitive,
                    })
                    .collect(),
            ),
            ..Default::default()
        },
        Err(refusal) => CreatableTopicResult {
            name,
            error_code: refusal.code,
            error_message: Some(&refusal.message),
            configs: Some(Default::default()),
            ..Default::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::fixture::{Fixture, call};
    use ringmain_types::{BrokerId, PartitionIndex, TopicId};
    use ringmain_wire::create_topics::{CreatableReplicaAssignment, CreatableTopicConfig};

    fn topic(name: &str, num_partitions: i32) -> CreatableTopic<'_> {
        CreatableTopic { name, num_partitions, replication_factor: 1, ..Default::default() }
    }
    fn ask<'a>(fixture: &mut Fixture, topics: Vec<CreatableTopic<'a>>, validate_only: bool) -> Vec<(i16, String)> {
        let asked = CreateTopicsRequest { topics: topics.into(), timeout_ms: 1000, validate_only };
        let reply = fixture.change(&CREATE_TOPICS, 7, &asked);
        let got: CreateTopicsResponse<'_> = call(&CREATE_TOPICS, 7, &reply);
        got.topics.iter().map(|it| (it.error_code.code(), it.error_message.unwrap_or("-").to_owned())).collect()
    }

    #[test]
    fn every_version_answers_with_what_it_has() {
        for version in 2..=7 {
            let mut fixture = Fixture::new();
            let asked = CreateTopicsRequest { topics: vec![topic("a", 3)].into(), ..Default::default() };
            let reply = fixture.change(&CREATE_TOPICS, version, &asked);
            let got: CreateTopicsResponse<'_> = call(&CREATE_TOPICS, version, &reply);
            let it = got.topics.iter().next().unwrap();
            assert_eq!((it.name, it.error_code), ("a", ErrorCode::None));
            if version >= 5 {
                assert_eq!((it.num_partitions, it.replication_factor), (3, 1));
                assert_eq!(it.configs.unwrap().len(), 38);
            }
            let image = fixture.controller.image();
            assert_eq!(image.topic("a").unwrap().partitions.len(), 3);
            assert_eq!(it.topic_id, if version >= 7 { image.topic("a").unwrap().id } else { TopicId::NONE });
        }
    }

    #[test]
    fn refusals_name_the_rule_and_leave_the_others_alone() {
        let mut fixture = Fixture::new();
        let config = |name, value| CreatableTopicConfig { name, value };
        let with = |name, configs: Vec<_>| CreatableTopic { configs: configs.into(), ..topic(name, 1) };
        let placed = |brokers: &[i32]| CreatableTopic {
            num_partitions: -1,
            replication_factor: -1,
            assignments: [CreatableReplicaAssignment {
                partition_index: PartitionIndex(0),
                broker_ids: brokers.iter().map(|id| BrokerId(*id)).collect(),
            }]
            .into_iter()
            .collect(),
            ..topic("placed", -1)
        };
        let got = ask(
            &mut fixture,
            vec![
                topic("good", 1),
                topic("bad/name", 1),
                topic("none", 0),
                CreatableTopic { replication_factor: 2, ..topic("two", 1) },
                topic("twice", 1),
                topic("twice", 1),
                with("c1", vec![config("retention.m", Some("1"))]),
                with("c2", vec![config("retention.ms", Some("x"))]),
                with("c3", vec![config("retention.ms", None)]),
                placed(&[7]),
                topic("vast", i32::MAX),
                topic("last", -1),
            ],
            false,
        );
        let codes: Vec<i16> = got.iter().map(|(code, _)| *code).collect();
        assert_eq!(codes, [0, 17, 37, 38, 42, 40, 40, 40, 39, 44, 0], "{got:?}");
        assert!(got[5].1.contains("did you mean retention.ms?"), "{}", got[5].1);
        assert!(got[6].1.contains("a 64-bit number of at least -1"), "{}", got[6].1);
        assert_eq!(fixture.controller.image().topics.len(), 2);
        assert_eq!(ask(&mut fixture, vec![topic("good", 1)], false)[0].0, 36);
        assert_eq!(ask(&mut fixture, vec![placed(&[1])], false)[0].0, 0);
    }

    #[test]
    fn validation_alone_changes_nothing() {
        let mut fixture = Fixture::new();
        assert_eq!(ask(&mut fixture, vec![topic("a", 3)], true)[0].0, 0);
        assert!(fixture.controller.image().topics.is_empty());
    }
}
