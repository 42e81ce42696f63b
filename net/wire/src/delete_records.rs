//! DeleteRecords (key 21).

use ringmain_types::{ErrorCode, Offset, PartitionIndex};

use crate::Array;
use crate::api::api;

api! {
    /// Moves the log start offset of partitions forward (KIP-107).
    api DELETE_RECORDS "DeleteRecords" = 21, versions 0..=2, flexible 2, Barrier,
        DeleteRecordsRequest, DeleteRecordsResponse;

    struct DeleteRecordsRequest<'a> {
        topics: Array<'a, DeleteRecordsTopic<'a>> = 0..;
        timeout_ms: i32 = 0..;
    }

    struct DeleteRecordsTopic<'a> {
        name: &'a str = 0..;
        partitions: Array<'a, DeleteRecordsPartition> = 0..;
    }

    struct DeleteRecordsPartition {
        partition_index: PartitionIndex = 0..;
        /// -1 is the high watermark.
        offset: Offset = 0..;
    }

    struct DeleteRecordsResponse<'a> {
        throttle_time_ms: i32 = 0..;
        topics: Array<'a, DeleteRecordsTopicResult<'a>> = 0..;
    }

    struct DeleteRecordsTopicResult<'a> {
        name: &'a str = 0..;
        partitions: Array<'a, DeleteRecordsPartitionResult> = 0..;
    }

    struct DeleteRecordsPartitionResult {
        partition_index: PartitionIndex = 0..;
        low_watermark: Offset = 0..;
        error_code: ErrorCode = 0..;
    }
}
