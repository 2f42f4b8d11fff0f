//! The engine on Redis or Valkey, one server or a cluster: the rules run where the state is, as one
//! script, and many processes share it.
//!
//! Pools are spread over partitions. Everything of a partition has one hash tag, so it lies in one
//! slot and a script may touch all of it: stock, quota, claim, deadline, request id and the entry
//! in the partition's log change together or not at all.
//!
//! What survives is what Redis keeps: see `docs/GUARANTEES.md`. A state that is older than what
//! this process, or the records, have seen is never worked on: everything is refused as
//! unavailable until it was repaired.

mod buckets;
mod cell;
mod dues;
mod era;
mod lanes;
mod link;
mod log;
mod money;
mod pack;
mod probe;
mod reading;
mod restore;
mod sold_out;
mod tags;
mod url;
mod wire;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use qiang_core::{
    Claim, ClaimId, ClaimRequest, Command, Kind, Opened, Outcome, PoolId, PoolState, PoolView,
    Refund, Refusal, Reply, Terms, Timestamp, decide,
};
use redis::{Cmd, Script, Value, cmd};
use tokio::sync::Notify;

pub use self::buckets::{Spread, is_in_its_bucket};
pub use self::link::{Failure, TlsError};
pub use self::pack::Unpackable;
pub use self::probe::{Prober, Problem, Trouble};
pub use self::restore::{Goes, PartitionState, PoolRecord, Restore, RestoreError};
pub use self::tags::hash_tag;
pub use self::url::{BadUrl, Place};

use self::cell::{Cell, CellId, Keys, PartitionKeys};
use self::dues::Sweep;
use self::era::Era;
use self::lanes::Lanes;
use self::link::Link;
use self::money::Doing;
use self::sold_out::{Memory, Now};
use self::wire::{Ask, Said};
use crate::cache::Cache;
use crate::engine::assert_terms_are_sound;
use crate::{Clock, Error, Stats, chain};

// A block around each file whose local functions only it calls: Lua allows 200 locals in one function.
static RULES: Code = Code::new(concat!(
    include_str!("redis/rules/call.lua"),
    include_str!("redis/rules/state.lua"),
    include_str!("redis/rules/claims.lua"),
    "do\n",
    include_str!("redis/rules/changes.lua"),
    "end\n",
    "do\n",
    include_str!("redis/rules/money.lua"),
    "end\n",
    "do\n",
    include_str!("redis/rules/pools.lua"),
    "end\n",
    "do\n",
    include_str!("redis/rules/buckets.lua"),
    "end\n",
    include_str!("redis/rules/write.lua"),
));
/// Of those the ones that a call of nothing but claims needs. What a server does to set up the rest
/// takes it as long as a dozen claims.
static CLAIM_RULES: Code = Code::new(concat!(
    include_str!("redis/rules/call.lua"),
    include_str!("redis/rules/state.lua"),
    include_str!("redis/rules/claims.lua"),
    include_str!("redis/rules/write.lua"),
));
/// One write of a repair.
static PUT: Code = Code::new(include_str!("redis/put.lua"));
static TRIM: Code = Code::new(include_str!("redis/trim.lua"));
static SUSPEND: Code = Code::new(include_str!("redis/suspend.lua"));
static SCRIPTS: [&Code; 5] = [&RULES, &CLAIM_RULES, &PUT, &SUSPEND, &TRIM];

/// A script, called by its hash.
struct Code {
    text: &'static str,
    script: OnceLock<Script>,
}

impl Code {
    const fn new(text: &'static str) -> Self {
        Self { text, script: OnceLock::new() }
    }

    fn load(&self) -> Cmd {
        cmd("SCRIPT").arg("LOAD").arg(self.text).to_owned()
    }

    /// The beginning of a call; the arguments are added by the caller.
    fn call<'a>(
        &self,
        keys: impl IntoIterator<Item = &'a str, IntoIter: ExactSizeIterator>,
    ) -> Cmd {
        let hash = self.script.get_or_init(|| Script::new(self.text)).get_hash();
        let keys = keys.into_iter();
        let mut cmd = cmd("EVALSHA");
        cmd.arg(hash).arg(keys.len());
        for key in keys {
            cmd.arg(key);
        }
        cmd
    }
}

/// The number of the layout of keys and values. A Redis with another one is left alone.
const FORMAT: u32 = 2;
/// Cells remembered; of those that nobody waits for, the one least asked about goes first.
const MAX_CELLS: usize = 16_384;
/// Pools whose terms are remembered; the one least asked about goes first, and is read again.
const MAX_TERMS: usize = 16_384;

/// Where an engine on Redis has the time from.
#[derive(Debug, Clone)]
pub enum Time {
    /// From Redis itself, so that all processes have the same.
    Server,
    /// From a clock of this process: for tests that move it.
    Given(Arc<dyn Clock>),
}

/// How an engine on Redis is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which Redis.
    pub place: Place,
    /// Answers that may wait; one more is refused.
    pub queue: usize,
    /// The time.
    pub time: Time,
    /// A number no other process has: the name of its lanes.
    pub node: u64,
}

/// Why an engine on Redis does not begin.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It cannot be reached or used.
    #[error("cannot use {place}")]
    Link {
        /// Which Redis.
        place: Place,
        source: Failure,
    },
    /// The files for TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// It throws keys away when memory is short.
    #[error(
        "{place} has maxmemory-policy {policy}: it would throw away stock and claims when memory \
         is short. Set maxmemory-policy noeviction"
    )]
    Evicts {
        /// Which Redis.
        place: Place,
        /// Its policy.
        policy: String,
    },
    /// A master that is cut off would go on selling.
    #[error(
        "{place} is looked after by Sentinel, and {why}: a master that is cut off would go on \
         selling while another one takes over. Write ?wait=1 behind the URL, or set \
         min-replicas-to-write 1 on all of its servers"
    )]
    CutOff {
        /// Which Redis.
        place: Place,
        /// Why nothing keeps it from that.
        why: &'static str,
    },
    /// It was filled by an older qiang.
    #[error(
        "{place} was filled by an older qiang (layout {found}, this one works with layout \
         {FORMAT}) and is left as it is. With the older qiang run `qiang export sales.jsonl`; then \
         give the engine's URL another ?prefix= and a database of its own, and run `qiang import \
         sales.jsonl` with this one"
    )]
    OlderLayout {
        /// Which Redis.
        place: Place,
        /// The layout it has.
        found: u32,
    },
    /// It was filled by a newer qiang.
    #[error(
        "{place} was filled by a newer qiang (layout {found}, this one works with layout \
         {FORMAT}) and is left as it is: use that qiang"
    )]
    NewerLayout {
        /// Which Redis.
        place: Place,
        /// The layout it has.
        found: u32,
    },
    /// It was set up with another number of partitions.
    #[error(
        "{place} holds {found} partitions under this prefix, but {wanted} are configured: the \
         number cannot change while sales are open. Write ?partitions={found}"
    )]
    Partitions {
        /// Which Redis.
        place: Place,
        /// As it is.
        found: u16,
        /// As configured.
        wanted: u16,
    },
}

/// A handle to the engine; all clones are the same engine.
#[derive(Debug, Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    link: Link,
    queue: usize,
    time: Time,
    node: u64,
    waiting: AtomicUsize,
    calls: AtomicU64,
    cells: RwLock<Cache<CellId, Arc<Cell>>>,
    /// Terms never change, so they are seldom read twice.
    terms: RwLock<Cache<PoolId, Arc<Terms>>>,
    /// For each partition the lanes that calls are made on.
    lanes: Box<[Lanes]>,
    /// Whether the pools that have buckets were looked for.
    found_spread: AtomicBool,
    /// For each partition its epoch as this process knows it.
    eras: Box<[RwLock<Arc<Era>>]>,
    latest: AtomicU64,
    /// Told whenever a partition is lost.
    lost: Arc<Notify>,
    /// For each partition how releasing what is overdue goes.
    sweeps: Box<[Sweep]>,
    stats: Arc<Stats>,
}

impl Engine {
    /// Connects, and checks that this Redis keeps what it is given. Nothing is decided until
    /// [`Engine::set_epoch`] said which state is the right one.
    pub async fn open(options: Options) -> Result<Self, OpenError> {
        let place = options.place.clone();
        let lost = Arc::<Notify>::default();
        let era = |partition| RwLock::new(Arc::new(Era::unset(partition, Arc::clone(&lost))));
        let shared = Arc::new(Shared {
            link: Link::new(options.place)?,
            queue: options.queue,
            time: options.time,
            node: options.node,
            waiting: AtomicUsize::new(0),
            calls: AtomicU64::new(0),
            cells: RwLock::new(Cache::new(MAX_CELLS)),
            terms: RwLock::new(Cache::new(MAX_TERMS)),
            lanes: (0..place.partitions).map(|_| Lanes::default()).collect(),
            found_spread: AtomicBool::new(false),
            eras: (0..place.partitions).map(era).collect(),
            lost: Arc::clone(&lost),
            latest: AtomicU64::new(0),
            sweeps: (0..place.partitions).map(|_| Sweep::default()).collect(),
            stats: Arc::default(),
        });
        let unusable = |source| OpenError::Link { place: place.clone(), source };
        let policy = cmd("CONFIG").arg("GET").arg("maxmemory-policy").to_owned();
        let answers: Result<Vec<Value>, Failure> =
            shared.link.ask_servers(&policy).await.into_iter().collect();
        match answers {
            Ok(answers) => {
                for answer in answers {
                    let policy: Vec<String> = redis::from_redis_value(answer).unwrap_or_default();
                    if let Some(policy) = policy.get(1).filter(|policy| *policy != "noeviction") {
                        return Err(OpenError::Evicts { place, policy: policy.clone() });
                    }
                }
            }
            // Hosted ones often do not let anybody look.
            Err(failure) if failure.kind == link::Kind::Lasting && failure.may_have_happened => {
                tracing::warn!("maxmemory-policy could not be checked: {}", chain(&failure));
            }
            Err(failure) => return Err(unusable(failure)),
        }
        shared.check_cut_off(&place).await?;
        shared.check_layout(&place).await?;
        shared.load_all_scripts().await.map_err(unusable)?;
        Ok(Self { shared })
    }

    /// Decides a command. What is no claim is boxed, so that a claim's future has no room for it.
    pub async fn ask(&self, command: Command) -> Result<Reply, Error> {
        assert_terms_are_sound(&command);
        match command {
            Command::Claim(wish) => self.claim(wish).await.map(Reply::Claim),
            Command::Open { pool, terms } => {
                Box::pin(self.open_pool(pool, terms)).await.map(Reply::Pool)
            }
            Command::Restock { pool, units, request } => {
                let ask = Ask::Restock { units, request };
                Box::pin(self.on_head(pool, ask)).await.map(Reply::Pool)
            }
            Command::Close { pool } => Box::pin(self.close(pool)).await.map(Reply::Pool),
            Command::Clear { pool } => Box::pin(self.clear(pool)).await.map(Reply::Pool),
            Command::Order { claim, by } => {
                let ask = Ask::Order { number: claim.number, by };
                Box::pin(self.on_claim(claim, ask)).await.map(Reply::Claim)
            }
            Command::Release { claim, by, reason } => {
                let ask = Ask::Release { number: claim.number, by, reason };
                Box::pin(self.on_claim(claim, ask)).await.map(Reply::Claim)
            }
            Command::Revoke { claim } => {
                let ask = Ask::Revoke { number: claim.number };
                Box::pin(self.on_claim(claim, ask)).await.map(Reply::Claim)
            }
            Command::Pay(pay) => {
                Box::pin(self.shared.money(pay, Doing::Pay)).await.map(Reply::Settlement)
            }
            Command::Refund(pay) => {
                Box::pin(self.shared.money(pay, Doing::Refund)).await.map(Reply::Settlement)
            }
        }
    }

    async fn open_pool(&self, pool: PoolId, terms: Arc<Terms>) -> Result<Outcome<PoolView>, Error> {
        if terms.buckets > 1 {
            self.note_spread(pool).await?;
        }
        // The first bucket last: it speaks for the pool, and there is none before it.
        for bucket in (1..terms.buckets).rev() {
            let cell = self.shared.cell(CellId { pool, bucket });
            let ask = Ask::Open { terms: Arc::clone(&terms), bucket };
            match self.shared.ask_pool(&cell, ask).await? {
                Outcome::Done(_) | Outcome::Replayed(_) => {}
                Outcome::Refused(Refusal::PoolExists) => {
                    self.finish_opening(&cell).await?;
                    break;
                }
                Outcome::Refused(refusal) => return Ok(Outcome::Refused(refusal)),
            }
        }
        let ask = Ask::Open { terms, bucket: 0 };
        self.on_head(pool, ask).await
    }

    /// Somebody has begun to open this pool on other terms, and may have died before its first bucket
    /// was open. It is opened on those, so that there is one pool, whoever comes.
    async fn finish_opening(&self, begun: &Cell) -> Result<(), Error> {
        let pool = begun.id.pool;
        let get = cmd("HGET").arg(begun.keys.get(Keys::POOL)).arg("terms").to_owned();
        let Value::BulkString(terms) = self.shared.read(begun.partition, &get).await? else {
            return Ok(());
        };
        let terms = wire::decode_terms(&terms).map_err(nonsense)?;
        for bucket in (0..terms.buckets).rev() {
            let cell = self.shared.cell(CellId { pool, bucket });
            let ask = Ask::Open { terms: Arc::clone(&terms), bucket };
            self.shared.ask_pool(&cell, ask).await?;
        }
        Ok(())
    }

    async fn claim(&self, wish: ClaimRequest) -> Result<Outcome<Claim>, Error> {
        let pool = wish.pool;
        let said = match self.shared.terms(pool).await? {
            None => return Ok(Outcome::Refused(Refusal::NoSuchPool)),
            Some(terms) if terms.kind != wish.kind => {
                return Ok(Outcome::Refused(Refusal::NoSuchPool));
            }
            Some(terms) if terms.buckets > 1 => self.shared.claim_from_bucket(wish, &terms).await?,
            Some(terms) => {
                let cell = self.shared.cell(CellId::head(pool));
                if cell.memory().answers(&wish, self.shared.memory_time()) {
                    return Ok(Outcome::Refused(Refusal::SoldOut));
                }
                self.shared.ask(&cell, Ask::Claim { wish, by: terms.limit_by }).await?
            }
        };
        Ok(about_claim(said))
    }

    async fn close(&self, pool: PoolId) -> Result<Outcome<PoolView>, Error> {
        self.on_others(pool, &Ask::Close).await?;
        self.on_head(pool, Ask::Close).await
    }

    async fn clear(&self, pool: PoolId) -> Result<Outcome<PoolView>, Error> {
        // No part of it is dropped before all of it is over; what is over stays so.
        let terms = self.shared.terms(pool).await?;
        let buckets = terms.as_ref().map_or(0, |terms| terms.buckets);
        for bucket in (0..buckets).filter(|_| buckets > 1) {
            let cell = self.shared.cell(CellId { pool, bucket });
            match self.shared.ask(&cell, Ask::MayClear).await? {
                Said::Pool(Outcome::Refused(refusal)) => return Ok(Outcome::Refused(refusal)),
                Said::Done => {}
                other => unreachable!("asked whether a pool is over, answered {other:?}"),
            }
        }
        if let Some(refusal) = self.on_others(pool, &Ask::Clear { forget: None }).await? {
            return Ok(Outcome::Refused(refusal));
        }
        let forget = terms.filter(|terms| decide::leaves_nothing(pool, terms));
        let ask = Ask::Clear { forget: forget.as_ref().map(|terms| terms.kind) };
        let cleared = self.on_head(pool, ask).await?;
        if matches!(cleared, Outcome::Done(_)) {
            if forget.is_some() {
                self.shared.forget(pool);
            } else if buckets > 1 {
                self.drop_spread(pool).await?;
            }
        }
        Ok(cleared)
    }

    /// A pool as it is now.
    pub async fn pool(&self, id: PoolId) -> Result<Option<PoolView>, Error> {
        let head = self.shared.cell(CellId::head(id));
        match self.shared.ask_pool(&head, Ask::Look).await? {
            Outcome::Done(view) | Outcome::Replayed(view) => Ok(Some(self.whole(view).await?)),
            Outcome::Refused(_) => Ok(None),
        }
    }

    /// A claim as it is now.
    pub async fn claim_view(&self, id: ClaimId) -> Result<Option<Claim>, Error> {
        let Some(terms) = self.shared.terms(id.pool).await? else { return Ok(None) };
        let cell = self.shared.cell(CellId::of_claim(id.pool, id.number, terms.buckets));
        match self.shared.ask(&cell, Ask::Find { number: id.number }).await? {
            Said::Found(claim) => Ok(claim),
            other => unreachable!("asked for a claim, answered {other:?}"),
        }
    }

    /// Pools of a kind that were opened before `before`, newest first, at most `max`; none only when
    /// there are no older ones.
    pub async fn pools(
        &self,
        kind: Kind,
        mut before: Option<Opened>,
        max: usize,
    ) -> Result<Vec<PoolView>, Error> {
        loop {
            let listed = self.shared.pools_before(kind, before, max).await?;
            let mut views = Vec::new();
            for opened in &listed {
                views.extend(self.pool(opened.id).await?);
            }
            // Those that were listed may all have been forgotten since.
            if !views.is_empty() || listed.is_empty() {
                return Ok(views);
            }
            before = listed.last().copied();
        }
    }

    /// A pool as its last change left it.
    pub async fn pool_state(&self, id: PoolId) -> Result<Option<PoolState>, Error> {
        let mut history = self.shared.history(id, -1).await?;
        Ok(history.pop())
    }

    /// Claims of a pool behind number `after`, by rising number; empty only at the end.
    pub async fn claims(&self, pool: PoolId, after: u32, max: u32) -> Result<Vec<Claim>, Error> {
        self.shared.claims(pool, after, max).await
    }

    /// Refunds of a pool from place `from` on, at most `max`, each with its place.
    pub async fn refunds(
        &self,
        pool: PoolId,
        from: usize,
        max: usize,
    ) -> Result<Vec<(usize, Refund)>, Error> {
        self.shared.refunds(pool, from, max).await
    }

    /// Looks whether every partition is the one that was there. This notices a loss while nobody asks
    /// for anything.
    pub async fn check_partitions(&self) -> Result<(), Error> {
        self.shared.check_all().await
    }

    /// Finishes what a process that died left half done between buckets. A server or a sale that
    /// does not answer keeps no other sale from being finished; the first failure is told at the end.
    pub async fn finish_transfers(&self) -> Result<(), Error> {
        let mut finished = self.find_spread().await;
        let prefix = &self.place().prefix;
        let pools = self.shared.link.ask_each(|partition| {
            let key = PartitionKeys::spread(prefix, partition);
            cmd("ZRANGE").arg(key).arg(0).arg(-1).to_owned()
        });
        for answer in pools.await {
            let Ok(answer) = answer else {
                finished = finished.and(Err(Error::Unavailable));
                continue;
            };
            let ids: Vec<String> = redis::from_redis_value(answer).unwrap_or_default();
            for pool in ids.iter().filter_map(|id| id.parse().ok()) {
                finished = finished.and(self.shared.finish_transfers(pool).await);
            }
        }
        finished
    }

    /// Says which state of a partition is the right one. Whatever does not bear this name is not
    /// worked on.
    pub fn set_epoch(&self, partition: u16, epoch: &str) {
        let shared = &self.shared;
        {
            let era = &shared.eras[usize::from(partition)];
            let mut era = era.write().unwrap_or_else(PoisonError::into_inner);
            *era = Arc::new(era.next(epoch));
        }
        shared.terms.write().unwrap_or_else(PoisonError::into_inner).clear();
        // What was put back may have been put there by an older version.
        shared.found_spread.store(false, Ordering::Release);
        let cells = shared.cells.read().unwrap_or_else(PoisonError::into_inner);
        for cell in cells.values().filter(|cell| cell.partition == partition) {
            *cell.memory() = Memory::default();
        }
    }

    /// The same for all partitions, where they have one name.
    pub fn set_epoch_of_all(&self, epoch: &str) {
        (0..self.partitions()).for_each(|partition| self.set_epoch(partition, epoch));
    }

    /// The name of the state of a partition that is worked on.
    #[must_use]
    pub fn epoch(&self, partition: u16) -> Arc<str> {
        self.shared.era(partition).name().into()
    }

    /// Tells that the log of a partition has been seen to reach a position.
    pub fn raise_known(&self, partition: u16, position: u64) {
        if partition < self.partitions() {
            self.shared.era(partition).raise_position(position);
        }
    }

    /// A position that the log of a partition has been seen to reach.
    #[must_use]
    pub fn known(&self, partition: u16) -> u64 {
        self.shared.era(partition).position()
    }

    /// Tells that somebody else found a partition to be lost.
    pub fn lose(&self, partition: u16) {
        self.shared.era(partition).lose_as_told();
    }

    /// Returns when a partition is lost.
    pub async fn loses(&self) {
        loop {
            let told = self.shared.lost.notified();
            if !self.lost().is_empty() {
                return;
            }
            told.await;
        }
    }

    /// Partitions in which nothing is decided, because their state in Redis is not the one that
    /// was there, and what is wrong with them.
    #[must_use]
    pub fn lost(&self) -> BTreeMap<u16, String> {
        let why = |partition| Some((partition, self.shared.era(partition).lost()?));
        (0..self.partitions()).filter_map(why).collect()
    }

    /// What the engine counts about itself.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.shared.stats
    }

    /// How many answers are waited for.
    #[must_use]
    pub fn queue_depth(&self) -> usize {
        self.shared.waiting.load(Ordering::Relaxed)
    }

    /// Which Redis it is.
    #[must_use]
    pub fn place(&self) -> &Place {
        self.shared.link.place()
    }

    /// The number of the connection that is kept to the server of a partition. Another number says
    /// that it was connected to anew, or that another server has the partition.
    #[must_use]
    pub fn connection_number(&self, partition: u16) -> Option<u64> {
        self.shared.link.connection_number(partition)
    }

    /// Drops all connections, as a broken network would; they are made anew when needed.
    pub fn drop_connections(&self) {
        self.shared.link.drop_connections();
    }

    async fn on_head(&self, pool: PoolId, ask: Ask) -> Result<Outcome<PoolView>, Error> {
        let head = self.shared.cell(CellId::head(pool));
        Ok(match self.shared.ask_pool(&head, ask).await? {
            Outcome::Done(view) => Outcome::Done(self.whole(view).await?),
            Outcome::Replayed(view) => Outcome::Replayed(self.whole(view).await?),
            Outcome::Refused(refusal) => Outcome::Refused(refusal),
        })
    }

    /// Asks all buckets but the first; gives the first refusal.
    async fn on_others(&self, pool: PoolId, ask: &Ask) -> Result<Option<Refusal>, Error> {
        let Some(terms) = self.shared.terms(pool).await? else { return Ok(None) };
        for bucket in 1..terms.buckets {
            let cell = self.shared.cell(CellId { pool, bucket });
            if let Outcome::Refused(refusal) = self.shared.ask_pool(&cell, ask.clone()).await? {
                return Ok(Some(refusal));
            }
        }
        Ok(None)
    }

    async fn on_claim(&self, claim: ClaimId, ask: Ask) -> Result<Outcome<Claim>, Error> {
        let terms = self.shared.terms(claim.pool).await?;
        let Some(terms) = terms.filter(|terms| terms.kind == Kind::Sale) else {
            return Ok(Outcome::Refused(Refusal::NoSuchClaim));
        };
        let cell = self.shared.cell(CellId::of_claim(claim.pool, claim.number, terms.buckets));
        Ok(about_claim(self.shared.ask(&cell, ask).await?))
    }

    /// The view of a pool from that of its first bucket: units in all of them. Units on their way
    /// from one bucket to another are nobody's, and so they are counted as available.
    async fn whole(&self, mut view: PoolView) -> Result<PoolView, Error> {
        if !view.cleared {
            self.shared.remember_terms(view.id, &view.terms);
        }
        for bucket in 1..view.terms.buckets {
            let cell = self.shared.cell(CellId { pool: view.id, bucket });
            if let Outcome::Done(part) = self.shared.ask_pool(&cell, Ask::Look).await? {
                view.tally.held += part.tally.held;
                view.tally.ordered += part.tally.ordered;
                view.tally.paid += part.tally.paid;
                view.claims += part.claims;
                view.payments += part.payments;
            }
        }
        if view.terms.buckets > 1 && !view.cleared {
            view.available = view.total.saturating_sub(view.tally.taken());
        }
        Ok(view)
    }
}

impl Shared {
    fn cell(&self, id: CellId) -> Arc<Cell> {
        let cells = self.cells.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(cell) = cells.get(&id) {
            return Arc::clone(cell);
        }
        drop(cells);
        let mut cells = self.cells.write().unwrap_or_else(PoisonError::into_inner);
        // Somebody else may have made it since.
        if let Some(cell) = cells.get(&id) {
            return Arc::clone(cell);
        }
        let place = self.link.place();
        let cell = Arc::new(Cell::new(id, id.partition(place.partitions), &place.prefix));
        cells.insert(id, Arc::clone(&cell), |cell| Arc::strong_count(cell) == 1);
        cell
    }

    /// Forgets a pool of which nothing is left.
    fn forget(&self, pool: PoolId) {
        self.terms.write().unwrap_or_else(PoisonError::into_inner).remove(&pool);
        let mut cells = self.cells.write().unwrap_or_else(PoisonError::into_inner);
        cells.remove(&CellId::head(pool));
    }

    /// Fails when a master that Sentinel replaced could go on selling.
    async fn check_cut_off(&self, place: &Place) -> Result<(), OpenError> {
        if !place.is_of_sentinel() || place.wait > 0 {
            return Ok(());
        }
        let asked = cmd("CONFIG").arg("GET").arg("min-replicas-to-write").to_owned();
        let why = match self.link.ask(0, &asked).await {
            Ok(answer) => {
                let found: Vec<String> = redis::from_redis_value(answer).unwrap_or_default();
                if found.get(1).is_some_and(|number| number != "0") {
                    return Ok(());
                }
                "neither wait nor min-replicas-to-write is set"
            }
            Err(failure) if failure.kind == link::Kind::Lasting => {
                "min-replicas-to-write cannot be looked at"
            }
            Err(source) => return Err(OpenError::Link { place: place.clone(), source }),
        };
        Err(OpenError::CutOff { place: place.clone(), why })
    }

    /// The terms of a pool, if it exists.
    async fn terms(&self, pool: PoolId) -> Result<Option<Arc<Terms>>, Error> {
        let known = self.terms.read().unwrap_or_else(PoisonError::into_inner).get(&pool).cloned();
        if known.is_some() {
            return Ok(known);
        }
        let cell = self.cell(CellId::head(pool));
        let key = cell.keys.get(Keys::POOL);
        let read = self.read(cell.partition, cmd("HGET").arg(key).arg("terms")).await?;
        let Value::BulkString(bytes) = read else { return Ok(None) };
        let terms = wire::decode_terms(&bytes).map_err(nonsense)?;
        self.remember_terms(pool, &terms);
        Ok(Some(terms))
    }

    fn remember_terms(&self, pool: PoolId, terms: &Arc<Terms>) {
        let known = self.terms.read().unwrap_or_else(PoisonError::into_inner).get(&pool).is_some();
        if !known {
            let mut all = self.terms.write().unwrap_or_else(PoisonError::into_inner);
            all.insert(pool, Arc::clone(terms), |_| true);
        }
    }

    async fn ask_pool(
        self: &Arc<Self>,
        cell: &Arc<Cell>,
        ask: Ask,
    ) -> Result<Outcome<PoolView>, Error> {
        match self.ask(cell, ask).await? {
            Said::Pool(outcome) => Ok(outcome),
            other => unreachable!("asked about a pool, answered {other:?}"),
        }
    }

    fn era(&self, partition: u16) -> Arc<Era> {
        let era = &self.eras[usize::from(partition)];
        Arc::clone(&era.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The time as the clock of this process tells it, if that one counts; it never goes back.
    fn given_time(&self) -> Option<Timestamp> {
        let Time::Given(clock) = &self.time else { return None };
        let now = u64::try_from(clock.now().millis()).unwrap_or(0);
        let latest = self.latest.fetch_max(now, Ordering::AcqRel).max(now);
        Some(Timestamp::from_millis(i64::try_from(latest).unwrap_or(i64::MAX)))
    }

    fn memory_time(&self) -> Now {
        self.given_time().map_or(Now::Passing, Now::Given)
    }
}

fn about_claim(said: Said) -> Outcome<Claim> {
    match said {
        Said::Claim(outcome) => outcome,
        other => unreachable!("asked about a claim, answered {other:?}"),
    }
}

fn nonsense(error: Unpackable) -> Error {
    tracing::error!("Redis holds what nobody of us wrote: {}", chain(&error));
    Error::Unavailable
}
