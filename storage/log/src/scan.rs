//! Reads batches off a stretch of a segment, piece by piece, and believes none that does not check.

use ringmain_batch::{BatchHeader, HEADER_BYTES, crc_ok};
use ringmain_types::Offset;

use crate::doubt::in_order;

/// Where and why a stretch stopped making sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScanError {
    pub position: u32,
    pub what: &'static str,
}

#[derive(Debug)]
pub(crate) struct Scanner {
    /// Of the segment: where `carry` begins.
    position: u32,
    /// The begin of a batch whose rest has not come.
    carry: Vec<u8>,
    /// The next batch's base offset; unknown before the first when the stretch begins anywhere.
    next: Option<Offset>,
    /// Offsets may be missing between batches: it was compacted.
    holes: bool,
}

impl Scanner {
    pub fn new(position: u32, next: Option<Offset>) -> Scanner {
        Scanner { position, carry: Vec::new(), next, holes: false }
    }

    pub fn with_holes(self, holes: bool) -> Scanner {
        Scanner { holes, ..self }
    }

    pub fn carry(&self) -> &[u8] {
        &self.carry
    }
    /// Where the next batch begins.
    pub fn position(&self) -> u32 {
        self.position
    }
    pub fn next(&self) -> Option<Offset> {
        self.next
    }

    /// More bytes; no batch may reach past `end`. `each` gets every whole batch with its position.
    pub fn feed(
        &mut self,
        mut bytes: &[u8],
        end: u32,
        each: &mut dyn FnMut(&BatchHeader, u32, &[u8]),
    ) -> Result<(), ScanError> {
        while !self.carry.is_empty() && !bytes.is_empty() {
            let want = self.wanted(&self.carry, end)?.unwrap_or(HEADER_BYTES);
            let more = (want - self.carry.len()).min(bytes.len());
            self.carry.extend_from_slice(&bytes[..more]);
            bytes = &bytes[more..];
            if self.wanted(&self.carry, end)? == Some(self.carry.len()) {
                let batch = std::mem::take(&mut self.carry);
                self.batch(&batch, each)?;
            }
        }
        while !bytes.is_empty() {
            let Some(want) = self.wanted(bytes, end)?.filter(|want| *want <= bytes.len()) else {
                self.carry.extend_from_slice(bytes);
                return Ok(());
            };
            self.batch(&bytes[..want], each)?;
            bytes = &bytes[want..];
        }
        Ok(())
    }

    /// Bytes of the batch that begins `bytes`; none while its header is not whole.
    fn wanted(&self, bytes: &[u8], end: u32) -> Result<Option<usize>, ScanError> {
        let error = |what| ScanError { position: self.position, what };
        if bytes.len() < HEADER_BYTES {
            return Ok(None);
        }
        let header = BatchHeader::parse(bytes).map_err(|_| error("not a batch"))?;
        if u64::from(self.position) + u64::from(header.info.bytes) > u64::from(end) {
            return Err(error("a batch reaches past the end"));
        }
        if !in_order(self.next, self.holes, &header) {
            return Err(error("an offset is missing"));
        }
        Ok(Some(header.info.bytes as usize))
    }

    fn batch(&mut self, batch: &[u8], each: &mut dyn FnMut(&BatchHeader, u32, &[u8])) -> Result<(), ScanError> {
        let error = |what| ScanError { position: self.position, what };
        let header = BatchHeader::parse(batch).map_err(|_| error("not a batch"))?;
        if !crc_ok(batch) {
            return Err(error("a CRC does not match"));
        }
        each(&header, self.position, batch);
        self.position += batch.len() as u32;
        self.next = Some(header.next());
        Ok(())
    }
}
