//! Errors by code and by execution, and the marks that people and programs put on them.

use axum::http::{Method, StatusCode};
use tidemill_engine::engine::{EngineError, GroupFilter, GroupPage, GroupSort};
use tidemill_engine::reply::Refusal;
use tidemill_engine::triage::{ErrorMark, ErrorState, GroupKind, Until};
use tidemill_model::workflow::{ErrorCode, ErrorScope, ErrorType, WorkflowRunId};

use super::workflow::{CODE, GROUP, code_of, offset_of};
use crate::api::{
    ErrorGroupDetailView, ErrorGroupView, ErrorView, IgnoreRequest, MarkRequest, MarkedView, OccurrenceView,
    Page, PlaceView,
};
use crate::problem::Problem;
use crate::request::param::{Inputs, Kind};
use crate::request::{json_body, list_cursor};
use crate::route::{Call, READ, Reply, Route, SUBMIT, json, page_size};
use crate::views::{View, hours};

/// The two digits of an error type.
pub(super) const TYPE: Kind = Kind::Text { most: 2 };
/// A county, a phase or a step.
pub(super) const PLACE: Kind = Kind::Text { most: 256 };
pub(super) const EXECUTION: Kind = Kind::Text { most: WorkflowRunId::LENGTH_MAX };
const STATE: Kind = Kind::Choice(&["open", "resolved", "unrecoverable", "ignored"]);
/// The longest reason.
const REASON_BYTES_MAX: usize = 1_000;

pub(super) fn routes() -> Vec<Route> {
    let mark = |path, name: &'static str, summary: &'static str, mark| {
        Route::new(Method::POST, path, SUBMIT, [GROUP, name, summary], move |call| mark_errors(call, mark))
            .reads::<MarkRequest>()
            .gives::<MarkedView>(200, "What changed.")
            .fails(&[404])
    };
    vec![
        Route::new(
            Method::GET,
            "/v1/workflow/errors",
            READ,
            [GROUP, "listErrors", "List errors by code"],
            list,
        )
        .about("Of workflows and of tasks. Counts are those of the places that fit.")
        .query("code", CODE, "Only this code.")
        .query("type", TYPE, "Only codes of this type: their first two digits.")
        .query(
            "county",
            PLACE,
            "Only what was seen where this is the `county` of the event or of the task's labels.",
        )
        .query("phase", PLACE, "Only what was seen in this phase.")
        .query("step", PLACE, "Only what was seen in this step.")
        .query("state", STATE, "Only codes that have errors in this state.")
        .query("kind", Kind::Choice(&["workflow", "task"]), "Only errors of workflows, or of tasks.")
        .query("q", Kind::Text { most: 200 }, "Only codes and titles that have this text in them.")
        .query("sort", Kind::Choice(&["count", "recent", "executions"]), "`count` when absent.")
        .paged()
        .gives::<Page<ErrorGroupView>>(200, "A page of codes."),
        Route::new(
            Method::GET,
            "/v1/workflow/errors/{code}",
            READ,
            [GROUP, "getError", "Look at a code"],
            get,
        )
        .about("With its trend, its places, samples, and a page of the executions that have it.")
        .part("code", CODE, "The code.")
        .query("state", STATE, "Only executions where it is in this state.")
        .paged()
        .gives::<ErrorGroupDetailView>(200, "The code."),
        Route::new(
            Method::GET,
            "/v1/workflow/occurrences",
            READ,
            [GROUP, "listOccurrences", "List a code's executions, or an execution's codes"],
            occurrences,
        )
        .about("With both parameters, that code in that execution with its newest occurrences.")
        .query("code", CODE, "The code.")
        .query("executionId", EXECUTION, "The execution.")
        .example(serde_json::json!({"code": "99example"}))
        .query("state", STATE, "Only those in this state.")
        .paged()
        .gives::<Page<ErrorView>>(200, "A page of errors."),
        Route::new(
            Method::GET,
            "/v1/workflow/candidates",
            READ,
            [GROUP, "listCandidates", "List what is worth repairing"],
            candidates,
        )
        .about("Codes with open errors that are not unrecoverable, most occurrences first.")
        .paged()
        .gives::<Page<ErrorGroupView>>(200, "A page of codes."),
        mark(
            "/v1/workflow/errors/resolve",
            "resolveErrors",
            "Say that errors are mended",
            ErrorMark::Resolve,
        )
        .about("Of an execution, of a code everywhere, or of both. They open again when they come again."),
        mark(
            "/v1/workflow/errors/fail",
            "failErrors",
            "Say that errors cannot be mended",
            ErrorMark::Unrecoverable,
        )
        .about("They are no candidates for a repair any more, whatever comes, until they are reopened."),
        mark("/v1/workflow/errors/reopen", "reopenErrors", "Open errors again", ErrorMark::Reopen),
        Route::new(
            Method::POST,
            "/v1/workflow/errors/ignore",
            SUBMIT,
            [GROUP, "ignoreErrors", "Ignore a code for some time"],
            ignore,
        )
        .reads::<IgnoreRequest>()
        .sample(serde_json::json!({"errorCode": "99example"}))
        .gives::<MarkedView>(200, "What changed.")
        .fails(&[404]),
    ]
}

/// The type that a query names.
pub(super) fn type_of(inputs: &Inputs) -> Result<Option<ErrorType>, Problem> {
    let Some(text) = inputs.text("type") else { return Ok(None) };
    let found = ErrorType::parse(text);
    found.map(Some).ok_or_else(|| Problem::invalid_parameter("type", "must be two digits"))
}

/// The code that a query names.
pub(super) fn code_in(inputs: &Inputs) -> Result<Option<ErrorCode>, Problem> {
    let Some(text) = inputs.text("code") else { return Ok(None) };
    let bad = |error: tidemill_model::BadId| Problem::invalid_parameter("code", error.problem.to_string());
    ErrorCode::new(text).map(Some).map_err(bad)
}

/// Why, within its limit.
pub(super) fn checked_reason(reason: Option<String>) -> Result<Option<String>, Problem> {
    match reason {
        Some(reason) if reason.len() > REASON_BYTES_MAX => {
            let message = format!("is {} bytes; the limit is {REASON_BYTES_MAX}", reason.len());
            Err(Problem::invalid_field("reason", message))
        }
        reason => Ok(reason.filter(|reason| !reason.is_empty())),
    }
}

async fn list(call: Call) -> Reply {
    let inputs = &call.inputs;
    let text = |name: &str| inputs.text(name).map(str::to_owned);
    let filter = GroupFilter {
        code: code_in(inputs)?,
        error_type: type_of(inputs)?,
        county: text("county"),
        phase: text("phase"),
        step: text("step"),
        state: inputs.text("state").and_then(ErrorState::from_name),
        kind: inputs.text("kind").map(|kind| match kind {
            "task" => GroupKind::Task,
            _ => GroupKind::Workflow,
        }),
        text: text("q"),
    };
    let sort = match inputs.text("sort") {
        Some("recent") => GroupSort::Recent,
        Some("executions") => GroupSort::Executions,
        _ => GroupSort::Count,
    };
    let offset = offset_of(inputs.text("cursor"), "errors")?;
    let page =
        call.app.engine().error_groups(&call.tenant()?, &filter, sort, offset, page_size(inputs)).await?;
    groups(&call, &page, "errors")
}

fn groups(call: &Call, page: &GroupPage, list: &str) -> Reply {
    let catalogue = &call.app.config().catalogue;
    let items: Vec<_> = page.groups.iter().map(|shown| ErrorGroupView::of((shown, catalogue))).collect();
    let next_cursor = page.next.map(|next| list_cursor::write(list, &next.to_string()));
    json(StatusCode::OK, &Page { items, next_cursor })
}

async fn candidates(call: Call) -> Reply {
    let offset = offset_of(call.inputs.text("cursor"), "candidates")?;
    let page = call.app.engine().candidates(&call.tenant()?, offset, page_size(&call.inputs)).await?;
    groups(&call, &page, "candidates")
}

async fn get(call: Call) -> Reply {
    let (code, tenant) = (code_of(&call)?, call.tenant()?);
    let engine = call.app.engine();
    let Some(shown) = engine.error_group(&tenant, &code).await? else {
        return Err(Problem::not_found("error code", code.as_str()));
    };
    let samples = engine.samples(&tenant, &shown.group).await?;
    let view = ErrorGroupDetailView {
        group: ErrorGroupView::of((&shown, &call.app.config().catalogue)),
        trend: hours(&shown.group),
        places: shown.group.cells.iter().map(PlaceView::of).collect(),
        samples: samples.into_iter().map(OccurrenceView::of).collect(),
        errors: errors_of_code(&call, &code).await?,
    };
    json(StatusCode::OK, &view)
}

fn state_of(inputs: &Inputs) -> Option<ErrorState> {
    inputs.text("state").and_then(ErrorState::from_name)
}

async fn errors_of_code(call: &Call, code: &ErrorCode) -> Result<Page<ErrorView>, Problem> {
    let inputs = &call.inputs;
    let after = match inputs.text("cursor") {
        Some(cursor) => {
            let place = list_cursor::read("occurrence", cursor)?;
            Some(WorkflowRunId::new(place).map_err(|_| list_cursor::refuse())?)
        }
        None => None,
    };
    let (tenant, limit) = (call.tenant()?, page_size(inputs));
    let page = call.app.engine().errors_of_code(&tenant, code, state_of(inputs), after, limit).await?;
    let next_cursor = page.next.map(|next| list_cursor::write("occurrence", next.as_str()));
    Ok(Page { items: page.errors.iter().map(ErrorView::of).collect(), next_cursor })
}

async fn occurrences(call: Call) -> Reply {
    let inputs = &call.inputs;
    let code = code_in(inputs)?;
    let Some(execution) = inputs.text("executionId") else {
        let Some(code) = code else {
            return Err(Problem::invalid_parameter("executionId", "or code is needed"));
        };
        return json(StatusCode::OK, &errors_of_code(&call, &code).await?);
    };
    let (engine, tenant) = (call.app.engine(), call.tenant()?);
    let execution = WorkflowRunId::new(execution)
        .map_err(|error| Problem::invalid_parameter("executionId", error.problem.to_string()))?;
    let state = state_of(inputs);
    let errors = engine.errors_of_execution(&tenant, &execution).await?;
    let mut items = Vec::new();
    // An execution has at most as many codes as fit one answer.
    for shown in errors.iter().filter(|shown| state.is_none_or(|state| shown.state == state)) {
        let mut view = ErrorView::of(shown);
        if let Some(code) = &code {
            if shown.error.code != *code {
                continue;
            }
            let found = engine.occurrences(&tenant, &shown.error).await?;
            view.occurrences = found.into_iter().map(OccurrenceView::of).collect();
        }
        items.push(view);
    }
    let offset = offset_of(inputs.text("cursor"), "execution-errors")?;
    let limit = page_size(inputs);
    let next = offset + limit;
    let next_cursor = (next < items.len()).then(|| list_cursor::write("execution-errors", &next.to_string()));
    let items = items.into_iter().skip(offset).take(limit).collect();
    json(StatusCode::OK, &Page { items, next_cursor })
}

async fn mark_errors(call: Call, mark: ErrorMark) -> Reply {
    let request: MarkRequest = json_body::read(&call.body)?;
    let Some(scope) = ErrorScope::of(request.execution_id, request.error_code) else {
        return Err(Problem::field("ONE_OF", "executionId", "or errorCode is needed"));
    };
    marked(&call, scope, mark, request.reason).await
}

async fn ignore(call: Call) -> Reply {
    let request: IgnoreRequest = json_body::read(&call.body)?;
    if request.occurrences == Some(0) {
        return Err(Problem::invalid_field("occurrences", "must be at least 1"));
    }
    let until = Until { time: request.until, occurrences: request.occurrences };
    marked(&call, ErrorScope::Code(request.error_code), ErrorMark::Ignore(until), request.reason).await
}

async fn marked(call: &Call, scope: ErrorScope, mark: ErrorMark, reason: Option<String>) -> Reply {
    let reason = checked_reason(reason)?;
    let by = Some(call.caller.name().to_owned());
    let marked = call.app.engine().mark_errors(call.tenant()?, scope, mark, by, reason).await;
    let marked = marked.map_err(|error| match error {
        EngineError::Refused(Refusal::NotFound { what, id }) => Problem::not_found(what, &id),
        error => error.into(),
    })?;
    json(StatusCode::OK, &MarkedView { event_id: marked.event, changed: marked.changed })
}
