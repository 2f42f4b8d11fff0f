//! Whether the process lives, and whether it can do its work.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::Serialize;
use utoipa::ToSchema;

use super::Shared;

/// Whether the parts work; `null` is yes, otherwise what is wrong.
#[derive(Debug, Serialize, ToSchema)]
pub struct Readiness {
    /// Whether everything works.
    pub ready: bool,
    /// The engine.
    pub engine: Option<String>,
    /// The records, and the writing of them.
    pub database: Option<String>,
}

/// The process lives.
#[utoipa::path(get, path = "/healthz", tag = "operations", responses((status = 200, body = String)))]
pub async fn healthz() -> &'static str {
    "ok\n"
}

/// Everything a request needs works.
#[utoipa::path(get, path = "/readyz", tag = "operations",
    responses((status = 200, body = Readiness), (status = 503, body = Readiness)))]
pub async fn readyz(State(app): Shared) -> impl IntoResponse {
    let answers = app.answer(app.engine.positions()).await.is_ok();
    let unheard = (!answers).then(|| "the engine does not answer".to_owned());
    let engine = app.engine.trouble().or(unheard);
    let database = match app.store.ping().await {
        // What cannot be read from the engine is no fault of the records.
        Ok(()) => app.projection.trouble().filter(|_| engine.is_none()),
        Err(error) => Some(crate::chain(&error)),
    };
    let ready = engine.is_none() && database.is_none();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, axum::Json(Readiness { ready, engine, database }))
}
