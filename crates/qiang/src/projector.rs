//! Carries what the engine decided into the records: reads the log, writes batches, remembers
//! its position in the same transaction.
//!
//! It never skips and never gives up: while the records cannot be written it waits and tries
//! again. The log is trimmed only behind it. It works on a thread of low priority with database
//! connections of its own, so that in a rush the processor belongs to the claims.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use qiang_core::Event;
use qiang_engine::{Engine, JournalError, LogReader};
use qiang_store::Store;
use tokio::sync::{Notify, oneshot, watch};
use tokio_util::sync::CancellationToken;

/// The name its position is kept under.
pub const CONSUMER: &str = "records";
/// Events written in one transaction, give or take the engine's last batch.
const BATCH: usize = 8_192;
/// A rest behind a small batch lets the next one grow: the claim path needs processor and disk
/// more than the records do. Whoever waits for the records cuts it short.
const REST: Duration = Duration::from_millis(200);
/// As far below normal as it goes: in a rush the records wait, and catch up after it.
const NICENESS: i32 = 19;
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// How far the records have come.
#[derive(Debug, Clone)]
pub struct Projection {
    position: watch::Receiver<u64>,
    trouble: Arc<Trouble>,
    hurry: Arc<Hurry>,
}

/// How far somebody waits for the records to come.
#[derive(Debug, Default)]
struct Hurry {
    position: AtomicU64,
    raised: Notify,
}

/// What goes wrong with the records.
#[derive(Debug, Default)]
struct Trouble {
    failures: AtomicU64,
    /// Why the last batch could not be written; nothing once one could.
    present: Mutex<Option<String>>,
}

impl Projection {
    /// The position of the last event that is in the records.
    #[must_use]
    pub fn position(&self) -> u64 {
        *self.position.borrow()
    }

    /// Waits until the records hold everything up to `position`.
    pub async fn reached(&self, position: u64) {
        let mut here = self.position.clone();
        if *here.borrow() < position {
            self.hurry.position.fetch_max(position, Ordering::AcqRel);
            self.hurry.raised.notify_one();
        }
        if here.wait_for(|reached| *reached >= position).await.is_err() {
            // The projector is gone, and nothing will ever be reached; whoever waits has a limit.
            std::future::pending::<()>().await;
        }
    }

    /// How often a batch could not be written.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.trouble.failures.load(Ordering::Relaxed)
    }

    /// Why nothing can be written at present, if so.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        if self.position.has_changed().is_err() {
            return Some("the projector has ended; restart the server".into());
        }
        self.trouble.present.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Trouble {
    fn tell(&self, error: Option<String>) {
        if let Some(error) = &error {
            self.failures.fetch_add(1, Ordering::Relaxed);
            tracing::error!("projection waits: {error}");
        }
        *self.present.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }
}

/// Follows an engine on a thread of its own, with a store of its own, until told to stop; then
/// until its log is empty or a batch fails.
pub async fn start(
    engine: Engine,
    store: impl Future<Output = Result<Store, qiang_store::Error>> + Send + 'static,
    stop: CancellationToken,
) -> Result<(Projection, JoinHandle<()>), Error> {
    let (started, ready) = oneshot::channel();
    let work = move || {
        if let Err(error) = rustix::process::nice(NICENESS) {
            tracing::warn!(%error, "the projector keeps its priority");
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => return drop(started.send(Err(Error::Thread(error)))),
        };
        runtime.block_on(async {
            let opened = async {
                let store = store.await?;
                let projector = Projector::new(engine.folder(), store.clone()).await?;
                let (records, log) = (projector.position, *engine.durable().borrow());
                if records > log {
                    Err(Error::Ahead { records, log })
                } else {
                    Ok((projector, store))
                }
            };
            match opened.await {
                Err(error) => drop(started.send(Err(error))),
                Ok((projector, store)) => {
                    let (projection, following) = projector.follow(engine, stop);
                    drop(started.send(Ok(projection)));
                    following.await;
                    store.close().await;
                }
            }
        });
    };
    let thread = std::thread::Builder::new().name("qiang-projector".into()).spawn(work);
    let thread = thread.map_err(Error::Thread)?;
    match ready.await {
        Ok(projection) => Ok((projection?, thread)),
        Err(_) => Err(Error::Gone),
    }
}

/// Why projecting cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The log cannot be read.
    #[error("the log could not be read")]
    Log(#[from] JournalError),
    /// The records cannot be written.
    #[error("the records could not be written")]
    Store(#[from] qiang_store::Error),
    /// The thread that reads the log is gone.
    #[error("reading the log was cut off")]
    Cut(#[from] tokio::task::JoinError),
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

/// Carries events from one log to one store.
#[derive(Debug)]
pub struct Projector {
    folder: PathBuf,
    store: Store,
    reader: Option<LogReader>,
    position: u64,
}

impl Projector {
    /// Stands where the records say it stopped. `folder` is the journal's.
    pub async fn new(folder: &Path, store: Store) -> Result<Self, Error> {
        let position = store.position(CONSUMER).await?;
        let reader = Some(LogReader::open(folder)?);
        Ok(Self { folder: folder.to_owned(), store, reader, position })
    }

    /// Carries over everything a log at rest holds, and says how many events that were.
    pub async fn finish(mut self) -> Result<usize, Error> {
        let mut carried = 0;
        loop {
            match self.step().await? {
                0 => return Ok(carried),
                events => carried += events,
            }
        }
    }

    /// Carries over what an engine decides until told to stop, and then until its log is empty
    /// or a batch fails.
    fn follow(
        mut self,
        engine: Engine,
        stop: CancellationToken,
    ) -> (Projection, impl Future<Output = ()>) {
        engine.consumed(self.position);
        let (reached, position) = watch::channel(self.position);
        let (trouble, hurry) = (Arc::<Trouble>::default(), Arc::<Hurry>::default());
        let projection =
            Projection { position, trouble: Arc::clone(&trouble), hurry: Arc::clone(&hurry) };
        let work = async move {
            let mut durable = engine.durable();
            let mut backoff = FIRST_BACKOFF;
            loop {
                let stepped = self.step().await;
                engine.consumed(self.position);
                reached.send_replace(self.position);
                let error = stepped.as_ref().err().map(|error| crate::chain(error));
                trouble.tell(error);
                let wait = async {
                    if stepped.is_err() {
                        tokio::time::sleep(backoff).await;
                        backoff = (backoff * 2).min(MAX_BACKOFF);
                        return;
                    }
                    backoff = FIRST_BACKOFF;
                    // The engine outlives its projector, so that there is always somebody to wait for.
                    drop(durable.wait_for(|seq| *seq > self.position).await);
                    let pending = durable.borrow().saturating_sub(self.position);
                    let wanted = hurry.position.load(Ordering::Acquire) > self.position;
                    if pending < BATCH as u64 && !wanted {
                        let _cut_short = tokio::time::timeout(REST, hurry.raised.notified()).await;
                    }
                };
                let done = matches!(stepped, Ok(0) | Err(_)) && stop.is_cancelled();
                if done {
                    return;
                }
                tokio::select! {
                    () = wait => {}
                    () = stop.cancelled() => {}
                }
            }
        };
        (projection, work)
    }

    /// Carries one batch over and says how many events it had.
    async fn step(&mut self) -> Result<usize, Error> {
        let (events, through) = match self.read().await {
            Err(Error::Log(JournalError::Trimmed { .. })) => return self.rebuild().await,
            read => read?,
        };
        if events.is_empty() {
            return Ok(0);
        }
        match self.store.project(CONSUMER, self.position, through, &events).await {
            Ok(()) => self.position = through,
            // Another projector was here; what it wrote need not be written again.
            Err(qiang_store::Error::PositionMoved { found, .. }) => self.position = found,
            Err(error) => return Err(error.into()),
        }
        Ok(events.len())
    }

    async fn read(&mut self) -> Result<(Vec<Event>, u64), Error> {
        let mut reader = match self.reader.take() {
            Some(reader) => reader,
            None => LogReader::open(&self.folder)?,
        };
        let after = self.position;
        let read = tokio::task::spawn_blocking(move || {
            let read = reader.read(after, BATCH);
            (reader, read)
        });
        let (reader, read) = read.await?;
        self.reader = Some(reader);
        Ok(read?)
    }

    /// The records are older than the log reaches back, because they were replaced by older ones
    /// or removed: writes everything the engine still knows, then goes on from there.
    async fn rebuild(&mut self) -> Result<usize, Error> {
        tracing::warn!(position = self.position, "the records are older than the log: rebuilding");
        let folder = self.folder.clone();
        let (events, mut full) = tokio::sync::mpsc::channel(2);
        let reading = tokio::task::spawn_blocking(move || read_all(&folder, &events));
        let mut written = 0;
        while let Some(events) = full.recv().await {
            self.store.upsert(&events).await?;
            written += events.len();
        }
        let through = reading.await??;
        self.store.project(CONSUMER, self.position, through, &[]).await?;
        self.position = through;
        Ok(written)
    }
}

/// Sends everything the journal holds in batches, and says where it ends.
fn read_all(
    folder: &Path,
    to: &tokio::sync::mpsc::Sender<Vec<Event>>,
) -> Result<u64, JournalError> {
    let mut batch = Vec::with_capacity(BATCH);
    let end = qiang_engine::offline_log(folder, &mut |event| {
        batch.push(event);
        if batch.len() == BATCH {
            // Nobody listens any more only when the records failed; then all of it is tried anew.
            let _heard = to.blocking_send(std::mem::take(&mut batch));
        }
    })?;
    let _heard = to.blocking_send(batch);
    Ok(end.seq)
}
