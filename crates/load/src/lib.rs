//! Load: a crowd for a running server, what it felt, and the proof that the sale was exact.
//!
//! Open loop: arrivals are planned before the run begins ([`schedule`]), wait in a bounded [`line`]
//! when no connection is free, and their latency counts from the planned time. Closed loop: every
//! connection asks again as soon as it was answered. Everything of one run happens on a thread of
//! its own with [`work::Work`] at its heart; connections ([`link`]) speak HTTP or RESP.
//!
//! It must never touch a sale that it did not open, and never guess what became of a request.

pub mod ask;
mod chart;
mod dice;
pub mod http;
mod line;
mod link;
pub mod page;
pub mod processor;
pub mod record;
pub mod resp;
pub mod result;
pub mod scenario;
pub mod schedule;
mod stopwatch;
pub mod tally;
pub mod view;
pub mod wire;
pub mod words;
pub mod work;

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinSet;

use ask::{Verb, fault};
use line::Line;
use link::{Link, Stream};
use record::Outcome;
use scenario::{Scenario, Script};
use schedule::{Schedule, Spacing};
use wire::Door;
use work::{Source, Work};

/// When the last has arrived, who still waits in line gets this much time.
const FINISH: Duration = Duration::from_secs(30);
/// The line holds what comes in this time.
const LINE_SECS: f64 = 10.0;
const SHORTEST_LINE: usize = 1_000;
const LONGEST_LINE: usize = 1_000_000;
/// The pacer does not wake up more often than this. Each time costs the machine some tens of
/// microseconds, which the server under test would miss; late arrivals count from their time.
const PACE: Duration = Duration::from_micros(500);

/// What kind of load.
#[derive(Debug, Clone, Copy)]
pub enum Pace {
    /// So many arrivals a second, whatever the server does.
    Open {
        /// The rate.
        per_sec: f64,
        /// How they are spaced.
        spacing: Spacing,
    },
    /// Each connection asks as soon as it was answered.
    Closed,
}

/// A run to be made.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub scenario: Scenario,
    pub pace: Pace,
    pub duration: Duration,
    pub users: u32,
    pub connections: usize,
    /// Requests on their way over one connection at once.
    pub depth: usize,
    pub seed: u64,
}

/// Why a run did not begin.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No thread, or no runtime on it.
    #[error("cannot start the threads of the load")]
    Threads(#[source] std::io::Error),
    /// The server does not let us in.
    #[error("cannot open connection {number} of {of} to {address}")]
    Connect { number: usize, of: usize, address: std::net::SocketAddr, source: std::io::Error },
    /// The thread is gone.
    #[error("the load ended before it began")]
    Vanished,
}

/// A run under way.
pub struct Running {
    pub work: Arc<Work>,
    ended: oneshot::Receiver<()>,
    thread: JoinHandle<()>,
}

impl Running {
    /// Opens all connections, and then begins.
    pub async fn start(plan: Plan, door: Door) -> Result<Self, Error> {
        let (begun, begins) = oneshot::channel();
        let (ends, ended) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(Error::Threads)?;
        let thread = thread::Builder::new().name("load".to_owned()).spawn(move || {
            runtime.block_on(run(plan, door, begun));
            // Whoever started us may be gone.
            let _told = ends.send(());
        });
        let thread = thread.map_err(Error::Threads)?;
        let work = begins.await.map_err(|_| Error::Vanished)??;
        Ok(Self { work, ended, thread })
    }

    /// Until it has ended. May be asked again and again.
    pub async fn ended(&mut self) {
        // If the thread is gone without a word, it has ended, too.
        let _ended = (&mut self.ended).await;
    }

    /// Behind the end; a panic of the load is one of ours.
    pub fn join(self) -> Arc<Work> {
        if let Err(panic) = self.thread.join() {
            std::panic::resume_unwind(panic);
        }
        self.work
    }
}

async fn run(plan: Plan, door: Door, begun: oneshot::Sender<Result<Arc<Work>, Error>>) {
    let streams = match connect_all(&door, plan.connections).await {
        Ok(streams) => streams,
        Err(error) => return drop(begun.send(Err(error))),
    };
    let script = Script::new(plan.scenario, plan.users, plan.seed);
    let source = match plan.pace {
        Pace::Open { per_sec, .. } => Source::Open(Line::new(line_bound(per_sec))),
        Pace::Closed => Source::Closed { until: plan.duration },
    };
    let work = Arc::new(Work::begin(door, plan.depth, source, script));
    if begun.send(Ok(Arc::clone(&work))).is_err() {
        return;
    }
    let mut links = JoinSet::new();
    for stream in streams {
        let work = Arc::clone(&work);
        links.spawn(async move { Link::new(&work, stream).run().await });
    }
    let pacer = match plan.pace {
        Pace::Open { per_sec, spacing } => {
            let most = plan.scenario.most(plan.users);
            let schedule = Schedule::new(spacing, per_sec, plan.duration, most, plan.seed);
            let work = Arc::clone(&work);
            Some(tokio::task::spawn_blocking(move || pace(&work, schedule)))
        }
        Pace::Closed => None,
    };
    if let Some(pacer) = pacer {
        // A panic there was told where it happened; the line is closed either way.
        let _paced = pacer.await;
        work.stop();
    }
    let late = async {
        tokio::time::sleep(FINISH).await;
        work.hurry();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = async { while links.join_next().await.is_some() {} } => {}
        () = late, if matches!(plan.pace, Pace::Open { .. }) => {}
    }
}

async fn connect_all(door: &Door, connections: usize) -> Result<Vec<Stream>, Error> {
    let mut streams = Vec::with_capacity(connections);
    for number in 1..=connections {
        let stream = link::connect(door).await;
        let failed =
            |source| Error::Connect { number, of: connections, address: door.address, source };
        streams.push(stream.map_err(failed)?);
    }
    Ok(streams)
}

/// Lets arrivals join the line when their time has come.
fn pace(work: &Work, schedule: Schedule) {
    let Source::Open(line) = &work.source else { return };
    let mut schedule = schedule.peekable();
    while let Some(next) = schedule.peek().copied() {
        if work.is_stopped() {
            return;
        }
        let now = work.elapsed();
        if next > now {
            // Short enough that somebody who presses Ctrl-C does not wait.
            thread::sleep((next - now).clamp(PACE, Duration::from_millis(100)));
            continue;
        }
        let due = std::iter::from_fn(|| schedule.next_if(|at| *at <= now));
        let turned_away = line.join(due);
        if turned_away > 0 {
            let full = Outcome::error(fault::BACKLOG_FULL);
            work.desk().recorder.count(Verb::Claim, full, turned_away);
        }
    }
}

fn line_bound(per_sec: f64) -> usize {
    // A number out of range saturates, and is out of these bounds anyway.
    let wanted = format!("{:.0}", per_sec * LINE_SECS).parse().unwrap_or(LONGEST_LINE);
    wanted.clamp(SHORTEST_LINE, LONGEST_LINE)
}

#[cfg(test)]
mod tests;
