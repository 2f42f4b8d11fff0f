//! The embedded engine passes what every engine must.

use std::sync::Arc;

use qiang_core::Command;
use qiang_engine::Clock as _;
use qiang_testkit::{contract, each_seed};

use super::asking::{Subjected, everything};
use super::fixture::{new_engine, open_at, pool};

/// Runs the future on a thread of its own, so that seeded worlds can be tried one by one.
fn block_on(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime").block_on(future);
}

#[test]
fn it_answers_as_the_oracle() {
    each_seed(15, |seed| {
        block_on(async {
            let (_folder, engine, clock) = new_engine();
            let subject = Subjected { engine, clock };
            contract::answers_as_the_oracle(&subject, seed, 80).await;
            subject.engine.shut_down();
        });
    });
}

#[tokio::test]
async fn a_sale_from_opening_to_clearing() {
    let (_folder, engine, clock) = new_engine();
    contract::a_sale_from_opening_to_clearing(&Subjected { engine, clock }).await;
}

#[tokio::test]
async fn late_money_is_never_lost() {
    let (_folder, engine, clock) = new_engine();
    contract::late_money_is_never_lost(&Subjected { engine, clock }).await;
}

#[tokio::test]
async fn a_payment_counts_once_in_each_sale() {
    let (_folder, engine, clock) = new_engine();
    contract::a_payment_counts_once_in_each_sale(&Subjected { engine, clock }).await;
}

#[tokio::test]
async fn a_packet_is_no_sale() {
    let (_folder, engine, clock) = new_engine();
    contract::a_packet_is_no_sale(&Subjected { engine, clock }).await;
}

#[tokio::test]
async fn a_cleared_pool_leaves_nothing_or_a_tombstone() {
    let (_folder, engine, clock) = new_engine();
    contract::a_cleared_pool_leaves_nothing_or_a_tombstone(&Subjected { engine, clock }).await;
}

#[test]
fn what_it_answered_is_there_after_a_restart() {
    each_seed(5, |seed| {
        block_on(async {
            let (folder, engine, clock) = new_engine();
            let now = {
                let subject = Subjected { engine: engine.clone(), clock: Arc::clone(&clock) };
                contract::answers_as_the_oracle(&subject, seed, 80).await;
                clock.now().millis()
            };
            let before = everything(&engine).await;
            engine.shut_down();
            let (again, _) = open_at(folder.path(), now);
            assert_eq!(everything(&again).await, before);
            again.shut_down();
        });
    });
}

/// It is copied some times on its way, for every claim.
#[tokio::test]
async fn a_claim_on_its_way_is_small() {
    let (_folder, engine, _) = new_engine();
    let wish = contract::wish(pool(), "ann", None);
    let own = size_of_val(&engine.ask(Command::Claim(wish.clone())));
    let any = size_of_val(&qiang_engine::Engine::Embedded(engine).ask(Command::Claim(wish)));
    assert!(any < 2 * own && any < 2_048, "{any} bytes, where the engine itself needs {own}");
}
