//! The servers that `cargo xtask test` started for everybody. A test takes the URL, keeps to keys
//! or a database of its own, and never stops the server.

use super::program;

/// A server for everybody, by the variable that holds its URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shared {
    /// What people call it.
    pub name: &'static str,
    /// The environment variable.
    pub variable: &'static str,
}

/// One Redis without persistence.
pub const REDIS: Shared = Shared { name: "Redis", variable: "QIANG_TEST_REDIS" };
/// Three masters.
pub const REDIS_CLUSTER: Shared =
    Shared { name: "Redis Cluster", variable: "QIANG_TEST_REDIS_CLUSTER" };
/// One Valkey without persistence.
pub const VALKEY: Shared = Shared { name: "Valkey", variable: "QIANG_TEST_VALKEY" };
/// MariaDB, as root, without a database in the URL.
pub const MYSQL: Shared = Shared { name: "MariaDB", variable: "QIANG_TEST_MYSQL" };
/// PostgreSQL, as superuser.
pub const POSTGRES: Shared = Shared { name: "PostgreSQL", variable: "QIANG_TEST_POSTGRES" };

impl Shared {
    /// Its URL. Without one: `None`, said once, or a failure where nothing may be skipped
    /// (`CI=true`).
    pub fn url(self) -> Option<String> {
        match std::env::var(self.variable) {
            Ok(url) if !url.is_empty() => Some(url),
            _ => {
                let why = format!("{} is not set; `cargo xtask test` sets it", self.variable);
                program::skip(self.name, &why);
                None
            }
        }
    }
}

/// `redis://…`
pub fn redis() -> Option<String> {
    REDIS.url()
}

/// `redis-cluster://…,…,…`
pub fn redis_cluster() -> Option<String> {
    REDIS_CLUSTER.url()
}

/// `redis://…`
pub fn valkey() -> Option<String> {
    VALKEY.url()
}

/// `mysql://root@127.0.0.1:…`: create a database of your own there.
pub fn mysql() -> Option<String> {
    MYSQL.url()
}

/// `postgres://postgres@127.0.0.1:…/postgres`: create a database of your own there.
pub fn postgres() -> Option<String> {
    POSTGRES.url()
}
