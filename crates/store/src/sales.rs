//! Sales: one row for each pool, with its terms whole, so that they convert back to equal
//! [`Terms`], and with what has become of it.

use std::collections::HashMap;
use std::sync::Arc;

use qiang_core::{
    Cents, Flow, Kind, LimitBy, PoolChange, PoolId, PoolState, PriceStep, Reclaim, Supply, Terms,
    Timestamp,
};
use qiang_sql::{Insert, Params, Row, Statement, Tail, Transaction, Value, sql};
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
    /// Its rules.
    pub terms: Terms,
    /// All units it ever had.
    pub total: u32,
    /// When it was closed by hand.
    pub closed_at: Option<Timestamp>,
    /// When it was taken out of the engine.
    pub cleared_at: Option<Timestamp>,
    /// When it last changed.
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

/// What was done to a sale by hand. Whether its time has come or gone is for the clock to say.
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

macro_rules! columns {
    () => {
        "id, version, state, title, sku, units, portions, limit_per_user, limit_by, price_cents, \
         price_steps, opens_at, closes_at, flow, hold_ms, pay_ms, reclaim, total, closed_at, \
         cleared_at, changed_at, buckets"
    };
}

const INSERT: &str = concat!("INSERT INTO sales (", columns!(), ")");
const ROW: &str = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

/// Terms never change, so only the rest is updated.
pub(crate) static UPSERT: Insert = Insert::new(
    INSERT,
    ROW,
    Tail {
        on_conflict: "ON CONFLICT (id) DO UPDATE SET
            version = excluded.version, state = excluded.state, total = excluded.total,
            closed_at = excluded.closed_at, cleared_at = excluded.cleared_at,
            changed_at = excluded.changed_at
         WHERE excluded.version > sales.version",
        on_duplicate_key: "ON DUPLICATE KEY UPDATE
            state = IF(VALUES(version) > version, VALUES(state), state),
            total = IF(VALUES(version) > version, VALUES(total), total),
            closed_at = IF(VALUES(version) > version, VALUES(closed_at), closed_at),
            cleared_at = IF(VALUES(version) > version, VALUES(cleared_at), cleared_at),
            changed_at = IF(VALUES(version) > version, VALUES(changed_at), changed_at),
            version = GREATEST(VALUES(version), version)",
    },
);

/// Replaces all there is of a sale, in place: others may refer to it.
pub(crate) static OVERWRITE: Insert = Insert::new(
    INSERT,
    ROW,
    Tail {
        on_conflict: "ON CONFLICT (id) DO UPDATE SET
            version = excluded.version, state = excluded.state, title = excluded.title,
            sku = excluded.sku, units = excluded.units, portions = excluded.portions,
            limit_per_user = excluded.limit_per_user, limit_by = excluded.limit_by,
            price_cents = excluded.price_cents, price_steps = excluded.price_steps,
            opens_at = excluded.opens_at, closes_at = excluded.closes_at, flow = excluded.flow,
            hold_ms = excluded.hold_ms, pay_ms = excluded.pay_ms, reclaim = excluded.reclaim,
            total = excluded.total, closed_at = excluded.closed_at,
            cleared_at = excluded.cleared_at, changed_at = excluded.changed_at,
            buckets = excluded.buckets",
        on_duplicate_key: "ON DUPLICATE KEY UPDATE
            version = VALUES(version), state = VALUES(state), title = VALUES(title),
            sku = VALUES(sku), units = VALUES(units), portions = VALUES(portions),
            limit_per_user = VALUES(limit_per_user), limit_by = VALUES(limit_by),
            price_cents = VALUES(price_cents), price_steps = VALUES(price_steps),
            opens_at = VALUES(opens_at), closes_at = VALUES(closes_at), flow = VALUES(flow),
            hold_ms = VALUES(hold_ms), pay_ms = VALUES(pay_ms), reclaim = VALUES(reclaim),
            total = VALUES(total), closed_at = VALUES(closed_at),
            cleared_at = VALUES(cleared_at), changed_at = VALUES(changed_at),
            buckets = VALUES(buckets)",
    },
);

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
        .add(sale.version)
        .add(sale.state.as_str())
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
        .add(sale.total)
        .add(sale.closed_at.map(|at| at.millis()))
        .add(sale.cleared_at.map(|at| at.millis()))
        .add(sale.changed_at.millis())
        .add(u32::from(terms.buckets));
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
    /// Sales asked for at once.
    const AT_ONCE: usize = 500;
    let mut known = HashMap::with_capacity(sales.len());
    for sales in sales.chunks(AT_ONCE) {
        let ids: Vec<Value<'_>> = sales.iter().map(|sale| sql_id(*sale).into()).collect();
        let places = vec!["?"; ids.len()].join(", ");
        let select = format!("SELECT id, sku, title, pay_ms FROM sales WHERE id IN ({places})");
        let rows = tx.fetch_all(&Statement::built(select), &ids).await;
        for row in &rows.when("reading sales")? {
            let mut fields = Fields::new(row, "sales", 1);
            let id = fields.pool()?;
            let (sku, title) = (fields.text()?.into(), fields.text()?.into());
            known.insert(id, SaleFacts { sku, title, pay_ms: fields.number_or_none()? });
        }
    }
    Ok(known)
}

impl Store {
    /// One sale.
    pub async fn sale(&self, id: PoolId) -> Result<Option<Sale>> {
        let select = sql!(concat!("SELECT ", columns!(), " FROM sales WHERE id = ?"));
        let row = self.database.fetch_optional(select, &[sql_id(id).into()]).await;
        row.when("reading a sale")?.as_ref().map(read).transpose()
    }

    /// The sales with ids above `after`, by rising id, which is the order they were made in.
    pub async fn sales_page(&self, after: Option<PoolId>, max: u32) -> Result<Vec<Sale>> {
        let select =
            sql!(concat!("SELECT ", columns!(), " FROM sales WHERE id > ? ORDER BY id LIMIT ?"));
        let values = [after.map_or(0, sql_id).into(), page(max).into()];
        let rows = self.database.fetch_all(select, &values).await;
        rows.when("reading sales")?.iter().map(read).collect()
    }
}

fn read(row: &Row) -> Result<Sale> {
    let mut fields = Fields::new(row, "sales", 1);
    let (id, version) = (fields.pool()?, fields.number()?);
    let state = fields.word(SaleState::from_word)?;
    let mut sale = Sale {
        id,
        version,
        state,
        terms: read_terms(&mut fields)?,
        total: fields.number()?,
        closed_at: fields.time_or_none()?,
        cleared_at: fields.time_or_none()?,
        changed_at: fields.time()?,
    };
    sale.terms.buckets = fields.number()?;
    Ok(sale)
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
        buckets: 1,
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
