//! Events from outside are stored as they came, in order, or not at all.

use tidemill_model::events::access_path::AccessPath;
use tidemill_model::events::event_query::EventQuery;
use tidemill_model::events::overflow::DETAIL_BYTES_MAX;
use tidemill_model::{Entity, EntityType, Event, EventType};

use super::shape::{MINUTE, acme, app, entity, event, json, property, types};
use super::{Lab, TestWorld};
use tidemill_engine::backend::Backend;
use tidemill_engine::engine::limits::{EVENT_BYTES_MAX, PUBLISH_BYTES_MAX};
use tidemill_engine::engine::{EngineError, EventBatch, NewEvent};
use tidemill_engine::reply::Refusal;

fn publish(events: Vec<NewEvent>) -> EventBatch {
    EventBatch { tenant: acme(), app: app("orders"), origin: "test".to_owned(), events }
}

fn store(id: &str) -> AccessPath {
    AccessPath::Entity(entity("STORE", id))
}

fn numbers(events: &[Event]) -> Vec<u64> {
    events.iter().filter_map(|event| property(event, "n").as_u64()).collect()
}

/// A burst within one millisecond comes back in the order it was sent.
pub async fn appends_in_order<W: TestWorld>(lab: Lab<W>) {
    for batch in 0..10u64 {
        let burst =
            (0..100).map(|n| event("s-1", "stock.counted", &format!(r#"{{"n":{}}}"#, batch * 100 + n)));
        let answers = lab.engine.publish(publish(burst.collect())).await.expect("the events are accepted");
        assert_eq!(answers.len(), 100);
        assert!(answers.is_sorted(), "ids and times grow");
    }
    let found = lab.events(store("s-1")).await;
    assert_eq!(numbers(&found), (0..1_000).collect::<Vec<_>>());
}

/// An event with a time to live disappears when it is over, from pages and as the latest, and leaves no gap.
pub async fn an_event_past_its_time_to_live_is_gone<W: TestWorld>(lab: Lab<W>) {
    let soon = lab.now().plus(10_000).millis() / 1_000;
    for n in 0..9u64 {
        let mut sent = event("s-1", "stock.counted", &format!(r#"{{"n":{n}}}"#));
        sent.ttl = (n % 2 == 0).then_some(soon);
        lab.engine.publish(publish(vec![sent])).await.expect("the event is accepted");
    }
    assert_eq!(numbers(&lab.events(store("s-1")).await), (0..9).collect::<Vec<_>>());
    lab.pass(11_000);
    for path in [store("s-1"), AccessPath::Tenant] {
        let query = EventQuery { limit: 4, ..EventQuery::all(acme(), path) };
        let page = lab.engine.events(query, false).await.expect("the query is answered");
        assert_eq!((numbers(&page.events), page.next), (vec![1, 3, 5, 7], None));
    }
    let latest = lab.engine.latest(acme(), entity("STORE", "s-1")).await.expect("the backend works");
    assert_eq!(latest.map(|event| property(&event, "n")), Some(7.into()));
}

/// What was sent is what is stored, beside the keys and the times.
pub async fn events_come_back_as_they_were_sent<W: TestWorld>(lab: Lab<W>) {
    let mut sent = event("s-1", "stock.counted", r#"{"n":1.50E+300,"text":"\u00e9","deep":[{"a":null}]}"#);
    sent.ttl = Some(1_900_000_000);
    lab.pass(7);
    let answer = lab.engine.publish(publish(vec![sent.clone()])).await.expect("the event is accepted");
    let found = lab.events(store("s-1")).await;
    let [found] = found.as_slice() else { panic!("one event: {found:?}") };
    assert_eq!((found.id, found.timestamp), answer[0]);
    assert_eq!((found.timestamp, found.received_at), (lab.now(), lab.now()));
    assert_eq!((&found.tenant, &found.app), (&acme(), &app("orders")));
    assert_eq!((&found.entity, &found.event_type), (&sent.entity, &sent.event_type));
    assert_eq!((&*found.context.environment, &*found.context.origin), ("dev", "test"));
    assert_eq!((&found.properties, found.ttl), (&sent.properties, sent.ttl));
}

/// A sender's own time is kept, even when it lies before that of older events.
pub async fn a_senders_own_time_is_kept<W: TestWorld>(lab: Lab<W>) {
    let at = lab.now();
    for (n, timestamp) in [(1, Some(at.minus(5_000))), (2, None), (3, Some(at.minus(9_000)))] {
        let sent = NewEvent { timestamp, ..event("s-1", "stock.counted", &format!(r#"{{"n":{n}}}"#)) };
        let answer = lab.engine.publish(publish(vec![sent])).await.expect("the event is accepted");
        assert_eq!(answer[0].1, timestamp.unwrap_or(at));
    }
    assert_eq!(numbers(&lab.events(store("s-1")).await), [3, 1, 2]);
    let latest = lab.engine.latest(acme(), entity("STORE", "s-1")).await.expect("the backend works");
    assert_eq!(latest.map(|event| property(&event, "n")), Some(2.into()));
}

/// An event without a time of its own is never before the last one of its entity.
pub async fn a_stamp_is_never_before_the_entitys_last<W: TestWorld>(lab: Lab<W>) {
    let ahead = lab.now().plus(4 * MINUTE);
    let sent = NewEvent { timestamp: Some(ahead), ..event("s-1", "stock.counted", r#"{"n":0}"#) };
    lab.engine.publish(publish(vec![sent])).await.expect("the event is accepted");
    for n in 1..4 {
        let sent = |id| publish(vec![event(id, "stock.counted", &format!(r#"{{"n":{n}}}"#))]);
        let answer = lab.engine.publish(sent("s-1")).await.expect("the event is accepted");
        assert_eq!(answer[0].1, ahead);
        let answer = lab.engine.publish(sent("s-2")).await.expect("the event is accepted");
        assert_eq!(answer[0].1, lab.now(), "another entity goes by the clock");
        lab.pass(1);
    }
    assert_eq!(numbers(&lab.events(store("s-1")).await), [0, 1, 2, 3]);
}

/// Up to five minutes are taken for skew; more is a mistake.
pub async fn refuses_a_timestamp_too_far_ahead<W: TestWorld>(lab: Lab<W>) {
    let limit = lab.now().plus(5 * MINUTE);
    let sent = |timestamp| NewEvent { timestamp: Some(timestamp), ..event("s-1", "stock.counted", "{}") };
    let answer = lab.engine.publish(publish(vec![sent(limit.plus(1))])).await;
    assert!(matches!(answer, Err(EngineError::Refused(Refusal::TooFarAhead { .. }))), "{answer:?}");
    lab.engine.publish(publish(vec![sent(limit)])).await.expect("the limit itself is fine");
    assert_eq!(lab.events(store("s-1")).await.len(), 1);
}

/// Names of the engine's own events and entities are refused, and the good events beside them are not stored either.
pub async fn refuses_reserved_names<W: TestWorld>(lab: Lab<W>) {
    let good = || event("s-1", "stock.counted", "{}");
    let typed = |text| NewEvent { event_type: EventType::new(text).expect("an event type"), ..good() };
    let about =
        |kind| NewEvent { entity: Entity { kind: EntityType::trusted(kind), ..good().entity }, ..good() };
    for bad in [
        typed("Task Completed"),
        typed("Task Anything"),
        typed("Job Created"),
        about("TASK"),
        about("JOB"),
        about("SYSTEM"),
        about("EXECUTION"),
    ] {
        let answer = lab.engine.publish(publish(vec![good(), bad.clone(), good()])).await;
        assert!(matches!(answer, Err(EngineError::Refused(Refusal::Reserved { .. }))), "{bad:?}: {answer:?}");
    }
    assert!(lab.events(AccessPath::Tenant).await.is_empty());
}

/// The refusal names every limit, and nothing is stored.
pub async fn refuses_what_is_too_large_or_malformed<W: TestWorld>(lab: Lab<W>) {
    let text = |bytes: usize| format!(r#"{{"text":"{}"}}"#, "x".repeat(bytes));
    let large = || event("s-1", "stock.counted", &text(EVENT_BYTES_MAX - 1_000));
    let many = PUBLISH_BYTES_MAX / (EVENT_BYTES_MAX - 1_000) + 1;
    let limits = [
        (
            publish(vec![event("s-1", "a", &text(EVENT_BYTES_MAX))]),
            "events[0].properties is 1048587 bytes; the limit is 1048576",
        ),
        (publish((0..many).map(|_| large()).collect()), "the limit is 16777216"),
        (publish(Vec::new()), "events is 0; it must be from 1 to 1000"),
        (
            publish((0..1_001).map(|_| event("s-1", "a", "{}")).collect()),
            "events is 1001; it must be from 1 to 1000",
        ),
        (publish(vec![event("s-1", "a", "[]")]), "events[0].properties is not a JSON object"),
        (
            publish(vec![event("s-1", "a", r#"{"_s3Overflow":{"bucket":"b","key":"k"}}"#)]),
            "events[0].properties has the reserved key _s3Overflow",
        ),
        (
            publish(vec![event("s-1", "a", r#"{"_s3\u004fverflow":1}"#)]),
            "events[0].properties has the reserved key _s3Overflow",
        ),
        (EventBatch { origin: String::new(), ..publish(vec![event("s-1", "a", "{}")]) }, "origin is empty"),
    ];
    for (request, expected) in limits {
        let error = lab.engine.publish(request).await.expect_err(expected).to_string();
        assert!(error.ends_with(expected), "{error}");
    }
    assert!(lab.events(AccessPath::Tenant).await.is_empty());
}

/// An event beyond the bus's limit is stored in two parts and read as one, and keeps its place among the others.
pub async fn a_large_event_comes_back_whole_and_in_order<W: TestWorld>(lab: Lab<W>) {
    let mut sent = Vec::new();
    for batch in 0..24u64 {
        let sizes = [10, DETAIL_BYTES_MAX, 10].map(|size| size * usize::from(batch % 2 == 1));
        let events = (0..).zip(sizes).map(|(n, size)| {
            event(
                "s-1",
                "stock.counted",
                &format!(r#"{{"n":{},"input":"{}"}}"#, batch * 3 + n, "x".repeat(size)),
            )
        });
        let events: Vec<_> = events.collect();
        sent.extend(events.iter().map(|event| event.properties.clone()));
        lab.engine.publish(publish(events)).await.expect("the events are accepted");
    }
    let found = lab.events(store("s-1")).await;
    assert_eq!(numbers(&found), (0..72).collect::<Vec<_>>());
    assert!(found.iter().zip(&sent).all(|(found, sent)| found.properties == *sent), "as they were sent");

    let query = EventQuery::all(acme(), store("s-1"));
    let stored = lab.engine.events(query, false).await.expect("the query is answered").events;
    let large = &stored[4];
    assert!(large.detail_len() <= DETAIL_BYTES_MAX);
    let place = property(large, "_s3Overflow");
    assert_eq!(place["key"], format!("events/s-1/{}-payload.json", large.id));
    let blob = lab.world.backend().blob(acme(), place["key"].as_str().unwrap_or_default().to_owned()).await;
    assert!(blob.expect("the backend works").is_some());
}

/// A value that cannot be found is an error that may pass, never a missing field.
pub async fn a_missing_blob_is_a_transient_error<W: TestWorld>(lab: Lab<W>) {
    let body = format!(r#"{{"input":"{}"}}"#, "x".repeat(DETAIL_BYTES_MAX));
    lab.engine.publish(publish(vec![event("s-1", "a", &body)])).await.expect("the event is accepted");
    let stored = lab.world.backend().latest(acme(), entity("STORE", "s-1")).await.expect("the backend works");
    let mut stored = stored.expect("the event is there");
    stored.properties = json(r#"{"_s3Overflow":{"bucket":"local","key":"events/s-1/nowhere"}}"#);
    let error = lab.engine.rehydrate(stored).await.expect_err("the blob is missing");
    assert!(matches!(error, EngineError::BlobMissing { .. }) && error.is_transient(), "{error}");
}

/// Each event of a task has a later time than the one before, whatever the clock does.
pub async fn times_of_a_task_always_grow<W: TestWorld>(lab: Lab<W>) {
    let job = lab.submit("a b<a").await;
    for _ in 0..2 {
        let task = lab.claim_one().await;
        for _ in 0..3 {
            lab.engine.heartbeat(super::leases::beat(&task)).await.expect("the lease is held");
        }
        lab.complete(&task, "{}").await;
        let history = lab.history(&task.task.request).await;
        assert_eq!(
            types(&history),
            [
                "Task Pending",
                "Task Processing Started",
                "Task Heartbeat",
                "Task Heartbeat",
                "Task Heartbeat",
                "Task Completed"
            ]
        );
        assert!(history.is_sorted_by(|a, b| a.timestamp < b.timestamp), "strictly");
    }
    let history = lab.job_history(job).await;
    assert_eq!(types(&history), ["Job Created", "Job Completed"]);
    assert!(history.is_sorted_by(|a, b| a.timestamp < b.timestamp), "strictly");
}
