//! Every change of a sale as a whole. The newest one is the sale itself; the others are kept so that
//! an engine that was lost can be made anew, with the restocks it must not repeat.

use std::sync::Arc;

use qiang_core::{PoolChange, PoolId, PoolState, RequestId, Terms, Timestamp};
use qiang_sql::{Existing, Insert, Params, Row, Table, sql};

use crate::error::{Result, Unreadable, While};
use crate::fields::Fields;
use crate::project::sql_id;
use crate::{SaleState, Store};

static CHANGES: Table = Table {
    name: "sale_changes",
    key: "sale_id, version",
    fixed: "kind, units, request_id, total, closed_at, changed_at",
    changing: "",
};

pub(crate) static INSERT: Insert = Insert::new(&CHANGES, Existing::Stays);

pub(crate) fn bind(params: &mut Params, state: &&PoolState) {
    let (kind, units, request) = match &state.change {
        PoolChange::Opened => ("opened", None, None),
        PoolChange::Restocked { units, request } => {
            ("restocked", Some(i64::from(*units)), Some(request.as_str()))
        }
        PoolChange::Closed => ("closed", None, None),
        PoolChange::Cleared => ("cleared", None, None),
    };
    params
        .add(sql_id(state.id))
        .add(state.version)
        .add(kind)
        .add(units)
        .add(request)
        .add(state.total)
        .add(state.closed_at.map(Timestamp::millis))
        .add(state.at.millis());
}

impl Store {
    /// Every change of a sale, oldest first; empty if there is no such sale. Of a sale recorded by
    /// a version that did not keep them only the last one is known.
    pub async fn sale_history(&self, id: PoolId) -> Result<Vec<PoolState>> {
        let Some(sale) = self.sale(id).await? else { return Ok(Vec::new()) };
        let select = sql!(
            [CHANGES] "SELECT {sale_changes} FROM sale_changes WHERE sale_id = ? ORDER BY version"
        );
        let rows = self.database.fetch_all(select, &[sql_id(id).into()]).await;
        let terms = Arc::new(sale.terms);
        let rows = rows.when("reading the changes of a sale")?;
        let mut history: Vec<PoolState> =
            rows.iter().map(|row| read(row, id, &terms)).collect::<Result<_>>()?;
        if history.last().is_none_or(|last| last.version < sale.version) {
            let change = match sale.state {
                SaleState::Open => PoolChange::Opened,
                SaleState::Closed => PoolChange::Closed,
                SaleState::Cleared => PoolChange::Cleared,
            };
            let (version, total, closed_at) = (sale.version, sale.total, sale.closed_at);
            let at = sale.changed_at;
            history.push(PoolState { id, version, change, terms, total, closed_at, at });
        }
        Ok(history)
    }
}

fn read(row: &Row, id: PoolId, terms: &Arc<Terms>) -> Result<PoolState> {
    let mut fields = Fields::new(row, &CHANGES);
    fields.pool()?;
    let (version, kind) = (fields.number()?, fields.text()?);
    let bad = fields.bad_last(Unreadable::Word(kind.to_owned()));
    let (units, request): (Option<u32>, Option<RequestId>) =
        (fields.number_or_none()?, fields.id_or_none(RequestId::new)?);
    let change = match (kind, units, request) {
        ("opened", _, _) => PoolChange::Opened,
        ("restocked", Some(units), Some(request)) => PoolChange::Restocked { units, request },
        ("closed", _, _) => PoolChange::Closed,
        ("cleared", _, _) => PoolChange::Cleared,
        _ => return Err(bad),
    };
    let (total, closed_at, at) = (fields.number()?, fields.time_or_none()?, fields.time()?);
    Ok(PoolState { id, version, change, terms: Arc::clone(terms), total, closed_at, at })
}
