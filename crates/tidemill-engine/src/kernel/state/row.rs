//! Rows: the state cut into small keyed pieces that a store can keep.
//!
//! A backend that holds more than memory does writes the rows that changed, with the position in the log they reflect,
//! and loads single rows back when a command touches them.

use std::sync::Arc;

use tidemill_model::{Entity, JobId, RequestId, TaskSpec, TenantId};

use crate::kernel::commit::{MessageId, NewTask, TaskKey};
use crate::kernel::record::{Record, RecordKey, RecordKind, RecordValue};
use crate::kernel::state::job::{JobHead, KeptTask};
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
    Task(StoredTask),
    Job(JobHead),
    JobTasks(Vec<Arc<TaskSpec>>),
    Message(Queued),
    Record(Record),
    Entity(Stream),
}

/// A task as its row keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredTask {
    /// What it does, for a task without a job.
    pub alone: Option<Arc<NewTask>>,
    pub entry: KeptTask,
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

    pub fn into_record(self) -> Option<Record> {
        if let Self::Record(record) = self { Some(record) } else { None }
    }
}

/// A stored job with all its parts.
#[derive(Debug)]
pub struct JobRows {
    pub head: JobHead,
    /// The lists of its tasks in order, each with the index of its first.
    pub tasks: Vec<(u32, Vec<Arc<TaskSpec>>)>,
    pub entries: Vec<(TaskKey, KeptTask)>,
}

impl JobRows {
    pub fn new(head: JobHead) -> Self {
        Self { head, tasks: Vec::new(), entries: Vec::new() }
    }

    /// Takes in a list of the job's tasks, or the row of one of them. Lists come in order.
    pub fn push(&mut self, key: RowKey, row: Row) {
        match (key, row) {
            (RowKey::JobTasks(_, _, first), Row::JobTasks(list)) => self.tasks.push((first, list)),
            (RowKey::Task(key), Row::Task(StoredTask { entry, .. })) => self.entries.push((key, entry)),
            _ => {}
        }
    }

    /// The job's tasks as they were handed in.
    pub fn task_list(&self) -> Vec<Arc<TaskSpec>> {
        let mut list = Vec::new();
        for (first, chunk) in &self.tasks {
            // A chunk that was stored after the job grew also holds what came later.
            let known = list.len().saturating_sub(*first as usize);
            list.extend(chunk.iter().skip(known).cloned());
        }
        list
    }
}

/// Which stored rows a scan goes through, and in which order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowRange {
    /// Records of one kind and tenant in the order of their ids, after `after`.
    Records { kind: RecordKind, tenant: Option<TenantId>, after: Option<Arc<str>> },
    /// Records of one kind, of all tenants, in the order of tenants and ids, after `after`.
    AllRecords { kind: RecordKind, after: Option<RecordKey> },
    /// The heads of a tenant's jobs, the newest first, those before `before`.
    Jobs { tenant: TenantId, before: Option<JobId> },
    /// The lists of a job's tasks in order, from the one that names the task with the index `from`.
    TaskLists { tenant: TenantId, job: JobId, from: u32 },
    /// The lists of a job's tasks in order, and then the rows of the tasks.
    Tasks { tenant: TenantId, job: JobId },
}

/// Whether a row must be in memory from the start, because it belongs to live work or decisions look at it; of pending
/// executions and deliveries only when they are due. `None` when it is no such row.
pub fn is_open(key: &RowKey, row: &Row) -> Option<bool> {
    match (key, row) {
        (RowKey::Job(..), Row::Job(head)) => Some(!head.is_at_rest()),
        (RowKey::Task(_), Row::Task(StoredTask { alone: Some(_), entry, .. })) => Some(entry.is_live()),
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
