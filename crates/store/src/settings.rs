//! Small named facts that belong to the installation, and how far each reader of the log is.

use crate::Store;
use crate::error::{Result, While};
use crate::fields::Fields;

impl Store {
    /// How far a consumer of the log has come; 0 if it never began.
    pub async fn position(&self, consumer: &str) -> Result<u64> {
        let row = sqlx::query("SELECT consumer, seq FROM positions WHERE consumer = $1")
            .bind(consumer)
            .fetch_optional(self.readers())
            .await
            .when("reading a position")?;
        row.map_or(Ok(0), |row| {
            let mut fields = Fields::new(&row, "positions", 1);
            let _: &str = fields.plain()?;
            fields.number()
        })
    }

    /// The value of a setting, if it was ever put.
    pub async fn setting(&self, name: &str) -> Result<Option<String>> {
        let row = sqlx::query("SELECT name, value FROM settings WHERE name = $1")
            .bind(name)
            .fetch_optional(self.readers())
            .await
            .when("reading a setting")?;
        row.map(|row| {
            let mut fields = Fields::new(&row, "settings", 1);
            let _: &str = fields.plain()?;
            fields.plain()
        })
        .transpose()
    }

    /// Sets a setting, in place of what it was; it is on the disk when this returns.
    pub async fn put_setting(&self, name: &str, value: &str) -> Result<()> {
        let mut tx = self.begin().await?;
        sqlx::query(
            "INSERT INTO settings (name, value) VALUES ($1, $2)
             ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        )
        .bind(name)
        .bind(value)
        .execute(&mut *tx)
        .await
        .when("writing a setting")?;
        tx.commit().await.when("writing a setting")
    }
}
