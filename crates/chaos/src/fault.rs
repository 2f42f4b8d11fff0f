//! What can go wrong. A new fault is one more name here, one line in [`Fault::facts`], and one arm
//! in the file of its place.

use std::fmt;
use std::time::Duration;

use anyhow::{Result, bail};
use qiang_testkit::servers::Redis;

use crate::setting::Setting;
use crate::world::World;

mod cluster;
mod database;
mod links;
mod nodes;
mod operator;
mod redis;
mod sentinel;

/// How far records can be behind while workers or the database are in trouble, or have just been:
/// leases of the dead have to run out first.
const RECORDS_TROUBLED_MS: u64 = 20_000;
/// How far they, or a replica, can be behind otherwise, on one machine.
const BEHIND_MS: u64 = 2_000;

/// How often, and how far apart, one looks whether a server has ended on its full disk: somebody has to
/// write first.
const FALL_LOOKS: u32 = 600;
const FALL_LOOK: Duration = Duration::from_millis(50);

/// One kind of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL of a node that serves buyers; started again a little later.
    KillApi,
    /// The same for a worker.
    KillWorker,
    /// SIGKILL of all nodes at once; started again one after the other.
    KillAllNodes,
    /// A node that serves buyers stands still for a while.
    PauseApi,
    /// The same for a worker, also for longer than its leases.
    PauseWorker,
    /// SIGTERM of any node, and a start, as an upgrade does.
    RestartNode,
    /// Every connection of one node to Redis breaks, and no new one is taken for a while.
    CutRedisLink,
    /// Nothing passes between one node and Redis.
    HangRedisLink,
    /// What Redis answers one node comes late.
    SlowRedisLink,
    /// Redis hears one node, and its answers are lost.
    MuteRedisLink,
    /// As above, between one node and the database.
    CutDatabaseLink,
    /// As above, between one node and the database.
    HangDatabaseLink,
    /// As above, between one node and the database.
    SlowDatabaseLink,
    /// As above, between one node and the database.
    MuteDatabaseLink,
    /// SIGKILL of Redis; its file is checked, and it is started again.
    KillRedis,
    /// Redis stands still.
    PauseRedis,
    /// Redis has no memory left, and then has again.
    FillRedis,
    /// The disk of Redis is full until it ends; then there is room, and it is started again.
    FillRedisDisk,
    /// Somebody flushes Redis, and an operator repairs.
    FlushRedis,
    /// The same, and two operators repair at once.
    FlushRedisRepairTwice,
    /// Two operators repair at once although nothing is wrong.
    RepairForNothing,
    /// SIGKILL of a master; it comes back when its replica has its place.
    KillMaster,
    /// The same, and before that its replica heard nothing from it for a while.
    LoseMaster,
    /// SIGKILL of a replica; it comes back.
    KillReplica,
    /// A master stands still, for less than the cluster minds.
    PauseMaster,
    /// A master stands still until its replica has its place, and then goes on.
    PauseMasterLong,
    /// A replica stands still.
    PauseReplica,
    /// A replica is told to take over, and asks its master first.
    Failover,
    /// A replica is told to take over, and asks nobody.
    Takeover,
    /// A slot moves to another master.
    Reshard,
    /// One master has no memory left, and then has again.
    FillMaster,
    /// The disk of one master is full until it ends; it comes back when its replica has its place.
    FillMasterDisk,
    /// A replica hears nothing from its master, and both are there for all others.
    HangReplicaLink,
    /// Nothing passes between all nodes and a master; the other servers see it.
    HangMasterLink,
    /// Nothing passes between two masters.
    PartMasters,
    /// Nothing passes between a master and all other servers until its replica has its place; nodes still
    /// reach it.
    IsolateMaster,
    /// SIGKILL of the database; it is started again.
    KillDatabase,
    /// The database stands still.
    PauseDatabase,
    /// The database takes no writes.
    LockDatabase,
    /// The disk of the database is full, and then there is room; if it has ended, it is started again.
    FillDatabaseDisk,
}

/// Where a fault strikes. Two at the same time strike different places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Nodes,
    RedisLinks,
    DatabaseLinks,
    Redis,
    /// Masters and their replicas: a cluster, or servers that sentinels look after.
    Masters,
    Database,
    Operator,
}

/// What is known of a fault.
pub(crate) struct Facts {
    /// Its word on the command line.
    pub(crate) word: &'static str,
    pub(crate) place: Place,
    /// How long it lasts, in milliseconds, from and to.
    pub(crate) lasts_ms: (u32, u32),
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 40] = [
        Self::KillApi,
        Self::KillWorker,
        Self::KillAllNodes,
        Self::PauseApi,
        Self::PauseWorker,
        Self::RestartNode,
        Self::CutRedisLink,
        Self::HangRedisLink,
        Self::SlowRedisLink,
        Self::MuteRedisLink,
        Self::CutDatabaseLink,
        Self::HangDatabaseLink,
        Self::SlowDatabaseLink,
        Self::MuteDatabaseLink,
        Self::KillRedis,
        Self::PauseRedis,
        Self::FillRedis,
        Self::FillRedisDisk,
        Self::FlushRedis,
        Self::FlushRedisRepairTwice,
        Self::RepairForNothing,
        Self::KillMaster,
        Self::LoseMaster,
        Self::KillReplica,
        Self::PauseMaster,
        Self::PauseMasterLong,
        Self::PauseReplica,
        Self::Failover,
        Self::Takeover,
        Self::Reshard,
        Self::FillMaster,
        Self::FillMasterDisk,
        Self::HangReplicaLink,
        Self::HangMasterLink,
        Self::PartMasters,
        Self::IsolateMaster,
        Self::KillDatabase,
        Self::PauseDatabase,
        Self::LockDatabase,
        Self::FillDatabaseDisk,
    ];

    pub(crate) fn facts(self) -> Facts {
        let facts = |word, place, from, to| Facts { word, place, lasts_ms: (from, to) };
        match self {
            Self::KillApi => facts("kill-api", Place::Nodes, 0, 2_000),
            Self::KillWorker => facts("kill-worker", Place::Nodes, 0, 4_000),
            Self::KillAllNodes => facts("kill-all-nodes", Place::Nodes, 0, 1_000),
            Self::PauseApi => facts("pause-api", Place::Nodes, 200, 4_000),
            Self::PauseWorker => facts("pause-worker", Place::Nodes, 500, 9_000),
            Self::RestartNode => facts("restart-node", Place::Nodes, 0, 1_000),
            Self::CutRedisLink => facts("cut-redis-link", Place::RedisLinks, 0, 2_000),
            Self::HangRedisLink => facts("hang-redis-link", Place::RedisLinks, 200, 7_000),
            Self::SlowRedisLink => facts("slow-redis-link", Place::RedisLinks, 500, 3_000),
            Self::MuteRedisLink => facts("mute-redis-link", Place::RedisLinks, 200, 3_000),
            Self::CutDatabaseLink => facts("cut-database-link", Place::DatabaseLinks, 0, 2_000),
            Self::HangDatabaseLink => facts("hang-database-link", Place::DatabaseLinks, 200, 7_000),
            Self::SlowDatabaseLink => facts("slow-database-link", Place::DatabaseLinks, 500, 3_000),
            Self::MuteDatabaseLink => facts("mute-database-link", Place::DatabaseLinks, 200, 3_000),
            Self::KillRedis => facts("kill-redis", Place::Redis, 0, 3_000),
            Self::PauseRedis => facts("pause-redis", Place::Redis, 200, 6_500),
            Self::FillRedis => facts("fill-redis", Place::Redis, 5_000, 7_000),
            Self::FillRedisDisk => facts("fill-redis-disk", Place::Redis, 5_000, 7_000),
            Self::FlushRedis => facts("flush-redis", Place::Redis, 0, 2_000),
            Self::FlushRedisRepairTwice => facts("flush-repair-twice", Place::Redis, 0, 2_000),
            Self::RepairForNothing => facts("repair-for-nothing", Place::Operator, 0, 500),
            Self::KillMaster => facts("kill-master", Place::Masters, 0, 1_000),
            Self::LoseMaster => facts("lose-master", Place::Masters, 200, 1_500),
            Self::KillReplica => facts("kill-replica", Place::Masters, 0, 3_000),
            Self::PauseMaster => facts("pause-master", Place::Masters, 200, 1_000),
            Self::PauseMasterLong => facts("pause-master-long", Place::Masters, 0, 1_000),
            Self::PauseReplica => facts("pause-replica", Place::Masters, 200, 4_000),
            Self::Failover => facts("failover", Place::Masters, 0, 0),
            Self::Takeover => facts("takeover", Place::Masters, 0, 0),
            Self::Reshard => facts("reshard", Place::Masters, 0, 0),
            Self::FillMaster => facts("fill-master", Place::Masters, 5_000, 7_000),
            Self::FillMasterDisk => facts("fill-master-disk", Place::Masters, 0, 1_000),
            Self::HangReplicaLink => facts("hang-replica-link", Place::Masters, 200, 4_000),
            Self::HangMasterLink => facts("hang-master-link", Place::Masters, 200, 7_000),
            Self::PartMasters => facts("part-masters", Place::Masters, 200, 5_000),
            Self::IsolateMaster => facts("isolate-master", Place::Masters, 0, 1_000),
            Self::KillDatabase => facts("kill-database", Place::Database, 0, 3_000),
            Self::PauseDatabase => facts("pause-database", Place::Database, 200, 6_000),
            Self::LockDatabase => facts("lock-database", Place::Database, 5_000, 7_000),
            Self::FillDatabaseDisk => facts("fill-database-disk", Place::Database, 3_000, 7_000),
        }
    }

    /// The fault that a word of the command line means.
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fault| fault.facts().word == word)
    }

    /// Whether it can strike there.
    pub(crate) fn strikes(self, setting: Setting) -> bool {
        match self.facts().place {
            Place::Nodes | Place::DatabaseLinks | Place::Database => true,
            Place::RedisLinks | Place::Redis => setting == Setting::Redis,
            Place::Masters if setting == Setting::Sentinel => sentinel::knows(self),
            Place::Masters => setting.is_cluster(),
            Place::Operator => !matches!(setting, Setting::Postgres | Setting::Mariadb),
        }
    }

    /// Whether what was answered may be gone after it, by the tables in docs/GUARANTEES.md.
    fn may_lose(self, setting: Setting) -> bool {
        match self {
            Self::FlushRedis | Self::FlushRedisRepairTwice => true,
            Self::KillMaster
            | Self::LoseMaster
            | Self::PauseMaster
            | Self::PauseMasterLong
            | Self::FillMasterDisk
            | Self::IsolateMaster
            | Self::Takeover => setting == Setting::ClusterNowait,
            _ => false,
        }
    }

    /// Whether records fall behind while it lasts.
    pub(crate) fn delays_records(self) -> bool {
        matches!(self.facts().place, Place::Nodes | Place::Database | Place::DatabaseLinks)
    }

    /// Whether both at once leave a loss that somebody notices: what only a node knew that is gone
    /// as well is noticed by nobody.
    pub(crate) fn goes_with(self, other: Self, setting: Setting) -> bool {
        let kills_witness =
            |fault| matches!(fault, Self::KillApi | Self::KillAllNodes | Self::RestartNode);
        self.facts().place != other.facts().place
            && !(kills_witness(self) && other.may_lose(setting))
            && !(kills_witness(other) && self.may_lose(setting))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.facts().word)
    }
}

/// One fault, with everything that was left to chance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Act {
    pub(crate) fault: Fault,
    /// Which of several it strikes, modulo how many there are.
    pub(crate) which: u32,
    pub(crate) lasts_ms: u32,
}

impl Act {
    /// One of `count`.
    pub(crate) fn pick(&self, count: usize) -> usize {
        self.which as usize % count
    }

    /// Does it, and undoes it. Returns when what it struck works again by itself.
    pub(crate) fn carry_out(&self, world: &World) -> Result<()> {
        let from = world.clock.ms();
        let done = match self.fault.facts().place {
            Place::Nodes => nodes::carry_out(self, world),
            Place::RedisLinks | Place::DatabaseLinks => links::carry_out(self, world),
            Place::Redis => redis::carry_out(self, world),
            Place::Masters if world.setting == Setting::Sentinel => {
                sentinel::carry_out(self, world)
            }
            Place::Masters => cluster::carry_out(self, world),
            Place::Database => database::carry_out(self, world),
            Place::Operator => operator::carry_out(self, world),
        };
        if self.fault.may_lose(world.setting) {
            let troubled = world.are_records_troubled(from.saturating_sub(RECORDS_TROUBLED_MS));
            let behind_ms = if troubled { RECORDS_TROUBLED_MS } else { BEHIND_MS };
            world.may_have_lost(from.saturating_sub(behind_ms), world.clock.ms());
        }
        done
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {} ms)", self.fault, self.which, self.lasts_ms)
    }
}

/// There is no disk that could be filled.
fn no_disk(act: &Act, world: &World) -> Result<()> {
    world.log(&format!("{act} is skipped: no disk can be mounted here"));
    Ok(())
}

/// Waits until a server has ended by itself.
fn has_fallen(server: &Redis, world: &World) -> Result<()> {
    for _ in 0..FALL_LOOKS {
        if server.has_fallen() {
            // It is known to be down from here on.
            return server.kill();
        }
        world.wait(FALL_LOOK);
    }
    bail!("the server at {} goes on with a full disk", server.port())
}

#[cfg(test)]
mod tests {
    use super::Fault;
    use crate::setting::Setting;

    #[test]
    fn every_fault_has_its_own_word_and_strikes_somewhere() {
        for (place, fault) in Fault::ALL.into_iter().enumerate() {
            let word = fault.facts().word;
            assert_eq!(Fault::named(word), Some(fault));
            assert!(!Fault::ALL[..place].contains(&fault), "{word} is there twice");
            assert!(Setting::ALL.into_iter().any(|setting| fault.strikes(setting)), "{word}");
        }
        assert_eq!(Fault::named("rain"), None);
    }

    #[test]
    fn only_settings_that_say_so_lose_something() {
        for fault in Fault::ALL {
            let safe =
                [Setting::ClusterWait, Setting::Sentinel, Setting::Postgres, Setting::Mariadb];
            for setting in safe {
                assert!(!fault.strikes(setting) || !fault.may_lose(setting), "{fault}");
            }
        }
    }
}
