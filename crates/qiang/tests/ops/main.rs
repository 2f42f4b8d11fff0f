//! The examples in `ops/`, with the real programs they are for: what they name exists, what they
//! promise holds.

mod files;
mod fronts;
mod origin;
mod prometheus;
