//! Keeps the records of what was decided: sales, claims, orders, payments, refunds.
//!
//! The engine decides; the store follows. [`Store::project`] writes a batch of events and the
//! consumer's position in the log in one transaction, so every event takes effect exactly once,
//! and a row is only ever replaced by a newer version of itself, so events may come twice or late.
//! Only [`Store::rewrite`] overrules that, to mend rows that somebody else has changed.
//!
//! The store must never decide a sale, and never copy an absolute stock: whoever needs to know
//! what is left asks the engine.

mod bulk;
mod claims;
mod error;
mod fields;
mod migrations;
mod orders;
mod payments;
mod project;
mod refunds;
mod rewrite;
mod sales;
mod settings;
mod sqlite;
mod writing;

pub use error::{Error, Result, Unreadable};
pub use migrations::{Migration, Schema};
pub use orders::{Order, OrderItem, OrderStatus};
pub use payments::Payment;
pub use refunds::{RefundCursor, RefundRecord, RefundStatus, SettleOutcome};
pub use sales::{Sale, SaleState};

use error::While;
use qiang_core::{ClaimId, Timestamp};
use sqlx::sqlite::SqlitePool;
use writing::Writing;

/// The most rows one query returns, whatever it was asked for. A listing is at its end when a
/// page is empty, not when it is short.
pub const MAX_PAGE: u32 = 1_000;

/// A place in a listing that runs by time, newest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    /// The time of the last row seen.
    pub at: Timestamp,
    /// Its id, for rows of the same time.
    pub id: ClaimId,
}

/// The records. Cheap to clone; all clones share the connections.
#[derive(Debug, Clone)]
pub struct Store {
    backend: Backend,
}

/// The databases there are.
#[derive(Debug, Clone)]
enum Backend {
    Sqlite(sqlite::Pools),
}

impl Store {
    /// Opens the database behind a URL: `sqlite:PATH` creates the file if need be, but not its
    /// folder. The tables are made by [`Store::migrate`].
    pub async fn open(url: &str) -> Result<Self> {
        let path = url.strip_prefix("sqlite:").map(|path| path.strip_prefix("//").unwrap_or(path));
        match path {
            Some(path) if !path.is_empty() && path != ":memory:" => {
                Ok(Self { backend: Backend::Sqlite(sqlite::Pools::open(path.as_ref()).await?) })
            }
            _ => Err(Error::UnknownUrl { url: url.to_owned() }),
        }
    }

    /// Whether the database answers.
    pub async fn ping(&self) -> Result<()> {
        sqlx::query("SELECT 1").execute(self.readers()).await.when("answering a ping").map(drop)
    }

    /// Waits for what is under way and closes all connections, of all clones.
    pub async fn close(&self) {
        self.readers().close().await;
        self.writer().close().await;
    }

    fn readers(&self) -> &SqlitePool {
        let Backend::Sqlite(pools) = &self.backend;
        &pools.readers
    }

    fn writer(&self) -> &SqlitePool {
        let Backend::Sqlite(pools) = &self.backend;
        &pools.writer
    }

    async fn begin(&self) -> Result<Writing> {
        Writing::begin(self.writer()).await
    }
}

/// The bounded size of a page, as the database wants it.
fn page(max: u32) -> i64 {
    i64::from(max.min(MAX_PAGE))
}
