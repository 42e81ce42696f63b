//! What a journal group says: its entries, their bytes, and what they add up to. `FORMAT.md` has the layout.

use ringmain_buffer::Buf;
use ringmain_types::{LeaderEpoch, Offset, Partition, PartitionIndex, TopicId, WallMs};

use crate::said::Said;

/// Of one open segment, what a log's state is made of: `inline` follows the `written_to` bytes of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentState {
    pub base: Offset,
    /// Bytes of the file that count: whole blocks.
    pub written_to: u32,
    pub inline: Vec<u8>,
    /// The offset behind the last record.
    pub next: Offset,
}

impl SegmentState {
    pub fn end(&self) -> u32 {
        self.written_to + self.inline.len() as u32
    }
}

/// How far an open segment need not be scanned again: its index files are durable in whole blocks, the rest of their bytes is here,
/// and the producers as they stood before `offset` are in a `.snapshot` of that name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    pub base: Offset,
    /// A batch begins here, at or before the one that the file has only in part: a scan begins here.
    pub from: u32,
    /// The first byte and offset behind what the indexes and the producers have.
    pub position: u32,
    pub offset: Offset,
    /// What the index decides the next entry by.
    pub since_entry: u32,
    pub max: Option<(WallMs, Offset)>,
    /// Of the segment's first batch: `segment.ms` counts from there.
    pub first_timestamp: WallMs,
    /// Of `.index` and `.timeindex`.
    pub files: [IndexPrefix; 2],
}

/// One index file at a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IndexPrefix {
    /// Whole blocks of the file, and the CRC-32C over them: one that does not match is not believed.
    pub bytes: u32,
    pub crc: u32,
    /// What follows them: less than a block.
    pub rest: Vec<u8>,
}

impl Checkpoint {
    /// In a group.
    pub fn entry_bytes(&self) -> usize {
        CHECKPOINT_BYTES + self.files.iter().map(|file| file.rest.len()).sum::<usize>()
    }
}

/// Everything that must be known of one log to open it; what the journal's entries add up to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogState {
    pub partition: Partition,
    /// The log's directory; `None` while it needs no file.
    pub(crate) dir: Option<String>,
    pub(crate) start: Offset,
    pub(crate) epochs: Vec<(LeaderEpoch, Offset)>,
    /// Segments that are not sealed, oldest first; the last one is active. Never empty.
    pub(crate) segments: Vec<SegmentState>,
    /// Whether there are sealed segments in front of the first open one.
    pub(crate) sealed: bool,
    /// Of the first of `segments`.
    pub(crate) checkpoint: Option<Box<Checkpoint>>,
    /// Offsets may be missing between the batches of those.
    pub(crate) holes: bool,
}

impl LogState {
    pub fn end(&self) -> Offset {
        self.segments.last().map_or(Offset(0), |segment| segment.next)
    }
}

/// The batches of a piece: where they stand in memory while a group is put together, or in the group that was read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Batches<'a> {
    Parts(&'a [Buf]),
    Read(&'a [u8]),
}

impl Batches<'_> {
    pub fn len(&self) -> usize {
        match self {
            Batches::Parts(parts) => parts.iter().map(|part| part.len()).sum(),
            Batches::Read(bytes) => bytes.len(),
        }
    }
    pub fn to_vec(self) -> Vec<u8> {
        match self {
            Batches::Parts(parts) => parts.concat(),
            Batches::Read(bytes) => bytes.to_vec(),
        }
    }
}

/// What a group adds to one open segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece<'a> {
    pub base: Offset,
    /// `written_to` before this group: blocks from here on were written with it and may be torn.
    pub extent_from: u32,
    pub written_to: u32,
    /// Where the batches begin that this group adds; `headers_crc` is over their headers.
    pub declared_from: u32,
    pub headers_crc: u32,
    pub inline_from: u32,
    pub inline: Batches<'a>,
    pub next: Offset,
}

#[derive(Debug)]
pub(crate) enum Entry<'a> {
    Commit {
        partition: Partition,
        piece: Piece<'a>,
    },
    /// Replaces everything said of this log before.
    State {
        partition: Partition,
        dir: Option<&'a str>,
        start: Offset,
        sealed: bool,
        holes: bool,
        epochs: Vec<(LeaderEpoch, Offset)>,
        pieces: Vec<Piece<'a>>,
    },
    Start {
        partition: Partition,
        offset: Offset,
    },
    Epoch {
        partition: Partition,
        epoch: LeaderEpoch,
        start: Offset,
    },
    Roll {
        partition: Partition,
        base: Offset,
    },
    /// The file has everything, in its exact length, and is flushed.
    Sealed {
        partition: Partition,
        base: Offset,
    },
    /// The log is gone; its directory, if it has one, is still to be removed.
    Remove {
        partition: Partition,
        dir: Option<&'a str>,
    },
    /// Said again, so that the first time may be overwritten.
    Removing {
        dir: &'a str,
    },
    /// The directory is empty and will not be looked for any more.
    Gone {
        dir: &'a str,
    },
    /// What the group before this one said of the log does not count: its blocks were torn and nobody was told of it.
    Drop {
        partition: Partition,
    },
    /// Of the log's first open segment; replaces the one before. A State forgets it, unless it is said again behind that.
    Checkpoint {
        partition: Partition,
        checkpoint: Box<Checkpoint>,
    },
}

const COMMIT: u8 = 1;
const STATE: u8 = 2;
const START: u8 = 3;
const EPOCH: u8 = 4;
const ROLL: u8 = 5;
const SEALED: u8 = 6;
const REMOVE: u8 = 7;
const REMOVING: u8 = 8;
const GONE: u8 = 9;
const DROP: u8 = 10;
const CHECKPOINT: u8 = 11;

/// Bytes of a piece without what is inline.
pub(crate) const PIECE_BYTES: usize = 8 + 4 * 5 + 8 + 4;
/// Bytes of any entry without pieces, epochs and names.
pub(crate) const ENTRY_BYTES: usize = 1 + 20 + 8 + 8 + 1 + 2 + 4 + 4;
pub(crate) const EPOCH_BYTES: usize = 12;
/// Bytes of a checkpoint without the rests of its indexes.
const CHECKPOINT_BYTES: usize = 1 + 20 + 8 + 4 * 2 + 8 + 4 + 8 * 3 + 2 * (4 + 4 + 2);

fn put_partition(out: &mut Said, kind: u8, partition: Partition) {
    out.push(kind);
    out.extend(partition.topic.0.to_le_bytes());
    out.extend(partition.index.0.to_le_bytes());
}

fn put_name(out: &mut Said, name: &str) {
    out.extend((name.len() as u16).to_le_bytes());
    out.extend(name.as_bytes());
}

fn put_piece(out: &mut Said, piece: &Piece<'_>) {
    out.extend(piece.base.0.to_le_bytes());
    for field in [piece.extent_from, piece.written_to, piece.declared_from, piece.headers_crc, piece.inline_from] {
        out.extend(field.to_le_bytes());
    }
    out.extend(piece.next.0.to_le_bytes());
    out.extend((piece.inline.len() as u32).to_le_bytes());
    match piece.inline {
        Batches::Parts(parts) => out.batches(parts),
        Batches::Read(bytes) => out.extend(bytes),
    }
}

fn put_checkpoint(out: &mut Said, checkpoint: &Checkpoint) {
    out.extend(checkpoint.base.0.to_le_bytes());
    out.extend(checkpoint.from.to_le_bytes());
    out.extend(checkpoint.position.to_le_bytes());
    out.extend(checkpoint.offset.0.to_le_bytes());
    out.extend(checkpoint.since_entry.to_le_bytes());
    let (at, last) = checkpoint.max.unwrap_or((WallMs(-1), Offset(-1)));
    out.extend(at.0.to_le_bytes());
    out.extend(last.0.to_le_bytes());
    out.extend(checkpoint.first_timestamp.0.to_le_bytes());
    for file in &checkpoint.files {
        out.extend(file.bytes.to_le_bytes());
        out.extend(file.crc.to_le_bytes());
        out.extend((file.rest.len() as u16).to_le_bytes());
        out.extend(&file.rest);
    }
}

impl Entry<'_> {
    pub fn encode(&self, out: &mut Said) {
        match self {
            Entry::Commit { partition, piece } => {
                put_partition(out, COMMIT, *partition);
                put_piece(out, piece);
            }
            Entry::State { partition, dir, start, sealed, holes, epochs, pieces } => {
                put_partition(out, STATE, *partition);
                put_name(out, dir.unwrap_or(""));
                out.extend(start.0.to_le_bytes());
                out.push(u8::from(*sealed) | u8::from(*holes) << 1);
                out.extend((epochs.len() as u32).to_le_bytes());
                for (epoch, start) in epochs {
                    out.extend(epoch.0.to_le_bytes());
                    out.extend(start.0.to_le_bytes());
                }
                out.extend((pieces.len() as u32).to_le_bytes());
                for piece in pieces {
                    put_piece(out, piece);
                }
            }
            Entry::Start { partition, offset } => {
                put_partition(out, START, *partition);
                out.extend(offset.0.to_le_bytes());
            }
            Entry::Epoch { partition, epoch, start } => {
                put_partition(out, EPOCH, *partition);
                out.extend(epoch.0.to_le_bytes());
                out.extend(start.0.to_le_bytes());
            }
            Entry::Roll { partition, base } => {
                put_partition(out, ROLL, *partition);
                out.extend(base.0.to_le_bytes());
            }
            Entry::Sealed { partition, base } => {
                put_partition(out, SEALED, *partition);
                out.extend(base.0.to_le_bytes());
            }
            Entry::Remove { partition, dir } => {
                put_partition(out, REMOVE, *partition);
                put_name(out, dir.unwrap_or(""));
            }
            Entry::Removing { dir } => {
                out.push(REMOVING);
                put_name(out, dir);
            }
            Entry::Gone { dir } => {
                out.push(GONE);
                put_name(out, dir);
            }
            Entry::Drop { partition } => put_partition(out, DROP, *partition),
            Entry::Checkpoint { partition, checkpoint } => {
                put_partition(out, CHECKPOINT, *partition);
                put_checkpoint(out, checkpoint);
            }
        }
    }
}

/// Reads the entries of one group, whose CRC was checked: an error is a defect or a newer format, and is named all the same.
pub(crate) struct Entries<'a> {
    left: &'a [u8],
    count: u32,
}

/// Where the bytes made no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub &'static str);

impl<'a> Entries<'a> {
    pub fn new(bytes: &'a [u8], count: u32) -> Entries<'a> {
        Entries { left: bytes, count }
    }

    pub fn next(&mut self) -> Result<Option<Entry<'a>>, Malformed> {
        if self.count == 0 {
            return if self.left.is_empty() { Ok(None) } else { Err(Malformed("bytes behind the last entry")) };
        }
        self.count -= 1;
        self.entry().map(Some)
    }

    fn take(&mut self, bytes: usize) -> Result<&'a [u8], Malformed> {
        let (taken, left) = self.left.split_at_checked(bytes).ok_or(Malformed("an entry is cut off"))?;
        self.left = left;
        Ok(taken)
    }
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed("an entry is cut off"))
    }
    fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    fn offset(&mut self) -> Result<Offset, Malformed> {
        Ok(Offset(i64::from_le_bytes(self.array()?)))
    }
    fn name(&mut self) -> Result<&'a str, Malformed> {
        let bytes = usize::from(u16::from_le_bytes(self.array()?));
        std::str::from_utf8(self.take(bytes)?).map_err(|_| Malformed("a name is not UTF-8"))
    }
    fn partition(&mut self) -> Result<Partition, Malformed> {
        let topic = TopicId(u128::from_le_bytes(self.array()?));
        Ok(Partition { topic, index: PartitionIndex(i32::from_le_bytes(self.array()?)) })
    }
    fn checkpoint(&mut self) -> Result<Box<Checkpoint>, Malformed> {
        let (base, from, position, offset) = (self.offset()?, self.u32()?, self.u32()?, self.offset()?);
        let since_entry = self.u32()?;
        let (at, last) = (self.offset()?.0, self.offset()?);
        let first_timestamp = WallMs(self.offset()?.0);
        let mut files = <[IndexPrefix; 2]>::default();
        for file in &mut files {
            (file.bytes, file.crc) = (self.u32()?, self.u32()?);
            let rest = usize::from(u16::from_le_bytes(self.array()?));
            file.rest = self.take(rest)?.to_vec();
        }
        if from > position || position > i32::MAX as u32 || base >= offset || base.0 < 0 {
            return Err(Malformed("a checkpoint's positions contradict each other"));
        }
        let max = (at >= 0).then_some((WallMs(at), last));
        Ok(Box::new(Checkpoint { base, from, position, offset, since_entry, max, first_timestamp, files }))
    }
    fn epoch(&mut self) -> Result<LeaderEpoch, Malformed> {
        Ok(LeaderEpoch(i32::from_le_bytes(self.array()?)))
    }

    fn piece(&mut self) -> Result<Piece<'a>, Malformed> {
        let base = self.offset()?;
        let extent_from = self.u32()?;
        let written_to = self.u32()?;
        let declared_from = self.u32()?;
        let headers_crc = self.u32()?;
        let inline_from = self.u32()?;
        let next = self.offset()?;
        let bytes = self.u32()? as usize;
        let inline = Batches::Read(self.take(bytes)?);
        let end = u64::from(inline_from) + inline.len() as u64;
        let ordered = extent_from <= written_to && written_to <= inline_from && extent_from <= declared_from;
        if !ordered || end > i32::MAX as u64 || u64::from(declared_from) > end || base > next || base.0 < 0 {
            return Err(Malformed("a segment's positions contradict each other"));
        }
        Ok(Piece { base, extent_from, written_to, declared_from, headers_crc, inline_from, inline, next })
    }

    fn state(&mut self) -> Result<Entry<'a>, Malformed> {
        let partition = self.partition()?;
        let dir = Some(self.name()?).filter(|name| !name.is_empty());
        let start = self.offset()?;
        let [flags] = self.array()?;
        let (sealed, holes) = (flags & 1 != 0, flags & 2 != 0);
        // Counts are not believed: what they claim must be there to be read.
        let mut epochs = Vec::new();
        for _ in 0..self.u32()? {
            epochs.push((self.epoch()?, self.offset()?));
        }
        let mut pieces: Vec<Piece<'a>> = Vec::new();
        for _ in 0..self.u32()? {
            let piece = self.piece()?;
            if pieces.last().is_some_and(|last| last.next != piece.base) {
                return Err(Malformed("a log's segments do not join"));
            }
            if piece.inline_from != piece.written_to {
                return Err(Malformed("a state that is not whole"));
            }
            pieces.push(piece);
        }
        if pieces.is_empty() {
            return Err(Malformed("a state without a segment"));
        }
        Ok(Entry::State { partition, dir, start, sealed, holes, epochs, pieces })
    }

    fn entry(&mut self) -> Result<Entry<'a>, Malformed> {
        Ok(match self.array::<1>()?[0] {
            COMMIT => Entry::Commit { partition: self.partition()?, piece: self.piece()? },
            STATE => self.state()?,
            START => Entry::Start { partition: self.partition()?, offset: self.offset()? },
            EPOCH => Entry::Epoch { partition: self.partition()?, epoch: self.epoch()?, start: self.offset()? },
            ROLL => Entry::Roll { partition: self.partition()?, base: self.offset()? },
            SEALED => Entry::Sealed { partition: self.partition()?, base: self.offset()? },
            REMOVE => {
                let partition = self.partition()?;
                Entry::Remove { partition, dir: Some(self.name()?).filter(|name| !name.is_empty()) }
            }
            REMOVING => Entry::Removing { dir: self.name()? },
            GONE => Entry::Gone { dir: self.name()? },
            DROP => Entry::Drop { partition: self.partition()? },
            CHECKPOINT => Entry::Checkpoint { partition: self.partition()?, checkpoint: self.checkpoint()? },
            _ => return Err(Malformed("an entry of an unknown kind")),
        })
    }
}
