//! `qiang bench`: a crowd for a server, what it felt, and whether the sale was exact.

mod crowd;
mod own;
mod stage;
mod target;

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;

use super::serve::Stop;
use crate::config::Config;
use qiang_app::cli::{Exit, Misuse, output, token_for};
use qiang_load::page;
use qiang_load::result::{Got, Run};
use qiang_load::scenario::Scenario;
use qiang_load::schedule::Spacing;
use qiang_load::view::View;
use qiang_load::wire::Protocol;
use qiang_load::words::{amount, busy, duration, figure, latency, many};
use qiang_load::{Pace, Plan};
use stage::Bench;

const LONGEST_RUN: Duration = Duration::from_secs(24 * 3_600);
const SHORTEST_RUN: Duration = Duration::from_millis(100);
const DEFAULT_RATE: f64 = 2_000.0;
const MIN_RATE: f64 = 0.01;
const MAX_RATE: f64 = 1_000_000.0;
const MAX_USERS: u32 = 2_000_000;
const MAX_STOCK: u32 = 1 << 31;
const DEFAULT_CONNECTIONS: u32 = 64;

const EXAMPLES: &str = "\
Examples:
  qiang bench                                          60,000 users in 30 s, a unit for one in ten
  qiang bench --rate 10000 --html report.html          the same at 10,000 a second, with plots
  qiang bench --scenario mixed --duration 2m           claims, orders, payments, give-ups, looks
  qiang bench --clients 128 --json -                   as fast as 128 clients can, JSON on stdout
  qiang bench --url http://127.0.0.1:8080 --data DIR   a server that runs already

Open loop (--rate): arrivals are planned before the run, and latency counts from the planned time,
so a server that slows down cannot hide it. Closed loop (--clients): every client asks again as
soon as it was answered; latency counts from the sending.

Exit code 0 only if what clients were told is what the books say.";

/// Send a crowd at a server, measure, and check that the sale was exact
///
/// Without --url it starts a server of its own in a temporary folder, and removes it. With --url
/// it opens a sale of its own on that server, touches no other, and closes it at the end; for
/// that it needs the keys of the server (--data, --config) or tokens made with them.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// A running server, like http://127.0.0.1:8080 or https://shop.example [default: one of its own]
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// With https: a PEM file with the certificate to trust, of the server or of its CA [default:
    /// whom the system trusts]
    #[arg(long, value_name = "FILE", requires = "url")]
    ca: Option<PathBuf>,
    /// An admin's token for that server [default: $QIANG_TOKEN, or made with the keys in the data
    /// folder]
    #[arg(long, value_name = "TOKEN", requires = "url")]
    token: Option<String>,
    /// Tokens of buyers, from `qiang tokens --count N --out FILE` [default: made with the keys]
    #[arg(long, value_name = "FILE", requires = "url")]
    tokens: Option<PathBuf>,
    /// Let the load leave this machine
    #[arg(long, requires = "url")]
    remote: bool,
    /// Which door the crowd comes through
    #[arg(long, value_enum, default_value = "http")]
    protocol: Protocol,
    /// Where the server speaks RESP, like 127.0.0.1:6380 [default: [resp] listen]
    #[arg(long, value_name = "ADDR", requires = "url")]
    resp: Option<SocketAddr>,
    /// What kind of crowd
    #[arg(long, value_enum, default_value = "sellout")]
    scenario: Scenario,
    /// Arrivals a second, whatever the server does (open loop) [default: 2000]
    #[arg(long, value_name = "N", value_parser = rate, conflicts_with = "clients",
        allow_hyphen_values = true)]
    rate: Option<f64>,
    /// How arrivals are spaced
    #[arg(long, value_enum, default_value = "uniform", conflicts_with = "clients")]
    arrivals: Spacing,
    /// So many clients, each asking as soon as it was answered (closed loop)
    #[arg(long, value_name = "N", value_parser = super::number(1..=4_096_u32),
        allow_negative_numbers = true)]
    clients: Option<u32>,
    /// How long, like 30s, 500ms or 2m; a sellout may end before
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = length,
        allow_hyphen_values = true)]
    duration: Duration,
    /// Users [default: sellout: as many as arrive; storm: 1000; otherwise 10000]
    #[arg(long, value_name = "N", allow_negative_numbers = true,
        value_parser = super::number(1..=MAX_USERS))]
    users: Option<u32>,
    /// Units for sale [default: sellout: a tenth of the users; storm: half; steady: enough]
    #[arg(long, value_name = "N", allow_negative_numbers = true,
        value_parser = super::number(1..=MAX_STOCK))]
    stock: Option<u32>,
    /// Buckets the sale is spread over; only an engine on Redis uses them
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true,
        value_parser = super::number(1..=qiang_core::MAX_BUCKETS))]
    buckets: u16,
    /// Connections that arrivals share in an open loop [default: 64]
    #[arg(long, value_name = "N", conflicts_with = "clients",
        value_parser = super::number(1..=4_096_u32))]
    connections: Option<u32>,
    /// Requests on their way over one connection at once; RESP only
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = super::number(1..=1_024_u32))]
    pipeline: u32,
    /// What decides all chance, so that a run can be repeated
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the result as JSON; - is stdout
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a report with plots, as one HTML file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Show nothing while it runs
    #[arg(long)]
    quiet: bool,
}

pub(super) fn run(args: &Args, config: &Config) -> anyhow::Result<ExitCode> {
    super::log_to_stderr(config)?;
    let (plan, stock) = args.plan()?;
    for path in args.json.iter().chain(&args.html) {
        writable(path)?;
    }
    let result = super::runtime()?.block_on(async {
        let mut stop = Stop::listen()?;
        let mut bench = Bench::prepare(args, config, plan, stock).await?;
        let result = bench.run(&mut stop).await;
        let ended = bench.end().await;
        anyhow::Ok((result?, ended))
    })?;
    let (result, ended) = result;
    // The verdict is the last word.
    if let Err(error) = &ended {
        output::say(format_args!("not closed: {error:#}"));
    }
    args.tell(&result)?;
    Ok(if result.verdict.exact && ended.is_ok() { ExitCode::SUCCESS } else { Exit::Failed.into() })
}

impl Args {
    /// An admin's token that was brought along.
    fn token(&self) -> Option<String> {
        token_for(self.url.as_deref(), self.token.as_deref())
    }

    /// Whether there is a server already.
    pub(super) const fn has_server(&self) -> bool {
        self.url.is_some()
    }

    /// What to do, and how many units to sell.
    fn plan(&self) -> anyhow::Result<(Plan, u32)> {
        if self.pipeline > 1 && self.protocol != Protocol::Resp {
            let told =
                "--pipeline goes with --protocol resp: buyers over HTTP wait for their answers";
            return Err(Misuse(told).into());
        }
        let pace = match (self.clients, self.rate.unwrap_or(DEFAULT_RATE)) {
            (Some(_), _) => Pace::Closed,
            (None, per_sec) => Pace::Open { per_sec, spacing: self.arrivals },
        };
        let arrivals = match pace {
            Pace::Open { per_sec, .. } => Some(arrivals(per_sec, self.duration)),
            Pace::Closed => None,
        };
        let users = self.users.unwrap_or_else(|| match self.scenario {
            Scenario::Sellout => arrivals.unwrap_or(100_000).clamp(1, MAX_USERS),
            Scenario::Storm => 1_000,
            Scenario::Steady | Scenario::Mixed => 10_000,
        });
        let stock = self.stock.unwrap_or_else(|| match self.scenario {
            Scenario::Sellout => users / 10,
            Scenario::Storm => users / 2,
            Scenario::Steady => arrivals.map_or(10_000_000, |n| n.saturating_add(n / 10 + 10)),
            Scenario::Mixed => arrivals.map_or(10_000, |n| n / 5),
        });
        let connections = self.clients.or(self.connections).unwrap_or(DEFAULT_CONNECTIONS);
        let plan = Plan {
            scenario: self.scenario,
            pace,
            duration: self.duration,
            users,
            connections: usize::try_from(connections)?,
            depth: usize::try_from(self.pipeline)?,
            seed: self.seed,
        };
        Ok((plan, stock.clamp(1, MAX_STOCK)))
    }

    fn view(&self, plan: &Plan, stock: u32) -> View {
        if self.quiet {
            View::Quiet
        } else if std::io::stderr().is_terminal() {
            View::block(plan.pace, plan.duration, stock)
        } else {
            View::lines(plan.pace, |line| output::say(line))
        }
    }

    /// The result in short, and where it was asked for.
    fn tell(&self, run: &Run) -> anyhow::Result<()> {
        summary(run);
        if let Some(path) = &self.html {
            write(path, &page::html(run))?;
        }
        if let Some(path) = &self.json {
            write(path, &(serde_json::to_string_pretty(run)? + "\n"))?;
        }
        Ok(())
    }
}

fn summary(run: &Run) {
    let Got { requests, errors, per_sec, took_secs, resent, .. } = run.got;
    output::say(format_args!(
        "{} in {took_secs:.1} s: {} a second{}, {}{}",
        many(requests, "request", "requests"),
        figure(per_sec.round()),
        run.wanted.rate.map(|rate| format!(" of {} wanted", figure(rate))).unwrap_or_default(),
        many(errors, "error", "errors"),
        if resent > 0 { format!(", {} sent again", amount(resent)) } else { String::new() },
    ));
    let p = run.latency;
    output::say(format_args!(
        "latency  p50 {}  p90 {}  p99 {}  p99.9 {}  max {}",
        latency(p.p50_us),
        latency(p.p90_us),
        latency(p.p99_us),
        latency(p.p999_us),
        latency(p.max_us)
    ));
    if let Some(processor) = run.got.processor {
        output::say(format_args!("machine  {}", busy(processor)));
    }
    for ended in &run.outcomes {
        output::say(format_args!(
            "  {:<8} {:<16} {}",
            ended.request,
            ended.outcome,
            amount(ended.count)
        ));
    }
    output::say(&run.verdict.line);
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    if path.as_os_str() == "-" {
        return Ok(output::data(text.trim_end())?);
    }
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Fails now rather than after the load. What is there already stays until there is a result.
fn writable(path: &Path) -> anyhow::Result<()> {
    if path.as_os_str() == "-" {
        return Ok(());
    }
    let opened = std::fs::OpenOptions::new().create(true).append(true).open(path);
    opened.map(drop).with_context(|| format!("cannot write {}", path.display()))
}

fn arrivals(per_sec: f64, duration: Duration) -> u32 {
    let count = (per_sec * duration.as_secs_f64()).ceil();
    // In range by the bounds of both, and if not, as many as can be.
    format!("{count:.0}").parse().unwrap_or(MAX_STOCK)
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    if (MIN_RATE..=MAX_RATE).contains(&rate) {
        return Ok(rate);
    }
    Err(format!("a rate is from {MIN_RATE} to {} a second", figure(MAX_RATE)))
}

fn length(text: &str) -> Result<Duration, String> {
    let length = duration(text)?;
    if (SHORTEST_RUN..=LONGEST_RUN).contains(&length) {
        return Ok(length);
    }
    Err("a run takes from 100ms to 24h".to_owned())
}
