//! Task definitions: what a task of a certain name does. Stored, versioned, and pinned by the jobs that use them.

mod agent_fields;
mod output_schema;
mod read;
mod schema;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::agent::{AgentSpec, AgentStep, MicroUsd, PermissionMode};
use crate::execution::Run;
use crate::id::TaskName;
use crate::job_file::{RetryEntry, RetryShape};
use crate::json::Json;
use crate::span::Millis;
use crate::task_spec::OnFailure;
use crate::time::Timestamp;

pub(crate) use agent_fields::AgentFields;
pub(crate) use read::{path, secrets};
pub use schema::schema;

/// The bytes of a definition's description.
pub const DESCRIPTION_BYTES_MAX: usize = 10_000;
/// The bytes of a script.
pub const SCRIPT_BYTES_MAX: usize = 100 * 1024;
/// The names of variables that a definition hands over.
pub const SECRETS_MAX: usize = 64;
/// The names of variables that a definition lets others set.
pub const OPEN_VARIABLES_MAX: usize = 64;

/// What carries a task out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Runner {
    /// A program.
    Command,
    /// An agent that gets a prompt.
    Agent,
    /// JavaScript in the sandbox.
    Script,
    /// A handler inside the program that embeds the engine.
    Native,
}

impl Runner {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Agent => "agent",
            Self::Script => "script",
            Self::Native => "native",
        }
    }
}

/// A definition at one version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = with_runner)]
pub struct Definition {
    #[serde(flatten)]
    pub draft: DefinitionDraft,
    /// Counts from 1 and never starts again, not by a removal either.
    pub version: u64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl<'de> Deserialize<'de> for Definition {
    /// The draft holds JSON as it is written, which cannot be read out of a flattened field: both parts are read from the
    /// whole text.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Rest {
            version: u64,
            created_at: Timestamp,
            updated_at: Timestamp,
        }

        let whole = Json::deserialize(deserializer)?;
        let draft = whole.read().map_err(serde::de::Error::custom)?;
        let Rest { version, created_at, updated_at } = whole.read().map_err(serde::de::Error::custom)?;
        Ok(Self { draft, version, created_at, updated_at })
    }
}

impl Definition {
    pub fn name(&self) -> &TaskName {
        &self.draft.name
    }
}

/// Who writes a definition may leave the runner out: the other fields tell it.
fn without_runner(schema: &mut schemars::Schema) {
    if let Some(serde_json::Value::Array(required)) = schema.get_mut("required") {
        required.retain(|field| field != "runner");
    }
}

/// Who reads one is told it.
fn with_runner(schema: &mut schemars::Schema) {
    if let Some(serde_json::Value::Array(required)) = schema.get_mut("required")
        && !required.iter().any(|field| field == "runner")
    {
        required.insert(1, "runner".into());
    }
}

/// A definition as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = without_runner)]
pub struct DefinitionDraft {
    /// Letters, digits, `_` and `-`.
    #[schemars(regex(pattern = "^[A-Za-z0-9_-]{1,200}$"))]
    pub name: TaskName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub runner: Runner,
    /// For the runner `command`: a list of arguments, or one text for the shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Run>,
    /// Variables of the task's environment, with literal values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Names of variables that producers and scripts may set for a task of this definition. None when it is left out; it is
    /// always told, so that one who asks sees it.
    #[serde(default)]
    #[schemars(length(max = OPEN_VARIABLES_MAX))]
    pub open_env: Vec<String>,
    /// Names of variables of the worker's own environment that are handed over to the task. Only those can be that the
    /// operator lists in `TASK_SECRETS`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// Directories that come before those of `PATH`. Relative ones are below the working directory of the worker, as in
    /// `command`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<String>,
    /// For the runners `command` and `agent`: whether the program gets its input as an argument too, which every user of the
    /// machine can see. It is always in the file that `INPUT_FILE` names.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub input_arg: bool,
    /// How long one attempt may take: 1s to 7d. For the runner `agent`: how long one try of a step may take that does not
    /// say its own, held between 1s and 15m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Millis>,
    /// For the runner `agent`: how long one attempt may take with all its steps and tries, 1s to 7d.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_timeout: Option<Millis>,
    /// How long an attempt may print nothing: 1s to 7d.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<Millis>,
    /// Attempts in all; the same as `retry.maxAttempts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    #[serde(default, skip_serializing_if = "RetryEntry::is_empty")]
    #[schemars(with = "RetryShape")]
    pub retry: RetryEntry,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// What happens when a task has failed for good; `fail` when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,
    /// How long a parked task waits before it is failed: 1s to 365d.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub park_timeout: Option<Millis>,
    /// For the runner `agent`: a template; `{{path}}` stands for a value of the input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// For the runner `agent`: a JSON Schema of type object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Json>,
    /// For the runner `agent`: a bare file name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_file: Option<String>,
    /// For the runner `agent`: 1 to 200.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u32>,
    /// For the runner `agent`: the tools that it may use. None means no tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// For the runner `agent`, instead of a prompt and what belongs to it: several prompts, one after the other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<AgentStep>,
    /// For the runner `agent`: for steps that name none; `inherit` leaves the choice to the CLI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// For the runner `agent`: `acceptEdits` when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission_mode: Option<PermissionMode>,
    /// For the runner `agent`: tries within one attempt, 1 to 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_attempts: Option<u32>,
    /// For the runner `agent`: whether a further try or attempt goes on with the session of the failed one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resume_session: bool,
    /// For the runner `agent`: settings of the CLI, such as `hooks`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<Json>,
    /// For the runner `agent`: what one attempt may cost, in dollars.
    #[serde(default, rename = "maxCostUsd", skip_serializing_if = "Option::is_none")]
    pub max_cost: Option<MicroUsd>,
    /// For the runner `script`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
}

impl DefinitionDraft {
    /// A definition of a program, all else left out.
    pub fn command(name: TaskName, command: Run) -> Self {
        Self { command: Some(command), ..Self::of(name, Runner::Command) }
    }

    pub(crate) fn of(name: TaskName, runner: Runner) -> Self {
        Self {
            name,
            description: None,
            runner,
            command: None,
            env: BTreeMap::new(),
            open_env: Vec::new(),
            secrets: Vec::new(),
            path: Vec::new(),
            input_arg: true,
            timeout: None,
            task_timeout: None,
            idle_timeout: None,
            max_attempts: None,
            retry: RetryEntry::default(),
            labels: BTreeMap::new(),
            on_failure: None,
            park_timeout: None,
            prompt: None,
            output_schema: None,
            output_file: None,
            max_turns: None,
            tools: Vec::new(),
            steps: Vec::new(),
            model: None,
            permission_mode: None,
            agent_attempts: None,
            resume_session: false,
            settings: None,
            max_cost: None,
            script: None,
        }
    }

    /// What the runner `agent` does; `None` for other runners.
    pub fn agent(&self) -> Option<AgentSpec> {
        if self.runner != Runner::Agent {
            return None;
        }
        let fields = AgentFields {
            prompt: self.prompt.clone(),
            output_schema: self.output_schema.clone(),
            output_file: self.output_file.clone(),
            max_turns: self.max_turns,
            tools: self.tools.clone(),
            steps: self.steps.clone(),
            timeout: self.timeout,
            model: self.model.clone(),
            permission_mode: self.permission_mode,
            attempts: self.agent_attempts,
            resume_session: self.resume_session,
            settings: self.settings.clone(),
            max_cost: self.max_cost,
        };
        Some(fields.spec())
    }

    /// How long one attempt of a task may take that does not say so itself.
    pub fn attempt_timeout(&self) -> Option<Millis> {
        if self.runner == Runner::Agent { self.task_timeout } else { self.timeout }
    }
}

pub(crate) fn yes() -> bool {
    true
}
