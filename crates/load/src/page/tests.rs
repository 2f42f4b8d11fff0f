//! Reports of odd runs: nothing measured, one slice, errors, enormous latencies.

use std::collections::BTreeMap;

use super::html;
use crate::processor::Processor;
use crate::record::{Class, Percentiles};
use crate::result::{Audit, Ended, Got, Level, Machine, Point, Run, Wanted};
use crate::scenario::Scenario;
use crate::tally::{Books, Verdict};
use crate::wire::Protocol;

fn percentiles(us: u64) -> Percentiles {
    Percentiles { count: 9, p50_us: us, p90_us: us, p99_us: us, p999_us: us, max_us: us }
}

fn run(slices: u32, us: u64) -> Run {
    let point = |n: u32| Point {
        from_secs: n.into(),
        to_secs: (n + 1).into(),
        per_sec: 9.0,
        errors_per_sec: 0.0,
        latency: percentiles(us),
        outcomes: BTreeMap::from([("granted", 9)]),
        stolen: Some(0.0),
    };
    let level = |n: u32| Level { at_secs: n.into(), available: 9 };
    let granted = Ended { request: "claim", outcome: "granted", class: Class::Done, count: 9 };
    Run {
        version: "0",
        started_at: "2026-01-02T03:04:05.678Z".into(),
        command: "qiang bench --url 'http://[::1]:80/?<script>'".into(),
        machine: Machine { cores: 2, cpu: "A & B".into(), system: "linux".into() },
        wanted: Wanted {
            url: None,
            protocol: Protocol::Http,
            scenario: Scenario::Sellout,
            rate: Some(10.0),
            arrivals: None,
            duration_secs: 1.0,
            connections: 1,
            pipeline: 1,
            users: 9,
            stock: 9,
            seed: 1,
        },
        got: Got {
            sale_id: "7".into(),
            took_secs: slices.into(),
            requests: 9,
            errors: 0,
            per_sec: 9.0,
            resent: 0,
            processor: Some(Processor { busy: 0.71, stolen: 0.02, stolen_at_worst: 0.4 }),
        },
        outcomes: vec![granted],
        latency: percentiles(us),
        service: percentiles(us),
        latency_by_request: BTreeMap::from([("claim", percentiles(us))]),
        series: (0..slices).map(point).collect(),
        stock: (0..slices).map(level).collect(),
        books: Some(Books::default()),
        audit: Some(Audit::default()),
        verdict: Verdict {
            exact: true,
            line: "exact: 9 of 9 units granted to 9 users, books agree".into(),
            granted: 9,
            released: 0,
            users: 9,
            unknown: 0,
        },
    }
}

fn sound(run: &Run) -> String {
    let page = html(run);
    for word in ["NaN", "inf\"", "<script", "src=", "http-equiv", "@import", "url("] {
        assert!(!page.contains(word), "{word}");
    }
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    for tag in ["figure", "svg", "table", "section", "tr", "td", "th", "div", "ul", "li", "path"] {
        let opened =
            page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        let closed = page.matches(&format!("</{tag}>")).count();
        let alone = if tag == "path" { opened } else { closed };
        assert_eq!(opened, alone, "{tag}");
    }
    assert_eq!(page.matches("<figure>").count(), 4);
    page
}

#[test]
fn a_page_says_it_all_and_needs_nothing_else() {
    let page = sound(&run(30, 1_500));
    for word in [
        "exact: 9 of 9 units",
        "Throughput",
        "Latency",
        "Stock",
        "Outcomes",
        "requests a second",
        "milliseconds",
        "percent of requests",
        "seconds",
        "A &amp; B",
        "?&lt;script&gt;",
        "wanted",
        "p99.9",
    ] {
        assert!(page.contains(word), "{word}");
    }
}

#[test]
fn odd_runs_make_sound_pages() {
    for slices in [0, 1, 2, 600] {
        for us in [0, 1, 3_600_000_000] {
            sound(&run(slices, us));
        }
    }
    let mut nothing = run(1, 0);
    nothing.series[0].latency = Percentiles::default();
    nothing.series[0].outcomes.clear();
    nothing.outcomes.clear();
    nothing.got.requests = 0;
    sound(&nothing);
    let mut closed = run(5, 10);
    closed.wanted.rate = None;
    assert!(sound(&closed).contains("closed loop"));
}

#[test]
fn errors_and_a_sale_that_was_not_exact_are_seen() {
    let mut bad = run(3, 10);
    bad.got.errors = 4;
    bad.verdict.exact = false;
    bad.verdict.line = "NOT EXACT: 2 claims were granted twice".into();
    for n in 0..9 {
        let outcome = ["a", "b", "c", "d", "e", "f", "g", "h", "backlog_full"][n];
        let class = if n == 8 { Class::Error } else { Class::Refused };
        bad.outcomes.push(Ended { request: "claim", outcome, class, count: 100 });
    }
    let page = sound(&bad);
    assert!(page.contains("verdict bad") && page.contains("NOT EXACT"));
    assert!(page.contains("<li><i class=\"c4\"></i>errors</li>"));
    assert!(page.contains("others") && page.contains("tile bad"));
}
