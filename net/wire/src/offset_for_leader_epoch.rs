//! OffsetForLeaderEpoch (key 23).

use ringmain_types::{BrokerId, ErrorCode, LeaderEpoch, Offset, PartitionIndex};

use crate::Array;
use crate::api::api;

api! {
    /// Where an epoch of a partition ended, for consumers and followers that look for a divergence (KIP-101, KIP-320).
    api OFFSET_FOR_LEADER_EPOCH "OffsetForLeaderEpoch" = 23, versions 2..=4, flexible 4, Ordered,
        OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse;

    struct OffsetForLeaderEpochRequest<'a> {
        /// -1 of a consumer, -2 of a debug client.
        replica_id: BrokerId = 3.., default BrokerId(-2);
        topics: Array<'a, OffsetForLeaderTopic<'a>> = 0..;
    }

    struct OffsetForLeaderTopic<'a> {
        topic: &'a str = 0..;
        partitions: Array<'a, OffsetForLeaderPartition> = 0..;
    }

    struct OffsetForLeaderPartition {
        partition: PartitionIndex = 0..;
        current_leader_epoch: LeaderEpoch = 2.., default LeaderEpoch(-1);
        leader_epoch: LeaderEpoch = 0..;
    }

    struct OffsetForLeaderEpochResponse<'a> {
        throttle_time_ms: i32 = 2..;
        topics: Array<'a, OffsetForLeaderTopicResult<'a>> = 0..;
    }

    struct OffsetForLeaderTopicResult<'a> {
        topic: &'a str = 0..;
        partitions: Array<'a, EpochEndOffset> = 0..;
    }

    struct EpochEndOffset {
        error_code: ErrorCode = 0..;
        partition: PartitionIndex = 0..;
        leader_epoch: LeaderEpoch = 1.., default LeaderEpoch(-1);
        end_offset: Offset = 0.., default Offset(-1);
    }
}
