//! What a round stands on: which engine, set up how, beside which database; and what that setting
//! may lose, by the table in docs/GUARANTEES.md.

use std::time::Duration;

use anyhow::Result;
use qiang_testkit::servers::{Cluster, Redis, cluster, redis};

use crate::database::{Database, Product};

/// Logs of an engine on Redis.
pub(crate) const PARTITIONS: u16 = 8;
/// How long a node of a cluster may be silent.
pub(crate) const NODE_TIMEOUT: Duration = Duration::from_secs(2);

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// One Redis that syncs before it answers.
    Redis,
    /// Three masters with a replica each, that has everything before it is answered.
    ClusterWait,
    /// The same without waiting for replicas: a failover may lose what was answered last.
    ClusterNowait,
    /// `sql:` on PostgreSQL.
    Postgres,
    /// `sql:` on MariaDB.
    Mariadb,
}

impl Setting {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Redis, Self::ClusterWait, Self::ClusterNowait, Self::Postgres, Self::Mariadb];

    /// The word for it on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::ClusterWait => "cluster-wait",
            Self::ClusterNowait => "cluster-nowait",
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
            Self::ClusterWait | Self::Mariadb => Product::Mariadb,
        };
        let node = redis::Options { durability: redis::Durability::Always, ..Default::default() };
        let engine = match self {
            Self::Redis => Engine::Redis(Redis::start(&node)?),
            Self::Postgres | Self::Mariadb => Engine::Sql,
            Self::ClusterWait | Self::ClusterNowait => {
                let (replicas, node_timeout) = (cluster::Replicas::One, NODE_TIMEOUT);
                let options = cluster::Options { node, replicas, node_timeout };
                Engine::Cluster(Cluster::start(&options)?)
            }
        };
        Ok(Servers { engine, database: Database::start(product)? })
    }

    /// The URL of the engine, where its server is at `at`.
    pub(crate) fn engine_url(self, at: &str) -> String {
        let keys = format!("?prefix=chaos&partitions={PARTITIONS}");
        match self {
            Self::Redis | Self::ClusterNowait => format!("{at}{keys}"),
            Self::ClusterWait => format!("{at}{keys}&wait=1"),
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
    Sql,
}

impl Engine {
    /// Its URL, without settings; empty where there is no server.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Redis(server) => server.url(),
            Self::Cluster(cluster) => cluster.url(),
            Self::Sql => String::new(),
        }
    }

    /// What each of its servers has logged.
    pub(crate) fn logs(&self) -> Vec<(String, String)> {
        let servers: &[Redis] = match self {
            Self::Redis(server) => std::slice::from_ref(server),
            Self::Cluster(cluster) => cluster.nodes(),
            Self::Sql => &[],
        };
        let log = |server: &Redis| (format!("redis-{}.log", server.port()), server.said());
        servers.iter().map(log).collect()
    }
}
