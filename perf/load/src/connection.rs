//! One connection of the generator: frames out, frames in, never blocking.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

use ringmain_buffer::Buf;

use crate::template::Head;

/// Frames in one `writev`.
const FRAMES_PER_WRITE: usize = 16;
const INPUT_BYTES: usize = 64 << 10;
/// A longer reply is none to anything that is asked here.
const REPLY_BYTES_MAX: usize = 64 << 20;

/// A request as it goes out: bytes of its own, bytes that it shares with others, closing bytes.
#[derive(Clone)]
pub struct Frame {
    pub head: Head,
    pub body: Buf,
    pub tail: Buf,
}

impl Frame {
    /// One that shares nothing.
    pub fn whole(bytes: Vec<u8>) -> Frame {
        Frame { head: Head::EMPTY, body: Buf::from_vec(bytes), tail: Buf::from_vec(Vec::new()) }
    }

    fn bytes(&self) -> usize {
        self.head.bytes().len() + self.body.len() + self.tail.len()
    }
}

pub struct Connection {
    stream: TcpStream,
    /// Not, or not wholly, taken by the kernel.
    unsent: VecDeque<Frame>,
    /// Bytes of the first of `unsent` that are.
    sent_bytes: usize,
    /// The kernel took no more: the event loop says when it does.
    pub blocked: bool,
    input: Vec<u8>,
    filled: usize,
}

impl Connection {
    pub fn open(address: &str) -> io::Result<Connection> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("connect to {address}: {error}"));
        let stream = TcpStream::connect(address).map_err(named)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let (unsent, input) = (VecDeque::new(), vec![0; INPUT_BYTES]);
        Ok(Connection { stream, unsent, sent_bytes: 0, blocked: false, input, filled: 0 })
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    pub fn queue(&mut self, frame: Frame) {
        self.unsent.push_back(frame);
    }

    /// Hands over what the kernel takes.
    pub fn send(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() && !self.blocked {
            let mut parts = [IoSlice::new(&[]); FRAMES_PER_WRITE * 3];
            let mut count = 0;
            let mut skip = self.sent_bytes;
            for frame in self.unsent.iter().take(FRAMES_PER_WRITE) {
                for part in [frame.head.bytes(), &frame.body[..], &frame.tail[..]] {
                    let skipped = skip.min(part.len());
                    skip -= skipped;
                    parts[count] = IoSlice::new(&part[skipped..]);
                    count += 1;
                }
            }
            match self.stream.write_vectored(&parts[..count]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(bytes) => self.sent(bytes),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.blocked = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn sent(&mut self, bytes: usize) {
        self.sent_bytes += bytes;
        while let Some(first) = self.unsent.front()
            && self.sent_bytes >= first.bytes()
        {
            self.sent_bytes -= first.bytes();
            self.unsent.pop_front();
        }
    }

    /// Reads once what has arrived and gives every whole frame, without its length, to `each`.
    pub fn receive(&mut self, mut each: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        match self.stream.read(&mut self.input[self.filled..]) {
            Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "the server closed the connection")),
            Ok(bytes) => self.filled += bytes,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(()),
            Err(error) => return Err(error),
        }
        let mut at = 0;
        let mut needed = INPUT_BYTES;
        while let Some(length) = self.input[at..self.filled].first_chunk::<4>() {
            let bytes = 4 + u32::from_be_bytes(*length) as usize;
            if bytes > REPLY_BYTES_MAX {
                return Err(io::Error::other(format!("a reply of {bytes} bytes; at most {REPLY_BYTES_MAX} are taken")));
            }
            needed = needed.max(bytes);
            if at + bytes > self.filled {
                break;
            }
            each(&self.input[at + 4..at + bytes])?;
            at += bytes;
        }
        self.input.copy_within(at..self.filled, 0);
        self.filled -= at;
        if needed > self.input.len() {
            self.input.resize(needed, 0);
        }
        Ok(())
    }
}
