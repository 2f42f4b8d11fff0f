//! The embedded engine on real files, with real threads.

#[path = "../shared/asking.rs"]
mod asking;
mod codec;
mod contract;
mod corruption;
mod deadlines;
mod durability;
mod failed_writes;
mod fixture;
mod folder;
mod pitfalls;
mod recovery;
mod rules;
mod small_steps;
mod trimming;
