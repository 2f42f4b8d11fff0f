//! What lies in Redis beside the state that scripts decide on: the logs of the partitions, which
//! pools there are, what is due, and pages of claims and refunds.

use std::collections::BTreeMap;
use std::sync::Arc;

use qiang_core::{Claim, Event, Kind, Opened, PoolId, PoolState, Refund, Terms, Timestamp};
use redis::{Pipeline, Value, cmd, from_redis_value};

use super::cell::{Cell, CellId, Keys, PartitionKeys};
use super::reading::Loss;
use super::wire::{Kept, Of};
use super::{
    Engine, FORMAT, Failure, OpenError, PartitionState, Place, Shared, TRIM, nonsense, wire,
};
use crate::{Error, LogError, chain};

/// Entries of a log read at once; each holds what one call decided.
const ENTRIES_AT_ONCE: usize = 32;
/// Numbers asked for at once when claims are paged.
const NUMBERS_AT_ONCE: u32 = 1_000;

impl Engine {
    /// How many logs there are.
    #[must_use]
    pub fn partitions(&self) -> u16 {
        self.place().partitions
    }

    /// For each partition the position of its last event; of one that does not answer the last one
    /// this process knows. Fails when none answers.
    pub async fn positions(&self) -> Result<Vec<u64>, Error> {
        let position = |(partition, end): (u16, Option<u64>)| {
            end.unwrap_or_else(|| self.shared.era(partition).position())
        };
        Ok((0..).zip(self.ends().await?).map(position).collect())
    }

    /// For each partition the position of its last event, if its server answers; fails when none
    /// does.
    pub async fn ends(&self) -> Result<Vec<Option<u64>>, Error> {
        let prefix = &self.place().prefix;
        let read = self.shared.link.ask_each(|partition| {
            cmd("HGET").arg(PartitionKeys::new(prefix, partition).meta).arg("seq").to_owned()
        });
        let answers = answered("positions", read.await)?;
        let position = |answer| from_redis_value::<Option<u64>>(answer).ok().flatten().unwrap_or(0);
        Ok(answers.into_iter().map(|answer| answer.map(position)).collect())
    }

    /// The events of a partition behind a position, about `max` of them, and the position of the
    /// last one.
    pub async fn read_log(
        &self,
        partition: u16,
        after: u64,
        max: usize,
    ) -> Result<(Vec<Event>, u64), LogError> {
        let (mut events, mut through) = (Vec::new(), after);
        while events.len() < max {
            let some = self.read_entries(partition, through, &mut events).await?;
            let Some(last) = some else { break };
            through = last;
        }
        Ok((events, through))
    }

    /// Some entries behind a position, which may hold many events each; gives the position of the
    /// last one.
    async fn read_entries(
        &self,
        partition: u16,
        after: u64,
        to: &mut Vec<Event>,
    ) -> Result<Option<u64>, LogError> {
        let keys = PartitionKeys::new(&self.place().prefix, partition);
        let era = self.shared.era(partition);
        era.raise_position(after);
        let known = era.known();
        let mut pipe = Pipeline::with_capacity(3);
        pipe.add_command(PartitionState::ask(&keys.meta));
        pipe.cmd("HGET").arg(&keys.meta).arg("trimmed");
        pipe.cmd("XRANGE").arg(&keys.log).arg(format!("({after}-0")).arg("+");
        pipe.arg("COUNT").arg(ENTRIES_AT_ONCE);
        self.shared.add_write_and_wait(&keys.meta, &mut pipe);
        let answers = self.shared.ask_patiently(partition, &pipe).await;
        let answers = answers.map_err(LogError::redis)?;
        let is_replicated = self.shared.is_replicated(&answers);
        let mut answers = answers.into_iter();
        let mut next = || answers.next().unwrap_or(Value::Nil);
        let (state, trimmed, entries) = (PartitionState::read(next()), next(), next());
        if era.is_lost() || !era.fits(known, &state) {
            self.shared.loss(partition, &era, &state).await;
            return Err(LogError::Behind { after, end: state.seq });
        }
        let oldest = from_redis_value::<Option<u64>>(trimmed).ok().flatten().unwrap_or(0);
        if after < oldest {
            return Err(LogError::Trimmed { after, oldest });
        }
        let entries = sequence(entries);
        if !entries.is_empty() && !is_replicated {
            return Err(LogError::TooFewReplicas);
        }
        let mut last = None;
        for entry in entries {
            let (position, of, packed) = read_entry(entry).ok_or(LogError::Nonsense)?;
            wire::read_events(of, &packed, to).map_err(|_| LogError::Nonsense)?;
            last = Some(position);
        }
        Ok(last)
    }

    /// Drops what every consumer has committed, up to a position.
    pub async fn trim(&self, partition: u16, through: u64) -> Result<(), LogError> {
        let keys = PartitionKeys::new(&self.place().prefix, partition);
        let mut call = TRIM.call([&*keys.meta, &*keys.log]);
        call.arg(through);
        let mut pipe = Pipeline::with_capacity(1);
        pipe.add_command(call);
        self.shared.ask_patiently(partition, &pipe).await.map_err(LogError::redis).map(drop)
    }
}

impl Shared {
    /// Has the server wait until as many replicas as `wait` says have everything the partition holds
    /// that was read before in the same go. Otherwise the records could come to hold what a failover
    /// loses, although nobody was told about it. Redis waits for the last write of the connection that
    /// asks, so there has to be one.
    fn add_write_and_wait(&self, meta: &str, pipe: &mut Pipeline) {
        if self.link.place().wait > 0 {
            pipe.cmd("HSET").arg(meta).arg("read").arg(1);
            self.add_wait(pipe);
        }
    }

    /// Waits until as many replicas as `wait` says have everything the partition holds.
    pub(super) async fn replicated(&self, partition: u16, meta: &str) -> Result<(), LogError> {
        let mut pipe = Pipeline::with_capacity(2);
        self.add_write_and_wait(meta, &mut pipe);
        if pipe.is_empty() {
            return Ok(());
        }
        let answers = self.ask_patiently(partition, &pipe).await.map_err(LogError::redis)?;
        if self.is_replicated(&answers) { Ok(()) } else { Err(LogError::TooFewReplicas) }
    }

    /// Whether this Redis holds what this version of qiang can work with; marks an empty one as its
    /// own.
    pub(super) async fn check_layout(&self, place: &Place) -> Result<(), OpenError> {
        let unusable = |source| OpenError::Link { place: place.clone(), source };
        let key = PartitionKeys::new(&place.prefix, 0).meta;
        let ask = cmd("HMGET").arg(&key).arg("partitions").arg("format").to_owned();
        let read = async || {
            let answer = self.link.ask(0, &ask).await.map_err(unusable)?;
            Ok::<(Option<u16>, Option<u32>), OpenError>(
                from_redis_value(answer).unwrap_or_default(),
            )
        };
        let (mut found, mut format) = read().await?;
        if (found, format) == (None, None) {
            let mut pipe = Pipeline::with_capacity(2);
            pipe.cmd("HSETNX").arg(&key).arg("format").arg(FORMAT);
            pipe.cmd("HSETNX").arg(&key).arg("partitions").arg(place.partitions);
            self.link.ask_many(0, &pipe).await.map_err(unusable)?;
            (found, format) = read().await?;
        }
        match (format.unwrap_or(1), found.unwrap_or(0), place.partitions) {
            (FORMAT, found, wanted) if found == wanted => Ok(()),
            (FORMAT, found, wanted) => {
                Err(OpenError::Partitions { place: place.clone(), found, wanted })
            }
            (found, ..) if found < FORMAT => {
                Err(OpenError::OlderLayout { place: place.clone(), found })
            }
            (found, ..) => Err(OpenError::NewerLayout { place: place.clone(), found }),
        }
    }

    /// The newest `max` pools of a kind that were opened before `before`, newest first.
    pub(super) async fn pools_before(
        &self,
        kind: Kind,
        before: Option<Opened>,
        max: usize,
    ) -> Result<Vec<Opened>, Error> {
        self.check_all().await?;
        let count = i64::try_from(max).unwrap_or(i64::MAX);
        let end = before.map_or("+inf".to_owned(), |before| format!("({}", before.at.millis()));
        let mut all = self.listed(kind, &end, "-inf", count).await?;
        // Redis orders those of one millisecond by the text of their ids. So where a page begins and
        // where it ends all of that millisecond are read.
        let mut at = before.map(|before| before.at);
        for _ in 0..2 {
            if let Some(at) = at {
                let at = at.millis().to_string();
                all.extend(self.listed(kind, &at, &at, -1).await?);
            }
            all.retain(|opened| before.is_none_or(|before| *opened < before));
            all.sort_unstable_by(|a, b| b.cmp(a));
            all.dedup();
            all.truncate(max);
            at = all.last().map(|last| last.at);
        }
        Ok(all)
    }

    /// At most `count` of the pools of a kind in each partition that were opened from `start` to
    /// `end`, newest first.
    async fn listed(
        &self,
        kind: Kind,
        end: &str,
        start: &str,
        count: i64,
    ) -> Result<Vec<Opened>, Error> {
        let prefix = &self.link.place().prefix;
        let read = self.link.ask_each(|partition| {
            let key = PartitionKeys::pools(prefix, partition, kind);
            let mut range = cmd("ZREVRANGEBYSCORE");
            range.arg(key).arg(end).arg(start).arg("WITHSCORES").arg("LIMIT").arg(0).arg(count);
            range
        });
        let answers: Result<Vec<Value>, _> = read.await.into_iter().collect();
        let answers = answers.map_err(|failure| {
            tracing::warn!("pools not listed: {}", chain(&failure));
            Error::Unavailable
        })?;
        let mut all = Vec::new();
        for answer in answers {
            let scored: Vec<(String, i64)> = from_redis_value(answer).unwrap_or_default();
            all.extend(scored.into_iter().filter_map(|(id, at)| {
                Some(Opened { at: Timestamp::from_millis(at), id: id.parse().ok()? })
            }));
        }
        Ok(all)
    }

    /// Fails when a partition does not answer, or is not the one that was there: what is not there is
    /// not none. Every partition is looked at, whichever fails.
    pub(super) async fn check_all(&self) -> Result<(), Error> {
        let place = self.link.place();
        let eras: Vec<_> = (0..place.partitions).map(|partition| self.era(partition)).collect();
        let known: Vec<_> = eras.iter().map(|era| era.known()).collect();
        let read = self.link.ask_each(|partition| {
            PartitionState::ask(&PartitionKeys::new(&place.prefix, partition).meta)
        });
        let mut all_right = true;
        for (partition, answer) in (0_u16..).zip(read.await) {
            let (era, known) = (&eras[usize::from(partition)], known[usize::from(partition)]);
            match answer.map(PartitionState::read) {
                Err(failure) => {
                    tracing::debug!(partition, "not looked at: {}", chain(&failure));
                    all_right = false;
                }
                Ok(_) if era.is_lost() => all_right = false,
                Ok(state) if era.fits(known, &state) => {}
                Ok(state) => all_right &= self.loss(partition, era, &state).await == Loss::None,
            }
        }
        if all_right { Ok(()) } else { Err(Error::Unavailable) }
    }

    /// The changes of a pool as a whole, oldest first, from the `from`th on; -1 is the last.
    pub(super) async fn history(&self, pool: PoolId, from: i64) -> Result<Vec<PoolState>, Error> {
        let Some(terms) = self.terms(pool).await? else { return Ok(Vec::new()) };
        let cell = self.cell(CellId::head(pool));
        let key = cell.keys.get(Keys::HISTORY);
        let read = self.read(cell.partition, cmd("LRANGE").arg(key).arg(from).arg(-1)).await?;
        let changes: Vec<Vec<u8>> = from_redis_value(read).unwrap_or_default();
        let state = |bytes: &Vec<u8>| wire::read_change(pool, &terms, bytes).map_err(nonsense);
        changes.iter().map(state).collect()
    }

    pub(super) async fn refunds(
        &self,
        pool: PoolId,
        from: usize,
        max: usize,
    ) -> Result<Vec<(usize, Refund)>, Error> {
        let Some(terms) = self.terms(pool).await? else { return Ok(Vec::new()) };
        let mut all = Vec::new();
        // Places count through the first bucket, then the next, a million places apart.
        const APART: usize = 1 << 24;
        let first = from / APART;
        for bucket in first..usize::from(terms.buckets) {
            let start = if bucket == first { from % APART } else { 0 };
            let wanted = max - all.len();
            let id = CellId { pool, bucket: u16::try_from(bucket).unwrap_or(u16::MAX) };
            let cell = self.cell(id);
            let key = cell.keys.get(Keys::REFUNDS);
            let end = start + wanted.saturating_sub(1);
            let read =
                self.read(cell.partition, cmd("LRANGE").arg(key).arg(start).arg(end)).await?;
            let found: Vec<Vec<u8>> = from_redis_value(read).unwrap_or_default();
            for (place, packed) in (start..).zip(&found) {
                let refund = wire::read_refund(pool, packed).map_err(nonsense)?;
                all.push((bucket * APART + place, refund));
            }
            if all.len() >= max {
                break;
            }
        }
        Ok(all)
    }

    /// Claims behind a number; empty only when there are none.
    pub(super) async fn claims(
        self: &Arc<Self>,
        pool: PoolId,
        after: u32,
        max: u32,
    ) -> Result<Vec<Claim>, Error> {
        let Some(terms) = self.terms(pool).await? else { return Ok(Vec::new()) };
        let buckets = u32::from(terms.buckets);
        let max = max.clamp(1, NUMBERS_AT_ONCE) as usize;
        let mut wanted = Vec::new();
        for bucket in 0..terms.buckets {
            let cell = self.cell(CellId { pool, bucket });
            let own = u32::from(bucket) + 1;
            let first = after.saturating_sub(own - 1).div_ceil(buckets);
            let places = self.places(&cell).await?;
            let numbers = places.from(first).map(|place| place * buckets + own);
            wanted.extend(numbers.take(max).map(|number| (number, bucket)));
        }
        wanted.sort_unstable();
        wanted.truncate(max);
        let mut found = Vec::new();
        for bucket in 0..terms.buckets {
            let own = wanted.iter().filter(|(_, of)| *of == bucket).map(|(number, _)| *number);
            let cell = self.cell(CellId { pool, bucket });
            found.extend(self.claims_numbered(&cell, own.collect(), &terms).await?);
        }
        found.sort_by_key(|claim| claim.id.number);
        Ok(found)
    }

    /// The claims at the places behind the `after`th of a cell up to the `through`th, which is raised
    /// if there are none before.
    pub(super) async fn claims_of_cell(
        &self,
        cell: &Cell,
        after: u32,
        through: &mut u32,
    ) -> Result<Vec<Claim>, Error> {
        let Some(terms) = self.terms(cell.id.pool).await? else { return Ok(Vec::new()) };
        let (buckets, own) = (u32::from(terms.buckets), u32::from(cell.id.bucket) + 1);
        let places = self.places(cell).await?;
        let first = places.from(after).next().unwrap_or(places.end);
        *through = first.max(*through);
        let numbers = places.from(first).take_while(|place| place < through);
        let numbers = numbers.map(|place| place * buckets + own).collect();
        self.claims_numbered(cell, numbers, &terms).await
    }

    /// Where the claims of a cell are.
    async fn places(&self, cell: &Cell) -> Result<Places, Error> {
        let key = cell.keys.get(Keys::POOL);
        let read =
            self.read(cell.partition, cmd("HMGET").arg(key).arg("state").arg("gaps")).await?;
        let (state, gaps): (Option<Vec<u8>>, Option<Vec<u8>>) =
            from_redis_value(read).unwrap_or_default();
        let counts = state.as_deref().map(wire::read_counts).transpose().map_err(nonsense)?;
        let gaps = gaps.as_deref().map(wire::read_gaps).transpose().map_err(nonsense)?;
        let end = counts.map_or(0, |counts| counts.numbers);
        Ok(Places { end, gaps: gaps.unwrap_or_default() })
    }

    async fn claims_numbered(
        &self,
        cell: &Cell,
        numbers: Vec<u32>,
        terms: &Terms,
    ) -> Result<Vec<Claim>, Error> {
        let (buckets, of) = (u32::from(terms.buckets), Of { pool: cell.id.pool, kind: terms.kind });
        let (Some(first), Some(last)) = (numbers.first().copied(), numbers.last().copied()) else {
            return Ok(Vec::new());
        };
        let mut blocks: Vec<Vec<u8>> =
            numbers.iter().map(|number| wire::block_of((number - 1) / buckets)).collect();
        blocks.dedup();
        let mut ask = cmd("HMGET");
        ask.arg(cell.keys.get(Keys::CLAIMS)).arg(&blocks);
        ask.arg(numbers.iter().copied().map(wire::field_of).collect::<Vec<_>>());
        let read = self.read(cell.partition, &ask).await?;
        let found: Vec<Option<Vec<u8>>> = from_redis_value(read).unwrap_or_default();
        let mut claims = BTreeMap::new();
        let own = std::iter::repeat_n(None, blocks.len()).chain(numbers.into_iter().map(Some));
        // What lies in a field of its own is newer than what its block says.
        for (number, packed) in own.zip(found) {
            let Some(packed) = packed else { continue };
            match wire::read_kept(of, &packed).map_err(nonsense)? {
                Kept::Claims(some) => {
                    claims.extend(some.into_iter().map(|claim| (claim.id.number, claim)));
                }
                Kept::Change(change) => {
                    let granted = number.and_then(|number| claims.get_mut(&number));
                    if let Some(claim) = granted {
                        *claim = change.of(claim);
                    }
                }
            }
        }
        let asked = |claim: &Claim| (first..=last).contains(&claim.id.number);
        Ok(claims.into_values().filter(asked).collect())
    }
}

/// The places of a cell that have claims: all before the end, but for the gaps.
struct Places {
    end: u32,
    gaps: Vec<wire::Gap>,
}

impl Places {
    fn from(&self, first: u32) -> impl Iterator<Item = u32> + '_ {
        let mut next = first;
        std::iter::from_fn(move || {
            let gap = self.gaps.iter().find(|(from, to)| (*from..*to).contains(&next));
            next = gap.map_or(next, |(_, to)| *to);
            let place = next;
            next += 1;
            (place < self.end).then_some(place)
        })
    }
}

/// What each partition answered, if it did; fails when none has.
pub(super) fn answered(
    what: &str,
    answers: Vec<Result<Value, Failure>>,
) -> Result<Vec<Option<Value>>, Error> {
    let mut failed = None;
    let answer = |answer: Result<Value, Failure>| answer.map_err(|new| failed = Some(new)).ok();
    let answers: Vec<Option<Value>> = answers.into_iter().map(answer).collect();
    if let Some(failure) = failed {
        let all = answers.iter().all(Option::is_none);
        tracing::debug!(
            "{what} not read{}: {}",
            if all { "" } else { " everywhere" },
            chain(&failure)
        );
        if all {
            return Err(Error::Unavailable);
        }
    }
    Ok(answers)
}

fn sequence(value: Value) -> Vec<Value> {
    match value {
        Value::Array(values) => values,
        _ => Vec::new(),
    }
}

/// Position, pool and packed events of an entry of a log. One that names no kind is of a sale.
fn read_entry(entry: Value) -> Option<(u64, Of, Vec<u8>)> {
    let Value::Array(entry) = entry else { return None };
    let [Value::BulkString(id), Value::Array(fields)] = <[Value; 2]>::try_from(entry).ok()? else {
        return None;
    };
    let id = std::str::from_utf8(&id).ok()?;
    let position = id.split_once('-')?.0.parse().ok()?;
    let [_, Value::BulkString(pool), _, _, parts @ ..] = &*fields else { return None };
    // Wherever they are cut, one behind the other they are what happened.
    let (mut kind, mut events) = (Kind::Sale, Vec::new());
    for part in parts.chunks(2) {
        let [Value::BulkString(name), Value::BulkString(part)] = part else { return None };
        match name.as_slice() {
            b"kind" => kind = Kind::from_word(std::str::from_utf8(part).ok()?)?,
            _ => events.extend_from_slice(part),
        }
    }
    let pool = std::str::from_utf8(pool).ok()?.parse().ok()?;
    Some((position, Of { pool, kind }, events))
}
