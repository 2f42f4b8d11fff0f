//! Accounts and red packets: money that users have, and money they give away in portions.
//!
//! Money moves by double entry in SQL ([`qiang_store::accounts`]). The domain's one value is [`Accounts`].

pub mod account;
pub mod cli;
pub mod holds;
mod metrics;
mod money;
pub mod packets;
mod problems;
mod settings;
pub mod transfers;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRef;
use prometheus_client::registry::Registry;
use qiang_app::jobs::Jobs;
use qiang_app::workers::{Turn, Workers};
use qiang_app::{App, Domain, Problems};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::metrics::Metrics;
use self::packets::Remembered;

pub use settings::Settings;

/// How often it is looked for holds whose time has come.
const HOLDS_EVERY: Duration = Duration::from_secs(1);

/// How often all accounts are added up, which takes longer the more there are.
const ADD_UP_EVERY: Duration = Duration::from_secs(60);

/// How often it is looked for packets whose time is over.
const RECYCLE_EVERY: Duration = Duration::from_millis(500);

/// What the calls of this domain work with; a copy is the same thing.
#[derive(Debug, Clone)]
pub struct Accounts(Arc<Bank>);

/// Accounts, and what they need besides what every domain has.
#[derive(Debug)]
pub struct Bank {
    /// What every domain works with.
    pub app: Arc<App>,
    settings: Settings,
    metrics: Metrics,
    remembered: Remembered,
}

impl Accounts {
    #[must_use]
    pub fn new(app: Arc<App>, settings: Settings) -> Self {
        Self(Arc::new(Bank {
            app,
            settings,
            metrics: Metrics::default(),
            remembered: Remembered::default(),
        }))
    }

    /// Adds all accounts up, so that a metric tells.
    async fn add_up(self) -> Turn {
        let sums = self.app.store.sums().await?;
        self.metrics.added_up(&sums);
        if !sums.add_up() {
            tracing::error!(?sums, "the accounts do not add up");
        }
        Ok(())
    }

    /// Whether this process does work of the background.
    fn is_worker(&self) -> bool {
        self.app.config.roles.worker || !self.app.engine.is_shared()
    }
}

impl Deref for Accounts {
    type Target = Bank;

    fn deref(&self) -> &Bank {
        &self.0
    }
}

impl FromRef<Accounts> for Arc<App> {
    fn from_ref(accounts: &Accounts) -> Self {
        Arc::clone(&accounts.app)
    }
}

/// What the document says of this domain as a whole.
#[derive(OpenApi)]
#[openapi(
    components(schemas(qiang_app::schema::PacketBox, qiang_app::schema::PacketCursor)),
    tags(
        (name = "accounts", description = "Balances, statements, transfers and holds"),
        (name = "packets", description = "Red packets: send, grab, look"),
    )
)]
struct Description;

impl Domain for Accounts {
    fn routes(&self) -> OpenApiRouter {
        OpenApiRouter::with_openapi(Description::openapi())
            .routes(routes!(account::show_mine))
            .routes(routes!(account::list_my_entries))
            .routes(routes!(account::show))
            .routes(routes!(account::list_entries))
            .routes(routes!(transfers::create))
            .routes(routes!(transfers::top_up))
            .routes(routes!(transfers::withdraw))
            .routes(routes!(holds::create))
            .routes(routes!(holds::post))
            .routes(routes!(holds::void))
            .routes(routes!(packets::send::create, packets::lists::list))
            .routes(routes!(packets::send::draw_seed))
            .routes(routes!(packets::view::show))
            .routes(routes!(packets::grab::create))
            .with_state(self.clone())
    }

    fn problems(&self) -> Problems {
        problems::PROBLEMS
    }

    fn register(&self, registry: &mut Registry) {
        self.metrics.register(registry);
    }

    fn start(&self, workers: &mut Workers) {
        if !self.is_worker() {
            return;
        }
        let accounts = self.clone();
        workers.every("holds", HOLDS_EVERY, move || accounts.clone().expire_holds());
        let accounts = self.clone();
        workers.every("accounts", ADD_UP_EVERY, move || accounts.clone().add_up());
        let accounts = self.clone();
        workers.every("packets", RECYCLE_EVERY, move || accounts.clone().recycle());
    }

    fn add_jobs(&self, jobs: &mut Jobs) {
        self.add_open_job(jobs);
    }
}
