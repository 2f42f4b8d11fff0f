//! Everything that a round has set up, what an operator would do about it, and what was noticed on
//! the way.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use qiang_testkit::node::Ended;
use tokio::runtime::Handle;

use crate::clock::Clock;
use crate::http::{Answer, Question};
use crate::setting::{Servers, Setting};
use crate::shop::{APIS, Shop};

/// A node that does not say how it is in this time is not well.
const LOOK_LIMIT: Duration = Duration::from_secs(8);
/// How long, and how often, all nodes are given to be ready again.
const READY_LOOKS: u32 = 180;
const READY_LOOK: Duration = Duration::from_millis(500);
/// The trouble for which the handbook (docs/OPERATING.md) asks for a repair.
const LOST: &str = "lost";
/// A loss that was noticed this much later, in milliseconds, came from elsewhere.
const NOTICED_WITHIN_MS: u64 = 30_000;

/// A round at work.
pub(crate) struct World {
    pub(crate) setting: Setting,
    pub(crate) clock: Clock,
    pub(crate) shop: Shop,
    pub(crate) servers: Servers,
    pub(crate) runtime: Handle,
    pub(crate) folder: PathBuf,
    notes: Mutex<Notes>,
}

/// What was noticed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Notes {
    /// When what was answered may have been lost, in milliseconds of the round, from and to.
    pub(crate) losses: Vec<(u64, u64)>,
    /// Until when something kept the records from following.
    records_troubled_until: u64,
    /// Whether a node or a repair said that something was lost.
    pub(crate) loss_said: bool,
    pub(crate) repairs: u32,
    pub(crate) wrong: Vec<String>,
}

impl World {
    pub(crate) fn new(
        setting: Setting,
        folder: PathBuf,
        shop: Shop,
        servers: Servers,
        runtime: Handle,
        clock: Clock,
    ) -> Self {
        Self { setting, clock, shop, servers, runtime, folder, notes: Mutex::default() }
    }

    pub(crate) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets time pass.
    pub(crate) fn wait(&self, time: Duration) {
        std::thread::sleep(time);
    }

    /// A fault from then to then may have lost what was answered.
    pub(crate) fn may_have_lost(&self, from: u64, to: u64) {
        self.notes().losses.push((from, to));
    }

    /// Something keeps the records from following, until then.
    pub(crate) fn trouble_records(&self, until: u64) {
        self.notes().records_troubled_until = until;
    }

    /// Whether something has kept the records from following since then.
    pub(crate) fn are_records_troubled(&self, since: u64) -> bool {
        let until = self.notes().records_troubled_until;
        until > 0 && until >= since
    }

    pub(crate) fn complain(&self, what: String) {
        self.log(&format!("WRONG: {what}"));
        self.notes().wrong.push(what);
    }

    /// A line for whoever watches, also kept in the folder.
    pub(crate) fn log(&self, line: &str) {
        let line = format!("[{:7.2}] {line}", self.clock.elapsed().as_secs_f64());
        crate::say(&line);
        let file = OpenOptions::new().create(true).append(true).open(self.folder.join("round.log"));
        // It is on the screen, too.
        let _kept = file.and_then(|mut file| writeln!(file, "{line}"));
    }

    /// What a node says of itself.
    pub(crate) fn readiness(&self, index: usize) -> Option<Answer> {
        let address = self.shop.places[index].address;
        self.runtime.block_on(Question::get("/readyz").ask_within(address, LOOK_LIMIT))
    }

    /// Nothing can be decided: no node that serves buyers may say that all is well.
    pub(crate) fn expect_not_ready(&self, why: &str) {
        for index in 0..APIS {
            if self.readiness(index).is_some_and(|answer| answer.status == 200) {
                self.complain(format!("node {index} says that it is ready, but {why}"));
            }
        }
    }

    /// So many operators repair at the same time.
    pub(crate) fn repair(&self, operators: usize) {
        let ended: Vec<Ended> = std::thread::scope(|scope| {
            let repair = || self.shop.audit(&["--repair"]);
            let threads: Vec<_> = (0..operators).map(|_| scope.spawn(repair)).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
        });
        for Ended { code, stderr } in ended {
            let is_log =
                |line: &&str| [" INFO ", " WARN ", " ERROR "].iter().any(|l| line.contains(l));
            let told = stderr.lines().filter(|line| !is_log(line));
            self.log(&format!("repair ({code:?}): {}", told.collect::<Vec<_>>().join(" | ")));
            if stderr.contains("had lost") {
                let mut notes = self.notes();
                notes.loss_said = true;
                notes.repairs += 1;
            }
        }
    }

    /// Looks at all nodes as an operator does, and repairs if one says that something was lost.
    /// Gives what keeps nodes from being ready.
    pub(crate) fn look(&self) -> Vec<String> {
        let mut troubles = Vec::new();
        let mut lost = None;
        for index in 0..self.shop.places.len() {
            match self.readiness(index) {
                Some(answer) if answer.status == 200 => {}
                None => troubles.push(format!("node {index} does not answer")),
                Some(answer) => {
                    if answer.text("engine_problem") == LOST {
                        lost = Some(format!("node {index}: {}", answer.text("engine")));
                    }
                    troubles.push(format!("node {index}: {}", answer.body));
                }
            }
        }
        if let Some(lost) = lost {
            self.log(&format!("a loss is said: {lost}"));
            let now = self.clock.ms();
            let may_be = {
                let mut notes = self.notes();
                notes.loss_said = true;
                notes.losses.iter().any(|(_, to)| to + NOTICED_WITHIN_MS > now)
            };
            if !may_be {
                self.complain(format!("a loss is said that cannot be: {lost}"));
            }
            self.repair(1);
        }
        troubles
    }

    /// Waits until every node is ready, and repairs as often as one says that something was lost.
    /// Gives what still is in the way.
    pub(crate) fn until_ready(&self) -> Vec<String> {
        let mut troubles = self.look();
        for _ in 0..READY_LOOKS {
            if troubles.is_empty() {
                break;
            }
            self.wait(READY_LOOK);
            troubles = self.look();
        }
        troubles
    }
}
