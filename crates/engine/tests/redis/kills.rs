//! SIGKILL under load: what was acknowledged is there after it, and nothing is sold twice.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use qiang_core::{Claim, Event, Outcome, PoolId, Refusal};
use qiang_engine::redis::Engine;
use qiang_testkit::contract;
use qiang_testkit::servers::redis::Durability;

use crate::asking::Asking as _;
use crate::fixture::{claims, events, node, open, orders, pool, prefix, view};
use crate::servers::own;

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Buyers who go on until told to stop; gives what each was told, by user.
pub(crate) async fn load(
    nodes: &[Engine],
    pools: &[PoolId],
    stop: &Arc<AtomicBool>,
) -> Vec<tokio::task::JoinHandle<BTreeMap<(PoolId, String), Claim>>> {
    let buyer = |task: usize| {
        let (engine, pools) = (nodes[task % nodes.len()].clone(), pools.to_vec());
        let stop = Arc::clone(stop);
        async move {
            let mut told = BTreeMap::new();
            for turn in 0.. {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                let (pool, user) = (pools[turn % pools.len()], format!("t{task}-{turn}"));
                match engine.claim(contract::wish(pool, &user, Some("r"))).await {
                    Ok(Outcome::Done(claim) | Outcome::Replayed(claim)) => {
                        told.insert((pool, user), claim);
                    }
                    Ok(Outcome::Refused(Refusal::SoldOut)) => break,
                    Ok(other) => panic!("{other:?}"),
                    // Nobody knows, or nobody was there: it may stand or not.
                    Err(_) => tokio::task::yield_now().await,
                }
            }
            told
        }
    };
    (0..8).map(|task| tokio::spawn(buyer(task))).collect()
}

/// Until so many more are sold. A server that is away for a while is waited for.
pub(crate) async fn sells(engine: &Engine, id: PoolId, more: u32) {
    let sold = async {
        let mut before = None;
        loop {
            let view = engine.pool(id).await.ok().flatten();
            let before = before.get_or_insert_with(|| view.as_ref().map_or(0, |view| view.claims));
            if view.is_some_and(|view| view.claims >= *before + more) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, sold).await.expect("it goes on");
}

/// What the log says of somebody.
fn about<'a>(events: &'a [Event], claim: &Claim) -> Vec<&'a Event> {
    let names = |event: &&Event| format!("{event:?}").contains(claim.user.as_str());
    events.iter().filter(names).collect()
}

/// Everything anybody was told is there, nothing is sold twice, and the log says the same.
pub(crate) async fn audit(
    engine: &Engine,
    pools: &[PoolId],
    told: &BTreeMap<(PoolId, String), Claim>,
) {
    let events = events(engine).await;
    // Not a book of the rules: numbers of a server that may have forgotten some have gaps.
    let mut logged = BTreeMap::new();
    for event in &events {
        if let Event::Claim(claim) = event {
            let before: Option<Claim> = logged.insert(claim.id, claim.clone());
            assert!(before.is_none_or(|before| before.version < claim.version), "{claim:?}");
        }
    }
    for id in pools {
        let (view, all) = (view(engine, *id).await, claims(engine, *id).await);
        let taken: u32 = all.iter().map(|claim| claim.quantity).sum();
        assert!(taken <= view.total && view.available + taken == view.total, "{view:?}");
        for claim in &all {
            assert_eq!(logged.get(&claim.id), Some(claim), "{:?}", about(&events, claim));
        }
        let users: BTreeMap<&str, &Claim> =
            all.iter().map(|claim| (claim.user.as_str(), claim)).collect();
        assert_eq!(users.len(), all.len(), "one for each");
        for ((_, user), claim) in told.iter().filter(|((pool, _), _)| pool == id) {
            assert_eq!(users.get(user.as_str()), Some(&claim), "{user} was told");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_every_kill_of_redis() {
    const ROUNDS: usize = 4;
    let Some(server) = own(Durability::Always) else { return };
    let server = Arc::new(server);
    let (url, prefix) = (server.url(), prefix());
    let nodes = [node(&url, &prefix).await, node(&url, &prefix).await];
    let pools = [pool(1), pool(2), pool(3)];
    for id in pools {
        open(&nodes[0], id, orders(100_000)).await;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let tasks = load(&nodes, &pools, &stop).await;
    for _ in 0..ROUNDS {
        // Some more are sold, and then it dies among them.
        sells(&nodes[0], pools[0], 100).await;
        let server = Arc::clone(&server);
        let killed = tokio::task::spawn_blocking(move || server.restart());
        killed.await.expect("no panic").expect("it starts again");
    }
    stop.store(true, Ordering::SeqCst);
    let mut told = BTreeMap::new();
    for task in tasks {
        told.extend(task.await.expect("no panic"));
    }
    assert!(told.len() > ROUNDS * 100, "{} were told", told.len());
    assert!(nodes.iter().all(|node| node.lost().is_empty()));
    audit(&nodes[0], &pools, &told).await;
    let fresh = node(&url, &prefix).await;
    audit(&fresh, &pools, &told).await;
}
