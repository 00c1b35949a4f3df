//! One job: its graph, when it ran, its tasks, and what to do about it.

use maud::{Markup, html};
use serde_json::json;
use tidemill_engine::backend::{JobSnapshot, TaskSnapshot};
use tidemill_model::work::head::TaskState;
use tidemill_model::{JobId, Timestamp, UsageSum};

use super::super::chart::share;
use super::super::form::{Pairs, encode};
use super::super::graph::{Node, STATES, index};
use super::super::graph_svg::{Picture, Task, draw};
use super::super::screen::{Screen, Watch};
use super::super::visit::{Outcome, Sight, Visit};
use super::super::widgets::{
    button, card, confirm, counted, counted_do, dollars, exact, figure, maybe_moment, moment, number,
    short_id, span, state,
};
use super::Page;
use super::job_tasks::{self, TaskFilter};
use crate::api::{
    BudgetView, Cancelled, Counts, JobStatusName, JobSummary, Resumed, TasksAdded, WorkflowExecutionView,
};
use crate::problem::Problem;

/// Tasks that are read at a time.
const TASKS_AT_ONCE: usize = 1_000;
/// Parked tasks that are shown with what can be done about them.
const PARKED_MAX: usize = 20;

pub(super) fn pages() -> Vec<Page> {
    vec![
        Page::new("/jobs/{jobId}", show)
            .filters(&[("state", &job_tasks::STATES), ("cursor", &[])])
            .live()
            .large()
            .act("/jobs/{jobId}/cancel", cancel)
            .act("/jobs/{jobId}/resume", resume)
            .act("/jobs/{jobId}/tasks", add),
    ]
}

fn job_id(visit: &Visit) -> Result<JobId, Problem> {
    let given = visit.part("jobId");
    JobId::new(given).map_err(|_| Problem::not_found("job", given))
}

async fn show(visit: Visit) -> Result<Sight, Problem> {
    let (tenant, job) = (visit.tenant()?, job_id(&visit)?);
    let engine = visit.engine();
    // The same reads as those of the API's route, without the details of a thousand tasks.
    let Some(snapshot) = engine.job(tenant.clone(), job).await? else {
        return Err(Problem::not_found("job", &job.to_string()));
    };
    let usage = engine.job_usage(&tenant, job).await?;
    let mut tasks = Vec::new();
    loop {
        let from = u32::try_from(tasks.len()).unwrap_or(u32::MAX);
        let page = engine.job_tasks(tenant.clone(), job, from, TASKS_AT_ONCE).await?;
        let is_last = page.len() < TASKS_AT_ONCE;
        tasks.extend(page);
        if is_last {
            break;
        }
    }
    let summary = summary(&snapshot);
    let picture = picture(&tasks, &summary.job_id);
    let filter = TaskFilter::read(&visit.query);
    let list = job_tasks::list(&visit, &summary, &filter).await?;
    let timeline = job_tasks::timeline(&visit, &summary, &tasks).await?;
    let budget = snapshot.head.allowance.as_deref().map(|allowance| BudgetView::of(allowance, None));
    let title = summary.name.clone().unwrap_or_else(|| summary.job_id.clone());
    let screen = Screen::new("jobs", title)
        .watching(Watch::Job(job))
        .live("job", header(&visit, &summary))
        .live("figures", figures(&summary, usage.as_ref(), budget.as_ref(), visit.now))
        .marked("graph", card("Graph", &html! {}, &picture.html), picture.shape, picture.marks)
        .live("parked", parked_tasks(&visit, &tasks).await?)
        .live("timeline", timeline)
        .live("tasks", list)
        .still("steer", steer(&visit, &summary));
    Ok(screen.into())
}

fn summary(job: &JobSnapshot) -> JobSummary {
    let head = &job.head;
    JobSummary {
        job_id: head.job.to_string(),
        request_id: head.request.to_string(),
        name: head.name.as_deref().map(ToOwned::to_owned),
        app: head.app.to_string(),
        status: job.status.into(),
        total_tasks: head.counts.total(),
        counts: Counts::from(head.counts),
        created_at: head.created_at.millis(),
        completed_at: head.completed_at.map(tidemill_model::Timestamp::millis),
    }
}

pub(super) fn is_parked(task: &TaskSnapshot) -> bool {
    task.head.as_ref().is_some_and(|head| head.state == TaskState::Parked)
}

/// The place of a task's state among those that are drawn.
fn state_of(task: &TaskSnapshot) -> usize {
    let name = if is_parked(task) { "parked" } else { task.state.map_or("waiting", |state| state.as_str()) };
    STATES.iter().position(|state| *state == name).unwrap_or(3)
}

fn picture(tasks: &[TaskSnapshot], job: &str) -> Picture {
    let places = index(tasks.iter().map(|task| task.spec.task_id.as_str()));
    let drawn: Vec<Task> = tasks
        .iter()
        .map(|task| Task {
            id: task.spec.task_id.to_string(),
            link: format!("/tasks/{}", task.task.request),
            node: Node {
                name: task.spec.name.to_string(),
                parents: task
                    .spec
                    .depends_on
                    .iter()
                    .filter_map(|id| places.get(id.as_str()).copied())
                    .collect(),
                state: state_of(task),
            },
        })
        .collect();
    draw(&drawn, &format!("/jobs/{job}"))
}

fn header(visit: &Visit, job: &JobSummary) -> Markup {
    let counts = job.counts;
    let is_active = matches!(job.status, JobStatusName::Running | JobStatusName::Failing);
    let path = format!("/jobs/{}", job.job_id);
    html! {
        div class="title" {
            div {
                nav class="crumbs" aria-label="Where" { a href="/jobs" { "Jobs" } }
                h1 { (job.name.as_deref().unwrap_or("unnamed job")) " " (state(job.status.as_str())) }
                p class="faint" {
                    (short_id(&job.job_id)) " created " (moment(visit.now, job.created_at)) " for " (job.app)
                }
                @if counts.parked > 0 {
                    p { a href="#parked" { "Waiting for a decision: " (number(u64::from(counts.parked))) " of " (number(u64::from(job.total_tasks))) " tasks" } }
                }
            }
            @if visit.may_submit() {
                div class="actions" {
                    @if counts.failed > 0 || job.status == JobStatusName::Cancelled {
                        (button(&visit.viewer, &format!("{path}/resume"), "Run failed tasks again", "primary"))
                    }
                    @if is_active {
                        (confirm(&visit.viewer, &format!("{path}/cancel"), "Cancel", "danger", &html! {
                            label for="reason" { "Why? It is kept with the job." }
                            input id="reason" name="reason" maxlength="2000" placeholder="optional";
                            button type="submit" class="danger" { "Cancel this job" }
                        }))
                    }
                }
            }
        }
    }
}

fn figures(job: &JobSummary, usage: Option<&UsageSum>, budget: Option<&BudgetView>, now: u64) -> Markup {
    let counts = job.counts;
    let tone = |count: u32, tone: &'static str| if count > 0 { tone } else { "calm" };
    let count = |count: u32| number(u64::from(count));
    let link = |state: &str| format!("/jobs/{}?state={state}#tasks", job.job_id);
    let is_over = !matches!(job.status, JobStatusName::Running | JobStatusName::Failing);
    let took = job.completed_at.unwrap_or(now).saturating_sub(job.created_at);
    html! {
        div class="progress-line" { (super::jobs::progress(job)) }
        div class="figures" {
            (figure("completed", &format!("{}/{}", count(counts.completed), count(job.total_tasks)), "completed", Some(&link("completed"))))
            (figure("processing", &count(counts.processing), tone(counts.processing, "running"), Some(&link("processing"))))
            @if counts.parked > 0 { (figure("of them parked", &count(counts.parked), "parked", Some("#parked"))) }
            (figure("pending", &count(counts.pending), "calm", Some(&link("pending"))))
            (figure("waiting", &count(counts.waiting), "calm", Some(&link("waiting"))))
            (figure("failed", &count(counts.failed), tone(counts.failed, "failed"), Some(&link("failed"))))
            @if job.completed_at.is_some() || !is_over {
                (figure(if is_over { "took" } else { "so far" }, &span(took), "calm", None))
            }
            @if let Some(usage) = usage {
                (figure("by agents", &dollars(usage.cost_micros), "calm", None))
            }
            @if let Some(budget) = budget {
                (budget_figure(budget))
            }
        }
        @if let Some(end) = job.completed_at { p class="faint" { "Completed " (exact(end)) "." } }
    }
}

/// What was spent of a budget, as a figure with a bar.
pub(super) fn budget_figure(budget: &BudgetView) -> Markup {
    let spent = budget.spent;
    let (used, value, limit) = match (budget.usd, budget.tokens) {
        (Some(usd), _) => ((spent.cost_micros, usd.0), dollars(spent.cost_micros), dollars(usd.0)),
        (None, Some(most)) => ((spent.tokens, most), number(spent.tokens), counted(most, "token")),
        (None, None) => return html! {},
    };
    let (tone, bar) = if budget.used_up { ("failed", "failed") } else { ("calm", "processing") };
    let about = format!("{value} of {limit} spent");
    // In thousandths: sums of money are too large to be multiplied.
    let part = u128::from(used.0) * 1_000 / u128::from(used.1.max(1));
    let part = u64::try_from(part).unwrap_or(u64::MAX).min(1_000);
    let parts = [(bar, part), ("waiting", 1_000 - part)];
    html! {
        div class="figure" data-tone=(tone) {
            span class="figure-value" { (value) }
            span class="figure-name" { "of " (limit) " budget" @if budget.used_up { ", used up" } }
            (share(&parts, &about))
        }
    }
}

/// Tasks that wait for somebody, with what can be done about each.
async fn parked_tasks(visit: &Visit, tasks: &[TaskSnapshot]) -> Result<Markup, Problem> {
    let parked: Vec<&TaskSnapshot> = tasks.iter().filter(|task| is_parked(task)).collect();
    let mut rows = Vec::new();
    for task in parked.iter().take(PARKED_MAX) {
        let path = format!("/v1/workflow/executions/{}", encode(task.task.request.as_str()));
        let found: Option<WorkflowExecutionView> = visit.api.find(&path).await?;
        rows.extend(found.map(|found| (task.spec.task_id.to_string(), found)));
    }
    let time = |at: Option<Timestamp>| maybe_moment(visit.now, at.map(Timestamp::millis));
    let body = html! {
        ul class="waiting" {
            @for (name, found) in &rows {
                @let request = found.execution_id.as_str();
                li {
                    div {
                        a href={ "/tasks/" (encode(request)) } { strong { (name) } } " " (super::parked::codes(found))
                        span class="faint small" { "since " (time(found.parked_at)) ", expires " (time(found.deadline)) }
                    }
                    @if visit.is_admin() { div class="actions" { (super::workflow::unpark(visit, request, true, true)) } }
                }
            }
        }
    };
    let aside = html! { (parked.len()) " wait" @if parked.len() > rows.len() { "; " a href="/parked" { "all of them" } } };
    Ok(html! { @if !rows.is_empty() { (card("Parked", &aside, &body)) } })
}

const SAMPLE: &str =
    "{\n  \"tasks\": [\n    { \"taskId\": \"extra\", \"name\": \"\", \"dependsOn\": [] }\n  ]\n}";

fn steer(visit: &Visit, job: &JobSummary) -> Markup {
    if !visit.may_submit() || job.status == JobStatusName::Cancelled || job.status == JobStatusName::Completed
    {
        return html! {};
    }
    html! {
        details class="card fold" {
            summary { h2 { "Add tasks" } }
            form method="post" action={ "/jobs/" (job.job_id) "/tasks" } class="stack" {
                (super::super::widgets::token(&visit.viewer))
                label for="tasks-json" { "Tasks as JSON. They may depend on tasks of this job and on each other; " code { "name" } " is a task definition." }
                textarea id="tasks-json" name="tasks" rows="8" class="code" spellcheck="false" required { (SAMPLE) }
                div { button type="submit" class="primary" { "Add" } }
            }
        }
    }
}

async fn cancel(visit: Visit, form: Pairs) -> Result<Outcome, Problem> {
    let job = job_id(&visit)?;
    let path = format!("/v1/jobs/{job}/cancel");
    let done: Cancelled = visit.api.post(&path, &json!({"reason": form.text("reason")})).await?;
    Ok(Outcome::go(
        format!("/jobs/{job}"),
        format!("Cancelled; {} ended.", counted_do(done.cancelled.len() as u64, "task", "was", "were")),
    ))
}

async fn resume(visit: Visit, form: Pairs) -> Result<Outcome, Problem> {
    let job = job_id(&visit)?;
    let ids: Vec<&str> = form.all("task").collect();
    let body = if ids.is_empty() { json!({}) } else { json!({"taskIds": ids}) };
    let done: Resumed = visit.api.post(&format!("/v1/jobs/{job}/resume"), &body).await?;
    Ok(Outcome::go(
        format!("/jobs/{job}"),
        format!("{} again.", counted_do(done.resumed.len() as u64, "task", "runs", "run")),
    ))
}

async fn add(visit: Visit, form: Pairs) -> Result<Outcome, Problem> {
    let job = job_id(&visit)?;
    let text = form.text("tasks").unwrap_or_default();
    let body: serde_json::Value = serde_json::from_str(text)
        .map_err(|error| Problem::invalid_field("tasks", format!("is no JSON: {error}")))?;
    let done: TasksAdded = visit.api.post(&format!("/v1/jobs/{job}/tasks"), &body).await?;
    let note = format!(
        "{} added; {} can start.",
        counted_do(done.new_tasks.len() as u64, "task", "was", "were"),
        done.dispatched.len()
    );
    Ok(Outcome::go(format!("/jobs/{job}"), note))
}
