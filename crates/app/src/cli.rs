//! Commands of domains.
//!
//! A domain's commands are in `cli.rs` of its crate: a type with `clap::Args` (or
//! `clap::Subcommand` for several) that implements [`Command`]. It is listed in `Commands` of
//! `crates/qiang/src/domains.rs`. Data goes to stdout, talk to stderr: see [`output`].
//!
//! A command asks a running server with [`ServerArgs::connect`], or opens the records itself with
//! [`Config::open_store`].

pub mod output;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderValue, Method};
use bytes::Bytes;
use qiang_core::UserId;
use qiang_engine::{Clock as _, SystemClock};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::client::{Client, Response, Tls};
use crate::config::Config;
use crate::extract::IDEMPOTENCY_KEY;
use crate::running;
use crate::secrets::Secrets;
use crate::tls::{self, Trust};
use crate::token::{Key, Principal, Role};

/// How long a token is good that a command makes for itself.
const TOKEN_TTL_MS: u64 = 600_000;

/// A command that a domain brings along. Logs go to stderr already when it runs.
pub trait Command {
    /// Does it. An `Err` is printed and ends the process with exit code 1, or 2 for a [`Misuse`].
    fn run(&self, config: &Config) -> impl Future<Output = anyhow::Result<ExitCode>>;
}

/// How a command ends, other than well.
#[derive(Debug, Clone, Copy)]
pub enum Exit {
    /// It failed, or something was found wrong.
    Failed,
    /// The command line or the configuration makes no sense.
    Misused,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Failed => 1,
            Exit::Misused => 2,
        })
    }
}

/// A command line that makes no sense, found after it was taken apart.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Misuse(pub &'static str);

/// Which server a command asks. For the `Args` of a command, with `#[command(flatten)]`.
#[derive(Debug, Clone, clap::Args)]
pub struct ServerArgs {
    /// A running server, like http://127.0.0.1:8080 or https://shop.example [default: the one on
    /// the data folder]
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// With https: a PEM file with the certificate to trust, of the server or of its CA [default:
    /// whom the system trusts]
    #[arg(long, value_name = "FILE", requires = "url")]
    pub ca: Option<PathBuf>,
    /// An admin's token for that server [default: $QIANG_TOKEN, or made with the keys in the data
    /// folder]
    #[arg(long, value_name = "TOKEN", requires = "url")]
    pub token: Option<String>,
}

impl ServerArgs {
    /// Connects to the server as an admin. `as_whom` is the name in the server's log.
    pub async fn connect(&self, config: &Config, as_whom: &str) -> anyhow::Result<Server> {
        let client = match &self.url {
            Some(url) => Client::connect_url(url, self.ca.as_deref()).await?,
            None => {
                let place = running::place(&config.data).with_context(|| {
                    format!(
                        "no server says that it works on {}: name one with --url",
                        config.data.display()
                    )
                })?;
                output::say(format_args!("asking the server at {place} …"));
                Client::connect_tls(place.address, own_tls(config, place)?).await?
            }
        };
        let token = match token_for(self.url.as_deref(), self.token.as_deref()) {
            Some(token) => token,
            None => admin_token(config, as_whom)?,
        };
        let mut admin = HeaderValue::from_str(&token).context("not a token")?;
        admin.set_sensitive(true);
        Ok(Server { client, admin })
    }
}

/// A connection to a running server, as its admin.
#[derive(Debug)]
pub struct Server {
    client: Client,
    admin: HeaderValue,
}

impl Server {
    /// How long an answer may take from now on.
    pub const fn set_timeout(&mut self, timeout: Duration) {
        self.client.set_timeout(timeout);
    }

    /// `GET`, and the JSON of the answer.
    pub async fn get<T: DeserializeOwned>(&mut self, path: &str) -> anyhow::Result<T> {
        let headers = [(AUTHORIZATION, self.admin.clone())];
        done(&self.client.send(Method::GET, path, &headers, Bytes::new()).await?)
    }

    /// `GET`, and the text of the answer.
    pub async fn get_text(&mut self, path: &str) -> anyhow::Result<String> {
        let headers = [(AUTHORIZATION, self.admin.clone())];
        let answer = self.client.send(Method::GET, path, &headers, Bytes::new()).await?;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        if !answer.status.is_success() {
            anyhow::bail!("the server answered {}: {text}", answer.status);
        }
        Ok(text)
    }

    /// `POST` of a value as JSON, and the JSON of the answer.
    pub async fn post<B, T>(&mut self, path: &str, body: &B) -> anyhow::Result<T>
    where
        B: Serialize + ?Sized,
        T: DeserializeOwned,
    {
        let headers = [(AUTHORIZATION, self.admin.clone())];
        done(&self.client.send_json(Method::POST, path, &headers, body).await?)
    }
}

/// What the server of this configuration, found by its note, is recognised by: its certificate, under
/// whatever name.
fn own_tls(config: &Config, place: running::Place) -> anyhow::Result<Option<Tls>> {
    if !place.tls {
        return Ok(None);
    }
    let files = config.http.tls.as_ref().with_context(|| {
        format!(
            "the server at {place} speaks TLS: run this with its configuration (`tls_cert` in \
             [http]), or name it with --url, and its certificate with --ca"
        )
    })?;
    Ok(Some(Tls { trust: Trust::only(files)?, name: tls::name_of(place.address) }))
}

impl Server {
    /// `POST` of a value as JSON under an `Idempotency-Key`.
    pub async fn post_as<B, T>(&mut self, key: &str, path: &str, body: &B) -> anyhow::Result<T>
    where
        B: Serialize + ?Sized,
        T: DeserializeOwned,
    {
        let key = HeaderValue::from_str(key).context("not an Idempotency-Key")?;
        let headers = [(AUTHORIZATION, self.admin.clone()), (IDEMPOTENCY_KEY, key)];
        done(&self.client.send_json(Method::POST, path, &headers, body).await?)
    }
}

fn done<T: DeserializeOwned>(answer: &Response) -> anyhow::Result<T> {
    if answer.status.is_success() {
        return Ok(answer.json()?);
    }
    let problem = String::from_utf8_lossy(&answer.body);
    anyhow::bail!("the server answered {}: {problem}", answer.status)
}

/// An admin's token that was brought along for a server that runs elsewhere. The variable is not
/// read by the parser: without a URL it is nobody's business, and no mistake either.
#[must_use]
pub fn token_for(url: Option<&str>, given: Option<&str>) -> Option<String> {
    let variable = || std::env::var("QIANG_TOKEN").ok().filter(|token| !token.is_empty());
    url.and_then(|_| given.map(str::to_owned).or_else(variable))
}

fn admin_token(config: &Config, user: &str) -> anyhow::Result<String> {
    let now = SystemClock.now();
    let who = Principal {
        user: UserId::new(user).context("a user id")?,
        role: Role::Admin,
        identity: None,
        expires_at: now.plus_millis(TOKEN_TTL_MS),
    };
    Ok(Key::new(&Secrets::jwt_key_of(config)?).mint(&who, now))
}
