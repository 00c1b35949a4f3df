//! Jobs: submit, look, steer.

use std::collections::HashSet;

use axum::http::{Method, StatusCode};
use tidemill_engine::engine::JobFilter;
use tidemill_model::authored::job_file::{AddTasksFile, JobFile};
use tidemill_model::events::access_path::AccessPath;
use tidemill_model::{Entity, EventType, JobId, JobStatus, TaskId, TenantId, Timestamp};

use super::compiling::compile_tasks;
use super::submitting::{check_secrets, idempotency, rights, settings_of};
use crate::api::{
    BudgetView, CancelRequest, Cancelled, EventJson, JobAccepted, JobChecked, JobStatusName, JobSummary,
    JobView, JobsCancelled, JobsFilter, JobsResumed, Page, ResumeRequest, Resumed, TaskRow, TasksAdded,
    TasksChanged,
};
use crate::problem::Problem;
use crate::request::given_job::GivenJob;
use crate::request::param::Kind;
use crate::request::{json_body, list_cursor};
use crate::route::{Call, READ, Reply, Route, SUBMIT, json, page_size};
use crate::views::jobs::{event_page, event_query, job_summary, task_ids, task_row, texts};

/// The tasks that a job is shown with.
const JOB_TASKS_SHOWN_MAX: usize = 1_000;
/// The tasks that a page looks at when it has to pick those in one state.
const TASKS_LOOKED_AT_MAX: u32 = 20_000;
/// The jobs that one call by filter changes when the caller does not say.
const MANY_DEFAULT: u32 = 100;
/// The jobs that one call by filter changes at most.
const MANY_MAX: u32 = 1_000;

const GROUP: &str = "Jobs";

const STATUSES: Kind = Kind::Choice(&["running", "failing", "failed", "completed", "cancelled"]);
const TASK_STATES: Kind = Kind::Choice(&["waiting", "pending", "processing", "completed", "failed"]);
pub(super) const ORDERS: Kind = Kind::Choice(&["asc", "desc"]);

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::POST, "/v1/jobs", SUBMIT, [GROUP, "createJob", "Submit a job"], create)
            .about(
                "The body is a job file. Its job and the start of its root tasks are one commit. Tasks name stored \
                 definitions; commands inside the job need the role admin. Repeating the request with the same \
                 `Idempotency-Key`, or the same `requestId`, and the same content gives the first job again.",
            )
            .header("Idempotency-Key", Kind::Text { most: 256 }, "Kept for at least 24 hours.")
            .reads::<JobFile>()
            .reads_much()
            .example(serde_json::json!({"name": "hello", "tasks": [{"taskId": "hello", "run": ["echo", "hi"]}]}))
            .gives::<JobAccepted>(201, "The job was created.")
            .gives::<JobAccepted>(200, "The same request created this job before.")
            .fails(&[409]),
        Route::new(Method::POST, "/v1/jobs/check", SUBMIT, [GROUP, "checkJob", "Check a job file"], check)
            .about("Says what submitting it would say, and keeps nothing. Limits of what is stored are not looked at.")
            .reads::<JobFile>()
            .reads_much()
            .example(serde_json::json!({"name": "hello", "tasks": [{"taskId": "hello", "run": ["echo", "hi"]}]}))
            .gives::<JobChecked>(200, "It could be submitted.")
            .fails(&[409]),
        Route::new(Method::GET, "/v1/jobs", READ, [GROUP, "listJobs", "List jobs, newest first"], list)
            .query("status", STATUSES, "Only jobs with this status.")
            .query("name", Kind::Text { most: 200 }, "Only jobs with exactly this name.")
            .query("from", Kind::Moment, "Only jobs created at this time or later.")
            .query("to", Kind::Moment, "Only jobs created at this time or before.")
            .paged()
            .gives::<Page<JobSummary>>(200, "A page of jobs, without their tasks."),
        Route::new(Method::POST, "/v1/jobs/retry", SUBMIT, [GROUP, "retryJobs", "Retry many jobs"], retry_many)
            .about(
                "Runs the failed tasks of all matching jobs again; of failed jobs when no status is given. \
                 An empty filter is refused: `all` says that every job is meant.",
            )
            .reads::<JobsFilter>()
            .example(serde_json::json!({"name": "no-such-job", "status": "failed"}))
            .gives::<JobsResumed>(202, "These jobs go on."),
        Route::new(Method::POST, "/v1/jobs/cancel", SUBMIT, [GROUP, "cancelJobs", "Cancel many jobs"], cancel_many)
            .about(
                "Cancels all matching jobs; those that run when no status is given. An empty filter is refused: `all` says \
                 that every job is meant.",
            )
            .reads::<JobsFilter>()
            .example(serde_json::json!({"name": "no-such-job", "status": "running", "reason": "example"}))
            .gives::<JobsCancelled>(202, "These jobs were cancelled."),
        Route::new(Method::GET, "/v1/jobs/{jobId}", READ, [GROUP, "getJob", "Look at a job"], get)
            .about("Shows the first 1,000 tasks; `nextCursor` continues at `/v1/jobs/{jobId}/tasks`.")
            .job_id()
            .gives::<JobView>(200, "The job."),
        Route::new(Method::GET, "/v1/jobs/{jobId}/tasks", READ, [GROUP, "listJobTasks", "List a job's tasks"], tasks)
            .job_id()
            .query("status", TASK_STATES, "Only tasks in this state.")
            .paged()
            .gives::<Page<TaskRow>>(200, "A page of tasks in the order they were handed in."),
        Route::new(Method::POST, "/v1/jobs/{jobId}/tasks", SUBMIT, [GROUP, "addTasks", "Add tasks to a job"], add)
            .about("They may depend on tasks of the job and on each other. Those that wait for nothing start at once.")
            .job_id()
            .reads::<AddTasksFile>()
            .reads_much()
            .gives::<TasksAdded>(201, "The tasks were added.")
            .fails(&[409]),
        Route::new(Method::GET, "/v1/jobs/{jobId}/events", READ, [GROUP, "listJobEvents", "Read a job's events"], events)
            .about("Events of the job itself; its tasks have their own.")
            .job_id()
            .query("type", Kind::Text { most: 128 }, "Only events of this type.")
            .query("order", ORDERS, "By time; `asc` when absent.")
            .paged()
            .gives::<Page<EventJson>>(200, "A page of events."),
        Route::new(Method::PUT, "/v1/jobs/{jobId}/tasks", SUBMIT, [GROUP, "changeTasks", "Change tasks that did not complete"], change)
            .about("Takes all tasks of the job as they are to be. Those that did not complete have this work from their next attempt on, \
                    which `Job Tasks Changed` tells; those that the job does not have are added. Dependencies stay, and no task can be \
                    removed. Nothing runs again by it: resume the job.")
            .job_id()
            .reads::<AddTasksFile>()
            .reads_much()
            .gives::<TasksChanged>(200, "These tasks were changed.")
            .fails(&[403, 409]),
        Route::new(Method::POST, "/v1/jobs/{jobId}/resume", SUBMIT, [GROUP, "resumeJob", "Run failed tasks again"], resume)
            .about("All failed tasks, or those that are named. What is completed stays completed. With `newest` they take the newest \
                    versions of their definitions, which `Job Tasks Changed` tells.")
            .job_id()
            .may_read::<ResumeRequest>()
            .gives::<Resumed>(202, "These tasks run again.")
            .fails(&[409]),
        Route::new(Method::POST, "/v1/jobs/{jobId}/cancel", SUBMIT, [GROUP, "cancelJob", "Cancel a job"], cancel)
            .about("Ends everything active in it. A resume opens it again. Repeating it changes nothing.")
            .job_id()
            .may_read::<CancelRequest>()
            .gives::<Cancelled>(202, "These tasks were ended.")
            .fails(&[409]),
    ]
}

async fn create(mut call: Call) -> Reply {
    let tenant = call.tenant()?;
    let file = match call.given.take() {
        Some(GivenJob(file)) => file,
        None => JobFile::read_text(json_body::sound(&call.body)?)?,
    };
    let (rights, once) = (rights(&call), idempotency(&call, "POST /v1/jobs"));
    call.forget_body();
    check_secrets(&call, &tenant, rights, settings_of(&file.tasks))?;
    compile_tasks(&call, &file.tasks, rights).await?;
    let app = call.app.config().app.clone();
    let job = call.app.engine().submit_job_file(tenant, app, file, rights, once).await?;
    let status = if job.repeated { StatusCode::OK } else { StatusCode::CREATED };
    json(
        status,
        &JobAccepted {
            job_id: job.job.to_string(),
            request_id: job.request.to_string(),
            status: JobStatusName::Running,
            total_tasks: job.total_tasks,
            root_tasks: texts(&job.root_tasks),
            created_at: job.created_at.millis(),
        },
    )
}

async fn check(mut call: Call) -> Reply {
    let tenant = call.tenant()?;
    let file = JobFile::read_text(json_body::sound(&call.body)?)?;
    let rights = rights(&call);
    call.forget_body();
    compile_tasks(&call, &file.tasks, rights).await?;
    let app = call.app.config().app.clone();
    let total_tasks = call.app.engine().check_job_file(tenant, app, file, rights).await?;
    json(StatusCode::OK, &JobChecked { total_tasks })
}

async fn list(call: Call) -> Reply {
    let inputs = &call.inputs;
    let moment = |name: &str, add: u64| inputs.number(name).map(|millis| Timestamp::clamped(millis + add));
    let filter = JobFilter {
        status: inputs.text("status").and_then(JobStatusName::from_name).map(JobStatus::from),
        name: inputs.text("name").map(ToOwned::to_owned),
        created_from: moment("from", 0),
        created_before: moment("to", 1),
    };
    let before = match inputs.text("cursor") {
        Some(cursor) => {
            Some(JobId::new(list_cursor::read("job", cursor)?).map_err(|_| list_cursor::refuse())?)
        }
        None => None,
    };
    let limit = page_size(inputs);
    let mut jobs = call.app.engine().find_jobs(call.tenant()?, &filter, before, limit + 1).await?;
    let more = jobs.len() > limit;
    jobs.truncate(limit);
    let last = jobs.last().filter(|_| more);
    let next_cursor = last.map(|job| list_cursor::write("job", &job.head.job.to_string()));
    json(StatusCode::OK, &Page { items: jobs.iter().map(job_summary).collect(), next_cursor })
}

/// The characters of a name in a filter.
const NAME_CHARS_MAX: usize = 200;

/// A filter from a body. An empty one would hit everything by mistake, so a caller that means everything must say so.
fn read_filter(call: &Call) -> Result<(JobFilter, usize, Option<String>), Problem> {
    let wanted: JobsFilter = json_body::read(&call.body)?;
    let is_narrow = wanted.status.is_some()
        || wanted.name.is_some()
        || wanted.created_after.is_some()
        || wanted.created_before.is_some();
    all_or_some(wanted.all, is_narrow, "status, name, createdAfter or createdBefore")?;
    if wanted.name.as_ref().is_some_and(|name| !(1..=NAME_CHARS_MAX).contains(&name.chars().count())) {
        return Err(Problem::invalid_field("name", format!("must have 1 to {NAME_CHARS_MAX} characters")));
    }
    let moment = |field: &str, given: Option<u64>| {
        given
            .map(|millis| Timestamp::new("moment", millis))
            .transpose()
            .map_err(|error| Problem::invalid_field(field, error.to_string().replacen("moment ", "", 1)))
    };
    let filter = JobFilter {
        status: wanted.status.map(JobStatus::from),
        name: wanted.name,
        created_from: moment("createdAfter", wanted.created_after)?,
        created_before: moment("createdBefore", wanted.created_before)?,
    };
    let limit = wanted.limit.unwrap_or(MANY_DEFAULT);
    if !(1..=MANY_MAX).contains(&limit) {
        return Err(Problem::invalid_field("limit", format!("is {limit}; it must be from 1 to {MANY_MAX}")));
    }
    let limit = usize::try_from(limit).unwrap_or(1);
    Ok((filter, limit, wanted.reason))
}

/// Refuses a call about many that names none: every one of them is meant only if `all` says so.
pub(super) fn all_or_some(all: bool, is_narrow: bool, conditions: &str) -> Result<(), Problem> {
    match (all, is_narrow) {
        (true, true) => Err(Problem::field("ONE_OF", "all", "cannot stand beside conditions")),
        (false, false) => {
            let message = format!("must be true to mean all of them; otherwise give {conditions}");
            Err(Problem::field("ONE_OF", "all", message))
        }
        _ => Ok(()),
    }
}

async fn retry_many(call: Call) -> Reply {
    let (filter, limit, reason) = read_filter(&call)?;
    if reason.is_some() {
        return Err(Problem::field("UNKNOWN_FIELD", "reason", "is not a field of this request"));
    }
    let many = call.app.engine().retry_many(call.tenant()?, filter, limit).await?;
    json(StatusCode::ACCEPTED, &JobsResumed { job_ids: texts(&many.jobs), more: many.more })
}

async fn cancel_many(call: Call) -> Reply {
    let (filter, limit, reason) = read_filter(&call)?;
    let (tenant, by) = (call.tenant()?, call.caller.name());
    let many = call.app.engine().cancel_many(tenant, filter, by, reason.as_deref(), limit).await?;
    json(StatusCode::ACCEPTED, &JobsCancelled { job_ids: texts(&many.jobs), more: many.more })
}

pub(super) fn job_of(call: &Call) -> Result<(TenantId, JobId), Problem> {
    let job = JobId::new(call.inputs.part("jobId"));
    let job = job.map_err(|_| Problem::not_found("job", call.inputs.part("jobId")))?;
    Ok((call.tenant()?, job))
}

async fn get(call: Call) -> Reply {
    let (tenant, job) = job_of(&call)?;
    let engine = call.app.engine();
    let Some(snapshot) = engine.job(tenant.clone(), job).await? else {
        return Err(Problem::not_found("job", &job.to_string()));
    };
    let usage = engine.job_usage(&tenant, job).await?;
    let budget = snapshot.head.allowance.as_deref().map(|allowance| BudgetView::of(allowance, None));
    let details = engine.job_task_details(tenant, job, 0, JOB_TASKS_SHOWN_MAX).await?;
    let shown = u32::try_from(details.len()).unwrap_or(u32::MAX);
    let JobSummary { job_id, request_id, name, app, status, total_tasks, counts, created_at, completed_at } =
        job_summary(&snapshot);
    let next_cursor = (shown < total_tasks).then(|| list_cursor::write("task", &shown.to_string()));
    let tasks = details.into_iter().map(task_row).collect();
    json(
        StatusCode::OK,
        &JobView {
            job_id,
            request_id,
            name,
            app,
            status,
            total_tasks,
            counts,
            usage,
            budget,
            callback_url: snapshot.head.callback.as_deref().map(ToOwned::to_owned),
            tasks,
            next_cursor,
            created_at,
            completed_at,
        },
    )
}

async fn tasks(call: Call) -> Reply {
    let (tenant, job) = job_of(&call)?;
    let engine = call.app.engine();
    let Some(snapshot) = engine.job(tenant.clone(), job).await? else {
        return Err(Problem::not_found("job", &job.to_string()));
    };
    let total = snapshot.head.counts.total();
    let mut from: u32 = match call.inputs.text("cursor") {
        Some(cursor) => list_cursor::read("task", cursor)?.parse().map_err(|_| list_cursor::refuse())?,
        None => 0,
    };
    let status = call.inputs.text("status");
    let limit = page_size(&call.inputs);
    let last = from.saturating_add(TASKS_LOOKED_AT_MAX).min(total);
    let mut items = Vec::new();
    while items.len() < limit && from < last {
        let wanted = limit - items.len();
        let Some(status) = status else {
            let details = engine.job_task_details(tenant, job, from, wanted).await?;
            from = from.saturating_add(u32::try_from(details.len()).unwrap_or(u32::MAX));
            items.extend(details.into_iter().map(task_row));
            break;
        };
        // States are looked at first: what a task did is read only if it is shown.
        for task in engine.job_tasks(tenant.clone(), job, from, LOOK_MAX).await? {
            let state = task.state.map_or("waiting", |state| state.as_str());
            if state == status {
                let detail = engine.job_task_details(tenant.clone(), job, from, 1).await?;
                // It may have moved on since; then it is no longer wanted.
                let still = |row: &TaskRow| row.status.map_or("waiting", |state| state.as_str()) == status;
                items.extend(detail.into_iter().map(task_row).filter(still));
            }
            from += 1;
            if items.len() == limit {
                break;
            }
        }
    }
    let next_cursor = (from < total).then(|| list_cursor::write("task", &from.to_string()));
    json(StatusCode::OK, &Page { items, next_cursor })
}

/// The tasks whose states are looked at in one go.
const LOOK_MAX: usize = 1_000;

async fn add(mut call: Call) -> Reply {
    let (tenant, job) = job_of(&call)?;
    let file = AddTasksFile::read_text(json_body::sound(&call.body)?)?;
    call.forget_body();
    check_secrets(&call, &tenant, rights(&call), settings_of(&file.tasks))?;
    compile_tasks(&call, &file.tasks, rights(&call)).await?;
    let new_tasks: Vec<_> = file.tasks.iter().map(|task| task.task_id.to_string()).collect();
    let all_differ = new_tasks.iter().collect::<HashSet<_>>().len() == new_tasks.len();
    let added =
        call.app.engine().add_tasks_file(tenant, job, file, rights(&call)).await.map_err(|error| {
            let mut problem = Problem::from(error);
            // An id that the job has already is a conflict with what is there; one that comes twice is just wrong.
            if problem.code == "DUPLICATE_TASK_ID" && all_differ {
                problem.status = StatusCode::CONFLICT;
            }
            problem
        })?;
    json(
        StatusCode::CREATED,
        &TasksAdded {
            job_id: job.to_string(),
            new_tasks,
            previous_total_tasks: added.previous_total,
            total_tasks_now: added.total,
            dispatched: texts(&added.dispatched),
        },
    )
}

async fn events(call: Call) -> Reply {
    let (tenant, job) = job_of(&call)?;
    let engine = call.app.engine();
    if engine.job(tenant.clone(), job).await?.is_none() {
        return Err(Problem::not_found("job", &job.to_string()));
    }
    let event_type = call.inputs.text("type").map(EventType::trusted);
    let path = AccessPath::narrowest(event_type, None, Some(Entity::job(job)));
    let page = engine.events(event_query(tenant, path, &call.inputs)?, false).await?;
    json(StatusCode::OK, &event_page(&page))
}

async fn change(mut call: Call) -> Reply {
    let (tenant, job) = job_of(&call)?;
    let file = AddTasksFile::read_text(json_body::sound(&call.body)?)?;
    call.forget_body();
    check_secrets(&call, &tenant, rights(&call), settings_of(&file.tasks))?;
    compile_tasks(&call, &file.tasks, rights(&call)).await?;
    let (engine, rights, by) = (call.app.engine(), rights(&call), call.caller.name());
    let done = engine.change_tasks_file(tenant, job, file, rights, by).await?;
    let ids = |tasks: &[TaskId]| tasks.iter().map(ToString::to_string).collect();
    let (changed, added, kept) = (ids(&done.changed), ids(&done.added), ids(&done.kept));
    json(StatusCode::OK, &TasksChanged { job_id: job.to_string(), changed, added, kept })
}

async fn resume(call: Call) -> Reply {
    let (tenant, job) = job_of(&call)?;
    let request: ResumeRequest = json_body::read_or_default(&call.body)?;
    let mut tasks = None;
    if let Some(names) = request.task_ids {
        let mut ids = Vec::with_capacity(names.len());
        for (at, name) in names.iter().enumerate() {
            let bad = |error: tidemill_model::BadId| {
                Problem::field("INVALID_TASK_ID", format!("taskIds[{at}]"), error.problem.to_string())
            };
            ids.push(TaskId::new(name).map_err(bad)?);
        }
        tasks = Some(ids);
    }
    let engine = call.app.engine();
    let resumed = if request.newest {
        engine.resume_job_newest(tenant, job, tasks, rights(&call), call.caller.name()).await?
    } else {
        engine.resume_job(tenant, job, tasks).await?
    };
    json(StatusCode::ACCEPTED, &Resumed { job_id: job.to_string(), resumed: task_ids(&resumed) })
}

async fn cancel(call: Call) -> Reply {
    let (tenant, job) = job_of(&call)?;
    let request: CancelRequest = json_body::read_or_default(&call.body)?;
    let by = call.caller.name().to_owned();
    let ended = call.app.engine().cancel(tenant, job, by, request.reason).await?;
    json(StatusCode::ACCEPTED, &Cancelled { job_id: job.to_string(), cancelled: task_ids(&ended) })
}
