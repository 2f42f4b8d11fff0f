//! Who sees what of a packet, the lists of a year, and the check of a finished one.

use serde_json::{Value, json};

use super::{becomes, grab, look, lucky, rich, send};
use crate::process::{Process, command, run};
use crate::shop::{MINUTE, Shop};

#[tokio::test]
async fn who_grabbed_sees_the_grabs_in_order_and_in_the_end_the_best() {
    let shop = Shop::open().await;
    let mut ann = rich(&shop, "ann").await;
    let id = send(&mut ann, "a", lucky(&json!({ "shares": 3 }))).await;
    let mut amounts = Vec::new();
    for user in ["bob", "cat", "dan"] {
        shop.advance(1_000).await;
        let mut user = shop.buyer(user).await;
        amounts.push(grab(&mut user, &id).await);
        let seen = look(&mut user, &id).await;
        assert_eq!(seen["mine"]["amount_cents"], *amounts.last().expect("one"));
        assert_eq!(seen["left_cents"], 1_000 - amounts.iter().sum::<i64>());
    }
    let over = becomes(&mut ann, &id, "empty").await;
    let users: Vec<_> = over["grabs"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|g| (&g["user_id"], &g["amount_cents"]))
        .collect();
    let expected = [json!("bob"), json!("cat"), json!("dan")];
    let expected_amounts: Vec<Value> = amounts.iter().map(|cents| json!(cents)).collect();
    assert_eq!(users, expected.iter().zip(&expected_amounts).collect::<Vec<_>>());
    let most = amounts.iter().max().expect("three");
    let first = amounts.iter().position(|cents| cents == most).expect("there");
    assert_eq!(over["best_luck"], first + 1);
    assert_eq!(over["time_to_empty_ms"], 3_000);
}

#[tokio::test]
async fn a_year_of_packets_is_listed_and_added_up() {
    let shop = Shop::open().await;
    let (mut ann, mut bob) = (rich(&shop, "ann").await, shop.buyer("bob").await);
    let mut got = 0;
    for number in 0..3 {
        shop.advance(1_000).await;
        let body = lucky(&json!({ "greeting": number.to_string() }));
        let id = send(&mut ann, &number.to_string(), body).await;
        got += grab(&mut bob, &id).await;
    }
    let page = ann.get("/packets?box=sent&year=2027&limit=2").await.ok(200);
    assert_eq!((&page["count"], &page["total_cents"]), (&json!(3), &json!(3_000)));
    let lines = page["packets"].as_array().expect("a list");
    assert_eq!(lines.iter().map(|l| &l["greeting"]).collect::<Vec<_>>(), ["2", "1"]);
    assert_eq!((&lines[0]["status"], &lines[0]["taken"]), (&json!("open"), &json!(1)));
    let next = page["next_after"].as_str().expect("there is more");
    let rest = ann.get(&format!("/packets?box=sent&year=2027&limit=2&after={next}")).await.ok(200);
    assert_eq!(rest["packets"][0]["greeting"], "0");
    assert_eq!((rest["packets"].as_array().map(Vec::len), rest.get("next_after")), (Some(1), None));
    let page = bob.get("/packets?box=received&limit=2").await.ok(200);
    assert_eq!((&page["year"], &page["count"]), (&json!(2027), &json!(3)));
    assert_eq!(page["total_cents"], got);
    assert_eq!(
        (&page["packets"][0]["sender"], &page["packets"][0]["greeting"]),
        (&json!("ann"), &json!("2"))
    );
    let next = page["next_after"].as_str().expect("there is more");
    let rest = bob.get(&format!("/packets?box=received&limit=2&after={next}")).await.ok(200);
    assert_eq!(rest["packets"][0]["greeting"], "0");
    for (path, count) in [("received", 0), ("sent", 3)] {
        assert_eq!(ann.get(&format!("/packets?box={path}")).await.ok(200)["count"], count);
    }
    assert_eq!(ann.get("/packets?box=sent&year=2026").await.ok(200)["count"], 0);
    for bad in [
        "box=other",
        "box=sent&year=1",
        "box=sent&limit=0",
        "box=sent&after=x",
        "box=received&after=1_12",
        "year=2027",
    ] {
        ann.get(&format!("/packets?{bad}")).await.problem(422, "invalid_field");
    }
}

#[tokio::test]
async fn a_finished_packet_is_verified_from_a_file_and_by_its_id() {
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(&mut command(folder.path(), &[])).expect("it starts");
    let ended = run(folder.path(), &["account", "topup", "ann", "5000", "--key", "k"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let again = run(folder.path(), &["account", "topup", "ann", "5000", "--key", "k"]);
    assert_eq!(again.stdout, ended.stdout);
    let token =
        |user: &str| run(folder.path(), &["tokens", "--user", user]).stdout.trim().to_owned();
    let mut ann = crate::person::Person::arrive(process.address, Some(token("ann"))).await;
    let id = send(&mut ann, "a", lucky(&json!({ "shares": 2 }))).await;
    grab(&mut ann, &id).await;
    let early = run(folder.path(), &["verify-packet", &id]);
    assert_eq!(early.code, Some(1));
    assert!(early.stderr.contains("not over yet"), "{}", early.stderr);
    let mut bob = crate::person::Person::arrive(process.address, Some(token("bob"))).await;
    grab(&mut bob, &id).await;
    let over = becomes(&mut bob, &id, "empty").await;
    let ended = run(folder.path(), &["verify-packet", &id]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("2 grabs as the cut says"), "{}", ended.stderr);
    let file = folder.path().join("packet.json");
    std::fs::write(&file, over.to_string()).expect("written");
    assert_eq!(run(folder.path(), &["verify-packet", "packet.json"]).code, Some(0));
    let changed = over.to_string().replace("\"shares\":2", "\"shares\":3");
    std::fs::write(&file, changed).expect("written");
    let ended = run(folder.path(), &["verify-packet", "packet.json"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("commitment"), "{}", ended.stderr);
    assert_eq!(run(folder.path(), &["verify-packet", "nothing.json"]).code, Some(1));
    let shown = run(folder.path(), &["packet", "show", &id]);
    let shown: Value = serde_json::from_str(&shown.stdout).expect("JSON");
    assert_eq!((&shown["status"], &shown["seed"]), (&json!("empty"), &over["seed"]));
    let ended = run(folder.path(), &["account", "show", "ann"]);
    let account: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(account["user_id"], "ann");
    let lines = run(folder.path(), &["account", "entries", "ann", "--limit", "2"]).stdout;
    let kinds: Vec<_> = lines.lines().filter_map(|line| line.split('\t').nth(2)).collect();
    assert_eq!(kinds, ["packet_grab", "packet_sent"]);
    assert!(process.terminate().0.success());
}

#[tokio::test]
async fn a_recycled_packet_shows_its_seed_although_portions_are_left() {
    let shop = Shop::open().await;
    let (mut ann, mut bob) = (rich(&shop, "ann").await, shop.buyer("bob").await);
    let id = send(&mut ann, "a", lucky(&json!({}))).await;
    grab(&mut bob, &id).await;
    assert_eq!(look(&mut bob, &id).await.get("seed"), None);
    shop.advance(30 * MINUTE).await;
    let over = becomes(&mut bob, &id, "recycled").await;
    assert_eq!(over["seed"].as_str().map(str::len), Some(64));
    assert_eq!(over["best_luck"], 1);
}
