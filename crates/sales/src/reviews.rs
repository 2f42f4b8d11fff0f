//! Orders that a person has to look at: a payment paid them that had paid an order of another sale.
//!
//! Both orders stay paid. Nothing is owed back by itself, because that money may have come once, and
//! only the provider knows.

use axum::extract::{Query, State};
use qiang_core::Timestamp;
use qiang_store::{Review, ReviewStatus};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use qiang_app::extract::Shared;
use qiang_app::extract::page_limit;
use qiang_app::extract::{Admin, Nothing, OptionalJson, Path, Viewer};
use qiang_app::problem::{Code, Problem};
use qiang_app::{cursor, json_time, schema};

/// Reviews on one page, unless asked for fewer.
const PAGE: u32 = 100;

/// An order to look at, and why.
#[derive(Debug, Serialize, ToSchema)]
pub struct ReviewView {
    /// The order to look at. It is paid.
    #[schema(value_type = schema::ClaimId)]
    pub order_id: String,
    /// Its sale.
    #[schema(value_type = schema::SaleId)]
    pub sale_id: String,
    /// The payment that paid it.
    #[schema(value_type = schema::PaymentId)]
    pub payment_id: String,
    /// The order of another sale that the same payment paid first.
    #[schema(value_type = schema::ClaimId)]
    pub first_order_id: String,
    /// When it paid the order to look at.
    #[serde(with = "json_time")]
    #[schema(value_type = schema::Time)]
    pub paid_at: Timestamp,
    /// Whether somebody has looked at it.
    #[schema(value_type = schema::ReviewStatus)]
    pub status: &'static str,
    /// When somebody said that it was looked at.
    #[serde(with = "json_time::option")]
    #[schema(value_type = Option<schema::Time>)]
    pub ended_at: Option<Timestamp>,
}

/// One page of reviews.
#[derive(Debug, Serialize, ToSchema)]
pub struct ReviewPage {
    /// Longest paid first.
    pub reviews: Vec<ReviewView>,
    /// Give this as `after` to see the next; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Cursor>)]
    pub next_after: Option<String>,
}

/// Which reviews.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ReviewQuery {
    /// `pending` (the default) or `ended`.
    #[param(value_type = Option<schema::ReviewStatus>)]
    status: Option<String>,
    /// `next_after` of the page before.
    #[param(value_type = Option<schema::Cursor>)]
    after: Option<String>,
    /// How many to show, 1 to 100.
    #[param(minimum = 1, maximum = 100, example = 20)]
    limit: Option<u32>,
}

impl From<&Review> for ReviewView {
    fn from(review: &Review) -> Self {
        Self {
            order_id: review.order.to_string(),
            sale_id: review.order.pool.to_string(),
            payment_id: review.payment.to_string(),
            first_order_id: review.other.to_string(),
            paid_at: review.paid_at,
            status: review.status().as_str(),
            ended_at: review.ended_at,
        }
    }
}

/// List orders to look at
///
/// Their payment had paid an order of another sale before.
#[utoipa::path(get, path = "/api/v1/admin/reviews", operation_id = "list_reviews", tag = "payments", security(("token" = ["viewer"])),
    params(ReviewQuery),
    responses((status = 200, description = "A page of reviews", body = ReviewPage)))]
pub async fn list(
    State(app): Shared,
    _: Viewer,
    query: Result<Query<ReviewQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<axum::Json<ReviewPage>, Problem> {
    let Query(ReviewQuery { status, after, limit }) = query.map_err(Problem::from)?;
    let status = ReviewStatus::from_word(status.as_deref().unwrap_or("pending"))
        .ok_or_else(|| Problem::invalid_field("status", "must be pending or ended"))?;
    let after =
        after.as_deref().map(|text| cursor::read(text).ok_or_else(|| cursor::refused("after")));
    let after = after.transpose()?;
    let limit = page_limit(limit, PAGE)?;
    app.catch_up().await?;
    let found = app.store.reviews(status, after, limit).await?;
    let full = found.len() == limit as usize;
    let next_after = found.last().filter(|_| full).map(|last| cursor::write(last.cursor()));
    let reviews = found.iter().map(ReviewView::from).collect();
    Ok(axum::Json(ReviewPage { reviews, next_after }))
}

/// End a review
///
/// Notes that an order was looked at. Noting it again changes nothing, and the order stays as it
/// is.
#[utoipa::path(post, path = "/api/v1/admin/reviews/{order_id}/end", operation_id = "end_review", tag = "payments", security(("token" = ["admin"])),
    params(("order_id" = schema::ClaimId, Path, description = "The order, which has the id of its claim")),
    responses((status = 200, description = "The ended review", body = ReviewView)))]
pub async fn end(
    State(app): Shared,
    _: Admin,
    Path(order): Path<String>,
    _: OptionalJson<Nothing>,
) -> Result<axum::Json<ReviewView>, Problem> {
    let none = || Problem::new(Code::NoSuchReview);
    let order = order.parse().map_err(|_| none())?;
    app.catch_up().await?;
    let ended = app.store.end_review(order, app.now()).await?.ok_or_else(none)?;
    Ok(axum::Json(ReviewView::from(&ended)))
}
