//! How fast events become rows, beside a bare multi-row INSERT of the same rows into the same
//! tables in one transaction, which is the most the database could do.
//!
//! `cargo bench -p qiang-store` prints claims per second; a claim is three rows and an index
//! entry when it is granted, and two updates and a payment when it is paid.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use qiang_core::{
    Cents, Claim, ClaimId, Event, Flow, LimitBy, PaymentId, PoolChange, PoolId, PoolState, Reclaim,
    RequestId, State, Supply, Terms, Timestamp, UserId,
};
use qiang_store::{Order, Store};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};

const CLAIMS: u32 = 500_000;
/// Events in one batch, as the projector reads them from the log.
const BATCH: usize = 10_000;
/// Rows in one bare statement.
const ROWS: usize = 256;
const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const PAY_MS: u64 = 1_800_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let pool = opened()?;
    let granted: Vec<Claim> = (1..=CLAIMS).map(|n| claim(pool.id, n)).collect::<Result<_, _>>()?;
    let paid: Vec<Claim> = granted.iter().map(paid).collect::<Result<_, _>>()?;

    let bare = bare_insert(&pool, &granted).await?;
    report("bare INSERT, granted", bare, None);

    let folder = tempfile::tempdir()?;
    let store = Store::open(&format!("sqlite:{}", folder.path().join("p.db").display())).await?;
    store.migrate().await?;
    store.project("bench", 0, 1, &[Event::Pool(pool)]).await?;
    let mut at = 1;
    report("project, granted", project(&store, &mut at, &granted).await?, Some(bare));
    report("project, granted again", project(&store, &mut at, &granted).await?, Some(bare));
    report("project, paid", project(&store, &mut at, &paid).await?, Some(bare));
    Ok(())
}

async fn project(store: &Store, at: &mut u64, claims: &[Claim]) -> anyhow::Result<Duration> {
    let batches: Vec<Vec<Event>> = claims
        .chunks(BATCH)
        .map(|batch| batch.iter().cloned().map(Event::Claim).collect())
        .collect();
    let start = Instant::now();
    for batch in &batches {
        let through = *at + batch.len() as u64;
        store.project("bench", *at, through, batch).await?;
        *at = through;
    }
    Ok(start.elapsed())
}

fn report(what: &str, took: Duration, bare: Option<Duration>) {
    let rate = f64::from(CLAIMS) / took.as_secs_f64();
    let ratio = bare.map(|bare| bare.as_secs_f64() / took.as_secs_f64());
    let ratio = ratio.map(|ratio| format!("  {ratio:.2} of bare")).unwrap_or_default();
    println!("{what:<24} {rate:>9.0} claims/s{ratio}");
}

fn opened() -> anyhow::Result<PoolState> {
    let terms = Terms {
        title: "Phone, 512 GB, black".into(),
        sku: "PHONE-512-BLACK".into(),
        supply: Supply::Units(CLAIMS),
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

/// The rows of `claims`, with nothing around them.
async fn bare_insert(pool: &PoolState, claims: &[Claim]) -> anyhow::Result<Duration> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("bare.db");
    let store = Store::open(&format!("sqlite:{}", path.display())).await?;
    store.migrate().await?;
    store.upsert(&[Event::Pool(pool.clone())]).await?;
    store.close().await;
    let orders: Vec<Order> = claims.iter().filter_map(|c| Order::of(c, &pool.terms)).collect();

    let mut connection = SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Normal)
        .pragma("cache_size", "-65536")
        .pragma("temp_store", "MEMORY")
        .disable_statement_logging()
        .connect()
        .await?;
    let start = Instant::now();
    let mut tx = connection.begin().await?;
    insert_claims(&mut tx, claims).await?;
    insert_orders(&mut tx, &orders).await?;
    tx.commit().await?;
    Ok(start.elapsed())
}

async fn insert_claims(tx: &mut SqliteConnection, claims: &[Claim]) -> anyhow::Result<()> {
    for rows in claims.chunks(ROWS) {
        let sql = statement(
            "INSERT INTO claims (sale_id, number, user_id, identity, request_id, quantity,
                unit_price_cents, portion, state, version, created_at, changed_at, hold_until,
                pay_by, payment_id, replaces, reason)",
            17,
            rows.len(),
        );
        let query = rows.iter().fold(sqlx::query(AssertSqlSafe(sql)), |query, c| {
            query
                .bind(c.id.pool.get().cast_signed())
                .bind(i64::from(c.id.number))
                .bind(c.user.as_str())
                .bind(None::<&str>)
                .bind(c.request.as_ref().map(|request| request.as_str().to_owned()))
                .bind(i64::from(c.quantity))
                .bind(c.unit_price.get())
                .bind(None::<i64>)
                .bind(c.state.as_str())
                .bind(i64::from(c.version))
                .bind(c.created_at.millis())
                .bind(c.changed_at.millis())
                .bind(None::<i64>)
                .bind(c.pay_by.map(|at| at.millis()))
                .bind(None::<&str>)
                .bind(None::<i64>)
                .bind(None::<&str>)
        });
        query.execute(&mut *tx).await?;
    }
    Ok(())
}

async fn insert_orders(tx: &mut SqliteConnection, orders: &[Order]) -> anyhow::Result<()> {
    for rows in orders.chunks(ROWS) {
        let sql = statement(
            "INSERT INTO orders (sale_id, number, user_id, status, amount_cents, created_at,
                pay_by, paid_at, cancelled_at, version)",
            10,
            rows.len(),
        );
        let query = rows.iter().fold(sqlx::query(AssertSqlSafe(sql)), |query, o| {
            query
                .bind(o.id.pool.get().cast_signed())
                .bind(i64::from(o.id.number))
                .bind(o.user.as_str())
                .bind(o.status.as_str())
                .bind(o.amount.get())
                .bind(o.created_at.millis())
                .bind(o.pay_by.map(|at| at.millis()))
                .bind(None::<i64>)
                .bind(None::<i64>)
                .bind(i64::from(o.version))
        });
        query.execute(&mut *tx).await?;

        let sql = statement(
            "INSERT INTO order_items (sale_id, number, line, sku, title, quantity,
                unit_price_cents)",
            7,
            rows.len(),
        );
        let query = rows.iter().fold(sqlx::query(AssertSqlSafe(sql)), |query, o| {
            let item = o.items.first();
            query
                .bind(o.id.pool.get().cast_signed())
                .bind(i64::from(o.id.number))
                .bind(1_i64)
                .bind(item.map(|item| item.sku.clone()))
                .bind(item.map(|item| item.title.clone()))
                .bind(item.map(|item| i64::from(item.quantity)))
                .bind(item.map(|item| item.unit_price.get()))
        });
        query.execute(&mut *tx).await?;
    }
    Ok(())
}

fn statement(head: &str, columns: usize, rows: usize) -> String {
    let row = format!("({})", vec!["?"; columns].join(", "));
    format!("{head} VALUES {}", vec![row.as_str(); rows].join(", "))
}
