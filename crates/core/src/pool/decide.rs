//! The rules themselves: what a pool answers, and in which order it checks.

use super::payments::{Fate, Payment};
use super::records::Record;
use super::{Buyer, MAX_RESTOCKS, Pool, buyer_name};
use crate::{
    Claim, ClaimRequest, Event, Flow, Identity, LimitBy, MAX_UNITS, PayRequest, PaymentId,
    PoolChange, PoolState, PoolView, Reclaim, Refund, RefundReason, Refusal, ReleaseReason,
    RequestId, Settlement, State, Supply, Terms, Timestamp, UserId,
};

/// What the rules say to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision<T> {
    /// Yes: this has to be applied and made durable before anybody is told.
    Commit(Event),
    /// It happened before.
    Repeat(T),
    /// No.
    Refuse(Refusal),
}

use Decision::{Commit, Refuse, Repeat};

impl Pool {
    /// Opening a pool that exists: the same terms again are a repeat, anything else is refused.
    #[must_use]
    pub fn decide_open(&self, terms: &Terms) -> Decision<PoolView> {
        if *self.terms == *terms && !self.is_cleared() {
            Repeat(self.view())
        } else {
            Refuse(Refusal::PoolExists)
        }
    }

    /// Who gets units. The order of the checks is part of the contract.
    #[must_use]
    pub fn decide_claim(&self, wish: &ClaimRequest, now: Timestamp) -> Decision<Claim> {
        if self.is_cleared() {
            return Refuse(Refusal::Closed);
        }
        let quantity = wish.quantity.get();
        if let Some(first) = self.find_request(&wish.user, wish.request.as_ref()) {
            let claim = self.claim(first).expect("an indexed claim is stored");
            return if claim.quantity == quantity {
                Repeat(claim)
            } else {
                Refuse(Refusal::RequestConflict)
            };
        }
        if now < self.terms.opens_at {
            return Refuse(Refusal::NotOpenYet { opens_at: self.terms.opens_at });
        }
        if self.is_closed(now) {
            return Refuse(Refusal::Closed);
        }
        let identity = match self.terms.limit_by {
            LimitBy::User => None,
            LimitBy::Identity if wish.identity.is_none() => return Refuse(Refusal::NotEligible),
            LimitBy::Identity => wish.identity.as_ref(),
        };
        if let Err(refusal) = self.check_limit(&wish.user, identity, quantity) {
            return Refuse(refusal);
        }
        if quantity > self.available {
            return Refuse(Refusal::SoldOut);
        }
        let portion = self.portions.next(&self.terms);
        let sold = self.state().total - self.available;
        let unit_price = portion.map_or_else(|| self.terms.price_after(sold), |(_, value)| value);
        let (state, hold_until, pay_by) = first_state(self.terms.flow, now);
        Commit(Event::Claim(Claim {
            id: self.claim_id(self.records.len() + 1),
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
    pub fn decide_order(
        &self,
        number: u32,
        by: Option<&UserId>,
        now: Timestamp,
    ) -> Decision<Claim> {
        let claim = match self.find_claim(number, by) {
            Ok(claim) => claim,
            Err(refusal) => return Refuse(refusal),
        };
        match (claim.state, self.terms.flow) {
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
    pub fn decide_release(
        &self,
        number: u32,
        by: Option<&UserId>,
        reason: ReleaseReason,
        now: Timestamp,
    ) -> Decision<Claim> {
        let claim = match self.find_claim(number, by) {
            Ok(claim) => claim,
            Err(refusal) => return Refuse(refusal),
        };
        match claim.state {
            State::Held | State::Ordered => {
                let reason = Some(reason);
                Commit(Event::Claim(Claim { reason, ..changed(claim, State::Released, now) }))
            }
            State::Released => Repeat(claim),
            State::Paid => Refuse(Refusal::AlreadyPaid),
        }
    }

    /// The release of a claim whose deadline `due` has come, unless that no longer stands.
    pub(crate) fn decide_expiry(
        &self,
        number: u32,
        due: Timestamp,
        now: Timestamp,
    ) -> Option<Event> {
        let record = self.records.get(number)?;
        if record.due(&self.terms) != Some(due) {
            return None;
        }
        let reason = match record.state {
            State::Held => ReleaseReason::HoldExpired,
            State::Ordered | State::Paid | State::Released => ReleaseReason::PayExpired,
        };
        match self.decide_release(number, None, reason, now) {
            Commit(event) => Some(event),
            Repeat(_) | Refuse(_) => None,
        }
    }

    /// What a payment does. Money that arrived is never lost: it pays the order, or buys the
    /// released claim anew, or is owed back.
    #[must_use]
    pub fn decide_pay(&self, pay: &PayRequest, now: Timestamp) -> Decision<Settlement> {
        if self.is_cleared() {
            return Refuse(Refusal::Cleared);
        }
        if let Some(seen) = self.find_payment(pay) {
            return self.repeat_payment(seen, pay);
        }
        let Some(ordered) = self.claim(pay.order.number) else {
            return Refuse(Refusal::NoSuchClaim);
        };
        if !ordered.has_order() {
            return Refuse(Refusal::NotOrdered);
        }
        let refund = |reason| Commit(Event::Refund(refund_of(pay, reason, now)));
        let replaced = self.records.get(ordered.id.number).and_then(Record::replaced_by);
        if ordered.state == State::Paid || replaced.is_some() {
            return refund(RefundReason::AlreadyPaid);
        }
        if pay.amount != ordered.amount() {
            return refund(RefundReason::AmountMismatch);
        }
        let payment = Some(pay.payment.clone());
        if ordered.state == State::Ordered {
            return Commit(Event::Claim(Claim { payment, ..changed(ordered, State::Paid, now) }));
        }
        let portion = self.portions.next(&self.terms);
        let other_portion = portion.is_some_and(|(_, value)| value != ordered.unit_price);
        let gone = ordered.quantity > self.available || other_portion;
        if gone || !self.may_have_again(&ordered) {
            return refund(RefundReason::Late);
        }
        Commit(Event::Claim(Claim {
            id: self.claim_id(self.records.len() + 1),
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
    pub fn decide_refund(&self, pay: &PayRequest, now: Timestamp) -> Decision<Settlement> {
        if !self.is_cleared() {
            return Refuse(Refusal::PoolInUse);
        }
        match self.find_payment(pay) {
            Some(seen) => self.repeat_payment(seen, pay),
            None => Commit(Event::Refund(refund_of(pay, RefundReason::Late, now))),
        }
    }

    /// More units, by a delta that counts once.
    #[must_use]
    pub fn decide_restock(
        &self,
        units: u32,
        request: &RequestId,
        now: Timestamp,
    ) -> Decision<PoolView> {
        for change in self.history() {
            match &change.change {
                PoolChange::Restocked { units: before, request: seen } if seen == request => {
                    return if *before == units {
                        Repeat(self.view())
                    } else {
                        Refuse(Refusal::RequestConflict)
                    };
                }
                _ => {}
            }
        }
        if self.is_closed(now) {
            return Refuse(Refusal::Closed);
        }
        let total = self.state().total.checked_add(units).filter(|total| *total <= MAX_UNITS);
        match (total, &self.terms.supply) {
            (Some(total), Supply::Units(_)) if self.history.len() < MAX_RESTOCKS => {
                let change = PoolChange::Restocked { units, request: request.clone() };
                Commit(Event::Pool(PoolState { total, ..self.next_state(change, now) }))
            }
            _ => Refuse(Refusal::CannotRestock),
        }
    }

    /// The end of granting.
    #[must_use]
    pub fn decide_close(&self, now: Timestamp) -> Decision<PoolView> {
        // A pool can be cleared without having been closed by hand: its time ran out.
        if self.state().closed_at.is_some() || self.is_cleared() {
            return Repeat(self.view());
        }
        let closed_at = Some(now);
        Commit(Event::Pool(PoolState { closed_at, ..self.next_state(PoolChange::Closed, now) }))
    }

    /// Dropping a pool: only when it is over and nothing in it can change any more.
    #[must_use]
    pub fn decide_clear(&self, now: Timestamp) -> Decision<PoolView> {
        if self.is_cleared() {
            Repeat(self.view())
        } else if !self.is_closed(now) || self.tally.held + self.tally.ordered > 0 {
            Refuse(Refusal::PoolInUse)
        } else {
            Commit(Event::Pool(self.next_state(PoolChange::Cleared, now)))
        }
    }

    fn is_closed(&self, now: Timestamp) -> bool {
        let state = self.state();
        state.closed_at.is_some()
            || self.is_cleared()
            || self.terms.closes_at.is_some_and(|closes_at| now >= closes_at)
    }

    fn check_limit(
        &self,
        user: &UserId,
        identity: Option<&Identity>,
        quantity: u32,
    ) -> Result<(), Refusal> {
        let name = identity.map_or(user.as_str(), Identity::as_str);
        let buyer = self.find_buyer(name);
        let (had, limit) = (buyer.map_or(0, |buyer| buyer.used), self.terms.limit_per_user);
        let at_once = match self.terms.supply {
            Supply::Units(_) => limit,
            Supply::Portions(_) => 1,
        };
        match buyer {
            Some(buyer) if limit == 1 && had == 1 => {
                Err(Refusal::AlreadyClaimed { claim: self.claim_id(buyer.latest) })
            }
            _ if quantity > limit.saturating_sub(had) => Err(Refusal::OverLimit { had, limit }),
            _ if quantity > at_once => Err(Refusal::OverLimit { had, limit: at_once }),
            _ => Ok(()),
        }
    }

    /// Whether the user of a released claim may have it anew.
    fn may_have_again(&self, released: &Claim) -> bool {
        match self.terms.reclaim {
            Reclaim::Allowed => {
                let identity = released.identity.as_ref();
                self.check_limit(&released.user, identity, released.quantity).is_ok()
            }
            // The released claim never gave its quota back; the new one uses that.
            Reclaim::Never => true,
        }
    }

    fn find_claim(&self, number: u32, by: Option<&UserId>) -> Result<Claim, Refusal> {
        if self.is_cleared() {
            return Err(Refusal::Cleared);
        }
        let theirs = |claim: &Claim| by.is_none_or(|user| claim.user == *user);
        self.claim(number).filter(theirs).ok_or(Refusal::NoSuchClaim)
    }

    fn find_buyer(&self, name: &str) -> Option<&Buyer> {
        self.buyers.find(self.tag(name), |buyer| {
            let latest = self.records.get(buyer.latest).expect("a buyer's claim is stored");
            buyer_name(&self.records, &self.terms, latest) == name
        })
    }

    fn find_request(&self, user: &UserId, request: Option<&RequestId>) -> Option<u32> {
        let (user, request) = (user.as_str(), request?.as_str());
        let found = self.requests.find(self.request_tag(user, request), |number| {
            let record = self.records.get(*number).expect("an indexed claim is stored");
            self.records.user(record) == user && self.records.request(record) == request
        });
        found.copied()
    }

    /// Whether the pool has seen a payment, whatever became of it.
    pub(crate) fn has_seen(&self, payment: &PaymentId) -> bool {
        self.payments.len() > 0 && self.payments.find(self.tag(payment.as_str()), payment).is_some()
    }

    fn find_payment(&self, pay: &PayRequest) -> Option<&Payment> {
        self.payments.find(self.tag(pay.payment.as_str()), &pay.payment)
    }

    fn repeat_payment(&self, seen: &Payment, pay: &PayRequest) -> Decision<Settlement> {
        let (settlement, amount) = match seen.fate {
            Fate::Paid { claim } => {
                let paid = self.claim(claim).expect("a paid claim is stored");
                let amount = paid.amount();
                (settlement(paid), amount)
            }
            Fate::Refund { amount, .. } => {
                let refund = self.payments.refund(self.id, seen);
                (Settlement::RefundDue(refund.expect("its fate is a refund")), amount)
            }
        };
        if seen.order == pay.order.number && amount == pay.amount {
            Repeat(settlement)
        } else {
            Refuse(Refusal::PaymentConflict)
        }
    }

    fn next_state(&self, change: PoolChange, at: Timestamp) -> PoolState {
        let last = self.state();
        PoolState { version: last.version + 1, change, at, ..last.clone() }
    }
}

/// What a paid claim says about the payment that paid it.
pub(crate) fn settlement(paid: Claim) -> Settlement {
    if paid.replaces.is_some() { Settlement::Regranted(paid) } else { Settlement::Paid(paid) }
}

fn changed(claim: Claim, state: State, now: Timestamp) -> Claim {
    Claim { state, version: claim.version + 1, changed_at: now, ..claim }
}

fn first_state(flow: Flow, now: Timestamp) -> (State, Option<Timestamp>, Option<Timestamp>) {
    match flow {
        Flow::Instant => (State::Paid, None, None),
        Flow::Order { pay_ms } => (State::Ordered, None, Some(now.plus_millis(pay_ms))),
        Flow::Hold { hold_ms, .. } => (State::Held, Some(now.plus_millis(hold_ms)), None),
    }
}

fn refund_of(pay: &PayRequest, reason: RefundReason, at: Timestamp) -> Refund {
    let PayRequest { order, payment, amount } = pay.clone();
    Refund { order, payment, amount, reason, at }
}
