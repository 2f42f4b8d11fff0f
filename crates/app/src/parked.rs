//! Events that were set aside, as bytes: whole, in the format of the journal.

use qiang_core::Event;
use qiang_engine::{DecodeError, Decoder, Encoder};

/// An event as it is kept.
#[must_use]
pub fn bytes(event: &Event) -> Vec<u8> {
    let mut encoder = Encoder::default();
    encoder.push(event);
    encoder.bytes().to_vec()
}

/// The event that was kept.
pub fn event(bytes: &[u8]) -> Result<Event, DecodeError> {
    Decoder::new(bytes).next().unwrap_or(Err(DecodeError::Truncated))
}
