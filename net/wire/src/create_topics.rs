//! CreateTopics (key 19).

use ringmain_types::{BrokerId, ErrorCode, PartitionIndex, TopicId};

use crate::Array;
use crate::api::api;

api! {
    /// Creates topics; what became of them comes back from v5 (KIP-525), their ids from v7 (KIP-516).
    api CREATE_TOPICS "CreateTopics" = 19, versions 2..=7, flexible 5, Barrier,
        CreateTopicsRequest, CreateTopicsResponse;

    struct CreateTopicsRequest<'a> {
        topics: Array<'a, CreatableTopic<'a>> = 0..;
        timeout_ms: i32 = 0.., default 60000;
        validate_only: bool = 1..;
    }

    struct CreatableTopic<'a> {
        name: &'a str = 0..;
        /// -1 takes the broker's default, and is given with `assignments`.
        num_partitions: i32 = 0..;
        /// -1 takes the broker's default, and is given with `assignments`.
        replication_factor: i16 = 0..;
        assignments: Array<'a, CreatableReplicaAssignment<'a>> = 0..;
        configs: Array<'a, CreatableTopicConfig<'a>> = 0..;
    }

    struct CreatableReplicaAssignment<'a> {
        partition_index: PartitionIndex = 0..;
        broker_ids: Array<'a, BrokerId> = 0..;
    }

    struct CreatableTopicConfig<'a> {
        name: &'a str = 0..;
        value: Option<&'a str> = 0..;
    }

    struct CreateTopicsResponse<'a> {
        throttle_time_ms: i32 = 2..;
        topics: Array<'a, CreatableTopicResult<'a>> = 0..;
    }

    struct CreatableTopicResult<'a> {
        name: &'a str = 0..;
        topic_id: TopicId = 7..;
        error_code: ErrorCode = 0..;
        error_message: Option<&'a str> = 1..;
        /// -1 takes the broker's default, and is given with `assignments`.
        num_partitions: i32 = 5.., default -1;
        /// -1 takes the broker's default, and is given with `assignments`.
        replication_factor: i16 = 5.., default -1;
        configs: Option<Array<'a, CreatableTopicConfigs<'a>>> = 5..;
        topic_config_error_code: ErrorCode = 5.., tag 0;
    }

    struct CreatableTopicConfigs<'a> {
        name: &'a str = 5..;
        value: Option<&'a str> = 5..;
        read_only: bool = 5..;
        /// As in DescribeConfigs.
        config_source: i8 = 5.., default -1;
        is_sensitive: bool = 5..;
    }
}
