//! Who did what: every change that an admin makes over HTTP leaves a row, whatever became of it.
//!
//! The door hangs an empty [`Mark`] on every request that may change something. Whoever finds out that
//! an admin asks (the extractors of [`crate::extract`]) fills it, so handlers need not know. When the
//! answer is there, or when nobody waits for it any more, the door writes what the mark says.
//!
//! Bodies and headers are not kept, and neither are claims: taking units is what buyers do, and nothing
//! may stand in its way. A database that is away holds up no change: then the row is a line in the log,
//! and `qiang_actions_unwritten_total` counts it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::extract::{FromRequestParts, MatchedPath, RawPathParams};
use axum::http::header::LOCATION;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Request};
use axum::response::Response;
use qiang_core::{Timestamp, UserId};
use qiang_store::Action;

use crate::app::App;
use crate::extract::IDEMPOTENCY_KEY;
use crate::problem::Problem;
use crate::token::{Principal, Role};

/// How long an answer waits for its row. Writing goes on behind it.
const PATIENCE: Duration = Duration::from_secs(1);
/// The most characters of what varies in an address, of an address, of a request id, and of a note.
const MAX_THING: usize = 200;
const MAX_ROUTE: usize = 255;
const MAX_REQUEST: usize = 128;
const MAX_NOTE: usize = 200;

/// What is known of a change while it is made.
#[derive(Debug, Default)]
pub struct Mark {
    done_by: OnceLock<Doer>,
    note: OnceLock<String>,
}

/// Who makes a change, and which.
#[derive(Debug)]
struct Doer {
    user: UserId,
    role: Role,
    method: String,
    route: String,
    thing: Option<String>,
    request: Option<String>,
}

/// For handlers that have more to tell about a change than its address says.
#[derive(Debug)]
pub struct Noting(Option<Arc<Mark>>);

impl Noting {
    /// Keeps why the change was made, once.
    pub fn note(&self, why: &str) {
        if let Some(mark) = &self.0 {
            let _first = mark.note.set(cut(why, MAX_NOTE));
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Noting {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self(parts.extensions.get::<Arc<Mark>>().cloned()))
    }
}

/// Fills the mark of a request, if it has one and an admin asks.
pub(crate) async fn mark(parts: &mut Parts, who: &Principal) {
    if who.role != Role::Admin {
        return;
    }
    let Some(mark) = parts.extensions.get::<Arc<Mark>>().cloned() else { return };
    let route = parts.extensions.get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let thing = match RawPathParams::from_request_parts(parts, &()).await {
        Ok(varies) => varies.iter().map(|(_, value)| value).collect::<Vec<_>>().join("/"),
        Err(_) => String::new(),
    };
    let _first = mark.done_by.set(Doer {
        user: who.user.clone(),
        role: who.role,
        method: parts.method.as_str().to_owned(),
        route: cut(&route.unwrap_or_else(|| parts.uri.path().to_owned()), MAX_ROUTE),
        thing: (!thing.is_empty()).then(|| cut(&thing, MAX_THING)),
        request: request_id(&parts.headers),
    });
}

fn request_id(headers: &HeaderMap) -> Option<String> {
    headers.get(IDEMPOTENCY_KEY)?.to_str().ok().map(|key| cut(key, MAX_REQUEST))
}

/// A change under way. Dropped before it ended, nobody waits for its answer; what it did is noted all
/// the same.
#[derive(Debug)]
pub struct Watched {
    app: Arc<App>,
    mark: Arc<Mark>,
    at: Timestamp,
    ended: bool,
}

impl Watched {
    /// Hangs a mark on a request that may change something, unless it claims.
    pub fn begin<B>(app: &Arc<App>, request: &mut Request<B>) -> Option<Self> {
        let path = request.uri().path();
        let is_claim = path.ends_with("/claims") || path.starts_with("/voucher-order/");
        if request.method().is_safe() || is_claim {
            return None;
        }
        let mark = Arc::new(Mark::default());
        request.extensions_mut().insert(Arc::clone(&mark));
        Some(Self { at: app.now(), app: Arc::clone(app), mark, ended: false })
    }

    /// Notes the change with its answer. Done when the row is written, or after a moment.
    pub fn end(mut self, answer: &Response) -> impl Future<Output = ()> + Send + use<> {
        self.ended = true;
        let written = self.action().map(|action| {
            let action = answered(action, answer);
            tokio::spawn(write(Arc::clone(&self.app), action))
        });
        async move {
            if let Some(written) = written {
                // Whoever is late has said so in the log, or will.
                let _late = tokio::time::timeout(PATIENCE, written).await;
            }
        }
    }

    fn action(&self) -> Option<Action> {
        let doer = self.mark.done_by.get()?;
        Some(Action {
            id: 0,
            at: self.at,
            user: doer.user.clone(),
            role: doer.role.as_str().to_owned(),
            method: doer.method.clone(),
            route: doer.route.clone(),
            thing: doer.thing.clone(),
            status: None,
            code: None,
            request: doer.request.clone(),
            note: self.mark.note.get().cloned(),
        })
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        if let (Some(action), Ok(runtime)) = (self.action(), tokio::runtime::Handle::try_current())
        {
            runtime.spawn(write(Arc::clone(&self.app), action));
        }
    }
}

/// An action, with what its answer says.
fn answered(mut action: Action, answer: &Response) -> Action {
    action.status = Some(answer.status().as_u16());
    let problem = answer.extensions().get::<Problem>();
    action.code = problem.map(|problem| problem.code().as_str().to_owned());
    if action.thing.is_none() {
        // What was made has a name only now.
        let made = answer.headers().get(LOCATION).and_then(|made| made.to_str().ok());
        let made = made.and_then(|made| made.rsplit('/').next());
        action.thing = made.map(|made| cut(made, MAX_THING));
    }
    action
}

/// Writes an action; if that is not possible, to the log.
async fn write(app: Arc<App>, action: Action) {
    let written = match app.next_id() {
        Ok(id) => {
            let action = Action { id: id.get(), ..action.clone() };
            app.store.add_action(&action).await.map_err(|error| qiang_engine::chain(&error))
        }
        Err(problem) => Err(problem.sentence().to_owned()),
    };
    if let Err(error) = written {
        app.metrics.actions_unwritten.inc();
        let Action { user, role, method, route, thing, status, note, .. } = action;
        tracing::warn!(
            %user, role, method, route, thing, status, note, error,
            "an action could not be written"
        );
    }
}

/// The first characters of a text, without those that no database takes and nobody can read.
fn cut(text: &str, max: usize) -> String {
    text.chars().filter(|char| !char.is_control()).take(max).collect()
}
