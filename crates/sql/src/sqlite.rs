//! Opens SQLite files, and says how they are used.
//!
//! SQLite has one writer at a time. All writes of this process go through one connection, so they
//! queue here, fairly, instead of waking each other out of busy-waits; reads run beside them on
//! their own connections, each on the newest committed state (WAL).

use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use sqlx::ConnectOptions;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use tokio::time::timeout;

use crate::error::{Error, Result};

/// How long to wait for another process (`qiang audit`, a person's `sqlite3`) to let go.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long until a file that is locked is opened again.
const RETRY: Duration = Duration::from_millis(10);
/// Reads are short and come from the cache; more connections would only hold more memory.
const MAX_READERS: u32 = 4;
/// All multi-row statements of the records in all their sizes, and room for the rest.
const CACHED_STATEMENTS: usize = 128;
/// The writer's page cache, in KiB: the upper levels of all trees and the pages that are hot.
const WRITER_CACHE_KIB: u32 = 64 * 1024;
/// Pages in the WAL before a commit copies them back: 4 MiB. Rarer is hardly cheaper, as nearly every
/// page there is another one, and what is copied is synced at once: 64 MiB held up the syncs of the
/// journal, on the same disk, for a tenth of a second.
const CHECKPOINT_PAGES: u32 = 1_024;

/// The connections to one SQLite file.
#[derive(Clone)]
pub(crate) struct Pools {
    pub(crate) writer: SqlitePool,
    pub(crate) readers: SqlitePool,
}

impl Pools {
    pub(crate) async fn open(path: &Path) -> Result<Self> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if folder.is_some_and(|folder| !folder.is_dir()) {
            return Err(Error::NoFolder { path: path.to_owned() });
        }
        let options = SqliteConnectOptions::new()
            .filename(path)
            .foreign_keys(true)
            .busy_timeout(BUSY_TIMEOUT)
            .statement_cache_capacity(CACHED_STATEMENTS);
        let writing = options
            .clone()
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .pragma("cache_size", format!("-{WRITER_CACHE_KIB}"))
            .pragma("wal_autocheckpoint", CHECKPOINT_PAGES.to_string())
            // A multi-row statement keeps a copy of each page it touches, to undo itself; in a file
            // that takes a quarter of the time that recording takes.
            .pragma("temp_store", "MEMORY")
            .disable_statement_logging();
        let writer = open_writer(path, writing).await?;
        let readers = pool(MAX_READERS).connect_lazy_with(options.pragma("query_only", "ON"));
        Ok(Self { writer, readers })
    }
}

/// When two processes switch a new file to WAL at the same time, SQLite tells one of them at once
/// that it is locked, whatever its timeout. So the waiting is done here.
async fn open_writer(path: &Path, options: SqliteConnectOptions) -> Result<SqlitePool> {
    let mut too_long = pin!(tokio::time::sleep(BUSY_TIMEOUT));
    loop {
        let error = match pool(1).connect_with(options.clone()).await {
            Ok(pool) => return Ok(pool),
            Err(source) => Error::Open { path: path.to_owned(), source },
        };
        if !error.is_transient() || timeout(RETRY, too_long.as_mut()).await.is_ok() {
            return Err(error);
        }
    }
}

/// Connections to a file do not go stale: they are neither tested nor replaced.
fn pool(connections: u32) -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .max_connections(connections)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
}
