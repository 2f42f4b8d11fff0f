//! What engine and records say at the end, read over HTTP: every claim and every sale by the engine,
//! every buyer's list of orders by the records.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::task::JoinSet;

use crate::buyer::order_state;
use crate::http::{Answer, Question, text};
use crate::tally::{State, Tally};

/// Questions under way at the same time.
const AT_ONCE: usize = 24;
/// How often a question is asked that gets no answer; all faults are over.
const ATTEMPTS: u32 = 20;
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// Orders on a page; nobody has more.
const PAGE: usize = 50;

/// A claim, as the engine has it.
#[derive(Debug, Clone)]
pub(crate) struct ClaimSeen {
    pub(crate) user: String,
    pub(crate) state: State,
    pub(crate) quantity: u32,
    pub(crate) has_order: bool,
}

impl ClaimSeen {
    pub(crate) fn is_taken(&self) -> bool {
        self.state != State::Released
    }
}

/// A sale, as the engine counts it.
#[derive(Debug, Clone)]
pub(crate) struct SaleSeen {
    stock: u64,
    available: u64,
    taken: u64,
}

impl SaleSeen {
    /// Nothing is there twice, and nothing is taken that nobody has.
    pub(crate) fn adds_up(&self, stock: u32, taken_by_buyers: u32) -> bool {
        self.stock == u64::from(stock)
            && self.available + self.taken == self.stock
            && self.taken == u64::from(taken_by_buyers)
    }
}

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) claims: BTreeMap<String, ClaimSeen>,
    pub(crate) sales: BTreeMap<String, SaleSeen>,
    /// Orders in lists, and where they stand.
    pub(crate) orders: BTreeMap<String, State>,
    /// Units of orders that are not cancelled, by sale, in lists.
    pub(crate) recorded: BTreeMap<String, u32>,
}

/// Reads everything the tally knows of.
pub(crate) async fn read(doors: &[SocketAddr], tally: &Tally) -> Seen {
    let mut seen = Seen::default();
    let claims = tally.claims.keys().map(|id| {
        let question = Question::get(format!("/api/v1/claims/{id}")).by_admin();
        (id.clone(), question)
    });
    for (id, answer) in ask_all(doors, claims).await {
        if let Some(answer) = answer.filter(Answer::is_success) {
            seen.take_claim(&id, &answer.body);
        }
    }
    let sales = tally.sales.keys().map(|id| {
        let question = Question::get(format!("/api/v1/sales/{id}"));
        (id.clone(), question)
    });
    for (id, answer) in ask_all(doors, sales).await {
        if let Some(answer) = answer.filter(Answer::is_success) {
            seen.take_sale(&id, &answer.body);
        }
    }
    let users: BTreeSet<&String> = tally.claims.values().map(|claim| &claim.user).collect();
    let lists = users.into_iter().map(|user| {
        let question = Question::get(format!("/api/v1/orders?limit={PAGE}")).by(user);
        (user.clone(), question)
    });
    for (_, answer) in ask_all(doors, lists).await {
        let orders = answer.and_then(|answer| answer.body["orders"].as_array().cloned());
        for order in orders.unwrap_or_default() {
            seen.list(&order);
        }
    }
    seen
}

impl Seen {
    pub(super) fn take_claim(&mut self, id: &str, view: &Value) {
        if let Some(view) = read_claim(view) {
            self.claims.insert(id.to_owned(), view);
        }
    }

    pub(super) fn take_sale(&mut self, id: &str, view: &Value) {
        if let Some(view) = read_sale(view) {
            self.sales.insert(id.to_owned(), view);
        }
    }

    pub(super) fn list(&mut self, order: &Value) {
        let Some(state) = order_state(order) else { return };
        self.orders.insert(text(order, "order_id").to_owned(), state);
        let units = order["items"][0]["quantity"].as_u64().unwrap_or_default();
        if state != State::Released {
            let of_sale = self.recorded.entry(text(order, "sale_id").to_owned()).or_default();
            *of_sale += u32::try_from(units).unwrap_or(u32::MAX);
        }
    }
}

fn read_claim(view: &Value) -> Option<ClaimSeen> {
    Some(ClaimSeen {
        user: text(view, "user_id").to_owned(),
        state: State::read(text(view, "state"))?,
        quantity: u32::try_from(view["quantity"].as_u64()?).ok()?,
        has_order: view["order_id"].is_string(),
    })
}

fn read_sale(view: &Value) -> Option<SaleSeen> {
    let units = |name: &str| view[name].as_u64();
    let taken = units("held")? + units("ordered")? + units("paid")?;
    Some(SaleSeen { stock: units("stock")?, available: units("available")?, taken })
}

/// Asks many questions, some at a time, each at another door, until each is answered.
pub(crate) async fn ask_all(
    doors: &[SocketAddr],
    questions: impl Iterator<Item = (String, Question)>,
) -> Vec<(String, Option<Answer>)> {
    let mut answers = Vec::new();
    let mut under_way = JoinSet::new();
    for (place, (id, question)) in questions.enumerate() {
        if under_way.len() >= AT_ONCE {
            take_one(&mut under_way, &mut answers).await;
        }
        under_way.spawn(ask(doors.to_vec(), place, id, question));
    }
    while !under_way.is_empty() {
        take_one(&mut under_way, &mut answers).await;
    }
    answers
}

async fn take_one<T: 'static>(under_way: &mut JoinSet<T>, answers: &mut Vec<T>) {
    if let Some(Ok(answer)) = under_way.join_next().await {
        answers.push(answer);
    }
}

async fn ask(
    doors: Vec<SocketAddr>,
    place: usize,
    id: String,
    question: Question,
) -> (String, Option<Answer>) {
    for attempt in 0..ATTEMPTS {
        let door = doors[(place + attempt as usize) % doors.len()];
        if let Some(answer) = question.ask(door).await.filter(Answer::is_definite) {
            return (id, Some(answer));
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
    (id, None)
}
