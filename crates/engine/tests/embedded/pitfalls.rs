//! What goes wrong elsewhere, and must not here: the lines that the engine answers for.

use std::num::NonZeroU32;
use std::sync::Arc;

use qiang_core::{
    ClaimRequest, Event, Flow, Outcome, PoolChange, Refusal, ReleaseReason, State, Terms,
};
use qiang_testkit::contract::{sale, wish};

use super::asking::Asking as _;
use super::fixture::{
    claim_id, events, grant, held_engine, new_engine, open_at, open_sale, poll_once, pool, soon,
};

#[tokio::test]
async fn p02_nothing_begins_anew_after_a_restart_or_a_clearing() {
    let (folder, engine, _) = new_engine();
    let terms = Arc::new(sale(2, Flow::Order { pay_ms: 100 }));
    engine.open_pool(pool(), Arc::clone(&terms)).await.expect("it runs");
    assert_eq!(grant(&engine, "ann").await.id, claim_id(1));
    engine.release(claim_id(1), None, ReleaseReason::GaveUp).await.expect("it runs");
    engine.shut_down();
    let (engine, _) = open_at(folder.path(), 0);
    assert_eq!(grant(&engine, "bob").await.id, claim_id(2), "numbers go on");
    let in_use = engine.clear(pool()).await;
    assert_eq!(in_use, Ok(Outcome::Refused(Refusal::PoolInUse)), "somebody still has something");
    engine.release(claim_id(2), None, ReleaseReason::Cancelled).await.expect("it runs");
    engine.close(pool()).await.expect("it runs");
    let cleared = engine.clear(pool()).await;
    assert!(matches!(cleared, Ok(Outcome::Done(_))), "{cleared:?}");
    engine.shut_down();
    let (engine, _) = open_at(folder.path(), 0);
    let again = engine.open_pool(pool(), terms).await;
    assert_eq!(again, Ok(Outcome::Refused(Refusal::PoolExists)), "an id is used once");
    let log = events(&mut engine.log_reader().expect("it is there"), 0);
    let kinds: Vec<&str> = log.iter().map(Event::name).collect();
    assert_eq!(
        kinds,
        [
            "pool_opened",
            "claim_granted",
            "claim_released",
            "claim_granted",
            "claim_released",
            "pool_closed",
            "pool_cleared",
        ],
        "clearing deletes nothing that was not read"
    );
    assert!(matches!(&log[6], Event::Pool(state) if state.change == PoolChange::Cleared));
}

#[tokio::test]
async fn p10_a_claim_is_read_the_moment_it_was_granted() {
    let (_folder, engine, _) = new_engine();
    open_sale(&engine, 100, Flow::Hold { hold_ms: 1_000, pay_ms: 1_000 }).await;
    for user in 0..100 {
        let told = grant(&engine, &format!("user{user}")).await;
        let read = engine.claim_view(told.id).await.expect("it runs");
        assert_eq!(read, Some(told));
    }
}

#[tokio::test]
async fn p11_a_restart_never_resets_the_stock() {
    let (folder, engine, _) = new_engine();
    let terms: Arc<Terms> = Arc::new(sale(3, Flow::Instant));
    engine.open_pool(pool(), Arc::clone(&terms)).await.expect("it runs");
    grant(&engine, "ann").await;
    engine.shut_down();
    let (engine, _) = open_at(folder.path(), 0);
    let again = engine.open_pool(pool(), terms).await;
    assert!(matches!(again, Ok(Outcome::Replayed(view)) if view.available == 2));
    let other = engine.open_pool(pool(), Arc::new(sale(9, Flow::Instant))).await;
    assert_eq!(other, Ok(Outcome::Refused(Refusal::PoolExists)));
}

#[tokio::test]
async fn p22_claims_of_one_user_in_one_batch_are_summed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (engine, gate, first) = held_engine(folder.path(), 64, 1_000).await;
    // One each in this pool: all of these wait for the same batch.
    let mut asked: Vec<_> =
        (0..10).map(|_| Box::pin(engine.claim(wish(pool(), "ann", None)))).collect();
    for claim in &mut asked {
        assert_eq!(poll_once(claim).await, None);
    }
    gate.open();
    let mut outcomes = Vec::new();
    for claim in asked {
        outcomes.push(soon("a claim", claim).await.expect("it runs"));
    }
    first.await.expect("the first was granted");
    assert!(matches!(&outcomes[0], Outcome::Done(claim) if claim.state == State::Paid));
    let refused = Outcome::Refused(Refusal::AlreadyClaimed { claim: claim_id(2) });
    assert!(outcomes[1..].iter().all(|outcome| *outcome == refused));
    // And with quantities: two and two are four, which is more than three.
    let three = Terms { limit_per_user: 3, ..sale(100, Flow::Instant) };
    let other = qiang_core::PoolId::new(8).expect("positive");
    engine.open_pool(other, Arc::new(three)).await.expect("it runs");
    let two = || ClaimRequest {
        quantity: NonZeroU32::new(2).expect("positive"),
        ..wish(other, "ann", None)
    };
    let (one, more) = tokio::join!(engine.claim(two()), engine.claim(two()));
    assert!(matches!(one, Ok(Outcome::Done(_))));
    assert_eq!(more, Ok(Outcome::Refused(Refusal::OverLimit { had: 2, limit: 3 })));
}
