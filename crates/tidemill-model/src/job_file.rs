//! Job files: a job as a client writes it, in a file or in a request.
//!
//! The text is read elsewhere; here a JSON value becomes a checked job or a list of everything that is wrong with it.
//! Whether the tasks form a graph is for `dag` to say, and whether their definitions exist for the engine.

mod read;
mod schema;
mod text;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::agent::AgentSpec;
use crate::budget::Budget;
use crate::callback_url::CallbackUrl;
use crate::execution::Run;
use crate::id::{RequestId, TaskId, TaskName};
use crate::json::Json;
use crate::retry::RetryPolicy;
use crate::span::Millis;
use crate::task_spec::OnFailure;

pub(crate) use read::{parking, retry};
pub(crate) use schema::RetryShape;
pub use schema::schema;
pub(crate) use schema::{AgentStepShape, OnFailureShape};

/// The bytes of a job's name.
pub const JOB_NAME_BYTES_MAX: usize = 200;
/// The shortest time limit of a task, in milliseconds.
pub const TIMEOUT_MILLIS_MIN: u64 = 1_000;
/// The longest time limit of a task, in milliseconds: 7 days.
pub const TIMEOUT_MILLIS_MAX: u64 = 7 * 24 * 3_600_000;
/// The attempts that a task's own retry policy may ask for.
pub const ATTEMPTS_MAX: u32 = 1_000;
/// The longest delay between attempts, in milliseconds: 7 days.
pub const RETRY_DELAY_MILLIS_MAX: u64 = 7 * 24 * 3_600_000;

/// The longest time that a parked task may wait, in milliseconds: a year.
pub const PARK_MILLIS_MAX: u64 = 365 * 24 * 3_600_000;
/// The label by which errors of tasks are told apart.
pub const COUNTY_LABEL: &str = "county";

/// A job as a client writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFile {
    pub name: Option<String>,
    pub request_id: Option<RequestId>,
    /// What its agents may use in all.
    pub budget: Option<Budget>,
    /// Who is told once it is at rest.
    pub callback: Option<CallbackUrl>,
    pub tasks: Vec<TaskEntry>,
}

/// Further tasks of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddTasksFile {
    pub tasks: Vec<TaskEntry>,
}

/// A task without a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskFile {
    pub request_id: Option<RequestId>,
    pub work: TaskWork,
    pub input: Json,
    pub settings: TaskSettings,
}

/// One task of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskEntry {
    pub task_id: TaskId,
    pub work: TaskWork,
    pub depends_on: Vec<TaskId>,
    pub input: Json,
    pub settings: TaskSettings,
}

/// What a task does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskWork {
    /// A stored definition.
    Named(TaskName),
    /// A command that the file brings along.
    Inline(Run),
    /// What an agent does, brought along too.
    Agent(Box<AgentSpec>),
    /// A script for the sandbox, brought along too.
    Script(String),
}

impl TaskWork {
    /// The field that brings the work along, if it is no stored definition.
    pub fn inline_field(&self) -> Option<&'static str> {
        match self {
            Self::Named(_) => None,
            Self::Inline(_) => Some("run"),
            Self::Agent(_) => Some("agent"),
            Self::Script(_) => Some("script"),
        }
    }
}

/// What may be set per task. What is left out comes from the definition, or from the defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskSettings {
    pub timeout: Option<Millis>,
    pub idle_timeout: Option<Millis>,
    pub retry: RetryEntry,
    pub env: BTreeMap<String, String>,
    /// Names of variables of the worker's environment that the task is given. Only work that the file brings along has
    /// them; a definition says its own.
    pub secrets: Vec<String>,
    /// Directories before `PATH`, of the same.
    pub path: Vec<String>,
    pub labels: BTreeMap<String, String>,
    pub on_failure: Option<OnFailure>,
    /// How long the task may wait once it is parked.
    pub park_timeout: Option<Millis>,
}

/// How often and how fast a task is tried again, as far as it is given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RetryEntry {
    /// Attempts in all, the first one included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// The delay after the first failed attempt. It doubles with each further one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_delay: Option<Millis>,
    /// The longest delay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_delay: Option<Millis>,
    /// Whether an attempt that took too long is tried again like one that failed. Without it a timeout is final.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_timeout: Option<bool>,
}

impl RetryEntry {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What is left out here, taken from `other`.
    #[must_use]
    pub fn over(self, other: Self) -> Self {
        Self {
            max_attempts: self.max_attempts.or(other.max_attempts),
            first_delay: self.first_delay.or(other.first_delay),
            max_delay: self.max_delay.or(other.max_delay),
            on_timeout: self.on_timeout.or(other.on_timeout),
        }
    }

    /// The whole policy; `None` when nothing is given, so that the default of the day holds.
    pub fn policy(self, default: RetryPolicy) -> Option<RetryPolicy> {
        (!self.is_empty()).then(|| RetryPolicy {
            max_attempts: self.max_attempts.unwrap_or(default.max_attempts),
            first_delay: self.first_delay.map_or(default.first_delay, |delay| delay.0),
            max_delay: self.max_delay.map_or(default.max_delay, |delay| delay.0),
            on_timeout: self.on_timeout.unwrap_or(default.on_timeout),
        })
    }
}
