//! A generation of a classic group in `__consumer_offsets`. No value: the group is gone.

use ringmain_types::WallMs;

use crate::Array;
use crate::api::api;

api! {
    /// Record type 2.
    format GroupMetadataKey<'_> = 2, versions 0..=0, flexible 32767;

    struct GroupMetadataKey<'a> {
        group: &'a str = 0..=0;
    }
}

api! {
    /// Written at each completed generation.
    format GroupMetadataValue<'_> = 2, versions 0..=4, flexible 4;

    struct GroupMetadataValue<'a> {
        protocol_type: &'a str = 0..;
        generation: i32 = 0..;
        /// Null when the group is empty.
        protocol: Option<&'a str> = 0..;
        /// Null when the group is empty.
        leader: Option<&'a str> = 0..;
        current_state_timestamp: WallMs = 2.., default WallMs(-1);
        members: Array<'a, MemberMetadata<'a>> = 0..;
    }

    struct MemberMetadata<'a> {
        member_id: &'a str = 0..;
        group_instance_id: Option<&'a str> = 3..;
        client_id: &'a str = 0..;
        client_host: &'a str = 0..;
        rebalance_timeout: i32 = 1.., default -1;
        session_timeout: i32 = 0..;
        /// Of the chosen protocol.
        subscription: &'a [u8] = 0..;
        assignment: &'a [u8] = 0..;
    }
}
