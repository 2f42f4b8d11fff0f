//! Sending: one transaction debits the sender, writes the packet and enqueues the job that opens it. So
//! a crash leaves nothing, or a packet that opens by itself.

use std::time::Duration;

use qiang_core::{Cents, Timestamp, UserId};
use qiang_sql::Transaction;

use super::{ADD, OPEN_JOB, Packet, bind, limits};
use crate::Store;
use crate::accounts::{self, Account, Moved, Movement, What};
use crate::error::{Result, While};
use crate::jobs::{self, NewJob};

/// How often a packet is tried to be sent while others collide with it.
const ATTEMPTS: u32 = 20;
/// Whoever sends opens the pool at once. The job is for those who died before.
const OPEN_AFTER: Duration = Duration::from_secs(1);
/// Of movements that follow from what they are for, and from nothing that was asked.
pub(super) const DERIVED: &str = "derived";

const SENDING: &str = "sending a packet";

/// What one user may send on one day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DayLimits {
    /// Days since 1970-01-01, by the shop's time zone.
    pub day: i64,
    pub cents: Cents,
    pub packets: u32,
}

/// A packet to be sent.
#[derive(Debug, Clone, Copy)]
pub struct Sending<'a> {
    pub packet: &'a Packet,
    pub limits: DayLimits,
    /// The seed that the sender was shown the hash of, which is used up by this.
    pub seed_id: Option<&'a str>,
}

/// What came of sending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sent {
    Done,
    /// The same request sent a packet before: this one.
    Before(Box<Packet>),
    Refused(accounts::Refusal),
    /// The sender would have sent more than a user may on a day.
    OverDayLimit,
    /// There is no such seed, or it was used.
    NoSuchSeed,
}

impl Store {
    /// Sends a packet, once for its `request_key`. It is on the disk when this returns. Whatever is refused
    /// leaves nothing behind.
    pub async fn send_packet(&self, sending: &Sending<'_>, now: Timestamp) -> Result<Sent> {
        let mut left = ATTEMPTS;
        loop {
            left -= 1;
            let key = &sending.packet.request_key;
            if let Some(before) = self.packet_of_request(key).await? {
                return Ok(Sent::Before(Box::new(before)));
            }
            match self.try_to_send(sending, now).await {
                // The same request is being sent by somebody else, or accounts collide.
                Err(error) if left > 0 && (error.is_transient() || error.is_duplicate()) => {
                    tracing::debug!(%error, left, "trying again");
                }
                done => return done,
            }
        }
    }

    async fn try_to_send(&self, sending: &Sending<'_>, now: Timestamp) -> Result<Sent> {
        let Sending { packet, limits, seed_id } = sending;
        let mut tx = self.begin().await?;
        if let Moved::Refused(refusal) = fund(&mut tx, packet, now).await? {
            return Ok(Sent::Refused(refusal));
        }
        // The sender's account is locked by now, so packets of one sender are counted one by one.
        if !limits::count(&mut tx, &packet.sender, limits, packet.total).await? {
            return Ok(Sent::OverDayLimit);
        }
        if let Some(seed) = seed_id
            && !limits::use_seed(&mut tx, seed, &packet.sender).await?
        {
            return Ok(Sent::NoSuchSeed);
        }
        ADD.run(&mut tx, &[*packet], |params, packet| bind(params, packet)).await.when(SENDING)?;
        let pool = packet.pool.to_string();
        let job = NewJob { kind: OPEN_JOB, key: &pool, payload: "", delay: OPEN_AFTER };
        jobs::enqueue(&mut tx, &[job]).await?;
        tx.commit().await.when(SENDING)?;
        Ok(Sent::Done)
    }
}

async fn fund(tx: &mut Transaction, packet: &Packet, now: Timestamp) -> Result<Moved> {
    let key = format!("packet:{}:fund", packet.pool);
    let from = Account::User(UserId::clone(&packet.sender));
    let what = What::Transfer { from, to: Account::Packet(packet.pool), amount: packet.total };
    let movement = Movement { key: &key, request_hash: DERIVED, what };
    let moved = accounts::apply(tx, &[movement], now).await?.pop();
    Ok(moved.expect("one movement has one result"))
}
