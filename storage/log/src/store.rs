//! The store: its logs by slot, what each operation in flight means, and the calls of the public interface.

use std::collections::{BTreeMap, BTreeSet};

use ringmain_batch::CheckedBatches;
use ringmain_buffer::{Buf, Pool, Refused};
use ringmain_disk::{DiskClass, DiskDone, DiskError, DiskKind, DiskOk, DiskOp, DiskToken, FileId};
use ringmain_types::*;

use crate::cache::Cache;
use crate::checkpoint::Checkpoints;
use crate::commit::{Flight, due_at};
use crate::compaction::Compaction;
use crate::entry::LogState;
use crate::jobs::{Job, Jobs, Started, Then};
use crate::journal::{Journal, Needs};
use crate::leftovers::Leftovers;
use crate::log::{Dir, Log, Phase, Shared};
use crate::maintenance::Maintenance;
use crate::opening::{Opening, Resume};
use crate::read::Reads;
use crate::recover::Recovering;
use crate::removal::Removal;
use crate::segment::OpenSegment;
use crate::spares::Spares;
use crate::{AppendAs, AppendError, Appended, LogConfig, ProducerView, StoreConfig, StoreEvent};

/// What an operation's completion belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Doing {
    Commit,
    Job(u64, u32),
    Read(crate::ReadToken),
    Opening,
    Ignored,
}

#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub generation: u32,
    pub log: Option<Box<Log>>,
}

/// Owns: journal, logs, segments, indexes, tail cache, disk scheduling. Recovery is its first state, fed by the same `done`.
pub struct Store {
    pub(crate) config: StoreConfig,
    pub(crate) block: u32,
    pub(crate) opening: Option<Box<Opening>>,
    pub(crate) resume: Option<Resume>,
    pub(crate) journal: Option<Journal>,
    pub(crate) slots: Vec<Slot>,
    free: Vec<u32>,
    /// Logs with something for the next group.
    pub(crate) dirty: BTreeSet<u32>,
    /// Where the next group begins to look.
    pub(crate) commit_from: u32,
    /// The log whose tail was looked at last for memory to give back.
    pub(crate) squeeze_from: usize,
    /// Logs whose files are to be looked after: made, extended, sealed.
    pub(crate) settle: BTreeSet<u32>,
    /// As `settle`, from the next turn on: for want of memory.
    pub(crate) settle_later: BTreeSet<u32>,
    /// Logs that wait for space on the device.
    pub(crate) full: BTreeSet<(Instant, u32)>,
    /// What a seal left in memory: it is cache from now on.
    pub(crate) cache_later: Vec<(LogId, Offset, u32, ringmain_buffer::Buf)>,
    /// Logs whose files a clean stop has still to finish.
    pub(crate) to_close: BTreeSet<u32>,
    pub(crate) maintenance: Maintenance,
    pub(crate) checkpoints: Checkpoints,
    /// Logs that the journal knows and nobody opened yet, and the group where that begins.
    pub(crate) unopened: BTreeMap<Partition, (LogState, u64)>,
    /// Directories being removed, and the group that said so.
    pub(crate) removing: BTreeMap<String, u64>,
    /// Emptied ones that the next group tells of.
    pub(crate) gone: Vec<String>,
    /// Whose removal a directory is.
    pub(crate) removals: BTreeMap<String, Removal>,
    /// What killed lives left is looked for once.
    pub(crate) leftovers: Option<Leftovers>,
    pub(crate) flight: Option<Flight>,
    pub(crate) spares: Spares,
    /// A piece of some log is being zeroed; and what with.
    pub(crate) zeroing: bool,
    pub(crate) zeroes: Option<Buf>,
    pub(crate) compaction: Compaction,
    /// Bytes that saying everything again would take, and the group before which that was estimated.
    pub(crate) live: Option<(u64, u64)>,
    /// The last group left out news for which the ring has no room.
    pub(crate) waits: bool,
    /// The newest group says something, and no younger one says that it was flushed.
    pub(crate) unconfirmed: bool,
    /// The last group that said anything new.
    pub(crate) told_news: u64,
    /// When a group was made last, or nothing came of it: what was due and could not go waits for room, which no time makes.
    pub(crate) looked: Instant,
    pub(crate) jobs: Jobs,
    pub(crate) reads: Reads,
    pub(crate) cache: Cache,
    doing: BTreeMap<DiskToken, Doing>,
    queue: Vec<DiskOp>,
    pub(crate) events: Vec<StoreEvent>,
    /// Logs whose recovery can take a step.
    pub(crate) stalled: BTreeSet<u32>,
    /// Those that wait for memory.
    pub(crate) starved: BTreeSet<u32>,
    /// What waits for memory is tried again then.
    retry_at: Option<Instant>,
    pub(crate) fenced: Option<DiskError>,
    pub(crate) closing: bool,
    pub(crate) closed: bool,
    next_token: u64,
    next_file: u64,
}

impl Store {
    pub(crate) fn empty(config: StoreConfig) -> Store {
        config.limits.check();
        Store {
            block: config.limits.block_bytes,
            cache: Cache::new(&config.limits),
            config,
            opening: None,
            resume: None,
            journal: None,
            slots: Vec::new(),
            free: Vec::new(),
            dirty: BTreeSet::new(),
            commit_from: 0,
            squeeze_from: 0,
            settle: BTreeSet::new(),
            settle_later: BTreeSet::new(),
            to_close: BTreeSet::new(),
            maintenance: Maintenance::default(),
            checkpoints: Checkpoints::default(),
            full: BTreeSet::new(),
            cache_later: Vec::new(),
            unopened: BTreeMap::new(),
            removing: BTreeMap::new(),
            gone: Vec::new(),
            removals: BTreeMap::new(),
            leftovers: None,
            flight: None,
            spares: Spares::default(),
            zeroing: false,
            zeroes: None,
            compaction: Compaction::default(),
            live: None,
            waits: false,
            unconfirmed: false,
            told_news: 0,
            looked: Instant(0),
            jobs: Jobs::default(),
            reads: Reads::default(),
            doing: BTreeMap::new(),
            queue: Vec::new(),
            events: Vec::new(),
            stalled: BTreeSet::new(),
            starved: BTreeSet::new(),
            retry_at: None,
            fenced: None,
            closing: false,
            closed: false,
            next_token: 1,
            next_file: 1,
        }
    }

    /// Opens an existing log or makes a new one; the journal knows which. `name` is its directory (`orders-3`); when that name is
    /// taken by a topic that is still being removed, the directory gets the topic's id behind it. A log is usable for append, read
    /// and queries at once when it is new, else from `Recovered` on; `Recovered` comes for both. Only after `Opened`.
    pub fn create(&mut self, now: Now, partition: Partition, name: &str, config: LogConfig) -> LogId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let id = LogId { slot, generation: self.slots[slot as usize].generation };
        let mut log = Box::new(Log::new(id, partition, name, config, &self.config.limits, now));
        match self.unopened.remove(&partition) {
            Some((state, since)) => {
                if let Some(ring) = &mut self.journal {
                    let bytes = ring.release(since, Needs::Unopened(partition));
                    ring.need(since, Needs::Log(slot), bytes.unwrap_or(0));
                }
                log.since = Some(since);
                log.pending.state = false;
                log.start = state.start;
                log.started = state.start;
                log.dir = state.dir.clone().map_or(Dir::None, Dir::Ready);
                log.phase = Phase::Recovering(Box::new(Recovering::new(state)));
                self.stalled.insert(slot);
            }
            None => {
                let report = Default::default();
                self.events.push(StoreEvent::Recovered { log: id, partition, report });
            }
        }
        self.compaction.logs += usize::from(log.config.compaction.is_some());
        self.slots[slot as usize].log = Some(log);
        id
    }

    pub fn configure(&mut self, _now: Now, id: LogId, config: LogConfig) {
        let now_compacted = config.compaction.is_some();
        let Some(log) = self.log_mut(id) else { return };
        let before = std::mem::replace(&mut log.config, config);
        self.compaction.logs += usize::from(now_compacted);
        self.compaction.logs -= usize::from(before.compaction.is_some());
    }

    /// The log is gone at once for every call; `Removed` follows when its files are.
    pub fn remove(&mut self, _now: Now, id: LogId) {
        let Some(log) = self.log_mut(id) else { return };
        log.phase = Phase::Removing;
        log.cache.clear();
        self.dirty.insert(id.slot);
        self.reads.removed(id, &mut self.events);
    }

    pub fn recovering(&self, id: LogId) -> bool {
        self.log(id).is_some_and(|log| matches!(log.phase, Phase::Recovering(_)))
    }

    /// What was acknowledged of it could not be read at the start (its `Recovered` says what): it serves nothing.
    pub fn is_damaged(&self, id: LogId) -> bool {
        self.log(id).is_some_and(|log| matches!(log.phase, Phase::Damaged))
    }

    /// Copies the batches behind the tail, stamped. Not durable, not visible: both come as events. Of several batches (a
    /// follower's) the first ones may be taken and the rest not: `next` tells.
    pub fn append(
        &mut self,
        now: Now,
        pool: &mut Pool,
        id: LogId,
        batches: &CheckedBatches,
        how: AppendAs,
    ) -> Result<Appended, AppendError> {
        if self.fenced.is_some() || self.closing {
            return Err(AppendError::Fenced);
        }
        let crowded = self.journal.as_ref().is_none_or(|ring| ring.used() > ring.ring_bytes / 8 * 6);
        let limits = &self.config.limits;
        let (block, segment_bytes_max) = (self.block, limits.segment_bytes_max);
        let chunk_bytes_warm = limits.gather_bytes_max.min(1 << 20);
        let chunk_bytes_max = limits.gather_bytes_max.saturating_mul(4).min(1 << 20);
        let trickle = limits.trickle_bytes_max;
        let slot = id.slot;
        let Some(log) = self.log_mut(id) else { return Err(AppendError::Removed) };
        match log.phase {
            Phase::Ready => {}
            Phase::Damaged => return Err(AppendError::Fenced),
            _ => return Err(AppendError::Removed),
        }
        let waiting = log.inline_bytes();
        if log.full_until.is_some() && waiting >= trickle {
            log.refuse(batches, &how);
            return Err(AppendError::NoSpace);
        }
        let undeclared = |log: &Log| log.open.iter().map(OpenSegment::undeclared).sum::<u32>();
        if crowded || log.waits && undeclared(log) >= trickle || log.open.len() > OPEN_SEGMENTS_MAX {
            log.refuse(batches, &how);
            return Err(AppendError::Memory(Refused { account: Account::Tail, wanted: batches.bytes.len(), left: 0 }));
        }
        let mut shared = Shared { now, pool, block, chunk_bytes_max, chunk_bytes_warm, segment_bytes_max };
        let mut appended = log.append(&mut shared, batches, &how);
        if matches!(appended, Err(AppendError::Memory(_))) {
            let again = self.squeeze(pool);
            let Some(log) = self.log_mut(id) else { return Err(AppendError::Removed) };
            if again {
                let mut shared = Shared { now, pool, block, chunk_bytes_max, chunk_bytes_warm, segment_bytes_max };
                appended = log.append(&mut shared, batches, &how);
            }
            if matches!(appended, Err(AppendError::Memory(_))) {
                log.refuse(batches, &how);
            }
        }
        if self.log(id).is_some_and(|log| log.config.compaction.is_some()) && appended.is_ok() {
            self.compaction_earns(batches.bytes.len() as u64);
        }
        self.dirty.insert(slot);
        self.settle.insert(slot);
        appended
    }

    /// DeleteRecords: `to` is at most the end. `Started` follows once that is durable; at once when the log durably starts there already.
    pub fn advance_start(&mut self, _now: Now, id: LogId, to: Offset) -> Result<(), AppendError> {
        if self.fenced.is_some() {
            return Err(AppendError::Fenced);
        }
        let Some(log) = self.log_mut(id) else { return Err(AppendError::Removed) };
        let end = log.end();
        if to > end || !log.ready() {
            return Err(AppendError::OutOfOrder { end, got: to });
        }
        if to <= log.start {
            let start = log.start;
            if log.started == start {
                self.events.push(StoreEvent::Started { log: id, start });
            }
            return Ok(());
        }
        log.start = to;
        log.pending.start = true;
        log.epochs.truncate_start(to);
        self.dirty.insert(id.slot);
        Ok(())
    }

    /// It found no space on the disk, and none was seen since.
    pub fn without_space(&self, id: LogId) -> bool {
        self.log(id).is_some_and(|log| log.full)
    }
    pub fn start(&self, id: LogId) -> Offset {
        self.log(id).map_or(Offset(0), |log| log.start)
    }
    /// Where it starts after whatever comes.
    pub fn durable_start(&self, id: LogId) -> Offset {
        self.log(id).map_or(Offset(0), |log| log.started)
    }
    pub fn end(&self, id: LogId) -> Offset {
        self.log(id).map_or(Offset(0), |log| log.end())
    }
    pub fn flushed(&self, id: LogId) -> Offset {
        self.log(id).map_or(Offset(0), |log| log.flushed)
    }
    /// KIP-101: the largest epoch at most `epoch`, and its end; (-1, -1) when there is none.
    pub fn epoch_end(&self, id: LogId, epoch: LeaderEpoch) -> (LeaderEpoch, Offset) {
        self.log(id).map_or((LeaderEpoch(-1), Offset(-1)), |log| log.epochs.epoch_end(epoch, log.end()))
    }
    /// The epoch of the record at `offset`; -1 when unknown.
    pub fn epoch_of(&self, id: LogId, offset: Offset) -> LeaderEpoch {
        self.log(id).map_or(LeaderEpoch(-1), |log| log.epochs.epoch_of(offset))
    }
    /// Of all records from the log's first segment on, whether in files or in the journal.
    pub fn size_bytes(&self, id: LogId) -> u64 {
        self.log(id).map_or(0, |log| log.size_bytes())
    }
    pub fn producers(&self, id: LogId, out: &mut Vec<ProducerView>) {
        if let Some(log) = self.log(id) {
            log.producers.views(out);
        }
    }
    /// For checks: the newest flushed group, unless it is `known`, and whether there is room to say again all that is live then
    /// (`room.rs`). None while a group is in flight.
    pub fn ring_room(&self, known: u64) -> Option<(u64, bool)> {
        let ring = self.journal.as_ref().filter(|_| self.flight.is_none() && self.resume.is_none())?;
        (ring.flushed != known).then(|| (ring.flushed, ring.has_room_to_say_again()))
    }
    pub fn fenced(&self) -> Option<&DiskError> {
        self.fenced.as_ref()
    }

    /// End of a turn: closes the group if the last flush is back and there is news; takes reads off the class queues.
    pub fn finish_turn(&mut self, now: Now, pool: &mut Pool, out: &mut Vec<DiskOp>) {
        if self.closed {
            out.append(&mut self.queue);
            return;
        }
        self.opening_step(now, pool);
        self.recover_stalled(now, pool);
        self.settle_logs(now, pool);
        self.settle.append(&mut self.settle_later);
        self.checkpoint_step(pool);
        self.commit(now, pool);
        self.close_step(now, pool);
        self.start_jobs(now, pool);
        self.start_reads(now, pool);
        self.evict(pool);
        let waits = !self.starved.is_empty() || !self.settle.is_empty() || self.opening_waits();
        self.retry_at = waits.then(|| now.mono.plus_ms(MEMORY_RETRY_MS));
        out.append(&mut self.queue);
    }

    pub fn done(&mut self, now: Now, pool: &mut Pool, done: DiskDone, events: &mut Vec<StoreEvent>) {
        let Some(doing) = self.doing.remove(&done.token) else { return };
        match doing {
            Doing::Commit => self.commit_done(now, pool, done.token, done.result.map(|_| ())),
            Doing::Job(job, operation) => {
                if let Some(started) = self.jobs.done(job, operation, done.result) {
                    self.job_started(now, pool, started);
                }
            }
            Doing::Read(token) => self.read_done(now, pool, token, done.result),
            Doing::Ignored => {}
            Doing::Opening => self.opening_done(now, pool, done.token, done.result),
        }
        events.append(&mut self.events);
    }

    /// Events that came of calls rather than of completions. Drained once a turn.
    pub fn events(&mut self, events: &mut Vec<StoreEvent>) {
        events.append(&mut self.events);
    }

    /// When `finish_turn` should run though nothing happened. None while only a completion can change anything.
    pub fn deadline(&self) -> Option<Instant> {
        if self.fenced.is_some() || self.closed {
            return None;
        }
        let mut earliest: Option<Instant> = self.maintenance_at();
        let mut take = |at: Option<Instant>| earliest = earliest.into_iter().chain(at).min();
        if self.flight.is_none() {
            for slot in &self.dirty {
                let due = self.slots[*slot as usize].log.as_deref().and_then(due_at);
                take(due.filter(|at| *at > self.looked));
            }
        }
        take(self.full_at());
        take(self.compaction_at());
        take(self.retry_at);
        earliest
    }

    // What the other files of this crate share.

    pub(crate) fn ring(&self) -> &Journal {
        self.journal.as_ref().expect("the journal is open")
    }
    pub(crate) fn ring_mut(&mut self) -> &mut Journal {
        self.journal.as_mut().expect("the journal is open")
    }

    /// A log that was not removed.
    pub(crate) fn log(&self, id: LogId) -> Option<&Log> {
        let slot = self.slots.get(id.slot as usize).filter(|slot| slot.generation == id.generation)?;
        slot.log.as_deref().filter(|log| !matches!(log.phase, Phase::Removing | Phase::Removed))
    }
    pub(crate) fn log_mut(&mut self, id: LogId) -> Option<&mut Log> {
        let slot = self.slots.get_mut(id.slot as usize).filter(|slot| slot.generation == id.generation)?;
        slot.log.as_deref_mut().filter(|log| !matches!(log.phase, Phase::Removing | Phase::Removed))
    }
    /// A log whose completions still matter.
    pub(crate) fn log_any_mut(&mut self, id: LogId) -> Option<&mut Log> {
        let slot = self.slots.get_mut(id.slot as usize).filter(|slot| slot.generation == id.generation)?;
        slot.log.as_deref_mut()
    }

    /// Nothing of it is left.
    pub(crate) fn free_slot(&mut self, id: LogId) {
        let Some(slot) = self.slots.get_mut(id.slot as usize).filter(|slot| slot.generation == id.generation) else {
            return;
        };
        slot.generation += 1;
        let compacted = slot.log.take().is_some_and(|log| log.config.compaction.is_some());
        self.compaction.logs -= usize::from(compacted);
        self.checkpoints.weigh(id.slot, 0);
        self.checkpoints.hold(id.slot, 0);
        for set in [
            &mut self.dirty,
            &mut self.settle,
            &mut self.settle_later,
            &mut self.stalled,
            &mut self.starved,
            &mut self.to_close,
        ] {
            set.remove(&id.slot);
        }
        self.free.push(id.slot);
    }

    pub(crate) fn file(&mut self) -> FileId {
        self.next_file += 1;
        FileId(self.next_file)
    }

    /// Queues an operation.
    pub(crate) fn operate(&mut self, class: DiskClass, kind: DiskKind, doing: Doing) -> DiskToken {
        self.next_token += 1;
        let token = DiskToken(self.next_token);
        self.doing.insert(token, doing);
        self.queue.push(DiskOp { token, class, kind });
        token
    }

    /// Operations that are not back.
    pub(crate) fn operations_out(&self) -> bool {
        !self.doing.is_empty()
    }

    pub(crate) fn take_queue(&mut self, out: &mut Vec<DiskOp>) {
        out.append(&mut self.queue);
    }

    pub(crate) fn fence(&mut self, error: DiskError) {
        if self.fenced.is_none() {
            self.fenced = Some(error.clone());
            self.events.push(StoreEvent::Fenced { dir: self.config.dir, error });
        }
    }

    pub(crate) fn start_jobs(&mut self, now: Now, pool: &mut Pool) {
        while let Some(started) = self.jobs.start() {
            self.job_started(now, pool, started);
        }
    }

    fn job_started(&mut self, now: Now, pool: &mut Pool, started: Started) {
        match started {
            Started::Operations(number, class, kinds) => {
                for (operation, kind) in kinds {
                    self.operate(class, kind, Doing::Job(number, operation));
                }
            }
            Started::Finished(job) => self.job_finished(now, pool, job),
        }
    }

    fn job_finished(&mut self, now: Now, pool: &mut Pool, job: Job) {
        let Job { then, error, got, .. } = job;
        match then {
            Then::Nothing => {}
            Then::DirListed(id) => self.dir_listed(id, got),
            Then::DirMade(id, name) => self.dir_made(now, id, name, error),
            Then::FileMade(id, base, file, spare) => self.file_made(now, id, (base, file, spare), error),
            Then::Allocated(id, base, to) => self.allocated(now, id, base, to, error),
            Then::Zeroed(id, base) => self.zeroed(now, id, base, error),
            Then::Sealed(id, base, file, bytes) => self.sealed(now, id, base, file, bytes, error),
            Then::Settled(id) => self.log_closed(id, error),
            Then::Checkpointed(id, wrote) => self.checkpointed(now, id, *wrote, error),
            Then::RecoverListed(id) => self.recover_listed(now, pool, id, error, got),
            Then::RecoverOpened(id) => self.recover_opened(now, pool, id, error, got),
            Then::RecoverRead(id) => self.recover_read(now, pool, id, error, got),
            Then::Swept(id) => self.swept(id, error, got),
            Then::RemovalFound(dir) => self.removal_found(dir, got),
            Then::RemoveListed(dir) => self.remove_listed(dir, got),
            Then::RemoveEmptied(dir, spares) => self.remove_emptied(dir, (spares, got), error),
            Then::RemoveDone(id) => self.remove_done(id),
            Then::RootListed => self.root_listed(got),
            Then::LeftoverListed(path) => self.leftover_listed(pool, path, got),
            Then::LeftoverRead(path, names) => self.leftover_read(path, names, got),
            Then::LeftoverRemoved => self.leftover_removed(),
            Then::SparesListed => self.spares_listed(got),
            Then::SparesSwept => self.spares_swept(),
            Then::Recycled(id, spare) => self.recycled(id, spare, error),
            Then::Filled(file) => self.filled(file, error),
            Then::Compaction(id, work) => self.compaction_done(now, pool, (id, work), error, got),
            Then::SegmentOpened(id, base, file, token) => {
                self.segment_opened((now, pool), (id, base, file), token, error);
            }
            Then::IndexOpened(id, base, files, token) => self.index_opened(now, pool, id, base, files, token, got),
            Then::IndexRead(id, base, bytes, token) => self.index_read(now, pool, id, base, bytes, token, got),
            Then::IndexProved(id, base, proving) => self.index_proved(now, pool, (id, base), *proving, got),
        }
    }

    pub(crate) fn ok(got: &mut BTreeMap<u32, Result<DiskOk, DiskError>>, operation: u32) -> Option<DiskOk> {
        got.remove(&operation).and_then(Result::ok)
    }
}

/// What was refused memory is tried again this much later, when nothing else happens.
const MEMORY_RETRY_MS: u64 = 10;
/// Segments of one log that are not sealed yet: past it appends wait.
const OPEN_SEGMENTS_MAX: usize = 4;
