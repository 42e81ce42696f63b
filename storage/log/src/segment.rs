//! A segment while it takes batches or is not sealed yet, and afterwards.

use std::collections::VecDeque;
use std::ops::Range;

use ringmain_batch::{BatchHeader, HEADER_BYTES};
use ringmain_buffer::{Buf, Pool, Refused};
use ringmain_disk::FileId;
use ringmain_types::*;

use crate::checkpoint::Written;
use crate::chunk::Chunk;
use crate::index::{IndexedBatch, SegmentIndex};

/// Indexes hold positions of 31 bits; no segment was ever longer.
pub(crate) const SEGMENT_BYTES_MAX: u32 = i32::MAX as u32;

/// Whether an open segment has its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentFile {
    None,
    /// Being made; its name is not durable yet.
    Making,
    Ready(FileId),
}

/// What a roll keeps for the seal.
#[derive(Debug)]
pub(crate) struct Rolled {
    /// `<next base>.snapshot`, as it stood at the roll.
    pub snapshot: Vec<u8>,
    pub sealing: bool,
}

/// ```text
/// file:    [ written | in flight |               ]
/// journal:                       [ inline ]
/// memory:       [ chunks ...                    ]
///          0    ^memory_from     ^writing_to    ^end
/// ```
/// `written_to` <= `writing_to` <= `end`, the first two at block boundaries. Chunks hold the batch that straddles `written_to`
/// whole, so that a read from the file never needs memory to complete a batch.
#[derive(Debug)]
pub(crate) struct OpenSegment {
    pub base: Offset,
    pub next: Offset,
    pub end: u32,
    /// Whole blocks in the file, durable and declared.
    pub written_to: u32,
    /// With those of the group in flight.
    pub writing_to: u32,
    /// Up to here groups say what the segment holds, the one in flight included.
    pub declared_to: u32,
    /// The offset behind that.
    pub declared_next: Offset,
    /// Over the headers of the batches behind `declared_to`.
    pub headers_crc: u32,
    pub chunks: VecDeque<Chunk>,
    pub index: SegmentIndex,
    /// What the files of the index have durably, and nothing behind it counts.
    pub index_written: [Written; 2],
    pub file: SegmentFile,
    /// From the file's begin: extents that were written and flushed before this segment had the file. Writes below it need no flush
    /// of their own where the journal's covers them; 0 when nobody saw it.
    pub overwritten: u32,
    /// As `overwritten`, of zeroes that were written ahead of the log's end: covered for who writes from its begin on.
    pub zeroed: Range<u32>,
    /// Being zeroed: nothing may be written at or behind its begin until it is.
    pub zeroing: Option<Range<u32>>,
    /// The log came to what was being zeroed: the disk has no time for more.
    pub outran: bool,
    /// The last reservation of a whole step, and whether it came within a second of the one before.
    pub stepped: Option<Instant>,
    pub fast: bool,
    /// Bytes of the file that space is reserved for.
    pub allocated: u32,
    pub allocating: bool,
    /// What the next reservation adds.
    pub allocate_step: u32,
    /// Of the first batch, else of its making: `segment.ms` counts from here.
    pub first_timestamp: Option<WallMs>,
    pub created: WallMs,
    /// A group says that this segment exists.
    pub roll_declared: bool,
    /// No more batches come.
    pub rolled: Option<Rolled>,
}

impl OpenSegment {
    pub fn new(base: Offset, index_bytes: u32, created: WallMs) -> OpenSegment {
        OpenSegment {
            base,
            next: base,
            end: 0,
            written_to: 0,
            writing_to: 0,
            declared_to: 0,
            declared_next: base,
            headers_crc: 0,
            chunks: VecDeque::new(),
            index: SegmentIndex::new(base, index_bytes),
            index_written: Default::default(),
            file: SegmentFile::None,
            overwritten: 0,
            zeroed: 0..0,
            zeroing: None,
            outran: false,
            stepped: None,
            fast: false,
            allocated: 0,
            allocating: false,
            allocate_step: 0,
            first_timestamp: None,
            created,
            roll_declared: false,
            rolled: None,
        }
    }

    /// A chunk for a batch of `bytes` more, sized `size_hint` when that is larger. `Refused` leaves all as it was.
    pub fn make_room(&mut self, pool: &mut Pool, bytes: usize, size_hint: usize, block: u32) -> Result<(), Refused> {
        if self.chunks.back().is_some_and(|chunk| chunk.spare() >= bytes) {
            return Ok(());
        }
        let position = self.end / block * block;
        let repeated = self.bytes(position, self.end);
        let data = pool.take(Account::Tail, (repeated.len() + bytes).max(size_hint))?;
        self.chunks.push_back(Chunk::new(position, &repeated, data));
        Ok(())
    }

    /// Behind `make_room`. `stamp` sets what the log decides in the header.
    pub fn push(&mut self, batch: &[u8], header: &BatchHeader, interval: u32, stamp: impl FnOnce(&mut [u8])) {
        let position = self.end;
        let Some(chunk) = self.chunks.back_mut() else { unreachable!("make_room made one") };
        chunk.push(batch, stamp);
        self.end += batch.len() as u32;
        let stamped = chunk.slice(position, position + HEADER_BYTES as u32);
        self.headers_crc = crc32c::crc32c_append(self.headers_crc, &stamped);
        self.note(header, position, interval);
    }

    /// Counts a batch that stands at `position`.
    pub fn note(&mut self, header: &BatchHeader, position: u32, interval: u32) {
        let max_timestamp = header.info.max_timestamp;
        self.first_timestamp.get_or_insert(max_timestamp);
        self.next = header.next();
        let batch =
            IndexedBatch { last: header.last(), position: Position(position), bytes: header.info.bytes, max_timestamp };
        self.index.push(batch, interval);
    }

    /// From here on the segment is in memory: the beginning of a batch, or the end.
    pub fn memory_from(&self) -> u32 {
        self.chunks.front().map_or(self.end, Chunk::first)
    }

    /// Bytes `from..to`, which must be in the chunks (what they repeat included), one part a chunk.
    pub fn parts(&self, from: u32, to: u32) -> Vec<Buf> {
        let mut parts = Vec::new();
        let mut at = from;
        for (number, chunk) in self.chunks.iter().enumerate() {
            // The next chunk repeats what lies behind its position.
            let until = self.chunks.get(number + 1).map_or(chunk.end(), Chunk::position).min(to);
            if chunk.position() <= at && at < until {
                parts.push(chunk.slice(at, until));
                at = until;
            }
        }
        assert!(at == to || from == to);
        parts
    }

    /// As `parts`, put together.
    pub fn bytes(&self, from: u32, to: u32) -> Vec<u8> {
        self.parts(from, to).concat()
    }

    /// Chunks that the file has whole, oldest first.
    pub fn written_chunks(&mut self) -> Vec<Chunk> {
        let mut written = Vec::new();
        while self.chunks.len() > 1 && self.chunks[0].end() <= self.written_to {
            written.extend(self.chunks.pop_front());
        }
        written
    }

    pub fn file_id(&self) -> Option<FileId> {
        match self.file {
            SegmentFile::Ready(file) => Some(file),
            SegmentFile::None | SegmentFile::Making => None,
        }
    }

    /// How far blocks may be written now.
    pub fn writable(&self) -> u32 {
        self.zeroing.as_ref().map_or(self.allocated, |zeroing| zeroing.start.min(self.allocated))
    }

    /// How far blocks from `written_to` on go into extents that were written and flushed before.
    pub fn covered_to(&self) -> u32 {
        let ahead = if self.zeroed.contains(&self.written_to) { self.zeroed.end } else { 0 };
        self.overwritten.max(ahead)
    }

    /// A group tells of it up to `to`: what was declared before, or all.
    pub fn declare(&mut self, to: u32) {
        self.roll_declared = true;
        if to == self.end {
            (self.declared_to, self.declared_next, self.headers_crc) = (self.end, self.next, 0);
        }
    }

    /// Bytes that no group has told of yet.
    pub fn undeclared(&self) -> u32 {
        self.end - self.declared_to
    }
}

/// A segment whose file is complete, of exact length, and flushed.
#[derive(Debug)]
pub(crate) struct SealedSegment {
    pub base: Offset,
    /// The next segment's base.
    pub next: Offset,
    pub bytes: u32,
    pub file: Option<FileId>,
    /// Whole blocks of its file that were written and flushed in this life, and may be overwritten in a next one of the file's; 0 for
    /// a segment of an earlier life, of which only the length is known.
    pub overwritten: u32,
    /// Of the first batch; none for a segment of an earlier life.
    pub first_timestamp: Option<WallMs>,
    /// `None`: not read yet.
    pub max_timestamp: Option<WallMs>,
    /// Its file was cut off, or is damaged where its index can't be made anew: the largest timestamp of what is left of it to read, -1 when
    /// nothing is. A search by time must not believe that there was no larger one, so this is not `max_timestamp`.
    pub left_timestamp: Option<WallMs>,
    /// Loaded indexes; the store keeps a bounded number of bytes of them.
    pub index: Option<SegmentIndex>,
    /// The index's files were no good: it is made anew by whoever reads the segment, and reaches up to here: a
    /// position, and the offset that follows.
    pub built_to: Option<(u32, Offset)>,
    /// The journal says so, durably: until then it needs the file.
    pub declared: bool,
}

impl SealedSegment {
    /// The largest timestamp that can be read of it, -1 when none can; `None` as long as its index is not loaded or made.
    pub fn newest(&self) -> Option<WallMs> {
        self.left_timestamp.or(self.max_timestamp.filter(|_| self.built_to.is_none()))
    }
}

/// How much of a sealed segment's file may be the segment: what got longer than one can be holds no batch behind that.
pub(crate) fn segment_bytes(file_bytes: u64) -> u32 {
    u32::try_from(file_bytes).unwrap_or(u32::MAX).min(SEGMENT_BYTES_MAX)
}

/// `<20 digits>.log` and so on.
pub fn file_name(base: Offset, extension: &str) -> String {
    format!("{:020}.{extension}", base.0)
}

/// The base offset and extension of a file of a log's directory.
pub fn parse_file_name(name: &str) -> Option<(Offset, &str)> {
    let (digits, extension) = name.split_once('.')?;
    if digits.len() != 20 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((Offset(digits.parse().ok()?), extension))
}
