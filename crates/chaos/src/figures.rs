//! What is counted in a round, and over many.

use std::fmt;
use std::ops::AddAssign;

/// The figures of one round or of several.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Figures {
    pub(crate) rounds: u64,
    pub(crate) faults: usize,
    pub(crate) claims: usize,
    pub(crate) payments: usize,
    /// Requests without an answer to rely on, each time it was so.
    pub(crate) unknown: u64,
    pub(crate) repairs: u32,
    /// Answers that were lost where that may be.
    pub(crate) lost: usize,
    pub(crate) wrong: usize,
    /// The longest time without a claim, in milliseconds.
    pub(crate) silence_ms: u64,
    pub(crate) seconds: u64,
}

impl AddAssign for Figures {
    fn add_assign(&mut self, other: Self) {
        self.rounds += other.rounds;
        self.faults += other.faults;
        self.claims += other.claims;
        self.payments += other.payments;
        self.unknown += other.unknown;
        self.repairs += other.repairs;
        self.lost += other.lost;
        self.wrong += other.wrong;
        self.silence_ms = self.silence_ms.max(other.silence_ms);
        self.seconds += other.seconds;
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { faults, claims, payments, unknown, repairs, lost, wrong, seconds, .. } = self;
        let (silence_s, tenths) = (self.silence_ms / 1_000, self.silence_ms % 1_000 / 100);
        write!(
            f,
            "{faults} faults, {claims} claims, {payments} payments, {unknown} unknown and asked \
             again, {repairs} repairs, {lost} lost where that may be, {wrong} wrong, longest time \
             without a claim {silence_s}.{tenths} s, {seconds} s"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Figures;

    #[test]
    fn rounds_add_up_and_the_longest_silence_counts() {
        let mut all = Figures { rounds: 1, claims: 5, silence_ms: 4_250, ..Figures::default() };
        all += Figures { rounds: 1, claims: 2, silence_ms: 900, ..Figures::default() };
        assert_eq!((all.rounds, all.claims), (2, 7));
        assert!(all.to_string().contains("without a claim 4.2 s"), "{all}");
    }
}
