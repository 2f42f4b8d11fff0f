//! Mending: replaces what is on record with what the engine says, whatever its version.

use qiang_core::Event;

use crate::error::{Result, While};
use crate::project::{sql_id, write};

use crate::{Kept, Store};

const DOING: &str = "mending records";

impl Store {
    /// Writes the events over whatever is on record of the same sales, claims and refunds, and
    /// leaves all positions where they are. A refund that was settled stays settled.
    pub async fn rewrite(&self, events: &[Event]) -> Result<()> {
        let mut tx = self.begin(Kept::InTheLog).await?;
        for event in events {
            match event {
                Event::Pool(pool) => {
                    sqlx::query("UPDATE sales SET version = 0 WHERE id = $1")
                        .bind(sql_id(pool.id))
                        .execute(&mut *tx)
                        .await
                        .when(DOING)?;
                }
                Event::Claim(claim) => {
                    for delete in [
                        "DELETE FROM order_items WHERE sale_id = $1 AND number = $2",
                        "DELETE FROM orders WHERE sale_id = $1 AND number = $2",
                        "DELETE FROM payments WHERE sale_id = $1 AND number = $2",
                        "DELETE FROM claims WHERE sale_id = $1 AND number = $2",
                    ] {
                        sqlx::query(delete)
                            .bind(sql_id(claim.id.pool))
                            .bind(i64::from(claim.id.number))
                            .execute(&mut *tx)
                            .await
                            .when(DOING)?;
                    }
                }
                Event::Refund(refund) => {
                    let delete = "DELETE FROM refunds WHERE sale_id = $1 AND payment_id = $2
                                  AND settled_at IS NULL";
                    sqlx::query(delete)
                        .bind(sql_id(refund.order.pool))
                        .bind(refund.payment.as_str())
                        .execute(&mut *tx)
                        .await
                        .when(DOING)?;
                }
            }
        }
        write(&mut tx, events).await?;
        tx.commit().await.when(DOING)
    }
}
