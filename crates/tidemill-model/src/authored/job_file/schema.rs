//! The JSON Schema of job files, for editors and for the API's description.
//!
//! Objects are described by their fields, where these are written down. What else a value may look like is here.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde_json::Value;

use super::{AddTasksFile, JobFile, RetryEntry, TaskEntry, TaskFile};
use crate::authored::fields::described_as;
use crate::spending::budget::Budget;

/// The JSON Schema (2020-12) of a job file.
pub fn schema() -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    generator.into_root_schema_for::<JobFile>().to_value()
}

/// A budget as it is written. As it is answered, its own schema says.
pub(super) struct WrittenBudget;

described_as! {
    JobFile => "JobFile", JobFile;
    AddTasksFile => "AddTasksFile", AddTasksFile;
    TaskFile => "TaskFile", TaskFile;
    TaskEntry => "TaskShape", TaskEntry;
    WrittenBudget => inline "BudgetShape", Budget, not_empty;
}

fn not_empty(mut schema: Schema, _: &mut SchemaGenerator) -> Schema {
    schema.insert("minProperties".to_owned(), 1.into());
    schema
}

/// The name of a task within its job.
#[derive(JsonSchema, Serialize)]
#[schemars(inline)]
pub(super) struct TaskIdShape(#[schemars(regex(pattern = "^[A-Za-z0-9_-]{1,200}$"))] String);

/// One task, or a list of them.
#[derive(JsonSchema, Serialize)]
#[serde(untagged)]
#[schemars(inline)]
#[expect(dead_code, reason = "only its shape is used")]
pub(super) enum DependsOnShape {
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

#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
#[expect(dead_code, reason = "only its shape is used")]
pub(super) enum OnFailureShape {
    /// The task is failed.
    Fail,
    /// The task waits until somebody resumes or fails it, or until its time is over.
    Park,
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
