//! Real servers for tests and benchmarks, at private free ports of this machine.
//!
//! Tests that only need one take the URL of one that runs for everybody ([`shared`]); tests that
//! kill, pause or restart start their own: [`Redis`], [`Cluster`], [`Mariadb`], [`Postgres`].
//! [`Front`] is what stands in front of the product.
//! Each has a folder of its own and is gone, with that folder, when its handle is dropped or the
//! process that holds it ends, however it ends. Nothing else that runs on the machine is touched.
//!
//! Everything here blocks. A start takes a second at most, but for a cluster (about three) and
//! what the machine is busy with.

use std::ffi::OsString;
use std::path::Path;

mod disk;
mod keeper;
mod ports;
mod program;
mod resp;

pub mod certificates;
pub mod cluster;
pub mod front;
pub mod mariadb;
pub mod postgres;
pub mod redis;
pub mod sentinel;
pub mod shared;

pub use certificates::Authority;
pub use cluster::Cluster;
pub use disk::Disk;
pub use front::Front;
pub use keeper::{PREPARE_LIMIT, START_LIMIT, wait};
pub use mariadb::Mariadb;
pub use ports::free_port;
pub use postgres::Postgres;
pub use program::{
    ASYNC_TIMEOUT, AXE, CHROMEDRIVER, K6, MARIADB, MARIADB_INSTALL, Missing, NGINX, NODE,
    NODE_REDIS, OPENAPI_TYPESCRIPT, POSTGRES, PROMETHEUS, Program, REDIS, REDIS_PY, SCHEMATHESIS,
    Source, Tools, VALKEY, VARNISH, WRK, downloads, or_skip,
};
pub use redis::Redis;
pub use resp::Value;
pub use sentinel::Sentinels;

/// `--name=` and a path, in one argument.
fn option(name: &str, path: &Path) -> OsString {
    let mut option = OsString::from(name);
    option.push(path);
    option
}

/// Whether we may do everything, which some servers mind.
pub fn is_root() -> bool {
    let output = std::process::Command::new("id").arg("-u").output();
    output.is_ok_and(|output| output.stdout == b"0\n")
}
