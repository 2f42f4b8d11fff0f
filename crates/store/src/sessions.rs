//! Who is signed in to the pages.
//!
//! A session is a row, so that it can be listed and ended. The cookie that a browser shows is signed
//! and short-lived: it is checked without a look here, and renewed only while the row is good. A row
//! stays for a while after its end, because its id must not be taken twice.

use std::time::Duration;

use qiang_core::{Identity, Timestamp, UserId};
use qiang_sql::{Existing, Insert, Row, Table, sql};

use crate::error::{Result, While};
use crate::fields::Fields;
use crate::{Store, page, patiently};

/// How long a session that is over stays in the records.
const KEPT: Duration = Duration::from_secs(86_400);

static SESSIONS: Table = Table {
    name: "sessions",
    key: "id",
    fixed: "user_id, role, identity, how, created_at, expires_at",
    changing: "ended_at",
};

static ADD: Insert = Insert::new(&SESSIONS, Existing::IsAnError);

/// Somebody who signed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// Names it; nobody can guess it.
    pub id: String,
    pub user: UserId,
    /// What they may do: a word of whoever signs in.
    pub role: String,
    /// The real person behind the account, if the shop knows.
    pub identity: Option<Identity>,
    /// How they signed in.
    pub how: SignIn,
    /// Since when.
    pub created_at: Timestamp,
    /// Until when, at most.
    pub expires_at: Timestamp,
    /// When they signed out, or were signed out.
    pub ended_at: Option<Timestamp>,
}

/// How somebody signed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SignIn {
    /// With a token of the shop.
    Token,
    /// With the link that a server prints at its start.
    Link,
    /// By naming themselves, on a machine of one's own.
    Sandbox,
}

impl SignIn {
    /// The word for it in JSON and SQL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Link => "link",
            Self::Sandbox => "sandbox",
        }
    }

    /// The value a word stands for.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Token, Self::Link, Self::Sandbox].into_iter().find(|how| how.as_str() == word)
    }
}

impl Session {
    /// Whether it is good at a time.
    #[must_use]
    pub fn is_good(&self, now: Timestamp) -> bool {
        self.ended_at.is_none() && now < self.expires_at
    }
}

impl Store {
    /// Adds a session; says whether its id was free.
    pub async fn add_session(&self, session: &Session) -> Result<bool> {
        let values = [
            session.id.as_str().into(),
            session.user.as_str().into(),
            session.role.as_str().into(),
            session.identity.as_ref().map(Identity::as_str).into(),
            session.how.as_str().into(),
            session.created_at.millis().into(),
            session.expires_at.millis().into(),
            session.ended_at.map(Timestamp::millis).into(),
        ];
        let add = ADD.one(self.database.dialect());
        match patiently!(self.database.execute(add, &values).await) {
            Err(error) if error.is_duplicate() => Ok(false),
            added => added.when("adding a session").map(|_| true),
        }
    }

    /// A session, good or over.
    pub async fn session(&self, id: &str) -> Result<Option<Session>> {
        let select = sql!([SESSIONS] "SELECT {sessions} FROM sessions WHERE id = ?");
        let row = self.database.fetch_optional(select, &[id.into()]).await;
        row.when("reading a session")?.as_ref().map(read).transpose()
    }

    /// The sessions that are good at a time, newest first.
    pub async fn sessions(&self, now: Timestamp, max: u32) -> Result<Vec<Session>> {
        let select = sql!(
            [SESSIONS] "SELECT {sessions} FROM sessions
                        WHERE expires_at > ? AND ended_at IS NULL
                        ORDER BY created_at DESC, id LIMIT ?"
        );
        let values = [now.millis().into(), page(max).into()];
        let rows = self.database.fetch_all(select, &values).await.when("listing sessions")?;
        rows.iter().map(read).collect()
    }

    /// Ends a session; says whether it was good until now.
    pub async fn end_session(&self, id: &str, now: Timestamp) -> Result<bool> {
        let end = sql!(
            "UPDATE sessions SET ended_at = ?
             WHERE id = ? AND ended_at IS NULL AND expires_at > ?"
        );
        let values = [now.millis().into(), id.into(), now.millis().into()];
        let ended = patiently!(self.database.execute(end, &values).await);
        ended.when("ending a session").map(|found| found == 1)
    }

    /// Forgets the sessions that have been over for a day.
    pub async fn forget_sessions(&self, now: Timestamp) -> Result<()> {
        let kept = i64::try_from(KEPT.as_millis()).unwrap_or(i64::MAX);
        let forget = sql!("DELETE FROM sessions WHERE expires_at < ?");
        let before = now.millis().saturating_sub(kept);
        let forgotten = patiently!(self.database.execute(forget, &[before.into()]).await);
        forgotten.when("forgetting sessions").map(drop)
    }
}

fn read(row: &Row) -> Result<Session> {
    let mut fields = Fields::new(row, &SESSIONS);
    Ok(Session {
        id: fields.text()?.to_owned(),
        user: fields.id(UserId::new)?,
        role: fields.text()?.to_owned(),
        identity: fields.id_or_none(Identity::new)?,
        how: fields.word(SignIn::from_word)?,
        created_at: fields.time()?,
        expires_at: fields.time()?,
        ended_at: fields.time_or_none()?,
    })
}
