//! `[delivery]`: what becomes of events.

use std::time::Duration;

use super::layers::{Layers, Wrong};

/// The longest name of a shop.
const MAX_SOURCE: usize = 200;
const HOUR: u64 = 3_600;

/// What the operator decided about events.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// How long public events are kept to be read; `None` is not at all.
    pub keep_events: Option<Duration>,
    /// Which shop events are from: `source` of each.
    pub source: String,
    /// How often an event that could not be recorded is tried again.
    pub retries: u32,
    /// How long one that was resolved or discarded can be looked at.
    pub keep_dead_letters: Duration,
    /// So many attempts to record an event fail, for drills.
    pub fail_count: u32,
}

impl Delivery {
    /// `fail_count` has no section, and so is taken before any that has one.
    pub(super) fn take(layers: &mut Layers, fail_count: u32) -> Self {
        let hours: u64 = layers.number("delivery.keep_events_hours", 0, 0..=24 * 366);
        Self {
            keep_events: (hours > 0).then(|| Duration::from_secs(hours * HOUR)),
            source: layers.text("delivery.source", "/qiang", source),
            retries: layers.number("delivery.retries", 3, 0..=20),
            keep_dead_letters: Duration::from_secs(
                layers.number::<u64>("delivery.keep_dead_letters_days", 30, 1..=3_660) * 24 * HOUR,
            ),
            fail_count,
        }
    }
}

impl Delivery {
    /// What a drill does, in words, if there is one.
    #[must_use]
    pub fn drill(&self) -> Option<String> {
        (self.fail_count > 0).then(|| {
            format!(
                "a drill: QIANG_FORCE_CONSUME_FAIL_COUNT makes the first {} attempts to record every \
                 event fail; take it away to serve customers",
                self.fail_count
            )
        })
    }
}

/// A reference to a URI, as CloudEvents want it: no blanks, no control characters.
fn source(text: &str) -> Result<String, Wrong> {
    let plain = |byte: u8| byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte);
    if text.is_empty() || text.len() > MAX_SOURCE || !text.bytes().all(plain) {
        return Err(Wrong::new(
            format!("is {text:?}, which names no source of events"),
            "write a path or an address of at most 200 characters, like /shops/berlin",
        ));
    }
    Ok(text.to_owned())
}
