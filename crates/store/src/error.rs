//! What can go wrong with the records.
//!
//! One enum for the crate. `Display` says what failed and what to do about it, and leaves the
//! cause to `source()`, so that a chain printed once at the boundary says nothing twice.

use qiang_core::{BadId, PoolId};
use qiang_sql::Blame;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why the records could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such database, or it is not in a shape this binary can work with.
    #[error(transparent)]
    Open(qiang_sql::Error),
    /// The database did not do what was asked: it is gone, locked, full, or damaged.
    #[error("the database failed while {doing}")]
    Database { doing: &'static str, source: qiang_sql::Error },
    /// Somebody else has moved the consumer; nothing was written.
    #[error(
        "the position of {consumer} in log {log} is {found}, not {expected}: another process is at \
         work, or this one is behind"
    )]
    PositionMoved {
        consumer: String,
        log: String,
        /// Where the caller thought it was.
        expected: u64,
        /// Where it is.
        found: u64,
    },
    /// A consumer that was retired, or never registered, cannot move; nothing was written.
    #[error("there is no consumer {consumer}: it was retired, or never registered")]
    NotRegistered { consumer: String },
    /// A claim or refund came before the sale it belongs to; nothing was written.
    #[error("there are events of sale {sale}, but the sale itself was never recorded")]
    UnknownSale { sale: PoolId },
    /// A row cannot be read back: somebody else wrote to the database, or it is damaged.
    #[error("{table} {key}: column {column} cannot be read")]
    Corrupt {
        /// The table of the row.
        table: &'static str,
        key: String,
        /// The column that is wrong.
        column: String,
        source: Unreadable,
    },
}

/// What is wrong with a column.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// NULL, where there must be a value.
    #[error("it is NULL")]
    Null,
    /// Not the type it should be.
    #[error("it has the wrong type")]
    Type(#[source] Box<qiang_sql::BadColumn>),
    /// A word that is none of the known ones.
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

impl Error {
    /// Whether the database is out of order, so that the same may work later. Everything else is
    /// about what was asked of it, and will fail again.
    #[must_use]
    pub fn is_outage(&self) -> bool {
        self.of_database().is_some_and(qiang_sql::Error::is_outage)
    }

    /// Whether it only collided with somebody else's transaction: nothing happened, and the same
    /// will work soon.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.of_database().is_some_and(qiang_sql::Error::is_transient)
    }

    /// Whether a row with that key is already there.
    pub(crate) fn is_duplicate(&self) -> bool {
        self.of_database().is_some_and(qiang_sql::Error::is_duplicate)
    }

    /// Whose fault it is: of the events that were to be written, or of something else. What nobody
    /// knows, as a row that cannot be read, is no reason to set an event aside.
    #[must_use]
    pub fn blame(&self) -> Blame {
        match self {
            Self::UnknownSale { .. } => Blame::Data,
            Self::Open(error) | Self::Database { source: error, .. } => error.blame(),
            Self::PositionMoved { .. } | Self::NotRegistered { .. } => Blame::Infrastructure,
            Self::Corrupt { .. } => Blame::Unknown,
        }
    }

    /// If the database answers but takes no writes: why, and what to do about it.
    #[must_use]
    pub fn refuses_writes(&self) -> Option<&'static str> {
        self.of_database().and_then(qiang_sql::Error::refuses_writes)
    }

    fn of_database(&self) -> Option<&qiang_sql::Error> {
        match self {
            Self::Open(error) | Self::Database { source: error, .. } => Some(error),
            _ => None,
        }
    }
}

/// Says what was being done when the database failed.
pub(crate) trait While<T> {
    /// Turns the database's error into one that says what was being done.
    fn when(self, doing: &'static str) -> Result<T>;
}

impl<T> While<T> for qiang_sql::Result<T> {
    fn when(self, doing: &'static str) -> Result<T> {
        self.map_err(|source| Error::Database { doing, source })
    }
}
