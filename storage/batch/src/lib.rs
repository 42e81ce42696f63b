//! `storage/batch`: record batch v2. Checks what a client sent, reads records, builds batches. Runs on whichever core holds the
//! bytes; no I/O.
#![forbid(unsafe_code)]

use ringmain_buffer::{Buf, BufMut};
use ringmain_types::{ErrorCode, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, WallMs};

pub const HEADER_BYTES: usize = 61;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codec {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

/// An idempotent producer's part of a batch header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Producer {
    pub id: ProducerId,
    pub epoch: ProducerEpoch,
    pub first: Sequence,
    pub last: Sequence,
}

/// What the log needs to know of a batch, computed once at the edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchInfo {
    /// The whole batch, header included.
    pub bytes: u32,
    /// Last offset delta + 1: the offsets that the batch takes.
    pub offsets: u32,
    pub codec: Codec,
    pub transactional: bool,
    pub control: bool,
    pub log_append_time: bool,
    pub base_timestamp: WallMs,
    pub max_timestamp: WallMs,
    pub producer: Option<Producer>,
}

/// A batch header as it stands in a log, base offset and epoch included. Parsed, not trusted: `crc_ok` is a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    pub base: Offset,
    pub epoch: LeaderEpoch,
    pub crc: u32,
    pub info: BatchInfo,
}

impl BatchHeader {
    /// From at least `HEADER_BYTES` bytes. Checks magic, lengths and counts, not the CRC.
    pub fn parse(_bytes: &[u8]) -> Result<BatchHeader, BatchError> {
        unimplemented!()
    }
    pub fn last(&self) -> Offset {
        Offset(self.base.0 + i64::from(self.info.offsets) - 1)
    }
    pub fn next(&self) -> Offset {
        Offset(self.base.0 + i64::from(self.info.offsets))
    }
}
/// CRC-32C over byte 21 to the end of one whole batch, against its header's field.
pub fn crc_ok(_batch: &[u8]) -> bool {
    unimplemented!()
}

/// Parsed, length-, count- and CRC-checked batches of one partition of one request. Only [`check`] and [`Builder`] make one: the
/// inside never looks at raw client bytes again. `bytes` is exactly the batches of `infos`, one behind the other.
#[derive(Clone, Debug)]
pub struct CheckedBatches {
    pub bytes: Buf,
    pub infos: Vec<BatchInfo>,
}

#[derive(Clone, Copy, Debug)]
pub struct CheckRules {
    /// `max.message.bytes` of the topic.
    pub batch_bytes_max: u32,
    /// A compacted topic refuses records without a key.
    pub compacted: bool,
    /// `message.timestamp.before.max.ms` / `after.max.ms` as a span of allowed record timestamps; ignored with LogAppendTime.
    pub timestamps: (WallMs, WallMs),
    pub log_append_time: bool,
    pub now: WallMs,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchError {
    Crc {
        want: u32,
        got: u32,
    },
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
    NullKey {
        index: u32,
    },
    Timestamp {
        timestamp: WallMs,
        earliest: WallMs,
        latest: WallMs,
    },
    Codec {
        what: &'static str,
    },
}
impl BatchError {
    pub fn code(&self) -> ErrorCode {
        unimplemented!()
    }
}
impl std::fmt::Display for BatchError {
    fn fmt(&self, _f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        unimplemented!()
    }
}

/// Kafka takes exactly one batch a partition in Produce.
pub fn check(_records: Buf, _rules: &CheckRules) -> Result<CheckedBatches, BatchError> {
    unimplemented!()
}

/// Sets base offset and leader epoch in a copied header; neither is under the CRC.
pub fn stamp(_header: &mut [u8], _base: Offset, _epoch: LeaderEpoch) {
    unimplemented!()
}
/// LogAppendTime: sets the attribute and max timestamp of a whole batch and computes its CRC anew.
pub fn stamp_time(_batch: &mut [u8], _at: WallMs) {
    unimplemented!()
}

pub struct Record<'a> {
    pub offset_delta: i32,
    pub timestamp_delta: i64,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: Headers<'a>,
}
/// Undecoded headers of one record; iterates over (key, value).
#[derive(Clone, Copy)]
pub struct Headers<'a>(pub &'a [u8]);

/// The records of one whole batch, decompressed into `scratch`, at most `bytes_max`.
pub fn records<'a>(_batch: &'a [u8], _scratch: &'a mut Vec<u8>, _bytes_max: usize) -> Result<Records<'a>, BatchError> {
    unimplemented!()
}
pub struct Records<'a>(pub &'a [u8]);
impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, BatchError>;
    fn next(&mut self) -> Option<Self::Item> {
        unimplemented!()
    }
}

/// Builds one batch: coordinators, the metadata log, tests, the simulator's clients, the load generator.
pub struct Builder {}
impl Builder {
    pub fn new(_codec: Codec, _producer: Option<Producer>) -> Builder {
        unimplemented!()
    }
    pub fn push(
        &mut self,
        _at: WallMs,
        _key: Option<&[u8]>,
        _value: Option<&[u8]>,
        _headers: &[(&str, Option<&[u8]>)],
    ) {
        unimplemented!()
    }
    /// The encoded batch, base offset 0, CRC set.
    pub fn encode(self) -> Vec<u8> {
        unimplemented!()
    }
    pub fn finish(self, _into: BufMut) -> CheckedBatches {
        unimplemented!()
    }
}
