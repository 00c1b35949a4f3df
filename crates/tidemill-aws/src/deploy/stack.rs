//! Making and changing stacks, and waiting until they are there.

use std::time::Duration;

use aws_sdk_cloudformation::error::ProvideErrorMetadata as _;
use aws_sdk_cloudformation::types::{Capability, Parameter, ResourceStatus, StackStatus};
use aws_sdk_s3::primitives::ByteStream;

use super::DeployError;
use super::stack_plan::{Change, Chosen, StackPlan, find};
use crate::connection::Connection;
use crate::fault::words;

/// Between two looks at a stack that is being made.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How many reasons of a failure are reported: the first that went wrong, not everything that was called off because
/// of it.
const REASONS_MAX: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deployed {
    Made,
    Changed,
    /// It is what it should be already.
    AsItWas,
}

/// Does what a plan says, and waits until it is done.
pub async fn deploy(connection: &Connection, plan: &StackPlan) -> Result<Deployed, DeployError> {
    let client = connection.cloudformation();
    let parameters = plan.parameters.iter().map(|(name, chosen)| {
        let parameter = Parameter::builder().parameter_key(name);
        match chosen {
            Chosen::Value(value) => parameter.parameter_value(value).build(),
            Chosen::AsBefore => parameter.use_previous_value(true).build(),
        }
    });
    let parameters = Some(parameters.collect::<Vec<_>>());
    let done = match &plan.change {
        Change::Nothing => return Ok(Deployed::AsItWas),
        Change::Stuck(status) => {
            let reasons = vec![format!(
                "it can be deployed when that is over; if it stays so, look at it with `aws cloudformation \
                 describe-stack-events --stack-name {}`",
                plan.name
            )];
            return Err(DeployError::Failed { stack: plan.name.clone(), status: status.clone(), reasons });
        }
        Change::Create { .. } | Change::Again { .. } => {
            if matches!(plan.change, Change::Again { .. }) {
                remove(connection, &plan.name).await?;
            }
            let create = client.create_stack().stack_name(&plan.name).template_body(plan.stack.text);
            let create = create.set_parameters(parameters).capabilities(Capability::CapabilityNamedIam);
            create.send().await.map_err(|error| DeployError::Refused(words("CreateStack", error)))?;
            Deployed::Made
        }
        Change::Update(_) => {
            let update = client.update_stack().stack_name(&plan.name).template_body(plan.stack.text);
            let update = update.set_parameters(parameters).capabilities(Capability::CapabilityNamedIam);
            match update.send().await {
                Ok(_) => {}
                Err(error) if error.message().is_some_and(|words| words.contains("No updates")) => {
                    return Ok(Deployed::AsItWas);
                }
                Err(error) => return Err(DeployError::Refused(words("UpdateStack", error))),
            }
            Deployed::Changed
        }
    };
    settled(connection, &plan.name).await?;
    Ok(done)
}

/// Removes a stack whose making failed, and waits until it is gone.
async fn remove(connection: &Connection, name: &str) -> Result<(), DeployError> {
    let delete = connection.cloudformation().delete_stack().stack_name(name).send().await;
    delete.map_err(|error| DeployError::Refused(words("DeleteStack", error)))?;
    while let Some(found) = find(connection, name).await? {
        if found.status == StackStatus::DeleteFailed {
            let reasons = vec!["its first try failed, and what is left of it cannot be removed".to_owned()];
            let (stack, status) = (name.to_owned(), found.status.as_str().to_owned());
            return Err(DeployError::Failed { stack, status, reasons });
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

async fn settled(connection: &Connection, name: &str) -> Result<(), DeployError> {
    loop {
        let status = find(connection, name).await?.map_or(StackStatus::DeleteComplete, |found| found.status);
        match status {
            // During the cleanup the new is there already; only the old is being removed.
            StackStatus::CreateComplete
            | StackStatus::UpdateComplete
            | StackStatus::UpdateCompleteCleanupInProgress => return Ok(()),
            status if status.as_str().ends_with("_IN_PROGRESS") => tokio::time::sleep(LOOK_EVERY).await,
            status => {
                let reasons = reasons(connection, name).await;
                let (stack, status) = (name.to_owned(), status.as_str().to_owned());
                return Err(DeployError::Failed { stack, status, reasons });
            }
        }
    }
}

/// What went wrong in the latest change, the first first.
async fn reasons(connection: &Connection, name: &str) -> Vec<String> {
    let client = connection.cloudformation();
    let asked = match client.describe_stack_events().stack_name(name).send().await {
        Ok(asked) => asked,
        Err(error) => return vec![words("its events cannot be read", error)],
    };
    let mut found: Vec<_> = asked
        .stack_events
        .unwrap_or_default()
        .into_iter()
        .take_while(|event| {
            // The newest come first; the change began where the stack itself began.
            let is_stack = event.physical_resource_id == event.stack_id;
            let begins = [ResourceStatus::CreateInProgress, ResourceStatus::UpdateInProgress];
            !(is_stack && event.resource_status.as_ref().is_some_and(|status| begins.contains(status)))
        })
        .filter(|event| {
            let failed = [ResourceStatus::CreateFailed, ResourceStatus::UpdateFailed];
            event.resource_status.as_ref().is_some_and(|status| failed.contains(status))
        })
        .map(|event| {
            let resource = event.logical_resource_id.unwrap_or_default();
            format!("{resource}: {}", event.resource_status_reason.unwrap_or_default())
        })
        .collect();
    found.reverse();
    found.truncate(REASONS_MAX);
    found
}

/// Puts the code of the functions where the stacks find it.
pub async fn upload_code(
    connection: &Connection,
    bucket: &str,
    key: &str,
    zip: Vec<u8>,
) -> Result<(), DeployError> {
    let put = connection.s3.put_object().bucket(bucket).key(key).body(ByteStream::from(zip));
    put.send().await.map(drop).map_err(|error| DeployError::Refused(words("PutObject", error)))
}
