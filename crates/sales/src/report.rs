//! What a sale came to: units, money, speed, who was refused why, and all of it over time. On screen as
//! JSON, for spreadsheets as CSV, and for people as one printable page.
//!
//! Claims, orders, payments and refunds come from the records, so a report can be had while a sale runs
//! and after it was cleared. Refusals are not recorded, only counted: see [`crate::outcomes`].

mod csv;
mod html;
mod plot;
mod sums;
mod view;
mod words;

use axum::extract::{Query, State};
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName};
use axum::response::{IntoResponse, Response};
use qiang_app::extract::{Path, Viewer};
use qiang_app::problem::{Lang, Problem};
use qiang_app::schema;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use crate::Sales;
use crate::sale::sale_id;

pub use view::SaleReport;

/// In which form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// For programs.
    Json,
    /// For spreadsheets.
    Csv,
    /// For people: one page that can be kept and printed.
    Html,
}

/// In which form and language.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ReportQuery {
    /// `json`, `csv` or `html`; without it CSV for those who accept `text/csv`, otherwise JSON.
    #[param(inline)]
    format: Option<Format>,
    /// The language of the page: `en` or `zh`; without it by `Accept-Language`.
    #[param(value_type = Option<schema::Language>)]
    lang: Option<String>,
}

/// Report of a sale
///
/// Units, money, speed, answers and refusals, and all of it over time, while the sale runs and after it
/// was cleared. As JSON, as CSV (`?format=csv` or `Accept: text/csv`), or as one printable page
/// (`?format=html`).
#[utoipa::path(get, path = "/api/v1/admin/sales/{sale_id}/report", operation_id = "report_sale", tag = "sales", security(("token" = ["viewer"])),
    params(("sale_id" = schema::SaleId, Path, description = "The sale"), ReportQuery),
    responses((status = 200, description = "The report",
        content((SaleReport = "application/json"), (String = "text/csv"), (String = "text/html")))))]
pub async fn show(
    State(sales): State<Sales>,
    _: Viewer,
    Path(id): Path<String>,
    headers: HeaderMap,
    query: Result<Query<ReportQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, Problem> {
    let Query(ReportQuery { format, lang }) = query.map_err(Problem::from)?;
    let lang = match lang.as_deref() {
        None => Lang::of(&headers),
        Some("en") => Lang::En,
        Some("zh") => Lang::Zh,
        Some(_) => return Err(Problem::invalid_field("lang", "must be en or zh")),
    };
    let report = sums::report(&sales, sale_id(&id)?).await?;
    let name = |end: &str| format!("attachment; filename=\"sale-{}.{end}\"", report.sale.id);
    let plain: [(HeaderName, &str); 1] = [(CACHE_CONTROL, "no-store")];
    Ok(match format.unwrap_or_else(|| accepted(&headers)) {
        Format::Json => (plain, axum::Json(report)).into_response(),
        Format::Csv => {
            let kind = (CONTENT_TYPE, "text/csv; charset=utf-8".to_owned());
            let file = (CONTENT_DISPOSITION, name("csv"));
            (plain, [kind, file], csv::write(&report)).into_response()
        }
        Format::Html => {
            let kind = (CONTENT_TYPE, "text/html; charset=utf-8".to_owned());
            let policy = (axum::http::header::CONTENT_SECURITY_POLICY, html::policy());
            (plain, [kind, policy], html::write(&report, lang)).into_response()
        }
    })
}

/// What those who name no format get.
fn accepted(headers: &HeaderMap) -> Format {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let csv = accept.split(',').any(|kind| {
        kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/csv"))
    });
    if csv { Format::Csv } else { Format::Json }
}
