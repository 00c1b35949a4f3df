//! Which service a request is for, and in which protocol it wants its answer.
//!
//! This is known from the head alone, before a body is read: a request that the door turns away gets its error in the form
//! that its client can parse.

use crate::RequestHead;
use crate::form::read_form;

/// The media type of the query protocol.
const FORM: &str = "application/x-www-form-urlencoded";
/// The version that a form for SQS names.
pub(crate) const SQS_VERSION: &str = "2012-11-05";
/// The version that a form for STS names.
pub(crate) const STS_VERSION: &str = "2011-06-15";

/// A service that the gateway knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AwsService {
    Sqs,
    DynamoDb,
    EventBridge,
    StepFunctions,
    Sts,
    S3,
}

impl AwsService {
    pub const ALL: [Self; 6] =
        [Self::Sqs, Self::DynamoDb, Self::EventBridge, Self::StepFunctions, Self::Sts, Self::S3];

    /// As the scope of a signature names it.
    pub fn scope_name(self) -> &'static str {
        match self {
            Self::Sqs => "sqs",
            Self::DynamoDb => "dynamodb",
            Self::EventBridge => "events",
            Self::StepFunctions => "states",
            Self::Sts => "sts",
            Self::S3 => "s3",
        }
    }

    pub fn from_scope_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|service| service.scope_name() == name)
    }
}

/// The two protocols of SQS: current SDKs speak JSON, older ones forms and XML.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SqsProtocol {
    Json,
    Query,
}

/// A service and the protocol in which it is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    Sqs(SqsProtocol),
    DynamoDb,
    EventBridge,
    StepFunctions,
    Sts,
    S3,
}

impl Dialect {
    /// What the head of a request and the service in the scope of its signature say; none if neither says anything known.
    pub fn of(head: &RequestHead<'_>, scope_service: Option<&str>) -> Option<Self> {
        let scope = scope_service.and_then(AwsService::from_scope_name);
        // First, because an object may be uploaded with any headers and any media type.
        if scope == Some(AwsService::S3) {
            return Some(Self::S3);
        }
        if let Some((dialect, _)) = target(head) {
            return Some(dialect);
        }
        Some(match scope? {
            AwsService::Sqs if head.header("x-amz-target").is_none() => Self::Sqs(SqsProtocol::Query),
            AwsService::Sqs => Self::Sqs(SqsProtocol::Json),
            AwsService::DynamoDb => Self::DynamoDb,
            AwsService::EventBridge => Self::EventBridge,
            AwsService::StepFunctions => Self::StepFunctions,
            AwsService::Sts => Self::Sts,
            AwsService::S3 => Self::S3,
        })
    }

    /// The dialect of a form by the version it names.
    pub(crate) fn of_version(version: &str) -> Option<Self> {
        match version {
            SQS_VERSION => Some(Self::Sqs(SqsProtocol::Query)),
            STS_VERSION => Some(Self::Sts),
            _ => None,
        }
    }

    pub fn service(self) -> AwsService {
        match self {
            Self::Sqs(_) => AwsService::Sqs,
            Self::DynamoDb => AwsService::DynamoDb,
            Self::EventBridge => AwsService::EventBridge,
            Self::StepFunctions => AwsService::StepFunctions,
            Self::Sts => AwsService::Sts,
            Self::S3 => AwsService::S3,
        }
    }
}

/// The dialect and the operation that `X-Amz-Target` names.
pub(crate) fn target<'r>(head: &RequestHead<'r>) -> Option<(Dialect, &'r str)> {
    let (prefix, operation) = head.header("x-amz-target")?.split_once('.')?;
    let dialect = match prefix {
        "AmazonSQS" => Dialect::Sqs(SqsProtocol::Json),
        "DynamoDB_20120810" => Dialect::DynamoDb,
        "AWSEvents" => Dialect::EventBridge,
        "AWSStepFunctions" => Dialect::StepFunctions,
        _ => return None,
    };
    Some((dialect, operation))
}

/// The pairs of a request in the query protocol: those of its query, then those of its body. None if it is no form.
///
/// Only a POST is one, as all clients send it. A link on any page makes a GET, and a GET must not change anything.
pub(crate) fn form_of(head: &RequestHead<'_>, body: &[u8]) -> Option<Vec<(String, String)>> {
    if head.method != "POST" {
        return None;
    }
    let in_body = head.media_type().is_some_and(|media_type| media_type.eq_ignore_ascii_case(FORM));
    let mut pairs = read_form(head.query.as_bytes()).ok()?;
    if in_body {
        pairs.extend(read_form(body).ok()?);
    }
    pairs.iter().any(|(name, _)| name == "Action").then_some(pairs)
}
