//! Reading the records of a batch.

use crate::compression::decompress;
use crate::header::{BatchHeader, HEADER_BYTES};
use crate::varint::{Bytes, Source};
use crate::{BatchError, Codec};

/// One record. Offsets and timestamps are relative to the batch's; with LogAppendTime the batch's max timestamp is every
/// record's.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    pub offset_delta: i32,
    pub timestamp_delta: i64,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: Headers<'a>,
}

/// The headers of one record as they stand: their count, then the pairs. Keys may repeat and keep their order; a value may be
/// null.
#[derive(Clone, Copy, Debug, Default)]
pub struct Headers<'a>(pub &'a [u8]);

impl<'a> Headers<'a> {
    /// How many there are.
    pub fn count(self) -> u32 {
        Bytes::new(self.0).varint().map_or(0, |count| count.max(0) as u32)
    }
}

impl<'a> IntoIterator for Headers<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);
    type IntoIter = HeadersIter<'a>;
    fn into_iter(self) -> HeadersIter<'a> {
        let mut bytes = Bytes::new(self.0);
        let left = bytes.varint().unwrap_or(0);
        HeadersIter { bytes, left }
    }
}

/// Over (key, value). Keys are UTF-8 by agreement, not by check. Ends early where the bytes are no headers.
pub struct HeadersIter<'a> {
    bytes: Bytes<'a>,
    left: i32,
}

impl<'a> Iterator for HeadersIter<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);
    fn next(&mut self) -> Option<Self::Item> {
        if self.left <= 0 {
            return None;
        }
        self.left -= 1;
        let key = nullable(&mut self.bytes).ok()??;
        Some((key, nullable(&mut self.bytes).ok()?))
    }
}

/// The records of one whole batch, decompressed into `scratch`, at most `bytes_max`; uncompressed ones are read where they are.
pub fn records<'a>(batch: &'a [u8], scratch: &'a mut Vec<u8>, bytes_max: usize) -> Result<Records<'a>, BatchError> {
    let header = BatchHeader::parse(batch)?;
    let packed = batch
        .get(HEADER_BYTES..header.info.bytes as usize)
        .ok_or(BatchError::Length { position: batch.len() as u32 })?;
    if header.info.codec == Codec::None {
        return Ok(Records(packed));
    }
    decompress(header.info.codec, packed, scratch, bytes_max)?;
    Ok(Records(scratch))
}

/// Uncompressed records, one behind the other. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Records<'a>(pub &'a [u8]);

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, BatchError>;
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let mut bytes = Bytes::new(self.0);
        let record = record(&mut bytes);
        self.0 = if record.is_ok() { bytes.rest() } else { &[] };
        Some(record)
    }
}

fn record<'a>(bytes: &mut Bytes<'a>) -> Result<Record<'a>, BatchError> {
    let length =
        usize::try_from(bytes.varint()?).map_err(|_| BatchError::Invalid { what: "a record's length below 0" })?;
    let mut body = Bytes::new(bytes.take(length)?);
    body.byte()?; // attributes: none are in use
    let timestamp_delta = body.varlong()?;
    let offset_delta = body.varint()?;
    let key = nullable(&mut body)?;
    let value = nullable(&mut body)?;
    let headers = Headers(body.rest());
    Ok(Record { offset_delta, timestamp_delta, key, value, headers })
}

/// Bytes behind their length; a negative length is null, and differs from empty.
fn nullable<'a>(bytes: &mut Bytes<'a>) -> Result<Option<&'a [u8]>, BatchError> {
    match usize::try_from(bytes.varint()?) {
        Ok(length) => bytes.take(length).map(Some),
        Err(_) => Ok(None),
    }
}
