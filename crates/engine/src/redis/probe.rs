//! Whether each server takes a write: a tiny one of our own, followed by `WAIT` where answers wait
//! for replicas.
//!
//! A server that answers reads may refuse writes: its memory is full, its disk fails, its replicas
//! are gone, or it is a replica itself. All servers are asked at once, and each for a short time
//! only, so that a sick one does not keep anybody from hearing about the others.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use redis::{ErrorKind, Pipeline, RedisError, ServerErrorKind, Value};

use super::Engine;
use super::link::Failure;
use super::tags::hash_tag;
use super::url::Node;

/// How long one server is waited for; longer than a healthy one takes by far.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long it is waited to hear which servers there are.
const FIND_PATIENCE: Duration = Duration::from_secs(1);
/// How long replicas are waited for at most, whatever `wait_ms` says.
const MAX_WAIT_MS: u32 = 1_000;
/// What is written is gone after so long, in a Redis that nobody uses any more.
const KEPT_SECS: u32 = 60;

/// What is wrong with a server, or with a part of what is kept there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// What kind of trouble.
    pub problem: Problem,
    /// In words, and what to do about it.
    pub what: String,
    /// The partitions in which nothing is decided because of it.
    pub partitions: Vec<u16>,
}

/// Kinds of trouble, each of which needs something else to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Problem {
    /// There is no connection, or no answer.
    Unreachable,
    /// It answers, and takes no writes.
    RefusesWrites,
}

/// Asks all servers of an engine, again and again.
#[derive(Debug)]
pub struct Prober {
    engine: Engine,
    /// Who had which partitions when that could last be told.
    servers: BTreeMap<Node, Vec<u16>>,
}

impl Prober {
    /// For one engine.
    #[must_use]
    pub fn new(engine: Engine) -> Self {
        Self { engine, servers: BTreeMap::new() }
    }

    /// Asks every server once; says what is wrong, by server. Takes a few seconds at most.
    pub async fn look(&mut self) -> Vec<Trouble> {
        let link = &self.engine.shared.link;
        match tokio::time::timeout(FIND_PATIENCE, link.servers()).await {
            Ok(Ok(servers)) => self.servers = servers,
            // Those that were there before are asked, and tell more.
            Ok(Err(_)) | Err(_) if !self.servers.is_empty() => {}
            Ok(Err(failure)) => return vec![self.everywhere(&failure)],
            Err(_) => return vec![self.everywhere(&Failure::silent())],
        }
        let probes = self.servers.iter().map(|(node, partitions)| self.probe(node, partitions));
        join_all(probes).await.into_iter().flatten().collect()
    }

    async fn probe(&self, node: &Node, partitions: &[u16]) -> Option<Trouble> {
        let (link, place) = (&self.engine.shared.link, self.engine.shared.link.place());
        let mut pipe = Pipeline::with_capacity(2);
        let key = format!("{}:{{{}}}:probe", place.prefix, hash_tag(*partitions.first()?));
        pipe.cmd("SET").arg(key).arg(1).arg("EX").arg(KEPT_SECS);
        if place.wait > 0 {
            pipe.cmd("WAIT").arg(place.wait).arg(place.wait_ms.min(MAX_WAIT_MS));
        }
        let asked = tokio::time::timeout(PATIENCE, link.send(node, &pipe)).await;
        let (problem, why) = match asked {
            Err(_) => wrong(&Failure::silent()),
            Ok(Err(failure)) => wrong(&failure),
            Ok(Ok(answers)) => refusal(&answers, place.wait)?,
        };
        let (server, all) = (format!("{}:{}", node.host, node.port), usize::from(place.partitions));
        let mut what = format!("Redis at {server} {why}");
        if partitions.len() < all {
            what.push_str(&format!(" ({} of {all} partitions)", partitions.len()));
        }
        Some(Trouble { problem, what, partitions: partitions.to_vec() })
    }

    /// Nobody says where anything is.
    fn everywhere(&self, failure: &Failure) -> Trouble {
        let (problem, why) = wrong(failure);
        let partitions = (0..self.engine.shared.link.place().partitions).collect();
        Trouble { problem, what: format!("Redis {why}"), partitions }
    }
}

/// What a server that answered says against writing, if anything.
fn refusal(answers: &[Value], wait: u16) -> Option<(Problem, String)> {
    let error = answers.iter().find_map(|answer| match answer {
        Value::ServerError(error) => Some(RedisError::from(error.clone())),
        _ => None,
    });
    if let Some(error) = error {
        return refused(&error).map(|why| (Problem::RefusesWrites, why));
    }
    match answers.get(1) {
        Some(Value::Int(have)) if *have < i64::from(wait) => {
            let why = format!(
                "has too few replicas: {have} of {wait} have what it was told. Bring them back, or \
                 lower wait in engine.url and restart"
            );
            Some((Problem::RefusesWrites, why))
        }
        _ => None,
    }
}

/// What it means that a question was not answered.
fn wrong(failure: &Failure) -> (Problem, String) {
    let source = failure.source.as_ref();
    if let Some(why) = source.filter(|error| is_said(error)).and_then(refused) {
        return (Problem::RefusesWrites, why);
    }
    let cause = source.map(|error| format!(" ({error})")).unwrap_or_default();
    let why = if failure.may_have_happened {
        format!(
            "does not answer{cause}. See whether it hangs, and whether the network drops something"
        )
    } else {
        format!("cannot be reached{cause}. Check that it runs, the address, and the network")
    };
    (Problem::Unreachable, why)
}

/// Whether the server said it, and not the connection.
fn is_said(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::AuthenticationFailed)
        || error.code().is_some()
}

/// What a server says no with, and what to do; nothing if it only says that another has the slot.
fn refused(error: &RedisError) -> Option<String> {
    use ServerErrorKind as E;
    if let ErrorKind::Server(E::Moved | E::Ask | E::TryAgain) = error.kind() {
        return None;
    }
    if error.kind() == ErrorKind::AuthenticationFailed {
        return Some("refuses the login: check user and password in engine.url".to_owned());
    }
    let why = match error.code().unwrap_or_default() {
        "OOM" => "its memory is full. Raise maxmemory, or clear sales that are over",
        "MISCONF" => "it cannot write to its disk. Make room there, and see its log",
        "NOREPLICAS" => "fewer replicas than min-replicas-to-write are connected. Bring them back",
        "READONLY" => "it is a replica. Name the master in engine.url, or promote this one",
        "LOADING" => "it still reads its file after a start. It goes on by itself",
        "CLUSTERDOWN" => {
            "its cluster is down. See `CLUSTER INFO` and bring the missing masters back"
        }
        "MASTERDOWN" => "it is a replica without its master. Bring the master back, or promote it",
        "NOPERM" => "the user in engine.url may not write. Give it the rights it needs",
        _ => return Some(format!("refuses writes: {error}")),
    };
    Some(format!("refuses writes: {why}"))
}
