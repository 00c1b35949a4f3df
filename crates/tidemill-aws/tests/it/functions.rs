//! The functions of a stage, called as AWS calls them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidemill_aws::handlers::{
    BusEvent, Dispatched, QueueEvent, dispatch, save_event, target_dead_letter, workflow_event,
};
use tidemill_aws::{Aws, AwsOptions, AwsSender, Connection, Saved};
use tidemill_engine::backend::Backend;
use tidemill_engine::command::{Command, DeliveryEnd, EndDelivery};
use tidemill_engine::engine::{BulkAction, DeliveryFilter, Engine, JobRequest, UnparkRequest};
use tidemill_engine::outbound::{Parcel, SendError, Sender};
use tidemill_model::workflow::WorkflowRunId;
use tidemill_model::{
    AppName, JobId, Json, RequestId, TaskId, TaskName, TaskOptions, TaskSpec, TenantId, Timestamp,
};

use crate::double::Double;
use crate::proxy::{Fate, Proxy};
use crate::site::Site;

pub(crate) fn tenant() -> TenantId {
    TenantId::trusted("acme")
}

fn app() -> AppName {
    AppName::trusted("orders")
}

/// A job of one task.
pub(crate) async fn submit(engine: &Engine<Aws>) -> JobId {
    let request = JobRequest {
        tenant: tenant(),
        app: app(),
        request: Some(RequestId::trusted("once")),
        name: None,
        budget: None,
        callback: None,
        tasks: vec![TaskSpec {
            task_id: TaskId::trusted("a"),
            name: TaskName::trusted("n"),
            depends_on: Vec::new(),
            input: Json::empty_object(),
            options: TaskOptions::default(),
        }],
        idempotency: None,
    };
    engine.submit_job(request).await.expect("the job is accepted").job
}

/// What the bus tells of a job.
pub(crate) fn bus_event(job: JobId) -> BusEvent {
    let text = format!(
        r#"{{"detail-type":"log-event","detail":{{"tenantId":"acme","eventType":"Job Created","properties":{{"jobId":"{job}"}}}}}}"#
    );
    BusEvent::read(&text).expect("it is JSON")
}

/// Takes no parcels.
struct Nobody;

impl Sender for Nobody {
    async fn send(&self, parcel: Parcel) -> Result<(), SendError> {
        Err(SendError(format!("nobody takes {:?}", parcel.target)))
    }

    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

/// Tries each delivery that is due, once.
async fn deliver(engine: &Engine<Aws>) -> Vec<Result<(), SendError>> {
    let sender = AwsSender::new(engine.clone(), Nobody);
    let due = engine
        .backend()
        .look(|state| state.deliveries().due(Timestamp::MAX, 10, |_| false))
        .await
        .expect("it answers");
    let mut ends = Vec::new();
    for key in due.due {
        let delivery = engine.delivery(&key).await.expect("it answers").expect("it is there");
        let parcel = Parcel {
            id: key.id,
            tenant: key.tenant,
            target: delivery.target,
            body: delivery.body,
            attempt: delivery.attempts + 1,
        };
        ends.push(sender.send(parcel).await);
    }
    ends
}

async fn a_dispatcher_sends_what_a_writer_that_died_did_not(double: &Double) {
    let site = Site::new(double).await;
    let plan = |_, operation: &str| match operation {
        "SendMessageBatch" => Fate::CutBefore,
        _ => Fate::Forward,
    };
    let proxy = Proxy::start(&site.endpoint, plan).await;
    let writer = site.open_at(&proxy.endpoint, site.options(1)).await;
    let job = submit(&writer).await;
    proxy.is_cut().await;
    drop(writer);
    assert_eq!(site.count(&site.tickets).await, (0, 0));

    let patience = Duration::from_secs(3_600);
    let function = site.open(AwsOptions { patience, ..site.options(2) }).await;
    let sent = dispatch(&function, &bus_event(job)).await.expect("it ends");
    assert_eq!(sent, Dispatched { tasks: 0, groups: 1 });
    assert_eq!(site.count(&site.tickets).await, (1, 0));
    for event in [bus_event(job), bus_event(JobId::from_u128(7)), BusEvent::read("{}").expect("it is JSON")] {
        let again = dispatch(&function, &event).await.expect("it ends");
        assert_eq!(again, Dispatched::default(), "{event:?}");
    }
    assert_eq!(site.count(&site.tickets).await, (1, 0), "nothing is doubled");
}

async fn what_a_target_did_not_take_is_kept_told_and_can_be_replayed(double: &Double) {
    let site = Site::new(double).await;
    let engine = site.server(1).await;
    submit(&engine).await;
    engine.backend().all_sent().await;
    let sent = site.drain(&site.events).await;
    let created = sent.iter().find(|event| event["detail"]["eventType"] == "Job Created");
    let body = created.expect("the event was sent").to_string();
    let id = "0190a0b0-0000-7000-8000-000000000001";
    let batch = serde_json::json!({ "Records": [{ "messageId": id, "body": body }] }).to_string();
    let batch: QueueEvent = serde_json::from_str(&batch).expect("a batch");
    let texts = Mutex::new(Vec::new());
    let post = async |text: String| {
        let mut texts = texts.lock().expect("nobody panicked");
        texts.push(text);
        if texts.len() == 1 { Err("503".to_owned()) } else { Ok(()) }
    };
    let first = target_dead_letter(&engine, &tenant(), &batch, post).await;
    assert_eq!(first.batch_item_failures[0].item_identifier, id, "people were not told");
    assert!(target_dead_letter(&engine, &tenant(), &batch, post).await.is_done());
    let text = texts.lock().expect("nobody panicked")[1].clone();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], ":rotating_light: *EventBridge delivery failure*");
    assert_eq!(lines[1..3], ["*Event type:* Job Created", "*Detail type:* log-event"]);
    assert!(lines[3].starts_with("*Task:* JOB#job-"), "{text}");
    assert_eq!(lines[5], format!("*Message ID:* {id}"));

    let letters = engine.delivery_letters(&tenant(), &DeliveryFilter::default(), None, 10).await;
    let letters = letters.expect("it answers").letters;
    assert_eq!(letters.len(), 1, "once, however often it comes");
    // What is no event at all is kept and told once, and does not come for ever.
    let nonsense =
        serde_json::json!({ "Records": [{ "messageId": "m-2", "body": "garbage {" }] }).to_string();
    let nonsense: QueueEvent = serde_json::from_str(&nonsense).expect("a batch");
    assert!(target_dead_letter(&engine, &tenant(), &nonsense, post).await.is_done());
    assert_eq!(texts.lock().expect("nobody panicked").len(), 3);
    let all = engine.delivery_letters(&tenant(), &DeliveryFilter::default(), None, 10).await;
    assert_eq!(all.expect("it answers").letters.len(), 2);
    assert_eq!(letters[0].id.to_string(), id);
    engine.replay_delivery(tenant(), letters[0].id).await.expect("it is replayed");
    assert_eq!(deliver(&engine).await, [Ok(())]);
    let again = site.drain(&site.events).await;
    assert_eq!(again.len(), 1);
    assert_eq!(again[0]["detail"], serde_json::from_str::<serde_json::Value>(&body).expect("JSON")["detail"]);
    let connection = Connection::to_double(&site.endpoint).await;
    let event = BusEvent::read(&again[0].to_string()).expect("it is JSON");
    for expected in [Saved::New, Saved::Known] {
        let saved = save_event(&connection, &site.name, &event, Timestamp::clamped(1_800_000_000_000)).await;
        assert_eq!(saved.expect("it is stored"), expected);
    }
}

/// A state machine that waits with a token, which it puts into the queue of events.
async fn waiting_execution(site: &Site) -> (String, String) {
    let definition = serde_json::json!({
        "StartAt": "Wait",
        "States": { "Wait": {
            "Type": "Task",
            "Resource": "arn:aws:states:::sqs:sendMessage.waitForTaskToken",
            "Parameters": { "QueueUrl": site.events, "MessageBody": { "token.$": "$$.Task.Token" } },
            "End": true,
        } },
    });
    let made = site.sfn.create_state_machine().name(format!("{}-{}", site.name, site.events.len()));
    let made = made.role_arn("arn:aws:iam::000000000000:role/test").definition(definition.to_string());
    let made = made.send().await.expect("the state machine is made");
    let started = site.sfn.start_execution().state_machine_arn(made.state_machine_arn).input("{}");
    let execution = started.send().await.expect("it starts").execution_arn;
    loop {
        if let Some(message) = site.drain(&site.events).await.first() {
            let token = message["token"].as_str().expect("it has a token").to_owned();
            return (execution, token);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn park(engine: &Engine<Aws>, execution: &str, token: &str, id: &str) {
    let event = serde_json::json!({
        "id": id, "source": "elephant.workflow", "detail-type": "WorkflowEvent",
        "detail": {
            "executionId": execution, "county": "Cook", "dataGroupLabel": "Seed", "status": "FAILED",
            "phase": "Transform", "step": "Transform", "taskToken": token,
            "errors": [{ "code": "20Cook", "details": {} }],
        },
    });
    let event = BusEvent::read(&event.to_string()).expect("it is JSON");
    for repeated in [false, true] {
        let stored = workflow_event(engine, tenant(), app(), &event).await.expect("it is taken in");
        assert_eq!((stored.len(), stored[0].repeated), (1, repeated));
    }
}

async fn unpark(engine: &Engine<Aws>, execution: &str, how: BulkAction) {
    let execution = WorkflowRunId::new(execution).expect("an id");
    let request = UnparkRequest { tenant: tenant(), execution, how, by: None, reason: None };
    engine.unpark(request).await.expect("it goes on");
}

async fn step_functions_is_told_how_a_parked_execution_goes_on(double: &Double) {
    let site = Site::new(double).await;
    let engine = site.open(AwsOptions { step_functions: true, ..site.options(1) }).await;
    let (execution, token) = waiting_execution(&site).await;
    park(&engine, &execution, &token, "e-1").await;
    let output = Json::trusted(r#"{"resolved":true,"n":7}"#);
    unpark(&engine, &execution, BulkAction::Resume { output, rerun: false }).await;
    assert_eq!(deliver(&engine).await, [Ok(())]);
    let ended = async {
        loop {
            let asked = site.sfn.describe_execution().execution_arn(&execution).send().await;
            let found = asked.expect("it is known");
            if found.status.as_str() != "RUNNING" {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(20), ended).await.expect("it ends");
    assert_eq!(ended.status.as_str(), "SUCCEEDED");
    let output: serde_json::Value =
        serde_json::from_str(ended.output.as_deref().unwrap_or("null")).expect("it is JSON");
    assert_eq!(output, serde_json::json!({ "resolved": true, "n": 7 }));

    // A token that nobody waits with is a failure that tells no secret.
    park(&engine, "other", "not-a-token-of-anybody", "e-2").await;
    let fail =
        BulkAction::Fail { error: "ResolutionFailed".into(), cause: "Unable to resolve errors".into() };
    unpark(&engine, "other", fail).await;
    let ends = deliver(&engine).await;
    let problem = ends[1].as_ref().expect_err("nobody waits").to_string();
    assert!(problem.starts_with("Step Functions does not"), "{problem}");
    assert!(!problem.contains("not-a-token"), "{problem}");
}

/// Tries what is due once, as the courier does: how it went is recorded.
async fn try_once(engine: &Engine<Aws>) -> Result<(), SendError> {
    let due = engine
        .backend()
        .look(|state| state.deliveries().due(Timestamp::MAX, 10, |_| false))
        .await
        .expect("it answers")
        .due;
    let [key] = &due[..] else { panic!("one delivery is due: {due:?}") };
    let attempt = engine.delivery(key).await.expect("it answers").expect("it is there").attempts + 1;
    let sent = deliver(engine).await.remove(0);
    let end = match &sent {
        Ok(()) => DeliveryEnd::Arrived,
        Err(error) => DeliveryEnd::Failed { error: Arc::from(error.0.as_str()) },
    };
    let command = EndDelivery { tenant: key.tenant.clone(), delivery: key.id, attempt, told: 0, end };
    let answers = engine.backend().execute(vec![Command::EndDelivery(command)]).await.expect("it answers");
    for answer in answers {
        answer.expect("the end is taken");
    }
    sent
}

async fn a_token_that_an_unanswered_try_used_counts_as_told(double: &Double) {
    let site = Site::new(double).await;
    let calls = std::sync::atomic::AtomicU64::new(0);
    let proxy = Proxy::start(&site.endpoint, move |_, operation| {
        if operation != "SendTaskSuccess" {
            return Fate::Forward;
        }
        match calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
            0 => Fate::LoseAnswer,
            1 => Fate::Refuse("ThrottlingException"),
            _ => Fate::Forward,
        }
    })
    .await;
    let options = AwsOptions { step_functions: true, ..site.options(1) };
    let engine = site.open_at(&proxy.endpoint, options).await;
    let (execution, token) = waiting_execution(&site).await;
    park(&engine, &execution, &token, "e-1").await;
    unpark(&engine, &execution, BulkAction::Resume { output: Json::empty_object(), rerun: false }).await;
    let problem = |tried: Result<(), SendError>| tried.expect_err("it did not go well").0;
    assert_eq!(problem(try_once(&engine).await), "SendTaskSuccess: no answer");
    let throttled = problem(try_once(&engine).await);
    assert_eq!(throttled, "SendTaskSuccess: ThrottlingException; an earlier try got no answer");
    assert_eq!(try_once(&engine).await, Ok(()), "Step Functions heard of the first");
    let letters = engine.delivery_letters(&tenant(), &DeliveryFilter::default(), None, 10).await;
    assert_eq!(letters.expect("it answers").letters, []);
}

crate::double::on_ministack!(
    a_token_that_an_unanswered_try_used_counts_as_told,
    a_dispatcher_sends_what_a_writer_that_died_did_not,
    what_a_target_did_not_take_is_kept_told_and_can_be_replayed,
    step_functions_is_told_how_a_parked_execution_goes_on
);
crate::double::on_moto!(
    a_dispatcher_sends_what_a_writer_that_died_did_not,
    what_a_target_did_not_take_is_kept_told_and_can_be_replayed
);
