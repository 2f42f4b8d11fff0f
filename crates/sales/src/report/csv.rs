//! A report for spreadsheets: one table with the columns `section`, `name`, `at` and `value`, so that
//! everything can be filtered and summed. It begins with the mark by which spreadsheets know UTF-8.

use std::fmt::{Display, Write as _};

use qiang_app::json_time;
use qiang_core::Timestamp;

use super::view::SaleReport;

/// By which spreadsheets know UTF-8.
const MARK: char = '\u{feff}';

/// The report as CSV, as RFC 4180 has it.
pub(super) fn write(report: &SaleReport) -> String {
    let mut table = Table { text: String::from(MARK) };
    table.row("section", "name", "at", "value");
    let sale = &report.sale;
    for (name, value) in [
        ("id", sale.id.as_str()),
        ("title", &sale.title),
        ("sku", &sale.sku),
        ("state", sale.state),
        ("opens_at", json_time::format(sale.opens_at).as_str()),
        ("as_of", json_time::format(report.as_of).as_str()),
        ("up_to_date", if report.up_to_date { "true" } else { "false" }),
    ] {
        table.row("sale", name, "", value);
    }
    let units = &report.units;
    for (name, value) in [
        ("stock", units.stock),
        ("sold", units.sold),
        ("held", units.held),
        ("ordered", units.ordered),
        ("paid", units.paid),
        ("released", units.released),
        ("returned", units.returned),
        ("left", units.left),
    ] {
        table.number("units", name, value);
    }
    let money = &report.money;
    for (name, value) in [
        ("earned_cents", money.earned_cents),
        ("paid_cents", money.paid_cents),
        ("refunded_cents", money.refunded_cents),
        ("due_cents", money.due_cents),
    ] {
        table.number("money", name, value);
    }
    for (name, value) in [
        ("payments", money.payments),
        ("refunds", money.refunds),
        ("refunds_due", money.refunds_due),
    ] {
        table.number("money", name, value);
    }
    table.speed(report);
    let answers = &report.answers;
    for (name, value) in [
        ("asked", answers.asked),
        ("granted", answers.granted),
        ("replayed", answers.replayed),
        ("refused", answers.refused),
        ("failed", answers.failed),
        ("buyers", answers.buyers),
        ("regranted", answers.regranted),
    ] {
        table.number("answers", name, value);
    }
    for refusal in &report.refusals {
        table.number("refusals", &refusal.code, refusal.count);
    }
    table.number("timeline", "part_secs", report.timeline.part_secs);
    for point in &report.timeline.points {
        let at = json_time::format(point.at);
        for (name, value) in [
            ("granted", point.granted),
            ("refused", point.refused),
            ("failed", point.failed),
            ("paid", point.paid),
            ("released", point.released),
            ("left", point.left),
        ] {
            table.row("timeline", name, at.as_str(), &value.to_string());
        }
    }
    table.text
}

struct Table {
    text: String,
}

impl Table {
    fn speed(&mut self, report: &SaleReport) {
        let speed = &report.speed;
        let time = |at: Option<Timestamp>| {
            at.map(|at| json_time::format(at).to_string()).unwrap_or_default()
        };
        for (name, at) in [
            ("first_claim_at", speed.first_claim_at),
            ("last_claim_at", speed.last_claim_at),
            ("sold_out_at", speed.sold_out_at),
        ] {
            self.row("speed", name, "", &time(at));
        }
        let after = speed.sold_out_after_ms.map(|ms| ms.to_string()).unwrap_or_default();
        self.row("speed", "sold_out_after_ms", "", &after);
        self.number("speed", "peak_granted_per_sec", speed.peak_granted_per_sec);
        self.number("speed", "peak_claims_per_sec", speed.peak_claims_per_sec);
        if let Some(within) = &speed.paid_within {
            self.number("speed", "paid_within_half_ms", within.half_ms);
            self.number("speed", "paid_within_most_ms", within.most_ms);
            self.number("speed", "paid_within_all_ms", within.all_ms);
        }
    }

    fn number(&mut self, section: &str, name: &str, value: impl Display) {
        self.row(section, name, "", &value.to_string());
    }

    fn row(&mut self, section: &str, name: &str, at: &str, value: &str) {
        for (place, cell) in [section, name, at, value].into_iter().enumerate() {
            if place > 0 {
                self.text.push(',');
            }
            self.cell(cell);
        }
        self.text.push_str("\r\n");
    }

    /// A spreadsheet takes a cell that begins with one of these for a formula, which a title of a sale
    /// must never become. With an apostrophe before it, it is a text.
    fn cell(&mut self, text: &str) {
        let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
        // A number below 0 is a number.
        let is_number = text.starts_with('-') && text.parse::<i64>().is_ok();
        let is_formula = is_formula && !is_number;
        let apostrophe = if is_formula { "'" } else { "" };
        if is_formula || text.contains(['"', ',', '\n', '\r']) {
            let text = text.replace('"', "\"\"");
            write!(self.text, "\"{apostrophe}{text}\"").expect("a String takes everything");
        } else {
            self.text.push_str(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_and_never_a_formula() {
        for (text, cell) in [
            ("plain", "plain"),
            ("a,b", "\"a,b\""),
            ("say \"hi\"", "\"say \"\"hi\"\"\""),
            ("=1+1", "\"'=1+1\""),
            ("=HYPERLINK(\"http://x\",\"y\")", "\"'=HYPERLINK(\"\"http://x\"\",\"\"y\"\")\""),
            ("+1", "\"'+1\""),
            ("+86 sale", "\"'+86 sale\""),
            ("-2", "-2"),
            ("-2+3", "\"'-2+3\""),
            ("@SUM(A1)", "\"'@SUM(A1)\""),
            ("\t=1", "\"'\t=1\""),
            ("a=1", "a=1"),
            ("茅台", "茅台"),
        ] {
            let mut table = Table { text: String::new() };
            table.cell(text);
            assert_eq!(table.text, cell, "{text}");
        }
    }
}
