//! What a client's batch must be before anything else looks at it.

use std::fmt;

use ringmain_buffer::Buf;
use ringmain_types::{ErrorCode, WallMs};
use smallvec::{SmallVec, smallvec};

use crate::Codec;
use crate::compression::decoder;
use crate::header::{BatchInfo, DELETE_HORIZON, HEADER_BYTES, Raw, crc};
use crate::varint::{Bytes, Source, Window};

use BatchError::{Compressed, Crc, Expands, Invalid, Length, Magic, NullKey, Timestamp, TimestampType, TooLarge};

/// Parsed, length-, count- and CRC-checked batches of one partition of one request. Only [`check`], [`crate::Builder`] and
/// [`crate::recode`] make one: the inside never looks at raw client bytes again. `bytes` is exactly the batches of `infos`, one
/// behind the other.
#[derive(Clone, Debug)]
pub struct CheckedBatches {
    pub bytes: Buf,
    /// One, from a client.
    pub infos: SmallVec<[BatchInfo; 1]>,
}

#[derive(Clone, Copy, Debug)]
pub struct CheckRules {
    /// `max.message.bytes` of the topic.
    pub batch_bytes_max: u32,
    /// What the records of a compressed batch may come to (`Limits::batch_decompressed_bytes_max`).
    pub decompressed_bytes_max: u32,
    /// A compacted topic refuses records without a key.
    pub compacted: bool,
    /// `message.timestamp.before.max.ms` / `after.max.ms` as a span of allowed record timestamps; ignored with LogAppendTime.
    pub timestamps: (WallMs, WallMs),
    pub log_append_time: bool,
    pub now: WallMs,
}

impl CheckRules {
    /// What any whole batch passes that, packed and unpacked, is no longer than this.
    pub fn lenient(bytes_max: u32) -> CheckRules {
        CheckRules {
            batch_bytes_max: bytes_max,
            decompressed_bytes_max: bytes_max,
            compacted: false,
            timestamps: (WallMs(i64::MIN), WallMs(i64::MAX)),
            log_append_time: false,
            now: WallMs(0),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchError {
    Crc {
        want: u32,
        got: u32,
    },
    /// A length field below its least, or bytes that end before a header does.
    Length {
        position: u32,
    },
    Magic {
        magic: i8,
    },
    /// Counts, deltas, base offset not 0, more than one batch: with what was wrong.
    Invalid {
        what: &'static str,
    },
    TooLarge {
        bytes: u32,
        max: u32,
    },
    /// The records decompress to more than `max` bytes.
    Expands {
        max: u32,
    },
    /// Those without a key in a compacted topic, by their place in the batch: the first `RECORDS_NAMED_MAX`.
    NullKey {
        records: Vec<u32>,
    },
    /// `timestamp` is the first of its kind; `records` has all that are refused, for want of a key too, as `NullKey` has them. Empty
    /// when it is the header's.
    Timestamp {
        records: Vec<u32>,
        timestamp: WallMs,
        earliest: WallMs,
        latest: WallMs,
    },
    /// A client set the LogAppendTime attribute, which is the broker's.
    TimestampType,
    /// A codec that does not exist.
    Codec {
        what: &'static str,
    },
    /// Bytes that their codec does not decompress.
    Compressed {
        what: &'static str,
    },
}

impl BatchError {
    pub fn code(&self) -> ErrorCode {
        match self {
            Crc { .. } | Length { .. } => ErrorCode::CorruptMessage,
            // Message sets of Kafka 0.x, which Produce 3 and later may not carry; above 2 is a format of the future.
            Magic { magic: 0 | 1 } => ErrorCode::InvalidRecord,
            Magic { .. } => ErrorCode::UnsupportedVersion,
            Invalid { .. } | NullKey { .. } | Compressed { .. } => ErrorCode::InvalidRecord,
            TooLarge { .. } | Expands { .. } => ErrorCode::MessageTooLarge,
            Timestamp { .. } | TimestampType => ErrorCode::InvalidTimestamp,
            BatchError::Codec { .. } => ErrorCode::UnsupportedCompressionType,
        }
    }
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Crc { want, got } => write!(f, "the batch says CRC-32C {want:#010x}, its bytes give {got:#010x}"),
            Length { position } => write!(f, "the batch's length at byte {position} is too small for a header"),
            Magic { magic } => write!(f, "record format (magic) {magic} is not taken, only 2"),
            Invalid { what } | BatchError::Codec { what } | Compressed { what } => f.write_str(what),
            TooLarge { bytes, max } => {
                write!(f, "the batch has {bytes} bytes, more than the {max} that max.message.bytes allows")
            }
            Expands { max } => write!(f, "the batch decompresses to more than {max} bytes"),
            NullKey { records } => {
                let first = records.first().copied().unwrap_or_default();
                let others = records.len().saturating_sub(1);
                write!(f, "record {first} and {others} others have no key, and the topic is compacted")
            }
            Timestamp { timestamp, earliest, latest, .. } => write!(
                f,
                "timestamp {} is outside of {} to {} (message.timestamp.before.max.ms, message.timestamp.after.max.ms)",
                timestamp.0, earliest.0, latest.0
            ),
            TimestampType => f.write_str("a producer may not set the timestamp type LogAppendTime"),
        }
    }
}
impl std::error::Error for BatchError {}

/// One batch of a client: Kafka takes exactly one a partition in Produce, so anything else is refused, as is anything that a
/// reader could stumble over later. The CRC comes before all that it covers, so that a flipped bit is called by its name.
///
/// Costs one pass for the CRC and one over the records' lengths; compressed records are decompressed for it, through a small
/// window and at most `rules.decompressed_bytes_max` of them.
pub fn check(records: Buf, rules: &CheckRules) -> Result<CheckedBatches, BatchError> {
    let batch = &records[..];
    if batch.is_empty() {
        return Err(Invalid { what: "no record batch" });
    }
    let raw = Raw::read(batch)?;
    let bytes = raw.batch_bytes()?;
    if (bytes as usize) > batch.len() {
        return Err(Invalid { what: "the records end before their batch does" });
    }
    if raw.base != 0 {
        return Err(Invalid { what: "the base offset of a produced batch must be 0" });
    }
    if bytes > rules.batch_bytes_max {
        return Err(TooLarge { bytes, max: rules.batch_bytes_max });
    }
    let got = crc(&batch[..bytes as usize]);
    if got != raw.crc {
        return Err(Crc { want: raw.crc, got });
    }
    if (bytes as usize) < batch.len() {
        return Err(Invalid { what: "more than one record batch in a partition" });
    }
    let info = produced(&raw, bytes)?;
    let packed = &batch[HEADER_BYTES..];
    match info.codec {
        Codec::None => walk(&mut Bytes::new(packed), &raw, rules)?,
        codec => walk(&mut Window::new(decoder(codec, packed)?, rules.decompressed_bytes_max), &raw, rules)?,
    }
    if !rules.log_append_time && !in_span(raw.max_timestamp, rules) {
        return Err(out_of_span(raw.max_timestamp, rules, Vec::new()));
    }
    Ok(CheckedBatches { bytes: records, infos: smallvec![info] })
}

/// The rules for a client's header.
fn produced(raw: &Raw, bytes: u32) -> Result<BatchInfo, BatchError> {
    let offsets = raw.offsets()?;
    if i64::from(raw.count) != i64::from(offsets) {
        return Err(Invalid { what: "record count and last offset delta disagree" });
    }
    let info = raw.info(bytes, offsets)?;
    if info.control {
        return Err(Invalid { what: "clients may not write control batches" });
    }
    if raw.attributes & DELETE_HORIZON != 0 {
        return Err(Invalid { what: "clients may not set a delete horizon" });
    }
    if info.log_append_time {
        return Err(TimestampType);
    }
    if let Some(producer) = info.producer {
        if producer.epoch.0 < 0 {
            return Err(Invalid { what: "a producer id without an epoch" });
        }
        if producer.first.0 < 0 {
            return Err(Invalid { what: "a producer id without a sequence" });
        }
    } else if info.transactional {
        return Err(Invalid { what: "a transactional batch without a producer id" });
    }
    Ok(info)
}

/// A client that has no timestamp writes -1, which no span refuses (as in Kafka).
const NO_TIMESTAMP: i64 = -1;

fn in_span(timestamp: i64, rules: &CheckRules) -> bool {
    let (earliest, latest) = rules.timestamps;
    timestamp == NO_TIMESTAMP || (earliest.0..=latest.0).contains(&timestamp)
}

fn out_of_span(timestamp: i64, rules: &CheckRules, records: Vec<u32>) -> BatchError {
    let (earliest, latest) = rules.timestamps;
    Timestamp { timestamp: WallMs(timestamp), earliest, latest, records }
}

/// Naming them takes more bytes than a record may have.
const RECORDS_NAMED_MAX: usize = 10_000;

/// The records that the topic refuses: a client is told which, so that it may send the others again.
#[derive(Default)]
struct Refused {
    records: Vec<u32>,
    timestamp: Option<i64>,
}

impl Refused {
    fn add(&mut self, index: i32, timestamp: Option<i64>) {
        self.timestamp = self.timestamp.or(timestamp);
        if self.records.len() < RECORDS_NAMED_MAX {
            self.records.push(index as u32);
        }
    }

    fn result(self, rules: &CheckRules) -> Result<(), BatchError> {
        match self.timestamp {
            Some(timestamp) => Err(out_of_span(timestamp, rules, self.records)),
            None if self.records.is_empty() => Ok(()),
            None => Err(NullKey { records: self.records }),
        }
    }
}

/// Every record's framing: lengths that add up, offset deltas that count from 0, keys and timestamps as the topic wants them.
fn walk(from: &mut impl Source, raw: &Raw, rules: &CheckRules) -> Result<(), BatchError> {
    let mut refused = Refused::default();
    for index in 0..raw.count {
        let length = from.varint()?;
        if length < 0 {
            return Err(Invalid { what: "a record's length below 0" });
        }
        let end = from.taken() + length as u64;
        from.skip(1)?; // attributes: none are in use
        let timestamp_delta = from.varlong()?;
        if from.varint()? != index {
            return Err(Invalid { what: "offset deltas do not count up from 0" });
        }
        let timestamp = raw.base_timestamp.saturating_add(timestamp_delta);
        let key = from.varint()?;
        if key < 0 && rules.compacted {
            refused.add(index, None);
        } else if !rules.log_append_time && !in_span(timestamp, rules) {
            refused.add(index, Some(timestamp));
        }
        skip_part(from, key)?;
        let value = from.varint()?;
        skip_part(from, value)?;
        headers(from)?;
        if from.taken() != end {
            return Err(Invalid { what: "a record's length and its fields disagree" });
        }
    }
    if !from.at_end()? {
        return Err(Invalid { what: "bytes behind the last record" });
    }
    refused.result(rules)
}

fn headers(from: &mut impl Source) -> Result<(), BatchError> {
    let count = from.varint()?;
    if count < 0 {
        return Err(Invalid { what: "a header count below 0" });
    }
    // Each takes at least two bytes or ends the walk, so the count needs no bound of its own.
    for _ in 0..count {
        let key = from.varint()?;
        if key < 0 {
            return Err(Invalid { what: "a header without a key" });
        }
        skip_part(from, key)?;
        let value = from.varint()?;
        skip_part(from, value)?;
    }
    Ok(())
}

/// A part of `length` bytes; below 0 it is null and has none.
fn skip_part(from: &mut impl Source, length: i32) -> Result<(), BatchError> {
    from.skip(length.max(0) as u64)
}
