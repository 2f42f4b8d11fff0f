//! Random faults under a crowd of buyers, and a verdict: what `cargo xtask chaos` runs.
//!
//! Real nodes on real servers, which are killed, stopped, cut off, filled, flushed and failed over
//! by a schedule that a seed determines ([`Fault`], [`Setting`]). Buyers go on all the while, and a
//! tally outside of everything keeps what they were told. It knows the product only by HTTP, its
//! command line and its handbook; at the end it is held against all books.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "what a chore prints is its result")]

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail, ensure};

mod buyer;
mod clock;
mod crowd;
mod database;
mod fault;
mod figures;
mod http;
mod keys;
mod round;
mod sales;
mod schedule;
mod setting;
mod shop;
mod tally;
mod verdict;
mod world;

use figures::Figures;

pub use fault::Fault;
pub use setting::Setting;

/// A round is not longer than this, so that what it counts stays countable; more time is more
/// rounds, each with the next seed.
const LONGEST_ROUND: Duration = Duration::from_secs(180);

/// What is asked for on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How long faults strike, over all rounds.
    pub time: Duration,
    /// The first round's seed; drawn from the clock unless given.
    pub seed: u64,
    /// The settings, in turn.
    pub settings: Vec<Setting>,
    /// The faults that may strike.
    pub faults: Vec<Fault>,
    /// What `--without` and `--only` said, to be said again.
    chosen: String,
}

impl Options {
    /// A short look at some settings, with a seed that never changes.
    pub fn short(settings: &[Setting], each: Duration, seed: u64) -> Self {
        let time = each * u32::try_from(settings.len()).unwrap_or(u32::MAX);
        let (settings, faults) = (settings.to_vec(), Fault::ALL.to_vec());
        Self { time, seed, settings, faults, chosen: String::new() }
    }

    /// Reads `--minutes N`, `--seed S`, `--on SETTING`, `--without FAULT` and `--only FAULT`.
    pub fn parse(args: &[String]) -> Result<Self> {
        let mut options =
            Self::short(&Setting::ALL, Duration::from_secs(60), clock::unix_seconds());
        let mut only = Vec::new();
        let mut args = args.iter();
        while let Some(name) = args.next() {
            let Some(value) = args.next() else { bail!("`{name}` lacks its value") };
            match name.as_str() {
                "--minutes" => {
                    let minutes: f64 = value.parse()?;
                    ensure!((0.05..=1_440.0).contains(&minutes), "{value} minutes?");
                    options.time = Duration::from_secs_f64(minutes * 60.0);
                }
                "--seed" => options.seed = value.parse()?,
                "--on" => {
                    options.settings = Setting::named(value);
                    ensure!(!options.settings.is_empty(), "there is no setting `{value}`");
                }
                "--without" => {
                    let without = fault(value)?;
                    options.faults.retain(|fault| *fault != without);
                }
                "--only" => only.push(fault(value)?),
                other => bail!("chaos does not know `{other}`"),
            }
            if name == "--without" || name == "--only" {
                options.chosen.push_str(&format!(" {name} {value}"));
            }
        }
        if !only.is_empty() {
            options.faults.retain(|fault| only.contains(fault));
        }
        Ok(options)
    }
}

fn fault(word: &str) -> Result<Fault> {
    let Some(fault) = Fault::named(word) else {
        let words: Vec<String> = Fault::ALL.iter().map(Fault::to_string).collect();
        bail!("there is no fault `{word}`; there are: {}", words.join(", "));
    };
    Ok(fault)
}

/// Runs rounds until the time is over, each setting in turn. True if every verdict was good.
pub fn run(binary: &Path, options: &Options) -> Result<bool> {
    let count = u32::try_from(options.settings.len())?;
    let turns = options.time.div_duration_f64(LONGEST_ROUND * count).ceil().max(1.0);
    let length = options.time.div_f64(turns * f64::from(count));
    let mut bad = Vec::new();
    let mut figures = vec![Figures::default(); options.settings.len()];
    let mut seed = options.seed;
    let mut turn = 0.0;
    while turn < turns {
        for (setting, of_setting) in options.settings.iter().zip(&mut figures) {
            let (word, minutes) = (setting.word(), length.as_secs_f64() / 60.0);
            let again = format!(
                "cargo xtask chaos --on {word} --seed {seed} --minutes {minutes:.2}{}",
                options.chosen
            );
            let faults = &options.faults;
            let round = round::Round { binary, setting: *setting, seed, length, faults, again };
            let counted = round.run()?;
            if counted.wrong > 0 {
                bad.push(format!("{word} seed {seed}"));
            }
            *of_setting += counted;
        }
        seed = seed.wrapping_add(1);
        turn += 1.0;
    }
    for (setting, of_setting) in options.settings.iter().zip(&figures) {
        report(&format!("{}: {} rounds, {of_setting}", setting.word(), of_setting.rounds));
    }
    match bad.as_slice() {
        [] => report("chaos: all good"),
        bad => report(&format!("chaos: BAD: {}", bad.join(", "))),
    }
    Ok(bad.is_empty())
}

/// A result.
fn report(line: &str) {
    println!("{line}");
}

/// Talk.
fn say(line: &str) {
    eprintln!("{line}");
}

#[cfg(test)]
mod tests {
    use super::{Fault, Options, Setting};

    fn parse(line: &str) -> anyhow::Result<Options> {
        Options::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_choose_settings_and_faults() {
        let options = parse("--on sql --seed 7 --minutes 2.5 --without kill-api").unwrap();
        assert_eq!(options.settings, [Setting::Postgres, Setting::Mariadb]);
        assert_eq!((options.seed, options.time.as_secs()), (7, 150));
        assert_eq!(options.faults.len(), Fault::ALL.len() - 1);
        let options = parse("--only reshard --only takeover").unwrap();
        assert_eq!(options.faults, [Fault::Takeover, Fault::Reshard]);
        assert_eq!(options.settings, Setting::ALL);
        for bad in ["--on moon", "--seed", "--only rain", "--minutes 0", "redis"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
