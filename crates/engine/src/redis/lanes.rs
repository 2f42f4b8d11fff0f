//! Calls: whoever asks about one cell while a call is on its way is taken along by the next one.
//!
//! A call has a number on its lane, and the script keeps the last answer of every lane. So a call
//! whose answer got lost is made again as it was, for as long as [`RETRY_FOR`], and takes effect
//! once; a late copy of it is turned away. Only then does the caller hear that nobody knows.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::{Pipeline, Value};
use tokio::sync::oneshot;

use super::cell::{Cell, Keys, Waiting};
use super::link::{Failure, Kind};
use super::pack::Packer;
use super::wire::{self, Answer, Ask, Decided, Said};
use super::{RULES, Shared};
use crate::{Error, Stopwatch, chain};

/// Commands in one call; bounds how long a script keeps the server from others.
const MAX_BATCH: usize = 512;
/// Calls that only released what was overdue, one after the other, before the commands are turned
/// away; 512 claims each.
const MAX_AGAIN: usize = 4_096;
/// How long a call is tried.
const RETRY_FOR: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const MAX_PAUSE: Duration = Duration::from_millis(250);

impl Shared {
    /// Asks one thing of a cell.
    pub(super) async fn ask(self: &Arc<Self>, cell: &Arc<Cell>, ask: Ask) -> Result<Said, Error> {
        if self.is_lost(cell.partition) {
            return Err(Error::Unavailable);
        }
        let waiting = self.waiting.fetch_add(1, Ordering::Relaxed);
        if waiting >= self.queue {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            self.stats.overloaded.fetch_add(1, Ordering::Relaxed);
            return Err(Error::Overloaded);
        }
        let (to, answer) = oneshot::channel();
        cell.line().push_back(Waiting { ask, to });
        self.start_lane(cell);
        let answer = answer.await;
        // A lane that is gone without answering was cut off with the runtime.
        answer.unwrap_or(Err(Error::OutcomeUnknown))
    }

    fn start_lane(self: &Arc<Self>, cell: &Arc<Cell>) {
        let free = cell.busy.iter().position(|busy| !busy.swap(true, Ordering::AcqRel));
        if let Some(lane) = free {
            let (shared, cell) = (Arc::clone(self), Arc::clone(cell));
            tokio::spawn(async move { shared.run_lane(&cell, lane).await });
        }
    }

    async fn run_lane(self: &Arc<Self>, cell: &Arc<Cell>, lane: usize) {
        loop {
            // Whoever is about to ask gets along.
            tokio::task::yield_now().await;
            let batch: Vec<Waiting> = {
                let mut line = cell.line();
                let count = line.len().min(MAX_BATCH);
                line.drain(..count).collect()
            };
            if batch.is_empty() {
                cell.busy[lane].store(false, Ordering::Release);
                // Somebody may have come between looking and leaving.
                if cell.line().is_empty() || cell.busy[lane].swap(true, Ordering::AcqRel) {
                    return;
                }
                continue;
            }
            let (asks, to): (Vec<_>, Vec<_>) =
                batch.into_iter().map(|waiting| (waiting.ask, waiting.to)).unzip();
            match self.call(cell, lane, &asks).await {
                Ok(decided) => {
                    self.learn(cell, &asks, &decided);
                    for (to, said) in to.into_iter().zip(decided.said) {
                        // Whoever asked may be gone; what was decided stands.
                        let _heard = to.send(Ok(said));
                    }
                }
                Err(error) => to.into_iter().for_each(|to| drop(to.send(Err(error)))),
            }
            self.waiting.fetch_sub(asks.len(), Ordering::Relaxed);
        }
    }

    /// One call, made until it is answered.
    async fn call(&self, cell: &Cell, lane: usize, asks: &[Ask]) -> Result<Decided, Error> {
        let watch = Stopwatch::start();
        let asked: Vec<&Ask> = asks.iter().collect();
        for _ in 0..MAX_AGAIN {
            let number = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
            match self.answer(cell, lane, number, &asked).await? {
                Answer::Decided(decided) => {
                    self.known[usize::from(cell.partition)]
                        .fetch_max(decided.seq, Ordering::AcqRel);
                    self.stats.commit.record(watch.elapsed());
                    self.stats.batches.fetch_add(1, Ordering::Relaxed);
                    return Ok(decided);
                }
                Answer::Again => {}
                Answer::Stale => return Err(Error::OutcomeUnknown),
                Answer::Lost { .. } => return Err(Error::Unavailable),
            }
        }
        Err(Error::Unavailable)
    }

    async fn answer(
        &self,
        cell: &Cell,
        lane: usize,
        number: u64,
        asked: &[&Ask],
    ) -> Result<Answer, Error> {
        let epoch = self.epoch();
        let known = self.known[usize::from(cell.partition)].load(Ordering::Acquire);
        let pipe = self.question(cell, lane, number, &epoch, known, asked);
        let (watch, mut pause, mut may_have_happened) = (Stopwatch::start(), FIRST_PAUSE, false);
        loop {
            let failure = match self.link.ask_many(cell.partition, &pipe).await {
                Ok(answers) if self.is_replicated(&answers) => {
                    let answer = read(&answers, cell, asked);
                    return match answer {
                        Ok(Answer::Lost { epoch: found, seq }) => {
                            self.lose(cell.partition, &found, seq, known);
                            // An earlier try of this very call may have been carried out.
                            let error = Error::OutcomeUnknown;
                            Err(if may_have_happened { error } else { Error::Unavailable })
                        }
                        Ok(answer) => Ok(answer),
                        Err(error) => {
                            tracing::error!("Redis answered nonsense: {}", chain(&error));
                            Err(Error::OutcomeUnknown)
                        }
                    };
                }
                Ok(_) => Failure {
                    may_have_happened: true,
                    kind: Kind::Passing,
                    what: "too few replicas have it yet",
                    source: None,
                },
                Err(failure) => failure,
            };
            may_have_happened |= failure.may_have_happened;
            match failure.kind {
                Kind::NoScript => {
                    if let Err(failure) = self.load_scripts(cell.partition).await {
                        tracing::warn!("scripts could not be loaded: {}", chain(&failure));
                    }
                }
                Kind::Passing => {}
                Kind::Lasting => {
                    tracing::error!("{}", chain(&failure));
                    return Err(unanswered(may_have_happened));
                }
            }
            if watch.elapsed() + pause > RETRY_FOR {
                tracing::warn!("given up: {}", chain(&failure));
                return Err(unanswered(may_have_happened));
            }
            if failure.kind == Kind::Passing {
                self.stats.retries.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(MAX_PAUSE);
            }
        }
    }

    fn question(
        &self,
        cell: &Cell,
        lane: usize,
        number: u64,
        epoch: &str,
        known: u64,
        asked: &[&Ask],
    ) -> Pipeline {
        let signed = |number: u64| i64::try_from(number).expect("counted from 1");
        let mut packer = Packer::default();
        packer
            .list(6)
            .int(self.given_time().map_or(-1, qiang_core::Timestamp::millis))
            .text(epoch)
            .int(signed(known))
            .int(signed(number))
            .text(&cell.id.pool.to_string())
            .list(asked.len());
        asked.iter().for_each(|ask| ask.pack(&mut packer));
        let lane_key = format!("{}:lane:{:x}:{lane}", cell.keys.get(Keys::POOL), self.node);
        let mut keys: Vec<&str> = cell.keys.0.iter().map(String::as_str).collect();
        keys.push(&lane_key);
        let mut cmd = RULES.call(keys);
        cmd.arg(packer.finish());
        let mut pipe = Pipeline::with_capacity(2);
        pipe.add_command(cmd);
        let place = self.link.place();
        if place.wait > 0 {
            pipe.cmd("WAIT").arg(place.wait).arg(place.wait_ms);
        }
        pipe
    }

    /// Whether as many replicas have it as was asked for.
    fn is_replicated(&self, answers: &[Value]) -> bool {
        match (self.link.place().wait, answers.get(1)) {
            (0, _) => true,
            (wanted, Some(Value::Int(have))) => *have >= i64::from(wanted),
            _ => false,
        }
    }

    /// Remembers that nothing is left, or that something is.
    fn learn(self: &Arc<Self>, cell: &Arc<Cell>, asks: &[Ask], decided: &Decided) {
        let refused = decided.said.iter().filter(|said| said.is_sold_out()).count();
        let changed = asks.iter().any(|ask| ask.changes_stock());
        let mut memory = cell.memory();
        if changed {
            memory.forget();
            return;
        }
        let Some((after, through)) = memory.note(decided, refused as u64) else { return };
        drop(memory);
        let (shared, cell) = (Arc::clone(self), Arc::clone(cell));
        tokio::spawn(async move { shared.learn_buyers(&cell, after, through).await });
    }

    async fn learn_buyers(self: &Arc<Self>, cell: &Arc<Cell>, mut after: u32, through: u32) {
        const AT_ONCE: u32 = 1_000;
        while after < through {
            let next = through.min(after + AT_ONCE);
            match self.claims_of_cell(cell, after, next).await {
                Ok(claims) => cell.memory().learn(&claims, after, next),
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

fn unanswered(may_have_happened: bool) -> Error {
    if may_have_happened { Error::OutcomeUnknown } else { Error::Unavailable }
}

fn read(answers: &[Value], cell: &Cell, asked: &[&Ask]) -> super::pack::Result<Answer> {
    match answers.first() {
        Some(Value::BulkString(bytes)) => wire::read_answer(bytes, cell.id.pool, asked),
        _ => Err(super::pack::Unpackable::new("a packed answer")),
    }
}
