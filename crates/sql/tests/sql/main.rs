//! Every database behaves the same behind this crate, on real servers.

mod connecting;
mod migrating;
mod reading_and_writing;
mod refused_writes;
mod tls;
mod transactions;
