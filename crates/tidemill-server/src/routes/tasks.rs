//! Tasks: submit one on its own, look at any, steer.

use axum::http::{Method, StatusCode};
use tidemill_engine::commit::TaskKey;
use tidemill_engine::engine::EngineError;
use tidemill_engine::reply::Refusal;
use tidemill_model::authored::job_file::TaskFile;
use tidemill_model::events::access_path::AccessPath;
use tidemill_model::{Entity, EventType, RequestId};

use super::compiling::compile_work;
use super::jobs::ORDERS;
use super::submitting::{check_secrets, idempotency, rights};
use super::task_list;
use crate::api::{
    CancelRequest, CancelledTask, EventJson, Page, RanView, RetriedTask, RetryRequest, TaskAccepted,
    TaskStateName, TaskSummary, TaskView,
};
use crate::problem::Problem;
use crate::request::json_body;
use crate::request::param::Kind;
use crate::route::{Call, READ, Reply, Route, SUBMIT, json};
use crate::views::View;
use crate::views::jobs::{event_page, event_query, task_view};

pub(super) const GROUP: &str = "Tasks";

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::POST, "/v1/tasks", SUBMIT, [GROUP, "createTask", "Submit a task"], create)
            .about(
                "A task without a job. Repeating the request with the same `Idempotency-Key`, or the same `requestId`, \
                 and the same content gives the first task again.",
            )
            .header("Idempotency-Key", Kind::Text { most: 256 }, "Kept for at least 24 hours.")
            .reads::<TaskFile>()
            .reads_much()
            .gives::<TaskAccepted>(202, "The task was taken.")
            .gives::<TaskAccepted>(200, "The same request made this task before.")
            .fails(&[409]),
        Route::new(Method::GET, "/v1/tasks", READ, [GROUP, "listTasks", "List tasks, newest first"], task_list::list)
            .about("Tasks of jobs and tasks on their own, once they were dispatched. Without a state, all of them. A page may have few \
                 tasks, or none, although there is a next one.")
            .query(
                "state",
                Kind::Choice(&["pending", "processing", "completed", "failed"]),
                "Only tasks in this state, by when they came into it.",
            )
            .query("name", Kind::Text { most: 200 }, "Only tasks with exactly this name.")
            .query("withoutJob", Kind::Flag, "Only tasks on their own (`true`) or only tasks of jobs (`false`).")
            .paged()
            .gives::<Page<TaskSummary>>(200, "A page of tasks."),
        Route::new(Method::GET, "/v1/tasks/{requestId}", READ, [GROUP, "getTask", "Look at a task"], get)
            .request_id()
            .gives::<TaskView>(200, "The task, with its whole output."),
        Route::new(Method::GET, "/v1/tasks/{requestId}/events", READ, [GROUP, "listTaskEvents", "Read a task's events"], events)
            .about("Its history: every attempt, error and heartbeat.")
            .request_id()
            .query("type", Kind::Text { most: 128 }, "Only events of this type.")
            .query("order", ORDERS, "By time; `asc` when absent.")
            .paged()
            .gives::<Page<EventJson>>(200, "A page of events."),
        Route::new(Method::POST, "/v1/tasks/{requestId}/retry", SUBMIT, [GROUP, "retryTask", "Run a failed task again"], retry)
            .request_id()
            .may_read::<RetryRequest>()
            .gives::<RetriedTask>(202, "It runs again.")
            .fails(&[409]),
        Route::new(Method::POST, "/v1/tasks/{requestId}/cancel", SUBMIT, [GROUP, "cancelTask", "Cancel a task without a job"], cancel)
            .about("A task of a job ends with its job.")
            .request_id()
            .may_read::<CancelRequest>()
            .gives::<CancelledTask>(202, "It was ended.")
            .fails(&[409]),
    ]
}

pub(super) fn key_of(call: &Call) -> Result<TaskKey, Problem> {
    let given = call.inputs.part("requestId");
    let request = RequestId::new(given).map_err(|_| Problem::not_found("task", given))?;
    Ok(TaskKey { tenant: call.tenant()?, request })
}

async fn create(mut call: Call) -> Reply {
    let tenant = call.tenant()?;
    let file = TaskFile::read_text(json_body::sound(&call.body)?)?;
    let (rights, once) = (rights(&call), idempotency(&call, "POST /v1/tasks"));
    call.forget_body();
    check_secrets(&call, &tenant, rights, std::iter::once((String::new(), &file.settings)))?;
    let name = file.request_id.as_ref().map_or("script", |id| id.as_str());
    compile_work(&call, "script", name, &file.work, rights).await?;
    let app = call.app.config().app.clone();
    let task = call.app.engine().submit_task_file(tenant, app, file, rights, once).await?;
    let status = if task.repeated { StatusCode::OK } else { StatusCode::ACCEPTED };
    json(status, &TaskAccepted { request_id: task.request.to_string(), status: TaskStateName::Pending })
}

async fn get(call: Call) -> Reply {
    let key = key_of(&call)?;
    let engine = call.app.engine();
    let Some(detail) = engine.task_detail(key.clone()).await? else {
        return Err(Problem::not_found("task", key.request.as_str()));
    };
    let ran = engine.ran(&detail.task).await?.map(RanView::of);
    json(StatusCode::OK, &TaskView { ran, ..task_view(detail) })
}

async fn events(call: Call) -> Reply {
    let TaskKey { tenant, request } = key_of(&call)?;
    let engine = call.app.engine();
    let event_type = call.inputs.text("type").map(EventType::trusted);
    let path = AccessPath::narrowest(event_type, None, Some(Entity::task(&request)));
    let page = engine.events(event_query(tenant.clone(), path, &call.inputs)?, false).await?;
    if page.events.is_empty() && engine.task(TaskKey { tenant, request: request.clone() }).await?.is_none() {
        return Err(Problem::not_found("task", request.as_str()));
    }
    json(StatusCode::OK, &event_page(&page))
}

async fn retry(call: Call) -> Reply {
    let TaskKey { tenant, request } = key_of(&call)?;
    let wanted: RetryRequest = json_body::read_or_default(&call.body)?;
    let engine = call.app.engine();
    let resumed = if wanted.newest {
        engine.resume_task_newest(tenant, request.clone(), rights(&call), call.caller.name()).await
    } else {
        engine.resume_task(tenant, request.clone()).await
    };
    match resumed {
        Ok(()) => {}
        Err(EngineError::Refused(refusal @ Refusal::NotResumable(_))) => {
            return Err(Problem::conflict("NOT_FAILED", refusal.to_string()));
        }
        Err(error) => return Err(error.into()),
    }
    let status = TaskStateName::Pending;
    json(StatusCode::ACCEPTED, &RetriedTask { request_id: request.to_string(), status })
}

async fn cancel(call: Call) -> Reply {
    let TaskKey { tenant, request } = key_of(&call)?;
    let wanted: CancelRequest = json_body::read_or_default(&call.body)?;
    let by = call.caller.name().to_owned();
    let cancelled = call.app.engine().cancel_task(tenant, request.clone(), by, wanted.reason).await?;
    json(StatusCode::ACCEPTED, &CancelledTask { request_id: request.to_string(), cancelled })
}
