//! CreatePartitions.

use std::collections::BTreeSet;

use ringmain_metadata::{Controller, NewPartitions};
use ringmain_session::Request;
use ringmain_types::Now;
use ringmain_wire::create_partitions::CreatePartitionsTopicResult;
use ringmain_wire::{CREATE_PARTITIONS, CreatePartitionsRequest, CreatePartitionsResponse};

use super::control::{Outcome, refusals};
use super::{answered, body};

pub(super) fn decide(controller: &mut Controller, now: Now, request: &Request) -> Outcome {
    let asked: CreatePartitionsRequest<'_> = body(&CREATE_PARTITIONS, request)?;
    let wanted: Vec<NewPartitions> = asked
        .topics
        .iter()
        .map(|topic| NewPartitions {
            topic: topic.name.to_owned(),
            count: topic.count,
            assignments: topic
                .assignments
                .map(|given| given.iter().map(|one| one.broker_ids.iter().collect()).collect()),
        })
        .collect();
    let decision = controller.create_partitions(now, &wanted, asked.validate_only);
    let mut seen = BTreeSet::new();
    let results = wanted
        .iter()
        .zip(&decision.results)
        .filter(|(new, _)| seen.insert(&new.topic))
        .map(|(new, result)| {
            let name = new.topic.as_str();
            match result {
                Ok(()) => CreatePartitionsTopicResult { name, ..Default::default() },
                Err(refusal) => CreatePartitionsTopicResult {
                    name,
                    error_code: refusal.code,
                    error_message: Some(&refusal.message),
                },
            }
        })
        .collect();
    let reply = CreatePartitionsResponse { results, ..Default::default() };
    let reply = answered(&CREATE_PARTITIONS, request, &reply, refusals(&decision.results));
    Ok((decision.records, reply))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::fixture::{Fixture, call};
    use ringmain_types::BrokerId;
    use ringmain_wire::create_partitions::{CreatePartitionsAssignment, CreatePartitionsTopic};

    #[test]
    fn topics_grow_and_never_shrink() {
        for version in 0..=3 {
            let mut fixture = Fixture::new();
            fixture.create("a", 2);
            fixture.create("b", 2);
            fixture.create("c", 2);
            let grow = |name, count| CreatePartitionsTopic { name, count, assignments: None };
            let by_hand = |name, count, brokers: &[i32]| CreatePartitionsTopic {
                assignments: Some(
                    [CreatePartitionsAssignment { broker_ids: brokers.iter().map(|id| BrokerId(*id)).collect() }]
                        .into_iter()
                        .collect(),
                ),
                ..grow(name, count)
            };
            let asked = CreatePartitionsRequest {
                topics: vec![
                    grow("a", 5),
                    grow("b", 2),
                    by_hand("c", 3, &[1]),
                    grow("none", 5),
                    grow("x", 1),
                    grow("x", 2),
                ]
                .into(),
                timeout_ms: 1,
                validate_only: false,
            };
            let reply = fixture.change(&CREATE_PARTITIONS, version, &asked);
            let got: CreatePartitionsResponse<'_> = call(&CREATE_PARTITIONS, version, &reply);
            let codes: Vec<i16> = got.results.iter().map(|it| it.error_code.code()).collect();
            assert_eq!(codes, [0, 37, 0, 3, 42]);
            let image = fixture.controller.image();
            let count = |name: &str| image.topic(name).unwrap().partitions.len();
            assert_eq!((count("a"), count("b"), count("c"), image.partitions), (5, 2, 3, 10));
            let asked = CreatePartitionsRequest {
                topics: vec![by_hand("a", 6, &[9]), by_hand("b", 4, &[1]), grow("c", i32::MIN)].into(),
                ..Default::default()
            };
            let reply = fixture.change(&CREATE_PARTITIONS, version, &asked);
            let got: CreatePartitionsResponse<'_> = call(&CREATE_PARTITIONS, version, &reply);
            let codes: Vec<i16> = got.results.iter().map(|it| it.error_code.code()).collect();
            assert_eq!(codes, [39, 39, 37]);
        }
    }
}
