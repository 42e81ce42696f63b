//! DescribeTopicPartitions (key 75).

use ringmain_types::{BrokerId, ErrorCode, LeaderEpoch, PartitionIndex, TopicId};

use crate::Array;
use crate::api::api;

api! {
    /// Topics and partitions, a page at a time (KIP-966).
    api DESCRIBE_TOPIC_PARTITIONS "DescribeTopicPartitions" = 75, versions 0..=0, flexible 0, Ordered,
        DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse;

    struct DescribeTopicPartitionsRequest<'a> {
        topics: Array<'a, TopicRequest<'a>> = 0..;
        response_partition_limit: i32 = 0.., default 2000;
        cursor: Option<Cursor<'a>> = 0..;
    }

    struct TopicRequest<'a> {
        name: &'a str = 0..;
    }

    /// Where the next page starts.
    struct Cursor<'a> {
        topic_name: &'a str = 0..;
        partition_index: PartitionIndex = 0..;
    }

    struct DescribeTopicPartitionsResponse<'a> {
        throttle_time_ms: i32 = 0..;
        topics: Array<'a, DescribeTopicPartitionsResponseTopic<'a>> = 0..;
        next_cursor: Option<Cursor<'a>> = 0..;
    }

    struct DescribeTopicPartitionsResponseTopic<'a> {
        error_code: ErrorCode = 0..;
        name: Option<&'a str> = 0..;
        topic_id: TopicId = 0..;
        is_internal: bool = 0..;
        partitions: Array<'a, DescribeTopicPartitionsResponsePartition<'a>> = 0..;
        /// A bit field; `i32::MIN` when not asked for.
        topic_authorized_operations: i32 = 0.., default i32::MIN;
    }

    struct DescribeTopicPartitionsResponsePartition<'a> {
        error_code: ErrorCode = 0..;
        partition_index: PartitionIndex = 0..;
        leader_id: BrokerId = 0..;
        leader_epoch: LeaderEpoch = 0.., default LeaderEpoch(-1);
        replica_nodes: Array<'a, BrokerId> = 0..;
        isr_nodes: Array<'a, BrokerId> = 0..;
        eligible_leader_replicas: Option<Array<'a, BrokerId>> = 0..;
        last_known_elr: Option<Array<'a, BrokerId>> = 0..;
        offline_replicas: Array<'a, BrokerId> = 0..;
    }
}
