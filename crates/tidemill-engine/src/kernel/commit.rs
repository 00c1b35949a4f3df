//! The commit: the product of a decision and the only way anything changes.
//!
//! A commit is all or nothing. Its parts are applied in the order of the fields; the events are the only part that
//! users see.

use std::sync::Arc;

use tidemill_model::{
    Allowance, AppName, ErrorCategory, Event, Fence, JobId, Outcome, Owner, RequestId, SessionId, TaskSpec,
    TenantId, Timestamp,
};

use crate::kernel::record::{Record, RecordKey, RecordValue};

/// Which task, within its tenant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskKey {
    pub tenant: TenantId,
    pub request: RequestId,
}

/// One decision, ready to be made true.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Commit {
    pub records: Vec<RecordWrite>,
    pub tasks: Vec<TaskChange>,
    pub enqueue: Vec<Message>,
    pub visibility: Vec<Visibility>,
    pub settle: Vec<MessageId>,
    pub events: Vec<Event>,
}

impl Commit {
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
            && self.tasks.is_empty()
            && self.enqueue.is_empty()
            && self.visibility.is_empty()
            && self.settle.is_empty()
            && self.events.is_empty()
    }
}

/// A control record that is written or removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordWrite {
    /// A job begins.
    Job(Arc<NewJob>),
    /// A job grows. The tasks may depend on earlier ones.
    JobTasks { tenant: TenantId, job: JobId, tasks: Arc<Vec<Arc<TaskSpec>>> },
    /// Tasks of a job that did not complete get other work. The graph stays.
    JobSpecs { tenant: TenantId, job: JobId, specs: Arc<Vec<Arc<TaskSpec>>> },
    /// The same for a task on its own.
    AloneSpec { task: TaskKey, spec: Arc<TaskSpec> },
    /// A job is cancelled, or opened again by a resume.
    JobCancelled { tenant: TenantId, job: JobId, cancelled: bool },
    /// A task on its own begins.
    Task(Arc<NewTask>),
    /// What the agents of a job may use, and what they used of it. `None`: as much as they like.
    JobAllowance { tenant: TenantId, job: JobId, allowance: Option<Allowance> },
    /// A script submitted the job, `hops` scripts away from the event that came from outside.
    JobHops { tenant: TenantId, job: JobId, hops: u32 },
    /// The URL that is called once the job is at rest.
    JobCallback { tenant: TenantId, job: JobId, url: Arc<str> },
    /// Any other record; `None` removes it.
    Put { key: RecordKey, record: Option<Record> },
}

/// A job at its beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewJob {
    pub tenant: TenantId,
    pub app: AppName,
    pub job: JobId,
    pub request: RequestId,
    pub name: Option<Arc<str>>,
    pub created_at: Timestamp,
    pub tasks: Vec<Arc<TaskSpec>>,
}

/// A task without a job, at its beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTask {
    pub tenant: TenantId,
    pub app: AppName,
    pub request: RequestId,
    /// `task_id` and `depends_on` have no meaning here.
    pub spec: Arc<TaskSpec>,
}

/// A change of one task's head. Each names the fence it was decided with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskChange {
    pub task: TaskKey,
    pub kind: TaskChangeKind,
}

/// What happens to a task's head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskChangeKind {
    /// It may run now: its message is enqueued in the same commit.
    Dispatch,
    /// A worker takes it. `fence` is the new one.
    Acquire { fence: Fence, owner: Owner, until: Timestamp, at: Timestamp, takeover: bool },
    /// The worker says that work began.
    Begin { fence: Fence },
    /// The worker still holds it.
    Renew { fence: Fence, until: Timestamp },
    /// The clock was set back, and the lease would last as much longer: it ends at `until`, and its holder keeps it.
    Shorten { fence: Fence, until: Timestamp },
    /// The worker gives it back. `failed` holds the category when an attempt ended; otherwise nothing is counted.
    Release { fence: Fence, failed: Option<ErrorCategory> },
    /// A lease is taken back without a new owner and counted as a takeover: what older releases wrote for `Interrupt`.
    Revoke { fence: Fence },
    /// The process that ran it is gone, and its lease is taken back.
    Interrupt { fence: Fence },
    /// The run ends. `fence` is the newest one; a finish without a holder (cancel, exhaustion) raises it.
    Finish { fence: Fence, outcome: Outcome, attempts: u32, error: Option<ErrorCategory> },
    /// No further attempt helps, and the run waits for somebody. `fence` is the newest one; without a holder it is raised.
    Park { fence: Fence, attempts: u32, error: ErrorCategory },
    /// A new run opens.
    Reopen { run: u32 },
    /// The agent's session in the attempt that ended, for the next one of the run.
    Session { fence: Fence, session: SessionId },
    /// The digest of what the worker reported, in the same commit as what became of it.
    Reported { fence: Fence, digest: u64 },
    /// The run ended in a dead letter, in the same commit as its `Finish`.
    Bury { letter: MessageId },
    /// It has other work from now on. `fence` is the newest one, and what runs under it keeps the work that it was claimed with.
    Rework { fence: Fence },
}

/// A message's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub u128);

/// A reason to run a task. What the task needs is found by its key when it is claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub id: MessageId,
    pub task: TaskKey,
    /// The run it was sent for; messages of older runs are dropped.
    pub run: u32,
    /// Not delivered before this moment.
    pub not_before: Timestamp,
    /// Higher goes first. Kept for later; all messages have 0 today.
    pub priority: i32,
    /// What shares a concurrency limit. Kept for later.
    pub key: Option<Arc<str>>,
    /// How long it had to wait when it was made, in milliseconds: `not_before` tells the time of a clock that may be set
    /// back.
    pub wait_millis: u64,
}

/// Proof of one delivery. A receipt of an earlier delivery has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Receipt {
    pub message: MessageId,
    pub delivery: u32,
}

/// When a message may be delivered next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Visibility {
    pub message: MessageId,
    pub visible_at: Timestamp,
    pub delivered: Delivered,
    /// How far `visible_at` was away when this was decided, in milliseconds.
    pub wait_millis: u64,
}

/// Whether a change of visibility is a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivered {
    No,
    /// To a worker that took the lease. What becomes of the task is counted with the task.
    Claimed,
    /// By hand. A message that was received too often becomes a dead letter.
    Received,
}

impl RecordWrite {
    /// Writes a record without an end over the version that it has; 0 means that it is new.
    pub(crate) fn over(key: RecordKey, version: u64, value: RecordValue) -> Self {
        Self::Put { key, record: Some(Record { version: version + 1, expires_at: None, value }) }
    }
}
