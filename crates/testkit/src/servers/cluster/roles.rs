//! Who is a master now, who follows whom, and slots that change hands.

use anyhow::{Context, Result, ensure};

use super::{Cluster, PROMOTION_LIMIT, wait};

/// Keys that move at a time.
const MOVED_AT_ONCE: usize = 3;
/// Keys that are looked at, at the most.
const KEYS_SEEN: &str = "100";
/// How long one move of keys may take, in milliseconds.
const MOVE_LIMIT_MS: &str = "5000";

impl Cluster {
    /// The nodes that are masters now, by index, as they say themselves.
    pub fn masters(&self) -> Result<Vec<usize>> {
        let mut masters = Vec::new();
        for (index, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.is_running()) {
            if node.command(&["ROLE"])?.list().first().context("a role")?.text() == "master" {
                masters.push(index);
            }
        }
        Ok(masters)
    }

    /// A node that follows this master, by index.
    pub fn replica_of(&self, master: usize) -> Result<usize> {
        let port = i64::from(self.announced(master));
        for (index, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.is_running()) {
            let role = node.command(&["ROLE"])?;
            if role.list().get(2).and_then(|port| port.integer()) == Some(port) {
                return Ok(index);
            }
        }
        anyhow::bail!("nobody follows node {master}")
    }

    /// Waits until all slots are served, nobody is thought to have failed, and every replica follows
    /// its master, whoever that is by now.
    pub fn wait_until_whole(&self) -> Result<()> {
        wait("the cluster is whole", PROMOTION_LIMIT, || self.is_whole())
    }

    /// Moves a slot to another master, some keys at a time.
    pub fn move_slot(&self, slot: u16, to: usize) -> Result<()> {
        let moving = Move::begin(self, slot, to)?;
        loop {
            let mut keys = moving.rest()?;
            keys.truncate(MOVED_AT_ONCE);
            if keys.is_empty() {
                return moving.end();
            }
            moving.take(&keys)?;
        }
    }
}

/// A slot on its way to another master, as `redis-cli --cluster reshard` moves it.
pub struct Move<'a> {
    cluster: &'a Cluster,
    source: usize,
    target: usize,
    slot: String,
}

impl<'a> Move<'a> {
    /// Opens both ends. The scripts are unknown at the new one.
    pub fn begin(cluster: &'a Cluster, slot: u16, target: usize) -> Result<Self> {
        let source = cluster.master_of(slot)?;
        ensure!(source != target, "it is there already");
        cluster.nodes[target].flush_scripts()?;
        let moving = Self { cluster, source, target, slot: slot.to_string() };
        moving.tell(target, "IMPORTING", source)?;
        moving.tell(source, "MIGRATING", target)?;
        Ok(moving)
    }

    /// Keys that have not been moved.
    pub fn rest(&self) -> Result<Vec<String>> {
        let source = &self.cluster.nodes[self.source];
        let keys = source.command(&["CLUSTER", "GETKEYSINSLOT", &self.slot, KEYS_SEEN])?;
        Ok(keys.list().iter().map(|key| key.text()).collect())
    }

    /// Moves some of them.
    pub fn take(&self, keys: &[String]) -> Result<()> {
        let port = self.cluster.nodes[self.target].port().to_string();
        let mut migrate = vec!["MIGRATE", "127.0.0.1", &port, "", "0", MOVE_LIMIT_MS, "KEYS"];
        migrate.extend(keys.iter().map(String::as_str));
        self.cluster.nodes[self.source].command(&migrate).map(drop)
    }

    /// Tells all masters whose it is now: the new owner first, then the old one.
    pub fn end(self) -> Result<()> {
        let mut masters = self.cluster.masters()?;
        masters.retain(|master| *master != self.source && *master != self.target);
        for node in [self.target, self.source].into_iter().chain(masters) {
            self.tell(node, "NODE", self.target)?;
        }
        Ok(())
    }

    fn tell(&self, node: usize, what: &str, other: usize) -> Result<()> {
        let id = self.cluster.nodes[other].command(&["CLUSTER", "MYID"])?.text();
        let told = self.cluster.nodes[node].command(&["CLUSTER", "SETSLOT", &self.slot, what, &id]);
        told.map(drop).with_context(|| format!("node {node} is told of the move"))
    }
}
