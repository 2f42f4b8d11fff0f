//! Decides claims, durably. The only place that decides.
//!
//! An engine takes commands, decides them with the rules of `qiang-core`, makes what was decided
//! durable, and only then answers. Failures are of three kinds, never mixed: a refusal is an
//! answer ([`qiang_core::Refusal`]); [`Error`] says that the engine could not do its work, and
//! whether it may have happened; a broken invariant is a panic, from which the log recovers.

mod cache;
mod clock;
pub mod embedded;
mod engine;
mod error;
pub mod redis;
pub mod sql;
pub mod walk;

pub use clock::{Clock, ManualClock, Stopwatch, SystemClock};
pub use embedded::FolderLock;
pub use embedded::codec::{DecodeError, Decoder, Encoder};
pub use embedded::desk::{Answer, Position, Question, Replies, WriterOptions};
pub use embedded::journal::{Batch, Journal, Part, Recovered, Write};
pub use embedded::log::{LogReader, offline_log};
pub use embedded::sqlite::SqliteJournal;
pub use embedded::stats::{Histogram, Stats};
pub use embedded::writer::{Job, Look, Poisoned, Writer};
pub use engine::{Engine, Log};
pub use error::{Error, JournalError, LogError, OpenError, Saved, chain};
