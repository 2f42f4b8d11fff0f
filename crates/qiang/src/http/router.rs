//! Every address there is, and the description of them all.

use std::sync::Arc;

use axum::Router;
use axum::http::HeaderValue;
use axum::http::header::{
    CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS,
};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use qiang_app::Domain;
use qiang_app::problem::{Code, Problem};
use utoipa::OpenApi as _;
use utoipa_axum::router::OpenApiRouter;
use utoipa_swagger_ui::SwaggerUi;

use super::errors_page;
use super::openapi::{self, Problems};
use crate::domains::Domains;
use crate::operations;

/// What the documentation may load. Its page of the API sets styles of its own.
const DOCS_CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; \
                        img-src 'self' data:; connect-src 'self'; form-action 'none'; \
                        base-uri 'none'; frame-ancestors 'none'";
/// The page of the API is far smaller; its scripts are not touched.
const MAX_PAGE_BYTES: usize = 64 << 10;

/// The routes of a door.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// Everything the server answers.
    All,
    /// Health checks and metrics; for anything else, this is said.
    Health(&'static str),
}

/// The routes of all domains, and the OpenAPI document made of them.
fn described(domains: &Arc<Domains>) -> (Router, serde_json::Value) {
    let none = OpenApiRouter::with_openapi(openapi::Description::openapi());
    let routes = domains.all().fold(none, |routes, domain| routes.merge(domain.routes()));
    let (routes, description) = routes.merge(operations::health(domains)).split_for_parts();
    (routes, openapi::finish(&description, &problems(domains)))
}

fn problems(domains: &Domains) -> Problems {
    domains.all().flat_map(Domain::problems).copied().collect()
}

/// The OpenAPI document, as served at `/openapi.json`.
#[cfg(test)]
pub(super) fn document(domains: &Arc<Domains>) -> serde_json::Value {
    described(domains).1
}

/// What a door answers.
pub(super) fn router(domains: &Arc<Domains>, pages: Pages) -> Router {
    if let Pages::Health(nothing_else) = pages {
        let (health, _) = operations::health(domains).split_for_parts();
        return health.fallback(async move || Problem::new(Code::NoSuchRoute).detail(nothing_else));
    }
    let (router, description) = described(domains);
    let docs = SwaggerUi::new("/docs");
    let docs = docs.external_url_unchecked("/openapi.json", description);
    let docs = Router::from(docs).layer(map_response(named)).route("/docs/errors", get(errors));
    router
        .fallback(async || Problem::new(Code::NoSuchRoute))
        .method_not_allowed_fallback(async || Problem::new(Code::MethodNotAllowed))
        .merge(docs.layer(map_response(sealed)))
}

/// The documentation lies beside pages with a cookie, so it takes nothing from elsewhere and stands in
/// nobody's frame.
async fn sealed(mut page: Response) -> Response {
    let headers = page.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(DOCS_CSP));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    page
}

/// The page of the API under our own name.
async fn named(page: Response) -> Response {
    let is_html = |kind: &HeaderValue| kind.as_bytes().starts_with(b"text/html");
    let is_page = page.headers().get(CONTENT_TYPE).is_some_and(is_html);
    if !is_page {
        return page;
    }
    let (mut parts, body) = page.into_parts();
    match axum::body::to_bytes(body, MAX_PAGE_BYTES).await {
        Ok(bytes) => {
            let html = String::from_utf8_lossy(&bytes);
            let html = html.replace("<title>Swagger UI</title>", "<title>qiang API</title>");
            parts.headers.remove(CONTENT_LENGTH);
            Response::from_parts(parts, html.into())
        }
        Err(_) => Problem::new(Code::Internal).into_response(),
    }
}

async fn errors() -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/html; charset=utf-8")], errors_page::html())
}
