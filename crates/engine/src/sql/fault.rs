//! Why the tables could not be read or written. Whoever asks an engine hears less of it
//! ([`crate::Error`]); the rest is for the log.

use qiang_core::BadId;
use qiang_sql::BadColumn;

use crate::DecodeError;

#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// The database did not do what was asked. Nothing of the transaction happened.
    #[error(transparent)]
    Database(#[from] qiang_sql::Error),
    /// The commit failed, and it may have happened all the same.
    #[error("the commit was not confirmed")]
    Commit(#[source] qiang_sql::Error),
    /// A guarded statement did not find what the engine has just read.
    #[error("{what}: {found} rows were there to be changed, {expected} should have been")]
    Guard { what: &'static str, expected: u64, found: u64 },
    /// A value no engine has written.
    #[error("{what} is out of range")]
    OutOfRange { what: &'static str },
    /// An id no engine has written.
    #[error("a stored id is not valid")]
    BadId(#[from] BadId),
    /// Bytes no engine has written.
    #[error("{what} cannot be understood")]
    Undecodable { what: &'static str, source: DecodeError },
    /// A row that belongs to another is not there.
    #[error("{what} is missing")]
    Missing { what: &'static str },
}

impl Fault {
    /// Whether doing the same again may help: the database was away, or two transactions met.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            // A duplicate is a payment that another partition has just seen: the second look
            // finds it.
            Self::Database(error) | Self::Commit(error) => {
                error.is_outage() || error.is_transient() || error.is_duplicate()
            }
            _ => false,
        }
    }
}

impl From<BadColumn> for Fault {
    fn from(error: BadColumn) -> Self {
        Self::Database(error.into())
    }
}
