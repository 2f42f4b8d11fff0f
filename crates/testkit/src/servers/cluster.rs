//! A Redis Cluster of three masters, each with one replica if asked for.
//!
//! Made by hand rather than with `redis-cli --cluster create`, which waits longer than needed.
//! Nodes are known by their index here: masters first, then the replica of each in the same order.
//! After a failover the index stays with the server, not with its role.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::keeper::{START_LIMIT, patiently, wait};
use super::ports::free_port;
use super::redis::{self, Redis};
use super::resp::Value;

mod links;
mod roles;

use links::Doors;

pub use links::Links;
pub use roles::Move;

/// How many masters there are at first.
pub const MASTERS: usize = 3;
/// How long a failover may take.
pub const PROMOTION_LIMIT: Duration = Duration::from_secs(60);
/// How many slots there are.
const SLOTS: u16 = 16_384;

/// Whether masters have somebody to take over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Replicas {
    /// Nobody.
    #[default]
    None,
    /// One for each master.
    One,
}

/// How to start one.
#[derive(Debug, Clone)]
pub struct Options {
    /// How to start each node.
    pub node: redis::Options,
    /// None unless told otherwise.
    pub replicas: Replicas,
    /// How long a node may be silent before it is thought to have failed.
    pub node_timeout: Duration,
    /// Direct unless told otherwise.
    pub links: Links,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            node: redis::Options::default(),
            replicas: Replicas::default(),
            node_timeout: Duration::from_millis(1_500),
            links: Links::default(),
        }
    }
}

/// A running cluster; gone, with its folders, once it is dropped.
pub struct Cluster {
    nodes: Vec<Redis>,
    /// Of each node, where it is reached; empty if at its own address.
    doors: Vec<Doors>,
    password: Option<String>,
}

impl Cluster {
    /// Starts one at free ports and returns when every node says that all slots are served.
    pub fn start(options: &Options) -> Result<Self> {
        let count = match options.replicas {
            Replicas::None => MASTERS,
            Replicas::One => 2 * MASTERS,
        };
        let started: Vec<Result<Started>> = std::thread::scope(|scope| {
            let start = |index| scope.spawn(move || start_node(index, options));
            let threads: Vec<_> = (0..count).map(start).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| match thread.join() {
                Ok(started) => started,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            threads.into_iter().map(join).collect()
        });
        let password = options.node.password.clone();
        let mut cluster = Self { nodes: Vec::new(), doors: Vec::new(), password };
        let mut bus_ports = Vec::new();
        for started in started {
            let Started { node, bus, doors } = started?;
            bus_ports.push(doors.as_ref().map_or(bus, |doors| doors.bus.port()));
            cluster.nodes.push(node);
            cluster.doors.extend(doors);
        }
        cluster.introduce(&bus_ports)?;
        wait("all slots are served", START_LIMIT, || cluster.is_whole())?;
        Ok(cluster)
    }

    /// `redis-cluster://127.0.0.1:<port>,…` with the first masters.
    pub fn url(&self) -> String {
        let user = self.password.as_ref().map(|password| format!(":{password}@"));
        let addresses: Vec<String> =
            (0..MASTERS).map(|index| format!("127.0.0.1:{}", self.announced(index))).collect();
        format!("redis-cluster://{}{}", user.unwrap_or_default(), addresses.join(","))
    }

    /// `rediss-cluster://<host>:<port>,…` with the first masters, where they listen with TLS.
    pub fn tls_url(&self, host: &str) -> Result<String> {
        let address = |node: &Redis| node.tls_port().map(|port| format!("{host}:{port}"));
        let addresses: Option<Vec<String>> = self.nodes[..MASTERS].iter().map(address).collect();
        Ok(format!("rediss-cluster://{}", addresses.context("no TLS")?.join(",")))
    }

    /// Every node, by index.
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// The slot of a key.
    pub fn slot(&self, key: &str) -> Result<u16> {
        let answer = self.witness()?.command(&["CLUSTER", "KEYSLOT", key])?;
        let slot = answer.integer().context("a slot is a number")?;
        Ok(u16::try_from(slot)?)
    }

    /// The index of the node that serves a slot now, as far as the others know.
    pub fn master_of(&self, slot: u16) -> Result<usize> {
        self.master_seen_by(self.witness()?, slot)
    }

    /// Waits until another node than `old` serves `slot`, every node that runs agrees, and the
    /// cluster takes writes again. Returns its index.
    pub fn wait_for_promotion(&self, slot: u16, old: usize) -> Result<usize> {
        let mut promoted = old;
        wait("a replica is promoted", PROMOTION_LIMIT, || {
            let mut seen = BTreeSet::new();
            for node in self.nodes.iter().filter(|node| node.is_running()) {
                seen.insert(self.master_seen_by(node, slot)?);
                ensure!(info(node)?.contains("cluster_state:ok"), "{} is not ok", node.port());
            }
            let agreed = if seen.len() == 1 { seen.first().copied() } else { None };
            promoted = agreed.with_context(|| format!("the nodes disagree: {seen:?}"))?;
            ensure!(promoted != old, "still node {old}");
            Ok(())
        })?;
        Ok(promoted)
    }

    /// Waits until the replicas of a master have everything it has.
    pub fn wait_for_replication(&self, master: usize) -> Result<()> {
        wait("the replicas have everything", START_LIMIT, || {
            let said = self.nodes[master].command(&["INFO", "replication"])?.text();
            let field =
                |name: &str| said.split(['\n', ',']).find_map(|f| f.trim().strip_prefix(name));
            let (own, replica) = (field("master_repl_offset:"), field("offset="));
            ensure!(own.is_some() && own == replica, "{own:?} differs from {replica:?}");
            Ok(())
        })
    }

    fn master_seen_by(&self, node: &Redis, slot: u16) -> Result<usize> {
        let ranges = node.command(&["CLUSTER", "SLOTS"])?;
        let slot = i64::from(slot);
        let holds = |range: &&Value| match range.list() {
            [first, last, ..] => (first.integer()..=last.integer()).contains(&Some(slot)),
            _ => false,
        };
        let range = ranges.list().iter().find(holds).context("nobody serves the slot")?;
        let port = range.list().get(2).and_then(|master| master.list().get(1)?.integer());
        let is_it = |index: &usize| Some(i64::from(self.announced(*index))) == port;
        let index = (0..self.nodes.len()).find(is_it);
        index.with_context(|| format!("no node listens on {port:?}"))
    }

    /// Somebody who can answer.
    fn witness(&self) -> Result<&Redis> {
        self.nodes.iter().find(|node| node.is_running()).context("no node runs")
    }

    /// Gives out the slots and makes everybody known to everybody.
    fn introduce(&self, bus_ports: &[u16]) -> Result<()> {
        for (index, node) in self.nodes.iter().enumerate() {
            // Only possible as long as it knows nobody.
            let epoch = (index + 1).to_string();
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch])?;
            if index < MASTERS {
                let (first, last) = share(index)?;
                node.command(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()])?;
            }
        }
        for (index, node) in self.nodes.iter().enumerate() {
            for (other, bus) in bus_ports.iter().enumerate().skip(index + 1) {
                let (port, bus) = (self.announced(other).to_string(), bus.to_string());
                node.command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus])?;
            }
        }
        wait("everybody knows everybody", START_LIMIT, || self.is_acquainted())?;
        for (index, replica) in self.nodes.iter().enumerate().skip(MASTERS) {
            let id = self.nodes[index - MASTERS].command(&["CLUSTER", "MYID"])?;
            replica.command(&["CLUSTER", "REPLICATE", &id.text()])?;
        }
        Ok(())
    }

    fn is_acquainted(&self) -> Result<()> {
        for node in &self.nodes {
            let known = node.command(&["CLUSTER", "NODES"])?.text();
            let handshakes = known.lines().filter(|line| line.contains("handshake")).count();
            ensure!(
                known.lines().count() == self.nodes.len() && handshakes == 0,
                "{} knows:\n{known}",
                node.port()
            );
        }
        Ok(())
    }

    fn is_whole(&self) -> Result<()> {
        let replicas = self.nodes.len() - MASTERS;
        for node in &self.nodes {
            let said = info(node)?;
            ensure!(said.contains("cluster_state:ok"), "{} says:\n{said}", node.port());
            let known = node.command(&["CLUSTER", "NODES"])?.text();
            let seen = known.lines().filter(|line| line.contains("slave")).count();
            let suspected = known.contains("fail");
            ensure!(seen == replicas && !suspected, "{} knows:\n{known}", node.port());
            let link = node.command(&["INFO", "replication"])?.text();
            let follows = !link.contains("role:slave") || link.contains("master_link_status:up");
            ensure!(follows, "{} says:\n{link}", node.port());
        }
        Ok(())
    }
}

/// A node that knows nobody yet.
struct Started {
    node: Redis,
    bus: u16,
    doors: Option<Doors>,
}

fn start_node(index: usize, options: &Options) -> Result<Started> {
    patiently(|| {
        let (port, bus) = (free_port()?, free_port()?);
        let timeout = options.node_timeout.as_millis().to_string();
        let node = options.node.clone().with("cluster-enabled", "yes");
        let node = node.with("cluster-port", bus.to_string()).with("cluster-node-timeout", timeout);
        let node =
            node.with("cluster-announce-ip", "127.0.0.1").with("repl-diskless-sync-delay", "0");
        // A replica stays with its master, and takes over however long it heard nothing.
        let node = node.with("cluster-allow-replica-migration", "no");
        let node = node.with("cluster-replica-validity-factor", "0");
        let mut node = node.with("cluster-config-file", "nodes.conf");
        if node.tls.is_some() {
            node = node.with("tls-cluster", "yes").with("tls-replication", "yes");
        }
        let mut doors = None;
        if options.links == Links::Proxied {
            let opened = Doors::open(port, bus)?;
            node = opened.announce(index, node);
            doors = Some(opened);
        }
        Ok(Started { node: Redis::start_at(port, &node)?, bus, doors })
    })
}

fn info(node: &Redis) -> Result<String> {
    Ok(node.command(&["CLUSTER", "INFO"])?.text())
}

/// The first and the last slot of a master.
fn share(master: usize) -> Result<(u16, u16)> {
    let masters = u16::try_from(MASTERS)?;
    let (size, index) = (SLOTS / masters, u16::try_from(master)?);
    let last = if index + 1 == masters { SLOTS - 1 } else { (index + 1) * size - 1 };
    Ok((index * size, last))
}

#[cfg(test)]
mod tests {
    use super::{MASTERS, share};

    #[test]
    fn every_slot_has_one_master() {
        let shares: Vec<(u16, u16)> = (0..MASTERS).map(|index| share(index).unwrap()).collect();
        assert_eq!(shares, [(0, 5_460), (5_461, 10_921), (10_922, 16_383)]);
    }
}
