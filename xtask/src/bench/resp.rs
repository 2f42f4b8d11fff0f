//! Claims over RESP, driven by Redis's own `redis-benchmark` exactly as the peer is: as many
//! connections, the same pipelines, a new user for each request, a fresh server for each round.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::figures::Figures;
use super::product::Product;
use super::redis::{CONNECTIONS, PIPELINES, Speed, USERS, median, requests, speed_of};

const STOCK: u64 = 1_000_000_000;
/// So much faster than the peer that a round of as many requests would be over too soon.
const MORE: u64 = 4;

/// Measures claims and sold-out refusals at every pipeline.
pub(super) fn measure(
    binary: &Path,
    scratch: &Path,
    quick: bool,
    figures: &mut Figures,
) -> Result<()> {
    let rounds = if quick { 1 } else { 3 };
    for (name, stock) in [("resp_claims", STOCK), ("resp_sold_out", 1)] {
        for pipeline in PIPELINES {
            let requests = requests(pipeline, quick) * if pipeline > 1 { MORE } else { 1 };
            let mut speeds = Vec::new();
            for _ in 0..rounds {
                speeds.push(round(binary, scratch, stock, pipeline, requests)?);
            }
            figures.hear(&median(speeds).line(name, pipeline));
        }
    }
    Ok(())
}

fn round(binary: &Path, scratch: &Path, stock: u64, pipeline: u32, requests: u64) -> Result<Speed> {
    let data = scratch.join("resp");
    let server = Product::start(binary, &data)?;
    let sale = server.open_sale(stock)?;
    let (host, port) = server.resp.rsplit_once(':').context("an address has a port")?;
    let mut load = Command::new("redis-benchmark");
    load.args(["-h", host, "-p", port, "-a", &server.token, "-c", &CONNECTIONS.to_string()]);
    load.args(["-P", &pipeline.to_string(), "-n", &requests.to_string()]);
    load.args(["-r", &USERS.to_string(), "--csv", "CLAIM", &sale, "__rand_int__"]);
    let speed = speed_of(&crate::output_of(&mut load)?)?;
    let sold = server.ask("GET", &format!("/api/v1/sales/{sale}"), "")?;
    let (paid, left) = (sold["paid"].as_u64(), sold["available"].as_u64());
    let (paid, left) = paid.zip(left).with_context(|| format!("no figures: {sold}"))?;
    // redis-benchmark may send up to one pipeline for each connection more than asked for, and
    // draws a user twice now and then.
    let extra = u64::from(CONNECTIONS * pipeline);
    let expected = stock.min(requests);
    ensure!(
        paid + left == stock && paid * 100 >= expected * 99 && paid <= expected + extra,
        "{paid} granted and {left} left of {stock} after {requests} requests"
    );
    drop(server);
    std::fs::remove_dir_all(&data)?;
    Ok(speed)
}
