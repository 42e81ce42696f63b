//! Metadata: brokers, topics, partitions and their leaders; makes the topics that are missing when it may.

use std::collections::{BTreeMap, BTreeSet};

use ringmain_metadata::{ClusterImage, Topic, check_topic_name};
use ringmain_session::Request;
use ringmain_types::{BrokerId, ErrorCode, PartitionIndex, TopicId};
use ringmain_wire::metadata::{
    MetadataRequestTopic, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use ringmain_wire::{METADATA, MetadataRequest, MetadataResponse};

use super::local::{Local, LocalContext};
use super::{CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS, answered, body, brokers, first_error};

/// Ids may be asked for from this version on; v10 and v11 only answer with them.
const BY_ID: i16 = 12;

pub(super) fn answer(
    context: &LocalContext<'_>,
    request: &Request,
    created: Option<&[(String, ErrorCode)]>,
) -> Result<Local, String> {
    let asked: MetadataRequest<'_> = body(&METADATA, request)?;
    let image = context.image;
    let operations = if asked.include_topic_authorized_operations { TOPIC_OPERATIONS } else { NOT_ASKED };
    let topics = match which(request.version, &asked) {
        Which::All => image.names.values().filter_map(|id| image.topics.get(id)).map(|it| known(image, it)).collect(),
        Which::Refused(topics) => topics,
        Which::Ids(ids) => ids.into_iter().map(|id| by_id(image, id)).collect(),
        Which::Names(names) => {
            let may = asked.allow_auto_topic_creation && context.broker_config.auto_create_topics;
            let missing: Vec<String> = match created {
                None if may => {
                    let missing = names.iter().filter(|name| is_missing(image, name)).map(|it| it.to_string());
                    missing.take(context.config.limits.auto_create_topics_max as usize).collect()
                }
                _ => Vec::new(),
            };
            if !missing.is_empty() {
                return Ok(Local::Create(missing));
            }
            let created = created.unwrap_or_default().iter().map(|(name, error)| (name.as_str(), *error)).collect();
            names.into_iter().map(|name| by_name(image, name, &created)).collect::<Vec<_>>()
        }
    };
    let error = first_error(topics.iter().map(|topic| topic.error_code));
    let topics = topics
        .into_iter()
        .map(|mut topic| {
            topic.topic_authorized_operations = operations;
            topic
        })
        .collect();
    let reply = MetadataResponse {
        brokers: image
            .brokers
            .values()
            .map(|broker| MetadataResponseBroker {
                node_id: broker.id,
                host: &broker.host,
                port: broker.port.into(),
                rack: broker.rack.as_deref(),
            })
            .collect(),
        cluster_id: Some(&image.cluster_id),
        controller_id: context.config.broker,
        topics,
        cluster_authorized_operations: match asked.include_cluster_authorized_operations {
            true => CLUSTER_OPERATIONS,
            false => NOT_ASKED,
        },
        ..Default::default()
    };
    Ok(Local::Reply(answered(&METADATA, request, &reply, [error])))
}

enum Which<'a> {
    All,
    /// Each once, in the asked order.
    Names(Vec<&'a str>),
    Ids(Vec<TopicId>),
    /// A request that contradicts its version.
    Refused(Vec<MetadataResponseTopic<'a>>),
}

/// Whether it asks for all topics that there are.
fn asks_all(version: i16, asked: &MetadataRequest<'_>) -> bool {
    asked.topics.as_ref().is_none_or(|topics| topics.is_empty() && version == 0)
}

/// Topics and partitions that the answer tells of; `all` are in the image.
pub(crate) fn told_by_metadata(image: &ClusterImage, all: u64, version: i16, asked: &MetadataRequest<'_>) -> u64 {
    if asks_all(version, asked) {
        return all;
    }
    let named = asked.topics.iter().flat_map(|topics| topics.iter());
    let topics = named.filter_map(|topic| match topic.name {
        Some(name) => image.topic(name),
        None => image.topics.get(&topic.topic_id),
    });
    topics.map(|topic| 1 + topic.partitions.len() as u64).sum::<u64>().min(all)
}

fn which<'a>(version: i16, asked: &MetadataRequest<'a>) -> Which<'a> {
    let Some(topics) = asked.topics.as_ref().filter(|_| !asks_all(version, asked)) else { return Which::All };
    let contradicts = |topic: MetadataRequestTopic<'_>| match version >= BY_ID {
        true => topic.name.is_none() && topic.topic_id == TopicId::NONE,
        false => topic.name.is_none() || topic.topic_id != TopicId::NONE,
    };
    if topics.iter().any(contradicts) {
        let refused = |topic: MetadataRequestTopic<'a>| MetadataResponseTopic {
            error_code: ErrorCode::InvalidRequest,
            // Null only where the version has it.
            name: topic.name.or((version < BY_ID).then_some("")),
            topic_id: topic.topic_id,
            ..Default::default()
        };
        return Which::Refused(topics.iter().map(refused).collect());
    }
    let mut seen = BTreeSet::new();
    let ids: Vec<TopicId> =
        topics.iter().map(|topic| topic.topic_id).filter(|id| *id != TopicId::NONE && seen.insert(*id)).collect();
    if !ids.is_empty() {
        return Which::Ids(ids);
    }
    let mut seen = BTreeSet::new();
    Which::Names(topics.iter().filter_map(|topic| topic.name).filter(|name| seen.insert(*name)).collect())
}

fn is_missing(image: &ClusterImage, name: &str) -> bool {
    image.topic(name).is_none() && check_topic_name(name).is_ok()
}

fn by_name<'a>(
    image: &'a ClusterImage,
    name: &'a str,
    created: &BTreeMap<&str, ErrorCode>,
) -> MetadataResponseTopic<'a> {
    let failed = created.get(name).filter(|error| **error != ErrorCode::None);
    if let (Some(topic), None) = (image.topic(name), failed) {
        return known(image, topic);
    }
    let error_code = match created.get(name) {
        Some(&error) if error != ErrorCode::None => error,
        _ if check_topic_name(name).is_err() => ErrorCode::InvalidTopicException,
        _ => ErrorCode::UnknownTopicOrPartition,
    };
    MetadataResponseTopic { error_code, name: Some(name), ..Default::default() }
}

fn by_id(image: &ClusterImage, id: TopicId) -> MetadataResponseTopic<'_> {
    match image.topics.get(&id) {
        Some(topic) => known(image, topic),
        None => MetadataResponseTopic {
            error_code: ErrorCode::UnknownTopicId,
            name: None,
            topic_id: id,
            ..Default::default()
        },
    }
}

fn known<'a>(image: &'a ClusterImage, topic: &'a Topic) -> MetadataResponseTopic<'a> {
    let partition = |(index, state): (i32, &ringmain_metadata::PartitionState)| {
        let led = image.brokers.contains_key(&state.leader);
        MetadataResponsePartition {
            error_code: if led { ErrorCode::None } else { ErrorCode::LeaderNotAvailable },
            partition_index: PartitionIndex(index),
            leader_id: if led { state.leader } else { BrokerId(-1) },
            leader_epoch: state.leader_epoch,
            replica_nodes: brokers(&state.replicas),
            isr_nodes: brokers(&state.isr),
            offline_replicas: offline(image, &state.replicas).into(),
        }
    };
    MetadataResponseTopic {
        name: Some(&topic.name),
        topic_id: topic.id,
        is_internal: topic.internal,
        partitions: (0..).zip(&topic.partitions).map(partition).collect(),
        ..Default::default()
    }
}

/// Replicas on brokers that are not there.
pub(super) fn offline(image: &ClusterImage, replicas: &[BrokerId]) -> Vec<BrokerId> {
    replicas.iter().copied().filter(|broker| !image.brokers.contains_key(broker)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::fixture::{Fixture, call};

    fn names<'a>(names: &[&'a str]) -> MetadataRequest<'a> {
        let topic = |name: &&'a str| MetadataRequestTopic { name: Some(name), ..Default::default() };
        MetadataRequest { topics: Some(names.iter().map(topic).collect()), ..Default::default() }
    }
    /// Name, error, partitions.
    fn shape(got: &MetadataResponse<'_>) -> Vec<(Option<String>, ErrorCode, usize)> {
        got.topics.iter().map(|it| (it.name.map(str::to_owned), it.error_code, it.partitions.len())).collect()
    }
    fn name(name: &str) -> Option<String> {
        Some(name.to_owned())
    }

    #[test]
    fn one_request_makes_a_bounded_number_of_topics() {
        let fixture = Fixture::new();
        let names: Vec<String> = (0..20).map(|number| format!("t{number}")).collect();
        let topics = names.iter().map(|name| MetadataRequestTopic { name: Some(name), ..Default::default() });
        let asked = MetadataRequest { topics: Some(topics.collect()), ..Default::default() };
        assert_eq!(fixture.wanted(9, &asked, None), names[..8]);
    }

    #[test]
    fn null_is_all_and_empty_is_none_but_in_v0() {
        let mut fixture = Fixture::new();
        fixture.create("b", 2);
        fixture.create("a", 1);
        let all = vec![(name("a"), ErrorCode::None, 1), (name("b"), ErrorCode::None, 2)];
        for version in 0..=13 {
            let empty = MetadataRequest { topics: Some(Default::default()), ..Default::default() };
            let reply = fixture.ask(&METADATA, version, &empty);
            let got: MetadataResponse<'_> = call(&METADATA, version, &reply);
            assert_eq!(shape(&got), if version == 0 { all.clone() } else { vec![] }, "v{version}");
            if version > 0 {
                let null = MetadataRequest { topics: None, ..Default::default() };
                let reply = fixture.ask(&METADATA, version, &null);
                let got: MetadataResponse<'_> = call(&METADATA, version, &reply);
                assert_eq!((shape(&got), got.controller_id), (all.clone(), BrokerId(1)));
                assert_eq!(got.cluster_id, (version >= 2).then_some("cluster"));
            }
        }
    }

    #[test]
    fn a_leader_is_named_with_its_epoch_and_operations_are_a_bit_field_when_asked_for() {
        let mut fixture = Fixture::new();
        fixture.create("a", 1);
        let asked = MetadataRequest {
            include_topic_authorized_operations: true,
            include_cluster_authorized_operations: true,
            ..names(&["a"])
        };
        let reply = fixture.ask(&METADATA, 8, &asked);
        let got: MetadataResponse<'_> = call(&METADATA, 8, &reply);
        assert_eq!(got.cluster_authorized_operations, CLUSTER_OPERATIONS);
        let topic = got.topics.iter().next().unwrap();
        assert_eq!(topic.topic_authorized_operations, TOPIC_OPERATIONS);
        let partition = topic.partitions.iter().next().unwrap();
        assert_eq!((partition.leader_id, partition.leader_epoch.0, partition.error_code.code()), (BrokerId(1), 0, 0));
        assert_eq!(partition.replica_nodes.iter().collect::<Vec<_>>(), [BrokerId(1)]);
        assert!(partition.offline_replicas.is_empty());
        let broker = got.brokers.iter().next().unwrap();
        assert_eq!((broker.host, broker.port), ("here", 9092));
    }

    #[test]
    fn missing_topics_are_asked_to_be_made_then_answered_as_they_went() {
        let mut fixture = Fixture::new();
        fixture.create("a", 1);
        let asked = names(&["a", "new", "bad name", "new"]);
        assert_eq!(fixture.wanted(4, &asked, None), ["new"]);
        let refused = MetadataRequest { allow_auto_topic_creation: false, ..asked.clone() };
        let reply = fixture.ask(&METADATA, 4, &refused);
        let got: MetadataResponse<'_> = call(&METADATA, 4, &reply);
        let unmade = (name("new"), ErrorCode::UnknownTopicOrPartition, 0);
        let bad = (name("bad name"), ErrorCode::InvalidTopicException, 0);
        assert_eq!(shape(&got), [(name("a"), ErrorCode::None, 1), unmade, bad.clone()]);
        let failed = [("new".to_owned(), ErrorCode::PolicyViolation)];
        let reply = fixture.ask_with(&METADATA, 4, &asked, Some(&failed));
        let got: MetadataResponse<'_> = call(&METADATA, 4, &reply);
        assert_eq!(shape(&got)[1], (name("new"), ErrorCode::PolicyViolation, 0));
        fixture.create("new", 3);
        let reply = fixture.ask_with(&METADATA, 4, &asked, Some(&[("new".to_owned(), ErrorCode::None)]));
        let got: MetadataResponse<'_> = call(&METADATA, 4, &reply);
        assert_eq!(shape(&got)[1..], [(name("new"), ErrorCode::None, 3), bad]);
        // This shard knows it, but who made it could not say that all do.
        let unsure = [("new".to_owned(), ErrorCode::UnknownTopicOrPartition)];
        let reply = fixture.ask_with(&METADATA, 4, &asked, Some(&unsure));
        let got: MetadataResponse<'_> = call(&METADATA, 4, &reply);
        assert_eq!(shape(&got)[1], (name("new"), ErrorCode::UnknownTopicOrPartition, 0));
        fixture.properties("auto.create.topics.enable", "false");
        let reply = fixture.ask(&METADATA, 4, &names(&["newer"]));
        let got: MetadataResponse<'_> = call(&METADATA, 4, &reply);
        assert_eq!(shape(&got), [(name("newer"), ErrorCode::UnknownTopicOrPartition, 0)]);
    }

    #[test]
    fn ids_are_known_from_v12_on() {
        let mut fixture = Fixture::new();
        let id = fixture.create("a", 1);
        let by = |id| MetadataRequest {
            topics: Some([MetadataRequestTopic { topic_id: id, name: None }].into_iter().collect()),
            ..Default::default()
        };
        for version in [12, 13] {
            let reply = fixture.ask(&METADATA, version, &by(id));
            assert_eq!(shape(&call(&METADATA, version, &reply)), [(name("a"), ErrorCode::None, 1)]);
            let reply = fixture.ask(&METADATA, version, &by(TopicId(77)));
            let got: MetadataResponse<'_> = call(&METADATA, version, &reply);
            assert_eq!(shape(&got), [(None, ErrorCode::UnknownTopicId, 0)]);
            assert_eq!(got.topics.iter().next().unwrap().topic_id, TopicId(77));
        }
        let reply = fixture.ask(&METADATA, 11, &by(id));
        assert_eq!(shape(&call(&METADATA, 11, &reply)), [(name(""), ErrorCode::InvalidRequest, 0)]);
        let reply = fixture.ask(&METADATA, 12, &by(TopicId::NONE));
        assert_eq!(shape(&call(&METADATA, 12, &reply))[0].1, ErrorCode::InvalidRequest);
    }
}
