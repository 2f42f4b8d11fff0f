//! The server under load, as its admin sees it: opens the sale of the run, watches it, compares
//! the books, and closes it. No other sale is ever touched.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderValue, Method, StatusCode};
use bytes::Bytes;
use qiang_core::{Timestamp, UserId};
use qiang_engine::{Clock as _, SystemClock};
use serde::Deserialize;
use serde_json::Value;

use super::own::Own;
use crate::config::Config;
use qiang_app::client::{self, Client, Response};
use qiang_app::secrets::{self, Secret, Secrets};
use qiang_app::token::{Key, Principal, Role};
use qiang_load::result::Audit;
use qiang_load::tally::Books;

/// An audit of millions of claims takes its time.
const AUDIT_PATIENCE: Duration = Duration::from_secs(3_600);
/// A server under load may be slow to say what is left.
const WATCH_PATIENCE: Duration = Duration::from_secs(5);
/// Tokens outlive the run by this much.
const TOKEN_SLACK_MS: u64 = 3_600_000;

/// Who signs the tokens of a run.
pub(super) struct Signer {
    key: Key,
    now: Timestamp,
    expires_at: Timestamp,
}

impl Signer {
    fn new(jwt_key: &Secret, run: Duration) -> Self {
        let now = SystemClock.now();
        let run_ms = u64::try_from(run.as_millis()).unwrap_or(u64::MAX);
        let expires_at = now.plus_millis(run_ms.saturating_add(TOKEN_SLACK_MS));
        Self { key: Key::new(jwt_key), now, expires_at }
    }

    /// With the keys that are there; none are made, because no server would know them.
    pub(super) fn of_config(config: &Config, run: Duration) -> anyhow::Result<Self> {
        let kept = config.app.data.join(secrets::FILE_NAME).exists();
        anyhow::ensure!(
            kept || config.app.auth.jwt_secret.is_some(),
            "there are no keys in {}: name the server's data folder with --data, or bring tokens \
             with --token and --tokens",
            config.app.data.display()
        );
        Ok(Self::new(&Secrets::jwt_key_of(&config.app)?, run))
    }

    pub(super) fn of_own(own: &Own, run: Duration) -> anyhow::Result<Self> {
        Ok(Self::new(&Secrets::load_or_create(&own.data())?.jwt_key, run))
    }

    pub(super) fn admin(&self) -> anyhow::Result<String> {
        self.token("qiang-bench", Role::Admin)
    }

    pub(super) fn buyer(&self, user: &str) -> anyhow::Result<String> {
        self.token(user, Role::Buyer)
    }

    fn token(&self, user: &str, role: Role) -> anyhow::Result<String> {
        let user = UserId::new(user).with_context(|| format!("{user:?} is no user id"))?;
        let who = Principal { user, role, identity: None, expires_at: self.expires_at };
        Ok(self.key.mint(&who, self.now))
    }
}

/// A connection as admin.
pub(super) struct Target {
    client: Client,
    admin: HeaderValue,
}

/// As much of a sale as is looked at.
#[derive(Debug, Deserialize)]
pub(super) struct Sale {
    id: String,
    stock: u64,
    pub(super) available: u64,
    held: u64,
    ordered: u64,
    paid: u64,
}

impl Target {
    pub(super) fn new(client: Client, admin: &str) -> anyhow::Result<Self> {
        let mut admin = HeaderValue::from_str(admin).context("the token given is none")?;
        admin.set_sensitive(true);
        Ok(Self { client, admin })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.client.address()
    }

    pub(super) const fn tls(&self) -> Option<&client::Tls> {
        self.client.tls()
    }

    pub(super) async fn open_sale(&mut self, terms: &Value) -> anyhow::Result<String> {
        let headers = [(AUTHORIZATION, self.admin.clone())];
        let answer = self.client.send_json(Method::POST, "/api/v1/sales", &headers, terms).await?;
        match answer.status {
            StatusCode::CREATED => Ok(answer.json::<Sale>()?.id),
            StatusCode::UNAUTHORIZED => anyhow::bail!(
                "the server does not take the admin's token: it has other keys, or the token is \
                 old. {}",
                text(&answer)
            ),
            StatusCode::FORBIDDEN => {
                anyhow::bail!("the token is not an admin's, and only an admin opens a sale")
            }
            status => anyhow::bail!("no sale could be opened ({status}): {}", text(&answer)),
        }
    }

    /// Whether the server knows this buyer; asked before thousands are sent.
    pub(super) async fn knows(&mut self, token: &str) -> anyhow::Result<()> {
        let token = HeaderValue::from_str(token).context("not a token")?;
        let headers = [(AUTHORIZATION, token)];
        let path = "/api/v1/orders?limit=1";
        let answer = self.client.send(Method::GET, path, &headers, Bytes::new()).await?;
        anyhow::ensure!(
            answer.status == StatusCode::OK,
            "the server does not take the buyers' tokens ({}): {}",
            answer.status,
            text(&answer)
        );
        Ok(())
    }

    pub(super) async fn sale(&mut self, id: &str) -> anyhow::Result<Sale> {
        self.client.set_timeout(WATCH_PATIENCE);
        if !self.client.is_open() {
            self.client.reconnect().await?;
        }
        let path = format!("/api/v1/sales/{id}");
        let (status, sale) = self.client.get_json(&path, &[]).await?;
        anyhow::ensure!(status == StatusCode::OK, "the sale cannot be seen: {status}");
        Ok(sale)
    }

    /// What the server says of the sale, and all books compared.
    pub(super) async fn books(&mut self, id: &str) -> anyhow::Result<(Books, Audit)> {
        // A fresh connection: the old one may have a late answer on it.
        self.client.set_timeout(AUDIT_PATIENCE);
        self.client.reconnect().await.context("the server is gone")?;
        let headers = [(AUTHORIZATION, self.admin.clone())];
        let path = "/api/v1/admin/audit";
        let answer = self.client.send(Method::GET, path, &headers, Bytes::new()).await?;
        anyhow::ensure!(
            answer.status == StatusCode::OK,
            "the audit could not be made ({}): {}",
            answer.status,
            text(&answer)
        );
        let report: Audit = answer.json()?;
        let sale = self.sale(id).await?;
        let listed = report.differences.len() as u64;
        let own = report.differences.iter().filter(|one| one.sale_id == id).count() as u64;
        let books = Books {
            stock: sale.stock,
            available: sale.available,
            held: sale.held,
            ordered: sale.ordered,
            paid: sale.paid,
            // Those that are not listed may be anybody's, so they are ours.
            differences: own + report.difference_count.saturating_sub(listed),
        };
        Ok((books, report))
    }

    /// Nobody can claim from it any more.
    pub(super) async fn close(&mut self, id: &str) -> anyhow::Result<()> {
        let headers = [(AUTHORIZATION, self.admin.clone())];
        let path = format!("/api/v1/sales/{id}/close");
        let answer = self.client.send(Method::POST, path, &headers, Bytes::new()).await?;
        anyhow::ensure!(answer.status.is_success(), "the sale cannot be closed: {}", answer.status);
        Ok(())
    }
}

fn text(answer: &Response) -> String {
    let problem: Option<Value> = serde_json::from_slice(&answer.body).ok();
    let detail = problem.as_ref().and_then(|problem| problem["detail"].as_str());
    detail.map_or_else(|| String::from_utf8_lossy(&answer.body).into_owned(), str::to_owned)
}
