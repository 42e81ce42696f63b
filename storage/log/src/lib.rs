//! `storage/log`: all logs of a shard and the journal they share. Sans-IO: calls in, `DiskOp`s and `StoreEvent`s out.
#![forbid(unsafe_code)]

mod cache;
mod checkpoint;
mod chunk;
mod close;
mod commit;
mod compaction;
mod doubt;
mod entry;
pub mod epochs;
mod files;
mod find;
mod fold;
mod giant;
pub mod index;
pub mod inspect;
mod jobs;
mod journal;
mod leftovers;
mod loading;
mod log;
mod maintenance;
mod opening;
pub mod partition_metadata;
mod plan;
pub mod producer;
mod read;
mod reclaim;
mod recover;
mod removal;
mod room;
mod said;
mod scan;
mod segment;
pub mod snapshot;
mod spares;
mod squeeze;
mod store;
mod under_way;
mod zeroes;

use std::collections::BTreeSet;

use ringmain_buffer::{Buf, Refused};
use ringmain_disk::DiskError;
use ringmain_types::*;

pub use compaction::{CompactionConfig, CompactionStats};
pub use entry::LogState;
pub use store::Store;

/// What the records of a batch may come to that is in a log. Whoever took it in held it against bounds that may have been lowered since
/// (`socket.request.max.bytes` is a setting), and its CRC says that it is what was taken; so only what a batch can say bounds it.
pub(crate) const STORED_RECORDS_BYTES_MAX: usize = i32::MAX as usize;

/// What the store needs to know of a topic's configs.
#[derive(Clone, Debug, PartialEq)]
pub struct LogConfig {
    pub segment_bytes: u32,
    pub segment_ms: u64,
    pub segment_jitter_ms: u64,
    pub segment_index_bytes: u32,
    pub index_interval_bytes: u32,
    /// -1: no bound.
    pub retention_bytes: i64,
    /// -1: no bound.
    pub retention_ms: i64,
    /// `cleanup.policy` has `delete`; without it only `DeleteRecords` moves the start.
    pub delete: bool,
    /// `cleanup.policy` has `compact`.
    pub compaction: Option<CompactionConfig>,
    pub log_append_time: bool,
    /// An idempotent producer that is silent for so long is forgotten.
    pub producer_expiration_ms: u64,
    pub flush: FlushMode,
    /// Space reserved ahead of what is written, from the opening on, so that a disk that fills up does not stop the log at once; 0:
    /// when whole blocks are there.
    pub reserve_bytes: u32,
}

impl LogConfig {
    /// Nothing is rolled by time, and nothing is removed; durable before acknowledged.
    pub fn keeping_all(segment_bytes: u32) -> LogConfig {
        LogConfig {
            segment_bytes,
            segment_ms: u64::MAX,
            segment_jitter_ms: 0,
            segment_index_bytes: 10 << 20,
            index_interval_bytes: 4096,
            retention_bytes: -1,
            retention_ms: -1,
            delete: false,
            compaction: None,
            log_append_time: false,
            producer_expiration_ms: u64::MAX,
            flush: FlushMode::Group,
            reserve_bytes: 0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushMode {
    /// Durable before acknowledged.
    Group,
    /// Flushed within 100 ms or 256 KiB; visible and acknowledged before.
    Async,
}

pub enum AppendAs {
    Leader {
        epoch: LeaderEpoch,
    },
    /// Offsets and epochs are the leader's, already stamped.
    Follower,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    pub base: Offset,
    /// The offset behind the batch: an ack waits until this is flushed.
    pub next: Offset,
    /// A batch seen before: `base` is what it got then.
    pub duplicate: bool,
    /// Set when the topic stamps LogAppendTime.
    pub log_append_time: Option<WallMs>,
}
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppendError {
    /// The directory failed, or the log is being removed: KAFKA_STORAGE_ERROR / UNKNOWN_TOPIC_OR_PARTITION.
    Fenced,
    Removed,
    /// 45 OutOfOrderSequenceNumber, 47 InvalidProducerEpoch, 46 DuplicateSequenceNumber (older than the five remembered).
    Sequence(ErrorCode),
    /// No room in Tail or in the journal: answered with a retriable code; nothing was written.
    Memory(Refused),
    /// The device is full. Nothing was written, reads go on, and appends do when there is space again.
    NoSpace,
    /// Larger than a segment can be.
    TooLarge {
        bytes: u32,
        max: u32,
    },
    OutOfOrder {
        end: Offset,
        got: Offset,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadAt {
    pub log: LogId,
    pub from: Offset,
    pub below: Offset,
    pub bytes_max: u32,
    pub at_least_one: bool,
}
#[derive(Debug)]
pub enum ReadResult {
    /// Whole batches, uncopied; the first contains `from`. Tail, cache and disk look alike. Empty when `from` is the end.
    Ready(Slices),
    /// Reads were issued; `StoreEvent::Read` follows with this token.
    Pending(ReadToken),
    OutOfRange {
        start: Offset,
        end: Offset,
    },
    /// No memory now; try again.
    Memory(Refused),
    Failed(ReadError),
}
#[derive(Clone, Debug)]
pub enum ReadError {
    Disk(DiskError),
    /// bytes that were acknowledged do not check: never served
    Rot {
        segment: Offset,
        position: Position,
    },
    /// A sound batch is larger than the memory for reads: it was taken when there was more.
    TooLarge {
        segment: Offset,
        position: Position,
        bytes: u32,
        max: u32,
    },
    Removed,
}
#[derive(Clone, Debug, Default)]
pub struct Slices {
    pub parts: Vec<Buf>,
    pub bytes: u32,
    pub next: Offset,
    pub aborted: Vec<(ProducerId, Offset)>,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadToken(pub u64);

/// ListOffsets by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub offset: Offset,
    pub timestamp: WallMs,
    pub epoch: LeaderEpoch,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeQuery {
    /// The first record at or after it.
    At(WallMs),
    /// The record with the greatest timestamp (-3).
    Max,
}
#[derive(Debug)]
pub enum FindResult {
    Ready(Option<Found>),
    Pending(ReadToken),
    Memory(Refused),
    Failed(ReadError),
}

#[derive(Debug)]
pub enum StoreEvent {
    /// The journal is replayed: logs may be opened.
    Opened,
    /// This log is recovered (or new) and usable.
    Recovered {
        log: LogId,
        partition: Partition,
        report: Recovery,
    },
    /// Local durability: everything of this log below `end`. The only thing an ack may follow from.
    Flushed {
        log: LogId,
        end: Offset,
    },
    /// The log start moved (retention, DeleteRecords) and that is durable.
    Started {
        log: LogId,
        start: Offset,
    },
    Read {
        log: LogId,
        token: ReadToken,
        result: ReadResult,
    },
    Found {
        log: LogId,
        token: ReadToken,
        result: FindResult,
    },
    /// A write or a flush failed: every log of the directory, because the flush was theirs together.
    Fenced {
        dir: DirId,
        error: DiskError,
    },
    /// A reservation found no space. It is tried again; until then the log takes what fits in the journal, and refuses the rest.
    NoSpace {
        partition: Partition,
        error: DiskError,
    },
    /// There is space again, after `NoSpace`.
    SpaceAgain {
        partition: Partition,
    },
    /// A read met bytes that do not check; told once in a life, some dozens of a log at most. What was asked for fails.
    Damaged {
        partition: Partition,
        damage: Damage,
    },
    /// The log's files are gone.
    Removed {
        log: LogId,
    },
    Closed,
}
#[derive(Clone, Debug, Default)]
pub struct Recovery {
    pub start: Offset,
    pub end: Offset,
    pub epoch: LeaderEpoch,
    pub scanned_bytes: u64,
    pub torn_bytes: u64,
    pub damage: Vec<Damage>,
}
#[derive(Clone, Debug)]
pub enum Damage {
    Rot {
        path: String,
        position: u64,
    },
    /// Nothing is wrong with it, but it can't be read with so little memory.
    TooLarge {
        path: String,
        position: u64,
        bytes: u32,
        max: u32,
    },
    Unreadable(DiskError),
    Stray {
        path: String,
    },
}

/// What DescribeProducers shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerView {
    pub id: ProducerId,
    pub epoch: ProducerEpoch,
    pub last_sequence: Sequence,
    pub last_timestamp: WallMs,
}

/// What a store must know of the whole before it takes anything for left over.
#[derive(Clone, Debug)]
pub struct Known {
    pub shards: u16,
    /// Names of all topics.
    pub topics: BTreeSet<String>,
    /// Topics of which it is written that they were removed: of no other a log goes. That a topic is not there may also mean that the
    /// metadata lost it.
    pub removed: BTreeSet<TopicId>,
}

#[derive(Clone, Debug)]
pub struct StoreConfig {
    pub shard: ShardId,
    pub dir: DirId,
    pub limits: Limits,
    /// keys hashers
    pub seed: u64,
    /// Names the set of journals (`journal-<generation>/<shard>.journal`); a new one when the number of cores changes.
    pub journal_generation: u64,
    /// Whether the journal was made before: then a missing one is an error, not a beginning.
    pub journal_exists: bool,
    /// Whether the probe found that the journal's flush covers overwritten extents of other files (MEASURED.md: ext4, xfs).
    pub journal_flush_covers: bool,
}
