//! The writing half: one growing head for all fixed bytes, record buffers spliced between them uncopied.

use ringmain_buffer::{Buf, Bufs};
use smallvec::smallvec;

/// Collects one frame. All bytes but spliced ones go to one `Vec`, which becomes one block at the end: a reply costs a handful of
/// allocations however many parts it has.
#[derive(Debug)]
pub struct Writer {
    pub version: i16,
    pub flexible: bool,
    head: Vec<u8>,
    /// Buffers and the place in `head` that each goes before; places rise.
    splices: Vec<(usize, Buf)>,
    spliced_bytes: usize,
}

impl Writer {
    pub fn new(version: i16, flexible: bool) -> Writer {
        Writer { version, flexible, head: Vec::with_capacity(128), splices: Vec::new(), spliced_bytes: 0 }
    }

    /// Bytes written so far, spliced ones included.
    pub fn len(&self) -> usize {
        self.head.len() + self.spliced_bytes
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn extend(&mut self, bytes: &[u8]) {
        self.head.extend_from_slice(bytes);
    }

    pub fn uvar(&mut self, value: u32) {
        let (bytes, len) = uvar_bytes(value);
        self.head.extend_from_slice(&bytes[..len]);
    }

    /// The length of a string; at most `i16::MAX`, which the caller has cut it to.
    pub fn string_len(&mut self, len: Option<usize>) {
        match self.flexible {
            true => self.compact_len(len),
            false => self.extend(&len.map_or(-1, |len| len as i16).to_be_bytes()),
        }
    }

    /// The length of bytes, or the count of an array.
    pub fn wide_len(&mut self, len: Option<usize>) {
        assert!(len.unwrap_or(0) < i32::MAX as usize, "a frame has 31 bits of length");
        match self.flexible {
            true => self.compact_len(len),
            false => self.extend(&len.map_or(-1, |len| len as i32).to_be_bytes()),
        }
    }

    fn compact_len(&mut self, len: Option<usize>) {
        self.uvar(len.map_or(0, |len| len as u32 + 1));
    }

    /// Puts `part` behind what was written, uncopied.
    pub fn splice(&mut self, part: Buf) {
        if !part.is_empty() {
            self.spliced_bytes += part.len();
            self.splices.push((self.head.len(), part));
        }
    }

    /// One tagged field. Its length is known only behind it, so the value is moved up by the few bytes that the length takes. No
    /// schema tags records, so there is nothing to splice in a value.
    pub fn tag(&mut self, tag: u32, value: impl FnOnce(&mut Writer)) {
        self.uvar(tag);
        let (at, splices) = (self.head.len(), self.splices.len());
        value(self);
        assert_eq!(splices, self.splices.len(), "no records in tagged fields");
        let (len, len_bytes) = uvar_bytes((self.head.len() - at) as u32);
        let end = self.head.len();
        self.head.extend_from_slice(&len[..len_bytes]);
        self.head.copy_within(at..end, at + len_bytes);
        self.head[at..at + len_bytes].copy_from_slice(&len[..len_bytes]);
    }

    /// Writes the frame's length over its first four bytes, which were left for it.
    pub fn patch_frame_len(&mut self) {
        let len = i32::try_from(self.len() - 4).expect("a frame has 31 bits of length");
        self.head[..4].copy_from_slice(&len.to_be_bytes());
    }

    /// All that was written, in order.
    pub fn finish(self) -> Bufs {
        let head = Buf::from_vec(self.head);
        if self.splices.is_empty() {
            return smallvec![head];
        }
        let mut parts = Bufs::with_capacity(self.splices.len() * 2 + 1);
        let mut from = 0;
        for (at, part) in self.splices {
            if at > from {
                parts.push(head.slice(from..at));
                from = at;
            }
            parts.push(part);
        }
        if from < head.len() {
            parts.push(head.slice(from..head.len()));
        }
        parts
    }
}

fn uvar_bytes(mut value: u32) -> ([u8; 5], usize) {
    let (mut bytes, mut len) = ([0; 5], 0);
    while value >= 0x80 {
        bytes[len] = value as u8 | 0x80;
        value >>= 7;
        len += 1;
    }
    bytes[len] = value as u8;
    (bytes, len + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reader;

    #[test]
    fn varints_come_back() {
        for value in [0, 1, 127, 128, 16_383, 16_384, 1 << 21, 1 << 28, u32::MAX] {
            let mut w = Writer::new(0, true);
            w.uvar(value);
            let bytes = w.finish().concat();
            let mut r = Reader::new(&bytes, 0, true);
            assert_eq!((r.uvar(), r.rest.len()), (Ok(value), 0));
        }
        assert!(Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x10], 0, true).uvar().is_err(), "33 bits");
        assert!(Reader::new(&[0xff; 6], 0, true).uvar().is_err(), "no end");
    }

    #[test]
    fn splices_stay_where_they_were_put() {
        let part = Buf::copy_of(b"RECORDS");
        let mut w = Writer::new(0, false);
        w.extend(b"ab");
        w.splice(part.clone());
        w.splice(Buf::default());
        w.splice(part.clone());
        w.extend(b"c");
        assert_eq!(w.len(), 17);
        let parts = w.finish();
        assert_eq!(parts.concat(), b"abRECORDSRECORDSc");
        assert_eq!(parts.len(), 4);
        assert!(parts[1].same_block(&part) && parts[2].same_block(&part), "not copied");
    }

    #[test]
    fn a_long_tag_value_is_moved_up() {
        let mut w = Writer::new(0, true);
        w.tag(3, |w| w.extend(&[7; 300]));
        w.extend(b"end");
        let bytes = w.finish().concat();
        assert_eq!(bytes[..3], [3, 0xac, 2]);
        assert!(bytes[3..303].iter().all(|byte| *byte == 7));
        assert_eq!(&bytes[303..], b"end");
    }
}
