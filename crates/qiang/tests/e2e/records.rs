//! The records follow the engine: behind for a moment, never wrong; made anew when they are
//! lost, and mended when somebody else wrote to them.

use axum::http::Method;
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::process::{Ended, run};
use crate::shop::{MINUTE, Shop};

/// A shop with a claim in every state, a late payment of each kind, and all of it recorded.
/// Claims 1 to 6 are held, ordered, paid, released by hand, expired, and in the place of 5.
async fn busy_shop() -> (Shop, String) {
    let shop = Shop::open().await;
    let terms = json!({ "flow": "hold", "limit_per_user": 2, "hold_secs": 3_600 });
    let sale = shop.sale(20, terms).await;
    for number in 1..=5 {
        let mut user = shop.buyer(&format!("u{number}")).await;
        let id = user.granted(&sale).await;
        if number == 5 {
            user.post(&format!("/claims/{id}/order"), Value::Null).await.ok(201);
        }
    }
    shop.advance(30 * MINUTE).await;
    assert_eq!(
        shop.callback("late", &format!("{sale}-5"), 9_900).await.ok(200)["outcome"],
        "regranted"
    );
    for number in [2, 3] {
        let mut user = shop.buyer(&format!("u{number}")).await;
        user.post(&format!("/claims/{sale}-{number}/order"), Value::Null).await.ok(201);
    }
    shop.callback("paid", &format!("{sale}-3"), 9_900).await.ok(200);
    shop.callback("again", &format!("{sale}-3"), 9_900).await.ok(200);
    shop.buyer("u4").await.delete(&format!("/claims/{sale}-4")).await.ok(200);
    shop.admin().await.post(&format!("/sales/{sale}/restock"), json!({ "units": 5 })).await.ok(200);
    shop.drain().await;
    (shop, sale)
}

fn tamper(shop: &Shop, sql: &str) {
    let db = Connection::open(shop.folder().join("qiang.db")).expect("the records");
    db.busy_timeout(std::time::Duration::from_secs(10)).expect("a connection");
    assert!(db.execute(sql, []).expect(sql) > 0, "{sql} changed nothing");
}

/// `qiang audit` against the shop.
fn audit(shop: &Shop, args: &[&str]) -> Ended {
    let token = shop.token("auditor", qiang_app::token::Role::Admin, None);
    let url = shop.server.url();
    run(shop.folder(), &[&["audit", "--url", &url, "--token", &token], args].concat())
}

#[tokio::test]
async fn records_that_were_deleted_are_made_anew_at_the_start() {
    let (shop, sale) = busy_shop().await;
    let before = shop.audit().await;
    let orders = shop.buyer("u3").await.get("/orders").await.ok(200);
    let refunds = shop.admin().await.get("/admin/refunds").await.ok(200);
    let shop = shop
        .restart(|folder| {
            for file in ["qiang.db", "qiang.db-wal", "qiang.db-shm"] {
                // The last two are gone after a clean stop.
                let _gone = std::fs::remove_file(folder.join(file));
            }
        })
        .await;
    shop.drain().await;
    let after = shop.audit().await;
    for count in ["sales", "claims", "orders", "payments", "refunds"] {
        assert_eq!(after[count], before[count], "{count}");
    }
    assert_eq!(shop.buyer("u3").await.get("/orders").await.ok(200), orders);
    assert_eq!(shop.admin().await.get("/admin/refunds").await.ok(200), refunds);
    assert_eq!(shop.tally(&sale).await, [21, 1, 1, 2]);
}

#[tokio::test]
async fn records_made_anew_mark_the_same_orders() {
    let shop = Shop::open().await;
    let mut orders = Vec::new();
    for number in 0..4 {
        let sale = shop.sale(5, json!({})).await;
        orders.push(shop.buyer(&format!("u{number}")).await.granted(&sale).await);
    }
    // Paid in another order than they were opened in.
    for order in [&orders[2], &orders[0], &orders[3]] {
        shop.callback("p", order, 9_900).await.ok(200);
        shop.advance(1_000).await;
    }
    let before = shop.admin().await.get("/admin/reviews").await.ok(200);
    let listed = before["reviews"].as_array().expect("a list");
    let listed: Vec<_> = listed.iter().map(|r| (&r["order_id"], &r["first_order_id"])).collect();
    let order = |number: usize| json!(orders[number]);
    assert_eq!(listed, [(&order(0), &order(2)), (&order(3), &order(2))]);
    let shop = shop
        .restart(|folder| {
            for file in ["qiang.db", "qiang.db-wal", "qiang.db-shm"] {
                let _gone = std::fs::remove_file(folder.join(file));
            }
        })
        .await;
    assert_eq!(shop.admin().await.get("/admin/reviews").await.ok(200), before);
}

#[tokio::test]
async fn records_are_made_anew_even_when_the_log_was_trimmed() {
    let shop = Shop::with(&[("QIANG_ENGINE__SNAPSHOT_BYTES", "65536")]).await;
    let sale = shop.sale(100_000, json!({ "limit_per_user": 100_000 })).await;
    let mut ann = shop.buyer("ann").await;
    let snapshots =
        || shop.server.app.engine.stats().snapshots.load(std::sync::atomic::Ordering::Relaxed);
    let mut claims: u64 = 0;
    while snapshots() < 3 {
        ann.granted(&sale).await;
        claims += 1;
        assert!(claims < 20_000, "no snapshot was finished");
        if claims.is_multiple_of(100) {
            shop.drain().await;
        }
    }
    let oldest = |shop: &Shop| -> u64 {
        let db = Connection::open(shop.folder().join("journal.db")).expect("the journal");
        db.query_row("SELECT min(first_seq) FROM batch", [], |row| row.get(0)).expect("a batch")
    };
    shop.drain().await;
    assert!(oldest(&shop) > 1, "the log was not trimmed");
    let shop = shop
        .restart(|folder| {
            for file in ["qiang.db", "qiang.db-wal", "qiang.db-shm"] {
                let _gone = std::fs::remove_file(folder.join(file));
            }
        })
        .await;
    shop.drain().await;
    assert_eq!(shop.audit().await["claims"], claims);
    assert_eq!(shop.tally(&sale).await, [100_000 - claims, 0, claims, 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_somebody_changed_is_listed_by_its_claim_and_mended() {
    let (shop, sale) = busy_shop().await;
    let of = |number: u32| format!("sale_id = {sale} AND number = {number}");
    for (claim, sql) in [
        (1, format!("UPDATE claims SET quantity = 2 WHERE {}", of(1))),
        (2, format!("UPDATE claims SET user_id = 'eve' WHERE {}", of(2))),
        (2, format!("UPDATE claims SET state = 'paid' WHERE {}", of(2))),
        (3, format!("UPDATE claims SET payment_id = 'other' WHERE {}", of(3))),
        (4, format!("UPDATE claims SET reason = 'cancelled' WHERE {}", of(4))),
        (5, format!("DELETE FROM claims WHERE {}", of(5))),
        (6, format!("UPDATE claims SET replaces = 4 WHERE {}", of(6))),
        (6, format!("UPDATE claims SET version = version + 5 WHERE {}", of(6))),
        (2, format!("UPDATE orders SET status = 'PAID' WHERE {}", of(2))),
        (3, format!("UPDATE orders SET amount_cents = 1 WHERE {}", of(3))),
        (3, format!("DELETE FROM orders WHERE {}", of(3))),
        (3, format!("UPDATE order_items SET quantity = 9 WHERE {}", of(3))),
        (3, format!("DELETE FROM order_items WHERE {}", of(3))),
        (3, format!("UPDATE payments SET amount_cents = 1 WHERE {}", of(3))),
        (3, format!("UPDATE refunds SET amount_cents = 1 WHERE {}", of(3))),
        (3, format!("DELETE FROM refunds WHERE {}", of(3))),
    ] {
        tamper(&shop, &sql);
        let id = format!("{sale}-{claim}");
        let report = shop.admin().await.get("/admin/audit").await.ok(200);
        assert_eq!(report["ok"], false, "{sql}");
        let differences = report["differences"].as_array().expect("a list");
        assert_eq!(report["difference_count"], differences.len());
        assert!(
            differences.iter().any(|one| one["claim_id"] == id && one["book"] == "records"),
            "{sql}: {report:#}"
        );
        let ended = audit(&shop, &[]);
        assert_eq!(ended.code, Some(1), "{sql}: {}", ended.stderr);
        assert!(ended.stdout.contains(&format!("{id}\trecords\t")), "{sql}: {}", ended.stdout);
        let ended = audit(&shop, &["--repair"]);
        assert_eq!(ended.code, Some(0), "{sql}: {}{}", ended.stdout, ended.stderr);
        assert!(ended.stderr.contains("mended"), "{}", ended.stderr);
        shop.audit().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_sale_and_a_lost_payment_are_found_and_mended_too() {
    let (shop, sale) = busy_shop().await;
    for sql in [
        format!("UPDATE sales SET title = 'Other' WHERE id = {sale}"),
        format!("UPDATE sales SET total = 99 WHERE id = {sale}"),
        format!("UPDATE sales SET version = 99, total = 99 WHERE id = {sale}"),
        format!("DELETE FROM payments WHERE sale_id = {sale} AND number = 3"),
    ] {
        tamper(&shop, &sql);
        let ended = audit(&shop, &[]);
        assert_eq!(ended.code, Some(1), "{sql}: {}", ended.stderr);
        assert!(ended.stdout.contains(&sale), "{sql}: {}", ended.stdout);
        let ended = audit(&shop, &["--repair"]);
        assert_eq!(ended.code, Some(0), "{sql}: {}{}", ended.stdout, ended.stderr);
        shop.audit().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_things_that_never_happened_are_listed_and_left_to_a_person() {
    let (shop, sale) = busy_shop().await;
    for (claim, sql, undo) in [
        (
            3,
            "INSERT INTO payments SELECT sale_id, 'invented', number, amount_cents, paid_at
             FROM payments WHERE number = 3",
            "DELETE FROM payments WHERE payment_id = 'invented'",
        ),
        (
            900,
            "INSERT INTO claims SELECT sale_id, 900, user_id, identity, request_id, quantity,
             unit_price_cents, portion, state, version, created_at, changed_at, hold_until, pay_by,
             payment_id, replaces, reason FROM claims WHERE number = 1",
            "DELETE FROM claims WHERE number = 900",
        ),
    ] {
        tamper(&shop, sql);
        for args in [&[][..], &["--repair"]] {
            let ended = audit(&shop, args);
            assert_eq!(ended.code, Some(1), "{sql}: {}", ended.stderr);
            let listed = format!("{sale}-{claim}\trecords\t");
            assert!(ended.stdout.contains(&listed), "{sql}: {}", ended.stdout);
        }
        tamper(&shop, undo);
        shop.audit().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_cannot_be_read_is_named() {
    let (shop, sale) = busy_shop().await;
    tamper(
        &shop,
        &format!("UPDATE claims SET state = 'lost' WHERE sale_id = {sale} AND number = 3"),
    );
    let ended = audit(&shop, &[]);
    assert_eq!(ended.code, Some(1));
    assert!(
        format!("{}{}", ended.stdout, ended.stderr).contains(&format!("{sale}-3")),
        "{ended:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settled_refund_stays_settled_through_a_repair() {
    let (shop, sale) = busy_shop().await;
    let path = format!("/admin/refunds/{sale}/again/settle");
    let settled = shop.admin().await.post(&path, Value::Null).await.ok(200);
    tamper(&shop, &format!("UPDATE claims SET quantity = 2 WHERE sale_id = {sale} AND number = 3"));
    assert_eq!(audit(&shop, &["--repair"]).code, Some(0));
    assert_eq!(shop.admin().await.post(&path, Value::Null).await.ok(200), settled);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_that_are_behind_are_no_difference() {
    let shop = Shop::open().await;
    let sale = shop.sale(100, json!({})).await;
    shop.drain().await;
    let db = Connection::open(shop.folder().join("qiang.db")).expect("the records");
    db.execute_batch("BEGIN IMMEDIATE").expect("nobody writes at the moment");
    let mut ids = Vec::new();
    for number in 0..10 {
        ids.push(shop.buyer(&format!("u{number}")).await.granted(&sale).await);
    }
    // Claims and their orders are there although nothing can be recorded.
    let mut first = shop.buyer("u0").await;
    assert_eq!(first.state(&ids[0]).await, "ordered");
    assert_eq!(first.get(&format!("/orders/{}", ids[0])).await.ok(200)["status"], "PENDING");
    let page = first.ask(Method::GET, "/metrics", &[], "").await.text;
    assert!(page.contains(r#"qiang_projection_lag_events{log="0"} 10"#), "{page}");
    let mut admin = shop.admin().await;
    let auditing = tokio::spawn(async move { admin.get("/admin/audit").await });
    db.execute_batch("ROLLBACK").expect("ours");
    let report = auditing.await.expect("no panic").ok(200);
    assert_eq!((&report["ok"], &report["claims"]), (&json!(true), &json!(10)), "{report:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p02_nothing_unrecorded_is_cleared() {
    let shop = Shop::with(&[
        ("QIANG_HTTP__REQUEST_TIMEOUT_MS", "300"),
        ("QIANG_HTTP__BODY_TIMEOUT_MS", "300"),
    ])
    .await;
    let sale = shop.sale(5, json!({ "flow": "instant" })).await;
    shop.drain().await;
    let db = Connection::open(shop.folder().join("qiang.db")).expect("the records");
    db.execute_batch("BEGIN IMMEDIATE").expect("nobody writes at the moment");
    let mut ann = shop.buyer("ann").await;
    let id = ann.granted(&sale).await;
    let mut admin = shop.admin().await;
    admin.post(&format!("/sales/{sale}/close"), Value::Null).await.ok(200);
    let path = format!("/sales/{sale}");
    let problem = admin.delete(&path).await.problem(503, "unavailable");
    assert!(problem["detail"].as_str().expect("text").contains("nothing was cleared"));
    assert_eq!(shop.view(&sale).await["status"], "closed");
    db.execute_batch("ROLLBACK").expect("ours");
    shop.drain().await;
    assert_eq!(admin.delete(&path).await.ok(200)["status"], "cleared");
    assert_eq!(ann.get(&format!("/orders/{id}")).await.ok(200)["status"], "PAID");
    shop.audit().await;
}
