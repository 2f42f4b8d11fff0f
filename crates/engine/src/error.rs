//! What can go wrong with an engine, as opposed to what it can refuse.

use std::path::PathBuf;

use crate::DecodeError;

/// The engine could not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Too much is waiting already. Nothing happened.
    #[error("too many wait for the engine")]
    Overloaded,
    /// The engine does not take work: it is stopping, or could not write. Nothing happened.
    #[error("the engine is not available")]
    Unavailable,
    /// It may have happened or not. Ask again with the same request id.
    #[error("the engine could not say whether it happened")]
    OutcomeUnknown,
}

/// The journal could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A read or write failed.
    #[error("the journal {path} could not be {action}")]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What was being done.
        action: &'static str,
        /// Why it failed.
        source: rusqlite::Error,
    },
    /// What was read is not what was written.
    #[error("the journal {path} is corrupt at {place}: {what}")]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The row.
        place: String,
        /// What is wrong with it.
        what: String,
    },
    /// The bytes of a batch pass their checksum but make no sense.
    #[error("the journal {path} cannot be understood at {place}")]
    Undecodable {
        /// The file.
        path: PathBuf,
        /// The row.
        place: String,
        /// What was met.
        source: DecodeError,
    },
    /// Written by a qiang that is newer than this one.
    #[error(
        "the journal {path} has format {found}, this qiang reads up to {known}: use a newer qiang"
    )]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// The format of the file.
        found: i64,
        /// The newest format known here.
        known: i64,
    },
    /// Somebody deleted or replaced the file while it was written to.
    #[error("the journal {path} was deleted or replaced while the server ran. {saved}")]
    Gone {
        /// The file.
        path: PathBuf,
        /// What became of what was in it.
        saved: Saved,
    },
    /// The part asked for is no longer in the log.
    #[error("the log begins after {oldest}, but events after {after} were asked for")]
    Trimmed {
        /// Where the reader stands.
        after: u64,
        /// The oldest position one can read from.
        oldest: u64,
    },
    /// A fault made on purpose.
    #[error("injected fault: {0}")]
    Injected(&'static str),
}

/// Where the events of a journal are after its file was deleted or replaced.
#[derive(Debug, thiserror::Error)]
pub enum Saved {
    /// In its place again.
    #[error("Everything answered was put back there, and nothing is lost: start again")]
    InPlace,
    /// Beside a file that somebody else put there.
    #[error(
        "Everything answered was saved to {0}; other files lie in the journal's place now. Decide \
         which is the right one before you start again"
    )]
    Aside(PathBuf),
    /// Nowhere.
    #[error("It could not be saved ({0}): restore your newest backup before you start again")]
    Nowhere(String),
}

/// A log could not be read or trimmed.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The part asked for is no longer in the log.
    #[error("the log begins after {oldest}, but events after {after} were asked for")]
    Trimmed {
        /// Where the reader stands.
        after: u64,
        /// The oldest position one can read from.
        oldest: u64,
    },
    /// The log ends before what was read from it: it is not the one that was there.
    #[error("the log ends at {end}, but events after {after} were asked for: it has gone back")]
    Behind {
        /// Where the reader stands.
        after: u64,
        /// Where the log ends.
        end: u64,
    },
    /// What was read are no events.
    #[error("the log holds something that is no event")]
    Nonsense,
    /// The journal of the embedded engine.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The thread that read is gone.
    #[error("reading the log was cut off")]
    Cut,
    /// What was read may still be lost by a failover.
    #[error("too few replicas have the end of the log")]
    TooFewReplicas,
    /// The server does not answer.
    #[error("the log could not be reached")]
    Redis(#[source] Box<crate::redis::Failure>),
    /// The database does not answer.
    #[error("the log could not be reached")]
    Sql(#[source] Box<qiang_sql::Error>),
}

impl LogError {
    pub(crate) fn redis(failure: crate::redis::Failure) -> Self {
        Self::Redis(Box::new(failure))
    }
}

/// The engine could not be opened. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder cannot be made or written to.
    #[error(
        "the data folder {path} cannot be used: make sure it exists and is writable, or choose another with --data"
    )]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Another process works on the folder.
    #[error("the data folder {path} is in use by another qiang{}: stop that one, or choose another folder with --data",
        .pid.map(|pid| format!(" (process {pid})")).unwrap_or_default())]
    Locked {
        /// The folder.
        path: PathBuf,
        /// Who has it, if known.
        pid: Option<u32>,
    },
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Sales are to be put into a journal that has some.
    #[error("the journal in {path} is not empty: choose another folder with --data")]
    NotEmpty {
        /// The folder.
        path: PathBuf,
    },
    /// The committer could not be started.
    #[error("the committer's thread could not be started")]
    Thread(#[source] std::io::Error),
}

/// An error with everything that caused it, in one line: for logs and answers to operators.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
