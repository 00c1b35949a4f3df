//! What ran: the last attempt of a task as it was resolved.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidemill_model::{Json, Run, Runner};

/// What ran in the last attempt of a task that began. Secrets are never in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Ran")]
pub struct RanView {
    pub run: u32,
    pub fence: u64,
    pub worker_id: String,
    pub process_id: u32,
    /// Epoch milliseconds.
    pub started_at: u64,
    /// Where it wrote, on the machine of its worker, if the worker reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// The task was given other work since it was claimed for this attempt. So what it carried out is not known any more:
    /// `runner`, `command`, `script`, `prompts` and the variables of definition and task are absent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub changed_since: bool,
    /// Absent if it cannot be known any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<Runner>,
    /// A list of arguments, or one text for the shell; the first 16,384 characters of each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Run>,
    /// What stands behind the command of a definition. The input follows it, unless it is large or kept out of there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// The prompts of an agent, step by step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prompts: Vec<RanPromptView>,
    /// The variables that it was given, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<RanVariableView>,
    /// What the tasks gave on which it depends, the first 20 of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<RanDependencyView>,
    /// How many more there are.
    #[serde(default, skip_serializing_if = "tidemill_model::is_default")]
    pub dependencies_omitted: usize,
}

/// The prompt of one step of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "RanPrompt")]
pub struct RanPromptView {
    pub step: String,
    /// The first 16,384 characters.
    pub text: String,
    /// With its values filled in. They are known when the attempt has ended.
    pub filled: bool,
}

/// A variable that a task was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "RanVariable")]
pub struct RanVariableView {
    pub name: String,
    /// Absent for variables of the worker's own environment, secrets among them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    pub origin: VariableOrigin,
}

/// Where a variable came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum VariableOrigin {
    /// The worker's environment, as every task gets it.
    Worker,
    /// The worker's environment, because the definition asks for it.
    Secret,
    /// Definition or task.
    Task,
    /// What the worker tells every task of itself.
    Tidemill,
}

impl VariableOrigin {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Secret => "secret",
            Self::Task => "task",
            Self::Tidemill => "tidemill",
        }
    }
}

/// What a task gave on which another depends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "RanDependency")]
pub struct RanDependencyView {
    pub task_id: String,
    /// Absent if it has more than 2 KiB, or is not to be had any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    pub output: Option<Json>,
    /// The files that it left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<tidemill_model::ArtifactFile>,
}
