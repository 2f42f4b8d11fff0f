//! Whether what this process stands on takes writes, found out in the background: whoever asks gets
//! the last result at once, also while a server hangs.
//!
//! Redis gets a tiny write every second, on each master. A database that is shared is written to
//! anyway, when the node renews its number; beside an embedded engine a server is asked the same way,
//! and a SQLite file is only read, because it lies where the journal does, which is written all the
//! time.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use qiang_engine::Engine;
use qiang_engine::redis::{self, Prober};

use crate::App;
use crate::config::DatabaseUrl;
use crate::nodes::{self, LEASE};
use crate::workers::Turn;

/// Between two looks at Redis.
pub const ENGINE_EVERY: Duration = Duration::from_secs(1);
/// Between two looks at a database that is not shared.
pub const DATABASE_EVERY: Duration = Duration::from_secs(2);
/// The lease by which an embedded engine tries its database out.
const PROBE: &str = "probe";

/// What the last probes of the engine found.
#[derive(Debug, Default)]
pub struct Probes {
    redis: Mutex<Vec<redis::Trouble>>,
}

/// What kind of trouble it is; each needs something else to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Problem {
    /// There is no connection, or no answer.
    Unreachable,
    /// It answers, and takes no writes.
    RefusesWrites,
    /// It is not in the state it was in.
    Lost,
    /// It has stopped for good.
    Stopped,
}

impl Problem {
    /// The word for it in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::RefusesWrites => "refuses_writes",
            Self::Lost => "lost",
            Self::Stopped => "stopped",
        }
    }
}

/// What is wrong, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// What kind it is.
    pub problem: Problem,
    /// In words.
    pub what: String,
}

/// In which sales something is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Serving {
    /// In all.
    All,
    /// In those of some servers, or partitions.
    Some,
    /// In none.
    None,
}

impl Serving {
    /// The word for it in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Some => "some",
            Self::None => "none",
        }
    }
}

impl App {
    /// What is wrong with the engine, and in which sales it decides.
    #[must_use]
    pub fn engine_state(&self) -> (Option<Trouble>, Serving) {
        let lost = self.engine.trouble();
        match &self.engine {
            Engine::Embedded(_) => match lost {
                Some(what) => (Some(Trouble { problem: Problem::Stopped, what }), Serving::None),
                None => (None, Serving::All),
            },
            Engine::Redis(engine) => {
                let found =
                    self.probes.redis.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let mut affected: BTreeSet<u16> = engine.lost().into_keys().collect();
                affected.extend(found.iter().flat_map(|trouble| &trouble.partitions));
                let serving = match affected.len() {
                    0 => Serving::All,
                    some if some < usize::from(engine.partitions()) => Serving::Some,
                    _ => Serving::None,
                };
                let lost = lost.map(|what| Trouble { problem: Problem::Lost, what });
                (lost.or_else(|| first_of(&found)), serving)
            }
            Engine::Sql(_) => match self.node.database_trouble() {
                Some(trouble) => (Some(trouble), Serving::None),
                None => (None, Serving::All),
            },
        }
    }

    /// What is wrong with the records, if they can be neither read nor written.
    #[must_use]
    pub fn database_state(&self) -> Option<Trouble> {
        self.node.database_trouble()
    }
}

fn first_of(found: &[redis::Trouble]) -> Option<Trouble> {
    let first = found.first()?;
    let problem = match first.problem {
        redis::Problem::Unreachable => Problem::Unreachable,
        redis::Problem::RefusesWrites => Problem::RefusesWrites,
    };
    let more = match found.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more servers)"),
    };
    Some(Trouble { problem, what: format!("{}{more}", first.what) })
}

/// Looks at Redis once.
pub async fn look_at_redis(app: Arc<App>, prober: Arc<tokio::sync::Mutex<Prober>>) -> Turn {
    let found = prober.lock().await.look().await;
    app.probes.heard(found);
    Ok(())
}

/// Looks at the database of an embedded engine once.
pub async fn look_at_database(app: Arc<App>) -> Turn {
    let looked = async {
        if matches!(app.config.database.url, DatabaseUrl::Sqlite { .. }) {
            app.store.ping().await
        } else {
            app.store.take_lease(PROBE, PROBE, LEASE).await.map(drop)
        }
    };
    app.node.heard(nodes::in_time(looked).await.as_ref().err());
    Ok(())
}

impl Probes {
    /// Takes over what was found, and logs what is new.
    fn heard(&self, found: Vec<redis::Trouble>) {
        let mut last = self.redis.lock().unwrap_or_else(PoisonError::into_inner);
        for trouble in &found {
            let known = |old: &redis::Trouble| {
                (old.problem, &old.partitions) == (trouble.problem, &trouble.partitions)
            };
            if !last.iter().any(known) {
                tracing::warn!("not ready: {}", trouble.what);
            }
        }
        if found.is_empty() && !last.is_empty() {
            tracing::info!("all servers of Redis take writes again");
        }
        *last = found;
    }
}
