//! The tasks of a job: as a list, and on a line of time.

use std::fmt::Write;

use maud::{Markup, html};
use serde::Deserialize;
use tidemill_engine::backend::TaskSnapshot;
use tidemill_model::events::access_path::AccessPath;
use tidemill_model::events::event_query::EventQuery;
use tidemill_model::work::last_error::in_short;
use tidemill_model::{Entity, Event, KnownType};

use super::super::form::{Pairs, query};
use super::super::gantt::{self, Bar, Row};
use super::super::visit::Visit;
use super::super::widgets::{card, cut, empty, exact, maybe_moment, number, pager, span, state, token};
use crate::api::{self, JobSummary, TaskRow};
use crate::problem::Problem;

/// Tasks on the line of time: those that began first.
const TIMELINE_TASKS_MAX: usize = 60;
/// Events of a task that its bars are made of.
const TASK_EVENTS_MAX: usize = 200;

pub(super) const STATES: [&str; 5] = ["waiting", "pending", "processing", "completed", "failed"];

/// Which tasks are listed.
pub(super) struct TaskFilter {
    state: Option<String>,
    cursor: Option<String>,
}

impl TaskFilter {
    pub(super) fn read(query: &Pairs) -> Self {
        Self {
            state: query.text("state").filter(|state| STATES.contains(state)).map(ToOwned::to_owned),
            cursor: query.text("cursor").map(ToOwned::to_owned),
        }
    }
}

pub(super) async fn list(visit: &Visit, job: &JobSummary, filter: &TaskFilter) -> Result<Markup, Problem> {
    let (status, cursor) = (filter.state.as_deref(), filter.cursor.as_deref());
    let asked = query(&[("status", status), ("cursor", cursor), ("limit", Some("50"))]);
    let tasks: api::Page<TaskRow> = visit.api.get(&format!("/v1/jobs/{}/tasks{asked}", job.job_id)).await?;
    let path = format!("/jobs/{}", job.job_id);
    let address = |state: Option<&str>, cursor: Option<&str>| {
        format!("{path}{}#tasks", query(&[("state", state), ("cursor", cursor)]))
    };
    let counts = job.counts;
    let counted = [counts.waiting, counts.pending, counts.processing, counts.completed, counts.failed];
    let chips = html! {
        nav class="chips" aria-label="State" {
            a class="chip" href=(address(None, None)) aria-current=[status.is_none().then_some("true")] { "all" }
            @for (own, count) in STATES.into_iter().zip(counted) {
                @if count > 0 || status == Some(own) {
                    a class="chip" href=(address(Some(own), None)) aria-current=[(status == Some(own)).then_some("true")] {
                        (own) " " (number(u64::from(count)))
                    }
                }
            }
        }
    };
    let may_resume = visit.may_submit() && tasks.items.iter().any(is_failed);
    let table = html! {
        @if tasks.items.is_empty() {
            (empty("No task is in this state", &html! { a href=(address(None, None)) { "Show all tasks" } }))
        } @else {
            (rows(visit.now, &tasks.items, may_resume))
        }
        (pager(cursor.map(|_| address(status, None)), tasks.next_cursor.as_deref().map(|next| address(status, Some(next)))))
    };
    let body = if may_resume {
        html! {
            form method="post" action={ (path) "/resume" } {
                (token(&visit.viewer))
                (table)
                div class="bulk" { span class="faint" { "With selected:" } button type="submit" { "Run again" } }
            }
        }
    } else {
        table
    };
    Ok(card("Tasks", &chips, &body))
}

fn is_failed(task: &TaskRow) -> bool {
    task.status == Some(api::TaskStateName::Failed)
}

fn rows(now: u64, tasks: &[TaskRow], may_check: bool) -> Markup {
    html! {
        div class="wrap" {
            table {
                thead {
                    tr {
                        @if may_check { th class="check" { span class="hidden" { "Check" } } }
                        th { "Task" } th { "State" } th class="wide" { "Result" } th class="num less" { "Attempt" } th class="less" { "Started" } th class="num less" { "Took" }
                    }
                }
                tbody {
                    @for task in tasks {
                        tr {
                            @if may_check {
                                td class="check" {
                                    @if is_failed(task) { input type="checkbox" name="task" value=(task.task_id) aria-label={ "Check " (task.task_id) }; }
                                }
                            }
                            td class="name" { a href={ "/tasks/" (task.request_id) } { (task.task_id) } @if task.name != task.task_id { span class="faint" { (cut(&task.name, 40)) } } }
                            td {
                                (state(if task.parked { "parked" } else { task.status.map_or("waiting", api::TaskStateName::as_str) }))
                                @if task.retrying { " " span class="faint" { "tried again" } }
                            }
                            td class="wide" { (outcome(task)) }
                            td class="num less" { @if task.attempt > 0 { (task.attempt) @if task.run > 1 { span class="faint" { " of run " (task.run) } } } }
                            td class="less" { (maybe_moment(now, task.started_at)) }
                            td class="num less" {
                                @if let (Some(start), Some(end)) = (task.started_at, task.finished_at) { (span(end.saturating_sub(start))) }
                                @else if let Some(start) = task.started_at { span class="faint" { (span(now.saturating_sub(start))) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn outcome(task: &TaskRow) -> Markup {
    html! {
        @if let Some(error) = task.why() { span class="error-text" { (cut(&in_short(error), 90)) } }
        @else if task.output_omitted { span class="faint" { "a large output" } }
        @else if let Some(output) = &task.output { code class="output" { (cut(output.as_str(), 70)) } }
        @else if !task.blocked_by.is_empty() {
            span class="faint" { "waits for " (cut(&task.blocked_by.join(", "), 60)) }
        }
    }
}

/// What the events of an attempt say that its bar needs.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Told {
    worker_id: Option<String>,
    error: Option<String>,
}

/// The bars of one task from its events, oldest first.
pub(super) fn bars(events: &[Event]) -> Vec<Bar> {
    let mut bars: Vec<Bar> = Vec::new();
    for event in events {
        let told: Told = event.properties.read().unwrap_or_default();
        let at = event.timestamp.millis();
        let state = match KnownType::from_name(event.event_type.as_str()) {
            Some(KnownType::TaskProcessingStarted) => {
                if let Some(last) = bars.last_mut().filter(|last| last.to.is_none()) {
                    // A worker that fell silent: the next one began here.
                    (last.to, last.state) = (Some(at), "failed");
                    last.about += ", given up by its worker";
                }
                let about = format!("began {} on {}", exact(at), told.worker_id.unwrap_or_default());
                bars.push(Bar { from: at, to: None, state: "processing", about });
                continue;
            }
            Some(KnownType::TaskProcessingFailed) => "retrying",
            Some(KnownType::TaskCompleted) => "completed",
            Some(KnownType::TaskFailed | KnownType::TaskTimeout) => "failed",
            _ => continue,
        };
        // A task that is given up after its last attempt: that attempt was no retry after all.
        if let Some(last) = bars.last_mut().filter(|last| last.to.is_some() && state == "failed") {
            last.state = state;
        }
        let Some(last) = bars.last_mut().filter(|last| last.to.is_none()) else { continue };
        (last.to, last.state) = (Some(at), state);
        let _ = write!(last.about, ", took {}", span(at.saturating_sub(last.from)));
        if let Some(error) = told.error {
            let _ = write!(last.about, ": {}", error.chars().take(200).collect::<String>());
        }
    }
    bars
}

pub(super) async fn timeline(
    visit: &Visit,
    job: &JobSummary,
    tasks: &[TaskSnapshot],
) -> Result<Markup, Problem> {
    let begun =
        |task: &&TaskSnapshot| task.head.as_ref().is_some_and(|head| head.begun || head.outcome().is_some());
    let mut rows = Vec::new();
    let begun: Vec<_> = tasks.iter().filter(begun).collect();
    for task in begun.iter().take(TIMELINE_TASKS_MAX) {
        let path = AccessPath::Entity(Entity::task(&task.task.request));
        let all = EventQuery::all(task.task.tenant.clone(), path);
        let page = visit.engine().events(EventQuery { limit: TASK_EVENTS_MAX, ..all }, false).await?;
        let mut bars = bars(&page.events);
        if let Some(last) = bars.last_mut().filter(|_| super::job::is_parked(task)) {
            last.state = "failed";
        }
        if !bars.is_empty() {
            let (label, link) = (task.spec.task_id.to_string(), format!("/tasks/{}", task.task.request));
            rows.push(Row { label, link, bars });
        }
    }
    rows.sort_by_key(|row| row.bars.first().map(|bar| bar.from));
    let body = if rows.is_empty() {
        empty(
            "Nothing has run yet",
            &html! { "Attempts show up here once a worker begins: " code { "tidemill worker" } " or " code { "tidemill serve" } " run tasks." },
        )
    } else {
        gantt::render(&rows, visit.now)
    };
    let aside = html! {
        @if begun.len() > TIMELINE_TASKS_MAX { "the first " (TIMELINE_TASKS_MAX) " of " (number(begun.len() as u64)) " tasks that ran, of " (number(u64::from(job.total_tasks))) }
    };
    Ok(card("Timeline", &aside, &body))
}
