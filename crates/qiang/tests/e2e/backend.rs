//! What the servers of these tests stand on. `cargo xtask test` runs the same tests on every engine
//! and database, with `QIANG_E2E_ENGINE` (embedded, redis, cluster, valkey, sql) and
//! `QIANG_E2E_DATABASE` (sqlite, mysql, postgres); left out, on what a user gets by default.

use std::sync::atomic::{AtomicU32, Ordering};

use qiang_sql::Dialect;
use qiang_sql::scratch::Scratch;
use qiang_testkit::servers::shared;

/// Keys and a database of its own.
pub(crate) struct Backend {
    engine: Option<String>,
    database: Option<Scratch>,
}

impl Backend {
    pub(crate) async fn of_environment() -> Self {
        let asked = |name: &str| std::env::var(name).unwrap_or_default();
        let redis = |url: Option<String>| {
            let url = url.expect("xtask asks only for what is there");
            Some(format!("{url}?prefix={}&partitions=4", unique()))
        };
        let engine = match asked("QIANG_E2E_ENGINE").as_str() {
            "" | "embedded" => None,
            "redis" => redis(shared::redis()),
            "cluster" => redis(shared::redis_cluster()),
            "valkey" => redis(shared::valkey()),
            "sql" => Some("sql:".to_owned()),
            other => panic!("there is no engine {other:?}"),
        };
        let database = match asked("QIANG_E2E_DATABASE").as_str() {
            "" | "sqlite" => None,
            "mysql" => Some(Scratch::new(Dialect::MySql).await),
            "postgres" => Some(Scratch::new(Dialect::Postgres).await),
            other => panic!("there is no database {other:?}"),
        };
        Self { engine, database }
    }

    /// The variables that choose it.
    pub(crate) fn settings(&self) -> Vec<(String, String)> {
        let engine = self.engine.as_ref().map(|url| ("QIANG_ENGINE__URL".into(), url.clone()));
        let database = self.database.as_ref();
        let database = database.map(|it| ("QIANG_DATABASE__URL".into(), it.url().to_owned()));
        engine.into_iter().chain(database).collect()
    }
}

fn unique() -> String {
    static MADE: AtomicU32 = AtomicU32::new(0);
    format!("e2e-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed))
}
