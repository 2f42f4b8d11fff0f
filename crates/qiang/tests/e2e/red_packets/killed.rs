//! A server that is killed while packets are sent: each request left nothing, or a packet that opens by
//! itself; never money without a packet, or two packets for one key.

use std::collections::BTreeSet;

use qiang::client::Client;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{becomes, lucky};
use crate::person::Person;
use crate::process::{Process, command, run};

const ROUNDS: usize = 4;
const SENDERS: usize = 4;
const TOTAL: i64 = 1_000;
const BEGIN: i64 = 2_000_000;

fn token(folder: &TempDir, user: &str) -> String {
    run(folder.path(), &["tokens", "--user", user]).stdout.trim().to_owned()
}

/// Sends packets until the server is gone, and tells each key before it is used.
async fn send_until_killed(
    mut person: Client,
    token: String,
    prefix: String,
    tried: tokio::sync::mpsc::UnboundedSender<String>,
) {
    use axum::http::header::{AUTHORIZATION, HeaderValue};
    let body = lucky(&json!({ "greeting": prefix }));
    for number in 0.. {
        let key = format!("{prefix}-{number}");
        let headers = [
            (AUTHORIZATION, HeaderValue::from_str(&token).expect("a header")),
            (qiang_app::extract::IDEMPOTENCY_KEY, HeaderValue::from_str(&key).expect("a header")),
        ];
        let _told = tried.send(key);
        let asked = person.send_json(axum::http::Method::POST, "/api/v1/packets", &headers, &body);
        if asked.await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn p43_a_kill_while_sending_leaves_nothing_or_a_packet_that_opens() {
    let folder = tempfile::tempdir().expect("a folder");
    let serve = || {
        let mut serve = command(folder.path(), &[]);
        serve.env("QIANG_PACKETS__MAX_DAY_PACKETS", "1000000");
        serve.env("QIANG_PACKETS__MAX_DAY_CENTS", "500000000000");
        Process::start(&mut serve).expect("it starts")
    };
    let mut process = serve();
    let ended = run(folder.path(), &["account", "topup", "ann", &BEGIN.to_string()]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let ann = token(&folder, "ann");
    let mut keys = Vec::new();
    for round in 0..ROUNDS {
        let (tried, mut trying) = tokio::sync::mpsc::unbounded_channel();
        let mut crowd = tokio::task::JoinSet::new();
        for sender in 0..SENDERS {
            let person = Client::connect(process.address).await.expect("somebody listens");
            let prefix = format!("{round}-{sender}");
            crowd.spawn(send_until_killed(person, ann.clone(), prefix, tried.clone()));
        }
        drop(tried);
        // Some are answered, and some are at every step of the way.
        for _ in 0..10 * (round + 1) {
            keys.extend(trying.recv().await);
        }
        process.kill();
        crowd.join_all().await;
        while let Some(key) = trying.recv().await {
            keys.push(key);
        }
        process = serve();
    }
    let mut person = Person::arrive(process.address, Some(ann)).await;
    // Whoever got no answer asks again with the same key: the packet that is there, or one now.
    let mut ids = BTreeSet::new();
    for key in &keys {
        let prefix = key.rsplit_once('-').expect("a number").0;
        let body = lucky(&json!({ "greeting": prefix }));
        let answer = person.post_as(key, "/packets", body).await;
        assert!(answer.status == 200 || answer.status == 201, "{answer:?}");
        let id = answer.json()["packet_id"].as_str().expect("an id").to_owned();
        assert!(ids.insert(id), "two keys have one packet");
    }
    let sent = i64::try_from(ids.len()).expect("few");
    let account = person.get("/accounts/me").await.ok(200);
    assert_eq!(account["balance_cents"], BEGIN - sent * TOTAL);
    let listed = person.get("/packets?box=sent").await.ok(200);
    assert_eq!(listed["count"], sent, "a packet for each key, and none besides");
    for id in &ids {
        let open = becomes(&mut person, id, "open").await;
        assert_eq!(open["left_cents"], TOTAL);
        assert_eq!(open["grabs"], Value::Array(Vec::new()));
    }
    let ended = run(folder.path(), &["audit"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(process.terminate().0.success());
}
