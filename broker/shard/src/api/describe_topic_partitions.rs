//! DescribeTopicPartitions: topics and partitions by rising name, a page at a time.

use std::collections::BTreeSet;
use std::ops::Bound;

use ringmain_metadata::{ClusterImage, Topic, check_topic_name};
use ringmain_session::Request;
use ringmain_types::{BrokerId, ErrorCode, PartitionIndex};
use ringmain_wire::describe_topic_partitions::{
    Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use ringmain_wire::{DESCRIBE_TOPIC_PARTITIONS, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse};

use super::local::LocalContext;
use super::metadata::offline;
use super::{Answered, TOPIC_OPERATIONS, answered, body, brokers};

/// `max.request.partition.size.limit`.
const PARTITIONS_MAX: i32 = 2000;

pub(super) fn answer(context: &LocalContext<'_>, request: &Request) -> Result<Answered, String> {
    let asked: DescribeTopicPartitionsRequest<'_> = body(&DESCRIBE_TOPIC_PARTITIONS, request)?;
    let reply = page(context.image, &asked);
    let errors: Vec<ErrorCode> = reply.topics.iter().map(|topic| topic.error_code).collect();
    Ok(answered(&DESCRIBE_TOPIC_PARTITIONS, request, &reply, errors))
}

fn page<'a>(
    image: &'a ClusterImage,
    asked: &DescribeTopicPartitionsRequest<'a>,
) -> DescribeTopicPartitionsResponse<'a> {
    let from = asked.cursor.as_ref().map_or("", |cursor| cursor.topic_name);
    let first = asked.cursor.as_ref().map_or(PartitionIndex(0), |cursor| cursor.partition_index);
    if first.0 < 0 {
        return refused(asked);
    }
    let names: BTreeSet<&'a str> = match asked.topics.is_empty() {
        true => {
            image.names.range::<str, _>((Bound::Included(from), Bound::Unbounded)).map(|(name, _)| &**name).collect()
        }
        false => asked.topics.iter().map(|topic| topic.name).filter(|name| *name >= from).collect(),
    };
    let mut left = asked.response_partition_limit.clamp(1, PARTITIONS_MAX) as usize;
    let mut topics = Vec::new();
    let mut next_cursor = None;
    for name in names {
        if left == 0 {
            next_cursor = Some(Cursor { topic_name: name, partition_index: PartitionIndex(0) });
            break;
        }
        let Some(topic) = image.topic(name) else {
            topics.push(missing(name));
            continue;
        };
        let skip = if name == from { first.0 as usize } else { 0 };
        let taken = topic.partitions.len().saturating_sub(skip).min(left);
        topics.push(describe(image, topic, skip, taken));
        left -= taken;
        if skip + taken < topic.partitions.len() {
            let partition_index = PartitionIndex((skip + taken) as i32);
            next_cursor = Some(Cursor { topic_name: name, partition_index });
            break;
        }
    }
    DescribeTopicPartitionsResponse { topics: topics.into(), next_cursor, ..Default::default() }
}

fn refused<'a>(asked: &DescribeTopicPartitionsRequest<'a>) -> DescribeTopicPartitionsResponse<'a> {
    let refuse = |name| DescribeTopicPartitionsResponseTopic {
        error_code: ErrorCode::InvalidRequest,
        name: Some(name),
        ..Default::default()
    };
    let topics = asked.topics.iter().map(|topic| refuse(topic.name)).collect();
    DescribeTopicPartitionsResponse { topics, ..Default::default() }
}

fn missing(name: &str) -> DescribeTopicPartitionsResponseTopic<'_> {
    let error_code = match check_topic_name(name) {
        Ok(()) => ErrorCode::UnknownTopicOrPartition,
        Err(_) => ErrorCode::InvalidTopicException,
    };
    DescribeTopicPartitionsResponseTopic { error_code, name: Some(name), ..Default::default() }
}

fn describe<'a>(
    image: &'a ClusterImage,
    topic: &'a Topic,
    skip: usize,
    take: usize,
) -> DescribeTopicPartitionsResponseTopic<'a> {
    let partition = |(index, state): (usize, &ringmain_metadata::PartitionState)| {
        let led = image.brokers.contains_key(&state.leader);
        DescribeTopicPartitionsResponsePartition {
            error_code: if led { ErrorCode::None } else { ErrorCode::LeaderNotAvailable },
            partition_index: PartitionIndex(index as i32),
            leader_id: if led { state.leader } else { BrokerId(-1) },
            leader_epoch: state.leader_epoch,
            replica_nodes: brokers(&state.replicas),
            isr_nodes: brokers(&state.isr),
            eligible_leader_replicas: Some(Default::default()),
            last_known_elr: Some(Default::default()),
            offline_replicas: offline(image, &state.replicas).into(),
        }
    };
    DescribeTopicPartitionsResponseTopic {
        name: Some(&topic.name),
        topic_id: topic.id,
        is_internal: topic.internal,
        partitions: topic.partitions.iter().enumerate().skip(skip).take(take).map(partition).collect(),
        topic_authorized_operations: TOPIC_OPERATIONS,
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::fixture::{Fixture, call};
    use ringmain_wire::describe_topic_partitions::TopicRequest;

    fn pages(fixture: &Fixture, topics: &[&str], limit: i32) -> Vec<String> {
        let mut out = Vec::new();
        let mut at: Option<(String, PartitionIndex)> = None;
        loop {
            let asked = DescribeTopicPartitionsRequest {
                topics: topics.iter().map(|name| TopicRequest { name }).collect(),
                response_partition_limit: limit,
                cursor: at.as_ref().map(|(name, index)| Cursor { topic_name: name, partition_index: *index }),
            };
            let reply = fixture.ask(&DESCRIBE_TOPIC_PARTITIONS, 0, &asked);
            let got: DescribeTopicPartitionsResponse<'_> = call(&DESCRIBE_TOPIC_PARTITIONS, 0, &reply);
            let topics = got.topics.iter().map(|topic| {
                let indexes = topic.partitions.iter().map(|it| it.partition_index.0).collect::<Vec<_>>();
                format!("{} {:?} {indexes:?}", topic.name.unwrap(), topic.error_code)
            });
            out.push(topics.collect::<Vec<_>>().join("; "));
            match got.next_cursor {
                Some(cursor) => at = Some((cursor.topic_name.to_owned(), cursor.partition_index)),
                None => return out,
            }
        }
    }

    #[test]
    fn pages_follow_the_cursor_in_the_order_of_names() {
        let mut fixture = Fixture::new();
        fixture.create("b", 3);
        fixture.create("a", 2);
        let all = "a None [0, 1]; b None [0, 1, 2]";
        assert_eq!(pages(&fixture, &[], 2000), [all]);
        assert_eq!(pages(&fixture, &["b", "a", "a"], 5), [all]);
        assert_eq!(pages(&fixture, &[], 2), ["a None [0, 1]", "b None [0, 1]", "b None [2]"]);
        assert_eq!(pages(&fixture, &[], 3), ["a None [0, 1]; b None [0]", "b None [1, 2]"]);
        assert_eq!(pages(&fixture, &[], -5)[..2], ["a None [0]", "a None [1]"]);
        assert_eq!(
            pages(&fixture, &["x y", "c", "b"], 9),
            ["b None [0, 1, 2]; c UnknownTopicOrPartition []; x y InvalidTopicException []"]
        );
    }

    #[test]
    fn a_cursor_of_nonsense_is_harmless() {
        let mut fixture = Fixture::new();
        fixture.create("a", 2);
        for (index, partitions) in [(i32::MAX, 0), (2, 0), (1, 1)] {
            let asked = DescribeTopicPartitionsRequest {
                cursor: Some(Cursor { topic_name: "a", partition_index: PartitionIndex(index) }),
                ..Default::default()
            };
            let reply = fixture.ask(&DESCRIBE_TOPIC_PARTITIONS, 0, &asked);
            let got: DescribeTopicPartitionsResponse<'_> = call(&DESCRIBE_TOPIC_PARTITIONS, 0, &reply);
            assert_eq!(got.topics.iter().next().unwrap().partitions.len(), partitions);
            assert!(got.next_cursor.is_none());
        }
        let asked = DescribeTopicPartitionsRequest {
            topics: [TopicRequest { name: "a" }].into_iter().collect(),
            cursor: Some(Cursor { topic_name: "a", partition_index: PartitionIndex(-1) }),
            ..Default::default()
        };
        let reply = fixture.ask(&DESCRIBE_TOPIC_PARTITIONS, 0, &asked);
        let got: DescribeTopicPartitionsResponse<'_> = call(&DESCRIBE_TOPIC_PARTITIONS, 0, &reply);
        assert_eq!(got.topics.iter().next().unwrap().error_code, ErrorCode::InvalidRequest);
    }
}
