//! What is counted about packets, exactly and for all nodes: what a user sends on a day, how often a
//! password was tried, and seeds that are used once.

use std::time::Duration;

use qiang_core::packets::Seed;
use qiang_core::{Cents, PoolId, Timestamp, UserId};
use qiang_sql::{Existing, Insert, Table, Transaction, sql};

use super::send::DayLimits;
use super::{READING, read_hash};
use crate::error::{Result, While};
use crate::fields::Fields;
use crate::project::sql_id;
use crate::{Store, patiently};

const COUNTING: &str = "counting packets";
const TRYING: &str = "counting attempts";
/// How long a seed waits for its packet.
const SEED_KEPT: Duration = Duration::from_secs(3_600);
/// How many days are kept after they are over, for clocks that differ.
const DAYS_KEPT: i64 = 3;

static DAYS: Table =
    Table { name: "packet_days", key: "day, user_id", fixed: "", changing: "cents, packets" };
static ATTEMPTS: Table =
    Table { name: "packet_attempts", key: "pool_id, user_id", fixed: "", changing: "attempts" };
static SEEDS: Table = Table {
    name: "packet_seeds",
    key: "seed_id",
    fixed: "user_id, seed, created_at",
    changing: "",
};
static BEGIN_DAY: Insert = Insert::new(&DAYS, Existing::Stays);
static BEGIN_ATTEMPTS: Insert = Insert::new(&ATTEMPTS, Existing::Stays);
static ADD_SEED: Insert = Insert::new(&SEEDS, Existing::IsAnError);

/// Counts a packet against the sender's day; says whether it is within the limits.
pub(super) async fn count(
    tx: &mut Transaction,
    sender: &UserId,
    limits: &DayLimits,
    total: Cents,
) -> Result<bool> {
    BEGIN_DAY
        .run(tx, &[()], |params, ()| {
            params.add(limits.day).add(sender.as_str()).add(0_i64).add(0_i64);
        })
        .await
        .when(COUNTING)?;
    let count = sql!(
        "UPDATE packet_days SET cents = cents + ?, packets = packets + 1
         WHERE day = ? AND user_id = ? AND cents + ? <= ? AND packets < ?"
    );
    let values = [
        total.get().into(),
        limits.day.into(),
        sender.as_str().into(),
        total.get().into(),
        limits.cents.get().into(),
        limits.packets.into(),
    ];
    tx.execute(count, &values).await.when(COUNTING).map(|found| found == 1)
}

/// Uses a seed up; says whether it was the user's and still there.
pub(super) async fn use_seed(tx: &mut Transaction, seed: &str, user: &UserId) -> Result<bool> {
    let delete = sql!("DELETE FROM packet_seeds WHERE seed_id = ? AND user_id = ?");
    let used = tx.execute(delete, &[seed.into(), user.as_str().into()]).await;
    used.when("using a seed").map(|found| found == 1)
}

impl Store {
    /// Keeps a seed for a packet that a user is about to send. Seeds that waited for an hour are
    /// forgotten.
    pub async fn add_packet_seed(
        &self,
        id: &str,
        user: &UserId,
        seed: &Seed,
        now: Timestamp,
    ) -> Result<()> {
        const DOING: &str = "keeping a seed";
        let kept = i64::try_from(SEED_KEPT.as_millis()).unwrap_or(i64::MAX);
        let old = now.millis().saturating_sub(kept);
        let forget = sql!("DELETE FROM packet_seeds WHERE created_at < ?");
        patiently!(self.database.execute(forget, &[old.into()]).await).when(DOING)?;
        let add = ADD_SEED.one(self.database.dialect());
        let values =
            [id.into(), user.as_str().into(), seed.0.as_slice().into(), now.millis().into()];
        patiently!(self.database.execute(add, &values).await).when(DOING).map(drop)
    }

    /// A seed of a user that no packet uses yet.
    pub async fn packet_seed(&self, id: &str, user: &UserId) -> Result<Option<Seed>> {
        let select = sql!(
            [SEEDS] "SELECT {packet_seeds} FROM packet_seeds WHERE seed_id = ? AND user_id = ?"
        );
        let row = self.database.fetch_optional(select, &[id.into(), user.as_str().into()]).await;
        let Some(row) = row.when(READING)? else { return Ok(None) };
        let mut fields = Fields::new(&row, &SEEDS);
        let (_id, _user) = (fields.text()?, fields.text()?);
        read_hash(&mut fields).map(|seed| Some(Seed(seed)))
    }

    /// Counts an attempt at the password of a packet before it is compared, so that many at once are no
    /// more than allowed. Says how many were made with this one; `None` if there were `max` before.
    pub async fn begin_attempt(
        &self,
        pool: PoolId,
        user: &UserId,
        max: u32,
    ) -> Result<Option<u32>> {
        patiently!(self.try_to_begin_attempt(pool, user, max).await)
    }

    async fn try_to_begin_attempt(
        &self,
        pool: PoolId,
        user: &UserId,
        max: u32,
    ) -> Result<Option<u32>> {
        let (id, name) = (sql_id(pool), user.as_str());
        let mut tx = self.begin().await?;
        BEGIN_ATTEMPTS
            .run(&mut tx, &[()], |params, ()| {
                params.add(id).add(name).add(0_i64);
            })
            .await
            .when(TRYING)?;
        let count = sql!(
            "UPDATE packet_attempts SET attempts = attempts + 1
             WHERE pool_id = ? AND user_id = ? AND attempts < ?"
        );
        let counted =
            tx.execute(count, &[id.into(), name.into(), max.into()]).await.when(TRYING)?;
        if counted == 0 {
            return Ok(None);
        }
        // Our own row, which is locked since it was counted.
        let select = sql!(
            [ATTEMPTS] "SELECT {packet_attempts} FROM packet_attempts
                        WHERE pool_id = ? AND user_id = ?"
        );
        let row = tx.fetch_optional(select, &[id.into(), name.into()]).await.when(TRYING)?;
        let made = row.as_ref().map(|row| {
            let mut fields = Fields::new(row, &ATTEMPTS);
            let (_pool, _user) = (fields.int()?, fields.text()?);
            fields.number()
        });
        let made = made.transpose()?;
        tx.commit().await.when(TRYING)?;
        Ok(made)
    }

    /// Takes an attempt back that was right.
    pub async fn forget_attempt(&self, pool: PoolId, user: &UserId) -> Result<()> {
        let forget = sql!(
            "UPDATE packet_attempts SET attempts = attempts - 1
             WHERE pool_id = ? AND user_id = ? AND attempts > 0"
        );
        let values = [sql_id(pool).into(), user.as_str().into()];
        patiently!(self.database.execute(forget, &values).await).when(TRYING).map(drop)
    }

    /// Forgets what was sent on days that are long over.
    pub async fn forget_packet_days(&self, today: i64) -> Result<()> {
        let forget = sql!("DELETE FROM packet_days WHERE day < ?");
        let before = today.saturating_sub(DAYS_KEPT);
        patiently!(self.database.execute(forget, &[before.into()]).await).when(COUNTING).map(drop)
    }
}
