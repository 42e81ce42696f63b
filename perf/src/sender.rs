//! One connection of the generator: requests out, acknowledgements in, never blocking.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

use ringmain_types::{ErrorCode, PartitionIndex};
use ringmain_wire::{PRODUCE, ProduceResponse, decode_reply};

use crate::template::{Head, PRODUCE_VERSION, Template};

/// Requests in one `writev`.
const FRAMES_PER_WRITE: usize = 16;
/// A reply to Produce is about a hundred bytes.
const INPUT_BYTES: usize = 64 << 10;

/// An acknowledged request.
#[derive(Clone, Copy, Debug)]
pub struct Acked {
    /// When it was to be sent, in nanoseconds of the run: what its latency counts from.
    pub intended: u64,
}

pub struct Sender {
    stream: TcpStream,
    /// Not, or not wholly, taken by the kernel.
    unsent: VecDeque<Head>,
    /// Bytes of the first of `unsent` that are.
    sent_bytes: usize,
    /// Of all that are not acknowledged, oldest first.
    intended: VecDeque<u64>,
    correlation: i32,
    acked_correlation: i32,
    input: Vec<u8>,
    filled: usize,
    partition: u32,
}

impl Sender {
    /// Requests go to `partitions` partitions in turn, from `first` on.
    pub fn open(address: &str, first: u32) -> io::Result<Sender> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Sender {
            stream,
            unsent: VecDeque::new(),
            sent_bytes: 0,
            intended: VecDeque::new(),
            correlation: 0,
            acked_correlation: 0,
            input: vec![0; INPUT_BYTES],
            filled: 0,
            partition: first,
        })
    }

    pub fn unacked(&self) -> usize {
        self.intended.len()
    }

    pub fn blocked(&self) -> bool {
        !self.unsent.is_empty()
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    pub fn queue(&mut self, template: &Template, partitions: u32, intended: u64) {
        self.correlation = self.correlation.wrapping_add(1);
        let partition = PartitionIndex((self.partition % partitions) as i32);
        self.partition = (self.partition + 1) % partitions;
        self.unsent.push_back(template.head(self.correlation, partition));
        self.intended.push_back(intended);
    }

    /// Hands over what the kernel takes; true when it took something.
    pub fn send(&mut self, template: &Template) -> io::Result<bool> {
        let mut progress = false;
        while !self.unsent.is_empty() {
            let mut parts = [IoSlice::new(&[]); FRAMES_PER_WRITE * 3];
            let mut count = 0;
            let mut skip = self.sent_bytes;
            for head in self.unsent.iter().take(FRAMES_PER_WRITE) {
                for part in [head.bytes(), &template.records[..], &template.tail] {
                    let skipped = skip.min(part.len());
                    skip -= skipped;
                    parts[count] = IoSlice::new(&part[skipped..]);
                    count += 1;
                }
            }
            match self.stream.write_vectored(&parts[..count]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(bytes) => {
                    progress = true;
                    self.sent_bytes += bytes;
                    while !self.unsent.is_empty() && self.sent_bytes >= template.frame_bytes() {
                        self.sent_bytes -= template.frame_bytes();
                        self.unsent.pop_front();
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(progress)
    }

    /// Takes what has arrived and adds what it acknowledges to `acked`.
    pub fn receive(&mut self, acked: &mut Vec<Acked>) -> io::Result<()> {
        loop {
            match self.stream.read(&mut self.input[self.filled..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => self.filled += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            let full = self.filled == self.input.len();
            let mut at = 0;
            while let Some(length) = self.input[at..self.filled].first_chunk::<4>() {
                let end = at + 4 + u32::from_be_bytes(*length) as usize;
                if end > at + INPUT_BYTES {
                    return Err(io::Error::other("a reply to Produce of more than 64 KiB"));
                }
                if end > self.filled {
                    break;
                }
                check(&self.input[at + 4..end], self.acked_correlation.wrapping_add(1))?;
                self.acked_correlation = self.acked_correlation.wrapping_add(1);
                let intended = self.intended.pop_front();
                acked.push(Acked { intended: intended.ok_or_else(|| io::Error::other("a reply to nothing"))? });
                at = end;
            }
            self.input.copy_within(at..self.filled, 0);
            self.filled -= at;
            if !full {
                return Ok(());
            }
        }
    }
}

/// An acknowledgement is the right reply, without an error in any partition.
fn check(frame: &[u8], want: i32) -> io::Result<()> {
    let decoded = decode_reply(&PRODUCE, PRODUCE_VERSION, frame);
    let (correlation, reply): (i32, ProduceResponse<'_>) =
        decoded.map_err(|error| io::Error::other(format!("Produce v{PRODUCE_VERSION}: {error:?}")))?;
    if correlation != want {
        return Err(io::Error::other(format!("reply {correlation} where {want} was due")));
    }
    for topic in &reply.responses {
        for partition in &topic.partition_responses {
            if partition.error_code != ErrorCode::None {
                let message = partition.error_message.unwrap_or_default();
                let index = partition.index.0;
                return Err(io::Error::other(format!("partition {index}: {:?} {message}", partition.error_code)));
            }
        }
    }
    Ok(())
}
