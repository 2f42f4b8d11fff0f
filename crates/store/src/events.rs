//! The feed: what happened, in its public form, one after the other, kept for a while.
//!
//! Whoever writes holds the row of the feed from when it takes its ids until it has committed. So ids
//! come in the order of the commits, and who has read up to an id has missed none below it, whichever
//! of several writers was slow. What is pruned is always the oldest. A reader that comes back with a
//! place that is gone is told so, and never goes on behind a hole.
//!
//! The feed has an epoch. A new one begins where events may be missing: after the feed was switched
//! off, or a log was trimmed before it was read. Places of another epoch are gone.

use std::time::Duration;

use qiang_core::{ClaimId, PoolId, Timestamp};
use qiang_sql::{Existing, Insert, Params, Row, Table, Transaction, Value, sql};

use crate::error::{Result, While};
use crate::fields::Fields;
use crate::project::sql_id;
use crate::{Store, page, patiently};

const WRITING: &str = "writing the feed of events";
const READING: &str = "reading the feed of events";
/// Ids that one page looks at, however few of them are asked for.
const WINDOW: i64 = 10_000;
/// Events that are forgotten at once.
const PRUNE_AT_ONCE: i64 = 5_000;

static EVENTS: Table = Table {
    name: "events",
    key: "id",
    fixed: "kind, pool_id, number, stored_at, body",
    changing: "",
};
static FEEDS: Table =
    Table { name: "event_feeds", key: "name", fixed: "", changing: "epoch, last_id, pruned_id" };

static INSERT: Insert = Insert::new(&EVENTS, Existing::IsAnError);

/// An event on its way to the feed.
#[derive(Debug, Clone, Copy)]
pub struct NewEvent<'a> {
    /// Of which kind.
    pub kind: &'a str,
    pub pool: PoolId,
    /// The claim it is about, if it is about one.
    pub claim: Option<ClaimId>,
    /// Its public form.
    pub body: &'a str,
}

/// An event of the feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    /// Where it is.
    pub place: Place,
    /// Of which kind.
    pub kind: String,
    pub pool: PoolId,
    /// The number of the claim it is about; 0 is none.
    pub number: u32,
    /// When it was written here, by the database's clock.
    pub stored_at: Timestamp,
    /// Its public form.
    pub body: String,
}

/// A place in the feed: behind an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub epoch: u64,
    pub id: u64,
}

/// Where to begin to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// With the oldest event that is kept.
    Start,
    /// With what comes from now on.
    End,
    /// Behind this place.
    After(Place),
}

/// Which events.
#[derive(Debug, Clone, Copy, Default)]
pub struct Filter<'a> {
    /// Of this kind only.
    pub kind: Option<&'a str>,
    /// Of this pool only.
    pub pool: Option<PoolId>,
}

/// A part of the feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedPage {
    pub events: Vec<StoredEvent>,
    /// Where to go on.
    pub next: Place,
    /// Whether there was more behind it.
    pub more: bool,
}

/// What can come of reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FeedRead {
    Page(FeedPage),
    /// Events behind that place are gone.
    TooOld,
}

/// The row of the feed.
#[derive(Debug, Clone, Copy)]
struct Feed {
    epoch: u64,
    last: u64,
    pruned: u64,
}

/// Adds events to the feed in the caller's transaction, which should end soon: other writers wait.
pub async fn append(tx: &mut Transaction, events: &[NewEvent<'_>]) -> Result<()> {
    if events.is_empty() {
        return Ok(());
    }
    let count = Value::Int(i64::try_from(events.len()).expect("a batch is small"));
    let take = sql!("UPDATE event_feeds SET last_id = last_id + ? WHERE name = 'events'");
    tx.execute(take, &[count]).await.when(WRITING)?;
    let taken = sql!("SELECT name, last_id, {now} FROM event_feeds WHERE name = 'events'");
    let row = tx.fetch_optional(taken, &[]).await.when(WRITING)?;
    let (last, now) = match &row {
        Some(row) => {
            let mut fields = Fields::new(row, &FEEDS);
            fields.text()?;
            (fields.int()?, fields.int()?)
        }
        None => (0, 0),
    };
    let first = last - i64::try_from(events.len()).expect("a batch is small") + 1;
    let numbered: Vec<(i64, &NewEvent<'_>)> = (first..).zip(events).collect();
    let bind = |params: &mut Params, (id, event): &(i64, &NewEvent<'_>)| {
        params
            .add(*id)
            .add(event.kind)
            .add(sql_id(event.pool))
            .add(event.claim.map_or(0, |claim| claim.number))
            .add(now)
            .add(event.body);
    };
    INSERT.run(tx, &numbered, bind).await.when(WRITING)
}

/// Begins a new epoch in the caller's transaction: events may be missing here.
pub async fn begin_epoch(tx: &mut Transaction) -> Result<()> {
    let begin = sql!(
        "UPDATE event_feeds SET
            epoch = CASE WHEN epoch < {now} THEN {now} ELSE epoch + 1 END, pruned_id = last_id
         WHERE name = 'events'"
    );
    tx.execute(begin, &[]).await.when(WRITING).map(drop)
}

impl Store {
    /// The same, in a transaction of its own.
    pub async fn begin_feed_epoch(&self) -> Result<()> {
        patiently!(self.try_to_begin_epoch().await)
    }

    async fn try_to_begin_epoch(&self) -> Result<()> {
        let mut tx = self.begin().await?;
        begin_epoch(&mut tx).await?;
        tx.commit().await.when(WRITING)
    }

    /// Reads on. A page may be empty although there is more, if few are of what is asked for.
    pub async fn read_feed(&self, from: From, filter: Filter<'_>, max: u32) -> Result<FeedRead> {
        loop {
            let read = self.try_to_read_feed(from, filter, max).await?;
            // Who wants what is there gets it, also if the oldest of it has just gone.
            if read != FeedRead::TooOld || matches!(from, From::After(_)) {
                return Ok(read);
            }
        }
    }

    async fn try_to_read_feed(&self, from: From, filter: Filter<'_>, max: u32) -> Result<FeedRead> {
        let feed = self.feed().await?;
        let after = match from {
            From::Start => Place { epoch: feed.epoch, id: feed.pruned },
            From::End => Place { epoch: feed.epoch, id: feed.last },
            From::After(place) => place,
        };
        if after.epoch != feed.epoch || after.id > feed.last {
            return Ok(FeedRead::TooOld);
        }
        let end = feed.last.min(after.id.saturating_add_signed(WINDOW));
        let max = max.clamp(1, crate::MAX_PAGE);
        let events = self.window(after, end, filter, max).await?;
        // What is pruned is read after the events, so that none can have gone unnoticed.
        let now = self.feed().await?;
        if now.epoch != after.epoch || after.id < now.pruned {
            return Ok(FeedRead::TooOld);
        }
        let full = events.len() == max as usize;
        let reached = events.last().filter(|_| full).map_or(end, |last| last.place.id);
        let next = Place { epoch: after.epoch, id: reached };
        Ok(FeedRead::Page(FeedPage { events, next, more: reached < feed.last }))
    }

    async fn window(
        &self,
        after: Place,
        end: u64,
        filter: Filter<'_>,
        max: u32,
    ) -> Result<Vec<StoredEvent>> {
        let select = sql!(
            [EVENTS] "SELECT {events} FROM events
                      WHERE id > ? AND id <= ? AND (? = '' OR kind = ?) AND (? = 0 OR pool_id = ?)
                      ORDER BY id LIMIT ?"
        );
        let kind = Value::Text(filter.kind.unwrap_or(""));
        let pool = Value::Int(filter.pool.map_or(0, sql_id));
        let values =
            [sql_place(after.id), sql_place(end), kind, kind, pool, pool, page(max).into()];
        let rows = self.database.fetch_all(select, &values).await.when(READING)?;
        rows.iter().map(|row| read(row, after.epoch)).collect()
    }

    /// Forgets events that were written longer ago than this, oldest first, some at a time; says how
    /// many.
    pub async fn prune_feed(&self, age: Duration) -> Result<u64> {
        let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX / 4);
        let old = sql!(
            "SELECT MAX(oldest.id) FROM (
                SELECT id, stored_at FROM events ORDER BY id LIMIT ?
             ) AS oldest WHERE oldest.stored_at <= {now} - ?"
        );
        let values = [PRUNE_AT_ONCE.into(), age.into()];
        let row = self.database.fetch_optional(old, &values).await.when(READING)?;
        let last = row.as_ref().map(|row| Fields::new(row, &EVENTS).int_or_none()).transpose()?;
        match last.flatten() {
            Some(last) => patiently!(self.try_to_prune_feed(last).await),
            None => Ok(0),
        }
    }

    /// Says that they are gone in the transaction in which they go.
    async fn try_to_prune_feed(&self, last: i64) -> Result<u64> {
        const PRUNING: &str = "pruning the feed of events";
        let mut tx = self.begin().await?;
        let say =
            sql!("UPDATE event_feeds SET pruned_id = ? WHERE name = 'events' AND pruned_id < ?");
        tx.execute(say, &[last.into(), last.into()]).await.when(PRUNING)?;
        let delete = sql!("DELETE FROM events WHERE id <= ?");
        let pruned = tx.execute(delete, &[last.into()]).await.when(PRUNING)?;
        tx.commit().await.when(PRUNING)?;
        Ok(pruned)
    }

    async fn feed(&self) -> Result<Feed> {
        let select = sql!([FEEDS] "SELECT {event_feeds} FROM event_feeds WHERE name = 'events'");
        let row = self.database.fetch_optional(select, &[]).await.when(READING)?;
        let Some(row) = &row else { return Ok(Feed { epoch: 0, last: 0, pruned: 0 }) };
        let mut fields = Fields::new(row, &FEEDS);
        fields.text()?;
        Ok(Feed { epoch: fields.number()?, last: fields.number()?, pruned: fields.number()? })
    }
}

fn sql_place(id: u64) -> Value<'static> {
    Value::Int(i64::try_from(id).unwrap_or(i64::MAX))
}

fn read(row: &Row, epoch: u64) -> Result<StoredEvent> {
    let mut fields = Fields::new(row, &EVENTS);
    Ok(StoredEvent {
        place: Place { epoch, id: fields.number()? },
        kind: fields.text()?.to_owned(),
        pool: fields.pool()?,
        number: fields.number()?,
        stored_at: fields.time()?,
        body: fields.text()?.to_owned(),
    })
}
