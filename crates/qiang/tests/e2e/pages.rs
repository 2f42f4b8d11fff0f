//! Pages as a browser, a cache and an attacker see them.

use axum::http::Method;
use serde_json::{Value, json};

use crate::person::{Answer, Person};
use crate::shop::{START_TEXT, Shop};

const CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                   connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
/// The smallest PNG there is.
const PNG: &[u8] =
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89";

async fn page(person: &mut Person, path: &str, headers: &[(&'static str, &str)]) -> Answer {
    person.ask(Method::GET, path, headers, "").await
}

#[tokio::test]
async fn the_first_page_is_the_storefront_in_the_language_of_the_browser() {
    let shop = Shop::open().await;
    let mut person = shop.stranger().await;
    for (lang, path) in [("zh-CN,zh;q=0.9", "/zh/"), ("en", "/en/"), ("fr", "/en/")] {
        let moved = page(&mut person, "/", &[("accept-language", lang)]).await;
        assert_eq!((moved.status, moved.header("location")), (307, path));
        assert_eq!(moved.header("vary"), "accept-language");
    }
    let moved = page(&mut person, "/pay?record_id=7-1", &[("accept-language", "zh")]).await;
    assert_eq!(moved.header("location"), "/zh/pay?record_id=7-1");
}

#[tokio::test]
async fn every_page_has_the_strict_policy_and_can_be_cached() {
    let shop = Shop::open().await;
    let sale = shop.sale(2, json!({})).await;
    let mut person = shop.stranger().await;
    let own = format!("sales/{sale}");
    for lang in ["en", "zh"] {
        for name in ["", &own, "pay", "mine", "sign-in", "console"] {
            let path = format!("/{lang}/{name}");
            let shown = page(&mut person, &path, &[]).await;
            assert_eq!(shown.status, 200, "{path}");
            assert_eq!(shown.header("content-security-policy"), CSP);
            assert!(shown.header("cache-control").contains("s-maxage"), "{path}");
            assert_eq!(shown.header("set-cookie"), "", "a cache may keep it");
            assert!(!shown.text.contains("<style") && !shown.text.contains("onclick"), "{path}");
            let known = [("if-none-match", shown.header("etag"))];
            assert_eq!(page(&mut person, &path, &known).await.status, 304, "{path}");
            for asset in shown.text.split('"').filter(|text| text.starts_with("/assets/")) {
                let file = page(&mut person, asset, &[]).await;
                assert_eq!(file.status, 200, "{asset}");
                assert!(file.header("cache-control").ends_with("immutable"), "{asset}");
                let zipped = page(&mut person, asset, &[("accept-encoding", "gzip")]).await;
                assert_eq!(zipped.header("content-encoding"), "gzip");
            }
        }
    }
    let gone = page(&mut person, "/en/sales/999", &[]).await;
    assert_eq!(gone.status, 404);
    assert!(gone.text.contains("There is no such sale"));
    page(&mut person, "/assets/0/store.js", &[]).await.problem(404, "no_such_route");
}

#[tokio::test]
async fn p65_what_a_shop_writes_stays_text() {
    let shop = Shop::open().await;
    let evil = "</script><script>alert('x')</script>\"><img src=x onerror=alert(1)>";
    let sale = shop.sale(2, json!({ "title": evil })).await;
    let mut admin = shop.admin().await;
    let text = json!({ "description": format!("{evil}\nsecond line") });
    let written = admin.put(&format!("/sales/{sale}/page"), text).await.ok(200);
    assert_eq!(written["changed_at"], START_TEXT);
    let shown = page(&mut shop.stranger().await, &format!("/en/sales/{sale}"), &[]).await;
    assert!(shown.text.contains("&lt;script&gt;alert(&#39;x&#39;)"), "{}", shown.text);
    assert_eq!(shown.text.matches("<script").count(), 2, "the script and the facts");
    assert!(!shown.text.contains("<img"), "{}", shown.text);
}

#[tokio::test]
async fn a_sale_has_a_text_and_a_picture_that_can_be_changed_while_it_runs() {
    let shop = Shop::open().await;
    let sale = shop.sale(2, json!({})).await;
    let (mut admin, mut ann) = (shop.admin().await, shop.buyer("ann").await);
    let (text, image) = (format!("/sales/{sale}/page"), format!("/sales/{sale}/image"));
    let whole = format!("/api/v1{image}");
    let empty = ann.get(&text).await.ok(200);
    assert_eq!((&empty["description"], &empty["image"]), (&json!(""), &Value::Null));
    ann.get(&image).await.problem(404, "no_such_image");
    let body = json!({ "description": "Black\n黑色" });
    ann.put(&text, body.clone()).await.problem(403, "forbidden");
    assert_eq!(admin.put(&text, body).await.ok(200)["description"], "Black\n黑色");
    let long = json!({ "description": "x".repeat(4_001) });
    admin.put(&text, long).await.problem(422, "invalid_field");
    let png = [("content-type", "image/png")];
    let put = admin.ask(Method::PUT, &whole, &png, PNG).await.ok(200);
    assert_eq!(put["image"], whole.as_str());
    let shown = ann.get(&image).await;
    assert_eq!((shown.status, shown.header("content-type")), (200, "image/png"));
    assert_eq!(shown.header("x-content-type-options"), "nosniff");
    assert_eq!(ann.get("/sale-images").await.ok(200)["images"][0]["sale_id"], sale.as_str());
    let jpeg = [("content-type", "image/jpeg")];
    admin.ask(Method::PUT, &whole, &jpeg, PNG).await.problem(422, "invalid_field");
    let svg = [("content-type", "image/svg+xml")];
    admin.ask(Method::PUT, &whole, &svg, "<svg/>").await.problem(415, "unsupported_media_type");
    let large = vec![0; (512 << 10) + 1];
    admin.ask(Method::PUT, &whole, &png, large).await.problem(413, "body_too_large");
    assert_eq!(admin.delete(&image).await.ok(200)["image"], Value::Null);
    admin.put("/sales/999/page", json!({ "description": "" })).await.problem(404, "no_such_sale");
}

#[tokio::test]
async fn a_demo_is_for_an_empty_shop() {
    let shop = Shop::open().await;
    let mut stranger = shop.stranger().await;
    assert_eq!(stranger.get("/time").await.ok(200)["server_time"], START_TEXT);
    let demo = stranger.post("/admin/demo", Value::Null).await.ok(201);
    let sale = stranger.get(&format!("/sales/{}", demo["sale_id"].as_str().expect("an id"))).await;
    assert_eq!(sale.ok(200)["status"], "scheduled");
    stranger.post("/admin/demo", Value::Null).await.problem(403, "demo_disabled");
}
