//! What can be watched while a run goes on: a block that is drawn anew on a terminal, a line each
//! second where there is none.

use std::collections::BTreeMap;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::Pace;
use super::record::{Class, Counts, Percentiles, Slice};
use super::words::{amount, figure, latency};
use super::work::Work;

/// Outcomes shown by name; the rest is one number.
const MAX_NAMES: usize = 5;

/// One moment of a run.
pub struct Moment {
    elapsed: Duration,
    got: f64,
    latency: Percentiles,
    outcomes: BTreeMap<&'static str, u64>,
    errors: u64,
    waiting: usize,
    available: Option<u64>,
}

impl Moment {
    /// Of a run, after its newest slice.
    pub fn of(work: &Work, available: Option<u64>) -> Self {
        let waiting = work.waiting();
        let desk = work.desk();
        let mut all: BTreeMap<&'static str, u64> = BTreeMap::new();
        let mut errors = 0;
        for (outcome, count) in desk.recorder.outcomes().values().flatten() {
            if outcome.class == Class::Error {
                errors += count;
            } else {
                *all.entry(outcome.name).or_default() += count;
            }
        }
        let last = desk.recorder.slices().last();
        Self {
            elapsed: work.elapsed(),
            got: last.map_or(0.0, answered_per_sec),
            latency: last.map(|slice| slice.latency).unwrap_or_default(),
            outcomes: all,
            errors,
            waiting,
            available,
        }
    }

    fn outcomes(&self) -> String {
        let mut named: Vec<_> = self.outcomes.iter().collect();
        named.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let rest: u64 = named.iter().skip(MAX_NAMES).map(|(_, count)| **count).sum();
        let mut parts: Vec<String> = named
            .iter()
            .take(MAX_NAMES)
            .map(|(name, count)| format!("{name} {}", amount(**count)))
            .collect();
        if rest > 0 {
            parts.push(format!("others {}", amount(rest)));
        }
        parts.push(format!("errors {}", amount(self.errors)));
        parts.join("  ")
    }
}

fn answered_per_sec(slice: &Slice) -> f64 {
    let good = |counts: &Counts| -> u64 {
        let good = counts.iter().filter(|(outcome, _)| outcome.class != Class::Error);
        good.map(|(_, count)| count).sum()
    };
    let secs = slice.to.saturating_sub(slice.from).as_secs_f64();
    if secs > 0.0 { good(&slice.outcomes) as f64 / secs } else { 0.0 }
}

/// Where a run is shown.
pub enum View {
    /// Nowhere.
    Quiet,
    /// On a terminal.
    Block(Block),
    /// A line each second.
    Lines {
        /// What to want.
        wanted: String,
        /// Where lines go.
        say: fn(&str),
    },
}

/// Four lines that are drawn again and again.
pub struct Block {
    wanted: String,
    stock: u64,
    time: ProgressBar,
    left: ProgressBar,
    speed: ProgressBar,
    ends: ProgressBar,
}

impl View {
    pub fn block(pace: Pace, duration: Duration, stock: u32) -> Self {
        let bars = MultiProgress::new();
        let line = |len: u64, template: &str| {
            let bar = bars.add(ProgressBar::new(len));
            match ProgressStyle::with_template(template) {
                Ok(style) => bar.with_style(style.progress_chars("━╸─")),
                Err(_) => bar,
            }
        };
        let secs = duration.as_secs().max(1);
        Self::Block(Block {
            wanted: wanted(pace),
            stock: stock.into(),
            time: line(secs, "  time   {bar:32} {msg}"),
            left: line(stock.into(), "  stock  {bar:32} {msg}"),
            speed: line(0, "  {wide_msg}"),
            ends: line(0, "  {wide_msg}"),
        })
    }

    pub fn lines(pace: Pace, say: fn(&str)) -> Self {
        Self::Lines { wanted: wanted(pace), say }
    }

    /// Shows a moment.
    pub fn draw(&self, moment: &Moment) {
        let Moment { elapsed, got, latency: p, waiting, .. } = moment;
        let speeds = format!(
            "p50 {}  p99 {}  p99.9 {}",
            latency(p.p50_us),
            latency(p.p99_us),
            latency(p.p999_us)
        );
        let line = if *waiting > 0 {
            format!("  {} waiting", amount(*waiting as u64))
        } else {
            String::new()
        };
        match self {
            Self::Quiet => {}
            Self::Block(block) => {
                block.time.set_position(elapsed.as_secs());
                block.time.set_message(format!("{} s", elapsed.as_secs()));
                let left = moment.available;
                block.left.set_position(left.unwrap_or(block.stock));
                let left = left.map_or_else(|| "?".to_owned(), amount);
                block.left.set_message(format!("{left} of {} left", amount(block.stock)));
                let rate = format!("{} /s{}", figure(got.round()), block.wanted);
                block.speed.set_message(format!("{rate}  {speeds}{line}"));
                block.ends.set_message(moment.outcomes());
            }
            Self::Lines { wanted, say } => {
                let left = moment.available.map_or_else(|| "?".to_owned(), amount);
                say(&format!(
                    "{:>4} s  {} /s{wanted}  {speeds}{line}  stock {left}  {}",
                    elapsed.as_secs(),
                    figure(got.round()),
                    moment.outcomes(),
                ));
            }
        }
    }

    /// Takes a block away again.
    pub fn end(&self) {
        if let Self::Block(Block { time, left, speed, ends, .. }) = self {
            for bar in [time, left, speed, ends] {
                bar.finish_and_clear();
            }
        }
    }
}

fn wanted(pace: Pace) -> String {
    match pace {
        Pace::Open { per_sec, .. } => format!(" of {} wanted", figure(per_sec)),
        Pace::Closed => String::new(),
    }
}
