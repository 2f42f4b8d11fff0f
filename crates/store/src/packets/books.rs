//! What is on record of packets, for the audit: rows, grabs and accounts at one moment.

use qiang_core::{Cents, PoolId, Timestamp};
use qiang_sql::sql;

use super::{PACKETS, READING};
use crate::error::{Result, While};
use crate::fields::Fields;
use crate::project::sql_id;
use crate::{Store, page};

/// What the records and the accounts say of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketBook {
    pub pool: PoolId,
    pub total: Cents,
    /// What its row says was taken.
    pub grabbed: Cents,
    /// What its grabs add up to.
    pub grabs: Cents,
    pub refunded: Cents,
    pub recycled_at: Option<Timestamp>,
    /// What its account has.
    pub in_account: Cents,
    /// What was taken and is not credited yet.
    pub waiting: Cents,
}

impl PacketBook {
    /// What the packet's account should have.
    #[must_use]
    pub fn should_have(&self) -> Cents {
        let gone = self.grabs.plus(self.refunded).plus(Cents::new(-self.waiting.get()));
        Cents::new(self.total.get() - gone.get())
    }
}

impl Store {
    /// The books of packets with pools above `after`, by rising pool. All of a page are of one moment.
    pub async fn packet_books(&self, after: Option<PoolId>, max: u32) -> Result<Vec<PacketBook>> {
        macro_rules! books {
            ($number:literal, $account:literal) => {
                concat!(
                    "SELECT pool_id, total_cents, grabbed_cents,
                        (SELECT CAST(COALESCE(SUM(g.amount_cents), 0) AS ", $number, ")
                         FROM packet_grabs AS g WHERE g.pool_id = packets.pool_id),
                        refunded_cents, recycled_at,
                        (SELECT COALESCE(MAX(a.posted), 0) FROM accounts AS a
                         WHERE a.account = ", $account, "),
                        (SELECT CAST(COALESCE(SUM(g.amount_cents), 0) AS ", $number, ")
                         FROM packet_grabs_waiting AS w
                         JOIN packet_grabs AS g ON g.pool_id = w.pool_id AND g.number = w.number
                         WHERE w.pool_id = packets.pool_id)
                     FROM packets WHERE pool_id > ? ORDER BY pool_id LIMIT ?"
                )
            };
        }
        let select = sql!(
            sqlite: books!("INTEGER", "'packet:' || packets.pool_id"),
            mysql: books!("SIGNED", "CONCAT('packet:', packets.pool_id)"),
            postgres: books!("BIGINT", "'packet:' || packets.pool_id"),
        );
        let values = [after.map_or(0, sql_id).into(), page(max).into()];
        let rows = self.database.fetch_all(select, &values).await.when(READING)?;
        let books = rows.iter().map(|row| {
            let mut fields = Fields::new(row, &PACKETS);
            Ok(PacketBook {
                pool: fields.pool()?,
                total: fields.cents()?,
                grabbed: fields.cents()?,
                grabs: fields.cents()?,
                refunded: fields.cents()?,
                recycled_at: fields.time_or_none()?,
                in_account: fields.cents()?,
                waiting: fields.cents()?,
            })
        });
        books.collect()
    }
}
