//! The one place where commands meet pools, wherever those are kept.

use crate::decide::{self, Decision, Facts};
use crate::{
    Claim, Command, Event, Outcome, PoolId, PoolView, Refusal, Reply, Settlement, Timestamp,
};

/// Pools as they stand while commands are decided and carried out.
pub trait Pools {
    /// One of them.
    type Pool: Facts;

    /// A pool by its id.
    fn pool(&self, id: PoolId) -> Option<&Self::Pool>;

    /// Applies an event that was decided on these very pools.
    fn apply(&mut self, event: &Event);

    /// Forgets a pool that was cleared: from now on there is no such pool.
    fn forget(&mut self, id: PoolId);
}

/// Decides a command, applies what comes of it, and hands the event to `log`. Everything due by
/// `now` in its pool must have been released before; a deadline is never overtaken.
pub fn handle<P: Pools>(
    pools: &mut P,
    command: &Command,
    now: Timestamp,
    log: &mut impl FnMut(&Event),
) -> Reply {
    match command {
        Command::Open { pool, terms } => {
            let decision = match pools.pool(*pool) {
                Some(pool) => decide::open(pool, terms),
                None => Decision::Commit(decide::opening(*pool, terms, now)),
            };
            Reply::Pool(carry_out(pools, decision, log, view_of))
        }
        Command::Restock { pool, units, request } => {
            on_pool(pools, *pool, log, |pool| decide::restock(pool, units.get(), request, now))
        }
        Command::Close { pool } => on_pool(pools, *pool, log, |pool| decide::close(pool, now)),
        Command::Clear { pool } => {
            let reply = on_pool(pools, *pool, log, |pool| decide::clear(pool, now));
            if let Reply::Pool(Outcome::Done(view)) = &reply
                && decide::leaves_nothing(view.id, &view.terms)
            {
                pools.forget(view.id);
            }
            reply
        }
        Command::Claim(wish) => {
            let decision = match pools.pool(wish.pool) {
                Some(pool) => decide::claim(pool, wish, now),
                None => Decision::Refuse(Refusal::NoSuchPool),
            };
            Reply::Claim(carry_out(pools, decision, log, claim_of))
        }
        Command::Order { claim, by } => on_claim(pools, claim.pool, log, |pool| {
            decide::order(pool, claim.number, by.as_ref(), now)
        }),
        Command::Release { claim, by, reason } => on_claim(pools, claim.pool, log, |pool| {
            decide::release(pool, claim.number, by.as_ref(), *reason, now)
        }),
        Command::Revoke { claim } => {
            on_claim(pools, claim.pool, log, |pool| decide::revoke(pool, claim.number, now))
        }
        Command::Pay(pay) => {
            on_money(pools, pay.order.pool, log, |pool| decide::pay(pool, pay, now))
        }
        Command::Refund(pay) => {
            on_money(pools, pay.order.pool, log, |pool| decide::refund(pool, pay, now))
        }
    }
}

fn on_pool<P: Pools>(
    pools: &mut P,
    id: PoolId,
    log: &mut impl FnMut(&Event),
    decide: impl FnOnce(&P::Pool) -> Decision<PoolView>,
) -> Reply {
    let decision = pools.pool(id).map_or(Decision::Refuse(Refusal::NoSuchPool), decide);
    Reply::Pool(carry_out(pools, decision, log, view_of))
}

fn on_claim<P: Pools>(
    pools: &mut P,
    id: PoolId,
    log: &mut impl FnMut(&Event),
    decide: impl FnOnce(&P::Pool) -> Decision<Claim>,
) -> Reply {
    let decision = pools.pool(id).map_or(Decision::Refuse(Refusal::NoSuchClaim), decide);
    Reply::Claim(carry_out(pools, decision, log, claim_of))
}

/// A payment counts once in its pool. That another pool has seen the same id is not asked here:
/// the pools of one shop may lie on several servers. The records find it out.
fn on_money<P: Pools>(
    pools: &mut P,
    id: PoolId,
    log: &mut impl FnMut(&Event),
    decide: impl FnOnce(&P::Pool) -> Decision<Settlement>,
) -> Reply {
    let decision = pools.pool(id).map_or(Decision::Refuse(Refusal::NoSuchClaim), decide);
    Reply::Settlement(carry_out(pools, decision, log, |_, event| match event {
        Event::Claim(paid) => decide::settlement(paid),
        Event::Refund(refund) => Settlement::RefundDue(refund),
        Event::Pool(_) => unreachable!("money changes no pool as a whole"),
    }))
}

fn carry_out<P: Pools, T>(
    pools: &mut P,
    decision: Decision<T>,
    log: &mut impl FnMut(&Event),
    done: impl FnOnce(&P, Event) -> T,
) -> Outcome<T> {
    match decision {
        Decision::Commit(event) => {
            pools.apply(&event);
            log(&event);
            Outcome::Done(done(pools, event))
        }
        Decision::Repeat(value) => Outcome::Replayed(value),
        Decision::Refuse(refusal) => Outcome::Refused(refusal),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "every outcome is made of its event")]
fn view_of<P: Pools>(pools: &P, event: Event) -> PoolView {
    pools.pool(event.pool()).expect("it was just applied").view()
}

fn claim_of<P: Pools>(_: &P, event: Event) -> Claim {
    match event {
        Event::Claim(claim) => claim,
        Event::Pool(_) | Event::Refund(_) => unreachable!("a claim's command changes a claim"),
    }
}
