//! One engine, wherever it decides. Backends are a closed set, chosen once at start; nobody above
//! asks which one it is, except where one has something the others lack.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use qiang_core::{
    Claim, ClaimId, Command, Event, Kind, Opened, PoolId, PoolState, PoolView, Refund, Reply,
};

use crate::{Error, JournalError, LogError, LogReader, Stats, embedded, redis, sql};

/// How often a shared engine is looked at for something new: others may have brought it.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A handle to an engine; all clones are the same one.
#[derive(Debug, Clone)]
pub enum Engine {
    /// In this process, with a journal in a folder.
    Embedded(embedded::Engine),
    /// On Redis, shared by many processes.
    Redis(redis::Engine),
    /// On a database, shared by many processes.
    Sql(sql::Engine),
}

macro_rules! each {
    ($self:ident, $engine:ident => $does:expr) => {
        match $self {
            Engine::Embedded($engine) => $does,
            Engine::Redis($engine) => $does,
            Engine::Sql($engine) => $does,
        }
    };
}

/// Waits for an engine's answer. Asking a server takes a future of some kilobytes, which would have
/// to be carried along, and copied, with every question to the engine that needs none.
macro_rules! wait {
    ($self:ident, $engine:ident => $asked:expr) => {
        match $self {
            Engine::Embedded($engine) => $asked.await,
            Engine::Redis($engine) => Box::pin($asked).await,
            Engine::Sql($engine) => Box::pin($asked).await,
        }
    };
}

impl Engine {
    /// Decides a command.
    pub async fn ask(&self, command: Command) -> Result<Reply, Error> {
        wait!(self, engine => engine.ask(command))
    }

    /// Decides commands in their order. An engine of this process decides them with nothing in
    /// between; on a shared one, others may come between any two.
    pub async fn ask_many(&self, commands: Vec<Command>) -> Vec<Result<Reply, Error>> {
        if let Self::Embedded(engine) = self {
            let count = commands.len();
            return match engine.ask_many(commands).await {
                Ok(replies) => replies.into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error); count],
            };
        }
        // Claims get into the line of their pool one after the other, and so do others. Between a
        // release and a claim that is not enough: a claim may be refused from memory, without
        // standing in line. So each kind waits for the one before.
        let is_claim = |command: &Command| matches!(command, Command::Claim(_));
        let mut replies = Vec::with_capacity(commands.len());
        let mut commands = commands.into_iter().peekable();
        while let Some(kind) = commands.peek().map(is_claim) {
            let alike = std::iter::from_fn(|| commands.next_if(|next| is_claim(next) == kind));
            replies.extend(join_all(alike.map(|command| self.ask(command))).await);
        }
        replies
    }

    /// A pool as it is now.
    pub async fn pool(&self, id: PoolId) -> Result<Option<PoolView>, Error> {
        wait!(self, engine => engine.pool(id))
    }

    /// Pools of a kind that were opened before `before`, newest first, at most `max`. Fewer than
    /// `max` does not say that there are no older ones; none does.
    pub async fn pools(
        &self,
        kind: Kind,
        before: Option<Opened>,
        max: usize,
    ) -> Result<Vec<PoolView>, Error> {
        wait!(self, engine => engine.pools(kind, before, max))
    }

    /// A pool as its last change left it.
    pub async fn pool_state(&self, id: PoolId) -> Result<Option<PoolState>, Error> {
        wait!(self, engine => engine.pool_state(id))
    }

    /// A claim as it is now.
    pub async fn claim_view(&self, id: ClaimId) -> Result<Option<Claim>, Error> {
        wait!(self, engine => engine.claim_view(id))
    }

    /// Claims of a pool behind number `after`, by rising number; empty only at the end.
    pub async fn claims(&self, pool: PoolId, after: u32, max: u32) -> Result<Vec<Claim>, Error> {
        wait!(self, engine => engine.claims(pool, after, max))
    }

    /// Refunds of a pool from place `from` on, at most `max`, each with its place.
    pub async fn refunds(
        &self,
        pool: PoolId,
        from: usize,
        max: usize,
    ) -> Result<Vec<(usize, Refund)>, Error> {
        wait!(self, engine => engine.refunds(pool, from, max))
    }

    /// Makes the engine look at the clock: when this returns, everything overdue is released.
    pub async fn expire_due(&self) -> Result<(), Error> {
        wait!(self, engine => engine.expire_due())
    }

    /// What the engine counts about itself.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        each!(self, engine => engine.stats())
    }

    /// How many answers are waited for.
    #[must_use]
    pub fn queue_depth(&self) -> usize {
        each!(self, engine => engine.queue_depth())
    }

    /// How many logs it writes; they are numbered from 0.
    #[must_use]
    pub fn partitions(&self) -> u16 {
        match self {
            Self::Embedded(_) => 1,
            Self::Redis(engine) => engine.partitions(),
            Self::Sql(engine) => engine.partitions(),
        }
    }

    /// For each log the position of its last durable event.
    pub async fn positions(&self) -> Result<Vec<u64>, Error> {
        match self {
            Self::Embedded(engine) => Ok(vec![engine.position().await?]),
            Self::Redis(engine) => engine.positions().await,
            Self::Sql(engine) => engine.positions().await,
        }
    }

    /// The same, where it can be told: `None` for a log whose server does not answer. Fails when no
    /// log can be asked.
    pub async fn ends(&self) -> Result<Vec<Option<u64>>, Error> {
        match self {
            Self::Redis(engine) => engine.ends().await,
            engine => Ok(engine.positions().await?.into_iter().map(Some).collect()),
        }
    }

    /// Whether other processes may work with the same state.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        !matches!(self, Self::Embedded(_))
    }

    /// A reader of its logs.
    #[must_use]
    pub fn log(&self) -> Log {
        match self {
            Self::Embedded(engine) => Log::of_journal(engine.folder()),
            Self::Redis(engine) => Log::Redis(engine.clone()),
            Self::Sql(engine) => Log::Sql(engine.clone()),
        }
    }

    /// Returns when something may be in the logs behind these positions; it may be too early, and
    /// never much too late.
    pub async fn news(&self, positions: &[u64]) {
        match self {
            Self::Embedded(engine) => {
                let after = positions.first().copied().unwrap_or(0);
                // The engine outlives whoever follows it.
                let mut durable = engine.durable();
                let _gone = durable.wait_for(|seq| *seq > after).await;
            }
            Self::Redis(_) | Self::Sql(_) => tokio::time::sleep(LOOK_EVERY).await,
        }
    }

    /// Tells that every consumer has passed a position: what lies before may be dropped.
    pub async fn consumed(&self, partition: u16, through: u64) -> Result<(), LogError> {
        match self {
            Self::Embedded(engine) => {
                engine.consumed(through);
                Ok(())
            }
            Self::Redis(engine) => engine.trim(partition, through).await,
            Self::Sql(engine) => engine.trim(partition, through).await,
        }
    }

    /// Why it decides nothing, or not everything, if so.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        match self {
            Self::Embedded(engine) => engine.poisoned().map(str::to_owned),
            Self::Redis(engine) => {
                let lost = engine.lost();
                let first = lost.values().next()?;
                Some(match lost.len() {
                    1 => first.clone(),
                    count => format!("{first} (and {} more)", count - 1),
                })
            }
            Self::Sql(_) => None,
        }
    }

    /// Why it stopped for good, if it did.
    #[must_use]
    pub fn poisoned(&self) -> Option<&str> {
        match self {
            Self::Embedded(engine) => engine.poisoned(),
            Self::Redis(_) | Self::Sql(_) => None,
        }
    }

    /// Returns when the engine decides nothing any more: it was shut down, or could not go on.
    pub async fn ended(&self) {
        match self {
            Self::Embedded(engine) => engine.ended().await,
            Self::Redis(_) => std::future::pending().await,
            Self::Sql(engine) => engine.ended().await,
        }
    }

    /// The folder of its journal, if it has one.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        match self {
            Self::Embedded(engine) => Some(engine.folder()),
            Self::Redis(_) | Self::Sql(_) => None,
        }
    }

    /// Takes nothing more, answers everything taken, and gives free what it holds.
    pub async fn shut_down(&self) {
        match self {
            Self::Embedded(engine) => {
                let engine = engine.clone();
                // A panic in there was reported when it happened.
                let _ended = tokio::task::spawn_blocking(move || engine.shut_down()).await;
            }
            Self::Redis(_) => {}
            Self::Sql(engine) => engine.shut_down().await,
        }
    }
}

/// Terms are checked by whoever opens a pool, so that people hear what is wrong with them.
pub(crate) fn assert_terms_are_sound(command: &Command) {
    if let Command::Open { terms, .. } = command {
        assert_eq!(terms.check(), Ok(()), "terms are checked before they get here");
    }
}

/// Reads the logs of an engine, each from any position on.
#[derive(Debug)]
pub enum Log {
    /// A journal in a folder, read beside whoever writes to it.
    Journal {
        /// Which folder.
        folder: PathBuf,
        /// The reader, while nobody reads.
        reader: Mutex<Option<LogReader>>,
    },
    /// Streams in Redis.
    Redis(redis::Engine),
    /// A table.
    Sql(sql::Engine),
}

impl Log {
    /// The journal in a folder, whether or not somebody writes to it.
    #[must_use]
    pub fn of_journal(folder: &Path) -> Self {
        Self::Journal { folder: folder.to_owned(), reader: Mutex::default() }
    }

    /// The events of a partition behind position `after`, about `max` of them, and the position of
    /// the last. The log ends there if that is where the reader stood.
    pub async fn read(
        &mut self,
        partition: u16,
        after: u64,
        max: usize,
    ) -> Result<(Vec<Event>, u64), LogError> {
        match self {
            Self::Journal { folder, reader } => {
                let kept = reader.get_mut().unwrap_or_else(PoisonError::into_inner);
                let mut own = match kept.take() {
                    Some(reader) => reader,
                    None => LogReader::open(folder)?,
                };
                let read = tokio::task::spawn_blocking(move || {
                    let read = own.read(after, max);
                    (own, read)
                });
                let (own, read) = read.await.map_err(|_| LogError::Cut)?;
                *kept = Some(own);
                read.map_err(|error| match error {
                    JournalError::Trimmed { after, oldest } => LogError::Trimmed { after, oldest },
                    error => error.into(),
                })
            }
            Self::Redis(engine) => engine.read_log(partition, after, max).await,
            Self::Sql(engine) => engine.read_log(partition, after, max).await,
        }
    }
}
