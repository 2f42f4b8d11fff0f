//! Whose fault an error is: of what was to be written, or of the place it was to be written to.
//!
//! Whoever writes what others decided must know the difference. What a database refuses because of the
//! data will be refused again, and may be set aside; what fails because the database is away, busy or
//! full will work later, and setting it aside would be a loss. This is the only table that says which is
//! which. What is not in it is nobody's fault that we know of, and is waited for.

use crate::error::{Code, Error};

/// Whose fault an error is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The data's: a constraint, a value out of range or too long, a reference to nothing.
    Data,
    /// The database's or the way to it: gone, slow, locked, full, read-only.
    Infrastructure,
    /// Nobody knows.
    Unknown,
}

/// Classes of SQLSTATE, of MySQL and PostgreSQL: data exceptions and constraints.
const DATA_CLASSES: [&str; 2] = ["22", "23"];
/// Result codes of SQLite: too big, constraint, type mismatch.
const SQLITE_DATA: [u32; 3] = [18, 19, 20];
/// Errors of MySQL and MariaDB in other classes: a text that the column's characters cannot hold, and
/// a CHECK that fails (MySQL, MariaDB).
const MYSQL_DATA: [u16; 3] = [1366, 3819, 4025];

impl Error {
    /// Whose fault it is.
    #[must_use]
    pub fn blame(&self) -> Blame {
        if self
            .database()
            .is_some_and(|error| is_of_data(&Code::of(error), error.code().as_deref()))
        {
            Blame::Data
        } else if self.is_outage() || self.is_transient() {
            Blame::Infrastructure
        } else {
            Blame::Unknown
        }
    }
}

fn is_of_data(code: &Code<'_>, state: Option<&str>) -> bool {
    let class = state.unwrap_or_default();
    let is_data_class = DATA_CLASSES.iter().any(|data| class.starts_with(data));
    match code {
        Code::Sqlite(code) => SQLITE_DATA.contains(code),
        Code::MySql(number) => is_data_class || MYSQL_DATA.contains(number),
        Code::Postgres(_) => is_data_class,
        Code::Unknown => false,
    }
}
