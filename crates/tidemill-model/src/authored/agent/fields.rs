//! The fields that say what an agent does, in a definition and in `agent` of a job file.
//!
//! A single prompt has its fields at the top; several have them in `steps`.

use std::ops::RangeInclusive;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub(super) use super::output_schema::output_schema;
use super::{
    AgentSpec, AgentStep, MODEL_BYTES_MAX, MicroUsd, OUTPUT_FILE_BYTES_MAX, PROMPT_BYTES_MAX, PermissionMode,
    SETTINGS_BYTES_MAX, STEP_NAME_BYTES_MAX, STEP_NAME_DEFAULT, STEPS_MAX, TOOL_BYTES_MAX, TOOLS_MAX,
    TRIES_MAX, TRIES_MIN, TURNS_MAX, TURNS_MIN, is_output_file_name, is_step_name,
};
use crate::authored::document::{Document, kind};
use crate::authored::field_kinds::{count, flag_or, schema_of, schema_with, short_text, span};
use crate::authored::field_problem::code;
use crate::authored::fields::{Fields, Part, described_as, field, fields, fields_of};
use crate::authored::job_file::TIMEOUT_MILLIS_MAX;
use crate::values::json::Json;
use crate::values::span::Millis;

/// What belongs to a step and stands beside `steps` only by mistake.
const STEP_ONLY: [&str; 5] = ["prompt", "outputSchema", "outputFile", "maxTurns", "tools"];
/// The output of the task as a file.
const RESULT_FILE: &str = "task-result.json";
const TAKEN: &str = "task-result.json, which is the file of the task's own output";
/// What may be written as the time of a step, in milliseconds. It is held in its bounds when it is used.
pub(crate) const STEP_TIMEOUT_MILLIS_ALLOWED: RangeInclusive<u64> = 0..=TIMEOUT_MILLIS_MAX;
/// The first part of a placeholder for an output of an earlier step.
const STEPS: &str = "steps";
/// The same, for the step right before.
const PREVIOUS: &str = "previous";

fields! {
    /// What an agent does, as it is written.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "camelCase")]
    pub struct AgentFields {
        /// A template; `{{path}}` stands for a value of the input.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub prompt: Option<String> = only_prompt() => "A template: `{{path}}` stands for a value of the input.",
        /// A JSON Schema of type object.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub output_schema: Option<Json> = output_schema()
            => "A JSON Schema of type object that the output must satisfy. Nothing is fetched for it.",
        /// A bare file name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub output_file: Option<String> = output_file() => "A bare file name for the output.",
        /// 1 to 200.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub max_turns: Option<u32> = max_turns() => "30 when it is left out.",
        /// The tools that it may use. None means no tools.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub tools: Vec<String> = tools()
            => "The tools that the agent may use, such as `Read` or `Bash(git status:*)`. None means no tools.",
        /// Several prompts, one after the other.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub steps: Vec<AgentStep> = steps()
            => "Several prompts, one after the other. Each may use the outputs before it as `{{steps.NAME.path}}`.",
        /// For steps that name none; `inherit` leaves the choice to the CLI.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub model: Option<String> = short_text("model", MODEL_BYTES_MAX),
        /// `acceptEdits` when it is left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub permission_mode: Option<PermissionMode> = permission_mode(),
        /// Tries within one attempt, 1 to 10.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub agent_attempts: Option<u32> = count("agentAttempts", TRIES_MIN..=TRIES_MAX)
            => "Tries within one attempt of the task, for failures that pass.",
        /// Whether a further try or attempt goes on with the session of the failed one.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pub resume_session: bool = flag_or("resumeSession", false),
        /// Settings of the CLI, such as `hooks`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub settings: Option<Json> = settings(),
        /// What one attempt may cost, in dollars.
        #[serde(default, rename = "maxCostUsd", skip_serializing_if = "Option::is_none")]
        pub max_cost: Option<MicroUsd> = max_cost(),
    }
    first check_form;
}

fields! {
    /// What an agent does. A single prompt has its fields here; several have theirs in `steps`.
    pub(crate) struct AgentObject {
        fields: AgentFields = fields_of(),
        /// How long one try of a step may take that does not say its own; held between 1s and 15m.
        timeout: Option<Millis> = step_timeout(),
    }
    first check_prompt;
}

impl AgentFields {
    /// One spec of either form. `timeout` is for steps that do not say their own.
    pub(crate) fn spec(self, timeout: Option<Millis>) -> AgentSpec {
        let Self {
            prompt,
            output_schema,
            output_file,
            max_turns,
            tools,
            mut steps,
            model,
            permission_mode,
            agent_attempts,
            resume_session,
            settings,
            max_cost,
        } = self;
        if let Some(prompt) = prompt {
            let step = AgentStep::of(STEP_NAME_DEFAULT, prompt);
            steps.push(AgentStep { output_schema, output_file, max_turns, tools, ..step });
        }
        for step in &mut steps {
            step.timeout = step.timeout.or(timeout);
        }
        AgentSpec {
            steps,
            model,
            permission_mode,
            max_attempts: agent_attempts,
            resume_session,
            settings,
            max_cost,
        }
    }
}

/// What `agent` of a job file holds: an object, or a text that is the prompt.
pub(crate) fn read_inline(document: &mut Document<'_>, name: &str) -> Option<AgentSpec> {
    let value = match document.take(name)? {
        Value::String(prompt) => json!({ "prompt": prompt }),
        value @ Value::Object(_) => value,
        other => {
            let message = format!("must be a prompt or an object, not {}", kind(&other));
            document.problem(name, code::INVALID_TYPE, message);
            return None;
        }
    };
    let AgentObject { fields, timeout } =
        AgentObject::read_at(document.path(name), value, document.problems)?;
    Some(fields.spec(timeout))
}

/// Whether there is a prompt, or a step that has one.
pub(crate) fn asks(document: &Document<'_>) -> bool {
    document.has("prompt") || is_given(document, STEPS)
}

fn check_prompt(agent: &mut Document<'_>) {
    if !asks(agent) {
        agent.missing("prompt");
    }
}

/// Either a prompt with what belongs to it, or steps.
fn check_form(document: &mut Document<'_>) {
    if is_given(document, STEPS)
        && let Some(field) = STEP_ONLY.into_iter().find(|field| is_given(document, field))
    {
        document.problem(field, code::ONE_OF, "belongs into a step when there are steps");
    }
}

/// Whether a field says anything: an empty list or object does not.
fn is_given(document: &Document<'_>, field: &str) -> bool {
    document.get(field).is_some_and(|value| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => true,
    })
}

/// An agent in a job file.
#[derive(JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
#[expect(dead_code, reason = "only its shape is used")]
pub(crate) enum AgentShape {
    /// The prompt of the only step; `{{path}}` stands for a value of the input.
    Prompt(String),
    Object(Box<AgentObject>),
}

/// A step as it is written. As it is stored, its own schema says.
pub(crate) struct WrittenStep;

described_as! {
    AgentObject => "Agent", AgentObject, one_form;
    WrittenStep => "AgentStep", AgentStep;
}

/// The field of the form that is chosen is needed and not null.
fn one_form(mut schema: Schema, _: &mut SchemaGenerator) -> Schema {
    schema.insert("oneOf".to_owned(), json!([{ "required": ["prompt"] }, { "required": [STEPS] }]));
    if let Some(properties) = schema.get_mut("properties") {
        properties["prompt"]["type"] = "string".into();
        properties["prompt"]["default"] = "".into();
        properties[STEPS]["type"] = "array".into();
        properties[STEPS]["minItems"] = 1.into();
    }
    schema
}

pub(super) fn step_timeout() -> impl Part<Value = Option<Millis>> {
    span("timeout", STEP_TIMEOUT_MILLIS_ALLOWED)
}

pub(super) fn max_turns() -> impl Part<Value = Option<u32>> {
    count("maxTurns", TURNS_MIN..=TURNS_MAX)
}

fn steps() -> impl Part<Value = Vec<AgentStep>> {
    field(STEPS, read_steps, schema_with::<Option<Vec<WrittenStep>>>([("maxItems", STEPS_MAX.into())]))
}

fn read_steps(document: &mut Document<'_>, name: &str) -> Vec<AgentStep> {
    let Some(items) = document.list(name) else { return Vec::new() };
    if items.len() > STEPS_MAX {
        let message = format!("has {} steps; the limit is {STEPS_MAX}", items.len());
        document.problem(name, code::TOO_LONG, message);
        return Vec::new();
    }
    let mut steps: Vec<AgentStep> = Vec::with_capacity(items.len());
    for (at, item) in items.into_iter().enumerate() {
        let place = document.path(&format!("{name}[{at}]"));
        let Some(mut entry) = Document::open(place, item, document.problems) else { continue };
        // A name that is given and empty is refused as it is.
        let is_named = entry.get("name").is_some_and(Value::is_string);
        let mut step = AgentStep::read(&mut entry);
        if !is_named {
            step.name = format!("step-{}", at + 1);
        }
        check_step(&mut entry, &step, &steps);
        entry.close_as::<AgentStep>();
        steps.push(step);
    }
    steps
}

/// Checks what the steps before it have to do with a step.
fn check_step(entry: &mut Document<'_>, step: &AgentStep, before: &[AgentStep]) {
    let names: Vec<&str> = before.iter().map(|step| step.name.as_str()).collect();
    if is_step_name(&step.name) && names.contains(&step.name.as_str()) {
        entry.problem("name", code::INVALID_VALUE, "is the name of an earlier step too");
    }
    if let Err(message) = check_placeholders(&step.prompt, &names) {
        entry.problem("prompt", code::INVALID_VALUE, message);
    }
    let file = step.output_file_name();
    if before.iter().any(|other| other.name != step.name && other.output_file_name() == file) {
        entry.problem("outputFile", code::INVALID_VALUE, format!("is {file}, as that of an earlier step"));
    }
    if step.output_file.is_none() && file == RESULT_FILE {
        entry.problem("name", code::INVALID_VALUE, format!("makes its output {TAKEN}"));
    }
}

/// The name of a step; empty when it is left out.
pub(super) fn step_name() -> impl Part<Value = String> {
    let read = |entry: &mut Document<'_>, field| {
        let name = entry.text(field)?;
        if !is_step_name(&name) {
            let rule = format!("must be 1 to {STEP_NAME_BYTES_MAX} letters, digits, `_` and `-`");
            entry.problem(field, code::INVALID_VALUE, rule);
        }
        Some(name)
    };
    let read = move |entry: &mut Document<'_>, field| read(entry, field).unwrap_or_default();
    let pattern = [("pattern", "^[A-Za-z0-9_-]{1,100}$".into())];
    field("name", read, schema_with::<Option<String>>(pattern))
}

/// The prompt of a step, whose placeholders are checked once the steps before it are known.
pub(super) fn step_prompt() -> impl Part<Value = String> {
    let read = |entry: &mut Document<'_>, field| {
        if !entry.has(field) {
            entry.missing(field);
        }
        read_prompt(entry, field).unwrap_or_default()
    };
    field("prompt", read, schema_of::<String>).required()
}

/// The prompt of an agent that has no other.
fn only_prompt() -> impl Part<Value = Option<String>> {
    let read = |document: &mut Document<'_>, field| {
        let prompt = read_prompt(document, field)?;
        if let Err(message) = check_placeholders(&prompt, &[]) {
            document.problem(field, code::INVALID_VALUE, message);
        }
        Some(prompt)
    };
    field("prompt", read, schema_of::<Option<String>>)
}

fn read_prompt(document: &mut Document<'_>, field: &str) -> Option<String> {
    let prompt = document.long_text(field, PROMPT_BYTES_MAX)?;
    if prompt.trim().is_empty() {
        document.problem(field, code::INVALID_VALUE, "is empty");
        return None;
    }
    if prompt.contains('\0') {
        document.problem(field, code::INVALID_VALUE, "holds a NUL character");
    }
    Some(prompt)
}

/// What is wrong with the first placeholder that is. `\{{` stands for two braces.
fn check_placeholders(template: &str, before: &[&str]) -> Result<(), String> {
    let mut rest = template;
    while let Some(at) = rest.find("{{") {
        let inner = &rest[at + 2..];
        if rest[..at].ends_with('\\') {
            rest = inner;
            continue;
        }
        let shown = |text: &str| text.chars().take(60).flat_map(char::escape_default).collect::<String>();
        let Some(end) = inner.find("}}") else {
            let message = "that does not end; write \\{{ for the two braces themselves";
            return Err(format!("has a placeholder {{{{{} {message}", shown(inner)));
        };
        let path = inner[..end].trim();
        if !path.split('.').all(is_path_part) {
            let message = "that is no path such as a.b; write \\{{ for the two braces themselves";
            return Err(format!("has a placeholder {{{{{}}}}} {message}", shown(path)));
        }
        let mut parts = path.split('.');
        let is_known = match (parts.next(), parts.next()) {
            (Some(PREVIOUS), _) | (Some(STEPS), None) => !before.is_empty(),
            (Some(STEPS), Some(name)) => before.contains(&name),
            _ => true,
        };
        if !is_known {
            return Err(format!("has a placeholder {{{{{}}}}}, and no earlier step is that", shown(path)));
        }
        rest = &inner[end + 2..];
    }
    Ok(())
}

fn is_path_part(part: &str) -> bool {
    let fits = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '$' | ':');
    !part.is_empty() && part.chars().all(fits)
}

pub(super) fn output_file() -> impl Part<Value = Option<String>> {
    let read = |document: &mut Document<'_>, field| {
        let name = document.short_text(field, OUTPUT_FILE_BYTES_MAX)?;
        if !is_output_file_name(&name) {
            document.problem(field, code::INVALID_VALUE, "must be a bare file name that no dot begins");
            return None;
        }
        if name.eq_ignore_ascii_case(RESULT_FILE) {
            document.problem(field, code::INVALID_VALUE, format!("is {TAKEN}"));
            return None;
        }
        Some(name)
    };
    let bounds = [("minLength", 1.into()), ("maxLength", OUTPUT_FILE_BYTES_MAX.into())];
    field("outputFile", read, schema_with::<Option<String>>(bounds))
}

pub(super) fn tools() -> impl Part<Value = Vec<String>> {
    let read = |document: &mut Document<'_>, field| {
        document.names(field, TOOLS_MAX, |tool| {
            let rule = || {
                format!("is no tool such as Read or Bash(git status:*), of at most {TOOL_BYTES_MAX} bytes")
            };
            if is_tool(tool) { Ok(()) } else { Err((code::INVALID_VALUE, rule())) }
        })
    };
    field("tools", read, schema_with::<Option<Vec<String>>>([("maxItems", TOOLS_MAX.into())]))
}

/// A name of letters, digits, `_` and `-`, which may have a pattern in brackets behind it.
fn is_tool(tool: &str) -> bool {
    let (name, pattern) = match tool.split_once('(') {
        None => (tool, None),
        Some((name, rest)) => (name, Some(rest)),
    };
    let is_name = name.bytes().next().is_some_and(|first| first.is_ascii_alphabetic())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    let is_pattern = |rest: &str| rest.len() > 1 && rest.ends_with(')');
    tool.len() <= TOOL_BYTES_MAX
        && is_name
        && pattern.is_none_or(is_pattern)
        && !tool.chars().any(char::is_control)
}

fn permission_mode() -> impl Part<Value = Option<PermissionMode>> {
    let read = |document: &mut Document<'_>, field| {
        let text = document.text(field)?;
        let mode = PermissionMode::ALL.into_iter().find(|mode| mode.as_str() == text);
        if mode.is_none() {
            let known = PermissionMode::ALL.map(PermissionMode::as_str).join(", ");
            let message = format!("must be one of {known}; a worker that skips permissions is a setting");
            document.problem(field, code::INVALID_VALUE, message);
        }
        mode
    };
    field("permissionMode", read, schema_of::<Option<PermissionMode>>)
}

fn settings() -> impl Part<Value = Option<Json>> {
    let read = |document: &mut Document<'_>, field| {
        let value = document.take(field)?;
        if !value.is_object() {
            let message = format!("must be an object, not {}", kind(&value));
            document.problem(field, code::INVALID_TYPE, message);
            return None;
        }
        let json = Json::of(&value);
        if json.len() > SETTINGS_BYTES_MAX {
            let message = format!("is {} bytes; the limit is {SETTINGS_BYTES_MAX}", json.len());
            document.problem(field, code::TOO_LONG, message);
        }
        if let Some(problem) = json.problem() {
            document.problem(field, code::INVALID_VALUE, problem.to_string());
        }
        Some(json)
    };
    field("settings", read, schema_of::<Option<Map<String, Value>>>)
}

fn max_cost() -> impl Part<Value = Option<MicroUsd>> {
    let read = |document: &mut Document<'_>, field| {
        let value = document.take(field)?;
        let Some(dollars) = value.as_f64() else {
            let message = format!("must be a number of dollars, not {}", kind(&value));
            document.problem(field, code::INVALID_TYPE, message);
            return None;
        };
        let cost = MicroUsd::from_dollars(dollars).filter(|cost| cost.0 > 0);
        if cost.is_none() {
            let message = format!("is {value}; it must be more than 0 and at most 1000000 dollars");
            document.problem(field, code::OUT_OF_RANGE, message);
        }
        cost
    };
    field("maxCostUsd", read, schema_of::<Option<MicroUsd>>)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_paths_and_name_earlier_steps() {
        for (template, fits) in [
            ("plain { } }} text", true),
            ("{{store}} and {{ a.b.0.c-d_e }}", true),
            ("{{dependencyOutputs.scrape.title}}", true),
            ("{{steps.find.tags}}", true),
            ("{{steps.later.tags}}", false),
            ("{{steps}} {{previous.x}}", true),
            (r"\{{ as it is", true),
            (r"\{{a b}} {{a b}}", false),
            ("{{}}", false),
            ("{{ }}", false),
            ("{{a b}}", false),
            ("{{a..b}}", false),
            ("{{a{b}}", false),
            ("{{open", false),
        ] {
            assert_eq!(check_placeholders(template, &["find"]).is_ok(), fits, "{template}");
        }
        for template in ["{{steps}}", "{{previous.x}}", "{{steps.find}}"] {
            assert!(
                check_placeholders(template, &[]).is_err(),
                "{template}: there is no step before the first"
            );
        }
    }

    #[test]
    fn tools_look_like_tools() {
        for (tool, fits) in [
            ("Read", true),
            ("Bash(git status:*)", true),
            ("Bash(echo, (a))", true),
            ("mcp__server__tool", true),
            ("mcp__my-server", true),
            ("", false),
            ("*", false),
            ("-x", false),
            ("Read,Write", false),
            ("Read Write", false),
            ("Bash(", false),
            ("Bash()", false),
            ("Bash(a", false),
            ("Re\nad", false),
        ] {
            assert_eq!(is_tool(tool), fits, "{tool:?}");
        }
    }
}
