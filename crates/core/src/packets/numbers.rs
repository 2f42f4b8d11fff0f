//! Random numbers that anybody can draw again: HMAC-SHA256 in counter mode.
//!
//! Block `i` is the HMAC, keyed with the seed, of the domain word and the nonce, each behind its
//! length, and of `i` in 8 bytes. The blocks one after the other are a stream of numbers of 8 bytes,
//! the high byte first.

use hmac::{Hmac, Mac as _};
use sha2::Sha256;

use super::{Seed, length};

/// What the numbers are for, so that the same seed gives others elsewhere.
const DOMAIN: &[u8] = b"qiang packet cut v1";
/// Numbers in a block.
const NUMBERS: usize = 4;

pub(super) struct Numbers {
    /// Has taken in everything but the counter.
    keyed: Hmac<Sha256>,
    counter: u64,
    block: [u8; 32],
    /// Numbers of the block that were drawn.
    drawn: usize,
}

impl Numbers {
    pub(super) fn new(seed: &Seed, nonce: &[u8]) -> Self {
        let mut keyed = Hmac::<Sha256>::new_from_slice(&seed.0).expect("HMAC takes any key");
        for part in [DOMAIN, nonce] {
            keyed.update(&length(part));
            keyed.update(part);
        }
        Self { keyed, counter: 0, block: [0; 32], drawn: NUMBERS }
    }

    fn next(&mut self) -> u64 {
        if self.drawn == NUMBERS {
            let mut block = self.keyed.clone();
            block.update(&self.counter.to_be_bytes());
            self.block = block.finalize().into_bytes().into();
            (self.counter, self.drawn) = (self.counter + 1, 0);
        }
        let at = self.drawn * 8;
        self.drawn += 1;
        u64::from_be_bytes(self.block[at..at + 8].try_into().expect("8 bytes of a block of 32"))
    }

    /// A number below `bound`, each as likely as any other: the numbers at the upper end that would
    /// make the lower ones likelier are drawn again.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "there is no number below 0");
        let too_many = (u64::MAX % bound + 1) % bound;
        loop {
            let number = self.next();
            if number <= u64::MAX - too_many {
                return number % bound;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Numbers, Seed};

    #[test]
    fn every_number_is_below_its_bound_and_equally_likely() {
        let mut numbers = Numbers::new(&Seed([3; 32]), b"");
        let mut seen = [0_u32; 7];
        for _ in 0..70_000 {
            seen[usize::try_from(numbers.below(7)).expect("small")] += 1;
        }
        // Chi-square with 6 degrees of freedom: above 27.9 once in ten thousand.
        let chi: f64 = seen.iter().map(|n| (f64::from(*n) - 10_000.0).powi(2) / 10_000.0).sum();
        assert!(chi < 27.9, "{chi}");
    }

    #[test]
    fn numbers_that_would_favour_the_low_ones_are_drawn_again() {
        // A quarter of all numbers is at or above this bound. Folded back, they would all come out
        // below 2^62.
        let bound = (1 << 63) + (1 << 62);
        let mut numbers = Numbers::new(&Seed([4; 32]), b"");
        let low = (0..30_000).filter(|_| numbers.below(bound) < 1 << 62).count();
        // A third, with a standard deviation of 82; folded back it would be half.
        assert!((9_600..10_400).contains(&low), "{low}");
    }

    #[test]
    fn the_nonce_changes_every_number() {
        let seed = Seed([5; 32]);
        let draw = |nonce: &[u8]| {
            let mut numbers = Numbers::new(&seed, nonce);
            (0..8).map(|_| numbers.next()).collect::<Vec<_>>()
        };
        assert_eq!(draw(b"a"), draw(b"a"));
        assert_ne!(draw(b"a"), draw(b"b"));
        assert_ne!(draw(b""), draw(b"\0"));
    }
}
