//! Small named facts that belong to the installation.

use qiang_core::PoolId;
use qiang_sql::{Existing, Insert, Row, Table, sql};

use crate::error::{Result, While};
use crate::fields::Fields;
use crate::{Store, patiently};

/// The most settings listed at once.
const MAX_SETTINGS: i64 = 10_000;

static SETTINGS: Table = Table { name: "settings", key: "name", fixed: "", changing: "value" };

static PUT: Insert = Insert::new(&SETTINGS, Existing::IsReplaced);
static MAKE: Insert = Insert::new(&SETTINGS, Existing::IsAnError);

impl Store {
    pub async fn setting(&self, name: &str) -> Result<Option<String>> {
        let select = sql!([SETTINGS] "SELECT {settings} FROM settings WHERE name = ?");
        let row = self.database.fetch_optional(select, &[name.into()]).await;
        let row = row.when("reading a setting")?;
        row.as_ref().map(|row| read(row).map(|(_, value)| value)).transpose()
    }

    /// The settings whose names begin with `prefix`, by name.
    pub async fn settings(&self, prefix: &str) -> Result<Vec<(String, String)>> {
        let select = sql!(
            [SETTINGS] "SELECT {settings} FROM settings WHERE name >= ? AND name <= ?
                        ORDER BY name LIMIT ?"
        );
        let last = last(prefix);
        let values = [prefix.into(), last.as_str().into(), MAX_SETTINGS.into()];
        let rows = self.database.fetch_all(select, &values).await.when("reading settings")?;
        rows.iter().map(read).collect()
    }

    /// Sets a setting, in place of what it was; it is on the disk when this returns.
    pub async fn put_setting(&self, name: &str, value: &str) -> Result<()> {
        let put = PUT.one(self.database.dialect());
        let put = patiently!(self.database.execute(put, &[name.into(), value.into()]).await);
        put.when("writing a setting").map(drop)
    }

    /// Up to which number the claims of a sale may have been lost with a Redis; 0 is none. Claims
    /// of these numbers may have been granted, and the numbers are never given again.
    pub async fn lost_through(&self, sale: PoolId) -> Result<u32> {
        let kept = self.setting(&lost_name(sale)).await?;
        Ok(kept.and_then(|kept| kept.parse().ok()).unwrap_or(0))
    }

    /// Raises [`Store::lost_through`] to what `raise` makes of it; of several who do it at once
    /// each sees what the others did. Says where it stands then.
    pub async fn raise_lost_through(
        &self,
        sale: PoolId,
        raise: impl Fn(u32) -> u32,
    ) -> Result<u32> {
        let name = lost_name(sale);
        loop {
            let kept = self.setting(&name).await?;
            let last = kept.as_deref().and_then(|kept| kept.parse().ok()).unwrap_or(0);
            let through = raise(last);
            if self.swap_setting(&name, kept.as_deref(), &through.to_string()).await? {
                return Ok(through);
            }
        }
    }

    /// Sets a setting if its value is `expected`, where `None` means that it was never put; says
    /// whether it was. Of several who do it at once one succeeds.
    pub async fn swap_setting(
        &self,
        name: &str,
        expected: Option<&str>,
        new: &str,
    ) -> Result<bool> {
        const DOING: &str = "swapping a setting";
        let Some(expected) = expected else {
            let insert = MAKE.one(self.database.dialect());
            let put = patiently!(self.database.execute(insert, &[name.into(), new.into()]).await);
            return match put {
                Err(error) if error.is_duplicate() => Ok(false),
                put => put.when(DOING).map(|_| true),
            };
        };
        let update = sql!("UPDATE settings SET value = ? WHERE name = ? AND value = ?");
        let values = [new.into(), name.into(), expected.into()];
        let swapped = patiently!(self.database.execute(update, &values).await);
        swapped.when(DOING).map(|found| found == 1)
    }
}

fn read(row: &Row) -> Result<(String, String)> {
    let mut fields = Fields::new(row, &SETTINGS);
    Ok((fields.text()?.to_owned(), fields.text()?.to_owned()))
}

/// A text that sorts after everything that begins with `prefix`.
pub(crate) fn last(prefix: &str) -> String {
    format!("{prefix}{}", char::MAX)
}

fn lost_name(sale: PoolId) -> String {
    format!("redis_numbers/{sale}")
}
