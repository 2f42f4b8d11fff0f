//! The logs of an engine, as a consumer sees them: the one place here that asks which engine it is.

use qiang_engine::Engine;

use super::Error;

/// The name that positions in a log are kept under.
#[must_use]
pub fn log_name(engine: &Engine, partition: u16) -> String {
    match engine {
        Engine::Embedded(_) => EMBEDDED.into(),
        Engine::Redis(_) => format!("redis/{partition}"),
        Engine::Sql(_) => format!("sql/{partition}"),
    }
}

/// The name of an embedded engine's log.
pub const EMBEDDED: &str = "embedded";

/// For each log where it ends, if that can be told.
pub(super) async fn ends(engine: &Engine) -> Result<Vec<Option<u64>>, Error> {
    Ok(match engine {
        // Its desk need not be asked.
        Engine::Embedded(engine) => vec![Some(*engine.durable().borrow())],
        engine => engine.ends().await?,
    })
}

/// How many events an embedded engine has behind this position of its log.
pub(super) fn pending(engine: &Engine, position: u64) -> u64 {
    match engine {
        Engine::Embedded(engine) => engine.durable().borrow().saturating_sub(position),
        Engine::Redis(_) | Engine::Sql(_) => 0,
    }
}

/// A shared engine that ends before this has lost something, and finds out itself.
pub(super) fn has_reached(engine: &Engine, partition: u16, position: u64) {
    if let Engine::Redis(engine) = engine {
        engine.raise_known(partition, position);
    }
}

/// An embedded journal that is older than what was made of it must not be worked on.
pub(super) fn check_end(engine: &Engine, consumed: u64) -> Result<(), Error> {
    if let Engine::Embedded(engine) = engine {
        let log = *engine.durable().borrow();
        if consumed > log {
            return Err(Error::Ahead { records: consumed, log });
        }
    }
    Ok(())
}
