//! The tables of the engine: their columns, in the order rows are bound and read in.

use qiang_sql::{Existing, Insert, Table};

pub(super) static PARTITIONS: Table =
    Table { name: "engine_partitions", key: "id", fixed: "", changing: "seq, trimmed, at" };

pub(super) static CALLS: Table =
    Table { name: "engine_calls", key: "partition_id, caller", fixed: "", changing: "number, at" };

pub(super) static LOG: Table =
    Table { name: "engine_log", key: "partition_id, seq", fixed: "event", changing: "" };

/// `to_sweep` is [`STAYS`] or [`GOES`] while rows of a cleared pool are left to be deleted. To whoever
/// asks, a pool that goes is not there any more.
pub(super) static POOLS: Table = Table {
    name: "engine_pools",
    key: "id",
    fixed: "opened_at, kind",
    changing: "version, last_change, change_units, change_request, total, closed_at, changed_at, \
        available, held, ordered, paid, claims, payments, refunds, next_place, fresh_portion, \
        to_sweep",
};

/// The pool's own row stays, so that its id is not used again, and its refunds.
pub(super) const STAYS: i64 = 1;
/// Nothing of it stays.
pub(super) const GOES: i64 = 2;

pub(super) static TERMS: Table =
    Table { name: "engine_terms", key: "pool_id", fixed: "opened", changing: "" };

pub(super) static RESTOCKS: Table =
    Table { name: "engine_restocks", key: "pool_id, request_id", fixed: "units", changing: "" };

pub(super) static CLAIMS: Table = Table {
    name: "engine_claims",
    key: "pool_id, number",
    fixed: "user_id, identity, request_key, quantity, unit_price_cents, portion_place, \
        created_at, hold_until, replaces",
    changing: "state, version, changed_at, pay_by, payment_id, reason, replaced_by, due",
};

pub(super) static BUYERS: Table =
    Table { name: "engine_buyers", key: "pool_id, name", fixed: "", changing: "latest, used" };

pub(super) static PORTIONS: Table =
    Table { name: "engine_portions", key: "pool_id, place", fixed: "", changing: "claim" };

pub(super) static PAYMENTS: Table = Table {
    name: "engine_payments",
    key: "pool_id, payment_id",
    fixed: "place, order_number, claim, amount_cents, reason, at",
    changing: "",
};

/// Nothing may be there yet: whoever has the partition has just looked.
const fn new(table: &'static Table) -> Insert {
    Insert::new(table, Existing::IsAnError)
}

pub(super) static INSERT_PARTITIONS: Insert = new(&PARTITIONS);
pub(super) static INSERT_CALLS: Insert = new(&CALLS);
pub(super) static INSERT_LOG: Insert = new(&LOG);
pub(super) static INSERT_POOLS: Insert = new(&POOLS);
pub(super) static INSERT_TERMS: Insert = new(&TERMS);
pub(super) static INSERT_RESTOCKS: Insert = new(&RESTOCKS);
pub(super) static INSERT_CLAIMS: Insert = new(&CLAIMS);
pub(super) static INSERT_BUYERS: Insert = new(&BUYERS);
pub(super) static INSERT_PORTIONS: Insert = new(&PORTIONS);
pub(super) static INSERT_PAYMENTS: Insert = new(&PAYMENTS);
