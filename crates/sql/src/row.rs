//! Rows, read the same from every database.
//!
//! Whatever stands in a row, reading never panics and never guesses: a column that is not what it
//! should be is a [`BadColumn`] with its name.

use sqlx::mysql::MySqlRow;
use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use sqlx::{Column, Row as _, TypeInfo, ValueRef};

use crate::error::BadColumn;

/// One row of an answer.
#[derive(Debug)]
pub struct Row(pub(crate) Inner);

pub(crate) enum Inner {
    Sqlite(SqliteRow),
    MySql(MySqlRow),
    Postgres(PgRow),
}

impl Row {
    pub fn int(&self, column: usize) -> Result<i64, BadColumn> {
        self.int_or_null(column)?.ok_or_else(|| self.bad(column, "a number", None))
    }

    pub fn int_or_null(&self, column: usize) -> Result<Option<i64>, BadColumn> {
        let read = match &self.0 {
            Inner::Sqlite(row) => row.try_get(column),
            Inner::MySql(row) => row.try_get(column).or_else(|error| unsigned(row, column, error)),
            Inner::Postgres(row) => narrow(row, column),
        };
        read.map_err(|error| self.bad(column, "a number", Some(error)))
    }

    pub fn text(&self, column: usize) -> Result<&str, BadColumn> {
        self.text_or_null(column)?.ok_or_else(|| self.bad(column, "a text", None))
    }

    pub fn text_or_null(&self, column: usize) -> Result<Option<&str>, BadColumn> {
        let read = match &self.0 {
            Inner::Sqlite(row) => row.try_get(column),
            Inner::MySql(row) => row.try_get(column),
            Inner::Postgres(row) => row.try_get(column),
        };
        read.map_err(|error| self.bad(column, "a text", Some(error)))
    }

    pub fn bytes(&self, column: usize) -> Result<&[u8], BadColumn> {
        self.bytes_or_null(column)?.ok_or_else(|| self.bad(column, "bytes", None))
    }

    pub fn bytes_or_null(&self, column: usize) -> Result<Option<&[u8]>, BadColumn> {
        let read = match &self.0 {
            Inner::Sqlite(row) => row.try_get(column),
            Inner::MySql(row) => row.try_get(column),
            Inner::Postgres(row) => row.try_get(column),
        };
        read.map_err(|error| self.bad(column, "bytes", Some(error)))
    }

    /// The name of a column, or `?` if there are not so many.
    #[must_use]
    pub fn name(&self, column: usize) -> &str {
        let name = match &self.0 {
            Inner::Sqlite(row) => row.columns().get(column).map(Column::name),
            Inner::MySql(row) => row.columns().get(column).map(Column::name),
            Inner::Postgres(row) => row.columns().get(column).map(Column::name),
        };
        name.unwrap_or("?")
    }

    fn bad(&self, column: usize, expected: &'static str, source: Option<sqlx::Error>) -> BadColumn {
        BadColumn { column: self.name(column).to_owned(), expected, source }
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Sqlite(_) => "sqlite",
            Self::MySql(_) => "mysql",
            Self::Postgres(_) => "postgres",
        })
    }
}

/// MySQL gives some results without a sign.
fn unsigned(row: &MySqlRow, column: usize, error: sqlx::Error) -> sqlx::Result<Option<i64>> {
    match row.try_get::<Option<u64>, _>(column) {
        Ok(None) => Ok(None),
        Ok(Some(number)) => i64::try_from(number).map(Some).map_err(|_| error),
        Err(_) => Err(error),
    }
}

/// PostgreSQL has numbers of several sizes, and the driver tells them apart.
fn narrow(row: &PgRow, column: usize) -> sqlx::Result<Option<i64>> {
    match row.try_get_raw(column)?.type_info().name() {
        "INT4" => Ok(row.try_get::<Option<i32>, _>(column)?.map(i64::from)),
        "INT2" => Ok(row.try_get::<Option<i16>, _>(column)?.map(i64::from)),
        "BOOL" => Ok(row.try_get::<Option<bool>, _>(column)?.map(i64::from)),
        _ => row.try_get(column),
    }
}
