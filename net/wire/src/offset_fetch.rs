//! OffsetFetch (key 9).

use ringmain_types::{ErrorCode, LeaderEpoch, Offset, PartitionIndex, TopicId};

use crate::Array;
use crate::api::api;

api! {
    /// Committed offsets of a group, of several from v8 (KIP-709), by topic id from v10 (KIP-848).
    api OFFSET_FETCH "OffsetFetch" = 9, versions 1..=10, flexible 6, Barrier,
        OffsetFetchRequest, OffsetFetchResponse;

    struct OffsetFetchRequest<'a> {
        group_id: &'a str = 0..=7;
        /// Null asks for all of the group.
        topics: Option<Array<'a, OffsetFetchRequestTopic<'a>>> = 0..=7, nullable 2..=7;
        groups: Array<'a, OffsetFetchRequestGroup<'a>> = 8..;
        /// Offsets that a transaction has pending are error 88 (KIP-447).
        require_stable: bool = 7..;
    }

    struct OffsetFetchRequestTopic<'a> {
        name: &'a str = 0..=7;
        partition_indexes: Array<'a, PartitionIndex> = 0..=7;
    }

    struct OffsetFetchRequestGroup<'a> {
        group_id: &'a str = 8..;
        member_id: Option<&'a str> = 9..;
        member_epoch: i32 = 9.., default -1;
        /// Null asks for all of the group.
        topics: Option<Array<'a, OffsetFetchRequestTopics<'a>>> = 8..;
    }

    struct OffsetFetchRequestTopics<'a> {
        name: &'a str = 8..=9;
        topic_id: TopicId = 10..;
        partition_indexes: Array<'a, PartitionIndex> = 8..;
    }

    struct OffsetFetchResponse<'a> {
        throttle_time_ms: i32 = 3..;
        topics: Array<'a, OffsetFetchResponseTopic<'a>> = 0..=7;
        error_code: ErrorCode = 2..=7;
        groups: Array<'a, OffsetFetchResponseGroup<'a>> = 8..;
    }

    struct OffsetFetchResponseTopic<'a> {
        name: &'a str = 0..=7;
        partitions: Array<'a, OffsetFetchResponsePartition<'a>> = 0..=7;
    }

    struct OffsetFetchResponsePartition<'a> {
        partition_index: PartitionIndex = 0..=7;
        committed_offset: Offset = 0..=7;
        committed_leader_epoch: LeaderEpoch = 5..=7, default LeaderEpoch(-1);
        metadata: Option<&'a str> = 0..=7;
        error_code: ErrorCode = 0..=7;
    }

    struct OffsetFetchResponseGroup<'a> {
        group_id: &'a str = 8..;
        topics: Array<'a, OffsetFetchResponseTopics<'a>> = 8..;
        error_code: ErrorCode = 8..;
    }

    struct OffsetFetchResponseTopics<'a> {
        name: &'a str = 8..=9;
        topic_id: TopicId = 10..;
        partitions: Array<'a, OffsetFetchResponsePartitions<'a>> = 8..;
    }

    struct OffsetFetchResponsePartitions<'a> {
        partition_index: PartitionIndex = 8..;
        committed_offset: Offset = 8..;
        committed_leader_epoch: LeaderEpoch = 8.., default LeaderEpoch(-1);
        metadata: Option<&'a str> = 8..;
        error_code: ErrorCode = 8..;
    }
}
