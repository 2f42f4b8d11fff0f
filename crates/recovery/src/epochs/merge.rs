//! The newest of what the records and Redis hold of a sale.

use std::collections::{BTreeMap, HashMap, HashSet};

use qiang_core::{Claim, PaymentId, PoolChange, PoolId, PoolState, Refund, RefundReason};
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
        // What is owed back of a revoked claim follows from the claim.
        let own = refunds.into_iter().map(|record| record.refund);
        record.refunds.extend(own.filter(|refund| refund.reason != RefundReason::Revoked));
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
        let Some(known) = claims.get(&claim.id.number) else {
            claims.insert(claim.id.number, claim);
            continue;
        };
        let is_another = known.user != claim.user || known.created_at != claim.created_at;
        if is_another || (known.version == claim.version && *known != claim) {
            conflicts.push(format!("claim {}: {}", claim.id, differences(known, &claim)));
        } else if known.version < claim.version {
            claims.insert(claim.id.number, claim);
        }
    }
    let mut refunds: Vec<Refund> = records.refunds;
    let known: HashSet<PaymentId> = refunds.iter().map(|refund| refund.payment.clone()).collect();
    refunds.extend(redis.refunds.into_iter().filter(|refund| !known.contains(&refund.payment)));
    let claims: Vec<Claim> = if cleared { Vec::new() } else { claims.into_values().collect() };
    conflicts.extend(paid_and_owed(&claims, &refunds));
    PoolRecord { history, claims, refunds, lost_through: redis.lost_through }
}

/// Payments that paid a claim by one book and are owed back by the other: one of the two forgot what
/// the other decided. Both stand, because only the provider knows whether the money came once or twice.
fn paid_and_owed<'a>(
    claims: &'a [Claim],
    refunds: &'a [Refund],
) -> impl Iterator<Item = String> + use<'a> {
    let paid: HashMap<&PaymentId, &Claim> =
        claims.iter().filter_map(|claim| Some((claim.payment.as_ref()?, claim))).collect();
    refunds.iter().filter_map(move |refund| {
        let claim = paid.get(&refund.payment)?;
        Some(format!(
            "payment {}: it pays claim {} and is owed back as well; ask the provider whether it came \
             once. If so, settle the refund without sending money",
            refund.payment, claim.id
        ))
    })
}

#[cfg(test)]
mod tests {
    use qiang_core::{Cents, ClaimId, Kind, RefundReason, State, Timestamp, UserId};

    use super::{Claim, PaymentId, PoolId, PoolRecord, Refund, merged};

    fn paid(number: u32, payment: &str) -> Claim {
        let at = Timestamp::from_millis(1_000);
        Claim {
            kind: Kind::Sale,
            id: ClaimId { pool: PoolId::new(1).expect("positive"), number },
            user: UserId::new("alice").expect("an id"),
            identity: None,
            request: None,
            quantity: 1,
            unit_price: Cents::new(100),
            portion: None,
            state: State::Paid,
            version: 2,
            created_at: at,
            changed_at: at,
            hold_until: None,
            pay_by: None,
            payment: Some(PaymentId::new(payment).expect("an id")),
            replaces: None,
            reason: None,
        }
    }

    /// Redis forgot a claim and gave its number to somebody else.
    #[test]
    fn a_number_that_two_buyers_have_is_left_to_a_person_whichever_is_newer() {
        let alice = paid(7, "p-1");
        for version in [1, 2, 3] {
            let bob = Claim { user: UserId::new("bob").expect("an id"), version, ..alice.clone() };
            let records = PoolRecord { claims: vec![alice.clone()], ..Default::default() };
            let redis = PoolRecord { claims: vec![bob], ..Default::default() };
            let mut conflicts = Vec::new();
            let both = merged(records, redis, &mut conflicts);
            assert_eq!(both.claims, std::slice::from_ref(&alice));
            let told = "claim 1-7: the records say user alice";
            assert!(conflicts.len() == 1 && conflicts[0].starts_with(told), "{conflicts:?}");
        }
    }

    /// Redis forgot that the payment paid; told again, it was owed back.
    #[test]
    fn a_payment_that_pays_in_one_book_and_is_owed_in_the_other_is_left_to_a_person() {
        let refund = Refund {
            order: ClaimId { number: 7, ..paid(7, "p-1").id },
            payment: PaymentId::new("p-1").expect("an id"),
            amount: Cents::new(100),
            reason: RefundReason::ClaimLost,
            at: Timestamp::from_millis(2_000),
        };
        let records =
            PoolRecord { claims: vec![paid(7, "p-1"), paid(8, "p-2")], ..Default::default() };
        let redis = PoolRecord { refunds: vec![refund.clone()], ..Default::default() };
        let mut conflicts = Vec::new();
        let both = merged(records, redis, &mut conflicts);
        assert_eq!((both.claims.len(), both.refunds), (2, vec![refund]));
        let told = "payment p-1: it pays claim 1-7 and is owed back as well";
        assert!(conflicts.len() == 1 && conflicts[0].starts_with(told), "{conflicts:?}");
    }
}
