//! `net/wire`: Kafka's protocol. One file an API, in the `api!` form (see `api.rs`). Decoding allocates nothing, whatever the bytes
//! claim; encoding splices record buffers. Runs on every core; owns no state. What a field may mean is the shard's business, how long
//! a frame may be is the session's.
#![forbid(unsafe_code)]

mod api;
mod array;
mod count;
mod error;
mod field;
mod format;
mod frame;
mod kind;
mod place;
mod reader;
mod record_bytes;
mod writer;

pub mod alter_configs;
pub mod api_versions;
pub mod consumer_group_describe;
pub mod consumer_group_heartbeat;
pub mod consumer_protocol_assignment;
pub mod consumer_protocol_subscription;
pub mod create_partitions;
pub mod create_topics;
pub mod delete_groups;
pub mod delete_records;
pub mod delete_topics;
pub mod describe_cluster;
pub mod describe_configs;
pub mod describe_groups;
pub mod describe_log_dirs;
pub mod describe_producers;
pub mod describe_topic_partitions;
pub mod fetch;
pub mod find_coordinator;
pub mod heartbeat;
pub mod incremental_alter_configs;
pub mod init_producer_id;
pub mod join_group;
pub mod leave_group;
pub mod list_config_resources;
pub mod list_groups;
pub mod list_offsets;
pub mod metadata;
pub mod offset_commit;
pub mod offset_delete;
pub mod offset_fetch;
pub mod offset_for_leader_epoch;
pub mod produce;
pub mod records;
pub mod sync_group;

pub use alter_configs::{ALTER_CONFIGS, AlterConfigsRequest, AlterConfigsResponse};
pub use api_versions::{API_VERSIONS, ApiVersionsRequest, ApiVersionsResponse};
pub use array::{Array, ArrayIter, WireArray};
pub use consumer_group_describe::{
    CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse,
};
pub use consumer_group_heartbeat::{
    CONSUMER_GROUP_HEARTBEAT, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse,
};
pub use consumer_protocol_assignment::ConsumerProtocolAssignment;
pub use consumer_protocol_subscription::ConsumerProtocolSubscription;
pub use count::{Count, Counted};
pub use create_partitions::{CREATE_PARTITIONS, CreatePartitionsRequest, CreatePartitionsResponse};
pub use create_topics::{CREATE_TOPICS, CreateTopicsRequest, CreateTopicsResponse};
pub use delete_groups::{DELETE_GROUPS, DeleteGroupsRequest, DeleteGroupsResponse};
pub use delete_records::{DELETE_RECORDS, DeleteRecordsRequest, DeleteRecordsResponse};
pub use delete_topics::{DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicsResponse};
pub use describe_cluster::{DESCRIBE_CLUSTER, DescribeClusterRequest, DescribeClusterResponse};
pub use describe_configs::{DESCRIBE_CONFIGS, DescribeConfigsRequest, DescribeConfigsResponse};
pub use describe_groups::{DESCRIBE_GROUPS, DescribeGroupsRequest, DescribeGroupsResponse};
pub use describe_log_dirs::{DESCRIBE_LOG_DIRS, DescribeLogDirsRequest, DescribeLogDirsResponse};
pub use describe_producers::{DESCRIBE_PRODUCERS, DescribeProducersRequest, DescribeProducersResponse};
pub use describe_topic_partitions::{
    DESCRIBE_TOPIC_PARTITIONS, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse,
};
pub use error::WireError;
pub use fetch::{FETCH, FetchRequest, FetchResponse};
pub use field::Field;
pub use find_coordinator::{FIND_COORDINATOR, FindCoordinatorRequest, FindCoordinatorResponse};
pub use format::{
    Format, FormatInfo, FormatSpec, decode_embedded, decode_key, decode_value, encode_key, encode_value, key_type,
};
pub(crate) use frame::count_elements;
pub use frame::{
    RequestHeader, advertised, decode, decode_counted, decode_reply, decode_request, encode_reply, encode_request,
    encode_unsupported_api_versions, request_header,
};
pub use heartbeat::{HEARTBEAT, HeartbeatRequest, HeartbeatResponse};
pub use incremental_alter_configs::{
    INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};
pub use init_producer_id::{INIT_PRODUCER_ID, InitProducerIdRequest, InitProducerIdResponse};
pub use join_group::{JOIN_GROUP, JoinGroupRequest, JoinGroupResponse};
pub use kind::{ApiInfo, FieldInfo, Kind, StructInfo};
pub use leave_group::{LEAVE_GROUP, LeaveGroupRequest, LeaveGroupResponse};
pub use list_config_resources::{LIST_CONFIG_RESOURCES, ListConfigResourcesRequest, ListConfigResourcesResponse};
pub use list_groups::{LIST_GROUPS, ListGroupsRequest, ListGroupsResponse};
pub use list_offsets::{LIST_OFFSETS, ListOffsetsRequest, ListOffsetsResponse};
pub use metadata::{METADATA, MetadataRequest, MetadataResponse};
pub use offset_commit::{OFFSET_COMMIT, OffsetCommitRequest, OffsetCommitResponse};
pub use offset_delete::{OFFSET_DELETE, OffsetDeleteRequest, OffsetDeleteResponse};
pub use offset_fetch::{OFFSET_FETCH, OffsetFetchRequest, OffsetFetchResponse};
pub use offset_for_leader_epoch::{OFFSET_FOR_LEADER_EPOCH, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};
pub use place::{Body, Place};
pub use produce::{PRODUCE, ProduceRequest, ProduceResponse};
pub use reader::Reader;
pub use record_bytes::RecordBytes;
pub use sync_group::{SYNC_GROUP, SyncGroupRequest, SyncGroupResponse};
pub use writer::Writer;

/// May a request run while an earlier one of its connection is unanswered? Kafka runs them one by one, and clients rely on it where
/// a request changes more than a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// It may; replies keep their order all the same.
    Ordered,
    /// It runs when all before it are answered, and none after it starts before it is.
    Barrier,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiSpec {
    pub key: i16,
    pub name: &'static str,
    /// Advertised.
    pub versions: (i16, i16),
    /// The first version with compact lengths and tagged fields, and with header v2 (request) and v1 (response; ApiVersions: v0).
    pub flexible: i16,
    pub overlap: Overlap,
}

impl ApiSpec {
    pub fn supports(&self, version: i16) -> bool {
        (self.versions.0..=self.versions.1).contains(&version)
    }
    pub fn is_flexible(&self, version: i16) -> bool {
        version >= self.flexible
    }
}

/// All APIs and their bodies, by rising key.
pub const API_INFOS: &[ApiInfo] = &[
    produce::INFO,
    fetch::INFO,
    list_offsets::INFO,
    metadata::INFO,
    offset_commit::INFO,
    offset_fetch::INFO,
    find_coordinator::INFO,
    join_group::INFO,
    heartbeat::INFO,
    leave_group::INFO,
    sync_group::INFO,
    describe_groups::INFO,
    list_groups::INFO,
    api_versions::INFO,
    create_topics::INFO,
    delete_topics::INFO,
    delete_records::INFO,
    init_producer_id::INFO,
    offset_for_leader_epoch::INFO,
    describe_configs::INFO,
    alter_configs::INFO,
    describe_log_dirs::INFO,
    create_partitions::INFO,
    delete_groups::INFO,
    incremental_alter_configs::INFO,
    offset_delete::INFO,
    describe_cluster::INFO,
    describe_producers::INFO,
    consumer_group_heartbeat::INFO,
    consumer_group_describe::INFO,
    list_config_resources::INFO,
    describe_topic_partitions::INFO,
];

/// All formats that are no API's.
pub const FORMAT_INFOS: &[FormatInfo] = &[
    FormatInfo::of::<ConsumerProtocolSubscription>(),
    FormatInfo::of::<ConsumerProtocolAssignment>(),
    FormatInfo::of::<records::OffsetCommitKey>(),
    FormatInfo::of::<records::OffsetCommitValue>(),
    FormatInfo::of::<records::LegacyOffsetCommitKey>(),
    FormatInfo::of::<records::LegacyOffsetCommitValue>(),
    FormatInfo::of::<records::GroupMetadataKey>(),
    FormatInfo::of::<records::GroupMetadataValue>(),
    FormatInfo::of::<records::ConsumerGroupMetadataKey>(),
    FormatInfo::of::<records::ConsumerGroupMetadataValue>(),
    FormatInfo::of::<records::ConsumerGroupPartitionMetadataKey>(),
    FormatInfo::of::<records::ConsumerGroupPartitionMetadataValue>(),
    FormatInfo::of::<records::ConsumerGroupMemberMetadataKey>(),
    FormatInfo::of::<records::ConsumerGroupMemberMetadataValue>(),
    FormatInfo::of::<records::ConsumerGroupTargetAssignmentMetadataKey>(),
    FormatInfo::of::<records::ConsumerGroupTargetAssignmentMetadataValue>(),
    FormatInfo::of::<records::ConsumerGroupTargetAssignmentMemberKey>(),
    FormatInfo::of::<records::ConsumerGroupTargetAssignmentMemberValue>(),
    FormatInfo::of::<records::ConsumerGroupCurrentMemberAssignmentKey>(),
    FormatInfo::of::<records::ConsumerGroupCurrentMemberAssignmentValue>(),
    FormatInfo::of::<records::ConsumerGroupRegularExpressionKey>(),
    FormatInfo::of::<records::ConsumerGroupRegularExpressionValue>(),
];

/// All APIs that are advertised, by rising key.
pub const APIS: &[ApiSpec] = &{
    let mut specs = [API_INFOS[0].spec; API_INFOS.len()];
    let mut i = 1;
    while i < specs.len() {
        specs[i] = API_INFOS[i].spec;
        assert!(specs[i - 1].key < specs[i].key);
        i += 1;
    }
    specs
};

/// The API of this key, if we speak it.
pub fn api(key: i16) -> Option<&'static ApiSpec> {
    APIS.binary_search_by_key(&key, |spec| spec.key).ok().map(|i| &APIS[i])
}

/// The same with its bodies.
pub fn api_info(key: i16) -> Option<&'static ApiInfo> {
    APIS.binary_search_by_key(&key, |spec| spec.key).ok().map(|i| &API_INFOS[i])
}
