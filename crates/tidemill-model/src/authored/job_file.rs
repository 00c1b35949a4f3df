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

use crate::authored::agent::AgentSpec;
use crate::authored::field_kinds::{count, env, flag, labels, path, secrets, short_text, span};
use crate::authored::fields::{fields, fields_of};
use crate::spending::budget::Budget;
use crate::values::id::{RequestId, TaskId, TaskName};
use crate::values::json::Json;
use crate::values::span::Millis;
use crate::work::callback_url::CallbackUrl;
use crate::work::retry::RetryPolicy;
use crate::work::runner_spec::Run;
use crate::work::task_spec::OnFailure;

use read::{budget, callback, depends_on, input, request_id, settle_parking, task_id, tasks};
pub(crate) use read::{check_parking, on_failure, retry};
pub(crate) use schema::RetryShape;
pub use schema::schema;
pub(crate) use text::Tasks;

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

fields! {
    /// A job: a graph of tasks.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct JobFile {
        /// What people call the job.
        pub name: Option<String> = short_text("name", JOB_NAME_BYTES_MAX),
        /// The client's own id for this request: repeating it gives the same job again. Minted when left out.
        pub request_id: Option<RequestId> = request_id(),
        /// What the agents of the job may use in all. Once it is used up no further agent task starts.
        pub budget: Option<Budget> = budget(),
        /// The tasks. Each starts once all tasks that it depends on are completed.
        pub tasks: Vec<TaskEntry> = tasks(),
        /// The URL that is called once the job is at rest; the operator must allow its host.
        pub callback: Option<CallbackUrl> = callback(),
    }
}

fields! {
    /// Further tasks of a job.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct AddTasksFile {
        /// They may depend on tasks of the job and on each other.
        pub tasks: Vec<TaskEntry> = tasks(),
    }
}

fields! {
    /// A task without a job. Exactly one of name, run, agent and script says what it does.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct TaskFile {
        /// The task's id, unique for the tenant: repeating it gives the same task again. Minted when left out.
        pub request_id: Option<RequestId> = request_id(),
        pub work: TaskWork = fields_of(),
        /// What the task gets as its input.
        pub input: Json = input(),
        pub settings: TaskSettings = fields_of(),
    }
}

fields! {
    /// One task of a job. Exactly one of name, run, agent and script says what it does.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct TaskEntry {
        /// The task's name within the job.
        pub task_id: TaskId = task_id(),
        pub work: TaskWork = fields_of(),
        /// The tasks that must be completed before this one starts.
        pub depends_on: Vec<TaskId> = depends_on(),
        /// What the task gets as its input, beside the outputs of the tasks it depends on.
        pub input: Json = input(),
        pub settings: TaskSettings = fields_of(),
    }
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

fields! {
    /// What may be set per task. What is left out comes from the definition, or from the defaults.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct TaskSettings {
        /// How long one attempt may take: 1s to 7d.
        pub timeout: Option<Millis> = span("timeout", TIMEOUT_MILLIS_MIN..=TIMEOUT_MILLIS_MAX),
        /// How long an attempt may print nothing: 1s to 7d.
        pub idle_timeout: Option<Millis> = span("idleTimeout", TIMEOUT_MILLIS_MIN..=TIMEOUT_MILLIS_MAX),
        /// How often and how fast it is tried again.
        pub retry: RetryEntry = retry(),
        /// Variables of the task's environment, with literal values.
        pub env: BTreeMap<String, String> = env(),
        /// For run and agent: names of variables of the worker's environment that the operator lists in `TASK_SECRETS`.
        // A definition says its own.
        pub secrets: Vec<String> = secrets(),
        /// For run and agent: directories that come before those of PATH.
        pub path: Vec<String> = path(),
        /// Words to find the task by.
        pub labels: BTreeMap<String, String> = labels(),
        /// What happens when the task has failed for good.
        pub on_failure: Option<OnFailure> = on_failure(),
        /// How long a parked task waits before it is failed: 1s to 365d.
        pub park_timeout: Option<Millis> = span("parkTimeout", TIMEOUT_MILLIS_MIN..=PARK_MILLIS_MAX),
    }
    then settle_parking;
}

fields! {
    /// How often and how fast a task is tried again, as far as it is given.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "camelCase", default)]
    pub struct RetryEntry {
        /// Attempts in all, the first one included.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub max_attempts: Option<u32> = count("maxAttempts", 1..=ATTEMPTS_MAX),
        /// The delay after the first failed attempt. It doubles with each further one.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub first_delay: Option<Millis> = span("firstDelay", 0..=RETRY_DELAY_MILLIS_MAX),
        /// The longest delay.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub max_delay: Option<Millis> = span("maxDelay", 0..=RETRY_DELAY_MILLIS_MAX),
        /// Whether an attempt that took too long is tried again like one that failed. Without it a timeout is final.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub on_timeout: Option<bool> = flag("onTimeout"),
    }
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
