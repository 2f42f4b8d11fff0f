//! The embedded engine keeps the rules.

use qiang_testkit::rules;

use super::asking::Subjected;
use super::fixture::new_engine;

#[tokio::test]
async fn it_keeps_the_rules() {
    let (_folder, engine, clock) = new_engine();
    rules::hold_on(&Subjected { engine, clock }).await;
}
