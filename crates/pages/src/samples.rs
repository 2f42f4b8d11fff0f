//! The last minutes of a shop, second by second, for the plots of the console: what there was
//! (`GET /admin/samples`) and what comes (`GET /admin/live`).
//!
//! Every process keeps a ring of fixed size. Processes that share an engine tell each other their last
//! seconds through the database, so each of them shows the sum of all. Nothing is counted here that is
//! not counted anyway. A second is written as text once, however many people watch, and who is slow
//! misses seconds rather than having them kept.

mod exchange;
mod reading;
mod ring;

use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use qiang_app::extract::Viewer;
use qiang_app::problem::Problem;
use qiang_app::{Stopping, json_time, schema};
use qiang_core::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use utoipa::{IntoParams, ToSchema};

pub(crate) use exchange::Sampler;

use crate::Pages;
use crate::assets::{Encoding, gzip_fast};

/// The end of the year 9999.
const LAST_MS: i64 = 253_402_300_799_999;
/// A stream ends after this time, and the browser asks for another: whoever was signed out meanwhile
/// does not get one.
const LONGEST_STREAM: Duration = Duration::from_secs(60);
/// How soon a browser asks again when a stream ended.
const RETRY: &str = "retry: 1000\n\n";
/// A proxy in front of us must not collect messages before it passes them on.
const UNBUFFERED: HeaderName = HeaderName::from_static("x-accel-buffering");

/// One second of a shop.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Sample {
    /// When it ended.
    #[serde(with = "json_time")]
    #[schema(value_type = schema::Time)]
    pub at: Timestamp,
    /// How long it was: about 1000, more on a busy machine.
    #[schema(minimum = 0, example = 1000)]
    pub covers_ms: u32,
    /// How many processes are counted in it.
    #[schema(minimum = 1, maximum = 1024, example = 1)]
    pub nodes: u16,
    /// Claims that were granted.
    #[schema(minimum = 0)]
    pub granted: u64,
    /// Claims that had been granted before, asked for again.
    #[schema(minimum = 0)]
    pub replayed: u64,
    /// Claims that came too late.
    #[schema(minimum = 0)]
    pub sold_out: u64,
    /// Claims that were refused for anything else.
    #[schema(minimum = 0)]
    pub refused: u64,
    /// Claims whose outcome is not known, or that were not asked for want of room.
    #[schema(minimum = 0)]
    pub failed: u64,
    /// Half of the claims were answered within so many microseconds, about; null without claims.
    #[schema(minimum = 0)]
    pub p50_us: Option<u64>,
    /// 99 of 100 claims were; null without claims.
    #[schema(minimum = 0)]
    pub p99_us: Option<u64>,
    /// 999 of 1000 claims were; null without claims.
    #[schema(minimum = 0)]
    pub p999_us: Option<u64>,
    /// Memory of all processes.
    #[schema(minimum = 0)]
    pub memory_bytes: u64,
    /// Processor time of all processes, in hundredths of one core.
    #[schema(minimum = 0)]
    pub processor_percent: f64,
    /// Events that are decided and not in the records yet; null if the engine did not say in time.
    #[schema(minimum = 0)]
    pub lag_events: Option<u64>,
    /// What is left of the sales that run, the newest 8.
    #[schema(max_items = 8)]
    pub sales: Vec<Stock>,
}

/// Units of a sale at the end of a second.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Stock {
    /// The sale.
    #[schema(value_type = schema::SaleId)]
    pub sale_id: String,
    /// Units left.
    #[schema(minimum = 0)]
    pub available: u32,
    /// Units held and not ordered.
    #[schema(minimum = 0)]
    pub held: u32,
    /// Units ordered and not paid.
    #[schema(minimum = 0)]
    pub ordered: u32,
    /// Units paid.
    #[schema(minimum = 0)]
    pub paid: u32,
}

/// The last minutes of a shop.
#[derive(Debug, Serialize, ToSchema)]
pub struct SampleList {
    /// Oldest first, at most 600.
    #[schema(max_items = 600)]
    pub samples: Vec<Sample>,
}

/// From when on.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SampleQuery {
    /// Only samples later than this, in milliseconds since 1970.
    #[param(minimum = 0, maximum = 253402300799999_i64, example = 1767323045678_i64)]
    after: Option<i64>,
}

/// Show the last minutes
///
/// One sample for each of the last 600 seconds, over all processes that share the engine. The process
/// that answers knows them since its own start.
#[utoipa::path(get, path = "/api/v1/admin/samples", operation_id = "list_samples", tag = "operations", security(("token" = ["viewer"])),
    params(SampleQuery),
    responses((status = 200, description = "The samples", body = SampleList)))]
pub async fn list(
    State(pages): State<Pages>,
    _: Viewer,
    headers: HeaderMap,
    query: Result<Query<SampleQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, Problem> {
    let Query(SampleQuery { after }) = query.map_err(Problem::from)?;
    let after = after.unwrap_or(0);
    if !(0..=LAST_MS).contains(&after) {
        let rule = format_args!("must be from 0 to {LAST_MS}");
        return Err(Problem::invalid_field("after", rule));
    }
    let samples = pages.sampler.after(Timestamp::from_millis(after));
    let plain = axum::Json(SampleList { samples });
    // Ten minutes are a few hundred kilobytes, and a tenth of that when packed.
    let mut response = match Encoding::of(&headers) {
        Encoding::Plain => plain.into_response(),
        Encoding::Gzip => {
            let json = serde_json::to_vec(&plain.0).expect("samples are JSON");
            let mut response = Response::new(Body::from(gzip_fast(&json)));
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(CONTENT_TYPE, json);
            Encoding::Gzip.say(response.headers_mut());
            response
        }
    };
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Watch the shop
///
/// Server-sent events: one message with a sample, as in the list of samples, for each second from now
/// on. The stream ends after a minute; a browser asks for another by itself.
#[utoipa::path(get, path = "/api/v1/admin/live", operation_id = "watch_live", tag = "operations", security(("token" = ["viewer"])),
    responses((status = 200, description = "Samples as they come", body = String, content_type = "text/event-stream")))]
pub async fn watch_live(State(pages): State<Pages>, _: Viewer, stopping: Stopping) -> Response {
    let watching = Watching {
        news: pages.sampler.watch(),
        stopping,
        end: Box::pin(tokio::time::sleep(LONGEST_STREAM)),
        first: Some(Bytes::from_static(RETRY.as_bytes())),
    };
    let messages = stream::unfold(watching, |mut watching| async {
        let message = watching.next().await?;
        Some((Ok::<_, std::convert::Infallible>(message), watching))
    });
    let headers =
        [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store"), (UNBUFFERED, "no")];
    (headers, Body::from_stream(messages)).into_response()
}

/// Somebody who watches.
struct Watching {
    news: watch::Receiver<Bytes>,
    stopping: Stopping,
    end: Pin<Box<tokio::time::Sleep>>,
    first: Option<Bytes>,
}

impl Watching {
    /// The next message; `None` ends the stream.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        tokio::select! {
            () = self.stopping.0.cancelled() => None,
            () = &mut self.end => None,
            changed = self.news.changed() => {
                changed.ok()?;
                Some(self.news.borrow_and_update().clone())
            }
        }
    }
}
