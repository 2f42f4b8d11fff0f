//! Carries what the engine decided into the records: reads the logs, writes batches, remembers
//! its position in the same transaction.
//!
//! It never skips and never gives up: while the records cannot be written it waits and tries
//! again. A log is trimmed only behind it. Beside an embedded engine it works on a thread of low
//! priority with database connections of its own, so that in a rush the processor belongs to the
//! claims.
//!
//! Of several processes that share an engine each carries its share of the logs; one that is no
//! worker only follows how far the others have come.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use qiang_core::{Event, Kind};
use qiang_engine::{Engine, Log, LogError, Stopwatch};
use qiang_store::Store;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::nodes::Share;

/// Events written in one transaction, give or take the engine's last batch.
const BATCH: usize = 8_192;
/// A rest behind a small batch lets the next one grow: the claim path needs processor and disk
/// more than the records do. Whoever waits for the records cuts it short.
const REST: Duration = Duration::from_millis(200);
/// While claims come faster than they can be carried over, it rests behind each batch, so many times
/// as long as that took and not longer than this. After the longest rush it rests no more, so that a
/// shop that is always busy has its records, too.
const RESTS_IN_RUSH: u32 = 4;
const LONGEST_REST: Duration = Duration::from_secs(1);
const LONGEST_RUSH: Duration = Duration::from_secs(10);
/// As far below normal as it goes: in a rush the records wait, and catch up after it.
const NICENESS: i32 = 19;
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(5);
/// How long one of several logs rests at most that could not be carried over. Others go on.
const MAX_LOG_BACKOFF: Duration = Duration::from_secs(1);
/// How often it is read how far others have come, when nobody waits for it, and when somebody
/// does.
const OTHERS_EVERY: Duration = Duration::from_millis(500);
const OTHERS_HURRIED: Duration = Duration::from_millis(20);
/// Claims and refunds read at once when the records are made anew.
const PAGE: u32 = 1_000;
/// Events behind which a log is trimmed: asking for less costs more than it frees.
const TRIM_EVERY: u64 = 1_000;

/// The name the position of an embedded engine's log is kept under.
const EMBEDDED: &str = "records";

/// The name the position of a log is kept under.
#[must_use]
pub fn consumer(engine: &Engine, partition: u16) -> String {
    match engine {
        Engine::Embedded(_) => EMBEDDED.into(),
        Engine::Redis(_) => format!("redis/{partition}"),
        Engine::Sql(_) => format!("sql/{partition}"),
    }
}

/// How far the records have come.
#[derive(Debug, Clone)]
pub struct Projection {
    positions: watch::Receiver<Vec<u64>>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// How far somebody waits for the records to come.
    wanted: Mutex<Vec<u64>>,
    raised: Notify,
    failures: AtomicU64,
    /// Why the last batch could not be written; nothing once one could.
    trouble: Mutex<Option<String>>,
}

impl Projection {
    /// For each log the position of the last event that is in the records.
    #[must_use]
    pub fn positions(&self) -> Vec<u64> {
        self.positions.borrow().clone()
    }

    /// Waits until the records hold everything up to these positions.
    pub async fn reached(&self, wanted: &[u64]) {
        let mut here = self.positions.clone();
        if !covers(&here.borrow(), wanted) {
            let mut raised = self.shared.wanted.lock().unwrap_or_else(PoisonError::into_inner);
            let logs = raised.len().max(wanted.len());
            raised.resize(logs, 0);
            for (raised, wanted) in raised.iter_mut().zip(wanted) {
                *raised = (*raised).max(*wanted);
            }
            drop(raised);
            self.shared.raised.notify_one();
        }
        if here.wait_for(|here| covers(here, wanted)).await.is_err() {
            // The projector is gone, and nothing will ever be reached; whoever waits has a limit.
            std::future::pending::<()>().await;
        }
    }

    /// How often a batch could not be written.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.shared.failures.load(Ordering::Relaxed)
    }

    /// Why nothing can be written at present, if so.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        if self.positions.has_changed().is_err() {
            return Some("the projector has ended; restart the server".into());
        }
        self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn covers(here: &[u64], wanted: &[u64]) -> bool {
    wanted.iter().enumerate().all(|(log, wanted)| here.get(log).is_some_and(|at| at >= wanted))
}

impl Shared {
    /// Counts and logs what failed just now.
    fn failed(&self, error: &str) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        tracing::error!("projection waits: {error}");
    }

    /// Keeps what is wrong at present.
    fn tell(&self, trouble: Option<String>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    fn is_wanted(&self, here: &[u64]) -> bool {
        !covers(here, &self.wanted.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Which logs a process carries into the records.
#[derive(Debug, Clone)]
pub enum Part {
    /// All of them, because there is nobody else.
    All,
    /// Its share, under this name.
    Share(String),
    /// None; it only looks how far the others are.
    None,
}

/// When to stop.
#[derive(Debug, Clone)]
pub struct Stop {
    /// Told when the time has come.
    pub token: CancellationToken,
    /// What is in the logs by then is carried over for so long; the rest waits for the next start.
    pub grace: Duration,
}

/// Follows an engine with a store of its own until told to stop; then until its logs are empty, a
/// batch fails or the grace is over.
pub async fn start(
    engine: Engine,
    part: Part,
    store: impl Future<Output = Result<Store, qiang_store::Error>> + Send + 'static,
    stop: Stop,
) -> Result<(Projection, JoinHandle<()>), Error> {
    if !engine.is_shared() {
        return on_own_thread(engine, part, store, stop).await;
    }
    let store = store.await?;
    let projector = Projector::new(engine, store.clone()).await?;
    let (projection, following) = projector.follow(part, stop);
    let work = async move {
        following.await;
        store.close().await;
    };
    Ok((projection, tokio::spawn(work)))
}

async fn on_own_thread(
    engine: Engine,
    part: Part,
    store: impl Future<Output = Result<Store, qiang_store::Error>> + Send + 'static,
    stop: Stop,
) -> Result<(Projection, JoinHandle<()>), Error> {
    let (started, ready) = oneshot::channel();
    let (working, at_work) = oneshot::channel::<()>();
    let work = move || {
        let _working = working;
        if let Err(error) = rustix::process::nice(NICENESS) {
            tracing::warn!(%error, "the projector keeps its priority");
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => return drop(started.send(Err(Error::Thread(error)))),
        };
        runtime.block_on(async {
            let opened = async {
                let store = store.await?;
                let projector = Projector::new(engine, store.clone()).await?;
                projector.check_ends().await?;
                Ok((projector, store))
            };
            match opened.await {
                Err(error) => drop(started.send(Err(error))),
                Ok((projector, store)) => {
                    let (projection, following) = projector.follow(part, stop);
                    drop(started.send(Ok(projection)));
                    following.await;
                    store.close().await;
                }
            }
        });
    };
    let thread = std::thread::Builder::new().name("qiang-projector".into()).spawn(work);
    thread.map_err(Error::Thread)?;
    let ended = tokio::spawn(async move {
        // Nothing is ever sent; the sender goes with the thread.
        let _gone = at_work.await;
    });
    match ready.await {
        Ok(projection) => Ok((projection?, ended)),
        Err(_) => Err(Error::Gone),
    }
}

/// Why projecting cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The log cannot be read.
    #[error("the log could not be read")]
    Log(#[from] LogError),
    /// The records cannot be written.
    #[error("the records could not be written")]
    Store(#[from] qiang_store::Error),
    /// The engine does not answer.
    #[error("the engine could not be asked")]
    Engine(#[from] qiang_engine::Error),
    /// The journal lacks what the records have.
    #[error(
        "the records are at position {records}, but the journal ends at {log}: the journal is \
         older than the records. Put the newer journal back; or, if it is lost, move the records \
         away, and they are made anew of what this journal holds"
    )]
    Ahead {
        /// How far the records have come.
        records: u64,
        /// Where the journal ends.
        log: u64,
    },
    /// The projector's thread could not be started.
    #[error("the projector could not be started")]
    Thread(#[source] std::io::Error),
    /// The projector's thread ended before it began.
    #[error("the projector ended before it began")]
    Gone,
}

impl Error {
    /// Whether claims came before their sale.
    fn is_early(&self) -> bool {
        matches!(self, Self::Store(qiang_store::Error::UnknownSale { .. }))
    }
}

/// Carries events from the logs of an engine to one store.
#[derive(Debug)]
pub struct Projector {
    engine: Engine,
    store: Store,
    log: Log,
    positions: Vec<u64>,
    trimmed: Vec<u64>,
    /// Of several logs those that could not be carried over.
    troubles: BTreeMap<u16, Trouble>,
    shared: Arc<Shared>,
}

/// Why a log could not be carried over, and when that is tried again.
#[derive(Debug)]
struct Trouble {
    what: String,
    failed: Stopwatch,
    backoff: Duration,
}

/// Whether claims come faster than they are carried over.
#[derive(Default)]
struct Rush {
    pending: u64,
    began: Option<Stopwatch>,
}

impl Rush {
    /// Asked behind each full batch, with what is still to be carried over.
    fn is_on(&mut self, pending: u64) -> bool {
        let grew = pending > self.pending;
        self.pending = pending;
        let began = self.began.get_or_insert_with(Stopwatch::start);
        grew && began.elapsed() < LONGEST_RUSH
    }
}

impl Projector {
    /// Stands where the records say it stopped.
    pub async fn new(engine: Engine, store: Store) -> Result<Self, Error> {
        let log = engine.log();
        let logs = usize::from(engine.partitions());
        let mut new = Self {
            engine,
            store,
            log,
            positions: vec![0; logs],
            trimmed: vec![0; logs],
            troubles: BTreeMap::new(),
            shared: Arc::default(),
        };
        new.look_at_records().await?;
        Ok(new)
    }

    /// An embedded journal that is older than the records must not be worked on; a shared engine
    /// looks after that itself.
    async fn check_ends(&self) -> Result<(), Error> {
        if let Engine::Embedded(engine) = &self.engine {
            let (records, log) = (self.positions[0], *engine.durable().borrow());
            if records > log {
                return Err(Error::Ahead { records, log });
            }
        }
        Ok(())
    }

    /// Carries over everything the logs hold by now, and says how many events that were.
    pub async fn finish(mut self) -> Result<usize, Error> {
        let mut carried = 0;
        loop {
            let (before, mut early) = (carried, None);
            for partition in 0..self.engine.partitions() {
                loop {
                    match self.step(partition).await {
                        Ok(0) => break,
                        Ok(events) => carried += events,
                        // The sale is told by the log of its first bucket, which may come later.
                        Err(error) if self.engine.is_shared() && error.is_early() => {
                            early = Some(error);
                            break;
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
            match early {
                None => return Ok(carried),
                Some(error) if carried == before => return Err(error),
                Some(_) => {}
            }
        }
    }

    /// Carries over what an engine decides until told to stop, and then until its logs are empty,
    /// a batch fails or the grace is over.
    fn follow(mut self, part: Part, stop: Stop) -> (Projection, impl Future<Output = ()>) {
        let (reached, positions) = watch::channel(self.positions.clone());
        let shared = Arc::clone(&self.shared);
        let projection = Projection { positions, shared: Arc::clone(&shared) };
        let work = async move {
            let mut share = match &part {
                Part::Share(owner) => {
                    Some(Share::new(self.store.clone(), owner, self.engine.partitions()))
                }
                Part::All | Part::None => None,
            };
            let (mut backoff, mut looked) = (FIRST_BACKOFF, Stopwatch::start());
            let mut told: Option<Stopwatch> = None;
            let mut rush = Rush::default();
            loop {
                let wanted = shared.is_wanted(&self.positions);
                let worked = Stopwatch::start();
                let stepped = self.round(&part, share.as_mut(), &mut looked, wanted).await;
                reached.send_replace(self.positions.clone());
                match &stepped {
                    Ok(_) => shared.tell(self.trouble()),
                    Err(error) => {
                        let error = crate::chain(error);
                        shared.failed(&error);
                        shared.tell(Some(error));
                    }
                }
                if stop.token.is_cancelled() {
                    let told = told.get_or_insert_with(Stopwatch::start);
                    if matches!(stepped, Ok(0) | Err(_)) {
                        break;
                    }
                    if told.elapsed() >= stop.grace {
                        let message =
                            "the records lag behind; the rest is carried over at the next start";
                        tracing::warn!(positions = ?self.positions, message);
                        break;
                    }
                }
                let wait = async {
                    match stepped {
                        Err(_) => {
                            tokio::time::sleep(backoff).await;
                            backoff = (backoff * 2).min(MAX_BACKOFF);
                        }
                        Ok(events) => {
                            backoff = FIRST_BACKOFF;
                            if events < BATCH {
                                rush = Rush::default();
                                self.rest(&part, &shared).await;
                            } else if rush.is_on(self.pending())
                                && !shared.is_wanted(&self.positions)
                            {
                                let woken = shared.raised.notified();
                                let rest = (worked.elapsed() * RESTS_IN_RUSH).min(LONGEST_REST);
                                let _cut_short = tokio::time::timeout(rest, woken).await;
                            }
                        }
                    }
                };
                tokio::select! {
                    () = wait => {}
                    () = stop.token.cancelled() => {}
                }
            }
            if let Some(mut share) = share {
                share.give_up().await;
            }
        };
        (projection, work)
    }

    /// Waits for something to do.
    async fn rest(&self, part: &Part, shared: &Shared) {
        match part {
            Part::None => {
                let pause =
                    if shared.is_wanted(&self.positions) { OTHERS_HURRIED } else { OTHERS_EVERY };
                let _cut_short = tokio::time::timeout(pause, shared.raised.notified()).await;
            }
            Part::All => {
                self.engine.news(&self.positions).await;
                if !shared.is_wanted(&self.positions) && self.pending() < BATCH as u64 {
                    let _cut_short = tokio::time::timeout(REST, shared.raised.notified()).await;
                }
            }
            Part::Share(_) => {
                tokio::select! {
                    () = self.engine.news(&self.positions) => {}
                    () = shared.raised.notified() => {}
                }
            }
        }
    }

    /// How many events an embedded engine has for the records.
    fn pending(&self) -> u64 {
        match &self.engine {
            Engine::Embedded(engine) => engine.durable().borrow().saturating_sub(self.positions[0]),
            Engine::Redis(_) | Engine::Sql(_) => 0,
        }
    }

    /// One batch of every log that has something new, and says how many events that were.
    async fn round(
        &mut self,
        part: &Part,
        share: Option<&mut Share>,
        looked: &mut Stopwatch,
        wanted: bool,
    ) -> Result<usize, Error> {
        let own: Vec<u16> = match share {
            Some(share) => {
                share.tend().await?;
                share.held().collect()
            }
            None if matches!(part, Part::All) => (0..self.engine.partitions()).collect(),
            None => Vec::new(),
        };
        let alone = own.len() == self.positions.len();
        if !alone && (wanted || looked.elapsed() >= OTHERS_EVERY) {
            self.look_at_records().await?;
            *looked = Stopwatch::start();
        }
        self.troubles.retain(|partition, _| own.contains(partition));
        let (mut ends, mut carried) = (self.ends().await?, 0);
        for partition in own {
            let log = usize::from(partition);
            let Some(end) = ends[log] else {
                self.fail(partition, "its server does not answer".into());
                continue;
            };
            if end == self.positions[log] {
                self.troubles.remove(&partition);
                continue;
            }
            if self.troubles.get(&partition).is_some_and(Trouble::rests) {
                continue;
            }
            // One log that cannot be carried over keeps no other from it.
            match self.step(partition).await {
                Ok(events) => {
                    carried += events;
                    self.troubles.remove(&partition);
                }
                // The sale is told by the log of its first bucket, which comes soon.
                Err(error) if self.engine.is_shared() && error.is_early() => {
                    tracing::debug!(partition, "claims came before their sale");
                }
                Err(error) if self.positions.len() == 1 => return Err(error),
                Err(error) => {
                    self.fail(partition, crate::chain(&error));
                    // Of a server that stopped answering no other log is waited for.
                    ends = self.ends().await?;
                }
            }
        }
        Ok(carried)
    }

    /// For each log where it ends, if that can be told.
    async fn ends(&self) -> Result<Vec<Option<u64>>, Error> {
        Ok(match &self.engine {
            Engine::Embedded(engine) => vec![Some(*engine.durable().borrow())],
            engine => engine.ends().await?,
        })
    }

    /// Lets a log rest, longer each time. What is the same as before is not told again.
    fn fail(&mut self, partition: u16, what: String) {
        let before = self.troubles.remove(&partition);
        if before.as_ref().is_none_or(|before| before.what != what) {
            self.shared.failed(&format!("log {partition}: {what}"));
        }
        let backoff = before.map_or(FIRST_BACKOFF, |before| before.backoff * 2);
        let backoff = backoff.min(MAX_LOG_BACKOFF);
        self.troubles.insert(partition, Trouble { what, failed: Stopwatch::start(), backoff });
    }

    /// What is wrong with logs of several, if something is.
    fn trouble(&self) -> Option<String> {
        let (partition, first) = self.troubles.first_key_value()?;
        let more = match self.troubles.len() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        Some(format!("log {partition}: {}{more}", first.what))
    }

    /// Reads how far the records are, which others may have brought further.
    async fn look_at_records(&mut self) -> Result<(), Error> {
        let name = consumer(&self.engine, 0);
        let prefix = name.strip_suffix('0').unwrap_or(&name);
        let found = self.store.positions(prefix).await?;
        for partition in 0..self.engine.partitions() {
            let name = consumer(&self.engine, partition);
            if let Some((_, seq)) = found.iter().find(|(found, _)| *found == name) {
                self.positions[usize::from(partition)] = *seq;
                if let Engine::Redis(engine) = &self.engine {
                    engine.raise_known(partition, *seq);
                }
            }
        }
        Ok(())
    }

    /// Carries one batch of a log over and says how many events it had.
    async fn step(&mut self, partition: u16) -> Result<usize, Error> {
        let log = usize::from(partition);
        let consumer = consumer(&self.engine, partition);
        let (events, through) = loop {
            match self.log.read(partition, self.positions[log], BATCH).await {
                Err(LogError::Trimmed { .. }) => {
                    // Another projector, or a repair, may have brought the records further.
                    let found = self.store.position(&consumer).await?;
                    if found <= self.positions[log] {
                        return self.rebuild(partition).await;
                    }
                    self.positions[log] = found;
                }
                read => break read?,
            }
        };
        let before = self.positions[log];
        if through == before {
            return Ok(0);
        }
        match self.project(&consumer, before, through, &events).await {
            Ok(()) => self.positions[log] = through,
            // Another projector was here; what it wrote need not be written again.
            Err(qiang_store::Error::PositionMoved { found, .. }) => self.positions[log] = found,
            Err(error) => return Err(error.into()),
        }
        self.trim(partition).await;
        // Some of what a log tells is the engine's own affair and no event for the records.
        Ok(usize::try_from(through - before).unwrap_or(usize::MAX))
    }

    /// Writes a batch. Claims of a bucket may come before their sale, which is told by the log of its
    /// first bucket, and that may wait for a sale of this log in turn; then the engine is asked.
    async fn project(
        &self,
        consumer: &str,
        before: u64,
        through: u64,
        events: &[Event],
    ) -> Result<(), qiang_store::Error> {
        let mut asked = None;
        loop {
            let unknown = match self.store.project(consumer, before, through, events).await {
                Err(qiang_store::Error::UnknownSale { sale }) => sale,
                written => return written,
            };
            let state = match asked.replace(unknown) {
                // It was asked about, and is still not there.
                Some(before) if before == unknown => None,
                _ => self.engine.pool_state(unknown).await.ok().flatten(),
            };
            match state {
                Some(state) => self.store.upsert(&[Event::Pool(state)]).await?,
                None => return Err(qiang_store::Error::UnknownSale { sale: unknown }),
            }
        }
    }

    async fn trim(&mut self, partition: u16) {
        let log = usize::from(partition);
        let position = self.positions[log];
        if self.engine.is_shared() && position < self.trimmed[log] + TRIM_EVERY {
            return;
        }
        match self.engine.consumed(partition, position).await {
            Ok(()) => self.trimmed[log] = position,
            Err(error) => tracing::warn!("log not trimmed: {}", crate::chain(&error)),
        }
    }

    /// The records are older than a log reaches back, because they were replaced by older ones or
    /// removed: writes everything the engine still knows, then goes on from there.
    async fn rebuild(&mut self, partition: u16) -> Result<usize, Error> {
        let log = usize::from(partition);
        let position = self.positions[log];
        tracing::warn!(partition, position, "the records are older than the log: rebuilding");
        // What happens from here on is read from the log, and newer.
        let through = self.engine.positions().await?[log];
        let written = everything(&self.engine, &self.store).await?;
        let consumer = consumer(&self.engine, partition);
        match self.store.project(&consumer, position, through, &[]).await {
            Ok(()) => self.positions[log] = through,
            Err(qiang_store::Error::PositionMoved { found, .. }) => self.positions[log] = found,
            Err(error) => return Err(error.into()),
        }
        Ok(written.max(1))
    }
}

impl Trouble {
    fn rests(&self) -> bool {
        self.failed.elapsed() < self.backoff
    }
}

/// Carries over everything a journal at rest holds, which ends at `end`, and says how many events
/// that were.
pub async fn finish_journal(folder: &Path, end: u64, store: &Store) -> Result<usize, Error> {
    let mut log = Log::of_journal(folder);
    let (mut position, mut carried) = (store.position(EMBEDDED).await?, 0);
    if position > end {
        return Err(Error::Ahead { records: position, log: end });
    }
    loop {
        let (events, through) = match log.read(0, position, BATCH).await {
            Err(LogError::Trimmed { .. }) => {
                carried += write_journal(folder, store).await?;
                (Vec::new(), end)
            }
            read => read?,
        };
        if through == position {
            return Ok(carried);
        }
        store.project(EMBEDDED, position, through, &events).await?;
        (position, carried) = (through, carried + events.len());
    }
}

/// Writes everything a journal holds, snapshot first, into records that are older than its log
/// reaches back.
async fn write_journal(folder: &Path, store: &Store) -> Result<usize, Error> {
    let folder = folder.to_owned();
    let (full, mut batches) = tokio::sync::mpsc::channel(2);
    let reading = tokio::task::spawn_blocking(move || {
        let mut batch = Vec::with_capacity(BATCH);
        let read = qiang_engine::offline_log(&folder, &mut |event| {
            batch.push(event);
            if batch.len() == BATCH {
                // Nobody listens any more only when the records failed.
                let _heard = full.blocking_send(std::mem::take(&mut batch));
            }
        });
        let _heard = full.blocking_send(batch);
        read
    });
    let mut written = 0;
    while let Some(events) = batches.recv().await {
        store.upsert(&events).await?;
        written += events.len();
    }
    reading.await.map_err(|_| LogError::Cut)?.map_err(LogError::from)?;
    Ok(written)
}

/// Writes everything an engine knows into the records, where it is newer; says how many events.
async fn everything(engine: &Engine, store: &Store) -> Result<usize, Error> {
    let (mut written, mut skip) = (0, 0);
    loop {
        // Only sales are recorded.
        let pools = engine.pools(Kind::Sale, skip, 100).await?;
        for pool in &pools {
            let state = engine.pool_state(pool.id).await?;
            let state: Vec<Event> = state.into_iter().map(Event::Pool).collect();
            store.upsert(&state).await?;
            written += state.len();
            let mut after = 0;
            loop {
                let claims = engine.claims(pool.id, after, PAGE).await?;
                let Some(last) = claims.last().map(|claim| claim.id.number) else { break };
                let events: Vec<Event> = claims.into_iter().map(Event::Claim).collect();
                store.upsert(&events).await?;
                written += events.len();
                after = last;
            }
            let mut from = 0;
            loop {
                let refunds = engine.refunds(pool.id, from, PAGE as usize).await?;
                let Some((last, _)) = refunds.last() else { break };
                from = last + 1;
                let events: Vec<Event> =
                    refunds.into_iter().map(|(_, refund)| Event::Refund(refund)).collect();
                store.upsert(&events).await?;
                written += events.len();
            }
        }
        if pools.len() < 100 {
            return Ok(written);
        }
        skip += pools.len();
    }
}
