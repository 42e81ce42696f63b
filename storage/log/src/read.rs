//! Reading: tail, cache and files look alike. What comes from a file is checked before anybody sees it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ringmain_batch::{BatchHeader, HEADER_BYTES, crc_ok};
use ringmain_buffer::{Buf, BufMut, Pool, Refused};
use ringmain_disk::{DiskClass, DiskError, DiskKind, DiskOk, FileId};
use ringmain_types::*;

use crate::doubt::{Chain, Doubt, in_order};
use crate::find::Find;
use crate::giant::Giant;
use crate::index::SegmentIndex;
use crate::jobs::{Job, Step, Then};
use crate::loading::{Indexes, build_index};
use crate::log::Log;
use crate::segment::file_name;
use crate::store::{Doing, Store};
use crate::under_way::{FileRead, UnderWay};
use crate::{Damage, FindResult, ReadAt, ReadError, ReadResult, ReadToken, Slices, StoreEvent};

/// Reads that wait or run, for each that may run at once.
const WAITING_PER_INFLIGHT: usize = 64;
/// How often a read waits for another one of the same bytes rather than asking the disk, too.
const SHARED_MAX: u8 = 4;
/// Steps of one read: a segment of 2 GiB without an index, walked in pieces of 1 MiB, and some.
const STEPS_MAX: u32 = 4096;
/// Index entries that are found not to hold in one step; whoever asked tries again.
const DOUBTS_PER_STEP: u32 = 16;

/// What must be fetched before a read or a search can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Index {
        base: Offset,
    },
    /// Bytes from this batch on, about `bytes` of them; exactly as many when that is the `whole` batch's length. `build`: for the
    /// segment's index, which is being made anew and ends here; they may be in memory.
    Bytes {
        base: Offset,
        from: u32,
        bytes: u32,
        whole: bool,
        build: bool,
        /// Where the batch before ends, as far as known: no batch's own checksum tells its base offset.
        follows: Option<Offset>,
    },
    /// The next piece of it.
    Giant(Giant),
}

impl Need {
    fn base(&self) -> Offset {
        match self {
            Need::Index { base } | Need::Bytes { base, .. } => *base,
            Need::Giant(giant) => giant.base,
        }
    }
}

pub(crate) enum Outcome {
    Done(What),
    Need(Need),
    /// An index led astray: asked anew.
    Doubt(Doubt),
}

/// A search in this segment goes on at this position, behind a batch that ends there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Skipped {
    pub base: Offset,
    position: u32,
    pub follows: Option<Offset>,
}

#[derive(Clone, Debug)]
pub(crate) enum Ask {
    /// With the segment and the position of the batch where the search for the first wanted one goes on: what was skipped need not be
    /// in memory at the same time as what follows, so that a small cache serves it too.
    Read(ReadAt, Option<Skipped>),
    Find(Find),
}
#[derive(Debug)]
pub(crate) enum What {
    Read(ReadResult),
    Find(FindResult),
}

#[derive(Debug)]
struct Pending {
    log: LogId,
    ask: Ask,
    need: Need,
    steps: u32,
    /// Of the bytes being read.
    position: u32,
    /// How often it waited for another read.
    shared: u8,
    /// The segment it is about was replaced: it is asked anew.
    stale: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Reads {
    next: u64,
    pending: BTreeMap<ReadToken, Pending>,
    waiting: VecDeque<ReadToken>,
    under_way: UnderWay,
    pub indexes: Indexes,
    /// The store's own search, for what its answer leaves behind, and the segment that it goes through.
    pub own: Option<(ReadToken, Offset)>,
    opening: BTreeSet<(LogId, Offset)>,
}

impl Reads {
    /// Readers of a log that goes are told.
    pub fn removed(&mut self, id: LogId, events: &mut Vec<StoreEvent>) {
        let tokens: Vec<ReadToken> =
            self.pending.iter().filter(|(_, pending)| pending.log == id).map(|(token, _)| *token).collect();
        for token in tokens {
            let Some(pending) = self.pending.remove(&token) else { continue };
            if self.own.take_if(|(own, _)| *own == token).is_some() {
                continue;
            }
            events.push(match pending.ask {
                Ask::Read(..) => StoreEvent::Read { log: id, token, result: ReadResult::Failed(ReadError::Removed) },
                Ask::Find(_) => StoreEvent::Found { log: id, token, result: FindResult::Failed(ReadError::Removed) },
            });
        }
        self.waiting.retain(|token| self.pending.contains_key(token));
    }

    /// Whether a read of the log (of `file`, when one is named) is under way.
    pub fn reading(&self, id: LogId, file: Option<FileId>) -> bool {
        self.under_way.any(id, file)
    }

    /// Whether it waits for a read that is under way of the byte that it asks for, so that this is not read a second time.
    fn shares(&mut self, token: ReadToken, place: (LogId, Offset, u32)) -> bool {
        let Some(pending) = self.pending.get_mut(&token).filter(|pending| pending.shared < SHARED_MAX) else {
            return false;
        };
        let shares = self.under_way.shares(token, place);
        pending.shared += u8::from(shares);
        shares
    }

    /// Somebody reads this segment, or opens it or its indexes.
    pub fn busy(&self, id: LogId, base: Offset, file: Option<FileId>) -> bool {
        let read = file.is_some() && self.reading(id, file);
        read || self.indexes.loading(id, base) || self.opening.contains(&(id, base))
    }

    /// Segments from `base` up to `next` are another one now, with other positions.
    pub fn replaced(&mut self, id: LogId, base: Offset, next: Offset) {
        for pending in self.pending.values_mut().filter(|pending| pending.log == id) {
            match &mut pending.ask {
                Ask::Read(_, skipped) => {
                    *skipped = skipped.filter(|skipped| skipped.base < base || skipped.base >= next)
                }
                Ask::Find(find) => find.restart(),
            }
            let of = pending.need.base();
            pending.stale |= base <= of && of < next;
        }
    }

    /// An entry that leads into this segment does not hold: whoever has just come into it, and not from the batch before, begins anew.
    pub fn misled(&mut self, id: LogId, base: Offset) {
        for pending in self.pending.values_mut().filter(|pending| pending.log == id) {
            if pending.ask.led_into(base) {
                pending.ask.begin_anew();
            }
        }
    }

    /// Asked again when the queue comes round.
    pub fn wait(&mut self, token: Option<ReadToken>) {
        self.waiting.extend(token);
    }

    /// Nothing is about to be read.
    pub fn quiet(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// What there is to read in a file.
enum Readable {
    Nothing,
    /// The file must be opened first.
    Closed,
    /// Up to this position.
    File(FileId, u32),
}

/// A stretch of whole batches in memory: the segment's bytes from `first` on.
pub(crate) struct Stretch {
    pub first: u32,
    pub data: Buf,
}

impl Log {
    /// Base, end offset and length of the segment that holds `offset`.
    pub(crate) fn segment_of(&self, offset: Offset) -> Option<(Offset, Offset, u32)> {
        let open = self.open.iter().rev().find(|segment| segment.base <= offset);
        let open = open.map(|segment| (segment.base, segment.next, segment.end));
        let sealed = self.sealed.range(..=offset).next_back();
        let sealed = sealed.map(|(base, segment)| (*base, segment.next, segment.bytes));
        // Whichever is nearer: an order of sealing must not matter here.
        open.max(sealed)
    }

    pub(crate) fn index_of(&self, base: Offset) -> Option<&SegmentIndex> {
        match self.segment(base) {
            Some(segment) => Some(&segment.index),
            None => self.sealed.get(&base)?.index.as_ref(),
        }
    }

    /// Batches at `position`, the begin of one, if they are in memory.
    pub(crate) fn in_memory(&self, base: Offset, position: u32) -> Option<Stretch> {
        if let Some(((_, first), cached)) = self.cache.range((base, 0)..=(base, position)).next_back()
            && *first as usize + cached.data.len() > position as usize
        {
            return Some(Stretch { first: *first, data: cached.data.clone() });
        }
        let segment = self.segment(base)?;
        let chunk = segment.chunks.iter().find(|chunk| chunk.first() <= position && position < chunk.end())?;
        Some(Stretch { first: chunk.first(), data: chunk.slice(chunk.first(), chunk.end()) })
    }

    fn read(&self, at: &ReadAt, skipped: &mut Option<Skipped>) -> Outcome {
        let done = |result| Outcome::Done(What::Read(result));
        let end = self.end();
        if at.from < self.start || at.from > end {
            return done(ReadResult::OutOfRange { start: self.start, end });
        }
        let below = at.below.min(end);
        let mut slices = Slices { next: at.from, ..Slices::default() };
        let mut follows = None;
        if at.from >= below {
            return done(ReadResult::Ready(slices));
        }
        let Some((mut base, mut next, mut bytes)) = self.segment_of(at.from) else {
            return done(ReadResult::OutOfRange { start: self.start, end });
        };
        let Some(index) = self.index_of(base) else { return Outcome::Need(Need::Index { base }) };
        let mut position = index.position(at.from).0;
        if let Some(on) = skipped.filter(|on| on.base == base && on.position < bytes && on.position >= position) {
            (position, follows) = (on.position, on.follows);
        }
        loop {
            if position >= bytes {
                if self.chain(base).is_some_and(|chain| !chain.ends(follows)) {
                    if !slices.parts.is_empty() {
                        return done(ReadResult::Ready(slices));
                    }
                    let rot = ReadError::Rot { segment: base, position: Position(bytes) };
                    return done(ReadResult::Failed(rot));
                }
                if next >= below {
                    return done(ReadResult::Ready(slices));
                }
                let Some(following) = self.segment_of(next) else { return done(ReadResult::Ready(slices)) };
                (base, next, bytes) = following;
                position = 0;
                if bytes == 0 {
                    return done(ReadResult::Ready(slices));
                }
                continue;
            }
            let Some(stretch) = self.in_memory(base, position) else {
                // Fewer bytes than asked are legal, none are not.
                if !slices.parts.is_empty() {
                    return done(ReadResult::Ready(slices));
                }
                *skipped = Some(Skipped { base, position, follows });
                let bytes = at.bytes_max.max(HEADER_BYTES as u32);
                return Outcome::Need(Need::Bytes { base, from: position, bytes, whole: false, build: false, follows });
            };
            if let Some(doubt) = self.misled(base, position, &stretch) {
                return Outcome::Doubt(doubt);
            }
            let begin = (position - stretch.first) as usize;
            let Some(chain) = self.chain(base) else { return done(ReadResult::Ready(slices)) };
            let before = (slices.bytes, slices.next);
            follows = follows.or((position == 0).then_some(base));
            match take_batches((&stretch.data, begin), (at, below, chain), &mut follows, &mut slices) {
                Ok(true) => position = stretch.first + stretch.data.len() as u32,
                Ok(false) => return done(ReadResult::Ready(slices)),
                // What is sound before it is served; whoever goes on meets it.
                Err(_) if !slices.parts.is_empty() => {
                    (slices.bytes, slices.next) = before;
                    return done(ReadResult::Ready(slices));
                }
                Err(at) => {
                    let position = Position(stretch.first + at as u32);
                    return done(ReadResult::Failed(ReadError::Rot { segment: base, position }));
                }
            }
        }
    }
}

/// Takes whole batches of `data` from `at` on; false when no more are wanted. `follows`: the offset behind the batch before; without
/// holes the first one holds what is asked for or ends before it.
fn take_batches(
    (data, mut at): (&Buf, usize),
    (ask, below, chain): (&ReadAt, Offset, Chain<'_>),
    follows: &mut Option<Offset>,
    slices: &mut Slices,
) -> Result<bool, usize> {
    let mut from = None;
    let mut more = true;
    while at < data.len() {
        let header = BatchHeader::parse(&data[at..]).map_err(|_| at)?;
        let bytes = header.info.bytes as usize;
        let leads = follows.is_some() || header.base <= ask.from || chain.holes;
        if at + bytes > data.len() || !leads || !chain.joins(*follows, &header) {
            return Err(at);
        }
        *follows = Some(header.next());
        if header.next() <= ask.from {
            at += bytes;
            continue;
        }
        let first = slices.bytes == 0 && ask.at_least_one;
        let fits = slices.bytes as usize + bytes <= ask.bytes_max as usize;
        if header.next() > below || !(fits || first) {
            more = false;
            break;
        }
        from.get_or_insert(at);
        at += bytes;
        slices.bytes += bytes as u32;
        slices.next = header.next();
    }
    if let Some(from) = from {
        slices.parts.push(data.slice(from..at));
    }
    Ok(more)
}

impl Store {
    /// Whole batches from the one that holds `at.from` on. Those of one batch are always in one part; a part holds many.
    pub fn read(&mut self, _now: Now, _pool: &mut Pool, at: ReadAt) -> ReadResult {
        match self.ask(at.log, Ask::Read(at, None)) {
            Ok(What::Read(result)) => result,
            Ok(What::Find(_)) => ReadResult::Failed(ReadError::Removed),
            Err(Some(token)) => ReadResult::Pending(token),
            Err(None) => {
                ReadResult::Memory(Refused { account: Account::Cache, wanted: at.bytes_max as usize, left: 0 })
            }
        }
    }

    /// Answers, or names the token under which the answer will come; none when too many wait already.
    pub(crate) fn ask(&mut self, id: LogId, mut ask: Ask) -> Result<What, Option<ReadToken>> {
        match self.ask_steps(id, &mut ask) {
            Outcome::Doubt(_) => Err(None),
            Outcome::Done(what) => {
                self.tell_failure(id, &what);
                Ok(what)
            }
            Outcome::Need(need) => {
                let most = self.config.limits.reads_inflight_max as usize * WAITING_PER_INFLIGHT;
                if self.reads.pending.len() >= most {
                    return Err(None);
                }
                self.reads.next += 1;
                let token = ReadToken(self.reads.next);
                self.reads
                    .pending
                    .insert(token, Pending { log: id, ask, need, steps: 0, position: 0, shared: 0, stale: false });
                self.reads.waiting.push_back(token);
                Err(Some(token))
            }
        }
    }

    /// Past entries that do not hold; a few at once.
    fn ask_steps(&mut self, id: LogId, ask: &mut Ask) -> Outcome {
        let mut outcome = self.ask_step(id, ask);
        for _ in 0..DOUBTS_PER_STEP {
            let Outcome::Doubt(doubt) = outcome else { break };
            self.distrust(id, doubt);
            ask.begin_anew();
            outcome = self.ask_step(id, ask);
        }
        outcome
    }

    fn ask_step(&self, id: LogId, ask: &mut Ask) -> Outcome {
        let log = self.log(id).filter(|log| !matches!(log.phase, crate::log::Phase::Recovering(_)));
        match (log, ask) {
            (None, Ask::Read(..)) => Outcome::Done(What::Read(ReadResult::Failed(ReadError::Removed))),
            (None, Ask::Find(_)) => Outcome::Done(What::Find(FindResult::Failed(ReadError::Removed))),
            (Some(log), Ask::Read(at, skipped)) => log.read(at, skipped),
            (Some(log), Ask::Find(find)) => log.find(find),
        }
    }

    /// A reply that is no longer wanted frees its reads.
    pub fn cancel(&mut self, token: ReadToken) {
        self.reads.pending.remove(&token);
        self.reads.waiting.retain(|waiting| *waiting != token);
    }

    /// Takes reads off the queue, as many as may be in flight.
    pub(crate) fn start_reads(&mut self, now: Now, pool: &mut Pool) {
        let mut left = self.reads.waiting.len();
        let (count, bytes) =
            (self.config.limits.reads_inflight_max as usize, self.config.limits.reads_inflight_bytes_max);
        while self.reads.under_way.len() < count && self.reads.under_way.bytes() < bytes && left > 0 {
            left -= 1;
            let Some(token) = self.reads.waiting.pop_front() else { break };
            self.start_read(now, pool, token);
        }
    }

    fn start_read(&mut self, now: Now, pool: &mut Pool, token: ReadToken) {
        let Some(pending) = self.reads.pending.get_mut(&token) else { return };
        if std::mem::take(&mut pending.stale) {
            return self.read_again(now, pool, token);
        }
        let (id, need, base) = (pending.log, pending.need, pending.need.base());
        if self.swapping(id, base) {
            return self.reads.waiting.push_back(token);
        }
        if let Some(error) = self.swap_failed(id, base) {
            return self.read_failed(token, ReadError::Disk(error));
        }
        match need {
            // Somebody else may have loaded it meanwhile.
            Need::Index { base } if self.log(id).is_some_and(|log| log.index_of(base).is_some()) => {
                self.read_again(now, pool, token)
            }
            Need::Index { base } => self.load_index(id, base, Some(token)),
            // As much of it is soon in memory: many readers of one place cost one read.
            Need::Bytes { base, from, build: false, .. } if self.reads.shares(token, (id, base, from)) => {}
            Need::Bytes { base, from, bytes, whole, build, .. } => {
                self.read_bytes(now, pool, (id, token), (base, from), (bytes, whole, build));
            }
            // Whatever is in memory, what is asked is what the file has.
            Need::Giant(giant) => {
                self.read_bytes(now, pool, (id, token), (base, giant.at), (giant.left(), false, true));
            }
        }
    }

    /// From this batch on, or from within it.
    fn read_bytes(
        &mut self,
        now: Now,
        pool: &mut Pool,
        (id, token): (LogId, ReadToken),
        (base, from): (Offset, u32),
        (bytes, whole, build): (u32, bool, bool),
    ) {
        let (file, to) = match self.readable(id, base, from, (bytes, whole, build)) {
            // The segment went, or came into memory, meanwhile.
            Readable::Nothing => return self.read_again(now, pool, token),
            Readable::Closed => return self.open_segment(id, base, token),
            Readable::File(file, to) => (file, to),
        };
        let begin = from / self.block * self.block;
        let length = to - begin;
        if whole && !pool.fits(Account::Cache, length as usize) {
            let giant = Giant::new(base, from, bytes);
            if let Some(sound) = self.log(id).and_then(|log| log.giants.get(&(base, from)).copied()) {
                return self.giant_known(now, pool, (id, token), giant, sound);
            }
            if let Some(pending) = self.reads.pending.get_mut(&token) {
                pending.need = Need::Giant(giant);
            }
            return self.read_bytes(now, pool, (id, token), (base, from), (bytes, false, true));
        }
        let mut into = pool.take(Account::Cache, length as usize);
        if let Err(refused) = &into {
            self.evict_bytes(pool, refused.wanted);
            into = pool.take(Account::Cache, length as usize);
        }
        match into {
            Ok(into) => {
                self.cache.missed(length);
                let read = DiskKind::Read { file, position: u64::from(begin), bytes: length, into };
                self.operate(DiskClass::Read, read, Doing::Read(token));
                self.reads.under_way.started(token, FileRead { log: id, file, base, begin, bytes: length });
                if let Some(pending) = self.reads.pending.get_mut(&token) {
                    pending.position = begin;
                }
            }
            Err(refused) => self.answer_refused(token, refused),
        }
    }

    /// The read goes on with this, before others.
    pub(crate) fn read_on(&mut self, token: ReadToken, need: Need) {
        if let Some(pending) = self.reads.pending.get_mut(&token) {
            (pending.need, pending.steps) = (need, pending.steps + 1);
            self.reads.waiting.push_front(token);
        }
    }

    pub(crate) fn swapping(&self, id: LogId, base: Offset) -> bool {
        self.fenced.is_none() && self.log(id).is_some_and(|log| log.compaction.swaps(base))
    }

    /// The directory was fenced while this segment's file was swapped: under its name may be another one, with other positions.
    pub(crate) fn swap_failed(&self, id: LogId, base: Offset) -> Option<DiskError> {
        let fenced = self.fenced.as_ref()?;
        let compaction = &self.log(id)?.compaction;
        (compaction.renaming && compaction.swaps(base)).then(|| fenced.clone())
    }

    pub(crate) fn answer_refused(&mut self, token: ReadToken, refused: Refused) {
        let Some(pending) = self.reads.pending.remove(&token) else { return };
        let what = match pending.ask {
            Ask::Read(..) => What::Read(ReadResult::Memory(refused)),
            Ask::Find(_) => What::Find(FindResult::Memory(refused)),
        };
        self.answer(pending.log, token, what);
    }

    /// Damage is named by whoever is refused first, at once or behind a read.
    fn tell_failure(&mut self, log: LogId, what: &What) {
        let (What::Read(ReadResult::Failed(error)) | What::Find(FindResult::Failed(error))) = what else { return };
        match *error {
            ReadError::Rot { segment, position } => {
                self.tell_rot(log, segment, "log", position.0.into());
                if let Some(log) = self.log_mut(log) {
                    log.index_ends(segment, position);
                }
            }
            ReadError::TooLarge { segment, position, bytes, max } => {
                let position = u64::from(position.0);
                let damage = |path| Damage::TooLarge { path, position, bytes, max };
                self.tell_damage(log, (segment, "log", position), damage);
            }
            _ => {}
        }
    }

    fn answer(&mut self, log: LogId, token: ReadToken, what: What) {
        self.tell_failure(log, &what);
        if let Some((_, base)) = self.reads.own.take_if(|(own, _)| *own == token) {
            return self.looked_through(log, base);
        }
        self.events.push(match what {
            What::Read(result) => StoreEvent::Read { log, token, result },
            What::Find(result) => StoreEvent::Found { log, token, result },
        });
    }

    /// The file, and where to stop reading (at a block's end), for the batches from `from` on.
    fn readable(&self, id: LogId, base: Offset, from: u32, (bytes, whole, build): (u32, bool, bool)) -> Readable {
        let Some(log) = self.log(id) else { return Readable::Nothing };
        let (file, limit) = match (log.segment(base), log.sealed.get(&base)) {
            (Some(segment), _) => (segment.file_id(), segment.memory_from().min(segment.written_to)),
            (None, Some(segment)) => (segment.file, segment.bytes),
            (None, None) => return Readable::Nothing,
        };
        if from >= limit || !build && log.in_memory(base, from).is_some() {
            return Readable::Nothing;
        }
        let Some(file) = file else { return Readable::Closed };
        let cached = log.cache.range((base, from + 1)..=(base, u32::MAX)).next().map(|((_, first), _)| *first);
        let cached = cached.filter(|_| !build);
        let limit = cached.map_or(limit, |first| first.min(limit));
        // A first batch comes whole, however long; but what is asked beyond it is not read ahead without bound: as much as one of the
        // pool's largest blocks holds, which is used again for others. A little more would be memory from the system for each read,
        // and its page faults.
        let most =
            (from / self.block * self.block).saturating_add(self.config.limits.gather_bytes_max.saturating_mul(4));
        let to = from.saturating_add(bytes).min(limit).next_multiple_of(self.block);
        Readable::File(file, if whole { to } else { to.min(most) })
    }

    /// Opens a sealed segment of an earlier life.
    fn open_segment(&mut self, id: LogId, base: Offset, token: ReadToken) {
        if !self.reads.opening.insert((id, base)) {
            return self.reads.waiting.push_back(token);
        }
        let (dir, file) = (self.config.dir, self.file());
        let name = self.log(id).and_then(|log| log.dir_name()).unwrap_or_default();
        let path = format!("{name}/{}", file_name(base, "log"));
        let step = Step::of(vec![DiskKind::Open { dir, file, path, create: false }]);
        self.add_jobs(id, 1);
        self.jobs.add(Job::new(DiskClass::Read, vec![step], Then::SegmentOpened(id, base, file, token)));
    }

    pub(crate) fn segment_opened(
        &mut self,
        (now, pool): (Now, &mut Pool),
        (id, base, file): (LogId, Offset, FileId),
        token: ReadToken,
        error: Option<DiskError>,
    ) {
        self.reads.opening.remove(&(id, base));
        self.add_jobs(id, -1);
        match (self.log_mut(id).and_then(|log| log.sealed.get_mut(&base)), error) {
            (Some(segment), None) => segment.file = Some(file),
            (Some(_), Some(error)) => return self.read_failed(token, ReadError::Disk(error)),
            (None, None) => {
                self.operate(DiskClass::Background, DiskKind::Close { file }, Doing::Ignored);
            }
            (None, Some(_)) => {}
        }
        self.read_again(now, pool, token);
    }

    pub(crate) fn read_done(&mut self, now: Now, pool: &mut Pool, token: ReadToken, result: Result<DiskOk, DiskError>) {
        let sharers = self.reads.under_way.ended(token);
        self.reads.waiting.extend(sharers);
        let Some(pending) = self.reads.pending.get(&token) else { return };
        let (id, need, begin) = (pending.log, pending.need, pending.position);
        let base = need.base();
        let here = self.log(id).is_some_and(|log| log.segment(base).is_some() || log.sealed.contains_key(&base));
        let read = match result {
            Ok(DiskOk::Read(read)) => read,
            // Retention took the segment meanwhile: the log's start says so.
            _ if !here => return self.read_again(now, pool, token),
            Err(error) => return self.read_failed(token, ReadError::Disk(error)),
            Ok(_) => return self.read_again(now, pool, token),
        };
        let (from, asked, whole, build, follows) = match need {
            Need::Bytes { from, bytes, whole, build, follows, .. } => (from, bytes, whole, build, follows),
            Need::Giant(_) if !here => return self.read_again(now, pool, token),
            Need::Giant(giant) => return self.giant_read(now, pool, (id, token), giant, (begin, &read)),
            Need::Index { .. } => return,
        };
        let believed = match self.believe(id, base, (from, follows), begin, read) {
            // As many as it says that it has were asked for: what is known to begin behind it came in between.
            Ok((data, wanted)) if data.is_empty() && whole && wanted <= asked => {
                Err(ReadError::Rot { segment: base, position: Position(from) })
            }
            believed => believed,
        };
        match believed {
            Ok((data, wanted)) => {
                if data.is_empty() {
                    // The first batch is longer than what was read.
                    let need = Need::Bytes { base, from, bytes: wanted, whole: true, build, follows };
                    return self.read_on(token, need);
                }
                if !build {
                    self.cache_insert(pool, id, base, from, data);
                }
                self.read_again(now, pool, token);
            }
            Err(_) if !here => self.read_again(now, pool, token),
            Err(ReadError::Rot { position, .. })
                if position.0 == from && !build && self.led_astray(id, (base, from, follows.is_some()), token) =>
            {
                self.read_again(now, pool, token)
            }
            Err(error) => self.read_failed(token, error),
        }
    }

    pub(crate) fn begin_anew(&mut self, token: ReadToken) {
        if let Some(pending) = self.reads.pending.get_mut(&token) {
            pending.ask.begin_anew();
        }
    }

    /// The whole batches of what was read, each checked; or how many bytes the first one has.
    fn believe(
        &mut self,
        id: LogId,
        base: Offset,
        (from, follows): (u32, Option<Offset>),
        begin: u32,
        read: BufMut,
    ) -> Result<(Buf, u32), ReadError> {
        let rot = |at: usize| ReadError::Rot { segment: base, position: Position(begin + at as u32) };
        let Some(log) = self.log_mut(id) else { return Err(ReadError::Removed) };
        let interval = log.config.index_interval_bytes;
        let limit = match log.segment(base) {
            Some(segment) => segment.memory_from(),
            None => match log.sealed.get(&base) {
                Some(segment) => segment.bytes,
                // Retention took it while it was read.
                None => return Err(ReadError::Removed),
            },
        };
        let Some(chain) = log.chain(base) else { return Err(ReadError::Removed) };
        let whole = limit.saturating_sub(begin).min(read.len() as u32) as usize;
        let data = read.freeze();
        let first = (from - begin) as usize;
        let mut at = first;
        // What is known of the first one's base offset.
        let built = log.sealed.get(&base).and_then(|segment| segment.built_to).filter(|(to, _)| *to == from);
        let known = follows.or((from == 0).then_some(base)).or(built.map(|(_, next)| next));
        let mut next: Option<Offset> = None;
        let (mut rotten, mut disorder) = (false, false);
        let mut batches: Vec<(BatchHeader, u32)> = Vec::new();
        while at + HEADER_BYTES <= whole {
            let header = BatchHeader::parse(&data[at..whole]).ok().filter(|header| {
                let follows = next.or(known);
                let fits = begin as usize + at + header.info.bytes as usize <= limit as usize;
                disorder = !in_order(follows, chain.holes, header);
                fits && chain.joins(follows, header)
            });
            let Some(header) = header else {
                rotten = true;
                break;
            };
            let bytes = header.info.bytes as usize;
            if at + bytes > whole {
                break;
            }
            if !crc_ok(&data[at..at + bytes]) {
                rotten = true;
                break;
            }
            batches.push((header, begin + at as u32));
            next = Some(header.next());
            at += bytes;
        }
        // With holes the base offset of the batch before may be what does not fit.
        if disorder && chain.holes && batches.pop().is_some() {
            at = batches.last().map_or(first, |(header, position)| (position - begin + header.info.bytes) as usize);
        }
        if at > first {
            build_index(log, base, &batches, interval);
            if log.unsure.is_some() {
                let positions: Vec<u32> = batches.iter().map(|(_, position)| *position).collect();
                self.walked(id, base, &positions, begin + at as u32);
            }
            // What is sound before damage is served; whoever goes on meets it.
            return Ok((data.slice(first..at), 0));
        }
        if rotten {
            return Err(rot(at));
        }
        if whole < first + HEADER_BYTES {
            // Not even a header: the file is shorter than the segment, or the read was.
            return if begin as usize + whole < limit as usize {
                Ok((Buf::default(), HEADER_BYTES as u32 * 2))
            } else {
                Err(rot(at))
            };
        }
        let header = BatchHeader::parse(&data[at..whole]).map_err(|_| rot(at))?;
        Ok((Buf::default(), header.info.bytes))
    }

    pub(crate) fn read_again(&mut self, _now: Now, _pool: &mut Pool, token: ReadToken) {
        let Some(mut pending) = self.reads.pending.remove(&token) else { return };
        pending.steps += 1;
        let id = pending.log;
        match self.ask_steps(id, &mut pending.ask) {
            Outcome::Doubt(_) => {
                let refused = Refused { account: Account::Cache, wanted: 0, left: 0 };
                self.reads.pending.insert(token, pending);
                self.answer_refused(token, refused)
            }
            Outcome::Done(what) => self.answer(id, token, what),
            Outcome::Need(need) => {
                pending.need = need;
                let over = pending.steps > STEPS_MAX;
                self.reads.pending.insert(token, pending);
                if over {
                    return self.answer_refused(token, Refused { account: Account::Cache, wanted: 0, left: 0 });
                }
                self.reads.waiting.push_front(token);
            }
        }
    }

    pub(crate) fn read_failed(&mut self, token: ReadToken, error: ReadError) {
        let Some(pending) = self.reads.pending.remove(&token) else { return };
        let what = match pending.ask {
            Ask::Read(..) => What::Read(ReadResult::Failed(error)),
            Ask::Find(_) => What::Find(FindResult::Failed(error)),
        };
        self.answer(pending.log, token, what);
    }

    pub(crate) fn add_jobs(&mut self, id: LogId, count: i32) {
        if let Some(log) = self.log_any_mut(id) {
            log.jobs = log.jobs.saturating_add_signed(count);
        }
    }
}
