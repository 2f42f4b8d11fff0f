//! One round: servers and nodes are started, buyers come, faults strike one after the other, an
//! operator does what the handbook says, and in the end everything is counted.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::clock::Clock;
use crate::crowd::Crowd;
use crate::fault::Fault;
use crate::figures::Figures;
use crate::http::Question;
use crate::schedule::{Schedule, Step};
use crate::setting::Setting;
use crate::shop::Shop;
use crate::verdict::Verdict;
use crate::world::World;

/// Buyers come in this long before the first fault.
const CALM: Duration = Duration::from_secs(2);
/// How long buyers have to get their answers when all faults are over.
const LAST_ANSWERS: Duration = Duration::from_secs(60);
/// Short deadlines pass in this time, and what they release is recorded.
const DEADLINES_PASS: Duration = Duration::from_secs(7);
/// How often, and how far apart, records are asked whether they have everything.
const RECORD_LOOKS: u32 = 60;
const RECORD_LOOK: Duration = Duration::from_millis(500);

/// What is to be done.
#[derive(Debug, Clone)]
pub(crate) struct Round<'a> {
    pub(crate) binary: &'a Path,
    pub(crate) setting: Setting,
    pub(crate) seed: u64,
    pub(crate) length: Duration,
    pub(crate) faults: &'a [Fault],
    /// How to have the same schedule again.
    pub(crate) again: String,
}

impl Round<'_> {
    /// Does it, and says what came of it.
    pub(crate) fn run(&self) -> Result<Figures> {
        let clock = Clock::start();
        let folder = self.make_folder()?;
        let name = format!("chaos {} seed {}", self.setting.word(), self.seed);
        crate::say(&format!("{name}: starting; again: {}", self.again));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .context("cannot start threads for buyers")?;
        let servers = self.setting.start()?;
        let shop = Shop::start(self.binary, &folder, self.setting, &servers)?;
        let handle = runtime.handle().clone();
        let world = World::new(self.setting, folder.clone(), shop, servers, handle, clock);
        let (crowd, buyers) = Crowd::start(runtime.handle(), world.shop.doors(), clock, self.seed);
        world.wait(CALM);

        let (mut done, mut faults) = (Vec::new(), 0);
        let begun = clock.elapsed();
        for step in Schedule::new(self.seed, self.setting, self.faults) {
            if clock.elapsed() - begun >= self.length {
                break;
            }
            faults += step.acts.len();
            done.push(step.clone());
            take(&world, &step);
        }
        world.shop.heal()?;
        world.log("all faults are over");
        let troubles = world.until_ready();
        runtime.block_on(crowd.end(buyers, LAST_ANSWERS));
        world.wait(DEADLINES_PASS);
        for trouble in if troubles.is_empty() { world.until_ready() } else { troubles } {
            world.complain(format!("not ready again: {trouble}"));
        }
        until_recorded(&world, &crowd);

        let verdict = Verdict::reach(&world, &crowd);
        let figures = verdict.figures(faults, clock.elapsed().as_secs());
        let word = if verdict.is_good() { "GOOD" } else { "BAD" };
        crate::report(&format!("{name}: {word}: {figures}"));
        if verdict.is_good() {
            drop(world);
            // What cannot be removed is in nobody's way.
            let _removed = fs::remove_dir_all(&folder);
            return Ok(figures);
        }
        self.explain(&world, &verdict, &done)?;
        Ok(figures)
    }

    fn make_folder(&self) -> Result<PathBuf> {
        let name =
            format!("qiang-chaos-{}-{}-{}", std::process::id(), self.setting.word(), self.seed);
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {folder:?}"))?;
        Ok(folder)
    }

    /// Says what was wrong, and keeps all there is to find out why.
    fn explain(&self, world: &World, verdict: &Verdict, done: &[Step]) -> Result<()> {
        let mut text = String::new();
        for line in verdict.complaints() {
            writeln!(text, "  wrong: {line}")?;
        }
        for step in done {
            writeln!(text, "  {step}")?;
        }
        writeln!(text, "  again: {}", self.again)?;
        writeln!(text, "  logs: {}", world.folder.display())?;
        crate::say(text.trim_end());
        world.shop.write_logs()?;
        let mut logs = world.servers.engine.logs();
        logs.push(("database.log".to_owned(), world.servers.database.log()));
        for (file, log) in logs {
            fs::write(world.folder.join(file), log)?;
        }
        let all: Vec<&str> = verdict.wrong.iter().map(String::as_str).collect();
        fs::write(world.folder.join("wrong.txt"), all.join("\n"))?;
        Ok(())
    }
}

/// One step of the schedule, and what an operator does after it.
fn take(world: &World, step: &Step) {
    world.wait(Duration::from_millis(step.rest_ms.into()));
    world.log(&step.to_string());
    let delayed = step.acts.iter().any(|act| act.fault.delays_records());
    if delayed {
        world.trouble_records(u64::MAX);
    }
    let done: Vec<Result<()>> = std::thread::scope(|scope| {
        let acts = step.acts.iter().map(|act| scope.spawn(|| act.carry_out(world)));
        let acts: Vec<_> = acts.collect();
        acts.into_iter().filter_map(|act| act.join().ok()).collect()
    });
    if delayed {
        world.trouble_records(world.clock.ms());
    }
    for error in done.into_iter().filter_map(Result::err) {
        world.complain(format!("{step}: {error:#}"));
    }
    match world.shop.fallen() {
        Ok(fallen) => fallen.into_iter().for_each(|what| world.complain(what)),
        Err(error) => world.complain(format!("{error:#}")),
    }
    world.look();
}

/// Waits until the records have everything that was decided.
fn until_recorded(world: &World, crowd: &Crowd) {
    for door in &crowd.doors {
        let list = Question::get("/api/v1/orders").by("reader");
        let recorded = (0..RECORD_LOOKS).any(|_| {
            let answer = world.runtime.block_on(list.ask(*door));
            let good = answer.is_some_and(|answer| answer.status == 200);
            if !good {
                world.wait(RECORD_LOOK);
            }
            good
        });
        if !recorded {
            world.complain(format!("the records do not catch up, says {door}"));
        }
    }
}
