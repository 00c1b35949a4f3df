//! Which role may make which call.

use tidemill_aws_wire::call::{AwsCall, DynamoDbOperation, EventBridgeOperation, SqsOperation};

use crate::api::Role;

const EVERYBODY: &[Role] = &[Role::Reader, Role::Producer, Role::Worker, Role::Admin];
const SENDERS: &[Role] = &[Role::Producer, Role::Admin];
const WRITERS: &[Role] = &[Role::Producer, Role::Worker, Role::Admin];
const RECEIVERS: &[Role] = &[Role::Worker, Role::Admin];
const ADMINS: &[Role] = &[Role::Admin];

/// The roles that may make a call. What S3 is asked for is not known yet: its own module asks again for what writes.
pub(crate) fn roles_of(call: AwsCall) -> &'static [Role] {
    match call {
        AwsCall::Sqs(operation, _) => match operation {
            SqsOperation::SendMessage | SqsOperation::SendMessageBatch => SENDERS,
            SqsOperation::ReceiveMessage
            | SqsOperation::DeleteMessage
            | SqsOperation::DeleteMessageBatch
            | SqsOperation::ChangeMessageVisibility
            | SqsOperation::ChangeMessageVisibilityBatch => RECEIVERS,
            SqsOperation::GetQueueUrl
            | SqsOperation::GetQueueAttributes
            | SqsOperation::ListQueues
            | SqsOperation::CreateQueue => EVERYBODY,
        },
        AwsCall::DynamoDb(DynamoDbOperation::PutItem | DynamoDbOperation::BatchWriteItem)
        | AwsCall::EventBridge(EventBridgeOperation::PutEvents) => WRITERS,
        AwsCall::DynamoDb(_) | AwsCall::EventBridge(_) | AwsCall::Sts(_) | AwsCall::S3 => EVERYBODY,
        AwsCall::StepFunctions(_) => ADMINS,
    }
}

#[cfg(test)]
mod tests {
    use tidemill_aws_wire::call::{StepFunctionsOperation, StsOperation};
    use tidemill_aws_wire::dialect::SqsProtocol;

    use super::*;

    #[test]
    fn every_role_has_its_calls() {
        let sqs = |operation| AwsCall::Sqs(operation, SqsProtocol::Json);
        for (call, reader, producer, worker) in [
            (AwsCall::DynamoDb(DynamoDbOperation::Query), true, true, true),
            (AwsCall::DynamoDb(DynamoDbOperation::PutItem), false, true, true),
            (AwsCall::DynamoDb(DynamoDbOperation::BatchWriteItem), false, true, true),
            (AwsCall::EventBridge(EventBridgeOperation::PutEvents), false, true, true),
            (AwsCall::EventBridge(EventBridgeOperation::DescribeEventBus), true, true, true),
            (sqs(SqsOperation::SendMessage), false, true, false),
            (sqs(SqsOperation::SendMessageBatch), false, true, false),
            (sqs(SqsOperation::ReceiveMessage), false, false, true),
            (sqs(SqsOperation::DeleteMessageBatch), false, false, true),
            (sqs(SqsOperation::GetQueueAttributes), true, true, true),
            (AwsCall::Sts(StsOperation::GetCallerIdentity), true, true, true),
            (AwsCall::StepFunctions(StepFunctionsOperation::SendTaskSuccess), false, false, false),
        ] {
            let may = |role| roles_of(call).contains(&role);
            let found = (may(Role::Reader), may(Role::Producer), may(Role::Worker));
            assert_eq!(found, (reader, producer, worker), "{call:?}");
            assert!(may(Role::Admin), "{call:?}");
        }
    }
}
