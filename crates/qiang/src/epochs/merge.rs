//! The newest of what the records and Redis hold of a sale.

use std::collections::{BTreeMap, HashSet};

use qiang_core::{Claim, PaymentId, PoolChange, PoolId, PoolState, Refund};
use qiang_engine::redis::PoolRecord;
use qiang_store::Store;

use super::differences::differences;
use super::{Error, PAGE};

/// Everything the records hold of a pool.
pub(super) async fn recorded_pool(store: &Store, pool: PoolId) -> Result<PoolRecord, Error> {
    let mut record = PoolRecord { history: store.sale_history(pool).await?, ..Default::default() };
    let mut after = 0;
    loop {
        let claims = store.claims_page(pool, after, PAGE).await?;
        let Some(last) = claims.last().map(|claim| claim.id.number) else { break };
        record.claims.extend(claims);
        after = last;
    }
    let mut after = None;
    loop {
        let refunds = store.refunds_page(pool, after.as_ref(), PAGE).await?;
        let Some(last) = refunds.last().map(|refund| refund.refund.payment.clone()) else { break };
        record.refunds.extend(refunds.into_iter().map(|refund| refund.refund));
        after = Some(last);
    }
    record.refunds.sort_by_key(|refund| refund.at);
    Ok(record)
}

/// The newest of both. A cleared pool keeps nothing but its history and its refunds.
pub(super) fn merged(
    records: PoolRecord,
    redis: PoolRecord,
    conflicts: &mut Vec<String>,
) -> PoolRecord {
    let mut history: BTreeMap<u32, PoolState> = BTreeMap::new();
    for state in records.history.into_iter().chain(redis.history) {
        history.entry(state.version).or_insert(state);
    }
    let history: Vec<PoolState> = history.into_values().collect();
    let cleared = history.last().is_some_and(|last| last.change == PoolChange::Cleared);
    let mut claims: BTreeMap<u32, Claim> = BTreeMap::new();
    for claim in records.claims {
        claims.insert(claim.id.number, claim);
    }
    for claim in redis.claims {
        match claims.get(&claim.id.number) {
            Some(known) if known.version == claim.version && *known != claim => {
                conflicts.push(format!("claim {}: {}", claim.id, differences(known, &claim)));
            }
            Some(known) if known.version >= claim.version => {}
            Some(known) if known.user != claim.user || known.created_at != claim.created_at => {
                conflicts.push(format!("claim {}: {}", claim.id, differences(known, &claim)));
            }
            _ => {
                claims.insert(claim.id.number, claim);
            }
        }
    }
    let mut refunds: Vec<Refund> = records.refunds;
    let known: HashSet<PaymentId> = refunds.iter().map(|refund| refund.payment.clone()).collect();
    refunds.extend(redis.refunds.into_iter().filter(|refund| !known.contains(&refund.payment)));
    let claims = if cleared { Vec::new() } else { claims.into_values().collect() };
    PoolRecord { history, claims, refunds, lost_through: redis.lost_through }
}
