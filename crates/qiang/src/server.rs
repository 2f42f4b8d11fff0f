//! A whole qiang in one process: opened in order, shut down in the opposite one.

use std::net::SocketAddr;
use std::sync::Arc;

use qiang_engine::{Clock, Engine, OpenError, Options, WriterOptions};
use qiang_store::Store;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::config::{BusUrl, Config, DatabaseUrl, EngineUrl};
use crate::http::{self, ListenError};
use crate::projector;
use crate::secrets::{self, Secrets};
use crate::{audit, running};

/// Why a server did not start. What it had opened is closed again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be had.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The engine cannot be opened.
    #[error(transparent)]
    Engine(#[from] OpenError),
    /// The records cannot be opened.
    #[error(transparent)]
    Store(#[from] qiang_store::Error),
    /// The keys cannot be read or made.
    #[error(transparent)]
    Secrets(#[from] secrets::Error),
    /// The projector cannot begin.
    #[error(transparent)]
    Projector(#[from] projector::Error),
    /// The note about the running server cannot be left.
    #[error(transparent)]
    Running(#[from] running::Error),
    /// The operating system gives no randomness.
    #[error("the operating system gives no random numbers")]
    Random(getrandom::Error),
}

/// A server at work.
#[derive(Debug)]
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    /// What it works with.
    pub app: Arc<App>,
    stop_serving: CancellationToken,
    stop_working: CancellationToken,
    serving: JoinHandle<()>,
    projecting: std::thread::JoinHandle<()>,
    auditing: Option<JoinHandle<()>>,
    note: running::Note,
}

impl Server {
    /// Opens everything and begins to serve.
    pub async fn start(config: Config, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        // The address first: it is the cheapest to find taken, and nothing is opened in vain.
        let listener = http::listen(config.http.listen).await?;
        let address = listener
            .local_addr()
            .map_err(|source| ListenError::Unusable { address: config.http.listen, source })?;
        let engine = open_engine(&config, Arc::clone(&clock)).await?;
        let (stop_serving, stop_working) = (CancellationToken::new(), CancellationToken::new());
        let opened = Self::open(config, clock, engine.clone(), address, stop_working.clone()).await;
        let (app, projecting, note) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                stop_working.cancel();
                shut_down(engine).await;
                return Err(error);
            }
        };
        let auditing = app.config.audit.every.map(|every| {
            tokio::spawn(audit::run_every(Arc::clone(&app), every, stop_working.clone()))
        });
        let serving = {
            let (app, stop) = (Arc::clone(&app), stop_serving.clone());
            let router = http::router(Arc::clone(&app));
            tokio::spawn(async move { http::serve(listener, router, &app.config.http, stop).await })
        };
        Ok(Self { address, app, stop_serving, stop_working, serving, projecting, auditing, note })
    }

    async fn open(
        config: Config,
        clock: Arc<dyn Clock>,
        engine: Engine,
        address: SocketAddr,
        stop: CancellationToken,
    ) -> Result<(Arc<App>, std::thread::JoinHandle<()>, running::Note), Error> {
        let BusUrl::Log = config.bus.url;
        let secrets = Secrets::of(&config)?;
        let store = open_store(&config).await?;
        store.migrate().await?;
        let own_store = {
            let config = config.clone();
            async move { open_store(&config).await }
        };
        let (projection, projecting) = projector::start(engine.clone(), own_store, stop).await?;
        let note = running::leave_note(&config.data, address)?;
        let app = App::new(config, &secrets, clock, engine, store, projection).await?;
        Ok((Arc::new(app), projecting, note))
    }

    /// Where to look, for a person or a program.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Waits until everything decided so far is in the records.
    pub async fn drain(&self) -> Result<(), qiang_engine::Error> {
        let position = self.app.engine.position().await?;
        self.app.projection.reached(position).await;
        Ok(())
    }

    /// Takes nothing new, answers everything accepted, records what was decided, gives the
    /// folder free.
    pub async fn stop(self) {
        self.stop_serving.cancel();
        // A panic in a task was reported when it happened.
        let _served = self.serving.await;
        // The records are brought up to date while the journal is still open.
        self.stop_working.cancel();
        if let Some(auditing) = self.auditing {
            let _audited = auditing.await;
        }
        let _projected = tokio::task::spawn_blocking(|| self.projecting.join()).await;
        shut_down(self.app.engine.clone()).await;
        self.app.store.close().await;
        drop(self.note);
    }
}

/// Opens the store a configuration names, without migrating it.
pub async fn open_store(config: &Config) -> Result<Store, qiang_store::Error> {
    let DatabaseUrl::Sqlite { path } = &config.database.url;
    Store::open(&format!("sqlite:{}", path.display())).await
}

async fn open_engine(config: &Config, clock: Arc<dyn Clock>) -> Result<Engine, Error> {
    let EngineUrl::Embedded { folder } = &config.engine.url;
    let options = Options {
        folder: folder.clone(),
        queue: config.engine.queue,
        writer: WriterOptions {
            seed: getrandom::u64().map_err(Error::Random)?,
            snapshot_bytes: config.engine.snapshot_bytes,
        },
    };
    // Recovery reads a whole journal; that is no work for the runtime's threads.
    let opened = tokio::task::spawn_blocking(move || Engine::open(options, clock)).await;
    match opened {
        Ok(engine) => Ok(engine?),
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}

async fn shut_down(engine: Engine) {
    // A panic in there was reported when it happened.
    let _ended = tokio::task::spawn_blocking(move || engine.shut_down()).await;
}
