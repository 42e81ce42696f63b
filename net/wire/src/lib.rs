//! `net/wire`: Kafka's protocol. One file an API, in the `api!` form of shared/design/INTERFACES.rs. Decoding allocates nothing,
//! whatever the bytes claim; encoding splices record buffers.
#![forbid(unsafe_code)]

use ringmain_buffer::Buf;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub i16);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WireError {
    Short { field: &'static str },
    Length { field: &'static str, value: i64 },
    Utf8 { field: &'static str },
    Value { field: &'static str, value: i64 },
    Trailing { bytes: usize },
}

/// May a request run while an earlier one of its connection is unanswered?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    Ordered,
    Barrier,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiSpec {
    pub key: i16,
    pub name: &'static str,
    /// Advertised.
    pub versions: (i16, i16),
    /// The first version with compact lengths and tagged fields, and with header v2 (request) and v1 (response; ApiVersions: v0).
    pub flexible: i16,
    pub overlap: Overlap,
}

/// The header of a request, v1 or v2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeader<'a> {
    pub api: i16,
    pub version: i16,
    pub correlation: i32,
    pub client_id: Option<&'a str>,
}

/// All APIs that are advertised, by rising key.
pub const APIS: &[ApiSpec] = &[];
pub fn api(_key: i16) -> Option<&'static ApiSpec> {
    unimplemented!()
}

/// A decoded header and the number of bytes it took. `frame` is without its length prefix. The header version follows from key and
/// version; of an unknown API v1 is read.
pub fn request_header<'a>(_frame: &'a [u8]) -> Result<(RequestHeader<'a>, usize), WireError> {
    unimplemented!()
}
/// Decodes one body; trailing bytes are an error.
pub fn decode<'a, T: Field<'a>>(_spec: &ApiSpec, _version: i16, _body: &'a [u8]) -> Result<T, WireError> {
    unimplemented!()
}
/// A whole reply: length prefix, header, body; record bytes spliced as they are.
pub fn encode_reply<'a, T: Field<'a>>(_spec: &ApiSpec, _version: i16, _correlation: i32, _body: &T) -> Vec<Buf> {
    unimplemented!()
}
/// A whole request frame: for clients, the simulator, tests and the load generator.
pub fn encode_request<'a, T: Field<'a>>(
    _spec: &ApiSpec,
    _version: i16,
    _correlation: i32,
    _client_id: Option<&str>,
    _body: &T,
) -> Vec<Buf> {
    unimplemented!()
}
/// The body of a reply frame (without its length prefix) and its correlation id.
pub fn decode_reply<'a, T: Field<'a>>(_spec: &ApiSpec, _version: i16, _frame: &'a [u8]) -> Result<(i32, T), WireError> {
    unimplemented!()
}

pub struct Reader<'a> {
    pub rest: &'a [u8],
    pub version: i16,
    pub flexible: bool,
}
pub struct Writer {
    pub version: i16,
    pub flexible: bool,
}
pub trait Field<'a>: Sized {
    fn read(r: &mut Reader<'a>) -> Result<Self, WireError>;
    fn write(&self, w: &mut Writer);
}
