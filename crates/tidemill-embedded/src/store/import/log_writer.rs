//! Writes imported entries to a fresh log, in groups, and seals what is full.

use tidemill_engine::backend::Fault;
use tidemill_model::Event;

use super::super::control::Control;
use crate::log::{Group, Links, Log, LogKeeper, Seq};

/// A group is written once it has this many bytes.
const GROUP_BYTES: usize = 1 << 20;

pub(super) struct LogWriter {
    log: Log,
    keeper: LogKeeper,
    group: Group,
    next_seq: Seq,
    scratch: Vec<u8>,
}

impl LogWriter {
    pub(super) fn new(log: Log) -> Self {
        let (keeper, next_seq) = (log.keeper(), log.next_seq());
        Self { log, keeper, group: Group::new(), next_seq, scratch: Vec::new() }
    }

    /// The number that the next event gets.
    pub(super) fn next_seq(&self) -> Seq {
        self.next_seq
    }

    pub(super) fn event(&mut self, event: &Event, links: &Links) -> Result<(), Fault> {
        self.group.push_event(self.next_seq, event, links);
        self.next_seq = self.next_seq.next();
        self.write_if_large()
    }

    /// Writes entries that belong together, in as many groups as they need.
    pub(super) fn controls(&mut self, controls: &[Control]) -> Result<(), Fault> {
        for control in controls {
            self.scratch.clear();
            control.encode(&mut self.scratch);
            self.group.push_control(&self.scratch);
            self.write_if_large()?;
        }
        Ok(())
    }

    /// Writes what is left and seals all that can be sealed.
    pub(super) fn finish(mut self) -> Result<(), Fault> {
        self.write()
    }

    fn write_if_large(&mut self) -> Result<(), Fault> {
        if self.group.byte_count() >= GROUP_BYTES { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<(), Fault> {
        if self.group.is_empty() {
            return Ok(());
        }
        self.keeper.prepare_spare()?;
        let appended = self.log.append(&self.group)?;
        self.log.sync()?;
        self.log.publish(&self.group, appended)?;
        self.group.clear();
        while self.keeper.seal_next()? {}
        Ok(())
    }
}
