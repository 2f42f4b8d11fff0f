//! What the tests of several crates stand on. A dev-dependency only.
//!
//! [`Oracle`] says what the rules must answer, written a second time and as plainly as possible.
//! [`Generator`] makes random commands and moves of the clock, the same for the same seed.
//! [`contract`] is what every engine must pass, whatever it is built on.
//! [`servers`] starts real servers.

pub mod contract;
mod generator;
mod oracle;
mod random;
pub mod servers;

pub use generator::Generator;
pub use oracle::Oracle;
pub use random::{Random, each_seed};
