//! What one log remembers of its idempotent producers (KIP-98): enough to tell a retry from news, and a gap from both.
//!
//! The state follows from the log's batches alone: `apply` is called for each, at an append and at recovery alike. Retention and
//! DeleteRecords do not touch it: a producer may go on when its first records are gone. Time does, and a bound on their number.

use std::collections::{BTreeMap, BTreeSet};

use ringmain_batch::{BatchInfo, Producer};
use ringmain_types::{ErrorCode, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, WallMs};

use crate::ProducerView;
use crate::snapshot::SnapshotRow;

/// How many batches of a producer are remembered: as many as a client may have in flight with idempotence.
pub const BATCHES: usize = 5;
/// Sequences run from 0 to `i32::MAX` and then from 0 again.
const SEQUENCE_MASK: i32 = i32::MAX;
/// Producers whose first batch was refused, per log; past it the lowest id is forgotten.
const REFUSED_MAX: usize = 1024;

/// What `check` says of a batch that may be answered without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// News: append it.
    Accept,
    /// A retry of a remembered batch: answer what that got.
    Duplicate { base: Offset, timestamp: WallMs },
}

/// What a truncation left of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truncated {
    /// The state is what the remaining batches give.
    Exact,
    /// A producer lost everything that was remembered, so that what it wrote before is not known: rebuild from a snapshot at or
    /// below the cut, and the batches behind that.
    Rebuild,
}

/// The producers of one log, at most `max` of them: past it the longest silent one is forgotten.
#[derive(Clone, Debug)]
pub struct ProducerState {
    entries: BTreeMap<ProducerId, Entry>,
    /// The same producers by their last record's offset: the longest silent one first.
    silence: BTreeSet<(Offset, ProducerId)>,
    /// Not known yet, for their first batch found no room: what they sent behind it must not get in front.
    refused: BTreeMap<ProducerId, (ProducerEpoch, Sequence)>,
    max: usize,
}

#[derive(Clone, Debug)]
struct Entry {
    epoch: ProducerEpoch,
    /// When its last batch was appended, or loaded: not a client's timestamp, which may lie anywhere.
    heard: WallMs,
    /// The newest batches of this epoch, oldest first; `len` of them, each following on the one before. None when only the epoch is
    /// known.
    batches: [Batch; BATCHES],
    len: u8,
    /// Records up to the newest that are known to follow on one another: those of `batches` and what was before. A batch of these
    /// that is no longer remembered was certainly appended.
    run: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Batch {
    first: Sequence,
    last: Sequence,
    base: Offset,
    timestamp: WallMs,
}

impl ProducerState {
    /// Empty. `max` is `Limits::producers_per_log_max`.
    pub fn new(max: u32) -> ProducerState {
        assert!(max > 0);
        ProducerState {
            entries: BTreeMap::new(),
            silence: BTreeSet::new(),
            refused: BTreeMap::new(),
            max: max as usize,
        }
    }

    /// From a snapshot's rows; the batches behind it are still to be applied. A producer without a batch here is as silent as its
    /// snapshot: it has from `now` on the full time.
    pub fn from_rows(rows: &[SnapshotRow], max: u32, now: WallMs) -> ProducerState {
        let mut state = ProducerState::new(max);
        for row in rows {
            if row.last_offset.0 < 0 {
                state.update(now, row.id, row.epoch, None);
                continue;
            }
            let first = Sequence(row.last_sequence.0.wrapping_sub(row.offset_delta) & SEQUENCE_MASK);
            let base = Offset(row.last_offset.0 - i64::from(row.offset_delta));
            let batch = Batch { first, last: row.last_sequence, base, timestamp: row.timestamp };
            state.update(now, row.id, row.epoch, Some(batch));
        }
        state
    }

    /// What to do with a batch of `producer`, before anything of it is written.
    ///
    /// `InvalidProducerEpoch` (47) for an epoch that was replaced; `OutOfOrderSequenceNumber` (45) for a gap, and for a new epoch
    /// that does not begin at 0; `DuplicateSequenceNumber` (46) for a batch that was certainly appended, but so long ago that its
    /// offset is forgotten: clients take it as done. A producer that is not known may begin anywhere, unless it was refused somewhere else.
    pub fn check(&self, producer: &Producer) -> Result<Verdict, ErrorCode> {
        let Some(entry) = self.entries.get(&producer.id) else {
            let refused = self.refused.get(&producer.id).filter(|(epoch, _)| *epoch == producer.epoch);
            let behind = refused.is_some_and(|(_, first)| *first != producer.first);
            return if behind { Err(ErrorCode::OutOfOrderSequenceNumber) } else { Ok(Verdict::Accept) };
        };
        if producer.epoch < entry.epoch {
            return Err(ErrorCode::InvalidProducerEpoch);
        }
        let newest = entry.remembered().last();
        let (Some(newest), true) = (newest, producer.epoch == entry.epoch) else {
            let begins = producer.first == Sequence(0);
            return if begins { Ok(Verdict::Accept) } else { Err(ErrorCode::OutOfOrderSequenceNumber) };
        };
        let same = |batch: &&Batch| batch.first == producer.first && batch.last == producer.last;
        if let Some(batch) = entry.remembered().iter().find(same) {
            return Ok(Verdict::Duplicate { base: batch.base, timestamp: batch.timestamp });
        }
        if producer.first == following(newest.last) {
            return Ok(Verdict::Accept);
        }
        let remembered = records(entry.remembered()[0].first, newest.last);
        let from = records(producer.first, newest.last);
        let behind = records(producer.last, newest.last) - 1;
        let forgotten = behind >= remembered && from > behind && from <= entry.run;
        Err(if forgotten { ErrorCode::DuplicateSequenceNumber } else { ErrorCode::OutOfOrderSequenceNumber })
    }

    /// A batch of `producer` found no room, though nothing else was wrong with it; it will come again.
    pub fn refuse(&mut self, producer: &Producer) {
        let known = self.entries.contains_key(&producer.id);
        let before = self.refused.get(&producer.id).is_some_and(|(epoch, _)| *epoch == producer.epoch);
        if known || before {
            return;
        }
        if self.refused.len() == REFUSED_MAX {
            self.refused.pop_first();
        }
        self.refused.insert(producer.id, (producer.epoch, producer.first));
    }

    /// A batch stands in the log at `base`. Nothing is checked: what stands there was accepted, here or by another leader.
    pub fn apply(&mut self, now: WallMs, base: Offset, info: &BatchInfo) {
        let Some(producer) = info.producer.filter(|_| !info.control) else { return };
        let batch = Batch { first: producer.first, last: producer.last, base, timestamp: info.max_timestamp };
        self.update(now, producer.id, producer.epoch, Some(batch));
    }

    fn update(&mut self, now: WallMs, id: ProducerId, epoch: ProducerEpoch, batch: Option<Batch>) {
        if !self.entries.contains_key(&id) && self.entries.len() == self.max {
            self.forget_longest_silent();
        }
        self.refused.remove(&id);
        let entry = self.entries.entry(id).or_insert_with(|| Entry::new(epoch, now));
        self.silence.remove(&(entry.last_offset(), id));
        if entry.epoch != epoch {
            *entry = Entry::new(epoch, now);
        }
        entry.heard = now;
        if let Some(batch) = batch {
            entry.push(batch);
        }
        self.silence.insert((entry.last_offset(), id));
    }

    /// The log now ends at `to`.
    pub fn truncate(&mut self, to: Offset) -> Truncated {
        let cut: Vec<_> = self.silence.range((to, ProducerId(i64::MIN))..).copied().collect();
        let mut left = Truncated::Exact;
        for (last, id) in cut {
            self.silence.remove(&(last, id));
            let Some(entry) = self.entries.get_mut(&id) else { continue };
            entry.truncate(to);
            if entry.len > 0 {
                self.silence.insert((entry.last_offset(), id));
            } else {
                self.entries.remove(&id);
                left = Truncated::Rebuild;
            }
        }
        left
    }

    /// Forgets who has been silent for `after_ms` (`producer.id.expiration.ms`). Returns how many.
    pub fn expire(&mut self, now: WallMs, after_ms: u64) -> usize {
        let before = self.entries.len();
        while let Some((_, id)) = self.silence.first() {
            let heard = self.entries.get(id).map_or(WallMs(i64::MIN), |entry| entry.heard);
            if u64::try_from(now.0.saturating_sub(heard.0)).unwrap_or(0) < after_ms {
                break;
            }
            self.forget_longest_silent();
        }
        before - self.entries.len()
    }

    fn forget_longest_silent(&mut self) {
        if let Some((_, id)) = self.silence.pop_first() {
            self.entries.remove(&id);
        }
    }

    /// Whether a retry can be told by the batch that ends at `last`: its sequence must outlive its records, or who makes the state anew
    /// from the batches would not know it. When nothing that is remembered is below `flushed`, a crash may leave an older one the newest.
    pub fn needs(&self, id: ProducerId, last: Offset, flushed: Offset) -> bool {
        let Some(entry) = self.entries.get(&id) else { return false };
        let remembered = entry.remembered();
        remembered.iter().any(|batch| batch.last_offset() == last)
            || remembered.first().is_some_and(|oldest| last < oldest.base && oldest.base >= flushed)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What DescribeProducers shows, by rising id.
    pub fn views(&self, out: &mut Vec<ProducerView>) {
        out.extend(self.entries.iter().map(|(id, entry)| {
            let newest = entry.remembered().last();
            ProducerView {
                id: *id,
                epoch: entry.epoch,
                last_sequence: newest.map_or(Sequence(-1), |batch| batch.last),
                last_timestamp: newest.map_or(WallMs(-1), |batch| batch.timestamp),
            }
        }));
    }

    /// What a snapshot holds, by rising id, the oldest batch of each producer first.
    pub fn rows(&self) -> Vec<SnapshotRow> {
        let mut rows = Vec::with_capacity(self.entries.len());
        for (id, entry) in &self.entries {
            let row = SnapshotRow {
                id: *id,
                epoch: entry.epoch,
                last_sequence: Sequence(-1),
                last_offset: Offset(-1),
                offset_delta: 0,
                timestamp: WallMs(-1),
                coordinator_epoch: LeaderEpoch(-1),
                txn_start: None,
            };
            if entry.len == 0 {
                rows.push(row);
            }
            rows.extend(entry.remembered().iter().map(|batch| SnapshotRow {
                last_sequence: batch.last,
                last_offset: batch.last_offset(),
                offset_delta: (records(batch.first, batch.last) - 1) as i32,
                timestamp: batch.timestamp,
                ..row
            }));
        }
        rows
    }
}

impl Entry {
    fn new(epoch: ProducerEpoch, now: WallMs) -> Entry {
        Entry { epoch, heard: now, batches: [Batch::default(); BATCHES], len: 0, run: 0 }
    }

    fn push(&mut self, batch: Batch) {
        let follows = self.remembered().last().is_some_and(|newest| batch.first == following(newest.last));
        if !follows {
            self.len = 0;
            self.run = 0;
        }
        if usize::from(self.len) == BATCHES {
            self.batches.rotate_left(1);
            self.len -= 1;
        }
        self.batches[usize::from(self.len)] = batch;
        self.len += 1;
        // A run as long as the sequence space says nothing more: every sequence was there once.
        self.run = self.run.saturating_add(records(batch.first, batch.last)).min(SEQUENCE_MASK as u32);
    }

    fn truncate(&mut self, to: Offset) {
        while let Some(newest) = self.remembered().last().filter(|newest| newest.last_offset() >= to) {
            self.run = self.run.saturating_sub(records(newest.first, newest.last));
            self.len -= 1;
        }
    }

    fn remembered(&self) -> &[Batch] {
        &self.batches[..usize::from(self.len)]
    }

    /// -1 without a batch.
    fn last_offset(&self) -> Offset {
        self.remembered().last().map_or(Offset(-1), Batch::last_offset)
    }
}

impl Batch {
    fn last_offset(&self) -> Offset {
        Offset(self.base.0 + i64::from(records(self.first, self.last) - 1))
    }
}

/// The sequence behind this one.
fn following(sequence: Sequence) -> Sequence {
    Sequence(sequence.0.wrapping_add(1) & SEQUENCE_MASK)
}

/// How many records lie from `first` to `last`, both included, across the wrap: 1 to 2^31.
fn records(first: Sequence, last: Sequence) -> u32 {
    (last.0.wrapping_sub(first.0) & SEQUENCE_MASK) as u32 + 1
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use ringmain_batch::Codec;

    use super::*;
    use crate::snapshot;

    fn info(producer: Producer, timestamp: i64) -> BatchInfo {
        BatchInfo {
            bytes: 100,
            offsets: records(producer.first, producer.last),
            codec: Codec::None,
            transactional: false,
            control: false,
            log_append_time: false,
            base_timestamp: WallMs(timestamp),
            max_timestamp: WallMs(timestamp),
            producer: Some(producer),
        }
    }

    #[test]
    fn what_was_sent_behind_a_refused_first_batch_does_not_get_in_front() {
        let batch = |epoch, first: i32| Producer {
            id: ProducerId(7),
            epoch: ProducerEpoch(epoch),
            first: Sequence(first),
            last: Sequence(first),
        };
        let mut state = ProducerState::new(4);
        assert_eq!(state.check(&batch(0, 1)), Ok(Verdict::Accept), "nothing is known of it");
        state.refuse(&batch(0, 0));
        state.refuse(&batch(0, 1));
        assert_eq!(state.check(&batch(0, 1)), Err(ErrorCode::OutOfOrderSequenceNumber));
        assert_eq!(state.check(&batch(1, 0)), Ok(Verdict::Accept), "it began anew");
        assert_eq!(state.check(&batch(0, 0)), Ok(Verdict::Accept));
        state.apply(WallMs(1), Offset(0), &info(batch(0, 0), 1));
        assert_eq!(state.check(&batch(0, 1)), Ok(Verdict::Accept));
        assert!(state.refused.is_empty());
    }

    /// A log's end and clock around the state, driven by the lines of a transcript.
    struct Script {
        state: ProducerState,
        end: i64,
        now: WallMs,
        max: u32,
    }

    impl Script {
        fn run(&mut self, command: &str) -> String {
            let words: Vec<&str> = command.split_whitespace().collect();
            let number = |at: usize| words[at].parse::<i64>().unwrap();
            match words[0] {
                "new" => {
                    self.max = number(1) as u32;
                    self.state = ProducerState::new(self.max);
                    self.end = 0;
                    String::new()
                }
                "clock" => {
                    self.now = WallMs(number(1));
                    String::new()
                }
                // send <id> <epoch> <first sequence> <records>
                "send" => self.send(number(1), number(2) as i16, number(3) as i32, number(4) as i32),
                "truncate" => {
                    self.end = number(1);
                    format!("{:?}\n", self.state.truncate(Offset(self.end)))
                }
                "expire" => format!("{} forgotten\n", self.state.expire(self.now, number(1) as u64)),
                "reload" => {
                    let rows = snapshot::decode(&snapshot::encode(&self.state.rows())).unwrap();
                    self.state = ProducerState::from_rows(&rows, self.max, self.now);
                    format!("{} rows\n", rows.len())
                }
                "show" => self.show(),
                other => panic!("unknown command {other}"),
            }
        }

        fn send(&mut self, id: i64, epoch: i16, first: i32, count: i32) -> String {
            let producer = Producer {
                id: ProducerId(id),
                epoch: ProducerEpoch(epoch),
                first: Sequence(first),
                last: Sequence(first.wrapping_add(count - 1) & SEQUENCE_MASK),
            };
            match self.state.check(&producer) {
                Ok(Verdict::Accept) => {
                    let base = self.end;
                    self.state.apply(self.now, Offset(base), &info(producer, self.now.0));
                    self.end += i64::from(count);
                    format!("at {base}\n")
                }
                Ok(Verdict::Duplicate { base, timestamp }) => format!("duplicate of {} ({})\n", base.0, timestamp.0),
                Err(code) => format!("{code:?}\n"),
            }
        }

        fn show(&self) -> String {
            let mut views = Vec::new();
            self.state.views(&mut views);
            assert_eq!(self.state.silence.len(), views.len());
            let mut text = String::new();
            for view in views {
                let (id, epoch) = (view.id.0, view.epoch.0);
                let (sequence, at) = (view.last_sequence.0, view.last_timestamp.0);
                writeln!(text, "producer {id} epoch {epoch} last {sequence} ({at})").unwrap();
            }
            text
        }
    }

    #[test]
    fn transcript() {
        let text = include_str!("../tests/data/producer.txt");
        let mut script = Script { state: ProducerState::new(1), end: 0, now: WallMs(0), max: 1 };
        let mut came = String::new();
        for line in text.lines() {
            if line.is_empty() || line.starts_with('#') {
                came.push_str(line);
                came.push('\n');
            } else if let Some(command) = line.strip_prefix("> ") {
                came.push_str(line);
                came.push('\n');
                came.push_str(&script.run(command));
            }
        }
        assert_eq!(came, text, "\n{came}");
    }

    #[test]
    fn any_five_in_flight_may_be_sent_again_in_any_order() {
        let mut state = ProducerState::new(4);
        let mut end = 0i64;
        let mut first = i32::MAX - 40;
        for _ in 0..30 {
            let batch = |first: i32| Producer {
                id: ProducerId(1),
                epoch: ProducerEpoch(0),
                first: Sequence(first),
                last: Sequence(first.wrapping_add(6) & SEQUENCE_MASK),
            };
            for back in 1..=5 {
                let earlier = first.wrapping_sub(7 * back) & SEQUENCE_MASK;
                let base = end - 7 * i64::from(back);
                let verdict = state.check(&batch(earlier));
                if base >= 0 {
                    assert_eq!(verdict, Ok(Verdict::Duplicate { base: Offset(base), timestamp: WallMs(5) }));
                } else if end > 0 {
                    assert_eq!(verdict, Err(ErrorCode::OutOfOrderSequenceNumber));
                }
            }
            assert_eq!(state.check(&batch(first)), Ok(Verdict::Accept));
            state.apply(WallMs(5), Offset(end), &info(batch(first), 5));
            end += 7;
            first = first.wrapping_add(7) & SEQUENCE_MASK;
        }
    }

    #[test]
    fn a_hostile_snapshot_is_a_state_like_any_other() {
        let row = SnapshotRow {
            id: ProducerId(1),
            epoch: ProducerEpoch(0),
            last_sequence: Sequence(0),
            last_offset: Offset(i64::MAX),
            offset_delta: i32::MAX,
            timestamp: WallMs(i64::MIN),
            coordinator_epoch: LeaderEpoch(i32::MIN),
            txn_start: Some(Offset(i64::MAX)),
        };
        let rows = [row, row, SnapshotRow { last_offset: Offset(-5), ..row }, SnapshotRow { id: ProducerId(2), ..row }];
        let mut state = ProducerState::from_rows(&rows, 1, WallMs(0));
        assert_eq!(state.len(), 1);
        assert_eq!(state.rows().len(), 1);
        assert_eq!(state.truncate(Offset(0)), Truncated::Rebuild);
        assert_eq!(state.expire(WallMs(i64::MAX), 0), 0);
    }
}
