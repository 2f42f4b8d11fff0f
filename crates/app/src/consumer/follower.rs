//! One log that a consumer follows, and what it is doing there.

use qiang_core::Event;
use qiang_engine::{Engine, Log, LogError};
use qiang_store::Store;

use super::pacing::{BATCH, Backoff, Deadline};
use super::{Batch, Error, Gap, Sink, log_name, logs};

/// Events behind which a shared log is trimmed: asking for less costs more than it frees.
const TRIM_EVERY: u64 = 1_000;

/// A log and how far it was consumed.
#[derive(Debug)]
pub(super) struct Follower {
    pub(super) partition: u16,
    name: String,
    pub(super) position: u64,
    trimmed: u64,
    state: State,
    backoff: Backoff,
}

/// What a consumer does with a log.
#[derive(Debug)]
enum State {
    /// The next batch is to be read.
    Reading,
    /// A batch was read and is to be written.
    Writing { through: u64, events: Vec<Event> },
    /// The log no longer holds what comes next.
    Recovering { oldest: u64 },
    /// Something failed, and is tried again then.
    Waiting { until: Deadline, why: String },
}

/// What a log is followed with.
#[derive(Debug)]
pub(super) struct Tools<S> {
    pub(super) engine: Engine,
    pub(super) store: Store,
    pub(super) sink: S,
}

impl Follower {
    pub(super) fn new(engine: &Engine, partition: u16) -> Self {
        Self {
            partition,
            name: log_name(engine, partition),
            position: 0,
            trimmed: 0,
            state: State::Reading,
            backoff: Backoff::of_log(),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Until when nothing is done about it, if so.
    pub(super) fn waits_until(&self) -> Option<Deadline> {
        match &self.state {
            State::Waiting { until, .. } if !until.left().is_zero() => Some(*until),
            _ => None,
        }
    }

    /// Why it waits, if it does.
    pub(super) fn trouble(&self) -> Option<&str> {
        match &self.state {
            State::Waiting { why, .. } => Some(why),
            _ => None,
        }
    }

    /// Nothing is wrong, or it is somebody else's.
    pub(super) fn calm_down(&mut self) {
        self.backoff.succeeded();
        self.state = State::Reading;
    }

    /// Waits, longer each time. Says whether it is something else than before.
    pub(super) fn fail(&mut self, why: String) -> bool {
        let is_new = self.trouble() != Some(&why);
        self.state = State::Waiting { until: self.backoff.failed(), why };
        is_new
    }

    /// Consumes the next batch, and says how many events that were; 0 at the end of the log. After
    /// an error the same is to be done again.
    pub(super) async fn step<S: Sink>(
        &mut self,
        log: &mut Log,
        tools: &Tools<S>,
    ) -> Result<u64, Error> {
        let before = self.position;
        loop {
            match std::mem::replace(&mut self.state, State::Reading) {
                State::Reading | State::Waiting { .. } => {
                    self.state = self.read(log, tools).await?;
                    if matches!(self.state, State::Reading) {
                        return Ok(0);
                    }
                }
                State::Writing { through, events } => {
                    let batch = Batch { log: &self.name, after: before, through, events: &events };
                    self.moved(through, tools.sink.write(&batch).await)?;
                    self.trim(tools).await;
                    break;
                }
                State::Recovering { oldest } => {
                    let Self { partition, name, position, .. } = self;
                    let end = tools.engine.positions().await?[usize::from(*partition)];
                    tracing::warn!(
                        consumer = S::NAME,
                        log = name,
                        position,
                        oldest,
                        end,
                        "the log no longer reaches back to where the consumer stands"
                    );
                    let gap = Gap { log: name, after: *position, oldest, end };
                    let through = tools.sink.recover(&gap).await;
                    self.moved(*through.as_ref().unwrap_or(&before), through.map(drop))?;
                    break;
                }
            }
        }
        self.backoff.succeeded();
        Ok(self.position.saturating_sub(before).max(1))
    }

    async fn read<S: Sink>(&mut self, log: &mut Log, tools: &Tools<S>) -> Result<State, Error> {
        loop {
            match log.read(self.partition, self.position, BATCH).await {
                Err(LogError::Trimmed { oldest, .. }) => {
                    // Another process, or a repair, may have brought the consumer further.
                    let found = tools.store.position(S::NAME, &self.name).await?;
                    if found <= self.position {
                        return Ok(State::Recovering { oldest });
                    }
                    self.position = found;
                }
                read => {
                    let (events, through) = read?;
                    return Ok(if through == self.position {
                        State::Reading
                    } else {
                        State::Writing { through, events }
                    });
                }
            }
        }
    }

    /// Takes over where the consumer stands after it was moved.
    fn moved(&mut self, through: u64, moved: Result<(), Error>) -> Result<(), Error> {
        self.position = match moved {
            Ok(()) => through,
            // Another process was here; what it wrote need not be written again.
            Err(Error::Store(qiang_store::Error::PositionMoved { found, .. })) => found,
            Err(error) => return Err(error),
        };
        Ok(())
    }

    /// Lets the engine forget what every consumer has.
    async fn trim<S>(&mut self, tools: &Tools<S>) {
        if tools.engine.is_shared() && self.position < self.trimmed + TRIM_EVERY {
            return;
        }
        let trimmed = async {
            let Some(floor) = tools.store.floor(&self.name).await? else { return Ok(()) };
            Ok::<_, Error>(tools.engine.consumed(self.partition, floor).await?)
        };
        match trimmed.await {
            Ok(()) => self.trimmed = self.position,
            Err(error) => tracing::warn!("log not trimmed: {}", qiang_engine::chain(&error)),
        }
    }

    /// Takes over how far the store says it is.
    pub(super) fn found_at(&mut self, engine: &Engine, position: u64) {
        self.position = position;
        logs::has_reached(engine, self.partition, position);
    }
}
