//! Payments that paid an order. A payment that paid nothing is a refund.

use std::sync::Arc;

use qiang_core::{Cents, Claim, ClaimId, PaymentId, PoolId, Timestamp};
use sqlx::sqlite::SqliteRow;

use crate::bulk::{Binding, Insert};
use crate::error::{Result, While};
use crate::fields::Fields;
use crate::project::sql_id;
use crate::{Store, page};

/// A payment that paid an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payment {
    /// The order it paid.
    pub order: ClaimId,
    /// The provider's id of it; used once in a sale.
    pub payment: PaymentId,
    /// How much it was.
    pub amount: Cents,
    /// When the order became paid.
    pub paid_at: Timestamp,
}

impl Payment {
    /// The payment a claim must have.
    #[must_use]
    pub fn of(claim: &Claim) -> Option<Self> {
        Some(Self {
            order: claim.id,
            payment: claim.payment.clone()?,
            amount: claim.amount(),
            paid_at: claim.changed_at,
        })
    }
}

/// Being paid is final, so a payment is written once and never changes.
pub(crate) static INSERT: Insert = Insert::new(
    "INSERT INTO payments (sale_id, payment_id, number, amount_cents, paid_at)",
    "(?, ?, ?, ?, ?)",
    "ON CONFLICT (sale_id, payment_id) DO NOTHING",
);

pub(crate) fn bind<'q>(query: Binding<'q>, payment: &Payment) -> Binding<'q> {
    query
        .bind(sql_id(payment.order.pool))
        .bind(Arc::<str>::from(payment.payment.as_str()))
        .bind(i64::from(payment.order.number))
        .bind(payment.amount.get())
        .bind(payment.paid_at.millis())
}

impl Store {
    /// The payment of that id, if it paid an order of the pool.
    pub async fn payment(&self, pool: PoolId, payment: &PaymentId) -> Result<Option<Payment>> {
        let row = sqlx::query(
            "SELECT sale_id, payment_id, number, amount_cents, paid_at FROM payments
             WHERE sale_id = $1 AND payment_id = $2",
        )
        .bind(sql_id(pool))
        .bind(payment.as_str())
        .fetch_optional(self.readers())
        .await
        .when("reading a payment")?;
        row.as_ref().map(read).transpose()
    }

    /// The payments of a pool with ids above `after`, by rising id.
    pub async fn payments_page(
        &self,
        pool: PoolId,
        after: Option<&PaymentId>,
        max: u32,
    ) -> Result<Vec<Payment>> {
        let rows = sqlx::query(
            "SELECT sale_id, payment_id, number, amount_cents, paid_at FROM payments
             WHERE sale_id = $1 AND payment_id > $2 ORDER BY payment_id LIMIT $3",
        )
        .bind(sql_id(pool))
        .bind(after.map_or("", PaymentId::as_str))
        .bind(page(max))
        .fetch_all(self.readers())
        .await
        .when("reading a sale's payments")?;
        rows.iter().map(read).collect()
    }
}

fn read(row: &SqliteRow) -> Result<Payment> {
    let mut fields = Fields::new(row, "payments", 2);
    let (pool, payment) = (fields.pool()?, fields.id(PaymentId::new)?);
    Ok(Payment {
        order: ClaimId { pool, number: fields.number()? },
        payment,
        amount: fields.cents()?,
        paid_at: fields.time()?,
    })
}
