//! Rows: the state cut into small keyed pieces that a store can keep.
//!
//! A backend that holds more than memory does writes the rows that changed, with the position in the log they reflect,
//! and loads single rows back when a command touches them.

use std::sync::Arc;

use tidemill_model::{Entity, JobId, RequestId, TaskSpec, TenantId};

use crate::kernel::commit::{MessageId, NewTask, TaskKey};
use crate::kernel::record::{Record, RecordKey, RecordValue};
use crate::kernel::state::job::{Entry, JobHead};
use crate::kernel::state::queue::Queued;
use crate::kernel::state::stream::Stream;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RowKey {
    Task(TaskKey),
    Job(TenantId, JobId),
    /// Some of a job's tasks, as they were handed in; the number is the index of the first. See [`task_lists`].
    JobTasks(TenantId, JobId, u32),
    Message(MessageId),
    Record(RecordKey),
    Entity(TenantId, Entity),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Row {
    Task(TaskRow),
    Job(JobHead),
    JobTasks(Vec<Arc<TaskSpec>>),
    Message(Queued),
    Record(Record),
    Entity(Stream),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskRow {
    /// What it does, for a task without a job.
    pub alone: Option<Arc<NewTask>>,
    pub entry: Entry,
    /// Its place in the list of its job, so that what it does is found without the rest of the list.
    pub index: Option<u32>,
}

impl RowKey {
    /// The row that keeps the stream of an entity.
    pub fn of_entity(tenant: &TenantId, entity: &Entity) -> Self {
        match entity.kind.as_str() {
            "TASK" => Self::Task(TaskKey {
                tenant: tenant.clone(),
                request: RequestId::trusted(entity.id.as_str()),
            }),
            "JOB" => match JobId::new(entity.id.as_str()) {
                Ok(job) => Self::Job(tenant.clone(), job),
                Err(_) => Self::Entity(tenant.clone(), entity.clone()),
            },
            _ => Self::Entity(tenant.clone(), entity.clone()),
        }
    }
}

impl Row {
    /// The stream of the entity that the row is about, if it is about one.
    pub fn into_stream(self) -> Option<Stream> {
        match self {
            Self::Task(task) => Some(task.entry.stream),
            Self::Job(head) => Some(head.stream),
            Self::Entity(stream) => Some(stream),
            Self::JobTasks(_) | Self::Message(_) | Self::Record(_) => None,
        }
    }
}

/// Whether a row must be in memory from the start, because it belongs to live work or decisions look at it; of pending
/// executions and deliveries only when they are due. `None` when it is no such row.
pub fn is_open(key: &RowKey, row: &Row) -> Option<bool> {
    match (key, row) {
        (RowKey::Job(..), Row::Job(head)) => Some(!head.is_at_rest()),
        (RowKey::Task(_), Row::Task(TaskRow { alone: Some(_), entry, .. })) => Some(entry.is_live()),
        (RowKey::Record(key), _) if key.kind.stays_in_memory() => Some(true),
        (RowKey::Record(_), Row::Record(record)) => match &record.value {
            RecordValue::Execution(execution) => Some(execution.status.is_pending()),
            RecordValue::Delivery(_) => Some(true),
            _ => None,
        },
        _ => None,
    }
}

/// How many of a job's tasks one row lists. Rows stay small, whatever the size of the job.
pub const TASKS_PER_LIST: usize = 64;

/// The rows that list the tasks of a job from the index `from` on, up to `count`: the index of the first of each.
pub fn task_lists(from: usize, count: usize) -> impl Iterator<Item = u32> {
    let first = from - from % TASKS_PER_LIST;
    (first..count).step_by(TASKS_PER_LIST).filter_map(|index| u32::try_from(index).ok())
}

/// The row that lists the task with this index: the index of its first.
pub fn task_list_of(index: u32) -> u32 {
    index - index % u32::try_from(TASKS_PER_LIST).unwrap_or(1)
}

/// The end of the row of tasks that begins with the index `first`, in a job of `count`.
pub(super) fn list_end(first: usize, count: usize) -> usize {
    (first - first % TASKS_PER_LIST + TASKS_PER_LIST).min(count)
}
