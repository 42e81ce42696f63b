//! Zigzag varints, as record fields use them, and the two ways in which records are walked over: as a slice, or as they come out
//! of a decoder.

use std::io::Read;

use crate::BatchError;

/// Appends `value` as a zigzag varint of at most ten bytes.
pub(crate) fn put(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

const ENDS_EARLY: BatchError = BatchError::Invalid { what: "a record reaches past the end of its batch" };
const TOO_LONG: BatchError = BatchError::Invalid { what: "a varint is longer than its type" };

/// Bytes of records, from the front. `taken` only grows, so that a record's length can be compared with what was read of it.
pub(crate) trait Source {
    fn byte(&mut self) -> Result<u8, BatchError>;
    fn skip(&mut self, bytes: u64) -> Result<(), BatchError>;
    /// Bytes read or skipped so far.
    fn taken(&self) -> u64;
    fn at_end(&mut self) -> Result<bool, BatchError>;

    fn varlong(&mut self) -> Result<i64, BatchError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(TOO_LONG);
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        Err(TOO_LONG)
    }

    fn varint(&mut self) -> Result<i32, BatchError> {
        i32::try_from(self.varlong()?).map_err(|_| TOO_LONG)
    }
}

/// A slice and how much of it was taken.
pub(crate) struct Bytes<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Bytes<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Bytes<'a> {
        Bytes { bytes, at: 0 }
    }

    /// The next `count` bytes.
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], BatchError> {
        let part = self.rest().get(..count).ok_or(ENDS_EARLY)?;
        self.at += count;
        Ok(part)
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }
}

impl Source for Bytes<'_> {
    fn byte(&mut self) -> Result<u8, BatchError> {
        let byte = *self.bytes.get(self.at).ok_or(ENDS_EARLY)?;
        self.at += 1;
        Ok(byte)
    }
    fn skip(&mut self, bytes: u64) -> Result<(), BatchError> {
        if bytes > (self.bytes.len() - self.at) as u64 {
            return Err(ENDS_EARLY);
        }
        self.at += bytes as usize;
        Ok(())
    }
    fn taken(&self) -> u64 {
        self.at as u64
    }
    fn at_end(&mut self) -> Result<bool, BatchError> {
        Ok(self.at == self.bytes.len())
    }
}

/// Room for what a decoder gives at once: small enough for the first cache level, large enough that its calls do not show.
const WINDOW_BYTES: usize = 8 << 10;

/// A decoder's output, held a window at a time, and never more than `bytes_max` of it in all: what a batch claims to hold
/// costs neither memory nor, past the bound, time.
pub(crate) struct Window<R> {
    from: R,
    window: Box<[u8; WINDOW_BYTES]>,
    at: usize,
    end: usize,
    /// Bytes of all windows before this one.
    before: u64,
    bytes_max: u64,
}

impl<R: Read> Window<R> {
    pub(crate) fn new(from: R, bytes_max: u32) -> Window<R> {
        let window = Box::new([0; WINDOW_BYTES]);
        Window { from, window, at: 0, end: 0, before: 0, bytes_max: u64::from(bytes_max) }
    }

    /// False at the end of the decoder's output.
    fn fill(&mut self) -> Result<bool, BatchError> {
        if self.at < self.end {
            return Ok(true);
        }
        self.before += self.end as u64;
        (self.at, self.end) = (0, 0);
        self.end = read(&mut self.from, &mut self.window[..])?;
        if self.before + self.end as u64 > self.bytes_max {
            return Err(BatchError::Expands { max: self.bytes_max as u32 });
        }
        Ok(self.end > 0)
    }
}

/// One read of a decoder. What it finds wrong with its input is the sender's fault: nothing else can fail in memory.
pub(crate) fn read(from: &mut impl Read, into: &mut [u8]) -> Result<usize, BatchError> {
    loop {
        match from.read(into) {
            Ok(bytes) => return Ok(bytes),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => return Err(BatchError::Compressed { what: "the compressed records do not decompress" }),
        }
    }
}

impl<R: Read> Source for Window<R> {
    fn byte(&mut self) -> Result<u8, BatchError> {
        if !self.fill()? {
            return Err(ENDS_EARLY);
        }
        self.at += 1;
        Ok(self.window[self.at - 1])
    }
    fn skip(&mut self, mut bytes: u64) -> Result<(), BatchError> {
        while bytes > 0 {
            if !self.fill()? {
                return Err(ENDS_EARLY);
            }
            let step = bytes.min((self.end - self.at) as u64);
            self.at += step as usize;
            bytes -= step;
        }
        Ok(())
    }
    fn taken(&self) -> u64 {
        self.before + self.at as u64
    }
    fn at_end(&mut self) -> Result<bool, BatchError> {
        Ok(!self.fill()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_come_back_and_overlong_ones_do_not() {
        for value in [0, -1, 1, 63, -64, 64, i64::from(i32::MAX), i64::from(i32::MIN), i64::MAX, i64::MIN] {
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            assert_eq!(Bytes::new(&bytes).varlong(), Ok(value));
            assert_eq!(Window::new(&bytes[..], 10).varlong(), Ok(value));
            assert_eq!(Bytes::new(&bytes).varint().ok(), i32::try_from(value).ok());
            for cut in 0..bytes.len() {
                assert_eq!(Bytes::new(&bytes[..cut]).varlong(), Err(ENDS_EARLY));
            }
        }
        assert_eq!(Bytes::new(&[0xff; 10]).varlong(), Err(TOO_LONG));
        assert_eq!(Bytes::new(&[0x80; 11]).varlong(), Err(TOO_LONG));
    }

    #[test]
    fn a_window_counts_and_stops_at_its_bound() {
        let bytes = vec![7; 3 * WINDOW_BYTES + 5];
        let mut window = Window::new(&bytes[..], bytes.len() as u32);
        window.skip(WINDOW_BYTES as u64 + 1).unwrap();
        assert_eq!((window.byte(), window.taken()), (Ok(7), WINDOW_BYTES as u64 + 2));
        window.skip(2 * WINDOW_BYTES as u64 + 3).unwrap();
        assert_eq!(window.at_end(), Ok(true));
        let max = 3 * WINDOW_BYTES as u32;
        assert_eq!(Window::new(&bytes[..], max).skip(bytes.len() as u64), Err(BatchError::Expands { max }));
    }
}
