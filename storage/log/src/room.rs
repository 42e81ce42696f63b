//! What may be live in the ring: room to say all of it again is kept, in every life and at every moment.
//!
//! What a group tells of a log is live until it was said again behind it; a pass of reclaim says everything again, oldest first, and
//! then the ring is as large as what is live. A pass that has no room to end gives nothing back. So the measure is
//! `kept_bytes + again(live)`: what the ring has, and what a pass adds to it at most. `live` counts a log as the next life finds it,
//! with all that the journal alone has of it, for until it is opened nothing of it leaves for its file.
//!
//! - News goes into the ring only while the measure stays below a bound, or does not grow. Else it waits, and so do appends.
//! - A pass adds nothing to it that was not counted, wherever it is cut off: what was said again counts for the next life too. Where
//!   that is undone (`opening.rs`, torn), the group goes as a whole, and the measure is what it was.
//! - What a start can't do without, its metadata, has a bound of its own above the others'.

use crate::commit::state_bytes;
use crate::entry::LogState;
use crate::journal::{HEADER_BYTES, Journal, TRAILER_BYTES};

/// What a log's state may grow by without news: one more piece, and a directory's name.
pub(crate) const WORDS_BYTES: usize = 128;
/// Never filled: the head stays off the oldest group, and a group that only names a younger horizon has a place.
const SPARE_BLOCKS: u64 = 6;

/// Whose news it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rank {
    /// Without it a start does not end.
    Metadata,
    Other,
}

/// A log of which the journal alone is known.
pub(crate) fn unopened_bytes(state: &LogState) -> u64 {
    (state_bytes(state) + WORDS_BYTES) as u64
}

impl Journal {
    /// What saying `live` bytes again adds to the ring at most: a group that is not full would not have held the next one's first state.
    pub fn again(&self, live: u64) -> u64 {
        let groups = 2 * live / self.group_bytes_max().max(1) as u64 + 2;
        live + groups * ((HEADER_BYTES + TRAILER_BYTES) as u64 + self.block - 1)
    }

    /// The measure once `padded` bytes more are in the ring, and `live` are live.
    pub fn measure(&self, padded: u64, live: u64) -> u64 {
        self.kept_bytes() + padded + self.again(live)
    }

    /// Up to where news of this rank may bring it. The first group of what is taken off is what a pass skips at the ring's end.
    pub fn measure_max(&self, rank: Rank) -> u64 {
        let group = self.group_bytes_max() as u64;
        let groups = if rank == Rank::Metadata { 1 } else { 2 };
        self.ring_bytes.saturating_sub(groups * group + SPARE_BLOCKS * self.block)
    }

    /// Whether everything could be said again as it is, step by step as `reclaim` does it. For checks: it does what the measure
    /// only bounds.
    pub fn has_room_to_say_again(&self) -> bool {
        let mut ring = self.clone();
        ring.floor = None;
        let last = ring.sequence_next - 1;
        while ring.oldest().next().is_some_and(|(sequence, _)| *sequence <= last) {
            let max = ring.room().saturating_sub(2 * ring.block).min(ring.group_bytes_max() as u64);
            let mut bytes = (HEADER_BYTES + TRAILER_BYTES) as u64;
            let mut said = Vec::new();
            for ((sequence, who), more) in ring.oldest_bytes() {
                if *sequence > last || bytes + more > max {
                    break;
                }
                bytes += more;
                said.push((*sequence, who.clone(), more));
            }
            let horizon = ring.horizon();
            if said.is_empty() && ring.groups.front().is_none_or(|first| first.sequence >= horizon) {
                return false;
            }
            let padded = bytes.next_multiple_of(ring.block);
            let Some(at) = ring.place(padded) else { return false };
            let to = ring.push(at, padded);
            for (sequence, who, bytes) in said {
                ring.release(sequence, who.clone());
                ring.need(to, who, bytes);
            }
            ring.trim(horizon);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use ringmain_types::{LeaderEpoch, Offset, Partition, PartitionIndex, TopicId, WallMs};

    use super::*;
    use crate::commit::{Draft, put_state};
    use crate::entry::{Checkpoint, SegmentState};

    #[test]
    fn a_state_takes_no_more_than_is_counted() {
        let partition = Partition { topic: TopicId(7), index: PartitionIndex(3) };
        for bits in 0..16u8 {
            let is = |bit: u8| bits >> bit & 1 == 1;
            let segment = SegmentState { written_to: 512, inline: vec![1; 300], ..SegmentState::default() };
            let checkpoint = Checkpoint {
                base: Offset(0),
                from: 0,
                position: 512,
                offset: Offset(9),
                since_entry: 0,
                max: Some((WallMs(1), Offset(2))),
                first_timestamp: WallMs(1),
                files: Default::default(),
            };
            let state = LogState {
                partition,
                dir: is(0).then(|| "t-3".to_owned()),
                start: Offset(0),
                epochs: vec![(LeaderEpoch(1), Offset(0)); 3],
                segments: vec![segment; 1 + usize::from(is(1))],
                sealed: is(2),
                holes: is(3),
                checkpoint: is(1).then(|| Box::new(checkpoint)),
            };
            let mut draft = Draft::new(1 << 20);
            put_state(&mut draft, &state);
            assert!(
                !draft.is_empty() && draft.bytes() <= HEADER_BYTES + TRAILER_BYTES + state_bytes(&state),
                "{state:?}"
            );
        }
    }
}
