//! The HTTP front door: routes, the page of the API, and the connections themselves.

mod cors;
mod errors_page;
mod lane;
mod openapi;
mod router;
mod serve;
mod unread;
mod wire;

pub use router::Pages;
pub use serve::{Door, serve, serve_health};
