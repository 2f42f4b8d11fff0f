//! `qiang demo`: a sale from opening to audit, with a crowd over real HTTP.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri};
use bytes::Bytes;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use qiang_core::{Timestamp, UserId};
use qiang_engine::{Clock as _, Stopwatch, SystemClock};
use serde_json::{Value, json};

use super::output;
use super::serve::{Stop, admin_token_command};
use crate::audit::{self, Depth, Mending, Report};
use crate::client::Client;
use crate::config::{Config, Sources};
use crate::server::Server;
use crate::token::{Principal, Role};

const TOKEN_TTL_MS: u64 = 3_600_000;
const REDRAW: Duration = Duration::from_millis(100);

/// Show a sale from opening to audit
///
/// Starts a server on a temporary folder, opens a sale, sends a crowd of distinct users at it
/// over real HTTP, shows who got what and how fast, and checks all books against each other.
/// Then it stays up to be looked at, until Ctrl-C.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Units for sale
    #[arg(long, default_value_t = 1_000, value_parser = super::number(1..=1_000_000_u32))]
    stock: u32,
    /// How many users want one
    #[arg(long, default_value_t = 30_000, value_parser = super::number(1..=1_000_000_u32))]
    users: u32,
    /// Connections the crowd uses
    #[arg(long, default_value_t = 64, value_parser = super::number(1..=4_096_u32))]
    connections: u32,
    /// End after the audit instead of staying up
    #[arg(long)]
    exit: bool,
    // They stand in the place of the global ones, so that help does not offer what is refused.
    #[arg(long, hide = true)]
    data: Option<PathBuf>,
    #[arg(long, hide = true)]
    config: Option<PathBuf>,
}

impl Args {
    /// Whether a folder or a configuration was named.
    pub(super) fn names_a_place(&self) -> bool {
        self.data.is_some() || self.config.is_some()
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let data = folder.path().to_str().context("the temporary folder's path is not UTF-8")?;
    let sources = Sources::default().with_flag("--data", "data", Some(data.to_owned())).with_flag(
        "--listen",
        "http.listen",
        Some("127.0.0.1:0".to_owned()),
    );
    let config = Config::load(sources)?;
    let ended = super::runtime()?.block_on(async {
        let mut stop = Stop::listen()?;
        let server = Server::start(config, Arc::new(SystemClock)).await?;
        let report = tokio::select! {
            report = show(args, &server) => report?,
            () = stop.asked() => return anyhow::Ok(ExitCode::SUCCESS),
        };
        if !args.exit {
            let command = admin_token_command(&server.app.config.data);
            output::say(format_args!(
                "\nstill up at {}/docs/ until Ctrl-C\nadmin token: {command}",
                server.url(),
            ));
            stop.asked().await;
        }
        server.stop().await;
        Ok(if report.ok { ExitCode::SUCCESS } else { super::Exit::Failed.into() })
    });
    folder.close().context("cannot remove the temporary folder")?;
    ended
}

async fn show(args: &Args, server: &Server) -> anyhow::Result<Report> {
    let Args { stock, users, connections, .. } = *args;
    output::say(format_args!("a server on {}, its data in a temporary folder", server.url()));
    let now = SystemClock.now();
    let sale = open_sale(server, stock, now).await?;
    output::say(format_args!("a sale of {stock} units, one for each buyer, is open"));
    let crowd = Crowd::new(server, &sale, users, now)?;
    output::say(format_args!("{users} users come running over {connections} connections"));
    let result = crowd.run(connections, stock).await?;
    result.print()?;
    server.drain().await?;
    let report = audit::run(&server.app, Depth::RecordsAndLog, Mending::LookOnly).await?;
    let verdict = if report.ok { "all books agree" } else { "THE BOOKS DIFFER" };
    output::data(format_args!(
        "audit     {verdict}: engine = replayed log = records, {} claims and {} orders in {} ms",
        report.claims, report.orders, report.took_ms
    ))?;
    let granted = result.outcomes.get("granted").copied().unwrap_or(0);
    anyhow::ensure!(granted == u64::from(stock.min(users)), "{granted} units were granted");
    Ok(report)
}

async fn open_sale(server: &Server, stock: u32, now: Timestamp) -> anyhow::Result<String> {
    let headers = [(AUTHORIZATION, token(server, "admin", Role::Admin, now)?)];
    let sale = json!({
        "title": "Midnight phone", "sku": "phone-15", "stock": stock, "price_cents": 99_900,
        "flow": "order",
    });
    let mut client = Client::connect(server.address).await?;
    let answer = client.send_json(Method::POST, "/api/v1/sales", &headers, &sale).await?;
    anyhow::ensure!(answer.status == StatusCode::CREATED, "opening the sale: {:?}", answer.body);
    let sale: Value = answer.json()?;
    sale["id"].as_str().map(str::to_owned).context("the sale has no id")
}

fn token(server: &Server, user: &str, role: Role, now: Timestamp) -> anyhow::Result<HeaderValue> {
    let expires_at = now.plus_millis(TOKEN_TTL_MS);
    let who = Principal { user: UserId::new(user)?, role, identity: None, expires_at };
    Ok(HeaderValue::from_str(&server.app.tokens.mint(&who, now))?)
}

/// Everybody who wants one.
struct Crowd {
    address: SocketAddr,
    path: Uri,
    tokens: Vec<HeaderValue>,
    next: AtomicU64,
    granted: AtomicU64,
}

/// How it went.
struct Outcome {
    /// By `granted`, or the code of the refusal.
    outcomes: BTreeMap<String, u64>,
    latencies_us: Vec<u64>,
    took: Duration,
}

impl Crowd {
    fn new(server: &Server, sale: &str, users: u32, now: Timestamp) -> anyhow::Result<Arc<Self>> {
        let user = |number| token(server, &format!("user-{number}"), Role::Buyer, now);
        Ok(Arc::new(Self {
            address: server.address,
            path: format!("/api/v1/sales/{sale}/claims").parse()?,
            tokens: (1..=users).map(user).collect::<anyhow::Result<_>>()?,
            next: AtomicU64::new(0),
            granted: AtomicU64::new(0),
        }))
    }

    async fn run(self: &Arc<Self>, connections: u32, stock: u32) -> anyhow::Result<Outcome> {
        let view = View::new(stock, self.tokens.len() as u64);
        let watch = Stopwatch::start();
        let buyers: Vec<_> =
            (0..connections).map(|_| tokio::spawn(Arc::clone(self).buy())).collect();
        let drawing = {
            let (crowd, view) = (Arc::clone(self), view.clone());
            tokio::spawn(async move {
                loop {
                    view.draw(&crowd);
                    tokio::time::sleep(REDRAW).await;
                }
            })
        };
        let mut all =
            Outcome { outcomes: BTreeMap::new(), latencies_us: Vec::new(), took: Duration::ZERO };
        for buyer in buyers {
            let (outcomes, latencies) = buyer.await??;
            for (outcome, count) in outcomes {
                *all.outcomes.entry(outcome).or_default() += count;
            }
            all.latencies_us.extend(latencies);
        }
        all.took = watch.elapsed();
        drawing.abort();
        view.end();
        all.latencies_us.sort_unstable();
        Ok(all)
    }

    /// One connection, over which one user after the other asks once.
    async fn buy(self: Arc<Self>) -> anyhow::Result<(BTreeMap<String, u64>, Vec<u64>)> {
        let mut client = Client::connect(self.address).await?;
        let (mut outcomes, mut latencies) = (BTreeMap::new(), Vec::new());
        loop {
            let user = usize::try_from(self.next.fetch_add(1, Ordering::Relaxed))?;
            let Some(token) = self.tokens.get(user) else { return Ok((outcomes, latencies)) };
            let headers: [(HeaderName, HeaderValue); 1] = [(AUTHORIZATION, token.clone())];
            let watch = Stopwatch::start();
            let answer =
                client.send(Method::POST, self.path.clone(), &headers, Bytes::new()).await?;
            latencies.push(u64::try_from(watch.elapsed().as_micros())?);
            let outcome = if answer.status == StatusCode::CREATED {
                self.granted.fetch_add(1, Ordering::Relaxed);
                "granted".to_owned()
            } else {
                let problem: Value = answer.json()?;
                problem["code"].as_str().unwrap_or("unknown").to_owned()
            };
            *outcomes.entry(outcome).or_default() += 1;
        }
    }
}

/// What can be watched while it happens; on a terminal only.
#[derive(Clone)]
struct View {
    stock: ProgressBar,
    asked: ProgressBar,
}

impl View {
    fn new(stock: u32, users: u64) -> Self {
        let bars = MultiProgress::new();
        let bar = |len: u64, template: &str| {
            let bar = bars.add(ProgressBar::new(len));
            match ProgressStyle::with_template(template) {
                Ok(style) => bar.with_style(style),
                Err(_) => bar,
            }
        };
        Self {
            stock: bar(u64::from(stock), "  sold   {bar:40} {human_pos}/{human_len}"),
            asked: bar(users, "  asked  {bar:40} {human_pos}/{human_len}  {per_sec}"),
        }
    }

    fn draw(&self, crowd: &Crowd) {
        self.stock.set_position(crowd.granted.load(Ordering::Relaxed));
        let asked = crowd.next.load(Ordering::Relaxed);
        self.asked.set_position(asked.min(crowd.tokens.len() as u64));
    }

    fn end(&self) {
        self.stock.finish_and_clear();
        self.asked.finish_and_clear();
    }
}

impl Outcome {
    fn print(&self) -> anyhow::Result<()> {
        for (outcome, count) in &self.outcomes {
            output::data(format_args!("{outcome:<9} {count}"))?;
        }
        let asked = self.latencies_us.len();
        let secs = self.took.as_secs_f64();
        let at = |percent: usize| {
            let place = (asked * percent / 100).min(asked.saturating_sub(1));
            Duration::from_micros(self.latencies_us.get(place).copied().unwrap_or(0))
        };
        output::data(format_args!(
            "speed     {asked} claims decided in {secs:.2} s: {:.0} a second, half within {:.1?}, 99% within {:.1?}",
            asked as f64 / secs,
            at(50),
            at(99),
        ))?;
        Ok(())
    }
}
