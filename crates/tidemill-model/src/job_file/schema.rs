//! The JSON Schema of job files, for editors and for the API's description.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{AddTasksFile, JobFile, RetryEntry, TaskFile};
use crate::agent::{MicroUsd, PermissionMode};
use crate::execution::Run;
use crate::span::Millis;

/// The JSON Schema (2020-12) of a job file.
pub fn schema() -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    generator.into_root_schema_for::<JobFile>().to_value()
}

/// A job: a graph of tasks.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct JobFileShape {
    /// What people call the job.
    #[schemars(length(min = 1, max = 200))]
    name: Option<String>,
    /// The client's own id for this request: repeating it gives the same job again. Minted when left out.
    #[schemars(regex(pattern = "^[A-Za-z0-9_-]{1,256}$"))]
    request_id: Option<String>,
    /// What the agents of the job may use in all. Once it is used up no further agent task starts.
    budget: Option<BudgetShape>,
    /// The tasks. Each starts once all tasks that it depends on are completed.
    #[schemars(length(min = 1, max = 100_000))]
    tasks: Vec<TaskShape>,
    /// Who is told once the job is at rest: an address of the web whose host the operator allows.
    #[schemars(length(max = 2_048), regex(pattern = "^[Hh][Tt][Tt][Pp][Ss]?://[^@#/?\\\\ ]+([/?][^# ]*)?$"))]
    callback_url: Option<String>,
}

/// In dollars, in tokens, or in both: the first limit that is reached counts.
#[derive(JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(inline, extend("minProperties" = 1))]
struct BudgetShape {
    /// Dollars.
    usd: Option<MicroUsd>,
    /// Tokens of all kinds together: input, output, cache reads and cache writes.
    #[schemars(range(max = 1_000_000_000_000_u64))]
    tokens: Option<u64>,
}

/// Further tasks of a job.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AddTasksShape {
    /// They may depend on tasks of the job and on each other.
    #[schemars(length(min = 1, max = 100_000))]
    tasks: Vec<TaskShape>,
}

/// One task of a job. Exactly one of name, run, agent and script says what it does.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("oneOf" = one_of()))]
struct TaskShape {
    /// The task's name within the job.
    task_id: TaskIdShape,
    /// A stored task definition.
    #[serde(default)]
    #[schemars(transform = without_default)]
    name: NameShape,
    /// A command: a list of arguments, or one text for the shell.
    #[serde(default = "no_run")]
    #[schemars(transform = without_default)]
    run: Run,
    /// An agent: its prompt, or an object that says more.
    #[serde(default = "no_agent")]
    #[schemars(transform = without_default)]
    agent: AgentShape,
    /// A script for the sandbox: the body of a function that sees `ctx.input`.
    #[serde(default)]
    #[schemars(transform = without_default)]
    script: String,
    /// The tasks that must be completed before this one starts.
    depends_on: Option<DependsOnShape>,
    /// What the task gets as its input, beside the outputs of the tasks it depends on.
    input: Option<InputShape>,
    /// How long one attempt may take: 1s to 7d.
    timeout: Option<Millis>,
    /// How long an attempt may print nothing: 1s to 7d.
    idle_timeout: Option<Millis>,
    /// How often and how fast it is tried again.
    retry: Option<RetryShape>,
    /// Variables of the task's environment, with literal values.
    env: Option<BTreeMap<String, String>>,
    /// For run and agent: names of variables of the worker's environment that the operator lists in `TASK_SECRETS`.
    #[schemars(length(max = 64))]
    secrets: Option<Vec<String>>,
    /// For run and agent: directories that come before those of PATH.
    #[schemars(length(max = 16))]
    path: Option<Vec<String>>,
    /// Words to find the task by.
    labels: Option<BTreeMap<String, String>>,
    /// What happens when the task has failed for good.
    on_failure: Option<OnFailureShape>,
    /// How long a parked task waits before it is failed: 1s to 365d.
    park_timeout: Option<Millis>,
}

/// A task without a job. Exactly one of name, run, agent and script says what it does.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("oneOf" = one_of()))]
struct AloneShape {
    /// The task's id, unique for the tenant: repeating it gives the same task again. Minted when left out.
    #[schemars(regex(pattern = "^[A-Za-z0-9_-]{1,256}$"))]
    request_id: Option<String>,
    /// A stored task definition.
    #[serde(default)]
    #[schemars(transform = without_default)]
    name: NameShape,
    /// A command: a list of arguments, or one text for the shell.
    #[serde(default = "no_run")]
    #[schemars(transform = without_default)]
    run: Run,
    /// An agent: its prompt, or an object that says more.
    #[serde(default = "no_agent")]
    #[schemars(transform = without_default)]
    agent: AgentShape,
    /// A script for the sandbox: the body of a function that sees `ctx.input`.
    #[serde(default)]
    #[schemars(transform = without_default)]
    script: String,
    /// What the task gets as its input.
    input: Option<InputShape>,
    /// How long one attempt may take: 1s to 7d.
    timeout: Option<Millis>,
    /// How long an attempt may print nothing: 1s to 7d.
    idle_timeout: Option<Millis>,
    /// How often and how fast it is tried again.
    retry: Option<RetryShape>,
    /// Variables of the task's environment, with literal values.
    env: Option<BTreeMap<String, String>>,
    /// For run and agent: names of variables of the worker's environment that the operator lists in `TASK_SECRETS`.
    #[schemars(length(max = 64))]
    secrets: Option<Vec<String>>,
    /// For run and agent: directories that come before those of PATH.
    #[schemars(length(max = 16))]
    path: Option<Vec<String>>,
    /// Words to find the task by.
    labels: Option<BTreeMap<String, String>>,
    /// What happens when the task has failed for good.
    on_failure: Option<OnFailureShape>,
    /// How long a parked task waits before it is failed: 1s to 365d.
    park_timeout: Option<Millis>,
}

/// A name without control characters and `#`.
#[derive(JsonSchema, Serialize, Default)]
#[schemars(inline)]
struct NameShape(#[schemars(regex(pattern = r"^[^#\x00-\x1f\x7f-\x9f]{1,200}$"))] String);

/// The name of a task within its job.
#[derive(JsonSchema, Serialize)]
#[schemars(inline)]
struct TaskIdShape(#[schemars(regex(pattern = "^[A-Za-z0-9_-]{1,200}$"))] String);

/// One task, or a list of them.
#[derive(JsonSchema, Serialize)]
#[serde(untagged)]
#[schemars(inline)]
#[expect(dead_code, reason = "only its shape is used")]
enum DependsOnShape {
    One(TaskIdShape),
    Several(Vec<TaskIdShape>),
}

/// How often it is tried, or how often and how fast.
#[derive(JsonSchema, Serialize)]
#[serde(untagged)]
#[schemars(inline)]
#[expect(dead_code, reason = "only its shape is used")]
pub(crate) enum RetryShape {
    /// Attempts in all, the first one included.
    Attempts(#[schemars(range(min = 1, max = 1_000))] u32),
    Policy(RetryEntry),
}

/// An object without the keys under which the outputs and artifacts of other tasks are put.
#[derive(JsonSchema, Serialize)]
#[schemars(inline, extend("properties" = serde_json::json!({ "dependencyOutputs": false, "dependencyArtifacts": false })))]
struct InputShape(Map<String, Value>);

/// What an agent does.
#[derive(JsonSchema, Serialize)]
#[serde(untagged)]
#[schemars(inline)]
#[expect(dead_code, reason = "only its shape is used")]
enum AgentShape {
    /// The prompt of the only step; `{{path}}` stands for a value of the input.
    Prompt(String),
    Object(Box<AgentObjectShape>),
}

/// What an agent does. A single prompt has its fields here; several have theirs in `steps`.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Agent", extend("oneOf" = [{ "required": ["prompt"] }, { "required": ["steps"] }]))]
struct AgentObjectShape {
    /// A template: `{{path}}` stands for a value of the input.
    #[serde(default)]
    prompt: String,
    /// A JSON Schema of type object that the output must satisfy. Nothing is fetched for it.
    output_schema: Option<Map<String, Value>>,
    /// A bare file name for the output.
    #[schemars(length(min = 1, max = 200))]
    output_file: Option<String>,
    /// 30 when it is left out.
    #[schemars(range(min = 1, max = 200))]
    max_turns: Option<u32>,
    /// The tools that the agent may use, such as `Read` or `Bash(git status:*)`. None means no tools.
    #[schemars(length(max = 100))]
    tools: Option<Vec<String>>,
    /// Several prompts, one after the other. Each may use the outputs before it as `{{steps.NAME.path}}`.
    #[serde(default)]
    #[schemars(length(min = 1, max = 20), transform = without_default)]
    steps: Vec<AgentStepShape>,
    /// How long one try of a step may take that does not say its own; held between 1s and 15m.
    timeout: Option<Millis>,
    /// For steps that name none; `inherit` leaves the choice to the CLI.
    #[schemars(length(min = 1, max = 200))]
    model: Option<String>,
    /// `acceptEdits` when it is left out.
    permission_mode: Option<PermissionMode>,
    /// Tries within one attempt of the task, for failures that pass.
    #[schemars(range(min = 1, max = 10))]
    agent_attempts: Option<u32>,
    /// Whether a further try or attempt goes on with the session of the failed one.
    resume_session: Option<bool>,
    /// Settings of the CLI, such as `hooks`.
    settings: Option<Map<String, Value>>,
    /// What one attempt may cost, in dollars.
    max_cost_usd: Option<MicroUsd>,
}

/// One prompt and what must come of it.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "AgentStep")]
pub(crate) struct AgentStepShape {
    /// Unique among the steps; `step-1`, `step-2` and so on when it is left out.
    #[schemars(regex(pattern = "^[A-Za-z0-9_-]{1,100}$"))]
    name: Option<String>,
    /// A template: `{{path}}` stands for a value of the input, `{{steps.NAME.path}}` for one of an earlier output.
    prompt: String,
    /// A JSON Schema of type object that the output must satisfy. Nothing is fetched for it.
    output_schema: Option<Map<String, Value>>,
    /// A bare file name for the output.
    #[schemars(length(min = 1, max = 200))]
    output_file: Option<String>,
    /// 30 when it is left out.
    #[schemars(range(min = 1, max = 200))]
    max_turns: Option<u32>,
    /// The tools that the agent may use in this step.
    #[schemars(length(max = 100))]
    tools: Option<Vec<String>>,
    /// How long one try may take; held between 1s and 15m.
    timeout: Option<Millis>,
    /// The model of this step.
    #[schemars(length(min = 1, max = 200))]
    model: Option<String>,
}

/// Makes `agent` a field that may be left out but is not null.
fn no_agent() -> AgentShape {
    AgentShape::Prompt(String::new())
}

/// Makes `run` a field that may be left out but is not null.
/// What is left out is no empty list, which the field itself would refuse.
fn without_default(schema: &mut schemars::Schema) {
    schema.remove("default");
}

fn no_run() -> Run {
    Run::Argv(Vec::new())
}

#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
#[expect(dead_code, reason = "only its shape is used")]
pub(crate) enum OnFailureShape {
    /// The task is failed.
    Fail,
    /// The task waits until somebody resumes or fails it, or until its time is over.
    Park,
}

fn one_of() -> Value {
    let required = |field: &str| serde_json::json!({ "required": [field] });
    Value::Array(["name", "run", "agent", "script"].map(required).to_vec())
}

macro_rules! shaped_like {
    ($($type:ty => $shape:ty, $name:literal;)+) => {
        $(impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                <$shape>::json_schema(generator)
            }
        })+
    };
}

shaped_like! {
    JobFile => JobFileShape, "JobFile";
    AddTasksFile => AddTasksShape, "AddTasksFile";
    TaskFile => AloneShape, "TaskFile";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_describes_what_is_read() {
        let schema = schema();
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        assert_eq!(schema["title"], "JobFile");
        assert_eq!(schema["additionalProperties"], false);
        let names = |object: &Value| {
            object["properties"]
                .as_object()
                .unwrap()
                .keys()
                .cloned()
                .collect::<std::collections::BTreeSet<_>>()
        };
        let expected = ["budget", "callbackUrl", "name", "requestId", "tasks"];
        assert_eq!(names(&schema), expected.map(str::to_owned).into());
        let task = &schema["$defs"]["TaskShape"];
        let expected = [
            "taskId",
            "name",
            "run",
            "agent",
            "script",
            "dependsOn",
            "input",
            "timeout",
            "idleTimeout",
            "retry",
            "env",
            "secrets",
            "path",
            "labels",
            "onFailure",
            "parkTimeout",
        ];
        assert_eq!(names(task), expected.map(str::to_owned).into());
        assert_eq!(task["required"], serde_json::json!(["taskId"]));
        assert_eq!(task["additionalProperties"], false);
        assert_eq!(task["oneOf"].as_array().unwrap().len(), 4);
        for (field, shape) in task["properties"].as_object().unwrap() {
            assert!(shape.get("description").is_some(), "{field} is not described: {shape}");
        }
    }
}
