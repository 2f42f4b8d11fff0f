//! What became of the claims of each sale, counted where they are decided, for the report of the sale.
//!
//! A claim pays for this with a short look into a table of fixed size and one addition to an atomic
//! number: nothing is allocated, nothing waits, nothing is locked. Threads have parts of their own, so
//! that they do not fight over a cache line. A worker empties the table once a second.
//!
//! The table holds the sales that had claims in the last minute. If there are more than it has room for,
//! the claims of those without a place are counted all together (`qiang_claims_uncounted_total`).

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use prometheus_client::metrics::counter::Counter;
use qiang_core::PoolId;

use crate::metrics::CLAIM_OUTCOMES;

/// Parts of the table; a thread keeps to one.
const PARTS: usize = 8;
/// Sales that a part has room for.
const PLACES: usize = 256;
/// How far from its first choice a sale may get a place.
const REACH: usize = 16;
/// A sale without claims for so many drains gives up its place.
const IDLE_DRAINS: u8 = 60;
/// Set in the id of a sale that gives up its place. Whoever has just found it may still count there, until
/// the next drain takes what is left. Ids have 63 bits.
const LEAVING: u64 = 1 << 63;

/// The claims of one sale. Two cache lines, shared with no other sale.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Place {
    /// The sale's id; 0 is nobody's.
    sale: AtomicU64,
    counts: [AtomicU64; CLAIM_OUTCOMES.len()],
}

/// The table.
#[derive(Debug)]
pub struct Outcomes {
    places: Box<[Place]>,
    /// Claims of sales for which there was no place.
    pub uncounted: Counter,
}

/// Whether a sale that has no place gets one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Newcomer {
    /// It does.
    Welcome,
    /// It does not: perhaps it does not exist.
    TurnedAway,
}

/// What the one who drains the table remembers of it: for how long each place was idle.
#[derive(Debug)]
pub struct Drainer {
    idle: Box<[u8]>,
}

/// What was counted of a sale since the last drain, by [`CLAIM_OUTCOMES`].
pub type Counts = [u64; CLAIM_OUTCOMES.len()];

impl Default for Drainer {
    fn default() -> Self {
        Self { idle: vec![0; PARTS * PLACES].into() }
    }
}

impl Default for Outcomes {
    fn default() -> Self {
        let places = (0..PARTS * PLACES).map(|_| Place::default()).collect();
        Self { places, uncounted: Counter::default() }
    }
}

impl Outcomes {
    /// Counts a claim, by the place of its outcome in [`CLAIM_OUTCOMES`].
    pub fn count(&self, sale: PoolId, outcome: usize, newcomer: Newcomer) {
        let id = sale.get();
        let part = self.part();
        let first = first_choice(id);
        for step in 0..REACH {
            let place = &part[(first + step) % PLACES];
            let mut found = place.sale.load(Ordering::Relaxed);
            if found == 0 && newcomer == Newcomer::Welcome {
                let order = (Ordering::Relaxed, Ordering::Relaxed);
                found = match place.sale.compare_exchange(0, id, order.0, order.1) {
                    Ok(_) => id,
                    Err(taken) => taken,
                };
            }
            if found == id {
                place.counts[outcome].fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
        if newcomer == Newcomer::Welcome {
            self.uncounted.inc();
        }
    }

    /// Takes everything that was counted. A sale may be told of several times. Only one may drain.
    pub fn drain(&self, drainer: &mut Drainer, mut tell: impl FnMut(PoolId, &Counts)) {
        for (place, idle) in self.places.iter().zip(&mut drainer.idle) {
            let found = place.sale.load(Ordering::Relaxed);
            let Some(sale) = PoolId::new(found & !LEAVING) else { continue };
            let counts: Counts =
                std::array::from_fn(|outcome| place.counts[outcome].swap(0, Ordering::Relaxed));
            if counts.iter().any(|count| *count > 0) {
                tell(sale, &counts);
                *idle = 0;
            }
            if found & LEAVING != 0 {
                place.sale.store(0, Ordering::Relaxed);
                *idle = 0;
            } else if *idle >= IDLE_DRAINS {
                place.sale.store(found | LEAVING, Ordering::Relaxed);
            } else {
                *idle += 1;
            }
        }
    }

    /// The part of the table that this thread keeps to.
    fn part(&self) -> &[Place] {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static PART: usize = THREADS.fetch_add(1, Ordering::Relaxed) % PARTS;
        }
        let from = PART.with(|part| *part) * PLACES;
        &self.places[from..from + PLACES]
    }
}

/// Ids in a row get places in a row, and ids that were made are spread. A part has as many places as a
/// byte has values.
fn first_choice(id: u64) -> usize {
    usize::from((id ^ (id >> 22)).to_le_bytes()[0]) % PLACES
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn sale(id: u64) -> PoolId {
        PoolId::new(id).expect("positive")
    }

    /// Everything counted since the last time, by sale and outcome.
    fn drained(table: &Outcomes, drainer: &mut Drainer) -> HashMap<(u64, usize), u64> {
        let mut all = HashMap::new();
        table.drain(drainer, |sale, counts| {
            for (outcome, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                *all.entry((sale.get(), outcome)).or_default() += count;
            }
        });
        all
    }

    #[test]
    fn every_claim_is_counted_once_also_by_many_threads() {
        const THREADS: usize = 12;
        const CLAIMS: u64 = 20_000;
        let (table, mut drainer) = (Outcomes::default(), Drainer::default());
        let mut all: HashMap<(u64, usize), u64> = HashMap::new();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|_| {
                    scope.spawn(|| {
                        for claim in 0..CLAIMS {
                            let outcome = usize::try_from(claim % 5).expect("small");
                            let id = 1 + claim % 3;
                            table.count(sale(id), outcome, Newcomer::Welcome);
                        }
                    })
                })
                .collect();
            while threads.iter().any(|thread| !thread.is_finished()) {
                for (key, count) in drained(&table, &mut drainer) {
                    *all.entry(key).or_default() += count;
                }
            }
        });
        for (key, count) in drained(&table, &mut drainer) {
            *all.entry(key).or_default() += count;
        }
        assert_eq!(all.values().sum::<u64>(), THREADS as u64 * CLAIMS);
        let of_one: u64 = all.iter().filter(|((id, _), _)| *id == 2).map(|(_, count)| count).sum();
        assert_eq!(
            of_one,
            THREADS as u64 * (0..CLAIMS).filter(|claim| claim % 3 == 1).count() as u64
        );
        assert_eq!(table.uncounted.get(), 0);
    }

    #[test]
    fn a_sale_nobody_knows_gets_no_place() {
        let (table, mut drainer) = (Outcomes::default(), Drainer::default());
        table.count(sale(1), 0, Newcomer::TurnedAway);
        assert_eq!(drained(&table, &mut drainer), HashMap::new());
        table.count(sale(1), 0, Newcomer::Welcome);
        table.count(sale(1), 9, Newcomer::TurnedAway);
        assert_eq!(drained(&table, &mut drainer), HashMap::from([((1, 0), 1), ((1, 9), 1)]));
    }

    #[test]
    fn a_full_table_counts_the_rest_together_and_empties_with_time() {
        let (table, mut drainer) = (Outcomes::default(), Drainer::default());
        let many = 2 * PLACES as u64;
        (1..=many).for_each(|id| table.count(sale(id), 0, Newcomer::Welcome));
        let counted = drained(&table, &mut drainer).len() as u64;
        assert_eq!((counted, table.uncounted.get()), (PLACES as u64, many - counted));
        for _ in 0..=IDLE_DRAINS {
            assert_eq!(drained(&table, &mut drainer), HashMap::new());
        }
        drained(&table, &mut drainer);
        (many..2 * many).for_each(|id| table.count(sale(id), 0, Newcomer::Welcome));
        assert_eq!(drained(&table, &mut drainer).len(), PLACES);
    }

    #[test]
    fn what_is_counted_while_a_sale_leaves_is_not_lost() {
        let (table, mut drainer) = (Outcomes::default(), Drainer::default());
        table.count(sale(1), 0, Newcomer::Welcome);
        for _ in 0..=IDLE_DRAINS {
            drained(&table, &mut drainer);
        }
        // It is leaving now: it gets another place, and whoever had found the old one counts there.
        table.count(sale(1), 0, Newcomer::Welcome);
        let leaving =
            table.places.iter().find(|place| place.sale.load(Ordering::Relaxed) & LEAVING != 0);
        leaving.expect("one").counts[0].fetch_add(1, Ordering::Relaxed);
        assert_eq!(drained(&table, &mut drainer), HashMap::from([((1, 0), 2)]));
    }
}
