//! The engine on a database: what every engine must pass, and what only a database can do to it.
//! Everything runs on SQLite, and on the servers that the environment names.

#[path = "../every_engine/asking.rs"]
mod asking;
mod batches;
mod contract;
mod crowd;
mod deadlines;
mod fixture;
mod log;
mod lost_commits;
mod migrating;
mod outage;
mod sweeping;
