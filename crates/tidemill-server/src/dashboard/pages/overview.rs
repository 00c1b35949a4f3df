//! The first page: does it run, what failed, what waits.

use maud::{Markup, html};
use tidemill_engine::backend::Backend;
use tidemill_engine::commit::TaskKey;
use tidemill_engine::engine::EngineError;
use tidemill_engine::health::Hold;
use tidemill_model::JobStatus;

use super::super::chart::Bars;
use super::super::pulse::{MINUTES, Minute, Pulse};
use super::super::screen::{Screen, Watch};
use super::super::visit::{Sight, Visit};
use super::super::widgets::{card, empty, exact, figure, moment, number, short_id, state, with_short_ids};
use super::Page;
use super::jobs::job_rows;
use crate::api::{
    self, AlertKindName, AlertView, DeadLetterView, ErrorGroupView, JobSummary, QueueView, TaskSummary,
    WorkflowExecutionView,
};
use crate::problem::Problem;
use crate::views::jobs::task_summary;

/// Running tasks that are shown.
const RUNNING_MAX: usize = 8;
/// Live tasks that are looked at in one go.
const LIVE_AT_ONCE: usize = 1_000;

pub(super) fn pages() -> Vec<Page> {
    vec![Page::new("/", show).live()]
}

async fn show(visit: Visit) -> Result<Sight, Problem> {
    let pulse = visit.dashboard.pulses.look(&visit.dashboard.app, &visit.tenant()?).await;
    let recent: api::Page<JobSummary> = visit.api.get("/v1/jobs?limit=8").await?;
    let running = running_now(&visit).await?;
    let mut dead = Vec::new();
    for kind in ["task", "script", "event"] {
        let asked = format!("/v1/dead-letters?kind={kind}&state=open&limit=100");
        let letters: api::Page<DeadLetterView> = visit.api.get(&asked).await?;
        dead.push((kind, letters.items.len() as u64, letters.next_cursor.is_some()));
    }
    let open: api::Page<ErrorGroupView> = visit.api.get("/v1/workflow/errors?state=open&limit=100").await?;
    let parked: api::Page<WorkflowExecutionView> =
        visit.api.get("/v1/workflow/executions?parked=true&limit=100").await?;
    let alerts: api::Page<AlertView> = visit.api.get("/v1/alerts").await?;
    // Only an operator, who looks after all tenants, sees how full the queue is over all of them.
    let queue: Option<QueueView> =
        if visit.viewer.caller.is_operator() { Some(visit.api.get("/v1/queues/tasks").await?) } else { None };
    let kind = dead.iter().find(|(_, count, _)| *count > 0).map_or("task", |(kind, ..)| *kind);
    let found = Found {
        dead: (dead.iter().map(|(_, count, _)| count).sum(), dead.iter().any(|(.., more)| *more)),
        dead_letters: format!("/dead-letters?kind={kind}"),
        errors: (open.items.iter().map(|group| group.counts.open).sum(), open.next_cursor.is_some()),
        parked: (parked.items.len() as u64, parked.next_cursor.is_some()),
    };
    let screen = Screen::new("overview", "Overview")
        .watching(Watch::Tenant)
        .partial(!pulse.is_read || pulse.is_behind)
        .with_letters()
        .still("head", html! { h1 { "Overview" } })
        .live("alerts", alert_list(&alerts.items, visit.now))
        .live("figures", figures(&pulse, queue.as_ref(), &found))
        .live("throughput", throughput(&pulse, visit.now))
        .live("recent", recent_jobs(&visit, &recent))
        .live("running", running_tasks(&running));
    Ok(screen.into())
}

/// Tasks that a worker has right now, some of them if they are many. What is live is looked through in pages, so that
/// nothing else waits for long.
async fn running_now(visit: &Visit) -> Result<Vec<TaskSummary>, Problem> {
    let (engine, tenant) = (visit.engine(), visit.tenant()?);
    let mut running = Vec::new();
    let mut after = None;
    loop {
        let live =
            engine.backend().look(|state| state.live_tasks(&tenant, after.as_ref(), LIVE_AT_ONCE)).await;
        let live = live.map_err(EngineError::from)?;
        for task in live.iter().filter(|task| task.begun && matches!(task.hold, Hold::Worker { .. })) {
            let key = TaskKey { tenant: tenant.clone(), request: task.request.clone() };
            running.extend(engine.task(key).await?.map(|task| task_summary(&task)));
            if running.len() == RUNNING_MAX {
                return Ok(running);
            }
        }
        if live.len() < LIVE_AT_ONCE {
            return Ok(running);
        }
        after = live.last().map(|task| task.request.clone());
        tokio::task::yield_now().await;
    }
}

fn alert_list(alerts: &[AlertView], now: u64) -> Markup {
    html! {
        @for alert in alerts {
            div class="alert" role="alert" {
                strong { (with_short_ids(&alert.message)) } " " (moment(now, alert.raised_at.millis()))
                @if alert.kind == AlertKindName::TaskHealth { " " a href="/health" { "The last check" } }
            }
        }
    }
}

/// What was found of things that may be too many to count: how many at least, and whether there are more.
struct Found {
    dead: (u64, bool),
    /// Where some of them are.
    dead_letters: String,
    errors: (u64, bool),
    parked: (u64, bool),
}

fn figures(pulse: &Pulse, queue: Option<&QueueView>, found: &Found) -> Markup {
    let counted = |count: u64| if pulse.is_counted { number(count) } else { "…".to_owned() };
    let sum = |of: fn(&tidemill_model::JobCounts) -> u32| {
        pulse.open.values().map(|(_, counts)| u64::from(of(counts))).sum::<u64>()
    };
    let (failed, failing) = (pulse.count(JobStatus::Failed), pulse.count(JobStatus::Failing));
    let tone = |count: u64, tone: &'static str| if count > 0 { tone } else { "calm" };
    html! {
        div class="figures" {
            (figure("jobs running", &counted(pulse.count(JobStatus::Running)), "running", Some("/jobs?status=running")))
            (figure("jobs failed", &counted(failed), tone(failed, "failed"), Some("/jobs?status=failed")))
            @if failing > 0 { (figure("jobs failing", &counted(failing), "failed", Some("/jobs?status=failing"))) }
            (figure("tasks processing", &counted(sum(|counts| counts.processing) + pulse.loose.processing), "running", None))
            (figure("tasks pending", &counted(sum(|counts| counts.pending) + pulse.loose.pending), "calm", None))
            (figure("tasks waiting", &counted(sum(|counts| counts.waiting)), "calm", None))
            @if let Some(queue) = queue {
                (figure("messages queued", &number(queue.messages), "calm", None))
            }
            @for (name, (count, more), own, link) in [
                ("open errors", found.errors, "failed", "/errors"),
                ("parked", found.parked, "parked", "/parked"),
                ("dead letters", found.dead, "failed", &*found.dead_letters),
            ] {
                (figure(name, &format!("{}{}", number(count), if more { "+" } else { "" }), tone(count, own), Some(link)))
            }
        }
    }
}

fn throughput(pulse: &Pulse, now: u64) -> Markup {
    let last = now / 60_000;
    let bars: Vec<(Vec<u64>, String)> = (last + 1 - MINUTES..=last)
        .map(|minute| {
            let Minute { completed, failed } = pulse.minutes.get(&minute).copied().unwrap_or_default();
            let at = exact(minute * 60_000);
            let tip =
                format!("{}: {completed} completed, {failed} failed", at.get(11..16).unwrap_or_default());
            (vec![completed, failed], tip)
        })
        .collect();
    let sum = |of: fn(&Minute) -> u64| pulse.minutes.values().map(of).sum::<u64>();
    let (completed, failed) = (sum(|minute| minute.completed), sum(|minute| minute.failed));
    let about = format!("Finished tasks per minute in the last hour: {completed} completed, {failed} failed");
    let chart =
        Bars { about: &about, tones: &["completed", "failed"], columns: &bars, ends: ["1 h ago", "now"] };
    let aside = html! {
        @if !pulse.is_read { span { "still counting" } }
        span class="state" data-state="completed" { (number(completed)) " completed" }
        span class="state" data-state="failed" { (number(failed)) " failed" }
    };
    card("Finished tasks per minute", &aside, &chart.render())
}

fn recent_jobs(visit: &Visit, jobs: &api::Page<JobSummary>) -> Markup {
    let aside = html! { a href="/jobs" { "All jobs" } };
    let body = if jobs.items.is_empty() {
        let hint =
            html! { "Submit one: " code { "tidemill submit job.yaml" } ", or " code { "POST /v1/jobs" } "." };
        empty("No jobs yet", &hint)
    } else {
        job_rows(visit.now, &jobs.items, false)
    };
    card("Newest jobs", &aside, &body)
}

fn running_tasks(tasks: &[TaskSummary]) -> Markup {
    let body = if tasks.is_empty() {
        empty("Nothing runs right now", &html! { "Tasks show up here while a worker has them." })
    } else {
        html! {
            div class="wrap" {
                table {
                    thead { tr { th { "Task" } th { "State" } th { "Job" } th class="num" { "Attempt" } } }
                    tbody {
                        @for task in tasks {
                            tr {
                                td { a href={ "/tasks/" (task.request_id) } { (task.task_id.as_deref().unwrap_or(&task.name)) } }
                                td { (state(task.status.map_or("waiting", api::TaskStateName::as_str))) }
                                td { @if let Some(job) = &task.job_id { a href={ "/jobs/" (job) } { (super::super::widgets::shortened(job)) } } @else { (short_id(&task.request_id)) } }
                                td class="num" { (task.attempt) }
                            }
                        }
                    }
                }
            }
        }
    };
    card("Running now", &html! {}, &body)
}
