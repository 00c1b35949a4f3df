//! The properties of each event type the engine writes, as typed values.
//!
//! Field names and their order are those of the JSON. What a consumer does not need is not there; an optional field is
//! left out, not null. `run` is there when it is above 1.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::spending::budget::{Budget, BudgetScope, Period, Spending};
use crate::values::id::{JobId, RequestId, SessionId, TaskId, TaskName, WorkerId};
use crate::values::json::Json;
use crate::values::time::Timestamp;
use crate::work::artifact::ArtifactFile;
use crate::work::error_class::ErrorCategory;
use crate::work::head::{Fence, JobCounts, PublicState};
use crate::work::task_spec::TaskSpec;

pub use crate::spending::usage::Usage;

/// Which task an event is about; part of every task event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskIdentity {
    pub request_id: RequestId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    /// Left out in the first run.
    #[serde(default = "first_run", skip_serializing_if = "is_first_run")]
    pub run: u32,
}

fn first_run() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_first_run(run: &u32) -> bool {
    *run == 1
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskPending {
    #[serde(flatten)]
    pub task: TaskIdentity,
    pub name: TaskName,
    /// Only for tasks of a job, and only up to [`LISTED_PARENTS_MAX`]; a longer list is in `Job Created` or `Job Tasks
    /// Added` alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depends_on: Option<Vec<TaskId>>,
    /// How many parents the task has, when they are not listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depends_on_count: Option<usize>,
}

/// The most parents that `Task Pending` lists.
pub const LISTED_PARENTS_MAX: usize = 1_000;

impl TaskPending {
    /// The event of a task of a job with these parents.
    pub fn in_job(task: TaskIdentity, name: TaskName, parents: &[TaskId]) -> Self {
        let is_listed = parents.len() <= LISTED_PARENTS_MAX;
        Self {
            task,
            name,
            depends_on: is_listed.then(|| parents.to_vec()),
            depends_on_count: (!is_listed).then_some(parents.len()),
        }
    }

    /// The event of a task without a job.
    pub fn alone(task: TaskIdentity, name: TaskName) -> Self {
        Self { task, name, depends_on: None, depends_on_count: None }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskProcessingStarted {
    #[serde(flatten)]
    pub task: TaskIdentity,
    pub effective_until: Timestamp,
    pub worker_id: WorkerId,
    pub process_id: u32,
    pub fence: Fence,
    /// Where the attempt writes, on the machine of its worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// The names of those variables of the worker's own environment that the attempt was given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskProcessingFailed {
    #[serde(flatten)]
    pub task: TaskIdentity,
    pub attempt_number: u32,
    /// `false` when the worker gave the task back and the attempt is made again; left out otherwise.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub counted: bool,
    /// Whether the task waits for somebody now; left out otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub parked: bool,
    pub error: String,
    pub error_category: ErrorCategory,
    /// What went wrong, for programs, if the runner for agents says so: `AGENT_NO_OUTPUT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// How long the attempt took; only with `usage`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    pub fence: Fence,
}

fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_yes(value: &bool) -> bool {
    *value
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskCompleted {
    #[serde(flatten)]
    pub task: TaskIdentity,
    /// Left out when it was moved to the blob store (`_s3Overflow`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Json>,
    pub duration_ms: u64,
    pub exit_code: i32,
    /// The files it left, by their paths among the files of the task, such as `r1-a1/artifacts/report.txt`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<ArtifactFile>,
    /// What completed it, if it was not a worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<CompletionSource>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    pub fence: Fence,
    #[serde(default, rename = "_s3Overflow", skip_serializing_if = "Option::is_none")]
    pub overflow: Option<OverflowRef>,
}

/// What completed a task that no worker completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CompletionSource {
    /// Somebody gave the output of a parked task.
    Resume,
}

/// Where the large fields of an event were put.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverflowRef {
    pub bucket: String,
    pub key: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskFailed {
    #[serde(flatten)]
    pub task: TaskIdentity,
    pub error: String,
    pub error_category: ErrorCategory,
    /// Attempts made in this run, the failing one included.
    pub retry_count: u32,
    pub source: FailureSource,
    /// Why it ended, for programs: `BUDGET_EXCEEDED`, `PARK_EXPIRED`, what the person who failed it gave, or what the
    /// runner for agents says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// How long the attempt took; only with `usage`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,
}

/// What ended a task as failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FailureSource {
    /// The worker, on an error that is not tried again.
    Worker,
    /// No attempt was left.
    Dlq,
    /// A person, by cancel or by failing what was parked.
    Api,
    /// The engine, because a parked task waited too long.
    Expired,
    /// The engine, because a budget is used up.
    Budget,
}

/// A budget was used up by an attempt that ended. No further agent task starts under it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetExceeded {
    pub scope: BudgetScope,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// The task whose attempt it was.
    pub request_id: RequestId,
    pub limit: Budget,
    /// Left out for a budget that holds for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<Period>,
    pub spent: Spending,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskTimeout {
    #[serde(flatten)]
    pub task: TaskIdentity,
    pub timeout_ms: u64,
    pub elapsed_ms: u64,
    /// `SIGTERM` or `SIGKILL`.
    pub signal: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    pub fence: Fence,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskHeartbeat {
    pub request_id: RequestId,
    /// Left out in the first run.
    #[serde(default = "first_run", skip_serializing_if = "is_first_run")]
    pub run: u32,
    pub effective_until: Timestamp,
    pub heartbeat_number: u32,
    pub elapsed_ms: u64,
    pub worker_id: WorkerId,
    pub process_id: u32,
    pub memory_usage: MemoryUsage,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_activity: Option<Activity>,
    pub fence: Fence,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryUsage {
    /// Resident bytes of the task's processes.
    pub rss: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Activity {
    #[serde(rename = "type")]
    pub kind: ActivityKind,
    pub step_name: String,
    pub timestamp: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ActivityKind {
    StepRunning,
    SdkQuery,
    Waiting,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobCreated {
    pub job_id: JobId,
    pub request_id: RequestId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What its agents may use in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Left out when it was moved to the blob store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<Vec<TaskSpec>>,
    pub total_tasks: u32,
    #[serde(default, rename = "_s3Overflow", skip_serializing_if = "Option::is_none")]
    pub overflow: Option<OverflowRef>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobTasksAdded {
    pub job_id: JobId,
    /// Left out when it was moved to the blob store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_tasks: Option<Vec<TaskSpec>>,
    pub previous_total_tasks: u32,
    pub total_tasks_now: u32,
    #[serde(default, rename = "_s3Overflow", skip_serializing_if = "Option::is_none")]
    pub overflow: Option<OverflowRef>,
}

/// Tasks that did not complete got other work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobTasksChanged {
    pub job_id: JobId,
    /// The first of them, at most `CHANGED_TASKS_MAX`.
    pub tasks: Vec<ChangedTask>,
    /// How many they are.
    pub task_count: u32,
    pub source: ChangeSource,
    /// The author of the change.
    pub by: String,
}

/// The tasks that one event names as changed.
pub const CHANGED_TASKS_MAX: usize = 1_000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangedTask {
    pub task_id: TaskId,
    /// The fields that differ, as job files name them; `definition` is another version of it.
    pub fields: Vec<String>,
}

/// What changed tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeSource {
    /// A changed file.
    Update,
    /// A resume with the newest definitions.
    Newest,
}

/// The states of a job's tasks at one moment, whole up to `TASK_STATUSES_MAX` tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskStatuses {
    pub task_statuses: BTreeMap<TaskId, Option<PublicState>>,
    /// Only when not all tasks are listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<JobCounts>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// How many tasks an event lists with their states.
pub const TASK_STATUSES_MAX: usize = 1_000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobCompleted {
    pub job_id: JobId,
    pub total_tasks: u32,
    #[serde(flatten)]
    pub statuses: TaskStatuses,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobFailureDetected {
    pub job_id: JobId,
    pub failed_task_id: TaskId,
    #[serde(flatten)]
    pub statuses: TaskStatuses,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobCancelled {
    pub job_id: JobId,
    pub by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskHealthCheck {
    pub summary: HealthSummary,
    pub tasks: Vec<TaskHealth>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HealthSummary {
    pub total_processing: u32,
    pub healthy: u32,
    pub warning: u32,
    pub critical: u32,
    pub overtime: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskHealth {
    pub request_id: RequestId,
    pub health: HealthLevel,
    pub elapsed: u64,
    pub time_since_last_event: u64,
    pub last_event_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<WorkerId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HealthLevel {
    Critical,
    Overtime,
    Warning,
    Healthy,
}
