//! People at the doors of a shop, what they are told, and whether the shop keeps its word.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, Method};
use bytes::Bytes;
use qiang::client::{Client, Error};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::shop::{PATIENCE, Shop};

/// Connections of a crowd.
const CONNECTIONS: u32 = 12;
/// A pause before asking again.
const ASK_AGAIN_EVERY: Duration = Duration::from_millis(50);
/// Codes that promise nothing: it may have happened, or may happen when asked again.
const NO_ANSWER: [&str; 3] = ["unavailable", "outcome_unknown", "overloaded"];

/// Somebody with a token, at one door.
pub(crate) struct Person {
    address: SocketAddr,
    token: HeaderValue,
    client: Option<Client>,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

/// What a buyer was told about a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Told {
    /// Theirs, under this id.
    Granted(String),
    /// Not theirs, for a reason that stands.
    Refused(String),
    /// Nothing to rely on.
    Nothing(String),
}

/// How often a buyer asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asking {
    /// Once.
    Once,
    /// With the same key until there is an answer, at one door and then the next.
    UntilAnswered,
}

/// What everybody was told, by user.
pub(crate) type Tales = BTreeMap<String, Told>;

impl Person {
    pub(crate) fn at(address: SocketAddr, token: &str) -> Self {
        let token = HeaderValue::from_str(token).expect("a header");
        Self { address, token, client: None }
    }

    pub(crate) fn buyer(address: SocketAddr, user: &str) -> Self {
        Self::at(address, &Shop::buyer_token(user))
    }

    pub(crate) fn admin(address: SocketAddr) -> Self {
        Self::at(address, &Shop::admin_token())
    }

    pub(crate) async fn get(&mut self, path: &str) -> Answer {
        self.ask(Method::GET, path, None, Value::Null).await
    }

    pub(crate) async fn delete(&mut self, path: &str) -> Answer {
        self.ask(Method::DELETE, path, None, Value::Null).await
    }

    pub(crate) async fn put(&mut self, path: &str, body: Value) -> Answer {
        self.ask(Method::PUT, path, None, body).await
    }

    pub(crate) async fn post(&mut self, path: &str, body: Value) -> Answer {
        self.ask(Method::POST, path, None, body).await
    }

    /// A page that is no JSON.
    pub(crate) async fn page(&mut self, path: &str) -> String {
        let answer = self.get(path).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body.as_str().expect("text").to_owned()
    }

    /// Tells that money arrived, as the provider of payments does.
    pub(crate) async fn pays(&mut self, payment: &str, order: &str, cents: i64) -> Answer {
        let body = json!({ "payment_id": payment, "order_id": order, "amount_cents": cents });
        let signed = Shop::signed(&body.to_string());
        let path = "/api/v1/payments/callback";
        self.send(Method::POST, path, &signed, body).await.expect("an answer")
    }

    /// Claims one unit.
    pub(crate) async fn claim(&mut self, sale: &str, key: &str) -> Told {
        let path = format!("/api/v1/sales/{sale}/claims");
        let answer = self.try_ask(Method::POST, &path, Some(key), json!({ "quantity": 1 })).await;
        match answer {
            Ok(answer) => answer.told(),
            Err(error) => Told::Nothing(error.to_string()),
        }
    }

    async fn ask(&mut self, method: Method, path: &str, key: Option<&str>, body: Value) -> Answer {
        self.try_ask(method, path, key, body).await.expect("an answer")
    }

    async fn try_ask(
        &mut self,
        method: Method,
        path: &str,
        key: Option<&str>,
        body: Value,
    ) -> Result<Answer, Error> {
        let key = key.map(|key| ("idempotency-key", key.to_owned()));
        self.send(method, path, key.as_slice(), body).await
    }

    async fn send(
        &mut self,
        method: Method,
        path: &str,
        more: &[(&'static str, String)],
        body: Value,
    ) -> Result<Answer, Error> {
        let mut headers = vec![(HeaderName::from_static("authorization"), self.token.clone())];
        for (name, value) in more {
            let value = HeaderValue::from_str(value).expect("a header");
            headers.push((HeaderName::from_static(name), value));
        }
        let body = if body.is_null() {
            Bytes::new()
        } else {
            let json = HeaderValue::from_static("application/json");
            headers.push((HeaderName::from_static("content-type"), json));
            body.to_string().into()
        };
        let mut client = match self.client.take() {
            Some(client) if client.is_open() => client,
            _ => Client::connect(self.address).await?,
        };
        let answer = client.send(method, path, &headers, body).await?;
        self.client = Some(client);
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Ok(Answer { status: answer.status.as_u16(), body })
    }
}

impl Answer {
    /// The body of an answer with this status.
    #[track_caller]
    pub(crate) fn ok(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.body);
        self.body
    }

    fn told(self) -> Told {
        let text = |name: &str| self.body[name].as_str().unwrap_or_default().to_owned();
        match self.status {
            200 | 201 => Told::Granted(text("claim_id")),
            _ if NO_ANSWER.contains(&&*text("code")) => Told::Nothing(text("code")),
            _ => Told::Refused(text("code")),
        }
    }
}

/// Opens a sale of `stock` units with these terms beside the usual ones.
pub(crate) async fn sale(door: SocketAddr, stock: u32, terms: Value) -> String {
    let mut body =
        json!({ "title": "Phone", "sku": "phone", "stock": stock, "price_cents": 9_900 });
    for (name, value) in terms.as_object().expect("an object") {
        body[name] = value.clone();
    }
    let sale = Person::admin(door).post("/api/v1/sales", body).await.ok(201);
    sale["id"].as_str().expect("an id").to_owned()
}

/// Many buyers at once, each for one unit, with a key of their own.
pub(crate) struct Crowd {
    answered: watch::Receiver<u32>,
    buyers: Vec<JoinHandle<Tales>>,
}

impl Crowd {
    /// Users `users` claim at the doors, each at another sale in turn.
    pub(crate) fn rush(
        doors: &[SocketAddr],
        sales: &[String],
        users: Range<u32>,
        asking: Asking,
    ) -> Self {
        let (count, answered) = watch::channel(0);
        let (count, doors, sales) = (Arc::new(count), doors.to_vec(), sales.to_vec());
        let buyer = |place: u32| {
            let (count, doors, sales) = (Arc::clone(&count), doors.clone(), sales.clone());
            let users = users.clone().skip(place as usize).step_by(CONNECTIONS as usize);
            tokio::spawn(async move {
                let mut tales = Tales::new();
                for number in users {
                    let sale = &sales[number as usize % sales.len()];
                    let told = insist(&doors, sale, number, asking).await;
                    tales.insert(user(number), told);
                    count.send_modify(|count| *count += 1);
                }
                tales
            })
        };
        Self { answered, buyers: (0..CONNECTIONS).map(buyer).collect() }
    }

    /// Waits until so many have been told something.
    pub(crate) async fn told(&self, count: u32) {
        let mut answered = self.answered.clone();
        let told = answered.wait_for(|answered| *answered >= count);
        let told = tokio::time::timeout(PATIENCE, told).await.expect("they are answered");
        drop(told.expect("the crowd is larger"));
    }

    /// Waits until all have been told something, and gives what.
    pub(crate) async fn end(self) -> Tales {
        let mut tales = Tales::new();
        for buyer in self.buyers {
            tales.extend(buyer.await.expect("no panic"));
        }
        tales
    }
}

pub(crate) fn user(number: u32) -> String {
    format!("user-{number}")
}

/// The key a buyer of a crowd asks with.
pub(crate) fn key(user: &str) -> String {
    format!("first-{user}")
}

async fn insist(doors: &[SocketAddr], sale: &str, number: u32, asking: Asking) -> Told {
    let name = user(number);
    let mut again = tokio::time::interval(ASK_AGAIN_EVERY);
    let asked = async {
        let mut door = number as usize / 3;
        loop {
            again.tick().await;
            let mut person = Person::buyer(doors[door % doors.len()], &name);
            let told = person.claim(sale, &key(&name)).await;
            if asking == Asking::Once || !matches!(told, Told::Nothing(_)) {
                return told;
            }
            door += 1;
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.expect("an answer to rely on")
}

/// Claims that were granted: whose, and under which id.
pub(crate) fn granted(tales: &Tales) -> BTreeMap<&str, &str> {
    let granted = tales.iter().filter_map(|(user, told)| match told {
        Told::Granted(claim) => Some((user.as_str(), claim.as_str())),
        _ => None,
    });
    granted.collect()
}

/// How many were refused, by code; how many were told nothing, by why.
pub(crate) fn others(tales: &Tales) -> BTreeMap<&str, usize> {
    let mut others = BTreeMap::new();
    for told in tales.values() {
        if let Told::Refused(code) | Told::Nothing(code) = told {
            *others.entry(code.as_str()).or_default() += 1;
        }
    }
    others
}

/// Everything that was granted is there, at every door, in this state; asked for again with its
/// key it is the same claim; and the sale has sold exactly that.
pub(crate) async fn check(
    doors: &[SocketAddr],
    sale: &str,
    stock: u32,
    state: &str,
    tales: &Tales,
) {
    let of_sale = |claim: &str| claim.starts_with(&format!("{sale}-"));
    let granted: BTreeMap<&str, &str> =
        granted(tales).into_iter().filter(|(_, claim)| of_sale(claim)).collect();
    let ids: BTreeSet<&str> = granted.values().copied().collect();
    assert_eq!(ids.len(), granted.len(), "two have the same claim");
    for (place, (user, claim)) in granted.iter().enumerate() {
        let mut person = Person::buyer(doors[place % doors.len()], user);
        let view = person.get(&format!("/api/v1/claims/{claim}")).await.ok(200);
        assert_eq!((&view["user_id"], &view["state"]), (&json!(user), &json!(state)), "{view}");
        let again = person.claim(sale, &key(user)).await;
        assert_eq!(again, Told::Granted(claim.to_string()), "{user} asked again");
    }
    let sold = u32::try_from(granted.len()).expect("few");
    assert!(sold <= stock, "{sold} of {stock} units were sold");
    for door in doors {
        let view = Person::admin(*door).get(&format!("/api/v1/sales/{sale}")).await.ok(200);
        assert_eq!(
            (&view[state], &view["available"]),
            (&json!(sold), &json!(stock - sold)),
            "{view}"
        );
    }
}

/// The books agree, as the server at a door finds.
pub(crate) async fn audit(door: SocketAddr) {
    let report = Person::admin(door).get("/api/v1/admin/audit").await.ok(200);
    assert_eq!(report["ok"], true, "{report:#}");
}

/// Waits until the records hold everything decided so far.
pub(crate) async fn recorded(door: SocketAddr) {
    crate::shop::eventually("the records have caught up", async || {
        Person::buyer(door, "reader").get("/api/v1/orders").await.status == 200
    })
    .await;
}
