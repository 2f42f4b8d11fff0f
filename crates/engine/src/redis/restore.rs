//! Partitions set up, read out as they are, and put back: for the first start, for a repair, and
//! for moving sales from another engine.
//!
//! While a partition is put back it has no epoch, so that nobody decides on half of it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use qiang_core::{
    Claim, Event, Identity, LimitBy, MAX_BUCKETS, PaymentId, PoolChange, PoolId, PoolState,
    Reclaim, Refund, State, Supply, Terms, Timestamp,
};
use redis::{Cmd, Pipeline, Value, cmd, from_redis_value};

use super::cell::{CellId, Keys, PartitionKeys};
use super::link::Failure;
use super::pack::Packer;
use super::{Engine, wire};

/// Fields written in one command, and commands sent in one go.
const FIELDS: usize = 500;

/// Everything about one pool.
#[derive(Debug, Clone, Default)]
pub struct PoolRecord {
    /// Every change of the pool as a whole, oldest first.
    pub history: Vec<PoolState>,
    /// Its claims, by rising number; empty for a cleared pool.
    pub claims: Vec<Claim>,
    /// Its refunds, oldest first.
    pub refunds: Vec<Refund>,
}

impl PoolRecord {
    /// The same as events.
    pub fn events(&self) -> impl Iterator<Item = Event> + '_ {
        let history = self.history.iter().cloned().map(Event::Pool);
        let claims = self.claims.iter().cloned().map(Event::Claim);
        history.chain(claims).chain(self.refunds.iter().cloned().map(Event::Refund))
    }

    /// Of what is there twice, what was decided last. A claim may lie in its block and, newer, in a
    /// field of its own, and a scan may give it twice; a call that was carried out in part may have
    /// left what was decided otherwise since, always at an earlier time.
    fn keep_newest(&mut self) {
        self.history.reverse();
        self.history.sort_by_key(|state| state.version);
        self.history.dedup_by_key(|state| state.version);
        let newest = |claim: &Claim| Reverse((claim.created_at, claim.version));
        self.claims.sort_by_key(|claim| (claim.id.number, newest(claim)));
        self.claims.dedup_by_key(|claim| claim.id.number);
        let mut owed: HashSet<PaymentId> = HashSet::new();
        self.refunds.reverse();
        self.refunds.retain(|refund| owed.insert(refund.payment.clone()));
        self.refunds.reverse();
    }

    fn pool(&self) -> Option<PoolId> {
        let states = self.history.iter().map(|state| state.id);
        let refunds = self.refunds.iter().map(|refund| refund.order.pool);
        states.chain(self.claims.iter().map(|claim| claim.id.pool)).chain(refunds).next()
    }

    /// When the last of it happened.
    fn latest(&self) -> Timestamp {
        let states = self.history.iter().map(|state| state.at);
        let claims = self.claims.iter().map(|claim| claim.changed_at);
        let refunds = self.refunds.iter().map(|refund| refund.at);
        let latest = states.chain(claims).chain(refunds).max();
        latest.unwrap_or(Timestamp::from_millis(0))
    }

    fn terms(&self) -> Option<&Arc<Terms>> {
        self.history.last().map(|state| &state.terms)
    }
}

/// What is wrong with a partition that cannot be read or put back.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// Redis does not answer.
    #[error("Redis could not be read or written")]
    Link(#[from] Failure),
    /// What lies there was not written by us.
    #[error("pool {pool} in Redis cannot be understood")]
    Nonsense {
        /// Which pool.
        pool: PoolId,
        /// What was met.
        source: super::Unpackable,
    },
    /// More is taken than there is.
    #[error("pool {pool} cannot be put back: {what}")]
    Broken {
        /// Which pool.
        pool: PoolId,
        /// What does not add up.
        what: &'static str,
    },
}

/// Where a partition stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionState {
    /// The epoch it bears; empty is none.
    pub epoch: String,
    /// The position of its last event.
    pub seq: u64,
    /// Whether a call was carried out in part.
    pub torn: bool,
}

impl PartitionState {
    /// What to ask for it.
    pub(super) fn ask(meta: &str) -> Cmd {
        cmd("HMGET").arg(meta).arg("epoch").arg("seq").arg("begun").arg("ended").to_owned()
    }

    pub(super) fn read(answer: Value) -> Self {
        type Fields = (Option<String>, Option<u64>, Option<u64>, Option<u64>);
        let (epoch, seq, begun, ended): Fields = from_redis_value(answer).unwrap_or_default();
        Self { epoch: epoch.unwrap_or_default(), seq: seq.unwrap_or(0), torn: begun != ended }
    }
}

impl Engine {
    /// Every partition as it is, whatever its epoch.
    pub async fn partition_states(&self) -> Result<Vec<PartitionState>, RestoreError> {
        let prefix = &self.place().prefix;
        let answers = self
            .shared
            .link
            .ask_each(|partition| PartitionState::ask(&PartitionKeys::new(prefix, partition).meta));
        let state = |answer: Result<Value, Failure>| Ok(PartitionState::read(answer?));
        answers.await.into_iter().map(state).collect()
    }

    /// Gives every partition that has none this epoch: the first start.
    pub async fn set_up(&self, epoch: &str) -> Result<(), RestoreError> {
        let prefix = &self.place().prefix;
        let all = self.shared.link.ask_each(|partition| {
            let meta = PartitionKeys::new(prefix, partition).meta;
            cmd("HSETNX").arg(meta).arg("epoch").arg(epoch).to_owned()
        });
        all.await.into_iter().try_for_each(|answer| answer.map(drop))?;
        Ok(())
    }

    /// Takes the epoch from a partition, so that nothing is decided in it until it has one again.
    pub async fn suspend(&self, partition: u16) -> Result<(), RestoreError> {
        let meta = PartitionKeys::new(&self.place().prefix, partition).meta;
        self.shared.link.ask(partition, cmd("HDEL").arg(meta).arg("epoch")).await?;
        Ok(())
    }

    /// Gives a partition its epoch, and lets its log go on behind `seq`. Nothing that lies in the
    /// log is trusted any more.
    pub async fn resume(&self, partition: u16, epoch: &str, seq: u64) -> Result<(), RestoreError> {
        let keys = PartitionKeys::new(&self.place().prefix, partition);
        // Without an epoch nobody begins a call, so this stands still. What is counted is left alone:
        // a later start that carries out half a call from before adds one to it.
        let begun =
            self.shared.link.ask(partition, cmd("HGET").arg(&keys.meta).arg("begun")).await?;
        let begun: Option<u64> = from_redis_value(begun).unwrap_or_default();
        let mut pipe = Pipeline::with_capacity(2);
        pipe.cmd("UNLINK").arg(&keys.log);
        // The epoch comes last and at once with where the log goes on.
        pipe.cmd("HSET").arg(&keys.meta).arg("epoch").arg(epoch);
        pipe.arg("seq").arg(seq).arg("trimmed").arg(seq);
        if let Some(begun) = begun {
            pipe.arg("ended").arg(begun);
        }
        if partition == 0 {
            pipe.arg("partitions").arg(self.place().partitions);
        }
        self.shared.link.ask_many(partition, &pipe).await?;
        Ok(())
    }

    /// The partitions a pool lies in, the first of which speaks for it.
    #[must_use]
    pub fn partitions_of(&self, pool: PoolId, buckets: u16) -> Vec<u16> {
        let partition = |bucket| CellId { pool, bucket }.partition(self.place().partitions);
        (0..buckets).map(partition).collect()
    }

    /// The pools whose first bucket lies in a partition, whatever its epoch.
    pub async fn pools_in(&self, partition: u16) -> Result<Vec<PoolId>, RestoreError> {
        let key = PartitionKeys::new(&self.place().prefix, partition).pools;
        let answer = self.shared.link.ask(partition, cmd("ZRANGE").arg(key).arg(0).arg(-1)).await?;
        let ids: Vec<String> = from_redis_value(answer).unwrap_or_default();
        Ok(ids.iter().filter_map(|id| id.parse().ok()).collect())
    }

    /// Everything Redis holds of a pool, whatever the epoch of its partitions; `None` when there
    /// is nothing. The history is empty when the partition of its first bucket has lost it. Of a
    /// call that was carried out in part, only what was not decided otherwise is left.
    pub async fn salvage(&self, pool: PoolId) -> Result<Option<PoolRecord>, RestoreError> {
        let nonsense = |source| RestoreError::Nonsense { pool, source };
        let Some(terms) = self.salvage_terms(pool).await? else { return Ok(None) };
        let terms = wire::decode_terms(&terms).map_err(nonsense)?;
        let head = self.shared.cell(CellId::head(pool));
        let mut range = cmd("LRANGE");
        range.arg(head.keys.get(Keys::HISTORY)).arg(0).arg(-1);
        let answer = self.shared.link.ask(head.partition, &range).await?;
        let changes: Vec<Vec<u8>> = from_redis_value(answer).unwrap_or_default();
        let mut record = PoolRecord::default();
        for change in &changes {
            record.history.push(wire::read_change(pool, &terms, change).map_err(nonsense)?);
        }
        for bucket in 0..terms.buckets {
            let cell = self.shared.cell(CellId { pool, bucket });
            self.salvage_bucket(&cell, terms.buckets, &mut record).await?;
        }
        record.keep_newest();
        Ok(Some(record))
    }

    async fn salvage_bucket(
        &self,
        cell: &super::Cell,
        buckets: u16,
        record: &mut PoolRecord,
    ) -> Result<(), RestoreError> {
        let CellId { pool, bucket } = cell.id;
        let nonsense = |source| RestoreError::Nonsense { pool, source };
        let mut get = cmd("HGET");
        get.arg(cell.keys.get(Keys::POOL)).arg("state");
        let counted = match self.shared.link.ask(cell.partition, &get).await? {
            Value::BulkString(state) => wire::read_counts(&state).map_err(nonsense)?,
            _ => wire::Counts { version: u32::MAX, claims: u32::MAX },
        };
        if bucket == 0 {
            record.history.retain(|state| state.version <= counted.version);
        }
        let is_counted =
            |claim: &Claim| (claim.id.number - 1) / u32::from(buckets) < counted.claims;
        let mut cursor = 0_u64;
        loop {
            let mut scan = cmd("HSCAN");
            scan.arg(cell.keys.get(Keys::CLAIMS)).arg(cursor).arg("COUNT").arg(FIELDS);
            let answer = self.shared.link.ask(cell.partition, &scan).await?;
            let (next, fields): (u64, Vec<Vec<u8>>) = from_redis_value(answer).unwrap_or_default();
            for packed in fields.iter().skip(1).step_by(2) {
                let claims = wire::read_claims_of(pool, packed).map_err(nonsense)?;
                record.claims.extend(claims.into_iter().filter(is_counted));
            }
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        let mut range = cmd("LRANGE");
        range.arg(cell.keys.get(Keys::REFUNDS)).arg(0).arg(-1);
        let answer = self.shared.link.ask(cell.partition, &range).await?;
        let refunds: Vec<Vec<u8>> = from_redis_value(answer).unwrap_or_default();
        for some in refunds.chunks(FIELDS) {
            let read = |packed: &Vec<u8>| wire::read_refund(pool, packed).map_err(nonsense);
            let some: Vec<Refund> = some.iter().map(read).collect::<Result<_, _>>()?;
            let payments: Vec<&str> = some.iter().map(|refund| refund.payment.as_str()).collect();
            let mut get = cmd("HMGET");
            get.arg(cell.keys.get(Keys::PAYMENTS)).arg(payments);
            let answer = self.shared.link.ask(cell.partition, &get).await?;
            let fates: Vec<Option<Vec<u8>>> = from_redis_value(answer).unwrap_or_default();
            for (refund, fate) in some.into_iter().zip(fates) {
                // It may have been decided otherwise; then this list alone still has it.
                if fate.map_or(Ok(false), |fate| wire::is_refunded(&fate)).map_err(nonsense)? {
                    record.refunds.push(refund);
                }
            }
        }
        Ok(())
    }

    /// The terms of a pool as any of its buckets has them: the partition of the first one may be
    /// lost, and the others still hold what was claimed from them.
    async fn salvage_terms(&self, pool: PoolId) -> Result<Option<Vec<u8>>, RestoreError> {
        for bucket in 0..MAX_BUCKETS {
            let cell = self.shared.cell(CellId { pool, bucket });
            let mut get = cmd("HGET");
            get.arg(cell.keys.get(Keys::POOL)).arg("terms");
            if let Value::BulkString(terms) = self.shared.link.ask(cell.partition, &get).await? {
                return Ok(Some(terms));
            }
        }
        Ok(None)
    }

    /// Makes Redis hold exactly this of a pool. Its partitions must be suspended.
    pub async fn restore(&self, record: &PoolRecord) -> Result<(), RestoreError> {
        let Some(terms) = record.terms() else { return Ok(()) };
        let pool = record.history[0].id;
        let mut cells = parts_of(record, pool)?;
        // What nobody has is dealt out as at the opening.
        let total = record.history.last().map_or(0, |state| state.total);
        let taken: u64 = cells.iter().map(|cell| u64::from(cell.taken())).sum();
        let left = u64::from(total).checked_sub(taken);
        let left =
            left.ok_or(RestoreError::Broken { pool, what: "more is taken than there is" })?;
        let buckets = u64::from(terms.buckets);
        for (bucket, cell) in (0_u64..).zip(&mut cells) {
            let share = left / buckets + u64::from(bucket < left % buckets);
            cell.available = u32::try_from(share).expect("not more than the total");
        }
        for cell in &cells {
            self.restore_cell(record, terms, cell).await?;
        }
        self.restore_payers(record).await
    }

    async fn restore_cell(
        &self,
        record: &PoolRecord,
        terms: &Arc<Terms>,
        part: &Part<'_>,
    ) -> Result<(), RestoreError> {
        let (first, last) = (&record.history[0], record.history.last().expect("not empty"));
        let pool = first.id;
        let cell = self.shared.cell(CellId { pool, bucket: part.bucket });
        let keys = PartitionKeys::new(&self.place().prefix, cell.partition);
        let head = part.bucket == 0;
        let cleared = last.change == PoolChange::Cleared;
        let mut pipe = Pipeline::new();
        pipe.cmd("UNLINK").arg(cell.keys.own());
        let state = Packer::default()
            .list(14)
            .int(if head { last.version.into() } else { 0 })
            .int(if head { last.total.into() } else { 0 })
            .int(if cleared { 0 } else { (part.available + part.taken()).into() })
            .int(if cleared { 0 } else { part.available.into() })
            .int(part.held.into())
            .int(part.ordered.into())
            .int(part.paid.into())
            .int(i64::try_from(part.claims.len()).expect("claims are counted in 32 bits"))
            .int(part.payments.into())
            .int(first.at.millis())
            .int(last.closed_at.map_or(-1, Timestamp::millis))
            .int(cleared.into())
            .int(part.fresh.into())
            .int(1)
            .finish();
        pipe.cmd("HSET")
            .arg(cell.keys.get(Keys::POOL))
            .arg("terms")
            .arg(wire::encode_terms(terms))
            .arg("rules")
            .arg(wire::pack_rules(terms, part.bucket))
            .arg("state")
            .arg(state);
        if head {
            pipe.cmd("ZADD").arg(&keys.pools).arg(first.at.millis()).arg(pool.get());
            for state in &record.history {
                pipe.cmd("RPUSH").arg(cell.keys.get(Keys::HISTORY)).arg(wire::pack_change(state));
                if let PoolChange::Restocked { units, request } = &state.change {
                    pipe.cmd("HSET").arg(cell.keys.get(Keys::RESTOCKS));
                    pipe.arg(request.as_str()).arg(*units);
                }
            }
        }
        if let (Supply::Portions(_), false) = (&terms.supply, cleared) {
            pipe.cmd("SET").arg(cell.keys.get(Keys::PORTIONS)).arg(wire::portion_bytes(terms));
            for place in &part.returned {
                pipe.cmd("ZADD").arg(cell.keys.get(Keys::RETURNED)).arg(*place).arg(*place);
            }
        }
        self.shared.link.ask_many(cell.partition, &pipe).await?;
        let map = |key, fields| self.write_map(cell.partition, cell.keys.get(key), fields);
        map(Keys::CLAIMS, part.packed_claims()).await?;
        map(Keys::BUYERS, part.buyers(terms)).await?;
        map(Keys::REQUESTS, part.requests()).await?;
        map(Keys::PAYMENTS, part.payment_fields()).await?;
        self.restore_lists(part, &cell, &keys).await?;
        self.restore_time(cell.partition, record.latest()).await
    }

    async fn restore_lists(
        &self,
        part: &Part<'_>,
        cell: &super::Cell,
        keys: &PartitionKeys,
    ) -> Result<(), RestoreError> {
        let mut all = Vec::new();
        for refund in &part.refunds {
            let mut push = cmd("RPUSH");
            all.push(push.arg(cell.keys.get(Keys::REFUNDS)).arg(wire::pack_refund(refund)).clone());
        }
        let mut first: Option<Timestamp> = None;
        for claim in &part.claims {
            let due = match claim.state {
                State::Held => claim.hold_until,
                State::Ordered => claim.pay_by,
                State::Paid | State::Released => None,
            };
            if let Some(due) = due {
                let mut add = cmd("ZADD");
                add.arg(cell.keys.get(Keys::DUE)).arg(due.millis());
                let field = wire::field_of(claim.id.number);
                all.push(add.arg(format!("{field}-{field}")).clone());
                first = Some(first.map_or(due, |first| first.min(due)));
            }
        }
        let name = cell.id.to_string();
        all.push(match first {
            Some(due) => cmd("ZADD").arg(&keys.dues).arg(due.millis()).arg(name).clone(),
            None => cmd("ZREM").arg(&keys.dues).arg(name).clone(),
        });
        self.send_all(cell.partition, &all).await
    }

    /// Reserves every payment of a pool for it again, where nobody has it: after the partition
    /// with the reservations was lost, for pools that were not.
    pub async fn restore_payers(&self, record: &PoolRecord) -> Result<(), RestoreError> {
        let (Some(pool), Some(terms)) = (record.pool(), record.terms()) else { return Ok(()) };
        let paid =
            record.claims.iter().filter_map(|claim| Some((claim.payment.as_ref()?, claim.id)));
        let owed = record.refunds.iter().map(|refund| (&refund.payment, refund.order));
        let mut by_partition = BTreeMap::<u16, Vec<Cmd>>::new();
        for (payment, order) in paid.chain(owed) {
            let cell = CellId::of_claim(pool, order.number, terms.buckets);
            let partition = self.shared.partition_of_payment(payment);
            let payers = PartitionKeys::new(&self.place().prefix, partition).payers;
            let mut set = cmd("HSETNX");
            set.arg(payers).arg(payment.as_str()).arg(format!("{cell}:1"));
            by_partition.entry(partition).or_default().push(set);
        }
        for (partition, all) in by_partition {
            self.send_all(partition, &all).await?;
        }
        Ok(())
    }

    /// The time never goes back, also not behind what is put back.
    async fn restore_time(&self, partition: u16, at: Timestamp) -> Result<(), RestoreError> {
        let meta = PartitionKeys::new(&self.place().prefix, partition).meta;
        let found = self.shared.link.ask(partition, cmd("HGET").arg(&meta).arg("at")).await?;
        let found: Option<i64> = from_redis_value(found).unwrap_or_default();
        if found.is_none_or(|found| found < at.millis()) {
            let set = cmd("HSET").arg(&meta).arg("at").arg(at.millis()).clone();
            self.shared.link.ask(partition, &set).await?;
        }
        Ok(())
    }

    async fn send_all(&self, partition: u16, cmds: &[Cmd]) -> Result<(), RestoreError> {
        for some in cmds.chunks(FIELDS) {
            let mut pipe = Pipeline::with_capacity(some.len());
            for cmd in some {
                pipe.add_command(cmd.clone());
            }
            self.shared.link.ask_many(partition, &pipe).await?;
        }
        Ok(())
    }

    async fn write_map(
        &self,
        partition: u16,
        key: &str,
        fields: Vec<(Vec<u8>, Vec<u8>)>,
    ) -> Result<(), RestoreError> {
        for some in fields.chunks(FIELDS) {
            let mut set = cmd("HSET");
            set.arg(key);
            for (field, value) in some {
                set.arg(field).arg(value);
            }
            self.shared.link.ask(partition, &set).await?;
        }
        Ok(())
    }
}

/// What of a pool lies in one bucket, counted.
struct Part<'a> {
    bucket: u16,
    claims: Vec<&'a Claim>,
    refunds: Vec<&'a Refund>,
    replaced: HashMap<u32, u32>,
    held: u32,
    ordered: u32,
    paid: u32,
    payments: u32,
    available: u32,
    fresh: u32,
    returned: Vec<u32>,
}

fn parts_of(record: &PoolRecord, pool: PoolId) -> Result<Vec<Part<'_>>, RestoreError> {
    let broken = |what| RestoreError::Broken { pool, what };
    let Some(terms) = record.terms() else { return Ok(Vec::new()) };
    let mut parts: Vec<Part<'_>> = (0..terms.buckets).map(Part::empty).collect();
    let bucket = |number| usize::from(CellId::of_claim(pool, number, terms.buckets).bucket);
    for claim in &record.claims {
        parts[bucket(claim.id.number)].add(claim).ok_or(broken("its units do not add up"))?;
    }
    for refund in &record.refunds {
        let part = &mut parts[bucket(refund.order.number)];
        part.refunds.push(refund);
        part.payments += 1;
    }
    for part in &mut parts {
        let dense = part.claims.iter().zip(0_u32..).all(|(claim, place)| {
            claim.id.number == place * u32::from(terms.buckets) + u32::from(part.bucket) + 1
        });
        if !dense {
            return Err(broken("claims are missing"));
        }
        part.place_portions();
    }
    Ok(parts)
}

impl<'a> Part<'a> {
    fn empty(bucket: u16) -> Self {
        Self {
            bucket,
            claims: Vec::new(),
            refunds: Vec::new(),
            replaced: HashMap::new(),
            held: 0,
            ordered: 0,
            paid: 0,
            payments: 0,
            available: 0,
            fresh: 0,
            returned: Vec::new(),
        }
    }

    fn add(&mut self, claim: &'a Claim) -> Option<()> {
        self.claims.push(claim);
        let units = match claim.state {
            State::Held => &mut self.held,
            State::Ordered => &mut self.ordered,
            State::Paid => &mut self.paid,
            State::Released => return Some(()),
        };
        *units = units.checked_add(claim.quantity)?;
        self.payments += u32::from(claim.payment.is_some());
        if let Some(replaced) = claim.replaces {
            self.replaced.insert(replaced, claim.id.number);
        }
        Some(())
    }

    fn taken(&self) -> u32 {
        self.held + self.ordered + self.paid
    }

    /// Everything below the highest portion taken that nobody has was given back.
    fn place_portions(&mut self) {
        let taken = self.claims.iter().filter(|claim| claim.state != State::Released);
        let mut places: Vec<u32> = taken.filter_map(|claim| claim.portion).collect();
        places.sort_unstable();
        for place in places {
            self.returned.extend(self.fresh..place);
            self.fresh = place + 1;
        }
    }

    fn packed_claims(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let packed = |claim: &&Claim| {
            let number = claim.id.number;
            let by = self.replaced.get(&number).copied().unwrap_or(0);
            (wire::field_of(number).into_bytes(), wire::pack_claim(claim, by))
        };
        self.claims.iter().map(packed).collect()
    }

    fn buyers(&self, terms: &Terms) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut buyers = HashMap::<&str, (u32, u32)>::new();
        for claim in &self.claims {
            let identity = claim.identity.as_ref().map(Identity::as_str);
            let name = match terms.limit_by {
                LimitBy::User => claim.user.as_str(),
                LimitBy::Identity => identity.unwrap_or(claim.user.as_str()),
            };
            let uses = match (claim.state, terms.reclaim) {
                (State::Released, Reclaim::Allowed) => 0,
                (_, Reclaim::Never) if claim.replaces.is_some() => 0,
                _ => claim.quantity,
            };
            let buyer = buyers.entry(name).or_default();
            *buyer = (claim.id.number, buyer.1 + uses);
        }
        let field = |(name, (latest, used)): (&str, (u32, u32))| {
            (name.as_bytes().to_vec(), wire::buyer(latest, used).into_bytes())
        };
        buyers.into_iter().map(field).collect()
    }

    fn requests(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let request = |claim: &&Claim| {
            let request = claim.request.as_ref()?;
            let field = wire::request_field(&claim.user, request);
            Some((field, wire::field_of(claim.id.number).into_bytes()))
        };
        self.claims.iter().filter_map(request).collect()
    }

    fn payment_fields(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let paid = self.claims.iter().filter_map(|claim| {
            let payment = claim.payment.as_ref()?.as_str().as_bytes().to_vec();
            let number = claim.id.number;
            Some((payment, wire::pack_paid(claim.replaces.unwrap_or(number), number)))
        });
        let owed = self.refunds.iter().map(|refund| {
            (refund.payment.as_str().as_bytes().to_vec(), wire::pack_refunded(refund))
        });
        paid.chain(owed).collect()
    }
}
