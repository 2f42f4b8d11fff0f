//! What of a pool lies in one bucket, counted from its claims.

use std::collections::HashMap;
use std::sync::Arc;

use qiang_core::{
    Claim, Flow, Identity, LimitBy, PoolChange, Reclaim, Refund, State, Terms, Timestamp,
};

use super::super::cell::CellId;
use super::super::money::keeper_of;
use super::super::wire::{self, BLOCK};
use super::{PoolRecord, RestoreError};

/// Claims that are due together; a script that releases them takes so long.
const MAX_DUE_TOGETHER: u32 = 512;

/// Fields of a hash.
pub(super) type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// What of a pool lies in one bucket.
pub(super) struct Part<'a> {
    pub(super) bucket: u16,
    buckets: u16,
    claims: Vec<&'a Claim>,
    pub(super) refunds: Vec<&'a Refund>,
    replaced: HashMap<u32, u32>,
    pub(super) held: u32,
    pub(super) ordered: u32,
    pub(super) paid: u32,
    pub(super) counted_payments: u32,
    pub(super) available: u32,
    /// Units that are taken and were never there.
    pub(super) short: u32,
    /// Portions that were taken out of the list so far, given back or not.
    pub(super) fresh: u32,
    /// Portions that were given back.
    pub(super) returned: Vec<u32>,
    /// Numbers of claims that are used up.
    pub(super) numbers: u32,
    /// Which buckets the payments count in that this one keeps the reservations of.
    pub(super) payers: Fields,
}

/// What of a pool lies in which bucket.
pub(super) fn parts_of<'a>(
    record: &'a PoolRecord,
    terms: &Arc<Terms>,
) -> Result<Vec<Part<'a>>, RestoreError> {
    let pool = record.history[0].id;
    let broken = |what| RestoreError::Broken { pool, what };
    let buckets = terms.buckets;
    let mut parts: Vec<Part<'_>> =
        (0..buckets).map(|bucket| Part::empty(bucket, buckets)).collect();
    let bucket = |number| CellId::of_claim(pool, number, buckets).bucket;
    let cleared = record.history.last().is_some_and(|last| last.change == PoolChange::Cleared);
    for claim in &record.claims {
        let part = &mut parts[usize::from(bucket(claim.id.number))];
        part.add(claim).ok_or(broken("its units do not add up"))?;
    }
    for refund in &record.refunds {
        let part = &mut parts[usize::from(bucket(refund.order.number))];
        part.refunds.push(refund);
        part.counted_payments += 1;
    }
    let paid = record.claims.iter().filter_map(|claim| Some((claim.payment.as_ref()?, claim.id)));
    let owed = record.refunds.iter().map(|refund| (&refund.payment, refund.order));
    for (payment, order) in paid.chain(owed).filter(|_| buckets > 1) {
        let keeper = &mut parts[usize::from(keeper_of(payment, buckets))];
        let owner = format!("{}:1", bucket(order.number));
        keeper.payers.push((format!("of:{payment}").into_bytes(), owner.into_bytes()));
    }
    let total = record.history.last().map_or(0, |state| state.total);
    share_out(total, &mut parts);
    for part in &mut parts {
        part.place_portions();
        let lost = if cleared { 0 } else { record.lost_through.div_ceil(buckets.into()) };
        part.numbers = part.numbers.max(lost);
    }
    Ok(parts)
}

/// What nobody has is dealt out as at the opening. If more is taken than there is, each bucket is short
/// of its part of that.
fn share_out(total: u32, parts: &mut [Part<'_>]) {
    let all: u64 = parts.iter().map(|part| u64::from(part.taken())).sum();
    let left = u64::from(total).saturating_sub(all);
    let (buckets, mut short, mut taken) =
        (parts.len() as u64, all.saturating_sub(total.into()), all);
    for (bucket, part) in (0_u64..).zip(parts) {
        let share = left / buckets + u64::from(bucket < left % buckets);
        part.available = u32::try_from(share).expect("not more than the total");
        let own = u64::from(part.taken());
        // Of what is still to be dealt out as much as of the units; the last one gets the rest.
        let part_of_short = (short * own).div_ceil(taken.max(1)).min(own).min(short);
        part.short = u32::try_from(part_of_short).expect("not more than taken");
        (short, taken) = (short - part_of_short, taken - own);
    }
}

impl<'a> Part<'a> {
    fn empty(bucket: u16, buckets: u16) -> Self {
        Self {
            bucket,
            buckets,
            claims: Vec::new(),
            refunds: Vec::new(),
            replaced: HashMap::new(),
            held: 0,
            ordered: 0,
            paid: 0,
            counted_payments: 0,
            available: 0,
            short: 0,
            fresh: 0,
            returned: Vec::new(),
            numbers: 0,
            payers: Vec::new(),
        }
    }

    /// Claims come by rising number.
    fn add(&mut self, claim: &'a Claim) -> Option<()> {
        self.claims.push(claim);
        self.numbers = self.place_of(claim) + 1;
        self.counted_payments += u32::from(claim.payment.is_some());
        if let Some(replaced) = claim.replaces {
            self.replaced.insert(replaced, claim.id.number);
        }
        let units = match claim.state {
            State::Held => &mut self.held,
            State::Ordered => &mut self.ordered,
            State::Paid => &mut self.paid,
            State::Released => return Some(()),
        };
        *units = units.checked_add(claim.quantity)?;
        self.held.checked_add(self.ordered)?.checked_add(self.paid)?;
        Some(())
    }

    /// The place of a claim among those of the bucket.
    fn place_of(&self, claim: &Claim) -> u32 {
        (claim.id.number - 1) / u32::from(self.buckets)
    }

    pub(super) fn taken(&self) -> u32 {
        self.held + self.ordered + self.paid
    }

    /// Numbers that are used up without a claim.
    pub(super) fn skipped(&self) -> u32 {
        let claims = u32::try_from(self.claims.len()).expect("claims are counted in 32 bits");
        self.numbers.saturating_sub(claims)
    }

    /// Numbers that are used up without a claim, as places among the claims.
    pub(super) fn gaps(&self) -> Vec<wire::Gap> {
        let (mut gaps, mut next) = (Vec::new(), 0);
        let ends = self.claims.iter().map(|claim| self.place_of(claim)).chain([self.numbers]);
        for place in ends {
            if place > next {
                gaps.push((next, place));
            }
            next = place + 1;
        }
        gaps
    }

    /// Everything below the highest portion taken that nobody has was given back.
    fn place_portions(&mut self) {
        let taken = self.claims.iter().filter(|claim| claim.state != State::Released);
        let mut places: Vec<u32> = taken.filter_map(|claim| claim.portion).collect();
        places.sort_unstable();
        places.dedup();
        for place in places {
            self.returned.extend(self.fresh..place);
            self.fresh = place + 1;
        }
    }

    /// The claims as the script keeps them: those that were granted alike and fill a block in one
    /// field, and whatever became of one since, or was not granted so, in a field of its own.
    pub(super) fn claim_fields(&self, terms: &Terms) -> Fields {
        let mut fields = Vec::new();
        for block in
            self.claims.chunk_by(|a, b| self.place_of(a) / BLOCK == self.place_of(b) / BLOCK)
        {
            let base = fresh(block[0], terms);
            let fills = block.len() == BLOCK as usize;
            let in_block = fills && block.iter().all(|claim| is_alike(claim, &base, terms));
            if in_block {
                let field = wire::block_of(self.place_of(block[0]));
                fields.push((field, wire::pack_run(block, self.buckets, &base)));
            }
            for claim in block {
                let number = claim.id.number;
                let replaced_by = self.replaced.get(&number).copied().unwrap_or(0);
                let base = fresh(claim, terms);
                let is_fresh = **claim == base && replaced_by == 0;
                match (is_fresh, in_block) {
                    (true, true) => {}
                    (true, false) if claim.portion.is_none() => {
                        let run = wire::pack_run(&[*claim], self.buckets, &base);
                        fields.push((wire::field_of(number), run));
                    }
                    (false, true) => {
                        let changed = wire::pack_changed(claim, replaced_by);
                        fields.push((wire::field_of(number), changed));
                    }
                    _ => {
                        fields.push((wire::field_of(number), wire::pack_claim(claim, replaced_by)));
                    }
                }
            }
        }
        fields
    }

    pub(super) fn buyers(&self, terms: &Terms) -> Fields {
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
            (name.as_bytes().to_vec(), wire::buyer(latest, used))
        };
        buyers.into_iter().map(field).collect()
    }

    pub(super) fn requests(&self) -> Fields {
        let request = |claim: &&Claim| {
            let request = claim.request.as_ref()?;
            let field = wire::request_field(&claim.user, request);
            Some((field, wire::field_of(claim.id.number)))
        };
        self.claims.iter().filter_map(request).collect()
    }

    /// Which claim each payment has paid.
    pub(super) fn payments(&self) -> Fields {
        let paid = |claim: &&Claim| {
            let payment = claim.payment.as_ref()?.as_str().into();
            Some((payment, wire::field_of(claim.id.number)))
        };
        self.claims.iter().filter_map(paid).collect()
    }

    /// What is owed back of which payment.
    pub(super) fn refunded(&self) -> Fields {
        let owed = |refund: &&Refund| (refund.payment.as_str().into(), wire::pack_refund(refund));
        self.refunds.iter().map(owed).collect()
    }

    /// When claims run out: neighbours that do at the same time together, as the script keeps them.
    pub(super) fn dues(&self) -> Vec<(Timestamp, Vec<u8>)> {
        let mut ranges: Vec<(Timestamp, u32, u32)> = Vec::new();
        for claim in &self.claims {
            let number = claim.id.number;
            let due = match claim.state {
                State::Held => claim.hold_until,
                State::Ordered => claim.pay_by,
                State::Paid | State::Released => None,
            };
            let Some(due) = due else { continue };
            match ranges.last_mut() {
                Some((last_due, first, last))
                    if *last_due == due
                        && *last + u32::from(self.buckets) == number
                        && (number - *first) / u32::from(self.buckets) < MAX_DUE_TOGETHER =>
                {
                    *last = number;
                }
                _ => ranges.push((due, number, number)),
            }
        }
        let member = |(due, first, last)| (due, wire::due_of(first, last));
        ranges.into_iter().map(member).collect()
    }
}

/// A claim as it was when it was granted.
fn fresh(claim: &Claim, terms: &Terms) -> Claim {
    let at = claim.created_at;
    let (state, hold_until, pay_by) = match terms.flow {
        Flow::Instant => (State::Paid, None, None),
        // It cost nothing.
        Flow::Order { .. } if claim.pay_by.is_none() => (State::Paid, None, None),
        Flow::Order { pay_ms } => (State::Ordered, None, Some(at.plus_millis(pay_ms))),
        Flow::Hold { hold_ms, .. } => (State::Held, Some(at.plus_millis(hold_ms)), None),
    };
    Claim {
        state,
        hold_until,
        pay_by,
        version: 1,
        changed_at: at,
        payment: None,
        replaces: None,
        reason: None,
        ..claim.clone()
    }
}

/// Whether a claim was granted as another one was: it can be told from that one.
fn is_alike(claim: &Claim, base: &Claim, terms: &Terms) -> bool {
    let own = fresh(claim, terms);
    claim.portion.is_none()
        && claim.replaces.is_none()
        && (own.created_at, own.unit_price, own.hold_until, own.pay_by, own.state)
            == (base.created_at, base.unit_price, base.hold_until, base.pay_by, base.state)
}
