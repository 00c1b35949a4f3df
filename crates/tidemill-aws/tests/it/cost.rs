//! What a task asks of AWS: the figures that `docs/explanation/scale.md` computes limits and prices from.

use std::time::Duration;

use serde_json::Value;
use tidemill_aws::{Aws, AwsOptions, Bus, Connection};
use tidemill_conformance::{Lab, ManualClock, TestWorld};
use tidemill_engine::engine::{
    AttemptReport, Claimant, Engine, EventBatch, HeartbeatReport, NewEvent, WorkReport,
};
use tidemill_model::{AppName, Entity, EntityId, EntityType, EventType, Json, TenantId, WorkerId};

use crate::conformance::TableWorld;
use crate::double::{RUNTIME, double};
use crate::proxy::{Fate, Proxy};
use crate::site::Site;

#[allow(dead_code, unreachable_pub, reason = "the bench uses all of it")]
#[path = "../../../../bench/scale/src/shape.rs"]
mod shape;

/// What one step asked for.
#[derive(Debug, Default)]
struct Asked {
    /// The sizes of items, by what they are.
    log: Vec<u64>,
    events: Vec<(String, u64)>,
    rows: Vec<u64>,
    reads: u64,
    queue: u64,
    /// Moves of the outbox's cursor.
    cursor: u64,
    others: Vec<String>,
}

impl Asked {
    fn of(heard: &[(String, Vec<u8>)]) -> Self {
        let mut asked = Self::default();
        for (operation, body) in heard {
            let body: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
            match operation.as_str() {
                "PutItem" => asked.note_item(&body["Item"]),
                "GetItem" => asked.reads += 1,
                "SendMessageBatch"
                | "SendMessage"
                | "DeleteMessageBatch"
                | "DeleteMessage"
                | "ChangeMessageVisibility"
                | "ChangeMessageVisibilityBatch" => asked.queue += 1,
                "UpdateItem" => asked.cursor += 1,
                other => asked.others.push(other.to_owned()),
            }
        }
        asked
    }

    fn note_item(&mut self, item: &Value) {
        let bytes = item_bytes(item);
        match item["PK"]["S"].as_str().unwrap_or_default().split('#').next() {
            Some("LOG") => self.log.push(bytes),
            Some("TENANT") => {
                let name = item["eventType"]["S"].as_str().unwrap_or_default();
                self.events.push((name.to_owned(), bytes));
            }
            _ => self.rows.push(bytes),
        }
    }
}

/// The size of an item as the table counts it: the names and values of its attributes.
fn item_bytes(item: &Value) -> u64 {
    item.as_object().map_or(0, |fields| {
        fields.iter().map(|(name, value)| name.len() as u64 + attribute_bytes(value)).sum()
    })
}

fn attribute_bytes(attribute: &Value) -> u64 {
    let Some((kind, value)) = attribute.as_object().and_then(|fields| fields.iter().next()) else { return 0 };
    match (kind.as_str(), value) {
        ("S", Value::String(text)) => text.len() as u64,
        ("N", Value::String(digits)) => digits.len() as u64 / 2 + 2,
        // Base64: four letters for three bytes.
        ("B", Value::String(letters)) => letters.len() as u64 * 3 / 4,
        ("M", Value::Object(fields)) => {
            3 + fields.iter().map(|(name, value)| 1 + name.len() as u64 + attribute_bytes(value)).sum::<u64>()
        }
        ("L", Value::Array(values)) => 3 + values.iter().map(|value| 1 + attribute_bytes(value)).sum::<u64>(),
        _ => 1,
    }
}

#[test]
fn what_a_task_asks_of_aws() {
    let Some(double) = double() else { return };
    RUNTIME.block_on(async {
        let site = Site::new(double).await;
        let name = site.name.clone();
        let proxy = Proxy::start(&double.endpoint, |_, _| Fate::Forward).await;
        let clock = ManualClock::default();
        let options = AwsOptions {
            queue_url: Some(site.tickets.clone()),
            follow_every: None,
            ..AwsOptions::new(name.clone(), name.clone(), Bus::Loopback, 1)
        };
        let connection = Connection::to_double(&proxy.endpoint).await;
        let lab = Lab::new(TableWorld::open(connection, options, clock.clone()).await, clock.clone());
        let backend = lab.world.backend();
        let step = async |name: &str| {
            backend.own_sent().await;
            let asked = Asked::of(&proxy.take_requests());
            eprintln!("{name}: {asked:?}");
            asked
        };
        lab.submit("first second<first third<second").await;
        step("submit").await;
        let mut steps = Vec::new();
        // The second task is the one that counts: it is dispatched by the end of the first, and dispatches the third.
        for _ in 0..2 {
            lab.pass(100);
            let worker = WorkerId::trusted("worker-1");
            let request =
                Claimant { worker: worker.clone(), generation: Some(1), max: 1, tenants: None, begin: None };
            let task = lab.engine.claim(request).await.expect("there is a task").tasks.remove(0);
            let claim = step("claim").await;
            let answer = lab.engine.begin(task.task.clone(), task.fence, worker.clone(), 4_711.into()).await;
            answer.expect("the lease holds");
            let begin = step("begin").await;
            let beat = HeartbeatReport {
                task: task.task.clone(),
                fence: task.fence,
                worker: worker.clone(),
                process_id: 4_711,
                rss: 50_000_000,
                last_activity: None,
            };
            lab.engine.heartbeat(beat).await.expect("the lease holds");
            let heartbeat = step("heartbeat").await;
            let output = Json::parse(r#"{"rows":120,"file":"out.csv"}"#.to_owned()).expect("it is JSON");
            let report = WorkReport::completed(output, 5);
            let finish = AttemptReport { task: task.task.clone(), fence: task.fence, worker, report };
            lab.engine.finish(finish).await.expect("the outcome is taken");
            steps = vec![claim, begin, heartbeat, step("finish").await];
        }
        let [claim, begin, finish] = &shape::TASK;
        let steps_told = [claim, begin, &shape::HEARTBEAT, finish];
        for (asked, step) in steps.iter().zip(steps_told) {
            assert!(asked.others.is_empty(), "{}: {asked:?}", step.name);
            assert_eq!(asked.cursor, shape::CURSOR_UNITS, "{}", step.name);
            let log: u64 = asked.log.iter().sum();
            let units = shape::write_units;
            assert_eq!(units(log), units(step.log_bytes), "{}: {log} bytes of the log", step.name);
            assert!(asked.reads <= step.reads, "{}: {asked:?}", step.name);
            assert!(asked.queue <= step.queue, "{}: {asked:?}", step.name);
            let events: Vec<(&str, u64)> =
                asked.events.iter().map(|(name, bytes)| (name.as_str(), units(*bytes))).collect();
            let expected: Vec<(&str, u64)> =
                step.events.iter().map(|(name, bytes)| (*name, units(*bytes))).collect();
            assert_eq!(events, expected, "{}", step.name);
        }
    });
}

/// Rows that a command or a group needs are read together, by the process that decides it and by those that follow.
#[test]
fn the_rows_of_many_entities_are_one_question() {
    const ENTITIES: usize = 20;
    let Some(double) = double() else { return };
    RUNTIME.block_on(async {
        let site = Site::new(double).await;
        let publish = async |engine: &Engine<Aws>| {
            let event = |at: usize| NewEvent {
                entity: Entity {
                    kind: EntityType::trusted("ORDER"),
                    id: EntityId::trusted(&format!("o-{at}")),
                },
                event_type: EventType::trusted("Changed"),
                timestamp: None,
                properties: Json::empty_object(),
                ttl: None,
            };
            let request = EventBatch {
                tenant: TenantId::trusted("acme"),
                app: AppName::trusted("orders"),
                origin: "test".to_owned(),
                events: (0..ENTITIES).map(event).collect(),
            };
            engine.publish(request).await.expect("the events are taken");
        };
        let options = |seed| AwsOptions { patience: Duration::from_secs(600), ..site.options(seed) };
        let first = site.open(options(1)).await;
        publish(&first).await;
        first.backend().own_sent().await;
        first.backend().flush().await.expect("the rows are written");

        let proxies = [
            Proxy::start(&double.endpoint, |_, _| Fate::Forward).await,
            Proxy::start(&double.endpoint, |_, _| Fate::Forward).await,
        ];
        let decides = site.open_at(&proxies[0].endpoint, options(2)).await;
        let follows = site.open_at(&proxies[1].endpoint, options(3)).await;
        let reads = |proxy: &Proxy| {
            let mut counts = [0, 0];
            for (operation, _) in proxy.take_requests() {
                match operation.as_str() {
                    "GetItem" => counts[0] += 1,
                    "BatchGetItem" => counts[1] += 1,
                    _ => {}
                }
            }
            counts
        };
        let _ = proxies.each_ref().map(reads);
        publish(&decides).await;
        assert_eq!(reads(&proxies[0]), [0, 1], "to decide");
        follows.queue_depth().await.expect("it answers");
        let [alone, together] = reads(&proxies[1]);
        // The next items of the log, and whether there are more of them, are questions of their own.
        assert!(alone <= 2 && together <= 3, "to follow: {alone} rows alone, {together} questions for many");
    });
}
