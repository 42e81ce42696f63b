//! `broker/group`: groups of one partition of `__consumer_offsets`: classic groups, KIP-848 consumer groups, and their committed
//! offsets, as a machine for `broker/coordinator`. No I/O, no clock, no randomness: the time, the random part of ids, and what the
//! cluster's topics are come in with the call. Runs on the core that owns the partition.
#![forbid(unsafe_code)]

mod assignor;
mod classic;
mod commit;
mod config;
mod consumer;
mod coordinator;
mod describe;
mod figures;
mod group;
mod offsets;
mod record;
mod removal;
mod request;
mod topics;

pub use assignor::Assignor;
pub use config::{GroupConfig, GroupLimits, Migration};
pub use consumer::Heartbeat as ConsumerHeartbeat;
pub use coordinator::GroupCoordinator;
pub use figures::Figures;
pub use group::State;
pub use offsets::CommittedOffset;
pub use record::{
    Assignment, ClassicProtocol, CurrentAssignment, Generation, GenerationMember, MemberMetadata, Record,
};
pub use request::{
    Client, CommitOffset, CommitOffsets, Described, DescribedConsumer, DescribedConsumerMember, DescribedMember,
    FetchOffsets, FetchTopic, FetchedOffset, JoinReply, Joined, JoinedMember, LeftMember, Listed, OffsetTopic, Reply,
    Request, SyncReply,
};
pub use topics::{GroupOverrides, Topics};

/// The partition of `__consumer_offsets` that a group belongs to, as in Kafka: `abs(hashCode) % partitions` of the Java string.
pub fn partition_of(group: &str, partitions: i32) -> i32 {
    assert!(partitions > 0);
    let hash = group.encode_utf16().fold(0i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    // Kafka's `Utils.abs`: the least integer has no counterpart and becomes 0.
    let positive = if hash == i32::MIN { 0 } else { hash.abs() };
    positive % partitions
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asked of a JVM: `Math.abs("...".hashCode()) % 50`.
    #[test]
    fn groups_have_the_partitions_that_kafka_gives_them() {
        for (group, partition) in [("", 0), ("a", 47), ("test-group", 12), ("größe", 7), ("polygenelubricants", 0)] {
            assert_eq!(partition_of(group, 50), partition, "{group}");
        }
    }
}
