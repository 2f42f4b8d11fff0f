//! The one current sale, for shops that run a single sale at a time and whose buyers should not
//! need to know its id. A claim is made on the sale that is current at that moment, and carries
//! that sale's id from then on.

use axum::extract::State;
use axum::response::IntoResponse;
use qiang_core::PoolId;
use serde::Deserialize;
use utoipa::ToSchema;

use super::claims::{self, ClaimView, NewClaim};
use super::{SaleView, find};
use crate::app::App;
use crate::entry::Origin;
use crate::http::extract::{Admin, Caller, IdempotencyKey, Json, OptionalJson};
use crate::http::problem::{Code, Problem};
use crate::http::{Shared, schema};

/// Which sale to make the current one.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CurrentSale {
    /// The sale, or null for none.
    #[serde(deserialize_with = "Option::deserialize")]
    #[schema(value_type = Option<schema::SaleId>, required)]
    sale_id: Option<String>,
}

/// Show the current sale
///
/// Its terms, and how much is left at this moment.
#[utoipa::path(get, path = "/api/v1/current-sale", operation_id = "show_current_sale", tag = "current sale",
    responses((status = 200, description = "The sale", body = SaleView)))]
pub async fn show(State(app): Shared) -> Result<axum::Json<SaleView>, Problem> {
    let pool = find(&app, current(&app)?).await?;
    Ok(axum::Json(SaleView::of(&pool, app.now())))
}

/// Make a sale the current one
///
/// Claims made before stay with the sale they were made on.
#[utoipa::path(put, path = "/api/v1/current-sale", operation_id = "set_current_sale", tag = "current sale", security(("token" = ["admin"])),
    request_body = CurrentSale,
    responses((status = 200, description = "The sale that is current now", body = SaleView), (status = 204, description = "There is no current sale now")))]
pub async fn put(
    State(app): Shared,
    _: Admin,
    Json(CurrentSale { sale_id }): Json<CurrentSale>,
) -> Result<axum::response::Response, Problem> {
    let Some(sale_id) = sale_id else {
        app.set_current_sale(None).await?;
        return Ok(axum::http::StatusCode::NO_CONTENT.into_response());
    };
    let pool = find(&app, super::sale_id(&sale_id)?).await?;
    app.set_current_sale(Some(pool.id)).await?;
    Ok(axum::Json(SaleView::of(&pool, app.now())).into_response())
}

/// Claim units of the current sale
///
/// With an `Idempotency-Key`, asking again gives the first claim again, as long as the sale is
/// still the current one.
#[utoipa::path(post, path = "/api/v1/current-sale/claims", operation_id = "claim_current_sale", tag = "current sale", security(("token" = [])),
    params(("Idempotency-Key" = Option<schema::IdempotencyKey>, Header, description = "Asking again with the same key is not asking twice")),
    request_body = Option<NewClaim>,
    responses((status = 201, description = "Granted", body = ClaimView), (status = 200, description = "Granted before", body = ClaimView)))]
pub async fn claim(
    State(app): Shared,
    origin: Origin,
    caller: Caller,
    key: IdempotencyKey,
    OptionalJson(body): OptionalJson<NewClaim>,
) -> Result<impl IntoResponse, Problem> {
    let (status, view) = claims::claim(&app, &origin, caller, current(&app)?, key, &body).await?;
    Ok((status, axum::Json(view)))
}

fn current(app: &App) -> Result<PoolId, Problem> {
    app.current_sale().ok_or_else(|| Problem::new(Code::NoCurrentSale))
}
