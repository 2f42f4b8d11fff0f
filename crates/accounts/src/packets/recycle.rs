//! What becomes of a packet when its time is over: its pool is closed, what is left goes back, and later the
//! engine forgets it.
//!
//! First the pool is closed. Then the records catch up with everything decided before. Only then does what
//! the engine says is left go back, in one transaction with the mark that it did. So a grab that was under
//! way is paid or refused, and never refunded as well. Each step may be repeated, by several workers, after
//! any downtime.

use std::time::Duration;

use qiang_app::workers::{Failure, Turn};
use qiang_core::{Cents, Command, Outcome, Refusal, Reply};
use qiang_store::packets::{Packet, Recycled};

use super::open::refused;
use super::view::time_to_empty;
use crate::Accounts;

/// Packets that are recycled at once.
const AT_ONCE: u32 = 64;
/// A closed pool stays in the engine for so long, so that an attempt to open it that is still under way
/// finds it closed.
const CLEAR_AFTER_MS: u64 = 600_000;
/// A packet that could not be recycled is looked at again after so long.
const AGAIN_AFTER_MS: u64 = 10_000;
/// One node does this at a time. The others look whether it still does.
const LEASE: (&str, Duration) = ("packets", Duration::from_secs(10));

impl Accounts {
    /// Recycles what is due, beside the worker: for tests, in which several do so at once.
    pub async fn recycle_now(self) -> Turn {
        self.due().await
    }

    /// One turn: everything that is due, if no other node does it.
    pub(crate) async fn recycle(self) -> Turn {
        let (app, now) = (&self.app, self.app.now());
        let (lease, ttl) = LEASE;
        if app.engine.is_shared() && !app.store.take_lease(lease, app.node.owner(), ttl).await? {
            return Ok(());
        }
        self.due().await?;
        self.metrics.waiting.set(app.store.credit_waiting(now).await?);
        Ok(app.store.forget_packet_days(self.settings.packets.time_zone.day(now)).await?)
    }

    async fn due(&self) -> Turn {
        let (app, now) = (&self.app, self.app.now());
        loop {
            let due = app.store.due_packets(now, AT_ONCE).await?;
            let is_last = due.len() < AT_ONCE as usize;
            let (over, open): (Vec<_>, Vec<_>) =
                due.into_iter().partition(|packet| packet.recycled_at.is_some());
            self.clear(&over).await?;
            self.give_back(&open).await?;
            if is_last {
                return Ok(());
            }
        }
    }

    async fn give_back(&self, packets: &[Packet]) -> Turn {
        if packets.is_empty() {
            return Ok(());
        }
        let mut closed = Vec::with_capacity(packets.len());
        let close = packets.iter().map(|packet| Command::Close { pool: packet.pool }).collect();
        for (packet, reply) in packets.iter().zip(self.app.engine.ask_many(close).await) {
            match self.closed(packet, reply).await {
                Ok(left) => closed.push((packet, left)),
                Err(error) => self.later(packet, &qiang_engine::chain(&*error)).await?,
            }
        }
        // Everything that was decided before the pools were closed.
        self.app.catch_up().await.map_err(|problem| problem.sentence().to_owned())?;
        for (packet, left) in closed {
            let now = self.app.now();
            let clear_at = now.plus_millis(CLEAR_AFTER_MS);
            match self.app.store.recycle_packet(packet.pool, left, now, clear_at).await? {
                Recycled::Done(refunded) => self.note_end(packet, refunded).await,
                Recycled::Before => {}
                Recycled::Missing { total, grabbed, left } => {
                    let why = format!(
                        "{} cents were sent, {} are recorded as taken, and the engine says that {} are left",
                        total.get(),
                        grabbed.get(),
                        left.get()
                    );
                    self.later(packet, &why).await?;
                }
                Recycled::Refused(refusal) => self.later(packet, &format!("{refusal:?}")).await?,
            }
        }
        Ok(())
    }

    /// What is left in the pool, which is closed by now. One that was never opened is opened first, so that
    /// it cannot be opened any more.
    async fn closed(
        &self,
        packet: &Packet,
        reply: Result<Reply, qiang_engine::Error>,
    ) -> Result<Cents, Failure> {
        let mut outcome = reply?.into_pool();
        if matches!(outcome, Outcome::Refused(Refusal::NoSuchPool)) && packet.opened_at.is_none() {
            self.open(packet).await?;
            let close = Command::Close { pool: packet.pool };
            outcome = self.app.engine.ask(close).await?.into_pool();
        }
        match outcome {
            Outcome::Done(pool) | Outcome::Replayed(pool) => {
                Ok(pool.cents_left.unwrap_or(Cents::ZERO))
            }
            // A shared engine lost it and was repaired. Nobody can grab any more, and what the records do not
            // know was lost with it.
            Outcome::Refused(Refusal::NoSuchPool) => {
                let packet_id = packet.pool;
                tracing::error!(%packet_id, "the engine lost a packet: what is not recorded as taken goes back");
                Ok(Cents::new(packet.total.get() - packet.grabbed.get()))
            }
            Outcome::Refused(refusal) => Err(refused(packet.pool, &refusal)),
        }
    }

    async fn later(&self, packet: &Packet, why: &str) -> Turn {
        tracing::error!(packet = %packet.pool, "what is left does not go back yet: {why}");
        let again = self.app.now().plus_millis(AGAIN_AFTER_MS);
        Ok(self.app.store.postpone_packet(packet.pool, Some(again)).await?)
    }

    async fn note_end(&self, packet: &Packet, refunded: Cents) {
        self.metrics.recycled(refunded);
        // As it is recorded by now.
        if let Ok(Some(packet)) = self.app.store.packet(packet.pool).await
            && let Some(took_ms) = time_to_empty(&packet)
        {
            self.metrics.emptied(Duration::from_millis(took_ms));
        }
    }

    /// Has the engine forget packets that are over.
    async fn clear(&self, packets: &[Packet]) -> Turn {
        let clear = packets.iter().map(|packet| Command::Clear { pool: packet.pool }).collect();
        for (packet, reply) in packets.iter().zip(self.app.engine.ask_many(clear).await) {
            let is_gone = match reply.map(Reply::into_pool) {
                Ok(Outcome::Done(_) | Outcome::Replayed(_)) => true,
                Ok(Outcome::Refused(Refusal::NoSuchPool | Refusal::Cleared)) => true,
                Ok(Outcome::Refused(refusal)) => {
                    tracing::error!(packet = %packet.pool, "not cleared: {}", refusal.code());
                    false
                }
                Err(_) => false,
            };
            let again = self.app.now().plus_millis(AGAIN_AFTER_MS);
            let until = (!is_gone).then_some(again);
            self.app.store.postpone_packet(packet.pool, until).await?;
        }
        Ok(())
    }
}
