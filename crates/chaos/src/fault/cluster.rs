//! A cluster: masters and replicas that die or stand still, failovers by force and by command, slots
//! that move, links that carry nothing. Each returns when the cluster is whole again, so that no replica is asked to take over
//! before it has everything: what Redis itself loses then is not ours to judge.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use qiang_testkit::servers::Cluster;

use super::{Act, Fault};
use crate::setting::{Engine, PARTITIONS};
use crate::world::World;

/// How often one looks whether a replica has taken over, and how often at the most.
const LOOK: Duration = Duration::from_millis(50);
const LOOKS: u32 = 600;

pub(super) fn carry_out(act: &Act, world: &World) -> Result<()> {
    let Engine::Cluster(cluster) = &world.servers.engine else { bail!("there is no cluster") };
    cluster.wait_until_whole().context("before the fault")?;
    let masters = cluster.masters()?;
    let master = masters[act.pick(masters.len())];
    let replica = cluster.replica_of(master)?;
    let nodes = cluster.nodes();
    let lasts = Duration::from_millis(act.lasts_ms.into());
    match act.fault {
        Fault::KillMaster => {
            nodes[master].kill()?;
            promoted(cluster, world, replica)?;
            world.wait(lasts);
            nodes[master].restart()?;
        }
        Fault::LoseMaster => {
            // What the master does from here on reaches nobody: its replica cannot connect again.
            nodes[replica].pause()?;
            nodes[master].command(&["CLIENT", "KILL", "TYPE", "replica"])?;
            world.wait(lasts);
            nodes[master].kill()?;
            nodes[replica].resume()?;
            promoted(cluster, world, replica)?;
            nodes[master].restart()?;
        }
        Fault::KillReplica => {
            nodes[replica].kill()?;
            world.wait(lasts);
            nodes[replica].restart()?;
        }
        Fault::PauseMaster => {
            nodes[master].pause()?;
            world.wait(lasts);
            nodes[master].resume()?;
        }
        Fault::PauseMasterLong => {
            nodes[master].pause()?;
            let done = promoted(cluster, world, replica);
            world.wait(lasts);
            nodes[master].resume()?;
            done?;
        }
        Fault::PauseReplica => {
            nodes[replica].pause()?;
            world.wait(lasts);
            nodes[replica].resume()?;
        }
        Fault::Failover => {
            nodes[replica].command(&["CLUSTER", "FAILOVER"])?;
            promoted(cluster, world, replica)?;
        }
        Fault::Takeover => {
            nodes[replica].command(&["CLUSTER", "FAILOVER", "TAKEOVER"])?;
            promoted(cluster, world, replica)?;
        }
        Fault::Reshard => reshard(act, cluster)?,
        Fault::FillMaster => {
            nodes[master].command(&["CONFIG", "SET", "maxmemory", "1"])?;
            world.wait(lasts);
            world.expect_not_ready("a master has no memory left");
            nodes[master].command(&["CONFIG", "SET", "maxmemory", "0"])?;
        }
        Fault::FillMasterDisk => {
            let Some(disk) = nodes[master].disk() else { return super::no_disk(act, world) };
            disk.fill()?;
            super::has_fallen(&nodes[master], world)?;
            promoted(cluster, world, replica)?;
            world.wait(lasts);
            disk.make_room()?;
            nodes[master].restart()?;
        }
        Fault::HangReplicaLink => {
            cluster.part_replication(master, replica)?;
            world.wait(lasts);
            cluster.heal_links()?;
        }
        Fault::HangMasterLink => {
            cluster.part_from_clients(master)?;
            world.wait(lasts);
            cluster.heal_links()?;
        }
        Fault::PartMasters => {
            let other = masters[(act.pick(masters.len()) + 1) % masters.len()];
            cluster.part(master, other)?;
            world.wait(lasts);
            cluster.heal_links()?;
        }
        Fault::IsolateMaster => {
            cluster.isolate(master)?;
            let done = promoted(cluster, world, replica);
            world.wait(lasts);
            cluster.heal_links()?;
            done?;
            replaced(cluster, world, master)?;
        }
        other => bail!("{other} does not strike a cluster"),
    }
    cluster.wait_until_whole().context("after the fault")
}

fn promoted(cluster: &Cluster, world: &World, replica: usize) -> Result<()> {
    for _ in 0..LOOKS {
        if cluster.masters()?.contains(&replica) {
            return Ok(());
        }
        world.wait(LOOK);
    }
    bail!("node {replica} did not take over")
}

/// Waits until a master that was replaced knows it.
fn replaced(cluster: &Cluster, world: &World, master: usize) -> Result<()> {
    for _ in 0..LOOKS {
        if !cluster.masters()?.contains(&master) {
            return Ok(());
        }
        world.wait(LOOK);
    }
    bail!("node {master} does not know that it was replaced")
}

/// Moves the slot of one partition to a master that has it not.
fn reshard(act: &Act, cluster: &Cluster) -> Result<()> {
    let slot = cluster.slot(&format!("p{}", act.which % u32::from(PARTITIONS)))?;
    let owner = cluster.master_of(slot)?;
    let others: Vec<usize> =
        cluster.masters()?.into_iter().filter(|master| *master != owner).collect();
    let to = *others.get(act.pick(others.len().max(1))).context("another master")?;
    cluster.move_slot(slot, to)
}
