//! A blocking client connection that speaks real frames.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::net::{RecvFlags, recv};

use ringmain_wire::{ApiSpec, Field, decode_reply, encode_request};

/// Longer than any broker may be silent here: a start takes seconds, a flush less.
const SILENCE: Duration = Duration::from_secs(20);
const REPLY_BYTES_MAX: usize = 64 << 20;
const READ_BYTES: usize = 16 << 10;

pub struct Connection {
    stream: TcpStream,
    correlation: i32,
    /// Of `try_receive`: the front of a reply.
    received: Vec<u8>,
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// A reply's frame without its length prefix.
pub struct Frame(Vec<u8>);

impl Frame {
    pub fn decode<'a, T: Field<'a>>(&'a self, spec: &ApiSpec, version: i16) -> io::Result<(i32, T)> {
        decode_reply(spec, version, &self.0)
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, format!("{} v{version}: {e:?}", spec.name)))
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Connection {
    pub fn open(address: &str) -> io::Result<Connection> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE))?;
        stream.set_write_timeout(Some(SILENCE))?;
        Ok(Connection { stream, correlation: 0, received: Vec::new() })
    }

    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// For what no encoder writes.
    pub fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Sends and returns the correlation id; several requests may be unanswered at once.
    pub fn send<'a, T: Field<'a>>(&mut self, spec: &ApiSpec, version: i16, body: &T) -> io::Result<i32> {
        self.correlation += 1;
        let frame = encode_request(spec, version, self.correlation, Some("torture"), body).concat();
        self.stream.write_all(&frame)?;
        Ok(self.correlation)
    }

    pub fn receive(&mut self) -> io::Result<Frame> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let mut frame = vec![0; checked(length)?];
        self.stream.read_exact(&mut frame)?;
        Ok(Frame(frame))
    }

    /// The next reply if all of it is here. Not to be mixed with `receive`.
    pub fn try_receive(&mut self) -> io::Result<Option<Frame>> {
        loop {
            if let Some(length) = self.received.first_chunk::<4>() {
                let end = 4 + checked(*length)?;
                if self.received.len() >= end {
                    let rest = self.received.split_off(end);
                    let frame = std::mem::replace(&mut self.received, rest).split_off(4);
                    return Ok(Some(Frame(frame)));
                }
            }
            let mut bytes = [0; READ_BYTES];
            match recv(&self.stream, &mut bytes, RecvFlags::DONTWAIT).map_err(io::Error::from) {
                Ok((_, 0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok((_, count)) => self.received.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    pub fn call<'a, T: Field<'a>>(&mut self, spec: &ApiSpec, version: i16, body: &T) -> io::Result<Frame> {
        self.send(spec, version, body)?;
        self.receive()
    }
}

fn checked(length: [u8; 4]) -> io::Result<usize> {
    let length = u32::from_be_bytes(length) as usize;
    match length {
        ..=REPLY_BYTES_MAX => Ok(length),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, format!("a reply of {length} bytes"))),
    }
}
