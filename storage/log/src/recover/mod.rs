//! One log's way back: what the journal declares of it, its directory, and its producers and indexes from a checkpoint and a scan of
//! what lies behind it.
//!
//! ```text
//! Begin -> List -> Opening -> Load -> Scan <-> Reading -> Sweep -> Finish
//!   ^________________________|_______|   (what was loaded, or what followed on it, did not check: without it, then)
//! ```

mod survey;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ringmain_batch::BatchHeader;
use ringmain_buffer::Pool;
use ringmain_disk::{DiskClass, DiskError, DiskKind, DiskOk, FileId};
use ringmain_types::*;

use crate::checkpoint::Written;
use crate::chunk::Chunk;
use crate::compaction::unfinished;
use crate::entry::{Checkpoint, LogState, SegmentState};
use crate::epochs::LeaderEpochs;
use crate::index::{Decides, OffsetIndex, SegmentIndex, TimeIndex};
use crate::jobs::{Job, Step, Then};
use crate::log::{Dir, Log, Phase};
use crate::producer::ProducerState;
use crate::scan::{ScanError, Scanner};
use crate::segment::{OpenSegment, Rolled, SegmentFile, file_name};
use crate::snapshot;
use crate::store::Store;
use crate::{Damage, Recovery, StoreEvent};

use survey::{look_at_files, plan_scan};

/// The most that is read at once.
const PIECE_BYTES: usize = 1 << 20;

type Got = BTreeMap<u32, Result<DiskOk, DiskError>>;

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    Begin,
    List,
    Opening,
    /// Whole files are read: the producers' snapshot, a checkpoint's indexes.
    Load,
    Loading,
    Scan,
    Reading,
    Sweep,
    Sweeping,
    Finish,
}

/// A file that is read whole.
#[derive(Debug)]
struct Load {
    what: Loaded,
    file: FileId,
    bytes: u32,
    got: Vec<u8>,
    /// A piece of it could not be read.
    unread: bool,
}

#[derive(Clone, Copy, Debug)]
enum Loaded {
    Snapshot(Offset),
    /// Of the first open segment: 0 is `.index`, 1 is `.timeindex`.
    Index(usize),
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
    /// The checkpoint did not check: it is passed over.
    distrusted: bool,
    /// Snapshots that did not.
    bad_snapshots: BTreeSet<Offset>,
    loads: VecDeque<Load>,
    indexes: [Vec<u8>; 2],
    /// The producers have what lies before it.
    producers_from: Offset,
    stretches: VecDeque<Stretch>,
    at: u32,
    /// Of the next piece, bytes that lie before where the scan begins.
    skip: u32,
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
            distrusted: false,
            bad_snapshots: BTreeSet::new(),
            loads: VecDeque::new(),
            indexes: [Vec::new(), Vec::new()],
            producers_from: Offset(0),
            stretches: VecDeque::new(),
            at: 0,
            skip: 0,
            scanner: Scanner::new(0, None),
            files: BTreeMap::new(),
            closing: Vec::new(),
            garbage: Vec::new(),
            report: Recovery::default(),
        }
    }

    /// The one that is believed until something contradicts it.
    fn checkpoint(&self) -> Option<&Checkpoint> {
        self.state.checkpoint.as_deref().filter(|_| !self.distrusted)
    }

    /// From the begin, without what did not check. The files that were opened are closed at the end.
    fn again(&mut self) {
        self.closing.extend(std::mem::take(&mut self.files).into_values());
        self.loads.clear();
        self.indexes = [Vec::new(), Vec::new()];
        self.stretches.clear();
        self.garbage.clear();
        self.stage = Stage::Begin;
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
                        recovering.stage = Stage::Load;
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
            Stage::Load => self.recover_load(now, pool, slot, recovering),
            Stage::Scan => self.recover_scan(now, pool, slot, recovering),
            Stage::Sweep => self.recover_sweep(id, recovering),
            Stage::Finish => self.recover_finish(slot, recovering),
            Stage::List | Stage::Opening | Stage::Loading | Stage::Reading | Stage::Sweeping => {
                self.put_back(slot, recovering);
            }
        }
    }

    /// Reads the next piece of the file at hand, or looks at what was read of it.
    fn recover_load(&mut self, now: Now, pool: &mut Pool, slot: u32, mut recovering: Box<Recovering>) {
        let producers_max = self.config.limits.producers_per_log_max;
        if let Some(load) = recovering.loads.front()
            && (load.got.len() as u32) < load.bytes
        {
            let (file, position) = (load.file, load.got.len() as u32);
            let left = load.bytes - position;
            return self.recover_piece(pool, slot, recovering, (file, position, left), Stage::Loading);
        }
        let Some(log) = self.slots[slot as usize].log.as_deref_mut() else { return };
        recovering.stage = Stage::Scan;
        let good = match recovering.loads.pop_front() {
            None => match restored(&recovering, log.config.segment_index_bytes) {
                Ok(None) => true,
                Ok(Some((index, checkpoint))) => {
                    if let Some(segment) = log.open.front_mut() {
                        segment.index = index;
                        segment.first_timestamp = Some(checkpoint.first_timestamp);
                        segment.index_written =
                            checkpoint.files.each_ref().map(|file| Written { bytes: file.bytes, crc: file.crc });
                    }
                    true
                }
                Err(()) => {
                    recovering.distrusted = true;
                    false
                }
            },
            Some(load) => {
                recovering.stage = Stage::Load;
                match load.what {
                    Loaded::Index(at) => {
                        recovering.indexes[at] = load.got;
                        true
                    }
                    Loaded::Snapshot(offset) => match snapshot::decode(&load.got) {
                        Ok(rows) => {
                            log.producers = ProducerState::from_rows(&rows, producers_max, now.wall);
                            true
                        }
                        Err(_) => {
                            // Those that are read were flushed when their segment was sealed, or with their checkpoint: no torn writes.
                            if !load.unread {
                                let dir = recovering.state.dir.as_deref().unwrap_or_default();
                                let path = format!("{dir}/{}", file_name(offset, "snapshot"));
                                let damage = Damage::Rot { path, position: 0 };
                                self.events.push(StoreEvent::Damaged { partition: log.partition, damage });
                            }
                            recovering.bad_snapshots.insert(offset);
                            recovering.distrusted |= recovering.checkpoint().is_some_and(|c| c.offset == offset);
                            false
                        }
                    },
                }
            }
        };
        if !good {
            recovering.again();
        } else if recovering.stage == Stage::Scan {
            start_stretch(&mut recovering, self.block);
        }
        self.put_back(slot, recovering);
        self.stalled.insert(slot);
    }

    /// Reads at most `left` bytes of a file, as many as there is memory for; `RecoverRead` follows.
    fn recover_piece(
        &mut self,
        pool: &mut Pool,
        slot: u32,
        mut recovering: Box<Recovering>,
        (file, position, left): (FileId, u32, u32),
        reading: Stage,
    ) {
        let block = self.block;
        let left = (left as usize).next_multiple_of(block as usize);
        let most = (pool.left(Account::Background) / 4 / block as usize * block as usize).max(block as usize);
        let bytes = left.min(PIECE_BYTES).min(most);
        let into = pool.take(Account::Background, bytes);
        if into.is_ok() {
            recovering.stage = reading;
        }
        self.put_back(slot, recovering);
        let (Ok(into), Some(id)) = (into, self.slots[slot as usize].log.as_ref().map(|log| log.id)) else {
            self.starved.insert(slot);
            return;
        };
        let read = DiskKind::Read { file, position: u64::from(position), bytes: bytes as u32, into };
        self.add_job(id, DiskClass::Read, vec![Step::of(vec![read])], Then::RecoverRead(id));
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
        got: Got,
    ) {
        let Some(log) = self.log_any_mut(id) else { return };
        log.jobs -= 1;
        let dir_id = self.config.dir;
        let Some((log, mut recovering)) = self.recovery(id.slot) else { return };
        let listed = got.into_values().find_map(|got| match got {
            Ok(DiskOk::Listed(entries)) => Some(entries),
            _ => None,
        });
        let Some(entries) = listed else {
            let error = error.unwrap_or(DiskError { operation: "list", path: log.name.clone(), errno: DiskError::EIO });
            recovering.report.damage.push(Damage::Unreadable(error));
            return self.damaged(id.slot, recovering);
        };
        let dir = recovering.state.dir.clone().unwrap_or_default();
        let mut steps = unfinished(dir_id, &dir, &entries);
        if !steps.is_empty() {
            // Looked at once more when that is done.
            steps.push(Step::of(vec![DiskKind::List { dir: dir_id, path: dir }]));
            self.put_back(id.slot, recovering);
            return self.add_job(id, DiskClass::Read, steps, Then::RecoverListed(id));
        }
        look_at_files(log, &mut recovering, &entries, &dir);
        if !recovering.report.damage.is_empty() {
            return self.damaged(id.slot, recovering);
        }
        plan_scan(&mut recovering, &entries);
        let (mut loads, mut opens, mut cuts) = (Vec::new(), Vec::new(), Vec::new());
        let first_open = recovering.state.segments.first().map_or(Offset(0), |segment| segment.base);
        let mut wanted = std::mem::take(&mut recovering.loads);
        for load in &mut wanted {
            load.file = self.file();
            recovering.closing.push(load.file);
            let name = match load.what {
                Loaded::Snapshot(offset) => file_name(offset, "snapshot"),
                Loaded::Index(at) => file_name(first_open, ["index", "timeindex"][at]),
            };
            let path = format!("{dir}/{name}");
            loads.push(DiskKind::Open { dir: dir_id, file: load.file, path, create: false });
        }
        recovering.loads = wanted;
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
        // What can be made anew need not be there.
        let steps = vec![Step::lenient(loads), Step::of(opens), Step::of(cuts)];
        self.add_job(id, DiskClass::Read, steps, Then::RecoverOpened(id));
    }

    pub(crate) fn recover_opened(
        &mut self,
        now: Now,
        pool: &mut Pool,
        id: LogId,
        error: Option<DiskError>,
        mut got: Got,
    ) {
        let snapshot_max = snapshot::bytes_max(self.config.limits.producers_per_log_max);
        let Some(log) = self.log_any_mut(id) else { return };
        log.jobs -= 1;
        let Some((_, mut recovering)) = self.recovery(id.slot) else { return };
        if let Some(error) = error {
            recovering.report.damage.push(Damage::Unreadable(error));
            return self.damaged(id.slot, recovering);
        }
        recovering.stage = Stage::Load;
        let checkpoint = recovering.checkpoint().is_some();
        let (mut missing, mut bad) = (false, None);
        let Recovering { loads, closing, .. } = &mut *recovering;
        for (number, load) in (0..).zip(loads) {
            let bytes = match Store::ok(&mut got, number) {
                Some(DiskOk::Opened { bytes }) => u32::try_from(bytes).unwrap_or(u32::MAX),
                _ => {
                    closing.retain(|file| *file != load.file);
                    0
                }
            };
            match load.what {
                // Read in whole, whatever it is.
                Loaded::Snapshot(_) => load.bytes = bytes.min(snapshot_max),
                Loaded::Index(_) => missing |= bytes < load.bytes,
            }
            if let (Loaded::Snapshot(offset), 0) = (load.what, bytes) {
                bad = Some(offset);
            }
        }
        if missing || bad.is_some() {
            recovering.bad_snapshots.extend(bad);
            recovering.distrusted |= checkpoint;
            recovering.again();
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
        let Some((log, mut recovering)) = self.recovery(id.slot) else { return };
        // From a compacted log only the last batches of those can be made anew who were known when it was compacted (and of a log that an
        // earlier version compacted, one each: of those before it a retry would be refused). A disk may read it another time; one that
        // reads and does not check never will, and is made anew as far as that goes.
        let load = recovering.loads.front().filter(|_| recovering.stage == Stage::Loading);
        let derived = load.is_some_and(|load| !(recovering.state.holes && matches!(load.what, Loaded::Snapshot(_))));
        let read = match (Store::ok(&mut got, 0), error) {
            (Some(DiskOk::Read(read)), None) => Some(read),
            // What can be made anew need not be readable.
            _ if derived => None,
            (_, error) => {
                recovering.report.damage.extend(error.map(Damage::Unreadable));
                return self.damaged(id.slot, recovering);
            }
        };
        let unread = read.is_none();
        let read: &[u8] = read.as_deref().unwrap_or_default();
        if recovering.stage == Stage::Loading {
            recovering.stage = Stage::Load;
            if let Some(load) = recovering.loads.front_mut() {
                load.unread |= unread;
                let more = read.len().min(load.bytes as usize - load.got.len());
                load.got.extend_from_slice(&read[..more]);
                // A file that got shorter than it was is looked at as it is, and does not check.
                if more == 0 {
                    load.bytes = load.got.len() as u32;
                }
            }
            self.put_back(id.slot, recovering);
            return self.recover_step(now, pool, id.slot);
        }
        let Some(stretch) = recovering.stretches.front() else { return self.put_back(id.slot, recovering) };
        let (bytes, base) = (stretch.bytes, stretch.base);
        let piece = &read[..read.len().min((bytes - recovering.at) as usize)];
        recovering.report.scanned_bytes += piece.len() as u64;
        let short = piece.is_empty();
        recovering.at += piece.len() as u32;
        let skip = (recovering.skip as usize).min(piece.len());
        recovering.skip -= skip as u32;
        let fed = feed(log, &mut recovering, &piece[skip..], now.wall);
        recovering.stage = Stage::Scan;
        if fed.is_err() || short {
            let position = fed.err().map_or(recovering.at, |error| error.position);
            return self.scan_failed(id.slot, recovering, (base, position));
        }
        self.put_back(id.slot, recovering);
        self.recover_step(now, pool, id.slot);
    }

    /// Behind a checkpoint a scan that fails may be the checkpoint's fault: all of it is scanned then.
    fn scan_failed(&mut self, slot: u32, mut recovering: Box<Recovering>, (base, position): (Offset, u32)) {
        if recovering.checkpoint().is_some() {
            recovering.distrusted = true;
            recovering.again();
            self.put_back(slot, recovering);
            self.stalled.insert(slot);
            return;
        }
        recovering.report.damage.push(rot(&recovering.state, base, u64::from(position)));
        self.damaged(slot, recovering);
    }

    /// Reads the next piece of the stretch at hand, or finishes it with what is inline.
    fn recover_scan(&mut self, now: Now, pool: &mut Pool, slot: u32, mut recovering: Box<Recovering>) {
        let Some(stretch) = recovering.stretches.front() else {
            recovering.stage = if recovering.garbage.is_empty() { Stage::Finish } else { Stage::Sweep };
            self.put_back(slot, recovering);
            self.stalled.insert(slot);
            return;
        };
        if let (true, Some(file)) = (recovering.at < stretch.bytes, stretch.file) {
            let (position, left) = (recovering.at, stretch.bytes - recovering.at);
            return self.recover_piece(pool, slot, recovering, (file, position, left), Stage::Reading);
        }
        // A sealed segment ends where the next one begins.
        let (base, next) = (stretch.base, recovering.stretches.get(1).map(|stretch| stretch.base));
        let scanner = &recovering.scanner;
        if stretch.open.is_none() && (!scanner.carry().is_empty() || scanner.next() != next) {
            let position = scanner.position();
            return self.scan_failed(slot, recovering, (base, position));
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
            let (inline, segment_next) = (segment.inline.clone(), segment.next);
            let fed = feed(log, &mut recovering, &inline, now.wall);
            let whole = recovering.scanner.carry().is_empty();
            let none = recovering.checkpoint().map_or(base, |checkpoint| checkpoint.offset);
            let next = recovering.scanner.next().unwrap_or(if at == 0 { none } else { base });
            if fed.is_err() || !whole || next != segment_next {
                let position = recovering.scanner.position();
                return self.scan_failed(slot, recovering, (base, position));
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
        start_stretch(&mut recovering, self.block);
        recovering.stage = Stage::Scan;
        self.put_back(slot, recovering);
        self.stalled.insert(slot);
    }

    /// What nobody declared is durably gone before the log declares anything more: a file of a roll that no group told of must never
    /// come to lie among sealed segments, whatever it holds.
    fn recover_sweep(&mut self, id: LogId, mut recovering: Box<Recovering>) {
        let dir = self.config.dir;
        let path = recovering.state.dir.clone().unwrap_or_default();
        let removes = recovering.garbage.drain(..).map(|path| DiskKind::Remove { dir, path }).collect();
        recovering.stage = Stage::Sweeping;
        self.put_back(id.slot, recovering);
        let steps = vec![Step::lenient(removes), Step::of(vec![DiskKind::SyncDir { dir, path }])];
        self.add_job(id, DiskClass::Read, steps, Then::Swept(id));
    }

    pub(crate) fn swept(&mut self, id: LogId, error: Option<DiskError>, got: Got) {
        let Some(log) = self.log_any_mut(id) else { return };
        log.jobs -= 1;
        let kept = got.into_values().filter_map(Result::err).find(|error| !error.missing());
        if let Some(error) = error.or(kept) {
            return self.fence(error);
        }
        let Some((_, mut recovering)) = self.recovery(id.slot) else { return };
        recovering.stage = Stage::Finish;
        self.put_back(id.slot, recovering);
        self.stalled.insert(id.slot);
    }

    fn recover_finish(&mut self, slot: u32, mut recovering: Box<Recovering>) {
        let Some(log) = self.slots[slot as usize].log.as_deref_mut() else { return };
        let (id, partition) = (log.id, log.partition);
        log.phase = Phase::Ready;
        log.flushed = log.end();
        log.started = log.start;
        let told = recovering.state.checkpoint.take();
        log.disbelieved = told.is_some() && recovering.distrusted;
        log.pending.state |= log.disbelieved;
        log.checkpoint = told.filter(|_| !recovering.distrusted);
        let mut report = std::mem::take(&mut recovering.report);
        report.start = log.start;
        report.end = log.end();
        report.epoch = log.epochs.latest().map_or(LeaderEpoch(-1), |entry| entry.epoch);
        self.events.push(StoreEvent::Recovered { log: id, partition, report });
        self.settle.insert(slot);
        self.dirty.insert(slot);
        let closes = recovering.closing.iter().map(|file| DiskKind::Close { file: *file }).collect();
        self.jobs.add(Job::new(DiskClass::Background, vec![Step::lenient(closes)], Then::Nothing));
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
    (log.compaction.holes, log.compaction.holes_declared) = (state.holes, state.holes);
    log.epochs = LeaderEpochs::new(limits.epochs_per_log_max);
    for (epoch, start) in &state.epochs {
        log.epochs.assign(*epoch, *start);
    }
    log.epochs.truncate_start(state.start);
    log.producers = ProducerState::new(limits.producers_per_log_max);
    log.sealed.clear();
    let index_bytes = log.config.segment_index_bytes;
    log.open = state.segments.iter().map(|s| OpenSegment::new(s.base, index_bytes, now.wall)).collect();
    for segment in &mut log.open {
        segment.roll_declared = true;
    }
}

/// The index of the first open segment as it stood at the checkpoint; none without one. An error when it does not check.
fn restored(recovering: &Recovering, index_bytes: u32) -> Result<Option<(SegmentIndex, Checkpoint)>, ()> {
    let Some(checkpoint) = recovering.checkpoint() else { return Ok(None) };
    let mut whole = [Vec::new(), Vec::new()];
    for ((file, got), whole) in checkpoint.files.iter().zip(&recovering.indexes).zip(&mut whole) {
        if got.len() != file.bytes as usize || crc32c::crc32c(got) != file.crc {
            return Err(());
        }
        *whole = [&got[..], &file.rest[..]].concat();
    }
    let [offsets, times] = whole;
    let offsets = OffsetIndex::decode(checkpoint.base, checkpoint.position, &offsets).map_err(|_| ())?;
    let times = TimeIndex::decode(checkpoint.base, checkpoint.offset, &times).map_err(|_| ())?;
    let decides = Decides { bytes_since_entry: checkpoint.since_entry, max: checkpoint.max };
    Ok(Some((SegmentIndex::restore(offsets, times, decides, index_bytes), checkpoint.clone())))
}

fn start_stretch(recovering: &mut Recovering, block: u32) {
    let Some(stretch) = recovering.stretches.front() else { return };
    let from = recovering.checkpoint().filter(|_| stretch.open == Some(0)).map(|checkpoint| checkpoint.from);
    let at = from.unwrap_or(0);
    // Where the batch begins is known, not with which offset.
    let scanner = Scanner::new(at, if from.is_some() && at > 0 { None } else { Some(stretch.base) })
        .with_holes(recovering.state.holes && stretch.open.is_none());
    (recovering.at, recovering.skip) = (at / block * block, at % block);
    recovering.scanner = scanner;
}

/// More of the stretch at hand: batches into the producers, and into the open segment's index, each unless it has them.
fn feed(log: &mut Log, recovering: &mut Recovering, bytes: &[u8], now: WallMs) -> Result<(), ScanError> {
    let interval = log.config.index_interval_bytes;
    let Some(stretch) = recovering.stretches.front() else { return Ok(()) };
    let end = stretch.open.map_or(stretch.bytes, |at| recovering.state.segments[at].end());
    let (open, base, from) = (stretch.open, stretch.base, recovering.producers_from);
    let checked = recovering.checkpoint().filter(|_| open == Some(0)).map(|c| (c.position, c.offset));
    let mut segment = open.and_then(|_| log.open.iter_mut().find(|segment| segment.base == base));
    let producers = &mut log.producers;
    let mut joins = Ok(());
    let fed = recovering.scanner.feed(bytes, end, &mut |header: &BatchHeader, position, batch| {
        if header.base >= from {
            producers.apply(now, header.base, &header.info);
        }
        let before = checked.is_some_and(|(to, _)| position < to);
        let joined = checked.is_none_or(|(to, offset)| {
            let within = position + batch.len() as u32 <= to && header.next() <= offset;
            if before { within } else { header.base >= offset && (position > to || header.base == offset) }
        });
        if !joined {
            joins = Err(ScanError { position, what: "a checkpoint that does not join" });
        }
        if let Some(segment) = segment.as_mut().filter(|_| !before) {
            segment.note(header, position, interval);
        }
    });
    fed.and(joins)
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
    (open.declared_to, open.declared_next) = (open.end, open.next);
    open.chunks.extend(chunk);
    open.file = file.map_or(SegmentFile::None, SegmentFile::Ready);
    open.allocated = state.written_to;
}
