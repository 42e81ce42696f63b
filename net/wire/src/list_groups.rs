//! ListGroups (key 16).

use ringmain_types::ErrorCode;

use crate::Array;
use crate::api::api;

api! {
    /// All groups that this broker coordinates; filtered by state from v4 (KIP-518), by type from v5 (KIP-848).
    api LIST_GROUPS "ListGroups" = 16, versions 0..=5, flexible 3, Barrier,
        ListGroupsRequest, ListGroupsResponse;

    struct ListGroupsRequest<'a> {
        /// Empty lets all pass; case is ignored.
        states_filter: Array<'a, &'a str> = 4..;
        types_filter: Array<'a, &'a str> = 5..;
    }

    struct ListGroupsResponse<'a> {
        throttle_time_ms: i32 = 1..;
        error_code: ErrorCode = 0..;
        groups: Array<'a, ListedGroup<'a>> = 0..;
    }

    struct ListedGroup<'a> {
        group_id: &'a str = 0..;
        protocol_type: &'a str = 0..;
        group_state: &'a str = 4..;
        group_type: &'a str = 5..;
    }
}
