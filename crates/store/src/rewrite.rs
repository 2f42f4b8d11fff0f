//! Mending: replaces what is on record with what the engine says, whatever its version.

use qiang_core::{Claim, Event, Refund};
use qiang_sql::{Transaction, sql};

use crate::error::{Result, While};
use crate::project::{Batch, sql_id, write};
use crate::reviews;
use crate::sales::{self, Sale};
use crate::{Store, patiently};

const DOING: &str = "mending records";

impl Store {
    /// Writes the events over whatever is on record of the same sales, claims and refunds, and
    /// leaves all positions where they are. A refund that was settled stays settled.
    pub async fn rewrite(&self, events: &[Event]) -> Result<()> {
        patiently!(self.try_to_rewrite(events).await)
    }

    async fn try_to_rewrite(&self, events: &[Event]) -> Result<()> {
        let mut tx = self.begin().await?;
        let sales: Vec<Sale> = Batch::of(events).pools.into_iter().map(Sale::of).collect();
        sales::OVERWRITE.run(&mut tx, &sales, sales::bind).await.when(DOING)?;
        for event in events {
            match event {
                Event::Pool(_) => {}
                Event::Claim(claim) => {
                    forget_claim(&mut tx, claim).await?;
                    if let Some(refund) = claim.revoked() {
                        forget_refund(&mut tx, &refund).await?;
                    }
                }
                Event::Refund(refund) => forget_refund(&mut tx, refund).await?,
            }
        }
        let marked = write(&mut tx, events).await?;
        tx.commit().await.when(DOING)?;
        reviews::tell(&marked);
        Ok(())
    }
}

async fn forget_claim(tx: &mut Transaction, claim: &Claim) -> Result<()> {
    let id = [sql_id(claim.id.pool).into(), claim.id.number.into()];
    for delete in [
        sql!("DELETE FROM order_items WHERE sale_id = ? AND number = ?"),
        sql!("DELETE FROM orders WHERE sale_id = ? AND number = ?"),
        sql!("DELETE FROM claims WHERE sale_id = ? AND number = ?"),
    ] {
        tx.execute(delete, &id).await.when(DOING)?;
    }
    if let Some(payment) = &claim.payment {
        let delete = sql!("DELETE FROM payments WHERE sale_id = ? AND payment_id = ?");
        let id = [sql_id(claim.id.pool).into(), payment.as_str().into()];
        tx.execute(delete, &id).await.when(DOING)?;
    }
    Ok(())
}

async fn forget_refund(tx: &mut Transaction, refund: &Refund) -> Result<()> {
    let delete =
        sql!("DELETE FROM refunds WHERE sale_id = ? AND payment_id = ? AND settled_at IS NULL");
    let id = [sql_id(refund.order.pool).into(), refund.payment.as_str().into()];
    tx.execute(delete, &id).await.when(DOING).map(drop)
}
