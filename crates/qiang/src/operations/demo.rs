//! `POST /api/v1/admin/demo`: a sale to look at, with a crowd that comes running when it opens.
//!
//! For an empty shop on a machine of one's own, and only for whoever sits at it: nothing can be harmed
//! there, so nobody has to sign in.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::extract::{FromRef, State};
use axum::http::{HeaderMap, StatusCode};
use qiang_app::extract::{Nothing, OptionalJson, shown};
use qiang_app::problem::{Code, Problem};
use qiang_app::token::{Principal, Role};
use qiang_app::{App, Origin, client, json_time, schema, session, tls};
use qiang_core::{
    Cents, Command, Flow, Kind, LimitBy, Outcome, PoolId, Reclaim, Supply, Terms, Timestamp, UserId,
};
use qiang_load::http::Http;
use qiang_load::scenario::Scenario;
use qiang_load::schedule::Spacing;
use qiang_load::wire::{self, Door, Wire};
use qiang_load::{Pace, Plan, Running};
use qiang_store::SalePage;
use serde::Serialize;
use utoipa::ToSchema;

use crate::tls::for_load;

const STOCK: u32 = 200;
const PRICE_CENTS: i64 = 99_900;
const OPENS_AFTER_MS: u64 = 15_000;
const PAY_MS: u64 = 10 * 60_000;
const BUYERS: u32 = 5_000;
const CONNECTIONS: usize = 16;
const TOKEN_TTL_MS: u64 = 10 * 60_000;
/// Buyers a second, so that it can be watched.
const PACE: f64 = 400.0;
/// The crowd has gone home by then.
const LASTS: Duration = Duration::from_secs(15);

/// Where this server listens, once it does.
#[derive(Debug, Clone)]
pub struct Demo {
    app: Arc<App>,
    address: Arc<OnceLock<SocketAddr>>,
}

impl Demo {
    pub(crate) fn new(app: Arc<App>) -> Self {
        Self { app, address: Arc::default() }
    }

    /// Says where the crowd finds the server.
    pub(crate) fn listens_at(&self, address: SocketAddr) {
        let _first = self.address.set(address);
    }
}

impl FromRef<Demo> for Arc<App> {
    fn from_ref(demo: &Demo) -> Self {
        Arc::clone(&demo.app)
    }
}

/// A sale to look at.
#[derive(Debug, Serialize, ToSchema)]
pub struct DemoView {
    /// The sale.
    #[schema(value_type = schema::SaleId)]
    pub sale_id: String,
    /// When it opens, and the crowd comes.
    #[serde(with = "json_time")]
    #[schema(value_type = schema::Time)]
    pub opens_at: Timestamp,
    /// How many made-up buyers come.
    #[schema(minimum = 1)]
    pub buyers: u32,
}

/// Open a demo sale
///
/// For an empty shop on a machine of one's own (`[auth] sandbox`): 200 units that open in 15 seconds,
/// and 5000 made-up buyers who come running then.
#[utoipa::path(post, path = "/api/v1/admin/demo", operation_id = "open_demo", tag = "operations",
    responses((status = 201, description = "The sale", body = DemoView)))]
pub async fn open(
    State(demo): State<Demo>,
    origin: Origin,
    headers: HeaderMap,
    _: OptionalJson<Nothing>,
) -> Result<(StatusCode, axum::Json<DemoView>), Problem> {
    let (app, shown) = (&demo.app, shown(&headers)?);
    if shown.fetch_site.is_some() || shown.origin.is_some() {
        app.check_page(&shown)?;
    }
    let address = demo.address.get().copied().filter(|_| app.config.auth.sandbox);
    let Some(address) = address.filter(|_| session::is_of_this_machine(&origin, &headers)) else {
        return Err(Problem::new(Code::DemoDisabled));
    };
    if !app.answer(app.engine.pools(Kind::Sale, None, 1)).await?.is_empty() {
        return Err(Problem::new(Code::DemoDisabled).detail("the shop has sales of its own"));
    }
    let (pool, now) = (app.next_id()?, app.now());
    let opens_at = now.plus_millis(OPENS_AFTER_MS);
    let command = Command::Open { pool, terms: Arc::new(terms(opens_at)) };
    if let Outcome::Refused(refusal) = app.decide(command, &origin).await?.into_pool() {
        return Err(Problem::from(&refusal));
    }
    let description = "A made-up phone for a made-up crowd.\n为模拟买家准备的模拟手机。".to_owned();
    app.store.put_sale_page(&SalePage { sale: pool, description, changed_at: now }).await?;
    tokio::spawn(crowd(Arc::clone(app), address, pool, now));
    let sale_id = pool.to_string();
    Ok((StatusCode::CREATED, axum::Json(DemoView { sale_id, opens_at, buyers: BUYERS })))
}

fn terms(opens_at: Timestamp) -> Terms {
    Terms {
        kind: Kind::Sale,
        title: "Midnight phone".into(),
        sku: "demo-phone".into(),
        supply: Supply::Units(STOCK),
        limit_per_user: 1,
        limit_by: LimitBy::User,
        price: Cents::new(PRICE_CENTS),
        price_steps: Vec::new(),
        opens_at,
        closes_at: None,
        flow: Flow::Order { pay_ms: PAY_MS },
        reclaim: Reclaim::Allowed,
        buckets: 1,
    }
}

/// Waits for the opening and sends everybody, each once, over HTTP.
async fn crowd(app: Arc<App>, address: SocketAddr, sale: PoolId, now: Timestamp) {
    tokio::time::sleep(Duration::from_millis(OPENS_AFTER_MS)).await;
    let expires_at = now.plus_millis(TOKEN_TTL_MS);
    let token = |number: u32| {
        let user = UserId::new(&format!("demo-{number}")).ok()?;
        let who = Principal { user, role: Role::Buyer, identity: None, expires_at };
        Some(app.tokens.mint(&who, now).into_boxed_str())
    };
    let tokens = (1..=BUYERS).filter_map(token).collect();
    let http = Http::new(&address.to_string(), &sale.to_string(), "demo", tokens);
    let plan = Plan {
        scenario: Scenario::Sellout,
        pace: Pace::Open { per_sec: PACE, spacing: Spacing::Poisson },
        duration: LASTS,
        users: BUYERS,
        connections: CONNECTIONS,
        depth: 1,
        seed: 0,
    };
    let tls = match own_tls(&app, address) {
        Ok(tls) => tls,
        Err(error) => return tracing::warn!(%error, "the crowd of the demo could not come"),
    };
    match Running::start(plan, Door { address, tls, wire: Wire::Http(http) }).await {
        Ok(mut running) => {
            running.ended().await;
            drop(running.join());
        }
        Err(error) => tracing::warn!(%error, "the crowd of the demo could not come"),
    }
}

/// How the crowd recognises this server.
fn own_tls(app: &App, address: SocketAddr) -> Result<Option<wire::Tls>, tls::Error> {
    let Some(files) = &app.config.http.tls else { return Ok(None) };
    let trust = tls::Trust::only(files)?;
    Ok(Some(for_load(client::Tls { trust, name: tls::name_of(address) })))
}
