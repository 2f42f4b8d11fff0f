//! Several processes that share an engine: each has a number of its own, and each log is carried
//! into the records by one of them at a time.
//!
//! Both are leases in the database, by its clock. A lease tells the others to wait; it is no lock.
//! A worker that was late and works on does no harm, because the position of a log moves only from
//! where it was. A number is not given back at the end but runs out, so that whoever gets it next
//! comes at least [`LEASE`] later, whatever their clock says.

pub mod view;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
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
/// Numbers there are: as many as fit an id.
const NUMBERS: u16 = 1_024;

/// A number no other process has, for as long as it is renewed.
#[derive(Debug)]
pub struct Node {
    number: u16,
    owner: String,
    ids: Mutex<Snowflake>,
    /// Since when it is known to be ours; `None` is for ever.
    renewed: Option<Mutex<Stopwatch>>,
    gone: AtomicBool,
    /// What the last write to the database showed.
    database: Mutex<Option<Trouble>>,
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
            number: 0,
            owner: random_name()?,
            ids: Mutex::new(Snowflake::new(0)),
            renewed: None,
            gone: AtomicBool::new(false),
            database: Mutex::default(),
        }))
    }

    /// One of many: takes a number, and keeps it until told to stop.
    pub async fn join(store: &Store, stop: CancellationToken) -> Result<Arc<Self>, Error> {
        let (owner, watch) = (random_name()?, Stopwatch::start());
        let number = store.lease_number("node", NUMBERS, &owner, LEASE).await?;
        let number = number.ok_or(Error::Full)?;
        tracing::info!(number, "this process is node {number}");
        let node = Arc::new(Self {
            number,
            owner,
            ids: Mutex::new(Snowflake::new(number)),
            renewed: Some(Mutex::new(watch)),
            gone: AtomicBool::new(false),
            database: Mutex::default(),
        });
        tokio::spawn(Arc::clone(&node).keep(store.clone(), number, stop));
        Ok(node)
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    /// The name it holds leases under.
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// An id nobody has had; `None` while nobody knows whether the number is still ours.
    pub fn next_id(&self, now: Timestamp) -> Option<u64> {
        let fresh = self.renewed.as_ref().is_none_or(|renewed| {
            renewed.lock().unwrap_or_else(PoisonError::into_inner).elapsed() < LEASE
        });
        let ours = fresh && !self.gone.load(Ordering::Acquire);
        ours.then(|| self.ids.lock().unwrap_or_else(PoisonError::into_inner).next(now))
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
                Unheard::Silent => None,
            };
            match refused {
                Some(what) => Trouble { problem: Problem::RefusesWrites, what: what.to_owned() },
                None => Trouble {
                    problem: Problem::Unreachable,
                    what: format!(
                        "the database cannot be reached: check that it runs, the network, and \
                         database.url ({})",
                        crate::chain(error)
                    ),
                },
            }
        });
        *self.database.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    /// A slow answer still counts, until the lease has run out.
    async fn renew(&self, store: &Store, name: &str) -> Result<bool, Unheard> {
        let mut renewing = pin!(store.take_lease(name, &self.owner, LEASE));
        if let Ok(renewed) = tokio::time::timeout(PATIENCE, &mut renewing).await {
            return Ok(renewed?);
        }
        self.heard(Some(&Unheard::Silent));
        match tokio::time::timeout(LEASE.saturating_sub(PATIENCE), renewing).await {
            Ok(renewed) => Ok(renewed?),
            Err(_) => Err(Unheard::Silent),
        }
    }

    async fn keep(self: Arc<Self>, store: Store, number: u16, stop: CancellationToken) {
        let name = format!("node/{number}");
        loop {
            tokio::select! {
                () = tokio::time::sleep(TEND_EVERY) => {}
                () = stop.cancelled() => return,
            }
            let watch = Stopwatch::start();
            let renewed = self.renew(&store, &name).await;
            self.heard(renewed.as_ref().err());
            match renewed {
                Ok(true) => {
                    if let Some(renewed) = &self.renewed {
                        *renewed.lock().unwrap_or_else(PoisonError::into_inner) = watch;
                    }
                }
                Ok(false) => {
                    tracing::error!("node number {number} was taken by another process");
                    self.gone.store(true, Ordering::Release);
                    let what = "another process has taken this one's number: restart it".to_owned();
                    *self.database.lock().unwrap_or_else(PoisonError::into_inner) =
                        Some(Trouble { problem: Problem::Lost, what });
                    return;
                }
                Err(error) => {
                    tracing::warn!("node number not renewed: {}", crate::chain(&error));
                }
            }
        }
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
