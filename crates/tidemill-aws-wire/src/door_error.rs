//! What the door says to a request that it turns away before anybody looks at what it asks for.
//!
//! This is the only place that knows which service calls which trouble by which name.

use crate::dialect::{AwsService, Dialect};
use crate::error_answer::{ErrorParts, error_answer};
use crate::wire_answer::WireAnswer;

/// Why a request does not get through the door.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DoorTrouble {
    /// It has no signature at all.
    NoSignature,
    /// Its key is unknown or revoked.
    UnknownKey,
    /// Its signature is not the one of its key and content.
    WrongSignature,
    /// Its date is too far from ours.
    Date,
    /// The role or the tenants of its key do not allow it.
    Role,
    /// Its key asks too often.
    Rate,
    /// The store is full or has stopped.
    Unavailable,
}

impl DoorTrouble {
    pub const ALL: [Self; 7] = [
        Self::NoSignature,
        Self::UnknownKey,
        Self::WrongSignature,
        Self::Date,
        Self::Role,
        Self::Rate,
        Self::Unavailable,
    ];

    fn message(self) -> &'static str {
        match self {
            Self::NoSignature => "The request is not signed.",
            Self::UnknownKey => "The access key id is not known.",
            Self::WrongSignature => {
                "The request signature we calculated does not match the signature you provided. Check your secret access key and signing method."
            }
            Self::Date => "The difference between the request time and the current time is too large.",
            Self::Role => "The key is not allowed to perform this operation.",
            Self::Rate => "Rate exceeded.",
            Self::Unavailable => "The service cannot take the request now.",
        }
    }
}

/// The status and the code of a trouble at a service.
pub fn door_code(service: AwsService, trouble: DoorTrouble) -> (u16, &'static str) {
    use AwsService::{DynamoDb, EventBridge, S3, Sqs, StepFunctions, Sts};
    match (service, trouble) {
        (DynamoDb | EventBridge | StepFunctions, trouble) => match trouble {
            DoorTrouble::NoSignature => (400, "MissingAuthenticationTokenException"),
            DoorTrouble::UnknownKey => (400, "UnrecognizedClientException"),
            DoorTrouble::WrongSignature | DoorTrouble::Date => (400, "InvalidSignatureException"),
            DoorTrouble::Role => (400, "AccessDeniedException"),
            DoorTrouble::Rate => (400, "ThrottlingException"),
            DoorTrouble::Unavailable => (500, "InternalServerError"),
        },
        (S3, DoorTrouble::UnknownKey) => (403, "InvalidAccessKeyId"),
        (S3, DoorTrouble::Date) => (403, "RequestTimeTooSkewed"),
        (S3, DoorTrouble::Rate) => (503, "SlowDown"),
        (Sqs | Sts | S3, trouble) => match trouble {
            DoorTrouble::NoSignature | DoorTrouble::Role => (403, "AccessDenied"),
            DoorTrouble::UnknownKey => (403, "InvalidClientTokenId"),
            DoorTrouble::WrongSignature | DoorTrouble::Date => (403, "SignatureDoesNotMatch"),
            DoorTrouble::Rate => (403, "ThrottlingException"),
            DoorTrouble::Unavailable => (503, "ServiceUnavailable"),
        },
    }
}

/// The whole answer.
pub fn door_error(dialect: Dialect, trouble: DoorTrouble, request_id: &str) -> WireAnswer {
    let (status, code) = door_code(dialect.service(), trouble);
    error_answer(
        dialect,
        ErrorParts { status, code, query_code: None, message: trouble.message() },
        request_id,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::SqsProtocol;

    /// The table of the specification: JSON services, SQS, S3.
    #[test]
    fn every_trouble_has_the_code_of_its_service() {
        for (trouble, json, sqs, s3) in [
            (
                DoorTrouble::NoSignature,
                (400, "MissingAuthenticationTokenException"),
                (403, "AccessDenied"),
                (403, "AccessDenied"),
            ),
            (
                DoorTrouble::UnknownKey,
                (400, "UnrecognizedClientException"),
                (403, "InvalidClientTokenId"),
                (403, "InvalidAccessKeyId"),
            ),
            (
                DoorTrouble::WrongSignature,
                (400, "InvalidSignatureException"),
                (403, "SignatureDoesNotMatch"),
                (403, "SignatureDoesNotMatch"),
            ),
            (
                DoorTrouble::Date,
                (400, "InvalidSignatureException"),
                (403, "SignatureDoesNotMatch"),
                (403, "RequestTimeTooSkewed"),
            ),
            (DoorTrouble::Role, (400, "AccessDeniedException"), (403, "AccessDenied"), (403, "AccessDenied")),
            (
                DoorTrouble::Rate,
                (400, "ThrottlingException"),
                (403, "ThrottlingException"),
                (503, "SlowDown"),
            ),
            (
                DoorTrouble::Unavailable,
                (500, "InternalServerError"),
                (503, "ServiceUnavailable"),
                (503, "ServiceUnavailable"),
            ),
        ] {
            for service in [AwsService::DynamoDb, AwsService::EventBridge, AwsService::StepFunctions] {
                assert_eq!(door_code(service, trouble), json, "{service:?} {trouble:?}");
            }
            assert_eq!(door_code(AwsService::Sqs, trouble), sqs, "{trouble:?}");
            assert_eq!(door_code(AwsService::S3, trouble), s3, "{trouble:?}");
        }
    }

    #[test]
    fn errors_have_the_form_of_their_protocol() {
        let of = |dialect| {
            let answer = door_error(dialect, DoorTrouble::Role, "r-1");
            (answer.status, answer.headers, String::from_utf8(answer.body).unwrap())
        };
        let (status, headers, body) = of(Dialect::Sqs(SqsProtocol::Json));
        assert_eq!(status, 403);
        assert_eq!(headers, [("x-amzn-query-error".into(), "AccessDenied;Sender".to_owned())]);
        assert!(body.starts_with(r#"{"__type":"com.amazonaws.sqs#AccessDenied","message":"#), "{body}");
        let (_, _, body) = of(Dialect::Sqs(SqsProtocol::Query));
        assert!(body.contains("<ErrorResponse xmlns=\"http://queue.amazonaws.com/doc/2012-11-05/\"><Error><Type>Sender</Type><Code>AccessDenied</Code>"), "{body}");
        let (_, _, body) = of(Dialect::S3);
        assert!(body.contains("<Error><Code>AccessDenied</Code>"), "{body}");
        let (status, _, body) = of(Dialect::DynamoDb);
        assert_eq!(status, 400);
        assert!(body.contains("com.amazonaws.dynamodb.v20120810#AccessDeniedException"), "{body}");
    }
}
