//! What a task is asked to do, as its job or its submitter wrote it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::id::{TaskId, TaskName};
use crate::values::json::Json;
use crate::work::retry::RetryPolicy;
use crate::work::runner_spec::RunnerSpec;

/// One task of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskSpec {
    pub task_id: TaskId,
    pub name: TaskName,
    #[serde(default)]
    pub depends_on: Vec<TaskId>,
    /// Static input; a JSON object without the reserved keys `dependencyOutputs` and `dependencyArtifacts`.
    #[serde(default)]
    pub input: Json,
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub options: TaskOptions,
}

/// What may be set per task and is left out when it is not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskOptions {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
    /// Wall time for one attempt, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// What the executor needs and the engine does not read: command, environment, labels, definition version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<Json>,
    /// Whether an agent carries it out, so that budgets stop it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub agent: bool,
    #[serde(default, skip_serializing_if = "OnFailure::is_fail")]
    pub on_failure: OnFailure,
    /// How long it waits for somebody once it is parked, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub park_timeout_ms: Option<u64>,
    /// Its label `county`, by which errors are told apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub county: Option<String>,
}

/// What becomes of a task that no further attempt may help.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// It is failed.
    #[default]
    Fail,
    /// It waits until somebody lets it go on or fails it.
    Park,
}

impl OnFailure {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
    fn is_fail(&self) -> bool {
        *self == Self::Fail
    }
}

impl TaskSpec {
    /// What the task does, as far as its errors are told apart: the name of its definition, or by what it runs if the
    /// job brought the work along. The name of such a task is its id, and a job may hold thousands of one kind.
    pub fn kind_of_work(&self) -> &str {
        match &self.options.execution {
            Some(execution) if !RunnerSpec::names_definition(execution) => {
                if self.options.agent {
                    "inline agent"
                } else if execution.as_str().starts_with(r#"{"script":"#) {
                    "inline script"
                } else {
                    "inline command"
                }
            }
            _ => self.name.as_str(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::runner_spec::{Pinned, Run};

    #[test]
    fn tasks_that_bring_their_work_along_are_of_one_kind() {
        let name = TaskName::trusted("fetch");
        let shell = || Some(Run::Shell("exit 7".to_owned()));
        let none = RunnerSpec::default;
        for (execution, agent, expected) in [
            (None, false, "t-1"),
            (Some(RunnerSpec { run: shell(), ..none() }), false, "inline command"),
            (Some(RunnerSpec { script: Some("1".to_owned()), ..none() }), false, "inline script"),
            (Some(none()), true, "inline agent"),
            (Some(RunnerSpec { definition: Some(Pinned { name, version: 1 }), ..none() }), true, "t-1"),
        ] {
            let execution = execution.as_ref().map(Json::of);
            let spec = TaskSpec {
                task_id: TaskId::new("t-1").unwrap(),
                name: TaskName::trusted("t-1"),
                depends_on: Vec::new(),
                input: Json::default(),
                options: TaskOptions { execution, agent, ..TaskOptions::default() },
            };
            assert_eq!(spec.kind_of_work(), expected);
        }
    }
}
