//! The engine on Redis, Redis Cluster and Valkey: real servers, started by `cargo xtask test`.

mod acl;
#[path = "../every_engine/asking.rs"]
mod asking;
mod batches;
mod buckets;
mod contract;
mod failover;
mod fixture;
mod forgotten;
mod full;
mod gone_back;
mod kills;
mod late_copies;
mod layout;
mod lost_replies;
mod lost_transfers;
mod moved_slots;
mod payments;
mod reconnecting;
mod repairs;
mod replicas;
mod restore;
mod rules;
mod sentinel;
mod servers;
mod sick_master;
mod sold_out;
mod tls;
mod torn;
mod transfers;
mod trimming;
mod typed_replies;
