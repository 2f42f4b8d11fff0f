//! What every engine must pass, whatever it is built on.
//!
//! An engine is put to the test through [`Subject`]; each function here takes a fresh one.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::Future;
use std::num::NonZeroU32;
use std::sync::Arc;

use qiang_core::{
    Cents, ClaimId, ClaimRequest, Command, Event, Flow, Kind, LimitBy, Outcome, PayRequest,
    PaymentId, PoolId, PoolView, Reclaim, RefundReason, Refusal, ReleaseReason, Reply, RequestId,
    Settlement, State, Supply, Terms, Timestamp, UserId,
};

use crate::{Generator, Oracle};

/// An engine under test, with a clock that the test moves.
pub trait Subject {
    /// What it fails with; here nothing may fail.
    type Error: Debug;

    /// Decides a command.
    fn ask(&self, command: Command) -> impl Future<Output = Result<Reply, Self::Error>>;

    /// A pool as it is.
    fn pool(&self, id: PoolId) -> impl Future<Output = Result<Option<PoolView>, Self::Error>>;

    /// A claim as it is.
    fn claim(
        &self,
        id: ClaimId,
    ) -> impl Future<Output = Result<Option<qiang_core::Claim>, Self::Error>>;

    /// The pools of a kind, newest first.
    fn pools(&self, kind: Kind) -> impl Future<Output = Result<Vec<PoolView>, Self::Error>>;

    /// All durable events. Those of one pool are in order; pools may be mixed in any way.
    fn events(&self) -> impl Future<Output = Result<Vec<Event>, Self::Error>>;

    /// Sets the clock and waits until everything overdue is released.
    fn set_time(&self, now: Timestamp) -> impl Future<Output = Result<(), Self::Error>>;
}

/// Random commands: answers, events and views are the oracle's.
pub async fn answers_as_the_oracle(subject: &impl Subject, seed: u64, commands: usize) {
    let mut generator = Generator::new(seed);
    let mut oracle = Oracle::default();
    let mut clock = Timestamp::from_millis(0);
    let mut latest = clock;
    subject.set_time(clock).await.expect("a clock can be set");
    for _ in 0..commands {
        clock = generator.tick(&oracle, clock);
        // Time as the rules see it never goes back.
        latest = latest.max(clock);
        oracle.expire(latest);
        subject.set_time(clock).await.expect("a clock can be set");
        let command = generator.command(&oracle);
        let wanted = oracle.handle(&command, latest);
        let got = subject.ask(command.clone()).await.expect("nothing fails here");
        assert_eq!(got, wanted, "{command:?}");
        let events = subject.events().await.expect("the log can be read");
        assert_eq!(by_pool(&events), by_pool(oracle.log()), "{command:?}");
    }
    for kind in Kind::ALL {
        let mut listed = subject.pools(kind).await.expect("pools can be listed");
        listed.sort_by_key(|pool| pool.id);
        let views = oracle.pools().into_iter().filter_map(|pool| oracle.view(pool));
        let mut wanted: Vec<_> = views.filter(|pool| pool.terms.kind == kind).collect();
        wanted.sort_by_key(|pool| pool.id);
        assert_eq!(listed, wanted, "{kind:?}");
    }
    for pool in oracle.pools() {
        let view = subject.pool(pool).await.expect("a pool can be read");
        assert_eq!(view, oracle.view(pool));
        for claim in oracle.claims(pool) {
            let stored = subject.claim(claim.id).await.expect("a claim can be read");
            assert_eq!(stored.as_ref(), Some(claim));
        }
    }
    for pool in oracle.forgotten() {
        assert_eq!(subject.pool(*pool).await.expect("a pool can be read"), None, "{pool}");
    }
}

/// The events of each pool, in order.
fn by_pool(events: &[Event]) -> BTreeMap<PoolId, Vec<&Event>> {
    let mut pools = BTreeMap::<_, Vec<_>>::new();
    for event in events {
        pools.entry(event.pool()).or_default().push(event);
    }
    pools
}

/// One sale from its opening to its clearing, with what each step must show.
pub async fn a_sale_from_opening_to_clearing(subject: &impl Subject) {
    let pool = PoolId::new(1).expect("positive");
    subject.set_time(at(0)).await.expect("a clock can be set");
    let terms = Arc::new(sale(2, Flow::Hold { hold_ms: 50, pay_ms: 100 }));
    let opened = subject.ask(Command::Open { pool, terms: Arc::clone(&terms) }).await;
    assert!(matches!(opened, Ok(Reply::Pool(Outcome::Done(view))) if view.available == 2));
    let ann = granted(subject, wish(pool, "ann", Some("a"))).await;
    assert_eq!((ann.number, ann.pool), (1, pool));
    let bob = granted(subject, wish(pool, "bob", None)).await;
    assert_eq!(refused(subject, wish(pool, "cyd", None)).await, Refusal::SoldOut);
    let again = subject.ask(Command::Claim(wish(pool, "ann", Some("a")))).await;
    assert!(matches!(again, Ok(Reply::Claim(Outcome::Replayed(claim))) if claim.id == ann));
    let twice = refused(subject, wish(pool, "ann", None)).await;
    assert_eq!(twice, Refusal::AlreadyClaimed { claim: ann });
    let ordered = subject.ask(Command::Order { claim: ann, by: None }).await;
    assert!(matches!(ordered, Ok(Reply::Claim(Outcome::Done(c))) if c.state == State::Ordered));
    subject.set_time(at(50)).await.expect("a clock can be set");
    let expired = subject.claim(bob).await.expect("a claim can be read").expect("it is there");
    assert_eq!(expired.state, State::Released);
    assert_eq!(expired.reason, Some(ReleaseReason::HoldExpired));
    let paid = subject.ask(Command::Pay(money(ann, "P1"))).await;
    assert!(matches!(paid, Ok(Reply::Settlement(Outcome::Done(Settlement::Paid(_))))));
    let paid = subject.ask(Command::Pay(money(ann, "P1"))).await;
    assert!(matches!(paid, Ok(Reply::Settlement(Outcome::Replayed(Settlement::Paid(_))))));
    let closed = subject.ask(Command::Close { pool }).await;
    assert!(matches!(closed, Ok(Reply::Pool(Outcome::Done(view))) if view.closed_at.is_some()));
    assert_eq!(refused(subject, wish(pool, "cyd", None)).await, Refusal::Closed);
    let cleared = subject.ask(Command::Clear { pool }).await;
    assert!(matches!(cleared, Ok(Reply::Pool(Outcome::Done(view))) if view.cleared));
    let reopened = subject.ask(Command::Open { pool, terms }).await;
    assert!(matches!(reopened, Ok(Reply::Pool(Outcome::Refused(Refusal::PoolExists)))));
    let kinds: Vec<&str> =
        subject.events().await.expect("the log can be read").iter().map(Event::name).collect();
    assert_eq!(
        kinds,
        [
            "pool_opened",
            "claim_granted",
            "claim_granted",
            "claim_ordered",
            "claim_released",
            "claim_paid",
            "pool_closed",
            "pool_cleared",
        ]
    );
}

/// Money that comes too late buys anew while it can, and goes back when it cannot; each once.
pub async fn late_money_is_never_lost(subject: &impl Subject) {
    let pool = PoolId::new(1).expect("positive");
    subject.set_time(at(0)).await.expect("a clock can be set");
    let terms = Arc::new(sale(1, Flow::Order { pay_ms: 100 }));
    subject.ask(Command::Open { pool, terms }).await.expect("nothing fails here");
    let ann = granted(subject, wish(pool, "ann", None)).await;
    subject.set_time(at(100)).await.expect("a clock can be set");
    let bob = granted(subject, wish(pool, "bob", None)).await;
    for seen in [Outcome::Done, Outcome::Replayed] {
        let back = subject.ask(Command::Pay(money(ann, "P1"))).await.expect("nothing fails here");
        let Reply::Settlement(Outcome::Done(due) | Outcome::Replayed(due)) = &back else {
            panic!("{back:?}")
        };
        assert!(matches!(due, Settlement::RefundDue(r) if r.reason == RefundReason::Late));
        assert_eq!(back, Reply::Settlement(seen(due.clone())));
    }
    subject.set_time(at(200)).await.expect("a clock can be set");
    let anew = subject.ask(Command::Pay(money(bob, "P2"))).await.expect("nothing fails here");
    let Reply::Settlement(Outcome::Done(Settlement::Regranted(claim))) = anew else {
        panic!("{anew:?}")
    };
    assert_eq!((claim.replaces, claim.state), (Some(bob.number), State::Paid));
    let view = subject.pool(pool).await.expect("a pool can be read").expect("it is open");
    assert_eq!((view.available, view.tally.paid), (0, 1));
}

/// A payment id counts once in a sale. Of other sales an engine knows nothing: the same id pays
/// there too, and the records find that out.
pub async fn a_payment_counts_once_in_each_sale(subject: &impl Subject) {
    subject.set_time(at(0)).await.expect("a clock can be set");
    let mut orders = Vec::new();
    for id in 1..=4 {
        let pool = PoolId::new(id).expect("positive");
        let terms = Arc::new(sale(2, Flow::Order { pay_ms: 100 }));
        subject.ask(Command::Open { pool, terms }).await.expect("nothing fails here");
        let ann = granted(subject, wish(pool, "ann", None)).await;
        orders.push((ann, granted(subject, wish(pool, "bob", None)).await));
    }
    for (ann, bob) in &orders {
        let paid = subject.ask(Command::Pay(money(*ann, "P1"))).await;
        let paid = paid.expect("nothing fails here");
        assert!(
            matches!(paid, Reply::Settlement(Outcome::Done(Settlement::Paid(_)))),
            "{ann}: {paid:?}"
        );
        let other = subject.ask(Command::Pay(money(*bob, "P1"))).await;
        let conflict = Reply::Settlement(Outcome::Refused(Refusal::PaymentConflict));
        assert_eq!(other.expect("nothing fails here"), conflict);
    }
    for (ann, _) in &orders {
        let again = subject.ask(Command::Pay(money(*ann, "P1"))).await;
        assert!(matches!(again, Ok(Reply::Settlement(Outcome::Replayed(Settlement::Paid(_))))));
    }
    // Owed back in one sale, it is none of another's business either.
    let (first, second) = (orders[0].0, orders[1].0);
    for order in [first, second] {
        let back = subject.ask(Command::Pay(money(order, "P2"))).await;
        let back = back.expect("nothing fails here");
        assert!(
            matches!(back, Reply::Settlement(Outcome::Done(Settlement::RefundDue(_)))),
            "{order}: {back:?}"
        );
    }
    let paid = subject.ask(Command::Pay(money(orders[2].1, "P2"))).await;
    assert!(matches!(paid, Ok(Reply::Settlement(Outcome::Done(Settlement::Paid(_))))));
}

/// A packet is given away portion by portion, is listed by itself, and to whoever takes it for a sale
/// it is not there.
pub async fn a_packet_is_no_sale(subject: &impl Subject) {
    let [packet, goods, other] = [1, 2, 3].map(|id| PoolId::new(id).expect("positive"));
    let cut = |id: i64| Arc::new(packet_of(&[5, 3, id]));
    for (at_ms, pool, terms) in [
        (1, packet, cut(2)),
        (2, goods, Arc::new(sale(2, Flow::Order { pay_ms: 100 }))),
        (3, other, cut(1)),
    ] {
        subject.set_time(at(at_ms)).await.expect("a clock can be set");
        subject.ask(Command::Open { pool, terms }).await.expect("nothing fails here");
    }
    for (kind, wanted) in [(Kind::Packet, vec![other, packet]), (Kind::Sale, vec![goods])] {
        let listed = subject.pools(kind).await.expect("pools can be listed");
        assert_eq!(listed.iter().map(|pool| pool.id).collect::<Vec<_>>(), wanted);
    }
    let left = async |pool| {
        let view = subject.pool(pool).await.expect("a pool can be read").expect("it is there");
        view.cents_left.map(Cents::get)
    };
    assert_eq!((left(packet).await, left(goods).await), (Some(10), None));
    let grab = |user| ClaimRequest { kind: Kind::Packet, ..wish(packet, user, None) };
    let ann = subject.ask(Command::Claim(grab("ann"))).await.expect("nothing fails here");
    let Reply::Claim(Outcome::Done(ann)) = ann else { panic!("{ann:?}") };
    assert_eq!((ann.kind, ann.unit_price.get(), ann.state), (Kind::Packet, 5, State::Paid));
    assert_eq!(left(packet).await, Some(5));
    let twice = refused(subject, grab("ann")).await;
    assert_eq!(twice, Refusal::AlreadyClaimed { claim: ann.id });
    let bought = granted(subject, wish(goods, "ann", None)).await;
    for round in ["open", "cleared"] {
        let as_sale = refused(subject, wish(packet, "bob", None)).await;
        assert_eq!(as_sale, Refusal::NoSuchPool, "{round}");
        let as_packet = ClaimRequest { kind: Kind::Packet, ..wish(goods, "bob", None) };
        assert_eq!(refused(subject, as_packet).await, Refusal::NoSuchPool, "{round}");
        let none = Outcome::Refused(Refusal::NoSuchClaim);
        let claim = ann.id;
        for (command, wanted) in [
            (Command::Order { claim, by: None }, Reply::Claim(none.clone())),
            (
                Command::Release { claim, by: None, reason: ReleaseReason::GaveUp },
                Reply::Claim(none.clone()),
            ),
            (Command::Revoke { claim }, Reply::Claim(none.clone())),
            (
                Command::Pay(money(claim, "P1")),
                Reply::Settlement(Outcome::Refused(Refusal::NoSuchClaim)),
            ),
            (
                Command::Refund(money(claim, "P1")),
                Reply::Settlement(Outcome::Refused(Refusal::NoSuchClaim)),
            ),
        ] {
            let got = subject.ask(command.clone()).await.expect("nothing fails here");
            assert_eq!(got, wanted, "{round}: {command:?}");
        }
        subject.ask(Command::Close { pool: packet }).await.expect("nothing fails here");
        let cleared = subject.ask(Command::Clear { pool: packet }).await;
        let cleared = cleared.expect("nothing fails here").into_pool();
        let (Outcome::Done(view) | Outcome::Replayed(view)) = cleared else {
            panic!("{cleared:?}")
        };
        assert_eq!(view.cents_left, Some(Cents::ZERO), "{round}");
    }
    for event in subject.events().await.expect("the log can be read") {
        let is_sale = event.pool() == goods;
        assert_eq!(event.kind() == Kind::Sale, is_sale, "{event:?}");
    }
    let paid = subject.ask(Command::Pay(money(bought, "P1"))).await;
    assert!(matches!(paid, Ok(Reply::Settlement(Outcome::Done(Settlement::Paid(_))))));
}

/// Of a pool whose id was made nothing is left once it is cleared, whatever was in it; of one whose id
/// was given by hand it stays known that it was there.
pub async fn a_cleared_pool_leaves_nothing_or_a_tombstone(subject: &impl Subject) {
    subject.set_time(at(0)).await.expect("a clock can be set");
    let made = |id| PoolId::new(PoolId::FIRST_MADE + id).expect("it fits");
    let given = |id| PoolId::new(id).expect("positive");
    let goods = || Arc::new(sale(2, Flow::Order { pay_ms: 100 }));
    for (pool, other) in [(made(1), made(2)), (given(1), given(2))] {
        for pool in [pool, other] {
            let opened = subject.ask(Command::Open { pool, terms: goods() }).await;
            assert!(matches!(opened, Ok(Reply::Pool(Outcome::Done(_)))), "{opened:?}");
        }
        let ann = granted(subject, wish(pool, "ann", Some("a"))).await;
        let bob = granted(subject, wish(pool, "bob", None)).await;
        for pay in [money(ann, "P1"), money(ann, "P2")] {
            subject.ask(Command::Pay(pay)).await.expect("nothing fails here");
        }
        let gives_up = Command::Release { claim: bob, by: None, reason: ReleaseReason::GaveUp };
        subject.ask(gives_up).await.expect("nothing fails here");
        subject.ask(one_more(pool, "r")).await.expect("nothing fails here");
        subject.ask(Command::Close { pool }).await.expect("nothing fails here");
        let cleared = subject.ask(Command::Clear { pool }).await.expect("nothing fails here");
        let Outcome::Done(view) = cleared.into_pool() else { panic!("{pool} was not cleared") };
        assert_eq!((view.cleared, view.available, view.claims), (true, 0, 0));
        let stays = !pool.is_made();
        let refusal = |of: Refusal| if stays { Refusal::Cleared } else { of };
        let shown = subject.pool(pool).await.expect("a pool can be read");
        assert_eq!(shown, stays.then_some(view.clone()));
        let again = refused(subject, wish(pool, "ann", Some("a"))).await;
        assert_eq!(again, refusal(Refusal::NoSuchPool));
        let order = subject.ask(Command::Order { claim: ann, by: None }).await;
        let order = order.expect("nothing fails here").into_claim();
        assert_eq!(order, Outcome::Refused(refusal(Refusal::NoSuchClaim)));
        let pay = subject.ask(Command::Pay(money(ann, "P1"))).await;
        let pay = pay.expect("nothing fails here").into_settlement();
        assert_eq!(pay, Outcome::Refused(refusal(Refusal::NoSuchClaim)));
        let back = subject.ask(Command::Refund(money(ann, "P3"))).await;
        let back = back.expect("nothing fails here").into_settlement();
        assert_eq!(matches!(back, Outcome::Done(Settlement::RefundDue(_))), stays, "{back:?}");
        let twice = subject.ask(Command::Clear { pool }).await.expect("nothing fails here");
        assert_eq!(matches!(twice.into_pool(), Outcome::Replayed(_)), stays);
        assert_eq!(subject.claim(ann).await.expect("a claim can be read"), None);
        let listed = subject.pools(Kind::Sale).await.expect("pools can be listed");
        assert_eq!(listed.iter().any(|listed| listed.id == pool), stays);
        assert!(listed.iter().any(|listed| listed.id == other), "the other one is still there");
        // The one beside it goes on.
        granted(subject, wish(other, "ann", Some("a"))).await;
    }
}

/// A packet of these cents, one portion for each user.
#[must_use]
pub fn packet_of(cut: &[i64]) -> Terms {
    Terms {
        kind: Kind::Packet,
        supply: Supply::Portions(cut.iter().copied().map(Cents::new).collect()),
        price: Cents::ZERO,
        ..sale(1, Flow::Instant)
    }
}

/// A sale of `stock` units at one price, one for each user.
#[must_use]
pub fn sale(stock: u32, flow: Flow) -> Terms {
    Terms {
        kind: Kind::Sale,
        title: "Goods".into(),
        sku: "goods".into(),
        supply: Supply::Units(stock),
        limit_per_user: 1,
        limit_by: LimitBy::User,
        price: Cents::new(100),
        price_steps: Vec::new(),
        opens_at: Timestamp::from_millis(0),
        closes_at: None,
        flow,
        reclaim: Reclaim::Allowed,
        buckets: 1,
    }
}

/// A wish for one unit.
#[must_use]
pub fn wish(pool: PoolId, user: &str, request: Option<&str>) -> ClaimRequest {
    ClaimRequest {
        kind: Kind::Sale,
        pool,
        user: UserId::new(user).expect("a short plain text"),
        identity: None,
        request: request.map(|id| RequestId::new(id).expect("a short plain text")),
        quantity: NonZeroU32::MIN,
    }
}

/// 100 cents for an order.
#[must_use]
pub fn money(order: ClaimId, payment: &str) -> PayRequest {
    let payment = PaymentId::new(payment).expect("a short plain text");
    PayRequest { order, payment, amount: Cents::new(100) }
}

/// One more unit for a pool, however often this is asked.
#[must_use]
pub fn one_more(pool: PoolId, request: &str) -> Command {
    let request = RequestId::new(request).expect("a short plain text");
    Command::Restock { pool, units: NonZeroU32::MIN, request }
}

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

async fn granted(subject: &impl Subject, wish: ClaimRequest) -> ClaimId {
    match subject.ask(Command::Claim(wish)).await.expect("nothing fails here") {
        Reply::Claim(Outcome::Done(claim)) => claim.id,
        other => panic!("it should be granted: {other:?}"),
    }
}

async fn refused(subject: &impl Subject, wish: ClaimRequest) -> Refusal {
    match subject.ask(Command::Claim(wish)).await.expect("nothing fails here") {
        Reply::Claim(Outcome::Refused(refusal)) => refusal,
        other => panic!("it should be refused: {other:?}"),
    }
}
