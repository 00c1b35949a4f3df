//! What a deployed stage exports, as the settings of its processes.

use std::collections::BTreeMap;

use super::DeployError;
use super::stack_plan::find;
use super::template::STACKS;
use crate::connection::Connection;
use crate::fault::words;

/// An export, without the stage at its end, and the setting that it is the value of.
const SETTINGS: [(&str, &str); 4] = [
    ("events-table-name", "DYNAMODB_EVENTS_TABLE_NAME"),
    ("event-bus-name", "EVENTBRIDGE_BUS_NAME"),
    ("task-queue-url", "SQS_QUEUE_URL"),
    ("artifacts-bucket-name", "S3_BUCKET"),
];

/// What the functions were deployed with, and the setting that says the same to other processes.
const PARAMETERS: [(&str, &str); 2] = [("TenantId", "TENANT_ID"), ("AppName", "APP_NAME")];
/// A stack with functions.
const WITH_FUNCTIONS: usize = 1;

/// Whose jobs a stage runs and under which name, by the settings of its functions; nothing before they are deployed.
pub async fn identity(
    connection: &Connection,
    stage: &str,
) -> Result<Vec<(&'static str, String)>, DeployError> {
    let name = STACKS[WITH_FUNCTIONS].stack_name(stage);
    let Some(mut found) = find(connection, &name).await? else { return Ok(Vec::new()) };
    let setting =
        |(parameter, setting): (&str, &'static str)| Some((setting, found.parameters.remove(parameter)?));
    Ok(PARAMETERS.into_iter().filter_map(setting).collect())
}

/// The settings of a stage, by name. What it does not export is an error.
pub async fn environment(
    connection: &Connection,
    stage: &str,
) -> Result<Vec<(&'static str, String)>, DeployError> {
    let exports = exports(connection).await?;
    let find = |(export, setting): (&str, &'static str)| {
        let name = format!("{export}-{stage}");
        exports.get(&name).map(|value| (setting, value.clone())).ok_or(name)
    };
    let found: Result<Vec<_>, String> = SETTINGS.into_iter().map(find).collect();
    found.map_err(|name| {
        DeployError::Refused(format!(
            "there is no export {name} in this region: deploy stage {stage} first, or name another with --stage"
        ))
    })
}

/// Where the API of a stage is, once it is deployed.
pub async fn api_url(connection: &Connection, stage: &str) -> Result<Option<String>, DeployError> {
    Ok(exports(connection).await?.remove(&format!("producer-api-url-{stage}")))
}

async fn exports(connection: &Connection) -> Result<BTreeMap<String, String>, DeployError> {
    let client = connection.cloudformation();
    let mut pages = client.list_exports().into_paginator().items().send();
    let mut exports = BTreeMap::new();
    while let Some(export) = pages.next().await {
        let export = export.map_err(|error| DeployError::Refused(words("ListExports", error)))?;
        if let (Some(name), Some(value)) = (export.name, export.value) {
            exports.insert(name, value);
        }
    }
    Ok(exports)
}
