//! The values that clients write: each one unique, and each byte of it known from its name.

use std::fmt;

/// Names one value for ever: who wrote it, and its number there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ValueId {
    pub client: u32,
    pub number: u32,
}

impl fmt::Debug for ValueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}'s #{}", self.client, self.number)
    }
}

const HEAD_BYTES: usize = 12;
pub const BYTES_MIN: u32 = HEAD_BYTES as u32;

/// `{client u32, number u32, length u32}`, then bytes that follow from those three.
pub fn encode(id: ValueId, length: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length as usize);
    bytes.extend_from_slice(&id.client.to_be_bytes());
    bytes.extend_from_slice(&id.number.to_be_bytes());
    bytes.extend_from_slice(&length.to_be_bytes());
    let mut word = start(id, length);
    while bytes.len() < length as usize {
        word = next(word);
        bytes.push((word >> 56) as u8);
    }
    bytes
}

/// The name, when every byte is as it was written.
pub fn decode(bytes: &[u8]) -> Option<ValueId> {
    let word = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let id = ValueId { client: word(0)?, number: word(4)? };
    let length = word(8)?;
    if length as usize != bytes.len() {
        return None;
    }
    let mut word = start(id, length);
    for byte in &bytes[HEAD_BYTES..] {
        word = next(word);
        if *byte != (word >> 56) as u8 {
            return None;
        }
    }
    Some(id)
}

fn start(id: ValueId, length: u32) -> u64 {
    u64::from(id.client) << 40 ^ u64::from(id.number) << 8 ^ u64::from(length)
}
fn next(word: u64) -> u64 {
    word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_changed_byte_is_seen() {
        let id = ValueId { client: 3, number: 77 };
        let bytes = encode(id, 40);
        assert_eq!(decode(&bytes), Some(id));
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert_ne!(decode(&changed), Some(id));
        }
        assert_eq!(decode(&bytes[..39]), None);
    }
}
