//! Connections to one server or a cluster, and who has which partition.
//!
//! Every question belongs to one partition, so to one slot and one server. A connection on which
//! anything went wrong is dropped, because nobody knows what is still on its way. What failed is
//! told by one thing only: whether it may have happened.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ErrorKind, IntoConnectionInfo as _,
    Pipeline, RedisConnectionInfo, RedisError, ServerErrorKind, Value,
};
use tokio::sync::Mutex;

use super::url::{Node, Place};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Longer than any script of ours takes; a server that needs more is as good as gone.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Steps from server to server until one has the slot.
const MAX_REDIRECTS: usize = 4;
const SLOTS: u16 = 16_384;

/// What went wrong, and whether it may have happened all the same.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct Failure {
    /// Whether the server may have carried it out.
    pub(super) may_have_happened: bool,
    pub(super) kind: Kind,
    pub(super) what: &'static str,
    #[source]
    pub(super) source: Option<RedisError>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Trying again may help.
    Passing,
    /// The server does not know the script.
    NoScript,
    /// Trying again is of no use: wrong password, no permission, not a Redis.
    Lasting,
}

/// All servers of one [`Place`].
#[derive(Debug)]
pub(super) struct Link {
    place: Place,
    connections: RwLock<HashMap<Node, Arc<Seat>>>,
    /// For each partition its server; empty until asked in a cluster.
    owners: RwLock<Arc<[Node]>>,
    slots: Box<[u16]>,
}

/// Where the connection to one server is kept.
#[derive(Debug, Default)]
struct Seat {
    connection: Mutex<Option<(u64, MultiplexedConnection)>>,
    /// How often none could be had.
    failed: AtomicU64,
}

impl Link {
    pub(super) fn new(place: Place) -> Self {
        let slots = (0..place.partitions).map(|p| slot(tag(p).as_bytes())).collect();
        let owners: Arc<[Node]> = if place.cluster {
            Arc::new([])
        } else {
            vec![place.nodes[0].clone(); place.partitions.into()].into()
        };
        Self { place, connections: RwLock::default(), owners: RwLock::new(owners), slots }
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// One question to the server that has the partition.
    pub(super) async fn ask(&self, partition: u16, cmd: &Cmd) -> Result<Value, Failure> {
        let mut pipe = Pipeline::with_capacity(1);
        pipe.add_command(cmd.clone());
        let mut answers = self.ask_many(partition, &pipe).await?;
        answers.pop().ok_or(Failure::passing("an answer is missing", None, true))
    }

    /// Several questions, in one go, to the server that has the partition; the first one that is
    /// refused fails all.
    pub(super) async fn ask_many(
        &self,
        partition: u16,
        pipe: &Pipeline,
    ) -> Result<Vec<Value>, Failure> {
        let mut node = self.owner(partition).await?;
        let mut asking = false;
        for _ in 0..MAX_REDIRECTS {
            let answers = self.send(&node, pipe, asking).await?;
            let error = answers.iter().enumerate().find_map(|(place, answer)| match answer {
                Value::ServerError(error) => Some((place, RedisError::from(error.clone()))),
                _ => None,
            });
            let Some((place, error)) = error else { return Ok(answers) };
            // With the address comes the slot, which is known.
            let other = error.redirect_node().and_then(|(address, _)| address_of(address, &node));
            match (error.kind(), other) {
                (ErrorKind::Server(ServerErrorKind::Moved), Some(other)) => {
                    node = other;
                    asking = false;
                    self.owns(partition, &node);
                }
                (ErrorKind::Server(ServerErrorKind::Ask), Some(other)) => {
                    node = other;
                    asking = true;
                }
                _ => {
                    // A replica: the address may mean another server by now.
                    if error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly) {
                        self.leave(&node);
                    }
                    let mut failure = Failure::refused(error);
                    // What came before it was carried out.
                    failure.may_have_happened |= place > 0;
                    if failure.kind == Kind::Passing {
                        // Whoever says so may have lost the slot since.
                        self.forget_owners();
                    }
                    return Err(failure);
                }
            }
        }
        Err(Failure::passing("the cluster sends from one server to the next", None, false))
    }

    /// One question for every partition, with one round trip to each server.
    pub(super) async fn ask_each(&self, cmds: impl Fn(u16) -> Cmd) -> Result<Vec<Value>, Failure> {
        let mut answers = vec![Value::Nil; self.place.partitions.into()];
        let mut by_node = HashMap::<Node, Vec<u16>>::new();
        for partition in 0..self.place.partitions {
            by_node.entry(self.owner(partition).await?).or_default().push(partition);
        }
        for (node, partitions) in by_node {
            let mut pipe = Pipeline::with_capacity(partitions.len());
            for partition in &partitions {
                pipe.add_command(cmds(*partition));
            }
            for (partition, answer) in partitions.iter().zip(self.send(&node, &pipe, false).await?)
            {
                answers[usize::from(*partition)] = match answer {
                    // Moved in between; the single question finds its way.
                    Value::ServerError(_) => self.ask(*partition, &cmds(*partition)).await?,
                    answer => answer,
                };
            }
        }
        Ok(answers)
    }

    /// One question to each server there is, in no order.
    pub(super) async fn ask_servers(&self, cmd: &Cmd) -> Result<Vec<Value>, Failure> {
        let mut nodes = Vec::new();
        for partition in 0..self.place.partitions {
            nodes.push(self.owner(partition).await?);
        }
        nodes.sort();
        nodes.dedup();
        let mut answers = Vec::new();
        for node in nodes {
            let mut pipe = Pipeline::with_capacity(1);
            pipe.add_command(cmd.clone());
            for answer in self.send(&node, &pipe, false).await? {
                answers.push(answer.extract_error().map_err(Failure::refused)?);
            }
        }
        Ok(answers)
    }

    /// Every server there is, with the partitions it has.
    pub(super) async fn servers(&self) -> Result<BTreeMap<Node, Vec<u16>>, Failure> {
        let mut servers = BTreeMap::<Node, Vec<u16>>::new();
        for partition in 0..self.place.partitions {
            servers.entry(self.owner(partition).await?).or_default().push(partition);
        }
        Ok(servers)
    }

    /// Drops all connections, as if the network had.
    pub(super) fn drop_connections(&self) {
        self.connections.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Several questions to one server; what it refuses is among the answers.
    pub(super) async fn send(
        &self,
        node: &Node,
        pipe: &Pipeline,
        asking: bool,
    ) -> Result<Vec<Value>, Failure> {
        let seat = self.seat(node);
        let connected = self.connected(node, &seat).await;
        // Whoever cannot be reached may have been replaced.
        let (number, mut connection) = connected.inspect_err(|_| self.forget_owners())?;
        let sent = if asking {
            // It holds for the next command only.
            let mut with_asking = Pipeline::with_capacity(pipe.len() * 2);
            for cmd in pipe.cmd_iter() {
                with_asking.cmd("ASKING");
                with_asking.add_command(cmd.clone());
            }
            let sent = connection.send_packed_commands(&with_asking, 0, with_asking.len()).await;
            sent.map(|answers| answers.into_iter().skip(1).step_by(2).collect())
        } else {
            connection.send_packed_commands(pipe, 0, pipe.len()).await
        };
        match sent {
            Ok(answers) => Ok(answers),
            Err(error) => {
                let mut kept = seat.connection.lock().await;
                if kept.as_ref().is_some_and(|(kept, _)| *kept == number) {
                    *kept = None;
                }
                self.forget_owners();
                Err(Failure::passing("Redis did not answer", Some(error), true))
            }
        }
    }

    fn seat(&self, node: &Node) -> Arc<Seat> {
        let seats = self.connections.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(seat) = seats.get(node) {
            return Arc::clone(seat);
        }
        drop(seats);
        let mut seats = self.connections.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(seats.entry(node.clone()).or_default())
    }

    /// Forgets the connection to a server; what is on its way may still be answered.
    fn leave(&self, node: &Node) {
        self.connections.write().unwrap_or_else(PoisonError::into_inner).remove(node);
    }

    async fn connected(
        &self,
        node: &Node,
        seat: &Seat,
    ) -> Result<(u64, MultiplexedConnection), Failure> {
        let failed = seat.failed.load(Ordering::Acquire);
        let mut kept = seat.connection.lock().await;
        if let Some((number, connection)) = kept.as_ref() {
            return Ok((*number, connection.clone()));
        }
        // Of many who want one, one tries; the others would try in vain, one after the other.
        if seat.failed.load(Ordering::Acquire) != failed {
            return Err(Failure::passing("Redis could not be reached just now", None, false));
        }
        let connection = self.connect(node).await.inspect_err(|_| {
            seat.failed.fetch_add(1, Ordering::AcqRel);
        })?;
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        *kept = Some((number, connection.clone()));
        Ok((number, connection))
    }

    async fn connect(&self, node: &Node) -> Result<MultiplexedConnection, Failure> {
        let mut login = RedisConnectionInfo::default().set_db(self.place.database);
        if let Some(user) = &self.place.user {
            login = login.set_username(user);
        }
        if let Some(password) = &self.place.password {
            login = login.set_password(password);
        }
        let address = ConnectionAddr::Tcp(node.host.clone(), node.port);
        let unusable = |error| Failure::unreachable(error);
        let info = address.into_connection_info().map_err(unusable)?.set_redis_settings(login);
        let client = Client::open(info).map_err(unusable)?;
        let wait = Duration::from_millis(u64::from(self.place.wait_ms));
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(RESPONSE_TIMEOUT + wait));
        client.get_multiplexed_async_connection_with_config(&config).await.map_err(unusable)
    }

    async fn owner(&self, partition: u16) -> Result<Node, Failure> {
        let known = || self.owners.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(node) = known().get(usize::from(partition)) {
            return Ok(node.clone());
        }
        self.find_owners().await?;
        let found = known().get(usize::from(partition)).cloned();
        found.ok_or(Failure::passing("the cluster does not say who has the slots", None, false))
    }

    fn owns(&self, partition: u16, node: &Node) {
        let mut owners = self.owners.write().unwrap_or_else(PoisonError::into_inner);
        let mut all = owners.to_vec();
        if let Some(owner) = all.get_mut(usize::from(partition)) {
            *owner = node.clone();
            *owners = all.into();
        }
    }

    fn forget_owners(&self) {
        if self.place.cluster {
            *self.owners.write().unwrap_or_else(PoisonError::into_inner) = Arc::new([]);
        }
    }

    /// Asks one server after the other who has which slots.
    async fn find_owners(&self) -> Result<(), Failure> {
        let mut nodes: Vec<Node> = {
            let seats = self.connections.read().unwrap_or_else(PoisonError::into_inner);
            seats.keys().cloned().collect()
        };
        nodes.extend(self.place.nodes.iter().cloned());
        let mut last = Failure::passing("no server of the cluster answers", None, false);
        for node in nodes {
            let mut pipe = Pipeline::with_capacity(1);
            pipe.cmd("CLUSTER").arg("SLOTS");
            let slots = match self.send(&node, &pipe, false).await {
                Ok(mut answers) => answers.pop().map(Value::extract_error),
                Err(failure) => {
                    last = Failure { may_have_happened: false, ..failure };
                    continue;
                }
            };
            match slots {
                Some(Ok(slots)) => {
                    if let Some(owners) = self.owners_of(&slots, &node) {
                        *self.owners.write().unwrap_or_else(PoisonError::into_inner) = owners;
                        return Ok(());
                    }
                    last = Failure::passing("the cluster does not cover all slots", None, false);
                }
                Some(Err(error)) => last = Failure::refused(error),
                None => {}
            }
        }
        Err(last)
    }

    /// For each partition the server that has its slot; `None` when a slot has none.
    fn owners_of(&self, slots: &Value, asked: &Node) -> Option<Arc<[Node]>> {
        let Value::Array(ranges) = slots else { return None };
        let mut ranged = Vec::new();
        for range in ranges {
            let Value::Array(range) = range else { return None };
            let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = &range[..] else {
                return None;
            };
            let [host, Value::Int(port), ..] = &master[..] else { return None };
            let host = match host {
                Value::BulkString(host) => String::from_utf8(host.clone()).ok()?,
                _ => String::new(),
            };
            let port = u16::try_from(*port).ok()?;
            ranged.push((*first..=*last, Node { host: host_of(&host, asked), port }));
        }
        let owner = |slot: &u16| {
            let found = ranged.iter().find(|(range, _)| range.contains(&i64::from(*slot)));
            found.map(|(_, node)| node.clone())
        };
        self.slots.iter().map(owner).collect()
    }
}

/// A server that does not know its own name has the one it was asked under.
fn host_of(host: &str, asked: &Node) -> String {
    if host.is_empty() { asked.host.clone() } else { host.to_owned() }
}

/// The server that `asked` sends on to, from `host:port`.
fn address_of(address: &str, asked: &Node) -> Option<Node> {
    let (host, port) = address.rsplit_once(':')?;
    Some(Node { host: host_of(host, asked), port: port.parse().ok()? })
}

impl Failure {
    fn passing(what: &'static str, source: Option<RedisError>, may_have_happened: bool) -> Self {
        Self { may_have_happened, kind: Kind::Passing, what, source }
    }

    /// Nothing was heard for too long.
    pub(super) fn silent() -> Self {
        Self::passing("Redis did not answer in time", None, true)
    }

    /// No connection, so nothing was sent.
    fn unreachable(error: RedisError) -> Self {
        let kind = match error.kind() {
            ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig => Kind::Lasting,
            _ => Kind::Passing,
        };
        let what = match kind {
            Kind::Lasting => "Redis refused the login; check user and password in the URL",
            _ => "Redis cannot be reached; check the address, and that it runs",
        };
        Self { may_have_happened: false, kind, what, source: Some(error) }
    }

    /// The server said no.
    fn refused(error: RedisError) -> Self {
        use ServerErrorKind as E;
        let kind = match error.kind() {
            ErrorKind::Server(E::NoScript) => Kind::NoScript,
            ErrorKind::Server(
                E::BusyLoading
                | E::TryAgain
                | E::ClusterDown
                | E::MasterDown
                | E::ReadOnly
                | E::Moved
                | E::Ask,
            ) => Kind::Passing,
            _ => match error.code() {
                // Out of memory, disk trouble, a script that is busy, too few replicas: a person
                // can mend that while we wait.
                Some("OOM" | "MISCONF" | "BUSY" | "NOREPLICAS" | "UNKILLABLE") => Kind::Passing,
                // Whoever waited for replicas is told that the server is one itself now.
                Some("UNBLOCKED") => Kind::Passing,
                _ => Kind::Lasting,
            },
        };
        // A script that fails for a reason we do not know may have failed half way.
        let may_have_happened = kind == Kind::Lasting || error.code() == Some("UNBLOCKED");
        Self { may_have_happened, kind, what: "Redis refused", source: Some(error) }
    }
}

/// The hash tag of a partition: whatever holds it lies in one slot.
pub(super) fn tag(partition: u16) -> String {
    format!("p{partition}")
}

/// The slot of a hash tag: CRC-16 (XMODEM) of it.
fn slot(tag: &[u8]) -> u16 {
    let crc = tag.iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    });
    crc % SLOTS
}

#[cfg(test)]
mod tests {
    use super::{Node, address_of};

    #[test]
    fn a_server_sends_on_by_name_or_under_its_own() {
        let node = |host: &str, port| Node { host: host.into(), port };
        let asked = node("one", 1);
        assert_eq!(address_of("127.0.0.1:6381", &asked), Some(node("127.0.0.1", 6381)));
        assert_eq!(address_of("::1:6381", &asked), Some(node("::1", 6381)));
        assert_eq!(address_of(":6381", &asked), Some(node("one", 6381)));
        assert_eq!(address_of("nonsense", &asked), None);
    }

    #[test]
    fn slots_are_those_of_redis() {
        // The examples of its cluster specification, and of `CLUSTER KEYSLOT`.
        assert_eq!(super::slot(b"123456789"), 0x31C3);
        assert_eq!(super::slot(b"foo"), 12182);
    }
}
