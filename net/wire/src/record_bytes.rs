//! The bytes of record batches, which pass through uncopied.

use std::fmt;

use ringmain_buffer::Buf;

use crate::{Field, Kind, Reader, WireError, Writer};

/// In, a range of the frame (`frame.slice_of(..)` makes it a [`Buf`]); out, buffers that are spliced.
#[derive(Clone, Default)]
pub enum RecordBytes<'a> {
    #[default]
    Null,
    Wire(&'a [u8]),
    Parts(Vec<Buf>),
}

impl<'a> RecordBytes<'a> {
    /// Bytes in all; null has none.
    pub fn len(&self) -> usize {
        match self {
            RecordBytes::Null => 0,
            RecordBytes::Wire(bytes) => bytes.len(),
            RecordBytes::Parts(parts) => parts.iter().map(|part| part.len()).sum(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The range of the frame, of what was decoded; `None` when null, or when a handler built it.
    pub fn wire(&self) -> Option<&'a [u8]> {
        match self {
            RecordBytes::Wire(bytes) => Some(bytes),
            _ => None,
        }
    }

    fn bytes(&self) -> impl Iterator<Item = u8> {
        let (wire, parts): (&[u8], &[Buf]) = match self {
            RecordBytes::Null => (&[], &[]),
            RecordBytes::Wire(bytes) => (bytes, &[]),
            RecordBytes::Parts(parts) => (&[], parts),
        };
        wire.iter().copied().chain(parts.iter().flat_map(|part| part.iter().copied()))
    }
}

impl PartialEq for RecordBytes<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.is_null() == other.is_null() && self.len() == other.len() && self.bytes().eq(other.bytes())
    }
}

impl fmt::Debug for RecordBytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_null() { write!(f, "null") } else { write!(f, "RecordBytes({} bytes)", self.len()) }
    }
}

impl<'a> Field<'a> for RecordBytes<'a> {
    const KIND: Kind = Kind::Nullable(&Kind::Records);

    fn read(r: &mut Reader<'a>) -> Result<Self, WireError> {
        Ok(match r.wide_len()? {
            None => RecordBytes::Null,
            Some(len) => RecordBytes::Wire(r.take(len)?),
        })
    }

    fn write(&self, w: &mut Writer) {
        if self.is_null() {
            return w.wide_len(None);
        }
        w.wide_len(Some(self.len()));
        match self {
            RecordBytes::Null => {}
            RecordBytes::Wire(bytes) => w.extend(bytes),
            RecordBytes::Parts(parts) => parts.iter().for_each(|part| w.splice(part.clone())),
        }
    }

    fn is_null(&self) -> bool {
        matches!(self, RecordBytes::Null)
    }

    fn write_present(&self, w: &mut Writer) {
        if self.is_null() { w.wide_len(Some(0)) } else { self.write(w) }
    }
}
