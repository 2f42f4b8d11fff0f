//! A session is there until it ends, and its id is taken once.

use qiang_core::{Identity, Timestamp, UserId};
use qiang_sql::{Dialect, on_every_database};
use qiang_store::{Session, SignIn};

use crate::fixtures::Db;

on_every_database!(
    a_session_reads_back_as_written,
    an_id_is_taken_once,
    a_session_ends_once,
    only_good_sessions_are_listed,
    sessions_are_forgotten_a_day_after_their_end,
);

const DAY_MS: i64 = 86_400_000;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn session(id: &str, created_at: i64, expires_at: i64) -> Session {
    Session {
        id: id.to_owned(),
        user: UserId::new("安").expect("a user id"),
        role: "viewer".to_owned(),
        identity: Some(Identity::new("p1").expect("an identity")),
        how: SignIn::Link,
        created_at: at(created_at),
        expires_at: at(expires_at),
        ended_at: None,
    }
}

async fn a_session_reads_back_as_written(on: Dialect) {
    let db = Db::new(on).await;
    let written = [session("a", 1, 10), Session { identity: None, ..session("b", 2, 10) }];
    for session in &written {
        assert!(db.store.add_session(session).await.expect("added"));
        let read = db.store.session(&session.id).await.expect("readable");
        assert_eq!(read.as_ref(), Some(session));
    }
    assert_eq!(db.store.session("c").await.expect("readable"), None);
}

async fn an_id_is_taken_once(on: Dialect) {
    let db = Db::new(on).await;
    assert!(db.store.add_session(&session("a", 1, 10)).await.expect("added"));
    assert!(!db.store.add_session(&session("a", 2, 20)).await.expect("looked at"));
    let first = db.store.session("a").await.expect("readable").expect("there");
    assert_eq!(first.created_at, at(1));
}

async fn a_session_ends_once(on: Dialect) {
    let db = Db::new(on).await;
    db.store.add_session(&session("a", 1, 10)).await.expect("added");
    assert!(db.store.end_session("a", at(5)).await.expect("ended"));
    assert!(!db.store.end_session("a", at(6)).await.expect("looked at"));
    let ended = db.store.session("a").await.expect("readable").expect("there");
    assert_eq!(ended.ended_at, Some(at(5)));
    assert!(!ended.is_good(at(5)));
    assert!(!db.store.end_session("b", at(5)).await.expect("looked at"));
}

async fn only_good_sessions_are_listed(on: Dialect) {
    let db = Db::new(on).await;
    for (id, created, expires) in [("old", 1, 5), ("a", 2, 10), ("b", 3, 10), ("out", 4, 10)] {
        db.store.add_session(&session(id, created, expires)).await.expect("added");
    }
    db.store.end_session("out", at(4)).await.expect("ended");
    let listed = db.store.sessions(at(5), 10).await.expect("readable");
    let ids: Vec<_> = listed.iter().map(|session| session.id.as_str()).collect();
    assert_eq!(ids, ["b", "a"]);
    assert_eq!(db.store.sessions(at(5), 1).await.expect("readable").len(), 1);
}

async fn sessions_are_forgotten_a_day_after_their_end(on: Dialect) {
    let db = Db::new(on).await;
    db.store.add_session(&session("a", 1, 10)).await.expect("added");
    db.store.forget_sessions(at(10 + DAY_MS)).await.expect("done");
    assert!(db.store.session("a").await.expect("readable").is_some());
    db.store.forget_sessions(at(11 + DAY_MS)).await.expect("done");
    assert!(db.store.session("a").await.expect("readable").is_none());
}
