//! What agents used, and budgets.

use axum::http::{Method, Response, StatusCode};
use tidemill_engine::engine::{EngineError, UsageBy, UsageQuery};
use tidemill_model::spending::budget::BUDGET_TOKENS_MAX;
use tidemill_model::{Budget, Day, MicroUsd, Period};

use super::jobs::job_of;
use crate::api::{BudgetRequest, BudgetView, JobBudgetRequest, Page, UsageRowView};
use crate::problem::Problem;
use crate::request::param::Kind;
use crate::request::{json_body, list_cursor};
use crate::route::{ADMIN, Call, READ, Reply, Route, json, page_size};

const GROUP: &str = "Usage";

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/v1/usage", READ, [GROUP, "listUsage", "Sum up what agents used"], list)
            .about(
                "Tokens, turns, time and dollars, added up as attempts end, failed ones included. Jobs come newest \
                 first, days oldest first, names in their order. Days are those of UTC; for jobs, those on which they \
                 were submitted.",
            )
            .query("by", BY, "What is added up; `day` when absent.")
            .query("from", Kind::Day, "The first day, such as `2026-11-15`.")
            .query("to", Kind::Day, "The last day.")
            .paged()
            .gives::<Page<UsageRowView>>(200, "A page of sums."),
        Route::new(Method::GET, "/v1/budget", READ, [GROUP, "getBudget", "Look at the tenant's budget"], get)
            .gives::<BudgetView>(200, "The budget and what was used of it.")
            .fails(&[404]),
        Route::new(Method::PUT, "/v1/budget", ADMIN, [GROUP, "setBudget", "Set the tenant's budget"], set)
            .about(
                "Once it is used up no further agent task of the tenant starts: it fails with the code \
                 BUDGET_EXCEEDED. What was used before in the period counts.",
            )
            .reads::<BudgetRequest>()
            .sample(serde_json::json!({"usd": 100}))
            .gives::<BudgetView>(200, "The budget as it stands now."),
        Route::new(
            Method::DELETE,
            "/v1/budget",
            ADMIN,
            [GROUP, "removeBudget", "Remove the tenant's budget"],
            remove,
        )
        .about("Repeating it changes nothing.")
        .gives_nothing(204, "There is no budget any more."),
        Route::new(
            Method::PUT,
            "/v1/jobs/{jobId}/budget",
            ADMIN,
            [GROUP, "setJobBudget", "Set a job's budget"],
            set_of_job,
        )
        .about("Raise it, and resume the job, to let agents go on that were stopped by it.")
        .job_id()
        .reads::<JobBudgetRequest>()
        .sample(serde_json::json!({"usd": 5}))
        .gives::<BudgetView>(200, "The budget as it stands now."),
        Route::new(
            Method::DELETE,
            "/v1/jobs/{jobId}/budget",
            ADMIN,
            [GROUP, "removeJobBudget", "Remove a job's budget"],
            remove_of_job,
        )
        .about("Repeating it changes nothing.")
        .job_id()
        .gives_nothing(204, "There is no budget any more."),
    ]
}

const BY: Kind = Kind::Choice(&["job", "definition", "day", "tenant"]);

async fn list(call: Call) -> Reply {
    let inputs = &call.inputs;
    let (by, kind) = match inputs.text("by") {
        Some("job") => (UsageBy::Job, "usage-job"),
        Some("definition") => (UsageBy::Definition, "usage-definition"),
        Some("tenant") => (UsageBy::Tenant, "usage-tenant"),
        _ => (UsageBy::Day, "usage-day"),
    };
    let after = inputs.text("cursor").map(|cursor| list_cursor::read(kind, cursor)).transpose()?;
    let day = |name: &str| inputs.text(name).and_then(Day::parse);
    let query = UsageQuery {
        tenant: call.tenant()?,
        by,
        from: day("from"),
        to: day("to"),
        after: after.map(ToOwned::to_owned),
        limit: page_size(inputs),
    };
    let page = call.app.engine().usage(query).await.map_err(|error| match error {
        EngineError::Invalid { field, problem } => Problem::invalid_parameter(field, problem),
        error => error.into(),
    })?;
    let last = page.rows.last().filter(|_| !page.is_last);
    let next_cursor = last.map(|row| list_cursor::write(kind, &row.key));
    let items = page.rows.into_iter().map(|row| UsageRowView { key: row.key, sum: row.sum }).collect();
    json(StatusCode::OK, &Page { items, next_cursor })
}

/// A budget that limits something.
fn budget_of(usd: Option<MicroUsd>, tokens: Option<u64>) -> Result<Budget, Problem> {
    if usd.is_none() && tokens.is_none() {
        return Err(Problem::field("MISSING_FIELD", "usd", "or tokens is needed"));
    }
    if tokens.is_some_and(|tokens| tokens > BUDGET_TOKENS_MAX) {
        return Err(Problem::invalid_field("tokens", format!("is more than {BUDGET_TOKENS_MAX}")));
    }
    Ok(Budget { usd, tokens })
}

async fn get(call: Call) -> Reply {
    let tenant = call.tenant()?;
    match call.app.engine().budget(&tenant).await? {
        Some(budget) => json(StatusCode::OK, &BudgetView::of(&budget.allowance, Some(budget.period))),
        None => Err(Problem::not_found("budget", tenant.as_str())),
    }
}

async fn set(call: Call) -> Reply {
    let request: BudgetRequest = json_body::read(&call.body)?;
    let budget = budget_of(request.usd, request.tokens)?;
    let period = request.period.unwrap_or_default();
    call.app.engine().set_budget(call.tenant()?, period, Some(budget)).await?;
    get(call).await
}

async fn remove(call: Call) -> Reply {
    call.app.engine().set_budget(call.tenant()?, Period::Total, None).await?;
    nothing()
}

async fn set_of_job(call: Call) -> Reply {
    let (tenant, job) = job_of(&call)?;
    let request: JobBudgetRequest = json_body::read(&call.body)?;
    let budget = budget_of(request.usd, request.tokens)?;
    let engine = call.app.engine();
    engine.set_job_budget(tenant.clone(), job, Some(budget)).await?;
    let allowance = engine.job(tenant, job).await?.and_then(|job| job.head.allowance);
    match allowance {
        Some(allowance) => json(StatusCode::OK, &BudgetView::of(&allowance, None)),
        None => Err(Problem::not_found("job", &job.to_string())),
    }
}

async fn remove_of_job(call: Call) -> Reply {
    let (tenant, job) = job_of(&call)?;
    call.app.engine().set_job_budget(tenant, job, None).await?;
    nothing()
}

#[expect(clippy::unnecessary_wraps, reason = "the last word of handlers, which may fail before it")]
fn nothing() -> Reply {
    let mut response = Response::default();
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}
