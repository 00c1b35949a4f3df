//! From a JSON value to a checked definition, or to everything that is wrong with it.

use serde_json::Value;

use super::{
    AGENT_TIMEOUT_MILLIS_MAX, DESCRIPTION_BYTES_MAX, DefinitionDraft, OUTPUT_SCHEMA_BYTES_MAX,
    PROMPT_BYTES_MAX, Runner, SCRIPT_BYTES_MAX, SECRETS_MAX, TOOLS_MAX, TURNS_MAX,
};
use crate::document::Document;
use crate::execution::{is_passed, is_variable_name};
use crate::field_problem::{FieldProblems, code};
use crate::id::TaskName;
use crate::job_file::{ATTEMPTS_MAX, TIMEOUT_MILLIS_MAX, TIMEOUT_MILLIS_MIN, retry};
use crate::json::Json;

const FIELDS: &str = "name, description, runner, command, env, secrets, timeout, idleTimeout, maxAttempts, retry, \
                      labels, prompt, outputSchema, outputFile, maxTurns, tools, model, script";
/// What an answer holds beside the draft. It may be sent back and is not read.
const ANSWERED: [&str; 3] = ["version", "createdAt", "updatedAt"];

impl DefinitionDraft {
    /// Reads a definition, or tells everything that is wrong.
    pub fn read(value: Value) -> Result<Self, FieldProblems> {
        let mut problems = FieldProblems::default();
        let Some(mut document) = Document::open("", value, &mut problems) else { return Err(problems) };
        let draft = draft(&mut document);
        document.close(FIELDS);
        match draft {
            Some(draft) => problems.or(draft),
            None => Err(problems),
        }
    }
}

fn draft(document: &mut Document<'_>) -> Option<DefinitionDraft> {
    for field in ANSWERED {
        document.take(field);
    }
    let name = name(document);
    let runner = runner(document);
    let max_timeout =
        if runner == Some(Runner::Agent) { AGENT_TIMEOUT_MILLIS_MAX } else { TIMEOUT_MILLIS_MAX };
    let brings_command = document.has("command");
    let command = document.run("command");
    let mut retry = retry(document);
    let max_attempts = document.number("maxAttempts", 1..=ATTEMPTS_MAX.into());
    let max_attempts = max_attempts.and_then(|attempts| u32::try_from(attempts).ok());
    if let (Some(own), Some(inner)) = (max_attempts, retry.max_attempts)
        && own != inner
    {
        document.problem(
            "maxAttempts",
            code::INVALID_VALUE,
            format!("is {own}, and retry.maxAttempts {inner}"),
        );
    }
    if !retry.is_empty() {
        retry.max_attempts = retry.max_attempts.or(max_attempts);
    }
    let max_turns = document.number("maxTurns", 1..=TURNS_MAX).and_then(|turns| u32::try_from(turns).ok());
    let rest = DefinitionDraft {
        description: document.long_text("description", DESCRIPTION_BYTES_MAX),
        command,
        env: document.env("env"),
        secrets: secrets(document),
        timeout: document.span("timeout", TIMEOUT_MILLIS_MIN..=max_timeout),
        idle_timeout: document.span("idleTimeout", TIMEOUT_MILLIS_MIN..=TIMEOUT_MILLIS_MAX),
        max_attempts: max_attempts.or(retry.max_attempts),
        retry,
        labels: document.labels("labels"),
        prompt: prompt(document),
        output_schema: output_schema(document),
        output_file: output_file(document),
        max_turns,
        tools: tools(document),
        model: document.short_text("model", 200),
        script: document.long_text("script", SCRIPT_BYTES_MAX),
        ..DefinitionDraft::of(TaskName::trusted("-"), Runner::Command)
    };
    let (name, runner) = (name?, runner?);
    match runner {
        Runner::Command if !brings_command => document.missing("command"),
        Runner::Native if brings_command => {
            document.problem(
                "command",
                code::INVALID_VALUE,
                "is for the runner command, and this one is native",
            );
        }
        Runner::Agent | Runner::Script => {
            let message = format!("{} is not available yet; use command", runner.as_str());
            document.problem("runner", code::NOT_AVAILABLE, message);
        }
        Runner::Command | Runner::Native => {}
    }
    Some(DefinitionDraft { name, runner, ..rest })
}

fn name(document: &mut Document<'_>) -> Option<TaskName> {
    if !document.has("name") {
        document.missing("name");
    }
    let text = document.text("name")?;
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if let Some(found) = text.chars().find(|c| !fits(*c)) {
        let message = format!("holds {found:?}; allowed are letters, digits, `_` and `-`");
        document.problem("name", code::INVALID_VALUE, message);
        return None;
    }
    let name = TaskName::new(text);
    name.map_err(|bad| document.problem("name", code::INVALID_VALUE, bad.problem.to_string())).ok()
}

/// The runner that is named, or the one that the other fields are for.
fn runner(document: &mut Document<'_>) -> Option<Runner> {
    if !document.has("runner") {
        let told = [("command", Runner::Command), ("prompt", Runner::Agent), ("script", Runner::Script)];
        let told = told.into_iter().find(|(field, _)| document.has(field)).map(|(_, runner)| runner);
        if told.is_none() {
            document.missing("runner");
        }
        return told;
    }
    let text = document.text("runner")?;
    let known = [Runner::Command, Runner::Agent, Runner::Script, Runner::Native];
    let runner = known.into_iter().find(|runner| runner.as_str() == text);
    if runner.is_none() {
        document.problem("runner", code::INVALID_VALUE, "must be command, agent, script or native");
    }
    runner
}

fn secrets(document: &mut Document<'_>) -> Vec<String> {
    let names = document.texts("secrets").unwrap_or_default();
    if names.len() > SECRETS_MAX {
        let message = format!("has {} names; the limit is {SECRETS_MAX}", names.len());
        document.problem("secrets", code::TOO_LONG, message);
    }
    for (at, name) in names.iter().enumerate() {
        let field = format!("secrets[{at}]");
        if !is_variable_name(name) {
            document.problem(&field, code::INVALID_VALUE, "is no name of a variable");
        } else if name.starts_with("TIDEMILL_") || is_passed(name) {
            let message = "is passed or set by the worker itself and cannot be handed over";
            document.problem(&field, code::RESERVED_VARIABLE, message);
        }
    }
    names
}

fn prompt(document: &mut Document<'_>) -> Option<String> {
    let prompt = document.long_text("prompt", PROMPT_BYTES_MAX)?;
    if prompt.trim().is_empty() {
        document.problem("prompt", code::INVALID_VALUE, "is empty");
        return None;
    }
    Some(prompt)
}

/// A schema of an object. Nothing is fetched for it: a reference may only point into the schema itself.
fn output_schema(document: &mut Document<'_>) -> Option<Json> {
    let value = document.take("outputSchema")?;
    let Value::Object(schema) = &value else {
        document.problem("outputSchema", code::INVALID_TYPE, "must be an object: a JSON Schema");
        return None;
    };
    if schema.is_empty() {
        return None;
    }
    if schema.get("type").and_then(Value::as_str) != Some("object") {
        document.problem("outputSchema.type", code::INVALID_VALUE, "must be object");
    }
    let json = Json::of(&value);
    if json.len() > OUTPUT_SCHEMA_BYTES_MAX {
        let message = format!("is {} bytes; the limit is {OUTPUT_SCHEMA_BYTES_MAX}", json.len());
        document.problem("outputSchema", code::TOO_LONG, message);
    }
    check_schema("outputSchema", &value, document.problems);
    Some(json)
}

const SCHEMA_TYPES: [&str; 7] = ["null", "boolean", "object", "array", "number", "string", "integer"];

/// Checks the keywords that hold schemas, and references.
fn check_schema(path: &str, schema: &Value, problems: &mut FieldProblems) {
    let fields = match schema {
        Value::Object(fields) => fields,
        Value::Bool(_) => return,
        _ => return problems.add(path, code::INVALID_VALUE, "is no JSON Schema: an object or a boolean"),
    };
    for (name, value) in fields {
        let at = || format!("{path}.{name}");
        match name.as_str() {
            "$ref" | "$dynamicRef" if value.as_str().is_none_or(|target| !target.starts_with('#')) => {
                problems.add(
                    at(),
                    code::INVALID_VALUE,
                    "points elsewhere; only # and what follows it is allowed",
                );
            }
            "type" => {
                let is_type = |value: &Value| value.as_str().is_some_and(|text| SCHEMA_TYPES.contains(&text));
                let fits = match value {
                    Value::Array(types) => !types.is_empty() && types.iter().all(is_type),
                    value => is_type(value),
                };
                if !fits {
                    problems.add(at(), code::INVALID_VALUE, "is no type of JSON Schema");
                }
            }
            "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" => {
                match value {
                    Value::Object(schemas) => {
                        for (name, schema) in schemas {
                            check_schema(&format!("{}.{name}", at()), schema, problems);
                        }
                    }
                    _ => problems.add(at(), code::INVALID_TYPE, "must be an object of schemas"),
                }
            }
            "allOf" | "anyOf" | "oneOf" | "prefixItems" => match value {
                Value::Array(schemas) => {
                    for (index, schema) in schemas.iter().enumerate() {
                        check_schema(&format!("{}[{index}]", at()), schema, problems);
                    }
                }
                _ => problems.add(at(), code::INVALID_TYPE, "must be a list of schemas"),
            },
            "items"
            | "additionalProperties"
            | "not"
            | "contains"
            | "if"
            | "then"
            | "else"
            | "propertyNames" => {
                check_schema(&at(), value, problems);
            }
            "required" => {
                let fits = value.as_array().is_some_and(|names| names.iter().all(Value::is_string));
                if !fits {
                    problems.add(at(), code::INVALID_TYPE, "must be a list of texts");
                }
            }
            _ => {}
        }
    }
}

fn output_file(document: &mut Document<'_>) -> Option<String> {
    let name = document.short_text("outputFile", 200)?;
    if name == "." || name == ".." || name.contains(['/', '\\']) {
        document.problem("outputFile", code::INVALID_VALUE, "must be a bare file name");
        return None;
    }
    Some(name)
}

fn tools(document: &mut Document<'_>) -> Vec<String> {
    let tools = document.texts("tools").unwrap_or_default();
    if tools.len() > TOOLS_MAX {
        document.problem(
            "tools",
            code::TOO_LONG,
            format!("has {} names; the limit is {TOOLS_MAX}", tools.len()),
        );
    }
    if tools.iter().any(|tool| tool.is_empty() || tool.len() > 200) {
        document.problem("tools", code::INVALID_VALUE, "has a name that is empty or longer than 200 bytes");
    }
    tools
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::definition::Definition;
    use crate::execution::Run;
    use crate::span::Millis;
    use crate::time::Timestamp;

    fn with(fields: &Value) -> Value {
        let mut draft = json!({ "name": "scrape", "runner": "command", "command": ["scrape", "--all"] });
        draft.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        draft
    }

    #[test]
    fn every_rule_has_its_place_and_code() {
        let long = "x".repeat(PROMPT_BYTES_MAX + 1);
        for (fields, path, expected) in [
            (json!({ "name": null }), "name", code::MISSING_FIELD),
            (json!({ "name": "a b" }), "name", code::INVALID_VALUE),
            (json!({ "name": "~a" }), "name", code::INVALID_VALUE),
            (json!({ "name": "" }), "name", code::INVALID_VALUE),
            (json!({ "name": "x".repeat(201) }), "name", code::INVALID_VALUE),
            (json!({ "command": null }), "command", code::MISSING_FIELD),
            (json!({ "command": [] }), "command", code::INVALID_VALUE),
            (json!({ "runner": "shell" }), "runner", code::INVALID_VALUE),
            (json!({ "runner": "agent", "prompt": "do it" }), "runner", code::NOT_AVAILABLE),
            (json!({ "runner": "script", "script": "1" }), "runner", code::NOT_AVAILABLE),
            (json!({ "runner": "native" }), "command", code::INVALID_VALUE),
            (json!({ "prompt": " " }), "prompt", code::INVALID_VALUE),
            (json!({ "prompt": long }), "prompt", code::TOO_LONG),
            (json!({ "outputSchema": { "type": "array" } }), "outputSchema.type", code::INVALID_VALUE),
            (json!({ "outputSchema": "object" }), "outputSchema", code::INVALID_TYPE),
            (
                json!({ "outputSchema": { "type": "object", "properties": { "a": { "type": "text" } } } }),
                "outputSchema.properties.a.type",
                code::INVALID_VALUE,
            ),
            (
                json!({ "outputSchema": { "type": "object", "items": { "$ref": "http://x/y" } } }),
                "outputSchema.items.$ref",
                code::INVALID_VALUE,
            ),
            (
                json!({ "outputSchema": { "type": "object", "required": "a" } }),
                "outputSchema.required",
                code::INVALID_TYPE,
            ),
            (json!({ "outputFile": "../x" }), "outputFile", code::INVALID_VALUE),
            (json!({ "outputFile": ".." }), "outputFile", code::INVALID_VALUE),
            (json!({ "maxTurns": 0 }), "maxTurns", code::OUT_OF_RANGE),
            (json!({ "maxTurns": 201 }), "maxTurns", code::OUT_OF_RANGE),
            (json!({ "timeout": 999 }), "timeout", code::OUT_OF_RANGE),
            (json!({ "timeout": "8d" }), "timeout", code::OUT_OF_RANGE),
            (json!({ "tools": vec!["t"; 65] }), "tools", code::TOO_LONG),
            (json!({ "tools": [1] }), "tools[0]", code::INVALID_TYPE),
            (json!({ "env": { "LD_PRELOAD": "x" } }), "env.LD_PRELOAD", code::RESERVED_VARIABLE),
            (json!({ "env": ["A"] }), "env", code::INVALID_TYPE),
            (json!({ "secrets": ["A B"] }), "secrets[0]", code::INVALID_VALUE),
            (json!({ "secrets": ["TIDEMILL_API_KEY"] }), "secrets[0]", code::RESERVED_VARIABLE),
            (json!({ "maxAttempts": 0 }), "maxAttempts", code::OUT_OF_RANGE),
            (json!({ "maxAttempts": 2, "retry": { "maxAttempts": 3 } }), "maxAttempts", code::INVALID_VALUE),
            (json!({ "priority": 1 }), "priority", code::UNKNOWN_FIELD),
        ] {
            let problems = DefinitionDraft::read(with(&fields)).expect_err("it is refused");
            let found: Vec<_> =
                problems.listed.iter().map(|problem| (problem.path.as_str(), problem.code)).collect();
            assert_eq!(found, [(path, expected)], "{fields}");
        }
    }

    #[test]
    fn an_agents_time_limit_is_shorter() {
        for (timeout, refused) in [(900_000, 1), (900_001, 2)] {
            let agent = json!({ "name": "a", "prompt": "x", "timeout": timeout });
            assert_eq!(DefinitionDraft::read(agent).unwrap_err().total, refused, "{timeout}");
        }
    }

    #[test]
    fn an_answer_can_be_edited_and_sent_back() {
        let draft = DefinitionDraft::read(with(&json!({
            "description": "all stores", "timeout": "2m", "maxAttempts": 5, "env": { "A": "1" },
            "secrets": ["API_TOKEN"], "labels": { "team": "x" }, "retry": { "firstDelay": "1s" }, "model": null,
            "tools": [], "outputSchema": {}, "script": null
        })))
        .unwrap();
        assert_eq!(draft.command, Some(Run::Argv(vec!["scrape".to_owned(), "--all".to_owned()])));
        assert_eq!((draft.timeout, draft.max_attempts), (Some(Millis(120_000)), Some(5)));
        assert_eq!(draft.retry.max_attempts, Some(5));
        assert_eq!(draft.output_schema, None);
        let (created_at, updated_at) = (Timestamp::MIN, Timestamp::MAX);
        let answer = Definition { draft: draft.clone(), version: 3, created_at, updated_at };
        let json = serde_json::to_value(&answer).unwrap();
        assert_eq!((json["name"].as_str(), json["version"].as_u64()), (Some("scrape"), Some(3)));
        assert_eq!(DefinitionDraft::read(json.clone()).unwrap(), draft);
        assert_eq!(serde_json::from_value::<Definition>(json).unwrap(), answer);
    }

    #[test]
    fn the_runner_is_told_by_the_other_fields() {
        let named = |fields: Value| DefinitionDraft::read(fields).map(|draft| draft.runner);
        assert_eq!(named(json!({ "name": "a", "command": "true" })), Ok(Runner::Command));
        assert_eq!(named(json!({ "name": "a", "runner": "native" })), Ok(Runner::Native));
        let nothing = named(json!({ "name": "a" })).unwrap_err();
        assert_eq!(nothing.listed[0].path, "runner");
    }
}
