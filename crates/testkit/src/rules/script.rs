//! A small language for scripts of requests and outcomes.
//!
//! ```text
//! pool 1: units=3 limit=2 flow=order(100)      opens a sale; `-> …` only if it is not a plain yes
//! packet 2: portions=7,1,5                     opens a packet
//! @50                                          the time is now 50; says nothing if nothing expired
//! @150            -> #1 ann x1 @100 released pay_expired
//! ann claims 2 req=a as=person in=2            quantity, request id, identity, pool: all optional
//! ann grabs in=2                               the same from a packet
//! pool m1: units=3    ann claims in=m1         a pool whose id was made by qiang; `m1-1` is a claim
//! ann orders 1    shop orders 1                the number of a claim; `2-1` is one of pool 2
//! ann gives up 1  shop cancels 1
//! P1 pays 200 for 1    P1 returns 200 for 1    the second is for a cleared pool
//! restock 5 req=a in=2    close in=2    clear in=2
//! stock in=2      claim 1    events in=2       looks, and changes nothing
//! ```
//!
//! A claim is shown as `#number user xquantity @unit_price state`, a repeat begins with
//! `again:`, a refusal with `no:`. Pools and times are counted from where a table begins, so that
//! many tables run on one engine.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;
use std::sync::Arc;

use qiang_core::{
    Book, Cents, Claim, ClaimId, ClaimRequest, Command, Event, Flow, Identity, Kind, LimitBy,
    Outcome, PayRequest, PaymentId, PoolId, PoolView, PriceStep, Reclaim, Refund, Refusal,
    ReleaseReason, Reply, RequestId, Settlement, State, Supply, Terms, Timestamp, UserId,
};

use crate::contract::Subject;

/// Pools that one table may have.
const POOLS: u64 = 10;

/// A script under way on an engine.
#[derive(Debug)]
pub struct Table<'a, S> {
    subject: &'a S,
    begin: Begin,
    /// The time as the script counts it.
    now: i64,
    /// For each pool of the script how many events it must have logged.
    logged: BTreeMap<PoolId, usize>,
}

/// From where the pools and the times of a script are counted.
#[derive(Debug, Clone, Copy)]
struct Begin {
    pool: u64,
    ms: i64,
}

impl<'a, S: Subject> Table<'a, S> {
    /// The first table on a fresh engine: its pools and times are those of the script.
    pub fn new(subject: &'a S) -> Self {
        Self { subject, begin: Begin { pool: 0, ms: 0 }, now: 0, logged: BTreeMap::new() }
    }

    /// The next one on the same engine, with other pools and at a later time.
    pub(super) fn next(self) -> Self {
        let begin = Begin { pool: self.begin.pool + POOLS, ms: self.begin.ms + self.now + 1 };
        Self { subject: self.subject, begin, now: 0, logged: BTreeMap::new() }
    }

    /// Runs a script and compares what comes of every line with what stands behind its `->`.
    pub async fn check(&mut self, name: &str, script: &str) {
        let (mut wanted, mut got) = (String::new(), String::new());
        self.wait(0).await;
        for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (ask, want) = line.split_once("->").unwrap_or((line, ""));
            let (ask, want) = (ask.trim(), want.trim());
            let answer = self.run(ask).await;
            let is_plain_yes = !answer.starts_with("no:") && !ask.starts_with('@');
            let answer = if want.is_empty() && is_plain_yes { "" } else { &answer };
            wanted.push_str(&format!("{ask} -> {want}\n"));
            got.push_str(&format!("{ask} -> {answer}\n"));
        }
        assert!(wanted == got, "{name}, wanted:\n{wanted}\ngot:\n{got}");
        self.assert_replays(name).await;
    }

    /// Runs lines separated by `;`, whatever comes of them.
    pub async fn go_on(&mut self, lines: &str) {
        for line in lines.split(';').map(str::trim) {
            self.run(line).await;
        }
    }

    async fn run(&mut self, ask: &str) -> String {
        let words: Vec<&str> = ask.split_whitespace().collect();
        if let Some(ms) = ask.strip_prefix('@') {
            return self.wait(number(ms)).await;
        }
        let shown = match words[..] {
            ["stock", ..] => {
                let pool = self.subject.pool(self.begin.pool_of(&words)).await;
                pool.expect("a pool can be read").as_ref().map(show_pool)
            }
            ["claim", id] => {
                let claim = self.subject.claim(self.begin.claim_id(id)).await;
                claim.expect("a claim can be read").map(|claim| self.begin.show_claim(&claim))
            }
            ["events", ..] => {
                let events = self.events_of(self.begin.pool_of(&words)).await;
                Some(events.iter().map(Event::name).collect::<Vec<_>>().join(", "))
            }
            _ => Some(self.ask(self.begin.command(ask, &words)).await),
        };
        shown.unwrap_or_else(|| "nothing".into())
    }

    async fn ask(&mut self, command: Command) -> String {
        let pool = command.pool();
        let reply = self.subject.ask(command).await.expect("nothing fails here");
        let begin = self.begin;
        let (shown, done) = match &reply {
            Reply::Pool(outcome) => begin.show(outcome, show_pool),
            Reply::Claim(outcome) => begin.show(outcome, |claim| begin.show_claim(claim)),
            Reply::Settlement(outcome) => {
                begin.show(outcome, |settlement| begin.show_settlement(settlement))
            }
        };
        if done {
            *self.logged.entry(pool).or_default() += 1;
        }
        shown
    }

    /// Sets the time, and says what ran out, by deadlines. An engine may mix what happens in two
    /// pools in any way, but not what happens in one.
    async fn wait(&mut self, ms: i64) -> String {
        self.now = ms;
        let now = Timestamp::from_millis(self.begin.ms + ms);
        self.subject.set_time(now).await.expect("a clock can be set");
        let pools: Vec<PoolId> = self.logged.keys().copied().collect();
        let mut released = Vec::new();
        for pool in pools {
            let events = self.events_of(pool).await;
            let before = self.logged.insert(pool, events.len()).unwrap_or_default();
            assert!(before <= events.len(), "every yes is an event: {events:?}");
            let new = events[before..].iter().map(|event| match event {
                Event::Claim(claim) if claim.state == State::Released => {
                    (due(claim), claim.clone())
                }
                other => panic!("time made {other:?}"),
            });
            let new: Vec<_> = new.collect();
            assert!(new.is_sorted_by_key(|(due, _)| *due), "{new:?}");
            released.extend(new);
        }
        released.sort_by_key(|(due, claim)| (*due, claim.id));
        let shown = released.iter().map(|(_, claim)| self.begin.show_claim(claim));
        shown.collect::<Vec<_>>().join("; ")
    }

    async fn events_of(&self, pool: PoolId) -> Vec<Event> {
        let events = self.subject.events().await.expect("the log can be read");
        events.into_iter().filter(|event| event.pool() == pool).collect()
    }

    /// What the events alone rebuild is what the engine shows, down to the last claim; each event is
    /// the next version of its subject; and there is one for each yes, and no other.
    async fn assert_replays(&self, name: &str) {
        for (pool, logged) in &self.logged {
            let (mut stored, mut applied) = (Book::new(1), Book::new(2));
            let mut versions = HashMap::new();
            let events = self.events_of(*pool).await;
            assert_eq!(events.len(), *logged, "{name}: {events:?}");
            for event in &events {
                stored.store(event);
                applied.apply(event);
                let (subject, version) = match event {
                    Event::Pool(state) => (0, state.version),
                    Event::Claim(claim) => (claim.id.number, claim.version),
                    Event::Refund(_) => continue,
                };
                let before = versions.insert(subject, version).unwrap_or(0);
                assert_eq!(version, before + 1, "{name}: {event:?}");
            }
            stored.settle();
            let shown = self.subject.pool(*pool).await.expect("a pool can be read");
            let claims = shown.as_ref().map_or(0, |view| view.claims);
            for book in [&stored, &applied] {
                assert_eq!(book.pool(*pool).map(qiang_core::Pool::view), shown, "{name}");
            }
            for number in 1..=claims + 1 {
                let id = ClaimId { pool: *pool, number };
                let shown = self.subject.claim(id).await.expect("a claim can be read");
                assert_eq!(stored.claim(id), shown, "{name}");
                assert_eq!(applied.claim(id), shown, "{name}");
            }
        }
    }
}

/// The deadline that a released claim has missed.
fn due(claim: &Claim) -> Option<Timestamp> {
    match claim.reason {
        Some(ReleaseReason::HoldExpired) => claim.hold_until,
        Some(ReleaseReason::PayExpired) => claim.pay_by,
        _ => None,
    }
}

impl Begin {
    fn command(self, ask: &str, words: &[&str]) -> Command {
        let pool = self.pool_of(words);
        match *words {
            [kind @ ("pool" | "packet"), id, ..] => Command::Open {
                pool: self.pool_id(id.trim_end_matches(':')),
                terms: Arc::new(self.later(Terms {
                    kind: if kind == "pool" { Kind::Sale } else { Kind::Packet },
                    ..terms(&words[2..])
                })),
            },
            ["restock", units, ..] => Command::Restock {
                pool,
                units: units.parse().expect("units"),
                request: request(words).expect("a restock has a request id"),
            },
            ["close", ..] => Command::Close { pool },
            ["clear", ..] => Command::Clear { pool },
            [who, verb @ ("claims" | "grabs"), ..] => Command::Claim(ClaimRequest {
                kind: if verb == "claims" { Kind::Sale } else { Kind::Packet },
                pool,
                user: UserId::new(who).expect("a user"),
                identity: field(words, "as").map(|id| Identity::new(id).expect("an identity")),
                request: request(words),
                quantity: words
                    .get(2)
                    .and_then(|word| word.parse().ok())
                    .unwrap_or(NonZeroU32::MIN),
            }),
            [who, "orders", id] => Command::Order { claim: self.claim_id(id), by: user(who) },
            [who, "gives", "up", id] => Command::Release {
                claim: self.claim_id(id),
                by: user(who),
                reason: ReleaseReason::GaveUp,
            },
            [who, "cancels", id] => Command::Release {
                claim: self.claim_id(id),
                by: user(who),
                reason: ReleaseReason::Cancelled,
            },
            ["shop", "revokes", id] => Command::Revoke { claim: self.claim_id(id) },
            [payment, "pays", cents, "for", id] => Command::Pay(self.pay(payment, cents, id)),
            [payment, "returns", cents, "for", id] => Command::Refund(self.pay(payment, cents, id)),
            _ => panic!("not understood: {ask}"),
        }
    }

    /// Terms whose times are counted from the beginning of the script.
    fn later(self, terms: Terms) -> Terms {
        let later = |at: Timestamp| Timestamp::from_millis(at.millis() + self.ms);
        Terms { opens_at: later(terms.opens_at), closes_at: terms.closes_at.map(later), ..terms }
    }

    fn pay(self, payment: &str, amount: &str, order: &str) -> PayRequest {
        PayRequest {
            order: self.claim_id(order),
            payment: PaymentId::new(payment).expect("a payment id"),
            amount: cents(amount),
        }
    }

    fn pool_of(self, words: &[&str]) -> PoolId {
        self.pool_id(field(words, "in").unwrap_or("1"))
    }

    fn pool_id(self, text: &str) -> PoolId {
        let (made, text) = match text.strip_prefix('m') {
            Some(text) => (PoolId::FIRST_MADE, text),
            None => (0, text),
        };
        let id: u64 = text.parse().expect("a pool's id");
        assert!(id < POOLS, "a script has fewer pools");
        PoolId::new(made + self.pool + id).expect("positive")
    }

    fn claim_id(self, text: &str) -> ClaimId {
        let (pool, claim) = text.split_once('-').unwrap_or(("1", text));
        ClaimId { pool: self.pool_id(pool), number: claim.parse().expect("a claim's number") }
    }

    fn ms(self, at: Timestamp) -> i64 {
        at.millis() - self.ms
    }

    fn show<T>(self, outcome: &Outcome<T>, value: impl Fn(&T) -> String) -> (String, bool) {
        match outcome {
            Outcome::Done(done) => (value(done), true),
            Outcome::Replayed(before) => (format!("again: {}", value(before)), false),
            Outcome::Refused(refusal) => (format!("no: {}", self.show_refusal(refusal)), false),
        }
    }

    fn show_refusal(self, refusal: &Refusal) -> String {
        let code = refusal.code();
        match refusal {
            Refusal::NotOpenYet { opens_at } => format!("{code} until {}", self.ms(*opens_at)),
            Refusal::AlreadyClaimed { claim } => format!("{code} #{}", claim.number),
            Refusal::OverLimit { had, limit } => format!("{code} {had} of {limit}"),
            _ => code.into(),
        }
    }

    fn show_claim(self, claim: &Claim) -> String {
        let Claim { id, user, quantity, unit_price, .. } = claim;
        let mut text = format!("#{} {user} x{quantity} @{}", id.number, unit_price.get());
        if let Some(portion) = claim.portion {
            text.push_str(&format!(" portion {portion}"));
        }
        text.push_str(&format!(" {}", claim.state.as_str()));
        let due = match claim.state {
            State::Held => claim.hold_until,
            State::Ordered => claim.pay_by,
            State::Paid | State::Released => None,
        };
        if let Some(due) = due {
            text.push_str(&format!(" until {}", self.ms(due)));
        }
        if let Some(reason) = claim.reason {
            text.push_str(&format!(" {}", reason.as_str()));
        }
        if let Some(payment) = &claim.payment {
            text.push_str(&format!(" by {payment}"));
        }
        if let Some(replaces) = claim.replaces {
            text.push_str(&format!(" for #{replaces}"));
        }
        text
    }

    fn show_settlement(self, settlement: &Settlement) -> String {
        match settlement {
            Settlement::Paid(claim) => self.show_claim(claim),
            Settlement::Regranted(claim) => format!("regranted {}", self.show_claim(claim)),
            Settlement::RefundDue(Refund { order, payment, amount, reason, .. }) => {
                let (amount, reason) = (amount.get(), reason.as_str());
                format!("refund {amount} of {payment} for #{} {reason}", order.number)
            }
        }
    }
}

/// Terms from `name=value` words; what is not said is plain.
#[must_use]
pub fn terms(words: &[&str]) -> Terms {
    let flow = match field(words, "flow").unwrap_or("instant") {
        "instant" => Flow::Instant,
        other => match *other.trim_end_matches(')').split(['(', ',']).collect::<Vec<_>>() {
            ["order", pay_ms] => Flow::Order { pay_ms: pay_ms.parse().expect("pay_ms") },
            ["hold", hold_ms, pay_ms] => Flow::Hold {
                hold_ms: hold_ms.parse().expect("hold_ms"),
                pay_ms: pay_ms.parse().expect("pay_ms"),
            },
            _ => panic!("no such flow: {other}"),
        },
    };
    let supply = match field(words, "portions") {
        Some(cut) => Supply::Portions(cut.split(',').map(cents).collect()),
        None => Supply::Units(field(words, "units").map_or(10, |n| n.parse().expect("units"))),
    };
    let step = |text: &str| {
        let (after, price) = text.split_once(':').expect("after:price");
        PriceStep { after_sold: after.parse().expect("after_sold"), price: cents(price) }
    };
    let steps = field(words, "steps").map_or(Vec::new(), |all| all.split(',').map(step).collect());
    Terms {
        kind: Kind::Sale,
        title: field(words, "title").unwrap_or("Goods").into(),
        sku: field(words, "sku").unwrap_or("goods-1").into(),
        supply,
        limit_per_user: field(words, "limit").map_or(1, |limit| limit.parse().expect("limit")),
        limit_by: match field(words, "by") {
            None | Some("user") => LimitBy::User,
            Some("identity") => LimitBy::Identity,
            Some(other) => panic!("nothing is limited by {other}"),
        },
        price: field(words, "price").map_or(Cents::new(100), cents),
        price_steps: steps,
        opens_at: Timestamp::from_millis(field(words, "opens").map_or(0, number)),
        closes_at: field(words, "closes").map(|ms| Timestamp::from_millis(number(ms))),
        flow,
        buckets: 1,
        reclaim: match field(words, "reclaim") {
            None | Some("allowed") => Reclaim::Allowed,
            Some("never") => Reclaim::Never,
            Some(other) => panic!("reclaim is not {other}"),
        },
    }
}

fn show_pool(view: &PoolView) -> String {
    let mut text = format!("{} of {} left", view.available, view.total);
    if let Some(cents) = view.cents_left {
        text.push_str(&format!(" worth {}", cents.get()));
    }
    let tally = view.tally;
    for (units, what) in [(tally.held, "held"), (tally.ordered, "ordered"), (tally.paid, "paid")] {
        if units > 0 {
            text.push_str(&format!(", {units} {what}"));
        }
    }
    if view.cleared {
        text.push_str(", cleared");
    } else if view.closed_at.is_some() {
        text.push_str(", closed");
    }
    text
}

fn field<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

fn request(words: &[&str]) -> Option<RequestId> {
    field(words, "req").map(|id| RequestId::new(id).expect("a request id"))
}

fn user(who: &str) -> Option<UserId> {
    (who != "shop").then(|| UserId::new(who).expect("a user"))
}

fn cents(text: &str) -> Cents {
    Cents::new(number(text))
}

fn number(text: &str) -> i64 {
    text.parse().expect("a number")
}
