//! A master with replicas, and sentinels that look after them.
//!
//! Servers are known by their index, the first master first; the index stays with the server, not
//! with its role.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::certificates::Identity;
use super::cluster::PROMOTION_LIMIT;
use super::keeper::{LastSignal, Line, Process, START_LIMIT, patiently, wait};
use super::ports::free_port;
use super::program::REDIS;
use super::redis::{self, Redis};
use super::resp::{self, Value};

/// What the sentinels call the master.
pub const MASTER: &str = "shop";
/// How many sentinels there are; two of them agree on a failover.
const SENTINELS: usize = 3;
const READY: &str = "+monitor master";

/// How to start them.
#[derive(Debug, Clone)]
pub struct Options {
    /// How to start each server.
    pub node: redis::Options,
    /// How many stand by.
    pub replicas: usize,
    /// How long a server may be silent before it is thought to be down.
    pub down_after: Duration,
}

impl Default for Options {
    fn default() -> Self {
        let node = redis::Options::default().with("repl-diskless-sync-delay", "0");
        Self { node, replicas: 2, down_after: Duration::from_millis(500) }
    }
}

/// Running servers and sentinels; gone, with their folders, once this is dropped.
pub struct Sentinels {
    servers: Vec<Redis>,
    sentinels: Vec<Sentinel>,
}

struct Sentinel {
    port: u16,
    tls_port: Option<u16>,
    _process: Process,
}

impl Sentinels {
    /// Starts all of them and returns when every sentinel knows every replica and every other
    /// sentinel.
    pub fn start(options: &Options) -> Result<Self> {
        let mut node = options.node.clone();
        if node.tls.is_some() {
            node = node.with("tls-replication", "yes");
        }
        let master = Redis::start(&node)?;
        let port = announced(&master).to_string();
        let mut servers = vec![master];
        for _ in 0..options.replicas {
            let replica = node.clone().with("replicaof", format!("127.0.0.1 {port}"));
            servers.push(Redis::start(&replica)?);
        }
        let sentinels = (0..SENTINELS).map(|_| start_sentinel(&port, options));
        let all = Self { sentinels: sentinels.collect::<Result<_>>()?, servers };
        wait("the sentinels know everybody", START_LIMIT, || all.is_acquainted(options.replicas))?;
        Ok(all)
    }

    /// `redis-sentinel://127.0.0.1:<port>,…/shop`, or `rediss-sentinel://` if they speak TLS.
    pub fn url(&self) -> String {
        let address = |one: &Sentinel| format!("127.0.0.1:{}", one.tls_port.unwrap_or(one.port));
        let addresses: Vec<String> = self.sentinels.iter().map(address).collect();
        let sealed = self.sentinels.iter().any(|sentinel| sentinel.tls_port.is_some());
        let scheme = if sealed { "rediss-sentinel" } else { "redis-sentinel" };
        format!("{scheme}://{}/{MASTER}", addresses.join(","))
    }

    /// Every server, by index.
    pub fn servers(&self) -> &[Redis] {
        &self.servers
    }

    /// The index of the master, as every sentinel says, once it says so itself.
    pub fn master(&self) -> Result<usize> {
        let mut seen = Vec::new();
        for Sentinel { port, .. } in &self.sentinels {
            let command = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER];
            let answer = resp::ask(*port, None, &command)?;
            seen.push(answer.list().get(1).and_then(Value::integer));
        }
        seen.dedup();
        ensure!(seen.len() == 1, "the sentinels disagree: {seen:?}");
        let is_it = |server: &Redis| Some(i64::from(announced(server))) == seen[0];
        let index = self.servers.iter().position(is_it).context("nobody listens there")?;
        let role = self.servers[index].command(&["ROLE"])?;
        ensure!(role.list().first().is_some_and(|role| role.text() == "master"), "{role:?}");
        Ok(index)
    }

    /// Waits until another server than `old` is the master.
    pub fn wait_for_promotion(&self, old: usize) -> Result<usize> {
        let mut promoted = old;
        wait("a replica is promoted", PROMOTION_LIMIT, || {
            promoted = self.master()?;
            ensure!(promoted != old, "still server {old}");
            Ok(())
        })?;
        Ok(promoted)
    }

    /// Waits until so many replicas follow the master and have everything it had when they were asked
    /// first.
    pub fn wait_for_replicas(&self, count: usize) -> Result<()> {
        let mut goal = None;
        wait("the replicas follow", PROMOTION_LIMIT, || {
            let master = self.master()?;
            let said = self.servers[master].command(&["INFO", "replication"])?.text();
            let end = said.lines().find_map(|line| line.strip_prefix("master_repl_offset:"));
            let end: u64 = end.context("no offset")?.trim().parse()?;
            // What another master had says nothing about this one.
            let reached = goal.filter(|(of, _)| *of == master).unwrap_or((master, end));
            goal = Some(reached);
            let (_, wanted) = reached;
            // One that has connected anew may be listed twice for a while.
            let ports: BTreeSet<&str> = said
                .lines()
                .filter_map(|line| line.split_once(",state=online,offset="))
                .filter(|(_, rest)| {
                    let offset = rest.split(',').next().and_then(|offset| offset.parse().ok());
                    offset.is_some_and(|offset: u64| offset >= wanted)
                })
                .filter_map(|(replica, _)| Some(replica.rsplit_once("port=")?.1))
                .collect();
            ensure!(ports.len() >= count, "{wanted} is to be reached: {said}");
            Ok(())
        })
    }

    /// Has the sentinels make another server the master, with everything in order.
    pub fn fail_over(&self) -> Result<()> {
        wait("a failover begins", PROMOTION_LIMIT, || {
            resp::ask(self.sentinels[0].port, None, &["SENTINEL", "FAILOVER", MASTER]).map(drop)
        })
    }

    /// Any command, to every sentinel.
    pub fn tell_sentinels(&self, command: &[&str]) -> Result<()> {
        self.sentinels.iter().try_for_each(|one| resp::ask(one.port, None, command).map(drop))
    }

    fn is_acquainted(&self, replicas: usize) -> Result<()> {
        for Sentinel { port, .. } in &self.sentinels {
            let known = |what| resp::ask(*port, None, &["SENTINEL", what, MASTER]);
            let (others, seen) = (known("SENTINELS")?, known("REPLICAS")?);
            ensure!(others.list().len() == SENTINELS - 1, "{port} knows {others:?}");
            ensure!(seen.list().len() == replicas, "{port} knows {seen:?}");
        }
        let said = self.servers[0].command(&["INFO", "replication"])?.text();
        ensure!(said.matches("state=online").count() == replicas, "{said}");
        Ok(())
    }
}

/// Where the others reach a server.
fn announced(server: &Redis) -> u16 {
    server.tls_port().unwrap_or(server.port())
}

fn start_sentinel(master: &str, options: &Options) -> Result<Sentinel> {
    let program = REDIS.find()?;
    patiently(|| {
        let port = free_port()?;
        let process = Process::new("sentinel", &options.node.base, LastSignal::Kill)?;
        // It keeps what it learns in there.
        let config = process.folder().join("sentinel.conf");
        let down = options.down_after.as_millis();
        let mut text = format!(
            "port {port}\nbind 127.0.0.1\nsentinel monitor {MASTER} 127.0.0.1 {master} 2\n\
             sentinel down-after-milliseconds {MASTER} {down}\n\
             sentinel failover-timeout {MASTER} 3000\nsentinel parallel-syncs {MASTER} 2\n"
        );
        if let Some(password) = &options.node.password {
            text.push_str(&format!("sentinel auth-pass {MASTER} {password}\n"));
        }
        let mut tls_port = None;
        if let Some(Identity { ca, cert, key }) = &options.node.tls {
            let port = free_port()?;
            tls_port = Some(port);
            text.push_str(&format!(
                "tls-port {port}\ntls-replication yes\ntls-auth-clients no\ntls-ca-cert-file {}\n\
                 tls-cert-file {}\ntls-key-file {}\n",
                ca.display(),
                cert.display(),
                key.display()
            ));
        }
        fs::write(&config, text)?;
        let line = Line::new(&program).arg(&config).arg("--sentinel");
        process.start(&line.arg("--dir").arg(process.folder()), READY)?;
        Ok(Sentinel { port, tls_port, _process: process })
    })
}
