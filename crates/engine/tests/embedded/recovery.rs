//! What was answered is there again, however the process ended.

use std::path::Path;

use qiang_core::{Book, Flow, Kind, Outcome, ReleaseReason, State};
use qiang_engine::embedded::Engine;
use qiang_engine::offline_log;
use qiang_testkit::contract::{money, wish};
use tempfile::TempDir;

use super::asking::Asking as _;
use super::fixture::{claim_id, grant, new_engine, open_at, open_sale, pool};

/// The folder as a kill at this moment would leave it.
fn as_after_a_kill(folder: &Path) -> TempDir {
    let copy = tempfile::tempdir().expect("a temporary folder");
    for entry in std::fs::read_dir(folder).expect("it is there") {
        let entry = entry.expect("it can be listed");
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).expect("it can be copied");
    }
    copy
}

/// A hold, an order, a paid and a released claim.
async fn every_state(engine: &Engine) {
    open_sale(engine, 10, Flow::Hold { hold_ms: 50, pay_ms: 100 }).await;
    for user in ["ann", "bob", "cyd", "dan"] {
        grant(engine, user).await;
    }
    for number in [2, 3] {
        engine.order(claim_id(number), None).await.expect("it runs");
    }
    engine.pay(money(claim_id(3), "P1")).await.expect("it runs");
    engine.pay(money(claim_id(3), "P2")).await.expect("it runs");
    engine.release(claim_id(4), None, ReleaseReason::GaveUp).await.expect("it runs");
}

async fn assert_same(one: &Engine, other: &Engine) {
    let views = (one.pool(pool()).await, other.pool(pool()).await);
    assert_eq!(views.0.expect("it runs"), views.1.expect("it runs"));
    let claims = (one.claims(pool(), 0, 100).await, other.claims(pool(), 0, 100).await);
    assert_eq!(claims.0.expect("it runs"), claims.1.expect("it runs"));
    assert_eq!(one.position().await, other.position().await);
}

#[tokio::test]
async fn after_a_kill_everything_answered_is_there() {
    let (folder, engine, _) = new_engine();
    every_state(&engine).await;
    let copy = as_after_a_kill(folder.path());
    assert!(copy.path().join("journal.db-wal").exists(), "nothing was checkpointed");
    let (again, _) = open_at(copy.path(), 0);
    assert_same(&engine, &again).await;
    let states: Vec<State> = again
        .claims(pool(), 0, 100)
        .await
        .expect("it runs")
        .iter()
        .map(|claim| claim.state)
        .collect();
    assert_eq!(states, [State::Held, State::Ordered, State::Paid, State::Released]);
}

#[tokio::test]
async fn a_recovered_engine_goes_on_where_it_was() {
    let (folder, engine, _) = new_engine();
    every_state(&engine).await;
    engine.claim(wish(pool(), "eve", Some("r"))).await.expect("it runs");
    engine.shut_down();
    let (again, _) = open_at(folder.path(), 10);
    let repeat = again.claim(wish(pool(), "eve", Some("r"))).await;
    assert!(matches!(repeat, Ok(Outcome::Replayed(claim)) if claim.id == claim_id(5)));
    let twice = again.pay(money(claim_id(3), "P2")).await;
    assert!(matches!(twice, Ok(Outcome::Replayed(_))), "{twice:?}");
    assert_eq!(grant(&again, "fay").await.id, claim_id(6), "numbers go on");
    let view = again.pool(pool()).await.expect("it runs").expect("it is open");
    assert_eq!((view.available, view.claims, view.payments), (5, 6, 2));
}

#[tokio::test]
async fn the_log_read_offline_is_the_engine() {
    let (folder, engine, _) = new_engine();
    every_state(&engine).await;
    for stopped in [false, true] {
        let (view, claims) = if stopped {
            engine.shut_down();
            let (again, _) = open_at(folder.path(), 0);
            let found = (again.pool(pool()).await, again.claims(pool(), 0, 100).await);
            again.shut_down();
            found
        } else {
            (engine.pool(pool()).await, engine.claims(pool(), 0, 100).await)
        };
        let mut book = Book::new(1);
        let end = offline_log(folder.path(), &mut |event| book.store(&event));
        book.settle();
        assert_eq!(end.expect("it can be read").seq, 10);
        let pool = book.pool(pool()).expect("it is in the log");
        assert_eq!(Some(pool.view()), view.expect("it runs"));
        let found: Vec<_> = (1..).map_while(|number| pool.claim(number)).collect();
        assert_eq!(found, claims.expect("it runs"));
    }
}

#[tokio::test]
async fn an_empty_folder_is_a_beginning() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let deep = folder.path().join("made/on/the/way");
    let (engine, _) = open_at(&deep, 0);
    assert_eq!(engine.position().await, Ok(0));
    assert_eq!(engine.pools(Kind::Sale, None, 10).await, Ok(Vec::new()));
    engine.shut_down();
    let (again, _) = open_at(&deep, 0);
    assert_eq!(again.position().await, Ok(0));
}
