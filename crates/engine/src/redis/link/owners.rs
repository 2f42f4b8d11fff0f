//! Which server has which partition.
//!
//! What is known is never forgotten, only replaced: a sick server must not keep anybody from the
//! others. When something hints at a change, one task asks all servers of a cluster at once and
//! takes the first whole answer; or it asks all sentinels, and takes the master that most of them
//! name and that says itself to be one. Only a process that knows nothing yet waits for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use redis::{Pipeline, Value};
use tokio::sync::watch;

use super::connections::{CONNECT_TIMEOUT, Connections, RESPONSE_TIMEOUT};
use super::{Failure, host_of};
use crate::redis::tags::slot_of;
use crate::redis::url::{Node, Place, Shape};

/// How long all servers together are asked.
const FIND_LIMIT: Duration = CONNECT_TIMEOUT.saturating_add(RESPONSE_TIMEOUT);
/// How long nobody is asked again after that.
const FIND_REST: Duration = Duration::from_millis(100);

/// The owners of all partitions.
#[derive(Debug)]
pub(super) struct Owners {
    /// Where to begin; of a single server also where to end.
    begin: Vec<Node>,
    shape: Shape,
    with_tls: bool,
    /// The connections to sentinels, if there are any.
    sentinels: Option<Connections>,
    /// The slot of each partition.
    slots: Box<[u16]>,
    known: RwLock<Known>,
    search: Mutex<Search>,
}

#[derive(Debug, Clone)]
struct Known {
    /// For each partition its server; empty until a cluster was asked.
    owners: Arc<[Node]>,
    /// All servers, also those that only stand by.
    servers: Arc<BTreeSet<Node>>,
}

#[derive(Debug, Default)]
struct Search {
    /// The one under way, and how its last round ended.
    under_way: Option<watch::Receiver<Option<Result<(), Failure>>>>,
    /// Whether something hinted at a change since it began.
    again: bool,
}

impl Owners {
    pub(super) fn new(place: &Place, sentinels: Option<Connections>) -> Self {
        let owners = match place.shape {
            Shape::Cluster | Shape::Sentinel(_) => Vec::new(),
            Shape::Server => vec![place.nodes[0].clone(); place.partitions.into()],
        };
        let servers = match place.shape {
            Shape::Sentinel(_) => BTreeSet::new(),
            Shape::Server | Shape::Cluster => place.nodes.iter().cloned().collect(),
        };
        Self {
            begin: place.nodes.clone(),
            shape: place.shape.clone(),
            with_tls: place.tls.is_some(),
            sentinels,
            slots: (0..place.partitions).map(slot_of).collect(),
            known: RwLock::new(Known { owners: owners.into(), servers: Arc::new(servers) }),
            search: Mutex::default(),
        }
    }

    /// For each partition its server, as far as is known; waits only if nothing is.
    pub(super) async fn all(
        self: &Arc<Self>,
        connections: &Arc<Connections>,
    ) -> Result<Arc<[Node]>, Failure> {
        let known = self.known();
        if !known.owners.is_empty() {
            return Ok(known.owners);
        }
        let nobody = || Failure::passing("nobody says which server has what", None, false);
        let mut found = self.search(connections);
        let found = found.wait_for(Option::is_some).await.map_err(|_| nobody())?.clone();
        found.unwrap_or_else(|| Err(nobody()))?;
        let owners = self.known().owners;
        if owners.is_empty() { Err(nobody()) } else { Ok(owners) }
    }

    /// The server of a partition, if it is known.
    pub(super) fn known_of(&self, partition: u16) -> Option<Node> {
        self.known().owners.get(usize::from(partition)).cloned()
    }

    /// A server said who has a partition.
    pub(super) fn set(&self, partition: u16, node: &Node) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let mut all = known.owners.to_vec();
        if let Some(owner) = all.get_mut(usize::from(partition)) {
            *owner = node.clone();
            known.owners = all.into();
        }
    }

    /// Something hints at a change: asks in the background.
    pub(super) fn are_stale(self: &Arc<Self>, connections: &Arc<Connections>) {
        if self.shape != Shape::Server {
            self.search(connections);
        }
    }

    /// The search that is under way, or a new one.
    fn search(
        self: &Arc<Self>,
        connections: &Arc<Connections>,
    ) -> watch::Receiver<Option<Result<(), Failure>>> {
        let mut search = self.state();
        if let Some(under_way) = &search.under_way {
            let under_way = under_way.clone();
            search.again = true;
            return under_way;
        }
        let (to, found) = watch::channel(None);
        search.under_way = Some(found.clone());
        let (owners, connections) = (Arc::clone(self), Arc::clone(connections));
        tokio::spawn(async move {
            loop {
                let asked = tokio::time::timeout(FIND_LIMIT, owners.find(&connections)).await;
                let nobody = || Failure::passing("nobody who could tell answers", None, false);
                let asked = asked.unwrap_or_else(|_| Err(nobody()));
                if let Err(failure) = &asked {
                    tracing::debug!("owners not found: {}", crate::chain(failure));
                }
                to.send_replace(Some(asked));
                tokio::time::sleep(FIND_REST).await;
                let mut search = owners.state();
                if !std::mem::take(&mut search.again) {
                    search.under_way = None;
                    break;
                }
            }
        });
        found
    }

    async fn find(&self, connections: &Connections) -> Result<(), Failure> {
        match (&self.shape, &self.sentinels) {
            (Shape::Sentinel(name), Some(sentinels)) => {
                let master = self.ask_sentinels(name, sentinels, connections).await?;
                let owners = vec![master.clone(); self.slots.len()].into();
                self.learn(Known { owners, servers: Arc::new([master].into()) }, connections);
                Ok(())
            }
            _ => self.ask_servers(connections).await,
        }
    }

    fn learn(&self, found: Known, connections: &Connections) {
        let is_known = |node: &Node| found.servers.contains(node) || self.begin.contains(node);
        connections.retain(is_known);
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = found;
    }

    /// Asks all sentinels at once for the master. One that was cut off together with an old master
    /// still names that one, so what most of them say is tried first.
    async fn ask_sentinels(
        &self,
        name: &str,
        sentinels: &Connections,
        connections: &Connections,
    ) -> Result<Node, Failure> {
        let mut pipe = Pipeline::with_capacity(1);
        pipe.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(name);
        let pipe = &pipe;
        let asked = self.begin.iter().map(|sentinel| async move {
            let mut answers = sentinels.send(sentinel, pipe).await?;
            let answer = answers.pop().unwrap_or(Value::Nil).extract_error();
            read_master(answer.map_err(Failure::refused)?).ok_or_else(|| {
                let what = "the sentinels know no master of that name; check the end of the URL";
                Failure::passing(what, None, false)
            })
        });
        let mut asked: FuturesUnordered<_> = asked.collect();
        let mut votes = BTreeMap::<Node, usize>::new();
        let mut last = Failure::passing("no sentinel answers", None, false);
        while let Some(answer) = asked.next().await {
            match answer {
                Ok(master) => {
                    let count = votes.entry(master.clone()).or_default();
                    *count += 1;
                    if *count * 2 > self.begin.len() {
                        match is_master(&master, connections).await {
                            Ok(()) => return Ok(master),
                            Err(failure) => last = failure,
                        }
                        votes.remove(&master);
                    }
                }
                Err(failure) => last = Failure { may_have_happened: false, ..failure },
            }
        }
        let mut votes: Vec<(usize, Node)> = votes.into_iter().map(|(n, v)| (v, n)).collect();
        votes.sort();
        while let Some((_, master)) = votes.pop() {
            match is_master(&master, connections).await {
                Ok(()) => return Ok(master),
                Err(failure) => last = failure,
            }
        }
        Err(last)
    }

    /// Asks all servers at once who has which slots, and takes the first whole answer.
    async fn ask_servers(&self, connections: &Connections) -> Result<(), Failure> {
        let known = self.known();
        let mut servers = BTreeSet::clone(&known.servers);
        servers.extend(known.owners.iter().cloned());
        servers.extend(self.begin.iter().cloned());
        let mut pipe = Pipeline::with_capacity(1);
        pipe.cmd("CLUSTER").arg("SLOTS");
        let pipe = &pipe;
        let asked = servers.iter().map(|node| async move {
            let answer = connections.send(node, pipe).await;
            (node, answer.map(|mut answers| answers.pop().map(Value::extract_error)))
        });
        let mut asked: FuturesUnordered<_> = asked.collect();
        let mut last = Failure::passing("no server of the cluster answers", None, false);
        while let Some((node, answer)) = asked.next().await {
            match answer {
                Ok(Some(Ok(slots))) => {
                    if let Some(found) = self.read(&slots, node) {
                        self.learn(found, connections);
                        return Ok(());
                    }
                    last = Failure::passing("the cluster does not cover all slots", None, false);
                }
                Ok(Some(Err(error))) => last = Failure::refused(error),
                Ok(None) => {}
                Err(failure) => last = Failure { may_have_happened: false, ..failure },
            }
        }
        Err(last)
    }

    /// What an answer to `CLUSTER SLOTS` says; `None` when a slot of ours has nobody.
    fn read(&self, slots: &Value, asked: &Node) -> Option<Known> {
        let Value::Array(ranges) = slots else { return None };
        let (mut ranged, mut servers) = (Vec::new(), BTreeSet::new());
        for range in ranges {
            let Value::Array(range) = range else { return None };
            let [Value::Int(first), Value::Int(last), nodes @ ..] = &range[..] else { return None };
            let nodes = nodes.iter().map(|node| read_node(node, asked, self.with_tls));
            let nodes = nodes.collect::<Option<Vec<Node>>>()?;
            // The master first, then whoever stands by.
            ranged.push((*first..=*last, nodes.first()?.clone()));
            servers.extend(nodes);
        }
        let owner = |slot: &u16| {
            let found = ranged.iter().find(|(range, _)| range.contains(&i64::from(*slot)));
            found.map(|(_, node)| node.clone())
        };
        let owners: Option<Arc<[Node]>> = self.slots.iter().map(owner).collect();
        Some(Known { owners: owners?, servers: Arc::new(servers) })
    }

    fn known(&self) -> Known {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn state(&self) -> MutexGuard<'_, Search> {
        self.search.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A server as `CLUSTER SLOTS` names it: where it is reached, its port, its id, and what else is
/// known about it. A certificate is for a name rather than an address, so with TLS the name is
/// taken if there is one.
fn read_node(node: &Value, asked: &Node, with_tls: bool) -> Option<Node> {
    let Value::Array(node) = node else { return None };
    let [host, Value::Int(port), more @ ..] = &node[..] else { return None };
    let named = |wanted: &[u8]| match more.get(1)? {
        Value::Array(known) => known.chunks_exact(2).find_map(|pair| match pair {
            [Value::BulkString(name), Value::BulkString(value)] if name == wanted => text(value),
            _ => None,
        }),
        _ => None,
    };
    let host = match host {
        Value::BulkString(host) => text(host)?,
        _ => "",
    };
    let name = named(b"hostname").filter(|name| with_tls && !name.is_empty());
    let host = match (name, host) {
        (Some(name), _) => name,
        // It is to be known by a name, and has none.
        (None, "?") => named(b"ip").unwrap_or_default(),
        (None, host) => host,
    };
    Some(Node { host: host_of(host, asked), port: u16::try_from(*port).ok()? })
}

/// What sentinels answer: host and port, or nothing.
fn read_master(answer: Value) -> Option<Node> {
    let (host, port): (String, u16) = redis::from_redis_value(answer).ok()?;
    Some(Node { host, port })
}

/// Whether a server says that it is a master.
async fn is_master(node: &Node, connections: &Connections) -> Result<(), Failure> {
    let mut pipe = Pipeline::with_capacity(1);
    pipe.cmd("ROLE");
    let sent = connections.send(node, &pipe).await;
    let mut answers = sent.map_err(|failure| Failure { may_have_happened: false, ..failure })?;
    let answer = answers.pop().unwrap_or(Value::Nil).extract_error().map_err(Failure::refused)?;
    match answer {
        Value::Array(role) if matches!(&role[..], [Value::BulkString(role), ..] if role == b"master") => {
            Ok(())
        }
        _ => {
            let what = "the server that the sentinels name is no master (yet)";
            Err(Failure::passing(what, None, false))
        }
    }
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}
