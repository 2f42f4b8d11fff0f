//! The pages: a storefront to buy from, a console to run a sale from, and the sign-in of both.
//!
//! A page is a shell of HTML and a script that asks the public API; nothing here decides anything, and
//! nothing a page can do is missing from the API. Scripts and styles are part of the binary.

mod assets;
mod routes;
pub mod samples;
pub mod session;
mod settings;
mod shell;
pub mod time;
mod words;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRef;
use qiang_app::problem::{Code, Problem};
use qiang_app::session as cookies;
use qiang_app::token::{Principal, Role};
use qiang_app::workers::Workers;
use qiang_app::{App, Domain, Problems};
use qiang_core::UserId;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub use settings::{Currency, Settings};

/// How often sessions that are long over are forgotten.
const FORGET_EVERY: Duration = Duration::from_secs(3_600);
/// Who signs in with the link that a server prints.
const CONSOLE_USER: &str = "admin";

/// What the calls of this domain work with; a copy is the same thing.
#[derive(Debug, Clone)]
pub struct Pages(Arc<Shared>);

/// The pages, and what they need besides what every domain has.
#[derive(Debug)]
pub struct Shared {
    /// What every domain works with.
    pub app: Arc<App>,
    settings: Settings,
    payments: Payments,
    /// The last minutes, for the plots of the console.
    sampler: Arc<samples::Sampler>,
}

/// How orders are paid on the pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payments {
    /// Without money.
    Sandbox,
    /// On the page of a payment provider.
    Checkout,
    /// In some other way, which the provider tells of.
    Elsewhere,
}

impl Payments {
    const fn word(self) -> Option<&'static str> {
        match self {
            Self::Sandbox => Some("sandbox"),
            Self::Checkout => Some("checkout"),
            Self::Elsewhere => None,
        }
    }
}

impl Pages {
    /// Pages that know how orders are paid.
    #[must_use]
    pub fn new(app: Arc<App>, settings: Settings, payments: Payments) -> Self {
        let sampler = Arc::new(samples::Sampler::new(Arc::clone(&app)));
        Self(Arc::new(Shared { app, settings, payments, sampler }))
    }

    /// The secret of a link that signs an admin in to the console, once.
    pub fn console_link(&self) -> Result<String, Problem> {
        let now = self.app.now();
        let user = UserId::new(CONSOLE_USER).map_err(|_| Problem::new(Code::Internal))?;
        let expires_at = now.plus_millis(cookies::LINK_TTL_MS);
        let who = Principal { user, role: Role::Admin, identity: None, expires_at };
        Ok(self.app.sessions.link(&who, &cookies::new_id()?, now))
    }
}

impl Deref for Pages {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl FromRef<Pages> for Arc<App> {
    fn from_ref(pages: &Pages) -> Self {
        Arc::clone(&pages.app)
    }
}

/// What the document says of this domain as a whole.
#[derive(OpenApi)]
#[openapi(tags((name = "session", description = "Sign-in of the pages, and the server's clock")))]
struct Description;

impl Domain for Pages {
    fn routes(&self) -> OpenApiRouter {
        let calls = OpenApiRouter::with_openapi(Description::openapi())
            .routes(routes!(time::show))
            .routes(routes!(session::show, session::begin, session::end))
            .routes(routes!(session::list))
            .routes(routes!(session::end_other))
            .routes(routes!(samples::list))
            .routes(routes!(samples::watch_live))
            .with_state(self.clone());
        calls.merge(OpenApiRouter::from(routes::all(self)))
    }

    fn problems(&self) -> Problems {
        &[
            ("show_time", &[]),
            ("show_session", &[Code::RepeatedHeader]),
            (
                "begin_session",
                &[
                    Code::Unauthenticated,
                    Code::TokenExpired,
                    Code::SignInDisabled,
                    Code::CrossSite,
                    Code::RepeatedHeader,
                ],
            ),
            ("end_session", &[Code::CrossSite, Code::RepeatedHeader]),
            ("list_sessions", &[]),
            ("end_other_session", &[Code::NoSuchSession]),
            ("list_samples", &[]),
            ("watch_live", &[]),
        ]
    }

    fn start(&self, workers: &mut Workers) {
        self.sampler.start(workers);
        if self.app.config.roles.worker {
            let app = Arc::clone(&self.app);
            workers.every("old sessions", FORGET_EVERY, move || {
                let app = Arc::clone(&app);
                async move { Ok(app.store.forget_sessions(app.now()).await?) }
            });
        }
    }
}
