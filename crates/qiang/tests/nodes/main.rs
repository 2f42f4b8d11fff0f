//! Several processes that share an engine and a database: real ones, of the built binary, on real
//! servers that are killed, flushed, put back and cut off in the middle of a sale. Whatever
//! happens, nothing acknowledged is gone without being said, nothing is sold twice, and in the end
//! all books agree.

mod crowd;
mod shop;

mod bad_network;
mod buckets;
mod database_down;
mod failover;
mod readiness;
mod redis_killed;
mod redis_lost;
mod refused_starts;
mod repairs;
mod sick_master;
mod tls;
mod together;
mod workers;
