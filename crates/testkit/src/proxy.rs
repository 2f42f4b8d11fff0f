//! A TCP proxy that misbehaves when told to: for tests of what a client does when the network, or
//! a server, fails in the middle of something.
//!
//! It runs on a thread of its own, so a test may block without stopping it. What a method says
//! holds for every byte that is read after it returned; there is nothing to sleep for. When a
//! test has to know that something happened, it waits for a count ([`Proxy::until`]).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::mpsc as ack;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};

use crate::servers::free_port;

mod door;
mod relay;

/// How long [`Proxy::until`] waits before it says that it was in vain.
pub const WAIT_LIMIT: Duration = Duration::from_secs(30);
/// Ports may be taken between being found free and being used.
const ATTEMPTS: usize = 5;

/// Listens at a port of its own and stands between clients and a server of this machine. Gone,
/// with its connections, once it is dropped.
pub struct Proxy {
    port: u16,
    upstream: u16,
    doings: Arc<Doings>,
    door: mpsc::Sender<door::Order>,
    /// Only empty while being dropped.
    runtime: Option<Runtime>,
}

/// What has passed since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections that were accepted.
    pub connections: u64,
    /// Those that are open.
    pub open: u64,
    /// Connections that were cut by order: the one to cut all, or the end of a reply.
    pub cut: u64,
    /// Bytes handed to the server.
    pub request_bytes: u64,
    /// Bytes handed to clients.
    pub reply_bytes: u64,
    /// Bytes that the server answered and no client got.
    pub swallowed_bytes: u64,
}

/// What every connection is told, and what it tells.
struct Doings {
    rules: watch::Sender<Rules>,
    fate: Mutex<Fate>,
    counts: watch::Sender<Counts>,
}

#[derive(Debug, Clone, Default)]
struct Rules {
    /// Connections of an earlier generation are cut.
    generation: u64,
    /// Nothing is forwarded to or from clients with these addresses.
    silenced: Vec<IpAddr>,
    requests: Way,
    replies: Way,
}

#[derive(Debug, Clone, Copy, Default)]
struct Way {
    delay: Duration,
    paused: bool,
}

/// What happens to the next reply, on whichever connection it comes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Fate {
    #[default]
    Deliver,
    SwallowNext,
    SwallowAll,
    CutAfter(u64),
}

/// What becomes of a piece of a reply.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Deliver,
    /// This many bytes, and then the connection ends.
    DeliverThenCut(usize),
}

impl Proxy {
    /// Stands in front of the server at `upstream` on this machine, which need not run yet.
    pub fn start(upstream: u16) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("proxy")
            .enable_all()
            .build()
            .context("cannot start a thread for a proxy")?;
        let (listener, port) = listen(&runtime)?;
        let doings = Arc::new(Doings {
            rules: watch::Sender::new(Rules::default()),
            fate: Mutex::new(Fate::default()),
            counts: watch::Sender::new(Counts::default()),
        });
        let (door, orders) = mpsc::channel(1);
        runtime.spawn(door::keep(listener, address(upstream), Arc::clone(&doings), orders));
        Ok(Self { port, upstream, doings, door, runtime: Some(runtime) })
    }

    /// Where clients connect to, on the loopback interface.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of the server behind, leading through here instead.
    pub fn url(&self, of_server: &str) -> String {
        let [server, own] = [self.upstream, self.port].map(|port| format!("127.0.0.1:{port}"));
        of_server.replace(&server, &own)
    }

    /// Cuts every connection that is open. New ones are welcome.
    pub fn cut(&self) {
        self.rule(|rules| rules.generation += 1);
    }

    /// Refuses new connections, as a server that is down: nobody listens. Open ones stay.
    pub fn refuse(&self) -> Result<()> {
        self.order(door::Order::Close)
    }

    /// Takes new connections again, after [`Proxy::refuse`].
    pub fn admit(&self) -> Result<()> {
        self.order(door::Order::Open)
    }

    /// What clients send arrives this much later.
    pub fn delay_requests(&self, delay: Duration) {
        self.rule(|rules| rules.requests.delay = delay);
    }

    /// What the server answers arrives this much later.
    pub fn delay_replies(&self, delay: Duration) {
        self.rule(|rules| rules.replies.delay = delay);
    }

    /// Forwards nothing; connections stay open.
    pub fn pause(&self) {
        self.rule(|rules| (rules.requests.paused, rules.replies.paused) = (true, true));
    }

    /// Forwards requests, and keeps what comes back until [`Proxy::resume`].
    pub fn pause_replies(&self) {
        self.rule(|rules| rules.replies.paused = true);
    }

    /// Forwards nothing to or from clients with this address, until [`Proxy::heal`], as if the network between
    /// them and here had gone: connections are taken and stay open.
    pub fn silence(&self, client: IpAddr) {
        self.rule(|rules| rules.silenced.push(client));
    }

    /// Forwards again, also what it kept.
    pub fn resume(&self) {
        self.rule(|rules| (rules.requests.paused, rules.replies.paused) = (false, false));
    }

    /// The server gets what is sent; its next reply is dropped and that connection cut. After
    /// that, replies are delivered again: the client may ask what became of its request.
    pub fn swallow_next_reply(&self) {
        self.set_fate(Fate::SwallowNext);
    }

    /// The same for every reply, until [`Proxy::deliver_replies`].
    pub fn swallow_replies(&self) {
        self.set_fate(Fate::SwallowAll);
    }

    /// Cuts a connection after so many bytes of replies from now on, in the middle of one if need
    /// be. After that, replies are delivered again.
    pub fn cut_after_reply_bytes(&self, bytes: u64) {
        self.set_fate(Fate::CutAfter(bytes));
    }

    /// Takes back what was ordered for replies.
    pub fn deliver_replies(&self) {
        self.set_fate(Fate::Deliver);
    }

    /// Behaves again, in everything.
    pub fn heal(&self) -> Result<()> {
        self.deliver_replies();
        self.rule(|rules| *rules = Rules { generation: rules.generation, ..Rules::default() });
        self.admit()
    }

    /// What has passed so far.
    pub fn counts(&self) -> Counts {
        *self.doings.counts.borrow()
    }

    /// Waits until the counts are as they should be, and returns them. Fails after
    /// [`WAIT_LIMIT`].
    pub async fn until(
        &self,
        mut are_so: impl FnMut(&Counts) -> bool + Send + 'static,
    ) -> Result<Counts> {
        let mut counts = self.doings.counts.subscribe();
        let waiting = async move {
            let reached = counts.wait_for(|counts| are_so(counts));
            match tokio::time::timeout(WAIT_LIMIT, reached).await {
                Ok(Ok(counts)) => Some(*counts),
                Ok(Err(_)) | Err(_) => None,
            }
        };
        // On the proxy's thread, so that the caller's runtime needs no timers.
        match self.runtime().spawn(waiting).await? {
            Some(counts) => Ok(counts),
            None => bail!("waited {WAIT_LIMIT:?} in vain; there were {:?}", self.counts()),
        }
    }

    fn rule(&self, change: impl FnOnce(&mut Rules)) {
        self.doings.rules.send_modify(change);
    }

    fn set_fate(&self, fate: Fate) {
        *self.doings.fate.lock().unwrap_or_else(PoisonError::into_inner) = fate;
    }

    fn order(
        &self,
        order: impl FnOnce(ack::Sender<std::io::Result<()>>) -> door::Order,
    ) -> Result<()> {
        let (done, is_done) = ack::channel();
        // The line has room: everybody who sends waits for the answer.
        self.door.try_send(order(done)).ok().context("the proxy is busy with another order")?;
        is_done.recv().context("the proxy is gone")??;
        Ok(())
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("it is only taken when the proxy is dropped")
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Dropped plainly it would block, which is not allowed in an asynchronous test.
            runtime.shutdown_background();
        }
    }
}

impl Doings {
    fn count(&self, change: impl FnOnce(&mut Counts)) {
        self.counts.send_modify(change);
    }

    /// What becomes of a piece of a reply of this length.
    fn judge(&self, length: usize) -> Verdict {
        let mut fate = self.fate.lock().unwrap_or_else(PoisonError::into_inner);
        match *fate {
            Fate::Deliver => Verdict::Deliver,
            Fate::SwallowAll => Verdict::DeliverThenCut(0),
            Fate::SwallowNext => {
                *fate = Fate::Deliver;
                Verdict::DeliverThenCut(0)
            }
            Fate::CutAfter(bytes) => match usize::try_from(bytes) {
                Ok(bytes) if bytes <= length => {
                    *fate = Fate::Deliver;
                    Verdict::DeliverThenCut(bytes)
                }
                _ => {
                    *fate = Fate::CutAfter(bytes - length as u64);
                    Verdict::Deliver
                }
            },
        }
    }
}

fn listen(runtime: &Runtime) -> Result<(TcpListener, u16)> {
    let mut attempt = 1;
    loop {
        let port = free_port()?;
        let _inside = runtime.enter();
        let bound = std::net::TcpListener::bind(address(port)).and_then(|listener| {
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener)
        });
        match bound {
            Ok(listener) => return Ok((listener, port)),
            Err(_) if attempt < ATTEMPTS => attempt += 1,
            Err(error) => return Err(error).context("a proxy found no port"),
        }
    }
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}
