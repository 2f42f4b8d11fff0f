//! The one place of the suite that reads clocks: how long a round has run, and what time a
//! signature says.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Runs from the moment it is made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock(Instant);

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "a round lasts as long as it really takes")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    /// Milliseconds since the start.
    pub(crate) fn ms(self) -> u64 {
        u64::try_from(self.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Seconds since 1970.
#[expect(clippy::disallowed_methods, reason = "tokens and callbacks carry the real time")]
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
