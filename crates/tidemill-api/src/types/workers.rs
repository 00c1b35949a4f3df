//! Workers, as far as the server heard of them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A worker that serves the tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Worker")]
pub struct WorkerView {
    pub worker_id: String,
    pub place: WorkerPlaceName,
    /// When it last asked for work or reported on a task, in epoch milliseconds.
    pub last_seen_at: u64,
    /// How many tasks it runs at a time, if it said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// How many tasks of the tenant it has.
    pub running: u32,
    /// The first 20 of them, by id.
    pub tasks: Vec<WorkerTaskView>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "WorkerPlace")]
pub enum WorkerPlaceName {
    /// Within the server that answers.
    Server,
    /// A process of its own.
    Remote,
}

/// A task that a worker has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "WorkerTask")]
pub struct WorkerTaskView {
    pub request_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    pub name: String,
    pub run: u32,
    pub attempt: u32,
    /// When the worker took it, in epoch milliseconds.
    pub since: u64,
    /// Until when the worker may keep it without another word, in epoch milliseconds.
    pub lease_until: u64,
}
