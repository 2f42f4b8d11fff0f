//! A report as one page that can be kept and printed: no script, nothing from elsewhere, every text
//! escaped, and a policy that allows its own style and nothing else.

use std::borrow::Cow;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use qiang_app::cli::output::amount as grouped;
use qiang_app::json_time;
use qiang_app::problem::Lang;
use qiang_core::Timestamp;
use sha2::{Digest as _, Sha256};

use super::plot::{self, Line};
use super::view::{Point, SaleReport};
use super::words::{self, Words};

const STYLE: &str = include_str!("page.css");

/// By the hash of its style, so that nothing else in the page can have one.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = STANDARD.encode(Sha256::digest(STYLE));
    format!(
        "default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    )
});

/// The policy of the page.
pub(super) fn policy() -> String {
    POLICY.clone()
}

/// A text that is nothing but a text, in a page and in an attribute.
pub(super) fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(['&', '<', '>', '"', '\'']) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped.into()
}

/// The page.
pub(super) fn write(report: &SaleReport, lang: Lang) -> String {
    let words = words::of(lang);
    let tag = match lang {
        Lang::En => "en",
        Lang::Zh => "zh-Hans",
    };
    let sale = &report.sale;
    let mut page = Page { text: String::with_capacity(32 << 10) };
    page.raw("<!doctype html><html lang=\"").raw(tag).raw("\"><head><meta charset=\"utf-8\">");
    // For those who keep the page as a file. Framing cannot be forbidden from inside.
    let kept = policy().replace("; frame-ancestors 'none'", "");
    page.raw("<meta http-equiv=\"Content-Security-Policy\" content=\"").text(&kept).raw("\">");
    page.raw("<meta name=\"viewport\" content=\"width=device-width\"><title>");
    page.text(words.report).raw(": ").text(&sale.title).raw("</title><style>").raw(STYLE);
    page.raw("</style></head><body><header><p>").text(words.report).raw("</p><h1>");
    page.text(&sale.title).raw("</h1><p>").text(words.as_of).raw(" ").text(&time(report.as_of));
    page.raw("</p>");
    if !report.up_to_date {
        page.raw("<p class=\"note\">").text(words.behind).raw("</p>");
    }
    page.raw("</header><main>");
    page.facts(
        words.sale,
        &[
            ("ID", sale.id.clone()),
            (words.sku, sale.sku.clone()),
            (words.state, sale.state.to_owned()),
            (words.opens_at, time(sale.opens_at)),
        ],
    );
    page.units_and_money(report, words);
    page.speed(report, words);
    page.answers(report, words, lang);
    page.plots(report, words);
    page.raw("<p class=\"note\">").text(words.counted).raw("</p></main></body></html>");
    page.text
}

struct Page {
    text: String,
}

impl Page {
    fn raw(&mut self, html: &str) -> &mut Self {
        self.text.push_str(html);
        self
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.text.push_str(&escape(text));
        self
    }

    /// A heading, and a list of names with values.
    fn facts(&mut self, heading: &str, facts: &[(&str, String)]) {
        self.raw("<section><h2>").text(heading).raw("</h2><dl>");
        for (name, value) in facts {
            self.raw("<div><dt>").text(name).raw("</dt><dd>").text(value).raw("</dd></div>");
        }
        self.raw("</dl></section>");
    }

    fn units_and_money(&mut self, report: &SaleReport, words: &Words) {
        let (units, money) = (&report.units, &report.money);
        self.facts(
            words.units,
            &[
                (words.stock, grouped(units.stock)),
                (words.sold, grouped(units.sold)),
                (words.paid, grouped(units.paid)),
                (words.ordered, grouped(units.ordered)),
                (words.held, grouped(units.held)),
                (words.released, grouped(units.released)),
                (words.returned, grouped(units.returned)),
                (words.left, grouped(units.left)),
            ],
        );
        let with_count = |cents: i64, count: u64| format!("{} ({})", amount(cents), grouped(count));
        self.facts(
            words.money,
            &[
                (words.earned, amount(money.earned_cents)),
                (words.received, with_count(money.paid_cents, money.payments)),
                (words.refunded, with_count(money.refunded_cents, money.refunds)),
                (words.due, with_count(money.due_cents, money.refunds_due)),
            ],
        );
    }

    fn speed(&mut self, report: &SaleReport, words: &Words) {
        let speed = &report.speed;
        let or_none = |at: Option<Timestamp>| at.map_or_else(|| "–".to_owned(), time);
        let sold_out = speed.sold_out_after_ms.map(|ms| duration(ms, words));
        let mut facts = vec![
            (words.first, or_none(speed.first_claim_at)),
            (words.last, or_none(speed.last_claim_at)),
            (words.sold_out, sold_out.unwrap_or_else(|| words.never.to_owned())),
            (words.peak_granted, grouped(speed.peak_granted_per_sec)),
            (words.peak_claims, grouped(speed.peak_claims_per_sec)),
        ];
        if let Some(within) = &speed.paid_within {
            facts.push((words.paid_half, duration(within.half_ms, words)));
            facts.push((words.paid_most, duration(within.most_ms, words)));
        }
        self.facts(words.speed, &facts);
    }

    fn answers(&mut self, report: &SaleReport, words: &Words, lang: Lang) {
        let answers = &report.answers;
        let granted = format!("{} ({} %)", grouped(answers.granted), answers.granted_percent);
        self.facts(
            words.answers,
            &[
                (words.asked, grouped(answers.asked)),
                (words.granted, granted),
                (words.replayed, grouped(answers.replayed)),
                (words.refused, grouped(answers.refused)),
                (words.failed, grouped(answers.failed)),
                (words.buyers, grouped(answers.buyers)),
            ],
        );
        self.raw("<section><h2>").text(words.why).raw("</h2>");
        if report.refusals.is_empty() {
            self.raw("<p>").text(words.nobody).raw("</p></section>");
            return;
        }
        self.raw("<table><thead><tr><th scope=\"col\">").text(words.reason);
        self.raw("</th><th scope=\"col\">").text(words.count).raw("</th><th scope=\"col\">");
        self.text(words.share).raw("</th></tr></thead><tbody>");
        for refusal in &report.refusals {
            self.raw("<tr><td>").text(&words::reason(&refusal.code, lang)).raw(" <code>");
            self.text(&refusal.code).raw("</code></td><td>").text(&grouped(refusal.count));
            self.raw("</td><td>").text(&format!("{} %", refusal.percent)).raw("</td></tr>");
        }
        self.raw("</tbody></table></section>");
    }

    fn plots(&mut self, report: &SaleReport, words: &Words) {
        let points = &report.timeline.points;
        let (Some(first), Some(last)) = (points.first(), points.last()) else { return };
        let ends = (time(first.at), time(last.at));
        let ends = (ends.0.as_str(), ends.1.as_str());
        let line = |class, name, of: fn(&Point) -> u64| Line {
            class,
            name,
            values: points.iter().map(of).collect(),
        };
        self.raw("<section><h2>").text(words.over_time).raw("</h2><p>").text(words.point);
        let length = format!(" {} {}", report.timeline.part_secs, words.seconds);
        self.text(&length).raw("</p>");
        let claims = [
            line("granted", words.granted, |point| point.granted),
            line("refused", words.refused, |point| point.refused),
        ];
        self.raw(&plot::draw(words.claims_plot, &claims, ends));
        let left = [line("left", words.left, |point| point.left)];
        self.raw(&plot::draw(words.left_plot, &left, ends));
        let paid = [line("paid", words.paid, |point| point.paid)];
        self.raw(&plot::draw(words.paid_plot, &paid, ends)).raw("</section>");
    }
}

/// `2027-01-15 08:00:00 UTC`
fn time(at: Timestamp) -> String {
    let text = json_time::format(at);
    let (day, rest) = text.as_str().split_once('T').unwrap_or((text.as_str(), ""));
    format!("{day} {} UTC", rest.get(..8).unwrap_or_default())
}

/// `12.345 s`
fn duration(ms: i64, words: &Words) -> String {
    format!("{}.{:03} {}", ms / 1_000, ms.unsigned_abs() % 1_000, words.seconds)
}

/// Cents as `1,234.50`, in the shop's currency.
fn amount(cents: i64) -> String {
    let (sign, cents) = (if cents < 0 { "-" } else { "" }, cents.unsigned_abs());
    format!("{sign}{}.{:02}", grouped(cents / 100), cents % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        for (cents, text) in [(0, "0.00"), (5, "0.05"), (123_450, "1,234.50"), (-150, "-1.50")] {
            assert_eq!(amount(cents), text);
        }
        assert_eq!(duration(12_045, words::of(Lang::En)), "12.045 s");
        let at = Timestamp::from_millis(1_800_000_000_000);
        assert_eq!(time(at), "2027-01-15 08:00:00 UTC");
    }

    #[test]
    fn a_text_stays_a_text() {
        assert_eq!(escape("茅台"), "茅台");
        let script = escape("<script a='1' b=\"2\">&");
        assert_eq!(script, "&lt;script a=&#39;1&#39; b=&quot;2&quot;&gt;&amp;");
    }
}
