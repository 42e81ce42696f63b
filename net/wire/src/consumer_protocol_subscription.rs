//! ConsumerProtocolSubscription: What a member of protocol type `consumer` says in JoinGroup.
//! Behind a version of its own (16 bits); a later version only adds fields to the end.

use ringmain_types::PartitionIndex;

use crate::Array;
use crate::api::api;

api! {
    /// Flexible in no version.
    format ConsumerProtocolSubscription<'_> = -1, versions 0..=3, flexible 32767;

    struct ConsumerProtocolSubscription<'a> {
        topics: Array<'a, &'a str> = 0..;
        user_data: Option<&'a [u8]> = 0..;
        owned_partitions: Array<'a, TopicPartition<'a>> = 1..;
        /// When the owned partitions were assigned.
        generation_id: i32 = 2.., default -1;
        rack_id: Option<&'a str> = 3..;
    }

    struct TopicPartition<'a> {
        topic: &'a str = 1..;
        partitions: Array<'a, PartitionIndex> = 1..;
    }
}
