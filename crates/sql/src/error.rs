//! What can go wrong with a database.
//!
//! `Display` says what failed and what to do about it, and leaves the cause to `source()`. Three
//! questions matter to callers, and have an answer here: is the database out of order, so that
//! the same may work later ([`Error::is_outage`]); did it only get in the way of somebody else,
//! so that the same will work at once ([`Error::is_transient`]); and is the row already there
//! ([`Error::is_duplicate`]).

use std::path::PathBuf;
use std::time::Duration;

use sqlx::error::{DatabaseError, ErrorKind};
use sqlx::mysql::MySqlDatabaseError;
use sqlx::postgres::PgDatabaseError;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a database did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URL names no database this binary can talk to.
    #[error(
        "the database url {url:?} is not one of: sqlite:PATH, mysql://USER:PASSWORD@HOST/DATABASE, \
         postgres://USER:PASSWORD@HOST/DATABASE"
    )]
    UnknownUrl {
        /// The URL, without its password.
        url: String,
    },
    /// The URL's scheme is known; the rest is malformed.
    #[error("the database url {url:?} cannot be read")]
    BadUrl {
        /// The URL, without its password.
        url: String,
        source: sqlx::Error,
    },
    /// The URL names a server, and no database on it.
    #[error("the database url {url:?} names no database; add its name, as in //HOST/DATABASE")]
    NoDatabase {
        /// The URL, without its password.
        url: String,
    },
    /// The URL's TLS settings are wrong.
    #[error("the database url {url:?} {what}")]
    BadTls {
        /// The URL, without its password.
        url: String,
        what: String,
    },
    /// A file for TLS cannot be read.
    #[error("cannot read {}, which the database url names for TLS", path.display())]
    Certificate { path: PathBuf, source: std::io::Error },
    /// The folder of the database file is not there.
    #[error("cannot open the database {}: its folder does not exist; create it first", path.display())]
    NoFolder { path: PathBuf },
    /// The database file could not be opened or created.
    #[error(
        "cannot open the database {}: it must be a SQLite file in a folder this user may write to",
        path.display()
    )]
    Open { path: PathBuf, source: sqlx::Error },
    /// Nobody answers at the address.
    #[error(
        "the database server {server} cannot be reached; check that it runs, and the host and port \
         in the database url"
    )]
    Unreachable {
        /// Host and port, or the socket.
        server: Box<str>,
        source: std::io::Error,
    },
    /// The server does not let this user in.
    #[error(
        "the database server {server} does not let {user:?} in; check user and password in the \
         database url (MariaDB also says so when it takes encrypted connections only: then write \
         ?sslmode=verify-full behind it)"
    )]
    WrongPassword {
        /// Host and port, or the socket.
        server: Box<str>,
        user: Box<str>,
        source: sqlx::Error,
    },
    /// The server has no such database, or not for this user.
    #[error(
        "the database server {server} has no database {database:?} that {user:?} may use; create \
         it and grant access to it"
    )]
    UnknownDatabase {
        /// Host and port, or the socket.
        server: Box<str>,
        database: Box<str>,
        user: Box<str>,
        source: sqlx::Error,
    },
    /// The server takes this user over encrypted connections only.
    #[error(
        "the database server {server} takes {user:?} over encrypted connections only; write \
         ?sslmode=verify-full (or require, which trusts whoever answers) behind the database url"
    )]
    WantsTls {
        /// Host and port, or the socket.
        server: Box<str>,
        user: Box<str>,
        source: sqlx::Error,
    },
    /// The server cannot do what `sslmode` wants.
    #[error(
        "the database server {server} does not speak TLS, which sslmode in the database url asks for"
    )]
    NoTls {
        /// Host and port, or the socket.
        server: Box<str>,
        source: sqlx::Error,
    },
    /// The certificate does not fit, or the handshake failed.
    #[error(
        "the certificate of the database server {server} is not trusted; name the CA it is from with \
         sslrootcert in the database url, and with sslmode=verify-full connect to a name that is in it"
    )]
    Untrusted {
        /// Host and port, or the socket.
        server: Box<str>,
        source: sqlx::Error,
    },
    /// The server did not take the connection, for another reason.
    #[error("the database server {server} did not take the connection")]
    Refused {
        /// Host and port, or the socket.
        server: Box<str>,
        source: sqlx::Error,
    },
    /// The database said nothing in time. What was asked may have happened.
    #[error("the database did not answer within {} s", after.as_secs())]
    Timeout {
        /// How long we waited for it.
        after: Duration,
    },
    /// A transaction in which something had failed was to be committed. It was not.
    #[error("the transaction was not committed, because a statement in it had failed")]
    Broken,
    /// A column is not what it should be.
    #[error("a row cannot be read")]
    Column(#[from] BadColumn),
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
    /// Somebody else has been migrating for too long.
    #[error("another process has been migrating the database for {} s; try again later", after.as_secs())]
    MigrationLocked {
        /// How long we waited for it.
        after: Duration,
    },
    /// The database did not do what was asked.
    #[error("the database reported an error")]
    Database(#[from] sqlx::Error),
}

/// A column that is not what it should be: somebody else wrote to the database, or it is damaged.
#[derive(Debug, thiserror::Error)]
#[error("column {column} is not {expected}")]
pub struct BadColumn {
    pub column: String,
    /// What it should be.
    pub expected: &'static str,
    /// What the driver said; nothing if it is NULL.
    #[source]
    pub source: Option<sqlx::Error>,
}

impl Error {
    /// Whether the database is out of order: gone, full, locked, shutting down, read-only. The
    /// same may work later. What it refuses because of what was asked of it is not an outage, nor
    /// is a database that was closed by its own user.
    #[must_use]
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::WantsTls { .. }
            | Self::NoTls { .. }
            | Self::Untrusted { .. }
            | Self::WrongPassword { .. }
            | Self::UnknownDatabase { .. }
            | Self::Refused { .. }
            | Self::MigrationLocked { .. }
            | Self::Timeout { .. } => true,
            Self::Open { source, .. } | Self::Database(source) => outage(source),
            Self::Migrate(
                sqlx::migrate::MigrateError::Execute(source)
                | sqlx::migrate::MigrateError::ExecuteMigration(source, _),
            ) => outage(source),
            _ => false,
        }
    }

    /// If the database answers but takes no writes: why, and what to do about it.
    #[must_use]
    pub fn refuses_writes(&self) -> Option<&'static str> {
        const READ_ONLY: &str = "the database is read-only: make it writable, or, if another one has \
            taken over, name that in database.url";
        const FULL: &str = "the disk of the database is full: make room";
        match Code::of(self.database()?) {
            Code::Sqlite(sqlite::READ_ONLY) => Some(READ_ONLY),
            Code::Sqlite(sqlite::FULL) => Some(FULL),
            Code::MySql(
                mysql::READ_ONLY | mysql::READ_ONLY_TRANSACTION | mysql::READ_ONLY_MODE,
            ) => Some(READ_ONLY),
            Code::MySql(mysql::DISK_FULL | mysql::TABLE_FULL) => Some(FULL),
            // read_only_sql_transaction, which a standby says too; disk_full
            Code::Postgres("25006") => Some(READ_ONLY),
            Code::Postgres("53100") => Some(FULL),
            _ => None,
        }
    }

    /// Whether it only collided with somebody else's transaction, and nothing happened: a
    /// deadlock, a serialization failure, a lock waited for too long. The same will work soon.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        let Some(error) = self.database() else { return false };
        match Code::of(error) {
            Code::Sqlite(code) => [sqlite::BUSY, sqlite::LOCKED].contains(&code),
            Code::MySql(number) => {
                [mysql::LOCK_WAIT, mysql::DEADLOCK, mysql::CHANGED_SINCE_READ].contains(&number)
            }
            // serialization_failure, deadlock_detected, lock_not_available
            Code::Postgres(code) => ["40001", "40P01", "55P03"].contains(&code),
            Code::Unknown => false,
        }
    }

    /// Whether a row with that key is already there.
    #[must_use]
    pub fn is_duplicate(&self) -> bool {
        self.database().is_some_and(|error| error.kind() == ErrorKind::UniqueViolation)
    }

    pub(crate) fn database(&self) -> Option<&dyn DatabaseError> {
        match self {
            Self::Open { source, .. } | Self::Database(source) => source.as_database_error(),
            _ => None,
        }
    }
}

/// What a database calls its error.
pub(crate) enum Code<'a> {
    /// The primary result code.
    Sqlite(u32),
    MySql(u16),
    /// The SQLSTATE.
    Postgres(&'a str),
    Unknown,
}

impl<'a> Code<'a> {
    pub(crate) fn of(error: &'a dyn DatabaseError) -> Self {
        if let Some(error) = error.try_downcast_ref::<MySqlDatabaseError>() {
            Self::MySql(error.number())
        } else if let Some(error) = error.try_downcast_ref::<PgDatabaseError>() {
            Self::Postgres(error.code())
        } else {
            // The low byte of an extended result code is the primary one.
            let code = error.code().and_then(|code| code.parse::<u32>().ok());
            code.map_or(Self::Unknown, |code| Self::Sqlite(code & 0xff))
        }
    }
}

fn outage(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(error) => out_of_order(error.as_ref()),
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::BeginFailed => true,
        _ => false,
    }
}

/// Every error of a server is an outage, except these few classes of SQLSTATE, which say that the
/// statement was wrong: cardinality, data, constraints, syntax and missing features.
fn out_of_order(error: &dyn DatabaseError) -> bool {
    const REFUSED: [&str; 5] = ["21", "22", "23", "42", "0A"];
    match Code::of(error) {
        Code::Sqlite(code) => sqlite::OUT_OF_ORDER.contains(&code),
        Code::MySql(mysql::READ_ONLY | mysql::NO_ACCESS) => true,
        Code::MySql(mysql::BAD_TEXT) => false,
        Code::MySql(_) | Code::Postgres(_) => {
            let code = error.code().unwrap_or_default();
            !REFUSED.iter().any(|class| code.starts_with(class))
        }
        Code::Unknown => true,
    }
}

/// Result codes of SQLite.
mod sqlite {
    pub(super) const BUSY: u32 = 5;
    pub(super) const LOCKED: u32 = 6;
    pub(super) const READ_ONLY: u32 = 8;
    pub(super) const FULL: u32 = 13;
    /// Busy, locked, out of memory, read-only, I/O error, disk full, cannot open.
    pub(super) const OUT_OF_ORDER: [u32; 7] = [BUSY, LOCKED, 7, READ_ONLY, 10, FULL, 14];
}

/// Error numbers of MySQL and MariaDB.
mod mysql {
    pub(super) const CHANGED_SINCE_READ: u16 = 1020;
    pub(super) const DISK_FULL: u16 = 1021;
    pub(super) const NO_ACCESS: u16 = 1044;
    pub(super) const ACCESS_DENIED: u16 = 1045;
    pub(super) const UNKNOWN_DATABASE: u16 = 1049;
    pub(super) const TABLE_FULL: u16 = 1114;
    pub(super) const LOCK_WAIT: u16 = 1205;
    pub(super) const DEADLOCK: u16 = 1213;
    pub(super) const READ_ONLY: u16 = 1290;
    pub(super) const BAD_TEXT: u16 = 1366;
    pub(super) const READ_ONLY_TRANSACTION: u16 = 1792;
    pub(super) const READ_ONLY_MODE: u16 = 1836;
    pub(super) const NEEDS_TLS: u16 = 3159;
}

/// The server that a connection was asked of.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    pub(crate) server: Box<str>,
    pub(crate) user: Box<str>,
    pub(crate) database: Box<str>,
}

impl Server {
    /// Why there is no connection, and what to do about it.
    pub(crate) fn blame(&self, source: sqlx::Error) -> Error {
        let Self { server, user, database } = self.clone();
        match Reason::of(&source) {
            Reason::Entry => Error::WrongPassword { server, user, source },
            Reason::Database => Error::UnknownDatabase { server, database, user, source },
            Reason::WantsTls => Error::WantsTls { server, user, source },
            Reason::NoTls => Error::NoTls { server, source },
            Reason::Untrusted => Error::Untrusted { server, source },
            Reason::Other => match source {
                sqlx::Error::Io(source) => Error::Unreachable { server, source },
                source => Error::Refused { server, source },
            },
        }
    }
}

/// Why a server did not take a connection.
enum Reason {
    Entry,
    Database,
    WantsTls,
    NoTls,
    Untrusted,
    Other,
}

impl Reason {
    fn of(error: &sqlx::Error) -> Self {
        match error {
            sqlx::Error::Configuration(_) => return Self::WantsTls,
            sqlx::Error::Tls(_) => return Self::NoTls,
            // What the handshake says about a certificate.
            sqlx::Error::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                return Self::Untrusted;
            }
            sqlx::Error::Database(error)
                if matches!(Code::of(error.as_ref()), Code::Postgres("28000"))
                    && error.message().contains("no encryption") =>
            {
                return Self::WantsTls;
            }
            _ => {}
        }
        match error.as_database_error().map(Code::of) {
            Some(Code::MySql(mysql::NEEDS_TLS)) => Self::WantsTls,
            Some(Code::MySql(mysql::ACCESS_DENIED) | Code::Postgres("28P01" | "28000")) => {
                Self::Entry
            }
            Some(
                Code::MySql(mysql::UNKNOWN_DATABASE | mysql::NO_ACCESS)
                | Code::Postgres("3D000" | "42501"),
            ) => Self::Database,
            _ => Self::Other,
        }
    }
}
