//! The database of a round: PostgreSQL or MariaDB, durable as far as kills of processes go, because
//! nobody pulls a plug here.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use qiang_testkit::servers::{
    Disk, MARIADB_INSTALL, Mariadb, POSTGRES, Postgres, mariadb, postgres,
};

/// How large its disk is, in megabytes.
const DISK_MB: u32 = 256;
/// How large it may let its log grow before it begins anew: less than its disk.
const POSTGRES_LOG: (&str, &str) = ("max_wal_size", "64MB");
const MARIADB_LOG: (&str, &str) = ("innodb-log-file-size", "32M");

/// Whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Product {
    Postgres,
    Mariadb,
}

/// A running one.
pub(crate) enum Database {
    Postgres(Postgres),
    Mariadb(Mariadb),
}

impl Database {
    /// Starts one, on a disk of its own if that can be had.
    pub(crate) fn start(product: Product, disks: bool) -> Result<Self> {
        let disk_megabytes = disks.then_some(DISK_MB);
        let settings = |(name, value): (&str, &str)| vec![(name.to_owned(), value.to_owned())];
        match product {
            Product::Postgres => {
                let (fsync, settings) = (postgres::Fsync::Off, settings(POSTGRES_LOG));
                let options =
                    postgres::Options { fsync, disk_megabytes, settings, ..Default::default() };
                Ok(Self::Postgres(Postgres::start(&options)?))
            }
            Product::Mariadb => {
                let (flush, settings) = (mariadb::Flush::EachSecond, settings(MARIADB_LOG));
                let options =
                    mariadb::Options { flush, disk_megabytes, settings, ..Default::default() };
                let database = Self::Mariadb(Mariadb::start(&options)?);
                // Root may write whatever happens; the shop may not.
                database.run("CREATE USER shop; GRANT ALL ON qiang.* TO shop;")?;
                Ok(database)
            }
        }
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Postgres(server) => server.url(),
            Self::Mariadb(server) => format!("mysql://shop@127.0.0.1:{}/qiang", server.port()),
        }
    }

    pub(crate) fn port(&self) -> u16 {
        match self {
            Self::Postgres(server) => server.port(),
            Self::Mariadb(server) => server.port(),
        }
    }

    pub(crate) fn kill(&self) -> Result<()> {
        match self {
            Self::Postgres(server) => server.kill(),
            Self::Mariadb(server) => server.kill(),
        }
    }

    pub(crate) fn restart(&self) -> Result<()> {
        match self {
            Self::Postgres(server) => server.restart(),
            Self::Mariadb(server) => server.restart(),
        }
    }

    pub(crate) fn pause(&self) -> Result<()> {
        match self {
            Self::Postgres(server) => server.pause(),
            Self::Mariadb(server) => server.pause(),
        }
    }

    pub(crate) fn resume(&self) -> Result<()> {
        match self {
            Self::Postgres(server) => server.resume(),
            Self::Mariadb(server) => server.resume(),
        }
    }

    /// Lets nobody write, as a standby does, or a server whose disk is nearly full.
    pub(crate) fn close_for_writing(&self) -> Result<()> {
        match self {
            Self::Postgres(_) => {
                self.run("ALTER SYSTEM SET default_transaction_read_only = on")?;
                self.run("SELECT pg_reload_conf()")
            }
            Self::Mariadb(_) => self.run("SET GLOBAL read_only = 1"),
        }
    }

    pub(crate) fn open_for_writing(&self) -> Result<()> {
        match self {
            Self::Postgres(_) => {
                self.run("ALTER SYSTEM RESET default_transaction_read_only")?;
                self.run("SELECT pg_reload_conf()")
            }
            Self::Mariadb(_) => self.run("SET GLOBAL read_only = 0"),
        }
    }

    /// The disk of its own, if it has one.
    pub(crate) fn disk(&self) -> Option<&Disk> {
        match self {
            Self::Postgres(server) => server.disk(),
            Self::Mariadb(server) => server.disk(),
        }
    }

    /// Whether it runs and answers.
    pub(crate) fn answers(&self) -> bool {
        let has_fallen = match self {
            Self::Postgres(server) => server.has_fallen(),
            Self::Mariadb(server) => server.has_fallen(),
        };
        !has_fallen && self.run("SELECT 1").is_ok()
    }

    pub(crate) fn log(&self) -> String {
        match self {
            Self::Postgres(server) => server.said(),
            Self::Mariadb(server) => server.said(),
        }
    }

    /// Has an administrator say something in SQL.
    fn run(&self, sql: &str) -> Result<()> {
        let mut command = match self {
            Self::Postgres(server) => {
                let mut psql = Command::new(POSTGRES.find()?.with_file_name("psql"));
                psql.args(["--no-psqlrc", "--quiet", "--command", sql, &server.url()]);
                psql.env("PGOPTIONS", "-c default_transaction_read_only=off");
                psql
            }
            Self::Mariadb(server) => {
                let mut client = Command::new(MARIADB_INSTALL.find()?.with_file_name("mariadb"));
                client.args(["--no-defaults", "--protocol=tcp", "--host=127.0.0.1"]);
                client.args([&format!("--port={}", server.port()), "--user=root"]);
                client.args(["--execute", sql]);
                client
            }
        };
        let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{sql}: {said}");
        Ok(())
    }
}
