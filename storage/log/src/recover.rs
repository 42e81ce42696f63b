//! One log's way back: what the journal declares of it, its directory, and its producers and indexes from a scan of what was not
//! sealed.

use std::collections::{BTreeMap, VecDeque};

use ringmain_batch::BatchHeader;
use ringmain_buffer::Pool;
use ringmain_disk::{DiskClass, DiskError, DiskKind, DiskOk, Entry, FileId};
use ringmain_types::*;

use crate::chunk::Chunk;
use crate::entry::{LogState, SegmentState};
use crate::epochs::LeaderEpochs;
use crate::jobs::{Job, Step, Then};
use crate::log::{Dir, Log, Phase};
use crate::producer::ProducerState;
use crate::scan::{ScanError, Scanner};
use crate::segment::{OpenSegment, Rolled, SealedSegment, SegmentFile, file_name, parse_file_name};
use crate::snapshot;
use crate::store::Store;
use crate::{Damage, Recovery, StoreEvent};

/// The most that is read at once.
const PIECE_BYTES: usize = 1 << 20;

type Got = BTreeMap<u32, Result<DiskOk, DiskError>>;

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    Begin,
    List,
    Opening,
    /// The snapshot's bytes are next.
    Snapshot {
        bytes: u64,
    },
    Scan,
    Reading,
    Finish,
}

/// A stretch of the log that is read batch by batch.
#[derive(Debug)]
struct Stretch {
    base: Offset,
    file: Option<FileId>,
    /// Bytes of the file that count.
    bytes: u32,
    /// In the states's segments; none for a sealed one, of which only the producers are wanted.
    open: Option<usize>,
}

#[derive(Debug)]
pub(crate) struct Recovering {
    pub state: LogState,
    stage: Stage,
    snapshot: Option<(Offset, FileId)>,
    stretches: VecDeque<Stretch>,
    at: u32,
    scanner: Scanner,
    files: BTreeMap<Offset, FileId>,
    closing: Vec<FileId>,
    /// Files that were never declared, or that the log's start has left behind.
    garbage: Vec<String>,
    report: Recovery,
}

impl Recovering {
    pub fn new(state: LogState) -> Recovering {
        Recovering {
            state,
            stage: Stage::Begin,
            snapshot: None,
            stretches: VecDeque::new(),
            at: 0,
            scanner: Scanner::new(0, None),
            files: BTreeMap::new(),
            closing: Vec::new(),
            garbage: Vec::new(),
            report: Recovery::default(),
        }
    }
}

impl Store {
    /// Begins the recoveries that were asked for, and goes on with those that waited for memory.
    pub(crate) fn recover_stalled(&mut self, now: Now, pool: &mut Pool) {
        self.stalled.append(&mut self.starved);
        while let Some(slot) = self.stalled.pop_first() {
            self.recover_step(now, pool, slot);
        }
    }

    fn recovery(&mut self, slot: u32) -> Option<(&mut Log, Box<Recovering>)> {
        let log = self.slots[slot as usize].log.as_deref_mut()?;
        if !matches!(log.phase, Phase::Recovering(_)) {
            return None;
        }
        match std::mem::replace(&mut log.phase, Phase::Ready) {
            Phase::Recovering(recovering) => Some((log, recovering)),
            other => {
                log.phase = other;
                None
            }
        }
    }

    fn put_back(&mut self, slot: u32, recovering: Box<Recovering>) {
        if let Some(log) = self.slots[slot as usize].log.as_deref_mut() {
            log.phase = Phase::Recovering(recovering);
        }
    }

    fn recover_step(&mut self, now: Now, pool: &mut Pool, slot: u32) {
        let Some((log, mut recovering)) = self.recovery(slot) else { return };
        let id = log.id;
        let dir_id = self.config.dir;
        match recovering.stage {
            Stage::Begin => {
                begin(self.slots[slot as usize].log.as_deref_mut(), &recovering.state, &self.config.limits, now);
                match recovering.state.dir.clone() {
                    None => {
                        recovering.stage = Stage::Scan;
                        plan_scan(&mut recovering, &[]);
                        self.put_back(slot, recovering);
                        self.stalled.insert(slot);
                    }
                    Some(path) => {
                        recovering.stage = Stage::List;
                        self.put_back(slot, recovering);
                        let list = DiskKind::List { dir: dir_id, path };
                        self.add_job(id, DiskClass::Read, vec![Step::of(vec![list])], Then::RecoverListed(id));
                    }
                }
            }
            Stage::Snapshot { bytes } => {
                let Some((_, file)) = recovering.snapshot else {
                    recovering.stage = Stage::Scan;
                    self.put_back(slot, recovering);
                    self.stalled.insert(slot);
                    return;
                };
                let block = u64::from(self.block);
                let whole = bytes.next_multiple_of(block).max(block);
                let into = pool.take(Account::Background, whole as usize);
                self.put_back(slot, recovering);
                let Ok(into) = into else {
                    self.starved.insert(slot);
                    return;
                };
                let read = DiskKind::Read { file, position: 0, bytes: whole as u32, into };
                self.add_job(id, DiskClass::Read, vec![Step::of(vec![read])], Then::RecoverRead(id));
            }
            Stage::Scan => self.recover_scan(now, pool, slot, recovering),
            Stage::Finish => self.recover_finish(now, pool, slot, recovering),
            Stage::List | Stage::Opening | Stage::Reading => self.put_back(slot, recovering),
        }
    }

    fn add_job(&mut self, id: LogId, class: DiskClass, steps: Vec<Step>, then: Then) {
        if let Some(log) = self.log_any_mut(id) {
            log.jobs += 1;
        }
        self.jobs.add(Job::new(class, steps, then));
    }

    pub(crate) fn recover_listed(
        &mut self,
        _now: Now,
        _pool: &mut Pool,
        id: LogId,
        error: Option<DiskError>,
        mut got: Got,
    ) {
        let Some(log) = self.log_any_mut(id) else { return };
        log.jobs -= 1;
        let dir_id = self.config.dir;
        let Some((log, mut recovering)) = self.recovery(id.slot) else { return };
        let Some(DiskOk::Listed(entries)) = Store::ok(&mut got, 0) else {
            let error = error.unwrap_or(DiskError { operation: "list", path: log.name.clone(), errno: DiskError::EIO });
            recovering.report.damage.push(Damage::Unreadable(error));
            return self.damaged(id.slot, recovering);
        };
        let dir = recovering.state.dir.clone().unwrap_or_default();
        look_at_files(log, &mut recovering, &entries, &dir);
        if !recovering.report.damage.is_empty() {
            return self.damaged(id.slot, recovering);
        }
        let snapshots = plan_scan(&mut recovering, &entries);
        let mut opens = Vec::new();
        let mut cuts = Vec::new();
        if let Some(offset) = snapshots {
            let file = self.file();
            recovering.snapshot = Some((offset, file));
            recovering.closing.push(file);
            let path = format!("{dir}/{}", file_name(offset, "snapshot"));
            opens.push(DiskKind::Open { dir: dir_id, file, path, create: false });
        }
        let mut stretches = std::mem::take(&mut recovering.stretches);
        for stretch in stretches.iter_mut().filter(|stretch| stretch.bytes > 0) {
            let file = self.file();
            stretch.file = Some(file);
            let path = format!("{dir}/{}", file_name(stretch.base, "log"));
            opens.push(DiskKind::Open { dir: dir_id, file, path, create: false });
            if stretch.open.is_some() {
                recovering.files.insert(stretch.base, file);
                // What lies behind was never declared, and its blocks will be written anew.
                cuts.push(DiskKind::Truncate { file, bytes: u64::from(stretch.bytes) });
            } else {
                recovering.closing.push(file);
            }
        }
        recovering.stretches = stretches;
        recovering.stage = Stage::Opening;
        self.put_back(id.slot, recovering);
        self.add_job(id, DiskClass::Read, vec![Step::of(opens), Step::of(cuts)], Then::RecoverOpened(id));
    }

    pub(crate) fn recover_opened(
        &mut self,
        now: Now,
        pool: &mut Pool,
        id: LogId,
        error: Option<DiskError>,
        mut got: Got,
    ) {
        let Some(log) = self.log_any_mut(id) else { return };
        log.jobs -= 1;
        let Some((_, mut recovering)) = self.recovery(id.slot) else { return };
        if let Some(error) = error {
            recovering.report.damage.push(Damage::Unreadable(error));
            return self.damaged(id.slot, recovering);
        }
        recovering.stage = Stage::Scan;
        if recovering.snapshot.is_some()
            && let Some(DiskOk::Opened { bytes }) = Store::ok(&mut got, 0)
        {
            recovering.stage = Stage::Snapshot { bytes };
        }
        self.put_back(id.slot, recovering);
        self.recover_step(now, pool, id.slot);
    }

    pub(crate) fn recover_read(
        &mut self,
        now: Now,
        pool: &mut Pool,
        id: LogId,
        error: Option<DiskError>,
        mut got: Got,
    ) {
        let Some(log) = self.log_any_mut(id) else { return };
        log.jobs -= 1;
        let limits = (self.config.limits.producers_per_log_max, self.config.limits.block_bytes);
        let Some((log, mut recovering)) = self.recovery(id.slot) else { return };
        let (Some(DiskOk::Read(read)), None) = (Store::ok(&mut got, 0), &error) else {
            recovering.report.damage.extend(error.map(Damage::Unreadable));
            return self.damaged(id.slot, recovering);
        };
        if let Stage::Snapshot { bytes } = recovering.stage {
            let rows = read.get(..bytes as usize).and_then(|bytes| snapshot::decode(bytes).ok());
            if let Some(rows) = rows {
                log.producers = ProducerState::from_rows(&rows, limits.0, now.wall);
            }
            recovering.stage = Stage::Scan;
            self.put_back(id.slot, recovering);
            return self.recover_step(now, pool, id.slot);
        }
        let Some(stretch) = recovering.stretches.front() else { return self.put_back(id.slot, recovering) };
        let (open, bytes, base) = (stretch.open, stretch.bytes, stretch.base);
        let end = open.map_or(bytes, |at| recovering.state.segments[at].end());
        let piece = &read[..read.len().min((bytes - recovering.at) as usize)];
        recovering.report.scanned_bytes += piece.len() as u64;
        let fed = feed(log, &mut recovering.scanner, piece, end, open.map(|_| base), now.wall);
        let short = piece.is_empty();
        recovering.at += piece.len() as u32;
        recovering.stage = Stage::Scan;
        if fed.is_err() || short {
            let position = u64::from(fed.err().map_or(recovering.at, |error| error.position));
            recovering.report.damage.push(rot(&recovering.state, base, position));
            return self.damaged(id.slot, recovering);
        }
        self.put_back(id.slot, recovering);
        self.recover_step(now, pool, id.slot);
    }

    /// Reads the next piece of the stretch at hand, or finishes it with what is inline.
    fn recover_scan(&mut self, now: Now, pool: &mut Pool, slot: u32, mut recovering: Box<Recovering>) {
        let Some(stretch) = recovering.stretches.front() else {
            recovering.stage = Stage::Finish;
            self.put_back(slot, recovering);
            self.stalled.insert(slot);
            return;
        };
        if let (true, Some(file)) = (recovering.at < stretch.bytes, stretch.file) {
            let block = self.block;
            let position = recovering.at;
            let left = (stretch.bytes - position).next_multiple_of(block) as usize;
            let most = (pool.left(Account::Background) / 4 / block as usize * block as usize).max(block as usize);
            let bytes = left.min(PIECE_BYTES).min(most);
            let into = pool.take(Account::Background, bytes);
            recovering.stage = if into.is_ok() { Stage::Reading } else { Stage::Scan };
            self.put_back(slot, recovering);
            let (Ok(into), Some(id)) = (into, self.slots[slot as usize].log.as_ref().map(|log| log.id)) else {
                self.starved.insert(slot);
                return;
            };
            let read = DiskKind::Read { file, position: u64::from(position), bytes: bytes as u32, into };
            self.add_job(id, DiskClass::Read, vec![Step::of(vec![read])], Then::RecoverRead(id));
            return;
        }
        if let Some(at) = stretch.open {
            let base = stretch.base;
            let block = self.block;
            let Some(log) = self.slots[slot as usize].log.as_deref_mut() else { return };
            let chunk = fill_chunk(&recovering, &recovering.state.segments[at], pool, block);
            let Ok(chunk) = chunk else {
                self.put_back(slot, recovering);
                self.starved.insert(slot);
                return;
            };
            let segment = &recovering.state.segments[at];
            let (inline, end) = (segment.inline.clone(), segment.end());
            let fed = feed(log, &mut recovering.scanner, &inline, end, Some(base), now.wall);
            let whole = recovering.scanner.carry().is_empty();
            let next = recovering.scanner.next().unwrap_or(base);
            if fed.is_err() || !whole || next != segment.next {
                recovering.report.damage.push(rot(&recovering.state, base, u64::from(recovering.scanner.position())));
                return self.damaged(slot, recovering);
            }
            let file = recovering.files.get(&base).copied();
            let active = at + 1 == recovering.state.segments.len();
            let rolled =
                (!active).then(|| Rolled { snapshot: snapshot::encode(&log.producers.rows()), sealing: false });
            if let Some(open) = log.segment_mut(base) {
                adopt(open, &recovering.state.segments[at], chunk, file);
                if rolled.is_some() {
                    open.index.seal();
                }
                open.rolled = rolled;
            }
        }
        recovering.stretches.pop_front();
        start_stretch(&mut recovering);
        recovering.stage = Stage::Scan;
        self.put_back(slot, recovering);
        self.stalled.insert(slot);
    }

    fn recover_finish(&mut self, _now: Now, _pool: &mut Pool, slot: u32, recovering: Box<Recovering>) {
        let mut recovering = recovering;
        let Some(log) = self.slots[slot as usize].log.as_deref_mut() else { return };
        let (id, partition) = (log.id, log.partition);
        log.phase = Phase::Ready;
        log.flushed = log.end();
        log.started = log.start;
        let mut report = std::mem::take(&mut recovering.report);
        report.start = log.start;
        report.end = log.end();
        report.epoch = log.epochs.latest().map_or(LeaderEpoch(-1), |entry| entry.epoch);
        self.events.push(StoreEvent::Recovered { log: id, partition, report });
        self.settle.insert(slot);
        let dir = self.config.dir;
        let closes: Vec<DiskKind> = recovering.closing.iter().map(|file| DiskKind::Close { file: *file }).collect();
        let removes = recovering.garbage.iter().map(|path| DiskKind::Remove { dir, path: path.clone() });
        let steps = vec![Step::lenient(closes), Step::lenient(removes.collect())];
        log.jobs += 1;
        log.sweeping = true;
        self.jobs.add(Job::new(DiskClass::Background, steps, Then::Swept(id)));
    }

    pub(crate) fn swept(&mut self, id: LogId) {
        let Some(log) = self.log_any_mut(id) else { return };
        log.jobs -= 1;
        log.sweeping = false;
        self.settle.insert(id.slot);
    }

    /// The log stays as the journal has it, takes nothing more, and says what is wrong.
    fn damaged(&mut self, slot: u32, recovering: Box<Recovering>) {
        let Some(log) = self.slots[slot as usize].log.as_deref_mut() else { return };
        let Recovering { state, mut report, .. } = *recovering;
        log.phase = Phase::Damaged;
        (report.start, report.end) = (state.start, state.end());
        log.kept_state = Some(Box::new(state));
        self.events.push(StoreEvent::Recovered { log: log.id, partition: log.partition, report });
    }
}

fn rot(state: &LogState, base: Offset, position: u64) -> Damage {
    let dir = state.dir.clone().unwrap_or_default();
    Damage::Rot { path: format!("{dir}/{}", file_name(base, "log")), position }
}

/// The log's shape, before any file was looked at.
fn begin(log: Option<&mut Log>, state: &LogState, limits: &Limits, now: Now) {
    let Some(log) = log else { return };
    log.dir = state.dir.clone().map_or(Dir::None, Dir::Ready);
    log.start = state.start;
    log.started = state.start;
    log.epochs = LeaderEpochs::new(limits.epochs_per_log_max);
    for (epoch, start) in &state.epochs {
        log.epochs.assign(*epoch, *start);
    }
    log.epochs.truncate_start(state.start);
    let index_bytes = log.config.segment_index_bytes;
    log.open = state.segments.iter().map(|s| OpenSegment::new(s.base, index_bytes, now.wall)).collect();
    for segment in &mut log.open {
        segment.roll_declared = true;
    }
}

/// Sorts the directory's files into sealed segments, open ones and what does not belong there.
fn look_at_files(log: &mut Log, recovering: &mut Recovering, entries: &[Entry], dir: &str) {
    let state = &recovering.state;
    let first_open = state.segments.first().map_or(Offset(0), |segment| segment.base);
    let mut bases: Vec<(Offset, u64)> = Vec::new();
    for entry in entries {
        let Some((base, extension)) = parse_file_name(&entry.name) else { continue };
        let open = state.segments.iter().any(|segment| segment.base == base);
        // A roll that an earlier life began and nobody declared leaves an empty file; what was sealed is never empty.
        let left = extension == "log" && entry.bytes == 0 && !open;
        if extension == "log" && base < first_open && !left {
            bases.push((base, entry.bytes));
        }
        let declared = base < first_open && !left || open || extension == "snapshot" && base <= state.end();
        if !declared {
            recovering.garbage.push(format!("{dir}/{}", entry.name));
        }
    }
    bases.sort_unstable();
    for (at, (base, bytes)) in bases.iter().enumerate() {
        let next = bases.get(at + 1).map_or(first_open, |(next, _)| *next);
        if next <= state.start {
            for extension in ["log", "index", "timeindex", "snapshot"] {
                recovering.garbage.push(format!("{dir}/{}", file_name(*base, extension)));
            }
            continue;
        }
        let bytes = u32::try_from(*bytes).unwrap_or(u32::MAX);
        log.sealed.insert(
            *base,
            SealedSegment {
                base: *base,
                next,
                bytes,
                file: None,
                overwritten: 0,
                max_timestamp: None,
                index: None,
                built_to: None,
                declared: true,
            },
        );
    }
    let missing = state.start < first_open && log.sealed.keys().next().is_none_or(|base| *base > state.start);
    if missing {
        let path = format!("{dir}/{}", file_name(state.start, "log"));
        let error = DiskError { operation: "open", path, errno: DiskError::ENOENT };
        recovering.report.damage.push(Damage::Unreadable(error));
    }
    for segment in state.segments.iter().filter(|segment| segment.written_to > 0) {
        let name = file_name(segment.base, "log");
        let found = entries.iter().find(|entry| entry.name == name);
        if found.is_none_or(|entry| entry.bytes < u64::from(segment.written_to)) {
            let position = found.map_or(0, |entry| entry.bytes);
            recovering.report.damage.push(Damage::Rot { path: format!("{dir}/{name}"), position });
        }
    }
}

/// What is to be read: the open segments, and sealed ones behind the newest snapshot, which is returned.
fn plan_scan(recovering: &mut Recovering, entries: &[Entry]) -> Option<Offset> {
    let state = &recovering.state;
    let first_open = state.segments.first().map_or(Offset(0), |segment| segment.base);
    let snapshots = entries.iter().filter_map(|entry| match parse_file_name(&entry.name) {
        Some((offset, "snapshot")) if offset <= first_open => Some(offset),
        _ => None,
    });
    let snapshot = snapshots.max();
    let mut sealed: Vec<(Offset, u64)> = entries
        .iter()
        .filter_map(|entry| match parse_file_name(&entry.name) {
            Some((base, "log")) if base < first_open && entry.bytes > 0 => Some((base, entry.bytes)),
            _ => None,
        })
        .collect();
    sealed.sort_unstable();
    for (at, (base, bytes)) in sealed.iter().enumerate() {
        let next = sealed.get(at + 1).map_or(first_open, |(next, _)| *next);
        // Segments end where a snapshot stands, so that one is either whole behind it or whole before.
        if next > state.start && snapshot.is_none_or(|snapshot| *base >= snapshot) {
            let bytes = u32::try_from(*bytes).unwrap_or(u32::MAX);
            recovering.stretches.push_back(Stretch { base: *base, file: None, bytes, open: None });
        }
    }
    for (at, segment) in state.segments.iter().enumerate() {
        let stretch = Stretch { base: segment.base, file: None, bytes: segment.written_to, open: Some(at) };
        recovering.stretches.push_back(stretch);
    }
    start_stretch(recovering);
    snapshot
}

fn start_stretch(recovering: &mut Recovering) {
    recovering.at = 0;
    recovering.scanner = Scanner::new(0, recovering.stretches.front().map(|stretch| stretch.base));
}

/// Batches into the producers, and into the open segment's index.
fn feed(
    log: &mut Log,
    scanner: &mut Scanner,
    bytes: &[u8],
    end: u32,
    open: Option<Offset>,
    now: WallMs,
) -> Result<(), ScanError> {
    let interval = log.config.index_interval_bytes;
    let mut segment = open.and_then(|base| log.open.iter_mut().find(|segment| segment.base == base));
    let producers = &mut log.producers;
    scanner.feed(bytes, end, &mut |header: &BatchHeader, position, _| {
        producers.apply(now, header.base, &header.info);
        if let Some(segment) = &mut segment {
            segment.note(header, position, interval);
        }
    })
}

/// The end of an open segment in memory, from the batch on that the file has only in part.
fn fill_chunk(
    recovering: &Recovering,
    segment: &SegmentState,
    pool: &mut Pool,
    block: u32,
) -> Result<Option<Chunk>, ringmain_buffer::Refused> {
    let end = segment.end();
    let carry = recovering.scanner.carry();
    let first = segment.written_to - carry.len() as u32;
    if first == end {
        return Ok(None);
    }
    let position = first / block * block;
    let data = pool.take(Account::Tail, (end - position) as usize)?;
    // The file has what is before `first`; nobody asks the chunk for it.
    let mut bytes = vec![0; (first - position) as usize];
    bytes.extend_from_slice(carry);
    bytes.extend_from_slice(&segment.inline);
    Ok(Some(Chunk::filled(position, first, &bytes, data)))
}

fn adopt(open: &mut OpenSegment, state: &SegmentState, chunk: Option<Chunk>, file: Option<FileId>) {
    open.end = state.end();
    open.next = state.next;
    open.written_to = state.written_to;
    open.writing_to = state.written_to;
    open.declared_to = open.end;
    open.chunks.extend(chunk);
    open.file = file.map_or(SegmentFile::None, SegmentFile::Ready);
    open.allocated = state.written_to;
}
