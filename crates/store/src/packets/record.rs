//! Events of packets into rows, and the credit of each grab in the same transaction.

use std::collections::BTreeMap;

use qiang_core::{Claim, Event, Kind, PoolId, Timestamp};
use qiang_sql::{Existing, Insert, Listed, Params, Table, Transaction, Value, sql};

use super::send::DERIVED;
use super::{GRABS, Grab, read_grab};
use crate::accounts::{self, Account, Moved, Movement, Refusal, What};
use crate::error::{Result, While};
use crate::project::sql_id;
use crate::{Store, page, patiently};

const RECORDING: &str = "recording packets";
/// Grabs whose credit is tried again at once.
const CREDIT_AT_ONCE: u32 = 100;

static WAITING: Table =
    Table { name: "packet_grabs_waiting", key: "pool_id, number", fixed: "", changing: "" };
static ADD_GRAB: Insert = Insert::new(&GRABS, Existing::Stays);
static ADD_WAITING: Insert = Insert::new(&WAITING, Existing::Stays);

/// What was taken of a packet, counted anew: events may come twice.
static COUNT: Listed = Listed::over(
    &[],
    "UPDATE packets SET
        grabs = (SELECT COUNT(*) FROM packet_grabs AS g WHERE g.pool_id = packets.pool_id),
        grabbed_cents = (SELECT COALESCE(SUM(g.amount_cents), 0) FROM packet_grabs AS g
                         WHERE g.pool_id = packets.pool_id),
        last_grab_at = (SELECT MAX(g.at) FROM packet_grabs AS g WHERE g.pool_id = packets.pool_id)
     WHERE pool_id IN ({list})",
);

/// One that is empty need not wait for its time to be over.
static EMPTY: Listed = Listed::over(
    &[],
    "UPDATE packets SET next_at = last_grab_at
     WHERE grabs = shares AND recycled_at IS NULL AND next_at > last_grab_at AND pool_id IN ({list})",
);

/// Writes the events of packets, and moves the money of grabs.
pub(crate) async fn write(tx: &mut Transaction, events: &[Event]) -> Result<()> {
    let mut opened: BTreeMap<PoolId, Timestamp> = BTreeMap::new();
    let mut grabs: BTreeMap<_, Grab> = BTreeMap::new();
    for event in events.iter().filter(|event| event.kind() == Kind::Packet) {
        match event {
            Event::Pool(pool) => {
                opened.entry(pool.id).or_insert(pool.at);
            }
            Event::Claim(claim) => {
                grabs.insert(claim.id, grab(claim));
            }
            Event::Refund(_) => unreachable!("only sales have orders"),
        }
    }
    for (pool, at) in opened {
        let open = sql!("UPDATE packets SET opened_at = ? WHERE pool_id = ? AND opened_at IS NULL");
        tx.execute(open, &[at.millis().into(), sql_id(pool).into()]).await.when(RECORDING)?;
    }
    let grabs: Vec<Grab> = grabs.into_values().collect();
    let Some(now) = grabs.iter().map(|grab| grab.at).max() else { return Ok(()) };
    ADD_GRAB.run(tx, &grabs, bind).await.when(RECORDING)?;
    let mut pools: Vec<PoolId> = grabs.iter().map(|grab| grab.pool).collect();
    pools.dedup();
    let pools: Vec<Value<'_>> = pools.into_iter().map(|pool| sql_id(pool).into()).collect();
    COUNT.execute(tx, &[], &pools).await.when(RECORDING)?;
    EMPTY.execute(tx, &[], &pools).await.when(RECORDING)?;
    let refused = credit(tx, &grabs, now).await?;
    let bind = |params: &mut Params, grab: &&Grab| {
        params.add(sql_id(grab.pool)).add(grab.number);
    };
    ADD_WAITING.run(tx, &refused, bind).await.when(RECORDING)
}

/// Moves what was grabbed from the packets to those who grabbed, each once, and gives the grabs that
/// wait because the grabber's account is full.
async fn credit<'g>(
    tx: &mut Transaction,
    grabs: &'g [Grab],
    now: Timestamp,
) -> Result<Vec<&'g Grab>> {
    let keys: Vec<String> =
        grabs.iter().map(|grab| format!("packet:{}:grab:{}", grab.pool, grab.number)).collect();
    let movements: Vec<Movement<'_>> = grabs
        .iter()
        .zip(&keys)
        .map(|(grab, key)| {
            let (from, to) = (Account::Packet(grab.pool), Account::User(grab.user.clone()));
            let what = What::Transfer { from, to, amount: grab.amount };
            Movement { key, request_hash: DERIVED, what }
        })
        .collect();
    let moved = accounts::apply(tx, &movements, now).await?;
    let mut refused = Vec::new();
    for (grab, moved) in grabs.iter().zip(moved) {
        let Moved::Refused(refusal) = moved else { continue };
        let (packet, number) = (grab.pool, grab.number);
        if refusal == Refusal::TooMuch {
            tracing::warn!(%packet, number, "a grab waits: the account of its user is full");
            refused.push(grab);
        } else {
            // The records are older than the engine, and the money was never sent as far as they know.
            tracing::error!(%packet, number, ?refusal, "a grab has no money: see `qiang audit`");
        }
    }
    Ok(refused)
}

impl Store {
    /// Tries again to credit what could not be credited; says how many grabs still wait.
    pub async fn credit_waiting(&self, now: Timestamp) -> Result<u64> {
        let count = sql!("SELECT COUNT(*) FROM packet_grabs_waiting");
        let row = self.database.fetch_optional(count, &[]).await.when(RECORDING)?;
        let waiting: u64 =
            row.as_ref().map_or(Ok(0), |row| crate::fields::Fields::new(row, &WAITING).number())?;
        if waiting == 0 {
            return Ok(0);
        }
        patiently!(self.try_to_credit(now).await).map(|credited| waiting.saturating_sub(credited))
    }

    async fn try_to_credit(&self, now: Timestamp) -> Result<u64> {
        let mut tx = self.begin().await?;
        let select = sql!(
            [GRABS] "SELECT {packet_grabs} FROM packet_grabs
                     JOIN packet_grabs_waiting AS w
                       ON w.pool_id = packet_grabs.pool_id AND w.number = packet_grabs.number
                     ORDER BY w.pool_id, w.number LIMIT ?"
        );
        let rows = tx.fetch_all(select, &[page(CREDIT_AT_ONCE).into()]).await.when(RECORDING)?;
        let grabs: Vec<Grab> = rows.iter().map(read_grab).collect::<Result<_>>()?;
        let refused = credit(&mut tx, &grabs, now).await?;
        let mut credited = 0;
        for grab in grabs.iter().filter(|grab| !refused.contains(grab)) {
            let done = sql!("DELETE FROM packet_grabs_waiting WHERE pool_id = ? AND number = ?");
            let values = [sql_id(grab.pool).into(), grab.number.into()];
            credited += tx.execute(done, &values).await.when(RECORDING)?;
        }
        tx.commit().await.when(RECORDING)?;
        Ok(credited)
    }
}

fn grab(claim: &Claim) -> Grab {
    Grab {
        pool: claim.id.pool,
        number: claim.id.number,
        user: claim.user.clone(),
        portion: claim.portion.expect("a packet consists of portions"),
        amount: claim.unit_price,
        at: claim.created_at,
    }
}

fn bind(params: &mut Params, grab: &Grab) {
    params
        .add(sql_id(grab.pool))
        .add(grab.number)
        .add(grab.user.as_str())
        .add(grab.portion)
        .add(grab.amount.get())
        .add(grab.at.millis());
}
