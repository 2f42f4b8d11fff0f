//! One command after the other, on what was read: decided by the rules of `qiang-core`, taken
//! over, and added to the events.

use qiang_core::{ClaimId, Command, Event, PoolId, Pools, Reply, Timestamp, decide};

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
        qiang_core::handle(self, command, now, &mut |event| events.push(event.clone()))
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
}

impl Pools for Loaded {
    type Pool = Excerpt;

    fn pool(&self, id: PoolId) -> Option<&Excerpt> {
        self.pools.get(&id).and_then(Option::as_ref)
    }

    fn apply(&mut self, event: &Event) {
        let pool = self.pools.entry(event.pool()).or_default();
        if let (None, Event::Pool(opened)) = (&pool, event) {
            *pool = Some(Excerpt::opened(opened.clone()));
        }
        pool.as_mut().expect("decided on a pool that was read").apply(event);
    }

    fn forget(&mut self, id: PoolId) {
        self.forgotten.extend(self.pools.get_mut(&id).and_then(Option::take));
    }
}
