//! Nodes tell each other their last seconds: one row each, written again.

use qiang_sql::{Dialect, on_every_database};

use crate::fixtures::Db;

on_every_database!(each_node_has_one_row_and_reads_all);

async fn each_node_has_one_row_and_reads_all(on: Dialect) {
    let db = Db::new(on).await;
    let said = |node: u16, body: &str| (node, body.to_owned());
    let alone = db.store.exchange_samples(7, "[1]").await.expect("exchanged");
    assert_eq!(alone.nodes, [said(7, "[1]")]);
    assert!(alone.now_ms > 1_700_000_000_000, "the database has a clock: {}", alone.now_ms);
    db.store.exchange_samples(3, "[2]").await.expect("exchanged");
    let both = db.store.exchange_samples(7, "[3]").await.expect("exchanged");
    assert_eq!(both.nodes, [said(3, "[2]"), said(7, "[3]")], "by number, the last word of each");
}
