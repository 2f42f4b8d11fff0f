//! What the product takes when nobody asks for anything, and how soon it answers.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use super::Stage;
use super::figures::Figures;
use super::product::{Product, token};
use crate::stopwatch::Stopwatch;

/// Starts measured; the median counts.
const STARTS: usize = 5;
/// Until then everything that begins with a server has begun.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// Memory of an idle server, time from its start to its first claim, size of the binary.
pub(super) fn measure(stage: &Stage<'_>, figures: &mut Figures) -> Result<()> {
    let Stage { binary, scratch, .. } = *stage;
    let data = scratch.join("footprint");
    let server = Product::start(binary, &data)?;
    std::thread::sleep(SETTLED_AFTER);
    let idle = server.resident_bytes()?;
    let sale = server.open_sale(1_000)?;
    drop(server);
    let mut starts = Vec::new();
    for round in 0..STARTS {
        // Somebody new each time: a claim is granted, and synced.
        let token = token(binary, &data, &format!("user-{round}"))?;
        let watch = Stopwatch::start();
        let server = Product::start_with(binary, &data, token, &[])?;
        let claimed = server.ask("POST", &format!("/api/v1/sales/{sale}/claims"), "")?;
        starts.push(watch.elapsed().as_secs_f64() * 1e3);
        ensure!(claimed["number"].is_u64(), "the first claim was not granted: {claimed}");
    }
    starts.sort_by(f64::total_cmp);
    let binary = std::fs::metadata(binary)?.len();
    for line in [
        json!({"name": "idle_memory", "mb": mb(idle)}),
        json!({"name": "start_to_first_claim", "start_ms": starts[STARTS / 2]}),
        json!({"name": "binary", "mb": mb(binary)}),
    ] {
        figures.hear(&line.to_string());
    }
    Ok(())
}

fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
