//! What a console asks of the API: search, who did what, audits with their history, many refunds at
//! once; and who may ask it.

use axum::http::Method;
use qiang_app::token::Role;
use serde_json::{Value, json};

use crate::person::Person;
use crate::shop::{SECOND, START_TEXT, Shop};

/// Reads of the console.
const READS: [&str; 5] =
    ["/admin/claims", "/admin/orders", "/admin/actions", "/admin/audits", "/admin/refunds"];

impl Shop {
    async fn viewer(&self) -> Person {
        self.bearer(self.token("vera", Role::Viewer, None)).await
    }
}

/// The ids in a list.
fn ids(list: &Value, name: &str) -> Vec<String> {
    let list = list.as_array().expect("a list");
    list.iter().map(|one| one[name].as_str().expect("an id").to_owned()).collect()
}

#[tokio::test]
async fn a_viewer_reads_and_changes_nothing_and_a_buyer_does_neither() {
    let shop = Shop::open().await;
    let (mut vera, mut ann) = (shop.viewer().await, shop.buyer("ann").await);
    for path in READS {
        vera.get(path).await.ok(200);
        ann.refused(Method::GET, path, Value::Null, 403, "forbidden").await;
        shop.stranger().await.get(path).await.problem(401, "unauthenticated");
    }
    let settle = json!({ "refunds": [{ "sale_id": "1", "payment_id": "p" }] });
    for (path, body) in [("/admin/audits", Value::Null), ("/admin/refunds/settle", settle)] {
        for person in [&mut vera, &mut ann] {
            person.refused(Method::POST, path, body.clone(), 403, "forbidden").await;
        }
    }
    // What was refused is no change.
    assert_eq!(vera.get("/admin/actions").await.ok(200)["actions"], json!([]));
    assert_eq!(vera.get("/admin/audits").await.ok(200)["audits"], json!([]));
}

#[tokio::test]
async fn claims_and_orders_are_found_by_who_which_what_and_when() {
    let shop = Shop::open().await;
    let first = shop.sale(5, json!({})).await;
    let held = shop.sale(5, json!({ "flow": "hold" })).await;
    let (mut ann, mut ben) = (shop.buyer("ann").await, shop.buyer("ben").await);
    let paid = ann.granted(&first).await;
    ann.post(&format!("/orders/{paid}/pay"), Value::Null).await.ok(200);
    shop.advance(SECOND).await;
    let waiting = ben.granted(&first).await;
    shop.advance(SECOND).await;
    let hold = ann.granted(&held).await;
    let mut vera = shop.viewer().await;
    for (query, expected) in [
        (String::new(), vec![&hold, &waiting, &paid]),
        ("?user=ann".to_owned(), vec![&hold, &paid]),
        (format!("?sale={first}"), vec![&waiting, &paid]),
        ("?state=held".to_owned(), vec![&hold]),
        (format!("?user=ann&sale={first}&state=paid"), vec![&paid]),
        (format!("?id={waiting}"), vec![&waiting]),
        (format!("?id={waiting}&user=ann"), vec![]),
        (format!("?from={START_TEXT}&to=2027-01-15T08:00:00.001Z"), vec![&paid]),
        ("?from=2027-01-15T16:00:01%2B08:00".to_owned(), vec![&hold, &waiting]),
        ("?from=2027-01-15T16:00:01+08:00".to_owned(), vec![&hold, &waiting]),
        ("?user=nobody".to_owned(), vec![]),
    ] {
        let found = vera.get(&format!("/admin/claims{query}")).await.ok(200);
        let expected: Vec<String> = expected.into_iter().cloned().collect();
        assert_eq!(ids(&found["claims"], "claim_id"), expected, "{query}");
        assert_eq!(found["up_to_date"], true);
    }
    for (query, expected) in [
        ("", vec![&waiting, &paid]),
        ("?status=PAID", vec![&paid]),
        ("?user=ben&status=PENDING", vec![&waiting]),
        ("?status=REFUNDED", vec![]),
    ] {
        let found = vera.get(&format!("/admin/orders{query}")).await.ok(200);
        let expected: Vec<String> = expected.into_iter().cloned().collect();
        assert_eq!(ids(&found["orders"], "order_id"), expected, "{query}");
    }
    let mut seen = Vec::new();
    let mut path = "/admin/claims?limit=1".to_owned();
    loop {
        let page = vera.get(&path).await.ok(200);
        seen.extend(ids(&page["claims"], "claim_id"));
        let Some(next) = page["next_before"].as_str() else { break };
        path = format!("/admin/claims?limit=1&before={next}");
    }
    assert_eq!(seen, [hold, waiting, paid]);
}

#[tokio::test]
async fn a_search_that_makes_no_sense_says_why() {
    let shop = Shop::open().await;
    let mut vera = shop.viewer().await;
    for (path, field) in [
        ("/admin/claims?state=PAID", "state"),
        ("/admin/claims?id=12", "id"),
        ("/admin/claims?sale=x", "sale"),
        ("/admin/claims?user=", "user"),
        ("/admin/claims?from=yesterday", "from"),
        ("/admin/claims?to=2027-01-15", "to"),
        ("/admin/claims?before=x", "before"),
        ("/admin/claims?limit=101", "limit"),
        ("/admin/orders?status=paid", "status"),
        ("/admin/orders?limit=0", "limit"),
        ("/admin/actions?from=now", "from"),
        ("/admin/actions?thing=", "thing"),
        ("/admin/actions?before=12-1", "before"),
        ("/admin/audits?limit=51", "limit"),
    ] {
        let problem = vera.get(path).await.problem(422, "invalid_field");
        assert_eq!(problem["field"], field, "{path}: {problem}");
        let detail = problem["detail"].as_str().expect("a sentence");
        assert!(detail.contains("must"), "{path}: {detail}");
    }
    let unknown = vera.get("/admin/claims?color=red").await.problem(422, "invalid_field");
    assert!(unknown["detail"].as_str().expect("a sentence").contains("color"), "{unknown}");
    for (body, field) in [
        (json!({ "refunds": [] }), "refunds"),
        (json!({ "refunds": vec![json!({ "sale_id": "1", "payment_id": "p" }); 101] }), "refunds"),
        (json!({ "refunds": [{ "sale_id": "x", "payment_id": "p" }] }), "refunds[0].sale_id"),
        (json!({ "refunds": [{ "sale_id": "1", "payment_id": "" }] }), "refunds[0].payment_id"),
    ] {
        let problem = shop.admin().await.post("/admin/refunds/settle", body).await;
        assert_eq!(problem.problem(422, "invalid_field")["field"], field);
    }
}

#[tokio::test]
async fn refunds_are_settled_together_and_each_once() {
    let shop = Shop::open().await;
    let sale = shop.sale(5, json!({})).await;
    let mut ann = shop.buyer("ann").await;
    let order = ann.granted(&sale).await;
    ann.post(&format!("/orders/{order}/pay"), Value::Null).await.ok(200);
    for payment in ["twice", "thrice"] {
        shop.callback(payment, &order, 9_900).await.ok(200);
    }
    let name = |payment: &str| json!({ "sale_id": sale, "payment_id": payment });
    let mut boss = shop.admin().await;
    let settle = json!({ "refunds": [name("twice"), name("nothing"), name("twice")] });
    let answer = boss.post("/admin/refunds/settle", settle).await.ok(200);
    let results = answer["results"].as_array().expect("a list");
    let outcomes: Vec<_> =
        results.iter().map(|one| one["outcome"].as_str().expect("a word")).collect();
    assert_eq!(outcomes, ["settled", "no_such_refund", "already_settled"]);
    assert_eq!(results[0]["refund"]["status"], "settled");
    assert_eq!(results[0]["refund"], results[2]["refund"]);
    assert_eq!(results[1].get("refund"), None);
    shop.advance(SECOND).await;
    let settle = json!({ "refunds": [name("twice"), name("thrice")] });
    let again = boss.post("/admin/refunds/settle", settle).await.ok(200);
    assert_eq!(again["results"][0]["outcome"], "already_settled");
    assert_eq!(again["results"][0]["refund"]["settled_at"], START_TEXT);
    assert_eq!(again["results"][1]["outcome"], "settled");
    assert_eq!(boss.get("/admin/refunds").await.ok(200)["refunds"], json!([]));
    shop.audit().await;
}

#[tokio::test]
async fn what_an_admin_changes_is_noted_with_who_what_and_how_it_ended() {
    let shop = Shop::open().await;
    let sale = shop.sale(5, json!({})).await;
    let (mut boss, mut ann) = (shop.admin().await, shop.buyer("ann").await);
    let order = ann.granted(&sale).await;
    shop.advance(SECOND).await;
    ann.post(&format!("/orders/{order}/pay"), Value::Null).await.ok(200);
    let restock = format!("/sales/{sale}/restock");
    boss.post_as("more-1", &restock, json!({ "units": 5 })).await.ok(200);
    let why = json!({ "reason": "到货破损" });
    boss.post(&format!("/admin/orders/{order}/refund"), why).await.ok(200);
    boss.delete(&format!("/sales/{sale}")).await.problem(409, "sale_in_use");
    // Neither a claim nor a look is a change of the shop.
    boss.granted(&sale).await;
    boss.get("/admin/refunds").await.ok(200);
    let page = shop.viewer().await.get("/admin/actions").await.ok(200);
    let told: Vec<Value> = page["actions"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| {
            assert_eq!((&one["user_id"], &one["role"]), (&json!("boss"), &json!("admin")));
            let names = ["method", "route", "thing", "status", "code", "request_id", "note", "at"];
            names.map(|name| one[name].clone()).to_vec().into()
        })
        .collect();
    let (then, now) = (START_TEXT, "2027-01-15T08:00:01.000Z");
    let route = |rest: &str| format!("/api/v1{rest}");
    assert_eq!(
        told,
        [
            json!(["DELETE", route("/sales/{sale_id}"), sale, 409, "sale_in_use", null, null, now]),
            json!([
                "POST",
                route("/admin/orders/{order_id}/refund"),
                order,
                200,
                null,
                null,
                "到货破损",
                now
            ]),
            json!([
                "POST",
                route("/sales/{sale_id}/restock"),
                sale,
                200,
                null,
                "more-1",
                null,
                now
            ]),
            json!(["POST", route("/sales"), sale, 201, null, null, null, then]),
        ]
    );
    for (query, count) in [
        (format!("thing={sale}"), 3),
        ("user=boss".to_owned(), 4),
        ("user=ann".to_owned(), 0),
        (format!("to={now}"), 1),
        (format!("from={now}&limit=2"), 2),
    ] {
        let found = boss.get(&format!("/admin/actions?{query}")).await.ok(200);
        assert_eq!(found["actions"].as_array().expect("a list").len(), count, "{query}");
    }
    let first = boss.get("/admin/actions?limit=3").await.ok(200);
    let next = first["next_before"].as_str().expect("there is more");
    let rest = boss.get(&format!("/admin/actions?limit=3&before={next}")).await.ok(200);
    assert_eq!(rest["actions"][0]["route"], "/api/v1/sales");
    assert_eq!(rest.get("next_before"), None);
}

#[tokio::test]
async fn audits_are_kept_with_who_ran_them() {
    let shop = Shop::with(&[("QIANG_AUDIT__KEEP", "2")]).await;
    let sale = shop.sale(5, json!({})).await;
    shop.buyer("ann").await.granted(&sale).await;
    let (mut boss, mut vera) = (shop.admin().await, shop.viewer().await);
    let audit = boss.post("/admin/audits", Value::Null).await.ok(201);
    for (name, expected) in [
        ("result", json!("agree")),
        ("how", json!("asked")),
        ("user_id", json!("boss")),
        ("at", json!(START_TEXT)),
        ("sales", json!(1)),
        ("claims", json!(1)),
        ("difference_count", json!(0)),
        ("differences", json!([])),
        ("error", Value::Null),
    ] {
        assert_eq!(audit[name], expected, "{name}");
    }
    let listed = vera.get("/admin/audits").await.ok(200);
    assert_eq!(listed["audits"], json!([audit]));
    // A look is not kept.
    vera.get("/admin/audit").await.ok(200);
    shop.advance(SECOND).await;
    boss.post("/admin/audit/repair", Value::Null).await.ok(200);
    shop.advance(SECOND).await;
    boss.post("/admin/audits", Value::Null).await.ok(201);
    let first = vera.get("/admin/audits?limit=1").await.ok(200);
    assert_eq!(first["audits"][0]["how"], "asked");
    let next = first["next_before"].as_str().expect("there is more");
    let rest = vera.get(&format!("/admin/audits?limit=5&before={next}")).await.ok(200);
    let kept: Vec<_> =
        rest["audits"].as_array().expect("a list").iter().map(|one| &one["how"]).collect();
    assert_eq!(kept, [&json!("repair")], "only two are kept");
}
