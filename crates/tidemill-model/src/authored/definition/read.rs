//! From a JSON value to a checked definition, or to everything that is wrong with it.

use serde_json::Value;

use super::{DefinitionDraft, OPEN_VARIABLES_MAX, Runner, SCRIPT_BYTES_MAX};
use crate::authored::agent::{STEP_TIMEOUT_MILLIS_ALLOWED, asks};
use crate::authored::document::Document;
use crate::authored::field_kinds::{schema_of, schema_with};
use crate::authored::field_problem::{FieldProblems, code};
use crate::authored::fields::{Fields as _, Part, field};
use crate::authored::job_file::{TIMEOUT_MILLIS_MAX, TIMEOUT_MILLIS_MIN, check_parking};
use crate::values::id::TaskName;
use crate::values::span::Millis;
use crate::work::runner_spec::{
    VARIABLE_NAME_BYTES_MAX, is_loading_variable, is_reserved_variable, is_variable_name,
};

/// What an answer holds beside the draft. It may be sent back and is not read.
pub(super) const ANSWERED: [&str; 3] = ["version", "createdAt", "updatedAt"];

impl DefinitionDraft {
    /// Reads a definition, or tells everything that is wrong.
    pub fn read(value: Value) -> Result<Self, FieldProblems> {
        let mut problems = FieldProblems::default();
        match Self::read_at("", value, &mut problems) {
            Some(draft) => problems.or(draft),
            None => Err(problems),
        }
    }
}

pub(super) fn pass_over_answer(document: &mut Document<'_>) {
    for field in ANSWERED {
        document.take(field);
    }
}

/// What several fields say together.
pub(super) fn settle(mut draft: DefinitionDraft, document: &mut Document<'_>) -> DefinitionDraft {
    if let (Some(own), Some(inner)) = (draft.max_attempts, draft.retry.max_attempts)
        && own != inner
    {
        let message = format!("is {own}, and retry.maxAttempts {inner}");
        document.problem("maxAttempts", code::INVALID_VALUE, message);
    }
    if !draft.retry.is_empty() {
        draft.retry.max_attempts = draft.retry.max_attempts.or(draft.max_attempts);
    }
    draft.max_attempts = draft.max_attempts.or(draft.retry.max_attempts);
    if let Some(timeout) = draft.timeout {
        let allowed = match draft.runner {
            Runner::Agent => STEP_TIMEOUT_MILLIS_ALLOWED,
            Runner::Command | Runner::Script | Runner::Native => TIMEOUT_MILLIS_MIN..=TIMEOUT_MILLIS_MAX,
        };
        draft.timeout = document.span_within("timeout", timeout, allowed);
    }
    if draft.task_timeout.is_some() && draft.runner != Runner::Agent {
        // It would do nothing, and nobody would notice.
        let message =
            format!("is for the runner agent, and this one is {}; use timeout", draft.runner.as_str());
        document.problem("taskTimeout", code::INVALID_VALUE, message);
    }
    check_parking(draft.on_failure, draft.park_timeout, document);
    draft
}

pub(super) fn name() -> impl Part<Value = TaskName> {
    let read = |document: &mut Document<'_>, field| {
        if !document.has(field) {
            document.missing(field);
        }
        let text = document.text(field)?;
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if let Some(found) = text.chars().find(|c| !fits(*c)) {
            let message = format!("holds {found:?}; allowed are letters, digits, `_` and `-`");
            document.problem(field, code::INVALID_VALUE, message);
            return None;
        }
        let name = TaskName::new(text);
        name.map_err(|bad| document.problem(field, code::INVALID_VALUE, bad.problem.to_string())).ok()
    };
    let read = move |document: &mut Document<'_>, field| {
        read(document, field).unwrap_or_else(|| TaskName::trusted("-"))
    };
    let pattern = [("pattern", "^[A-Za-z0-9_-]{1,200}$".into())];
    field("name", read, schema_with::<String>(pattern)).required()
}

/// The runner. It is read before the fields that it needs or does not have.
pub(super) fn runner() -> impl Part<Value = Runner> {
    let read = |document: &mut Document<'_>, field| match read_runner(document, field) {
        Some(runner) => {
            check_work(document, runner);
            runner
        }
        None => Runner::Command,
    };
    field("runner", read, schema_of::<Option<Runner>>)
}

/// The runner that is named, or the one that the other fields are for.
fn read_runner(document: &mut Document<'_>, field: &str) -> Option<Runner> {
    if !document.has(field) {
        let told = [
            ("command", Runner::Command),
            ("prompt", Runner::Agent),
            ("steps", Runner::Agent),
            ("script", Runner::Script),
        ];
        let told = told.into_iter().find(|(field, _)| document.has(field)).map(|(_, runner)| runner);
        if told.is_none() {
            document.missing(field);
        }
        document.take(field);
        return told;
    }
    let text = document.text(field)?;
    let known = [Runner::Command, Runner::Agent, Runner::Script, Runner::Native];
    let runner = known.into_iter().find(|runner| runner.as_str() == text);
    if runner.is_none() {
        document.problem(field, code::INVALID_VALUE, "must be command, agent, script or native");
    }
    runner
}

fn check_work(document: &mut Document<'_>, runner: Runner) {
    match runner {
        Runner::Command if !document.has("command") => document.missing("command"),
        Runner::Native | Runner::Agent | Runner::Script if document.has("command") => {
            let message = format!("is for the runner command, and this one is {}", runner.as_str());
            document.problem("command", code::INVALID_VALUE, message);
        }
        Runner::Agent if !asks(document) => document.missing("prompt"),
        Runner::Script if !document.has("script") => document.missing("script"),
        Runner::Command | Runner::Native | Runner::Agent | Runner::Script => {}
    }
}

/// How long it may be depends on the runner.
pub(super) fn timeout() -> impl Part<Value = Option<Millis>> {
    field(
        "timeout",
        |document: &mut Document<'_>, field| document.any_span(field),
        schema_of::<Option<Millis>>,
    )
}

pub(super) fn script() -> impl Part<Value = Option<String>> {
    let read = |document: &mut Document<'_>, field| document.long_text(field, SCRIPT_BYTES_MAX);
    field("script", read, schema_of::<Option<String>>)
}

/// Names of variables that others may set.
pub(super) fn open_env() -> impl Part<Value = Vec<String>> {
    let read = |document: &mut Document<'_>, field| {
        document.names(field, OPEN_VARIABLES_MAX, |name| {
            let told = if name.len() > VARIABLE_NAME_BYTES_MAX {
                let message = format!("is {} bytes; the limit is {VARIABLE_NAME_BYTES_MAX}", name.len());
                (code::TOO_LONG, message)
            } else if !is_variable_name(name) {
                (code::INVALID_VALUE, "is no name of a variable".to_owned())
            } else if is_reserved_variable(name) {
                (code::RESERVED_VARIABLE, "is set by the worker and by nobody else".to_owned())
            } else if is_loading_variable(name) {
                let message =
                    "makes programs run other code than the definition names, and cannot be open to others";
                (code::RESERVED_VARIABLE, message.to_owned())
            } else {
                return Ok(());
            };
            Err(told)
        })
    };
    field("openEnv", read, schema_with::<Option<Vec<String>>>([("maxItems", OPEN_VARIABLES_MAX.into())]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::authored::agent::{
        AgentStep, MicroUsd, PROMPT_BYTES_MAX, PermissionMode, SETTINGS_BYTES_MAX, STEPS_MAX, TOOLS_MAX,
    };
    use crate::authored::definition::Definition;
    use crate::values::span::Millis;
    use crate::values::time::Timestamp;
    use crate::work::runner_spec::Run;
    use crate::work::task_spec::OnFailure;

    fn with(fields: &Value) -> Value {
        let mut draft = json!({ "name": "scrape", "runner": "command", "command": ["scrape", "--all"] });
        draft.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        draft
    }

    fn problems_of(fields: &Value) -> Vec<(String, &'static str)> {
        let problems = DefinitionDraft::read(with(fields)).expect_err("it is refused");
        problems.listed.into_iter().map(|problem| (problem.path, problem.code)).collect()
    }

    #[test]
    fn every_rule_has_its_place_and_code() {
        for (fields, path, expected) in [
            (json!({ "name": null }), "name", code::MISSING_FIELD),
            (json!({ "name": "a b" }), "name", code::INVALID_VALUE),
            (json!({ "name": "~a" }), "name", code::INVALID_VALUE),
            (json!({ "name": "" }), "name", code::INVALID_VALUE),
            (json!({ "name": "x".repeat(201) }), "name", code::INVALID_VALUE),
            (json!({ "command": null }), "command", code::MISSING_FIELD),
            (json!({ "command": [] }), "command", code::INVALID_VALUE),
            (json!({ "runner": "shell" }), "runner", code::INVALID_VALUE),
            (json!({ "runner": "agent", "prompt": "do it" }), "command", code::INVALID_VALUE),
            (json!({ "runner": "agent", "command": null }), "prompt", code::MISSING_FIELD),
            (json!({ "runner": "agent", "command": null, "steps": [] }), "prompt", code::MISSING_FIELD),
            (json!({ "runner": "script", "script": "1" }), "command", code::INVALID_VALUE),
            (json!({ "runner": "script", "command": null }), "script", code::MISSING_FIELD),
            (json!({ "runner": "native" }), "command", code::INVALID_VALUE),
            (json!({ "timeout": 999 }), "timeout", code::OUT_OF_RANGE),
            (json!({ "timeout": "8d" }), "timeout", code::OUT_OF_RANGE),
            (json!({ "env": { "LD_PRELOAD": "x" } }), "env.LD_PRELOAD", code::RESERVED_VARIABLE),
            (json!({ "env": ["A"] }), "env", code::INVALID_TYPE),
            (json!({ "inputArg": "no" }), "inputArg", code::INVALID_TYPE),
            (json!({ "openEnv": "REGION" }), "openEnv", code::INVALID_TYPE),
            (json!({ "openEnv": [1] }), "openEnv[0]", code::INVALID_TYPE),
            (json!({ "openEnv": ["REGION", "A B"] }), "openEnv[1]", code::INVALID_VALUE),
            (json!({ "openEnv": ["X".repeat(129)] }), "openEnv[0]", code::TOO_LONG),
            (json!({ "openEnv": vec!["A"; OPEN_VARIABLES_MAX + 1] }), "openEnv", code::TOO_LONG),
            (json!({ "openEnv": ["PATH"] }), "openEnv[0]", code::RESERVED_VARIABLE),
            (json!({ "openEnv": ["HOME"] }), "openEnv[0]", code::RESERVED_VARIABLE),
            (json!({ "openEnv": ["LD_PRELOAD"] }), "openEnv[0]", code::RESERVED_VARIABLE),
            (json!({ "openEnv": ["BASH_ENV"] }), "openEnv[0]", code::RESERVED_VARIABLE),
            (json!({ "secrets": ["A B"] }), "secrets[0]", code::INVALID_VALUE),
            (json!({ "secrets": ["TIDEMILL_API_KEY"] }), "secrets[0]", code::RESERVED_VARIABLE),
            (json!({ "secrets": ["DB_URL", "PATH"] }), "secrets[1]", code::RESERVED_VARIABLE),
            (json!({ "secrets": ["AWS_SECRET_ACCESS_KEY"] }), "secrets[0]", code::RESERVED_VARIABLE),
            (json!({ "secrets": ["AWS_SESSION_TOKEN"] }), "secrets[0]", code::RESERVED_VARIABLE),
            (json!({ "maxAttempts": 0 }), "maxAttempts", code::OUT_OF_RANGE),
            (json!({ "maxAttempts": 2, "retry": { "maxAttempts": 3 } }), "maxAttempts", code::INVALID_VALUE),
            (json!({ "priority": 1 }), "priority", code::UNKNOWN_FIELD),
            (json!({ "taskTimeout": "5m" }), "taskTimeout", code::INVALID_VALUE),
            (json!({ "onFailure": "stop" }), "onFailure", code::INVALID_VALUE),
            (json!({ "parkTimeout": "366d" }), "parkTimeout", code::OUT_OF_RANGE),
            (json!({ "onFailure": "fail", "parkTimeout": "1d" }), "parkTimeout", code::INVALID_VALUE),
        ] {
            assert_eq!(problems_of(&fields), [(path.to_owned(), expected)], "{fields}");
        }
    }

    #[test]
    fn every_rule_of_an_agent_has_its_place_and_code() {
        let long = "x".repeat(PROMPT_BYTES_MAX + 1);
        for (fields, path, expected) in [
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
            (json!({ "tools": vec!["t"; TOOLS_MAX + 1] }), "tools", code::TOO_LONG),
            (json!({ "tools": ["Read", "rm -rf"] }), "tools[1]", code::INVALID_VALUE),
            (json!({ "prompt": "{{a" }), "prompt", code::INVALID_VALUE),
            (json!({ "prompt": "x", "steps": [{ "prompt": "y" }] }), "prompt", code::ONE_OF),
            (json!({ "tools": ["Read"], "steps": [{ "prompt": "y" }] }), "tools", code::ONE_OF),
            (json!({ "steps": {} }), "steps", code::INVALID_TYPE),
            (json!({ "steps": [7] }), "steps[0]", code::INVALID_TYPE),
            (json!({ "steps": vec![json!({ "prompt": "y" }); STEPS_MAX + 1] }), "steps", code::TOO_LONG),
            (json!({ "steps": [{ "name": "a" }] }), "steps[0].prompt", code::MISSING_FIELD),
            (json!({ "steps": [{ "name": "a b", "prompt": "y" }] }), "steps[0].name", code::INVALID_VALUE),
            (
                json!({ "steps": [{ "name": "a", "prompt": "y" }, { "name": "a", "prompt": "z" }] }),
                "steps[1].name",
                code::INVALID_VALUE,
            ),
            (
                json!({ "steps": [{ "prompt": "{{steps.later.x}}" }, { "name": "later", "prompt": "z" }] }),
                "steps[0].prompt",
                code::INVALID_VALUE,
            ),
            (
                json!({ "steps": [{ "prompt": "y", "outputSchema": { "type": "object", "not": { "$ref": "x" } } }] }),
                "steps[0].outputSchema.not.$ref",
                code::INVALID_VALUE,
            ),
            (
                json!({ "steps": [{ "prompt": "y", "maxTurns": 201 }] }),
                "steps[0].maxTurns",
                code::OUT_OF_RANGE,
            ),
            (json!({ "steps": [{ "prompt": "y", "turns": 1 }] }), "steps[0].turns", code::UNKNOWN_FIELD),
            (
                json!({ "steps": [{ "name": "a", "prompt": "x" }, { "prompt": "y", "outputFile": "a.json" }] }),
                "steps[1].outputFile",
                code::INVALID_VALUE,
            ),
            (
                json!({ "steps": [{ "prompt": "x", "outputFile": "task-result.json" }, { "prompt": "y" }] }),
                "steps[0].outputFile",
                code::INVALID_VALUE,
            ),
            (json!({ "prompt": "x", "outputFile": "Task-Result.json" }), "outputFile", code::INVALID_VALUE),
            (
                json!({ "steps": [{ "name": "task-result", "prompt": "x" }] }),
                "steps[0].name",
                code::INVALID_VALUE,
            ),
            (
                json!({ "outputSchema": { "type": "object", "properties": { "a": { "pattern": "(" } } } }),
                "outputSchema.properties.a.pattern",
                code::INVALID_VALUE,
            ),
            (
                json!({ "outputSchema": { "type": "object", "patternProperties": { "a(?=b)": true } } }),
                "outputSchema.patternProperties.a(?=b)",
                code::INVALID_VALUE,
            ),
            (json!({ "permissionMode": "bypassPermissions" }), "permissionMode", code::INVALID_VALUE),
            (json!({ "agentAttempts": 11 }), "agentAttempts", code::OUT_OF_RANGE),
            (json!({ "resumeSession": "yes" }), "resumeSession", code::INVALID_TYPE),
            (json!({ "settings": [] }), "settings", code::INVALID_TYPE),
            (json!({ "settings": { "x": "y".repeat(SETTINGS_BYTES_MAX) } }), "settings", code::TOO_LONG),
            (json!({ "maxCostUsd": 0 }), "maxCostUsd", code::OUT_OF_RANGE),
            (json!({ "maxCostUsd": "1" }), "maxCostUsd", code::INVALID_TYPE),
            (json!({ "taskTimeout": "8d" }), "taskTimeout", code::OUT_OF_RANGE),
            (json!({ "tools": [1] }), "tools[0]", code::INVALID_TYPE),
        ] {
            assert_eq!(problems_of(&fields), [(path.to_owned(), expected)], "{fields}");
        }
    }

    #[test]
    fn values_that_readers_cannot_read_are_refused() {
        let deep = (0..110).fold(json!(1), |inner, _| json!([inner]));
        for (fields, path) in [
            (json!({ "settings": { "x": deep } }), "settings"),
            (json!({ "outputSchema": { "type": "object", "const": deep } }), "outputSchema"),
        ] {
            assert_eq!(problems_of(&fields), [(path.to_owned(), code::INVALID_VALUE)], "{path}");
        }
    }

    #[test]
    fn an_agent_has_its_only_step_at_the_top_or_several_in_a_list() {
        let schema = json!({ "type": "object", "properties": { "tags": { "type": "array" } } });
        let draft = DefinitionDraft::read(json!({
            "name": "tag", "prompt": "Tag {{store}}", "outputSchema": schema, "outputFile": "tags.json", "maxTurns": 5,
            "tools": ["Read"], "timeout": "10ms", "taskTimeout": "1h", "model": "inherit", "agentAttempts": 1,
            "maxAttempts": 4, "resumeSession": true, "settings": { "hooks": {} }, "maxCostUsd": 0.5,
            "permissionMode": "plan"
        }))
        .unwrap();
        assert_eq!((draft.runner, draft.max_attempts), (Runner::Agent, Some(4)));
        assert_eq!(draft.attempt_timeout(), Some(Millis(3_600_000)), "not the time of a step");
        let spec = draft.agent().unwrap();
        let [step] = &spec.steps[..] else { panic!("{spec:?}") };
        let expected = AgentStep {
            output_schema: draft.agent.output_schema.clone(),
            output_file: Some("tags.json".to_owned()),
            max_turns: Some(5),
            tools: vec!["Read".to_owned()],
            timeout: Some(Millis(10)),
            ..AgentStep::of("task-step", "Tag {{store}}")
        };
        assert_eq!(*step, expected);
        assert_eq!((spec.model.as_deref(), spec.max_attempts), (Some("inherit"), Some(1)));
        assert_eq!((spec.resume_session, spec.max_cost), (true, Some(MicroUsd(500_000))));
        assert_eq!(spec.permission_mode, Some(PermissionMode::Plan));
        let json = serde_json::to_value(&draft).unwrap();
        assert_eq!(DefinitionDraft::read(json).unwrap(), draft, "what was answered can be sent back");
        let (created_at, updated_at) = (Timestamp::MIN, Timestamp::MAX);
        let stored = Definition { draft, version: 3, created_at, updated_at };
        let text = serde_json::to_string(&stored).unwrap();
        assert_eq!(serde_json::from_str::<Definition>(&text).unwrap(), stored, "{text}");

        let steps =
            json!([{ "name": "find", "prompt": "find" }, { "prompt": "{{steps.find.x}}", "timeout": "2m" }]);
        let draft = DefinitionDraft::read(json!({ "name": "two", "steps": steps, "timeout": "1h" })).unwrap();
        let spec = draft.agent().unwrap();
        let told: Vec<_> = spec.steps.iter().map(|step| (step.name.as_str(), step.timeout)).collect();
        assert_eq!(told, [("find", Some(Millis(3_600_000))), ("step-2", Some(Millis(120_000)))]);
        assert_eq!(draft.attempt_timeout(), None);
        let command = DefinitionDraft::read(with(&json!({ "timeout": "2m" }))).unwrap();
        assert_eq!((command.agent(), command.attempt_timeout()), (None, Some(Millis(120_000))));
    }

    #[test]
    fn a_definition_opens_what_it_names_and_nothing_by_default() {
        let open = DefinitionDraft::read(with(&json!({ "openEnv": ["REGION", "DAY"] }))).unwrap();
        assert_eq!(open.open_env, ["REGION", "DAY"]);
        let closed = DefinitionDraft::read(with(&json!({ "env": { "REGION": "eu" } }))).unwrap();
        assert_eq!(closed.open_env, [""; 0]);
        let told = serde_json::to_value(&closed).unwrap();
        assert_eq!(told["openEnv"], json!([]), "it says so");
        assert_eq!(
            DefinitionDraft::read(told.clone()).unwrap(),
            closed,
            "what was answered can be sent back"
        );
        assert!(closed.input_arg && told.get("inputArg").is_none());
        let hidden = DefinitionDraft::read(with(&json!({ "inputArg": false }))).unwrap();
        assert_eq!(serde_json::to_value(&hidden).unwrap()["inputArg"], json!(false));
        // As releases stored it that did not know the field.
        let old = r#"{"name":"scrape","runner":"command","command":["x"],"env":{"REGION":"eu"},"version":3,
            "createdAt":1700000000000,"updatedAt":1700000000000}"#;
        let old: Definition = serde_json::from_str(old).unwrap();
        assert_eq!((old.draft.open_env.len(), old.draft.input_arg, old.version), (0, true, 3));
    }

    #[test]
    fn an_answer_can_be_edited_and_sent_back() {
        let draft = DefinitionDraft::read(with(&json!({
            "description": "all stores", "timeout": "2m", "maxAttempts": 5, "env": { "A": "1" },
            "secrets": ["API_TOKEN"], "labels": { "team": "x" }, "onFailure": "park", "parkTimeout": "2d", "retry": { "firstDelay": "1s" }, "model": null,
            "tools": [], "outputSchema": {}, "script": null
        })))
        .unwrap();
        assert_eq!(draft.command, Some(Run::Argv(vec!["scrape".to_owned(), "--all".to_owned()])));
        assert_eq!((draft.timeout, draft.max_attempts), (Some(Millis(120_000)), Some(5)));
        assert_eq!(draft.retry.max_attempts, Some(5));
        assert_eq!(
            (draft.on_failure, draft.park_timeout),
            (Some(OnFailure::Park), Some(Millis(172_800_000)))
        );
        assert_eq!(draft.agent.output_schema, None);
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
        assert_eq!(named(json!({ "name": "a", "prompt": "do it" })), Ok(Runner::Agent));
        assert_eq!(named(json!({ "name": "a", "script": "return 1" })), Ok(Runner::Script));
        assert_eq!(named(json!({ "name": "a", "steps": [{ "prompt": "do it" }] })), Ok(Runner::Agent));
        let nothing = named(json!({ "name": "a" })).unwrap_err();
        assert_eq!(nothing.listed[0].path, "runner");
    }
}
