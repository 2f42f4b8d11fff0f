//! Payments that paid an order. A payment that paid nothing is a refund.

use qiang_core::{Cents, Claim, ClaimId, PaymentId, PoolId, Timestamp};
use qiang_sql::{Existing, Insert, Params, Row, Table, sql};

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
    pub amount: Cents,
    /// When the order became paid.
    pub paid_at: Timestamp,
}

impl Payment {
    /// The payment a claim must have. A claim that was revoked no longer says when it was paid; it
    /// was not later than this.
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

/// That a payment paid is final, whatever becomes of the order, so it is written once. Only the time may
/// be corrected: a claim that was revoked tells a later one than the event that paid it.
pub(crate) static PAYMENTS: Table = Table {
    name: "payments",
    key: "sale_id, payment_id",
    fixed: "number, amount_cents",
    changing: "paid_at",
};

pub(crate) static INSERT: Insert = Insert::new(&PAYMENTS, Existing::KeepsLeast);

pub(crate) fn bind(params: &mut Params, payment: &Payment) {
    params
        .add(sql_id(payment.order.pool))
        .add(payment.payment.as_str())
        .add(payment.order.number)
        .add(payment.amount.get())
        .add(payment.paid_at.millis());
}

impl Store {
    /// The payment of that id, if it paid an order of the pool.
    pub async fn payment(&self, pool: PoolId, payment: &PaymentId) -> Result<Option<Payment>> {
        let select = sql!(
            [PAYMENTS] "SELECT {payments} FROM payments WHERE sale_id = ? AND payment_id = ?"
        );
        let values = [sql_id(pool).into(), payment.as_str().into()];
        let row = self.database.fetch_optional(select, &values).await;
        row.when("reading a payment")?.as_ref().map(read).transpose()
    }

    /// The payments of a pool with ids above `after`, by rising id.
    pub async fn payments_page(
        &self,
        pool: PoolId,
        after: Option<&PaymentId>,
        max: u32,
    ) -> Result<Vec<Payment>> {
        let select = sql!(
            [PAYMENTS] "SELECT {payments} FROM payments WHERE sale_id = ? AND payment_id > ?
                        ORDER BY payment_id LIMIT ?"
        );
        let after = after.map_or("", PaymentId::as_str);
        let values = [sql_id(pool).into(), after.into(), page(max).into()];
        let rows = self.database.fetch_all(select, &values).await;
        rows.when("reading a sale's payments")?.iter().map(read).collect()
    }
}

fn read(row: &Row) -> Result<Payment> {
    let mut fields = Fields::new(row, &PAYMENTS);
    let (pool, payment) = (fields.pool()?, fields.id(PaymentId::new)?);
    Ok(Payment {
        order: ClaimId { pool, number: fields.number()? },
        payment,
        amount: fields.cents()?,
        paid_at: fields.time()?,
    })
}
