//! `qiang demo`: a sale from opening to audit, or a red packet, with a crowd over real HTTP.

mod packets;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderValue, Method, StatusCode};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use qiang_app::cli::output::many;
use qiang_core::{Timestamp, UserId};
use qiang_engine::{Clock as _, SystemClock};
use qiang_load::ask::Verb;
use qiang_load::http::Http;
use qiang_load::result::{Ended, ended};
use qiang_load::scenario::Scenario;
use qiang_load::wire::{Door, Wire};
use qiang_load::work::Work;
use qiang_load::{Pace, Plan, Running};
use serde_json::{Value, json};

use super::serve::{Stop, admin_token_command};
use crate::config::Config;
use crate::server::Server;
use qiang_app::cli::{Exit, output};
use qiang_app::client::Client;
use qiang_app::config::Sources;
use qiang_app::token::{Principal, Role};
use qiang_recovery::audit::{Depth, Mending, Report};

const TOKEN_TTL_MS: u64 = 3_600_000;
const REDRAW: Duration = Duration::from_millis(100);

/// Show a sale from opening to audit
///
/// Starts a server on a temporary folder, opens a sale, sends a crowd of distinct users at it
/// over real HTTP, shows who got what and how fast, and checks all books against each other.
/// Then it stays up to be looked at, until Ctrl-C.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Args {
    #[command(subcommand)]
    what: Option<What>,
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
    #[arg(long, global = true)]
    exit: bool,
    // They stand in the place of the global ones, so that help does not offer what is refused.
    #[arg(long, hide = true)]
    data: Option<PathBuf>,
    #[arg(long, hide = true)]
    config: Option<PathBuf>,
}

/// What is shown instead of a sale.
#[derive(Debug, clap::Subcommand)]
enum What {
    Packets(packets::PacketsArgs),
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
        Ok(if report.ok { ExitCode::SUCCESS } else { Exit::Failed.into() })
    });
    folder.close().context("cannot remove the temporary folder")?;
    ended
}

async fn show(args: &Args, server: &Server) -> anyhow::Result<Report> {
    if let Some(What::Packets(args)) = &args.what {
        return packets::show(args, server).await;
    }
    let Args { stock, users, connections, .. } = *args;
    output::say(format_args!("a server on {}, its data in a temporary folder", server.url()));
    let now = SystemClock.now();
    let sale = open_sale(server, stock, now).await?;
    let units = many(stock.into(), "unit", "units");
    output::say(format_args!("a sale of {units}, one for each buyer, is open"));
    let crowd_of = many(users.into(), "user comes", "users come");
    let over = many(connections.into(), "connection", "connections");
    output::say(format_args!("{crowd_of} running over {over}"));
    let granted = print(&*crowd(server, &sale, args, now).await?)?;
    server.drain().await?;
    let report = server.domains.audit.run(Depth::RecordsAndLog, Mending::LookOnly).await?;
    let verdict = if report.ok { "all books agree" } else { "THE BOOKS DIFFER" };
    output::data(format_args!(
        "audit     {verdict}: engine = replayed log = records, {} and {} in {} ms",
        many(report.claims, "claim", "claims"),
        many(report.orders, "order", "orders"),
        report.took_ms
    ))?;
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

/// Sends everybody at the sale, each once, and draws meanwhile.
async fn crowd(
    server: &Server,
    sale: &str,
    args: &Args,
    now: Timestamp,
) -> anyhow::Result<Arc<Work>> {
    let user = |number| -> anyhow::Result<Box<str>> {
        Ok(token(server, &format!("user-{number}"), Role::Buyer, now)?.to_str()?.into())
    };
    let tokens = (1..=args.users).map(user).collect::<anyhow::Result<_>>()?;
    let http = Http::new(&server.address.to_string(), sale, "demo", tokens);
    let plan = Plan {
        scenario: Scenario::Sellout,
        pace: Pace::Closed,
        duration: Duration::MAX,
        users: args.users,
        connections: args.connections as usize,
        depth: 1,
        seed: 0,
    };
    let door = Door { address: server.address, tls: None, wire: Wire::Http(http) };
    let mut running = Running::start(plan, door).await?;
    let bars = Bars::new(args.stock, args.users);
    loop {
        tokio::select! {
            () = tokio::time::sleep(REDRAW) => bars.draw(&running.work),
            () = running.ended() => break,
        }
    }
    bars.end();
    Ok(running.join())
}

/// What can be watched while it happens; on a terminal only.
struct Bars {
    sold: ProgressBar,
    asked: ProgressBar,
}

impl Bars {
    fn new(stock: u32, users: u32) -> Self {
        let bars = MultiProgress::new();
        let bar = |len: u32, template: &str| {
            let bar = bars.add(ProgressBar::new(len.into()));
            match ProgressStyle::with_template(template) {
                Ok(style) => bar.with_style(style),
                Err(_) => bar,
            }
        };
        Self {
            sold: bar(stock, "  sold   {bar:40} {human_pos}/{human_len}"),
            asked: bar(users, "  asked  {bar:40} {human_pos}/{human_len}  {per_sec}"),
        }
    }

    fn draw(&self, work: &Work) {
        let ended = ended(&work.desk().recorder);
        self.sold.set_position(granted(&ended));
        self.asked.set_position(ended.iter().map(|ended| ended.count).sum());
    }

    fn end(&self) {
        self.sold.finish_and_clear();
        self.asked.finish_and_clear();
    }
}

fn granted(ended: &[Ended]) -> u64 {
    let granted = ended.iter().filter(|ended| ended.outcome == Verb::Claim.done());
    granted.map(|ended| ended.count).sum()
}

/// Says who got what and how fast; gives how many were granted.
fn print(work: &Work) -> anyhow::Result<u64> {
    let (desk, secs) = (work.desk(), work.elapsed().as_secs_f64());
    let ended = ended(&desk.recorder);
    for Ended { outcome, count, .. } in &ended {
        output::data(format_args!("{outcome:<9} {count}"))?;
    }
    let latency = desk.recorder.latency();
    output::data(format_args!(
        "speed     {} decided in {secs:.2} s: {:.0} a second, half within {:.1?}, 99% within {:.1?}",
        many(latency.count, "claim", "claims"),
        latency.count as f64 / secs,
        Duration::from_micros(latency.p50_us),
        Duration::from_micros(latency.p99_us),
    ))?;
    Ok(granted(&ended))
}
