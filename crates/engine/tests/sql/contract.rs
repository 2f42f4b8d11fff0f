//! The engine on a database passes what every engine must.

use std::sync::Arc;

use qiang_engine::sql::Engine;
use qiang_sql::{Dialect, on_every_database};
use qiang_testkit::{contract, rules};

use super::asking::{Subjected, everything};
use super::fixture::{World, each_world};

async fn subject(on: Dialect) -> (World, Subjected<Engine>) {
    let world = World::new(on).await;
    let subject = Subjected { engine: world.engine().await, clock: Arc::clone(&world.clock) };
    (world, subject)
}

async fn oracle(on: Dialect, seed: u64) {
    let (_world, subject) = subject(on).await;
    contract::answers_as_the_oracle(&subject, seed, 60).await;
    subject.engine.shut_down().await;
}

mod it_answers_as_the_oracle {
    use qiang_sql::Dialect;

    use super::{each_world, oracle};

    #[test]
    fn sqlite() {
        each_world(Dialect::Sqlite, 12, oracle);
    }

    #[test]
    fn mysql() {
        each_world(Dialect::MySql, 5, oracle);
    }

    #[test]
    fn postgres() {
        each_world(Dialect::Postgres, 5, oracle);
    }
}

async fn a_sale_from_opening_to_clearing(on: Dialect) {
    let (_world, subject) = subject(on).await;
    contract::a_sale_from_opening_to_clearing(&subject).await;
}

async fn late_money_is_never_lost(on: Dialect) {
    let (_world, subject) = subject(on).await;
    contract::late_money_is_never_lost(&subject).await;
}

async fn a_payment_counts_once_in_each_sale(on: Dialect) {
    let (_world, subject) = subject(on).await;
    contract::a_payment_counts_once_in_each_sale(&subject).await;
}

async fn what_it_answered_is_there_for_the_next_engine(on: Dialect) {
    let (world, subject) = subject(on).await;
    contract::answers_as_the_oracle(&subject, 1, 80).await;
    let before = everything(&subject.engine).await;
    subject.engine.shut_down().await;
    assert_eq!(everything(&world.engine().await).await, before);
}

async fn it_keeps_the_rules(on: Dialect) {
    let (_world, subject) = subject(on).await;
    rules::hold_on(&subject).await;
}

async fn a_packet_is_no_sale(on: Dialect) {
    let (_world, subject) = subject(on).await;
    contract::a_packet_is_no_sale(&subject).await;
}

async fn a_cleared_pool_leaves_nothing_or_a_tombstone(on: Dialect) {
    let (_world, subject) = subject(on).await;
    contract::a_cleared_pool_leaves_nothing_or_a_tombstone(&subject).await;
}

on_every_database!(
    a_cleared_pool_leaves_nothing_or_a_tombstone,
    a_sale_from_opening_to_clearing,
    late_money_is_never_lost,
    a_payment_counts_once_in_each_sale,
    what_it_answered_is_there_for_the_next_engine,
    a_packet_is_no_sale,
    it_keeps_the_rules,
);
