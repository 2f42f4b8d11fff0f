//! Mending: replaces what is on record with what the engine says, whatever its version.

use qiang_core::{Claim, Event, PoolState, Refund};
use sqlx::sqlite::SqliteConnection;

use crate::Store;
use crate::error::{Result, While};
use crate::project::{sql_id, write};

const DOING: &str = "mending records";

impl Store {
    /// Writes the events over whatever is on record of the same sales, claims and refunds, and
    /// leaves all positions where they are. A refund that was settled stays settled.
    pub async fn rewrite(&self, events: &[Event]) -> Result<()> {
        let mut tx = self.begin().await?;
        // A sale is away for a moment while others refer to it.
        sqlx::query("PRAGMA defer_foreign_keys = ON").execute(&mut *tx).await.when(DOING)?;
        for event in events {
            match event {
                Event::Pool(pool) => forget_sale(&mut tx, pool).await?,
                Event::Claim(claim) => forget_claim(&mut tx, claim).await?,
                Event::Refund(refund) => forget_refund(&mut tx, refund).await?,
            }
        }
        write(&mut tx, events).await?;
        tx.commit().await.when(DOING)
    }
}

async fn forget_sale(tx: &mut SqliteConnection, pool: &PoolState) -> Result<()> {
    let delete = sqlx::query("DELETE FROM sales WHERE id = $1").bind(sql_id(pool.id));
    delete.execute(tx).await.when(DOING).map(drop)
}

async fn forget_claim(tx: &mut SqliteConnection, claim: &Claim) -> Result<()> {
    for delete in [
        "DELETE FROM order_items WHERE sale_id = $1 AND number = $2",
        "DELETE FROM orders WHERE sale_id = $1 AND number = $2",
        "DELETE FROM claims WHERE sale_id = $1 AND number = $2",
    ] {
        let delete = sqlx::query(delete).bind(sql_id(claim.id.pool));
        delete.bind(i64::from(claim.id.number)).execute(&mut *tx).await.when(DOING)?;
    }
    if let Some(payment) = &claim.payment {
        let delete = sqlx::query("DELETE FROM payments WHERE sale_id = $1 AND payment_id = $2");
        let delete = delete.bind(sql_id(claim.id.pool)).bind(payment.as_str());
        delete.execute(tx).await.when(DOING)?;
    }
    Ok(())
}

async fn forget_refund(tx: &mut SqliteConnection, refund: &Refund) -> Result<()> {
    let delete = "DELETE FROM refunds WHERE sale_id = $1 AND payment_id = $2
                  AND settled_at IS NULL";
    let delete = sqlx::query(delete).bind(sql_id(refund.order.pool));
    delete.bind(refund.payment.as_str()).execute(tx).await.when(DOING).map(drop)
}
