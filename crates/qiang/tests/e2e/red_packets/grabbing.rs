//! Grabbing: one for each user, as many as there are shares, in the balance at once.

use qiang_app::token::Role;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{becomes, grab, grabs, has, in_packet, lucky, rich, send};
use crate::resp;
use crate::shop::Shop;

#[tokio::test]
async fn p40_a_second_grab_takes_nothing_and_tells_the_amount() {
    let shop = Shop::open().await;
    let (mut ann, mut bob) = (rich(&shop, "ann").await, shop.buyer("bob").await);
    let id = send(&mut ann, "a", lucky(&json!({}))).await;
    let first = bob.post_as("g", &grabs(&id), Value::Null).await.ok(201);
    let got = first["amount_cents"].as_i64().expect("cents");
    // The same request gets the same answer; another one is told what the user has.
    assert_eq!(bob.post_as("g", &grabs(&id), Value::Null).await.ok(200), first);
    for _ in 0..5 {
        let again = bob.post(&grabs(&id), Value::Null).await.problem(409, "already_claimed");
        assert_eq!(again["amount_cents"], got);
    }
    assert_eq!((has(&mut bob).await, in_packet(&shop, &id).await), (got, 1_000 - got));
}

#[tokio::test]
async fn p41_a_packet_has_as_many_portions_as_it_has_shares() {
    let shop = Shop::open().await;
    let mut ann = rich(&shop, "ann").await;
    let id = send(&mut ann, "a", lucky(&json!({ "shares": 3 }))).await;
    let mut sum = 0;
    for user in ["bob", "cat", "dan"] {
        let mut user = shop.buyer(user).await;
        let got = grab(&mut user, &id).await;
        assert_eq!(has(&mut user).await, got, "in the balance at once");
        sum += got;
    }
    assert_eq!(sum, 1_000);
    let mut eve = shop.buyer("eve").await;
    eve.post(&grabs(&id), Value::Null).await.problem(410, "sold_out");
    assert_eq!(becomes(&mut ann, &id, "empty").await["left_cents"], 0);
    assert_eq!(in_packet(&shop, &id).await, 0);
}

#[tokio::test]
async fn a_crowd_empties_a_packet_and_every_cent_is_somebodys() {
    let shop = Shop::open().await;
    let mut ann = rich(&shop, "ann").await;
    let id = send(&mut ann, "a", lucky(&json!({ "shares": 20, "total_cents": 10_000 }))).await;
    let mut crowd = JoinSet::new();
    for number in 0..60 {
        let (mut user, id) = (shop.buyer(&format!("user-{number}")).await, id.clone());
        crowd.spawn(async move {
            let answer = user.post(&grabs(&id), Value::Null).await;
            if answer.status == 410 {
                answer.problem(410, "sold_out");
                return (0, has(&mut user).await);
            }
            let got = answer.ok(201)["amount_cents"].as_i64().expect("cents");
            (got, has(&mut user).await)
        });
    }
    let got = crowd.join_all().await;
    assert_eq!(got.iter().map(|(got, _)| got).sum::<i64>(), 10_000);
    assert_eq!(got.iter().filter(|(got, _)| *got > 0).count(), 20);
    assert!(got.iter().all(|(got, has)| got == has), "{got:?}");
    assert_eq!(in_packet(&shop, &id).await, 0);
    shop.audit().await;
}

#[tokio::test]
async fn ones_own_packet_can_be_grabbed() {
    let shop = Shop::open().await;
    let mut ann = rich(&shop, "ann").await;
    let id = send(&mut ann, "a", lucky(&json!({}))).await;
    let got = grab(&mut ann, &id).await;
    assert_eq!(has(&mut ann).await, 99_000 + got);
}

#[tokio::test]
async fn who_is_not_named_gets_nothing() {
    let shop = Shop::open().await;
    let (mut ann, mut bob) = (rich(&shop, "ann").await, shop.buyer("bob").await);
    let id = send(&mut ann, "a", lucky(&json!({ "to": ["bob"] }))).await;
    for user in ["ann", "eve"] {
        let mut user = shop.buyer(user).await;
        user.post(&grabs(&id), Value::Null).await.problem(403, "not_eligible");
    }
    grab(&mut bob, &id).await;
}

#[tokio::test]
async fn a_password_is_tried_so_often_and_no_more() {
    let shop = Shop::with(&[("QIANG_PACKETS__MAX_ATTEMPTS", "3")]).await;
    let mut ann = rich(&shop, "ann").await;
    let id = send(&mut ann, "a", lucky(&json!({ "password": "芝麻开门" }))).await;
    let mut bob = shop.buyer("bob").await;
    bob.post(&grabs(&id), Value::Null).await.problem(403, "wrong_password");
    let say = |word: &str| json!({ "password": word });
    let wrong = bob.post(&grabs(&id), say("开门")).await.problem(403, "wrong_password");
    assert_eq!(wrong["attempts_left"], 2);
    bob.post(&grabs(&id), say("芝麻开门")).await.ok(201);
    bob.post(&grabs(&id), say("芝麻开门")).await.problem(409, "already_claimed");
    // Many guesses at once are no more than allowed, and afterwards the right word is of no use.
    let mut guesses = JoinSet::new();
    for number in 0..20 {
        let (mut eve, id) = (shop.buyer("eve").await, id.clone());
        guesses.spawn(async move {
            eve.post(&grabs(&id), json!({ "password": number.to_string() })).await.json()["code"]
                .as_str()
                .expect("a code")
                .to_owned()
        });
    }
    let codes = guesses.join_all().await;
    assert_eq!(codes.iter().filter(|code| *code == "wrong_password").count(), 3, "{codes:?}");
    assert_eq!(codes.iter().filter(|code| *code == "too_many_attempts").count(), 17);
    let mut eve = shop.buyer("eve").await;
    eve.post(&grabs(&id), say("芝麻开门")).await.problem(403, "too_many_attempts");
}

#[tokio::test]
async fn an_id_is_taken_whole_or_not_at_all() {
    let shop = Shop::open().await;
    let (mut ann, mut bob) = (rich(&shop, "ann").await, shop.buyer("bob").await);
    let id = send(&mut ann, "a", lucky(&json!({}))).await;
    let (pool, random) = id.split_once('-').expect("two parts");
    let other = format!("{pool}-{}", "0".repeat(20));
    for wrong in
        [pool, &other, &id[..id.len() - 1], &format!("1-{random}"), "x", &id.to_uppercase()]
    {
        if wrong == id {
            continue;
        }
        bob.post(&grabs(wrong), Value::Null).await.problem(404, "no_such_packet");
        bob.get(&format!("/packets/{wrong}")).await.problem(404, "no_such_packet");
    }
    // It is no sale either.
    bob.post(&format!("/sales/{pool}/claims"), Value::Null).await.problem(404, "no_such_sale");
    shop.stranger().await.post(&grabs(&id), Value::Null).await.problem(401, "unauthenticated");
}

#[tokio::test]
async fn a_backend_grabs_over_resp() {
    let shop = resp::open().await;
    let mut ann = rich(&shop, "ann").await;
    let id = send(&mut ann, "a", lucky(&json!({ "shares": 2, "to": ["bob", "cat", "dan"] }))).await;
    let secret = send(&mut ann, "b", lucky(&json!({ "password": "hi" }))).await;
    let mut backend = resp::backend(&shop).await;
    let granted = backend.say(&["GRAB", &id, "bob"]).await;
    let got = granted[2].as_i64().expect("cents");
    assert_eq!(granted, json!([1, 1, got]));
    assert_eq!(backend.say(&["GRAB", &id, "bob"]).await, json!([2, 1, got]));
    assert_eq!(has(&mut shop.buyer("bob").await).await, got);
    assert_eq!(backend.say(&["GRAB", &id, "eve"]).await, json!([0, "not_eligible"]));
    assert_eq!(backend.say(&["grab", &id, "cat"]).await[0], 1);
    assert_eq!(backend.say(&["GRAB", &id, "dan"]).await, json!([0, "sold_out"]));
    assert_eq!(backend.say(&["GRAB", "7", "dan"]).await, json!([0, "no_such_packet"]));
    assert_eq!(backend.say(&["GRAB", &secret, "dan", "no"]).await, json!([0, "wrong_password"]));
    assert_eq!(backend.say(&["GRAB", &secret, "dan", "hi"]).await[0], 1);
    let mut eve = resp::signed_in(&shop, &shop.token("eve", Role::Buyer, None)).await;
    let said = eve.say(&["GRAB", &secret, "dan", "hi"]).await;
    assert!(said.as_str().is_some_and(|said| said.starts_with("-NOPERM")), "{said}");
    assert_eq!(eve.say(&["GRAB", &secret, "eve", "hi"]).await[0], 1);
}
