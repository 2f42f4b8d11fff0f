//! What can go wrong with the records.
//!
//! One enum for the crate. `Display` says what failed and what to do about it, and leaves the
//! cause to `source()`, so that a chain printed once at the boundary says nothing twice.

use std::path::PathBuf;

use qiang_core::{BadId, PoolId};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why the records could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URL names no database this binary can talk to.
    #[error("the database url {url:?} is not one of: sqlite:PATH")]
    UnknownUrl {
        /// The URL as given.
        url: String,
    },
    /// The folder of the database file is not there.
    #[error("cannot open the database {}: its folder does not exist; create it first", path.display())]
    NoFolder {
        /// The database file.
        path: PathBuf,
    },
    /// The database file could not be opened or created.
    #[error(
        "cannot open the database {}: it must be a SQLite file in a folder this user may write to",
        path.display()
    )]
    Open {
        /// The database file.
        path: PathBuf,
        /// What the driver said.
        source: sqlx::Error,
    },
    /// The database has been migrated further than this binary knows.
    #[error(
        "the database was made by a newer qiang: it is at migration {found}, this binary knows \
         up to {known}; use that newer version"
    )]
    NewerDatabase {
        /// The newest migration in the database.
        found: i64,
        /// The newest migration in this binary.
        known: i64,
    },
    /// Migrating failed; what had been applied before stays applied.
    #[error("the database could not be migrated")]
    Migrate(#[source] sqlx::migrate::MigrateError),
    /// The database did not do what was asked: it is gone, locked, full, or damaged.
    #[error("the database failed while {doing}")]
    Database {
        /// What was being done.
        doing: &'static str,
        /// What the driver said.
        source: sqlx::Error,
    },
    /// Somebody else has moved the consumer; nothing was written.
    #[error(
        "the position of {consumer} is {found}, not {expected}: another projector is at work, or \
         this one is behind"
    )]
    PositionMoved {
        /// Whose position.
        consumer: String,
        /// Where the caller thought it was.
        expected: u64,
        /// Where it is.
        found: u64,
    },
    /// A claim or refund came before the sale it belongs to; nothing was written.
    #[error("there are events of sale {sale}, but the sale itself was never recorded")]
    UnknownSale {
        /// The sale that is missing.
        sale: PoolId,
    },
    /// A row cannot be read back: somebody else wrote to the database, or it is damaged.
    #[error("{table} {key}: column {column} cannot be read")]
    Corrupt {
        /// The table of the row.
        table: &'static str,
        /// The row's key.
        key: String,
        /// The column that is wrong.
        column: String,
        /// What is wrong with it.
        source: Unreadable,
    },
}

/// What is wrong with a column.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// Nothing, where there must be something.
    #[error("it is NULL")]
    Null,
    /// Not the type it should be.
    #[error("it has the wrong type")]
    Type(#[source] sqlx::Error),
    /// A word that stands for nothing.
    #[error("{0:?} is not a word it can hold")]
    Word(String),
    /// A number out of its range.
    #[error("{0} is out of range")]
    Range(i64),
    /// A text that cannot be an id.
    #[error("it is not an id")]
    Id(#[source] BadId),
    /// A list that is not a list.
    #[error("it is not the JSON it should be")]
    Json(#[source] serde_json::Error),
}

/// Says what was being done when the driver failed.
pub(crate) trait While<T> {
    /// Turns the driver's error into one that says what was being done.
    fn when(self, doing: &'static str) -> Result<T>;
}

impl<T> While<T> for sqlx::Result<T> {
    fn when(self, doing: &'static str) -> Result<T> {
        self.map_err(|source| Error::Database { doing, source })
    }
}
