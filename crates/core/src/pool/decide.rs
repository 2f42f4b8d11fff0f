//! The rules themselves: what a pool answers, and in which order it checks.
//!
//! They are written against [`Facts`], the questions they have to ask. The pool in memory answers
//! them from its indexes; an engine whose pools lie in a database loads the answers first and
//! hands them over. Both decide with the same code, and nothing here changes anything.

use std::sync::Arc;

use super::Tally;
use crate::{
    Cents, Claim, ClaimId, ClaimRequest, Event, Flow, Identity, Kind, LimitBy, MAX_UNITS,
    PayRequest, PaymentId, PoolChange, PoolId, PoolState, PoolView, Reclaim, Refund, RefundReason,
    Refusal, ReleaseReason, RequestId, Settlement, State, Supply, Terms, Timestamp, UserId,
};

/// Changes of one pool as a whole; each is remembered for good, so there is an end to them.
const MAX_CHANGES: u32 = 10_000;

/// What the rules have to know about a pool to decide. Every answer is about one moment.
pub trait Facts {
    /// The pool as its last change left it.
    fn state(&self) -> &PoolState;

    /// The pool as the outside sees it.
    fn view(&self) -> PoolView;

    fn available(&self) -> u32;

    /// Units taken, by state.
    fn tally(&self) -> Tally;

    /// Claims ever granted.
    fn claims(&self) -> u32;

    /// A claim as it is.
    fn claim(&self, number: u32) -> Option<Claim>;

    /// When a claim runs out, if it still can.
    fn due(&self, number: u32) -> Option<Timestamp>;

    /// The claim that a late payment put in the place of this one.
    fn replaced_by(&self, number: u32) -> Option<u32>;

    /// The claim that was granted to this request of this user.
    fn request(&self, user: &UserId, request: &RequestId) -> Option<u32>;

    /// What a buyer has, by the name quota is counted under ([`Terms::limit_by`]).
    fn buyer(&self, name: &str) -> Option<Buyer>;

    /// A payment seen in this pool.
    fn payment(&self, payment: &PaymentId) -> Option<Seen>;

    /// The lowest portion that is free, and its value; `None` when the pool has units, or none is
    /// left.
    fn next_portion(&self) -> Option<(u32, Cents)>;

    /// The units that this request restocked.
    fn restock(&self, request: &RequestId) -> Option<u32>;

    fn terms(&self) -> &Terms {
        &self.state().terms
    }
}

/// What one buyer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buyer {
    /// Their latest claim, whatever became of it.
    pub latest: u32,
    /// Units that count against their limit.
    pub used: u32,
}

/// A payment seen before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The order it was meant for.
    pub order: u32,
    /// What became of it.
    pub fate: Fate,
}

/// What became of a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It paid this claim, which is the order's own or the one granted in its place.
    Paid {
        /// The claim's number.
        claim: u32,
    },
    /// It goes back.
    Refund {
        amount: Cents,
        reason: RefundReason,
        /// When that was decided.
        at: Timestamp,
    },
}

/// What the rules say to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision<T> {
    /// Yes: this has to be applied and made durable before anybody is told.
    Commit(Event),
    /// It happened before.
    Repeat(T),
    Refuse(Refusal),
}

use Decision::{Commit, Refuse, Repeat};

/// The first change of a pool: it exists from now on.
#[must_use]
pub fn opening(id: PoolId, terms: &Arc<Terms>, now: Timestamp) -> Event {
    Event::Pool(PoolState {
        id,
        version: 1,
        change: PoolChange::Opened,
        terms: Arc::clone(terms),
        total: terms.units(),
        closed_at: None,
        at: now,
    })
}

/// Opening a pool that exists: the same terms again are a repeat, anything else is refused.
#[must_use]
pub fn open(pool: &impl Facts, terms: &Terms) -> Decision<PoolView> {
    if *pool.terms() == *terms && !is_cleared(pool) {
        Repeat(pool.view())
    } else {
        Refuse(Refusal::PoolExists)
    }
}

/// Who gets units. The order of the checks is part of the contract.
#[must_use]
pub fn claim(pool: &impl Facts, wish: &ClaimRequest, now: Timestamp) -> Decision<Claim> {
    if pool.terms().kind != wish.kind {
        return Refuse(Refusal::NoSuchPool);
    }
    if is_cleared(pool) {
        return Refuse(Refusal::Cleared);
    }
    let quantity = wish.quantity.get();
    let repeated = wish.request.as_ref().and_then(|request| pool.request(&wish.user, request));
    if let Some(first) = repeated {
        let claim = pool.claim(first).expect("an indexed claim is stored");
        return if claim.quantity == quantity {
            Repeat(claim)
        } else {
            Refuse(Refusal::RequestConflict)
        };
    }
    if now < pool.terms().opens_at {
        return Refuse(Refusal::NotOpenYet { opens_at: pool.terms().opens_at });
    }
    if is_closed(pool, now) {
        return Refuse(Refusal::Closed);
    }
    let identity = match pool.terms().limit_by {
        LimitBy::User => None,
        LimitBy::Identity if wish.identity.is_none() => return Refuse(Refusal::NotEligible),
        LimitBy::Identity => wish.identity.as_ref(),
    };
    if let Err(refusal) = check_limit(pool, &wish.user, identity, quantity) {
        return Refuse(refusal);
    }
    if quantity > pool.available() {
        return Refuse(Refusal::SoldOut);
    }
    let portion = pool.next_portion();
    let sold = pool.state().total - pool.available();
    let unit_price = portion.map_or_else(|| pool.terms().price_after(sold), |(_, value)| value);
    let (state, hold_until, pay_by) = first_state(pool.terms().flow, unit_price, now);
    Commit(Event::Claim(Claim {
        kind: wish.kind,
        id: next_id(pool),
        user: wish.user.clone(),
        identity: identity.cloned(),
        request: wish.request.clone(),
        quantity,
        unit_price,
        portion: portion.map(|(place, _)| place),
        state,
        version: 1,
        created_at: now,
        changed_at: now,
        hold_until,
        pay_by,
        payment: None,
        replaces: None,
        reason: None,
    }))
}

/// Turning a hold into an order.
#[must_use]
pub fn order(
    pool: &impl Facts,
    number: u32,
    by: Option<&UserId>,
    now: Timestamp,
) -> Decision<Claim> {
    let claim = match find_claim(pool, number, by) {
        Ok(claim) => claim,
        Err(refusal) => return Refuse(refusal),
    };
    match (claim.state, pool.terms().flow) {
        // Nobody will ever pay for what costs nothing.
        (State::Held, Flow::Hold { .. }) if claim.unit_price == Cents::ZERO => {
            Commit(Event::Claim(changed(claim, State::Paid, now)))
        }
        (State::Held, Flow::Hold { pay_ms, .. }) => {
            let pay_by = Some(now.plus_millis(pay_ms));
            Commit(Event::Claim(Claim { pay_by, ..changed(claim, State::Ordered, now) }))
        }
        (State::Held, Flow::Instant | Flow::Order { .. }) => {
            unreachable!("only the hold flow holds")
        }
        (State::Ordered | State::Paid, _) => Repeat(claim),
        (State::Released, _) => Refuse(Refusal::Released),
    }
}

/// Giving units and quota back, at most once.
#[must_use]
pub fn release(
    pool: &impl Facts,
    number: u32,
    by: Option<&UserId>,
    reason: ReleaseReason,
    now: Timestamp,
) -> Decision<Claim> {
    let claim = match find_claim(pool, number, by) {
        Ok(claim) => claim,
        Err(refusal) => return Refuse(refusal),
    };
    match claim.state {
        State::Held | State::Ordered => Commit(released(claim, reason, now)),
        State::Released => Repeat(claim),
        State::Paid => Refuse(Refusal::AlreadyPaid),
    }
}

/// Taking a paid order back, at most once. The claim's own event says that its payment is owed
/// back ([`Claim::revoked`]), so that neither can be without the other.
#[must_use]
pub fn revoke(pool: &impl Facts, number: u32, now: Timestamp) -> Decision<Claim> {
    let claim = match find_claim(pool, number, None) {
        Ok(claim) => claim,
        Err(refusal) => return Refuse(refusal),
    };
    match (claim.state, &claim.payment) {
        (State::Paid, Some(_)) => Commit(released(claim, ReleaseReason::Revoked, now)),
        (State::Released, Some(_)) => Repeat(claim),
        (State::Released, None) => Refuse(Refusal::Released),
        (State::Held | State::Ordered | State::Paid, _) => Refuse(Refusal::NotPaid),
    }
}

/// The release of a claim whose deadline `due` has come, unless that no longer stands.
#[must_use]
pub fn expiry(pool: &impl Facts, number: u32, due: Timestamp, now: Timestamp) -> Option<Event> {
    if pool.due(number) != Some(due) {
        return None;
    }
    let claim = pool.claim(number)?;
    let reason = match claim.state {
        State::Held => ReleaseReason::HoldExpired,
        State::Ordered => ReleaseReason::PayExpired,
        State::Paid | State::Released => unreachable!("only what is open runs out"),
    };
    Some(released(claim, reason, now))
}

/// What a payment does. Money that arrived is never lost: it pays the order, or buys the
/// released claim anew, or is owed back.
#[must_use]
pub fn pay(pool: &impl Facts, pay: &PayRequest, now: Timestamp) -> Decision<Settlement> {
    if !has_orders(pool) {
        return Refuse(Refusal::NoSuchClaim);
    }
    if is_cleared(pool) {
        return Refuse(Refusal::Cleared);
    }
    if let Some(seen) = pool.payment(&pay.payment) {
        return repeat_payment(pool, seen, pay);
    }
    let Some(ordered) = pool.claim(pay.order.number) else {
        return Refuse(Refusal::NoSuchClaim);
    };
    if !ordered.has_order() {
        return Refuse(Refusal::NotOrdered);
    }
    let refund = |reason| Commit(Event::Refund(refund_of(pay, reason, now)));
    // What was revoked was paid before, and is not sold to the same buyer again by itself.
    let was_paid = ordered.state == State::Paid || ordered.payment.is_some();
    if was_paid || pool.replaced_by(ordered.id.number).is_some() {
        return refund(RefundReason::AlreadyPaid);
    }
    if pay.amount != ordered.amount() {
        return refund(RefundReason::AmountMismatch);
    }
    let payment = Some(pay.payment.clone());
    if ordered.state == State::Ordered {
        return Commit(Event::Claim(Claim { payment, ..changed(ordered, State::Paid, now) }));
    }
    let portion = pool.next_portion();
    let other_portion = portion.is_some_and(|(_, value)| value != ordered.unit_price);
    let gone = ordered.quantity > pool.available() || other_portion;
    if gone || !may_have_again(pool, &ordered) {
        return refund(RefundReason::Late);
    }
    Commit(Event::Claim(Claim {
        id: next_id(pool),
        request: None,
        portion: portion.map(|(place, _)| place),
        state: State::Paid,
        version: 1,
        created_at: now,
        changed_at: now,
        hold_until: None,
        pay_by: None,
        payment,
        replaces: Some(ordered.id.number),
        reason: None,
        ..ordered
    }))
}

/// Owing back a payment for a pool that was cleared. What paid an order before that is in
/// the records; the caller looks there first.
#[must_use]
pub fn refund(pool: &impl Facts, pay: &PayRequest, now: Timestamp) -> Decision<Settlement> {
    if !has_orders(pool) {
        return Refuse(Refusal::NoSuchClaim);
    }
    if !is_cleared(pool) {
        return Refuse(Refusal::PoolInUse);
    }
    match pool.payment(&pay.payment) {
        Some(seen) => repeat_payment(pool, seen, pay),
        None => Commit(Event::Refund(refund_of(pay, RefundReason::Late, now))),
    }
}

/// More units, by a delta that counts once.
#[must_use]
pub fn restock(
    pool: &impl Facts,
    units: u32,
    request: &RequestId,
    now: Timestamp,
) -> Decision<PoolView> {
    if let Some(before) = pool.restock(request) {
        return if before == units {
            Repeat(pool.view())
        } else {
            Refuse(Refusal::RequestConflict)
        };
    }
    if is_closed(pool, now) {
        return Refuse(Refusal::Closed);
    }
    let total = pool.state().total.checked_add(units).filter(|total| *total <= MAX_UNITS);
    match (total, &pool.terms().supply) {
        (Some(total), Supply::Units(_)) if pool.state().version < MAX_CHANGES => {
            let change = PoolChange::Restocked { units, request: request.clone() };
            Commit(Event::Pool(PoolState { total, ..next_state(pool, change, now) }))
        }
        _ => Refuse(Refusal::CannotRestock),
    }
}

/// The end of granting.
#[must_use]
pub fn close(pool: &impl Facts, now: Timestamp) -> Decision<PoolView> {
    // A pool can be cleared without having been closed by hand: its time ran out.
    if pool.state().closed_at.is_some() || is_cleared(pool) {
        return Repeat(pool.view());
    }
    let closed_at = Some(now);
    Commit(Event::Pool(PoolState { closed_at, ..next_state(pool, PoolChange::Closed, now) }))
}

/// Dropping a pool: only when it is over and nothing in it can change any more.
#[must_use]
pub fn clear(pool: &impl Facts, now: Timestamp) -> Decision<PoolView> {
    if is_cleared(pool) {
        Repeat(pool.view())
    } else if !is_closed(pool, now) || pool.tally().held + pool.tally().ordered > 0 {
        Refuse(Refusal::PoolInUse)
    } else {
        Commit(Event::Pool(next_state(pool, PoolChange::Cleared, now)))
    }
}

/// Whether nothing of a pool stays once it is cleared. An id that was made is never made again, so
/// the engine forgets it, and the records are all there is; of an id given by hand a tombstone
/// stays. So it does of a pool with buckets, which are cleared one after the other.
#[must_use]
pub fn leaves_nothing(id: PoolId, terms: &Terms) -> bool {
    id.is_made() && terms.buckets == 1
}

/// Whether claims of the pool are orders.
fn has_orders(pool: &impl Facts) -> bool {
    pool.terms().kind == Kind::Sale
}

fn is_cleared(pool: &impl Facts) -> bool {
    pool.state().change == PoolChange::Cleared
}

fn is_closed(pool: &impl Facts, now: Timestamp) -> bool {
    let state = pool.state();
    state.closed_at.is_some()
        || is_cleared(pool)
        || pool.terms().closes_at.is_some_and(|closes_at| now >= closes_at)
}

fn check_limit(
    pool: &impl Facts,
    user: &UserId,
    identity: Option<&Identity>,
    quantity: u32,
) -> Result<(), Refusal> {
    let name = identity.map_or(user.as_str(), Identity::as_str);
    let buyer = pool.buyer(name);
    let (had, limit) = (buyer.map_or(0, |buyer| buyer.used), pool.terms().limit_per_user);
    let at_once = match pool.terms().supply {
        Supply::Units(_) => limit,
        Supply::Portions(_) => 1,
    };
    match buyer {
        Some(buyer) if limit == 1 && had == 1 => Err(has_one(pool, user, buyer.latest)),
        _ if quantity > limit.saturating_sub(had) => Err(Refusal::OverLimit { had, limit }),
        _ if quantity > at_once => Err(Refusal::OverLimit { had, limit: at_once }),
        _ => Ok(()),
    }
}

/// The refusal for a buyer who may have one unit and used it for the claim `latest`. An account is
/// never shown the claim of another account, and a released claim is not called theirs.
fn has_one(pool: &impl Facts, user: &UserId, latest: u32) -> Refusal {
    let claim = ClaimId { pool: pool.state().id, number: latest };
    if !pool.terms().looks_at_latest() {
        return Refusal::AlreadyClaimed { claim };
    }
    let held = pool.claim(latest).expect("a buyer's claim is stored");
    if held.user != *user {
        Refusal::OverLimit { had: 1, limit: 1 }
    } else if held.state == State::Released {
        Refusal::Released
    } else {
        Refusal::AlreadyClaimed { claim }
    }
}

/// Whether the user of a released claim may have it anew.
fn may_have_again(pool: &impl Facts, released: &Claim) -> bool {
    match pool.terms().reclaim {
        Reclaim::Allowed => {
            let identity = released.identity.as_ref();
            check_limit(pool, &released.user, identity, released.quantity).is_ok()
        }
        // The released claim never gave its quota back; the new one uses that.
        Reclaim::Never => true,
    }
}

/// A claim that may be ordered or given back: one of a sale.
fn find_claim(pool: &impl Facts, number: u32, by: Option<&UserId>) -> Result<Claim, Refusal> {
    if !has_orders(pool) {
        return Err(Refusal::NoSuchClaim);
    }
    if is_cleared(pool) {
        return Err(Refusal::Cleared);
    }
    let theirs = |claim: &Claim| by.is_none_or(|user| claim.user == *user);
    pool.claim(number).filter(theirs).ok_or(Refusal::NoSuchClaim)
}

fn repeat_payment(pool: &impl Facts, seen: Seen, pay: &PayRequest) -> Decision<Settlement> {
    let (settlement, amount) = match seen.fate {
        Fate::Paid { claim } => {
            let paid = pool.claim(claim).expect("a paid claim is stored");
            let amount = paid.amount();
            (settlement(paid), amount)
        }
        Fate::Refund { amount, reason, at } => {
            let order = ClaimId { number: seen.order, ..pay.order };
            let payment = pay.payment.clone();
            (Settlement::RefundDue(Refund { order, payment, amount, reason, at }), amount)
        }
    };
    if seen.order == pay.order.number && amount == pay.amount {
        Repeat(settlement)
    } else {
        Refuse(Refusal::PaymentConflict)
    }
}

fn next_state(pool: &impl Facts, change: PoolChange, at: Timestamp) -> PoolState {
    let last = pool.state();
    PoolState { version: last.version + 1, change, at, ..last.clone() }
}

/// What a claim says about the payment that paid it.
#[must_use]
pub fn settlement(paid: Claim) -> Settlement {
    match paid.revoked() {
        Some(refund) => Settlement::RefundDue(refund),
        None if paid.replaces.is_some() => Settlement::Regranted(paid),
        None => Settlement::Paid(paid),
    }
}

fn next_id(pool: &impl Facts) -> ClaimId {
    ClaimId { pool: pool.state().id, number: pool.claims() + 1 }
}

fn released(claim: Claim, reason: ReleaseReason, now: Timestamp) -> Event {
    Event::Claim(Claim { reason: Some(reason), ..changed(claim, State::Released, now) })
}

fn changed(claim: Claim, state: State, now: Timestamp) -> Claim {
    Claim { state, version: claim.version + 1, changed_at: now, ..claim }
}

/// What a claim begins as, and its deadlines. An order that costs nothing is paid as it is placed.
fn first_state(
    flow: Flow,
    price: Cents,
    now: Timestamp,
) -> (State, Option<Timestamp>, Option<Timestamp>) {
    match flow {
        Flow::Order { .. } if price == Cents::ZERO => (State::Paid, None, None),
        Flow::Instant => (State::Paid, None, None),
        Flow::Order { pay_ms } => (State::Ordered, None, Some(now.plus_millis(pay_ms))),
        Flow::Hold { hold_ms, .. } => (State::Held, Some(now.plus_millis(hold_ms)), None),
    }
}

fn refund_of(pay: &PayRequest, reason: RefundReason, at: Timestamp) -> Refund {
    let PayRequest { order, payment, amount } = pay.clone();
    Refund { order, payment, amount, reason, at }
}
