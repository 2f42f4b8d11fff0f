//! Nodes that die, and nodes that stand still.

use std::time::Duration;

use anyhow::{Result, bail, ensure};

use super::{Act, Fault};
use crate::shop::{APIS, ROLES};
use crate::world::World;

pub(super) fn carry_out(act: &Act, world: &World) -> Result<()> {
    let api = act.pick(APIS);
    let worker = APIS + act.pick(ROLES.len() - APIS);
    match act.fault {
        Fault::KillApi => kill(act, world, &[api]),
        Fault::KillWorker => kill(act, world, &[worker]),
        Fault::KillAllNodes => kill(act, world, &(0..ROLES.len()).collect::<Vec<_>>()),
        Fault::RestartNode => restart(act, world, act.pick(ROLES.len())),
        Fault::PauseApi => pause(act, world, api),
        Fault::PauseWorker => pause(act, world, worker),
        other => bail!("{other} does not strike a node"),
    }
}

fn kill(act: &Act, world: &World, nodes: &[usize]) -> Result<()> {
    for index in nodes {
        world.shop.places[*index].put_away();
    }
    world.wait(Duration::from_millis(act.lasts_ms.into()));
    for index in nodes {
        world.shop.start_node(*index)?;
    }
    Ok(())
}

fn restart(act: &Act, world: &World, index: usize) -> Result<()> {
    let ended = world.shop.places[index].stop();
    world.wait(Duration::from_millis(act.lasts_ms.into()));
    world.shop.start_node(index)?;
    ensure!(ended.is_none_or(|status| status.success()), "node {index} stopped with {ended:?}");
    Ok(())
}

fn pause(act: &Act, world: &World, index: usize) -> Result<()> {
    let place = &world.shop.places[index];
    if let Some(node) = place.node().as_ref() {
        node.pause();
    }
    world.wait(Duration::from_millis(act.lasts_ms.into()));
    if let Some(node) = place.node().as_ref() {
        node.resume();
    }
    Ok(())
}
