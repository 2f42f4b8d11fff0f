//! Beside an embedded engine a consumer works on a thread of low priority with database connections
//! of its own, so that in a rush the processor belongs to the claims.

use qiang_engine::Engine;
use qiang_store::Store;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::{Consumer, Error, Part, Progress, Sink, Stop};

/// As far below normal as it goes: in a rush a consumer waits, and catches up after it.
const NICENESS: i32 = 19;

pub(super) async fn start<S: Sink>(
    engine: Engine,
    part: Part,
    store: impl Future<Output = Result<Store, qiang_store::Error>> + Send + 'static,
    stop: Stop,
    sink: impl FnOnce(&Engine, &Store) -> S + Send + 'static,
) -> Result<(Progress, JoinHandle<()>), Error> {
    let (started, ready) = oneshot::channel();
    let (working, at_work) = oneshot::channel::<()>();
    let work = move || {
        let _working = working;
        if let Err(error) = rustix::process::nice(NICENESS) {
            tracing::warn!(%error, "a consumer keeps its priority");
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => return drop(started.send(Err(Error::Thread(error)))),
        };
        runtime.block_on(async {
            let opened = async {
                let store = store.await?;
                let sink = sink(&engine, &store);
                Ok((Consumer::new(engine, store.clone(), sink).await?, store))
            };
            match opened.await {
                Err(error) => drop(started.send(Err(error))),
                Ok((consumer, store)) => {
                    let (progress, following) = consumer.follow(part, stop);
                    drop(started.send(Ok(progress)));
                    following.await;
                    store.close().await;
                }
            }
        });
    };
    let thread = std::thread::Builder::new().name(format!("qiang-{}", S::NAME)).spawn(work);
    thread.map_err(Error::Thread)?;
    let ended = tokio::spawn(async move {
        // Nothing is ever sent; the sender goes with the thread.
        let _gone = at_work.await;
    });
    match ready.await {
        Ok(progress) => Ok((progress?, ended)),
        Err(_) => Err(Error::Gone),
    }
}
