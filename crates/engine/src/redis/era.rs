//! One epoch of one partition as this process knows it: its name, how far it has been seen to reach,
//! and what is wrong with it.
//!
//! A call belongs to the era it began in. What it learns after the next one has begun (that the
//! state is not the one it knew, how far a log reached) says nothing about the next one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::PartitionState;
use crate::Stopwatch;

/// How long a partition surely remembers what a process has changed last; in fact for a week.
const CHANGE_KEPT: Duration = Duration::from_hours(24);

/// What is known about a partition under one epoch.
#[derive(Debug)]
pub(super) struct Era {
    partition: u16,
    name: Box<str>,
    /// A position the log cannot be before.
    known: AtomicU64,
    /// A call of this process that has changed something, and when that was heard, in milliseconds
    /// since the beginning.
    confirmed: AtomicU64,
    confirmed_ms: AtomicU64,
    begun: Stopwatch,
    /// Why nothing is decided in the partition.
    lost: Mutex<Option<String>>,
    is_lost: AtomicBool,
    /// Told when it is lost.
    news: Arc<Notify>,
}

/// How far a partition must have come to be the one this process knows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    position: u64,
}

impl Era {
    /// Before anybody said which state is the right one: nothing is decided.
    pub(super) fn unset(partition: u16, news: Arc<Notify>) -> Self {
        Self::new(partition, "", news, true)
    }

    /// The next one. A position of another epoch means nothing in it; what was heard of before the
    /// first one had a name belongs to the first one.
    pub(super) fn next(&self, name: &str) -> Self {
        let mut next = Self::new(self.partition, name, Arc::clone(&self.news), false);
        if self.name.is_empty() || *self.name == *name {
            next.begun = self.begun;
            for (to, from) in [
                (&next.known, &self.known),
                (&next.confirmed, &self.confirmed),
                (&next.confirmed_ms, &self.confirmed_ms),
            ] {
                to.store(from.load(Ordering::Acquire), Ordering::Release);
            }
        }
        next
    }

    fn new(partition: u16, name: &str, news: Arc<Notify>, lost: bool) -> Self {
        Self {
            partition,
            name: name.into(),
            known: AtomicU64::new(0),
            confirmed: AtomicU64::new(0),
            confirmed_ms: AtomicU64::new(0),
            begun: Stopwatch::start(),
            lost: Mutex::default(),
            is_lost: AtomicBool::new(lost),
            news,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    /// Why nothing is decided in the partition, if so.
    pub(super) fn lost(&self) -> Option<String> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A position the log cannot be before.
    pub(super) fn position(&self) -> u64 {
        self.known.load(Ordering::Acquire)
    }

    pub(super) fn raise_position(&self, position: u64) {
        self.known.fetch_max(position, Ordering::AcqRel);
    }

    /// A call of this process whose change the partition must remember.
    pub(super) fn change(&self) -> u64 {
        let at = Duration::from_millis(self.confirmed_ms.load(Ordering::Acquire));
        let is_kept = self.begun.elapsed().saturating_sub(at) < CHANGE_KEPT;
        if is_kept { self.confirmed.load(Ordering::Acquire) } else { 0 }
    }

    pub(super) fn raise_change(&self, call: u64) {
        let at = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        if self.confirmed.fetch_max(call, Ordering::AcqRel) < call {
            self.confirmed_ms.fetch_max(at, Ordering::AcqRel);
        }
    }

    /// What is known at this moment. To be taken before the partition is asked: what others learn
    /// meanwhile may be newer than its answer.
    pub(super) fn known(&self) -> Known {
        Known { position: self.position() }
    }

    /// Whether a partition in this state still has everything that was `known` when it was asked.
    pub(super) fn fits(&self, known: Known, state: &PartitionState) -> bool {
        *self.name == *state.epoch && state.seq >= known.position && !state.torn
    }

    /// The state of the partition is not the one that was there.
    pub(super) fn lose(&self, state: &PartitionState) {
        let (partition, name, known) = (self.partition, &self.name, self.position());
        let PartitionState { epoch: found, seq, torn } = state;
        self.lose_for(if **found != **name {
            match &**found {
                "" => format!("Redis has lost partition {partition}: it is empty"),
                _ => format!("partition {partition} in Redis is of epoch {found}, not of {name}"),
            }
        } else if *torn {
            format!(
                "Redis has carried out a call in part: partition {partition} is not to be trusted. \
                 After a crash its append-only file ended within a call"
            )
        } else if *seq < known {
            format!(
                "Redis has gone back: partition {partition} ends at {seq}, but {known} was seen"
            )
        } else {
            format!(
                "Redis has gone back: partition {partition} has forgotten what this node was told"
            )
        });
    }

    /// A bucket in another partition remembers units that went from one to the other.
    pub(super) fn lose_transfer(&self, pool: qiang_core::PoolId) {
        let partition = self.partition;
        self.lose_for(format!(
            "Redis has gone back: partition {partition} has forgotten units of sale {pool} that \
             moved between its buckets"
        ));
    }

    /// Somebody else found out.
    pub(super) fn lose_as_told(&self) {
        let partition = self.partition;
        let what = format!("Redis has gone back: partition {partition} has forgotten what it said");
        self.lose_for(format!("{what} to another node"));
    }

    fn lose_for(&self, what: String) {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_lost.swap(true, Ordering::AcqRel) {
            tracing::error!("{what}; its sales wait until `qiang audit --repair` was run");
        }
        *lost = Some(what);
        self.news.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::{Arc, Era, PartitionState};

    fn state(epoch: &str, seq: u64, torn: bool) -> PartitionState {
        PartitionState { epoch: epoch.to_owned(), seq, torn }
    }

    #[test]
    fn positions_of_one_epoch_mean_nothing_in_the_next() {
        let unset = Era::unset(1, Arc::default());
        assert!(unset.is_lost());
        unset.raise_position(7);
        let first = unset.next("e1");
        assert_eq!((first.position(), first.is_lost()), (7, false));
        first.raise_position(9);
        assert_eq!(first.next("e1").position(), 9);
        assert_eq!(first.next("e2").position(), 0);
    }

    #[test]
    fn why_a_partition_is_lost_is_said() {
        let era = Era::unset(0, Arc::default()).next("e1");
        era.raise_position(7);
        let before = era.known();
        era.raise_position(9);
        // The log went on while it was asked.
        assert!(era.fits(before, &state("e1", 8, false)));
        assert!(era.fits(era.known(), &state("e1", 9, false)));
        for (state, why) in [
            (state("", 0, false), "is empty"),
            (state("e2", 20, false), "epoch e2"),
            (state("e1", 8, false), "ends at 8"),
            (state("e1", 9, true), "in part"),
        ] {
            assert!(!era.fits(era.known(), &state));
            era.lose(&state);
            let said = era.lost().unwrap();
            assert!(said.contains(why), "{said}");
        }
        assert!(era.is_lost());
    }
}
