//! What a stopped broker's files say, for tools that read them offline. Pure: whole bytes in, findings out; a broken file is a finding.

use std::collections::BTreeMap;
use std::fmt;

use ringmain_batch::BatchHeader;
use ringmain_types::{Offset, Partition, ShardId};

pub use crate::compaction::checkpoint::NAME as COMPACTED_TO;
use crate::entry::{Entries, Entry, Piece};
use crate::fold::Fold;
use crate::journal::{GroupHeader, Super, checked_entries};
use crate::scan::Scanner;
pub use crate::segment::{file_name, parse_file_name};

/// One shard's journal.
#[derive(Debug)]
pub struct JournalReport {
    pub shard: ShardId,
    pub generation: u64,
    pub block_bytes: u32,
    pub ring_bytes: u64,
    /// Of what is still needed, oldest first.
    pub groups: Vec<GroupReport>,
    /// All groups up to it were known to be flushed.
    pub flushed: u64,
    /// Logs as the groups together say they are.
    pub logs: Vec<OpenLog>,
    pub faults: Vec<JournalFault>,
}

#[derive(Debug)]
pub struct GroupReport {
    pub sequence: u64,
    /// Of its header in the file.
    pub position: u64,
    pub bytes: u32,
    pub flushed: u64,
    pub horizon: u64,
    pub life: u32,
    /// One line each.
    pub entries: Vec<String>,
}

/// What a journal says of one log.
#[derive(Debug)]
pub struct OpenLog {
    pub partition: Partition,
    /// Its directory; `None` while all of it is in the journal.
    pub dir: Option<String>,
    pub start: Offset,
    pub end: Offset,
    /// Those that are not sealed.
    pub segments: Vec<OpenPart>,
    /// Offsets may be missing in the sealed ones: it is, or was, a compacted log.
    pub compacted: bool,
}

/// An open segment: `written_to` bytes of its file, and then `inline`.
#[derive(Debug)]
pub struct OpenPart {
    pub base: Offset,
    pub written_to: u32,
    pub inline: Vec<u8>,
    /// The offset behind its last record.
    pub next: Offset,
    /// What lies behind this position was in groups that nobody was told of: torn, it is no damage.
    pub sure_to: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalFault {
    /// In the file.
    pub position: u64,
    pub what: String,
    /// Of a group that nobody was told of: a torn write, not damage.
    pub torn: bool,
}

impl fmt::Display for JournalFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "position {}: {}", self.position, self.what)
    }
}

/// Reads a journal's file. An error when its first block is not one.
pub fn journal(bytes: &[u8]) -> Result<JournalReport, &'static str> {
    let found = Super::decode(bytes)?;
    let block = found.block_bytes as usize;
    let ring = bytes.get(block..).unwrap_or_default();
    let mut report = JournalReport {
        shard: found.shard,
        generation: found.generation,
        block_bytes: found.block_bytes,
        ring_bytes: found.ring_bytes,
        groups: Vec::new(),
        flushed: 0,
        logs: Vec::new(),
        faults: Vec::new(),
    };
    if (ring.len() as u64) < found.ring_bytes {
        let what = format!("the file ends, {} bytes too early", found.ring_bytes - ring.len() as u64);
        report.faults.push(JournalFault { position: bytes.len() as u64, what, torn: false });
    }
    let candidates = headers(ring, found.nonce, block);
    if let Some((newest, header)) = candidates.last_key_value().map(|(sequence, (header, _))| (*sequence, *header)) {
        report.flushed = header.flushed;
        report.fold(ring, &candidates, header.horizon.max(1), newest);
    }
    Ok(report)
}

/// Headers by sequence, each with its place in the ring; of one sequence the youngest life's.
fn headers(ring: &[u8], nonce: u64, block: usize) -> BTreeMap<u64, (GroupHeader, usize)> {
    let mut found: BTreeMap<u64, (GroupHeader, usize)> = BTreeMap::new();
    for (number, bytes) in ring.chunks(block).enumerate() {
        let Some(header) = GroupHeader::decode(bytes, nonce) else { continue };
        let known = found.get(&header.sequence);
        if known.is_none_or(|(known, _)| known.life < header.life) {
            found.insert(header.sequence, (header, number * block));
        }
    }
    found
}

impl JournalReport {
    fn fold(&mut self, ring: &[u8], candidates: &BTreeMap<u64, (GroupHeader, usize)>, from: u64, newest: u64) {
        let block = u64::from(self.block_bytes);
        let mut fold = Fold::default();
        let mut sure = BTreeMap::new();
        for sequence in from..=newest {
            if sequence == self.flushed + 1 {
                sure = ends(&fold);
            }
            let torn = sequence > self.flushed;
            let Some((header, at)) = candidates.get(&sequence) else {
                let what = format!("group {sequence} is missing");
                self.faults.push(JournalFault { position: block, what, torn });
                break;
            };
            let position = block + *at as u64;
            let entries = ring.get(*at..*at + header.bytes as usize).and_then(checked_entries);
            let Some(entries) = entries else {
                let what = format!("group {sequence}: its CRC does not match");
                self.faults.push(JournalFault { position, what, torn });
                break;
            };
            if let Err(malformed) = fold.group(sequence, entries, header.entries, header.flushed) {
                let what = format!("group {sequence}: {}", malformed.0);
                self.faults.push(JournalFault { position, what, torn: false });
                break;
            }
            let GroupHeader { bytes, flushed, horizon, life, .. } = *header;
            let entries = lines(entries, header.entries);
            self.groups.push(GroupReport { sequence, position, bytes, flushed, horizon, life, entries });
        }
        if newest <= self.flushed {
            sure = ends(&fold);
        }
        self.logs = fold.states.into_values().map(|state| open_log(state, &sure)).collect();
    }
}

type Ends = BTreeMap<(Partition, Offset), u32>;

fn ends(fold: &Fold) -> Ends {
    let logs = fold.states.values();
    logs.flat_map(|log| log.segments.iter().map(|segment| ((log.partition, segment.base), segment.end()))).collect()
}

fn open_log(state: crate::LogState, sure: &Ends) -> OpenLog {
    let (partition, end) = (state.partition, state.end());
    let part = |segment: crate::entry::SegmentState| OpenPart {
        base: segment.base,
        written_to: segment.written_to,
        sure_to: sure.get(&(partition, segment.base)).copied().unwrap_or(0),
        inline: segment.inline,
        next: segment.next,
    };
    let compacted = state.holes;
    let segments = state.segments.into_iter().map(part).collect();
    OpenLog { partition, dir: state.dir, start: state.start, end, segments, compacted }
}

fn lines(bytes: &[u8], count: u32) -> Vec<String> {
    let mut entries = Entries::new(bytes, count);
    let mut lines = Vec::new();
    while let Ok(Some(entry)) = entries.next() {
        lines.push(line(&entry));
    }
    lines
}

fn line(entry: &Entry<'_>) -> String {
    let log = |partition: &Partition| format!("{}-{}", partition.topic, partition.index.0);
    match entry {
        Entry::Commit { partition, piece } => format!("commit {} {}", log(partition), piece_words(piece)),
        Entry::State { partition, dir, start, sealed, epochs, pieces, .. } => {
            let pieces: Vec<_> = pieces.iter().map(piece_words).collect();
            let (dir, epochs) = (dir.unwrap_or("-"), epochs.len());
            let pieces = pieces.join("; ");
            format!("state {} dir {dir} start {} sealed {sealed} epochs {epochs}; {pieces}", log(partition), start.0)
        }
        Entry::Start { partition, offset } => format!("start {} {}", log(partition), offset.0),
        Entry::Epoch { partition, epoch, start } => format!("epoch {} {} from {}", log(partition), epoch.0, start.0),
        Entry::Roll { partition, base } => format!("roll {} at {}", log(partition), base.0),
        Entry::Sealed { partition, base } => format!("sealed {} segment {}", log(partition), base.0),
        Entry::Remove { partition, dir } => format!("remove {} dir {}", log(partition), dir.unwrap_or("-")),
        Entry::Removing { dir } => format!("removing {dir}"),
        Entry::Gone { dir } => format!("gone {dir}"),
        Entry::Drop { partition } => format!("drop {}", log(partition)),
        Entry::Checkpoint { partition, checkpoint } => format!(
            "checkpoint {} segment {} position {} offset {} index {}+{} timeindex {}+{}",
            log(partition),
            checkpoint.base.0,
            checkpoint.position,
            checkpoint.offset.0,
            checkpoint.files[0].bytes,
            checkpoint.files[0].rest.len(),
            checkpoint.files[1].bytes,
            checkpoint.files[1].rest.len(),
        ),
    }
}

fn piece_words(piece: &Piece<'_>) -> String {
    let (extent, inline) = (piece.written_to - piece.extent_from, piece.inline.len());
    let (base, at, next) = (piece.base.0, piece.inline_from, piece.next.0);
    format!(
        "segment {base} blocks {}+{extent} declared {} inline {at}+{inline} next {next}",
        piece.extent_from, piece.declared_from
    )
}

/// Checks the batches of one segment, fed piece by piece.
#[derive(Debug)]
pub struct SegmentReader(Scanner);

/// Where and why a segment stopped making sense; nothing behind it can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentFault {
    pub position: u32,
    pub what: &'static str,
}

impl fmt::Display for SegmentFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "position {}: {}", self.position, self.what)
    }
}

impl SegmentReader {
    /// The first batch begins at `base`.
    pub fn new(base: Offset) -> SegmentReader {
        SegmentReader(Scanner::new(0, Some(base)))
    }

    /// Offsets may be missing. Base offsets are under no CRC of the batch, so less damage is found.
    pub fn compacted(base: Offset) -> SegmentReader {
        SegmentReader(Scanner::new(0, Some(base)).with_holes(true))
    }

    /// The next bytes of a segment of `end` bytes. `each` gets every whole batch that checks, with its position.
    pub fn feed(
        &mut self,
        bytes: &[u8],
        end: u32,
        each: &mut dyn FnMut(&BatchHeader, u32, &[u8]),
    ) -> Result<(), SegmentFault> {
        self.0.feed(bytes, end, each).map_err(|fault| SegmentFault { position: fault.position, what: fault.what })
    }

    /// All bytes were fed: the offset behind the last record.
    pub fn finish(&self) -> Result<Offset, SegmentFault> {
        if self.0.carry().is_empty() {
            return Ok(self.0.next().unwrap_or_default());
        }
        Err(SegmentFault { position: self.0.position(), what: "a batch is cut off" })
    }
}

#[cfg(test)]
mod tests {
    use ringmain_batch::{Builder, Codec};
    use ringmain_types::{PartitionIndex, TopicId, WallMs};

    use super::*;
    use crate::entry::Batches;
    use crate::journal::{HEADER_BYTES, TRAILER_BYTES};
    use crate::said::Said;

    const BLOCK: usize = 512;
    const NONCE: u64 = 99;

    fn partition() -> Partition {
        Partition { topic: TopicId(5), index: PartitionIndex(0) }
    }
    fn batch(base: i64) -> Vec<u8> {
        let mut builder = Builder::new(Codec::None, None);
        builder.push(WallMs(1), None, Some(b"value"), &[]);
        let mut bytes = builder.encode();
        ringmain_batch::stamp(&mut bytes, Offset(base), ringmain_types::LeaderEpoch(0));
        bytes
    }
    /// A group of one entry that puts `inline` at offset 0 on.
    fn group(sequence: u64, flushed: u64, inline: &[u8], next: i64) -> Vec<u8> {
        let piece = Piece {
            base: Offset(0),
            extent_from: 0,
            written_to: 0,
            declared_from: 0,
            headers_crc: 0,
            inline_from: 0,
            inline: Batches::Read(inline),
            next: Offset(next),
        };
        let mut entry = Said::default();
        let state = Entry::State {
            partition: partition(),
            dir: Some("t-0"),
            start: Offset(0),
            sealed: false,
            holes: false,
            epochs: Vec::new(),
            pieces: vec![piece],
        };
        state.encode(&mut entry);
        let entry = entry.bytes();
        let bytes = HEADER_BYTES + entry.len() + TRAILER_BYTES;
        let header = GroupHeader {
            nonce: NONCE,
            life: 1,
            sequence,
            flushed,
            horizon: sequence.min(1),
            bytes: bytes as u32,
            entries: 1,
        };
        let mut group = header.encode().to_vec();
        let crc = crc32c::crc32c_append(GroupHeader::crc(&group), &entry);
        group.extend(entry);
        group.extend(crc.to_le_bytes());
        group.resize(bytes.next_multiple_of(BLOCK), 0);
        group
    }
    fn file(groups: &[Vec<u8>]) -> Vec<u8> {
        let found = Super {
            shard: ShardId(1),
            generation: 3,
            nonce: NONCE,
            block_bytes: BLOCK as u32,
            ring_bytes: 16 * BLOCK as u64,
        };
        let mut bytes = found.encode().to_vec();
        bytes.resize(BLOCK, 0);
        groups.iter().for_each(|group| bytes.extend(group));
        bytes.resize(17 * BLOCK, 0);
        bytes
    }

    #[test]
    fn a_journal_says_what_its_logs_are() {
        let (one, two) = (batch(0), [batch(0), batch(1)].concat());
        let report = journal(&file(&[group(1, 0, &one, 1), group(2, 1, &two, 2)])).unwrap();
        assert_eq!((report.shard, report.generation, report.flushed), (ShardId(1), 3, 1));
        assert_eq!(report.groups.len(), 2);
        assert!(report.groups[1].entries[0].starts_with("state AAAAAAAAAAAAAAAAAAAABQ-0 dir t-0"));
        let log = &report.logs[0];
        assert_eq!((log.end, log.dir.as_deref()), (Offset(2), Some("t-0")));
        assert_eq!(log.segments[0].inline, two);
        assert_eq!(log.segments[0].sure_to as usize, one.len(), "the second group may be torn");
        assert_eq!(report.faults, []);
    }

    #[test]
    fn rot_is_damage_and_a_torn_end_is_none() {
        let (one, two) = (batch(0), [batch(0), batch(1)].concat());
        let whole = file(&[group(1, 0, &one, 1), group(2, 1, &two, 2)]);
        let fault = |at: usize| {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            let report = journal(&bytes).unwrap();
            (report.faults, report.logs.first().map(|log| log.end))
        };
        let (faults, end) = fault(2 * BLOCK + HEADER_BYTES + 9);
        assert!(faults.len() == 1 && faults[0].torn && faults[0].position == 2 * BLOCK as u64, "{faults:?}");
        assert_eq!(end, Some(Offset(1)));
        let (faults, end) = fault(BLOCK + HEADER_BYTES + 9);
        assert!(faults.len() == 1 && !faults[0].torn && faults[0].position == BLOCK as u64, "{faults:?}");
        assert_eq!(end, None);
        assert!(!journal(&whole[..8 * BLOCK]).unwrap().faults.is_empty());
        for length in 0..64 {
            drop(journal(&whole[..length]));
        }
        assert!(journal(&[0; 4096]).is_err());
    }

    #[test]
    fn a_segment_is_read_in_pieces_of_any_size() {
        let bytes = [batch(7), batch(8), batch(9)].concat();
        let end = bytes.len() as u32;
        for size in [1, 60, 61, 100, bytes.len()] {
            let (mut reader, mut seen) = (SegmentReader::new(Offset(7)), Vec::new());
            for piece in bytes.chunks(size) {
                reader.feed(piece, end, &mut |header, position, _| seen.push((header.base, position))).unwrap();
            }
            assert_eq!(reader.finish(), Ok(Offset(10)));
            assert_eq!(seen.len(), 3);
        }
        let mut bad = bytes.clone();
        bad[batch(7).len() + 70] ^= 1;
        let fault = SegmentReader::new(Offset(7)).feed(&bad, end, &mut |_, _, _| {}).unwrap_err();
        assert_eq!(fault.position, batch(7).len() as u32);
        let hole = [batch(7), batch(9)].concat();
        let (end, none) = (hole.len() as u32, &mut |_: &BatchHeader, _: u32, _: &[u8]| {});
        assert!(SegmentReader::new(Offset(7)).feed(&hole, end, none).is_err());
        let mut compacted = SegmentReader::compacted(Offset(7));
        compacted.feed(&hole, end, none).unwrap();
        assert_eq!(compacted.finish(), Ok(Offset(10)));
        let end = bytes.len() as u32;
        let mut cut = SegmentReader::new(Offset(7));
        cut.feed(&bytes[..bytes.len() - 1], end, &mut |_, _, _| {}).unwrap();
        assert!(cut.finish().is_err());
    }
}
