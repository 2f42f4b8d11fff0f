//! Every command and what it answers, in both versions of the protocol.

use qiang_app::token::Role;
use serde_json::{Value, json};

use super::{Client, address, backend, open, paired, stranger, wrong};
use crate::raw;
use crate::shop::{MINUTE, Shop};

/// Two clients of the shop, one for each version.
async fn both(shop: &Shop) -> [Client; 2] {
    let (two, mut three) = (backend(shop).await, backend(shop).await);
    let hello = three.ask("HELLO 3").await;
    assert_eq!((&hello["server"], &hello["proto"]), (&json!("qiang"), &json!(3)), "{hello}");
    [two, three]
}

#[tokio::test]
async fn a_claim_is_granted_had_already_or_refused() {
    let shop = open().await;
    for mut client in both(&shop).await {
        let sale = shop.sale(4, json!({})).await;
        let ask = format!("CLAIM {sale} ann");
        assert_eq!(client.ask(&ask).await, json!([1, 1, format!("{sale}-1")]));
        assert_eq!(client.ask(&ask).await, json!([2, 1, format!("{sale}-1")]));
        let ben = client.ask(&format!("claim {sale} ben")).await;
        assert_eq!(ben, json!([1, 2, format!("{sale}-2")]), "the name may be small");
        assert_eq!(client.ask(&format!("CLAIM {sale} eve 3")).await, json!([0, "over_limit"]));

        let several = shop.sale(4, json!({ "limit_per_user": 3 })).await;
        let asked = client.ask(&format!("CLAIM {several} ann 3")).await;
        assert_eq!(asked, json!([1, 1, format!("{several}-1")]));
        assert_eq!(client.ask(&format!("CLAIM {several} ann")).await, json!([0, "over_limit"]));
        assert_eq!(client.ask(&format!("CLAIM {several} ben 2")).await, json!([0, "sold_out"]));
        assert_eq!(shop.tally(&several).await, [1, 0, 3, 0]);

        let later = shop.sale(1, json!({ "opens_at": "2027-01-16T08:00:00Z" })).await;
        assert_eq!(client.ask(&format!("CLAIM {later} ann")).await, json!([0, "not_open_yet"]));
        shop.admin().await.post(&format!("/sales/{several}/close"), Value::Null).await.ok(200);
        assert_eq!(client.ask(&format!("CLAIM {several} eve")).await, json!([0, "closed"]));
        for none in ["999999", "0", "-1", "phone", "", "1-1"] {
            assert_eq!(client.say(&["CLAIM", none, "ann"]).await, json!([0, "no_such_sale"]));
        }
    }
    shop.audit().await;
}

#[tokio::test]
async fn nobody_hears_that_they_have_what_was_released() {
    let shop = open().await;
    for mut client in both(&shop).await {
        let sale = shop.sale(3, json!({ "reclaim": "never" })).await;
        let (ask, claim) = (format!("CLAIM {sale} ann"), format!("{sale}-1"));
        assert_eq!(client.ask(&ask).await, json!([1, 1, claim]));
        assert_eq!(client.ask(&ask).await, json!([2, 1, claim]));
        client.ask(&format!("RELEASE {claim}")).await;
        assert_eq!(client.ask(&ask).await, json!([0, "released"]));
        let again = client.ask(&format!("RELEASE {claim}")).await;
        assert_eq!(again, json!([2, 1, claim]), "that had happened before");
    }
    shop.audit().await;
}

#[tokio::test]
async fn a_claim_is_shown_to_whoever_may_see_it() {
    let shop = open().await;
    let sale = shop.sale(2, json!({})).await;
    let mut ann = shop.buyer("ann").await;
    let claim = ann.granted(&sale).await;
    let view = ann.get(&format!("/claims/{claim}")).await.ok(200);
    let [mut two, mut three] = both(&shop).await;
    assert_eq!(three.ask(&format!("SHOW {claim}")).await, view);
    assert_eq!(paired(&two.ask(&format!("SHOW {claim}")).await), view);
    for (user, sees) in [("ann", true), ("ben", false)] {
        let mut buyer = stranger(&shop).await;
        buyer.ask(&format!("AUTH {}", shop.token(user, Role::Buyer, None))).await;
        assert_eq!(buyer.ask(&format!("SHOW {claim}")).await.is_array(), sees, "{user}");
    }
    for none in [&format!("{sale}-2"), "1-1", "phone", ""] {
        assert_eq!(two.say(&["SHOW", none]).await, Value::Null, "{none}");
    }
}

#[tokio::test]
async fn an_empty_request_id_is_no_request_id_and_is_refused() {
    let shop = open().await;
    let sale = shop.sale(3, json!({})).await;
    let mut client = backend(&shop).await;
    wrong(&client.say(&["CLAIM", &sale, "ann", "1", ""]).await, "ERR", &["request-id"]);
    wrong(&client.say(&["CLAIM", &sale, "ann", "1", "", ""]).await, "ERR", &["request-id"]);
    // Left empty, to give what comes behind it.
    assert_eq!(client.say(&["CLAIM", &sale, "ann", "", "", "p1"]).await[0], 1);
    assert_eq!(shop.tally(&sale).await, [2, 0, 1, 0]);
}

#[tokio::test]
async fn a_request_id_gives_the_first_claim_again() {
    let shop = open().await;
    let sale = shop.sale(9, json!({ "limit_per_user": 5 })).await;
    let mut client = backend(&shop).await;
    let (ask, claim) = (format!("CLAIM {sale} ann 2 r-1"), format!("{sale}-1"));
    assert_eq!(client.ask(&ask).await, json!([1, 1, claim]));
    assert_eq!(client.ask(&ask).await, json!([2, 1, claim]));
    assert_eq!(client.ask(&format!("RELEASE {claim}")).await, json!([1, 1, claim]));
    assert_eq!(client.ask(&ask).await, json!([0, "released"]), "it is not theirs any more");
    let state = &client.ask(&format!("SHOW {claim}")).await;
    assert_eq!(paired(state)["state"], "released");
    let other = client.ask(&format!("CLAIM {sale} ann 1 r-1")).await;
    assert_eq!(other, json!([0, "idempotency_key_reused"]));
    // It is the same id as over HTTP.
    let path = format!("/sales/{sale}/claims");
    let mut ann = shop.buyer("ann").await;
    let same = ann.post_as("r-1", &path, json!({ "quantity": 2 })).await.ok(200);
    assert_eq!(same["claim_id"], claim);
    // An empty quantity is one left out.
    let bare = client.say(&["CLAIM", &sale, "ann", ""]).await;
    assert_eq!(bare, json!([1, 2, format!("{sale}-2")]));
    assert_eq!(shop.tally(&sale).await, [8, 0, 1, 0]);
    shop.audit().await;
}

#[tokio::test]
async fn one_person_with_two_accounts_counts_once_where_persons_count() {
    let shop = open().await;
    let sale = shop.sale(9, json!({ "limit_by": "identity" })).await;
    let mut client = backend(&shop).await;
    let first = client.say(&["CLAIM", &sale, "ann", "1", "", "passport 7"]).await;
    assert_eq!(first, json!([1, 1, format!("{sale}-1")]));
    let second = client.say(&["CLAIM", &sale, "ann-2", "1", "", "passport 7"]).await;
    assert_eq!(second, json!([0, "over_limit"]), "not a claim that this account cannot open");
    let again = client.say(&["CLAIM", &sale, "ann", "1", "", "passport 7"]).await;
    assert_eq!(again, json!([2, 1, format!("{sale}-1")]));
    let other = client.say(&["CLAIM", &sale, "ben", "", "", "passport 8"]).await;
    assert_eq!(other, json!([1, 2, format!("{sale}-2")]));
    assert_eq!(client.ask(&format!("CLAIM {sale} eve")).await, json!([0, "not_eligible"]));
    shop.audit().await;
}

#[tokio::test]
async fn the_current_sale_needs_no_number() {
    let shop = open().await;
    let mut client = backend(&shop).await;
    assert_eq!(client.ask("CLAIM current ann").await, json!([0, "no_current_sale"]));
    assert_eq!(client.ask("POOL current").await, Value::Null);
    let sale = shop.sale(2, json!({})).await;
    shop.admin().await.put("/current-sale", json!({ "sale_id": sale })).await.ok(200);
    assert_eq!(client.ask("CLAIM current ann").await, json!([1, 1, format!("{sale}-1")]));
    assert_eq!(paired(&client.ask("POOL CURRENT").await)["id"], json!(sale));
}

#[tokio::test]
async fn a_hold_is_ordered_once_and_by_its_owner() {
    let shop = open().await;
    let sale = shop.sale(5, json!({ "flow": "hold" })).await;
    for (number, mut client) in (1_u32..).zip(both(&shop).await) {
        let (user, claim) = (format!("u{number}"), format!("{sale}-{number}"));
        let done = |sign: i64| json!([sign, number, claim]);
        assert_eq!(client.ask(&format!("CLAIM {sale} {user}")).await, done(1));
        let others = client.ask(&format!("ORDER {claim} eve")).await;
        assert_eq!(others, json!([0, "no_such_claim"]));
        let unpaid = client.ask(&format!("PAY {claim} p-{number} 9900")).await;
        assert_eq!(unpaid, json!([0, "not_ordered"]));
        assert_eq!(client.ask(&format!("ORDER {claim} {user}")).await, done(1));
        assert_eq!(client.ask(&format!("ORDER {claim}")).await, done(2), "the shop may, too");
        for none in [format!("{sale}-99"), "99-1".into(), "x".into(), "1-".into()] {
            let answer = client.ask(&format!("ORDER {none}")).await;
            assert_eq!(answer, json!([0, "no_such_claim"]));
        }
    }
    assert_eq!(shop.tally(&sale).await, [3, 0, 2, 0]);
    shop.audit().await;
}

#[tokio::test]
async fn a_claim_is_given_up_once_and_by_its_owner() {
    let shop = open().await;
    let sale = shop.sale(1, json!({ "flow": "hold" })).await;
    let mut client = backend(&shop).await;
    let claim = format!("{sale}-1");
    client.ask(&format!("CLAIM {sale} ann")).await;
    assert_eq!(client.ask(&format!("RELEASE {claim} eve")).await, json!([0, "no_such_claim"]));
    assert_eq!(client.ask(&format!("RELEASE {claim} ann")).await, json!([1, 1, claim]));
    assert_eq!(client.ask(&format!("RELEASE {claim} ann")).await, json!([2, 1, claim]));
    assert_eq!(client.ask(&format!("ORDER {claim}")).await, json!([0, "released"]));
    let next = format!("{sale}-2");
    assert_eq!(client.ask(&format!("CLAIM {sale} ben")).await, json!([1, 2, next]));
    assert_eq!(client.ask(&format!("CLAIM {sale} ann")).await, json!([0, "sold_out"]));
    client.ask(&format!("ORDER {next}")).await;
    assert_eq!(client.ask(&format!("PAY {next} p 9900")).await, json!([1, "paid", next]));
    assert_eq!(client.ask(&format!("RELEASE {next}")).await, json!([0, "already_paid"]));
    for none in [format!("{sale}-99"), "x".into()] {
        let answer = client.ask(&format!("RELEASE {none}")).await;
        assert_eq!(answer, json!([0, "no_such_claim"]));
    }
    shop.audit().await;
}

#[tokio::test]
async fn money_pays_buys_anew_or_is_owed_back_and_counts_once() {
    let shop = open().await;
    for (round, mut client) in (1..).zip(both(&shop).await) {
        let sale = shop.sale(2, json!({})).await;
        let id = |number: u32| format!("{sale}-{number}");
        for user in ["ann", "ben"] {
            client.ask(&format!("CLAIM {sale} {user}")).await;
        }
        let pay = |order, payment| format!("PAY {} {payment}-{round} 9900", id(order));
        assert_eq!(client.ask(&pay(1, "p-1")).await, json!([1, "paid", id(1)]));
        assert_eq!(client.ask(&pay(1, "p-1")).await, json!([2, "paid", id(1)]));
        assert_eq!(client.ask(&pay(1, "p-2")).await, json!([1, "refund_due", id(1)]));
        assert_eq!(client.ask(&pay(2, "p-1")).await, json!([0, "payment_conflict"]));
        // Ben is late, and nobody else wanted his.
        shop.advance(30 * MINUTE).await;
        assert_eq!(client.ask(&pay(2, "p-3")).await, json!([1, "regranted", id(3)]));
        assert_eq!(client.ask(&pay(2, "p-3")).await, json!([2, "regranted", id(3)]));
        let none = client.ask(&format!("PAY {} p-4 9900", id(99))).await;
        assert_eq!(none, json!([0, "no_such_order"]));
        assert_eq!(client.ask("PAY nothing p-4 9900").await, json!([0, "no_such_order"]));
        assert_eq!(shop.tally(&sale).await, [0, 0, 0, 2]);
        for amount in ["0", "-1", "99.00", "", "1e3", "9223372036854775808"] {
            let answer = client.say(&["PAY", &id(1), "p-5", amount]).await;
            wrong(&answer, "ERR", &["amount-cents must be a whole number from 1"]);
        }
        wrong(&client.say(&["PAY", &id(1), "", "1"]).await, "ERR", &["payment-id"]);
    }
    shop.drain().await;
    let refunds = shop.admin().await.get("/admin/refunds").await.ok(200);
    assert_eq!(refunds["refunds"].as_array().map(Vec::len), Some(2), "{refunds}");
    shop.audit().await;
}

#[tokio::test]
async fn a_pool_is_the_sale_as_http_tells_it() {
    let shop = open().await;
    let steps = json!([{ "after_sold": 1, "price_cents": 12_000 }]);
    let terms = json!({ "limit_per_user": 2, "flow": "hold", "price_steps": steps });
    let sale = shop.sale(9, terms).await;
    let [mut two, mut three] = both(&shop).await;
    two.ask(&format!("CLAIM {sale} ann 2")).await;
    let view = shop.view(&sale).await;
    assert_eq!((&view["held"], &view["price_cents"]), (&json!(2), &json!(12_000)));
    assert_eq!(three.ask(&format!("POOL {sale}")).await, view);
    let mut flat = paired(&two.ask(&format!("POOL {sale}")).await);
    flat["price_steps"] = json!([paired(&flat["price_steps"][0])]);
    assert_eq!(flat, view);
    let mut admin = shop.admin().await;
    let over = shop.sale(1, json!({})).await;
    admin.post(&format!("/sales/{over}/close"), Value::Null).await.ok(200);
    assert_eq!(three.ask(&format!("POOL {over}")).await, shop.view(&over).await);
    admin.delete(&format!("/sales/{over}")).await.ok(200);
    assert_eq!(two.ask(&format!("CLAIM {over} ann")).await, json!([0, "no_such_sale"]));
    for none in ["999999", "x", "", &over] {
        assert_eq!(two.say(&["POOL", none]).await, Value::Null);
        assert_eq!(three.say(&["POOL", none]).await, Value::Null);
    }
}

#[tokio::test]
async fn both_doors_lead_to_one_shop() {
    let shop = open().await;
    let sale = shop.sale(2, json!({})).await;
    let mut client = backend(&shop).await;
    let (mut ann, mut ben) = (shop.buyer("ann").await, shop.buyer("ben").await);
    let first = ann.granted(&sale).await;
    assert_eq!(client.ask(&format!("CLAIM {sale} ann")).await, json!([2, 1, first]));
    client.ask(&format!("CLAIM {sale} ben")).await;
    let problem = ben.claim(&sale, 1).await.problem(409, "already_claimed");
    let second = problem["claim_id"].as_str().expect("an id").to_owned();
    assert_eq!(ben.state(&second).await, "ordered");
    shop.buyer("eve").await.claim(&sale, 1).await.problem(410, "sold_out");
    assert_eq!(client.ask(&format!("PAY {second} p 9900")).await[1], "paid");
    assert_eq!(ben.state(&second).await, "paid");
    ann.delete(&format!("/claims/{first}")).await.ok(200);
    assert_eq!(client.ask(&format!("RELEASE {first}")).await, json!([2, 1, first]));
    let metrics = shop.stranger().await.ask(axum::http::Method::GET, "/metrics", &[], "").await;
    assert!(metrics.text.contains("qiang_claims_total"), "{}", metrics.text);
    shop.audit().await;
}

#[tokio::test]
async fn what_was_not_understood_is_an_error_that_says_what_to_do() {
    let shop = open().await;
    let sale = shop.sale(5, json!({ "limit_per_user": 5 })).await;
    let mut client = backend(&shop).await;
    let long = "u".repeat(65);
    for (words, said) in [
        (&["CLAIM"][..], "CLAIM sale user [quantity] [request-id] [identity]"),
        (&["CLAIM", &sale], "wrong number of arguments for 'claim'"),
        (&["CLAIM", &sale, "a", "1", "r", "i", "x"], "wrong number of arguments"),
        (&["CLAIM", &sale, "ann", "0"], "quantity must be a whole number from 1"),
        (&["CLAIM", &sale, "ann", "-1"], "quantity"),
        (&["CLAIM", &sale, "ann", "1.0"], "quantity"),
        (&["CLAIM", &sale, "ann", "+1"], "quantity"),
        (&["CLAIM", &sale, "ann", "4294967296"], "quantity"),
        (&["CLAIM", &sale, ""], "user cannot be used"),
        (&["CLAIM", &sale, &long], "user cannot be used"),
        (&["CLAIM", &sale, "ann", "1", &"r".repeat(129)], "request-id cannot be used"),
        (&["ORDER"], "ORDER claim [user]"),
        (&["PAY", "1-1"], "PAY order payment-id amount-cents"),
        (&["RELEASE"], "RELEASE claim [user]"),
        (&["POOL"], "POOL sale"),
        (&["SHOW"], "SHOW claim"),
        (&["GET", "key"], "unknown command 'GET'"),
        (&["SET", "a\r\nb", "c"], "unknown command 'SET'"),
        (&["SELECT", "1"], "DB index is out of range"),
        (&["CLIENT", "KILL", "1"], "CLIENT KILL"),
        (&["CONFIG", "SET", "a", "b"], "qiang.toml"),
    ] {
        wrong(&client.say(words).await, "ERR", &[said]);
    }
    client.send(b"*3\r\n$5\r\nCLAIM\r\n$1\r\n1\r\n$2\r\n\xff\xfe\r\n").await;
    wrong(&client.answer().await, "ERR", &["user is not UTF-8"]);
    assert_eq!(shop.tally(&sale).await, [5, 0, 0, 0], "nothing happened");
    assert_eq!(client.ask("PING").await, json!("+PONG"), "and the connection holds");
}

#[tokio::test]
async fn what_clients_say_when_they_connect_is_answered() {
    let shop = open().await;
    let [mut two, mut three] = both(&shop).await;
    let hello = paired(&two.ask("HELLO 2 SETNAME till").await);
    for (name, value) in [
        ("server", json!("qiang")),
        ("proto", json!(2)),
        ("mode", json!("standalone")),
        ("role", json!("master")),
        ("modules", json!([])),
    ] {
        assert_eq!(hello[name], value, "{name}");
    }
    assert_eq!(two.ask("CLIENT GETNAME").await, json!("till"));
    assert_eq!(two.ask("CLIENT ID").await, hello["id"]);
    assert_ne!(two.ask("CLIENT ID").await, three.ask("CLIENT ID").await);
    wrong(&two.ask("HELLO 4").await, "NOPROTO", &[]);
    wrong(&two.ask("HELLO 3 NOW").await, "ERR", &["HELLO"]);
    assert_eq!(two.ask("CLIENT GETNAME").await, json!("till"), "a bad HELLO changes nothing");
    for client in [&mut two, &mut three] {
        for (line, answer) in [
            ("CLIENT SETNAME desk-1", json!("+OK")),
            ("CLIENT SETINFO LIB-NAME any", json!("+OK")),
            ("SELECT 0", json!("+OK")),
            ("PING", json!("+PONG")),
            ("PING hello", json!("hello")),
            ("ECHO hello", json!("hello")),
            ("COMMAND COUNT", json!(18)),
        ] {
            assert_eq!(client.ask(line).await, answer, "{line}");
        }
        let info = client.ask("INFO server").await;
        assert!(info.as_str().is_some_and(|text| text.contains("server_name:qiang\r\n")), "{info}");
        let list = client.ask("COMMAND LIST").await;
        assert!(list.as_array().is_some_and(|list| list.contains(&json!("claim"))), "{list}");
        let about = client.ask("COMMAND INFO claim get").await;
        let claim = about[0].as_array().expect("an entry");
        assert_eq!(claim[..3], [json!("claim"), json!(-3), json!(["+write", "+fast"])]);
        assert_eq!(about[1], Value::Null);
        assert_eq!(client.ask("COMMAND").await.as_array().map(Vec::len), Some(18));
    }
    let docs = three.ask("COMMAND DOCS pool nothing").await;
    assert_eq!(docs.as_object().map(serde_json::Map::len), Some(1), "{docs}");
    assert_eq!(docs["pool"]["arguments"], json!([{ "name": "sale", "type": "string" }]));
    let optional = &three.ask("COMMAND DOCS order").await["order"]["arguments"][1];
    let flags = json!(["+optional"]);
    assert_eq!(*optional, json!({ "name": "user", "type": "string", "flags": flags }));
    assert_eq!(two.ask("COMMAND DOCS").await.as_array().map(Vec::len), Some(36));
    let config = two.ask("CONFIG GET save appendonly other").await;
    assert!(config.as_array().is_some_and(|pairs| pairs.len() % 2 == 0), "{config}");
    assert_eq!(three.ask("RESET").await, json!("+RESET"));
    wrong(&three.ask("PING").await, "NOAUTH", &["AUTH password-or-token"]);
    assert_eq!(two.ask("QUIT").await, json!("+OK"));
    assert_eq!(two.rest().await, [] as [Value; 0]);
}

#[tokio::test]
async fn a_person_with_telnet_gets_along() {
    let shop = open().await;
    let sale = shop.sale(1, json!({})).await;
    let mut client = Client::new(raw::connect(address(&shop)).await);
    client.send(format!("\r\nAUTH \"{}\"\r\n", super::PASSWORD).as_bytes()).await;
    client.send(format!("  claim {sale} 'ann marie'\nquit\n").as_bytes()).await;
    let answers = client.rest().await;
    assert_eq!(answers, [json!("+OK"), json!([1, 1, format!("{sale}-1")]), json!("+OK")]);
    let mut nobody = stranger(&shop).await;
    assert_eq!(nobody.ask("QUIT").await, json!("+OK"), "leaving needs no password");
    assert_eq!(nobody.rest().await, [] as [Value; 0]);
}

#[tokio::test]
async fn a_packet_is_no_sale() {
    let shop = open().await;
    shop.packet(72, "ann").await;
    let mut client = backend(&shop).await;
    assert_eq!(client.ask("CLAIM 72 bob").await, json!([0, "no_such_sale"]));
    assert_eq!(client.ask("POOL 72").await, Value::Null);
    assert_eq!(client.ask("SHOW 72-1").await, Value::Null);
    assert_eq!(client.ask("ORDER 72-1").await, json!([0, "no_such_claim"]));
    assert_eq!(client.ask("RELEASE 72-1").await, json!([0, "no_such_claim"]));
    assert_eq!(client.ask("PAY 72-1 p-1 5").await, json!([0, "no_such_order"]));
}
