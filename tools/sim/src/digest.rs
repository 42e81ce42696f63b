//! What left the shards, hashed: the same seed must give the same digest.

/// Every byte that left every shard, and every disk operation, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest(pub u64);

impl Default for Digest {
    fn default() -> Digest {
        Digest(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    pub fn number(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x9fb2_1c65_1e98_df25);
        self.0 ^= self.0 >> 29;
    }

    /// The length counts too, so that two writes differ from one long one.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            self.number(u64::from_le_bytes(word.try_into().expect("chunks of 8")));
        }
        for byte in words.remainder() {
            self.number(u64::from(*byte));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(parts: &[&[u8]]) -> Digest {
        let mut digest = Digest::default();
        for part in parts {
            digest.bytes(part);
        }
        digest
    }

    #[test]
    fn one_bit_and_one_boundary_make_a_difference() {
        assert_eq!(of(&[b"hello, world"]), of(&[b"hello, world"]));
        assert_ne!(of(&[b"hello, world"]), of(&[b"hello, worle"]));
        assert_ne!(of(&[b"hello, world"]), of(&[b"hello,", b" world"]));
    }
}
