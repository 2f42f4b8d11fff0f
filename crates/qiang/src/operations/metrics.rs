//! Metrics of the engine, the logs and the workers, and the page on which all metrics are shown.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use qiang_app::App;
use qiang_app::metrics::encode_histogram;
use qiang_app::problem::{Code, Problem};
use qiang_app::workers::Status;

use crate::domains::Domains;
use crate::tls::{Certificates, Outcome};

const TEXT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All domains, and what they have registered.
#[derive(Debug, Clone)]
pub(crate) struct Page {
    domains: Arc<Domains>,
    registry: Arc<Registry>,
}

impl Page {
    /// Has all domains register what they count.
    pub(crate) fn new(domains: Arc<Domains>) -> Self {
        let mut registry = Registry::with_prefix("qiang");
        domains.all().for_each(|domain| domain.register(&mut registry));
        Self { domains, registry: Arc::new(registry) }
    }
}

/// Show metrics
///
/// Counters and gauges for Prometheus, in the text format of OpenMetrics.
#[utoipa::path(get, path = "/metrics", operation_id = "show_metrics", tag = "operations",
    responses((status = 200, description = "OpenMetrics text format", body = String, content_type = "application/openmetrics-text")))]
pub(crate) async fn show(State(page): State<Page>) -> Result<impl IntoResponse, Problem> {
    for domain in page.domains.all() {
        domain.measure().await;
    }
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &page.registry) {
        Ok(()) => Ok(([(CONTENT_TYPE, TEXT)], text)),
        Err(fmt::Error) => Err(Problem::new(Code::Internal)),
    }
}

type ByLog = Family<[(&'static str, String); 1], Gauge<u64, AtomicU64>>;

/// How far each log reaches, and how far the records follow it.
#[derive(Debug, Clone, Default)]
pub(super) struct Logs {
    ends: ByLog,
    lag: ByLog,
    recorded: ByLog,
}

impl Logs {
    pub(super) fn register(&self, registry: &mut Registry) {
        for (name, help, values) in [
            ("log_position", "Position of the last durable event, by log", &self.ends),
            ("projection_lag_events", "Events not in the records yet, by log", &self.lag),
            (
                "projection_position",
                "Position of the last event in the records, by log",
                &self.recorded,
            ),
        ] {
            registry.register(name, help, values.clone());
        }
    }

    /// An engine that cannot be asked at this moment has no position; nor has its lag.
    pub(super) async fn look_at(&self, app: &App) {
        let recorded = app.projection.positions();
        let ends = app.answer(app.engine.positions()).await.unwrap_or_default();
        let lag = ends.iter().zip(&recorded).map(|(end, at)| end.saturating_sub(*at)).collect();
        for (family, values) in [(&self.ends, ends), (&self.lag, lag), (&self.recorded, recorded)] {
            if values.is_empty() {
                family.clear();
            }
            for (log, value) in values.into_iter().enumerate() {
                family.get_or_create(&[("log", log.to_string())]).set(value);
            }
        }
    }
}

/// What is read off engine and workers when somebody looks.
#[derive(Debug)]
pub(super) struct Live(pub(super) Arc<App>);

impl Collector for Live {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (app, stats) = (&self.0, self.0.engine.stats());
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        gauges(&mut encoder, "build_info", "The version at work", [(version, 1)])?;
        let help = "Making a batch durable";
        let commits =
            encoder.encode_descriptor("commit_seconds", help, None, MetricType::Histogram)?;
        encode_histogram(&stats.commit, commits)?;
        for (name, help, count) in [
            ("batches", "Batches made durable", load(&stats.batches)),
            ("events", "Events made durable", load(&stats.events)),
            ("expired", "Claims released because their time was up", load(&stats.expired)),
            ("overloaded", "Requests refused because too many waited", load(&stats.overloaded)),
            ("snapshots", "Snapshots completed", load(&stats.snapshots)),
            (
                "engine_retries",
                "Questions to a shared engine that were asked again",
                load(&stats.retries),
            ),
            (
                "projection_failures",
                "Batches the records did not take at once",
                app.projection.failures(),
            ),
        ] {
            let mut counter = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            counter.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
        let waiting = app.engine.queue_depth() as u64;
        let up = u64::from(app.engine_state().0.is_none());
        for (name, help, value) in [
            ("queue_depth", "Answers waiting for the journal", waiting),
            ("engine_up", "1 while the engine decides in all sales, as /readyz says", up),
        ] {
            let mut gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            gauge.encode_gauge(&value)?;
        }
        self.encode_workers(&mut encoder)
    }
}

impl Live {
    fn encode_workers(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let workers = self.0.workers.all();
        let of = |value: fn(&Status) -> u64| {
            workers.iter().map(move |(name, status)| ([("worker", *name)], value(status)))
        };
        let help = "1 while the last turn of a worker went well";
        gauges(encoder, "worker_up", help, of(|status| u64::from(status.trouble.is_none())))?;
        for (name, help, value) in [
            (
                "worker_failures",
                "Turns of a worker that failed or panicked",
                (|status| status.failures) as fn(&Status) -> u64,
            ),
            ("worker_panics", "Turns of a worker that panicked", |status| status.panics),
        ] {
            counters(encoder, name, help, of(value))?;
        }
        Ok(())
    }
}

/// What doors with TLS show, and how handshakes end there.
#[derive(Debug)]
pub(super) struct Tls(pub(super) Certificates);

impl Collector for Tls {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        let help = "When the certificate of a door ends, in Unix time";
        let ends = self.0.iter().filter_map(|one| {
            let seconds = one.ends_at()?.millis().max(0) / 1000;
            Some(([("door", one.door())], u64::try_from(seconds).unwrap_or_default()))
        });
        gauges(&mut encoder, "tls_certificate_not_after_seconds", help, ends)?;
        let help = "Certificates that were read again, by door and outcome";
        let reloads = self.0.iter().flat_map(|one| {
            [("done", one.renewed()), ("failed", one.refused())]
                .map(|(outcome, count)| ([("door", one.door()), ("outcome", outcome)], count))
        });
        counters(&mut encoder, "tls_reloads", help, reloads)?;
        let help = "Handshakes, by door and outcome";
        let handshakes = self.0.iter().flat_map(|one| {
            Outcome::ALL.map(|outcome| {
                let labels = [("door", one.door()), ("outcome", outcome.word())];
                (labels, one.handshakes(outcome))
            })
        });
        counters(&mut encoder, "tls_handshakes", help, handshakes)
    }
}

/// One gauge for each of these labels.
fn gauges<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = (L, u64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in values {
        family.encode_family(&labels)?.encode_gauge(&value)?;
    }
    Ok(())
}

/// One counter for each of these labels.
fn counters<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    counts: impl IntoIterator<Item = (L, u64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, count) in counts {
        let mut counter = family.encode_family(&labels)?;
        counter.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
    }
    Ok(())
}
