//! Nobody is told anything that could still be lost, and nothing that was taken is dropped.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use qiang_core::{Event, Flow, Outcome, Refusal};
use qiang_engine::embedded::Engine;
use qiang_engine::{Error, LogReader};
use qiang_testkit::contract::wish;
use tokio::task::JoinSet;

use super::asking::Asking as _;
use super::fixture::{
    claim_id, events, grant, held_engine, new_engine, open_at, open_sale, poll_once, pool, soon,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_answer_is_in_the_journal_before_it_is_given() {
    let (folder, engine, _) = new_engine();
    open_sale(&engine, 1_000, Flow::Instant).await;
    let mut crowd = JoinSet::new();
    for user in 0..60 {
        let (engine, folder) = (engine.clone(), folder.path().to_owned());
        crowd.spawn(async move {
            let claim = grant(&engine, &format!("user{user}")).await;
            // Another connection sees what is committed and nothing else.
            let mut reader = LogReader::open(&folder).expect("the journal is there");
            assert!(events(&mut reader, 0).contains(&Event::Claim(claim)));
        });
    }
    while let Some(done) = crowd.join_next().await {
        done.expect("the claim was in the journal");
    }
}

#[tokio::test]
async fn those_who_wait_share_one_commit() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (engine, gate, first) = held_engine(folder.path(), 4_096, 1_000).await;
    let mut waiting: Vec<_> = (0..500)
        .map(|user| Box::pin(engine.claim(wish(pool(), &format!("user{user}"), None))))
        .collect();
    for claim in &mut waiting {
        assert_eq!(poll_once(claim).await, None, "nothing is answered yet");
    }
    let before = engine.stats().batches.load(Ordering::Relaxed);
    gate.open();
    for claim in waiting {
        assert!(matches!(soon("a claim", claim).await, Ok(Outcome::Done(_))));
    }
    first.await.expect("the first was granted");
    let after = engine.stats().batches.load(Ordering::Relaxed);
    assert_eq!(after - before, 2, "one for the first, one for all who waited");
}

#[tokio::test]
async fn a_full_queue_says_so_at_once() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (engine, gate, first) = held_engine(folder.path(), 3, 1_000).await;
    let mut taken: Vec<_> = (0..3)
        .map(|user| Box::pin(engine.claim(wish(pool(), &format!("user{user}"), None))))
        .collect();
    for claim in &mut taken {
        assert_eq!(poll_once(claim).await, None);
    }
    for _ in 0..5 {
        let mut late = Box::pin(engine.claim(wish(pool(), "late", None)));
        assert_eq!(poll_once(&mut late).await, Some(Err(Error::Overloaded)));
    }
    assert_eq!(engine.stats().overloaded.load(Ordering::Relaxed), 5);
    assert_eq!(engine.queue_depth(), 3);
    gate.open();
    for claim in taken {
        assert!(matches!(soon("a claim", claim).await, Ok(Outcome::Done(_))));
    }
    first.await.expect("the first was granted");
    let view = engine.pool(pool()).await.expect("it runs").expect("it is open");
    assert_eq!(view.claims, 4, "who was turned away has nothing");
    grant(&engine, "late").await;
}

#[tokio::test]
async fn a_claim_whose_caller_left_still_happens() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (engine, gate, first) = held_engine(folder.path(), 16, 1_000).await;
    let mut leaving = Box::pin(engine.claim(wish(pool(), "gone", Some("r"))));
    assert_eq!(poll_once(&mut leaving).await, None);
    drop(leaving);
    gate.open();
    first.await.expect("the first was granted");
    let claim = soon("a look", engine.claim_view(claim_id(2))).await.expect("it runs");
    assert_eq!(claim.expect("it happened").user.as_str(), "gone");
    let again = engine.claim(wish(pool(), "gone", Some("r"))).await;
    assert!(matches!(again, Ok(Outcome::Replayed(claim)) if claim.id == claim_id(2)));
}

#[tokio::test]
async fn stopping_answers_everything_that_was_taken() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (engine, gate, first) = held_engine(folder.path(), 4_096, 5_000).await;
    let mut taken: Vec<_> = (0..300)
        .map(|user| Box::pin(engine.claim(wish(pool(), &format!("user{user}"), None))))
        .collect();
    for claim in &mut taken {
        assert_eq!(poll_once(claim).await, None);
    }
    let (stopped, stopping) = tokio::sync::oneshot::channel();
    std::thread::spawn({
        let engine = engine.clone();
        move || {
            engine.shut_down();
            stopped.send(()).expect("the test waits for it");
        }
    });
    // Until the door is shut, what is asked is still taken, and so has to be answered as well.
    let mut more = 0;
    loop {
        let mut claim = Box::pin(engine.claim(wish(pool(), &format!("more{more}"), None)));
        match poll_once(&mut claim).await {
            None => taken.push(claim),
            Some(Err(Error::Unavailable)) => break,
            Some(Err(Error::Overloaded)) => {}
            Some(other) => panic!("{other:?}"),
        }
        more += 1;
        assert!(more < 1_000_000, "the door was never shut");
        std::thread::yield_now();
    }
    gate.open();
    soon("the stop", stopping).await.expect("it stops");
    first.await.expect("the first was granted");
    let count = taken.len();
    for claim in taken {
        assert!(matches!(soon("a claim", claim).await, Ok(Outcome::Done(_))));
    }
    let late = soon("an answer", engine.claim(wish(pool(), "late", None))).await;
    assert_eq!(late, Err(Error::Unavailable));
    assert_eq!(soon("an answer", engine.position()).await, Err(Error::Unavailable));
    let (again, _) = open_at(folder.path(), 0);
    let view = again.pool(pool()).await.expect("it runs").expect("it is open");
    assert_eq!(view.claims as usize, count + 1);
}

#[tokio::test]
async fn refusals_leave_the_journal_alone() {
    let (_folder, engine, _) = new_engine();
    open_sale(&engine, 1, Flow::Instant).await;
    grant(&engine, "ann").await;
    let figures = |engine: &Engine| {
        let stats = engine.stats();
        let commits = stats.commit.cumulative().last().map(|(_, count)| count);
        (stats.batches.load(Ordering::Relaxed), stats.events.load(Ordering::Relaxed), commits)
    };
    let (before, position) = (figures(&engine), engine.position().await);
    for user in 0..200 {
        let refused = engine.claim(wish(pool(), &format!("user{user}"), None)).await;
        assert_eq!(refused, Ok(Outcome::Refused(Refusal::SoldOut)));
    }
    assert_eq!(figures(&engine), before);
    assert_eq!(engine.position().await, position);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_crowd_gets_exactly_what_there_is() {
    let (_folder, engine, _) = new_engine();
    open_sale(&engine, 100, Flow::Instant).await;
    let mut crowd = JoinSet::new();
    for ask in 0..1_500 {
        let engine = engine.clone();
        // Everybody asks three times, with the same request id.
        let user = format!("user{}", ask / 3);
        crowd.spawn(async move {
            let outcome = engine.claim(wish(pool(), &user, Some("r"))).await;
            (user, outcome.expect("nothing fails here"))
        });
    }
    let (mut granted, mut repeated, mut refused) = (BTreeSet::new(), 0, 0);
    while let Some(answer) = crowd.join_next().await {
        match answer.expect("nobody panics") {
            (user, Outcome::Done(claim)) => {
                assert_eq!(claim.user.as_str(), user);
                assert!(granted.insert(user), "one for each user");
            }
            (user, Outcome::Replayed(claim)) => {
                assert_eq!(claim.user.as_str(), user, "a repeat is the user's own");
                repeated += 1;
            }
            (_, Outcome::Refused(Refusal::SoldOut)) => refused += 1,
            (user, Outcome::Refused(other)) => panic!("{user}: {other:?}"),
        }
    }
    assert_eq!(granted.len(), 100);
    assert_eq!(granted.len() + repeated + refused, 1_500);
    assert_eq!(repeated, 200, "both other tries of everybody who got one");
    let claims = engine.claims(pool(), 0, 1_000).await.expect("it runs");
    let users: BTreeSet<String> = claims.iter().map(|claim| claim.user.to_string()).collect();
    assert_eq!(users, granted);
}
