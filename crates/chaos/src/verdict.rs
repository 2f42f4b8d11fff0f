//! Whether the shop kept its word: what buyers were told, held against what engine, records and
//! audit say when all faults are over.

use std::collections::BTreeMap;

use crate::crowd::Crowd;
use crate::figures::Figures;
use crate::tally::{Claim, Tally};
use crate::world::{Notes, World};

mod books;
mod money;

/// Answers may have been on their way when it was lost.
const ON_ITS_WAY_MS: u64 = 1_000;
/// How many of the things that are wrong are shown.
const MOST_SHOWN: usize = 12;

/// The last word of a round.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) wrong: Vec<String>,
    lost: usize,
    counted: Figures,
}

/// What may be lost.
pub(crate) struct Excuses {
    losses: Vec<(u64, u64)>,
    loss_said: bool,
}

impl Excuses {
    fn of(notes: &Notes) -> Self {
        Self { losses: notes.losses.clone(), loss_said: notes.loss_said }
    }

    /// Whether an answer that was given then may be gone.
    pub(crate) fn excuse(&self, told_at: u64) -> bool {
        let covers = |(from, to): &(u64, u64)| (*from..to + ON_ITS_WAY_MS).contains(&told_at);
        self.loss_said && self.losses.iter().any(covers)
    }
}

impl Verdict {
    /// Asks everybody. All faults are over and all buyers have gone.
    pub(crate) fn reach(world: &World, crowd: &Crowd) -> Self {
        let notes = world.notes().clone();
        let excuses = Excuses::of(&notes);
        let mut verdict = Self { wrong: notes.wrong, ..Self::default() };
        let tally = std::mem::take(&mut *crowd.tally());
        verdict.counted = Figures {
            rounds: 1,
            claims: tally.claims.len(),
            payments: tally.payments.len(),
            unknown: tally.unknown,
            silence_ms: tally.silence_ms,
            repairs: notes.repairs,
            ..Figures::default()
        };
        for wrong in &tally.wrong {
            verdict.blame(&excuses, wrong.against, wrong.what.clone());
        }
        for what in &tally.unanswered {
            verdict.wrong.push(format!("never answered: {what}"));
        }
        let seen = world.runtime.block_on(books::read(&crowd.doors, &tally));
        verdict.judge_claims(&tally, &seen, &excuses);
        verdict.judge_sales(&tally, &seen, &excuses);
        world.runtime.block_on(money::judge(&mut verdict, &crowd.doors, &tally, &seen, &excuses));
        let audit = world.shop.audit(&[]);
        if audit.code != Some(0) {
            verdict.wrong.push(format!("the audit ends with {:?}: {}", audit.code, audit.stderr));
            let named = audit.stderr.lines().filter_map(|line| line.split_once('\t'));
            for (id, what) in named {
                let (told, seen) = (tally.claims.get(id), seen.claims.get(id));
                verdict.wrong.push(format!("{id}: {what}; told: {told:?}, now: {seen:?}"));
            }
        }
        verdict
    }

    pub(crate) fn is_good(&self) -> bool {
        self.wrong.is_empty()
    }

    /// What is wrong, a line each.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.wrong.iter().take(MOST_SHOWN).cloned().collect();
        if self.wrong.len() > MOST_SHOWN {
            lines.push(format!("… and {} more", self.wrong.len() - MOST_SHOWN));
        }
        lines
    }

    /// What was counted, with what only the round knows.
    pub(crate) fn figures(&self, faults: usize, seconds: u64) -> Figures {
        Figures { faults, seconds, lost: self.lost, wrong: self.wrong.len(), ..self.counted }
    }

    /// Something is not as it was told at a time: lost, if that may be, and wrong otherwise.
    fn blame(&mut self, excuses: &Excuses, told_at: Option<u64>, what: String) {
        if told_at.is_some_and(|at| excuses.excuse(at)) {
            self.lost += 1;
        } else {
            self.wrong.push(what);
        }
    }

    /// Every claim is there, its owner's, in the state that was told or a later one; and no buyer
    /// has more than the limit.
    fn judge_claims(&mut self, tally: &Tally, seen: &books::Seen, excuses: &Excuses) {
        let mut has: BTreeMap<(&str, &str), u32> = BTreeMap::new();
        for (id, claim) in &tally.claims {
            let told_at = Some(claim.told_at);
            let Some(view) = seen.claims.get(id) else {
                self.blame(excuses, told_at, format!("claim {id} is gone: {claim:?}"));
                continue;
            };
            if view.user != claim.user {
                let what =
                    format!("claim {id} of {} is {}'s now: {claim:?}", claim.user, view.user);
                self.wrong.push(what);
                continue;
            }
            if !claim.may_be(view.state) || view.quantity != claim.quantity {
                self.blame(excuses, told_at, format!("claim {id} is {view:?}, told: {claim:?}"));
            }
            if view.is_taken() {
                *has.entry((&claim.sale, &claim.user)).or_default() += view.quantity;
            }
        }
        for ((sale, user), units) in has {
            let limit = tally.sales[sale].limit;
            if units > limit {
                self.wrong.push(format!("{user} has {units} of {limit} in sale {sale}"));
            }
        }
    }

    /// No sale has sold more than it had: by what was told, by the engine, by the records.
    fn judge_sales(&mut self, tally: &Tally, seen: &books::Seen, excuses: &Excuses) {
        for (id, sale) in &tally.sales {
            let claims = || tally.claims.iter().filter(|(_, claim)| claim.sale == *id);
            let told: u32 = claims()
                .filter(|(id, claim)| claim.is_surely_taken() && seen.claims.contains_key(*id))
                .map(|(_, claim)| claim.quantity)
                .sum();
            let taken: u32 = claims()
                .filter_map(|(id, _)| seen.claims.get(id))
                .filter(|view| view.is_taken())
                .map(|view| view.quantity)
                .sum();
            let recorded = seen.recorded.get(id).copied().unwrap_or_default();
            for (who, units) in [("buyers", told), ("engine", taken), ("records", recorded)] {
                if units > sale.stock {
                    let stock = sale.stock;
                    self.wrong.push(format!("{who}: {units} of {stock} sold in sale {id}"));
                }
            }
            match seen.sales.get(id) {
                None => {
                    let what = format!("sale {id} cannot be read: {sale:?}");
                    self.blame(excuses, Some(sale.opened_at), what);
                }
                Some(view) if !view.adds_up(sale.stock, taken) => {
                    let what = format!("sale {id}: {view:?}, yet buyers have {taken} units");
                    self.wrong.push(what);
                }
                Some(_) => {}
            }
        }
        self.judge_records(tally, seen);
    }

    /// The lists of buyers show what the engine has.
    fn judge_records(&mut self, tally: &Tally, seen: &books::Seen) {
        let owned = |(id, claim): (&String, &Claim)| {
            let view = seen.claims.get(id).filter(|view| view.user == claim.user)?;
            let listed = seen.orders.get(id).copied();
            let right = match listed {
                Some(state) => state == view.state,
                // What was never ordered is in no list.
                None => !view.has_order,
            };
            (!right).then(|| format!("claim {id} is {view:?}, but listed as {listed:?}"))
        };
        let wrong: Vec<String> = tally.claims.iter().filter_map(owned).collect();
        self.wrong.extend(wrong);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::books::{ClaimSeen, Seen};
    use super::{Excuses, ON_ITS_WAY_MS, Verdict};
    use crate::sales::{self, Sale};
    use crate::tally::{State, Tally};

    /// Two buyers, one with a paid unit and one with two ordered ones, and books that say the same.
    fn sold() -> (Tally, Seen) {
        let mut tally = Tally::default();
        let mut seen = Seen::default();
        let sale = sales::generation(0)[2].clone();
        let id = sale.id.clone();
        for (user, number, units, state, status) in
            [("a", 1, 1, "paid", "PAID"), ("b", 2, 2, "ordered", "PENDING")]
        {
            let claim = format!("{id}-{number}");
            let view = json!({ "claim_id": claim, "sale_id": id, "user_id": user, "state": state,
                "quantity": units, "order_id": claim });
            tally.sales.entry(id.clone()).or_insert(sale.clone());
            tally.granted(user, user, &view, 7);
            seen.take_claim(&claim, &view);
            seen.list(&json!({ "order_id": claim, "sale_id": id, "status": status,
                "items": [{ "quantity": units }] }));
        }
        let view = json!({ "stock": sale.stock, "available": sale.stock - 3, "held": 0,
            "ordered": 2, "paid": 1 });
        seen.take_sale(&id, &view);
        (tally, seen)
    }

    fn wrong(change: impl FnOnce(&mut Tally, &mut Seen)) -> Vec<String> {
        let (mut tally, mut seen) = sold();
        change(&mut tally, &mut seen);
        let nothing = Excuses { losses: Vec::new(), loss_said: false };
        let mut verdict = Verdict::default();
        verdict.judge_claims(&tally, &seen, &nothing);
        verdict.judge_sales(&tally, &seen, &nothing);
        verdict.wrong
    }

    #[test]
    fn books_that_agree_are_good_and_each_difference_is_found() {
        assert_eq!(wrong(|_, _| {}), Vec::<String>::new());
        let is_found = |words: &str, change: fn(&mut Tally, &mut Seen)| {
            let wrong = wrong(change);
            assert!(wrong.iter().any(|what| what.contains(words)), "{words}: {wrong:?}");
        };
        is_found("is gone", |_, seen| drop(seen.claims.remove("12-1")));
        is_found("is b's now", |_, seen| "b".clone_into(&mut claim(seen, "12-1").user));
        is_found("told: ", |_, seen| claim(seen, "12-1").state = State::Ordered);
        is_found("told: ", |_, seen| claim(seen, "12-2").quantity = 1);
        is_found("listed as", |_, seen| seen.orders.clear());
        is_found("b has 2 of 1", |tally, _| sale(tally).limit = 1);
        is_found("buyers: 3 of 2", |tally, _| sale(tally).stock = 2);
        is_found("engine: 3 of 2", |tally, _| sale(tally).stock = 2);
        is_found("records: 3 of 2", |tally, _| sale(tally).stock = 2);
        is_found("yet buyers have 1 units", |tally, _| drop(tally.claims.remove("12-2")));
        is_found("cannot be read", |_, seen| seen.sales.clear());
    }

    fn claim<'a>(seen: &'a mut Seen, id: &str) -> &'a mut ClaimSeen {
        seen.claims.get_mut(id).expect("sold")
    }

    fn sale(tally: &mut Tally) -> &mut Sale {
        tally.sales.get_mut("12").expect("sold in")
    }

    #[test]
    fn only_what_was_told_about_the_time_of_a_loss_that_was_said_is_excused() {
        let said = Excuses { losses: vec![(50, 60), (5_000, 5_005)], loss_said: true };
        assert!(said.excuse(50) && said.excuse(60) && said.excuse(5_004));
        assert!(!said.excuse(49) && !said.excuse(60 + ON_ITS_WAY_MS));
        let unsaid = Excuses { loss_said: false, ..said };
        assert!(!unsaid.excuse(50));
    }
}
