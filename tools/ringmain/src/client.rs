//! A small blocking client for the commands: one connection, one request at a time.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use ringmain_types::ErrorCode;
use ringmain_wire::{API_VERSIONS, ApiSpec, ApiVersionsRequest, ApiVersionsResponse, Field, WireError};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longer than any request asks the broker to take.
const REPLY_TIMEOUT: Duration = Duration::from_secs(70);
/// What the broker is given for a change.
pub const REQUEST_TIMEOUT_MS: i32 = 60_000;
/// More is no reply to anything that is asked here.
const REPLY_BYTES_MAX: usize = 256 << 20;
const CLIENT_ID: &str = "ringmain-cli";

pub struct Client {
    stream: TcpStream,
    address: String,
    /// By API: the oldest and newest version that the broker has.
    versions: BTreeMap<i16, (i16, i16)>,
    correlation: i32,
}

#[derive(Debug)]
pub enum ClientError {
    Connect {
        address: String,
        error: io::Error,
    },
    Io {
        address: String,
        error: io::Error,
    },
    /// Not a reply to what was asked.
    Reply {
        address: String,
        why: String,
    },
    /// The broker has no version of it that is known here.
    Version {
        api: &'static str,
    },
    /// The command asks for no change.
    NothingToDo {
        what: String,
        options: &'static str,
    },
    /// Something that was given names nothing there.
    Argument {
        what: String,
        message: String,
    },
    /// What the broker answered about `what`.
    Broker {
        what: String,
        code: ErrorCode,
        message: Option<String>,
    },
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Connect { address, error } => {
                write!(f, "connect to {address}: {error}; is a broker running there (--bootstrap)?")
            }
            ClientError::Io { address, error } if error.kind() == io::ErrorKind::WouldBlock => {
                write!(f, "{address}: no answer within {} s", REPLY_TIMEOUT.as_secs())
            }
            ClientError::Io { address, error } => write!(f, "{address}: {error}"),
            ClientError::Reply { address, why } => write!(f, "{address}: not a reply of Kafka's protocol: {why}"),
            ClientError::Version { api } => write!(f, "the broker has no version of {api} that this command knows"),
            ClientError::NothingToDo { what, options } => write!(f, "{what}: nothing to change; give {options}"),
            ClientError::Argument { what, message } => write!(f, "{what}: {message}"),
            ClientError::Broker { what, code, message } => {
                write!(f, "{what}: {code:?} ({})", *code as i16)?;
                match (message, code) {
                    (Some(message), _) => write!(f, ": {message}"),
                    (None, ErrorCode::UnknownTopicOrPartition) => {
                        f.write_str(": there is no such topic; `topic list` shows those there are")
                    }
                    (None, _) => Ok(()),
                }
            }
        }
    }
}
impl std::error::Error for ClientError {}

/// A reply's bytes; what is read from it borrows from them.
pub struct Reply {
    spec: ApiSpec,
    version: i16,
    frame: Vec<u8>,
    address: String,
}

impl Reply {
    pub fn read<'a, T: Field<'a>>(&'a self) -> Result<T, ClientError> {
        let decoded = ringmain_wire::decode_reply(&self.spec, self.version, &self.frame);
        decoded.map(|(_, body)| body).map_err(|error: WireError| self.fault(format!("{error:?}")))
    }

    fn fault(&self, why: String) -> ClientError {
        ClientError::Reply { address: self.address.clone(), why }
    }
}

impl Client {
    /// Connects to the first address of `bootstrap` that takes it and agrees on versions.
    pub fn connect(bootstrap: &str) -> Result<Client, ClientError> {
        let failed = |error| ClientError::Connect { address: bootstrap.into(), error };
        let mut last = io::Error::new(io::ErrorKind::NotFound, "no address");
        for address in bootstrap.to_socket_addrs().map_err(failed)? {
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                Ok(stream) => return Client::agree(stream, bootstrap),
                Err(error) => last = error,
            }
        }
        Err(failed(last))
    }

    fn agree(stream: TcpStream, address: &str) -> Result<Client, ClientError> {
        let failed = |error| ClientError::Io { address: address.into(), error };
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT)).map_err(failed)?;
        stream.set_write_timeout(Some(REPLY_TIMEOUT)).map_err(failed)?;
        // Every broker knows version 0 of ApiVersions.
        let versions = BTreeMap::from([(API_VERSIONS.key, (0, 0))]);
        let mut client = Client { stream, address: address.into(), versions, correlation: 0 };
        let reply = client.call(&API_VERSIONS, &ApiVersionsRequest::default())?;
        let known: ApiVersionsResponse<'_> = reply.read()?;
        check("ApiVersions", known.error_code, None)?;
        client.versions = known.api_keys.iter().map(|api| (api.api_key, (api.min_version, api.max_version))).collect();
        Ok(client)
    }

    /// Sends a request in the newest version that both sides have, and waits for its reply.
    pub fn call<'a, T: Field<'a>>(&mut self, spec: &ApiSpec, body: &T) -> Result<Reply, ClientError> {
        let version = self.version(spec).ok_or(ClientError::Version { api: spec.name })?;
        self.correlation += 1;
        let parts = ringmain_wire::encode_request(spec, version, self.correlation, Some(CLIENT_ID), body);
        let frame = self.exchange(&parts).map_err(|error| ClientError::Io { address: self.address.clone(), error })?;
        let reply = Reply { spec: *spec, version, frame, address: self.address.clone() };
        match reply.frame.first_chunk().map(|bytes| i32::from_be_bytes(*bytes)) {
            Some(correlation) if correlation == self.correlation => Ok(reply),
            other => Err(reply.fault(format!("correlation {other:?} instead of {}", self.correlation))),
        }
    }

    fn version(&self, spec: &ApiSpec) -> Option<i16> {
        let (oldest, newest) = *self.versions.get(&spec.key)?;
        let version = newest.min(spec.versions.1);
        (version >= oldest && version >= spec.versions.0).then_some(version)
    }

    fn exchange(&mut self, parts: &[ringmain_buffer::Buf]) -> io::Result<Vec<u8>> {
        let request: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        self.stream.write_all(&request)?;
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let length = usize::try_from(i32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > REPLY_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a reply that long is none of Kafka's protocol"));
        }
        // Grows with what comes, not with what is claimed.
        let mut frame = Vec::new();
        (&self.stream).take(length as u64).read_to_end(&mut frame)?;
        if frame.len() < length { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(frame) }
    }
}

/// What the broker answered about `what`, as a result.
pub fn check(what: &str, code: ErrorCode, message: Option<&str>) -> Result<(), ClientError> {
    match code {
        ErrorCode::None => Ok(()),
        code => Err(ClientError::Broker { what: what.into(), code, message: message.map(str::to_owned) }),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use ringmain_wire::api_versions::ApiVersion;
    use ringmain_wire::{METADATA, MetadataRequest, MetadataResponse};

    use super::*;

    /// A broker that reads a frame and answers each of `replies` in turn.
    fn serve(replies: Vec<Vec<u8>>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for reply in replies {
                let mut length = [0; 4];
                if stream.read_exact(&mut length).is_err() {
                    return;
                }
                let mut frame = vec![0; i32::from_be_bytes(length) as usize];
                stream.read_exact(&mut frame).unwrap();
                stream.write_all(&reply).unwrap();
            }
        });
        address
    }
    fn versions(correlation: i32) -> Vec<u8> {
        let body = ApiVersionsResponse {
            api_keys: vec![ApiVersion { api_key: METADATA.key, min_version: 2, max_version: 5 }].into(),
            ..Default::default()
        };
        ringmain_wire::encode_reply(&API_VERSIONS, 0, correlation, &body)
            .iter()
            .flat_map(|part| part.to_vec())
            .collect()
    }

    #[test]
    fn the_newest_common_version_is_spoken() {
        let body = MetadataResponse { cluster_id: Some("abc"), ..Default::default() };
        let metadata = ringmain_wire::encode_reply(&METADATA, 5, 2, &body);
        let metadata = metadata.iter().flat_map(|part| part.to_vec()).collect();
        let mut client = Client::connect(&serve(vec![versions(1), metadata])).unwrap();
        let reply = client.call(&METADATA, &MetadataRequest::default()).unwrap();
        assert_eq!(reply.version, 5);
        assert_eq!(reply.read::<MetadataResponse<'_>>().unwrap(), body);
        let unknown = client.call(&ringmain_wire::PRODUCE, &ringmain_wire::ProduceRequest::default());
        assert!(matches!(unknown, Err(ClientError::Version { api: "Produce" })));
    }

    #[test]
    fn what_is_no_broker_is_an_error() {
        let error = |reply: Vec<u8>| Client::connect(&serve(vec![reply])).err().unwrap().to_string();
        assert!(error(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()).contains("none of Kafka's protocol"));
        assert!(error(versions(7)).contains("correlation"));
        assert!(error(vec![0, 0, 0, 9, 0, 0]).contains("end of file"));
        assert!(error(vec![0, 0, 0, 5, 0, 0, 0, 1, 0]).contains("not a reply"));
        assert!(error(vec![0xff; 8]).contains("none of Kafka's protocol"));
        let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        assert!(matches!(Client::connect(&gone), Err(ClientError::Connect { .. })));
    }
}
