//! The engine on Redis, Redis Cluster and Valkey: real servers, started by `cargo xtask test`.

mod contract;
mod fixture;
