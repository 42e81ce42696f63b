//! The two indexes of a segment, `.index` and `.timeindex`, entry for entry as Kafka 4.4 writes them.
//!
//! An entry is added in front of the first batch that comes when more than `index.interval.bytes` lie behind the last entry. The
//! offset index notes that batch's *last* offset and where the batch begins; the time index notes the largest timestamp so far,
//! that batch included, and the last offset of the batch that has it. A seal adds the segment's largest timestamp. So a segment's
//! first batch has no entry, and a floor search finds a batch at or before the one that is sought.

use std::fmt;

use ringmain_types::{Offset, Position, WallMs};

pub const OFFSET_ENTRY_BYTES: usize = 8;
pub const TIME_ENTRY_BYTES: usize = 12;

/// A batch as the indexes see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexedBatch {
    pub last: Offset,
    /// Of its first byte in the segment.
    pub position: Position,
    pub bytes: u32,
    pub max_timestamp: WallMs,
}

/// Both indexes of one segment and what decides about the next entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentIndex {
    offsets: OffsetIndex,
    times: TimeIndex,
    bytes_since_entry: u64,
    /// The largest timestamp so far and the last offset of the first batch that has it.
    max: Option<(WallMs, Offset)>,
    /// A full index takes no more: `segment.index.bytes` in whole entries; one of the time index is kept for the seal.
    offset_entries_max: usize,
    time_entries_max: usize,
    /// Entries that were found not to hold.
    wrong: usize,
}

/// What an index decides the next entry by, besides the entries it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decides {
    pub bytes_since_entry: u32,
    pub max: Option<(WallMs, Offset)>,
}

impl SegmentIndex {
    /// Of an empty segment. `index_bytes` is `segment.index.bytes`.
    pub fn new(base: Offset, index_bytes: u32) -> SegmentIndex {
        SegmentIndex::resume(OffsetIndex::new(base), TimeIndex::new(base), index_bytes)
    }

    /// From the decoded files of a segment. To go on with it, push the batches from [`SegmentIndex::resume_at`] on anew; a sealed
    /// segment's files are complete as they are.
    pub fn resume(offsets: OffsetIndex, times: TimeIndex, index_bytes: u32) -> SegmentIndex {
        assert!(offsets.base == times.base);
        let max = times.last();
        let index_bytes = index_bytes as usize;
        SegmentIndex {
            offsets,
            times,
            bytes_since_entry: 0,
            max,
            offset_entries_max: index_bytes / OFFSET_ENTRY_BYTES,
            time_entries_max: index_bytes / TIME_ENTRY_BYTES,
            wrong: 0,
        }
    }

    /// As it stood at a checkpoint: the next batch may be pushed as if nothing had happened in between.
    pub fn restore(offsets: OffsetIndex, times: TimeIndex, decides: Decides, index_bytes: u32) -> SegmentIndex {
        let mut index = SegmentIndex::resume(offsets, times, index_bytes);
        index.bytes_since_entry = decides.bytes_since_entry.into();
        index.max = decides.max;
        index
    }

    /// What a checkpoint must keep besides the entries.
    pub fn decides(&self) -> Decides {
        let bytes_since_entry = u32::try_from(self.bytes_since_entry).unwrap_or(u32::MAX);
        Decides { bytes_since_entry, max: self.max }
    }

    /// A batch was appended. Each of a segment is pushed, in order.
    pub fn push(&mut self, batch: IndexedBatch, interval_bytes: u32) {
        // A timestamp of -1 is none.
        if batch.max_timestamp.0 >= 0 && self.max.is_none_or(|(largest, _)| batch.max_timestamp > largest) {
            self.max = Some((batch.max_timestamp, batch.last));
        }
        if self.bytes_since_entry > u64::from(interval_bytes) && !self.full() {
            self.offsets.push(batch.last, batch.position);
            if let Some((timestamp, offset)) = self.max {
                self.times.push(timestamp, offset);
            }
            self.bytes_since_entry = 0;
        }
        self.bytes_since_entry += u64::from(batch.bytes);
    }

    /// The segment takes no more batches.
    pub fn seal(&mut self) {
        if let Some((timestamp, offset)) = self.max {
            self.times.push(timestamp, offset);
        }
    }

    /// No entry can be added: time to roll.
    pub fn full(&self) -> bool {
        self.offsets.len() >= self.offset_entries_max || self.times.len() + 1 >= self.time_entries_max
    }

    /// Whether a batch that ends at `last` fits the 31 bits of relative offsets.
    pub fn covers(&self, last: Offset) -> bool {
        relative(self.offsets.base, last).is_some()
    }

    /// The log now ends at `to`. Batches from the returned position on, up to `to`, are to be pushed anew: the result is then what it
    /// would have been without the batches that were cut.
    pub fn truncate(&mut self, to: Offset) -> Position {
        self.offsets.truncate(to);
        // A time entry is made with an offset entry, by a batch at or before that one's; the seal's has none. What lies behind the
        // last offset entry that is left was made with one that is gone.
        self.times.truncate(self.offsets.last().map_or(self.offsets.base, |(last, _)| Offset(last.0 + 1)));
        self.bytes_since_entry = 0;
        self.max = self.times.last();
        self.resume_at()
    }

    /// Where the batch of the last entry begins; the segment's begin without one.
    pub fn resume_at(&self) -> Position {
        self.offsets.last().map_or(Position(0), |(_, position)| position)
    }

    /// A position at or before the batch that holds `offset`, and the closest that is known.
    pub fn position(&self, offset: Offset) -> Position {
        self.offsets.floor(offset)
    }

    /// A position at or before the first batch with a record at or after `timestamp`; no batch before it has one, if the entry holds by
    /// which that is known.
    pub fn position_at(&self, timestamp: WallMs) -> (Position, Option<TimeEntry>) {
        let entry = self.times.floor(timestamp);
        (entry.map_or(Position(0), |entry| self.offsets.floor(entry.last)), entry)
    }

    /// An entry was found not to hold: it is no longer gone by. How many such there are now.
    pub fn distrust(&mut self, entry: Entry) -> usize {
        self.pass_over(entry);
        self.wrong += 1;
        self.wrong
    }

    /// An entry is no longer gone by, though what it leads to may be what is damaged: that says nothing of the index.
    pub fn pass_over(&mut self, entry: Entry) {
        let (bad, number) = match entry {
            Entry::Offset(number) => (&mut self.offsets.bad, number),
            Entry::Time(number) => (&mut self.times.bad, number),
        };
        if let Err(at) = bad.binary_search(&number) {
            bad.insert(at, number);
        }
    }

    /// The segment's largest timestamp and the last offset of the first batch that has it; none when no batch has a timestamp.
    pub fn max_timestamp(&self) -> Option<(WallMs, Offset)> {
        self.max
    }

    pub fn offsets(&self) -> &OffsetIndex {
        &self.offsets
    }

    pub fn times(&self) -> &TimeIndex {
        &self.times
    }
}

/// One entry, by its number in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    Offset(usize),
    Time(usize),
}

/// What a `.timeindex` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeEntry {
    pub number: usize,
    pub timestamp: WallMs,
    /// The last offset of the first batch that has it.
    pub last: Offset,
}

/// The last one before `above` that is gone by.
fn trusted(bad: &[usize], above: usize) -> Option<usize> {
    (0..above).rev().find(|number| bad.binary_search(number).is_err())
}

/// `.index`: (offset less the segment's base, position), each a big-endian i32, both strictly rising.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetIndex {
    base: Offset,
    entries: Vec<(u32, u32)>,
    /// Numbers of entries that are not gone by, rising.
    bad: Vec<usize>,
}

impl OffsetIndex {
    pub fn new(base: Offset) -> OffsetIndex {
        OffsetIndex { base, entries: Vec::new(), bad: Vec::new() }
    }

    fn push(&mut self, last: Offset, position: Position) {
        let at = relative(self.base, last).expect("the log rolls when `covers` says no");
        assert!(self.entries.last().is_none_or(|entry| entry.0 < at && entry.1 < position.0));
        self.entries.push((at, position.0));
    }

    fn truncate(&mut self, to: Offset) {
        let keep = self.entries.partition_point(|entry| self.base.0.saturating_add(entry.0.into()) < to.0);
        self.entries.truncate(keep);
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn entries(&self) -> impl Iterator<Item = (Offset, Position)> {
        let entry =
            |(at, position): &(u32, u32)| (Offset(self.base.0.saturating_add((*at).into())), Position(*position));
        self.entries.iter().map(entry)
    }

    pub fn last(&self) -> Option<(Offset, Position)> {
        self.entries
            .last()
            .map(|(at, position)| (Offset(self.base.0.saturating_add((*at).into())), Position(*position)))
    }

    /// The position of the last entry at or below `offset`; 0 without one.
    pub fn floor(&self, offset: Offset) -> Position {
        let above = self.entries.partition_point(|entry| self.base.0.saturating_add(entry.0.into()) <= offset.0);
        Position(trusted(&self.bad, above).map_or(0, |at| self.entries[at].1))
    }

    /// The entry that leads to this position: its number, and the last offset of the batch there.
    pub fn leads_to(&self, position: Position) -> Option<(usize, Offset)> {
        let number = self.entries.binary_search_by_key(&position.0, |entry| entry.1).ok()?;
        let trusted = self.bad.binary_search(&number).is_err();
        trusted.then(|| (number, Offset(self.base.0.saturating_add(self.entries[number].0.into()))))
    }

    /// The position of the first entry behind `position`.
    pub fn after(&self, position: Position) -> Option<Position> {
        let above = self.entries.partition_point(|entry| entry.1 <= position.0);
        let next = (above..self.entries.len()).find(|number| self.bad.binary_search(number).is_err());
        next.map(|number| Position(self.entries[number].1))
    }

    /// The last position of an entry at or below `position`: a batch begins there. 0 without one.
    pub fn batch_before(&self, position: Position) -> Position {
        let above = self.entries.partition_point(|entry| entry.1 <= position.0);
        Position(above.checked_sub(1).map_or(0, |at| self.entries[at].1))
    }

    pub fn encode(&self) -> Vec<u8> {
        self.encode_from(0)
    }

    /// The file's bytes from `from` on, which need not be where an entry begins.
    pub fn encode_from(&self, from: usize) -> Vec<u8> {
        let first = from / OFFSET_ENTRY_BYTES;
        let entries = self.entries.get(first..).unwrap_or_default();
        let mut bytes = Vec::with_capacity(entries.len() * OFFSET_ENTRY_BYTES);
        for (at, position) in entries {
            bytes.extend(at.to_be_bytes());
            bytes.extend(position.to_be_bytes());
        }
        bytes.drain(..(from % OFFSET_ENTRY_BYTES).min(bytes.len()));
        bytes
    }

    /// `segment_bytes`: the length of the `.log` that the entries must point into.
    pub fn decode(base: Offset, segment_bytes: u32, bytes: &[u8]) -> Result<OffsetIndex, IndexError> {
        let (entries, []) = bytes.as_chunks::<OFFSET_ENTRY_BYTES>() else {
            return Err(IndexError::Length { bytes: bytes.len(), entry_bytes: OFFSET_ENTRY_BYTES });
        };
        let mut index = OffsetIndex { base, entries: Vec::with_capacity(entries.len()), bad: Vec::new() };
        for (entry, bytes) in entries.iter().enumerate() {
            let [a, b, c, d, rest @ ..] = *bytes;
            let (at, position) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes(rest));
            if at > i32::MAX as u32 {
                return Err(IndexError::Offset { entry });
            }
            if position >= segment_bytes {
                return Err(IndexError::Position { entry, position, segment_bytes });
            }
            if index.entries.last().is_some_and(|last| last.0 >= at || last.1 >= position) {
                return Err(IndexError::Order { entry });
            }
            index.entries.push((at, position));
        }
        Ok(index)
    }
}

/// `.timeindex`: (timestamp as i64, offset less the segment's base as i32), big-endian; timestamps rise strictly, offsets too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeIndex {
    base: Offset,
    entries: Vec<(i64, u32)>,
    /// Numbers of entries that are not gone by, rising.
    bad: Vec<usize>,
}

impl TimeIndex {
    pub fn new(base: Offset) -> TimeIndex {
        TimeIndex { base, entries: Vec::new(), bad: Vec::new() }
    }

    /// Nothing is added when the timestamp does not rise.
    fn push(&mut self, timestamp: WallMs, offset: Offset) {
        if self.entries.last().is_some_and(|last| last.0 >= timestamp.0) {
            return;
        }
        let at = relative(self.base, offset).expect("the log rolls when `covers` says no");
        assert!(self.entries.last().is_none_or(|last| last.1 < at));
        self.entries.push((timestamp.0, at));
    }

    fn truncate(&mut self, to: Offset) {
        let keep = self.entries.partition_point(|entry| self.base.0.saturating_add(entry.1.into()) < to.0);
        self.entries.truncate(keep);
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn entries(&self) -> impl Iterator<Item = (WallMs, Offset)> {
        self.entries.iter().map(|entry| self.entry(*entry))
    }

    pub fn last(&self) -> Option<(WallMs, Offset)> {
        self.entries.last().map(|entry| self.entry(*entry))
    }

    /// The last entry at or before `timestamp`.
    pub fn floor(&self, timestamp: WallMs) -> Option<TimeEntry> {
        let above = self.entries.partition_point(|entry| entry.0 <= timestamp.0);
        trusted(&self.bad, above).map(|number| {
            let (timestamp, last) = self.entry(self.entries[number]);
            TimeEntry { number, timestamp, last }
        })
    }

    fn entry(&self, (timestamp, at): (i64, u32)) -> (WallMs, Offset) {
        (WallMs(timestamp), Offset(self.base.0.saturating_add(at.into())))
    }

    pub fn encode(&self) -> Vec<u8> {
        self.encode_from(0)
    }

    /// The file's bytes from `from` on, which need not be where an entry begins.
    pub fn encode_from(&self, from: usize) -> Vec<u8> {
        let first = from / TIME_ENTRY_BYTES;
        let entries = self.entries.get(first..).unwrap_or_default();
        let mut bytes = Vec::with_capacity(entries.len() * TIME_ENTRY_BYTES);
        for (timestamp, at) in entries {
            bytes.extend(timestamp.to_be_bytes());
            bytes.extend(at.to_be_bytes());
        }
        bytes.drain(..(from % TIME_ENTRY_BYTES).min(bytes.len()));
        bytes
    }

    /// `end`: the offset behind the segment's last record, which every entry lies below.
    pub fn decode(base: Offset, end: Offset, bytes: &[u8]) -> Result<TimeIndex, IndexError> {
        let (entries, []) = bytes.as_chunks::<TIME_ENTRY_BYTES>() else {
            return Err(IndexError::Length { bytes: bytes.len(), entry_bytes: TIME_ENTRY_BYTES });
        };
        let mut index = TimeIndex { base, entries: Vec::with_capacity(entries.len()), bad: Vec::new() };
        for (entry, bytes) in entries.iter().enumerate() {
            let [a, b, c, d, e, f, g, h, rest @ ..] = *bytes;
            let timestamp = i64::from_be_bytes([a, b, c, d, e, f, g, h]);
            let at = u32::from_be_bytes(rest);
            if at > i32::MAX as u32 || base.0.saturating_add(at.into()) >= end.0 {
                return Err(IndexError::Offset { entry });
            }
            if timestamp < 0 {
                return Err(IndexError::Timestamp { entry, timestamp });
            }
            if index.entries.last().is_some_and(|last| last.0 >= timestamp || last.1 >= at) {
                return Err(IndexError::Order { entry });
            }
            index.entries.push((timestamp, at));
        }
        Ok(index)
    }
}

/// `offset` less `base`, if that is in 31 bits.
fn relative(base: Offset, offset: Offset) -> Option<u32> {
    offset.0.checked_sub(base.0).and_then(|at| i32::try_from(at).ok()).and_then(|at| u32::try_from(at).ok())
}

/// Why a file is no index of its segment. Entries count from 0. An index is derived: what is wrong is made anew from the `.log`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexError {
    /// Not a whole number of entries.
    Length {
        bytes: usize,
        entry_bytes: usize,
    },
    /// A relative offset that is negative, or at or behind the segment's end.
    Offset {
        entry: usize,
    },
    /// Behind the segment's end.
    Position {
        entry: usize,
        position: u32,
        segment_bytes: u32,
    },
    Timestamp {
        entry: usize,
        timestamp: i64,
    },
    /// Does not rise above the entry before.
    Order {
        entry: usize,
    },
}

impl IndexError {
    /// Where in the file.
    pub fn position(&self, entry_bytes: usize) -> u64 {
        let bytes = match self {
            IndexError::Length { bytes, .. } => bytes / entry_bytes * entry_bytes,
            IndexError::Offset { entry }
            | IndexError::Position { entry, .. }
            | IndexError::Timestamp { entry, .. }
            | IndexError::Order { entry } => entry * entry_bytes,
        };
        bytes as u64
    }
}

impl fmt::Display for IndexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IndexError::Length { bytes, entry_bytes } => {
                write!(f, "{bytes} bytes are not whole entries of {entry_bytes}")
            }
            IndexError::Offset { entry } => write!(f, "entry {entry}: its offset is outside the segment"),
            IndexError::Position { entry, position, segment_bytes } => {
                write!(f, "entry {entry}: position {position} is outside the segment of {segment_bytes} bytes")
            }
            IndexError::Timestamp { entry, timestamp } => write!(f, "entry {entry}: impossible timestamp {timestamp}"),
            IndexError::Order { entry } => write!(f, "entry {entry} does not rise above the one before"),
        }
    }
}
impl std::error::Error for IndexError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Batches of one record each step, `bytes` long, with these timestamps.
    fn batches(base: i64, bytes: u32, timestamps: &[i64]) -> Vec<IndexedBatch> {
        let batch = |(i, timestamp): (usize, &i64)| IndexedBatch {
            last: Offset(base + 3 * i as i64 + 2),
            position: Position(i as u32 * bytes),
            bytes,
            max_timestamp: WallMs(*timestamp),
        };
        timestamps.iter().enumerate().map(batch).collect()
    }
    fn indexed(batches: &[IndexedBatch], interval: u32) -> SegmentIndex {
        let mut index = SegmentIndex::new(Offset(100), 10 << 20);
        batches.iter().for_each(|batch| index.push(*batch, interval));
        index
    }

    #[test]
    fn entries_are_where_kafka_puts_them() {
        // 100 bytes a batch, more than 150 between entries: batches 2, 4, 6 are noted, by their last offset.
        let mut index = indexed(&batches(100, 100, &[10, 11, 9, 9, 20, 20, 15, 30]), 150);
        assert_eq!(index.offsets.entries, [(8, 200), (14, 400), (20, 600)]);
        // In front of batch 2 the largest is 11, of batch 1; in front of batch 6 it is still the first 20.
        assert_eq!(index.times.entries, [(11, 5), (20, 14)]);
        assert_eq!(index.max_timestamp(), Some((WallMs(30), Offset(123))));
        index.seal();
        index.seal();
        assert_eq!(index.times.entries, [(11, 5), (20, 14), (30, 23)]);
        // Exactly the interval is not yet more than it.
        assert_eq!(indexed(&batches(100, 100, &[1, 2, 3, 4, 5]), 200).offsets.entries, [(11, 300)]);
        let untimed = indexed(&batches(100, 100, &[-1; 9]), 0);
        assert_eq!((untimed.offsets.len(), untimed.times.len(), untimed.max_timestamp()), (8, 0, None));
    }

    #[test]
    fn a_search_never_overshoots() {
        let timestamps: Vec<i64> = (0..300).map(|i| 1000 + (i * 37 % 50) + i / 3).collect();
        let batches = batches(100, 100, &timestamps);
        let mut index = indexed(&batches, 250);
        index.seal();
        for distrusted in 0..8 {
            // The same with entries that are not gone by.
            if distrusted > 0 {
                index.distrust(Entry::Offset(distrusted * 7));
                index.distrust(Entry::Time(distrusted));
            }
            for (i, batch) in batches.iter().enumerate() {
                for offset in batch.last.0 - 2..=batch.last.0 {
                    assert!(index.position(Offset(offset)) <= batch.position);
                }
                let first = batches.iter().find(|other| other.max_timestamp >= batch.max_timestamp).unwrap();
                assert!(index.position_at(batch.max_timestamp).0 <= first.position, "{i}");
            }
            assert_eq!(index.times.last(), index.max_timestamp());
        }
    }

    #[test]
    fn a_cut_gives_what_would_have_been() {
        let timestamps: Vec<i64> = (0..60).map(|i| 1000 + (i * 37 % 50) + i / 3).collect();
        let batches = batches(100, 100, &timestamps);
        for keep in 0..=batches.len() {
            let mut cut = indexed(&batches, 250);
            let to = batches.get(keep).map_or(Offset(1000), |batch| Offset(batch.last.0 - 2));
            let from = cut.truncate(to);
            assert!(batches.get(keep).is_none_or(|batch| from <= batch.position));
            for batch in batches[..keep].iter().filter(|batch| batch.position >= from) {
                cut.push(*batch, 250);
            }
            assert_eq!(cut, indexed(&batches[..keep], 250), "{keep}");
        }
    }

    #[test]
    fn a_decoded_index_goes_on_where_it_was() {
        let batches = batches(100, 100, &[10, 11, 9, 9, 20, 20, 15, 30, 31, 32, 33]);
        let index = indexed(&batches, 150);
        let offsets = OffsetIndex::decode(Offset(100), 1100, &index.offsets.encode()).unwrap();
        let times = TimeIndex::decode(Offset(100), Offset(133), &index.times.encode()).unwrap();
        let mut resumed = SegmentIndex::resume(offsets, times, 10 << 20);
        let from = resumed.resume_at();
        assert_eq!(from, Position(1000));
        batches.iter().filter(|batch| batch.position >= from).for_each(|batch| resumed.push(*batch, 150));
        assert_eq!(resumed, index);
    }

    #[test]
    fn a_full_index_takes_no_more_but_the_seal() {
        let timestamps: Vec<i64> = (1..20).collect();
        let mut index = SegmentIndex::new(Offset(100), 47);
        for batch in batches(100, 100, &timestamps) {
            index.push(batch, 0);
        }
        // 47 bytes: 5 offset entries, 3 time entries of which one is kept.
        assert!(index.full());
        assert_eq!((index.offsets.len(), index.times.len()), (2, 2));
        index.seal();
        assert_eq!(index.times.len(), 3);
        assert!(index.times.encode().len() <= 47);
        assert!(SegmentIndex::new(Offset(0), 0).full());
        assert!(index.covers(Offset(100 + i64::from(i32::MAX))));
        assert!(!index.covers(Offset(101 + i64::from(i32::MAX))));
        assert!(!index.covers(Offset(99)));
        assert!(!SegmentIndex::new(Offset(1), 0).covers(Offset(i64::MIN)));
    }

    #[test]
    fn damage_has_a_name() {
        let index = indexed(&batches(100, 100, &[10, 11, 12, 13, 14]), 0);
        let (offsets, times) = (index.offsets.encode(), index.times.encode());
        assert_eq!((offsets.len(), times.len()), (32, 48));
        let offset = |bytes: &[u8]| OffsetIndex::decode(Offset(100), 500, bytes);
        let time = |bytes: &[u8]| TimeIndex::decode(Offset(100), Offset(115), bytes);
        assert_eq!((offset(&offsets), time(&times)), (Ok(index.offsets.clone()), Ok(index.times.clone())));
        for length in 0..times.len() {
            assert_eq!(offset(&offsets[..length.min(32)]).is_ok(), length >= 32 || length % 8 == 0);
            assert_eq!(time(&times[..length]).is_ok(), length % 12 == 0);
        }
        let with = |bytes: &[u8], at: usize, byte: u8| {
            let mut bytes = bytes.to_vec();
            bytes[at] = byte;
            bytes
        };
        assert_eq!(offset(&with(&offsets, 8, 0x80)), Err(IndexError::Offset { entry: 1 }));
        assert_eq!(
            offset(&with(&offsets, 30, 2)),
            Err(IndexError::Position { entry: 3, position: 656, segment_bytes: 500 })
        );
        assert_eq!(offset(&with(&offsets, 11, 5)), Err(IndexError::Order { entry: 1 }));
        assert_eq!(offset(&with(&offsets, 15, 100)), Err(IndexError::Order { entry: 1 }));
        assert_eq!(time(&with(&times, 47, 15)), Err(IndexError::Offset { entry: 3 }));
        assert_eq!(time(&with(&times, 8, 0xff)), Err(IndexError::Offset { entry: 0 }));
        assert_eq!(time(&with(&times, 0, 0x80)), Err(IndexError::Timestamp { entry: 0, timestamp: i64::MIN + 11 }));
        assert_eq!(time(&with(&times, 19, 11)), Err(IndexError::Order { entry: 1 }));
        assert_eq!(offset(&[0; 16]), Err(IndexError::Order { entry: 1 }));
    }
}
