//! The kinds of SQL there are.

use std::fmt;

/// Which SQL a database speaks. MariaDB speaks MySQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// A file, opened in this process.
    Sqlite,
    /// A MySQL or MariaDB server.
    MySql,
    Postgres,
}

impl Dialect {
    pub const ALL: [Self; 3] = [Self::Sqlite, Self::MySql, Self::Postgres];

    /// The word for it, as in URLs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::MySql => "mysql",
            Self::Postgres => "postgres",
        }
    }

    /// The time of the database's own clock in Unix milliseconds, as an expression. It is the
    /// time the statement began, also if the statement has waited for a lock since.
    pub(crate) const fn now_ms(self) -> &'static str {
        match self {
            Self::Sqlite => "CAST(ROUND(unixepoch('now', 'subsec') * 1000) AS INTEGER)",
            // The session's time zone is UTC, so this never meets an hour that comes twice.
            Self::MySql => "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)",
            Self::Postgres => "CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000 AS BIGINT)",
        }
    }

    /// The end of a `SELECT` that locks its rows. Empty on SQLite, where a transaction has the
    /// whole file.
    pub(crate) const fn lock(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::MySql | Self::Postgres => "FOR UPDATE",
        }
    }

    /// The same, but rows that somebody else has locked are left out.
    pub(crate) const fn skip_locked(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::MySql | Self::Postgres => "FOR UPDATE SKIP LOCKED",
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
