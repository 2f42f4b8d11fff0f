//! Partitions made anew: after a loss, and for sales of another engine.
//!
//! One at a time: whoever repairs holds a lease in the database, and a number that rises with every
//! repair. Redis takes writes only from the highest number that has begun. So one that was held up,
//! and goes on when its lease has run out and another has begun, changes nothing any more.
//!
//! Nothing that only Redis holds is ever removed before it is in the records.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use qiang_core::{Event, PoolChange, PoolId, State, Terms, decide};
use qiang_engine::redis::{self, Goes, PoolRecord, Restore};
use qiang_engine::{Engine, Stopwatch};
use qiang_store::{RECORDS, Sale, SaleState, Store};

use super::merge::{merged, recorded_pool};
use super::{Error, Names, PAGE, Reached, new_name, reached, take_over};
use qiang_app::consumer::log_name;
use qiang_app::nodes::LEASE;

/// The lease of whoever repairs, or imports.
const REPAIRING: &str = "redis/repair";
/// Where it is kept how many repairs have begun.
const REPAIRS: &str = "redis_repairs";
/// A repair waits for another one to end: so long, and looks so often.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(250);
const RENEW_EVERY: Duration = Duration::from_secs(2);
/// Numbers that are left out after a loss, beside as many as there are units: claims that were
/// granted, are in no book, and were granted, released and granted again so often.
const LEFT_OUT: u32 = 1 << 20;

/// Sales, or groups of them, that are worked on at the same time.
const AT_ONCE: usize = 8;

/// What a repair did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Repaired {
    /// Partitions that were made anew.
    pub partitions: usize,
    /// Pools that were put back.
    pub pools: usize,
    /// Claims that were put back.
    pub claims: usize,
    /// Claims Redis and the records disagree about although neither is newer; the records were
    /// believed, and somebody has to look at them.
    pub conflicts: Vec<String>,
    /// Sales of which more is taken than there is, and what to do.
    pub oversold: Vec<String>,
}

/// Finds partitions whose state was lost, and makes them anew from the newest of what the records
/// and Redis hold. Sales that have no part in them are left alone.
pub async fn repair(engine: &redis::Engine, store: &Store) -> Result<Repaired, Error> {
    let lease = Lease::take(engine, store).await?;
    let repaired = repair_as(engine, store, &lease).await;
    lease.give_up().await;
    repaired
}

async fn repair_as(
    engine: &redis::Engine,
    store: &Store,
    lease: &Lease,
) -> Result<Repaired, Error> {
    let mut repaired = Repaired::default();
    let Some(names) = Names::read(store).await? else { return Ok(repaired) };
    // Somebody else may have repaired since this one began.
    take_over(engine, &names);
    // The records before Redis: unless it went back, it is never behind them.
    let reached = reached(engine, store, &names).await?;
    let mut lost = lost_partitions(engine, &names, &reached).await?;
    // What this process has found itself, of transfers between buckets, say.
    lost.extend(engine.lost().into_keys());
    repaired.partitions = lost.len();
    if lost.is_empty() {
        return Ok(repaired);
    }
    // Before anything stops, what can be brought into the records is there.
    stream::iter(affected(engine, store, &lost).await?.into_iter().map(Ok))
        .try_for_each_concurrent(AT_ONCE, async |(pool, terms)| {
            record_all(engine, store, pool, &terms, &mut Vec::new()).await?;
            lease.check()
        })
        .await?;
    let restore = engine.restore_as(lease.number);
    for partition in &lost {
        restore.suspend(*partition).await?;
    }
    // Nothing is opened there any more, so these are all. Buckets of one pool lie in several
    // partitions, and only together they make sense.
    let affected = affected(engine, store, &lost).await?;
    let buckets =
        affected.iter().flat_map(|(pool, terms)| engine.partitions_of(*pool, terms.buckets));
    let stopped: BTreeSet<u16> = lost.iter().copied().chain(buckets).collect();
    for partition in stopped.difference(&lost) {
        restore.suspend(*partition).await?;
    }
    let ends = end_logs(engine, store, &lost, &reached).await?;
    let new = new_name()?;
    let goes =
        |partition: &u16| ends.get(partition).map_or(Goes::OnWithItsLog, |e| Goes::OnBehind(*e));
    let names = tokio::sync::Mutex::new(names);
    // Each group goes on as soon as it is back, whatever the others take.
    let groups = stream::iter(groups(engine, &affected, &stopped)).map(async |group| {
        let mut repaired = Repaired::default();
        for pool in &group.pools {
            put_back(engine, store, &restore, lease, *pool, &affected[pool], &mut repaired).await?;
        }
        let mut names = names.lock().await;
        *names = go_on(engine, store, &restore, &names, &group.partitions, &new, goes).await?;
        Ok::<_, Error>(repaired)
    });
    let mut groups = groups.buffer_unordered(AT_ONCE);
    while let Some(some) = groups.try_next().await? {
        repaired += some;
    }
    Ok(repaired)
}

impl std::ops::AddAssign for Repaired {
    fn add_assign(&mut self, other: Self) {
        self.partitions += other.partitions;
        self.pools += other.pools;
        self.claims += other.claims;
        self.conflicts.extend(other.conflicts);
        self.oversold.extend(other.oversold);
    }
}

/// Puts one pool back into partitions that are stopped.
async fn put_back(
    engine: &redis::Engine,
    store: &Store,
    restore: &Restore<'_>,
    lease: &Lease,
    pool: PoolId,
    terms: &Arc<Terms>,
    repaired: &mut Repaired,
) -> Result<(), Error> {
    let mut record = record_all(engine, store, pool, terms, &mut repaired.conflicts).await?;
    if record.history.is_empty() {
        return Ok(());
    }
    record.lost_through = leave_out(store, &record).await?;
    lease.check()?;
    restore.pool(&record).await?;
    repaired.pools += 1;
    repaired.claims += record.claims.len();
    repaired.oversold.extend(oversold(&record));
    Ok(())
}

/// Partitions that go on together, because they have pools in common, and those pools.
#[derive(Debug, Default, PartialEq, Eq)]
struct Group {
    partitions: BTreeSet<u16>,
    pools: Vec<PoolId>,
}

fn groups(
    engine: &redis::Engine,
    affected: &BTreeMap<PoolId, Arc<Terms>>,
    stopped: &BTreeSet<u16>,
) -> Vec<Group> {
    let of = |(pool, terms): (&PoolId, &Arc<Terms>)| {
        (*pool, engine.partitions_of(*pool, terms.buckets).into_iter().collect())
    };
    grouped(affected.iter().map(of), stopped)
}

/// Each partition and each pool is in one group.
fn grouped(
    pools: impl Iterator<Item = (PoolId, BTreeSet<u16>)>,
    stopped: &BTreeSet<u16>,
) -> Vec<Group> {
    let alone = |partition: &u16| Group { partitions: [*partition].into(), pools: Vec::new() };
    let mut groups: Vec<Group> = stopped.iter().map(alone).collect();
    for (pool, partitions) in pools {
        let mut joined = Group { partitions, pools: vec![pool] };
        groups.retain_mut(|group| {
            let apart = group.partitions.is_disjoint(&joined.partitions);
            if !apart {
                joined.partitions.append(&mut group.partitions);
                joined.pools.append(&mut group.pools);
            }
            apart
        });
        groups.push(joined);
    }
    groups
}

/// Partitions that have another epoch, are behind the records, or hold part of a call.
async fn lost_partitions(
    engine: &redis::Engine,
    names: &Names,
    reached: &[Reached],
) -> Result<BTreeSet<u16>, Error> {
    let states = engine.partition_states().await?;
    let states = (0_u16..).zip(states).zip(reached);
    let is_lost = |((partition, state), reached): ((u16, redis::PartitionState), &Reached)| {
        let right = state.epoch == names.of(partition) && state.seq >= reached.position;
        (!right || state.torn || reached.lost).then_some(partition)
    };
    Ok(states.filter_map(is_lost).collect())
}

/// The pools that have a part in these partitions, as the records and Redis know them.
async fn affected(
    engine: &redis::Engine,
    store: &Store,
    lost: &BTreeSet<u16>,
) -> Result<BTreeMap<PoolId, Arc<Terms>>, Error> {
    let (mut known, mut after) = (BTreeMap::new(), None);
    loop {
        let sales = store.sales_page(after, PAGE).await?;
        let Some(last) = sales.last().map(|sale| sale.id) else { break };
        // Of sales that were cleared and forgotten Redis holds nothing, unless it went back: then they
        // are in its list.
        let gone = |sale: &Sale| {
            sale.state == SaleState::Cleared && decide::leaves_nothing(sale.id, &sale.terms)
        };
        let held = sales.into_iter().filter(|sale| !gone(sale));
        known.extend(held.map(|sale| (sale.id, Arc::new(sale.terms))));
        after = Some(last);
    }
    for partition in 0..engine.partitions() {
        for pool in engine.pools_in(partition).await? {
            if !known.contains_key(&pool)
                && let Some(state) =
                    engine.salvage(pool).await?.and_then(|r| r.history.last().cloned())
            {
                known.insert(pool, state.terms);
            }
        }
    }
    known.retain(|pool, terms| {
        engine.partitions_of(*pool, terms.buckets).iter().any(|partition| lost.contains(partition))
    });
    Ok(known)
}

/// Brings into the records what only Redis has of a pool, and gives the newest of both.
async fn record_all(
    engine: &redis::Engine,
    store: &Store,
    pool: PoolId,
    terms: &Arc<Terms>,
    conflicts: &mut Vec<String>,
) -> Result<PoolRecord, Error> {
    let kept = engine.salvage_with(pool, terms).await?;
    let known = recorded_pool(store, pool).await?;
    let of_redis = kept.events().count();
    let record = merged(known, kept, conflicts);
    if of_redis > 0 {
        let events: Vec<Event> = record.events().collect();
        for events in events.chunks(PAGE as usize) {
            store.upsert(events).await?;
        }
    }
    Ok(record)
}

/// Nothing is decided any more in these partitions, so that their logs end here. Whoever carries
/// what was read from them before is late from here on; Redis itself was read.
async fn end_logs(
    engine: &redis::Engine,
    store: &Store,
    lost: &BTreeSet<u16>,
    reached: &[Reached],
) -> Result<BTreeMap<u16, u64>, Error> {
    let (whole, states) = (Engine::Redis(engine.clone()), engine.partition_states().await?);
    let mut ends = BTreeMap::new();
    for partition in lost {
        let place = usize::from(*partition);
        let end = states[place].seq.max(reached[place].position) + 1;
        let end = move_position(store, &log_name(&whole, *partition), end).await?;
        ends.insert(*partition, end);
    }
    Ok(ends)
}

/// Moves the records in a log to `end`, or one behind where they are found. Other consumers find that
/// the log begins behind them, and recover as they do.
async fn move_position(store: &Store, log: &str, mut end: u64) -> Result<u64, Error> {
    let mut at = store.position(RECORDS, log).await?;
    loop {
        end = end.max(at + 1);
        match store.project(log, at, end, &[]).await {
            Ok(()) => return Ok(end),
            Err(qiang_store::Error::PositionMoved { found, .. }) => at = found,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Which numbers of a pool are never given again, because somebody may have been given them, and
/// nobody remembers: up to this one. It is kept, because the next loss may come before the next claim.
async fn leave_out(store: &Store, record: &PoolRecord) -> Result<u32, Error> {
    let Some(state) = record.history.last() else { return Ok(0) };
    if state.change == PoolChange::Cleared {
        return Ok(0);
    }
    let buckets = u32::from(state.terms.buckets);
    let left_out = (state.total / buckets).saturating_add(LEFT_OUT).saturating_mul(buckets);
    let raise = |kept: u32| {
        let last = record.last_number().max(kept);
        // Never so many that none are left for those to come.
        last + left_out.min((u32::MAX - last) / 2)
    };
    Ok(store.raise_lost_through(state.id, raise).await?)
}

fn oversold(record: &PoolRecord) -> Option<String> {
    let state = record.history.last()?;
    let taken: u64 = record
        .claims
        .iter()
        .filter(|claim| claim.state != State::Released)
        .map(|claim| u64::from(claim.quantity))
        .sum();
    let total = u64::from(state.total);
    (taken > total).then(|| {
        format!(
            "sale {}: {taken} units are taken of {total}, {} too many. Nothing more is sold of it \
             until as many came back: cancel or refund that many, or restock",
            state.id,
            taken - total
        )
    })
}

/// Lets suspended partitions go on under a new epoch, in Redis first: if this is cut off, epochs
/// differ, and the next repair does it all again.
async fn go_on(
    engine: &redis::Engine,
    store: &Store,
    restore: &Restore<'_>,
    names: &Names,
    stopped: &BTreeSet<u16>,
    new: &str,
    goes: impl Fn(&u16) -> Goes,
) -> Result<Names, Error> {
    for partition in stopped {
        restore.resume(*partition, new, goes(partition)).await?;
    }
    let mut renamed = names.clone();
    renamed.own.extend(stopped.iter().map(|partition| (*partition, new.to_owned())));
    if !renamed.swap(store, Some(names)).await? {
        return Err(Error::Busy);
    }
    take_over(engine, &renamed);
    Ok(renamed)
}

/// Puts sales of another engine into Redis. What is cut off can be done again.
pub async fn import(
    engine: &redis::Engine,
    store: &Store,
    records: &[PoolRecord],
) -> Result<(), Error> {
    let lease = Lease::take(engine, store).await?;
    let imported = import_as(engine, store, records, &lease).await;
    lease.give_up().await;
    imported
}

async fn import_as(
    engine: &redis::Engine,
    store: &Store,
    records: &[PoolRecord],
    lease: &Lease,
) -> Result<(), Error> {
    let names = Names::read(store).await?.ok_or(Error::Busy)?;
    let whole = Engine::Redis(engine.clone());
    let states = engine.partition_states().await?;
    if states.iter().any(|state| state.torn) {
        return Err(Error::Lost);
    }
    let positions: BTreeMap<String, u64> = store.positions(RECORDS).await?.into_iter().collect();
    for (partition, state) in (0_u16..).zip(&states) {
        let recorded = positions.get(&log_name(&whole, partition)).copied().unwrap_or(0);
        if !state.epoch.is_empty() && state.seq != recorded {
            return Err(Error::Behind);
        }
    }
    let mut stopped = BTreeSet::new();
    for record in records {
        let (pool, buckets) = (record.history[0].id, record.history[0].terms.buckets);
        let partitions = engine.partitions_of(pool, buckets);
        let suspended = |partition: &u16| states[usize::from(*partition)].epoch.is_empty();
        if !partitions.iter().any(suspended) && engine.salvage(pool).await?.is_some() {
            return Err(Error::Exists(pool));
        }
        stopped.extend(partitions);
    }
    let restore = engine.restore_as(lease.number);
    for partition in &stopped {
        restore.suspend(*partition).await?;
    }
    for record in records {
        lease.check()?;
        if record.lost_through > 0 {
            store
                .raise_lost_through(record.history[0].id, |kept| kept.max(record.lost_through))
                .await?;
        }
        restore.pool(record).await?;
    }
    // Under a new name, so that whoever met a partition without one goes on by itself.
    let new = new_name()?;
    go_on(engine, store, &restore, &names, &stopped, &new, |_| Goes::OnWithItsLog).await?;
    Ok(())
}

/// The right to repair.
struct Lease {
    store: Store,
    owner: String,
    /// Higher than that of every repair that has begun before.
    number: u64,
    /// Since when it is known to be ours.
    renewed: tokio::sync::watch::Receiver<Stopwatch>,
    renewing: tokio::task::JoinHandle<()>,
}

impl Lease {
    /// Waits until nobody else repairs, and says who does if that takes too long.
    async fn take(engine: &redis::Engine, store: &Store) -> Result<Self, Error> {
        let owner = owner()?;
        let (waiting, mut told) = (Stopwatch::start(), false);
        let taken = loop {
            let asked = Stopwatch::start();
            if store.take_lease(REPAIRING, &owner, LEASE).await? {
                break asked;
            }
            let held = store.held_leases(REPAIRING).await?;
            if let Some((_, holder)) = held.into_iter().next() {
                if waiting.elapsed() > PATIENCE {
                    return Err(Error::Held { holder });
                }
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!("{holder} repairs or imports; waiting until that has ended");
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        };
        let (renew, renewed) = tokio::sync::watch::channel(taken);
        let renewing = tokio::spawn({
            let (store, owner) = (store.clone(), owner.clone());
            async move {
                loop {
                    tokio::time::sleep(RENEW_EVERY).await;
                    let asked = Stopwatch::start();
                    if let Ok(true) = store.take_lease(REPAIRING, &owner, LEASE).await {
                        renew.send_replace(asked);
                    }
                }
            }
        });
        let number = next_number(engine, store).await?;
        Ok(Self { store: store.clone(), owner, number, renewed, renewing })
    }

    /// Fails when somebody else may have begun.
    fn check(&self) -> Result<(), Error> {
        if self.renewed.borrow().elapsed() < LEASE { Ok(()) } else { Err(Error::LeaseLost) }
    }

    async fn give_up(self) {
        self.renewing.abort();
        // What cannot be given up runs out.
        let _later = self.store.give_up_lease(REPAIRING, &self.owner).await;
    }
}

/// Redis knows the last one, too: the database may be new, or an older copy.
async fn next_number(engine: &redis::Engine, store: &Store) -> Result<u64, Error> {
    loop {
        let kept = store.setting(REPAIRS).await?;
        let last = kept.as_deref().and_then(|kept| kept.parse::<u64>().ok()).unwrap_or(0);
        let number = last.max(engine.last_repair().await?) + 1;
        if store.swap_setting(REPAIRS, kept.as_deref(), &number.to_string()).await? {
            return Ok(number);
        }
    }
}

/// Who repairs, in words for somebody who waits for it.
fn owner() -> Result<String, Error> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let host: String = host.chars().take(32).collect();
    Ok(format!("process {} on {host} ({})", std::process::id(), &new_name()?[..4]))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use qiang_core::PoolId;

    use super::grouped;

    #[test]
    fn partitions_with_a_pool_in_common_go_on_together_and_all_others_alone() {
        let pool = |id| PoolId::new(id).expect("positive");
        let pools = [(1, vec![0]), (2, vec![1, 2]), (3, vec![0]), (4, vec![2, 3])];
        let pools =
            pools.into_iter().map(|(id, in_these)| (pool(id), in_these.into_iter().collect()));
        let mut groups = grouped(pools, &(0..6).collect());
        groups.iter_mut().for_each(|group| group.pools.sort_unstable());
        groups.sort_by_key(|group| group.partitions.first().copied());
        let seen: Vec<(BTreeSet<u16>, Vec<PoolId>)> =
            groups.into_iter().map(|group| (group.partitions, group.pools)).collect();
        let expected = [
            ([0].into(), vec![pool(1), pool(3)]),
            ([1, 2, 3].into(), vec![pool(2), pool(4)]),
            ([4].into(), vec![]),
            ([5].into(), vec![]),
        ];
        assert_eq!(seen, expected);
    }
}
