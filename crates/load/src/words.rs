//! Numbers as people read them.

use std::time::Duration;

use super::processor::Processor;

/// A share of a second that shows in latencies.
const FELT: f64 = 0.01;

/// With separators: `12,345`.
pub fn amount(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// How many of what.
pub fn many(count: u64, one: &str, more: &str) -> String {
    format!("{} {}", amount(count), if count == 1 { one } else { more })
}

/// A rate, or another figure whose fraction matters only while it is small.
pub fn figure(value: f64) -> String {
    if !value.is_finite() || value < 0.0 {
        return "–".to_owned();
    }
    match value {
        _ if value == value.trunc() || value >= 100.0 => {
            format!("{value:.0}").parse().map_or_else(|_| format!("{value:.0}"), amount)
        }
        _ if value >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A latency, given in microseconds: `0.85 ms`, `12.3 ms`, `1.50 s`.
pub fn latency(us: u64) -> String {
    let ms = us as f64 / 1_000.0;
    if ms >= 1_000.0 { format!("{} s", figure(ms / 1_000.0)) } else { format!("{} ms", figure(ms)) }
}

/// How busy a machine was, and what its host took away if that could be felt.
pub fn busy(processor: Processor) -> String {
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let Processor { busy, stolen, stolen_at_worst } = processor;
    let mut text = format!("{} busy", percent(busy));
    if stolen_at_worst >= FELT {
        let (of_all, at_worst) = (percent(stolen), percent(stolen_at_worst));
        text += &format!(", {of_all} taken away by its host ({at_worst} in the worst second)");
    }
    text
}

/// A length of time as it is given on the command line: `90`, `30s`, `500ms`, `2m`, `1h`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a time like 30s, 500ms, 2m or 1h");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let ms = match unit {
        "ms" => Some(number),
        "" | "s" => number.checked_mul(1_000),
        "m" => number.checked_mul(60_000),
        "h" => number.checked_mul(3_600_000),
        _ => None,
    };
    ms.map(Duration::from_millis).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(amount(number), text);
        }
        for (value, text) in [
            (0.0, "0"),
            (3.0, "3"),
            (0.857, "0.86"),
            (12.34, "12.3"),
            (123.4, "123"),
            (20_000.4, "20,000"),
            (f64::NAN, "–"),
            (f64::INFINITY, "–"),
            (1e12, "1,000,000,000,000"),
        ] {
            assert_eq!(figure(value), text);
        }
        for (us, text) in
            [(0, "0 ms"), (850, "0.85 ms"), (12_340, "12.3 ms"), (1_500_000, "1.50 s")]
        {
            assert_eq!(latency(us), text);
        }
    }

    #[test]
    fn times_are_read_with_their_unit() {
        for (text, ms) in
            [("30s", 30_000), ("90", 90_000), ("500ms", 500), ("2m", 120_000), ("1h", 3_600_000)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in
            ["", "s", "1.5s", "-3s", "3d", "99999999999999999999s", "18446744073709551615h", "3 s"]
        {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
