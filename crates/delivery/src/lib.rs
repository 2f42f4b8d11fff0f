//! Delivery: what was decided, told to the shop's other programs.
//!
//! The domain's one value is [`Delivery`].

pub mod cli;
pub mod dead_letters;
pub mod events;
pub mod feed;
pub mod public;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use axum::extract::FromRef;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use qiang_app::consumer::Progress;
use qiang_app::problem::Code;
use qiang_app::workers::Workers;
use qiang_app::{App, Domain, Measuring, Problems};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// How long the page of metrics waits for the records.
const COUNT_PATIENCE: Duration = Duration::from_secs(1);

/// What the calls of this domain work with; a copy is the same thing.
#[derive(Debug, Clone)]
pub struct Delivery(Arc<Inner>);

/// What delivery needs besides what every domain has.
#[derive(Debug)]
pub struct Inner {
    app: Arc<App>,
    /// How far the feed follows the logs, where there is one.
    feed: Option<Progress>,
    metrics: Metrics,
}

/// What is counted of events.
#[derive(Debug, Default)]
struct Metrics {
    /// Events that are not in the feed yet, by log.
    lag: Family<[(&'static str, String); 1], Gauge<u64, AtomicU64>>,
    waiting: Gauge<u64, AtomicU64>,
    dead: Gauge<u64, AtomicU64>,
}

impl Delivery {
    /// `feed` is how far the consumer of the feed is, if events are kept.
    #[must_use]
    pub fn new(app: Arc<App>, feed: Option<Progress>) -> Self {
        Self(Arc::new(Inner { app, feed, metrics: Metrics::default() }))
    }

    /// How far the feed follows the logs, where there is one.
    #[must_use]
    pub fn feed(&self) -> Option<&Progress> {
        self.feed.as_ref()
    }

    /// An engine that cannot be asked at this moment has no lag.
    async fn look_at_lag(&self) {
        let Some(feed) = &self.feed else { return };
        let ends = self.app.answer(self.app.engine.positions()).await.unwrap_or_default();
        if ends.is_empty() {
            self.metrics.lag.clear();
        }
        for (log, (end, at)) in ends.iter().zip(feed.positions()).enumerate() {
            self.metrics.lag.get_or_create(&[("log", log.to_string())]).set(end.saturating_sub(at));
        }
    }

    /// If the records cannot be read at this moment, the last count stays.
    async fn look_at_retries(&self) {
        let counts = tokio::time::timeout(COUNT_PATIENCE, self.app.store.retry_counts()).await;
        if let Ok(Ok(counts)) = counts {
            self.metrics.waiting.set(counts.waiting);
            self.metrics.dead.set(counts.dead);
        }
    }
}

impl Deref for Delivery {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl FromRef<Delivery> for Arc<App> {
    fn from_ref(delivery: &Delivery) -> Self {
        Arc::clone(&delivery.app)
    }
}

/// What the document says of this domain as a whole.
#[derive(OpenApi)]
#[openapi(tags((name = "delivery", description = "Events for the shop's other programs")))]
struct Description;

impl Domain for Delivery {
    fn routes(&self) -> OpenApiRouter {
        OpenApiRouter::with_openapi(Description::openapi())
            .routes(routes!(events::list))
            .routes(routes!(dead_letters::list))
            .routes(routes!(dead_letters::show))
            .routes(routes!(dead_letters::retry_many))
            .routes(routes!(dead_letters::retry))
            .routes(routes!(dead_letters::discard))
            .with_state(self.clone())
    }

    fn problems(&self) -> Problems {
        &[
            ("list_events", &[Code::EventsDisabled, Code::CursorTooOld]),
            ("list_dead_letters", &[]),
            ("show_dead_letter", &[Code::NoSuchDeadLetter]),
            ("retry_dead_letter", &[Code::NoSuchDeadLetter, Code::NotDead]),
            ("retry_dead_letters", &[]),
            ("discard_dead_letter", &[Code::NoSuchDeadLetter, Code::NotDead, Code::CannotDiscard]),
        ]
    }

    fn register(&self, registry: &mut Registry) {
        let help = "Events not in the feed yet, by log";
        registry.register("event_feed_lag_events", help, self.metrics.lag.clone());
        let help = "Events that could not be recorded and are tried again";
        registry.register("retries_waiting", help, self.metrics.waiting.clone());
        let help = "Events that could not be recorded and wait for a person";
        registry.register("dead_letters", help, self.metrics.dead.clone());
    }

    fn measure(&self) -> Measuring<'_> {
        Box::pin(async {
            self.look_at_lag().await;
            self.look_at_retries().await;
        })
    }

    fn start(&self, workers: &mut Workers) {
        let app = Arc::clone(&self.app);
        workers.every("dead letters", dead_letters::LOOK_EVERY, move || {
            dead_letters::look(Arc::clone(&app))
        });
        if self.app.config.roles.worker {
            let (store, age) = (self.app.store.clone(), self.app.config.delivery.keep_events);
            let age = age.unwrap_or(Duration::ZERO);
            workers.after_pause("event feed", feed::PRUNE_EVERY, move || {
                feed::prune(store.clone(), age)
            });
            let app = Arc::clone(&self.app);
            workers.every("discards", dead_letters::FINISH_EVERY, move || {
                dead_letters::finish_discards(Arc::clone(&app))
            });
        }
    }
}
