//! Questions to one server or a cluster, each sent to whoever has its partition.
//!
//! Every question belongs to one partition, so to one slot and one server. A server in trouble
//! fails the questions for its own partitions and delays no others. What failed is told by one
//! thing first: whether it may have happened.

mod connections;
mod failure;
mod owners;
mod tls;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::{Arg, Cmd, ErrorKind, Pipeline, RedisError, ServerErrorKind, Value};

pub(super) use self::connections::ServerId;
pub use self::failure::Failure;
pub(super) use self::failure::Kind;
pub(super) use self::tls::Tls;
pub use self::tls::TlsError;

use self::connections::{Connections, Forgets, RESPONSE_TIMEOUT};
use self::owners::Owners;
use super::url::{Node, Place, Shape};

/// Steps from server to server until one has the slot.
const MAX_REDIRECTS: usize = 4;

/// All servers of one [`Place`].
#[derive(Debug)]
pub(super) struct Link {
    place: Place,
    connections: Arc<Connections>,
    owners: Arc<Owners>,
}

/// Where a question goes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Way {
    node: Node,
    /// Whether the slot is on its way there, so that each question has to say `ASKING`.
    asking: bool,
}

impl Link {
    pub(super) fn new(place: Place) -> Result<Self, TlsError> {
        let wait = Duration::from_millis(u64::from(place.wait_ms));
        let tls = place.tls.as_ref().map(Tls::load).transpose()?;
        let sentinels = matches!(place.shape, Shape::Sentinel(_)).then(|| {
            Connections::new(connections::Way {
                login: place.sentinel_login.clone(),
                database: 0,
                tls: tls.clone(),
                patience: RESPONSE_TIMEOUT,
                forgets: Forgets::Nothing,
            })
        });
        // Waiting for replicas does not rule it out: one that confirmed nothing may be promoted, and a
        // master may start again from a file that lacks something.
        let forgets = match &place.shape {
            Shape::Server => Forgets::AsSetUp,
            Shape::Cluster | Shape::Sentinel(_) => Forgets::AtFailovers,
        };
        let connections = Connections::new(connections::Way {
            login: place.login.clone(),
            database: place.database,
            tls,
            patience: RESPONSE_TIMEOUT + wait,
            forgets,
        });
        let owners = Arc::new(Owners::new(&place, sentinels));
        Ok(Self { connections: Arc::new(connections), owners, place })
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// One question to the server that has the partition.
    pub(super) async fn ask(&self, partition: u16, cmd: &Cmd) -> Result<Value, Failure> {
        let mut answers = self.ask_many(partition, &alone(cmd)).await?;
        answers.pop().ok_or(Failure::passing("an answer is missing", None, true))
    }

    /// Several questions, in one go, to the server that has the partition; the first one that is
    /// refused fails all. While a slot moves, its keys lie on two servers: each question is
    /// answered by the one that has its key.
    pub(super) async fn ask_many(
        &self,
        partition: u16,
        pipe: &Pipeline,
    ) -> Result<Vec<Value>, Failure> {
        let owners = self.owners.all(&self.connections).await?;
        let node = owners[usize::from(partition)].clone();
        let answers = self.send(&node, pipe).await?;
        self.look_for_replicas(pipe, &answers);
        if !answers.iter().any(|answer| matches!(answer, Value::ServerError(_))) {
            return Ok(answers);
        }
        self.follow(partition, pipe, answers, Way { node, asking: false }).await
    }

    /// A master that waited for its replicas in vain may have been cut off and replaced.
    fn look_for_replicas(&self, pipe: &Pipeline, answers: &[Value]) {
        if self.place.wait == 0 {
            return;
        }
        let too_few =
            |have: &Value| matches!(have, Value::Int(have) if *have < self.place.wait.into());
        if pipe.cmd_iter().zip(answers).any(|(cmd, answer)| is_wait(cmd) && too_few(answer)) {
            self.owners.are_stale(&self.connections);
        }
    }

    /// The same, but only the server that has the partition so far, and what is asked depends on who that
    /// is: if it says that another one has it now, nothing was asked, and the next time that one is.
    pub(super) async fn ask_owner(
        &self,
        partition: u16,
        pack: impl FnOnce(ServerId) -> Pipeline,
    ) -> Result<Vec<Value>, Failure> {
        let owners = self.owners.all(&self.connections).await?;
        let node = owners[usize::from(partition)].clone();
        let sent = self.connections.send_packed(&node, pack).await;
        // Whoever does not answer may have been replaced.
        let (pipe, answers) = sent.inspect_err(|_| self.owners.are_stale(&self.connections))?;
        self.look_for_replicas(&pipe, &answers);
        let Some(Value::ServerError(error)) = answers.first() else {
            return Ok(answers);
        };
        let error = RedisError::from(error.clone());
        let other = error.redirect_node().and_then(|(to, _)| address_of(to, &node));
        match (error.kind(), other) {
            (ErrorKind::Server(ServerErrorKind::Moved), Some(other)) => {
                self.owners.set(partition, &other);
                self.owners.are_stale(&self.connections);
                Err(Failure::passing("another server has the partition now", None, false))
            }
            _ => self.follow(partition, &pipe, answers, Way { node, asking: false }).await,
        }
    }

    /// Asks those questions again, elsewhere, to which the answer was that somebody else has the
    /// key.
    async fn follow(
        &self,
        partition: u16,
        pipe: &Pipeline,
        mut answers: Vec<Value>,
        first: Way,
    ) -> Result<Vec<Value>, Failure> {
        let cmds: Vec<&Cmd> = pipe.cmd_iter().collect();
        let mut asked: Vec<(usize, Way)> = (0..cmds.len()).map(|p| (p, first.clone())).collect();
        for hops in 0.. {
            let open = self.redirected(partition, &cmds, &answers, asked)?;
            let Some((_, way)) = open.first() else { return Ok(answers) };
            if hops == MAX_REDIRECTS {
                break;
            }
            let way = way.clone();
            let mut some = Pipeline::with_capacity(open.len() * 2);
            for (place, _) in open.iter().filter(|(_, other)| *other == way) {
                if way.asking {
                    // It holds for the next command only.
                    some.cmd("ASKING");
                }
                some.add_command(cmds[*place].clone());
            }
            let said = self.send(&way.node, &some).await?;
            let each = if way.asking { 2 } else { 1 };
            let mut said = said.into_iter().skip(each - 1).step_by(each);
            for (place, _) in open.iter().filter(|(_, other)| *other == way) {
                answers[*place] = said.next().unwrap_or(Value::Nil);
            }
            asked = open;
        }
        let what = "the cluster sends from one server to the next";
        Err(Failure::passing(what, None, cmds.len() > 1))
    }

    /// Of the questions that were asked those that have to go elsewhere, and where. A `WAIT` goes
    /// where the question before it goes, because it speaks of its own connection only.
    fn redirected(
        &self,
        partition: u16,
        cmds: &[&Cmd],
        answers: &[Value],
        asked: Vec<(usize, Way)>,
    ) -> Result<Vec<(usize, Way)>, Failure> {
        let mut open: Vec<(usize, Way)> = Vec::new();
        for (place, way) in asked {
            let Value::ServerError(error) = &answers[place] else {
                let before = open.last().filter(|(before, _)| before + 1 == place);
                if let Some((_, way)) = before.filter(|_| is_wait(cmds[place])) {
                    let way = way.clone();
                    open.push((place, way));
                }
                continue;
            };
            let error = RedisError::from(error.clone());
            // With the address comes the slot, which is known.
            let other = error.redirect_node().and_then(|(to, _)| address_of(to, &way.node));
            match (error.kind(), other) {
                (ErrorKind::Server(ServerErrorKind::Moved), Some(node)) => {
                    self.owners.set(partition, &node);
                    self.owners.are_stale(&self.connections);
                    open.push((place, Way { node, asking: false }));
                }
                (ErrorKind::Server(ServerErrorKind::Ask), Some(node)) => {
                    open.push((place, Way { node, asking: true }));
                }
                _ => {
                    let mut failure = self.refused(&way.node, error);
                    // What came before it was carried out.
                    failure.may_have_happened |= place > 0;
                    return Err(failure);
                }
            }
        }
        Ok(open)
    }

    /// One question for every partition, with one round trip to each server, all servers at once.
    /// A server that does not answer fails its own partitions only.
    pub(super) async fn ask_each(&self, cmds: impl Fn(u16) -> Cmd) -> Vec<Result<Value, Failure>> {
        self.ask_some(|partition| Some(cmds(partition))).await.into_iter().flatten().collect()
    }

    /// The same for some partitions; `None` for those that are not asked.
    pub(super) async fn ask_some(
        &self,
        cmds: impl Fn(u16) -> Option<Cmd>,
    ) -> Vec<Option<Result<Value, Failure>>> {
        let cmds: Vec<Option<Cmd>> = (0..self.place.partitions).map(cmds).collect();
        let owners = match self.owners.all(&self.connections).await {
            Ok(owners) => owners,
            Err(failure) => {
                let fail = |cmd: Option<Cmd>| cmd.map(|_| Err(failure.clone()));
                return cmds.into_iter().map(fail).collect();
            }
        };
        let mut by_node = BTreeMap::<&Node, Vec<u16>>::new();
        for (partition, (node, cmd)) in (0_u16..).zip(owners.iter().zip(&cmds)) {
            if cmd.is_some() {
                by_node.entry(node).or_default().push(partition);
            }
        }
        let cmds = &cmds;
        let asked = by_node.into_iter().map(|(node, partitions)| async move {
            let of = |partition: &u16| cmds[usize::from(*partition)].as_ref();
            let mut pipe = Pipeline::with_capacity(partitions.len());
            for cmd in partitions.iter().filter_map(of) {
                pipe.add_command(cmd.clone());
            }
            let answers = match self.send(node, &pipe).await {
                Ok(answers) => answers,
                Err(failure) => {
                    return partitions.into_iter().map(|p| (p, Err(failure.clone()))).collect();
                }
            };
            let each = partitions.into_iter().zip(answers).map(|(partition, answer)| async move {
                let Value::ServerError(error) = answer else { return (partition, Ok(answer)) };
                let error = RedisError::from(error);
                match (error.redirect_node(), of(&partition)) {
                    // The single question finds its way.
                    (Some(_), Some(cmd)) => (partition, self.ask(partition, cmd).await),
                    _ => (partition, Err(self.refused(node, error))),
                }
            });
            join_all(each).await
        });
        let mut answers: Vec<_> = cmds.iter().map(|_| None).collect();
        for (partition, answer) in join_all(asked).await.into_iter().flatten() {
            answers[usize::from(partition)] = Some(answer);
        }
        answers
    }

    /// One question to each server there is, all at once; for each partition what its server said.
    pub(super) async fn ask_servers(&self, cmd: &Cmd) -> Vec<Result<Value, Failure>> {
        let owners = match self.owners.all(&self.connections).await {
            Ok(owners) => owners,
            Err(failure) => return vec![Err(failure); self.place.partitions.into()],
        };
        let pipe = &alone(cmd);
        let mut servers: Vec<&Node> = owners.iter().collect();
        servers.sort();
        servers.dedup();
        let asked = servers.into_iter().map(|node| async move {
            let answer = match self.send(node, pipe).await {
                Ok(mut answers) => answers.pop().unwrap_or(Value::Nil).extract_error(),
                Err(failure) => return (node, Err(failure)),
            };
            (node, answer.map_err(|error| self.refused(node, error)))
        });
        let answers: BTreeMap<&Node, _> = join_all(asked).await.into_iter().collect();
        owners.iter().map(|node| answers[node].clone()).collect()
    }

    /// The number of the connection that is kept to the server of a partition. Another number says
    /// that it was connected to anew, or that another server has the partition.
    pub(super) fn connection_number(&self, partition: u16) -> Option<u64> {
        self.connections.number(&self.owners.known_of(partition)?)
    }

    /// The server that has a partition, if that is known.
    pub(super) fn server_of(&self, partition: u16) -> ServerId {
        let node = self.owners.known_of(partition);
        node.and_then(|node| self.connections.server(&node)).unwrap_or_default()
    }

    /// Every server there is, with the partitions it has.
    pub(super) async fn servers(&self) -> Result<BTreeMap<Node, Vec<u16>>, Failure> {
        let mut servers = BTreeMap::<Node, Vec<u16>>::new();
        let owners = self.owners.all(&self.connections).await?;
        for (partition, node) in (0_u16..).zip(owners.iter()).take(self.place.partitions.into()) {
            servers.entry(node.clone()).or_default().push(partition);
        }
        Ok(servers)
    }

    /// Drops all connections, as if the network had.
    pub(super) fn drop_connections(&self) {
        self.connections.drop_all();
    }

    /// Several questions to one server; what it refuses is among the answers.
    pub(super) async fn send(&self, node: &Node, pipe: &Pipeline) -> Result<Vec<Value>, Failure> {
        let sent = self.connections.send(node, pipe).await;
        // Whoever does not answer may have been replaced.
        sent.inspect_err(|_| self.owners.are_stale(&self.connections))
    }

    /// A server said no.
    fn refused(&self, node: &Node, error: RedisError) -> Failure {
        // A replica: the address may mean another server by now.
        if error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly) {
            self.connections.leave(node);
        }
        let failure = Failure::refused(error);
        if failure.hints_at_new_owner() {
            self.owners.are_stale(&self.connections);
        }
        failure
    }
}

fn alone(cmd: &Cmd) -> Pipeline {
    let mut pipe = Pipeline::with_capacity(1);
    pipe.add_command(cmd.clone());
    pipe
}

fn is_wait(cmd: &Cmd) -> bool {
    matches!(cmd.args_iter().next(), Some(Arg::Simple(b"WAIT")))
}

/// A server that does not know its own name has the one it was asked under.
fn host_of(host: &str, asked: &Node) -> String {
    if matches!(host, "" | "?") { asked.host.clone() } else { host.to_owned() }
}

/// The server that `asked` sends on to, from `host:port`.
fn address_of(address: &str, asked: &Node) -> Option<Node> {
    let (host, port) = address.rsplit_once(':')?;
    Some(Node { host: host_of(host, asked), port: port.parse().ok()? })
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
}
