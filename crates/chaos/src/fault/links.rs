//! Links of one node that break, hang, are slow, or carry nothing back.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{Act, Fault};
use crate::world::World;

/// How late answers come on a slow link.
const SLOW_BY: Duration = Duration::from_millis(120);

pub(super) fn carry_out(act: &Act, world: &World) -> Result<()> {
    let links = &world.shop.places[act.pick(world.shop.places.len())].links;
    let lasts = Duration::from_millis(act.lasts_ms.into());
    let link = match act.fault {
        Fault::CutRedisLink
        | Fault::HangRedisLink
        | Fault::SlowRedisLink
        | Fault::MuteRedisLink => links.engine.as_ref().context("there is no link to Redis")?,
        _ => &links.database,
    };
    match act.fault {
        Fault::CutRedisLink | Fault::CutDatabaseLink => {
            link.refuse()?;
            link.cut();
        }
        Fault::HangRedisLink | Fault::HangDatabaseLink => link.pause(),
        Fault::SlowRedisLink | Fault::SlowDatabaseLink => link.delay_replies(SLOW_BY),
        Fault::MuteRedisLink | Fault::MuteDatabaseLink => link.swallow_replies(),
        other => bail!("{other} does not strike a link"),
    }
    world.wait(lasts);
    link.heal()
}
