//! Pages of other origins call the API from a browser where the shop names them, and nowhere else.

use axum::http::Method;
use qiang_app::token::Role;
use serde_json::json;

use crate::shop::Shop;

const SHOP: (&str, &str) = ("origin", "https://shop.example");
const OTHER: (&str, &str) = ("origin", "https://evil.example");
const WANTS: (&str, &str) = ("access-control-request-method", "POST");
const ALLOWED: &str = "access-control-allow-origin";

#[tokio::test]
async fn named_origins_may_claim_from_a_browser() {
    let origins = "https://shop.example, http://localhost:3000";
    let shop = Shop::with(&[("QIANG_HTTP__CORS_ORIGINS", origins)]).await;
    let sale = shop.sale(2, json!({})).await;
    let path = format!("/api/v1/sales/{sale}/claims");
    let mut browser = shop.bearer(shop.token("ann", Role::Buyer, None)).await;
    let may = browser.ask(Method::OPTIONS, &path, &[SHOP, WANTS], "").await;
    assert_eq!((may.status, may.header(ALLOWED)), (204, SHOP.1));
    let headers = may.header("access-control-allow-headers");
    assert!(headers.contains("authorization") && headers.contains("idempotency-key"), "{headers}");
    let granted = browser.ask(Method::POST, &path, &[SHOP], "").await;
    assert_eq!((granted.status, granted.header(ALLOWED)), (201, SHOP.1));
    assert_eq!(granted.header("vary"), "origin");
    let refused = browser.ask(Method::POST, &path, &[SHOP], "").await;
    assert_eq!((refused.status, refused.header(ALLOWED)), (409, SHOP.1), "it can read why");
    // Others are answered as before, and their browsers keep the answer from their pages.
    let may = browser.ask(Method::OPTIONS, &path, &[OTHER, WANTS], "").await;
    assert!(may.status == 405 && !may.headers.contains_key(ALLOWED), "{may:?}");
    let other = browser.ask(Method::POST, &path, &[OTHER], "").await;
    assert!(other.status == 409 && !other.headers.contains_key(ALLOWED), "{other:?}");
}

#[tokio::test]
async fn without_named_origins_nothing_is_allowed() {
    let shop = Shop::open().await;
    let sale = shop.sale(2, json!({})).await;
    let path = format!("/api/v1/sales/{sale}/claims");
    let mut browser = shop.bearer(shop.token("ann", Role::Buyer, None)).await;
    let may = browser.ask(Method::OPTIONS, &path, &[SHOP, WANTS], "").await;
    assert!(may.status == 405 && !may.headers.contains_key(ALLOWED), "{may:?}");
    let granted = browser.ask(Method::POST, &path, &[SHOP], "").await;
    assert!(granted.status == 201 && !granted.headers.contains_key(ALLOWED), "{granted:?}");
}
