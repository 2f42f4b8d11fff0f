//! A second consumer beside the records, on every engine: paused, killed, late, retired.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use qiang_core::{
    Cents, ClaimRequest, Command, Event, Flow, Kind, LimitBy, PoolId, Reclaim, Supply, Terms,
    Timestamp, UserId,
};
use qiang_engine::{Engine, LogError, ManualClock, WriterOptions, embedded, redis, sql};
use qiang_sql::scratch::Scratch;
use qiang_sql::{Database, Dialect, on_every_database, sql};
use qiang_store::{Begin, RECORDS, Store, Transaction};
use qiang_testkit::servers::redis::{Durability, own};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use qiang_app::consumer::{Batch, Consumer, Error, Gap, Part, Sink, Stop, log_name};
use qiang_sales::records;

const T0: Timestamp = Timestamp::from_millis(1_800_000_000_000);
/// More than what a shared log is trimmed by.
const CROWD: u32 = 1_500;
/// Those who come at once.
const BATCH: u32 = 50;
const NAME: &str = "notes";

/// Notes every event once: noting one twice fails.
#[derive(Debug)]
struct Notes {
    store: Store,
    /// A permit for each batch that may be written.
    gate: Arc<Semaphore>,
    /// Told when a batch was written and is about to be committed, which then never comes.
    stuck: Option<Arc<Notify>>,
}

impl Notes {
    fn free(store: &Store) -> Self {
        Self { store: store.clone(), gate: Arc::new(Semaphore::new(1_000)), stuck: None }
    }
}

impl Sink for Notes {
    const NAME: &'static str = NAME;
    const BEGIN: Begin = Begin::WithTheLogs;

    async fn write(&self, batch: &Batch<'_>) -> Result<(), Error> {
        let Batch { log, after, through, events } = *batch;
        self.gate.acquire().await.expect("nobody closes it").forget();
        let note = |mut tx: Transaction| async move {
            for event in events {
                let name = match event {
                    Event::Pool(pool) => format!("noted/{}/{}", pool.id, pool.version),
                    Event::Claim(claim) => format!("noted/{}/{}", claim.id, claim.version),
                    Event::Refund(refund) => format!("noted/{}", refund.payment),
                };
                let insert = sql!("INSERT INTO settings (name, value) VALUES (?, '')");
                let noted = tx.execute(insert, &[name.as_str().into()]).await;
                noted.expect("an event comes once");
            }
            if let Some(stuck) = &self.stuck {
                stuck.notify_one();
                std::future::pending::<()>().await;
            }
            Ok((tx, ()))
        };
        Ok(self.store.advance(NAME, log, after, through, note).await?)
    }

    async fn recover(&self, gap: &Gap<'_>) -> Result<u64, Error> {
        panic!("something was trimmed that was not noted: {gap:?}");
    }
}

/// An engine and its records, of which one log holds everything.
struct Shop {
    engine: Engine,
    store: Store,
    database: Database,
    partition: u16,
    buyers: u32,
}

impl Shop {
    async fn open(engine: Engine, scratch: &Scratch) -> Self {
        let database = Database::open(scratch.url()).await.expect("opens");
        let store = store(scratch).await;
        let terms = Terms {
            kind: Kind::Sale,
            title: "Tea".into(),
            sku: "T".into(),
            supply: Supply::Units(1_000_000),
            limit_per_user: 1,
            limit_by: LimitBy::User,
            price: Cents::new(100),
            price_steps: Vec::new(),
            opens_at: T0,
            closes_at: None,
            flow: Flow::Instant,
            reclaim: Reclaim::Allowed,
            buckets: 1,
        };
        let opened = engine.ask(Command::Open { pool: pool(), terms: Arc::new(terms) }).await;
        opened.expect("the engine works");
        let ends = engine.positions().await.expect("they can be read");
        let partition = ends.iter().position(|end| *end > 0).expect("somebody has the pool");
        let partition = u16::try_from(partition).expect("few logs");
        Self { engine, store, database, partition, buyers: 0 }
    }

    async fn crowd(&mut self) {
        let claim = |buyer| {
            Command::Claim(ClaimRequest {
                kind: Kind::Sale,
                pool: pool(),
                user: UserId::new(&format!("user-{buyer}")).expect("a user"),
                identity: None,
                quantity: NonZeroU32::MIN,
                request: None,
            })
        };
        // An embedded engine trims whole batches, a few with each commit.
        for _ in 0..CROWD / BATCH {
            let commands = (self.buyers..self.buyers + BATCH).map(claim).collect();
            for reply in self.engine.ask_many(commands).await {
                reply.expect("the engine works");
            }
            self.buyers += BATCH;
        }
    }

    /// Everything is recorded, and the log trimmed behind what all consumers have.
    async fn record(&self) {
        records::catch_up(&self.engine, &self.store).await.expect("recorded");
    }

    async fn end(&self) -> u64 {
        self.engine.positions().await.expect("readable")[usize::from(self.partition)]
    }

    async fn noted(&self) -> u64 {
        let count = sql!("SELECT COUNT(*) FROM settings WHERE name LIKE 'noted/%'");
        let row = self.database.fetch_optional(count, &[]).await.expect("readable");
        let noted = row.expect("a row").int(0).expect("a number");
        u64::try_from(noted).expect("a count")
    }

    async fn position(&self, consumer: &str) -> u64 {
        let log = log_name(&self.engine, self.partition);
        self.store.position(consumer, &log).await.expect("readable")
    }

    /// Where the log begins, which trimming may be about to move.
    async fn oldest(&self) -> u64 {
        match self.engine.log().read(self.partition, 0, 1).await {
            Err(LogError::Trimmed { oldest, .. }) => oldest,
            read => read.map(|_| 0).expect("the log can be read"),
        }
    }

    async fn consumer(&self, notes: Notes) -> Consumer<Notes> {
        let new = Consumer::new(self.engine.clone(), self.store.clone(), notes).await;
        new.expect("it can begin")
    }
}

fn pool() -> PoolId {
    PoolId::new(1).expect("positive")
}

async fn store(scratch: &Scratch) -> Store {
    let store = Store::open(scratch.url()).await.expect("opens");
    store.migrate().await.expect("migrates");
    store
}

async fn a_second_consumer(mut shop: Shop) {
    // Registered, and not at work: the log waits for it.
    let paused = Arc::new(Semaphore::new(0));
    let notes = Notes { gate: Arc::clone(&paused), ..Notes::free(&shop.store) };
    let consumer = shop.consumer(notes).await;
    shop.crowd().await;
    shop.record().await;
    assert_eq!((shop.position(RECORDS).await, shop.oldest().await), (shop.end().await, 0));

    // Paused in front of its first batch.
    let stop = Stop { token: CancellationToken::new(), grace: Duration::ZERO };
    let (progress, following) = consumer.follow(Part::All, stop.clone());
    let following = tokio::spawn(following);
    shop.crowd().await;
    shop.record().await;
    assert_eq!((shop.position(NAME).await, shop.oldest().await), (0, 0));
    paused.add_permits(1_000);
    progress.reached(&shop.engine.positions().await.expect("readable")).await;
    stop.token.cancel();
    following.await.expect("it ended");
    assert_eq!(shop.noted().await, shop.end().await);

    // Killed behind a write and before its commit: nothing of that happened.
    let (before, stuck) = (shop.position(NAME).await, Arc::new(Notify::new()));
    shop.crowd().await;
    let notes = Notes { stuck: Some(Arc::clone(&stuck)), ..Notes::free(&shop.store) };
    let killed = tokio::spawn(shop.consumer(notes).await.finish());
    stuck.notified().await;
    killed.abort();
    assert!(killed.await.expect_err("it was killed").is_cancelled());
    shop.record().await;
    assert_eq!((shop.position(NAME).await, shop.noted().await), (before, before));

    // Late: the log is trimmed, and not beyond it.
    let mut tries = 0;
    while shop.oldest().await == 0 {
        tries += 1;
        assert!(tries < 100, "what both have is never trimmed");
        shop.crowd().await;
        shop.record().await;
    }
    assert!(shop.oldest().await <= before, "{} is behind {before}", shop.oldest().await);
    shop.consumer(Notes::free(&shop.store)).await.finish().await.expect("it catches up");
    assert_eq!(shop.noted().await, shop.end().await);
    assert_eq!(shop.position(NAME).await, shop.end().await);

    // Retired: the log no longer waits for it, and whoever still works for it is told so.
    let late = shop.consumer(Notes::free(&shop.store)).await;
    assert!(shop.store.retire_consumer(NAME).await.expect("retired"));
    shop.crowd().await;
    let refused = late.finish().await.expect_err("nobody moves who is not registered");
    assert!(matches!(refused, Error::Store(qiang_store::Error::NotRegistered { .. })));
    let noted = shop.noted().await;
    let mut tries = 0;
    while shop.oldest().await <= noted {
        tries += 1;
        assert!(tries < 100, "the log waits for a consumer that was retired");
        shop.crowd().await;
        shop.record().await;
    }

    // Registered anew, it begins with what the others do not have yet.
    let again = shop.consumer(Notes::free(&shop.store)).await;
    let (begun, last) = (shop.position(NAME).await, shop.position(RECORDS).await);
    assert_eq!((begun, last > noted), (last, true));
    shop.crowd().await;
    shop.record().await;
    again.finish().await.expect("it begins anew");
    assert_eq!(shop.noted().await, noted + (shop.end().await - begun));
}

#[tokio::test]
async fn p03_a_second_consumer_loses_nothing_beside_an_embedded_engine() {
    let scratch = Scratch::new(Dialect::Sqlite).await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let options = embedded::Options {
        folder: folder.path().join("engine"),
        queue: 100_000,
        writer: WriterOptions { seed: 1, snapshot_bytes: 4_096 },
    };
    let engine = embedded::Engine::open(options, Arc::new(ManualClock::new(T0))).expect("opens");
    let engine = Engine::Embedded(engine);
    a_second_consumer(Shop::open(engine.clone(), &scratch).await).await;
    engine.shut_down().await;
}

#[tokio::test]
async fn p03_a_second_consumer_loses_nothing_beside_redis() {
    let Some(server) = own(Durability::default()) else { return };
    let scratch = Scratch::new(Dialect::Sqlite).await;
    let options = redis::Options {
        place: redis::Place::parse(&server.url()).expect("a good url"),
        queue: 100_000,
        time: redis::Time::Given(Arc::new(ManualClock::new(T0))),
        node: 1,
    };
    let (engine, store) =
        (redis::Engine::open(options).await.expect("opens"), store(&scratch).await);
    qiang_recovery::epochs::attach(&engine, &store).await.expect("attached");
    a_second_consumer(Shop::open(Engine::Redis(engine), &scratch).await).await;
}

on_every_database!(p03_a_second_consumer_loses_nothing_beside_a_database);

async fn p03_a_second_consumer_loses_nothing_beside_a_database(on: Dialect) {
    let scratch = Scratch::new(on).await;
    let options = sql::Options { partitions: 2, queue: 100_000, ..Default::default() };
    let clock = Arc::new(ManualClock::new(T0));
    let engine = sql::Engine::open_url(scratch.url(), options, clock).await.expect("opens");
    let engine = Engine::Sql(engine);
    a_second_consumer(Shop::open(engine.clone(), &scratch).await).await;
    engine.shut_down().await;
}
