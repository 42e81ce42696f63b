//! Plain requests about groups.

use std::io;
use std::time::{Duration, Instant};

use ringmain_torture::connection::Connection;
use ringmain_types::{ErrorCode, PartitionIndex, TopicId};
use ringmain_wire::metadata::MetadataRequestTopic;
use ringmain_wire::offset_fetch::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use ringmain_wire::{
    FIND_COORDINATOR, FindCoordinatorRequest, FindCoordinatorResponse, METADATA, MetadataRequest, MetadataResponse,
    OFFSET_FETCH, OffsetFetchRequest, OffsetFetchResponse,
};

/// A coordinator is there within this, or the run fails.
const COORDINATOR_MAX: Duration = Duration::from_secs(60);

pub fn topic_id(address: &str, topic: &str) -> Result<TopicId, String> {
    let topics = vec![MetadataRequestTopic { name: Some(topic), ..Default::default() }];
    let request = MetadataRequest { topics: Some(topics.into()), ..Default::default() };
    let asked = || -> io::Result<TopicId> {
        let frame = Connection::open(address)?.call(&METADATA, 12, &request)?;
        let (_, reply): (i32, MetadataResponse<'_>) = frame.decode(&METADATA, 12)?;
        reply.topics.iter().next().map(|topic| topic.topic_id).ok_or_else(|| io::Error::other("no such topic"))
    };
    asked().map_err(|e| format!("Metadata of {topic}: {e}"))
}

/// Waits until the group has a coordinator; the first time that makes the offsets topic.
pub fn find_coordinator(address: &str, group: &str) -> Result<(), String> {
    let began = Instant::now();
    let request = FindCoordinatorRequest { coordinator_keys: vec![group].into(), ..Default::default() };
    loop {
        let asked = || -> io::Result<ErrorCode> {
            let frame = Connection::open(address)?.call(&FIND_COORDINATOR, 4, &request)?;
            let (_, reply): (i32, FindCoordinatorResponse<'_>) = frame.decode(&FIND_COORDINATOR, 4)?;
            Ok(reply.coordinators.iter().next().map_or(ErrorCode::CoordinatorNotAvailable, |found| found.error_code))
        };
        match asked().map_err(|e| format!("FindCoordinator: {e}"))? {
            ErrorCode::None => return Ok(()),
            code if began.elapsed() > COORDINATOR_MAX => return Err(format!("no coordinator of {group}: {code:?}")),
            _ => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Partition, offset and metadata of each that was asked for.
pub type Committed = Vec<(i32, i64, String)>;

/// What is committed, by group. Waits while coordinators load.
pub fn committed(
    connection: &mut Connection,
    groups: &[&str],
    topic: &str,
    partitions: i32,
) -> Result<Vec<Committed>, String> {
    let began = Instant::now();
    let one = |group_id| {
        let topic = OffsetFetchRequestTopics {
            name: topic,
            partition_indexes: (0..partitions).map(PartitionIndex).collect(),
            ..Default::default()
        };
        OffsetFetchRequestGroup { group_id, topics: Some(vec![topic].into()), ..Default::default() }
    };
    let request = OffsetFetchRequest { groups: groups.iter().map(|group| one(*group)).collect(), ..Default::default() };
    loop {
        let frame = connection.call(&OFFSET_FETCH, 9, &request).map_err(|e| format!("OffsetFetch: {e}"))?;
        let (_, reply): (i32, OffsetFetchResponse<'_>) = frame.decode(&OFFSET_FETCH, 9).map_err(|e| e.to_string())?;
        use ErrorCode::*;
        let codes: Vec<ErrorCode> = reply.groups.iter().map(|group| group.error_code).collect();
        let coming = |code: &ErrorCode| {
            matches!(code, CoordinatorLoadInProgress | CoordinatorNotAvailable | NotCoordinator | RequestTimedOut)
        };
        if codes.len() == groups.len() && codes.iter().all(|code| *code == ErrorCode::None) {
            let offsets = reply.groups.iter().map(|group| {
                let partitions = group.topics.iter().flat_map(|topic| topic.partitions.iter().collect::<Vec<_>>());
                partitions
                    .map(|p| (p.partition_index.0, p.committed_offset.0, p.metadata.unwrap_or_default().to_string()))
                    .collect()
            });
            return Ok(offsets.collect());
        }
        if began.elapsed() > COORDINATOR_MAX || !codes.iter().all(|code| *code == ErrorCode::None || coming(code)) {
            return Err(format!("OffsetFetch: {:?}", codes.iter().find(|code| **code != ErrorCode::None)));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
