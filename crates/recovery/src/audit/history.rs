//! Audits that are kept: run by somebody, by a repair, or by themselves. `GET /admin/audit`, which only
//! looks, is not among them.

use axum::extract::{Query, State};
use qiang_app::extract::{Admin, Nothing, OptionalJson, Shared, Viewer, page_limit};
use qiang_app::problem::Problem;
use qiang_app::{cursor, json_time, schema};
use qiang_core::{Timestamp, UserId};
use qiang_engine::Stopwatch;
use qiang_store::{AuditHow, AuditRecord, AuditResult};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{Audit, Depth, Difference, Error, Mending, Report, millis, unfinished};

/// Audits on one page, unless asked for fewer.
const PAGE: u32 = 50;
/// Differences that are kept of an audit; the count is whole.
const KEPT_DIFFERENCES: usize = 20;
/// The most characters of an error that are kept.
const MAX_ERROR: usize = 2_000;

/// An audit that was run, and what it found.
#[derive(Debug, Serialize, ToSchema)]
pub struct AuditView {
    /// Names it.
    #[schema(value_type = schema::MadeId)]
    pub id: String,
    /// When it began.
    #[serde(with = "json_time")]
    #[schema(value_type = schema::Time)]
    pub at: Timestamp,
    /// What it found.
    #[schema(value_type = schema::AuditResult)]
    pub result: &'static str,
    /// Why it was run.
    #[schema(value_type = schema::AuditHow)]
    pub how: &'static str,
    /// Who asked for it; null if it ran by itself.
    #[schema(value_type = Option<schema::UserId>)]
    pub user_id: Option<String>,
    /// Milliseconds it took.
    #[schema(minimum = 0)]
    pub took_ms: u64,
    /// Sales looked at.
    #[schema(minimum = 0)]
    pub sales: u64,
    /// Claims looked at.
    #[schema(minimum = 0)]
    pub claims: u64,
    /// Orders looked at.
    #[schema(minimum = 0)]
    pub orders: u64,
    /// Payments looked at.
    #[schema(minimum = 0)]
    pub payments: u64,
    /// Refunds looked at.
    #[schema(minimum = 0)]
    pub refunds: u64,
    /// How many differences there were; before they were mended, if it was a repair.
    #[schema(minimum = 0)]
    pub difference_count: u64,
    /// The first of them, at most 20.
    #[schema(max_items = 20)]
    pub differences: Vec<Difference>,
    /// How many paid orders a person had to look at.
    #[schema(minimum = 0)]
    pub pending_reviews: u64,
    /// Why it was not finished.
    pub error: Option<String>,
}

/// One page of audits.
#[derive(Debug, Serialize, ToSchema)]
pub struct AuditPage {
    /// Newest first.
    pub audits: Vec<AuditView>,
    /// Give this as `before` to see older ones; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::MadeCursor>)]
    pub next_before: Option<String>,
}

/// Which page.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// `next_before` of the page before.
    #[param(value_type = Option<schema::MadeCursor>)]
    before: Option<String>,
    /// How many to show, 1 to 50.
    #[param(minimum = 1, maximum = 50, example = 20)]
    limit: Option<u32>,
}

impl From<AuditRecord> for AuditView {
    fn from(audit: AuditRecord) -> Self {
        let [sales, claims, orders, payments, refunds] = audit.looked_at;
        Self {
            id: audit.id.to_string(),
            at: audit.at,
            result: audit.result.as_str(),
            how: audit.how.as_str(),
            user_id: audit.user.map(|user| user.to_string()),
            took_ms: audit.took_ms,
            sales,
            claims,
            orders,
            payments,
            refunds,
            difference_count: audit.difference_count,
            // What another version wrote is not worth an error.
            differences: serde_json::from_str(&audit.differences).unwrap_or_default(),
            pending_reviews: audit.pending_reviews,
            error: audit.error,
        }
    }
}

/// List audits
///
/// What the last audits found, newest first: those that somebody ran, repairs, and those that the server
/// ran by itself. `audit.keep` says how many there are.
#[utoipa::path(get, path = "/api/v1/admin/audits", operation_id = "list_audits", tag = "operations", security(("token" = ["viewer"])),
    params(PageQuery),
    responses((status = 200, description = "A page of audits", body = AuditPage)))]
pub async fn list(
    State(app): Shared,
    _: Viewer,
    query: Result<Query<PageQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<axum::Json<AuditPage>, Problem> {
    let Query(PageQuery { before, limit }) = query.map_err(Problem::from)?;
    let before = cursor::of_query("before", before, cursor::read_moment)?;
    let limit = page_limit(limit, PAGE)?;
    let audits = app.store.audits(before, limit).await?;
    let full = audits.len() == limit as usize;
    let next_before = audits.last().filter(|_| full).map(|last| last.moment());
    let next_before = next_before.map(cursor::write_moment);
    let audits = audits.into_iter().map(AuditView::from).collect();
    Ok(axum::Json(AuditPage { audits, next_before }))
}

/// Run an audit
///
/// Compares all books of a running server, changes nothing in them, and keeps what it found.
#[utoipa::path(post, path = "/api/v1/admin/audits", operation_id = "create_audit", tag = "operations", security(("token" = ["admin"])),
    responses((status = 201, description = "What was found", body = AuditView)))]
pub async fn create(
    State(audit): State<Audit>,
    Admin(who): Admin,
    _: OptionalJson<Nothing>,
) -> Result<(axum::http::StatusCode, axum::Json<AuditView>), Problem> {
    let depth = Depth::RecordsAndLog;
    let (record, ran) =
        audit.run_and_keep(depth, Mending::LookOnly, AuditHow::Asked, Some(who.user)).await;
    ran.map_err(|error| unfinished(&error))?;
    Ok((axum::http::StatusCode::CREATED, axum::Json(record.into())))
}

impl Audit {
    /// Compares all books, and keeps what was found, also that it was not finished. A history that
    /// cannot be written at this moment does not undo the audit.
    pub(super) async fn run_and_keep(
        &self,
        depth: Depth,
        mending: Mending,
        how: AuditHow,
        user: Option<UserId>,
    ) -> (AuditRecord, Result<Report, Error>) {
        let (at, watch) = (self.app.now(), Stopwatch::start());
        let ran = self.run(depth, mending).await;
        let mut record = record(&ran, millis(watch));
        (record.at, record.how, record.user) = (at, how, user);
        match self.app.next_id() {
            Ok(id) => {
                record.id = id.get();
                if let Err(error) = self.app.store.add_audit(&record, self.settings.keep).await {
                    let error = qiang_engine::chain(&error);
                    tracing::warn!("what an audit found is not kept: {error}");
                }
            }
            Err(problem) => {
                tracing::warn!("what an audit found is not kept: {}", problem.sentence());
            }
        }
        (record, ran)
    }
}

/// What is kept of an audit, apart from who ran it when.
fn record(ran: &Result<Report, Error>, took_ms: u64) -> AuditRecord {
    let (result, error) = match ran {
        Ok(report) if report.ok => (AuditResult::Agree, None),
        Ok(_) => (AuditResult::Differ, None),
        Err(error) => {
            let error = qiang_engine::chain(error).chars().take(MAX_ERROR).collect();
            (AuditResult::Unfinished, Some(error))
        }
    };
    let report = ran.as_ref().ok();
    let differences = report.map_or(&[][..], |report| report.differences.as_slice());
    let differences = &differences[..differences.len().min(KEPT_DIFFERENCES)];
    let count = |of: fn(&Report) -> u64| report.map_or(0, of);
    AuditRecord {
        id: 0,
        at: Timestamp::from_millis(0),
        result,
        how: AuditHow::Asked,
        user: None,
        took_ms,
        looked_at: [
            count(|report| report.sales),
            count(|report| report.claims),
            count(|report| report.orders),
            count(|report| report.payments),
            count(|report| report.refunds),
        ],
        difference_count: count(|report| report.difference_count),
        pending_reviews: count(|report| report.pending_reviews),
        differences: serde_json::to_string(differences).unwrap_or_else(|_| "[]".to_owned()),
        error,
    }
}
