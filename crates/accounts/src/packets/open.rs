//! The pool of a packet is opened by whoever sent it, or by the job that was enqueued with it. Opening
//! again changes nothing.

use qiang_app::jobs::{Failure, Jobs, Retries};
use qiang_core::{Command, Outcome, PoolId, Refusal, Timestamp};
use qiang_store::packets::{OPEN_JOB, Packet};

use crate::Accounts;

/// Until its time is over a packet is tried to be opened; then it is recycled.
const RETRIES: Retries = Retries {
    attempts: 5_000,
    first: std::time::Duration::from_secs(1),
    longest: std::time::Duration::from_secs(30),
};

impl Accounts {
    pub(crate) fn add_open_job(&self, jobs: &mut Jobs) {
        let accounts = self.clone();
        jobs.register(OPEN_JOB, RETRIES, move |job| {
            let accounts = accounts.clone();
            async move { accounts.open_later(&job.key).await }
        });
    }

    async fn open_later(&self, key: &str) -> Result<(), Failure> {
        let pool: PoolId = key.parse()?;
        let Some(packet) = self.app.store.packet(pool).await? else { return Ok(()) };
        // One that was opened is never opened again: if the engine lost it, it would be full again.
        if packet.opened_at.is_some() || packet.recycled_at.is_some() {
            return Ok(());
        }
        self.open(&packet).await.map(drop)
    }

    /// Opens the pool, and says since when it is open.
    pub(crate) async fn open(&self, packet: &Packet) -> Result<Timestamp, Failure> {
        let command = Command::Open { pool: packet.pool, terms: packet.terms()? };
        match self.app.engine.ask(command).await?.into_pool() {
            Outcome::Done(pool) | Outcome::Replayed(pool) => Ok(pool.opened_at),
            Outcome::Refused(refusal) => Err(refused(packet.pool, &refusal)),
        }
    }
}

pub(super) fn refused(pool: PoolId, refusal: &Refusal) -> Failure {
    format!("the engine refused packet {pool}: {}", refusal.code()).into()
}
