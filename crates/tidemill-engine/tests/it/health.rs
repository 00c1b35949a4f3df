//! Alarms about what checks find: once, again after an hour, and when it is over.

use std::sync::Arc;

use serde_json::Value;
use tidemill_conformance::{ManualClock, block_on};
use tidemill_engine::Engine;
use tidemill_engine::engine::{Claimant, EngineConfig, TaskRequest};
use tidemill_engine::health::HealthRules;
use tidemill_engine::memory::MemoryBackend;
use tidemill_engine::policy::{AlertTargets, Policy};
use tidemill_engine::reads::Reads as _;
use tidemill_engine::record::{RecordKind, RecordValue};
use tidemill_model::{AppName, Json, RequestId, TaskName, TaskOptions, TenantId, WorkerId};

const MINUTE: u64 = 60_000;

struct Desk {
    engine: Engine<MemoryBackend<ManualClock>>,
    clock: ManualClock,
    seen: usize,
}

fn acme() -> TenantId {
    TenantId::trusted("acme")
}

impl Desk {
    fn new(rules: HealthRules) -> Self {
        let clock = ManualClock::default();
        let alerts = AlertTargets { people: true, webhook: true };
        let policy = Policy { alerts, ..Policy::default() };
        let backend = MemoryBackend::new(clock.clone(), policy.clone(), 1);
        let config =
            EngineConfig { policy, health: rules, environment: "prod".to_owned(), ..EngineConfig::default() };
        Self { engine: Engine::new(Arc::new(backend), clock.clone(), 2, config), clock, seen: 0 }
    }

    fn submit(&self, id: &str) {
        let request = TaskRequest {
            tenant: acme(),
            app: AppName::trusted("orders"),
            request: Some(RequestId::trusted(id)),
            name: TaskName::trusted("work"),
            input: Json::empty_object(),
            options: TaskOptions::default(),
            idempotency: None,
        };
        block_on(self.engine.submit_task(request)).unwrap();
        // Two events of a task never have the same time.
        self.clock.advance(1);
    }

    fn claim(&self) {
        let request = Claimant {
            worker: WorkerId::trusted("worker-i-001"),
            generation: Some(1),
            max: 256,
            tenants: None,
            begin: Some(7),
        };
        block_on(self.engine.claim(request)).unwrap();
    }

    /// Lets `minutes` minutes pass and checks; returns what people are told by it.
    fn check_after(&mut self, minutes: u64) -> Vec<String> {
        self.clock.advance(minutes * MINUTE);
        block_on(self.engine.check_health(&acme())).unwrap();
        let records =
            block_on(self.engine.backend().records(RecordKind::Delivery, Some(acme()), None, 1_000));
        let told = records.unwrap().into_iter().filter_map(|(_, record)| match record.value {
            RecordValue::Delivery(delivery) if delivery.target.name() == "slack" => {
                Some(delivery.body.read::<Value>().unwrap()["text"].as_str().unwrap().to_owned())
            }
            _ => None,
        });
        let told: Vec<_> = told.skip(self.seen).collect();
        self.seen += told.len();
        told
    }
}

#[test]
fn the_same_condition_over_three_checks_is_told_once_and_its_end_too() {
    let mut desk = Desk::new(HealthRules {
        pending_millis: u64::MAX,
        outbound_millis: u64::MAX,
        ..HealthRules::default()
    });
    desk.submit("req-1");
    desk.claim();
    assert_eq!(desk.check_after(2), Vec::<String>::new(), "a warning is nobody's alarm");
    let told = desk.check_after(2);
    assert_eq!(
        told,
        [":rotating_light: *Task health* (prod, tenant acme)\n\
          • req-1 critical: running 4 min, silent for 4 min, last event Task Processing Started, worker-i-001"]
    );
    for _ in 0..2 {
        assert_eq!(desk.check_after(5), Vec::<String>::new());
    }
    assert_eq!(desk.check_after(50).len(), 1, "an hour later it is told again");
    desk.claim();
    let told = desk.check_after(0);
    assert_eq!(
        told,
        [":white_check_mark: *Task health: recovered* (prod, tenant acme)\n• req-1 is healthy again"]
    );
    assert_eq!(desk.check_after(1), Vec::<String>::new());
}

#[test]
fn thresholds_are_what_they_were_set_to() {
    let rules = HealthRules {
        silence_millis: 10 * MINUTE,
        overtime_millis: 30 * MINUTE,
        outbound_millis: u64::MAX,
        alert_warnings: true,
        ..HealthRules::default()
    };
    let mut desk = Desk::new(rules);
    desk.submit("req-1");
    desk.claim();
    for (minutes, expected) in
        [(10, None), (1, Some("req-1 warning")), (20, Some("req-1 overtime")), (10, Some("req-1 critical"))]
    {
        let told = desk.check_after(minutes);
        assert_eq!(told.len(), usize::from(expected.is_some()), "{told:?}");
        if let Some(expected) = expected {
            assert!(told[0].contains(expected), "{told:?}");
        }
    }
}

#[test]
fn secrets_in_names_are_not_told() {
    let mut desk = Desk::new(HealthRules::default());
    let secret = format!("sk-ant-api03-{}", "a".repeat(40));
    desk.submit(&secret);
    desk.claim();
    let told = desk.check_after(4).join("\n");
    assert!(told.contains("[REDACTED]") && !told.contains(&secret), "{told}");
}

#[test]
fn what_does_not_arrive_and_what_nobody_starts_is_told() {
    let mut desk = Desk::new(HealthRules::default());
    desk.submit("req-1");
    assert_eq!(desk.check_after(14), Vec::<String>::new());
    let told = desk.check_after(2);
    assert!(
        told[0].ends_with("• pending: 1 task waits for a start longer than 15 min, the oldest for 16 min"),
        "{told:?}"
    );
    // Nobody took that alert from the outbox.
    let told = desk.check_after(6);
    assert!(told[0].ends_with("• outbound: 2 deliveries wait to arrive, the oldest for 6 min"), "{told:?}");
    assert_eq!(desk.check_after(5), Vec::<String>::new());
    desk.claim();
    let told = desk.check_after(0);
    assert!(told[0].contains("recovered") && told[0].ends_with("• pending: over"), "{told:?}");
}

#[test]
fn checks_at_the_same_time_are_done_one_after_the_other() {
    let desk = Desk::new(HealthRules::default());
    desk.submit("req-1");
    desk.claim();
    desk.clock.advance(4 * MINUTE);
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let engine = desk.engine.clone();
            std::thread::spawn(move || block_on(engine.check_health(&acme())).map(|report| report.event_id))
        })
        .collect();
    let mut events: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect();
    events.sort();
    events.dedup();
    assert_eq!(events.len(), 8, "each has its event");
    let deliveries =
        block_on(desk.engine.backend().records(RecordKind::Delivery, Some(acme()), None, 99)).unwrap();
    assert_eq!(deliveries.len(), 2, "and one alert went out, to two places");
}
