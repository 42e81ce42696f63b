//! CreatePartitions (key 37).

use ringmain_types::{BrokerId, ErrorCode};

use crate::Array;
use crate::api::api;

api! {
    /// Adds partitions to topics (KIP-195).
    api CREATE_PARTITIONS "CreatePartitions" = 37, versions 0..=3, flexible 2, Barrier,
        CreatePartitionsRequest, CreatePartitionsResponse;

    struct CreatePartitionsRequest<'a> {
        topics: Array<'a, CreatePartitionsTopic<'a>> = 0..;
        timeout_ms: i32 = 0..;
        validate_only: bool = 0..;
    }

    struct CreatePartitionsTopic<'a> {
        name: &'a str = 0..;
        /// Of partitions in all, the new ones included.
        count: i32 = 0..;
        /// Of the new partitions; null leaves them to the broker.
        assignments: Option<Array<'a, CreatePartitionsAssignment<'a>>> = 0..;
    }

    struct CreatePartitionsAssignment<'a> {
        broker_ids: Array<'a, BrokerId> = 0..;
    }

    struct CreatePartitionsResponse<'a> {
        throttle_time_ms: i32 = 0..;
        results: Array<'a, CreatePartitionsTopicResult<'a>> = 0..;
    }

    struct CreatePartitionsTopicResult<'a> {
        name: &'a str = 0..;
        error_code: ErrorCode = 0..;
        error_message: Option<&'a str> = 0..;
    }
}
