//! Questions that may be asked twice, and answers that are believed only if they come from the state
//! this process knows.

use redis::{Cmd, Pipeline, Value};

use super::cell::PartitionKeys;
use super::era::Era;
use super::lanes::Patience;
use super::link::{Failure, Kind};
use super::{PartitionState, SCRIPTS, Shared};
use crate::{Error, chain};

/// Times that a partition may seem to be lost and turn out not to be, before whoever asks is told to
/// come again.
const MAX_FALSE_ALARMS: usize = 8;

impl Shared {
    /// A question that changes nothing, answered only by the state this process knows.
    pub(super) async fn read(&self, partition: u16, cmd: &Cmd) -> Result<Value, Error> {
        let pipe = self.with_state(partition, cmd);
        for _ in 0..MAX_FALSE_ALARMS {
            let answers = self.ask_patiently(partition, &pipe);
            if let Some(answer) = self.checked(partition, answers).await? {
                return Ok(answer);
            }
        }
        Err(Error::Unavailable)
    }

    /// The same, tried once: for whoever tries again anyway.
    pub(super) async fn read_once(&self, partition: u16, cmd: &Cmd) -> Result<Value, Error> {
        let pipe = self.with_state(partition, cmd);
        let answers = self.link.ask_many(partition, &pipe);
        self.checked(partition, answers).await?.ok_or(Error::Unavailable)
    }

    /// Asks for the state of a partition first.
    fn with_state(&self, partition: u16, cmd: &Cmd) -> Pipeline {
        let meta = PartitionKeys::new(&self.link.place().prefix, partition).meta;
        let mut pipe = Pipeline::with_capacity(2);
        pipe.add_command(PartitionState::ask(&meta));
        pipe.add_command(cmd.clone());
        pipe
    }

    /// The answer, if it was given by the state this process knows; nothing if that only seemed not
    /// to be so.
    async fn checked(
        &self,
        partition: u16,
        answers: impl Future<Output = Result<Vec<Value>, Failure>>,
    ) -> Result<Option<Value>, Error> {
        let era = self.era(partition);
        if era.is_lost() {
            return Err(Error::Unavailable);
        }
        let known = era.known();
        let answers = answers.await.map_err(|failure| {
            tracing::warn!("not read: {}", chain(&failure));
            Error::Unavailable
        })?;
        let Ok([meta, answer]) = <[Value; 2]>::try_from(answers) else {
            return Err(Error::Unavailable);
        };
        let state = PartitionState::read(meta);
        if era.fits(known, &state) {
            return Ok(Some(answer));
        }
        match self.loss(partition, &era, &state).await {
            Loss::None => Ok(None),
            Loss::Sure | Loss::Unknown => Err(Error::Unavailable),
        }
    }

    /// A partition was found in a state that is not the one this process knows. If it is empty, its
    /// slot may be on its way to another server: then its owner is asked once more, for this one key,
    /// before that is believed. Everything else is lost at once: whoever asked again later might find
    /// that others have made the log longer.
    pub(super) async fn loss(&self, partition: u16, era: &Era, found: &PartitionState) -> Loss {
        if !found.epoch.is_empty() {
            era.lose(found);
            return Loss::Sure;
        }
        let known = era.known();
        let meta = PartitionKeys::new(&self.link.place().prefix, partition).meta;
        match self.link.ask(partition, &PartitionState::ask(&meta)).await.map(PartitionState::read)
        {
            Ok(state) if era.fits(known, &state) => Loss::None,
            Ok(state) => {
                era.lose(&state);
                Loss::Sure
            }
            Err(failure) => {
                tracing::warn!(partition, "a loss was not confirmed: {}", chain(&failure));
                Loss::Unknown
            }
        }
    }

    /// Asks what may be asked twice, until it is answered, for as long as [`lanes::RETRY_FOR`].
    pub(super) async fn ask_patiently(
        &self,
        partition: u16,
        pipe: &Pipeline,
    ) -> Result<Vec<Value>, Failure> {
        let mut patience = Patience::start();
        loop {
            let failure = match self.link.ask_many(partition, pipe).await {
                Ok(answers) => return Ok(answers),
                Err(failure) => failure,
            };
            if failure.kind == Kind::NoScript {
                self.load_scripts(partition).await?;
            }
            if failure.kind == Kind::Lasting || !patience.pause().await {
                return Err(failure);
            }
        }
    }

    pub(super) async fn load_scripts(&self, partition: u16) -> Result<(), Failure> {
        for script in SCRIPTS {
            self.link.ask(partition, &script.load()).await?;
        }
        Ok(())
    }

    pub(super) async fn load_all_scripts(&self) -> Result<(), Failure> {
        for script in SCRIPTS {
            let loaded = self.link.ask_servers(&script.load()).await;
            loaded.into_iter().try_for_each(|answer| answer.map(drop))?;
        }
        Ok(())
    }
}

/// Whether a partition that seemed to be lost is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    Sure,
    /// It only seemed so.
    None,
    /// Its owner does not answer.
    Unknown,
}
