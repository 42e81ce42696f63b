//! What the messages say about themselves: names, versions, tags and defaults, as constants. Nothing at run time needs it; the
//! tests hold it against Kafka's schemas, field by field.

use crate::count::Pieces;
use crate::{ApiSpec, WireError, Writer};

#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Uuid,
    String,
    Bytes,
    Records,
    Array(&'static Kind),
    Nullable(&'static Kind),
    Struct(&'static StructInfo),
}

#[derive(Debug)]
pub struct StructInfo {
    pub name: &'static str,
    pub fields: &'static [FieldInfo],
}

#[derive(Debug)]
pub struct FieldInfo {
    pub name: &'static str,
    pub kind: Kind,
    pub versions: fn(i16) -> bool,
    /// In which versions it may be null, if its kind is nullable.
    pub nullable: fn(i16) -> bool,
    pub tag: Option<u32>,
    /// Writes the default.
    pub default: fn(&mut Writer),
}

/// An API and its two bodies.
#[derive(Debug)]
pub struct ApiInfo {
    pub spec: ApiSpec,
    pub request: Kind,
    pub response: Kind,
    /// Elements of arrays in a request's body of this version, at all levels; or why it does not decode. See [`Count`](crate::Count).
    pub(crate) elements: fn(i16, &[u8], &Pieces) -> Result<usize, WireError>,
}
