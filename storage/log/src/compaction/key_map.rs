//! The newest offset of each key, in a fixed number of bytes: keys are kept as digests of 128 bits.
//!
//! Two keys with one digest would lose the older one's last value, so the digest is keyed with the node's seed: who writes keys can't
//! look for such a pair (SipHash-2-4 with 128 bits, Aumasson and Bernstein 2012).

use ringmain_types::Offset;

const SLOT_BYTES: usize = 24;
/// Of a new map, made ready at once: whoever touches a page first waits for the kernel to find one and clear it, up to 40 us each here.
const READY_BYTES: usize = 64 << 10;

/// Open addressing; at most nine tenths of the slots are taken.
#[derive(Debug)]
pub(crate) struct KeyMap {
    /// Digest, and the offset plus one: 0 is an empty slot. As long as `size` when it is ready.
    slots: Vec<[u64; 3]>,
    size: usize,
    used: usize,
    most: usize,
    seed: u64,
}

impl KeyMap {
    /// In at most `bytes`, and room for one key at the least; to be made ready before it is used.
    pub fn new(bytes: u64, seed: u64) -> KeyMap {
        let size = (bytes as usize / SLOT_BYTES).max(2);
        KeyMap { slots: Vec::with_capacity(size), size, used: 0, most: (size / 10 * 9).max(1), seed }
    }

    /// A piece of its memory is touched in order, rather than all of it at random by the first keys. True when nothing is left to do.
    pub fn made_ready(&mut self) -> bool {
        let next = self.size.min(self.slots.len() + READY_BYTES / SLOT_BYTES);
        self.slots.resize(next, [0; 3]);
        next == self.size
    }

    /// What so many keys are found quickly in.
    pub fn bytes_for(keys: u64) -> u64 {
        keys.saturating_mul(2).saturating_add(16).saturating_mul(SLOT_BYTES as u64)
    }

    /// False when there is no room for another key.
    pub fn put(&mut self, key: &[u8], offset: Offset) -> bool {
        let (at, digest) = self.find(key);
        if self.slots[at][2] == 0 {
            if self.used == self.most {
                return false;
            }
            self.used += 1;
        }
        let offset = (offset.0 as u64 + 1).max(self.slots[at][2]);
        self.slots[at] = [digest[0], digest[1], offset];
        true
    }

    pub fn get(&self, key: &[u8]) -> Option<Offset> {
        let (at, _) = self.find(key);
        self.slots[at][2].checked_sub(1).map(|offset| Offset(offset as i64))
    }

    /// The key's slot, or the empty one where it belongs: there always is one.
    fn find(&self, key: &[u8]) -> (usize, [u64; 2]) {
        let digest = digest(key, [self.seed, self.seed.rotate_left(32) ^ 0x5bd1_e995_9e37_79b9]);
        let mut at = (digest[0] % self.slots.len() as u64) as usize;
        loop {
            let slot = &self.slots[at];
            if slot[2] == 0 || slot[..2] == digest {
                return (at, digest);
            }
            at = if at + 1 == self.slots.len() { 0 } else { at + 1 };
        }
    }
}

fn digest(bytes: &[u8], seed: [u64; 2]) -> [u64; 2] {
    let mut v = [
        seed[0] ^ 0x736f_6d65_7073_6575,
        seed[1] ^ 0x646f_7261_6e64_6f6d ^ 0xee,
        seed[0] ^ 0x6c79_6765_6e65_7261,
        seed[1] ^ 0x7465_6462_7974_6573,
    ];
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    last[7] = bytes.len() as u8;
    for word in words.iter().chain(std::iter::once(&last)) {
        let word = u64::from_le_bytes(*word);
        v[3] ^= word;
        rounds(&mut v, 2);
        v[0] ^= word;
    }
    v[2] ^= 0xee;
    rounds(&mut v, 4);
    let low = v[0] ^ v[1] ^ v[2] ^ v[3];
    v[1] ^= 0xdd;
    rounds(&mut v, 4);
    [low, v[0] ^ v[1] ^ v[2] ^ v[3]]
}

fn rounds(v: &mut [u64; 4], count: u32) {
    for _ in 0..count {
        v[0] = v[0].wrapping_add(v[1]);
        v[1] = v[1].rotate_left(13) ^ v[0];
        v[0] = v[0].rotate_left(32);
        v[2] = v[2].wrapping_add(v[3]);
        v[3] = v[3].rotate_left(16) ^ v[2];
        v[0] = v[0].wrapping_add(v[3]);
        v[3] = v[3].rotate_left(21) ^ v[0];
        v[2] = v[2].wrapping_add(v[1]);
        v[1] = v[1].rotate_left(17) ^ v[2];
        v[2] = v[2].rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(bytes: u64) -> KeyMap {
        let mut map = KeyMap::new(bytes, 7);
        while !map.made_ready() {}
        map
    }

    /// The first two of the reference's test vectors.
    #[test]
    fn the_digest_is_siphash_128() {
        let seed = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        let bytes = |digest: [u64; 2]| digest.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let empty = [0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93];
        assert_eq!(bytes(digest(&[], seed)), empty);
        let zero = [0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44, 0x34, 0x76, 0x59, 0x11, 0x9b, 0x22, 0xfc, 0x45];
        assert_eq!(bytes(digest(&[0], seed)), zero);
    }

    #[test]
    fn it_keeps_the_newest_and_says_when_it_is_full() {
        let mut map = ready(24 * 100);
        let mut put = 0i64;
        while map.put(format!("key {put}").as_bytes(), Offset(put)) {
            put += 1;
        }
        assert_eq!(put, 90);
        assert!(map.put(b"key 3", Offset(1000)), "a known key needs no room");
        assert!(map.put(b"key 3", Offset(5)));
        assert_eq!(map.get(b"key 3"), Some(Offset(1000)));
        assert_eq!((map.get(b"key 89"), map.get(b"key 90"), map.get(b"")), (Some(Offset(89)), None, None));
        for keys in [0u64, 1, 2, 5, 9, 10, 11, 19, 1000] {
            let mut map = ready(KeyMap::bytes_for(keys));
            assert!((0..keys).all(|key| map.put(&key.to_be_bytes(), Offset(key as i64))), "room for {keys}");
        }
        let mut least = ready(0);
        assert!(least.put(b"one", Offset(0)) && !least.put(b"two", Offset(1)));
        assert_eq!((least.get(b"one"), least.get(b"two")), (Some(Offset(0)), None));
    }

    #[test]
    fn a_large_one_is_made_ready_in_pieces() {
        let (bytes, mut pieces) = (10 * READY_BYTES, 1);
        let mut map = KeyMap::new(bytes as u64, 7);
        while !map.made_ready() {
            pieces += 1;
        }
        assert!((10..=11).contains(&pieces), "{pieces}");
        assert_eq!((map.slots.len(), map.slots.capacity()), (bytes / SLOT_BYTES, bytes / SLOT_BYTES));
    }
}
