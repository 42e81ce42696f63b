//! The reading half: bounds, lengths and tagged fields.

use crate::WireError;
use crate::count::{Counted, Memory, Pieces};

/// Kafka's bound for strings, compact ones too.
pub(crate) const STRING_BYTES_MAX: usize = i16::MAX as usize;

/// Tagged fields of one struct. Kafka has no bound, and at most a dozen: those that nobody knows cost time, too.
const TAGS_MAX: u32 = 256;

/// Over one whole body. Knows the version and whether it is flexible, so that no field type asks. Copies nothing.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    /// What was not read yet.
    pub rest: &'a [u8],
    pub version: i16,
    pub flexible: bool,
    /// The field that is being read; errors name it.
    pub field: &'static str,
    /// Elements of arrays read so far, at all levels: what a message takes in memory follows from their number.
    pub elements: usize,
    /// Where the body begins.
    base: usize,
    pub(crate) memory: Memory<'a>,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8], version: i16, flexible: bool) -> Reader<'a> {
        let base = bytes.as_ptr() as usize;
        Reader { rest: bytes, version, flexible, field: "", elements: 0, base, memory: Memory::None }
    }

    /// Of a part of `body`, which was counted.
    pub(crate) fn counted(mut self, body: &[u8], counted: Option<&'a Counted>) -> Reader<'a> {
        self.base = body.as_ptr() as usize;
        self.memory = counted.map_or(Memory::None, Memory::Whole);
        self
    }

    pub(crate) fn counting(mut self, pieces: &'a Pieces) -> Reader<'a> {
        self.memory = Memory::Pieces(pieces);
        self
    }

    /// Bytes of the body before what was not read yet. Bodies have less than 2^31.
    pub(crate) fn position(&self) -> u32 {
        (self.rest.as_ptr() as usize - self.base) as u32
    }

    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(WireError::Short { field: self.field })?;
        self.rest = rest;
        Ok(taken)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(WireError::Short { field: self.field })?;
        self.rest = rest;
        Ok(*taken)
    }

    /// An unsigned varint of at most 32 bits.
    pub fn uvar(&mut self) -> Result<u32, WireError> {
        let mut value = 0u64;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                let narrow = u32::try_from(value);
                return narrow.map_err(|_| WireError::Value { field: self.field, value: value as i64 });
            }
        }
        Err(WireError::Value { field: self.field, value: value as i64 })
    }

    /// The length of a string; `None` is null. Never more than what is left.
    pub fn string_len(&mut self) -> Result<Option<usize>, WireError> {
        let len =
            if self.flexible { i64::from(self.uvar()?) - 1 } else { i64::from(i16::from_be_bytes(self.array()?)) };
        self.check_len(len, STRING_BYTES_MAX)
    }

    /// The length of bytes, or the count of an array; `None` is null. Never more than what is left: an element has at least one
    /// byte, so a count that lies fails here, before anything is done about it.
    pub fn wide_len(&mut self) -> Result<Option<usize>, WireError> {
        let len =
            if self.flexible { i64::from(self.uvar()?) - 1 } else { i64::from(i32::from_be_bytes(self.array()?)) };
        self.check_len(len, i32::MAX as usize)
    }

    fn check_len(&self, len: i64, max: usize) -> Result<Option<usize>, WireError> {
        if len == -1 {
            return Ok(None);
        }
        match usize::try_from(len) {
            Ok(len) if len <= max && len <= self.rest.len() => Ok(Some(len)),
            // A plausible length that the bytes do not reach is a truncation.
            Ok(len) if len <= max => Err(WireError::Short { field: self.field }),
            _ => Err(WireError::Length { field: self.field, value: len }),
        }
    }

    /// Calls `known` with a reader over each tagged field's value; it returns false to have it skipped. A known value must be read
    /// to its end.
    pub fn tags(
        &mut self,
        mut known: impl FnMut(u32, &mut Reader<'a>) -> Result<bool, WireError>,
    ) -> Result<(), WireError> {
        self.field = "tagged fields";
        let count = self.uvar()?;
        if count > TAGS_MAX {
            return Err(WireError::Value { field: self.field, value: i64::from(count) });
        }
        self.memory.pay_more(count as usize / 4);
        for _ in 0..count {
            let tag = self.uvar()?;
            let len = self.uvar()? as usize;
            let mut value = Reader { rest: self.take(len)?, ..*self };
            if known(tag, &mut value)? {
                value.end()?;
                self.elements = value.elements;
            }
        }
        Ok(())
    }

    /// Fails when bytes are left.
    pub fn end(&self) -> Result<(), WireError> {
        if self.rest.is_empty() { Ok(()) } else { Err(WireError::Trailing { bytes: self.rest.len() }) }
    }
}
