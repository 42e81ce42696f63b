//! `storage/types`: ids, clocks, error codes and limits that every other crate speaks in. No dependencies, no behaviour beyond
//! what a name needs.
#![forbid(unsafe_code)]

mod error;
mod limits;
mod topic_id;

pub use error::ErrorCode;
pub use limits::Limits;
pub use topic_id::TopicIdError;

macro_rules! newtypes { ($($(#[$m:meta])* $n:ident($t:ty);)*) => {$(
    $(#[$m])*
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub struct $n(pub $t);
)*} }

newtypes! {
    /// A record's place in its partition.
    Offset(i64);
    /// A byte's place in a file. Kafka's indexes hold 31 bits, so a segment never grows past `i32::MAX`.
    Position(u32);
    /// Rises with every change of a partition's leader (KIP-101).
    LeaderEpoch(i32);
    /// Rises with every change of a partition's state.
    PartitionEpoch(i32);
    /// Names one life of a broker.
    BrokerEpoch(i64);
    /// The metadata quorum's term.
    Term(i64);
    /// An idempotent producer (KIP-98).
    ProducerId(i64);
    /// Fences earlier lives of a producer.
    ProducerEpoch(i16);
    /// A record's number from one producer to one partition; wraps from `i32::MAX` to 0.
    Sequence(i32);
    BrokerId(i32);
    ShardId(u16);
    PartitionIndex(i32);
    /// A UUID; 0 is none.
    TopicId(u128);
    /// A log directory: the unit that fails, fences and flushes.
    DirId(u8);
    /// Nanoseconds of a monotonic clock; never compared across brokers.
    Instant(u64);
    /// Milliseconds since 1970: record timestamps and retention only, never ordering.
    WallMs(i64);
    /// Whom a connection authenticated as; 0 is anonymous. Interned in the cluster image.
    PrincipalId(u32);
}

impl Instant {
    pub fn plus_ms(self, ms: u64) -> Instant {
        Instant(self.0.saturating_add(ms.saturating_mul(1_000_000)))
    }
    /// Nanoseconds since `earlier`; 0 when it is later.
    pub fn since(self, earlier: Instant) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl TopicId {
    pub const NONE: TopicId = TopicId(0);
    /// The metadata log's topic, as in Kafka (`Uuid.METADATA_TOPIC_ID`).
    pub const METADATA: TopicId = TopicId(1);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition {
    pub topic: TopicId,
    pub index: PartitionIndex,
}

impl Partition {
    /// The one partition of the metadata log; shard 0 owns it.
    pub const METADATA: Partition = Partition { topic: TopicId::METADATA, index: PartitionIndex(0) };
}

/// A slot plus the generation that guards it. Every completion, timer and mesh reply carries one, so that nothing that was asked
/// of an earlier life reaches a later one (FAILURES 13, 18, 49, 50).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId {
    pub slot: u32,
    pub generation: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    pub shard: ShardId,
    pub slot: u32,
    pub generation: u32,
}

/// Both clocks, read once a turn. There is no other source of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    pub mono: Instant,
    pub wall: WallMs,
}

/// Who pays for memory. Tail can't be evicted; Cache can; Reply is what slow consumers hold; Receive is frames being assembled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Account {
    Receive,
    Tail,
    Cache,
    Reply,
    Background,
    Control,
}
pub const ACCOUNTS: usize = 6;

/// `(hash(topic) + index) % shards`: a topic's partitions are dealt evenly (a plain hash puts 3 of 4 on one of two cores now and
/// then), and every broker deals alike. The metadata log is shard 0's.
pub fn owner(partition: Partition, shards: u16) -> ShardId {
    assert!(shards > 0);
    if partition.topic == TopicId::METADATA {
        return ShardId(0);
    }
    // The finalizer of MurmurHash3 over both halves: topic ids are random already, this only folds them.
    let mut hash = (partition.topic.0 >> 64) as u64 ^ partition.topic.0 as u64;
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    ShardId((hash.wrapping_add(partition.index.0 as u64) % u64::from(shards)) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_of_a_topic_are_dealt_evenly() {
        for topic in 2..200u128 {
            let mut count = [0; 3];
            for index in 0..9 {
                count[owner(Partition { topic: TopicId(topic << 60), index: PartitionIndex(index) }, 3).0 as usize] +=
                    1;
            }
            assert_eq!(count, [3, 3, 3]);
        }
        assert_eq!(owner(Partition::METADATA, 7), ShardId(0));
    }
}
