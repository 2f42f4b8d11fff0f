//! Where the next page of a list begins, as text.

use qiang_core::{Opened, Timestamp};
use qiang_store::{Cursor, Moment};

use crate::problem::Problem;

/// Enough for the year 9999; more digits are no time.
const MAX_DIGITS: usize = 15;

/// `<milliseconds>_<order>`
#[must_use]
pub fn write(cursor: Cursor) -> String {
    format!("{}_{}", cursor.at.millis(), cursor.id)
}

/// Reads what [`write`] wrote.
#[must_use]
pub fn read(text: &str) -> Option<Cursor> {
    let (at, id) = text.split_once('_')?;
    Some(Cursor { at: time(at)?, id: id.parse().ok()? })
}

/// `<milliseconds>_<sale>`
#[must_use]
pub fn write_sale(opened: Opened) -> String {
    format!("{}_{}", opened.at.millis(), opened.id)
}

/// Reads what [`write_sale`] wrote.
#[must_use]
pub fn read_sale(text: &str) -> Option<Opened> {
    let (at, id) = text.split_once('_')?;
    Some(Opened { at: time(at)?, id: id.parse().ok()? })
}

/// `<milliseconds>_<id>`
#[must_use]
pub fn write_moment(moment: Moment) -> String {
    format!("{}_{}", moment.at.millis(), moment.id)
}

/// Reads what [`write_moment`] wrote.
#[must_use]
pub fn read_moment(text: &str) -> Option<Moment> {
    let Opened { at, id } = read_sale(text)?;
    Some(Moment { at, id: id.get() })
}

/// Reads a cursor out of a query.
pub fn of_query<T>(
    field: &'static str,
    text: Option<String>,
    read: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, Problem> {
    text.map(|text| read(&text).ok_or_else(|| refused(field))).transpose()
}

/// Plain digits, without a sign.
#[must_use]
pub fn time(digits: &str) -> Option<Timestamp> {
    let plain = digits.len() <= MAX_DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| plain).map(Timestamp::from_millis)
}

/// A text that no list has given.
#[must_use]
pub fn refused(field: &'static str) -> Problem {
    Problem::invalid_field(field, format_args!("must be a `next_{field}` of this list"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_nothing_else() {
        let text = "1767323045678_12-1";
        assert_eq!(read(text).map(write).as_deref(), Some(text));
        for bad in ["", "1_", "_12-1", "-1_12-1", "+1_12-1", " 1_12-1", "1_12", "1_12-0", "1_12-1_"]
        {
            assert!(read(bad).is_none(), "{bad}");
        }
        assert!(time(&"9".repeat(16)).is_none());
        let text = "1767323045678_12";
        assert_eq!(read_sale(text).map(write_sale).as_deref(), Some(text));
        for bad in ["", "1_", "_12", "-1_12", "1_12-1", "1_0", "1_012"] {
            assert!(read_sale(bad).is_none(), "{bad}");
        }
    }
}
