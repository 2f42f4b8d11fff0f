//! A state that is older than what was seen is not worked on, until it was repaired.

use qiang_core::{Claim, Kind, Outcome, PoolId, RefundReason, Settlement};
use qiang_engine::redis::{Engine, PoolRecord};
use qiang_engine::{Error, LogError};
use qiang_testkit::contract::money;
use qiang_testkit::servers::redis::Durability;

use crate::asking::Asking as _;
use crate::fixture::{claims, granted, node, open, orders, pool, prefix, put_back, view, wish};
use crate::servers::own;

/// Nothing is answered, and nothing is decided.
pub(crate) async fn is_lost(engine: &Engine, id: PoolId, why: &str) {
    // Of a connection that broke nobody knows what it still carried.
    assert!(engine.claim(wish(id, "late")).await.is_err());
    assert_eq!(engine.claim(wish(id, "late")).await, Err(Error::Unavailable));
    let partition = engine.partitions_of(id, 1)[0];
    let lost = engine.lost();
    assert!(lost[&partition].contains(why), "{lost:?}");
    assert_eq!(engine.pool(id).await, Err(Error::Unavailable));
    assert_eq!(engine.close(id).await, Err(Error::Unavailable));
    assert_eq!(engine.claims(id, 0, 10).await, Err(Error::Unavailable));
    assert_eq!(
        engine.pools(Kind::Sale, None, 10).await,
        Err(Error::Unavailable),
        "none is not the same"
    );
}

/// Puts everything back under another epoch.
pub(crate) async fn repair(engine: &Engine, record: &PoolRecord, ends: &[u64]) {
    put_back(engine, std::slice::from_ref(record), "e2", ends).await;
}

pub(crate) async fn salvage(engine: &Engine, id: PoolId) -> PoolRecord {
    engine.salvage(id).await.expect("it can be read").expect("it is there")
}

#[tokio::test]
async fn p16_a_flushed_server_is_noticed_and_goes_on_after_a_repair() {
    let Some(server) = own(Durability::None) else { return };
    let (url, prefix) = (server.url(), prefix());
    let (engine, other) = (node(&url, &prefix).await, node(&url, &prefix).await);
    let id = pool(1);
    open(&engine, id, orders(10)).await;
    let ann = granted(&engine, wish(id, "ann")).await;
    granted(&other, wish(id, "bob")).await;
    let (record, ends) = (salvage(&engine, id).await, engine.positions().await.expect("it reads"));
    server.flush().expect("it answers");
    is_lost(&engine, id, "is empty").await;
    is_lost(&other, id, "is empty").await;
    let fresh = node(&url, &prefix).await;
    // One who was not told which epoch is right begins anew; the others do not follow.
    assert_eq!(fresh.pool(id).await, Ok(None));
    repair(&engine, &record, &ends).await;
    assert!(engine.lost().is_empty());
    let cyd = granted(&engine, wish(id, "cyd")).await;
    assert_eq!(cyd.id.number, 3);
    // Calls of the old epoch have no effect, and say so.
    let before = view(&engine, id).await;
    assert_eq!(other.claim(wish(id, "dan")).await, Err(Error::Unavailable));
    assert_eq!(fresh.claim(wish(id, "eve")).await, Err(Error::Unavailable));
    assert_eq!(fresh.pay(money(ann.id, "P")).await, Err(Error::Unavailable));
    assert_eq!(view(&engine, id).await, before);
    other.set_epoch_of_all("e2");
    assert_eq!(granted(&other, wish(id, "dan")).await.id.number, 4);
    let paid = other.pay(money(ann.id, "P")).await;
    assert!(matches!(paid, Ok(Outcome::Done(_))), "{paid:?}");
}

#[tokio::test]
async fn p16_an_old_dump_is_noticed_and_goes_on_after_a_repair() {
    let Some(server) = own(Durability::None) else { return };
    let engine = node(&server.url(), &prefix()).await;
    let id = pool(1);
    open(&engine, id, orders(10)).await;
    granted(&engine, wish(id, "ann")).await;
    server.command(&["SAVE"]).expect("it is saved");
    let bob = granted(&engine, wish(id, "bob")).await;
    let (record, ends) = (salvage(&engine, id).await, engine.positions().await.expect("it reads"));
    server.restart().expect("it starts again");
    is_lost(&engine, id, "gone back").await;
    let partition = engine.partitions_of(id, 1)[0];
    let end = ends[usize::from(partition)];
    let log = engine.read_log(partition, end, 10).await;
    assert!(matches!(log, Err(LogError::Behind { .. })), "{log:?}");
    repair(&engine, &record, &ends).await;
    assert_eq!(engine.claim_view(bob.id).await, Ok(Some(bob)));
    assert_eq!(granted(&engine, wish(id, "cyd")).await.id.number, 3);
    let (log, _) = engine.read_log(partition, end, 10).await.expect("it goes on there");
    assert_eq!(log.len(), 1);
}

/// Another node makes the log longer than it ever was before whoever was answered asks again.
#[tokio::test]
async fn p16_a_loss_is_noticed_although_others_went_further() {
    let Some(server) = own(Durability::None) else { return };
    let (url, prefix) = (server.url(), prefix());
    let (engine, other) = (node(&url, &prefix).await, node(&url, &prefix).await);
    let id = pool(1);
    open(&engine, id, orders(10)).await;
    granted(&engine, wish(id, "ann")).await;
    granted(&other, wish(id, "bob")).await;
    server.command(&["SAVE"]).expect("it is saved");
    granted(&engine, wish(id, "cyd")).await;
    server.restart().expect("it starts again");
    // A connection that broke is made anew, whatever becomes of this claim.
    let _broken = other.claim(wish(id, "dan")).await;
    for user in ["eve", "fay", "gus"] {
        granted(&other, wish(id, user)).await;
    }
    is_lost(&engine, id, "gone back").await;
    assert!(other.lost().is_empty(), "it has lost nothing that it was told");
}

/// A node that was told nothing of a claim that its server has forgotten gives its number to nobody, and the
/// money for it to nobody either.
pub(crate) async fn is_given_to_nobody(fresh: &Engine, lost: &Claim, kept: &[Claim]) {
    let id = lost.id.pool;
    let due = fresh.pay(money(lost.id, "P")).await;
    let Ok(Outcome::Done(Settlement::RefundDue(refund))) = due else { panic!("{due:?}") };
    assert_eq!((refund.reason, refund.order), (RefundReason::ClaimLost, lost.id));
    let mut all = kept.to_vec();
    for user in ["cyd", "dan", "eve", "fay", "gus", "hal"] {
        let new = granted(fresh, wish(id, user)).await;
        assert_ne!(new.id, lost.id, "{user} has the number of a claim that was lost");
        all.push(new);
    }
    all.sort_by_key(|claim| claim.id.number);
    assert_eq!(claims(fresh, id).await, all);
    assert_eq!(view(fresh, id).await.claims as usize, all.len());
}

#[tokio::test]
async fn p26_a_server_that_started_again_gives_no_number_that_it_may_have_forgotten() {
    for (durability, buckets) in
        [(Durability::None, 1), (Durability::EverySecond, 1), (Durability::EverySecond, 3)]
    {
        let Some(server) = own(durability) else { return };
        let (url, prefix) = (server.url(), prefix());
        let engine = node(&url, &prefix).await;
        let (id, other) = (pool(1), pool(2));
        for id in [id, other] {
            let mut terms = orders(40);
            terms.buckets = buckets;
            open(&engine, id, terms).await;
        }
        let ann = granted(&engine, wish(id, "ann")).await;
        let early = granted(&engine, wish(other, "ann")).await;
        server.command(&["SAVE"]).expect("it is saved");
        let bob = granted(&engine, wish(id, "bob")).await;
        drop(engine);
        // The machine loses power: the last call is not on the disk.
        if durability == Durability::EverySecond {
            server.tear(1).expect("it has a file");
        }
        server.restart().expect("it starts again");
        let fresh = node(&url, &prefix).await;
        is_given_to_nobody(&fresh, &bob, &[ann]).await;
        // Nobody was told of a number twice, whichever comes first, a claim or its money.
        let late = granted(&fresh, wish(other, "bob")).await;
        assert!(late.id.number > early.id.number + 1_000, "{late:?}");
        assert_eq!(claims(&fresh, other).await, [early, late.clone()]);
        // As long as it is the same server, numbers go on one by one.
        let again = node(&url, &prefix).await;
        let next = granted(&again, wish(other, "cyd")).await;
        assert!(next.id.number < late.id.number + 100, "{next:?}");
    }
}

/// What other processes have recorded counts as seen.
#[tokio::test]
async fn p16_a_log_that_ends_before_what_was_recorded_is_noticed() {
    let Some(server) = own(Durability::None) else { return };
    let engine = node(&server.url(), &prefix()).await;
    let id = pool(1);
    open(&engine, id, orders(10)).await;
    engine.raise_known(engine.partitions_of(id, 1)[0], 100);
    is_lost(&engine, id, "100 was seen").await;
}

/// A call that began before the repair ends after it: what it finds says nothing about what is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p16_a_call_from_before_the_repair_does_not_undo_it() {
    let Some(server) = own(Durability::None) else { return };
    let proxy = qiang_testkit::Proxy::start(server.port()).expect("a proxy");
    let prefix = prefix();
    let engine = node(&proxy.url(&server.url()), &prefix).await;
    let id = pool(1);
    open(&engine, id, orders(10)).await;
    granted(&engine, wish(id, "ann")).await;
    let record = salvage(&engine, id).await;
    let far = vec![1_000; usize::from(engine.partitions())];
    let began = proxy.counts().connections;
    proxy.swallow_replies();
    let before = tokio::spawn({
        let engine = engine.clone();
        async move { engine.claim(wish(id, "bob")).await }
    });
    // It was tried, and is tried again until it is answered.
    proxy.until(move |counts| counts.connections > began + 1).await.expect("it is tried");
    let repairer = node(&server.url(), &prefix).await;
    repair(&repairer, &record, &far).await;
    engine.set_epoch_of_all("e2");
    proxy.heal().expect("it behaves");
    let answer = before.await.expect("no panic");
    assert_eq!(answer, Err(Error::OutcomeUnknown));
    assert!(engine.lost().is_empty(), "{:?}", engine.lost());
    assert_eq!(granted(&engine, wish(id, "bob")).await.id.number, 2);
}
