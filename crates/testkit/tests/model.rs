//! The rules of `qiang-core` against the oracle: random commands, random times, snapshots in
//! pieces, and books rebuilt in the middle of it all.

use std::collections::BTreeSet;

use qiang_core::{Book, Command, Event, Outcome, Reply, Settlement, SnapshotCursor, Timestamp};
use qiang_testkit::{Generator, Oracle, each_seed};

const COMMANDS: usize = 250;

/// A book with its oracle, and the snapshot that is being written.
struct World {
    generator: Generator,
    oracle: Oracle,
    book: Book,
    now: Timestamp,
    snapshot: Option<Snapshot>,
    rebuilt: u32,
}

struct Snapshot {
    base: usize,
    cursor: SnapshotCursor,
    events: Vec<Event>,
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            generator: Generator::new(seed),
            oracle: Oracle::default(),
            book: Book::new(seed),
            now: Timestamp::from_millis(0),
            snapshot: None,
            rebuilt: 0,
        }
    }

    /// One move of time and one command; the answer of both.
    fn step(&mut self) -> (Command, Reply) {
        self.now = self.now.max(self.generator.tick(&self.oracle, self.now));
        let read = self.oracle.log().len();
        let mut events = Vec::new();
        self.oracle.expire(self.now);
        let max = self.generator.random().between(1, 3) as usize;
        let mut log = |event: &Event| events.push(event.clone());
        while self.book.expire_due(self.now, max, &mut log) == max {}
        let command = self.generator.command(&self.oracle);
        let wanted = self.oracle.handle(&command, self.now);
        let got = self.book.handle(&command, self.now, &mut log);
        assert_eq!(got, wanted, "{command:?}");
        assert_eq!(events, self.oracle.log()[read..], "{command:?}");
        (command, got)
    }

    fn assert_same(&self) {
        let mut opened: Vec<_> = self.book.pools().map(|pool| pool.view().id).collect();
        let mut wanted = self.oracle.pools();
        opened.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(opened, wanted);
        for id in self.oracle.pools() {
            let pool = self.book.pool(id).expect("both have it");
            assert_eq!(Some(pool.view()), self.oracle.view(id));
            let claims: Vec<_> = (1..).map_while(|number| pool.claim(number)).collect();
            assert_eq!(claims, self.oracle.claims(id));
        }
    }

    /// Writes a part of a snapshot, and goes on with the book it gives when it is complete.
    fn snapshot_part(&mut self) {
        let snapshot = self.snapshot.get_or_insert_with(|| Snapshot {
            base: self.oracle.log().len(),
            cursor: SnapshotCursor::default(),
            events: Vec::new(),
        });
        let max = self.generator.random().between(1, 4) as usize;
        let events = &mut snapshot.events;
        let last = self.book.snapshot(&mut snapshot.cursor, max, &mut |e| events.push(e.clone()));
        if !last {
            return;
        }
        let snapshot = self.snapshot.take().expect("it was just written");
        let behind = &self.oracle.log()[snapshot.base..];
        self.book = rebuilt(snapshot.events.iter().chain(behind));
        self.rebuilt += 1;
        self.assert_same();
    }
}

fn rebuilt<'a>(events: impl Iterator<Item = &'a Event>) -> Book {
    let mut book = Book::new(99);
    events.for_each(|event| book.store(event));
    book.settle();
    book
}

#[test]
fn the_book_answers_as_the_oracle() {
    each_seed(3_000, |seed| {
        let mut world = World::new(seed);
        for _ in 0..COMMANDS {
            world.step();
            match world.generator.random().below(100) {
                0..30 => world.snapshot_part(),
                30..33 => {
                    world.book = rebuilt(world.oracle.log().iter());
                    world.snapshot = None;
                }
                33..40 => world.assert_same(),
                _ => {}
            }
        }
        world.assert_same();
    });
}

#[test]
fn applying_the_events_one_by_one_or_twice_gives_the_same_book() {
    each_seed(300, |seed| {
        let mut world = World::new(seed);
        for _ in 0..COMMANDS {
            world.step();
        }
        let mut book = Book::new(5);
        for event in world.oracle.log() {
            book.apply(event);
            book.apply(event);
        }
        world.book = book;
        world.assert_same();
        for _ in 0..COMMANDS {
            world.step();
        }
    });
}

/// The random worlds meet everything there is to meet; otherwise the tests above prove little.
#[test]
fn nothing_is_left_out() {
    let (mut met, mut rebuilt) = (BTreeSet::new(), 0);
    for seed in 1..=400 {
        let mut world = World::new(seed);
        for _ in 0..COMMANDS {
            let (command, reply) = world.step();
            met.insert(named(&command, &reply));
            world.snapshot_part();
        }
        rebuilt += world.rebuilt;
        met.extend(world.oracle.forgotten().iter().map(|_| "forgotten".to_owned()));
        met.extend(world.oracle.log().iter().map(|event| event.name().to_owned()));
        for event in world.oracle.log() {
            if let Event::Claim(claim) = event {
                met.extend(claim.reason.map(|reason| reason.as_str().to_owned()));
                met.insert(format!("portion {}", claim.portion.is_some()));
                met.insert(format!("replaces {}", claim.replaces.is_some()));
            }
        }
    }
    assert!(rebuilt > 1_000, "{rebuilt} books were rebuilt");
    let wanted = "
        claim done, claim replayed, claim no_such_pool, claim not_open_yet, claim closed,
        claim not_eligible, claim already_claimed, claim over_limit, claim sold_out,
        claim request_conflict, order done, order replayed, order released, order no_such_claim,
        order cleared, release done, release replayed, release already_paid,
        release no_such_claim, release cleared, pay paid, pay regranted, pay refund late,
        pay refund already_paid, pay refund amount_mismatch, pay again paid, pay again regranted,
        pay again refund late, pay again refund revoked, revoke done, revoke replayed,
        revoke released, revoke not_paid, revoke no_such_claim, revoke cleared, pay not_ordered, pay no_such_claim, pay payment_conflict,
        pay cleared, refund pool_in_use, refund refund late, refund again refund late,
        refund payment_conflict, open done, open replayed, open pool_exists, restock done,
        restock replayed, restock request_conflict, restock cannot_restock, restock closed,
        restock no_such_pool, close done, close replayed, close no_such_pool, clear done,
        clear replayed, clear pool_in_use, clear no_such_pool,
        pool_opened, pool_restocked, pool_closed, pool_cleared, claim_granted, claim_ordered,
        claim_paid, claim_released, refund_due, gave_up, cancelled, hold_expired, pay_expired, revoked,
        portion true, portion false, replaces true, forgotten";
    let missing: Vec<&str> =
        wanted.split(',').map(str::trim).filter(|what| !met.contains(*what)).collect();
    assert!(missing.is_empty(), "never met: {missing:?}");
}

fn named(command: &Command, reply: &Reply) -> String {
    let asked = match command {
        Command::Open { .. } => "open",
        Command::Claim(_) => "claim",
        Command::Order { .. } => "order",
        Command::Pay(_) => "pay",
        Command::Release { .. } => "release",
        Command::Revoke { .. } => "revoke",
        Command::Restock { .. } => "restock",
        Command::Close { .. } => "close",
        Command::Clear { .. } => "clear",
        Command::Refund(_) => "refund",
    };
    let answered = match reply {
        Reply::Pool(outcome) => outcome_name(outcome, |_| String::new()),
        Reply::Claim(outcome) => outcome_name(outcome, |_| String::new()),
        Reply::Settlement(outcome) => outcome_name(outcome, |settlement| match settlement {
            Settlement::Paid(_) => "paid".into(),
            Settlement::Regranted(_) => "regranted".into(),
            Settlement::RefundDue(refund) => format!("refund {}", refund.reason.as_str()),
        }),
    };
    format!("{asked} {answered}")
}

fn outcome_name<T>(outcome: &Outcome<T>, value: impl Fn(&T) -> String) -> String {
    match outcome {
        Outcome::Done(done) => match value(done) {
            name if name.is_empty() => "done".into(),
            name => name,
        },
        Outcome::Replayed(before) => match value(before) {
            name if name.is_empty() => "replayed".into(),
            name => format!("again {name}"),
        },
        Outcome::Refused(refusal) => refusal.code().into(),
    }
}
