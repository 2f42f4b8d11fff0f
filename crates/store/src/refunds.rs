//! Money that goes back. Due when the log says so, settled when somebody has sent it: the second
//! is known only here, so it waits for the disk, and nothing in the log takes it back.

use std::sync::Arc;

use qiang_core::{ClaimId, PaymentId, PoolId, Refund, RefundReason, Timestamp};
use sqlx::sqlite::SqliteRow;

use crate::bulk::{Binding, Insert};
use crate::error::{Result, While};
use crate::fields::Fields;
use crate::project::sql_id;
use crate::{Store, page};

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
    /// Its pool.
    pub pool: PoolId,
    /// Its payment.
    pub payment: PaymentId,
}

/// What came of marking a refund as sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettleOutcome {
    /// It was due, and is settled now.
    Settled,
    /// It had been settled before; nothing changed.
    AlreadySettled {
        /// When.
        at: Timestamp,
    },
    /// There is no such refund.
    NoSuchRefund,
}

/// A refund that is known stays as it is: a settled one never becomes due again.
pub(crate) static INSERT: Insert = Insert::new(
    "INSERT INTO refunds (sale_id, payment_id, number, amount_cents, reason, due_at, status)",
    "(?, ?, ?, ?, ?, ?, 'due')",
    "ON CONFLICT (sale_id, payment_id) DO NOTHING",
);

pub(crate) fn bind<'q>(query: Binding<'q>, refund: &&Refund) -> Binding<'q> {
    query
        .bind(sql_id(refund.order.pool))
        .bind(Arc::<str>::from(refund.payment.as_str()))
        .bind(i64::from(refund.order.number))
        .bind(refund.amount.get())
        .bind(refund.reason.as_str())
        .bind(refund.at.millis())
}

macro_rules! select {
    ($which:literal) => {
        concat!(
            "SELECT sale_id, payment_id, number, amount_cents, reason, due_at, status, settled_at
             FROM refunds WHERE ",
            $which
        )
    };
}

impl Store {
    /// The refund of that payment, if there is one in the pool.
    pub async fn refund(&self, pool: PoolId, payment: &PaymentId) -> Result<Option<RefundRecord>> {
        let row = sqlx::query(select!("sale_id = $1 AND payment_id = $2"))
            .bind(sql_id(pool))
            .bind(payment.as_str())
            .fetch_optional(self.readers())
            .await
            .when("reading a refund")?;
        row.as_ref().map(read).transpose()
    }

    /// All refunds of one status, longest due first, from behind the cursor on; the next cursor
    /// is the last refund's [`RefundRecord::cursor`].
    pub async fn refunds(
        &self,
        status: RefundStatus,
        after: Option<&RefundCursor>,
        max: u32,
    ) -> Result<Vec<RefundRecord>> {
        let query = match after {
            None => {
                sqlx::query(select!("status = $1 ORDER BY due_at, sale_id, payment_id LIMIT $2"))
                    .bind(status.as_str())
            }
            Some(cursor) => sqlx::query(select!(
                "status = $1 AND (due_at, sale_id, payment_id) > ($2, $3, $4)
                 ORDER BY due_at, sale_id, payment_id LIMIT $5"
            ))
            .bind(status.as_str())
            .bind(cursor.due_at.millis())
            .bind(sql_id(cursor.pool))
            .bind(cursor.payment.as_str().to_owned()),
        };
        let rows = query.bind(page(max)).fetch_all(self.readers()).await;
        rows.when("reading refunds")?.iter().map(read).collect()
    }

    /// The refunds of a pool with payment ids above `after`, by rising payment id.
    pub async fn refunds_page(
        &self,
        pool: PoolId,
        after: Option<&PaymentId>,
        max: u32,
    ) -> Result<Vec<RefundRecord>> {
        let rows =
            sqlx::query(select!("sale_id = $1 AND payment_id > $2 ORDER BY payment_id LIMIT $3"))
                .bind(sql_id(pool))
                .bind(after.map_or("", PaymentId::as_str))
                .bind(page(max))
                .fetch_all(self.readers())
                .await
                .when("reading a sale's refunds")?;
        rows.iter().map(read).collect()
    }

    /// Marks a refund as sent, once; it is on the disk when this returns.
    pub async fn settle_refund(
        &self,
        pool: PoolId,
        payment: &PaymentId,
        at: Timestamp,
    ) -> Result<SettleOutcome> {
        const DOING: &str = "settling a refund";
        let mut tx = self.begin().await?;
        let done = sqlx::query(
            "UPDATE refunds SET status = 'settled', settled_at = $1
             WHERE sale_id = $2 AND payment_id = $3 AND status = 'due'",
        )
        .bind(at.millis())
        .bind(sql_id(pool))
        .bind(payment.as_str())
        .execute(&mut *tx)
        .await
        .when(DOING)?;
        if done.rows_affected() == 1 {
            tx.commit().await.when(DOING)?;
            return Ok(SettleOutcome::Settled);
        }
        let row = sqlx::query(select!("sale_id = $1 AND payment_id = $2"))
            .bind(sql_id(pool))
            .bind(payment.as_str())
            .fetch_optional(&mut *tx)
            .await
            .when(DOING)?;
        let known = row.as_ref().map(read).transpose()?;
        tx.commit().await.when(DOING)?;
        Ok(known
            .and_then(|record| record.settled_at)
            .map_or(SettleOutcome::NoSuchRefund, |at| SettleOutcome::AlreadySettled { at }))
    }
}

fn read(row: &SqliteRow) -> Result<RefundRecord> {
    let mut fields = Fields::new(row, "refunds", 2);
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
