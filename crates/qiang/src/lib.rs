//! qiang (抢): hands out scarce things to a crowd, exactly.
//!
//! The product behind the `qiang` binary, as a library so that tests can drive it whole: the doors,
//! the command line, and the list of domains.

pub mod cli;
pub mod config;
pub mod domains;
mod give_back;
pub mod http;
pub mod listener;
pub mod operations;
pub mod resp;
pub mod server;
pub mod tls;
pub mod traces;
pub mod transfer;

pub use qiang_app::{client, running};
