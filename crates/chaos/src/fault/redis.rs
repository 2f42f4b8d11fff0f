//! One Redis: killed, stopped, full, without room on its disk, flushed.

use std::time::Duration;

use anyhow::{Result, bail};

use super::{Act, Fault};
use crate::setting::Engine;
use crate::world::World;

pub(super) fn carry_out(act: &Act, world: &World) -> Result<()> {
    let Engine::Redis(redis) = &world.servers.engine else { bail!("there is no such Redis") };
    let lasts = Duration::from_millis(act.lasts_ms.into());
    match act.fault {
        Fault::KillRedis => {
            redis.kill()?;
            world.wait(lasts);
            redis.restart()
        }
        Fault::PauseRedis => {
            redis.pause()?;
            world.wait(lasts);
            redis.resume()
        }
        Fault::FillRedis => {
            redis.command(&["CONFIG", "SET", "maxmemory", "1"])?;
            world.wait(lasts);
            world.expect_not_ready("Redis has no memory left");
            redis.command(&["CONFIG", "SET", "maxmemory", "0"]).map(drop)
        }
        Fault::FillRedisDisk => {
            let Some(disk) = redis.disk() else { return super::no_disk(act, world) };
            disk.fill()?;
            super::has_fallen(redis, world)?;
            world.wait(lasts);
            world.expect_not_ready("Redis has ended on a full disk");
            disk.make_room()?;
            redis.restart()
        }
        Fault::FlushRedis => {
            redis.flush()?;
            world.wait(lasts);
            world.repair(1);
            Ok(())
        }
        Fault::FlushRedisRepairTwice => {
            redis.flush()?;
            world.wait(lasts);
            world.repair(2);
            Ok(())
        }
        other => bail!("{other} does not strike a Redis"),
    }
}
