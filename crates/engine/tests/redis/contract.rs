//! The engine on Redis passes what every engine must.

use qiang_testkit::servers::shared::{REDIS, REDIS_CLUSTER, Shared, VALKEY};
use qiang_testkit::{contract, each_seed};

use crate::fixture::{block_on, fresh};

const COMMANDS: usize = 80;

fn answers_as_the_oracle(server: Shared, seeds: u64) {
    let Some(url) = server.url() else { return };
    each_seed(seeds, |seed| {
        block_on(async {
            let subject = fresh(&url).await;
            contract::answers_as_the_oracle(&subject, seed, COMMANDS).await;
        });
    });
}

#[test]
fn redis_answers_as_the_oracle() {
    answers_as_the_oracle(REDIS, 40);
}

#[test]
fn p04_a_cluster_answers_as_the_oracle() {
    answers_as_the_oracle(REDIS_CLUSTER, 15);
}

#[test]
fn valkey_answers_as_the_oracle() {
    answers_as_the_oracle(VALKEY, 15);
}

fn sale_and_late_money(server: Shared) {
    let Some(url) = server.url() else { return };
    block_on(async {
        contract::a_sale_from_opening_to_clearing(&fresh(&url).await).await;
        contract::late_money_is_never_lost(&fresh(&url).await).await;
    });
}

#[test]
fn redis_runs_a_sale_from_opening_to_clearing() {
    sale_and_late_money(REDIS);
}

#[test]
fn a_cluster_runs_a_sale_from_opening_to_clearing() {
    sale_and_late_money(REDIS_CLUSTER);
}

#[test]
fn valkey_runs_a_sale_from_opening_to_clearing() {
    sale_and_late_money(VALKEY);
}
