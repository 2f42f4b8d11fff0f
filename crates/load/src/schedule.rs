//! When users arrive. An open loop knows that before it begins: a server that slows down does not
//! get fewer requests, it gets a longer line.

use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

use super::dice::Dice;

/// How arrivals are spaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Spacing {
    /// One after the other at equal distances
    Uniform,
    /// At random, independent of each other, as people do
    Poisson,
}

impl Spacing {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Uniform => "evenly spaced",
            Self::Poisson => "at random (Poisson)",
        }
    }
}

/// The times of all arrivals, counted from the beginning, each once and in order.
#[derive(Debug)]
pub struct Schedule {
    spacing: Spacing,
    per_sec: f64,
    end: Duration,
    left: u64,
    given: u64,
    last_secs: f64,
    dice: Dice,
}

impl Schedule {
    /// `per_sec` arrivals a second until `end`, but no more than `most`.
    pub fn new(spacing: Spacing, per_sec: f64, end: Duration, most: u64, seed: u64) -> Self {
        let dice = Dice::new(seed);
        Self { spacing, per_sec, end, left: most, given: 0, last_secs: 0.0, dice }
    }
}

impl Iterator for Schedule {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        if self.left == 0 {
            return None;
        }
        let secs = match self.spacing {
            // From the number, not from the one before: rounding does not add up.
            Spacing::Uniform => self.given as f64 / self.per_sec,
            Spacing::Poisson => self.last_secs - (1.0 - self.dice.unit()).ln() / self.per_sec,
        };
        let at = Duration::try_from_secs_f64(secs).unwrap_or(Duration::MAX);
        if at >= self.end {
            self.left = 0;
            return None;
        }
        self.last_secs = secs;
        self.given += 1;
        self.left -= 1;
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(spacing: Spacing, per_sec: f64, secs: u64, most: u64) -> Vec<Duration> {
        Schedule::new(spacing, per_sec, Duration::from_secs(secs), most, 1).collect()
    }

    #[test]
    fn uniform_arrivals_keep_their_distance_to_the_end() {
        let times = schedule(Spacing::Uniform, 4.0, 2, u64::MAX);
        let expected: Vec<_> = (0..8).map(|n| Duration::from_millis(250 * n)).collect();
        assert_eq!(times, expected);
        let long = schedule(Spacing::Uniform, 3_000.0, 100, u64::MAX);
        assert_eq!(long.len(), 300_000);
        assert_eq!(long.last().map(Duration::as_millis), Some(99_999));
    }

    #[test]
    fn no_more_come_than_there_are() {
        assert_eq!(schedule(Spacing::Uniform, 1_000.0, 60, 10).len(), 10);
        assert_eq!(schedule(Spacing::Poisson, 1_000.0, 60, 10).len(), 10);
        assert!(schedule(Spacing::Uniform, 1_000.0, 60, 0).is_empty());
    }

    #[test]
    fn a_rate_below_one_a_second_is_a_rate() {
        let times = schedule(Spacing::Uniform, 0.5, 10, u64::MAX);
        assert_eq!(times.len(), 5);
        assert_eq!(times[4], Duration::from_secs(8));
    }

    #[test]
    fn people_come_in_order_at_the_rate_and_again_the_same_with_the_seed() {
        let times = schedule(Spacing::Poisson, 1_000.0, 20, u64::MAX);
        assert!(times.is_sorted());
        assert!((19_000..21_000).contains(&times.len()), "{}", times.len());
        assert_eq!(times, schedule(Spacing::Poisson, 1_000.0, 20, u64::MAX));
        // Of independent gaps, 1/e are longer than the mean.
        let long = times.windows(2).filter(|w| w[1] - w[0] > Duration::from_millis(1)).count();
        let share = long as f64 / times.len() as f64;
        assert!((0.33..0.41).contains(&share), "{share}");
    }
}
