//! OffsetDelete (key 47).

use ringmain_types::{ErrorCode, PartitionIndex};

use crate::Array;
use crate::api::api;

api! {
    /// Deletes committed offsets of topics that the group is not subscribed to (KIP-496).
    api OFFSET_DELETE "OffsetDelete" = 47, versions 0..=0, flexible 32767, Barrier,
        OffsetDeleteRequest, OffsetDeleteResponse;

    struct OffsetDeleteRequest<'a> {
        group_id: &'a str = 0..;
        topics: Array<'a, OffsetDeleteRequestTopic<'a>> = 0..;
    }

    struct OffsetDeleteRequestTopic<'a> {
        name: &'a str = 0..;
        partitions: Array<'a, OffsetDeleteRequestPartition> = 0..;
    }

    struct OffsetDeleteRequestPartition {
        partition_index: PartitionIndex = 0..;
    }

    struct OffsetDeleteResponse<'a> {
        error_code: ErrorCode = 0..;
        throttle_time_ms: i32 = 0..;
        topics: Array<'a, OffsetDeleteResponseTopic<'a>> = 0..;
    }

    struct OffsetDeleteResponseTopic<'a> {
        name: &'a str = 0..;
        partitions: Array<'a, OffsetDeleteResponsePartition> = 0..;
    }

    struct OffsetDeleteResponsePartition {
        partition_index: PartitionIndex = 0..;
        error_code: ErrorCode = 0..;
    }
}
