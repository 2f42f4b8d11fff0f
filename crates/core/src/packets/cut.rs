//! How an amount becomes portions.
//!
//! **Lucky**: the double mean. Each share in turn gets a cent, and by chance up to twice the mean of
//! what is left beyond a cent for everybody after it; the last one gets the rest. That leaves the
//! last shares with a wider spread than the first, so the portions are shuffled: every place has
//! the same chances.
//!
//! **Fixed**: equal shares. Cents that cannot be divided go to the first ones, one each.

use super::Seed;
use super::numbers::Numbers;
use crate::Cents;

/// `total` is at least `shares`, and `shares` at least 1: [`super::check`] saw to it.
pub(super) fn lucky(total: i64, shares: u32, seed: &Seed, nonce: &[u8]) -> Box<[Cents]> {
    let mut numbers = Numbers::new(seed, nonce);
    let mut portions = unshuffled(total, shares, &mut numbers);
    shuffle(&mut portions, &mut numbers);
    portions
}

pub(super) fn fixed(total: i64, shares: u32) -> Box<[Cents]> {
    let shares = i64::from(shares);
    let (each, rest) = (total / shares, total % shares);
    (0..shares).map(|place| Cents::new(each + i64::from(place < rest))).collect()
}

fn unshuffled(total: i64, shares: u32, numbers: &mut Numbers) -> Box<[Cents]> {
    // What is left to give beyond a cent for each.
    let mut spare = u64::try_from(total - i64::from(shares)).expect("a cent for each share");
    let portion = |after: u32| {
        let extra = match after {
            0 => spare,
            after => numbers.below(2 * spare / (u64::from(after) + 1) + 1),
        };
        spare -= extra;
        Cents::new(1 + i64::try_from(extra).expect("a part of the total"))
    };
    (0..shares).rev().map(portion).collect()
}

/// Fisher–Yates, from the last place down.
fn shuffle(portions: &mut [Cents], numbers: &mut Numbers) {
    for last in (1..portions.len()).rev() {
        let other = numbers.below(last as u64 + 1);
        portions.swap(last, usize::try_from(other).expect("a place of the list"));
    }
}

#[cfg(test)]
mod tests {
    use super::{Numbers, Seed, lucky, unshuffled};
    use crate::Cents;

    const PACKETS: u64 = 20_000;
    const SHARES: u32 = 10;
    const TOTAL: i64 = 10_000;
    /// With 9 degrees of freedom chance alone is above this once in a hundred thousand.
    const CHI_SQUARE: f64 = 39.3;

    fn seed(number: u64) -> Seed {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        Seed(bytes)
    }

    /// How far the places of a list differ in the mean of `value`, as a chi-square with one degree
    /// of freedom less than there are places. The values of one packet depend on each other, since
    /// they add up; taking each packet's own mean away leaves what the statistic needs.
    fn difference(packets: &[Box<[Cents]>], value: impl Fn(f64) -> f64) -> f64 {
        let (count, places) = (packets.len() as f64, packets[0].len() as f64);
        let (mut sums, mut squares) = (vec![0.0; packets[0].len()], 0.0);
        for packet in packets {
            let values: Vec<f64> = packet.iter().map(|c| value(c.get() as f64)).collect();
            let mean = values.iter().sum::<f64>() / places;
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum += value - mean;
                squares += (value - mean).powi(2);
            }
        }
        let variance = squares / (count * (places - 1.0));
        sums.iter().map(|sum| (sum / count).powi(2)).sum::<f64>() * count / variance
    }

    fn from_mean(value: f64) -> f64 {
        (value - TOTAL as f64 / f64::from(SHARES)).powi(2)
    }

    #[test]
    fn every_place_has_the_same_mean_and_variance() {
        let packets: Vec<_> = (0..PACKETS).map(|n| lucky(TOTAL, SHARES, &seed(n), b"")).collect();
        let (means, variances) =
            (difference(&packets, |value| value), difference(&packets, from_mean));
        assert!(means < CHI_SQUARE, "means differ by {means}");
        assert!(variances < CHI_SQUARE, "variances differ by {variances}");
    }

    #[test]
    fn the_same_test_fails_a_cut_that_is_not_shuffled() {
        let cut = |n| unshuffled(TOTAL, SHARES, &mut Numbers::new(&seed(n), b""));
        let packets: Vec<_> = (0..PACKETS).map(cut).collect();
        let variances = difference(&packets, from_mean);
        assert!(variances > 10.0 * CHI_SQUARE, "variances differ by {variances} only");
    }
}
