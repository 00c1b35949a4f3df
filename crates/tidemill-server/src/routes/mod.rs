//! The table of routes: one file per group.

mod claiming;
mod compiling;
mod dead_letters;
mod definitions;
mod events;
mod executions;
mod health;
mod jobs;
mod keys;
mod queue;
mod script_test;
mod scripts;
mod site;
mod submitting;
mod subscriptions;
mod task_files;
mod task_list;
mod tasks;
mod usage;
mod worker;
mod workers;
mod workflow;
mod workflow_bulk;
mod workflow_errors;
mod workflow_executions;

use crate::route::Route;

/// All routes.
pub(crate) fn table() -> Vec<Route> {
    let mut routes = Vec::new();
    routes.extend(jobs::routes());
    routes.extend(tasks::routes());
    routes.extend(task_files::routes());
    routes.extend(definitions::routes());
    routes.extend(events::routes());
    routes.extend(scripts::routes());
    routes.extend(script_test::routes());
    routes.extend(subscriptions::routes());
    routes.extend(executions::routes());
    routes.extend(dead_letters::routes());
    routes.extend(workflow::routes());
    routes.extend(workflow_errors::routes());
    routes.extend(workflow_executions::routes());
    routes.extend(workflow_bulk::routes());
    routes.extend(health::routes());
    routes.extend(usage::routes());
    routes.extend(keys::routes());
    routes.extend(queue::routes());
    routes.extend(worker::routes());
    routes.extend(worker::file_routes());
    routes.extend(workers::routes());
    routes.extend(site::routes());
    routes
}

/// The OpenAPI document of the API.
pub fn openapi_document() -> serde_json::Value {
    crate::openapi::document(&table())
}
