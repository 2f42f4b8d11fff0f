//! A database behind a URL, with its connections.
//!
//! Connections that died while nobody used them are noticed before they are handed out, and those
//! that died in use are closed; a server that comes back is found again by the next call.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sqlx::mysql::{MySql, MySqlConnectOptions, MySqlPool};
use sqlx::pool::PoolOptions;
use sqlx::postgres::{PgConnectOptions, PgPool, Postgres};
use sqlx::{ConnectOptions, Connection as _};

use crate::connection::Connection;
use crate::error::{Error, Result, Server};
use crate::sql;
use crate::sqlite::Pools;
use crate::transaction::Transaction;
use crate::url::{Target, shown};
use crate::value::{Params, Value};
use crate::{Dialect, Row, Statement};

/// How long connecting to a server may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection that was unused for so long is pinged before it is used.
const TRUSTED: Duration = Duration::from_secs(1);
/// An unused connection is closed after this; servers close it after twice the time. The
/// transaction of a process that froze ends sooner where the server can do that: MySQL cannot.
const IDLE: Duration = Duration::from_secs(60);
/// All statements of all sizes, and room for the rest.
const CACHED_STATEMENTS: usize = 256;

/// `"name"` is a name, as in the other databases. A value that does not fit is refused, not cut.
/// Waiting for a lock has a limit. How commits are synced is left to the server.
const MYSQL_SESSION: &str = "\
    SET SESSION sql_mode = 'ANSI_QUOTES,STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', \
        SESSION innodb_lock_wait_timeout = 10, SESSION wait_timeout = 120 \
        /*M! , SESSION idle_transaction_timeout = 15 */";
const MYSQL_ISOLATION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";

/// A commit waits for the disk, even if the server is set up not to wait. Whether transactions may
/// write is left to the server, because an administrator may have made it read-only on purpose.
const POSTGRES_SESSION: &str = "
     SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED;
     SET lock_timeout = '10s';
     SET statement_timeout = '60s';
     SET idle_in_transaction_session_timeout = '15s';
     SELECT set_config('synchronous_commit', 'on', false)
        WHERE current_setting('synchronous_commit') = 'off'";

/// How much a database is used at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most connections to a server. A SQLite file has one that writes and a few that read,
    /// whatever this says.
    pub connections: u32,
    /// How long to wait for a connection: while all are in use, or while the server is away.
    pub patience: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 8, patience: Duration::from_secs(5) }
    }
}

/// A database. Cheap to clone; all clones share the connections.
#[derive(Clone)]
pub struct Database {
    pools: Kind,
    name: Arc<str>,
}

#[derive(Clone)]
enum Kind {
    Sqlite(Pools),
    MySql(MySqlPool),
    Postgres(PgPool),
}

impl Database {
    /// Opens what a URL names: `sqlite:PATH`, which creates the file but not its folder,
    /// `mysql://` or `mariadb://`, `postgres://` or `postgresql://`.
    pub async fn open(url: &str) -> Result<Self> {
        Self::open_with(url, Limits::default()).await
    }

    /// As [`Database::open`], with limits of one's own.
    pub async fn open_with(url: &str, limits: Limits) -> Result<Self> {
        let pools = match Target::of(url)? {
            Target::Sqlite(path) => Kind::Sqlite(Pools::open(&path).await?),
            Target::MySql(options, server) => {
                Kind::MySql(open_mysql(options, &server, limits).await?)
            }
            Target::Postgres(options, server) => {
                Kind::Postgres(open_postgres(options, &server, limits).await?)
            }
        };
        Ok(Self { pools, name: shown(url).into() })
    }

    #[must_use]
    pub fn dialect(&self) -> Dialect {
        match self.pools {
            Kind::Sqlite(_) => Dialect::Sqlite,
            Kind::MySql(_) => Dialect::MySql,
            Kind::Postgres(_) => Dialect::Postgres,
        }
    }

    /// Its URL, without the password.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it answers.
    pub async fn ping(&self) -> Result<()> {
        self.fetch_optional(sql!("SELECT 1"), &[]).await.map(drop)
    }

    /// Its own clock, in Unix milliseconds.
    pub async fn now_ms(&self) -> Result<i64> {
        let row = self.fetch_optional(sql!("SELECT {now}"), &[]).await?;
        Ok(row.ok_or(sqlx::Error::RowNotFound)?.int(0)?)
    }

    /// Waits for what is under way and closes all connections, of all clones.
    pub async fn close(&self) {
        match &self.pools {
            Kind::Sqlite(pools) => {
                pools.readers.close().await;
                pools.writer.close().await;
            }
            Kind::MySql(pool) => pool.close().await,
            Kind::Postgres(pool) => pool.close().await,
        }
    }

    /// Begins a transaction that writes.
    pub async fn begin(&self) -> Result<Transaction> {
        Transaction::begin(self.writer().await?).await
    }

    /// Runs one statement that writes, as a transaction of its own, and says how many rows it
    /// changed; an `UPDATE` counts the rows it found. It is on the disk when this returns; after
    /// an error it may be.
    pub async fn execute(&self, statement: &Statement, values: &[Value<'_>]) -> Result<u64> {
        let mut lent = Lent(self.writer().await?, false);
        let done = lent.0.execute(statement, Params::of(self.dialect(), values)).await;
        lent.give_back(done)
    }

    /// All rows of an answer, from what is committed.
    pub async fn fetch_all(&self, statement: &Statement, values: &[Value<'_>]) -> Result<Vec<Row>> {
        let mut lent = Lent(self.reader().await?, false);
        let rows = lent.0.fetch_all(statement, Params::of(self.dialect(), values)).await;
        lent.give_back(rows)
    }

    /// The first row of an answer, if there is one, from what is committed.
    pub async fn fetch_optional(
        &self,
        statement: &Statement,
        values: &[Value<'_>],
    ) -> Result<Option<Row>> {
        let mut lent = Lent(self.reader().await?, false);
        let row = lent.0.fetch_optional(statement, Params::of(self.dialect(), values)).await;
        lent.give_back(row)
    }

    pub(crate) async fn writer(&self) -> Result<Connection> {
        Ok(match &self.pools {
            Kind::Sqlite(pools) => Connection::Sqlite(pools.writer.acquire().await?),
            Kind::MySql(pool) => Connection::MySql(pool.acquire().await?),
            Kind::Postgres(pool) => Connection::Postgres(pool.acquire().await?),
        })
    }

    async fn reader(&self) -> Result<Connection> {
        match &self.pools {
            Kind::Sqlite(pools) => Ok(Connection::Sqlite(pools.readers.acquire().await?)),
            Kind::MySql(_) | Kind::Postgres(_) => self.writer().await,
        }
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Database").field(&self.name).finish()
    }
}

/// A connection for one statement. If nobody waited for its answer, because it took too long or
/// the caller went away, the connection is closed: the late answer would be read as the answer to
/// the next statement.
struct Lent(Connection, bool);

impl Lent {
    fn give_back<T>(mut self, outcome: Result<T>) -> Result<T> {
        self.1 = !matches!(outcome, Err(Error::Timeout { .. }));
        outcome
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if !self.1 {
            self.0.close_on_drop();
        }
    }
}

async fn open_mysql(
    options: MySqlConnectOptions,
    server: &Server,
    limits: Limits,
) -> Result<MySqlPool> {
    let options = options
        .charset("utf8mb4")
        .timezone(Some("+00:00".to_owned()))
        .statement_cache_capacity(CACHED_STATEMENTS)
        .disable_statement_logging();
    try_out(&options, server).await?;
    let pool = pool::<MySql>(limits).after_connect(|connection, _| {
        Box::pin(async move {
            sqlx::raw_sql(MYSQL_SESSION).execute(&mut *connection).await?;
            sqlx::raw_sql(MYSQL_ISOLATION).execute(connection).await.map(drop)
        })
    });
    Ok(pool.connect_lazy_with(options))
}

async fn open_postgres(
    options: PgConnectOptions,
    server: &Server,
    limits: Limits,
) -> Result<PgPool> {
    let options = options.statement_cache_capacity(CACHED_STATEMENTS).disable_statement_logging();
    try_out(&options, server).await?;
    let pool = pool::<Postgres>(limits).after_connect(|connection, _| {
        Box::pin(async move { sqlx::raw_sql(POSTGRES_SESSION).execute(connection).await.map(drop) })
    });
    Ok(pool.connect_lazy_with(options))
}

/// Makes one connection without the pool, to learn why it fails: the pool would retry and then
/// report only a timeout.
async fn try_out<O>(options: &O, server: &Server) -> Result<()>
where
    O: ConnectOptions<Connection: Sized>,
{
    let connecting = async { options.connect().await?.close().await };
    match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
        Ok(tried) => tried.map_err(|source| server.blame(source)),
        Err(_) => Err(Error::Unreachable {
            server: server.server.clone(),
            source: std::io::ErrorKind::TimedOut.into(),
        }),
    }
}

fn pool<DB: sqlx::Database>(limits: Limits) -> PoolOptions<DB> {
    PoolOptions::new()
        .max_connections(limits.connections)
        .acquire_timeout(limits.patience)
        .idle_timeout(IDLE)
        .test_before_acquire(false)
        .before_acquire(|connection: &mut DB::Connection, meta| {
            Box::pin(async move {
                if meta.idle_for > TRUSTED {
                    connection.ping().await?;
                }
                Ok(true)
            })
        })
}
