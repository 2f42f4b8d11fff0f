//! One connection to each server, made when it is needed.
//!
//! A connection on which anything went wrong is dropped, because nobody knows what is still on
//! its way. Of many who want a new one, one attempt is made, by a task of its own. They wait for
//! it as long as it takes if the server was well before, and only [`SICK_PATIENCE`] if it was not:
//! a server that hangs must not hold up whoever asks all servers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo as _, Pipeline,
    RedisConnectionInfo, Value,
};
use tokio::sync::watch;

use super::Failure;
use crate::redis::url::{Node, Place};

pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Longer than any script of ours takes; a server that needs more is as good as gone.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a connection to a server is waited for that did not answer last time.
const SICK_PATIENCE: Duration = Duration::from_millis(100);

/// The connections to all servers.
#[derive(Debug)]
pub(super) struct Connections {
    place: Place,
    seats: RwLock<HashMap<Node, Arc<Seat>>>,
}

/// Where the connection to one server is kept.
#[derive(Debug, Default)]
struct Seat {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    kept: Option<Numbered>,
    /// The attempt that is under way.
    attempt: Option<watch::Receiver<Option<Result<Numbered, Failure>>>>,
    /// Whether the last attempt failed, or the last question was not answered in time.
    is_sick: bool,
}

/// A connection, and a number that no other one of this process has.
type Numbered = (u64, MultiplexedConnection);

impl Seat {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connections {
    pub(super) fn new(place: Place) -> Self {
        Self { place, seats: RwLock::default() }
    }

    /// Asks one server; an answer may be an error of the server.
    pub(super) async fn send(&self, node: &Node, pipe: &Pipeline) -> Result<Vec<Value>, Failure> {
        let seat = self.seat(node);
        let (number, mut connection) = self.connected(node, &seat).await?;
        let sent = connection.send_packed_commands(pipe, 0, pipe.len()).await;
        sent.map_err(|error| {
            let mut state = seat.state();
            if state.kept.as_ref().is_some_and(|(kept, _)| *kept == number) {
                state.kept = None;
                state.is_sick |= error.is_timeout();
            }
            Failure::passing("Redis did not answer", Some(error), true)
        })
    }

    /// The number of the connection that is kept to a server.
    pub(super) fn number(&self, node: &Node) -> Option<u64> {
        let seats = self.seats.read().unwrap_or_else(PoisonError::into_inner);
        seats.get(node)?.state().kept.as_ref().map(|(number, _)| *number)
    }

    /// Drops all connections, as if the network had.
    pub(super) fn drop_all(&self) {
        self.seats.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Forgets the connection to a server; what is on its way may still be answered.
    pub(super) fn leave(&self, node: &Node) {
        self.seats.write().unwrap_or_else(PoisonError::into_inner).remove(node);
    }

    /// Forgets all servers but these.
    pub(super) fn retain(&self, is_known: impl Fn(&Node) -> bool) {
        let mut seats = self.seats.write().unwrap_or_else(PoisonError::into_inner);
        seats.retain(|node, _| is_known(node));
    }

    fn seat(&self, node: &Node) -> Arc<Seat> {
        let seats = self.seats.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(seat) = seats.get(node) {
            return Arc::clone(seat);
        }
        drop(seats);
        let mut seats = self.seats.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(seats.entry(node.clone()).or_default())
    }

    async fn connected(&self, node: &Node, seat: &Arc<Seat>) -> Result<Numbered, Failure> {
        let (mut attempt, is_sick) = {
            let mut state = seat.state();
            if let Some(kept) = &state.kept {
                return Ok(kept.clone());
            }
            let is_sick = state.is_sick;
            let attempt = state.attempt.get_or_insert_with(|| self.begin(node, Arc::clone(seat)));
            (attempt.clone(), is_sick)
        };
        let not_yet = || Failure::passing("Redis could not be reached just now", None, false);
        let made = attempt.wait_for(Option::is_some);
        // An attempt has a limit of its own.
        let patience = if is_sick { SICK_PATIENCE } else { 2 * CONNECT_TIMEOUT };
        match tokio::time::timeout(patience, made).await {
            Ok(Ok(made)) => made.clone().unwrap_or_else(|| Err(not_yet())),
            // The attempt was cut off with the runtime, or takes too long.
            Ok(Err(_)) | Err(_) => Err(not_yet()),
        }
    }

    /// Begins an attempt, which goes on whether or not somebody waits for it.
    fn begin(
        &self,
        node: &Node,
        seat: Arc<Seat>,
    ) -> watch::Receiver<Option<Result<Numbered, Failure>>> {
        let (to, made) = watch::channel(None);
        let (place, node) = (self.place.clone(), node.clone());
        tokio::spawn(async move {
            let ending = Ending(seat);
            static NEXT: AtomicU64 = AtomicU64::new(1);
            let connected = connect(&place, &node).await;
            let connected = connected.map(|new| (NEXT.fetch_add(1, Ordering::Relaxed), new));
            let mut state = ending.0.state();
            state.is_sick = connected.is_err();
            state.kept = connected.as_ref().ok().cloned();
            drop(state);
            drop(ending);
            to.send_replace(Some(connected));
        });
        made
    }
}

/// The end of an attempt, however it comes.
struct Ending(Arc<Seat>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.state().attempt = None;
    }
}

async fn connect(place: &Place, node: &Node) -> Result<MultiplexedConnection, Failure> {
    let mut login = RedisConnectionInfo::default().set_db(place.database);
    if let Some(user) = &place.user {
        login = login.set_username(user);
    }
    if let Some(password) = &place.password {
        login = login.set_password(password);
    }
    let address = ConnectionAddr::Tcp(node.host.clone(), node.port);
    let unusable = |error| Failure::unreachable(error);
    let info = address.into_connection_info().map_err(unusable)?.set_redis_settings(login);
    let client = Client::open(info).map_err(unusable)?;
    let wait = Duration::from_millis(u64::from(place.wait_ms));
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_TIMEOUT))
        .set_response_timeout(Some(RESPONSE_TIMEOUT + wait));
    client.get_multiplexed_async_connection_with_config(&config).await.map_err(unusable)
}
