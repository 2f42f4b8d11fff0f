//! The embedded engine passes what every engine must.

use std::sync::Arc;

use qiang_core::{Claim, ClaimId, Command, Event, PoolId, PoolView, Reply, Timestamp};
use qiang_engine::embedded::Engine;
use qiang_engine::{Clock, Error, ManualClock};
use qiang_testkit::contract::{self, Subject};
use qiang_testkit::each_seed;

use super::fixture::{events, new_engine, open_at, pool};

struct Embedded {
    engine: Engine,
    clock: Arc<ManualClock>,
}

impl Subject for Embedded {
    type Error = Error;

    async fn ask(&self, command: Command) -> Result<Reply, Error> {
        let engine = &self.engine;
        match command {
            Command::Open { pool, terms } => engine.open_pool(pool, terms).await.map(Reply::Pool),
            Command::Claim(wish) => engine.claim(wish).await.map(Reply::Claim),
            Command::Order { claim, by } => engine.order(claim, by).await.map(Reply::Claim),
            Command::Pay(pay) => engine.pay(pay).await.map(Reply::Settlement),
            Command::Release { claim, by, reason } => {
                engine.release(claim, by, reason).await.map(Reply::Claim)
            }
            Command::Restock { pool, units, request } => {
                engine.restock(pool, units, request).await.map(Reply::Pool)
            }
            Command::Close { pool } => engine.close(pool).await.map(Reply::Pool),
            Command::Clear { pool } => engine.clear(pool).await.map(Reply::Pool),
            Command::Refund(pay) => engine.refund(pay).await.map(Reply::Settlement),
        }
    }

    async fn pool(&self, id: PoolId) -> Result<Option<PoolView>, Error> {
        self.engine.pool(id).await
    }

    async fn claim(&self, id: ClaimId) -> Result<Option<Claim>, Error> {
        self.engine.claim_view(id).await
    }

    async fn events(&self) -> Result<Vec<Event>, Error> {
        let mut reader = self.engine.log_reader().expect("the journal is there");
        Ok(events(&mut reader, 0))
    }

    async fn set_time(&self, now: Timestamp) -> Result<(), Error> {
        self.clock.advance_millis(now.millis() - self.clock.now().millis());
        self.engine.expire_due().await
    }
}

/// Runs the future on a thread of its own, so that seeded worlds can be tried one by one.
fn block_on(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime").block_on(future);
}

#[test]
fn it_answers_as_the_oracle() {
    each_seed(15, |seed| {
        block_on(async {
            let (_folder, engine, clock) = new_engine();
            let subject = Embedded { engine, clock };
            contract::answers_as_the_oracle(&subject, seed, 80).await;
            subject.engine.shut_down();
        });
    });
}

#[tokio::test]
async fn a_sale_from_opening_to_clearing() {
    let (_folder, engine, clock) = new_engine();
    contract::a_sale_from_opening_to_clearing(&Embedded { engine, clock }).await;
}

#[tokio::test]
async fn late_money_is_never_lost() {
    let (_folder, engine, clock) = new_engine();
    contract::late_money_is_never_lost(&Embedded { engine, clock }).await;
}

#[tokio::test]
async fn a_payment_counts_once_in_each_sale() {
    let (_folder, engine, clock) = new_engine();
    contract::a_payment_counts_once_in_each_sale(&Embedded { engine, clock }).await;
}

#[test]
fn what_it_answered_is_there_after_a_restart() {
    each_seed(5, |seed| {
        block_on(async {
            let (folder, engine, clock) = new_engine();
            let now = {
                let subject = Embedded { engine: engine.clone(), clock: Arc::clone(&clock) };
                contract::answers_as_the_oracle(&subject, seed, 80).await;
                clock.now().millis()
            };
            let pools = engine.pools(0, 100).await.expect("they can be read");
            let mut claims = Vec::new();
            for pool in &pools {
                claims.extend(engine.claims(pool.id, 0, 1_000).await.expect("they can be read"));
            }
            engine.shut_down();
            let (again, _) = open_at(folder.path(), now);
            assert_eq!(again.pools(0, 100).await.expect("they can be read"), pools);
            for claim in claims {
                let found = again.claim_view(claim.id).await.expect("it can be read");
                assert_eq!(found, Some(claim));
            }
            again.shut_down();
        });
    });
}

/// It is copied some times on its way, for every claim.
#[tokio::test]
async fn a_claim_on_its_way_is_small() {
    let (_folder, engine, _) = new_engine();
    let wish = contract::wish(pool(), "ann", None);
    let own = size_of_val(&engine.claim(wish.clone()));
    let any = size_of_val(&qiang_engine::Engine::Embedded(engine).claim(wish));
    assert!(any < 2 * own && any < 2_048, "{any} bytes, where the engine itself needs {own}");
}
