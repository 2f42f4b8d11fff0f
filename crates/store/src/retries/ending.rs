//! What a person does about dead letters, and how those that are over are forgotten.

use std::time::Duration;

use qiang_core::Timestamp;
use qiang_sql::{Value, sql};

use super::{Compensation, READING, RETRIES, Retry, RetryState, millis, read};
use crate::error::{Result, While};
use crate::{Store, page, patiently};

const ASKING: &str = "asking for more attempts";
const DISCARDING: &str = "discarding a dead letter";
const PRUNING: &str = "forgetting events that were set aside";
/// The most dead letters that are asked for at once.
const MAX_AT_ONCE: u32 = 1_000;

impl Store {
    /// Has a dead letter tried again, with all its attempts; says whether it was one.
    pub async fn revive(&self, consumer: &str, event: &str) -> Result<bool> {
        let revive = sql!(
            "UPDATE retries SET state = 'waiting', at = {now}, round = 0
             WHERE consumer = ? AND event_id = ? AND state = 'dead'"
        );
        let values = [consumer.into(), event.into()];
        let revived = patiently!(self.database.execute(revive, &values).await);
        revived.when(ASKING).map(|found| found == 1)
    }

    /// Has dead letters tried again, one after the other with a pause in between, those of one claim in
    /// their order: of one kind, and set aside since a time, if that is asked for. At most a thousand at
    /// once; says how many.
    pub async fn revive_all(
        &self,
        kind: Option<&str>,
        since: Option<Timestamp>,
        apart: Duration,
    ) -> Result<u64> {
        patiently!(self.try_to_revive_all(kind, since, apart).await)
    }

    async fn try_to_revive_all(
        &self,
        kind: Option<&str>,
        since: Option<Timestamp>,
        apart: Duration,
    ) -> Result<u64> {
        let mut tx = self.begin().await?;
        let kind = Value::Text(kind.unwrap_or(""));
        let since = Value::Int(since.map_or(i64::MIN, Timestamp::millis));
        let select = sql!(
            [RETRIES] "SELECT {retries} FROM retries
                       WHERE state = 'dead' AND parked_at >= ? AND (? = '' OR kind = ?)
                       ORDER BY pool_id, number, version, event_id LIMIT ? {lock}"
        );
        let values = [since, kind, kind, page(MAX_AT_ONCE).into()];
        let rows = tx.fetch_all(select, &values).await.when(ASKING)?;
        let dead: Vec<Retry> = rows.iter().map(read).collect::<Result<_>>()?;
        let mut revived = 0;
        for (place, retry) in (0_u32..).zip(&dead) {
            let revive = sql!(
                "UPDATE retries SET state = 'waiting', at = {now} + ?, round = 0
                 WHERE consumer = ? AND event_id = ? AND state = 'dead'"
            );
            let after = millis(apart * place).into();
            let values = [after, retry.consumer.as_str().into(), retry.event_id.as_str().into()];
            revived += tx.execute(revive, &values).await.when(ASKING)?;
        }
        tx.commit().await.when(ASKING)?;
        Ok(revived)
    }

    /// Begins to discard a dead letter: from here on nobody tries it again. Says how it stands, if it
    /// is being discarded, or was.
    pub async fn begin_discarding(&self, consumer: &str, event: &str) -> Result<Option<Retry>> {
        let begin = sql!(
            "UPDATE retries SET state = 'discarding', at = {now}
             WHERE consumer = ? AND event_id = ? AND state = 'dead'"
        );
        let values = [consumer.into(), event.into()];
        patiently!(self.database.execute(begin, &values).await).when(DISCARDING)?;
        let retry = self.retry(consumer, event).await?;
        let given_up = [RetryState::Discarding, RetryState::Discarded];
        Ok(retry.filter(|retry| given_up.contains(&retry.state)))
    }

    /// Notes what discarding has undone. The first word stands.
    pub async fn end_discarding(&self, retry: &Retry, undone: Compensation) -> Result<()> {
        let end = sql!(
            "UPDATE retries SET state = 'discarded', at = {now}, outcome = ?
             WHERE consumer = ? AND event_id = ? AND state = 'discarding'"
        );
        let (consumer, event) = (retry.consumer.as_str().into(), retry.event_id.as_str().into());
        let values = [undone.as_str().into(), consumer, event];
        patiently!(self.database.execute(end, &values).await).when(DISCARDING).map(drop)
    }

    /// Forgets what has been resolved or discarded for longer than this; says how many. What was
    /// discarded stays as long as nothing as new is on record, so that the books can be explained.
    pub async fn prune_retries(&self, age: Duration) -> Result<u64> {
        let resolved = sql!("DELETE FROM retries WHERE state = 'resolved' AND at <= {now} - ?");
        let age = [Value::Int(millis(age))];
        let resolved = patiently!(self.database.execute(resolved, &age).await).when(PRUNING)?;
        let discarded = sql!(
            "DELETE FROM retries WHERE state = 'discarded' AND at <= {now} - ?
                AND EXISTS (
                    SELECT 1 FROM claims WHERE claims.sale_id = retries.pool_id
                        AND claims.number = retries.number AND claims.version >= retries.version
                )"
        );
        let discarded = patiently!(self.database.execute(discarded, &age).await).when(PRUNING)?;
        Ok(resolved + discarded)
    }

    /// How many events were given up of which nothing as new is on record.
    pub async fn discarded(&self) -> Result<u64> {
        let count = sql!(
            "SELECT COUNT(*) FROM retries WHERE state = 'discarded'
                AND NOT EXISTS (
                    SELECT 1 FROM claims WHERE claims.sale_id = retries.pool_id
                        AND claims.number = retries.number AND claims.version >= retries.version
                )"
        );
        let row = self.database.fetch_optional(count, &[]).await.when(READING)?;
        row.as_ref().map_or(Ok(0), |row| crate::fields::Fields::new(row, &RETRIES).number())
    }
}
