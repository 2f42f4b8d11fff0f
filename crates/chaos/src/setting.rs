//! What a round stands on: which engine, set up how, beside which database; and what that setting
//! may lose, by the table in docs/GUARANTEES.md.

use std::time::Duration;

use anyhow::Result;
use qiang_testkit::servers::{Cluster, Disk, Redis, Sentinels, cluster, redis, sentinel};

use crate::database::{Database, Product};

/// Logs of an engine on Redis.
pub(crate) const PARTITIONS: u16 = 8;
/// How long a node of a cluster may be silent.
pub(crate) const NODE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a server that sentinels look after may be silent: longer than a short pause.
const DOWN_AFTER: Duration = Duration::from_millis(1_500);
/// How large the disk of each Redis is, in megabytes: for the file of a round, twice.
const REDIS_DISK_MB: u32 = 48;

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// One Redis that syncs before it answers.
    Redis,
    /// Three masters with a replica each, that has everything before it is answered.
    ClusterWait,
    /// The same without waiting for replicas: a failover may lose what was answered last.
    ClusterNowait,
    /// A master with two replicas that both have everything before it is answered, and three sentinels. With one
    /// of two, a failover may lose what only the other one has.
    Sentinel,
    /// `sql:` on PostgreSQL.
    Postgres,
    /// `sql:` on MariaDB.
    Mariadb,
}

impl Setting {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Redis,
        Self::ClusterWait,
        Self::ClusterNowait,
        Self::Sentinel,
        Self::Postgres,
        Self::Mariadb,
    ];

    /// The word for it on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::ClusterWait => "cluster-wait",
            Self::ClusterNowait => "cluster-nowait",
            Self::Sentinel => "sentinel",
            Self::Postgres => "postgres",
            Self::Mariadb => "mariadb",
        }
    }

    /// Those that a word of the command line means; none if it means nothing.
    pub fn named(word: &str) -> Vec<Self> {
        match word {
            "all" => Self::ALL.to_vec(),
            "cluster" => vec![Self::ClusterWait, Self::ClusterNowait],
            "sql" => vec![Self::Postgres, Self::Mariadb],
            _ => Self::ALL.into_iter().filter(|setting| setting.word() == word).collect(),
        }
    }

    pub(crate) fn is_cluster(self) -> bool {
        matches!(self, Self::ClusterWait | Self::ClusterNowait)
    }

    pub(crate) fn start(self) -> Result<Servers> {
        let product = match self {
            Self::Redis | Self::ClusterNowait | Self::Postgres => Product::Postgres,
            Self::ClusterWait | Self::Sentinel | Self::Mariadb => Product::Mariadb,
        };
        let disks = Disk::is_possible();
        if !disks {
            crate::say("no disk can be mounted here: faults that fill one are skipped");
        }
        let durability = redis::Durability::Always;
        let disk_megabytes = disks.then_some(REDIS_DISK_MB);
        let node = redis::Options { durability, disk_megabytes, ..Default::default() };
        let engine = match self {
            Self::Redis => Engine::Redis(Redis::start(&node)?),
            Self::Postgres | Self::Mariadb => Engine::Sql,
            Self::ClusterWait | Self::ClusterNowait => {
                let (replicas, links) = (cluster::Replicas::One, cluster::Links::Proxied);
                let node_timeout = NODE_TIMEOUT;
                let options = cluster::Options { node, replicas, node_timeout, links };
                Engine::Cluster(Cluster::start(&options)?)
            }
            Self::Sentinel => {
                let node = node.with("repl-diskless-sync-delay", "0");
                let options =
                    sentinel::Options { node, down_after: DOWN_AFTER, ..Default::default() };
                Engine::Sentinel(Sentinels::start(&options)?)
            }
        };
        Ok(Servers { engine, database: Database::start(product, disks)? })
    }

    /// The URL of the engine, where its server is at `at`.
    pub(crate) fn engine_url(self, at: &str) -> String {
        let keys = format!("?prefix=chaos&partitions={PARTITIONS}");
        match self {
            Self::Redis | Self::ClusterNowait => format!("{at}{keys}"),
            Self::ClusterWait => format!("{at}{keys}&wait=1"),
            Self::Sentinel => format!("{at}{keys}&wait=2"),
            Self::Postgres | Self::Mariadb => "sql:".to_owned(),
        }
    }
}

/// The servers of a round; gone once this is dropped.
pub(crate) struct Servers {
    pub(crate) engine: Engine,
    pub(crate) database: Database,
}

/// Where claims are decided, if not in the database.
pub(crate) enum Engine {
    Redis(Redis),
    Cluster(Cluster),
    Sentinel(Sentinels),
    Sql,
}

impl Engine {
    /// Its URL, without settings; empty where there is no server.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Redis(server) => server.url(),
            Self::Cluster(cluster) => cluster.url(),
            Self::Sentinel(sentinels) => sentinels.url(),
            Self::Sql => String::new(),
        }
    }

    /// What each of its servers has logged.
    pub(crate) fn logs(&self) -> Vec<(String, String)> {
        let servers: &[Redis] = match self {
            Self::Redis(server) => std::slice::from_ref(server),
            Self::Cluster(cluster) => cluster.nodes(),
            Self::Sentinel(sentinels) => sentinels.servers(),
            Self::Sql => &[],
        };
        let log = |server: &Redis| (format!("redis-{}.log", server.port()), server.said());
        servers.iter().map(log).collect()
    }
}
