//! `net/wire`: Kafka's protocol. One file an API, in the `api!` form (see `api.rs`). Decoding allocates nothing, whatever the bytes
//! claim; encoding splices record buffers. Runs on every core; owns no state. What a field may mean is the shard's business, how long
//! a frame may be is the session's.
#![forbid(unsafe_code)]

mod api;
mod array;
mod error;
mod field;
mod frame;
mod kind;
mod reader;
mod record_bytes;
mod writer;

pub mod alter_configs;
pub mod api_versions;
pub mod create_partitions;
pub mod create_topics;
pub mod delete_records;
pub mod delete_topics;
pub mod describe_cluster;
pub mod describe_configs;
pub mod describe_log_dirs;
pub mod describe_producers;
pub mod describe_topic_partitions;
pub mod fetch;
pub mod incremental_alter_configs;
pub mod init_producer_id;
pub mod list_config_resources;
pub mod list_offsets;
pub mod metadata;
pub mod offset_for_leader_epoch;
pub mod produce;

pub use alter_configs::{ALTER_CONFIGS, AlterConfigsRequest, AlterConfigsResponse};
pub use api_versions::{API_VERSIONS, ApiVersionsRequest, ApiVersionsResponse};
pub use array::{Array, ArrayIter, WireArray};
pub use create_partitions::{CREATE_PARTITIONS, CreatePartitionsRequest, CreatePartitionsResponse};
pub use create_topics::{CREATE_TOPICS, CreateTopicsRequest, CreateTopicsResponse};
pub use delete_records::{DELETE_RECORDS, DeleteRecordsRequest, DeleteRecordsResponse};
pub use delete_topics::{DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicsResponse};
pub use describe_cluster::{DESCRIBE_CLUSTER, DescribeClusterRequest, DescribeClusterResponse};
pub use describe_configs::{DESCRIBE_CONFIGS, DescribeConfigsRequest, DescribeConfigsResponse};
pub use describe_log_dirs::{DESCRIBE_LOG_DIRS, DescribeLogDirsRequest, DescribeLogDirsResponse};
pub use describe_producers::{DESCRIBE_PRODUCERS, DescribeProducersRequest, DescribeProducersResponse};
pub use describe_topic_partitions::{
    DESCRIBE_TOPIC_PARTITIONS, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse,
};
pub use error::WireError;
pub use fetch::{FETCH, FetchRequest, FetchResponse};
pub use field::Field;
pub use frame::{
    RequestHeader, advertised, decode, decode_reply, decode_request, encode_reply, encode_request,
    encode_unsupported_api_versions, request_header,
};
pub use incremental_alter_configs::{
    INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};
pub use init_producer_id::{INIT_PRODUCER_ID, InitProducerIdRequest, InitProducerIdResponse};
pub use kind::{ApiInfo, FieldInfo, Kind, StructInfo};
pub use list_config_resources::{LIST_CONFIG_RESOURCES, ListConfigResourcesRequest, ListConfigResourcesResponse};
pub use list_offsets::{LIST_OFFSETS, ListOffsetsRequest, ListOffsetsResponse};
pub use metadata::{METADATA, MetadataRequest, MetadataResponse};
pub use offset_for_leader_epoch::{OFFSET_FOR_LEADER_EPOCH, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};
pub use produce::{PRODUCE, ProduceRequest, ProduceResponse};
pub use reader::Reader;
pub use record_bytes::RecordBytes;
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
    incremental_alter_configs::INFO,
    describe_cluster::INFO,
    describe_producers::INFO,
    list_config_resources::INFO,
    describe_topic_partitions::INFO,
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
