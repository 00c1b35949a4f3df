//! What a process must know although it hears of it late: events that the table does not have yet, and records that others
//! wrote while it was behind.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidemill_aws::{Aws, AwsOptions};
use tidemill_engine::backend::Backend;
use tidemill_engine::command::{Command, PutRecord};
use tidemill_engine::engine::{
    AttemptReport, Claimant, Engine, EventBatch, JobRequest, NewEvent, WorkReport,
};
use tidemill_engine::reads::Reads as _;
use tidemill_engine::record::{RecordKey, RecordKind, RecordValue};
use tidemill_engine::reply::Assignment;
use tidemill_model::{
    AppName, Entity, EntityId, EntityType, EventType, JobStatus, Json, TaskId, TaskName, TaskOptions,
    TaskSpec, TenantId, WorkerId,
};

use crate::double::Double;
use crate::proxy::{Fate, Proxy};
use crate::site::Site;

fn tenant() -> TenantId {
    TenantId::trusted("acme")
}

fn worker() -> WorkerId {
    WorkerId::trusted("w")
}

async fn submit_chain(engine: &Engine<Aws>) -> tidemill_model::JobId {
    let spec = |id: &str, parent: Option<&str>| TaskSpec {
        task_id: TaskId::trusted(id),
        name: TaskName::trusted("n"),
        depends_on: parent.map(TaskId::trusted).into_iter().collect(),
        input: Json::empty_object(),
        options: TaskOptions::default(),
    };
    let request = JobRequest {
        tenant: tenant(),
        app: AppName::trusted("orders"),
        request: None,
        name: None,
        budget: None,
        callback: None,
        tasks: vec![spec("a", None), spec("b", Some("a")), spec("c", Some("b"))],
        idempotency: None,
    };
    engine.submit_job(request).await.expect("the job is accepted").job
}

async fn claim(engine: &Engine<Aws>) -> Assignment {
    let request = Claimant { worker: worker(), generation: None, max: 1, tenants: None, begin: Some(1) };
    engine.claim(request).await.expect("the claim is answered").tasks.remove(0)
}

async fn complete(engine: &Engine<Aws>, task: &Assignment, output: &str) {
    let report = WorkReport::completed(Json::trusted(output), 1);
    engine.finish(AttemptReport::of(task, worker(), report)).await.expect("the outcome is taken");
    engine.backend().own_sent().await;
}

/// Nobody stores what is on the bus of this stage: the table has no event at all.
async fn a_child_gets_its_parents_output_from_the_log(double: &Double) {
    let site = Site::new(double).await;
    let first = site.server(1).await;
    let job = submit_chain(&first).await;
    complete(&first, &claim(&first).await, r#"{"v":42}"#).await;
    first.backend().all_sent().await;
    for seed in [2, 3] {
        // One that opens the store, and one that opens it from rows.
        let other = site.server(seed).await;
        let task = claim(&other).await;
        let work = other.work_of(&task).await.expect("the output of the parent is found");
        let parent = if seed == 2 { r#"{"a":{"v":42}}"# } else { r#"{"b":{"v":43}}"# };
        assert_eq!(work.input.as_str(), format!(r#"{{"dependencyOutputs":{parent}}}"#));
        complete(&other, &task, r#"{"v":43}"#).await;
        other.backend().flush().await.expect("the rows are written");
    }
    let found = first.job(tenant(), job).await.expect("it answers").expect("it is known");
    assert_eq!(found.status, JobStatus::Completed);
    let last = site.server(4).await;
    let entity = Entity::job(job);
    let latest = last.backend().latest(tenant(), entity).await.expect("it answers");
    assert_eq!(latest.map(|event| event.event_type.to_string()).as_deref(), Some("Job Completed"));
}

fn subscription(id: &str) -> RecordKey {
    RecordKey { kind: RecordKind::Subscription, tenant: Some(tenant()), id: Arc::from(id) }
}

async fn put(engine: &Engine<Aws>, key: RecordKey, value: Option<&str>) {
    let value = value.map(|value| RecordValue::Bytes(Arc::from(value.as_bytes())));
    let put = PutRecord { key, value, expires_at: None, expected: None };
    let answers = engine.backend().execute(vec![Command::PutRecord(put)]).await.expect("it answers");
    for answer in answers {
        answer.expect("the record is put");
    }
}

async fn publish(engine: &Engine<Aws>) {
    let request = EventBatch {
        tenant: tenant(),
        app: AppName::trusted("orders"),
        origin: "test".to_owned(),
        events: vec![NewEvent {
            entity: Entity { kind: EntityType::trusted("ORDER"), id: EntityId::trusted("o-1") },
            event_type: EventType::trusted("Changed"),
            timestamp: None,
            properties: Json::empty_object(),
            ttl: None,
        }],
    };
    engine.publish(request).await.expect("the event is taken");
    engine.backend().own_sent().await;
}

/// A process that slept continues from rows that are newer than what it knew. It still learns of the records that it
/// skipped.
async fn records_that_were_passed_over_are_told_of(double: &Double) {
    for is_trimmed in [false, true] {
        let site = Site::new(double).await;
        let options = |seed| AwsOptions { keep_log: Duration::ZERO, ..site.options(seed) };
        let sleeper = site.open(options(1)).await;
        let told = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&told);
        sleeper
            .backend()
            .listen_to_records(move |key| hears.lock().expect("nobody panicked").push(key.clone()));
        publish(&sleeper).await;

        let busy = site.open(options(2)).await;
        put(&busy, subscription("gone"), Some("x")).await;
        put(&busy, subscription("gone"), None).await;
        put(&busy, subscription("kept"), Some("x")).await;
        // The row of this entity is newer than the sleeper, which therefore cannot continue step by step.
        publish(&busy).await;
        busy.backend().flush().await.expect("the rows are written");
        if is_trimmed {
            assert!(busy.backend().trim_log().await.expect("it is trimmed").groups > 3);
        }
        sleeper.queue_depth().await.expect("it answers");
        let mut told = told.lock().expect("nobody panicked").clone();
        told.retain(|key| key.kind == RecordKind::Subscription);
        told.sort();
        told.dedup();
        assert_eq!(told, [subscription("gone"), subscription("kept")], "trimmed: {is_trimmed}");
    }
}

/// A put takes long, and the caller of the next command does not wait for it. The command is not carried out later.
async fn what_nobody_waits_for_any_more_is_not_done_later(double: &Double) {
    let site = Site::new(double).await;
    let puts = AtomicU64::new(0);
    let proxy = Proxy::start(&site.endpoint, move |_, operation| {
        let is_first = operation == "PutItem" && puts.fetch_add(1, Ordering::SeqCst) == 0;
        if is_first { Fate::Hang } else { Fate::Forward }
    })
    .await;
    let engine = site.open_at(&proxy.endpoint, site.options(1)).await;
    let slow = put(&engine, subscription("slow"), Some("x"));
    let given_up = async {
        while !proxy.take_requests().iter().any(|(operation, _)| operation == "PutItem") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let asked = put(&engine, subscription("given up"), Some("x"));
        assert!(tokio::time::timeout(Duration::from_millis(100), asked).await.is_err());
    };
    tokio::join!(slow, given_up);
    put(&engine, subscription("next"), Some("x")).await;
    let found = engine.backend().all_records(RecordKind::Subscription, None, 10).await.expect("it answers");
    let ids: Vec<_> = found.iter().map(|(key, _)| &*key.id).collect();
    assert_eq!(ids, ["next", "slow"]);
}

crate::double::on_ministack!(
    what_nobody_waits_for_any_more_is_not_done_later,
    a_child_gets_its_parents_output_from_the_log,
    records_that_were_passed_over_are_told_of
);
crate::double::on_moto!(a_child_gets_its_parents_output_from_the_log);
