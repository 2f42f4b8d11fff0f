//! Sales: one row for each pool, with its terms whole, so that they convert back to equal
//! [`Terms`], and with what has become of it.

use std::collections::HashMap;
use std::sync::Arc;

use qiang_core::{
    Cents, Flow, Kind, LimitBy, PoolChange, PoolId, PoolState, PriceStep, Reclaim, Supply, Terms,
    Timestamp,
};
use qiang_sql::{Existing, Insert, Listed, Params, Row, Table, Transaction, sql};
use serde_json::json;

use crate::error::{Result, Unreadable, While};
use crate::fields::Fields;
use crate::orders::pay_ms;
use crate::project::sql_id;
use crate::{Store, page};

/// A sale on record. What is left of it only the engine knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sale {
    /// Its id and its pool's.
    pub id: PoolId,
    /// The version of the pool it follows from.
    pub version: u32,
    /// Where it stands, apart from time.
    pub state: SaleState,
    pub terms: Terms,
    /// All units it ever had.
    pub total: u32,
    /// When it was closed by hand.
    pub closed_at: Option<Timestamp>,
    /// When it was taken out of the engine.
    pub cleared_at: Option<Timestamp>,
    pub changed_at: Timestamp,
}

impl Sale {
    /// The sale a pool must have on record.
    #[must_use]
    pub fn of(pool: &PoolState) -> Self {
        let cleared_at = (pool.change == PoolChange::Cleared).then_some(pool.at);
        Self {
            id: pool.id,
            version: pool.version,
            state: match (cleared_at, pool.closed_at) {
                (Some(_), _) => SaleState::Cleared,
                (None, Some(_)) => SaleState::Closed,
                (None, None) => SaleState::Open,
            },
            terms: Terms::clone(&pool.terms),
            total: pool.total,
            closed_at: pool.closed_at,
            cleared_at,
            changed_at: pool.at,
        }
    }
}

/// What was done to a sale by hand. Whether it is open at this time, the clock says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SaleState {
    /// Nothing yet.
    Open,
    /// No more claims.
    Closed,
    /// Out of the engine; only the records are left.
    Cleared,
}

impl SaleState {
    /// The word for it in JSON and SQL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
            Self::Cleared => "cleared",
        }
    }

    /// The value a word stands for.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Open, Self::Closed, Self::Cleared].into_iter().find(|s| s.as_str() == word)
    }
}

/// Terms never change, so only the rest does.
static SALES: Table = Table {
    name: "sales",
    key: "id",
    fixed: "title, sku, units, portions, limit_per_user, limit_by, price_cents, price_steps, \
        opens_at, closes_at, flow, hold_ms, pay_ms, reclaim, buckets",
    changing: "version, state, total, closed_at, cleared_at, changed_at",
};

pub(crate) static UPSERT: Insert = Insert::new(&SALES, Existing::YieldsToNewer);

/// Replaces all there is of a sale, in place: others may refer to it.
pub(crate) static OVERWRITE: Insert = Insert::new(&SALES, Existing::IsReplaced);

static FACTS: Listed =
    Listed::over(&[], "SELECT id, sku, title, pay_ms FROM sales WHERE id IN ({list})");

pub(crate) fn bind(params: &mut Params, sale: &Sale) {
    let terms = &sale.terms;
    let (units, portions) = match &terms.supply {
        Supply::Units(units) => (Some(*units), None),
        Supply::Portions(cut) => (None, Some(json(cut.iter().map(|part| part.get().into())))),
    };
    let (flow, hold_ms) = match terms.flow {
        Flow::Instant => ("instant", None),
        Flow::Order { .. } => ("order", None),
        Flow::Hold { hold_ms, .. } => ("hold", Some(hold_ms)),
    };
    let steps = terms.price_steps.iter().map(|step| json!([step.after_sold, step.price.get()]));
    params
        .add(sql_id(sale.id))
        .add(terms.title.as_str())
        .add(terms.sku.as_str())
        .add(units)
        .add(portions.as_ref())
        .add(terms.limit_per_user)
        .add(match terms.limit_by {
            LimitBy::User => "user",
            LimitBy::Identity => "identity",
        })
        .add(terms.price.get())
        .add(&json(steps))
        .add(terms.opens_at.millis())
        .add(terms.closes_at.map(|at| at.millis()))
        .add(flow)
        .add(hold_ms.map(sql_ms))
        .add(pay_ms(terms.flow).map(sql_ms))
        .add(match terms.reclaim {
            Reclaim::Allowed => "allowed",
            Reclaim::Never => "never",
        })
        .add(u32::from(terms.buckets))
        .add(sale.version)
        .add(sale.state.as_str())
        .add(sale.total)
        .add(sale.closed_at.map(|at| at.millis()))
        .add(sale.cleared_at.map(|at| at.millis()))
        .add(sale.changed_at.millis());
}

/// What an order takes from its sale. Terms never change, so any version of the sale will do.
pub(crate) struct SaleFacts {
    pub(crate) sku: Arc<str>,
    pub(crate) title: Arc<str>,
    pub(crate) pay_ms: Option<u64>,
}

/// The facts of those of the sales that are on record.
pub(crate) async fn facts(
    tx: &mut Transaction,
    sales: &[PoolId],
) -> Result<HashMap<PoolId, SaleFacts>> {
    let ids: Vec<_> = sales.iter().map(|sale| sql_id(*sale).into()).collect();
    let rows = FACTS.fetch(tx, &[], &ids, &[]).await.when("reading sales")?;
    let read = |row| {
        let mut fields = Fields::new(row, &SALES);
        let id = fields.pool()?;
        let (sku, title) = (fields.text()?.into(), fields.text()?.into());
        Ok((id, SaleFacts { sku, title, pay_ms: fields.number_or_none()? }))
    };
    rows.iter().map(read).collect()
}

impl Store {
    pub async fn sale(&self, id: PoolId) -> Result<Option<Sale>> {
        let select = sql!([SALES] "SELECT {sales} FROM sales WHERE id = ?");
        let row = self.database.fetch_optional(select, &[sql_id(id).into()]).await;
        row.when("reading a sale")?.as_ref().map(read).transpose()
    }

    /// The sales with ids above `after`, by rising id, which is the order they were made in.
    pub async fn sales_page(&self, after: Option<PoolId>, max: u32) -> Result<Vec<Sale>> {
        let select = sql!([SALES] "SELECT {sales} FROM sales WHERE id > ? ORDER BY id LIMIT ?");
        let values = [after.map_or(0, sql_id).into(), page(max).into()];
        let rows = self.database.fetch_all(select, &values).await;
        rows.when("reading sales")?.iter().map(read).collect()
    }
}

fn read(row: &Row) -> Result<Sale> {
    let mut fields = Fields::new(row, &SALES);
    Ok(Sale {
        id: fields.pool()?,
        terms: read_terms(&mut fields)?,
        version: fields.number()?,
        state: fields.word(SaleState::from_word)?,
        total: fields.number()?,
        closed_at: fields.time_or_none()?,
        cleared_at: fields.time_or_none()?,
        changed_at: fields.time()?,
    })
}

fn read_terms(fields: &mut Fields<'_>) -> Result<Terms> {
    let title = fields.text()?.into();
    let sku = fields.text()?.into();
    let units: Option<u32> = fields.number_or_none()?;
    let portions = fields.text_or_none()?;
    let supply = match (units, portions) {
        (Some(units), _) => Supply::Units(units),
        (None, Some(portions)) => {
            let cut: serde_json::Result<Vec<i64>> = serde_json::from_str(portions);
            let cut = cut.map_err(|e| fields.bad_last(Unreadable::Json(e)))?;
            Supply::Portions(cut.into_iter().map(Cents::new).collect())
        }
        (None, None) => return Err(fields.bad_last(Unreadable::Null)),
    };
    let limit_per_user = fields.number()?;
    let limit_by = fields.word(|word| match word {
        "user" => Some(LimitBy::User),
        "identity" => Some(LimitBy::Identity),
        _ => None,
    })?;
    let price = fields.cents()?;
    let steps: serde_json::Result<Vec<(u32, i64)>> = serde_json::from_str(fields.text()?);
    let steps = steps.map_err(|e| fields.bad_last(Unreadable::Json(e)))?;
    let step = |(after_sold, price)| PriceStep { after_sold, price: Cents::new(price) };
    let (opens_at, closes_at) = (fields.time()?, fields.time_or_none()?);
    Ok(Terms {
        kind: Kind::Sale,
        title,
        sku,
        supply,
        limit_per_user,
        limit_by,
        price,
        price_steps: steps.into_iter().map(step).collect(),
        opens_at,
        closes_at,
        flow: read_flow(fields)?,
        reclaim: fields.word(|word| match word {
            "allowed" => Some(Reclaim::Allowed),
            "never" => Some(Reclaim::Never),
            _ => None,
        })?,
        buckets: fields.number()?,
    })
}

fn read_flow(fields: &mut Fields<'_>) -> Result<Flow> {
    match fields.text()? {
        "hold" => Ok(Flow::Hold { hold_ms: fields.number()?, pay_ms: fields.number()? }),
        flow => {
            let bad = fields.bad_last(Unreadable::Word(flow.to_owned()));
            let (_hold_ms, pay_ms): (Option<u64>, _) =
                (fields.number_or_none()?, fields.number_or_none()?);
            match (flow, pay_ms) {
                ("instant", _) => Ok(Flow::Instant),
                ("order", Some(pay_ms)) => Ok(Flow::Order { pay_ms }),
                _ => Err(bad),
            }
        }
    }
}

fn json(items: impl Iterator<Item = serde_json::Value>) -> String {
    serde_json::Value::Array(items.collect()).to_string()
}

fn sql_ms(ms: u64) -> i64 {
    i64::try_from(ms).expect("Terms::check allows no deadline over a year")
}
