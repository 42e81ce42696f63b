//! Memory that resting tails hold: a log keeps its last chunk, sized for the burst that filled it, until its next append follows it
//! with another. Many logs that rest could so hold all there is, and whoever appends would be refused for ever.

use ringmain_batch::{BatchHeader, HEADER_BYTES};
use ringmain_buffer::Pool;
use ringmain_types::*;

use crate::chunk::Chunk;
use crate::segment::OpenSegment;
use crate::store::Store;

/// Logs that are looked at for one refused append.
const LOGS_A_CALL: usize = 64;

impl OpenSegment {
    /// Gives back what the only chunk has beyond what the file lacks; the batch that straddles `written_to` stays whole. True when
    /// that was anything.
    fn squeeze(&mut self, pool: &mut Pool, block: u32) -> bool {
        let [chunk] = self.chunks.make_contiguous() else { return false };
        let (end, held) = (chunk.end(), chunk.block_bytes());
        // Most often there is nothing to give, and its batches need not be gone through to know that.
        if (end - self.written_to.min(end)) as usize * 2 > held {
            return false;
        }
        let mut first = chunk.first();
        while first + HEADER_BYTES as u32 <= self.written_to.min(end) {
            let Ok(header) = BatchHeader::parse(&chunk.slice(first, first + HEADER_BYTES as u32)) else { return false };
            let next = first + header.info.bytes;
            if next > self.written_to {
                break;
            }
            first = next;
        }
        if first >= end {
            self.chunks.clear();
            return true;
        }
        let position = first / block * block;
        let bytes = (end - position) as usize;
        if bytes * 2 > held {
            return false;
        }
        // Like the old one's, its place in the account is what appends are refused for: a smaller one is found, or nothing changes.
        let Ok(data) = pool.take(Account::Tail, bytes) else { return false };
        let smaller = Chunk::filled(position, first, &chunk.slice(position, end), data);
        self.chunks[0] = smaller;
        true
    }
}

impl Store {
    /// After an append was refused memory: tails that rest give back what they do not need. True when any did.
    pub(crate) fn squeeze(&mut self, pool: &mut Pool) -> bool {
        let (block, logs) = (self.block, self.slots.len());
        let mut given = false;
        for _ in 0..logs.min(LOGS_A_CALL) {
            self.squeeze_from = (self.squeeze_from + 1) % logs;
            let log = self.slots[self.squeeze_from].log.as_deref_mut();
            let Some(log) = log.filter(|log| log.ready() && !log.in_flight) else { continue };
            for segment in &mut log.open {
                given |= segment.squeeze(pool, block);
            }
        }
        given
    }
}

#[cfg(test)]
mod tests {
    use ringmain_batch::{Builder, Codec, stamp};

    use super::*;

    const BLOCK: u32 = 512;

    /// A segment of `batches` in one chunk of 64 KiB, and where each batch ends.
    fn segment(pool: &mut Pool, batches: i64) -> (OpenSegment, Vec<u32>) {
        let mut segment = OpenSegment::new(Offset(0), 1 << 20, WallMs(0));
        let mut ends = Vec::new();
        for at in 0..batches {
            let mut builder = Builder::new(Codec::None, None);
            builder.push(WallMs(at), None, Some(&[at as u8; 300]), &[]);
            let mut batch = builder.encode();
            stamp(&mut batch, Offset(at), LeaderEpoch(0));
            let header = BatchHeader::parse(&batch).unwrap();
            segment.make_room(pool, batch.len(), 64 << 10, BLOCK).unwrap();
            segment.push(&batch, &header, 4096, |_| {});
            ends.push(segment.end);
        }
        (segment, ends)
    }

    #[test]
    fn a_resting_tail_gives_back_what_the_file_has() {
        let mut pool = Pool::new(ShardId(0), &Limits::production(1 << 30));
        for batches in 1..40 {
            let (whole, ends) = segment(&mut pool, batches);
            for written_to in (0..=whole.end).step_by(BLOCK as usize) {
                let (mut segment, _) = segment(&mut pool, batches);
                segment.written_to = written_to;
                assert!(segment.squeeze(&mut pool, BLOCK));
                // The batch that straddles it, and all behind.
                let from = *[0].iter().chain(&ends).rev().find(|end| **end <= written_to).unwrap();
                assert_eq!(segment.memory_from(), from, "{batches} {written_to}");
                assert_eq!(segment.bytes(from, whole.end), whole.bytes(from, whole.end));
                let held: usize = segment.chunks.iter().map(Chunk::block_bytes).sum();
                assert!(held <= 2 * (whole.end - from / BLOCK * BLOCK) as usize + BLOCK as usize, "{held}");
                assert!(!segment.squeeze(&mut pool, BLOCK), "once is enough");
            }
        }
    }

    #[test]
    fn a_squeezed_tail_is_appended_to() {
        let mut pool = Pool::new(ShardId(0), &Limits::production(1 << 30));
        let (mut all, _) = segment(&mut pool, 9);
        let (mut segment, ends) = segment(&mut pool, 7);
        segment.written_to = ends[4] / BLOCK * BLOCK;
        assert!(segment.squeeze(&mut pool, BLOCK));
        let from = segment.memory_from();
        for (start, end) in [(ends[6], ends[6] + ends[0]), (ends[6] + ends[0], all.end)] {
            let batch = all.bytes(start, end);
            let header = BatchHeader::parse(&batch).unwrap();
            segment.make_room(&mut pool, batch.len(), 0, BLOCK).unwrap();
            segment.push(&batch, &header, 4096, |_| {});
        }
        assert_eq!((segment.end, segment.bytes(from, all.end)), (all.end, all.bytes(from, all.end)));
        all.chunks.clear();
        assert!(!all.squeeze(&mut pool, BLOCK), "nothing to give");
    }
}
