//! From what the engine knows to what clients see.

use tidemill_engine::backend::{JobSnapshot, TaskSnapshot};
use tidemill_engine::engine::TaskDetail;
use tidemill_model::events::access_path::AccessPath;
use tidemill_model::events::event_query::{self, EventQuery, Order};
use tidemill_model::{Outcome, RequestId, RunnerSpec, TaskHead, Timestamp};

use crate::api::{
    Counts, EventJson, JobSummary, LeaseView, Page, PinnedView, RetryView, TaskRow, TaskSummary, TaskView,
};
use crate::problem::Problem;
use crate::request::param::Inputs;
use crate::route::page_size;

pub(crate) fn job_summary(job: &JobSnapshot) -> JobSummary {
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
        completed_at: head.completed_at.map(Timestamp::millis),
    }
}

pub(crate) fn task_row(detail: TaskDetail) -> TaskRow {
    let execution = execution_of(&detail.task);
    let TaskSnapshot { task, spec, state, head, blocked_by, .. } = detail.task;
    TaskRow {
        task_id: spec.task_id.to_string(),
        request_id: task.request.to_string(),
        name: spec.name.to_string(),
        depends_on: texts(&spec.depends_on),
        status: state.map(Into::into),
        cancelled: head.as_ref().and_then(TaskHead::outcome) == Some(Outcome::Cancelled),
        run: detail.run,
        attempt: detail.attempt,
        started_at: detail.started_at.map(Timestamp::millis),
        finished_at: detail.finished_at.map(Timestamp::millis),
        output: detail.output,
        output_omitted: detail.output_omitted,
        error: detail.error,
        error_category: detail.error_category,
        last_error: detail.last_error.map(Into::into),
        blocked_by: texts(&blocked_by),
        labels: execution.labels,
        retrying: detail.retrying,
        parked: detail.parked,
    }
}

pub(crate) fn task_summary(task: &TaskSnapshot) -> TaskSummary {
    let in_job = task.job.is_some();
    let head = task.head.as_ref();
    TaskSummary {
        request_id: task.task.request.to_string(),
        job_id: task.job.map(|job| job.to_string()),
        task_id: in_job.then(|| task.spec.task_id.to_string()),
        name: task.spec.name.to_string(),
        app: task.app.to_string(),
        status: task.state.map(Into::into),
        run: head.map_or(1, |head| head.run),
        attempt: head.map_or(0, |head| head.attempts + u32::from(head.lease().is_some())),
        parked: head.is_some_and(TaskHead::is_parked),
        error_category: head.and_then(|head| head.last_error),
    }
}

pub(crate) fn task_view(detail: TaskDetail) -> TaskView {
    let execution = execution_of(&detail.task);
    let TaskSnapshot { task, app, job, spec, state, head, blocked_by } = detail.task;
    let outcome = head.as_ref().and_then(TaskHead::outcome);
    let lease = head.as_ref().and_then(TaskHead::lease).map(|lease| LeaseView {
        worker_id: lease.owner.worker.to_string(),
        until: lease.until.millis(),
        claimed_at: lease.claimed_at.millis(),
        heartbeats: lease.heartbeats,
    });
    TaskView {
        request_id: task.request.to_string(),
        job_id: job.map(|job| job.to_string()),
        task_id: job.map(|_| spec.task_id.to_string()),
        name: spec.name.to_string(),
        app: app.to_string(),
        status: state.map(Into::into),
        cancelled: outcome == Some(Outcome::Cancelled),
        timed_out: outcome == Some(Outcome::TimedOut),
        depends_on: texts(&spec.depends_on),
        input: spec.input.clone(),
        run: detail.run,
        attempt: detail.attempt,
        fence: head.as_ref().map_or(0, |head| head.fence.0),
        lease,
        started_at: detail.started_at.map(Timestamp::millis),
        finished_at: detail.finished_at.map(Timestamp::millis),
        duration_ms: detail.duration_ms,
        output: detail.output,
        usage: detail.usage.map(Into::into),
        retrying: detail.retrying,
        parked: detail.parked,
        blocked_by: texts(&blocked_by),
        error: detail.error,
        error_category: detail.error_category,
        last_error: detail.last_error.map(Into::into),
        timeout_ms: spec.options.timeout_ms,
        retry: spec.options.retry.map(|retry| RetryView {
            max_attempts: retry.max_attempts,
            first_delay_ms: retry.first_delay,
            max_delay_ms: retry.max_delay,
            on_timeout: retry.on_timeout,
        }),
        definition: execution
            .definition
            .map(|pinned| PinnedView { name: pinned.name.to_string(), version: pinned.version }),
        labels: execution.labels,
        ran: None,
    }
}

/// What the task says of its execution. A text that a newer release wrote may say nothing to this one.
fn execution_of(task: &TaskSnapshot) -> RunnerSpec {
    let json = task.spec.options.execution.as_ref();
    json.and_then(|json| json.read().ok()).unwrap_or_default()
}

pub(crate) fn texts<T: ToString>(ids: &[T]) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}

/// The names of tasks within their job.
pub(crate) fn task_ids(requests: &[RequestId]) -> Vec<String> {
    requests
        .iter()
        .map(|request| request.parts().map_or(request.as_str(), |(_, task)| task).to_owned())
        .collect()
}

/// The query of a route with `order`, `limit`, `cursor`, and perhaps `from` and `to`.
pub(crate) fn event_query(
    tenant: tidemill_model::TenantId,
    path: AccessPath,
    inputs: &Inputs,
) -> Result<EventQuery, Problem> {
    let moment = |name: &str| {
        inputs.number(name).map(|millis| {
            Timestamp::new("moment", millis)
                .map_err(|error| Problem::invalid_parameter(name, error.to_string()))
        })
    };
    let query = EventQuery {
        from: moment("from").transpose()?,
        to: moment("to").transpose()?,
        order: if inputs.text("order") == Some("desc") { Order::Descending } else { Order::Ascending },
        limit: page_size(inputs),
        ..EventQuery::all(tenant, path)
    };
    match inputs.text("cursor") {
        None => Ok(query),
        Some(cursor) => query.after_cursor(cursor).map_err(|error| {
            Problem::invalid_parameter("cursor", error.to_string().replacen("cursor ", "", 1))
        }),
    }
}

pub(crate) fn event_page(page: &event_query::EventPage) -> Page<EventJson> {
    Page {
        items: page.events.iter().map(EventJson::from).collect(),
        next_cursor: page.next.map(|cursor| cursor.to_string()),
    }
}
