//! What operators look at: health, readiness, metrics, the audit, and the documentation, which
//! must work without a network.

use std::collections::BTreeSet;

use axum::http::Method;
use serde_json::{Value, json};

use crate::shop::Shop;

#[tokio::test]
async fn the_server_says_that_it_lives_and_works() {
    let shop = Shop::open().await;
    let mut stranger = shop.stranger().await;
    let alive = stranger.ask(Method::GET, "/healthz", &[], "").await;
    assert_eq!((alive.status, alive.text.as_str()), (200, "ok\n"));
    let ready = stranger.ask(Method::GET, "/readyz", &[], "").await.ok(200);
    let all = json!({ "ready": true, "serving": "all", "engine": null, "database": null });
    assert_eq!(ready, all);
    let some = stranger.ask(Method::GET, "/readyz?serving=some", &[], "").await.ok(200);
    assert_eq!(some, all);
    let what = stranger.ask(Method::GET, "/readyz?serving=none", &[], "").await;
    what.problem(422, "invalid_field");
}

#[tokio::test]
async fn the_nodes_and_their_workers_are_shown() {
    let shop = Shop::open().await;
    let shown = shop.admin().await.get("/admin/nodes").await.ok(200);
    assert_eq!(
        (&shown["nodes"][0]["number"], &shown["nodes"][0]["answers"]),
        (&json!(0), &json!(true))
    );
    let workers = shown["workers"].as_array().expect("a list");
    assert!(!workers.is_empty() && workers.iter().all(|one| one["panics"] == 0), "{shown}");
    let names: Vec<_> = workers.iter().map(|one| one["name"].as_str().expect("a name")).collect();
    let page = shop.stranger().await.ask(Method::GET, "/metrics", &[], "").await.text;
    for name in names {
        let line = format!("qiang_worker_panics_total{{worker=\"{name}\"}} 0");
        assert!(page.contains(&line), "{line} is missing from {page}");
    }
    shop.buyer("ann").await.get("/admin/nodes").await.problem(403, "forbidden");
}

#[tokio::test]
async fn metrics_count_what_happened() {
    let shop = Shop::open().await;
    let sale = shop.sale(1, json!({})).await;
    let (mut ann, mut ben) = (shop.buyer("ann").await, shop.buyer("ben").await);
    let id = ann.granted(&sale).await;
    ann.claim(&sale, 1).await.problem(409, "already_claimed");
    ben.claim(&sale, 1).await.problem(410, "sold_out");
    ben.claim(&sale, 1).await.problem(410, "sold_out");
    let path = format!("/sales/{sale}/claims");
    ann.post_as("k", &path, json!({ "quantity": 1 })).await.problem(409, "already_claimed");
    let other = shop.sale(2, json!({ "limit_per_user": 2 })).await;
    let path = format!("/sales/{other}/claims");
    ann.post_as("k", &path, json!({ "quantity": 1 })).await.ok(201);
    let reused = ann.post_as("k", &path, json!({ "quantity": 2 })).await;
    reused.problem(422, "idempotency_key_reused");
    ann.post(&format!("/orders/{id}/pay"), Value::Null).await.ok(200);
    shop.drain().await;
    shop.audit().await;
    let page = shop.stranger().await.ask(Method::GET, "/metrics", &[], "").await;
    assert_eq!(page.status, 200);
    assert_eq!(
        page.header("content-type"),
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    );
    for line in [
        "qiang_claims_total{outcome=\"granted\"} 2",
        "qiang_claims_total{outcome=\"already_claimed\"} 2",
        "qiang_claims_total{outcome=\"idempotency_key_reused\"} 1",
        "qiang_claims_total{outcome=\"failed\"} 0",
        "qiang_claims_total{outcome=\"sold_out\"} 2",
        "qiang_payments_total{outcome=\"paid\"} 1",
        "qiang_claim_seconds_count 7",
        "qiang_engine_up 1",
        "qiang_orders_pending_review 0",
        "qiang_audits_total 1",
        "qiang_audit_differences 0",
    ] {
        assert!(page.text.lines().any(|l| l == line), "{line} is missing from\n{}", page.text);
    }
    // An engine may have several logs.
    for (name, sum) in [
        ("qiang_log_position", 5),
        ("qiang_projection_position", 5),
        ("qiang_projection_lag_events", 0),
    ] {
        let values = page.text.lines().filter_map(|line| line.strip_prefix(name)?.split_once("} "));
        let found: u64 = values.map(|(_, value)| value.parse::<u64>().expect("a number")).sum();
        assert_eq!(found, sum, "{name} in\n{}", page.text);
    }
    for line in page.text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').expect("a name and a value");
        assert!(name.starts_with("qiang_") && value.parse::<f64>().is_ok(), "{line}");
    }
}

#[tokio::test]
async fn the_audit_is_for_admins_and_counts_everything() {
    let shop = Shop::open().await;
    let sale = shop.sale(5, json!({ "flow": "hold" })).await;
    let other = shop.sale(5, json!({ "flow": "instant" })).await;
    let mut ann = shop.buyer("ann").await;
    let id = ann.granted(&sale).await;
    shop.buyer("ben").await.granted(&sale).await;
    shop.buyer("ben").await.granted(&other).await;
    ann.post(&format!("/claims/{id}/order"), Value::Null).await.ok(201);
    ann.post(&format!("/orders/{id}/pay"), Value::Null).await.ok(200);
    shop.callback("twice", &id, 9_900).await.ok(200);
    for (method, path) in [(Method::GET, "/admin/audit"), (Method::POST, "/admin/audit/repair")] {
        ann.refused(method.clone(), path, Value::Null, 403, "forbidden").await;
        let mut nobody = shop.stranger().await;
        nobody.refused(method.clone(), path, Value::Null, 401, "unauthenticated").await;
        let report = shop.admin().await.send(method, path, Value::Null, &[]).await.ok(200);
        for (name, count) in
            [("sales", 2), ("claims", 3), ("orders", 2), ("payments", 1), ("refunds", 1)]
        {
            assert_eq!(report[name], count, "{name}");
        }
        assert_eq!((&report["ok"], &report["differences"]), (&json!(true), &json!([])));
    }
}

#[tokio::test]
async fn the_description_names_every_address() {
    let shop = Shop::open().await;
    let mut stranger = shop.stranger().await;
    let api = stranger.ask(Method::GET, "/openapi.json", &[], "").await.ok(200);
    assert!(api["openapi"].as_str().expect("a version").starts_with("3."));
    let mut described = BTreeSet::new();
    for (path, methods) in api["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            described.insert(without_names(&format!("{} {path}", method.to_uppercase())));
            assert!(operation["responses"].as_object().is_some_and(|all| !all.is_empty()));
            assert!(operation["summary"].as_str().is_some_and(|text| !text.is_empty()), "{path}");
        }
    }
    let written = calls_of(include_str!("../../../../docs/API.md"));
    let missing: Vec<_> = described.difference(&written).collect();
    assert!(missing.is_empty(), "not in the table of docs/API.md: {missing:#?}");
    let unknown: Vec<_> = written.difference(&described).collect();
    assert!(unknown.is_empty(), "in the table of docs/API.md, and no call: {unknown:#?}");
    references_hold(&api, &api);
    for guarded in ["/api/v1/sales/{sale_id}/claims", "/api/v1/orders/{order_id}/cancel"] {
        assert_eq!(
            api["paths"][guarded]["post"]["security"],
            json!([{ "token": [] }, { "session": [] }])
        );
    }
    assert_eq!(api["components"]["securitySchemes"]["token"]["scheme"], "bearer");
}

/// The calls that the first column of a table names: `GET /a`, `GET`/`PUT /b`, `/metrics` (a `GET`).
fn calls_of(page: &str) -> BTreeSet<String> {
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let mut calls = BTreeSet::new();
    for cell in rows.filter_map(|row| row.split('|').nth(1)) {
        let prefix = if cell.contains("(no prefix)") { "" } else { "/api/v1" };
        let mut methods: Vec<&str> = Vec::new();
        for part in cell.split('`').skip(1).step_by(2) {
            let (method, path) = part.split_once(' ').unwrap_or(match part.starts_with('/') {
                true => ("GET", part),
                false => (part, ""),
            });
            methods.push(method);
            if !path.is_empty() {
                let all = methods.drain(..);
                calls.extend(all.map(|method| without_names(&format!("{method} {prefix}{path}"))));
            }
        }
    }
    calls
}

/// A call without the names of its parameters.
fn without_names(call: &str) -> String {
    let mut parts = call.split('{');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| all + "{}" + part.split_once('}').map_or("", |(_, rest)| rest))
}

/// Every `$ref` of a document leads somewhere in it.
fn references_hold(part: &Value, all: &Value) {
    match part {
        Value::Object(members) => {
            for (name, value) in members {
                if let ("$ref", Some(path)) = (name.as_str(), value.as_str()) {
                    let path = path.strip_prefix('#').expect("a place in the same document");
                    assert!(all.pointer(path).is_some(), "{path} leads nowhere");
                }
                references_hold(value, all);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references_hold(item, all)),
        _ => {}
    }
}

#[tokio::test]
async fn the_documentation_needs_nothing_from_elsewhere() {
    let shop = Shop::open().await;
    let mut stranger = shop.stranger().await;
    let moved = stranger.ask(Method::GET, "/docs", &[], "").await;
    assert!((300..400).contains(&moved.status), "{}", moved.status);
    assert_eq!(moved.header("location"), "/docs/");
    let page = stranger.ask(Method::GET, "/docs/", &[], "").await;
    assert_eq!(page.status, 200);
    assert!(page.header("content-type").starts_with("text/html"));
    assert!(page.text.contains("<title>qiang API</title>"), "{}", page.text);
    let assets = page
        .text
        .split(['"', '\''])
        .filter(|text| [".js", ".css", ".png"].iter().any(|end| text.ends_with(end)));
    let assets: Vec<_> = assets.collect();
    assert!(assets.len() >= 4, "{}", page.text);
    for asset in assets {
        let path = asset.strip_prefix("./").unwrap_or(asset);
        assert!(!path.contains("//"), "{path} comes from elsewhere");
        let answer = stranger.ask(Method::GET, &format!("/docs/{path}"), &[], "").await;
        assert!(answer.status == 200 && !answer.text.is_empty(), "{path}: {}", answer.status);
    }
    let start = stranger.ask(Method::GET, "/docs/swagger-initializer.js", &[], "").await;
    assert!(start.text.contains("/openapi.json"), "{}", start.text);
    let errors = stranger.ask(Method::GET, "/docs/errors", &[], "").await;
    for answer in [&page, &start, &errors] {
        assert!(answer.header("content-security-policy").contains("frame-ancestors 'none'"));
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
    }
    assert_eq!((errors.status, errors.header("content-type")), (200, "text/html; charset=utf-8"));
    for code in qiang_app::problem::Code::ALL {
        assert!(errors.text.contains(&format!("id=\"{}\"", code.as_str())), "{code:?}");
    }
    assert!(!errors.text.contains("src=") && !errors.text.contains("<link"));
}

#[tokio::test]
async fn other_addresses_and_methods_are_problems_too() {
    let shop = Shop::open().await;
    let mut ann = shop.buyer("ann").await;
    for path in ["", "/", "/sale", "/sales/1/claims/2", "/packet"] {
        ann.refused(Method::GET, path, Value::Null, 404, "no_such_route").await;
    }
    for (method, path, allowed) in [
        (Method::PUT, "/sales", ["GET", "POST"]),
        (Method::PATCH, "/sales/1", ["GET", "DELETE"]),
        (Method::DELETE, "/current-sale", ["GET", "PUT"]),
    ] {
        ann.refused(method.clone(), path, Value::Null, 405, "method_not_allowed").await;
        let answer = ann.send(method, path, Value::Null, &[]).await;
        for word in allowed {
            assert!(answer.header("allow").contains(word), "{path}: {:?}", answer.header("allow"));
        }
    }
}
