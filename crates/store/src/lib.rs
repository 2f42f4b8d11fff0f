//! Keeps the records of what was decided: sales, claims, orders, payments, refunds.
//!
//! The engine decides; the store follows. [`Store::advance`] moves the position of a consumer of the
//! log in the transaction that writes what it made of the events, so every event takes effect
//! exactly once. [`Store::project`] does so for the records: a row is only ever replaced by a newer version of itself, so events may come twice or late.
//! Only [`Store::rewrite`] overrules that, to mend rows that somebody else has changed.
//!
//! The store must never decide a sale, and never copy an absolute stock: whoever needs to know
//! what is left asks the engine.

pub mod accounts;
mod actions;
mod audits;
mod claims;
mod consumers;
mod error;
pub mod events;
mod fields;
mod history;
pub mod jobs;
mod leases;
mod migrations;
mod node_samples;
mod orders;
mod outcomes;
pub mod packets;
mod payments;
mod project;
mod refunds;
mod report;
pub mod retries;
mod reviews;
mod rewrite;
mod sale_pages;
mod sales;
mod search;
mod sessions;
mod settings;

pub use actions::{Action, ActionFilter};
pub use audits::{AuditHow, AuditRecord, AuditResult};
pub use consumers::{Begin, RECORDS};
pub use error::{Error, Result, Unreadable};
pub use migrations::{Migration, Schema};
pub use node_samples::Heard;
pub use orders::{Order, OrderItem, OrderStatus};
pub use outcomes::Counted;
pub use payments::Payment;
pub use qiang_sql::{Blame, Transaction, check_url};
pub use refunds::{RefundCursor, RefundRecord, RefundStatus, SettleOutcome};
pub use report::{PaidWithin, SalePart, SaleSums};
pub use reviews::{Review, ReviewStatus};
pub use sale_pages::{SaleImage, SalePage};
pub use sales::{Sale, SaleState};
pub use search::Search;
pub use sessions::{Session, SignIn};

use error::While;
use qiang_core::{ClaimId, Timestamp};
use qiang_sql::Database;

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

/// A place in a listing of things with an id of their own that runs by time, newest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The time of the last row seen.
    pub at: Timestamp,
    /// Its id, for rows of the same time.
    pub id: u64,
}

/// How often a transaction is tried that collides with those of others.
const ATTEMPTS: u32 = 3;

/// Repeats a transaction that collided with another one; each attempt is a whole transaction.
macro_rules! patiently {
    ($attempt:expr) => {{
        let mut left = $crate::ATTEMPTS;
        loop {
            left -= 1;
            match $attempt {
                Err(error) if left > 0 && error.is_transient() => {
                    tracing::debug!(%error, left, "trying again");
                }
                done => break done,
            }
        }
    }};
}
use patiently;

/// The records. Cheap to clone; all clones share the connections.
#[derive(Debug, Clone)]
pub struct Store {
    database: Database,
}

impl Store {
    /// Opens the database behind a URL: `sqlite:PATH`, which creates the file if need be but not
    /// its folder, `mysql://` or `mariadb://`, `postgres://` or `postgresql://`. The tables are
    /// made by [`Store::migrate`].
    pub async fn open(url: &str) -> Result<Self> {
        Database::open(url).await.map(Self::over).map_err(Error::Open)
    }

    /// Over a database that was opened elsewhere, with limits of its own.
    #[must_use]
    pub fn over(database: Database) -> Self {
        Self { database }
    }

    /// Whether the database answers.
    pub async fn ping(&self) -> Result<()> {
        self.database.ping().await.when("answering a ping")
    }

    /// Waits for what is under way and closes all connections, of all clones.
    pub async fn close(&self) {
        self.database.close().await;
    }

    async fn begin(&self) -> Result<Transaction> {
        self.database.begin().await.when("beginning a transaction")
    }
}

/// The bounded size of a page, as the database wants it.
fn page(max: u32) -> i64 {
    i64::from(max.min(MAX_PAGE))
}
