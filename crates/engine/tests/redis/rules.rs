//! The engine on Redis, a cluster and Valkey keeps the rules, which are written a second time there.

use qiang_testkit::rules;
use qiang_testkit::servers::shared::{REDIS, REDIS_CLUSTER, Shared, VALKEY};

use crate::fixture::{block_on, fresh};

fn keeps_the_rules(server: Shared) {
    let Some(url) = server.url() else { return };
    block_on(async { rules::hold_on(&fresh(&url).await).await });
}

#[test]
fn redis_keeps_the_rules() {
    keeps_the_rules(REDIS);
}

#[test]
fn a_cluster_keeps_the_rules() {
    keeps_the_rules(REDIS_CLUSTER);
}

#[test]
fn valkey_keeps_the_rules() {
    keeps_the_rules(VALKEY);
}
