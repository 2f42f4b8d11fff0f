//! What is left of a packet goes back to its sender, once.
//!
//! Whoever calls this has closed the pool and waited until everything decided before is recorded. What
//! the engine says is left and what is recorded as taken must then be the total; if not, a grab is missing,
//! and nothing goes back.

use qiang_core::{Cents, PoolId, Timestamp};
use qiang_sql::{Transaction, sql};

use super::send::DERIVED;
use super::{PACKETS, Packet, read};
use crate::accounts::{self, Account, Moved, Movement, What};
use crate::error::{Result, While};
use crate::project::sql_id;
use crate::{Store, page, patiently};

const RECYCLING: &str = "recycling packets";

/// What came of recycling a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recycled {
    /// It is over now, and this went back.
    Done(Cents),
    /// It was over before.
    Before,
    /// What is left and what is recorded as taken are not the total.
    Missing { total: Cents, grabbed: Cents, left: Cents },
    /// The sender's account cannot take it now.
    Refused(accounts::Refusal),
}

impl Store {
    /// The packets that are due to be recycled or cleared away, longest due first.
    pub async fn due_packets(&self, now: Timestamp, max: u32) -> Result<Vec<Packet>> {
        let select = sql!(
            [PACKETS] "SELECT {packets} FROM packets WHERE next_at <= ? ORDER BY next_at LIMIT ?"
        );
        let values = [now.millis().into(), page(max).into()];
        let rows = self.database.fetch_all(select, &values).await.when(RECYCLING)?;
        rows.iter().map(read).collect()
    }

    /// Gives back what is left of a packet whose pool is closed, once, and has it cleared away at
    /// `clear_at`.
    pub async fn recycle_packet(
        &self,
        pool: PoolId,
        left: Cents,
        now: Timestamp,
        clear_at: Timestamp,
    ) -> Result<Recycled> {
        loop {
            match patiently!(self.try_to_recycle(pool, left, now, clear_at).await) {
                // Somebody else gives it back at this moment.
                Err(error) if error.is_duplicate() => {}
                done => return done,
            }
        }
    }

    async fn try_to_recycle(
        &self,
        pool: PoolId,
        left: Cents,
        now: Timestamp,
        clear_at: Timestamp,
    ) -> Result<Recycled> {
        let mut tx = self.begin().await?;
        let select = sql!([PACKETS] "SELECT {packets} FROM packets WHERE pool_id = ? {lock}");
        let row = tx.fetch_optional(select, &[sql_id(pool).into()]).await.when(RECYCLING)?;
        let Some(packet) = row.as_ref().map(read).transpose()? else {
            return Ok(Recycled::Before);
        };
        if packet.recycled_at.is_some() {
            return Ok(Recycled::Before);
        }
        let (total, grabbed) = (packet.total, packet.grabbed);
        if grabbed.plus(left) != total {
            return Ok(Recycled::Missing { total, grabbed, left });
        }
        if left > Cents::ZERO
            && let Moved::Refused(refusal) = give_back(&mut tx, &packet, left, now).await?
        {
            return Ok(Recycled::Refused(refusal));
        }
        let over = sql!(
            "UPDATE packets SET recycled_at = ?, refunded_cents = ?, next_at = ? WHERE pool_id = ?"
        );
        let values =
            [now.millis().into(), left.get().into(), clear_at.millis().into(), sql_id(pool).into()];
        tx.execute(over, &values).await.when(RECYCLING)?;
        let forget = sql!("DELETE FROM packet_attempts WHERE pool_id = ?");
        tx.execute(forget, &[sql_id(pool).into()]).await.when(RECYCLING)?;
        tx.commit().await.when(RECYCLING)?;
        Ok(Recycled::Done(left))
    }

    /// Has a packet looked at again at another time, or, if its pool was cleared away, never.
    pub async fn postpone_packet(&self, pool: PoolId, until: Option<Timestamp>) -> Result<()> {
        let postpone = sql!("UPDATE packets SET next_at = ? WHERE pool_id = ?");
        let values = [until.map(Timestamp::millis).into(), sql_id(pool).into()];
        patiently!(self.database.execute(postpone, &values).await).when(RECYCLING).map(drop)
    }
}

async fn give_back(
    tx: &mut Transaction,
    packet: &Packet,
    left: Cents,
    now: Timestamp,
) -> Result<Moved> {
    let key = format!("packet:{}:refund", packet.pool);
    let (from, to) = (Account::Packet(packet.pool), Account::User(packet.sender.clone()));
    let what = What::Transfer { from, to, amount: left };
    let movement = Movement { key: &key, request_hash: DERIVED, what };
    let moved = accounts::apply(tx, &[movement], now).await?.pop();
    Ok(moved.expect("one movement has one result"))
}
