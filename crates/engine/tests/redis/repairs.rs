//! What is put back after a loss: numbers that may have been given out are not given again, too many
//! units are made up for, and whoever was overtaken has no say.

use qiang_core::{ClaimId, Outcome, RefundReason, Refusal, ReleaseReason, Reply, Settlement};
use qiang_engine::redis::{Goes, RestoreError, hash_tag};
use qiang_testkit::contract::{money, one_more};
use qiang_testkit::servers::shared;

use crate::asking::Asking as _;
use crate::fixture::{
    claims, granted, node, open, orders, pool, prefix, put_back, refused, view, wish,
};
use crate::gone_back::salvage;
use crate::servers::command;

#[tokio::test]
async fn p26_numbers_that_may_have_been_given_out_are_not_given_again() {
    const LOST_THROUGH: u32 = 5_000;
    for buckets in [1, 3] {
        let Some(url) = shared::redis() else { return };
        let engine = node(&url, &prefix()).await;
        let id = pool(1);
        let mut terms = orders(40);
        terms.buckets = buckets;
        open(&engine, id, terms).await;
        let ann = granted(&engine, wish(id, "ann")).await;
        let mut record = salvage(&engine, id).await;
        let lost = granted(&engine, wish(id, "bob")).await;
        record.lost_through = LOST_THROUGH;
        put_back(&engine, std::slice::from_ref(&record), "e2", &[50; 4]).await;
        let cyd = granted(&engine, wish(id, "cyd")).await;
        assert!(cyd.id.number > LOST_THROUGH, "{cyd:?}");
        // The money for a claim that nobody remembers is owed back, once, and pays nobody's order.
        let due = engine.pay(money(lost.id, "P")).await;
        let Ok(Outcome::Done(Settlement::RefundDue(refund))) = due else { panic!("{due:?}") };
        assert_eq!((refund.reason, refund.order), (RefundReason::ClaimLost, lost.id));
        let again = engine.pay(money(lost.id, "P")).await;
        assert_eq!(again, Ok(Outcome::Replayed(Settlement::RefundDue(refund))));
        assert_eq!(engine.claim_view(lost.id).await, Ok(None));
        let never = ClaimId { number: cyd.id.number + 3_000, ..cyd.id };
        let refused = engine.pay(money(never, "Q")).await;
        assert_eq!(refused, Ok(Outcome::Refused(Refusal::NoSuchClaim)));
        // What is left out is in nobody's way.
        assert_eq!(claims(&engine, id).await, [ann.clone(), cyd.clone()]);
        assert_eq!((view(&engine, id).await.claims, view(&engine, id).await.payments), (2, 1));
        let record = salvage(&engine, id).await;
        assert_eq!(record.claims, [ann, cyd]);
        put_back(&engine, std::slice::from_ref(&record), "e3", &[90; 4]).await;
        let dan = granted(&engine, wish(id, "dan")).await;
        assert!(record.claims.iter().all(|claim| claim.id.number < dan.id.number), "{dan:?}");
    }
}

#[tokio::test]
async fn p24_a_sale_that_was_oversold_goes_on_when_enough_came_back() {
    let Some(url) = shared::redis() else { return };
    let engine = node(&url, &prefix()).await;
    let id = pool(1);
    let mut terms = orders(12);
    terms.buckets = 3;
    open(&engine, id, terms).await;
    for user in 0..12 {
        granted(&engine, wish(id, &format!("u{user}"))).await;
    }
    let mut record = salvage(&engine, id).await;
    for state in &mut record.history {
        state.total = 10;
    }
    put_back(&engine, std::slice::from_ref(&record), "e2", &[50; 4]).await;
    let spread = engine.spread(id).await.expect("it answers").expect("it is there");
    assert_eq!((spread.units, spread.short), (10, 2));
    let seen = view(&engine, id).await;
    assert_eq!((seen.total, seen.available, seen.tally.taken()), (10, 0, 12));
    assert_eq!(refused(&engine, wish(id, "early")).await, Refusal::SoldOut);
    for claim in &record.claims {
        let released = engine.release(claim.id, None, ReleaseReason::Cancelled).await;
        assert!(matches!(released, Ok(Outcome::Done(_))), "{released:?}");
    }
    let spread = engine.spread(id).await.expect("it answers").expect("it is there");
    assert_eq!((spread.units, spread.short), (10, 0));
    for user in 0..10 {
        granted(&engine, wish(id, &format!("late{user}"))).await;
    }
    assert_eq!(refused(&engine, wish(id, "later")).await, Refusal::SoldOut);
    let more = engine.ask(one_more(id, "more")).await.map(Reply::into_pool);
    assert!(matches!(more, Ok(Outcome::Done(_))), "{more:?}");
    granted(&engine, wish(id, "later")).await;
}

#[tokio::test]
async fn p25_a_repair_that_was_overtaken_changes_nothing() {
    let Some(url) = shared::redis() else { return };
    let engine = node(&url, &prefix()).await;
    let id = pool(1);
    open(&engine, id, orders(10)).await;
    granted(&engine, wish(id, "ann")).await;
    let record = salvage(&engine, id).await;
    let (early, late) = (engine.restore_as(7), engine.restore_as(8));
    for partition in 0..engine.partitions() {
        early.suspend(partition).await.expect("nobody else has begun");
        late.suspend(partition).await.expect("it came later");
        late.resume(partition, "e2", Goes::OnBehind(50)).await.expect("it has the last word");
    }
    engine.set_epoch_of_all("e2");
    granted(&engine, wish(id, "bob")).await;
    // It was held up all the while, and knows nothing of that.
    let fenced = |what: Result<(), RestoreError>| {
        assert!(matches!(what, Err(RestoreError::Fenced)), "{what:?}");
    };
    fenced(early.pool(&record).await);
    fenced(early.suspend(0).await);
    fenced(early.resume(0, "e3", Goes::OnWithItsLog).await);
    assert_eq!(claims(&engine, id).await.len(), 2);
    granted(&engine, wish(id, "cyd")).await;
}

/// A partition that only lay beside a lost one keeps what nobody has read yet.
#[tokio::test]
async fn a_log_goes_on_where_nothing_was_lost() {
    let Some(url) = shared::redis() else { return };
    let engine = node(&url, &prefix()).await;
    open(&engine, pool(1), orders(10)).await;
    granted(&engine, wish(pool(1), "ann")).await;
    let partition = engine.partitions_of(pool(1), 1)[0];
    let restore = engine.restore_as(1);
    restore.suspend(partition).await.expect("it can be suspended");
    restore.resume(partition, "e2", Goes::OnWithItsLog).await.expect("it can be resumed");
    engine.set_epoch(partition, "e2");
    granted(&engine, wish(pool(1), "bob")).await;
    let (events, _) = engine.read_log(partition, 0, 10).await.expect("it can be read");
    assert_eq!(events.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sale_that_was_put_back_takes_as_much_memory_as_before() {
    const CLAIMS: u32 = 2_000;
    let Some(url) = shared::redis() else { return };
    let prefix = prefix();
    let engine = node(&url, &prefix).await;
    let id = pool(1);
    open(&engine, id, orders(CLAIMS)).await;
    let all = (0..CLAIMS).map(|user| {
        let engine = engine.clone();
        tokio::spawn(async move { granted(&engine, wish(id, &format!("user{user}"))).await })
    });
    for claim in all.collect::<Vec<_>>() {
        claim.await.expect("no panic");
    }
    let script = "local n = 0 for _, key in ipairs(redis.call('KEYS', ARGV[1])) do \
                  n = n + redis.call('MEMORY', 'USAGE', key, 'SAMPLES', 0) end return n";
    let bytes = || {
        let said = command(&url, &["EVAL", script, "0", &format!("{prefix}:*:1/0")]);
        let bytes = said.strip_prefix(':').and_then(|rest| rest.trim().parse::<u32>().ok());
        bytes.unwrap_or_else(|| panic!("{said}"))
    };
    let before = bytes();
    let record = salvage(&engine, id).await;
    put_back(&engine, std::slice::from_ref(&record), "e2", &[5_000; 4]).await;
    let after = bytes();
    assert!(after <= before + before / 20, "{before} bytes became {after}");
    assert_eq!(claims(&engine, id).await, record.claims);
}

/// A step that the network kept for a while arrives when the sale goes on already; and one that a
/// failover has lost keeps all behind it from being done.
#[tokio::test]
async fn p25_a_step_of_a_repair_is_done_once_and_in_its_turn() {
    const PUT: &str = include_str!("../../src/redis/put.lua");
    let Some(url) = shared::redis() else { return };
    let prefix = prefix();
    let engine = node(&url, &prefix).await;
    let id = pool(1);
    open(&engine, id, orders(10)).await;
    granted(&engine, wish(id, "ann")).await;
    let record = salvage(&engine, id).await;
    let partition = engine.partitions_of(id, 1)[0];
    let restore = engine.restore_as(7);
    restore.suspend(partition).await.expect("nobody else has begun");
    restore.pool(&record).await.expect("it can be put back");
    restore.resume(partition, "e2", Goes::OnWithItsLog).await.expect("it can be resumed");
    restore.suspend(partition).await.expect("a late copy");
    engine.set_epoch(partition, "e2");
    granted(&engine, wish(id, "bob")).await;
    let key = |what: &str| format!("{prefix}:{{{}}}:{what}", hash_tag(partition));
    let (meta, kept) = (key("meta"), key("claims:1/0"));
    let step =
        |number: &str| command(&url, &["EVAL", PUT, "2", &meta, &kept, "7", number, "UNLINK"]);
    assert_eq!(step("1"), ":0\r\n");
    assert!(step("9999").starts_with("-FENCED"), "{}", step("9999"));
    assert_eq!(claims(&engine, id).await.len(), 2);
    granted(&engine, wish(id, "cyd")).await;
}
