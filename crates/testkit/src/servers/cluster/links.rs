//! Links between the servers of a cluster, and from clients to them, that carry nothing for a while.
//!
//! Every server announces the addresses of proxies instead of its own, one for clients and replicas and one
//! for the cluster's bus, and connects to others from a loopback address of its own. So a proxy knows who
//! comes, and everything between two servers can be held back, whoever has connected to whom.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context, Result};

use super::Cluster;
use crate::Proxy;
use crate::servers::redis;

/// How servers reach each other, and clients them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Links {
    /// At the servers' own addresses.
    #[default]
    Direct,
    /// Through proxies.
    Proxied,
}

/// Where a server is reached.
pub(super) struct Doors {
    pub(super) clients: Proxy,
    pub(super) bus: Proxy,
}

impl Doors {
    pub(super) fn open(port: u16, bus: u16) -> Result<Self> {
        Ok(Self { clients: Proxy::start(port)?, bus: Proxy::start(bus)? })
    }

    /// Has the server at this place announce these doors.
    pub(super) fn announce(&self, index: usize, node: redis::Options) -> redis::Options {
        node.with("cluster-announce-port", self.clients.port().to_string())
            .with("cluster-announce-bus-port", self.bus.port().to_string())
            .with("bind-source-addr", address(index).to_string())
    }
}

/// Where a server connects from; clients come from [`Ipv4Addr::LOCALHOST`].
fn address(index: usize) -> IpAddr {
    let last = u8::try_from(index + 2).expect("a cluster here has a handful of servers");
    Ipv4Addr::new(127, 0, 0, last).into()
}

impl Cluster {
    /// Holds back everything between two servers, until [`Cluster::heal_links`].
    pub fn part(&self, one: usize, other: usize) -> Result<()> {
        for (at, from) in [(one, other), (other, one)] {
            let doors = self.doors_of(at)?;
            doors.clients.silence(address(from));
            doors.bus.silence(address(from));
        }
        Ok(())
    }

    /// Holds back everything between a server and all others; clients still reach it.
    pub fn isolate(&self, index: usize) -> Result<()> {
        let others = (0..self.nodes.len()).filter(|other| *other != index);
        others.into_iter().try_for_each(|other| self.part(index, other))
    }

    /// Holds back what a master tells its replica; both go on to hear from each other that they are there.
    pub fn part_replication(&self, master: usize, replica: usize) -> Result<()> {
        self.doors_of(master)?.clients.silence(address(replica));
        Ok(())
    }

    /// Holds back everything between clients and a server; the other servers still reach it.
    pub fn part_from_clients(&self, index: usize) -> Result<()> {
        self.doors_of(index)?.clients.silence(Ipv4Addr::LOCALHOST.into());
        Ok(())
    }

    /// Lets everything pass again, also what was held back.
    pub fn heal_links(&self) -> Result<()> {
        for Doors { clients, bus } in &self.doors {
            clients.heal()?;
            bus.heal()?;
        }
        Ok(())
    }

    /// The port at which others reach a server.
    pub(super) fn announced(&self, index: usize) -> u16 {
        match self.doors.get(index) {
            Some(doors) => doors.clients.port(),
            None => self.nodes[index].port(),
        }
    }

    fn doors_of(&self, index: usize) -> Result<&Doors> {
        self.doors.get(index).context("the cluster was started without proxies")
    }
}
