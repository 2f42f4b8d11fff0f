//! What is asked of a server under load and what it answers, whatever the protocol.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

/// One kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Take a unit.
    Claim,
    /// Place the order of a held claim.
    Order,
    /// Pay an order.
    Pay,
    /// Give a claim up.
    Release,
    /// Look at the sale.
    Look,
}

impl Verb {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Order => "order",
            Self::Pay => "pay",
            Self::Release => "release",
            Self::Look => "look",
        }
    }

    /// What to call it when it happened.
    pub const fn done(self) -> &'static str {
        match self {
            Self::Claim => "granted",
            Self::Order => "ordered",
            Self::Pay => "paid",
            Self::Release => "released",
            Self::Look => "seen",
        }
    }
}

/// One request. Asked again after its answer was lost, it is the same request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    pub verb: Verb,
    /// Which user, from 0.
    pub user: u32,
    /// What makes a claim this one: the end of its request id. For other verbs, the number of the
    /// claim that they are about.
    pub key: u64,
}

/// What a server said to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It happened. The number is the claim's; 0 where the answer does not tell.
    Done {
        /// Of the claim.
        number: u32,
    },
    /// It had happened before.
    Again {
        /// Of the claim.
        number: u32,
    },
    /// Money came for something that cannot be had: it goes back.
    RefundDue,
    /// The rules say no.
    Refused(&'static str),
    /// The server could not, and nothing happened; or it would not understand.
    Failed(&'static str),
    /// The server says itself that it may have happened.
    Unknown,
}

/// An answer that cannot be one, which ends the connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the answer makes no sense: {0}")]
pub struct Nonsense(pub &'static str);

/// Errors that are found on this side of the wire.
pub mod fault {
    /// The line was full.
    pub const BACKLOG_FULL: &str = "backlog_full";
    /// Still in line when the time to finish was over.
    pub const NOT_SENT: &str = "not_sent";
    /// Nobody answers at the address; nothing was sent.
    pub const NO_CONNECTION: &str = "no_connection";
    /// Sent, perhaps several times, and never answered.
    pub const OUTCOME_UNKNOWN: &str = "outcome_unknown";
    /// What stands where a code should.
    pub const STRANGE: &str = "strange_answer";
}

/// What the rules of a sale say no with. Every other code is about the state of the server, or about a
/// wrong request.
const REFUSALS: [&str; 9] = [
    "already_claimed",
    "already_paid",
    "closed",
    "not_eligible",
    "not_open_yet",
    "not_ordered",
    "over_limit",
    "released",
    "sold_out",
];
/// Codes of failures that are told apart; no server has as many.
const MAX_FAILURES: usize = 128;

/// The answer that a code of the server means.
pub fn of_code(code: &str) -> Answer {
    if code == fault::OUTCOME_UNKNOWN {
        return Answer::Unknown;
    }
    match REFUSALS.iter().find(|refusal| **refusal == code) {
        Some(refusal) => Answer::Refused(refusal),
        None => Answer::Failed(failure(code)),
    }
}

/// The code of a failure, kept for as long as the program runs: each is counted by its name.
fn failure(code: &str) -> &'static str {
    static SEEN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = seen.get(code) {
        return known;
    }
    let is_code = !code.is_empty() && code.bytes().all(|b| b == b'_' || b.is_ascii_lowercase());
    if !is_code || seen.len() >= MAX_FAILURES {
        return fault::STRANGE;
    }
    let kept: &'static str = code.to_owned().leak();
    seen.insert(kept);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_refusals_failures_or_unknown() {
        assert_eq!(of_code("sold_out"), Answer::Refused("sold_out"));
        assert_eq!(of_code("overloaded"), Answer::Failed("overloaded"));
        assert_eq!(of_code("unauthenticated"), Answer::Failed("unauthenticated"));
        assert_eq!(of_code("outcome_unknown"), Answer::Unknown);
        assert_eq!(of_code("never_heard_of"), Answer::Failed("never_heard_of"));
        assert_eq!(of_code("<html>"), Answer::Failed(fault::STRANGE));
    }
}
