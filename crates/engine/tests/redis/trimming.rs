//! A log loses only what every consumer has committed.

use qiang_engine::LogError;
use qiang_testkit::servers::shared;

use crate::fixture::{events_in, granted, node, open, orders, pool, prefix, wish};

#[tokio::test]
async fn p03_only_what_was_committed_is_trimmed_and_a_gap_is_told() {
    const CLAIMS: u64 = 9;
    let Some(url) = shared::redis() else { return };
    let engine = node(&url, &prefix()).await;
    let id = pool(1);
    let partition = engine.partitions_of(id, 1)[0];
    open(&engine, id, orders(20)).await;
    for user in 0..CLAIMS {
        granted(&engine, wish(id, &format!("u{user}"))).await;
    }
    let end = engine.positions().await.expect("they can be read")[usize::from(partition)];
    assert_eq!(end, CLAIMS + 1);
    let all = events_in(&engine, partition).await;
    engine.trim(partition, 4).await.expect("it answers");
    // Neither back nor beyond the end.
    engine.trim(partition, 2).await.expect("it answers");
    engine.trim(partition, end + 1).await.expect("it answers");
    let (rest, through) = engine.read_log(partition, 4, 100).await.expect("it can be read");
    assert_eq!((rest.as_slice(), through), (&all[4..], end));
    for after in 0..4 {
        let gap = engine.read_log(partition, after, 100).await;
        let trimmed =
            matches!(gap, Err(LogError::Trimmed { oldest: 4, after: from }) if from == after);
        assert!(trimmed, "{gap:?}");
    }
    granted(&engine, wish(id, "next")).await;
    let (next, _) = engine.read_log(partition, end, 100).await.expect("it can be read");
    assert_eq!(next.len(), 1);
}

#[tokio::test]
async fn a_log_is_read_in_order_whatever_the_page() {
    let Some(url) = shared::redis() else { return };
    let engine = node(&url, &prefix()).await;
    let id = pool(1);
    let partition = engine.partitions_of(id, 1)[0];
    open(&engine, id, orders(500)).await;
    let crowd = (0..300).map(|user| {
        let (engine, wish) = (engine.clone(), wish(id, &format!("u{user}")));
        tokio::spawn(async move { granted(&engine, wish).await })
    });
    for claim in crowd.collect::<Vec<_>>() {
        claim.await.expect("no panic");
    }
    let all = events_in(&engine, partition).await;
    assert_eq!(all.len(), 301);
    for page in [1, 7, 64, 100_000] {
        let (mut read, mut after) = (Vec::new(), 0);
        loop {
            let (some, through) = engine.read_log(partition, after, page).await.expect("it reads");
            if some.is_empty() {
                break;
            }
            assert_eq!(through, after + some.len() as u64);
            read.extend(some);
            after = through;
        }
        assert_eq!(read, all, "pages of {page}");
    }
}
