//! One command after the other, on what was read: decided by the rules of `qiang-core`, taken
//! over, and added to the events.

use qiang_core::decide::{self, Decision, Facts};
use qiang_core::{
    Claim, ClaimId, Command, Event, Outcome, PayRequest, PoolId, PoolView, Refusal, Reply,
    Settlement, Timestamp,
};

use super::excerpt::Excerpt;
use super::fault::Fault;
use super::load::Loaded;

impl Loaded {
    /// Decides a command. Everything due by `now` in its pool must have been released before.
    pub(super) fn decide(
        &mut self,
        command: &Command,
        now: Timestamp,
        events: &mut Vec<Event>,
    ) -> Reply {
        match command {
            Command::Open { pool, terms } => {
                let decision = match self.pool(*pool) {
                    Some(pool) => decide::open(pool, terms),
                    None => Decision::Commit(decide::opening(*pool, terms, now)),
                };
                Reply::Pool(self.carry_out(decision, events, view_of))
            }
            Command::Restock { pool, units, request } => {
                self.on_pool(*pool, events, |pool| decide::restock(pool, units.get(), request, now))
            }
            Command::Close { pool } => self.on_pool(*pool, events, |pool| decide::close(pool, now)),
            Command::Clear { pool } => self.on_pool(*pool, events, |pool| decide::clear(pool, now)),
            Command::Claim(wish) => {
                let decision = match self.pool(wish.pool) {
                    Some(pool) => decide::claim(pool, wish, now),
                    None => Decision::Refuse(Refusal::NoSuchPool),
                };
                Reply::Claim(self.carry_out(decision, events, claim_of))
            }
            Command::Order { claim, by } => self.on_claim(claim.pool, events, |pool| {
                decide::order(pool, claim.number, by.as_ref(), now)
            }),
            Command::Release { claim, by, reason } => self.on_claim(claim.pool, events, |pool| {
                decide::release(pool, claim.number, by.as_ref(), *reason, now)
            }),
            Command::Pay(pay) => self.on_money(pay, events, |pool| decide::pay(pool, pay, now)),
            Command::Refund(pay) => {
                self.on_money(pay, events, |pool| decide::refund(pool, pay, now))
            }
        }
    }

    /// Releases claims whose deadlines have come.
    pub(super) fn expire(
        &mut self,
        overdue: &[(ClaimId, Timestamp)],
        now: Timestamp,
        events: &mut Vec<Event>,
    ) -> Result<(), Fault> {
        for (claim, due) in overdue {
            let pool = self.pool(claim.pool);
            let event = pool.and_then(|pool| decide::expiry(pool, claim.number, *due, now));
            let event = event.ok_or(Fault::OutOfRange { what: "the deadline of a claim" })?;
            self.apply(&event);
            events.push(event);
        }
        Ok(())
    }

    fn on_pool(
        &mut self,
        id: PoolId,
        events: &mut Vec<Event>,
        decide: impl FnOnce(&Excerpt) -> Decision<PoolView>,
    ) -> Reply {
        let decision = self.pool(id).map_or(Decision::Refuse(Refusal::NoSuchPool), decide);
        Reply::Pool(self.carry_out(decision, events, view_of))
    }

    fn on_claim(
        &mut self,
        id: PoolId,
        events: &mut Vec<Event>,
        decide: impl FnOnce(&Excerpt) -> Decision<Claim>,
    ) -> Reply {
        let decision = self.pool(id).map_or(Decision::Refuse(Refusal::NoSuchClaim), decide);
        Reply::Claim(self.carry_out(decision, events, claim_of))
    }

    /// A payment counts once, in whichever pool it was seen first.
    fn on_money(
        &mut self,
        pay: &PayRequest,
        events: &mut Vec<Event>,
        decide: impl FnOnce(&Excerpt) -> Decision<Settlement>,
    ) -> Reply {
        let owner = self.owners.get(&pay.payment);
        let decision = match self.pool(pay.order.pool) {
            None => Decision::Refuse(Refusal::NoSuchClaim),
            Some(_) if owner.is_some_and(|owner| *owner != pay.order.pool) => {
                Decision::Refuse(Refusal::PaymentConflict)
            }
            Some(pool) => decide(pool),
        };
        Reply::Settlement(self.carry_out(decision, events, |_, event| match event {
            Event::Claim(paid) => decide::settlement(paid),
            Event::Refund(refund) => Settlement::RefundDue(refund),
            Event::Pool(_) => unreachable!("money changes no pool as a whole"),
        }))
    }

    fn carry_out<T>(
        &mut self,
        decision: Decision<T>,
        events: &mut Vec<Event>,
        done: impl FnOnce(&Self, Event) -> T,
    ) -> Outcome<T> {
        match decision {
            Decision::Commit(event) => {
                self.apply(&event);
                events.push(event.clone());
                Outcome::Done(done(self, event))
            }
            Decision::Repeat(value) => Outcome::Replayed(value),
            Decision::Refuse(refusal) => Outcome::Refused(refusal),
        }
    }

    fn apply(&mut self, event: &Event) {
        let pool = self.pools.entry(event.pool()).or_default();
        if let (None, Event::Pool(opened)) = (&pool, event) {
            *pool = Some(Excerpt::opened(opened.clone()));
        }
        pool.as_mut().expect("decided on a pool that was read").apply(event);
        let payment = match event {
            Event::Pool(_) => None,
            Event::Claim(claim) => claim.payment.as_ref(),
            Event::Refund(refund) => Some(&refund.payment),
        };
        if let Some(payment) = payment {
            self.owners.insert(payment.clone(), event.pool());
        }
    }

    fn pool(&self, id: PoolId) -> Option<&Excerpt> {
        self.pools.get(&id).and_then(Option::as_ref)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "every outcome is made of its event")]
fn view_of(loaded: &Loaded, event: Event) -> PoolView {
    loaded.pool(event.pool()).expect("it was just applied").view()
}

fn claim_of(_: &Loaded, event: Event) -> Claim {
    match event {
        Event::Claim(claim) => claim,
        Event::Pool(_) | Event::Refund(_) => unreachable!("a claim's command changes a claim"),
    }
}
