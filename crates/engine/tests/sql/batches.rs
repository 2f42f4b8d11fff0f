//! Those who wait together are decided together, as if one after the other.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use qiang_core::{Event, Flow, PoolId, Timestamp};
use qiang_engine::Clock;
use qiang_engine::sql::Options;
use qiang_sql::{Dialect, on_every_database};
use qiang_testkit::contract::wish;
use qiang_testkit::{Generator, Oracle};

use super::asking::Asking as _;
use super::fixture::{World, each_world, events, open_sale, options, pool};

/// Random commands, many at once: each answer is the one it would have had alone.
async fn many_at_once(on: Dialect, seed: u64) {
    let world = World::new(on).await;
    let engine = world.engine_with(Options { partitions: 1, ..options() }).await;
    let mut generator = Generator::new(seed);
    let mut oracle = Oracle::default();
    let mut now = Timestamp::from_millis(0);
    for _ in 0..12 {
        now = now.max(generator.tick(&oracle, now));
        world.clock.advance_millis(now.millis() - world.clock.now().millis());
        oracle.expire(now);
        engine.expire_due().await.expect("it can");
        let commands: Vec<_> = (0..generator.random().between(1, 30))
            .map(|_| {
                let command = generator.command(&oracle);
                let wanted = oracle.handle(&command, now);
                (command, wanted)
            })
            .collect();
        // In this runtime tasks begin in the order they were made.
        let asked: Vec<_> = commands
            .into_iter()
            .map(|(command, wanted)| {
                let engine = engine.clone();
                let shown = command.clone();
                (shown, wanted, tokio::spawn(async move { engine.ask(command).await }))
            })
            .collect();
        for (command, wanted, got) in asked {
            let got = got.await.expect("no panic").expect("nothing fails here");
            assert_eq!(got, wanted, "{command:?}");
        }
    }
    let all = events(&engine).await;
    assert_eq!(by_pool(&all), by_pool(oracle.log()));
    for pool in oracle.pools() {
        assert_eq!(engine.pool(pool).await, Ok(oracle.view(pool)));
        let claims = engine.claims(pool, 0, 10_000).await.expect("they can be read");
        assert_eq!(claims, oracle.claims(pool));
    }
}

fn by_pool(events: &[Event]) -> BTreeMap<PoolId, Vec<&Event>> {
    let mut pools = BTreeMap::<_, Vec<_>>::new();
    for event in events {
        pools.entry(event.pool()).or_default().push(event);
    }
    pools
}

mod many_at_once_answer_as_the_oracle {
    use qiang_sql::Dialect;

    use super::{each_world, many_at_once};

    #[test]
    fn sqlite() {
        each_world(Dialect::Sqlite, 25, many_at_once);
    }

    #[test]
    fn mysql() {
        each_world(Dialect::MySql, 6, many_at_once);
    }

    #[test]
    fn postgres() {
        each_world(Dialect::Postgres, 6, many_at_once);
    }
}

/// A crowd costs few transactions, and those who come too late cost none that writes.
async fn a_crowd_shares_transactions(on: Dialect) {
    let world = World::new(on).await;
    let engine = world.engine().await;
    open_sale(&engine, 300, Flow::Instant).await;
    let before = engine.stats().batches.load(Ordering::Relaxed);
    let ask_all = async |from: u32| {
        let asked: Vec<_> = (from..from + 300)
            .map(|buyer| {
                let (engine, wish) = (engine.clone(), wish(pool(), &format!("u{buyer}"), None));
                tokio::spawn(async move { engine.claim(wish).await.expect("an answer") })
            })
            .collect();
        for answer in asked {
            answer.await.expect("no panic");
        }
        engine.stats().batches.load(Ordering::Relaxed) - before
    };
    assert_eq!(ask_all(0).await, 2, "as many as fit into one, and the rest");
    assert_eq!(ask_all(1_000).await, 2, "refusals write nothing");
    let view = engine.pool(pool()).await.expect("it can be read").expect("it is open");
    assert_eq!((view.available, view.claims), (0, 300));
}

/// One more than may wait is told so, and was not decided.
async fn too_many_are_turned_away(on: Dialect) {
    let world = World::new(on).await;
    let engine = world.engine_with(Options { queue: 3, ..options() }).await;
    open_sale(&engine, 10, Flow::Instant).await;
    let asked: Vec<_> = (0..5)
        .map(|buyer| {
            let (engine, wish) = (engine.clone(), wish(pool(), &format!("u{buyer}"), None));
            tokio::spawn(async move { engine.claim(wish).await })
        })
        .collect();
    let mut refused = 0;
    for answer in asked {
        match answer.await.expect("no panic") {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error, qiang_engine::Error::Overloaded);
                refused += 1;
            }
        }
    }
    assert_eq!(refused, 2);
    assert_eq!(engine.queue_depth(), 0);
    let view = engine.pool(pool()).await.expect("it can be read").expect("it is open");
    assert_eq!(view.claims, 3);
}

/// What was asked is decided, also when nobody waits for the answer any more; a shut engine takes
/// nothing more.
async fn the_end_is_orderly(on: Dialect) {
    let world = World::new(on).await;
    let engine = world.engine().await;
    open_sale(&engine, 10, Flow::Instant).await;
    let hasty = {
        let (engine, wish) = (engine.clone(), wish(pool(), "hasty", None));
        tokio::spawn(async move { engine.claim(wish).await })
    };
    tokio::task::yield_now().await;
    hasty.abort();
    engine.shut_down().await;
    engine.ended().await;
    let late = engine.claim(wish(pool(), "late", None)).await;
    assert_eq!(late, Err(qiang_engine::Error::Unavailable));
    let next = world.engine().await;
    let claims = next.claims(pool(), 0, 10).await.expect("they can be read");
    assert_eq!(claims.iter().map(|claim| claim.user.as_str()).collect::<Vec<_>>(), ["hasty"]);
}

on_every_database!(a_crowd_shares_transactions, too_many_are_turned_away, the_end_is_orderly);
