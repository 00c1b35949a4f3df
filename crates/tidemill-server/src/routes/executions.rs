//! Executions of scripts, what they were counted as, and alerts about them.

use axum::http::{Method, StatusCode};
use tidemill_engine::engine::{ExecutionFilter, ShownStatus};
use tidemill_engine::execution::ExecutionId;
use tidemill_model::{ScriptId, SubscriptionId};

use super::scripts;
use crate::api::{AlertView, ExecutionView, Page};
use crate::metrics::{METRICS_TEXT, render};
use crate::problem::Problem;
use crate::request::list_cursor;
use crate::request::param::Kind;
use crate::route::{Call, READ, Reply, Route, json, page_size, raw};
use crate::views::{View, listed_execution};

const GROUP: &str = "Executions";
const STATUS: Kind = Kind::Choice(&["queued", "processing", "retrying", "success", "dead_letter"]);
const SUBSCRIPTION: Kind = Kind::Word { most: SubscriptionId::LENGTH_MAX };

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(
            Method::GET,
            "/v1/executions",
            READ,
            [GROUP, "listExecutions", "List executions of scripts"],
            list,
        )
        .about("The newest event comes first. Executions that ended are kept for 30 days.")
        .query("scriptId", scripts::ID, "Only those of this script.")
        .query("subscriptionId", SUBSCRIPTION, "Only those of this subscription.")
        .query("status", STATUS, "Only those in this status.")
        .paged()
        .gives::<Page<ExecutionView>>(200, "A page of executions, without results, logs and stacks."),
        Route::new(
            Method::GET,
            "/v1/executions/{id}",
            READ,
            [GROUP, "getExecution", "Look at an execution"],
            get,
        )
        .part("id", Kind::Word { most: 36 }, "The execution.")
        .gives::<ExecutionView>(200, "The execution."),
        Route::new(
            Method::GET,
            "/v1/alerts",
            READ,
            [GROUP, "listAlerts", "List the alerts that stand"],
            alerts,
        )
        .about("Those of scripts and of parked executions are told by the events `Alert Raised` and `Alert Cleared` too. Those \
             of health are as the last check found them.")
        .gives::<Page<AlertView>>(200, "All of the tenant's."),
        Route::new(Method::GET, "/metrics", READ, ["Server", "getMetrics", "Read the metrics"], metrics)
            .about("In the text format of Prometheus. Counted by this process, of all tenants together. Names of definitions and jobs are those of the key's tenant only.")
            .gives_raw(200, "The metrics.", METRICS_TEXT),
    ]
}

async fn list(call: Call) -> Reply {
    let (inputs, tenant) = (&call.inputs, call.tenant()?);
    let after = match inputs.text("cursor") {
        Some(cursor) => {
            let place = list_cursor::read("execution", cursor)?;
            Some(ExecutionId::new(place).map_err(|_| list_cursor::refuse())?)
        }
        None => None,
    };
    let filter = ExecutionFilter {
        script: inputs.text("scriptId").map(ScriptId::trusted),
        subscription: inputs.text("subscriptionId").map(SubscriptionId::trusted),
        status: inputs.text("status").and_then(ShownStatus::from_name),
    };
    let page = call.app.engine().executions(&tenant, &filter, after, page_size(inputs)).await?;
    let next_cursor = page.next.map(|next| list_cursor::write("execution", &next.to_string()));
    let items = page.executions.into_iter().map(|shown| listed_execution(&tenant, shown)).collect();
    json(StatusCode::OK, &Page { items, next_cursor })
}

async fn get(call: Call) -> Reply {
    let (given, tenant) = (call.inputs.part("id"), call.tenant()?);
    let absent = || Problem::not_found("execution", given);
    let id = ExecutionId::new(given).map_err(|_| absent())?;
    let shown = call.app.engine().execution(&tenant, id).await?.ok_or_else(absent)?;
    json(StatusCode::OK, &ExecutionView::of((&tenant, shown)))
}

async fn alerts(call: Call) -> Reply {
    let standing = call.app.engine().standing_alerts(Some(&call.tenant()?)).await?;
    let items = standing.into_iter().map(AlertView::of).collect();
    json(StatusCode::OK, &Page { items, next_cursor: None })
}

async fn metrics(call: Call) -> Reply {
    let (engine, tenant) = (call.app.engine(), call.tenant()?);
    let named = engine.named_metrics(&tenant);
    let text = render(&engine.metrics().await?, &named, call.app.logins().failed());
    Ok(raw(StatusCode::OK, METRICS_TEXT, text))
}
