//! A crowd that claims, orders, pays and gives up until the server is gone, and remembers what
//! it was told.

use std::net::SocketAddr;
use std::path::Path;

use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use bytes::Bytes;
use qiang::client::{Client, Error, Response};
use qiang_app::secrets::Secrets;
use qiang_app::token::{Key, Principal, Role};
use qiang_core::UserId;
use qiang_engine::{Clock as _, SystemClock};
use qiang_sales::signature;
use qiang_testkit::Random;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::person::Person;

const USERS: u32 = 150;
const PRICE_CENTS: u32 = 100;
const TOKEN_TTL_MS: u64 = 3_600_000;

/// The sales of a round: flow, stock, limit.
const SALES: [(&str, u32, u32); 3] = [("hold", 120, 2), ("order", 150, 1), ("instant", 60, 3)];

/// A sale the crowd runs at.
#[derive(Debug, Clone)]
pub(super) struct Sale {
    pub(super) id: String,
    pub(super) stock: u32,
    pub(super) limit: u32,
}

/// A claim somebody asked for.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) sale: String,
    pub(super) user: u32,
    pub(super) key: String,
    pub(super) quantity: u32,
    /// The claim and its state, as last acknowledged; `None` if no answer came.
    pub(super) told: Option<(String, State)>,
    /// What was asked for after that and not answered.
    pub(super) open: Option<Step>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Held,
    Ordered,
    Paid,
    Released,
}

/// What can be done with a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Order,
    Pay,
    TellPayment,
    Cancel,
    GiveUp,
}

/// The server as a crowd sees it, and the keys to play everybody's part.
pub(super) struct Market {
    address: SocketAddr,
    users: Vec<HeaderValue>,
    callbacks: signature::Key,
    sales: Vec<Sale>,
    answered: mpsc::UnboundedSender<()>,
    pub(super) admin: Person,
    client: Client,
}

impl Market {
    pub(super) async fn enter(
        address: SocketAddr,
        data: &Path,
        answered: mpsc::UnboundedSender<()>,
    ) -> Self {
        let secrets = Secrets::load_or_create(data).expect("made at the first start");
        let (key, now) = (Key::new(&secrets.jwt_key), SystemClock.now());
        let token = |user: &str, role| {
            let user = UserId::new(user).expect("an id");
            let expires_at = now.plus_millis(TOKEN_TTL_MS);
            key.mint(&Principal { user, role, identity: None, expires_at }, now)
        };
        let user = |number| {
            HeaderValue::from_str(&token(&user_id(number), Role::Buyer)).expect("a header")
        };
        Self {
            address,
            users: (0..USERS).map(user).collect(),
            callbacks: signature::Key::new(&secrets.callback_key),
            sales: Vec::new(),
            answered,
            admin: Person::arrive(address, Some(token("boss", Role::Admin))).await,
            client: Client::connect(address).await.expect("it listens"),
        }
    }

    /// Opens the sales of a round.
    pub(super) async fn open_sales(&mut self) -> Vec<Sale> {
        for (flow, stock, limit) in SALES {
            let body = json!({
                "title": flow, "sku": flow, "stock": stock, "limit_per_user": limit,
                "price_cents": PRICE_CENTS, "flow": flow,
            });
            let sale = self.admin.post("/sales", body).await.ok(201);
            let id = sale["id"].as_str().expect("an id").to_owned();
            self.sales.push(Sale { id, stock, limit });
        }
        self.sales.clone()
    }

    /// Asks for a claim, again or for the first time.
    pub(super) async fn claim(&mut self, asked: &Asked) -> Result<Response, Error> {
        claim(&mut self.client, &self.users, asked).await
    }

    /// Does something with a claim, again or for the first time.
    pub(super) async fn step(&mut self, asked: &Asked, step: Step) -> Result<Response, Error> {
        take_step(&mut self.client, &self.users, &self.callbacks, asked, step).await
    }
}

impl State {
    pub(super) fn read(claim: &Value) -> Self {
        match claim["state"].as_str() {
            Some("held") => Self::Held,
            Some("ordered") => Self::Ordered,
            Some("paid") => Self::Paid,
            Some("released") => Self::Released,
            other => panic!("{other:?} is no state"),
        }
    }
}

impl Step {
    /// What a claim is after it.
    pub(super) fn result(self) -> State {
        match self {
            Self::Order => State::Ordered,
            Self::Pay | Self::TellPayment => State::Paid,
            Self::Cancel | Self::GiveUp => State::Released,
        }
    }

    /// Something that makes sense in a state.
    fn pick(state: State, random: &mut Random) -> Option<Self> {
        match state {
            State::Held => Some(*random.pick(&[Self::Order, Self::Order, Self::GiveUp])),
            State::Ordered => {
                let all = [Self::Pay, Self::TellPayment, Self::Pay, Self::Cancel, Self::GiveUp];
                Some(*random.pick(&all))
            }
            State::Paid | State::Released => None,
        }
    }
}

impl Asked {
    fn id(&self) -> &str {
        self.told.as_ref().map(|(id, _)| id.as_str()).expect("a claim that was granted")
    }
}

pub(super) fn user_id(number: u32) -> String {
    format!("user-{number}")
}

/// One member of the crowd, on one connection, until that breaks. Its claims are its own: nobody
/// else touches them, so it knows what each must be.
pub(super) async fn shop(
    market: std::sync::Arc<Market>,
    mut random: Random,
    name: String,
) -> Vec<Asked> {
    let mut all: Vec<Asked> = Vec::new();
    let Ok(mut client) = Client::connect(market.address).await else { return all };
    for number in 0.. {
        let place = all
            .len()
            .checked_sub(1)
            .map(|last| random.below(u32::try_from(last + 1).expect("few")) as usize);
        let state = place.and_then(|place| all[place].told.as_ref()).map(|(_, state)| *state);
        let step = state.and_then(|state| Step::pick(state, &mut random));
        let ended = match (place, step) {
            (Some(place), Some(step)) if random.percent(60) => {
                let (users, key) = (&market.users, &market.callbacks);
                let answer = take_step(&mut client, users, key, &all[place], step).await;
                heard_step(&mut all[place], step, answer)
            }
            _ => {
                let asked = Asked {
                    sale: random.pick(&market.sales).id.clone(),
                    user: random.below(USERS),
                    key: format!("{name}-{number}"),
                    quantity: if random.percent(20) { 2 } else { 1 },
                    told: None,
                    open: None,
                };
                let answer = claim(&mut client, &market.users, &asked).await;
                heard_claim(&mut all, asked, answer)
            }
        };
        if ended {
            return all;
        }
        // The test may have heard enough.
        let _heard = market.answered.send(());
    }
    all
}

/// Notes the answer to a claim, and says whether the connection is gone.
fn heard_claim(all: &mut Vec<Asked>, mut asked: Asked, answer: Result<Response, Error>) -> bool {
    match answer {
        Ok(answer) if answer.status == StatusCode::CREATED => {
            let claim: Value = answer.json().expect("JSON");
            let id = claim["claim_id"].as_str().expect("an id").to_owned();
            asked.told = Some((id, State::read(&claim)));
            all.push(asked);
            false
        }
        Ok(answer) => {
            assert!([409, 410].contains(&answer.status.as_u16()), "{:?}", answer.body);
            false
        }
        Err(error) => {
            if error.outcome_unknown() {
                all.push(asked);
            }
            true
        }
    }
}

/// Notes the answer to a step, and says whether the connection is gone.
fn heard_step(asked: &mut Asked, step: Step, answer: Result<Response, Error>) -> bool {
    match answer {
        Ok(answer) => {
            assert!(answer.status.is_success(), "{step:?}: {:?}", answer.body);
            let id = asked.id().to_owned();
            asked.told = Some((id, step.result()));
            false
        }
        Err(error) => {
            asked.open = error.outcome_unknown().then_some(step);
            true
        }
    }
}

async fn claim(
    client: &mut Client,
    users: &[HeaderValue],
    asked: &Asked,
) -> Result<Response, Error> {
    let headers = [
        (HeaderName::from_static("authorization"), users[asked.user as usize].clone()),
        (
            HeaderName::from_static("idempotency-key"),
            HeaderValue::from_str(&asked.key).expect("a header"),
        ),
    ];
    let path = format!("/api/v1/sales/{}/claims", asked.sale);
    let body = json!({ "quantity": asked.quantity });
    client.send_json(Method::POST, &path, &headers, &body).await
}

async fn take_step(
    client: &mut Client,
    users: &[HeaderValue],
    callbacks: &signature::Key,
    asked: &Asked,
    step: Step,
) -> Result<Response, Error> {
    let id = asked.id();
    let payment = format!("payment-of-{id}");
    let user = [(HeaderName::from_static("authorization"), users[asked.user as usize].clone())];
    let (method, path) = match step {
        Step::Order => (Method::POST, format!("/api/v1/claims/{id}/order")),
        Step::GiveUp => (Method::DELETE, format!("/api/v1/claims/{id}")),
        Step::Cancel => (Method::POST, format!("/api/v1/orders/{id}/cancel")),
        Step::Pay => {
            let path = format!("/api/v1/orders/{id}/pay");
            let body = json!({ "payment_id": payment });
            return client.send_json(Method::POST, &path, &user, &body).await;
        }
        Step::TellPayment => {
            let amount_cents = PRICE_CENTS * asked.quantity;
            let body =
                json!({ "payment_id": payment, "order_id": id, "amount_cents": amount_cents });
            let body = body.to_string();
            let (timestamp, signature) = callbacks.sign(body.as_bytes(), SystemClock.now());
            let header = |name, value: &str| {
                (HeaderName::from_static(name), HeaderValue::from_str(value).expect("a header"))
            };
            let headers = [
                header(signature::TIMESTAMP_HEADER, &timestamp),
                header(signature::SIGNATURE_HEADER, &signature),
            ];
            let path = "/api/v1/payments/callback";
            return client.send(Method::POST, path, &headers, body.into()).await;
        }
    };
    client.send(method, path.as_str(), &user, Bytes::new()).await
}
