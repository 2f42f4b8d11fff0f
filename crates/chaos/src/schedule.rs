//! What goes wrong when: drawn from a seed, before anything is known of how it went. The same seed,
//! setting and faults give the same schedule, however long each step takes.

use std::fmt;

use qiang_testkit::Random;

use crate::fault::{Act, Fault};
use crate::setting::Setting;

/// Time without a fault before each step, in milliseconds, from and to.
const REST_MS: (u32, u32) = (300, 2_500);
/// Out of a hundred steps, those with two faults at once.
const TWO_AT_ONCE: u32 = 30;
/// How often a second fault is drawn that fits the first.
const DRAWS: u32 = 10;

/// One step: a rest, and then one fault, or two at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) rest_ms: u32,
    pub(crate) acts: Vec<Act>,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let acts: Vec<String> = self.acts.iter().map(Act::to_string).collect();
        write!(f, "after {} ms: {}", self.rest_ms, acts.join(" and "))
    }
}

/// Steps without end.
pub(crate) struct Schedule {
    random: Random,
    setting: Setting,
    faults: Vec<Fault>,
    /// Those that have not come yet; every fault comes once before any comes twice.
    left: Vec<Fault>,
}

impl Schedule {
    /// Of those of `faults` that can strike the setting.
    pub(crate) fn new(seed: u64, setting: Setting, faults: &[Fault]) -> Self {
        let faults = faults.iter().copied().filter(|fault| fault.strikes(setting)).collect();
        Self { random: Random::new(seed), setting, faults, left: Vec::new() }
    }

    fn draw(&mut self) -> Option<Fault> {
        if self.left.is_empty() {
            self.left.clone_from(&self.faults);
        }
        let count = u32::try_from(self.left.len()).ok().filter(|count| *count > 0)?;
        let at = self.random.below(count) as usize;
        Some(self.left.swap_remove(at))
    }

    fn act(&mut self, fault: Fault) -> Act {
        let (from, to) = fault.facts().lasts_ms;
        Act { fault, which: self.random.below(1_000), lasts_ms: self.random.between(from, to) }
    }

    fn second(&mut self, first: Fault) -> Option<Fault> {
        for _ in 0..DRAWS {
            let fault = *self.random.pick(&self.faults);
            if fault.goes_with(first, self.setting) {
                return Some(fault);
            }
        }
        None
    }
}

impl Iterator for Schedule {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let rest_ms = self.random.between(REST_MS.0, REST_MS.1);
        let first = self.draw()?;
        let mut acts = vec![self.act(first)];
        if self.random.percent(TWO_AT_ONCE)
            && let Some(second) = self.second(first)
        {
            acts.push(self.act(second));
        }
        Some(Step { rest_ms, acts })
    }
}

#[cfg(test)]
mod tests {
    use super::{Schedule, Step};
    use crate::fault::Fault;
    use crate::setting::Setting;

    fn steps(seed: u64, setting: Setting) -> Vec<Step> {
        Schedule::new(seed, setting, &Fault::ALL).take(200).collect()
    }

    #[test]
    fn a_seed_gives_the_same_schedule_again() {
        assert_eq!(steps(7, Setting::Redis), steps(7, Setting::Redis));
        assert_ne!(steps(7, Setting::Redis), steps(8, Setting::Redis));
    }

    #[test]
    fn every_fault_of_a_setting_comes_and_no_other() {
        for setting in Setting::ALL {
            let steps = steps(1, setting);
            for fault in Fault::ALL {
                let comes = steps.iter().any(|step| step.acts.iter().any(|act| act.fault == fault));
                assert_eq!(comes, fault.strikes(setting), "{fault} on {}", setting.word());
            }
            for step in steps.iter().filter(|step| step.acts.len() == 2) {
                assert!(step.acts[0].fault.goes_with(step.acts[1].fault, setting), "{step}");
            }
        }
    }

    #[test]
    fn without_faults_there_is_no_schedule() {
        assert!(Schedule::new(1, Setting::Redis, &[Fault::Reshard]).next().is_none());
    }
}
