//! Signing in and out of the pages, and the list of who is signed in.
//!
//! Whoever signs in gets a cookie that scripts cannot read. It is renewed here while its session, a
//! row, is good; ending the row ends the cookie within minutes everywhere, and at once for whoever runs
//! the shop.

use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, SET_COOKIE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use qiang_app::extract::{Admin, Json, Nothing, OptionalJson, Path, Shared, Viewer, shown};
use qiang_app::problem::{Code, Problem};
use qiang_app::session::{self, COOKIE, SECURE_COOKIE, Shown};
use qiang_app::token::{Principal, Role};
use qiang_app::{App, Origin, json_time, schema};
use qiang_core::{Timestamp, UserId};
use qiang_store::{Session, SignIn};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Sessions that are listed at once.
const PAGE: u32 = 200;
/// What a page shows of a session is of this moment.
const UNCACHED: (HeaderName, &str) = (CACHE_CONTROL, "no-store");

/// How to sign in: one of these.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "user_id": "ann" }))]
pub struct NewSession {
    /// A token of the shop. The session ends no later than the token.
    #[schema(max_length = 2048)]
    token: Option<String>,
    /// Behind the `#link=` of the address that a server prints at its start; good once.
    #[schema(max_length = 2048)]
    link: Option<String>,
    /// Any name, as a buyer: on a machine of one's own only (`[auth] sandbox`).
    #[schema(value_type = Option<schema::UserId>)]
    user_id: Option<String>,
}

/// Who is signed in.
#[derive(Debug, Serialize, ToSchema)]
pub struct SessionView {
    /// Whether anybody is.
    pub signed_in: bool,
    /// The user who is signed in.
    #[schema(value_type = Option<schema::UserId>)]
    pub user_id: Option<String>,
    /// What they may do.
    #[schema(value_type = Option<schema::Role>)]
    pub role: Option<&'static str>,
    /// When they have to sign in again.
    #[serde(with = "json_time::option")]
    #[schema(value_type = Option<schema::Time>)]
    pub expires_at: Option<Timestamp>,
    /// The server's clock, for countdowns.
    #[serde(with = "json_time")]
    #[schema(value_type = schema::Time)]
    pub server_time: Timestamp,
}

/// One session, for those who run the shop.
#[derive(Debug, Serialize, ToSchema)]
pub struct SessionRow {
    /// Names it.
    #[schema(value_type = schema::SessionId)]
    pub session_id: String,
    /// The user whose session it is.
    #[schema(value_type = schema::UserId)]
    pub user_id: String,
    /// What they may do.
    #[schema(value_type = schema::Role)]
    pub role: &'static str,
    /// How they signed in.
    #[schema(value_type = schema::SignIn)]
    pub how: &'static str,
    /// Since when.
    #[serde(with = "json_time")]
    #[schema(value_type = schema::Time)]
    pub created_at: Timestamp,
    /// Until when, at most.
    #[serde(with = "json_time")]
    #[schema(value_type = schema::Time)]
    pub expires_at: Timestamp,
}

/// Who is signed in.
#[derive(Debug, Serialize, ToSchema)]
pub struct SessionList {
    /// Newest first, at most 200.
    pub sessions: Vec<SessionRow>,
}

impl SessionView {
    fn nobody(now: Timestamp) -> Self {
        Self { signed_in: false, user_id: None, role: None, expires_at: None, server_time: now }
    }

    fn of(session: &Session, now: Timestamp) -> Self {
        let who = session::principal(session);
        Self {
            signed_in: true,
            user_id: Some(who.user.to_string()),
            role: Some(who.role.as_str()),
            expires_at: Some(who.expires_at),
            server_time: now,
        }
    }
}

impl From<&Session> for SessionRow {
    fn from(session: &Session) -> Self {
        Self {
            session_id: session.id.clone(),
            user_id: session.user.to_string(),
            role: session::principal(session).role.as_str(),
            how: session.how.as_str(),
            created_at: session.created_at,
            expires_at: session.expires_at,
        }
    }
}

/// Show who is signed in
///
/// By the cookie of the pages, which is renewed. Nobody being signed in is an answer, too.
#[utoipa::path(get, path = "/api/v1/session", operation_id = "show_session", tag = "session",
    responses((status = 200, description = "Who is signed in", body = SessionView)))]
pub async fn show(State(app): Shared, headers: HeaderMap) -> Result<Response, Problem> {
    let (shown, now) = (shown(&headers)?, app.now());
    let Some(cookie) = shown.cookie else {
        return Ok(([UNCACHED], axum::Json(SessionView::nobody(now))).into_response());
    };
    match signed_in(&app, cookie, now).await? {
        Some(session) => {
            let kept = kept(&app, &session, now)?;
            Ok((kept, [UNCACHED], axum::Json(SessionView::of(&session, now))).into_response())
        }
        None => Ok((gone(&app), [UNCACHED], axum::Json(SessionView::nobody(now))).into_response()),
    }
}

/// Sign in
///
/// With a token of the shop, with the link that a server prints at its start, or, on a machine of one's
/// own, by name. The answer sets a cookie that scripts cannot read.
#[utoipa::path(post, path = "/api/v1/session", operation_id = "begin_session", tag = "session",
    request_body = NewSession,
    responses((status = 201, description = "Signed in", body = SessionView, headers(("Set-Cookie", description = "The cookie")))))]
pub async fn begin(
    State(app): Shared,
    origin: Origin,
    headers: HeaderMap,
    Json(new): Json<NewSession>,
) -> Result<Response, Problem> {
    let shown = shown(&headers)?;
    // A program says nothing about pages; a browser does, and then it must be one of ours.
    if shown.fetch_site.is_some() || shown.origin.is_some() {
        app.check_page(&shown)?;
    }
    let now = app.now();
    let until = now.plus_millis(ttl_ms(&app));
    let session = match new {
        NewSession { token: Some(token), link: None, user_id: None } => {
            let who = app.tokens.authenticate(Some(token.as_bytes()), now)?;
            let expires_at = who.expires_at.min(until);
            let who = Principal { expires_at, ..who };
            session::begin(session::new_id()?, who, SignIn::Token, now)
        }
        NewSession { token: None, link: Some(link), user_id: None } => {
            let link = app.sessions.open_link(link.trim(), now)?;
            let who = Principal { expires_at: until, ..link.who };
            session::begin(link.id, who, SignIn::Link, now)
        }
        NewSession { token: None, link: None, user_id: Some(user) } => {
            if !(app.config.auth.sandbox && session::is_of_this_machine(&origin, &headers)) {
                return Err(Problem::new(Code::SignInDisabled));
            }
            let user = UserId::new(&user)
                .map_err(|error| Problem::invalid_field("user_id", format_args!("{error}")))?;
            let who = Principal { user, role: Role::Buyer, identity: None, expires_at: until };
            session::begin(session::new_id()?, who, SignIn::Sandbox, now)
        }
        _ => {
            let rule = "must be given, or `link`, or `user_id`, and only one of them";
            return Err(Problem::invalid_field("token", rule));
        }
    };
    if !app.store.add_session(&session).await? {
        let detail = "this link was used before; a server prints a new one at its start";
        return Err(Problem::new(Code::Unauthenticated).detail(detail));
    }
    let view = axum::Json(SessionView::of(&session, now));
    Ok((StatusCode::CREATED, kept(&app, &session, now)?, [UNCACHED], view).into_response())
}

/// Sign out
///
/// Ends the session of the cookie. Nobody being signed in is fine, too.
#[utoipa::path(delete, path = "/api/v1/session", operation_id = "end_session", tag = "session",
    responses((status = 200, description = "Nobody is signed in", body = SessionView)))]
pub async fn end(
    State(app): Shared,
    headers: HeaderMap,
    _: OptionalJson<Nothing>,
) -> Result<Response, Problem> {
    let (shown, now) = (shown(&headers)?, app.now());
    if let Shown { cookie: Some(cookie), .. } = shown {
        app.check_page(&shown)?;
        if let Ok(id) = app.sessions.session_of(cookie) {
            app.store.end_session(&id, now).await?;
        }
    }
    Ok((gone(&app), [UNCACHED], axum::Json(SessionView::nobody(now))).into_response())
}

/// List sessions
///
/// Everybody who is signed in to the pages, newest first.
#[utoipa::path(get, path = "/api/v1/admin/sessions", operation_id = "list_sessions", tag = "session", security(("token" = ["viewer"])),
    responses((status = 200, description = "Who is signed in", body = SessionList)))]
pub async fn list(State(app): Shared, _: Viewer) -> Result<axum::Json<SessionList>, Problem> {
    let sessions = app.store.sessions(app.now(), PAGE).await?;
    Ok(axum::Json(SessionList { sessions: sessions.iter().map(SessionRow::from).collect() }))
}

/// End a session
///
/// Whoever it is has to sign in again: at once for the console, within 15 minutes for a buyer, whose
/// claims are not looked up.
#[utoipa::path(delete, path = "/api/v1/admin/sessions/{session_id}", operation_id = "end_other_session", tag = "session", security(("token" = ["admin"])),
    params(("session_id" = schema::SessionId, Path, description = "The session")),
    responses((status = 200, description = "The session as it ended", body = SessionRow)))]
pub async fn end_other(
    State(app): Shared,
    _: Admin,
    Path(id): Path<String>,
    _: OptionalJson<Nothing>,
) -> Result<axum::Json<SessionRow>, Problem> {
    let session = app.store.session(&id).await?;
    let ended = app.store.end_session(&id, app.now()).await?;
    let session = session.filter(|_| ended).ok_or_else(|| Problem::new(Code::NoSuchSession))?;
    Ok(axum::Json(SessionRow::from(&session)))
}

/// The session that a cookie names, if it is good.
async fn signed_in(app: &App, cookie: &str, now: Timestamp) -> Result<Option<Session>, Problem> {
    let Ok(id) = app.sessions.session_of(cookie) else { return Ok(None) };
    let session = app.store.session(&id).await?;
    Ok(session.filter(|session| session.is_good(now)))
}

fn ttl_ms(app: &App) -> u64 {
    u64::try_from(app.config.auth.session_ttl.as_millis()).unwrap_or(u64::MAX)
}

/// Has the browser keep a fresh cookie as long as the session lasts.
fn kept(
    app: &App,
    session: &Session,
    now: Timestamp,
) -> Result<[(HeaderName, HeaderValue); 1], Problem> {
    let cookie = app.sessions.cookie(session, now);
    let seconds = (session.expires_at.millis() - now.millis()) / 1000;
    let text = set_cookie(app, &cookie, seconds);
    let value = HeaderValue::from_str(&text).map_err(|_| Problem::new(Code::Internal))?;
    Ok([(SET_COOKIE, value)])
}

/// Has the browser forget the cookie.
fn gone(app: &App) -> [(HeaderName, String); 1] {
    [(SET_COOKIE, set_cookie(app, "", 0))]
}

fn set_cookie(app: &App, value: &str, seconds: i64) -> String {
    let (name, secure) = match app.config.http.is_secure() {
        true => (SECURE_COOKIE, "; Secure"),
        false => (COOKIE, ""),
    };
    format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}")
}
