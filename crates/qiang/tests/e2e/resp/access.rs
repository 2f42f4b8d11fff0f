//! Who may do what: nobody without a word, the shop everything, a buyer for themselves.

use qiang_app::token::{Principal, Role};
use qiang_core::UserId;
use serde_json::{Value, json};

use super::{PASSWORD, backend, command, open, signed_in, stranger, wrong};
use crate::shop::{MINUTE, START, Shop};

#[tokio::test]
async fn without_signing_in_nothing_is_told_or_done() {
    let shop = open().await;
    let sale = shop.sale(5, json!({})).await;
    let mut nobody = stranger(&shop).await;
    for line in [
        &format!("CLAIM {sale} ann"),
        &format!("POOL {sale}"),
        "ORDER 1-1",
        "RELEASE 1-1",
        "PAY 1-1 p 1",
        "PING",
        "INFO",
        "COMMAND",
        "CLIENT ID",
        "CONFIG GET save",
        "SELECT 0",
        "ECHO x",
        "GET x",
        "HELLO",
        "HELLO 3",
        "HELLO 2 SETNAME x",
    ] {
        wrong(&nobody.ask(line).await, "NOAUTH", &["AUTH"]);
    }
    assert_eq!(shop.tally(&sale).await, [5, 0, 0, 0]);
    assert_eq!(nobody.say(&["AUTH", PASSWORD]).await, json!("+OK"));
    assert_eq!(nobody.ask("PING").await, json!("+PONG"));
}

#[tokio::test]
async fn the_password_opens_with_every_greeting() {
    let shop = open().await;
    for greeting in [
        &["AUTH", PASSWORD][..],
        &["AUTH", "default", PASSWORD],
        &["AUTH", "whoever", PASSWORD],
        &["HELLO", "3", "AUTH", "default", PASSWORD],
        &["hello", "2", "auth", "default", PASSWORD, "setname", "till"],
    ] {
        let mut client = stranger(&shop).await;
        let answer = client.say(greeting).await;
        assert!(!answer.as_str().is_some_and(|text| text.starts_with('-')), "{answer}");
        assert_eq!(client.ask("PING").await, json!("+PONG"));
    }
}

#[tokio::test]
async fn whoever_guesses_is_closed_after_five() {
    let shop = open().await;
    let mut guesser = stranger(&shop).await;
    for guess in 1..=5 {
        let said = match guess {
            3 => guesser.say(&["HELLO", "3", "AUTH", "default", "open sesame"]).await,
            _ => guesser.ask("AUTH let-me-in").await,
        };
        wrong(&said, "WRONGPASS", &["password of [resp]", "qiang tokens"]);
        assert!(!said.to_string().contains("let-me-in"), "{said}");
    }
    assert_eq!(guesser.rest().await, [] as [Value; 0]);
    // Five in one write are not tried any further either.
    let mut guesser = stranger(&shop).await;
    guesser.send(&command(&["AUTH", "guess"]).repeat(100)).await;
    assert_eq!(guesser.rest().await.len(), 5);
    // Somebody who mistypes and then finds the word goes on.
    let mut clumsy = stranger(&shop).await;
    for _ in 0..4 {
        wrong(&clumsy.ask("AUTH typo").await, "WRONGPASS", &[]);
    }
    assert_eq!(clumsy.say(&["AUTH", PASSWORD]).await, json!("+OK"));
    wrong(&clumsy.ask("AUTH typo").await, "WRONGPASS", &[]);
    assert_eq!(clumsy.ask("PING").await, json!("+PONG"), "what was allowed stays so");
}

#[tokio::test]
async fn without_a_password_only_tokens_open() {
    let shop = Shop::with(&[("QIANG_RESP__LISTEN", "127.0.0.1:0")]).await;
    for said in ["", PASSWORD, "default"] {
        let mut client = stranger(&shop).await;
        wrong(&client.say(&["AUTH", said]).await, "WRONGPASS", &[]);
    }
    let mut admin = signed_in(&shop, &shop.token("boss", Role::Admin, None)).await;
    assert_eq!(admin.ask("PING").await, json!("+PONG"));
}

#[tokio::test]
async fn an_admins_token_is_the_shop() {
    let shop = open().await;
    let sale = shop.sale(5, json!({})).await;
    let mut admin = signed_in(&shop, &shop.token("boss", Role::Admin, None)).await;
    let claim = format!("{sale}-1");
    assert_eq!(admin.ask(&format!("CLAIM {sale} ann")).await, json!([1, 1, claim]));
    assert_eq!(admin.ask(&format!("PAY {claim} p 9900")).await, json!([1, "paid", claim]));
}

#[tokio::test]
async fn a_buyers_token_acts_for_that_buyer_alone() {
    let shop = open().await;
    let sale = shop.sale(5, json!({ "flow": "hold" })).await;
    let mut desk = backend(&shop).await;
    desk.ask(&format!("CLAIM {sale} ben")).await;
    let (bens, anns) = (format!("{sale}-1"), format!("{sale}-2"));
    let mut ann = signed_in(&shop, &shop.token("ann", Role::Buyer, None)).await;
    assert_eq!(ann.ask(&format!("CLAIM {sale} ann")).await, json!([1, 2, anns]));
    for line in [
        format!("CLAIM {sale} ben"),
        format!("CLAIM {sale} ann2"),
        format!("ORDER {anns} ben"),
        format!("RELEASE {bens} ben"),
    ] {
        wrong(&ann.ask(&line).await, "NOPERM", &["its own user"]);
    }
    wrong(&ann.ask(&format!("PAY {anns} p 9900")).await, "NOPERM", &["role"]);
    // Another's claim is as good as none, named or not.
    for line in [format!("ORDER {bens}"), format!("RELEASE {bens}"), format!("ORDER {bens} ann")] {
        assert_eq!(ann.ask(&line).await, json!([0, "no_such_claim"]));
    }
    assert_eq!(ann.ask(&format!("ORDER {anns}")).await, json!([1, 2, anns]));
    assert_eq!(ann.ask(&format!("RELEASE {anns} ann")).await, json!([1, 2, anns]));
    assert!(ann.ask(&format!("POOL {sale}")).await.is_array());
    assert_eq!(shop.tally(&sale).await, [4, 1, 0, 0]);
    shop.audit().await;
}

#[tokio::test]
async fn who_a_buyer_really_is_stands_in_their_token() {
    let shop = open().await;
    let sale = shop.sale(5, json!({ "limit_by": "identity" })).await;
    let token = |user, identity| shop.token(user, Role::Buyer, identity);
    let mut ann = signed_in(&shop, &token("ann", Some("passport-7"))).await;
    let mut twin = signed_in(&shop, &token("twin", Some("passport-7"))).await;
    let mut bare = signed_in(&shop, &token("bare", None)).await;
    assert_eq!(ann.ask(&format!("CLAIM {sale} ann")).await[0], 1);
    let twins = twin.say(&["CLAIM", &sale, "twin", "1", "", "passport-8"]).await;
    assert_eq!(twins, json!([0, "over_limit"]), "what the buyer says does not count");
    let bares = bare.say(&["CLAIM", &sale, "bare", "1", "", "passport-9"]).await;
    assert_eq!(bares, json!([0, "not_eligible"]));
    assert_eq!(shop.tally(&sale).await, [4, 0, 1, 0]);
}

#[tokio::test]
async fn a_token_that_ends_ends_what_it_allowed() {
    let shop = open().await;
    let sale = shop.sale(5, json!({})).await;
    for role in [Role::Buyer, Role::Admin] {
        let now = shop.server.app.now();
        let who = Principal {
            user: UserId::new("ann").expect("an id"),
            role,
            identity: None,
            expires_at: now.plus_millis(60_000),
        };
        let token = shop.server.app.tokens.mint(&who, now);
        let mut client = signed_in(&shop, &token).await;
        assert_ne!(client.ask(&format!("CLAIM {sale} ann")).await[0], 0);
        shop.advance(MINUTE).await;
        wrong(&client.ask(&format!("CLAIM {sale} ann")).await, "NOAUTH", &["AUTH"]);
        wrong(&client.say(&["AUTH", &token]).await, "WRONGPASS", &["expired"]);
        let fresh = shop.token("ann", role, None);
        assert_eq!(client.say(&["AUTH", &fresh]).await, json!("+OK"), "on the same connection");
        assert_eq!(client.ask("PING").await, json!("+PONG"));
    }
    assert!(shop.server.app.now() > START);
}
