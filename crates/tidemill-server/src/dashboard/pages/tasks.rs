//! All tasks, of jobs and on their own.

use maud::{Markup, html};

use super::super::form::query;
use super::super::screen::{Screen, Watch};
use super::super::visit::{Sight, Visit};
use super::super::widgets::{card, cut, empty, id_link, pager, short_id, state};
use super::Page;
use crate::api::{self, TaskStateName, TaskSummary};
use crate::problem::Problem;

const STATES: [&str; 4] = ["pending", "processing", "completed", "failed"];
/// Which tasks, by whether they belong to a job, in the words of the API and of people.
const KINDS: [(&str, &str); 2] = [("true", "on their own"), ("false", "of jobs")];

pub(super) fn pages() -> Vec<Page> {
    vec![
        Page::new("/tasks", show)
            .filters(&[
                ("state", &STATES),
                ("withoutJob", &["true", "false"]),
                ("name", &[]),
                ("cursor", &[]),
            ])
            .live()
            .large(),
    ]
}

async fn show(visit: Visit) -> Result<Sight, Problem> {
    let given = |name: &str| visit.query.text(name).map(str::trim);
    let filter = Filter {
        state: given("state").filter(|state| STATES.contains(state)),
        alone: given("withoutJob").filter(|alone| KINDS.iter().any(|(own, _)| own == alone)),
        name: given("name"),
    };
    let cursor = given("cursor");
    let asked = filter.query(cursor, Some("50"));
    let tasks: api::Page<TaskSummary> = visit.api.get(&format!("/v1/tasks{asked}")).await?;
    let address = |cursor: Option<&str>| format!("/tasks{}", filter.query(cursor, None));
    let next = tasks.next_cursor.as_deref();
    let list = html! {
        @if tasks.items.is_empty() {
            @if next.is_some() {
                // A page looks at a limited number of events, and may find nothing among them.
                (empty("None among the newest tasks", &html! { "Older ones may be on the next page." }))
            } @else if filter.is_any() {
                (empty("No task is like that", &html! { a href="/tasks" { "Show all tasks" } }))
            } @else {
                (empty("No tasks yet", &html! { a href="/submit" { "Submit a job" } ", or a task on its own with " code { "POST /v1/tasks" } "." }))
            }
        } @else {
            (rows(&tasks.items))
        }
        (pager(cursor.map(|_| address(None)), next.map(|next| address(Some(next)))))
    };
    // A viewer of a later page would lose the place if the list moved.
    let watch = if cursor.is_none() { Watch::Tenant } else { Watch::Nothing };
    let screen = Screen::new("tasks", "Tasks")
        .watching(watch)
        .still("head", html! { h1 { "Tasks" } (filter.form()) })
        .live("list", card("Tasks", &html! { "newest first" }, &list));
    Ok(screen.into())
}

/// Which tasks are shown.
#[derive(Clone, Copy)]
struct Filter<'a> {
    state: Option<&'a str>,
    alone: Option<&'a str>,
    name: Option<&'a str>,
}

impl<'a> Filter<'a> {
    fn is_any(self) -> bool {
        self.state.is_some() || self.alone.is_some() || self.name.is_some()
    }

    fn query(self, cursor: Option<&str>, limit: Option<&str>) -> String {
        query(&[
            ("state", self.state),
            ("withoutJob", self.alone),
            ("name", self.name),
            ("cursor", cursor),
            ("limit", limit),
        ])
    }

    fn form(self) -> Markup {
        let chip = |filter: Filter<'a>, is_current: bool, label: &str| {
            html! { a class="chip" href={ "/tasks" (filter.query(None, None)) } aria-current=[is_current.then_some("true")] { (label) } }
        };
        html! {
            form class="filter" method="get" action="/tasks" role="search" {
                input type="search" name="name" value=[self.name] placeholder="Name of a task" aria-label="Name of a task";
                @if let Some(state) = self.state { input type="hidden" name="state" value=(state); }
                @if let Some(alone) = self.alone { input type="hidden" name="withoutJob" value=(alone); }
                button type="submit" { "Search" }
                nav class="chips" aria-label="State" {
                    (chip(Filter { state: None, ..self }, self.state.is_none(), "any state"))
                    @for own in STATES { (chip(Filter { state: Some(own), ..self }, self.state == Some(own), own)) }
                }
                nav class="chips" aria-label="Kind" {
                    (chip(Filter { alone: None, ..self }, self.alone.is_none(), "all"))
                    @for (own, label) in KINDS { (chip(Filter { alone: Some(own), ..self }, self.alone == Some(own), label)) }
                }
            }
        }
    }
}

fn rows(tasks: &[TaskSummary]) -> Markup {
    html! {
        div class="wrap" {
            table {
                thead { tr { th { "Task" } th { "State" } th { "Job" } th class="less" { "Error" } th class="num less" { "Attempt" } } }
                tbody {
                    @for task in tasks {
                        tr id={ "row-" (task.request_id) } {
                            td class="name" {
                                a href={ "/tasks/" (task.request_id) } { (cut(task.task_id.as_deref().unwrap_or(&task.name), 60)) }
                                @if task.task_id.as_ref().is_some_and(|id| *id != task.name) { span class="faint" { (cut(&task.name, 60)) } }
                                @else if task.job_id.is_none() { (short_id(&task.request_id)) }
                            }
                            td { (state(if task.parked { "parked" } else { task.status.map_or("waiting", TaskStateName::as_str) })) }
                            td { @match &task.job_id { Some(job) => (id_link(&format!("/jobs/{job}"), job)), None => span class="faint" { "on its own" } } }
                            td class="less" { @if let Some(class) = task.error_category { span class="error-text" { (class.as_str()) } } }
                            td class="num less" { (task.attempt) @if task.run > 1 { span class="faint" { " of run " (task.run) } } }
                        }
                    }
                }
            }
        }
    }
}
