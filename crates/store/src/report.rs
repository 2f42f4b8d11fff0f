//! What a sale came to, added up by the database from its claims, payments and refunds. It works while
//! the sale runs and after it was cleared.
//!
//! Every sum is one statement, so it is of one moment; two of them may be of two moments.

use qiang_core::{Cents, PoolId, Timestamp};
use qiang_sql::{Row, Statement, Table, sql};

use crate::Store;
use crate::claims::CLAIMS;
use crate::error::{Result, While};
use crate::fields::Fields;
use crate::project::sql_id;

const DOING: &str = "adding up a sale";

/// A row of sums, which has the sale for its key.
static SUMS: Table = Table { name: "claims", key: "sale_id", fixed: "", changing: "" };

/// The sums of a sale.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SaleSums {
    /// Claims ever granted.
    pub claims: u64,
    /// Of these, claims that a late payment put in place of released ones.
    pub regranted: u64,
    /// Users with a claim.
    pub buyers: u64,
    pub first_claim_at: Option<Timestamp>,
    pub last_claim_at: Option<Timestamp>,
    /// Units in claims that are held, not ordered.
    pub held: u64,
    /// Units ordered, not paid.
    pub ordered: u64,
    /// Units paid.
    pub paid: u64,
    /// Units given back before they were paid.
    pub released: u64,
    /// Units that were paid and taken back.
    pub returned: u64,
    /// What the paid claims cost.
    pub earned: Cents,
    /// Payments that paid an order, and their sum.
    pub payments: u64,
    pub received: Cents,
    /// Refunds that were sent, and their sum.
    pub refunds_settled: u64,
    pub settled: Cents,
    /// Refunds that are still to be sent, and their sum.
    pub refunds_due: u64,
    pub due: Cents,
}

/// What happened in a part of a sale's time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SalePart {
    /// Which part, from 0.
    pub place: u64,
    /// How many claims or payments.
    pub count: u64,
    /// How many units, where units are counted.
    pub units: u64,
}

/// How long it took from a claim to its payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaidWithin {
    /// Half of the payments took no longer.
    pub half_ms: i64,
    /// Nine of ten took no longer.
    pub most_ms: i64,
    /// None took longer.
    pub all_ms: i64,
}

/// The same statement, spelled for each database: how it calls a whole number, and how it divides two.
macro_rules! each {
    ($text:ident) => {
        sql!(
            sqlite: $text!("INTEGER", "/"),
            mysql: $text!("SIGNED", "DIV"),
            postgres: $text!("BIGINT", "/"),
        )
    };
}

macro_rules! sum {
    ($what:literal, $number:literal) => {
        concat!("CAST(COALESCE(SUM(", $what, "), 0) AS ", $number, ")")
    };
}

macro_rules! claims {
    ($number:literal, $divided:literal) => {
        concat!(
            "SELECT COUNT(*), COUNT(replaces), COUNT(DISTINCT user_id),
                MIN(created_at), MAX(created_at), ",
            sum!("CASE WHEN state = 'held' THEN quantity ELSE 0 END", $number),
            ", ",
            sum!("CASE WHEN state = 'ordered' THEN quantity ELSE 0 END", $number),
            ", ",
            sum!("CASE WHEN state = 'paid' THEN quantity ELSE 0 END", $number),
            ", ",
            sum!(
                "CASE WHEN state = 'released' AND payment_id IS NULL THEN quantity ELSE 0 END",
                $number
            ),
            ", ",
            sum!(
                "CASE WHEN state = 'released' AND payment_id IS NOT NULL THEN quantity ELSE 0 END",
                $number
            ),
            ", ",
            sum!("CASE WHEN state = 'paid' THEN quantity * unit_price_cents ELSE 0 END", $number),
            " FROM claims WHERE sale_id = ?"
        )
    };
}

macro_rules! payments {
    ($number:literal, $divided:literal) => {
        concat!(
            "SELECT COUNT(*), ",
            sum!("amount_cents", $number),
            " FROM payments WHERE sale_id = ?"
        )
    };
}

macro_rules! refunds {
    ($number:literal, $divided:literal) => {
        concat!(
            "SELECT COUNT(*), ",
            sum!("amount_cents", $number),
            " FROM refunds WHERE sale_id = ? AND status = ?"
        )
    };
}

macro_rules! granted_parts {
    ($number:literal, $divided:literal) => {
        concat!(
            "SELECT (created_at - ?) ",
            $divided,
            " ? AS part, COUNT(*), ",
            sum!("quantity", $number),
            " FROM claims WHERE sale_id = ? AND created_at >= ? GROUP BY 1 ORDER BY 1 LIMIT ?"
        )
    };
}

macro_rules! released_parts {
    ($number:literal, $divided:literal) => {
        concat!(
            "SELECT (changed_at - ?) ",
            $divided,
            " ? AS part, COUNT(*), ",
            sum!("quantity", $number),
            " FROM claims WHERE sale_id = ? AND changed_at >= ? AND state = 'released'
              GROUP BY 1 ORDER BY 1 LIMIT ?"
        )
    };
}

macro_rules! paid_parts {
    ($number:literal, $divided:literal) => {
        concat!(
            "SELECT (paid_at - ?) ",
            $divided,
            " ? AS part, COUNT(*), COUNT(*)
              FROM payments WHERE sale_id = ? AND paid_at >= ? GROUP BY 1 ORDER BY 1 LIMIT ?"
        )
    };
}

macro_rules! busiest {
    ($number:literal, $divided:literal) => {
        concat!(
            "SELECT MAX(seconds.granted) FROM (
                SELECT COUNT(*) AS granted FROM claims WHERE sale_id = ? GROUP BY created_at ",
            $divided,
            " 1000
             ) AS seconds"
        )
    };
}

impl Store {
    /// What a sale came to; all of it 0 if there is none.
    pub async fn sale_sums(&self, sale: PoolId) -> Result<SaleSums> {
        let id = sql_id(sale).into();
        let one = async |select: &Statement, values: &[_]| {
            let row = self.database.fetch_optional(select, values).await.when(DOING)?;
            let Some(row) = row else { unreachable!("sums without groups are one row") };
            Ok::<_, crate::Error>(row)
        };
        let row = one(each!(claims), &[id]).await?;
        let mut fields = Fields::new(&row, &SUMS);
        let mut sums = SaleSums {
            claims: fields.number()?,
            regranted: fields.number()?,
            buyers: fields.number()?,
            first_claim_at: fields.time_or_none()?,
            last_claim_at: fields.time_or_none()?,
            held: fields.number()?,
            ordered: fields.number()?,
            paid: fields.number()?,
            released: fields.number()?,
            returned: fields.number()?,
            earned: fields.cents()?,
            ..SaleSums::default()
        };
        let row = one(each!(payments), &[id]).await?;
        let mut fields = Fields::new(&row, &SUMS);
        (sums.payments, sums.received) = (fields.number()?, fields.cents()?);
        let row = one(each!(refunds), &[id, "settled".into()]).await?;
        let mut fields = Fields::new(&row, &SUMS);
        (sums.refunds_settled, sums.settled) = (fields.number()?, fields.cents()?);
        let row = one(each!(refunds), &[id, "due".into()]).await?;
        let mut fields = Fields::new(&row, &SUMS);
        (sums.refunds_due, sums.due) = (fields.number()?, fields.cents()?);
        Ok(sums)
    }

    /// Claims granted in each part of a sale's time: of so many milliseconds, the first one from `from`
    /// on, at most `max` parts that are not empty.
    pub async fn granted_by_time(
        &self,
        sale: PoolId,
        from: Timestamp,
        part_ms: u32,
        max: u32,
    ) -> Result<Vec<SalePart>> {
        self.parts(each!(granted_parts), sale, from, part_ms, max).await
    }

    /// Claims released in each part of a sale's time, as [`Store::granted_by_time`].
    pub async fn released_by_time(
        &self,
        sale: PoolId,
        from: Timestamp,
        part_ms: u32,
        max: u32,
    ) -> Result<Vec<SalePart>> {
        self.parts(each!(released_parts), sale, from, part_ms, max).await
    }

    /// Payments of each part of a sale's time, as [`Store::granted_by_time`].
    pub async fn paid_by_time(
        &self,
        sale: PoolId,
        from: Timestamp,
        part_ms: u32,
        max: u32,
    ) -> Result<Vec<SalePart>> {
        self.parts(each!(paid_parts), sale, from, part_ms, max).await
    }

    async fn parts(
        &self,
        select: &Statement,
        sale: PoolId,
        from: Timestamp,
        part_ms: u32,
        max: u32,
    ) -> Result<Vec<SalePart>> {
        let from = from.millis().into();
        let values = [from, part_ms.max(1).into(), sql_id(sale).into(), from, max.into()];
        let rows = self.database.fetch_all(select, &values).await.when(DOING)?;
        let read = |row: &Row| {
            let mut fields = Fields::new(row, &SUMS);
            let (place, count) = (fields.number()?, fields.number()?);
            Ok(SalePart { place, count, units: fields.number()? })
        };
        rows.iter().map(read).collect()
    }

    /// The most claims granted in one second.
    pub async fn busiest_second(&self, sale: PoolId) -> Result<u64> {
        let row = self.database.fetch_optional(each!(busiest), &[sql_id(sale).into()]).await;
        let read = |row: Row| Fields::new(&row, &SUMS).number_or_none();
        Ok(row.when(DOING)?.map(read).transpose()?.flatten().unwrap_or(0))
    }

    /// When nothing was left for the first time, of a sale that began with so many units. Restocks count
    /// from when they came.
    pub async fn sold_out_at(&self, sale: PoolId, units: u32) -> Result<Option<Timestamp>> {
        // Of one moment what came back counts first: it may be what was granted then.
        let select = sql!(
            "SELECT MIN(sums.at) FROM (
                SELECT moves.at, SUM(moves.taken) OVER (
                    ORDER BY moves.at, moves.taken ROWS UNBOUNDED PRECEDING
                ) AS gone
                FROM (
                    SELECT created_at AS at, quantity AS taken FROM claims WHERE sale_id = ?
                    UNION ALL
                    SELECT changed_at, -quantity FROM claims
                    WHERE sale_id = ? AND state = 'released'
                    UNION ALL
                    SELECT changed_at, -units FROM sale_changes
                    WHERE sale_id = ? AND kind = 'restocked'
                ) AS moves
             ) AS sums WHERE sums.gone >= ?"
        );
        let id = sql_id(sale).into();
        let row = self.database.fetch_optional(select, &[id, id, id, units.into()]).await;
        let read = |row: Row| Fields::new(&row, &CLAIMS).time_or_none();
        Ok(row.when(DOING)?.map(read).transpose()?.flatten())
    }

    /// How long buyers took to pay; `None` if nobody has. Claims that a late payment bought are left out.
    pub async fn paid_within(&self, sale: PoolId) -> Result<Option<PaidWithin>> {
        const PAID: &str = "FROM payments AS p
             JOIN claims AS c ON c.sale_id = p.sale_id AND c.number = p.number
             WHERE p.sale_id = ? AND c.replaces IS NULL";
        let id = sql_id(sale).into();
        let count = Statement::built(format!("SELECT COUNT(*) {PAID}"));
        let row = self.database.fetch_optional(&count, &[id]).await.when(DOING)?;
        let read = |row: Row| Fields::new(&row, &SUMS).int();
        let count = row.map(read).transpose()?.unwrap_or(0);
        if count == 0 {
            return Ok(None);
        }
        let select = Statement::built(format!(
            "SELECT p.paid_at - c.created_at AS took {PAID} ORDER BY took LIMIT 1 OFFSET ?"
        ));
        let ranked = async |rank: i64| {
            let row = self.database.fetch_optional(&select, &[id, rank.into()]).await;
            Ok::<_, crate::Error>(row.when(DOING)?.map(read).transpose()?.unwrap_or(0))
        };
        Ok(Some(PaidWithin {
            half_ms: ranked((count - 1) / 2).await?,
            most_ms: ranked((count * 9 - 1) / 10).await?,
            all_ms: ranked(count - 1).await?,
        }))
    }
}
