//! Heartbeat (key 12).

use ringmain_types::ErrorCode;

use crate::api::api;

api! {
    /// Keeps a classic member alive; error 27 tells it to join again.
    api HEARTBEAT "Heartbeat" = 12, versions 0..=4, flexible 4, Barrier,
        HeartbeatRequest, HeartbeatResponse;

    struct HeartbeatRequest<'a> {
        group_id: &'a str = 0..;
        generation_id: i32 = 0..;
        member_id: &'a str = 0..;
        group_instance_id: Option<&'a str> = 3..;
    }

    struct HeartbeatResponse {
        throttle_time_ms: i32 = 1..;
        error_code: ErrorCode = 0..;
    }
}
