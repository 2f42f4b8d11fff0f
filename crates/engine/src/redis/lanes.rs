//! Calls: whoever asks about one cell while a call is on its way is taken along by the next one.
//!
//! A call has a number on its lane, and the script keeps the last answer of every lane. So a call
//! whose answer got lost is made again as it was, for as long as [`RETRY_FOR`], and takes effect
//! once; a late copy of it is turned away, also when the call itself changed nothing. Only then
//! does the caller hear that nobody knows.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use qiang_core::Timestamp;
use redis::{Pipeline, Value};
use tokio::sync::oneshot;

use super::cell::{Cell, CellId, Keys, PartitionKeys, Waiting};
use super::era::Era;
use super::link::{Failure, Kind, ServerId};
use super::pack::Packer;
use super::reading::Loss;
use super::wire::{self, Answer, Ask, Counted, Decided, Said};
use super::{CLAIM_RULES, RULES, Shared};
use crate::{Error, Stopwatch, chain};

/// Commands in one call; bounds how long a script keeps the server from others: some milliseconds.
const MAX_BATCH: usize = 1_024;
/// Redis takes up to so many times as long for anything else as for a claim, so a call carries as many
/// fewer of them: while it works on one, all other sales of the server wait.
const HEAVY: usize = 4;
/// Commands in line for which another call is begun while one is on its way. A call has a price of
/// its own, that of some dozen claims and often a sync, so fewer wait for the one under way.
const WORTH_A_CALL: usize = 128;
/// Calls that only released what was overdue, one after the other, before the commands are turned
/// away; 512 claims each.
const MAX_AGAIN: usize = 4_096;
/// How long a call is tried.
pub(super) const RETRY_FOR: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const MAX_PAUSE: Duration = Duration::from_millis(250);

/// The lanes of this process in a partition. A call takes one, and the next call takes it over: there
/// are as many as there are calls on their way at once, however many pools those are about.
#[derive(Debug, Default)]
pub(super) struct Lanes(Mutex<Free>);

#[derive(Debug, Default)]
struct Free {
    lanes: Vec<u32>,
    /// How many there are, free or not.
    made: u32,
}

/// A lane that nobody else makes calls on.
struct OnLane<'a> {
    lanes: &'a Lanes,
    number: u32,
}

impl Lanes {
    fn take(&self) -> OnLane<'_> {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = free.lanes.pop().unwrap_or_else(|| {
            free.made += 1;
            free.made
        });
        OnLane { lanes: self, number }
    }
}

impl Drop for OnLane<'_> {
    fn drop(&mut self) {
        let mut free = self.lanes.0.lock().unwrap_or_else(PoisonError::into_inner);
        free.lanes.push(self.number);
    }
}

impl Shared {
    /// Asks one thing of a cell.
    pub(super) async fn ask(self: &Arc<Self>, cell: &Arc<Cell>, ask: Ask) -> Result<Said, Error> {
        if self.era(cell.partition).is_lost() {
            return Err(Error::Unavailable);
        }
        let waiting = self.waiting.fetch_add(1, Ordering::Relaxed);
        if waiting >= self.queue {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            self.stats.overloaded.fetch_add(1, Ordering::Relaxed);
            return Err(Error::Overloaded);
        }
        let (to, answer) = oneshot::channel();
        let in_line = {
            let mut line = cell.line();
            line.push_back(Waiting { ask, to });
            line.len()
        };
        self.start_lane(cell, in_line);
        let answer = answer.await;
        // A lane that is gone without answering was cut off with the runtime.
        answer.unwrap_or(Err(Error::OutcomeUnknown))
    }

    fn start_lane(self: &Arc<Self>, cell: &Arc<Cell>, in_line: usize) {
        // A lane that leaves looks at the line once more, so nobody is left there.
        let on_its_way = cell.busy.iter().any(|busy| busy.load(Ordering::Acquire));
        if on_its_way && in_line < WORTH_A_CALL {
            return;
        }
        let free = cell.busy.iter().position(|busy| !busy.swap(true, Ordering::AcqRel));
        if let Some(lane) = free {
            let (shared, cell) = (Arc::clone(self), Arc::clone(cell));
            tokio::spawn(async move { shared.run_lane(&cell, lane).await });
        }
    }

    async fn run_lane(self: &Arc<Self>, cell: &Arc<Cell>, lane: usize) {
        let mut held = Held { shared: self, cell, lane, asks: 0 };
        loop {
            // Wait briefly so that more claims join this batch.
            tokio::task::yield_now().await;
            let batch: Vec<Waiting> = {
                let mut line = cell.line();
                let count = fitting(line.iter().map(|waiting| &waiting.ask));
                line.drain(..count).collect()
            };
            if batch.is_empty() {
                drop(held);
                // Somebody may have come between looking and leaving.
                if cell.line().is_empty() || cell.busy[lane].swap(true, Ordering::AcqRel) {
                    return;
                }
                held = Held { shared: self, cell, lane, asks: 0 };
                continue;
            }
            held.asks = batch.len();
            let (asks, to): (Vec<_>, Vec<_>) =
                batch.into_iter().map(|waiting| (waiting.ask, waiting.to)).unzip();
            let era = self.era(cell.partition);
            match self.call(cell, &era, &asks).await {
                Ok(decided) => {
                    self.learn(cell, &era, &asks, &decided);
                    for (to, said) in to.into_iter().zip(decided.said) {
                        // Whoever asked may be gone; what was decided stands.
                        let _heard = to.send(Ok(said));
                    }
                }
                Err(error) => to.into_iter().for_each(|to| drop(to.send(Err(error)))),
            }
            held.answered();
        }
    }

    /// One call, made until it is answered.
    async fn call(&self, cell: &Cell, era: &Era, asks: &[Ask]) -> Result<Decided, Error> {
        let lane = self.lanes[usize::from(cell.partition)].take();
        for _ in 0..MAX_AGAIN {
            let watch = Stopwatch::start();
            let number = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
            let question =
                Question { cell, lane: lane.number, number, era, asks, time: self.given_time() };
            match self.answer(&question, watch).await? {
                Answer::Decided(decided) => {
                    era.raise_position(decided.seq);
                    era.raise_change(decided.last_change);
                    self.stats.commit.record(watch.elapsed());
                    self.stats.batches.fetch_add(1, Ordering::Relaxed);
                    self.count(decided.counted);
                    return Ok(decided);
                }
                Answer::Again(counted) => self.count(counted),
                Answer::Stale => return Err(Error::OutcomeUnknown),
                Answer::Lost(_) => return Err(Error::Unavailable),
            }
        }
        Err(Error::Unavailable)
    }

    fn count(&self, Counted { events, expired }: Counted) {
        self.stats.events.fetch_add(events, Ordering::Relaxed);
        self.stats.expired.fetch_add(expired, Ordering::Relaxed);
    }

    async fn answer(&self, question: &Question<'_>, asked: Stopwatch) -> Result<Answer, Error> {
        let (cell, era) = (question.cell, question.era);
        let (mut patience, mut may_have_happened) = (Patience::start(), false);
        let mut this = Try::First;
        loop {
            let asked_of_it = match self.compare_if_new(cell).await {
                Ok(()) => {
                    // Another server than the one that was compared, and is named in the call, is not
                    // asked.
                    let pack = |server| self.packed(question, this, server);
                    self.link.ask_owner(cell.partition, pack).await
                }
                Err(_) if era.is_lost() => return Err(unanswered(may_have_happened)),
                Err(_) => Err(Failure::passing("the buckets could not be compared", None, false)),
            };
            let failure = match asked_of_it {
                Ok(answers) => match read(&answers, question, asked) {
                    Ok(Answer::Lost(state)) => {
                        if self.loss(cell.partition, era, &state).await == Loss::Sure {
                            // An earlier try of this very call may have been carried out.
                            return Err(unanswered(may_have_happened));
                        }
                        Failure::passing("the partition seemed to be lost", None, false)
                    }
                    Ok(answer) if self.is_replicated(&answers) => return Ok(answer),
                    Ok(_) => Failure::passing("too few replicas have it yet", None, true),
                    Err(error) => {
                        tracing::error!("Redis answered nonsense: {}", chain(&error));
                        return Err(Error::OutcomeUnknown);
                    }
                },
                Err(failure) => failure,
            };
            may_have_happened |= failure.may_have_happened;
            self.stats.retries.fetch_add(1, Ordering::Relaxed);
            let go_on = match failure.kind {
                Kind::Lasting => false,
                Kind::Passing => patience.pause().await,
                Kind::NoScript => {
                    if let Err(failure) = self.load_scripts(cell.partition).await {
                        tracing::warn!("scripts could not be loaded: {}", chain(&failure));
                    }
                    patience.pause().await
                }
            };
            if !go_on {
                tracing::error!("given up: {}", chain(&failure));
                return Err(unanswered(may_have_happened));
            }
            this = Try::Again;
        }
    }

    fn packed(&self, question: &Question<'_>, this: Try, server: ServerId) -> Pipeline {
        let Question { cell, lane, number, era, asks, time } = question;
        // WAIT covers only this connection's last write. So a call that changes nothing still writes, and
        // its answer waits for the earlier writes of others, too.
        let keep = this == Try::Again || self.link.place().wait > 0;
        let signed = |number: u64| i64::try_from(number).expect("counted from 1");
        let mut packer = Packer::default();
        packer
            .list(9)
            .int(time.map_or(-1, Timestamp::millis))
            .text(era.name())
            .int(signed(era.position()))
            .int(signed(*number))
            .text(&cell.id.pool.to_string());
        let own = wire::pack_asks(asks, &mut packer);
        packer.int(keep.into()).int(signed(era.change())).int(server.number());
        let prefix = &self.link.place().prefix;
        let lane_key = PartitionKeys::lane(prefix, cell.partition, self.node, *lane);
        let node_key = PartitionKeys::node(prefix, cell.partition, self.node);
        let mut keys: Vec<&str> = cell.keys.0.iter().map(String::as_str).collect();
        // Each kind has a list of its own, which only opening and forgetting write to.
        let list = asks
            .iter()
            .find_map(Ask::lists)
            .map(|kind| PartitionKeys::pools(prefix, cell.partition, kind));
        keys[Keys::POOLS] = list.as_deref().unwrap_or(keys[Keys::POOLS]);
        keys.extend([&*lane_key, &*node_key]);
        let claims = asks.iter().all(|ask| matches!(ask, Ask::Claim { .. }));
        let mut cmd = if claims { &CLAIM_RULES } else { &RULES }.call(keys);
        cmd.arg(packer.finish()).arg(own);
        let mut pipe = Pipeline::with_capacity(2);
        pipe.add_command(cmd);
        self.add_wait(&mut pipe);
        pipe
    }

    /// Has the server wait for as many replicas as was asked for.
    pub(super) fn add_wait(&self, pipe: &mut Pipeline) {
        let place = self.link.place();
        if place.wait > 0 {
            pipe.cmd("WAIT").arg(place.wait).arg(place.wait_ms);
        }
    }

    /// Whether as many replicas have it as was asked for.
    pub(super) fn is_replicated(&self, answers: &[Value]) -> bool {
        match (self.link.place().wait, answers.last()) {
            (0, _) => true,
            (wanted, Some(Value::Int(have))) => *have >= i64::from(wanted),
            _ => false,
        }
    }

    /// Remembers that nothing is left, or that something is.
    fn learn(self: &Arc<Self>, cell: &Arc<Cell>, era: &Arc<Era>, asks: &[Ask], decided: &Decided) {
        if asks.iter().any(Ask::changes_stock) {
            self.forget_empty(cell, decided.buckets);
            return;
        }
        let refused = decided.said.iter().filter(|said| said.is_sold_out()).count();
        let mut memory = cell.memory();
        if !Arc::ptr_eq(era, &self.era(cell.partition)) {
            return;
        }
        let Some((after, through)) = memory.note(decided, refused as u64) else { return };
        drop(memory);
        let (shared, cell, era) = (Arc::clone(self), Arc::clone(cell), Arc::clone(era));
        tokio::spawn(async move { shared.learn_buyers(&cell, &era, after, through).await });
    }

    /// What came back to one bucket can be sold from all.
    fn forget_empty(&self, cell: &Cell, buckets: u16) {
        cell.memory().forget();
        if buckets > 1 {
            let cells = self.cells.read().unwrap_or_else(PoisonError::into_inner);
            for bucket in 0..buckets {
                let sibling = cells.get(&CellId { bucket, ..cell.id });
                sibling.into_iter().for_each(|sibling| sibling.memory().forget());
            }
        }
    }

    async fn learn_buyers(
        self: &Arc<Self>,
        cell: &Arc<Cell>,
        era: &Arc<Era>,
        mut after: u32,
        through: u32,
    ) {
        const AT_ONCE: u32 = 1_000;
        while after < through {
            let mut next = through.min(after + AT_ONCE);
            let read = self.claims_of_cell(cell, after, &mut next).await;
            let mut memory = cell.memory();
            // Claims of another state are none of this one.
            if !Arc::ptr_eq(era, &self.era(cell.partition)) {
                return;
            }
            match read {
                Ok(claims) => memory.learn(&claims, after, next),
                Err(error) => {
                    tracing::debug!("buyers not learned: {}", chain(&error));
                    break;
                }
            }
            after = next;
        }
        cell.memory().learning = false;
    }
}

/// A lane that is taken, and the answers that wait for it. Both are free again however it ends.
struct Held<'a> {
    shared: &'a Shared,
    cell: &'a Cell,
    lane: usize,
    asks: usize,
}

impl Held<'_> {
    fn answered(&mut self) {
        self.shared.waiting.fetch_sub(std::mem::take(&mut self.asks), Ordering::Relaxed);
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.answered();
        self.cell.busy[self.lane].store(false, Ordering::Release);
    }
}

/// One call, whatever becomes of it.
struct Question<'a> {
    cell: &'a Cell,
    lane: u32,
    number: u64,
    era: &'a Era,
    asks: &'a [Ask],
    time: Option<Timestamp>,
}

/// Which try of a call it is. From the second on, copies of it may still be on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Try {
    First,
    Again,
}

/// How long something is tried, with longer and longer pauses.
pub(super) struct Patience {
    watch: Stopwatch,
    pause: Duration,
}

impl Patience {
    pub(super) fn start() -> Self {
        Self { watch: Stopwatch::start(), pause: FIRST_PAUSE }
    }

    /// Waits a little; false when it has taken too long.
    pub(super) async fn pause(&mut self) -> bool {
        if self.watch.elapsed() + self.pause > RETRY_FOR {
            return false;
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        true
    }
}

fn unanswered(may_have_happened: bool) -> Error {
    if may_have_happened { Error::OutcomeUnknown } else { Error::Unavailable }
}

fn read(
    answers: &[Value],
    question: &Question<'_>,
    asked: Stopwatch,
) -> super::pack::Result<Answer> {
    match answers.first() {
        Some(Value::BulkString(bytes)) => {
            wire::read_answer(bytes, question.cell.id.pool, question.asks, asked)
        }
        _ => Err(super::pack::Unpackable::new("a packed answer")),
    }
}

/// How many of those in line go into one call.
fn fitting<'a>(line: impl Iterator<Item = &'a Ask>) -> usize {
    let mut weight = 0;
    let fits = |ask: &&Ask| {
        weight += if matches!(ask, Ask::Claim { .. }) { 1 } else { HEAVY };
        weight <= MAX_BATCH
    };
    line.take_while(fits).count()
}

#[cfg(test)]
mod tests {
    use super::{Ask, HEAVY, MAX_BATCH, fitting};

    #[test]
    fn a_call_carries_fewer_of_what_takes_longer() {
        assert_eq!(fitting(std::iter::empty()), 0);
        assert_eq!(fitting(std::iter::repeat_n(&Ask::Close, 3)), 3);
        assert_eq!(fitting(std::iter::repeat(&Ask::Close)), MAX_BATCH / HEAVY);
    }
}
