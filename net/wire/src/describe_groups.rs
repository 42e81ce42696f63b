//! DescribeGroups (key 15).

use ringmain_types::ErrorCode;

use crate::Array;
use crate::api::api;

api! {
    /// States and members of classic groups. Unknown groups are error 69 from v6, and `Dead` before.
    api DESCRIBE_GROUPS "DescribeGroups" = 15, versions 0..=6, flexible 5, Barrier,
        DescribeGroupsRequest, DescribeGroupsResponse;

    struct DescribeGroupsRequest<'a> {
        groups: Array<'a, &'a str> = 0..;
        include_authorized_operations: bool = 3..;
    }

    struct DescribeGroupsResponse<'a> {
        throttle_time_ms: i32 = 1..;
        groups: Array<'a, DescribedGroup<'a>> = 0..;
    }

    struct DescribedGroup<'a> {
        error_code: ErrorCode = 0..;
        error_message: Option<&'a str> = 6..;
        group_id: &'a str = 0..;
        group_state: &'a str = 0..;
        protocol_type: &'a str = 0..;
        /// The chosen protocol; empty while there is none.
        protocol_data: &'a str = 0..;
        members: Array<'a, DescribedGroupMember<'a>> = 0..;
        /// A bit field; `i32::MIN` when not asked for.
        authorized_operations: i32 = 3.., default i32::MIN;
    }

    struct DescribedGroupMember<'a> {
        member_id: &'a str = 0..;
        group_instance_id: Option<&'a str> = 4..;
        client_id: &'a str = 0..;
        client_host: &'a str = 0..;
        member_metadata: &'a [u8] = 0..;
        member_assignment: &'a [u8] = 0..;
    }
}
