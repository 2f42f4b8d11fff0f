//! Commands of this domain.

mod dlq;
mod events;

pub use dlq::DlqArgs;
pub use events::EventsArgs;

/// What may stand in an address; the rest as `%41`.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}
