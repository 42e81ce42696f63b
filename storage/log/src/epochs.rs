//! Which leader epoch wrote which records of one log (KIP-101, KIP-320): an epoch and the offset of its first record.

use std::fmt;
use std::fmt::Write;

use ringmain_types::{LeaderEpoch, Offset};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochStart {
    pub epoch: LeaderEpoch,
    pub start: Offset,
}

/// Both columns rise strictly from entry to entry. At most `max` entries: past it the oldest go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderEpochs {
    entries: Vec<EpochStart>,
    max: usize,
}

impl LeaderEpochs {
    /// Empty. `max` is `Limits::epochs_per_log_max`.
    pub fn new(max: u32) -> LeaderEpochs {
        assert!(max > 0);
        LeaderEpochs { entries: Vec::new(), max: max as usize }
    }

    /// The record at `start`, and those behind it, are of `epoch`. Entries that this contradicts go: a later start or a later epoch
    /// belongs to a history that was cut off. Returns whether anything changed.
    pub fn assign(&mut self, epoch: LeaderEpoch, start: Offset) -> bool {
        if epoch.0 < 0 || start.0 < 0 {
            return false;
        }
        if self.entries.last().is_some_and(|last| last.epoch == epoch && last.start <= start) {
            return false;
        }
        while self.entries.last().is_some_and(|last| last.epoch >= epoch || last.start >= start) {
            self.entries.pop();
        }
        if self.entries.len() == self.max {
            self.entries.remove(0);
        }
        self.entries.push(EpochStart { epoch, start });
        true
    }

    /// The log now ends at `to`. Returns whether anything changed.
    pub fn truncate_end(&mut self, to: Offset) -> bool {
        let keep = self.entries.partition_point(|entry| entry.start < to);
        let changed = keep < self.entries.len();
        self.entries.truncate(keep);
        changed
    }

    /// The log now starts at `to`: the epoch of the record at `to` starts there. Returns whether anything changed.
    pub fn truncate_start(&mut self, to: Offset) -> bool {
        let below = self.entries.partition_point(|entry| entry.start <= to);
        if below == 0 || (below == 1 && self.entries[0].start == to) {
            return false;
        }
        self.entries.drain(..below - 1);
        self.entries[0].start = to;
        true
    }

    pub fn clear(&mut self) {
        self.entries.clear();
    }

    pub fn entries(&self) -> &[EpochStart] {
        &self.entries
    }

    pub fn latest(&self) -> Option<EpochStart> {
        self.entries.last().copied()
    }

    /// The answer to OffsetForLeaderEpoch: the largest epoch at most `asked`, and the offset behind its last record; `end` is the
    /// log's. (-1, -1) for an epoch that is not known yet. An epoch before the first known one ends where the first begins.
    pub fn epoch_end(&self, asked: LeaderEpoch, end: Offset) -> (LeaderEpoch, Offset) {
        let unknown = (LeaderEpoch(-1), Offset(-1));
        if asked.0 < 0 {
            return unknown;
        }
        let above = self.entries.partition_point(|entry| entry.epoch <= asked);
        match (above.checked_sub(1).map(|at| self.entries[at]), self.entries.get(above)) {
            (Some(last), None) if last.epoch == asked => (asked, end),
            (_, None) => unknown,
            (None, Some(first)) => (asked, first.start),
            (Some(floor), Some(next)) => (floor.epoch, next.start),
        }
    }

    /// The epoch of the record at `offset`; -1 below the first known one.
    pub fn epoch_of(&self, offset: Offset) -> LeaderEpoch {
        let above = self.entries.partition_point(|entry| entry.start <= offset);
        above.checked_sub(1).map_or(LeaderEpoch(-1), |at| self.entries[at].epoch)
    }

    /// The text of `leader-epoch-checkpoint`: a version (0), the number of lines, then `epoch offset` a line.
    pub fn encode(&self) -> String {
        let mut text = format!("0\n{}\n", self.entries.len());
        for entry in &self.entries {
            // Writing to a String does not fail.
            let _ = writeln!(text, "{} {}", entry.epoch.0, entry.start.0);
        }
        text
    }

    /// Of a file with more than `max` entries the newest are kept.
    pub fn decode(bytes: &[u8], max: u32) -> Result<LeaderEpochs, EpochsError> {
        let text = std::str::from_utf8(bytes).map_err(|_| EpochsError::Text)?;
        let mut lines = text.lines();
        let version = lines.next().unwrap_or_default();
        if version != "0" {
            return Err(EpochsError::Version(version.chars().take(16).collect()));
        }
        let claimed: usize = lines.next().and_then(|line| line.parse().ok()).ok_or(EpochsError::Line { line: 2 })?;
        let mut epochs = LeaderEpochs::new(max);
        let mut found = 0usize;
        for (at, line) in lines.enumerate() {
            let entry = parse(line).ok_or(EpochsError::Line { line: at + 3 })?;
            if epochs.latest().is_some_and(|last| last.epoch >= entry.epoch || last.start >= entry.start) {
                return Err(EpochsError::Order { line: at + 3 });
            }
            epochs.assign(entry.epoch, entry.start);
            found += 1;
        }
        if found != claimed || !text.ends_with('\n') {
            return Err(EpochsError::Count { claimed, found });
        }
        Ok(epochs)
    }
}

fn parse(line: &str) -> Option<EpochStart> {
    let (epoch, start) = line.split_once(' ')?;
    let entry = EpochStart { epoch: LeaderEpoch(epoch.parse().ok()?), start: Offset(start.parse().ok()?) };
    (entry.epoch.0 >= 0 && entry.start.0 >= 0).then_some(entry)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EpochsError {
    /// Not UTF-8.
    Text,
    /// A version that this broker does not know.
    Version(String),
    /// This line, counted from 1, is not what belongs there.
    Line { line: usize },
    /// This line does not rise above the one before.
    Order { line: usize },
    /// Cut off: the second line claims another number, or the last has no end.
    Count { claimed: usize, found: usize },
}

impl fmt::Display for EpochsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EpochsError::Text => f.write_str("not a text"),
            EpochsError::Version(version) => write!(f, "version {version:?} is not 0"),
            EpochsError::Line { line } => write!(f, "line {line} is malformed"),
            EpochsError::Order { line } => write!(f, "line {line} does not rise above the one before"),
            EpochsError::Count { claimed, found } => write!(f, "{claimed} entries are claimed, {found} are there"),
        }
    }
}
impl std::error::Error for EpochsError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn epochs(pairs: &[(i32, i64)]) -> LeaderEpochs {
        let mut epochs = LeaderEpochs::new(16);
        for (epoch, start) in pairs {
            assert!(epochs.assign(LeaderEpoch(*epoch), Offset(*start)));
        }
        epochs
    }
    fn pairs(epochs: &LeaderEpochs) -> Vec<(i32, i64)> {
        epochs.entries().iter().map(|entry| (entry.epoch.0, entry.start.0)).collect()
    }
    fn end_of(epochs: &LeaderEpochs, asked: i32) -> (i32, i64) {
        let (epoch, end) = epochs.epoch_end(LeaderEpoch(asked), Offset(100));
        (epoch.0, end.0)
    }

    #[test]
    fn an_epoch_ends_where_the_next_begins() {
        let epochs = epochs(&[(2, 10), (3, 20), (7, 50)]);
        assert_eq!(end_of(&epochs, -1), (-1, -1));
        assert_eq!(end_of(&epochs, 1), (1, 10));
        assert_eq!(end_of(&epochs, 2), (2, 20));
        assert_eq!(end_of(&epochs, 5), (3, 50));
        assert_eq!(end_of(&epochs, 7), (7, 100));
        assert_eq!(end_of(&epochs, 8), (-1, -1));
        assert_eq!(end_of(&LeaderEpochs::new(1), 0), (-1, -1));
        for (offset, epoch) in [(9, -1), (10, 2), (19, 2), (20, 3), (49, 3), (50, 7), (99, 7)] {
            assert_eq!(epochs.epoch_of(Offset(offset)), LeaderEpoch(epoch));
        }
    }

    #[test]
    fn an_assignment_removes_what_it_contradicts() {
        let mut known = epochs(&[(1, 0), (2, 10), (3, 20)]);
        assert!(!known.assign(LeaderEpoch(3), Offset(25)));
        assert!(known.assign(LeaderEpoch(4), Offset(20)), "epoch 3 wrote nothing");
        assert_eq!(pairs(&known), [(1, 0), (2, 10), (4, 20)]);
        assert!(known.assign(LeaderEpoch(2), Offset(30)), "back to an older history");
        assert_eq!(pairs(&known), [(1, 0), (2, 30)]);
        assert!(!known.assign(LeaderEpoch(-1), Offset(40)));
    }

    #[test]
    fn cuts_at_both_ends() {
        let mut known = epochs(&[(1, 0), (2, 10), (3, 20)]);
        assert!(!known.truncate_end(Offset(21)));
        assert!(known.truncate_end(Offset(20)));
        assert_eq!(pairs(&known), [(1, 0), (2, 10)]);
        assert!(known.truncate_start(Offset(5)));
        assert_eq!(pairs(&known), [(1, 5), (2, 10)]);
        assert!(!known.truncate_start(Offset(5)));
        assert!(!known.truncate_start(Offset(4)));
        assert!(known.truncate_start(Offset(10)));
        assert_eq!(pairs(&known), [(2, 10)]);
        assert!(known.truncate_start(Offset(1000)));
        assert_eq!(pairs(&known), [(2, 1000)]);
        assert!(known.truncate_end(Offset(0)));
        assert_eq!(known.latest(), None);
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many() {
        let mut known = LeaderEpochs::new(3);
        for epoch in 0..5 {
            known.assign(LeaderEpoch(epoch), Offset(i64::from(epoch) * 10));
        }
        assert_eq!(pairs(&known), [(2, 20), (3, 30), (4, 40)]);
        assert_eq!(known.epoch_of(Offset(5)), LeaderEpoch(-1));
        let text = epochs(&[(0, 0), (1, 10), (2, 20), (3, 30), (4, 40)]).encode();
        assert_eq!(LeaderEpochs::decode(text.as_bytes(), 3), Ok(known));
    }

    #[test]
    fn the_file_reads_as_kafkas() {
        let known = epochs(&[(0, 0), (5, 12)]);
        assert_eq!(known.encode(), "0\n2\n0 0\n5 12\n");
        assert_eq!(LeaderEpochs::decode(known.encode().as_bytes(), 16), Ok(known));
        assert_eq!(LeaderEpochs::decode(b"0\n0\n", 16), Ok(LeaderEpochs::new(16)));
    }

    #[test]
    fn damage_has_a_name() {
        let whole = epochs(&[(0, 0), (5, 12)]).encode();
        for length in 0..whole.len() {
            assert!(LeaderEpochs::decode(&whole.as_bytes()[..length], 16).is_err(), "{length}");
        }
        let decode = |text: &str| LeaderEpochs::decode(text.as_bytes(), 16).unwrap_err();
        assert_eq!(decode("1\n0\n"), EpochsError::Version("1".into()));
        assert_eq!(decode("0\nx\n"), EpochsError::Line { line: 2 });
        assert_eq!(decode("0\n1\n0 x\n"), EpochsError::Line { line: 3 });
        assert_eq!(decode("0\n1\n-1 0\n"), EpochsError::Line { line: 3 });
        assert_eq!(decode("0\n2\n1 5\n2 5\n"), EpochsError::Order { line: 4 });
        assert_eq!(decode("0\n2\n1 5\n1 6\n"), EpochsError::Order { line: 4 });
        assert_eq!(decode("0\n99999999\n1 5\n"), EpochsError::Count { claimed: 99_999_999, found: 1 });
        assert_eq!(LeaderEpochs::decode(&[0xff], 16), Err(EpochsError::Text));
    }
}
