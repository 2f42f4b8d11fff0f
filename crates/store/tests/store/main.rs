//! What the store promises, one file for each promise, against real SQLite files.

mod damaged_rows;
mod duplicates_and_reordering;
mod fixtures;
mod listings;
mod migrating;
mod opening;
mod positions;
mod refunds_settle_once;
mod round_trip;
