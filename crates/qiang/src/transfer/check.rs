//! A sale of a file, held against the rules before anything of it is written: what no engine could
//! have decided is refused, with the line it stands in.
//!
//! A Redis that lost something may have sold too much, and goes on with that. The embedded engine
//! cannot hold such a sale, so [`Sale::fits_embedded`] asks for more than [`Sale::check`].

use std::collections::{HashMap, HashSet};

use qiang_core::{
    Cents, Claim, Flow, Kind, LimitBy, MAX_UNITS, PaymentId, PoolChange, PoolId, PoolState,
    Reclaim, RefundReason, ReleaseReason, State, Supply, Terms, Timestamp,
};
use qiang_engine::redis::PoolRecord;

use super::Error;

/// Buckets of a sale go by the clocks of several servers, which differ by less than this.
const CLOCKS_DIFFER_MS: u64 = 3_600_000;
/// The most an order can cost, and so the most that can be owed back.
const MOST_CENTS: i64 = Cents::MAX_PRICE.get() * MAX_UNITS as i64;

/// A claim is granted, ordered, paid and revoked.
const MOST_VERSIONS: u32 = 4;

/// A sale of a file.
#[derive(Debug, Default)]
pub struct Sale {
    /// All that is known of it.
    pub record: PoolRecord,
    pub(super) lines: Lines,
}

/// The line of each part of a record, from 1.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub(super) history: Vec<usize>,
    pub(super) claims: Vec<usize>,
    pub(super) refunds: Vec<usize>,
}

/// What is wrong in which line.
type Checked = Result<(), (usize, String)>;

impl Sale {
    /// What must be true of a sale whatever engine it goes to. Nothing happened after `latest`.
    pub(super) fn check(&self, id: PoolId, latest: Timestamp) -> Result<(), Error> {
        self.check_history()
            .and_then(|()| self.check_claims())
            .and_then(|()| self.check_times(latest))
            .and_then(|()| self.check_replacements())
            .and_then(|()| self.check_money())
            .map_err(|(line, what)| Error::Rule { line, sale: id, what })
    }

    /// What the embedded engine asks for besides: all numbers, and no unit too many.
    pub fn fits_embedded(&self) -> Result<(), Error> {
        let sale = self.record.history[0].id;
        self.check_whole()
            .and_then(|()| self.check_stock())
            .and_then(|()| self.check_limits())
            .map_err(|(line, what)| Error::Rule { line, sale, what })
    }

    fn claims(&self) -> impl Iterator<Item = (usize, &Claim)> {
        self.lines.claims.iter().copied().zip(&self.record.claims)
    }

    fn terms(&self) -> &Terms {
        &self.record.history[0].terms
    }

    fn is_cleared(&self) -> bool {
        self.record.history.last().is_some_and(|last| last.change == PoolChange::Cleared)
    }

    fn check_history(&self) -> Checked {
        let mut states = self.lines.history.iter().copied().zip(&self.record.history);
        let Some((line, first)) = states.next() else {
            let lines = self.lines.claims.iter().chain(&self.lines.refunds);
            return Err((lines.min().copied().unwrap_or(1), "it was never opened".into()));
        };
        // Version 1 alone begins a sale; records of an old version know only the last change.
        let begins = first.version == 1;
        if first.version == 0 || (begins && first.change != PoolChange::Opened) {
            return Err((line, "a sale begins with being opened, as version 1".into()));
        }
        if begins && first.total != first.terms.units() {
            let units = first.terms.units();
            return Err((line, format!("its total is {}, its stock {units}", first.total)));
        }
        if begins && first.closed_at.is_some() {
            return Err((line, "it is opened and closed at once".into()));
        }
        let (mut last, mut requests) = (first, HashSet::new());
        for (line, next) in states {
            check_step(last, next).map_err(|what| (line, what))?;
            if let PoolChange::Restocked { request, .. } = &next.change
                && !requests.insert(request)
            {
                return Err((line, format!("request {request} has restocked it before")));
            }
            last = next;
        }
        Ok(())
    }

    fn check_claims(&self) -> Checked {
        let (terms, cleared) = (self.terms(), self.is_cleared());
        let mut before = 0;
        for (line, claim) in self.claims() {
            let number = claim.id.number;
            if cleared {
                return Err((line, format!("it is cleared, and has claim {}", claim.id)));
            }
            if number <= before || number == u32::MAX {
                return Err((line, format!("claim {number} comes after claim {before}")));
            }
            check_claim(claim, terms)
                .map_err(|what| (line, format!("claim {}: {what}", claim.id)))?;
            before = number;
        }
        Ok(())
    }

    /// A claim was granted while the sale was open, and nothing is from the future.
    fn check_times(&self, latest: Timestamp) -> Checked {
        let terms = self.terms();
        let slack = if terms.buckets > 1 { CLOCKS_DIFFER_MS } else { 0 };
        let closed_at = self.record.history.last().and_then(|last| last.closed_at);
        for (line, state) in self.lines.history.iter().zip(&self.record.history) {
            if state.at > latest {
                return Err((*line, "it is from the future".into()));
            }
        }
        for (line, claim) in self.claims() {
            let (id, at) = (claim.id, claim.created_at);
            if claim.changed_at > latest {
                return Err((line, format!("claim {id} is from the future")));
            }
            if at.plus_millis(slack) < terms.opens_at {
                return Err((line, format!("claim {id} was granted before the sale opened")));
            }
            // A late payment buys anew after the end, too.
            let ends = [terms.closes_at, closed_at].into_iter().flatten().min();
            if claim.replaces.is_none() && ends.is_some_and(|end| at > end.plus_millis(slack)) {
                return Err((line, format!("claim {id} was granted after the sale had ended")));
            }
        }
        for (line, refund) in self.lines.refunds.iter().zip(&self.record.refunds) {
            if refund.at > latest {
                return Err((*line, format!("refund {} is from the future", refund.payment)));
            }
        }
        Ok(())
    }

    /// A late payment buys a released claim anew, once.
    fn check_replacements(&self) -> Checked {
        let by_number: HashMap<u32, &Claim> =
            self.record.claims.iter().map(|claim| (claim.id.number, claim)).collect();
        let mut replaced = HashSet::new();
        for (line, claim) in self.claims() {
            let Some(old) = claim.replaces else { continue };
            let known = by_number.get(&old);
            let fits = known.is_some_and(|old| {
                old.state == State::Released && old.user == claim.user && old.has_order()
            });
            let lost = known.is_none() && old <= self.record.lost_through;
            if !(fits || lost) || old >= claim.id.number || !replaced.insert(old) {
                let what = format!("claim {} cannot stand in the place of {old}", claim.id);
                return Err((line, what));
            }
        }
        Ok(())
    }

    /// A payment counts once, and is for an order of this sale.
    fn check_money(&self) -> Checked {
        if self.terms().kind == Kind::Packet {
            let paid = self.claims().find(|(_, claim)| claim.payment.is_some());
            let money = self.lines.refunds.first().copied().or(paid.map(|(line, _)| line));
            return money.map_or(Ok(()), |line| Err((line, "nobody pays for a packet".into())));
        }
        let mut seen: HashSet<&PaymentId> = HashSet::new();
        for (line, claim) in self.claims() {
            if let Some(payment) = &claim.payment
                && !seen.insert(payment)
            {
                return Err((line, format!("payment {payment} has paid another claim")));
            }
        }
        let claims: HashMap<u32, &Claim> =
            self.record.claims.iter().map(|claim| (claim.id.number, claim)).collect();
        for (line, refund) in self.lines.refunds.iter().zip(&self.record.refunds) {
            let (order, payment) = (refund.order, &refund.payment);
            let claim = claims.get(&order.number);
            if claim.is_some_and(|claim| !claim.has_order()) {
                return Err((*line, format!("claim {order} was never ordered, and has a refund")));
            }
            let is_known = claim.is_some()
                || order.number <= self.record.lost_through
                || self.is_cleared()
                || refund.reason == RefundReason::ClaimLost;
            if !is_known {
                return Err((*line, format!("there is no order {order} to refund")));
            }
            if !(1..=MOST_CENTS).contains(&refund.amount.get()) {
                let cents = refund.amount.get();
                return Err((*line, format!("payment {payment} is of {cents} cents")));
            }
            if !seen.insert(payment) {
                return Err((*line, format!("payment {payment} has gone elsewhere already")));
            }
        }
        Ok(())
    }

    fn check_whole(&self) -> Checked {
        let line = self.lines.history[0];
        if self.record.history[0].version != 1 {
            return Err((
                line,
                "its first changes are not in the file: an embedded engine cannot take it over"
                    .into(),
            ));
        }
        let gaps = "its numbers have gaps, because it is spread over buckets or claims of it were \
                    lost once: an embedded engine cannot take it over";
        let mut wanted = 1;
        for (line, claim) in self.claims() {
            if claim.id.number != wanted {
                return Err((line, gaps.into()));
            }
            wanted += 1;
        }
        if self.record.lost_through >= wanted { Err((line, gaps.into())) } else { Ok(()) }
    }

    /// Units and portions that somebody has are there.
    fn check_stock(&self) -> Checked {
        let total = self.record.history.last().map_or(0, |last| u64::from(last.total));
        let (mut taken, mut portions) = (0_u64, HashSet::new());
        for (line, claim) in self.claims().filter(|(_, claim)| claim.state != State::Released) {
            taken += u64::from(claim.quantity);
            if taken > total {
                let what = format!(
                    "with claim {} it is oversold, {taken} units of {total}: an embedded engine \
                     cannot take it over",
                    claim.id
                );
                return Err((line, what));
            }
            if let Some(portion) = claim.portion
                && !portions.insert(portion)
            {
                return Err((line, format!("portion {portion} is taken twice")));
            }
        }
        Ok(())
    }

    /// Nobody has more than the limit, and a request was granted once.
    fn check_limits(&self) -> Checked {
        let terms = self.terms();
        let (mut used, mut requests) = (HashMap::<&str, u64>::new(), HashSet::new());
        for (line, claim) in self.claims() {
            if let Some(request) = &claim.request
                && !requests.insert((&claim.user, request))
            {
                return Err((
                    line,
                    format!("request {request} of {} was granted before", claim.user),
                ));
            }
            let counts = match terms.reclaim {
                Reclaim::Allowed => claim.state != State::Released,
                Reclaim::Never => claim.replaces.is_none(),
            };
            let name = match (terms.limit_by, &claim.identity) {
                (LimitBy::Identity, Some(identity)) => identity.as_str(),
                _ => claim.user.as_str(),
            };
            let used = used.entry(name).or_default();
            *used += if counts { claim.quantity.into() } else { 0 };
            if *used > u64::from(terms.limit_per_user) {
                let limit = terms.limit_per_user;
                return Err((
                    line,
                    format!("with claim {} {name} has {used}, the limit is {limit}", claim.id),
                ));
            }
        }
        Ok(())
    }
}

/// One change of a sale behind another.
fn check_step(last: &PoolState, next: &PoolState) -> Result<(), String> {
    if last.change == PoolChange::Cleared {
        return Err("nothing changes in a sale that was cleared".into());
    }
    if next.version != last.version.wrapping_add(1) {
        return Err(format!("version {} comes after {}", next.version, last.version));
    }
    if next.terms != last.terms {
        return Err("its terms have changed".into());
    }
    let (total, closed_at) = match &next.change {
        PoolChange::Opened => return Err("it is opened twice".into()),
        PoolChange::Restocked { units, .. } => {
            let total = last.total.checked_add(*units).filter(|total| *total <= MAX_UNITS);
            match (&next.terms.supply, total) {
                (Supply::Units(_), Some(total)) if *units > 0 => (total, last.closed_at),
                _ => return Err(format!("{units} units cannot be added")),
            }
        }
        PoolChange::Closed if last.closed_at.is_some() || next.closed_at.is_none() => {
            return Err("it is closed once, at a time".into());
        }
        PoolChange::Closed => (last.total, next.closed_at),
        PoolChange::Cleared => (last.total, last.closed_at),
    };
    if next.total != total {
        return Err(format!("its total is {}, and should be {total}", next.total));
    }
    if next.closed_at != closed_at {
        return Err("it does not say when it was closed".into());
    }
    Ok(())
}

/// One claim by itself.
fn check_claim(claim: &Claim, terms: &Terms) -> Result<(), String> {
    if claim.kind != terms.kind {
        return Err(format!("it is of a {}, its pool is none", claim.kind.as_str()));
    }
    if !(1..=MAX_UNITS).contains(&claim.quantity) {
        return Err(format!("nobody claims {} units", claim.quantity));
    }
    if !(Cents::ZERO..=Cents::MAX_PRICE).contains(&claim.unit_price) {
        return Err(format!("{} cents are no price", claim.unit_price.get()));
    }
    if !(1..=MOST_VERSIONS).contains(&claim.version) {
        return Err(format!("a claim has no version {}", claim.version));
    }
    if claim.changed_at < claim.created_at {
        return Err("it changed before it was there".into());
    }
    let prices = terms.price_steps.iter().map(|step| step.price).chain([terms.price]);
    match (&terms.supply, claim.portion) {
        (Supply::Units(_), None) if !prices.into_iter().any(|price| price == claim.unit_price) => {
            return Err(format!("{} cents are no price of this sale", claim.unit_price.get()));
        }
        (Supply::Units(_), None) => {}
        (Supply::Portions(cut), Some(place))
            if claim.quantity == 1 && cut.get(place as usize) == Some(&claim.unit_price) => {}
        _ => return Err("it does not have a portion of this sale".into()),
    }
    if claim.identity.is_some() != (terms.limit_by == LimitBy::Identity) {
        return Err("an identity goes with limit_by identity, and only with that".into());
    }
    check_state(claim, terms)
}

/// The state, and the times and names that go with it.
fn check_state(claim: &Claim, terms: &Terms) -> Result<(), String> {
    let regranted = claim.replaces.is_some();
    let hold_until = match terms.flow {
        Flow::Hold { hold_ms, .. } if !regranted => Some(claim.created_at.plus_millis(hold_ms)),
        Flow::Hold { .. } | Flow::Order { .. } | Flow::Instant => None,
    };
    if claim.hold_until != hold_until {
        return Err("it is not held until the time its sale says".into());
    }
    let flow_knows = match (claim.state, terms.flow) {
        (State::Held, Flow::Hold { .. }) => claim.pay_by.is_none(),
        (State::Ordered, Flow::Hold { .. } | Flow::Order { .. }) => claim.pay_by.is_some(),
        (State::Released, Flow::Hold { .. }) => true,
        (State::Released, Flow::Order { .. }) => claim.pay_by.is_some() || regranted,
        (State::Paid, _) => true,
        (State::Held | State::Ordered | State::Released, _) => false,
    };
    let costs_nothing = claim.amount() == Cents::ZERO;
    if claim.state == State::Ordered && costs_nothing {
        return Err("an order that costs nothing is paid as it is placed".into());
    }
    let revoked = claim.reason == Some(ReleaseReason::Revoked);
    if !flow_knows || (regranted && claim.state != State::Paid && !revoked) {
        return Err(format!("it cannot be {} in this sale", claim.state.as_str()));
    }
    let is_paid = claim.state == State::Paid;
    let cost = terms.flow != Flow::Instant && claim.amount() > Cents::ZERO;
    let needs_payment = revoked || (is_paid && cost);
    if needs_payment && claim.payment.is_none() {
        return Err("it is paid, and does not say by what".into());
    }
    if claim.payment.is_some() && !(is_paid || revoked) {
        return Err("it has a payment, and is not paid".into());
    }
    if claim.reason.is_some() != (claim.state == State::Released) {
        return Err("a reason goes with released, and only with that".into());
    }
    Ok(())
}
