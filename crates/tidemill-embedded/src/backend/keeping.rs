//! The keeper: everything that need not happen before an answer.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tidemill_engine::backend::Fault;
use tidemill_engine::command::Command;
use tidemill_engine::record::RecordKind;
use tidemill_engine::state::row::RowKey;
use tidemill_model::{Event, JobId, TenantId};

use super::bell::Heard;
use super::embedded::{FLUSH_EVENTS, FLUSH_ROWS, Shared};
use crate::store::retention::{Expired, FORGET_MAX, Keeper, Pass, is_open};
use crate::store::row_store::{Checkpoint, io_fault};
use crate::store::sweep_blobs;

/// Changed rows are written after so long, even when they are few. Then nothing is written until something changes.
const QUIET: Duration = Duration::from_secs(5);
/// How often old events are looked for. Only reading, unless something has expired.
const RETENTION_EVERY: Duration = Duration::from_secs(3_600);

impl Shared {
    pub(super) fn run_keeper(&self) {
        let mut flush_at: Option<Instant> = None;
        let mut expire_at = Instant::now() + RETENTION_EVERY;
        loop {
            match self.keeper_bell.wait(Some(flush_at.map_or(expire_at, |at| at.min(expire_at)))) {
                Heard::Closed => return,
                Heard::Ring | Heard::Timeout => {}
            }
            // A fault here harms nothing that was promised: the log has it all, and the writer meets the same disk.
            let _ = self.log_keeper.prepare_spare();
            flush_at = self.flush_if_due(flush_at);
            if expire_at <= Instant::now() {
                let _ = self.expire();
                let _ = sweep_blobs(&self.blobs, &self.reader, self.clock.now());
                expire_at = Instant::now() + RETENTION_EVERY;
            }
            // Sealing takes its time: rows come between, or a store that is written without a pause would have ever
            // more to replay.
            while !self.closing.load(Ordering::Acquire) && self.log_keeper.seal_next().unwrap_or(false) {
                let _ = self.log_keeper.prepare_spare();
                flush_at = self.flush_if_due(flush_at);
            }
        }
    }

    /// Writes rows if there are many, if the log has run far ahead of them, or if they have waited long enough. Tells
    /// until when those that are left may wait.
    fn flush_if_due(&self, flush_at: Option<Instant>) -> Option<Instant> {
        self.flush_planned.store(false, Ordering::Relaxed);
        let dirty = self.deciding().decider.state.dirty_len();
        self.flush_planned.store(dirty > 0, Ordering::Relaxed);
        if dirty == 0 {
            return None;
        }
        let waited = flush_at.is_some_and(|at| at <= Instant::now());
        if dirty < FLUSH_ROWS && !waited && self.replay_len() < FLUSH_EVENTS {
            return flush_at.or_else(|| Some(Instant::now() + QUIET));
        }
        let _ = self.flush_rows();
        self.flush_planned.store(false, Ordering::Relaxed);
        None
    }

    /// How many events an open would have to replay now.
    pub(super) fn replay_len(&self) -> u64 {
        self.synced_seq.load(Ordering::Acquire).saturating_sub(self.flushed_seq.load(Ordering::Acquire))
    }

    /// Drops what is past its time, as far as checkpoints allow.
    pub(super) fn expire(&self) -> Result<Expired, Fault> {
        let Some(checkpoint) = self.rows.checkpoint()? else { return Ok(Expired::default()) };
        let keys = self.rows.outdated(RecordKind::Idempotency, self.clock.now(), FORGET_MAX)?;
        if !keys.is_empty() {
            let (_, number) = self.decide(&[Command::Forget { keys }])?;
            self.write_or_wait(number)?;
        }
        let pass = Pass {
            reader: &self.reader,
            log_keeper: &self.log_keeper,
            retention: self.options.retention,
            checkpoint,
            now: self.clock.now(),
        };
        pass.run(&mut &*self)
    }

    /// Writes the rows that changed, with the place in the log they reflect. Says whether there were any.
    pub(super) fn flush_rows(&self) -> Result<bool, Fault> {
        let _turn = self.flush_turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut writing = self.writing();
        let mut taken = None;
        // Rows are taken at the very moment a group is closed: what is decided later belongs behind the checkpoint.
        self.write_group_and(&mut writing, |deciding| taken = deciding.decider.state.take_dirty())?;
        let Some(rows) = taken else { return Ok(false) };
        let position = writing.log.end();
        let flushing = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        drop(writing);
        let written = self.rows.write(&rows, Checkpoint { position });
        drop(flushing);
        let state = &mut self.deciding().decider.state;
        match written {
            Ok(()) => {
                state.stored();
                self.flushed_seq.store(position.next_seq.0.saturating_sub(1), Ordering::Release);
                Ok(true)
            }
            Err(fault) => {
                state.not_stored();
                Err(fault)
            }
        }
    }
}

impl Keeper for &Shared {
    fn is_open(&mut self, event: &Event) -> bool {
        is_open(&self.deciding().decider, event)
    }

    fn carry(&mut self, keys: Vec<RowKey>) -> Result<u64, Fault> {
        // Into the open group: the rows are as of everything in it.
        let (carried, number) = {
            let mut deciding = self.deciding();
            let carried = deciding.push_carried(&keys)?;
            (carried, deciding.newest())
        };
        self.write_or_wait(number)?;
        Ok(carried)
    }

    fn job_keys(&mut self, tenant: &TenantId, job: JobId) -> Result<Vec<RowKey>, Fault> {
        self.deciding().decider.job_keys(tenant, job)
    }

    fn remove_blob(&mut self, tenant: &TenantId, key: &str) -> Result<(), Fault> {
        self.blobs.remove(tenant, key).map_err(|error| io_fault(&error))
    }
}
