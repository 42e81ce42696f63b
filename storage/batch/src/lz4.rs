//! LZ4 frames, block by block, within memory that follows from what came and not from what a frame's head claims: a head of 7 bytes may
//! say that blocks have 4 MiB, and a library that believes it reserves that much two or three times for a batch of a hundred bytes.
//!
//! Format: "LZ4 Frame Format Description", version 1.6 (github.com/lz4/lz4, doc/lz4_Frame_format.md). One frame, no dictionary. Linked
//! blocks are read too, though Kafka's Java clients take independent ones alone.

use std::hash::Hasher;
use std::io::{Error, ErrorKind, Read, Result};

use lz4_flex::block::{DecompressError, decompress_into, decompress_into_with_dict};
use twox_hash::XxHash32;

const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
const VERSION: u8 = 0b01 << 6;
const VERSION_MASK: u8 = 0b11 << 6;
const INDEPENDENT: u8 = 1 << 5;
const BLOCK_CHECKSUMS: u8 = 1 << 4;
const CONTENT_SIZE: u8 = 1 << 3;
const CONTENT_CHECKSUM: u8 = 1 << 2;
/// A reserved bit, and a dictionary's.
const UNKNOWN: u8 = 0b11;
/// In a block's length: its bytes stand as they are.
const STORED: u32 = 1 << 31;
/// What a linked block may refer back to.
const WINDOW_BYTES: usize = 64 << 10;
/// A block's output is first tried in so many times its input, but at least the whole block of a usual frame; then in twice as much each
/// time.
const GROWTH: usize = 4;
const ROOM_BYTES_MIN: usize = 64 << 10;

pub(crate) struct Lz4Reader<'a> {
    rest: &'a [u8],
    /// `None` before its head was read.
    frame: Option<Frame>,
    /// The block that is being handed out, and in front of it, of linked ones, the window: `window..at..` is still to be read.
    out: Vec<u8>,
    at: usize,
    done: bool,
}

#[derive(Clone)]
struct Frame {
    flags: u8,
    block_bytes_max: usize,
    /// What is left of the content's size, when the frame says it.
    left: Option<u64>,
    checksum: XxHash32,
}

fn bad() -> Error {
    ErrorKind::InvalidData.into()
}

fn checksum(bytes: &[u8]) -> u32 {
    XxHash32::oneshot(0, bytes)
}

impl<'a> Lz4Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Lz4Reader<'a> {
        Lz4Reader { rest: bytes, frame: None, out: Vec::new(), at: 0, done: false }
    }

    fn take(&mut self, bytes: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or_else(bad)?;
        self.rest = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u32> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn head(&mut self) -> Result<Frame> {
        if self.take(MAGIC.len())? != MAGIC {
            return Err(bad());
        }
        let descriptor = self.rest;
        let [flags, blocks] = *self.take(2)? else { return Err(bad()) };
        if flags & VERSION_MASK != VERSION || flags & UNKNOWN != 0 || blocks & 0b1000_1111 != 0 {
            return Err(bad());
        }
        let mut left = None;
        if flags & CONTENT_SIZE != 0 {
            left = Some(u64::from(self.number()?) | u64::from(self.number()?) << 32);
        }
        let covered = descriptor.len() - self.rest.len();
        if self.take(1)? != [(checksum(&descriptor[..covered]) >> 8) as u8] {
            return Err(bad());
        }
        // 4 to 7: 64 KiB, 256 KiB, 1 MiB, 4 MiB.
        let size = u32::from(blocks >> 4);
        let block_bytes_max = if size < 4 { return Err(bad()) } else { 1usize << (8 + 2 * size) };
        Ok(Frame { flags, block_bytes_max, left, checksum: XxHash32::with_seed(0) })
    }

    /// The next block, behind the window; false at the frame's end, which must be the bytes' end too.
    fn next(&mut self, frame: &mut Frame) -> Result<bool> {
        let length = self.number()?;
        if length == 0 {
            let content = frame.checksum.finish_32();
            if frame.flags & CONTENT_CHECKSUM != 0 && self.number()? != content
                || frame.left.is_some_and(|left| left > 0)
            {
                return Err(bad());
            }
            return if self.rest.is_empty() { Ok(false) } else { Err(bad()) };
        }
        let bytes = (length & !STORED) as usize;
        if bytes > frame.block_bytes_max {
            return Err(bad());
        }
        let block = self.take(bytes)?;
        if frame.flags & BLOCK_CHECKSUMS != 0 && self.number()? != checksum(block) {
            return Err(bad());
        }
        let window = match frame.flags & INDEPENDENT {
            0 => self.out.len().min(WINDOW_BYTES),
            _ => 0,
        };
        self.out.drain(..self.out.len() - window);
        if length & STORED != 0 {
            self.out.extend_from_slice(block);
        } else {
            self.decompress(block, window, frame.block_bytes_max)?;
        }
        self.at = window;
        let content = &self.out[window..];
        frame.checksum.write(content);
        if let Some(left) = &mut frame.left {
            *left = left.checked_sub(content.len() as u64).ok_or_else(bad)?;
        }
        Ok(true)
    }

    fn decompress(&mut self, block: &[u8], window: usize, bytes_max: usize) -> Result<()> {
        // A block of n bytes gives at most 255 n, and a little: many that give nothing must not cost more than they weigh.
        let most = block.len().saturating_mul(255).saturating_add(64).min(bytes_max);
        let mut room = block.len().saturating_mul(GROWTH).max(ROOM_BYTES_MIN).min(most);
        loop {
            self.out.resize(window + room, 0);
            let (before, into) = self.out.split_at_mut(window);
            let result = match window {
                0 => decompress_into(block, into),
                _ => decompress_into_with_dict(block, into, before),
            };
            match result {
                Ok(bytes) => {
                    self.out.truncate(window + bytes);
                    return Ok(());
                }
                Err(DecompressError::OutputTooSmall { .. }) if room < most => room = (room * 2).min(most),
                Err(_) => return Err(bad()),
            }
        }
    }
}

impl Read for Lz4Reader<'_> {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        while self.at == self.out.len() && !self.done {
            let mut frame = match self.frame.take() {
                Some(frame) => frame,
                None => self.head()?,
            };
            self.done = !self.next(&mut frame)?;
            self.frame = Some(frame);
        }
        let bytes = into.len().min(self.out.len() - self.at);
        into[..bytes].copy_from_slice(&self.out[self.at..self.at + bytes]);
        self.at += bytes;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};

    use super::*;

    fn text(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|at| (at / 7 * 31 % 251) as u8 ^ (at / 5000) as u8).collect()
    }

    fn packed(info: FrameInfo, text: &[u8]) -> Vec<u8> {
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn unpacked(packed: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        Lz4Reader::new(packed).read_to_end(&mut out).ok()?;
        Some(out)
    }

    /// All that another implementation writes.
    #[test]
    fn every_kind_of_frame_is_read() {
        for bytes in [0, 1, 100, 150_000] {
            let text = text(bytes);
            for mode in [BlockMode::Independent, BlockMode::Linked] {
                for size in [BlockSize::Max64KB, BlockSize::Max256KB, BlockSize::Max1MB, BlockSize::Max4MB] {
                    for (checksums, content) in [(false, None), (true, Some(bytes as u64))] {
                        let info = FrameInfo::new().block_mode(mode).block_size(size).content_size(content);
                        let info = info.block_checksums(checksums).content_checksum(checksums);
                        let packed = packed(info, &text);
                        assert!(unpacked(&packed).as_ref() == Some(&text), "{mode:?} {size:?} {checksums} {bytes}");
                        for wrong in [&packed[..packed.len() - 1], &[&packed[..], &[0]].concat()] {
                            assert_eq!(unpacked(wrong), None, "cut, or more behind it");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn every_bit_under_a_checksum_counts() {
        let text = text(2000);
        let info = FrameInfo::new().block_mode(BlockMode::Independent).content_size(Some(2000));
        let packed = packed(info.block_checksums(true).content_checksum(true), &text);
        for bit in 0..packed.len() * 8 {
            let mut bad = packed.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(unpacked(&bad), None, "bit {bit}");
        }
    }

    /// Found by fuzzing: 46 bytes that say that their blocks have 4 MiB, and a block that says that it is so long.
    #[test]
    fn a_claim_takes_no_memory() {
        let mut reader =
            Lz4Reader::new(&[0x04, 0x22, 0x4d, 0x18, 0x60, 0x70, 0x73, 3, 0, 0, 0x80, 1, 2, 3, 0, 0, 0, 0]);
        let mut out = [0; 10];
        assert_eq!(reader.read(&mut out).unwrap(), 3);
        assert_eq!(out[..3], [1, 2, 3]);
        assert_eq!(reader.read(&mut out).unwrap(), 0);
        assert!(reader.out.capacity() < 100);
        let mut reader = Lz4Reader::new(&[0x04, 0x22, 0x4d, 0x18, 0x60, 0x70, 0x73, 0, 0, 0x40, 0, 1, 2, 3]);
        assert!(reader.read(&mut out).is_err() && reader.out.capacity() == 0);
        let old = [0x02, 0x21, 0x4c, 0x18, 3, 0, 0, 0, 0x20, 1, 2];
        assert!(Lz4Reader::new(&old).read(&mut out).is_err(), "the format of before 2014");
    }
}
