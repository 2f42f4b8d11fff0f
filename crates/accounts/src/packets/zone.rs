//! Days and years of the shop: by an offset from UTC that never changes.
//!
//! Names of zones with summer time would need a table of them that is kept up to date. Red packets are a
//! custom of places without summer time, so an offset is exact there.

use qiang_app::config::Wrong;
use qiang_core::Timestamp;
use qiang_store::packets::Within;

const MINUTE_MS: i64 = 60_000;
const DAY_MS: i64 = 24 * 60 * MINUTE_MS;
/// The furthest any zone is from UTC, in hours.
const MAX_HOURS: i64 = 14;

/// How far the shop's clock is ahead of UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Zone {
    offset_ms: i64,
}

impl Zone {
    /// Reads `+08:00`, `-03:30` or `UTC`.
    pub(crate) fn read(text: &str) -> Result<Self, Wrong> {
        if text == "UTC" || text == "Z" {
            return Ok(Self { offset_ms: 0 });
        }
        let read = || {
            let (sign, rest) = match text.split_at_checked(1)? {
                ("+", rest) => (1, rest),
                ("-", rest) => (-1, rest),
                _ => return None,
            };
            let (hours, minutes) = rest.split_once(':')?;
            let digits = |text: &str| {
                let plain = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
                plain.then(|| text.parse::<i64>().ok()).flatten()
            };
            let (hours, minutes) = (digits(hours)?, digits(minutes)?);
            let fits = minutes < 60 && hours * 60 + minutes <= MAX_HOURS * 60;
            fits.then_some(Self { offset_ms: sign * (hours * 60 + minutes) * MINUTE_MS })
        };
        let fix =
            "write how far the shop's clock is from UTC, like +08:00; names of zones are not known";
        read().ok_or_else(|| Wrong::new("is no offset from UTC", fix))
    }

    /// Days since 1970-01-01 here.
    pub(crate) fn day(self, at: Timestamp) -> i64 {
        (at.millis() + self.offset_ms).div_euclid(DAY_MS)
    }

    /// The year it is here.
    pub(crate) fn year(self, at: Timestamp) -> i64 {
        // An estimate that is never too late, and off by a year at most.
        let day = self.day(at);
        let guess = 1970 + day.div_euclid(366);
        (guess..).find(|year| first_day(year + 1) > day).unwrap_or(guess)
    }

    /// All of a year here.
    pub(crate) fn whole_year(self, year: i64) -> Within {
        let begin = |year| Timestamp::from_millis(first_day(year) * DAY_MS - self.offset_ms);
        Within { from: begin(year), until: begin(year + 1) }
    }
}

/// The days from 1970-01-01 to the first of January of a year.
fn first_day(year: i64) -> i64 {
    let before = year - 1;
    let leap_days = |year: i64| year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    365 * (year - 1970) + leap_days(before) - leap_days(1969)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        qiang_app::json_time::parse(text).expect("a time")
    }

    #[test]
    fn offsets_are_read_and_nothing_else() {
        for (text, minutes) in [("+08:00", 480), ("-03:30", -210), ("UTC", 0), ("+14:00", 840)] {
            assert_eq!(Zone::read(text).expect("an offset").offset_ms, minutes * MINUTE_MS);
        }
        for bad in ["", "8", "+8:00", "+08", "+15:00", "+08:60", "Asia/Shanghai", "+0a:00", "é8:00"]
        {
            assert!(Zone::read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn p70_a_day_begins_at_the_shops_midnight() {
        let shanghai = Zone::read("+08:00").expect("an offset");
        let days = ["2027-01-14T15:59:59.999Z", "2027-01-14T16:00:00Z", "2027-01-15T15:59:59.999Z"]
            .map(|text| shanghai.day(at(text)));
        assert_eq!([days[1] - days[0], days[2] - days[1]], [1, 0]);
    }

    #[test]
    fn a_year_begins_and_ends_at_the_shops_midnight() {
        let shanghai = Zone::read("+08:00").expect("an offset");
        for (text, year) in [
            ("2026-12-31T15:59:59.999Z", 2026),
            ("2026-12-31T16:00:00Z", 2027),
            ("2024-12-31T15:59:59Z", 2024),
            ("2024-12-31T16:00:00Z", 2025),
            ("1970-01-01T00:00:00Z", 1970),
            ("2100-06-01T00:00:00Z", 2100),
        ] {
            assert_eq!(shanghai.year(at(text)), year, "{text}");
            let Within { from, until } = shanghai.whole_year(year);
            assert!(from <= at(text) && at(text) < until, "{text}");
        }
        let year = shanghai.whole_year(2027);
        assert_eq!(
            (year.from, year.until),
            (at("2026-12-31T16:00:00Z"), at("2027-12-31T16:00:00Z"))
        );
    }
}
