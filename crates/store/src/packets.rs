//! Red packets: what was sent, who took what, and what went back.
//!
//! The money of a packet is on an account of its own. It is there before anybody can take a portion: one
//! transaction debits the sender, writes the packet and enqueues the job that opens its pool. A grab is
//! credited in the transaction that records it, under a key of its own, so never twice. What is left goes
//! back once, when the pool is closed and everything decided before is recorded.
//!
//! Nothing here shows a portion that nobody has taken. Whoever reads a [`Packet`] has its seed, and must
//! not show it before the packet is over.

mod books;
mod limits;
mod lists;
mod record;
mod recycle;
mod send;

use std::sync::Arc;

use qiang_core::packets::{Kind, Recipe, Seed};
use qiang_core::{Cents, Fault, Flow, LimitBy, PoolId, Reclaim, Supply, Terms, Timestamp, UserId};
use qiang_sql::{Existing, Insert, Params, Row, Table, sql};

use crate::error::{Result, Unreadable, While};
use crate::fields::Fields;
use crate::project::sql_id;
use crate::{Store, page};

pub use books::PacketBook;
pub use lists::{Received, Totals, Within};
pub(crate) use record::write;
pub use recycle::Recycled;
pub use send::{DayLimits, Sending, Sent};

/// The kind of the job that opens the pool of a packet; its key is the pool's id.
pub const OPEN_JOB: &str = "open_packet_v1";
/// The most grabs a packet can have: the page of them is whole.
const MAX_GRABS: u32 = qiang_core::packets::MAX_SHARES;

const READING: &str = "reading packets";

static PACKETS: Table = Table {
    name: "packets",
    key: "pool_id",
    fixed: "random_part, request_key, request_hash, sender, kind, total_cents, shares, nonce, seed, commitment, \
            greeting, cover, recipients, password_hash, created_at, expires_at",
    changing: "opened_at, grabs, grabbed_cents, last_grab_at, refunded_cents, recycled_at, next_at",
};
static GRABS: Table = Table {
    name: "packet_grabs",
    key: "pool_id, number",
    fixed: "user_id, place, amount_cents, at",
    changing: "",
};
static ADD: Insert = Insert::new(&PACKETS, Existing::IsAnError);

/// A packet as it was sent, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    pub pool: PoolId,
    /// What nobody can guess of its id.
    pub random_part: String,
    /// Names the request that sent it, and whose it was.
    pub request_key: String,
    /// What was asked, but for the password.
    pub request_hash: String,
    pub sender: UserId,
    pub kind: Kind,
    pub total: Cents,
    pub shares: u32,
    pub nonce: Vec<u8>,
    /// All portions follow from it.
    pub seed: Seed,
    pub commitment: [u8; 32],
    pub greeting: String,
    pub cover: Option<String>,
    /// Who may take a portion; `None` is everybody.
    pub recipients: Option<Vec<UserId>>,
    /// Salt and HMAC of the password, if it has one.
    pub password_hash: Option<String>,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    /// Since when portions can be taken, as far as that is recorded.
    pub opened_at: Option<Timestamp>,
    /// Portions taken, as far as that is recorded.
    pub grabs: u32,
    pub grabbed: Cents,
    pub last_grab_at: Option<Timestamp>,
    /// What went back to the sender.
    pub refunded: Cents,
    /// When it was over.
    pub recycled_at: Option<Timestamp>,
}

/// Where a packet stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Funded; its pool is about to open.
    Opening,
    Open,
    /// Every portion was taken.
    Empty,
    /// Its time was over, and what was left went back.
    Recycled,
}

impl Status {
    /// The word for it in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Open => "open",
            Self::Empty => "empty",
            Self::Recycled => "recycled",
        }
    }

    /// Whether nothing can be taken from it any more, so that its cut may be known.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Empty | Self::Recycled)
    }
}

impl Packet {
    /// Its public id.
    #[must_use]
    pub fn id(&self) -> String {
        format!("{}-{}", self.pool, self.random_part)
    }

    #[must_use]
    pub fn status(&self) -> Status {
        if self.grabs == self.shares {
            Status::Empty
        } else if self.recycled_at.is_some() {
            Status::Recycled
        } else if self.opened_at.is_some() {
            Status::Open
        } else {
            Status::Opening
        }
    }

    /// The terms of its pool. They are the same each time, so opening it again changes nothing.
    pub fn terms(&self) -> Result<Arc<Terms>, Fault> {
        let id = self.id();
        let recipe = Recipe {
            packet: &id,
            kind: self.kind,
            total: self.total,
            shares: self.shares,
            nonce: &self.nonce,
            seed: &self.seed,
        };
        Ok(Arc::new(Terms {
            kind: qiang_core::Kind::Packet,
            title: "packet".into(),
            sku: "packet".into(),
            supply: Supply::Portions(recipe.cut()?),
            limit_per_user: 1,
            limit_by: LimitBy::User,
            price: Cents::ZERO,
            price_steps: Vec::new(),
            opens_at: Timestamp::from_millis(0),
            closes_at: Some(self.expires_at),
            flow: Flow::Instant,
            reclaim: Reclaim::Allowed,
            buckets: 1,
        }))
    }
}

/// A portion that somebody took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grab {
    pub pool: PoolId,
    /// Its place among the grabs of the packet, from 1.
    pub number: u32,
    pub user: UserId,
    /// Its place in the cut, from 0.
    pub portion: u32,
    pub amount: Cents,
    pub at: Timestamp,
}

impl Store {
    /// A packet by its pool.
    pub async fn packet(&self, pool: PoolId) -> Result<Option<Packet>> {
        let select = sql!([PACKETS] "SELECT {packets} FROM packets WHERE pool_id = ?");
        let row = self.database.fetch_optional(select, &[sql_id(pool).into()]).await;
        row.when(READING)?.as_ref().map(read).transpose()
    }

    /// The packet that a request sent.
    pub async fn packet_of_request(&self, request_key: &str) -> Result<Option<Packet>> {
        let select = sql!([PACKETS] "SELECT {packets} FROM packets WHERE request_key = ?");
        let row = self.database.fetch_optional(select, &[request_key.into()]).await;
        row.when(READING)?.as_ref().map(read).transpose()
    }

    /// All packets with pools above `after`, by rising pool.
    pub async fn packets_page(&self, after: Option<PoolId>, max: u32) -> Result<Vec<Packet>> {
        let select = sql!(
            [PACKETS] "SELECT {packets} FROM packets WHERE pool_id > ? ORDER BY pool_id LIMIT ?"
        );
        let after = after.map_or(0, sql_id);
        let rows = self.database.fetch_all(select, &[after.into(), page(max).into()]).await;
        rows.when(READING)?.iter().map(read).collect()
    }

    /// Who took what of a packet, in order.
    pub async fn grabs(&self, pool: PoolId) -> Result<Vec<Grab>> {
        let select = sql!(
            [GRABS] "SELECT {packet_grabs} FROM packet_grabs WHERE pool_id = ?
                     ORDER BY number LIMIT ?"
        );
        let values = [sql_id(pool).into(), page(MAX_GRABS).into()];
        let rows = self.database.fetch_all(select, &values).await.when(READING)?;
        rows.iter().map(read_grab).collect()
    }

    /// What a user took of a packet.
    pub async fn grab_of(&self, pool: PoolId, user: &UserId) -> Result<Option<Grab>> {
        let select = sql!(
            [GRABS] "SELECT {packet_grabs} FROM packet_grabs WHERE pool_id = ? AND user_id = ?"
        );
        let values = [sql_id(pool).into(), user.as_str().into()];
        let row = self.database.fetch_optional(select, &values).await.when(READING)?;
        row.as_ref().map(read_grab).transpose()
    }
}

fn bind(params: &mut Params, packet: &Packet) {
    let recipients = packet.recipients.as_ref().map(|users| {
        let users: Vec<&str> = users.iter().map(UserId::as_str).collect();
        serde_json::to_string(&users).expect("a list of texts is JSON")
    });
    params
        .add(sql_id(packet.pool))
        .add(&packet.random_part)
        .add(&packet.request_key)
        .add(&packet.request_hash)
        .add(packet.sender.as_str())
        .add(packet.kind.as_str())
        .add(packet.total.get())
        .add(packet.shares)
        .add(&packet.nonce[..])
        .add(&packet.seed.0[..])
        .add(&packet.commitment[..])
        .add(&packet.greeting)
        .add(packet.cover.as_deref())
        .add(recipients.as_deref())
        .add(packet.password_hash.as_deref())
        .add(packet.created_at.millis())
        .add(packet.expires_at.millis())
        .add(packet.opened_at.map(Timestamp::millis))
        .add(packet.grabs)
        .add(packet.grabbed.get())
        .add(packet.last_grab_at.map(Timestamp::millis))
        .add(packet.refunded.get())
        .add(packet.recycled_at.map(Timestamp::millis))
        .add(packet.expires_at.millis());
}

fn read(row: &Row) -> Result<Packet> {
    let mut fields = Fields::new(row, &PACKETS);
    Ok(Packet {
        pool: fields.pool()?,
        random_part: fields.text()?.to_owned(),
        request_key: fields.text()?.to_owned(),
        request_hash: fields.text()?.to_owned(),
        sender: fields.id(UserId::new)?,
        kind: fields.word(Kind::from_word)?,
        total: fields.cents()?,
        shares: fields.number()?,
        nonce: fields.bytes()?.to_owned(),
        seed: Seed(read_hash(&mut fields)?),
        commitment: read_hash(&mut fields)?,
        greeting: fields.text()?.to_owned(),
        cover: fields.text_or_none()?.map(str::to_owned),
        recipients: read_users(&mut fields)?,
        password_hash: fields.text_or_none()?.map(str::to_owned),
        created_at: fields.time()?,
        expires_at: fields.time()?,
        opened_at: fields.time_or_none()?,
        grabs: fields.number()?,
        grabbed: fields.cents()?,
        last_grab_at: fields.time_or_none()?,
        refunded: fields.cents()?,
        recycled_at: fields.time_or_none()?,
    })
}

fn read_hash(fields: &mut Fields<'_>) -> Result<[u8; 32]> {
    let bytes = fields.bytes()?;
    let bad = |_| fields.bad_last(Unreadable::Range(i64::try_from(bytes.len()).unwrap_or(-1)));
    bytes.try_into().map_err(bad)
}

fn read_users(fields: &mut Fields<'_>) -> Result<Option<Vec<UserId>>> {
    let Some(text) = fields.text_or_none()? else { return Ok(None) };
    let users: Vec<String> =
        serde_json::from_str(text).map_err(|error| fields.bad_last(Unreadable::Json(error)))?;
    let users = users.iter().map(|user| UserId::new(user));
    users
        .collect::<Result<_, _>>()
        .map(Some)
        .map_err(|error| fields.bad_last(Unreadable::Id(error)))
}

fn read_grab(row: &Row) -> Result<Grab> {
    read_grab_of(&mut Fields::new(row, &GRABS))
}

fn read_grab_of(fields: &mut Fields<'_>) -> Result<Grab> {
    Ok(Grab {
        pool: fields.pool()?,
        number: fields.number()?,
        user: fields.id(UserId::new)?,
        portion: fields.number()?,
        amount: fields.cents()?,
        at: fields.time()?,
    })
}
