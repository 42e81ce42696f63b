//! The group commit: what each log has to say, in one group, with one flush behind it.

use std::collections::BTreeSet;

use ringmain_buffer::{Buf, Pool};
use ringmain_disk::{DiskClass, DiskError, DiskKind, DiskToken, FileId};
use ringmain_types::*;

use crate::entry::{Batches, Checkpoint, ENTRY_BYTES, EPOCH_BYTES, Entry, PIECE_BYTES, Piece};
use crate::journal::{GroupHeader, HEADER_BYTES, Needs, TRAILER_BYTES};
use crate::log::{Log, Phase};
use crate::plan::{Least, Plan, Plans};
use crate::said::Said;
use crate::segment::OpenSegment;
use crate::store::{Doing, Store};
use crate::{FlushMode, LogConfig, StoreEvent};

/// Async logs are flushed within this much time or this many bytes.
const ASYNC_MS: u64 = 100;
const ASYNC_BYTES: u32 = 256 << 10;

/// A directory's name with the topic's id behind it.
const NAME_BYTES_MAX: usize = 255;
/// What all logs need of the journal is estimated anew after this many groups.
const LIVE_GROUPS: u64 = 16;

/// The group in flight.
#[derive(Debug)]
pub(crate) struct Flight {
    pub sequence: u64,
    horizon: u64,
    pub left: BTreeSet<DiskToken>,
    /// Bytes of its blocks that went into fresh extents.
    fresh: u64,
    /// It has entries.
    says: bool,
    pub logs: Vec<Told>,
    pub unopened: Vec<Partition>,
    pub removing: Vec<String>,
    pub gone: Vec<String>,
    resume: Option<Vec<FileId>>,
}

/// What the group tells of one log.
#[derive(Debug)]
pub(crate) struct Told {
    pub log: LogId,
    state: bool,
    start: Option<Offset>,
    removed: bool,
    /// (base, written to) per segment.
    extents: Vec<(Offset, u32)>,
    sealed: Vec<Offset>,
    end: Offset,
    /// The pending checkpoint is in force once this group is flushed.
    checkpoint: bool,
    /// Snapshots that nothing needs once this group is flushed.
    stale: Vec<Offset>,
}

/// A group while it is put together.
pub(crate) struct Draft {
    said: Said,
    entries: u32,
    max: usize,
    writes: Vec<(FileId, u64, Vec<Buf>)>,
    /// Segments that need a flush of their own, and how many bytes they took of fresh extents.
    flush: BTreeSet<FileId>,
    fresh: u64,
    told: Vec<Told>,
    unopened: Vec<Partition>,
    removing: Vec<String>,
    gone: Vec<String>,
    /// More files that the flush covers; only the first groups of a life have it.
    resume: Option<Vec<FileId>>,
}

impl Draft {
    pub fn new(max: usize) -> Draft {
        Draft {
            said: Said::default(),
            entries: 0,
            max,
            writes: Vec::new(),
            flush: BTreeSet::new(),
            fresh: 0,
            told: Vec::new(),
            unopened: Vec::new(),
            removing: Vec::new(),
            gone: Vec::new(),
            resume: None,
        }
    }
    pub fn put(&mut self, entry: &Entry<'_>) {
        entry.encode(&mut self.said);
        self.entries += 1;
    }
    fn bytes(&self) -> usize {
        HEADER_BYTES + self.said.len() + TRAILER_BYTES
    }
    pub fn fits(&self, more: usize) -> bool {
        self.bytes() + more <= self.max
    }
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }
    pub fn tell_unopened(&mut self, partition: Partition) {
        self.unopened.push(partition);
    }
    pub fn resume(&mut self, touched: Vec<FileId>) {
        self.resume = Some(touched);
    }
}

impl Store {
    /// Closes a group if there is news and no other is in flight.
    pub(crate) fn commit(&mut self, now: Now, pool: &mut Pool) {
        if self.flight.is_some() || self.fenced.is_some() || self.journal.is_none() || self.resume.is_some() {
            return;
        }
        let ring = self.ring();
        let max = ring.group_bytes_max();
        let used = ring.used();
        let eighth = ring.ring_bytes / 8;
        let lags = ring.groups.front().is_some_and(|first| first.sequence < ring.horizon());
        let roomy = used <= eighth * 5;
        // The last blocks are for the first groups of next lives; only what makes room goes close to them.
        let reserve = if used > eighth * 5 { 2 * ring.block } else { 4 * ring.block };
        let room = ring.room().saturating_sub(reserve) / ring.block * ring.block;
        let max = max.min(room as usize);
        if room == 0 {
            // What was said again counts when a group names it: one of a block may use the reserve, and makes room.
            if lags && ring.room() > ring.block {
                self.send(Draft::new(max), pool);
            }
            return;
        }
        let mut draft = Draft::new(max);
        // Reclaim begins at three eighths. From a half on nothing else goes out if that makes room, and from five on in any case:
        // what is left is its room to move.
        let reclaims = self.reclaims(now, max as u64);
        if reclaims {
            self.reclaim(&mut draft, pool);
        }
        let crowded = used > eighth * 5 || (reclaims && used > eighth * 4);
        let reclaimed = draft.told.len();
        let slots: Vec<u32> = self.dirty.iter().copied().collect();
        // Where the last group stopped for lack of room, this one begins.
        let begin = slots.partition_point(|slot| *slot < self.commit_from);
        self.commit_from = 0;
        for slot in slots[begin..].iter().chain(&slots[..begin]) {
            let Some(log) = self.slots[*slot as usize].log.as_deref() else {
                self.dirty.remove(slot);
                continue;
            };
            if !log.news() {
                let waits = matches!(log.phase, Phase::Removing);
                if !waits {
                    self.dirty.remove(slot);
                }
                continue;
            }
            if crowded && !(matches!(log.phase, Phase::Removing) && roomy) {
                continue;
            }
            if draft.told[..reclaimed].iter().any(|told| told.log.slot == *slot) || !due(log, now, self.closing) {
                continue;
            }
            let state = log.pending.state;
            if !self.tell(*slot, &mut draft, pool, state) {
                self.commit_from = *slot;
                if !draft.is_empty() {
                    break;
                }
            }
        }
        self.tell_gone(&mut draft);
        if draft.told.len() > reclaimed || !draft.gone.is_empty() {
            self.told_news = self.ring().sequence_next;
        }
        if !draft.is_empty() || (crowded && lags) {
            self.send(draft, pool);
        }
    }

    fn tell_gone(&mut self, draft: &mut Draft) {
        let fits = |draft: &Draft, dir: &String| draft.fits(ENTRY_BYTES + dir.len());
        while let Some(dir) = self.gone.pop_if(|dir| fits(draft, dir)) {
            draft.put(&Entry::Gone { dir: &dir });
            draft.gone.push(dir);
        }
    }

    /// Whether saying again what the oldest groups say makes room, and somebody waits for it.
    fn reclaims(&mut self, now: Now, group: u64) -> bool {
        let ring = self.ring();
        let (used, eighth, sequence) = (ring.used(), ring.ring_bytes / 8, ring.sequence_next);
        // Once everything was said again behind the last news, once more makes no more room.
        if used <= eighth * 3 || ring.oldest().next().is_none_or(|(oldest, _)| *oldest > self.told_news) {
            return false;
        }
        let news = |slot: &u32| {
            let log = self.slots[*slot as usize].log.as_deref();
            log.is_some_and(|log| log.news() && due(log, now, self.closing))
        };
        // Without news, room is made for the appends that a crowded ring refuses.
        if used <= eighth * 4 && self.gone.is_empty() && !self.dirty.iter().any(news) {
            return false;
        }
        // Looked at again now and then: it takes a look at every log.
        if used > eighth * 4 || self.live.is_none_or(|(_, at)| sequence >= at + LIVE_GROUPS) {
            let live: usize = self.ring().oldest().map(|(_, who)| self.state_bytes(who)).sum();
            self.live = Some((live as u64, sequence));
        }
        let margin = if used > eighth * 5 { group } else { 2 * group };
        self.live.is_some_and(|(live, _)| live + margin < used)
    }

    /// Says again what the oldest groups say.
    fn reclaim(&mut self, draft: &mut Draft, pool: &mut Pool) {
        let ring = self.ring();
        let budget = draft.max / 2;
        let mut oldest = Vec::new();
        let mut bytes = 0;
        for (_, who) in ring.oldest().take(1024) {
            if bytes >= budget {
                break;
            }
            bytes += self.state_bytes(who);
            oldest.push(who.clone());
        }
        for who in oldest {
            match who {
                Needs::Log(slot) => {
                    if self.slots[slot as usize]
                        .log
                        .as_ref()
                        .is_some_and(|log| log.ready() || (matches!(log.phase, Phase::Removing) && log.jobs == 0))
                    {
                        if !self.tell(slot, draft, pool, true) {
                            // Whole blocks must leave memory first; younger ones would not make room.
                            self.settle.insert(slot);
                            return;
                        }
                    } else if !self.tell_recovering(slot, draft) {
                        return;
                    }
                }
                Needs::Unopened(partition) => {
                    let Some((state, _)) = self.unopened.get(&partition) else { continue };
                    if !draft.fits(state_bytes(state)) {
                        return;
                    }
                    put_state(draft, state);
                    draft.unopened.push(partition);
                }
                Needs::Removing(dir) => {
                    if draft.fits(ENTRY_BYTES + dir.len()) {
                        draft.put(&Entry::Removing { dir: &dir });
                        draft.removing.push(dir);
                    }
                }
            }
        }
    }

    /// A log whose recovery is under way is told as the journal had it. False when it can't be told now.
    fn tell_recovering(&mut self, slot: u32, draft: &mut Draft) -> bool {
        let Some(log) = self.slots[slot as usize].log.as_deref() else { return false };
        let state = match (&log.phase, &log.kept_state) {
            (Phase::Recovering(recovering), _) => &recovering.state,
            (Phase::Damaged, Some(state)) => &**state,
            _ => return false,
        };
        if !draft.fits(state_bytes(state)) {
            return false;
        }
        put_state(draft, state);
        draft.told.push(Told {
            log: log.id,
            state: true,
            start: None,
            removed: false,
            extents: Vec::new(),
            sealed: Vec::new(),
            end: log.flushed,
            checkpoint: false,
            stale: Vec::new(),
        });
        true
    }

    pub(crate) fn state_bytes(&self, who: &Needs) -> usize {
        match who {
            Needs::Log(slot) => self.slots[*slot as usize].log.as_ref().map_or(0, |log| {
                if matches!(log.phase, Phase::Removing | Phase::Removed) {
                    return ENTRY_BYTES + NAME_BYTES_MAX;
                }
                Least::none(self.block).plans(log, true).kept(log) + PIECE_BYTES + 64
            }),
            Needs::Unopened(partition) => self.unopened.get(partition).map_or(0, |(state, _)| state_bytes(state)),
            Needs::Removing(dir) => ENTRY_BYTES + dir.len(),
        }
    }

    /// Puts one log's news into the draft; false when they do not fit, and then nothing was put.
    fn tell(&mut self, slot: u32, draft: &mut Draft, pool: &Pool, state: bool) -> bool {
        let most = self.ring().group_bytes_max();
        let (block, gather) = (self.block, self.config.limits.gather_bytes_max);
        let least = Least::new(block, &self.config.limits, self.config.journal_flush_covers);
        // When memory or the ring is short, whole blocks go to their files early.
        let short = pool.left(Account::Tail) < pool.limit(Account::Tail) as usize / 2;
        let Some(log) = self.slots[slot as usize].log.as_deref_mut() else { return true };
        if matches!(log.phase, Phase::Removing) {
            return tell_removed(log, draft);
        }
        // Whatever a log has in the journal must fit one group when it is said again: past that it waits for its file.
        let fits = |plans: &Plans| {
            let whole = plans.kept(log) + HEADER_BYTES + TRAILER_BYTES + NAME_BYTES_MAX;
            draft.fits(plans.bytes(log, state)) && whole <= most
        };
        let chosen = Some(least.plans(log, state)).filter(|plans| !short && !state && fits(plans));
        let Some(plans) = chosen.or_else(|| Some(Least::none(block).plans(log, state)).filter(fits)) else {
            return false;
        };
        let mut told = Told {
            log: log.id,
            state,
            start: (log.started != log.start).then_some(log.start),
            removed: false,
            extents: Vec::new(),
            sealed: Vec::new(),
            end: log.end(),
            checkpoint: false,
            stale: std::mem::take(&mut log.stale),
        };
        let inlines: Vec<Vec<Buf>> =
            log.open.iter().zip(&plans.of).map(|(s, plan)| s.parts(plan.inline_from, s.end)).collect();
        if state {
            put_log_state(draft, log, &plans.of, &inlines);
        } else {
            put_news(draft, log, &plans.of, &inlines);
        }
        for (segment, plan) in log.open.iter_mut().zip(&plans.of) {
            if plan.written_to > segment.written_to {
                if let Some(file) = segment.file_id() {
                    let parts = segment.parts(segment.written_to, plan.written_to);
                    gather_writes(&mut draft.writes, file, segment.written_to, parts, gather);
                    let covered = least.covered_to(segment);
                    if plan.written_to > covered {
                        draft.flush.insert(file);
                        draft.fresh += u64::from(plan.written_to - segment.written_to.max(covered));
                    }
                }
                segment.writing_to = plan.written_to;
                told.extents.push((segment.base, plan.written_to));
            }
            segment.declared_to = segment.end;
            segment.headers_crc = 0;
            segment.roll_declared = true;
        }
        told.checkpoint = log.checkpoint_due();
        if told.checkpoint {
            told.stale.extend(log.checkpoint.as_ref().map(|checkpoint| checkpoint.offset));
        }
        let pending = std::mem::take(&mut log.pending);
        told.sealed = pending.sealed;
        log.pending.checkpoint = pending.checkpoint;
        log.in_flight = true;
        log.cut = None;
        log.dirty_since = None;
        draft.told.push(told);
        true
    }

    pub(crate) fn send(&mut self, draft: Draft, pool: &mut Pool) {
        let block = u64::from(self.block);
        let bytes = draft.bytes();
        let padded = (bytes as u64).next_multiple_of(block);
        let Some(at) = self.ring().place(padded) else {
            // Commits leave room for this; a ring that lives filled without ever being reclaimed says so.
            let path = format!("{} (the ring is full)", self.journal_path());
            return self.fence(DiskError { operation: "write journal", path, errno: DiskError::ENOSPC });
        };
        let ring = self.ring_mut();
        let horizon = ring.horizon().min(ring.sequence_next);
        let flushed = ring.flushed;
        let sequence = ring.push(at, padded);
        let header = GroupHeader {
            nonce: ring.nonce,
            life: ring.life,
            sequence,
            flushed,
            horizon,
            bytes: bytes as u32,
            entries: draft.entries,
        };
        let (file, position) = (ring.file, block + at);
        let data = draft.said.group(&header, padded as usize, pool);
        let mut left = BTreeSet::new();
        let mut files = vec![file];
        left.insert(self.operate(DiskClass::Commit, DiskKind::Write { file, position, data }, Doing::Commit));
        for (file, position, data) in draft.writes {
            left.insert(self.operate(DiskClass::Commit, DiskKind::Write { file, position, data }, Doing::Commit));
        }
        let after = left.iter().copied().collect();
        files.extend(draft.flush);
        files.extend(draft.resume.iter().flatten());
        let flush = DiskKind::Flush { dir: self.config.dir, files, after };
        left.insert(self.operate(DiskClass::Commit, flush, Doing::Commit));
        self.flight = Some(Flight {
            sequence,
            horizon,
            left,
            fresh: draft.fresh,
            says: draft.entries > 0,
            logs: draft.told,
            unopened: draft.unopened,
            removing: draft.removing,
            gone: draft.gone,
            resume: draft.resume,
        });
    }

    /// An operation of the group in flight is back.
    pub(crate) fn commit_done(&mut self, now: Now, pool: &mut Pool, token: DiskToken, result: Result<(), DiskError>) {
        if let Err(error) = result {
            self.fence(error);
        }
        let Some(flight) = &mut self.flight else { return };
        flight.left.remove(&token);
        if !flight.left.is_empty() {
            return;
        }
        let Some(flight) = self.flight.take() else { return };
        if self.fenced.is_none() {
            self.spares.wrote(now.mono, flight.fresh);
            self.group_flushed(flight, pool);
        }
    }

    fn group_flushed(&mut self, flight: Flight, pool: &mut Pool) {
        let ring = self.ring_mut();
        ring.flushed = flight.sequence;
        ring.trim(flight.horizon);
        self.unconfirmed = flight.says;
        for partition in flight.unopened {
            if let Some((_, since)) = self.unopened.get_mut(&partition) {
                let before = std::mem::replace(since, flight.sequence);
                let who = Needs::Unopened(partition);
                self.ring_mut().release(before, who.clone());
                self.ring_mut().need(flight.sequence, who);
            }
        }
        for dir in flight.removing {
            if let Some(since) = self.removing.get_mut(&dir) {
                let before = std::mem::replace(since, flight.sequence);
                self.ring_mut().release(before, Needs::Removing(dir.clone()));
                self.ring_mut().need(flight.sequence, Needs::Removing(dir));
            }
        }
        for dir in flight.gone {
            if let Some(since) = self.removing.remove(&dir) {
                self.ring_mut().release(since, Needs::Removing(dir.clone()));
            }
            self.directory_gone(dir);
        }
        for told in flight.logs {
            self.told(flight.sequence, told);
        }
        if let Some(touched) = flight.resume {
            self.resumed(touched, pool);
        }
    }

    fn told(&mut self, sequence: u64, told: Told) {
        let Some(log) = self.log_any_mut(told.log) else { return };
        log.in_flight = false;
        if told.removed {
            return self.removal_declared(told.log, sequence);
        }
        let before = if told.state { log.since.replace(sequence) } else { None };
        log.hold &= !told.state;
        for (base, written_to) in &told.extents {
            if let Some(segment) = log.segment_mut(*base) {
                segment.written_to = *written_to;
            }
        }
        for base in &told.sealed {
            if let Some(segment) = log.sealed.get_mut(base) {
                segment.declared = true;
            }
        }
        if told.checkpoint {
            log.checkpoint = log.pending.checkpoint.take().or(log.checkpoint.take());
        }
        let end = log.cut.map_or(told.end, |cut| cut.min(told.end));
        let news = log.flushed < end;
        log.flushed = log.flushed.max(end);
        let due = log.checkpoint_due();
        if let Some(start) = told.start {
            log.started = start;
            self.events.push(StoreEvent::Started { log: told.log, start });
        }
        if news {
            self.events.push(StoreEvent::Flushed { log: told.log, end });
        }
        if told.state {
            let who = Needs::Log(told.log.slot);
            if let Some(before) = before {
                self.ring_mut().release(before, who.clone());
            }
            self.ring_mut().need(sequence, who);
        }
        if due {
            self.dirty.insert(told.log.slot);
        }
        self.settle.insert(told.log.slot);
        self.remove_snapshots(told.log, &told.stale);
        self.remove_segments(told.log);
    }
}

/// Whether a log's news may go out now.
fn due(log: &Log, now: Now, closing: bool) -> bool {
    let undeclared: u32 = log.open.iter().map(OpenSegment::undeclared).sum();
    closing || log.pending.any() || log.config.flush == FlushMode::Group || undeclared >= ASYNC_BYTES || {
        due_at(log).is_none_or(|at| at <= now.mono)
    }
}

/// When an async log's news are due.
pub(crate) fn due_at(log: &Log) -> Option<Instant> {
    let LogConfig { flush, .. } = log.config;
    log.dirty_since.filter(|_| flush == FlushMode::Async).map(|since| since.plus_ms(ASYNC_MS))
}

fn tell_removed(log: &mut Log, draft: &mut Draft) -> bool {
    let dir = log.dir_name().map(str::to_owned);
    if !draft.fits(ENTRY_BYTES + dir.as_ref().map_or(0, String::len)) {
        return false;
    }
    draft.put(&Entry::Remove { partition: log.partition, dir: dir.as_deref() });
    draft.told.push(Told {
        log: log.id,
        state: false,
        start: None,
        removed: true,
        extents: Vec::new(),
        sealed: Vec::new(),
        end: log.end(),
        checkpoint: false,
        stale: Vec::new(),
    });
    log.in_flight = true;
    // Told once; what follows is the flush's business.
    log.phase = Phase::Removed;
    true
}

fn piece<'a>(segment: &OpenSegment, plan: &Plan, inline: &'a [Buf]) -> Piece<'a> {
    Piece {
        base: segment.base,
        extent_from: segment.written_to,
        written_to: plan.written_to,
        declared_from: segment.declared_to,
        headers_crc: segment.headers_crc,
        inline_from: plan.inline_from,
        inline: Batches::Parts(inline),
        next: segment.next,
    }
}

fn put_log_state(draft: &mut Draft, log: &Log, plans: &[Plan], inlines: &[Vec<Buf>]) {
    let pieces = log.open.iter().zip(plans).zip(inlines);
    draft.put(&Entry::State {
        partition: log.partition,
        dir: log.dir_name(),
        start: log.start,
        sealed: !log.sealed.is_empty(),
        epochs: log.epochs.entries().iter().map(|entry| (entry.epoch, entry.start)).collect(),
        pieces: pieces.map(|((segment, plan), inline)| piece(segment, plan, inline)).collect(),
    });
    put_checkpoint(draft, log.partition, log.checkpoint_told(true));
}

fn put_checkpoint(draft: &mut Draft, partition: Partition, checkpoint: Option<&Checkpoint>) {
    if let Some(checkpoint) = checkpoint {
        draft.put(&Entry::Checkpoint { partition, checkpoint: Box::new(checkpoint.clone()) });
    }
}

fn put_news(draft: &mut Draft, log: &Log, plans: &[Plan], inlines: &[Vec<Buf>]) {
    let partition = log.partition;
    if log.started != log.start {
        draft.put(&Entry::Start { partition, offset: log.start });
    }
    for entry in &log.pending.epochs {
        draft.put(&Entry::Epoch { partition, epoch: entry.epoch, start: entry.start });
    }
    for ((segment, plan), inline) in log.open.iter().zip(plans).zip(inlines) {
        if !segment.roll_declared {
            draft.put(&Entry::Roll { partition, base: segment.base });
        }
        if segment.undeclared() > 0 || plan.written_to > segment.written_to {
            draft.put(&Entry::Commit { partition, piece: piece(segment, plan, inline) });
        }
    }
    for base in &log.pending.sealed {
        draft.put(&Entry::Sealed { partition, base: *base });
    }
    put_checkpoint(draft, partition, log.checkpoint_told(false));
}

pub(crate) fn state_bytes(state: &crate::LogState) -> usize {
    let inline: usize = state.segments.iter().map(|segment| PIECE_BYTES + segment.inline.len()).sum();
    let checkpoint = state.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.entry_bytes());
    inline + ENTRY_BYTES + checkpoint + state.epochs.len() * EPOCH_BYTES + state.dir.as_ref().map_or(0, String::len)
}

pub(crate) fn put_state(draft: &mut Draft, state: &crate::LogState) {
    let pieces = state.segments.iter().map(|segment| Piece {
        base: segment.base,
        extent_from: segment.written_to,
        written_to: segment.written_to,
        declared_from: segment.end(),
        headers_crc: 0,
        inline_from: segment.written_to,
        inline: Batches::Read(&segment.inline),
        next: segment.next,
    });
    draft.put(&Entry::State {
        partition: state.partition,
        dir: state.dir.as_deref(),
        start: state.start,
        sealed: state.sealed,
        epochs: state.epochs.clone(),
        pieces: pieces.collect(),
    });
    put_checkpoint(draft, state.partition, state.checkpoint.as_deref());
}

/// Consecutive parts, as writes of at most `gather` bytes.
pub(crate) fn gather_writes(
    writes: &mut Vec<(FileId, u64, Vec<Buf>)>,
    file: FileId,
    position: u32,
    parts: Vec<Buf>,
    gather: u32,
) {
    let (mut position, mut room) = (u64::from(position), 0usize);
    for part in parts {
        let mut at = 0;
        while at < part.len() {
            if room == 0 {
                writes.push((file, position, Vec::new()));
                room = gather as usize;
            }
            let bytes = room.min(part.len() - at);
            if let Some((_, _, data)) = writes.last_mut() {
                data.push(part.slice(at..at + bytes));
            }
            (at, room, position) = (at + bytes, room - bytes, position + bytes as u64);
        }
    }
}
