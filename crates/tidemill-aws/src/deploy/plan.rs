//! What deploying would do, found by looking only.

use std::collections::BTreeMap;

use aws_sdk_cloudformation::error::ProvideErrorMetadata as _;
use aws_sdk_cloudformation::types::{Stack, StackStatus};
use serde_json::Value;

use super::DeployError;
use super::template::{StackTemplate, resources_of};
use crate::connection::Connection;
use crate::fault::words;

/// What would become of one stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub stack: StackTemplate,
    pub name: String,
    pub change: Change,
    /// All parameters that it would have.
    pub(super) parameters: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It is not there yet: so many resources would be made.
    Create {
        resources: usize,
    },
    /// What would change, a line each.
    Update(Vec<String>),
    Nothing,
    /// It cannot be deployed now: it is being changed, or it failed so that it must be removed first.
    Stuck(String),
}

/// What is there of a stack.
pub(super) struct Found {
    pub(super) status: StackStatus,
    parameters: BTreeMap<String, String>,
    template: Value,
}

/// Compares a stack with its template. Parameters that nobody gives stay as they are.
pub async fn plan(
    connection: &Connection,
    stack: StackTemplate,
    stage: &str,
    given: &BTreeMap<String, String>,
) -> Result<Plan, DeployError> {
    let name = stack.stack_name(stage);
    let found = find(connection, &name).await?;
    let mut parameters = BTreeMap::new();
    let mut missing = Vec::new();
    let mut lines = Vec::new();
    for declared in stack.parameters() {
        let stage = (declared.name == "Stage").then(|| stage.to_owned());
        let before = found.as_ref().and_then(|found| found.parameters.get(&declared.name));
        let value = stage.or_else(|| given.get(&declared.name).cloned()).or_else(|| before.cloned());
        let Some(value) = value.or(declared.default) else {
            missing.push(declared.name);
            continue;
        };
        // What must not be shown is not told to us either.
        if let Some(before) = before.filter(|before| **before != value && !declared.secret) {
            lines.push(format!("parameter {}: {before} -> {value}", declared.name));
        } else if declared.secret && given.contains_key(&declared.name) {
            lines.push(format!("parameter {} is given", declared.name));
        }
        parameters.insert(declared.name, value);
    }
    let change = match &found {
        None if !missing.is_empty() => return Err(DeployError::Missing { stack: name, names: missing }),
        None => Change::Create { resources: stack.resources().len() },
        Some(found) if !is_settled(&found.status) => Change::Stuck(found.status.as_str().to_owned()),
        Some(_) if !missing.is_empty() => return Err(DeployError::Missing { stack: name, names: missing }),
        Some(found) => {
            lines.extend(differences(&resources_of(&found.template), &stack.resources()));
            let is_other = found.template != serde_json::from_str::<Value>(stack.text).unwrap_or_default();
            if lines.is_empty() && is_other {
                lines.push("the template, though no resource of it".to_owned());
            }
            if lines.is_empty() { Change::Nothing } else { Change::Update(lines) }
        }
    };
    Ok(Plan { stack, name, change, parameters })
}

/// A stack that is there, if it is.
pub(super) async fn find(connection: &Connection, name: &str) -> Result<Option<Found>, DeployError> {
    let client = connection.cloudformation();
    let stack = match client.describe_stacks().stack_name(name).send().await {
        Ok(described) => described.stacks.unwrap_or_default().into_iter().next(),
        // There is no code of its own for a stack that is not there.
        Err(error) if error.message().is_some_and(|message| message.contains("does not exist")) => None,
        Err(error) => return Err(DeployError::Refused(words("DescribeStacks", error))),
    };
    let Some(stack) = stack.filter(|stack| stack.stack_status != Some(StackStatus::DeleteComplete)) else {
        return Ok(None);
    };
    let asked = client.get_template().stack_name(name).send().await;
    let asked = asked.map_err(|error| DeployError::Refused(words("GetTemplate", error)))?;
    let template = serde_json::from_str(asked.template_body().unwrap_or_default()).unwrap_or_default();
    let Stack { parameters, stack_status, .. } = stack;
    let pair = |parameter: aws_sdk_cloudformation::types::Parameter| {
        Some((parameter.parameter_key?, parameter.parameter_value?))
    };
    let parameters = parameters.unwrap_or_default().into_iter().filter_map(pair).collect();
    let status = stack_status.unwrap_or(StackStatus::CreateFailed);
    Ok(Some(Found { status, parameters, template }))
}

/// Whether a stack can be changed.
fn is_settled(status: &StackStatus) -> bool {
    matches!(
        status,
        StackStatus::CreateComplete
            | StackStatus::UpdateComplete
            | StackStatus::UpdateRollbackComplete
            | StackStatus::ImportComplete
    )
}

fn differences(before: &BTreeMap<String, Value>, after: &BTreeMap<String, Value>) -> Vec<String> {
    let kind = |resource: &Value| resource.get("Type").and_then(Value::as_str).unwrap_or("?").to_owned();
    let made = after.iter().filter(|(name, _)| !before.contains_key(*name));
    let made = made.map(|(name, resource)| format!("makes {name} ({})", kind(resource)));
    let gone = before.iter().filter(|(name, _)| !after.contains_key(*name));
    let gone = gone.map(|(name, resource)| format!("removes {name} ({})", kind(resource)));
    let other = after.iter().filter(|(name, resource)| before.get(*name).is_some_and(|old| old != *resource));
    let other = other.map(|(name, resource)| format!("changes {name} ({})", kind(resource)));
    made.chain(other).chain(gone).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_name_resources_and_their_kinds() {
        let before =
            json!({ "Resources": { "A": { "Type": "X" }, "B": { "Type": "Y" }, "C": { "Type": "Z" } } });
        let after = json!({ "Resources": { "B": { "Type": "Y", "n": 1 }, "C": { "Type": "Z" }, "D": { "Type": "V" } } });
        let found = differences(&resources_of(&before), &resources_of(&after));
        assert_eq!(found, ["makes D (V)", "changes B (Y)", "removes A (X)"]);
    }
}
