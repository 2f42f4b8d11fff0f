//! The HTTP front door.

pub mod json_time;
pub mod problem;
