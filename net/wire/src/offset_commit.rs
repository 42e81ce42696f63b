//! OffsetCommit (key 8).

use ringmain_types::{ErrorCode, LeaderEpoch, Offset, PartitionIndex, TopicId};

use crate::Array;
use crate::api::api;

api! {
    /// Commits offsets of a group, by topic id from v10 (KIP-848).
    api OFFSET_COMMIT "OffsetCommit" = 8, versions 2..=10, flexible 8, Barrier,
        OffsetCommitRequest, OffsetCommitResponse;

    struct OffsetCommitRequest<'a> {
        group_id: &'a str = 0..;
        /// -1 with an empty member id: a commit from outside the group.
        generation_id_or_member_epoch: i32 = 1.., default -1;
        member_id: &'a str = 1..;
        group_instance_id: Option<&'a str> = 7..;
        /// -1 has the broker decide, always so from v5 on (KIP-211).
        retention_time_ms: i64 = 2..=4, default -1;
        topics: Array<'a, OffsetCommitRequestTopic<'a>> = 0..;
    }

    struct OffsetCommitRequestTopic<'a> {
        name: &'a str = 0..=9;
        topic_id: TopicId = 10..;
        partitions: Array<'a, OffsetCommitRequestPartition<'a>> = 0..;
    }

    struct OffsetCommitRequestPartition<'a> {
        partition_index: PartitionIndex = 0..;
        committed_offset: Offset = 0..;
        committed_leader_epoch: LeaderEpoch = 6.., default LeaderEpoch(-1);
        committed_metadata: Option<&'a str> = 0..;
    }

    struct OffsetCommitResponse<'a> {
        throttle_time_ms: i32 = 3..;
        topics: Array<'a, OffsetCommitResponseTopic<'a>> = 0..;
    }

    struct OffsetCommitResponseTopic<'a> {
        name: &'a str = 0..=9;
        topic_id: TopicId = 10..;
        partitions: Array<'a, OffsetCommitResponsePartition> = 0..;
    }

    struct OffsetCommitResponsePartition {
        partition_index: PartitionIndex = 0..;
        error_code: ErrorCode = 0..;
    }
}
