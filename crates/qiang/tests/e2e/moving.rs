//! Sales that are open move to another engine, and go on there as if nothing had happened.

use std::path::Path;
use std::process::Command;

use axum::http::Method;
use qiang_app::secrets::Secrets;
use qiang_engine::redis::hash_tag;
use qiang_engine::{Clock as _, SystemClock};
use qiang_sales::signature;
use qiang_testkit::servers::{Redis, or_skip, redis, shared};
use serde_json::{Value, json};

use crate::person::Person;
use crate::process::{Ended, Process, command};
use crate::shop::{changed, terms_of};

/// A configuration, as the environment has it.
struct Place<'a> {
    folder: &'a Path,
    data: &'a str,
    engine: Option<String>,
}

impl Place<'_> {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = command(self.folder, &[&["--data", self.data], args].concat());
        if let Some(engine) = &self.engine {
            command.env("QIANG_ENGINE__URL", engine);
        }
        command.env("QIANG_LOG__FILTER", "error");
        command
    }

    fn run(&self, args: &[&str]) -> Ended {
        Ended::from(self.command(args).output().expect("the binary runs"))
    }

    #[track_caller]
    fn does(&self, args: &[&str]) -> String {
        let ended = self.run(args);
        assert_eq!(ended.code, Some(0), "{args:?}: {}", ended.stderr);
        ended.stdout
    }

    fn serve(&self) -> Process {
        Process::start(&mut self.command(&[])).expect("it starts")
    }

    async fn person(&self, process: &Process, user: &str, role: &str) -> Person {
        let token = self.does(&["tokens", "--user", user, "--role", role]);
        Person::arrive(process.address, Some(token.trim().to_owned())).await
    }

    /// Tells, as the payment provider does, that the usual price of an order has arrived.
    async fn pays(&self, process: &Process, payment: &str, order: &str) -> Value {
        let body =
            json!({ "payment_id": payment, "order_id": order, "amount_cents": 9_900 }).to_string();
        let secrets = Secrets::load_or_create(&self.folder.join(self.data)).expect("made by serve");
        let key = signature::Key::new(&secrets.callback_key);
        let (timestamp, signature) = key.sign(body.as_bytes(), SystemClock.now());
        let headers = [
            (signature::TIMESTAMP_HEADER, &*timestamp),
            (signature::SIGNATURE_HEADER, &*signature),
        ];
        let mut provider = Person::arrive(process.address, None).await;
        provider.ask(Method::POST, "/api/v1/payments/callback", &headers, body).await.ok(200)
    }
}

/// Everything a buyer and an admin can see of the sales.
async fn seen(place: &Place<'_>, process: &Process, sales: &[&str], ids: &[String]) -> Vec<Value> {
    let mut boss = place.person(process, "boss", "admin").await;
    let mut all = Vec::new();
    for sale in sales {
        let mut view = boss.get(&format!("/sales/{sale}")).await.json();
        view.as_object_mut().expect("an object").remove("server_time");
        all.push(view);
    }
    for id in ids {
        all.push(boss.get(&format!("/claims/{id}")).await.ok(200));
    }
    all
}

/// A sale and a packet, as an export writes them: one of three portions was taken.
const SALE_AND_PACKET: &str = r#"{"qiang_export":2}
{"sale":{"id":"71","version":1,"change":"opened","total":2,"closed_at":null,"at":"2026-01-01T00:00:00.000Z","terms":{"title":"Goods","sku":"goods","stock":2,"limit_per_user":1,"limit_by":"user","price_cents":9900,"price_steps":[],"opens_at":"2026-01-01T00:00:00.000Z","closes_at":null,"flow":"order","hold_ms":null,"pay_ms":60000,"reclaim":"allowed","buckets":1}}}
{"sale":{"id":"72","version":1,"change":"opened","total":3,"closed_at":null,"at":"2026-01-01T00:00:00.000Z","terms":{"kind":"packet","title":"Packet","sku":"packet","portions_cents":[5,3,2],"limit_per_user":1,"limit_by":"user","price_cents":0,"price_steps":[],"opens_at":"2026-01-01T00:00:00.000Z","closes_at":null,"flow":"instant","hold_ms":null,"pay_ms":null,"reclaim":"allowed","buckets":1}}}
{"claim":{"kind":"packet","id":"72-1","user":"ann","identity":null,"request":null,"quantity":1,"unit_price_cents":5,"portion":0,"state":"paid","version":1,"created_at":"2026-01-01T00:00:01.000Z","changed_at":"2026-01-01T00:00:01.000Z","hold_until":null,"pay_by":null,"payment":null,"replaces":null,"reason":null}}
{"sales":2,"claims":1,"refunds":0}
"#;

/// A packet moves along, and is no sale there either.
async fn a_packet_moves(engine: Option<String>) {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("in.jsonl"), SALE_AND_PACKET).expect("written");
    let place = Place { folder: folder.path(), data: "one", engine };
    place.does(&["import", "in.jsonl"]);
    let process = place.serve();
    let mut boss = place.person(&process, "boss", "admin").await;
    let listed = boss.get("/sales").await.ok(200);
    let ids: Vec<_> =
        listed["sales"].as_array().expect("a list").iter().map(|s| &s["id"]).collect();
    assert_eq!(ids, ["71"]);
    boss.get("/sales/72").await.problem(404, "no_such_sale");
    boss.get("/claims/72-1").await.problem(404, "no_such_claim");
    let audit = boss.get("/admin/audit").await.ok(200);
    assert_eq!([&audit["ok"], &audit["sales"]], [&json!(true), &json!(1)]);
    assert!(process.terminate().0.success());
    place.does(&["export", "out.jsonl"]);
    let moved = std::fs::read_to_string(folder.path().join("out.jsonl")).expect("it was written");
    let of_packet = |file: &str| -> Vec<Value> {
        let lines = file.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        lines.filter(|line| line["sale"]["id"] == "72" || line["claim"]["id"] == "72-1").collect()
    };
    assert_eq!(of_packet(&moved), of_packet(SALE_AND_PACKET));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_packet_moves_to_a_journal_and_out_of_it() {
    a_packet_moves(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_packet_moves_to_redis_and_out_of_it() {
    let Some(url) = shared::redis() else { return };
    let prefix = format!("packet-{}", std::process::id());
    a_packet_moves(Some(format!("{url}?prefix={prefix}&partitions=8"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_sales_move_to_redis_and_back() {
    let Some(url) = shared::redis() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let here = Place { folder: folder.path(), data: "one", engine: None };
    let prefix = format!("moving-{}", std::process::id());
    let redis = format!("{url}?prefix={prefix}&partitions=8");
    // The same folder: keys and records stay where they are.
    let there = Place { folder: folder.path(), data: "one", engine: Some(redis) };
    let back = Place { folder: folder.path(), data: "two", engine: None };

    let process = here.serve();
    let mut boss = here.person(&process, "boss", "admin").await;
    let held = json!({ "id": "71", "flow": "hold", "limit_per_user": 2 });
    boss.post("/sales", changed(&terms_of(6), &held)).await.ok(201);
    boss.post("/sales", changed(&terms_of(2), &json!({ "id": "72" }))).await.ok(201);
    boss.post_as("more", "/sales/71/restock", json!({ "units": 1 })).await.ok(200);
    let (mut ann, mut ben) =
        (here.person(&process, "ann", "buyer").await, here.person(&process, "ben", "buyer").await);
    let first = ann.post_as("k1", "/sales/71/claims", json!({})).await.ok(201);
    let ordered = ben.granted("71").await;
    ben.post(&format!("/claims/{ordered}/order"), Value::Null).await.ok(201);
    ben.post(&format!("/orders/{ordered}/pay"), Value::Null).await.ok(200);
    let given_up = ben.granted("72").await;
    ben.delete(&format!("/claims/{given_up}")).await.ok(200);
    let ids = [first["claim_id"].as_str().expect("an id").to_owned(), ordered, given_up];
    let before = seen(&here, &process, &["71", "72"], &ids).await;
    assert_eq!(here.run(&["export", "early"]).code, Some(1), "a server is at work");
    assert!(process.terminate().0.success());

    here.does(&["export", "sales.jsonl"]);
    let again = here.run(&["export", "sales.jsonl"]);
    assert!(again.code == Some(1) && again.stderr.contains("sales.jsonl"), "{}", again.stderr);
    there.does(&["import", "sales.jsonl"]);
    let twice = there.run(&["import", "sales.jsonl"]);
    assert!(twice.code == Some(1) && twice.stderr.contains("already"), "{}", twice.stderr);

    let process = there.serve();
    assert_eq!(seen(&there, &process, &["71", "72"], &ids).await, before);
    let (mut ann, mut cyd) = (
        there.person(&process, "ann", "buyer").await,
        there.person(&process, "cyd", "buyer").await,
    );
    // What was asked before is known, limits and stock go on, numbers are not used again.
    let replayed = ann.post_as("k1", "/sales/71/claims", json!({})).await.ok(200);
    assert_eq!(replayed["claim_id"], first["claim_id"]);
    let mut boss = there.person(&process, "boss", "admin").await;
    let restocked = boss.post_as("more", "/sales/71/restock", json!({ "units": 1 })).await.ok(200);
    assert_eq!(restocked["stock"], 7);
    assert_eq!(cyd.claim("71", 2).await.ok(201)["number"], 3);
    cyd.claim("71", 1).await.problem(409, "over_limit");
    assert_eq!(ann.claim("71", 1).await.ok(201)["number"], 4);
    assert_eq!(cyd.granted("72").await, "72-2");
    ann.granted("72").await;
    let mut dan = there.person(&process, "dan", "buyer").await;
    dan.claim("72", 1).await.problem(410, "sold_out");
    let after = seen(&there, &process, &["71", "72"], &ids).await;
    assert_eq!(boss.get("/admin/audit").await.ok(200)["ok"], true);
    assert!(process.terminate().0.success());
    there.does(&["audit"]);

    there.does(&["export", "back.jsonl"]);
    back.does(&["import", "back.jsonl"]);
    let process = back.serve();
    assert_eq!(seen(&back, &process, &["71", "72"], &ids).await, after);
    let mut dan = back.person(&process, "dan", "buyer").await;
    dan.claim("72", 1).await.problem(410, "sold_out");
    assert_eq!(dan.claim("71", 2).await.ok(201)["number"], 5);
    assert!(process.terminate().0.success());
    back.does(&["audit"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_hold_in_a_sale_that_was_to_be_spread_only_where_it_goes() {
    let Some(url) = shared::redis() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let here = Place { folder: folder.path(), data: "one", engine: None };
    let redis = format!("{url}?prefix=spread-{}&partitions=8", std::process::id());
    let there = Place { folder: folder.path(), data: "one", engine: Some(redis) };
    let process = here.serve();
    let mut boss = here.person(&process, "boss", "admin").await;
    let spread = json!({ "id": "81", "buckets": 4 });
    boss.post("/sales", changed(&terms_of(20), &spread)).await.ok(201);
    let users: Vec<String> = (0..8).map(|number| format!("u{number}")).collect();
    for user in &users {
        here.person(&process, user, "buyer").await.granted("81").await;
    }
    assert!(process.terminate().0.success());
    here.does(&["export", "sales.jsonl"]);
    there.does(&["import", "sales.jsonl"]);
    let process = there.serve();
    for user in &users {
        let mut user = there.person(&process, user, "buyer").await;
        user.claim("81", 1).await.problem(409, "already_claimed");
    }
    assert!(process.terminate().0.success());
    there.does(&["audit"]);
}

#[test]
fn sales_are_not_put_beside_what_a_crash_left_half_done() {
    let Some(redis) = or_skip(Redis::start(&redis::Options::default())) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let engine = Some(format!("{}?prefix=torn&partitions=8", redis.url()));
    let there = Place { folder: folder.path(), data: "one", engine };
    there.does(&["audit"]);
    redis
        .command(&["HSET", &format!("torn:{{{}}}:meta", hash_tag(3)), "begun", "1"])
        .expect("it answers");
    let none = "{\"qiang_export\":1}\n{\"sales\":0,\"claims\":0,\"refunds\":0}\n";
    std::fs::write(folder.path().join("none.jsonl"), none).expect("writable");
    let torn = there.run(&["import", "none.jsonl"]);
    assert!(torn.code == Some(1) && torn.stderr.contains("audit --repair"), "{}", torn.stderr);
    there.does(&["audit", "--repair"]);
    there.does(&["import", "none.jsonl"]);
}

/// What a person did to the file, where it is told, and by which words.
const TAMPERED: [(&str, &str, &str, &str); 16] = [
    ("the sale was made smaller", "\"stock\":3", "\"stock\":2", "line 2"),
    ("so was its total", "\"total\":3", "\"total\":2", "line 2"),
    ("a change is missing", "\"version\":2,\"change\"", "\"version\":3,\"change\"", "line 3"),
    ("a number twice", "\"id\":\"91-2\"", "\"id\":\"91-1\"", "line 5"),
    ("a number left out", "\"id\":\"91-3\"", "\"id\":\"91-4\"", "line 6"),
    ("more units than there are", "\"quantity\":1", "\"quantity\":9", "line 4"),
    ("no units", "\"quantity\":1", "\"quantity\":0", "line 4"),
    ("a price below nothing", "\"unit_price_cents\":9", "\"unit_price_cents\":-9", "line 4"),
    ("another price", "\"unit_price_cents\":9", "\"unit_price_cents\":8", "line 4"),
    ("a claim of the future", "\"changed_at\":\"20", "\"changed_at\":\"90", "line 4"),
    ("less than nothing to owe back", "\"amount_cents\":9", "\"amount_cents\":-9", "line 7"),
    ("a state the flow does not know", "\"state\":\"ordered\"", "\"state\":\"held\"", "line 5"),
    ("paid by nothing", "\"payment\":\"p1\"", "\"payment\":null", "line 4"),
    ("released for no reason", "\"reason\":\"gave_up\"", "\"reason\":null", "line 6"),
    ("a limit passed", "\"user\":\"ben\"", "\"user\":\"ann\"", "line 5"),
    (
        "a refund of an order that is not there",
        "\"order\":\"91-1\"",
        "\"order\":\"91-7\"",
        "line 7",
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_against_the_rules_is_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let here = Place { folder: folder.path(), data: "one", engine: None };
    let process = here.serve();
    let mut boss = here.person(&process, "boss", "admin").await;
    let flow = json!({ "id": "91", "flow": "order" });
    boss.post("/sales", changed(&terms_of(3), &flow)).await.ok(201);
    boss.post_as("more", "/sales/91/restock", json!({ "units": 1 })).await.ok(200);
    let mut claims = Vec::new();
    for user in ["ann", "ben", "cyd"] {
        let mut person = here.person(&process, user, "buyer").await;
        claims.push((person.granted("91").await, person));
    }
    let (cyds, mut cyd) = claims.pop().expect("three");
    cyd.delete(&format!("/claims/{cyds}")).await.ok(200);
    for payment in ["p1", "p2"] {
        here.pays(&process, payment, &claims[0].0).await;
    }
    assert!(process.terminate().0.success());
    here.does(&["export", "good.jsonl"]);
    let good = std::fs::read_to_string(folder.path().join("good.jsonl")).expect("readable");
    let there = Place { folder: folder.path(), data: "two", engine: None };
    for (what, was, is, line) in TAMPERED {
        assert!(good.contains(was), "{what}: {was} is not in {good}");
        std::fs::write(folder.path().join("bad.jsonl"), good.replacen(was, is, 1))
            .expect("writable");
        let ended = there.run(&["import", "bad.jsonl"]);
        assert_eq!(ended.code, Some(1), "{what}: {}{}", ended.stdout, ended.stderr);
        let told = format!("{line} of the file, sale 91: ");
        assert!(ended.stderr.contains(&told), "{what}: {}", ended.stderr);
        assert!(!folder.path().join("two").join("journal.db").exists(), "{what}");
    }
    there.does(&["import", "good.jsonl"]);
    there.does(&["audit"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_sent_back_and_the_current_sale_move_along() {
    let folder = tempfile::tempdir().expect("a folder");
    let here = Place { folder: folder.path(), data: "one", engine: None };
    let there = Place { folder: folder.path(), data: "two", engine: None };
    let process = here.serve();
    let mut boss = here.person(&process, "boss", "admin").await;
    boss.post("/sales", changed(&terms_of(2), &json!({ "id": "95" }))).await.ok(201);
    boss.put("/current-sale", json!({ "sale_id": "95" })).await.ok(200);
    let order = here.person(&process, "ann", "buyer").await.granted("95").await;
    for payment in ["p1", "p2", "p3"] {
        here.pays(&process, payment, &order).await;
    }
    boss.post("/admin/refunds/95/p2/settle", Value::Null).await.ok(200);
    let settled = boss.get("/admin/refunds?status=settled").await.ok(200);
    let due = boss.get("/admin/refunds").await.ok(200);
    assert_eq!(due["refunds"][0]["payment_id"], "p3");
    assert!(process.terminate().0.success());
    here.does(&["export", "sales.jsonl"]);

    there.does(&["import", "sales.jsonl"]);
    let process = there.serve();
    let mut boss = there.person(&process, "boss", "admin").await;
    assert_eq!(boss.get("/admin/refunds").await.ok(200), due);
    assert_eq!(boss.get("/admin/refunds?status=settled").await.ok(200), settled);
    assert_eq!(boss.get("/current-sale").await.ok(200)["id"], "95");
    assert!(process.terminate().0.success());
    there.does(&["audit"]);
}

#[test]
fn a_file_of_the_first_format_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = Place { folder: folder.path(), data: "one", engine: None };
    let terms = json!({
        "title": "Phone", "sku": "phone-15", "stock": 1, "limit_per_user": 1, "limit_by": "user",
        "price_cents": 9_900, "price_steps": [], "opens_at": "2026-01-15T08:00:00.000Z",
        "closes_at": null, "flow": "order", "hold_ms": null, "pay_ms": 60_000,
        "reclaim": "allowed", "buckets": 1,
    });
    let sale = json!({ "sale": {
        "id": "9", "version": 1, "change": "opened", "total": 1, "closed_at": null,
        "at": "2026-01-15T08:00:00.000Z", "terms": terms,
    } });
    let claim = json!({ "claim": {
        "id": "9-1", "user": "ann", "identity": null, "request": null, "quantity": 1,
        "unit_price_cents": 9_900, "portion": null, "state": "paid", "version": 2,
        "created_at": "2026-01-15T08:01:00.000Z", "changed_at": "2026-01-15T08:01:30.000Z",
        "hold_until": null, "pay_by": "2026-01-15T08:02:00.000Z", "payment": "p1",
        "replaces": null, "reason": null,
    } });
    let refund = json!({ "refund": {
        "order": "9-1", "payment": "p2", "amount_cents": 9_900, "reason": "already_paid",
        "at": "2026-01-15T08:01:40.000Z",
    } });
    let end = json!({ "sales": 1, "claims": 1, "refunds": 1 });
    let text = format!("{}\n{sale}\n{claim}\n{refund}\n{end}\n", json!({ "qiang_export": 1 }));
    std::fs::write(folder.path().join("old.jsonl"), text).expect("writable");
    place.does(&["import", "old.jsonl"]);
    place.does(&["audit"]);
}

#[test]
fn a_file_that_is_not_whole_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = Place { folder: folder.path(), data: "one", engine: None };
    for (text, told) in [
        ("", "not whole"),
        ("{\"qiang_export\":1}\n", "not whole"),
        ("{\"qiang_export\":9}\n", "format 9"),
        ("{\"qiang_export\":1}\nnonsense\n", "line 2"),
        ("{\"qiang_export\":1}\n{\"sales\":1,\"claims\":0,\"refunds\":0}\n", "not whole"),
    ] {
        std::fs::write(folder.path().join("file"), text).expect("writable");
        let ended = place.run(&["import", "file"]);
        assert!(ended.code == Some(1) && ended.stderr.contains(told), "{told}: {}", ended.stderr);
    }
    assert!(!folder.path().join("one").join("journal.db").exists());
    let ended = place.run(&["import", "nowhere"]);
    assert!(ended.code == Some(1) && ended.stderr.contains("nowhere"), "{}", ended.stderr);
}
