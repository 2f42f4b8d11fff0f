//! Pages of other origins that may call the API from a browser, if the shop names them
//! (`[http] cors_origins`); without that nothing here happens.
//!
//! Who calls is told by a token in a header and never by a cookie, so no credentials are allowed
//! along.

use axum::body::Body;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN,
    VARY,
};
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use axum::response::Response;
use qiang_app::config::Origins;

const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, PUT, DELETE");
const HEADERS: HeaderValue =
    HeaderValue::from_static("authorization, content-type, idempotency-key, accept-language");
/// What a page may read beside the body.
const EXPOSED: HeaderValue = HeaderValue::from_static("retry-after");
/// Seconds for which a browser need not ask again.
const MAX_AGE_SECS: HeaderValue = HeaderValue::from_static("600");

/// What the origin of one request may.
#[derive(Debug)]
pub(super) enum Asked {
    /// Nothing is said about it: no origins are named.
    Nothing,
    /// It is not one of those named.
    Stranger,
    /// It may.
    Known(HeaderValue),
}

impl Asked {
    /// What the origin of a request may.
    pub(super) fn of(headers: &HeaderMap, origins: &Origins) -> Self {
        if !origins.are_named() {
            return Self::Nothing;
        }
        let origin = headers.get(ORIGIN).filter(|origin| origins.contain(origin));
        origin.map_or(Self::Stranger, |origin| Self::Known(origin.clone()))
    }

    /// The answer to a browser that asks whether it may ask, if that is what this is.
    pub(super) fn preflight<B>(&self, request: &Request<B>) -> Option<Response> {
        let asks = request.method() == Method::OPTIONS
            && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        if !asks || !matches!(self, Self::Known(_)) {
            return None;
        }
        let mut answer = Response::new(Body::empty());
        *answer.status_mut() = StatusCode::NO_CONTENT;
        let headers = answer.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HEADERS);
        headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE_SECS);
        Some(answer)
    }

    /// Says in an answer whose pages may read it.
    pub(super) fn say(self, headers: &mut HeaderMap) {
        match self {
            Self::Nothing => return,
            Self::Stranger => {}
            Self::Known(origin) => {
                headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
                headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
            }
        }
        headers.append(VARY, HeaderValue::from_static("origin"));
    }
}
