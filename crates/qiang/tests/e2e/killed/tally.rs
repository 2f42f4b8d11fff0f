//! What the crowd knows, held against what the server says after it was killed.

use std::collections::BTreeMap;

use serde_json::Value;

use super::load::{Asked, Market, Sale, State, Step, user_id};

/// Every claim that exists, as far as anybody was told.
#[derive(Default)]
pub(super) struct Tally {
    sales: Vec<Sale>,
    claims: Vec<Asked>,
    /// What was asked for since the last kill but one, and not looked at since.
    fresh: Vec<Asked>,
    /// Sales that were opened since then.
    touched: Vec<Sale>,
    unanswered: usize,
    unanswered_and_done: usize,
}

impl Tally {
    pub(super) fn opened(&mut self, sales: Vec<Sale>) {
        self.touched = sales;
    }

    pub(super) fn asked(&mut self, claims: Vec<Asked>) {
        self.fresh.extend(claims);
    }

    /// Asks again for everything that was not answered, holds the rest against the server's word,
    /// and counts every unit of the round's sales.
    pub(super) async fn settle(&mut self, market: &mut Market) {
        let report = market.admin.get("/admin/audit").await.ok(200);
        assert_eq!(report["ok"], true, "{report:#}");
        for mut asked in std::mem::take(&mut self.fresh) {
            if asked.told.is_none() {
                self.unanswered += 1;
                asked.told = self.ask_again(market, &asked).await;
            }
            let Some((id, told)) = asked.told.clone() else { continue };
            let state = look(market, &asked, &id).await;
            match asked.open.take() {
                None => assert_eq!(state, told, "{id} was acknowledged as {told:?}"),
                Some(step) => {
                    let done = step.result();
                    assert!(
                        [told, done].contains(&state),
                        "{id}: {told:?} and {step:?}, {state:?}"
                    );
                    self.unanswered += 1;
                    self.unanswered_and_done += usize::from(state == done);
                    self.finish(market, &asked, step, state).await;
                }
            }
            let state = look(market, &asked, &id).await;
            asked.told = Some((id, state));
            self.claims.push(asked);
        }
        for sale in std::mem::take(&mut self.touched) {
            self.count(market, &sale).await;
            self.sales.push(sale);
        }
    }

    /// Everything that was ever acknowledged is still what it was.
    pub(super) async fn check_all(&self, market: &mut Market) {
        for asked in &self.claims {
            let (id, told) = asked.told.as_ref().expect("settled");
            assert_eq!(look(market, asked, id).await, *told, "{id}");
        }
        for sale in &self.sales {
            self.count(market, sale).await;
        }
        let report = market.admin.get("/admin/audit").await.ok(200);
        assert_eq!(
            (&report["ok"], report["claims"].as_u64()),
            (&Value::Bool(true), Some(self.claims.len() as u64))
        );
    }

    pub(super) fn summary(&self) -> String {
        format!(
            "{} claims in {} sales; {} requests without an answer, {} of which had been carried out",
            self.claims.len(),
            self.sales.len(),
            self.unanswered,
            self.unanswered_and_done,
        )
    }

    /// A claim that was asked for and not answered, asked for again with its key: one claim comes
    /// of it, however often it is asked, or none.
    async fn ask_again(&mut self, market: &mut Market, asked: &Asked) -> Option<(String, State)> {
        let first = market.claim(asked).await.expect("an answer");
        let again = market.claim(asked).await.expect("an answer");
        let (one, two): (Value, Value) = (first.json().expect("JSON"), again.json().expect("JSON"));
        if !first.status.is_success() {
            assert_eq!((first.status, &one["code"]), (again.status, &two["code"]));
            return None;
        }
        self.unanswered_and_done += usize::from(first.status == 200);
        assert_eq!(again.status, 200, "{two}");
        assert_eq!(one["claim_id"], two["claim_id"]);
        Some((one["claim_id"].as_str().expect("an id").to_owned(), State::read(&one)))
    }

    /// A step that was not answered, taken again: it happens once.
    async fn finish(&self, market: &mut Market, asked: &Asked, step: Step, state: State) {
        let answer = market.step(asked, step).await.expect("an answer");
        assert!(answer.status.is_success(), "{step:?} in {state:?}: {:?}", answer.body);
        let answer: Value = answer.json().expect("JSON");
        if step.result() == State::Paid {
            assert_eq!(answer["outcome"], "paid", "{answer}");
            assert_eq!(answer["replayed"], state == State::Paid, "{answer}");
        }
    }

    /// The server's tally of a sale is what everybody was told, unit by unit.
    async fn count(&self, market: &mut Market, sale: &Sale) {
        let view = market.admin.get(&format!("/sales/{}", sale.id)).await.ok(200);
        let units = |wanted: State| -> u32 {
            let claims = self.claims.iter().filter(|claim| claim.sale == sale.id);
            claims.filter(|claim| state_of(claim) == wanted).map(|claim| claim.quantity).sum()
        };
        let taken = units(State::Held) + units(State::Ordered) + units(State::Paid);
        assert!(taken <= sale.stock, "{} of {} units of {} were sold", taken, sale.stock, sale.id);
        for (name, expected) in [
            ("stock", sale.stock),
            ("available", sale.stock - taken),
            ("held", units(State::Held)),
            ("ordered", units(State::Ordered)),
            ("paid", units(State::Paid)),
        ] {
            assert_eq!(view[name], expected, "{name} of {}: {view}", sale.id);
        }
        let mut users = BTreeMap::<u32, u32>::new();
        for claim in self.claims.iter().filter(|claim| claim.sale == sale.id) {
            if state_of(claim) != State::Released {
                *users.entry(claim.user).or_default() += claim.quantity;
            }
        }
        for (user, had) in users {
            assert!(had <= sale.limit, "user {user} has {had} of {}", sale.limit);
        }
    }
}

fn state_of(claim: &Asked) -> State {
    claim.told.as_ref().map(|(_, state)| *state).expect("settled")
}

async fn look(market: &mut Market, asked: &Asked, id: &str) -> State {
    let claim = market.admin.get(&format!("/claims/{id}")).await.ok(200);
    assert_eq!(claim["sale_id"], asked.sale);
    assert_eq!(claim["user_id"], user_id(asked.user));
    assert_eq!(claim["quantity"], asked.quantity);
    State::read(&claim)
}
