//! An event that cannot be recorded keeps nobody waiting, is tried again, becomes a dead letter, and
//! is completed or given up by a person, once.
//!
//! What cannot be recorded is made by a constraint that somebody else has put on a table.

use std::time::Duration;

use axum::http::Method;
use qiang_app::token::Role;
use qiang_sales::records::{Records, Rules};
use qiang_store::RECORDS;
use qiang_store::jobs::Take;
use qiang_store::retries::RetryState;
use serde_json::{Value, json};

use crate::process::run;
use crate::shop::Shop;

/// As long as any of these tests waits for something to come true.
const PATIENCE: Duration = Duration::from_secs(60);

/// Makes the records refuse every claim of a user, or take them again. Only on SQLite, where the tests
/// can write to the records behind the server's back.
fn refuse(shop: &Shop, user: &str) {
    tamper(
        shop,
        &format!(
            "CREATE TRIGGER poison_{user} BEFORE INSERT ON claims WHEN NEW.user_id = '{user}'
             BEGIN SELECT RAISE(ABORT, 'poison'); END"
        ),
    );
}

fn take_again(shop: &Shop, user: &str) {
    tamper(shop, &format!("DROP TRIGGER poison_{user}"));
}

fn tamper(shop: &Shop, sql: &str) {
    let db = rusqlite::Connection::open(shop.folder().join("qiang.db")).expect("the records");
    db.busy_timeout(Duration::from_secs(10)).expect("a connection");
    db.execute(sql, []).expect(sql);
}

/// On other databases the store's own tests do the same.
fn on_sqlite() -> bool {
    matches!(std::env::var("QIANG_E2E_DATABASE").as_deref(), Err(_) | Ok("" | "sqlite"))
}

/// Tries everything that is set aside, now, with the retries that are usual.
async fn try_all(shop: &Shop) -> u64 {
    let app = &shop.server.app;
    let records = Records::new(&app.engine, &app.store, Rules::default());
    records.retry_due(Take::Any).await.expect("the records work")
}

/// Tries what is set aside until it is dead.
async fn until_dead(shop: &Shop, event: &str) {
    let watch = tokio::time::timeout(PATIENCE, async {
        while state(shop, event).await != Some(RetryState::Dead) {
            try_all(shop).await;
            tokio::task::yield_now().await;
        }
    });
    watch.await.expect("it dies");
}

async fn state(shop: &Shop, event: &str) -> Option<RetryState> {
    let found = shop.server.app.store.retry(RECORDS, event).await.expect("readable");
    found.map(|retry| retry.state)
}

/// Waits until an event stands so.
async fn stands(shop: &Shop, event: &str, wanted: RetryState) {
    let watch = tokio::time::timeout(PATIENCE, async {
        while state(shop, event).await != Some(wanted) {
            tokio::task::yield_now().await;
        }
    });
    watch.await.unwrap_or_else(|_| panic!("{event} is never {wanted:?}"));
}

async fn orders_of(shop: &Shop, user: &str) -> usize {
    let orders = shop.buyer(user).await.get("/orders").await.ok(200);
    orders["orders"].as_array().expect("a list").len()
}

#[tokio::test]
async fn p37_one_bad_event_is_set_aside_and_nobody_waits_behind_it() {
    if !on_sqlite() {
        return;
    }
    let shop = Shop::open().await;
    let sale = shop.sale(100, json!({})).await;
    shop.drain().await;
    refuse(&shop, "bad");
    for number in 0..40 {
        shop.buyer(&format!("u{number}")).await.granted(&sale).await;
        if number == 20 {
            shop.buyer("bad").await.granted(&sale).await;
        }
    }
    shop.drain().await;
    for number in 0..40 {
        assert_eq!(orders_of(&shop, &format!("u{number}")).await, 1, "u{number}");
    }
    assert_eq!(orders_of(&shop, "bad").await, 0);
    let event = format!("{sale}-22_1");
    assert!(matches!(state(&shop, &event).await, Some(RetryState::Waiting | RetryState::Dead)));
    let report = shop.audit().await;
    let aside = |name: &str| report[name].as_u64().expect("a count");
    assert_eq!(aside("pending_retries") + aside("dead_letters"), 1, "{report:#}");

    // Once nothing stands in its way it is recorded by itself, or when a person asks.
    take_again(&shop, "bad");
    if state(&shop, &event).await == Some(RetryState::Dead) {
        let path = format!("/admin/dead-letters/{event}/retry");
        shop.admin().await.post(&path, Value::Null).await.ok(200);
    }
    try_all(&shop).await;
    stands(&shop, &event, RetryState::Resolved).await;
    assert_eq!(orders_of(&shop, "bad").await, 1);
    let report = shop.audit().await;
    assert_eq!([&report["pending_retries"], &report["dead_letters"]], [0, 0], "{report:#}");
}

#[tokio::test]
async fn p31_what_waits_for_its_next_attempt_blocks_nobody_and_a_newer_version_resolves_it() {
    if !on_sqlite() {
        return;
    }
    let shop = Shop::open().await;
    let sale = shop.sale(100, json!({ "flow": "hold" })).await;
    shop.drain().await;
    refuse(&shop, "bad");
    let mut bad = shop.buyer("bad").await;
    let claim = bad.granted(&sale).await;
    shop.drain().await;
    let mut good = shop.buyer("good").await;
    let other = good.granted(&sale).await;
    good.post(&format!("/claims/{other}/order"), Value::Null).await.ok(201);
    shop.drain().await;
    assert_eq!(orders_of(&shop, "good").await, 1, "it did not wait for the other's next attempt");
    until_dead(&shop, &format!("{claim}_1")).await;
    take_again(&shop, "bad");
    bad.post(&format!("/claims/{claim}/order"), Value::Null).await.ok(201);
    shop.drain().await;
    try_all(&shop).await;
    stands(&shop, &format!("{claim}_1"), RetryState::Resolved).await;
    let report = shop.audit().await;
    assert_eq!(report["dead_letters"], 0);
}

#[tokio::test]
async fn p30_discarding_a_dead_letter_gives_the_unit_back_once() {
    if !on_sqlite() {
        return;
    }
    let shop = Shop::open().await;
    let sale = shop.sale(2, json!({})).await;
    shop.drain().await;
    refuse(&shop, "open");
    refuse(&shop, "paid");
    let open = shop.buyer("open").await.granted(&sale).await;
    let paid = shop.buyer("paid").await.granted(&sale).await;
    shop.callback("p1", &paid, 9_900).await.ok(200);
    shop.drain().await;
    assert_eq!(shop.tally(&sale).await, [0, 0, 1, 1]);
    let (open_event, paid_event) = (format!("{open}_1"), format!("{paid}_2"));
    for event in [&open_event, &format!("{paid}_1"), &paid_event] {
        until_dead(&shop, event).await;
    }
    let mut boss = shop.admin().await;
    let looked = tokio::time::timeout(PATIENCE, async {
        while boss.get(&format!("/claims/{open}")).await.ok(200)["review"] != "pending" {
            tokio::task::yield_now().await;
        }
    });
    looked.await.expect("whoever looks at the claim is told");
    assert_eq!(boss.get(&format!("/orders/{paid}")).await.ok(200)["review"], "pending");
    let discard = |event: &str| format!("/admin/dead-letters/{event}/discard");
    let answer = boss.post(&discard(&open_event), Value::Null).await.ok(200);
    assert_eq!([&answer["state"], &answer["compensation"]], ["discarded", "released"]);
    assert_eq!(shop.tally(&sale).await, [1, 0, 0, 1]);
    // Asked again, by whoever got no answer: nothing more happens.
    assert_eq!(boss.post(&discard(&open_event), Value::Null).await.ok(200), answer);
    assert_eq!(shop.tally(&sale).await, [1, 0, 0, 1]);

    // The unit is sold again, and giving the old claim up once more takes nothing from the new one.
    let again = shop.buyer("new").await.granted(&sale).await;
    assert_ne!(again, open);
    assert_eq!(boss.post(&discard(&open_event), Value::Null).await.ok(200), answer);
    assert_eq!(shop.tally(&sale).await, [0, 0, 1, 1]);

    // A paid one is taken back, and its money is owed back.
    let answer = boss.post(&discard(&paid_event), Value::Null).await.ok(200);
    assert_eq!([&answer["state"], &answer["compensation"]], ["discarded", "revoked"]);
    assert_eq!(shop.tally(&sale).await, [1, 0, 1, 0]);

    // The releases cannot be recorded either, until nothing stands in their way.
    take_again(&shop, "open");
    take_again(&shop, "paid");
    shop.drain().await;
    let mut tries = 0;
    while shop.server.app.store.retry_counts().await.expect("readable").waiting > 0 {
        tries += 1;
        assert!(tries < 100, "something waits for ever");
        try_all(&shop).await;
    }
    boss.post("/admin/dead-letters/retry", json!({})).await.ok(200);
    while shop.server.app.store.retry_counts().await.expect("readable").waiting > 0 {
        try_all(&shop).await;
    }
    let refunds = boss.get("/admin/refunds").await.ok(200);
    let refunds = refunds["refunds"].as_array().expect("a list");
    assert_eq!(refunds.len(), 1, "{refunds:?}");
    assert_eq!([&refunds[0]["payment_id"], &refunds[0]["reason"]], ["p1", "revoked"]);
    let report = shop.audit().await;
    assert_eq!([&report["dead_letters"], &report["pending_retries"]], [0, 0], "{report:#}");
}

#[tokio::test]
async fn p30_a_discard_that_was_cut_off_is_finished_by_somebody_else() {
    if !on_sqlite() {
        return;
    }
    let shop = Shop::open().await;
    let sale = shop.sale(1, json!({})).await;
    shop.drain().await;
    refuse(&shop, "bad");
    let claim = shop.buyer("bad").await.granted(&sale).await;
    shop.drain().await;
    let event = format!("{claim}_1");
    until_dead(&shop, &event).await;
    // Killed behind its first step: nothing is undone yet, and nobody tries it any more.
    let begun = shop.server.app.store.begin_discarding(RECORDS, &event).await.expect("begun");
    assert!(begun.is_some());
    let shop = shop.restart(|_| {}).await;
    stands(&shop, &event, RetryState::Discarded).await;
    assert_eq!(shop.tally(&sale).await, [1, 0, 0, 0]);
    // Killed behind its second: the claim is given back, and nobody has noted it.
    tamper(&shop, "UPDATE retries SET state = 'discarding', outcome = NULL");
    let shop = shop.restart(|_| {}).await;
    stands(&shop, &event, RetryState::Discarded).await;
    assert_eq!(shop.tally(&sale).await, [1, 0, 0, 0], "once");
    let path = format!("/admin/dead-letters/{event}");
    assert_eq!(shop.admin().await.get(&path).await.ok(200)["compensation"], "released");
}

#[tokio::test]
async fn p02_a_sale_with_an_event_that_is_not_recorded_is_not_cleared() {
    if !on_sqlite() {
        return;
    }
    let shop = Shop::open().await;
    let sale = shop.sale(1, json!({})).await;
    shop.drain().await;
    refuse(&shop, "bad");
    let claim = shop.buyer("bad").await.granted(&sale).await;
    shop.buyer("bad").await.post(&format!("/orders/{claim}/cancel"), Value::Null).await.ok(200);
    let mut boss = shop.admin().await;
    boss.post(&format!("/sales/{sale}/close"), Value::Null).await.ok(200);
    let path = format!("/sales/{sale}");
    let problem = boss.refused(Method::DELETE, &path, Value::Null, 409, "sale_in_use").await;
    assert!(problem["detail"].as_str().expect("why").contains("dead-letters"), "{problem}");
    take_again(&shop, "bad");
    while shop.server.app.store.retry_counts().await.expect("readable").waiting > 0 {
        try_all(&shop).await;
    }
    boss.delete(&path).await.ok(200);
}

#[tokio::test]
async fn p35_a_database_that_is_away_makes_no_dead_letters() {
    // An engine in the same file would be away, too.
    if !on_sqlite() || std::env::var("QIANG_E2E_ENGINE").as_deref() == Ok("sql") {
        return;
    }
    let shop = Shop::open().await;
    let sale = shop.sale(100, json!({})).await;
    shop.drain().await;
    // Somebody else holds the records for longer than anyone waits for a lock.
    let db = rusqlite::Connection::open(shop.folder().join("qiang.db")).expect("the records");
    db.busy_timeout(Duration::from_secs(10)).expect("a connection");
    db.execute_batch("BEGIN EXCLUSIVE").expect("locked");
    for number in 0..20 {
        shop.buyer(&format!("u{number}")).await.granted(&sale).await;
    }
    let failures = shop.server.app.projection.failures();
    let failing = tokio::time::timeout(PATIENCE, async {
        while shop.server.app.projection.failures() == failures {
            tokio::task::yield_now().await;
        }
    });
    failing.await.expect("the records cannot be written");
    db.execute_batch("ROLLBACK").expect("unlocked");
    shop.drain().await;
    assert_eq!(orders_of(&shop, "u19").await, 1);
    let listed = |state: &str| format!("/admin/dead-letters?state={state}");
    for state in ["waiting", "dead", "resolved"] {
        let listed = shop.admin().await.get(&listed(state)).await.ok(200);
        assert_eq!(listed["dead_letters"], json!([]), "{state}");
    }
    shop.audit().await;
}

/// The drill: with two the third attempt succeeds, with three the fourth, with four none.
#[tokio::test(flavor = "multi_thread")]
async fn a_drill_fails_as_often_as_it_says() {
    for (fail_count, attempts, dies) in [("2", 3, false), ("3", 4, false), ("4", 4, true)] {
        let shop = Shop::with(&[("QIANG_FORCE_CONSUME_FAIL_COUNT", fail_count)]).await;
        let ready = shop.stranger().await.ask(Method::GET, "/readyz", &[], "").await;
        let drill = ready.json()["drill"].as_str().expect("it is said loudly").to_owned();
        assert!(drill.contains("QIANG_FORCE_CONSUME_FAIL_COUNT"), "{drill}");
        let sale = shop.sale(5, json!({})).await;
        let claim = shop.buyer("ann").await.granted(&sale).await;
        let event = format!("{claim}_1");
        let end = if dies { RetryState::Dead } else { RetryState::Resolved };
        stands(&shop, &event, end).await;
        let retry = shop.server.app.store.retry(RECORDS, &event).await.expect("readable");
        assert_eq!(retry.expect("it was set aside").attempts, attempts, "{fail_count}");
        if dies {
            stands(&shop, &format!("{sale}_1"), RetryState::Dead).await;
            let (token, url) = (shop.token("boss", Role::Admin, None), shop.server.url());
            let dlq = |args: &[&str]| {
                run(shop.folder(), &[&["dlq", "--url", &url, "--token", &token], args].concat())
            };
            let listed = dlq(&["list"]);
            assert_eq!((listed.code, listed.stdout.lines().count()), (Some(0), 2), "{listed:?}");
            let shown = dlq(&["show", &event]);
            let shown: Value = serde_json::from_str(&shown.stdout).expect("JSON");
            assert_eq!(shown["event"]["type"], "qiang.claim.granted.v1");
            assert_eq!(dlq(&["retry", "--all"]).code, Some(0));
            stands(&shop, &event, RetryState::Resolved).await;
        }
        assert_eq!(orders_of(&shop, "ann").await, 1);
        shop.audit().await;
    }
}

#[tokio::test]
async fn who_asks_wrongly_is_told_what_is_wrong() {
    let shop = Shop::open().await;
    let mut boss = shop.admin().await;
    for path in ["/admin/dead-letters/12-1_1/retry", "/admin/dead-letters/12-1_1/discard"] {
        boss.refused(Method::POST, path, Value::Null, 404, "no_such_dead_letter").await;
    }
    let path = "/admin/dead-letters/12-1_1";
    boss.refused(Method::GET, path, Value::Null, 404, "no_such_dead_letter").await;
    for (query, field) in
        [("state=gone", "state"), ("kind=x", "kind"), ("after=1", "after"), ("limit=101", "limit")]
    {
        let path = format!("/admin/dead-letters?{query}");
        let problem = boss.refused(Method::GET, &path, Value::Null, 422, "invalid_field").await;
        assert_eq!(problem["field"], field);
    }
    let body = json!({ "since": "yesterday" });
    boss.refused(Method::POST, "/admin/dead-letters/retry", body, 422, "invalid_field").await;
    let mut viewer = shop.bearer(shop.token("vera", Role::Viewer, None)).await;
    viewer.get("/admin/dead-letters").await.ok(200);
    let path = "/admin/dead-letters/retry";
    viewer.refused(Method::POST, path, Value::Null, 403, "forbidden").await;
}
