//! Parameters of statements.

use std::sync::Arc;

use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::mysql::MySqlArguments;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgArguments, PgTypeInfo, Postgres};
use sqlx::sqlite::SqliteArguments;
use sqlx::{Arguments as _, Encode, Type};

use crate::Dialect;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    Null,
    Int(i64),
    Text(&'a str),
    /// A text that is already shared, which SQLite takes without a copy.
    Shared(&'a Arc<str>),
    Bytes(&'a [u8]),
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<u32> for Value<'_> {
    fn from(number: u32) -> Self {
        Self::Int(i64::from(number))
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a String> for Value<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a Arc<str>> for Value<'a> {
    fn from(text: &'a Arc<str>) -> Self {
        Self::Shared(text)
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(bytes)
    }
}

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// The parameters of one statement, in order, as its database wants them.
#[derive(Debug)]
pub struct Params {
    pub(crate) arguments: Arguments,
    /// The first parameter that could not be taken: the statement will not run.
    pub(crate) refused: Option<BoxDynError>,
}

#[derive(Debug)]
pub(crate) enum Arguments {
    Sqlite(SqliteArguments),
    MySql(MySqlArguments),
    Postgres(PgArguments),
}

impl Params {
    pub(crate) fn new(dialect: Dialect) -> Self {
        let arguments = match dialect {
            Dialect::Sqlite => Arguments::Sqlite(SqliteArguments::default()),
            Dialect::MySql => Arguments::MySql(MySqlArguments::default()),
            Dialect::Postgres => Arguments::Postgres(PgArguments::default()),
        };
        Self { arguments, refused: None }
    }

    pub(crate) fn of(dialect: Dialect, values: &[Value<'_>]) -> Self {
        let mut params = Self::new(dialect);
        for value in values {
            params.add(*value);
        }
        params
    }

    pub(crate) fn reserve(&mut self, parameters: usize, bytes: usize) {
        match &mut self.arguments {
            Arguments::Sqlite(arguments) => arguments.reserve(parameters, bytes),
            Arguments::MySql(arguments) => arguments.reserve(parameters, bytes),
            Arguments::Postgres(arguments) => arguments.reserve(parameters, bytes),
        }
    }

    /// How many were taken.
    pub(crate) fn len(&self) -> usize {
        match &self.arguments {
            Arguments::Sqlite(arguments) => arguments.len(),
            Arguments::MySql(arguments) => arguments.len(),
            Arguments::Postgres(arguments) => arguments.len(),
        }
    }

    /// Adds the next parameter.
    pub fn add<'a>(&mut self, value: impl Into<Value<'a>>) -> &mut Self {
        let added = match (&mut self.arguments, value.into()) {
            (Arguments::Sqlite(to), Value::Null) => to.add(None::<i64>),
            (Arguments::Sqlite(to), Value::Int(number)) => to.add(number),
            (Arguments::Sqlite(to), Value::Text(text)) => to.add(Arc::<str>::from(text)),
            (Arguments::Sqlite(to), Value::Shared(text)) => to.add(Arc::clone(text)),
            (Arguments::Sqlite(to), Value::Bytes(bytes)) => to.add(bytes),
            (Arguments::MySql(to), Value::Null) => to.add(None::<i64>),
            (Arguments::MySql(to), Value::Int(number)) => to.add(number),
            (Arguments::MySql(to), Value::Text(text)) => to.add(text),
            (Arguments::MySql(to), Value::Shared(text)) => to.add(&**text),
            (Arguments::MySql(to), Value::Bytes(bytes)) => to.add(bytes),
            (Arguments::Postgres(to), Value::Null) => to.add(Untyped),
            (Arguments::Postgres(to), Value::Int(number)) => to.add(number),
            (Arguments::Postgres(to), Value::Text(text)) => to.add(text),
            (Arguments::Postgres(to), Value::Shared(text)) => to.add(&**text),
            (Arguments::Postgres(to), Value::Bytes(bytes)) => to.add(bytes),
        };
        if let Err(error) = added {
            self.refused.get_or_insert(error);
        }
        self
    }
}

/// A NULL of which PostgreSQL works out the type from where it stands. A prepared statement keeps
/// the types it was first used with; a type made up for a NULL would not fit what comes later.
struct Untyped;

impl Type<Postgres> for Untyped {
    fn type_info() -> PgTypeInfo {
        /// The type `unknown`.
        const UNKNOWN: Oid = Oid(705);
        PgTypeInfo::with_oid(UNKNOWN)
    }
}

impl Encode<'_, Postgres> for Untyped {
    fn encode_by_ref(&self, _: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        Ok(IsNull::Yes)
    }
}
