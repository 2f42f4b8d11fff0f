//! The rules as text tables: what is asked, and what comes of it. Every engine passes all of them.
//!
//! [`hold_on`] runs them on one engine, one behind the other, each with pools and a time of its own.
//! Besides what a line says, it demands of every table that a yes is exactly one event, that a no or
//! a repeat is none, and that a book rebuilt from the events alone is what the engine shows.

mod book;
mod flows;
mod limits;
mod made_ids;
mod order_of_refusals;
mod packets;
mod payments;
mod pitfalls;
mod pool_life;
mod portions;
mod prices;
mod repeats;
mod revoking;
mod script;

pub use book::OnBook;
pub use script::{Table, terms};

use crate::contract::Subject;

/// One table.
#[derive(Debug, Clone, Copy)]
struct Rule {
    name: &'static str,
    script: &'static str,
}

/// Tables by name.
macro_rules! rules {
    ($(fn $name:ident $script:literal)+) => {
        pub(super) const ALL: &[super::Rule] =
            &[$(super::Rule { name: stringify!($name), script: $script }),+];
    };
}
use rules;

const SUBJECTS: [&[Rule]; 12] = [
    flows::ALL,
    limits::ALL,
    made_ids::ALL,
    order_of_refusals::ALL,
    packets::ALL,
    payments::ALL,
    pitfalls::ALL,
    pool_life::ALL,
    portions::ALL,
    prices::ALL,
    repeats::ALL,
    revoking::ALL,
];

/// Runs every table.
pub async fn hold_on(subject: &impl Subject) {
    let mut table = Table::new(subject);
    for rule in SUBJECTS.into_iter().flatten() {
        table.check(rule.name, rule.script).await;
        table = table.next();
    }
}
