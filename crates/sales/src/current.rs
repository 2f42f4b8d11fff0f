//! The one current sale, for shops that run a single sale at a time and whose buyers should not
//! need to know its id. A claim is made on the sale that is current at that moment, and carries
//! that sale's id from then on.

use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::extract::State;
use axum::response::IntoResponse;
use qiang_app::Origin;
use qiang_app::workers::Turn;
use qiang_core::PoolId;
use qiang_store::Store;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::Sales;
use crate::claims::{self, ClaimView, NewClaim};
use crate::sale::{SaleView, find, sale_id as read_id};
use qiang_app::extract::{Admin, Caller, IdempotencyKey, Json, OptionalJson};
use qiang_app::problem::{Code, Problem};
use qiang_app::schema;

/// Where the id of the current sale is kept.
const CURRENT_SALE: &str = "current_sale";
/// How often it is looked which sale another process has made the current one.
pub(crate) const FOLLOW_EVERY: Duration = Duration::from_millis(500);

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
pub async fn show(State(sales): State<Sales>) -> Result<axum::Json<SaleView>, Problem> {
    let pool = find(&sales.app, current(&sales)?).await?;
    Ok(axum::Json(SaleView::of(&pool, sales.app.now())))
}

/// Make a sale the current one
///
/// Claims made before stay with the sale they were made on.
#[utoipa::path(put, path = "/api/v1/current-sale", operation_id = "set_current_sale", tag = "current sale", security(("token" = ["admin"])),
    request_body = CurrentSale,
    responses((status = 200, description = "The sale that is current now", body = SaleView), (status = 204, description = "There is no current sale now")))]
pub async fn put(
    State(sales): State<Sales>,
    _: Admin,
    Json(CurrentSale { sale_id }): Json<CurrentSale>,
) -> Result<axum::response::Response, Problem> {
    let Some(sale_id) = sale_id else {
        sales.set_current(None).await?;
        return Ok(axum::http::StatusCode::NO_CONTENT.into_response());
    };
    let pool = find(&sales.app, read_id(&sale_id)?).await?;
    sales.set_current(Some(pool.id)).await?;
    Ok(axum::Json(SaleView::of(&pool, sales.app.now())).into_response())
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
    State(sales): State<Sales>,
    origin: Origin,
    caller: Caller,
    key: IdempotencyKey,
    OptionalJson(body): OptionalJson<NewClaim>,
) -> Result<impl IntoResponse, Problem> {
    let (status, view) =
        claims::claim(&sales.app, &origin, caller, current(&sales)?, key, &body).await?;
    Ok((status, axum::Json(view)))
}

fn current(sales: &Sales) -> Result<PoolId, Problem> {
    sales.current().ok_or_else(|| Problem::new(Code::NoCurrentSale))
}

impl Sales {
    /// The sale that is the current one.
    #[must_use]
    pub fn current(&self) -> Option<PoolId> {
        PoolId::new(self.current.load(Ordering::Acquire))
    }

    /// Makes a sale the current one, or none, durably. Other processes follow within a second.
    async fn set_current(&self, sale: Option<PoolId>) -> Result<(), Problem> {
        store(&self.app.store, sale).await?;
        self.note_current(sale);
        Ok(())
    }

    /// Takes over which sale another process has made the current one.
    pub(crate) async fn follow_current(self) -> Turn {
        self.note_current(stored(&self.app.store).await?);
        Ok(())
    }

    fn note_current(&self, sale: Option<PoolId>) {
        self.current.store(sale.map_or(0, PoolId::get), Ordering::Release);
    }
}

/// The sale that the records say is the current one.
pub async fn stored(store: &Store) -> Result<Option<PoolId>, qiang_store::Error> {
    Ok(store.setting(CURRENT_SALE).await?.and_then(|id| id.parse().ok()))
}

/// Writes into the records which sale is the current one.
pub async fn store(store: &Store, sale: Option<PoolId>) -> Result<(), qiang_store::Error> {
    store.put_setting(CURRENT_SALE, &sale.map_or(0, PoolId::get).to_string()).await
}
