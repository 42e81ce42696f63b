//! A stretch of a segment in memory, while it is appended to and until it is written.

use ringmain_buffer::{Buf, BufMut};

/// Byte 0 of its block is the segment's byte `position`, a multiple of the disk's block. Whole batches stand in `first..end`; what
/// is before `first` repeats the end of the chunk before, so that every disk block lies whole in one chunk and no batch in two.
#[derive(Debug)]
pub(crate) struct Chunk {
    position: u32,
    first: u32,
    end: u32,
    data: BufMut,
}

impl Chunk {
    /// `repeated` are the bytes from `position` on that the chunk before (or the journal) holds too.
    pub fn new(position: u32, repeated: &[u8], mut data: BufMut) -> Chunk {
        assert!(data.is_empty());
        data.extend(repeated);
        data.freeze_to(repeated.len());
        let first = position + repeated.len() as u32;
        Chunk { position, first, end: first, data }
    }

    /// As `new`, when whole batches begin within `bytes`, at the segment's `first`.
    pub fn filled(position: u32, first: u32, bytes: &[u8], data: BufMut) -> Chunk {
        let mut chunk = Chunk::new(position, bytes, data);
        assert!(position <= first && first <= chunk.end);
        chunk.first = first;
        chunk
    }

    pub fn position(&self) -> u32 {
        self.position
    }
    pub fn first(&self) -> u32 {
        self.first
    }
    pub fn end(&self) -> u32 {
        self.end
    }
    pub fn spare(&self) -> usize {
        self.data.spare()
    }
    /// What it holds of the memory account.
    pub fn block_bytes(&self) -> usize {
        self.data.block_bytes()
    }

    /// Appends a batch and lets `stamp` change it before it is frozen. There must be room.
    pub fn push(&mut self, batch: &[u8], stamp: impl FnOnce(&mut [u8])) {
        self.data.extend(batch);
        stamp(self.data.written_mut());
        self.data.freeze_to(batch.len());
        self.end += batch.len() as u32;
    }

    /// Bytes `from..to` of the segment, which this chunk must hold.
    pub fn slice(&self, from: u32, to: u32) -> Buf {
        assert!(self.position <= from && from <= to && to <= self.end);
        self.data.frozen((from - self.position) as usize..(to - self.position) as usize)
    }
}
