//! What every domain works with: the context of a process, its configuration, problems, who asks
//! and from where, workers, jobs, consumers, and how a domain registers itself.
//!
//! It knows no domain. The doors and the list of domains are in the product.

pub mod actions;
mod app;
pub mod cli;
pub mod client;
pub mod config;
pub mod consumer;
pub mod cursor;
mod domain;
mod entry;
pub mod extract;
pub mod jobs;
pub mod json_time;
pub mod metrics;
pub mod nodes;
pub mod outcomes;
pub mod parked;
pub mod probes;
pub mod problem;
pub mod running;
pub mod schema;
pub mod secrets;
pub mod session;
pub mod set_aside;
pub mod tls;
pub mod token;
pub mod whole;
pub mod workers;

pub use app::App;
pub use config::Config;
pub use domain::{Domain, Measuring, Problems};
pub use entry::{Check, Origin, Stopping};
