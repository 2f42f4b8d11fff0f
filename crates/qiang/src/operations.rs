//! What operators look at: health, nodes, and metrics of the engine, the logs and the workers.

pub mod actions;
pub mod demo;
pub mod health;
mod metrics;
pub mod nodes;
pub mod settings;

use std::sync::Arc;

use prometheus_client::registry::Registry;
use qiang_app::probes;
use qiang_app::problem::Code;
use qiang_app::workers::Workers;
use qiang_app::{App, Domain, Measuring, Problems};
use qiang_engine::Engine;
use qiang_engine::redis::Prober;
use qiang_recovery::epochs;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::demo::Demo;
use self::metrics::{Logs, Page};
use self::settings::Settings;
use crate::domains::Domains;
use crate::tls::{self, Certificates};

/// Health checks and metrics, which every door answers.
pub(crate) fn health(domains: &Arc<Domains>) -> OpenApiRouter {
    let checks = OpenApiRouter::new()
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .with_state(Arc::clone(&domains.sales.app));
    let page = Page::new(Arc::clone(domains));
    OpenApiRouter::new().routes(routes!(metrics::show)).with_state(page).merge(checks)
}

/// The domain of those who run a server.
#[derive(Debug, Clone)]
pub(crate) struct Operations {
    app: Arc<App>,
    demo: Demo,
    settings: Settings,
    keep: actions::Settings,
    logs: Logs,
    certificates: Certificates,
}

impl Operations {
    pub(crate) fn new(
        app: Arc<App>,
        demo: Demo,
        settings: Settings,
        keep: actions::Settings,
        certificates: Certificates,
    ) -> Self {
        Self { app, demo, settings, keep, logs: Logs::default(), certificates }
    }
}

impl Domain for Operations {
    fn routes(&self) -> OpenApiRouter {
        let nodes = OpenApiRouter::new()
            .routes(routes!(nodes::list))
            .routes(routes!(actions::list))
            .with_state(Arc::clone(&self.app));
        let demo = OpenApiRouter::new().routes(routes!(demo::open)).with_state(self.demo.clone());
        let settings =
            OpenApiRouter::new().routes(routes!(settings::list)).with_state(self.settings.clone());
        nodes.merge(demo).merge(settings)
    }

    fn problems(&self) -> Problems {
        &[
            ("list_nodes", &[]),
            ("list_actions", &[]),
            ("list_settings", &[]),
            ("open_demo", &[Code::DemoDisabled, Code::CrossSite, Code::RepeatedHeader]),
            ("show_metrics", &[]),
            ("show_health", &[]),
            ("show_readiness", &[Code::InvalidField]),
        ]
    }

    fn register(&self, registry: &mut Registry) {
        self.app.metrics.register(registry);
        self.logs.register(registry);
        registry.register_collector(Box::new(metrics::Live(Arc::clone(&self.app))));
        registry.register_collector(Box::new(metrics::Tls(self.certificates.clone())));
    }

    fn measure(&self) -> Measuring<'_> {
        Box::pin(self.logs.look_at(&self.app))
    }

    fn start(&self, workers: &mut Workers) {
        let app = Arc::clone(&self.app);
        if !self.certificates.is_empty() {
            let (certificates, app) = (self.certificates.clone(), Arc::clone(&app));
            workers.every("certificates", tls::LOOK_EVERY, move || {
                certificates.clone().look(app.now())
            });
        }
        if app.config.roles.worker {
            let (app, days) = (Arc::clone(&app), self.keep.keep_days);
            workers.every("old actions", actions::FORGET_EVERY, move || {
                actions::forget(Arc::clone(&app), days)
            });
        }
        if !app.engine.is_shared() {
            let app = Arc::clone(&app);
            workers.every("database probe", probes::DATABASE_EVERY, move || {
                probes::look_at_database(Arc::clone(&app))
            });
        }
        if let Engine::Redis(engine) = &app.engine {
            let prober = Arc::new(tokio::sync::Mutex::new(Prober::new(engine.clone())));
            let probed = Arc::clone(&app);
            workers.every("redis probe", probes::ENGINE_EVERY, move || {
                probes::look_at_redis(Arc::clone(&probed), Arc::clone(&prober))
            });
            let (watched, store) = (engine.clone(), app.store.clone());
            workers.every("redis epochs", epochs::LOOK_EVERY, move || {
                epochs::watch(watched.clone(), store.clone())
            });
            if app.config.roles.worker {
                let (engine, mut round) = (engine.clone(), 0_u32);
                workers.every("redis deadlines", epochs::TEND_EVERY, move || {
                    round = round.wrapping_add(1);
                    epochs::tend(engine.clone(), round)
                });
            }
        }
    }
}
