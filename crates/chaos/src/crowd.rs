//! Buyers at the doors of the shop, all the while: they claim with a key, order, give up, pay, pay
//! late, tell a payment twice, and ask again, at one door and then the other, until they are
//! answered. What they are told goes into the tally.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use qiang_testkit::Random;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::buyer::Buyer;
use crate::clock::Clock;
use crate::http::{Answer, Question};
use crate::sales::{self, KINDS, Sale};
use crate::tally::Tally;

/// Buyers at work at the same time.
const BUYERS: u32 = 16;
/// How often new sales are opened.
const GENERATION: Duration = Duration::from_secs(12);
/// Buyers come to sales of the newest generations.
const OPEN_GENERATIONS: usize = 2;
/// A pause before asking again.
const ASK_AGAIN: Duration = Duration::from_millis(60);
/// How often a crowd that is to end looks whether it has.
const LOOK: Duration = Duration::from_millis(50);

/// What all buyers share.
pub(crate) struct Crowd {
    pub(crate) doors: Vec<SocketAddr>,
    pub(crate) clock: Clock,
    tally: Mutex<Tally>,
    open: Mutex<Vec<Sale>>,
    buyers: AtomicU32,
    /// No new buyers come.
    closing: AtomicBool,
    /// Those who wait for an answer give up.
    over: AtomicBool,
}

impl Crowd {
    /// Opens the first sales and lets buyers in.
    pub(crate) fn start(
        runtime: &Handle,
        doors: Vec<SocketAddr>,
        clock: Clock,
        seed: u64,
    ) -> (Arc<Self>, Vec<JoinHandle<()>>) {
        let crowd = Arc::new(Self {
            doors,
            clock,
            tally: Mutex::default(),
            open: Mutex::default(),
            buyers: AtomicU32::new(0),
            closing: AtomicBool::new(false),
            over: AtomicBool::new(false),
        });
        let mut tasks = vec![runtime.spawn(Arc::clone(&crowd).open_sales())];
        for place in 0..BUYERS {
            let random = Random::new(seed.wrapping_mul(1_000).wrapping_add(u64::from(place)));
            let buyer = Buyer::new(Arc::clone(&crowd), random);
            tasks.push(runtime.spawn(buyer.buy_on()));
        }
        (crowd, tasks)
    }

    /// Lets nobody in any more, and waits until everybody has their answers, or for `limit`.
    /// Whoever has none then is in the tally as unanswered.
    pub(crate) async fn end(&self, tasks: Vec<JoinHandle<()>>, limit: Duration) {
        self.closing.store(true, Ordering::SeqCst);
        let started = self.clock.elapsed();
        while !tasks.iter().all(JoinHandle::is_finished) {
            if self.clock.elapsed() - started > limit {
                self.over.store(true, Ordering::SeqCst);
            }
            tokio::time::sleep(LOOK).await;
        }
        for task in tasks {
            if let Err(error) = task.await {
                self.tally().complain(format!("a buyer fell over: {error}"));
            }
        }
    }

    pub(crate) fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// A sale that is open, once there is one.
    pub(crate) fn any_sale(&self, random: &mut Random) -> Option<Sale> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.is_empty() { None } else { Some(random.pick(&open).clone()) }
    }

    /// A sale that was opened is not there: nobody goes there any more.
    pub(crate) fn is_missing(&self, sale: &Sale, what: &str) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).retain(|open| open.id != sale.id);
        self.tally().contradicts(sale.opened_at, format!("{what}: the sale is not there"));
    }

    /// A number that no other buyer has.
    pub(crate) fn number(&self) -> u32 {
        self.buyers.fetch_add(1, Ordering::Relaxed)
    }

    /// Asks until there is an answer to rely on. `None` if there is none when all is over.
    pub(crate) async fn insist(
        &self,
        random: &mut Random,
        what: &str,
        question: impl Fn() -> Question,
    ) -> Option<Answer> {
        let mut door = random.below(2) as usize;
        loop {
            let answer = question().ask(self.doors[door % self.doors.len()]).await;
            match answer {
                Some(answer) if answer.is_definite() => return Some(answer),
                Some(answer) if answer.code() == "internal" => {
                    self.tally().complain(format!("{what}: {}", answer.body));
                }
                _ => {}
            }
            self.tally().unknown += 1;
            if self.over.load(Ordering::SeqCst) {
                self.tally().unanswered.push(what.to_owned());
                return None;
            }
            tokio::time::sleep(ASK_AGAIN).await;
            door += 1;
        }
    }

    async fn open_sales(self: Arc<Self>) {
        let mut random = Random::new(0);
        for generation in 0.. {
            for mut sale in sales::generation(generation) {
                let what = format!("opening sale {}", sale.id);
                let Some(answer) = self.insist(&mut random, &what, || sale.opening()).await else {
                    return;
                };
                if !answer.is_success() {
                    self.tally().complain(format!("{what}: {}", answer.body));
                    continue;
                }
                sale.opened_at = self.clock.ms();
                self.tally().sales.insert(sale.id.clone(), sale.clone());
                let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
                open.push(sale);
                let old = open.len().saturating_sub(OPEN_GENERATIONS * KINDS);
                open.drain(..old);
            }
            let opened = self.clock.elapsed();
            while self.clock.elapsed() - opened < GENERATION {
                if self.is_closing() {
                    return;
                }
                tokio::time::sleep(LOOK).await;
            }
        }
    }
}
