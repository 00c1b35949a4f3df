//! Answers of every kind, compared with a file that the parsers of botocore were tried on.
//!
//! If an answer is to change, copy the file that the failing test names over `fixtures/answers.json` and run
//! `fixtures/parse_answers.py`.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use tidemill_aws_wire::WireAnswer;
use tidemill_aws_wire::dialect::{Dialect, SqsProtocol};
use tidemill_aws_wire::door_error::{DoorTrouble, door_error};
use tidemill_aws_wire::eventbridge::{
    EventBusShown, RefusedEntry, bus_not_found, describe_event_bus_answer, list_event_buses_answer,
    put_events_answer,
};
use tidemill_aws_wire::s3::{
    ListObjects, ListedObject, ObjectHead, S3Endpoint, S3Fault, S3FaultCode, S3Operation, S3Request,
    bucket_head, bucket_location, etag_of, etag_of_parts, object_head, object_put, upload_completed,
    upload_created,
};
use tidemill_aws_wire::sqs::{
    AttributeContent, MessageAttribute, OutgoingMessage, SentMessage, SqsAnswer, SqsBatchOutcome, SqsFault,
    SqsFaultCode, SqsMessage,
};
use tidemill_aws_wire::step_functions::{TokenTrouble, task_report_answer};
use tidemill_aws_wire::sts::caller_identity;
use tidemill_aws_wire::{RequestHead, wire_date::read_iso_date};

const REQUEST_ID: &str = "00000000-0000-0000-0000-000000000001";
const URL: &str = "http://localhost:7171/000000000000/task-queue";

fn attributes() -> BTreeMap<String, MessageAttribute> {
    let binary = AttributeContent::Binary(vec![0, 1, 255]);
    BTreeMap::from([
        ("requestId".to_owned(), MessageAttribute::text("req-<1>\r\n")),
        ("bin".to_owned(), MessageAttribute { data_type: "Binary.png".to_owned(), content: binary }),
    ])
}

fn sqs_answers() -> Vec<SqsAnswer> {
    let body = "héllo \"x\" & <y>\r\n\t🦀";
    let message = OutgoingMessage {
        body: body.to_owned(),
        delay_secs: None,
        attributes: attributes(),
        system_attributes: BTreeMap::from([("AWSTraceHeader".to_owned(), MessageAttribute::text("Root=1"))]),
    };
    let sent = SentMessage::of("m-1", &message);
    let received = SqsMessage {
        message_id: "m-1".to_owned(),
        receipt_handle: "AQEB+/=".to_owned(),
        body: body.to_owned(),
        system_attributes: BTreeMap::from([("ApproximateReceiveCount".to_owned(), "1".to_owned())]),
        attributes: attributes(),
    };
    let plain =
        SqsMessage { system_attributes: BTreeMap::new(), attributes: BTreeMap::new(), ..received.clone() };
    let refused =
        || SqsFault::new(SqsFaultCode::ReceiptHandleIsInvalid, "The input receipt handle is invalid.");
    let done =
        || SqsBatchOutcome { entries: vec![("a".to_owned(), Ok(())), ("b".to_owned(), Err(refused()))] };
    vec![
        SqsAnswer::SendMessage(sent.clone()),
        SqsAnswer::SendMessageBatch(SqsBatchOutcome {
            entries: vec![("a".to_owned(), Ok(sent)), ("b".to_owned(), Err(refused()))],
        }),
        SqsAnswer::ReceiveMessage(vec![]),
        SqsAnswer::ReceiveMessage(vec![received, plain]),
        SqsAnswer::DeleteMessage,
        SqsAnswer::DeleteMessageBatch(done()),
        SqsAnswer::ChangeMessageVisibility,
        SqsAnswer::ChangeMessageVisibilityBatch(done()),
        SqsAnswer::GetQueueUrl { queue_url: URL.to_owned() },
        SqsAnswer::GetQueueAttributes(BTreeMap::from([("VisibilityTimeout".to_owned(), "900".to_owned())])),
        SqsAnswer::ListQueues { queue_urls: vec![URL.to_owned()], next_token: Some("t".to_owned()) },
        SqsAnswer::ListQueues { queue_urls: vec![], next_token: None },
        SqsAnswer::CreateQueue { queue_url: URL.to_owned() },
    ]
}

fn list(query: &str) -> ListObjects {
    let head = RequestHead { method: "GET", path: "/bucket", query, headers: &[] };
    let read = S3Request::read(&head, S3Endpoint { host: None, bucket: "bucket" });
    match read.map(|request| request.operation) {
        Ok(S3Operation::ListObjects(list)) => list,
        other => panic!("a list, not {other:?}"),
    }
}

fn s3_answers() -> Vec<(&'static str, WireAnswer)> {
    let modified_millis = read_iso_date("2026-11-18T06:12:43.250Z").expect("a date");
    let object = ObjectHead {
        etag: etag_of([7; 16]),
        size_bytes: 10,
        modified_millis,
        content_type: Some("application/json".to_owned()),
        metadata: BTreeMap::from([("task".to_owned(), "t1".to_owned())]),
    };
    let listed = |key: &str| ListedObject {
        key: key.to_owned(),
        size_bytes: 10,
        modified_millis,
        etag: etag_of([7; 16]),
    };
    let keys = || ["a & b/1", "a+c %", "d\r\u{1}", "é", "z"].map(listed);
    let encoded = list("list-type=2&encoding-type=url&delimiter=/&max-keys=4&start-after=A%20");
    let plain = list("list-type=2&prefix=a&max-keys=1");
    vec![
        ("HeadObject", object_head(&object, None)),
        ("HeadObject", object_head(&object, Some(&(2..5)))),
        ("PutObject", object_put(&object.etag)),
        ("HeadBucket", bucket_head("eu-west-1")),
        ("GetBucketLocation", bucket_location("eu-west-1")),
        ("GetBucketLocation", bucket_location("us-east-1")),
        ("ListObjectsV2", encoded.answer("bucket", &encoded.page(keys()))),
        ("ListObjectsV2", plain.answer("bucket", &plain.page(keys()))),
        ("CreateMultipartUpload", upload_created("bucket", "a & b", "u-1")),
        (
            "CompleteMultipartUpload",
            upload_completed("http://h/bucket/a", "bucket", "a", &etag_of_parts(&[[1; 16], [2; 16]])),
        ),
        (
            "GetObject",
            S3Fault::new(S3FaultCode::NoSuchKey, "The specified key does not exist.").answer(REQUEST_ID),
        ),
        ("GetObject", door_error(Dialect::S3, DoorTrouble::Rate, REQUEST_ID)),
    ]
}

fn json_answers() -> Vec<(&'static str, &'static str, WireAnswer)> {
    let bus = EventBusShown { name: "bus".to_owned(), arn: "arn:bus".to_owned() };
    let refused = RefusedEntry::new("MalformedDetail", "Detail is malformed.");
    let door = |dialect| door_error(dialect, DoorTrouble::UnknownKey, REQUEST_ID);
    vec![
        ("events", "PutEvents", put_events_answer(&[Ok("e-1".to_owned()), Err(refused)])),
        ("events", "ListEventBuses", list_event_buses_answer(std::slice::from_ref(&bus))),
        ("events", "DescribeEventBus", describe_event_bus_answer(&bus)),
        ("events", "DescribeEventBus", bus_not_found("x").answer(Dialect::EventBridge, REQUEST_ID)),
        ("events", "PutEvents", door(Dialect::EventBridge)),
        ("stepfunctions", "SendTaskSuccess", task_report_answer()),
        (
            "stepfunctions",
            "SendTaskSuccess",
            TokenTrouble::TaskDoesNotExist.fault().answer(Dialect::StepFunctions, REQUEST_ID),
        ),
        (
            "stepfunctions",
            "SendTaskFailure",
            TokenTrouble::TaskTimedOut.fault().answer(Dialect::StepFunctions, REQUEST_ID),
        ),
        ("dynamodb", "Query", door(Dialect::DynamoDb)),
        ("sts", "GetCallerIdentity", caller_identity("000000000000", "u", "arn:u", REQUEST_ID)),
        ("sts", "GetCallerIdentity", door(Dialect::Sts)),
    ]
}

fn shown(service: &str, operation: &str, protocol: &str, answer: WireAnswer) -> Value {
    let headers: BTreeMap<_, _> = answer
        .headers
        .into_iter()
        .chain(answer.media_type.map(|media_type| ("content-type".into(), media_type.to_owned())))
        .collect();
    json!({
        "service": service, "operation": operation, "protocol": protocol, "status": answer.status, "headers": headers,
        "body": String::from_utf8(answer.body).expect("answers are text"),
    })
}

#[test]
fn answers_are_those_that_the_parsers_of_clients_were_tried_on() {
    let mut answers = Vec::new();
    for (name, protocol) in [("json", SqsProtocol::Json), ("query", SqsProtocol::Query)] {
        for answer in sqs_answers() {
            let operation = answer.operation().name();
            answers.push(shown("sqs", operation, name, answer.answer(protocol, REQUEST_ID)));
        }
        let fault = SqsFault::queue_does_not_exist().answer(protocol, REQUEST_ID);
        answers.push(shown("sqs", "SendMessage", name, fault));
        let door = door_error(Dialect::Sqs(protocol), DoorTrouble::WrongSignature, REQUEST_ID);
        answers.push(shown("sqs", "SendMessage", name, door));
    }
    for (service, operation, answer) in json_answers() {
        answers.push(shown(service, operation, "json", answer));
    }
    for (operation, answer) in s3_answers() {
        answers.push(shown("s3", operation, "json", answer));
    }
    let written = serde_json::to_string_pretty(&answers).unwrap() + "\n";
    if written != include_str!("../fixtures/answers.json") {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("answers.json");
        std::fs::write(&path, written).unwrap();
        panic!("answers have changed: compare {} with tests/fixtures/answers.json", path.display());
    }
}
