//! Operators who do what nobody asked for.

use std::time::Duration;

use anyhow::{Result, bail};

use super::{Act, Fault};
use crate::world::World;

pub(super) fn carry_out(act: &Act, world: &World) -> Result<()> {
    match act.fault {
        Fault::RepairForNothing => {
            world.wait(Duration::from_millis(act.lasts_ms.into()));
            world.repair(2);
            Ok(())
        }
        other => bail!("{other} is no operator's doing"),
    }
}
