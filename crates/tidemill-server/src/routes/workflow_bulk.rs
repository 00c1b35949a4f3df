//! Bulks: the same for many parked executions. The server carries them out by itself.

use axum::http::{Method, StatusCode};
use tidemill_engine::engine::NewBulk;
use tidemill_engine::triage::{BulkFilter, BulkId};

use super::workflow::GROUP;
use super::workflow_errors::checked_reason;
use super::workflow_executions::{failing, resuming};
use crate::api::{BulkActionName, BulkPreviewView, BulkRequest, BulkView, Page};
use crate::problem::Problem;
use crate::request::param::Kind;
use crate::request::{json_body, list_cursor};
use crate::route::{ADMIN, Call, READ, Reply, Route, json, page_size};
use crate::views::{View, bulk_filter};

const ID: Kind = Kind::Word { most: 36 };
/// How many executions may be named one by one.
const EXECUTIONS_MAX: usize = 1_000;
const RATE_MAX: u32 = 100_000;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(
            Method::POST,
            "/v1/workflow/bulk",
            ADMIN,
            [GROUP, "startBulk", "Resume or fail many parked executions"],
            start,
        )
        .about(
            "The server goes on with it by itself, also after a restart, and handles no execution twice. Those that are \
             parked later are not touched. With `dryRun` it only says what it would touch.",
        )
        .reads::<BulkRequest>()
        .gives::<BulkPreviewView>(200, "What it would touch.")
        .gives::<BulkView>(202, "It has begun."),
        Route::new(
            Method::GET,
            "/v1/workflow/bulk",
            READ,
            [GROUP, "listBulks", "List bulks, newest first"],
            list,
        )
        .paged()
        .gives::<Page<BulkView>>(200, "A page of those that are kept."),
        Route::new(Method::GET, "/v1/workflow/bulk/{bulkId}", READ, [GROUP, "getBulk", "Look at a bulk"], get)
            .part("bulkId", ID, "The bulk.")
            .gives::<BulkView>(200, "How far it is."),
        Route::new(
            Method::POST,
            "/v1/workflow/bulk/{bulkId}/cancel",
            ADMIN,
            [GROUP, "cancelBulk", "Stop a bulk"],
            cancel,
        )
        .about("What it has done stays done.")
        .part("bulkId", ID, "The bulk.")
        .gives::<BulkView>(200, "It stopped, or had ended.")
        .fails(&[409]),
    ]
}

async fn start(call: Call) -> Reply {
    let request: BulkRequest = json_body::read(&call.body)?;
    let tenant = call.tenant()?;
    let unfit = match request.action {
        BulkActionName::Resume => [("error", request.error.is_some()), ("cause", request.cause.is_some())],
        BulkActionName::Fail => [("output", request.output.is_some()), ("mode", request.mode.is_some())],
    };
    if let Some((field, _)) = unfit.iter().find(|(_, is_given)| *is_given) {
        let message = format!("is not for the action {}", request.action.as_str());
        return Err(Problem::invalid_field(*field, message));
    }
    let all = request.filter.all;
    let named = request.filter.execution_ids.as_ref().map_or(0, Vec::len);
    if named > EXECUTIONS_MAX {
        let message = format!("has {named} entries; the limit is {EXECUTIONS_MAX}");
        return Err(Problem::field("TOO_MANY", "filter.executionIds", message));
    }
    let filter = bulk_filter(request.filter)?;
    if all == (filter != BulkFilter::default()) {
        let message = if all { "cannot stand beside conditions" } else { "needs a condition, or all" };
        let field = if all { "filter.all" } else { "filter" };
        return Err(Problem::field("ONE_OF", field, message));
    }
    if request.rate_per_second.is_some_and(|rate| !(1..=RATE_MAX).contains(&rate)) {
        return Err(Problem::invalid_field("ratePerSecond", format!("must be from 1 to {RATE_MAX}")));
    }
    let action = match request.action {
        BulkActionName::Resume => resuming(request.output, request.mode),
        BulkActionName::Fail => failing(request.error, request.cause)?,
    };
    let reason = checked_reason(request.reason)?;
    if request.dry_run {
        let preview = call.app.engine().preview_bulk(&tenant, &filter).await?;
        return json(StatusCode::OK, &BulkPreviewView::of(&preview));
    }
    let request = NewBulk {
        tenant,
        action,
        filter,
        rate_per_second: request.rate_per_second,
        by: Some(call.caller.name().to_owned()),
        reason,
    };
    let bulk = call.app.engine().start_bulk(request).await?;
    json(StatusCode::ACCEPTED, &BulkView::of(&*bulk))
}

async fn list(call: Call) -> Reply {
    let bulks = call.app.engine().bulks(&call.tenant()?).await?;
    let after = call.inputs.text("cursor").map(|cursor| list_cursor::read("bulks", cursor)).transpose()?;
    let after = after.map(|after| BulkId::new(after).map_err(|_| list_cursor::refuse())).transpose()?;
    let mut rest = bulks.iter().filter(|bulk| after.is_none_or(|after| bulk.id < after));
    let items: Vec<_> = rest.by_ref().take(page_size(&call.inputs)).collect();
    let last = items.last().filter(|_| rest.next().is_some());
    let next_cursor = last.map(|bulk| list_cursor::write("bulks", &bulk.id.to_string()));
    let items = items.iter().map(|bulk| BulkView::of(&***bulk)).collect();
    json(StatusCode::OK, &Page { items, next_cursor })
}

fn id_of(call: &Call) -> Result<BulkId, Problem> {
    let given = call.inputs.part("bulkId");
    BulkId::new(given).map_err(|_| Problem::not_found("bulk", given))
}

async fn get(call: Call) -> Reply {
    let id = id_of(&call)?;
    match call.app.engine().bulk(&call.tenant()?, id).await? {
        Some(bulk) => json(StatusCode::OK, &BulkView::of(&*bulk)),
        None => Err(Problem::not_found("bulk", &id.to_string())),
    }
}

async fn cancel(call: Call) -> Reply {
    let id = id_of(&call)?;
    let bulk = call.app.engine().cancel_bulk(call.tenant()?, id).await?;
    json(StatusCode::OK, &BulkView::of(&*bulk))
}
