//! Orders: each belongs to one claim and has its id. The engine knows how an order stands; the
//! records know which orders a user has.

use axum::extract::{Query, State};
use qiang_core::{Claim, ClaimId, Command, Outcome, PoolChange, ReleaseReason, Timestamp};
use qiang_store::{Order, OrderStatus, ReviewStatus};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::claims;
use crate::sale::refused;
use qiang_app::App;
use qiang_app::Origin;
use qiang_app::extract::Shared;
use qiang_app::extract::page_limit;
use qiang_app::extract::{Caller, Nothing, OptionalJson, Path};
use qiang_app::problem::{Code, Problem};
use qiang_app::{cursor, json_time, schema};

/// Orders on one page, unless asked for fewer.
const PAGE: u32 = 50;

/// An order and where it stands.
#[derive(Debug, Serialize, ToSchema)]
pub struct OrderView {
    /// The order's id, which is its claim's.
    #[schema(value_type = schema::ClaimId)]
    pub order_id: String,
    /// The claim it belongs to.
    #[schema(value_type = schema::ClaimId)]
    pub claim_id: String,
    /// The sale.
    #[schema(value_type = schema::SaleId)]
    pub sale_id: String,
    /// Whose it is.
    #[schema(value_type = schema::UserId)]
    pub user_id: String,
    /// Where it stands.
    #[schema(value_type = schema::OrderStatus)]
    pub status: &'static str,
    /// What it costs, in cents.
    #[schema(minimum = 0, example = 9900)]
    pub amount_cents: i64,
    /// What was ordered.
    pub items: Vec<OrderItemView>,
    /// When it was placed.
    #[serde(with = "json_time")]
    #[schema(value_type = schema::Time)]
    pub created_at: Timestamp,
    /// Unpaid, it is cancelled at this time.
    #[serde(with = "json_time::option")]
    #[schema(value_type = Option<schema::Time>)]
    pub pay_by: Option<Timestamp>,
    /// When it was paid; of a refunded order its payment says that.
    #[serde(with = "json_time::option")]
    #[schema(value_type = Option<schema::Time>)]
    pub paid_at: Option<Timestamp>,
    /// When it was cancelled.
    #[serde(with = "json_time::option")]
    #[schema(value_type = Option<schema::Time>)]
    pub cancelled_at: Option<Timestamp>,
    /// When the shop refunded it, after it was paid.
    #[serde(skip_serializing_if = "Option::is_none", with = "json_time::option")]
    #[schema(value_type = Option<schema::Time>)]
    pub refunded_at: Option<Timestamp>,
    /// `pending` while the shop has to look at it: its payment had paid another order before (in
    /// lists), or it could not be recorded (by its id).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::ReviewStatus>)]
    pub review: Option<&'static str>,
}

/// One line of an order.
#[derive(Debug, Serialize, ToSchema)]
pub struct OrderItemView {
    /// The shop's own name for the goods.
    #[schema(value_type = schema::Sku)]
    pub sku: String,
    /// What the buyer read.
    #[schema(value_type = schema::Title)]
    pub title: String,
    /// Units.
    pub quantity: u32,
    /// Price of a unit in cents.
    #[schema(minimum = 0, example = 9900)]
    pub unit_price_cents: i64,
}

/// One page of orders.
#[derive(Debug, Serialize, ToSchema)]
pub struct OrderPage {
    /// Newest first.
    pub orders: Vec<OrderView>,
    /// Give this as `before` to see older ones; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Cursor>)]
    pub next_before: Option<String>,
}

/// Which page.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// `next_before` of the page before.
    #[param(value_type = Option<schema::Cursor>)]
    before: Option<String>,
    /// How many to show, 1 to 50.
    #[param(minimum = 1, maximum = 50, example = 20)]
    limit: Option<u32>,
}

impl From<Order> for OrderView {
    fn from(order: Order) -> Self {
        let id = order.id.to_string();
        let items = order.items.into_iter().map(|item| OrderItemView {
            sku: item.sku,
            title: item.title,
            quantity: item.quantity,
            unit_price_cents: item.unit_price.get(),
        });
        Self {
            claim_id: id.clone(),
            order_id: id,
            sale_id: order.id.pool.to_string(),
            user_id: order.user.to_string(),
            status: order.status.as_str(),
            amount_cents: order.amount.get(),
            items: items.collect(),
            created_at: order.created_at,
            pay_by: order.pay_by,
            paid_at: order.paid_at,
            cancelled_at: order.cancelled_at.filter(|_| order.status != OrderStatus::Refunded),
            refunded_at: order.cancelled_at.filter(|_| order.status == OrderStatus::Refunded),
            review: order.pending_review.then(|| ReviewStatus::Pending.as_str()),
        }
    }
}

/// List your orders
///
/// Newest first, including what you did a moment ago.
#[utoipa::path(get, path = "/api/v1/orders", operation_id = "list_orders", tag = "orders", security(("token" = [])),
    params(PageQuery),
    responses((status = 200, description = "A page of orders", body = OrderPage)))]
pub async fn list(
    State(app): Shared,
    Caller(who): Caller,
    query: Result<Query<PageQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<axum::Json<OrderPage>, Problem> {
    let Query(PageQuery { before, limit }) = query.map_err(Problem::from)?;
    let before =
        before.as_deref().map(|text| cursor::read(text).ok_or_else(|| cursor::refused("before")));
    let before = before.transpose()?;
    let limit = page_limit(limit, PAGE)?;
    app.catch_up().await?;
    let orders = app.store.orders_of(&who.user, before, limit).await?;
    let full = orders.len() == limit as usize;
    let next_before = orders.last().filter(|_| full).map(|order| cursor::write(order.cursor()));
    let orders = orders.into_iter().map(OrderView::from).collect();
    Ok(axum::Json(OrderPage { orders, next_before }))
}

/// Show an order
///
/// One of your orders, as it is at this moment. An admin sees everybody's.
#[utoipa::path(get, path = "/api/v1/orders/{order_id}", operation_id = "show_order", tag = "orders", security(("token" = [])),
    params(("order_id" = schema::ClaimId, Path, description = "The order, which has the id of its claim")),
    responses((status = 200, description = "The order", body = OrderView)))]
pub async fn show(
    State(app): Shared,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<axum::Json<OrderView>, Problem> {
    let claim = find(&app, &caller, order_id(&id)?).await?;
    if !claim.has_order() {
        return Err(Problem::new(Code::NoSuchOrder));
    }
    let order = view(&app, &claim).await?;
    let review = order.review.or_else(|| claims::pending_review(&app, claim.id));
    Ok(axum::Json(OrderView { review, ..order }))
}

/// Cancel an unpaid order
///
/// Its units go to others.
#[utoipa::path(post, path = "/api/v1/orders/{order_id}/cancel", operation_id = "cancel_order", tag = "orders", security(("token" = [])),
    params(("order_id" = schema::ClaimId, Path, description = "The order, which has the id of its claim")),
    responses((status = 200, description = "The cancelled order", body = OrderView)))]
pub async fn cancel(
    State(app): Shared,
    origin: Origin,
    caller: Caller,
    Path(id): Path<String>,
    _: OptionalJson<Nothing>,
) -> Result<axum::Json<OrderView>, Problem> {
    let order = find_to_change(&app, &caller, &id).await?;
    let (by, reason) = (caller.scope(), ReleaseReason::Cancelled);
    let command = Command::Release { claim: order.id, by, reason };
    match app.decide(command, &origin).await?.into_claim() {
        Outcome::Done(claim) | Outcome::Replayed(claim) => {
            Ok(axum::Json(view(&app, &claim).await?))
        }
        Outcome::Refused(refusal) => Err(refused(&app, order.id.pool, &refusal).await),
    }
}

/// The claim behind an order, to do something with it; a hold must be ordered first.
pub async fn find_to_change(app: &App, caller: &Caller, id: &str) -> Result<Claim, Problem> {
    let claim = find_ordered(app, caller, id).await?;
    if caller.may_change(&claim.user) { Ok(claim) } else { Err(Problem::new(Code::Forbidden)) }
}

/// The claim behind an order, to look at it.
pub async fn find_ordered(app: &App, caller: &Caller, id: &str) -> Result<Claim, Problem> {
    let claim = find(app, caller, order_id(id)?).await?;
    match claim.state {
        _ if claim.has_order() => Ok(claim),
        qiang_core::State::Held => Err(Problem::new(Code::NotOrdered)),
        _ => Err(Problem::new(Code::NoSuchOrder)),
    }
}

/// The claim of an id the caller may see.
async fn find(app: &App, caller: &Caller, id: ClaimId) -> Result<Claim, Problem> {
    let claim = claims::find(app, id).await?.filter(|claim| caller.may_see(&claim.user));
    claim.ok_or_else(|| Problem::new(Code::NoSuchOrder))
}

/// The order of a claim that has one.
pub async fn view(app: &App, claim: &Claim) -> Result<OrderView, Problem> {
    let pool = app.answer(app.engine.pool_state(claim.id.pool)).await?;
    let pool = pool.filter(|pool| pool.change != PoolChange::Cleared);
    let order = match pool.and_then(|pool| Order::of(claim, &pool.terms)) {
        Some(order) => Some(order),
        None => app.store.order(claim.id).await?,
    };
    order.map(OrderView::from).ok_or_else(|| Problem::new(Code::NoSuchOrder))
}

/// An order's id out of a path.
pub fn order_id(text: &str) -> Result<ClaimId, Problem> {
    text.parse().map_err(|_| Problem::new(Code::NoSuchOrder))
}
