//! Task definitions: what a task of a certain name does. Stored, versioned, and pinned by the jobs that use them.

mod read;
mod schema;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::json;

use crate::authored::agent::{AgentFields, AgentSpec};
use crate::authored::field_kinds::{count, env, flag_or, labels, long_text, path, run, secrets, span};
use crate::authored::fields::{fields, fields_of};
use crate::authored::job_file::{
    ATTEMPTS_MAX, PARK_MILLIS_MAX, RetryEntry, RetryShape, TIMEOUT_MILLIS_MAX, TIMEOUT_MILLIS_MIN,
    on_failure, retry,
};
use crate::values::id::TaskName;
use crate::values::json::Json;
use crate::values::span::Millis;
use crate::values::time::Timestamp;
use crate::work::runner_spec::Run;
use crate::work::task_spec::OnFailure;

use read::{name, open_env, pass_over_answer, runner, script, settle, timeout};
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

/// The author of a definition may leave the runner out: the other fields imply it.
fn without_runner(schema: &mut schemars::Schema) {
    if let Some(serde_json::Value::Array(required)) = schema.get_mut("required") {
        required.retain(|field| field != "runner");
    }
}

/// The reader of a definition always gets it.
fn with_runner(schema: &mut schemars::Schema) {
    if let Some(serde_json::Value::Array(required)) = schema.get_mut("required")
        && !required.iter().any(|field| field == "runner")
    {
        required.insert(1, "runner".into());
    }
}

fields! {
    /// A definition as it is written.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "camelCase", remote = "Self")]
    #[schemars(rename = "DefinitionDraft", transform = without_runner, transform = schema::of_agents)]
    pub struct DefinitionDraft {
        /// Letters, digits, `_` and `-`.
        #[schemars(regex(pattern = "^[A-Za-z0-9_-]{1,200}$"))]
        pub name: TaskName = name(),
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub description: Option<String> = long_text("description", DESCRIPTION_BYTES_MAX) => "What it is for.",
        pub runner: Runner = runner()
            => "What carries the task out. It may be left out where another field tells it: command, prompt, steps or script.",
        /// For the runner `command`: a list of arguments, or one text for the shell.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub command: Option<Run> = run("command"),
        /// Variables of the task's environment, with literal values.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        pub env: BTreeMap<String, String> = env(),
        /// Names of variables that producers and scripts may set for a task of this definition. None when it is left out; it is
        /// always told, so that one who asks sees it.
        #[serde(default)]
        #[schemars(length(max = OPEN_VARIABLES_MAX))]
        pub open_env: Vec<String> = open_env()
            => "Names of variables that producers and scripts may set for a task of this definition. None when it is left out.",
        /// Names of variables of the worker's own environment that are handed over to the task. Only those can be that the
        /// operator lists in `TASK_SECRETS`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub secrets: Vec<String> = secrets()
            => "Names of variables of the worker's environment that the operator lists in `TASK_SECRETS`.",
        /// Directories that come before those of `PATH`. Relative ones are below the working directory of the worker, as in
        /// `command`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub path: Vec<String> = path() => "Directories that come before those of PATH.",
        /// For the runners `command` and `agent`: whether the program gets its input as an argument too, which every user of the
        /// machine can see. It is always in the file that `INPUT_FILE` names.
        #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
        pub input_arg: bool = flag_or("inputArg", true)
            => "Whether the program gets its input as an argument too, which every user of the machine can see.",
        /// How long one attempt may take: 1s to 7d. For the runner `agent`: how long one try of a step may take that does not
        /// say its own, held between 1s and 15m.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub timeout: Option<Millis> = timeout()
            => "How long one attempt may take: 1s to 7d. For the runner `agent`: one try of a step, held between 1s and 15m.",
        /// For the runner `agent`: how long one attempt may take with all its steps and tries, 1s to 7d.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub task_timeout: Option<Millis> = span("taskTimeout", TIMEOUT_MILLIS_MIN..=TIMEOUT_MILLIS_MAX),
        /// How long an attempt may print nothing: 1s to 7d.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub idle_timeout: Option<Millis> = span("idleTimeout", TIMEOUT_MILLIS_MIN..=TIMEOUT_MILLIS_MAX),
        /// Attempts in all; the same as `retry.maxAttempts`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub max_attempts: Option<u32> = count("maxAttempts", 1..=ATTEMPTS_MAX),
        #[serde(default, skip_serializing_if = "RetryEntry::is_empty")]
        #[schemars(with = "RetryShape")]
        pub retry: RetryEntry = retry() => "How often and how fast it is tried again.",
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        pub labels: BTreeMap<String, String> = labels() => "Words to find the task by.",
        /// What happens when a task has failed for good; `fail` when it is left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub on_failure: Option<OnFailure> = on_failure() => "What happens when a task has failed for good.",
        /// How long a parked task waits before it is failed: 1s to 365d.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub park_timeout: Option<Millis> = span("parkTimeout", TIMEOUT_MILLIS_MIN..=PARK_MILLIS_MAX),
        #[serde(flatten, deserialize_with = "read_apart")]
        pub agent: AgentFields = fields_of(),
        /// For the runner `script`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub script: Option<String> = script() => "For the runner `script`: the body of a function that sees `ctx.input`.",
    }
    first pass_over_answer;
    then settle;
}

impl Serialize for DefinitionDraft {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for DefinitionDraft {
    /// The fields of an agent hold JSON as it is written, which cannot be read out of a flattened field: both parts are read
    /// from the whole text.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let whole = Json::deserialize(deserializer)?;
        let mut draft = Self::deserialize(&mut serde_json::Deserializer::from_str(whole.as_str()))
            .map_err(serde::de::Error::custom)?;
        draft.agent = whole.read().map_err(serde::de::Error::custom)?;
        Ok(draft)
    }
}

#[expect(clippy::unnecessary_wraps, reason = "serde asks for a result")]
fn read_apart<'de, D: Deserializer<'de>>(_: D) -> Result<AgentFields, D::Error> {
    Ok(AgentFields::default())
}

impl DefinitionDraft {
    /// A definition of a program, all else left out.
    pub fn command(name: TaskName, command: Run) -> Self {
        let rest = Self::read(json!({ "name": "-", "command": ["-"] })).expect("it has what it needs");
        Self { name, command: Some(command), ..rest }
    }

    /// What the runner `agent` does; `None` for other runners.
    pub fn agent(&self) -> Option<AgentSpec> {
        if self.runner != Runner::Agent {
            return None;
        }
        Some(self.agent.clone().spec(self.timeout))
    }

    /// How long one attempt of a task may take that does not say so itself.
    pub fn attempt_timeout(&self) -> Option<Millis> {
        if self.runner == Runner::Agent { self.task_timeout } else { self.timeout }
    }
}

pub(crate) fn yes() -> bool {
    true
}
