//! What this machine's processors did during a run, as the kernel counts it: how busy they were,
//! and how much of them the host of a virtual machine gave to others meanwhile. A latency that
//! nobody can explain is often found there.

use std::time::Duration;

use serde::Serialize;

/// Shares of the time of all processors, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Processor {
    /// At work, for whomever.
    pub busy: f64,
    /// Taken away by the host.
    pub stolen: f64,
    /// The same, in the second when it was most.
    pub stolen_at_worst: f64,
}

/// Looks at the processors from time to time.
#[derive(Debug)]
pub struct Meter {
    begun: Ticks,
    last: Ticks,
    last_at: Duration,
    last_slice: Ticks,
    worst: f64,
}

/// Time since the machine started, in the kernel's own unit.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Ticks {
    all: u64,
    idle: u64,
    stolen: u64,
}

const SECOND: Duration = Duration::from_secs(1);

impl Meter {
    /// Nothing where no kernel tells.
    pub fn start() -> Option<Self> {
        let begun = Ticks::read()?;
        Some(Self { begun, last: begun, last_at: Duration::ZERO, last_slice: begun, worst: 0.0 })
    }

    /// To be called a few times a second, with the time since the start.
    pub fn look(&mut self, at: Duration) {
        if at.saturating_sub(self.last_at) < SECOND {
            return;
        }
        if let Some(now) = Ticks::read() {
            self.worst = self.worst.max(now.since(self.last).stolen);
            (self.last, self.last_at) = (now, at);
        }
    }

    /// The share that was taken away since this was asked the last time.
    pub fn stolen(&mut self) -> Option<f64> {
        let now = Ticks::read()?;
        let since = now.since(self.last_slice);
        self.last_slice = now;
        Some(since.stolen)
    }

    /// Since the start.
    pub fn result(&self) -> Option<Processor> {
        let all = Ticks::read()?.since(self.begun);
        // A run shorter than a second has no worst one.
        Some(Processor { stolen_at_worst: self.worst.max(all.stolen), ..all })
    }
}

impl Ticks {
    fn read() -> Option<Self> {
        Self::of(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    fn of(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let fields = line.split_whitespace().map(|field| field.parse().ok());
        // What comes behind the eighth (guests) is counted in the first two.
        let fields: Vec<u64> = fields.take(8).collect::<Option<_>>()?;
        let [_user, _nice, _system, idle, waiting, _irq, _soft, stolen] = fields[..] else {
            return None;
        };
        Some(Self { all: fields.iter().sum(), idle: idle + waiting, stolen })
    }

    fn since(self, earlier: Self) -> Processor {
        let all = self.all.saturating_sub(earlier.all).max(1) as f64;
        // The kernel says itself that its idle time may run backwards.
        let share = |now: u64, then: u64| now.saturating_sub(then) as f64 / all;
        let (idle, stolen) = (share(self.idle, earlier.idle), share(self.stolen, earlier.stolen));
        let busy = (1.0 - idle - stolen).clamp(0.0, 1.0);
        Processor { busy, stolen, stolen_at_worst: stolen }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  100 10 50 700 40 5 15 80 7 3\ncpu0 50 5 25 350 20 2 8 40 7 3\n";

    #[test]
    fn guests_are_not_counted_twice() {
        let ticks = Ticks::of(STAT);
        assert_eq!(ticks, Some(Ticks { all: 1_000, idle: 740, stolen: 80 }));
        assert_eq!(Ticks::of("cpu  1 2 3\n"), None);
        assert_eq!(Ticks::of("intr 1\n"), None);
    }

    #[test]
    fn shares_add_up() {
        let earlier = Ticks { all: 1_000, idle: 740, stolen: 80 };
        let later = Ticks { all: 1_200, idle: 790, stolen: 130 };
        let Processor { busy, stolen, .. } = later.since(earlier);
        assert_eq!((busy, stolen), (0.5, 0.25));
        let Processor { busy, stolen, .. } = earlier.since(earlier);
        assert_eq!((busy, stolen), (1.0, 0.0));
    }
}
