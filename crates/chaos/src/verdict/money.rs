//! Every payment that was acknowledged is on its order, or owed back, and nobody's money is on
//! somebody else's order.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde_json::json;

use super::books::{Seen, ask_all};
use super::{Excuses, Verdict};
use crate::buyer::read_settled;
use crate::http::{Question, text};
use crate::sales::Deadlines;
use crate::tally::{Payment, Settled, State, Tally};

/// Pages of refunds that are read at the most, of a hundred each.
const PAGES: usize = 500;

/// Tells every payment once more: the answer must be the one that was given. And reads what is owed
/// back.
pub(super) async fn judge(
    verdict: &mut Verdict,
    doors: &[SocketAddr],
    tally: &Tally,
    seen: &Seen,
    excuses: &Excuses,
) {
    for (id, payment) in &tally.payments {
        judge_outcome(verdict, tally, seen, excuses, (id, payment));
    }
    let owed = refunds(verdict, doors[0]).await;
    for (id, payment) in &tally.payments {
        if matches!(payment.settled, Some(Settled::Refund(_))) && !owed.contains(id) {
            let what = format!("payment {id} is owed back, yet not listed: {payment:?}");
            verdict.blame(excuses, Some(payment.told_at), what);
        }
    }
    for id in owed.iter().filter(|id| !tally.payments.contains_key(*id)) {
        verdict.wrong.push(format!("payment {id} is owed back, and nobody sent it"));
    }
    let again = tally.payments.iter().filter(|(_, payment)| payment.settled.is_some());
    let again = again.map(|(id, payment)| {
        let Payment { order, amount_cents, .. } = payment;
        let body = json!({ "payment_id": id, "order_id": order, "amount_cents": amount_cents });
        (id.clone(), Question::callback(&body))
    });
    for (id, answer) in ask_all(doors, again).await {
        let payment = &tally.payments[&id];
        let Some(answer) = answer else {
            verdict.wrong.push(format!("payment {id} told again gets no answer"));
            continue;
        };
        let pays = text(&answer.body["order"], "user_id");
        if !pays.is_empty() && pays != payment.user {
            verdict.wrong.push(format!("payment {id} pays for {pays}: {payment:?}"));
        }
        let now = read_settled(&answer);
        if Some(&now) != payment.settled.as_ref() {
            let what = format!("payment {id} told again is {now:?}: {payment:?}");
            verdict.blame(excuses, Some(payment.told_at), what);
        }
    }
}

/// The outcome is one that can be, and the order shows it.
fn judge_outcome(
    verdict: &mut Verdict,
    tally: &Tally,
    seen: &Seen,
    excuses: &Excuses,
    (id, payment): (&str, &Payment),
) {
    let claim = tally.claims.get(&payment.order);
    match &payment.settled {
        Some(Settled::Order(order)) => {
            let paid = seen
                .claims
                .get(order)
                .is_some_and(|view| view.state == State::Paid && view.user == payment.user);
            if !paid {
                let what = format!("payment {id} is not on order {order}: {payment:?}");
                verdict.blame(excuses, Some(payment.told_at), what);
            }
        }
        Some(Settled::Refund(_)) if claim.is_some_and(|c| c.deadlines == Deadlines::Short) => {}
        Some(settled @ (Settled::Refund(_) | Settled::Refused(_))) => {
            // Nobody was late: only an order that was lost can turn money away.
            let ordered_at = claim.map(|claim| claim.told_at);
            verdict.blame(
                excuses,
                ordered_at,
                format!("payment {id} was {settled:?}: {payment:?}"),
            );
        }
        // Never answered, which is said elsewhere.
        None => {}
    }
}

/// The ids of all payments that are owed back.
async fn refunds(verdict: &mut Verdict, door: SocketAddr) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    let mut after = String::new();
    for _ in 0..PAGES {
        let path = format!("/api/v1/admin/refunds?limit=100{after}");
        let question = Question::get(path).by_admin();
        let answers = ask_all(&[door], std::iter::once((String::new(), question))).await;
        let answer = answers.into_iter().next().and_then(|(_, answer)| answer);
        let Some(answer) = answer.filter(crate::http::Answer::is_success) else {
            verdict.wrong.push("refunds cannot be listed".to_owned());
            return ids;
        };
        let page = answer.body["refunds"].as_array().cloned().unwrap_or_default();
        ids.extend(page.iter().map(|refund| text(refund, "payment_id").to_owned()));
        match answer.body["next_after"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    ids
}
