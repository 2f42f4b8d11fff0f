//! The rules a second time, naively: lists, scanned from the beginning for every question.
//!
//! It shares the types of `qiang-core` and not a line of its code. It keeps nothing that could
//! be counted instead, so there is nothing in it to get out of step.

use std::sync::Arc;

use qiang_core::{
    Cents, Claim, ClaimId, ClaimRequest, Command, Event, Flow, Kind, LimitBy, Outcome, PayRequest,
    PaymentId, PoolChange, PoolId, PoolState, PoolView, Reclaim, Refund, RefundReason, Refusal,
    ReleaseReason, Reply, RequestId, Settlement, State, Supply, Tally, Terms, Timestamp, UserId,
};

/// What must come of commands.
#[derive(Debug, Clone, Default)]
pub struct Oracle {
    pools: Vec<Pool>,
    forgotten: Vec<PoolId>,
    log: Vec<Event>,
}

#[derive(Debug, Clone)]
struct Pool {
    changes: Vec<PoolState>,
    claims: Vec<Claim>,
    payments: Vec<Seen>,
}

#[derive(Debug, Clone)]
struct Seen {
    payment: PaymentId,
    order: u32,
    settlement: Settlement,
}

impl Oracle {
    /// Everything that was decided so far, or since [`Oracle::take_log`].
    #[must_use]
    pub fn log(&self) -> &[Event] {
        &self.log
    }

    /// Hands the log over and begins a new one.
    pub fn take_log(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.log)
    }

    /// The pools, in the order they were opened.
    #[must_use]
    pub fn pools(&self) -> Vec<PoolId> {
        self.pools.iter().map(Pool::id).collect()
    }

    /// The pools of which nothing is left: they were cleared, and their ids were made.
    #[must_use]
    pub fn forgotten(&self) -> &[PoolId] {
        &self.forgotten
    }

    /// A pool as it must be seen.
    #[must_use]
    pub fn view(&self, id: PoolId) -> Option<PoolView> {
        self.pools.iter().find(|pool| pool.id() == id).map(Pool::view)
    }

    /// The claims of a pool; none when it was cleared.
    #[must_use]
    pub fn claims(&self, id: PoolId) -> &[Claim] {
        self.pools.iter().find(|pool| pool.id() == id).map_or(&[], |pool| &pool.claims)
    }

    /// A claim as it must be seen.
    #[must_use]
    pub fn claim(&self, id: ClaimId) -> Option<Claim> {
        self.claims(id.pool).iter().find(|claim| claim.id == id).cloned()
    }

    /// The earliest deadline of all.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        self.pools.iter().flat_map(|pool| &pool.claims).filter_map(due).min()
    }

    /// Releases everything overdue, earliest deadline first.
    pub fn expire(&mut self, now: Timestamp) {
        while self.expire_next(now) {}
    }

    /// Releases the claim whose deadline was the earliest to come, if one has come; of those that
    /// come together, by the id of the pool.
    pub fn expire_next(&mut self, now: Timestamp) -> bool {
        let mut first: Option<(Timestamp, PoolId, usize, usize)> = None;
        for (place, pool) in self.pools.iter().enumerate() {
            for (index, claim) in pool.claims.iter().enumerate() {
                let Some(due) = due(claim).filter(|due| *due <= now) else { continue };
                if first.is_none_or(|(at, id, _, _)| (due, pool.id()) < (at, id)) {
                    first = Some((due, pool.id(), place, index));
                }
            }
        }
        let Some((_, _, place, index)) = first else { return false };
        let claim = &mut self.pools[place].claims[index];
        claim.reason = Some(match claim.state {
            State::Held => ReleaseReason::HoldExpired,
            _ => ReleaseReason::PayExpired,
        });
        claim.state = State::Released;
        claim.version += 1;
        claim.changed_at = now;
        self.log.push(Event::Claim(claim.clone()));
        true
    }

    /// The answer to a command. What came of it is at the end of the log.
    pub fn handle(&mut self, command: &Command, now: Timestamp) -> Reply {
        match command {
            Command::Open { pool, terms } => Reply::Pool(self.open(*pool, terms, now)),
            Command::Claim(wish) => Reply::Claim(self.grant(wish, now)),
            Command::Order { claim, by } => Reply::Claim(self.order(*claim, by.as_ref(), now)),
            Command::Pay(pay) => Reply::Settlement(self.pay(pay, now)),
            Command::Release { claim, by, reason } => {
                Reply::Claim(self.release(*claim, by.as_ref(), *reason, now))
            }
            Command::Revoke { claim } => Reply::Claim(self.revoke(*claim, now)),
            Command::Restock { pool, units, request } => {
                Reply::Pool(self.restock(*pool, units.get(), request, now))
            }
            Command::Close { pool } => Reply::Pool(self.close(*pool, now)),
            Command::Clear { pool } => Reply::Pool(self.clear(*pool, now)),
            Command::Refund(pay) => Reply::Settlement(self.refund(pay, now)),
        }
    }

    fn open(&mut self, id: PoolId, terms: &Arc<Terms>, now: Timestamp) -> Outcome<PoolView> {
        if let Some(pool) = self.pools.iter().find(|pool| pool.id() == id) {
            return if pool.cleared() || pool.terms() != terms.as_ref() {
                Outcome::Refused(Refusal::PoolExists)
            } else {
                Outcome::Replayed(pool.view())
            };
        }
        let total = match &terms.supply {
            Supply::Units(units) => *units,
            Supply::Portions(cut) => count(cut.len()),
        };
        let opened = PoolState {
            id,
            version: 1,
            change: PoolChange::Opened,
            terms: Arc::clone(terms),
            total,
            closed_at: None,
            at: now,
        };
        self.log.push(Event::Pool(opened.clone()));
        let pool = Pool { changes: vec![opened], claims: Vec::new(), payments: Vec::new() };
        let view = pool.view();
        self.pools.push(pool);
        Outcome::Done(view)
    }

    fn grant(&mut self, wish: &ClaimRequest, now: Timestamp) -> Outcome<Claim> {
        let Some(pool) = self.pools.iter_mut().find(|pool| pool.id() == wish.pool) else {
            return Outcome::Refused(Refusal::NoSuchPool);
        };
        if pool.terms().kind != wish.kind {
            return Outcome::Refused(Refusal::NoSuchPool);
        }
        if pool.cleared() {
            return Outcome::Refused(Refusal::Cleared);
        }
        let quantity = wish.quantity.get();
        if wish.request.is_some() {
            for claim in &pool.claims {
                if claim.user == wish.user && claim.request == wish.request {
                    return if claim.quantity == quantity {
                        Outcome::Replayed(claim.clone())
                    } else {
                        Outcome::Refused(Refusal::RequestConflict)
                    };
                }
            }
        }
        let terms = pool.terms().clone();
        if now < terms.opens_at {
            return Outcome::Refused(Refusal::NotOpenYet { opens_at: terms.opens_at });
        }
        if pool.closed(now) {
            return Outcome::Refused(Refusal::Closed);
        }
        if terms.limit_by == LimitBy::Identity && wish.identity.is_none() {
            return Outcome::Refused(Refusal::NotEligible);
        }
        let mut claim = Claim {
            kind: terms.kind,
            id: ClaimId { pool: wish.pool, number: count(pool.claims.len()) + 1 },
            user: wish.user.clone(),
            identity: match terms.limit_by {
                LimitBy::User => None,
                LimitBy::Identity => wish.identity.clone(),
            },
            request: wish.request.clone(),
            quantity,
            unit_price: pool.price(),
            portion: pool.lowest_portion(),
            state: State::Paid,
            version: 1,
            created_at: now,
            changed_at: now,
            hold_until: None,
            pay_by: None,
            payment: None,
            replaces: None,
            reason: None,
        };
        let had = pool.used_by(&claim);
        if terms.limit_per_user == 1 && had == 1 {
            let latest = pool.claims.iter().rev().find(|other| pool.same_buyer(other, &claim));
            let latest = latest.expect("who has one has a claim");
            return Outcome::Refused(if latest.user != wish.user {
                Refusal::OverLimit { had: 1, limit: 1 }
            } else if latest.state == State::Released {
                Refusal::Released
            } else {
                Refusal::AlreadyClaimed { claim: latest.id }
            });
        }
        if u64::from(had) + u64::from(quantity) > u64::from(terms.limit_per_user) {
            return Outcome::Refused(Refusal::OverLimit { had, limit: terms.limit_per_user });
        }
        if matches!(terms.supply, Supply::Portions(_)) && quantity > 1 {
            return Outcome::Refused(Refusal::OverLimit { had, limit: 1 });
        }
        if quantity > pool.available() {
            return Outcome::Refused(Refusal::SoldOut);
        }
        match terms.flow {
            Flow::Instant => {}
            Flow::Order { .. } if claim.unit_price.get() == 0 => {}
            Flow::Order { pay_ms } => {
                claim.state = State::Ordered;
                claim.pay_by = Some(now.plus_millis(pay_ms));
            }
            Flow::Hold { hold_ms, .. } => {
                claim.state = State::Held;
                claim.hold_until = Some(now.plus_millis(hold_ms));
            }
        }
        pool.claims.push(claim.clone());
        self.log.push(Event::Claim(claim.clone()));
        Outcome::Done(claim)
    }

    fn order(&mut self, id: ClaimId, by: Option<&UserId>, now: Timestamp) -> Outcome<Claim> {
        let (flow, claim) = match self.find(id, by) {
            Ok(found) => found,
            Err(refusal) => return Outcome::Refused(refusal),
        };
        match claim.state {
            State::Released => return Outcome::Refused(Refusal::Released),
            State::Ordered | State::Paid => return Outcome::Replayed(claim.clone()),
            State::Held => {}
        }
        let Flow::Hold { pay_ms, .. } = flow else { panic!("{claim:?} is held under {flow:?}") };
        if claim.unit_price.get() == 0 {
            claim.state = State::Paid;
        } else {
            claim.state = State::Ordered;
            claim.pay_by = Some(now.plus_millis(pay_ms));
        }
        claim.version += 1;
        claim.changed_at = now;
        let claim = claim.clone();
        self.log.push(Event::Claim(claim.clone()));
        Outcome::Done(claim)
    }

    fn release(
        &mut self,
        id: ClaimId,
        by: Option<&UserId>,
        reason: ReleaseReason,
        now: Timestamp,
    ) -> Outcome<Claim> {
        let claim = match self.find(id, by) {
            Ok((_, claim)) => claim,
            Err(refusal) => return Outcome::Refused(refusal),
        };
        match claim.state {
            State::Paid => return Outcome::Refused(Refusal::AlreadyPaid),
            State::Released => return Outcome::Replayed(claim.clone()),
            State::Held | State::Ordered => {}
        }
        claim.state = State::Released;
        claim.reason = Some(reason);
        claim.version += 1;
        claim.changed_at = now;
        let claim = claim.clone();
        self.log.push(Event::Claim(claim.clone()));
        Outcome::Done(claim)
    }

    fn revoke(&mut self, id: ClaimId, now: Timestamp) -> Outcome<Claim> {
        let claim = match self.find(id, None) {
            Ok((_, claim)) => claim,
            Err(refusal) => return Outcome::Refused(refusal),
        };
        if claim.state == State::Released {
            return match claim.reason {
                Some(ReleaseReason::Revoked) => Outcome::Replayed(claim.clone()),
                _ => Outcome::Refused(Refusal::Released),
            };
        }
        if claim.payment.is_none() {
            return Outcome::Refused(Refusal::NotPaid);
        }
        claim.state = State::Released;
        claim.reason = Some(ReleaseReason::Revoked);
        claim.version += 1;
        claim.changed_at = now;
        let claim = claim.clone();
        self.log.push(Event::Claim(claim.clone()));
        Outcome::Done(claim)
    }

    fn find(&mut self, id: ClaimId, by: Option<&UserId>) -> Result<(Flow, &mut Claim), Refusal> {
        let pool = self.pools.iter_mut().find(|pool| pool.id() == id.pool);
        let pool = pool.filter(|pool| pool.has_orders()).ok_or(Refusal::NoSuchClaim)?;
        if pool.cleared() {
            return Err(Refusal::Cleared);
        }
        let flow = pool.terms().flow;
        let claim = pool.claims.iter_mut().find(|claim| claim.id == id);
        let claim = claim.filter(|claim| by.is_none() || by == Some(&claim.user));
        claim.map(|claim| (flow, claim)).ok_or(Refusal::NoSuchClaim)
    }

    fn pay(&mut self, pay: &PayRequest, now: Timestamp) -> Outcome<Settlement> {
        let pool = self.pools.iter_mut().find(|pool| pool.id() == pay.order.pool);
        let Some(pool) = pool.filter(|pool| pool.has_orders()) else {
            return Outcome::Refused(Refusal::NoSuchClaim);
        };
        if pool.cleared() {
            return Outcome::Refused(Refusal::Cleared);
        }
        if let Some(repeat) = pool.seen(pay) {
            return repeat;
        }
        let Some(index) = pool.claims.iter().position(|claim| claim.id == pay.order) else {
            return Outcome::Refused(Refusal::NoSuchClaim);
        };
        let ordered = pool.claims[index].clone();
        let revoked = ordered.reason == Some(ReleaseReason::Revoked);
        let was_ordered = ordered.state == State::Ordered
            || ordered.state == State::Paid
            || revoked
            || ordered.pay_by.is_some();
        if !was_ordered {
            return Outcome::Refused(Refusal::NotOrdered);
        }
        let number = ordered.id.number;
        let replaced = pool.claims.iter().any(|claim| claim.replaces == Some(number));
        let back = if ordered.state == State::Paid || revoked || replaced {
            Some(RefundReason::AlreadyPaid)
        } else if pay.amount.get() != ordered.unit_price.get() * i64::from(ordered.quantity) {
            Some(RefundReason::AmountMismatch)
        } else if ordered.state == State::Released && !pool.can_be_had_anew(&ordered) {
            Some(RefundReason::Late)
        } else {
            None
        };
        if let Some(reason) = back {
            return Outcome::Done(self.owe(pay, reason, now));
        }
        let settlement = if ordered.state == State::Ordered {
            let claim = &mut pool.claims[index];
            claim.state = State::Paid;
            claim.payment = Some(pay.payment.clone());
            claim.version += 1;
            claim.changed_at = now;
            self.log.push(Event::Claim(claim.clone()));
            Settlement::Paid(claim.clone())
        } else {
            let anew = Claim {
                kind: ordered.kind,
                id: ClaimId { pool: ordered.id.pool, number: count(pool.claims.len()) + 1 },
                user: ordered.user,
                identity: ordered.identity,
                request: None,
                quantity: ordered.quantity,
                unit_price: ordered.unit_price,
                portion: pool.lowest_portion(),
                state: State::Paid,
                version: 1,
                created_at: now,
                changed_at: now,
                hold_until: None,
                pay_by: None,
                payment: Some(pay.payment.clone()),
                replaces: Some(number),
                reason: None,
            };
            pool.claims.push(anew.clone());
            self.log.push(Event::Claim(anew.clone()));
            Settlement::Regranted(anew)
        };
        let seen =
            Seen { payment: pay.payment.clone(), order: number, settlement: settlement.clone() };
        pool.payments.push(seen);
        Outcome::Done(settlement)
    }

    fn refund(&mut self, pay: &PayRequest, now: Timestamp) -> Outcome<Settlement> {
        let pool = self.pools.iter().find(|pool| pool.id() == pay.order.pool);
        let Some(pool) = pool.filter(|pool| pool.has_orders()) else {
            return Outcome::Refused(Refusal::NoSuchClaim);
        };
        if !pool.cleared() {
            return Outcome::Refused(Refusal::PoolInUse);
        }
        match pool.seen(pay) {
            Some(repeat) => repeat,
            None => Outcome::Done(self.owe(pay, RefundReason::Late, now)),
        }
    }

    fn owe(&mut self, pay: &PayRequest, reason: RefundReason, now: Timestamp) -> Settlement {
        let PayRequest { order, payment, amount } = pay.clone();
        let refund = Refund { order, payment, amount, reason, at: now };
        let settlement = Settlement::RefundDue(refund.clone());
        let pool = self.pools.iter_mut().find(|pool| pool.id() == order.pool);
        pool.expect("it was found before").payments.push(Seen {
            payment: pay.payment.clone(),
            order: order.number,
            settlement: settlement.clone(),
        });
        self.log.push(Event::Refund(refund));
        settlement
    }

    fn restock(
        &mut self,
        id: PoolId,
        units: u32,
        request: &RequestId,
        now: Timestamp,
    ) -> Outcome<PoolView> {
        let Some(pool) = self.pools.iter_mut().find(|pool| pool.id() == id) else {
            return Outcome::Refused(Refusal::NoSuchPool);
        };
        for change in &pool.changes {
            if let PoolChange::Restocked { units: before, request: seen } = &change.change
                && seen == request
            {
                return if *before == units {
                    Outcome::Replayed(pool.view())
                } else {
                    Outcome::Refused(Refusal::RequestConflict)
                };
            }
        }
        if pool.closed(now) {
            return Outcome::Refused(Refusal::Closed);
        }
        let total = u64::from(pool.latest().total) + u64::from(units);
        let portions = matches!(pool.terms().supply, Supply::Portions(_));
        if portions || total > 1 << 31 {
            return Outcome::Refused(Refusal::CannotRestock);
        }
        let change = PoolChange::Restocked { units, request: request.clone() };
        self.change(id, change, now)
    }

    fn close(&mut self, id: PoolId, now: Timestamp) -> Outcome<PoolView> {
        match self.pools.iter().find(|pool| pool.id() == id) {
            None => Outcome::Refused(Refusal::NoSuchPool),
            Some(pool) if pool.latest().closed_at.is_some() || pool.cleared() => {
                Outcome::Replayed(pool.view())
            }
            Some(_) => self.change(id, PoolChange::Closed, now),
        }
    }

    fn clear(&mut self, id: PoolId, now: Timestamp) -> Outcome<PoolView> {
        match self.pools.iter().find(|pool| pool.id() == id) {
            None => Outcome::Refused(Refusal::NoSuchPool),
            Some(pool) if pool.cleared() => Outcome::Replayed(pool.view()),
            Some(pool) if !pool.closed(now) || pool.claims.iter().any(|c| due(c).is_some()) => {
                Outcome::Refused(Refusal::PoolInUse)
            }
            Some(_) => self.change(id, PoolChange::Cleared, now),
        }
    }

    fn change(&mut self, id: PoolId, change: PoolChange, now: Timestamp) -> Outcome<PoolView> {
        let pool = self.pools.iter_mut().find(|pool| pool.id() == id);
        let pool = pool.expect("it was found before");
        let mut state = pool.latest().clone();
        state.version += 1;
        state.at = now;
        match &change {
            PoolChange::Restocked { units, .. } => state.total += units,
            PoolChange::Closed => state.closed_at = Some(now),
            PoolChange::Cleared => {
                pool.claims.clear();
                pool.payments.retain(|seen| matches!(seen.settlement, Settlement::RefundDue(_)));
            }
            PoolChange::Opened => panic!("a pool is opened once"),
        }
        state.change = change;
        self.log.push(Event::Pool(state.clone()));
        pool.changes.push(state);
        let view = pool.view();
        // Nobody is ever given an id of qiang's own making again.
        if view.cleared && id.get() >= 1 << 62 && view.terms.buckets == 1 {
            self.pools.retain(|pool| pool.id() != id);
            self.forgotten.push(id);
        }
        Outcome::Done(view)
    }
}

impl Pool {
    fn latest(&self) -> &PoolState {
        self.changes.last().expect("it was opened")
    }

    fn id(&self) -> PoolId {
        self.latest().id
    }

    fn terms(&self) -> &Terms {
        &self.latest().terms
    }

    fn cleared(&self) -> bool {
        self.changes.iter().any(|change| change.change == PoolChange::Cleared)
    }

    fn closed(&self, now: Timestamp) -> bool {
        let by_hand = self.changes.iter().any(|change| change.change == PoolChange::Closed);
        by_hand || self.cleared() || self.terms().closes_at.is_some_and(|at| at <= now)
    }

    fn units_in(&self, state: State) -> u32 {
        self.claims.iter().filter(|c| c.state == state).map(|c| c.quantity).sum()
    }

    fn available(&self) -> u32 {
        if self.cleared() {
            return 0;
        }
        let taken: u32 =
            self.claims.iter().filter(|c| c.state != State::Released).map(|c| c.quantity).sum();
        self.latest().total - taken
    }

    fn view(&self) -> PoolView {
        let latest = self.latest();
        PoolView {
            id: latest.id,
            terms: Arc::clone(&latest.terms),
            version: latest.version,
            total: latest.total,
            available: self.available(),
            cents_left: self.cents_left(),
            tally: Tally {
                held: self.units_in(State::Held),
                ordered: self.units_in(State::Ordered),
                paid: self.units_in(State::Paid),
            },
            claims: count(self.claims.len()),
            payments: count(self.payments.len()),
            opened_at: self.changes[0].at,
            closed_at: latest.closed_at,
            cleared: self.cleared(),
        }
    }

    fn has_orders(&self) -> bool {
        self.terms().kind == Kind::Sale
    }

    fn is_taken(&self, place: u32) -> bool {
        self.claims.iter().any(|c| c.state != State::Released && c.portion == Some(place))
    }

    fn lowest_portion(&self) -> Option<u32> {
        let Supply::Portions(cut) = &self.terms().supply else { return None };
        (0..count(cut.len())).find(|place| !self.is_taken(*place))
    }

    /// What the portions are worth that nobody has.
    fn cents_left(&self) -> Option<Cents> {
        let Supply::Portions(cut) = &self.terms().supply else { return None };
        let mut left = 0;
        for (place, value) in (0..).zip(cut) {
            if !self.cleared() && !self.is_taken(place) {
                left += value.get();
            }
        }
        Some(Cents::new(left))
    }

    /// What the next unit, or the next portion, costs.
    fn price(&self) -> Cents {
        match (&self.terms().supply, self.lowest_portion()) {
            (Supply::Portions(cut), Some(place)) => cut[place as usize],
            (Supply::Portions(_), None) => Cents::ZERO,
            (Supply::Units(_), _) => {
                let taken = self.latest().total - self.available();
                let mut price = self.terms().price;
                for step in &self.terms().price_steps {
                    if taken >= step.after_sold {
                        price = step.price;
                    }
                }
                price
            }
        }
    }

    fn same_buyer(&self, one: &Claim, other: &Claim) -> bool {
        match self.terms().limit_by {
            LimitBy::User => one.user == other.user,
            LimitBy::Identity => one.identity == other.identity,
        }
    }

    /// Units that count against the limit of the claim's buyer.
    fn used_by(&self, claim: &Claim) -> u32 {
        let theirs = self.claims.iter().filter(|other| self.same_buyer(other, claim));
        theirs
            .filter(|other| match self.terms().reclaim {
                Reclaim::Allowed => other.state != State::Released,
                // The released claim counts for ever, so the one in its place does not.
                Reclaim::Never => other.replaces.is_none(),
            })
            .map(|other| other.quantity)
            .sum()
    }

    fn can_be_had_anew(&self, released: &Claim) -> bool {
        let stock = released.quantity <= self.available();
        let portion = released.portion.is_none() || self.price() == released.unit_price;
        let limit = self.terms().reclaim == Reclaim::Never
            || self.used_by(released) + released.quantity <= self.terms().limit_per_user;
        stock && portion && limit
    }

    /// The answer to a payment seen before; a claim is shown as it is now.
    fn seen(&self, pay: &PayRequest) -> Option<Outcome<Settlement>> {
        let seen = self.payments.iter().find(|seen| seen.payment == pay.payment)?;
        let amount = match &seen.settlement {
            Settlement::Paid(claim) | Settlement::Regranted(claim) => {
                claim.unit_price.get() * i64::from(claim.quantity)
            }
            Settlement::RefundDue(refund) => refund.amount.get(),
        };
        if seen.order != pay.order.number || amount != pay.amount.get() {
            return Some(Outcome::Refused(Refusal::PaymentConflict));
        }
        let now = |claim: &Claim| self.claims.iter().find(|c| c.id == claim.id).cloned();
        if let Settlement::Paid(claim) | Settlement::Regranted(claim) = &seen.settlement
            && let Some(revoked) = now(claim).filter(|claim| claim.state == State::Released)
        {
            return Some(Outcome::Replayed(Settlement::RefundDue(Refund {
                order: pay.order,
                payment: pay.payment.clone(),
                amount: pay.amount,
                reason: RefundReason::Revoked,
                at: revoked.changed_at,
            })));
        }
        Some(Outcome::Replayed(match &seen.settlement {
            Settlement::Paid(claim) => Settlement::Paid(now(claim)?),
            Settlement::Regranted(claim) => Settlement::Regranted(now(claim)?),
            Settlement::RefundDue(refund) => Settlement::RefundDue(refund.clone()),
        }))
    }
}

fn due(claim: &Claim) -> Option<Timestamp> {
    match claim.state {
        State::Held => claim.hold_until,
        State::Ordered => claim.pay_by,
        State::Paid | State::Released => None,
    }
}

fn count(len: usize) -> u32 {
    u32::try_from(len).expect("tests are small")
}
