//! Commands: everything the outside can ask for.
//!
//! A command is complete when it arrives: ids are checked, JSON is valid, large values already lie in the blob store.
//! Decisions read no JSON and wait for nothing.

use std::fmt;
use std::sync::Arc;

use tidemill_model::properties::{Activity, OverflowRef, Usage};
use tidemill_model::workflow;
use tidemill_model::{
    AppName, Artifact, Budget, Context, Entity, ErrorCategory, EventId, EventType, Fence, JobId, Json, Owner,
    Period, RequestId, ScriptId, SessionId, SubscriptionId, TaskId, TaskName, TaskSpec, TenantId, Timestamp,
    WorkerId,
};

use crate::commit::{MessageId, NewJob, NewTask, Receipt, TaskKey};
use crate::engine::digest;
use crate::execution::{ExecutionId, RunError, SourceEvent};
use crate::outbound::{DeliveryId, DeliveryLetter};
use crate::record::{RecordKey, RecordValue};
use crate::triage::{BulkAction, BulkFilter, BulkId, NewToken, ParkedKey, WorkflowItem};

#[derive(Debug, Clone)]
pub enum Command {
    SubmitJob(SubmitJob),
    AddTasks(AddTasks),
    ChangeTasks(ChangeTasks),
    SubmitTask(SubmitTask),
    Claim(Claim),
    Begin(Begin),
    Heartbeat(Heartbeat),
    Finish(Finish),
    Release(Release),
    Resume(Resume),
    Cancel(Cancel),
    CancelTask(CancelTask),
    /// Dispatches what is ready and was not dispatched. Does nothing when nothing is.
    Advance {
        tenant: TenantId,
        job: JobId,
    },
    Sweep(Sweep),
    /// Takes back the leases of former lives of the data directory.
    Recover {
        generation: u64,
    },
    Publish(Publish),
    Send(Send),
    Receive(Receive),
    Delete {
        tenant: Option<TenantId>,
        receipt: Receipt,
    },
    ChangeVisibility {
        tenant: Option<TenantId>,
        receipt: Receipt,
        visible_in_millis: u64,
    },
    Replay {
        tenant: TenantId,
        message: MessageId,
    },
    Discard {
        tenant: TenantId,
        message: MessageId,
    },
    PutRecord(PutRecord),
    PutRecords(PutRecords),
    SetBudget(SetBudget),
    Match(Match),
    EndExecution(EndExecution),
    /// Runs a script's dead letter again.
    ReplayLetter {
        tenant: TenantId,
        letter: ExecutionId,
    },
    /// Puts a script's dead letter aside.
    DiscardLetter {
        tenant: TenantId,
        letter: ExecutionId,
    },
    Alert(Alert),
    RecordHealth(RecordHealth),
    EndDelivery(EndDelivery),
    /// Delivers what a dead letter holds once more.
    ReplayDelivery {
        tenant: TenantId,
        letter: DeliveryId,
    },
    /// Keeps what will never arrive as a dead letter, and tells people of it. It is refused if the letter is there.
    KeepLetter {
        tenant: TenantId,
        letter: Box<DeliveryLetter>,
    },
    /// Puts a delivery's dead letter aside.
    DiscardDelivery {
        tenant: TenantId,
        letter: DeliveryId,
    },
    Unpark(Unpark),
    /// Gives up parked executions whose time is over, and tells of those whose time is nearly over.
    LookAfterParked {
        keys: Vec<ParkedKey>,
    },
    StartBulk(StartBulk),
    /// Carries out the next page of a bulk.
    StepBulk {
        tenant: TenantId,
        bulk: BulkId,
    },
    CancelBulk {
        tenant: TenantId,
        bulk: BulkId,
    },
    /// Removes those of the records whose time is over.
    Forget {
        keys: Vec<RecordKey>,
    },
}

/// The names of commands, for the log: what else is in them may be anybody's secret.
pub(crate) struct Names<'a>(pub(crate) &'a [Command]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, command) in self.0.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(f, "{comma}{}", command.name())?;
        }
        Ok(())
    }
}

impl Command {
    pub fn name(&self) -> &'static str {
        match self {
            Self::SubmitJob(_) => "submit_job",
            Self::AddTasks(_) => "add_tasks",
            Self::ChangeTasks(_) => "change_tasks",
            Self::SubmitTask(_) => "submit_task",
            Self::Claim(_) => "claim",
            Self::Begin(_) => "begin",
            Self::Heartbeat(_) => "heartbeat",
            Self::Finish(_) => "finish",
            Self::Release(_) => "release",
            Self::Resume(_) => "resume",
            Self::Cancel(_) => "cancel",
            Self::CancelTask(_) => "cancel_task",
            Self::Advance { .. } => "advance",
            Self::Sweep(_) => "sweep",
            Self::Recover { .. } => "recover",
            Self::Publish(_) => "publish",
            Self::Send(_) => "send",
            Self::Receive(_) => "receive",
            Self::Delete { .. } => "delete",
            Self::ChangeVisibility { .. } => "change_visibility",
            Self::Replay { .. } => "replay",
            Self::Discard { .. } => "discard",
            Self::PutRecord(_) => "put_record",
            Self::PutRecords(_) => "put_records",
            Self::SetBudget(_) => "set_budget",
            Self::Match(_) => "match",
            Self::EndExecution(_) => "end_execution",
            Self::ReplayLetter { .. } => "replay_letter",
            Self::DiscardLetter { .. } => "discard_letter",
            Self::Alert(_) => "alert",
            Self::RecordHealth(_) => "record_health",
            Self::EndDelivery(_) => "end_delivery",
            Self::ReplayDelivery { .. } => "replay_delivery",
            Self::KeepLetter { .. } => "keep_letter",
            Self::DiscardDelivery { .. } => "discard_delivery",
            Self::Unpark(_) => "unpark",
            Self::LookAfterParked { .. } => "look_after_parked",
            Self::StartBulk(_) => "start_bulk",
            Self::StepBulk { .. } => "step_bulk",
            Self::CancelBulk { .. } => "cancel_bulk",
            Self::Forget { .. } => "forget",
        }
    }
}

/// An event's properties, made before the decision. `id` is set when the event's large fields were stored under it.
#[derive(Debug, Clone)]
pub struct Prepared {
    pub id: Option<EventId>,
    pub properties: Json,
}

/// A promise that repeating the request changes nothing.
#[derive(Debug, Clone)]
pub struct Once {
    pub key: RecordKey,
    pub body_hash: [u8; 32],
    /// Kept as long as heads are, not just for the time of idempotency keys.
    pub lasting: bool,
}

#[derive(Debug, Clone)]
pub struct SubmitJob {
    /// Validated as a DAG. `created_at` is set by the decision.
    pub job: NewJob,
    /// The properties of `Job Created`.
    pub created: Prepared,
    /// Each of them is good for one request, whichever is met again.
    pub once: Vec<Once>,
    /// What the job's agents may use in all.
    pub budget: Option<Budget>,
    /// Who is told once the job is at rest.
    pub callback: Option<Arc<str>>,
}

#[derive(Debug, Clone)]
pub struct AddTasks {
    pub tenant: TenantId,
    pub job: JobId,
    pub tasks: Arc<Vec<Arc<TaskSpec>>>,
    /// The JSON of `newTasks`, or where it was put.
    pub listed: Listed,
}

/// A task list inside an event: in place or in the blob store.
#[derive(Debug, Clone)]
pub enum Listed {
    Inline(Json),
    Overflow { id: EventId, at: OverflowRef },
}

#[derive(Debug, Clone)]
pub struct SubmitTask {
    pub task: NewTask,
    /// Each of them is good for one request, whichever is met again.
    pub once: Vec<Once>,
}

#[derive(Debug, Clone)]
pub struct Claim {
    pub owner: Owner,
    pub worker: WorkerId,
    pub max: usize,
    /// The tenants the worker may serve; `None` for all.
    pub tenants: Option<Arc<[TenantId]>>,
    /// Writes `Task Processing Started` with this process id in the same commit. A worker that starts child processes
    /// leaves it out and sends `Begin` once it knows the child's.
    pub begin: Option<u32>,
}

#[derive(Debug, Clone)]
pub struct Begin {
    pub task: TaskKey,
    pub fence: Fence,
    pub worker: WorkerId,
    pub process_id: u32,
    pub surroundings: Surroundings,
}

/// What of an attempt only its worker knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Where it writes.
    pub directory: Option<String>,
    /// The names of those variables of the worker's own environment that it was given.
    pub variables: Vec<String>,
}

#[derive(Debug, Clone)]
pub struct Heartbeat {
    pub task: TaskKey,
    pub fence: Fence,
    pub worker: WorkerId,
    pub process_id: u32,
    pub rss: u64,
    pub last_activity: Option<Activity>,
}

#[derive(Debug, Clone)]
pub struct Finish {
    pub task: TaskKey,
    pub fence: Fence,
    pub worker: WorkerId,
    pub report: Report,
    pub spent: Spent,
    /// Which error a failure is; worked out by the decision when it is left out.
    pub cause: Option<Box<Cause>>,
    /// Tells a report that is repeated from another one: of what was reported, before any of it moved to the blob store.
    pub digest: u64,
}

/// Which error a failure is.
#[derive(Debug, Clone)]
pub struct Cause {
    pub code: workflow::ErrorCode,
    /// The message without what varies.
    pub title: String,
    /// For a task that is parked when it fails for good.
    pub token: Option<NewToken>,
}

/// What an agent tells of its attempt, however it ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spent {
    pub usage: Option<Usage>,
    /// Where the next attempt of the run can go on.
    pub session_id: Option<SessionId>,
}

/// How an attempt ended, as its worker tells it.
#[derive(Debug, Clone)]
pub enum Report {
    Completed {
        /// `None` when it was moved to the blob store.
        output: Option<Json>,
        overflow: Option<(EventId, OverflowRef)>,
        duration_millis: u64,
        exit_code: i32,
        /// The files it left. Empty when they were moved to the blob store with the output.
        artifacts: Vec<Artifact>,
    },
    /// Whether it is tried again depends on the category and the attempts left.
    Failed {
        error: String,
        category: ErrorCategory,
        retry_after_millis: Option<u64>,
    },
    TimedOut {
        timeout_millis: u64,
        elapsed_millis: u64,
        signal: &'static str,
    },
}

impl Report {
    /// Equal for reports that say the same of the work. How long it took does not count.
    pub fn digest(&self) -> u64 {
        let digest = match self {
            Self::Completed { output, overflow, exit_code, artifacts, .. } => {
                let output = output.as_ref().map_or("", Json::as_str);
                let moved = overflow.as_ref().map_or("", |(_, place)| place.key.as_str());
                let exit_code = exit_code.to_string();
                let mut parts =
                    vec![&b"completed"[..], output.as_bytes(), moved.as_bytes(), exit_code.as_bytes()];
                let files = artifacts.iter().flat_map(|file| [file.path.as_bytes(), file.sha256.as_bytes()]);
                parts.extend(files);
                digest::of(&parts)
            }
            Self::Failed { error, category, .. } => {
                digest::of(&[b"failed", category.as_str().as_bytes(), error.as_bytes()])
            }
            Self::TimedOut { .. } => digest::of(&[b"timed out"]),
        };
        u64::from_be_bytes(*digest.first_chunk().expect("a digest has 32 bytes"))
    }
}

/// A worker gives a task back without an outcome, as at shutdown.
#[derive(Debug, Clone)]
pub struct Release {
    pub task: TaskKey,
    pub fence: Fence,
    pub worker: WorkerId,
    /// Recorded as `Task Processing Failed`; no attempt is counted.
    pub reason: Option<String>,
    /// Recorded with the reason.
    pub spent: Spent,
}

/// Gives tasks that did not complete other work.
#[derive(Debug, Clone)]
pub struct ChangeTasks {
    pub tenant: TenantId,
    pub target: ChangeTarget,
    /// What runs again in the same commit, with its new work.
    pub resume: Option<ResumeTarget>,
}

#[derive(Debug, Clone)]
pub enum ChangeTarget {
    /// Tasks of a job, as they are to be, and what `Job Tasks Changed` tells.
    Job { job: JobId, specs: Arc<Vec<Arc<TaskSpec>>>, told: Json },
    /// A task without a job.
    Alone { request: RequestId, spec: Arc<TaskSpec> },
}

#[derive(Debug, Clone)]
pub struct Resume {
    pub tenant: TenantId,
    pub target: ResumeTarget,
}

#[derive(Debug, Clone)]
pub enum ResumeTarget {
    /// All failed tasks of the job, or the named ones.
    Job {
        job: JobId,
        tasks: Option<Vec<TaskId>>,
    },
    Task(RequestId),
}

#[derive(Debug, Clone)]
pub struct Cancel {
    pub tenant: TenantId,
    pub job: JobId,
    pub by: String,
    pub reason: Option<String>,
}

/// Ends a task without a job.
#[derive(Debug, Clone)]
pub struct CancelTask {
    pub tenant: TenantId,
    pub request: RequestId,
    pub by: String,
    pub reason: Option<String>,
}

/// Looks for what stands still and sets it moving, from `after` on.
#[derive(Debug, Clone, Default)]
pub struct Sweep {
    pub after: Option<TaskKey>,
}

#[derive(Debug, Clone)]
pub struct Publish {
    pub tenant: TenantId,
    pub app: AppName,
    pub context: Context,
    pub events: Vec<PublishedEvent>,
}

#[derive(Debug, Clone)]
pub struct PublishedEvent {
    pub entity: Entity,
    pub event_type: EventType,
    /// The sender's own time, if it gave one.
    pub timestamp: Option<Timestamp>,
    pub properties: Prepared,
    /// Epoch seconds.
    pub ttl: Option<u64>,
    /// What it says of errors and executions.
    pub workflow: Option<WorkflowItem>,
}

/// A message from outside. Without a head the task begins here, and nothing announces it.
#[derive(Debug, Clone)]
pub struct Send {
    pub task: NewTask,
    pub run: u32,
    pub delay_millis: u64,
}

#[derive(Debug, Clone)]
pub struct Receive {
    pub tenants: Option<Arc<[TenantId]>>,
    pub max: usize,
    pub visibility_millis: Option<u64>,
}

#[derive(Debug, Clone)]
pub struct PutRecord {
    pub key: RecordKey,
    /// `None` removes it.
    pub value: Option<RecordValue>,
    pub expires_at: Option<Timestamp>,
    /// The version it must have; 0 means absent, `None` any.
    pub expected: Option<u64>,
}

/// Sets what the agents of a job or of a tenant may use; `None` lets them use what they like.
#[derive(Debug, Clone)]
pub struct SetBudget {
    pub tenant: TenantId,
    pub target: BudgetTarget,
    pub budget: Option<Budget>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BudgetTarget {
    Job(JobId),
    Tenant(Period),
}

/// Writes records, all of them or none.
#[derive(Debug, Clone)]
pub struct PutRecords {
    pub records: Vec<PutRecord>,
    /// A task definition that no open task may rest on.
    pub unused: Option<(TenantId, TaskName)>,
}

/// Moves the place up to which events were matched with subscriptions, and queues what matched.
#[derive(Debug, Clone)]
pub struct Match {
    /// The tenant whose events are matched apart from those of all others, if this is about one.
    pub lane: Option<TenantId>,
    /// The version that the cursor's record must have; 0 means absent.
    pub cursor_version: u64,
    /// The number of the last event that was matched. `None` removes the cursor: nobody follows any more.
    pub to: Option<u64>,
    /// Those that are there already are left as they are.
    pub executions: Vec<NewExecution>,
}

/// A script that is to run for an event.
#[derive(Debug, Clone)]
pub struct NewExecution {
    pub tenant: TenantId,
    pub script: ScriptId,
    pub subscription: SubscriptionId,
    pub event: SourceEvent,
}

/// Records how a run of an execution ended, with all that the script asked for.
#[derive(Debug, Clone)]
pub struct EndExecution {
    pub tenant: TenantId,
    pub execution: ExecutionId,
    /// Counts from 1. Each run ends once.
    pub attempt: u32,
    pub duration_millis: u64,
    /// A list of `{"level", "text"}`.
    pub logs: Option<Json>,
    pub end: ExecutionEnd,
}

#[derive(Debug, Clone)]
pub enum ExecutionEnd {
    Succeeded {
        result: Option<Json>,
        effects: Vec<ScriptEffect>,
    },
    Failed {
        error: RunError,
        /// `None` makes a dead letter.
        retry_in_millis: Option<u64>,
        /// The event's properties, for the dead letter of an execution that has none of its own.
        data: Option<Json>,
    },
}

impl ExecutionEnd {
    /// Whether it may leave a dead letter: scripts that are too many hops away may ask for nothing.
    pub(crate) fn may_bury(&self) -> bool {
        match self {
            Self::Succeeded { effects, .. } => !effects.is_empty(),
            Self::Failed { retry_in_millis, .. } => retry_in_millis.is_none(),
        }
    }
}

/// What a script asked for. It happens in the commit of its success, or not at all.
#[derive(Debug, Clone)]
pub enum ScriptEffect {
    Publish(Publish),
    SubmitJob(Box<SubmitJob>),
}

/// Tells that something needs attention, or no longer does.
#[derive(Debug, Clone)]
pub struct Alert {
    pub tenant: TenantId,
    /// What it is about. It stands under this name until it is cleared.
    pub name: &'static str,
    pub is_raised: bool,
    /// In words.
    pub message: String,
    /// A JSON object.
    pub properties: Json,
}

/// Records what a check of health found, and tells whom it alarms.
#[derive(Debug, Clone)]
pub struct RecordHealth {
    pub tenant: TenantId,
    /// The id of the event, which was made with it.
    pub event: EventId,
    /// The event's properties, or what is left of them in place.
    pub properties: Json,
    /// What is kept of the check.
    pub kept: Arc<[u8]>,
    /// The version of what was kept of the one before; 0 means nothing.
    pub expected: u64,
    pub alerts: Vec<HealthAlert>,
}

/// Something that a check tells people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthAlert {
    pub text: Arc<str>,
    pub is_raised: bool,
}

/// Records how a try of a delivery ended.
#[derive(Debug, Clone)]
pub struct EndDelivery {
    pub tenant: TenantId,
    pub delivery: DeliveryId,
    /// Counts from 1. Each try ends once.
    pub attempt: u32,
    /// How many failed jobs the try told of. If more have joined, it told too little, and does not count.
    pub told: u32,
    pub end: DeliveryEnd,
}

#[derive(Debug, Clone)]
pub enum DeliveryEnd {
    Arrived,
    /// Whether it is tried again depends on where it goes and how often it was tried.
    Failed {
        error: Arc<str>,
    },
}

/// Ends the wait of a parked execution.
#[derive(Debug, Clone)]
pub struct Unpark {
    pub tenant: TenantId,
    pub execution: workflow::ExecutionId,
    pub how: BulkAction,
    pub by: Option<Arc<str>>,
    pub reason: Option<Arc<str>>,
}

/// Begins to unpark many executions.
#[derive(Debug, Clone)]
pub struct StartBulk {
    pub tenant: TenantId,
    pub id: BulkId,
    pub action: BulkAction,
    pub filter: BulkFilter,
    /// How many fit, if that had to be counted before; `None`: as many as their own records say.
    pub total: Option<u64>,
    pub rate_per_second: Option<u32>,
    pub by: Option<Arc<str>>,
    pub reason: Option<Arc<str>>,
}
