//! ConsumerGroupDescribe (key 69).

use ringmain_types::{ErrorCode, PartitionIndex, TopicId};

use crate::Array;
use crate::api::api;

api! {
    /// Epochs, members and assignments of KIP-848 groups.
    api CONSUMER_GROUP_DESCRIBE "ConsumerGroupDescribe" = 69, versions 0..=1, flexible 0, Barrier,
        ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse;

    struct ConsumerGroupDescribeRequest<'a> {
        group_ids: Array<'a, &'a str> = 0..;
        include_authorized_operations: bool = 0..;
    }

    struct ConsumerGroupDescribeResponse<'a> {
        throttle_time_ms: i32 = 0..;
        groups: Array<'a, DescribedGroup<'a>> = 0..;
    }

    struct DescribedGroup<'a> {
        error_code: ErrorCode = 0..;
        error_message: Option<&'a str> = 0..;
        group_id: &'a str = 0..;
        group_state: &'a str = 0..;
        group_epoch: i32 = 0..;
        assignment_epoch: i32 = 0..;
        assignor_name: &'a str = 0..;
        members: Array<'a, Member<'a>> = 0..;
        /// A bit field; `i32::MIN` when not asked for.
        authorized_operations: i32 = 0.., default i32::MIN;
    }

    struct Member<'a> {
        member_id: &'a str = 0..;
        instance_id: Option<&'a str> = 0..;
        rack_id: Option<&'a str> = 0..;
        member_epoch: i32 = 0..;
        client_id: &'a str = 0..;
        client_host: &'a str = 0..;
        subscribed_topic_names: Array<'a, &'a str> = 0..;
        subscribed_topic_regex: Option<&'a str> = 0..;
        assignment: Assignment<'a> = 0..;
        target_assignment: Assignment<'a> = 0..;
        /// 0 classic, 1 consumer, -1 unknown.
        member_type: i8 = 1.., default -1;
    }

    struct Assignment<'a> {
        topic_partitions: Array<'a, TopicPartitions<'a>> = 0..;
    }

    struct TopicPartitions<'a> {
        topic_id: TopicId = 0..;
        topic_name: &'a str = 0..;
        partitions: Array<'a, PartitionIndex> = 0..;
    }
}
