//! A whole qiang in one process: opened in order, shut down in the opposite one.

use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;

use qiang_engine::redis::Prober;
use qiang_engine::{Clock, Engine, OpenError, WriterOptions, embedded, redis, sql};
use qiang_store::Store;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::config::{BusUrl, Config, DatabaseUrl, EngineUrl};
use crate::consumer::{self, Part, Stop};
use crate::http;
use crate::jobs::{Jobs, Runner};
use crate::listener::{ListenError, listen};
use crate::nodes::{self, Node};
use crate::records::Records;
use crate::secrets::{self, Secrets};
use crate::workers::Workers;
use crate::{app, audit, epochs, probes, resp, running};

/// Why a server did not start. What it had opened is closed again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be had.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// There is no TLS.
    #[error(transparent)]
    Tls(#[from] resp::tls::Error),
    /// The engine cannot be opened.
    #[error(transparent)]
    Engine(#[from] OpenError),
    /// The engine on Redis cannot be opened.
    #[error(transparent)]
    Redis(#[from] redis::OpenError),
    /// The state in Redis cannot be told.
    #[error(transparent)]
    Epochs(#[from] epochs::Error),
    /// The engine on a database cannot be opened.
    #[error(transparent)]
    Sql(#[from] sql::OpenError),
    /// This process has no number.
    #[error(transparent)]
    Node(#[from] nodes::Error),
    /// The records cannot be opened.
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
    /// The operating system gives no randomness.
    #[error("the operating system gives no random numbers")]
    Random(getrandom::Error),
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
    /// What it works with.
    pub app: Arc<App>,
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
        let opened = match Opened::open(&config, clock, stop.clone()).await {
            Ok(opened) => opened,
            Err(error) => {
                stop.cancel();
                return Err(error);
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
        let BusUrl::Log = config.bus.url;
        let Opened { engine, store, clock, node } = opened;
        let secrets = Secrets::of(&config)?;
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
            async move { open_store(&config).await }
        };
        let stop = Stop { token: stop_working.clone(), grace: config.http.shutdown_grace };
        let (projection, projecting) =
            consumer::start(engine.clone(), part, own_store, stop.clone(), Records::new).await?;
        let note = running::leave_note(&config.data, doors.http.1)?;
        let roles = config.roles;
        let app = App::new(config, &secrets, clock, engine, store, projection, node).await?;
        let app = Arc::new(app);
        let mut workers = Workers::new(stop_working, app.workers.clone());
        workers.adopt(projecting);
        if roles.worker || !app.engine.is_shared() {
            let runner = Runner::new(app.store.clone(), app.node.owner(), jobs());
            workers.add(runner.follow(stop));
        }
        add_workers(&mut workers, &app);
        let stop_serving = CancellationToken::new();
        let mut serving = Vec::new();
        let (listener, address) = doors.http;
        serving.push({
            let (app, stop) = (Arc::clone(&app), stop_serving.clone());
            tokio::spawn(http::serve(listener, app, stop))
        });
        let mut health_address = None;
        if let Some((listener, address)) = doors.health {
            health_address = Some(address);
            let (app, stop) = (Arc::clone(&app), stop_serving.clone());
            serving.push(tokio::spawn(http::serve_health(listener, app, stop)));
        }
        let mut resp_address = None;
        if let Some((listener, address, tls)) = doors.resp {
            resp_address = Some(address);
            serving.push(tokio::spawn(resp::serve(
                listener,
                tls,
                Arc::clone(&app),
                stop_serving.clone(),
            )));
        }
        Ok(Self {
            address,
            health_address,
            resp_address,
            app,
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

/// Everything that is done again and again beside the requests.
fn add_workers(workers: &mut Workers, app: &Arc<App>) {
    let (shared, worker) = (app.engine.is_shared(), app.config.roles.worker);
    let with_app = || Arc::clone(app);
    if shared {
        let app = with_app();
        workers.every("current sale", app::FOLLOW_EVERY, move || {
            Arc::clone(&app).follow_current_sale()
        });
    } else {
        let app = with_app();
        workers.every("database probe", probes::DATABASE_EVERY, move || {
            probes::look_at_database(Arc::clone(&app))
        });
    }
    if let Engine::Redis(engine) = &app.engine {
        let (app, engine) = (with_app(), engine.clone());
        let prober = Arc::new(tokio::sync::Mutex::new(Prober::new(engine.clone())));
        let probed = Arc::clone(&app);
        workers.every("redis probe", probes::ENGINE_EVERY, move || {
            probes::look_at_redis(Arc::clone(&probed), Arc::clone(&prober))
        });
        let watched = engine.clone();
        workers.every("redis epochs", epochs::LOOK_EVERY, move || {
            epochs::watch(watched.clone(), app.store.clone())
        });
        if worker {
            let mut round = 0_u32;
            workers.every("redis deadlines", epochs::TEND_EVERY, move || {
                round = round.wrapping_add(1);
                epochs::tend(engine.clone(), round)
            });
        }
    }
    if let (Some(every), true) = (app.config.audit.every, worker) {
        let app = with_app();
        workers.after_pause("audit", every, move || audit::run_by_itself(Arc::clone(&app)));
    }
}

/// Who does which kind of job: every domain adds its own.
fn jobs() -> Jobs {
    Jobs::default()
}

/// The addresses a server was told to listen on, taken.
struct Doors {
    http: (TcpListener, SocketAddr),
    health: Option<(TcpListener, SocketAddr)>,
    resp: Option<(TcpListener, SocketAddr, Option<resp::tls::Door>)>,
}

impl Doors {
    #[expect(clippy::result_large_err, reason = "moved once, at a start that fails")]
    fn take(config: &Config) -> Result<Self, Error> {
        let http = listen(config.http.listen, "--listen")?;
        let resp = match config.resp.listen.filter(|_| config.roles.api) {
            Some(address) => {
                let tls = config.resp.tls.as_ref().map(resp::tls::Door::open).transpose()?;
                let (listener, at) = listen(address, "--resp or `listen` in [resp]")?;
                Some((listener, at, tls))
            }
            None => None,
        };
        let health = config.http.health_listen;
        let health = health.map(|at| listen(at, "`health_listen` in [http]")).transpose()?;
        Ok(Self { http, health, resp })
    }
}

/// What a process works with: the records, the engine on them, and its place among others.
pub struct Opened {
    /// Decides.
    pub engine: Engine,
    /// Remembers.
    pub store: Store,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Who this process is.
    pub node: Arc<Node>,
}

impl Opened {
    /// Opens what a configuration names. What was opened is closed again if anything fails.
    pub async fn open(
        config: &Config,
        clock: Arc<dyn Clock>,
        stop: CancellationToken,
    ) -> Result<Self, Error> {
        // An embedded engine is one process's own: it is taken first, and nothing is touched
        // before.
        if let EngineUrl::Embedded { folder } = &config.engine.url {
            let engine = open_embedded(config, folder, Arc::clone(&clock)).await?;
            let rest = async {
                let store = open_store(config).await?;
                store.migrate().await?;
                Ok::<_, Error>((store, Node::alone()?))
            };
            return match rest.await {
                Ok((store, node)) => Ok(Self { engine, store, clock, node }),
                Err(error) => {
                    engine.shut_down().await;
                    Err(error)
                }
            };
        }
        let store = open_store(config).await?;
        store.migrate().await?;
        let node = Node::join(&store, stop).await?;
        let engine = open_shared(config, &store, Arc::clone(&clock)).await?;
        Ok(Self { engine, store, clock, node })
    }
}

/// Opens the store a configuration names, without migrating it.
pub async fn open_store(config: &Config) -> Result<Store, qiang_store::Error> {
    if let DatabaseUrl::Sqlite { path } = &config.database.url
        && let Some(folder) = path.parent()
        && !matches!(config.engine.url, EngineUrl::Embedded { .. })
    {
        // Nobody else makes the data folder then.
        let _made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    }
    Store::open(&config.database.url.url()).await
}

async fn open_embedded(
    config: &Config,
    folder: &Path,
    clock: Arc<dyn Clock>,
) -> Result<Engine, Error> {
    let options = embedded::Options {
        folder: folder.to_owned(),
        queue: config.engine.queue,
        writer: WriterOptions {
            seed: getrandom::u64().map_err(Error::Random)?,
            snapshot_bytes: config.engine.snapshot_bytes,
        },
    };
    // Recovery reads a whole journal; that is no work for the runtime's threads.
    let opened = tokio::task::spawn_blocking(move || embedded::Engine::open(options, clock)).await;
    match opened {
        Ok(engine) => Ok(Engine::Embedded(engine?)),
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}

/// An engine on Redis that decides nothing yet, because nobody has said which state is the right one.
pub async fn open_redis(
    config: &Config,
    place: &redis::Place,
    clock: Arc<dyn Clock>,
) -> Result<redis::Engine, Error> {
    let options = redis::Options {
        place: place.clone(),
        queue: config.engine.queue,
        // A clock that can be moved is a test's; otherwise all nodes have one time.
        time: if clock.is_of_machine() { redis::Time::Server } else { redis::Time::Given(clock) },
        node: getrandom::u64().map_err(Error::Random)?,
    };
    Ok(redis::Engine::open(options).await?)
}

async fn open_shared(
    config: &Config,
    store: &Store,
    clock: Arc<dyn Clock>,
) -> Result<Engine, Error> {
    match &config.engine.url {
        EngineUrl::Embedded { .. } => unreachable!("an embedded engine is not shared"),
        EngineUrl::Redis(place) => {
            let engine = open_redis(config, place, clock).await?;
            epochs::attach(&engine, store).await?;
            Ok(Engine::Redis(engine))
        }
        EngineUrl::Sql => {
            let mut options = sql::Options { queue: config.engine.queue, ..Default::default() };
            if let DatabaseUrl::Sqlite { .. } = config.database.url {
                // One writer at a time, whatever the partitions.
                options.partitions = 1;
            }
            let url = config.database.url.url();
            Ok(Engine::Sql(sql::Engine::open_url(&url, options, clock).await?))
        }
    }
}
