//! The ring: seconds that are over, and the few that other processes may still add to.

use std::collections::{BTreeMap, VecDeque};

use qiang_core::Timestamp;

use super::Sample;
use super::reading::Part;

/// Seconds that are kept.
const KEPT: usize = 600;
/// Seconds that wait for others to add to them.
const MAX_WAITING: usize = 16;
/// A clock that went back by more seconds than this was set; what is behind it begins anew.
const SET_BACK: i64 = 5;

/// The last minutes.
#[derive(Debug, Default)]
pub(super) struct Ring {
    over: VecDeque<Sample>,
    waiting: BTreeMap<i64, Sum>,
    /// The last second that is over.
    last: i64,
}

/// A second as several processes saw it.
#[derive(Debug)]
struct Sum {
    /// Whose parts are in it.
    nodes: Vec<u16>,
    part: Part,
}

impl Ring {
    /// Adds what a process saw. A second that is over, or that has its part already, stays as it is.
    pub(super) fn add(&mut self, node: u16, part: Part) {
        if part.second < self.last - SET_BACK {
            return;
        }
        let full = self.waiting.len() >= MAX_WAITING;
        match self.waiting.get_mut(&part.second) {
            _ if part.second <= self.last => {}
            Some(sum) if sum.nodes.contains(&node) => {}
            Some(sum) => {
                sum.nodes.push(node);
                sum.part.add(part);
            }
            None if full => {}
            None => drop(self.waiting.insert(part.second, Sum { nodes: vec![node], part })),
        }
    }

    /// Ends all seconds up to this one, and gives those that ended.
    pub(super) fn end(&mut self, second: i64) -> Vec<Sample> {
        if second < self.last - SET_BACK {
            *self = Self::default();
        }
        let later = self.waiting.split_off(&second.saturating_add(1));
        let ended = std::mem::replace(&mut self.waiting, later);
        self.last = self.last.max(second);
        let ended: Vec<_> = ended.into_values().map(Sum::sample).collect();
        for sample in &ended {
            if self.over.len() == KEPT {
                self.over.pop_front();
            }
            self.over.push_back(sample.clone());
        }
        ended
    }

    /// Whether a second is still to come or waiting.
    pub(super) fn is_open(&self, second: i64) -> bool {
        second > self.last || second < self.last - SET_BACK
    }

    pub(super) fn after(&self, after: Timestamp) -> Vec<Sample> {
        self.over.iter().filter(|sample| sample.at > after).cloned().collect()
    }
}

impl Sum {
    fn sample(self) -> Sample {
        let (part, nodes) = (self.part, self.nodes.len());
        let (lag_events, sales) = part
            .seen
            .as_ref()
            .map_or((None, Vec::new()), |seen| (Some(seen.lag_events), seen.sales.clone()));
        Sample {
            at: Timestamp::from_millis(part.second.saturating_mul(1000)),
            covers_ms: part.covers_ms,
            nodes: u16::try_from(nodes).unwrap_or(u16::MAX),
            granted: part.granted,
            replayed: part.replayed,
            sold_out: part.sold_out,
            refused: part.refused,
            failed: part.failed,
            p50_us: part.percentile_us(500),
            p99_us: part.percentile_us(990),
            p999_us: part.percentile_us(999),
            memory_bytes: part.memory_bytes,
            processor_percent: part.processor_percent,
            lag_events,
            sales,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(second: i64, granted: u64) -> Part {
        Part { second, granted, ..Part::default() }
    }

    fn granted(samples: &[Sample]) -> Vec<(i64, u16, u64)> {
        samples.iter().map(|one| (one.at.millis() / 1000, one.nodes, one.granted)).collect()
    }

    #[test]
    fn a_second_is_the_sum_of_those_who_told_it_in_time() {
        let mut ring = Ring::default();
        ring.add(0, part(100, 5));
        ring.add(1, part(100, 7));
        ring.add(1, part(100, 7));
        ring.add(0, part(101, 1));
        assert_eq!(granted(&ring.end(100)), [(100, 2, 12)], "told twice counts once");
        ring.add(2, part(100, 9));
        assert_eq!(granted(&ring.end(101)), [(101, 1, 1)]);
        let all = ring.after(Timestamp::from_millis(0));
        assert_eq!(granted(&all), [(100, 2, 12), (101, 1, 1)], "late is not counted");
        assert_eq!(ring.after(Timestamp::from_millis(100_000)).len(), 1);
    }

    #[test]
    fn p66_it_never_grows_beyond_its_size() {
        let mut ring = Ring::default();
        for second in 1..=2_000 {
            ring.add(0, part(second, 1));
            ring.end(second);
        }
        assert_eq!(ring.after(Timestamp::from_millis(0)).len(), KEPT);
        for second in 3_000..4_000 {
            ring.add(1, part(second, 1));
        }
        assert_eq!(ring.waiting.len(), MAX_WAITING);
    }

    #[test]
    fn a_clock_that_was_set_back_begins_anew() {
        let mut ring = Ring::default();
        ring.add(0, part(5_000, 1));
        ring.end(5_000);
        assert!(!ring.is_open(4_999) && ring.is_open(1_000));
        ring.end(1_000);
        ring.add(0, part(1_001, 2));
        assert_eq!(granted(&ring.end(1_001)), [(1_001, 1, 2)]);
    }
}
