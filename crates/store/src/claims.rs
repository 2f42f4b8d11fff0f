//! Claims: one row for each, holding its newest version whole, so that the row converts back to
//! an equal [`Claim`].

use std::sync::Arc;

use qiang_core::{
    Claim, ClaimId, Identity, Kind, PaymentId, PoolId, ReleaseReason, RequestId, State, UserId,
};
use qiang_sql::{Existing, Insert, Params, Row as Found, Table, sql};

use crate::error::{Result, While};
use crate::fields::Fields;
use crate::project::sql_id;
use crate::{Store, page};

pub(crate) static CLAIMS: Table = Table {
    name: "claims",
    key: "sale_id, number",
    fixed: "user_id, identity, request_id, quantity, unit_price_cents, \"portion\", created_at, \
        replaces",
    changing: "state, version, changed_at, hold_until, pay_by, payment_id, reason",
};

pub(crate) static UPSERT: Insert = Insert::new(&CLAIMS, Existing::YieldsToNewer);

/// A claim on its way to the database; its order shares the user's text.
pub(crate) struct Row<'a> {
    pub(crate) claim: &'a Claim,
    pub(crate) user: Arc<str>,
}

pub(crate) fn bind(params: &mut Params, row: &Row<'_>) {
    let claim = row.claim;
    params
        .add(sql_id(claim.id.pool))
        .add(claim.id.number)
        .add(&row.user)
        .add(claim.identity.as_ref().map(Identity::as_str))
        .add(claim.request.as_ref().map(RequestId::as_str))
        .add(claim.quantity)
        .add(claim.unit_price.get())
        .add(claim.portion)
        .add(claim.created_at.millis())
        .add(claim.replaces)
        .add(claim.state.as_str())
        .add(claim.version)
        .add(claim.changed_at.millis())
        .add(claim.hold_until.map(|at| at.millis()))
        .add(claim.pay_by.map(|at| at.millis()))
        .add(claim.payment.as_ref().map(PaymentId::as_str))
        .add(claim.reason.map(ReleaseReason::as_str));
}

impl Store {
    pub async fn claim(&self, id: ClaimId) -> Result<Option<Claim>> {
        let select = sql!([CLAIMS] "SELECT {claims} FROM claims WHERE sale_id = ? AND number = ?");
        let row =
            self.database.fetch_optional(select, &[sql_id(id.pool).into(), id.number.into()]).await;
        row.when("reading a claim")?.as_ref().map(read).transpose()
    }

    /// The claims of a pool with numbers above `after`, by rising number.
    pub async fn claims_page(&self, pool: PoolId, after: u32, max: u32) -> Result<Vec<Claim>> {
        let select = sql!(
            [CLAIMS] "SELECT {claims} FROM claims WHERE sale_id = ? AND number > ?
                      ORDER BY number LIMIT ?"
        );
        let values = [sql_id(pool).into(), after.into(), page(max).into()];
        let rows = self.database.fetch_all(select, &values).await;
        rows.when("reading a sale's claims")?.iter().map(read).collect()
    }
}

pub(crate) fn read(row: &Found) -> Result<Claim> {
    let mut fields = Fields::new(row, &CLAIMS);
    Ok(Claim {
        kind: Kind::Sale,
        id: fields.claim_id()?,
        user: fields.id(UserId::new)?,
        identity: fields.id_or_none(Identity::new)?,
        request: fields.id_or_none(RequestId::new)?,
        quantity: fields.number()?,
        unit_price: fields.cents()?,
        portion: fields.number_or_none()?,
        created_at: fields.time()?,
        replaces: fields.number_or_none()?,
        state: fields.word(State::from_word)?,
        version: fields.number()?,
        changed_at: fields.time()?,
        hold_until: fields.time_or_none()?,
        pay_by: fields.time_or_none()?,
        payment: fields.id_or_none(PaymentId::new)?,
        reason: fields.word_or_none(ReleaseReason::from_word)?,
    })
}
