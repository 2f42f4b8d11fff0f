//! The nodes of a round, two that serve buyers and two that carry the logs: real processes, each
//! behind links of its own to the engine and to the database, that can be made bad.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use qiang_testkit::Proxy;
use qiang_testkit::node::{Ended, Node, run};
use qiang_testkit::servers::free_port;

use crate::keys::{CALLBACK_SECRET, JWT_SECRET};
use crate::setting::{Engine, Servers, Setting};

/// Nodes that serve buyers come first.
pub(crate) const ROLES: [&str; 4] = ["api", "api", "worker", "worker"];
/// How many of them serve buyers.
pub(crate) const APIS: usize = 2;
/// How often a node that does not start is started again: what it needs may be away for a while.
const STARTS: u32 = 60;
const START_AGAIN: Duration = Duration::from_millis(500);
/// A command that takes longer is ended.
const COMMAND_SECONDS: &str = "120";

/// Both links of a node.
pub(crate) struct Links {
    /// None in front of servers that are found by asking for them, and where the engine is the
    /// database.
    pub(crate) engine: Option<Proxy>,
    pub(crate) database: Proxy,
}

/// One place for a node, whoever runs there.
pub(crate) struct Place {
    pub(crate) address: SocketAddr,
    pub(crate) links: Links,
    urls: [String; 2],
    roles: &'static str,
    node: Mutex<Option<Node>>,
    /// What nodes said that are gone.
    said: Mutex<String>,
}

/// All nodes.
pub(crate) struct Shop {
    binary: PathBuf,
    folder: PathBuf,
    urls: [String; 2],
    pub(crate) places: Vec<Place>,
    commands: AtomicU32,
}

impl Shop {
    /// Starts all nodes, one after the other.
    pub(crate) fn start(
        binary: &Path,
        folder: &Path,
        setting: Setting,
        servers: &Servers,
    ) -> Result<Self> {
        let urls = [setting.engine_url(&servers.engine.url()), servers.database.url()];
        let mut places = Vec::new();
        for roles in ROLES {
            places.push(Place::new(roles, setting, servers)?);
        }
        let (binary, folder) = (binary.to_owned(), folder.to_owned());
        let shop = Self { binary, folder, urls, places, commands: AtomicU32::new(0) };
        for index in 0..shop.places.len() {
            shop.start_node(index)?;
        }
        Ok(shop)
    }

    /// Where buyers come in.
    pub(crate) fn doors(&self) -> Vec<SocketAddr> {
        self.places[..APIS].iter().map(|place| place.address).collect()
    }

    /// Starts the node of a place, and again, while it fails.
    pub(crate) fn start_node(&self, index: usize) -> Result<()> {
        let place = &self.places[index];
        let mut last = String::new();
        for _ in 0..STARTS {
            let listen = place.address.to_string();
            let args = ["serve", "--listen", &listen, "--roles", place.roles];
            match Node::start(&mut self.command(&args, &format!("node-{index}"), &place.urls)) {
                Ok(node) => {
                    *place.node() = Some(node);
                    return Ok(());
                }
                Err(ended) => last = ended.stderr,
            }
            place.keep(&last);
            std::thread::sleep(START_AGAIN);
        }
        bail!("node {index} does not start: {}", last.trim_end().lines().last().unwrap_or_default())
    }

    /// `qiang audit`, to its end, past all bad links.
    pub(crate) fn audit(&self, args: &[&str]) -> Ended {
        let number = self.commands.fetch_add(1, Ordering::Relaxed);
        let data = format!("command-{number}");
        run(&mut self.command(&[&["audit"], args].concat(), &data, &self.urls))
    }

    fn command(&self, args: &[&str], data: &str, urls: &[String; 2]) -> Command {
        let mut command = if args.first() == Some(&"serve") {
            Command::new(&self.binary)
        } else {
            let mut limited = Command::new("timeout");
            limited.arg(COMMAND_SECONDS).arg(&self.binary);
            limited
        };
        command.current_dir(&self.folder).args(args).args(["--data", data]).env_clear();
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        command.env("QIANG_ENGINE__URL", &urls[0]).env("QIANG_DATABASE__URL", &urls[1]);
        command.env("QIANG_AUTH__JWT_SECRET", JWT_SECRET);
        command.env("QIANG_PAYMENTS__CALLBACK_SECRET", CALLBACK_SECRET);
        command.stdin(Stdio::null());
        command
    }

    /// Nodes that ended by themselves, which none should; they are started again.
    pub(crate) fn fallen(&self) -> Result<Vec<String>> {
        let mut fallen = Vec::new();
        for (index, place) in self.places.iter().enumerate() {
            let ended = place.node().as_mut().and_then(Node::ended);
            if let Some(status) = ended {
                let last = place.node().as_ref().map(Node::said).unwrap_or_default();
                let last = last.trim_end().lines().last().unwrap_or_default().to_owned();
                fallen.push(format!("node {index} ended by itself ({status}): {last}"));
                place.put_away();
                self.start_node(index)?;
            }
        }
        Ok(fallen)
    }

    /// Makes every link good again.
    pub(crate) fn heal(&self) -> Result<()> {
        for place in &self.places {
            place.links.database.heal()?;
            if let Some(engine) = &place.links.engine {
                engine.heal()?;
            }
        }
        Ok(())
    }

    /// Writes down what every node said.
    pub(crate) fn write_logs(&self) -> Result<()> {
        for (index, place) in self.places.iter().enumerate() {
            let now = place.node().as_ref().map(Node::said).unwrap_or_default();
            let before = place.said.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let file = self.folder.join(format!("node-{index}-{}.log", place.roles));
            fs::write(&file, before + &now).with_context(|| format!("cannot write {file:?}"))?;
        }
        Ok(())
    }
}

impl Place {
    fn new(roles: &'static str, setting: Setting, servers: &Servers) -> Result<Self> {
        let database = Proxy::start(servers.database.port())?;
        let engine = match &servers.engine {
            Engine::Redis(server) => Some(Proxy::start(server.port())?),
            Engine::Cluster(_) | Engine::Sentinel(_) | Engine::Sql => None,
        };
        let url = servers.engine.url();
        let engine_at = engine.as_ref().map_or(url.clone(), |proxy| proxy.url(&url));
        let urls = [setting.engine_url(&engine_at), database.url(&servers.database.url())];
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let links = Links { engine, database };
        Ok(Self { address, links, urls, roles, node: Mutex::default(), said: Mutex::default() })
    }

    pub(crate) fn node(&self) -> MutexGuard<'_, Option<Node>> {
        self.node.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kills the node, if there is one, and keeps what it said.
    pub(crate) fn put_away(&self) {
        if let Some(mut node) = self.node().take() {
            node.kill();
            self.keep(&node.said());
        }
    }

    /// Asks the node to end, if there is one, and says how it did.
    pub(crate) fn stop(&self) -> Option<ExitStatus> {
        let node = self.node().take()?;
        let said = node.said();
        let ended = node.terminate();
        self.keep(&said);
        Some(ended)
    }

    fn keep(&self, said: &str) {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).push_str(said);
    }
}
