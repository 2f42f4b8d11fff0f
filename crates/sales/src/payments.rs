//! Money that arrives: from the sandbox, from the buyer's balance ([`crate::balance`]), or announced
//! by the provider's signed callback. Every payment counts once, by its id, and ends in one of three
//! ways: it pays, it buys a released claim anew, or it is owed back.

use axum::extract::{Query, State};
use axum::http::HeaderMap;
use qiang_core::{
    Cents, Claim, ClaimId, Command, Event, Outcome, PayRequest, PaymentId, PoolId, Refund,
    RefundReason, Refusal, Settlement, Timestamp, decide,
};
use qiang_store::{RefundCursor, RefundRecord, RefundStatus, SaleState, SettleOutcome};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::Sales;
use crate::balance;
use crate::orders::{self, OrderView, order_id};
use crate::sale::{forgotten, sale_id};
use crate::signature::{SIGNATURE_HEADER, TIMESTAMP_HEADER};
use qiang_app::App;
use qiang_app::Origin;
use qiang_app::actions::Noting;
use qiang_app::extract::Shared;
use qiang_app::extract::page_limit;
use qiang_app::extract::{Admin, Caller, Nothing, OptionalJson, Path, Raw, Viewer, from_json};
use qiang_app::problem::{Code, Problem};
use qiang_app::{cursor, json_time, schema, whole};

/// Refunds on one page, unless asked for fewer.
const PAGE: u32 = 100;
/// Characters of the reason of a refund.
const MAX_REASON: usize = 200;
/// The most an order can cost: all units of the largest sale at the highest price.
const MAX_AMOUNT_CENTS: i64 = Cents::MAX_PRICE.get() * qiang_core::MAX_UNITS as i64;

/// A payment from the buyer's balance, or one without money.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OrderPayment {
    /// `account` pays from your own balance. Left out, the order is paid without money, in the sandbox.
    #[schema(value_type = Option<schema::PayFrom>)]
    from: Option<String>,
    /// In the sandbox its id; left out, one that belongs to the order, so that paying twice pays once.
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

/// Why an order is refunded.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OrderRefund {
    /// For those who read later who did what: at most 200 characters. Kept among the actions.
    #[schema(max_length = 200, example = "arrived broken")]
    reason: Option<String>,
}

/// An order that was refunded.
#[derive(Debug, Serialize, ToSchema)]
pub struct RefundedOrder {
    /// Whether it had been refunded before.
    pub replayed: bool,
    /// The order, with status `REFUNDED`.
    pub order: OrderView,
    /// What goes back; settle it when the money was sent.
    pub refund: RefundView,
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
    pub(crate) async fn of_records(
        app: &App,
        records: &[RefundRecord],
    ) -> Result<Vec<Self>, Problem> {
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

/// Pay an order
///
/// Pays one of your orders: with `"from": "account"` from your balance, otherwise without money, where the
/// sandbox is on. Paying twice pays once.
#[utoipa::path(post, path = "/api/v1/orders/{order_id}/pay", operation_id = "pay_order", tag = "orders", security(("token" = [])),
    params(("order_id" = schema::ClaimId, Path, description = "The order, which has the id of its claim")),
    request_body = Option<OrderPayment>,
    responses((status = 200, description = "What became of the payment", body = SettlementView)))]
pub async fn pay(
    State(sales): State<Sales>,
    origin: Origin,
    caller: Caller,
    Path(id): Path<String>,
    OptionalJson(body): OptionalJson<OrderPayment>,
) -> Result<axum::Json<SettlementView>, Problem> {
    match (body.from.as_deref(), &body.payment_id) {
        (None, _) => {}
        (Some("account"), None) => {
            let claim = orders::find_ordered(&sales.app, &caller, &id).await?;
            let outcome = balance::pay(&sales, &origin, &caller, &claim).await?;
            return view(&sales.app, outcome).await.map(axum::Json);
        }
        (Some("account"), Some(_)) => {
            return Err(Problem::invalid_field("payment_id", "is for the sandbox"));
        }
        (Some(_), _) => return Err(Problem::invalid_field("from", "must be account")),
    }
    if !sales.settings.sandbox {
        return Err(Problem::new(Code::SandboxDisabled));
    }
    let claim = orders::find_to_change(&sales.app, &caller, &id).await?;
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
    view(&sales.app, settle(&sales, &origin, pay).await?).await.map(axum::Json)
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
    State(sales): State<Sales>,
    origin: Origin,
    headers: HeaderMap,
    Raw(body): Raw,
) -> Result<axum::Json<SettlementView>, Problem> {
    let header = |name| headers.get(name).map(axum::http::HeaderValue::as_bytes);
    sales.callbacks.verify(
        header(TIMESTAMP_HEADER),
        header(SIGNATURE_HEADER),
        &body,
        sales.app.now(),
        sales.settings.callback_window,
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
    view(&sales.app, settle(&sales, &origin, pay).await?).await.map(axum::Json)
}

/// List refunds
///
/// Money owed back, oldest first.
#[utoipa::path(get, path = "/api/v1/admin/refunds", operation_id = "list_refunds", tag = "payments", security(("token" = ["viewer"])),
    params(RefundQuery),
    responses((status = 200, description = "A page of refunds", body = RefundPage)))]
pub async fn list_refunds(
    State(app): Shared,
    _: Viewer,
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

/// Refund a paid order
///
/// Takes a paid order back, once: its units are sold again, and its payment is owed back. Send the money,
/// then settle the refund. Asking again changes nothing.
#[utoipa::path(post, path = "/api/v1/admin/orders/{order_id}/refund", operation_id = "refund_order", tag = "payments", security(("token" = ["admin"])),
    params(("order_id" = schema::ClaimId, Path, description = "The order, which has the id of its claim")),
    request_body = Option<OrderRefund>,
    responses((status = 200, description = "The refunded order, and what goes back", body = RefundedOrder)))]
pub async fn refund_order(
    State(app): Shared,
    origin: Origin,
    _: Admin,
    noting: Noting,
    Path(id): Path<String>,
    OptionalJson(body): OptionalJson<OrderRefund>,
) -> Result<axum::Json<RefundedOrder>, Problem> {
    if let Some(reason) = &body.reason {
        if reason.chars().count() > MAX_REASON {
            let rule = format_args!("must have at most {MAX_REASON} characters");
            return Err(Problem::invalid_field("reason", rule));
        }
        noting.note(reason);
    }
    let claim = order_id(&id)?;
    let (claim, replayed) = match app.decide(Command::Revoke { claim }, &origin).await?.into_claim()
    {
        Outcome::Done(claim) => (claim, false),
        Outcome::Replayed(claim) => (claim, true),
        Outcome::Refused(Refusal::NoSuchClaim) => return Err(no_such_order(&app, claim).await),
        Outcome::Refused(refusal) => return Err(Problem::from(&refusal)),
    };
    let refund = claim.revoked().ok_or_else(|| Problem::new(Code::Internal))?;
    // Only what was revoked before can have been sent. Records that cannot be read do not undo it.
    let settled_at = if replayed { settled_at(&app, &refund).await } else { None };
    let order = orders::view(&app, &claim).await?;
    let refund = RefundView::of(&refund, settled_at);
    Ok(axum::Json(RefundedOrder { replayed, order, refund }))
}

/// The engine forgets sales with made ids once they are cleared.
async fn no_such_order(app: &App, order: ClaimId) -> Problem {
    match forgotten(app, order.pool).await {
        Ok(Some(sale)) if sale.state == SaleState::Cleared => Problem::new(Code::SaleCleared),
        Ok(_) => Problem::new(Code::NoSuchOrder),
        Err(problem) => problem,
    }
}

/// When a refund was sent, as far as the records can be read.
async fn settled_at(app: &App, refund: &Refund) -> Option<Timestamp> {
    let recorded = app.store.refund(refund.order.pool, &refund.payment).await;
    let recorded = recorded.inspect_err(|error| {
        tracing::warn!("refund not found in the records: {}", qiang_engine::chain(error));
    });
    recorded.ok().flatten().and_then(|record| record.settled_at)
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
    sales: &Sales,
    origin: &Origin,
    pay: PayRequest,
) -> Result<Outcome<Settlement>, Problem> {
    let app = &sales.app;
    let mut outcome = app.decide(Command::Pay(pay.clone()), origin).await?.into_settlement();
    match &outcome {
        Outcome::Refused(Refusal::Cleared) => {
            outcome = settle_after_clearing(app, pay, Keeper::Engine(origin)).await?;
        }
        // The engine may have forgotten the sale. What it decided before it did so is in its log.
        Outcome::Refused(Refusal::NoSuchClaim) if pay.order.pool.is_made() => {
            app.catch_up().await?;
            let sale = forgotten(app, pay.order.pool).await?;
            if sale.is_some_and(|sale| sale.state == SaleState::Cleared) {
                outcome = settle_after_clearing(app, pay, Keeper::Records).await?;
            }
        }
        Outcome::Done(_) | Outcome::Replayed(_) | Outcome::Refused(_) => {}
    }
    sales.metrics.settled(&outcome);
    Ok(outcome)
}

async fn view(app: &App, outcome: Outcome<Settlement>) -> Result<SettlementView, Problem> {
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
            let refund = Some(RefundView::of(&refund, settled_at(app, &refund).await));
            SettlementView { outcome: "refund_due", replayed, order: None, refund }
        }
    })
}

/// Everything that paid an order of a cleared sale is in the records, because clearing waited
/// for them; what is not there bought nothing.
async fn settle_after_clearing(
    app: &App,
    pay: PayRequest,
    keeper: Keeper<'_>,
) -> Result<Outcome<Settlement>, Problem> {
    let ordered = app.store.claim(pay.order).await?;
    if ordered.is_none() && pay.order.number <= app.store.lost_through(pay.order.pool).await? {
        return owe_back(app, pay, keeper).await;
    }
    let Some(ordered) = ordered.filter(Claim::has_order) else {
        return Ok(Outcome::Refused(Refusal::NoSuchClaim));
    };
    let Some(seen) = app.store.payment(pay.order.pool, &pay.payment).await? else {
        return owe_back(app, pay, keeper).await;
    };
    let paid = app.store.claim(seen.order).await?;
    let paid = paid.ok_or_else(|| Problem::new(Code::NoSuchOrder))?;
    let meant_for = paid.replaces.unwrap_or(paid.id.number);
    if meant_for != ordered.id.number {
        return Ok(Outcome::Refused(Refusal::PaymentConflict));
    }
    Ok(Outcome::Replayed(decide::settlement(paid)))
}

/// Who knows what is owed back of a sale that was cleared.
#[derive(Clone, Copy)]
enum Keeper<'a> {
    /// The engine, which has a tombstone of the sale; asked for whoever told the payment.
    Engine(&'a Origin),
    /// The records: the engine has forgotten the sale, and nothing it does will change them.
    Records,
}

async fn owe_back(
    app: &App,
    pay: PayRequest,
    keeper: Keeper<'_>,
) -> Result<Outcome<Settlement>, Problem> {
    let PayRequest { order, payment, amount } = pay.clone();
    if let Keeper::Engine(origin) = keeper {
        return Ok(app.decide(Command::Refund(pay), origin).await?.into_settlement());
    }
    let owed = Refund { order, payment, amount, reason: RefundReason::Late, at: app.now() };
    let known = app.store.refund(order.pool, &owed.payment).await?;
    let is_known = known.is_some();
    let refund = match known {
        Some(known) => known.refund,
        None => {
            // A refund on record stays as it is: of two who tell the payment at once, both are
            // shown the first one.
            app.store.upsert(&[Event::Refund(owed.clone())]).await?;
            let kept = app.store.refund(order.pool, &owed.payment).await?;
            kept.map_or(owed, |kept| kept.refund)
        }
    };
    Ok(if (refund.order, refund.amount) != (order, amount) {
        Outcome::Refused(Refusal::PaymentConflict)
    } else if is_known {
        Outcome::Replayed(Settlement::RefundDue(refund))
    } else {
        Outcome::Done(Settlement::RefundDue(refund))
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
