//! FindCoordinator (key 10).

use ringmain_types::{BrokerId, ErrorCode};

use crate::Array;
use crate::api::api;

api! {
    /// Which broker coordinates these groups (key type 0) or transactional ids (1). Batches from v4 (KIP-699).
    api FIND_COORDINATOR "FindCoordinator" = 10, versions 0..=6, flexible 3, Ordered,
        FindCoordinatorRequest, FindCoordinatorResponse;

    struct FindCoordinatorRequest<'a> {
        key: &'a str = 0..=3;
        /// 0 group, 1 transactional id, 2 share group (v6).
        key_type: i8 = 1..;
        coordinator_keys: Array<'a, &'a str> = 4..;
    }

    struct FindCoordinatorResponse<'a> {
        throttle_time_ms: i32 = 1..;
        error_code: ErrorCode = 0..=3;
        error_message: Option<&'a str> = 1..=3;
        node_id: BrokerId = 0..=3;
        host: &'a str = 0..=3;
        port: i32 = 0..=3;
        coordinators: Array<'a, Coordinator<'a>> = 4..;
    }

    struct Coordinator<'a> {
        key: &'a str = 4..;
        node_id: BrokerId = 4..;
        host: &'a str = 4..;
        port: i32 = 4..;
        error_code: ErrorCode = 4..;
        error_message: Option<&'a str> = 4..;
    }
}
