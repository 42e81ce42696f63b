//! Whole frames: headers, replies, requests.

use ringmain_buffer::Bufs;

use crate::api_versions::ApiVersion;
use crate::count::{Counted, Pieces};
use crate::{API_VERSIONS, APIS, ApiSpec, ApiVersionsResponse, Field, Reader, WireError, Writer, api};

/// The header of a request, v1 or v2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeader<'a> {
    pub api: i16,
    pub version: i16,
    pub correlation: i32,
    pub client_id: Option<&'a str>,
}

/// A decoded header and the number of bytes it took. `frame` is without its length prefix. The header version follows from key and
/// version; of an unknown API v1 is read. ApiVersions in a version that we do not know is answered too (KIP-511), so there key,
/// version and correlation id are enough: when the rest can't be read the client id is null and the header ends behind them.
pub fn request_header<'a>(frame: &'a [u8]) -> Result<(RequestHeader<'a>, usize), WireError> {
    let mut r = Reader::new(frame, 0, false);
    r.field = "request_api_key";
    let key = i16::read(&mut r)?;
    r.field = "request_api_version";
    let version = i16::read(&mut r)?;
    r.field = "correlation_id";
    let correlation = i32::read(&mut r)?;
    let fixed_bytes = frame.len() - r.rest.len();
    let flexible = api(key).is_some_and(|spec| spec.is_flexible(version));
    let best_effort = key == API_VERSIONS.key && !API_VERSIONS.supports(version);
    match client_id(&mut r, flexible) {
        Ok(client_id) => {
            let header = RequestHeader { api: key, version, correlation, client_id };
            Ok((header, frame.len() - r.rest.len()))
        }
        Err(_) if best_effort => Ok((RequestHeader { api: key, version, correlation, client_id: None }, fixed_bytes)),
        Err(error) => Err(error),
    }
}

/// Not compact in header v2 either (KIP-482), which adds tagged fields behind it.
fn client_id<'a>(r: &mut Reader<'a>, flexible: bool) -> Result<Option<&'a str>, WireError> {
    r.field = "client_id";
    let client_id = Field::read(r)?;
    if flexible {
        r.tags(|_, _| Ok(false))?;
    }
    Ok(client_id)
}

/// Decodes one body; trailing bytes are an error, and so is a version that `spec` does not have.
pub fn decode<'a, T: Field<'a>>(spec: &ApiSpec, version: i16, body: &'a [u8]) -> Result<T, WireError> {
    let (decoded, rest) = decode_front(spec, version, body)?;
    rest.end()?;
    Ok(decoded)
}

/// Decodes a client's request. As on Kafka, what follows its end is nobody's: librdkafka (2.0 to 2.15) leaves three bytes too many in
/// a Metadata request v9 or newer for all topics.
pub fn decode_request<'a, T: Field<'a>>(spec: &ApiSpec, version: i16, body: &'a [u8]) -> Result<T, WireError> {
    decode_counted(spec, version, body, None)
}

/// The same, of a body in which the large arrays need not be looked at again.
pub fn decode_counted<'a, T: Field<'a>>(
    spec: &ApiSpec,
    version: i16,
    body: &'a [u8],
    counted: Option<&'a Counted>,
) -> Result<T, WireError> {
    read_front(spec, version, Reader::new(body, version, spec.is_flexible(version)).counted(body, counted))
        .map(|(decoded, _)| decoded)
}

/// Elements of arrays in a request's body, at all levels.
pub(crate) fn count_elements<'a, T: Field<'a>>(
    spec: &ApiSpec,
    version: i16,
    body: &'a [u8],
    pieces: &'a Pieces,
) -> Result<usize, WireError> {
    let r = Reader::new(body, version, spec.is_flexible(version)).counting(pieces);
    read_front::<T>(spec, version, r).map(|(_, rest)| rest.elements)
}

fn decode_front<'a, T: Field<'a>>(spec: &ApiSpec, version: i16, body: &'a [u8]) -> Result<(T, Reader<'a>), WireError> {
    read_front(spec, version, Reader::new(body, version, spec.is_flexible(version)))
}

fn read_front<'a, T: Field<'a>>(spec: &ApiSpec, version: i16, mut r: Reader<'a>) -> Result<(T, Reader<'a>), WireError> {
    if !spec.supports(version) {
        return Err(WireError::Value { field: "version", value: i64::from(version) });
    }
    Ok((T::read(&mut r)?, r))
}

/// A whole reply: length prefix, header, body; record bytes spliced as they are. The first buffer starts with the length prefix.
pub fn encode_reply<'a, T: Field<'a>>(spec: &ApiSpec, version: i16, correlation: i32, body: &T) -> Bufs {
    let flexible = spec.is_flexible(version);
    let mut w = Writer::new(version, flexible);
    w.extend(&[0; 4]);
    w.extend(&correlation.to_be_bytes());
    if has_reply_tags(spec, flexible) {
        w.uvar(0);
    }
    body.write(&mut w);
    w.patch_frame_len();
    w.finish()
}

/// Header v1 of a reply has tagged fields; ApiVersions is read before the versions are agreed on and keeps v0.
fn has_reply_tags(spec: &ApiSpec, flexible: bool) -> bool {
    flexible && spec.key != API_VERSIONS.key
}

/// The answer to ApiVersions in a version that we do not know: shaped as v0, error 35, and the list to choose from (KIP-511).
pub fn encode_unsupported_api_versions(correlation: i32) -> Bufs {
    let body = ApiVersionsResponse {
        error_code: ringmain_types::ErrorCode::UnsupportedVersion,
        api_keys: advertised(),
        ..Default::default()
    };
    encode_reply(&API_VERSIONS, 0, correlation, &body)
}

/// What ApiVersions answers: every API of `APIS`.
pub fn advertised<'a>() -> crate::Array<'a, ApiVersion> {
    let entry =
        |spec: &ApiSpec| ApiVersion { api_key: spec.key, min_version: spec.versions.0, max_version: spec.versions.1 };
    APIS.iter().map(entry).collect()
}

/// A whole request frame, length prefix included: for clients, the simulator, tests and the load generator.
pub fn encode_request<'a, T: Field<'a>>(
    spec: &ApiSpec,
    version: i16,
    correlation: i32,
    client_id: Option<&str>,
    body: &T,
) -> Bufs {
    let flexible = spec.is_flexible(version);
    let mut w = Writer::new(version, false);
    w.extend(&[0; 4]);
    spec.key.write(&mut w);
    version.write(&mut w);
    correlation.write(&mut w);
    client_id.write(&mut w);
    w.flexible = flexible;
    if flexible {
        w.uvar(0);
    }
    body.write(&mut w);
    w.patch_frame_len();
    w.finish()
}

/// The body of a reply frame (without its length prefix) and its correlation id.
pub fn decode_reply<'a, T: Field<'a>>(spec: &ApiSpec, version: i16, frame: &'a [u8]) -> Result<(i32, T), WireError> {
    let mut r = Reader::new(frame, version, spec.is_flexible(version));
    r.field = "correlation_id";
    let correlation = i32::read(&mut r)?;
    if has_reply_tags(spec, r.flexible) {
        r.tags(|_, _| Ok(false))?;
    }
    Ok((correlation, decode(spec, version, r.rest)?))
}
