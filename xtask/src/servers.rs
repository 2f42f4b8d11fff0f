//! The servers the chores need: gets missing programs, starts all at once, knows their URLs.
//!
//! How a server is started, and that it ends with us, is in [`qiang_testkit::servers`]. Programs
//! are installed with apt-get when run as root, without starting what comes with them, or fetched
//! into the folder of the build. Nothing that is already running on the machine is ever touched.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use qiang_testkit::servers::shared::{self, Shared};
use qiang_testkit::servers::{
    Cluster, MARIADB, MARIADB_INSTALL, Mariadb, POSTGRES, Postgres, Program, REDIS, Redis, Source,
    VALKEY, cluster, downloads, is_root, mariadb, postgres, redis,
};

/// One of the servers that tests find running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// One Redis, in memory only.
    Redis,
    /// Three masters.
    Cluster,
    /// One Valkey, in memory only.
    Valkey,
    /// MariaDB, which syncs lazily.
    Mysql,
    /// PostgreSQL, which does not sync.
    Postgres,
}

impl Service {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Redis, Self::Cluster, Self::Valkey, Self::Mysql, Self::Postgres];

    /// The word for it on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Cluster => "cluster",
            Self::Valkey => "valkey",
            Self::Mysql => "mysql",
            Self::Postgres => "postgres",
        }
    }

    /// Its name, and the variable that tells tests where it is.
    pub fn shared(self) -> Shared {
        match self {
            Self::Redis => shared::REDIS,
            Self::Cluster => shared::REDIS_CLUSTER,
            Self::Valkey => shared::VALKEY,
            Self::Mysql => shared::MYSQL,
            Self::Postgres => shared::POSTGRES,
        }
    }

    fn programs(self) -> &'static [Program] {
        match self {
            Self::Redis | Self::Cluster => &[REDIS],
            Self::Valkey => &[VALKEY],
            Self::Mysql => &[MARIADB, MARIADB_INSTALL],
            Self::Postgres => &[POSTGRES],
        }
    }

    fn start(self) -> Result<Handle> {
        Ok(match self {
            Self::Redis => Handle::Redis(Redis::start(&redis::Options::default())?),
            Self::Cluster => Handle::Cluster(Cluster::start(&cluster::Options::default())?),
            Self::Valkey => {
                let flavour = redis::Flavour::Valkey;
                Handle::Redis(Redis::start(&redis::Options { flavour, ..Default::default() })?)
            }
            Self::Mysql => {
                let flush = mariadb::Flush::Lazily;
                Handle::Mysql(Mariadb::start(&mariadb::Options { flush, ..Default::default() })?)
            }
            Self::Postgres => {
                let fsync = postgres::Fsync::Off;
                let options = postgres::Options { fsync, ..Default::default() };
                Handle::Postgres(Postgres::start(&options)?)
            }
        })
    }
}

/// A server that runs until this is dropped.
pub struct Running {
    /// Which one.
    pub service: Service,
    handle: Handle,
}

enum Handle {
    Redis(Redis),
    Cluster(Cluster),
    Mysql(Mariadb),
    Postgres(Postgres),
}

impl Running {
    /// Where it is.
    pub fn url(&self) -> String {
        match &self.handle {
            Handle::Redis(server) => server.url(),
            Handle::Cluster(server) => server.url(),
            Handle::Mysql(server) => server.url(),
            Handle::Postgres(server) => server.url(),
        }
    }
}

/// Gets and starts all of `services` at the same time. One that cannot be had is reported and
/// left out, or is an error where nothing may be skipped.
pub fn start(services: &[Service]) -> Result<Vec<Running>> {
    install(services.iter().flat_map(|service| service.programs()).copied());
    let started: Vec<(Service, Result<Handle>)> = std::thread::scope(|scope| {
        let begin = |service: &Service| {
            let service = *service;
            (service, scope.spawn(move || service.start()))
        };
        let threads: Vec<_> = services.iter().map(begin).collect();
        let join = |(service, thread): (_, std::thread::ScopedJoinHandle<'_, _>)| {
            (service, thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        };
        threads.into_iter().map(join).collect()
    });
    let mut running = Vec::new();
    for (service, started) in started {
        if let Some(handle) = or_skip(service.shared().name, started)? {
            running.push(Running { service, handle });
        }
    }
    Ok(running)
}

/// Makes sure a program can be run. `false`, after saying so, when it cannot be had here; an
/// error instead where nothing may be skipped.
pub fn ensure_installed(program: Program) -> Result<bool> {
    install([program]);
    Ok(or_skip(program.name, program.find().map_err(Into::into))?.is_some())
}

/// What could be had, or `None` after saying so; an error where nothing may be skipped.
pub(crate) fn or_skip<T>(name: &str, had: Result<T>) -> Result<Option<T>> {
    match had {
        Ok(had) => Ok(Some(had)),
        Err(error) if crate::in_ci() => {
            Err(error.context(format!("{name} may not be skipped here")))
        }
        Err(error) => {
            println!("SKIPPED: {name}: {error:#}");
            Ok(None)
        }
    }
}

/// Tries to get what is missing. What could not be had is found missing when it is started.
pub(crate) fn install(programs: impl IntoIterator<Item = Program>) {
    let (mut debian, mut python) = (BTreeSet::new(), BTreeSet::new());
    let (mut python_tools, mut node) = (BTreeMap::new(), BTreeMap::new());
    for program in programs.into_iter().filter(|program| program.find().is_err()) {
        match program.source {
            Source::Debian(package) => drop(debian.insert(package)),
            Source::Python(package) => drop(python.insert(package)),
            Source::PythonTools(tools) => drop(python_tools.insert(tools.folder, tools.packages)),
            Source::Node(tools) => drop(node.insert(tools.folder, tools.packages)),
        }
    }
    let needs_pip = !python.is_empty() || !python_tools.is_empty();
    if needs_pip && !has_pip() {
        debian.insert("python3-pip");
    }
    if !node.is_empty() && crate::output_of(Command::new("npm").arg("--version")).is_err() {
        debian.insert("npm");
    }
    let debian: Vec<&str> = debian.into_iter().collect();
    if !debian.is_empty()
        && let Err(error) = install_debian(&debian)
    {
        eprintln!("cannot install {}: {error:#}", debian.join(", "));
    }
    for package in python {
        if let Err(error) = install_python(package) {
            eprintln!("cannot fetch {package}: {error:#}");
        }
    }
    for (folder, packages) in python_tools {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--only-binary", ":all:", "--target"]);
        say_failure(packages, install_together(pip, folder, packages));
    }
    for (folder, packages) in node {
        let mut npm = Command::new("npm");
        npm.args(["install", "--silent", "--no-audit", "--no-fund", "--no-package-lock"]);
        npm.arg("--prefix");
        say_failure(packages, install_together(npm, folder, packages));
    }
}

fn say_failure(packages: &[&str], installed: Result<()>) {
    if let Err(error) = installed {
        eprintln!("cannot fetch {}: {error:#}", packages.join(", "));
    }
}

fn install_debian(packages: &[&str]) -> Result<()> {
    ensure!(is_root(), "that needs root; run: sudo apt-get install {}", packages.join(" "));
    eprintln!("installing {} …", packages.join(", "));
    let apt = || {
        let mut apt = Command::new("apt-get");
        apt.args(["-qq", "-o", "DPkg::Lock::Timeout=300"]);
        // Packages of servers start them at once, unless the system is going down (init scripts)
        // or is not running (units).
        apt.env("DEBIAN_FRONTEND", "noninteractive")
            .env("RUNLEVEL", "1")
            .env("SYSTEMD_OFFLINE", "1");
        apt
    };
    crate::output_of(apt().arg("update"))?;
    crate::output_of(apt().args(["install", "-y", "--no-install-recommends"]).args(packages))?;
    Ok(())
}

fn has_pip() -> bool {
    crate::output_of(Command::new("python3").args(["-m", "pip", "--version"])).is_ok()
}

/// Unpacks a wheel beside the others. Into a folder of our own first, so that whoever looks at
/// the same time finds all of it or nothing.
fn install_python(package: &str) -> Result<()> {
    eprintln!("fetching {package} …");
    let folder = downloads();
    let unpacked = folder.join(format!("unpacked-{}", std::process::id()));
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"]);
    pip.arg("--target").arg(&unpacked).arg(package);
    crate::output_of(&mut pip)?;
    let name = package.split(['<', '>', '=']).next().unwrap_or(package);
    let programs = unpacked.join("bin");
    if programs.is_dir() {
        // Programs lie beside the package; they go where it goes.
        fs::rename(&programs, unpacked.join(name).join("bin"))
            .with_context(|| format!("cannot move the programs of {package}"))?;
    }
    let moved = fs::rename(unpacked.join(name), folder.join(name));
    fs::remove_dir_all(&unpacked).with_context(|| format!("cannot remove {unpacked:?}"))?;
    match moved {
        Err(error) if !folder.join(name).exists() => bail!("{package} has no {name}: {error}"),
        _ => Ok(()),
    }
}

/// Installs packages with all they need into a folder of their own; aside first, as above.
/// `installer` lacks only where to, and what.
fn install_together(mut installer: Command, folder: &str, packages: &[&str]) -> Result<()> {
    eprintln!("fetching {} …", packages.join(", "));
    let aside = downloads().join(format!("unpacked-{}-{folder}", std::process::id()));
    fs::create_dir_all(&aside).with_context(|| format!("cannot make {aside:?}"))?;
    let installed = crate::output_of(installer.arg(&aside).args(packages));
    let place = downloads().join(folder);
    let moved = installed.and_then(|_| Ok(fs::rename(&aside, &place)?));
    match moved {
        Ok(()) => Ok(()),
        Err(error) => {
            fs::remove_dir_all(&aside).with_context(|| format!("cannot remove {aside:?}"))?;
            // Somebody else may have been faster.
            if place.is_dir() { Ok(()) } else { Err(error) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Service;

    #[test]
    fn every_service_has_its_word_and_its_variable() {
        for one in Service::ALL {
            for other in Service::ALL.into_iter().filter(|other| *other != one) {
                assert_ne!(one.word(), other.word());
                assert_ne!(one.shared().variable, other.shared().variable);
            }
        }
    }
}
