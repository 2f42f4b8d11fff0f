//! Several processes that share an engine: each has a number of its own, and each log is carried
//! into the records by one of them at a time.
//!
//! Both are leases in the database, by its clock. A lease tells the others to wait; it is no lock.
//! A worker that was late and works on does no harm, because the position of a log moves only from
//! where it was. A number is not given back at the end but runs out, so that whoever gets it next
//! comes at least [`LEASE`] later, whatever their clock says.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use qiang_core::{Snowflake, Timestamp};
use qiang_engine::Stopwatch;
use qiang_store::Store;
use tokio_util::sync::CancellationToken;

use crate::probes::{Problem, Trouble};

/// How long a process that is not heard of keeps what it has.
pub const LEASE: Duration = Duration::from_secs(6);
/// How often it is heard of.
const TEND_EVERY: Duration = Duration::from_secs(2);
/// After so long without an answer the database counts as silent.
const PATIENCE: Duration = Duration::from_secs(2);
/// What the leases of numbers are called.
const NODE: &str = "node";
/// Numbers there are: as many as fit an id.
const NUMBERS: u16 = 1_024;

/// A number no other process has, for as long as it is renewed.
#[derive(Debug)]
pub struct Node {
    owner: String,
    held: Mutex<Held>,
    /// What the last write to the database showed.
    database: Mutex<Option<Trouble>>,
}

/// The number of a node, and what is made with it.
#[derive(Debug)]
struct Held {
    number: u16,
    ids: Snowflake,
    /// Since when it is known to be ours; `None` is for ever.
    renewed: Option<Stopwatch>,
}

/// Why the database did not do what was asked in time.
#[derive(Debug, thiserror::Error)]
pub enum Unheard {
    /// It failed.
    #[error(transparent)]
    Store(#[from] qiang_store::Error),
    /// It said nothing.
    #[error("it did not answer within {} s", PATIENCE.as_secs())]
    Silent,
    /// All numbers are taken.
    #[error("{NUMBERS} processes share this database already; this one has no number")]
    Full,
}

/// Waits for the database, but not for long.
pub async fn in_time<T>(
    asked: impl Future<Output = Result<T, qiang_store::Error>>,
) -> Result<T, Unheard> {
    match tokio::time::timeout(PATIENCE, asked).await {
        Ok(answered) => Ok(answered?),
        Err(_) => Err(Unheard::Silent),
    }
}

/// Why a process has no number.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database did not give one.
    #[error(transparent)]
    Store(#[from] qiang_store::Error),
    /// All are taken.
    #[error("{NUMBERS} processes share this database already; one more has no number")]
    Full,
    /// The operating system gives no randomness.
    #[error("the operating system gives no random numbers")]
    Random(getrandom::Error),
}

impl Node {
    /// The only process there can be.
    pub fn alone() -> Result<Arc<Self>, Error> {
        Ok(Arc::new(Self {
            owner: random_name()?,
            held: Mutex::new(Held { number: 0, ids: Snowflake::new(0), renewed: None }),
            database: Mutex::default(),
        }))
    }

    /// One of many: takes a number, and keeps it until told to stop.
    pub async fn join(store: &Store, stop: CancellationToken) -> Result<Arc<Self>, Error> {
        let (owner, watch) = (random_name()?, Stopwatch::start());
        let number = store.lease_number(NODE, NUMBERS, &owner, LEASE).await?;
        let number = number.ok_or(Error::Full)?;
        tracing::info!(number, "this process is node {number}");
        let node = Arc::new(Self {
            owner,
            held: Mutex::new(Held::new(number, watch)),
            database: Mutex::default(),
        });
        tokio::spawn(Arc::clone(&node).keep(store.clone(), stop));
        Ok(node)
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.held().number
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name it holds leases under.
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// An id nobody has had; `None` while nobody knows whether the number is still ours.
    pub fn next_id(&self, now: Timestamp) -> Option<u64> {
        let mut held = self.held();
        let is_ours = held.renewed.as_ref().is_none_or(|renewed| renewed.elapsed() < LEASE);
        is_ours.then(|| held.ids.next(now))
    }

    /// What is wrong with the database, as far as this process has tried to write to it.
    #[must_use]
    pub fn database_trouble(&self) -> Option<Trouble> {
        self.database.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes what came of a write to the database.
    pub fn heard(&self, error: Option<&Unheard>) {
        let trouble = error.map(|error| {
            let refused = match error {
                Unheard::Store(error) => error.refuses_writes(),
                Unheard::Silent | Unheard::Full => None,
            };
            match refused {
                Some(what) => Trouble { problem: Problem::RefusesWrites, what: what.to_owned() },
                None => Trouble {
                    problem: Problem::Unreachable,
                    what: format!(
                        "the database cannot be reached: check that it runs, the network, and \
                         database.url ({})",
                        qiang_engine::chain(error)
                    ),
                },
            }
        });
        *self.database.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    /// Waits for the database for as long as the lease lasts; a slow answer still counts.
    async fn in_lease<T>(
        &self,
        asked: impl Future<Output = Result<T, qiang_store::Error>>,
    ) -> Result<T, Unheard> {
        let mut asked = pin!(asked);
        if let Ok(answered) = tokio::time::timeout(PATIENCE, &mut asked).await {
            return Ok(answered?);
        }
        self.heard(Some(&Unheard::Silent));
        match tokio::time::timeout(LEASE.saturating_sub(PATIENCE), asked).await {
            Ok(answered) => Ok(answered?),
            Err(_) => Err(Unheard::Silent),
        }
    }

    /// Renews the number. If the database was away for so long that another process has it by now,
    /// takes another one.
    async fn renew(&self, store: &Store) -> Result<(), Unheard> {
        let (number, watch) = (self.number(), Stopwatch::start());
        let name = format!("{NODE}/{number}");
        if self.in_lease(store.take_lease(&name, &self.owner, LEASE)).await? {
            self.held().renewed = Some(watch);
            return Ok(());
        }
        let watch = Stopwatch::start();
        let other = self.in_lease(store.lease_number(NODE, NUMBERS, &self.owner, LEASE)).await?;
        let other = other.ok_or(Unheard::Full)?;
        tracing::warn!(
            "number {number} was taken by another process: this one is node {other} now"
        );
        *self.held() = Held::new(other, watch);
        Ok(())
    }

    async fn keep(self: Arc<Self>, store: Store, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(TEND_EVERY) => {}
                () = stop.cancelled() => return,
            }
            let renewed = self.renew(&store).await;
            self.heard(renewed.as_ref().err());
            if let Err(error) = renewed {
                tracing::warn!("node number not renewed: {}", qiang_engine::chain(&error));
            }
        }
    }
}

impl Held {
    fn new(number: u16, renewed: Stopwatch) -> Self {
        Self { number, ids: Snowflake::new(number), renewed: Some(renewed) }
    }
}

/// The logs that this process follows for a consumer.
#[derive(Debug)]
pub struct Share {
    store: Store,
    owner: String,
    consumer: &'static str,
    partitions: u16,
    held: BTreeMap<u16, Stopwatch>,
    tended: Option<Stopwatch>,
}

impl Share {
    /// Nothing yet.
    #[must_use]
    pub fn new(store: Store, owner: &str, consumer: &'static str, partitions: u16) -> Self {
        Self {
            store,
            owner: owner.into(),
            consumer,
            partitions,
            held: BTreeMap::new(),
            tended: None,
        }
    }

    /// The logs that are surely ours at this moment.
    pub fn held(&self) -> impl Iterator<Item = u16> + '_ {
        self.held.iter().filter(|(_, since)| since.elapsed() < LEASE).map(|(log, _)| *log)
    }

    /// Renews what is held, gives up what is more than our share, and takes what is free.
    pub async fn tend(&mut self) -> Result<(), qiang_store::Error> {
        if self.tended.is_some_and(|tended| tended.elapsed() < TEND_EVERY) {
            return Ok(());
        }
        self.tended = Some(Stopwatch::start());
        self.store.take_lease(&self.worker(&self.owner), &self.owner, LEASE).await?;
        let workers = self.store.held_leases(&self.worker("")).await?.len().max(1);
        let fair = usize::from(self.partitions).div_ceil(workers);
        for log in self.held.keys().copied().collect::<Vec<_>>() {
            let watch = Stopwatch::start();
            if self.held.len() > fair {
                self.store.give_up_lease(&self.name(log), &self.owner).await?;
                self.held.remove(&log);
            } else if self.store.take_lease(&self.name(log), &self.owner, LEASE).await? {
                self.held.insert(log, watch);
            } else {
                self.held.remove(&log);
            }
        }
        if self.held.len() < fair {
            let taken = self.store.held_leases(&format!("log/{}/", self.consumer)).await?;
            let taken: Vec<&str> = taken.iter().map(|(name, _)| name.as_str()).collect();
            let free = (0..self.partitions).filter(|log| !taken.contains(&&*self.name(*log)));
            for log in free.collect::<Vec<_>>() {
                if self.held.len() >= fair {
                    break;
                }
                let watch = Stopwatch::start();
                if self.store.take_lease(&self.name(log), &self.owner, LEASE).await? {
                    self.held.insert(log, watch);
                }
            }
        }
        Ok(())
    }

    /// Leaves everything to others at once.
    pub async fn give_up(&mut self) {
        for log in std::mem::take(&mut self.held).into_keys() {
            // What cannot be given up runs out.
            let _later = self.store.give_up_lease(&self.name(log), &self.owner).await;
        }
        let _later = self.store.give_up_lease(&self.worker(&self.owner), &self.owner).await;
    }

    fn name(&self, log: u16) -> String {
        format!("log/{}/{log}", self.consumer)
    }

    fn worker(&self, owner: &str) -> String {
        format!("worker/{}/{owner}", self.consumer)
    }
}

fn random_name() -> Result<String, Error> {
    Ok(format!("{:016x}", getrandom::u64().map_err(Error::Random)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    #[tokio::test]
    async fn a_node_whose_number_was_taken_goes_on_with_another() {
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite:{}", folder.path().join("records.db").display());
        let store = Store::open(&url).await.expect("a database");
        store.migrate().await.expect("tables");
        let stop = CancellationToken::new();
        stop.cancel();
        let node = Node::join(&store, stop).await.expect("a number");
        assert_eq!(node.number(), 0);
        // The database was away until the lease had run out, and somebody else came first.
        store.give_up_lease("node/0", node.owner()).await.expect("given up");
        assert!(store.take_lease("node/0", "somebody", LEASE).await.expect("asked"));
        node.renew(&store).await.expect("another number");
        assert_eq!(node.number(), 1);
        assert!(node.next_id(NOW).is_some());
        node.renew(&store).await.expect("renewed");
        assert_eq!(node.number(), 1);
        store.close().await;
    }
}
