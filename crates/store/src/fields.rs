//! Reads the columns of a row, one after the other, into what the rules speak of.
//!
//! Whatever stands in the row, reading never panics: what cannot be read is
//! [`Error::Corrupt`] with table, key and column.

use qiang_core::{BadId, Cents, ClaimId, PoolId, Timestamp};
use qiang_sql::{BadColumn, Row, Table};

use crate::error::{Error, Result, Unreadable};

/// The columns of one row, in the order they were selected.
pub(crate) struct Fields<'r> {
    row: &'r Row,
    table: &'static Table,
    next: usize,
}

impl<'r> Fields<'r> {
    /// A row of `table` that begins with its key.
    pub(crate) fn new(row: &'r Row, table: &'static Table) -> Self {
        Self { row, table, next: 0 }
    }

    pub(crate) fn int(&mut self) -> Result<i64> {
        self.int_or_none()?.ok_or_else(|| self.bad_last(Unreadable::Null))
    }

    pub(crate) fn int_or_none(&mut self) -> Result<Option<i64>> {
        self.take(Row::int_or_null)
    }

    pub(crate) fn text(&mut self) -> Result<&'r str> {
        self.text_or_none()?.ok_or_else(|| self.bad_last(Unreadable::Null))
    }

    pub(crate) fn text_or_none(&mut self) -> Result<Option<&'r str>> {
        self.take(Row::text_or_null)
    }

    pub(crate) fn bytes(&mut self) -> Result<&'r [u8]> {
        self.take(Row::bytes_or_null)?.ok_or_else(|| self.bad_last(Unreadable::Null))
    }

    pub(crate) fn number<T: TryFrom<i64>>(&mut self) -> Result<T> {
        let value = self.int()?;
        self.in_range(value)
    }

    pub(crate) fn number_or_none<T: TryFrom<i64>>(&mut self) -> Result<Option<T>> {
        self.int_or_none()?.map(|value| self.in_range(value)).transpose()
    }

    pub(crate) fn word<T>(&mut self, from_word: fn(&str) -> Option<T>) -> Result<T> {
        let word = self.text()?;
        from_word(word).ok_or_else(|| self.bad_last(Unreadable::Word(word.to_owned())))
    }

    pub(crate) fn word_or_none<T>(
        &mut self,
        from_word: fn(&str) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(word) = self.text_or_none()? else { return Ok(None) };
        let bad = || self.bad_last(Unreadable::Word(word.to_owned()));
        from_word(word).map(Some).ok_or_else(bad)
    }

    pub(crate) fn id<T>(&mut self, new: fn(&str) -> Result<T, BadId>) -> Result<T> {
        let text = self.text()?;
        new(text).map_err(|e| self.bad_last(Unreadable::Id(e)))
    }

    pub(crate) fn id_or_none<T>(&mut self, new: fn(&str) -> Result<T, BadId>) -> Result<Option<T>> {
        let Some(text) = self.text_or_none()? else { return Ok(None) };
        new(text).map(Some).map_err(|e| self.bad_last(Unreadable::Id(e)))
    }

    pub(crate) fn cents(&mut self) -> Result<Cents> {
        self.int().map(Cents::new)
    }

    pub(crate) fn time(&mut self) -> Result<Timestamp> {
        self.int().map(Timestamp::from_millis)
    }

    pub(crate) fn time_or_none(&mut self) -> Result<Option<Timestamp>> {
        Ok(self.int_or_none()?.map(Timestamp::from_millis))
    }

    pub(crate) fn pool(&mut self) -> Result<PoolId> {
        let value = self.int()?;
        let pool = u64::try_from(value).ok().and_then(PoolId::new);
        pool.ok_or_else(|| self.bad_last(Unreadable::Range(value)))
    }

    /// Two columns: the pool and the number in it.
    pub(crate) fn claim_id(&mut self) -> Result<ClaimId> {
        Ok(ClaimId { pool: self.pool()?, number: self.number()? })
    }

    /// Blames the column read last.
    pub(crate) fn bad_last(&self, source: Unreadable) -> Error {
        let key: Vec<String> = (0..self.table.key_len()).map(|column| self.shown(column)).collect();
        let column = self.row.name(self.next - 1).to_owned();
        Error::Corrupt { table: self.table.name, key: key.join("-"), column, source }
    }

    fn in_range<T: TryFrom<i64>>(&self, value: i64) -> Result<T> {
        T::try_from(value).map_err(|_| self.bad_last(Unreadable::Range(value)))
    }

    fn take<T>(&mut self, read: impl FnOnce(&'r Row, usize) -> Result<T, BadColumn>) -> Result<T> {
        self.next += 1;
        read(self.row, self.next - 1).map_err(|error| self.bad_last(Unreadable::Type(error.into())))
    }

    fn shown(&self, column: usize) -> String {
        let number = |_| self.row.int(column).map(|number| number.to_string());
        let text = self.row.text(column).map(str::to_owned);
        text.or_else(number).unwrap_or_else(|_| "?".to_owned())
    }
}
