//! Errors in the form that each protocol gives them. Which error it is, is decided elsewhere.

use serde_json::json;

use crate::dialect::{Dialect, SqsProtocol};
use crate::wire_answer::{APPLICATION_XML, JSON_1_0, JSON_1_1, TEXT_XML, WireAnswer};
use crate::xml::XmlWriter;

/// The namespace of answers of SQS in XML.
pub const SQS_NAMESPACE: &str = "http://queue.amazonaws.com/doc/2012-11-05/";
/// The namespace of answers of STS.
pub const STS_NAMESPACE: &str = "https://sts.amazonaws.com/doc/2011-06-15/";

/// An error before it has a form.
#[derive(Debug, Clone, Copy)]
pub struct ErrorParts<'e> {
    pub status: u16,
    /// As the model of the service names it, which is what clients of JSON match on.
    pub code: &'e str,
    /// As the query protocol of SQS names it, if that is another name.
    pub query_code: Option<&'e str>,
    pub message: &'e str,
}

/// The error as `dialect` writes it.
pub fn error_answer(dialect: Dialect, error: ErrorParts<'_>, request_id: &str) -> WireAnswer {
    let ErrorParts { status, code, message, .. } = error;
    let query_code = error.query_code.unwrap_or(code);
    let fault = if status < 500 { "Sender" } else { "Receiver" };
    match dialect {
        Dialect::Sqs(SqsProtocol::Json) => {
            let body = json!({"__type": format!("com.amazonaws.sqs#{code}"), "message": message});
            // Clients that once spoke the query protocol show this code to their callers.
            WireAnswer::json(status, JSON_1_0, &body)
                .with_header("x-amzn-query-error", format!("{query_code};{fault}"))
        }
        Dialect::Sqs(SqsProtocol::Query) => {
            query_error(status, SQS_NAMESPACE, fault, query_code, message, request_id)
        }
        Dialect::Sts => query_error(status, STS_NAMESPACE, fault, query_code, message, request_id),
        Dialect::DynamoDb => {
            let body =
                json!({"__type": format!("com.amazonaws.dynamodb.v20120810#{code}"), "message": message});
            WireAnswer::json(status, JSON_1_0, &body)
        }
        Dialect::EventBridge => {
            WireAnswer::json(status, JSON_1_1, &json!({"__type": code, "message": message}))
        }
        Dialect::StepFunctions => {
            WireAnswer::json(status, JSON_1_0, &json!({"__type": code, "message": message}))
        }
        Dialect::S3 => {
            let body = XmlWriter::document("Error", None, |writer| {
                writer.text("Code", code);
                writer.text("Message", message);
                writer.text("RequestId", request_id);
            });
            WireAnswer::xml(status, APPLICATION_XML, body)
        }
    }
}

fn query_error(
    status: u16,
    namespace: &str,
    fault: &str,
    code: &str,
    message: &str,
    request_id: &str,
) -> WireAnswer {
    let body = XmlWriter::document("ErrorResponse", Some(namespace), |writer| {
        writer.element("Error", |writer| {
            writer.text("Type", fault);
            writer.text("Code", code);
            writer.text("Message", message);
        });
        writer.text("RequestId", request_id);
    });
    WireAnswer::xml(status, TEXT_XML, body)
}
