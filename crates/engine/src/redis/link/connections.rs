//! One connection to each server, made when it is needed.
//!
//! A connection on which anything went wrong is dropped, because nobody knows what is still on
//! its way. Of many who want a new one, one attempt is made, by a task of its own. They wait for
//! it as long as it takes if the server was well before, and only [`SICK_PATIENCE`] if it was not:
//! a server that hangs must not hold up whoever asks all servers.
//!
//! With a connection comes which server it leads to ([`ServerId`]), so that a call can say whom it asks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;
use std::{fmt, io};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Pipeline, RedisConnectionInfo, RedisError, Value};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::Failure;
use super::tls::Tls;
use crate::redis::url::{Login, Node};

pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Longer than any script of ours takes; a server that needs more is as good as gone.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a connection to a server is waited for that did not answer last time.
const SICK_PATIENCE: Duration = Duration::from_millis(100);

/// The connections to all servers.
#[derive(Debug)]
pub(super) struct Connections {
    way: Arc<Way>,
    seats: RwLock<HashMap<Node, Arc<Seat>>>,
}

/// How each server is connected to.
pub(super) struct Way {
    pub(super) login: Login,
    pub(super) database: i64,
    pub(super) tls: Option<Tls>,
    /// How long an answer may take.
    pub(super) patience: Duration,
    /// What may be forgotten there that was answered.
    pub(super) forgets: Forgets,
}

/// Whether a server may have forgotten what was answered when it has started again, or has taken another
/// one's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Forgets {
    /// Nothing that matters.
    Nothing,
    /// What its settings allow for.
    AsSetUp,
    /// What a replica had not received that took over.
    AtFailovers,
}

/// Which server answers: another number after each of its starts. 0 if that is not known, or does not
/// matter, because it forgets nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::redis) struct ServerId(u64);

impl ServerId {
    /// So many digits of what a server calls its run: a script can compare as many exactly.
    const DIGITS: usize = 13;

    fn read(info: &str) -> Option<Self> {
        let run = info.lines().find_map(|line| line.strip_prefix("run_id:"))?;
        u64::from_str_radix(run.get(..Self::DIGITS)?, 16).ok().map(Self)
    }

    pub(in crate::redis) fn number(self) -> i64 {
        i64::try_from(self.0).expect("it has 52 bits")
    }
}

impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Way").field("tls", &self.tls).finish_non_exhaustive()
    }
}

/// Where the connection to one server is kept.
#[derive(Debug, Default)]
struct Seat {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    kept: Option<Kept>,
    /// The attempt that is under way.
    attempt: Option<watch::Receiver<Option<Result<Kept, Failure>>>>,
    /// Whether the last attempt failed, or the last question was not answered in time.
    is_sick: bool,
}

/// A connection.
#[derive(Debug, Clone)]
struct Kept {
    /// No other one of this process has it.
    number: u64,
    server: ServerId,
    connection: MultiplexedConnection,
}

impl Seat {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send(&self, kept: Kept, pipe: &Pipeline) -> Result<Vec<Value>, Failure> {
        let Kept { number, mut connection, .. } = kept;
        let sent = connection.send_packed_commands(pipe, 0, pipe.len()).await;
        sent.map_err(|error| {
            let mut state = self.state();
            if state.kept.as_ref().is_some_and(|kept| kept.number == number) {
                state.kept = None;
                state.is_sick |= error.is_timeout();
            }
            Failure::passing("Redis did not answer", Some(error), true)
        })
    }
}

impl Connections {
    pub(super) fn new(way: Way) -> Self {
        Self { way: Arc::new(way), seats: RwLock::default() }
    }

    /// Asks one server; an answer may be an error of the server.
    pub(super) async fn send(&self, node: &Node, pipe: &Pipeline) -> Result<Vec<Value>, Failure> {
        let seat = self.seat(node);
        let kept = self.connected(node, &seat).await?;
        seat.send(kept, pipe).await
    }

    /// Asks one server what `pack` makes of who that is.
    pub(super) async fn send_packed(
        &self,
        node: &Node,
        pack: impl FnOnce(ServerId) -> Pipeline,
    ) -> Result<(Pipeline, Vec<Value>), Failure> {
        let seat = self.seat(node);
        let kept = self.connected(node, &seat).await?;
        let pipe = pack(kept.server);
        let answers = seat.send(kept, &pipe).await?;
        Ok((pipe, answers))
    }

    /// The number of the connection that is kept to a server.
    pub(super) fn number(&self, node: &Node) -> Option<u64> {
        let seats = self.seats.read().unwrap_or_else(PoisonError::into_inner);
        seats.get(node)?.state().kept.as_ref().map(|kept| kept.number)
    }

    /// Which server the connection leads to that is kept to an address.
    pub(super) fn server(&self, node: &Node) -> Option<ServerId> {
        let seats = self.seats.read().unwrap_or_else(PoisonError::into_inner);
        seats.get(node)?.state().kept.as_ref().map(|kept| kept.server)
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

    async fn connected(&self, node: &Node, seat: &Arc<Seat>) -> Result<Kept, Failure> {
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
    ) -> watch::Receiver<Option<Result<Kept, Failure>>> {
        let (to, made) = watch::channel(None);
        let (way, node) = (Arc::clone(&self.way), node.clone());
        tokio::spawn(async move {
            let ending = Ending(seat);
            static NEXT: AtomicU64 = AtomicU64::new(1);
            let connected = way.connect(&node).await;
            let connected = connected.map(|(server, connection)| {
                let number = NEXT.fetch_add(1, Ordering::Relaxed);
                Kept { number, server, connection }
            });
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

/// A connection that was made, and to whom.
type Reached = (ServerId, MultiplexedConnection);

impl Way {
    async fn connect(&self, node: &Node) -> Result<Reached, Failure> {
        let shaking_hands = AtomicBool::new(false);
        let greeting = self.greet(node, &shaking_hands);
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, greeting).await;
        connected.unwrap_or_else(|_| {
            let late = io::Error::from(io::ErrorKind::TimedOut);
            let in_handshake = shaking_hands.load(Ordering::Relaxed);
            Err(if in_handshake {
                Failure::handshake(late)
            } else {
                Failure::unreachable(late.into())
            })
        })
    }

    async fn greet(&self, node: &Node, shaking_hands: &AtomicBool) -> Result<Reached, Failure> {
        let unreachable = |error: io::Error| Failure::unreachable(error.into());
        let stream = TcpStream::connect((&*node.host, node.port)).await.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        match &self.tls {
            None => self.log_in(stream).await.map_err(Failure::plain),
            Some(tls) => {
                shaking_hands.store(true, Ordering::Relaxed);
                let stream = tls.greet(node, stream).await.map_err(Failure::handshake)?;
                shaking_hands.store(false, Ordering::Relaxed);
                self.log_in(stream).await.map_err(Failure::sealed)
            }
        }
    }

    async fn log_in<S>(&self, stream: S) -> Result<Reached, RedisError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let mut info = RedisConnectionInfo::default().set_db(self.database);
        if let Some(user) = &self.login.user {
            info = info.set_username(user);
        }
        if let Some(password) = &self.login.password {
            info = info.set_password(password);
        }
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(self.patience));
        let (mut connection, driver) =
            MultiplexedConnection::new_with_config(&info, stream, config).await?;
        // It ends with the last handle to the connection.
        tokio::spawn(driver);
        let server = match self.forgets {
            Forgets::Nothing => None,
            forgets => identify(&mut connection, forgets).await?,
        };
        Ok((server.unwrap_or_default(), connection))
    }
}

/// Asks a server who it is, and how it keeps what it answers. It may not be allowed to say.
async fn identify(
    connection: &mut MultiplexedConnection,
    forgets: Forgets,
) -> Result<Option<ServerId>, RedisError> {
    let info = match redis::cmd("INFO").query_async::<String>(connection).await {
        Ok(info) => info,
        Err(error) if error.code() == Some("NOPERM") => {
            tracing::warn!(
                "the user in engine.url may not ask for INFO: a server that has started again and \
                 forgotten claims may give their numbers to others until that is noticed"
            );
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    if forgets == Forgets::AsSetUp && keeps_everything(&info, connection).await {
        return Ok(None);
    }
    Ok(ServerId::read(&info))
}

/// Whether a server has on its disk what it answers, and nobody could take its place who lacks something.
async fn keeps_everything(info: &str, connection: &mut MultiplexedConnection) -> bool {
    let says = |line: &str| info.lines().any(|said| said == line);
    if !says("aof_enabled:1") || !says("role:master") || !says("connected_slaves:0") {
        return false;
    }
    let mut ask = redis::cmd("CONFIG");
    ask.arg("GET").arg("appendfsync");
    // Whoever may not ask takes it for one that forgets.
    let set: Result<Vec<String>, RedisError> = ask.query_async(connection).await;
    set.is_ok_and(|set| set.get(1).is_some_and(|value| value == "always"))
}

#[cfg(test)]
mod tests {
    use super::ServerId;

    #[test]
    fn a_server_is_known_by_its_run() {
        let info = "# Server\r\nredis_version:7.0.15\r\nrun_id:0123456789abcdef0123\r\n";
        assert_eq!(ServerId::read(info).map(ServerId::number), Some(0x0_1234_5678_9abc));
        assert_eq!(ServerId::read("# Server\r\nrun_id:\r\n"), None);
        assert_eq!(ServerId::read(""), None);
        assert_eq!(
            ServerId::read("run_id:ffffffffffffffff").map(ServerId::number),
            Some((1 << 52) - 1)
        );
    }
}
