//! Databases that exist for one test, and vanish with it.
//!
//! SQLite needs nothing. Servers are named by the environment, `QIANG_TEST_MYSQL` and
//! `QIANG_TEST_POSTGRES`: URLs of somebody who may create databases. Where there is none, a test
//! says so and passes, unless `CI=true`, where everything must be there.

use std::io::Write as _;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use sqlx::{AssertSqlSafe, Connection as _};
use tempfile::TempDir;

use crate::Dialect;

/// Makes a test of each function for each database: `fn name(on: Dialect)` is run as
/// `name::sqlite`, `name::mysql` and `name::postgres`.
#[macro_export]
macro_rules! on_every_database {
    ($($name:ident),+ $(,)?) => {$(
        mod $name {
            use $crate::{Dialect, scratch::available};

            #[tokio::test]
            async fn sqlite() {
                super::$name(Dialect::Sqlite).await;
            }

            #[tokio::test]
            async fn mysql() {
                if available(Dialect::MySql) {
                    super::$name(Dialect::MySql).await;
                }
            }

            #[tokio::test]
            async fn postgres() {
                if available(Dialect::Postgres) {
                    super::$name(Dialect::Postgres).await;
                }
            }
        }
    )+};
}

/// Whether there is such a server here. If not, says so once, past what the test harness catches.
///
/// # Panics
/// If there is none and `CI` is `true`.
#[must_use]
pub fn available(dialect: Dialect) -> bool {
    static SAID: [Once; 3] = [const { Once::new() }; 3];
    let Some(variable) = variable(dialect) else { return true };
    if server(variable).is_some() {
        return true;
    }
    let in_ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(!in_ci, "{variable} is not set, and CI leaves nothing out");
    SAID[dialect as usize].call_once(|| {
        let said = format!("SKIPPED: {dialect} ({variable} is not set)\n");
        std::io::stderr().write_all(said.as_bytes()).ok();
    });
    false
}

/// An empty database of its own.
#[derive(Debug)]
pub struct Scratch {
    url: String,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Folder { _folder: TempDir },
    Server { dialect: Dialect, admin: String, database: String },
}

impl Scratch {
    /// Makes one. Whether there is a server for it is asked before, with [`available`].
    ///
    /// # Panics
    /// If it cannot be made.
    pub async fn new(dialect: Dialect) -> Self {
        let Some(variable) = variable(dialect) else {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let url = format!("sqlite:{}", folder.path().join("scratch.db").display());
            return Self { url, place: Place::Folder { _folder: folder } };
        };
        let server = server(variable).expect("a server; ask whether it is available");
        let (admin, at) = addresses(&server, dialect);
        let database = unique_name();
        tell(dialect, &admin, &format!("DROP DATABASE IF EXISTS {database}")).await;
        tell(dialect, &admin, &format!("CREATE DATABASE {database}")).await;
        let url = format!("{at}/{database}");
        Self { url, place: Place::Server { dialect, admin, database } }
    }

    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let Place::Server { dialect, admin, database } = &self.place else { return };
        let (dialect, admin, dropped) = (*dialect, admin.clone(), database.clone());
        // A test may end inside of a runtime, where nothing can be waited for.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                if dialect == Dialect::Postgres {
                    let drop = format!("DROP DATABASE IF EXISTS {dropped} WITH (FORCE)");
                    tell(dialect, &admin, &drop).await;
                } else {
                    end_connections(&admin, &dropped).await;
                    tell(dialect, &admin, &format!("DROP DATABASE IF EXISTS {dropped}")).await;
                }
            });
        });
        if dropping.join().is_err() {
            let left = format!("could not drop the database {database}\n");
            std::io::stderr().write_all(left.as_bytes()).ok();
        }
    }
}

/// MySQL waits with dropping for whoever is in the middle of something.
async fn end_connections(admin: &str, database: &str) {
    let mut to = sqlx::MySqlConnection::connect(admin).await.expect("the server of the tests");
    let find = "SELECT CAST(id AS SIGNED) FROM information_schema.processlist WHERE db = ?";
    let open: Vec<i64> =
        sqlx::query_scalar(find).bind(database).fetch_all(&mut to).await.expect("readable");
    for id in open {
        // It may have ended by itself.
        sqlx::raw_sql(AssertSqlSafe(format!("KILL {id}"))).execute(&mut to).await.ok();
    }
}

fn variable(dialect: Dialect) -> Option<&'static str> {
    match dialect {
        Dialect::Sqlite => None,
        Dialect::MySql => Some("QIANG_TEST_MYSQL"),
        Dialect::Postgres => Some("QIANG_TEST_POSTGRES"),
    }
}

fn server(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|url| !url.is_empty())
}

/// Where databases are made, and what a database's name is added to.
fn addresses(server: &str, dialect: Dialect) -> (String, String) {
    let server = server.split('?').next().unwrap_or(server).trim_end_matches('/');
    let (scheme, place) = server.split_once("://").expect("a server's URL");
    let place = place.split('/').next().unwrap_or(place);
    let at = format!("{scheme}://{place}");
    let own = if dialect == Dialect::Postgres { "postgres" } else { "mysql" };
    (format!("{at}/{own}"), at)
}

fn unique_name() -> String {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let made = MADE.fetch_add(1, Ordering::Relaxed);
    format!("qiang_test_{}_{made}", std::process::id())
}

async fn tell(dialect: Dialect, admin: &str, sql: &str) {
    let sql = AssertSqlSafe(sql.to_owned());
    if dialect == Dialect::Postgres {
        let mut to = sqlx::PgConnection::connect(admin).await.expect("the server of the tests");
        sqlx::raw_sql(sql).execute(&mut to).await.expect("an administrator");
        to.close().await.ok();
    } else {
        let mut to = sqlx::MySqlConnection::connect(admin).await.expect("the server of the tests");
        sqlx::raw_sql(sql).execute(&mut to).await.expect("an administrator");
        to.close().await.ok();
    }
}
