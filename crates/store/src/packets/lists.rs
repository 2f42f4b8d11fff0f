//! What a user sent and received, newest first, and what that adds up to; and the sums of the audit.

use qiang_core::packets::Kind;
use qiang_core::{Cents, ClaimId, Opened, PoolId, Timestamp, UserId};
use qiang_sql::{Row, sql};

use super::{GRABS, Grab, PACKETS, Packet, READING, read, read_grab_of};
use crate::error::{Result, While};
use crate::fields::Fields;
use crate::project::sql_id;
use crate::{Cursor, Store, page};

/// A time, from its first moment up to before its last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Within {
    pub from: Timestamp,
    pub until: Timestamp,
}

/// How many, and how much together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    pub count: u64,
    pub cents: Cents,
}

/// A portion that a user took, and of what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    pub grab: Grab,
    /// The packet's public id.
    pub packet: String,
    pub sender: UserId,
    pub kind: Kind,
    pub greeting: String,
}

impl Received {
    /// Its place in the listing.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        let Grab { pool, number, at, .. } = self.grab;
        Cursor { at, id: ClaimId { pool, number } }
    }
}

impl Store {
    /// What a user sent in a time, newest first, from behind the cursor on.
    pub async fn packets_sent(
        &self,
        sender: &UserId,
        within: Within,
        after: Option<Opened>,
        max: u32,
    ) -> Result<Vec<Packet>> {
        let select = sql!(
            [PACKETS] "SELECT {packets} FROM packets
                       WHERE sender = ? AND created_at >= ? AND created_at <= ?
                         AND (created_at < ? OR pool_id < ?)
                       ORDER BY created_at DESC, pool_id DESC LIMIT ?"
        );
        let (last, id) = match after {
            Some(Opened { at, id }) => (at.millis().min(within.until.millis() - 1), sql_id(id)),
            None => (within.until.millis() - 1, i64::MAX),
        };
        let values = [
            sender.as_str().into(),
            within.from.millis().into(),
            last.into(),
            last.into(),
            id.into(),
            page(max).into(),
        ];
        let rows = self.database.fetch_all(select, &values).await.when(READING)?;
        rows.iter().map(read).collect()
    }

    /// What a user took in a time, newest first, from behind the cursor on.
    pub async fn packets_received(
        &self,
        user: &UserId,
        within: Within,
        after: Option<Cursor>,
        max: u32,
    ) -> Result<Vec<Received>> {
        let select = sql!(
            [GRABS] "SELECT {packet_grabs}, packets.random_part, packets.sender, packets.kind,
                            packets.greeting
                     FROM packet_grabs JOIN packets ON packets.pool_id = packet_grabs.pool_id
                     WHERE packet_grabs.user_id = ? AND packet_grabs.at >= ?
                       AND packet_grabs.at <= ?
                       AND (packet_grabs.at < ? OR packet_grabs.pool_id < ?)
                     ORDER BY packet_grabs.at DESC, packet_grabs.pool_id DESC LIMIT ?"
        );
        // A user takes one portion of a packet, so the pool alone orders those of one moment.
        let (last, id) = match after {
            Some(Cursor { at, id }) => {
                (at.millis().min(within.until.millis() - 1), sql_id(id.pool))
            }
            None => (within.until.millis() - 1, i64::MAX),
        };
        let values = [
            user.as_str().into(),
            within.from.millis().into(),
            last.into(),
            last.into(),
            id.into(),
            page(max).into(),
        ];
        let rows = self.database.fetch_all(select, &values).await.when(READING)?;
        rows.iter().map(read_received).collect()
    }

    /// What a user sent in a time, together.
    pub async fn total_sent(&self, sender: &UserId, within: Within) -> Result<Totals> {
        macro_rules! total {
            ($number:literal) => {
                concat!(
                    "SELECT COUNT(*), CAST(COALESCE(SUM(total_cents), 0) AS ", $number, ")
                     FROM packets WHERE sender = ? AND created_at >= ? AND created_at < ?"
                )
            };
        }
        let select = sql!(
            sqlite: total!("INTEGER"),
            mysql: total!("SIGNED"),
            postgres: total!("BIGINT"),
        );
        self.total(select, sender, within).await
    }

    /// What a user took in a time, together.
    pub async fn total_received(&self, user: &UserId, within: Within) -> Result<Totals> {
        macro_rules! total {
            ($number:literal) => {
                concat!(
                    "SELECT COUNT(*), CAST(COALESCE(SUM(amount_cents), 0) AS ",
                    $number,
                    ")
                     FROM packet_grabs WHERE user_id = ? AND at >= ? AND at < ?"
                )
            };
        }
        let select = sql!(
            sqlite: total!("INTEGER"),
            mysql: total!("SIGNED"),
            postgres: total!("BIGINT"),
        );
        self.total(select, user, within).await
    }

    async fn total(
        &self,
        select: &qiang_sql::Statement,
        user: &UserId,
        within: Within,
    ) -> Result<Totals> {
        let values =
            [user.as_str().into(), within.from.millis().into(), within.until.millis().into()];
        let row = self.database.fetch_optional(select, &values).await.when(READING)?;
        let Some(row) = row else { unreachable!("sums without groups are one row") };
        let mut fields = Fields::new(&row, &GRABS);
        Ok(Totals { count: fields.number()?, cents: fields.cents()? })
    }

    /// Whether a grab waits for an account that can take it.
    pub async fn waits_for_credit(&self, pool: PoolId) -> Result<Cents> {
        macro_rules! waiting {
            ($number:literal) => {
                concat!(
                    "SELECT CAST(COALESCE(SUM(g.amount_cents), 0) AS ", $number, ")
                     FROM packet_grabs_waiting AS w
                     JOIN packet_grabs AS g ON g.pool_id = w.pool_id AND g.number = w.number
                     WHERE w.pool_id = ?"
                )
            };
        }
        let select = sql!(
            sqlite: waiting!("INTEGER"),
            mysql: waiting!("SIGNED"),
            postgres: waiting!("BIGINT"),
        );
        let row = self.database.fetch_optional(select, &[sql_id(pool).into()]).await;
        let Some(row) = row.when(READING)? else { unreachable!("a sum is one row") };
        Fields::new(&row, &GRABS).cents()
    }
}

fn read_received(row: &Row) -> Result<Received> {
    let mut fields = Fields::new(row, &GRABS);
    let grab = read_grab_of(&mut fields)?;
    let packet = format!("{}-{}", grab.pool, fields.text()?);
    Ok(Received {
        packet,
        sender: fields.id(UserId::new)?,
        kind: fields.word(Kind::from_word)?,
        greeting: fields.text()?.to_owned(),
        grab,
    })
}
