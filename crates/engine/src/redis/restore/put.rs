//! Partitions put back, by whoever has the highest number.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use qiang_core::{PoolChange, PoolState, Supply, Terms, Timestamp, decide};
use redis::{Cmd, Pipeline, cmd, from_redis_value};

use super::super::cell::{Cell, CellId, Keys, PartitionKeys};
use super::super::link::ServerId;
use super::super::pack::Packer;
use super::super::{FORMAT, PUT, SUSPEND, wire};
use super::part::{Part, parts_of};
use super::{Engine, FIELDS, PoolRecord, RestoreError};

/// What becomes of the log of a partition that goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goes {
    /// It goes on as it is.
    OnWithItsLog,
    /// What lies in its log is not trusted: it is empty, and goes on behind this position.
    OnBehind(u64),
}

/// Somebody who puts partitions back.
#[derive(Debug)]
pub struct Restore<'a> {
    engine: &'a Engine,
    number: u64,
    /// For each partition the steps that were begun.
    steps: Mutex<BTreeMap<u16, u64>>,
}

impl Engine {
    /// The highest number under which anybody has begun to put partitions back.
    pub async fn last_repair(&self) -> Result<u64, RestoreError> {
        let prefix = &self.place().prefix;
        let answers = self.shared.link.ask_each(|partition| {
            cmd("HGET").arg(PartitionKeys::new(prefix, partition).meta).arg("repair").to_owned()
        });
        let mut last = 0;
        for answer in answers.await {
            let number: Option<u64> = from_redis_value(answer?).unwrap_or_default();
            last = last.max(number.unwrap_or(0));
        }
        Ok(last)
    }

    /// Begins to put partitions back. Whoever has a higher number may come in between at any time.
    #[must_use]
    pub fn restore_as(&self, number: u64) -> Restore<'_> {
        Restore { engine: self, number, steps: Mutex::default() }
    }
}

impl Restore<'_> {
    /// Takes the epoch from a partition, so that nothing is decided in it until it has one again.
    pub async fn suspend(&self, partition: u16) -> Result<(), RestoreError> {
        let meta = self.keys(partition).meta;
        let mut call = SUSPEND.call([&*meta]);
        call.arg(self.number);
        self.send(partition, std::slice::from_ref(&call)).await
    }

    /// Gives a suspended partition its epoch.
    pub async fn resume(
        &self,
        partition: u16,
        epoch: &str,
        goes: Goes,
    ) -> Result<(), RestoreError> {
        let (keys, shared) = (self.keys(partition), &self.engine.shared);
        // Without an epoch nobody begins a call, so this stands still. What is counted is left alone:
        // a later start that carries out half a call from before adds one to it.
        let begun = shared.link.ask(partition, cmd("HGET").arg(&keys.meta).arg("begun")).await?;
        let begun: Option<u64> = from_redis_value(begun).unwrap_or_default();
        let mut all = Vec::new();
        // The epoch comes last and at once with where the log goes on.
        if let Goes::OnBehind(_) = goes {
            all.push(self.put(partition, &keys.meta, &keys.log, "UNLINK"));
        }
        let mut set = self.put(partition, &keys.meta, &keys.meta, "HSET");
        set.arg("epoch").arg(epoch);
        if let Goes::OnBehind(seq) = goes {
            set.arg("seq").arg(seq).arg("trimmed").arg(seq);
        }
        if let Some(begun) = begun {
            set.arg("ended").arg(begun);
        }
        if partition == 0 {
            set.arg("partitions").arg(self.engine.place().partitions).arg("format").arg(FORMAT);
        }
        all.push(set);
        self.send(partition, &all).await?;
        match shared.replicated(partition, &keys.meta).await {
            Ok(()) => Ok(()),
            Err(_) => Err(RestoreError::TooFewReplicas),
        }
    }

    /// Makes Redis hold exactly this of a pool. Its partitions must be suspended. If more is taken
    /// than there is, nothing is left, and what comes back makes up for that first.
    pub async fn pool(&self, record: &PoolRecord) -> Result<(), RestoreError> {
        let Some(last) = record.history.last() else { return Ok(()) };
        let terms = &last.terms;
        if last.change == PoolChange::Cleared && decide::leaves_nothing(last.id, terms) {
            return self.remove(last).await;
        }
        for part in parts_of(record, terms)? {
            self.bucket(record, terms, &part).await?;
        }
        Ok(())
    }

    /// Nothing of the pool stays.
    async fn remove(&self, ended: &PoolState) -> Result<(), RestoreError> {
        let cell = self.engine.shared.cell(CellId::head(ended.id));
        let keys = self.keys(cell.partition);
        let unlink = |key: &String| self.put(cell.partition, &keys.meta, key, "UNLINK");
        let mut all: Vec<Cmd> = cell.keys.own().iter().map(unlink).collect();
        let prefix = &self.engine.place().prefix;
        let pools = PartitionKeys::pools(prefix, cell.partition, ended.terms.kind);
        for (list, member) in [(&pools, ended.id.to_string()), (&keys.dues, cell.id.to_string())] {
            let mut remove = self.put(cell.partition, &keys.meta, list, "ZREM");
            remove.arg(member);
            all.push(remove);
        }
        self.send(cell.partition, &all).await?;
        self.raise_time(cell.partition, ended.at).await
    }

    async fn bucket(
        &self,
        record: &PoolRecord,
        terms: &Arc<Terms>,
        part: &Part<'_>,
    ) -> Result<(), RestoreError> {
        let (first, last) = (&record.history[0], record.history.last().expect("not empty"));
        let pool = first.id;
        let cell = self.engine.shared.cell(CellId { pool, bucket: part.bucket });
        let keys = self.keys(cell.partition);
        let put = |key: usize, command: &str| {
            self.put(cell.partition, &keys.meta, cell.keys.get(key), command)
        };
        let head = part.bucket == 0;
        let cleared = last.change == PoolChange::Cleared;
        let mut all: Vec<Cmd> = cell
            .keys
            .own()
            .iter()
            .map(|key| self.put(cell.partition, &keys.meta, key, "UNLINK"))
            .collect();
        let mut state = put(Keys::POOL, "HSET");
        state.arg("terms").arg(wire::encode_terms(terms));
        state.arg("rules").arg(wire::pack_rules(terms, part.bucket));
        let server = self.engine.shared.link.server_of(cell.partition);
        state.arg("state").arg(packed_state(record, part, cleared, server));
        let gaps = part.gaps();
        if !gaps.is_empty() {
            state.arg("gaps").arg(wire::pack_gaps(&gaps));
        }
        all.push(state);
        if head {
            let prefix = &self.engine.place().prefix;
            let pools = PartitionKeys::pools(prefix, cell.partition, terms.kind);
            let mut list = self.put(cell.partition, &keys.meta, &pools, "ZADD");
            list.arg(first.at.millis()).arg(pool.get());
            all.push(list);
            for state in &record.history {
                let mut push = put(Keys::HISTORY, "RPUSH");
                push.arg(wire::pack_change(state));
                all.push(push);
                if let PoolChange::Restocked { units, request } = &state.change {
                    let mut set = put(Keys::RESTOCKS, "HSET");
                    set.arg(request.as_str()).arg(*units);
                    all.push(set);
                }
            }
        }
        if let (Supply::Portions(_), false) = (&terms.supply, cleared) {
            let mut set = put(Keys::PORTIONS, "SET");
            set.arg(wire::portion_bytes(terms));
            all.push(set);
            for place in &part.returned {
                let mut add = put(Keys::RETURNED, "ZADD");
                add.arg(*place).arg(*place);
                all.push(add);
            }
        }
        for (key, fields) in [
            (Keys::CLAIMS, part.claim_fields(terms)),
            (Keys::BUYERS, part.buyers(terms)),
            (Keys::REQUESTS, part.requests()),
            (Keys::PAYMENTS, part.payments()),
            (Keys::REFUNDED, part.refunded()),
            (Keys::PAYERS, part.payers.clone()),
        ] {
            for some in fields.chunks(FIELDS) {
                let mut set = put(key, "HSET");
                for (field, value) in some {
                    set.arg(field).arg(value);
                }
                all.push(set);
            }
        }
        for refund in &part.refunds {
            let mut push = put(Keys::REFUNDS, "RPUSH");
            push.arg(wire::pack_refund(refund));
            all.push(push);
        }
        self.add_dues(part, &cell, &keys, &mut all);
        self.send(cell.partition, &all).await?;
        self.raise_time(cell.partition, record.latest()).await
    }

    fn add_dues(&self, part: &Part<'_>, cell: &Cell, keys: &PartitionKeys, all: &mut Vec<Cmd>) {
        let dues = part.dues();
        for (due, range) in &dues {
            let mut add = self.put(cell.partition, &keys.meta, cell.keys.get(Keys::DUE), "ZADD");
            add.arg(due.millis()).arg(range);
            all.push(add);
        }
        let name = cell.id.to_string();
        let first = dues.iter().map(|(due, _)| *due).min();
        let command = if first.is_some() { "ZADD" } else { "ZREM" };
        let mut set = self.put(cell.partition, &keys.meta, &keys.dues, command);
        if let Some(first) = first {
            set.arg(first.millis());
        }
        set.arg(name);
        all.push(set);
    }

    /// The time never goes back, also not behind what is put back.
    async fn raise_time(&self, partition: u16, at: Timestamp) -> Result<(), RestoreError> {
        let (meta, link) = (self.keys(partition).meta, &self.engine.shared.link);
        let found = link.ask(partition, cmd("HGET").arg(&meta).arg("at")).await?;
        let found: Option<i64> = from_redis_value(found).unwrap_or_default();
        if found.is_none_or(|found| found < at.millis()) {
            let mut set = self.put(partition, &meta, &meta, "HSET");
            set.arg("at").arg(at.millis());
            self.send(partition, std::slice::from_ref(&set)).await?;
        }
        Ok(())
    }

    /// The next step. It is done once, in this order, and not at all once somebody with a higher number
    /// has begun.
    fn put(&self, partition: u16, meta: &str, key: &str, command: &str) -> Cmd {
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        let step = steps.entry(partition).or_default();
        *step += 1;
        let mut call = PUT.call([meta, key]);
        call.arg(self.number).arg(*step).arg(command);
        call
    }

    async fn send(&self, partition: u16, cmds: &[Cmd]) -> Result<(), RestoreError> {
        for some in cmds.chunks(FIELDS) {
            let mut pipe = Pipeline::with_capacity(some.len());
            for cmd in some {
                pipe.add_command(cmd.clone());
            }
            self.engine.shared.ask_patiently(partition, &pipe).await?;
        }
        Ok(())
    }

    fn keys(&self, partition: u16) -> PartitionKeys {
        PartitionKeys::new(&self.engine.place().prefix, partition)
    }
}

fn packed_state(record: &PoolRecord, part: &Part<'_>, cleared: bool, server: ServerId) -> Vec<u8> {
    let (first, last) = (&record.history[0], record.history.last().expect("not empty"));
    let head = part.bucket == 0;
    Packer::default()
        .list(17)
        .int(if head { last.version.into() } else { 0 })
        .int(if head { last.total.into() } else { 0 })
        .int(if cleared { 0 } else { (part.available + part.taken()).into() })
        .int(if cleared { 0 } else { part.available.into() })
        .int(part.held.into())
        .int(part.ordered.into())
        .int(part.paid.into())
        .int(part.numbers.into())
        .int(part.counted_payments.into())
        .int(first.at.millis())
        .int(last.closed_at.map_or(-1, Timestamp::millis))
        .int(cleared.into())
        .int(part.fresh.into())
        .int(1)
        .int(part.skipped().into())
        .int(part.short.into())
        .int(server.number())
        .finish()
}
