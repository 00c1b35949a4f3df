//! Requests of SQS and S3: any bytes are a request or an error, never a panic; a request in JSON is the same request as a form.
//!
//! The first line is the name of an operation of SQS, and the rest is its body; or it is a method and a target of S3, and the rest
//! are headers.
#![no_main]

use std::fmt::Write as _;

use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value};
use tidemill_aws_wire::RequestHead;
use tidemill_aws_wire::call::{AwsCall, SqsOperation};
use tidemill_aws_wire::dialect::SqsProtocol;
use tidemill_aws_wire::form::FORM_PAIRS_MAX;
use tidemill_aws_wire::s3::{S3Endpoint, S3Request, read_uploaded_parts};
use tidemill_aws_wire::sqs::{SqsBatch, SqsFaultCode, SqsRequest};

const FORM_HEADERS: [(&str, &str); 1] = [("content-type", "application/x-www-form-urlencoded")];

/// Members that hold one value, in a request, an entry or an attribute.
const SINGLE: [&str; 16] = [
    "QueueUrl",
    "MessageBody",
    "DelaySeconds",
    "MessageDeduplicationId",
    "MaxNumberOfMessages",
    "VisibilityTimeout",
    "WaitTimeSeconds",
    "ReceiptHandle",
    "QueueName",
    "QueueNamePrefix",
    "MaxResults",
    "NextToken",
    "Id",
    "DataType",
    "StringValue",
    "BinaryValue",
];

fuzz_target!(|bytes: &[u8]| {
    let line_end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let Ok(line) = std::str::from_utf8(&bytes[..line_end]) else { return };
    let rest = bytes.get(line_end + 1..).unwrap_or_default();
    match SqsOperation::from_name(line) {
        Some(operation) => queue(operation, rest),
        None => object(line, rest),
    }
});

fn queue(operation: SqsOperation, body: &[u8]) {
    let _ = read_form(operation, body);
    let head = RequestHead { method: "POST", path: "/", query: "", headers: &[] };
    let Ok(request) = SqsRequest::read(operation, SqsProtocol::Json, &head, body) else { return };
    // Types are those of JSON: in a form every value is text, and a wrong type cannot be written.
    if has_wrong_type(&request) {
        return;
    }
    let members: Map<String, Value> = serde_json::from_slice(body).expect("it was read before");
    let mut form = format!("Action={}&Version=2012-11-05", operation.name());
    write_members(&mut form, "", operation, &members);
    if form.split('&').count() > FORM_PAIRS_MAX {
        return;
    }
    assert_eq!(read_form(operation, form.as_bytes()).as_ref(), Ok(&request), "{form}");
}

fn read_form(operation: SqsOperation, body: &[u8]) -> Result<SqsRequest, tidemill_aws_wire::sqs::SqsFault> {
    let head = RequestHead { method: "POST", path: "/", query: "", headers: &FORM_HEADERS };
    let _ = AwsCall::read(&head, None, body);
    SqsRequest::read(operation, SqsProtocol::Query, &head, body)
}

fn has_wrong_type(request: &SqsRequest) -> bool {
    fn any<T>(batch: &SqsBatch<T>) -> bool {
        let mut faults = batch.entries.iter().filter_map(|entry| entry.content.as_ref().err());
        faults.any(|fault| fault.code == SqsFaultCode::Serialization)
    }
    match request {
        SqsRequest::SendMessageBatch(batch) => any(batch),
        SqsRequest::DeleteMessageBatch(batch) => any(batch),
        SqsRequest::ChangeMessageVisibilityBatch(batch) => any(batch),
        _ => false,
    }
}

/// Writes a request as a client of the query protocol does.
fn write_members(form: &mut String, prefix: &str, operation: SqsOperation, members: &Map<String, Value>) {
    for (name, value) in members {
        match (name.as_str(), value) {
            (name, Value::String(text)) if SINGLE.contains(&name) => {
                pair(form, &format!("{prefix}{name}"), text)
            }
            (name, Value::Number(number)) if SINGLE.contains(&name) => {
                pair(form, &format!("{prefix}{name}"), &number.to_string());
            }
            (
                "AttributeNames" | "MessageSystemAttributeNames" | "MessageAttributeNames",
                Value::Array(texts),
            ) => {
                let name = name.trim_end_matches('s');
                for (text, at) in texts.iter().filter_map(Value::as_str).zip(1..) {
                    pair(form, &format!("{prefix}{name}.{at}"), text);
                }
            }
            ("Entries", Value::Array(entries)) => {
                for (entry, at) in entries.iter().filter_map(Value::as_object).zip(1..) {
                    let prefix = format!("{prefix}{}RequestEntry.{at}.", operation.name());
                    write_members(form, &prefix, operation, entry);
                }
            }
            ("MessageAttributes" | "MessageSystemAttributes", Value::Object(attributes)) => {
                let list = name.trim_end_matches('s');
                for ((name, attribute), at) in attributes.iter().zip(1..) {
                    pair(form, &format!("{prefix}{list}.{at}.Name"), name);
                    let value = format!("{prefix}{list}.{at}.Value.");
                    write_members(form, &value, operation, attribute.as_object().unwrap_or(&Map::new()));
                }
            }
            ("Attributes", Value::Object(attributes)) => {
                for ((name, value), at) in attributes.iter().zip(1..) {
                    pair(form, &format!("{prefix}Attribute.{at}.Name"), name);
                    pair(form, &format!("{prefix}Attribute.{at}.Value"), value.as_str().unwrap_or_default());
                }
            }
            _ => {}
        }
    }
}

fn pair(form: &mut String, name: &str, value: &str) {
    let _ = write!(form, "&{name}=");
    for byte in value.bytes() {
        let _ = write!(form, "%{byte:02X}");
    }
}

fn object(line: &str, rest: &[u8]) {
    let _ = read_uploaded_parts(rest);
    let (method, target) = line.split_once(' ').unwrap_or(("GET", line));
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let text = String::from_utf8_lossy(rest);
    let headers: Vec<(&str, &str)> = text.lines().filter_map(|line| line.split_once(':')).collect();
    let head = RequestHead { method, path, query, headers: &headers };
    let _ = AwsCall::read(&head, Some("s3"), b"");
    for host in [None, Some("mill.example")] {
        let _ = S3Request::read(&head, S3Endpoint { host, bucket: "bucket" });
    }
}
