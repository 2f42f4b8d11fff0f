//! Which crate may know which: `{core, sql} ← {engine, store, bus, cache} ← app ← domains ← recovery ← qiang`.
//!
//! Neighbours never know each other: not those in the middle, and not the domains. core and sql depend
//! on none of ours, sql is for those who talk to databases, load knows a server only by what it says
//! over the wire, testkit is for tests and chores only, as is chaos, which knows the product from
//! outside and so nothing but testkit. A new crate is added to the table here, on purpose.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Problem;

const CORE: &str = "qiang-core";
const SQL: &str = "qiang-sql";
const MIDDLE: [&str; 4] = ["qiang-engine", "qiang-store", "qiang-bus", "qiang-cache"];
/// Those who talk to SQL databases.
const OVER_SQL: [&str; 2] = ["qiang-engine", "qiang-store"];
const APP: &str = "qiang-app";
const DOMAINS: [&str; 6] = [
    "qiang-sales",
    "qiang-accounts",
    "qiang-guard",
    "qiang-catalogue",
    "qiang-social",
    "qiang-delivery",
];
/// Compares and mends the books, so it knows the domains that keep some.
const RECOVERY: &str = "qiang-recovery";
/// What knows none of ours.
const LOAD: &str = "qiang-load";
const MEMORY: &str = "qiang-memory";
const PAGES: &str = "qiang-pages";
const PRODUCT: &str = "qiang";
const TESTKIT: &str = "qiang-testkit";
const CHAOS: &str = "qiang-chaos";

/// What `cargo metadata` says of the workspace's own crates; needs no network.
pub(super) fn metadata(root: &Path) -> Result<Value> {
    let printed = crate::output_of(
        crate::cargo()?.args(["metadata", "--no-deps", "--format-version=1"]).current_dir(root),
    )?;
    serde_json::from_str(&printed).context("cargo metadata did not print JSON")
}

pub(super) fn check(metadata: &Value, problems: &mut Vec<Problem>) {
    let packages = list(metadata, "packages");
    let ours: Vec<&str> = packages.iter().filter_map(|p| p["name"].as_str()).collect();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let mut complain = |what| problems.push(Problem::new(&place(metadata, package), 1, what));
        if !is_known(name) {
            complain(format!("`{name}` has no place yet in xtask/src/tidy/direction.rs"));
        }
        for dependency in list(package, "dependencies") {
            let to = dependency["name"].as_str().unwrap_or_default();
            let in_tests = dependency["kind"] == "dev";
            if ours.contains(&to) && !may_know(name, to, in_tests) {
                let kind = if in_tests { "depend in tests" } else { "depend" };
                complain(format!("`{name}` may not {kind} on `{to}`; move what it needs to core"));
            }
        }
    }
}

fn is_known(name: &str) -> bool {
    let single = [CORE, SQL, APP, RECOVERY, LOAD, MEMORY, PAGES, PRODUCT, "xtask", TESTKIT, CHAOS];
    MIDDLE.contains(&name) || DOMAINS.contains(&name) || single.contains(&name)
}

fn may_know(from: &str, to: &str, in_tests: bool) -> bool {
    let below_app = to == CORE || MIDDLE.contains(&to);
    match from {
        _ if to == CHAOS => from == "xtask",
        _ if to == TESTKIT => in_tests || from == "xtask" || from == CHAOS,
        // Its own tests use what it offers to the tests of others, and so do those.
        SQL => in_tests && to == SQL,
        PRODUCT | APP | RECOVERY | TESTKIT if in_tests && to == SQL => true,
        _ if DOMAINS.contains(&from) && in_tests && to == SQL => true,
        _ if to == SQL => OVER_SQL.contains(&from),
        PRODUCT => {
            below_app || [APP, RECOVERY, LOAD, MEMORY, PAGES].contains(&to) || DOMAINS.contains(&to)
        }
        APP | TESTKIT => below_app,
        PAGES => below_app || to == APP,
        RECOVERY => below_app || to == APP || DOMAINS.contains(&to),
        _ if DOMAINS.contains(&from) => below_app || to == APP,
        _ if MIDDLE.contains(&from) => to == CORE,
        _ => false,
    }
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn place(metadata: &Value, package: &Value) -> String {
    let manifest = package["manifest_path"].as_str().unwrap_or("Cargo.toml");
    let root = metadata["workspace_root"].as_str().unwrap_or_default();
    manifest.strip_prefix(root).unwrap_or(manifest).trim_start_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    fn complaints(from: &str, to: &str, kind: Option<&str>) -> usize {
        let metadata = json!({"workspace_root": "/r", "packages": [
            {"name": from, "manifest_path": "/r/a/Cargo.toml",
             "dependencies": [{"name": to, "kind": kind}, {"name": "serde", "kind": null}]},
            {"name": to, "manifest_path": "/r/b/Cargo.toml", "dependencies": []},
        ]});
        let mut problems = Vec::new();
        super::check(&metadata, &mut problems);
        problems.len()
    }

    #[test]
    fn the_way_down_is_open() {
        assert_eq!(complaints("qiang", "qiang-store", None), 0);
        assert_eq!(complaints("qiang-engine", "qiang-core", None), 0);
        assert_eq!(complaints("qiang-engine", "qiang-testkit", Some("dev")), 0);
        assert_eq!(complaints("qiang-store", "qiang-sql", None), 0);
        assert_eq!(complaints("qiang", "qiang-sql", Some("dev")), 0);
        assert_eq!(complaints("xtask", "qiang-testkit", None), 0);
        assert_eq!(complaints("xtask", "qiang-chaos", None), 0);
        assert_eq!(complaints("qiang-chaos", "qiang-testkit", None), 0);
        assert_eq!(complaints("qiang", "qiang-load", None), 0);
        assert_eq!(complaints("qiang", "qiang-memory", None), 0);
        assert_eq!(complaints("qiang", "qiang-sales", None), 0);
        assert_eq!(complaints("qiang-sales", "qiang-app", None), 0);
        assert_eq!(complaints("qiang-sales", "qiang-store", None), 0);
        assert_eq!(complaints("qiang-recovery", "qiang-sales", None), 0);
        assert_eq!(complaints("qiang-pages", "qiang-store", None), 0);
    }

    #[test]
    fn up_sideways_and_around_are_closed() {
        assert_eq!(complaints("qiang-core", "qiang-engine", None), 1);
        assert_eq!(complaints("qiang-core", "qiang-store", Some("dev")), 1);
        assert_eq!(complaints("qiang-engine", "qiang-store", None), 1);
        assert_eq!(complaints("qiang-store", "qiang", None), 1);
        assert_eq!(complaints("qiang", "qiang-testkit", None), 1);
        assert_eq!(complaints("xtask", "qiang-core", None), 1);
        assert_eq!(complaints("qiang-sql", "qiang-core", None), 1);
        assert_eq!(complaints("qiang", "qiang-sql", None), 1);
        assert_eq!(complaints("qiang-bus", "qiang-sql", None), 1);
        assert_eq!(complaints("qiang-chaos", "qiang", None), 1);
        assert_eq!(complaints("qiang-load", "qiang-core", None), 1);
        assert_eq!(complaints("qiang-memory", "qiang-core", None), 1);
        assert_eq!(complaints("qiang-engine", "qiang-memory", None), 1);
        assert_eq!(complaints("qiang-app", "qiang-sales", None), 1);
        assert_eq!(complaints("qiang-sales", "qiang-accounts", None), 1);
        assert_eq!(complaints("qiang-sales", "qiang-recovery", None), 1);
        assert_eq!(complaints("qiang-accounts", "qiang", None), 1);
        assert_eq!(complaints("qiang-pages", "qiang-sales", None), 1);
        assert_eq!(complaints("qiang", "qiang-chaos", Some("dev")), 1);
    }

    #[test]
    fn a_new_crate_is_placed_on_purpose() {
        assert_eq!(complaints("qiang", "qiang-new", None), 2);
    }
}
