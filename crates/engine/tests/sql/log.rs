//! The log of each partition: without gaps, readable from any position that is still there.

use qiang_core::{Event, Flow, Kind, PoolId};
use qiang_engine::LogError;
use qiang_engine::sql::Options;
use qiang_sql::{Dialect, on_every_database, sql};
use qiang_testkit::contract::{sale, wish};

use super::asking::Asking as _;
use super::fixture::{World, grant, open_sale, options, pool, soon};

async fn it_can_be_read_in_pieces_and_cut_off_behind_its_readers(on: Dialect) {
    let world = World::new(on).await;
    let engine = world.engine_with(Options { partitions: 1, ..options() }).await;
    assert_eq!((engine.partitions(), engine.positions().await), (1, Ok(vec![0])));
    assert_eq!(engine.read_log(0, 0, 10).await.expect("an empty log"), (vec![], 0));
    open_sale(&engine, 20, Flow::Instant).await;
    for buyer in 1..=9 {
        grant(&engine, &format!("u{buyer}")).await;
    }
    assert_eq!(engine.positions().await, Ok(vec![10]));
    let (first, reached) = engine.read_log(0, 0, 4).await.expect("it can be read");
    assert_eq!((first.len(), reached), (4, 4));
    let (rest, reached) = engine.read_log(0, 4, 100).await.expect("it can be read");
    assert_eq!((rest.len(), reached), (6, 10));
    let numbers: Vec<_> = rest.iter().map(number).collect();
    assert_eq!(numbers, [4, 5, 6, 7, 8, 9]);

    engine.trim(0, 4).await.expect("it can be cut off");
    assert_eq!(engine.read_log(0, 4, 100).await.expect("it can be read"), (rest, 10));
    for after in [0, 3] {
        let gone = engine.read_log(0, after, 100).await;
        let is_gone = matches!(gone, Err(LogError::Trimmed { oldest: 4, after: asked, .. }) if asked == after);
        assert!(is_gone, "{gone:?}");
    }
    let ahead = engine.read_log(0, 11, 100).await;
    assert!(matches!(ahead, Err(LogError::Behind { after: 11, end: 10 })), "{ahead:?}");
    // Never what was not written yet.
    engine.trim(0, 1_000).await.expect("it can be cut off");
    assert!(matches!(engine.read_log(0, 9, 1).await, Err(LogError::Trimmed { oldest: 10, .. })));
    grant(&engine, "u10").await;
    let (events, reached) = engine.read_log(0, 10, 100).await.expect("it can be read");
    assert_eq!((events.iter().map(number).collect::<Vec<_>>(), reached), (vec![10], 11));
}

fn number(event: &Event) -> u32 {
    match event {
        Event::Claim(claim) => claim.id.number,
        other => panic!("{other:?}"),
    }
}

/// An event that is not where it must be is noticed, wherever that is.
async fn a_missing_event_is_noticed(on: Dialect) {
    for missing in [2, 3, 5] {
        let world = World::new(on).await;
        let engine = world.engine_with(Options { partitions: 1, ..options() }).await;
        open_sale(&engine, 20, Flow::Instant).await;
        for buyer in 1..=4 {
            grant(&engine, &format!("u{buyer}")).await;
        }
        let database = world.database().await;
        let delete = sql!("DELETE FROM engine_log WHERE seq = ?");
        database.execute(delete, &[i64::from(missing).into()]).await.expect("it can");
        let read = engine.read_log(0, 1, 100).await;
        assert!(matches!(read, Err(LogError::Nonsense)), "{missing}: {read:?}");
    }
}

/// Of several that open an empty database at once, one makes the partitions.
async fn engines_that_open_at_once_agree(on: Dialect) {
    let world = World::new(on).await;
    let open = |partitions| world.engine_with(Options { partitions, ..options() });
    let (one, two, three) =
        soon("all of them", async { tokio::join!(open(3), open(3), open(3)) }).await;
    assert_eq!([one.partitions(), two.partitions(), three.partitions()], [3, 3, 3]);
    let later = open(8).await;
    assert_eq!(later.partitions(), 3, "a database keeps what it has");
    for id in 1..=12 {
        let pool = PoolId::new(id).expect("positive");
        let terms = std::sync::Arc::new(sale(1, Flow::Instant));
        one.open_pool(pool, terms).await.expect("a new pool");
        two.claim(wish(pool, "ann", None)).await.expect("an answer");
    }
    let positions = later.positions().await.expect("they can be read");
    assert_eq!(positions.iter().sum::<u64>(), 24);
    assert!(positions.iter().all(|seq| *seq > 0), "pools are spread: {positions:?}");
    let newest = later.pools(Kind::Sale, None, 1).await.expect("they can be read");
    let before = newest.last().map(qiang_core::PoolView::opened);
    let newest = later.pools(Kind::Sale, before, 2).await.expect("they can be read");
    assert_eq!(newest.iter().map(|pool| pool.id.get()).collect::<Vec<_>>(), [11, 10]);
    assert_eq!(three.pool(pool()).await.map(|pool| pool.map(|pool| pool.available)), Ok(Some(0)));
}

/// Whoever follows the log is woken when there is something.
async fn a_reader_is_woken(on: Dialect) {
    let world = World::new(on).await;
    let engine = world.engine().await;
    let mut durable = engine.durable();
    durable.mark_unchanged();
    open_sale(&engine, 1, Flow::Instant).await;
    soon("a change", durable.changed()).await.expect("the engine lives");
    durable.mark_unchanged();
    grant(&engine, "ann").await;
    soon("a change", durable.changed()).await.expect("the engine lives");
    durable.mark_unchanged();
    engine.claim(wish(pool(), "bob", None)).await.expect("an answer");
    assert!(!durable.has_changed().expect("the engine lives"), "a refusal changes nothing");
}

on_every_database!(
    it_can_be_read_in_pieces_and_cut_off_behind_its_readers,
    a_missing_event_is_noticed,
    engines_that_open_at_once_agree,
    a_reader_is_woken,
);
