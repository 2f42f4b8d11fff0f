//! Who speaks on a connection, and what they may.

use qiang_core::{Timestamp, UserId};
use sha2::{Digest as _, Sha256};

use super::spec::Who;
use qiang_app::secrets::Secret;
use qiang_app::token::{self, Principal, Role};

/// Somebody, once they have proven who they are.
#[derive(Debug, Default)]
pub(super) enum Access {
    /// Nobody has signed in.
    #[default]
    Nobody,
    /// The shop itself, who acts for every user.
    Shop {
        /// When its token ends, if it came with one.
        until: Option<Timestamp>,
    },
    /// A buyer, who acts for themselves.
    Buyer(Principal),
}

impl Access {
    /// Checks what was said to sign in: the password, or a token.
    pub(super) fn of(
        said: &[u8],
        password: Option<&Secret>,
        tokens: &token::Key,
        now: Timestamp,
    ) -> Result<Self, token::Error> {
        // Digests tell nothing about the password by the time it takes to compare them.
        let digest = Sha256::digest(said);
        if password.is_some_and(|password| Sha256::digest(password.expose()) == digest) {
            return Ok(Self::Shop { until: None });
        }
        let who = tokens.authenticate(Some(said), now)?;
        Ok(match who.role {
            Role::Admin => Self::Shop { until: Some(who.expires_at) },
            Role::Buyer | Role::Viewer => Self::Buyer(who),
        })
    }

    /// Whether somebody signed in.
    pub(super) fn is_somebody(&self) -> bool {
        !matches!(self, Self::Nobody)
    }

    /// Whether the token they came with has ended.
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        match self {
            Self::Nobody | Self::Shop { until: None } => false,
            Self::Shop { until: Some(until) } => *until <= now,
            Self::Buyer(who) => who.expires_at <= now,
        }
    }

    /// Whether they may say a command that is for `who`.
    pub(super) fn may_say(&self, who: Who) -> bool {
        match (who, self) {
            (Who::Anybody, _) | (Who::Known | Who::Shop, Self::Shop { .. }) => true,
            (Who::Known, Self::Buyer(_)) => true,
            (Who::Known | Who::Shop, Self::Nobody) | (Who::Shop, Self::Buyer(_)) => false,
        }
    }

    /// Whether they may act for a user.
    pub(super) fn may_act_for(&self, user: &UserId) -> bool {
        match self {
            Self::Nobody => false,
            Self::Shop { .. } => true,
            Self::Buyer(who) => who.user == *user,
        }
    }
}
