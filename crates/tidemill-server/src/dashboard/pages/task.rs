//! One task: attempts, errors, lease, input, output, log, files.

use maud::{Markup, html};
use serde::Deserialize;
use serde_json::json;
use tidemill_model::{Json, RequestId, Run};

use super::super::form::{Pairs, encode};
use super::super::screen::{Screen, Watch};
use super::super::visit::{Outcome, Sight, Visit};
use super::super::widgets::{
    button, bytes, card, confirm, counted, dollars, empty, exact, json as json_block, maybe_moment, moment,
    short_id, span, state,
};
use super::Page;
use crate::api::{self, Artifact, CancelledTask, EventJson, RetriedTask, TaskStateName, TaskView};
use crate::problem::Problem;

/// The end of a log that a page shows.
const LOG_BYTES_MAX: usize = 64 * 1024;

pub(super) fn pages() -> Vec<Page> {
    vec![
        Page::new("/tasks/{requestId}", show)
            .live()
            // Its log may be long.
            .large()
            .act("/tasks/{requestId}/retry", retry)
            .act("/tasks/{requestId}/cancel", cancel),
        Page::new("/tasks/{requestId}/log", log),
        Page::new("/tasks/{requestId}/files/{*path}", file),
    ]
}

fn request_of(visit: &Visit) -> Result<RequestId, Problem> {
    let given = visit.part("requestId");
    RequestId::new(given).map_err(|_| Problem::not_found("task", given))
}

async fn show(visit: Visit) -> Result<Sight, Problem> {
    let request = request_of(&visit)?;
    let path = format!("/v1/tasks/{request}");
    let task: TaskView = visit.api.get(&path).await?;
    let history: api::Page<EventJson> = visit.api.get(&format!("{path}/events?limit=200&order=desc")).await?;
    let files: api::Page<Artifact> = visit.api.get(&format!("{path}/artifacts?limit=100")).await?;
    let log = visit.api.open(&format!("{path}/logs")).await?;
    let log =
        http_body_util::BodyExt::collect(log.into_body()).await.map_err(|error| Problem::internal(&error))?;
    let log = log.to_bytes();
    let events: Vec<Told> = history.items.iter().filter_map(|event| event.0.read().ok()).collect();
    let is_over = matches!(task.status, Some(TaskStateName::Completed | TaskStateName::Failed));
    let title = task.task_id.clone().unwrap_or_else(|| task.request_id.clone());
    let mut screen = Screen::new("jobs", title)
        .watching(Watch::Task(request))
        .live("task", header(&visit, &task))
        .live("facts", facts(&task, visit.now))
        .live("attempts", attempts(&events, task.parked, visit.now))
        .live("trace", super::trace::link(&task.request_id, &files.items));
    let log = log_card(&task.request_id, &log, is_over);
    // A log that is still written is followed by its own stream.
    screen = if is_over { screen.live("log", log) } else { screen.still("log", log) };
    let screen = screen
        .live("ran", what_ran(&task, visit.now))
        .live("output", output(&task))
        .still("input", card("Input", &html! {}, &json_block(&task.input)))
        .live("files", file_list(&task.request_id, &files))
        .live("history", history_of(&events, &history.items, visit.now));
    Ok(screen.into())
}

/// An event as the page needs it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    event_type: String,
    timestamp: u64,
    #[serde(default)]
    properties: Properties,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Properties {
    run: Option<u32>,
    attempt_number: Option<u32>,
    worker_id: Option<String>,
    process_id: Option<u32>,
    error: Option<String>,
    error_category: Option<String>,
    exit_code: Option<i32>,
    duration_ms: Option<u64>,
    signal: Option<String>,
    timeout_ms: Option<u64>,
    source: Option<String>,
    output: Option<Json>,
}

fn header(visit: &Visit, task: &TaskView) -> Markup {
    let path = format!("/tasks/{}", task.request_id);
    let is_failed = task.status == Some(TaskStateName::Failed);
    let is_over = is_failed || task.status == Some(TaskStateName::Completed);
    html! {
        div class="title" {
            div {
                nav class="crumbs" aria-label="Where" {
                    a href="/jobs" { "Jobs" }
                    @if let Some(job) = &task.job_id { " / " a href={ "/jobs/" (job) } { (super::super::widgets::shortened(job)) } }
                }
                h1 {
                    (task.task_id.as_deref().unwrap_or(&task.name)) " "
                    (state(if task.parked { "parked" } else { task.status.map_or("waiting", TaskStateName::as_str) }))
                    @if task.cancelled { " " span class="faint small" { "cancelled" } }
                    @if task.timed_out { " " span class="faint small" { "took too long" } }
                    @if task.retrying { " " span class="faint small" { "will be tried again" } }
                }
                p class="faint" { (short_id(&task.request_id)) " " (task.name) }
                @if task.parked { p { "It failed for good and waits for somebody. " a href=(super::workflow::address(&task.request_id)) { "Why, and until when" } } }
            }
            @if visit.may_submit() {
                div class="actions" {
                    @if is_failed { (button(&visit.viewer, &format!("{path}/retry"), "Run again", "primary")) }
                    @if task.parked && visit.is_admin() { (super::workflow::unpark(visit, &task.request_id, true, true)) }
                    @if task.job_id.is_none() && !is_over && task.status.is_some() {
                        (confirm(&visit.viewer, &format!("{path}/cancel"), "Cancel", "danger", &html! {
                            label for="reason" { "Why? It is kept with the task." }
                            input id="reason" name="reason" maxlength="2000" placeholder="optional";
                            button type="submit" class="danger" { "Cancel this task" }
                        }))
                    }
                }
            }
        }
        @if let Some(error) = task.why() {
            div class="problem" {
                @if let Some(class) = task.last_error.as_ref().map(|last| last.category).or(task.error_category) { strong { (class.as_str()) } " " }
                pre { (error) }
                @if let Some(end) = task.other_error() { p class="faint" { (end) } }
            }
        }
    }
}

fn facts(task: &TaskView, now: u64) -> Markup {
    html! {
        dl class="facts" {
            div { dt { "Run and attempt" } dd { (task.run) " · " (task.attempt) } }
            div { dt { "Started" } dd { (maybe_moment(now, task.started_at)) } }
            div { dt { "Ended" } dd { (maybe_moment(now, task.finished_at)) } }
            @if let Some(took) = task.duration_ms { div { dt { "Took" } dd { (span(took)) } } }
            @if let Some(lease) = &task.lease {
                div { dt { "Worker" } dd { code { (lease.worker_id) } } }
                div { dt { "Lease until" } dd { (moment(now, lease.until)) } }
                div { dt { "Heartbeats" } dd { (lease.heartbeats) } }
            }
            @if let Some(limit) = task.timeout_ms { div { dt { "May take" } dd { (span(limit)) } } }
            @if let Some(retry) = task.retry {
                div { dt { "Attempts" } dd { "up to " (retry.max_attempts) ", " (span(retry.first_delay_ms)) " to " (span(retry.max_delay_ms)) " apart" @if retry.on_timeout { ", also after a timeout" } } }
            }
            @if let Some(definition) = &task.definition {
                div { dt { "Definition" } dd { code { (definition.name) } " version " (definition.version) } }
            }
            @if let Some(usage) = &task.usage {
                div { dt { "Agent" } dd { (dollars(usage.cost_usd.0)) ", " (counted(usage.input_tokens + usage.output_tokens + usage.cache_read_tokens + usage.cache_write_tokens, "token")) } }
            }
            @if !task.depends_on.is_empty() { div { dt { "Depends on" } dd { (super::super::widgets::cut(&task.depends_on.join(", "), 160)) } } }
            @if !task.blocked_by.is_empty() { div { dt { "Waits for" } dd { (super::super::widgets::cut(&task.blocked_by.join(", "), 160)) } } }
            @for (name, value) in &task.labels { div { dt { (name) } dd { (value) } } }
        }
    }
}

/// One attempt, put together from its beginning and its end.
struct Attempt<'a> {
    run: u32,
    began: u64,
    worker: String,
    end: Option<&'a Told>,
    /// No other was left after it.
    is_last: bool,
}

impl Attempt<'_> {
    fn state(&self) -> &'static str {
        match self.end.map(|end| end.event_type.as_str()) {
            None => "processing",
            Some("Task Completed") => "completed",
            Some("Task Processing Failed") if !self.is_last => "retrying",
            Some(_) => "failed",
        }
    }
}

/// The attempts of a task, newest first.
fn attempts(events: &[Told], is_parked: bool, now: u64) -> Markup {
    let mut rows: Vec<Attempt<'_>> = Vec::new();
    for event in events.iter().rev() {
        let properties = &event.properties;
        match event.event_type.as_str() {
            "Task Processing Started" => {
                let process =
                    properties.process_id.map(|pid| format!(" · process {pid}")).unwrap_or_default();
                let worker = format!("{}{process}", properties.worker_id.as_deref().unwrap_or_default());
                let run = properties.run.unwrap_or(1);
                rows.push(Attempt { run, began: event.timestamp, worker, end: None, is_last: false });
            }
            "Task Processing Failed" | "Task Completed" | "Task Failed" | "Task Timeout" => {
                match rows.last_mut() {
                    Some(row) if row.end.is_none() => row.end = Some(event),
                    // After the last attempt the task is given up: that is no attempt of its own.
                    Some(row) if properties.source.as_deref() == Some("dlq") => row.is_last = true,
                    _ => rows.push(Attempt {
                        run: properties.run.unwrap_or(1),
                        began: event.timestamp,
                        worker: String::new(),
                        end: Some(event),
                        is_last: false,
                    }),
                }
            }
            _ => {}
        }
    }
    // A task is parked when no attempt is left.
    if let Some(row) = rows.last_mut().filter(|row| is_parked && row.end.is_some()) {
        row.is_last = true;
    }
    let body = html! {
        @if rows.is_empty() {
            (empty("No attempt yet", &html! { "A worker takes it as soon as what it waits for is done." }))
        } @else {
            div class="wrap" {
                table {
                    thead { tr { th class="num less" { "Run" } th { "Began" } th class="less" { "Worker" } th { "End" } th class="wide" { "Result" } th class="num" { "Took" } } }
                    tbody {
                        @for row in rows.iter().rev() {
                            tr {
                                td class="num less" { (row.run) }
                                td { (moment(now, row.began)) }
                                td class="less" { code { (row.worker) } }
                                td { (state(row.state())) }
                                @match row.end {
                                    Some(end) => {
                                        td class="wide" { (end_of(end)) }
                                        td class="num" { (span(end.properties.duration_ms.unwrap_or(end.timestamp.saturating_sub(row.began)))) }
                                    }
                                    None => {
                                        td class="wide" {}
                                        td class="num" { span class="faint" { (span(now.saturating_sub(row.began))) } }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    };
    card("Attempts", &html! {}, &body)
}

fn end_of(end: &Told) -> Markup {
    let properties = &end.properties;
    html! {
        @if let Some(class) = &properties.error_category { strong { (class) } " " }
        @if let Some(attempt) = properties.attempt_number { span class="faint" { "attempt " (attempt) " " } }
        @if let Some(error) = &properties.error { span class="error-text" { (super::super::widgets::cut(error, 200)) } }
        @else if let Some(limit) = properties.timeout_ms { span class="error-text" { "timed out after " (span(limit)) @if let Some(signal) = &properties.signal { ", " (signal) } } }
        @else if let Some(code) = properties.exit_code { span class="faint" { "exit code " (code) } }
        @else if let Some(output) = &properties.output { code { (super::super::widgets::cut(output.as_str(), 80)) } }
    }
}

fn log_card(request: &str, bytes: &[u8], is_over: bool) -> Markup {
    let start = bytes.len().saturating_sub(LOG_BYTES_MAX);
    let text = String::from_utf8_lossy(&bytes[start..]);
    let follow = (!is_over).then(|| format!("/tasks/{}/log?follow=true", encode(request)));
    let aside = html! { a href={ "/tasks/" (request) "/log" } { "Whole log" } };
    let body = html! {
        @if start > 0 { p class="faint" { "The last 64 KiB." } }
        pre class="log" id="log-text" tabindex="0" role="region" aria-label="Log" data-follow=[follow] { (text) }
        @if text.is_empty() && is_over { p class="faint" { "It printed nothing, or its log is no longer kept." } }
    };
    card("Log", &aside, &body)
}

fn what_ran(task: &TaskView, now: u64) -> Markup {
    let Some(ran) = &task.ran else { return html! {} };
    let body = html! {
        dl class="facts" {
            div { dt { "Worker" } dd { code { (ran.worker_id) } " · process " (ran.process_id) } }
            div { dt { "Began" } dd { (moment(now, ran.started_at)) } }
            @if let Some(directory) = &ran.directory { div { dt { "Directory" } dd { code { (directory) } } } }
        }
        @if ran.changed_since { p class="faint" { "The task was changed since. What it ran then is not known any more." } }
        @match &ran.command {
            Some(Run::Shell(text)) => { h3 { "Command" } pre class="log" tabindex="0" { (text) } }
            Some(Run::Argv(parts)) => { h3 { "Command" } pre class="log" tabindex="0" { @for part in parts.iter().chain(&ran.arguments) { (part) "\n" } } }
            None => {}
        }
        @if let Some(script) = &ran.script { h3 { "Script" } pre class="log" tabindex="0" { (script) } }
        @for prompt in &ran.prompts {
            h3 { "Prompt of step " (prompt.step) @if !prompt.filled { " " span class="faint small" { "values are filled in when it runs" } } }
            pre class="log" tabindex="0" { (prompt.text) }
        }
        @if !ran.variables.is_empty() {
            details {
                summary { "Variables " span class="faint" { (ran.variables.len()) } }
                div class="wrap" {
                    table {
                        thead { tr { th { "Name" } th class="wide" { "Value" } th { "From" } } }
                        tbody {
                            @for variable in &ran.variables {
                                tr {
                                    td { code { (variable.name) } }
                                    td class="wide" {
                                        @match &variable.value {
                                            Some(value) => code { (super::super::widgets::cut(value, 400)) },
                                            None => span class="faint" { "not shown" },
                                        }
                                    }
                                    td { (variable.origin.as_str()) }
                                }
                            }
                        }
                    }
                }
            }
        }
        @for dependency in &ran.dependencies {
            h3 { "Given by " (dependency.task_id) }
            @match &dependency.output {
                Some(output) => (json_block(output)),
                None => p class="faint" { "Its output is too large to be shown here." },
            }
            @if !dependency.artifacts.is_empty() {
                ul { @for file in &dependency.artifacts { li { code { (file.path) } " " span class="faint" { (bytes(file.size_bytes)) } } } }
            }
        }
        @if ran.dependencies_omitted > 0 { p class="faint" { "And by " (ran.dependencies_omitted) " more." } }
    };
    card("What ran", &html! {}, &body)
}

fn output(task: &TaskView) -> Markup {
    html! { @if let Some(output) = &task.output { (card("Output", &html! {}, &json_block(output))) } }
}

fn file_list(request: &str, files: &api::Page<Artifact>) -> Markup {
    if files.items.is_empty() {
        return html! {};
    }
    let body = html! {
        div class="wrap" {
            table {
                tbody {
                    @for file in &files.items {
                        tr {
                            td { a href={ "/tasks/" (request) "/files/" (path_of(&file.path)) } download { (file.path) } }
                            td class="num" { @if let Some(page) = super::trace::address(request, &file.path) { a href=(page) { "Show trace" } } }
                            td class="num" { (bytes(file.size_bytes)) }
                        }
                    }
                }
            }
        }
        @if files.next_cursor.is_some() { p class="faint" { "The first 100; the API lists all." } }
    };
    card("Files", &html! {}, &body)
}

fn path_of(path: &str) -> String {
    path.split('/').map(encode).collect::<Vec<_>>().join("/")
}

fn history_of(told: &[Told], raw: &[EventJson], now: u64) -> Markup {
    let body = html! {
        ol class="events" {
            @for (event, raw) in told.iter().zip(raw) {
                li {
                    details {
                        summary { span class="event-type" { (event.event_type) } " " (moment(now, event.timestamp)) span class="faint small" { (exact(event.timestamp)) } }
                        (json_block(&raw.0))
                    }
                }
            }
        }
    };
    html! { details class="card fold" { summary { h2 { "Events" } span class="faint" { (told.len()) } } (body) } }
}

async fn log(visit: Visit) -> Result<Sight, Problem> {
    let request = request_of(&visit)?;
    let follow = if visit.query.text("follow") == Some("true") { "?follow=true" } else { "" };
    visit.api.open(&format!("/v1/tasks/{request}/logs{follow}")).await.map(Sight::Raw)
}

async fn file(visit: Visit) -> Result<Sight, Problem> {
    let request = request_of(&visit)?;
    let path = path_of(visit.part("path"));
    visit.api.open(&format!("/v1/tasks/{request}/artifacts/{path}")).await.map(Sight::Raw)
}

async fn retry(visit: Visit, _: Pairs) -> Result<Outcome, Problem> {
    let request = request_of(&visit)?;
    let _: RetriedTask = visit.api.post(&format!("/v1/tasks/{request}/retry"), &json!({})).await?;
    Ok(Outcome::go(format!("/tasks/{request}"), "It runs again."))
}

async fn cancel(visit: Visit, form: Pairs) -> Result<Outcome, Problem> {
    let request = request_of(&visit)?;
    let body = json!({"reason": form.text("reason")});
    let _: CancelledTask = visit.api.post(&format!("/v1/tasks/{request}/cancel"), &body).await?;
    Ok(Outcome::go(format!("/tasks/{request}"), "It was cancelled."))
}
