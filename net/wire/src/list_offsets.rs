//! ListOffsets (key 2).

use ringmain_types::{BrokerId, ErrorCode, LeaderEpoch, Offset, PartitionIndex};

use crate::Array;
use crate::api::api;

api! {
    /// Offsets by timestamp, or by one of the special timestamps (KIP-79, KIP-734, KIP-405).
    api LIST_OFFSETS "ListOffsets" = 2, versions 1..=11, flexible 6, Ordered,
        ListOffsetsRequest, ListOffsetsResponse;

    struct ListOffsetsRequest<'a> {
        /// -1 of a consumer.
        replica_id: BrokerId = 0..;
        /// 0 read uncommitted, 1 read committed.
        isolation_level: i8 = 2..;
        topics: Array<'a, ListOffsetsTopic<'a>> = 0..;
        timeout_ms: i32 = 10..;
    }

    struct ListOffsetsTopic<'a> {
        name: &'a str = 0..;
        partitions: Array<'a, ListOffsetsPartition> = 0..;
    }

    struct ListOffsetsPartition {
        partition_index: PartitionIndex = 0..;
        current_leader_epoch: LeaderEpoch = 4.., default LeaderEpoch(-1);
        /// -1 latest, -2 earliest, -3 of the greatest timestamp, -4 earliest local, -5 latest tiered.
        timestamp: i64 = 0..;
    }

    struct ListOffsetsResponse<'a> {
        throttle_time_ms: i32 = 2..;
        topics: Array<'a, ListOffsetsTopicResponse<'a>> = 0..;
    }

    struct ListOffsetsTopicResponse<'a> {
        name: &'a str = 0..;
        partitions: Array<'a, ListOffsetsPartitionResponse> = 0..;
    }

    struct ListOffsetsPartitionResponse {
        partition_index: PartitionIndex = 0..;
        error_code: ErrorCode = 0..;
        /// -1 latest, -2 earliest, -3 of the greatest timestamp, -4 earliest local, -5 latest tiered.
        timestamp: i64 = 1.., default -1;
        offset: Offset = 1.., default Offset(-1);
        leader_epoch: LeaderEpoch = 4.., default LeaderEpoch(-1);
    }
}
