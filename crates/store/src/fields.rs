//! Reads the columns of a row, one after the other, into what the rules speak of.
//!
//! Whatever stands in the row, reading never panics: what cannot be read is
//! [`Error::Corrupt`] with table, key and column.

use qiang_core::{BadId, Cents, ClaimId, PoolId, Timestamp};
use sqlx::sqlite::{Sqlite, SqliteRow};
use sqlx::{Column, Decode, Row, Type};

use crate::error::{Error, Result, Unreadable};

/// The columns of one row, in the order they were selected.
pub(crate) struct Fields<'r> {
    row: &'r SqliteRow,
    table: &'static str,
    key_columns: usize,
    next: usize,
}

impl<'r> Fields<'r> {
    /// A row of `table` whose first `key_columns` columns are its key.
    pub(crate) fn new(row: &'r SqliteRow, table: &'static str, key_columns: usize) -> Self {
        Self { row, table, key_columns, next: 0 }
    }

    /// A column as the driver gives it. The driver itself would read a NULL as 0.
    pub(crate) fn plain<T: Decode<'r, Sqlite> + Type<Sqlite>>(&mut self) -> Result<T> {
        self.plain_or_none()?.ok_or_else(|| self.bad_last(Unreadable::Null))
    }

    pub(crate) fn plain_or_none<T: Decode<'r, Sqlite> + Type<Sqlite>>(
        &mut self,
    ) -> Result<Option<T>> {
        self.next += 1;
        self.row.try_get(self.next - 1).map_err(|e| self.bad_last(Unreadable::Type(e)))
    }

    pub(crate) fn number<T: TryFrom<i64>>(&mut self) -> Result<T> {
        let value = self.plain()?;
        self.in_range(value)
    }

    pub(crate) fn number_or_none<T: TryFrom<i64>>(&mut self) -> Result<Option<T>> {
        self.plain_or_none()?.map(|value| self.in_range(value)).transpose()
    }

    pub(crate) fn word<T>(&mut self, from_word: fn(&str) -> Option<T>) -> Result<T> {
        let word: &str = self.plain()?;
        from_word(word).ok_or_else(|| self.bad_last(Unreadable::Word(word.to_owned())))
    }

    pub(crate) fn word_or_none<T>(
        &mut self,
        from_word: fn(&str) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(word) = self.plain_or_none::<&str>()? else { return Ok(None) };
        let bad = || self.bad_last(Unreadable::Word(word.to_owned()));
        from_word(word).map(Some).ok_or_else(bad)
    }

    pub(crate) fn id<T>(&mut self, new: fn(&str) -> Result<T, BadId>) -> Result<T> {
        let text = self.plain()?;
        new(text).map_err(|e| self.bad_last(Unreadable::Id(e)))
    }

    pub(crate) fn id_or_none<T>(&mut self, new: fn(&str) -> Result<T, BadId>) -> Result<Option<T>> {
        let Some(text) = self.plain_or_none()? else { return Ok(None) };
        new(text).map(Some).map_err(|e| self.bad_last(Unreadable::Id(e)))
    }

    pub(crate) fn cents(&mut self) -> Result<Cents> {
        self.plain().map(Cents::new)
    }

    pub(crate) fn time(&mut self) -> Result<Timestamp> {
        self.plain().map(Timestamp::from_millis)
    }

    pub(crate) fn time_or_none(&mut self) -> Result<Option<Timestamp>> {
        Ok(self.plain_or_none()?.map(Timestamp::from_millis))
    }

    pub(crate) fn pool(&mut self) -> Result<PoolId> {
        let value: i64 = self.plain()?;
        let pool = u64::try_from(value).ok().and_then(PoolId::new);
        pool.ok_or_else(|| self.bad_last(Unreadable::Range(value)))
    }

    /// Two columns: the pool and the number in it.
    pub(crate) fn claim_id(&mut self) -> Result<ClaimId> {
        Ok(ClaimId { pool: self.pool()?, number: self.number()? })
    }

    /// Blames the column read last.
    pub(crate) fn bad_last(&self, source: Unreadable) -> Error {
        let key: Vec<String> = (0..self.key_columns).map(|column| self.shown(column)).collect();
        let column = self.row.columns().get(self.next - 1).map_or("?", Column::name).to_owned();
        Error::Corrupt { table: self.table, key: key.join("-"), column, source }
    }

    fn in_range<T: TryFrom<i64>>(&self, value: i64) -> Result<T> {
        T::try_from(value).map_err(|_| self.bad_last(Unreadable::Range(value)))
    }

    fn shown(&self, column: usize) -> String {
        let number = || self.row.try_get::<i64, _>(column).map(|number| number.to_string());
        self.row.try_get(column).or_else(|_| number()).unwrap_or_else(|_| "?".to_owned())
    }
}
