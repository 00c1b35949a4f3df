//! The fields that say what an agent does, in a definition and in `agent` of a job file.
//!
//! A single prompt has its fields at the top; several have them in `steps`.

use serde_json::Value;

use super::output_schema::output_schema;
use crate::agent::{
    AgentSpec, AgentStep, MODEL_BYTES_MAX, MicroUsd, OUTPUT_FILE_BYTES_MAX, PROMPT_BYTES_MAX, PermissionMode,
    SETTINGS_BYTES_MAX, STEP_NAME_BYTES_MAX, STEP_NAME_DEFAULT, STEPS_MAX, TOOL_BYTES_MAX, TOOLS_MAX,
    TRIES_MAX, TRIES_MIN, TURNS_MAX, TURNS_MIN, is_output_file_name, is_step_name,
};
use crate::document::{Document, kind};
use crate::field_problem::code;
use crate::job_file::TIMEOUT_MILLIS_MAX;
use crate::json::Json;
use crate::span::Millis;

/// What may stand in `agent` of a job file.
const AGENT_FIELDS: &str = "prompt, outputSchema, outputFile, maxTurns, tools, steps, timeout, model, \
                                       permissionMode, agentAttempts, resumeSession, settings, maxCostUsd";
const STEP_FIELDS: &str = "name, prompt, outputSchema, outputFile, maxTurns, tools, timeout, model";
/// What belongs to a step and stands beside `steps` only by mistake.
const STEP_ONLY: [&str; 5] = ["prompt", "outputSchema", "outputFile", "maxTurns", "tools"];
/// The output of the task as a file.
const RESULT_FILE: &str = "task-result.json";
const TAKEN: &str = "task-result.json, which is the file of the task's own output";
/// The first part of a placeholder for an output of an earlier step.
const STEPS: &str = "steps";
/// The same, for the step right before.
const PREVIOUS: &str = "previous";

/// The fields of an agent, read and checked one by one.
#[derive(Debug, Default)]
pub(crate) struct AgentFields {
    pub(crate) prompt: Option<String>,
    pub(crate) output_schema: Option<Json>,
    pub(crate) output_file: Option<String>,
    pub(crate) max_turns: Option<u32>,
    pub(crate) tools: Vec<String>,
    pub(crate) steps: Vec<AgentStep>,
    pub(crate) timeout: Option<Millis>,
    pub(crate) model: Option<String>,
    pub(crate) permission_mode: Option<PermissionMode>,
    pub(crate) attempts: Option<u32>,
    pub(crate) resume_session: bool,
    pub(crate) settings: Option<Json>,
    pub(crate) max_cost: Option<MicroUsd>,
}

impl AgentFields {
    /// Takes the fields of an agent. `timeout` is left to those whose other runners have one too.
    pub(crate) fn read(document: &mut Document<'_>) -> Self {
        if is_given(document, STEPS)
            && let Some(field) = STEP_ONLY.into_iter().find(|field| is_given(document, field))
        {
            document.problem(field, code::ONE_OF, "belongs into a step when there are steps");
        }
        let prompt = prompt(document, &[]);
        let Rest { output_schema, output_file, max_turns, tools } = Rest::read(document);
        Self {
            prompt,
            output_schema,
            output_file,
            max_turns,
            tools,
            steps: steps(document),
            timeout: None,
            model: document.short_text("model", MODEL_BYTES_MAX),
            permission_mode: permission_mode(document),
            attempts: count(document, "agentAttempts", TRIES_MIN, TRIES_MAX),
            resume_session: document.flag("resumeSession").unwrap_or(false),
            settings: settings(document),
            max_cost: max_cost(document),
        }
    }

    /// Whether there is a prompt, or a step that has one.
    pub(crate) fn asks(document: &Document<'_>) -> bool {
        document.has("prompt") || is_given(document, STEPS)
    }

    /// What `agent` of a job file holds: an object, or a text that is the prompt.
    pub(crate) fn read_inline(place: String, value: Value, document: &mut Document<'_>) -> Option<AgentSpec> {
        let value = match value {
            Value::String(prompt) => serde_json::json!({ "prompt": prompt }),
            value @ Value::Object(_) => value,
            other => {
                let message = format!("must be a prompt or an object, not {}", kind(&other));
                document.problems.add(place, code::INVALID_TYPE, message);
                return None;
            }
        };
        let mut agent = Document::open(place, value, document.problems)?;
        let asks = Self::asks(&agent);
        let mut fields = Self::read(&mut agent);
        fields.timeout = step_timeout(&mut agent);
        if !asks {
            agent.missing("prompt");
        }
        agent.close(AGENT_FIELDS);
        Some(fields.spec())
    }

    /// One spec of either form.
    pub(crate) fn spec(self) -> AgentSpec {
        let mut steps = self.steps;
        if let Some(prompt) = self.prompt {
            let (output_schema, output_file) = (self.output_schema, self.output_file);
            let (max_turns, tools) = (self.max_turns, self.tools);
            let step = AgentStep::of(STEP_NAME_DEFAULT, prompt);
            steps.push(AgentStep { output_schema, output_file, max_turns, tools, ..step });
        }
        for step in &mut steps {
            step.timeout = step.timeout.or(self.timeout);
        }
        AgentSpec {
            steps,
            model: self.model,
            permission_mode: self.permission_mode,
            max_attempts: self.attempts,
            resume_session: self.resume_session,
            settings: self.settings,
            max_cost: self.max_cost,
        }
    }
}

/// The time of a step. It is held in its bounds when it is used, so any span is right.
pub(super) fn step_timeout(document: &mut Document<'_>) -> Option<Millis> {
    document.span("timeout", 0..=TIMEOUT_MILLIS_MAX)
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

/// What a prompt comes with.
struct Rest {
    output_schema: Option<Json>,
    output_file: Option<String>,
    max_turns: Option<u32>,
    tools: Vec<String>,
}

impl Rest {
    fn read(document: &mut Document<'_>) -> Self {
        Self {
            output_schema: output_schema(document),
            output_file: output_file(document),
            max_turns: count(document, "maxTurns", TURNS_MIN, TURNS_MAX),
            tools: tools(document),
        }
    }
}

fn count(document: &mut Document<'_>, field: &str, min: u32, max: u32) -> Option<u32> {
    document.number(field, min.into()..=max.into()).and_then(|number| u32::try_from(number).ok())
}

fn steps(document: &mut Document<'_>) -> Vec<AgentStep> {
    let Some(items) = document.list(STEPS) else { return Vec::new() };
    if items.len() > STEPS_MAX {
        let message = format!("has {} steps; the limit is {STEPS_MAX}", items.len());
        document.problem(STEPS, code::TOO_LONG, message);
        return Vec::new();
    }
    let mut steps: Vec<AgentStep> = Vec::with_capacity(items.len());
    for (at, item) in items.into_iter().enumerate() {
        let place = document.path(&format!("{STEPS}[{at}]"));
        let Some(mut entry) = Document::open(place, item, document.problems) else { continue };
        let before: Vec<&str> = steps.iter().map(|step| step.name.as_str()).collect();
        let step = step(&mut entry, at, &before);
        let file = step.output_file_name();
        if steps.iter().any(|other| other.name != step.name && other.output_file_name() == file) {
            entry.problem(
                "outputFile",
                code::INVALID_VALUE,
                format!("is {file}, as that of an earlier step"),
            );
        }
        if step.output_file.is_none() && file == RESULT_FILE {
            entry.problem("name", code::INVALID_VALUE, format!("makes its output {TAKEN}"));
        }
        entry.close(STEP_FIELDS);
        steps.push(step);
    }
    steps
}

fn step(entry: &mut Document<'_>, at: usize, before: &[&str]) -> AgentStep {
    let name = entry.text("name").unwrap_or_else(|| format!("step-{}", at + 1));
    if !is_step_name(&name) {
        let rule = format!("must be 1 to {STEP_NAME_BYTES_MAX} letters, digits, `_` and `-`");
        entry.problem("name", code::INVALID_VALUE, rule);
    } else if before.contains(&name.as_str()) {
        entry.problem("name", code::INVALID_VALUE, "is the name of an earlier step too");
    }
    if !entry.has("prompt") {
        entry.missing("prompt");
    }
    let prompt = prompt(entry, before).unwrap_or_default();
    let Rest { output_schema, output_file, max_turns, tools } = Rest::read(entry);
    let (timeout, model) = (step_timeout(entry), entry.short_text("model", MODEL_BYTES_MAX));
    AgentStep { name, prompt, output_schema, output_file, max_turns, tools, timeout, model }
}

/// A prompt whose placeholders can be filled in, as far as it can be told without an input.
fn prompt(document: &mut Document<'_>, before: &[&str]) -> Option<String> {
    let prompt = document.long_text("prompt", PROMPT_BYTES_MAX)?;
    if prompt.trim().is_empty() {
        document.problem("prompt", code::INVALID_VALUE, "is empty");
        return None;
    }
    if prompt.contains('\0') {
        document.problem("prompt", code::INVALID_VALUE, "holds a NUL character");
    }
    if let Err(message) = check_placeholders(&prompt, before) {
        document.problem("prompt", code::INVALID_VALUE, message);
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

fn output_file(document: &mut Document<'_>) -> Option<String> {
    let name = document.short_text("outputFile", OUTPUT_FILE_BYTES_MAX)?;
    if !is_output_file_name(&name) {
        document.problem("outputFile", code::INVALID_VALUE, "must be a bare file name that no dot begins");
        return None;
    }
    if name.eq_ignore_ascii_case(RESULT_FILE) {
        document.problem("outputFile", code::INVALID_VALUE, format!("is {TAKEN}"));
        return None;
    }
    Some(name)
}

fn tools(document: &mut Document<'_>) -> Vec<String> {
    let tools = document.texts("tools").unwrap_or_default();
    if tools.len() > TOOLS_MAX {
        let message = format!("has {} names; the limit is {TOOLS_MAX}", tools.len());
        document.problem("tools", code::TOO_LONG, message);
    }
    for (at, tool) in tools.iter().enumerate() {
        if !is_tool(tool) {
            let rule =
                format!("is no tool such as Read or Bash(git status:*), of at most {TOOL_BYTES_MAX} bytes");
            document.problem(&format!("tools[{at}]"), code::INVALID_VALUE, rule);
        }
    }
    tools
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

fn permission_mode(document: &mut Document<'_>) -> Option<PermissionMode> {
    let text = document.text("permissionMode")?;
    let mode = PermissionMode::ALL.into_iter().find(|mode| mode.as_str() == text);
    if mode.is_none() {
        let known = PermissionMode::ALL.map(PermissionMode::as_str).join(", ");
        let message = format!("must be one of {known}; a worker that skips permissions is a setting");
        document.problem("permissionMode", code::INVALID_VALUE, message);
    }
    mode
}

fn settings(document: &mut Document<'_>) -> Option<Json> {
    let value = document.take("settings")?;
    if !value.is_object() {
        let message = format!("must be an object, not {}", kind(&value));
        document.problem("settings", code::INVALID_TYPE, message);
        return None;
    }
    let json = Json::of(&value);
    if json.len() > SETTINGS_BYTES_MAX {
        let message = format!("is {} bytes; the limit is {SETTINGS_BYTES_MAX}", json.len());
        document.problem("settings", code::TOO_LONG, message);
    }
    if let Some(problem) = json.problem() {
        document.problem("settings", code::INVALID_VALUE, problem.to_string());
    }
    Some(json)
}

fn max_cost(document: &mut Document<'_>) -> Option<MicroUsd> {
    let value = document.take("maxCostUsd")?;
    let Some(dollars) = value.as_f64() else {
        let message = format!("must be a number of dollars, not {}", kind(&value));
        document.problem("maxCostUsd", code::INVALID_TYPE, message);
        return None;
    };
    let cost = MicroUsd::from_dollars(dollars).filter(|cost| cost.0 > 0);
    if cost.is_none() {
        let message = format!("is {value}; it must be more than 0 and at most 1000000 dollars");
        document.problem("maxCostUsd", code::OUT_OF_RANGE, message);
    }
    cost
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
