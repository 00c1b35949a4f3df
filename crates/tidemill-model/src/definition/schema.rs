//! The JSON Schema of definition files, for editors.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::Runner;
use crate::agent::{MicroUsd, PermissionMode};
use crate::execution::Run;
use crate::job_file::{AgentStepShape, OnFailureShape, RetryShape};
use crate::span::Millis;

/// The JSON Schema (2020-12) of a definition as it is written.
pub fn schema() -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    generator.into_root_schema_for::<DefinitionShape>().to_value()
}

/// A task definition: what tasks of its name do.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "DefinitionFile", extend("anyOf" = kinds()))]
struct DefinitionShape {
    /// Letters, digits, `_` and `-`.
    #[schemars(regex(pattern = "^[A-Za-z0-9_-]{1,200}$"))]
    name: String,
    /// What it is for.
    #[schemars(length(max = 10_000))]
    description: Option<String>,
    /// What carries the task out. It may be left out where another field tells it: command, prompt, steps or script.
    runner: Option<Runner>,
    /// For the runner `command`: a list of arguments, or one text for the shell.
    command: Option<Run>,
    /// Variables of the task's environment, with literal values.
    env: Option<BTreeMap<String, String>>,
    /// Names of variables that producers and scripts may set for a task of this definition. None when it is left out.
    #[schemars(length(max = 64))]
    open_env: Option<Vec<String>>,
    /// Names of variables of the worker's environment that the operator lists in `TASK_SECRETS`.
    #[schemars(length(max = 64))]
    secrets: Option<Vec<String>>,
    /// Directories that come before those of PATH.
    #[schemars(length(max = 16))]
    path: Option<Vec<String>>,
    /// Whether the program gets its input as an argument too, which every user of the machine can see.
    input_arg: Option<bool>,
    /// How long one attempt may take: 1s to 7d. For the runner `agent`: one try of a step, held between 1s and 15m.
    timeout: Option<Millis>,
    /// For the runner `agent`: how long one attempt may take with all its steps and tries, 1s to 7d.
    task_timeout: Option<Millis>,
    /// How long an attempt may print nothing: 1s to 7d.
    idle_timeout: Option<Millis>,
    /// Attempts in all; the same as `retry.maxAttempts`.
    #[schemars(range(min = 1, max = 1_000))]
    max_attempts: Option<u32>,
    /// How often and how fast it is tried again.
    retry: Option<RetryShape>,
    /// Words to find the task by.
    labels: Option<BTreeMap<String, String>>,
    /// What happens when a task has failed for good.
    on_failure: Option<OnFailureShape>,
    /// How long a parked task waits before it is failed: 1s to 365d.
    park_timeout: Option<Millis>,
    /// For the runner `agent`: a template; `{{path}}` stands for a value of the input.
    prompt: Option<String>,
    /// For the runner `agent`: a JSON Schema of type object that the output must satisfy. Nothing is fetched for it.
    output_schema: Option<Map<String, Value>>,
    /// For the runner `agent`: a bare file name for the output.
    #[schemars(length(min = 1, max = 200))]
    output_file: Option<String>,
    /// For the runner `agent`: 30 when it is left out.
    #[schemars(range(min = 1, max = 200))]
    max_turns: Option<u32>,
    /// For the runner `agent`: the tools that it may use, such as `Read`. None means no tools.
    #[schemars(length(max = 100))]
    tools: Option<Vec<String>>,
    /// For the runner `agent`, instead of a prompt and what belongs to it: several prompts, one after the other.
    #[schemars(length(max = 20))]
    steps: Option<Vec<AgentStepShape>>,
    /// For the runner `agent`: for steps that name none; `inherit` leaves the choice to the CLI.
    #[schemars(length(min = 1, max = 200))]
    model: Option<String>,
    /// For the runner `agent`: `acceptEdits` when it is left out.
    permission_mode: Option<PermissionMode>,
    /// For the runner `agent`: tries within one attempt.
    #[schemars(range(min = 1, max = 10))]
    agent_attempts: Option<u32>,
    /// For the runner `agent`: whether a further try or attempt goes on with the session of the failed one.
    resume_session: Option<bool>,
    /// For the runner `agent`: settings of the CLI, such as `hooks`.
    settings: Option<Map<String, Value>>,
    /// For the runner `agent`: what one attempt may cost, in dollars.
    max_cost_usd: Option<MicroUsd>,
    /// For the runner `script`: the body of a function that sees `ctx.input`.
    script: Option<String>,
    /// Of a definition that was got from a server. It is not read.
    version: Option<Value>,
    /// The same.
    created_at: Option<Value>,
    /// The same.
    updated_at: Option<Value>,
}

/// What each runner needs. The runner may be left out where the fields tell it.
fn kinds() -> Value {
    let given = json!({ "not": { "type": "null" } });
    let none = json!({ "type": "null" });
    let runner = |name: &str| json!({ "enum": [name, null] });
    let prompt = json!({ "required": ["prompt"], "properties": { "prompt": given } });
    let steps =
        json!({ "required": ["steps"], "properties": { "steps": { "type": "array", "minItems": 1 } } });
    json!([
        { "required": ["command"], "properties": { "command": given, "runner": runner("command") } },
        { "anyOf": [prompt, steps], "properties": { "command": none, "runner": runner("agent") } },
        { "required": ["script", "runner"],
          "properties": { "script": given, "command": none, "runner": { "const": "script" } } },
        { "required": ["script"],
          "properties": { "script": given, "command": none, "prompt": none, "steps": none, "runner": none } },
        { "required": ["runner"], "properties": { "command": none, "runner": { "const": "native" } } },
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::DefinitionDraft;

    #[test]
    fn the_schema_accepts_and_refuses_what_the_reader_does() {
        let validator = jsonschema::validator_for(&schema()).unwrap();
        let base = json!({ "name": "scrape" });
        for (fields, expected) in [
            (json!({ "command": ["scrape", "--all"] }), true),
            (json!({ "command": "scrape | sort" }), true),
            (json!({ "command": ["x"], "runner": "command" }), true),
            (json!({ "command": ["x"], "runner": null, "prompt": null }), true),
            (json!({ "command": ["x"], "runner": "agent" }), false),
            (json!({ "command": ["x"], "runner": "native" }), false),
            (json!({ "command": ["x"], "runner": "script", "script": "1" }), false),
            (json!({ "command": null }), false),
            (json!({}), false),
            (json!({ "command": 7 }), false),
            (json!({ "command": ["x"], "runner": "shell" }), false),
            (json!({ "command": ["x"], "name": null }), false),
            (json!({ "command": ["x"], "name": "a b" }), false),
            (json!({ "command": ["x"], "nmae": "x" }), false),
            (json!({ "runner": "native" }), true),
            (json!({ "runner": "command" }), false),
            (json!({ "prompt": "do it" }), true),
            (
                json!({ "prompt": "do it", "runner": "agent", "command": null, "tools": ["Read"], "maxTurns": 3 }),
                true,
            ),
            (json!({ "runner": "agent" }), false),
            (json!({ "runner": "agent", "steps": [] }), false),
            (json!({ "steps": [{ "prompt": "a" }, { "name": "b", "prompt": "{{previous.x}}" }] }), true),
            (json!({ "steps": [{ "name": "b" }] }), false),
            (json!({ "prompt": "x", "maxTurns": 201 }), false),
            (json!({ "prompt": "x", "permissionMode": "none" }), false),
            (json!({ "prompt": "x", "outputSchema": [] }), false),
            (json!({ "script": "return 1" }), true),
            (json!({ "script": "return 1", "runner": "script" }), true),
            (json!({ "runner": "script" }), false),
            (json!({ "script": "return 1", "steps": [] }), false),
            (json!({ "command": ["x"], "env": { "A": "1" }, "openEnv": ["A"], "secrets": ["TOKEN"] }), true),
            (json!({ "command": ["x"], "env": { "A": 1 } }), false),
            (json!({ "command": ["x"], "secrets": "TOKEN" }), false),
            (json!({ "command": ["x"], "secrets": vec!["A"; 65] }), false),
            (json!({ "command": ["x"], "path": ["bin", "/opt/bin"] }), true),
            (json!({ "command": ["x"], "path": "bin" }), false),
            (json!({ "command": ["x"], "path": vec!["a"; 17] }), false),
            (json!({ "command": ["x"], "timeout": "30s", "idleTimeout": 5_000, "maxAttempts": 3 }), true),
            (json!({ "command": ["x"], "timeout": true }), false),
            (json!({ "command": ["x"], "retry": 5 }), true),
            (json!({ "command": ["x"], "retry": { "maxAttempts": 5 } }), true),
            (json!({ "command": ["x"], "retry": 0 }), false),
            (json!({ "command": ["x"], "maxAttempts": 0 }), false),
            (json!({ "command": ["x"], "inputArg": "no" }), false),
            (json!({ "command": ["x"], "onFailure": "park", "parkTimeout": "2d" }), true),
            (json!({ "command": ["x"], "onFailure": "hide" }), false),
            (json!({ "command": ["x"], "version": 3, "createdAt": 1, "updatedAt": 2 }), true),
        ] {
            let mut value = base.clone();
            value.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            let read = DefinitionDraft::read(value.clone());
            assert_eq!(read.is_ok(), expected, "the reader, {value}: {read:?}");
            assert_eq!(validator.is_valid(&value), expected, "the schema, {value}");
        }
        assert!(!validator.is_valid(&json!([])) && DefinitionDraft::read(json!([])).is_err());
    }

    #[test]
    fn every_field_that_is_read_is_described() {
        let schema = schema();
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        assert_eq!(
            (&schema["title"], &schema["additionalProperties"]),
            (&json!("DefinitionFile"), &json!(false))
        );
        let properties = schema["properties"].as_object().unwrap();
        for field in super::super::read::FIELDS.split(", ") {
            let shape = properties.get(field.trim());
            assert!(shape.is_some_and(|shape| shape.get("description").is_some()), "{field}: {shape:?}");
        }
        assert_eq!(properties.len(), super::super::read::FIELDS.split(", ").count() + 3);
    }
}
