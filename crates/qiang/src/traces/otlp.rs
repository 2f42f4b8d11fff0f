//! Spans, collected in memory and sent by a thread of their own over our own HTTP client, as protobuf.
//!
//! If the collector is slow or gone, spans are dropped and the log says so. Nobody waits for it.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::{Method, Request, Response};
use bytes::Bytes;
use opentelemetry::KeyValue;
use opentelemetry::trace::{Span as _, SpanKind, Status, Tracer as _, TracerProvider as _};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{
    ExporterBuildError, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};
use qiang_app::client::Client;
use qiang_engine::chain;
use tokio::runtime::Handle;

use super::{Ended, Settings};

pub(super) const IS_BUILT: bool = true;

/// A collector that takes longer gets no more.
const PATIENCE: Duration = Duration::from_secs(10);
/// Under this name a collector shows us.
const SERVICE: &str = "qiang";
const PATH: &str = "/v1/traces";

/// Why nothing is sent.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The collector cannot be addressed.
    #[error("spans cannot be sent to {endpoint}, which is `endpoint` in [traces]")]
    Exporter {
        /// Where it is said to be.
        endpoint: String,
        /// Why.
        source: ExporterBuildError,
    },
}

/// Records some of the requests, and sends them.
pub struct Traces {
    tracer: SdkTracer,
    provider: SdkTracerProvider,
}

/// One request under way. In a box, because a connection that waits has room for it.
#[derive(Debug)]
pub struct Span(Box<opentelemetry_sdk::trace::Span>);

impl Traces {
    /// Begins to record, if the settings name a collector. Has to be called on the runtime.
    pub fn start(settings: &Settings) -> Result<Option<Self>, Error> {
        let Some(endpoint) = settings.endpoint.clone() else { return Ok(None) };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Sender { runtime: Handle::current(), fails: AtomicBool::new(false) })
            .with_endpoint(format!("{endpoint}{PATH}"))
            .with_timeout(PATIENCE)
            .build()
            .map_err(|source| Error::Exporter { endpoint, source })?;
        let resource = Resource::builder_empty().with_attributes([
            KeyValue::new("service.name", SERVICE),
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        ]);
        let ratio = f64::from(settings.per_million) / f64::from(super::EVERY);
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_sampler(Sampler::TraceIdRatioBased(ratio))
            .with_resource(resource.build())
            .build();
        Ok(Some(Self { tracer: provider.tracer(SERVICE), provider }))
    }

    /// A request begins.
    pub(crate) fn begin(&self) -> Span {
        let span = self.tracer.span_builder("request").with_kind(SpanKind::Server);
        Span(Box::new(self.tracer.build_with_context(span, &opentelemetry::Context::new())))
    }

    /// Sends what was recorded, and ends.
    pub(crate) async fn stop(&self) {
        let provider = self.provider.clone();
        // It waits for its thread, which waits for the collector.
        let stopped = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(PATIENCE));
        if let Ok(Err(error)) = stopped.await {
            tracing::warn!(%error, "the last spans were not sent");
        }
    }
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Traces")
    }
}

impl Span {
    /// It was answered.
    pub(crate) fn end(mut self, ended: &Ended<'_>) {
        if !self.0.is_recording() {
            return;
        }
        let Ended { method, route, status, .. } = *ended;
        self.0.update_name(format!("{method} {route}"));
        self.0.set_attributes([
            KeyValue::new("http.request.method", method.to_owned()),
            KeyValue::new("http.route", route.to_owned()),
            KeyValue::new("http.response.status_code", i64::from(status.as_u16())),
            KeyValue::new("qiang.outcome", ended.outcome()),
        ]);
        if status.is_server_error() {
            self.0.set_status(Status::error(ended.outcome()));
        }
        self.0.end();
    }
}

/// Sends over our own client. The thread that calls it has no runtime, so ours does it.
#[derive(Debug)]
struct Sender {
    runtime: Handle,
    /// The last batch was not taken, which was said when it began.
    fails: AtomicBool,
}

#[async_trait::async_trait]
impl HttpClient for Sender {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sent = self.runtime.spawn(send(request)).await?;
        let trouble = match &sent {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("it answers {}", answer.status())),
            Err(error) => Some(chain(&**error)),
        };
        match (&trouble, self.fails.swap(trouble.is_some(), Ordering::Relaxed)) {
            (Some(why), false) => tracing::warn!("the collector of traces gets no spans: {why}"),
            (None, true) => tracing::info!("the collector of traces takes spans again"),
            _ => {}
        }
        sent
    }
}

async fn send(request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let (parts, body) = request.into_parts();
    let mut client = Client::connect_url(&parts.uri.to_string(), None).await?;
    client.set_timeout(PATIENCE);
    let headers: Vec<_> =
        parts.headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let answer = client.send(Method::POST, parts.uri.path(), &headers, body).await?;
    let mut response = Response::new(answer.body);
    (*response.status_mut(), *response.headers_mut()) = (answer.status, answer.headers);
    Ok(response)
}
