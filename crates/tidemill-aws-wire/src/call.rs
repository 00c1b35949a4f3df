//! Calls: which operation of which service a request asks for.
//!
//! An operation that is not in these enums is not served, and [`NotServed`] says so in the words of its service.

use crate::RequestHead;
use crate::dialect::{Dialect, SqsProtocol, form_of, target};
use crate::error_answer::{ErrorParts, error_answer};
use crate::wire_answer::WireAnswer;

/// Declares an enum of operations whose variants are named as on the wire.
macro_rules! operations {
    ($(#[$comment:meta])* $name:ident { $($operation:ident),+ $(,)? }) => {
        $(#[$comment])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($operation),+ }

        impl $name {
            pub const ALL: &'static [Self] = &[$(Self::$operation),+];

            /// As it is named on the wire.
            pub fn name(self) -> &'static str {
                match self { $(Self::$operation => stringify!($operation)),+ }
            }

            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|operation| operation.name() == name)
            }
        }
    };
}

operations! {
    /// What is served of SQS.
    SqsOperation {
        SendMessage, SendMessageBatch, ReceiveMessage, DeleteMessage, DeleteMessageBatch, ChangeMessageVisibility,
        ChangeMessageVisibilityBatch, GetQueueUrl, GetQueueAttributes, ListQueues, CreateQueue,
    }
}

operations! {
    /// What is served of DynamoDB.
    DynamoDbOperation {
        Query, GetItem, PutItem, BatchGetItem, BatchWriteItem, DescribeTable, Scan, ListTables, DescribeTimeToLive,
    }
}

operations! {
    /// What is served of EventBridge.
    EventBridgeOperation { PutEvents, ListEventBuses, DescribeEventBus }
}

operations! {
    /// What is served of Step Functions.
    StepFunctionsOperation { SendTaskSuccess, SendTaskFailure, SendTaskHeartbeat }
}

operations! {
    /// What is served of STS.
    StsOperation { GetCallerIdentity }
}

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AwsCall {
    Sqs(SqsOperation, SqsProtocol),
    DynamoDb(DynamoDbOperation),
    EventBridge(EventBridgeOperation),
    StepFunctions(StepFunctionsOperation),
    Sts(StsOperation),
    /// The operation is in method, path, query and headers together: [`crate::s3::S3Request::read`] finds it.
    S3,
}

/// A request for something that is not served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotServed {
    /// The service is known, the operation is not.
    #[error("operation {operation:?} is not supported")]
    Operation { dialect: Dialect, operation: String },
    /// Items of the table are events, and events do not change.
    #[error("operation {operation:?} is not allowed: events of the table are never changed or deleted")]
    ChangeOfEvents { operation: &'static str },
    /// Neither the head nor the scope of the signature names a service that is known.
    #[error("the request names no service that is supported")]
    Service,
}

impl AwsCall {
    /// Finds the call. `scope_service` is the service that the scope of the signature names; `body` is looked at only if the
    /// request is a form, and never if the scope says S3. A form for another service than the scope names is refused: what was
    /// signed for one service is no call of another.
    pub fn read(head: &RequestHead<'_>, scope_service: Option<&str>, body: &[u8]) -> Result<Self, NotServed> {
        let dialect = Dialect::of(head, scope_service);
        if dialect == Some(Dialect::S3) {
            return Ok(Self::S3);
        }
        if let Some((dialect, operation)) = target(head) {
            return Self::named(dialect, operation);
        }
        let form = form_of(head, body).unwrap_or_default();
        let value = |name| form.iter().rfind(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let dialect = value("Version").and_then(Dialect::of_version).or(dialect).ok_or(NotServed::Service)?;
        if scope_service.is_some_and(|scope| scope != dialect.service().scope_name()) {
            return Err(NotServed::Service);
        }
        // The other services are called by a target alone.
        let has_actions = matches!(dialect, Dialect::Sqs(SqsProtocol::Query) | Dialect::Sts);
        Self::named(dialect, value("Action").filter(|_| has_actions).unwrap_or_default())
    }

    pub fn dialect(self) -> Dialect {
        match self {
            Self::Sqs(_, protocol) => Dialect::Sqs(protocol),
            Self::DynamoDb(_) => Dialect::DynamoDb,
            Self::EventBridge(_) => Dialect::EventBridge,
            Self::StepFunctions(_) => Dialect::StepFunctions,
            Self::Sts(_) => Dialect::Sts,
            Self::S3 => Dialect::S3,
        }
    }

    fn named(dialect: Dialect, name: &str) -> Result<Self, NotServed> {
        let call = match dialect {
            Dialect::Sqs(protocol) => {
                SqsOperation::from_name(name).map(|operation| Self::Sqs(operation, protocol))
            }
            Dialect::DynamoDb => match name {
                "UpdateItem" => return Err(NotServed::ChangeOfEvents { operation: "UpdateItem" }),
                "DeleteItem" => return Err(NotServed::ChangeOfEvents { operation: "DeleteItem" }),
                _ => DynamoDbOperation::from_name(name).map(Self::DynamoDb),
            },
            Dialect::EventBridge => EventBridgeOperation::from_name(name).map(Self::EventBridge),
            Dialect::StepFunctions => StepFunctionsOperation::from_name(name).map(Self::StepFunctions),
            Dialect::Sts => StsOperation::from_name(name).map(Self::Sts),
            Dialect::S3 => Some(Self::S3),
        };
        call.ok_or_else(|| NotServed::Operation { dialect, operation: name.to_owned() })
    }
}

impl NotServed {
    /// The error as the service says it.
    pub fn answer(&self, request_id: &str) -> WireAnswer {
        let (dialect, status, code, query_code) = match self {
            Self::Operation { dialect: dialect @ Dialect::Sqs(_), .. } => {
                (*dialect, 400, "UnsupportedOperation", Some("AWS.SimpleQueueService.UnsupportedOperation"))
            }
            Self::Operation { dialect: Dialect::S3, .. } => (Dialect::S3, 501, "NotImplemented", None),
            Self::Operation { dialect, .. } => (*dialect, 400, "UnknownOperationException", None),
            Self::ChangeOfEvents { .. } => (Dialect::DynamoDb, 400, "AccessDeniedException", None),
            // A form of JSON that every client reads, for a service that is not known.
            Self::Service => (Dialect::StepFunctions, 400, "UnknownOperationException", None),
        };
        error_answer(dialect, ErrorParts { status, code, query_code, message: &self.to_string() }, request_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: (&str, &str) = ("Content-Type", "application/x-www-form-urlencoded; charset=utf-8");

    fn read(headers: &[(&str, &str)], scope: &str, query: &str, body: &str) -> Result<AwsCall, NotServed> {
        let head = RequestHead { method: "POST", path: "/", query, headers };
        AwsCall::read(&head, (!scope.is_empty()).then_some(scope), body.as_bytes())
    }

    #[test]
    fn a_target_a_form_or_the_scope_names_the_call() {
        let target = |value| vec![("x-amz-target", value)];
        let query = SqsProtocol::Query;
        for (headers, scope, in_query, body, expected) in [
            (
                target("AmazonSQS.SendMessage"),
                "sqs",
                "",
                "",
                AwsCall::Sqs(SqsOperation::SendMessage, SqsProtocol::Json),
            ),
            (
                target("DynamoDB_20120810.Query"),
                "dynamodb",
                "",
                "",
                AwsCall::DynamoDb(DynamoDbOperation::Query),
            ),
            (
                target("AWSEvents.PutEvents"),
                "events",
                "",
                "",
                AwsCall::EventBridge(EventBridgeOperation::PutEvents),
            ),
            (
                target("AWSStepFunctions.SendTaskSuccess"),
                "",
                "",
                "",
                AwsCall::StepFunctions(StepFunctionsOperation::SendTaskSuccess),
            ),
            (
                vec![FORM],
                "",
                "",
                "Action=ListQueues&Version=2012-11-05",
                AwsCall::Sqs(SqsOperation::ListQueues, query),
            ),
            (vec![FORM], "sqs", "", "Action=ListQueues", AwsCall::Sqs(SqsOperation::ListQueues, query)),
            (
                vec![],
                "",
                "Version=2012-11-05&Action=ListQueues",
                "",
                AwsCall::Sqs(SqsOperation::ListQueues, query),
            ),
            (
                vec![FORM],
                "",
                "",
                "Action=GetCallerIdentity&Version=2011-06-15",
                AwsCall::Sts(StsOperation::GetCallerIdentity),
            ),
            (
                vec![FORM],
                "sts",
                "",
                "Action=GetCallerIdentity",
                AwsCall::Sts(StsOperation::GetCallerIdentity),
            ),
            (vec![], "s3", "", "", AwsCall::S3),
            // An object that looks like a form is an object.
            (vec![FORM], "s3", "", "Action=ListQueues&Version=2012-11-05", AwsCall::S3),
        ] {
            assert_eq!(read(&headers, scope, in_query, body), Ok(expected), "{headers:?} {scope} {body}");
        }
    }

    /// A page can make a browser follow a link, and a link may name any call in its query.
    #[test]
    fn a_form_is_read_from_a_post_only() {
        for (scope, query) in [
            ("sqs", "Action=SendMessage&Version=2012-11-05&MessageBody=a"),
            ("", "Action=ListQueues&Version=2012-11-05"),
            ("sts", "Action=GetCallerIdentity&Version=2011-06-15"),
        ] {
            for (method, is_served) in [("POST", true), ("GET", false), ("HEAD", false), ("PUT", false)] {
                for headers in [&[][..], &[FORM][..]] {
                    let head = RequestHead { method, path: "/000000000000/tasks", query, headers };
                    let call = AwsCall::read(&head, (!scope.is_empty()).then_some(scope), query.as_bytes());
                    assert_eq!(call.is_ok(), is_served, "{method} {query}: {call:?}");
                }
            }
        }
    }

    #[test]
    fn a_form_is_for_the_service_of_the_scope() {
        let (queues, identity) = ("Action=ListQueues&Version=2012-11-05", "Action=GetCallerIdentity");
        for (scope, form, is_served) in [
            ("sqs", queues, true),
            ("", queues, true),
            ("sts", queues, false),
            ("events", queues, false),
            ("dynamodb", queues, false),
            ("logs", queues, false),
            ("sts", identity, true),
            ("sqs", "Action=GetCallerIdentity&Version=2011-06-15", false),
            ("dynamodb", "Action=PutItem", false),
            ("events", "Action=PutEvents", false),
            ("states", "Action=SendTaskSuccess", false),
        ] {
            for (query, body) in [(form, ""), ("", form)] {
                let call = read(&[FORM], scope, query, body);
                assert_eq!(call.is_ok(), is_served, "{scope} {form}: {call:?}");
            }
        }
    }

    #[test]
    fn what_is_not_served_is_refused_in_the_words_of_its_service() {
        for (headers, scope, body, status, code) in [
            (
                vec![("X-Amz-Target", "AmazonSQS.PurgeQueue")],
                "sqs",
                "",
                400,
                "com.amazonaws.sqs#UnsupportedOperation",
            ),
            (
                vec![FORM],
                "sqs",
                "Action=PurgeQueue&Version=2012-11-05",
                400,
                "<Code>AWS.SimpleQueueService.UnsupportedOperation</Code>",
            ),
            (vec![], "sqs", "", 400, "<Code>AWS.SimpleQueueService.UnsupportedOperation</Code>"),
            (
                vec![("X-Amz-Target", "DynamoDB_20120810.UpdateItem")],
                "dynamodb",
                "",
                400,
                "#AccessDeniedException",
            ),
            (
                vec![("X-Amz-Target", "DynamoDB_20120810.DeleteItem")],
                "dynamodb",
                "",
                400,
                "#AccessDeniedException",
            ),
            (
                vec![("X-Amz-Target", "DynamoDB_20120810.CreateTable")],
                "dynamodb",
                "",
                400,
                "#UnknownOperationException",
            ),
            (vec![("X-Amz-Target", "AWSEvents.PutRule")], "events", "", 400, "\"UnknownOperationException\""),
            (
                vec![("X-Amz-Target", "AWSStepFunctions.StartExecution")],
                "states",
                "",
                400,
                "\"UnknownOperationException\"",
            ),
            (
                vec![("X-Amz-Target", "Logs_20140328.PutLogEvents")],
                "logs",
                "",
                400,
                "\"UnknownOperationException\"",
            ),
            (vec![FORM], "sts", "Action=AssumeRole", 400, "<Code>UnknownOperationException</Code>"),
            (vec![], "", "", 400, "\"UnknownOperationException\""),
        ] {
            let answer = read(&headers, scope, "", body).unwrap_err().answer("r-1");
            let text = String::from_utf8(answer.body).unwrap();
            assert_eq!(answer.status, status, "{text}");
            assert!(text.contains(code), "{code} in {text}");
        }
    }
}
