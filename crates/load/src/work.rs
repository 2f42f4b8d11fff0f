//! What all connections of a run work on together: who is next, what they ask, what became of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::ask::{Answer, Ask, Verb, fault};
use super::line::Line;
use super::record::{Outcome, Recorder, Sample};
use super::scenario::Script;
use super::stopwatch::Stopwatch;
use super::tally::Tally;
use super::wire::Door;

/// Where requests come from.
#[derive(Debug)]
pub(crate) enum Source {
    /// From a line that fills by itself.
    Open(Line),
    /// From whoever has just been answered, until a time.
    Closed {
        /// That time.
        until: Duration,
    },
}

/// A run under way.
#[derive(Debug)]
pub struct Work {
    pub door: Door,
    /// Requests that may be on their way over one connection at once.
    pub depth: usize,
    pub(crate) source: Source,
    watch: Stopwatch,
    stopped: AtomicBool,
    desk: Mutex<Desk>,
}

/// What changes with every request.
#[derive(Debug)]
pub struct Desk {
    pub script: Script,
    pub tally: Tally,
    pub recorder: Recorder,
}

impl Work {
    /// The time begins to run.
    pub(crate) fn begin(door: Door, depth: usize, source: Source, script: Script) -> Self {
        let desk = Desk { script, tally: Tally::default(), recorder: Recorder::new() };
        let (watch, stopped) = (Stopwatch::start(), AtomicBool::new(false));
        Self { door, depth, source, watch, stopped, desk: Mutex::new(desk) }
    }

    /// Since the beginning.
    pub fn elapsed(&self) -> Duration {
        self.watch.elapsed()
    }

    /// When the next one arrives, or arrived; waits for it. `None` when nobody comes any more.
    pub async fn next(&self) -> Option<Duration> {
        match &self.source {
            Source::Open(line) => line.next().await,
            Source::Closed { .. } => self.now_if_open(),
        }
    }

    /// The same, without waiting.
    pub fn try_next(&self) -> Option<Duration> {
        match &self.source {
            Source::Open(line) => line.try_next(),
            Source::Closed { .. } => self.now_if_open(),
        }
    }

    fn now_if_open(&self) -> Option<Duration> {
        let now = self.elapsed();
        let Source::Closed { until } = self.source else { return None };
        (now < until && !self.is_stopped()).then_some(now)
    }

    /// What to ask; `None` when everybody has asked.
    pub fn ask(&self) -> Option<Ask> {
        self.desk().script.next_ask()
    }

    pub fn answered(&self, ask: &Ask, answer: &Answer, planned: Duration, sent: Duration) {
        let now = self.elapsed();
        let sample = Sample {
            verb: ask.verb,
            outcome: Outcome::of(ask, answer),
            latency: now.saturating_sub(planned),
            service: now.saturating_sub(sent),
        };
        let mut desk = self.desk();
        desk.recorder.record(&sample);
        desk.tally.heard(ask, answer);
        desk.script.heard(ask, answer);
    }

    /// An answer did not come, and the request is sent again.
    pub fn lost(&self, ask: &Ask) {
        let mut desk = self.desk();
        desk.tally.lost(ask);
        desk.recorder.resent += 1;
    }

    /// No answer ever came.
    pub fn unknown(&self, ask: &Ask, planned: Duration, sent: Duration) {
        self.answered(ask, &Answer::Unknown, planned, sent);
        self.desk().tally.unknown(ask);
    }

    /// It could not be sent.
    pub fn no_connection(&self, ask: &Ask, planned: Duration) {
        let now = self.elapsed();
        self.answered(ask, &Answer::Failed(fault::NO_CONNECTION), planned, now);
    }

    /// Nobody comes any more; what is under way ends as it does.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        if let Source::Open(line) = &self.source {
            line.close();
        }
    }

    /// The same, and who still waits in line is sent home.
    pub fn hurry(&self) {
        self.stop();
        if let Source::Open(line) = &self.source {
            let left = line.clear();
            self.desk().recorder.count(Verb::Claim, Outcome::error(fault::NOT_SENT), left);
        }
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// How many wait in line.
    pub fn waiting(&self) -> usize {
        match &self.source {
            Source::Open(line) => line.len(),
            Source::Closed { .. } => 0,
        }
    }

    pub fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
