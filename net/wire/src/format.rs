//! Formats that stand elsewhere than in a frame: records of internal topics, and what clients of a group tell each other.

use crate::{Field, Kind, Reader, WireError, Writer};

/// Which key, versions and form a format has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatSpec {
    /// The type of the record; -1 when it is none.
    pub key: i16,
    pub versions: (i16, i16),
    /// The first version with compact lengths and tagged fields; `i16::MAX` when there is none.
    pub flexible: i16,
}

/// Bytes that begin with 16 bits: the type of the record (keys), or the version of what follows (all others).
pub trait Format {
    const SPEC: FormatSpec;
}

/// A format and its body.
#[derive(Debug)]
pub struct FormatInfo {
    pub spec: FormatSpec,
    pub body: Kind,
}

impl FormatInfo {
    pub const fn of<'a, T: Format + Field<'a>>() -> FormatInfo {
        FormatInfo { spec: T::SPEC, body: T::KIND }
    }
}

/// The type of a record, which says what its key and value are.
pub fn key_type(key: &[u8]) -> Result<i16, WireError> {
    i16::read(&mut Reader::new(key, 0, false))
}

/// The key of a record whose type is known to be `T`'s.
pub fn decode_key<'a, T: Format + Field<'a>>(key: &'a [u8]) -> Result<T, WireError> {
    let mut r = Reader::new(key, 0, T::SPEC.flexible == 0);
    let found = i16::read(&mut r)?;
    if found != T::SPEC.key {
        return Err(WireError::Value { field: "key type", value: i64::from(found) });
    }
    let body = T::read(&mut r)?;
    r.end()?;
    Ok(body)
}

/// A record's value. A version that is not known is an error: what it holds can't be guessed.
pub fn decode_value<'a, T: Format + Field<'a>>(value: &'a [u8]) -> Result<T, WireError> {
    let mut r = Reader::new(value, 0, false);
    let version = i16::read(&mut r)?;
    let (min, max) = T::SPEC.versions;
    if !(min..=max).contains(&version) {
        return Err(WireError::Value { field: "version", value: i64::from(version) });
    }
    let mut r = Reader::new(r.rest, version, version >= T::SPEC.flexible);
    let body = T::read(&mut r)?;
    r.end()?;
    Ok(body)
}

/// What a client wrote, whose later versions only add to the end: a later one is read as the last that is known, and what follows
/// is not looked at, as in Kafka.
pub fn decode_embedded<'a, T: Format + Field<'a>>(bytes: &'a [u8]) -> Result<T, WireError> {
    let mut r = Reader::new(bytes, 0, false);
    let version = i16::read(&mut r)?;
    let (min, max) = T::SPEC.versions;
    if version < min {
        return Err(WireError::Value { field: "version", value: i64::from(version) });
    }
    let version = version.min(max);
    T::read(&mut Reader::new(r.rest, version, version >= T::SPEC.flexible))
}

pub fn encode_key<'a, T: Format + Field<'a>>(body: &T) -> Vec<u8> {
    encode(T::SPEC.key, 0, T::SPEC.flexible == 0, body)
}

/// `version` must be one of the format's.
pub fn encode_value<'a, T: Format + Field<'a>>(version: i16, body: &T) -> Vec<u8> {
    let (min, max) = T::SPEC.versions;
    assert!((min..=max).contains(&version));
    encode(version, version, version >= T::SPEC.flexible, body)
}

fn encode<'a, T: Field<'a>>(prefix: i16, version: i16, flexible: bool, body: &T) -> Vec<u8> {
    let mut w = Writer::new(version, flexible);
    prefix.write(&mut w);
    body.write(&mut w);
    w.finish().concat()
}
