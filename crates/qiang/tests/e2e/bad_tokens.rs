//! Tokens that prove nothing: missing, expired, forged, or of the wrong role; and users who
//! cannot be.

use axum::http::Method;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, Mac as _};
use qiang_app::token::Role;
use serde_json::{Value, json};
use sha2::{Sha256, Sha512};

use crate::shop::{SECOND, START, Shop, changed, terms_of};

/// Signs whatever it is given.
fn token(key: &[u8], header: &Value, claims: &Value) -> String {
    let signed = unsigned(header, claims);
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any key");
    mac.update(signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
}

fn unsigned(header: &Value, claims: &Value) -> String {
    let part = |json: &Value| URL_SAFE_NO_PAD.encode(json.to_string());
    format!("{}.{}", part(header), part(claims))
}

fn hs256() -> Value {
    json!({ "alg": "HS256", "typ": "JWT" })
}

fn claims() -> Value {
    json!({ "sub": "eve", "role": "admin", "exp": START.millis() / 1_000 + 60 })
}

/// What each kind of address says to a token.
async fn turned_away(shop: &Shop, sale: &str, token: &str, code: &str) {
    let before = shop.view(sale).await;
    let mut eve = shop.bearer(token).await;
    for (method, path, body) in [
        (Method::POST, "/sales".to_owned(), terms_of(1)),
        (Method::POST, format!("/sales/{sale}/claims"), json!({})),
        (Method::POST, format!("/sales/{sale}/close"), Value::Null),
        (Method::GET, "/orders".to_owned(), Value::Null),
        (Method::GET, "/admin/audit".to_owned(), Value::Null),
    ] {
        eve.refused(method, &path, body, 401, code).await;
    }
    assert_eq!(shop.view(sale).await, before, "{token}");
}

#[tokio::test]
async fn a_token_must_be_there_and_signed_with_our_key() {
    let shop = Shop::open().await;
    let sale = shop.sale(5, json!({})).await;
    let key = shop.secrets().jwt_key.expose().to_vec();
    let good = token(&key, &hs256(), &claims());
    assert_eq!(shop.bearer(&good).await.get("/orders").await.status, 200);
    assert_eq!(shop.bearer(format!("Bearer {good}")).await.get("/orders").await.status, 200);
    assert_eq!(shop.bearer(format!("bearer  {good}")).await.get("/orders").await.status, 200);

    let mut nobody = shop.stranger().await;
    let path = format!("/sales/{sale}/claims");
    let answer = nobody.post(&path, json!({})).await;
    answer.problem(401, "unauthenticated");
    assert_eq!(answer.header("www-authenticate"), "Bearer");

    let (signed, signature) = good.rsplit_once('.').expect("three parts");
    let mut hs512 = Hmac::<Sha512>::new_from_slice(&key).expect("any key");
    let none = json!({ "alg": "none", "typ": "JWT" });
    let as_512 = unsigned(&json!({ "alg": "HS512", "typ": "JWT" }), &claims());
    hs512.update(as_512.as_bytes());
    let as_512 = format!("{as_512}.{}", URL_SAFE_NO_PAD.encode(hs512.finalize().into_bytes()));
    let changed_claims = unsigned(&hs256(), &changed(&claims(), &json!({ "sub": "ann" })));
    for forged in [
        String::new(),
        "Bearer".into(),
        "Bearer ".into(),
        "Basic YTpi".into(),
        "nonsense".into(),
        "a.b".into(),
        "a.b.c".into(),
        "..".into(),
        format!("{}.", unsigned(&none, &claims())),
        unsigned(&none, &claims()),
        format!("{}.{signature}", unsigned(&none, &claims())),
        token(&key, &none, &claims()),
        token(&key, &json!({ "alg": "RS256", "typ": "JWT" }), &claims()),
        token(&key, &json!({ "alg": "hs256" }), &claims()),
        token(&key, &json!({ "typ": "JWT" }), &claims()),
        token(&key, &json!({ "alg": "HS256", "crit": ["exp"] }), &claims()),
        as_512,
        token(b"another key of thirty-two bytes!", &hs256(), &claims()),
        token(b"", &hs256(), &claims()),
        format!("{signed}."),
        signed.to_owned(),
        format!("{changed_claims}.{signature}"),
        format!("{good}A"),
        format!("{good}.{signature}"),
        format!("{good}{}", "A".repeat(2_048)),
    ] {
        turned_away(&shop, &sale, &forged, "unauthenticated").await;
    }
}

#[tokio::test]
async fn a_token_is_good_until_the_second_it_expires() {
    let shop = Shop::open().await;
    let sale = shop.sale(5, json!({})).await;
    let key = shop.secrets().jwt_key.expose().to_vec();
    let good = token(&key, &hs256(), &claims());
    shop.advance(60 * SECOND - 1).await;
    assert_eq!(shop.bearer(&good).await.get("/orders").await.status, 200);
    shop.advance(1).await;
    turned_away(&shop, &sale, &good, "token_expired").await;
    let answer = shop.bearer(&good).await.get("/orders").await;
    assert_eq!(answer.header("www-authenticate"), "Bearer error=\"invalid_token\"");
    // A forged token does not learn that it is stale.
    let forged = token(b"another key of thirty-two bytes!", &hs256(), &claims());
    turned_away(&shop, &sale, &forged, "unauthenticated").await;
    let early = changed(&claims(), &json!({ "exp": 4e9, "nbf": START.millis() / 1_000 + 200 }));
    turned_away(&shop, &sale, &token(&key, &hs256(), &early), "unauthenticated").await;
}

#[tokio::test]
async fn a_user_is_a_text_of_1_to_64_bytes_without_control_characters() {
    let shop = Shop::open().await;
    let sale = shop.sale(5, json!({ "limit_by": "identity" })).await;
    let key = shop.secrets().jwt_key.expose().to_vec();
    let with = |change: Value| token(&key, &hs256(), &changed(&claims(), &change));
    for bad in [
        json!({ "sub": "" }),
        json!({ "sub": "x".repeat(65) }),
        json!({ "sub": "抢".repeat(22) }),
        json!({ "sub": "a\nb" }),
        json!({ "sub": "a\u{0}b" }),
        json!({ "sub": "a\u{7f}" }),
        json!({ "sub": "a\u{85}" }),
        json!({ "sub": 5 }),
        json!({ "sub": null }),
        json!({ "exp": null }),
        json!({ "exp": "tomorrow" }),
        json!({ "role": "root" }),
        json!({ "role": ["admin"] }),
        json!({ "identity": "" }),
        json!({ "identity": "x".repeat(65) }),
        json!({ "identity": "a\tb" }),
    ] {
        turned_away(&shop, &sale, &with(bad), "unauthenticated").await;
    }
    for missing in ["sub", "exp"] {
        let mut claims = claims();
        claims.as_object_mut().expect("an object").remove(missing);
        turned_away(&shop, &sale, &token(&key, &hs256(), &claims), "unauthenticated").await;
    }
    for (number, user) in
        ["x", &"x".repeat(64), "用户 七 🎉", " \"<b>' OR 1=1; --"].iter().enumerate()
    {
        let good = with(json!({ "sub": user, "identity": number.to_string() }));
        let claim = shop.bearer(good).await.claim(&sale, 1).await.ok(201);
        assert_eq!(claim["user_id"], *user);
    }
    shop.drain().await;
    shop.audit().await;
}

#[tokio::test]
async fn what_is_the_admins_is_not_the_buyers() {
    let shop = Shop::open().await;
    let sale = shop.sale(5, json!({})).await;
    let before = shop.view(&sale).await;
    let key = shop.secrets().jwt_key.expose().to_vec();
    let mut without_role = claims();
    without_role.as_object_mut().expect("an object").remove("role");
    let tokens = [shop.token("ann", Role::Buyer, None), token(&key, &hs256(), &without_role)];
    for token in tokens {
        let mut ann = shop.bearer(token).await;
        for (method, path, body) in [
            (Method::POST, "/sales".to_owned(), terms_of(1)),
            (Method::POST, format!("/sales/{sale}/close"), Value::Null),
            (Method::POST, format!("/sales/{sale}/restock"), json!({ "units": 1 })),
            (Method::DELETE, format!("/sales/{sale}"), Value::Null),
            (Method::PUT, "/current-sale".to_owned(), json!({ "sale_id": sale })),
            (Method::GET, "/admin/audit".to_owned(), Value::Null),
            (Method::POST, "/admin/audit/repair".to_owned(), Value::Null),
            (Method::GET, "/admin/refunds".to_owned(), Value::Null),
            (Method::POST, format!("/admin/refunds/{sale}/p/settle"), Value::Null),
            (Method::GET, "/admin/reviews".to_owned(), Value::Null),
            (Method::POST, format!("/admin/reviews/{sale}-1/end"), Value::Null),
        ] {
            ann.refused(method.clone(), &path, body.clone(), 403, "forbidden").await;
            let mut nobody = shop.stranger().await;
            nobody.refused(method, &path, body, 401, "unauthenticated").await;
        }
        for (method, path) in [
            (Method::GET, "/orders".to_owned()),
            (Method::GET, format!("/orders/{sale}-1")),
            (Method::POST, format!("/orders/{sale}-1/pay")),
            (Method::POST, format!("/orders/{sale}-1/cancel")),
            (Method::GET, format!("/claims/{sale}-1")),
            (Method::DELETE, format!("/claims/{sale}-1")),
            (Method::POST, format!("/claims/{sale}-1/order")),
            (Method::POST, "/current-sale/claims".to_owned()),
        ] {
            let mut nobody = shop.stranger().await;
            nobody.refused(method, &path, Value::Null, 401, "unauthenticated").await;
        }
    }
    assert_eq!(shop.view(&sale).await, before);
}
