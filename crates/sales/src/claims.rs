//! Claims over HTTP: take, look, order, give up. The first is the path everybody runs at once:
//! token, body, one question to the engine, answer.

use std::fmt::Display;
use std::num::NonZeroU32;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use qiang_core::{
    Claim, ClaimId, ClaimRequest, Command, Kind, MAX_UNITS, Outcome, PoolId, ReleaseReason,
    Timestamp, UserId,
};
use qiang_store::ReviewStatus;
use serde::{Deserialize, Serialize, Serializer};
use utoipa::ToSchema;

use crate::sale::{refused, sale_id};
use qiang_app::App;
use qiang_app::Origin;
use qiang_app::extract::Shared;
use qiang_app::extract::{Caller, IdempotencyKey, Nothing, OptionalJson, Path};
use qiang_app::problem::{Code, Problem};
use qiang_app::{json_time, schema, whole};

/// What to claim.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewClaim {
    /// How many units; a sale has its own limit.
    #[serde(default = "one", deserialize_with = "whole::deserialize")]
    #[schema(minimum = 1, maximum = 2147483648_i64, default = 1, example = 1)]
    quantity: i64,
}

fn one() -> i64 {
    1
}

impl Default for NewClaim {
    fn default() -> Self {
        Self { quantity: one() }
    }
}

/// A claim and where it stands.
#[derive(Debug, Serialize, ToSchema)]
pub struct ClaimView {
    /// `<sale>-<number>`
    #[serde(serialize_with = "text")]
    #[schema(value_type = schema::ClaimId)]
    pub claim_id: ClaimId,
    /// The sale it takes from.
    #[serde(serialize_with = "text")]
    #[schema(value_type = schema::SaleId)]
    pub sale_id: PoolId,
    /// Whose it is.
    #[serde(serialize_with = "text")]
    #[schema(value_type = schema::UserId)]
    pub user_id: UserId,
    /// Its place among all claims of the sale, from 1.
    #[schema(minimum = 1, example = 1)]
    pub number: u32,
    /// Units.
    #[schema(minimum = 1, example = 1)]
    pub quantity: u32,
    /// Price of a unit, fixed when it was granted.
    #[schema(minimum = 0, maximum = 1000000000, example = 9900)]
    pub unit_price_cents: i64,
    /// Where it stands.
    #[schema(value_type = schema::ClaimState)]
    pub state: &'static str,
    /// Its order, once one was placed; it has the claim's own id.
    #[serde(serialize_with = "text_or_null")]
    #[schema(value_type = Option<schema::ClaimId>)]
    pub order_id: Option<ClaimId>,
    /// A hold without an order is released at this time.
    #[serde(with = "json_time::option")]
    #[schema(value_type = Option<schema::Time>)]
    pub hold_until: Option<Timestamp>,
    /// An unpaid order is released at this time.
    #[serde(with = "json_time::option")]
    #[schema(value_type = Option<schema::Time>)]
    pub pay_by: Option<Timestamp>,
    /// When it was granted.
    #[serde(with = "json_time")]
    #[schema(value_type = schema::Time)]
    pub created_at: Timestamp,
    /// Why it was released.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::ReleaseReason>)]
    pub release_reason: Option<&'static str>,
    /// The released claim in whose place a late payment put this one.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "text_or_null")]
    #[schema(value_type = Option<schema::ClaimId>)]
    pub replaces: Option<ClaimId>,
    /// `pending` while the shop has to look at it, because the claim could not be recorded; only when it
    /// is looked at by its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::ReviewStatus>)]
    pub review: Option<&'static str>,
}

/// Ids are text in JSON, written without a heap.
fn text<S: Serializer>(id: &impl Display, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(id)
}

fn text_or_null<S: Serializer>(id: &Option<ClaimId>, to: S) -> Result<S::Ok, S::Error> {
    match id {
        Some(id) => to.collect_str(id),
        None => to.serialize_none(),
    }
}

impl From<&Claim> for ClaimView {
    fn from(claim: &Claim) -> Self {
        let in_pool = |number| ClaimId { pool: claim.id.pool, number };
        Self {
            order_id: claim.has_order().then_some(claim.id),
            claim_id: claim.id,
            sale_id: claim.id.pool,
            user_id: claim.user.clone(),
            number: claim.id.number,
            quantity: claim.quantity,
            unit_price_cents: claim.unit_price.get(),
            state: claim.state.as_str(),
            hold_until: claim.hold_until,
            pay_by: claim.pay_by,
            created_at: claim.created_at,
            release_reason: claim.reason.map(ReleaseReason::as_str),
            replaces: claim.replaces.map(in_pool),
            review: None,
        }
    }
}

/// Claim units of a sale
///
/// With an `Idempotency-Key`, asking again gives the first claim again.
#[utoipa::path(post, path = "/api/v1/sales/{sale_id}/claims", operation_id = "claim_sale", tag = "claims", security(("token" = [])),
    params(("sale_id" = schema::SaleId, Path, description = "The sale"), ("Idempotency-Key" = Option<schema::IdempotencyKey>, Header, description = "Asking again with the same key is not asking twice")),
    request_body = Option<NewClaim>,
    responses((status = 201, description = "Granted", body = ClaimView), (status = 200, description = "Granted before", body = ClaimView)))]
pub async fn create(
    State(app): Shared,
    origin: Origin,
    caller: Caller,
    Path(id): Path<String>,
    key: IdempotencyKey,
    OptionalJson(body): OptionalJson<NewClaim>,
) -> Result<impl IntoResponse, Problem> {
    let (status, view) = claim(&app, &origin, caller, sale_id(&id)?, key, &body).await?;
    Ok((status, axum::Json(view)))
}

/// Claim a voucher
///
/// The same as a claim on a sale, under the address shops with vouchers know.
#[utoipa::path(post, path = "/voucher-order/seckill/{voucher_id}", operation_id = "claim_voucher", tag = "claims", security(("token" = [])),
    params(("voucher_id" = schema::SaleId, Path, description = "The sale"), ("Idempotency-Key" = Option<schema::IdempotencyKey>, Header, description = "Asking again with the same key is not asking twice")),
    request_body = Option<NewClaim>,
    responses((status = 201, description = "Granted", body = ClaimView), (status = 200, description = "Granted before", body = ClaimView)))]
pub async fn create_for_voucher(
    State(app): Shared,
    origin: Origin,
    caller: Caller,
    Path(id): Path<String>,
    key: IdempotencyKey,
    OptionalJson(body): OptionalJson<NewClaim>,
) -> Result<impl IntoResponse, Problem> {
    let (status, view) = claim(&app, &origin, caller, sale_id(&id)?, key, &body).await?;
    Ok((status, axum::Json(view)))
}

/// Takes units for the caller.
pub async fn claim(
    app: &App,
    origin: &Origin,
    Caller(who): Caller,
    pool: PoolId,
    IdempotencyKey(request): IdempotencyKey,
    body: &NewClaim,
) -> Result<(StatusCode, ClaimView), Problem> {
    let quantity = u32::try_from(body.quantity).ok().filter(|units| *units <= MAX_UNITS);
    let quantity = quantity.and_then(NonZeroU32::new);
    let quantity = quantity
        .ok_or_else(|| Problem::invalid_field("quantity", "must be from 1 to the sale's limit"))?;
    let (kind, user, identity) = (Kind::Sale, who.user, who.identity);
    let wish = ClaimRequest { kind, pool, user, identity, request, quantity };
    created(app.decide(Command::Claim(wish), origin).await?.into_claim())
}

/// Show a claim
///
/// One of your claims, as it is at this moment. An admin sees everybody's.
#[utoipa::path(get, path = "/api/v1/claims/{claim_id}", operation_id = "show_claim", tag = "claims", security(("token" = [])),
    params(("claim_id" = schema::ClaimId, Path, description = "The claim")),
    responses((status = 200, description = "The claim", body = ClaimView)))]
pub async fn show(
    State(app): Shared,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<axum::Json<ClaimView>, Problem> {
    let id = claim_id(&id)?;
    let claim = find(&app, id).await?.filter(|claim| caller.may_see(&claim.user));
    let claim = claim.ok_or_else(|| Problem::new(Code::NoSuchClaim))?;
    Ok(axum::Json(ClaimView { review: pending_review(&app, id), ..ClaimView::from(&claim) }))
}

/// Says so if a person has to look at a claim, because it could not be recorded.
pub(crate) fn pending_review(app: &App, claim: ClaimId) -> Option<&'static str> {
    app.set_aside.contains(claim).then(|| ReviewStatus::Pending.as_str())
}

/// Order a held claim
///
/// Asking again changes nothing.
#[utoipa::path(post, path = "/api/v1/claims/{claim_id}/order", operation_id = "order_claim", tag = "claims", security(("token" = [])),
    params(("claim_id" = schema::ClaimId, Path, description = "The claim")),
    responses((status = 201, description = "Ordered", body = ClaimView), (status = 200, description = "Ordered before", body = ClaimView)))]
pub async fn order(
    State(app): Shared,
    origin: Origin,
    caller: Caller,
    Path(id): Path<String>,
    _: OptionalJson<Nothing>,
) -> Result<impl IntoResponse, Problem> {
    let id = claim_id(&id)?;
    let command = Command::Order { claim: id, by: caller.scope() };
    let outcome = app.decide(command, &origin).await?.into_claim();
    if let Outcome::Refused(refusal) = &outcome {
        return Err(refused(&app, id.pool, refusal).await);
    }
    let (status, view) = created(outcome)?;
    Ok((status, axum::Json(view)))
}

/// Give a claim up
///
/// Its units go to others. The claim can still be looked at, as `released`.
#[utoipa::path(delete, path = "/api/v1/claims/{claim_id}", operation_id = "give_up_claim", tag = "claims", security(("token" = [])),
    params(("claim_id" = schema::ClaimId, Path, description = "The claim")),
    responses((status = 200, description = "The released claim", body = ClaimView)))]
pub async fn give_up(
    State(app): Shared,
    origin: Origin,
    caller: Caller,
    Path(id): Path<String>,
    _: OptionalJson<Nothing>,
) -> Result<axum::Json<ClaimView>, Problem> {
    let id = claim_id(&id)?;
    let (by, reason) = (caller.scope(), ReleaseReason::GaveUp);
    let command = Command::Release { claim: id, by, reason };
    match app.decide(command, &origin).await?.into_claim() {
        Outcome::Done(claim) | Outcome::Replayed(claim) => Ok(axum::Json(ClaimView::from(&claim))),
        Outcome::Refused(refusal) => Err(refused(&app, id.pool, &refusal).await),
    }
}

/// 201 for what happened now, 200 for what had happened before.
fn created(outcome: Outcome<Claim>) -> Result<(StatusCode, ClaimView), Problem> {
    match outcome {
        Outcome::Done(claim) => Ok((StatusCode::CREATED, ClaimView::from(&claim))),
        Outcome::Replayed(claim) => Ok((StatusCode::OK, ClaimView::from(&claim))),
        Outcome::Refused(refusal) => Err(Problem::from(&refusal)),
    }
}

/// A claim of a sale: from the engine the moment it was granted, from the records once its sale is
/// cleared.
pub async fn find(app: &App, id: ClaimId) -> Result<Option<Claim>, Problem> {
    match app.answer(app.engine.claim_view(id)).await? {
        Some(claim) => Ok(Some(claim).filter(|claim| claim.kind == Kind::Sale)),
        None => Ok(app.store.claim(id).await?),
    }
}

/// A claim's id out of a path.
pub fn claim_id(text: &str) -> Result<ClaimId, Problem> {
    text.parse().map_err(|_| Problem::new(Code::NoSuchClaim))
}
