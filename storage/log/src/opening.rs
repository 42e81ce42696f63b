//! The store's first state: the journal is made or read, and what its newest group left unsure is settled.
//!
//! ```text
//! MakeDir -> Open -> (missing) Make -> Flush -> Rename -> Sync -> Opened
//!                 -> Super -> Survey -> Fold -> Verify -> Flush, or a group when there is something to say -> Opened
//!                                       ^ torn: without the newest group, from its predecessor's horizon
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ringmain_buffer::{BufMut, Pool};
use ringmain_disk::{DiskClass, DiskError, DiskKind, DiskOk, DiskOp, DiskToken, FileId};
use ringmain_types::*;

use crate::commit::{Draft, put_state, state_bytes};
use crate::entry::{ENTRY_BYTES, Entry, LogState};
use crate::fold::{Check, Fold};
use crate::journal::{GroupHeader, HEADER_BYTES, Journal, NEWER_FORMAT, Needs, Super, TRAILER_BYTES, checked_entries};
use crate::room::{Rank, unopened_bytes};
use crate::scan::Scanner;
use crate::segment::file_name;
use crate::store::{Doing, Store};
use crate::{StoreConfig, StoreEvent};

/// The most that is read at once.
const PIECE_BYTES: u64 = 1 << 20;

#[derive(Clone, Copy, Debug)]
struct Candidate {
    header: GroupHeader,
    at: u64,
}

enum Stage {
    MakeDir,
    Open,
    /// Zeroes are written from here on.
    Make {
        file: FileId,
        at: u64,
        found: Super,
    },
    MakeFlush {
        file: FileId,
        found: Super,
    },
    MakeRename {
        file: FileId,
        found: Super,
    },
    MakeSync {
        file: FileId,
        found: Super,
        left: u32,
    },
    /// The life that made it may have been killed before its name was durable.
    NameSync {
        bytes: u64,
        left: u32,
    },
    Super {
        bytes: u64,
    },
    Survey {
        at: u64,
    },
    Fold {
        next: u64,
    },
    Verify,
    VerifyOpen {
        file: FileId,
    },
    VerifyRead {
        file: FileId,
        at: u32,
    },
    /// Nothing was torn: what the newest groups tell of is made durable, if it was not.
    Flush,
    Resume,
    Failed,
}

pub(crate) struct Opening {
    stage: Stage,
    /// An operation is out.
    waiting: bool,
    file: FileId,
    /// States of another generation's journal: the new one begins with them.
    seed: Vec<LogState>,
    found: Option<Super>,
    /// By sequence; of one sequence the youngest life's.
    candidates: BTreeMap<u64, Candidate>,
    fold: Fold,
    /// In the ring: where the last group that was folded ends.
    folded_to: Option<u64>,
    /// The newest group that is whole.
    newest: u64,
    /// The newest group that is known to be flushed, by a younger one's header: that needs no proof.
    flushed: u64,
    /// The newest group says something, and was proved whole by this start alone.
    unconfirmed: bool,
    life: u32,
    checks: VecDeque<Check>,
    check: Option<(Check, Verifying)>,
    dropped: BTreeSet<Partition>,
    /// Files whose blocks the newest group told of: flushed once more.
    touched: Vec<FileId>,
}

/// How far one extent was compared.
struct Verifying {
    /// Compared with what was inline before.
    before_at: usize,
    scanner: Scanner,
    headers_crc: u32,
    good: bool,
}

impl Opening {
    fn new(file: FileId, seed: Vec<LogState>) -> Opening {
        Opening {
            stage: Stage::MakeDir,
            waiting: true,
            file,
            seed,
            found: None,
            candidates: BTreeMap::new(),
            fold: Fold::default(),
            folded_to: None,
            newest: 0,
            flushed: 0,
            unconfirmed: false,
            life: 0,
            checks: VecDeque::new(),
            check: None,
            dropped: BTreeSet::new(),
            touched: Vec::new(),
        }
    }
}

impl Store {
    /// Reads the shard's journal, or makes it when it is missing; `Opened` follows, or `Fenced` with what was wrong.
    pub fn open(config: StoreConfig, out: &mut Vec<DiskOp>) -> Store {
        Store::open_with(config, Vec::new(), out)
    }

    /// As `open`, for a new generation: `states` are what `export` of the stores of the old one gave for the logs that are now
    /// this shard's. The journal must not exist; a half-made one of a crash in between is made anew.
    pub fn open_with(config: StoreConfig, states: Vec<LogState>, out: &mut Vec<DiskOp>) -> Store {
        let mut store = Store::empty(config);
        let file = store.file();
        let (dir, path) = (store.config.dir, store.journal_dir());
        store.opening = Some(Box::new(Opening::new(file, states)));
        store.operate(DiskClass::Commit, DiskKind::MakeDir { dir, path }, Doing::Opening);
        store.take_queue(out);
        store
    }

    pub(crate) fn journal_dir(&self) -> String {
        format!("journal-{}", self.config.journal_generation)
    }
    pub(crate) fn journal_path(&self) -> String {
        format!("{}/{}.journal", self.journal_dir(), self.config.shard.0)
    }

    pub(crate) fn opening_done(
        &mut self,
        now: Now,
        pool: &mut Pool,
        _token: DiskToken,
        result: Result<DiskOk, DiskError>,
    ) {
        let Some(mut opening) = self.opening.take() else { return };
        opening.waiting = false;
        if let Err(error) = self.opening_result(&mut opening, result) {
            opening.stage = Stage::Failed;
            self.fence(error);
        }
        self.opening = Some(opening);
        self.opening_step(now, pool);
    }

    /// Takes the next step when none is under way; called again when memory was short.
    pub(crate) fn opening_step(&mut self, _now: Now, pool: &mut Pool) {
        let Some(mut opening) = self.opening.take() else { return };
        while !opening.waiting && !matches!(opening.stage, Stage::Failed) {
            if matches!(opening.stage, Stage::Resume) {
                return self.opened(*opening, pool);
            }
            match self.opening_next(&mut opening, pool) {
                Ok(true) => {}
                // No memory now.
                Ok(false) => break,
                Err(error) => {
                    opening.stage = Stage::Failed;
                    self.fence(error);
                }
            }
        }
        self.opening = Some(opening);
    }

    pub(crate) fn opening_waits(&self) -> bool {
        self.opening.as_ref().is_some_and(|opening| !opening.waiting && !matches!(opening.stage, Stage::Failed))
    }

    fn journal_error(&self, what: &str) -> DiskError {
        DiskError {
            operation: "read journal",
            path: format!("{} ({what})", self.journal_path()),
            errno: if what == NEWER_FORMAT { DiskError::NEWER } else { DiskError::DAMAGED },
        }
    }

    /// What the operation that is back means.
    fn opening_result(&mut self, opening: &mut Opening, result: Result<DiskOk, DiskError>) -> Result<(), DiskError> {
        let stage = std::mem::replace(&mut opening.stage, Stage::Failed);
        opening.stage = match (stage, result) {
            (Stage::MakeDir, Ok(_)) => Stage::Open,
            (Stage::Open, Ok(DiskOk::Opened { .. })) if !opening.seed.is_empty() => {
                return Err(self.journal_error("it exists, though its logs come from another generation"));
            }
            (Stage::Open, Ok(DiskOk::Opened { bytes })) => Stage::NameSync { bytes, left: 2 },
            (Stage::NameSync { bytes, left: ..2 }, Ok(_)) => Stage::Super { bytes },
            (Stage::NameSync { bytes, left }, Ok(_)) => Stage::NameSync { bytes, left: left - 1 },
            (Stage::Open, Err(error)) if error.missing() && !self.config.journal_exists => {
                let found = self.new_super(&opening.seed);
                let (dir, path) = (self.config.dir, format!("{}.new", self.journal_path()));
                let file = opening.file;
                let open = DiskKind::Open { dir, file, path, create: true };
                self.operate(DiskClass::Commit, open, Doing::Opening);
                opening.waiting = true;
                Stage::Make { file, at: 0, found }
            }
            (Stage::Make { file, at, found }, Ok(_)) => Stage::Make { file, at, found },
            (Stage::MakeFlush { file, found }, Ok(_)) => Stage::MakeFlush { file, found },
            (Stage::MakeRename { file, found }, Ok(_)) => Stage::MakeRename { file, found },
            (Stage::MakeSync { file, found, left }, Ok(_)) => Stage::MakeSync { file, found, left: left - 1 },
            (Stage::Super { bytes }, Ok(DiskOk::Read(read))) => {
                let found = Super::decode(&read).map_err(|what| self.journal_error(what))?;
                let whole = found.ring_bytes + u64::from(found.block_bytes);
                if found.shard != self.config.shard || found.generation != self.config.journal_generation {
                    return Err(self.journal_error("it is another shard's or generation's"));
                }
                if found.block_bytes != self.block || bytes < whole {
                    return Err(self.journal_error("its size or its block is not what it was made with"));
                }
                opening.found = Some(found);
                Stage::Survey { at: 0 }
            }
            (Stage::Survey { at }, Ok(DiskOk::Read(read))) => survey(opening, at, &read),
            (Stage::Fold { next }, Ok(DiskOk::Read(read))) => self.fold_piece(opening, next, &read)?,
            (Stage::VerifyOpen { file }, Ok(_)) => {
                let from = opening.check.as_ref().map_or(0, |(check, _)| check.extent_from);
                Stage::VerifyRead { file, at: from }
            }
            (Stage::VerifyRead { file, at }, Ok(DiskOk::Read(read))) => verify_piece(opening, file, at, &read),
            (Stage::Flush, Ok(_)) => {
                // Durable now, but on the disk no younger group says so.
                let newest = opening.candidates.get(&opening.newest);
                opening.unconfirmed =
                    newest.is_some_and(|group| group.header.entries > 0 && opening.newest > opening.flushed);
                opening.flushed = opening.newest;
                Stage::Resume
            }
            (_, Err(error)) => return Err(error),
            (_, Ok(_)) => return Err(self.journal_error("an answer that was not asked for")),
        };
        Ok(())
    }

    /// Sends the next operation; false when there is no memory for it.
    fn opening_next(&mut self, opening: &mut Opening, pool: &mut Pool) -> Result<bool, DiskError> {
        let (dir, block, file) = (self.config.dir, u64::from(self.block), opening.file);
        let ring = opening.found.map_or(0, |found| found.ring_bytes);
        let kind = match &mut opening.stage {
            Stage::Open => Some(DiskKind::Open { dir, file, path: self.journal_path(), create: false }),
            Stage::Make { .. } => self.make_next(opening, pool),
            Stage::MakeFlush { file, found } => {
                let (from, to) = (format!("{}.new", self.journal_path()), self.journal_path());
                opening.stage = Stage::MakeRename { file: *file, found: *found };
                Some(DiskKind::Rename { dir, from, to })
            }
            Stage::MakeRename { file, found } => {
                opening.stage = Stage::MakeSync { file: *file, found: *found, left: 2 };
                Some(DiskKind::SyncDir { dir, path: self.journal_dir() })
            }
            Stage::MakeSync { left: 1, .. } => Some(DiskKind::SyncDir { dir, path: String::new() }),
            Stage::MakeSync { found, .. } => {
                opening.found = Some(*found);
                opening.stage = Stage::Resume;
                return Ok(true);
            }
            Stage::NameSync { left: 2, .. } => Some(DiskKind::SyncDir { dir, path: self.journal_dir() }),
            Stage::NameSync { .. } => Some(DiskKind::SyncDir { dir, path: String::new() }),
            Stage::Super { .. } => read(pool, file, 0, block),
            Stage::Survey { at } => {
                let bytes = (ring - *at).min(piece_bytes(pool, block));
                read(pool, file, block + *at, bytes)
            }
            Stage::Fold { next } => {
                let Some(candidate) = opening.candidates.get(next) else {
                    return Err(self.journal_error(&format!("group {next} is missing")));
                };
                let group = u64::from(candidate.header.bytes).next_multiple_of(block);
                let bytes = group.max(piece_bytes(pool, block)).min(ring - candidate.at);
                let position = block + candidate.at;
                read(pool, file, position, bytes).or_else(|| read(pool, file, position, group))
            }
            Stage::Verify => return self.verify_next(opening),
            Stage::VerifyRead { file, at } => {
                let Some((check, _)) = &opening.check else { return Err(self.journal_error("nothing to verify")) };
                let bytes = u64::from(check.written_to - *at).min(piece_bytes(pool, block));
                read(pool, *file, u64::from(*at), bytes)
            }
            Stage::Flush => {
                let files = [file].iter().chain(&opening.touched).copied().collect();
                Some(DiskKind::Flush { dir, files, after: Vec::new() })
            }
            Stage::MakeDir | Stage::VerifyOpen { .. } | Stage::Resume | Stage::Failed => {
                return Err(self.journal_error("a step out of order"));
            }
        };
        let Some(kind) = kind else { return Ok(false) };
        self.operate(DiskClass::Commit, kind, Doing::Opening);
        opening.waiting = true;
        Ok(true)
    }

    /// The next piece of a new journal: the superblock, and zeroes. None when there is no memory for it.
    fn make_next(&self, opening: &mut Opening, pool: &mut Pool) -> Option<DiskKind> {
        let (dir, block) = (self.config.dir, u64::from(self.block));
        let Stage::Make { file, at, found } = &mut opening.stage else { return None };
        let (file, found, position) = (*file, *found, *at);
        let whole = found.ring_bytes + block;
        if position == whole {
            opening.stage = Stage::MakeFlush { file, found };
            return Some(DiskKind::Flush { dir, files: vec![file], after: Vec::new() });
        }
        let bytes = (whole - position).min(PIECE_BYTES.min(64 * block));
        let mut zeroes = pool.take(Account::Background, bytes as usize).ok()?;
        if position == 0 {
            zeroes.extend(&found.encode());
        }
        let left = bytes as usize - zeroes.len();
        zeroes.extend_zeroes(left);
        *at += bytes;
        Some(DiskKind::Write { file, position, data: vec![zeroes.freeze()] })
    }

    /// `seed`: what the ring must hold from its begin on; it is made larger than asked when it needs that, all of it or the largest alone, which
    /// must fit a group, an eighth of the ring, with what is told beside it.
    fn new_super(&self, seed: &[LogState]) -> Super {
        let config = &self.config;
        let held: u64 = seed.iter().map(|state| state_bytes(state) as u64).sum();
        let largest = seed.iter().map(unopened_bytes).max().unwrap_or(0);
        // Not a secret, only unlike any other file's: the seed is the node's, made when the directory was.
        let mut nonce = config.seed ^ config.journal_generation.rotate_left(32) ^ u64::from(config.shard.0);
        for _ in 0..3 {
            nonce = (nonce ^ (nonce >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        let block = u64::from(self.block);
        let group = largest + (HEADER_BYTES + TRAILER_BYTES) as u64 + block;
        let least = (held * 4).max(if seed.is_empty() { 0 } else { group * 8 });
        Super {
            shard: config.shard,
            generation: config.journal_generation,
            nonce,
            block_bytes: self.block,
            ring_bytes: (config.limits.journal_bytes - block).max(least.next_multiple_of(block)),
        }
    }

    /// As many groups as the piece has whole.
    fn fold_piece(&mut self, opening: &mut Opening, mut next: u64, piece: &[u8]) -> Result<Stage, DiskError> {
        let from = opening.candidates.get(&next).map_or(0, |candidate| candidate.at);
        let begin = next;
        while let Some(candidate) = opening.candidates.get(&next).copied() {
            let (bytes, at) = (candidate.header.bytes as usize, candidate.at.wrapping_sub(from) as usize);
            let Some(group) = piece.get(at..).and_then(|rest| rest.get(..bytes)) else { break };
            match checked_entries(group) {
                Some(entries) => {
                    let GroupHeader { entries: count, flushed, .. } = candidate.header;
                    let folded = opening.fold.group(next, entries, count, flushed);
                    folded.map_err(|what| self.journal_error(&format!("group {next}: {}", what.0)))?;
                    self.in_its_place(opening, next, candidate)?;
                }
                // Nobody was told of it: it was torn by the end of the last life.
                None if next > opening.flushed => return self.discard(opening, next),
                None => {
                    let position = candidate.at + u64::from(self.block);
                    return Err(self.journal_error(&format!("rot in group {next} at {position}")));
                }
            }
            next += 1;
        }
        if opening.candidates.contains_key(&next) {
            if next == begin {
                return Err(self.journal_error(&format!("group {next} is cut off")));
            }
            return Ok(Stage::Fold { next });
        }
        if next <= opening.flushed {
            return Err(self.journal_error(&format!("group {next} is missing")));
        }
        opening.newest = next - 1;
        opening.fold.sure(opening.flushed);
        opening.checks = opening.fold.checks.clone().into();
        Ok(Stage::Verify)
    }

    /// A group stands behind the one before, or at the ring's begin when it did not fit there. Whole and elsewhere, it was led astray by the
    /// disk, and took the place of something.
    fn in_its_place(&self, opening: &mut Opening, number: u64, group: Candidate) -> Result<(), DiskError> {
        let bytes = u64::from(group.header.bytes).next_multiple_of(u64::from(self.block));
        let ring_bytes = opening.found.map_or(0, |found| found.ring_bytes);
        let fits = |end: u64| end + bytes <= ring_bytes;
        let before = opening.folded_to.replace(group.at + bytes);
        match before {
            // Which of the two is wrong nobody knows.
            Some(end) if group.at != if fits(end) { end } else { 0 } => {
                let (found, end) = (group.at + u64::from(self.block), end + u64::from(self.block));
                Err(self.journal_error(&format!("group {number} stands at {found}, the one before ends at {end}")))
            }
            _ => Ok(()),
        }
    }

    /// Groups from `torn` on were never there. What is left is folded anew, from where *its* newest group needs it: a younger horizon
    /// says what is needed once that younger group counts.
    fn discard(&self, opening: &mut Opening, torn: u64) -> Result<Stage, DiskError> {
        opening.candidates.split_off(&torn);
        drop_stale(&mut opening.candidates);
        (opening.fold, opening.folded_to) = (Fold::default(), None);
        let newest = opening.candidates.last_key_value();
        if newest.map_or(0, |(sequence, _)| *sequence) < opening.flushed {
            return Err(self.journal_error(&format!("group {} is missing", opening.flushed)));
        }
        Ok(newest.map_or(Stage::Resume, |(_, newest)| Stage::Fold { next: newest.header.horizon.max(1) }))
    }

    /// The next extent of the newest group, or on when there is none.
    fn verify_next(&mut self, opening: &mut Opening) -> Result<bool, DiskError> {
        if let Some((check, verifying)) = opening.check.take()
            && !verifying.good
        {
            opening.dropped.insert(check.partition);
        }
        let Some(check) = opening.checks.pop_front() else {
            if !opening.dropped.is_empty() && self.cramped(opening) {
                opening.dropped.clear();
                opening.stage = self.discard(opening, opening.newest)?;
                return Ok(true);
            }
            opening.fold.revert(&opening.dropped);
            opening.stage =
                if !opening.dropped.is_empty() || opening.newest == 0 { Stage::Resume } else { Stage::Flush };
            return Ok(true);
        };
        let state = opening.fold.states.get(&check.partition);
        let Some(dir) = state.and_then(|state| state.dir.clone()) else {
            return Err(self.journal_error("blocks of a log without a directory"));
        };
        let file = self.file();
        let path = format!("{dir}/{}", file_name(check.base, "log"));
        let open = DiskKind::Open { dir: self.config.dir, file, path, create: false };
        self.operate(DiskClass::Commit, open, Doing::Opening);
        let scanner = Scanner::new(check.declared_from, Some(check.from));
        opening.check = Some((check, Verifying { before_at: 0, scanner, headers_crc: 0, good: true }));
        opening.touched.push(file);
        opening.stage = Stage::VerifyOpen { file };
        opening.waiting = true;
        Ok(true)
    }

    /// There is no room for a group that says what was torn: no place, or what it takes back was said again behind it, so that more
    /// would be live than may be (`room.rs`). The group before, whose blocks they were, was never flushed whole: then all of it was
    /// never there.
    fn cramped(&self, opening: &Opening) -> bool {
        let Some(found) = opening.found else { return false };
        let bytes = HEADER_BYTES + TRAILER_BYTES + opening.dropped.len() * ENTRY_BYTES;
        let ring = ring_of(opening, &found);
        let padded = (bytes as u64).next_multiple_of(ring.block);
        let removing: usize = opening.fold.removing.keys().map(|dir| ENTRY_BYTES + dir.len()).sum();
        let states: u64 = opening.fold.states.values().map(unopened_bytes).sum();
        let live = states + opening.fold.taken_back_bytes(&opening.dropped) + removing as u64;
        ring.place(padded).is_none() || ring.measure(padded, live) > ring.measure_max(Rank::Metadata)
    }

    /// The first group of this life, if there is something to say: it takes back what was torn, and its flush makes sure of the rest.
    /// Otherwise a start takes nothing of the ring, however often it is repeated.
    fn opened(&mut self, opening: Opening, pool: &mut Pool) {
        let Some(found) = opening.found else { return };
        let mut ring = ring_of(&opening, &found);
        for (partition, since) in &opening.fold.since {
            let bytes = opening.fold.states.get(partition).map_or(0, unopened_bytes);
            ring.need(*since, Needs::Unopened(*partition), bytes);
        }
        for (dir, since) in &opening.fold.removing {
            ring.need(*since, Needs::Removing(dir.clone()), (ENTRY_BYTES + dir.len()) as u64);
        }
        self.told_news = ring.sequence_next;
        self.unconfirmed = opening.unconfirmed;
        self.journal = Some(ring);
        let since = opening.fold.since;
        let states = opening.fold.states.into_iter();
        self.unopened =
            states.filter_map(|(partition, state)| Some((partition, (state, *since.get(&partition)?)))).collect();
        self.removing = opening.fold.removing;
        let silent = opening.dropped.is_empty() && opening.seed.is_empty();
        self.resume = Some(Resume {
            drops: opening.dropped.into_iter().collect(),
            touched: opening.touched,
            seed: opening.seed.into(),
        });
        if silent {
            let touched = self.resume.as_mut().map(|resume| std::mem::take(&mut resume.touched)).unwrap_or_default();
            return self.resumed(touched, pool);
        }
        self.resume_group(pool);
    }

    /// Sends the next group of the beginning; `Opened` when the last is back.
    pub(crate) fn resume_group(&mut self, pool: &mut Pool) {
        let Some(mut resume) = self.resume.take() else { return };
        let mut draft = Draft::new(self.ring().group_bytes_max());
        for partition in resume.drops.drain(..) {
            draft.put(&Entry::Drop { partition });
        }
        while let Some(state) = resume.seed.front() {
            if !draft.fits(state_bytes(state)) && !draft.is_empty() {
                break;
            }
            put_state(&mut draft, state);
            if let Some(state) = resume.seed.pop_front() {
                draft.tell_unopened(state.partition);
                self.unopened.insert(state.partition, (state, 0));
            }
        }
        draft.resume(std::mem::take(&mut resume.touched));
        self.resume = Some(resume);
        self.send(draft, pool);
    }

    pub(crate) fn resumed(&mut self, flushed: Vec<FileId>, pool: &mut Pool) {
        self.ring_mut().floor = None;
        for file in flushed {
            self.operate(DiskClass::Background, DiskKind::Close { file }, Doing::Ignored);
        }
        if self.resume.as_ref().is_some_and(|resume| !resume.seed.is_empty()) {
            return self.resume_group(pool);
        }
        self.resume = None;
        let removing: Vec<String> = self.removing.keys().cloned().collect();
        for name in removing {
            self.resume_removal(name);
        }
        self.sweep_spares();
        self.events.push(StoreEvent::Opened);
    }
}

/// With the groups that are needed, as long as the newest one is not known to be flushed.
fn ring_of(opening: &Opening, found: &Super) -> Journal {
    let mut ring = Journal::new(opening.file, found, opening.life + 1);
    let horizon = opening.candidates.get(&opening.newest).map_or(1, |candidate| candidate.header.horizon);
    // None when the very first group was torn.
    for (sequence, candidate) in opening.candidates.range(horizon..horizon.max(opening.newest + 1)) {
        let bytes = u64::from(candidate.header.bytes).next_multiple_of(ring.block);
        ring.sequence_next = *sequence;
        ring.push(candidate.at, bytes);
    }
    ring.sequence_next = opening.newest + 1;
    ring.flushed = opening.flushed;
    // Until this life's first group is flushed, what the newest group needs is needed.
    ring.floor = Some(horizon);
    ring
}

/// For removals that no log of this life asked for.
pub(crate) const NO_LOG: LogId = LogId { slot: u32::MAX, generation: 0 };

/// What is left of opening once the journal is known.
#[derive(Debug)]
pub(crate) struct Resume {
    drops: Vec<Partition>,
    touched: Vec<FileId>,
    seed: VecDeque<LogState>,
}

fn piece_bytes(pool: &Pool, block: u64) -> u64 {
    let left = pool.left(Account::Background) as u64 / 2;
    PIECE_BYTES.min(left / block * block).max(block)
}

fn read(pool: &mut Pool, file: FileId, position: u64, bytes: u64) -> Option<DiskKind> {
    let into: BufMut = pool.take(Account::Background, bytes as usize).ok()?;
    Some(DiskKind::Read { file, position, bytes: bytes as u32, into })
}

/// Notes the headers of a piece of the ring that begins at `at`.
fn survey(opening: &mut Opening, at: u64, piece: &[u8]) -> Stage {
    let Some(found) = opening.found else { return Stage::Failed };
    let block = found.block_bytes as usize;
    for (number, bytes) in piece.chunks(block).enumerate() {
        let Some(header) = GroupHeader::decode(bytes, found.nonce) else { continue };
        let at = at + (number * block) as u64;
        if at + u64::from(header.bytes) > found.ring_bytes || header.bytes < HEADER_BYTES as u32 {
            continue;
        }
        opening.life = opening.life.max(header.life);
        let known = opening.candidates.get(&header.sequence);
        if known.is_none_or(|known| known.header.life < header.life) {
            opening.candidates.insert(header.sequence, Candidate { header, at });
        }
    }
    let at = at + piece.len() as u64;
    if at < found.ring_bytes && !piece.is_empty() {
        return Stage::Survey { at };
    }
    drop_stale(&mut opening.candidates);
    match opening.candidates.last_key_value() {
        None => Stage::Resume,
        Some((_, newest)) => {
            opening.flushed = newest.header.flushed;
            Stage::Fold { next: newest.header.horizon.max(1) }
        }
    }
}

/// Leaves the groups that may count.
///
/// A life that wrote a group took all behind the one before it for torn: what an older life has there is dead, however intact. And a
/// group that needs nothing older may have outlived what was written before it, of which nobody was told: then what it says is not
/// known to follow on anything, and the groups that were flushed are still there.
fn drop_stale(candidates: &mut BTreeMap<u64, Candidate>) {
    let mut life = 0;
    candidates.retain(|_, candidate| {
        life = life.max(candidate.header.life);
        candidate.header.life == life
    });
    while let Some((_, newest)) = candidates.last_key_value() {
        let from = newest.header.horizon.max(1);
        if from <= newest.header.flushed || candidates.contains_key(&from) {
            return;
        }
        candidates.split_off(&from);
    }
}

/// Compares a piece of an extent, read from `at` on.
fn verify_piece(opening: &mut Opening, file: FileId, at: u32, piece: &[u8]) -> Stage {
    let Some((check, verifying)) = &mut opening.check else { return Stage::Verify };
    let repeated = (check.before.len() - verifying.before_at).min(piece.len());
    let before = &check.before[verifying.before_at..verifying.before_at + repeated];
    verifying.good &= before == &piece[..repeated];
    verifying.before_at += repeated;
    verify_bytes(verifying, &piece[repeated..]);
    let at = at + piece.len() as u32;
    // A read that ends inside a block ended with the file.
    let block = opening.found.map_or(1, |found| found.block_bytes as usize);
    if verifying.good && at < check.written_to && !piece.is_empty() && piece.len().is_multiple_of(block) {
        return Stage::VerifyRead { file, at };
    }
    // A file that is too short was extended by the same group.
    verifying.good &= at == check.written_to;
    let inline = std::mem::take(&mut check.inline);
    // What was inline before may reach past the whole blocks.
    let repeated = (check.before.len() - verifying.before_at).min(inline.len());
    verify_bytes(verifying, &inline[repeated..]);
    verifying.good &= verifying.scanner.carry().is_empty()
        && verifying.headers_crc == check.headers_crc
        && verifying.scanner.next() == Some(check.next);
    Stage::Verify
}

fn verify_bytes(verifying: &mut Verifying, bytes: &[u8]) {
    if !verifying.good {
        return;
    }
    let crc = &mut verifying.headers_crc;
    let fed = verifying.scanner.feed(bytes, i32::MAX as u32, &mut |_, _, batch| {
        *crc = crc32c::crc32c_append(*crc, &batch[..ringmain_batch::HEADER_BYTES]);
    });
    verifying.good = fed.is_ok();
}
