//! What can stand in a message: the trait, and the primitive types.

use ringmain_types::{
    BrokerId, ErrorCode, LeaderEpoch, Offset, PartitionIndex, ProducerEpoch, ProducerId, Sequence, TopicId, WallMs,
};

use crate::count::STRING_BYTES;
use crate::reader::STRING_BYTES_MAX;
use crate::{Kind, Reader, WireError, Writer};

/// A value of a message. `'a` is the frame that it was decoded from.
pub trait Field<'a>: Sized {
    /// What the schema calls it.
    const KIND: Kind;

    fn read(r: &mut Reader<'a>) -> Result<Self, WireError>;
    fn write(&self, w: &mut Writer);

    /// As the value of a tagged field: there a nullable struct says with 0 that it is null.
    fn read_tagged(r: &mut Reader<'a>) -> Result<Self, WireError> {
        Self::read(r)
    }
    fn write_tagged(&self, w: &mut Writer) {
        self.write(w);
    }
    /// Whether this is null on the wire.
    fn is_null(&self) -> bool {
        false
    }
    /// Writes null as empty: for versions in which the field may not be null.
    fn write_present(&self, w: &mut Writer) {
        self.write(w);
    }
}

macro_rules! integers { ($($t:ty, $kind:ident;)*) => {$(
    impl<'a> Field<'a> for $t {
        const KIND: Kind = Kind::$kind;
        fn read(r: &mut Reader<'a>) -> Result<$t, WireError> {
            Ok(<$t>::from_be_bytes(r.array()?))
        }
        fn write(&self, w: &mut Writer) {
            w.extend(&self.to_be_bytes());
        }
    }
)*} }

integers! {
    i8, Int8;
    i16, Int16;
    i32, Int32;
    i64, Int64;
    u128, Uuid;
}

macro_rules! newtypes { ($($t:ident($inner:ty);)*) => {$(
    impl<'a> Field<'a> for $t {
        const KIND: Kind = <$inner>::KIND;
        fn read(r: &mut Reader<'a>) -> Result<$t, WireError> {
            Ok($t(<$inner>::read(r)?))
        }
        fn write(&self, w: &mut Writer) {
            self.0.write(w);
        }
    }
)*} }

newtypes! {
    Offset(i64);
    LeaderEpoch(i32);
    PartitionIndex(i32);
    BrokerId(i32);
    ProducerId(i64);
    ProducerEpoch(i16);
    Sequence(i32);
    WallMs(i64);
    TopicId(u128);
}

impl<'a> Field<'a> for bool {
    const KIND: Kind = Kind::Bool;
    /// Anything but 0 is true, as in Kafka.
    fn read(r: &mut Reader<'a>) -> Result<bool, WireError> {
        Ok(r.array()? != [0])
    }
    fn write(&self, w: &mut Writer) {
        w.extend(&[u8::from(*self)]);
    }
}

impl<'a> Field<'a> for ErrorCode {
    const KIND: Kind = Kind::Int16;
    /// A code that a newer peer made up reads as `UnknownServerError`, as in Kafka's clients: it is an error all the same, and the
    /// rest of the reply stays readable.
    fn read(r: &mut Reader<'a>) -> Result<ErrorCode, WireError> {
        Ok(ErrorCode::from_code(i16::read(r)?).unwrap_or(ErrorCode::UnknownServerError))
    }
    fn write(&self, w: &mut Writer) {
        self.code().write(w);
    }
}

impl<'a> Field<'a> for Option<&'a str> {
    const KIND: Kind = Kind::Nullable(&Kind::String);
    fn read(r: &mut Reader<'a>) -> Result<Option<&'a str>, WireError> {
        let Some(len) = r.string_len()? else { return Ok(None) };
        r.memory.pay_more(len / STRING_BYTES);
        let text = std::str::from_utf8(r.take(len)?);
        Ok(Some(text.map_err(|_| WireError::Utf8 { field: r.field })?))
    }
    fn write(&self, w: &mut Writer) {
        match self {
            None => w.string_len(None),
            Some(text) => text.write(w),
        }
    }
    fn is_null(&self) -> bool {
        self.is_none()
    }
    fn write_present(&self, w: &mut Writer) {
        self.unwrap_or("").write(w);
    }
}

impl<'a> Field<'a> for &'a str {
    const KIND: Kind = Kind::String;
    fn read(r: &mut Reader<'a>) -> Result<&'a str, WireError> {
        Option::<&str>::read(r)?.ok_or(WireError::Length { field: r.field, value: -1 })
    }
    /// A text that is longer than Kafka's strings may be (an error message, say) is cut.
    fn write(&self, w: &mut Writer) {
        let text = &self[..self.floor_char_boundary(STRING_BYTES_MAX)];
        w.string_len(Some(text.len()));
        w.extend(text.as_bytes());
    }
}

impl<'a> Field<'a> for Option<&'a [u8]> {
    const KIND: Kind = Kind::Nullable(&Kind::Bytes);
    fn read(r: &mut Reader<'a>) -> Result<Option<&'a [u8]>, WireError> {
        r.wide_len()?.map(|len| r.take(len)).transpose()
    }
    fn write(&self, w: &mut Writer) {
        match self {
            None => w.wide_len(None),
            Some(bytes) => bytes.write(w),
        }
    }
    fn is_null(&self) -> bool {
        self.is_none()
    }
    fn write_present(&self, w: &mut Writer) {
        self.unwrap_or_default().write(w);
    }
}

impl<'a> Field<'a> for &'a [u8] {
    const KIND: Kind = Kind::Bytes;
    fn read(r: &mut Reader<'a>) -> Result<&'a [u8], WireError> {
        Option::<&[u8]>::read(r)?.ok_or(WireError::Length { field: r.field, value: -1 })
    }
    fn write(&self, w: &mut Writer) {
        w.wide_len(Some(self.len()));
        w.extend(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_cut_at_kafkas_bound_and_between_characters() {
        let long = "ä".repeat(20_000);
        let mut w = Writer::new(0, false);
        long.as_str().write(&mut w);
        let bytes = w.finish().concat();
        let text = <&str>::read(&mut Reader::new(&bytes, 0, false)).unwrap();
        assert_eq!((text.len(), text.chars().all(|c| c == 'ä')), (32_766, true));
        let mut longer = vec![0x80 | 0x01, 0x80, 0x02];
        longer.resize(3 + 32_768, b'a');
        let error = <&str>::read(&mut Reader::new(&longer, 0, true)).unwrap_err();
        assert_eq!(error, WireError::Length { field: "", value: 32_768 });
    }

    #[test]
    fn null_is_not_a_string() {
        assert!(<&str>::read(&mut Reader::new(&[0xff, 0xff], 0, false)).is_err());
        assert_eq!(Option::<&str>::read(&mut Reader::new(&[0xff, 0xff], 0, false)), Ok(None));
        assert!(Option::<&str>::read(&mut Reader::new(&[0xff, 0xfe], 0, false)).is_err(), "-2");
        assert!(Option::<&str>::read(&mut Reader::new(&[0, 1, 0xff], 0, false)).is_err(), "not UTF-8");
    }

    #[test]
    fn a_code_from_the_future_is_still_an_error() {
        assert_eq!(ErrorCode::read(&mut Reader::new(&[0x7f, 0], 0, false)), Ok(ErrorCode::UnknownServerError));
    }
}
