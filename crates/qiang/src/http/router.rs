//! Every address there is, and the description of them all.

use std::sync::Arc;

use axum::Router;
use axum::http::HeaderValue;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use utoipa::OpenApi as _;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use utoipa_swagger_ui::SwaggerUi;

use super::problem::{Code, Problem};
use super::{errors_page, health, openapi};
use crate::app::App;
use crate::sales::{self, claims, current};
use crate::{audit, metrics, nodes, orders, payments, reviews};

/// The page of the API is far smaller; its scripts are not touched.
const MAX_PAGE_BYTES: usize = 64 << 10;

/// The routes, and the OpenAPI document made of them.
fn described() -> (Router<Arc<App>>, utoipa::openapi::OpenApi) {
    OpenApiRouter::with_openapi(openapi::Description::openapi())
        .routes(routes!(sales::create, sales::list))
        .routes(routes!(sales::show, sales::clear))
        .routes(routes!(sales::close))
        .routes(routes!(sales::restock))
        .routes(routes!(claims::create))
        .routes(routes!(claims::create_for_voucher))
        .routes(routes!(claims::show, claims::give_up))
        .routes(routes!(claims::order))
        .routes(routes!(current::show, current::put))
        .routes(routes!(current::claim))
        .routes(routes!(orders::list))
        .routes(routes!(orders::show))
        .routes(routes!(orders::cancel))
        .routes(routes!(payments::pay_in_sandbox))
        .routes(routes!(payments::callback))
        .routes(routes!(payments::list_refunds))
        .routes(routes!(payments::settle_refund))
        .routes(routes!(reviews::list))
        .routes(routes!(reviews::end))
        .routes(routes!(nodes::view::list))
        .routes(routes!(audit::show))
        .routes(routes!(audit::repair))
        .routes(routes!(metrics::show))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .split_for_parts()
}

/// The OpenAPI document, as served at `/openapi.json`.
#[cfg(test)]
pub(super) fn document() -> serde_json::Value {
    openapi::finish(&described().1)
}

/// Everything the server answers; one that is no api tells only how it is.
pub fn router(app: Arc<App>) -> Router {
    if !app.config.roles.api {
        return health_routes("this process is a worker; ask one with the role api")
            .with_state(app);
    }
    let (router, description) = described();
    let docs = SwaggerUi::new("/docs");
    let docs = docs.external_url_unchecked("/openapi.json", openapi::finish(&description));
    router
        .route("/", get(|| async { Redirect::temporary("/docs/") }))
        .route("/docs/errors", get(errors))
        .fallback(async || Problem::new(Code::NoSuchRoute))
        .method_not_allowed_fallback(async || Problem::new(Code::MethodNotAllowed))
        .with_state(app)
        .merge(Router::from(docs).layer(map_response(named)))
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

/// What is answered where only health checks are.
pub(super) fn health_router(app: Arc<App>) -> Router {
    health_routes("only health checks and metrics are answered here").with_state(app)
}

fn health_routes(nothing_else: &'static str) -> Router<Arc<App>> {
    Router::new()
        .route("/metrics", get(metrics::show))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .fallback(async move || Problem::new(Code::NoSuchRoute).detail(nothing_else))
}

async fn errors() -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/html; charset=utf-8")], errors_page::html())
}
