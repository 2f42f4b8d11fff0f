//! The product over HTTP: every route, every refusal, every promise about what is kept. One
//! binary, because each costs its link time; a module is named after a behaviour.

mod person;
mod shop;

mod claims;
mod current_sale;
mod operations;
mod orders;
mod sales;
