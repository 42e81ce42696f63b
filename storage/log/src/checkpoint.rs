//! Checkpoints: what keeps a start short. From time to time the index of an open segment is written as far as it has whole blocks,
//! the producers go to a `.snapshot`, and when both are durable a group says so (`entry::Checkpoint`). Recovery believes what checks
//! and scans what lies behind.
//!
//! ```text
//! enough to scan -> files written, flushed, named (a job) -> pending -> all of it is flushed: a group tells -> in force
//! ```
//! A block of an index file is written once, as those of a segment are: what is less than a block goes into the entry. So nothing
//! that an older checkpoint needs is ever written over, and the seal goes on where the last checkpoint stopped. Nothing here is in
//! the way of a commit: the job is of the background class, one at a time.

use std::collections::{BTreeMap, BTreeSet};

use ringmain_buffer::{Buf, Pool};
use ringmain_disk::{DiskClass, DiskError, DiskKind};
use ringmain_types::*;

use crate::entry::{Checkpoint, IndexPrefix};
use crate::files::SmallFile;
use crate::jobs::{Job, Step, Then};
use crate::log::Log;
use crate::plan::Tells;
use crate::segment::{OpenSegment, file_name};
use crate::snapshot;
use crate::store::Store;

/// A checkpoint writes at most this part of what it saves a start from reading: many producers wait for more bytes.
const COST_PART: u64 = 4;
/// All checkpoints may hold this part of the ring, for they are said again with their logs: past it the others' starts scan more.
const RING_PART: u64 = 16;
/// Logs that are looked at for one that may have a checkpoint now.
const LOOKED_AT: usize = 8;

/// Of whole blocks of an index file: how many bytes the file has durably, and their CRC-32C.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    pub bytes: u32,
    pub crc: u32,
}

/// How much of each log a start would have to scan.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    bytes: BTreeMap<u32, u64>,
    order: BTreeSet<(u64, u32)>,
    sum: u64,
    running: u32,
    /// Bytes of journal that each log's checkpoint holds, and all of them.
    held: BTreeMap<u32, u64>,
    held_sum: u64,
}

impl Checkpoints {
    pub fn weigh(&mut self, slot: u32, bytes: u64) {
        let before = if bytes > 0 { self.bytes.insert(slot, bytes) } else { self.bytes.remove(&slot) };
        if let Some(before) = before {
            self.order.remove(&(before, slot));
            self.sum -= before;
        }
        if bytes > 0 {
            self.order.insert((bytes, slot));
            self.sum += bytes;
        }
    }

    /// What a log's checkpoint holds of the journal.
    pub fn hold(&mut self, slot: u32, bytes: u64) {
        let before = if bytes > 0 { self.held.insert(slot, bytes) } else { self.held.remove(&slot) };
        self.held_sum = self.held_sum + bytes - before.unwrap_or(0);
    }

    /// Whether the ring has room for one more, of `bytes`.
    fn room(&self, slot: u32, bytes: u64, ring_bytes: u64) -> bool {
        self.held_sum - self.held.get(&slot).copied().unwrap_or(0) + bytes <= ring_bytes / RING_PART
    }
}

/// What a job wrote.
#[derive(Debug)]
pub(crate) struct Wrote {
    base: Offset,
    files: [Written; 2],
    /// None when there was so much of the index that another job must follow first.
    checkpoint: Option<Box<Checkpoint>>,
}

impl Log {
    /// Bytes of open segments that no checkpoint covers, or is about to.
    pub fn unchecked(&self) -> u64 {
        let checkpoint = self.pending.checkpoint.as_ref().or(self.checkpoint.as_ref());
        let first = self.open.front().map_or(Offset(0), |segment| segment.base);
        let checked = checkpoint.filter(|checkpoint| checkpoint.base == first).map_or(0, |c| u64::from(c.position));
        let open: u64 = self.open.iter().map(|segment| u64::from(segment.end)).sum();
        open.saturating_sub(checked)
    }

    /// Whether a checkpoint may be told of: never of what is not durable itself.
    pub fn checkpoint_due(&self) -> bool {
        self.pending.checkpoint.as_ref().is_some_and(|checkpoint| checkpoint.offset <= self.flushed)
    }

    /// The checkpoint that a group has to tell of; with a whole state the one in force, too, is said again.
    pub fn checkpoint_told(&self, tells: Tells) -> Option<&Checkpoint> {
        let due = self.pending.checkpoint.as_deref().filter(|_| self.checkpoint_due() && tells != Tells::Again);
        due.or(if tells == Tells::News { None } else { self.checkpoint.as_deref() })
    }

    /// The segment at `base` is sealed: its files are complete.
    pub fn checkpoint_over(&mut self, base: Offset) {
        for place in [&mut self.checkpoint, &mut self.pending.checkpoint] {
            if place.as_ref().is_some_and(|checkpoint| checkpoint.base == base) {
                self.stale.extend(place.take().map(|checkpoint| checkpoint.offset));
            }
        }
    }
}

impl Store {
    /// Looks anew at how much of a log a start would scan.
    pub(crate) fn weigh(&mut self, slot: u32) {
        let log = self.slots[slot as usize].log.as_deref().filter(|log| log.ready());
        let bytes = log.map_or(0, Log::unchecked);
        let held = log.and_then(|log| log.pending.checkpoint.as_deref().or(log.checkpoint.as_deref()));
        self.checkpoints.hold(slot, held.map_or(0, |checkpoint| checkpoint.entry_bytes() as u64));
        self.checkpoints.weigh(slot, bytes);
    }

    /// Begins a checkpoint when a start would have to scan too much, and none is under way.
    pub(crate) fn checkpoint_step(&mut self, pool: &mut Pool) {
        let Checkpoints { sum, running, order, .. } = &self.checkpoints;
        let least = u64::from(self.config.limits.recovery_log_bytes_min);
        if *running > 0 || self.fenced.is_some() || self.closing || *sum <= self.config.limits.recovery_bytes_max / 2 {
            return;
        }
        let largest: Vec<u32> = order
            .iter()
            .rev()
            .take(LOOKED_AT)
            .take_while(|(bytes, _)| *bytes >= least)
            .map(|(_, slot)| *slot)
            .collect();
        for slot in largest {
            if self.checkpoint_log(slot, pool) {
                return;
            }
        }
    }

    /// At a clean stop: true when a checkpoint was begun.
    pub(crate) fn checkpoint_at_close(&mut self, slot: u32, pool: &mut Pool) -> bool {
        let least = u64::from(self.config.limits.recovery_log_bytes_min);
        let log = self.slots[slot as usize].log.as_deref();
        log.is_some_and(|log| log.unchecked() >= least) && self.checkpoint_log(slot, pool)
    }

    /// False when the log can't have one now.
    fn checkpoint_log(&mut self, slot: u32, pool: &mut Pool) -> bool {
        let Some(log) = self.slots[slot as usize].log.as_deref().filter(|log| log.ready()) else { return false };
        let id = log.id;
        let under_way = log.checkpointing || log.pending.checkpoint.is_some() || log.disbelieved;
        let busy = under_way || log.full_until.is_some() || log.at_rest;
        let (Some(dir), Some(segment)) = (log.dir_name().map(str::to_owned), log.open.front()) else { return false };
        // While an older segment waits for its seal, a younger one's producers would be too young for it.
        if busy || log.open.len() > 1 || segment.file_id().is_none() || segment.memory_from() > segment.written_to {
            return false;
        }
        let Some(plan) = plan(log, segment, self.block, self.config.limits.gather_bytes_max) else { return false };
        let held = plan.wrote.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.entry_bytes() as u64);
        if !self.checkpoints.room(slot, held, self.journal.as_ref().map_or(0, |ring| ring.ring_bytes)) {
            return false;
        }
        let Some(job) = self.checkpoint_job(id, dir, plan, pool) else { return false };
        if let Some(log) = self.log_any_mut(id) {
            log.jobs += 1;
            log.checkpointing = true;
        }
        self.checkpoints.running += 1;
        self.jobs.add(job);
        true
    }

    fn checkpoint_job(&mut self, id: LogId, dir: String, plan: Planned, pool: &mut Pool) -> Option<Job> {
        let dir_id = self.config.dir;
        let small = self.small_files(dir_id, &dir, &plan.contents, pool)?;
        let mut steps = small.steps;
        steps.push(Step::of(vec![
            DiskKind::Flush { dir: dir_id, files: small.files, after: Vec::new() },
            DiskKind::SyncDir { dir: dir_id, path: dir },
        ]));
        steps.push(Step::of(small.close));
        Some(Job::new(DiskClass::Background, steps, Then::Checkpointed(id, Box::new(plan.wrote))))
    }

    pub(crate) fn checkpointed(&mut self, now: Now, id: LogId, wrote: Wrote, error: Option<DiskError>) {
        self.checkpoints.running -= 1;
        let Some(log) = self.log_any_mut(id) else { return };
        log.jobs -= 1;
        log.checkpointing = false;
        // Removed meanwhile: the next group says so.
        self.dirty.insert(id.slot);
        self.settle.insert(id.slot);
        if let Some(error) = error {
            return self.file_failed(now, id, error);
        }
        let Some(log) = self.log_mut(id) else { return };
        let Some(segment) = log.segment_mut(wrote.base) else { return };
        segment.index_written = wrote.files;
        log.pending.checkpoint = wrote.checkpoint;
        self.weigh(id.slot);
    }

    /// Snapshots that no checkpoint needs any more; those of segments' bases stay.
    pub(crate) fn remove_snapshots(&mut self, id: LogId, stale: &[Offset]) {
        let dir_id = self.config.dir;
        let Some(log) = self.log_mut(id) else { return };
        let Some(dir) = log.dir_name() else { return };
        let needed = |at: &Offset| {
            let told = [&log.checkpoint, &log.pending.checkpoint].into_iter().flatten().any(|c| c.offset == *at);
            told || log.segment(*at).is_some() || log.sealed.contains_key(at)
        };
        let removes = stale
            .iter()
            .filter(|at| !needed(at))
            .map(|at| DiskKind::Remove { dir: dir_id, path: format!("{dir}/{}", file_name(*at, "snapshot")) });
        let steps = vec![Step::lenient(removes.collect())];
        self.jobs.add(Job::new(DiskClass::Background, steps, Then::Nothing));
    }
}

struct Planned {
    contents: Vec<SmallFile>,
    wrote: Wrote,
}

/// What a checkpoint at the log's end is made of. None when it would write too much for what it saves.
fn plan(log: &Log, segment: &OpenSegment, block: u32, most: u32) -> Option<Planned> {
    let mut tails = [
        segment.index.offsets().encode_from(segment.index_written[0].bytes as usize),
        segment.index.times().encode_from(segment.index_written[1].bytes as usize),
    ];
    let whole = |tail: &Vec<u8>| tail.len() as u32 / block * block;
    // An index that was made anew may have much to write: then in several jobs, of which only the last tells.
    let last = tails.iter().all(|tail| whole(tail) <= most);
    let snapshot = if last { snapshot::encode(&log.producers.rows()) } else { Vec::new() };
    let bytes = tails.iter().map(|tail| u64::from(whole(tail).min(most))).sum::<u64>() + snapshot.len() as u64;
    if bytes > log.unchecked() / COST_PART {
        return None;
    }
    let (base, offset) = (segment.base, segment.next);
    let mut files = segment.index_written;
    let mut contents = Vec::new();
    let mut rests = Vec::new();
    for ((tail, file), extension) in tails.iter_mut().zip(&mut files).zip(["index", "timeindex"]) {
        rests.push(tail.split_off(whole(tail).min(most) as usize));
        let from = file.bytes;
        file.crc = crc32c::crc32c_append(file.crc, tail);
        file.bytes += tail.len() as u32;
        if !tail.is_empty() {
            contents.push(SmallFile { name: file_name(base, extension), from, bytes: std::mem::take(tail) });
        }
    }
    let batch = segment.index.offsets().batch_before(Position(segment.written_to));
    let decides = segment.index.decides();
    let prefix = |at: usize| IndexPrefix { bytes: files[at].bytes, crc: files[at].crc, rest: rests[at].clone() };
    let checkpoint = last.then(|| {
        Box::new(Checkpoint {
            base,
            from: segment.memory_from().max(batch.0),
            position: segment.end,
            offset,
            since_entry: decides.bytes_since_entry,
            max: decides.max,
            first_timestamp: segment.first_timestamp.unwrap_or(WallMs(-1)),
            files: [prefix(0), prefix(1)],
        })
    });
    if last {
        contents.push(SmallFile { name: file_name(offset, "snapshot"), from: 0, bytes: snapshot });
    }
    Some(Planned { contents, wrote: Wrote { base, files, checkpoint } })
}

/// Blocks of a small file, padded with zeroes.
pub(crate) fn padded(bytes: &[u8], block: u32, pool: &mut Pool) -> Option<Buf> {
    let whole = bytes.len().next_multiple_of(block as usize);
    let mut buffer = pool.take(Account::Background, whole).ok()?;
    buffer.extend(bytes);
    buffer.extend_zeroes(whole - bytes.len());
    Some(buffer.freeze())
}
