//! Random numbers that a seed decides, so that a run can be repeated: `SplitMix64`.

/// A generator; two with the same seed throw the same.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        let scaled = (u64::from(bound) * (self.next() >> 32)) >> 32;
        u32::try_from(scaled).expect("smaller than the bound")
    }

    /// From 0 to 1, without 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::Dice;

    #[test]
    fn the_seed_decides_and_bounds_hold() {
        let (mut one, mut other) = (Dice::new(7), Dice::new(7));
        for _ in 0..10_000 {
            let throw = one.below(6);
            assert_eq!(throw, other.below(6));
            assert!(throw < 6);
            let unit = one.unit();
            assert!((0.0..1.0).contains(&unit));
            other.unit();
        }
        assert_ne!(Dice::new(1).next(), Dice::new(2).next());
    }
}
