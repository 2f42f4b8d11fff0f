//! One simulated run: a writer, its oracle, people who ask, and consumers who read the log.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use qiang_core::{Claim, ClaimId, Command, Event, LimitBy, Outcome, Reply, State, Timestamp};
use qiang_engine::{Clock, Error, Job, Question, Replies, Stats, Writer, WriterOptions};
use qiang_testkit::{Generator, Oracle};
use tokio::sync::oneshot;

use super::journal::{FAULTS, Fault, SimJournal};

/// When things go wrong.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Plan {
    /// Never.
    Calm,
    /// Now and then: faults, and crashes between two steps.
    Random,
    /// Once, at the given append.
    At { append: u64, fault: Fault },
}

/// How often a run met what.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Met {
    pub(crate) faults: u32,
    pub(crate) unknown: u32,
    pub(crate) unknown_done: u32,
    pub(crate) unknown_lost: u32,
    pub(crate) retried_repeats: u32,
    pub(crate) batches: u32,
    pub(crate) recoveries: u32,
    pub(crate) in_mid_snapshot: u32,
    pub(crate) from_snapshot: u32,
    pub(crate) long_snapshots: u32,
    pub(crate) trimmed: u32,
    pub(crate) kept_for_consumer: u32,
    pub(crate) set_back: u32,
    pub(crate) split_expiry: u32,
}

impl Met {
    pub(crate) fn add(&mut self, other: Self) {
        self.faults += other.faults;
        self.unknown += other.unknown;
        self.unknown_done += other.unknown_done;
        self.unknown_lost += other.unknown_lost;
        self.retried_repeats += other.retried_repeats;
        self.batches += other.batches;
        self.recoveries += other.recoveries;
        self.in_mid_snapshot += other.in_mid_snapshot;
        self.from_snapshot += other.from_snapshot;
        self.long_snapshots += other.long_snapshots;
        self.trimmed += other.trimmed;
        self.kept_for_consumer += other.kept_for_consumer;
        self.set_back += other.set_back;
        self.split_expiry += other.split_expiry;
    }
}

/// A clock the world sets.
#[derive(Debug, Clone, Default)]
pub(crate) struct SimClock(Arc<AtomicI64>);

impl SimClock {
    pub(crate) fn set(&self, now: Timestamp) {
        self.0.store(now.millis(), Ordering::SeqCst);
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}

/// Reads the log at its own pace and keeps the newest state of everything it met.
#[derive(Debug, Default)]
struct Consumer {
    position: u64,
    claims: BTreeMap<ClaimId, Claim>,
}

/// A command on its way, and what the oracle says it must answer.
struct Asked {
    command: Command,
    wanted: Reply,
    /// The log's length when it was decided, its own event included.
    events: usize,
    /// Whether the outcome of a first try was unknown.
    retry: bool,
}

/// Commands asked at once.
struct Batch {
    asked: Vec<Asked>,
    answer: oneshot::Receiver<Result<Replies, Error>>,
}

pub(crate) struct World {
    generator: Generator,
    plan: Plan,
    journal: SimJournal,
    clock: SimClock,
    writer: Option<Writer<SimJournal, SimClock>>,
    consumed: Arc<AtomicU64>,
    oracle: Oracle,
    /// Everything durable, from the beginning.
    log: Vec<Event>,
    /// Time as the rules see it.
    now: Timestamp,
    /// How much of the log was answered for.
    acknowledged: usize,
    consumers: [Consumer; 2],
    retries: Vec<Command>,
    met: Met,
}

impl World {
    pub(crate) fn new(seed: u64, plan: Plan) -> Self {
        let mut world = Self {
            generator: Generator::new(seed),
            plan,
            journal: SimJournal::default(),
            clock: SimClock::default(),
            writer: None,
            consumed: Arc::default(),
            oracle: Oracle::default(),
            log: Vec::new(),
            now: Timestamp::from_millis(0),
            acknowledged: 0,
            consumers: Default::default(),
            retries: Vec::new(),
            met: Met::default(),
        };
        if let Plan::At { append, fault } = plan {
            world.journal.disk().fault = Some((append, fault));
        }
        world.start();
        world
    }

    pub(crate) fn run(mut self, steps: u32) -> Met {
        for _ in 0..steps {
            self.step();
            self.consume();
            if matches!(self.plan, Plan::Random) && self.generator.random().percent(4) {
                self.recover(&[]);
            }
        }
        self.end();
        let disk = self.journal.disk();
        self.met.trimmed = disk.trimmed;
        self.met.kept_for_consumer = disk.kept_for_consumer;
        self.met.long_snapshots = disk.long_snapshots;
        self.met
    }

    fn step(&mut self) {
        let clock = self.generator.tick(&self.oracle, self.clock.now());
        self.met.set_back += u32::from(clock < self.clock.now());
        self.clock.set(clock);
        self.now = self.now.max(clock);
        self.arm();
        let mut states = vec![(self.log.len(), self.oracle.clone())];
        let expired_from = self.log.len();
        while self.oracle.expire_next(self.now) {
            self.record(&mut states);
        }
        let (expired, appends) = (self.log.len() - expired_from, self.journal.disk().appends());
        let mut asked = Vec::new();
        for (command, retry) in self.commands() {
            // It was made while the pool was there; an id that was made is never made again.
            if matches!(&command, Command::Open { pool, .. } if self.oracle.forgotten().contains(pool))
            {
                continue;
            }
            let wanted = self.oracle.handle(&command, self.now);
            self.record(&mut states);
            asked.push(Asked { command, wanted, events: self.log.len(), retry });
        }
        let (mut jobs, mut batches) = (Vec::new(), Vec::new());
        while !asked.is_empty() {
            let (to, answer) = oneshot::channel();
            let random = self.generator.random();
            let size = if random.percent(60) { 1 } else { random.between(1, 4) as usize };
            let asked: Vec<_> = asked.drain(..size.min(asked.len())).collect();
            let commands: Vec<_> = asked.iter().map(|asked| asked.command.clone()).collect();
            self.met.batches += u32::from(commands.len() > 1);
            let question = match commands.as_slice() {
                [command] if random.percent(80) => Question::One(command.clone()),
                _ => Question::Many(commands),
            };
            jobs.push(Job::Ask(question, to));
            batches.push(Batch { asked, answer });
        }
        let writer = self.writer.as_mut().expect("a writer runs");
        let alone = jobs.is_empty();
        let stepped = writer.step(&mut jobs);
        let fault = self.journal.disk().hit;
        assert_eq!(stepped.is_err(), fault.is_some());
        let expiry_appends = self.journal.disk().appends() - appends;
        self.met.split_expiry += u32::from(alone && expired > 1 && expiry_appends > 1);
        drop(jobs);
        let unanswered = self.hear(batches, fault);
        if fault.is_some() {
            self.met.faults += 1;
            self.recover(&states);
            self.judge(&unanswered);
            self.retries = unanswered.into_iter().map(|(command, _)| command).collect();
        } else {
            assert!(unanswered.is_empty(), "without a fault everything is answered");
            self.compare();
        }
    }

    /// Notes what the last decision put into the log, and how things stood behind it.
    fn record(&mut self, states: &mut Vec<(usize, Oracle)>) {
        let events = self.oracle.take_log();
        if !events.is_empty() {
            self.log.extend(events);
            states.push((self.log.len(), self.oracle.clone()));
        }
    }

    /// Decides whether one of the next appends fails.
    fn arm(&mut self) {
        let random = self.generator.random();
        if matches!(self.plan, Plan::Random) && random.percent(8) {
            let fault = *random.pick(&FAULTS);
            let append = u64::from(random.between(1, 3));
            let mut disk = self.journal.disk();
            disk.fault = Some((disk.appends() + append, fault));
        }
    }

    /// First what must be asked again, then something new.
    fn commands(&mut self) -> Vec<(Command, bool)> {
        let mut commands: Vec<_> = self.retries.drain(..).map(|command| (command, true)).collect();
        for _ in 0..self.generator.random().below(7) {
            commands.push((self.generator.command(&self.oracle), false));
        }
        commands
    }

    /// Every answer that comes is the oracle's; the commands that got none are handed back.
    fn hear(&mut self, batches: Vec<Batch>, fault: Option<Fault>) -> Vec<(Command, usize)> {
        let mut unanswered = Vec::new();
        for Batch { asked, mut answer } in batches {
            let replies = match answer.try_recv() {
                Ok(Ok(Replies::One(reply))) => vec![reply],
                Ok(Ok(Replies::Many(replies))) => replies,
                // A crashed writer says nothing; here its last words are simply not heard.
                Ok(Err(Error::OutcomeUnknown)) | Err(_) if fault.is_some() => {
                    self.met.unknown += u32::try_from(asked.len()).expect("small");
                    unanswered.extend(asked.into_iter().map(|asked| (asked.command, asked.events)));
                    continue;
                }
                other => panic!("answered {other:?}"),
            };
            assert!(unanswered.is_empty(), "answers come in order");
            assert_eq!(replies.len(), asked.len());
            for (reply, asked) in replies.iter().zip(asked) {
                assert_eq!(*reply, asked.wanted, "{:?}", asked.command);
                let repeat = matches!(reply, Reply::Claim(Outcome::Replayed(_)));
                self.met.retried_repeats += u32::from(asked.retry && repeat);
                self.acknowledged = self.acknowledged.max(asked.events);
            }
        }
        unanswered
    }

    /// What an unknown outcome turned out to be.
    fn judge(&mut self, unanswered: &[(Command, usize)]) {
        for (_, events) in unanswered {
            let done = *events <= self.log.len();
            self.met.unknown_done += u32::from(done);
            self.met.unknown_lost += u32::from(!done);
        }
    }

    /// The writer is gone. A new one finds exactly what was stored, which is a state the oracle
    /// had, and holds everything that was ever answered.
    fn recover(&mut self, states: &[(usize, Oracle)]) {
        let disk_seq = {
            let mut disk = self.journal.disk();
            (disk.hit, disk.fault) = (None, None);
            self.met.in_mid_snapshot += u32::from(disk.in_mid_snapshot());
            disk.last_seq()
        };
        self.start();
        let seq = self.writer.as_ref().expect("it was just started").position().seq;
        assert_eq!(seq, disk_seq);
        let stored = usize::try_from(seq).expect("small");
        if let Some((_, oracle)) = states.iter().rev().find(|(events, _)| *events == stored) {
            self.oracle = oracle.clone();
        } else {
            assert!(states.is_empty(), "only whole batches are stored");
        }
        self.log.truncate(stored);
        assert_eq!(self.log.len(), stored);
        assert!(stored >= self.acknowledged, "what was answered is stored");
        self.now = self.log.iter().map(Event::at).max().unwrap_or_default();
        self.met.recoveries += 1;
        self.compare();
    }

    fn start(&mut self) {
        let random = self.generator.random();
        let options = WriterOptions {
            seed: u64::from(random.below(1_000)),
            snapshot_bytes: u64::from(random.between(1, 600)),
        };
        let size = |most| NonZeroUsize::new(most as usize).expect("positive");
        let (batch, part) = (size(random.between(1, 4)), size(random.between(1, 4)));
        // What consumers have committed is told anew after a restart, by and by.
        self.consumed = Arc::default();
        let (journal, clock) = (self.journal.clone(), self.clock.clone());
        let stats = Arc::<Stats>::default();
        let writer = Writer::recover(journal, clock, options, Arc::clone(&self.consumed), stats);
        self.writer = Some(writer.expect("what was stored can be read").in_steps_of(batch, part));
        let oldest = self.journal.disk().read(0).is_none();
        self.met.from_snapshot += u32::from(oldest);
    }

    /// Book and oracle show the same, and the book keeps its promises.
    fn compare(&self) {
        let writer = self.writer.as_ref().expect("a writer runs");
        assert_eq!(writer.position().seq, self.log.len() as u64);
        for id in self.oracle.pools() {
            let pool = writer.book().pool(id).expect("both have it");
            let view = pool.view();
            assert_eq!(Some(&view), self.oracle.view(id).as_ref());
            let claims: Vec<_> = (1..).map_while(|number| pool.claim(number)).collect();
            assert_eq!(claims, self.oracle.claims(id));
            let taken: u32 =
                claims.iter().filter(|c| c.state != State::Released).map(|c| c.quantity).sum();
            assert!(view.cleared || view.available + taken == view.total, "never oversold");
            let mut had = BTreeMap::<&str, u32>::new();
            let mut requests = BTreeSet::new();
            for claim in &claims {
                let buyer = match (view.terms.limit_by, &claim.identity) {
                    (LimitBy::Identity, Some(identity)) => identity.as_str(),
                    _ => claim.user.as_str(),
                };
                if claim.state != State::Released {
                    *had.entry(buyer).or_default() += claim.quantity;
                }
                if let Some(request) = &claim.request {
                    assert!(requests.insert((&claim.user, request)), "one claim for a request");
                }
            }
            assert!(had.values().all(|units| *units <= view.terms.limit_per_user));
        }
        assert_eq!(writer.book().pools().count(), self.oracle.pools().len());
    }

    /// Consumers read on, each at its pace, and find no gap behind their position.
    fn consume(&mut self) {
        for consumer in &mut self.consumers {
            if self.generator.random().percent(60) {
                continue;
            }
            let events = self.journal.disk().read(consumer.position);
            let events = events.expect("nothing unread is trimmed");
            let at = usize::try_from(consumer.position).expect("small");
            assert_eq!(events, self.log[at..], "the log is what was decided");
            let taken = self.generator.random().below(12) as usize;
            for event in events.iter().take(taken) {
                consumer.take(event);
            }
        }
        let committed = self.consumers.iter().map(|consumer| consumer.position).min();
        let committed = committed.expect("there are two");
        self.journal.disk().committed = committed;
        if self.generator.random().percent(70) {
            self.consumed.store(committed, Ordering::Release);
        }
    }

    /// Every consumer reads to the end and has what the engine has.
    fn end(&mut self) {
        for consumer in &mut self.consumers {
            let events = self.journal.disk().read(consumer.position);
            events.expect("nothing unread is trimmed").iter().for_each(|e| consumer.take(e));
            for id in self.oracle.pools() {
                for claim in self.oracle.claims(id) {
                    assert_eq!(consumer.claims.get(&claim.id), Some(claim));
                }
            }
        }
        let numbers: BTreeSet<ClaimId> = self
            .log
            .iter()
            .filter_map(|event| match event {
                Event::Claim(claim) if claim.version == 1 => Some(claim.id),
                _ => None,
            })
            .collect();
        assert_eq!(self.consumers[0].claims.len(), numbers.len(), "no id is used twice");
    }
}

impl Consumer {
    fn take(&mut self, event: &Event) {
        self.position += 1;
        if let Event::Claim(claim) = event {
            let before = self.claims.insert(claim.id, claim.clone());
            assert_eq!(claim.version, before.map_or(0, |before| before.version) + 1);
        }
    }
}
