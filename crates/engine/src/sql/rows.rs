//! Rows as values of the rules, without trusting them.

use std::sync::Arc;

use qiang_core::decide::{Buyer, Fate, Seen};
use qiang_core::{
    BadId, Cents, Claim, ClaimId, Event, Identity, Kind, PaymentId, PoolChange, PoolId, PoolState,
    Refund, RefundReason, ReleaseReason, RequestId, State, Tally, Terms, Timestamp, UserId,
};
use qiang_sql::Row;

use super::excerpt::{self, Counts, Excerpt};
use super::fault::Fault;
use crate::Decoder;

/// The columns [`pool`] reads, of `engine_pools p`.
macro_rules! pool_columns {
    () => {
        "p.id, p.version, p.last_change, p.change_units, p.change_request, p.total, p.available, \
         p.held, p.ordered, p.paid, p.claims, p.payments, p.refunds, p.next_place, \
         p.fresh_portion, p.opened_at, p.closed_at, p.changed_at"
    };
}

/// The column behind those of a pool.
pub(super) const BEHIND_POOL: usize = 18;
/// The column behind those of a claim.
pub(super) const BEHIND_CLAIM: usize = 17;

/// The columns [`claim`] reads.
macro_rules! claim_columns {
    () => {
        "number, user_id, identity, request_key, quantity, unit_price_cents, portion_place, state, \
         version, created_at, changed_at, hold_until, pay_by, payment_id, replaces, replaced_by, \
         reason"
    };
}

pub(super) use {claim_columns, pool_columns};

pub(super) fn pool_id(row: &Row, column: usize) -> Result<PoolId, Fault> {
    let id = u64::try_from(row.int(column)?).ok().and_then(PoolId::new);
    id.ok_or(Fault::OutOfRange { what: "a pool id" })
}

/// A pool, whose rules are kept elsewhere.
pub(super) fn pool(row: &Row, terms: Arc<Terms>) -> Result<Excerpt, Fault> {
    let version = short(row, 1)?;
    let change = match row.text(2)? {
        "opened" => PoolChange::Opened,
        "restocked" => {
            let request = RequestId::new(row.text(4)?)?;
            PoolChange::Restocked { units: short(row, 3)?, request }
        }
        "closed" => PoolChange::Closed,
        "cleared" => PoolChange::Cleared,
        _ => return Err(Fault::OutOfRange { what: "the change of a pool" }),
    };
    let counts = Counts {
        version,
        available: short(row, 6)?,
        tally: Tally { held: short(row, 7)?, ordered: short(row, 8)?, paid: short(row, 9)? },
        claims: short(row, 10)?,
        payments: short(row, 11)?,
        refunds: short(row, 12)?,
        next_place: short(row, 13)?,
        fresh: short(row, 14)?,
    };
    let state = PoolState {
        id: pool_id(row, 0)?,
        version,
        change,
        terms,
        total: short(row, 5)?,
        closed_at: time_or_null(row, 16)?,
        at: Timestamp::from_millis(row.int(17)?),
    };
    Ok(Excerpt::new(state, Timestamp::from_millis(row.int(15)?), counts))
}

/// The word for a change of a pool.
pub(super) fn change_word(change: &PoolChange) -> &'static str {
    match change {
        PoolChange::Opened => "opened",
        PoolChange::Restocked { .. } => "restocked",
        PoolChange::Closed => "closed",
        PoolChange::Cleared => "cleared",
    }
}

/// Between a user and their request; no id has it in it.
const BETWEEN: char = '\u{1F}';

/// What a request is found by: one text, so that many can be looked for in one list.
pub(super) fn request_key(user: &UserId, request: &RequestId) -> String {
    format!("{user}{BETWEEN}{request}")
}

/// A claim; what its pool is for stands in the pool's rules.
pub(super) fn claim(row: &Row, pool: PoolId, kind: Kind) -> Result<excerpt::Row, Fault> {
    let state = State::from_word(row.text(7)?);
    let claim = Claim {
        kind,
        id: ClaimId { pool, number: short(row, 0)? },
        user: UserId::new(row.text(1)?)?,
        identity: id_or_null(row, 2, Identity::new)?,
        request: match row.text_or_null(3)? {
            None => None,
            Some(key) => {
                let (_, request) = key
                    .split_once(BETWEEN)
                    .ok_or(Fault::OutOfRange { what: "the request of a claim" })?;
                Some(RequestId::new(request)?)
            }
        },
        quantity: short(row, 4)?,
        unit_price: Cents::new(row.int(5)?),
        portion: short_or_null(row, 6)?,
        state: state.ok_or(Fault::OutOfRange { what: "the state of a claim" })?,
        version: short(row, 8)?,
        created_at: Timestamp::from_millis(row.int(9)?),
        changed_at: Timestamp::from_millis(row.int(10)?),
        hold_until: time_or_null(row, 11)?,
        pay_by: time_or_null(row, 12)?,
        payment: id_or_null(row, 13, PaymentId::new)?,
        replaces: short_or_null(row, 14)?,
        reason: match row.text_or_null(16)? {
            None => None,
            Some(word) => Some(
                ReleaseReason::from_word(word)
                    .ok_or(Fault::OutOfRange { what: "the reason of a release" })?,
            ),
        },
    };
    Ok(excerpt::Row { claim, replaced_by: short_or_null(row, 15)? })
}

/// What became of a payment, from the columns `order_number, claim, amount_cents, reason, at`
/// that begin at `first`.
pub(super) fn seen(row: &Row, first: usize) -> Result<Seen, Fault> {
    let order = short(row, first)?;
    let fate = match short_or_null(row, first + 1)? {
        Some(claim) => Fate::Paid { claim },
        None => Fate::Refund {
            amount: Cents::new(row.int(first + 2)?),
            reason: RefundReason::from_word(row.text(first + 3)?)
                .ok_or(Fault::OutOfRange { what: "the reason of a refund" })?,
            at: Timestamp::from_millis(row.int(first + 4)?),
        },
    };
    Ok(Seen { order, fate })
}

/// A refund and its place, from the columns `place, payment_id`, and those of [`seen`].
pub(super) fn refund(row: &Row, pool: PoolId) -> Result<(usize, Refund), Fault> {
    let place = usize::try_from(row.int(0)?);
    let place = place.map_err(|_| Fault::OutOfRange { what: "the place of a payment" })?;
    let payment = PaymentId::new(row.text(1)?)?;
    let Seen { order, fate } = seen(row, 2)?;
    let Fate::Refund { amount, reason, at } = fate else {
        return Err(Fault::OutOfRange { what: "the fate of a payment" });
    };
    let order = ClaimId { pool, number: order };
    Ok((place, Refund { order, payment, amount, reason, at }))
}

/// What a buyer has, from the columns `latest, used` that begin at `first`.
pub(super) fn buyer(row: &Row, first: usize) -> Result<Buyer, Fault> {
    Ok(Buyer { latest: short(row, first)?, used: short(row, first + 1)? })
}

/// The rules of a pool, from its first event.
pub(super) fn terms(row: &Row, column: usize) -> Result<Arc<Terms>, Fault> {
    const WHAT: &str = "the first event of a pool";
    match event(row.bytes(column)?, WHAT)? {
        Event::Pool(opened) => Ok(opened.terms),
        Event::Claim(_) | Event::Refund(_) => Err(Fault::OutOfRange { what: WHAT }),
    }
}

/// One event.
pub(super) fn event(bytes: &[u8], what: &'static str) -> Result<Event, Fault> {
    let mut events = Decoder::new(bytes);
    let event = events.next().ok_or(Fault::OutOfRange { what })?;
    event.map_err(|source| Fault::Undecodable { what, source })
}

pub(super) fn short(row: &Row, column: usize) -> Result<u32, Fault> {
    u32::try_from(row.int(column)?).map_err(|_| Fault::OutOfRange { what: "a number" })
}

pub(super) fn short_or_null(row: &Row, column: usize) -> Result<Option<u32>, Fault> {
    let number = row.int_or_null(column)?.map(u32::try_from).transpose();
    number.map_err(|_| Fault::OutOfRange { what: "a number" })
}

fn time_or_null(row: &Row, column: usize) -> Result<Option<Timestamp>, Fault> {
    Ok(row.int_or_null(column)?.map(Timestamp::from_millis))
}

fn id_or_null<T>(
    row: &Row,
    column: usize,
    make: fn(&str) -> Result<T, BadId>,
) -> Result<Option<T>, Fault> {
    Ok(row.text_or_null(column)?.map(make).transpose()?)
}
