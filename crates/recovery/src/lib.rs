//! Whether all books agree, and how a Redis that lost something is put back. It also opens an engine,
//! because only it knows which state in Redis is the right one.

pub mod audit;
pub mod cli;
pub mod epochs;
pub mod opened;
