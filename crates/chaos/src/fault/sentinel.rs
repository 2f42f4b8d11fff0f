//! A master and its replicas that sentinels look after: they die, stand still, are full, and change
//! places. Each returns when every replica follows and has everything: whom sentinels promote
//! otherwise is not ours to judge.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use qiang_testkit::servers::{Redis, Sentinels};

use super::{Act, Fault};
use crate::setting::Engine;
use crate::world::World;

/// Whether a fault of masters can strike here.
pub(super) fn knows(fault: Fault) -> bool {
    matches!(
        fault,
        Fault::KillMaster
            | Fault::LoseMaster
            | Fault::KillReplica
            | Fault::PauseMaster
            | Fault::PauseMasterLong
            | Fault::PauseReplica
            | Fault::Failover
            | Fault::FillMaster
            | Fault::FillMasterDisk
    )
}

pub(super) fn carry_out(act: &Act, world: &World) -> Result<()> {
    let Engine::Sentinel(sentinels) = &world.servers.engine else { bail!("there are none") };
    whole(sentinels).context("before the fault")?;
    let servers = sentinels.servers();
    let master = sentinels.master()?;
    let replicas: Vec<&Redis> =
        servers.iter().enumerate().filter(|(at, _)| *at != master).map(|(_, one)| one).collect();
    let replica = replicas[act.pick(replicas.len())];
    let lasts = Duration::from_millis(act.lasts_ms.into());
    match act.fault {
        Fault::KillMaster => {
            servers[master].kill()?;
            sentinels.wait_for_promotion(master)?;
            world.wait(lasts);
            servers[master].restart()?;
        }
        Fault::LoseMaster => {
            // What the master does from here on reaches nobody: no replica can connect again.
            replicas.iter().try_for_each(|replica| replica.pause())?;
            servers[master].command(&["CLIENT", "KILL", "TYPE", "replica"])?;
            world.wait(lasts);
            servers[master].kill()?;
            replicas.iter().try_for_each(|replica| replica.resume())?;
            sentinels.wait_for_promotion(master)?;
            servers[master].restart()?;
        }
        Fault::KillReplica => {
            replica.kill()?;
            world.wait(lasts);
            replica.restart()?;
        }
        Fault::PauseMaster => {
            servers[master].pause()?;
            world.wait(lasts);
            servers[master].resume()?;
        }
        Fault::PauseMasterLong => {
            servers[master].pause()?;
            let done = sentinels.wait_for_promotion(master);
            world.wait(lasts);
            servers[master].resume()?;
            done?;
        }
        Fault::PauseReplica => {
            replica.pause()?;
            world.wait(lasts);
            replica.resume()?;
        }
        Fault::Failover => {
            sentinels.fail_over()?;
            sentinels.wait_for_promotion(master)?;
        }
        Fault::FillMaster => {
            servers[master].command(&["CONFIG", "SET", "maxmemory", "1"])?;
            world.wait(lasts);
            world.expect_not_ready("the master has no memory left");
            servers[master].command(&["CONFIG", "SET", "maxmemory", "0"])?;
        }
        Fault::FillMasterDisk => {
            let Some(disk) = servers[master].disk() else { return super::no_disk(act, world) };
            disk.fill()?;
            super::has_fallen(&servers[master], world)?;
            sentinels.wait_for_promotion(master)?;
            world.wait(lasts);
            disk.make_room()?;
            servers[master].restart()?;
        }
        other => bail!("{other} does not strike servers of sentinels"),
    }
    whole(sentinels).context("after the fault")
}

/// Waits until all replicas follow the master.
fn whole(sentinels: &Sentinels) -> Result<()> {
    sentinels.wait_for_replicas(sentinels.servers().len() - 1)
}
