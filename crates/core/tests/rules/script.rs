//! A small language for scripts of requests and outcomes.
//!
//! ```text
//! pool 1: units=3 limit=2 flow=order(100)      opens a pool; `-> …` only if it is not a plain yes
//! @50                                          the time is now 50; says nothing if nothing expired
//! @150            -> #1 ann x1 @100 released pay_expired
//! ann claims 2 req=a as=person in=2            quantity, request id, identity, pool: all optional
//! ann orders 1    shop orders 1                the number of a claim; `2-1` is one of pool 2
//! ann gives up 1  shop cancels 1
//! P1 pays 200 for 1    P1 returns 200 for 1    the second is for a cleared pool
//! restock 5 req=a in=2    close in=2    clear in=2
//! stock in=2      claim 1                      looks, and changes nothing
//! ```
//!
//! A claim is shown as `#number user xquantity @unit_price state`, a repeat begins with
//! `again:`, a refusal with `no:`.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use qiang_core::{
    Book, Cents, Claim, ClaimId, ClaimRequest, Command, Event, Flow, Identity, Kind, LimitBy,
    Outcome, PayRequest, PaymentId, PoolId, PoolView, PriceStep, Reclaim, Refund, Refusal,
    ReleaseReason, Reply, RequestId, Settlement, State, Supply, Terms, Timestamp, UserId,
};

/// Runs a script and compares what comes of every line with what stands behind its `->`.
#[track_caller]
pub(crate) fn check(script: &str) -> Table {
    let mut table = Table::default();
    let (mut wanted, mut got) = (String::new(), String::new());
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let line = line.split("  //").next().unwrap_or(line).trim();
        let (ask, want) = line.split_once("->").unwrap_or((line, ""));
        let (ask, want) = (ask.trim(), want.trim());
        let answer = table.run(ask);
        let answer = if want.is_empty() && !answer.starts_with("no:") && !ask.starts_with('@') {
            String::new()
        } else {
            answer
        };
        wanted.push_str(&format!("{ask} -> {want}\n"));
        got.push_str(&format!("{ask} -> {answer}\n"));
    }
    assert!(wanted == got, "wanted:\n{wanted}\ngot:\n{got}");
    table
}

/// A book, the time, and everything that ever left the book.
pub(crate) struct Table {
    pub(crate) book: Book,
    pub(crate) events: Vec<Event>,
    now: Timestamp,
}

impl Default for Table {
    fn default() -> Self {
        Self { book: Book::new(7), events: Vec::new(), now: Timestamp::default() }
    }
}

impl Table {
    /// Runs lines separated by `;`, whatever comes of them.
    pub(crate) fn go_on(&mut self, lines: &str) {
        lines.split(';').map(str::trim).for_each(|line| drop(self.run(line)));
    }

    fn run(&mut self, ask: &str) -> String {
        let words: Vec<&str> = ask.split_whitespace().collect();
        if let Some(ms) = ask.strip_prefix('@') {
            return self.wait(number(ms));
        }
        match words[..] {
            ["stock", ..] => self.book.pool(pool_of(&words)).map(|p| show_pool(&p.view())),
            ["claim", id] => self.book.claim(claim_id(id)).as_ref().map(show_claim),
            _ => Some(self.ask(&command(ask, &words))),
        }
        .unwrap_or_else(|| "nothing".into())
    }

    fn wait(&mut self, ms: i64) -> String {
        self.now = Timestamp::from_millis(ms);
        let before = self.events.len();
        let events = &mut self.events;
        while self.book.expire_due(self.now, 1, &mut |event| events.push(event.clone())) > 0 {}
        self.assert_replays();
        let released = self.events[before..].iter().map(|event| match event {
            Event::Claim(claim) => show_claim(claim),
            other => panic!("time made {other:?}"),
        });
        released.collect::<Vec<_>>().join("; ")
    }

    fn ask(&mut self, command: &Command) -> String {
        let before = self.events.len();
        let events = &mut self.events;
        let reply = self.book.handle(command, self.now, &mut |event| events.push(event.clone()));
        let (shown, done) = match &reply {
            Reply::Pool(outcome) => show(outcome, show_pool),
            Reply::Claim(outcome) => show(outcome, show_claim),
            Reply::Settlement(outcome) => show(outcome, show_settlement),
        };
        assert_eq!(self.events.len() - before, usize::from(done), "{command:?} gave {reply:?}");
        self.assert_replays();
        shown
    }

    /// What the events alone rebuild is what was decided, down to the last claim; and each event
    /// is the next version of its subject.
    fn assert_replays(&self) {
        let (mut stored, mut applied) = (Book::new(1), Book::new(2));
        let mut versions = HashMap::new();
        for event in &self.events {
            stored.store(event);
            applied.apply(event);
            let (subject, version) = match event {
                Event::Pool(state) => ((state.id, 0), state.version),
                Event::Claim(claim) => ((claim.id.pool, claim.id.number), claim.version),
                Event::Refund(_) => continue,
            };
            let before = versions.insert(subject, version).unwrap_or(0);
            assert_eq!(version, before + 1, "{event:?}");
        }
        stored.settle();
        for pool in self.book.pools() {
            let view = pool.view();
            for book in [&stored, &applied] {
                let again = book.pool(view.id).expect("it was opened by an event");
                assert_eq!(again.view(), view);
                for number in 1..=view.claims + 1 {
                    assert_eq!(again.claim(number), pool.claim(number));
                }
            }
        }
    }
}

fn command(ask: &str, words: &[&str]) -> Command {
    let pool = pool_of(words);
    match *words {
        ["pool", id, ..] => Command::Open {
            pool: pool_id(id.trim_end_matches(':')),
            terms: Arc::new(terms(&words[2..])),
        },
        ["restock", units, ..] => Command::Restock {
            pool,
            units: units.parse().expect("units"),
            request: request(words).expect("a restock has a request id"),
        },
        ["close", ..] => Command::Close { pool },
        ["clear", ..] => Command::Clear { pool },
        [who, "claims", ..] => Command::Claim(ClaimRequest {
            kind: Kind::Sale,
            pool,
            user: UserId::new(who).expect("a user"),
            identity: field(words, "as").map(|id| Identity::new(id).expect("an identity")),
            request: request(words),
            quantity: words.get(2).and_then(|word| word.parse().ok()).unwrap_or(NonZeroU32::MIN),
        }),
        [who, "orders", id] => Command::Order { claim: claim_id(id), by: user(who) },
        [who, "gives", "up", id] => {
            Command::Release { claim: claim_id(id), by: user(who), reason: ReleaseReason::GaveUp }
        }
        [who, "cancels", id] => Command::Release {
            claim: claim_id(id),
            by: user(who),
            reason: ReleaseReason::Cancelled,
        },
        [payment, "pays", cents, "for", id] => Command::Pay(pay(payment, cents, id)),
        [payment, "returns", cents, "for", id] => Command::Refund(pay(payment, cents, id)),
        _ => panic!("not understood: {ask}"),
    }
}

/// Terms from `name=value` words; what is not said is plain.
pub(crate) fn terms(words: &[&str]) -> Terms {
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

fn show<T>(outcome: &Outcome<T>, value: impl Fn(&T) -> String) -> (String, bool) {
    match outcome {
        Outcome::Done(done) => (value(done), true),
        Outcome::Replayed(before) => (format!("again: {}", value(before)), false),
        Outcome::Refused(refusal) => (format!("no: {}", show_refusal(refusal)), false),
    }
}

fn show_refusal(refusal: &Refusal) -> String {
    let code = refusal.code();
    match refusal {
        Refusal::NotOpenYet { opens_at } => format!("{code} until {}", opens_at.millis()),
        Refusal::AlreadyClaimed { claim } => format!("{code} #{}", claim.number),
        Refusal::OverLimit { had, limit } => format!("{code} {had} of {limit}"),
        _ => code.into(),
    }
}

fn show_pool(view: &PoolView) -> String {
    let mut text = format!("{} of {} left", view.available, view.total);
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

fn show_claim(claim: &Claim) -> String {
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
        text.push_str(&format!(" until {}", due.millis()));
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

fn show_settlement(settlement: &Settlement) -> String {
    match settlement {
        Settlement::Paid(claim) => show_claim(claim),
        Settlement::Regranted(claim) => format!("regranted {}", show_claim(claim)),
        Settlement::RefundDue(Refund { order, payment, amount, reason, .. }) => {
            format!(
                "refund {} of {payment} for #{} {}",
                amount.get(),
                order.number,
                reason.as_str()
            )
        }
    }
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

fn pay(payment: &str, amount: &str, order: &str) -> PayRequest {
    PayRequest {
        order: claim_id(order),
        payment: PaymentId::new(payment).expect("a payment id"),
        amount: cents(amount),
    }
}

fn pool_of(words: &[&str]) -> PoolId {
    pool_id(field(words, "in").unwrap_or("1"))
}

fn pool_id(text: &str) -> PoolId {
    text.parse().expect("a pool's id")
}

fn claim_id(text: &str) -> ClaimId {
    let whole = if text.contains('-') { text.into() } else { format!("1-{text}") };
    whole.parse().expect("a claim's id")
}

fn cents(text: &str) -> Cents {
    Cents::new(number(text))
}

fn number(text: &str) -> i64 {
    text.parse().expect("a number")
}
