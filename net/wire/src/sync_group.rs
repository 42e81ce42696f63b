//! SyncGroup (key 14).

use ringmain_types::ErrorCode;

use crate::Array;
use crate::api::api;

api! {
    /// Hands in the leader's assignment, and answers each member's own.
    api SYNC_GROUP "SyncGroup" = 14, versions 0..=5, flexible 4, Barrier,
        SyncGroupRequest, SyncGroupResponse;

    struct SyncGroupRequest<'a> {
        group_id: &'a str = 0..;
        generation_id: i32 = 0..;
        member_id: &'a str = 0..;
        group_instance_id: Option<&'a str> = 3..;
        protocol_type: Option<&'a str> = 5..;
        protocol_name: Option<&'a str> = 5..;
        /// Empty but for the leader's.
        assignments: Array<'a, SyncGroupRequestAssignment<'a>> = 0..;
    }

    struct SyncGroupRequestAssignment<'a> {
        member_id: &'a str = 0..;
        assignment: &'a [u8] = 0..;
    }

    struct SyncGroupResponse<'a> {
        throttle_time_ms: i32 = 1..;
        error_code: ErrorCode = 0..;
        protocol_type: Option<&'a str> = 5..;
        protocol_name: Option<&'a str> = 5..;
        assignment: &'a [u8] = 0..;
    }
}
