//! Money that arrives: from the sandbox, or announced by the provider's signed callback. Every
//! payment counts once, by its id, and ends in one of three ways: it pays, it buys a released
//! claim anew, or it is owed back.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::HeaderMap;
use qiang_core::{
    Cents, Claim, Command, Outcome, PayRequest, PaymentId, PoolId, Refund, RefundReason, Refusal,
    Settlement, Timestamp,
};
use qiang_store::{RefundCursor, RefundRecord, RefundStatus, SettleOutcome};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::entry::Origin;
use crate::epochs;
use crate::http::extract::{Admin, Caller, Nothing, OptionalJson, Path, Raw, from_json};
use crate::http::problem::{Code, Problem};
use crate::http::{Shared, cursor, json_time, schema, whole};
use crate::orders::{self, OrderView, order_id};
use crate::sales::{page_limit, sale_id};
use crate::signature::{SIGNATURE_HEADER, TIMESTAMP_HEADER};

/// Refunds on one page, unless asked for fewer.
const PAGE: u32 = 100;
/// The most an order can cost: all units of the largest sale at the highest price.
const MAX_AMOUNT_CENTS: i64 = Cents::MAX_PRICE.get() * qiang_core::MAX_UNITS as i64;

/// A payment without money.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SandboxPayment {
    /// Its id; left out, one that belongs to the order, so that paying twice pays once.
    #[schema(value_type = Option<schema::PaymentId>)]
    payment_id: Option<String>,
}

/// What the provider tells.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Callback {
    /// The provider's id of the payment, 1 to 128 bytes.
    #[schema(value_type = schema::PaymentId)]
    payment_id: String,
    /// The order it is for.
    #[schema(value_type = schema::ClaimId)]
    order_id: String,
    /// How much arrived, in cents.
    #[serde(deserialize_with = "whole::deserialize")]
    #[schema(minimum = 1, maximum = 2147483648000000000_i64, example = 9900)]
    amount_cents: i64,
}

/// What became of a payment.
#[derive(Debug, Serialize, ToSchema)]
pub struct SettlementView {
    /// What became of it.
    #[schema(value_type = schema::PaymentOutcome)]
    pub outcome: &'static str,
    /// Whether this payment had been told before.
    pub replayed: bool,
    /// The order that is paid now; after `regranted` it is a new one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<OrderView>,
    /// What goes back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refund: Option<RefundView>,
}

/// Money that goes back.
#[derive(Debug, Serialize, ToSchema)]
pub struct RefundView {
    /// The sale.
    #[schema(value_type = schema::SaleId)]
    pub sale_id: String,
    /// The order the money was meant for.
    #[schema(value_type = schema::ClaimId)]
    pub order_id: String,
    /// The payment.
    #[schema(value_type = schema::PaymentId)]
    pub payment_id: String,
    /// How much, in cents.
    #[schema(minimum = 0, example = 9900)]
    pub amount_cents: i64,
    /// The order of another sale that a payment of the same id has paid, where that is known: look
    /// whether it is the same money before you send it back.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::ClaimId>)]
    pub paid_order_id: Option<String>,
    /// Why it goes back.
    #[schema(value_type = schema::RefundReason)]
    pub reason: &'static str,
    /// Whether it was sent.
    #[schema(value_type = schema::RefundStatus)]
    pub status: &'static str,
    /// Since when it is owed.
    #[serde(with = "json_time")]
    #[schema(value_type = schema::Time)]
    pub due_at: Timestamp,
    /// When the shop said it was sent.
    #[serde(with = "json_time::option")]
    #[schema(value_type = Option<schema::Time>)]
    pub settled_at: Option<Timestamp>,
}

/// One page of refunds.
#[derive(Debug, Serialize, ToSchema)]
pub struct RefundPage {
    /// Oldest first.
    pub refunds: Vec<RefundView>,
    /// Give this as `after` to see the next; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::RefundCursor>)]
    pub next_after: Option<String>,
}

/// Which refunds.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RefundQuery {
    /// `due` (the default) or `settled`.
    #[param(value_type = Option<schema::RefundStatus>)]
    status: Option<String>,
    /// `next_after` of the page before.
    #[param(value_type = Option<schema::RefundCursor>)]
    after: Option<String>,
    /// How many to show, 1 to 100.
    #[param(minimum = 1, maximum = 100, example = 20)]
    limit: Option<u32>,
}

impl RefundView {
    fn of(refund: &Refund, settled_at: Option<Timestamp>) -> Self {
        let status = if settled_at.is_some() { RefundStatus::Settled } else { RefundStatus::Due };
        Self {
            sale_id: refund.order.pool.to_string(),
            order_id: refund.order.to_string(),
            payment_id: refund.payment.to_string(),
            amount_cents: refund.amount.get(),
            paid_order_id: None,
            reason: RefundReason::as_str(refund.reason),
            status: status.as_str(),
            due_at: refund.at,
            settled_at,
        }
    }

    /// As recorded, with the orders of other sales that the same payments have paid.
    async fn of_records(app: &App, records: &[RefundRecord]) -> Result<Vec<Self>, Problem> {
        let payments: Vec<_> = records.iter().map(|record| &record.refund.payment).collect();
        let orders = app.store.orders_paid_by(&payments).await?;
        let view = |record: &RefundRecord| {
            let refund = &record.refund;
            let elsewhere = orders.get(&refund.payment);
            let elsewhere = elsewhere.filter(|order| order.pool != refund.order.pool);
            let paid_order_id = elsewhere.map(ToString::to_string);
            Self { paid_order_id, ..Self::of(refund, record.settled_at) }
        };
        Ok(records.iter().map(view).collect())
    }
}

/// Pay an order in the sandbox
///
/// Pays one of your orders without money, where the sandbox is on.
#[utoipa::path(post, path = "/api/v1/orders/{order_id}/pay", operation_id = "pay_order", tag = "orders", security(("token" = [])),
    params(("order_id" = schema::ClaimId, Path, description = "The order, which has the id of its claim")),
    request_body = Option<SandboxPayment>,
    responses((status = 200, description = "What became of the payment", body = SettlementView)))]
pub async fn pay_in_sandbox(
    State(app): Shared,
    origin: Origin,
    caller: Caller,
    Path(id): Path<String>,
    OptionalJson(body): OptionalJson<SandboxPayment>,
) -> Result<axum::Json<SettlementView>, Problem> {
    if !app.config.payments.sandbox {
        return Err(Problem::new(Code::SandboxDisabled));
    }
    let claim = orders::find_ordered(&app, &caller, &id).await?;
    let payment = match &body.payment_id {
        Some(id) => payment_id(id)?,
        None => payment_id(&format!("sandbox-{}", claim.id))?,
    };
    let by_another = claim.payment.as_ref().is_none_or(|paid_by| *paid_by != payment);
    let is_of_nothing = body.payment_id.is_none() || claim.amount() == Cents::ZERO;
    if claim.state == qiang_core::State::Paid && is_of_nothing && by_another {
        // Nobody is owed money that never was.
        return Err(Problem::new(Code::AlreadyPaid));
    }
    let pay = PayRequest { order: claim.id, payment, amount: claim.amount() };
    view(&app, settle(&app, &origin, pay).await?).await.map(axum::Json)
}

/// Tell that money arrived
///
/// For the payment provider. Signed with `X-Qiang-Timestamp` (Unix seconds) and
/// `X-Qiang-Signature: sha256=<hex>`, an HMAC-SHA256 over `<timestamp>.<body>`. Telling it again
/// gives the same answer.
#[utoipa::path(post, path = "/api/v1/payments/callback", operation_id = "report_payment", tag = "payments",
    params(("X-Qiang-Timestamp" = schema::SignedAt, Header, description = "When it was signed"),
        ("X-Qiang-Signature" = schema::Signature, Header, description = "The signature")),
    request_body = Callback,
    responses((status = 200, description = "What became of the payment", body = SettlementView)))]
pub async fn callback(
    State(app): Shared,
    origin: Origin,
    headers: HeaderMap,
    Raw(body): Raw,
) -> Result<axum::Json<SettlementView>, Problem> {
    let header = |name| headers.get(name).map(axum::http::HeaderValue::as_bytes);
    app.callbacks.verify(
        header(TIMESTAMP_HEADER),
        header(SIGNATURE_HEADER),
        &body,
        app.now(),
        app.config.payments.callback_window,
    )?;
    let told: Callback = from_json(&body)?;
    if !(1..=MAX_AMOUNT_CENTS).contains(&told.amount_cents) {
        let rule = format_args!("must be from 1 to {MAX_AMOUNT_CENTS}");
        return Err(Problem::invalid_field("amount_cents", rule));
    }
    let pay = PayRequest {
        order: order_id(&told.order_id)?,
        payment: payment_id(&told.payment_id)?,
        amount: Cents::new(told.amount_cents),
    };
    view(&app, settle(&app, &origin, pay).await?).await.map(axum::Json)
}

/// List refunds
///
/// Money owed back, oldest first.
#[utoipa::path(get, path = "/api/v1/admin/refunds", operation_id = "list_refunds", tag = "payments", security(("token" = ["admin"])),
    params(RefundQuery),
    responses((status = 200, description = "A page of refunds", body = RefundPage)))]
pub async fn list_refunds(
    State(app): Shared,
    _: Admin,
    query: Result<Query<RefundQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<axum::Json<RefundPage>, Problem> {
    let Query(RefundQuery { status, after, limit }) = query.map_err(Problem::from)?;
    let status = RefundStatus::from_word(status.as_deref().unwrap_or("due"))
        .ok_or_else(|| Problem::invalid_field("status", "must be due or settled"))?;
    let after = after.as_deref().map(read_cursor).transpose()?;
    let limit = page_limit(limit, PAGE)?;
    app.catch_up().await?;
    let records = app.store.refunds(status, after.as_ref(), limit).await?;
    let full = records.len() == limit as usize;
    let next_after = records.last().filter(|_| full).map(|last| write_cursor(&last.cursor()));
    let refunds = RefundView::of_records(&app, &records).await?;
    Ok(axum::Json(RefundPage { refunds, next_after }))
}

/// Settle a refund
///
/// Notes that the money was sent. Noting it again changes nothing.
#[utoipa::path(post, path = "/api/v1/admin/refunds/{sale_id}/{payment_id}/settle", operation_id = "settle_refund", tag = "payments", security(("token" = ["admin"])),
    params(("sale_id" = schema::SaleId, Path, description = "The sale"), ("payment_id" = schema::PaymentId, Path, description = "The payment")),
    responses((status = 200, description = "The settled refund", body = RefundView)))]
pub async fn settle_refund(
    State(app): Shared,
    _: Admin,
    Path((sale, payment)): Path<(String, String)>,
    _: OptionalJson<Nothing>,
) -> Result<axum::Json<RefundView>, Problem> {
    let none = || Problem::new(Code::NoSuchRefund);
    let (sale, payment) = (sale_id(&sale)?, PaymentId::new(&payment).map_err(|_| none())?);
    app.catch_up().await?;
    match app.store.settle_refund(sale, &payment, app.now()).await? {
        SettleOutcome::Settled | SettleOutcome::AlreadySettled { .. } => {
            let record = app.store.refund(sale, &payment).await?.ok_or_else(none)?;
            let view = RefundView::of_records(&app, &[record]).await?.pop();
            Ok(axum::Json(view.ok_or_else(none)?))
        }
        SettleOutcome::NoSuchRefund => Err(none()),
    }
}

/// Hands a payment to the engine. A sale that was cleared is asked about in the records.
pub async fn settle(
    app: &Arc<App>,
    origin: &Origin,
    pay: PayRequest,
) -> Result<Outcome<Settlement>, Problem> {
    let mut outcome = app.decide(Command::Pay(pay.clone()), origin).await?.into_settlement();
    if outcome == Outcome::Refused(Refusal::Cleared) {
        outcome = settle_after_clearing(app, origin, pay).await?;
    }
    app.metrics.settled(&outcome);
    Ok(outcome)
}

async fn view(app: &Arc<App>, outcome: Outcome<Settlement>) -> Result<SettlementView, Problem> {
    let (settlement, replayed) = match outcome {
        Outcome::Done(settlement) => (settlement, false),
        Outcome::Replayed(settlement) => (settlement, true),
        Outcome::Refused(Refusal::NoSuchClaim) => {
            return Err(Problem::new(Code::NoSuchOrder));
        }
        Outcome::Refused(refusal) => return Err(Problem::from(&refusal)),
    };
    let paid =
        |outcome, order| SettlementView { outcome, replayed, order: Some(order), refund: None };
    Ok(match settlement {
        Settlement::Paid(claim) => paid("paid", orders::view(app, &claim).await?),
        Settlement::Regranted(claim) => paid("regranted", orders::view(app, &claim).await?),
        Settlement::RefundDue(refund) => {
            // Only one that was told before can have been sent, and records that cannot be read
            // at the moment do not undo what was decided.
            let recorded = app.store.refund(refund.order.pool, &refund.payment).await;
            let recorded = recorded.inspect_err(|error| {
                tracing::warn!("refund not found in the records: {}", crate::chain(error));
            });
            let settled_at = recorded.ok().flatten().and_then(|record| record.settled_at);
            let refund = Some(RefundView::of(&refund, settled_at));
            SettlementView { outcome: "refund_due", replayed, order: None, refund }
        }
    })
}

/// Everything that paid an order of a cleared sale is in the records, because clearing waited
/// for them; what is not there bought nothing.
async fn settle_after_clearing(
    app: &App,
    origin: &Origin,
    pay: PayRequest,
) -> Result<Outcome<Settlement>, Problem> {
    let ordered = app.store.claim(pay.order).await?;
    if ordered.is_none() && pay.order.number <= lost_through(app, pay.order.pool).await? {
        return owe_back(app, origin, pay).await;
    }
    let Some(ordered) = ordered.filter(Claim::has_order) else {
        return Ok(Outcome::Refused(Refusal::NoSuchClaim));
    };
    let Some(seen) = app.store.payment(pay.order.pool, &pay.payment).await? else {
        return owe_back(app, origin, pay).await;
    };
    let paid = app.store.claim(seen.order).await?;
    let paid = paid.ok_or_else(|| Problem::new(Code::NoSuchOrder))?;
    let meant_for = paid.replaces.unwrap_or(paid.id.number);
    if meant_for != ordered.id.number {
        return Ok(Outcome::Refused(Refusal::PaymentConflict));
    }
    Ok(Outcome::Replayed(match paid.replaces {
        None => Settlement::Paid(paid),
        Some(_) => Settlement::Regranted(paid),
    }))
}

async fn owe_back(
    app: &App,
    origin: &Origin,
    pay: PayRequest,
) -> Result<Outcome<Settlement>, Problem> {
    Ok(app.decide(Command::Refund(pay), origin).await?.into_settlement())
}

/// Numbers up to this one were given to claims of a sale that may have been lost.
async fn lost_through(app: &App, pool: PoolId) -> Result<u32, Problem> {
    epochs::lost_through(&app.store, pool).await.map_err(|error| {
        tracing::error!("lost numbers not read: {}", crate::chain(&error));
        Problem::new(Code::Unavailable)
    })
}

fn payment_id(text: &str) -> Result<PaymentId, Problem> {
    PaymentId::new(text).map_err(|error| {
        Problem::invalid_field("payment_id", format_args!("cannot be used: {error}"))
    })
}

fn write_cursor(cursor: &RefundCursor) -> String {
    format!("{}_{}_{}", cursor.due_at.millis(), cursor.pool, cursor.payment)
}

fn read_cursor(text: &str) -> Result<RefundCursor, Problem> {
    let read = || {
        let (at, rest) = text.split_once('_')?;
        let (pool, payment) = rest.split_once('_')?;
        Some(RefundCursor {
            due_at: cursor::time(at)?,
            pool: pool.parse::<PoolId>().ok()?,
            payment: PaymentId::new(payment).ok()?,
        })
    };
    read().ok_or_else(|| cursor::refused("after"))
}
