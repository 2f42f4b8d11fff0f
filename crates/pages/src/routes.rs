//! The addresses of pages. The language is a part of the path, so that a cache need not look at
//! headers; only `/` and `/pay`, which people are sent to from elsewhere, ask the browser for it.

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LOCATION,
    REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use qiang_app::extract::Path;
use qiang_app::problem::{Code, Lang, Problem};
use qiang_core::{Kind, PoolChange, PoolId};
use sha2::{Digest as _, Sha256};

use crate::Pages;
use crate::assets::{self, Encoding, Part};
use crate::shell::{self, About, Page};

/// Everything comes from here, nothing is inline, and no other page may put ours into a frame.
const CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                   connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
/// A name with a hash never means anything else.
const FOR_GOOD: &str = "public, max-age=31536000, immutable";
/// A cache in front asks again after seconds, and has something to show when we do not answer.
const SHORTLY: &str =
    "public, max-age=0, s-maxage=5, stale-while-revalidate=60, stale-if-error=86400";
/// The page that holds what a shop wrote about one sale.
const SALE: &str = "sale";
const HTML: &str = "text/html; charset=utf-8";

/// All pages.
pub(crate) fn all(pages: &Pages) -> Router {
    Router::new()
        .route("/", get(home))
        .route("/pay", get(pay))
        .route("/assets/{folder}/{name}", get(asset))
        .merge(in_lang(Lang::En))
        .merge(in_lang(Lang::Zh))
        .with_state(pages.clone())
}

/// Every page of the storefront at the address that its folder names, and the console.
fn in_lang(lang: Lang) -> Router<Pages> {
    let at = |path: &str| format!("/{}{path}", shell::code(lang));
    let first = at("/");
    let mut router = Router::new()
        .route(&at(""), get(async move || to(&first)))
        .route(&at("/console"), show(lang, page(Part::Console, "console", "console")));
    for folder in assets::pages() {
        let page = page(Part::Store, &folder.name, &folder.title);
        let shown = if folder.name == SALE { sale(lang, page) } else { show(lang, page) };
        router = router.route(&at(&folder.path), shown);
    }
    router
}

fn page(part: Part, name: &str, title: &str) -> Arc<Page> {
    Arc::new(Page { part, name: name.to_owned(), title: title.to_owned() })
}

/// A page that is the same for everybody, made and compressed once.
fn show(lang: Lang, page: Arc<Page>) -> MethodRouter<Pages> {
    let made = Arc::new(OnceLock::new());
    get(async move |State(pages): State<Pages>, headers: HeaderMap| {
        let (html, gzip) = made.get_or_init(|| {
            let html = shell::html(&pages, lang, &page, &About::default());
            let gzip = assets::gzip(html.as_bytes());
            (Html::new(html), gzip)
        });
        html.send(&headers, StatusCode::OK, || gzip.clone())
    })
}

fn sale(lang: Lang, page: Arc<Page>) -> MethodRouter<Pages> {
    get(async move |State(pages): State<Pages>, headers: HeaderMap, id: Path<String>| {
        show_sale(&pages, lang, &page, &headers, &id.0).await
    })
}

/// The first page in the language of the browser.
async fn home(lang: Lang) -> Response {
    to(&format!("/{}/", shell::code(lang)))
}

/// Where a program sends a buyer who has got something.
async fn pay(lang: Lang, uri: Uri) -> Response {
    let query = uri.query().map_or(String::new(), |query| format!("?{query}"));
    to(&format!("/{}/pay{query}", shell::code(lang)))
}

fn to(path: &str) -> Response {
    let Ok(path) = HeaderValue::from_str(path) else {
        return Problem::new(Code::NoSuchRoute).into_response();
    };
    let by_language = HeaderValue::from_static("accept-language");
    (StatusCode::TEMPORARY_REDIRECT, [(LOCATION, path), (VARY, by_language)]).into_response()
}

/// The page of a sale holds what its buyers read, also for whoever runs no scripts.
async fn show_sale(
    pages: &Pages,
    lang: Lang,
    page: &Page,
    headers: &HeaderMap,
    id: &str,
) -> Result<Response, Problem> {
    let app = &pages.app;
    let pool: Option<PoolId> = id.parse().ok();
    let state = match pool {
        Some(pool) => app.answer(app.engine.pool_state(pool)).await?,
        None => None,
    };
    let state =
        state.filter(|state| state.terms.kind == Kind::Sale && state.change != PoolChange::Cleared);
    let (Some(pool), Some(state)) = (pool, state) else {
        let html = Html::new(shell::html(pages, lang, page, &About::default()));
        return Ok(html.send(headers, StatusCode::NOT_FOUND, || assets::gzip_fast(&html.bytes)));
    };
    let texts = app.store.sale_page(pool).await?;
    let image = app.store.sale_image_changed(pool).await?;
    let about = About {
        sale: Some(pool),
        title: Some(state.terms.title.to_string()),
        description: texts.map(|texts| texts.description).unwrap_or_default(),
        has_image: image.is_some(),
    };
    let html = Html::new(shell::html(pages, lang, page, &about));
    Ok(html.send(headers, StatusCode::OK, || assets::gzip_fast(&html.bytes)))
}

async fn asset(headers: HeaderMap, Path((folder, name)): Path<(String, String)>) -> Response {
    let assets = assets::all();
    let Some(asset) = assets.find(&name).filter(|_| folder == assets.folder) else {
        return Problem::new(Code::NoSuchRoute).into_response();
    };
    let tag = format!("\"{folder}\"");
    if is_known(&headers, &tag) {
        return (StatusCode::NOT_MODIFIED, [(ETAG, tag)]).into_response();
    }
    let encoding = Encoding::of(&headers);
    let mut response = Response::new(Body::from(asset.bytes(encoding)));
    let answer = response.headers_mut();
    answer.insert(CONTENT_TYPE, HeaderValue::from_static(asset.media_type));
    answer.insert(CACHE_CONTROL, HeaderValue::from_static(FOR_GOOD));
    answer.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    put(answer, ETAG, &tag);
    encoding.say(answer);
    response
}

/// A document and its tag.
struct Html {
    bytes: Bytes,
    tag: String,
}

impl Html {
    fn new(html: String) -> Self {
        let tag = format!("\"{}\"", hex::encode(&Sha256::digest(&html)[..12]));
        Self { bytes: html.into(), tag }
    }

    /// The document with everything that a browser should know about it.
    fn send(
        &self,
        headers: &HeaderMap,
        status: StatusCode,
        gzip: impl FnOnce() -> Bytes,
    ) -> Response {
        let known = status == StatusCode::OK && is_known(headers, &self.tag);
        let mut response = match known {
            true => StatusCode::NOT_MODIFIED.into_response(),
            false => {
                let encoding = Encoding::of(headers);
                let mut response = Response::new(Body::from(match encoding {
                    Encoding::Gzip => gzip(),
                    Encoding::Plain => self.bytes.clone(),
                }));
                *response.status_mut() = status;
                encoding.say(response.headers_mut());
                response
            }
        };
        let answer = response.headers_mut();
        for (name, value) in [
            (CONTENT_TYPE, HTML),
            (CACHE_CONTROL, SHORTLY),
            (CONTENT_SECURITY_POLICY, CSP),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (REFERRER_POLICY, "same-origin"),
        ] {
            answer.insert(name, HeaderValue::from_static(value));
        }
        put(answer, ETAG, &self.tag);
        response
    }
}

fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let known = headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    known
        .is_some_and(|known| known.split(',').any(|one| one.trim().trim_start_matches("W/") == tag))
}

fn put(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}
