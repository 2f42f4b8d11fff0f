//! Signing in to the pages: by token, by link, by name; and what a cookie is good for.

use axum::http::Method;
use qiang_app::token::Role;
use serde_json::{Value, json};

use crate::person::{Answer, Person};
use crate::shop::{MINUTE, Shop};

const OURS: (&str, &str) = ("sec-fetch-site", "same-origin");

/// The cookie that an answer sets, as a browser sends it back.
fn cookie(answer: &Answer) -> String {
    let set = answer.header("set-cookie");
    for word in ["Path=/", "HttpOnly", "SameSite=Strict"] {
        assert!(set.contains(word), "{set}");
    }
    set.split(';').next().expect("a cookie").to_owned()
}

async fn sign_in(shop: &Shop, how: Value) -> String {
    let answer = shop.stranger().await.post("/session", how).await;
    assert_eq!(answer.ok(201)["signed_in"], true);
    cookie(&answer)
}

async fn with_role(shop: &Shop, user: &str, role: Role) -> String {
    sign_in(shop, json!({ "token": shop.token(user, role, None) })).await
}

/// Asks with a cookie, as a page of ours does unless told otherwise.
async fn ask(
    shop: &Shop,
    cookie: &str,
    method: Method,
    path: &str,
    body: Value,
    site: Option<(&'static str, &str)>,
) -> Answer {
    let mut browser: Person = shop.stranger().await;
    let mut headers = vec![("cookie", cookie)];
    headers.extend(site);
    browser.send(method, path, body, &headers).await
}

#[tokio::test]
async fn a_cookie_claims_orders_and_pays() {
    let shop = Shop::open().await;
    let sale = shop.sale(2, json!({})).await;
    let ann = sign_in(&shop, json!({ "user_id": "ann" })).await;
    let claims = format!("/sales/{sale}/claims");
    let claim = ask(&shop, &ann, Method::POST, &claims, json!({}), Some(OURS)).await.ok(201);
    assert_eq!(claim["user_id"], "ann");
    let order = claim["order_id"].as_str().expect("an order");
    let pay = format!("/orders/{order}/pay");
    let paid = ask(&shop, &ann, Method::POST, &pay, json!({}), Some(OURS)).await.ok(200);
    assert_eq!(paid["outcome"], "paid");
    let mine = ask(&shop, &ann, Method::GET, "/orders", Value::Null, None).await.ok(200);
    assert_eq!(mine["orders"][0]["order_id"], order);
}

#[tokio::test]
async fn a_change_by_cookie_must_come_from_a_page_of_ours() {
    let public = ("QIANG_HTTP__PUBLIC_ORIGIN", "https://shop.example");
    let shop = Shop::with(&[public, ("QIANG_AUTH__SANDBOX", "true")]).await;
    let sale = shop.sale(9, json!({ "limit_per_user": 9 })).await;
    let signed = shop.stranger().await.post("/session", json!({ "user_id": "ann" })).await;
    let set = signed.header("set-cookie");
    assert!(set.starts_with("__Host-") && set.contains("; Secure"), "behind TLS: {set}");
    let ann = cookie(&signed);
    // The fast lane answers the first, the router the second.
    for path in [format!("/sales/{sale}/claims"), "/current-sale/claims".to_owned()] {
        for site in [
            None,
            Some(("sec-fetch-site", "cross-site")),
            Some(("sec-fetch-site", "same-site")),
            Some(("sec-fetch-site", "none")),
            Some(("origin", "https://evil.example")),
            Some(("origin", "null")),
        ] {
            let answer = ask(&shop, &ann, Method::POST, &path, json!({}), site).await;
            answer.problem(403, "cross_site");
        }
    }
    let claims = format!("/sales/{sale}/claims");
    for site in [OURS, ("origin", "https://shop.example")] {
        ask(&shop, &ann, Method::POST, &claims, json!({}), Some(site)).await.ok(201);
    }
    let twice = format!("{ann}; {ann}");
    let answer = ask(&shop, &twice, Method::POST, &claims, json!({}), Some(OURS)).await;
    answer.problem(400, "repeated_header");
    let elsewhere = [("sec-fetch-site", "cross-site")];
    let body = json!({ "user_id": "eve" });
    let answer = shop.stranger().await.send(Method::POST, "/session", body, &elsewhere).await;
    answer.problem(403, "cross_site");
}

#[tokio::test]
async fn each_role_sees_and_does_what_it_may() {
    let shop = Shop::open().await;
    let sale = shop.sale(2, json!({})).await;
    let close = format!("/sales/{sale}/close");
    let reads = [
        "/admin/nodes",
        "/admin/refunds",
        "/admin/samples",
        "/admin/sessions",
        "/admin/settings",
        "/admin/audit",
    ];
    let buyer = with_role(&shop, "ann", Role::Buyer).await;
    let viewer = with_role(&shop, "vera", Role::Viewer).await;
    let admin = with_role(&shop, "boss", Role::Admin).await;
    for path in reads {
        let get = |cookie| ask(&shop, cookie, Method::GET, path, Value::Null, None);
        get(&buyer).await.problem(403, "forbidden");
        get(&viewer).await.ok(200);
        get(&admin).await.ok(200);
    }
    for cookie in [&buyer, &viewer] {
        let answer = ask(&shop, cookie, Method::POST, &close, json!({}), Some(OURS)).await;
        answer.problem(403, "forbidden");
    }
    let mut bearer = shop.bearer(shop.token("vera", Role::Viewer, None)).await;
    bearer.get("/admin/nodes").await.ok(200);
    bearer.post(&close, json!({})).await.problem(403, "forbidden");
    ask(&shop, &admin, Method::POST, &close, json!({}), Some(OURS)).await.ok(200);
}

#[tokio::test]
async fn a_session_is_listed_and_ended_and_its_cookie_renewed() {
    let shop = Shop::open().await;
    let ann = sign_in(&shop, json!({ "user_id": "ann" })).await;
    let boss = with_role(&shop, "boss", Role::Admin).await;
    let show = |cookie: String| {
        let shop = &shop;
        async move { ask(shop, &cookie, Method::GET, "/session", Value::Null, None).await }
    };
    shop.clock.advance_millis(16 * MINUTE);
    let orders = ask(&shop, &ann, Method::GET, "/orders", Value::Null, None).await;
    orders.problem(401, "token_expired");
    let renewed = show(ann.clone()).await;
    assert_eq!(renewed.ok(200)["user_id"], "ann");
    let ann = cookie(&renewed);
    ask(&shop, &ann, Method::GET, "/orders", Value::Null, None).await.ok(200);
    let boss = cookie(&show(boss).await);
    let all = ask(&shop, &boss, Method::GET, "/admin/sessions", Value::Null, None).await.ok(200);
    let all = all["sessions"].as_array().expect("a list").clone();
    assert_eq!(all.len(), 2);
    let its = all.iter().find(|one| one["user_id"] == "ann").expect("listed");
    let path = format!("/admin/sessions/{}", its["session_id"].as_str().expect("an id"));
    ask(&shop, &boss, Method::DELETE, &path, Value::Null, Some(OURS)).await.ok(200);
    ask(&shop, &boss, Method::DELETE, &path, Value::Null, Some(OURS))
        .await
        .problem(404, "no_such_session");
    assert_eq!(show(ann).await.ok(200)["signed_in"], false);
}

/// Whoever sees more than their own is looked up each time.
#[tokio::test]
async fn whoever_ran_the_shop_touches_nothing_after_signing_out() {
    let shop = Shop::open().await;
    let sale = shop.sale(2, json!({})).await;
    let claim = shop.buyer("ann").await.claim(&sale, 1).await.ok(201);
    let order = claim["order_id"].as_str().expect("an order");
    let boss = with_role(&shop, "boss", Role::Admin).await;
    ask(&shop, &boss, Method::DELETE, "/session", Value::Null, Some(OURS)).await.ok(200);
    let (look, change) = (Method::GET, Method::POST);
    for (method, path) in [
        (&look, "/admin/nodes".to_owned()),
        (&look, format!("/orders/{order}")),
        (&look, format!("/orders/{order}/refunds")),
        (&look, format!("/claims/{order}")),
        (&change, format!("/orders/{order}/cancel")),
        (&change, format!("/orders/{order}/pay")),
        (&Method::DELETE, format!("/claims/{order}")),
    ] {
        let site = (*method != look).then_some(OURS);
        let answer = ask(&shop, &boss, method.clone(), &path, Value::Null, site).await;
        answer.problem(401, "token_expired");
    }
}

#[tokio::test]
async fn a_viewer_pays_and_cancels_nobodys_order() {
    let shop = Shop::open().await;
    let sale = shop.sale(2, json!({})).await;
    let claim = shop.buyer("ann").await.claim(&sale, 1).await.ok(201);
    let order = claim["order_id"].as_str().expect("an order");
    let mut viewer = shop.bearer(shop.token("vera", Role::Viewer, None)).await;
    viewer.get(&format!("/orders/{order}")).await.ok(200);
    viewer.get(&format!("/orders/{order}/refunds")).await.ok(200);
    for call in ["pay", "cancel"] {
        let path = format!("/orders/{order}/{call}");
        viewer.post(&path, Value::Null).await.problem(403, "forbidden");
    }
    assert_eq!(viewer.get(&format!("/orders/{order}")).await.ok(200)["status"], "PENDING");
}

#[tokio::test]
async fn the_link_of_the_console_works_once_and_not_for_long() {
    let shop = Shop::open().await;
    let link = || shop.server.domains.pages.console_link().expect("randomness");
    let (used, late) = (link(), link());
    let admin = sign_in(&shop, json!({ "link": used })).await;
    ask(&shop, &admin, Method::GET, "/admin/nodes", Value::Null, None).await.ok(200);
    let mut stranger = shop.stranger().await;
    stranger.post("/session", json!({ "link": used })).await.problem(401, "unauthenticated");
    shop.clock.advance_millis(15 * MINUTE);
    stranger.post("/session", json!({ "link": late })).await.problem(401, "token_expired");
    stranger.post("/session", json!({ "link": "x" })).await.problem(401, "unauthenticated");
}

#[tokio::test]
async fn one_way_to_sign_in_and_names_only_in_the_sandbox() {
    let shop = Shop::with(&[("QIANG_AUTH__SANDBOX", "false")]).await;
    let mut stranger = shop.stranger().await;
    stranger.post("/session", json!({ "user_id": "ann" })).await.problem(403, "sign_in_disabled");
    stranger.post("/session", json!({})).await.problem(422, "invalid_field");
    let both = json!({ "user_id": "ann", "token": "x" });
    stranger.post("/session", both).await.problem(422, "invalid_field");
    stranger.post("/admin/demo", Value::Null).await.problem(403, "demo_disabled");
    assert_eq!(stranger.get("/session").await.ok(200)["signed_in"], false);
}

/// A proxy on this machine asks from loopback for the whole world.
#[tokio::test]
async fn nobody_signs_in_by_name_through_a_proxy() {
    let shop = Shop::open().await;
    let ann = json!({ "user_id": "ann" });
    for header in [
        ("x-forwarded-for", "203.0.113.7"),
        ("forwarded", "for=203.0.113.7"),
        ("via", "1.1 proxy"),
        ("x-forwarded-proto", "https"),
        ("origin", "https://shop.example"),
        ("origin", "https://127.0.0.1.shop.example"),
    ] {
        let headers = [header, OURS];
        let told =
            shop.stranger().await.send(Method::POST, "/session", ann.clone(), &headers).await;
        told.problem(403, "sign_in_disabled");
        let mut stranger = shop.stranger().await;
        let told = stranger.send(Method::POST, "/admin/demo", Value::Null, &headers).await;
        told.problem(403, "demo_disabled");
    }
    for origin in ["http://localhost:8080", "http://127.0.0.1:8080", "http://[::1]:8080"] {
        let headers = [("origin", origin), OURS];
        let told =
            shop.stranger().await.send(Method::POST, "/session", ann.clone(), &headers).await;
        told.ok(201);
    }
}
