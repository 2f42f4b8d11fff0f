//! All pools of one engine, and the one place where commands meet them.
//!
//! A book is what an engine keeps in memory. It handles commands (decide, then apply, then hand
//! the event to the caller's log), releases what is overdue, can be written out as a list of
//! events, and is rebuilt by storing events and settling once.
//!
//! Opening, finding, ending and forgetting a pool cost the same however many there are.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};
use std::ops::Bound::{Excluded, Unbounded};

use foldhash::fast::FixedState;

use crate::{
    Claim, ClaimId, Command, Event, Kind, Opened, Pool, PoolChange, PoolId, PoolState, Pools,
    Reply, Timestamp, decide,
};

/// Every pool there is, with the deadlines of their claims.
#[derive(Debug)]
pub struct Book {
    seed: u64,
    /// Each in a place of its own, so that a growing table moves no pool.
    pools: HashMap<PoolId, Box<Pool>, FixedState>,
    /// The pools of each kind in the order they were opened, so that those of one are listed
    /// without a look at the others.
    of_kind: [BTreeSet<Opened>; Kind::ALL.len()],
    /// For each pool that has deadlines, a time not after its earliest one.
    due: BinaryHeap<Reverse<(Timestamp, PoolId)>>,
    /// Pools of which something is missing among the events stored so far. A pool that is cleared
    /// and forgotten while a snapshot is written is not in it, or only in part; the events behind
    /// the snapshot then end with its clearing.
    unfinished: BTreeSet<PoolId>,
    /// The last pool that was forgotten, as it ended. Time must not go back before that, and whoever
    /// reads a snapshot knows the time from its events.
    last_ended: Option<PoolState>,
}

/// How far a snapshot has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SnapshotCursor {
    /// Place of the kind among all of them.
    kind: usize,
    /// The pool that is being written, or was written last.
    pool: Option<Opened>,
    /// The next claim of the pool that is being written; 0 is none.
    step: u32,
}

impl Book {
    /// An empty book. `seed` spreads its hash tables, so that nobody can aim at one bucket.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            pools: HashMap::with_hasher(FixedState::with_seed(seed)),
            of_kind: Default::default(),
            due: BinaryHeap::new(),
            unfinished: BTreeSet::new(),
            last_ended: None,
        }
    }

    /// A pool by its id.
    #[must_use]
    pub fn pool(&self, id: PoolId) -> Option<&Pool> {
        self.pools.get(&id).map(Box::as_ref)
    }

    /// A claim by its id.
    #[must_use]
    pub fn claim(&self, id: ClaimId) -> Option<Claim> {
        self.pool(id.pool)?.claim(id.number)
    }

    /// How many pools there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pools.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pools.is_empty()
    }

    /// All pools, kind by kind, in the order they were opened.
    pub fn pools(&self) -> impl Iterator<Item = &Pool> {
        self.of_kind.iter().flatten().map(|opened| self.listed(*opened))
    }

    /// The pools of a kind that were opened before `before`, newest first.
    pub fn newest(&self, kind: Kind, before: Option<Opened>) -> impl Iterator<Item = &Pool> {
        let end = before.map_or(Unbounded, Excluded);
        let listed = self.of_kind[kind as usize].range((Unbounded, end)).rev();
        listed.map(|opened| self.listed(*opened))
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
        self.due.peek().map(|Reverse((due, _))| *due)
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
            && let Some(Reverse((noted, id))) = self.due.peek().copied()
            && noted <= now
        {
            let next = self.pools.get(&id).and_then(|pool| pool.next_due());
            let Some((due, number)) = next.filter(|(due, _)| *due == noted) else {
                self.due.pop();
                self.due.extend(next.map(|(due, _)| Reverse((due, id))));
                continue;
            };
            let pool = self.pools.get_mut(&id).expect("it was just found");
            pool.drop_next_due();
            let Some(event) = decide::expiry(&**pool, number, due, now) else { continue };
            self.take_in(&event);
            log(&event);
            released += 1;
        }
        released
    }

    /// Applies an event that was decided on this very book.
    pub fn apply(&mut self, event: &Event) {
        if self.pools.contains_key(&event.pool()) || ended(event).is_none() {
            self.take_in(event);
        }
        if ended(event).is_some() {
            self.remove(event.pool());
        }
    }

    /// Applies an event, and leaves it to the caller to forget a pool that ended.
    fn take_in(&mut self, event: &Event) {
        let id = event.pool();
        if let Some(state) = ended(event) {
            self.last_ended = Some(state.clone());
        }
        let Some(pool) = self.pools.get_mut(&id) else { return self.open(event) };
        let before = pool.next_due();
        pool.apply(event);
        let next = pool.next_due().map(|(due, _)| due);
        if let Some(due) = next
            && before.is_none_or(|(before, _)| due < before)
        {
            self.due.push(Reverse((due, id)));
        }
    }

    /// Takes over an event of a snapshot or a log, if it is newer than what is stored. The book
    /// answers nothing until [`Book::settle`] was called.
    pub fn store(&mut self, event: &Event) {
        let id = event.pool();
        if let Some(state) = ended(event) {
            self.remove(id);
            self.unfinished.remove(&id);
            if self.last_ended.as_ref().is_none_or(|last| last.at <= state.at) {
                self.last_ended = Some(state.clone());
            }
            return;
        }
        let opens = matches!(event, Event::Pool(state) if state.change == PoolChange::Opened);
        match self.pools.get_mut(&id) {
            Some(pool) if pool.lacks(event) && id.is_made() => drop(self.unfinished.insert(id)),
            Some(pool) => drop(pool.store(event)),
            None if opens || !id.is_made() => self.open(event),
            None => drop(self.unfinished.insert(id)),
        }
    }

    /// Counts everything anew after a run of [`Book::store`].
    pub fn settle(&mut self) {
        let unfinished = &self.unfinished;
        assert!(unfinished.is_empty(), "events of these pools are missing: {unfinished:?}");
        self.due.clear();
        for (id, pool) in &mut self.pools {
            pool.settle();
            self.due.extend(pool.next_due().map(|(due, _)| Reverse((due, *id))));
        }
    }

    /// Writes the next part of a snapshot: at least one event and about `max` of them. Says
    /// whether that was the last part. What changes between two parts is in the log, and newer.
    pub fn snapshot(
        &self,
        cursor: &mut SnapshotCursor,
        max: usize,
        log: &mut impl FnMut(&Event),
    ) -> bool {
        let last = self.snapshot_pools(cursor, max, log);
        if last && let Some(ended) = &self.last_ended {
            log(&Event::Pool(ended.clone()));
        }
        last
    }

    fn snapshot_pools(
        &self,
        cursor: &mut SnapshotCursor,
        max: usize,
        log: &mut impl FnMut(&Event),
    ) -> bool {
        let mut budget = max;
        while let Some(pool) = self.go_on(cursor) {
            let history = pool.history();
            let claims = pool.claims();
            let begun_before = cursor.step > 0;
            if !begun_before {
                history.iter().for_each(|state| log(&Event::Pool(state.clone())));
                budget = budget.saturating_sub(history.len());
                cursor.step = 1;
            }
            while cursor.step <= claims && budget > 0 {
                log(&Event::Claim(pool.claim(cursor.step).expect("numbers are dense")));
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
            cursor.step = 0;
            if budget == 0 {
                return self.go_on(&mut cursor.clone()).is_none();
            }
        }
        true
    }

    /// The pool that is being written, or the next one. One that was forgotten in the middle is left
    /// at that: the log ends it.
    fn go_on(&self, cursor: &mut SnapshotCursor) -> Option<&Pool> {
        if cursor.step > 0
            && let Some(pool) = cursor.pool.and_then(|opened| self.pool(opened.id))
        {
            return Some(pool);
        }
        cursor.step = 0;
        while let Some(listed) = self.of_kind.get(cursor.kind) {
            let after = cursor.pool.map_or(Unbounded, Excluded);
            if let Some(next) = listed.range((after, Unbounded)).next() {
                cursor.pool = Some(*next);
                return Some(self.listed(*next));
            }
            *cursor = SnapshotCursor { kind: cursor.kind + 1, ..SnapshotCursor::default() };
        }
        None
    }

    fn open(&mut self, event: &Event) {
        let Event::Pool(state) = event else {
            panic!("pool {} was never opened", event.pool());
        };
        let opened = Opened { at: state.at, id: state.id };
        self.pools.insert(state.id, Box::new(Pool::open(state, self.seed)));
        self.of_kind[state.terms.kind as usize].insert(opened);
    }

    fn remove(&mut self, id: PoolId) {
        if let Some(pool) = self.pools.remove(&id) {
            let opened = Opened { at: pool.opened_at(), id };
            self.of_kind[pool.state().terms.kind as usize].remove(&opened);
        }
    }

    fn listed(&self, opened: Opened) -> &Pool {
        self.pool(opened.id).expect("only pools that are there are listed")
    }
}

impl Pools for Book {
    type Pool = Pool;

    fn pool(&self, id: PoolId) -> Option<&Pool> {
        Book::pool(self, id)
    }

    fn apply(&mut self, event: &Event) {
        self.take_in(event);
    }

    /// A time noted for it stays until it has come; then nothing is found.
    fn forget(&mut self, id: PoolId) {
        self.remove(id);
    }
}

/// How a pool ended of which nothing stays behind this event.
fn ended(event: &Event) -> Option<&PoolState> {
    let Event::Pool(state) = event else { return None };
    let goes = || decide::leaves_nothing(state.id, &state.terms);
    (state.change == PoolChange::Cleared && goes()).then_some(state)
}
