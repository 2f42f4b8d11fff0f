//! Sales: opened, claimed, ordered, paid, given back, and recorded.
//!
//! The domain's one value is [`Sales`]. The doors of the product claim through it, too.

mod balance;
pub mod checkout;
pub mod claims;
pub mod cli;
pub mod current;
mod metrics;
pub mod orders;
mod outcomes;
pub mod page;
pub mod payments;
mod problems;
pub mod records;
pub mod report;
pub mod reviews;
pub mod sale;
pub mod search;
mod settings;
pub mod settling;
pub mod signature;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use axum::extract::FromRef;
use prometheus_client::registry::Registry;
use qiang_app::secrets::Secrets;
use qiang_app::workers::Workers;
use qiang_app::{App, Domain, Measuring, Problems, schema};
use qiang_core::PoolId;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::metrics::Metrics;
use self::records::{Records, Rules, retrying};

pub use settings::Settings;

/// How often it is looked for payments from balances that nobody has finished.
const FINISH_EVERY: std::time::Duration = std::time::Duration::from_secs(1);

/// What the calls of this domain work with; a copy is the same thing.
#[derive(Debug, Clone)]
pub struct Sales(Arc<Shop>);

/// Sales, and what they need besides what every domain has.
#[derive(Debug)]
pub struct Shop {
    /// What every domain works with.
    pub app: Arc<App>,
    settings: Settings,
    /// Who says that money arrived.
    pub callbacks: signature::Key,
    metrics: Metrics,
    /// Writes what became of the claims of each sale.
    outcomes: outcomes::Writer,
    /// The current sale; 0 is none.
    current: AtomicU64,
}

impl Sales {
    /// Reads which sale is the current one.
    pub async fn open(
        app: Arc<App>,
        settings: Settings,
        secrets: &Secrets,
    ) -> Result<Self, qiang_store::Error> {
        let current = current::stored(&app.store).await?;
        Ok(Self(Arc::new(Shop {
            callbacks: signature::Key::new(&secrets.callback_key),
            metrics: Metrics::default(),
            outcomes: outcomes::Writer::default(),
            current: AtomicU64::new(current.map_or(0, PoolId::get)),
            settings,
            app,
        })))
    }
}

impl Deref for Sales {
    type Target = Shop;

    fn deref(&self) -> &Shop {
        &self.0
    }
}

impl FromRef<Sales> for Arc<App> {
    fn from_ref(sales: &Sales) -> Self {
        Arc::clone(&sales.app)
    }
}

/// What the document says of this domain as a whole.
#[derive(OpenApi)]
#[openapi(
    components(schemas(schema::SignedAt, schema::Signature, schema::Language)),
    tags(
        (name = "sales", description = "Open, look at, restock, close and clear sales"),
        (name = "claims", description = "Take units, order them, give them up"),
        (name = "orders", description = "Orders, and paying them from the balance or in the sandbox"),
        (name = "payments", description = "Money that arrives, and money that goes back"),
        (name = "current sale", description = "For shops that run one sale at a time"),
    ),
)]
struct Description;

impl Domain for Sales {
    fn routes(&self) -> OpenApiRouter {
        OpenApiRouter::with_openapi(Description::openapi())
            .routes(routes!(sale::create, sale::list))
            .routes(routes!(sale::show, sale::clear))
            .routes(routes!(sale::close))
            .routes(routes!(sale::restock))
            .routes(routes!(report::show))
            .routes(routes!(page::show, page::put))
            .routes(routes!(page::show_image, page::put_image, page::remove_image))
            .routes(routes!(page::list_images))
            .routes(routes!(claims::create))
            .routes(routes!(claims::create_for_voucher))
            .routes(routes!(claims::show, claims::give_up))
            .routes(routes!(claims::order))
            .routes(routes!(current::show, current::put))
            .routes(routes!(current::claim))
            .routes(routes!(orders::list))
            .routes(routes!(orders::show))
            .routes(routes!(orders::cancel))
            .routes(routes!(payments::pay))
            .routes(routes!(payments::callback))
            .routes(routes!(checkout::begin))
            .routes(routes!(checkout::refunds))
            .routes(routes!(payments::list_refunds))
            .routes(routes!(payments::settle_refund))
            .routes(routes!(settling::settle))
            .routes(routes!(search::claims))
            .routes(routes!(search::orders))
            .routes(routes!(payments::refund_order))
            .routes(routes!(reviews::list))
            .routes(routes!(reviews::end))
            .with_state(self.clone())
    }

    fn problems(&self) -> Problems {
        problems::PROBLEMS
    }

    fn register(&self, registry: &mut Registry) {
        self.metrics.register(registry);
        let help = "Claims that no report counts, because too many sales had claims at once";
        registry.register("claims_uncounted", help, self.app.outcomes.uncounted.clone());
    }

    fn measure(&self) -> Measuring<'_> {
        Box::pin(self.metrics.look_at(&self.app.store))
    }

    fn start(&self, workers: &mut Workers) {
        let (every_second, at_end) = (self.clone(), self.clone());
        workers.every("outcomes", outcomes::WRITE_EVERY, move || {
            let sales = every_second.clone();
            async move { sales.outcomes.write(&sales.app).await }
        });
        workers.at_end(outcomes::LAST_PATIENCE, move || async move {
            if let Err(error) = at_end.outcomes.write(&at_end.app).await {
                tracing::warn!("reports lack the last answers: {}", qiang_engine::chain(&*error));
            }
        });
        if self.app.config.roles.worker || !self.app.engine.is_shared() {
            let sales = self.clone();
            workers.every("balance payments", FINISH_EVERY, move || {
                sales.clone().finish_balance_payments()
            });
        }
        if self.app.engine.is_shared() {
            let sales = self.clone();
            workers.every("current sale", current::FOLLOW_EVERY, move || {
                sales.clone().follow_current()
            });
        }
        if self.app.config.roles.worker {
            let delivery = &self.app.config.delivery;
            let (rules, keep) = (Rules::of(delivery), delivery.keep_dead_letters);
            let records = Records::new(&self.app.engine, &self.app.store, rules);
            let mut round = 0_u32;
            workers.every("retries", retrying::LOOK_EVERY, move || {
                round = round.wrapping_add(1);
                records.clone().turn(round, keep)
            });
        }
    }
}
