//! What is asked of a server under load and what it answers, whatever the protocol.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde::Serialize;

use crate::http::problem::Code;

/// One kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verb {
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
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Order => "order",
            Self::Pay => "pay",
            Self::Release => "release",
            Self::Look => "look",
        }
    }

    /// What to call it when it happened.
    pub(crate) const fn done(self) -> &'static str {
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
pub(crate) struct Ask {
    pub(crate) verb: Verb,
    /// Which user, from 0.
    pub(crate) user: u32,
    /// What makes a claim this one: the end of its request id. For other verbs, the number of the
    /// claim that they are about.
    pub(crate) key: u64,
}

/// What a server said to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
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
pub(crate) struct Nonsense(pub(crate) &'static str);

/// Errors that are found on this side of the wire.
pub(crate) mod fault {
    /// The line was full.
    pub(crate) const BACKLOG_FULL: &str = "backlog_full";
    /// Still in line when the time to finish was over.
    pub(crate) const NOT_SENT: &str = "not_sent";
    /// Nobody answers at the address; nothing was sent.
    pub(crate) const NO_CONNECTION: &str = "no_connection";
    /// Sent, perhaps several times, and never answered.
    pub(crate) const OUTCOME_UNKNOWN: &str = "outcome_unknown";
    /// A code that this program does not know.
    pub(crate) const STRANGE: &str = "strange_answer";
}

/// The answer that a code of the server means.
pub(crate) fn of_code(code: &str) -> Answer {
    static KNOWN: LazyLock<HashMap<&'static str, Code>> =
        LazyLock::new(|| Code::ALL.iter().map(|code| (code.as_str(), *code)).collect());
    match KNOWN.get(code) {
        Some(Code::OutcomeUnknown) => Answer::Unknown,
        Some(code) if is_refusal(*code) => Answer::Refused(code.as_str()),
        Some(code) => Answer::Failed(code.as_str()),
        None => Answer::Failed(fault::STRANGE),
    }
}

/// Whether the rules of the sale say so, rather than the state of the server or a wrong request.
fn is_refusal(code: Code) -> bool {
    use Code::{
        AlreadyClaimed, AlreadyPaid, Closed, NotEligible, NotOpenYet, NotOrdered, OverLimit,
        Released, SoldOut,
    };
    matches!(
        code,
        AlreadyClaimed
            | AlreadyPaid
            | Closed
            | NotEligible
            | NotOpenYet
            | NotOrdered
            | OverLimit
            | Released
            | SoldOut
    )
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
        assert_eq!(of_code("never heard of"), Answer::Failed(fault::STRANGE));
    }
}
