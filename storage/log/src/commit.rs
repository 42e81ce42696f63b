//! The group commit: what each log has to say, in one group, with one flush behind it.

use std::collections::BTreeSet;

use ringmain_buffer::{Buf, Pool};
use ringmain_disk::{DiskClass, DiskError, DiskKind, DiskToken, FileId};
use ringmain_types::*;

use crate::entry::{Batches, Checkpoint, ENTRY_BYTES, EPOCH_BYTES, Entry, PIECE_BYTES, Piece};
use crate::journal::{GroupHeader, HEADER_BYTES, Needs, TRAILER_BYTES};
use crate::log::{Log, Phase};
use crate::plan::{Least, Plan, Plans, Tells};
use crate::room::{Rank, unopened_bytes};
use crate::said::Said;
use crate::segment::OpenSegment;
use crate::store::{Doing, Store};
use crate::{FlushMode, LogConfig, StoreEvent};

/// Async logs are flushed within this much time or this many bytes.
const ASYNC_MS: u64 = 100;
const ASYNC_BYTES: u32 = 256 << 10;

/// A directory's name with the topic's id behind it.
pub(crate) const NAME_BYTES_MAX: usize = 255;

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
    /// What saying the log again takes from then on.
    live: u64,
    state: bool,
    start: Option<Offset>,
    removed: bool,
    /// (base, written to) per segment.
    extents: Vec<(Offset, u32)>,
    sealed: Vec<Offset>,
    holes: bool,
    end: Offset,
    /// The pending checkpoint is in force once this group is flushed.
    checkpoint: bool,
    /// Snapshots that nothing needs once this group is flushed.
    stale: Vec<Offset>,
}

impl Told {
    fn nothing(log: &Log, live: u64) -> Told {
        Told {
            log: log.id,
            live,
            state: false,
            start: None,
            removed: false,
            extents: Vec::new(),
            sealed: Vec::new(),
            holes: false,
            end: log.flushed,
            checkpoint: false,
            stale: Vec::new(),
        }
    }
}

/// What became of a log's turn in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Telling {
    Told,
    /// The group is full, or the log has more than one holds and waits for its file.
    Full,
    /// More may not be live in the ring.
    Waits,
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
    /// Live bytes of what is told, before and from then on.
    live: (u64, u64),
    /// What is told now was live before, and counted.
    pub again: bool,
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
            live: (0, 0),
            again: false,
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
    pub fn bytes(&self) -> usize {
        HEADER_BYTES + self.said.len() + TRAILER_BYTES
    }
    pub fn fits(&self, more: usize) -> bool {
        self.bytes() + more <= self.max
    }
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }
    pub fn bytes_max(&self) -> usize {
        self.max
    }
    /// A log's state is in it, as it was before.
    pub fn tell_again(&mut self, log: &Log, live: u64) {
        self.told.push(Told { state: true, ..Told::nothing(log, live) });
    }
    pub fn tell_removing(&mut self, dir: String) {
        self.removing.push(dir);
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
        self.looked = now.mono;
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
        let reclaims = self.reclaims(now, max as u64) || (self.waits && self.makes_room());
        if reclaims {
            self.reclaim(&mut draft, pool);
        }
        let crowded = used > eighth * 5 || (reclaims && used > eighth * 4);
        let reclaimed = draft.told.len();
        self.tell_news(now, &mut draft, pool, if crowded { Some(roomy) } else { None });
        self.tell_gone(&mut draft);
        if draft.told.len() > reclaimed || !draft.gone.is_empty() {
            self.told_news = self.ring().sequence_next;
        }
        if draft.is_empty() && self.waits && !reclaims && self.makes_room() {
            self.reclaim(&mut draft, pool);
        }
        if !draft.is_empty() || ((crowded || self.waits) && lags) {
            self.send(draft, pool);
        }
    }

    /// What the logs have to say. `crowded`: only what makes room, removals too when there is room for that.
    fn tell_news(&mut self, now: Now, draft: &mut Draft, pool: &Pool, crowded: Option<bool>) {
        let said = draft.told.len();
        self.waits = false;
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
                if !matches!(log.phase, Phase::Removing) {
                    self.dirty.remove(slot);
                }
                continue;
            }
            // A start can't go on without its metadata, and until it does little else leaves the ring.
            let removed = matches!(log.phase, Phase::Removing);
            if crowded.is_some_and(|roomy| rank(log) != Rank::Metadata && !(removed && roomy)) {
                continue;
            }
            if draft.told[..said].iter().any(|told| told.log.slot == *slot) || !due(log, now, self.closing) {
                continue;
            }
            let tells = if log.pending.state { Tells::State } else { Tells::News };
            match self.tell(*slot, draft, pool, tells) {
                Telling::Told => {}
                Telling::Full => {
                    self.commit_from = *slot;
                    if !draft.is_empty() {
                        break;
                    }
                }
                Telling::Waits => {
                    self.waits = true;
                    let log = self.slots[*slot as usize].log.as_deref_mut();
                    if let Some(log) = log.filter(|log| rank(log) != Rank::Metadata && !log.waits) {
                        log.waits = true;
                        self.settle.insert(*slot);
                    }
                }
            }
        }
    }

    fn tell_gone(&mut self, draft: &mut Draft) {
        let fits = |draft: &Draft, dir: &String| draft.fits(ENTRY_BYTES + dir.len());
        while let Some(dir) = self.gone.pop_if(|dir| fits(draft, dir)) {
            draft.put(&Entry::Gone { dir: &dir });
            draft.gone.push(dir);
        }
    }

    /// Puts what one log has to say into the draft; nothing was put unless `Told`.
    pub(crate) fn tell(&mut self, slot: u32, draft: &mut Draft, pool: &Pool, tells: Tells) -> Telling {
        let (block, gather) = (self.block, self.config.limits.gather_bytes_max);
        let least = Least::new(block, &self.config.limits, self.config.journal_flush_covers);
        let Some(log) = self.slots[slot as usize].log.as_deref() else { return Telling::Told };
        let before = self.live_bytes(log);
        if matches!(log.phase, Phase::Removing) {
            return self.tell_removed(slot, draft, before);
        }
        let plans = match self.plans(log, draft, pool, tells) {
            Ok(plans) => plans,
            Err(telling) => return telling,
        };
        let live = plans.live(log);
        draft.live = (draft.live.0 + before, draft.live.1 + live);
        let Some(log) = self.slots[slot as usize].log.as_deref_mut() else { return Telling::Told };
        let mut told = Told {
            state: tells != Tells::News,
            start: (log.started != log.start).then_some(log.start),
            end: log.told_end(&plans),
            stale: std::mem::take(&mut log.stale),
            holes: tells != Tells::News && log.compaction.holes,
            ..Told::nothing(log, live)
        };
        let inlines: Vec<Vec<Buf>> =
            log.open.iter().zip(&plans.of).map(|(s, plan)| s.parts(plan.inline_from, plan.to)).collect();
        if told.state {
            put_log_state(draft, log, &plans, &inlines);
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
            segment.declare(plan.to);
        }
        told.checkpoint = tells != Tells::Again && log.checkpoint_due();
        if told.checkpoint {
            told.stale.extend(log.checkpoint.as_ref().map(|checkpoint| checkpoint.offset));
        }
        let end = told.end;
        let mut pending = std::mem::take(&mut log.pending);
        told.sealed = pending.sealed;
        log.pending.checkpoint = pending.checkpoint;
        if tells == Tells::Again {
            pending.epochs.retain(|entry| entry.start >= end);
            log.pending.epochs = pending.epochs;
        }
        log.in_flight = true;
        log.cut = None;
        if log.open.iter().all(|segment| segment.undeclared() == 0) {
            (log.dirty_since, log.waits) = (None, false);
        }
        draft.told.push(told);
        Telling::Told
    }

    /// How a log's segments go out, if they may.
    fn plans(&self, log: &Log, draft: &Draft, pool: &Pool, tells: Tells) -> Result<Plans, Telling> {
        let most = self.ring().group_bytes_max();
        // When memory or the ring is short, whole blocks go to their files early.
        let short = pool.left(Account::Tail) < pool.limit(Account::Tail) as usize / 2;
        // Whatever a log has in the journal must fit one group when it is said again: past that it waits for its file.
        let fits = |plans: &Plans| {
            let whole = plans.kept(log) + HEADER_BYTES + TRAILER_BYTES + NAME_BYTES_MAX;
            draft.fits(plans.bytes(log)) && (whole <= most || tells == Tells::Again)
        };
        let least = Least::new(self.block, &self.config.limits, self.config.journal_flush_covers);
        let room = |plans: &Plans| self.room_for(log, draft, plans);
        let chosen = (!short && tells == Tells::News).then(|| least.plans(log, tells));
        if let Some(plans) = chosen.filter(|plans| fits(plans) && room(plans)) {
            return Ok(plans);
        }
        let plans = Least::none(self.block).plans(log, tells);
        match (fits(&plans), room(&plans)) {
            (true, true) => Ok(plans),
            (true, false) => Err(Telling::Waits),
            (false, _) => Err(Telling::Full),
        }
    }

    /// Whether the ring may have this much more that is live (`room.rs`).
    fn room_for(&self, log: &Log, draft: &Draft, plans: &Plans) -> bool {
        let ring = self.ring();
        let (before, live) = (self.live_bytes(log), plans.live(log));
        // Said again it was counted.
        if plans.tells == Tells::Again || draft.again && live <= before {
            return true;
        }
        let measure = |more: usize, (was, is): (u64, u64)| {
            let padded = ((draft.bytes() + more) as u64).next_multiple_of(ring.block);
            ring.measure(padded, (ring.live() + is).saturating_sub(was))
        };
        let with = measure(plans.bytes(log), (draft.live.0 + before, draft.live.1 + live));
        let none = if draft.is_empty() { ring.measure(0, ring.live()) } else { measure(0, draft.live) };
        with <= ring.measure_max(rank(log)) || with <= none
    }

    fn tell_removed(&mut self, slot: u32, draft: &mut Draft, before: u64) -> Telling {
        let Some(log) = self.slots[slot as usize].log.as_deref_mut() else { return Telling::Told };
        let dir = log.dir_name().map(str::to_owned);
        let bytes = ENTRY_BYTES + dir.as_ref().map_or(0, String::len);
        if !draft.fits(bytes) {
            return Telling::Full;
        }
        draft.put(&Entry::Remove { partition: log.partition, dir: dir.as_deref() });
        draft.live = (draft.live.0 + before, draft.live.1 + bytes as u64);
        draft.told.push(Told { removed: true, end: log.end(), ..Told::nothing(log, bytes as u64) });
        log.in_flight = true;
        // Told once; what follows is the flush's business.
        log.phase = Phase::Removed;
        Telling::Told
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
                let bytes = self.ring_mut().release(before, who.clone());
                let seeded = self.unopened.get(&partition).map(|(state, _)| unopened_bytes(state));
                self.ring_mut().need(flight.sequence, who, bytes.or(seeded).unwrap_or(0));
            }
        }
        for dir in flight.removing {
            if let Some(since) = self.removing.get_mut(&dir) {
                let before = std::mem::replace(since, flight.sequence);
                self.ring_mut().release(before, Needs::Removing(dir.clone()));
                let bytes = (ENTRY_BYTES + dir.len()) as u64;
                self.ring_mut().need(flight.sequence, Needs::Removing(dir), bytes);
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
        let before = log.since;
        if told.state {
            log.since = Some(sequence);
        }
        log.hold &= !told.state;
        log.disbelieved &= !told.state;
        log.compaction.holes_declared |= told.holes;
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
        let who = Needs::Log(told.log.slot);
        if let Some(before) = before.filter(|_| told.state) {
            self.ring_mut().release(before, who.clone());
        }
        if let Some(since) = if told.state { Some(sequence) } else { before } {
            self.ring_mut().need(since, who, told.live);
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
pub(crate) fn due(log: &Log, now: Now, closing: bool) -> bool {
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

/// The metadata log alone has space reserved.
fn rank(log: &Log) -> Rank {
    if log.config.reserve_bytes > 0 { Rank::Metadata } else { Rank::Other }
}

fn piece<'a>(segment: &OpenSegment, plan: &Plan, inline: &'a [Buf]) -> Piece<'a> {
    let news = plan.to == segment.end;
    Piece {
        base: segment.base,
        extent_from: segment.written_to,
        written_to: plan.written_to,
        declared_from: segment.declared_to,
        headers_crc: if news { segment.headers_crc } else { 0 },
        inline_from: plan.inline_from,
        inline: Batches::Parts(inline),
        next: if news { segment.next } else { segment.declared_next },
    }
}

fn put_log_state(draft: &mut Draft, log: &Log, plans: &Plans, inlines: &[Vec<Buf>]) {
    let pieces = log.open.iter().zip(&plans.of).zip(inlines);
    let end = log.told_end(plans);
    let epochs = log.epochs.entries().iter().filter(|entry| plans.tells == Tells::State || entry.start < end);
    draft.put(&Entry::State {
        partition: log.partition,
        dir: log.dir_name(),
        start: log.start,
        sealed: !log.sealed.is_empty(),
        holes: log.compaction.holes,
        epochs: epochs.map(|entry| (entry.epoch, entry.start)).collect(),
        pieces: pieces.map(|((segment, plan), inline)| piece(segment, plan, inline)).collect(),
    });
    put_checkpoint(draft, log.partition, log.checkpoint_told(plans.tells));
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
    put_checkpoint(draft, partition, log.checkpoint_told(Tells::News));
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
        holes: state.holes,
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
