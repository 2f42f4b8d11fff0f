//! How often which answer was given to those who claimed from a sale: what its report says of those who
//! got nothing.
//!
//! Every process counts for itself and adds what it counted once a second. An addition has a number, so
//! that one whose commit was not confirmed can be made again and still counts once.

use qiang_core::{PoolId, Timestamp};
use qiang_sql::{Existing, Insert, Params, Row, Table, Transaction, sql};

use crate::error::{Result, While};
use crate::fields::Fields;
use crate::project::sql_id;
use crate::{Store, patiently};

const ADDING: &str = "adding up the answers of sales";
/// The most rows of a sale that are read. Parts grow with the age of a sale, so there are never as many.
const MAX_ROWS: i64 = 200_000;
/// A process that has added nothing for so long has ended.
const WRITER_KEPT_MS: i64 = 86_400_000;

static OUTCOMES: Table = Table {
    name: "sale_outcomes",
    key: "sale_id, at, outcome",
    fixed: "covers_ms",
    changing: "times",
};

static ADD: Insert = Insert::new(&OUTCOMES, Existing::IsAddedTo);

/// How often an answer was given in a part of a sale's time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    pub sale: PoolId,
    /// When the part begins.
    pub at: Timestamp,
    /// `granted`, `replayed`, `failed`, or the code of a refusal.
    pub outcome: String,
    /// How long the part is.
    pub covers_ms: u64,
    pub times: u64,
}

impl Store {
    /// Adds what a writer has counted, once for each `seq`, which rises by one. Parts are named once in
    /// a list.
    pub async fn add_outcomes(&self, writer: &str, seq: u64, counted: &[Counted]) -> Result<()> {
        let mut counted: Vec<&Counted> = counted.iter().collect();
        // In the order of the keys, so that two who write do not wait for each other in a circle.
        counted.sort_by_key(|one| (one.sale, one.at, &one.outcome));
        patiently!(self.try_to_add(writer, seq, &counted).await)
    }

    async fn try_to_add(&self, writer: &str, seq: u64, counted: &[&Counted]) -> Result<()> {
        let mut tx = self.begin().await?;
        if !is_new(&mut tx, writer, number(seq)).await? {
            return tx.rollback().await.when(ADDING);
        }
        let bind = |params: &mut Params, one: &&Counted| {
            params
                .add(sql_id(one.sale))
                .add(one.at.millis())
                .add(one.outcome.as_str())
                .add(number(one.covers_ms))
                .add(number(one.times));
        };
        ADD.run(&mut tx, counted, bind).await.when(ADDING)?;
        tx.commit().await.when(ADDING)
    }

    /// What was counted of a sale, by time.
    pub async fn sale_outcomes(&self, sale: PoolId) -> Result<Vec<Counted>> {
        let select = sql!(
            [OUTCOMES] "SELECT {sale_outcomes} FROM sale_outcomes WHERE sale_id = ?
                        ORDER BY at, outcome LIMIT ?"
        );
        let values = [sql_id(sale).into(), MAX_ROWS.into()];
        let rows = self.database.fetch_all(select, &values).await;
        rows.when("reading the answers of a sale")?.iter().map(read).collect()
    }
}

/// Notes that the writer has come to `seq`; says whether it had not before.
async fn is_new(tx: &mut Transaction, writer: &str, seq: i64) -> Result<bool> {
    let advance =
        sql!("UPDATE outcome_writers SET seq = ?, at = {now} WHERE writer = ? AND seq < ?");
    let values = [seq.into(), writer.into(), seq.into()];
    if tx.execute(advance, &values).await.when(ADDING)? == 1 {
        return Ok(true);
    }
    let known = sql!("SELECT seq FROM outcome_writers WHERE writer = ?");
    if tx.fetch_optional(known, &[writer.into()]).await.when(ADDING)?.is_some() {
        return Ok(false);
    }
    let ended = sql!("DELETE FROM outcome_writers WHERE at < {now} - ?");
    tx.execute(ended, &[WRITER_KEPT_MS.into()]).await.when(ADDING)?;
    let begin = sql!("INSERT INTO outcome_writers (writer, seq, at) VALUES (?, ?, {now})");
    tx.execute(begin, &[writer.into(), seq.into()]).await.when(ADDING)?;
    Ok(true)
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn read(row: &Row) -> Result<Counted> {
    let mut fields = Fields::new(row, &OUTCOMES);
    Ok(Counted {
        sale: fields.pool()?,
        at: fields.time()?,
        outcome: fields.text()?.to_owned(),
        covers_ms: fields.number()?,
        times: fields.number()?,
    })
}
