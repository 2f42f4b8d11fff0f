//! `GET /api/v1/time`: the server's clock, for countdowns. The device's own is never asked.

use axum::extract::State;
use axum::http::header::CACHE_CONTROL;
use axum::response::IntoResponse;
use qiang_app::extract::Shared;
use qiang_app::{json_time, schema};
use qiang_core::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

/// The time.
#[derive(Debug, Serialize, ToSchema)]
pub struct TimeView {
    /// The server's clock.
    #[serde(with = "json_time")]
    #[schema(value_type = schema::Time)]
    pub server_time: Timestamp,
}

/// Show the time
///
/// What the clock says that sales open by. Never cached: ask a few times and trust the answer with the
/// shortest way.
#[utoipa::path(get, path = "/api/v1/time", operation_id = "show_time", tag = "session",
    responses((status = 200, description = "The time", body = TimeView)))]
pub async fn show(State(app): Shared) -> impl IntoResponse {
    ([(CACHE_CONTROL, "no-store")], axum::Json(TimeView { server_time: app.now() }))
}
