//! Which server has which partition.
//!
//! What is known is never forgotten, only replaced: a sick server must not keep anybody from the
//! others. When something hints at a change, one task asks all servers at once and takes the first
//! whole answer. Only a process that knows nothing yet waits for it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use redis::{Pipeline, Value};
use tokio::sync::watch;

use super::connections::{CONNECT_TIMEOUT, Connections, RESPONSE_TIMEOUT};
use super::{Failure, host_of, slot, tag};
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
    is_cluster: bool,
    with_tls: bool,
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
    pub(super) fn new(place: &Place) -> Self {
        let owners = match place.shape {
            Shape::Cluster => Vec::new(),
            _ => vec![place.nodes[0].clone(); place.partitions.into()],
        };
        let servers = place.nodes.iter().cloned().collect();
        Self {
            begin: place.nodes.clone(),
            is_cluster: place.shape == Shape::Cluster,
            with_tls: place.tls.is_some(),
            slots: (0..place.partitions).map(|p| slot(tag(p).as_bytes())).collect(),
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
        let nobody = || Failure::passing("the cluster does not say who has the slots", None, false);
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
        if self.is_cluster {
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
                let asked = tokio::time::timeout(FIND_LIMIT, owners.ask(&connections)).await;
                let nobody = || Failure::passing("no server of the cluster answers", None, false);
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

    /// Asks all servers at once who has which slots, and takes the first whole answer.
    async fn ask(&self, connections: &Connections) -> Result<(), Failure> {
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
                        let is_known =
                            |node: &Node| found.servers.contains(node) || self.begin.contains(node);
                        connections.retain(is_known);
                        *self.known.write().unwrap_or_else(PoisonError::into_inner) = found;
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

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}
