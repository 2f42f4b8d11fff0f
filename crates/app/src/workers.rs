//! The work of the background: named workers that never die unseen.
//!
//! A worker does one turn after the other until the process stops. A turn that fails or panics is
//! counted and shown, and the next one comes after a pause that grows. What a worker does under a lease
//! must be harmless if done by two.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The pause behind the first failure is the worker's own, and each next one is twice as long, up to
/// this.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Why a turn failed.
pub type Failure = Box<dyn StdError + Send + Sync>;

/// What became of a turn.
pub type Turn = Result<(), Failure>;

/// How a worker does.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// Turns that failed or panicked, ever.
    pub failures: u64,
    /// Of these the ones that panicked.
    pub panics: u64,
    /// What is wrong since the last turn that went well; `None` is nothing.
    pub trouble: Option<String>,
}

/// How all workers of this process do.
#[derive(Debug, Clone, Default)]
pub struct Board(Arc<Mutex<BTreeMap<&'static str, Status>>>);

impl Board {
    /// Every worker by its name.
    #[must_use]
    pub fn all(&self) -> BTreeMap<&'static str, Status> {
        self.lock().clone()
    }

    /// What is wrong with which workers, in words.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let all = self.lock();
        let of_one = |(name, status): (&&str, &Status)| {
            Some(format!("{name}: {}", status.trouble.as_ref()?))
        };
        let troubles: Vec<String> = all.iter().filter_map(of_one).collect();
        (!troubles.is_empty()).then(|| troubles.join("; "))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, Status>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, name: &'static str, change: impl FnOnce(&mut Status)) {
        change(self.lock().entry(name).or_default());
    }
}

/// Starts workers, and waits for them at the end.
#[derive(Debug)]
pub struct Workers {
    stop: CancellationToken,
    board: Board,
    tasks: Vec<JoinHandle<()>>,
}

impl Workers {
    /// None yet; all of them end when `stop` says so. The board shows how they do.
    #[must_use]
    pub fn new(stop: CancellationToken, board: Board) -> Self {
        Self { stop, board, tasks: Vec::new() }
    }

    /// Has `turn` done again and again, with a pause behind each.
    pub fn every<F>(
        &mut self,
        name: &'static str,
        pause: Duration,
        turn: impl FnMut() -> F + Send + 'static,
    ) where
        F: Future<Output = Turn> + Send + 'static,
    {
        self.repeat(name, Duration::ZERO, pause, turn);
    }

    /// The same, with a pause before the first turn, too.
    pub fn after_pause<F>(
        &mut self,
        name: &'static str,
        pause: Duration,
        turn: impl FnMut() -> F + Send + 'static,
    ) where
        F: Future<Output = Turn> + Send + 'static,
    {
        self.repeat(name, pause, pause, turn);
    }

    fn repeat<F>(
        &mut self,
        name: &'static str,
        first: Duration,
        pause: Duration,
        mut turn: impl FnMut() -> F + Send + 'static,
    ) where
        F: Future<Output = Turn> + Send + 'static,
    {
        let (stop, board) = (self.stop.clone(), self.board.clone());
        board.update(name, |_| {});
        self.add(async move {
            let mut failed = 0_u32;
            if stop.run_until_cancelled(tokio::time::sleep(first)).await.is_none() {
                return;
            }
            loop {
                let Some(turned) = stop.run_until_cancelled(caught(&mut turn)).await else {
                    return;
                };
                failed = board.heard(name, failed, turned);
                let doubled = pause.saturating_mul(2_u32.saturating_pow(failed.saturating_sub(1)));
                let rest = tokio::time::sleep(doubled.min(LONGEST_PAUSE.max(pause)));
                if stop.run_until_cancelled(rest).await.is_none() {
                    return;
                }
            }
        });
    }

    /// The place on the board of a task that looks after itself.
    #[must_use]
    pub fn report(&self, name: &'static str) -> Report {
        self.board.update(name, |_| {});
        Report { board: self.board.clone(), name, failed: 0 }
    }

    /// Has `last` done when all are told to stop, for at most so long.
    pub fn at_end<F>(&mut self, patience: Duration, last: impl FnOnce() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = self.stop.clone();
        self.add(async move {
            stop.cancelled().await;
            if tokio::time::timeout(patience, last()).await.is_err() {
                tracing::warn!("what was to be done at the end took longer than {patience:?}");
            }
        });
    }

    /// A task that looks after itself.
    pub fn add(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.adopt(tokio::spawn(task));
    }

    /// The same, of one that runs already.
    pub fn adopt(&mut self, task: JoinHandle<()>) {
        self.tasks.push(task);
    }

    /// Tells all to stop, and returns when they have.
    pub async fn end(self) {
        self.stop.cancel();
        for task in self.tasks {
            // A panic in a task was reported when it happened.
            let _ended = task.await;
        }
    }
}

/// Shows on the board how a task does that looks after itself.
#[derive(Debug)]
pub struct Report {
    board: Board,
    name: &'static str,
    failed: u32,
}

impl Report {
    /// Notes what became of a turn.
    pub fn heard(&mut self, turned: Turn) {
        let turned = turned.map_err(Wrong::Failed);
        self.failed = self.board.heard(self.name, self.failed, turned);
    }
}

/// What went wrong in a turn.
enum Wrong {
    Failed(Failure),
    Panicked(String),
}

/// One turn, whose panic is caught.
async fn caught<F: Future<Output = Turn>>(turn: &mut impl FnMut() -> F) -> Result<(), Wrong> {
    let whole = async { turn().await };
    match AssertUnwindSafe(whole).catch_unwind().await {
        Ok(turned) => turned.map_err(Wrong::Failed),
        Err(panic) => Err(Wrong::Panicked(words_of(&*panic))),
    }
}

/// What a panic said.
pub(crate) fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let said = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let said = said.or_else(|| panic.downcast_ref::<String>().cloned());
    said.unwrap_or_else(|| "no words".to_owned())
}

impl Board {
    /// Notes a turn, and says how many in a row have failed by now.
    fn heard(&self, name: &'static str, failed: u32, turned: Result<(), Wrong>) -> u32 {
        match turned {
            Ok(()) => {
                if failed > 0 {
                    tracing::info!("worker {name} works again");
                    self.update(name, |status| status.trouble = None);
                }
                0
            }
            Err(wrong) => {
                let (what, panics) = match wrong {
                    Wrong::Failed(error) => (qiang_engine::chain(&*error), 0),
                    Wrong::Panicked(words) => (format!("it panicked: {words}"), 1),
                };
                if failed == 0 || panics > 0 {
                    tracing::warn!("worker {name}: {what}");
                }
                self.update(name, |status| {
                    status.failures += 1;
                    status.panics += panics;
                    status.trouble = Some(what);
                });
                failed.saturating_add(1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::mpsc;

    use super::*;

    const PAUSE: Duration = Duration::from_millis(1);

    /// A worker whose turns end as a script says, and what became of it after each.
    async fn after_each(script: &'static [&'static str]) -> Vec<Status> {
        let board = Board::default();
        let mut workers = Workers::new(CancellationToken::new(), board.clone());
        let (tell, mut told) = mpsc::unbounded_channel();
        let turns = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&turns);
        let seen = board.clone();
        workers.every("baker", PAUSE, move || {
            let turn = counted.fetch_add(1, Ordering::Relaxed) as usize;
            // What the turn before left behind.
            let _told = tell.send(seen.all()["baker"].clone());
            async move {
                match script.get(turn) {
                    Some(&"fails") => Err("no flour".into()),
                    Some(&"panics") => panic!("the oven burns"),
                    _ => Ok(()),
                }
            }
        });
        let mut statuses = Vec::new();
        while statuses.len() <= script.len() {
            statuses.push(told.recv().await.expect("it goes on"));
        }
        workers.end().await;
        statuses.split_off(1)
    }

    #[tokio::test]
    async fn a_worker_goes_on_after_a_failure_and_after_a_panic() {
        let statuses = after_each(&["fails", "panics", "works", "fails"]).await;
        let troubles: Vec<_> = statuses.iter().map(|one| one.trouble.as_deref()).collect();
        let expected =
            [Some("no flour"), Some("it panicked: the oven burns"), None, Some("no flour")];
        assert_eq!(troubles, expected);
        let counts: Vec<_> = statuses.iter().map(|one| (one.failures, one.panics)).collect();
        assert_eq!(counts, [(1, 0), (2, 1), (2, 1), (3, 1)]);
    }

    #[tokio::test]
    async fn a_worker_in_the_middle_of_a_turn_is_told_to_stop() {
        let board = Board::default();
        let mut workers = Workers::new(CancellationToken::new(), board.clone());
        let (begun, mut begins) = mpsc::unbounded_channel();
        workers.every("sleeper", PAUSE, move || {
            let _told = begun.send(());
            std::future::pending::<Turn>()
        });
        begins.recv().await.expect("it begins");
        assert_eq!(board.trouble(), None);
        workers.end().await;
    }

    #[test]
    fn whoever_has_trouble_is_named() {
        let board = Board::default();
        board.update("idle", |_| {});
        board.update("baker", |status| status.trouble = Some("no flour".into()));
        assert_eq!(board.trouble().as_deref(), Some("baker: no flour"));
    }

    #[tokio::test]
    async fn a_task_that_looks_after_itself_shows_how_it_does() {
        let board = Board::default();
        let mut report = Workers::new(CancellationToken::new(), board.clone()).report("baker");
        assert_eq!(board.all()["baker"], Status::default());
        report.heard(Err("no flour".into()));
        assert_eq!(board.trouble().as_deref(), Some("baker: no flour"));
        report.heard(Ok(()));
        assert_eq!((board.trouble(), board.all()["baker"].failures), (None, 1));
    }
}
