//! The calls of a worker on another machine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidemill_model::events::properties::Activity;
use tidemill_model::{ArtifactFile, ErrorCategory, Json, MicroUsd, ResolvedRunner, SessionId};

use crate::{UsageView, object};

/// A worker asks for tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClaimRequest {
    /// Its name, in events and leases.
    #[schemars(length(min = 1, max = 128))]
    pub worker_id: String,
    /// Names this claim. Asking again under the same name gives the same tasks, so that a lost answer loses nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub claim_id: Option<String>,
    /// How many tasks it can take; 1 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub slots: Option<u32>,
    /// How long to wait for the first task; 0 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 30_000))]
    pub wait_ms: Option<u64>,
}

/// Tasks that the worker holds now. None when nothing came in time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimedTasks {
    pub tasks: Vec<ClaimedTask>,
    /// How long a claim or a heartbeat protects a task. Send heartbeats at less than half of it.
    pub lease_ms: u64,
    /// How long after the request came the tasks were claimed; below zero when an earlier request of the same `claimId` did.
    /// Count `leaseMs` from this long after you sent the request: the answer's travel time is not part of the lease.
    pub claimed_after_ms: i64,
}

/// A task to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimedTask {
    pub tenant_id: String,
    pub app: String,
    pub request_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
    pub task_id: String,
    pub name: String,
    pub run: u32,
    pub attempt: u32,
    /// Part of every further call. It grows with every claim, so it can guard effects outside.
    pub fence: u64,
    /// Epoch milliseconds.
    pub lease_until: u64,
    /// Wall time for the attempt; the worker's own limit when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The agent's session in the last attempt of this run that reported one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// What is left of the tightest budget in dollars, for an agent task under one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_left_usd: Option<MicroUsd>,
    /// Which budget that is, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_name: Option<String>,
    /// The task's input and, if it has dependencies, `dependencyOutputs`; and `dependencyArtifacts` if any of them left
    /// files.
    #[schemars(with = "serde_json::Value")]
    pub input: Json,
    /// The attempts whose files `dependencyArtifacts` names, as far as there are any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependency_attempts: Vec<DependencyAttempt>,
    /// How it is run.
    pub execution: ResolvedRunner,
}

/// The attempt that completed a task on which another depends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DependencyAttempt {
    pub task_id: String,
    pub request_id: String,
    pub run: u32,
    pub attempt: u32,
    pub fence: u64,
}

/// The task's process runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BeginRequest {
    /// Needed when the key serves several tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    #[schemars(regex(pattern = r"^[A-Za-z0-9_-]{1,256}$"))]
    pub request_id: String,
    pub fence: u64,
    /// The holder of the lease when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub worker_id: Option<String>,
    pub pid: u32,
    /// Where the attempt writes on the worker's machine, for people who look at the task; at most 1,024 bytes count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4_096))]
    pub directory: Option<String>,
    /// The names of the variables of the worker's own environment that the task was given; the first 64 count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1_000))]
    pub variables: Vec<String>,
}

/// The worker is still at it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HeartbeatRequest {
    /// Needed when the key serves several tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    #[schemars(regex(pattern = r"^[A-Za-z0-9_-]{1,256}$"))]
    pub request_id: String,
    pub fence: u64,
    /// The holder of the lease when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub worker_id: Option<String>,
    /// The task's process; 0 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Resident bytes of the task's processes; 0 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rss: Option<u64>,
    #[serde(default, deserialize_with = "object::maybe", skip_serializing_if = "Option::is_none")]
    pub last_activity: Option<Activity>,
    /// Output of the task since the last heartbeat, for its watchers; at most 256 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 262_144))]
    pub log: Option<String>,
}

/// Whether to go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeartbeatAnswer {
    /// Epoch milliseconds; null when the task was cancelled.
    pub lease_until: Option<u64>,
    /// How long this heartbeat protects the task; absent when the task was cancelled. It differs from that of the claim if the
    /// server was started again with another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    /// The task was cancelled: kill it and report nothing.
    pub cancel: bool,
}

/// An attempt is over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FinishRequest {
    /// Needed when the key serves several tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    #[schemars(regex(pattern = r"^[A-Za-z0-9_-]{1,256}$"))]
    pub request_id: String,
    pub fence: u64,
    /// The holder of the lease when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub worker_id: Option<String>,
    /// The process of an attempt whose beginning was not said yet. It is recorded first, in the same step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// With `pid`: where the attempt writes on the worker's machine, for people who look at the task; at most 1,024 bytes count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4_096))]
    pub directory: Option<String>,
    /// With `pid`: the names of the variables of the worker's own environment that the task was given; the first 64 count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1_000))]
    pub variables: Vec<String>,
    #[serde(deserialize_with = "object::one")]
    pub outcome: OutcomeReport,
}

/// How an attempt ended. Which fields count depends on the status.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Outcome")]
pub struct OutcomeReport {
    pub status: OutcomeStatus,
    /// completed: any JSON value of up to 16 MiB; `{}` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    pub output: Option<Json>,
    /// completed: how long it took; 0 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// completed: 0 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// completed: the files that it left, by their paths below `artifacts/`. Each was stored before, under this lease and
    /// with this size. The tasks that depend on it are given them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1_000))]
    pub artifacts: Vec<ArtifactFile>,
    #[serde(default, deserialize_with = "object::maybe", skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageView>,
    /// The agent's session. The next attempt of the run gets it with its claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// failed: what went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// failed: decides whether it is tried again; `unknown` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_category: Option<ErrorCategory>,
    /// failed: the task's own code of the error; it counts if it is two digits and more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub error_code: Option<String>,
    /// failed: the next attempt comes no sooner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 604_800_000))]
    pub retry_after_ms: Option<u64>,
    /// timeout: the limit that was passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// timeout: how long it had run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elapsed_ms: Option<u64>,
    /// timeout: `SIGTERM`, or `SIGKILL` if that did not help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OutcomeStatus {
    Completed,
    Failed,
    /// The worker killed it because its time was over.
    Timeout,
}

/// The outcome is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Finished {
    pub state: FinishedState,
    /// When the next attempt may start, in epoch milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<u64>,
    /// The same was reported before.
    pub repeated: bool,
}

/// What follows an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FinishedState {
    Completed,
    Failed,
    Retrying,
    /// It failed for good and waits for somebody.
    Parked,
}

/// The worker gives a task back without an outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReleaseRequest {
    /// Needed when the key serves several tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    #[schemars(regex(pattern = r"^[A-Za-z0-9_-]{1,256}$"))]
    pub request_id: String,
    pub fence: u64,
    /// The holder of the lease when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub worker_id: Option<String>,
    /// Recorded with the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2_000))]
    pub reason: Option<String>,
    /// What the attempt had used; counted only with a reason.
    #[serde(default, deserialize_with = "object::maybe", skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageView>,
    /// The agent's session; kept only with a reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
}

/// It is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Done {
    /// Always true.
    pub ok: bool,
}

/// A file is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlobStored {
    /// Below the task's folder, such as `r1-a1/logs/output.log`.
    pub path: String,
    pub size_bytes: u64,
}
