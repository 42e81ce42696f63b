//! How a log's news go out: whole blocks in place, or bytes in the journal.

use ringmain_types::Limits;

use crate::entry::{Checkpoint, ENTRY_BYTES, EPOCH_BYTES, PIECE_BYTES};
use crate::log::Log;
use crate::room::WORDS_BYTES;
use crate::segment::OpenSegment;

/// How one segment's news go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub written_to: u32,
    pub inline_from: u32,
    /// Where what the group tells ends.
    pub to: u32,
}

/// How much of a log a group tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tells {
    /// What no group told yet.
    News,
    /// Everything.
    State,
    /// What was told before, again.
    Again,
}

/// Fewer bytes of whole blocks than this stay inline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Least {
    block: u32,
    /// Where the journal's flush covers them.
    covered: u32,
    /// Where the segment needs a flush of its own.
    fresh: u32,
    /// Whether the journal's flush covers anything.
    covers: bool,
}

impl Least {
    pub fn new(block: u32, limits: &Limits, covers: bool) -> Least {
        // Four segments of a log that have as much inline still fit one group, an eighth of the ring.
        let most = u32::try_from(limits.journal_bytes / 32).unwrap_or(u32::MAX);
        let fresh = limits.fresh_bytes_min.min(most).max(limits.trickle_bytes_max);
        Least { block, covered: limits.trickle_bytes_max, fresh, covers }
    }

    /// Every whole block goes to its file.
    pub fn none(block: u32) -> Least {
        Least { block, covered: block, fresh: block, covers: true }
    }

    /// How far a segment's extents are covered by the journal's flush.
    pub fn covered_to(&self, segment: &OpenSegment) -> u32 {
        if self.covers { segment.covered_to() } else { 0 }
    }

    /// Of one segment. `hold`: no block may be written now.
    pub fn plan(&self, segment: &OpenSegment, hold: bool, tells: Tells) -> Plan {
        let to = if tells == Tells::Again { segment.declared_to } else { segment.end };
        let blocks_to = (to / self.block * self.block).min(segment.writable());
        let ready = segment.file_id().is_some() && !hold;
        let sealing = segment.rolled.as_ref().is_some_and(|rolled| rolled.sealing);
        let least = if blocks_to <= self.covered_to(segment) { self.covered } else { self.fresh };
        let extent = ready && !sealing && blocks_to > segment.written_to && blocks_to - segment.written_to >= least;
        let written_to = if extent { blocks_to } else { segment.written_to };
        let inline_from = if extent || tells != Tells::News { written_to } else { segment.declared_to };
        Plan { written_to, inline_from, to }
    }

    /// Of a log's open segments; again only of those that a group told of, and of a first one, for there is always one.
    pub fn plans(&self, log: &Log, tells: Tells) -> Plans {
        let hold = log.hold || log.at_rest;
        let told = |at: usize, segment: &OpenSegment| tells != Tells::Again || at == 0 || segment.roll_declared;
        let segments = log.open.iter().enumerate().take_while(|(at, segment)| told(*at, segment));
        Plans { tells, of: segments.map(|(_, segment)| self.plan(segment, hold, tells)).collect() }
    }
}

/// Of a log's open segments, oldest first.
#[derive(Debug)]
pub(crate) struct Plans {
    pub tells: Tells,
    pub of: Vec<Plan>,
}

impl Plans {
    /// What a group needs for this, in bytes; at most.
    pub fn bytes(&self, log: &Log) -> usize {
        let inline: usize = self.of.iter().map(|plan| (plan.to - plan.inline_from) as usize).sum();
        let pieces = inline + self.of.len() * PIECE_BYTES + checkpoint_bytes(log, self.tells);
        if self.tells != Tells::News {
            let epochs = log.epochs.entries().len() * EPOCH_BYTES;
            return pieces + ENTRY_BYTES + epochs + log.dir_name().map_or(0, str::len);
        }
        let entries = log.open.len() * 2 + log.pending.sealed.len() + log.pending.epochs.len() + 1;
        pieces + ENTRY_BYTES * entries
    }

    /// What the journal has of the log afterwards, beside a name.
    pub fn kept(&self, log: &Log) -> usize {
        let inline: usize = self.of.iter().map(|plan| (plan.to - plan.written_to) as usize).sum();
        let tells = if self.tells == Tells::Again { Tells::Again } else { Tells::State };
        let entries = ENTRY_BYTES + log.epochs.entries().len() * EPOCH_BYTES + checkpoint_bytes(log, tells);
        inline + self.of.len() * PIECE_BYTES + entries
    }

    /// With its name, and what it may grow by: what saying the log again takes from then on.
    pub fn live(&self, log: &Log) -> u64 {
        (self.kept(log) + log.dir_name().map_or(0, str::len) + WORDS_BYTES) as u64
    }
}

fn checkpoint_bytes(log: &Log, tells: Tells) -> usize {
    log.checkpoint_told(tells).map_or(0, Checkpoint::entry_bytes)
}

#[cfg(test)]
mod tests {
    use ringmain_disk::FileId;
    use ringmain_types::{Offset, WallMs};

    use super::*;
    use crate::segment::SegmentFile;

    const BLOCK: u32 = 512;

    fn segment(end: u32, overwritten: u32) -> OpenSegment {
        let mut segment = OpenSegment::new(Offset(0), 4096, WallMs(0));
        (segment.end, segment.overwritten, segment.allocated) = (end, overwritten, 1 << 20);
        segment.file = SegmentFile::Ready(FileId(1));
        (segment.written_to, segment.declared_to) = (1024, 2000);
        segment
    }
    fn limits() -> Limits {
        Limits { trickle_bytes_max: 1024, fresh_bytes_min: 4096, journal_bytes: 1 << 20, ..Limits::tiny() }
    }

    #[test]
    fn fresh_extents_wait_for_more_than_covered_ones() {
        let cases = [
            (2047, 1 << 16, true, None),
            (2050, 1 << 16, true, Some(2048)),
            (2050, 1 << 16, false, None),
            (2050, 2048, true, Some(2048)),
            (2560, 2048, true, None),
            (5119, 0, true, None),
            (5121, 0, true, Some(5120)),
            (5121, 0, false, Some(5120)),
        ];
        for (end, overwritten, covers, blocks) in cases {
            let least = Least::new(BLOCK, &limits(), covers);
            let want = Plan { written_to: blocks.unwrap_or(1024), inline_from: blocks.unwrap_or(2000), to: end };
            let plan = least.plan(&segment(end, overwritten), false, Tells::News);
            assert_eq!(plan, want, "{end} {overwritten} {covers}");
        }
    }

    #[test]
    fn zeroes_ahead_cover_who_writes_from_their_begin_on() {
        let least = Least::new(BLOCK, &limits(), true);
        let plan = |zeroed, end| {
            let segment = OpenSegment { zeroed, ..segment(end, 0) };
            least.plan(&segment, false, Tells::News).written_to
        };
        assert_eq!(plan(1024..8192, 2050), 2048);
        assert_eq!(plan(512..2048, 2050), 2048);
        assert_eq!(plan(1536..8192, 2050), 1024, "there are fresh extents before them");
        assert_eq!(plan(512..1536, 2050), 1024, "and behind");
        let one = OpenSegment { zeroed: 1024..2048, ..segment(4000, 0) };
        assert_eq!(Least::new(BLOCK, &limits(), true).covered_to(&one), 2048);
        assert_eq!(Least::new(BLOCK, &limits(), false).covered_to(&one), 0);
    }

    #[test]
    fn nothing_is_written_where_zeroes_are_under_way() {
        for least in [Least::new(BLOCK, &limits(), true), Least::none(BLOCK)] {
            let segment = OpenSegment { zeroing: Some(3072..4096), zeroed: 1024..3072, ..segment(5000, 0) };
            let want = Plan { written_to: 3072, inline_from: 3072, to: 5000 };
            assert_eq!(least.plan(&segment, false, Tells::News), want);
        }
    }

    #[test]
    fn a_small_journal_lowers_it() {
        let limits = Limits { journal_bytes: 32 * 2048, ..limits() };
        let least = Least::new(BLOCK, &limits, true);
        assert_eq!(least.plan(&segment(3071, 0), false, Tells::News).written_to, 1024);
        assert_eq!(least.plan(&segment(3073, 0), false, Tells::News).written_to, 3072);
    }

    #[test]
    fn a_state_says_all_that_the_file_does_not_have() {
        let plan = |written_to, to| Plan { written_to, inline_from: written_to, to };
        let least = Least::new(BLOCK, &limits(), true);
        assert_eq!(least.plan(&segment(2560, 0), false, Tells::State), plan(1024, 2560));
        let none = Least::none(BLOCK);
        assert_eq!(none.plan(&segment(2560, 0), false, Tells::State), plan(2560, 2560));
        assert_eq!(none.plan(&segment(2560, 0), true, Tells::State), plan(1024, 2560));
        assert_eq!(none.plan(&segment(2560, 0), false, Tells::Again), plan(1536, 2000), "no news");
    }
}
