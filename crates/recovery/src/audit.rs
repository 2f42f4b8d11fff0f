//! The audit: what the engine says, what its log says when it is replayed, and what the records
//! say must be the same, claim by claim, order by order, cent by cent.
//!
//! It runs beside a sale without stopping it. The engine is read first and the others after it,
//! so what they hold must be as new or newer; whatever is newer was not looked at and is nobody's
//! fault, everything else has to be equal.

mod compare;
pub mod history;
mod money;
mod set_aside;
mod source;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use axum::extract::{FromRef, State};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use qiang_app::config::Layers;
use qiang_app::workers::Workers;
use qiang_app::{App, Domain, Problems, schema};
use qiang_core::{Book, ClaimId, PoolId};
use qiang_engine::{JournalError, Stopwatch};
use qiang_store::AuditHow;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use qiang_app::consumer::Progress;
use qiang_app::extract::{Admin, Nothing, OptionalJson, Viewer};
use qiang_app::problem::{Code, Problem};
use qiang_app::workers::Turn;

pub use compare::compare;
pub use source::Source;

/// Differences listed; the count goes on.
const MAX_LISTED: usize = 1_000;

/// What an audit found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Report {
    /// Whether everything agrees.
    pub ok: bool,
    /// Sales looked at.
    pub sales: u64,
    /// Claims looked at.
    pub claims: u64,
    /// Orders looked at.
    pub orders: u64,
    /// Payments looked at.
    pub payments: u64,
    /// Refunds looked at.
    pub refunds: u64,
    /// Red packets looked at.
    #[serde(default)]
    pub packets: u64,
    /// What is wrong with the accounts as a whole; absent if they add up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accounts_off: Option<String>,
    /// How many differences there are.
    pub difference_count: u64,
    /// The first of them.
    pub differences: Vec<Difference>,
    /// How many paid orders a person has to look at; the books agree all the same.
    #[serde(default)]
    pub pending_reviews: u64,
    /// The first of them.
    #[serde(default)]
    pub reviews: Vec<ToReview>,
    /// Events that could not be recorded yet and are tried again; what the records lack because of
    /// them is no difference.
    #[serde(default)]
    pub pending_retries: u64,
    /// Events that could not be recorded and wait for a person; neither is what is lacking because of
    /// them.
    #[serde(default)]
    pub dead_letters: u64,
    /// Events that a person has given up, of which the records have nothing as new.
    #[serde(default)]
    pub discarded: u64,
    /// Milliseconds it took.
    pub took_ms: u64,
}

/// One thing on which two books disagree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Difference {
    /// The sale, or the number of the red packet.
    #[schema(value_type = schema::SaleId)]
    pub sale_id: String,
    /// The claim, or the order of the same id, where it is about one.
    #[schema(value_type = Option<schema::ClaimId>)]
    pub claim_id: Option<String>,
    /// Which book is wrong.
    #[schema(value_type = schema::Book)]
    pub book: String,
    /// What is wrong with it.
    pub what: String,
}

/// A paid order whose payment had paid an order of another sale before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ToReview {
    /// The order to look at.
    #[schema(value_type = schema::ClaimId)]
    pub order_id: String,
    /// The payment that paid it.
    #[schema(value_type = schema::PaymentId)]
    pub payment_id: String,
    /// The order that it paid first.
    #[schema(value_type = schema::ClaimId)]
    pub first_order_id: String,
}

/// Why an audit could not be finished.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The engine does not answer.
    #[error("the engine could not be asked")]
    Engine(#[from] qiang_engine::Error),
    /// The records cannot be read.
    #[error("the records could not be read")]
    Store(#[from] qiang_store::Error),
    /// The log cannot be read.
    #[error("the log could not be replayed")]
    Log(#[from] JournalError),
    /// The records cannot be brought up to date.
    #[error("the records could not be brought up to date")]
    Recording(#[source] Box<qiang_app::consumer::Error>),
    /// The records stay behind.
    #[error("the records did not catch up within {} s", .0.as_secs())]
    Behind(Duration),
    /// A replay ended in a panic: the log breaks the rules.
    #[error("the log could not be replayed: it breaks the rules")]
    Broken,
}

impl Report {
    fn differ(
        &mut self,
        sale: PoolId,
        claim: Option<ClaimId>,
        book: Which,
        what: impl Into<String>,
    ) {
        self.difference_count += 1;
        if self.differences.len() < MAX_LISTED {
            self.differences.push(Difference {
                sale_id: sale.to_string(),
                claim_id: claim.map(|id| id.to_string()),
                book: book.word().into(),
                what: what.into(),
            });
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Which {
    Records,
    Log,
    Engine,
    Accounts,
}

impl Which {
    fn word(self) -> &'static str {
        match self {
            Self::Records => "records",
            Self::Log => "log",
            Self::Engine => "engine",
            Self::Accounts => "accounts",
        }
    }
}

/// How thorough an audit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// The engine against the records.
    Records,
    /// And against a replay of its log, which takes memory for a second copy of everything. Only
    /// an embedded engine has a log that reaches back to the beginning.
    RecordsAndLog,
}

/// What an audit does about what it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mending {
    /// Nothing.
    LookOnly,
    /// Writes the engine's word into the records where they differ.
    Records,
}

/// Compare all books
///
/// Holds engine, log and records of a running server against each other. Nothing is kept of it; to have
/// it in the history, `POST /admin/audits`.
#[utoipa::path(get, path = "/api/v1/admin/audit", operation_id = "run_audit", tag = "operations", security(("token" = ["viewer"])),
    responses((status = 200, description = "What was found", body = Report)))]
pub async fn show(State(audit): State<Audit>, _: Viewer) -> Result<axum::Json<Report>, Problem> {
    answer(audit.run(Depth::RecordsAndLog, Mending::LookOnly).await)
}

/// Repair the records
///
/// Compares all books, and mends the records where they differ. What was found is kept among the audits.
#[utoipa::path(post, path = "/api/v1/admin/audit/repair", operation_id = "repair_records", tag = "operations", security(("token" = ["admin"])),
    responses((status = 200, description = "What was found, before it was mended", body = Report)))]
pub async fn repair(
    State(audit): State<Audit>,
    Admin(who): Admin,
    _: OptionalJson<Nothing>,
) -> Result<axum::Json<Report>, Problem> {
    let (depth, how) = (Depth::RecordsAndLog, AuditHow::Repair);
    answer(audit.run_and_keep(depth, Mending::Records, how, Some(who.user)).await.1)
}

fn answer(report: Result<Report, Error>) -> Result<axum::Json<Report>, Problem> {
    report.map(axum::Json).map_err(|error| unfinished(&error))
}

fn unfinished(error: &Error) -> Problem {
    let error = qiang_engine::chain(error);
    tracing::error!("the audit could not be finished: {error}");
    Problem::new(Code::Unavailable).detail(format!("the audit could not be finished: {error}"))
}

/// `[audit]`
#[derive(Debug, Clone)]
pub struct Settings {
    /// How often the books are compared in the background; `None` is never.
    pub every: Option<Duration>,
    /// How many audits are kept.
    pub keep: u32,
}

impl Settings {
    /// Takes this domain's part of the configuration.
    pub fn take(layers: &mut Layers) -> Self {
        let every = layers.seconds("audit.every_secs", 300, 0..=30 * 86_400);
        let keep = layers.number("audit.keep", 1_000, 1..=100_000);
        Self { every: (!every.is_zero()).then_some(every), keep }
    }
}

/// What the calls of this domain work with; a copy is the same thing.
#[derive(Debug, Clone)]
pub struct Audit(Arc<Inner>);

/// What an audit of a running server needs.
#[derive(Debug)]
pub struct Inner {
    app: Arc<App>,
    settings: Settings,
    audits: Counter,
    differences: Gauge<u64, AtomicU64>,
}

impl Deref for Audit {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl FromRef<Audit> for Arc<App> {
    fn from_ref(audit: &Audit) -> Self {
        Arc::clone(&audit.app)
    }
}

impl Domain for Audit {
    fn routes(&self) -> OpenApiRouter {
        OpenApiRouter::new()
            .routes(routes!(show))
            .routes(routes!(repair))
            .routes(routes!(history::list, history::create))
            .with_state(self.clone())
    }

    fn problems(&self) -> Problems {
        &[("run_audit", &[]), ("repair_records", &[]), ("list_audits", &[]), ("create_audit", &[])]
    }

    fn register(&self, registry: &mut Registry) {
        registry.register("audits", "Audits run", self.audits.clone());
        let help = "Differences the last audit found";
        registry.register("audit_differences", help, self.differences.clone());
    }

    fn start(&self, workers: &mut Workers) {
        if let (Some(every), true) = (self.settings.every, self.app.config.roles.worker) {
            let audit = self.clone();
            workers.after_pause("audit", every, move || audit.clone().run_by_itself());
        }
    }
}

impl Audit {
    /// Of a running server.
    #[must_use]
    pub fn new(app: Arc<App>, settings: Settings) -> Self {
        let (audits, differences) = (Counter::default(), Gauge::default());
        Self(Arc::new(Inner { app, settings, audits, differences }))
    }

    /// Compares all books.
    pub async fn run(&self, depth: Depth, mending: Mending) -> Result<Report, Error> {
        let app = &self.app;
        let source = Source::Engine { engine: &app.engine, projection: &app.projection };
        let log = match depth {
            Depth::Records => None,
            Depth::RecordsAndLog => app.engine.folder(),
        };
        let report = compare(&app.store, &source, log, mending).await?;
        self.audits.inc();
        self.differences.set(report.difference_count);
        Ok(report)
    }

    /// Compares engine and records, so that the metric tells.
    async fn run_by_itself(self) -> Turn {
        let (look, how) = (Mending::LookOnly, AuditHow::ByItself);
        let report = self.run_and_keep(Depth::Records, look, how, None).await.1?;
        if report.ok {
            tracing::debug!(claims = report.claims, "audit: all agree");
        } else {
            let first = report.differences.first();
            tracing::error!(count = report.difference_count, ?first, "audit: the books differ");
        }
        Ok(())
    }
}

/// Rebuilds a book from a journal, on a thread where that may take its time.
pub async fn replay(folder: &std::path::Path) -> Result<(Book, u64), Error> {
    let folder = folder.to_owned();
    let replayed = tokio::task::spawn_blocking(move || {
        let mut book = Book::new(0);
        let end = qiang_engine::offline_log(&folder, &mut |event| book.store(&event))?;
        book.settle();
        Ok((book, end.seq))
    });
    replayed.await.unwrap_or(Err(Error::Broken))
}

/// Waits for the records, but not for ever.
async fn caught_up(projection: &Progress, positions: &[u64]) -> Result<(), Error> {
    const PATIENCE: Duration = Duration::from_secs(60);
    let reached = tokio::time::timeout(PATIENCE, projection.reached(positions));
    reached.await.map_err(|_| Error::Behind(PATIENCE))
}

/// Milliseconds since the watch was started.
fn millis(watch: Stopwatch) -> u64 {
    u64::try_from(watch.elapsed().as_millis()).unwrap_or(u64::MAX)
}
