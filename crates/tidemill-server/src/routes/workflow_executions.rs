//! Executions of workflows: list, look, and let a parked one go on or end.

use std::sync::Arc;

use axum::http::{Method, StatusCode};
use serde_json::json as value;
use tidemill_engine::engine::{BulkAction, TriageFilter, UnparkRequest};
use tidemill_engine::triage::BulkFilter;
use tidemill_model::workflow::{WorkflowRunId, WorkflowStatus};
use tidemill_model::{Json, TenantId, Timestamp};

use super::workflow::{CODE, GROUP};
use super::workflow_errors::{EXECUTION, PLACE, TYPE, checked_reason, code_in, type_of};
use crate::api::{
    ErrorView, FailExecutionRequest, Page, ResumeExecutionRequest, ResumeMode, WorkflowExecutionView,
};
use crate::problem::Problem;
use crate::request::param::Kind;
use crate::request::{json_body, list_cursor};
use crate::route::{ADMIN, Call, READ, Reply, Route, json, page_size};
use crate::views::View;

const STATUS: Kind = Kind::Choice(&["SCHEDULED", "IN_PROGRESS", "SUCCEEDED", "FAILED"]);
/// The bounds of Step Functions, so that a failure means the same there.
const ERROR_BYTES_MAX: usize = 256;
const CAUSE_BYTES_MAX: usize = 32_768;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(
            Method::GET,
            "/v1/workflow/executions",
            READ,
            [GROUP, "listWorkflowExecutions", "List executions of workflows"],
            list,
        )
        .about("With `parked=true` those that wait, oldest first; otherwise by id.")
        .query("parked", Kind::Flag, "Only those that wait, or only those that do not.")
        .query("status", STATUS, "Only those whose newest status is this.")
        .query("code", CODE, "Only those with this code; of parked ones, those parked with it.")
        .query("type", TYPE, "Only those with a code of this type.")
        .query("county", PLACE, "Only those whose event or task has this `county`.")
        .query("phase", PLACE, "Only those that were last seen in this phase.")
        .query("step", PLACE, "Only those that were last seen in this step.")
        .paged()
        .gives::<Page<WorkflowExecutionView>>(200, "A page of executions, without their errors."),
        Route::new(
            Method::GET,
            "/v1/workflow/executions/{executionId}",
            READ,
            [GROUP, "getWorkflowExecution", "Look at an execution of a workflow"],
            get,
        )
        .part("executionId", EXECUTION, "The execution, percent-encoded: an ARN has colons and slashes.")
        .gives::<WorkflowExecutionView>(200, "The execution with its errors."),
        Route::new(
            Method::POST,
            "/v1/workflow/executions/{executionId}/resume",
            ADMIN,
            [GROUP, "resumeWorkflowExecution", "Let a parked execution go on"],
            resume,
        )
        .about("It takes its token, which works once.")
        .part("executionId", EXECUTION, "The execution, percent-encoded.")
        .may_read::<ResumeExecutionRequest>()
        .reads_much()
        .gives::<WorkflowExecutionView>(200, "It goes on.")
        .fails(&[409, 410]),
        Route::new(
            Method::POST,
            "/v1/workflow/executions/{executionId}/fail",
            ADMIN,
            [GROUP, "failWorkflowExecution", "End a parked execution"],
            fail,
        )
        .about("It takes its token, which works once.")
        .part("executionId", EXECUTION, "The execution, percent-encoded.")
        .may_read::<FailExecutionRequest>()
        .gives::<WorkflowExecutionView>(200, "It has ended.")
        .fails(&[409, 410]),
    ]
}

async fn list(call: Call) -> Reply {
    let inputs = &call.inputs;
    let text = |name: &str| inputs.text(name).map(str::to_owned);
    let (code, error_type) = (code_in(inputs)?, type_of(inputs)?);
    let (engine, tenant, limit) = (call.app.engine(), call.tenant()?, page_size(inputs));
    let status = inputs.text("status").and_then(WorkflowStatus::from_name);
    if inputs.flag("parked") {
        if status.is_some_and(|status| status != WorkflowStatus::Failed) {
            return json(
                StatusCode::OK,
                &Page::<WorkflowExecutionView> { items: Vec::new(), next_cursor: None },
            );
        }
        let filter = BulkFilter {
            code,
            error_type,
            county: text("county").map(Arc::from),
            phase: text("phase").map(Arc::from),
            step: text("step").map(Arc::from),
            executions: None,
            settled: false,
        };
        let after = inputs.text("cursor").map(parked_place).transpose()?;
        let page = engine.parked(&tenant, &filter, after, limit).await?;
        let place = |(since, id): (Timestamp, WorkflowRunId)| format!("{}.{id}", since.millis());
        let next_cursor = page.next.map(|next| list_cursor::write("parked", &place(next)));
        let items = page.parked.iter().map(|parked| WorkflowExecutionView::of(&**parked)).collect();
        return json(StatusCode::OK, &Page { items, next_cursor });
    }
    let filter = TriageFilter {
        status,
        county: text("county"),
        phase: text("phase"),
        step: text("step"),
        code,
        error_type,
        parked: inputs.text("parked").map(|_| false),
    };
    let after = match inputs.text("cursor") {
        Some(cursor) => {
            let place = list_cursor::read("workflow-execution", cursor)?;
            Some(WorkflowRunId::new(place).map_err(|_| list_cursor::refuse())?)
        }
        None => None,
    };
    let page = engine.triage_executions(&tenant, &filter, after, limit).await?;
    let next_cursor = page.next.map(|next| list_cursor::write("workflow-execution", next.as_str()));
    let items = page.executions.iter().map(WorkflowExecutionView::of).collect();
    json(StatusCode::OK, &Page { items, next_cursor })
}

/// Where a list of parked executions goes on.
fn parked_place(cursor: &str) -> Result<(Timestamp, WorkflowRunId), Problem> {
    let place = list_cursor::read("parked", cursor)?;
    let (since, id) = place.split_once('.').ok_or_else(list_cursor::refuse)?;
    let since = since.parse().ok().and_then(|millis| Timestamp::new("since", millis).ok());
    let id = WorkflowRunId::new(id).map_err(|_| list_cursor::refuse())?;
    Ok((since.ok_or_else(list_cursor::refuse)?, id))
}

fn id_of(call: &Call) -> Result<(TenantId, WorkflowRunId), Problem> {
    let given = call.inputs.part("executionId");
    let id = WorkflowRunId::new(given).map_err(|_| Problem::not_found("execution", given))?;
    Ok((call.tenant()?, id))
}

async fn get(call: Call) -> Reply {
    let (tenant, id) = id_of(&call)?;
    shown(&call, &tenant, &id).await
}

async fn shown(call: &Call, tenant: &TenantId, id: &WorkflowRunId) -> Reply {
    let engine = call.app.engine();
    let Some(shown) = engine.triage_execution(tenant, id).await? else {
        return Err(Problem::not_found("execution", id.as_str()));
    };
    let errors = engine.errors_of_execution(tenant, id).await?;
    let errors = errors.iter().map(ErrorView::of).collect();
    json(StatusCode::OK, &WorkflowExecutionView { errors, ..WorkflowExecutionView::of(&shown) })
}

async fn resume(call: Call) -> Reply {
    let request: ResumeExecutionRequest = json_body::read_or_default(&call.body)?;
    let how = resuming(request.output, request.mode);
    unpark(call, how, request.reason).await
}

async fn fail(call: Call) -> Reply {
    let request: FailExecutionRequest = json_body::read_or_default(&call.body)?;
    let how = failing(request.error, request.cause)?;
    unpark(call, how, request.reason).await
}

/// How to go on, with what is usual where nothing is said.
pub(super) fn resuming(output: Option<Json>, mode: Option<ResumeMode>) -> BulkAction {
    let output = output.unwrap_or_else(|| Json::of(&value!({ "resolved": true })));
    BulkAction::Resume { output, rerun: mode == Some(ResumeMode::Rerun) }
}

/// How to end, with what is usual where nothing is said.
pub(super) fn failing(error: Option<String>, cause: Option<String>) -> Result<BulkAction, Problem> {
    let error = error.unwrap_or_else(|| "ResolutionFailed".to_owned());
    let cause = cause.unwrap_or_else(|| "Unable to resolve errors".to_owned());
    if error.is_empty() || error.len() > ERROR_BYTES_MAX {
        return Err(Problem::invalid_field("error", format!("must be from 1 to {ERROR_BYTES_MAX} bytes")));
    }
    if cause.len() > CAUSE_BYTES_MAX {
        return Err(Problem::invalid_field("cause", format!("must be at most {CAUSE_BYTES_MAX} bytes")));
    }
    Ok(BulkAction::Fail { error: error.into(), cause: cause.into() })
}

async fn unpark(call: Call, how: BulkAction, reason: Option<String>) -> Reply {
    let (tenant, execution) = id_of(&call)?;
    let request = UnparkRequest {
        tenant: tenant.clone(),
        execution: execution.clone(),
        how,
        by: Some(call.caller.name().to_owned()),
        reason: checked_reason(reason)?,
    };
    call.app.engine().unpark(request).await?;
    shown(&call, &tenant, &execution).await
}
