//! One log: its segments, what it knows of its producers and epochs, and what the next group must say of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ringmain_batch::{BatchHeader, BatchInfo, CheckedBatches, HEADER_BYTES, stamp, stamp_time};
use ringmain_buffer::{Buf, Pool};
use ringmain_types::*;

use crate::compaction::LogCompaction;
use crate::doubt::Unsure;
use crate::entry::{Checkpoint, LogState, SegmentState};
use crate::epochs::{EpochStart, LeaderEpochs};
use crate::plan::Plans;
use crate::producer::{ProducerState, Verdict};
use crate::recover::Recovering;
use crate::segment::{OpenSegment, Rolled, SealedSegment};
use crate::snapshot;
use crate::{AppendAs, AppendError, Appended, LogConfig};

/// A log that takes a chunk's worth within this much time gets a chunk of twice the size next.
const CHUNK_GROWS_WITHIN_MS: u64 = 1000;
const CHUNK_BYTES_MIN: u32 = 512;
/// A chunk that need not be large has room for so many batches.
const CHUNK_BATCHES: u32 = 4;

#[derive(Debug)]
pub(crate) enum Phase {
    /// Its files are being looked at.
    Recovering(Box<Recovering>),
    Ready,
    /// Something that was acknowledged is missing or does not check: nothing is added any more.
    Damaged,
    /// The next group says that it is gone.
    Removing,
    /// A group said so; its files go.
    Removed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Dir {
    None,
    Making,
    Ready(String),
}

/// What the next group has to say besides batches.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// Everything: the log's first word, its directory's name, a truncation, a reclaim.
    pub state: bool,
    pub start: bool,
    pub epochs: Vec<EpochStart>,
    pub sealed: Vec<Offset>,
    /// Its files are durable; what it covers may not be.
    pub checkpoint: Option<Box<Checkpoint>>,
}

impl Pending {
    pub fn any(&self) -> bool {
        self.state || self.start || !self.epochs.is_empty() || !self.sealed.is_empty()
    }
}

/// Whole batches in memory that the file has too; data's first byte is the segment's byte `first`.
#[derive(Debug)]
pub(crate) struct Cached {
    pub data: Buf,
    /// Its number in the store's order of eviction.
    pub order: u64,
}

#[derive(Debug)]
pub(crate) struct Log {
    pub id: LogId,
    pub partition: Partition,
    pub name: String,
    pub config: LogConfig,
    pub phase: Phase,
    pub dir: Dir,
    pub sealed: BTreeMap<Offset, SealedSegment>,
    /// Oldest first, the active one last. Never empty.
    pub open: VecDeque<OpenSegment>,
    /// By segment and position.
    pub cache: BTreeMap<(Offset, u32), Cached>,
    pub start: Offset,
    /// What is durably said of `start`.
    pub started: Offset,
    pub epochs: LeaderEpochs,
    pub producers: ProducerState,
    pub flushed: Offset,
    pub pending: Pending,
    /// Of the first open segment, as the journal has it.
    pub checkpoint: Option<Box<Checkpoint>>,
    /// The journal still tells of a checkpoint that this start did not believe: its files, of the same names as those of the next one perhaps,
    /// are not written over before the journal has said otherwise. A write that tears would be taken for rot by the next start.
    pub disbelieved: bool,
    /// Files of one are being written.
    pub checkpointing: bool,
    /// Snapshots that go when the next group is flushed.
    pub stale: Vec<Offset>,
    /// What the journal says of a damaged log: it is kept as it is.
    pub kept_state: Option<Box<LogState>>,
    /// The group in which the journal's word of this log begins.
    pub since: Option<u64>,
    /// A group with this log's news is not back yet.
    pub in_flight: bool,
    /// The group in flight tells of records that were cut since.
    pub cut: Option<Offset>,
    /// No block is written until the journal has said where the log ends now.
    pub hold: bool,
    /// A clean stop gave its file the exact length: from here on the journal alone speaks for it, and no block is written again.
    pub at_rest: bool,
    /// Of the oldest undeclared append.
    pub dirty_since: Option<Instant>,
    /// What it has to say waits for room in the ring: it takes little more until then.
    pub waits: bool,
    /// Jobs under way.
    pub jobs: u32,
    /// No space on the device; asked again at this time.
    pub full_until: Option<Instant>,
    /// The last reservation found none, and that was told.
    pub full: bool,
    /// Damaged places that were told of: segment, extension, position.
    pub rot_told: BTreeSet<(Offset, &'static str, u64)>,
    /// Batches that no memory holds, by segment and position: whether their CRC matches.
    pub giants: BTreeMap<(Offset, u32), bool>,
    /// Where an index led to no batch.
    pub unsure: Option<Unsure>,
    pub compaction: LogCompaction,
    chunk_hint: u32,
    chunk_at: Instant,
}

/// What all logs of a store share and an append needs.
pub(crate) struct Shared<'a> {
    pub now: Now,
    pub pool: &'a mut Pool,
    pub block: u32,
    pub chunk_bytes_max: u32,
    /// No larger than this where that is enough for a few batches: what is used again soon is still in the processor's cache.
    pub chunk_bytes_warm: u32,
    pub segment_bytes_max: u32,
}

impl Shared<'_> {
    /// The longest batch that there is memory for, with the rest of its first and last block.
    fn readable_bytes_max(&self) -> u32 {
        u32::try_from(self.pool.limit(Account::Cache)).unwrap_or(u32::MAX).saturating_sub(2 * self.block)
    }
}

impl Log {
    pub fn new(id: LogId, partition: Partition, name: &str, config: LogConfig, limits: &Limits, now: Now) -> Log {
        let index_bytes = config.segment_index_bytes;
        Log {
            id,
            partition,
            name: name.to_owned(),
            config,
            phase: Phase::Ready,
            dir: Dir::None,
            sealed: BTreeMap::new(),
            open: VecDeque::from([OpenSegment::new(Offset(0), index_bytes, now.wall)]),
            cache: BTreeMap::new(),
            start: Offset(0),
            started: Offset(0),
            epochs: LeaderEpochs::new(limits.epochs_per_log_max),
            producers: ProducerState::new(limits.producers_per_log_max),
            flushed: Offset(0),
            pending: Pending { state: true, ..Pending::default() },
            checkpoint: None,
            disbelieved: false,
            checkpointing: false,
            stale: Vec::new(),
            kept_state: None,
            since: None,
            in_flight: false,
            cut: None,
            hold: false,
            at_rest: false,
            dirty_since: None,
            waits: false,
            jobs: 0,
            full_until: None,
            rot_told: BTreeSet::new(),
            giants: BTreeMap::new(),
            unsure: None,
            compaction: LogCompaction::default(),
            full: false,
            chunk_hint: CHUNK_BYTES_MIN,
            chunk_at: Instant(0),
        }
    }

    pub fn active(&self) -> &OpenSegment {
        self.open.back().expect("a log has an active segment")
    }
    pub fn active_mut(&mut self) -> &mut OpenSegment {
        self.open.back_mut().expect("a log has an active segment")
    }
    pub fn end(&self) -> Offset {
        self.active().next
    }
    /// The offset behind what a group tells.
    pub fn told_end(&self, plans: &Plans) -> Offset {
        let told = self.open.iter().zip(&plans.of).next_back();
        told.map_or(
            self.end(),
            |(segment, plan)| {
                if plan.to == segment.end { segment.next } else { segment.declared_next }
            },
        )
    }
    pub fn segment_mut(&mut self, base: Offset) -> Option<&mut OpenSegment> {
        self.open.iter_mut().find(|segment| segment.base == base)
    }
    pub fn segment(&self, base: Offset) -> Option<&OpenSegment> {
        self.open.iter().find(|segment| segment.base == base)
    }
    pub fn ready(&self) -> bool {
        matches!(self.phase, Phase::Ready)
    }
    pub fn dir_name(&self) -> Option<&str> {
        match &self.dir {
            Dir::Ready(name) => Some(name),
            Dir::None | Dir::Making => None,
        }
    }
    /// The journal says, durably, all that it has to say of the log but batches: its directory's name too.
    pub fn declared(&self) -> bool {
        self.since.is_some() && !self.in_flight && !self.pending.state
    }

    /// Bytes that no file has.
    pub fn inline_bytes(&self) -> u32 {
        self.open.iter().map(|segment| segment.end - segment.written_to).sum()
    }

    pub fn size_bytes(&self) -> u64 {
        let sealed: u64 = self.sealed.values().map(|segment| u64::from(segment.bytes)).sum();
        sealed + self.open.iter().map(|segment| u64::from(segment.end)).sum::<u64>()
    }

    /// Whether a group must be told something.
    pub fn news(&self) -> bool {
        match self.phase {
            Phase::Ready => {
                // A log that never held a record needs no word in the journal, whatever `pending.state` says.
                let silent = self.since.is_none() && self.end() == Offset(0) && self.pending.epochs.is_empty();
                let undeclared = self.open.iter().any(|s| s.undeclared() > 0 || !s.roll_declared);
                !silent && (undeclared || self.pending.any() || self.checkpoint_due())
            }
            Phase::Removing => self.jobs == 0,
            Phase::Damaged | Phase::Recovering(_) | Phase::Removed => false,
        }
    }

    pub fn append(
        &mut self,
        shared: &mut Shared<'_>,
        batches: &CheckedBatches,
        how: &AppendAs,
    ) -> Result<Appended, AppendError> {
        let mut at = 0usize;
        let mut answer: Option<Appended> = None;
        for info in &batches.infos {
            let batch = &batches.bytes[at..at + info.bytes as usize];
            at += info.bytes as usize;
            match self.append_one(shared, batch, info, how) {
                Ok(one) => {
                    let first = answer.get_or_insert(one);
                    first.next = one.next;
                    first.duplicate &= one.duplicate;
                }
                // What went before stands: a follower goes on from its end.
                Err(_) if answer.is_some_and(|answer| !answer.duplicate) => break,
                Err(error) => return Err(error),
            }
        }
        answer.ok_or(AppendError::OutOfOrder { end: self.end(), got: Offset(-1) })
    }

    /// No room for these: a producer that is not known yet must begin with them.
    pub fn refuse(&mut self, batches: &CheckedBatches, how: &AppendAs) {
        if matches!(how, AppendAs::Leader { .. }) {
            let producers = batches.infos.iter().filter(|info| !info.control).filter_map(|info| info.producer.as_ref());
            producers.for_each(|producer| self.producers.refuse(producer));
        }
    }

    fn append_one(
        &mut self,
        shared: &mut Shared<'_>,
        batch: &[u8],
        info: &BatchInfo,
        how: &AppendAs,
    ) -> Result<Appended, AppendError> {
        let end = self.end();
        let (base, epoch) = match how {
            AppendAs::Leader { epoch } => (end, *epoch),
            AppendAs::Follower => {
                let got = BatchHeader::parse(batch).map_or((Offset(-1), LeaderEpoch(-1)), |h| (h.base, h.epoch));
                if got.0 != end {
                    return Err(AppendError::OutOfOrder { end, got: got.0 });
                }
                got
            }
        };
        let leads = matches!(how, AppendAs::Leader { .. });
        let verdict = match info.producer.as_ref().filter(|_| leads && !info.control) {
            None => Verdict::Accept,
            Some(producer) => self.producers.check(producer).map_err(AppendError::Sequence)?,
        };
        if let Verdict::Duplicate { base, timestamp } = verdict {
            let log_append_time = self.config.log_append_time.then_some(timestamp);
            let next = Offset(base.0 + i64::from(info.offsets));
            return Ok(Appended { base, next, duplicate: true, log_append_time });
        }
        let max = self.config.segment_bytes.min(shared.segment_bytes_max);
        // Nothing is taken in that could not be read from its file.
        let readable = shared.readable_bytes_max();
        if info.bytes > max || leads && info.bytes > readable {
            return Err(AppendError::TooLarge { bytes: info.bytes, max: max.min(readable) });
        }
        let stamped_at = (leads && self.config.log_append_time).then_some(shared.now.wall);
        let mut info = *info;
        if let Some(at) = stamped_at {
            (info.max_timestamp, info.log_append_time) = (at, true);
        }
        let header = BatchHeader { base, epoch, crc: 0, info };
        if self.must_roll(&header, max, shared.now.wall) {
            self.roll(shared.now.wall);
        }
        self.take_room(shared, info.bytes)?;
        let interval = self.config.index_interval_bytes;
        self.active_mut().push(batch, &header, interval, |batch| {
            stamp(&mut batch[..HEADER_BYTES], base, epoch);
            if let Some(at) = stamped_at {
                stamp_time(batch, at);
            }
        });
        self.producers.apply(shared.now.wall, base, &info);
        if self.epochs.assign(epoch, base) {
            self.pending.epochs.push(EpochStart { epoch, start: base });
        }
        self.dirty_since.get_or_insert(shared.now.mono);
        Ok(Appended { base, next: header.next(), duplicate: false, log_append_time: stamped_at })
    }

    fn take_room(&mut self, shared: &mut Shared<'_>, bytes: u32) -> Result<(), AppendError> {
        let grows = shared.now.mono.since(self.chunk_at) < CHUNK_GROWS_WITHIN_MS * 1_000_000;
        let hint = if grows { self.chunk_hint.saturating_mul(2) } else { self.chunk_hint / 4 };
        let most = shared.chunk_bytes_warm.max(bytes.saturating_mul(CHUNK_BATCHES)).min(shared.chunk_bytes_max);
        let hint = hint.clamp(CHUNK_BYTES_MIN, most);
        let active = self.open.back_mut().expect("a log has an active segment");
        let before = active.chunks.len();
        let block = shared.block;
        let room = active.make_room(shared.pool, bytes as usize, hint as usize, block);
        // Less than wished is better than nothing.
        let room = room.or_else(|_| active.make_room(shared.pool, bytes as usize, 0, block));
        room.map_err(AppendError::Memory)?;
        if active.chunks.len() > before {
            (self.chunk_hint, self.chunk_at) = (hint, shared.now.mono);
        }
        Ok(())
    }

    fn must_roll(&self, header: &BatchHeader, max: u32, now: WallMs) -> bool {
        let active = self.active();
        if active.end == 0 {
            return false;
        }
        let waits = self.config.segment_ms.saturating_sub(self.config.segment_jitter_ms);
        // As Kafka: by the records' own time where there is one, else by the clock.
        let waited = match active.first_timestamp {
            Some(first) if first.0 >= 0 && header.info.max_timestamp.0 >= 0 => header.info.max_timestamp.0 - first.0,
            _ => now.0 - active.created.0,
        };
        u64::from(active.end) + u64::from(header.info.bytes) > u64::from(max)
            || u64::try_from(waited).is_ok_and(|waited| waited > waits)
            || active.index.full()
            || !active.index.covers(header.last())
    }

    /// The active segment takes no more batches; an empty one follows.
    pub fn roll(&mut self, now: WallMs) {
        let index_bytes = self.config.segment_index_bytes;
        let snapshot = snapshot::encode(&self.producers.rows());
        let active = self.active_mut();
        active.index.seal();
        active.rolled = Some(Rolled { snapshot, sealing: false });
        let next = OpenSegment::new(active.next, index_bytes, now);
        self.open.push_back(next);
    }

    /// What the journal must know, as a value: for a journal of another generation.
    pub fn state(&self) -> LogState {
        let segments = self.open.iter().map(|segment| SegmentState {
            base: segment.base,
            written_to: segment.written_to,
            inline: segment.bytes(segment.written_to, segment.end),
            next: segment.next,
        });
        LogState {
            partition: self.partition,
            dir: self.dir_name().map(str::to_owned),
            start: self.start,
            epochs: self.epochs.entries().iter().map(|entry| (entry.epoch, entry.start)).collect(),
            segments: segments.collect(),
            sealed: !self.sealed.is_empty(),
            checkpoint: self.checkpoint.clone(),
            holes: self.compaction.holes,
        }
    }
}

#[cfg(test)]
mod tests {
    use ringmain_batch::{Builder, CheckRules, Codec, check};

    use super::*;
    use crate::LogConfig;
    use crate::segment::SEGMENT_BYTES_MAX;

    /// One batch of exactly so many bytes.
    fn batch(bytes: usize) -> CheckedBatches {
        let encoded = |value: usize| {
            let mut builder = Builder::new(Codec::None, None);
            builder.push(WallMs(1), None, Some(&vec![7; value]), &[]);
            builder.encode()
        };
        let value = (0..bytes).rev().find(|value| encoded(*value).len() == bytes).expect("such a value");
        check(Buf::copy_of(&encoded(value)), &CheckRules::lenient(1 << 20)).expect("a good batch")
    }

    /// Positions in indexes have 31 bits, whatever a topic asks for.
    #[test]
    fn a_segment_is_over_before_a_batch_would_cross_what_positions_can_say() {
        let limits = Limits { segment_bytes_max: SEGMENT_BYTES_MAX, ..Limits::tiny() };
        for segment_bytes in [i32::MAX as u32, u32::MAX] {
            let config = LogConfig::keeping_all(segment_bytes);
            let now = Now { mono: Instant(1), wall: WallMs(1) };
            let mut pool = Pool::new(ShardId(0), &limits);
            let id = LogId { slot: 0, generation: 0 };
            let partition = Partition { topic: TopicId(1), index: PartitionIndex(0) };
            let mut log = Log::new(id, partition, "t-0", config, &limits, now);
            // All but the last block is there.
            let left = 4096 - 1;
            log.active_mut().end = SEGMENT_BYTES_MAX - left;
            let mut append = |log: &mut Log, bytes: u32| {
                let (block, chunk_bytes_max) = (limits.block_bytes, 4096);
                let segment_bytes_max = limits.segment_bytes_max;
                let chunk_bytes_warm = chunk_bytes_max;
                let mut shared =
                    Shared { now, pool: &mut pool, block, chunk_bytes_max, chunk_bytes_warm, segment_bytes_max };
                log.append(&mut shared, &batch(bytes as usize), &AppendAs::Leader { epoch: LeaderEpoch(0) }).unwrap()
            };
            append(&mut log, left - 100);
            append(&mut log, 100);
            assert_eq!((log.open.len(), log.active().end), (1, SEGMENT_BYTES_MAX), "it takes all that it can");
            let appended = append(&mut log, 100);
            assert_eq!((log.open.len(), log.active().base, log.active().end), (2, appended.base, 100));
        }
    }
}
