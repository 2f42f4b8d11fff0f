//! One run from the first connection to the last word: prepares the server, the sale and the
//! crowd, watches the load, and compares the books at the end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::http::Uri;
use qiang_engine::{Clock as _, SystemClock};

use super::own::Own;
use super::target::{Signer, Target};
use super::{Args, crowd};
use crate::cli::serve::Stop;
use crate::cli::{Misuse, output};
use crate::config::Config;
use crate::tls;
use qiang_app::client::Client;
use qiang_app::json_time;
use qiang_load::http::Http;
use qiang_load::processor::Meter;
use qiang_load::resp::Resp;
use qiang_load::result::{Got, Level, Machine, Point, Run, Wanted, ended};
use qiang_load::scenario::PRICE_CENTS;
use qiang_load::view::{Moment, View};
use qiang_load::wire::{Door, Protocol, Wire};
use qiang_load::words::{figure, many};
use qiang_load::{Pace, Plan, Running};

/// The stock is looked at, and the view drawn, so often.
const WATCH: Duration = Duration::from_millis(250);
/// Plots of a short run have slices this long, those of a long one a second or more.
const SHORT_SLICE: Duration = Duration::from_millis(250);
const SHORT_RUN: Duration = Duration::from_secs(20);
/// A run has no more slices than a plot can show.
const PLOTTED_SLICES: u32 = 600;

/// One run from the first connection to the last word.
pub(super) struct Bench {
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
    pub(super) async fn prepare(
        args: &Args,
        config: &Config,
        plan: Plan,
        stock: u32,
    ) -> anyhow::Result<Self> {
        if let (Some(url), false) = (&args.url, args.remote) {
            stays_here(url).await?;
        }
        let (client, own) = match &args.url {
            Some(url) => (Client::connect_url(url, args.ca.as_deref()).await?, None),
            None => {
                let own = Own::start().await?;
                (Client::connect(own.address).await?, Some(own))
            }
        };
        let resp = match &own {
            Some(own) => Some(own.resp),
            None => args.resp.or(config.resp.listen),
        };
        if let (Protocol::Resp, Some(address), false) = (args.protocol, resp, args.remote) {
            ensure_here(address)?;
        }
        // Tokens that were brought along need no keys.
        let token = args.token();
        let needs_key =
            token.is_none() || (args.protocol == Protocol::Http && args.tokens.is_none());
        let signer = match &own {
            Some(own) => Some(Signer::of_own(own, plan.duration)?),
            None if needs_key => Some(Signer::of_config(config, plan.duration)?),
            None => None,
        };
        let admin = match (token, &signer) {
            (Some(token), _) => token,
            (None, Some(signer)) => signer.admin()?,
            (None, None) => anyhow::bail!("there is no admin's token"),
        };
        let mut target = Target::new(client, &admin)?;
        let address = target.address();
        let mut terms = plan.scenario.sale(stock, plan.duration.as_secs());
        terms["buckets"] = args.buckets.into();
        let tokens = match (args.protocol, &args.tokens, &signer) {
            (Protocol::Resp, ..) => Vec::new(),
            (Protocol::Http, Some(file), _) => crowd::read(file, plan.users)?,
            (Protocol::Http, None, Some(signer)) => crowd::minted(signer, plan.users)?,
            (Protocol::Http, None, None) => anyhow::bail!("there are no tokens for buyers"),
        };
        let resp = match args.protocol {
            Protocol::Http => None,
            Protocol::Resp => {
                Some(resp.ok_or(Misuse("say with --resp where the server speaks RESP"))?)
            }
        };
        if let Some(first) = tokens.first() {
            target.knows(first).await?;
        }
        let sale = target.open_sale(&terms).await?;
        let run = format!("bench-{:016x}", getrandom::u64().context("no random numbers")?);
        let door = match resp {
            None => {
                let host = host_of(args.url.as_deref(), address);
                let tls = target.tls().cloned().map(tls::for_load);
                Door { address, tls, wire: Wire::Http(Http::new(&host, &sale, &run, tokens)) }
            }
            Some(address) => {
                let names = crowd::names(plan.users);
                let wire = Resp::new(&sale, &run, &admin, names, PRICE_CENTS);
                Door { address, tls: None, wire: Wire::Resp(wire) }
            }
        };
        let wanted = Wanted::of(&plan, args.url.clone(), args.protocol, stock);
        let view = args.view(&plan, stock);
        Ok(Self { plan, stock, view, wanted, target, sale, door: Some(door), own })
    }

    pub(super) async fn run(&mut self, stop: &mut Stop) -> anyhow::Result<Run> {
        let door = self.door.take().context("a run is made once")?;
        let started_at = json_time::format(SystemClock.now()).to_string();
        if !matches!(self.view, View::Quiet) {
            output::say(self.intent());
        }
        let mut running = Running::start(self.plan, door).await?;
        let mut meter = Meter::start();
        let levels = self.watch(&mut running, meter.as_mut(), stop).await;
        self.view.end();
        let levels = levels?;
        let work = running.join();
        let took = work.elapsed();
        let processor = meter.as_ref().and_then(Meter::result);
        work.desk().recorder.cut(took, meter.as_mut().and_then(Meter::stolen));
        if !matches!(self.view, View::Quiet) {
            output::say("the load has ended: comparing the books …");
        }
        let (books, audit) = tokio::select! {
            books = self.target.books(&self.sale) => match books {
                Ok((books, audit)) => (Ok(books), Some(audit)),
                Err(error) => (Err(error), None),
            },
            () = stop.asked() => anyhow::bail!("interrupted before the books were compared"),
        };
        let desk = work.desk();
        let verdict = match &books {
            Ok(books) => desk.tally.verdict(books, self.plan.scenario.limit_per_user()),
            Err(error) => desk.tally.unproven(&format!("{error:#}")),
        };
        let by_request = desk.recorder.by_verb().into_iter();
        Ok(Run {
            version: env!("CARGO_PKG_VERSION"),
            started_at,
            command: command(),
            machine: Machine::this(),
            wanted: self.wanted.clone(),
            got: Got::of(&desk.recorder, &self.sale, took, processor),
            outcomes: ended(&desk.recorder),
            latency: desk.recorder.latency(),
            service: desk.recorder.service(),
            latency_by_request: by_request.map(|(verb, p)| (verb.word(), p)).collect(),
            series: desk.recorder.slices().iter().map(Point::from).collect(),
            stock: levels,
            books: books.ok(),
            audit,
            verdict,
        })
    }

    /// Looks at the stock and draws, until the load has ended; Ctrl-C ends it early.
    async fn watch(
        &mut self,
        running: &mut Running,
        mut meter: Option<&mut Meter>,
        stop: &mut Stop,
    ) -> anyhow::Result<Vec<Level>> {
        let slice = slice_of(self.plan.duration);
        let work = Arc::clone(&running.work);
        let mut levels = vec![Level { at_secs: 0.0, available: self.stock.into() }];
        let (mut drawn, mut hurried) = (Duration::ZERO, false);
        loop {
            let over = tokio::select! {
                () = tokio::time::sleep(WATCH) => false,
                () = running.ended() => true,
                () = stop.asked() => {
                    anyhow::ensure!(!hurried, "interrupted: nobody knows whether it was exact");
                    output::say("stopping: waiting for what is under way …");
                    work.hurry();
                    hurried = true;
                    false
                }
            };
            let asked_at = work.elapsed();
            if let Some(meter) = &mut meter {
                meter.look(asked_at);
            }
            let available = self.target.sale(&self.sale).await.ok().map(|sale| sale.available);
            if let Some(available) = available {
                let at_secs = asked_at.as_secs_f64();
                levels.push(Level { at_secs, available });
            }
            if over {
                return Ok(levels);
            }
            let cut = {
                let mut desk = work.desk();
                let due = asked_at.saturating_sub(desk.recorder.slice_from()) + WATCH / 2 >= slice;
                if due {
                    let stolen = meter.as_mut().and_then(|meter| meter.stolen());
                    desk.recorder.cut(work.elapsed(), stolen);
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
    pub(super) async fn end(mut self) -> anyhow::Result<()> {
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

/// Before anything is sent: a load test is for this machine, unless it is said otherwise.
async fn stays_here(url: &str) -> anyhow::Result<()> {
    let uri: Option<Uri> = url.parse().ok();
    let Some(authority) = uri.as_ref().and_then(Uri::authority) else { return Ok(()) };
    let place = format!("{}:{}", authority.host(), authority.port_u16().unwrap_or(80));
    let addresses = tokio::net::lookup_host(&place).await;
    for address in addresses.with_context(|| format!("cannot find {place}"))? {
        ensure_here(address)?;
    }
    Ok(())
}

fn ensure_here(address: SocketAddr) -> anyhow::Result<()> {
    anyhow::ensure!(
        address.ip().is_loopback(),
        "{address} is not this machine. A load test can bring a server down: if it is yours and \
         meant to be tested, say --remote"
    );
    Ok(())
}

fn host_of(url: Option<&str>, address: SocketAddr) -> String {
    let uri: Option<Uri> = url.and_then(|url| url.parse().ok());
    let host = uri.as_ref().and_then(Uri::authority).map(ToString::to_string);
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
