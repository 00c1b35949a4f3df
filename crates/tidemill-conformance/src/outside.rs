//! What other systems send: their events are kept as they were sent, and mean what they say, once.

use serde_json::{Value, json};
use tidemill_engine::engine::{EngineError, NewMessage, TakenEvent};
use tidemill_engine::reply::Refusal;
use tidemill_model::{AccessPath, Event, EventType, Outcome, PublicState, RequestId, TaskState, Timestamp};

use super::lab::completed;
use super::shape::{LEASE, SECOND, acme, alone, app, entity, json as text, names, request, types};
use super::{Lab, TestWorld};

/// An event as another system writes it: all its keys, a context and fields of its own. `number` makes its id.
fn sent(kind: &str, id: &str, event_type: &str, at: Timestamp, number: u32, properties: &Value) -> Value {
    let (millis, event) = (at.to_string(), format!("ddf71f63-b036-4ac7-ad0f-{number:012x}"));
    json!({
        "PK": "TENANT#acme",
        "SK": format!("TIMESTAMP#{millis}#EVENT#{event}"),
        "GSI1PK": format!("{kind}#{id}"),
        "GSI1SK": format!("{kind}#TIMESTAMP#{millis}"),
        "GSI2PK": "APP#legacy",
        "GSI2SK": format!("TIMESTAMP#{millis}"),
        "entityId": id,
        "entityType": kind,
        "tenantId": "acme",
        "eventType": event_type,
        "timestamp": at.millis(),
        "context": {"source": "legacy", "environment": "prod", "host": "m-1", "workerId": "their-1"},
        "colour": {"b": 1, "a": [2.5, null]},
        "properties": properties,
    })
}

/// What a worker called `their-1` says of a task, now.
fn said<W: TestWorld>(lab: &Lab<W>, id: &str, event_type: &str, number: u32, properties: &Value) -> Value {
    sent("TASK", id, event_type, lab.now(), number, properties)
}

async fn take<W: TestWorld>(lab: &Lab<W>, detail: &Value) -> Result<TakenEvent, EngineError> {
    let event = lab.engine.read_sent(&detail.to_string(), &app("legacy"))?;
    lab.engine.take_in(event, "a-key").await
}

async fn taken<W: TestWorld>(lab: &Lab<W>, detail: &Value) {
    let answer = take(lab, detail).await;
    assert!(answer.as_ref().is_ok_and(|taken| !taken.known), "{answer:?} for {detail}");
}

/// That nothing was stored, and why.
async fn refused<W: TestWorld>(lab: &Lab<W>, detail: &Value) -> Refusal {
    let before = lab.events(AccessPath::Tenant).await;
    let answer = take(lab, detail).await;
    assert_eq!(lab.events(AccessPath::Tenant).await, before, "nothing is stored of what is refused");
    match answer {
        Err(EngineError::Refused(refusal)) => refusal,
        answer => panic!("{answer:?} for {detail}"),
    }
}

fn stored(event: &Event) -> Value {
    let mut stored: Value = serde_json::from_str(&event.to_json()).expect("an event is JSON");
    let fields = stored.as_object_mut().expect("an event is an object");
    fields.remove("receivedAt").expect("the store says when it came");
    stored
}

/// Every field that was sent is there, keys that were left out are made, and nothing else is.
fn is_as_sent(event: &Event, detail: &Value) {
    let (stored, sent) = (stored(event), detail.as_object().expect("it is an object"));
    for (name, value) in stored.as_object().expect("an event is an object") {
        match sent.get(name) {
            Some(sent) => assert_eq!(value, sent, "{name}"),
            None => assert!(name.starts_with("GSI"), "{name} was not sent"),
        }
    }
    assert!(sent.keys().all(|name| stored.get(name).is_some()), "{stored} for {detail}");
}

/// A task that a message began, as a producer of another system does, without an event.
async fn message<W: TestWorld>(lab: &Lab<W>, id: &str) {
    let alone = alone(id);
    let message = NewMessage {
        tenant: acme(),
        app: app("legacy"),
        request: Some(request(id)),
        name: alone.name,
        input: text(r#"{"n":1}"#),
        run: 1,
        delay_millis: 0,
    };
    lab.engine.send(message).await.expect("the message is taken");
}

fn until<W: TestWorld>(lab: &Lab<W>) -> Value {
    json!({"effectiveUntil": lab.now().plus(45 * SECOND).millis()})
}

async fn check<W: TestWorld>(lab: Lab<W>, id: &RequestId) {
    lab.check_task(id).await;
    let before = lab.history(id).await;
    let lab = lab.reopen_if_it_can().await;
    assert_eq!(lab.history(id).await, before, "it is there in the next life");
    lab.check_task(id).await;
}

/// Ids, times, contexts and fields of a sender come back as they were sent, on the way of its entity.
pub async fn an_event_comes_back_as_it_was_sent<W: TestWorld>(lab: Lab<W>) {
    let early = lab.now().minus(3_600 * SECOND);
    let one = sent("STORE", "s-1", "stock.counted", early, 1, &json!({"n": 1, "deep": {"z": 1, "a": "é"}}));
    let two = sent("JOB", "their-job", "Job Completed", lab.now(), 2, &json!({"jobId": "their-job"}));
    for detail in [&one, &two] {
        taken(&lab, detail).await;
    }
    for (kind, id, detail) in [("STORE", "s-1", &one), ("JOB", "their-job", &two)] {
        let events = lab.events(AccessPath::Entity(entity(kind, id))).await;
        assert_eq!(events.len(), 1, "{events:?}");
        is_as_sent(&events[0], detail);
    }
    let lab = lab.reopen_if_it_can().await;
    let counted = AccessPath::Type(EventType::new("stock.counted").expect("it is a name"));
    is_as_sent(&lab.events(counted).await[0], &one);
    assert_eq!(lab.events(AccessPath::App(app("legacy"))).await.len(), 2);
}

/// The same event again changes nothing, for as long as it is kept; another one under its key is refused.
pub async fn an_event_is_taken_once<W: TestWorld>(lab: Lab<W>) {
    let one = sent("STORE", "s-1", "stock.counted", lab.now(), 1, &json!({"a": 1, "b": 2}));
    let other = sent("STORE", "s-1", "stock.counted", lab.now(), 1, &json!({"a": 1, "b": 3}));
    taken(&lab, &one).await;
    let days = 30 * 24 * 3_600 * SECOND;
    let lab = lab.reopen_if_it_can().await;
    for wait in [0, days] {
        lab.pass(wait);
        assert!(take(&lab, &one).await.expect("it is known").known);
        assert!(matches!(refused(&lab, &other).await, Refusal::EventDiffers(_)));
    }
    assert_eq!(lab.events(AccessPath::Tenant).await.len(), 1);
}

/// What contradicts itself, lies too far ahead or cannot be read is refused by name.
pub async fn what_contradicts_itself_is_refused<W: TestWorld>(lab: Lab<W>) {
    let good = said(&lab, "t-1", "Task Pending", 1, &json!({"requestId": "t-1"}));
    let ahead = sent("STORE", "s-1", "counted", lab.now().plus(3_600 * SECOND), 1, &json!({}));
    assert!(matches!(refused(&lab, &ahead).await, Refusal::TooFarAhead { .. }));
    for (field, value, named) in [
        ("PK", json!("TENANT#other"), "PK"),
        ("GSI1PK", json!("TASK#t-2"), "GSI1PK"),
        ("timestamp", json!(lab.now().millis() + 1), "SK"),
        ("SK", json!("TIMESTAMP#1#EVENT#x"), "SK"),
        ("properties", json!([1]), "properties"),
        ("properties", json!({"requestId": "t-2"}), "properties.requestId"),
        ("properties", json!({"attemptNumber": "two"}), "properties"),
        ("properties", json!({"parked": true}), "properties.parked"),
        (
            "properties",
            json!({"effectiveUntil": lab.now().plus(50_000 * SECOND).millis()}),
            "properties.effectiveUntil",
        ),
        ("eventType", json!("Job Completed"), "eventType"),
    ] {
        let mut detail = good.clone();
        detail[field] = value;
        match take(&lab, &detail).await {
            Err(EngineError::Invalid { field, .. }) => assert_eq!(field, named, "{detail}"),
            answer => panic!("{answer:?} for {detail}"),
        }
    }
    assert_eq!(lab.events(AccessPath::Tenant).await, []);
    taken(&lab, &good).await;
}

/// Events of a task that nobody asked for are facts. It is not run, until a message comes for it.
pub async fn a_task_that_is_only_told_of_is_not_run<W: TestWorld>(lab: Lab<W>) {
    taken(&lab, &said(&lab, "t-1", "Task Pending", 1, &json!({"requestId": "t-1", "name": "scrape"}))).await;
    let lab = lab.reopen_if_it_can().await;
    assert_eq!(names(&lab.claim(5).await), Vec::<&str>::new());
    lab.pass(120 * SECOND);
    assert_eq!(names(&lab.claim(5).await), Vec::<&str>::new(), "no sweep makes it run");
    assert_eq!(types(&lab.history(&request("t-1")).await), ["Task Pending"]);
    let late =
        sent("TASK", "t-1", "Task Heartbeat", lab.now().minus(SECOND), 2, &json!({"requestId": "t-1"}));
    taken(&lab, &late).await;
    assert_eq!(lab.history(&request("t-1")).await.len(), 2);
}

/// A worker of another system takes the lease by its event, keeps it by heartbeats and ends the run once.
pub async fn a_worker_of_another_system_runs_a_task<W: TestWorld>(lab: Lab<W>) {
    message(&lab, "t-1").await;
    let id = request("t-1");
    taken(&lab, &said(&lab, "t-1", "Task Pending", 1, &json!({"requestId": "t-1"}))).await;
    taken(&lab, &said(&lab, "t-1", "Task Processing Started", 2, &until(&lab))).await;
    assert_eq!(names(&lab.claim(5).await), Vec::<&str>::new(), "it is held");
    lab.pass(20 * SECOND);
    taken(&lab, &said(&lab, "t-1", "Task Heartbeat", 3, &until(&lab))).await;
    lab.pass(40 * SECOND);
    assert_eq!(names(&lab.claim(5).await), Vec::<&str>::new(), "it is held still");
    let mut stranger = said(&lab, "t-1", "Task Processing Started", 4, &until(&lab));
    stranger["context"]["workerId"] = json!("their-2");
    assert!(matches!(refused(&lab, &stranger).await, Refusal::Held { .. }));
    stranger["eventType"] = json!("Task Completed");
    assert!(matches!(refused(&lab, &stranger).await, Refusal::LeaseLost { .. }));
    let done = said(
        &lab,
        "t-1",
        "Task Completed",
        5,
        &json!({"requestId": "t-1", "output": {"n": 7}, "exitCode": 0}),
    );
    taken(&lab, &done).await;
    let head = lab.head(&id).await;
    assert_eq!((head.outcome(), head.public_state()), (Some(Outcome::Completed), PublicState::Completed));
    let history = lab.history(&id).await;
    is_as_sent(history.last().expect("it has events"), &done);
    for (number, event_type) in (6..).zip(["Task Completed", "Task Failed", "Task Processing Started"]) {
        let again = said(&lab, "t-1", event_type, number, &json!({}));
        assert!(matches!(refused(&lab, &again).await, Refusal::TaskEnded(_)), "one outcome per run");
    }
    assert_eq!(lab.engine.queue_depth().await.expect("the queue can be seen").messages, 0);
    check(lab, &id).await;
}

/// A lease whose holder fell silent goes to the next one, and the first writes nothing any more.
pub async fn a_silent_worker_of_another_system_is_replaced<W: TestWorld>(lab: Lab<W>) {
    message(&lab, "t-1").await;
    taken(&lab, &said(&lab, "t-1", "Task Processing Started", 1, &until(&lab))).await;
    lab.pass(46 * SECOND + LEASE);
    let task = lab.claim_one().await;
    let done = said(&lab, "t-1", "Task Completed", 2, &json!({}));
    assert!(matches!(refused(&lab, &done).await, Refusal::LeaseLost { .. }));
    lab.report(&task, completed("{}")).await.expect("the lease is held");
    check(lab, &request("t-1")).await;
}

/// A worker of the engine is known by its fence. An event that gives its name says nothing of its task.
pub async fn a_name_does_not_stand_for_a_fence<W: TestWorld>(lab: Lab<W>) {
    message(&lab, "t-1").await;
    let task = lab.claim_as("their-1", 1).await.remove(0);
    for (number, event_type) in
        (1..).zip(["Task Heartbeat", "Task Completed", "Task Failed", "Task Processing Failed"])
    {
        let detail = said(&lab, "t-1", event_type, number, &json!({}));
        assert!(matches!(refused(&lab, &detail).await, Refusal::LeaseLost { .. }), "{event_type}");
    }
    let started = said(&lab, "t-1", "Task Processing Started", 9, &until(&lab));
    assert!(matches!(refused(&lab, &started).await, Refusal::Held { .. }));
    lab.report(&task, completed("{}")).await.expect("the lease is held");
    check(lab, &request("t-1")).await;
}

/// The type of an event decides whether a failure is final. The last attempt that fails ends in a dead letter.
pub async fn a_failed_attempt_is_not_the_end<W: TestWorld>(lab: Lab<W>) {
    message(&lab, "t-1").await;
    let id = request("t-1");
    for attempt in 1..=3_u32 {
        taken(&lab, &said(&lab, "t-1", "Task Processing Started", 2 * attempt, &until(&lab))).await;
        let head = lab.head(&id).await;
        assert!(matches!(head.state, TaskState::Leased(_)), "{head:?}");
        let why = json!({"error": "ETIMEDOUT", "errorCategory": "network", "attemptNumber": attempt});
        taken(&lab, &said(&lab, "t-1", "Task Processing Failed", 2 * attempt + 1, &why)).await;
        lab.pass(SECOND);
    }
    let head = lab.head(&id).await;
    assert_eq!((head.outcome(), head.attempts), (Some(Outcome::Failed), 3));
    let history = lab.history(&id).await;
    assert_eq!(types(&history).last(), Some(&"Task Failed"), "the engine says that it was the last");
    let letters = lab.engine.dead_letters(acme(), None, None, 10).await.expect("letters can be listed");
    assert_eq!(letters.letters.len(), 1);

    message(&lab, "t-2").await;
    taken(&lab, &said(&lab, "t-2", "Task Processing Started", 20, &until(&lab))).await;
    let why = json!({"error": "gone", "errorCategory": "network", "retryCount": 1, "source": "worker"});
    taken(&lab, &said(&lab, "t-2", "Task Failed", 21, &why)).await;
    assert_eq!(lab.head(&request("t-2")).await.outcome(), Some(Outcome::Failed));
    lab.check_task(&request("t-2")).await;
    check(lab, &id).await;
}

/// Another tenant's events of the same ids are its own.
pub async fn tenants_do_not_meet<W: TestWorld>(lab: Lab<W>) {
    message(&lab, "t-1").await;
    let mut foreign = said(&lab, "t-1", "Task Processing Started", 1, &until(&lab));
    for (field, value) in [("PK", "TENANT#other"), ("tenantId", "other")] {
        foreign[field] = json!(value);
    }
    taken(&lab, &foreign).await;
    assert_eq!(lab.head(&request("t-1")).await.state, TaskState::Queued);
    assert_eq!(lab.history(&request("t-1")).await, []);
    assert_eq!(names(&lab.claim(5).await), ["task"]);
}
