//! What a command answers.

use std::sync::Arc;

use tidemill_model::work::dag_violation::DagViolations;
use tidemill_model::workflow::{self, ErrorCode};
use tidemill_model::{
    AppName, EventId, Fence, JobId, Json, Outcome, RequestId, SessionId, TaskId, TaskName, TaskSpec,
    Timestamp,
};

use crate::kernel::commit::{Message, MessageId, Receipt, TaskKey};
use crate::kernel::record::Effect;
use crate::outbound::DeliveryId;
use crate::scripts::execution::{ExecutionId, ExecutionStatus};
use crate::triage::{Bulk, BulkId, TokenTaken};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    JobSubmitted {
        job: JobId,
        request: RequestId,
        total: u32,
        roots: Vec<TaskId>,
        created_at: Timestamp,
        repeated: bool,
    },
    TasksChanged,
    TasksAdded {
        previous_total: u32,
        total: u32,
        dispatched: Vec<TaskId>,
    },
    TaskSubmitted {
        request: RequestId,
        repeated: bool,
    },
    /// `next` tells when a hidden message becomes visible, if nothing could be claimed.
    Claimed {
        tasks: Vec<Assignment>,
        next: Option<Timestamp>,
    },
    Begun,
    Renewed {
        until: Timestamp,
    },
    /// A report that was taken before is answered again, without what it ended.
    Finished {
        ending: Ending,
        ended: Option<Ended>,
    },
    Released,
    Resumed {
        tasks: Vec<RequestId>,
    },
    Cancelled {
        tasks: Vec<RequestId>,
    },
    Advanced {
        dispatched: u32,
    },
    /// `after` is where the next sweep goes on; `None` when all was seen.
    Swept {
        repaired: u32,
        after: Option<TaskKey>,
    },
    Recovered {
        released: u32,
    },
    Published {
        events: Vec<(EventId, Timestamp)>,
    },
    /// Published, with workflow events among them. Those that were there already are named again.
    Noted {
        events: Vec<(EventId, Timestamp, bool)>,
        /// How many errors changed their state because of marks.
        changed: u64,
        /// What became of tokens, by the place of the event that brought each.
        tokens: Vec<(usize, TokenTaken)>,
    },
    /// An event of another sender. `known` says that nothing changed by it.
    TakenIn {
        event: EventId,
        known: bool,
    },
    Unparked,
    /// How many were given up, and how many alarms were raised.
    LookedAfter {
        expired: u32,
        told: u32,
    },
    /// A bulk as it stands, and when its next page may be.
    Bulk {
        bulk: Arc<Bulk>,
        next: Option<Timestamp>,
    },
    Sent {
        message: MessageId,
    },
    Received {
        messages: Vec<(Message, Receipt, u32)>,
        next: Option<Timestamp>,
    },
    Deleted {
        existed: bool,
    },
    VisibilityChanged {
        existed: bool,
    },
    Replayed {
        request: RequestId,
    },
    Discarded,
    RecordPut {
        version: u64,
    },
    RecordsPut,
    BudgetSet,
    Forgotten {
        records: u32,
    },
    /// How many executions are new, and the version of the cursor's record.
    Matched {
        created: u32,
        cursor_version: u64,
    },
    /// `retry_at` tells when it is tried again.
    ExecutionEnded {
        status: ExecutionStatus,
        retry_at: Option<Timestamp>,
    },
    LetterReplayed {
        execution: ExecutionId,
    },
    Alerted,
    HealthRecorded,
    /// `retry_at` tells when it is tried again; without it the delivery is over, and `is_dead` if it was given up.
    DeliveryEnded {
        retry_at: Option<Timestamp>,
        is_dead: bool,
    },
    DeliveryReplayed {
        delivery: DeliveryId,
    },
}

/// How a finish was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The run is over.
    Done(Outcome),
    /// Another attempt follows.
    Retrying { at: Timestamp },
    /// No further attempt helps, and the task waits for somebody.
    Parked,
}

/// The attempt that a report ended, for metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    pub spec: Arc<TaskSpec>,
    pub job_name: Option<Arc<str>>,
    /// How long the worker had it, in milliseconds.
    pub held_millis: u64,
}

impl Ended {
    /// The names of the task's definition and of its job.
    pub fn names(&self) -> (&str, Option<&str>) {
        (self.spec.name.as_str(), self.job_name.as_deref())
    }
}

/// A task that a worker may now run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    pub task: TaskKey,
    pub app: AppName,
    pub job: Option<JobId>,
    pub job_name: Option<Arc<str>>,
    pub spec: Arc<TaskSpec>,
    pub run: u32,
    /// Counts from 1 within the run.
    pub attempt: u32,
    pub fence: Fence,
    pub lease_until: Timestamp,
    pub message: MessageId,
    /// How long it could have been claimed before it was.
    pub waited_millis: u64,
    /// Whether the worker that had it fell silent.
    pub is_takeover: bool,
    /// The agent's session in the last attempt of this run that reported one.
    pub session_id: Option<SessionId>,
    /// What is left of the tightest budget of an agent task, in millionths of a dollar.
    pub budget_left: Option<u64>,
    /// Which budget that is, in words.
    pub budget_name: Option<Arc<str>>,
}

impl Assignment {
    pub fn name(&self) -> &TaskName {
        &self.spec.name
    }

    pub fn input(&self) -> &Json {
        &self.spec.input
    }

    /// The tasks whose outputs this one gets, with their global ids.
    pub fn parents(&self) -> impl Iterator<Item = (&TaskId, RequestId)> {
        self.job
            .into_iter()
            .flat_map(|job| self.spec.depends_on.iter().map(move |id| (id, job.request_id(id))))
    }
}

/// Why a command changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("{what} {id} does not exist")]
    NotFound { what: &'static str, id: String },
    /// Another worker holds the task now, or nobody may: this one must stop.
    #[error("the lease of {request} is lost: fence {given} is not {newest}, or it is not held")]
    LeaseLost { request: RequestId, given: u64, newest: u64 },
    /// Another outcome was recorded under the same right: this one does not count.
    #[error("another outcome of {request} was reported with fence {fence} before, and that one counts")]
    OutcomeDiffers { request: RequestId, fence: u64 },
    /// Another worker holds the task.
    #[error("task {request} is held by another worker until {until}")]
    Held { request: RequestId, until: Timestamp },
    #[error("task {0} is parked")]
    Parked(RequestId),
    /// An event of another sender that cannot be put in its place any more.
    #[error("timestamp lies before the last event of task {request}, which runs again since")]
    TooLate { request: RequestId },
    #[error("another event {0} was stored before")]
    EventDiffers(EventId),
    #[error("job {0} is completed")]
    JobCompleted(JobId),
    #[error("job {0} is cancelled")]
    JobCancelled(JobId),
    #[error(transparent)]
    Graph(DagViolations),
    #[error("the key was used before for a request with another body, which made {earlier}")]
    IdempotencyConflict { earlier: Effect },
    #[error("requestId {0} was used before for another task")]
    RequestTaken(RequestId),
    #[error("nothing to resume")]
    NothingToResume,
    #[error("task {0} is not failed")]
    NotResumable(String),
    #[error("{field} holds {count} items; the limit is {limit}")]
    TooMany { field: &'static str, count: usize, limit: usize },
    #[error("{field} is {size_bytes} bytes; the limit is {limit_bytes}")]
    TooLarge { field: &'static str, size_bytes: usize, limit_bytes: usize },
    #[error("timestamp lies {ahead_millis} ms ahead; the limit is {limit_millis}")]
    TooFarAhead { ahead_millis: u64, limit_millis: u64 },
    #[error("{what} {id} is reserved to the engine")]
    Reserved { what: &'static str, id: String },
    #[error("record is at version {actual}, not {expected}")]
    RecordConflict { expected: u64, actual: u64 },
    #[error("dead letter {0} is not open")]
    NotOpen(String),
    #[error("{what} {id} exists already")]
    Exists { what: &'static str, id: String },
    #[error("{what} {id} is used by tasks that are not finished")]
    InUse { what: &'static str, id: String },
    #[error("task {0} is completed and cannot be changed")]
    TaskCompleted(String),
    #[error("task {0} depends on other tasks than before, and the graph of a job stays")]
    GraphChanged(String),
    #[error("task {0} has ended")]
    TaskEnded(RequestId),
    #[error("task {request} belongs to job {job}: cancel the job")]
    PartOfJob { request: RequestId, job: JobId },
    /// Somebody else ended this run, or it was never to begin.
    #[error("run {attempt} of execution {id} is not under way")]
    NotUnderWay { id: ExecutionId, attempt: u32 },
    /// This try ended already, or the delivery is over.
    #[error("try {attempt} of delivery {id} is not under way")]
    NotDelivering { id: DeliveryId, attempt: u32 },
    #[error("{limit} deliveries of the tenant wait, and no more are taken")]
    TooManyWaiting { limit: usize },
    /// It may be taken when some of what the tenant has is finished.
    #[error("unfinished {what} of the tenant would be {count}; {limit} is {max}")]
    TenantFull { what: &'static str, limit: &'static str, count: usize, max: usize },
    #[error("the execution {0} is not parked")]
    NotParked(workflow::WorkflowRunId),
    #[error("the token of execution {0} has expired")]
    TokenExpired(workflow::WorkflowRunId),
    #[error("error code {code} is new, and the limit of {limit} codes is reached")]
    TooManyCodes { code: ErrorCode, limit: usize },
    #[error("bulk {0} has ended")]
    BulkEnded(BulkId),
    #[error("{field} is not a JSON object")]
    NotAnObject { field: String },
}
