//! `qiang bench`: a crowd for a server, what it felt, and whether the sale was exact.

mod crowd;
mod own;
mod target;

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use qiang_engine::{Clock as _, SystemClock};

use super::output;
use super::serve::Stop;
use crate::client::Client;
use crate::config::Config;
use crate::http::json_time;
use crate::load::http::Http;
use crate::load::resp::Resp;
use crate::load::result::{Got, Level, Machine, Point, Run, Wanted, ended};
use crate::load::scenario::{PRICE_CENTS, Scenario};
use crate::load::schedule::Spacing;
use crate::load::view::{Moment, View};
use crate::load::wire::{Door, Protocol, Wire};
use crate::load::words::{amount, duration, figure, latency, many};
use crate::load::{Pace, Plan, Running};
use own::Own;
use target::{Signer, Target};

/// The stock is looked at, and the view drawn, so often.
const WATCH: Duration = Duration::from_millis(250);
/// Plots of a short run have slices this long, those of a long one a second or more.
const SHORT_SLICE: Duration = Duration::from_millis(250);
const SHORT_RUN: Duration = Duration::from_secs(20);
/// A run has no more slices than a plot can show.
const PLOTTED_SLICES: u32 = 600;
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
  qiang bench                                          60,000 users in 30 s, one for each tenth
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
    /// A running server, like http://127.0.0.1:8080 [default: one of its own]
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// An admin's token for that server [default: made with the keys in the data folder]
    #[arg(
        long,
        value_name = "TOKEN",
        requires = "url",
        env = "QIANG_TOKEN",
        hide_env_values = true
    )]
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
    #[arg(long, value_name = "N", value_parser = rate, conflicts_with = "clients")]
    rate: Option<f64>,
    /// How arrivals are spaced
    #[arg(long, value_enum, default_value = "uniform", conflicts_with = "clients")]
    arrivals: Spacing,
    /// So many clients, each asking as soon as it was answered (closed loop)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4_096))]
    clients: Option<u32>,
    /// How long, like 30s, 500ms or 2m; a sellout may end before
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = length)]
    duration: Duration,
    /// Users [default: sellout: as many as arrive; storm: 1000; otherwise 10000]
    #[arg(long, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_USERS)))]
    users: Option<u32>,
    /// Units for sale [default: sellout: a tenth of the users; storm: half; steady: enough]
    #[arg(long, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_STOCK)))]
    stock: Option<u32>,
    /// Connections that arrivals share in an open loop [default: 64]
    #[arg(long, value_name = "N", conflicts_with = "clients",
        value_parser = clap::value_parser!(u32).range(1..=4_096))]
    connections: Option<u32>,
    /// Requests on their way over one connection at once; RESP only
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=1_024))]
    pipeline: u32,
    /// What decides all chance, so that a run can be repeated
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the result as JSON; - is stdout
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Show nothing while it runs
    #[arg(long)]
    quiet: bool,
}

pub(super) fn run(args: &Args, config: &Config) -> anyhow::Result<ExitCode> {
    super::log_to_stderr(config)?;
    let (plan, stock) = args.plan()?;
    for path in args.json.iter() {
        writable(path)?;
    }
    let result = super::runtime()?.block_on(async {
        let mut stop = Stop::listen()?;
        let mut bench = Bench::prepare(args, config, plan, stock).await?;
        let result = bench.run(&mut stop).await;
        let ended = bench.end().await;
        let result = result?;
        ended?;
        anyhow::Ok(result)
    })?;
    args.tell(&result)?;
    Ok(if result.verdict.exact { ExitCode::SUCCESS } else { super::Exit::Failed.into() })
}

impl Args {
    /// What to do, and how many units to sell.
    fn plan(&self) -> anyhow::Result<(Plan, u32)> {
        anyhow::ensure!(
            self.pipeline == 1 || self.protocol == Protocol::Resp,
            "--pipeline goes with --protocol resp: buyers over HTTP wait for their answers"
        );
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
            Scenario::Mixed => arrivals.map_or(10_000, |n| n / 10),
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

    /// The result, where it was asked for, and in short.
    fn tell(&self, run: &Run) -> anyhow::Result<()> {
        if let Some(path) = &self.json {
            let json = serde_json::to_string_pretty(run)?;
            if path.as_os_str() == "-" {
                output::data(json)?;
            } else {
                std::fs::write(path, json + "\n")
                    .with_context(|| format!("cannot write {}", path.display()))?;
            }
        }
        summary(run);
        Ok(())
    }
}

/// One run from the first connection to the last word.
struct Bench {
    plan: Plan,
    stock: u32,
    view: View,
    wanted: Wanted,
    target: Target,
    sale: String,
    door: Option<Door>,
    own: Option<Own>,
}

impl Bench {
    async fn prepare(args: &Args, config: &Config, plan: Plan, stock: u32) -> anyhow::Result<Self> {
        let (client, own) = match &args.url {
            Some(url) => (Client::connect_url(url).await?, None),
            None => {
                let own = Own::start().await?;
                (Client::connect(own.address).await?, Some(own))
            }
        };
        let resp = match &own {
            Some(own) => Some(own.resp),
            None => args.resp.or(config.resp.listen),
        };
        let resp = resp.filter(|_| args.protocol == Protocol::Resp);
        for address in [Some(client.address()), resp].into_iter().flatten() {
            anyhow::ensure!(
                address.ip().is_loopback() || args.remote,
                "{address} is not this machine. A load test can bring a server down: if it is \
                 yours and meant to be tested, say --remote"
            );
        }
        // Tokens that were brought along need no keys.
        let needs_key =
            args.token.is_none() || (args.protocol == Protocol::Http && args.tokens.is_none());
        let signer = match &own {
            Some(own) => Some(Signer::of_own(own, plan.duration)?),
            None if needs_key => Some(Signer::of_config(config, plan.duration)?),
            None => None,
        };
        let admin = match (&args.token, &signer) {
            (Some(token), _) => token.clone(),
            (None, Some(signer)) => signer.admin()?,
            (None, None) => anyhow::bail!("there is no admin's token"),
        };
        let mut target = Target::new(client, &admin)?;
        let address = target.address();
        let terms = plan.scenario.sale(stock, plan.duration.as_secs());
        let tokens = match (args.protocol, &args.tokens, &signer) {
            (Protocol::Resp, ..) => Vec::new(),
            (Protocol::Http, Some(file), _) => crowd::read(file, plan.users)?,
            (Protocol::Http, None, Some(signer)) => crowd::minted(signer, plan.users)?,
            (Protocol::Http, None, None) => anyhow::bail!("there are no tokens for buyers"),
        };
        let sale = target.open_sale(&terms).await?;
        let run = format!("bench-{:016x}", getrandom::u64().context("no random numbers")?);
        let door = match args.protocol {
            Protocol::Http => {
                if let Some(first) = tokens.first() {
                    target.knows(first).await?;
                }
                let host = host_of(args.url.as_deref(), address);
                Door { address, wire: Wire::Http(Http::new(&host, &sale, &run, tokens)) }
            }
            Protocol::Resp => {
                let address = resp.context("say with --resp where the server speaks RESP")?;
                let names = crowd::names(plan.users);
                let wire = Resp::new(&sale, &run, &admin, names, PRICE_CENTS);
                Door { address, wire: Wire::Resp(wire) }
            }
        };
        let wanted = Wanted::of(&plan, args.url.clone(), args.protocol, stock);
        let view = args.view(&plan, stock);
        Ok(Self { plan, stock, view, wanted, target, sale, door: Some(door), own })
    }

    async fn run(&mut self, stop: &mut Stop) -> anyhow::Result<Run> {
        let door = self.door.take().context("a run is made once")?;
        let started_at = json_time::format(SystemClock.now()).to_string();
        if !matches!(self.view, View::Quiet) {
            output::say(self.intent());
        }
        let mut running = Running::start(self.plan, door).await?;
        let levels = self.watch(&mut running, stop).await;
        self.view.end();
        let work = running.join();
        let took = work.elapsed();
        work.desk().recorder.cut(took);
        if !matches!(self.view, View::Quiet) {
            output::say("the load has ended: comparing the books …");
        }
        let (books, audit) = self.target.books(&self.sale).await?;
        let desk = work.desk();
        let verdict = desk.ledger.verdict(&books, self.plan.scenario.limit_per_user());
        let by_request = desk.recorder.by_verb().into_iter();
        Ok(Run {
            version: env!("CARGO_PKG_VERSION"),
            started_at,
            command: command(),
            machine: Machine::this(),
            wanted: self.wanted.clone(),
            got: Got::of(&desk.recorder, &self.sale, took),
            outcomes: ended(&desk.recorder),
            latency: desk.recorder.latency(),
            service: desk.recorder.service(),
            latency_by_request: by_request.map(|(verb, p)| (verb.word(), p)).collect(),
            series: desk.recorder.slices().iter().map(Point::from).collect(),
            stock: levels,
            books,
            audit,
            verdict,
        })
    }

    /// Looks at the stock and draws, until the load has ended; Ctrl-C ends it early.
    async fn watch(&mut self, running: &mut Running, stop: &mut Stop) -> Vec<Level> {
        let slice = slice_of(self.plan.duration);
        let work = std::sync::Arc::clone(&running.work);
        let mut levels = vec![Level { at_secs: 0.0, available: self.stock.into() }];
        let mut drawn = Duration::ZERO;
        loop {
            let over = tokio::select! {
                () = tokio::time::sleep(WATCH) => false,
                () = running.ended() => true,
                () = stop.asked(), if !work.is_stopped() => {
                    output::say("stopping: waiting for what is under way …");
                    work.stop();
                    false
                }
            };
            let asked_at = work.elapsed();
            let available = self.target.sale(&self.sale).await.ok().map(|sale| sale.available);
            if let Some(available) = available {
                let at_secs = asked_at.as_secs_f64();
                levels.push(Level { at_secs, available });
            }
            if over {
                return levels;
            }
            let cut = {
                let mut desk = work.desk();
                let due = asked_at.saturating_sub(desk.recorder.slice_from()) + WATCH / 2 >= slice;
                if due {
                    desk.recorder.cut(work.elapsed());
                }
                due
            };
            let second = drawn.as_secs() != asked_at.as_secs();
            if (cut && matches!(self.view, View::Block(_))) || second {
                drawn = asked_at;
                self.view.draw(&Moment::of(&work, available));
            }
        }
    }

    /// Closes the sale, or ends the server altogether.
    async fn end(mut self) -> anyhow::Result<()> {
        match self.own {
            Some(own) => own.stop().await,
            None => self.target.close(&self.sale).await,
        }
    }

    fn intent(&self) -> String {
        let Plan { scenario, pace, users, connections, .. } = self.plan;
        let how = match pace {
            Pace::Open { per_sec, .. } => format!("{} a second over", figure(per_sec)),
            Pace::Closed => "as fast as they can over".to_owned(),
        };
        format!(
            "{}: {} for {}, {how} {}, at {}",
            scenario.word(),
            many(users.into(), "user", "users"),
            many(self.stock.into(), "unit", "units"),
            many(connections as u64, "connection", "connections"),
            self.target.address()
        )
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

/// Fails now rather than after the load. What is there already stays until there is a result.
fn writable(path: &Path) -> anyhow::Result<()> {
    if path.as_os_str() == "-" {
        return Ok(());
    }
    let opened = std::fs::OpenOptions::new().create(true).append(true).open(path);
    opened.map(drop).with_context(|| format!("cannot write {}", path.display()))
}

fn host_of(url: Option<&str>, address: SocketAddr) -> String {
    let uri: Option<axum::http::Uri> = url.and_then(|url| url.parse().ok());
    let host = uri.as_ref().and_then(|uri| uri.authority()).map(ToString::to_string);
    host.unwrap_or_else(|| address.to_string())
}

/// The command line, without what is secret in it.
fn command() -> String {
    let mut words = Vec::new();
    let mut hide = false;
    for word in std::env::args().skip(1) {
        let (flag, value) = word.split_once('=').unzip();
        words.push(match (hide, flag, value) {
            (true, ..) => "…".to_owned(),
            (false, Some("--token"), Some(_)) => "--token=…".to_owned(),
            _ => word.clone(),
        });
        hide = word == "--token";
    }
    format!("qiang {}", words.join(" "))
}

fn slice_of(run: Duration) -> Duration {
    if run <= SHORT_RUN {
        return SHORT_SLICE;
    }
    Duration::from_secs((run / PLOTTED_SLICES).as_secs().max(1))
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
