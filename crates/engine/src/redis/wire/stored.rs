//! Claims, refunds and changes of a pool as the script keeps and logs them.

use std::sync::Arc;

use qiang_core::{
    Cents, Claim, ClaimId, Event, Identity, Kind, PaymentId, PoolChange, PoolId, PoolState, Refund,
    RefundReason, ReleaseReason, RequestId, State, Terms, Timestamp, UserId,
};

use super::super::pack::{Packer, Result, Unpackable, Unpacker};
use super::{decode_terms, encode_terms};

/// The parts of an amount that a script's numbers hold exactly.
pub(super) fn split(amount: Cents) -> (i64, i64) {
    (amount.get() >> 16, amount.get() & 0xffff)
}

pub(super) fn joined(high: i64, low: i64) -> Cents {
    Cents::new((high << 16) | low)
}

/// Every field of a claim, as a script keeps it.
const CLAIM_FIELDS: usize = 17;
const EVENT_CLAIM: i64 = 1;
const EVENT_POOL: i64 = 2;
const EVENT_REFUND: i64 = 3;
const EVENT_RUN: i64 = 4;
const EVENT_MOVE: i64 = 5;
const KEPT_CHANGE: i64 = 6;

/// Which pool something is read of. Claims and events do not say it themselves: it stands beside them.
#[derive(Debug, Clone, Copy)]
pub(in crate::redis) struct Of {
    pub(in crate::redis) pool: PoolId,
    pub(in crate::redis) kind: Kind,
}

/// One claim.
pub(in crate::redis) fn read_claim(of: Of, bytes: &[u8]) -> Result<Claim> {
    let one = <[Claim; 1]>::try_from(read_claims_of(of, bytes)?);
    one.map(|[claim]| claim).map_err(|_| Unpackable::new("one claim"))
}

/// What lies in a field of the claims.
pub(in crate::redis) enum Kept {
    /// One claim, or a run of them.
    Claims(Vec<Claim>),
    /// What became of one that lies in a block.
    Change(Change),
}

/// What became of a claim that lies in a block.
pub(in crate::redis) struct Change {
    state: State,
    version: u32,
    /// Counted from when the claim was created.
    changed_ms: u64,
    pay_by_ms: Option<u64>,
    payment: Option<PaymentId>,
    reason: Option<ReleaseReason>,
}

impl Change {
    /// The claim as it is by now, of what it was when it was granted.
    pub(in crate::redis) fn of(self, granted: &Claim) -> Claim {
        let at = granted.created_at;
        Claim {
            state: self.state,
            version: self.version,
            changed_at: at.plus_millis(self.changed_ms),
            pay_by: self.pay_by_ms.map(|ms| at.plus_millis(ms)),
            payment: self.payment,
            reason: self.reason,
            ..granted.clone()
        }
    }
}

/// What lies in a field of the claims.
pub(in crate::redis) fn read_kept(of: Of, bytes: &[u8]) -> Result<Kept> {
    let mut from = Unpacker::new(bytes);
    from.list()?;
    if from.int()? != KEPT_CHANGE {
        return read_claims_of(of, bytes).map(Kept::Claims);
    }
    Ok(Kept::Change(Change {
        state: state(&mut from)?,
        version: from.number()?,
        changed_ms: from.number()?,
        pay_by_ms: from.int().map(|ms| u64::try_from(ms).ok())?,
        payment: id_or_none(&mut from, PaymentId::new)?,
        reason: reason(&mut from)?,
    }))
}

/// What became of a claim that lies in a block, with the claim that stands in its place.
pub(in crate::redis) fn pack_changed(claim: &Claim, replaced_by: u32) -> Vec<u8> {
    let since = |at: Timestamp| at.millis() - claim.created_at.millis();
    let mut packer = Packer::default();
    packer
        .list(if replaced_by > 0 { 8 } else { 7 })
        .int(KEPT_CHANGE)
        .int(state_number(claim.state))
        .int(claim.version.into())
        .int(since(claim.changed_at))
        .int(claim.pay_by.map_or(-1, since))
        .text(claim.payment.as_ref().map_or("", PaymentId::as_str))
        .int(reason_number(claim.reason));
    if replaced_by > 0 {
        packer.int(replaced_by.into());
    }
    packer.finish()
}

/// The claims that lie in one field: one, or a run of them.
fn read_claims_of(of: Of, bytes: &[u8]) -> Result<Vec<Claim>> {
    let mut events = Vec::new();
    read_events(of, bytes, &mut events)?;
    let claim = |event| match event {
        Event::Claim(claim) => Ok(claim),
        Event::Pool(_) | Event::Refund(_) => Err(Unpackable::new("a claim")),
    };
    events.into_iter().map(claim).collect()
}

pub(in crate::redis) fn read_refund(pool: PoolId, bytes: &[u8]) -> Result<Refund> {
    let mut events = Vec::new();
    read_events(Of { pool, kind: Kind::Sale }, bytes, &mut events)?;
    match events.pop() {
        Some(Event::Refund(refund)) => Ok(refund),
        _ => Err(Unpackable::new("a refund")),
    }
}

/// All events of one entry of the log.
pub(in crate::redis) fn read_events(of: Of, bytes: &[u8], to: &mut Vec<Event>) -> Result<()> {
    let mut from = Unpacker::new(bytes);
    while !from.is_empty() {
        read_event(of, &mut from, to)?;
    }
    Ok(())
}

fn read_event(of: Of, from: &mut Unpacker<'_>, to: &mut Vec<Event>) -> Result<()> {
    let pool = of.pool;
    let fields = from.list()?;
    match from.int()? {
        EVENT_CLAIM => {
            to.push(Event::Claim(read_claim_fields(of, from)?));
            if fields > CLAIM_FIELDS {
                // Which claim stands in its place: the script's own affair.
                from.int()?;
            }
        }
        EVENT_POOL => to.push(Event::Pool(read_pool_state(pool, from)?)),
        EVENT_REFUND => {
            let number = from.number()?;
            let payment = id(from, PaymentId::new)?;
            let (high, low) = (from.int()?, from.int()?);
            let reason = match from.int()? {
                0 => RefundReason::Late,
                1 => RefundReason::AlreadyPaid,
                2 => RefundReason::AmountMismatch,
                3 => RefundReason::ClaimLost,
                4 => RefundReason::Revoked,
                _ => return Err(Unpackable::new("a reason of a refund")),
            };
            let (order, amount, at) = (ClaimId { pool, number }, joined(high, low), time(from)?);
            to.push(Event::Refund(Refund { order, payment, amount, reason, at }));
        }
        EVENT_RUN => read_run(of, from, to)?,
        EVENT_MOVE => {
            // Units went from one bucket to another, or arrived there. The sale as a whole has as many
            // as before, so that nobody outside of the engine has to hear of it.
            for _ in 1..fields {
                from.int()?;
            }
        }
        _ => return Err(Unpackable::new("an event")),
    }
    Ok(())
}

/// Fresh claims that are alike, numbered one behind the other.
fn read_run(of: Of, from: &mut Unpacker<'_>, to: &mut Vec<Event>) -> Result<()> {
    let (mut number, step): (u32, u32) = (from.number()?, from.number()?);
    let (unit_price, portion) = (Cents::new(from.int()?), number_or_none(from)?);
    let (state, created_at) = (state(from)?, time(from)?);
    let (hold_until, pay_by) = (time_or_none(from)?, time_or_none(from)?);
    let mut own = Unpacker::new(from.bytes()?);
    while !own.is_empty() {
        to.push(Event::Claim(Claim {
            kind: of.kind,
            id: ClaimId { pool: of.pool, number },
            user: id(&mut own, UserId::new)?,
            request: id_or_none(&mut own, RequestId::new)?,
            identity: id_or_none(&mut own, Identity::new)?,
            quantity: own.number()?,
            unit_price,
            portion,
            state,
            version: 1,
            created_at,
            changed_at: created_at,
            hold_until,
            pay_by,
            payment: None,
            replaces: None,
            reason: None,
        }));
        number = number.saturating_add(step);
    }
    Ok(())
}

fn read_claim_fields(of: Of, from: &mut Unpacker<'_>) -> Result<Claim> {
    Ok(Claim {
        kind: of.kind,
        id: ClaimId { pool: of.pool, number: from.number()? },
        user: id(from, UserId::new)?,
        request: id_or_none(from, RequestId::new)?,
        identity: id_or_none(from, Identity::new)?,
        quantity: from.number()?,
        unit_price: Cents::new(from.int()?),
        portion: number_or_none(from)?,
        state: state(from)?,
        version: from.number()?,
        created_at: time(from)?,
        changed_at: time(from)?,
        hold_until: time_or_none(from)?,
        pay_by: time_or_none(from)?,
        payment: id_or_none(from, PaymentId::new)?,
        replaces: from.number().map(|number: u32| (number > 0).then_some(number))?,
        reason: reason(from)?,
    })
}

fn read_pool_state(pool: PoolId, from: &mut Unpacker<'_>) -> Result<PoolState> {
    let version = from.number()?;
    let (change, units) = (from.int()?, from.number()?);
    let request = from.text()?;
    let change = match change {
        0 => PoolChange::Opened,
        1 => {
            let request = RequestId::new(request).map_err(|_| Unpackable::new("a request id"))?;
            PoolChange::Restocked { units, request }
        }
        2 => PoolChange::Closed,
        3 => PoolChange::Cleared,
        _ => return Err(Unpackable::new("a change of a pool")),
    };
    let (total, closed_at, at) = (from.number()?, time_or_none(from)?, time(from)?);
    let terms = decode_terms(from.bytes()?)?;
    Ok(PoolState { id: pool, version, change, terms, total, closed_at, at })
}

/// A change of a pool as the history keeps it: without the terms, which never change.
pub(in crate::redis) fn read_change(
    pool: PoolId,
    terms: &Arc<Terms>,
    bytes: &[u8],
) -> Result<PoolState> {
    let mut with_terms = bytes.to_vec();
    with_terms.extend(Packer::default().bytes(&encode_terms(terms)).finish());
    let mut from = Unpacker::new(&with_terms);
    from.list()?;
    read_pool_state(pool, &mut from)
}

/// A change of a pool as the history keeps it.
pub(in crate::redis) fn pack_change(state: &PoolState) -> Vec<u8> {
    let (change, units, request) = match &state.change {
        PoolChange::Opened => (0, 0, ""),
        PoolChange::Restocked { units, request } => (1, *units, request.as_str()),
        PoolChange::Closed => (2, 0, ""),
        PoolChange::Cleared => (3, 0, ""),
    };
    Packer::default()
        .list(7)
        .int(state.version.into())
        .int(change)
        .int(units.into())
        .text(request)
        .int(state.total.into())
        .int(state.closed_at.map_or(-1, Timestamp::millis))
        .int(state.at.millis())
        .finish()
}

/// A claim as the script keeps it, with the claim that stands in its place.
pub(in crate::redis) fn pack_claim(claim: &Claim, replaced_by: u32) -> Vec<u8> {
    let text = |text: Option<&str>| text.unwrap_or("").to_owned();
    let time = |at: Option<Timestamp>| at.map_or(-1, Timestamp::millis);
    Packer::default()
        .list(CLAIM_FIELDS + 1)
        .int(EVENT_CLAIM)
        .int(claim.id.number.into())
        .text(claim.user.as_str())
        .text(&text(claim.request.as_ref().map(RequestId::as_str)))
        .text(&text(claim.identity.as_ref().map(Identity::as_str)))
        .int(claim.quantity.into())
        .int(claim.unit_price.get())
        .int(claim.portion.map_or(-1, i64::from))
        .int(state_number(claim.state))
        .int(claim.version.into())
        .int(claim.created_at.millis())
        .int(claim.changed_at.millis())
        .int(time(claim.hold_until))
        .int(time(claim.pay_by))
        .text(&text(claim.payment.as_ref().map(PaymentId::as_str)))
        .int(claim.replaces.unwrap_or(0).into())
        .int(reason_number(claim.reason))
        .int(replaced_by.into())
        .finish()
}

/// A refund as the script keeps it.
pub(in crate::redis) fn pack_refund(refund: &Refund) -> Vec<u8> {
    let (high, low) = split(refund.amount);
    Packer::default()
        .list(7)
        .int(EVENT_REFUND)
        .int(refund.order.number.into())
        .text(refund.payment.as_str())
        .int(high)
        .int(low)
        .int(refund_reason_number(refund.reason))
        .int(refund.at.millis())
        .finish()
}

/// Fresh claims that are alike but for whose they are, numbered one behind the other, as the script
/// keeps them. All of them look as the first one does.
pub(in crate::redis) fn pack_run(claims: &[&Claim], step: u16, fresh: &Claim) -> Vec<u8> {
    let mut own = Packer::default();
    for claim in claims {
        own.text(claim.user.as_str())
            .text(claim.request.as_ref().map_or("", RequestId::as_str))
            .text(claim.identity.as_ref().map_or("", Identity::as_str))
            .int(claim.quantity.into());
    }
    let time = |at: Option<Timestamp>| at.map_or(-1, Timestamp::millis);
    Packer::default()
        .list(10)
        .int(EVENT_RUN)
        .int(fresh.id.number.into())
        .int(step.into())
        .int(fresh.unit_price.get())
        .int(-1)
        .int(state_number(fresh.state))
        .int(fresh.created_at.millis())
        .int(time(fresh.hold_until))
        .int(time(fresh.pay_by))
        .bytes(&own.finish())
        .finish()
}

fn state_number(state: State) -> i64 {
    match state {
        State::Held => 0,
        State::Ordered => 1,
        State::Paid => 2,
        State::Released => 3,
    }
}

fn refund_reason_number(reason: RefundReason) -> i64 {
    match reason {
        RefundReason::Late => 0,
        RefundReason::AlreadyPaid => 1,
        RefundReason::AmountMismatch => 2,
        RefundReason::ClaimLost => 3,
        RefundReason::Revoked => 4,
    }
}

pub(super) fn reason_number(reason: Option<ReleaseReason>) -> i64 {
    match reason {
        None => 0,
        Some(ReleaseReason::GaveUp) => 1,
        Some(ReleaseReason::Cancelled) => 2,
        Some(ReleaseReason::HoldExpired) => 3,
        Some(ReleaseReason::PayExpired) => 4,
        Some(ReleaseReason::Revoked) => 5,
    }
}

fn reason(from: &mut Unpacker<'_>) -> Result<Option<ReleaseReason>> {
    Ok(match from.int()? {
        0 => None,
        1 => Some(ReleaseReason::GaveUp),
        2 => Some(ReleaseReason::Cancelled),
        3 => Some(ReleaseReason::HoldExpired),
        4 => Some(ReleaseReason::PayExpired),
        5 => Some(ReleaseReason::Revoked),
        _ => return Err(Unpackable::new("a reason of a release")),
    })
}

pub(super) fn state(from: &mut Unpacker<'_>) -> Result<State> {
    Ok(match from.int()? {
        0 => State::Held,
        1 => State::Ordered,
        2 => State::Paid,
        3 => State::Released,
        _ => return Err(Unpackable::new("a state of a claim")),
    })
}

pub(super) fn time(from: &mut Unpacker<'_>) -> Result<Timestamp> {
    from.int().map(Timestamp::from_millis)
}

pub(super) fn time_or_none(from: &mut Unpacker<'_>) -> Result<Option<Timestamp>> {
    from.int().map(|ms| (ms >= 0).then(|| Timestamp::from_millis(ms)))
}

pub(super) fn number_or_none(from: &mut Unpacker<'_>) -> Result<Option<u32>> {
    from.int().map(|number| u32::try_from(number).ok())
}

fn id<T>(
    from: &mut Unpacker<'_>,
    make: fn(&str) -> std::result::Result<T, qiang_core::BadId>,
) -> Result<T> {
    make(from.text()?).map_err(|_| Unpackable::new("an id"))
}

fn id_or_none<T>(
    from: &mut Unpacker<'_>,
    make: fn(&str) -> std::result::Result<T, qiang_core::BadId>,
) -> Result<Option<T>> {
    let text = from.text()?;
    if text.is_empty() {
        Ok(None)
    } else {
        make(text).map(Some).map_err(|_| Unpackable::new("an id"))
    }
}
