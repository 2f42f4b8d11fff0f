//! The rules as text tables: what is asked, and what comes of it.
//!
//! [`script::check`] runs a script line by line. Besides what a line says, it demands of every
//! line that a yes is exactly one event, that a no or a repeat is none, and that a book rebuilt
//! from the events alone is the same book.

mod flows;
mod ids;
mod limits;
mod order_of_refusals;
mod payments;
mod pitfalls;
mod pool_life;
mod portions;
mod prices;
mod repeats;
mod script;
mod snapshots;
mod terms;
