//! Task definitions: what a task of a certain name does. Stored, versioned, and pinned by the jobs that use them.

mod read;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::execution::Run;
use crate::id::TaskName;
use crate::job_file::RetryEntry;
use crate::json::Json;
use crate::span::Millis;
use crate::time::Timestamp;

/// The bytes of a definition's description.
pub const DESCRIPTION_BYTES_MAX: usize = 10_000;
/// The bytes of an agent's prompt.
pub const PROMPT_BYTES_MAX: usize = 100 * 1024;
/// The bytes of an output schema, as JSON.
pub const OUTPUT_SCHEMA_BYTES_MAX: usize = 100 * 1024;
/// The bytes of a script.
pub const SCRIPT_BYTES_MAX: usize = 100 * 1024;
/// The tools that an agent may be given.
pub const TOOLS_MAX: usize = 64;
/// The turns of an agent.
pub const TURNS_MAX: u64 = 200;
/// The longest time limit of an agent's step, in milliseconds: 15 minutes.
pub const AGENT_TIMEOUT_MILLIS_MAX: u64 = 900_000;
/// The names of variables that a definition hands over.
pub const SECRETS_MAX: usize = 64;

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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Definition {
    #[serde(flatten)]
    pub draft: DefinitionDraft,
    /// Counts from 1 and never starts again, not by a removal either.
    pub version: u64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl Definition {
    pub fn name(&self) -> &TaskName {
        &self.draft.name
    }
}

/// A definition as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
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
    /// Names of variables of the worker's own environment that are handed over to the task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// How long one attempt may take: 1s to 7d, for an agent up to 15m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Millis>,
    /// How long an attempt may print nothing: 1s to 7d.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<Millis>,
    /// Attempts in all; the same as `retry.maxAttempts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    #[serde(default, skip_serializing_if = "RetryEntry::is_empty")]
    pub retry: RetryEntry,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// For the runner `agent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// For the runner `agent`: a JSON Schema of type object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Json>,
    /// For the runner `agent`: a bare file name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_file: Option<String>,
    /// For the runner `agent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u32>,
    /// For the runner `agent`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// For the runner `agent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
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
            secrets: Vec::new(),
            timeout: None,
            idle_timeout: None,
            max_attempts: None,
            retry: RetryEntry::default(),
            labels: BTreeMap::new(),
            prompt: None,
            output_schema: None,
            output_file: None,
            max_turns: None,
            tools: Vec::new(),
            model: None,
            script: None,
        }
    }
}
