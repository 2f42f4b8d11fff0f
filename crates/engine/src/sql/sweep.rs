//! What an engine does while nobody asks: deadlines, and the rows of pools that were cleared.

use std::sync::Weak;
use std::sync::atomic::Ordering;

use qiang_core::PoolId;
use qiang_sql::{Listed, MAX_ITEMS, sql};

use super::fault::Fault;
use super::load::id;
use super::tables::GOES;
use super::{Engine, Shared, rows, told};
use crate::Error;

/// Rows deleted by one statement: nobody waits long for what it locks.
const STEP: i64 = 1_024;
/// Cleared pools looked up at once.
const SWEPT_AT_ONCE: i64 = 1_024;
/// Deadlines are looked at so many times before what was cleared is.
const TICKS_FOR_A_SWEEP: u32 = 10;

static DELETE_BUYERS: Listed =
    Listed::over(&[], "DELETE FROM engine_buyers WHERE pool_id = ? AND name IN ({list})");

/// Looks at the deadlines again and again, for as long as there is an engine.
pub(super) async fn tick(engine: Weak<Shared>) {
    for tick in 1_u32.. {
        let Some(shared) = engine.upgrade() else { return };
        let pause = shared.options.tick;
        drop(shared);
        tokio::time::sleep(pause).await;
        let Some(shared) = engine.upgrade() else { return };
        if shared.closed.load(Ordering::Acquire) {
            return;
        }
        let engine = Engine { shared };
        // Whoever could not be reached was reported; the next time is soon.
        let _later = engine.expire_due().await;
        if tick % TICKS_FOR_A_SWEEP == 0 {
            let _later = engine.sweep().await;
        }
    }
}

impl Engine {
    /// Deletes what is left of pools that were cleared. It does so by itself, little by little;
    /// nothing waits for it.
    pub async fn sweep(&self) -> Result<(), Error> {
        self.shared.sweep().await.map_err(told)
    }
}

impl Shared {
    async fn sweep(&self) -> Result<(), Fault> {
        let cleared =
            sql!("SELECT id, next_place, to_sweep FROM engine_pools WHERE to_sweep > 0 LIMIT ?");
        loop {
            let found = self.database.fetch_all(cleared, &[SWEPT_AT_ONCE.into()]).await?;
            if found.is_empty() {
                return Ok(());
            }
            for row in found {
                let pool = rows::pool_id(&row)?;
                self.sweep_claims(pool).await?;
                match row.int(2)? {
                    GOES => self.sweep_pool(pool).await?,
                    _ => self.sweep_payments(pool, row.int(1)?).await?,
                }
            }
        }
    }

    async fn sweep_claims(&self, pool: PoolId) -> Result<(), Fault> {
        let claims = sql!("SELECT MAX(number) FROM engine_claims WHERE pool_id = ?");
        while let Some(last) = self.last(claims, pool).await? {
            let rows = sql!("DELETE FROM engine_claims WHERE pool_id = ? AND number > ?");
            self.database.execute(rows, &[id(pool), (last - STEP).into()]).await?;
        }
        let portions = sql!("SELECT MAX(place) FROM engine_portions WHERE pool_id = ?");
        while let Some(last) = self.last(portions, pool).await? {
            let rows = sql!("DELETE FROM engine_portions WHERE pool_id = ? AND place > ?");
            self.database.execute(rows, &[id(pool), (last - STEP).into()]).await?;
        }
        while self.sweep_buyers(pool).await? {}
        Ok(())
    }

    /// Refunds stay, so that none is owed twice, and restocks, so that none counts twice.
    async fn sweep_payments(&self, pool: PoolId, places: i64) -> Result<(), Fault> {
        for from in (0..places).step_by(usize::try_from(STEP).unwrap_or(1)) {
            self.database
                .execute(
                    sql!(
                        "DELETE FROM engine_payments
                         WHERE pool_id = ? AND place >= ? AND place < ? AND claim IS NOT NULL"
                    ),
                    &[id(pool), from.into(), (from + STEP).into()],
                )
                .await?;
        }
        let done = sql!("UPDATE engine_pools SET to_sweep = 0 WHERE id = ?");
        self.database.execute(done, &[id(pool)]).await?;
        Ok(())
    }

    /// Nothing stays; the pool's own row goes last, with its rules.
    async fn sweep_pool(&self, pool: PoolId) -> Result<(), Fault> {
        let payments = sql!("SELECT MAX(place) FROM engine_payments WHERE pool_id = ?");
        while let Some(last) = self.last(payments, pool).await? {
            let rows = sql!("DELETE FROM engine_payments WHERE pool_id = ? AND place > ?");
            self.database.execute(rows, &[id(pool), (last - STEP).into()]).await?;
        }
        let mut transaction = self.database.begin().await?;
        for rows in [
            sql!("DELETE FROM engine_restocks WHERE pool_id = ?"),
            sql!("DELETE FROM engine_terms WHERE pool_id = ?"),
            sql!("DELETE FROM engine_pools WHERE id = ?"),
        ] {
            transaction.execute(rows, &[id(pool)]).await?;
        }
        transaction.commit().await?;
        self.terms.forget(pool);
        Ok(())
    }

    /// Whether there were any.
    async fn sweep_buyers(&self, pool: PoolId) -> Result<bool, Fault> {
        let some = sql!("SELECT name FROM engine_buyers WHERE pool_id = ? LIMIT ?");
        let max = super::number(MAX_ITEMS);
        let found = self.database.fetch_all(some, &[id(pool), max.into()]).await?;
        if found.is_empty() {
            return Ok(false);
        }
        let mut names = Vec::with_capacity(found.len());
        for row in &found {
            names.push(row.text(0)?.into());
        }
        let (statement, values) = DELETE_BUYERS.sized(&[id(pool)], &names, &[]);
        self.database.execute(statement, &values).await?;
        Ok(true)
    }

    async fn last(
        &self,
        statement: &qiang_sql::Statement,
        pool: PoolId,
    ) -> Result<Option<i64>, Fault> {
        let row = self.database.fetch_optional(statement, &[id(pool)]).await?;
        Ok(row.map(|row| row.int_or_null(0)).transpose()?.flatten())
    }
}
