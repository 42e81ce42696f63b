//! `ringmain log dump`: what a stopped broker's files hold, as text.

use std::fmt::Display;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use ringmain_batch::BatchHeader;
use ringmain_log::index::{OffsetIndex, TimeIndex};
use ringmain_log::inspect::{self, SegmentFault, SegmentReader, parse_file_name};
use ringmain_log::snapshot;
use ringmain_types::Offset;

use crate::data_dir::{DataDir, FileKind, PathError, failed, is_partition, kind, sorted};

const PIECE_BYTES: usize = 1 << 20;
/// A batch that holds more is not a broker's.
const RECORDS_BYTES_MAX: usize = 1 << 30;
/// Of a key or a value, as much is shown.
const SHOWN_BYTES: usize = 200;

pub struct Dump<W> {
    pub out: W,
    pub records: bool,
    /// Files that could not be shown whole.
    pub damaged: u64,
}

impl<W: Write> Dump<W> {
    pub fn paths(&mut self, paths: &[PathBuf]) -> Result<(), PathError> {
        for path in paths {
            self.path(path)?;
        }
        Ok(())
    }

    fn path(&mut self, path: &Path) -> Result<(), PathError> {
        if !std::fs::metadata(path).map_err(failed(path))?.is_dir() {
            let kind = kind(path).ok_or_else(|| PathError::Unknown { path: path.into() })?;
            return self.file(path, kind);
        }
        if let Some(data) = DataDir::open(path)? {
            for (journal, _) in &data.journals {
                self.file(journal, FileKind::Journal)?;
            }
            for partition in data.partitions()? {
                self.path(&partition)?;
            }
            return Ok(());
        }
        if !is_partition(path) {
            return Err(PathError::Unknown { path: path.into() });
        }
        for file in sorted(path)? {
            if let Some(kind) = kind(&file) {
                self.file(&file, kind)?;
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, kind: FileKind) -> Result<(), PathError> {
        self.say(format_args!("{}", path.display()));
        if kind == FileKind::Segment {
            return self.segment(path);
        }
        let bytes = std::fs::read(path).map_err(failed(path))?;
        let base =
            path.file_name().and_then(|name| parse_file_name(name.to_str()?)).map_or(Offset(0), |(base, _)| base);
        match kind {
            FileKind::OffsetIndex => match OffsetIndex::decode(base, u32::MAX, &bytes) {
                Ok(index) => index.entries().for_each(|(offset, position)| {
                    self.say(format_args!("  offset {} position {}", offset.0, position.0));
                }),
                Err(error) => self.fault(error),
            },
            FileKind::TimeIndex => match TimeIndex::decode(base, Offset(i64::MAX), &bytes) {
                Ok(index) => index.entries().for_each(|(timestamp, offset)| {
                    self.say(format_args!("  timestamp {} offset {}", timestamp.0, offset.0));
                }),
                Err(error) => self.fault(error),
            },
            FileKind::Snapshot => match snapshot::decode(&bytes) {
                Ok(rows) => rows.iter().for_each(|row| {
                    let (id, epoch, sequence) = (row.id.0, row.epoch.0, row.last_sequence.0);
                    let (offset, delta, timestamp) = (row.last_offset.0, row.offset_delta, row.timestamp.0);
                    self.say(format_args!(
                        "  producer {id} epoch {epoch} last sequence {sequence} last offset {offset} delta {delta} \
                         timestamp {timestamp}"
                    ));
                }),
                Err(error) => self.fault(error),
            },
            FileKind::Journal => self.journal(&bytes),
            FileKind::Epochs | FileKind::PartitionMetadata => {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                text.lines().for_each(|line| self.say(format_args!("  {}", line.escape_debug())));
            }
            FileKind::Segment => {}
        }
        Ok(())
    }

    fn segment(&mut self, path: &Path) -> Result<(), PathError> {
        let mut file = File::open(path).map_err(failed(path))?;
        let end = file.metadata().map_err(failed(path))?.len().min(i32::MAX as u64) as u32;
        let base =
            path.file_name().and_then(|name| parse_file_name(name.to_str()?)).map_or(Offset(0), |(base, _)| base);
        // Whether it was compacted is told beside it; who looks at one file sees offsets that are missing.
        let mut reader = SegmentReader::compacted(base);
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let bytes = file.read(&mut piece).map_err(failed(path))?;
            let mut each = |header: &BatchHeader, position: u32, batch: &[u8]| self.batch(header, position, batch);
            let fed = match bytes {
                0 => reader.finish().map(drop),
                _ => reader.feed(&piece[..bytes], end, &mut each),
            };
            match fed {
                Err(SegmentFault { position, what }) => {
                    self.fault(format_args!(
                        "position {position}: {what} (an open segment ends where its journal says)"
                    ));
                    return Ok(());
                }
                Ok(()) if bytes == 0 => return Ok(()),
                Ok(()) => {}
            }
        }
    }

    fn batch(&mut self, header: &BatchHeader, position: u32, batch: &[u8]) {
        let info = &header.info;
        let producer = info.producer.map_or(String::new(), |one| {
            format!(" producer {} epoch {} sequences {}-{}", one.id.0, one.epoch.0, one.first.0, one.last.0)
        });
        let control = if info.control { " control" } else { "" };
        let transactional = if info.transactional { " transactional" } else { "" };
        self.say(format_args!(
            "  position {position} offsets {}-{} epoch {} bytes {} codec {} timestamps {}-{} crc {:#010x}{producer}{transactional}{control}",
            header.base.0,
            header.last().0,
            header.epoch.0,
            info.bytes,
            info.codec.name(),
            info.base_timestamp.0,
            info.max_timestamp.0,
            header.crc
        ));
        if self.records {
            self.records_of(header, batch);
        }
    }

    fn records_of(&mut self, header: &BatchHeader, batch: &[u8]) {
        let mut scratch = Vec::new();
        let records = match ringmain_batch::records(batch, &mut scratch, RECORDS_BYTES_MAX) {
            Ok(records) => records,
            Err(error) => return self.fault(error),
        };
        for record in records {
            match record {
                Ok(record) => self.say(format_args!(
                    "    offset {} timestamp {} headers {} key {} value {}",
                    header.base.0.saturating_add(record.offset_delta.into()),
                    header.info.base_timestamp.0.saturating_add(record.timestamp_delta),
                    record.headers.count(),
                    shown(record.key),
                    shown(record.value)
                )),
                Err(error) => return self.fault(error),
            }
        }
    }

    fn journal(&mut self, bytes: &[u8]) {
        let report = match inspect::journal(bytes) {
            Ok(report) => report,
            Err(what) => return self.fault(what),
        };
        let (shard, generation, flushed) = (report.shard.0, report.generation, report.flushed);
        self.say(format_args!(
            "  shard {shard} generation {generation} blocks of {} ring of {} bytes, flushed up to group {flushed}",
            report.block_bytes, report.ring_bytes
        ));
        for group in &report.groups {
            self.say(format_args!(
                "  group {} position {} bytes {} life {} flushed {} horizon {}",
                group.sequence, group.position, group.bytes, group.life, group.flushed, group.horizon
            ));
            group.entries.iter().for_each(|entry| self.say(format_args!("    {entry}")));
        }
        for log in &report.logs {
            let (partition, dir) = (log.partition, log.dir.as_deref().unwrap_or("-"));
            self.say(format_args!(
                "  log {}-{} dir {dir} offsets {}-{}",
                partition.topic, partition.index.0, log.start.0, log.end.0
            ));
            for part in &log.segments {
                self.say(format_args!(
                    "    segment {} file to {} inline {} next {}",
                    part.base.0,
                    part.written_to,
                    part.inline.len(),
                    part.next.0
                ));
            }
        }
        for fault in report.faults {
            match fault.torn {
                true => self.say(format_args!("  {fault}; a torn write that nobody was told of")),
                false => self.fault(fault),
            }
        }
    }

    fn fault(&mut self, what: impl Display) {
        self.damaged += 1;
        self.say(format_args!("  DAMAGED: {what}"));
    }

    fn say(&mut self, line: impl Display) {
        // A closed pipe (`| head`) is no error.
        drop(writeln!(self.out, "{line}"));
    }
}

/// Text as text, the rest as escapes; `null` for none.
fn shown(bytes: Option<&[u8]>) -> String {
    match bytes {
        None => "null".into(),
        Some(bytes) if bytes.len() > SHOWN_BYTES => {
            format!("\"{}\"... ({} bytes)", bytes[..SHOWN_BYTES].escape_ascii(), bytes.len())
        }
        Some(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => format!("{text:?}"),
            Err(_) => format!("\"{}\"", bytes.escape_ascii()),
        },
    }
}
