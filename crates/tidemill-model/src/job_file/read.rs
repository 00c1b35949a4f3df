//! From a JSON value to a checked job, or to everything that is wrong with it.

use serde_json::Value;

use super::text::{self, Shape, Source, Tasks};
use super::{
    ATTEMPTS_MAX, AddTasksFile, JOB_NAME_BYTES_MAX, JobFile, PARK_MILLIS_MAX, RETRY_DELAY_MILLIS_MAX,
    RetryEntry, TIMEOUT_MILLIS_MAX, TIMEOUT_MILLIS_MIN, TaskEntry, TaskFile, TaskSettings, TaskWork,
};
use crate::budget::Budget;
use crate::callback_url::{BadCallbackUrl, CallbackUrl};
use crate::dag::JOB_TASKS_MAX;
use crate::definition::{AgentFields, SCRIPT_BYTES_MAX, path, secrets};
use crate::document::Document;
use crate::field_problem::{FieldProblems, code};
use crate::id::{RequestId, TaskId, TaskName};
use crate::json::Json;
use crate::span::Millis;
use crate::task_input::new_input_problem;
use crate::task_spec::OnFailure;

const JOB_FIELDS: &str = "name, requestId, budget, tasks, callbackUrl";
pub(super) const TASK_FIELDS: &str = "taskId, name, run, agent, script, dependsOn, input, timeout, idleTimeout, retry, env, secrets, path, labels, onFailure, parkTimeout";
const ALONE_FIELDS: &str = "requestId, name, run, agent, script, input, timeout, idleTimeout, retry, env, secrets, path, labels, onFailure, parkTimeout";

impl JobFile {
    /// Reads a job, or tells everything that is wrong.
    pub fn read(value: Value) -> Result<Self, FieldProblems> {
        Self::read_from(Source::Value(value))
    }

    /// The same from its JSON text, which takes little more memory than the job.
    pub fn read_text(text: &str) -> Result<Self, FieldProblems> {
        Self::read_from(Source::Text(text))
    }

    fn read_from(source: Source<'_>) -> Result<Self, FieldProblems> {
        let mut problems = FieldProblems::default();
        let mut file = Self { name: None, request_id: None, budget: None, callback: None, tasks: Vec::new() };
        if let Some(text::File { fields, tasks: list, .. }) = text::read(source, Shape::Job, &mut problems) {
            let mut document = Document::of(String::new(), fields, None, &mut problems);
            file.name = document.short_text("name", JOB_NAME_BYTES_MAX);
            file.request_id = request_id(&mut document);
            let budget = document.take("budget");
            file.budget = budget.and_then(|budget| Budget::read("budget", budget, document.problems));
            file.callback = callback(&mut document);
            file.tasks = tasks(&mut document, list);
            document.close(JOB_FIELDS);
        }
        problems.or(file)
    }
}

impl AddTasksFile {
    /// Reads further tasks, or tells everything that is wrong.
    pub fn read(value: Value) -> Result<Self, FieldProblems> {
        Self::read_from(Source::Value(value))
    }

    /// The same from their JSON text.
    pub fn read_text(text: &str) -> Result<Self, FieldProblems> {
        Self::read_from(Source::Text(text))
    }

    fn read_from(source: Source<'_>) -> Result<Self, FieldProblems> {
        let mut problems = FieldProblems::default();
        let mut file = Self { tasks: Vec::new() };
        if let Some(text::File { fields, tasks: list, .. }) = text::read(source, Shape::Job, &mut problems) {
            let mut document = Document::of(String::new(), fields, None, &mut problems);
            file.tasks = tasks(&mut document, list);
            document.close("tasks");
        }
        problems.or(file)
    }
}

impl TaskFile {
    /// Reads a task without a job, or tells everything that is wrong.
    pub fn read(value: Value) -> Result<Self, FieldProblems> {
        Self::read_from(Source::Value(value))
    }

    /// The same from its JSON text.
    pub fn read_text(text: &str) -> Result<Self, FieldProblems> {
        Self::read_from(Source::Text(text))
    }

    fn read_from(source: Source<'_>) -> Result<Self, FieldProblems> {
        let mut problems = FieldProblems::default();
        let Some(text::File { fields, input: given, .. }) = text::read(source, Shape::Task, &mut problems)
        else {
            return Err(problems);
        };
        let mut document = Document::of(String::new(), fields, given, &mut problems);
        let request_id = request_id(&mut document);
        let work = work(&mut document);
        let input = input(&mut document);
        let settings = settings(&mut document, work.as_ref());
        document.close(ALONE_FIELDS);
        match work {
            Some(work) => problems.or(Self { request_id, work, input, settings }),
            None => Err(problems),
        }
    }
}

fn request_id(document: &mut Document<'_>) -> Option<RequestId> {
    let text = document.text("requestId")?;
    RequestId::standalone(text)
        .map_err(|bad| document.problem("requestId", code::INVALID_VALUE, bad.problem.to_string()))
        .ok()
}

fn callback(document: &mut Document<'_>) -> Option<CallbackUrl> {
    let text = document.text("callbackUrl")?;
    let code_of = |bad: &BadCallbackUrl| match bad {
        BadCallbackUrl::TooLong(_) => code::TOO_LONG,
        _ => code::INVALID_VALUE,
    };
    CallbackUrl::new(&text)
        .map_err(|bad| document.problem("callbackUrl", code_of(&bad), bad.to_string()))
        .ok()
}

fn tasks(document: &mut Document<'_>, list: Tasks) -> Vec<TaskEntry> {
    match list {
        Tasks::Missing => document.missing("tasks"),
        Tasks::Other(kind) => {
            document.problem("tasks", code::INVALID_TYPE, format!("must be a list, not {kind}"));
        }
        Tasks::List { count: 0, .. } => {
            document.problem("tasks", code::EMPTY_TASKS, "is empty: a job has at least one task");
        }
        Tasks::List { count, .. } if count > JOB_TASKS_MAX => {
            let message = format!("has {count} tasks; the limit is {JOB_TASKS_MAX}");
            document.problem("tasks", code::TOO_MANY_TASKS, message);
        }
        Tasks::List { entries, problems, .. } => {
            document.problems.append(problems);
            return entries;
        }
    }
    Vec::new()
}

pub(super) fn entry(task: &mut Document<'_>) -> Option<TaskEntry> {
    if !task.has("taskId") {
        task.missing("taskId");
    }
    let id = task.text("taskId");
    let id = id.and_then(|text| task_id(task, "taskId", &text));
    let work = work(task);
    let mut depends_on = Vec::new();
    // A bare text is the only one.
    let is_one = task.get("dependsOn").is_some_and(Value::is_string);
    let parents = if is_one { task.text("dependsOn").map(|one| vec![one]) } else { task.texts("dependsOn") };
    for (at, text) in parents.unwrap_or_default().into_iter().enumerate() {
        // The place is only spelled out when it is needed: a wide join has very many.
        match TaskId::new(&text) {
            Ok(parent) => depends_on.push(parent),
            Err(bad) => {
                let message = bad.problem.to_string();
                let field = if is_one { "dependsOn".to_owned() } else { format!("dependsOn[{at}]") };
                task.problem(&field, code::INVALID_TASK_ID, message);
            }
        }
    }
    let input = input(task);
    let settings = settings(task, work.as_ref());
    Some(TaskEntry { task_id: id?, work: work?, depends_on, input, settings })
}

fn task_id(task: &mut Document<'_>, field: &str, text: &str) -> Option<TaskId> {
    let id = TaskId::new(text);
    id.map_err(|bad| task.problem(field, code::INVALID_TASK_ID, bad.problem.to_string())).ok()
}

/// What the task does: exactly one of four fields says it.
fn work(task: &mut Document<'_>) -> Option<TaskWork> {
    // Unlike elsewhere a null is not nothing here: it is more likely a value that got lost.
    let given: Vec<_> =
        ["name", "run", "agent", "script"].into_iter().filter(|field| task.mentions(field)).collect();
    if given.len() != 1 {
        let what = if given.is_empty() { "none".to_owned() } else { given.join(" and ") };
        let message =
            format!("is one of name, run, agent and script, and exactly one is needed; given: {what}");
        let at = given.get(1).copied().unwrap_or("name");
        task.problem(at, code::ONE_OF, message);
    }
    for field in ["name", "run", "agent", "script"] {
        if task.mentions(field) && !task.has(field) {
            task.problem(field, code::INVALID_TYPE, "is null");
        }
    }
    let name = task.text("name");
    let name = name.and_then(|text| {
        let name = TaskName::new(text);
        name.map_err(|bad| task.problem("name", code::INVALID_VALUE, bad.problem.to_string())).ok()
    });
    let run = task.run("run");
    let agent =
        task.take("agent").and_then(|value| AgentFields::read_inline(task.path("agent"), value, task));
    let script = task.long_text("script", SCRIPT_BYTES_MAX);
    if given.len() != 1 {
        return None;
    }
    let script = script.map(TaskWork::Script);
    let agent = agent.map(|agent| TaskWork::Agent(Box::new(agent)));
    run.map(TaskWork::Inline).or(agent).or(script).or_else(|| name.map(TaskWork::Named))
}

fn input(task: &mut Document<'_>) -> Json {
    let Some(input) = task.json("input") else { return Json::empty_object() };
    if let Some(problem) = new_input_problem(&input) {
        task.problem("input", code::INVALID_INPUT, problem.to_string());
    }
    input
}

fn settings(task: &mut Document<'_>, work: Option<&TaskWork>) -> TaskSettings {
    for field in ["secrets", "path"].into_iter().filter(|field| task.has(field)).collect::<Vec<_>>() {
        let rule = match work {
            Some(TaskWork::Named(_)) => "is for a task with run or agent; a definition says its own",
            Some(TaskWork::Script(_)) => "is for a task with run or agent; a script sees no variables",
            Some(TaskWork::Inline(_) | TaskWork::Agent(_)) | None => continue,
        };
        task.problem(field, code::INVALID_VALUE, rule);
    }
    let (on_failure, park_timeout) = parking(task);
    TaskSettings {
        timeout: task.span("timeout", TIMEOUT_MILLIS_MIN..=TIMEOUT_MILLIS_MAX),
        idle_timeout: task.span("idleTimeout", TIMEOUT_MILLIS_MIN..=TIMEOUT_MILLIS_MAX),
        retry: retry(task),
        env: task.env("env"),
        secrets: secrets(task),
        path: path(task),
        labels: task.labels("labels"),
        on_failure,
        park_timeout,
    }
}

/// What happens when the task has failed for good, and how long it then waits.
pub(crate) fn parking(task: &mut Document<'_>) -> (Option<OnFailure>, Option<Millis>) {
    let on_failure = match task.text("onFailure").as_deref() {
        None => None,
        Some("fail") => Some(OnFailure::Fail),
        Some("park") => Some(OnFailure::Park),
        Some(_) => {
            task.problem("onFailure", code::INVALID_VALUE, "must be fail or park");
            None
        }
    };
    let park_timeout = task.span("parkTimeout", TIMEOUT_MILLIS_MIN..=PARK_MILLIS_MAX);
    if on_failure == Some(OnFailure::Fail) && park_timeout.is_some() {
        task.problem("parkTimeout", code::INVALID_VALUE, "is for a task with onFailure: park");
    }
    (on_failure, park_timeout)
}

pub(crate) fn retry(task: &mut Document<'_>) -> RetryEntry {
    // A bare number says how often it is tried in all.
    if task.get("retry").is_some_and(Value::is_number) {
        let attempts = task.number("retry", 1..=ATTEMPTS_MAX.into());
        let max_attempts = attempts.and_then(|attempts| u32::try_from(attempts).ok());
        return RetryEntry { max_attempts, ..RetryEntry::default() };
    }
    let Some(value) = task.take("retry") else { return RetryEntry::default() };
    let place = task.path("retry");
    let Some(mut retry) = Document::open(place, value, task.problems) else { return RetryEntry::default() };
    let max_attempts = retry.number("maxAttempts", 1..=ATTEMPTS_MAX.into());
    let entry = RetryEntry {
        max_attempts: max_attempts.and_then(|attempts| u32::try_from(attempts).ok()),
        first_delay: retry.span("firstDelay", 0..=RETRY_DELAY_MILLIS_MAX),
        max_delay: retry.span("maxDelay", 0..=RETRY_DELAY_MILLIS_MAX),
        on_timeout: retry.flag("onTimeout"),
    };
    retry.close("maxAttempts, firstDelay, maxDelay, onTimeout");
    entry
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::agent::{AgentSpec, MicroUsd};
    use crate::execution::Run;
    use crate::span::Millis;

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
