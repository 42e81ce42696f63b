//! DescribeLogDirs (key 35).

use ringmain_types::{ErrorCode, PartitionIndex};

use crate::Array;
use crate::api::api;

api! {
    /// Log directories, their sizes and the replicas in them (KIP-113, KIP-827).
    api DESCRIBE_LOG_DIRS "DescribeLogDirs" = 35, versions 1..=5, flexible 2, Ordered,
        DescribeLogDirsRequest, DescribeLogDirsResponse;

    struct DescribeLogDirsRequest<'a> {
        /// Null is all.
        topics: Option<Array<'a, DescribableLogDirTopic<'a>>> = 0..;
    }

    struct DescribableLogDirTopic<'a> {
        topic: &'a str = 0..;
        partitions: Array<'a, PartitionIndex> = 0..;
    }

    struct DescribeLogDirsResponse<'a> {
        throttle_time_ms: i32 = 0..;
        error_code: ErrorCode = 3..;
        results: Array<'a, DescribeLogDirsResult<'a>> = 0..;
    }

    struct DescribeLogDirsResult<'a> {
        error_code: ErrorCode = 0..;
        log_dir: &'a str = 0..;
        topics: Array<'a, DescribeLogDirsTopic<'a>> = 0..;
        total_bytes: i64 = 4.., default -1;
        usable_bytes: i64 = 4.., default -1;
        is_cordoned: bool = 5..;
    }

    struct DescribeLogDirsTopic<'a> {
        name: &'a str = 0..;
        partitions: Array<'a, DescribeLogDirsPartition> = 0..;
    }

    struct DescribeLogDirsPartition {
        partition_index: PartitionIndex = 0..;
        partition_size: i64 = 0..;
        /// How far the replica is behind the high watermark.
        offset_lag: i64 = 0..;
        is_future_key: bool = 0..;
    }
}
