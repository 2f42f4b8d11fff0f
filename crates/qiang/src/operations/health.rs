//! Whether the process lives, and whether it can do its work.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use qiang_app::extract::Shared;
use qiang_app::probes::Serving;
use qiang_app::problem::Problem;
use qiang_app::schema;

/// Whether the parts work; `null` is yes, otherwise what is wrong and what to do.
#[derive(Debug, Serialize, ToSchema)]
pub struct Readiness {
    /// Whether everything works.
    pub ready: bool,
    /// In which sales something is decided: `all`, `some` (those of other servers of a cluster, or
    /// other partitions) or `none`.
    #[schema(value_type = schema::Serving)]
    pub serving: &'static str,
    /// The engine.
    pub engine: Option<String>,
    /// What kind of trouble the engine has: `unreachable`, `refuses_writes`, `lost` or `stopped`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Trouble>)]
    pub engine_problem: Option<&'static str>,
    /// The records, and the writing of them.
    pub database: Option<String>,
    /// Work of the background whose last turn failed, and why. It is tried again by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<String>,
    /// What is made to fail on purpose, if anything is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drill: Option<String>,
    /// What kind of trouble the database has: `unreachable` or `refuses_writes`. Absent if
    /// the records only lag behind.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Trouble>)]
    pub database_problem: Option<&'static str>,
}

/// What is enough.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ReadyQuery {
    /// `all` (the default), or `some`: 200 as long as something is decided in some sales.
    #[param(value_type = Option<schema::Enough>)]
    serving: Option<String>,
}

/// Show that the process lives
///
/// Says nothing about engine and database.
#[utoipa::path(get, path = "/healthz", operation_id = "show_health", tag = "operations",
    responses((status = 200, description = "It lives", body = String)))]
pub async fn healthz() -> &'static str {
    "ok\n"
}

/// Show whether requests can be served
///
/// Whether everything a request needs works, writes included. Answered at once, from what was
/// found out in the last seconds.
#[utoipa::path(get, path = "/readyz", operation_id = "show_readiness", tag = "operations", params(ReadyQuery),
    responses((status = 200, description = "It works", body = Readiness), (status = 503, description = "It does not", body = Readiness)))]
pub async fn readyz(
    State(app): Shared,
    query: Result<Query<ReadyQuery>, QueryRejection>,
) -> Result<impl IntoResponse, Problem> {
    let Query(ReadyQuery { serving: enough }) = query.map_err(Problem::from)?;
    let some_is_enough = match enough.as_deref() {
        None | Some("all") => false,
        Some("some") => true,
        Some(_) => return Err(Problem::invalid_field("serving", "must be all or some")),
    };
    let ((engine, serving), database) = (app.engine_state(), app.database_state());
    // What cannot be read from the engine is no fault of the records.
    let recording = app.projection.trouble().filter(|_| engine.is_none() && database.is_none());
    let ready = engine.is_none() && database.is_none() && recording.is_none();
    let good = ready || some_is_enough && serving != Serving::None;
    let status = if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = Readiness {
        ready,
        serving: serving.as_str(),
        engine_problem: engine.as_ref().map(|trouble| trouble.problem.as_str()),
        engine: engine.map(|trouble| trouble.what),
        database_problem: database.as_ref().map(|trouble| trouble.problem.as_str()),
        database: database.map(|trouble| trouble.what).or(recording),
        workers: app.workers.trouble(),
        drill: app.config.delivery.drill(),
    };
    Ok((status, axum::Json(body)))
}
