//! The one way in: HTTP, the fast lane and RESP hand their commands to the engine here.
//!
//! A command is checked, asked for as long as a request may take, timed and counted in this one place.
//! The doors read requests and write answers, and nothing else.

use std::fmt;
use std::net::IpAddr;

use qiang_core::{Command, Kind, PoolId, Reply};
use qiang_engine::Stopwatch;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::metrics::{FAILED, NO_SUCH_SALE};
use crate::outcomes::Newcomer;
use crate::problem::{Code, Problem};

/// Where a command comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The other end of the connection.
    pub peer: IpAddr,
}

/// Whether the server is about to stop: an answer without an end of its own ends then.
#[derive(Debug, Clone)]
pub struct Stopping(pub CancellationToken);

/// Looks at a command before the engine is asked. It stands in the way of every claim, so it waits
/// for nothing.
pub trait Check: fmt::Debug + Send + Sync {
    /// A problem is the answer; the engine never hears of the command then.
    fn check(&self, command: &Command, origin: &Origin) -> Result<(), Problem>;
}

impl App {
    /// Decides a command.
    pub async fn decide(&self, command: Command, origin: &Origin) -> Result<Reply, Problem> {
        let (asked, watch) = (Asked::of(&command), Stopwatch::start());
        let reply = match self.check(&command, origin) {
            Ok(()) => self.answer(self.engine.ask(command)).await,
            Err(problem) => Err(problem),
        };
        if let Asked::Claim(sale) = asked {
            self.count_claim(sale, reply.as_ref().ok(), &watch);
        }
        reply
    }

    /// Decides commands one after the other, and hands each answer, in their order, to `answer`,
    /// which also hears whether it was a claim.
    pub async fn decide_many(
        &self,
        commands: Vec<Command>,
        origin: &Origin,
        mut answer: impl FnMut(bool, Result<Reply, Problem>),
    ) {
        let watch = Stopwatch::start();
        let asked: Vec<Asked> = commands.iter().map(Asked::of).collect();
        let (commands, mut refused) = self.check_many(commands, origin);
        let count = commands.len();
        let answers = self.engine.ask_many(commands);
        let replies = tokio::time::timeout(self.config.http.request_timeout, answers).await;
        let unknown = qiang_engine::Error::OutcomeUnknown;
        let mut replies = replies.unwrap_or_else(|_| vec![Err(unknown); count]).into_iter();
        for (place, asked) in asked.into_iter().enumerate() {
            let reply = match refused.next_if(|(at, _)| *at == place) {
                Some((_, problem)) => Err(problem),
                None => match replies.next() {
                    Some(reply) => reply.map_err(Problem::from),
                    None => Err(Problem::new(Code::Internal)),
                },
            };
            if let Asked::Claim(sale) = asked {
                self.count_claim(sale, reply.as_ref().ok(), &watch);
            }
            answer(matches!(asked, Asked::Claim(_)), reply);
        }
    }

    /// Has these look at every command from now on, in their order. Once; says whether it was the
    /// first time.
    pub fn check_with(&self, checks: Vec<Box<dyn Check>>) -> bool {
        self.checks.set(checks).is_ok()
    }

    fn checks(&self) -> &[Box<dyn Check>] {
        self.checks.get().map_or(&[], Vec::as_slice)
    }

    fn check(&self, command: &Command, origin: &Origin) -> Result<(), Problem> {
        self.checks().iter().try_for_each(|check| check.check(command, origin))
    }

    /// The commands that may be asked, and the places of the others with what is wrong with them.
    fn check_many(
        &self,
        commands: Vec<Command>,
        origin: &Origin,
    ) -> (Vec<Command>, std::iter::Peekable<impl Iterator<Item = (usize, Problem)>>) {
        let mut refused = Vec::new();
        if self.checks().is_empty() {
            return (commands, refused.into_iter().peekable());
        }
        let mut passed = Vec::with_capacity(commands.len());
        for (place, command) in commands.into_iter().enumerate() {
            match self.check(&command, origin) {
                Ok(()) => passed.push(command),
                Err(problem) => refused.push((place, problem)),
            }
        }
        (passed, refused.into_iter().peekable())
    }

    fn count_claim(&self, sale: Option<PoolId>, reply: Option<&Reply>, watch: &Stopwatch) {
        self.metrics.claim_latency.record(watch.elapsed());
        let outcome = self.metrics.claimed(match reply {
            Some(Reply::Claim(outcome)) => Some(outcome),
            _ => None,
        });
        match (sale, outcome) {
            // Whoever makes up ids must not fill the table with them.
            (None, _) | (_, NO_SUCH_SALE) => {}
            (Some(sale), FAILED) => self.outcomes.count(sale, FAILED, Newcomer::TurnedAway),
            (Some(sale), outcome) => self.outcomes.count(sale, outcome, Newcomer::Welcome),
        }
    }
}

/// What has to be known of a command when its answer is counted.
#[derive(Clone, Copy)]
enum Asked {
    /// A claim, of this sale if it is of one.
    Claim(Option<PoolId>),
    Other,
}

impl Asked {
    fn of(command: &Command) -> Self {
        match command {
            Command::Claim(wish) => Self::Claim((wish.kind == Kind::Sale).then_some(wish.pool)),
            _ => Self::Other,
        }
    }
}
