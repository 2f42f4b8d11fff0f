//! Nothing outside shows a portion that nobody has taken before the packet is over.

use serde_json::{Value, json};

use super::{grab, look, lucky, pool, top_up};
use crate::resp;

/// In the packet.
const TOTAL: i64 = 987_654_321;
/// What only those inside a packet see, and only when it is over.
const INSIDE: [&str; 7] = [
    "total_cents",
    "left_cents",
    "refunded_cents",
    "grabs",
    "best_luck",
    "time_to_empty_ms",
    "seed",
];

#[tokio::test]
async fn p71_the_cut_of_an_open_packet_is_nowhere_to_be_read() {
    // Very large portions, so that none is found by chance among other figures.
    let shop = resp::open_with(&[
        ("QIANG_PACKETS__MAX_PACKET_CENTS", "1000000000"),
        ("QIANG_PACKETS__MAX_SHARE_CENTS", "1000000000"),
        ("QIANG_PACKETS__MAX_DAY_CENTS", "1000000000"),
    ])
    .await;
    top_up(&shop, "ann", TOTAL).await;
    let (mut ann, mut bob, mut eve, mut boss) = (
        shop.buyer("ann").await,
        shop.buyer("bob").await,
        shop.buyer("eve").await,
        shop.admin().await,
    );
    let body = lucky(&json!({ "shares": 5, "total_cents": TOTAL }));
    let sent = ann.post_as("a", "/packets", body).await.ok(201);
    let id = sent["packet_id"].as_str().expect("an id");
    grab(&mut bob, id).await;
    shop.drain().await;
    let packet = shop.server.app.store.packet(pool(id)).await.expect("readable").expect("there");
    let terms = packet.terms().expect("terms");
    let qiang_core::Supply::Portions(cut) = &terms.supply else { panic!("portions") };
    let large = cut.iter().skip(1).filter(|portion| portion.get() >= 1_000_000);
    let mut hidden: Vec<String> = large.map(|portion| portion.get().to_string()).collect();
    hidden.push(hex::encode(packet.seed.0));
    let mut heard = vec![sent.to_string()];
    for person in [&mut ann, &mut bob, &mut eve, &mut boss] {
        heard.push(look(person, id).await.to_string());
        for path in
            ["/packets?box=sent", "/packets?box=received", "/accounts/me/entries", "/accounts/me"]
        {
            heard.push(person.get(path).await.text);
        }
    }
    for path in
        ["/sales", "/admin/audit", "/admin/nodes", "/accounts/ann/entries", "/admin/settings"]
    {
        heard.push(boss.get(path).await.text);
    }
    heard.push(boss.ask(axum::http::Method::GET, "/metrics", &[], "").await.text);
    let (number, mut backend) = (pool(id).to_string(), resp::backend(&shop).await);
    heard.push(backend.say(&["POOL", &number]).await.to_string());
    heard.push(backend.say(&["SHOW", &format!("{number}-1")]).await.to_string());
    heard.push(format!("{packet:?}"));
    for text in &heard {
        for secret in &hidden {
            assert!(!text.contains(secret.as_str()), "{secret} in {text}");
        }
    }
    // Who is not inside sees no total either: less what was taken, it is the last portion.
    for person in [&mut eve, &mut boss] {
        let seen = look(person, id).await;
        assert!(INSIDE.iter().all(|name| seen.get(name).is_none()), "{seen:#}");
        assert_eq!(seen.get("mine"), None);
    }
    for person in [&mut ann, &mut bob] {
        let seen = look(person, id).await;
        assert_eq!((&seen["total_cents"], seen.get("seed")), (&json!(TOTAL), None::<&Value>));
    }
    // When it is over those who run the shop see all of it; a stranger with the link does not.
    for user in ["cat", "dan", "fay", "gus"] {
        grab(&mut shop.buyer(user).await, id).await;
    }
    let seen = super::becomes(&mut boss, id, "empty").await;
    assert_eq!(seen["seed"], hex::encode(packet.seed.0));
    let seen = look(&mut eve, id).await;
    assert!(INSIDE.iter().all(|name| seen.get(name).is_none()), "{seen:#}");
}
