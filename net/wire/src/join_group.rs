//! JoinGroup (key 11).

use ringmain_types::ErrorCode;

use crate::Array;
use crate::api::api;

api! {
    /// Enters a classic group, or enters its next generation; answered when the generation is complete. A member id must be
    /// had first from v4 (KIP-394), static members from v5 (KIP-345), protocol names from v7, reasons from v8 (KIP-800), skipped
    /// assignments from v9 (KIP-814).
    api JOIN_GROUP "JoinGroup" = 11, versions 0..=9, flexible 6, Barrier,
        JoinGroupRequest, JoinGroupResponse;

    struct JoinGroupRequest<'a> {
        group_id: &'a str = 0..;
        session_timeout_ms: i32 = 0..;
        /// -1 in v0, which has the session timeout for it.
        rebalance_timeout_ms: i32 = 1.., default -1;
        /// Empty when the member has none yet.
        member_id: &'a str = 0..;
        group_instance_id: Option<&'a str> = 5..;
        protocol_type: &'a str = 0..;
        /// By falling preference.
        protocols: Array<'a, JoinGroupRequestProtocol<'a>> = 0..;
        reason: Option<&'a str> = 8..;
    }

    struct JoinGroupRequestProtocol<'a> {
        name: &'a str = 0..;
        /// Opaque to the broker, but for the `consumer` type, where it is a subscription.
        metadata: &'a [u8] = 0..;
    }

    struct JoinGroupResponse<'a> {
        throttle_time_ms: i32 = 2..;
        error_code: ErrorCode = 0..;
        generation_id: i32 = 0.., default -1;
        protocol_type: Option<&'a str> = 7..;
        protocol_name: Option<&'a str> = 0.., nullable 7..;
        leader: &'a str = 0..;
        /// The leader is told its members, but has nothing to assign.
        skip_assignment: bool = 9..;
        member_id: &'a str = 0..;
        /// Empty but for the leader.
        members: Array<'a, JoinGroupResponseMember<'a>> = 0..;
    }

    struct JoinGroupResponseMember<'a> {
        member_id: &'a str = 0..;
        group_instance_id: Option<&'a str> = 5..;
        metadata: &'a [u8] = 0..;
    }
}
