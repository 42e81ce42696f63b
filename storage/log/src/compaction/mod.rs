//! Compaction (`cleanup.policy=compact`): of each key the last record stays, where it was.
//!
//! ```text
//! look: which log is dirtiest -> map: its dirty segments, key -> newest offset -> for each group of segments, oldest first:
//!   copy: what stays, into a file of its own -> drain: readers of the old files end -> swap -> ... -> checkpoint
//! ```
//! One log of a shard at a time, in slices of so many bytes. A segment is rewritten only when it is sealed and the journal says so;
//! the active one is never touched. Groups are swapped oldest first and the checkpoint comes last, so whatever is cut off is done
//! again, and a delete marker never goes before what it deletes.

pub mod checkpoint;
mod key_map;
mod run;
mod swap;

use ringmain_buffer::Pool;
use ringmain_disk::{DiskClass, DiskKind, DiskOk, FileId};
use ringmain_types::*;

use crate::jobs::{Got, Job, Step, Then};
use crate::log::Log;
use crate::store::{Doing, Store};

use run::Run;
pub(crate) use swap::unfinished;

/// What a topic with `compact` in its `cleanup.policy` asks for, by Kafka's names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CompactionConfig {
    pub min_cleanable_dirty_ratio: f64,
    pub min_compaction_lag_ms: i64,
    pub max_compaction_lag_ms: i64,
    /// A delete marker stays for so long after the compaction that met it first.
    pub delete_retention_ms: i64,
}

/// What compaction has done since the start, and has before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionStats {
    pub runs: u64,
    /// Given up for an error, for want of space, or because the log changed; done again later.
    pub aborted: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub records_removed: u64,
    /// Segments that others took the place of.
    pub segments_replaced: u64,
    /// Sealed and not compacted yet, of all compacted logs, when it was looked last.
    pub dirty_bytes: u64,
    /// Logs that can't be compacted: a batch of theirs does not check.
    pub uncleanable_logs: u64,
    pub last_log: Option<LogId>,
    pub last_run_ms: u64,
    pub last_run_ended: WallMs,
}

/// Of one log.
#[derive(Debug, Default)]
pub(crate) struct LogCompaction {
    /// Compacted below this; none: not looked up since the start.
    pub clean_to: Option<Offset>,
    /// Something of it does not check: left alone from now on.
    pub given_up: bool,
    /// Offsets may be missing between the batches of its sealed segments.
    pub holes: bool,
    /// The journal says so, durably. Before, no segment may be swapped.
    pub holes_declared: bool,
    /// Segments from the first base on, up to the second, are being swapped: nobody may begin to read them.
    pub swapping: Option<(Offset, Offset)>,
    /// The names of their files are being changed: until that is done they need not be what the log knows.
    pub renaming: bool,
}

impl LogCompaction {
    pub fn swaps(&self, base: Offset) -> bool {
        self.swapping.is_some_and(|(from, to)| from <= base && base < to)
    }
}

/// A sealed segment as a run sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub base: Offset,
    pub next: Offset,
    pub bytes: u32,
}

/// What a finished job was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    LookOpened(FileId),
    LookRead,
    OutputOpened,
    InputOpened,
    Read,
    Written,
    Finished,
    Swapped,
    Checkpointed,
}

#[derive(Debug, Default)]
pub(crate) struct Compaction {
    /// When logs are looked at next; none before the first time.
    next: Option<Instant>,
    /// Memory was refused, or what is committed meanwhile goes before: it goes on then.
    retry_at: Option<Instant>,
    /// Bytes that may be read and written without standing back: more came in since the run began.
    earned: u64,
    /// A log's checkpoint is being read.
    looking: bool,
    /// Logs that are to be compacted, those that are being removed included: asked in every turn, and there may be thousands of others.
    pub(crate) logs: usize,
    run: Option<Box<Run>>,
    /// Names temporary files.
    number: u64,
    stats: CompactionStats,
}

/// Logs of one pass.
enum Found {
    Nothing,
    /// Its checkpoint must be read.
    Look,
    /// This segment's largest timestamp must be known.
    Index(Offset),
    Dirty(Dirty),
}

struct Dirty {
    from: Offset,
    parts: Vec<Part>,
    bytes: u64,
    /// Of all that is sealed.
    ratio: f64,
    /// `max.compaction.lag.ms` is over.
    due: bool,
}

impl Store {
    pub fn compaction(&self) -> CompactionStats {
        self.compaction.stats
    }

    /// The next slice: about `bytes` read, hashed or written. True when another can follow at once.
    pub(crate) fn compact(&mut self, now: Now, pool: &mut Pool, bytes: u32) -> bool {
        // A start removes temporary files of an earlier life; until it has, none are made.
        if self.compaction.looking || !self.spares.swept() {
            return false;
        }
        if self.compaction.run.is_some() && self.compaction.retry_at.is_some_and(|at| at > now.mono) {
            return false;
        }
        let Some(mut run) = self.compaction.run.take() else { return self.compaction_looks(now) };
        self.compaction.retry_at = None;
        let before = self.compaction.stats;
        let went = self.run_step(pool, bytes, &mut run);
        self.stand_back(now, before);
        match went {
            run::Went::More => {
                self.compaction.run = Some(run);
                self.compaction.retry_at.is_none()
            }
            run::Went::Waits => {
                self.compaction.run = Some(run);
                false
            }
            run::Went::Memory => {
                self.compaction.retry_at = Some(now.mono.plus_ms(RETRY_MS));
                self.compaction.run = Some(run);
                false
            }
            run::Went::Done => {
                let stats = &mut self.compaction.stats;
                stats.runs += 1;
                stats.last_log = Some(run.log);
                stats.last_run_ms = now.mono.since(run.begun) / 1_000_000;
                stats.last_run_ended = now.wall;
                // What else is dirty does not wait for the clock.
                self.compaction.next = Some(now.mono);
                true
            }
            run::Went::Over => {
                self.abort_run(*run);
                false
            }
        }
    }

    /// `bytes` more to be compacted.
    pub(crate) fn compaction_earns(&mut self, bytes: u64) {
        let most = self.config.limits.compaction_busy_bytes_per_second;
        let earned = &mut self.compaction.earned;
        *earned = earned.saturating_add(bytes.saturating_mul(WORK_PER_BYTE)).min(most);
    }

    /// While others commit, no more is read and written than a part of what the disk does, and what keeps up with what comes in.
    fn stand_back(&mut self, now: Now, before: CompactionStats) {
        let limits = &self.config.limits;
        let stats = &self.compaction.stats;
        let bytes = stats.read_bytes - before.read_bytes + stats.written_bytes - before.written_bytes;
        let owed = bytes.saturating_sub(self.compaction.earned);
        self.compaction.earned -= bytes - owed;
        if owed > 0 && self.spares.busy(now.mono, limits.spare_quiet_ms) {
            let ns = owed.saturating_mul(1_000_000_000) / limits.compaction_busy_bytes_per_second.max(1);
            self.compaction.retry_at = Some(Instant(now.mono.0.saturating_add(ns)));
        }
    }

    pub(crate) fn compaction_at(&self) -> Option<Instant> {
        if self.closing || self.compaction.looking {
            return None;
        }
        if self.compaction.run.is_some() {
            return self.compaction.retry_at;
        }
        self.compaction.next.filter(|_| self.compaction.logs > 0)
    }

    /// A clean stop, or the end of the directory: what is half done is thrown away.
    pub(crate) fn stop_compaction(&mut self) {
        if let Some(run) = self.compaction.run.take_if(|run| !run.waiting) {
            self.abort_run(*run);
        }
    }

    /// One pass over all logs, now and then: begins with the dirtiest.
    fn compaction_looks(&mut self, now: Now) -> bool {
        if self.compaction.next.is_some_and(|next| next > now.mono) {
            return false;
        }
        self.compaction.next = Some(now.mono.plus_ms(self.config.limits.compaction_check_ms));
        let (mut best, mut look, mut indexes) = (None::<(LogId, Dirty)>, None, Vec::new());
        let (mut dirty_bytes, mut uncleanable) = (0, 0);
        for log in self.slots.iter().filter_map(|slot| slot.log.as_deref()) {
            let Some(config) = log.config.compaction else { continue };
            uncleanable += u64::from(log.compaction.given_up);
            match found(log, &config, now.wall) {
                Found::Nothing => {}
                Found::Look => look = look.or(Some(log.id)),
                Found::Index(base) => indexes.push((log.id, base)),
                Found::Dirty(dirty) => {
                    dirty_bytes += dirty.bytes;
                    let wanted = dirty.due || dirty.ratio > config.min_cleanable_dirty_ratio;
                    let more = |best: &(LogId, Dirty)| (dirty.due, dirty.ratio) > (best.1.due, best.1.ratio);
                    if wanted && best.as_ref().is_none_or(more) {
                        best = Some((log.id, dirty));
                    }
                }
            }
        }
        (self.compaction.stats.dirty_bytes, self.compaction.stats.uncleanable_logs) = (dirty_bytes, uncleanable);
        for (id, base) in indexes {
            self.load_index(id, base, None);
        }
        if let Some(id) = look {
            self.look_up_checkpoint(id);
            return false;
        }
        let Some((id, dirty)) = best else { return false };
        self.begin_run(now, id, dirty);
        true
    }

    fn begin_run(&mut self, now: Now, id: LogId, dirty: Dirty) {
        let (bytes, seed) = (self.config.limits.compaction_map_bytes, self.config.seed);
        let Some(log) = self.log_mut(id) else { return };
        let (Some(config), Some(dir)) = (log.config.compaction, log.dir_name().map(str::to_owned)) else { return };
        if !log.compaction.holes {
            log.compaction.holes = true;
            log.pending.state = true;
            self.dirty.insert(id.slot);
        }
        self.compaction.earned = 0;
        let run = Run::new(id, dir, now, config, (bytes, seed), dirty.from, dirty.parts);
        self.compaction.run = Some(Box::new(run));
    }

    fn look_up_checkpoint(&mut self, id: LogId) {
        let (dir, file) = (self.config.dir, self.file());
        let Some(log) = self.log_mut(id) else { return };
        let Some(path) = log.dir_name().map(|name| format!("{name}/{}", checkpoint::NAME)) else { return };
        let open = DiskKind::Open { dir, file, path, create: false };
        self.compaction.looking = true;
        self.compaction_job(id, vec![Step::lenient(vec![open])], Work::LookOpened(file));
    }

    fn checkpoint_opened(&mut self, now: Now, pool: &mut Pool, id: LogId, file: FileId, mut got: Got) {
        let opened = match Store::ok(&mut got, 0) {
            Some(DiskOk::Opened { bytes }) => Some(bytes),
            _ => None,
        };
        let wanted = opened.is_some_and(|bytes| bytes > 0 && bytes <= checkpoint::BYTES_MAX);
        let into = if wanted { pool.take(Account::Background, self.block as usize).ok() } else { None };
        let close = opened.map(|_| DiskKind::Close { file }).into_iter().collect();
        match into {
            Some(into) => {
                let read = DiskKind::Read { file, position: 0, bytes: self.block, into };
                let steps = vec![Step::lenient(vec![read]), Step::lenient(close)];
                self.compaction_job(id, steps, Work::LookRead);
            }
            None => {
                self.jobs.add(Job::new(DiskClass::Background, vec![Step::lenient(close)], Then::Nothing));
                // Without memory it is looked up another time.
                self.checkpoint_known(now, id, (!wanted).then_some(Offset(0)));
            }
        }
    }

    fn checkpoint_read(&mut self, now: Now, id: LogId, mut got: Got) {
        let read = match Store::ok(&mut got, 0) {
            Some(DiskOk::Read(read)) => checkpoint::decode(&read[..padding_begins(&read)]),
            _ => None,
        };
        // One beyond the log's end is another log's, or damaged.
        let end = self.log(id).map_or(Offset(0), Log::end);
        self.checkpoint_known(now, id, Some(read.filter(|clean| *clean <= end).unwrap_or(Offset(0))));
    }

    fn checkpoint_known(&mut self, now: Now, id: LogId, clean_to: Option<Offset>) {
        self.compaction.looking = false;
        if let Some(log) = self.log_mut(id) {
            log.compaction.clean_to = clean_to;
        }
        if clean_to.is_some() {
            self.compaction.next = Some(now.mono);
        }
    }

    /// A job whose end is told to `compaction_done`.
    fn compaction_job(&mut self, id: LogId, steps: Vec<Step>, work: Work) {
        if let Some(log) = self.log_any_mut(id) {
            log.jobs += 1;
        }
        self.jobs.add(Job::new(DiskClass::Background, steps, Then::Compaction(id, work)));
    }

    pub(crate) fn compaction_done(
        &mut self,
        now: Now,
        pool: &mut Pool,
        (id, work): (LogId, Work),
        error: Option<ringmain_disk::DiskError>,
        got: Got,
    ) {
        if let Some(log) = self.log_any_mut(id) {
            log.jobs -= 1;
        }
        match work {
            Work::LookOpened(file) => self.checkpoint_opened(now, pool, id, file, got),
            Work::LookRead => self.checkpoint_read(now, id, got),
            work => self.run_done(work, error, got),
        }
        self.start_jobs(now, pool);
    }

    pub(crate) fn close_quietly(&mut self, file: FileId) {
        self.operate(DiskClass::Background, DiskKind::Close { file }, Doing::Ignored);
    }
}

/// Where the zeroes begin that a file's last block ends with.
fn padding_begins(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1)
}

/// How dirty a log is.
fn found(log: &Log, config: &CompactionConfig, now: WallMs) -> Found {
    let usable = log.ready() && !log.compaction.given_up && log.dir_name().is_some();
    if !usable {
        return Found::Nothing;
    }
    let mut parts: Vec<Part> = Vec::new();
    let clean_to = log.compaction.clean_to;
    let (mut dirty_bytes, mut bytes, mut first_dirty) = (0, 0, None);
    for segment in log.sealed.values() {
        if segment.next <= log.start {
            continue;
        }
        let joins = parts.last().is_none_or(|before| before.next == segment.base);
        if !segment.declared || segment.next > log.flushed || !joins {
            break;
        }
        let Some(clean_to) = clean_to else { return Found::Look };
        if segment.next > clean_to {
            if config.min_compaction_lag_ms > 0 {
                let Some(at) = segment.max_timestamp else { return Found::Index(segment.base) };
                if at.0 >= 0 && now.0.saturating_sub(at.0) < config.min_compaction_lag_ms {
                    break;
                }
            }
            first_dirty.get_or_insert(segment.first_timestamp);
            dirty_bytes += u64::from(segment.bytes);
        }
        bytes += u64::from(segment.bytes);
        parts.push(Part { base: segment.base, next: segment.next, bytes: segment.bytes });
    }
    let (Some(first_dirty), Some(first), Some(clean_to)) = (first_dirty, parts.first(), clean_to) else {
        return Found::Nothing;
    };
    // Of a segment of an earlier life the first timestamp is not known: it counts as old, once.
    let lag = first_dirty.map_or(i64::MAX, |first| if first.0 < 0 { 0 } else { now.0.saturating_sub(first.0) });
    let due = config.max_compaction_lag_ms < i64::MAX && lag > config.max_compaction_lag_ms;
    let ratio = dirty_bytes as f64 / bytes.max(1) as f64;
    Found::Dirty(Dirty { from: clean_to.max(first.base), parts, bytes: dirty_bytes, ratio, due })
}

/// What was refused memory is tried again this much later.
const RETRY_MS: u64 = 10;

/// Read and written for each byte that comes in, at most: a log that is compacted when half of it is dirty takes five.
const WORK_PER_BYTE: u64 = 6;
