//! A consumer of the logs: reads them, hands batches to a [`Sink`], and remembers how far it has
//! come in the transaction in which the sink writes.
//!
//! It never skips and never gives up: while a batch cannot be written it waits and tries again. A
//! log is trimmed only behind all registered consumers. Of several processes that share an engine
//! each follows its share of the logs; one that is no worker only looks how far the others have
//! come.
//!
//! A new consumer is a type that implements [`Sink`] and a call of [`start`].

mod follower;
mod logs;
mod own_thread;
mod pacing;
mod progress;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use qiang_core::Event;
use qiang_engine::{Engine, Log, LogError, Stopwatch};
use qiang_store::{Begin, Blame, Store};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::follower::{Follower, Tools};
pub use self::logs::EMBEDDED;
pub use self::logs::log_name;
pub use self::pacing::BATCH;
use self::pacing::{Backoff, OTHERS_EVERY, OTHERS_HURRIED, REST, Rush};
pub use self::progress::Progress;
use self::progress::Shared;
use crate::nodes::Share;
use crate::workers;

/// What a consumer does with the events.
pub trait Sink: std::fmt::Debug + Send + Sync + 'static {
    /// The name it is registered under.
    const NAME: &'static str;
    /// Where it begins when it is new.
    const BEGIN: Begin;

    /// Writes a batch and moves the position from `after` to `through`, in one transaction: by
    /// [`Store::advance`].
    fn write(&self, batch: &Batch<'_>) -> impl Future<Output = Result<(), Error>> + Send;

    /// Makes anew what would come of events that no longer are in the log, from what the engine
    /// itself knows, and moves the position to `end`; says where it stands then.
    fn recover(&self, gap: &Gap<'_>) -> impl Future<Output = Result<u64, Error>> + Send;
}

/// Some events of a log.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    /// The name of the log.
    pub log: &'a str,
    /// Where the consumer stands.
    pub after: u64,
    /// The position of the last event.
    pub through: u64,
    /// The events in between. Some of what a log holds is the engine's own affair and not here.
    pub events: &'a [Event],
}

/// A log that does not reach back to where the consumer stands: the consumer begins with a rebuild,
/// what it wrote was replaced by an older copy, or a shared engine was repaired.
#[derive(Debug, Clone, Copy)]
pub struct Gap<'a> {
    /// The name of the log.
    pub log: &'a str,
    /// Where the consumer stands.
    pub after: u64,
    /// Where the log begins.
    pub oldest: u64,
    /// Where it ended just now.
    pub end: u64,
}

/// Which logs a process follows.
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
    /// What is in the logs by then is consumed for so long; the rest waits for the next start.
    pub grace: Duration,
}

/// Follows an engine with a store of its own until told to stop; then until its logs are empty, a
/// batch fails or the grace is over.
pub async fn start<S: Sink>(
    engine: Engine,
    part: Part,
    store: impl Future<Output = Result<Store, qiang_store::Error>> + Send + 'static,
    stop: Stop,
    sink: impl FnOnce(&Engine, &Store) -> S + Send + 'static,
) -> Result<(Progress, JoinHandle<()>), Error> {
    if !engine.is_shared() {
        return own_thread::start(engine, part, store, stop, sink).await;
    }
    let store = store.await?;
    let sink = sink(&engine, &store);
    let consumer = Consumer::new(engine, store.clone(), sink).await?;
    let (progress, following) = consumer.follow(part, stop);
    let work = async move {
        following.await;
        store.close().await;
    };
    Ok((progress, tokio::spawn(work)))
}

/// Why a consumer cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The log cannot be read.
    #[error("the log could not be read")]
    Log(#[from] LogError),
    /// What was made of the events cannot be written.
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
    /// The consumer's thread could not be started.
    #[error("a thread could not be started")]
    Thread(#[source] std::io::Error),
    /// A bug of ours: nothing of the batch was written.
    #[error("it panicked: {words}")]
    Panicked {
        /// What the panic said.
        words: String,
    },
    /// The consumer's thread ended before it began.
    #[error("a thread ended before it began")]
    Gone,
}

impl Error {
    /// Whose fault it is. What is not of the records is of whatever the events come from.
    #[must_use]
    pub fn blame(&self) -> Blame {
        match self {
            Self::Store(error) => error.blame(),
            Self::Log(_) | Self::Engine(_) | Self::Ahead { .. } => Blame::Infrastructure,
            Self::Thread(_) | Self::Panicked { .. } | Self::Gone => Blame::Unknown,
        }
    }

    /// Whether it is an event's own fault: then it fails again, whoever waits.
    #[must_use]
    pub fn is_of_event(&self) -> bool {
        self.blame() == Blame::Data
    }

    /// Whether claims came before their sale, which another log tells soon.
    fn is_early(&self) -> bool {
        matches!(self, Self::Store(qiang_store::Error::UnknownSale { .. }))
    }
}

/// Carries events from the logs of an engine to one sink.
#[derive(Debug)]
pub struct Consumer<S> {
    tools: Tools<S>,
    log: Log,
    followers: Vec<Follower>,
    shared: Arc<Shared>,
}

impl<S: Sink> Consumer<S> {
    /// Registers the sink, if need be, and stands where it stopped.
    pub async fn new(engine: Engine, store: Store, sink: S) -> Result<Self, Error> {
        store.register_consumer(S::NAME, S::BEGIN).await?;
        let followers =
            (0..engine.partitions()).map(|partition| Follower::new(&engine, partition)).collect();
        let log = engine.log();
        let tools = Tools { engine, store, sink };
        let mut new = Self { tools, log, followers, shared: Arc::default() };
        new.look_at_store().await?;
        logs::check_end(&new.tools.engine, new.followers[0].position)?;
        Ok(new)
    }

    /// Consumes everything the logs hold by now, and says how many events that were.
    pub async fn finish(mut self) -> Result<u64, Error> {
        let mut consumed = 0;
        loop {
            let (before, mut early) = (consumed, None);
            for follower in &mut self.followers {
                loop {
                    match follower.step(&mut self.log, &self.tools).await {
                        Ok(0) => break,
                        Ok(events) => consumed += events,
                        Err(error) if self.tools.engine.is_shared() && error.is_early() => {
                            early = Some(error);
                            break;
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
            match early {
                None => return Ok(consumed),
                Some(error) if consumed == before => return Err(error),
                Some(_) => {}
            }
        }
    }

    /// Consumes what an engine decides until told to stop, and then until its logs are empty, a
    /// batch fails or the grace is over.
    pub fn follow(mut self, part: Part, stop: Stop) -> (Progress, impl Future<Output = ()> + Send) {
        let (reached, positions) = watch::channel(self.positions());
        let shared = Arc::clone(&self.shared);
        let progress = Progress { positions, shared: Arc::clone(&shared) };
        let work = async move {
            let mut share = match &part {
                Part::Share(owner) => {
                    let logs = self.tools.engine.partitions();
                    Some(Share::new(self.tools.store.clone(), owner, S::NAME, logs))
                }
                Part::All | Part::None => None,
            };
            let (mut backoff, mut looked) = (Backoff::of_all(), Stopwatch::start());
            let (mut told, mut rush) = (None::<Stopwatch>, Rush::default());
            loop {
                let worked = Stopwatch::start();
                let round = AssertUnwindSafe(self.round(&part, share.as_mut(), &mut looked));
                // What a round that panics had begun to write is not committed, so the next one does it.
                let consumed = round.catch_unwind().await.unwrap_or_else(|panic| {
                    Err(Error::Panicked { words: workers::words_of(&*panic) })
                });
                let here = self.positions();
                reached.send_replace(here.clone());
                shared.tell(match &consumed {
                    Ok(_) => self.trouble(),
                    Err(error) => {
                        let error = qiang_engine::chain(error);
                        shared.failed();
                        tracing::error!("{} waits: {error}", S::NAME);
                        Some(error)
                    }
                });
                if stop.token.is_cancelled() {
                    let told = told.get_or_insert_with(Stopwatch::start);
                    if matches!(consumed, Ok(0) | Err(_)) {
                        break;
                    }
                    if told.elapsed() >= stop.grace {
                        let name = S::NAME;
                        tracing::warn!(?here, "{name} lags behind and goes on at the next start");
                        break;
                    }
                }
                let wait = async {
                    let Ok(events) = consumed else {
                        return tokio::time::sleep(backoff.failed().left()).await;
                    };
                    backoff.succeeded();
                    if events < BATCH as u64 {
                        rush = Rush::default();
                        self.rest(&part, &here).await;
                    } else if let Some(rest) = rush.rest(self.pending(), worked.elapsed())
                        && !shared.is_wanted(&here)
                    {
                        let _cut_short = tokio::time::timeout(rest, shared.raised.notified()).await;
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
        (progress, work)
    }

    /// Waits for something to do.
    async fn rest(&self, part: &Part, here: &[u64]) {
        let shared = &self.shared;
        match part {
            Part::None => {
                let pause = if shared.is_wanted(here) { OTHERS_HURRIED } else { OTHERS_EVERY };
                let _cut_short = tokio::time::timeout(pause, shared.raised.notified()).await;
            }
            Part::All => {
                if let Some(until) = self.followers[0].waits_until() {
                    return tokio::time::sleep(until.left()).await;
                }
                self.tools.engine.news(here).await;
                if !shared.is_wanted(here) && self.pending() < BATCH as u64 {
                    let _cut_short = tokio::time::timeout(REST, shared.raised.notified()).await;
                }
            }
            Part::Share(_) => {
                tokio::select! {
                    () = self.tools.engine.news(here) => {}
                    () = shared.raised.notified() => {}
                }
            }
        }
    }

    /// One batch of every log that has something new, and says how many events that were.
    async fn round(
        &mut self,
        part: &Part,
        share: Option<&mut Share>,
        looked: &mut Stopwatch,
    ) -> Result<u64, Error> {
        let own: Vec<u16> = match share {
            Some(share) => {
                share.tend().await?;
                share.held().collect()
            }
            None if matches!(part, Part::All) => (0..self.tools.engine.partitions()).collect(),
            None => Vec::new(),
        };
        let wanted = self.shared.is_wanted(&self.positions());
        if own.len() < self.followers.len() && (wanted || looked.elapsed() >= OTHERS_EVERY) {
            self.look_at_store().await?;
            *looked = Stopwatch::start();
        }
        let (mut ends, mut consumed) = (logs::ends(&self.tools.engine).await?, 0);
        for follower in &mut self.followers {
            let end = ends[usize::from(follower.partition)];
            if !own.contains(&follower.partition) || end == Some(follower.position) {
                follower.calm_down();
                continue;
            }
            if follower.waits_until().is_some() {
                continue;
            }
            let stepped = match end {
                Some(_) => follower.step(&mut self.log, &self.tools).await,
                None => Err(Error::Engine(qiang_engine::Error::Unavailable)),
            };
            match stepped {
                Ok(events) => consumed += events,
                Err(error) if self.tools.engine.is_shared() && error.is_early() => {
                    tracing::debug!(log = follower.name(), "claims came before their sale");
                }
                // One log that cannot be consumed keeps no other from it.
                Err(error) => {
                    let why = qiang_engine::chain(&error);
                    self.shared.failed();
                    let message = format!("{} waits: log {}: {why}", S::NAME, follower.name());
                    if follower.fail(why) {
                        tracing::error!("{message}");
                    }
                    // Of a server that stopped answering no other log is waited for.
                    ends = logs::ends(&self.tools.engine).await?;
                }
            }
        }
        Ok(consumed)
    }

    fn positions(&self) -> Vec<u64> {
        self.followers.iter().map(|follower| follower.position).collect()
    }

    fn pending(&self) -> u64 {
        logs::pending(&self.tools.engine, self.followers[0].position)
    }

    /// What is wrong with the logs, if something is.
    fn trouble(&self) -> Option<String> {
        let mut troubles =
            self.followers.iter().filter_map(|one| Some((one.name(), one.trouble()?)));
        let (log, first) = troubles.next()?;
        Some(match troubles.count() {
            0 => format!("log {log}: {first}"),
            more => format!("log {log}: {first} (and {more} more)"),
        })
    }

    /// Reads how far the consumer is, which others may have brought further.
    async fn look_at_store(&mut self) -> Result<(), Error> {
        let found = self.tools.store.positions(S::NAME).await?;
        for follower in &mut self.followers {
            if let Some((_, seq)) = found.iter().find(|(log, _)| log == follower.name()) {
                follower.found_at(&self.tools.engine, *seq);
            }
        }
        Ok(())
    }
}
