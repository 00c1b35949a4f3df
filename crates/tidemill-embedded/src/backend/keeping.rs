//! The keeper: everything that need not happen before an answer.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tidemill_engine::backend::Fault;
use tidemill_engine::command::{Command, Forget};
use tidemill_engine::record::Record;
use tidemill_engine::state::row::RowKey;
use tidemill_engine::warn_seldom;
use tidemill_model::{JobId, TenantId};
use tracing::debug_span;

use super::bell::Heard;
use super::embedded::{FLUSH_EVENTS, FLUSH_ROWS, HELD_BYTES_MAX, Shared};
use crate::store::retention::{
    Expired, FORGET_MAX, FORGETS_MAX, FORGOTTEN, Keeper, Pass, cursors, is_completed, is_completed_row,
};
use crate::store::rows::row_store::{Checkpoint, io_fault};
use crate::store::{group_bytes, sweep_blobs};

/// After how long a few changed rows are written. Then nothing is written until something changes.
const QUIET: Duration = Duration::from_secs(5);
/// How often old events are looked for. Only reading, unless something has expired.
const RETENTION_EVERY: Duration = Duration::from_secs(3_600);

/// How long the keeper pauses before it tries again to make damaged rows anew, at first and at most.
const MEND_PAUSE: Duration = Duration::from_secs(1);
const MEND_PAUSE_MAX: Duration = Duration::from_secs(600);
/// At most where only space is missing: that may come back at any moment, and until then rows cannot be asked.
const MEND_FULL_PAUSE_MAX: Duration = Duration::from_secs(10);

/// When damaged rows are made again after that failed.
#[derive(Default)]
struct Mending {
    pause: Duration,
    again_at: Option<Instant>,
}

impl Shared {
    pub(super) fn run_keeper(&self) {
        let _span = debug_span!("keeper").entered();
        let mut waiting = Waiting::default();
        let mut expire_at = Instant::now() + RETENTION_EVERY;
        let mut mending = Mending::default();
        loop {
            let until =
                [waiting.until(), mending.again_at].into_iter().flatten().fold(expire_at, Instant::min);
            match self.keeper_bell.wait(Some(until)) {
                Heard::Closed => return,
                Heard::Ring | Heard::Timeout => {}
            }
            self.mend_rows(&mut mending);
            self.prepare_spare();
            self.keep_rows(&mut waiting);
            if expire_at <= Instant::now() {
                if let Err(fault) = self.expire() {
                    warn_seldom!(
                        fault,
                        "what is past its time could not be dropped; it is tried again in an hour"
                    );
                }
                if let Err(fault) = sweep_blobs(&self.blobs, &self.reader, self.clock.now()) {
                    warn_seldom!(
                        fault,
                        "large values of nobody could not be removed; it is tried again in an hour"
                    );
                }
                expire_at = Instant::now() + RETENTION_EVERY;
            }
            // Sealing takes its time: rows come between, or a store that is written without a pause would have ever
            // more to replay.
            while !self.closing.load(Ordering::Acquire) && self.seal_next() {
                self.prepare_spare();
                self.keep_rows(&mut waiting);
            }
        }
    }

    /// Makes the file of the next segment ready. A fault here harms nothing that was promised: the log has it all, and the
    /// writer meets the same disk.
    fn prepare_spare(&self) {
        if let Err(error) = self.log_keeper.prepare_spare() {
            warn_seldom!(Fault::from(error), "no file could be made ready for the next segment");
        }
    }

    /// Seals a segment that is full. Says whether there was one; one that cannot be sealed stays as it is and is tried again.
    fn seal_next(&self) -> bool {
        self.log_keeper.seal_next().unwrap_or_else(|error| {
            warn_seldom!(Fault::from(error), "a segment could not be sealed");
            false
        })
    }

    /// Makes damaged rows again. If that fails too, it is tried again after ever longer pauses.
    fn mend_rows(&self, mending: &mut Mending) {
        let now = Instant::now();
        if self.rows.trouble.fault().is_none() || mending.again_at.is_some_and(|at| now < at) {
            return;
        }
        match self.rows.heal() {
            Ok(()) => *mending = Mending::default(),
            Err(fault) => {
                self.options.tell.say(&format!("the derived rows could not be made again: {fault}"));
                let most = if matches!(fault, Fault::Full(_)) { MEND_FULL_PAUSE_MAX } else { MEND_PAUSE_MAX };
                mending.pause = (mending.pause * 2).clamp(MEND_PAUSE, most);
                mending.again_at = Some(now + mending.pause);
            }
        }
    }

    /// Takes changed rows out of the state if they are many or have waited long enough, and has those that were taken
    /// written when they are due.
    fn keep_rows(&self, waiting: &mut Waiting) {
        self.flush_planned.store(false, Ordering::Relaxed);
        let dirty = self.deciding().decider.state.dirty_len();
        self.flush_planned.store(dirty > 0, Ordering::Relaxed);
        let held = self.rows.held_bytes();
        if dirty == 0 && held == 0 {
            waiting.since = None;
            return;
        }
        let since = *waiting.since.get_or_insert_with(Instant::now);
        let has_waited = since + QUIET <= Instant::now();
        let is_behind = self.replay_len() >= FLUSH_EVENTS && self.settling.load(Ordering::Acquire) == 0;
        // Rows that are held while others are being written have a limit too: beyond it, callers that change rows
        // wait.
        if (dirty >= FLUSH_ROWS || has_waited || is_behind) && held < 2 * HELD_BYTES_MAX {
            self.flush_planned.store(false, Ordering::Relaxed);
            // What is not taken now stays in the state, and the log has it.
            if let Err(fault) = self.hold_rows() {
                warn_seldom!(fault, "changed rows could not be taken for the next checkpoint");
            }
            waiting.since = Some(Instant::now());
        }
        if has_waited {
            waiting.since = None;
            self.settle_soon.store(true, Ordering::Release);
        }
        if has_waited || is_behind || self.rows.held_bytes() >= HELD_BYTES_MAX {
            self.settler_bell.ring();
        }
    }

    /// Writes rows that were taken, on a thread of its own: those that change meanwhile can still be taken.
    pub(super) fn run_settler(&self) {
        let _span = debug_span!("rows").entered();
        while self.settler_bell.wait(None) == Heard::Ring {
            // It may have been rung for what is written by now.
            let is_due = self.settle_soon.swap(false, Ordering::AcqRel)
                || self.rows.held_bytes() >= HELD_BYTES_MAX
                || self.replay_len() >= FLUSH_EVENTS;
            if is_due {
                // A fault harms nothing that was promised, see `prepare_spare`.
                if let Err(fault) = self.settle_rows() {
                    warn_seldom!(fault, "a checkpoint could not be written");
                }
                self.keeper_bell.ring();
            }
        }
    }

    /// How many events an open would have to replay now.
    pub(super) fn replay_len(&self) -> u64 {
        self.synced_seq.load(Ordering::Acquire).saturating_sub(self.flushed_seq.load(Ordering::Acquire))
    }

    /// Drops what is past its time, as far as checkpoints allow.
    pub(super) fn expire(&self) -> Result<Expired, Fault> {
        let Some(checkpoint) = self.rows.stored_checkpoint()? else { return Ok(Expired::default()) };
        let now = self.clock.now();
        let oldest = now.minus(self.options.policy.execution_millis);
        for kind in FORGOTTEN {
            let mut after = None;
            for _ in 0..FORGETS_MAX {
                let keys = self.rows.outdated(kind, now, oldest, after.as_ref(), FORGET_MAX)?;
                let Some(last) = keys.last().cloned() else { break };
                let (_, number) = self.decide(&[Command::Forget(Forget { keys })])?;
                self.write_or_wait(number)?;
                after = Some(last);
            }
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
        self.hold_rows()?;
        if self.settle_rows()? {
            return Ok(true);
        }
        if self.rows.found().is_none() {
            return Ok(false);
        }
        self.hold_rows()?;
        self.settle_rows()
    }

    /// Writes the rows that were taken. Says whether there were any.
    fn settle_rows(&self) -> Result<bool, Fault> {
        let _settling = Settling::begin(self);
        let settled = self.rows.settle()?;
        if let Some(checkpoint) = self.rows.stored_checkpoint()? {
            self.flushed_seq.store(checkpoint.position.next_seq.0.saturating_sub(1), Ordering::Release);
        }
        Ok(settled)
    }

    /// Takes the rows that changed out of the state, with the place in the log they reflect.
    fn hold_rows(&self) -> Result<(), Fault> {
        let _turn = self.flush_turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut writing = self.writing();
        if let Some(fault) = self.progress.stopped_fast() {
            return Err(fault);
        }
        // Rows are taken at the very moment a group is closed: what is decided later belongs behind the checkpoint.
        let found = self.rows.found();
        let (taken, newest) = {
            let mut deciding = self.deciding();
            deciding.close();
            deciding.decider.state.found_stored(found.as_deref().unwrap_or_default());
            (deciding.decider.state.take_dirty(), deciding.newest())
        };
        while self.progress.synced() < newest && self.write_group(&mut writing)? {}
        let noted = || found.iter().for_each(|found| self.rows.noted(found));
        let Some(rows) = taken else {
            noted();
            return Ok(());
        };
        let position = writing.log.end();
        let flushing = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        drop(writing);
        self.rows.hold(&rows, Checkpoint { position });
        noted();
        drop(flushing);
        self.deciding().decider.state.stored();
        self.relieved.ring();
        Ok(())
    }
}

/// Counts a thread that writes rows, and wakes its waiters when it is done, however it ends.
struct Settling<'a>(&'a Shared);

impl<'a> Settling<'a> {
    fn begin(shared: &'a Shared) -> Self {
        shared.settling.fetch_add(1, Ordering::AcqRel);
        Self(shared)
    }
}

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        self.0.settling.fetch_sub(1, Ordering::AcqRel);
        self.0.relieved.ring();
    }
}

/// Since when rows wait to be written that are not many.
#[derive(Default)]
struct Waiting {
    since: Option<Instant>,
}

impl Waiting {
    fn until(&self) -> Option<Instant> {
        self.since.map(|since| since + QUIET)
    }
}

impl Keeper for &Shared {
    fn is_completed(&mut self, work: &RowKey) -> Result<bool, Fault> {
        let known = is_completed(&self.deciding().decider.state, work);
        // What is not in memory is stored, and what is completed stays so: nothing is missed by looking later.
        known.map_or_else(|| Ok(self.rows.get(work)?.is_some_and(|row| is_completed_row(&row))), Ok)
    }

    fn cursors(&mut self) -> Result<Vec<Record>, Fault> {
        cursors(&self.deciding().decider)
    }

    fn carry(&mut self, keys: &[RowKey]) -> Result<u64, Fault> {
        let full = group_bytes(&self.options.log);
        let mut carried = 0;
        let mut rest = keys;
        while !rest.is_empty() {
            let number = {
                // Into the open group: the rows are as of everything in it.
                let mut deciding = self.deciding();
                while let Some((key, others)) = rest.split_first()
                    && deciding.open_bytes() < full
                {
                    carried += u64::from(deciding.push_carried(key)?);
                    rest = others;
                }
                deciding.newest()
            };
            self.write_or_wait(number)?;
        }
        Ok(carried)
    }

    fn carry_job(&mut self, tenant: &TenantId, job: JobId) -> Result<u64, Fault> {
        let full = group_bytes(&self.options.log);
        let (carried, number) = {
            // All of it as of one moment, with nothing between: what a job is made of only means something together.
            let mut deciding = self.deciding();
            let mut carried = 0;
            for key in deciding.decider.job_keys(tenant, job)? {
                if deciding.open_bytes() >= full {
                    deciding.close();
                }
                carried += u64::from(deciding.push_carried(&key)?);
            }
            (carried, deciding.newest())
        };
        self.write_or_wait(number)?;
        Ok(carried)
    }

    fn note_blob(&mut self, tenant: &TenantId, key: &str) -> Result<(), Fault> {
        self.blobs.note(tenant, key).map_err(|error| io_fault(&error))
    }

    fn remove_blob(&mut self, tenant: &TenantId, key: &str) -> Result<(), Fault> {
        self.blobs.remove_noted(tenant, key).map_err(|error| io_fault(&error))
    }
}
