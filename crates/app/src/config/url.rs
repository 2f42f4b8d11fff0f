//! Backends, each chosen by one URL. A scheme of a backend that exists but is not in this build
//! is told apart from one that never was. URLs may hold passwords, so only schemes are repeated.

use std::fmt;
use std::path::{Path, PathBuf};

use qiang_engine::redis;

use super::layers::{Layers, Wrong};

/// Where claims are decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineUrl {
    /// `embedded:<folder>`: in this process, with its journal in a folder.
    Embedded {
        /// Which folder.
        folder: PathBuf,
    },
    /// `redis://…`, `redis-cluster://…` or `redis-sentinel://…`, with `rediss` for TLS: in Redis or
    /// Valkey, shared by many processes.
    Redis(redis::Place),
    /// `sql:`: in the database that keeps the records, shared by many processes.
    Sql,
}

/// Where records are kept.
#[derive(Clone, PartialEq, Eq)]
pub enum DatabaseUrl {
    /// `sqlite:<file>`
    Sqlite { path: PathBuf },
    /// `mysql://…` or `postgres://…`, which may hold a password.
    Server(String),
}

impl DatabaseUrl {
    /// As the driver wants it.
    #[must_use]
    pub fn url(&self) -> String {
        match self {
            Self::Sqlite { path } => format!("sqlite:{}", path.display()),
            Self::Server(url) => url.clone(),
        }
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&without_password(&self.url()))
    }
}

/// A URL as it may be shown.
pub(super) fn without_password(url: &str) -> String {
    let (url, settings) = url.split_once('?').unwrap_or((url, ""));
    let hidden = || {
        let (scheme, rest) = url.split_once("://")?;
        let (login, place) = rest.rsplit_once('@')?;
        let (user, _) = login.split_once(':')?;
        Some(format!("{scheme}://{user}:***@{place}"))
    };
    let mut shown = hidden().unwrap_or_else(|| url.to_owned());
    for (place, setting) in settings.split('&').enumerate().filter(|(_, text)| !text.is_empty()) {
        shown.push(if place == 0 { '?' } else { '&' });
        match setting.split_once('=') {
            Some((name, _)) if name.ends_with("password") => {
                shown.push_str(name);
                shown.push_str("=***");
            }
            _ => shown.push_str(setting),
        }
    }
    shown
}

/// How events travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BusUrl {
    /// `log:`: consumers read the engine's log themselves.
    Log,
}

/// Schemes that mean a backend, in the words of a sentence.
const BUSES: &[(&str, &str)] = &[
    ("redis", "the Redis Streams bus"),
    ("rediss", "the Redis Streams bus"),
    ("kafka", "the Kafka bus"),
    ("amqp", "the RabbitMQ bus"),
    ("amqps", "the RabbitMQ bus"),
];

const ENGINES: &str =
    "redis://HOST, redis-cluster://HOST,HOST, redis-sentinel://HOST,HOST/MASTER or sql:";
const DATABASES: &str = "mysql://HOST/NAME or postgres://HOST/NAME";

pub(super) fn take_engine(layers: &mut Layers, data: &Path) -> EngineUrl {
    layers.text("engine.url", &format!("embedded:{}", data.display()), |url| match split(url) {
        Some(("embedded", "")) => Ok(EngineUrl::Embedded { folder: data.to_owned() }),
        Some(("embedded", folder)) => Ok(EngineUrl::Embedded { folder: PathBuf::from(folder) }),
        Some((
            "redis" | "redis-cluster" | "redis-sentinel" | "rediss" | "rediss-cluster"
            | "rediss-sentinel",
            _,
        )) => {
            let place = redis::Place::parse(url)
                .map_err(|bad| Wrong::new("names no Redis", bad.to_string()))?;
            let unusable = |error| Wrong::new("cannot be used", qiang_engine::chain(&error));
            place.check().map_err(unusable)?;
            Ok(EngineUrl::Redis(place))
        }
        Some(("sql", "")) => Ok(EngineUrl::Sql),
        Some(("sql", _)) => {
            Err(Wrong::new("says more than `sql:`", "write just sql:; [database] says which one"))
        }
        other => Err(unknown(other, "embedded:./qiang-data", ENGINES)),
    })
}

pub(super) fn take_database(layers: &mut Layers, data: &Path) -> DatabaseUrl {
    let default = format!("sqlite:{}", data.join("qiang.db").display());
    layers.text("database.url", &default, |url| match split(url) {
        Some(("sqlite", path)) => sqlite(path),
        Some(("mysql" | "mariadb" | "postgres" | "postgresql", rest)) if rest.len() > 2 => {
            let unusable = |error| Wrong::new("cannot be used", qiang_engine::chain(&error));
            qiang_store::check_url(url).map_err(unusable)?;
            Ok(DatabaseUrl::Server(url.to_owned()))
        }
        other => Err(unknown(other, "sqlite:./qiang-data/qiang.db", DATABASES)),
    })
}

pub(super) fn bus(url: &str) -> Result<BusUrl, Wrong> {
    match split(url) {
        Some(("log", "")) => Ok(BusUrl::Log),
        Some(("log", _)) => Err(Wrong::new("says more than `log:`", "write just log:")),
        other => Err(elsewhere(other, "log:", BUSES)),
    }
}

fn sqlite(path: &str) -> Result<DatabaseUrl, Wrong> {
    let path = path.strip_prefix("//").unwrap_or(path);
    let fix = "name a file, like sqlite:./qiang-data/qiang.db";
    match path {
        "" => Err(Wrong::new("names no file", fix)),
        ":memory:" => Err(Wrong::new("would lose every record with the process", fix)),
        _ if path.contains('?') => Err(Wrong::new("has parameters, which are not taken", fix)),
        _ if path.ends_with('/') => Err(Wrong::new("names a folder", fix)),
        path => Ok(DatabaseUrl::Sqlite { path: PathBuf::from(path) }),
    }
}

fn split(url: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = url.split_once(':')?;
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'+';
    (!scheme.is_empty() && scheme.bytes().all(plain)).then_some((scheme, rest))
}

fn unknown(url: Option<(&str, &str)>, here: &str, others: &str) -> Wrong {
    match url {
        None => Wrong::new("is not a URL", format!("write it like {here}, {others}")),
        Some((scheme, _)) => Wrong::new(
            format!("has the scheme {scheme}:, which means nothing here"),
            format!("use {here}, {others}"),
        ),
    }
}

fn elsewhere(url: Option<(&str, &str)>, here: &str, others: &[(&str, &str)]) -> Wrong {
    let Some((scheme, _)) = url else {
        return Wrong::new("is not a URL", format!("write it like {here}"));
    };
    match others.iter().find(|(known, _)| *known == scheme) {
        Some((_, backend)) => Wrong::new(
            format!("asks for {backend} ({scheme}:), which this version does not have yet"),
            format!("use {here}"),
        ),
        None => {
            let others: Vec<String> = others.iter().map(|(known, _)| format!("{known}:")).collect();
            Wrong::new(
                format!("has the scheme {scheme}:, which means nothing here"),
                format!("use {here} ({} are yet to come)", others.join(", ")),
            )
        }
    }
}
