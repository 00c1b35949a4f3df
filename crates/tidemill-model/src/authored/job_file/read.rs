//! From a JSON value to a checked job, or to everything that is wrong with it.

use schemars::SchemaGenerator;
use serde_json::{Value, json};

use super::schema::{DependsOnShape, OnFailureShape, RetryShape, TaskIdShape, WrittenBudget};
use super::text::{self, Shape, Source, Tasks};
use super::{ATTEMPTS_MAX, AddTasksFile, JobFile, RetryEntry, TaskEntry, TaskFile, TaskSettings, TaskWork};
use crate::authored::agent::{AgentShape, AgentSpec, read_inline};
use crate::authored::definition::SCRIPT_BYTES_MAX;
use crate::authored::document::Document;
use crate::authored::field_kinds::{schema_of, schema_with};
use crate::authored::field_problem::{FieldProblems, code};
use crate::authored::fields::{Fields, ObjectShape, Part, field, fields};
use crate::spending::budget::Budget;
use crate::values::id::{RequestId, TaskId, TaskName};
use crate::values::json::Json;
use crate::values::span::Millis;
use crate::work::callback_url::{BadCallbackUrl, CALLBACK_URL_BYTES_MAX, CallbackUrl};
use crate::work::dag::JOB_TASKS_MAX;
use crate::work::runner_spec::Run;
use crate::work::task_input::{DEPENDENCY_ARTIFACTS, DEPENDENCY_OUTPUTS, new_input_problem};
use crate::work::task_spec::OnFailure;

macro_rules! readers {
    ($($type:ty, $shape:expr, $what:literal;)+) => {
        $(impl $type {
            #[doc = concat!("Reads ", $what, ", or tells everything that is wrong.")]
            pub fn read(value: Value) -> Result<Self, FieldProblems> {
                read(Source::Value(value), $shape)
            }

            /// The same from JSON text, which takes little more memory than what comes of it.
            pub fn read_text(text: &str) -> Result<Self, FieldProblems> {
                read(Source::Text(text), $shape)
            }
        })+
    };
}

readers! {
    JobFile, Shape::Job, "a job";
    AddTasksFile, Shape::Job, "further tasks of a job";
    TaskFile, Shape::Task, "a task without a job";
}

fn read<T: Fields>(source: Source<'_>, shape: Shape) -> Result<T, FieldProblems> {
    let mut problems = FieldProblems::default();
    let Some(text::File { fields, input, tasks }) = text::read(source, shape, &mut problems) else {
        return Err(problems);
    };
    let mut document = Document::of(String::new(), fields, input, tasks, &mut problems);
    let read = T::read(&mut document);
    document.close_as::<T>();
    problems.or(read)
}

pub(super) fn request_id() -> impl Part<Value = Option<RequestId>> {
    let read = |document: &mut Document<'_>, name| {
        let text = document.text(name)?;
        RequestId::standalone(text)
            .map_err(|bad| document.problem(name, code::INVALID_VALUE, bad.problem.to_string()))
            .ok()
    };
    let pattern = [("pattern", "^[A-Za-z0-9_-]{1,256}$".into())];
    field("requestId", read, schema_with::<Option<String>>(pattern))
}

pub(super) fn budget() -> impl Part<Value = Option<Budget>> {
    let read = |document: &mut Document<'_>, name| {
        let value = document.take(name)?;
        Budget::read_at(document.path(name), value, document.problems)
    };
    field("budget", read, schema_of::<Option<WrittenBudget>>)
}

pub(super) fn callback() -> impl Part<Value = Option<CallbackUrl>> {
    let read = |document: &mut Document<'_>, name| {
        let text = document.text(name)?;
        let code_of = |bad: &BadCallbackUrl| match bad {
            BadCallbackUrl::TooLong(_) => code::TOO_LONG,
            _ => code::INVALID_VALUE,
        };
        CallbackUrl::new(&text).map_err(|bad| document.problem(name, code_of(&bad), bad.to_string())).ok()
    };
    let pattern = r"^[Hh][Tt][Tt][Pp][Ss]?://[^@#/?\\ ]+([/?][^# ]*)?$";
    let keywords = [("maxLength", CALLBACK_URL_BYTES_MAX.into()), ("pattern", pattern.into())];
    field("callbackUrl", read, schema_with::<Option<String>>(keywords))
}

pub(super) fn tasks() -> impl Part<Value = Vec<TaskEntry>> {
    let bounds = [("minItems", 1.into()), ("maxItems", JOB_TASKS_MAX.into())];
    field("tasks", read_tasks, schema_with::<Vec<TaskEntry>>(bounds)).required()
}

fn read_tasks(document: &mut Document<'_>, name: &str) -> Vec<TaskEntry> {
    match document.tasks() {
        Tasks::Missing => document.missing(name),
        Tasks::Other(kind) => {
            document.problem(name, code::INVALID_TYPE, format!("must be a list, not {kind}"));
        }
        Tasks::List { count: 0, .. } => {
            document.problem(name, code::EMPTY_TASKS, "is empty: a job has at least one task");
        }
        Tasks::List { count, .. } if count > JOB_TASKS_MAX => {
            let message = format!("has {count} tasks; the limit is {JOB_TASKS_MAX}");
            document.problem(name, code::TOO_MANY_TASKS, message);
        }
        Tasks::List { entries, problems, .. } => {
            document.problems.append(problems);
            return entries;
        }
    }
    Vec::new()
}

pub(super) fn task_id() -> impl Part<Value = TaskId> {
    let read = |task: &mut Document<'_>, name| {
        if !task.has(name) {
            task.missing(name);
        }
        let id = task.text(name).and_then(|text| {
            let id = TaskId::new(text);
            id.map_err(|bad| task.problem(name, code::INVALID_TASK_ID, bad.problem.to_string())).ok()
        });
        id.unwrap_or_else(|| TaskId::trusted("-"))
    };
    field("taskId", read, schema_of::<TaskIdShape>).required()
}

pub(super) fn depends_on() -> impl Part<Value = Vec<TaskId>> {
    field("dependsOn", read_depends_on, schema_of::<Option<DependsOnShape>>)
}

fn read_depends_on(task: &mut Document<'_>, name: &str) -> Vec<TaskId> {
    let mut depends_on = Vec::new();
    // A bare text is the only one.
    let is_one = task.get(name).is_some_and(Value::is_string);
    let parents = if is_one { task.text(name).map(|one| vec![one]) } else { task.texts(name) };
    for (at, text) in parents.unwrap_or_default().into_iter().enumerate() {
        // The place is only spelled out when it is needed: a wide join has very many.
        match TaskId::new(&text) {
            Ok(parent) => depends_on.push(parent),
            Err(bad) => {
                let field = if is_one { name.to_owned() } else { format!("{name}[{at}]") };
                task.problem(&field, code::INVALID_TASK_ID, bad.problem.to_string());
            }
        }
    }
    depends_on
}

fields! {
    /// The fields of which exactly one says what a task does.
    struct WorkFields {
        /// A stored task definition.
        name: Option<TaskName> = definition_name(),
        /// A command: a list of arguments, or one text for the shell.
        run: Option<Run> = field("run", |task: &mut Document<'_>, name| task.run(name), schema_of::<Run>),
        /// An agent: its prompt, or an object that says more.
        agent: Option<AgentSpec> = field("agent", read_inline, schema_of::<AgentShape>),
        /// A script for the sandbox: the body of a function that sees `ctx.input`.
        script: Option<String> = field(
            "script",
            |task: &mut Document<'_>, name| task.long_text(name, SCRIPT_BYTES_MAX),
            schema_of::<String>
        ),
    }
}

fn definition_name() -> impl Part<Value = Option<TaskName>> {
    let read = |task: &mut Document<'_>, name| {
        let text = task.text(name)?;
        TaskName::new(text)
            .map_err(|bad| task.problem(name, code::INVALID_VALUE, bad.problem.to_string()))
            .ok()
    };
    field("name", read, schema_with::<String>([("pattern", r"^[^#\x00-\x1f\x7f-\x9f]{1,200}$".into())]))
}

impl Fields for TaskWork {
    const ABOUT: &'static str = WorkFields::ABOUT;

    fn names() -> Vec<&'static str> {
        WorkFields::names()
    }

    fn read(task: &mut Document<'_>) -> Self {
        // Unlike elsewhere a null is not nothing here: it is more likely a value that got lost.
        let mut given = WorkFields::names();
        given.retain(|field| task.mentions(field));
        if given.len() != 1 {
            let what = if given.is_empty() { "none".to_owned() } else { given.join(" and ") };
            let message =
                format!("is one of name, run, agent and script, and exactly one is needed; given: {what}");
            let at = given.get(1).copied().unwrap_or("name");
            task.problem(at, code::ONE_OF, message);
        }
        for field in &given {
            if !task.has(field) {
                task.problem(field, code::INVALID_TYPE, "is null");
            }
        }
        let WorkFields { name, run, agent, script } = WorkFields::read(task);
        let agent = agent.map(|agent| Self::Agent(Box::new(agent)));
        let work = run.map(Self::Inline).or(agent).or(script.map(Self::Script)).or(name.map(Self::Named));
        if given.len() == 1 {
            check_only_inline(task, work.as_ref());
        }
        work.unwrap_or_else(|| Self::Script(String::new()))
    }

    fn describe(generator: &mut SchemaGenerator, shape: &mut ObjectShape) {
        WorkFields::describe(generator, shape);
        let one_of: Vec<_> =
            WorkFields::names().into_iter().map(|field| json!({ "required": [field] })).collect();
        shape.rules.insert("oneOf".to_owned(), one_of.into());
    }
}

/// Refuses what only a command or an agent has that the file brings along.
fn check_only_inline(task: &mut Document<'_>, work: Option<&TaskWork>) {
    let rule = match work {
        Some(TaskWork::Named(_)) => "is for a task with run or agent; a definition says its own",
        Some(TaskWork::Script(_)) => "is for a task with run or agent; a script sees no variables",
        Some(TaskWork::Inline(_) | TaskWork::Agent(_)) | None => return,
    };
    for field in ["secrets", "path"] {
        if task.has(field) {
            task.problem(field, code::INVALID_VALUE, rule);
        }
    }
}

pub(super) fn input() -> impl Part<Value = Json> {
    let read = |task: &mut Document<'_>, name| {
        let Some(input) = task.json(name) else { return Json::empty_object() };
        if let Some(problem) = new_input_problem(&input) {
            task.problem(name, code::INVALID_INPUT, problem.to_string());
        }
        input
    };
    // Without the keys under which the outputs and artifacts of other tasks are put.
    let reserved = json!({ DEPENDENCY_OUTPUTS: false, DEPENDENCY_ARTIFACTS: false });
    field("input", read, schema_with::<Option<serde_json::Map<String, Value>>>([("properties", reserved)]))
}

pub(crate) fn on_failure() -> impl Part<Value = Option<OnFailure>> {
    let read = |task: &mut Document<'_>, name| match task.text(name)?.as_str() {
        "fail" => Some(OnFailure::Fail),
        "park" => Some(OnFailure::Park),
        _ => {
            task.problem(name, code::INVALID_VALUE, "must be fail or park");
            None
        }
    };
    field("onFailure", read, schema_of::<Option<OnFailureShape>>)
}

pub(super) fn settle_parking(settings: TaskSettings, task: &mut Document<'_>) -> TaskSettings {
    check_parking(settings.on_failure, settings.park_timeout, task);
    settings
}

/// Refuses a time to wait for a task that does not wait.
pub(crate) fn check_parking(
    on_failure: Option<OnFailure>,
    park_timeout: Option<Millis>,
    task: &mut Document<'_>,
) {
    if on_failure == Some(OnFailure::Fail) && park_timeout.is_some() {
        task.problem("parkTimeout", code::INVALID_VALUE, "is for a task with onFailure: park");
    }
}

pub(crate) fn retry() -> impl Part<Value = RetryEntry> {
    field("retry", read_retry, schema_of::<Option<RetryShape>>)
}

fn read_retry(task: &mut Document<'_>, name: &str) -> RetryEntry {
    // A bare number says how often it is tried in all.
    if task.get(name).is_some_and(Value::is_number) {
        let max_attempts = task.count(name, 1..=ATTEMPTS_MAX);
        return RetryEntry { max_attempts, ..RetryEntry::default() };
    }
    let Some(value) = task.take(name) else { return RetryEntry::default() };
    RetryEntry::read_at(task.path(name), value, task.problems).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::authored::agent::{AgentSpec, MicroUsd};
    use crate::values::span::Millis;
    use crate::work::runner_spec::Run;

    fn problems_of(value: Value) -> Vec<(String, &'static str)> {
        let problems = JobFile::read(value).expect_err("it is refused");
        problems.listed.into_iter().map(|problem| (problem.path, problem.code)).collect()
    }

    /// A job of one task with these fields beside its id.
    fn with(fields: &Value) -> Value {
        let mut task = json!({ "taskId": "a" });
        task.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        json!({ "tasks": [task] })
    }

    #[test]
    fn a_whole_job_is_read() {
        let file = JobFile::read(json!({
            "name": "nightly",
            "requestId": "req-1",
            "callbackUrl": "https://hooks.example.com/done",
            "budget": { "usd": 2.5, "tokens": 1000 },
            "tasks": [
                { "taskId": "a", "run": ["echo", "x"], "input": { "n": 1 }, "timeout": "30s", "idleTimeout": 5000,
                  "retry": { "maxAttempts": 5, "firstDelay": "1s", "maxDelay": 60000, "onTimeout": true },
                  "env": { "A": "1" }, "labels": { "county": "x" }, "onFailure": "fail" },
                { "taskId": "b", "name": "scrape-store", "dependsOn": ["a"], "onFailure": "park", "parkTimeout": "2d" },
                { "taskId": "c", "run": "echo $A", "dependsOn": null, "input": null }
            ]
        }))
        .unwrap();
        assert_eq!(
            (file.name.as_deref(), file.request_id.as_ref().unwrap().as_str()),
            (Some("nightly"), "req-1")
        );
        assert_eq!(file.budget, Some(Budget { usd: Some(MicroUsd(2_500_000)), tokens: Some(1_000) }));
        assert_eq!(file.callback.as_ref().unwrap().as_str(), "https://hooks.example.com/done");
        let [a, b, c] = &file.tasks[..] else { panic!("{file:?}") };
        assert_eq!(a.work, TaskWork::Inline(Run::Argv(vec!["echo".to_owned(), "x".to_owned()])));
        assert_eq!(a.input.as_str(), r#"{"n":1}"#);
        assert_eq!(
            (a.settings.timeout, a.settings.idle_timeout),
            (Some(Millis(30_000)), Some(Millis(5_000)))
        );
        let retry = RetryEntry {
            max_attempts: Some(5),
            first_delay: Some(Millis(1_000)),
            max_delay: Some(Millis(60_000)),
            on_timeout: Some(true),
        };
        assert_eq!(a.settings.retry, retry);
        assert_eq!((a.settings.env["A"].as_str(), a.settings.labels["county"].as_str()), ("1", "x"));
        assert_eq!(b.work, TaskWork::Named(TaskName::trusted("scrape-store")));
        assert_eq!(b.depends_on, [TaskId::trusted("a")]);
        assert_eq!((a.settings.on_failure, a.settings.park_timeout), (Some(OnFailure::Fail), None));
        let parking = (b.settings.on_failure, b.settings.park_timeout);
        assert_eq!(parking, (Some(OnFailure::Park), Some(Millis(172_800_000))));
        assert_eq!((c.depends_on.len(), c.input.as_str()), (0, "{}"));
        assert_eq!(c.settings, TaskSettings::default());
    }

    #[test]
    fn a_bare_number_of_retries_and_a_bare_dependency_are_short_for_the_long_forms() {
        let job = |retry: Value, parents: Value| {
            JobFile::read(json!({ "tasks": [
                { "taskId": "b", "run": "x" },
                { "taskId": "a", "run": "x", "retry": retry, "dependsOn": parents },
            ] }))
        };
        let short = job(json!(5), json!("b")).unwrap();
        assert_eq!(short, job(json!({ "maxAttempts": 5 }), json!(["b"])).unwrap());
        assert_eq!(short.tasks[1].settings.retry.max_attempts, Some(5));
        assert_eq!(short.tasks[1].depends_on, [TaskId::trusted("b")]);
    }

    #[test]
    fn parking_is_checked_at_its_place() {
        for (value, path, expected) in [
            (with(&json!({ "run": "x", "onFailure": 1 })), "tasks[0].onFailure", code::INVALID_TYPE),
            (with(&json!({ "run": "x", "parkTimeout": 999 })), "tasks[0].parkTimeout", code::OUT_OF_RANGE),
            (with(&json!({ "run": "x", "parkTimeout": "2y" })), "tasks[0].parkTimeout", code::INVALID_VALUE),
            (
                with(&json!({ "run": "x", "onFailure": "fail", "parkTimeout": "1d" })),
                "tasks[0].parkTimeout",
                code::INVALID_VALUE,
            ),
            (with(&json!({ "run": "x", "onFailure": "retry" })), "tasks[0].onFailure", code::INVALID_VALUE),
        ] {
            assert_eq!(problems_of(value.clone()), [(path.to_owned(), expected)], "{value}");
        }
    }

    #[test]
    fn a_callback_is_an_address_of_the_web() {
        let far = format!("http://x/{}", "x".repeat(2_048));
        for (url, expected) in [
            (json!("ftp://x"), code::INVALID_VALUE),
            (json!("http://user:secret@x"), code::INVALID_VALUE),
            (json!(7), code::INVALID_TYPE),
            (json!(far), code::TOO_LONG),
        ] {
            let value = json!({ "tasks": [{ "taskId": "a", "run": "x" }], "callbackUrl": url });
            assert_eq!(problems_of(value), [("callbackUrl".to_owned(), expected)], "{url}");
        }
    }

    #[test]
    fn every_field_is_checked_at_its_place() {
        let long = "x".repeat(201);
        for (value, path, expected) in [
            (json!([]), "", code::INVALID_TYPE),
            (json!(null), "", code::INVALID_TYPE),
            (json!({}), "tasks", code::MISSING_FIELD),
            (json!({ "tasks": null }), "tasks", code::MISSING_FIELD),
            (json!({ "tasks": {} }), "tasks", code::INVALID_TYPE),
            (json!({ "tasks": [] }), "tasks", code::EMPTY_TASKS),
            (json!({ "tasks": [1] }), "tasks[0]", code::INVALID_TYPE),
            (json!({ "tasks": [{ "run": "x" }] }), "tasks[0].taskId", code::MISSING_FIELD),
            (json!({ "tasks": [{ "taskId": "a/b", "run": "x" }] }), "tasks[0].taskId", code::INVALID_TASK_ID),
            (json!({ "tasks": [{ "taskId": 7, "run": "x" }] }), "tasks[0].taskId", code::INVALID_TYPE),
            (
                json!({ "budget": {}, "tasks": [{ "taskId": "a", "run": "x" }] }),
                "budget",
                code::MISSING_FIELD,
            ),
            (
                json!({ "budget": { "usd": -1 }, "tasks": [{ "taskId": "a", "run": "x" }] }),
                "budget.usd",
                code::INVALID_VALUE,
            ),
            (with(&json!({})), "tasks[0].name", code::ONE_OF),
            (with(&json!({ "name": "n", "run": "x" })), "tasks[0].run", code::ONE_OF),
            (with(&json!({ "name": null })), "tasks[0].name", code::INVALID_TYPE),
            (with(&json!({ "script": null })), "tasks[0].script", code::INVALID_TYPE),
            (with(&json!({ "script": 7 })), "tasks[0].script", code::INVALID_TYPE),
            (with(&json!({ "script": "return 1", "run": "x" })), "tasks[0].script", code::ONE_OF),
            (with(&json!({ "name": "a#b" })), "tasks[0].name", code::INVALID_VALUE),
            (with(&json!({ "run": [] })), "tasks[0].run", code::INVALID_VALUE),
            (with(&json!({ "run": ["a", 1] })), "tasks[0].run[1]", code::INVALID_TYPE),
            (with(&json!({ "run": 1 })), "tasks[0].run", code::INVALID_TYPE),
            (with(&json!({ "run": "x", "dependsOn": 7 })), "tasks[0].dependsOn", code::INVALID_TYPE),
            (with(&json!({ "run": "x", "dependsOn": "#" })), "tasks[0].dependsOn", code::INVALID_TASK_ID),
            (
                with(&json!({ "run": "x", "dependsOn": ["b", "#"] })),
                "tasks[0].dependsOn[1]",
                code::INVALID_TASK_ID,
            ),
            (with(&json!({ "run": "x", "input": [] })), "tasks[0].input", code::INVALID_INPUT),
            (
                with(&json!({ "run": "x", "input": { "dependencyOutputs": 1 } })),
                "tasks[0].input",
                code::INVALID_INPUT,
            ),
            (with(&json!({ "run": "x", "timeout": "5 min" })), "tasks[0].timeout", code::INVALID_VALUE),
            (with(&json!({ "run": "x", "timeout": 999 })), "tasks[0].timeout", code::OUT_OF_RANGE),
            (with(&json!({ "run": "x", "timeout": "8d" })), "tasks[0].timeout", code::OUT_OF_RANGE),
            (with(&json!({ "run": "x", "idleTimeout": 0 })), "tasks[0].idleTimeout", code::OUT_OF_RANGE),
            (with(&json!({ "run": "x", "retry": "3" })), "tasks[0].retry", code::INVALID_TYPE),
            (with(&json!({ "run": "x", "retry": 0 })), "tasks[0].retry", code::OUT_OF_RANGE),
            (with(&json!({ "run": "x", "retry": 1.5 })), "tasks[0].retry", code::INVALID_TYPE),
            (
                with(&json!({ "run": "x", "retry": { "maxAttempts": 0 } })),
                "tasks[0].retry.maxAttempts",
                code::OUT_OF_RANGE,
            ),
            (
                with(&json!({ "run": "x", "retry": { "maxAttempts": "3" } })),
                "tasks[0].retry.maxAttempts",
                code::INVALID_TYPE,
            ),
            (
                with(&json!({ "run": "x", "retry": { "onTimeout": "yes" } })),
                "tasks[0].retry.onTimeout",
                code::INVALID_TYPE,
            ),
            (
                with(&json!({ "run": "x", "retry": { "tries": 3 } })),
                "tasks[0].retry.tries",
                code::UNKNOWN_FIELD,
            ),
            (
                with(&json!({ "run": "x", "env": { "PATH": "x" } })),
                "tasks[0].env.PATH",
                code::RESERVED_VARIABLE,
            ),
            (with(&json!({ "run": "x", "env": { "PORT": 80 } })), "tasks[0].env.PORT", code::INVALID_TYPE),
            (
                with(&json!({ "run": "x", "labels": { "a b": "x" } })),
                "tasks[0].labels.a b",
                code::INVALID_VALUE,
            ),
            (with(&json!({ "run": "x", "timeOut": 1 })), "tasks[0].timeOut", code::UNKNOWN_FIELD),
            (
                json!({ "tasks": [{ "taskId": "a", "run": "x" }], "version": 1 }),
                "version",
                code::UNKNOWN_FIELD,
            ),
            (json!({ "tasks": [{ "taskId": "a", "run": "x" }], "name": "" }), "name", code::INVALID_VALUE),
            (json!({ "tasks": [{ "taskId": "a", "run": "x" }], "name": long }), "name", code::TOO_LONG),
            (
                json!({ "tasks": [{ "taskId": "a", "run": "x" }], "requestId": "a b" }),
                "requestId",
                code::INVALID_VALUE,
            ),
        ] {
            assert_eq!(problems_of(value.clone()), [(path.to_owned(), expected)], "{value}");
        }
    }

    #[test]
    fn an_agent_is_a_prompt_or_an_object() {
        let work = |agent: Value| {
            let mut tasks = JobFile::read(with(&json!({ "agent": agent }))).unwrap().tasks;
            let TaskWork::Agent(spec) = tasks.remove(0).work else { panic!("it is an agent") };
            *spec
        };
        assert_eq!(work(json!("do it")), AgentSpec::of_prompt("do it"));
        assert_eq!(work(json!({ "prompt": "do it" })), AgentSpec::of_prompt("do it"));
        let spec = work(json!({
            "steps": [{ "name": "a", "prompt": "x" }, { "prompt": "{{steps.a.y}}" }], "timeout": "1m", "agentAttempts": 2
        }));
        assert_eq!((spec.steps.len(), spec.max_attempts), (2, Some(2)));
        assert_eq!(spec.steps[1].timeout, Some(Millis(60_000)));
        for (value, path, expected) in [
            (with(&json!({ "agent": null })), "tasks[0].agent", code::INVALID_TYPE),
            (with(&json!({ "agent": ["x"] })), "tasks[0].agent", code::INVALID_TYPE),
            (with(&json!({ "agent": " " })), "tasks[0].agent.prompt", code::INVALID_VALUE),
            (with(&json!({ "agent": {} })), "tasks[0].agent.prompt", code::MISSING_FIELD),
            (with(&json!({ "agent": "x", "run": "y" })), "tasks[0].agent", code::ONE_OF),
            (
                with(&json!({ "agent": { "prompt": "x", "maxAttempts": 1 } })),
                "tasks[0].agent.maxAttempts",
                code::UNKNOWN_FIELD,
            ),
            (
                with(&json!({ "agent": { "steps": [{ "prompt": "x", "tools": ["a b"] }] } })),
                "tasks[0].agent.steps[0].tools[0]",
                code::INVALID_VALUE,
            ),
            (
                with(&json!({ "agent": { "prompt": "x", "outputSchema": { "type": "array" } } })),
                "tasks[0].agent.outputSchema.type",
                code::INVALID_VALUE,
            ),
        ] {
            assert_eq!(problems_of(value.clone()), [(path.to_owned(), expected)], "{value}");
        }
        let task = TaskFile::read(json!({ "agent": "do it" })).unwrap();
        assert_eq!(task.work.inline_field(), Some("agent"));
    }

    #[test]
    fn all_problems_are_told_up_to_a_hundred() {
        let found = problems_of(
            json!({ "x": 1, "tasks": [{ "timeout": 1 }, { "taskId": "b", "run": "x", "y": 1 }] }),
        );
        let expected = [
            ("tasks[0].taskId", code::MISSING_FIELD),
            ("tasks[0].name", code::ONE_OF),
            ("tasks[0].timeout", code::OUT_OF_RANGE),
            ("tasks[1].y", code::UNKNOWN_FIELD),
            ("x", code::UNKNOWN_FIELD),
        ];
        assert_eq!(found, expected.map(|(path, code)| (path.to_owned(), code)));
        let many = json!({ "tasks": vec![json!({ "taskId": "a", "run": "x", "bad": 1 }); 1_000] });
        let problems = JobFile::read(many).unwrap_err();
        assert!(problems.listed.len() == crate::PROBLEMS_MAX && problems.is_full(), "{}", problems.total);
        assert!(problems.to_string().ends_with("(the first of more than 100 problems)"), "{problems}");
    }

    #[test]
    fn one_task_too_many_is_refused_without_looking_at_them() {
        let many = json!({ "tasks": vec![Value::Null; JOB_TASKS_MAX + 1] });
        assert_eq!(problems_of(many), [("tasks".to_owned(), code::TOO_MANY_TASKS)]);
    }

    #[test]
    fn a_job_of_100_000_tasks_is_read_whole() {
        let task = |number: usize| json!({ "taskId": format!("t{number}"), "run": ["true"], "input": { "n": number } });
        let tasks: Vec<_> = (0..JOB_TASKS_MAX).map(task).collect();
        assert_eq!(JobFile::read(json!({ "tasks": tasks })).unwrap().tasks.len(), JOB_TASKS_MAX);
    }

    #[test]
    fn a_task_on_its_own_and_further_tasks_are_read() {
        let task =
            TaskFile::read(json!({ "requestId": "t-1", "name": "scrape", "input": { "a": 1 } })).unwrap();
        assert_eq!(task.work, TaskWork::Named(TaskName::trusted("scrape")));
        let refused =
            TaskFile::read(json!({ "taskId": "t-1", "name": "scrape", "dependsOn": [] })).unwrap_err();
        let paths: Vec<_> = refused.listed.iter().map(|problem| problem.path.as_str()).collect();
        assert_eq!(paths, ["dependsOn", "taskId"]);
        let job_like =
            TaskFile::read(json!({ "name": "x", "requestId": "job-00000000000000000000000000000007_a" }));
        assert_eq!(job_like.unwrap_err().listed[0].path, "requestId");
        let added =
            AddTasksFile::read(json!({ "tasks": [{ "taskId": "f", "run": "true", "dependsOn": ["a"] }] }));
        assert_eq!(added.unwrap().tasks.len(), 1);
        assert!(AddTasksFile::read(json!({ "tasks": [], "name": "x" })).is_err());
    }

    /// Any JSON value, with the names of our fields among the keys.
    fn any_json() -> impl Strategy<Value = Value> {
        let key = prop_oneof![
            prop::sample::select(
                "tasks taskId name run agent script dependsOn input timeout idleTimeout retry env labels onFailure parkTimeout \
                 maxAttempts firstDelay maxDelay requestId callbackUrl prompt steps tools outputSchema settings \
                 maxCostUsd budget usd tokens"
                    .split_whitespace()
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            ),
            ".{0,6}",
        ];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
            Just(Value::from("a")),
            Just(Value::from("30s")),
        ];
        leaf.prop_recursive(4, 48, 8, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::hash_map(key.clone(), inner, 0..8)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    #[test]
    fn a_task_whose_values_take_too_much_memory_is_named() {
        let heavy = format!("[{}]", vec![r#"{"a":0}"#; 200_000].join(","));
        let text = format!(
            r#"{{"tasks":[{{"taskId":"a","run":"x"}},{{"taskId":"b","run":"x","labels":{heavy}}}]}}"#
        );
        let problems = JobFile::read_text(&text).unwrap_err();
        assert_eq!((&*problems.listed[0].path, problems.listed[0].code), ("tasks[1]", code::TOO_LONG));
        // An input is carried as text and may be as large as it likes here.
        let text = format!(r#"{{"tasks":[{{"taskId":"a","run":"x","input":{{"b": {heavy},"a":1}}}}]}}"#);
        let tasks = JobFile::read_text(&text).unwrap().tasks;
        assert!(tasks[0].input.as_str().starts_with(r#"{"a":1,"b":[{"a":0},"#));
    }

    proptest! {
        #[test]
        fn a_text_is_read_as_its_value_is(value in any_json()) {
            for value in [value.clone(), json!({ "tasks": [value.clone()] }), json!({ "tasks": value })] {
                let text = value.to_string();
                let value: Value = serde_json::from_str(&text).unwrap();
                prop_assert_eq!(JobFile::read_text(&text), JobFile::read(value.clone()));
                prop_assert_eq!(TaskFile::read_text(&text), TaskFile::read(value));
            }
        }

        /// Whatever comes: a job, or problems that all have a code and a short place.
        #[test]
        fn any_value_is_read_or_refused_with_reasons(value in any_json()) {
            for value in [value.clone(), json!({ "tasks": [value.clone()] }), json!({ "tasks": value })] {
                if let Err(problems) = JobFile::read(value.clone()) {
                    prop_assert!(problems.total > 0 && !problems.listed.is_empty());
                    for problem in &problems.listed {
                        prop_assert!(!problem.code.is_empty() && !problem.message.is_empty());
                        prop_assert!(problem.path.len() < 2_000);
                    }
                }
                let _ = TaskFile::read(value.clone());
                let _ = crate::DefinitionDraft::read(value);
            }
        }
    }
}
