//! Plots over time as inline SVG: axes with round numbers and units, curves as steps, gaps where
//! nothing was measured. Colours come from the style sheet of the page.
//!
//! Whatever the figures are (none, one, enormous), the SVG is well formed and its text fits.

use std::fmt::Write as _;

use super::words::figure;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 270.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 42.0;
/// Lines across, about.
const LINES: f64 = 5.0;
/// Smallest value that a logarithmic axis shows.
const FLOOR: f64 = 0.01;

/// One plot.
pub(crate) struct Chart<'a> {
    pub(crate) title: &'a str,
    /// What stands at the vertical axis.
    pub(crate) unit: &'a str,
    pub(crate) axis: Axis,
    /// Length of the horizontal axis.
    pub(crate) secs: f64,
    pub(crate) curves: Vec<Curve<'a>>,
    /// What a pointer over a stretch of time shows.
    pub(crate) tips: Vec<Tip>,
}

/// How the vertical axis goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Axis {
    /// From 0 to a round number.
    Linear,
    /// From 0 to this.
    UpTo(f64),
    /// In powers of ten.
    Log,
}

/// One curve, in pieces.
pub(crate) struct Curve<'a> {
    pub(crate) name: &'a str,
    /// Of the style sheet.
    pub(crate) class: String,
    pub(crate) kind: Kind,
    pub(crate) pieces: Vec<Vec<Spot>>,
}

/// How a curve is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Line,
    Dashed,
    /// Filled down to the lower end of each spot.
    Area,
}

/// One point of a curve.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spot {
    pub(crate) secs: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// A stretch of time and what to say about it.
pub(crate) struct Tip {
    pub(crate) from: f64,
    pub(crate) to: f64,
    pub(crate) text: String,
}

/// From values to places.
struct Scale {
    from: f64,
    to: f64,
    log: bool,
}

impl Chart<'_> {
    /// The plot with its title and legend, as HTML.
    pub(crate) fn html(&self) -> String {
        let mut html = format!("<figure>\n<figcaption><h2>{}</h2>", escape(self.title));
        html.push_str("<ul class=\"legend\">");
        for curve in &self.curves {
            let (class, name) = (&curve.class, escape(curve.name));
            let dashed = if curve.kind == Kind::Dashed { " dashed" } else { "" };
            // Writing to a string cannot fail, here and below.
            let _ = write!(html, "<li><i class=\"{class}{dashed}\"></i>{name}</li>");
        }
        html.push_str("</ul></figcaption>\n");
        html.push_str(&self.svg());
        html.push_str("</figure>\n");
        html
    }

    fn svg(&self) -> String {
        let scale = self.scale();
        let secs = if self.secs > 0.0 && self.secs.is_finite() { self.secs } else { 1.0 };
        let x = |at: f64| LEFT + (at / secs).clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT);
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n",
            escape(self.title)
        );
        let _ = writeln!(svg, "<text class=\"unit\" x=\"4\" y=\"13\">{}</text>", escape(self.unit));
        for value in scale.ticks() {
            let y = scale.y(value);
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"tick\" text-anchor=\"end\" x=\"{}\" y=\"{:.1}\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                y + 4.0,
                short(value)
            );
        }
        let bottom = HEIGHT - BOTTOM;
        for value in round_steps(secs, 8.0) {
            let place = x(value);
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{place:.1}\" x2=\"{place:.1}\" y1=\"{bottom}\" y2=\"{}\"/>\
                 <text class=\"tick\" text-anchor=\"middle\" x=\"{place:.1}\" y=\"{}\">{}</text>",
                bottom + 4.0,
                bottom + 20.0,
                short(value)
            );
        }
        let _ = writeln!(
            svg,
            "<text class=\"unit\" text-anchor=\"end\" x=\"{}\" y=\"{}\">seconds</text>",
            WIDTH - RIGHT,
            HEIGHT - 3.0
        );
        for curve in &self.curves {
            for piece in curve.pieces.iter().filter(|piece| !piece.is_empty()) {
                curve.draw(piece, &x, &scale, &mut svg);
            }
        }
        for tip in &self.tips {
            let (from, to) = (x(tip.from), x(tip.to));
            let _ = writeln!(
                svg,
                "<rect class=\"tip\" x=\"{from:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{}\">\
                 <title>{}</title></rect>",
                (to - from).max(1.0),
                bottom - TOP,
                escape(&tip.text)
            );
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn scale(&self) -> Scale {
        let spots = self.curves.iter().flat_map(|curve| curve.pieces.iter().flatten());
        let values = || spots.clone().map(|spot| spot.high).filter(|value| value.is_finite());
        let most = values().fold(0.0, f64::max);
        match self.axis {
            Axis::UpTo(to) => Scale { from: 0.0, to: to.max(f64::MIN_POSITIVE), log: false },
            Axis::Linear => {
                let step = round_step(if most > 0.0 { most } else { 1.0 }, LINES);
                Scale { from: 0.0, to: (most / step).ceil().max(1.0) * step, log: false }
            }
            Axis::Log => {
                let least = values().filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
                let least = if least.is_finite() { least.max(FLOOR) } else { 1.0 };
                let from = 10_f64.powf(least.log10().floor());
                let to = 10_f64.powf(most.max(least).log10().ceil());
                Scale { from, to: if to > from { to } else { from * 10.0 }, log: true }
            }
        }
    }
}

impl Curve<'_> {
    fn draw(&self, piece: &[Spot], x: &impl Fn(f64) -> f64, scale: &Scale, svg: &mut String) {
        let mut path = String::new();
        for (place, spot) in piece.iter().enumerate() {
            let letter = if place == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{letter}{:.1} {:.1}", x(spot.secs), scale.y(spot.high));
        }
        let dashed = if self.kind == Kind::Dashed { " dashed" } else { "" };
        if self.kind == Kind::Area {
            let mut area = path.clone();
            for spot in piece.iter().rev() {
                let _ = write!(area, "L{:.1} {:.1}", x(spot.secs), scale.y(spot.low));
            }
            let _ = writeln!(svg, "<path class=\"area {}\" d=\"{area}Z\"/>", self.class);
        }
        let _ = writeln!(svg, "<path class=\"curve {}{dashed}\" d=\"{path}\"/>", self.class);
    }
}

impl Scale {
    fn y(&self, value: f64) -> f64 {
        let (low, high) = (HEIGHT - BOTTOM, TOP);
        let part = if self.log {
            let value = value.max(self.from);
            (value / self.from).log10() / (self.to / self.from).log10()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        let part = if part.is_nan() { 0.0 } else { part.clamp(0.0, 1.0) };
        low + part * (high - low)
    }

    fn ticks(&self) -> Vec<f64> {
        if !self.log {
            return round_steps(self.to, LINES);
        }
        let decades = (self.to / self.from).log10().round();
        let marks: &[f64] = if decades <= 2.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let mut ticks = Vec::new();
        let mut decade = self.from;
        while decade <= self.to * 1.001 && ticks.len() < 40 {
            ticks.extend(marks.iter().map(|mark| mark * decade));
            decade *= 10.0;
        }
        ticks.retain(|tick| *tick <= self.to * 1.001);
        ticks
    }
}

/// Round numbers from 0 to `to`, about `count` of them.
fn round_steps(to: f64, count: f64) -> Vec<f64> {
    let step = round_step(to, count);
    let steps = (0_u32..100).map(|n| f64::from(n) * step);
    steps.take_while(|value| *value <= to * 1.001).collect()
}

/// 1, 2 or 5 times a power of ten.
fn round_step(to: f64, count: f64) -> f64 {
    let raw = (to / count).max(f64::MIN_POSITIVE);
    let power = 10_f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|mark| mark * power);
    step.into_iter().find(|step| *step >= raw * 0.999).unwrap_or(raw)
}

/// A number that fits beside an axis.
fn short(value: f64) -> String {
    let scaled = |by: f64, letter: &str| {
        let text = format!("{:.2}", value / by);
        let text = text.trim_end_matches('0').trim_end_matches('.').to_owned();
        format!("{text}{letter}")
    };
    match value {
        _ if value >= 1e9 => scaled(1e9, "G"),
        _ if value >= 1e6 => scaled(1e6, "M"),
        _ if value >= 1e4 => scaled(1e3, "k"),
        _ if value >= 100.0 => figure(value.round()),
        _ => scaled(1.0, ""),
    }
}

/// Text that is only text in HTML.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn svg(axis: Axis, values: &[f64]) -> String {
        let spots = values.iter().zip(0_u32..).map(|(value, at)| Spot {
            secs: at.into(),
            low: 0.0,
            high: *value,
        });
        let curve = Curve {
            name: "a<b>",
            class: "c1".into(),
            kind: Kind::Area,
            pieces: vec![spots.collect()],
        };
        let tips = vec![Tip { from: 0.0, to: 1.0, text: "\"&\"".into() }];
        let curves = vec![curve];
        Chart { title: "T", unit: "/s", axis, secs: 3.0, curves, tips }.html()
    }

    #[test]
    fn whatever_the_figures_the_plot_is_sound() {
        for axis in [Axis::Linear, Axis::UpTo(100.0), Axis::Log] {
            for values in [
                &[][..],
                &[0.0],
                &[5.0],
                &[0.0, 0.0, 0.0],
                &[1.0, 2.0, 3.0],
                &[1e-9, 1e12],
                &[f64::NAN, f64::INFINITY, 1.0],
            ] {
                let html = svg(axis, values);
                for word in ["NaN", "inf", "a<b>"] {
                    assert!(!html.contains(word), "{axis:?} {values:?} {word}: {html}");
                }
                assert_eq!(html.matches("<svg").count(), html.matches("</svg>").count());
                assert!(html.contains("&quot;&amp;&quot;") && html.contains("a&lt;b&gt;"));
            }
        }
    }

    #[test]
    fn axes_have_round_numbers() {
        assert_eq!(round_steps(1_000.0, 5.0), [0.0, 200.0, 400.0, 600.0, 800.0, 1_000.0]);
        assert_eq!(round_steps(30.0, 8.0), [0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0]);
        let scale = Scale { from: 0.1, to: 1_000.0, log: true };
        let ticks: Vec<String> = scale.ticks().into_iter().map(short).collect();
        assert_eq!(ticks, ["0.1", "1", "10", "100", "1,000"]);
        for (value, text) in [(0.0, "0"), (0.25, "0.25"), (20_000.0, "20k"), (1.5e6, "1.5M")] {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn more_is_higher_and_nothing_leaves_the_frame() {
        for scale in
            [Scale { from: 0.0, to: 10.0, log: false }, Scale { from: 1.0, to: 1_000.0, log: true }]
        {
            assert!(scale.y(10.0) < scale.y(5.0));
            for value in [-1.0, 0.0, 1e30] {
                assert!((TOP..=HEIGHT - BOTTOM).contains(&scale.y(value)), "{value}");
            }
        }
    }
}
