//! A whole qiang in one process: opened in order, shut down in the opposite one.

use std::net::SocketAddr;
use std::sync::Arc;

use qiang_delivery::feed::Feed;
use qiang_engine::{Clock, Engine};
use qiang_store::Store;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use qiang_app::config::BusUrl;
use qiang_app::{App, Domain};

use crate::config::Config;
use crate::domains::Domains;
use crate::give_back::{self, Spare};
use crate::http::{self, Door};
use crate::listener::{Connections, ListenError, Listener, listen};
use crate::resp;
use crate::tls::{self, Certificates, Protocol};
use crate::traces::{self, Traces};
use qiang_app::consumer::{self, Part, Progress, Stop};
use qiang_app::jobs::{Jobs, Runner};
use qiang_app::running;
use qiang_app::secrets::{self, Secrets};
use qiang_app::workers::Workers;
use qiang_recovery::opened::{self, Opened};
use qiang_sales::records::{Records, Rules};

/// Why a server did not start. What it had opened is closed again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be had.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// There is no TLS.
    #[error(transparent)]
    Tls(#[from] qiang_app::tls::Error),
    /// Traces cannot be sent.
    #[error(transparent)]
    Traces(#[from] traces::Error),
    /// The engine or the records cannot be opened.
    #[error(transparent)]
    Open(#[from] opened::Error),
    /// The records cannot be read.
    #[error(transparent)]
    Store(#[from] qiang_store::Error),
    /// The keys cannot be read or made.
    #[error(transparent)]
    Secrets(#[from] secrets::Error),
    /// A consumer of the logs cannot begin.
    #[error(transparent)]
    Consumer(#[from] consumer::Error),
    /// The note about the running server cannot be left.
    #[error(transparent)]
    Running(#[from] running::Error),
}

/// A server at work.
#[derive(Debug)]
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    /// Where it answers health checks besides, if it does.
    pub health_address: Option<SocketAddr>,
    /// Where it listens for RESP, if it does.
    pub resp_address: Option<SocketAddr>,
    /// What the operator decided.
    pub config: Config,
    /// What it works with.
    pub app: Arc<App>,
    /// Who does its work.
    pub domains: Arc<Domains>,
    /// What its doors show to clients that come by TLS.
    pub certificates: Certificates,
    traces: Option<Arc<Traces>>,
    stop_serving: CancellationToken,
    serving: Vec<JoinHandle<()>>,
    workers: Workers,
    note: running::Note,
}

impl Server {
    /// Opens everything and begins to serve.
    pub async fn start(config: Config, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        // The address first: it is the cheapest to find taken, and nothing is opened in vain.
        let doors = Doors::take(&config)?;
        let stop = CancellationToken::new();
        let opened = match Opened::open(&config.app, clock, stop.clone()).await {
            Ok(opened) => opened,
            Err(error) => {
                stop.cancel();
                return Err(error.into());
            }
        };
        let engine = opened.engine.clone();
        match Self::begin(config, opened, doors, stop.clone()).await {
            Ok(server) => Ok(server),
            Err(error) => {
                stop.cancel();
                engine.shut_down().await;
                Err(error)
            }
        }
    }

    async fn begin(
        config: Config,
        opened: Opened,
        doors: Doors,
        stop_working: CancellationToken,
    ) -> Result<Self, Error> {
        let traces = Traces::start(&config.traces)?.map(Arc::new);
        let whole = config.clone();
        let Config { app: config, resp: resp_settings, domains: settings, .. } = config;
        let BusUrl::Log = config.bus.url;
        let Opened { engine, store, clock, node } = opened;
        let secrets = Secrets::of(&config, settings.sales.callback_secret.as_ref())?;
        if engine.is_shared() {
            secrets::agree(&secrets, &store).await?;
        }
        let part = match (engine.is_shared(), config.roles.worker) {
            (false, _) => Part::All,
            (true, true) => Part::Share(node.owner().to_owned()),
            (true, false) => Part::None,
        };
        let own_store = {
            let config = config.clone();
            async move { config.open_store().await }
        };
        let stop = Stop { token: stop_working.clone(), grace: config.http.shutdown_grace };
        let rules = Rules::of(&config.delivery);
        let records = move |engine: &Engine, store: &Store| Records::new(engine, store, rules);
        let (projection, projecting) =
            consumer::start(engine.clone(), part.clone(), own_store, stop.clone(), records).await?;
        let feed = start_feed(&config, &engine, &store, part, &stop).await?;
        let (feed, feeding) = feed.unzip();
        let note = running::leave_note(&config.data, doors.place())?;
        let runs_jobs = config.roles.worker || !engine.is_shared();
        let app = App::new(config, &secrets, clock, engine, store, projection, node);
        let app = Arc::new(app);
        let shown = whole.settings.clone();
        let domains = Arc::new(Domains::open(&app, settings, &secrets, &doors, shown, feed).await?);
        let mut workers = Workers::new(stop_working, app.workers.clone());
        workers.adopt(projecting);
        feeding.into_iter().for_each(|feeding| workers.adopt(feeding));
        let checks: Vec<_> = domains.all().flat_map(Domain::checks).collect();
        if !checks.is_empty() {
            app.check_with(checks);
        }
        domains.all().for_each(|domain| domain.start(&mut workers));
        if runs_jobs {
            let mut jobs = Jobs::default();
            domains.all().for_each(|domain| domain.add_jobs(&mut jobs));
            let runner = Runner::new(app.store.clone(), app.node.owner(), jobs);
            let report = workers.report("jobs");
            workers.add(runner.follow(stop, report));
        }
        let mut spare = Spare::new(doors.connections());
        workers.after_pause("memory", give_back::LOOK_EVERY, move || spare.look());
        let stop_serving = CancellationToken::new();
        let mut serving = Vec::new();
        let certificates = doors.certificates();
        let door = |listener, tls| {
            let (app, domains) = (Arc::clone(&app), Arc::clone(&domains));
            Door { listener, tls, traces: traces.clone(), app, domains }
        };
        let (listener, address, tls) = doors.http;
        domains.demo.listens_at(address);
        serving.push(tokio::spawn(http::serve(door(listener, tls), stop_serving.clone())));
        let mut health_address = None;
        if let Some((listener, address)) = doors.health {
            health_address = Some(address);
            serving
                .push(tokio::spawn(http::serve_health(door(listener, None), stop_serving.clone())));
        }
        let mut resp_address = None;
        if let Some((listener, address, tls)) = doors.resp {
            resp_address = Some(address);
            serving.push(tokio::spawn(resp::serve(
                listener,
                tls,
                domains.sales.clone(),
                domains.accounts.clone(),
                resp_settings,
                stop_serving.clone(),
            )));
        }
        Ok(Self {
            address,
            health_address,
            resp_address,
            config: whole,
            app,
            domains,
            certificates,
            traces,
            stop_serving,
            serving,
            workers,
            note,
        })
    }

    /// Where to look, for a person or a program.
    #[must_use]
    pub fn url(&self) -> String {
        let tls = self.config.app.http.tls.is_some();
        running::Place { address: self.address, tls }.to_string()
    }

    /// Waits until everything decided so far is in the records.
    pub async fn drain(&self) -> Result<(), qiang_engine::Error> {
        let positions = self.app.engine.positions().await?;
        self.app.projection.reached(&positions).await;
        Ok(())
    }

    /// Takes nothing new, answers everything accepted, records what was decided, gives the
    /// folder free.
    pub async fn stop(self) {
        self.stop_serving.cancel();
        for serving in self.serving {
            // A panic in a task was reported when it happened.
            let _served = serving.await;
        }
        if let Some(traces) = self.traces {
            traces.stop().await;
        }
        // The records are brought up to date while the journal is still open.
        self.workers.end().await;
        self.app.engine.shut_down().await;
        self.app.store.close().await;
        drop(self.note);
    }
}

/// Has the feed of events written, if events are kept; otherwise no log waits for it.
async fn start_feed(
    config: &qiang_app::Config,
    engine: &Engine,
    store: &Store,
    part: Part,
    stop: &Stop,
) -> Result<Option<(Progress, JoinHandle<()>)>, Error> {
    if config.delivery.keep_events.is_none() {
        Feed::switch_off(store).await?;
        return Ok(None);
    }
    Feed::switch_on(store).await?;
    let (config, source) = (config.clone(), config.delivery.source.clone());
    let own_store = async move { config.open_store().await };
    let feed = move |_: &Engine, store: &Store| Feed::new(store, source);
    Ok(Some(consumer::start(engine.clone(), part, own_store, stop.clone(), feed).await?))
}

/// The addresses a server was told to listen on, taken.
pub struct Doors {
    http: (Listener, SocketAddr, Option<tls::Door>),
    health: Option<(Listener, SocketAddr)>,
    resp: Option<(Listener, SocketAddr, Option<tls::Door>)>,
}

impl Doors {
    #[expect(clippy::result_large_err, reason = "moved once, at a start that fails")]
    fn take(config: &Config) -> Result<Self, Error> {
        let max = config.app.http.max_connections;
        let open = |files| tls::Door::open(files, Protocol::Http, max);
        let tls = config.app.http.tls.as_ref().map(open).transpose()?;
        let (listener, at) = listen(config.app.http.listen, "--listen")?;
        let http = (listener, at, tls);
        let resp = match config.resp.listen.filter(|_| config.app.roles.api) {
            Some(address) => {
                let max = config.resp.max_connections;
                let open = |files| tls::Door::open(files, Protocol::Resp, max);
                let tls = config.resp.tls.as_ref().map(open).transpose()?;
                let (listener, at) = listen(address, "--resp or `listen` in [resp]")?;
                Some((listener, at, tls))
            }
            None => None,
        };
        let health = config.app.http.health_listen;
        let health = health.map(|at| listen(at, "`health_listen` in [http]")).transpose()?;
        Ok(Self { http, health, resp })
    }

    /// Where pages and API are.
    fn place(&self) -> running::Place {
        running::Place { address: self.http.1, tls: self.http.2.is_some() }
    }

    /// What they show to clients that come by TLS.
    pub(crate) fn certificates(&self) -> Certificates {
        let resp = self.resp.as_ref().and_then(|(.., tls)| tls.as_ref());
        let doors = [self.http.2.as_ref(), resp];
        Certificates::new(doors.into_iter().flatten().map(tls::Door::certificate))
    }

    /// What counts the connections of each.
    fn connections(&self) -> Vec<Arc<Connections>> {
        let health = self.health.as_ref().map(|(listener, _)| listener);
        let resp = self.resp.as_ref().map(|(listener, ..)| listener);
        let listeners = [Some(&self.http.0), health, resp];
        listeners.into_iter().flatten().map(|one| Arc::clone(&one.connections)).collect()
    }
}
