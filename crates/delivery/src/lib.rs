//! Delivery: what was decided, told to the shop's other programs.

pub mod public;
