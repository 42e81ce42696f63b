//! LeaveGroup (key 13).

use ringmain_types::ErrorCode;

use crate::Array;
use crate::api::api;

api! {
    /// Takes members out of a classic group; several, and static ones, from v3.
    api LEAVE_GROUP "LeaveGroup" = 13, versions 0..=5, flexible 4, Barrier,
        LeaveGroupRequest, LeaveGroupResponse;

    struct LeaveGroupRequest<'a> {
        group_id: &'a str = 0..;
        member_id: &'a str = 0..=2;
        members: Array<'a, MemberIdentity<'a>> = 3..;
    }

    struct MemberIdentity<'a> {
        member_id: &'a str = 3..;
        group_instance_id: Option<&'a str> = 3..;
        reason: Option<&'a str> = 5..;
    }

    struct LeaveGroupResponse<'a> {
        throttle_time_ms: i32 = 1..;
        error_code: ErrorCode = 0..;
        members: Array<'a, MemberResponse<'a>> = 3..;
    }

    struct MemberResponse<'a> {
        member_id: &'a str = 3..;
        group_instance_id: Option<&'a str> = 3..;
        error_code: ErrorCode = 3..;
    }
}
