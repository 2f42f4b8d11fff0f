//! Claims over HTTP beside an axum handler that does nothing, both driven by `wrk`: one thread,
//! as many connections, a token of another user with each request.
//!
//! All take turns, round by round, each round on a fresh server, so that a machine that has a slow
//! minute has it for everybody; the median round of each counts.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use qiang_testkit::servers::WRK;
use serde_json::json;

use super::Stage;
use super::figures::Figures;
use super::product::Product;
use crate::servers;

/// As many as a crowd needs to keep two cores busy while a batch is being synced.
const CONNECTIONS: u64 = 256;
/// More than are asked for in one round.
const USERS: u64 = 400_000;
pub(super) const STOCK: u64 = 1_000_000_000;

/// Measures claims, sold-out refusals and nothing at all, or says that wrk cannot be had.
pub(super) fn measure(stage: &Stage<'_>, figures: &mut Figures) -> Result<()> {
    if !servers::ensure_installed(WRK)? {
        return Ok(());
    }
    let (rounds, seconds) = if stage.quick { (1, 2) } else { (5, 5) };
    let bench = Bench::new(stage, seconds);
    let mut speeds = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..rounds {
        let [noop, claims, sold_out] = &mut speeds;
        bench.claims(STOCK, Some(noop), claims, |_| Ok(()))?;
        bench.claims(1, None, sold_out, |_| Ok(()))?;
    }
    for (name, mut speeds) in ["http_noop", "http_claims", "http_sold_out"].into_iter().zip(speeds)
    {
        speeds.sort_by(f64::total_cmp);
        let per_sec = speeds[speeds.len() / 2].round();
        let line = json!({"name": name, "connections": CONNECTIONS, "per_sec": per_sec});
        figures.hear(&line.to_string());
    }
    Ok(())
}

/// One way to drive claims.
pub(super) struct Bench<'a> {
    stage: &'a Stage<'a>,
    script: PathBuf,
    seconds: u64,
}

impl<'a> Bench<'a> {
    pub(super) fn new(stage: &'a Stage<'a>, seconds: u64) -> Self {
        Self { stage, script: stage.root.join("bench/claim.lua"), seconds }
    }

    /// One round on a sale of so many units, and one of the peer with the same requests before it.
    /// What `beside` opens is there while claims are driven.
    pub(super) fn claims<T>(
        &self,
        stock: u64,
        noop: Option<&mut Vec<f64>>,
        speeds: &mut Vec<f64>,
        beside: impl FnOnce(&Product) -> Result<T>,
    ) -> Result<()> {
        let (data, tokens) =
            (self.stage.scratch.join("http"), self.stage.scratch.join("tokens.csv"));
        let server = Product::start(self.stage.binary, &data)?;
        let sale = server.open_sale(stock)?;
        let mut mint = Command::new(self.stage.binary);
        mint.args(["tokens", "--count", &USERS.to_string(), "--data"]).arg(&data);
        crate::output_of(mint.arg("--out").arg(&tokens))?;
        let path = format!("/api/v1/sales/{sale}/claims");
        if let Some(speeds) = noop {
            let peer = Noop::start()?;
            speeds.push(self.drive(&format!("http://{}{path}", peer.address), &tokens)?.per_sec);
        }
        let others = beside(&server)?;
        let asked = self.drive(&format!("http://{}{path}", server.http), &tokens)?;
        drop(others);
        speeds.push(asked.per_sec);
        let sold = server.ask("GET", &format!("/api/v1/sales/{sale}"), "")?;
        let paid = sold["paid"].as_u64().with_context(|| format!("no figures: {sold}"))?;
        // Answers that were still on their way when wrk stopped counting are not in its figure.
        let expected = stock.min(asked.requests);
        ensure!(
            (expected..=expected + CONNECTIONS).contains(&paid)
                && asked.requests - asked.refused <= paid,
            "{paid} granted, {} refused after {} requests",
            asked.refused,
            asked.requests
        );
        drop(server);
        std::fs::remove_file(&tokens)?;
        std::fs::remove_dir_all(&data)?;
        Ok(())
    }

    fn drive(&self, url: &str, tokens: &Path) -> Result<Asked> {
        let mut wrk = Command::new("wrk");
        wrk.args(["-t", "1", "-c", &CONNECTIONS.to_string(), "-d", &self.seconds.to_string()]);
        wrk.arg("-s").arg(&self.script).arg(url).arg("--").arg(tokens);
        let printed = crate::output_of(&mut wrk)?;
        asked(&printed).with_context(|| format!("wrk printed no speed: {printed}"))
    }
}

/// What wrk measured.
#[derive(Debug, PartialEq)]
pub(super) struct Asked {
    requests: u64,
    /// Those whose answer was no success.
    pub(super) refused: u64,
    pub(super) per_sec: f64,
}

pub(super) fn asked(printed: &str) -> Option<Asked> {
    let after = |start: &str| {
        printed.lines().find_map(|line| Some(line.trim().strip_prefix(start)?.trim().to_owned()))
    };
    let requests = printed.lines().find_map(|line| line.trim().split_once(" requests in "))?.0;
    Some(Asked {
        requests: requests.parse().ok()?,
        refused: after("Non-2xx or 3xx responses:").map_or(Some(0), |n| n.parse().ok())?,
        per_sec: after("Requests/sec:")?.parse().ok()?,
    })
}

/// The peer; it ends with this.
pub(super) struct Noop {
    child: Child,
    pub(super) address: String,
}

impl Noop {
    pub(super) fn start() -> Result<Self> {
        let mut command = crate::cargo()?;
        command.args(["bench", "--locked", "--quiet", "-p", "qiang", "--bench", "noop"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let said = child.stdout.take().context("its output was piped")?;
        let mut address = String::new();
        BufReader::new(said).read_line(&mut address)?;
        ensure!(!address.is_empty(), "the no-op ended before it said where it listens");
        Ok(Self { child, address: address.trim().to_owned() })
    }
}

impl Drop for Noop {
    fn drop(&mut self) {
        // It reads its input to the end, and ends then.
        drop(self.child.stdin.take());
        let _waited = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::{Asked, asked};

    #[test]
    fn the_speed_is_read_from_what_wrk_prints() {
        let printed = "Running 2s test @ http://127.0.0.1:1/x\n  1 threads and 256 connections\n  \
                       51234 requests in 2.05s, 9.10MB read\n  \
                       Non-2xx or 3xx responses: 51233\nRequests/sec:  24991.90\n";
        let expected = Asked { requests: 51_234, refused: 51_233, per_sec: 24_991.9 };
        assert_eq!(asked(printed), Some(expected));
        let granted = printed.replace("Non-2xx or 3xx responses: 51233\n", "");
        assert_eq!(asked(&granted).map(|asked| asked.refused), Some(0));
        assert_eq!(asked(""), None);
    }
}
