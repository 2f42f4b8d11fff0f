//! How fast events become rows, on each database, beside a bare multi-row INSERT of the same rows
//! into the same tables in one transaction, which is the most the database could do.
//!
//! `cargo bench -p qiang-store` prints claims per second; a claim is three rows and an index entry
//! when it is granted, and two updates and a payment when it is paid. Rounds of the two alternate,
//! so that both meet the same weather. `--quick` takes fewer claims. Servers are named by
//! `QIANG_TEST_MYSQL` and `QIANG_TEST_POSTGRES`; without one its part is skipped.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use qiang_core::{
    Cents, Claim, ClaimId, Event, Flow, Kind, LimitBy, PaymentId, PoolChange, PoolId, PoolState,
    Reclaim, RequestId, State, Supply, Terms, Timestamp, UserId,
};
use qiang_sql::scratch::{Scratch, available};
use qiang_sql::{Database, Dialect, Existing, Insert, Params, Table};
use qiang_store::{Order, Store};

const CLAIMS: u32 = 100_000;
const QUICK_CLAIMS: u32 = 20_000;
const ROUNDS: usize = 3;
/// Events in one batch, as a consumer reads them from the log.
const BATCH: usize = 10_000;
/// What a claim comes to when it is granted: itself, its order, and the line of its order.
const ROWS_OF_A_CLAIM: f64 = 3.0;
const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const PAY_MS: u64 = 1_800_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let quick = std::env::args().any(|arg| arg == "--quick");
    let claims = if quick { QUICK_CLAIMS } else { CLAIMS };
    let pool = opened(claims)?;
    let granted: Vec<Claim> = (1..=claims).map(|n| claim(pool.id, n)).collect::<Result<_, _>>()?;
    let paid: Vec<Claim> = granted.iter().map(paid).collect::<Result<_, _>>()?;
    for dialect in Dialect::ALL {
        if available(dialect) {
            measure(dialect, &pool, &granted, &paid).await?;
        } else {
            println!("{dialect:<9} skipped: no server");
        }
    }
    Ok(())
}

async fn measure(
    dialect: Dialect,
    pool: &PoolState,
    granted: &[Claim],
    paid: &[Claim],
) -> anyhow::Result<()> {
    let mut times: [Vec<Duration>; 4] = Default::default();
    for round in 0..ROUNDS {
        // Whoever goes second finds the caches warm; so they take turns.
        if round % 2 == 0 {
            times[0].push(bare_insert(dialect, pool, granted).await?);
        }
        let scratch = Scratch::new(dialect).await;
        let store = migrated(&scratch).await?;
        store.project("embedded", 0, 1, &[Event::Pool(pool.clone())]).await?;
        let mut at = 1;
        for (times, claims) in times[1..].iter_mut().zip([granted, granted, paid]) {
            times.push(project(&store, &mut at, claims).await?);
        }
        store.close().await;
        if round % 2 == 1 {
            times[0].push(bare_insert(dialect, pool, granted).await?);
        }
    }
    let [bare, first, again, later] = times.map(median);
    report(dialect, "bare INSERT", granted, bare, None);
    report(dialect, "project, granted", granted, first, Some(bare));
    // These write other rows than the bare INSERT, so there is nothing to compare them with.
    report(dialect, "project, granted again", granted, again, None);
    report(dialect, "project, paid", granted, later, None);
    Ok(())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn report(dialect: Dialect, what: &str, claims: &[Claim], took: Duration, bare: Option<Duration>) {
    let rate = claims.len() as f64 / took.as_secs_f64();
    let rows = rate * ROWS_OF_A_CLAIM;
    let ratio = bare.map(|bare| bare.as_secs_f64() / took.as_secs_f64());
    let ratio = ratio.map(|ratio| format!("  {ratio:.2} of bare")).unwrap_or_default();
    let dialect = dialect.as_str();
    println!("{dialect:<9} {what:<24} {rate:>9.0} claims/s {rows:>9.0} rows/s{ratio}");
}

async fn migrated(scratch: &Scratch) -> anyhow::Result<Store> {
    let store = Store::open(scratch.url()).await?;
    store.migrate().await?;
    Ok(store)
}

async fn project(store: &Store, at: &mut u64, claims: &[Claim]) -> anyhow::Result<Duration> {
    let batches: Vec<Vec<Event>> = claims
        .chunks(BATCH)
        .map(|batch| batch.iter().cloned().map(Event::Claim).collect())
        .collect();
    let start = Instant::now();
    for batch in &batches {
        let through = *at + batch.len() as u64;
        store.project("embedded", *at, through, batch).await?;
        *at = through;
    }
    Ok(start.elapsed())
}

fn opened(claims: u32) -> anyhow::Result<PoolState> {
    let terms = Terms {
        kind: Kind::Sale,
        title: "Phone, 512 GB, black".into(),
        sku: "PHONE-512-BLACK".into(),
        supply: Supply::Units(claims),
        limit_per_user: 1,
        limit_by: LimitBy::User,
        price: Cents::new(499_900),
        price_steps: Vec::new(),
        opens_at: NOW,
        closes_at: None,
        flow: Flow::Order { pay_ms: PAY_MS },
        reclaim: Reclaim::Allowed,
        buckets: 1,
    };
    Ok(PoolState {
        id: PoolId::new(7_250_000_000_000_001).context("a positive id")?,
        version: 1,
        change: PoolChange::Opened,
        total: terms.units(),
        terms: Arc::new(terms),
        closed_at: None,
        at: NOW,
    })
}

fn claim(pool: PoolId, number: u32) -> anyhow::Result<Claim> {
    // Users come in no order, which is the hard case for the indexes.
    let user = u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 24;
    let at = NOW.plus_millis(u64::from(number) / 100);
    Ok(Claim {
        kind: Kind::Sale,
        id: ClaimId { pool, number },
        user: UserId::new(&format!("u{user}"))?,
        identity: None,
        request: Some(RequestId::new(&format!("{user:016x}"))?),
        quantity: 1,
        unit_price: Cents::new(499_900),
        portion: None,
        state: State::Ordered,
        version: 1,
        created_at: at,
        changed_at: at,
        hold_until: None,
        pay_by: Some(at.plus_millis(PAY_MS)),
        payment: None,
        replaces: None,
        reason: None,
    })
}

fn paid(claim: &Claim) -> anyhow::Result<Claim> {
    Ok(Claim {
        state: State::Paid,
        version: 2,
        changed_at: claim.changed_at.plus_millis(60_000),
        payment: Some(PaymentId::new(&format!("pay-{}", claim.user))?),
        ..claim.clone()
    })
}

static CLAIM: Insert = Insert::new(
    &Table {
        name: "claims",
        key: "sale_id, number",
        fixed: "user_id, identity, request_id, quantity, unit_price_cents, \"portion\"",
        changing: "state, version, created_at, changed_at, hold_until, pay_by, payment_id, \
            replaces, reason",
    },
    Existing::IsAnError,
);
static ORDER: Insert = Insert::new(
    &Table {
        name: "orders",
        key: "sale_id, number",
        fixed: "user_id, status, amount_cents, created_at, pay_by",
        changing: "paid_at, cancelled_at, version",
    },
    Existing::IsAnError,
);
static ITEM: Insert = Insert::new(
    &Table {
        name: "order_items",
        key: "sale_id, number, line",
        fixed: "sku, title, quantity, unit_price_cents",
        changing: "",
    },
    Existing::IsAnError,
);

/// The rows of `claims`, with nothing around them.
async fn bare_insert(
    dialect: Dialect,
    pool: &PoolState,
    claims: &[Claim],
) -> anyhow::Result<Duration> {
    let scratch = Scratch::new(dialect).await;
    let store = migrated(&scratch).await?;
    store.upsert(&[Event::Pool(pool.clone())]).await?;
    store.close().await;
    let orders: Vec<Order> = claims.iter().filter_map(|c| Order::of(c, &pool.terms)).collect();

    let database = Database::open(scratch.url()).await?;
    let start = Instant::now();
    let mut tx = database.begin().await?;
    CLAIM.run(&mut tx, claims, bind_claim).await?;
    ORDER.run(&mut tx, &orders, bind_order).await?;
    ITEM.run(&mut tx, &orders, bind_item).await?;
    tx.commit().await?;
    let took = start.elapsed();
    database.close().await;
    Ok(took)
}

fn bind_claim(params: &mut Params, claim: &Claim) {
    params
        .add(claim.id.pool.get().cast_signed())
        .add(claim.id.number)
        .add(claim.user.as_str())
        .add(None::<&str>)
        .add(claim.request.as_ref().map(RequestId::as_str))
        .add(claim.quantity)
        .add(claim.unit_price.get())
        .add(None::<i64>)
        .add(claim.state.as_str())
        .add(claim.version)
        .add(claim.created_at.millis())
        .add(claim.changed_at.millis())
        .add(None::<i64>)
        .add(claim.pay_by.map(|at| at.millis()))
        .add(None::<&str>)
        .add(None::<i64>)
        .add(None::<&str>);
}

fn bind_order(params: &mut Params, order: &Order) {
    params
        .add(order.id.pool.get().cast_signed())
        .add(order.id.number)
        .add(order.user.as_str())
        .add(order.status.as_str())
        .add(order.amount.get())
        .add(order.created_at.millis())
        .add(order.pay_by.map(|at| at.millis()))
        .add(None::<i64>)
        .add(None::<i64>)
        .add(order.version);
}

fn bind_item(params: &mut Params, order: &Order) {
    let item = order.items.first();
    params
        .add(order.id.pool.get().cast_signed())
        .add(order.id.number)
        .add(1_i64)
        .add(item.map(|item| &item.sku))
        .add(item.map(|item| &item.title))
        .add(item.map(|item| item.quantity))
        .add(item.map(|item| item.unit_price.get()));
}
