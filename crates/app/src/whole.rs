//! Whole numbers in JSON: `3.0` and `3e0` are the same number as `3`.
//!
//! Use as `#[serde(deserialize_with = "whole::deserialize")]`, or `whole::option` for a number that
//! may be absent or null.

use std::fmt;

use serde::Deserializer;
use serde::de::{Error, Unexpected, Visitor};

/// Up to this a float holds every whole number.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Reads a whole number.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    deserializer.deserialize_i64(Whole)
}

/// Reads a whole number, or null; add `#[serde(default)]` to let it be absent.
pub fn option<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    deserializer.deserialize_option(OptionalWhole)
}

struct Whole;

impl Visitor<'_> for Whole {
    type Value = i64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<i64, E> {
        Ok(number)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<i64, E> {
        let refused = || E::invalid_value(Unexpected::Unsigned(number), &self);
        i64::try_from(number).map_err(|_| refused())
    }

    #[expect(clippy::cast_possible_truncation, reason = "it is whole and within bounds")]
    fn visit_f64<E: Error>(self, number: f64) -> Result<i64, E> {
        if number.fract() == 0.0 && number.abs() <= EXACT {
            Ok(number as i64)
        } else {
            Err(E::invalid_type(Unexpected::Float(number), &self))
        }
    }
}

struct OptionalWhole;

impl<'de> Visitor<'de> for OptionalWhole {
    type Value = Option<i64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Whole.expecting(f)
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserialize(deserializer).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Numbers {
        #[serde(deserialize_with = "super::deserialize")]
        one: i64,
        #[serde(default, deserialize_with = "super::option")]
        other: Option<i64>,
    }

    #[test]
    fn a_number_is_whole_however_it_is_written() {
        let read = |one: &str, other: &str| {
            let text = format!("{{\"one\":{one},\"other\":{other}}}");
            serde_json::from_str::<Numbers>(&text).map(|it| (it.one, it.other)).ok()
        };
        for three in ["3", "3.0", "3e0", "30e-1"] {
            assert_eq!(read(three, three), Some((3, Some(3))), "{three}");
        }
        assert_eq!(read("-9223372036854775808", "null"), Some((i64::MIN, None)));
        for bad in ["3.5", "1e30", "-1e30", "9223372036854775808", "\"3\"", "true", "[3]"] {
            assert_eq!((read(bad, "null"), read("1", bad)), (None, None), "{bad}");
        }
        assert_eq!(read("null", "null"), None);
        let absent = serde_json::from_str::<Numbers>("{\"one\":1}").expect("it may be absent");
        assert_eq!(absent, Numbers { one: 1, other: None });
    }
}
