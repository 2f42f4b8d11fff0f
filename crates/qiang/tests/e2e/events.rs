//! `GET /events` and `qiang events`: everything that happened, in order, once, and nothing secret.

use axum::http::Method;
use qiang_app::token::Role;
use serde_json::{Value, json};

use crate::process::run;
use crate::shop::{MINUTE, SECOND, Shop};

const KEPT: [(&str, &str); 1] = [("QIANG_DELIVERY__KEEP_EVENTS_HOURS", "24")];

/// Waits until everything decided is in the feed.
async fn fed(shop: &Shop) {
    let positions = shop.server.app.engine.positions().await.expect("the engine works");
    let feed = shop.server.domains.delivery.feed().expect("events are kept");
    feed.reached(&positions).await;
}

/// Every event there is, page by page, and where to go on.
async fn all(shop: &Shop, query: &str) -> (Vec<Value>, String) {
    fed(shop).await;
    let mut boss = shop.admin().await;
    let (mut after, mut found) = ("start".to_owned(), Vec::new());
    loop {
        let page = boss.get(&format!("/events?after={after}&limit=3{query}")).await.ok(200);
        found.extend(page["events"].as_array().expect("a list").iter().cloned());
        after = page["next_after"].as_str().expect("a place").to_owned();
        if page["more"] == false {
            return (found, after);
        }
    }
}

fn types(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().expect("a type")).collect()
}

#[tokio::test]
async fn what_happens_in_a_sale_is_told_in_order_and_once() {
    let shop = Shop::with(&KEPT).await;
    let sale = shop.sale(5, json!({ "flow": "hold" })).await;
    let mut ann = shop.buyer("ann").await;
    let claim = ann.granted(&sale).await;
    ann.post(&format!("/claims/{claim}/order"), Value::Null).await.ok(201);
    shop.callback("p1", &claim, 9_900).await.ok(200);
    shop.buyer("bob").await.granted(&sale).await;
    shop.advance(6 * MINUTE).await;
    let mut boss = shop.admin().await;
    boss.post(&format!("/admin/orders/{claim}/refund"), Value::Null).await.ok(200);
    boss.post(&format!("/sales/{sale}/close"), Value::Null).await.ok(200);

    let (events, next) = all(&shop, &format!("&sale={sale}")).await;
    let of_claim: Vec<Value> =
        events.iter().filter(|event| event["subject"] == *claim).cloned().collect();
    assert_eq!(
        types(&of_claim),
        [
            "qiang.claim.granted.v1",
            "qiang.claim.ordered.v1",
            "qiang.claim.paid.v1",
            "qiang.claim.released.v1",
            "qiang.refund.due.v1"
        ]
    );
    let other: Vec<Value> =
        events.iter().filter(|event| event["subject"] != *claim).cloned().collect();
    assert_eq!(
        types(&other),
        [
            "qiang.pool.opened.v1",
            "qiang.claim.granted.v1",
            "qiang.claim.released.v1",
            "qiang.pool.closed.v1"
        ]
    );
    let (released, refund) = (&of_claim[3]["data"], &of_claim[4]["data"]);
    assert_eq!((&released["release_reason"], &released["version"]), (&json!("revoked"), &json!(4)));
    assert_eq!((&refund["order_id"], &refund["amount_cents"]), (&json!(claim), &json!(9_900)));
    let mut ids: Vec<&str> = events.iter().map(|event| event["id"].as_str().expect("id")).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), events.len(), "each once");

    // Only what comes later, after a restart, too.
    let shop = shop.restart(|_| {}).await;
    let sale = shop.sale(1, json!({})).await;
    fed(&shop).await;
    let later = shop.admin().await.get(&format!("/events?after={next}")).await.ok(200);
    let later = later["events"].as_array().expect("a list");
    assert_eq!(types(later), ["qiang.pool.opened.v1"]);
    assert_eq!(later[0]["partitionkey"], json!(sale));
}

#[tokio::test]
async fn kinds_and_sales_can_be_chosen() {
    let shop = Shop::with(&KEPT).await;
    let (one, two) = (shop.sale(5, json!({})).await, shop.sale(5, json!({})).await);
    for user in ["ann", "bob", "cid"] {
        let mut user = shop.buyer(user).await;
        user.granted(&one).await;
        user.granted(&two).await;
    }
    assert_eq!(all(&shop, "").await.0.len(), 8);
    assert_eq!(all(&shop, &format!("&sale={two}")).await.0.len(), 4);
    assert_eq!(all(&shop, "&kind=claim_granted").await.0.len(), 6);
    let (both, _) = all(&shop, &format!("&kind=pool_opened&sale={one}")).await;
    assert_eq!(both.len(), 1);
    assert_eq!(both[0]["subject"], json!(one));
    assert_eq!(all(&shop, "&kind=refund_due").await.0, Vec::<Value>::new());
}

#[tokio::test]
async fn p71_the_cut_of_an_open_packet_is_not_in_the_feed() {
    let shop = Shop::with(&KEPT).await;
    shop.packet(72, "ann").await;
    let (events, _) = all(&shop, "").await;
    assert_eq!(types(&events), ["qiang.pool.opened.v1", "qiang.claim.granted.v1"]);
    let data = &events[0]["data"];
    assert_eq!((&data["portions"], &data["pool_kind"]), (&json!(3), &json!("packet")));
    let numbers = data.as_object().expect("an object").iter();
    let cents: Vec<_> = numbers.filter(|(name, _)| name.ends_with("_cents")).collect();
    assert!(cents.is_empty(), "{cents:?}");
    assert_eq!(events[1]["data"]["amount_cents"], 5, "what was taken may be told");
}

#[tokio::test]
async fn who_asks_wrongly_is_told_what_is_wrong() {
    let shop = Shop::with(&KEPT).await;
    let mut viewer = shop.bearer(shop.token("vera", Role::Viewer, None)).await;
    viewer.get("/events").await.ok(200);
    shop.buyer("ann").await.refused(Method::GET, "/events", Value::Null, 403, "forbidden").await;
    shop.stranger()
        .await
        .refused(Method::GET, "/events", Value::Null, 401, "unauthenticated")
        .await;
    for (query, field) in [
        ("after=7", "after"),
        ("after=x_1", "after"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("kind=claims", "kind"),
        ("sale=0", "sale"),
        ("sale=12-1", "sale"),
    ] {
        let path = format!("/events?{query}");
        let problem = viewer.refused(Method::GET, &path, Value::Null, 422, "invalid_field").await;
        assert_eq!(problem["field"], field, "{query}");
    }
    for gone in ["1_1", "1767323045678_99"] {
        let path = format!("/events?after={gone}");
        viewer.refused(Method::GET, &path, Value::Null, 410, "cursor_too_old").await;
    }
}

#[tokio::test]
async fn a_feed_that_was_off_says_that_something_is_missing() {
    let shop = Shop::open().await;
    let path = "/events";
    shop.admin().await.refused(Method::GET, path, Value::Null, 403, "events_disabled").await;
    let shop = shop.restart_with(&KEPT).await;
    shop.sale(1, json!({})).await;
    let (events, next) = all(&shop, "").await;
    assert_eq!(events.len(), 1);
    let shop = shop.restart_with(&[]).await;
    shop.advance(SECOND).await;
    let unseen = shop.sale(1, json!({})).await;
    shop.drain().await;
    assert_eq!(shop.server.app.store.consumers().await.expect("readable"), ["records"]);
    let shop = shop.restart_with(&KEPT).await;
    let path = format!("/events?after={next}");
    shop.admin().await.refused(Method::GET, &path, Value::Null, 410, "cursor_too_old").await;
    shop.advance(SECOND).await;
    let seen = shop.sale(1, json!({})).await;
    let (events, _) = all(&shop, "").await;
    let subjects: Vec<&Value> = events.iter().map(|event| &event["subject"]).collect();
    assert_eq!(subjects, [&json!(seen)], "not {unseen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_prints_a_line_for_each_event() {
    let shop = Shop::with(&KEPT).await;
    let sale = shop.sale(2, json!({})).await;
    shop.buyer("ann").await.granted(&sale).await;
    fed(&shop).await;
    let (token, url) = (shop.token("boss", Role::Admin, None), shop.server.url());
    let events = |args: &[&str]| {
        run(shop.folder(), &[&["events", "--url", &url, "--token", &token], args].concat())
    };
    let ended = events(&[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let lines: Vec<Value> =
        ended.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(types(&lines), ["qiang.pool.opened.v1", "qiang.claim.granted.v1"]);
    let next = ended.stderr.rsplit_once("--after ").expect("where to go on").1.trim();
    let ended = events(&["--after", next]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""));
    let ended = events(&["--kind", "claim_granted", "--sale", &sale]);
    assert_eq!(ended.stdout.lines().count(), 1);
    let ended = events(&["--after", "1_1"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("cursor_too_old"), "{ended:?}");
}
