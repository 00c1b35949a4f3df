//! Retention: what is old enough is dropped, without undoing a promise.
//!
//! Sealed segments are rewritten without their expired events. When nothing of the oldest segment is left but control
//! entries, the rows they made are written to the log again (`Control::Carry`) and the segment goes: heads, dead
//! letters, live messages and keys outlive the events. Heartbeats hang beside an entity's chain, so they may go alone.

use std::collections::{BTreeSet, HashMap};

use tidemill_engine::backend::Fault;
use tidemill_engine::command::{Command, Forget};
use tidemill_engine::commit::{RecordWrite, TaskKey};
use tidemill_engine::record::{Record, RecordKind, RecordValue};
use tidemill_engine::state::State;
use tidemill_engine::state::job::KeptTask;
use tidemill_engine::state::row::{Row, RowKey};
use tidemill_model::events::overflow;
use tidemill_model::{Event, JobId, JobStatus, KnownType, Outcome, TaskHead, TenantId, Timestamp};

use super::control::Control;
use super::decider::{Decider, entity_row};
use super::rows::row_store::{Checkpoint, io_fault};
use super::{Store, group_bytes};
use crate::log::{Entry, Fate, Group, LogKeeper, LogReader, SegmentInfo, SegmentKind, Seq, StoredEvent};

const DAY_MILLIS: u64 = 24 * 3_600_000;
/// A segment is rewritten once this part of its events is expired.
const WORTHWHILE_PART: u64 = 4;
/// How many rows without a job are carried at a time.
const CARRY_ROWS: usize = 1_000;

/// How many outdated records one pass removes.
pub(crate) const FORGET_MAX: usize = 10_000;
/// How often that is done in one pass: a million in all.
pub(crate) const FORGETS_MAX: usize = 100;
/// The kinds of records that have a time to live.
pub(crate) const FORGOTTEN: [RecordKind; 5] =
    [RecordKind::Idempotency, RecordKind::Execution, RecordKind::Triage, RecordKind::Token, RecordKind::Bulk];

/// How long events are kept, from the moment they were received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// 0 keeps them for ever.
    pub event_millis: u64,
    /// 0 keeps them for ever.
    pub heartbeat_millis: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self { event_millis: 0, heartbeat_millis: 7 * DAY_MILLIS }
    }
}

impl Retention {
    fn limit_of(&self, event: &Event) -> u64 {
        if event.event_type.as_str() == KnownType::TaskHeartbeat.as_str() {
            self.heartbeat_millis
        } else {
            self.event_millis
        }
    }

    /// Whether the event is older than events of its kind are kept.
    pub fn is_past(&self, event: &Event, now: Timestamp) -> bool {
        let limit = self.limit_of(event);
        limit > 0 && now.since(event.received_at) >= limit
    }
}

/// What an expiry did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Expired {
    pub events: u64,
    pub segments_rewritten: u32,
    pub segments_dropped: u32,
    pub rows_carried: u64,
}

/// The component that holds the state and may write to the log.
pub(crate) trait Keeper {
    /// Whether a job, or a task on its own, is completed. Nothing happens to it any more then.
    fn is_completed(&mut self, work: &RowKey) -> Result<bool, Fault>;
    /// How far followers of the log have come.
    fn cursors(&mut self) -> Result<Vec<Record>, Fault>;
    /// Writes the rows of these keys to the log again, each as it stands then. Says how many.
    fn carry(&mut self, keys: &[RowKey]) -> Result<u64, Fault>;
    /// Writes all rows of a job to the log again, as of one moment. Says how many.
    fn carry_job(&mut self, tenant: &TenantId, job: JobId) -> Result<u64, Fault>;
    /// Notes that the event of a blob is about to go, so that the blob is found if a crash comes between.
    fn note_blob(&mut self, tenant: &TenantId, key: &str) -> Result<(), Fault>;
    /// Removes a blob whose event is gone, and the note of it.
    fn remove_blob(&mut self, tenant: &TenantId, key: &str) -> Result<(), Fault>;
}

/// One pass over the sealed segments below the newest checkpoint.
pub(crate) struct Pass<'a> {
    pub(crate) reader: &'a LogReader,
    pub(crate) log_keeper: &'a LogKeeper,
    pub(crate) retention: Retention,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) now: Timestamp,
}

/// Which of the work that a segment's old events are about is completed, as it was when it was first asked for.
type Completed = HashMap<RowKey, bool>;

impl Pass<'_> {
    pub(crate) fn run(&self, keeper: &mut dyn Keeper) -> Result<Expired, Fault> {
        let mut done = Expired::default();
        let mut oldest = true;
        let mut after = 0;
        let followed = followed_up_to(&keeper.cursors()?);
        // Looked up anew each time: dropping one takes emptied ones behind it along.
        while let Some(segment) = self.reader.segments().into_iter().find(|segment| segment.id > after) {
            after = segment.id;
            let is_followed = followed.is_none_or(|seq| segment.end_seq <= seq.next());
            if segment.kind != SegmentKind::Sealed
                || segment.id >= self.checkpoint.position.segment
                || !is_followed
            {
                break;
            }
            if segment.events > 0 && !self.may_hold_past(&segment) {
                oldest = false;
                continue;
            }
            let mut completed = Completed::new();
            let (mut past, mut left, mut total) = (0, 0, 0);
            let mut blobs = Vec::new();
            self.reader.scan::<Fault>(segment.id, |entry| {
                if let Entry::Event(stored) = entry {
                    self.look_up(keeper, &stored.event, &mut completed)?;
                    let fate = self.fate(&completed, &stored.event);
                    total += 1;
                    left += u64::from(fate != Fate::Drop);
                    if fate != Fate::Keep {
                        past += 1;
                        blobs.extend(blob_of(&stored.event));
                    }
                }
                Ok(())
            })?;
            if left == 0 && oldest {
                let keys = self.rows_made(segment.id)?;
                done.rows_carried += carry(keeper, keys)?;
                note_blobs(keeper, &blobs)?;
                self.log_keeper.drop_segment(segment.id)?;
                remove_blobs(keeper, &blobs)?;
                done.segments_dropped += 1;
                done.events += past;
                continue;
            }
            oldest = false;
            if past > 0 && past * WORTHWHILE_PART >= total {
                // Without them nobody knows how many events an entity had, and which was its last.
                let keys = self.rows_of_dropped(&completed, segment.id)?;
                done.rows_carried += carry(keeper, keys)?;
                note_blobs(keeper, &blobs)?;
                let fate = |stored: &StoredEvent| self.fate(&completed, &stored.event);
                self.log_keeper.rewrite(segment.id, fate, |_| true)?;
                remove_blobs(keeper, &blobs)?;
                done.segments_rewritten += 1;
                done.events += past;
            }
        }
        Ok(done)
    }

    /// Whether anything in the segment can be past its time, as far as its header tells.
    fn may_hold_past(&self, segment: &SegmentInfo) -> bool {
        let limits = [self.retention.event_millis, self.retention.heartbeat_millis];
        let shortest = limits.into_iter().filter(|limit| *limit > 0).min();
        segment.extent.is_some_and(|extent| {
            // An event may have a limit of its own, which only it knows; those are looked for once a day has passed.
            let limit = shortest.unwrap_or(DAY_MILLIS).min(DAY_MILLIS);
            self.now.since(extent.first_received) >= limit
        })
    }

    /// Finds out whether the work of an event is completed, if its fate depends on it.
    fn look_up(
        &self,
        keeper: &mut dyn Keeper,
        event: &Event,
        completed: &mut Completed,
    ) -> Result<(), Fault> {
        if self.retention.is_past(event, self.now)
            && let Some(work) = work_of(event)
            && !completed.contains_key(&work)
        {
            let is_completed = keeper.is_completed(&work)?;
            completed.insert(work, is_completed);
        }
        Ok(())
    }

    /// What becomes of an event.
    ///
    /// One that is too old goes, unless it is of work that is not completed: that goes on, or may be resumed, and needs
    /// what came before. Completed work stays so, hence what was looked up once holds until the segment is done with.
    /// One that has outlived its own time to live may stand in the middle of its entity's history, so it stays as a
    /// link, emptied; readers do not see it.
    fn fate(&self, completed: &Completed, event: &Event) -> Fate {
        let is_heartbeat = event.event_type.as_str() == KnownType::TaskHeartbeat.as_str();
        let may_go =
            || is_heartbeat || work_of(event).is_none_or(|work| completed.get(&work).is_some_and(|yes| *yes));
        if self.retention.is_past(event, self.now) && may_go() {
            Fate::Drop
        } else if event.is_outlived(self.now) && event.properties.as_str() != "{}" {
            Fate::Hollow
        } else {
            Fate::Keep
        }
    }

    /// The rows that a segment made.
    fn rows_made(&self, segment: u32) -> Result<BTreeSet<RowKey>, Fault> {
        let mut keys = BTreeSet::new();
        self.reader.scan::<Fault>(segment, |entry| {
            match entry {
                Entry::Event(stored) => {
                    keys.insert(entity_row(&stored.event));
                }
                Entry::Control(bytes) => keys.extend(rows_of(&Control::read(bytes)?)),
            }
            Ok(())
        })?;
        Ok(keys)
    }

    /// The rows that keep the streams of events that are about to go.
    fn rows_of_dropped(&self, completed: &Completed, segment: u32) -> Result<BTreeSet<RowKey>, Fault> {
        let mut keys = BTreeSet::new();
        self.reader.scan::<Fault>(segment, |entry| {
            if let Entry::Event(stored) = entry
                && self.fate(completed, &stored.event) == Fate::Drop
            {
                keys.insert(entity_row(&stored.event));
            }
            Ok(())
        })?;
        Ok(keys)
    }
}

/// Has rows written to the log again, as they stand.
fn carry(keeper: &mut dyn Keeper, keys: BTreeSet<RowKey>) -> Result<u64, Fault> {
    let mut jobs = BTreeSet::new();
    let mut rest = Vec::new();
    for key in keys {
        match &key {
            RowKey::Job(tenant, job) | RowKey::JobTasks(tenant, job, _) => {
                jobs.insert((tenant.clone(), *job));
            }
            RowKey::Task(TaskKey { tenant, request }) => match request.job_part() {
                Some(job) => {
                    jobs.insert((tenant.clone(), job));
                }
                None => rest.push(key),
            },
            _ => rest.push(key),
        }
    }
    // A job is carried whole: what the kept segments say of it means nothing without its beginning.
    let mut carried = 0;
    for (tenant, job) in jobs {
        carried += keeper.carry_job(&tenant, job)?;
    }
    for keys in rest.chunks(CARRY_ROWS) {
        carried += keeper.carry(keys)?;
    }
    Ok(carried)
}

impl Store {
    /// Drops what is past its time, as far as checkpoints allow.
    pub fn expire(&mut self, now: Timestamp) -> Result<Expired, Fault> {
        self.check_stopped()?;
        let Some(checkpoint) = self.rows.stored_checkpoint()? else { return Ok(Expired::default()) };
        let oldest = now.minus(self.options.policy.execution_millis);
        for kind in FORGOTTEN {
            let mut after = None;
            for _ in 0..FORGETS_MAX {
                let keys = self.rows.outdated(kind, now, oldest, after.as_ref(), FORGET_MAX)?;
                let Some(last) = keys.last().cloned() else { break };
                self.execute(&[Command::Forget(Forget { keys })], now)?;
                after = Some(last);
            }
        }
        let (reader, log_keeper) = (self.reader.clone(), self.log.keeper());
        let retention = self.options.retention;
        Pass { reader: &reader, log_keeper: &log_keeper, retention, checkpoint, now }.run(self)
    }
}

impl Keeper for Store {
    fn is_completed(&mut self, work: &RowKey) -> Result<bool, Fault> {
        match is_completed(&self.decider.state, work) {
            Some(known) => Ok(known),
            None => Ok(self.rows.get(work)?.is_some_and(|row| is_completed_row(&row))),
        }
    }

    fn cursors(&mut self) -> Result<Vec<Record>, Fault> {
        cursors(&self.decider)
    }

    fn carry(&mut self, keys: &[RowKey]) -> Result<u64, Fault> {
        let full = group_bytes(&self.options.log);
        let mut group = Group::new();
        let mut carried = 0;
        for key in keys {
            if group.byte_count() >= full {
                self.write_apart(&group)?;
                group.clear();
            }
            carried += u64::from(push_carried(&self.decider, key, &mut group)?);
        }
        self.write_apart(&group)?;
        Ok(carried)
    }

    fn carry_job(&mut self, tenant: &TenantId, job: JobId) -> Result<u64, Fault> {
        let keys = self.decider.job_keys(tenant, job)?;
        self.carry(&keys)
    }

    fn note_blob(&mut self, tenant: &TenantId, key: &str) -> Result<(), Fault> {
        self.blobs.note(tenant, key).map_err(|error| io_fault(&error))
    }

    fn remove_blob(&mut self, tenant: &TenantId, key: &str) -> Result<(), Fault> {
        self.blobs.remove_noted(tenant, key).map_err(|error| io_fault(&error))
    }
}

/// The blob that holds an event's large fields.
fn blob_of(event: &Event) -> Option<(TenantId, String)> {
    let text = event.properties.as_str();
    // Most events have none; looking at the text saves parsing it.
    if !text.contains(overflow::OVERFLOW_FIELD) {
        return None;
    }
    let reference = overflow::reference(&event.properties).ok().flatten()?;
    Some((event.tenant.clone(), reference.key))
}

fn note_blobs(keeper: &mut dyn Keeper, blobs: &[(TenantId, String)]) -> Result<(), Fault> {
    blobs.iter().try_for_each(|(tenant, key)| keeper.note_blob(tenant, key))
}

fn remove_blobs(keeper: &mut dyn Keeper, blobs: &[(TenantId, String)]) -> Result<(), Fault> {
    blobs.iter().try_for_each(|(tenant, key)| keeper.remove_blob(tenant, key))
}

/// Puts a row as it stands into a group that is written right after everything decided so far. Says whether there is
/// such a row.
pub(crate) fn push_carried(decider: &Decider, key: &RowKey, group: &mut Group) -> Result<bool, Fault> {
    let Some(row) = decider.row(key)? else { return Ok(false) };
    let mut bytes = Vec::new();
    Control::Carry(key.clone(), Some(row)).encode(&mut bytes);
    group.push_control(&bytes);
    Ok(true)
}

/// The job, or the task on its own, that an event is about.
fn work_of(event: &Event) -> Option<RowKey> {
    match entity_row(event) {
        RowKey::Task(key) => Some(match key.request.job_part() {
            Some(job) => RowKey::Job(key.tenant, job),
            None => RowKey::Task(key),
        }),
        job @ RowKey::Job(..) => Some(job),
        _ => None,
    }
}

/// Whether a job, or a task on its own, is completed, as far as it is in memory.
pub(crate) fn is_completed(state: &State, work: &RowKey) -> Option<bool> {
    match work {
        RowKey::Job(tenant, job) => {
            state.job(tenant, *job).map(|job| job.head.status() == JobStatus::Completed)
        }
        RowKey::Task(key) => state.task(key).map(|task| is_completed_entry(task.entry)),
        _ => Some(true),
    }
}

/// Whether a row is that of a completed job or task.
pub(crate) fn is_completed_row(row: &Row) -> bool {
    match row {
        Row::Job(head) => head.status() == JobStatus::Completed,
        Row::Task(task) => is_completed_entry(&task.entry),
        _ => false,
    }
}

fn is_completed_entry(entry: &KeptTask) -> bool {
    entry.head.as_ref().and_then(TaskHead::outcome) == Some(Outcome::Completed)
}

/// How far followers of the log have come, in memory or stored.
pub(crate) fn cursors(decider: &Decider) -> Result<Vec<Record>, Fault> {
    let mut found = decider.stored_records(RecordKind::Cursor)?;
    for (key, record) in decider.state.records().filter(|(key, _)| key.kind == RecordKind::Cursor) {
        match record {
            Some(record) => found.insert(key.clone(), record.clone()),
            None => found.remove(key),
        };
    }
    Ok(found.into_values().collect())
}

/// The last event that all followers of the log have seen, if there are followers.
///
/// A cursor holds the number of the last event that was seen, as 8 bytes, little-endian. One that cannot be read has
/// seen nothing.
fn followed_up_to(cursors: &[Record]) -> Option<Seq> {
    let seen = |cursor: &Record| match &cursor.value {
        RecordValue::Bytes(bytes) => bytes.as_ref().try_into().map_or(0, u64::from_le_bytes),
        _ => 0,
    };
    cursors.iter().map(seen).min().map(Seq)
}

/// The rows that a control entry changed.
fn rows_of(control: &Control) -> Vec<RowKey> {
    match control {
        Control::Record(write) => match write {
            RecordWrite::Job(job) => vec![RowKey::Job(job.tenant.clone(), job.job)],
            RecordWrite::AloneSpec { task, .. } => vec![RowKey::Task(task.clone())],
            RecordWrite::JobTasks { tenant, job, .. }
            | RecordWrite::JobSpecs { tenant, job, .. }
            | RecordWrite::JobCancelled { tenant, job, .. }
            | RecordWrite::JobAllowance { tenant, job, .. }
            | RecordWrite::JobHops { tenant, job, .. }
            | RecordWrite::JobCallback { tenant, job, .. } => {
                vec![RowKey::Job(tenant.clone(), *job)]
            }
            RecordWrite::Task(task) => {
                vec![RowKey::Task(TaskKey { tenant: task.tenant.clone(), request: task.request.clone() })]
            }
            RecordWrite::Put { key, .. } => vec![RowKey::Record(key.clone())],
        },
        Control::Task(change) => vec![RowKey::Task(change.task.clone())],
        Control::Enqueue(message) => vec![RowKey::Message(message.id), RowKey::Task(message.task.clone())],
        Control::Visibility(change) => vec![RowKey::Message(change.message)],
        Control::Settle(message) => vec![RowKey::Message(*message)],
        Control::Carry(key, _) => vec![key.clone()],
    }
}
