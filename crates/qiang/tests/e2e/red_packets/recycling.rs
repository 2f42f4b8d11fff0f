//! When its time is over a packet is closed first, and then what is left goes back, once.

use qiang_core::{Command, Outcome};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{becomes, grab, grabs, has, in_packet, look, lucky, pool, rich, send};
use crate::shop::{MINUTE, Shop};

#[tokio::test]
async fn what_is_left_goes_back_when_the_time_is_over() {
    let shop = Shop::open().await;
    let (mut ann, mut bob, mut eve) =
        (rich(&shop, "ann").await, shop.buyer("bob").await, shop.buyer("eve").await);
    let id = send(&mut ann, "a", lucky(&json!({}))).await;
    let untouched = send(&mut ann, "b", lucky(&json!({ "expire_secs": 86_400 }))).await;
    let got = grab(&mut bob, &id).await;
    shop.advance(30 * MINUTE - 1).await;
    assert_eq!(look(&mut ann, &id).await["status"], "open");
    shop.advance(1).await;
    eve.post(&grabs(&id), Value::Null).await.problem(410, "closed");
    let over = becomes(&mut ann, &id, "recycled").await;
    assert_eq!((&over["refunded_cents"], &over["left_cents"]), (&json!(1_000 - got), &json!(0)));
    assert_eq!(has(&mut ann).await, 98_000 + 1_000 - got);
    assert_eq!((has(&mut bob).await, in_packet(&shop, &id).await), (got, 0));
    assert_eq!(look(&mut ann, &untouched).await["status"], "open");
    let entries = ann.get("/accounts/me/entries?limit=1").await.ok(200);
    assert_eq!(entries["entries"][0]["kind"], "packet_refund");
    shop.audit().await;
}

#[tokio::test]
async fn p45_a_packet_that_is_over_is_forgotten_by_the_engine_and_never_comes_back() {
    let shop = Shop::open().await;
    let (mut ann, mut bob, mut eve) =
        (rich(&shop, "ann").await, shop.buyer("bob").await, shop.buyer("eve").await);
    let id = send(&mut ann, "a", lucky(&json!({}))).await;
    let empty = send(&mut ann, "b", lucky(&json!({ "shares": 1 }))).await;
    let (got, all) = (grab(&mut bob, &id).await, grab(&mut bob, &empty).await);
    shop.advance(30 * MINUTE).await;
    becomes(&mut ann, &id, "recycled").await;
    shop.advance(10 * MINUTE).await;
    let app = &shop.server.app;
    for id in [&id, &empty] {
        while app.engine.pool(pool(id)).await.expect("the engine works").is_some() {
            tokio::task::yield_now().await;
        }
    }
    // Everybody is answered as before, out of the records.
    eve.post(&grabs(&id), Value::Null).await.problem(410, "closed");
    eve.post(&grabs(&empty), Value::Null).await.problem(410, "sold_out");
    let had = bob.post(&grabs(&id), Value::Null).await.problem(409, "already_claimed");
    assert_eq!(had["amount_cents"], got);
    assert_eq!(look(&mut bob, &id).await["mine"]["amount_cents"], got);
    assert_eq!(look(&mut ann, &empty).await["status"], "empty");
    // An attempt to open it that comes late opens nothing that could be grabbed.
    let packet = app.store.packet(pool(&id)).await.expect("readable").expect("there");
    let terms = packet.terms().expect("terms");
    let late = app.engine.ask(Command::Open { pool: packet.pool, terms }).await;
    assert!(matches!(late.expect("the engine works").into_pool(), Outcome::Done(_)));
    eve.post(&grabs(&id), Value::Null).await.problem(410, "closed");
    assert_eq!(has(&mut ann).await, 98_000 + 1_000 - got);
    assert_eq!(has(&mut bob).await, got + all);
}

#[tokio::test]
async fn p42_what_goes_back_is_what_nobody_got_however_late_they_grab() {
    let shop = Shop::open().await;
    let mut ann = rich(&shop, "ann").await;
    let mut packets = Vec::new();
    for number in 0..8 {
        let body = lucky(&json!({ "shares": 40, "expire_secs": 60 }));
        packets.push(send(&mut ann, &number.to_string(), body).await);
    }
    let mut crowd = JoinSet::new();
    for number in 0..10 {
        let (mut user, packets) = (shop.buyer(&format!("user-{number}")).await, packets.clone());
        crowd.spawn(async move {
            let mut got = 0;
            for packet in &packets {
                let answer = user.post(&grabs(packet), Value::Null).await;
                match answer.status {
                    201 => got += answer.json()["amount_cents"].as_i64().expect("cents"),
                    _ => drop(answer.problem(410, "closed")),
                }
            }
            (got, has(&mut user).await)
        });
    }
    // The time is over in the middle of it, and two more recyclers work beside the server's own.
    shop.advance(MINUTE).await;
    for _ in 0..2 {
        let recycler = shop.server.domains.accounts.clone();
        crowd.spawn(async move {
            recycler.recycle_now().await.expect("recycled");
            (0, 0)
        });
    }
    let crowd = crowd.join_all().await;
    assert!(crowd.iter().all(|(got, has)| got == has), "{crowd:?}");
    for packet in &packets {
        becomes(&mut ann, packet, "recycled").await;
        assert_eq!(in_packet(&shop, packet).await, 0);
    }
    let got: i64 = crowd.iter().map(|(got, _)| got).sum();
    assert_eq!(has(&mut ann).await, 100_000 - got);
    shop.audit().await;
}

#[tokio::test]
async fn p42_after_a_downtime_it_goes_back_once() {
    let shop = Shop::open().await;
    let (mut ann, mut bob) = (rich(&shop, "ann").await, shop.buyer("bob").await);
    let id = send(&mut ann, "a", lucky(&json!({}))).await;
    let got = grab(&mut bob, &id).await;
    let clock = std::sync::Arc::clone(&shop.clock);
    let shop = shop.restart(|_| clock.advance_millis(24 * 60 * MINUTE)).await;
    let mut ann = shop.buyer("ann").await;
    becomes(&mut ann, &id, "recycled").await;
    assert_eq!(has(&mut ann).await, 100_000 - got);
    let shop = shop.restart(|_| ()).await;
    let mut ann = shop.buyer("ann").await;
    assert_eq!(has(&mut ann).await, 100_000 - got);
    assert_eq!(in_packet(&shop, &id).await, 0);
}
