//! What a group says, on its way into the journal's blocks.

use ringmain_buffer::{Buf, BufMut, Pool, Refused};
use ringmain_types::Account;

use crate::journal::{GroupHeader, TRAILER_BYTES};

/// A group is one write of blocks of this size: its batches are copied once, and no block is larger than what arenas hold.
const BLOCK_BYTES: usize = 256 << 10;

/// A group's entries in order: their own few bytes, and between them batches where they stand, uncopied.
#[derive(Debug, Default)]
pub(crate) struct Said {
    words: Vec<u8>,
    /// Each with how many of `words` go before it.
    batches: Vec<(usize, Buf)>,
    batch_bytes: usize,
}

impl Said {
    pub fn push(&mut self, byte: u8) {
        self.words.push(byte);
    }
    pub fn extend(&mut self, bytes: impl AsRef<[u8]>) {
        self.words.extend_from_slice(bytes.as_ref());
    }
    pub fn batches(&mut self, parts: &[Buf]) {
        let at = self.words.len();
        self.batch_bytes += parts.iter().map(|part| part.len()).sum::<usize>();
        self.batches.extend(parts.iter().map(|part| (at, part.clone())));
    }

    pub fn len(&self) -> usize {
        self.words.len() + self.batch_bytes
    }

    fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let mut from = 0;
        let last = (self.words.len(), None);
        self.batches.iter().map(|(at, part)| (*at, Some(part))).chain([last]).flat_map(move |(at, part)| {
            let words = &self.words[std::mem::replace(&mut from, at)..at];
            [words, part.map_or(&[], |part| part)]
        })
    }

    /// The whole group, header and CRC included and padded with zeroes to `padded` bytes, in blocks of the pool. A group must go out
    /// even when memory is short, for it is what frees memory: then its bytes come from outside. One is in flight, so this is bounded.
    pub fn group(&self, header: &GroupHeader, padded: usize, pool: &mut Pool) -> Vec<Buf> {
        let head = header.encode();
        let seed = GroupHeader::crc(&head);
        let slices = || self.slices().filter(|slice| !slice.is_empty());
        let Ok(mut blocks) = Blocks::take(pool, padded) else {
            let mut bytes = Vec::with_capacity(padded);
            bytes.extend(head);
            let crc = slices().fold(seed, |crc, slice| {
                bytes.extend_from_slice(slice);
                crc32c::crc32c_append(crc, slice)
            });
            bytes.extend(crc.to_le_bytes());
            bytes.resize(padded, 0);
            return vec![Buf::copy_of(&bytes)];
        };
        blocks.put(&head, 0);
        let crc = slices().fold(seed, |crc, slice| blocks.put(slice, crc));
        blocks.put(&crc.to_le_bytes(), 0);
        let told = head.len() + self.len() + TRAILER_BYTES;
        blocks.finish(padded - told)
    }

    /// As one piece.
    #[cfg(test)]
    pub fn bytes(&self) -> Vec<u8> {
        self.slices().collect::<Vec<_>>().concat()
    }
}

/// The blocks that a group fills, one behind the other.
struct Blocks {
    full: Vec<Buf>,
    /// The first of them is the one being filled.
    empty: std::collections::VecDeque<BufMut>,
}

impl Blocks {
    fn take(pool: &mut Pool, bytes: usize) -> Result<Blocks, Refused> {
        let sizes = (0..bytes).step_by(BLOCK_BYTES).map(|at| BLOCK_BYTES.min(bytes - at));
        let empty = sizes.map(|size| pool.take(Account::Control, size)).collect::<Result<_, _>>()?;
        Ok(Blocks { full: Vec::new(), empty })
    }

    /// Appends `bytes` and returns the CRC of them behind what `crc` is of.
    fn put(&mut self, mut bytes: &[u8], crc: u32) -> u32 {
        let crc = crc32c::crc32c_append(crc, bytes);
        while !bytes.is_empty() {
            let block = self.empty.front_mut().expect("blocks were taken for all of the group");
            let room = BLOCK_BYTES.min(block.block_bytes()) - block.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            block.extend(now);
            bytes = later;
            if now.len() == room {
                self.full.extend(self.empty.pop_front().map(BufMut::freeze));
            }
        }
        crc
    }

    fn finish(mut self, zeroes: usize) -> Vec<Buf> {
        if let Some(mut last) = self.empty.pop_front() {
            last.extend_zeroes(zeroes);
            self.full.push(last.freeze());
        }
        assert!(self.empty.is_empty(), "no block was taken in vain");
        self.full
    }
}

#[cfg(test)]
mod tests {
    use ringmain_types::{Limits, ShardId};

    use super::*;
    use crate::journal::{HEADER_BYTES, checked_entries};

    fn said(pieces: usize, bytes: usize) -> Said {
        let mut said = Said::default();
        for piece in 0..pieces {
            said.push(piece as u8);
            said.extend([7, 8, 9]);
            let part = Buf::copy_of(&vec![piece as u8 ^ 0x5a; bytes]);
            said.batches(&[part.slice(0..bytes / 3), part.slice(bytes / 3..bytes)]);
        }
        said.push(1);
        said
    }

    fn group(said: &Said, pool: &mut Pool) -> Vec<u8> {
        let bytes = HEADER_BYTES + said.len() + TRAILER_BYTES;
        let padded = bytes.next_multiple_of(4096);
        let header =
            GroupHeader { nonce: 1, life: 1, sequence: 2, flushed: 1, horizon: 1, bytes: bytes as u32, entries: 3 };
        let blocks = said.group(&header, padded, pool);
        for block in &blocks {
            assert!(block.len().is_multiple_of(4096) && block.as_ptr().addr().is_multiple_of(4096));
        }
        let whole = blocks.concat();
        assert_eq!(whole.len(), padded);
        assert_eq!(GroupHeader::decode(&whole, 1), Some(header));
        assert!(whole[bytes..].iter().all(|byte| *byte == 0));
        checked_entries(&whole[..bytes]).expect("the CRC agrees").to_vec()
    }

    #[test]
    fn what_an_older_group_left_does_not_check_behind_a_new_header() {
        let said = said(1, 200);
        let bytes = HEADER_BYTES + said.len() + TRAILER_BYTES;
        for mut pool in [Pool::new(ShardId(0), &Limits::production(1 << 30)), Pool::new(ShardId(0), &Limits::tiny())] {
            let mut groups = [14, 81].map(|sequence| {
                let (life, flushed, bytes) = (1, sequence - 1, bytes as u32);
                let header = GroupHeader { nonce: 1, life, sequence, flushed, horizon: 1, bytes, entries: 3 };
                said.group(&header, bytes.next_multiple_of(4096) as usize, &mut pool).concat()
            });
            assert!(groups.iter().all(|group| checked_entries(&group[..bytes]).is_some()));
            let (older, newer) = groups.split_at_mut(1);
            newer[0][HEADER_BYTES..].copy_from_slice(&older[0][HEADER_BYTES..]);
            assert_eq!(checked_entries(&newer[0][..bytes]), None);
        }
    }

    #[test]
    fn a_group_of_any_size_is_what_was_said() {
        let mut pool = Pool::new(ShardId(0), &Limits::production(1 << 30));
        let end = BLOCK_BYTES - HEADER_BYTES - TRAILER_BYTES;
        for bytes in [0, 1, 3000, 4096, 100_000, end / 2, end - 6, end - 5, end - 4, end, BLOCK_BYTES, 1 << 20] {
            for pieces in [0, 1, 2, 3] {
                let said = said(pieces, bytes);
                assert_eq!(group(&said, &mut pool), said.bytes(), "{pieces} x {bytes}");
            }
        }
    }

    #[test]
    fn without_memory_it_is_the_same() {
        let mut limits = Limits::production(1 << 30);
        limits.memory_bytes[Account::Control as usize] = 300 << 10;
        let mut pool = Pool::new(ShardId(0), &limits);
        let said = said(3, 200_000);
        let held = pool.take(Account::Control, 4096).unwrap();
        assert_eq!(group(&said, &mut pool), said.bytes());
        drop(held);
        pool.collect();
        assert_eq!(
            pool.left(Account::Control),
            pool.limit(Account::Control) as usize,
            "what was taken in vain is back"
        );
    }
}
