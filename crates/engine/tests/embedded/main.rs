//! The embedded engine on real files, with real threads.

#[path = "../every_engine/asking.rs"]
mod asking;
mod codec;
mod contract;
mod corruption;
mod deadlines;
mod deleted_journal;
mod durability;
mod failed_writes;
mod fixture;
mod folder;
mod pitfalls;
mod recovery;
mod rules;
mod small_steps;
mod trimming;
