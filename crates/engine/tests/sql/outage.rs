//! The database goes away and comes back; or somebody else stands in the way.

use std::sync::Arc;
use std::time::Duration;

use qiang_core::{Flow, Outcome};
use qiang_engine::sql::{Engine, Options};
use qiang_engine::{Error, ManualClock};
use qiang_sql::{Database, Dialect, Limits, on_every_database, sql};
use qiang_testkit::Proxy;
use qiang_testkit::contract::wish;

use super::asking::Asking as _;
use super::fixture::{World, events, grant, open_sale, options, pool, soon};

/// An engine whose connections lead through a proxy; `None` on SQLite.
async fn behind_proxy(on: Dialect, patience: Duration) -> Option<(World, Proxy, Engine)> {
    if on == Dialect::Sqlite {
        return None;
    }
    let world = World::new(on).await;
    let url = world.scratch.url();
    let port = url.rsplit_once(':').and_then(|(_, rest)| rest.split('/').next());
    let port = port.and_then(|port| port.parse().ok()).expect("a port in the URL");
    let proxy = Proxy::start(port).expect("a proxy can be started");
    let limits = Limits { connections: 3, patience };
    let database = Database::open_with(&proxy.url(url), limits).await.expect("it lets us in");
    let clock: Arc<ManualClock> = Arc::clone(&world.clock);
    let engine = Engine::open(database, Options { patience, ..options() }, clock).await;
    Some((world, proxy, engine.expect("a database")))
}

async fn while_it_is_away_nothing_happens_and_that_is_said(on: Dialect) {
    let patience = Duration::from_millis(600);
    let Some((_world, proxy, engine)) = behind_proxy(on, patience).await else { return };
    open_sale(&engine, 3, Flow::Instant).await;
    proxy.refuse().expect("it can");
    proxy.cut();
    let claimed = soon("an answer", engine.claim(wish(pool(), "ann", None))).await;
    assert_eq!(claimed, Err(Error::Unavailable));
    assert_eq!(soon("an answer", engine.pool(pool())).await, Err(Error::Unavailable));
    assert_eq!(soon("an answer", engine.expire_due()).await, Err(Error::Unavailable));
    proxy.admit().expect("it can");
    assert_eq!(grant(&engine, "ann").await.id.number, 1);
    assert_eq!(events(&engine).await.len(), 2);
}

/// One that says nothing is not waited for for ever.
async fn a_silent_database_is_given_up(on: Dialect) {
    let patience = Duration::from_millis(600);
    let Some((_world, proxy, engine)) = behind_proxy(on, patience).await else { return };
    open_sale(&engine, 3, Flow::Instant).await;
    proxy.pause();
    let claimed = soon("an answer", engine.claim(wish(pool(), "ann", None))).await;
    assert_eq!(claimed, Err(Error::Unavailable));
    proxy.resume();
    assert_eq!(grant(&engine, "ann").await.id.number, 1);
}

/// A short break in the middle of anything is not noticed by whoever asks.
async fn a_cut_anywhere_has_one_effect(on: Dialect) {
    let Some((world, proxy, engine)) = behind_proxy(on, Duration::from_secs(30)).await else {
        return;
    };
    let honest = world.engine().await;
    open_sale(&engine, 1_000, Flow::Instant).await;
    let mut granted = 0;
    for bytes in (0..1_600).step_by(53) {
        proxy.cut_after_reply_bytes(bytes);
        let claimed = soon("an answer", engine.claim(wish(pool(), &format!("u{bytes}"), None)));
        let claimed = claimed.await;
        assert!(matches!(claimed, Ok(Outcome::Done(_))), "after {bytes} bytes: {claimed:?}");
        granted += 1;
    }
    proxy.deliver_replies();
    assert!(proxy.counts().cut > 5, "{:?}", proxy.counts());
    let view = honest.pool(pool()).await.expect("it can be read").expect("it is open");
    assert_eq!((view.claims, view.available), (granted, 1_000 - granted));
    assert_eq!(events(&honest).await.len(), granted as usize + 1);
}

/// Somebody holds the partition for a while: commands wait, and then go on.
async fn a_lock_is_waited_for(on: Dialect) {
    let world = World::new(on).await;
    let engine = world.engine().await;
    open_sale(&engine, 3, Flow::Instant).await;
    let other = world.database().await;
    let mut blocking = other.begin().await.expect("it can");
    blocking
        .execute(sql!("UPDATE engine_partitions SET seq = seq"), &[])
        .await
        .expect("nobody works at the moment");
    let waiting = tokio::spawn({
        let engine = engine.clone();
        async move { grant(&engine, "ann").await }
    });
    // A look needs no lock.
    let view = engine.pool(pool()).await.expect("it can be read").expect("it is open");
    assert_eq!(view.claims, 0);
    blocking.rollback().await.expect("it can");
    soon("the claim", waiting).await.expect("no panic");
}

/// Rows that somebody else has changed are noticed, and nothing is written on top of them.
async fn a_changed_row_is_not_written_over(on: Dialect) {
    let world = World::new(on).await;
    let engine = world.engine().await;
    open_sale(&engine, 3, Flow::Instant).await;
    engine.pool(pool()).await.expect("it can be read");
    let other = world.database().await;
    other.execute(sql!("DELETE FROM engine_terms"), &[]).await.expect("nobody works at the moment");
    let fresh = world.engine().await;
    let refused = fresh.claim(wish(pool(), "ann", None)).await;
    assert_eq!(refused, Err(Error::Unavailable), "rules that are not there cannot be guessed");
    assert_eq!(fresh.pool(pool()).await, Err(Error::Unavailable));
    // This one knows the rules.
    grant(&engine, "ann").await;
    let nine = sql!("UPDATE engine_claims SET number = 9");
    other.execute(nine, &[]).await.expect("nobody works at the moment");
    let claim = qiang_core::ClaimId { pool: pool(), number: 1 };
    let asked = {
        let engine = engine.clone();
        tokio::spawn(async move { engine.order(claim, None).await })
    };
    assert_eq!(soon("an answer", asked).await.expect("no panic"), Err(Error::Unavailable));
    // The line goes on.
    grant(&engine, "bob").await;
}

on_every_database!(
    while_it_is_away_nothing_happens_and_that_is_said,
    a_silent_database_is_given_up,
    a_cut_anywhere_has_one_effect,
    a_lock_is_waited_for,
    a_changed_row_is_not_written_over,
);
