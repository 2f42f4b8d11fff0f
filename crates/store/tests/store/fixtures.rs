//! Databases that vanish, sales of every kind, histories of claims, and all the tables at once.

use std::sync::Arc;

use qiang_core::{
    Cents, Claim, ClaimId, Event, Flow, Kind, LimitBy, PaymentId, PoolChange, PoolId, PoolState,
    PriceStep, Reclaim, Refund, RefundReason, ReleaseReason, RequestId, State, Supply, Terms,
    Timestamp, UserId,
};
use qiang_sql::scratch::Scratch;
use qiang_sql::{Database, Dialect, Statement, Value};
use qiang_store::{Order, Payment, RefundRecord, Sale, Store};

pub(crate) const T0: Timestamp = Timestamp::from_millis(1_800_000_000_000);
pub(crate) const PAY_MS: u64 = 1_800_000;
pub(crate) const HOLD_MS: u64 = 300_000;

/// A migrated store with a database of its own.
pub(crate) struct Db {
    pub(crate) store: Store,
    pub(crate) url: String,
    /// Another way to the same database.
    pub(crate) behind: Database,
    _scratch: Scratch,
}

impl Db {
    pub(crate) async fn new(on: Dialect) -> Self {
        let scratch = Scratch::new(on).await;
        let store = Store::open(scratch.url()).await.expect("opens");
        store.migrate().await.expect("migrates");
        let behind = Database::open(scratch.url()).await.expect("opens");
        Self { store, url: scratch.url().to_owned(), behind, _scratch: scratch }
    }

    /// Runs SQL behind the store's back.
    pub(crate) async fn tamper(&self, sql: &str, values: &[Value<'_>]) {
        let sql = Statement::built(sql.to_owned());
        self.behind.execute(&sql, values).await.expect("valid SQL");
    }

    /// Forgets everything; quicker than a new one.
    pub(crate) async fn clear(&self) {
        let tables = "reviews payment_ids refunds payments order_items orders claims sales \
                      consumer_positions settings leases";
        for table in tables.split(' ') {
            self.tamper(&format!("DELETE FROM {table}"), &[]).await;
        }
    }
}

/// Everything on record, read in pages so small that paging matters.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Records {
    pub(crate) sales: Vec<Sale>,
    pub(crate) claims: Vec<Claim>,
    pub(crate) orders: Vec<Order>,
    pub(crate) payments: Vec<Payment>,
    pub(crate) refunds: Vec<RefundRecord>,
}

impl Records {
    pub(crate) async fn of(store: &Store) -> Self {
        const PAGE: u32 = 7;
        let mut all = Self {
            sales: Vec::new(),
            claims: Vec::new(),
            orders: Vec::new(),
            payments: Vec::new(),
            refunds: Vec::new(),
        };
        macro_rules! drain {
            ($into:expr, $last:ident => $after:expr, $read:expr) => {{
                let mut $last = None;
                loop {
                    let after = $after;
                    let page: Vec<_> = $read(after).await.expect("readable");
                    let Some(end) = page.last() else { break };
                    $last = Some(end.clone());
                    $into.extend(page);
                }
            }};
        }
        drain!(all.sales, last => last.map(|sale: Sale| sale.id), |a| store.sales_page(a, PAGE));
        for pool in all.sales.iter().map(|sale| sale.id) {
            drain!(all.claims, last => last.map_or(0, |claim: Claim| claim.id.number),
                |after| store.claims_page(pool, after, PAGE));
            drain!(all.orders, last => last.map_or(0, |order: Order| order.id.number),
                |after| store.orders_page(pool, after, PAGE));
            drain!(all.payments, last => last.map(|payment: Payment| payment.payment),
            async |after: Option<PaymentId>| {
                store.payments_page(pool, after.as_ref(), PAGE).await
            });
            drain!(all.refunds, last => last.map(|record: RefundRecord| record.refund.payment),
            async |after: Option<PaymentId>| {
                store.refunds_page(pool, after.as_ref(), PAGE).await
            });
        }
        all
    }
}

/// Random enough to shuffle, and the same every time.
pub(crate) struct Lcg(pub(crate) u64);

impl Lcg {
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % n
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

pub(crate) fn pool_id(id: u64) -> PoolId {
    PoolId::new(id).expect("positive")
}

pub(crate) fn claim_id(pool: PoolId, number: u32) -> ClaimId {
    ClaimId { pool, number }
}

pub(crate) fn user(name: &str) -> UserId {
    UserId::new(name).expect("a user id")
}

pub(crate) fn payment(id: &str) -> PaymentId {
    PaymentId::new(id).expect("a payment id")
}

pub(crate) fn terms(flow: Flow) -> Terms {
    Terms {
        kind: Kind::Sale,
        title: "茅台 53° 500 ml".into(),
        sku: "MT-53".into(),
        supply: Supply::Units(1_000),
        limit_per_user: 2,
        limit_by: LimitBy::User,
        price: Cents::new(149_900),
        price_steps: Vec::new(),
        opens_at: T0,
        closes_at: None,
        flow,
        reclaim: Reclaim::Allowed,
        buckets: 1,
    }
}

/// Terms of every kind: each flow, each supply, each limit, prices that rise, all the bounds.
pub(crate) fn all_kinds_of_terms() -> Vec<Terms> {
    let order = Flow::Order { pay_ms: PAY_MS };
    let portions = (1..=500).map(Cents::new).collect();
    let year = 366 * 24 * 3_600_000;
    let step = |after_sold, price| PriceStep { after_sold, price: Cents::new(price) };
    let all = vec![
        terms(Flow::Instant),
        terms(order),
        terms(Flow::Hold { hold_ms: HOLD_MS, pay_ms: PAY_MS }),
        terms(Flow::Hold { hold_ms: year, pay_ms: year }),
        Terms { supply: Supply::Portions(portions), ..terms(Flow::Instant) },
        Terms { limit_by: LimitBy::Identity, reclaim: Reclaim::Never, ..terms(order) },
        Terms { price_steps: vec![step(10, 150_000), step(20, 1_000_000_000)], ..terms(order) },
        Terms { supply: Supply::Units(1 << 31), limit_per_user: 1 << 31, ..terms(order) },
        Terms { closes_at: Some(T0.plus_millis(1)), price: Cents::ZERO, ..terms(order) },
        Terms { buckets: 64, ..terms(order) },
        Terms { title: "\"'; DROP TABLE sales; --".into(), sku: "🧧".into(), ..terms(order) },
    ];
    for terms in &all {
        terms.check().expect("terms an engine would take");
    }
    all
}

pub(crate) fn opened(id: u64, terms: Terms) -> PoolState {
    PoolState {
        id: pool_id(id),
        version: 1,
        change: PoolChange::Opened,
        total: terms.units(),
        terms: Arc::new(terms),
        closed_at: None,
        at: T0,
    }
}

/// The pool after one more change, a minute later.
pub(crate) fn then(pool: &PoolState, change: PoolChange) -> PoolState {
    let at = pool.at.plus_millis(60_000);
    let units = if let PoolChange::Restocked { units, .. } = change { units } else { 0 };
    let closed_at = if change == PoolChange::Closed { Some(at) } else { pool.closed_at };
    let (version, total) = (pool.version + 1, pool.total + units);
    PoolState { version, change, total, closed_at, at, ..pool.clone() }
}

pub(crate) fn restocked(units: u32) -> PoolChange {
    PoolChange::Restocked { units, request: RequestId::new("restock-1").expect("an id") }
}

/// A claim as it is granted, one second after the one before it.
pub(crate) fn granted(pool: &PoolState, number: u32, name: &str) -> Claim {
    let at = T0.plus_millis(u64::from(number) * 1_000);
    let (state, hold_until, pay_by) = match pool.terms.flow {
        Flow::Instant => (State::Paid, None, None),
        Flow::Order { pay_ms } => (State::Ordered, None, Some(at.plus_millis(pay_ms))),
        Flow::Hold { hold_ms, .. } => (State::Held, Some(at.plus_millis(hold_ms)), None),
    };
    let (portion, unit_price) = match &pool.terms.supply {
        Supply::Units(_) => (None, pool.terms.price),
        Supply::Portions(cut) => (Some(number - 1), cut[number as usize - 1]),
    };
    Claim {
        kind: pool.terms.kind,
        id: claim_id(pool.id, number),
        user: user(name),
        identity: None,
        request: None,
        quantity: 1,
        unit_price,
        portion,
        state,
        version: 1,
        created_at: at,
        changed_at: at,
        hold_until,
        pay_by,
        payment: None,
        replaces: None,
        reason: None,
    }
}

fn next(claim: &Claim, state: State) -> Claim {
    let changed_at = claim.changed_at.plus_millis(30_000);
    Claim { state, version: claim.version + 1, changed_at, ..claim.clone() }
}

pub(crate) fn ordered(claim: &Claim) -> Claim {
    let claim = next(claim, State::Ordered);
    Claim { pay_by: Some(claim.changed_at.plus_millis(PAY_MS)), ..claim }
}

pub(crate) fn paid(claim: &Claim, id: &str) -> Claim {
    Claim { payment: Some(payment(id)), ..next(claim, State::Paid) }
}

pub(crate) fn released(claim: &Claim, reason: ReleaseReason) -> Claim {
    Claim { reason: Some(reason), ..next(claim, State::Released) }
}

pub(crate) fn refund(order: ClaimId, id: &str) -> Refund {
    Refund {
        order,
        payment: payment(id),
        amount: Cents::new(149_900),
        reason: RefundReason::Late,
        at: T0.plus_millis(u64::from(order.number) * 1_000),
    }
}

/// Some sales and what happened in them, in the order of the log.
pub(crate) fn history(dice: &mut Lcg, claims_of_each: u32) -> Vec<Event> {
    let flows = [
        Flow::Instant,
        Flow::Order { pay_ms: PAY_MS },
        Flow::Hold { hold_ms: HOLD_MS, pay_ms: PAY_MS },
    ];
    let mut log = Vec::new();
    for (id, flow) in (1..).zip(flows) {
        let pool = opened(id, terms(flow));
        log.push(Event::Pool(pool.clone()));
        for number in 1..=claims_of_each {
            let mut claim = granted(&pool, number, &format!("user-{}", dice.below(20)));
            log.push(Event::Claim(claim.clone()));
            let order = claim.id;
            while let State::Held | State::Ordered = claim.state {
                let name = format!("pay-{order}");
                claim = match (claim.state, dice.below(4)) {
                    (_, 0) => break,
                    (_, 1) => {
                        log.push(Event::Refund(refund(order, &name)));
                        released(&claim, ReleaseReason::PayExpired)
                    }
                    (State::Held, _) => ordered(&claim),
                    _ => paid(&claim, &name),
                };
                log.push(Event::Claim(claim.clone()));
            }
            if claim.payment.is_some() && dice.below(4) == 0 {
                log.push(Event::Claim(released(&claim, ReleaseReason::Revoked)));
            }
        }
        let pool = then(&pool, restocked(5));
        let closed = then(&pool, PoolChange::Closed);
        let cleared = then(&closed, PoolChange::Cleared);
        log.extend([pool, closed, cleared].map(Event::Pool));
    }
    log
}
