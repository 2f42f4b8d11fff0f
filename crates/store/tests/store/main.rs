//! What the store promises, one file for each promise, on every database.

mod accounts;
mod actions;
mod audits;
mod damaged_rows;
mod duplicates_and_reordering;
mod fixtures;
mod jobs;
mod leases;
mod listings;
mod mending;
mod migrating;
mod node_samples;
mod opening;
mod outages;
mod outcomes;
mod packets;
mod payments_of_two_sales;
mod positions;
mod refunds_settle_once;
mod report;
mod round_trip;
mod sale_pages;
mod schema;
mod searching;
mod sessions;
mod settings;
