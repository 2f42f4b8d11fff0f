//! Small named facts that belong to the installation.

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
    /// The value of a setting, if it was ever put.
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

    /// Sets a setting if it is what one thinks it is, `None` being that it was never put; says
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

/// What comes last of all that begins with `prefix`.
pub(crate) fn last(prefix: &str) -> String {
    format!("{prefix}{}", char::MAX)
}
