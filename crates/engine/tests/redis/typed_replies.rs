//! Every kind of reply arrives as what it was: done, done before, and each refusal with its values.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;

use qiang_core::{
    Cents, ClaimId, ClaimRequest, Command, Flow, Identity, LimitBy, Outcome, PayRequest, PaymentId,
    PoolId, ReleaseReason, Reply, RequestId, Settlement, Terms, Timestamp, UserId,
};
use qiang_testkit::Oracle;
use qiang_testkit::contract::{Subject as _, money, sale, wish};
use qiang_testkit::servers::shared;

use crate::fixture::{fresh, pool};

/// Every refusal there is.
const CODES: [&str; 17] = [
    "no_such_pool",
    "not_open_yet",
    "closed",
    "not_eligible",
    "already_claimed",
    "over_limit",
    "sold_out",
    "no_such_claim",
    "released",
    "already_paid",
    "not_ordered",
    "payment_conflict",
    "request_conflict",
    "pool_exists",
    "cannot_restock",
    "pool_in_use",
    "cleared",
];

/// What a reply is, in a word.
fn kind(reply: &Reply) -> String {
    fn of<T>(outcome: &Outcome<T>, what: impl Fn(&T) -> &'static str) -> String {
        match outcome {
            Outcome::Done(value) => format!("{} done", what(value)),
            Outcome::Replayed(value) => format!("{} replayed", what(value)),
            Outcome::Refused(refusal) => refusal.code().to_owned(),
        }
    }
    match reply {
        Reply::Pool(outcome) => of(outcome, |_| "pool"),
        Reply::Claim(outcome) => of(outcome, |_| "claim"),
        Reply::Settlement(outcome) => of(outcome, |settlement| match settlement {
            Settlement::Paid(_) => "paid",
            Settlement::Regranted(_) => "regranted",
            Settlement::RefundDue(_) => "refund",
        }),
    }
}

fn terms(id: PoolId) -> Terms {
    let hold = Flow::Hold { hold_ms: 50, pay_ms: 50 };
    match id.get() {
        1 => sale(3, hold),
        2 => Terms { limit_per_user: 2, ..sale(5, Flow::Order { pay_ms: 50 }) },
        3 => Terms { limit_by: LimitBy::Identity, ..sale(2, Flow::Instant) },
        _ => Terms { opens_at: Timestamp::from_millis(500), ..sale(2, Flow::Instant) },
    }
}

fn open(id: u64) -> Command {
    Command::Open { pool: pool(id), terms: Arc::new(terms(pool(id))) }
}

fn claim(id: u64, user: &str, request: Option<&str>) -> Command {
    Command::Claim(wish(pool(id), user, request))
}

fn several(id: u64, user: &str, request: Option<&str>, units: u32) -> Command {
    let quantity = NonZeroU32::new(units).expect("positive");
    Command::Claim(ClaimRequest { quantity, ..wish(pool(id), user, request) })
}

fn number(id: u64, number: u32) -> ClaimId {
    ClaimId { pool: pool(id), number }
}

fn order(id: u64, claim: u32, by: Option<&str>) -> Command {
    let by = by.map(|user| UserId::new(user).expect("an id"));
    Command::Order { claim: number(id, claim), by }
}

fn release(id: u64, claim: u32) -> Command {
    Command::Release { claim: number(id, claim), by: None, reason: ReleaseReason::GaveUp }
}

fn revoke(id: u64, claim: u32) -> Command {
    Command::Revoke { claim: number(id, claim) }
}

fn pay(id: u64, claim: u32, payment: &str) -> Command {
    Command::Pay(money(number(id, claim), payment))
}

fn pay_amount(id: u64, claim: u32, payment: &str, amount: i64) -> Command {
    let payment = PaymentId::new(payment).expect("an id");
    Command::Pay(PayRequest { order: number(id, claim), payment, amount: Cents::new(amount) })
}

fn restock(id: u64, units: u32, request: &str) -> Command {
    let request = RequestId::new(request).expect("an id");
    Command::Restock { pool: pool(id), units: NonZeroU32::new(units).expect("positive"), request }
}

/// When, what, and what must come of it.
fn table() -> Vec<(i64, Command, &'static str)> {
    let mut known = wish(pool(3), "ann", None);
    known.identity = Some(Identity::new("person").expect("an id"));
    let other = Terms { title: "Other".into(), ..terms(pool(1)) };
    vec![
        (0, claim(1, "ann", None), "no_such_pool"),
        (0, Command::Close { pool: pool(1) }, "no_such_pool"),
        (0, order(1, 1, None), "no_such_claim"),
        (0, open(1), "pool done"),
        (0, open(1), "pool replayed"),
        (0, Command::Open { pool: pool(1), terms: Arc::new(other) }, "pool_exists"),
        (0, open(4), "pool done"),
        (0, claim(4, "ann", None), "not_open_yet"),
        (0, claim(1, "ann", Some("r")), "claim done"),
        (1, claim(1, "ann", Some("r")), "claim replayed"),
        (1, several(1, "ann", Some("r"), 2), "request_conflict"),
        (1, claim(1, "ann", None), "already_claimed"),
        (1, several(1, "bob", None, 2), "over_limit"),
        (1, claim(1, "bob", None), "claim done"),
        (1, claim(1, "cyd", None), "claim done"),
        (1, claim(1, "dan", None), "sold_out"),
        (2, pay(1, 1, "P1"), "not_ordered"),
        (2, order(1, 1, Some("bob")), "no_such_claim"),
        (2, order(1, 1, Some("ann")), "claim done"),
        (2, order(1, 1, Some("ann")), "claim replayed"),
        (2, pay(1, 1, "P1"), "paid done"),
        (3, pay(1, 1, "P1"), "paid replayed"),
        (3, pay_amount(1, 1, "P1", 99), "payment_conflict"),
        (3, pay(1, 1, "P2"), "refund done"),
        (4, pay(1, 1, "P2"), "refund replayed"),
        (4, release(1, 1), "already_paid"),
        (4, release(1, 2), "claim done"),
        (4, release(1, 2), "claim replayed"),
        (4, order(1, 2, None), "released"),
        (4, restock(1, 1, "s"), "pool done"),
        (4, restock(1, 1, "s"), "pool replayed"),
        (4, restock(1, 2, "s"), "request_conflict"),
        (4, restock(1, u32::MAX, "t"), "cannot_restock"),
        (4, open(2), "pool done"),
        (4, several(2, "ann", None, 2), "claim done"),
        (4, pay_amount(2, 1, "P3", 200), "paid done"),
        (4, claim(2, "bob", None), "claim done"),
        (60, pay(2, 2, "P4"), "regranted done"),
        (60, pay(2, 2, "P4"), "regranted replayed"),
        (60, pay_amount(2, 2, "P5", 1), "refund done"),
        (60, pay(2, 1, "P4"), "payment_conflict"),
        (60, revoke(1, 2), "released"),
        (60, revoke(1, 3), "released"),
        (60, revoke(1, 1), "claim done"),
        (60, revoke(1, 1), "claim replayed"),
        (60, pay(1, 1, "P1"), "refund replayed"),
        (60, pay(1, 1, "P7"), "refund done"),
        (60, revoke(2, 3), "claim done"),
        (60, pay(2, 2, "P4"), "refund replayed"),
        (60, open(3), "pool done"),
        (60, claim(3, "ann", None), "not_eligible"),
        (60, Command::Claim(known), "claim done"),
        (60, Command::Clear { pool: pool(3) }, "pool_in_use"),
        (60, Command::Refund(money(number(3, 1), "P6")), "pool_in_use"),
        (60, Command::Close { pool: pool(3) }, "pool done"),
        (60, Command::Close { pool: pool(3) }, "pool replayed"),
        (60, claim(3, "bob", None), "closed"),
        (60, restock(3, 1, "u"), "closed"),
        (60, Command::Clear { pool: pool(3) }, "pool done"),
        (60, Command::Clear { pool: pool(3) }, "pool replayed"),
        (60, order(3, 1, None), "cleared"),
        (60, pay(3, 1, "P6"), "cleared"),
        (60, Command::Refund(money(number(3, 1), "P6")), "refund done"),
        (60, Command::Refund(money(number(3, 1), "P6")), "refund replayed"),
        (60, open(3), "pool_exists"),
    ]
}

#[tokio::test]
async fn p13_every_kind_of_reply_arrives_as_what_it_was() {
    for url in [shared::redis(), shared::valkey()].into_iter().flatten() {
        let subject = fresh(&url).await;
        let mut oracle = Oracle::default();
        let mut seen = BTreeSet::new();
        for (at, command, wanted) in table() {
            let at = Timestamp::from_millis(at);
            oracle.expire(at);
            subject.set_time(at).await.expect("a clock can be set");
            let reply = subject.ask(command.clone()).await.expect("nothing fails here");
            assert_eq!(kind(&reply), wanted, "{command:?}");
            assert_eq!(reply, oracle.handle(&command, at), "{command:?}");
            seen.insert(wanted);
        }
        for code in CODES {
            assert!(seen.contains(code), "nothing is refused as {code}");
        }
    }
}
