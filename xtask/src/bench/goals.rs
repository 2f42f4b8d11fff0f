//! What is to be reached, and whether it was: figures in, rows of the table out.
//!
//! Figures known by name here: `engine_claims` and `engine_sold_out` (label `in_flight`),
//! `engine_growth` (label `claims`: how many the pool held already), `engine_memory`,
//! `engine_recovery` (label `claims`), `http_noop`, `http_claims`, `http_open_loop`,
//! `http_open_loop_refused`, `redis_*` and `resp_*` (label `pipeline`), `first_answer` and
//! `idle_connections` (label `door`), `idle_memory`, `start_to_first_claim`, `binary`. Any other figure
//! is shown as it comes.

use serde_json::json;

use super::figures::{Figure, Figures};
use super::table::{Row, grouped};

/// Which side of a bound is good.
#[derive(Clone, Copy)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
    Open,
}

/// Something to reach, in one of several ways.
struct Goal(Vec<Way>);

struct Way {
    what: String,
    value: Option<f64>,
    unit: &'static str,
    bound: Bound,
}

/// Everything measured, then every ratio and target.
pub(super) fn rows(figures: &Figures) -> Vec<Row> {
    let measured = figures.iter().flat_map(|figure| {
        figure.measures().map(|(measure, value)| Row {
            figure: figure.title(),
            measured: with_unit(value, unit_of(measure)),
            ..Row::default()
        })
    });
    measured.chain(goals(figures).iter().flat_map(Goal::rows)).collect()
}

fn goals(figures: &Figures) -> Vec<Goal> {
    let mut goals: Vec<Goal> =
        [512, 4096].into_iter().flat_map(|in_flight| engine(figures, in_flight)).collect();
    goals.extend(resp(figures));
    goals.extend(http(figures));
    goals.extend(open_loop(figures));
    goals.extend(connections(figures));
    goals.extend(footprint(figures));
    goals.extend(growth(figures));
    goals
}

fn engine(figures: &Figures, in_flight: u32) -> [Goal; 3] {
    let claims = figures.find("engine_claims", "in_flight", &json!(in_flight));
    let sold_out = figures.find("engine_sold_out", "in_flight", &json!(in_flight));
    let redis = figures.find("redis_always", "pipeline", &json!(64));
    let load = format!("{} in flight", grouped(f64::from(in_flight)));
    let what = format!("engine claims ÷ redis always at pipeline 64, {load}");
    [
        Goal(vec![
            Way {
                what: format!("engine claims, {load}"),
                value: claims.and_then(per_sec),
                unit: "/s",
                bound: Bound::AtLeast(1e6),
            },
            ratio(what, claims, redis, Bound::AtLeast(12.0)),
        ]),
        Goal(vec![ratio(
            format!("engine sold-out refusals ÷ claims, {load}"),
            sold_out,
            claims,
            Bound::AtLeast(1.0),
        )]),
        Goal(vec![Way {
            what: format!("journal writes for sold-out refusals, {load}"),
            value: sold_out.and_then(|figure| figure.get("journal_writes")),
            unit: "",
            bound: Bound::AtMost(0.0),
        }]),
    ]
}

fn resp(figures: &Figures) -> Vec<Goal> {
    let at = |name: &str, pipeline: u32| figures.find(name, "pipeline", &json!(pipeline));
    let claims = |pipeline| at("resp_claims", pipeline);
    let against = |what: &str, ours, theirs, least| {
        Goal(vec![ratio(what.into(), ours, theirs, Bound::AtLeast(least))])
    };
    let p99 = |figure: Option<&Figure>| figure.and_then(|figure| figure.get("p99_ms"));
    let slower = p99(claims(1)).zip(p99(at("redis_always", 1))).map(|(ours, theirs)| ours / theirs);
    vec![
        against(
            "resp claims ÷ redis always, pipeline 64",
            claims(64),
            at("redis_always", 64),
            12.0,
        ),
        against("resp claims ÷ redis memory, pipeline 64", claims(64), at("redis_memory", 64), 8.0),
        against("resp claims ÷ redis always, pipeline 1", claims(1), at("redis_always", 1), 2.0),
        Goal(vec![Way {
            what: "p99 of resp claims ÷ of redis always, pipeline 1".into(),
            value: slower,
            unit: "×",
            bound: Bound::AtMost(1.0),
        }]),
        against(
            "resp sold-out refusals ÷ redis ping, pipeline 64",
            at("resp_sold_out", 64),
            at("redis_ping", 64),
            0.7,
        ),
    ]
}

fn open_loop(figures: &Figures) -> Vec<Goal> {
    let run = figures.named("http_open_loop").next();
    let way = |what: &str, measure, unit, most| {
        let value = run.and_then(|run| run.get(measure));
        Goal(vec![Way { what: what.into(), value, unit, bound: Bound::AtMost(most) }])
    };
    vec![
        way("p99 of http claims at 20,000 a second", "p99_ms", "ms", 20.0),
        way("errors at 20,000 a second", "errors", "", 0.0),
        Goal(vec![Way {
            what: "p99 of a second at 20,000 a second, while the host took nothing".into(),
            value: run.and_then(|run| run.get("calm_p99_ms")),
            unit: "ms",
            bound: Bound::Open,
        }]),
        // Not a goal either: what the machine and the generator alone make of it.
        Goal(vec![Way {
            what: "p99 of refusals at 20,000 a second".into(),
            value: figures.named("http_open_loop_refused").next().and_then(|run| run.get("p99_ms")),
            unit: "ms",
            bound: Bound::Open,
        }]),
    ]
}

/// The worse of both doors, and of all states, counts.
fn connections(figures: &Figures) -> Vec<Goal> {
    let all = |name, measure| {
        figures.named(name).filter_map(move |figure| figure.get(measure)).collect::<Vec<_>>()
    };
    let most = |values: Vec<f64>| values.into_iter().reduce(f64::max);
    let way =
        |what: &str, value, unit, bound| Goal(vec![Way { what: what.into(), value, unit, bound }]);
    vec![
        way(
            "p99 of the first answer, 1,000 connects at once",
            most(all("first_answer", "p99_ms")),
            "ms",
            Bound::AtMost(100.0),
        ),
        way(
            "memory of one of 10,000 idle connections",
            most(all("idle_connections", "bytes_each")),
            "bytes",
            Bound::AtMost(10_000.0),
        ),
        way(
            "memory given back when 10,000 idle connections close",
            all("idle_connections", "given_back_percent").into_iter().reduce(f64::min),
            "%",
            Bound::AtLeast(90.0),
        ),
    ]
}

fn footprint(figures: &Figures) -> Vec<Goal> {
    let way = |what: &str, name: &str, measure, unit, most| {
        let value = figures.named(name).next().and_then(|figure| figure.get(measure));
        Goal(vec![Way { what: what.into(), value, unit, bound: Bound::AtMost(most) }])
    };
    vec![
        way("memory of an idle server", "idle_memory", "mb", "MB", 40.0),
        way("start to first claim", "start_to_first_claim", "start_ms", "ms", 150.0),
        way("size of the binary (profile dist)", "binary", "mb", "MB", 40.0),
    ]
}

fn http(figures: &Figures) -> Vec<Goal> {
    let claims: Vec<&Figure> = figures.named("http_claims").collect();
    let target = Bound::AtLeast(0.85);
    let mut goals = Vec::new();
    if claims.is_empty() {
        let what = "http claims ÷ http noop".to_owned();
        goals.push(Goal(vec![ratio(what, None, None, target)]));
    }
    let redis = figures.find("redis_always", "pipeline", &json!(1));
    for figure in claims {
        let title = figure.title();
        let noop = figures.like("http_noop", figure);
        goals.push(Goal(vec![ratio(format!("{title} ÷ noop"), Some(figure), noop, target)]));
        let what = format!("{title} ÷ redis always, pipeline 1");
        goals.push(Goal(vec![ratio(what, Some(figure), redis, Bound::Open)]));
    }
    goals
}

fn growth(figures: &Figures) -> Vec<Goal> {
    let at = |claims: u64| figures.find("engine_growth", "claims", &json!(claims));
    let small = at(10_000);
    // In a small pool what is there once would be counted as if it were there for each claim.
    let bytes = [1_000_000, 5_000_000]
        .into_iter()
        .filter_map(|claims| figures.find("engine_memory", "claims", &json!(claims)))
        .filter_map(|figure| figure.get("bytes_per_claim"));
    let recovery = figures.find("engine_recovery", "claims", &json!(1_000_000));
    let pair = |what: &str, claims, bound| Goal(vec![ratio(what.into(), at(claims), small, bound)]);
    vec![
        pair("claims/s at 1 M claims ÷ at 10 k", 1_000_000, Bound::Open),
        pair("claims/s at 5 M claims ÷ at 10 k", 5_000_000, Bound::AtLeast(0.8)),
        Goal(vec![Way {
            what: "memory of a claim".into(),
            value: bytes.reduce(f64::max),
            unit: "bytes",
            bound: Bound::AtMost(250.0),
        }]),
        Goal(vec![Way {
            what: "recovery of 1 M claims".into(),
            value: recovery.and_then(|figure| figure.get("seconds")),
            unit: "s",
            bound: Bound::AtMost(3.0),
        }]),
    ]
}

fn per_sec(figure: &Figure) -> Option<f64> {
    figure.get("per_sec")
}

fn ratio(what: String, ours: Option<&Figure>, theirs: Option<&Figure>, bound: Bound) -> Way {
    let value = ours.and_then(per_sec).zip(theirs.and_then(per_sec)).map(|(a, b)| a / b);
    Way { what, value, unit: "×", bound }
}

impl Goal {
    fn rows(&self) -> Vec<Row> {
        let any = self.0.iter().any(|way| way.is_met() == Some(true));
        self.0
            .iter()
            .filter(|way| way.value.is_some() || way.is_promised())
            .map(|w| w.row(any))
            .collect()
    }
}

impl Way {
    fn is_promised(&self) -> bool {
        !matches!(self.bound, Bound::Open)
    }

    fn is_met(&self) -> Option<bool> {
        let value = self.value?;
        match self.bound {
            Bound::AtLeast(least) => Some(value >= least),
            Bound::AtMost(most) => Some(value <= most),
            Bound::Open => None,
        }
    }

    fn row(&self, met_in_some_way: bool) -> Row {
        let verdict = match self.is_met() {
            _ if !self.is_promised() => "",
            Some(true) => "ok",
            _ if met_in_some_way => "ok, by the other way",
            Some(false) => "missed",
            None => "not measured",
        };
        Row {
            figure: self.what.clone(),
            measured: self.value.map_or("–".into(), |value| with_unit(value, self.unit)),
            to_reach: match self.bound {
                Bound::AtLeast(least) => format!("≥ {}", with_unit(least, self.unit)),
                Bound::AtMost(most) => format!("≤ {}", with_unit(most, self.unit)),
                Bound::Open => String::new(),
            },
            verdict: verdict.into(),
        }
    }
}

fn unit_of(measure: &str) -> &str {
    match measure {
        "per_sec" => "/s",
        "seconds" => "s",
        "bytes_per_claim" | "bytes_each" => "bytes",
        "journal_writes" => "journal writes",
        "mb" => "MB",
        "kept_mb" => "MB kept",
        "given_back_percent" => "% given back",
        "start_ms" => "ms",
        "p50_ms" => "ms at p50",
        "p99_ms" => "ms at p99",
        "calm_p99_ms" => "ms at p99 of a calm second",
        "busy_percent" => "% of the processor busy",
        "stolen_percent" => "% taken away by the host",
        "stolen_at_worst_percent" => "% taken away in the worst second",
        other => other,
    }
}

fn with_unit(value: f64, unit: &str) -> String {
    format!("{} {unit}", grouped(value)).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::figures::Figures;
    use super::rows;

    fn verdict(lines: &[&str], figure: &str) -> String {
        let mut figures = Figures::default();
        lines.iter().for_each(|line| figures.hear(line));
        let rows = rows(&figures);
        let row = rows.iter().rev().find(|row| row.figure.starts_with(figure));
        let row = row.unwrap_or_else(|| panic!("no row {figure}: {rows:#?}"));
        format!("{} {}", row.measured, row.verdict)
    }

    const REDIS: &str = r#"{"name":"redis_always","pipeline":64,"per_sec":50000}"#;

    #[test]
    fn one_of_two_ways_is_enough() {
        let engine = r#"{"name":"engine_claims","in_flight":512,"per_sec":700000}"#;
        let by_ratio = "engine claims ÷ redis always at pipeline 64, 512";
        assert_eq!(verdict(&[engine, REDIS], by_ratio), "14 × ok");
        let by_speed = "engine claims, 512 in flight";
        assert_eq!(verdict(&[engine, REDIS], by_speed), "700,000 /s ok, by the other way");
    }

    #[test]
    fn a_miss_is_said_and_what_was_not_measured_too() {
        let http = r#"{"name":"http_claims","per_sec":70}"#;
        let noop = r#"{"name":"http_noop","per_sec":100}"#;
        assert_eq!(verdict(&[http, noop], "http claims ÷ noop"), "0.70 × missed");
        assert_eq!(verdict(&[], "recovery"), "– not measured");
    }

    #[test]
    fn the_worse_of_both_doors_counts() {
        let http =
            r#"{"name":"idle_connections","door":"http","after":"accept","bytes_each":2000}"#;
        let resp =
            r#"{"name":"idle_connections","door":"resp","after":"accept","bytes_each":12000}"#;
        assert_eq!(verdict(&[http], "memory of one of"), "2,000 bytes ok");
        assert_eq!(verdict(&[http, resp], "memory of one of"), "12,000 bytes missed");
    }

    #[test]
    fn small_is_good_where_it_is() {
        let memory = r#"{"name":"engine_memory","claims":1000000,"bytes_per_claim":187}"#;
        assert_eq!(verdict(&[memory], "memory"), "187 bytes ok");
        let sold_out =
            r#"{"name":"engine_sold_out","in_flight":512,"per_sec":9,"journal_writes":1}"#;
        assert_eq!(verdict(&[sold_out], "journal writes"), "– not measured");
        assert_eq!(verdict(&[sold_out], "journal writes for sold-out refusals, 512"), "1 missed");
    }
}
