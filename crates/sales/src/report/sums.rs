//! Adds up a sale: sums of the records, what was counted of those who got nothing, and both over time.

use std::collections::BTreeMap;

use qiang_app::App;
use qiang_app::problem::{Code, Problem};
use qiang_core::{PoolChange, PoolId, Timestamp};
use qiang_store::{Counted, Sale, SalePart, SaleSums};

use super::view::{
    Answers, Money, PaidWithin, Point, RefusalCount, ReportedSale, SaleReport, Speed, Timeline,
    Units,
};
use crate::Sales;

/// The most points of a plot.
const MAX_POINTS: i64 = 240;
/// Lengths that a part of a plot may have, in seconds; beyond, days.
const LENGTHS: [u32; 12] = [1, 2, 5, 10, 30, 60, 300, 900, 3_600, 10_800, 43_200, 86_400];

/// Adds up a sale.
pub(super) async fn report(sales: &Sales, id: PoolId) -> Result<SaleReport, Problem> {
    let app = &sales.app;
    let as_of = app.now();
    // What this process counted until now belongs in it, too. Records that cannot be written may still
    // be read.
    if let Err(error) = sales.outcomes.write(app).await {
        tracing::warn!("the report lacks the last answers: {}", qiang_engine::chain(&*error));
    }
    let up_to_date = app.catch_up().await.is_ok();
    let sale = app.store.sale(id).await?.ok_or_else(|| Problem::new(Code::NoSuchSale))?;
    let sums = app.store.sale_sums(id).await?;
    let counted = app.store.sale_outcomes(id).await?;
    let sold = sums.held + sums.ordered + sums.paid;
    let stock = u64::from(sale.total);
    let (answers, refusals) = answers(&sums, &counted);
    Ok(SaleReport {
        as_of,
        up_to_date,
        units: Units {
            stock,
            sold,
            held: sums.held,
            ordered: sums.ordered,
            paid: sums.paid,
            released: sums.released,
            returned: sums.returned,
            left: stock.saturating_sub(sold),
        },
        money: Money {
            earned_cents: sums.earned.get(),
            paid_cents: sums.received.get(),
            payments: sums.payments,
            refunded_cents: sums.settled.get(),
            refunds: sums.refunds_settled,
            due_cents: sums.due.get(),
            refunds_due: sums.refunds_due,
        },
        speed: speed(app, &sale, &sums, &counted).await?,
        answers,
        refusals,
        timeline: timeline(app, &sale, &sums, &counted).await?,
        sale: reported(&sale),
    })
}

fn reported(sale: &Sale) -> ReportedSale {
    ReportedSale {
        id: sale.id.to_string(),
        title: sale.terms.title.to_string(),
        sku: sale.terms.sku.to_string(),
        state: sale.state.as_str(),
        opens_at: sale.terms.opens_at,
        closes_at: sale.terms.closes_at,
        closed_at: sale.closed_at,
    }
}

/// Whether an outcome is a refusal.
fn is_refusal(outcome: &str) -> bool {
    !matches!(outcome, "granted" | "replayed" | "failed")
}

fn answers(sums: &SaleSums, counted: &[Counted]) -> (Answers, Vec<RefusalCount>) {
    let mut by_outcome: BTreeMap<&str, u64> = BTreeMap::new();
    for one in counted {
        *by_outcome.entry(&one.outcome).or_default() += one.times;
    }
    let of = |outcome: &str| by_outcome.get(outcome).copied().unwrap_or(0);
    let granted = sums.claims.saturating_sub(sums.regranted);
    let (replayed, failed) = (of("replayed"), of("failed"));
    let refusals = by_outcome.iter().filter(|(outcome, _)| is_refusal(outcome));
    let refused = refusals.clone().map(|(_, times)| times).sum();
    let asked = granted + replayed + refused + failed;
    let mut refusals: Vec<RefusalCount> = refusals
        .map(|(code, count)| RefusalCount {
            code: (*code).to_owned(),
            count: *count,
            percent: percent(*count, asked),
        })
        .collect();
    refusals.sort_by_key(|one| std::cmp::Reverse(one.count));
    let granted_percent = percent(granted, asked);
    let (buyers, regranted) = (sums.buyers, sums.regranted);
    let answers =
        Answers { asked, granted, replayed, refused, failed, granted_percent, buyers, regranted };
    (answers, refusals)
}

/// With two decimals.
#[expect(clippy::cast_precision_loss, reason = "two decimals are exact enough")]
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    (part as f64 * 10_000.0 / whole as f64).round() / 100.0
}

async fn speed(
    app: &App,
    sale: &Sale,
    sums: &SaleSums,
    counted: &[Counted],
) -> Result<Speed, Problem> {
    let mut by_part: BTreeMap<Timestamp, (u64, u64)> = BTreeMap::new();
    for one in counted {
        let (times, _) = by_part.entry(one.at).or_insert((0, one.covers_ms.max(1)));
        *times += one.times;
    }
    let peak = by_part.values().map(|(times, covers_ms)| times * 1_000 / covers_ms).max();
    let peak_granted_per_sec = app.store.busiest_second(sale.id).await?;
    let sold_out_at = app.store.sold_out_at(sale.id, sale.terms.units()).await?;
    let after = |at: Timestamp| (at.millis() - sale.terms.opens_at.millis()).max(0);
    let paid_within = app.store.paid_within(sale.id).await?;
    Ok(Speed {
        first_claim_at: sums.first_claim_at,
        last_claim_at: sums.last_claim_at,
        sold_out_at,
        sold_out_after_ms: sold_out_at.map(after),
        peak_granted_per_sec,
        // Grants are counted by the second they were decided in, answers by when they were counted.
        peak_claims_per_sec: peak.unwrap_or(0).max(peak_granted_per_sec),
        paid_within: paid_within.map(|within| PaidWithin {
            half_ms: within.half_ms,
            most_ms: within.most_ms,
            all_ms: within.all_ms,
        }),
    })
}

async fn timeline(
    app: &App,
    sale: &Sale,
    sums: &SaleSums,
    counted: &[Counted],
) -> Result<Timeline, Problem> {
    let firsts = [sums.first_claim_at, counted.first().map(|one| one.at)];
    let lasts = [sums.last_claim_at, counted.last().map(|one| one.at)];
    let first = firsts.into_iter().flatten().min();
    let (Some(first), Some(last)) = (first, lasts.into_iter().flatten().max()) else {
        return Ok(Timeline { part_secs: 1, points: Vec::new() });
    };
    let span_secs = (last.millis() - first.millis()) / 1_000;
    let fits = |length: &u32| span_secs / i64::from(*length) < MAX_POINTS;
    let days = u32::try_from(span_secs / MAX_POINTS / 86_400 + 1).unwrap_or(u32::MAX / 86_400);
    let part_secs = LENGTHS.into_iter().find(fits).unwrap_or_else(|| days.saturating_mul(86_400));
    let part_ms = i64::from(part_secs) * 1_000;
    let from = first.millis().div_euclid(part_ms) * part_ms;
    let count = usize::try_from((last.millis() - from) / part_ms + 1).unwrap_or(1);
    let begins = |place: usize| from + part_ms * i64::try_from(place).unwrap_or(0);
    let mut points: Vec<Point> = (0..count)
        .map(|place| Point { at: Timestamp::from_millis(begins(place)), ..Point::default() })
        .collect();
    for one in counted {
        let place = usize::try_from((one.at.millis() - from).div_euclid(part_ms));
        let Some(point) = place.ok().and_then(|place| points.get_mut(place)) else { continue };
        match one.outcome.as_str() {
            "failed" => point.failed += one.times,
            outcome if is_refusal(outcome) => point.refused += one.times,
            _ => {}
        }
    }
    let (from, secs) = (Timestamp::from_millis(from), part_secs.saturating_mul(1_000));
    let max = u32::try_from(count).unwrap_or(u32::MAX);
    let granted = app.store.granted_by_time(sale.id, from, secs, max).await?;
    let released = app.store.released_by_time(sale.id, from, secs, max).await?;
    let paid = app.store.paid_by_time(sale.id, from, secs, max).await?;
    each(&mut points, &granted, |point, part| point.granted = part.count);
    each(&mut points, &released, |point, part| point.released = part.units);
    each(&mut points, &paid, |point, part| point.paid = part.count);
    left(app, sale, &mut points, &granted, part_ms).await?;
    Ok(Timeline { part_secs, points })
}

/// Gives each part to its point.
fn each(points: &mut [Point], parts: &[SalePart], mut give: impl FnMut(&mut Point, &SalePart)) {
    for part in parts {
        let place = usize::try_from(part.place).ok();
        if let Some(point) = place.and_then(|place| points.get_mut(place)) {
            give(point, part);
        }
    }
}

/// What was left at the end of each part.
async fn left(
    app: &App,
    sale: &Sale,
    points: &mut [Point],
    granted: &[SalePart],
    part_ms: i64,
) -> Result<(), Problem> {
    let restocks: Vec<(i64, i64)> = app
        .store
        .sale_history(sale.id)
        .await?
        .into_iter()
        .filter_map(|change| match change.change {
            PoolChange::Restocked { units, .. } => Some((change.at.millis(), i64::from(units))),
            _ => None,
        })
        .collect();
    let mut taken: Vec<i64> = vec![0; points.len()];
    for part in granted {
        let place = usize::try_from(part.place).ok();
        if let Some(units) = place.and_then(|place| taken.get_mut(place)) {
            *units = i64::try_from(part.units).unwrap_or(i64::MAX);
        }
    }
    let mut left = i64::from(sale.terms.units());
    let mut restocks = restocks.into_iter().peekable();
    for (point, taken) in points.iter_mut().zip(taken) {
        let end = point.at.millis() + part_ms;
        while let Some((_, units)) = restocks.next_if(|(at, _)| *at < end) {
            left += units;
        }
        left += i64::try_from(point.released).unwrap_or(0) - taken;
        point.left = u64::try_from(left).unwrap_or(0);
    }
    Ok(())
}
