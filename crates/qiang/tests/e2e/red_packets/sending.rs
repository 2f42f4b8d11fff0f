//! Sending: funded first, once for each key, within the limits, checked before anything moves.

use qiang_store::jobs::JobState;
use qiang_store::packets::OPEN_JOB;
use serde_json::{Value, json};

use super::{becomes, grab, grabs, has, in_packet, look, lucky, pool, rich, send, top_up};
use crate::shop::{Shop, changed};

#[tokio::test]
async fn a_packet_is_sent_with_everything_it_can_have() {
    let shop = Shop::open().await;
    let mut ann = rich(&shop, "ann").await;
    let body = lucky(&json!({
        "greeting": "恭喜发财，大吉大利", "cover": "dragon", "to": ["bob", "ann"], "password": "芝麻开门",
        "expire_secs": 60,
    }));
    let sent = ann.post_as("k", "/packets", body.clone()).await.ok(201);
    let expected = json!({
        "sender": "ann", "kind": "lucky", "greeting": "恭喜发财，大吉大利", "cover": "dragon",
        "shares": 5, "status": "open", "has_password": true, "is_for_named": true, "nonce": "",
        "total_cents": 1_000, "left_cents": 1_000, "refunded_cents": 0, "grabs": [],
        "created_at": "2027-01-15T08:00:00.000Z", "expires_at": "2027-01-15T08:01:00.000Z",
    });
    for (name, value) in expected.as_object().expect("an object") {
        assert_eq!(sent[name], *value, "{name}: {sent:#}");
    }
    assert!(!sent.to_string().contains("芝麻开门"));
    assert_eq!(has(&mut ann).await, 99_000);
    let id = sent["packet_id"].as_str().expect("an id");
    assert_eq!(in_packet(&shop, id).await, 1_000);
    // Asking again with the same key is not sending twice; with anything else it is a mistake.
    assert_eq!(ann.post_as("k", "/packets", body.clone()).await.ok(200), sent);
    for other in [
        json!({ "total_cents": 999 }),
        json!({ "password": "芝麻关门" }),
        json!({ "password": null }),
    ] {
        let other = changed(&body, &other);
        ann.post_as("k", "/packets", other).await.problem(422, "idempotency_key_reused");
    }
    assert_eq!(has(&mut ann).await, 99_000);
    // The job that was enqueued with it finds nothing to do.
    let store = &shop.server.app.store;
    while store.job(OPEN_JOB, &pool(id).to_string()).await.expect("readable").expect("a job").state
        != JobState::Done
    {
        tokio::task::yield_now().await;
    }
    assert_eq!(look(&mut ann, id).await["status"], "open");
}

#[tokio::test]
async fn p43_a_packet_is_paid_for_before_it_can_be_grabbed() {
    let shop = Shop::open().await;
    let (mut ann, mut bob) = (shop.buyer("ann").await, shop.buyer("bob").await);
    top_up(&shop, "ann", 999).await;
    let refused = ann.post_as("a", "/packets", lucky(&json!({}))).await;
    assert_eq!(refused.problem(409, "insufficient_funds")["available_cents"], 999);
    let sent = ann.get("/packets?box=sent").await.ok(200);
    assert_eq!((&sent["count"], &sent["packets"]), (&json!(0), &json!([])));
    assert_eq!(has(&mut ann).await, 999);
    // What was refused is not remembered: with enough money the same key sends.
    let body = json!({ "amount_cents": 1 });
    shop.admin().await.post_as("one", "/accounts/ann/topups", body).await.ok(201);
    let id = send(&mut ann, "a", lucky(&json!({}))).await;
    assert_eq!(has(&mut ann).await, 0);
    let got = grab(&mut bob, &id).await;
    assert_eq!((has(&mut bob).await, in_packet(&shop, &id).await), (got, 1_000 - got));
}

#[tokio::test]
async fn of_two_at_once_that_together_are_too_much_one_is_sent() {
    let shop = Shop::open().await;
    top_up(&shop, "ann", 1_500).await;
    let (mut one, mut two) = (shop.buyer("ann").await, shop.buyer("ann").await);
    let (first, second) = tokio::join!(
        one.post_as("1", "/packets", lucky(&json!({}))),
        two.post_as("2", "/packets", lucky(&json!({}))),
    );
    let mut statuses = [first.status, second.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 409]);
    assert_eq!(has(&mut one).await, 500);
}

#[tokio::test]
async fn what_was_grabbed_can_be_sent_at_once() {
    let shop = Shop::open().await;
    let (mut ann, mut bob) = (rich(&shop, "ann").await, shop.buyer("bob").await);
    let id = send(&mut ann, "a", json!({ "kind": "fixed", "share_cents": 700, "shares": 1 })).await;
    assert_eq!(grab(&mut bob, &id).await, 700);
    send(&mut bob, "b", json!({ "kind": "fixed", "share_cents": 700, "shares": 1 })).await;
    assert_eq!(has(&mut bob).await, 0);
}

#[tokio::test]
async fn what_cannot_be_sent_is_refused_and_costs_nothing() {
    let shop = Shop::open().await;
    let mut ann = rich(&shop, "ann").await;
    for (field, more) in [
        ("kind", json!({ "kind": "even" })),
        ("shares", json!({ "shares": 0 })),
        ("shares", json!({ "shares": 501 })),
        ("shares", json!({ "shares": -1 })),
        ("total_cents", json!({ "total_cents": 4 })),
        ("total_cents", json!({ "total_cents": 0 })),
        ("total_cents", json!({ "total_cents": -5 })),
        ("total_cents", json!({ "total_cents": i64::MAX })),
        ("total_cents", json!({ "total_cents": 100_001 })), // 20,000 for each share in the mean
        ("total_cents", json!({ "total_cents": null })),
        ("share_cents", json!({ "share_cents": 5 })),
        ("share_cents", json!({ "total_cents": null, "share_cents": 5 })),
        ("share_cents", json!({ "kind": "fixed", "total_cents": null, "share_cents": 0 })),
        (
            "share_cents",
            json!({ "kind": "fixed", "total_cents": null, "share_cents": 1_000_000_001 }),
        ),
        ("total_cents", json!({ "kind": "fixed", "total_cents": null, "share_cents": 20_001 })),
        ("total_cents", json!({ "shares": 500, "total_cents": 2_000_001 })),
        ("greeting", json!({ "greeting": "字".repeat(201) })),
        ("greeting", json!({ "greeting": "a\nb" })),
        ("cover", json!({ "cover": "c".repeat(201) })),
        ("to", json!({ "to": [] })),
        ("to", json!({ "to": [""] })),
        ("password", json!({ "password": "" })),
        ("password", json!({ "password": "p".repeat(65) })),
        ("expire_secs", json!({ "expire_secs": 59 })),
        ("expire_secs", json!({ "expire_secs": 86_401 })),
        ("nonce", json!({ "seed_id": "0".repeat(32) })),
        ("seed_id", json!({ "nonce": "00" })),
        ("nonce", json!({ "seed_id": "0".repeat(32), "nonce": "0" })),
        ("nonce", json!({ "seed_id": "0".repeat(32), "nonce": "00".repeat(65) })),
    ] {
        let answer = ann.post_as("k", "/packets", lucky(&more)).await;
        assert_eq!(answer.problem(422, "invalid_field")["field"], field, "{more}");
    }
    let unknown = lucky(&json!({ "currency": "EUR" }));
    ann.post_as("k", "/packets", unknown).await.problem(422, "unknown_field");
    let seed = lucky(&json!({ "seed_id": "0".repeat(32), "nonce": "00" }));
    ann.post_as("k", "/packets", seed).await.problem(404, "no_such_seed");
    ann.post("/packets", lucky(&json!({}))).await.problem(400, "missing_idempotency_key");
    assert_eq!(has(&mut ann).await, 100_000);
    assert_eq!(ann.get("/packets?box=sent").await.ok(200)["count"], 0);
}

#[tokio::test]
async fn p70_a_daily_limit_is_exact_under_concurrency_and_ends_at_the_shops_midnight() {
    let shop = Shop::with(&[
        ("QIANG_PACKETS__MAX_DAY_PACKETS", "3"),
        ("QIANG_PACKETS__TIME_ZONE", "+08:00"),
    ])
    .await;
    rich(&shop, "ann").await;
    let mut sending = tokio::task::JoinSet::new();
    for number in 0..10 {
        let mut ann = shop.buyer("ann").await;
        sending.spawn(async move {
            ann.post_as(&number.to_string(), "/packets", lucky(&json!({}))).await.status
        });
    }
    let mut statuses = sending.join_all().await;
    statuses.sort_unstable();
    assert_eq!(statuses, [vec![201; 3], vec![409; 7]].concat());
    let mut ann = shop.buyer("ann").await;
    let problem = ann.post_as("x", "/packets", lucky(&json!({}))).await.problem(409, "daily_limit");
    assert_eq!(problem["limit"], 3);
    assert_eq!(has(&mut ann).await, 97_000);
    // Others have a day of their own. The start is 16:00 in +08:00: the day ends eight hours later, and
    // not at midnight of UTC.
    let mut bob = rich(&shop, "bob").await;
    send(&mut bob, "b", lucky(&json!({}))).await;
    shop.advance(8 * 3_600_000 - 1).await;
    ann.post_as("x", "/packets", lucky(&json!({}))).await.problem(409, "daily_limit");
    shop.advance(1).await;
    send(&mut ann, "x", lucky(&json!({}))).await;
}

#[tokio::test]
async fn p70_cents_of_a_day_are_counted_in_the_transaction_that_sends() {
    let shop = Shop::with(&[("QIANG_PACKETS__MAX_DAY_CENTS", "2500")]).await;
    let mut ann = rich(&shop, "ann").await;
    send(&mut ann, "1", lucky(&json!({}))).await;
    send(&mut ann, "2", lucky(&json!({}))).await;
    let refused = ann.post_as("3", "/packets", lucky(&json!({}))).await;
    assert_eq!(refused.problem(409, "daily_limit")["limit_cents"], 2_500);
    send(&mut ann, "4", lucky(&json!({ "total_cents": 500 }))).await;
    assert_eq!(has(&mut ann).await, 97_500);
}

#[tokio::test]
async fn neither_side_chooses_the_cut_of_a_packet_with_a_seed_and_a_nonce() {
    let shop = Shop::open().await;
    let (mut ann, mut bob) = (rich(&shop, "ann").await, rich(&shop, "bob").await);
    let seed = ann.post("/packets/seeds", Value::Null).await.ok(201);
    let body = lucky(&json!({ "shares": 1, "seed_id": seed["seed_id"], "nonce": "e681ade5" }));
    bob.post_as("k", "/packets", body.clone()).await.problem(404, "no_such_seed");
    let id = send(&mut ann, "k", body.clone()).await;
    ann.post_as("k", "/packets", body.clone()).await.ok(200);
    ann.post_as("again", "/packets", body).await.problem(404, "no_such_seed");
    grab(&mut ann, &id).await;
    let over = becomes(&mut ann, &id, "empty").await;
    assert_eq!(over["nonce"], "e681ade5");
    let bytes = hex::decode(over["seed"].as_str().expect("a seed")).expect("hex");
    let opened = qiang_core::packets::Seed(bytes.try_into().expect("32 bytes"));
    assert_eq!(seed["seed_hash"], hex::encode(opened.hash()));
}

/// What a process that dies right behind the transaction leaves: nobody has opened the pool.
#[tokio::test]
async fn p43_a_packet_whose_sender_died_opens_by_itself() {
    let shop = Shop::open().await;
    let (mut ann, mut bob) = (rich(&shop, "ann").await, shop.buyer("bob").await);
    let like = send(&mut ann, "k", lucky(&json!({}))).await;
    let app = &shop.server.app;
    let like = app.store.packet(pool(&like)).await.expect("readable").expect("there");
    let packet = qiang_store::packets::Packet {
        pool: app.next_id().expect("an id"),
        request_key: "req:other".to_owned(),
        opened_at: None,
        ..like
    };
    let limits = qiang_store::packets::DayLimits { day: 1, cents: packet.total, packets: 1 };
    let sending = qiang_store::packets::Sending { packet: &packet, limits, seed_id: None };
    let sent = app.store.send_packet(&sending, app.now()).await.expect("written");
    assert_eq!(sent, qiang_store::packets::Sent::Done);
    let id = packet.id();
    let early = bob.post(&grabs(&id), Value::Null).await;
    assert!(early.status == 425 || early.status == 201, "{early:?}");
    becomes(&mut ann, &id, "open").await;
    if early.status == 425 {
        early.problem(425, "not_open_yet");
        grab(&mut bob, &id).await;
    }
}
