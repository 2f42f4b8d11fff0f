//! A real Prometheus watches a server under load: every expression of the dashboard shows something,
//! every metric that an alert looks at is there, and the rules pass their own tests.

use std::collections::BTreeSet;
use std::process::Command;

use qiang_testkit::servers::{Authority, Front, PROMETHEUS, free_port, or_skip};
use serde_json::Value;

use crate::origin::{Origin, ask, ops, qiang, replaced, text_of, wait_until};

/// Long enough for some scrapes.
const LOAD: [&str; 5] = ["--duration", "4s", "--rate", "300", "--quiet"];

/// All expressions of the dashboard, with the title of their panel.
fn dashboard() -> Vec<(String, String)> {
    let dashboard: Value = serde_json::from_str(&text_of("grafana/qiang.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let of_panel = |panel: &Value| {
        let title = panel["title"].as_str().expect("a title").to_owned();
        let targets = panel["targets"].as_array().cloned().unwrap_or_default();
        targets.into_iter().map(move |target| {
            let expr = target["expr"].as_str().expect("an expression").to_owned();
            (title.clone(), expr)
        })
    };
    panels.iter().flat_map(of_panel).collect()
}

/// The names of our metrics in a text.
fn metrics(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("qiang_")).collect()
}

fn query(port: u16, expr: &str) -> Value {
    let encoded: String = expr.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let answer = ask(port, &format!("GET /api/v1/query?query={encoded}"), &[], "");
    assert_eq!(answer.status, 200, "{expr}: {}", answer.body);
    answer.json()["data"]["result"].clone()
}

#[test]
fn everything_that_is_watched_is_there() {
    let identity = Authority::new().and_then(|authority| {
        let identity = authority.issue(&["localhost"])?;
        Ok((authority, identity))
    });
    let (_authority, identity) = identity.expect("made");
    let health = format!("127.0.0.1:{}", free_port().expect("a port"));
    let origin = Origin::start(&[
        ("QIANG_HTTP__TLS_CERT", identity.cert.to_str().expect("UTF-8")),
        ("QIANG_HTTP__TLS_KEY", identity.key.to_str().expect("UTF-8")),
        ("QIANG_HTTP__HEALTH_LISTEN", &health),
        ("QIANG_AUDIT__EVERY_SECS", "1"),
    ]);
    let config = replaced(&text_of("prometheus/prometheus.yaml"), "127.0.0.1:8081", &health);
    let config = replaced(&config, "_interval: 5s", "_interval: 1s");
    let alerts = text_of("prometheus/alerts.yaml");
    let front = Front::prometheus(&config, &[("alerts.yaml", &alerts)]);
    let Some(front) = or_skip(front) else { return };
    let is_empty = |value: &Value| value.as_array().is_none_or(Vec::is_empty);
    // From before the load, so that it is seen to grow.
    wait_until("Prometheus watches", || !is_empty(&query(front.port, "qiang_claim_seconds_count")));
    let url = format!("https://localhost:{}", origin.node.address.port());
    let ca = identity.ca.to_str().expect("UTF-8");
    let mut bench = qiang(origin.folder.path(), &["bench", "--url", &url, "--ca", ca]);
    let load = bench.args(["--scenario", "mixed"]).args(LOAD).output().expect("the binary runs");
    assert!(load.status.success(), "{load:?}");
    wait_until("Prometheus has seen the load", || {
        let grows =
            |metric: &str| !is_empty(&query(front.port, &format!("rate({metric}[1m]) > 0")));
        grows("qiang_claim_seconds_count") && grows("qiang_log_position")
    });
    for (title, expr) in dashboard() {
        let expr = expr.replace("$__rate_interval", "1m").replace("$instance", ".*");
        let shown = query(front.port, &expr);
        assert!(!is_empty(&shown), "{title:?} shows nothing: {expr}");
        for series in shown.as_array().into_iter().flatten() {
            let value = series["value"][1].as_str().expect("a number");
            assert_ne!(value, "NaN", "{title:?}: {expr}");
        }
    }
    for metric in metrics(&alerts) {
        assert!(
            !is_empty(&query(front.port, metric)),
            "an alert looks at {metric}, which nobody shows"
        );
    }
    // The rules are loaded, work, and have nothing to say about a server that is well.
    let rules = ask(front.port, "GET /api/v1/rules", &[], "").json();
    let rules = rules["data"]["groups"][0]["rules"].as_array().cloned().unwrap_or_default();
    assert_eq!(rules.len(), alerts.matches("- alert: ").count());
    for rule in rules {
        assert_ne!(rule["health"], "err", "{rule:#}");
        assert_ne!(rule["state"], "firing", "{rule:#}");
    }
}

#[test]
fn the_rules_pass_their_own_tests() {
    if or_skip(PROMETHEUS.find().map_err(Into::into)).is_none() {
        return;
    }
    let promtool = |args: &[&str]| {
        let mut command = Command::new("promtool");
        let output = command.current_dir(ops("prometheus")).args(args).output().expect("it runs");
        assert!(output.status.success(), "{args:?}: {output:?}");
    };
    promtool(&["check", "config", "prometheus.yaml"]);
    promtool(&["check", "rules", "alerts.yaml"]);
    promtool(&["test", "rules", "alerts.test.yaml"]);
    let tests = text_of("prometheus/alerts.test.yaml");
    for alert in text_of("prometheus/alerts.yaml").split("- alert: ").skip(1) {
        let name = alert.lines().next().expect("a name");
        assert!(
            tests.contains(&format!("alertname: {name}\n        exp_alerts:\n          - ")),
            "{name} has no test that fires"
        );
        assert!(
            tests.contains(&format!("alertname: {name}, exp_alerts: []")),
            "{name} has no quiet test"
        );
    }
}

#[test]
fn every_metric_of_the_handbook_is_on_the_dashboard_or_worth_an_alert() {
    let handbook =
        std::fs::read_to_string(crate::origin::root().join("docs/OPERATING.md")).expect("text");
    let section =
        handbook.split("\n## Metrics").nth(1).and_then(|rest| rest.split("\nWorth an").next());
    let section = section.expect("a section");
    let named = section.lines().filter_map(|line| line.strip_prefix("| `qiang_"));
    let watched = text_of("grafana/qiang.json") + &text_of("prometheus/alerts.yaml");
    let watched = metrics(&watched);
    for row in named {
        let name = row.split(['{', '`']).next().expect("a name");
        let is_watched =
            |metric: &&str| metric.trim_end_matches("_bucket") == format!("qiang_{name}");
        assert!(watched.iter().any(is_watched), "qiang_{name} is watched by nothing");
    }
}
