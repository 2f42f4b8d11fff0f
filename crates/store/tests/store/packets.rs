//! What happens to a packet is not written among the sales.

use qiang_core::{Cents, Event, Flow, Kind, Supply, Terms};
use qiang_sql::{Dialect, on_every_database};

use crate::fixtures::{Db, PAY_MS, Records, granted, opened, terms};

on_every_database!(a_packet_leaves_no_rows_and_holds_nothing_up);

async fn a_packet_leaves_no_rows_and_holds_nothing_up(on: Dialect) {
    let db = Db::new(on).await;
    let cut = Supply::Portions([3, 2, 1].map(Cents::new).into());
    let packet = opened(1, Terms { kind: Kind::Packet, supply: cut, ..terms(Flow::Instant) });
    let sale = opened(2, terms(Flow::Order { pay_ms: PAY_MS }));
    // A grab whose packet came in another batch, or never, is none of ours either.
    let grab = Event::Claim(granted(&packet, 1, "ann"));
    db.store.project("embedded", 0, 1, std::slice::from_ref(&grab)).await.expect("written");
    let claim = granted(&sale, 1, "ann");
    let events =
        [Event::Pool(packet), grab, Event::Pool(sale.clone()), Event::Claim(claim.clone())];
    db.store.project("embedded", 1, 5, &events).await.expect("written");
    db.store.upsert(&events).await.expect("written");
    assert_eq!(db.store.position(qiang_store::RECORDS, "embedded").await.expect("readable"), 5);
    let all = Records::of(&db.store).await;
    assert_eq!(all.sales.iter().map(|sale| sale.id).collect::<Vec<_>>(), [sale.id]);
    assert_eq!((all.claims, all.orders.len()), (vec![claim], 1));
}
