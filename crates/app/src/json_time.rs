//! Times in JSON: RFC 3339, in UTC and with milliseconds when written; any offset when read.
//!
//! Use as `#[serde(with = "json_time")]`, or `json_time::option` for a time that may be absent.

use std::fmt;

use qiang_core::Timestamp;
use serde::de::Visitor;
use serde::{Deserializer, Serializer};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::problem::Problem;

/// A time as text, without a heap: `2026-01-02T03:04:05.678Z`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Text([u8; 24]);

impl Text {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("digits and punctuation are UTF-8")
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Writes a time. What RFC 3339 cannot say (before the year 0, after 9999) becomes the nearest
/// it can.
#[must_use]
pub fn format(at: Timestamp) -> Text {
    const YEAR_ZERO_MS: i64 = -62_167_219_200_000;
    const YEAR_9999_END_MS: i64 = 253_402_300_799_999;
    let millis = at.millis().clamp(YEAR_ZERO_MS, YEAR_9999_END_MS);
    let moment = OffsetDateTime::from_unix_timestamp(millis.div_euclid(1000))
        .expect("clamped to the years the calendar has");
    let mut text = *b"0000-00-00T00:00:00.000Z";
    let mut put = |at: std::ops::Range<usize>, value: u32| {
        let mut rest = value;
        for digit in text[at].iter_mut().rev() {
            *digit = b"0123456789"[(rest % 10) as usize];
            rest /= 10;
        }
    };
    put(0..4, moment.year().unsigned_abs());
    put(5..7, u32::from(u8::from(moment.month())));
    put(8..10, u32::from(moment.day()));
    put(11..13, u32::from(moment.hour()));
    put(14..16, u32::from(moment.minute()));
    put(17..19, u32::from(moment.second()));
    put(20..23, u32::try_from(millis.rem_euclid(1000)).expect("under a thousand"));
    Text(text)
}

/// Reads a time; `None` if it is not RFC 3339. Below the millisecond it is cut off.
#[must_use]
pub fn parse(text: &str) -> Option<Timestamp> {
    let moment = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    let millis = moment.unix_timestamp_nanos().div_euclid(1_000_000);
    i64::try_from(millis).ok().map(Timestamp::from_millis)
}

/// A time out of a query. A `+` of an offset that was not escaped arrives as a blank, and is meant as
/// what it was.
pub fn of_query(field: &'static str, text: Option<String>) -> Result<Option<Timestamp>, Problem> {
    let Some(text) = text else { return Ok(None) };
    let refused = || Problem::invalid_field(field, "must be a time like 2027-01-15T08:00:00Z");
    parse(&text.replace(' ', "+")).map(Some).ok_or_else(refused)
}

/// Serde's half of writing.
pub fn serialize<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(format(*at).as_str())
}

/// Serde's half of reading.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
    deserializer.deserialize_str(TimeVisitor)
}

/// The same for a time that may be absent or null; add `#[serde(default)]` to let it be absent.
pub mod option {
    use super::{Deserializer, Serializer, TimeVisitor, Timestamp, Visitor, fmt};

    /// Serde's half of writing.
    pub fn serialize<S: Serializer>(at: &Option<Timestamp>, s: S) -> Result<S::Ok, S::Error> {
        match at {
            Some(at) => super::serialize(at, s),
            None => s.serialize_none(),
        }
    }

    /// Serde's half of reading.
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Timestamp>, D::Error> {
        d.deserialize_option(OptionVisitor)
    }

    struct OptionVisitor;

    impl<'de> Visitor<'de> for OptionVisitor {
        type Value = Option<Timestamp>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            TimeVisitor.expecting(f)
        }

        fn visit_none<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_some<D: Deserializer<'de>>(self, d: D) -> Result<Self::Value, D::Error> {
            super::deserialize(d).map(Some)
        }
    }
}

struct TimeVisitor;

impl Visitor<'_> for TimeVisitor {
    type Value = Timestamp;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time like \"2026-01-02T03:04:05Z\" (RFC 3339)")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Timestamp, E> {
        parse(text).ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Window {
        #[serde(with = "crate::json_time")]
        opens_at: Timestamp,
        #[serde(with = "crate::json_time::option", default)]
        closes_at: Option<Timestamp>,
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn written_in_utc_with_milliseconds() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_767_323_045_678, "2026-01-02T03:04:05.678Z"),
            (1_709_164_799_999, "2024-02-28T23:59:59.999Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (i64::MAX, "9999-12-31T23:59:59.999Z"),
            (i64::MIN, "0000-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(format(at(millis)).as_str(), text);
        }
    }

    #[test]
    fn read_with_any_offset_and_precision() {
        for (text, millis) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2026-01-02T11:04:05.678+08:00", 1_767_323_045_678),
            ("2026-01-01T22:04:05.6789999-05:00", 1_767_323_045_678),
            ("1969-12-31T23:59:59.9999Z", -1),
        ] {
            assert_eq!(parse(text), Some(at(millis)), "{text}");
        }
        for text in [
            "",
            "2026-01-02",
            "2026-01-02T03:04:05",
            "1767323045678",
            "2026-02-30T00:00:00Z",
            "2026-01-02T03:04:05+25:00",
            "tomorrow",
            "2026-01-02T24:00:00Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_written_can_be_read() {
        for millis in (-62_167_219_200_000..253_402_300_799_999).step_by(2_718_281_828_459) {
            assert_eq!(parse(format(at(millis)).as_str()), Some(at(millis)));
        }
    }

    #[test]
    fn in_json_a_time_is_a_string_and_may_be_null_where_it_may_be_absent() {
        let window = Window { opens_at: at(0), closes_at: Some(at(1)) };
        let json = serde_json::to_string(&window).expect("it is JSON");
        assert_eq!(
            json,
            r#"{"opens_at":"1970-01-01T00:00:00.000Z","closes_at":"1970-01-01T00:00:00.001Z"}"#
        );
        assert_eq!(serde_json::from_str::<Window>(&json).expect("it was written here"), window);
        for open in [
            r#"{"opens_at":"1970-01-01T00:00:00Z"}"#,
            r#"{"opens_at":"1970-01-01T00:00:00Z","closes_at":null}"#,
        ] {
            let window: Window = serde_json::from_str(open).expect("open-ended");
            assert_eq!(window.closes_at, None);
        }
        for bad in [r#"{"opens_at":0}"#, r#"{"opens_at":null}"#, r#"{"opens_at":"soon"}"#] {
            let error = serde_json::from_str::<Window>(bad).expect_err("not a time");
            assert!(error.to_string().contains("RFC 3339"), "{error}");
        }
    }
}
