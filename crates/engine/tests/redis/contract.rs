//! The engine on Redis passes what every engine must.

use std::sync::Arc;

use qiang_core::Timestamp;
use qiang_engine::ManualClock;
use qiang_engine::redis::Time;
use qiang_testkit::servers::shared::{REDIS, REDIS_CLUSTER, Shared, VALKEY};
use qiang_testkit::{contract, each_seed};

use crate::asking::everything;
use crate::fixture::{EPOCH, Subjected, block_on, engine_at, fresh, prefix};

const COMMANDS: usize = 80;

fn answers_as_the_oracle(server: Shared, seeds: u64) {
    let Some(url) = server.url() else { return };
    each_seed(seeds, |seed| {
        block_on(async {
            let subject = fresh(&url).await;
            contract::answers_as_the_oracle(&subject, seed, COMMANDS).await;
        });
    });
}

#[test]
fn redis_answers_as_the_oracle() {
    answers_as_the_oracle(REDIS, 40);
}

#[test]
fn p04_a_cluster_answers_as_the_oracle() {
    answers_as_the_oracle(REDIS_CLUSTER, 15);
}

#[test]
fn valkey_answers_as_the_oracle() {
    answers_as_the_oracle(VALKEY, 15);
}

fn sale_late_money_and_packet(server: Shared) {
    let Some(url) = server.url() else { return };
    block_on(async {
        contract::a_sale_from_opening_to_clearing(&fresh(&url).await).await;
        contract::late_money_is_never_lost(&fresh(&url).await).await;
        contract::a_packet_is_no_sale(&fresh(&url).await).await;
        contract::a_cleared_pool_leaves_nothing_or_a_tombstone(&fresh(&url).await).await;
    });
}

#[test]
fn redis_runs_a_sale_from_opening_to_clearing() {
    sale_late_money_and_packet(REDIS);
}

#[test]
fn a_cluster_runs_a_sale_from_opening_to_clearing() {
    sale_late_money_and_packet(REDIS_CLUSTER);
}

#[test]
fn valkey_runs_a_sale_from_opening_to_clearing() {
    sale_late_money_and_packet(VALKEY);
}

#[test]
fn what_it_answered_is_there_for_the_next_engine() {
    let Some(url) = REDIS.url() else { return };
    block_on(async {
        let (prefix, clock) = (prefix(), Arc::new(ManualClock::new(Timestamp::default())));
        let time = || Time::Given(Arc::<ManualClock>::clone(&clock));
        let engine = engine_at(&url, &prefix, time()).await;
        engine.set_up(EPOCH).await.expect("it can be set up");
        engine.set_epoch_of_all(EPOCH);
        let subject = Subjected { engine, clock: Arc::clone(&clock) };
        contract::answers_as_the_oracle(&subject, 1, COMMANDS).await;
        let next = engine_at(&url, &prefix, time()).await;
        next.set_epoch_of_all(EPOCH);
        assert_eq!(everything(&next).await, everything(&subject.engine).await);
    });
}
