//! How fast a consumer works, and how long it waits: the claims come first.

use std::time::Duration;

use qiang_engine::Stopwatch;

/// Events in one batch, give or take the engine's last batch.
pub const BATCH: usize = 8_192;
/// A rest behind a small batch lets the next one grow: the claim path needs processor and disk
/// more than the consumer does. Whoever waits for the consumer cuts it short.
pub(super) const REST: Duration = Duration::from_millis(200);
/// While claims come faster than they are consumed, the consumer rests behind each batch: so many
/// times as long as that took, and not longer than this. After the longest rush it rests no more, so
/// that a shop that is always busy has its records, too.
const RESTS_IN_RUSH: u32 = 4;
const LONGEST_REST: Duration = Duration::from_secs(1);
const LONGEST_RUSH: Duration = Duration::from_secs(10);
/// How often it is read how far others have come, when nobody waits for it, and when somebody does.
pub(super) const OTHERS_EVERY: Duration = Duration::from_millis(500);
pub(super) const OTHERS_HURRIED: Duration = Duration::from_millis(20);
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
/// How long a log waits at most that could not be read or written. Others go on.
const MAX_LOG_BACKOFF: Duration = Duration::from_secs(1);
/// How long all of them wait at most, when nothing can be told about any.
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// A time to come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline {
    set: Stopwatch,
    after: Duration,
}

impl Deadline {
    fn after(after: Duration) -> Self {
        Self { set: Stopwatch::start(), after }
    }

    /// How long it is until then.
    pub(super) fn left(&self) -> Duration {
        self.after.saturating_sub(self.set.elapsed())
    }
}

/// Waits longer after each failure, up to a bound.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
    max: Duration,
}

impl Backoff {
    /// For one log.
    pub(super) fn of_log() -> Self {
        Self { next: FIRST_BACKOFF, max: MAX_LOG_BACKOFF }
    }

    /// For all of them.
    pub(super) fn of_all() -> Self {
        Self { next: FIRST_BACKOFF, max: MAX_BACKOFF }
    }

    /// When to try again.
    pub(super) fn failed(&mut self) -> Deadline {
        let deadline = Deadline::after(self.next);
        self.next = (self.next * 2).min(self.max);
        deadline
    }

    pub(super) fn succeeded(&mut self) {
        self.next = FIRST_BACKOFF;
    }
}

/// Whether claims come faster than they are consumed.
#[derive(Debug, Default)]
pub(super) struct Rush {
    pending: u64,
    began: Option<Stopwatch>,
}

impl Rush {
    /// Behind a full batch, with what is still to be consumed: how long to rest.
    pub(super) fn rest(&mut self, pending: u64, worked: Duration) -> Option<Duration> {
        let grew = pending > self.pending;
        self.pending = pending;
        let began = self.began.get_or_insert_with(Stopwatch::start);
        let on = grew && began.elapsed() < LONGEST_RUSH;
        on.then(|| (worked * RESTS_IN_RUSH).min(LONGEST_REST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rush_ends_when_less_is_left_than_before() {
        let mut rush = Rush::default();
        let worked = Duration::from_millis(10);
        assert_eq!(rush.rest(20_000, worked), Some(Duration::from_millis(40)));
        assert_eq!(rush.rest(30_000, worked * 100), Some(LONGEST_REST));
        assert_eq!(rush.rest(30_000, worked), None);
        assert_eq!(rush.rest(1_000, worked), None);
    }

    #[test]
    fn a_backoff_grows_to_its_bound_and_begins_anew() {
        let mut backoff = Backoff::of_log();
        let waits = [(); 6].map(|()| backoff.failed().after.as_millis());
        assert_eq!(waits, [100, 200, 400, 800, 1_000, 1_000]);
        backoff.succeeded();
        assert_eq!(backoff.failed().after, FIRST_BACKOFF);
    }
}
