//! One buyer after the other, each from the claim to wherever it ends.

use std::sync::Arc;
use std::time::Duration;

use qiang_testkit::Random;
use serde_json::{Value, json};

use crate::crowd::Crowd;
use crate::http::{Answer, Question, text};
use crate::sales::{Deadlines, PRICE_CENTS, SHORT_PAY_SECS, Sale};
use crate::tally::{Settled, State};

/// Out of a hundred claims, those of somebody who has bought before.
const COMES_AGAIN: u32 = 25;
/// Out of a hundred, who does what with what they hold, and with what they ordered. The rest does
/// nothing.
const ORDERS: u32 = 65;
const GIVES_UP: u32 = 20;
const PAYS: u32 = 55;
const CANCELS: u32 = 20;
/// Out of a hundred payments: told a second time; sent after the deadline, where that is short.
const TOLD_TWICE: u32 = 30;
const PAYS_LATE: u32 = 25;
/// Buyers who come again are of the last so many.
const REMEMBERED: u32 = 400;
/// Time between two buyers, in milliseconds.
const PAUSE_MS: (u32, u32) = (20, 120);

/// Somebody who buys, and then is somebody else.
pub(crate) struct Buyer {
    crowd: Arc<Crowd>,
    random: Random,
}

/// One claim that is somebody's.
struct Own<'a> {
    sale: &'a Sale,
    user: &'a str,
    id: String,
    quantity: u64,
}

impl Buyer {
    pub(crate) fn new(crowd: Arc<Crowd>, random: Random) -> Self {
        Self { crowd, random }
    }

    /// Buys until the shop closes.
    pub(crate) async fn buy_on(mut self) {
        while !self.crowd.is_closing() {
            if let Some(sale) = self.crowd.any_sale(&mut self.random) {
                self.buy(&sale).await;
            }
            let pause = self.random.between(PAUSE_MS.0, PAUSE_MS.1);
            tokio::time::sleep(Duration::from_millis(pause.into())).await;
        }
    }

    async fn buy(&mut self, sale: &Sale) {
        let number = self.crowd.number();
        let who = if self.random.percent(COMES_AGAIN) {
            number.saturating_sub(self.random.below(REMEMBERED))
        } else {
            number
        };
        let (user, key) = (format!("user-{who}"), format!("key-{number}"));
        let quantity = self.random.between(1, sale.limit.min(2));
        let what = format!("{user} claims {quantity} of {} with {key}", sale.id);
        let body = json!({ "quantity": quantity });
        let claim = || {
            let path = format!("/api/v1/sales/{}/claims", sale.id);
            Question::post(path).by(&user).header("Idempotency-Key", key.as_str()).json(&body)
        };
        let Some(answer) = self.crowd.insist(&mut self.random, &what, claim).await else { return };
        if answer.code() == "no_such_sale" {
            self.crowd.is_missing(sale, &what);
            return;
        }
        if !answer.is_success() {
            self.expect(&what, &answer, &["sold_out", "already_claimed", "over_limit"]);
            return;
        }
        let at = self.crowd.clock.ms();
        let told = self.crowd.tally().granted(&user, &key, &answer.body, at);
        let id = answer.text("claim_id").to_owned();
        let own = Own { sale, user: &user, id, quantity: quantity.into() };
        match told {
            Some(State::Held) => self.go_on_holding(&own).await,
            Some(State::Ordered) => self.go_on_ordered(&own).await,
            _ => {}
        }
    }

    async fn go_on_holding(&mut self, own: &Own<'_>) {
        let dice = self.random.below(100);
        if dice < ORDERS {
            self.crowd.tally().asks(&own.id, |asked| asked.order = true);
            let path = format!("/api/v1/claims/{}/order", own.id);
            if self.change(own, "orders", || Question::post(path.clone())).await
                == Some(State::Ordered)
            {
                self.go_on_ordered(own).await;
            }
        } else if dice < ORDERS + GIVES_UP {
            self.give_up(own).await;
        }
    }

    async fn go_on_ordered(&mut self, own: &Own<'_>) {
        let dice = self.random.below(100);
        if dice < PAYS {
            let late = own.sale.deadlines == Deadlines::Short && self.random.percent(PAYS_LATE);
            if late {
                let after = Duration::from_secs(u64::from(SHORT_PAY_SECS) + 1);
                tokio::time::sleep(after).await;
            }
            self.pay(own).await;
        } else if dice < PAYS + CANCELS {
            if self.random.percent(50) {
                self.give_up(own).await;
            } else {
                self.crowd.tally().asks(&own.id, |asked| asked.release = true);
                let path = format!("/api/v1/orders/{}/cancel", own.id);
                self.change(own, "cancels", || Question::post(path.clone())).await;
            }
        }
    }

    async fn give_up(&mut self, own: &Own<'_>) {
        self.crowd.tally().asks(&own.id, |asked| asked.release = true);
        let path = format!("/api/v1/claims/{}", own.id);
        self.change(own, "gives up", || Question::new("DELETE", path.clone())).await;
    }

    /// Asks for a change of a claim, and notes where it stands.
    async fn change(
        &mut self,
        own: &Own<'_>,
        verb: &str,
        question: impl Fn() -> Question,
    ) -> Option<State> {
        let what = format!("{} {verb} {}", own.user, own.id);
        let asked = || question().by(own.user);
        let answer = self.crowd.insist(&mut self.random, &what, asked).await?;
        let now = if answer.is_success() {
            // An order that was cancelled says so in its own words.
            State::read(answer.text("state")).or(order_state(&answer.body))
        } else {
            if ["no_such_claim", "no_such_order"].contains(&answer.code()) {
                self.crowd.tally().is_missing(&own.id, &what);
            } else {
                self.expect(&what, &answer, &["released"]);
            }
            State::read(answer.code())
        };
        if let Some(now) = now {
            let at = self.crowd.clock.ms();
            self.crowd.tally().told(&own.id, now, at);
        }
        now
    }

    async fn pay(&mut self, own: &Own<'_>) {
        let amount = own.quantity * PRICE_CENTS;
        let payment = format!("pay-{}-{}", own.id, own.user);
        self.crowd.tally().sends(&payment, &own.id, own.user, amount);
        let times = if self.random.percent(TOLD_TWICE) { 2 } else { 1 };
        for _ in 0..times {
            let what = format!("{} pays {}", own.user, own.id);
            let body = json!({ "payment_id": payment, "order_id": own.id, "amount_cents": amount });
            let told = || Question::callback(&body);
            let Some(answer) = self.crowd.insist(&mut self.random, &what, told).await else {
                return;
            };
            self.settled(own, &payment, &answer);
        }
    }

    fn settled(&self, own: &Own<'_>, payment: &str, answer: &Answer) {
        let at = self.crowd.clock.ms();
        let settled = read_settled(answer);
        let mut tally = self.crowd.tally();
        tally.settled(payment, settled.clone(), at);
        let Settled::Order(order) = settled else { return };
        let view = &answer.body["order"];
        if text(view, "user_id") != own.user {
            tally.complain(format!("{} paid {}, and it paid: {view}", own.user, own.id));
        } else if order == own.id {
            tally.told(&order, State::Paid, at);
        } else {
            // Bought anew, in place of the claim that ran out.
            tally.told(&own.id, State::Released, at);
            let claim = json!({ "claim_id": order, "sale_id": own.sale.id, "state": "paid",
                "user_id": own.user, "quantity": own.quantity });
            tally.granted(own.user, "", &claim, at);
        }
    }

    /// A refusal must be one of those that can be.
    fn expect(&self, what: &str, answer: &Answer, codes: &[&str]) {
        if !codes.contains(&answer.code()) {
            self.crowd.tally().complain(format!("{what}: {} {}", answer.status, answer.body));
        }
    }
}

/// What became of a payment.
pub(crate) fn read_settled(answer: &Answer) -> Settled {
    if !answer.is_success() {
        return Settled::Refused(answer.code().to_owned());
    }
    match answer.text("outcome") {
        "paid" | "regranted" => Settled::Order(text(&answer.body["order"], "order_id").to_owned()),
        _ => Settled::Refund(text(&answer.body["refund"], "reason").to_owned()),
    }
}

/// Where a claim stands, by the status of its order.
pub(crate) fn order_state(order: &Value) -> Option<State> {
    match text(order, "status") {
        "PENDING" => Some(State::Ordered),
        "PAID" => Some(State::Paid),
        "CANCELLED" => Some(State::Released),
        _ => None,
    }
}
