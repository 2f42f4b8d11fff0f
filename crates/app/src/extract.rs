//! What a handler takes from a request: who asks, under which key, with which body. Everything
//! is bounded, and whatever does not fit becomes a [`Problem`] before a handler runs.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{FromRef, FromRequest, FromRequestParts, Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, ORIGIN};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use http_body::Body as _;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use qiang_core::{RequestId, UserId};
use serde::de::DeserializeOwned;

use crate::actions;
use crate::app::App;
use crate::entry::{Origin, Stopping};
use crate::problem::{Code, Problem};
use crate::session::{self, Intent, Shown};
use crate::token::{Principal, Role};

/// What a handler that needs nothing of its domain is given.
pub type Shared = State<Arc<App>>;

/// The header that names a request.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The header in which browsers say whose page a request comes from.
pub const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Somebody with a valid token, or signed in to the pages.
#[derive(Debug)]
pub struct Caller(pub Principal);

/// Somebody who may read what those who run the shop read: a viewer or an admin.
#[derive(Debug)]
pub struct Viewer(pub Principal);

/// Somebody who runs the shop.
#[derive(Debug)]
pub struct Admin(pub Principal);

/// The request's own id, if it has one.
#[derive(Debug)]
pub struct IdempotencyKey(pub Option<RequestId>);

/// A body in JSON.
#[derive(Debug)]
pub struct Json<T>(pub T);

/// A body in JSON, or none at all.
#[derive(Debug)]
pub struct OptionalJson<T>(pub T);

/// What the body of a request that needs none may hold: nothing.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// A body as it came.
#[derive(Debug)]
pub struct Raw(pub Bytes);

/// The variable parts of an address.
#[derive(Debug)]
pub struct Path<T>(pub T);

impl Caller {
    /// Whose things this caller may touch: their own, or everybody's.
    #[must_use]
    pub fn scope(&self) -> Option<UserId> {
        match self.0.role {
            Role::Buyer | Role::Viewer => Some(self.0.user.clone()),
            Role::Admin => None,
        }
    }

    /// Whether a thing of `user` may be shown to this caller.
    #[must_use]
    pub fn may_see(&self, user: &UserId) -> bool {
        self.0.role != Role::Buyer || self.0.user == *user
    }

    /// Whether a thing of `user` may be changed by this caller.
    #[must_use]
    pub fn may_change(&self, user: &UserId) -> bool {
        self.scope().is_none_or(|own| own == *user)
    }
}

impl IdempotencyKey {
    /// What the header holds, if there is one.
    pub fn of(value: Option<&[u8]>) -> Result<Self, Problem> {
        let Some(value) = value else { return Ok(Self(None)) };
        let text = std::str::from_utf8(value).ok().filter(|text| text.is_ascii());
        let key = text.and_then(|text| RequestId::new(text).ok());
        key.map(|key| Self(Some(key))).ok_or_else(|| Problem::new(Code::InvalidIdempotencyKey))
    }
}

impl<S: Sync> FromRequestParts<S> for Caller
where
    Arc<App>: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let app = Arc::<App>::from_ref(state);
        let shown = shown(&parts.headers)?;
        let who = app.caller(&shown, intent(&parts.method))?;
        // Whoever sees more than their own is looked up; a buyer is not, so that claims stay quick.
        if who.role != Role::Buyer {
            app.still_signed_in(&shown).await?;
        }
        actions::mark(parts, &who).await;
        Ok(Self(who))
    }
}

impl<S: Sync> FromRequestParts<S> for Origin {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parts.extensions.get().copied().ok_or_else(|| {
            tracing::error!("a request reached its handler without its origin");
            Problem::new(Code::Internal)
        })
    }
}

impl<S: Sync> FromRequestParts<S> for Stopping {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parts.extensions.get().cloned().ok_or_else(|| {
            tracing::error!("a request reached its handler without the door it came through");
            Problem::new(Code::Internal)
        })
    }
}

impl<S: Sync> FromRequestParts<S> for Admin
where
    Arc<App>: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Viewer(who) = Viewer::from_request_parts(parts, state).await?;
        if who.role != Role::Admin {
            return Err(Problem::new(Code::Forbidden));
        }
        actions::mark(parts, &who).await;
        Ok(Self(who))
    }
}

impl<S: Sync> FromRequestParts<S> for Viewer
where
    Arc<App>: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Caller(who) = Caller::from_request_parts(parts, state).await?;
        if who.role == Role::Buyer { Err(Problem::new(Code::Forbidden)) } else { Ok(Self(who)) }
    }
}

impl<S: Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Self::of(only(&parts.headers, &IDEMPOTENCY_KEY)?)
    }
}

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        // Only what is not UTF-8 is refused here, and nothing can live there.
        let taken = axum::extract::Path::from_request_parts(parts, state).await;
        taken
            .map(|axum::extract::Path(parts)| Self(parts))
            .map_err(|_| Problem::new(Code::NoSuchRoute))
    }
}

impl<S: Sync> FromRequest<S> for Raw
where
    Arc<App>: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let app = Arc::<App>::from_ref(state);
        let http = &app.config.http;
        read_body(request, http.body_limit_bytes, http.body_timeout).await.map(Self)
    }
}

/// Reads a body up to a limit, within a time.
pub async fn read_body(
    request: Request,
    limit: usize,
    patience: std::time::Duration,
) -> Result<Bytes, Problem> {
    let too_large = || {
        let problem = Problem::new(Code::BodyTooLarge);
        problem.number("limit_bytes", limit as u64)
    };
    let announced = request.headers().get(CONTENT_LENGTH).and_then(|v| v.to_str().ok());
    if announced.and_then(|len| len.parse().ok()).is_some_and(|len: u64| len > limit as u64) {
        return Err(too_large());
    }
    let body = request.into_body();
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    match tokio::time::timeout(patience, Limited::new(body, limit).collect()).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(Problem::new(Code::BadJson).detail("the body broke off")),
        Err(_) => Err(Problem::new(Code::RequestTimeout)),
    }
}

impl<T: DeserializeOwned, S: Sync> FromRequest<S> for Json<T>
where
    Arc<App>: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        check_media_type(request.headers())?;
        let Raw(body) = Raw::from_request(request, state).await?;
        from_json(&body).map(Self)
    }
}

impl<T: DeserializeOwned + Default, S: Sync> FromRequest<S> for OptionalJson<T>
where
    Arc<App>: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let typed = check_media_type(request.headers());
        let Raw(body) = Raw::from_request(request, state).await?;
        if body.is_empty() {
            return Ok(Self(T::default()));
        }
        typed?;
        from_json(&body).map(Self)
    }
}

impl From<axum::extract::rejection::QueryRejection> for Problem {
    fn from(rejection: axum::extract::rejection::QueryRejection) -> Self {
        let text = rejection.body_text();
        let wrong = text.rsplit_once("query string: ").and_then(|(_, rest)| rest.split_once(": "));
        match wrong {
            // The only fields that are not text are numbers and words out of a list.
            Some((field, why)) if !why.contains(", expected ") => {
                Self::invalid_field(field, "must be a whole number")
            }
            Some((field, why)) => match why.strip_prefix("unknown field `") {
                Some(rest) => {
                    let known = rest.split_once(", expected ").map_or("", |(_, known)| known);
                    Self::new(Code::InvalidField).detail(format!(
                        "`{field}` is no parameter of this call; take {}",
                        known.trim_start_matches("one of ")
                    ))
                }
                None => Self::invalid_field(field, plain(why)),
            },
            None => {
                let twice = text.rsplit_once("duplicate field `");
                let twice = twice.and_then(|(_, rest)| rest.split_once('`'));
                match twice {
                    Some((field, _)) => Self::invalid_field(field.to_owned(), "is given twice"),
                    None => Self::new(Code::InvalidField).detail(text),
                }
            }
        }
    }
}

/// How many rows to show, from what was asked.
pub fn page_limit(asked: Option<u32>, max: u32) -> Result<u32, Problem> {
    match asked {
        None => Ok(max),
        Some(limit) if (1..=max).contains(&limit) => Ok(limit),
        Some(_) => Err(Problem::invalid_field("limit", format_args!("must be from 1 to {max}"))),
    }
}

/// Who a request says it is from.
pub fn shown(headers: &HeaderMap) -> Result<Shown<'_>, Problem> {
    Ok(Shown {
        authorization: only(headers, &AUTHORIZATION)?,
        cookie: session::find(|| headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes))?,
        fetch_site: only(headers, &SEC_FETCH_SITE)?,
        origin: only(headers, &ORIGIN)?,
    })
}

fn intent(method: &Method) -> Intent {
    if method.is_safe() { Intent::Look } else { Intent::Change }
}

/// The value of a header that may be given once: of two, which one counts depends on who reads.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a [u8]>, Problem> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().map(HeaderValue::as_bytes);
    match values.next() {
        None => Ok(value),
        Some(_) => Err(Problem::new(Code::RepeatedHeader).text("header", name.as_str())),
    }
}

/// Reads JSON and says which field is wrong, and how.
pub fn from_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    // Derived readers would also take the bare values in the order of the fields.
    if body.trim_ascii_start().starts_with(b"[") {
        return Err(Problem::new(Code::InvalidField).detail("the body must be a JSON object"));
    }
    let mut json = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let error = error.into_inner();
        if !error.is_data() && serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok() {
            return Problem::invalid_field(path, "cannot be taken: it must be a word");
        }
        if !error.is_data() {
            return Problem::new(Code::BadJson).detail(format!("not valid JSON: {error}"));
        }
        let text = error.to_string();
        // A word with something in it, as `{"order": 1}`.
        if let (true, Some((path, _))) = (text.contains("expected unit"), path.rsplit_once('.')) {
            return Problem::invalid_field(path.to_owned(), "must be a word");
        }
        let unknown = text.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`'));
        let missing = text.strip_prefix("missing field `").and_then(|rest| rest.split_once('`'));
        match (unknown, missing) {
            (Some((field, _)), _) => Problem::unknown_field(field),
            (None, Some((field, _))) => Problem::invalid_field(field, "is missing"),
            (None, None) if path == "." => {
                Problem::new(Code::InvalidField).detail(format!("the body {}", plain(&text)))
            }
            (None, None) => Problem::invalid_field(path, plain(&text)),
        }
    })?;
    json.end().map_err(|_| Problem::new(Code::BadJson).detail("there is more behind the JSON"))?;
    Ok(value)
}

/// What a reader of JSON found and wanted, without the names of Rust.
fn plain(text: &str) -> String {
    let Some((found, wanted)) = text.split_once(", expected ") else {
        return format!("cannot be taken: {text}");
    };
    let found = ["invalid type: ", "invalid value: ", "unknown variant "]
        .into_iter()
        .find_map(|words| found.strip_prefix(words))
        .unwrap_or(found);
    let found = ["integer ", "floating point ", "boolean ", "string "]
        .into_iter()
        .find_map(|kind| found.strip_prefix(kind))
        .unwrap_or(match found {
            "sequence" => "a list",
            "map" => "a JSON object",
            other => other,
        });
    let wanted = match wanted.split(" at line ").next().unwrap_or(wanted) {
        "i64" | "i32" | "u64" | "u32" | "u16" => "a whole number",
        "a sequence" => "a list",
        "a map" => "a JSON object",
        "a boolean" => "true or false",
        wanted if wanted.starts_with("struct ") => "a JSON object",
        other => other,
    };
    format!("is {}, and must be {wanted}", found.trim_matches('`'))
}

fn check_media_type(headers: &HeaderMap) -> Result<(), Problem> {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let essence = value.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        Ok(())
    } else {
        Err(Problem::new(Code::UnsupportedMediaType))
    }
}
