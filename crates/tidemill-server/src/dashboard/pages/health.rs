//! Health: what the last check of running tasks found.

use maud::{Markup, html};
use serde_json::json;

use super::super::form::{Pairs, encode};
use super::super::screen::{Screen, Watch};
use super::super::visit::{Outcome, Sight, Visit};
use super::super::widgets::{button, card, empty, figure, id_link, moment, number, span, state};
use super::Page;
use crate::api::{FindingKindName, FindingView, HealthCheckView, TaskHealthView};
use crate::problem::Problem;

/// How many examples of a finding are shown.
const EXAMPLES_MAX: usize = 5;

pub(super) fn pages() -> Vec<Page> {
    vec![Page::new("/health", show).live().act("/health/check", check)]
}

async fn show(visit: Visit) -> Result<Sight, Problem> {
    let last: Option<HealthCheckView> = visit.api.find("/v1/health-check").await?;
    let head = html! {
        div class="title" {
            h1 { "Health" }
            @if visit.may_submit() {
                div class="actions" { (button(&visit.viewer, "/health/check", "Check now", "primary")) }
            }
        }
    };
    let mut screen = Screen::new("health", "Health").watching(Watch::Tenant).still("head", head);
    let Some(last) = last else {
        let hint = html! { "Checks run by themselves when " code { "HEALTH_CHECK_ENABLED" } " is true, which it is in production." };
        return Ok(screen.live("health", empty("No check was made yet", &hint)).into());
    };
    screen = screen
        .live("verdict", verdict(&last, visit.now))
        .live("figures", figures(&last))
        .live("findings", findings(&last.findings))
        .live(
            "tasks",
            card("Running tasks", &html! { "as the check found them, the worst first" }, &tasks(&last)),
        );
    Ok(screen.into())
}

fn verdict(last: &HealthCheckView, now: u64) -> Markup {
    html! {
        p {
            (state(if last.is_healthy { "healthy" } else { "attention" }))
            " " @if last.is_healthy { "No running task needs a look." } @else { "Something needs a look." }
            " " span class="faint" { "Checked " (moment(now, last.checked_at.millis())) }
        }
    }
}

fn figures(last: &HealthCheckView) -> Markup {
    let of = |name: &str, count: u32, tone: &str| {
        figure(name, &number(u64::from(count)), if count == 0 { "calm" } else { tone }, None)
    };
    html! {
        div class="figures" {
            (of("running", last.summary.total_processing, "calm"))
            (of("healthy", last.summary.healthy, "calm"))
            (of("warning", last.summary.warning, "parked"))
            (of("critical", last.summary.critical, "failed"))
            (of("overtime", last.summary.overtime, "failed"))
        }
    }
}

fn findings(findings: &[FindingView]) -> Markup {
    if findings.is_empty() {
        return html! {};
    }
    let body = html! {
        div class="wrap" {
            table {
                thead { tr { th { "What" } th class="wide" { "Found" } th { "Among them" } } }
                tbody {
                    @for finding in findings {
                        tr {
                            td { strong { (finding.kind.as_str().replace('_', " ")) } }
                            td class="wide" { (finding.message) }
                            td { @for id in finding.examples.iter().take(EXAMPLES_MAX) { (id_link(&address(finding.kind, id), id)) " " } }
                        }
                    }
                }
            }
        }
    };
    card("Stands for too long", &html! {}, &body)
}

/// Where an example of a finding is looked at.
fn address(kind: FindingKindName, id: &str) -> String {
    let id = encode(id);
    match kind {
        FindingKindName::Pending => format!("/tasks/{id}"),
        FindingKindName::Parked => format!("/workflow/{id}"),
        FindingKindName::StalledJobs => format!("/jobs/{id}"),
        FindingKindName::Outbound => "/dead-letters?kind=event".to_owned(),
    }
}

fn tasks(last: &HealthCheckView) -> Markup {
    if last.tasks.is_empty() {
        return empty(
            "Nothing was running",
            &html! { "Tasks that wait for a worker or for somebody are not listed." },
        );
    }
    let total = last.summary.total_processing as usize;
    html! {
        div class="wrap" {
            table {
                thead { tr { th { "Task" } th { "Health" } th class="num" { "Running for" } th class="num less" { "Silent for" } th class="less" { "Last event" } th class="less" { "Worker" } } }
                tbody { @for task in &last.tasks { (row(task)) } }
            }
        }
        @if total > last.tasks.len() {
            p class="faint" { "and " (number((total - last.tasks.len()) as u64)) " more" }
        }
    }
}

fn row(task: &TaskHealthView) -> Markup {
    let id = &task.request_id;
    html! {
        tr {
            td { (id_link(&format!("/tasks/{}", encode(id)), id)) }
            td { (state(task.health.as_str())) }
            td class="num" { (span(task.elapsed)) }
            td class="num less" { (span(task.time_since_last_event)) }
            td class="less" { (task.last_event_type) }
            td class="less" { @match &task.worker_id { Some(worker) => (worker), None => span class="faint" { "–" } } }
        }
    }
}

async fn check(visit: Visit, _: Pairs) -> Result<Outcome, Problem> {
    let found: HealthCheckView = visit.api.post("/v1/health-check", &json!({})).await?;
    let note =
        if found.is_healthy { "Checked: nobody has to look." } else { "Checked: something needs a look." };
    Ok(Outcome::go("/health", note))
}
