//! Sales: opened, looked at, restocked, closed and cleared. A sale is a pool with a price tag.

mod terms;
mod view;

use std::num::NonZeroU32;
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::response::IntoResponse;
use qiang_core::{Command, Kind, Outcome, PoolId, PoolView, Refusal, Tally, Terms, Timestamp};
use qiang_store::Sale;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use qiang_app::App;
use qiang_app::Origin;
use qiang_app::extract::{Admin, IdempotencyKey, Json, Nothing, OptionalJson, Path};
use qiang_app::extract::{Shared, page_limit};
use qiang_app::problem::{Code, Problem};
use qiang_app::{cursor, schema, whole};

pub use terms::NewSale;
pub use view::{SaleStatus, SaleView};

/// Sales on one page, unless asked for fewer.
const PAGE: u32 = 100;
/// Buyers look often; a moment's delay costs nobody anything.
const CACHEABLE: [(HeaderName, &str); 1] = [(header::CACHE_CONTROL, "public, max-age=1")];

/// One page of sales.
#[derive(Debug, Serialize, ToSchema)]
pub struct SalePage {
    /// Newest first.
    pub sales: Vec<SaleView>,
    /// Give this as `before` to see older ones; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::SaleCursor>)]
    pub next_before: Option<String>,
}

/// Which page.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// `next_before` of the page before.
    #[param(value_type = Option<schema::SaleCursor>)]
    before: Option<String>,
    /// How many to show, 1 to 100.
    #[param(minimum = 1, maximum = 100, example = 20)]
    limit: Option<u32>,
}

/// More units.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Restock {
    /// How many more.
    #[serde(deserialize_with = "whole::deserialize")]
    #[schema(minimum = 1, maximum = 2147483648_i64, example = 100)]
    units: i64,
}

/// Open a sale
///
/// With an `id` of your own, asking again with the same terms answers 200 and changes nothing.
#[utoipa::path(post, path = "/api/v1/sales", operation_id = "create_sale", tag = "sales", security(("token" = ["admin"])),
    request_body = NewSale,
    responses((status = 201, description = "Opened", body = SaleView, headers(("Location", description = "Where the sale is"))),
        (status = 200, description = "It was open already", body = SaleView)))]
pub async fn create(
    State(app): Shared,
    origin: Origin,
    _: Admin,
    IdempotencyKey(key): IdempotencyKey,
    Json(new): Json<NewSale>,
) -> Result<impl IntoResponse, Problem> {
    if key.is_some() {
        let detail = "a sale is made once by an `id` of your own, not by an Idempotency-Key";
        return Err(Problem::new(Code::InvalidIdempotencyKey).detail(detail));
    }
    let (id, now) = (new.id()?, app.now());
    let terms = new.terms(now)?;
    let pool = match id {
        Some(id) => id,
        None => app.next_id()?,
    };
    let command = Command::Open { pool, terms: Arc::new(terms.clone()) };
    let (status, view) = match app.decide(command, &origin).await?.into_pool() {
        Outcome::Done(view) => (StatusCode::CREATED, view),
        Outcome::Replayed(view) => (StatusCode::OK, view),
        Outcome::Refused(refusal) => {
            let unsaid = new.opens_at.is_none();
            let existing = app.answer(app.engine.pool(pool)).await?;
            if existing.as_ref().is_some_and(|view| view.cleared) {
                return Err(Problem::new(Code::SaleExists)
                    .detail("a sale of this id was cleared, and its id is never used again"));
            }
            let same =
                existing.filter(|view| unsaid && !view.cleared && same_but_opening(view, &terms));
            (StatusCode::OK, same.ok_or_else(|| Problem::from(&refusal))?)
        }
    };
    let location = format!("/api/v1/sales/{pool}");
    Ok((status, [(header::LOCATION, location)], axum::Json(SaleView::of(&view, now))))
}

/// Whoever leaves the opening out says "now", and means the same sale when they ask again.
fn same_but_opening(view: &PoolView, terms: &Terms) -> bool {
    *view.terms == Terms { opens_at: view.terms.opens_at, ..terms.clone() }
}

/// List sales
///
/// Those that are open, closed or yet to open, newest first.
#[utoipa::path(get, path = "/api/v1/sales", operation_id = "list_sales", tag = "sales", params(PageQuery),
    responses((status = 200, description = "A page of sales", body = SalePage)))]
pub async fn list(
    State(app): Shared,
    query: Result<Query<PageQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<impl IntoResponse, Problem> {
    let Query(PageQuery { before, limit }) = query.map_err(Problem::from)?;
    let before = before
        .map(|text| cursor::read_sale(&text).ok_or_else(|| cursor::refused("before")))
        .transpose()?;
    let limit = page_limit(limit, PAGE)?;
    let asked = app.engine.pools(Kind::Sale, before, limit as usize);
    let pools = app.answer(asked).await?;
    let now = app.now();
    let full = pools.len() == limit as usize;
    let next_before = pools.last().filter(|_| full).map(|last| cursor::write_sale(last.opened()));
    let shown = pools.iter().filter(|pool| !pool.cleared);
    let sales = shown.map(|pool| SaleView::of(pool, now)).collect();
    Ok((CACHEABLE, axum::Json(SalePage { sales, next_before })))
}

/// Show a sale
///
/// Its terms, and how much is left at this moment.
#[utoipa::path(get, path = "/api/v1/sales/{sale_id}", operation_id = "show_sale", tag = "sales",
    params(("sale_id" = schema::SaleId, Path, description = "The sale")),
    responses((status = 200, description = "The sale", body = SaleView)))]
pub async fn show(
    State(app): Shared,
    Path(id): Path<String>,
) -> Result<impl IntoResponse, Problem> {
    let pool = find(&app, sale_id(&id)?).await?;
    Ok((CACHEABLE, axum::Json(SaleView::of(&pool, app.now()))))
}

/// Add units to a sale
///
/// With an `Idempotency-Key` a repetition adds nothing.
#[utoipa::path(post, path = "/api/v1/sales/{sale_id}/restock", operation_id = "restock_sale", tag = "sales", security(("token" = ["admin"])),
    params(("sale_id" = schema::SaleId, Path, description = "The sale"), ("Idempotency-Key" = Option<schema::IdempotencyKey>, Header, description = "Asking again with the same key is not asking twice")),
    request_body = Restock,
    responses((status = 200, description = "The sale with more units", body = SaleView)))]
pub async fn restock(
    State(app): Shared,
    origin: Origin,
    _: Admin,
    Path(id): Path<String>,
    IdempotencyKey(key): IdempotencyKey,
    Json(Restock { units }): Json<Restock>,
) -> Result<axum::Json<SaleView>, Problem> {
    let id = sale_id(&id)?;
    let units = u32::try_from(units).ok().filter(|units| *units <= qiang_core::MAX_UNITS);
    let units = units.and_then(NonZeroU32::new);
    let units =
        units.ok_or_else(|| Problem::invalid_field("units", "must be from 1 to 2147483648"))?;
    let request = match key {
        Some(key) => key,
        None => app.next_request()?,
    };
    check_kind(&app, id).await?;
    let command = Command::Restock { pool: id, units, request };
    finish(&app, id, app.decide(command, &origin).await?.into_pool()).await
}

/// Close a sale
///
/// There are no more claims, while those granted go on.
#[utoipa::path(post, path = "/api/v1/sales/{sale_id}/close", operation_id = "close_sale", tag = "sales", security(("token" = ["admin"])),
    params(("sale_id" = schema::SaleId, Path, description = "The sale")),
    responses((status = 200, description = "The closed sale", body = SaleView)))]
pub async fn close(
    State(app): Shared,
    origin: Origin,
    _: Admin,
    Path(id): Path<String>,
    _: OptionalJson<Nothing>,
) -> Result<axum::Json<SaleView>, Problem> {
    let id = sale_id(&id)?;
    check_kind(&app, id).await?;
    let command = Command::Close { pool: id };
    finish(&app, id, app.decide(command, &origin).await?.into_pool()).await
}

/// Clear a sale
///
/// Takes a closed sale out of the engine once everything in it is settled and recorded. The
/// records stay, and the id is never used again.
#[utoipa::path(delete, path = "/api/v1/sales/{sale_id}", operation_id = "clear_sale", tag = "sales", security(("token" = ["admin"])),
    params(("sale_id" = schema::SaleId, Path, description = "The sale")),
    responses((status = 200, description = "The sale as it ended", body = SaleView)))]
pub async fn clear(
    State(app): Shared,
    origin: Origin,
    _: Admin,
    Path(id): Path<String>,
    _: OptionalJson<Nothing>,
) -> Result<axum::Json<SaleView>, Problem> {
    let id = sale_id(&id)?;
    let before = app.answer(app.engine.pool(id)).await?;
    if before.as_ref().is_some_and(|pool| pool.terms.kind != Kind::Sale) {
        return Err(Problem::new(Code::NoSuchSale));
    }
    let before = before.filter(|pool| !pool.cleared);
    let positions = app.answer(app.engine.positions()).await?;
    let recorded = app.projection.reached(&positions);
    if tokio::time::timeout(app.config.http.request_timeout, recorded).await.is_err() {
        let detail = "the records have not caught up; nothing was cleared, ask again later";
        return Err(Problem::new(Code::Unavailable).detail(detail));
    }
    if app.store.has_set_aside(id).await? {
        let detail = "an event of this sale could not be recorded: nothing was cleared; see \
                      /api/v1/admin/dead-letters";
        return Err(Problem::new(Code::SaleInUse).detail(detail));
    }
    let mut cleared = app.decide(Command::Clear { pool: id }, &origin).await?.into_pool();
    if cleared == Outcome::Refused(Refusal::NoSuchPool)
        && let Some(sale) = forgotten(&app, id).await?
    {
        let opened = app.store.sale_history(id).await?;
        let opened_at = opened.first().map_or(sale.changed_at, |opened| opened.at);
        cleared = Outcome::Replayed(as_cleared(sale, opened_at));
    }
    // Cleared, a pool has no numbers any more; these are the ones it ended with.
    let ended = before.map(|before| PoolView { cleared: true, ..before });
    finish(&app, id, cleared.map(|view| ended.unwrap_or(view))).await
}

/// A sale that the engine does not know, and the records do: it was cleared, and the engine has
/// forgotten it, because its id is never made again. The records may not have heard that yet. Only ids
/// that were made are looked for there.
pub async fn forgotten(app: &App, id: PoolId) -> Result<Option<Sale>, Problem> {
    if !id.is_made() {
        return Ok(None);
    }
    Ok(app.store.sale(id).await?)
}

/// What to say to whoever is refused because there is no such sale or claim: `sale_cleared`, if it was
/// there once.
pub async fn refused(app: &App, id: PoolId, refusal: &Refusal) -> Problem {
    let is_gone = async || match refusal {
        Refusal::NoSuchPool => Ok(forgotten(app, id).await?.is_some()),
        // The sale may be there, and the claim not.
        Refusal::NoSuchClaim => Ok(forgotten(app, id).await?.is_some()
            && app.answer(app.engine.pool_state(id)).await?.is_none()),
        _ => Ok(false),
    };
    match is_gone().await {
        Ok(true) => Problem::new(Code::SaleCleared),
        Ok(false) => Problem::from(refusal),
        Err(problem) => problem,
    }
}

/// A cleared sale as an engine that remembers it shows it: without numbers.
fn as_cleared(sale: Sale, opened_at: Timestamp) -> PoolView {
    PoolView {
        id: sale.id,
        version: sale.version,
        total: sale.total,
        available: 0,
        cents_left: None,
        tally: Tally::default(),
        claims: 0,
        payments: 0,
        opened_at,
        closed_at: sale.closed_at,
        cleared: true,
        terms: Arc::new(sale.terms),
    }
}

/// Fails when a pool is there and no sale. What it is for never changes, so this may be asked before
/// anything is done to it.
async fn check_kind(app: &App, id: PoolId) -> Result<(), Problem> {
    match app.answer(app.engine.pool_state(id)).await? {
        Some(state) if state.terms.kind != Kind::Sale => Err(Problem::new(Code::NoSuchSale)),
        Some(_) | None => Ok(()),
    }
}

/// A sale that is there and not cleared.
pub async fn find(app: &App, id: PoolId) -> Result<PoolView, Problem> {
    let pool = app.answer(app.engine.pool(id)).await?;
    match pool.filter(|pool| pool.terms.kind == Kind::Sale) {
        Some(pool) if pool.cleared => Err(Problem::new(Code::SaleCleared)),
        Some(pool) => Ok(pool),
        None => Err(refused(app, id, &Refusal::NoSuchPool).await),
    }
}

/// A sale's id out of a path.
pub fn sale_id(text: &str) -> Result<PoolId, Problem> {
    text.parse().map_err(|_| Problem::new(Code::NoSuchSale))
}

async fn finish(
    app: &App,
    id: PoolId,
    outcome: Outcome<PoolView>,
) -> Result<axum::Json<SaleView>, Problem> {
    match outcome {
        Outcome::Done(view) | Outcome::Replayed(view) => {
            Ok(axum::Json(SaleView::of(&view, app.now())))
        }
        Outcome::Refused(refusal) => Err(refused(app, id, &refusal).await),
    }
}
