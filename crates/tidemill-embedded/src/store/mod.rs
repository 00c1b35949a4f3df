//! The store: log, state and rows joined, without threads and without a clock.
//!
//! `Store` is what the command line's offline tools and the simulation drive directly; the `backend` module puts
//! threads around the same parts.

mod blob_sweep;
mod commit_size;
pub mod control;
pub(crate) mod decider;
mod derive;
mod difference;
pub mod export;
mod hand_over;
pub mod import;
mod look;
pub mod rows;
pub(crate) use blob_sweep::sweep as sweep_blobs;
pub(crate) use commit_size::{group_bytes, wanted};
pub(crate) use derive::decider as decider_from_disk;
pub(crate) mod query;
mod rebuild;
pub mod retention;
mod tell;
pub mod verify;
pub mod watch;
pub(crate) use tidemill_engine::codec::{row_key, stored};

use std::sync::Arc;

use tidemill_engine::backend::{Answer, Fault};
use tidemill_engine::command::Command;
use tidemill_engine::policy::Policy;
use tidemill_engine::site::Site;
use tidemill_engine::state::State;
use tidemill_model::events::event_query::{EventPage, EventQuery};
use tidemill_model::{Entity, Event, TenantId, Timestamp};

use crate::blob::Blobs;
use crate::disk::Disk;
use crate::log::{Group, Log, LogConfig, LogError, LogKeeper, LogReader};
use decider::{Decider, Wakeups};
use rows::row_store::{Checkpoint, Former, RowStore};
use rows::row_trouble::{MADE_AGAIN, RowConfig};
pub use tell::Tell;

/// How a store is set up.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    pub policy: Policy,
    pub site: Site,
    pub log: LogConfig,
    /// Makes the ids of this life of the store differ from those of others.
    pub seed: u64,
    pub retention: retention::Retention,
    /// Takes messages for an operator that nobody asked for.
    pub tell: Tell,
    /// How much memory may be used for pages of rows.
    pub row_cache_bytes: usize,
}

/// How much memory is used for pages of rows if nobody says otherwise.
const ROW_CACHE_BYTES: usize = 16 << 20;

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            site: Site::default(),
            log: LogConfig::default(),
            seed: 0,
            retention: retention::Retention::default(),
            tell: Tell::default(),
            row_cache_bytes: ROW_CACHE_BYTES,
        }
    }
}

/// Everything of one data directory, for one caller at a time.
pub struct Store {
    pub(crate) options: StoreOptions,
    pub(crate) log: Log,
    pub(crate) reader: LogReader,
    pub(crate) keeper: LogKeeper,
    pub(crate) rows: Arc<RowStore>,
    pub(crate) blobs: Blobs,
    pub(crate) decider: Decider,
    group: Group,
    /// Set once the state has run ahead of the log and could not be made again: nothing may be built on it.
    stopped: Option<Fault>,
}

impl Store {
    /// Opens the data directory: rows up to their checkpoint, then what the log says after it.
    pub fn open(disk: Arc<dyn Disk>, options: StoreOptions) -> Result<Self, Fault> {
        Self::open_watched(disk, options, &mut watch::unwatched)
    }

    /// Like `open`, for callers that want to know how far it is.
    pub fn open_watched(
        disk: Arc<dyn Disk>,
        options: StoreOptions,
        watch: &mut watch::Watch<'_>,
    ) -> Result<Self, Fault> {
        let config = RowConfig::of(&options);
        Self::part_with_former_rows(&disk, &options)?;
        let mut rows = Arc::new(RowStore::open(&disk, config, &options.tell)?);
        let checkpoint = match rows.checkpoint() {
            // Rows that do not know what they reflect are worth nothing.
            Err(Fault::Damaged(problem)) => {
                options.tell.say(&format!("{MADE_AGAIN}: {problem}"));
                drop(rows);
                rows = Arc::new(RowStore::make_anew(&disk, config)?);
                None
            }
            checkpoint => checkpoint?,
        };
        let log =
            Log::open(Arc::clone(&disk), options.log, checkpoint.map(|checkpoint| checkpoint.position))?;
        let (reader, keeper) = (log.reader(), log.keeper());
        let decider = match derive::decider_watched(&rows, &log, &options, watch) {
            // If it is the rows and not the log, the log makes them again.
            Err(Fault::Damaged(problem)) if keeper.verify()?.is_empty() => {
                options.tell.say(&format!("{MADE_AGAIN}: {problem}"));
                drop(rows);
                rows = Arc::new(RowStore::make_anew(&disk, config)?);
                derive::decider_watched(&rows, &log, &options, watch)
            }
            derived => derived,
        }?;
        rows.trouble.mend_with(rows::row_heal::Healer::new(reader.clone(), options.clone()));
        let blobs = Blobs::open(disk).map_err(|error| rows::row_store::io_fault(&error))?;
        Ok(Self { options, log, reader, keeper, rows, blobs, decider, group: Group::new(), stopped: None })
    }

    /// Rows of the form before go, because they have no checksums: the log makes them again. It must be able to.
    fn part_with_former_rows(disk: &Arc<dyn Disk>, options: &StoreOptions) -> Result<(), Fault> {
        let Former::Rows(checkpoint) = RowStore::former(disk)? else { return Ok(()) };
        Self::check_log(disk, options, checkpoint)?;
        options.tell.say("the derived rows are of an earlier form and are made again from the log");
        RowStore::remove(disk)
    }

    /// Every byte of the log must be right, and it must reach as far as the rows do.
    fn check_log(
        disk: &Arc<dyn Disk>,
        options: &StoreOptions,
        checkpoint: Option<Checkpoint>,
    ) -> Result<(), Fault> {
        let log = Log::open(Arc::clone(disk), options.log, checkpoint.map(|checkpoint| checkpoint.position))?;
        let problems = log.keeper().verify()?;
        let Some(first) = problems.first() else { return Ok(()) };
        Err(Fault::Damaged(match problems.len() - 1 {
            0 => format!("{first}; the rows were left as they are"),
            more => format!("{first}, and {more} more such findings; the rows were left as they are"),
        }))
    }

    /// Decides the commands in order, writes them as one group and syncs it.
    pub fn execute(&mut self, commands: &[Command], now: Timestamp) -> Result<Vec<Answer>, Fault> {
        self.check_stopped()?;
        self.log.reserve(wanted(&self.options.log, commands))?;
        self.group.clear();
        self.decider.load_all(commands, now)?;
        let mut wakeups = Wakeups::default();
        let mut answers = Vec::with_capacity(commands.len());
        for command in commands {
            match self.decider.decide(command, now, &mut self.group, &mut wakeups) {
                Ok(answer) => answers.push(answer),
                Err(fault) => return Err(self.fall_back(fault)),
            }
        }
        match self.write() {
            Ok(()) => Ok(answers),
            Err(fault) => Err(self.fall_back(fault)),
        }
    }

    fn write(&mut self) -> Result<(), Fault> {
        let group = std::mem::take(&mut self.group);
        let written = self.write_apart(&group);
        self.group = group;
        written
    }

    /// Writes a group that changes nothing in the state.
    fn write_apart(&mut self, group: &Group) -> Result<(), Fault> {
        if group.is_empty() {
            return Ok(());
        }
        let appended = self.log.append(group)?;
        self.log.sync()?;
        Ok(self.log.publish(group, appended)?)
    }

    /// The state ran ahead of the log: makes it anew from what is on disk.
    fn fall_back(&mut self, fault: Fault) -> Fault {
        self.group.clear();
        match derive::decider(&self.rows, &self.log, &self.options) {
            Ok(decider) => {
                self.decider = decider;
                fault
            }
            Err(worse) => {
                let fault = Fault::Stopped(format!("{fault}; what was decided cannot be undone: {worse}"));
                self.stopped = Some(fault.clone());
                fault
            }
        }
    }

    pub(crate) fn check_stopped(&self) -> Result<(), Fault> {
        self.stopped.clone().map_or(Ok(()), Err)
    }

    /// Writes the rows that changed, with the place in the log they reflect. Says whether there were any.
    pub fn flush_rows(&mut self) -> Result<bool, Fault> {
        self.check_stopped()?;
        self.hold_rows()?;
        let settled = self.rows.settle()?;
        if settled || self.rows.found().is_none() {
            return Ok(settled);
        }
        self.hold_rows()?;
        self.rows.settle()
    }

    /// Takes the rows that changed out of the state, to be written later with others. Says whether there were any.
    pub fn hold_rows(&mut self) -> Result<bool, Fault> {
        self.check_stopped()?;
        let found = self.rows.found();
        self.decider.state.found_stored(found.as_deref().unwrap_or_default());
        let taken = self.decider.state.take_dirty();
        if let Some(rows) = &taken {
            self.rows.hold(rows, Checkpoint { position: self.log.end() });
            self.decider.state.stored();
        }
        if let Some(found) = &found {
            self.rows.noted(found);
        }
        Ok(taken.is_some())
    }

    /// Seals one full segment, if there is one.
    pub fn seal(&mut self) -> Result<bool, Fault> {
        Ok(self.keeper.seal_next()?)
    }

    /// Removes blobs that no event came to name. Says how many.
    pub fn sweep_blobs(&mut self, now: Timestamp) -> Result<u32, Fault> {
        sweep_blobs(&self.blobs, &self.reader, now)
    }

    pub fn state(&self) -> &State {
        &self.decider.state
    }

    pub fn events(&self, query: &EventQuery) -> Result<EventPage, Fault> {
        query::events(&self.reader, &self.decider, query, Timestamp::MIN)
    }

    pub fn latest(&self, tenant: &TenantId, entity: &Entity) -> Result<Option<Event>, Fault> {
        let stream = query::stream(&self.decider, tenant, entity)?;
        stream.map_or(Ok(None), |stream| query::latest(&self.reader, &stream, Timestamp::MIN))
    }

    pub fn put_blob(&self, tenant: &TenantId, key: &str, bytes: &[u8]) -> Result<(), Fault> {
        self.blobs.put(tenant, key, bytes).map_err(|error| rows::row_store::io_fault(&error))
    }

    pub fn blob(&self, tenant: &TenantId, key: &str) -> Result<Option<Vec<u8>>, Fault> {
        self.blobs.get(tenant, key).map_err(|error| rows::row_store::io_fault(&error))
    }
}

impl From<LogError> for Fault {
    fn from(error: LogError) -> Self {
        let text = chain(&error);
        match error {
            LogError::Full { .. } => Self::Full(text),
            LogError::Corrupt { .. } | LogError::Lost { .. } => Self::Damaged(text),
            LogError::Newer { .. } => Self::Newer(text),
            _ => Self::Stopped(text),
        }
    }
}

/// An error with what it says of its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
