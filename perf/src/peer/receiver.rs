//! One connection of the probe: frames in, straight into the block that goes to the disk; acknowledgements out.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

use ringmain_buffer::{Buf, BufMut, Pool};
use ringmain_types::Account;
use ringmain_wire::FETCH;

use super::answer::Answer;

/// What is gathered into one write: MEASURED.md, "Disk".
pub const GATHER_BYTES: usize = 256 << 10;
/// A block: what is gathered, or one frame of the largest size.
const BLOCK_BYTES: usize = 512 << 10;
const FRAME_BYTES_MAX: usize = BLOCK_BYTES - DISK_BLOCK_BYTES;
const DISK_BLOCK_BYTES: usize = 4096;
/// Length prefix, API key, version, correlation id.
const FIXED_BYTES: usize = 12;

pub struct Receiver {
    stream: TcpStream,
    block: BufMut,
    /// Of the block, in whole and checked frames.
    parsed: usize,
    /// Of the newest frame; the next is taken to be as long.
    frame_bytes: usize,
    /// The kernel had no more when it was last asked.
    drained: bool,
    pub ended: bool,
    /// It sent a Fetch instead: it wants to be sent what is durable.
    pub consumes: bool,
    correlations: Vec<i32>,
    output: Vec<u8>,
    output_sent: usize,
}

/// What goes to the disk at once.
pub struct Taken {
    /// Whole blocks of the disk.
    pub block: Buf,
    /// Of them, frames.
    pub frames_bytes: usize,
    pub correlations: Vec<i32>,
}

fn take(pool: &mut Pool) -> BufMut {
    pool.collect();
    pool.take(Account::Tail, BLOCK_BYTES).expect("the probe's pool holds a block for every connection and write")
}

impl Receiver {
    pub fn new(stream: TcpStream, pool: &mut Pool) -> io::Result<Receiver> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Receiver {
            stream,
            block: take(pool),
            parsed: 0,
            frame_bytes: 0,
            drained: false,
            ended: false,
            consumes: false,
            correlations: Vec::new(),
            output: Vec::new(),
            output_sent: 0,
        })
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
    /// Replies wait for the kernel.
    pub fn blocked(&self) -> bool {
        self.output_sent < self.output.len()
    }

    /// Where receiving stops: with as many whole frames as the gathering takes, so that nothing needs to be moved into the next
    /// block while frames stay equally long.
    fn goal(&self) -> usize {
        let frame = self.frame_bytes.max(1);
        let more = GATHER_BYTES.saturating_sub(self.parsed) / frame;
        match self.parsed {
            0 => (more.max(1) * frame).max(self.known_frame()).max(FIXED_BYTES),
            parsed => (parsed + more * frame).max(parsed),
        }
    }

    /// The length of the frame that is under way, when it is known.
    fn known_frame(&self) -> usize {
        let length = self.block[self.parsed..].first_chunk::<4>();
        length.map_or(0, |length| 4 + u32::from_be_bytes(*length) as usize)
    }

    pub fn full(&self) -> bool {
        self.block.len() >= self.goal()
    }

    /// Receives once; true when something came.
    pub fn receive(&mut self) -> io::Result<bool> {
        let wanted = self.goal().min(BLOCK_BYTES).saturating_sub(self.block.len());
        if wanted == 0 || self.ended {
            return Ok(false);
        }
        match self.stream.read(&mut self.block.spare_mut()[..wanted]) {
            Ok(0) => {
                self.ended = true;
                Ok(false)
            }
            Ok(bytes) => {
                self.drained = false;
                self.block.advance(bytes);
                self.parse()?;
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.drained = true;
                Ok(false)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Checks the whole frames that have come: their size, and one CRC over all that a broker's would cover.
    fn parse(&mut self) -> io::Result<()> {
        loop {
            let rest = &self.block[self.parsed..];
            let Some(fixed) = rest.first_chunk::<FIXED_BYTES>() else { return Ok(()) };
            let [l0, l1, l2, l3, k0, k1, .., c0, c1, c2, c3] = *fixed;
            let bytes = 4 + u32::from_be_bytes([l0, l1, l2, l3]) as usize;
            if !(FIXED_BYTES..=FRAME_BYTES_MAX).contains(&bytes) {
                return Err(io::Error::other(format!("a frame of {bytes} bytes; the probe takes {FRAME_BYTES_MAX}")));
            }
            if rest.len() < bytes {
                return Ok(());
            }
            if i16::from_be_bytes([k0, k1]) == FETCH.key {
                self.consumes = true;
                return Ok(());
            }
            std::hint::black_box(crc32c::crc32c(&rest[4..bytes]));
            self.correlations.push(i32::from_be_bytes([c0, c1, c2, c3]));
            self.frame_bytes = bytes;
            self.parsed += bytes;
        }
    }

    /// Whether there are frames to write now: no more are to be had, or no more fit.
    pub fn ripe(&self) -> bool {
        self.parsed > 0 && (self.drained || self.ended || self.full())
    }

    /// The frames so far. Receiving goes on in the next block.
    pub fn take(&mut self, pool: &mut Pool) -> Taken {
        let mut next = take(pool);
        next.extend(&self.block[self.parsed..]);
        let mut block = std::mem::replace(&mut self.block, next);
        let frames_bytes = self.parsed;
        let bytes = frames_bytes.next_multiple_of(DISK_BLOCK_BYTES);
        if bytes > block.len() {
            block.extend_zeroes(bytes - block.len());
        }
        self.parsed = 0;
        self.drained = false;
        Taken { block: block.freeze_to(bytes), frames_bytes, correlations: std::mem::take(&mut self.correlations) }
    }

    pub fn into_stream(self) -> TcpStream {
        self.stream
    }

    pub fn answer(&mut self, correlations: &[i32], answer: &Answer) {
        for correlation in correlations {
            answer.append(*correlation, &mut self.output);
        }
    }

    /// Hands over what the kernel takes of the replies.
    pub fn send(&mut self) -> io::Result<()> {
        while self.blocked() {
            match self.stream.write(&self.output[self.output_sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(bytes) => self.output_sent += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.output.clear();
        self.output_sent = 0;
        Ok(())
    }
}
