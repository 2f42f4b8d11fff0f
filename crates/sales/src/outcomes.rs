//! Carries what was counted of the claims of each sale ([`qiang_app::outcomes`]) into the records, once a
//! second, so that a report can say who was refused why.
//!
//! The time of a sale is cut into parts: seconds around its opening, longer ones later, so that the rows
//! of a sale are bounded however long it runs. While the database is away nothing is taken out of the
//! table; what is counted meanwhile is added later, to the part of that time.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use qiang_app::App;
use qiang_app::metrics::CLAIM_OUTCOMES;
use qiang_app::outcomes::{Counts, Drainer};
use qiang_app::workers::Failure;
use qiang_core::{PoolId, Timestamp};
use qiang_store::Counted;
use tokio::sync::Mutex;

const SECOND_MS: i64 = 1_000;
const MINUTE_MS: i64 = 60 * SECOND_MS;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;
/// Up to which distance from the opening the parts have which length: at most 1,200 of a second, 1,320 of
/// ten, 1,104 of five minutes and 2,784 of an hour; then days.
const PARTS: [(i64, i64); 5] = [
    (10 * MINUTE_MS, SECOND_MS),
    (2 * HOUR_MS, 10 * SECOND_MS),
    (2 * DAY_MS, 5 * MINUTE_MS),
    (60 * DAY_MS, HOUR_MS),
    (i64::MAX, DAY_MS),
];
/// How often it is written.
pub(crate) const WRITE_EVERY: Duration = Duration::from_secs(1);
/// How long a process that stops waits until its last answers are written.
pub(crate) const LAST_PATIENCE: Duration = Duration::from_secs(5);
/// Openings that are remembered.
const MAX_REMEMBERED: usize = 4_096;

/// Writes what this process counts.
#[derive(Debug, Default)]
pub(crate) struct Writer(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    drainer: Drainer,
    /// Taken from the table, and about when it was counted.
    taken: BTreeMap<PoolId, Counts>,
    at: Timestamp,
    /// When the table was emptied last.
    taken_at: Timestamp,
    /// Being written, under this number. It stays until it is known to be written.
    pending: Vec<Counted>,
    seq: u64,
    openings: HashMap<PoolId, Timestamp>,
}

impl Writer {
    /// Writes everything counted until now. If that fails, nothing is lost, and it may have happened.
    pub(crate) async fn write(&self, app: &App) -> Result<(), Failure> {
        let mut state = self.0.lock().await;
        if state.pending.is_empty() {
            state.take(app);
            state.prepare(app).await?;
        }
        if !state.pending.is_empty() {
            app.store.add_outcomes(app.node.owner(), state.seq, &state.pending).await?;
            state.pending.clear();
        }
        Ok(())
    }
}

impl State {
    fn take(&mut self, app: &App) {
        if !self.taken.is_empty() {
            return;
        }
        let Self { drainer, taken, .. } = self;
        app.outcomes.drain(drainer, |sale, counts| {
            let all = taken.entry(sale).or_default();
            all.iter_mut().zip(counts).for_each(|(all, count)| *all += count);
        });
        // It was counted since the last time: on average half of that ago.
        let now = app.now();
        let since = now.millis().saturating_sub(self.taken_at.millis()).max(0);
        self.at = Timestamp::from_millis(now.millis() - (since / 2).min(SECOND_MS / 2));
        self.taken_at = now;
    }

    /// Turns what was taken into rows. A sale that nobody knows any more has none.
    async fn prepare(&mut self, app: &App) -> Result<(), Failure> {
        for sale in self.taken.keys().copied().collect::<Vec<_>>() {
            if !self.openings.contains_key(&sale) {
                match opening(app, sale).await? {
                    Some(opens_at) => {
                        if self.openings.len() >= MAX_REMEMBERED {
                            self.openings.clear();
                        }
                        self.openings.insert(sale, opens_at);
                    }
                    None => drop(self.taken.remove(&sale)),
                }
            }
        }
        for (sale, counts) in std::mem::take(&mut self.taken) {
            let Some(opens_at) = self.openings.get(&sale) else { continue };
            let named = CLAIM_OUTCOMES.iter().zip(counts).filter(|(_, times)| *times > 0);
            self.pending.extend(named.map(|(outcome, times)| {
                // Only one answer is given before the opening, and our time is not exact.
                let early = *outcome == "not_open_yet";
                let counted_at = if early { self.at } else { self.at.max(*opens_at) };
                let (at, covers_ms) = part(*opens_at, counted_at);
                Counted { sale, at, outcome: (*outcome).to_owned(), covers_ms, times }
            }));
        }
        self.seq += u64::from(!self.pending.is_empty());
        Ok(())
    }
}

/// When a sale opens, from the engine, or from the records once it was cleared.
async fn opening(app: &App, sale: PoolId) -> Result<Option<Timestamp>, Failure> {
    if let Some(pool) = app.engine.pool_state(sale).await? {
        return Ok(Some(pool.terms.opens_at));
    }
    Ok(app.store.sale(sale).await?.map(|sale| sale.terms.opens_at))
}

/// The part of a sale's time that a moment belongs to: when it begins, and how long it is.
fn part(opens_at: Timestamp, at: Timestamp) -> (Timestamp, u64) {
    let since = at.millis().saturating_sub(opens_at.millis());
    // The moment before the opening is as near to it as the moment of it.
    let distance = if since < 0 { -(since + 1) } else { since };
    let found = PARTS.iter().find(|(until, _)| distance < *until);
    let length = found.map_or(DAY_MS, |(_, length)| *length);
    let begins = opens_at.millis().saturating_add(since.div_euclid(length) * length);
    (Timestamp::from_millis(begins), length.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_grow_with_the_distance_from_the_opening_and_never_overlap() {
        let opens_at = Timestamp::from_millis(1_800_000_000_123);
        let of = |since: i64| {
            let at = Timestamp::from_millis(opens_at.millis() + since);
            let (begins, length) = part(opens_at, at);
            (begins.millis() - opens_at.millis(), i64::try_from(length).expect("short"))
        };
        for (since, begins, length) in [
            (0, 0, SECOND_MS),
            (999, 0, SECOND_MS),
            (1_000, 1_000, SECOND_MS),
            (-1, -1_000, SECOND_MS),
            (-1_001, -2_000, SECOND_MS),
            (10 * MINUTE_MS - 1, 10 * MINUTE_MS - 1_000, SECOND_MS),
            (10 * MINUTE_MS, 10 * MINUTE_MS, 10 * SECOND_MS),
            (-10 * MINUTE_MS, -10 * MINUTE_MS, SECOND_MS),
            (-10 * MINUTE_MS - 1, -10 * MINUTE_MS - 10_000, 10 * SECOND_MS),
            (3 * HOUR_MS + 1, 3 * HOUR_MS, 5 * MINUTE_MS),
            (3 * DAY_MS + 1, 3 * DAY_MS, HOUR_MS),
            (400 * DAY_MS + 1, 400 * DAY_MS, DAY_MS),
        ] {
            assert_eq!(of(since), (begins, length), "{since}");
        }
        // Every moment lies in its part, and parts that begin at the same time are the same.
        let mut lengths = HashMap::new();
        for since in (-3 * HOUR_MS..3 * HOUR_MS).step_by(487) {
            let (begins, length) = of(since);
            assert!((begins..begins + length).contains(&since), "{since}");
            assert_eq!(*lengths.entry(begins).or_insert(length), length, "{since}");
        }
    }
}
