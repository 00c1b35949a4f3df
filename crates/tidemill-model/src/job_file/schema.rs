//! The JSON Schema of job files, for editors and for the API's description.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{AddTasksFile, JobFile, RetryEntry, TaskFile};
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
    /// The tasks. Each starts once all tasks that it depends on are completed.
    #[schemars(length(min = 1, max = 100_000))]
    tasks: Vec<TaskShape>,
    /// Not available yet: must be left out or null.
    callback_url: Option<NotYet>,
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
    name: NameShape,
    /// A command: a list of arguments, or one text for the shell.
    #[serde(default = "no_run")]
    run: Run,
    /// Not available yet.
    #[serde(default)]
    agent: NotYet,
    /// Not available yet.
    #[serde(default)]
    script: NotYet,
    /// The tasks that must be completed before this one starts.
    depends_on: Option<Vec<TaskIdShape>>,
    /// What the task gets as its input, beside the outputs of the tasks it depends on.
    input: Option<InputShape>,
    /// How long one attempt may take: 1s to 7d.
    timeout: Option<Millis>,
    /// How long an attempt may print nothing: 1s to 7d.
    idle_timeout: Option<Millis>,
    /// How often and how fast it is tried again.
    retry: Option<RetryEntry>,
    /// Variables of the task's environment, with literal values.
    env: Option<BTreeMap<String, String>>,
    /// Words to find the task by.
    labels: Option<BTreeMap<String, String>>,
    /// What happens when the task has failed for good.
    on_failure: Option<OnFailureShape>,
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
    name: NameShape,
    /// A command: a list of arguments, or one text for the shell.
    #[serde(default = "no_run")]
    run: Run,
    /// Not available yet.
    #[serde(default)]
    agent: NotYet,
    /// Not available yet.
    #[serde(default)]
    script: NotYet,
    /// What the task gets as its input.
    input: Option<InputShape>,
    /// How long one attempt may take: 1s to 7d.
    timeout: Option<Millis>,
    /// How long an attempt may print nothing: 1s to 7d.
    idle_timeout: Option<Millis>,
    /// How often and how fast it is tried again.
    retry: Option<RetryEntry>,
    /// Variables of the task's environment, with literal values.
    env: Option<BTreeMap<String, String>>,
    /// Words to find the task by.
    labels: Option<BTreeMap<String, String>>,
    /// What happens when the task has failed for good.
    on_failure: Option<OnFailureShape>,
}

/// A name without control characters and `#`.
#[derive(JsonSchema, Serialize, Default)]
#[schemars(inline)]
struct NameShape(#[schemars(regex(pattern = r"^[^#\x00-\x1f\x7f-\x9f]{1,200}$"))] String);

/// The name of a task within its job.
#[derive(JsonSchema, Serialize)]
#[schemars(inline)]
struct TaskIdShape(#[schemars(regex(pattern = "^[A-Za-z0-9_-]{1,200}$"))] String);

/// An object without the key under which the outputs of other tasks are put.
#[derive(JsonSchema, Serialize)]
#[schemars(inline, extend("properties" = serde_json::json!({ "dependencyOutputs": false })))]
struct InputShape(Map<String, Value>);

/// What a later release brings.
#[derive(Serialize, Default)]
struct NotYet;

impl JsonSchema for NotYet {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "NotYet".into()
    }

    /// No value is right.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({ "not": {} })
    }
}

/// Makes `run` a field that may be left out but is not null.
fn no_run() -> Run {
    Run::Argv(Vec::new())
}

#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
#[expect(dead_code, reason = "only its shape is used")]
enum OnFailureShape {
    /// The task is failed.
    Fail,
    /// Not available yet.
    Park,
}

fn one_of() -> Value {
    let required = |field: &str| serde_json::json!({ "required": [field] });
    Value::Array(["name", "run"].map(required).to_vec())
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
        assert_eq!(names(&schema), ["callbackUrl", "name", "requestId", "tasks"].map(str::to_owned).into());
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
            "labels",
            "onFailure",
        ];
        assert_eq!(names(task), expected.map(str::to_owned).into());
        assert_eq!(task["required"], serde_json::json!(["taskId"]));
        assert_eq!(task["additionalProperties"], false);
        assert_eq!(task["oneOf"].as_array().unwrap().len(), 2);
        for (field, shape) in task["properties"].as_object().unwrap() {
            assert!(shape.get("description").is_some(), "{field} is not described: {shape}");
        }
    }
}
