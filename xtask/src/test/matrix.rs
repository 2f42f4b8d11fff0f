//! The end-to-end tests again, on the engines and databases that are not the default.
//!
//! Every engine meets every database it could quarrel with; what an engine does not see of the
//! database (Redis keeps to itself) is not tried for every flavour of Redis.

use std::fmt;

use anyhow::Result;

use crate::servers::Service;
use crate::stopwatch::Stopwatch;

/// Tests that look into an embedded engine's folder, start processes of the default kind, or try
/// what no engine has a part in: they have run with everything else.
const DEFAULT_ONLY: [&str; 15] = [
    "bench::",
    "browser::",
    "closed_connections::",
    "commands::",
    "https::",
    "k6::",
    "killed::",
    "live::",
    "openapi::",
    "records::",
    "resp::clients::",
    "resp::tls::",
    "starting::",
    "stopping::",
    "traces::",
];

/// What one run stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Combination {
    engine: &'static str,
    database: &'static str,
}

/// Beside embedded on SQLite, which is the default.
const COMBINATIONS: [Combination; 10] = [
    on("embedded", "mysql"),
    on("embedded", "postgres"),
    on("redis", "sqlite"),
    on("redis", "mysql"),
    on("redis", "postgres"),
    on("cluster", "postgres"),
    on("valkey", "mysql"),
    on("sql", "sqlite"),
    on("sql", "mysql"),
    on("sql", "postgres"),
];

const fn on(engine: &'static str, database: &'static str) -> Combination {
    Combination { engine, database }
}

impl Combination {
    /// The servers it cannot do without.
    fn services(self) -> impl Iterator<Item = Service> {
        let words = [self.engine, self.database];
        Service::ALL.into_iter().filter(move |service| words.contains(&service.word()))
    }

    fn variables(self) -> [(&'static str, String); 2] {
        [("QIANG_E2E_ENGINE", self.engine.into()), ("QIANG_E2E_DATABASE", self.database.into())]
    }
}

impl fmt::Display for Combination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.engine, self.database)
    }
}

/// Runs them all, whether or not one fails; `test` runs cargo with arguments and variables.
pub(super) fn run(
    is_there: impl Fn(Service) -> bool,
    test: impl Fn(&[&str], &[(&'static str, String)]) -> Result<bool>,
) -> Result<bool> {
    let mut lines = Vec::new();
    let mut passed = true;
    for combination in COMBINATIONS {
        if let Some(missing) = combination.services().find(|service| !is_there(*service)) {
            passed &= !crate::in_ci();
            lines.push(format!("SKIPPED  {combination}: no {}", missing.shared().name));
            continue;
        }
        let clock = Stopwatch::start();
        let good = test(&test_args(), &combination.variables())?;
        passed &= good;
        lines.push(format!(
            "{}  {combination} in {clock}",
            if good { "passed " } else { "FAILED " }
        ));
    }
    for line in lines {
        println!("{line}");
    }
    Ok(passed)
}

fn test_args() -> Vec<&'static str> {
    let mut args = vec!["test", "--locked", "-p", "qiang", "--features", super::FEATURES];
    args.extend(["--test", "e2e", "--", "--quiet"]);
    for module in DEFAULT_ONLY {
        args.extend(["--skip", module]);
    }
    args
}

#[cfg(test)]
mod tests {
    use super::{COMBINATIONS, run};
    use crate::servers::Service;

    #[test]
    fn every_engine_and_every_database_is_met() {
        for word in ["embedded", "redis", "cluster", "valkey", "sql"] {
            assert!(COMBINATIONS.iter().any(|one| one.engine == word), "{word}");
        }
        for engine in ["redis", "sql"] {
            for database in ["sqlite", "mysql", "postgres"] {
                let wanted = super::on(engine, database);
                assert!(COMBINATIONS.contains(&wanted), "{wanted}");
            }
        }
        for (place, one) in COMBINATIONS.iter().enumerate() {
            assert!(!COMBINATIONS[..place].contains(one), "{one} is there twice");
        }
    }

    #[test]
    fn what_is_missing_is_left_out_and_what_fails_is_told_at_the_end() {
        let runs = std::cell::RefCell::new(Vec::new());
        let tried = |fails: &'static str, there: &dyn Fn(Service) -> bool| {
            runs.borrow_mut().clear();
            run(there, |args, variables| {
                assert!(args.contains(&"e2e"), "{args:?}");
                let [(_, engine), (_, database)] = variables else { panic!("{variables:?}") };
                runs.borrow_mut().push(format!("{engine} on {database}"));
                Ok(engine != fails)
            })
        };
        assert!(tried("", &|_| true).unwrap());
        assert_eq!(runs.borrow().len(), COMBINATIONS.len());
        assert!(!tried("valkey", &|_| true).unwrap());
        assert_eq!(runs.borrow().len(), COMBINATIONS.len(), "one that fails keeps no other back");
        let skips_nothing = crate::in_ci();
        assert_eq!(tried("", &|_| false).unwrap(), !skips_nothing);
        assert_eq!(*runs.borrow(), ["sql on sqlite"]);
        assert_eq!(tried("", &|service| service != Service::Redis).unwrap(), !skips_nothing);
        assert!(!runs.borrow().iter().any(|one| one.starts_with("redis")), "{:?}", runs.borrow());
    }
}
