//! Requests of EventBridge, Step Functions and STS as botocore sends them.

use tidemill_aws_wire::call::{AwsCall, EventBridgeOperation, StepFunctionsOperation, StsOperation};
use tidemill_aws_wire::eventbridge::{ListEventBuses, PutEvents, read_describe_event_bus};
use tidemill_aws_wire::step_functions::TaskReport;

use crate::fixture::Fixture;

fn fixture(name: &str) -> Fixture {
    let found = Fixture::current().into_iter().find(|fixture| fixture.name == name);
    found.expect("a request of this name")
}

#[test]
fn events_are_read_as_they_were_put() {
    let fixture = fixture("events");
    assert_eq!(fixture.call(), Ok(AwsCall::EventBridge(EventBridgeOperation::PutEvents)));
    let entries = PutEvents::read(fixture.body.as_bytes()).unwrap().entries;
    let first = entries[0].as_ref().unwrap();
    assert_eq!((first.bus.as_str(), first.source.as_str()), ("bus", "task-workflow.app"));
    assert_eq!((first.detail_type.as_str(), first.detail.as_str()), ("log-event", "{\"PK\":\"é\"}"));
    assert_eq!(first.time_millis, Some(1_707_300_540_500));
    assert_eq!(
        (first.resources.as_slice(), first.trace_header.as_deref()),
        (&["arn:a".to_owned()][..], Some("Root=1"))
    );
    let codes: Vec<_> =
        entries.iter().map(|entry| entry.as_ref().err().map(|refused| refused.code)).collect();
    assert_eq!(codes, [None, Some("MalformedDetail"), Some("InvalidArgument")]);
}

#[test]
fn buses_are_asked_for() {
    let buses = ListEventBuses::read(fixture("buses").body.as_bytes()).unwrap();
    assert_eq!((buses.name_prefix.as_deref(), buses.limit), (Some("b"), Some(5)));
    assert_eq!(read_describe_event_bus(fixture("bus").body.as_bytes()), Ok("bus".to_owned()));
}

#[test]
fn reports_about_tokens_are_read() {
    let task_token = || "tok".to_owned();
    for (name, expected) in [
        ("success", Ok(TaskReport::Success { task_token: task_token(), output: "{\"a\":1}".to_owned() })),
        ("no output", Err("InvalidOutput")),
        (
            "failure",
            Ok(TaskReport::Failure {
                task_token: task_token(),
                error: Some("E".to_owned()),
                cause: Some("because".to_owned()),
            }),
        ),
        ("heartbeat", Ok(TaskReport::Heartbeat { task_token: task_token() })),
    ] {
        let fixture = fixture(name);
        let operation = StepFunctionsOperation::from_name(&fixture.operation).unwrap();
        assert_eq!(fixture.call(), Ok(AwsCall::StepFunctions(operation)));
        let read = TaskReport::read(operation, fixture.body.as_bytes()).map_err(|fault| fault.code);
        assert_eq!(read, expected, "{name}");
    }
}

#[test]
fn a_caller_asks_who_it_is() {
    assert_eq!(fixture("identity").call(), Ok(AwsCall::Sts(StsOperation::GetCallerIdentity)));
}
