//! A server that is out of memory.

use qiang_core::{Flow, Outcome};
use qiang_engine::Error;
use qiang_testkit::contract::sale;
use qiang_testkit::servers::redis::Durability;

use crate::asking::Asking as _;
use crate::fixture::{granted, node, open, pool, prefix, view, wish};
use crate::servers::own;

#[tokio::test]
async fn nothing_is_granted_without_memory_but_what_is_over_can_be_cleared() {
    let Some(server) = own(Durability::None) else { return };
    let engine = node(&server.url(), &prefix()).await;
    let (over, open_one) = (pool(1), pool(2));
    for id in [over, open_one] {
        open(&engine, id, sale(10, Flow::Instant)).await;
        granted(&engine, wish(id, "ann")).await;
    }
    engine.close(over).await.expect("it can be closed");
    server.command(&["CONFIG", "SET", "maxmemory", "1"]).expect("it answers");
    assert_eq!(engine.claim(wish(open_one, "bob")).await, Err(Error::Unavailable));
    let cleared = engine.clear(over).await;
    assert!(matches!(&cleared, Ok(Outcome::Done(view)) if view.cleared), "{cleared:?}");
    server.command(&["CONFIG", "SET", "maxmemory", "0"]).expect("it answers");
    granted(&engine, wish(open_one, "bob")).await;
    assert!(engine.lost().is_empty(), "{:?}", engine.lost());
    assert_eq!(view(&engine, open_one).await.tally.paid, 2);
}
