//! What is counted, as Prometheus reads it.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use qiang_core::{Outcome, Refusal, Settlement};
use qiang_engine::Histogram;

use crate::http::Shared;
use crate::workers::Status;

/// How long the page waits for the records.
const COUNT_PATIENCE: Duration = Duration::from_secs(1);
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Outcomes of a claim, in the order of the counters.
const CLAIM_OUTCOMES: [&str; 13] = [
    "granted",
    "replayed",
    "no_such_sale",
    "not_open_yet",
    "closed",
    "not_eligible",
    "already_claimed",
    "over_limit",
    "sold_out",
    "failed",
    "released",
    "idempotency_key_reused",
    "sale_cleared",
];
const SETTLEMENTS: [&str; 5] = ["paid", "regranted", "refund_due", "replayed", "refused"];

/// Counters of the front doors; the engine counts for itself.
#[derive(Debug, Default)]
pub struct Metrics {
    claims: [AtomicU64; CLAIM_OUTCOMES.len()],
    settlements: [AtomicU64; SETTLEMENTS.len()],
    /// How long a claim took, from the question to the engine to the durable answer.
    pub claim_latency: Histogram,
    /// Differences the last audit found.
    pub audit_differences: AtomicU64,
    /// Audits run.
    pub audits: AtomicU64,
}

impl Metrics {
    /// Counts the answer to a claim; `None` is anything that was no answer of the rules.
    pub fn claimed<T>(&self, outcome: Option<&Outcome<T>>) {
        let place = match outcome {
            Some(Outcome::Done(_)) => 0,
            Some(Outcome::Replayed(_)) => 1,
            Some(Outcome::Refused(refusal)) => match refusal {
                Refusal::NoSuchPool => 2,
                Refusal::NotOpenYet { .. } => 3,
                Refusal::Closed => 4,
                Refusal::NotEligible => 5,
                Refusal::AlreadyClaimed { .. } => 6,
                Refusal::OverLimit { .. } => 7,
                Refusal::SoldOut => 8,
                Refusal::Released => 10,
                Refusal::RequestConflict => 11,
                Refusal::Cleared => 12,
                _ => 9,
            },
            None => 9,
        };
        self.claims[place].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts what became of a payment.
    pub fn settled(&self, outcome: &Outcome<Settlement>) {
        let place = match outcome {
            Outcome::Done(Settlement::Paid(_)) => 0,
            Outcome::Done(Settlement::Regranted(_)) => 1,
            Outcome::Done(Settlement::RefundDue(_)) => 2,
            Outcome::Replayed(_) => 3,
            Outcome::Refused(_) => 4,
        };
        self.settlements[place].fetch_add(1, Ordering::Relaxed);
    }
}

/// Show metrics
///
/// Counters and gauges for Prometheus, in its text format.
#[utoipa::path(get, path = "/metrics", operation_id = "show_metrics", tag = "operations",
    responses((status = 200, description = "Prometheus text format", body = String)))]
pub async fn show(State(app): Shared) -> impl IntoResponse {
    let mut page = Page::default();
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (metrics, stats) = (&app.metrics, app.engine.stats());
    page.family("qiang_build_info", "gauge", "The version at work.");
    page.labelled("qiang_build_info", "version", env!("CARGO_PKG_VERSION"), 1);
    page.family("qiang_claims_total", "counter", "Claims asked for, by outcome.");
    for (outcome, count) in CLAIM_OUTCOMES.iter().zip(&metrics.claims) {
        page.labelled("qiang_claims_total", "outcome", outcome, load(count));
    }
    page.family(
        "qiang_payments_total",
        "counter",
        "Payments that arrived, by what became of them.",
    );
    for (outcome, count) in SETTLEMENTS.iter().zip(&metrics.settlements) {
        page.labelled("qiang_payments_total", "outcome", outcome, load(count));
    }
    page.histogram(
        "qiang_claim_seconds",
        "From the question to the durable answer.",
        &metrics.claim_latency,
    );
    page.histogram("qiang_commit_seconds", "Making a batch durable.", &stats.commit);
    page.counter("qiang_batches_total", "Batches made durable.", load(&stats.batches));
    page.counter("qiang_events_total", "Events made durable.", load(&stats.events));
    page.counter(
        "qiang_expired_total",
        "Claims released because their time was up.",
        load(&stats.expired),
    );
    page.counter(
        "qiang_overloaded_total",
        "Requests refused because too many waited.",
        load(&stats.overloaded),
    );
    page.counter("qiang_snapshots_total", "Snapshots completed.", load(&stats.snapshots));
    page.gauge(
        "qiang_queue_depth",
        "Answers waiting for the journal.",
        app.engine.queue_depth() as u64,
    );
    page.gauge(
        "qiang_engine_up",
        "1 while the engine decides in all sales, as /readyz says.",
        app.engine_state().0.is_none().into(),
    );
    page.counter(
        "qiang_engine_retries_total",
        "Questions to a shared engine that were asked again.",
        load(&stats.retries),
    );
    let recorded = app.projection.positions();
    // An engine that cannot be asked at this moment has no position; nor has its lag.
    let ends = app.answer(app.engine.positions()).await.unwrap_or_default();
    let lag = ends.iter().zip(&recorded).map(|(end, at)| end.saturating_sub(*at));
    for (name, help, values) in [
        ("qiang_log_position", "Position of the last durable event, by log.", ends.clone()),
        ("qiang_projection_lag_events", "Events not in the records yet, by log.", lag.collect()),
        (
            "qiang_projection_position",
            "Position of the last event in the records, by log.",
            recorded,
        ),
    ] {
        page.family(name, "gauge", help);
        for (log, value) in values.into_iter().enumerate() {
            page.labelled(name, "log", &log.to_string(), value);
        }
    }
    page.counter(
        "qiang_projection_failures_total",
        "Batches the records did not take at once.",
        app.projection.failures(),
    );
    // Records that cannot be read at this moment have no count.
    let pending = tokio::time::timeout(COUNT_PATIENCE, app.store.pending_reviews()).await;
    if let Ok(Ok(pending)) = pending {
        page.gauge(
            "qiang_orders_pending_review",
            "Paid orders that a person has to look at.",
            pending,
        );
    }
    let workers = app.workers.all();
    for (name, kind, help, value) in [
        (
            "qiang_worker_up",
            "gauge",
            "1 while the last turn of a worker went well.",
            (|status| u64::from(status.trouble.is_none())) as fn(&Status) -> u64,
        ),
        (
            "qiang_worker_failures_total",
            "counter",
            "Turns of a worker that failed or panicked.",
            |status| status.failures,
        ),
        ("qiang_worker_panics_total", "counter", "Turns of a worker that panicked.", |status| {
            status.panics
        }),
    ] {
        page.family(name, kind, help);
        for (worker, status) in &workers {
            page.labelled(name, "worker", worker, value(status));
        }
    }
    page.counter("qiang_audits_total", "Audits run.", load(&metrics.audits));
    page.gauge(
        "qiang_audit_differences",
        "Differences the last audit found.",
        load(&metrics.audit_differences),
    );
    ([(CONTENT_TYPE, TEXT)], page.text)
}

#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, "counter", help);
        self.line(format_args!("{name} {value}"));
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, "gauge", help);
        self.line(format_args!("{name} {value}"));
    }

    fn labelled(&mut self, name: &str, label: &str, value: &str, count: u64) {
        self.line(format_args!("{name}{{{label}=\"{value}\"}} {count}"));
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.family(name, "histogram", help);
        let mut count = 0;
        for (bound, below) in histogram.cumulative() {
            let bound = bound.map_or("+Inf".into(), |bound| bound.as_secs_f64().to_string());
            self.line(format_args!("{name}_bucket{{le=\"{bound}\"}} {below}"));
            count = below;
        }
        self.line(format_args!(
            "{name}_sum {}\n{name}_count {count}",
            histogram.sum().as_secs_f64()
        ));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.text, "{line}").expect("a string takes all that is written");
    }
}
