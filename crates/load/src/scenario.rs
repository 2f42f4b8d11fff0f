//! Who asks for what. A script is told every answer, so that an order is placed for a claim that
//! was granted and paid once it was placed.

use std::collections::VecDeque;

use clap::ValueEnum;
use serde::Serialize;
use serde_json::{Value, json};

use super::ask::{Answer, Ask, Verb};
use super::dice::Dice;

/// Claims a script remembers to go on with; what is granted beyond is left as it is.
const MAX_REMEMBERED: usize = 100_000;
/// What a unit costs.
pub const PRICE_CENTS: i64 = 9_900;
/// Nobody meets this limit.
const NO_LIMIT: u32 = 1 << 31;
/// Holds and orders outlive the run, and then run out by themselves.
const DEADLINE_SECS: u64 = 3_600;

/// What kind of crowd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scenario {
    /// Every user asks once, for fewer units than there are users
    Sellout,
    /// The same few users ask again and again: half of it retries of one request, half new ones
    Storm,
    /// Claims that are all granted, at a steady pace
    Steady,
    /// Claims, orders, payments, give-ups and looks, all at once
    Mixed,
}

impl Scenario {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Sellout => "sellout",
            Self::Storm => "storm",
            Self::Steady => "steady",
            Self::Mixed => "mixed",
        }
    }

    /// Units one user may have in it.
    pub const fn limit_per_user(self) -> u32 {
        match self {
            Self::Sellout | Self::Storm => 1,
            Self::Steady | Self::Mixed => NO_LIMIT,
        }
    }

    /// The most requests there can be.
    pub fn most(self, users: u32) -> u64 {
        match self {
            Self::Sellout => users.into(),
            Self::Storm | Self::Steady | Self::Mixed => u64::MAX,
        }
    }

    /// The terms of its sale.
    pub fn sale(self, stock: u32, secs: u64) -> Value {
        let deadline = secs.saturating_add(DEADLINE_SECS);
        let mut sale = json!({
            "title": format!("qiang bench, {}", self.word()), "sku": "qiang-bench",
            "stock": stock, "limit_per_user": self.limit_per_user(),
            "price_cents": PRICE_CENTS, "flow": "order", "pay_secs": deadline,
        });
        if self == Self::Mixed {
            sale["flow"] = "hold".into();
            sale["hold_secs"] = deadline.into();
        }
        sale
    }
}

/// A scenario under way.
#[derive(Debug)]
pub struct Script {
    scenario: Scenario,
    users: u32,
    asked: u64,
    dice: Dice,
    held: VecDeque<Taken>,
    ordered: VecDeque<Taken>,
    latest: Option<Taken>,
}

/// A claim, and whose it is.
#[derive(Debug, Clone, Copy)]
struct Taken {
    number: u32,
    user: u32,
}

impl Script {
    /// `users` is at least 1.
    pub fn new(scenario: Scenario, users: u32, seed: u64) -> Self {
        let (held, ordered) = (VecDeque::new(), VecDeque::new());
        Self { scenario, users, asked: 0, dice: Dice::new(seed), held, ordered, latest: None }
    }

    /// What to ask now; `None` when everybody has asked.
    pub fn next_ask(&mut self) -> Option<Ask> {
        let nth = self.asked;
        if nth >= self.scenario.most(self.users) {
            return None;
        }
        self.asked += 1;
        let in_turn = u32::try_from(nth % u64::from(self.users)).expect("below a u32");
        Some(match self.scenario {
            Scenario::Sellout | Scenario::Steady => claim(in_turn, nth),
            Scenario::Storm => {
                let user = self.dice.below(self.users);
                let retry = self.dice.below(2) == 0;
                claim(user, if retry { user.into() } else { u64::from(self.users) + nth })
            }
            Scenario::Mixed => self.mixed(nth),
        })
    }

    /// An answer arrived.
    pub fn heard(&mut self, ask: &Ask, answer: &Answer) {
        if self.scenario != Scenario::Mixed {
            return;
        }
        if let Answer::Done { number } | Answer::Again { number } = *answer {
            let taken = Taken { number, user: ask.user };
            match ask.verb {
                Verb::Claim => {
                    self.latest = Some(taken);
                    remember(&mut self.held, taken);
                }
                Verb::Order => remember(&mut self.ordered, taken),
                Verb::Pay | Verb::Release | Verb::Look => {}
            }
        }
    }

    /// Of a hundred: 35 claims, 25 orders, 15 payments, 10 give-ups, 15 looks; whoever has
    /// nothing to order, pay or give up looks.
    fn mixed(&mut self, nth: u64) -> Ask {
        let about = |verb, taken: Taken| Ask { verb, user: taken.user, key: taken.number.into() };
        let user = self.dice.below(self.users);
        let wanted = match self.dice.below(100) {
            0..35 => return claim(user, nth),
            35..60 => self.held.pop_front().map(|taken| about(Verb::Order, taken)),
            60..75 => self.ordered.pop_front().map(|taken| about(Verb::Pay, taken)),
            75..85 => {
                let from = [&mut self.held, &mut self.ordered];
                let pick = usize::from(self.dice.below(2) == 0);
                from[pick].pop_front().map(|taken| about(Verb::Release, taken))
            }
            85..92 => self.latest.map(|taken| about(Verb::Look, taken)),
            _ => None,
        };
        wanted.unwrap_or(Ask { verb: Verb::Look, user, key: 0 })
    }
}

fn claim(user: u32, key: u64) -> Ask {
    Ask { verb: Verb::Claim, user, key }
}

fn remember(line: &mut VecDeque<Taken>, taken: Taken) {
    if line.len() < MAX_REMEMBERED {
        line.push_back(taken);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn in_a_sellout_everybody_asks_once() {
        let mut script = Script::new(Scenario::Sellout, 100, 1);
        let asks: Vec<Ask> = std::iter::from_fn(|| script.next_ask()).collect();
        let users: BTreeSet<u32> = asks.iter().map(|ask| ask.user).collect();
        let keys: BTreeSet<u64> = asks.iter().map(|ask| ask.key).collect();
        assert_eq!((asks.len(), users.len(), keys.len()), (100, 100, 100));
    }

    #[test]
    fn in_a_storm_a_retry_has_the_key_it_had_and_nobody_elses() {
        let mut script = Script::new(Scenario::Storm, 10, 1);
        let mut owner = BTreeMap::new();
        let mut retries = 0;
        for _ in 0..1_000 {
            let ask = script.next_ask().expect("it goes on");
            assert!(ask.user < 10);
            match owner.insert(ask.key, ask.user) {
                Some(before) => {
                    assert_eq!(before, ask.user);
                    retries += 1;
                }
                None => assert!(ask.key >= 10 || ask.key == u64::from(ask.user)),
            }
        }
        assert!((400..600).contains(&retries), "{retries}");
    }

    #[test]
    fn mixed_goes_on_with_what_was_granted_each_claim_once() {
        let mut script = Script::new(Scenario::Mixed, 10, 1);
        let (mut next, mut open) = (0, BTreeMap::new());
        let mut seen: BTreeMap<Verb, u32> = BTreeMap::new();
        for _ in 0..10_000 {
            let ask = script.next_ask().expect("it goes on");
            *seen.entry(ask.verb).or_default() += 1;
            let number = u32::try_from(ask.key).expect("small");
            let answer = match ask.verb {
                Verb::Claim => {
                    next += 1;
                    open.insert(next, (ask.user, Verb::Claim));
                    Answer::Done { number: next }
                }
                Verb::Order => {
                    assert_eq!(
                        open.insert(number, (ask.user, Verb::Order)),
                        Some((ask.user, Verb::Claim))
                    );
                    Answer::Done { number }
                }
                Verb::Pay => {
                    assert_eq!(open.remove(&number), Some((ask.user, Verb::Order)));
                    Answer::Done { number: 0 }
                }
                Verb::Release => {
                    assert_eq!(open.remove(&number).map(|(user, _)| user), Some(ask.user));
                    Answer::Done { number }
                }
                Verb::Look => Answer::Done { number: 0 },
            };
            script.heard(&ask, &answer);
        }
        assert_eq!(seen.len(), 5, "{seen:?}");
        assert!(seen.values().all(|count| *count > 500), "{seen:?}");
    }
}
