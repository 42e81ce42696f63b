//! ConsumerGroupHeartbeat (key 68).

use ringmain_types::{ErrorCode, PartitionIndex, TopicId};

use crate::Array;
use crate::api::api;

api! {
    /// A KIP-848 member's whole life: joins with epoch 0, says what changed and what it owns, learns its epoch and what it may own,
    /// leaves with -1 (static: -2).
    api CONSUMER_GROUP_HEARTBEAT "ConsumerGroupHeartbeat" = 68, versions 0..=1, flexible 0, Barrier,
        ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse;

    struct ConsumerGroupHeartbeatRequest<'a> {
        group_id: &'a str = 0..;
        member_id: &'a str = 0..;
        member_epoch: i32 = 0..;
        instance_id: Option<&'a str> = 0..;
        rack_id: Option<&'a str> = 0..;
        /// -1 when it did not change.
        rebalance_timeout_ms: i32 = 0.., default -1;
        subscribed_topic_names: Option<Array<'a, &'a str>> = 0..;
        subscribed_topic_regex: Option<&'a str> = 1..;
        server_assignor: Option<&'a str> = 0..;
        /// What the member owns; null when that did not change.
        topic_partitions: Option<Array<'a, TopicPartitions<'a>>> = 0..;
    }

    struct TopicPartitions<'a> {
        topic_id: TopicId = 0..;
        partitions: Array<'a, PartitionIndex> = 0..;
    }

    struct ConsumerGroupHeartbeatResponse<'a> {
        throttle_time_ms: i32 = 0..;
        error_code: ErrorCode = 0..;
        error_message: Option<&'a str> = 0..;
        member_id: Option<&'a str> = 0..;
        member_epoch: i32 = 0..;
        heartbeat_interval_ms: i32 = 0..;
        /// Null when it did not change.
        assignment: Option<Assignment<'a>> = 0..;
    }

    struct Assignment<'a> {
        topic_partitions: Array<'a, TopicPartitions<'a>> = 0..;
    }
}
