//! Plots as SVG inside a page: no script, no style of their own, readable in print and by a screen reader.

use std::fmt::Write as _;

use super::html::escape;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 200.0;
/// Room for the numbers left of the plot, and for the times below it.
const LEFT: f64 = 60.0;
const BELOW: f64 = 24.0;
const ABOVE: f64 = 10.0;

/// One line of a plot.
pub(super) struct Line<'a> {
    /// Its class, which has the colour.
    pub(super) class: &'static str,
    /// What it shows.
    pub(super) name: &'a str,
    /// A value for each point.
    pub(super) values: Vec<u64>,
}

/// Draws lines over one axis of time, whose ends are named.
pub(super) fn draw(title: &str, lines: &[Line<'_>], ends: (&str, &str)) -> String {
    let highest = lines.iter().flat_map(|line| &line.values).copied().max().unwrap_or(0);
    let top = rounded_up(highest);
    let mut svg = String::new();
    let put = |svg: &mut String, text: std::fmt::Arguments<'_>| {
        svg.write_fmt(text).expect("a String takes everything");
    };
    let title = escape(title);
    put(
        &mut svg,
        format_args!(
            "<figure><figcaption>{title}</figcaption><svg viewBox=\"0 0 {} {}\" role=\"img\" \
             aria-label=\"{title}\">",
            WIDTH + LEFT + 10.0,
            HEIGHT + ABOVE + BELOW
        ),
    );
    for quarter in 0..=2_u64 {
        let value = top / 2 * quarter;
        let y = height(value, top);
        put(
            &mut svg,
            format_args!(
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"scale\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>",
                LEFT + WIDTH,
                LEFT - 8.0,
                y + 4.0
            ),
        );
    }
    for line in lines {
        let mut path = String::new();
        for (place, value) in line.values.iter().enumerate() {
            let x = across(place, line.values.len());
            let verb = if place == 0 { 'M' } else { 'L' };
            put(&mut path, format_args!("{verb}{x:.1} {:.1}", height(*value, top)));
        }
        if line.values.len() == 1 {
            put(&mut path, format_args!("h{WIDTH}"));
        }
        put(&mut svg, format_args!("<path class=\"line {}\" d=\"{path}\"/>", line.class));
    }
    let y = HEIGHT + ABOVE + BELOW - 6.0;
    let (first, last) = (escape(ends.0), escape(ends.1));
    put(
        &mut svg,
        format_args!(
            "<text class=\"scale\" x=\"{LEFT}\" y=\"{y}\">{first}</text>\
             <text class=\"scale\" x=\"{}\" y=\"{y}\" text-anchor=\"end\">{last}</text></svg>",
            LEFT + WIDTH
        ),
    );
    svg.push_str("<p class=\"legend\">");
    for line in lines {
        let name = escape(line.name);
        put(&mut svg, format_args!("<span class=\"key {}\"></span>{name} ", line.class));
    }
    svg.push_str("</p></figure>");
    svg
}

#[expect(clippy::cast_precision_loss, reason = "a plot has pixels")]
fn across(place: usize, of: usize) -> f64 {
    LEFT + WIDTH * place as f64 / of.saturating_sub(1).max(1) as f64
}

#[expect(clippy::cast_precision_loss, reason = "a plot has pixels")]
fn height(value: u64, top: u64) -> f64 {
    ABOVE + HEIGHT - HEIGHT * value as f64 / top.max(1) as f64
}

/// The next number with one digit and zeros, at least 2, so that half of it is whole.
fn rounded_up(value: u64) -> u64 {
    let unit = 10_u64.saturating_pow(value.checked_ilog10().unwrap_or(0));
    let rounded = value.div_ceil(unit).saturating_mul(unit).max(2);
    rounded.saturating_add(rounded % 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_ends_at_a_round_number_that_is_not_lower() {
        for (value, top) in [(0, 2), (1, 2), (3, 4), (9, 10), (10, 10), (11, 20), (4_321, 5_000)] {
            assert_eq!(rounded_up(value), top, "{value}");
        }
        assert!(rounded_up(u64::MAX - 1) >= u64::MAX - 1);
    }

    #[test]
    fn a_plot_has_every_value_and_escapes_every_word() {
        let line = |values: Vec<u64>| Line { class: "granted", name: "<b>", values };
        let drawn = draw("a & b", &[line(vec![0, 5, 10])], ("<", ">"));
        assert!(drawn.contains("a &amp; b") && drawn.contains("&lt;b&gt;"), "{drawn}");
        assert!(!drawn.contains("<b>") && !drawn.contains("style="), "{drawn}");
        assert!(drawn.contains("M60.0 210.0L420.0 110.0L780.0 10.0"), "{drawn}");
        assert!(draw("one", &[line(vec![7])], ("", "")).contains("h720"));
        assert!(draw("none", &[], ("", "")).ends_with("</figure>"));
    }
}
