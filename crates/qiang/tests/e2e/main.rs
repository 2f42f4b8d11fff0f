//! The product over HTTP: every route, every refusal, every promise about what is kept. One
//! binary, because each costs its link time; a module is named after a behaviour.

mod backend;
mod person;
mod process;
mod raw;
mod shop;

mod accounts;
mod bad_bodies;
mod bad_numbers;
mod bad_tokens;
mod balance_payments;
mod bench;
mod browser;
mod checkout;
mod claims;
mod closed_connections;
mod commands;
mod console;
mod current_sale;
mod dead_letters;
mod deadlines;
mod early_answers;
mod events;
mod hanging_up;
mod https;
mod k6;
mod killed;
mod lane;
mod late_payments;
mod live;
mod moving;
mod openapi;
mod operations;
mod orders;
mod other_origins;
mod packets;
mod pages;
mod payments;
mod records;
mod red_packets;
mod repeats;
mod report;
mod resp;
mod sales;
mod sessions;
mod slow_clients;
mod slow_http2;
mod starting;
mod stopping;
#[cfg(feature = "otlp")]
mod traces;
