//! Checks of health.

use axum::http::{Method, StatusCode};

use crate::api::HealthCheckView;
use crate::problem::Problem;
use crate::route::{Call, READ, Reply, Route, SUBMIT, json};
use crate::views::View;

const GROUP: &str = "Health";

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(
            Method::POST,
            "/v1/health-check",
            SUBMIT,
            [GROUP, "checkHealth", "Check the tenant's tasks now"],
            check,
        )
        .about(
            "Looks at all tasks that are processing and at what else may stand still, writes the event \
             `Task Health Check`, and alerts as the timer does. It changes no task.",
        )
        .gives::<HealthCheckView>(200, "What was found.")
        .fails(&[409]),
        Route::new(
            Method::GET,
            "/v1/health-check",
            READ,
            [GROUP, "getHealthCheck", "Look at the last check"],
            last,
        )
        .gives::<HealthCheckView>(200, "What was found last, by the timer or on demand.")
        .fails(&[404]),
    ]
}

async fn check(call: Call) -> Reply {
    let report = call.app.engine().check_health(&call.tenant()?).await?;
    json(StatusCode::OK, &HealthCheckView::of(report))
}

async fn last(call: Call) -> Reply {
    let absent = || {
        let detail = "no check of health was made yet; POST /v1/health-check makes one";
        Problem::new(StatusCode::NOT_FOUND, "NOT_FOUND", detail)
    };
    let report = call.app.engine().last_health(&call.tenant()?).await?.ok_or_else(absent)?;
    json(StatusCode::OK, &HealthCheckView::of(report))
}
