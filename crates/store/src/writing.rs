//! A transaction that writes. It is on the disk when [`Writing::commit`] returns.
//!
//! Every commit is synced: the log may be trimmed behind what was recorded, and a settled refund
//! is nowhere else. The projector writes large batches, so that a sync for each costs little.

use std::ops::{Deref, DerefMut};

use sqlx::pool::PoolConnection;
use sqlx::sqlite::{Sqlite, SqliteConnection, SqlitePool};

use crate::error::{Result, While};

/// The one connection that writes, in the middle of a transaction. Unless it is committed, the
/// connection is closed, and the transaction ends with it: whatever state an error left it in (a
/// full disk ends a transaction by itself), the next one begins on a fresh connection.
pub(crate) struct Writing {
    connection: Option<PoolConnection<Sqlite>>,
}

impl Writing {
    pub(crate) async fn begin(pool: &SqlitePool) -> Result<Self> {
        const DOING: &str = "beginning a transaction";
        let connection = pool.acquire().await.when(DOING)?;
        let mut writing = Self { connection: Some(connection) };
        sqlx::query("BEGIN IMMEDIATE").execute(&mut *writing).await.when(DOING)?;
        Ok(writing)
    }

    pub(crate) async fn commit(mut self) -> sqlx::Result<()> {
        sqlx::query("COMMIT").execute(&mut *self).await?;
        drop(self.connection.take());
        Ok(())
    }
}

impl Deref for Writing {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        self.connection.as_deref().expect("it is taken only by the end")
    }
}

impl DerefMut for Writing {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        self.connection.as_deref_mut().expect("it is taken only by the end")
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if let Some(connection) = &mut self.connection {
            connection.close_on_drop();
        }
    }
}
