//! Sales that are open move to another engine, and go on there as if nothing had happened.

use std::path::Path;
use std::process::Command;

use qiang_engine::redis::hash_tag;
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
