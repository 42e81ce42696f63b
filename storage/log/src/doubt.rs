//! Indexes have no checksums (they are Kafka's files, byte for byte), so what an entry says is compared with the batch that it leads to
//! whenever it is gone by. One that does not hold is named and passed over: a search then begins at the entry before. The last time
//! entry decides about a whole segment (retention, which segment a time is in), so it is proved when the file is loaded.

use ringmain_batch::{BatchHeader, crc_ok};
use ringmain_buffer::Pool;
use ringmain_disk::{DiskClass, DiskKind, DiskOk};
use ringmain_types::*;

use crate::epochs::LeaderEpochs;
use crate::index::{Entry, OFFSET_ENTRY_BYTES, SegmentIndex, TIME_ENTRY_BYTES, TimeEntry};
use crate::jobs::{Got, Job, Step, Then};
use crate::log::Log;
use crate::read::{Ask, Stretch};
use crate::segment::file_name;
use crate::store::Store;
use crate::{Damage, ReadToken, StoreEvent};

/// Places that are no batch, met while an index is proved; with more it is not.
const UNSURE_MAX: usize = 8;
/// With so many entries that do not hold a sealed segment's index is made anew.
const DISTRUSTED_MAX: usize = 8;

/// Damaged places of one log that are told of; readers try again and again.
const TOLD_MAX: usize = 64;
/// As much is read to prove an index at most; batches that are larger, or further apart, leave it unproved.
const PROOF_BYTES_MAX: u32 = 2 << 20;

/// An entry that led to where no such batch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Doubt {
    pub base: Offset,
    pub entry: Entry,
}

/// An entry led to bytes that are no batch: they may be damaged, or it may be. A walk from the entry before tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unsure {
    base: Offset,
    number: usize,
    position: u32,
}

/// What was made of an index's last time entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    Holds,
    /// What would tell can't be read.
    Open,
    /// No such batch up to where the data ends.
    Missing,
    /// This one does not hold.
    Wrong(Entry),
    /// The offset entry that led to the first batch, or that batch.
    Unsure(usize),
}

/// An index that was read and is not believed yet.
#[derive(Debug)]
pub(crate) struct Proving {
    index: SegmentIndex,
    memory: usize,
    token: Option<ReadToken>,
    /// Where the index leads, and how far that was read.
    from: u32,
    to: u32,
    whole: bool,
    /// Not there up to the next entry: that one may be what does not hold.
    wide: bool,
    /// Entries that led to no batch.
    unsure: usize,
}

impl Proving {
    pub fn new(index: SegmentIndex, memory: usize, token: Option<ReadToken>) -> Proving {
        Proving { index, memory, token, from: 0, to: 0, whole: false, wide: false, unsure: 0 }
    }
}

impl Log {
    /// A sealed segment's index is made anew by reading on from its begin; until then the segment counts as young.
    pub(crate) fn index_anew(&mut self, base: Offset) {
        self.unsure.take_if(|unsure| unsure.base == base);
        if let Some(segment) = self.sealed.get_mut(&base) {
            segment.index = Some(SegmentIndex::new(base, i32::MAX as u32));
            segment.built_to = Some((0, base));
            segment.max_timestamp.get_or_insert(WallMs(i64::MAX));
        }
    }

    fn index_mut(&mut self, base: Offset) -> Option<&mut SegmentIndex> {
        match self.open.iter_mut().find(|segment| segment.base == base) {
            Some(segment) => Some(&mut segment.index),
            None => self.sealed.get_mut(&base)?.index.as_mut(),
        }
    }

    /// What is known of this segment's batches.
    pub(crate) fn chain(&self, base: Offset) -> Option<Chain<'_>> {
        let epochs = &self.epochs;
        match self.segment(base) {
            Some(segment) => Some(Chain { base, next: segment.next, holes: false, epochs }),
            None => {
                let next = self.sealed.get(&base)?.next;
                Some(Chain { base, next, holes: self.compaction.holes, epochs })
            }
        }
    }

    /// The entry that leads to `position`, if what is there is not what it says. A stretch is of whole batches that were checked.
    pub(crate) fn misled(&self, base: Offset, position: u32, stretch: &Stretch) -> Option<Doubt> {
        let (number, last) = self.index_of(base)?.offsets().leads_to(Position(position))?;
        let there = stretch.data.get((position - stretch.first) as usize..)?;
        let holds = BatchHeader::parse(there).is_ok_and(|header| header.last() == last);
        (!holds).then_some(Doubt { base, entry: Entry::Offset(number) })
    }
}

impl TimeEntry {
    /// Whether a search that began with this entry may meet this batch, `found`: it has a record at or after the entry's time.
    pub(crate) fn bears(&self, header: &BatchHeader, found: bool) -> bool {
        match header.last().cmp(&self.last) {
            std::cmp::Ordering::Less => !found,
            std::cmp::Ordering::Equal => header.info.max_timestamp == self.timestamp,
            std::cmp::Ordering::Greater => false,
        }
    }
}

impl Store {
    /// An entry does not hold: named, and not gone by from now on.
    pub(crate) fn distrust(&mut self, id: LogId, doubt: Doubt) {
        let Doubt { base, entry } = doubt;
        let Some(log) = self.log_mut(id) else { return };
        let Some(distrusted) = log.index_mut(base).map(|index| index.distrust(entry)) else { return };
        self.reads.misled(id, base);
        let Some(log) = self.log_mut(id) else { return };
        if distrusted > DISTRUSTED_MAX {
            log.index_anew(base);
        }
        self.tell_entry(id, base, entry);
    }

    pub(crate) fn tell_entry(&mut self, id: LogId, base: Offset, entry: Entry) {
        let (extension, position) = match entry {
            Entry::Offset(number) => ("index", number * OFFSET_ENTRY_BYTES),
            Entry::Time(number) => ("timeindex", number * TIME_ENTRY_BYTES),
        };
        self.tell_rot(id, base, extension, position as u64);
    }

    pub(crate) fn tell_rot(&mut self, id: LogId, base: Offset, extension: &'static str, position: u64) {
        self.tell_damage(id, (base, extension, position), |path| Damage::Rot { path, position });
    }

    /// Each place is told of once in a life, `TOLD_MAX` of a log at most.
    pub(crate) fn tell_damage(
        &mut self,
        id: LogId,
        place: (Offset, &'static str, u64),
        damage: impl FnOnce(String) -> Damage,
    ) {
        let Some(log) = self.log_mut(id) else { return };
        if log.rot_told.len() >= TOLD_MAX || !log.rot_told.insert(place) {
            return;
        }
        let path = format!("{}/{}", log.dir_name().unwrap_or_default(), file_name(place.0, place.1));
        let partition = log.partition;
        self.events.push(StoreEvent::Damaged { partition, damage: damage(path) });
    }

    /// Reads from where the last time entry's offset is to be found, up to the next entry's.
    pub(crate) fn prove_index(&mut self, now: Now, pool: &mut Pool, (id, base): (LogId, Offset), mut proving: Proving) {
        let log = self.log(id).and_then(|log| Some((log.dir_name()?, log.sealed.get(&base)?.bytes)));
        let (Some((dir, bytes)), Some((_, last))) = (log, proving.index.times().last()) else {
            return self.index_proven(now, pool, (id, base), proving);
        };
        let path = format!("{dir}/{}", file_name(base, "log"));
        let from = proving.index.position(last);
        let next = proving.index.offsets().after(from).filter(|_| !proving.wide);
        let end = next.map_or(bytes, |next| next.0);
        let begin = from.0 / self.block * self.block;
        let to = end.min(begin.saturating_add(PROOF_BYTES_MAX)).next_multiple_of(self.block);
        (proving.from, proving.to, proving.whole) = (from.0, end.min(to), end == bytes && end <= to);
        let length = to - begin;
        let into =
            pool.take(Account::Background, length as usize).or_else(|_| pool.take(Account::Cache, length as usize));
        let into = match into {
            Ok(into) => into,
            Err(refused) => {
                // Loaded another time.
                self.reads.indexes.refused(id, base);
                self.add_jobs(id, -1);
                return proving.token.into_iter().for_each(|token| self.answer_refused(token, refused));
            }
        };
        let (dir, file) = (self.config.dir, self.file());
        let open = DiskKind::Open { dir, file, path, create: false };
        let read = DiskKind::Read { file, position: begin.into(), bytes: length, into };
        let steps =
            vec![Step::of(vec![open]), Step::lenient(vec![read]), Step::lenient(vec![DiskKind::Close { file }])];
        self.jobs.add(Job::new(DiskClass::Read, steps, Then::IndexProved(id, base, Box::new(proving))));
        self.start_jobs(now, pool);
    }

    pub(crate) fn index_proved(
        &mut self,
        now: Now,
        pool: &mut Pool,
        at: (LogId, Offset),
        mut proving: Proving,
        mut got: Got,
    ) {
        let begin = proving.from / self.block * self.block;
        let read = match Store::ok(&mut got, 1) {
            Some(DiskOk::Read(read)) => read,
            // The disk says no; whoever reads the records will hear of it.
            _ => return self.index_proven(now, pool, at, proving),
        };
        let data = &read[..read.len().min((proving.to - begin) as usize)];
        proving.whole &= data.len() == (proving.to - begin) as usize;
        let (id, base) = at;
        let place = (proving.from, (proving.from - begin) as usize);
        let chain = self.log(id).and_then(|log| log.chain(base));
        let proof = chain.map(|chain| prove(&proving.index, chain, place, data, proving.whole));
        let Some(proof) = proof else { return self.index_proven(now, pool, at, proving) };
        match proof {
            Proof::Holds | Proof::Open => self.index_proven(now, pool, at, proving),
            Proof::Missing if !proving.wide => {
                proving.wide = true;
                self.prove_index(now, pool, at, proving);
            }
            Proof::Missing => self.index_proven(now, pool, at, proving),
            Proof::Wrong(entry @ Entry::Time(_)) => {
                self.tell_entry(id, base, entry);
                self.index_refuted(now, pool, at, proving);
            }
            Proof::Wrong(entry @ Entry::Offset(_)) => {
                self.tell_entry(id, base, entry);
                if proving.index.distrust(entry) > DISTRUSTED_MAX {
                    return self.index_refuted(now, pool, at, proving);
                }
                self.prove_index(now, pool, at, proving);
            }
            Proof::Unsure(number) => {
                // One less to go by each time.
                proving.index.pass_over(Entry::Offset(number));
                proving.unsure += 1;
                if proving.unsure > UNSURE_MAX {
                    return self.index_proven(now, pool, at, proving);
                }
                if let Some(log) = self.log_mut(id) {
                    log.unsure = Some(Unsure { base, number, position: proving.from });
                }
                self.prove_index(now, pool, at, proving);
            }
        }
    }

    fn index_refuted(&mut self, now: Now, pool: &mut Pool, (id, base): (LogId, Offset), proving: Proving) {
        if let Some(log) = self.log_mut(id) {
            log.index_anew(base);
        }
        self.reads.indexes.loaded(id, base, proving.memory);
        self.index_known(now, pool, (id, base), proving.token);
    }

    fn index_proven(&mut self, now: Now, pool: &mut Pool, (id, base): (LogId, Offset), proving: Proving) {
        if let Some(segment) = self.log_mut(id).and_then(|log| log.sealed.get_mut(&base)) {
            segment.max_timestamp = Some(proving.index.max_timestamp().map_or(WallMs(-1), |(at, _)| at));
            // Whole, whatever an earlier look that failed has begun to make anew.
            (segment.index, segment.built_to, segment.left_timestamp) = (Some(proving.index), None, None);
            self.reads.indexes.loaded(id, base, proving.memory);
        }
        self.index_known(now, pool, (id, base), proving.token);
    }

    /// What was read at `from` is no batch: if an index led there, the search goes on from the entry before. `walked`: it may have come
    /// there from the batch before.
    pub(crate) fn led_astray(
        &mut self,
        id: LogId,
        (base, from, walked): (Offset, u32, bool),
        token: ReadToken,
    ) -> bool {
        let Some(log) = self.log_mut(id) else { return false };
        let led = log.index_of(base).and_then(|index| index.offsets().leads_to(Position(from)));
        let Some((number, _)) = led else {
            // Nothing leads here now. Another one was led here at the same time, and was here first; or the index went, or is made anew.
            // The begin needs nobody who leads there.
            let astray = !walked && from > 0;
            if astray {
                self.begin_anew(token);
            }
            return astray;
        };
        // Whether the entry is wrong or the batch is damaged is not known yet. If it is the batch, an index that is made anew would end
        // there; so it does not count against this one.
        if let Some(index) = log.index_mut(base) {
            index.pass_over(Entry::Offset(number));
        }
        log.unsure = Some(Unsure { base, number, position: from });
        self.reads.misled(id, base);
        self.begin_anew(token);
        true
    }

    /// Batches were found whole at these positions, up to `end`: does one begin where an entry said?
    pub(crate) fn walked(&mut self, id: LogId, base: Offset, positions: &[u32], end: u32) {
        let Some(log) = self.log_mut(id) else { return };
        let walked = |unsure: &Unsure| {
            unsure.base == base
                && positions.first().is_some_and(|first| *first <= unsure.position)
                && unsure.position < end
        };
        let Some(unsure) = log.unsure.take_if(|unsure| walked(unsure)) else { return };
        if !positions.contains(&unsure.position) {
            self.tell_entry(id, base, Entry::Offset(unsure.number));
            self.distrust(id, Doubt { base, entry: Entry::Offset(unsure.number) });
        }
    }
}

impl Ask {
    /// Where it goes on in this segment an entry may have said.
    pub(crate) fn led_into(&self, base: Offset) -> bool {
        match self {
            Ask::Read(_, skipped) => skipped.is_some_and(|on| on.base == base && on.follows.is_none()),
            Ask::Find(find) => find.led_into(base),
        }
    }

    pub(crate) fn begin_anew(&mut self) {
        match self {
            Ask::Read(_, skipped) => *skipped = None,
            Ask::Find(find) => find.restart(),
        }
    }
}

/// What is known of where a segment's batches may stand. Base offset and leader epoch are under no checksum of theirs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain<'a> {
    base: Offset,
    next: Offset,
    /// Offsets may be missing between its batches: it was compacted.
    pub holes: bool,
    epochs: &'a LeaderEpochs,
}

impl Chain<'_> {
    /// Whether this batch may stand behind one that ends at `follows`, as far as that is known.
    pub fn joins(&self, follows: Option<Offset>, header: &BatchHeader) -> bool {
        let inside = header.base >= self.base && header.next() <= self.next;
        let epoch = self.epochs.epoch_of(header.base);
        in_order(follows, self.holes, header) && inside && (epoch.0 < 0 || header.epoch == epoch)
    }

    /// Whether a segment may be over behind a batch that ends at `follows`: its last one ends where the next segment begins, compacted
    /// or not. Nothing else tells how long a sealed segment's file was.
    pub fn ends(&self, follows: Option<Offset>) -> bool {
        follows.is_none_or(|follows| follows == self.next)
    }
}

/// Each batch begins where the one before ends; with `holes`, there or behind it.
pub(crate) fn in_order(follows: Option<Offset>, holes: bool, header: &BatchHeader) -> bool {
    follows.is_none_or(|follows| header.base == follows || holes && header.base > follows)
}

/// Goes from where the index leads, the batch at `begin` of `data`, to the batch that has the largest timestamp. `whole`: the data
/// goes on to the segment's end.
pub(crate) fn prove(
    index: &SegmentIndex,
    chain: Chain<'_>,
    (position, begin): (u32, usize),
    data: &[u8],
    whole: bool,
) -> Proof {
    let Some((timestamp, last)) = index.times().last() else { return Proof::Holds };
    let led = index.offsets().leads_to(Position(position));
    let (mut at, mut passed) = (begin, 0);
    let mut follows = (position == 0).then_some(chain.base);
    while at < data.len() {
        let header = BatchHeader::parse(&data[at..]).ok();
        // Longer than what was read: nothing is known of it.
        if !whole && header.is_some_and(|header| at + header.info.bytes as usize > data.len()) {
            return Proof::Open;
        }
        let batch = header.and_then(|header| Some((header, data.get(at..at + header.info.bytes as usize)?)));
        let sound = |(header, bytes): &(BatchHeader, &[u8])| crc_ok(bytes) && chain.joins(follows, header);
        let Some((header, _)) = batch.filter(sound) else {
            return match led.filter(|_| at == begin) {
                Some((number, _)) => Proof::Unsure(number),
                None => Proof::Open,
            };
        };
        if let Some((number, last)) = led
            && at == begin
            && header.last() != last
        {
            return Proof::Wrong(Entry::Offset(number));
        }
        if header.last() == last {
            let holds = header.info.max_timestamp == timestamp;
            return if holds { Proof::Holds } else { Proof::Wrong(Entry::Time(index.times().len() - 1)) };
        }
        // One behind it shows that this one's base offset is right.
        passed += u32::from(header.last() > last);
        follows = Some(header.next());
        at += header.info.bytes as usize;
    }
    if whole && !chain.ends(follows) {
        // The segment was cut off: what is missing may be what the index is about.
        return Proof::Open;
    }
    if whole || passed > 1 { Proof::Wrong(Entry::Time(index.times().len() - 1)) } else { Proof::Missing }
}
