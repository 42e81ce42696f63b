//! A consumer of the probe: gets every frame as soon as it is durable, in the order in which it was written.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

use ringmain_buffer::Buf;

/// Who is so far behind is dropped.
const BEHIND_BYTES_MAX: usize = 256 << 20;

pub struct Subscriber {
    stream: TcpStream,
    unsent: VecDeque<Buf>,
    unsent_bytes: usize,
    /// Of the first.
    sent_bytes: usize,
}

impl Subscriber {
    pub fn new(stream: TcpStream) -> Subscriber {
        Subscriber { stream, unsent: VecDeque::new(), unsent_bytes: 0, sent_bytes: 0 }
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    pub fn blocked(&self) -> bool {
        !self.unsent.is_empty()
    }

    pub fn push(&mut self, frames: Buf) {
        self.unsent_bytes += frames.len();
        self.unsent.push_back(frames);
    }

    /// Hands over what the kernel takes.
    pub fn send(&mut self) -> io::Result<()> {
        if self.unsent_bytes > BEHIND_BYTES_MAX {
            return Err(io::Error::other(format!("a consumer is more than {BEHIND_BYTES_MAX} bytes behind")));
        }
        while let Some(first) = self.unsent.front() {
            match self.stream.write(&first[self.sent_bytes..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(bytes) => {
                    self.sent_bytes += bytes;
                    self.unsent_bytes -= bytes;
                    if self.sent_bytes == first.len() {
                        self.sent_bytes = 0;
                        self.unsent.pop_front();
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
