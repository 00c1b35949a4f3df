//! What deploying would do, found by looking only.

use std::collections::BTreeMap;

use aws_sdk_cloudformation::error::ProvideErrorMetadata as _;
use aws_sdk_cloudformation::types::{Stack, StackStatus};
use serde_json::Value;

use super::DeployError;
use super::template::{Declared, StackTemplate, resources_of};
use crate::connection::Connection;
use crate::fault::words;

/// What would become of one stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StackPlan {
    pub stack: StackTemplate,
    pub name: String,
    pub change: Change,
    /// All parameters that it would have.
    pub(super) parameters: BTreeMap<String, Chosen>,
}

/// What a parameter would be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Chosen {
    Value(String),
    /// What it is. AWS shows no secret, so it cannot be sent again.
    AsBefore,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It is not there yet: a deployment would create this many resources.
    Create {
        resources: usize,
    },
    /// The first try failed and left nothing: a deployment would remove what remains of it, and create this many
    /// resources.
    Again {
        resources: usize,
    },
    /// What would change, a line each.
    Update(Vec<String>),
    Nothing,
    /// It cannot be deployed now: it is being changed, or it failed so that somebody must look at it.
    Stuck(String),
}

/// What is there of a stack.
pub(super) struct Found {
    pub(super) status: StackStatus,
    pub(super) parameters: BTreeMap<String, String>,
    template: Value,
}

/// Compares a stack with its template. Parameters that nobody gives stay as they are.
pub async fn plan(
    connection: &Connection,
    stack: StackTemplate,
    stage: &str,
    given: &BTreeMap<String, String>,
) -> Result<StackPlan, DeployError> {
    let name = stack.stack_name(stage);
    let declared = stack.parameters();
    let problems = problems(&declared, stage, given);
    if !problems.is_empty() {
        return Err(DeployError::Wrong { stack: name, problems });
    }
    let found = find(connection, &name).await?;
    let failed = found.as_ref().is_some_and(|found| found.status == StackStatus::RollbackComplete);
    // What a stack that was never made was given is nothing to go on with.
    let before = found.as_ref().filter(|_| !failed).map(|found| &found.parameters);
    let Choice { parameters, mut lines, missing } = choose(declared, stage, given, before);
    let is_stuck = found.as_ref().is_some_and(|found| !failed && !is_settled(&found.status));
    if !is_stuck && !missing.is_empty() {
        return Err(DeployError::Missing { stack: name, names: missing });
    }
    let resources = stack.resources();
    let change = match &found {
        None => Change::Create { resources: resources.len() },
        Some(_) if failed => Change::Again { resources: resources.len() },
        Some(found) if !is_settled(&found.status) => Change::Stuck(found.status.as_str().to_owned()),
        Some(found) => {
            lines.extend(differences(&resources_of(&found.template), &resources));
            let is_other = found.template != serde_json::from_str::<Value>(stack.text).unwrap_or_default();
            if lines.is_empty() && is_other {
                lines.push("the template, though no resource of it".to_owned());
            }
            if lines.is_empty() { Change::Nothing } else { Change::Update(lines) }
        }
    };
    Ok(StackPlan { stack, name, change, parameters })
}

/// What becomes of the parameters of a stack.
#[derive(Debug, Default, PartialEq, Eq)]
struct Choice {
    parameters: BTreeMap<String, Chosen>,
    /// What changes, for people.
    lines: Vec<String>,
    missing: Vec<String>,
}

/// What is wrong with what was given.
fn problems(declared: &[Declared], stage: &str, given: &BTreeMap<String, String>) -> Vec<String> {
    let value = |declared: &Declared| match declared.name.as_str() {
        "Stage" => declared.problem(stage),
        name => declared.problem(given.get(name)?),
    };
    declared.iter().filter_map(value).collect()
}

/// What is given counts, else what was before, else the default.
fn choose(
    declared: Vec<Declared>,
    stage: &str,
    given: &BTreeMap<String, String>,
    before: Option<&BTreeMap<String, String>>,
) -> Choice {
    let mut choice = Choice::default();
    for declared in declared {
        let before = before.and_then(|before| before.get(&declared.name));
        let is_stage = declared.name == "Stage";
        let value = if is_stage { Some(stage.to_owned()) } else { given.get(&declared.name).cloned() };
        let chosen = match (value, before, &declared.default) {
            (Some(value), _, _) => Chosen::Value(value),
            (None, Some(_), _) => Chosen::AsBefore,
            (None, None, Some(default)) => Chosen::Value(default.clone()),
            (None, None, None) => {
                choice.missing.push(declared.name);
                continue;
            }
        };
        if let Chosen::Value(value) = &chosen {
            // CloudFormation does not show us a secret either.
            if declared.secret && given.contains_key(&declared.name) {
                choice.lines.push(format!("parameter {} is given", declared.name));
            } else if let Some(before) = before.filter(|before| *before != value && !declared.secret) {
                choice.lines.push(format!("parameter {}: {before} -> {value}", declared.name));
            }
        }
        choice.parameters.insert(declared.name, chosen);
    }
    choice
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

    use super::super::template::STACKS;
    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    /// AWS tells stars for a secret. Were they sent back, they would be the secret.
    #[test]
    fn what_nobody_gives_stays_and_is_not_sent_back() {
        let (dispatcher, given) = (STACKS[2], pairs(&[("CodeKey", "lambda/2.zip")]));
        let before = pairs(&[
            ("Stage", "dev"),
            ("CodeBucket", "b"),
            ("CodeKey", "lambda/1.zip"),
            ("TenantId", "acme"),
            ("SlackBotToken", "****"),
            ("AlertChannel", "#ops"),
        ]);
        let choice = choose(dispatcher.parameters(), "dev", &given, Some(&before));
        assert_eq!(choice.parameters["SlackBotToken"], Chosen::AsBefore);
        assert_eq!(choice.parameters["AlertChannel"], Chosen::AsBefore);
        assert_eq!(choice.parameters["CodeKey"], Chosen::Value("lambda/2.zip".to_owned()));
        assert_eq!(choice.lines, ["parameter CodeKey: lambda/1.zip -> lambda/2.zip"]);
        // One that the stack did not have yet.
        assert_eq!(choice.parameters["AppName"], Chosen::Value("task-workflow".to_owned()));
        assert_eq!(choice.missing, Vec::<String>::new());
        let nothing = choose(dispatcher.parameters(), "dev", &BTreeMap::new(), None);
        assert_eq!(nothing.missing, ["CodeBucket", "CodeKey", "TenantId"]);
    }

    #[test]
    fn differences_name_resources_and_their_kinds() {
        let before =
            json!({ "Resources": { "A": { "Type": "X" }, "B": { "Type": "Y" }, "C": { "Type": "Z" } } });
        let after = json!({ "Resources": { "B": { "Type": "Y", "n": 1 }, "C": { "Type": "Z" }, "D": { "Type": "V" } } });
        let found = differences(&resources_of(&before), &resources_of(&after));
        assert_eq!(found, ["makes D (V)", "changes B (Y)", "removes A (X)"]);
    }
}
