//! qiang (抢): hands out scarce things to a crowd, exactly.
//!
//! The product behind the `qiang` binary, as a library so that tests can drive it whole.

pub mod cli;
pub mod client;
pub mod config;
pub mod http;
pub mod secrets;
pub mod signature;
pub mod token;
