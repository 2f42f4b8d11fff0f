//! What the tests of several crates stand on. For tests and chores only, never in the product.
//!
//! [`Oracle`] says what the rules must answer, written a second time and as plainly as possible.
//! [`Generator`] makes random commands and moves of the clock, the same for the same seed.
//! [`contract`] is what every engine must pass, whatever it is built on; [`rules`] are the rules as
//! text tables, which are part of it.
//! [`servers`] starts real servers, [`node`] the product on them; [`Proxy`] is a bad network
//! between the two.

pub mod contract;
mod generator;
pub mod node;
mod oracle;
pub mod proxy;
mod random;
pub mod rules;
pub mod servers;

pub use generator::Generator;
pub use oracle::Oracle;
pub use proxy::Proxy;
pub use random::{Random, each_seed};
