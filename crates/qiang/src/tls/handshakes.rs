//! Handshakes under way, at most so many, and how those before have ended.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// How a handshake ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Both sides know each other.
    Done,
    /// The client does not trust us, speaks something else, or hung up.
    Failed,
    /// It took too long.
    Late,
    /// It was the oldest of too many.
    Displaced,
    /// The client came without TLS.
    Plain,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Done, Self::Failed, Self::Late, Self::Displaced, Self::Plain];

    /// The word for it in metrics.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Late => "late",
            Self::Displaced => "displaced",
            Self::Plain => "plain",
        }
    }
}

/// The handshakes of one door.
#[derive(Debug)]
pub(super) struct Handshakes {
    most: usize,
    open: Mutex<Open>,
    counts: [AtomicU64; Outcome::ALL.len()],
}

/// Those under way, by number: the lowest is the oldest.
#[derive(Debug, Default)]
struct Open {
    last: u64,
    by_number: BTreeMap<u64, CancellationToken>,
}

/// One that is under way until this is dropped.
pub(super) struct Handshake {
    number: u64,
    end: CancellationToken,
    all: Arc<Handshakes>,
}

impl Handshakes {
    pub(super) fn new(most: usize) -> Self {
        Self { most, open: Mutex::default(), counts: Default::default() }
    }

    /// One more; the oldest has to go if there are too many.
    pub(super) fn begin(self: &Arc<Self>) -> Handshake {
        let (end, mut open) = (CancellationToken::new(), self.open());
        open.last += 1;
        let number = open.last;
        open.by_number.insert(number, end.clone());
        if open.by_number.len() > self.most
            && let Some((_, oldest)) = open.by_number.pop_first()
        {
            oldest.cancel();
        }
        Handshake { number, end, all: Arc::clone(self) }
    }

    pub(super) fn count(&self, outcome: Outcome) {
        self.counts[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How many ended so.
    pub(super) fn counted(&self, outcome: Outcome) -> u64 {
        self.counts[outcome as usize].load(Ordering::Relaxed)
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handshake {
    /// Returns when this one has to go.
    pub(super) async fn displaced(&self) {
        self.end.cancelled().await;
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.all.open().by_number.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Handshakes, Outcome};

    #[test]
    fn of_too_many_the_oldest_goes() {
        let all = Arc::new(Handshakes::new(2));
        let (first, second) = (all.begin(), all.begin());
        assert!(!first.end.is_cancelled());
        let third = all.begin();
        assert!(first.end.is_cancelled());
        drop(second);
        let fourth = all.begin();
        assert!(!third.end.is_cancelled() && !fourth.end.is_cancelled());
        drop((first, third, fourth));
        assert!(all.open().by_number.is_empty());
    }

    #[test]
    fn each_outcome_has_its_own_count() {
        let all = Handshakes::new(1);
        for (place, outcome) in Outcome::ALL.into_iter().enumerate() {
            (0..=place).for_each(|_| all.count(outcome));
        }
        let counts = Outcome::ALL.map(|outcome| all.counted(outcome));
        assert_eq!(counts, [1, 2, 3, 4, 5]);
    }
}
