//! Takes the samples of this process, and shares them with the others.
//!
//! Three workers, each of which may be slow without holding up another: one reads counters each second,
//! one asks the engine for stock and lag, one tells the others through the database and hears them. Of
//! several processes only the one with the lowest number asks the engine.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use qiang_app::App;
use qiang_app::nodes::in_time;
use qiang_app::workers::{Turn, Workers};
use qiang_core::{Kind, PoolId, PoolView, Timestamp};
use tokio::sync::watch;

use super::reading::{Part, Reading, Seen};
use super::ring::Ring;
use super::{Sample, Stock};

/// The pause behind each turn; the next turn waits for the next second besides.
const BRIEFLY: Duration = Duration::from_millis(50);
const SECOND: Duration = Duration::from_secs(1);
/// Seconds that others have for telling us what they saw.
const SETTLE: i64 = 2;
/// Seconds that a process tells again and again, so that a lost exchange loses none.
const TOLD: usize = 4;
/// Sales whose stock is followed.
const MAX_SALES: usize = 8;
/// Sales among which those that run are looked for: the newest.
const MAX_LISTED: usize = 50;
/// A sale is followed before it opens, so that its first second is there.
const BEFORE_OPENING_MS: u64 = 15_000;
/// Turns between two looks at the list of a shared engine, where each sale listed is a question.
const LIST_EVERY: u32 = 5;

/// Takes, keeps and shares the samples of a process.
#[derive(Debug)]
pub(crate) struct Sampler {
    app: Arc<App>,
    ring: Mutex<Ring>,
    before: Mutex<Reading>,
    /// What the engine said since the last sample.
    seen: Mutex<Option<Seen>>,
    /// The sales whose stock is followed.
    followed: Mutex<Vec<PoolId>>,
    looked: AtomicU32,
    /// The last seconds of this process, for the others.
    told: Mutex<VecDeque<Part>>,
    /// How far the clock of the database is ahead of ours.
    ahead_ms: AtomicI64,
    /// Whether this process asks the engine.
    looks: AtomicBool,
    /// The last second, written as a message.
    news: watch::Sender<Bytes>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sampler {
    pub(crate) fn new(app: Arc<App>) -> Self {
        // From the start on, so that the first second counts like any other.
        let before = Mutex::new(Reading::of(&app));
        Self {
            app,
            ring: Mutex::default(),
            before,
            seen: Mutex::default(),
            followed: Mutex::default(),
            looked: AtomicU32::new(0),
            told: Mutex::default(),
            ahead_ms: AtomicI64::new(0),
            looks: AtomicBool::new(true),
            news: watch::Sender::new(Bytes::new()),
        }
    }

    /// Begins to take samples.
    pub(crate) fn start(self: &Arc<Self>, workers: &mut Workers) {
        let own = Arc::clone(self);
        workers.every("samples", BRIEFLY, move || Arc::clone(&own).next());
        let own = Arc::clone(self);
        workers.every("stock samples", SECOND, move || Arc::clone(&own).look_at_engine());
        if self.app.engine.is_shared() {
            let own = Arc::clone(self);
            workers.every("sample exchange", SECOND, move || Arc::clone(&own).exchange());
        }
    }

    /// The samples behind a time.
    pub(super) fn after(&self, after: Timestamp) -> Vec<Sample> {
        lock(&self.ring).after(after)
    }

    /// What comes from now on.
    pub(super) fn watch(&self) -> watch::Receiver<Bytes> {
        self.news.subscribe()
    }

    /// The time by the clock that all processes label their seconds with.
    fn now_ms(&self) -> i64 {
        self.app.now().millis().saturating_add(self.ahead_ms.load(Ordering::Relaxed))
    }

    /// Waits for the end of this second and takes its sample.
    async fn next(self: Arc<Self>) -> Turn {
        let into = u64::try_from(self.now_ms().rem_euclid(1000)).unwrap_or(0);
        tokio::time::sleep(Duration::from_millis(1000 - into)).await;
        self.take();
        Ok(())
    }

    /// Adds the second that has just ended.
    fn take(&self) {
        // A timer may be a moment early.
        let second = (self.now_ms() + 500).div_euclid(1000);
        let is_shared = self.app.engine.is_shared();
        if !lock(&self.ring).is_open(if is_shared { second - SETTLE } else { second }) {
            return;
        }
        let reading = Reading::of(&self.app);
        let mut before = lock(&self.before);
        let seen = lock(&self.seen).take();
        let part = reading.since(&before, second, seen);
        *before = reading;
        drop(before);
        let mut ring = lock(&self.ring);
        if is_shared {
            let mut told = lock(&self.told);
            told.push_back(part.clone());
            if told.len() > TOLD {
                told.pop_front();
            }
        }
        ring.add(self.app.node.number(), part);
        let ended = ring.end(if is_shared { second - SETTLE } else { second });
        drop(ring);
        if let Some(last) = ended.last() {
            let json = serde_json::to_string(last).expect("a sample is JSON");
            self.news.send_replace(format!("data: {json}\n\n").into());
        }
    }

    /// Asks the engine what is left, and how far the records are behind. An engine that says nothing
    /// is told of elsewhere; here the figures are missing.
    async fn look_at_engine(self: Arc<Self>) -> Turn {
        if self.looks.load(Ordering::Relaxed) {
            let seen = tokio::time::timeout(SECOND, self.see()).await.ok().flatten();
            *lock(&self.seen) = seen;
        }
        Ok(())
    }

    async fn see(&self) -> Option<Seen> {
        let engine = &self.app.engine;
        let recorded = self.app.projection.positions();
        let ends = engine.positions().await.ok()?;
        let lag_events = ends.iter().zip(&recorded).map(|(end, at)| end.saturating_sub(*at)).sum();
        let turn = self.looked.fetch_add(1, Ordering::Relaxed);
        let mut sales: Vec<PoolView> = Vec::new();
        if !engine.is_shared() || turn.is_multiple_of(LIST_EVERY) {
            sales = engine.pools(Kind::Sale, None, MAX_LISTED).await.ok()?;
            let now = self.app.now();
            sales.retain(|sale| runs(sale, now));
            sales.truncate(MAX_SALES);
            *lock(&self.followed) = sales.iter().map(|sale| sale.id).collect();
        } else {
            let followed = lock(&self.followed).clone();
            for id in followed {
                sales.extend(engine.pool(id).await.ok()?);
            }
        }
        Some(Seen { lag_events, sales: sales.iter().map(stock).collect() })
    }

    /// Tells the others what this process saw, and hears what they did.
    async fn exchange(self: Arc<Self>) -> Turn {
        let own = self.app.node.number();
        let body = serde_json::to_string(&*lock(&self.told)).expect("parts are JSON");
        let began = self.app.now();
        let heard = in_time(self.app.store.exchange_samples(own, &body)).await;
        let Ok(heard) = heard else {
            // Whoever is alone looks for itself. That the database is away is told elsewhere.
            self.looks.store(true, Ordering::Relaxed);
            return Ok(());
        };
        let half_way = began.millis().midpoint(self.app.now().millis());
        self.ahead_ms.store(heard.now_ms.saturating_sub(half_way), Ordering::Relaxed);
        let first = heard.nodes.first().is_none_or(|(node, _)| *node >= own);
        self.looks.store(first, Ordering::Relaxed);
        for (node, body) in heard.nodes.iter().filter(|(node, _)| *node != own) {
            // A process of another version may say what this one cannot read.
            let parts: Vec<Part> = serde_json::from_str(body).unwrap_or_default();
            let mut ring = lock(&self.ring);
            parts.into_iter().take(TOLD).for_each(|part| ring.add(*node, part));
        }
        Ok(())
    }
}

/// Whether a sale runs, or is about to.
fn runs(sale: &PoolView, now: Timestamp) -> bool {
    let is_over = sale.terms.closes_at.is_some_and(|end| end <= now);
    let ahead = sale.terms.opens_at > now.plus_millis(BEFORE_OPENING_MS);
    !sale.cleared && sale.closed_at.is_none() && !is_over && !ahead
}

fn stock(sale: &PoolView) -> Stock {
    Stock {
        sale_id: sale.id.to_string(),
        available: sale.available,
        held: sale.tally.held,
        ordered: sale.tally.ordered,
        paid: sale.tally.paid,
    }
}
