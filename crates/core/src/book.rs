//! All pools of one engine, and the one place where commands meet them.
//!
//! A book is what an engine keeps in memory. It handles commands (decide, then apply, then hand
//! the event to the caller's log), releases what is overdue, can be written out as a list of
//! events, and is rebuilt by storing events and settling once.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use foldhash::fast::FixedState;

use crate::{Claim, ClaimId, Command, Event, Kind, Pool, PoolId, Pools, Reply, Timestamp, decide};

/// Every pool there is, with the deadlines of their claims.
#[derive(Debug)]
pub struct Book {
    seed: u64,
    /// In the order they were opened.
    pools: Vec<Pool>,
    places: HashMap<PoolId, u32, FixedState>,
    /// The places of the pools of each kind, so that those of one are listed without a look at the
    /// others.
    of_kind: [Vec<u32>; Kind::ALL.len()],
    /// May hold deadlines that no longer stand; the claim itself knows.
    due: BinaryHeap<Reverse<(Timestamp, u32, u32)>>,
}

/// How far a snapshot has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SnapshotCursor {
    pool: usize,
    step: usize,
}

impl Book {
    /// An empty book. `seed` spreads its hash tables, so that nobody can aim at one bucket.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            pools: Vec::new(),
            places: HashMap::with_hasher(FixedState::with_seed(seed)),
            of_kind: Default::default(),
            due: BinaryHeap::new(),
        }
    }

    /// A pool by its id.
    #[must_use]
    pub fn pool(&self, id: PoolId) -> Option<&Pool> {
        self.places.get(&id).map(|place| &self.pools[*place as usize])
    }

    /// A claim by its id.
    #[must_use]
    pub fn claim(&self, id: ClaimId) -> Option<Claim> {
        self.pool(id.pool)?.claim(id.number)
    }

    /// All pools in the order they were opened.
    pub fn pools(&self) -> impl Iterator<Item = &Pool> {
        self.pools.iter()
    }

    /// All pools of a kind, newest first.
    pub fn newest(&self, kind: Kind) -> impl Iterator<Item = &Pool> {
        let places = &self.of_kind[kind as usize];
        places.iter().rev().map(|place| &self.pools[*place as usize])
    }

    /// Decides a command, applies what comes of it, and hands the event to `log`. Everything due
    /// by `now` must have been released before; a deadline is never overtaken.
    pub fn handle(
        &mut self,
        command: &Command,
        now: Timestamp,
        log: &mut impl FnMut(&Event),
    ) -> Reply {
        assert!(self.next_due().is_none_or(|due| due > now), "overdue claims come first");
        crate::handle(self, command, now, log)
    }

    /// Reads what claims will be decided on, of all of them together. Deciding one after the other,
    /// each would wait for memory by itself.
    pub fn look_ahead(&self, commands: &[Command]) {
        let knows = |command: &&Command| match command {
            Command::Claim(wish) => self.pool(wish.pool).is_some_and(|pool| pool.may_know(wish)),
            _ => false,
        };
        std::hint::black_box(commands.iter().filter(knows).count());
    }

    /// The earliest deadline, which may turn out not to stand any more.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        self.due.peek().map(|Reverse((due, _, _))| *due)
    }

    /// Releases claims whose deadline has come, at most `max` of them, and says how many.
    /// Fewer than `max` means that nothing overdue is left.
    pub fn expire_due(
        &mut self,
        now: Timestamp,
        max: usize,
        log: &mut impl FnMut(&Event),
    ) -> usize {
        let mut released = 0;
        while released < max
            && let Some(Reverse((due, place, number))) = self.due.peek().copied()
            && due <= now
        {
            self.due.pop();
            let pool = &self.pools[place as usize];
            let Some(event) = decide::expiry(pool, number, due, now) else { continue };
            self.apply(&event);
            log(&event);
            released += 1;
        }
        released
    }

    /// Applies an event that was decided on this very book.
    pub fn apply(&mut self, event: &Event) {
        let (place, opened) = self.place_for(event);
        let pool = &mut self.pools[place as usize];
        if !opened {
            pool.apply(event);
        }
        if let Event::Claim(claim) = event
            && let Some(due) = pool.due(claim.id.number)
        {
            self.due.push(Reverse((due, place, claim.id.number)));
        }
    }

    /// Takes over an event of a snapshot or a log, if it is newer than what is stored. The book
    /// answers nothing until [`Book::settle`] was called.
    pub fn store(&mut self, event: &Event) {
        let (place, opened) = self.place_for(event);
        if !opened {
            self.pools[place as usize].store(event);
        }
    }

    /// Counts everything anew after a run of [`Book::store`].
    pub fn settle(&mut self) {
        let mut due = Vec::new();
        for (place, pool) in (0_u32..).zip(&mut self.pools) {
            pool.settle();
            let open = (1..=pool.claims())
                .filter_map(|number| pool.due(number).map(|due| Reverse((due, place, number))));
            due.extend(open);
        }
        self.due = due.into();
    }

    /// Writes the next part of a snapshot: at least one event and about `max` of them. Says
    /// whether that was the last part. What changes between two parts is in the log, and newer.
    pub fn snapshot(
        &self,
        cursor: &mut SnapshotCursor,
        max: usize,
        log: &mut impl FnMut(&Event),
    ) -> bool {
        let mut budget = max;
        while let Some(pool) = self.pools.get(cursor.pool) {
            let history = pool.history();
            let claims = pool.claims() as usize;
            let begun_before = cursor.step > 0;
            if !begun_before {
                history.iter().for_each(|state| log(&Event::Pool(state.clone())));
                budget = budget.saturating_sub(history.len());
                cursor.step = 1;
            }
            while cursor.step <= claims && budget > 0 {
                let number = u32::try_from(cursor.step).expect("claim numbers fit");
                log(&Event::Claim(pool.claim(number).expect("numbers are dense")));
                cursor.step += 1;
                budget -= 1;
            }
            if cursor.step <= claims {
                return false;
            }
            // Cleared since its first part: the claims that were not written yet are gone, so
            // what is replayed behind the snapshot must find the pool cleared.
            if begun_before && pool.is_cleared() {
                history.iter().for_each(|state| log(&Event::Pool(state.clone())));
            }
            pool.refunds_from(0).for_each(|(_, refund)| log(&Event::Refund(refund)));
            *cursor = SnapshotCursor { pool: cursor.pool + 1, step: 0 };
            if budget == 0 {
                return cursor.pool == self.pools.len();
            }
        }
        true
    }

    fn place_for(&mut self, event: &Event) -> (u32, bool) {
        if let Some(place) = self.places.get(&event.pool()) {
            return (*place, false);
        }
        let Event::Pool(state) = event else {
            panic!("pool {} was never opened", event.pool());
        };
        let place = u32::try_from(self.pools.len()).expect("fewer pools than numbers");
        self.pools.push(Pool::open(state, self.seed));
        self.places.insert(state.id, place);
        self.of_kind[state.terms.kind as usize].push(place);
        (place, true)
    }
}

impl Pools for Book {
    type Pool = Pool;

    fn pool(&self, id: PoolId) -> Option<&Pool> {
        Book::pool(self, id)
    }

    fn apply(&mut self, event: &Event) {
        Book::apply(self, event);
    }
}
