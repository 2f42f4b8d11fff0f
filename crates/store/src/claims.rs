//! Claims: one row for each, holding its newest version whole, so that the row converts back to
//! an equal [`Claim`].

use std::sync::Arc;

use qiang_core::{
    Claim, ClaimId, Identity, PaymentId, PoolId, ReleaseReason, RequestId, State, UserId,
};
use sqlx::sqlite::SqliteRow;

use crate::bulk::{Binding, Insert};
use crate::error::{Result, While};
use crate::fields::Fields;
use crate::project::sql_id;
use crate::{Store, page};

macro_rules! columns {
    () => {
        "sale_id, number, user_id, identity, request_id, quantity, unit_price_cents, portion, \
         state, version, created_at, changed_at, hold_until, pay_by, payment_id, replaces, reason"
    };
}

/// Only what can change after the grant is updated.
pub(crate) static UPSERT: Insert = Insert::new(
    concat!("INSERT INTO claims (", columns!(), ")"),
    "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "ON CONFLICT (sale_id, number) DO UPDATE SET
        state = excluded.state, version = excluded.version, changed_at = excluded.changed_at,
        hold_until = excluded.hold_until, pay_by = excluded.pay_by,
        payment_id = excluded.payment_id, reason = excluded.reason
     WHERE excluded.version > claims.version",
);

/// A claim on its way to the database; its order shares the user's text.
pub(crate) struct Row<'a> {
    pub(crate) claim: &'a Claim,
    pub(crate) user: Arc<str>,
}

pub(crate) fn bind<'q>(query: Binding<'q>, row: &Row<'_>) -> Binding<'q> {
    let claim = row.claim;
    query
        .bind(sql_id(claim.id.pool))
        .bind(i64::from(claim.id.number))
        .bind(Arc::clone(&row.user))
        .bind(claim.identity.as_ref().map(|identity| Arc::<str>::from(identity.as_str())))
        .bind(claim.request.as_ref().map(|request| Arc::<str>::from(request.as_str())))
        .bind(i64::from(claim.quantity))
        .bind(claim.unit_price.get())
        .bind(claim.portion.map(i64::from))
        .bind(Arc::<str>::from(claim.state.as_str()))
        .bind(i64::from(claim.version))
        .bind(claim.created_at.millis())
        .bind(claim.changed_at.millis())
        .bind(claim.hold_until.map(|at| at.millis()))
        .bind(claim.pay_by.map(|at| at.millis()))
        .bind(claim.payment.as_ref().map(|payment| Arc::<str>::from(payment.as_str())))
        .bind(claim.replaces.map(i64::from))
        .bind(claim.reason.map(|reason| Arc::<str>::from(reason.as_str())))
}

impl Store {
    /// One claim.
    pub async fn claim(&self, id: ClaimId) -> Result<Option<Claim>> {
        let row = sqlx::query(concat!(
            "SELECT ",
            columns!(),
            " FROM claims WHERE sale_id = $1 AND number = $2"
        ))
        .bind(sql_id(id.pool))
        .bind(i64::from(id.number))
        .fetch_optional(self.readers())
        .await
        .when("reading a claim")?;
        row.as_ref().map(read).transpose()
    }

    /// The claims of a pool with numbers above `after`, by rising number.
    pub async fn claims_page(&self, pool: PoolId, after: u32, max: u32) -> Result<Vec<Claim>> {
        let rows = sqlx::query(concat!(
            "SELECT ",
            columns!(),
            " FROM claims WHERE sale_id = $1 AND number > $2
             ORDER BY number LIMIT $3"
        ))
        .bind(sql_id(pool))
        .bind(i64::from(after))
        .bind(page(max))
        .fetch_all(self.readers())
        .await
        .when("reading a sale's claims")?;
        rows.iter().map(read).collect()
    }
}

fn read(row: &SqliteRow) -> Result<Claim> {
    let mut fields = Fields::new(row, "claims", 2);
    Ok(Claim {
        id: fields.claim_id()?,
        user: fields.id(UserId::new)?,
        identity: fields.id_or_none(Identity::new)?,
        request: fields.id_or_none(RequestId::new)?,
        quantity: fields.number()?,
        unit_price: fields.cents()?,
        portion: fields.number_or_none()?,
        state: fields.word(State::from_word)?,
        version: fields.number()?,
        created_at: fields.time()?,
        changed_at: fields.time()?,
        hold_until: fields.time_or_none()?,
        pay_by: fields.time_or_none()?,
        payment: fields.id_or_none(PaymentId::new)?,
        replaces: fields.number_or_none()?,
        reason: fields.word_or_none(ReleaseReason::from_word)?,
    })
}
