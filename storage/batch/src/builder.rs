//! Making batches: from records, or from a batch in another codec.

use ringmain_buffer::BufMut;
use ringmain_types::WallMs;
use smallvec::smallvec;

use crate::check::CheckedBatches;
use crate::compression::{compress, decompress};
use crate::header::{CONTROL, HEADER_BYTES, MAX_TIMESTAMP, Producer, Raw, TRANSACTIONAL, set_codec};
use crate::{BatchError, BatchHeader, BatchInfo, Codec, varint};

/// Builds one batch: coordinators, the metadata log, tests, the simulator's clients, the load generator.
#[derive(Clone, Debug)]
pub struct Builder {
    codec: Codec,
    level: Option<i32>,
    attributes: u16,
    producer: Option<Producer>,
    count: u32,
    base_timestamp: i64,
    max_timestamp: i64,
    /// Encoded, not compressed.
    records: Vec<u8>,
    /// One record's body, kept for its memory.
    body: Vec<u8>,
}

impl Builder {
    /// `producer.last` is not read: it follows from `first` and the number of records.
    pub fn new(codec: Codec, producer: Option<Producer>) -> Builder {
        Builder {
            codec,
            level: None,
            attributes: 0,
            producer,
            count: 0,
            base_timestamp: 0,
            max_timestamp: i64::MIN,
            records: Vec::new(),
            body: Vec::new(),
        }
    }

    /// Of gzip (1 to 9) or zstd.
    pub fn level(mut self, level: i32) -> Builder {
        self.level = Some(level);
        self
    }

    pub fn transactional(mut self) -> Builder {
        self.attributes |= TRANSACTIONAL;
        self
    }

    /// A control batch holds one record.
    pub fn control(mut self) -> Builder {
        self.attributes |= CONTROL;
        self
    }

    pub fn push(&mut self, at: WallMs, key: Option<&[u8]>, value: Option<&[u8]>, headers: &[(&str, Option<&[u8]>)]) {
        if self.count == 0 {
            self.base_timestamp = at.0;
        }
        self.max_timestamp = self.max_timestamp.max(at.0);
        self.body.clear();
        self.body.push(0);
        varint::put(&mut self.body, at.0.wrapping_sub(self.base_timestamp));
        varint::put(&mut self.body, i64::from(self.count));
        put_part(&mut self.body, key);
        put_part(&mut self.body, value);
        varint::put(&mut self.body, headers.len() as i64);
        for (name, value) in headers {
            put_part(&mut self.body, Some(name.as_bytes()));
            put_part(&mut self.body, *value);
        }
        varint::put(&mut self.records, self.body.len() as i64);
        self.records.extend_from_slice(&self.body);
        self.count += 1;
    }

    pub fn count(&self) -> u32 {
        self.count
    }

    /// Header and records as they are before compression.
    pub fn bytes(&self) -> usize {
        HEADER_BYTES + self.records.len()
    }

    /// The encoded batch, base offset 0, leader epoch -1, CRC set. Panics without a record: such a batch takes no offset.
    pub fn encode(self) -> Vec<u8> {
        assert!(self.count > 0);
        let mut out = Vec::with_capacity(self.bytes());
        let raw = Raw {
            base: 0,
            length: 0,
            epoch: -1,
            crc: 0,
            attributes: self.attributes,
            last_offset_delta: (self.count - 1) as i32,
            base_timestamp: self.base_timestamp,
            max_timestamp: self.max_timestamp,
            producer_id: self.producer.map_or(-1, |producer| producer.id.0),
            producer_epoch: self.producer.map_or(-1, |producer| producer.epoch.0),
            base_sequence: self.producer.map_or(-1, |producer| producer.first.0),
            count: self.count as i32,
        };
        raw.write(&mut out);
        compress(self.codec, self.level, &self.records, &mut out);
        set_codec(&mut out, self.codec);
        out
    }

    /// As `encode`, into `into`, which is empty and holds at least [`Builder::bytes`] (a codec that makes random bytes grow adds less
    /// than 1 % and 64 bytes). Panics when it does not fit.
    pub fn finish(self, into: BufMut) -> CheckedBatches {
        Encoded::new(self.encode()).finish(into)
    }
}

fn put_part(out: &mut Vec<u8>, part: Option<&[u8]>) {
    match part {
        None => varint::put(out, -1),
        Some(part) => {
            varint::put(out, part.len() as i64);
            out.extend_from_slice(part);
        }
    }
}

/// A batch that was made here and waits for its block.
#[derive(Clone, Debug)]
pub struct Encoded {
    bytes: Vec<u8>,
    info: BatchInfo,
}

impl Encoded {
    fn new(bytes: Vec<u8>) -> Encoded {
        let info = BatchHeader::parse(&bytes).expect("it was just made").info;
        Encoded { bytes, info }
    }

    /// The block that `finish` needs.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Panics when `into` has less room than `bytes()`.
    pub fn finish(self, mut into: BufMut) -> CheckedBatches {
        into.extend(&self.bytes);
        CheckedBatches { bytes: into.freeze(), infos: smallvec![self.info] }
    }
}

/// The same batch in another codec, for topics whose `compression.type` is not `producer`: header fields, offset deltas,
/// timestamps, keys, values and record headers stay. `batches` holds one batch; `scratch` is emptied and used.
pub fn recode(
    batches: &CheckedBatches,
    codec: Codec,
    level: Option<i32>,
    scratch: &mut Vec<u8>,
    bytes_max: usize,
) -> Result<Encoded, BatchError> {
    let [info] = batches.infos[..] else { return Err(BatchError::Invalid { what: "recode takes one batch" }) };
    let (header, packed) = batches.bytes.split_at(HEADER_BYTES);
    let records = if info.codec == Codec::None {
        packed
    } else {
        decompress(info.codec, packed, scratch, bytes_max)?;
        &scratch[..]
    };
    let mut out = Vec::with_capacity(HEADER_BYTES + packed.len());
    out.extend_from_slice(header);
    compress(codec, level, records, &mut out);
    set_codec(&mut out, codec);
    debug_assert_eq!(out[MAX_TIMESTAMP..HEADER_BYTES], header[MAX_TIMESTAMP..]);
    Ok(Encoded::new(out))
}
