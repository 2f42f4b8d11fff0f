//! Numbers that look random and are the same for the same seed.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Set to a number, it makes every seeded test run that one seed only.
const SEED_VARIABLE: &str = "QIANG_SEED";
/// Set to a number, it makes every seeded test try so many seeds, for a night of searching.
const RUNS_VARIABLE: &str = "QIANG_RUNS";

/// Runs `world` with the seeds `1..=runs`, or with the one in `QIANG_SEED`. On a failure it says
/// which seed it was, so that it can be had again.
pub fn each_seed(runs: u64, world: impl Fn(u64)) {
    let (from, to) = match (number_in(SEED_VARIABLE), number_in(RUNS_VARIABLE)) {
        (Some(seed), _) => (seed, seed),
        (None, given) => (1, given.unwrap_or(runs)),
    };
    for seed in from..=to {
        if let Err(failure) = catch_unwind(AssertUnwindSafe(|| world(seed))) {
            say(&format!("failed with {SEED_VARIABLE}={seed}"));
            resume_unwind(failure);
        }
    }
}

/// A small generator (SplitMix64).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The same seed gives the same numbers.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0xD134_2543_DE82_EF95) ^ 0x5851_F42D_4C95_7F2D)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        let low = u32::try_from(mixed & u64::from(u32::MAX)).expect("masked");
        u32::try_from((u64::from(low) * u64::from(bound)) >> 32).expect("below the bound")
    }

    /// A number from `from` to `to`, both included.
    pub fn between(&mut self, from: u32, to: u32) -> u32 {
        from + self.below(to - from + 1)
    }

    /// True in `percent` of a hundred cases.
    pub fn percent(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }

    /// One of them.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        let count = u32::try_from(all.len()).expect("short lists");
        &all[self.below(count) as usize]
    }
}

fn number_in(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number, not {text:?}")))
}

#[expect(clippy::print_stderr, reason = "a failing test says how to run it again")]
fn say(text: &str) {
    eprintln!("{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_can_be_had_again_and_numbers_stay_below_their_bound() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            (0..1_000).map(|_| random.below(10)).collect::<Vec<_>>()
        };
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
        let numbers = draw(3);
        assert!((0..10).all(|number| numbers.contains(&number)));
        assert!(numbers.iter().all(|number| *number < 10));
    }
}
