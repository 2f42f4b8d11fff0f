//! What nodes that share an engine tell each other about their last seconds, for the plots of the
//! console.
//!
//! Each node has one row, which it writes again every second, so the table is no longer than there
//! are nodes. A row that was not written for a while belongs to a node that has gone. Times are the
//! database's, because it is the one clock that all nodes can see.

use std::time::Duration;

use qiang_sql::{Row, Table, sql};

use crate::error::{Result, While};
use crate::fields::Fields;
use crate::{Store, page, patiently};

const DOING: &str = "exchanging samples";
/// A row that is older than this says nothing about now.
const FRESH: Duration = Duration::from_secs(10);
/// The most rows that are read: as many as there can be nodes.
const MAX_NODES: u32 = 1_000;

static NODE_SAMPLES: Table =
    Table { name: "node_samples", key: "node", fixed: "", changing: "body, taken_at" };

/// What all nodes said of their last seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// The database's clock.
    pub now_ms: i64,
    /// The number of each node, and what it said, by number.
    pub nodes: Vec<(u16, String)>,
}

impl Store {
    /// Says what a node has to say, in place of what it said before, and gives what all nodes have
    /// said in the last seconds, itself included.
    pub async fn exchange_samples(&self, node: u16, body: &str) -> Result<Heard> {
        let say = sql!("UPDATE node_samples SET taken_at = {now}, body = ? WHERE node = ?");
        let values = [body.into(), i64::from(node).into()];
        if patiently!(self.database.execute(say, &values).await).when(DOING)? == 0 {
            let begin =
                sql!("INSERT INTO node_samples (node, taken_at, body) VALUES (?, {now}, ?)");
            let values = [i64::from(node).into(), body.into()];
            match patiently!(self.database.execute(begin, &values).await) {
                // A process that had this number before us has said its last words meanwhile.
                Err(error) if error.is_duplicate() => {}
                begun => drop(begun.when(DOING)?),
            }
        }
        let fresh = i64::try_from(FRESH.as_millis()).unwrap_or(i64::MAX);
        let select = sql!(
            "SELECT node, body, {now} FROM node_samples WHERE taken_at > {now} - ?
             ORDER BY node LIMIT ?"
        );
        let values = [fresh.into(), page(MAX_NODES).into()];
        let rows = self.database.fetch_all(select, &values).await.when(DOING)?;
        let rows = rows.iter().map(read).collect::<Result<Vec<_>>>()?;
        let now_ms = rows.first().map_or(0, |(_, now_ms)| *now_ms);
        Ok(Heard { now_ms, nodes: rows.into_iter().map(|(said, _)| said).collect() })
    }
}

fn read(row: &Row) -> Result<((u16, String), i64)> {
    let mut fields = Fields::new(row, &NODE_SAMPLES);
    Ok(((fields.number()?, fields.text()?.to_owned()), fields.int()?))
}
