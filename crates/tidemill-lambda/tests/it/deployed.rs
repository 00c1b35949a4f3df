//! A stage as it is deployed: stacks made from the templates, functions that are the real binary and may do what their
//! roles let them, a bus and queues between them.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::types::QueueAttributeName;
use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use tidemill_aws::{Aws, AwsOptions, Bus, Connection};
use tidemill_engine::Engine;
use tidemill_engine::clock::SystemClock;
use tidemill_engine::engine::EngineConfig;
use tidemill_model::{Json, Role, TenantId, WorkerId};
use tidemill_worker::{Handlers, NativeWorker, WorkerConfig, WorkerHandle};

use crate::double::{Double, RUNTIME, strict_double};
use crate::site::{Site, TENANT, eventually};
use crate::slack::{Mood, Slack};

/// A process beside the functions.
async fn engine(site: &Site, takes_tickets: bool) -> Engine<Aws> {
    let connection = Connection::to_double(&site.endpoint).await;
    let bus = Bus::Named(site.output("EventBusName").to_owned());
    let options = AwsOptions {
        queue_url: Some(site.output("TaskQueueUrl").to_owned()),
        takes_tickets,
        ..AwsOptions::new(site.output("EventsTableName"), site.output("ArtifactsBucketName"), bus, 7)
    };
    let clock = Arc::new(SystemClock::start());
    let backend = Aws::open(connection, options, Arc::clone(&clock) as _).await.expect("the store opens");
    Engine::new(backend, clock, 7, EngineConfig::default())
}

async fn admin_key(engine: &Engine<Aws>) -> String {
    let tenants = vec![TenantId::trusted(TENANT)];
    let (_, token) = engine.create_key(tenants, Role::Admin, None).await.expect("the key is made");
    token.reveal()
}

/// Runs tasks of the definition `step`.
fn worker(engine: &Engine<Aws>) -> WorkerHandle {
    let handler = |_| async { Ok(Json::of(&json!({ "n": 2 }))) };
    let handlers = Handlers::new().on("step", handler).expect("it is a name");
    NativeWorker::new(engine.clone(), handlers, WorkerConfig::new(WorkerId::trusted("worker-1"))).start()
}

/// How many messages a queue has, seen and unseen.
async fn depth(site: &Site, queue: &str) -> u64 {
    let names = [
        QueueAttributeName::ApproximateNumberOfMessages,
        QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
        QueueAttributeName::ApproximateNumberOfMessagesDelayed,
    ];
    let ask = site.sqs.get_queue_attributes().queue_url(queue).set_attribute_names(Some(names.to_vec()));
    let told = ask.send().await.expect("the queue answers").attributes.unwrap_or_default();
    names.iter().filter_map(|name| told.get(name)?.parse::<u64>().ok()).sum()
}

fn failure_text(event_type: &str, detail_type: &str) -> impl Fn(&str) -> bool {
    let start = format!(
        ":rotating_light: *EventBridge delivery failure*\n*Event type:* {event_type}\n*Detail type:* {detail_type}\n"
    );
    move |text| text.starts_with(&start) && text.contains("\n*Message ID:* ")
}

async fn letters(site: &Site, key: &str) -> Vec<Value> {
    let answer = site.api(Method::GET, "/v1/dead-letters?kind=event", key, None).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    answer.json()["items"].as_array().cloned().unwrap_or_default()
}

#[test]
fn a_job_goes_through_a_deployed_stage() {
    let Some(double) = strict_double() else { return };
    RUNTIME.block_on(async {
        let slack = Slack::start().await;
        let site = Site::deploy(double, "job", &slack).await;
        let engine = engine(&site, true).await;
        let nobody = site.api(Method::GET, "/v1/jobs", "none", None).await;
        assert_eq!(nobody.status, StatusCode::UNAUTHORIZED, "a stage without keys is closed: {}", nobody.text);
        let key = admin_key(&engine).await;
        let task = |id: &str, parents: &[&str]| {
            json!({ "taskId": id, "name": "step", "dependsOn": parents, "input": { "n": 1 } })
        };
        let job = json!({
            "requestId": "req-1",
            "tasks": [task("A", &[]), task("B", &[]), task("C", &["A"]), task("D", &["A"]), task("E", &["C", "D"])],
        });
        let step = json!({ "name": "step", "runner": "command", "command": ["true"] });
        let defined = site.api(Method::POST, "/v1/task-definitions", &key, Some(step)).await;
        assert_eq!(defined.status, StatusCode::CREATED, "{}", defined.text);
        let made = site.api(Method::POST, "/v1/jobs", &key, Some(job.clone())).await;
        assert_eq!(made.status, StatusCode::CREATED, "{}", made.text);
        let again = site.api(Method::POST, "/v1/jobs", &key, Some(job)).await;
        assert_eq!((again.status, &again.json()["jobId"]), (StatusCode::OK, &made.json()["jobId"]));
        let id = made.json()["jobId"].as_str().expect("a job has an id").to_owned();

        let worker = worker(&engine);
        let view = eventually("the job is completed", async || {
            let answer = site.api(Method::GET, &format!("/v1/jobs/{id}"), &key, None).await;
            assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
            (answer.json()["status"] == "completed").then(|| answer.json())
        })
        .await;
        worker.shut_down(Duration::from_secs(5)).await;

        // All of it came over the bus, each event once.
        let of_job = eventually("the job's events are stored", async || {
            Some(site.stored(&format!("JOB#{id}")).await).filter(|found| found.len() >= 2)
        });
        assert_eq!(of_job.await, ["Job Created", "Job Completed"]);
        for task in view["tasks"].as_array().expect("a job has tasks") {
            let entity = format!("TASK#{}", task["requestId"].as_str().unwrap_or_default());
            let of_task = eventually("the task's events are stored", async || {
                Some(site.stored(&entity).await).filter(|found| found.len() >= 3)
            });
            assert_eq!(of_task.await, ["Task Pending", "Task Processing Started", "Task Completed"], "{entity}");
        }
        eventually("tickets of what is done are gone", async || {
            (depth(&site, site.output("TaskQueueUrl")).await == 0).then_some(())
        })
        .await;
        // A function that had failed, for want of a right or otherwise, would have left something.
        assert_eq!(depth(&site, site.output("EventBridgeTargetDLQUrl")).await, 0);
        assert_eq!(slack.texts(), Vec::<String>::new());

        // The function knows this key well; it was revoked by another process.
        let keys = engine.keys(None, 10).await.expect("the store answers");
        engine.revoke_key(&keys[0].id).await.expect("it is revoked");
        let refused = site.api(Method::GET, "/v1/jobs", &key, None).await;
        assert_eq!(refused.status, StatusCode::UNAUTHORIZED, "{}", refused.text);
    });
}

#[test]
fn a_ticket_that_was_received_too_often_is_sent_again() {
    let Some(double) = strict_double() else { return };
    RUNTIME.block_on(async {
        let slack = Slack::start().await;
        let site = Site::deploy(double, "dead", &slack).await;
        let engine = engine(&site, false).await;
        let key = admin_key(&engine).await;
        let job = json!({ "tasks": [{ "taskId": "A", "run": ["true"] }] });
        let made = site.api(Method::POST, "/v1/jobs", &key, Some(job)).await;
        assert_eq!(made.status, StatusCode::CREATED, "{}", made.text);

        let mut seen: Vec<(String, String)> = Vec::new();
        let renewed = eventually("another ticket comes", async || {
            let receive =
                site.sqs.receive_message().queue_url(site.output("TaskQueueUrl")).visibility_timeout(0);
            let found = receive.wait_time_seconds(1).send().await.expect("the queue answers").messages;
            for message in found.unwrap_or_default() {
                let ticket = (message.message_id.unwrap_or_default(), message.body.unwrap_or_default());
                let is_other = seen.first().is_some_and(|(first, _)| *first != ticket.0);
                seen.push(ticket);
                if is_other {
                    return seen.last().cloned();
                }
            }
            None
        })
        .await;
        assert_eq!(seen.len(), 4, "three times the first one: {seen:?}");
        assert_eq!(renewed.1, seen[0].1, "it is for the same message");
        eventually("the dead ticket is gone", async || {
            (depth(&site, site.output("TaskQueueDLQUrl")).await == 0).then_some(())
        })
        .await;
    });
}

#[test]
fn workflows_and_schedules() {
    let Some(double) = strict_double() else { return };
    RUNTIME.block_on(async {
        let slack = Slack::start().await;
        let site = Site::deploy(double, "flow", &slack).await;
        let key = admin_key(&engine(&site, false).await).await;
        let detail = json!({
            "executionId": "arn:aws:states:us-east-1:1:execution:x:e1", "county": "Cook", "dataGroupLabel": "Seed",
            "status": "FAILED", "phase": "Transform", "step": "Transform", "taskToken": "very-secret-token",
            "errors": [{ "code": "20Cook", "details": {} }],
        });
        site.put_event("elephant.workflow", "WorkflowEvent", &detail.to_string()).await;
        let path = "/v1/workflow/executions/arn:aws:states:us-east-1:1:execution:x:e1";
        let view = eventually("the execution is parked", async || {
            let answer = site.api(Method::GET, path, &key, None).await;
            (answer.status == StatusCode::OK).then(|| answer.text.clone())
        })
        .await;
        assert!(view.contains("20Cook") && !view.contains("very-secret-token"), "{view}");

        // No function compiles scripts, and none will: it says where to save them.
        let script = json!({ "name": "note", "source": "return 1" });
        let refused = site.api(Method::POST, "/v1/scripts", &key, Some(script)).await;
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{}", refused.text);
        assert!(!refused.headers.contains_key("retry-after"), "{:?}", refused.headers);
        let told = refused.json();
        assert_eq!(told["code"], "SCRIPTS_UNAVAILABLE", "{told}");
        assert!(told["detail"].as_str().is_some_and(|told| told.contains("`tidemill scripts put`")), "{told}");

        assert_eq!(site.api(Method::GET, "/v1/health-check", &key, None).await.status, StatusCode::NOT_FOUND);
        let tick = json!({ "source": "aws.events", "detail-type": "Scheduled Event", "detail": {} });
        assert_eq!(site.invoke("health-check", &tick).await, Ok(json!({ "tenants": 1, "told": 0 })));
        let last = site.api(Method::GET, "/v1/health-check", &key, None).await;
        assert_eq!(last.status, StatusCode::OK, "another function reads what it found: {}", last.text);
        for _ in 0..2 {
            let done = site.invoke("reconcile", &tick).await.expect("it does its work");
            assert_eq!(done["done"]["repaired"], 0, "nothing stood still: {done}");
        }
        assert_eq!(depth(&site, site.output("EventBridgeTargetDLQUrl")).await, 0);
    });
}

#[test]
fn a_check_that_alarms_is_told() {
    let Some(double) = strict_double() else { return };
    RUNTIME.block_on(async {
        let slack = Slack::start().await;
        let site = Site::deploy(double, "ill", &slack).await;
        let key = admin_key(&engine(&site, false).await).await;
        let job = json!({ "tasks": [{ "taskId": "A", "run": ["true"] }] });
        let made = site.api(Method::POST, "/v1/jobs", &key, Some(job)).await;
        assert_eq!(made.status, StatusCode::CREATED, "{}", made.text);
        // Nobody works here, and that is too long now.
        site.set("health-check", "HEALTH_PENDING_MS", "1").await;
        let tick = json!({ "source": "aws.events", "detail-type": "Scheduled Event", "detail": {} });
        slack.set(Mood::Refuses);
        assert_eq!(site.invoke("health-check", &tick).await, Ok(json!({ "tenants": 1, "told": 1 })));
        assert_eq!(slack.texts(), Vec::<String>::new());
        // The first function that runs delivers it once Slack accepts it: it is tried again after a second.
        slack.set(Mood::Takes);
        eventually("it is told", async || {
            site.invoke("reconcile", &tick).await.expect("it does its work");
            (!slack.texts().is_empty()).then_some(())
        })
        .await;
        assert!(matches!(&slack.texts()[..], [text] if text.contains("pending")), "{:?}", slack.texts());
    });
}

#[test]
fn what_the_bus_could_not_deliver_is_kept_and_told() {
    let Some(double) = strict_double() else { return };
    RUNTIME.block_on(async {
        let slack = Slack::start().await;
        let site = Site::deploy(double, "alert", &slack).await;
        let key = admin_key(&engine(&site, false).await).await;
        // No event of ours: the function that stores events fails at it as often as it is tried. The double's bus tries
        // once and forgets, so the function is invoked as a bus would.
        let nonsense = json!({
            "source": "somebody", "detail-type": "log-event", "detail": { "eventType": "Nonsense", "GSI1PK": "TASK#r-1" },
        });
        site.invoke_later("save-event", &nonsense).await;
        slack.posts(1).await;
        let kept =
            eventually("it is kept", async || Some(letters(&site, &key).await).filter(|all| !all.is_empty()));
        assert_eq!(kept.await.len(), 1);
        let is_told = failure_text("Nonsense", "log-event");
        assert!(matches!(&slack.texts()[..], [text] if is_told(text) && text.contains("*Task:* TASK#r-1\n")));

        // If Slack refuses the alert, people get it later, and the event is kept once.
        let body = json!({ "detail-type": "log-event", "detail": { "eventType": "Other" } }).to_string();
        let message =
            json!({ "Records": [{ "messageId": "6f1c1d5e-0000-4000-8000-000000000001", "body": body }] });
        slack.set(Mood::Refuses);
        let failed = site.invoke("eventbridge-dlq-alert", &message).await.expect("it answers");
        let again = json!([{ "itemIdentifier": "6f1c1d5e-0000-4000-8000-000000000001" }]);
        assert_eq!(failed["batchItemFailures"], again);
        slack.set(Mood::Takes);
        let done = site.invoke("eventbridge-dlq-alert", &message).await.expect("it answers");
        assert_eq!(done["batchItemFailures"], json!([]));
        assert_eq!(letters(&site, &key).await.len(), 2);
        assert!(failure_text("Other", "log-event")(slack.texts().last().expect("one was told")));
    });
}

#[test]
fn a_function_that_is_killed_is_called_again() {
    let Some(double) = strict_double() else { return };
    RUNTIME.block_on(async {
        let slack = Slack::start().await;
        let site = Site::deploy(double, "kill", &slack).await;
        let key = admin_key(&engine(&site, false).await).await;
        let queue = site.output("EventBridgeTargetDLQUrl");
        // The message comes again after this time; three minutes are too long for a test.
        let set = site.sqs.set_queue_attributes().queue_url(queue);
        set.attributes(QueueAttributeName::VisibilityTimeout, "3").send().await.expect("the queue is there");
        slack.set(Mood::Hangs);
        let body = json!({ "detail-type": "log-event", "detail": { "eventType": "Lost" } }).to_string();
        site.sqs.send_message().queue_url(queue).message_body(body).send().await.expect("the queue takes it");
        slack.posts(1).await;
        kill(double, "eventbridge-dlq-alert-kill");
        slack.set(Mood::Takes);
        slack.posts(2).await;
        eventually("the message is done", async || (depth(&site, queue).await == 0).then_some(())).await;
        assert_eq!(letters(&site, &key).await.len(), 1, "kept once, whichever life did it");
        assert!(slack.texts().iter().any(|text| failure_text("Lost", "log-event")(text)));
    });
}

/// Kills the process that runs a function.
fn kill(double: &Double, function: &str) {
    let mark = format!("AWS_LAMBDA_FUNCTION_NAME={function}\0");
    let has = |file: &str, id: &str, part: &str| {
        let text = std::fs::read(format!("/proc/{id}/{file}")).unwrap_or_default();
        String::from_utf8_lossy(&text).contains(part)
    };
    let parent = format!("PPid:\t{}\n", double.process);
    let entries = std::fs::read_dir("/proc").expect("this is Linux").flatten();
    let ids = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let found: Vec<_> = ids.filter(|id| has("status", id, &parent) && has("environ", id, &mark)).collect();
    assert_eq!(found.len(), 1, "one process runs {function}");
    let killed = Command::new("kill").args(["-9", &found[0]]).status().expect("there is a kill");
    assert!(killed.success());
}

#[test]
fn a_function_cannot_do_what_its_role_does_not_say() {
    let Some(double) = strict_double() else { return };
    RUNTIME.block_on(async {
        let slack = Slack::start().await;
        let site = Site::deploy(double, "role", &slack).await;
        let key = admin_key(&engine(&site, false).await).await;
        let role = site.role_of("save-event").await;
        let form = [("Action", "DeleteRolePolicy"), ("RoleName", &role), ("PolicyName", "save-event")];
        let form = form.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        site.query("iam", "2010-05-08", form).await;
        let event =
            json!({ "eventType": "user.created", "entityType": "USER", "entityId": "u-1", "properties": {} });
        let sent = site.api(Method::POST, "/v1/events", &key, Some(event)).await;
        assert_eq!(sent.status, StatusCode::ACCEPTED, "{}", sent.text);
        let found = site.api(Method::GET, "/v1/events?entity=USER/u-1", &key, None).await;
        assert_eq!(found.status, StatusCode::OK, "{}", found.text);
        let bus_event = json!({ "detail-type": "log-event", "detail": found.json()["items"][0] });
        let told = site.invoke("save-event", &bus_event).await.expect_err("it may write no more");
        assert!(
            told["errorMessage"].as_str().is_some_and(|told| told.contains("dynamodb:PutItem")),
            "{told}"
        );
        assert_eq!(site.stored("USER#u-1").await, Vec::<String>::new());
    });
}
