//! qiang (抢): hands out scarce things to a crowd, exactly.
//!
//! The product behind the `qiang` binary, as a library so that tests can drive it whole.

pub mod app;
pub mod audit;
pub mod cli;
pub mod client;
pub mod config;
pub mod consumer;
pub mod entry;
pub mod epochs;
pub mod http;
pub mod jobs;
pub mod listener;
pub mod metrics;
pub mod nodes;
pub mod orders;
pub mod payments;
pub mod probes;
pub mod records;
pub mod resp;
pub mod reviews;
pub mod running;
pub mod sales;
pub mod secrets;
pub mod server;
pub mod signature;
pub mod token;
pub mod transfer;
pub mod workers;

pub(crate) use qiang_engine::chain;
