//! The report of a run as one HTML file: style and plots are inside, so it opens anywhere, without
//! a network, in a light and in a dark room.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::chart::{Axis, Chart, Curve, Kind, Spot, Tip, escape};
use super::record::{Class, Percentiles};
use super::result::{Point, Run};
use super::words::{amount, busy, figure, latency};

const STYLE: &str = include_str!("page.css");
/// Outcomes with a colour of their own; the rest share one.
const MAX_SHARES: usize = 6;

/// The whole page.
pub fn html(run: &Run) -> String {
    let title = format!("qiang bench: {}", run.wanted.scenario.word());
    let verdict = if run.verdict.exact { "verdict" } else { "verdict bad" };
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>{title}</h1>\n<p>{}</p>\n<div class=\"{verdict}\">{}</div>\n{}\
         <div class=\"grid2\">\n{}{}{}{}</div>\n{}{}{}\
         <footer>{}</footer>\n</main>\n</body>\n</html>\n",
        escape(&subtitle(run)),
        escape(&run.verdict.line),
        tiles(run),
        throughput(run).html(),
        latencies(run).html(),
        stock(run).html(),
        shares(run).html(),
        percentiles(run),
        outcomes(run),
        setup(run),
        escape(&footer(run)),
    )
}

fn subtitle(run: &Run) -> String {
    let wanted = &run.wanted;
    let how = match wanted.rate {
        Some(rate) => format!("open loop, {} arrivals a second", figure(rate)),
        None => "closed loop".to_owned(),
    };
    format!(
        "{} users for {} units over {} connections, {how}, {}",
        amount(wanted.users.into()),
        amount(wanted.stock.into()),
        wanted.connections,
        run.started_at
    )
}

fn tiles(run: &Run) -> String {
    let (got, p) = (&run.got, &run.latency);
    let tile = |value: &str, what: &str| {
        format!("<div class=\"tile\"><b>{}</b><span>{}</span></div>\n", escape(value), escape(what))
    };
    let what = match run.wanted.rate {
        Some(rate) => format!("answers a second, of {} wanted", figure(rate)),
        None => "answers a second".to_owned(),
    };
    let mut html = "<div class=\"tiles\">\n".to_owned();
    html.push_str(&tile(&figure(got.per_sec.round()), &what));
    html.push_str(&tile(&latency(p.p50_us), "half within (p50)"));
    html.push_str(&tile(&latency(p.p99_us), "99% within (p99)"));
    html.push_str(&tile(&latency(p.p999_us), "99.9% within (p99.9)"));
    html.push_str(&tile(&amount(got.requests), "requests"));
    let errors = tile(&amount(got.errors), "errors");
    html.push_str(&match got.errors {
        0 => errors,
        _ => errors.replacen("tile", "tile bad", 1),
    });
    html.push_str("</div>\n");
    html
}

fn throughput(run: &Run) -> Chart<'_> {
    let per_sec = |value: fn(&Point) -> f64| steps(run, |point| Some((0.0, value(point))));
    let mut curves = vec![curve("answers", "c1", Kind::Area, per_sec(|point| point.per_sec))];
    if let Some(rate) = run.wanted.rate {
        let end = run.wanted.duration_secs.min(run.got.took_secs);
        let flat = [0.0, end].map(|secs| Spot { secs, low: 0.0, high: rate });
        curves.push(curve("wanted", "c6", Kind::Dashed, vec![flat.to_vec()]));
    }
    if run.got.errors > 0 {
        curves.push(curve("errors", "c4", Kind::Line, per_sec(|point| point.errors_per_sec)));
    }
    let tip = |point: &Point| {
        format!("{} answers/s, {} errors/s", figure(point.per_sec), figure(point.errors_per_sec))
    };
    chart(run, "Throughput", "requests a second", Axis::Linear, curves, tip)
}

fn latencies(run: &Run) -> Chart<'_> {
    let at = |us: fn(&Percentiles) -> u64| {
        steps(run, |point| {
            (point.latency.count > 0).then(|| (0.0, us(&point.latency) as f64 / 1_000.0))
        })
    };
    let curves = vec![
        curve("p50", "c2", Kind::Line, at(|p| p.p50_us)),
        curve("p90", "c1", Kind::Line, at(|p| p.p90_us)),
        curve("p99", "c3", Kind::Line, at(|p| p.p99_us)),
        curve("p99.9", "c4", Kind::Line, at(|p| p.p999_us)),
        curve("max", "c6", Kind::Dashed, at(|p| p.max_us)),
    ];
    let tip = |point: &Point| {
        let p = &point.latency;
        let [half, p90, p99, p999, max] =
            [p.p50_us, p.p90_us, p.p99_us, p.p999_us, p.max_us].map(latency);
        format!("p50 {half}, p90 {p90}, p99 {p99}, p99.9 {p999}, max {max}")
    };
    let unit = "milliseconds, logarithmic";
    chart(run, "Latency", unit, Axis::Log, curves, tip)
}

fn stock(run: &Run) -> Chart<'_> {
    let spot = |level: &super::result::Level| Spot {
        secs: level.at_secs,
        low: 0.0,
        high: level.available as f64,
    };
    let pieces = vec![run.stock.iter().map(spot).collect()];
    let curves = vec![curve("left", "c5", Kind::Area, pieces)];
    let mut chart = chart(run, "Stock", "units left", Axis::Linear, curves, |_| String::new());
    chart.tips = run
        .stock
        .windows(2)
        .map(|pair| Tip {
            from: pair[0].at_secs,
            to: pair[1].at_secs,
            text: format!("{:.1} s: {} left", pair[1].at_secs, amount(pair[1].available)),
        })
        .collect();
    chart
}

fn shares(run: &Run) -> Chart<'_> {
    let mut total: BTreeMap<&str, u64> = BTreeMap::new();
    for ended in &run.outcomes {
        *total.entry(ended.outcome).or_default() += ended.count;
    }
    let mut names: Vec<&str> = total.keys().copied().collect();
    names.sort_by_key(|name| std::cmp::Reverse(total[name]));
    let rest = names.split_off(names.len().min(MAX_SHARES));
    let is_error = |name: &str| {
        run.outcomes.iter().any(|ended| ended.outcome == name && ended.class == Class::Error)
    };
    let share = |point: &Point, of: &[&str]| -> f64 {
        let all: u64 = point.outcomes.values().sum();
        let part: u64 = of.iter().filter_map(|name| point.outcomes.get(name)).sum();
        if all > 0 { 100.0 * part as f64 / all as f64 } else { 0.0 }
    };
    let mut groups: Vec<(&str, Vec<&str>)> =
        names.iter().map(|name| (*name, vec![*name])).collect();
    if !rest.is_empty() {
        groups.push(("others", rest));
    }
    let mut below: Vec<&str> = Vec::new();
    let mut curves = Vec::new();
    for (name, members) in &groups {
        let (from, mut upto) = (below.clone(), below.clone());
        upto.extend(members);
        let pieces = steps(run, |point| {
            (!point.outcomes.is_empty()).then(|| (share(point, &from), share(point, &upto)))
        });
        let class = if is_error(name) { "c4" } else { colour(name) };
        curves.push(curve(name, class, Kind::Area, pieces));
        below = upto;
    }
    let tip = |point: &Point| {
        let part = |(name, count): (&&str, &u64)| format!("{name} {}", amount(*count));
        point.outcomes.iter().map(part).collect::<Vec<_>>().join(", ")
    };
    chart(run, "Outcomes", "percent of requests", Axis::UpTo(100.0), curves, tip)
}

fn chart<'a>(
    run: &'a Run,
    title: &'a str,
    unit: &'a str,
    axis: Axis,
    curves: Vec<Curve<'a>>,
    tip: impl Fn(&Point) -> String,
) -> Chart<'a> {
    let tips = run.series.iter().map(|point| Tip {
        from: point.from_secs,
        to: point.to_secs,
        text: format!("{:.1}–{:.1} s: {}", point.from_secs, point.to_secs, tip(point)),
    });
    Chart { title, unit, axis, secs: run.got.took_secs, tips: tips.collect(), curves }
}

fn curve<'a>(name: &'a str, class: &str, kind: Kind, pieces: Vec<Vec<Spot>>) -> Curve<'a> {
    Curve { name, class: class.to_owned(), kind, pieces }
}

/// An outcome has the same colour in every report.
fn colour(outcome: &str) -> &'static str {
    match outcome {
        "granted" => "c1",
        "had_it_already" | "ordered" => "c2",
        "paid" => "c3",
        "released" => "c7",
        "seen" => "c8",
        "sold_out" => "c6",
        _ => "c5",
    }
}

/// Each slice as a step; one without a value leaves a gap.
fn steps(run: &Run, value: impl Fn(&Point) -> Option<(f64, f64)>) -> Vec<Vec<Spot>> {
    let mut pieces = vec![Vec::new()];
    for point in &run.series {
        match (value(point), pieces.last_mut()) {
            (Some((low, high)), Some(piece)) => {
                let ends = [point.from_secs, point.to_secs];
                piece.extend(ends.map(|secs| Spot { secs, low, high }));
            }
            _ => pieces.push(Vec::new()),
        }
    }
    pieces
}

fn percentiles(run: &Run) -> String {
    let mut html = "<section>\n<h2>Latency, from the planned arrival to the answer</h2>\n<table>\n\
         <tr><th></th><th class=\"n\">requests</th><th class=\"n\">p50</th><th class=\"n\">p90</th>\
         <th class=\"n\">p99</th><th class=\"n\">p99.9</th><th class=\"n\">max</th></tr>\n"
        .to_owned();
    let mut row = |name: &str, p: &Percentiles| {
        let _ =
            write!(html, "<tr><td>{}</td><td class=\"n\">{}</td>", escape(name), amount(p.count));
        for us in [p.p50_us, p.p90_us, p.p99_us, p.p999_us, p.max_us] {
            let _ = write!(html, "<td class=\"n\">{}</td>", latency(us));
        }
        html.push_str("</tr>\n");
    };
    for (request, p) in &run.latency_by_request {
        row(request, p);
    }
    row("all", &run.latency);
    row("all, from the sending", &run.service);
    html.push_str("</table>\n</section>\n");
    html
}

fn outcomes(run: &Run) -> String {
    let all = run.got.requests.max(1) as f64;
    let mut html = "<section>\n<h2>Outcomes</h2>\n<table>\n<tr><th>request</th><th>outcome</th>\
         <th class=\"n\">requests</th><th class=\"n\">share</th></tr>\n"
        .to_owned();
    for ended in &run.outcomes {
        let class = if ended.class == Class::Error { " class=\"error\"" } else { "" };
        let _ = writeln!(
            html,
            "<tr><td>{}</td><td{class}>{}</td><td class=\"n\">{}</td><td class=\"n\">{}%</td></tr>",
            ended.request,
            escape(ended.outcome),
            amount(ended.count),
            figure(100.0 * ended.count as f64 / all)
        );
    }
    html.push_str("</table>\n</section>\n");
    html
}

fn setup(run: &Run) -> String {
    let wanted = &run.wanted;
    let nothing = || "the server did not say".to_owned();
    let books = run.books.as_ref().map_or_else(nothing, |books| {
        format!(
            "{} units: {} left, {} held, {} ordered, {} paid",
            amount(books.stock),
            amount(books.available),
            amount(books.held),
            amount(books.ordered),
            amount(books.paid)
        )
    });
    let audit = run.audit.as_ref().map_or_else(nothing, |audit| {
        format!(
            "{}: {} sales, {} claims, {} orders, {} payments compared in {} ms",
            if audit.ok { "all books agree" } else { "THE BOOKS DIFFER" },
            amount(audit.sales),
            amount(audit.claims),
            amount(audit.orders),
            amount(audit.payments),
            amount(audit.took_ms)
        )
    });
    let server = match &wanted.url {
        Some(url) => format!("{url}, sale {}", run.got.sale_id),
        None => "one of its own, on this machine, in a temporary folder".to_owned(),
    };
    let how = match (wanted.rate, wanted.arrivals) {
        (Some(rate), Some(spacing)) => {
            format!("open loop: {} a second, {}", figure(rate), spacing.word())
        }
        _ => "closed loop".to_owned(),
    };
    let rows = [
        ("command", format!("<code>{}</code>", escape(&run.command))),
        ("server", escape(&server)),
        (
            "load",
            format!(
                "{how}, {}, over {} connections ({} at once on each), seed {}",
                wanted.protocol.name(),
                wanted.connections,
                wanted.pipeline,
                wanted.seed
            ),
        ),
        ("time", format!("{:.1} s wanted, {:.1} s taken", wanted.duration_secs, run.got.took_secs)),
        (
            "sent again",
            format!("{} requests, because an answer did not come", amount(run.got.resent)),
        ),
        ("the sale", books),
        ("the audit", audit),
        (
            "machine",
            escape(&format!(
                "{} cores, {}, {}{}",
                run.machine.cores,
                run.machine.cpu,
                run.machine.system,
                run.got.processor.map(|used| format!("; {}", busy(used))).unwrap_or_default()
            )),
        ),
    ];
    let mut html = "<section>\n<h2>How it was measured</h2>\n<table>\n".to_owned();
    for (name, value) in rows {
        let _ = writeln!(html, "<tr><th>{name}</th><td>{value}</td></tr>");
    }
    html.push_str("</table>\n</section>\n");
    html
}

fn footer(run: &Run) -> String {
    let how = if run.wanted.rate.is_some() {
        "Latency counts from the time an arrival was planned, not from when a connection was free: \
         time spent waiting in line is part of it."
    } else {
        "In a closed loop clients wait for their answers, so a slow server gets fewer requests: \
         compare throughput, and measure latency with --rate."
    };
    format!("{how} Made by qiang {}.", run.version)
}

#[cfg(test)]
mod tests;
