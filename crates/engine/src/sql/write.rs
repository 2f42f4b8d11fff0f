//! Writes what a batch has changed: exactly the difference to what was read, with statements that
//! name what they expect to find, and whose affected rows are counted.

use std::collections::BTreeMap;

use qiang_core::decide::{Buyer, Fate};
use qiang_core::{Claim, Event, PoolChange, Timestamp, decide};
use qiang_sql::{Listed, Params, Statement, Transaction, Value, sql};

use super::excerpt::{Counts, Entry, Excerpt, NewPayment, Quota, Row, due};
use super::fault::Fault;
use super::load::{Loaded, id};
use super::rows::{change_word, request_key};
use super::tables::{
    GOES, INSERT_BUYERS, INSERT_CALLS, INSERT_CLAIMS, INSERT_LOG, INSERT_PAYMENTS, INSERT_POOLS,
    INSERT_PORTIONS, INSERT_RESTOCKS, INSERT_TERMS, STAYS,
};
use crate::Encoder;

static CHANGE_CLAIMS: Listed = Listed::over(
    &[],
    "UPDATE engine_claims SET state = ?, version = ?, changed_at = ?, reason = ?, payment_id = ?,
        replaced_by = ?, pay_by = COALESCE(?, pay_by), due = ?
     WHERE pool_id = ? AND version = ? AND state = ? AND number IN ({list})",
);

static GIVE_QUOTA_BACK: Listed = Listed::over(
    &[],
    "UPDATE engine_buyers SET used = used - ?
     WHERE pool_id = ? AND used >= ? AND name IN ({list})",
);

static GIVE_PORTIONS_BACK: Listed = Listed::over(
    &[],
    "UPDATE engine_portions SET claim = 0 WHERE pool_id = ? AND claim > 0 AND place IN ({list})",
);

/// Where a batch ends up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) partition: u16,
    /// Position of the last event before it.
    pub(super) seq: u64,
    /// The time of its decisions.
    pub(super) at: Timestamp,
    /// Who writes it, and which of their calls it is.
    pub(super) caller: i64,
    pub(super) call: i64,
}

/// Writes everything a batch has changed, and its events.
pub(super) async fn write(
    transaction: &mut Transaction,
    loaded: &Loaded,
    events: &[Event],
    place: Place,
) -> Result<(), Fault> {
    for excerpt in loaded.pools.values().flatten().chain(&loaded.forgotten) {
        write_pool(transaction, excerpt).await?;
        write_claims(transaction, excerpt).await?;
        write_buyers(transaction, excerpt).await?;
        write_portions(transaction, excerpt).await?;
        write_payments(transaction, excerpt).await?;
    }
    write_log(transaction, events, place).await
}

async fn write_pool(transaction: &mut Transaction, excerpt: &Excerpt) -> Result<(), Fault> {
    let (pool, state, now) = (id(excerpt.state.id), &excerpt.state, &excerpt.counts);
    let Some(stored) = excerpt.stored else { return insert_pool(transaction, excerpt).await };
    if stored == *now {
        return Ok(());
    }
    let cleared = excerpt.is_cleared() && stored.version != now.version;
    let to_sweep = match decide::leaves_nothing(state.id, &state.terms) {
        _ if !cleared => 0,
        true => GOES,
        false => STAYS,
    };
    let (units, request) = restocked(&state.change);
    let taken = i64::from(stored.available) - i64::from(now.available);
    let delta = |of: fn(&Counts) -> u32| Value::Int(i64::from(of(now)) - i64::from(of(&stored)));
    one(
        transaction,
        "a pool",
        sql!(
            "UPDATE engine_pools SET version = ?, last_change = ?, change_units = ?,
                change_request = ?, closed_at = ?, changed_at = ?, total = ?,
                available = available - ?, held = held + ?, ordered = ordered + ?,
                paid = paid + ?, claims = claims + ?, payments = payments + ?,
                refunds = refunds + ?, next_place = next_place + ?,
                fresh_portion = fresh_portion + ?,
                to_sweep = CASE WHEN to_sweep = 0 THEN ? ELSE to_sweep END
             WHERE id = ? AND version = ? AND claims = ? AND available >= ?"
        ),
        &[
            now.version.into(),
            change_word(&state.change).into(),
            units,
            request,
            state.closed_at.map(Timestamp::millis).into(),
            state.at.millis().into(),
            state.total.into(),
            taken.into(),
            delta(|counts| counts.tally.held),
            delta(|counts| counts.tally.ordered),
            delta(|counts| counts.tally.paid),
            delta(|counts| counts.claims),
            delta(|counts| counts.payments),
            delta(|counts| counts.refunds),
            delta(|counts| counts.next_place),
            delta(|counts| counts.fresh),
            Value::Int(to_sweep),
            pool,
            stored.version.into(),
            stored.claims.into(),
            taken.max(0).into(),
        ],
    )
    .await?;
    if let Some((request, units)) = &excerpt.new_restock {
        let restock = INSERT_RESTOCKS.one(transaction.dialect());
        let values = [pool, request.as_str().into(), (*units).into()];
        transaction.execute(restock, &values).await?;
    }
    Ok(())
}

async fn insert_pool(transaction: &mut Transaction, excerpt: &Excerpt) -> Result<(), Fault> {
    let (pool, state, counts) = (id(excerpt.state.id), &excerpt.state, &excerpt.counts);
    let (units, request) = restocked(&state.change);
    let values = [
        pool,
        state.at.millis().into(),
        state.terms.kind.as_str().into(),
        state.version.into(),
        change_word(&state.change).into(),
        units,
        request,
        state.total.into(),
        state.closed_at.map(Timestamp::millis).into(),
        state.at.millis().into(),
        counts.available.into(),
        counts.tally.held.into(),
        counts.tally.ordered.into(),
        counts.tally.paid.into(),
        counts.claims.into(),
        counts.payments.into(),
        counts.refunds.into(),
        counts.next_place.into(),
        counts.fresh.into(),
        Value::Int(0),
    ];
    transaction.execute(INSERT_POOLS.one(transaction.dialect()), &values).await?;
    let opened = encoded(&Event::Pool(state.clone()));
    let values = [pool, opened.bytes().into()];
    transaction.execute(INSERT_TERMS.one(transaction.dialect()), &values).await?;
    Ok(())
}

/// What can change of a claim. Claims that change in the same way are written by one statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Change<'a> {
    from_version: u32,
    from_state: &'static str,
    state: &'static str,
    version: u32,
    changed_at: i64,
    reason: Option<&'static str>,
    payment: Option<&'a str>,
    replaced_by: Option<u32>,
    /// Only where it was set.
    pay_by: Option<i64>,
    due: Option<i64>,
}

impl<'a> Change<'a> {
    fn of(stored: &Row, now: &'a Row) -> Self {
        let (before, claim) = (&stored.claim, &now.claim);
        let pay_by = claim.pay_by.filter(|_| before.pay_by.is_none());
        Self {
            from_version: before.version,
            from_state: before.state.as_str(),
            state: claim.state.as_str(),
            version: claim.version,
            changed_at: claim.changed_at.millis(),
            reason: claim.reason.map(qiang_core::ReleaseReason::as_str),
            payment: claim.payment.as_ref().map(qiang_core::PaymentId::as_str),
            replaced_by: now.replaced_by,
            pay_by: pay_by.map(Timestamp::millis),
            due: due(claim).map(Timestamp::millis),
        }
    }
}

async fn write_claims(transaction: &mut Transaction, excerpt: &Excerpt) -> Result<(), Fault> {
    let pool = id(excerpt.state.id);
    let mut changes = BTreeMap::<Change<'_>, Vec<Value<'_>>>::new();
    let mut granted = Vec::new();
    for (number, entry) in excerpt.claims.iter().filter(|(_, entry)| entry.changed()) {
        match &entry.stored {
            None => granted.push(&entry.now),
            Some(stored) => {
                let change = Change::of(stored, &entry.now);
                changes.entry(change).or_default().push((*number).into());
            }
        }
    }
    INSERT_CLAIMS.run(transaction, &granted, |params, row| bind_claim(params, pool, row)).await?;
    for (change, numbers) in changes {
        let before = [
            change.state.into(),
            change.version.into(),
            change.changed_at.into(),
            change.reason.into(),
            change.payment.into(),
            change.replaced_by.into(),
            change.pay_by.into(),
            change.due.into(),
            pool,
            change.from_version.into(),
            change.from_state.into(),
        ];
        all(transaction, "claims", &CHANGE_CLAIMS, &before, &numbers).await?;
    }
    Ok(())
}

fn bind_claim(params: &mut Params, pool: Value<'_>, row: &Row) {
    let Claim {
        kind: _,
        id,
        user,
        identity,
        request,
        quantity,
        unit_price,
        portion,
        state,
        version,
        created_at,
        changed_at,
        hold_until,
        pay_by,
        payment,
        replaces,
        reason,
    } = &row.claim;
    params
        .add(pool)
        .add(id.number)
        .add(user.as_str())
        .add(identity.as_ref().map(qiang_core::Identity::as_str))
        .add(request.as_ref().map(|request| request_key(user, request)).as_ref())
        .add(*quantity)
        .add(unit_price.get())
        .add(*portion)
        .add(created_at.millis())
        .add(hold_until.map(Timestamp::millis))
        .add(*replaces)
        .add(state.as_str())
        .add(*version)
        .add(changed_at.millis())
        .add(pay_by.map(Timestamp::millis))
        .add(payment.as_ref().map(qiang_core::PaymentId::as_str))
        .add(reason.map(qiang_core::ReleaseReason::as_str))
        .add(row.replaced_by)
        .add(due(&row.claim).map(Timestamp::millis));
}

async fn write_buyers(transaction: &mut Transaction, excerpt: &Excerpt) -> Result<(), Fault> {
    let pool = id(excerpt.state.id);
    let mut new = Vec::new();
    let mut given_back = BTreeMap::<u32, Vec<Value<'_>>>::new();
    for (name, Quota { stored, now }) in &excerpt.buyers {
        match (stored, now) {
            (None, Some(now)) => new.push((name.as_str(), *now)),
            (Some(stored), Some(now)) if stored.latest == now.latest && now.used < stored.used => {
                let units = stored.used - now.used;
                given_back.entry(units).or_default().push(name.into());
            }
            (Some(stored), Some(now)) if stored != now => {
                let Buyer { latest, used } = *now;
                one(
                    transaction,
                    "a buyer",
                    sql!(
                        "UPDATE engine_buyers SET latest = ?, used = ?
                         WHERE pool_id = ? AND name = ? AND latest = ? AND used = ?"
                    ),
                    &[
                        latest.into(),
                        used.into(),
                        pool,
                        name.into(),
                        stored.latest.into(),
                        stored.used.into(),
                    ],
                )
                .await?;
            }
            _ => {}
        }
    }
    let bind = |params: &mut Params, (name, buyer): &(&str, Buyer)| {
        params.add(pool).add(*name).add(buyer.latest).add(buyer.used);
    };
    INSERT_BUYERS.run(transaction, &new, bind).await?;
    for (units, names) in given_back {
        let before = [units.into(), pool, units.into()];
        all(transaction, "buyers", &GIVE_QUOTA_BACK, &before, &names).await?;
    }
    Ok(())
}

async fn write_portions(transaction: &mut Transaction, excerpt: &Excerpt) -> Result<(), Fault> {
    let pool = id(excerpt.state.id);
    let (mut new, mut given_back) = (Vec::new(), Vec::new());
    for (place, Entry { stored, now }) in &excerpt.portions {
        match (stored, *now) {
            (Some(stored), now) if *stored == now => {}
            (None, now) => new.push((*place, now)),
            (Some(_), 0) => given_back.push((*place).into()),
            (Some(stored), now) => {
                one(
                    transaction,
                    "a portion",
                    sql!(
                        "UPDATE engine_portions SET claim = ?
                         WHERE pool_id = ? AND place = ? AND claim = ?"
                    ),
                    &[now.into(), pool, (*place).into(), (*stored).into()],
                )
                .await?;
            }
        }
    }
    let bind = |params: &mut Params, (place, claim): &(u32, u32)| {
        params.add(pool).add(*place).add(*claim);
    };
    INSERT_PORTIONS.run(transaction, &new, bind).await?;
    if !given_back.is_empty() {
        all(transaction, "portions", &GIVE_PORTIONS_BACK, &[pool], &given_back).await?;
    }
    Ok(())
}

async fn write_payments(transaction: &mut Transaction, excerpt: &Excerpt) -> Result<(), Fault> {
    let pool = id(excerpt.state.id);
    for new in excerpt.new_payments.iter().filter(|new| excerpt.stale.contains(&new.payment)) {
        // Somebody else may be deleting it just now; then there is nothing to do.
        transaction
            .execute(
                sql!(
                    "DELETE FROM engine_payments
                     WHERE pool_id = ? AND payment_id = ? AND claim IS NOT NULL"
                ),
                &[pool, new.payment.as_str().into()],
            )
            .await?;
    }
    let bind = |params: &mut Params, new: &NewPayment| {
        let (claim, amount, reason, at) = match new.seen.fate {
            Fate::Paid { claim } => (Some(claim), None, None, None),
            Fate::Refund { amount, reason, at } => {
                (None, Some(amount.get()), Some(reason.as_str()), Some(at.millis()))
            }
        };
        params
            .add(pool)
            .add(new.payment.as_str())
            .add(new.place)
            .add(new.seen.order)
            .add(claim)
            .add(amount)
            .add(reason)
            .add(at);
    };
    INSERT_PAYMENTS.run(transaction, &excerpt.new_payments, bind).await?;
    Ok(())
}

/// The events behind the last one, the partition's new position, and whose doing it was.
async fn write_log(
    transaction: &mut Transaction,
    events: &[Event],
    place: Place,
) -> Result<(), Fault> {
    let partition = i64::from(place.partition);
    let rows: Vec<_> = (place.seq + 1..).zip(events.iter().map(encoded)).collect();
    let bind = |params: &mut Params, (seq, event): &(u64, Encoder)| {
        params.add(partition).add(position(*seq)).add(event.bytes());
    };
    INSERT_LOG.run(transaction, &rows, bind).await?;
    let seq = place.seq + events.len() as u64;
    one(
        transaction,
        "a partition",
        sql!("UPDATE engine_partitions SET seq = ?, at = ? WHERE id = ? AND seq = ?"),
        &[
            position(seq).into(),
            place.at.millis().into(),
            partition.into(),
            position(place.seq).into(),
        ],
    )
    .await?;
    let (call, at) = (Value::Int(place.call), Value::Int(place.at.millis()));
    let (partition, caller) = (Value::Int(partition), Value::Int(place.caller));
    let known =
        sql!("UPDATE engine_calls SET number = ?, at = ? WHERE partition_id = ? AND caller = ?");
    if transaction.execute(known, &[call, at, partition, caller]).await? == 0 {
        let first = INSERT_CALLS.one(transaction.dialect());
        transaction.execute(first, &[partition, caller, call, at]).await?;
    }
    Ok(())
}

/// Runs a statement that must change exactly one row.
pub(super) async fn one(
    transaction: &mut Transaction,
    what: &'static str,
    statement: &Statement,
    values: &[Value<'_>],
) -> Result<(), Fault> {
    match transaction.execute(statement, values).await? {
        1 => Ok(()),
        found => Err(Fault::Guard { what, expected: 1, found }),
    }
}

/// Runs a statement that must change exactly one row for each item.
async fn all(
    transaction: &mut Transaction,
    what: &'static str,
    statement: &Listed,
    before: &[Value<'_>],
    items: &[Value<'_>],
) -> Result<(), Fault> {
    let expected = items.len() as u64;
    match statement.execute(transaction, before, items).await? {
        found if found == expected => Ok(()),
        found => Err(Fault::Guard { what, expected, found }),
    }
}

/// A position as a parameter.
pub(super) fn position(seq: u64) -> i64 {
    i64::try_from(seq).expect("positions fit a signed column")
}

fn restocked(change: &PoolChange) -> (Value<'_>, Value<'_>) {
    match change {
        PoolChange::Restocked { units, request } => ((*units).into(), request.as_str().into()),
        PoolChange::Opened | PoolChange::Closed | PoolChange::Cleared => (Value::Null, Value::Null),
    }
}

fn encoded(event: &Event) -> Encoder {
    let mut encoder = Encoder::default();
    encoder.push(event);
    encoder
}
