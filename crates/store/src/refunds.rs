//! Money that goes back. A refund is due when the log says so, and settled when somebody has sent
//! it. Only this table knows that it was settled, so that write waits for the disk, and no event
//! undoes it.

use qiang_core::{ClaimId, PaymentId, PoolId, Refund, RefundReason, Timestamp};
use qiang_sql::{Existing, Insert, Params, Row, Table, Value, sql};

use crate::error::{Result, While};
use crate::fields::Fields;
use crate::project::sql_id;
use crate::{Store, page, patiently};

/// A refund, and whether it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefundRecord {
    /// What goes back, and why.
    pub refund: Refund,
    /// When it was sent, if it was.
    pub settled_at: Option<Timestamp>,
}

impl RefundRecord {
    /// Whether it is still to be sent.
    #[must_use]
    pub fn status(&self) -> RefundStatus {
        self.settled_at.map_or(RefundStatus::Due, |_| RefundStatus::Settled)
    }

    /// The place of this refund in the listing of its status.
    #[must_use]
    pub fn cursor(&self) -> RefundCursor {
        let Refund { order, payment, at, .. } = &self.refund;
        RefundCursor { due_at: *at, pool: order.pool, payment: payment.clone() }
    }
}

/// Whether a refund was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RefundStatus {
    /// Still to be sent.
    Due,
    /// Sent: final.
    Settled,
}

impl RefundStatus {
    /// The word for it in JSON and SQL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Due => "due",
            Self::Settled => "settled",
        }
    }

    /// The value a word stands for.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Due, Self::Settled].into_iter().find(|status| status.as_str() == word)
    }
}

/// A place in the listing of refunds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefundCursor {
    /// When the last refund seen became due.
    pub due_at: Timestamp,
    pub pool: PoolId,
    pub payment: PaymentId,
}

/// What came of marking a refund as sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettleOutcome {
    /// It was due, and is settled now.
    Settled,
    /// It had been settled before; nothing changed.
    AlreadySettled {
        at: Timestamp,
    },
    NoSuchRefund,
}

static REFUNDS: Table = Table {
    name: "refunds",
    key: "sale_id, payment_id",
    fixed: "number, amount_cents, reason, due_at",
    changing: "status, settled_at",
};

/// A refund that is known stays as it is: a settled one never becomes due again.
pub(crate) static INSERT: Insert = Insert::new(&REFUNDS, Existing::Stays);

pub(crate) fn bind(params: &mut Params, refund: &Refund) {
    params
        .add(sql_id(refund.order.pool))
        .add(refund.payment.as_str())
        .add(refund.order.number)
        .add(refund.amount.get())
        .add(refund.reason.as_str())
        .add(refund.at.millis())
        .add(RefundStatus::Due.as_str())
        .add(Value::Null);
}

macro_rules! select {
    ($which:literal) => {
        sql!([REFUNDS] concat!("SELECT {refunds} FROM refunds WHERE ", $which))
    };
}

impl Store {
    /// The refund of that payment, if there is one in the pool.
    pub async fn refund(&self, pool: PoolId, payment: &PaymentId) -> Result<Option<RefundRecord>> {
        let values = [sql_id(pool).into(), payment.as_str().into()];
        let row =
            self.database.fetch_optional(select!("sale_id = ? AND payment_id = ?"), &values).await;
        row.when("reading a refund")?.as_ref().map(read).transpose()
    }

    /// All refunds of one status, longest due first, from behind the cursor on; the next cursor
    /// is the last refund's [`RefundRecord::cursor`].
    pub async fn refunds(
        &self,
        status: RefundStatus,
        after: Option<&RefundCursor>,
        max: u32,
    ) -> Result<Vec<RefundRecord>> {
        let (status, max) = (Value::Text(status.as_str()), page(max).into());
        let rows = match after {
            None => {
                let select = select!("status = ? ORDER BY due_at, sale_id, payment_id LIMIT ?");
                self.database.fetch_all(select, &[status, max]).await
            }
            Some(RefundCursor { due_at, pool, payment }) => {
                // The first bound follows from the second; MySQL needs it to use the index.
                let select = select!(
                    "status = ? AND due_at >= ? AND (due_at, sale_id, payment_id) > (?, ?, ?)
                     ORDER BY due_at, sale_id, payment_id LIMIT ?"
                );
                let (due_at, pool) = (Value::Int(due_at.millis()), sql_id(*pool).into());
                let values = [status, due_at, due_at, pool, payment.as_str().into(), max];
                self.database.fetch_all(select, &values).await
            }
        };
        rows.when("reading refunds")?.iter().map(read).collect()
    }

    /// The refunds of a pool with payment ids above `after`, by rising payment id.
    pub async fn refunds_page(
        &self,
        pool: PoolId,
        after: Option<&PaymentId>,
        max: u32,
    ) -> Result<Vec<RefundRecord>> {
        let select = select!("sale_id = ? AND payment_id > ? ORDER BY payment_id LIMIT ?");
        let after = after.map_or("", PaymentId::as_str);
        let values = [sql_id(pool).into(), after.into(), page(max).into()];
        let rows = self.database.fetch_all(select, &values).await;
        rows.when("reading a sale's refunds")?.iter().map(read).collect()
    }

    /// The refunds of an order, longest due first.
    pub async fn refunds_of(&self, order: ClaimId, max: u32) -> Result<Vec<RefundRecord>> {
        let select = select!("sale_id = ? AND number = ? ORDER BY due_at, payment_id LIMIT ?");
        let (sale, number) = (sql_id(order.pool), i64::from(order.number));
        let values = [sale.into(), number.into(), page(max).into()];
        let rows = self.database.fetch_all(select, &values).await;
        rows.when("reading an order's refunds")?.iter().map(read).collect()
    }

    /// The refunds that are due and whose payments came from accounts, longest due first.
    pub async fn refunds_to_accounts(&self, max: u32) -> Result<Vec<RefundRecord>> {
        let select = select!(
            "status = 'due' AND payment_id >= 'order:' AND payment_id < 'order;'
             ORDER BY due_at, sale_id, payment_id LIMIT ?"
        );
        let rows = self.database.fetch_all(select, &[page(max).into()]).await;
        rows.when("reading refunds")?.iter().map(read).collect()
    }

    /// Marks a refund as sent, once; it is on the disk when this returns.
    pub async fn settle_refund(
        &self,
        pool: PoolId,
        payment: &PaymentId,
        at: Timestamp,
    ) -> Result<SettleOutcome> {
        let settle = sql!(
            "UPDATE refunds SET status = 'settled', settled_at = ?
             WHERE sale_id = ? AND payment_id = ? AND status = 'due'"
        );
        let values = [at.millis().into(), sql_id(pool).into(), payment.as_str().into()];
        let settled = patiently!(self.database.execute(settle, &values).await);
        if settled.when("settling a refund")? == 1 {
            return Ok(SettleOutcome::Settled);
        }
        // If there is one that is due, it was recorded after our UPDATE, which did not find it.
        let known = self.refund(pool, payment).await?;
        Ok(known
            .and_then(|record| record.settled_at)
            .map_or(SettleOutcome::NoSuchRefund, |at| SettleOutcome::AlreadySettled { at }))
    }
}

fn read(row: &Row) -> Result<RefundRecord> {
    let mut fields = Fields::new(row, &REFUNDS);
    let (pool, payment) = (fields.pool()?, fields.id(PaymentId::new)?);
    let refund = Refund {
        order: ClaimId { pool, number: fields.number()? },
        payment,
        amount: fields.cents()?,
        reason: fields.word(RefundReason::from_word)?,
        at: fields.time()?,
    };
    let settled_at = match fields.word(RefundStatus::from_word)? {
        RefundStatus::Due => None,
        RefundStatus::Settled => Some(fields.time()?),
    };
    Ok(RefundRecord { refund, settled_at })
}
