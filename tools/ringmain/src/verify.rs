//! `ringmain log verify`: every byte of a stopped broker's files is read and checked.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use ringmain_log::epochs::LeaderEpochs;
use ringmain_log::index::{OffsetIndex, TimeIndex};
use ringmain_log::inspect::{COMPACTED_TO, OpenLog, OpenPart, SegmentFault, SegmentReader, parse_file_name};
use ringmain_log::{partition_metadata, snapshot};
use ringmain_types::{Offset, Position, TopicId, WallMs};

use crate::data_dir::{DataDir, FileKind, PathError, failed, is_partition, kind, sorted};

const PIECE_BYTES: usize = 1 << 20;

/// What was found; lines go to `out` as it is.
pub struct Verify<W> {
    out: W,
    /// Places where acknowledged bytes, or what leads to them, are wrong.
    pub damaged: u64,
    segments: u64,
    batches: u64,
    bytes: u64,
}

/// A segment as it was read.
#[derive(Default)]
struct Scanned {
    /// Last offset, largest timestamp and position of each batch, by its position.
    batches: BTreeMap<u32, (Offset, WallMs)>,
    end: u32,
    next: Option<Offset>,
}

impl<W: Write> Verify<W> {
    pub fn new(out: W) -> Verify<W> {
        Verify { out, damaged: 0, segments: 0, batches: 0, bytes: 0 }
    }

    pub fn paths(&mut self, paths: &[PathBuf]) -> Result<(), PathError> {
        for path in paths {
            self.path(path)?;
        }
        let (segments, batches, bytes, damaged) = (self.segments, self.batches, self.bytes, self.damaged);
        self.say(format_args!(
            "{segments} segments, {batches} batches, {bytes} bytes checked; {damaged} damaged places"
        ));
        Ok(())
    }

    fn path(&mut self, path: &Path) -> Result<(), PathError> {
        // A partition is known by its directory's name, which `.` hides.
        let path = &path.canonicalize().map_err(failed(path))?;
        let metadata = std::fs::metadata(path).map_err(failed(path))?;
        if metadata.is_dir() {
            if let Some(data) = DataDir::open(path)? {
                return self.data(&data);
            }
            let above = DataDir::above(path)?;
            return if is_partition(path) {
                self.partition(path, above.as_ref())
            } else {
                Err(PathError::Unknown { path: path.into() })
            };
        }
        let directory = path.parent().unwrap_or(path);
        match kind(path) {
            None => Err(PathError::Unknown { path: path.into() }),
            Some(FileKind::Journal) => {
                let bytes = std::fs::read(path).map_err(failed(path))?;
                let report = ringmain_log::inspect::journal(&bytes);
                self.journal(path, &report);
                Ok(())
            }
            // The other files of a partition are checked against each other.
            Some(_) => {
                let above = DataDir::above(directory)?;
                self.partition(directory, above.as_ref())
            }
        }
    }

    fn data(&mut self, data: &DataDir) -> Result<(), PathError> {
        for (path, report) in &data.journals {
            self.journal(path, report);
        }
        for partition in data.partitions()? {
            self.partition(&partition, Some(data))?;
        }
        for log in data.logs() {
            let missing = log.dir.as_ref().filter(|dir| !data.path.join(dir).is_dir());
            if let Some(dir) = missing {
                self.fault(&data.path.join(dir), "the journal has a log here, and there is no directory");
            }
            if log.dir.is_none() {
                self.inline_only(&data.path, log);
            }
        }
        Ok(())
    }

    fn journal(&mut self, path: &Path, report: &Result<ringmain_log::inspect::JournalReport, &'static str>) {
        match report {
            Err(what) => self.fault(path, format_args!("position 0: {what}")),
            Ok(report) => {
                for fault in &report.faults {
                    match fault.torn {
                        true => self.note(path, format_args!("{fault}; a torn write that nobody was told of")),
                        false => self.fault(path, fault),
                    }
                }
            }
        }
    }

    /// A log so small that it never had a file.
    fn inline_only(&mut self, dir: &Path, log: &OpenLog) {
        let place = dir.join(format!("(in the journal) {}-{}", log.partition.topic, log.partition.index.0));
        for part in &log.segments {
            if let Err(fault) = self.segment(&place, SegmentReader::new(part.base), Some(part), None) {
                self.fault(&place, fault);
            }
        }
    }

    fn partition(&mut self, directory: &Path, data: Option<&DataDir>) -> Result<(), PathError> {
        let log = data.and_then(|data| data.log(directory));
        if data.is_some_and(|data| log.is_none() && data.complete()) {
            self.note(directory, "the journal knows no such log: a stray");
        }
        // A copy has no journal that says so, but what compaction writes beside the segments.
        let compacted = log.is_some_and(|log| log.compacted) || directory.join(COMPACTED_TO).is_file();
        let mut scanned: BTreeMap<Offset, Scanned> = BTreeMap::new();
        let mut ends: Option<Offset> = None;
        for path in sorted(directory)? {
            let Some(base) = segment_base(&path).filter(|_| kind(&path) == Some(FileKind::Segment)) else { continue };
            let part = log.and_then(|log| log.segments.iter().find(|part| part.base == base));
            if let Some(end) = ends.filter(|end| *end != base) {
                self.fault(&path, format_args!("begins at offset {}, the segment before ends at {}", base.0, end.0));
            }
            let mut read = Scanned::default();
            // Compaction leaves open segments alone.
            let holes = compacted && part.is_none();
            let reader = if holes { SegmentReader::compacted(base) } else { SegmentReader::new(base) };
            match self.segment(&path, reader, part, Some(&mut read)) {
                Ok(next) => {
                    ends = Some(next);
                    self.tail_in_file(&path, part);
                }
                Err(fault) if part.is_some_and(|part| fault.position >= part.sure_to) => {
                    self.note(&path, format_args!("{fault}; a torn write that nobody was told of"));
                    ends = None;
                }
                Err(fault) => {
                    self.fault(&path, fault);
                    ends = None;
                }
            }
            scanned.insert(base, read);
        }
        for part in log.iter().flat_map(|log| &log.segments) {
            if scanned.contains_key(&part.base) {
                continue;
            }
            let path = directory.join(ringmain_log::inspect::file_name(part.base, "log"));
            if part.written_to > 0 {
                self.fault(&path, "the journal has a segment here, and there is no file");
            } else if let Err(fault) = self.segment(&path, SegmentReader::new(part.base), Some(part), None) {
                self.fault(&path, format_args!("(in the journal) {fault}"));
            }
        }
        for path in sorted(directory)? {
            let open = |base| log.is_some_and(|log| log.segments.iter().any(|part| part.base == base));
            self.beside(&path, &scanned, &open, log.map(|log| log.partition.topic))?;
        }
        Ok(())
    }

    /// All that is valid of a segment: its file, or what the journal says of it. The offset behind its last record.
    fn segment(
        &mut self,
        path: &Path,
        mut reader: SegmentReader,
        part: Option<&OpenPart>,
        mut scanned: Option<&mut Scanned>,
    ) -> Result<Offset, SegmentFault> {
        let unreadable = |position: u32| move |_: io::Error| SegmentFault { position, what: "can't be read" };
        let has_file = part.is_none_or(|part| part.written_to > 0);
        let mut file = has_file.then(|| File::open(path)).transpose().map_err(unreadable(0))?;
        let length = match &file {
            Some(file) => file.metadata().map_err(unreadable(0))?.len(),
            None => 0,
        };
        let written = part.map_or(length, |part| u64::from(part.written_to));
        let inline = part.map_or(&[][..], |part| &part.inline);
        let too_long = SegmentFault { position: i32::MAX as u32, what: "longer than a segment can be" };
        let end = u32::try_from(written + inline.len() as u64).ok().filter(|end| *end <= i32::MAX as u32);
        let end = end.ok_or(too_long)?;

        self.segments += 1;
        let mut batches = 0;
        let mut each = |header: &ringmain_batch::BatchHeader, position: u32, _: &[u8]| {
            batches += 1;
            if let Some(scanned) = &mut scanned {
                scanned.batches.insert(position, (header.last(), header.info.max_timestamp));
            }
        };
        let mut at = 0u64;
        let mut piece = vec![0; PIECE_BYTES];
        let mut result = Ok(());
        while at < written && result.is_ok() {
            let want = piece.len().min(usize::try_from(written - at).unwrap_or(usize::MAX));
            let Some(file) = &mut file else { break };
            result = match file.read(&mut piece[..want]) {
                Ok(0) => {
                    Err(SegmentFault { position: at as u32, what: "the file ends before what the journal declares" })
                }
                Ok(bytes) => {
                    at += bytes as u64;
                    reader.feed(&piece[..bytes], end, &mut each)
                }
                Err(_) => Err(SegmentFault { position: at as u32, what: "can't be read" }),
            };
        }
        if result.is_ok() {
            result = reader.feed(inline, end, &mut each);
        }
        let next = result.and_then(|()| reader.finish());
        self.batches += batches;
        self.bytes += u64::from(end);
        let next = next?;
        if part.is_some_and(|part| part.next != next) {
            return Err(SegmentFault { position: end, what: "the last offset is not what the journal declares" });
        }
        if let Some(scanned) = scanned {
            (scanned.end, scanned.next) = (end, Some(next));
        }
        Ok(next)
    }

    /// A clean stop puts what is in the journal into the file, too. The journal's bytes count at the next start; other tools read the
    /// file's.
    fn tail_in_file(&mut self, path: &Path, part: Option<&OpenPart>) {
        let Some(part) = part else { return };
        let end = u64::from(part.written_to) + part.inline.len() as u64;
        let mut tail = Vec::new();
        let read = File::open(path).and_then(|mut file| {
            if file.metadata()?.len() != end {
                return Ok(false);
            }
            file.seek(SeekFrom::Start(part.written_to.into()))?;
            file.read_to_end(&mut tail)?;
            Ok(true)
        });
        if read.is_ok_and(|exact| exact && tail != part.inline) {
            let from = part.written_to;
            self.note(path, format_args!("position {from}: what follows is not what the journal has, which counts"));
        }
    }

    /// A file beside the segments.
    fn beside(
        &mut self,
        path: &Path,
        scanned: &BTreeMap<Offset, Scanned>,
        open: &dyn Fn(Offset) -> bool,
        topic: Option<TopicId>,
    ) -> Result<(), PathError> {
        let Some(kind) = kind(path).filter(|kind| *kind != FileKind::Segment) else { return Ok(()) };
        let bytes = std::fs::read(path).map_err(failed(path))?;
        let base = segment_base(path).unwrap_or_default();
        let segment = scanned.get(&base);
        let wrong = match (kind, segment) {
            (FileKind::OffsetIndex | FileKind::TimeIndex, None) => {
                self.note(path, "an index without its segment");
                None
            }
            // What was wrong with the segment was said; its end is not known.
            (FileKind::OffsetIndex | FileKind::TimeIndex, Some(Scanned { next: None, .. })) => None,
            (FileKind::OffsetIndex, Some(segment)) => offset_index(base, segment, &bytes),
            (FileKind::TimeIndex, Some(segment)) => time_index(base, segment, &bytes),
            (FileKind::Snapshot, _) => snapshot::decode(&bytes).err().map(|error| error.to_string()),
            (FileKind::Epochs, _) => LeaderEpochs::decode(&bytes, u32::MAX).err().map(|error| error.to_string()),
            (FileKind::PartitionMetadata, _) => match partition_metadata::decode(&bytes) {
                Ok(found) if topic.is_some_and(|topic| topic != found) => Some(format!("topic {found} is another's")),
                decoded => decoded.err().map(|error| error.to_string()),
            },
            (FileKind::Segment | FileKind::Journal, _) => None,
        };
        let index = matches!(kind, FileKind::OffsetIndex | FileKind::TimeIndex);
        match wrong {
            Some(wrong) if index && open(base) => {
                self.note(path, format_args!("{wrong}; of an open segment, made anew at the start"));
            }
            Some(wrong) => self.fault(path, wrong),
            None => {}
        }
        Ok(())
    }

    fn fault(&mut self, path: &Path, what: impl Display) {
        self.damaged += 1;
        self.say(format_args!("{}: {what}", path.display()));
    }

    fn note(&mut self, path: &Path, what: impl Display) {
        self.say(format_args!("note: {}: {what}", path.display()));
    }

    fn say(&mut self, line: impl Display) {
        // A closed pipe ends the reading of the lines, not the check.
        drop(writeln!(self.out, "{line}"));
    }
}

fn segment_base(path: &Path) -> Option<Offset> {
    parse_file_name(path.file_name()?.to_str()?).map(|(base, _)| base).filter(|_| kind(path).is_some())
}

fn offset_index(base: Offset, segment: &Scanned, bytes: &[u8]) -> Option<String> {
    let index = match OffsetIndex::decode(base, segment.end, bytes) {
        Ok(index) => index,
        Err(error) => return Some(error.to_string()),
    };
    let wrong = |(_, entry): &(usize, (Offset, Position))| {
        segment.batches.get(&entry.1.0).is_none_or(|(last, _)| *last != entry.0)
    };
    let (at, (offset, position)) = index.entries().enumerate().find(wrong)?;
    Some(format!("entry {at}: no batch at position {} ends at offset {}", position.0, offset.0))
}

fn time_index(base: Offset, segment: &Scanned, bytes: &[u8]) -> Option<String> {
    let next = segment.next?;
    let index = match TimeIndex::decode(base, next, bytes) {
        Ok(index) => index,
        Err(error) => return Some(error.to_string()),
    };
    // An entry has the largest timestamp so far, and the end of the first batch that has it.
    let mut firsts: BTreeMap<WallMs, Offset> = BTreeMap::new();
    for (last, timestamp) in segment.batches.values() {
        if firsts.last_key_value().is_none_or(|(largest, _)| timestamp > largest) {
            firsts.insert(*timestamp, *last);
        }
    }
    let wrong = |(_, entry): &(usize, (WallMs, Offset))| firsts.get(&entry.0) != Some(&entry.1);
    let (at, (timestamp, offset)) = index.entries().enumerate().find(wrong)?;
    let (timestamp, offset) = (timestamp.0, offset.0);
    Some(format!("entry {at}: the first batch with timestamp {timestamp} does not end at offset {offset}"))
}

#[cfg(test)]
mod tests {
    use ringmain_batch::{Builder, Codec, stamp};
    use ringmain_log::index::{IndexedBatch, SegmentIndex};
    use ringmain_types::LeaderEpoch;

    use super::*;
    use crate::dump::Dump;

    /// A partition as a clean stop leaves it: ten batches in one segment, with all that belongs to it. Removed with the value.
    struct Partition(PathBuf);
    impl Partition {
        fn new(name: &str) -> Partition {
            let directory = std::env::temp_dir().join(format!("ringmain-{}-{name}/t-0", std::process::id()));
            std::fs::create_dir_all(&directory).unwrap();
            let (mut log, mut index) = (Vec::new(), SegmentIndex::new(Offset(0), 10 << 20));
            for base in (0..30).step_by(3) {
                let mut builder = Builder::new(Codec::Lz4, None);
                for record in 0..3 {
                    builder.push(WallMs(1000 + base + record), Some(b"key"), Some(&[7; 100]), &[]);
                }
                let mut batch = builder.encode();
                stamp(&mut batch, Offset(base), LeaderEpoch(0));
                index.push(
                    IndexedBatch {
                        last: Offset(base + 2),
                        position: Position(log.len() as u32),
                        bytes: batch.len() as u32,
                        max_timestamp: WallMs(1002 + base),
                    },
                    100,
                );
                log.extend(batch);
            }
            index.seal();
            let partition = Partition(directory);
            partition.write("log", &log);
            partition.write("index", &index.offsets().encode());
            partition.write("timeindex", &index.times().encode());
            partition.write("snapshot", &snapshot::encode(&[]));
            let mut epochs = LeaderEpochs::new(1);
            epochs.assign(LeaderEpoch(0), Offset(0));
            std::fs::write(partition.0.join("leader-epoch-checkpoint"), epochs.encode()).unwrap();
            std::fs::write(partition.0.join("partition.metadata"), partition_metadata::encode(TopicId(5))).unwrap();
            partition
        }
        fn file(&self, extension: &str) -> PathBuf {
            self.0.join(format!("{:020}.{extension}", 0))
        }
        fn write(&self, extension: &str, bytes: &[u8]) {
            std::fs::write(self.file(extension), bytes).unwrap();
        }
        fn read(&self, extension: &str) -> Vec<u8> {
            std::fs::read(self.file(extension)).unwrap()
        }
        fn verify(&self) -> (u64, String) {
            let mut out = Vec::new();
            let mut verify = Verify::new(&mut out);
            verify.paths(std::slice::from_ref(&self.0)).unwrap();
            (verify.damaged, String::from_utf8(out).unwrap())
        }
    }
    impl Drop for Partition {
        fn drop(&mut self) {
            drop(std::fs::remove_dir_all(self.0.parent().unwrap()));
        }
    }

    #[test]
    fn a_whole_partition_is_whole() {
        let partition = Partition::new("whole");
        let (damaged, text) = partition.verify();
        assert_eq!(damaged, 0, "{text}");
        assert!(text.starts_with("1 segments, 10 batches, "), "{text}");
        let mut out = Vec::new();
        let mut dump = Dump { out: &mut out, records: true, damaged: 0 };
        dump.paths(std::slice::from_ref(&partition.0)).unwrap();
        assert_eq!(dump.damaged, 0);
        let text = String::from_utf8(out).unwrap();
        for part in ["offsets 27-29 epoch 0", "codec lz4", "offset 29 timestamp 1029", "key \"key\"", "topic_id: "] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }

    #[test]
    fn every_flipped_byte_of_a_segment_is_found_with_file_and_position() {
        let partition = Partition::new("flip");
        let whole = partition.read("log");
        let batch = whole.len() / 10;
        for at in (0..whole.len()).step_by(17) {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            partition.write("log", &bytes);
            let (damaged, text) = partition.verify();
            // The leader epoch (12..16) is under no CRC of the batch; the journal's covers it.
            let epoch = (12..16).contains(&(at % batch));
            assert_eq!(damaged > 0, !epoch, "byte {at}: {text}");
            let place = format!("{}: position {}: ", partition.file("log").display(), at / batch * batch);
            assert!(epoch || text.contains(&place), "byte {at}: {text}");
        }
        partition.write("log", &whole[..whole.len() - 1]);
        assert!(partition.verify().1.contains("position"));
    }

    #[test]
    fn what_stands_beside_a_segment_is_compared_with_it() {
        let partition = Partition::new("beside");
        let mut index = partition.read("index");
        index[7] ^= 1;
        partition.write("index", &index);
        let mut times = partition.read("timeindex");
        times[7] ^= 1;
        partition.write("timeindex", &times);
        partition.write("snapshot", b"xx");
        std::fs::write(partition.0.join("leader-epoch-checkpoint"), "0\n5\n").unwrap();
        std::fs::write(partition.0.join("partition.metadata"), "version: 7\n").unwrap();
        let (damaged, text) = partition.verify();
        assert_eq!(damaged, 5, "{text}");
        for part in [".index: entry 0", ".timeindex: entry 0", ".snapshot: 2 bytes", "5 entries are claimed", "\"7\""] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }

    #[test]
    fn what_is_no_log_is_refused() {
        let mut verify = Verify::new(Vec::new());
        let temp = std::env::temp_dir();
        assert!(matches!(verify.paths(&[temp.join("ringmain-no-such")]), Err(PathError::Io { .. })));
        assert!(matches!(verify.paths(&["/proc".into()]), Err(PathError::Unknown { .. })));
        assert!(matches!(verify.paths(&["/proc/version".into()]), Err(PathError::Unknown { .. })));
    }
}
