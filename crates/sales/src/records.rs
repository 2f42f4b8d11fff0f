//! The consumer that writes the records.
//!
//! An event that cannot be recorded keeps nobody waiting: the batch is halved until it is found, and in
//! the transaction that writes the others and moves the position it is set aside, to be tried again
//! ([`Records::retry_due`]). What fails for another reason than the event itself, as a database that is
//! away, is waited for, and nothing is set aside.

mod rebuild;
pub(crate) mod retrying;

use qiang_app::config::Delivery;
use qiang_app::consumer::{Batch, Consumer, Error, Gap, Sink};
use qiang_app::parked;
use qiang_core::Event;
use qiang_engine::Engine;
use qiang_store::retries::Parked;
use qiang_store::{Begin, Store};

pub use self::rebuild::finish_journal;

/// What a drill says about an event.
const FORCED: &str = "QIANG_FORCE_CONSUME_FAIL_COUNT makes this attempt fail";
/// Attempts again after the first, where nobody has decided.
const RETRIES: u32 = 3;

/// Writes events into the records.
#[derive(Debug, Clone)]
pub struct Records {
    /// Who knows the sales; nobody, beside a journal at rest.
    engine: Option<Engine>,
    store: Store,
    rules: Rules,
}

/// How often what fails is tried.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Attempts again after the first.
    pub retries: u32,
    /// So many attempts at every event fail, for drills.
    pub fail_count: u32,
}

impl Rules {
    /// As the operator decided.
    #[must_use]
    pub fn of(delivery: &Delivery) -> Self {
        Self { retries: delivery.retries, fail_count: delivery.fail_count }
    }

    /// Whether this attempt, counted from 1, has to fail.
    fn forces(&self, attempt: u32) -> bool {
        attempt <= self.fail_count
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self { retries: RETRIES, fail_count: 0 }
    }
}

impl Records {
    /// Of an engine, in a store.
    #[must_use]
    pub fn new(engine: &Engine, store: &Store, rules: Rules) -> Self {
        Self { engine: Some(engine.clone()), store: store.clone(), rules }
    }

    /// Writes events that may come before their sale: claims of a bucket do so, because the sale is told
    /// by the log of its first bucket, and that may wait for a sale of this log in turn. Then the
    /// engine is asked.
    async fn knowing_sales<T, W>(&self, write: impl Fn() -> W) -> Result<T, Error>
    where
        W: Future<Output = Result<T, qiang_store::Error>>,
    {
        let mut asked = None;
        loop {
            let unknown = match write().await {
                Err(qiang_store::Error::UnknownSale { sale }) => sale,
                written => return Ok(written?),
            };
            let state = match (&self.engine, asked.replace(unknown)) {
                // It was asked about, and is still not there.
                (_, Some(before)) if before == unknown => None,
                (Some(engine), _) => engine.pool_state(unknown).await?,
                (None, _) => None,
            };
            match state {
                Some(state) => self.store.upsert(&[Event::Pool(state)]).await?,
                None => return Err(qiang_store::Error::UnknownSale { sale: unknown }.into()),
            }
        }
    }

    /// Writes a batch, but for what cannot be written. Halves that can be written are, on the way: what
    /// was written before the position moves is only written again.
    async fn sort_out(&self, batch: &Batch<'_>) -> Result<(), Error> {
        let (mut good, mut bad) = (Vec::with_capacity(batch.events.len()), Vec::new());
        let mut parts = vec![batch.events];
        while let Some(part) = parts.pop() {
            match self.knowing_sales(|| self.store.upsert(part)).await {
                Ok(()) => good.extend_from_slice(part),
                Err(error) if !error.is_of_event() => return Err(error),
                Err(error) => match part {
                    [event] => bad.push(set_aside(event, qiang_engine::chain(&error))),
                    _ => {
                        let (first, second) = part.split_at(part.len() / 2);
                        parts.extend([second, first]);
                    }
                },
            }
        }
        self.park(batch, &good, &bad).await
    }

    async fn park(
        &self,
        batch: &Batch<'_>,
        good: &[Event],
        bad: &[Parked<'_>],
    ) -> Result<(), Error> {
        let Batch { log, after, through, .. } = *batch;
        let retries = self.rules.retries;
        self.store.project_and_park(log, after, through, good, bad, retries).await?;
        for Parked { event, error, .. } in bad {
            let (id, kind) = (event.id(), event.name());
            if retries > 0 {
                tracing::warn!(id, kind, "an event was set aside, to be tried again: {error}");
            } else {
                tracing::error!(id, kind, "a dead letter: {error}");
            }
        }
        Ok(())
    }
}

fn set_aside(event: &Event, error: String) -> Parked<'_> {
    Parked { event, bytes: parked::bytes(event), error }
}

/// Brings the records up to date with an engine, and says how many events that were.
pub async fn catch_up(engine: &Engine, store: &Store) -> Result<u64, Error> {
    let records = Records::new(engine, store, Rules::default());
    Consumer::new(engine.clone(), store.clone(), records).await?.finish().await
}

impl Sink for Records {
    const NAME: &'static str = qiang_store::RECORDS;
    const BEGIN: Begin = Begin::WithARebuild;

    async fn write(&self, batch: &Batch<'_>) -> Result<(), Error> {
        let Batch { log, after, through, events } = *batch;
        if self.rules.forces(1) {
            let all: Vec<Parked<'_>> =
                events.iter().map(|event| set_aside(event, FORCED.to_owned())).collect();
            return self.park(batch, &[], &all).await;
        }
        let project = || self.store.project(log, after, through, events);
        match self.knowing_sales(project).await {
            Err(error) if error.is_of_event() => self.sort_out(batch).await,
            written => written,
        }
    }

    /// The records were replaced by older ones or removed: writes everything the engine still
    /// knows. What happened since the log's end was read is in the log, and newer.
    async fn recover(&self, gap: &Gap<'_>) -> Result<u64, Error> {
        if let Some(engine) = &self.engine {
            rebuild::everything(engine, &self.store).await?;
        }
        self.store.project(gap.log, gap.after, gap.end, &[]).await?;
        Ok(gap.end)
    }
}
