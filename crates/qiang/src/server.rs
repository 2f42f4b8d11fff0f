//! A whole qiang in one process: opened in order, shut down in the opposite one.

use std::net::SocketAddr;
use std::sync::Arc;

use qiang_engine::Clock;
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
use qiang_app::consumer::{self, Part, Stop};
use qiang_app::jobs::{Jobs, Runner};
use qiang_app::running;
use qiang_app::secrets::{self, Secrets};
use qiang_app::workers::Workers;
use qiang_recovery::opened::{self, Opened};
use qiang_sales::records::Records;

/// Why a server did not start. What it had opened is closed again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be had.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// There is no TLS.
    #[error(transparent)]
    Tls(#[from] resp::tls::Error),
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
        let (projection, projecting) =
            consumer::start(engine.clone(), part, own_store, stop.clone(), Records::new).await?;
        let note = running::leave_note(&config.data, doors.http.1)?;
        let runs_jobs = config.roles.worker || !engine.is_shared();
        let app = App::new(config, &secrets, clock, engine, store, projection, node);
        let app = Arc::new(app);
        let domains =
            Arc::new(Domains::open(&app, settings, &secrets, whole.settings.clone()).await?);
        let mut workers = Workers::new(stop_working, app.workers.clone());
        workers.adopt(projecting);
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
        let door =
            |listener| Door { listener, app: Arc::clone(&app), domains: Arc::clone(&domains) };
        let (listener, address) = doors.http;
        domains.demo.listens_at(address);
        serving.push(tokio::spawn(http::serve(door(listener), stop_serving.clone())));
        let mut health_address = None;
        if let Some((listener, address)) = doors.health {
            health_address = Some(address);
            serving.push(tokio::spawn(http::serve_health(door(listener), stop_serving.clone())));
        }
        let mut resp_address = None;
        if let Some((listener, address, tls)) = doors.resp {
            resp_address = Some(address);
            serving.push(tokio::spawn(resp::serve(
                listener,
                tls,
                domains.sales.clone(),
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
            stop_serving,
            serving,
            workers,
            note,
        })
    }

    /// Where to look, for a person or a program.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
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
        // The records are brought up to date while the journal is still open.
        self.workers.end().await;
        self.app.engine.shut_down().await;
        self.app.store.close().await;
        drop(self.note);
    }
}

/// The addresses a server was told to listen on, taken.
struct Doors {
    http: (Listener, SocketAddr),
    health: Option<(Listener, SocketAddr)>,
    resp: Option<(Listener, SocketAddr, Option<resp::tls::Door>)>,
}

impl Doors {
    #[expect(clippy::result_large_err, reason = "moved once, at a start that fails")]
    fn take(config: &Config) -> Result<Self, Error> {
        let http = listen(config.app.http.listen, "--listen")?;
        let resp = match config.resp.listen.filter(|_| config.app.roles.api) {
            Some(address) => {
                let tls = config.resp.tls.as_ref().map(resp::tls::Door::open).transpose()?;
                let (listener, at) = listen(address, "--resp or `listen` in [resp]")?;
                Some((listener, at, tls))
            }
            None => None,
        };
        let health = config.app.http.health_listen;
        let health = health.map(|at| listen(at, "`health_listen` in [http]")).transpose()?;
        Ok(Self { http, health, resp })
    }

    /// What counts the connections of each.
    fn connections(&self) -> Vec<Arc<Connections>> {
        let health = self.health.as_ref().map(|(listener, _)| listener);
        let resp = self.resp.as_ref().map(|(listener, ..)| listener);
        let listeners = [Some(&self.http.0), health, resp];
        listeners.into_iter().flatten().map(|one| Arc::clone(&one.connections)).collect()
    }
}
