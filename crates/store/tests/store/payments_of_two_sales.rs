//! A payment id that paid orders of several sales: all stay paid, one has the id, and a person is
//! told of the others, whatever came first and however often.

use std::collections::BTreeMap;

use qiang_core::{Claim, Event, Flow, PoolState, Timestamp};
use qiang_sql::scratch::Scratch;
use qiang_sql::{Database, Dialect, Migrations, Step, on_every_database, sql};
use qiang_store::{OrderStatus, Review, ReviewStatus, Store};

use crate::fixtures::{
    Db, Lcg, PAY_MS, Records, T0, granted, opened, paid, payment, refund, terms,
};

on_every_database!(
    p21_a_payment_that_paid_two_sales_is_left_to_a_person,
    the_same_order_again_is_no_conflict,
    any_order_and_any_repetition_gives_the_same_marks,
    an_ended_review_stays_ended,
    money_owed_back_is_no_conflict,
    mending_keeps_the_marks,
    of_many_who_record_at_once_none_is_stopped,
    reviews_come_in_pages,
    payments_of_the_version_before_are_compared,
);

fn sale(id: u64) -> PoolState {
    opened(id, terms(Flow::Order { pay_ms: PAY_MS }))
}

/// Paid `ms` after the beginning.
fn paid_after(pool: &PoolState, number: u32, id: &str, ms: u64) -> Claim {
    Claim { changed_at: T0.plus_millis(ms), ..paid(&granted(pool, number, "ann"), id) }
}

async fn pending(store: &Store) -> Vec<Review> {
    store.reviews(ReviewStatus::Pending, None, 1_000).await.expect("readable")
}

fn marks(reviews: &[Review]) -> Vec<(String, String, String)> {
    let mark = |review: &Review| {
        (review.order.to_string(), review.other.to_string(), review.payment.to_string())
    };
    reviews.iter().map(mark).collect()
}

async fn p21_a_payment_that_paid_two_sales_is_left_to_a_person(on: Dialect) {
    let db = Db::new(on).await;
    let (one, two) = (sale(1), sale(2));
    let first = paid_after(&one, 1, "p-1", 100);
    let later = paid_after(&two, 1, "p-1", 200);
    let other = paid_after(&two, 2, "p-2", 300);
    let sales = [Event::Pool(one), Event::Pool(two)];
    db.store.upsert(&sales).await.expect("written");
    db.store.project("a", 0, 1, &[Event::Claim(first.clone())]).await.expect("written");
    let events = [Event::Claim(later.clone()), Event::Claim(other)];
    db.store.project("b", 0, 2, &events).await.expect("written");

    assert_eq!(marks(&pending(&db.store).await), [("2-1".into(), "1-1".into(), "p-1".into())]);
    assert_eq!(db.store.pending_reviews().await.expect("readable"), 1);
    let records = Records::of(&db.store).await;
    assert!(records.orders.iter().all(|order| order.status == OrderStatus::Paid));
    let shown: Vec<_> = records.orders.iter().map(|order| order.pending_review).collect();
    assert_eq!(shown, [false, true, false]);
    assert_eq!((records.payments.len(), records.refunds.len()), (3, 0), "nothing is owed back");
    let of_ann = db.store.orders_of(&first.user, None, 10).await.expect("readable");
    let marked: Vec<_> = of_ann.iter().filter(|order| order.pending_review).collect();
    assert_eq!(marked.iter().map(|order| order.id).collect::<Vec<_>>(), [later.id]);
}

async fn the_same_order_again_is_no_conflict(on: Dialect) {
    let db = Db::new(on).await;
    let one = sale(1);
    let events = [Event::Pool(one.clone()), Event::Claim(paid_after(&one, 1, "p-1", 100))];
    for _ in 0..3 {
        db.store.upsert(&events).await.expect("written");
    }
    assert_eq!(pending(&db.store).await, []);
}

/// What has to be marked: all but the first that was paid.
fn expected(claims: &[Claim]) -> Vec<(String, String, String)> {
    let mut orders = BTreeMap::<_, Vec<_>>::new();
    for claim in claims {
        let payment = claim.payment.clone().expect("all are paid").to_string();
        orders.entry(payment).or_default().push((claim.changed_at, claim.id));
    }
    let mut marks = Vec::new();
    for (payment, mut orders) in orders {
        orders.sort_unstable();
        let first = orders[0].1;
        let rest = orders[1..].iter();
        marks.extend(rest.map(|(at, order)| {
            ((*at, *order), (order.to_string(), first.to_string(), payment.clone()))
        }));
    }
    marks.sort_unstable();
    marks.into_iter().map(|(_, mark)| mark).collect()
}

async fn any_order_and_any_repetition_gives_the_same_marks(on: Dialect) {
    let db = Db::new(on).await;
    let seeds = if on == Dialect::Sqlite { 20 } else { 6 };
    for seed in 0..seeds {
        db.clear().await;
        let mut dice = Lcg(seed);
        let sales: Vec<_> = (1..=4).map(sale).collect();
        let mut claims = Vec::new();
        for pool in &sales {
            for number in 1..=12 {
                // In a sale an id counts once; times collide.
                let id = format!("p-{}", dice.below(20));
                let taken =
                    |claim: &Claim| claim.id.pool == pool.id && claim.payment == Some(payment(&id));
                if !claims.iter().any(taken) {
                    claims.push(paid_after(pool, number, &id, dice.below(5) as u64));
                }
            }
        }
        let sales: Vec<_> = sales.into_iter().map(Event::Pool).collect();
        db.store.upsert(&sales).await.expect("written");
        let mut events: Vec<_> = claims.iter().cloned().map(Event::Claim).collect();
        events.extend(events.clone());
        dice.shuffle(&mut events);
        let mut rest = events.as_slice();
        while !rest.is_empty() {
            let (now, later) = rest.split_at(1 + dice.below(rest.len().min(8)));
            db.store.upsert(now).await.expect("written");
            rest = later;
        }
        let expected = expected(&claims);
        assert!(expected.len() > 5, "seed {seed}: there is something to find");
        assert_eq!(marks(&pending(&db.store).await), expected, "seed {seed}");
    }
}

async fn an_ended_review_stays_ended(on: Dialect) {
    let db = Db::new(on).await;
    let (one, two) = (sale(1), sale(2));
    let later = paid_after(&two, 1, "p-1", 200);
    let events = [
        Event::Pool(one.clone()),
        Event::Pool(two),
        Event::Claim(paid_after(&one, 1, "p-1", 100)),
        Event::Claim(later.clone()),
    ];
    db.store.upsert(&events).await.expect("written");
    let at = T0.plus_millis(1_000);
    let ended = db.store.end_review(later.id, at).await.expect("written").expect("there is one");
    assert_eq!((ended.status(), ended.ended_at), (ReviewStatus::Ended, Some(at)));
    let again = db.store.end_review(later.id, T0.plus_millis(2_000)).await.expect("written");
    assert_eq!(again, Some(ended.clone()), "the first word stands");
    db.store.upsert(&events).await.expect("written again");
    assert_eq!(pending(&db.store).await, []);
    let listed = db.store.reviews(ReviewStatus::Ended, None, 10).await.expect("readable");
    assert_eq!(listed, [ended]);
    let order = db.store.order(later.id).await.expect("readable").expect("there");
    assert!(!order.pending_review);
    let none = db.store.end_review(granted(&one, 9, "ann").id, at).await.expect("readable");
    assert_eq!(none, None);
}

async fn money_owed_back_is_no_conflict(on: Dialect) {
    let db = Db::new(on).await;
    let (one, two) = (sale(1), sale(2));
    let back = refund(granted(&two, 1, "bob").id, "p-1");
    for events in [
        vec![Event::Pool(one.clone()), Event::Pool(two)],
        vec![Event::Refund(back.clone())],
        vec![Event::Claim(paid_after(&one, 1, "p-1", 100))],
        vec![Event::Refund(back)],
    ] {
        db.store.upsert(&events).await.expect("written");
    }
    assert_eq!(pending(&db.store).await, []);
    let (known, unknown) = (payment("p-1"), payment("p-2"));
    let orders = db.store.orders_paid_by(&[&known, &unknown]).await.expect("readable");
    assert_eq!(orders.get(&known).map(ToString::to_string).as_deref(), Some("1-1"));
    assert_eq!(orders.len(), 1);
}

async fn mending_keeps_the_marks(on: Dialect) {
    let db = Db::new(on).await;
    let (one, two) = (sale(1), sale(2));
    let claims = [paid_after(&one, 1, "p-1", 100), paid_after(&two, 1, "p-1", 200)];
    db.store.upsert(&[Event::Pool(one), Event::Pool(two)]).await.expect("written");
    let events = claims.map(Event::Claim);
    db.store.upsert(&events).await.expect("written");
    let before = pending(&db.store).await;
    assert_eq!(before.len(), 1);
    for event in events {
        db.store.rewrite(&[event]).await.expect("written");
        assert_eq!(pending(&db.store).await, before);
    }
    // Rows of payments that nobody compared are found, and compared when they are written again.
    db.tamper("DELETE FROM payment_ids", &[]).await;
    db.tamper("DELETE FROM reviews", &[]).await;
    let found = db.store.payments_without_id(10).await.expect("readable");
    assert_eq!(found.len(), 2);
    for order in found {
        let claim = db.store.claim(order).await.expect("readable").expect("there");
        db.store.rewrite(&[Event::Claim(claim)]).await.expect("written");
    }
    assert_eq!(db.store.payments_without_id(10).await.expect("readable"), []);
    assert_eq!(pending(&db.store).await, before);
}

async fn of_many_who_record_at_once_none_is_stopped(on: Dialect) {
    const PAYMENTS: u32 = 60;
    let db = Db::new(on).await;
    let sales: Vec<_> = (1..=4).map(sale).collect();
    let opened: Vec<_> = sales.iter().cloned().map(Event::Pool).collect();
    db.store.upsert(&opened).await.expect("written");
    let mut workers = tokio::task::JoinSet::new();
    for (worker, pool) in sales.into_iter().enumerate() {
        let store = Store::open(&db.url).await.expect("opens");
        workers.spawn(async move {
            let mut dice = Lcg(worker as u64);
            let mut numbers: Vec<u32> = (1..=PAYMENTS).collect();
            dice.shuffle(&mut numbers);
            let mut at = 0;
            for numbers in numbers.chunks(7) {
                let claims: Vec<_> = numbers
                    .iter()
                    .map(|number| paid_after(&pool, *number, &format!("p-{number}"), 5))
                    .map(Event::Claim)
                    .collect();
                let through = at + claims.len() as u64;
                let log = format!("sql/{worker}");
                // What collides too often is tried again, as a consumer does.
                while let Err(error) = store.project(&log, at, through, &claims).await {
                    assert!(error.is_transient(), "{error:?}");
                }
                at = through;
            }
        });
    }
    workers.join_all().await;
    let records = Records::of(&db.store).await;
    assert_eq!(records.payments.len(), 4 * PAYMENTS as usize);
    let reviews = pending(&db.store).await;
    assert_eq!(reviews.len(), 3 * PAYMENTS as usize);
    assert!(reviews.iter().all(|review| review.other.pool.get() == 1));
}

async fn reviews_come_in_pages(on: Dialect) {
    let db = Db::new(on).await;
    let (one, two) = (sale(1), sale(2));
    let mut events = vec![Event::Pool(one.clone()), Event::Pool(two.clone())];
    for number in 1..=25 {
        let id = format!("p-{number}");
        events.push(Event::Claim(paid_after(&one, number, &id, 1)));
        events.push(Event::Claim(paid_after(&two, number, &id, 5 + u64::from(number) / 10)));
    }
    db.store.upsert(&events).await.expect("written");
    let (mut after, mut seen) = (None, Vec::new());
    loop {
        let page = db.store.reviews(ReviewStatus::Pending, after, 4).await.expect("readable");
        let Some(last) = page.last() else { break };
        after = Some(last.cursor());
        seen.extend(page);
    }
    assert_eq!(seen, pending(&db.store).await);
    assert_eq!(seen.len(), 25);
}

const fn step(version: i64, sql: &'static str) -> Step {
    Step { version, name: if version == 1 { "records" } else { "leases" }, sql }
}

static BEFORE: Migrations = Migrations {
    table: "_sqlx_migrations",
    sqlite: &[
        step(1, include_str!("../../migrations/sqlite/0001_records.sql")),
        step(2, include_str!("../../migrations/sqlite/0002_leases.sql")),
    ],
    mysql: &[step(2, include_str!("../../migrations/mysql/0002_records.sql"))],
    postgres: &[step(2, include_str!("../../migrations/postgres/0002_records.sql"))],
};

/// A sale that was cleared had left its payment ids free.
async fn payments_of_the_version_before_are_compared(on: Dialect) {
    let scratch = Scratch::new(on).await;
    let database = Database::open(scratch.url()).await.expect("opens");
    database.migrate(&BEFORE).await.expect("migrates");
    let insert = sql!(
        "INSERT INTO payments (sale_id, payment_id, number, amount_cents, paid_at) VALUES
            (3, 'a', 1, 100, 20), (1, 'a', 5, 100, 30), (2, 'a', 1, 100, 20),
            (1, 'b', 6, 100, 10), (2, 'B', 7, 100, 10), (2, 'b ', 8, 100, 10)"
    );
    database.execute(insert, &[]).await.expect("written");
    database.close().await;
    let store = Store::open(scratch.url()).await.expect("opens");
    store.migrate().await.expect("migrates");
    let mark = |order: &str| (order.to_owned(), "2-1".to_owned(), "a".to_owned());
    let reviews = pending(&store).await;
    assert_eq!(marks(&reviews), [mark("3-1"), mark("1-5")]);
    assert_eq!(reviews[1].paid_at, Timestamp::from_millis(30));
    assert_eq!(store.payments_without_id(10).await.expect("readable"), []);
}
