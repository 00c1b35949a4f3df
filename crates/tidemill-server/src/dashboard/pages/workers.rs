//! Workers: which ones there are, and what runs on them.

use maud::{Markup, html};
use tidemill_engine::metrics::WORKER_SEEN;

use super::super::form::query;
use super::super::screen::{Screen, Watch};
use super::super::visit::{Sight, Visit};
use super::super::widgets::{card, cut, empty, id, moment, number, pager, state};
use super::Page;
use crate::api::{self, WorkerPlaceName, WorkerView};
use crate::problem::Problem;

/// The characters of a worker's name that a table shows.
const NAME_CHARS_MAX: usize = 40;

pub(super) fn pages() -> Vec<Page> {
    vec![Page::new("/workers", show).live().large()]
}

async fn show(visit: Visit) -> Result<Sight, Problem> {
    let cursor = visit.query.text("cursor");
    let asked = query(&[("cursor", cursor), ("limit", Some("50"))]);
    let workers: api::Page<WorkerView> = visit.api.get(&format!("/v1/workers{asked}")).await?;
    let address = |cursor: Option<&str>| format!("/workers{}", query(&[("cursor", cursor)]));
    let body = html! {
        @if workers.items.is_empty() {
            (empty("No worker was heard of", &html! { "Tasks run once there is one: " code { "tidemill serve" } " has one itself, and " code { "tidemill worker --server URL" } " is one elsewhere." }))
        } @else {
            (rows(&workers.items, visit.now))
        }
        (pager(cursor.map(|_| address(None)), workers.next_cursor.as_deref().map(|next| address(Some(next)))))
    };
    let aside = html! { "heard of in the last hour" };
    let screen = Screen::new("workers", "Workers")
        .watching(Watch::Tenant)
        .still("head", html! { h1 { "Workers" } })
        .live("list", card("Workers", &aside, &body));
    Ok(screen.into())
}

/// Whether a worker is there: idle ones ask for work more often than this.
fn presence(worker: &WorkerView, now: u64) -> &'static str {
    let silent = u128::from(now.saturating_sub(worker.last_seen_at));
    if silent <= WORKER_SEEN.as_millis() { "present" } else { "silent" }
}

fn rows(workers: &[WorkerView], now: u64) -> Markup {
    html! {
        div class="wrap" {
            table {
                thead { tr { th { "Worker" } th class="less" { "State" } th { "Last seen" } th class="num" { "Slots" } th class="wide" { "Running now" } } }
                tbody {
                    @for worker in workers {
                        tr {
                            td class="name" {
                                (id(&worker.worker_id, &shown(&worker.worker_id)))
                                span class="faint" { @match worker.place { WorkerPlaceName::Server => "in this server", WorkerPlaceName::Remote => "on its own" } }
                            }
                            td class="less" { (state(presence(worker, now))) }
                            td { (moment(now, worker.last_seen_at)) }
                            td class="num" {
                                (number(u64::from(worker.running)))
                                @if let Some(slots) = worker.slots { " of " (number(u64::from(slots))) }
                            }
                            td class="wide" { (tasks_of(worker, now)) }
                        }
                    }
                }
            }
        }
    }
}

fn shown(name: &str) -> String {
    if name.chars().count() <= NAME_CHARS_MAX {
        return name.to_owned();
    }
    let start: String = name.chars().take(NAME_CHARS_MAX).collect();
    format!("{start}…")
}

fn tasks_of(worker: &WorkerView, now: u64) -> Markup {
    let told = u32::try_from(worker.tasks.len()).unwrap_or(u32::MAX);
    html! {
        @if worker.tasks.is_empty() { span class="faint" { "nothing of this tenant" } }
        @else {
            ul class="plain-list" {
                @for task in &worker.tasks {
                    li {
                        a href={ "/tasks/" (task.request_id) } { (cut(task.task_id.as_deref().unwrap_or(&task.name), 40)) }
                        " " span class="faint small" { "since " (moment(now, task.since)) }
                    }
                }
                @if worker.running > told { li class="faint" { "and " (number(u64::from(worker.running - told))) " more" } }
            }
        }
    }
}
