//! ConsumerProtocolAssignment: What the leader of protocol type `consumer` hands a member in SyncGroup.
//! Behind a version of its own (16 bits); a later version only adds fields to the end.

use ringmain_types::PartitionIndex;

use crate::Array;
use crate::api::api;

api! {
    /// Flexible in no version.
    format ConsumerProtocolAssignment<'_> = -1, versions 0..=3, flexible 32767;

    struct ConsumerProtocolAssignment<'a> {
        assigned_partitions: Array<'a, TopicPartition<'a>> = 0..;
        user_data: Option<&'a [u8]> = 0..;
    }

    struct TopicPartition<'a> {
        topic: &'a str = 0..;
        partitions: Array<'a, PartitionIndex> = 0..;
    }
}
