//! Random commands that are likely to meet each other: few pools, few users, few request and
//! payment ids, little stock, short deadlines.

use std::num::NonZeroU32;
use std::sync::Arc;

use qiang_core::{
    Cents, Claim, ClaimId, ClaimRequest, Command, Flow, Identity, Kind, LimitBy, PayRequest,
    PaymentId, PoolId, PriceStep, Reclaim, ReleaseReason, RequestId, Supply, Terms, Timestamp,
    UserId,
};

use crate::{Oracle, Random};

const USERS: u32 = 6;
const REQUESTS: u32 = 5;
const PAYMENTS: u32 = 12;

/// Makes commands and moves the clock; the same for the same seed.
#[derive(Debug, Clone)]
pub struct Generator {
    random: Random,
    /// The pools there may be, each with the terms it is mostly opened with.
    pools: Vec<(PoolId, Arc<Terms>)>,
    /// How many ids were made.
    made: u64,
}

impl Generator {
    /// A world of a few pools of every kind and flow, of units and of portions.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let count = random.between(1, 6);
        let mut made = 0;
        let pools = (1..=count)
            .map(|id| {
                let terms = Arc::new(terms(&mut random));
                let given = PoolId::new(u64::from(id) * 7).expect("positive");
                (if random.percent(40) { next_made(&mut made) } else { given }, terms)
            })
            .collect();
        Self { random, pools, made }
    }

    /// The source of randomness, for what else the test has to decide.
    pub fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// Something to ask, given how things stand.
    pub fn command(&mut self, oracle: &Oracle) -> Command {
        let missing =
            self.pools.iter().find(|(id, _)| oracle.view(*id).is_none()).map(|(id, _)| *id);
        if missing.is_some() && self.random.percent(40) {
            return self.open(missing, oracle);
        }
        match self.random.below(1_000) {
            0..470 => Command::Claim(self.wish(oracle)),
            470..570 => Command::Order { claim: self.claim_id(oracle), by: self.by(oracle) },
            570..770 => Command::Pay(self.payment(oracle)),
            770..870 => Command::Release {
                claim: self.claim_id(oracle),
                by: self.by(oracle),
                reason: if self.random.percent(70) {
                    ReleaseReason::GaveUp
                } else {
                    ReleaseReason::Cancelled
                },
            },
            870..890 => self.open(None, oracle),
            890..910 => Command::Revoke { claim: self.claim_id(oracle) },
            910..950 => Command::Restock {
                pool: self.pool(),
                units: NonZeroU32::new(self.random.between(1, 3)).expect("positive"),
                request: self.request(),
            },
            950..958 => Command::Restock {
                pool: self.pool(),
                units: NonZeroU32::new(u32::MAX >> self.random.below(2)).expect("positive"),
                request: self.request(),
            },
            958..968 => Command::Close { pool: self.pool() },
            968..985 => Command::Clear { pool: self.pool() },
            _ => Command::Refund(self.payment(oracle)),
        }
    }

    /// Where the clock stands next: mostly a little later, often exactly at a deadline or just
    /// before it, sometimes far ahead, sometimes earlier than it was.
    pub fn tick(&mut self, oracle: &Oracle, clock: Timestamp) -> Timestamp {
        let ms = clock.millis();
        let due = oracle.next_due().map(Timestamp::millis);
        Timestamp::from_millis(match (self.random.below(100), due) {
            (0..50, _) => ms,
            (50..75, _) => ms + i64::from(self.random.below(6)),
            (75..85, Some(due)) => due,
            (85..90, Some(due)) => due - 1,
            (90..94, _) => ms + i64::from(self.random.below(80)),
            (94..97, _) => ms - i64::from(self.random.below(40)),
            _ => ms + 1,
        })
    }

    fn open(&mut self, pool: Option<PoolId>, oracle: &Oracle) -> Command {
        let mut id = pool.unwrap_or_else(|| self.pool());
        // An id that was made is never made again; another one takes its place.
        if oracle.forgotten().contains(&id)
            && let Some((gone, _)) = self.pools.iter_mut().find(|(known, _)| *known == id)
        {
            *gone = next_made(&mut self.made);
            id = *gone;
        }
        let usual = self.pools.iter().find(|(known, _)| *known == id);
        let usual = usual.map(|(_, terms)| Arc::clone(terms));
        let terms = match usual {
            Some(terms) if self.random.percent(80) => terms,
            _ => Arc::new(terms(&mut self.random)),
        };
        Command::Open { pool: id, terms }
    }

    fn wish(&mut self, oracle: &Oracle) -> ClaimRequest {
        let pool = self.pool();
        let user = self.random.between(1, USERS);
        // Two accounts for each person; sometimes nobody knows who it is.
        let person = if self.random.percent(90) { user / 2 } else { self.random.below(3) };
        let quantity = if self.random.percent(75) { 1 } else { self.random.between(1, 4) };
        // Now and then a packet is taken for a sale, or a sale for a packet.
        let known = oracle.view(pool).filter(|_| self.random.percent(95));
        ClaimRequest {
            kind: known.map_or(*self.random.pick(&Kind::ALL), |view| view.terms.kind),
            pool,
            user: user_id(user),
            identity: self
                .random
                .percent(90)
                .then(|| named(&format!("person{person}"), Identity::new)),
            request: self.random.percent(40).then(|| self.request()),
            quantity: NonZeroU32::new(quantity).expect("positive"),
        }
    }

    fn payment(&mut self, oracle: &Oracle) -> PayRequest {
        let order = self.claim_id(oracle);
        let right = oracle.claim(order).as_ref().map_or(Cents::new(100), Claim::amount);
        let off = *self.random.pick(&[-1, 1]);
        let amount = if self.random.percent(90) { right } else { Cents::new(right.get() + off) };
        let payment = named(&format!("pay{}", self.random.below(PAYMENTS)), PaymentId::new);
        PayRequest { order, payment, amount }
    }

    fn claim_id(&mut self, oracle: &Oracle) -> ClaimId {
        let pool = self.pool();
        let claims = oracle.view(pool).map_or(0, |view| view.claims);
        let number = match claims {
            0 => self.random.between(1, 3),
            // One that exists, mostly a recent one; now and then one that does not.
            _ if self.random.percent(97) => {
                let back = self.random.below(claims.min(6));
                if self.random.percent(70) { claims - back } else { self.random.between(1, claims) }
            }
            _ => claims + 1,
        };
        ClaimId { pool, number }
    }

    fn by(&mut self, oracle: &Oracle) -> Option<UserId> {
        if self.random.percent(60) {
            return None;
        }
        let pool = self.pool();
        let claims = oracle.claims(pool);
        match claims.last() {
            Some(claim) if self.random.percent(80) => Some(claim.user.clone()),
            _ => Some(user_id(self.random.between(1, USERS))),
        }
    }

    fn pool(&mut self) -> PoolId {
        if self.random.percent(1) {
            return PoolId::new(1_000_000).expect("positive");
        }
        self.random.pick(&self.pools).0
    }

    fn request(&mut self) -> RequestId {
        named(&format!("req{}", self.random.below(REQUESTS)), RequestId::new)
    }
}

fn terms(random: &mut Random) -> Terms {
    let portions = random.percent(30);
    let supply = if portions {
        let cut = (0..random.between(1, 5)).map(|_| Cents::new(i64::from(random.between(1, 2))));
        Supply::Portions(cut.collect())
    } else {
        Supply::Units(random.between(1, 8))
    };
    let steps = if portions { 0 } else { random.below(3) };
    let price = if random.percent(20) { 0 } else { i64::from(random.below(100)) };
    let price_steps = (1..=steps)
        .map(|step| PriceStep {
            after_sold: step * 2,
            price: Cents::new(price + i64::from(step) * 10),
        })
        .collect();
    let kind = if portions && random.percent(50) { Kind::Packet } else { Kind::Sale };
    let hold_ms = u64::from(random.between(1, 30));
    let pay_ms = u64::from(random.between(1, 40));
    let opens_at = i64::from(random.below(3) * random.below(20));
    let terms = Terms {
        kind,
        title: "Goods".into(),
        sku: "goods".into(),
        supply,
        limit_per_user: *random.pick(&[1, 1, 2, 3]),
        limit_by: *random.pick(&[LimitBy::User, LimitBy::User, LimitBy::Identity]),
        price: Cents::new(price),
        price_steps,
        opens_at: Timestamp::from_millis(opens_at),
        closes_at: random
            .percent(25)
            .then(|| Timestamp::from_millis(opens_at + i64::from(random.between(20, 400)))),
        flow: match kind {
            Kind::Packet => Flow::Instant,
            Kind::Sale => *random.pick(&[
                Flow::Instant,
                Flow::Order { pay_ms },
                Flow::Order { pay_ms },
                Flow::Hold { hold_ms, pay_ms },
                Flow::Hold { hold_ms, pay_ms },
            ]),
        },
        reclaim: *random.pick(&[Reclaim::Allowed, Reclaim::Allowed, Reclaim::Never]),
        buckets: 1,
    };
    assert_eq!(terms.check(), Ok(()), "only terms that can be kept");
    terms
}

fn next_made(made: &mut u64) -> PoolId {
    *made += 1;
    PoolId::new(PoolId::FIRST_MADE + *made * 7).expect("it fits")
}

fn user_id(number: u32) -> UserId {
    named(&format!("user{number}"), UserId::new)
}

fn named<T, E: std::fmt::Debug>(text: &str, make: fn(&str) -> Result<T, E>) -> T {
    make(text).expect("a short plain text")
}
