//! What every domain works with: the engine, the records, the keys, the clock.

use std::sync::{Arc, OnceLock};

use qiang_core::{PoolId, RequestId, Timestamp};
use qiang_engine::{Clock, Engine};
use qiang_store::Store;

use crate::config::Config;
use crate::consumer::Progress;
use crate::entry::Check;
use crate::metrics::Metrics;
use crate::nodes::Node;
use crate::outcomes::Outcomes;
use crate::probes::Probes;
use crate::problem::{Code, Problem};
use crate::secrets::Secrets;
use crate::set_aside::SetAside;
use crate::workers::Board;
use crate::{session, token};

/// How long a reader waits for the records to catch up with what was just decided.
const CATCH_UP: std::time::Duration = std::time::Duration::from_secs(5);

/// Shared by all requests.
#[derive(Debug)]
pub struct App {
    /// Decides.
    pub engine: Engine,
    /// Remembers.
    pub store: Store,
    /// How far remembering has come.
    pub projection: Progress,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Who is asking.
    pub tokens: token::Key,
    /// Who is signed in to the pages.
    pub sessions: session::Keys,
    /// What the operator decided.
    pub config: Config,
    /// What is counted.
    pub metrics: Metrics,
    /// What became of the claims of each sale.
    pub outcomes: Outcomes,
    /// Whether the engine takes writes.
    pub probes: Probes,
    /// Who this process is among those that share the engine.
    pub node: Arc<Node>,
    /// Claims that a person has to look at.
    pub set_aside: SetAside,
    /// How the work of the background goes.
    pub workers: Board,
    /// What is looked at before the engine is asked.
    pub(crate) checks: OnceLock<Vec<Box<dyn Check>>>,
}

impl App {
    /// Puts the parts together.
    #[must_use]
    pub fn new(
        config: Config,
        secrets: &Secrets,
        clock: Arc<dyn Clock>,
        engine: Engine,
        store: Store,
        projection: Progress,
        node: Arc<Node>,
    ) -> Self {
        Self {
            tokens: token::Key::new(&secrets.jwt_key),
            sessions: session::Keys::new(&secrets.jwt_key),
            metrics: Metrics::default(),
            outcomes: Outcomes::default(),
            probes: Probes::default(),
            checks: OnceLock::new(),
            engine,
            store,
            projection,
            node,
            set_aside: SetAside::default(),
            workers: Board::default(),
            clock,
            config,
        }
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// An id nobody has had.
    pub fn next_id(&self) -> Result<PoolId, Problem> {
        let id = self.node.next_id(self.now()).ok_or_else(|| {
            let detail = "this process has lost touch with the database and cannot make ids";
            Problem::new(Code::Unavailable).detail(detail)
        })?;
        Ok(PoolId::new(id).expect("a snowflake is positive and has 63 bits"))
    }

    /// A request id for somebody who gave none.
    pub fn next_request(&self) -> Result<RequestId, Problem> {
        Ok(RequestId::new(&self.next_id()?.to_string()).expect("digits are an id"))
    }

    /// Waits until the records hold everything decided so far. A listing without what its reader
    /// has just done would be worse than none.
    pub async fn catch_up(&self) -> Result<(), Problem> {
        let positions = self.answer(self.engine.positions()).await?;
        let reached = tokio::time::timeout(CATCH_UP, self.projection.reached(&positions)).await;
        reached.map_err(|_| {
            let detail = "the records have not caught up with the sale yet; ask again in a moment";
            Problem::new(Code::Unavailable).detail(detail)
        })
    }

    /// Waits for the engine's answer as long as a request may take. What was asked goes on
    /// whether or not anybody waits.
    pub async fn answer<T>(
        &self,
        asked: impl Future<Output = Result<T, qiang_engine::Error>>,
    ) -> Result<T, Problem> {
        match tokio::time::timeout(self.config.http.request_timeout, asked).await {
            Ok(answer) => answer.map_err(Problem::from),
            Err(_) => Err(Problem::new(Code::OutcomeUnknown)),
        }
    }
}
