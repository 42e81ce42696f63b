//! DeleteGroups (key 42).

use ringmain_types::ErrorCode;

use crate::Array;
use crate::api::api;

api! {
    /// Deletes empty groups with their offsets.
    api DELETE_GROUPS "DeleteGroups" = 42, versions 0..=3, flexible 2, Barrier,
        DeleteGroupsRequest, DeleteGroupsResponse;

    struct DeleteGroupsRequest<'a> {
        groups_names: Array<'a, &'a str> = 0..;
    }

    struct DeleteGroupsResponse<'a> {
        throttle_time_ms: i32 = 0..;
        results: Array<'a, DeletableGroupResult<'a>> = 0..;
    }

    struct DeletableGroupResult<'a> {
        group_id: &'a str = 0..;
        error_code: ErrorCode = 0..;
        error_message: Option<&'a str> = 3..;
    }
}
