//! Opening the engine that a configuration names, and the records beside it: for a server, and for
//! commands that work without one.

use std::path::Path;
use std::sync::Arc;

use qiang_app::Config;
use qiang_app::config::{DatabaseUrl, EngineUrl};
use qiang_app::nodes::{self, Node};
use qiang_engine::{Clock, Engine, OpenError, WriterOptions, embedded, redis, sql};
use qiang_store::Store;
use tokio_util::sync::CancellationToken;

use crate::epochs;

/// Why they cannot be opened. What was opened is closed again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
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
    /// The operating system gives no randomness.
    #[error("the operating system gives no random numbers")]
    Random(getrandom::Error),
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
                let store = config.open_store().await?;
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
        let store = config.open_store().await?;
        store.migrate().await?;
        let node = Node::join(&store, stop).await?;
        let engine = open_shared(config, &store, Arc::clone(&clock)).await?;
        Ok(Self { engine, store, clock, node })
    }
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
