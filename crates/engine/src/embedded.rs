//! The engine that needs nothing but a folder: all pools in memory, decided one command after
//! the other, and a journal that one thread commits to in groups.
//!
//! What was asked is decided even if nobody waits for the answer any more.

pub(crate) mod codec;
pub(crate) mod desk;
mod files;
pub(crate) mod journal;
pub(crate) mod log;
mod queue;
pub(crate) mod sqlite;
pub(crate) mod stats;
mod wal;
pub(crate) mod writer;

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use qiang_core::{
    Book, Claim, ClaimId, Command, Event, Kind, Opened, PoolId, PoolState, PoolView, Refund, Reply,
};
use tokio::sync::watch;

use self::codec::Encoder;
use self::desk::{Position, Question, Replies};
use self::journal::{Batch, Journal as _, Write};
use self::queue::Queue;
use crate::engine::assert_terms_are_sound;
use crate::{
    Clock, Error, JournalError, LogReader, OpenError, Poisoned, SqliteJournal, Stats, Writer,
    WriterOptions,
};

const LOCK_FILE: &str = "lock";

/// How an embedded engine is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// The data folder; made if missing.
    pub folder: PathBuf,
    /// Answers that may wait for the journal; one more is refused.
    pub queue: usize,
    /// How it works.
    pub writer: WriterOptions,
}

/// A handle to the engine; all clones are the same engine.
#[derive(Debug, Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    folder: PathBuf,
    queue: Queue<Arc<dyn Clock>>,
    stats: Arc<Stats>,
    consumed: Arc<AtomicU64>,
    committer: Mutex<Option<JoinHandle<()>>>,
}

impl Engine {
    /// Takes the folder, recovers what it holds, releases what ran out meanwhile, and starts.
    pub fn open(options: Options, clock: impl Clock) -> Result<Self, OpenError> {
        let lock = FolderLock::take(&options.folder)?;
        let journal = SqliteJournal::open(&options.folder)?;
        let (consumed, stats) = (Arc::<AtomicU64>::default(), Arc::<Stats>::default());
        let clock: Arc<dyn Clock> = Arc::new(clock);
        let mut writer = Writer::recover(
            journal,
            clock,
            options.writer,
            Arc::clone(&consumed),
            Arc::clone(&stats),
        )?;
        writer.step(&mut Vec::new()).map_err(|Poisoned(error)| error)?;
        let (desk, mut committer) = writer.split();
        let shared = Arc::new(Shared {
            folder: options.folder,
            queue: Queue::new(desk, options.queue),
            stats,
            consumed,
            committer: Mutex::new(None),
        });
        let run = {
            let shared = Arc::clone(&shared);
            move || {
                shared.queue.commit_all(&mut committer);
                drop(committer);
                drop(lock);
            }
        };
        let thread = std::thread::Builder::new().name("qiang-committer".into()).spawn(run);
        let thread = thread.map_err(OpenError::Thread)?;
        *shared.committer.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(Self { shared })
    }

    /// Decides a command.
    pub async fn ask(&self, command: Command) -> Result<Reply, Error> {
        assert_terms_are_sound(&command);
        Ok(self.put(Question::One(command)).await?.one())
    }

    /// Decides commands in their order, with nothing in between.
    pub async fn ask_many(&self, commands: Vec<Command>) -> Result<Vec<Reply>, Error> {
        commands.iter().for_each(assert_terms_are_sound);
        Ok(self.put(Question::Many(commands)).await?.many())
    }

    /// A pool as it is now, and durable.
    pub async fn pool(&self, id: PoolId) -> Result<Option<PoolView>, Error> {
        self.look(move |book, _| book.pool(id).map(qiang_core::Pool::view)).await
    }

    /// Pools of a kind that were opened before `before`, newest first, at most `max`.
    pub async fn pools(
        &self,
        kind: Kind,
        before: Option<Opened>,
        max: usize,
    ) -> Result<Vec<PoolView>, Error> {
        self.look(move |book, _| {
            book.newest(kind, before).take(max).map(qiang_core::Pool::view).collect()
        })
        .await
    }

    /// A claim as it is now, and durable.
    pub async fn claim_view(&self, id: ClaimId) -> Result<Option<Claim>, Error> {
        self.look(move |book, _| book.claim(id)).await
    }

    /// Claims of a pool behind number `after`, at most `max`.
    pub async fn claims(&self, pool: PoolId, after: u32, max: u32) -> Result<Vec<Claim>, Error> {
        self.look(move |book, _| {
            let numbers = after.saturating_add(1)..=after.saturating_add(max);
            let pool = book.pool(pool);
            numbers.map_while(|number| pool.and_then(|pool| pool.claim(number))).collect()
        })
        .await
    }

    /// Refunds of a pool from place `from` on, at most `max`, each with its place.
    pub async fn refunds(
        &self,
        pool: PoolId,
        from: usize,
        max: usize,
    ) -> Result<Vec<(usize, Refund)>, Error> {
        self.look(move |book, _| {
            let pool = book.pool(pool);
            pool.map(|pool| pool.refunds_from(from).take(max).collect()).unwrap_or_default()
        })
        .await
    }

    /// Makes the engine look at its clock: when this returns, everything overdue is released.
    pub async fn expire_due(&self) -> Result<(), Error> {
        self.look(|_, _| ()).await
    }

    /// The position of the last durable event.
    pub async fn position(&self) -> Result<u64, Error> {
        self.look(|_, position: Position| position.seq).await
    }

    /// Follows the position of the last durable event.
    #[must_use]
    pub fn durable(&self) -> watch::Receiver<u64> {
        self.shared.queue.durable.subscribe()
    }

    /// A reader of the durable events.
    pub fn log_reader(&self) -> Result<LogReader, JournalError> {
        LogReader::open(&self.shared.folder)
    }

    /// Tells that every consumer has passed `seq`: what lies before may be trimmed.
    pub fn consumed(&self, seq: u64) {
        self.shared.consumed.fetch_max(seq, Ordering::Release);
    }

    /// Why the engine stopped for good, if it did.
    #[must_use]
    pub fn poisoned(&self) -> Option<&str> {
        self.shared.queue.poison()
    }

    /// Returns when the engine decides nothing any more: it was shut down, or could not go on.
    pub async fn ended(&self) {
        let mut ended = self.shared.queue.ended.subscribe();
        // The sender lives as long as `self`.
        let _gone = ended.wait_for(|ended| *ended).await;
    }

    /// A pool as its last change left it.
    pub async fn pool_state(&self, id: PoolId) -> Result<Option<PoolState>, Error> {
        self.look(move |book, _| book.pool(id).map(|pool| pool.state().clone())).await
    }

    /// What the engine counts about itself.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.shared.stats
    }

    /// How many answers wait for the journal.
    #[must_use]
    pub fn queue_depth(&self) -> usize {
        self.shared.queue.waiting()
    }

    /// The data folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.shared.folder
    }

    /// Takes nothing more, answers everything taken, and gives the folder free. Blocks.
    pub fn shut_down(&self) {
        self.shared.queue.close();
        let mut committer = self.shared.committer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(committer) = committer.take() {
            // A panic in there was reported when it happened.
            let _ended = committer.join();
        }
    }

    async fn put(&self, question: Question) -> Result<Replies, Error> {
        let asked = question.len() as u64;
        self.shared.queue.ask(question).await.inspect_err(|error| {
            if *error == Error::Overloaded {
                self.shared.stats.overloaded.fetch_add(asked, Ordering::Relaxed);
            }
        })
    }

    /// Looks at the book, and says what was seen when all of it is durable.
    async fn look<T>(&self, look: impl FnOnce(&Book, Position) -> T) -> Result<T, Error> {
        self.shared.queue.look(look).await
    }
}

/// Puts events of another engine into an empty journal.
pub fn import(folder: &Path, events: &[Event]) -> Result<(), OpenError> {
    const BATCH: usize = 4_096;
    let _lock = FolderLock::take(folder)?;
    let mut journal = SqliteJournal::open(folder)?;
    let end = journal.recover(&mut |_| {})?;
    if end.seq > 0 {
        return Err(OpenError::NotEmpty { path: folder.into() });
    }
    let mut last_seq = 0;
    for events in events.chunks(BATCH) {
        let mut encoder = Encoder::default();
        events.iter().for_each(|event| encoder.push(event));
        let first_seq = last_seq + 1;
        last_seq += encoder.count();
        let batch = Some(Batch { first_seq, last_seq, events: encoder.bytes() });
        journal.append(&Write { batch, ..Write::default() })?;
    }
    Ok(())
}

/// The right to work on a data folder; one process has it at a time, and it ends with the process
/// at the latest.
#[derive(Debug)]
pub struct FolderLock {
    file: File,
}

impl Drop for FolderLock {
    /// Closing the file is not enough: a process that is being started beside this one has it open
    /// too, for the moment between fork and exec, and the lock would last as long.
    fn drop(&mut self) {
        if let Err(error) = self.file.unlock() {
            tracing::warn!("the lock of the data folder was not given back: {error}");
        }
    }
}

impl FolderLock {
    /// Makes the folder if needed and takes its lock, or says who has it.
    pub fn take(folder: &Path) -> Result<Self, OpenError> {
        let unusable = |source| OpenError::Folder { path: folder.into(), source };
        // Users' ids are in there.
        let mut private = std::fs::DirBuilder::new();
        private.recursive(true).mode(0o700).create(folder).map_err(unusable)?;
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(folder.join(LOCK_FILE)).map_err(unusable)?;
        match file.try_lock() {
            Ok(()) => {
                let pid = std::process::id();
                let written = file.set_len(0).and_then(|()| writeln!(file, "{pid}"));
                written.map_err(unusable)?;
                Ok(Self { file })
            }
            Err(TryLockError::WouldBlock) => {
                let mut owner = String::new();
                let read = file.rewind().and_then(|()| file.read_to_string(&mut owner));
                let pid = read.ok().and_then(|_| owner.trim().parse().ok());
                Err(OpenError::Locked { path: folder.into(), pid })
            }
            Err(TryLockError::Error(source)) => Err(unusable(source)),
        }
    }
}
