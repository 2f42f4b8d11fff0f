//! Search for those who run the shop: claims and orders by id, user, sale, state and time, newest first.
//!
//! The records answer, also while they are behind or the engine is away: the answer says whether
//! everything decided so far is in it.

use axum::extract::{Query, State};
use qiang_app::extract::{Shared, Viewer, page_limit};
use qiang_app::problem::Problem;
use qiang_app::{cursor, json_time, schema};
use qiang_core::{Claim, ClaimId, PoolId, State as ClaimState, UserId};
use qiang_store::{Cursor, OrderStatus, Search};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::claims::ClaimView;
use crate::orders::OrderView;

/// Claims or orders on one page, unless asked for fewer.
const PAGE: u32 = 100;

/// Which claims.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ClaimQuery {
    /// This claim.
    #[param(value_type = Option<schema::ClaimId>)]
    id: Option<String>,
    /// Claims of this user.
    #[param(value_type = Option<schema::UserId>)]
    user: Option<String>,
    /// Claims of this sale.
    #[param(value_type = Option<schema::SaleId>)]
    sale: Option<String>,
    /// Claims that stand here.
    #[param(value_type = Option<schema::ClaimState>)]
    state: Option<String>,
    /// Granted at this time or later.
    #[param(value_type = Option<schema::Time>)]
    from: Option<String>,
    /// Granted before this time.
    #[param(value_type = Option<schema::Time>)]
    to: Option<String>,
    /// `next_before` of the page before.
    #[param(value_type = Option<schema::Cursor>)]
    before: Option<String>,
    /// How many to show, 1 to 100.
    #[param(minimum = 1, maximum = 100, example = 20)]
    limit: Option<u32>,
}

/// Which orders.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct OrderQuery {
    /// This order.
    #[param(value_type = Option<schema::ClaimId>)]
    id: Option<String>,
    /// Orders of this user.
    #[param(value_type = Option<schema::UserId>)]
    user: Option<String>,
    /// Orders of this sale.
    #[param(value_type = Option<schema::SaleId>)]
    sale: Option<String>,
    /// Orders that stand here.
    #[param(value_type = Option<schema::OrderStatus>)]
    status: Option<String>,
    /// Placed at this time or later.
    #[param(value_type = Option<schema::Time>)]
    from: Option<String>,
    /// Placed before this time.
    #[param(value_type = Option<schema::Time>)]
    to: Option<String>,
    /// `next_before` of the page before.
    #[param(value_type = Option<schema::Cursor>)]
    before: Option<String>,
    /// How many to show, 1 to 100.
    #[param(minimum = 1, maximum = 100, example = 20)]
    limit: Option<u32>,
}

/// Claims that were found.
#[derive(Debug, Serialize, ToSchema)]
pub struct FoundClaims {
    /// Newest first.
    pub claims: Vec<ClaimView>,
    /// Give this as `before` to see older ones; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Cursor>)]
    pub next_before: Option<String>,
    /// Whether everything decided before this answer is in it. In a rush the records may be some
    /// seconds behind.
    pub up_to_date: bool,
}

/// Orders that were found.
#[derive(Debug, Serialize, ToSchema)]
pub struct FoundOrders {
    /// Newest first.
    pub orders: Vec<OrderView>,
    /// Give this as `before` to see older ones; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Cursor>)]
    pub next_before: Option<String>,
    /// Whether everything decided before this answer is in it. In a rush the records may be some
    /// seconds behind.
    pub up_to_date: bool,
}

/// Search claims
///
/// By id, user, sale, state and time, in any combination, newest first.
#[utoipa::path(get, path = "/api/v1/admin/claims", operation_id = "search_claims", tag = "claims", security(("token" = ["viewer"])),
    params(ClaimQuery),
    responses((status = 200, description = "The claims that fit", body = FoundClaims)))]
pub async fn claims(
    State(app): Shared,
    _: Viewer,
    query: Result<Query<ClaimQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<axum::Json<FoundClaims>, Problem> {
    let Query(ClaimQuery { id, user, sale, state, from, to, before, limit }) =
        query.map_err(Problem::from)?;
    let state = word("state", state, ClaimState::from_word, "held, ordered, paid or released")?;
    let words = Words { id, user, sale, from, to, before, limit };
    let search = words.search(state)?;
    let up_to_date = app.catch_up().await.is_ok();
    let found = app.store.search_claims(&search).await?;
    let full = found.len() == search.max as usize;
    let place = |claim: &Claim| cursor::write(Cursor { at: claim.created_at, id: claim.id });
    let next_before = found.last().filter(|_| full).map(place);
    let claims = found.iter().map(ClaimView::from).collect();
    Ok(axum::Json(FoundClaims { claims, next_before, up_to_date }))
}

/// Search orders
///
/// By id, user, sale, status and time, in any combination, newest first.
#[utoipa::path(get, path = "/api/v1/admin/orders", operation_id = "search_orders", tag = "orders", security(("token" = ["viewer"])),
    params(OrderQuery),
    responses((status = 200, description = "The orders that fit", body = FoundOrders)))]
pub async fn orders(
    State(app): Shared,
    _: Viewer,
    query: Result<Query<OrderQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<axum::Json<FoundOrders>, Problem> {
    let Query(OrderQuery { id, user, sale, status, from, to, before, limit }) =
        query.map_err(Problem::from)?;
    let words_of = "PENDING, PAID, CANCELLED or REFUNDED";
    let status = word("status", status, OrderStatus::from_word, words_of)?;
    let words = Words { id, user, sale, from, to, before, limit };
    let search = words.search(status)?;
    let up_to_date = app.catch_up().await.is_ok();
    let found = app.store.search_orders(&search).await?;
    let full = found.len() == search.max as usize;
    let next_before = found.last().filter(|_| full).map(|order| cursor::write(order.cursor()));
    let orders = found.into_iter().map(OrderView::from).collect();
    Ok(axum::Json(FoundOrders { orders, next_before, up_to_date }))
}

/// What both searches are asked in, as text.
struct Words {
    id: Option<String>,
    user: Option<String>,
    sale: Option<String>,
    from: Option<String>,
    to: Option<String>,
    before: Option<String>,
    limit: Option<u32>,
}

impl Words {
    fn search<S>(self, state: Option<S>) -> Result<Search<S>, Problem> {
        let id = |text: &str| text.parse::<ClaimId>().ok();
        let sale = |text: &str| text.parse::<PoolId>().ok();
        let user = |text: &str| UserId::new(text).ok();
        Ok(Search {
            id: word("id", self.id, id, "an id of a claim, like 12-1")?,
            user: word("user", self.user, user, "an id of a user: 1 to 64 bytes")?,
            sale: word("sale", self.sale, sale, "an id of a sale, like 12")?,
            state,
            from: json_time::of_query("from", self.from)?,
            to: json_time::of_query("to", self.to)?,
            before: cursor::of_query("before", self.before, cursor::read)?,
            max: page_limit(self.limit, PAGE)?,
        })
    }
}

/// What a word of a query stands for.
fn word<T>(
    field: &'static str,
    text: Option<String>,
    read: impl Fn(&str) -> Option<T>,
    must_be: &str,
) -> Result<Option<T>, Problem> {
    let Some(text) = text else { return Ok(None) };
    let refused = || Problem::invalid_field(field, format_args!("must be {must_be}"));
    read(&text).map(Some).ok_or_else(refused)
}
