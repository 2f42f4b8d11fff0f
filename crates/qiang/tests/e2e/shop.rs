//! A whole server in this process, on a port and in a folder of its own, with a clock that only
//! the test moves. Nothing here sleeps: what runs out runs out because the test says so.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use axum::http::Method;
use qiang::config::Config;
use qiang::server::Server;
use qiang_app::config::Sources;
use qiang_app::secrets::Secrets;
use qiang_app::session;
use qiang_app::token::{Principal, Role};
use qiang_core::{ClaimRequest, Command, Identity, Kind, Outcome, PoolId, Timestamp, UserId};
use qiang_engine::ManualClock;
use qiang_store::SignIn;
use qiang_testkit::contract;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::backend::Backend;
use crate::person::{Answer, Person};

/// When every test begins: 2027-01-15T08:00:00Z.
pub(crate) const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);
pub(crate) const START_TEXT: &str = "2027-01-15T08:00:00.000Z";
pub(crate) const SECOND: i64 = 1_000;
pub(crate) const MINUTE: i64 = 60 * SECOND;
const TOKEN_TTL_MS: u64 = 400 * 86_400_000;

/// A server, its folder and its clock.
pub(crate) struct Shop {
    pub(crate) server: Server,
    pub(crate) clock: Arc<ManualClock>,
    settings: Vec<(String, String)>,
    folder: TempDir,
    backend: Backend,
}

impl Shop {
    pub(crate) async fn open() -> Self {
        Self::with(&[]).await
    }

    /// With these variables of the environment.
    pub(crate) async fn with(settings: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let settings: Vec<_> =
            settings.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let backend = Backend::of_environment().await;
        let settings = [backend.settings(), settings].concat();
        Self::start(folder, settings, backend, Arc::new(ManualClock::new(START))).await
    }

    async fn start(
        folder: TempDir,
        settings: Vec<(String, String)>,
        backend: Backend,
        clock: Arc<ManualClock>,
    ) -> Self {
        let config = config(folder.path(), &settings);
        let server = Server::start(config, Arc::<ManualClock>::clone(&clock)).await;
        Self { server: server.expect("it starts"), clock, settings, folder, backend }
    }

    /// Stops it, lets the test do something to the folder, and starts it again at the same time.
    pub(crate) async fn restart(self, meanwhile: impl FnOnce(&Path)) -> Self {
        let Self { server, clock, settings, folder, backend } = self;
        server.stop().await;
        meanwhile(folder.path());
        Self::start(folder, settings, backend, clock).await
    }

    /// Stops it and starts it again with other variables of the environment.
    pub(crate) async fn restart_with(self, settings: &[(&str, &str)]) -> Self {
        let Self { server, clock, folder, backend, .. } = self;
        server.stop().await;
        let settings = settings.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        let settings = [backend.settings(), settings.collect()].concat();
        Self::start(folder, settings, backend, clock).await
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Moves the clock and lets the engine look at it.
    pub(crate) async fn advance(&self, ms: i64) {
        self.clock.advance_millis(ms);
        self.server.app.engine.expire_due().await.expect("the engine works");
    }

    /// Waits until everything decided is in the records.
    pub(crate) async fn drain(&self) {
        self.server.drain().await.expect("the engine works");
    }

    /// The keys the server signs and checks with.
    pub(crate) fn secrets(&self) -> Secrets {
        Secrets::load_or_create(self.folder()).expect("made at the first start")
    }

    pub(crate) fn token(&self, user: &str, role: Role, identity: Option<&str>) -> String {
        let who = Principal {
            user: UserId::new(user).expect("a user id"),
            role,
            identity: identity.map(|text| Identity::new(text).expect("an identity")),
            expires_at: START.plus_millis(TOKEN_TTL_MS),
        };
        self.server.app.tokens.mint(&who, START)
    }

    /// The cookie of a buyer who is signed in to the pages.
    pub(crate) fn cookie(&self, user: &str) -> String {
        let who = Principal {
            user: UserId::new(user).expect("a user id"),
            role: Role::Buyer,
            identity: None,
            expires_at: START.plus_millis(TOKEN_TTL_MS),
        };
        let session = session::begin("s1".to_owned(), who, SignIn::Token, START);
        format!("{}={}", session::COOKIE, self.server.app.sessions.cookie(&session, START))
    }

    /// Somebody, by TLS if that is how the shop is spoken to.
    async fn arrive(&self, token: Option<String>) -> Person {
        match &self.server.config.app.http.tls {
            None => Person::arrive(self.address(), token).await,
            Some(files) => Person::arrive_by_tls(self.address(), token, files).await,
        }
    }

    pub(crate) async fn buyer(&self, user: &str) -> Person {
        self.arrive(Some(self.token(user, Role::Buyer, None))).await
    }

    /// A buyer the shop knows by a real person's name.
    pub(crate) async fn known_buyer(&self, user: &str, identity: &str) -> Person {
        self.arrive(Some(self.token(user, Role::Buyer, Some(identity)))).await
    }

    pub(crate) async fn admin(&self) -> Person {
        self.arrive(Some(self.token("boss", Role::Admin, None))).await
    }

    /// Somebody without a token.
    pub(crate) async fn stranger(&self) -> Person {
        self.arrive(None).await
    }

    /// Somebody with this token, good or not.
    pub(crate) async fn bearer(&self, token: impl Into<String>) -> Person {
        self.arrive(Some(token.into())).await
    }

    /// Opens a sale of `stock` units, with the usual terms but for `terms`, and gives its id.
    pub(crate) async fn sale(&self, stock: u64, terms: Value) -> String {
        let body = changed(&terms_of(stock), &terms);
        let sale = self.admin().await.post("/sales", body).await.ok(201);
        sale["id"].as_str().expect("an id").to_owned()
    }

    /// Opens a packet of three portions, of which `taker` has the first. No route does that yet.
    pub(crate) async fn packet(&self, id: u64, taker: &str) {
        let (engine, pool) = (&self.server.app.engine, PoolId::new(id).expect("positive"));
        let terms = Arc::new(contract::packet_of(&[5, 3, 2]));
        let opened = engine.ask(Command::Open { pool, terms }).await.expect("the engine works");
        assert!(matches!(opened.into_pool(), Outcome::Done(_)));
        let wish = contract::wish(pool, taker, None);
        let wish = ClaimRequest { kind: Kind::Packet, ..wish };
        let taken = engine.ask(Command::Claim(wish)).await.expect("the engine works");
        assert!(matches!(taken.into_claim(), Outcome::Done(_)));
    }

    /// A sale as everybody sees it.
    pub(crate) async fn view(&self, sale: &str) -> Value {
        self.stranger().await.get(&format!("/sales/{sale}")).await.ok(200)
    }

    /// Units available, held, ordered and paid.
    pub(crate) async fn tally(&self, sale: &str) -> [u64; 4] {
        let view = self.view(sale).await;
        ["available", "held", "ordered", "paid"].map(|name| view[name].as_u64().expect("a count"))
    }

    /// Compares all books, and expects them to agree.
    pub(crate) async fn audit(&self) -> Value {
        let report = self.admin().await.get("/admin/audit").await.ok(200);
        assert_eq!(report["ok"], true, "{report:#}");
        report
    }

    /// Tells, as the payment provider does, that money arrived.
    pub(crate) async fn callback(&self, payment: &str, order: &str, amount_cents: i64) -> Answer {
        let body = json!({
            "payment_id": payment, "order_id": order, "amount_cents": amount_cents,
        });
        self.signed(&body.to_string()).await
    }

    /// Any body, with the provider's signature.
    pub(crate) async fn signed(&self, body: &str) -> Answer {
        let (timestamp, signature) =
            self.server.domains.sales.callbacks.sign(body.as_bytes(), self.server.app.now());
        let headers = [("x-qiang-timestamp", &*timestamp), ("x-qiang-signature", &*signature)];
        let mut provider = self.stranger().await;
        provider.ask(Method::POST, "/api/v1/payments/callback", &headers, body.to_owned()).await
    }
}

/// The usual terms of a sale.
pub(crate) fn terms_of(stock: u64) -> Value {
    json!({ "title": "Phone", "sku": "phone-15", "stock": stock, "price_cents": 9_900 })
}

/// A JSON object with some members replaced or added.
pub(crate) fn changed(object: &Value, by: &Value) -> Value {
    let mut object = object.clone();
    for (name, value) in by.as_object().expect("an object") {
        object[name] = value.clone();
    }
    object
}

/// The configuration of a server on a free port, in a folder.
pub(crate) fn config(folder: &Path, settings: &[(String, String)]) -> Config {
    let data = folder.to_str().expect("UTF-8").to_owned();
    let sources = Sources::default().with_flag("--data", "data", Some(data)).with_flag(
        "--listen",
        "http.listen",
        Some("127.0.0.1:0".to_owned()),
    );
    let sources =
        settings.iter().fold(sources, |sources, (name, value)| sources.with_variable(name, value));
    Config::load(sources).expect("a good configuration")
}
