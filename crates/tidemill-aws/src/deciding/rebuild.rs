//! Making the state from rows and log.

use std::collections::BTreeSet;

use tidemill_engine::backend::Fault;
use tidemill_engine::codec::control::Control;
use tidemill_engine::commit::RecordWrite;
use tidemill_engine::record::RecordKind;
use tidemill_engine::state::State;
use tidemill_engine::state::row::{JobRows, Row, RowKey};
use tidemill_model::{JobId, TenantId};
use tokio::task::JoinSet;

use super::core::{Core, Stuck, job_of};
use crate::events::recent_events::RecentEvents;
use crate::fault::{damaged, unavailable};
use crate::log::commit_log::CommitLog;
use crate::log::group::{Entry, first_seq, read_group};
use crate::rows::checkpoint::Checkpoint;
use crate::rows::row_item::{record_key, records_partition};
use crate::rows::row_scan::Scan;
use crate::rows::row_store::ROWS_AT_ONCE;
use crate::service_pause::ServicePause;

/// How often the state is made anew from a checkpoint that stays the same.
const TRIES_MAX: u32 = 4;
/// How many jobs are loaded side by side.
const JOBS_AT_ONCE: usize = 16;

impl Core {
    /// Makes the state from rows and log. `sent` is the group up to which all is sent.
    pub(crate) async fn rebuild(&mut self, log: &CommitLog, sent: u64) -> Result<(), Fault> {
        self.is_sound = false;
        let told = self.told;
        let (mut backoff, mut stood, mut found_at) = (ServicePause::default(), 0, None);
        loop {
            match self.try_rebuild(log, sent).await {
                Ok(()) => break,
                Err(Stuck::Fault(fault)) => return Err(fault),
                // Somebody wrote newer rows meanwhile, and then the checkpoint has moved.
                Err(Stuck::Behind) => {}
            }
            let found = Some(self.rows.checkpoint().await?);
            stood = if found == found_at { stood + 1 } else { 0 };
            if stood == TRIES_MAX {
                return Err(self.what_is_missing(found.flatten()).await?);
            }
            found_at = found;
            backoff.wait().await;
        }
        // A process that opens the store has no records yet, and reads those that it needs.
        if told > 0 {
            self.notify_passed_over(log, told).await?;
        }
        self.told = self.end;
        self.is_sound = true;
        Ok(())
    }

    /// Tells of records that were written behind item `told` and before the rows that the state was made from.
    async fn notify_passed_over(&self, log: &CommitLog, told: u64) -> Result<(), Fault> {
        let mut next = told + 1;
        while next <= self.end {
            let items = log.from(next).await?;
            if items.is_empty() {
                break;
            }
            for item in items {
                let Some(group) = &item.group else { return self.notify_all().await };
                for entry in read_group(item.number, group)? {
                    if let Entry::Control(Control::Record(RecordWrite::Put { key, .. })) = entry {
                        self.record_listener.notify(&key);
                    }
                }
                next = item.number + 1;
            }
        }
        Ok(())
    }

    /// Any record may have changed: the log does not say any more which.
    async fn notify_all(&self) -> Result<(), Fault> {
        for kind in [RecordKind::Subscription, RecordKind::Script, RecordKind::ApiKey] {
            let mut scan = Scan::with_gone(records_partition(self.rows.shard(), kind));
            while let Some((sk, _)) = scan.next(&self.rows).await? {
                if let Some(key) = record_key(kind, &sk) {
                    self.record_listener.notify(&key);
                }
            }
        }
        Ok(())
    }

    /// Why a checkpoint that stays the same leads nowhere.
    async fn what_is_missing(&self, checkpoint: Option<Checkpoint>) -> Result<Fault, Fault> {
        let Some(checkpoint) = checkpoint else {
            return Ok(damaged("the log is trimmed and the table has no checkpoint"));
        };
        let Checkpoint { at, object, .. } = &checkpoint;
        Ok(damaged(match self.rows.flushed(&checkpoint).await? {
            None => format!("the checkpoint names {object}, which is not in the bucket"),
            Some(_) => format!("rows are newer than checkpoint {at}, or the log behind it is trimmed"),
        }))
    }

    async fn try_rebuild(&mut self, log: &CommitLog, sent: u64) -> Result<(), Stuck> {
        let mut state = State::keeping_rows();
        state.take_over(&self.state);
        self.state = state;
        self.before = None;
        (self.end, self.newest, self.recent) = (0, 0, RecentEvents::default());
        (self.open, self.unflushed) = (BTreeSet::new(), 0);
        self.recent.saved(sent);
        if let Some(checkpoint) = self.rows.checkpoint().await? {
            let Some(flush) = self.rows.flushed(&checkpoint).await? else { return Err(Stuck::Behind) };
            if checkpoint.written < checkpoint.at {
                self.rows.write(&flush).await?;
            }
            self.end = flush.at;
            self.note_id(flush.last_id);
            self.open = flush.open;
            self.load_open().await?;
            // What was not sent may lie before the rows.
            let mut next = sent + 1;
            while next <= self.end {
                let items = log.from(next).await?;
                if items.is_empty() {
                    let problem = format!("item {next} of the log is missing, which was not sent yet");
                    return Err(damaged(problem).into());
                }
                for item in items {
                    next = item.number + 1;
                    if item.number <= self.end {
                        let events = Self::read_events(&item)?;
                        self.newest = events.events.last().map_or(self.newest, |(number, _)| *number);
                        self.recent.push(item.number, events.events);
                    }
                }
            }
        }
        self.catch_up(log, &mut |_| {}).await?;
        if self.newest == 0 {
            self.find_newest(log).await?;
        }
        Ok(())
    }

    /// The number of the newest event, when no group that was read has one.
    async fn find_newest(&mut self, log: &CommitLog) -> Result<(), Fault> {
        for number in (1..=self.end).rev() {
            let Some(item) = log.get(number).await? else { break };
            if item.group.is_none() {
                // Its events are not known any more; none has a higher number than this.
                self.newest = first_seq(number + 1).0 - 1;
                break;
            }
            if let Some((newest, _)) = Self::read_events(&item)?.events.last() {
                self.newest = *newest;
                return Ok(());
            }
        }
        Ok(())
    }

    /// Brings what is open into memory, many rows at a time.
    async fn load_open(&mut self) -> Result<(), Stuck> {
        let (mut jobs, mut alone) = (BTreeSet::new(), Vec::new());
        for key in &self.open {
            match job_of(key) {
                Some((tenant, job)) => drop(jobs.insert((tenant.clone(), job))),
                None => alone.push(key.clone()),
            }
        }
        for some in alone.chunks(ROWS_AT_ONCE) {
            for (key, found) in self.rows.get_many(some).await? {
                self.check_at(found.at)?;
                match (&key, found.row) {
                    // Only that it is to run, and when. There may be very many.
                    (RowKey::Record(record), Some(Row::Record(found)))
                        if matches!(record.kind, RecordKind::Execution | RecordKind::Delivery) =>
                    {
                        self.state.note_stored(record, &found);
                    }
                    (_, Some(row)) => self.state.load(key, row),
                    (_, None) => {}
                }
            }
        }
        self.load_jobs(jobs.into_iter().collect()).await.map(drop)
    }

    /// Brings whole jobs into memory, side by side. Says whether the table had some.
    pub(super) async fn load_jobs(&mut self, jobs: Vec<(TenantId, JobId)>) -> Result<bool, Stuck> {
        let mut has_found = false;
        let mut loading = JoinSet::new();
        let mut jobs = jobs.into_iter();
        loop {
            while loading.len() < JOBS_AT_ONCE
                && let Some((tenant, job)) = jobs.next()
            {
                let rows = self.rows.clone();
                loading.spawn(async move { rows.job(&tenant, job).await });
            }
            let Some(loaded) = loading.join_next().await else { return Ok(has_found) };
            if let Some(job) = loaded.map_err(|error| unavailable("Query", error))?? {
                self.check_at(job.at)?;
                let JobRows { head, tasks, entries } = job.rows;
                self.state.load_job(head, tasks, entries);
                has_found = true;
            }
        }
    }
}
