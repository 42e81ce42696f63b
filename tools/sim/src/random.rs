//! The one source of randomness: SplitMix64 (Steele, Lea, Flood, 2014). Small, and the same on every machine.

#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        // One round apart, so that neighbouring seeds do not begin alike.
        let mut random = Random(seed ^ 0x5851_f42d_4c95_7f2d);
        random.next();
        random
    }

    /// An independent stream: drawing from it does not shift this one's later draws by more than one.
    pub fn fork(&mut self) -> Random {
        Random::new(self.next())
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In `0..bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0);
        // The bias of the high half is far below what a simulation could notice.
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// In `from..=to`.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        assert!(from <= to);
        from + self.below(to - from + 1)
    }

    pub fn chance(&mut self, probability: f32) -> bool {
        // 24 bits: what a f32 can hold.
        ((self.next() >> 40) as f32) < probability * (1u32 << 24) as f32
    }

    /// Mostly near `from`, now and then far out to `to`: what latencies look like.
    pub fn skewed(&mut self, from: u64, to: u64) -> u64 {
        let span = to - from;
        let shift = self.below(8);
        from + self.below((span >> shift) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_hold_and_streams_repeat() {
        let (mut a, mut b) = (Random::new(7), Random::new(7));
        let mut hits = 0;
        for _ in 0..10_000 {
            let value = a.between(3, 9);
            assert!((3..=9).contains(&value));
            assert_eq!(value, b.between(3, 9));
            hits += u32::from(a.chance(0.25));
            b.next();
        }
        assert!((2_200..2_800).contains(&hits), "{hits}");
        assert!(!a.chance(0.0) && a.chance(1.0));
    }
}
