//! One epoch as this process knows it: its name, how far it has been seen to reach, and what is
//! wrong with it.
//!
//! A call belongs to the era it began in. What it learns after the next one has begun (that the
//! state is not the one it knew, how far a log reached) says nothing about the next one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::PartitionState;
use crate::Stopwatch;

/// How long a partition surely remembers what a process has changed last; in fact for a week.
const CHANGE_KEPT: Duration = Duration::from_hours(24);

/// What is known about all partitions under one epoch.
#[derive(Debug)]
pub(super) struct Era {
    name: Box<str>,
    /// For each partition a position its log cannot be before.
    known: Box<[AtomicU64]>,
    /// For each partition how many payments were reserved there at least.
    reserved: Box<[AtomicU64]>,
    /// For each partition a call of this process that has changed something there, and when that was
    /// heard, in milliseconds since the beginning.
    confirmed: Box<[AtomicU64]>,
    confirmed_ms: Box<[AtomicU64]>,
    begun: Stopwatch,
    /// For each partition why nothing is decided in it.
    lost: Mutex<BTreeMap<u16, String>>,
    is_lost: Box<[AtomicBool]>,
}

impl Era {
    /// Before anybody said which state is the right one: nothing is decided.
    pub(super) fn unset(partitions: u16) -> Self {
        Self::new("".into(), partitions, true)
    }

    /// The next one. Positions of another epoch mean nothing in it; what was heard of before the
    /// first one had a name belongs to the first one.
    pub(super) fn next(&self, name: &str) -> Self {
        let partitions =
            u16::try_from(self.known.len()).expect("partitions are counted in 16 bits");
        let mut next = Self::new(name.into(), partitions, false);
        if self.name.is_empty() || *self.name == *name {
            next.begun = self.begun;
            for (to, from) in [
                (&next.known, &self.known),
                (&next.reserved, &self.reserved),
                (&next.confirmed, &self.confirmed),
                (&next.confirmed_ms, &self.confirmed_ms),
            ] {
                to.iter().zip(from).for_each(|(to, from)| {
                    to.store(from.load(Ordering::Acquire), Ordering::Release);
                });
            }
        }
        next
    }

    fn new(name: Box<str>, partitions: u16, lost: bool) -> Self {
        let zeros = || (0..partitions).map(|_| AtomicU64::new(0)).collect();
        Self {
            name,
            known: zeros(),
            reserved: zeros(),
            confirmed: zeros(),
            confirmed_ms: zeros(),
            begun: Stopwatch::start(),
            lost: Mutex::default(),
            is_lost: (0..partitions).map(|_| AtomicBool::new(lost)).collect(),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn is_lost(&self, partition: u16) -> bool {
        self.is_lost[usize::from(partition)].load(Ordering::Acquire)
    }

    pub(super) fn lost(&self) -> BTreeMap<u16, String> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A position the log of a partition cannot be before.
    pub(super) fn known(&self, partition: u16) -> u64 {
        self.known[usize::from(partition)].load(Ordering::Acquire)
    }

    pub(super) fn raise_known(&self, partition: u16, position: u64) {
        if let Some(known) = self.known.get(usize::from(partition)) {
            known.fetch_max(position, Ordering::AcqRel);
        }
    }

    /// How many payments were reserved in a partition at least.
    pub(super) fn reserved(&self, partition: u16) -> u64 {
        self.reserved[usize::from(partition)].load(Ordering::Acquire)
    }

    pub(super) fn raise_reserved(&self, partition: u16, count: u64) {
        self.reserved[usize::from(partition)].fetch_max(count, Ordering::AcqRel);
    }

    /// A call of this process whose change a partition must remember.
    pub(super) fn confirmed(&self, partition: u16) -> u64 {
        let place = usize::from(partition);
        let at = Duration::from_millis(self.confirmed_ms[place].load(Ordering::Acquire));
        let is_kept = self.begun.elapsed().saturating_sub(at) < CHANGE_KEPT;
        if is_kept { self.confirmed[place].load(Ordering::Acquire) } else { 0 }
    }

    pub(super) fn confirm(&self, partition: u16, call: u64) {
        let place = usize::from(partition);
        let at = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        if self.confirmed[place].fetch_max(call, Ordering::AcqRel) < call {
            self.confirmed_ms[place].fetch_max(at, Ordering::AcqRel);
        }
    }

    /// Whether a partition in this state is the one of which `known` was known when it was asked.
    /// If not, it is lost.
    pub(super) fn is_right(&self, partition: u16, known: u64, state: &PartitionState) -> bool {
        let right = *self.name == *state.epoch && state.seq >= known && !state.torn;
        if !right {
            self.lose(partition, state);
        }
        right
    }

    /// The state of a partition is not the one that was there.
    pub(super) fn lose(&self, partition: u16, state: &PartitionState) {
        let (known, PartitionState { epoch: found, seq, torn }) = (self.known(partition), state);
        if **found != *self.name {
            self.lose_for(
                partition,
                match &**found {
                    "" => format!("Redis has lost partition {partition}: it is empty"),
                    _ => {
                        let name = &self.name;
                        format!("partition {partition} in Redis is of epoch {found}, not of {name}")
                    }
                },
            );
        } else if *torn {
            self.lose_for(
                partition,
                format!(
                    "Redis has carried out a call in part: partition {partition} is not to be \
                     trusted. After a crash its append-only file ended within a call"
                ),
            );
        } else if *seq < known {
            self.lose_for(
                partition,
                format!(
                    "Redis has gone back: partition {partition} ends at {seq}, but {known} was seen"
                ),
            );
        } else {
            self.lose_for(
                partition,
                format!(
                    "Redis has gone back: partition {partition} has forgotten what this node was \
                     told"
                ),
            );
        }
    }

    /// The payments reserved in a partition are not those that were.
    pub(super) fn lose_payments(&self, partition: u16, found: &str) {
        if found == &*self.name {
            let had = self.reserved(partition);
            self.lose_for(
                partition,
                format!(
                    "Redis has gone back: partition {partition} has forgotten some of {had} payments"
                ),
            );
        } else {
            let state = PartitionState { epoch: found.to_owned(), seq: 0, torn: false };
            self.lose(partition, &state);
        }
    }

    /// Somebody else found out.
    pub(super) fn lose_as_told(&self, partition: u16) {
        let what = format!("Redis has gone back: partition {partition} has forgotten what it said");
        self.lose_for(partition, format!("{what} to another node"));
    }

    fn lose_for(&self, partition: u16, what: String) {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_lost[usize::from(partition)].swap(true, Ordering::AcqRel) {
            tracing::error!("{what}; its sales wait until `qiang audit --repair` was run");
        }
        lost.insert(partition, what);
    }
}

#[cfg(test)]
mod tests {
    use super::{Era, PartitionState};

    fn state(epoch: &str, seq: u64, torn: bool) -> PartitionState {
        PartitionState { epoch: epoch.to_owned(), seq, torn }
    }

    #[test]
    fn positions_of_one_epoch_mean_nothing_in_the_next() {
        let unset = Era::unset(2);
        assert!(unset.is_lost(0));
        unset.raise_known(1, 7);
        let first = unset.next("e1");
        assert_eq!((first.known(1), first.is_lost(1)), (7, false));
        first.raise_known(1, 9);
        assert_eq!(first.next("e1").known(1), 9);
        assert_eq!(first.next("e2").known(1), 0);
    }

    #[test]
    fn why_a_partition_is_lost_is_said() {
        let era = Era::unset(2).next("e1");
        era.raise_known(0, 9);
        // The log went on while it was asked.
        assert!(era.is_right(0, 7, &state("e1", 8, false)) && era.lost().is_empty());
        assert!(era.is_right(0, 9, &state("e1", 9, false)) && era.lost().is_empty());
        for (state, why) in [
            (state("", 0, false), "is empty"),
            (state("e2", 20, false), "epoch e2"),
            (state("e1", 8, false), "ends at 8"),
            (state("e1", 9, true), "in part"),
        ] {
            assert!(!era.is_right(0, 9, &state));
            assert!(era.lost()[&0].contains(why), "{:?}", era.lost());
        }
        assert!(era.is_lost(0) && !era.is_lost(1));
    }
}
