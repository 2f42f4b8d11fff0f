//! The database: killed, stopped, closed for writing, without room on its disk.

use std::time::Duration;

use anyhow::{Result, bail};

use super::{Act, Fault};
use crate::world::World;

pub(super) fn carry_out(act: &Act, world: &World) -> Result<()> {
    let database = &world.servers.database;
    let lasts = Duration::from_millis(act.lasts_ms.into());
    match act.fault {
        Fault::KillDatabase => {
            database.kill()?;
            world.wait(lasts);
            database.restart()
        }
        Fault::PauseDatabase => {
            database.pause()?;
            world.wait(lasts);
            database.resume()
        }
        Fault::LockDatabase => {
            database.close_for_writing()?;
            world.wait(lasts);
            world.expect_not_ready("the database takes no writes");
            database.open_for_writing()
        }
        Fault::FillDatabaseDisk => {
            let Some(disk) = database.disk() else { return super::no_disk(act, world) };
            disk.fill()?;
            world.wait(lasts);
            disk.make_room()?;
            // Some give up when they cannot write their log, and are started again by a person.
            if database.answers() { Ok(()) } else { database.restart() }
        }
        other => bail!("{other} does not strike a database"),
    }
}
