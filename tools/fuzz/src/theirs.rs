//! The `kafka-protocol` crate as judge of what is accepted here.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages as theirs;
use kafka_protocol::protocol::{Decodable, Encodable, Message, VersionRange};
use ringmain_wire::{self as ours, ApiSpec};

use crate::wire::{decoded, encoded};

/// One request or reply in both implementations.
pub struct Pair {
    pub name: &'static str,
    pub spec: ApiSpec,
    /// Those that they speak.
    pub versions: VersionRange,
    /// `None` when the bytes are refused; else what they are encoded again.
    pub ours: fn(i16, &[u8]) -> Option<Vec<u8>>,
    pub theirs: fn(i16, &[u8]) -> Theirs,
}

/// What they encode again, and how many bytes were left.
type Theirs = Result<(Vec<u8>, usize), String>;

macro_rules! pairs { ($decode:ident: $($spec:ident $name:ident;)*) => { &[$(Pair {
    name: stringify!($name),
    spec: ours::$spec,
    versions: theirs::$name::VERSIONS,
    ours: |version, bytes| {
        let spec = &ours::$spec;
        let body = decoded(|| ours::$decode::<ours::$name>(spec, version, bytes).ok())?;
        let written = encoded(version, spec.is_flexible(version), &body, bytes.len());
        let again = ours::decode::<ours::$name>(spec, version, &written);
        assert_eq!(again.as_ref(), Ok(&body), "{} {version}: not what it was", stringify!($name));
        Some(written)
    },
    theirs: |version, bytes| {
        let mut bytes = Bytes::copy_from_slice(bytes);
        let body = theirs::$name::decode(&mut bytes, version).map_err(|error| error.to_string())?;
        let mut out = BytesMut::new();
        body.encode(&mut out, version).map_err(|error| error.to_string())?;
        Ok((out.to_vec(), bytes.len()))
    },
}),*] } }

pub const REQUESTS: &[Pair] = pairs! {
    decode_request:
    PRODUCE ProduceRequest;
    FETCH FetchRequest;
    LIST_OFFSETS ListOffsetsRequest;
    METADATA MetadataRequest;
    OFFSET_COMMIT OffsetCommitRequest;
    OFFSET_FETCH OffsetFetchRequest;
    FIND_COORDINATOR FindCoordinatorRequest;
    JOIN_GROUP JoinGroupRequest;
    HEARTBEAT HeartbeatRequest;
    LEAVE_GROUP LeaveGroupRequest;
    SYNC_GROUP SyncGroupRequest;
    DESCRIBE_GROUPS DescribeGroupsRequest;
    LIST_GROUPS ListGroupsRequest;
    API_VERSIONS ApiVersionsRequest;
    CREATE_TOPICS CreateTopicsRequest;
    DELETE_TOPICS DeleteTopicsRequest;
    DELETE_RECORDS DeleteRecordsRequest;
    INIT_PRODUCER_ID InitProducerIdRequest;
    OFFSET_FOR_LEADER_EPOCH OffsetForLeaderEpochRequest;
    DESCRIBE_CONFIGS DescribeConfigsRequest;
    ALTER_CONFIGS AlterConfigsRequest;
    DESCRIBE_LOG_DIRS DescribeLogDirsRequest;
    CREATE_PARTITIONS CreatePartitionsRequest;
    DELETE_GROUPS DeleteGroupsRequest;
    INCREMENTAL_ALTER_CONFIGS IncrementalAlterConfigsRequest;
    OFFSET_DELETE OffsetDeleteRequest;
    DESCRIBE_CLUSTER DescribeClusterRequest;
    DESCRIBE_PRODUCERS DescribeProducersRequest;
    CONSUMER_GROUP_HEARTBEAT ConsumerGroupHeartbeatRequest;
    CONSUMER_GROUP_DESCRIBE ConsumerGroupDescribeRequest;
    LIST_CONFIG_RESOURCES ListConfigResourcesRequest;
    DESCRIBE_TOPIC_PARTITIONS DescribeTopicPartitionsRequest;
};

pub const REPLIES: &[Pair] = pairs! {
    decode:
    PRODUCE ProduceResponse;
    FETCH FetchResponse;
    LIST_OFFSETS ListOffsetsResponse;
    METADATA MetadataResponse;
    OFFSET_COMMIT OffsetCommitResponse;
    OFFSET_FETCH OffsetFetchResponse;
    FIND_COORDINATOR FindCoordinatorResponse;
    JOIN_GROUP JoinGroupResponse;
    HEARTBEAT HeartbeatResponse;
    LEAVE_GROUP LeaveGroupResponse;
    SYNC_GROUP SyncGroupResponse;
    DESCRIBE_GROUPS DescribeGroupsResponse;
    LIST_GROUPS ListGroupsResponse;
    API_VERSIONS ApiVersionsResponse;
    CREATE_TOPICS CreateTopicsResponse;
    DELETE_TOPICS DeleteTopicsResponse;
    DELETE_RECORDS DeleteRecordsResponse;
    INIT_PRODUCER_ID InitProducerIdResponse;
    OFFSET_FOR_LEADER_EPOCH OffsetForLeaderEpochResponse;
    DESCRIBE_CONFIGS DescribeConfigsResponse;
    ALTER_CONFIGS AlterConfigsResponse;
    DESCRIBE_LOG_DIRS DescribeLogDirsResponse;
    CREATE_PARTITIONS CreatePartitionsResponse;
    DELETE_GROUPS DeleteGroupsResponse;
    INCREMENTAL_ALTER_CONFIGS IncrementalAlterConfigsResponse;
    OFFSET_DELETE OffsetDeleteResponse;
    DESCRIBE_CLUSTER DescribeClusterResponse;
    DESCRIBE_PRODUCERS DescribeProducersResponse;
    CONSUMER_GROUP_HEARTBEAT ConsumerGroupHeartbeatResponse;
    CONSUMER_GROUP_DESCRIBE ConsumerGroupDescribeResponse;
    LIST_CONFIG_RESOURCES ListConfigResourcesResponse;
    DESCRIBE_TOPIC_PARTITIONS DescribeTopicPartitionsResponse;
};

/// What we read in `body`, which we accepted, is what they read in it.
pub fn judge(pair: &Pair, version: i16, body: &[u8], canonical: &[u8]) {
    let name = pair.name;
    let same = (pair.theirs)(version, canonical);
    assert_eq!(same, Ok((canonical.to_vec(), 0)), "{name} {version}: what we write is not what they read");
    let read = (pair.theirs)(version, body);
    assert!(read.is_ok(), "{name} {version}: we accept what they refuse: {read:?}");
}
