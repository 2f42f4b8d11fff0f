//! The engine for a shop that has only a database: all state is in tables, and every command is a
//! transaction.
//!
//! Pools are spread over partitions. A transaction locks its partition's row first, so what
//! happens in a partition happens in one order, on however many nodes; it releases what is
//! overdue in its pools, reads what the commands need, decides with the rules of `qiang-core`,
//! writes what changed with guarded statements, and appends the events to the partition's log.
//! An answer is given when all of that is committed. Those who wait for one partition share a
//! transaction.
//!
//! It is exact, and slower than the others: each decision is several trips to the database, and
//! everybody who wants the same pool waits for the same row.

mod batch;
mod decide;
mod excerpt;
mod fault;
mod load;
mod log;
mod queue;
mod rows;
mod schema;
mod sweep;
mod tables;
mod write;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use qiang_core::decide::Facts;
use qiang_core::{
    Claim, ClaimId, Command, Kind, Opened, PoolId, PoolState, PoolView, Refund, Reply, Terms,
    Timestamp,
};
use qiang_sql::{Database, Listed, MAX_ITEMS, Row, sql};
use tokio::sync::watch;

use self::excerpt::Excerpt;
use self::fault::Fault;
use self::load::{TermsCache, id};
use self::queue::{Job, Queue, Task, Waiting};
use self::rows::Fields;
use self::tables::{CLAIMS, PAYMENTS, POOLS, TERMS};
use crate::engine::assert_terms_are_sound;
use crate::{Clock, Error, Stats, chain};

pub use self::schema::OpenError;

/// Claims that are looked at to find the pools they are in.
const OVERDUE_AT_ONCE: u32 = 512;
/// How often a look is taken again because claims ran out meanwhile.
const MAX_LOOKS: u32 = 3;

static OVERDUE: Listed = Listed::over(
    &[],
    "SELECT pool_id FROM engine_claims WHERE pool_id IN ({list}) AND due <= ? LIMIT ?",
);

/// How an engine on a database is set up.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Partitions to begin with; a database that has some keeps its own number. What is in one
    /// partition waits for one another. A SQLite file has one writer: more than 1 gains nothing.
    pub partitions: u16,
    /// Commands that may wait; one more is refused.
    pub queue: usize,
    /// How long a command may wait for the database before it is given up.
    pub patience: Duration,
    /// How often deadlines are looked at while nobody asks for anything.
    pub tick: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            partitions: 16,
            queue: 4_096,
            patience: Duration::from_secs(10),
            tick: Duration::from_millis(500),
        }
    }
}

/// A handle to the engine; all clones are the same engine. Others may work on the same database.
#[derive(Debug, Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    database: Database,
    options: Options,
    clock: Arc<dyn Clock>,
    /// The latest time that the clock has shown.
    latest: AtomicI64,
    /// Names this engine among all that were ever opened on the database.
    caller: i64,
    /// One for each partition.
    queues: Box<[Queue]>,
    terms: TermsCache,
    waiting: Arc<AtomicUsize>,
    stats: Stats,
    /// Counts the commits of this process.
    durable: watch::Sender<u64>,
    /// Lanes that are being served.
    serving: watch::Sender<usize>,
    closed: AtomicBool,
    ended: watch::Sender<bool>,
}

impl Engine {
    /// Opens the database behind a URL, as [`Engine::open`] wants it.
    pub async fn open_url(
        url: &str,
        options: Options,
        clock: impl Clock,
    ) -> Result<Self, OpenError> {
        Self::open(Database::open(url).await?, options, clock).await
    }

    /// Brings the tables into shape, releases what ran out meanwhile, and starts.
    pub async fn open(
        database: Database,
        options: Options,
        clock: impl Clock,
    ) -> Result<Self, OpenError> {
        let clock: Arc<dyn Clock> = Arc::new(clock);
        let schema::Entered { caller, partitions } =
            schema::enter(&database, options.partitions, clock.now()).await?;
        let shared = Arc::new(Shared {
            database,
            options,
            clock,
            latest: AtomicI64::new(i64::MIN),
            caller,
            queues: (0..partitions).map(|_| Queue::default()).collect(),
            terms: TermsCache::default(),
            waiting: Arc::default(),
            stats: Stats::default(),
            durable: watch::Sender::new(0),
            serving: watch::Sender::new(0),
            closed: AtomicBool::new(false),
            ended: watch::Sender::new(false),
        });
        let engine = Self { shared };
        engine.expire_due().await?;
        tokio::spawn(sweep::tick(Arc::downgrade(&engine.shared)));
        Ok(engine)
    }

    /// Decides a command.
    pub async fn ask(&self, command: Command) -> Result<Reply, Error> {
        assert_terms_are_sound(&command);
        self.shared.ask(command).await
    }

    /// A pool as it is now.
    pub async fn pool(&self, id: PoolId) -> Result<Option<PoolView>, Error> {
        Ok(self.shared.look(id).await?.map(|pool| pool.view()))
    }

    /// A pool as its last change left it.
    pub async fn pool_state(&self, id: PoolId) -> Result<Option<PoolState>, Error> {
        Ok(self.shared.look(id).await?.map(|pool| pool.state))
    }

    /// Pools of a kind that were opened before `before`, newest first, at most `max`.
    pub async fn pools(
        &self,
        kind: Kind,
        before: Option<Opened>,
        max: usize,
    ) -> Result<Vec<PoolView>, Error> {
        self.expire_due().await?;
        let excerpts = self.shared.newest(kind, before, max).await.map_err(told)?;
        Ok(excerpts.iter().map(Facts::view).collect())
    }

    /// A claim as it is now.
    pub async fn claim_view(&self, id: ClaimId) -> Result<Option<Claim>, Error> {
        let claims = self.claims(id.pool, id.number.saturating_sub(1), 1).await?;
        Ok(claims.into_iter().find(|claim| claim.id == id))
    }

    /// Claims of a pool behind number `after`, at most `max`.
    pub async fn claims(&self, pool: PoolId, after: u32, max: u32) -> Result<Vec<Claim>, Error> {
        match self.shared.look(pool).await? {
            Some(excerpt) if !excerpt.is_cleared() => {
                let kind = excerpt.state.terms.kind;
                self.shared.claims(pool, kind, after, max).await.map_err(told)
            }
            Some(_) | None => Ok(Vec::new()),
        }
    }

    /// Refunds of a pool from place `from` on, at most `max`, each with its place.
    pub async fn refunds(
        &self,
        pool: PoolId,
        from: usize,
        max: usize,
    ) -> Result<Vec<(usize, Refund)>, Error> {
        self.shared.refunds(pool, from, max).await.map_err(told)
    }

    /// Looks at the clock: when this returns, everything overdue is released, in all pools.
    pub async fn expire_due(&self) -> Result<(), Error> {
        loop {
            let pools = self.shared.overdue_pools().await.map_err(told)?;
            if pools.is_empty() {
                return Ok(());
            }
            // All at once, so that those of one partition share a transaction.
            let submit = |pool| self.shared.submit(Task::Expire(pool), usize::MAX);
            let released: Vec<_> = pools.into_iter().map(submit).collect();
            for released in released {
                released?.await.unwrap_or(Err(Error::Unavailable))?;
            }
        }
    }

    /// Rises whenever this process has made something durable. Others may do so too.
    #[must_use]
    pub fn durable(&self) -> watch::Receiver<u64> {
        self.shared.durable.subscribe()
    }

    /// What the engine counts about itself.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.shared.stats
    }

    /// How many wait for an answer.
    #[must_use]
    pub fn queue_depth(&self) -> usize {
        self.shared.waiting.load(Ordering::Relaxed)
    }

    /// Returns when the engine was shut down.
    pub async fn ended(&self) {
        let mut ended = self.shared.ended.subscribe();
        // The sender lives as long as `self`.
        let _gone = ended.wait_for(|ended| *ended).await;
    }

    /// Takes nothing more, and returns when everything taken is answered.
    pub async fn shut_down(&self) {
        self.shared.closed.store(true, Ordering::Release);
        let mut serving = self.shared.serving.subscribe();
        let _gone = serving.wait_for(|queues| *queues == 0).await;
        self.shared.ended.send_replace(true);
    }
}

impl Shared {
    /// The time as this process has seen it, which never goes back.
    fn now(&self) -> Timestamp {
        let shown = self.clock.now().millis();
        Timestamp::from_millis(self.latest.fetch_max(shown, Ordering::SeqCst).max(shown))
    }

    async fn ask(self: &Arc<Self>, command: Command) -> Result<Reply, Error> {
        let answer = self.submit(Task::Command(command), self.options.queue);
        if answer.as_ref().is_err_and(|error| *error == Error::Overloaded) {
            self.stats.overloaded.fetch_add(1, Ordering::Relaxed);
        }
        let reply = answer?.await.unwrap_or(Err(Error::Unavailable))?;
        Ok(reply.expect("a command has a reply"))
    }

    /// Puts a task in the queue, unless `max` wait already, and sees to it that somebody serves it.
    fn submit(
        self: &Arc<Self>,
        task: Task,
        max: usize,
    ) -> Result<tokio::sync::oneshot::Receiver<queue::Answer>, Error> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Unavailable);
        }
        let place = Waiting::take(&self.waiting, max).ok_or(Error::Overloaded)?;
        let (job, answer) = Job::new(task, place);
        let partition = self.partition_of(job.pool());
        if self.queues[usize::from(partition)].join(job) {
            self.serving.send_modify(|queues| *queues += 1);
            let shared = Arc::clone(self);
            tokio::spawn(async move { shared.serve(partition).await });
        }
        Ok(answer)
    }

    /// A pool as it is, with nothing overdue in it.
    async fn look(self: &Arc<Self>, pool: PoolId) -> Result<Option<Excerpt>, Error> {
        for _ in 0..MAX_LOOKS {
            let found = self.read_pool(pool).await.map_err(told)?;
            let Some((excerpt, overdue)) = found else { return Ok(None) };
            if !overdue {
                return Ok(Some(excerpt));
            }
            let released = self.submit(Task::Expire(pool), usize::MAX)?;
            released.await.unwrap_or(Err(Error::Unavailable))?;
        }
        let found = self.read_pool(pool).await.map_err(told)?;
        Ok(found.map(|(excerpt, _)| excerpt))
    }

    /// A pool as it lies in the tables, and whether something in it is overdue.
    async fn read_pool(&self, pool: PoolId) -> Result<Option<(Excerpt, bool)>, Fault> {
        let found = self
            .database
            .fetch_all(
                sql!(
                    [POOLS] "SELECT {engine_pools}, place,
                                EXISTS (SELECT 1 FROM engine_claims WHERE pool_id = ? AND due <= ?)
                             FROM engine_pools
                             LEFT JOIN engine_portions
                                ON engine_portions.pool_id = engine_pools.id
                                AND engine_portions.claim = 0
                             WHERE engine_pools.id = ? AND to_sweep < 2"
                ),
                &[id(pool), self.now().millis().into(), id(pool)],
            )
            .await?;
        let mut overdue = false;
        let excerpts = self.excerpts(&found, |fields| {
            overdue = fields.int()? != 0;
            Ok(())
        });
        Ok(excerpts.await?.pop().map(|excerpt| (excerpt, overdue)))
    }

    /// Pools out of rows that have the place of a portion behind the columns of the pool: one row
    /// for each portion that came back, or one without. `rest` reads what stands behind that.
    async fn excerpts(
        &self,
        found: &[Row],
        mut rest: impl FnMut(&mut Fields<'_>) -> Result<(), Fault>,
    ) -> Result<Vec<Excerpt>, Fault> {
        let mut excerpts: Vec<Excerpt> = Vec::new();
        for row in found {
            let pool = rows::pool_id(row)?;
            let terms = self.terms_of(pool).await?;
            let mut fields = Fields::of(row);
            let excerpt = rows::pool_of(&mut fields, terms)?;
            if excerpts.last().is_none_or(|last| last.state.id != pool) {
                excerpts.push(excerpt);
            }
            if let (Some(excerpt), Some(place)) = (excerpts.last_mut(), fields.short_or_null()?) {
                excerpt.add_free(place);
            }
            rest(&mut fields)?;
        }
        Ok(excerpts)
    }

    async fn newest(
        &self,
        kind: Kind,
        before: Option<Opened>,
        max: usize,
    ) -> Result<Vec<Excerpt>, Fault> {
        let (at, before) = before
            .map_or((i64::MAX, i64::MAX.into()), |before| (before.at.millis(), id(before.id)));
        let found = self
            .database
            .fetch_all(
                sql!(
                    [POOLS] "SELECT {engine_pools}, place FROM (
                                SELECT {engine_pools} FROM engine_pools
                                WHERE kind = ? AND to_sweep < 2 AND opened_at <= ?
                                    AND (opened_at < ? OR id < ?)
                                ORDER BY opened_at DESC, id DESC LIMIT ?
                             ) engine_pools
                             LEFT JOIN engine_portions
                                ON engine_portions.pool_id = engine_pools.id
                                AND engine_portions.claim = 0
                             ORDER BY engine_pools.opened_at DESC, engine_pools.id DESC"
                ),
                &[kind.as_str().into(), at.into(), at.into(), before, number(max).into()],
            )
            .await?;
        self.excerpts(&found, |_| Ok(())).await
    }

    async fn terms_of(&self, pool: PoolId) -> Result<Arc<Terms>, Fault> {
        if let Some(terms) = self.terms.get(pool) {
            return Ok(terms);
        }
        let opened = sql!([TERMS] "SELECT {engine_terms} FROM engine_terms WHERE pool_id = ?");
        let row = self.database.fetch_optional(opened, &[id(pool)]).await?;
        let row = row.ok_or(Fault::Missing { what: "the rules of a pool" })?;
        let (_, terms) = rows::terms(&row)?;
        self.terms.keep(pool, &terms);
        Ok(terms)
    }

    async fn claims(
        &self,
        pool: PoolId,
        kind: Kind,
        after: u32,
        max: u32,
    ) -> Result<Vec<Claim>, Fault> {
        let found = self
            .database
            .fetch_all(
                sql!(
                    [CLAIMS] "SELECT {engine_claims} FROM engine_claims
                              WHERE pool_id = ? AND number > ? AND number <= ? ORDER BY number"
                ),
                &[id(pool), after.into(), after.saturating_add(max).into()],
            )
            .await?;
        found.iter().map(|row| Ok(rows::claim(row, kind)?.0.claim)).collect()
    }

    async fn refunds(
        &self,
        pool: PoolId,
        from: usize,
        max: usize,
    ) -> Result<Vec<(usize, Refund)>, Fault> {
        let found = self
            .database
            .fetch_all(
                sql!(
                    [PAYMENTS] "SELECT {engine_payments} FROM engine_payments
                                WHERE pool_id = ? AND place >= ? AND claim IS NULL
                                    AND NOT EXISTS (SELECT 1 FROM engine_pools
                                        WHERE id = ? AND to_sweep = 2)
                                ORDER BY place LIMIT ?"
                ),
                &[id(pool), number(from).into(), id(pool), number(max).into()],
            )
            .await?;
        found.iter().map(|row| rows::refund(row, pool)).collect()
    }

    /// All pools in which something is overdue.
    async fn overdue_pools(&self) -> Result<BTreeSet<PoolId>, Fault> {
        let now = self.now();
        let open = sql!("SELECT id FROM engine_pools WHERE held > 0 OR ordered > 0");
        let open = self.database.fetch_all(open, &[]).await?;
        let open = open.iter().map(rows::pool_id).collect::<Result<Vec<_>, _>>()?;
        let mut pools = BTreeSet::new();
        for open in open.chunks(MAX_ITEMS) {
            let ids: Vec<_> = open.iter().map(|pool| id(*pool)).collect();
            let after = [now.millis().into(), OVERDUE_AT_ONCE.into()];
            let (statement, values) = OVERDUE.sized(&[], &ids, &after);
            for row in self.database.fetch_all(statement, &values).await? {
                pools.insert(rows::pool_id(&row)?);
            }
        }
        Ok(pools)
    }

    /// Where a pool belongs; the same on every node, for ever.
    fn partition_of(&self, pool: PoolId) -> u16 {
        let mut mixed = pool.get().wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed ^= mixed >> 32;
        let partition = mixed % self.queues.len() as u64;
        u16::try_from(partition).expect("there are at most 65,535 partitions")
    }
}

/// What the caller hears when reading failed; the rest is logged.
#[expect(clippy::needless_pass_by_value, reason = "it ends here")]
fn told(fault: Fault) -> Error {
    if fault.may_pass() {
        tracing::warn!(error = chain(&fault), "the database could not be read");
    } else {
        tracing::error!(error = chain(&fault), "the tables could not be understood");
    }
    Error::Unavailable
}

/// As a parameter; more than a column can hold is as good as no limit.
fn number(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
