//! A server that forgot the scripts, or hung up on everybody, is worked with again at once.

use qiang_core::{Outcome, Reply};
use qiang_testkit::contract::{money, one_more};
use qiang_testkit::servers::redis::Durability;

use crate::asking::Asking as _;
use crate::fixture::{granted, node, open, orders, pool, prefix, view, wish};
use crate::servers::own;

#[tokio::test]
async fn scripts_forgotten_in_mid_sale_are_loaded_again() {
    let Some(server) = own(Durability::None) else { return };
    let engine = node(&server.url(), &prefix()).await;
    let id = pool(1);
    open(&engine, id, orders(10)).await;
    for round in 0..3 {
        server.flush_scripts().expect("it answers");
        let claim = granted(&engine, wish(id, &format!("u{round}"))).await;
        server.flush_scripts().expect("it answers");
        let paid = engine.pay(money(claim.id, &format!("p{round}"))).await;
        assert!(matches!(paid, Ok(Outcome::Done(_))), "{paid:?}");
    }
    server.flush_scripts().expect("it answers");
    engine.trim(0, 1).await.expect("it answers");
    assert_eq!(view(&engine, id).await.tally.paid, 3);
}

#[tokio::test]
async fn connections_that_were_closed_are_made_anew() {
    let Some(server) = own(Durability::Always) else { return };
    let engine = node(&server.url(), &prefix()).await;
    let id = pool(1);
    open(&engine, id, orders(100)).await;
    for round in 0..5 {
        server.disconnect_clients().expect("it answers");
        granted(&engine, wish(id, &format!("cut{round}"))).await;
        engine.drop_connections();
        granted(&engine, wish(id, &format!("dropped{round}"))).await;
    }
    server.restart().expect("it starts again");
    granted(&engine, wish(id, "after")).await;
    server.restart().expect("it starts again");
    let more = engine.ask(one_more(id, "r")).await.map(Reply::into_pool);
    assert!(matches!(more, Ok(Outcome::Done(_))), "{more:?}");
    server.restart().expect("it starts again");
    assert_eq!(engine.claims(id, 0, 100).await.expect("a read is asked again").len(), 11);
}
