//! The shard's journal: a prewritten ring of groups, each of whole blocks, and which of them are still needed.
//!
//! ```text
//! superblock | ...free... | oldest needed | ... | newest | ...free...
//! ```
//! Space is used again only when a group that names a younger `horizon` is flushed: whatever a torn write destroys then is
//! something that the newest intact group does not need.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};

use ringmain_disk::FileId;
use ringmain_types::{Partition, ShardId};

/// 2: a group's CRC depends on its header. In 1 it did not, and nobody was given that one.
pub(crate) const FORMAT: u16 = 2;
const SUPER_MAGIC: [u8; 8] = *b"RMJRNL01";
const GROUP_MAGIC: [u8; 8] = *b"RMGROUP1";
pub(crate) const SUPER_BYTES: usize = 48;
pub(crate) const HEADER_BYTES: usize = 72;
/// The CRC behind the entries.
pub(crate) const TRAILER_BYTES: usize = 4;

/// No journal is so long and no sequence so great; what is can be added to.
const NUMBER_MAX: u64 = 1 << 62;

/// What [`Super::decode`] says of one.
pub(crate) const NEWER_FORMAT: &str = "a journal of a newer format";

/// The first block of a journal; written once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Super {
    pub shard: ShardId,
    pub generation: u64,
    /// Names this file's life: no client can write a group of it into a record.
    pub nonce: u64,
    pub block_bytes: u32,
    /// Without the superblock's own block.
    pub ring_bytes: u64,
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

impl Super {
    pub fn encode(&self) -> [u8; SUPER_BYTES] {
        let mut out = [0; SUPER_BYTES];
        out[..8].copy_from_slice(&SUPER_MAGIC);
        out[8..10].copy_from_slice(&FORMAT.to_le_bytes());
        out[10..12].copy_from_slice(&self.shard.0.to_le_bytes());
        out[12..16].copy_from_slice(&self.block_bytes.to_le_bytes());
        out[16..24].copy_from_slice(&self.generation.to_le_bytes());
        out[24..32].copy_from_slice(&self.nonce.to_le_bytes());
        out[32..40].copy_from_slice(&self.ring_bytes.to_le_bytes());
        let crc = crc32c::crc32c(&out[..40]);
        out[40..44].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// An error names what is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Super, &'static str> {
        if bytes.len() < SUPER_BYTES || bytes[..8] != SUPER_MAGIC {
            return Err("not a journal");
        }
        // Before the format is believed: in every one this CRC is here, so that a bit that turned is not taken for a newer broker's.
        if u32::from_le_bytes(field(bytes, 40)) != crc32c::crc32c(&bytes[..40]) {
            return Err("the journal's first block does not check");
        }
        match u16::from_le_bytes(field(bytes, 8)).cmp(&FORMAT) {
            Ordering::Greater => return Err(NEWER_FORMAT),
            Ordering::Less => return Err("a journal of an older format, from before the first release"),
            Ordering::Equal => {}
        }
        let found = Super {
            shard: ShardId(u16::from_le_bytes(field(bytes, 10))),
            block_bytes: u32::from_le_bytes(field(bytes, 12)),
            generation: u64::from_le_bytes(field(bytes, 16)),
            nonce: u64::from_le_bytes(field(bytes, 24)),
            ring_bytes: u64::from_le_bytes(field(bytes, 32)),
        };
        let block = found.block_bytes;
        let whole = found.ring_bytes.is_multiple_of(u64::from(block.max(1))) && found.ring_bytes <= NUMBER_MAX;
        if !block.is_power_of_two() || block < 512 || !whole {
            return Err("the journal's first block makes no sense");
        }
        Ok(found)
    }
}

/// In front of a group's entries; checked by its own CRC, so that it can be believed though the group behind it is torn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupHeader {
    pub nonce: u64,
    /// Rises with every opening: of two groups of one sequence the younger counts.
    pub life: u32,
    pub sequence: u64,
    /// This group and all before it were known flushed when this one was written: damage there is rot, behind it a torn write.
    pub flushed: u64,
    /// The oldest group that was still needed.
    pub horizon: u64,
    /// Header, entries and trailer; the rest of the last block is zero.
    pub bytes: u32,
    pub entries: u32,
}

impl GroupHeader {
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[..8].copy_from_slice(&GROUP_MAGIC);
        out[8..10].copy_from_slice(&FORMAT.to_le_bytes());
        out[12..16].copy_from_slice(&self.life.to_le_bytes());
        out[16..24].copy_from_slice(&self.nonce.to_le_bytes());
        out[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        out[32..40].copy_from_slice(&self.flushed.to_le_bytes());
        out[40..48].copy_from_slice(&self.horizon.to_le_bytes());
        out[48..52].copy_from_slice(&self.bytes.to_le_bytes());
        out[52..56].copy_from_slice(&self.entries.to_le_bytes());
        let crc = GroupHeader::crc(&out);
        out[68..72].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Of an encoded header, its own CRC left out. The group's goes on from here: over a header that ends in its own CRC it would be the
    /// same for every header, and what an older group left behind a new header would check.
    pub fn crc(header: &[u8]) -> u32 {
        crc32c::crc32c(&header[..68])
    }

    /// `None` for anything that is not a header of the journal with this nonce.
    pub fn decode(bytes: &[u8], nonce: u64) -> Option<GroupHeader> {
        if bytes.len() < HEADER_BYTES || bytes[..8] != GROUP_MAGIC || field(bytes, 16) != nonce.to_le_bytes() {
            return None;
        }
        if u16::from_le_bytes(field(bytes, 8)) != FORMAT {
            return None;
        }
        if u32::from_le_bytes(field(bytes, 68)) != GroupHeader::crc(bytes) {
            return None;
        }
        let header = GroupHeader {
            nonce,
            life: u32::from_le_bytes(field(bytes, 12)),
            sequence: u64::from_le_bytes(field(bytes, 24)),
            flushed: u64::from_le_bytes(field(bytes, 32)),
            horizon: u64::from_le_bytes(field(bytes, 40)),
            bytes: u32::from_le_bytes(field(bytes, 48)),
            entries: u32::from_le_bytes(field(bytes, 52)),
        };
        let least = (HEADER_BYTES + TRAILER_BYTES) as u32;
        // The next opening counts on from both.
        if header.sequence > NUMBER_MAX || header.life == u32::MAX {
            return None;
        }
        (header.bytes >= least && header.flushed < header.sequence && header.horizon <= header.sequence)
            .then_some(header)
    }
}

/// Of a whole group (`header.bytes` bytes), its entries' bytes, when the CRC over all of it agrees.
pub(crate) fn checked_entries(group: &[u8]) -> Option<&[u8]> {
    let at = group.len().checked_sub(TRAILER_BYTES)?;
    let want = u32::from_le_bytes(field(group, at));
    let entries = group.get(HEADER_BYTES..at)?;
    (crc32c::crc32c_append(GroupHeader::crc(group), entries) == want).then_some(entries)
}

/// Who needs a group: its state begins there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Needs {
    /// A log in this slot.
    Log(u32),
    /// A log that the journal knows and nobody has opened yet.
    Unopened(Partition),
    /// A directory that is being removed.
    Removing(String),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub sequence: u64,
    /// In the ring, from its begin.
    pub at: u64,
}

/// The ring's bookkeeping. Groups of `groups` are in the file and may not be overwritten.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    pub file: FileId,
    pub nonce: u64,
    pub life: u32,
    pub block: u64,
    pub ring_bytes: u64,
    /// Where the next group goes.
    pub head: u64,
    pub sequence_next: u64,
    /// The newest group whose flush came back.
    pub flushed: u64,
    pub groups: VecDeque<Group>,
    /// The horizon stays here, whatever is needed.
    pub floor: Option<u64>,
    /// What was left at the ring's end when it last came round.
    skipped: u64,
    /// With the bytes that saying it again takes, whatever the next life finds (`room.rs`).
    needs: BTreeMap<(u64, Needs), u64>,
    /// Of all of them.
    live: u64,
}

impl Journal {
    pub fn new(file: FileId, found: &Super, life: u32) -> Journal {
        Journal {
            file,
            nonce: found.nonce,
            life,
            block: u64::from(found.block_bytes),
            ring_bytes: found.ring_bytes,
            head: 0,
            sequence_next: 1,
            flushed: 0,
            groups: VecDeque::new(),
            floor: None,
            skipped: 0,
            needs: BTreeMap::new(),
            live: 0,
        }
    }

    /// The largest group: eight of them fit, and one is a moderate write.
    pub fn group_bytes_max(&self) -> usize {
        ((self.ring_bytes / 8).min(4 << 20) / self.block * self.block) as usize
    }

    /// Bytes from the oldest kept group to the head, what was skipped at the end included.
    pub fn used(&self) -> u64 {
        match self.groups.front() {
            None => 0,
            Some(first) if first.at < self.head => self.head - first.at,
            Some(first) => self.ring_bytes - first.at + self.head,
        }
    }

    /// Of `used`, what groups have: what was skipped at the end is no group's.
    pub fn kept_bytes(&self) -> u64 {
        let round = self.groups.front().is_some_and(|first| first.at >= self.head);
        self.used() - if round { self.skipped } else { 0 }
    }

    /// Of `kept_bytes`, what is needed still: the rest goes with the next group that names the horizon.
    pub fn needed_bytes(&self) -> u64 {
        let horizon = self.horizon();
        let Some(first) = self.groups.iter().find(|group| group.sequence >= horizon) else { return 0 };
        if first.at < self.head { self.head - first.at } else { self.ring_bytes - first.at + self.head - self.skipped }
    }

    /// Where a group of `bytes` (whole blocks) may go; never split across the end, never up to the oldest kept one.
    pub fn place(&self, bytes: u64) -> Option<u64> {
        let head = self.head;
        let Some(first) = self.groups.front() else { return (bytes <= self.ring_bytes).then_some(0) };
        if head > first.at {
            if head + bytes <= self.ring_bytes {
                return Some(head);
            }
            return (bytes < first.at).then_some(0);
        }
        (head + bytes < first.at).then_some(head)
    }

    /// The largest group that has a place.
    pub fn room(&self) -> u64 {
        let Some(first) = self.groups.front() else { return self.ring_bytes };
        if self.head > first.at {
            return (self.ring_bytes - self.head).max(first.at.saturating_sub(self.block));
        }
        (first.at - self.head).saturating_sub(self.block)
    }

    /// Takes the place of a group and its sequence.
    pub fn push(&mut self, at: u64, bytes: u64) -> u64 {
        let sequence = self.sequence_next;
        self.sequence_next += 1;
        self.groups.push_back(Group { sequence, at });
        if at == 0 {
            self.skipped = if self.head == 0 { 0 } else { self.ring_bytes - self.head };
        }
        self.head = at + bytes;
        if self.head == self.ring_bytes {
            // Full to its end: what the round before left there is no more between the oldest group and the head.
            (self.head, self.skipped) = (0, 0);
        }
        sequence
    }

    /// From group `sequence` on; saying it again takes `bytes`.
    pub fn need(&mut self, sequence: u64, who: Needs, bytes: u64) {
        let before = self.needs.insert((sequence, who), bytes);
        self.live = self.live + bytes - before.unwrap_or(0);
    }
    /// The bytes that it took; none when it was not needed.
    pub fn release(&mut self, sequence: u64, who: Needs) -> Option<u64> {
        let bytes = self.needs.remove(&(sequence, who));
        self.live -= bytes.unwrap_or(0);
        bytes
    }
    pub fn bytes(&self, sequence: u64, who: Needs) -> u64 {
        self.needs.get(&(sequence, who)).copied().unwrap_or(0)
    }
    /// Of all that is needed: what saying it again takes.
    pub fn live(&self) -> u64 {
        self.live
    }
    /// Who holds the horizon back, oldest first.
    pub fn oldest(&self) -> impl Iterator<Item = &(u64, Needs)> {
        self.needs.keys()
    }
    pub fn oldest_bytes(&self) -> impl Iterator<Item = (&(u64, Needs), u64)> {
        self.needs.iter().map(|(need, bytes)| (need, *bytes))
    }

    /// The oldest group that is needed; the next one's sequence when none is.
    pub fn horizon(&self) -> u64 {
        let needed = self.needs.first_key_value().map_or(self.sequence_next, |((sequence, _), _)| *sequence);
        self.floor.map_or(needed, |floor| floor.min(needed))
    }

    /// A group that named `horizon` is flushed: what is older than that may be overwritten. The newest always stays.
    pub fn trim(&mut self, horizon: u64) {
        while self.groups.len() > 1 && self.groups[0].sequence < horizon {
            self.groups.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(blocks: u64) -> Journal {
        let found = Super { shard: ShardId(0), generation: 1, nonce: 7, block_bytes: 512, ring_bytes: blocks * 512 };
        assert_eq!(Super::decode(&found.encode()), Ok(found));
        Journal::new(FileId(1), &found, 1)
    }

    #[test]
    fn a_header_that_was_touched_is_none() {
        let header = GroupHeader { nonce: 7, life: 3, sequence: 9, flushed: 8, horizon: 4, bytes: 100, entries: 1 };
        let bytes = header.encode();
        assert_eq!(GroupHeader::decode(&bytes, 7), Some(header));
        assert_eq!(GroupHeader::decode(&bytes, 8), None);
        for at in 0..HEADER_BYTES {
            let mut torn = bytes;
            torn[at] ^= 1;
            assert_eq!(GroupHeader::decode(&torn, 7), None, "byte {at}");
        }
    }

    /// Found by fuzzing, with CRCs that are right.
    #[test]
    fn numbers_that_nothing_can_be_added_to_are_none() {
        let found = Super { shard: ShardId(0), generation: 1, nonce: 7, block_bytes: 512, ring_bytes: u64::MAX - 511 };
        assert_eq!(Super::decode(&found.encode()), Err("the journal's first block makes no sense"));
        let header = GroupHeader { nonce: 7, life: 3, sequence: 9, flushed: 8, horizon: 4, bytes: 100, entries: 1 };
        for far in [GroupHeader { life: u32::MAX, ..header }, GroupHeader { sequence: u64::MAX, ..header }] {
            assert_eq!(GroupHeader::decode(&far.encode(), 7), None);
        }
    }

    #[test]
    fn a_round_that_ends_with_the_ring_skips_nothing() {
        let mut ring = journal(10);
        for blocks in [4, 4] {
            let at = ring.place(blocks * 512).unwrap();
            ring.push(at, blocks * 512);
        }
        ring.trim(2);
        assert_eq!(ring.place(3 * 512), Some(0), "two blocks are skipped");
        ring.push(0, 3 * 512);
        assert_eq!((ring.used(), ring.kept_bytes()), (9 * 512, 7 * 512));
        ring.trim(3);
        for blocks in [6, 1] {
            let at = ring.place(blocks * 512).unwrap();
            ring.push(at, blocks * 512);
            ring.trim(ring.sequence_next - 1);
        }
        assert_eq!((ring.head, ring.used(), ring.kept_bytes(), ring.needed_bytes()), (0, 512, 512, 0));
    }

    #[test]
    fn the_ring_never_takes_what_is_kept() {
        let mut ring = journal(10);
        assert_eq!(ring.place(11 * 512), None);
        for _ in 0..3 {
            let at = ring.place(3 * 512).unwrap();
            ring.push(at, 3 * 512);
        }
        assert_eq!((ring.used(), ring.head), (9 * 512, 9 * 512));
        assert_eq!(ring.place(512), Some(9 * 512), "the last block");
        assert_eq!(ring.place(2 * 512), None, "it is not split, and group 1 is kept");
        ring.need(2, Needs::Log(1), 100);
        ring.trim(ring.horizon());
        assert_eq!(ring.place(2 * 512), Some(0), "group 1 may go");
        assert_eq!(ring.place(3 * 512), None, "but the head never meets the oldest");
        assert_eq!(ring.room(), 2 * 512);
        ring.push(0, 2 * 512);
        assert_eq!(ring.used(), 9 * 512);
        assert_eq!((ring.live(), ring.release(2, Needs::Log(1)), ring.live()), (100, Some(100), 0));
        ring.trim(ring.horizon());
        assert_eq!(ring.groups.len(), 1, "the newest stays");
    }

    #[test]
    fn a_newer_format_says_so_and_a_bit_that_turned_does_not() {
        let found = Super { shard: ShardId(0), generation: 1, nonce: 7, block_bytes: 512, ring_bytes: 4096 };
        for bit in 0..8 * 44 {
            let mut bytes = found.encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(Super::decode(&bytes), Ok(_) | Err(NEWER_FORMAT)), "bit {bit}");
        }
        let mut newer = found.encode();
        newer[8..10].copy_from_slice(&(FORMAT + 1).to_le_bytes());
        let crc = crc32c::crc32c(&newer[..40]);
        newer[40..44].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Super::decode(&newer), Err(NEWER_FORMAT));
    }
}
