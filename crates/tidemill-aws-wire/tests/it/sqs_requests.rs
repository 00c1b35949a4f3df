//! Requests of SQS from clients of both protocols.

use serde_json::json;
use tidemill_aws_wire::RequestHead;
use tidemill_aws_wire::call::{AwsCall, SqsOperation};
use tidemill_aws_wire::dialect::SqsProtocol;
use tidemill_aws_wire::sqs::{
    AttributeContent, ChangedVisibility, MessageAttribute, SqsBatchEntry, SqsFault, SqsFaultCode, SqsRequest,
};

use crate::fixture::Fixture;

fn read(fixture: &Fixture) -> Result<SqsRequest, SqsFault> {
    let Ok(AwsCall::Sqs(operation, protocol)) = fixture.call() else {
        panic!("{} is a call of SQS", fixture.name)
    };
    assert_eq!(operation.name(), fixture.operation);
    fixture.with_head(|head| SqsRequest::read(operation, protocol, head, fixture.body.as_bytes()))
}

fn named(name: &str) -> Result<SqsRequest, SqsFault> {
    read(Fixture::current().iter().find(|fixture| fixture.name == name).expect("a request of this name"))
}

#[test]
fn both_protocols_of_the_same_request_give_the_same_value() {
    let current: Vec<_> = Fixture::current().into_iter().filter(|fixture| fixture.scope == "sqs").collect();
    let forms = Fixture::of_forms();
    assert_eq!(current.len(), forms.len());
    for (current, form) in current.iter().zip(&forms) {
        assert_eq!(current.name, form.name);
        assert!(matches!(current.call(), Ok(AwsCall::Sqs(_, SqsProtocol::Json))), "{}", current.name);
        assert!(matches!(form.call(), Ok(AwsCall::Sqs(_, SqsProtocol::Query))), "{}", form.name);
        assert_eq!(read(current), read(form), "{}", current.name);
    }
}

#[test]
fn sums_are_those_that_moto_computes() {
    let mut compared = 0;
    for fixture in Fixture::current().iter().filter(|fixture| !fixture.md5.is_null()) {
        let Ok(SqsRequest::SendMessage { message, .. }) = read(fixture) else { continue };
        let sums = json!({"body": message.md5_of_body(), "attributes": message.md5_of_attributes()});
        assert_eq!(sums, fixture.md5, "{}", fixture.name);
        compared += 1;
    }
    assert_eq!(compared, 2);
}

#[test]
fn a_message_is_read_byte_for_byte() {
    let Ok(SqsRequest::SendMessage { queue, message }) = named("attributes") else { panic!("a message") };
    assert_eq!(queue, "task-queue");
    assert_eq!(message.body, "héllo {\"name\":\"color-tags\"} + & = % <x>\r\n\t🦀");
    assert_eq!(message.delay_secs, Some(900));
    assert_eq!(message.attributes["requestId"], MessageAttribute::text("req-123"));
    assert_eq!(message.attributes["bin"].content, AttributeContent::Binary(b"\x00\x01\xff&=".to_vec()));
    assert_eq!(message.system_attributes["AWSTraceHeader"], MessageAttribute::text("Root=1-2-3"));
}

#[test]
fn entries_of_a_batch_fail_alone() {
    let Ok(SqsRequest::SendMessageBatch(batch)) = named("batch") else { panic!("a batch") };
    let outcomes: Vec<_> = batch
        .entries
        .iter()
        .map(|entry| (entry.id.as_str(), entry.content.as_ref().map(|_| ()).map_err(|fault| fault.code)))
        .collect();
    assert_eq!(outcomes, [("a", Ok(())), ("b-_9", Ok(())), ("c", Err(SqsFaultCode::InvalidParameterValue))]);
    let Ok(SqsRequest::ChangeMessageVisibilityBatch(batch)) = named("visibility batch") else {
        panic!("a batch")
    };
    let longest = ChangedVisibility { receipt_handle: "h1".to_owned(), visibility_secs: 43_200 };
    assert_eq!(batch.entries[0], SqsBatchEntry { id: "a".to_owned(), content: Ok(longest) });
    assert!(batch.entries[1].content.is_err());
}

#[test]
fn a_receive_says_how_many_for_how_long_and_what() {
    let Ok(SqsRequest::ReceiveMessage(receive)) = named("receive") else { panic!("a receive") };
    assert_eq!((receive.messages_max, receive.visibility_secs, receive.wait_secs), (1, None, None));
    assert!(!receive.wants_system_attribute("SenderId"));
    let Ok(SqsRequest::ReceiveMessage(receive)) = named("receive all") else { panic!("a receive") };
    assert_eq!((receive.messages_max, receive.visibility_secs, receive.wait_secs), (10, Some(30), Some(20)));
    assert!(receive.wants_system_attribute("ApproximateReceiveCount"));
    assert!(receive.wants_attribute("task.name"));
    assert!(!receive.wants_attribute("appName"));
}

#[test]
fn what_is_out_of_bounds_is_refused_by_its_code() {
    for (name, code) in [
        ("delay", SqsFaultCode::InvalidParameterValue),
        ("characters", SqsFaultCode::InvalidMessageContents),
        ("distinct", SqsFaultCode::BatchEntryIdsNotDistinct),
        ("empty", SqsFaultCode::EmptyBatchRequest),
        ("eleven", SqsFaultCode::TooManyEntriesInBatchRequest),
        ("receive eleven", SqsFaultCode::InvalidParameterValue),
        ("unknown attribute", SqsFaultCode::InvalidAttributeName),
    ] {
        assert_eq!(named(name).map_err(|fault| fault.code), Err(code), "{name}");
    }
}

#[test]
fn requests_that_no_sdk_writes_are_refused_by_their_code() {
    let url = "http://h/0/q";
    let long_id = "i".repeat(81);
    for (operation, body, code) in [
        ("SendMessage", json!({"MessageBody": "x"}), SqsFaultCode::MissingParameter),
        ("SendMessage", json!({"QueueUrl": url}), SqsFaultCode::MissingParameter),
        ("SendMessage", json!({"QueueUrl": url, "MessageBody": ""}), SqsFaultCode::MissingParameter),
        (
            "SendMessage",
            json!({"QueueUrl": "http://h/", "MessageBody": "x"}),
            SqsFaultCode::QueueDoesNotExist,
        ),
        ("SendMessage", json!({"QueueUrl": url, "MessageBody": 1}), SqsFaultCode::Serialization),
        (
            "SendMessage",
            json!({"QueueUrl": url, "MessageBody": "x", "DelaySeconds": "1"}),
            SqsFaultCode::Serialization,
        ),
        (
            "SendMessage",
            json!({"QueueUrl": url, "MessageBody": "x", "DelaySeconds": -1}),
            SqsFaultCode::InvalidParameterValue,
        ),
        (
            "SendMessage",
            json!({"QueueUrl": url, "MessageBody": "x".repeat(1_048_577)}),
            SqsFaultCode::InvalidParameterValue,
        ),
        ("SendMessage", json!([]), SqsFaultCode::Serialization),
        (
            "SendMessageBatch",
            json!({"QueueUrl": url, "Entries": [{"Id": "a", "MessageBody": "x".repeat(600_000)},
                {"Id": "b", "MessageBody": "x".repeat(600_000)}]}),
            SqsFaultCode::BatchRequestTooLong,
        ),
        (
            "SendMessageBatch",
            json!({"QueueUrl": url, "Entries": [{"MessageBody": "x"}]}),
            SqsFaultCode::MissingParameter,
        ),
        (
            "DeleteMessageBatch",
            json!({"QueueUrl": url, "Entries": [{"Id": long_id, "ReceiptHandle": "h"}]}),
            SqsFaultCode::InvalidBatchEntryId,
        ),
        (
            "DeleteMessageBatch",
            json!({"QueueUrl": url, "Entries": [{"Id": "a b", "ReceiptHandle": "h"}]}),
            SqsFaultCode::InvalidBatchEntryId,
        ),
        (
            "DeleteMessage",
            json!({"QueueUrl": url, "ReceiptHandle": "é"}),
            SqsFaultCode::ReceiptHandleIsInvalid,
        ),
        (
            "ChangeMessageVisibility",
            json!({"QueueUrl": url, "ReceiptHandle": "h"}),
            SqsFaultCode::MissingParameter,
        ),
        (
            "ReceiveMessage",
            json!({"QueueUrl": url, "WaitTimeSeconds": 21}),
            SqsFaultCode::InvalidParameterValue,
        ),
        (
            "ReceiveMessage",
            json!({"QueueUrl": url, "VisibilityTimeout": 43_201}),
            SqsFaultCode::InvalidParameterValue,
        ),
        ("CreateQueue", json!({"QueueName": "a b"}), SqsFaultCode::InvalidParameterValue),
    ] {
        let head = RequestHead { method: "POST", path: "/", query: "", headers: &[] };
        let operation = SqsOperation::from_name(operation).unwrap();
        let read = SqsRequest::read(operation, SqsProtocol::Json, &head, body.to_string().as_bytes());
        let shown: String = body.to_string().chars().take(120).collect();
        assert_eq!(read.map_err(|fault| fault.code), Err(code), "{operation:?} {shown}");
    }
}

#[test]
fn a_form_may_name_its_queue_by_the_path() {
    let headers = [("content-type", "application/x-www-form-urlencoded")];
    let head = RequestHead { method: "POST", path: "/000000000000/q", query: "", headers: &headers };
    let body = b"Action=DeleteMessage&Version=2012-11-05&ReceiptHandle=h";
    let operation = SqsOperation::DeleteMessage;
    let read = SqsRequest::read(operation, SqsProtocol::Query, &head, body);
    assert_eq!(read, Ok(SqsRequest::DeleteMessage { queue: "q".to_owned(), receipt_handle: "h".to_owned() }));
}
