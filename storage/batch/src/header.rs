//! The 61 bytes in front of a batch's records.

use ringmain_types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, WallMs};

use crate::{BatchError, Codec};

/// Bytes in front of the records of a batch of magic 2.
pub const HEADER_BYTES: usize = 61;
/// Bytes that the length field does not count: base offset and the length itself.
pub const LENGTH_OVERHEAD_BYTES: usize = 12;

pub(crate) const LENGTH: usize = 8;
pub(crate) const EPOCH: usize = 12;
pub(crate) const MAGIC: usize = 16;
pub(crate) const CRC: usize = 17;
/// Where the CRC's cover starts; it ends with the batch.
pub(crate) const ATTRIBUTES: usize = 21;
const LAST_OFFSET_DELTA: usize = 23;
const BASE_TIMESTAMP: usize = 27;
pub(crate) const MAX_TIMESTAMP: usize = 35;
const PRODUCER_ID: usize = 43;
const PRODUCER_EPOCH: usize = 51;
const BASE_SEQUENCE: usize = 53;
const COUNT: usize = 57;

pub(crate) const CODEC_MASK: u16 = 0b111;
pub(crate) const LOG_APPEND_TIME: u16 = 1 << 3;
pub(crate) const TRANSACTIONAL: u16 = 1 << 4;
pub(crate) const CONTROL: u16 = 1 << 5;
pub(crate) const DELETE_HORIZON: u16 = 1 << 6;

/// An idempotent producer's part of a batch header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Producer {
    pub id: ProducerId,
    pub epoch: ProducerEpoch,
    /// -1 in transaction markers.
    pub first: Sequence,
    /// Wraps from `i32::MAX` to 0.
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
    /// As the producer wrote it (its CRC covers it): within the topic's bounds, but not proven to be the greatest.
    pub max_timestamp: WallMs,
    pub producer: Option<Producer>,
}

/// A batch header as it stands in a log, base offset and epoch included. Parsed, not trusted: [`crc_ok`] is a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    pub base: Offset,
    pub epoch: LeaderEpoch,
    pub crc: u32,
    pub info: BatchInfo,
}

impl BatchHeader {
    /// From at least `HEADER_BYTES` bytes. Checks magic, lengths, counts and codec, not the CRC. Total: any bytes give a header
    /// whose sums do not overflow, or an error. A compacted batch may hold fewer records than offsets.
    pub fn parse(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
        let raw = Raw::read(bytes)?;
        let bytes = raw.batch_bytes()?;
        let offsets = raw.offsets()?;
        if raw.count < 0 || raw.count as u32 > offsets {
            return Err(BatchError::Invalid { what: "record count and last offset delta disagree" });
        }
        if raw.base < 0 || raw.base.checked_add(i64::from(offsets)).is_none() {
            return Err(BatchError::Invalid { what: "base offset out of range" });
        }
        let (base, epoch) = (Offset(raw.base), LeaderEpoch(raw.epoch));
        Ok(BatchHeader { base, epoch, crc: raw.crc, info: raw.info(bytes, offsets)? })
    }

    pub fn last(&self) -> Offset {
        Offset(self.base.0 + i64::from(self.info.offsets) - 1)
    }

    pub fn next(&self) -> Offset {
        Offset(self.base.0 + i64::from(self.info.offsets))
    }
}

/// CRC-32C over byte 21 to the end of `batch`, one whole batch, against its header's field. False for less than a header.
pub fn crc_ok(batch: &[u8]) -> bool {
    batch.len() >= HEADER_BYTES && crc(batch) == u32::from_be_bytes(field(batch, CRC))
}

/// [`crc_ok`] of a batch that comes in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrcInPieces {
    wanted: u32,
    crc: u32,
}

impl CrcInPieces {
    /// Of the first piece; none for less than a header.
    pub fn begin(piece: &[u8]) -> Option<CrcInPieces> {
        let whole = piece.len() >= HEADER_BYTES;
        whole.then(|| CrcInPieces { wanted: u32::from_be_bytes(field(piece, CRC)), crc: crc(piece) })
    }

    pub fn append(&mut self, piece: &[u8]) {
        self.crc = crc32c::crc32c_append(self.crc, piece);
    }

    /// All pieces came.
    pub fn ok(&self) -> bool {
        self.crc == self.wanted
    }
}

/// Of one whole batch.
pub(crate) fn crc(batch: &[u8]) -> u32 {
    crc32c::crc32c(&batch[ATTRIBUTES..])
}

/// Sets base offset and leader epoch in a copied header; neither is under the CRC.
pub fn stamp(header: &mut [u8], base: Offset, epoch: LeaderEpoch) {
    header[..8].copy_from_slice(&base.0.to_be_bytes());
    header[EPOCH..EPOCH + 4].copy_from_slice(&epoch.0.to_be_bytes());
}

/// LogAppendTime: sets the attribute and max timestamp of a whole batch and computes its CRC anew.
pub fn stamp_time(batch: &mut [u8], at: WallMs) {
    let attributes = u16::from_be_bytes(field(batch, ATTRIBUTES)) | LOG_APPEND_TIME;
    batch[ATTRIBUTES..ATTRIBUTES + 2].copy_from_slice(&attributes.to_be_bytes());
    batch[MAX_TIMESTAMP..MAX_TIMESTAMP + 8].copy_from_slice(&at.0.to_be_bytes());
    set_crc(batch);
}

pub(crate) fn set_crc(batch: &mut [u8]) {
    let crc = crc(batch);
    batch[CRC..CRC + 4].copy_from_slice(&crc.to_be_bytes());
}

/// Sets the codec bits and the length of a whole batch, and its CRC.
pub(crate) fn set_codec(batch: &mut [u8], codec: Codec) {
    let length = i32::try_from(batch.len() - LENGTH_OVERHEAD_BYTES).expect("a batch of less than 2 GiB");
    batch[LENGTH..LENGTH + 4].copy_from_slice(&length.to_be_bytes());
    let attributes = u16::from_be_bytes(field(batch, ATTRIBUTES)) & !CODEC_MASK | u16::from(codec.id());
    batch[ATTRIBUTES..ATTRIBUTES + 2].copy_from_slice(&attributes.to_be_bytes());
    set_crc(batch);
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("N bytes")
}

/// The fields as they stand, nothing checked but the magic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw {
    pub(crate) base: i64,
    pub(crate) length: i32,
    pub(crate) epoch: i32,
    pub(crate) crc: u32,
    pub(crate) attributes: u16,
    pub(crate) last_offset_delta: i32,
    pub(crate) base_timestamp: i64,
    pub(crate) max_timestamp: i64,
    pub(crate) producer_id: i64,
    pub(crate) producer_epoch: i16,
    pub(crate) base_sequence: i32,
    pub(crate) count: i32,
}

impl Raw {
    pub(crate) fn read(bytes: &[u8]) -> Result<Raw, BatchError> {
        if bytes.len() <= MAGIC {
            return Err(BatchError::Length { position: bytes.len() as u32 });
        }
        // Older magics have shorter headers: this one is read first.
        let magic = bytes[MAGIC] as i8;
        if magic != 2 {
            return Err(BatchError::Magic { magic });
        }
        if bytes.len() < HEADER_BYTES {
            return Err(BatchError::Length { position: bytes.len() as u32 });
        }
        Ok(Raw {
            base: i64::from_be_bytes(field(bytes, 0)),
            length: i32::from_be_bytes(field(bytes, LENGTH)),
            epoch: i32::from_be_bytes(field(bytes, EPOCH)),
            crc: u32::from_be_bytes(field(bytes, CRC)),
            attributes: u16::from_be_bytes(field(bytes, ATTRIBUTES)),
            last_offset_delta: i32::from_be_bytes(field(bytes, LAST_OFFSET_DELTA)),
            base_timestamp: i64::from_be_bytes(field(bytes, BASE_TIMESTAMP)),
            max_timestamp: i64::from_be_bytes(field(bytes, MAX_TIMESTAMP)),
            producer_id: i64::from_be_bytes(field(bytes, PRODUCER_ID)),
            producer_epoch: i16::from_be_bytes(field(bytes, PRODUCER_EPOCH)),
            base_sequence: i32::from_be_bytes(field(bytes, BASE_SEQUENCE)),
            count: i32::from_be_bytes(field(bytes, COUNT)),
        })
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.base.to_be_bytes());
        out.extend(self.length.to_be_bytes());
        out.extend(self.epoch.to_be_bytes());
        out.push(2);
        out.extend(self.crc.to_be_bytes());
        out.extend(self.attributes.to_be_bytes());
        out.extend(self.last_offset_delta.to_be_bytes());
        out.extend(self.base_timestamp.to_be_bytes());
        out.extend(self.max_timestamp.to_be_bytes());
        out.extend(self.producer_id.to_be_bytes());
        out.extend(self.producer_epoch.to_be_bytes());
        out.extend(self.base_sequence.to_be_bytes());
        out.extend(self.count.to_be_bytes());
    }

    /// The whole batch's size as its length field says.
    pub(crate) fn batch_bytes(&self) -> Result<u32, BatchError> {
        if self.length < (HEADER_BYTES - LENGTH_OVERHEAD_BYTES) as i32 {
            return Err(BatchError::Length { position: LENGTH as u32 });
        }
        Ok(self.length as u32 + LENGTH_OVERHEAD_BYTES as u32)
    }

    pub(crate) fn offsets(&self) -> Result<u32, BatchError> {
        if self.last_offset_delta < 0 {
            return Err(BatchError::Invalid { what: "last offset delta below 0" });
        }
        Ok(self.last_offset_delta as u32 + 1)
    }

    pub(crate) fn info(&self, bytes: u32, offsets: u32) -> Result<BatchInfo, BatchError> {
        Ok(BatchInfo {
            bytes,
            offsets,
            codec: Codec::from_id((self.attributes & CODEC_MASK) as u8)?,
            transactional: self.attributes & TRANSACTIONAL != 0,
            control: self.attributes & CONTROL != 0,
            log_append_time: self.attributes & LOG_APPEND_TIME != 0,
            base_timestamp: WallMs(self.base_timestamp),
            max_timestamp: WallMs(self.max_timestamp),
            producer: self.producer(offsets),
        })
    }

    fn producer(&self, offsets: u32) -> Option<Producer> {
        let first = Sequence(self.base_sequence);
        let last = if first.0 < 0 { first } else { sequence_after(first, offsets - 1) };
        (self.producer_id >= 0).then_some(Producer {
            id: ProducerId(self.producer_id),
            epoch: ProducerEpoch(self.producer_epoch),
            first,
            last,
        })
    }
}

/// The sequence `count` records behind `first`; wraps from `i32::MAX` to 0.
pub(crate) fn sequence_after(first: Sequence, count: u32) -> Sequence {
    Sequence(((i64::from(first.0) + i64::from(count)) & i64::from(i32::MAX)) as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_wrap_to_zero() {
        assert_eq!(sequence_after(Sequence(5), 3), Sequence(8));
        assert_eq!(sequence_after(Sequence(i32::MAX), 1), Sequence(0));
        assert_eq!(sequence_after(Sequence(i32::MAX - 1), 4), Sequence(2));
    }

    #[test]
    fn any_bytes_parse_or_fail_without_overflow() {
        let mut random = 1u64;
        let mut parsed = 0;
        for round in 0..100_000 {
            let mut bytes: Vec<u8> = (0..HEADER_BYTES)
                .map(|_| {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (random >> 56) as u8
                })
                .collect();
            bytes[MAGIC] = 2;
            // Without this nearly every header fails at its first field.
            if round % 2 == 0 {
                for at in [0, LENGTH, LAST_OFFSET_DELTA, COUNT] {
                    bytes[at] &= 0x7f;
                }
                bytes[COUNT] >>= 3;
            }
            if let Ok(header) = BatchHeader::parse(&bytes) {
                parsed += 1;
                assert!(header.last() < header.next() && header.base <= header.last());
                assert!(header.info.bytes as usize >= HEADER_BYTES);
            }
        }
        assert!(parsed > 1000);
        bytes_at_the_edge();
    }

    fn bytes_at_the_edge() {
        let raw = Raw {
            base: i64::MAX - 1,
            length: 49,
            epoch: 0,
            crc: 0,
            attributes: 0,
            last_offset_delta: 0,
            base_timestamp: 0,
            max_timestamp: 0,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            count: 1,
        };
        let parse = |raw: Raw| {
            let mut bytes = Vec::new();
            raw.write(&mut bytes);
            BatchHeader::parse(&bytes)
        };
        assert_eq!(parse(raw).unwrap().next(), Offset(i64::MAX));
        assert!(parse(Raw { base: i64::MAX, ..raw }).is_err());
        assert!(parse(Raw { base: -1, ..raw }).is_err());
        assert!(parse(Raw { length: 48, ..raw }).is_err());
        assert!(parse(Raw { length: -13, ..raw }).is_err());
        assert!(parse(Raw { count: 2, ..raw }).is_err());
        assert!(parse(Raw { last_offset_delta: i32::MAX, count: 0, base: 0, ..raw }).is_ok());
        assert_eq!(
            parse(Raw { attributes: 5, ..raw }).unwrap_err(),
            BatchError::Codec { what: "codec bits above 4 (zstd)" }
        );
    }
}
