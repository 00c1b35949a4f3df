//! Nobody waits for what others subscribe to and run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tidemill_conformance::{ManualClock, block_on};
use tidemill_engine::backend::Backend;
use tidemill_engine::command::{Command, PutRecord, PutRecords};
use tidemill_engine::engine::{ExecutionFilter, ShownStatus};
use tidemill_engine::memory::MemoryBackend;
use tidemill_engine::policy::Policy;
use tidemill_engine::record::{RecordKey, RecordKind, RecordValue};
use tidemill_engine::scripts::ScriptsConfig;
use tidemill_matcher::{Subscription, SubscriptionDraft};
use tidemill_model::{Json, SubscriptionId, TenantId, Timestamp};

use crate::script_lab::{Lab, Memory, acme};

#[test]
fn one_tenants_slow_scripts_do_not_hold_up_another() {
    let mut lab = Lab::new(ScriptsConfig { workers: 4, ..ScriptsConfig::default() });
    lab.script("slow", "slow", "x");
    for _ in 0..50 {
        lab.publish("x", &json!({}));
    }
    lab.script_of("other", "quick", "ok");
    lab.subscribe_of("other", "quick", "quick", "x", &Value::Null);
    for _ in 0..20 {
        lab.publish_of("other", "x", &json!({}));
    }
    lab.settle();
    let quick = lab.ran().iter().filter(|script| *script == "quick").count();
    assert_eq!(quick, 20, "none of them waited");
    assert_eq!(lab.fake.under_way.lock().unwrap()["acme"], 4);
}

#[test]
fn a_tenant_with_more_than_the_window_holds_keeps_nobody_waiting() {
    let mut lab = Lab::new(ScriptsConfig { workers: 4, buffer: 20, ..ScriptsConfig::default() });
    lab.script("slow", "slow", "x");
    for _ in 0..100 {
        lab.publish("x", &json!({}));
    }
    for tenant in ["aaa", "other"] {
        lab.script_of(tenant, tenant, "ok");
        lab.subscribe_of(tenant, tenant, tenant, "x", &Value::Null);
        for _ in 0..40 {
            lab.publish_of(tenant, "x", &json!({}));
        }
    }
    lab.settle();
    let ran = lab.ran();
    let counts = ["aaa", "other"].map(|tenant| ran.iter().filter(|script| *script == tenant).count());
    assert_eq!(counts, [40, 40]);
    assert_eq!(lab.metrics().queue_depth_gauge, 100);
    while lab.metrics().queue_depth_gauge > 0 {
        lab.fake.let_go.ring();
        lab.settle();
    }
    assert_eq!(lab.ran().len(), 180, "and it gets all of its own in the end");
}

#[test]
fn two_tenants_with_endless_scripts_keep_no_third_waiting() {
    let mut lab = Lab::new(ScriptsConfig::default());
    for tenant in ["one", "two"] {
        lab.script_of(tenant, tenant, "slow");
        lab.subscribe_of(tenant, tenant, tenant, "x", &Value::Null);
    }
    for n in 0..40 {
        lab.publish_of(if n % 2 == 0 { "one" } else { "two" }, "x", &json!({}));
    }
    lab.script("quick", "ok", "x");
    for _ in 0..20 {
        lab.publish("x", &json!({}));
    }
    assert_eq!(lab.ran().iter().filter(|script| *script == "quick").count(), 20);
}

/// Subscriptions to `x` as the engine writes them, many at a time.
fn store_subscriptions(backend: &Memory, tenant: &str, rules: impl Iterator<Item = Value>) {
    let tenant = TenantId::new(tenant).unwrap();
    let records: Vec<_> = rules
        .enumerate()
        .map(|(n, rules)| {
            let draft = json!({ "scriptId": "any", "eventType": "x", "filterRules": rules });
            let draft = SubscriptionDraft::read(draft).unwrap();
            let known = Subscription {
                id: SubscriptionId::new(format!("s{n}")).unwrap(),
                script_id: draft.script_id,
                tenant_id: tenant.clone(),
                event_type: draft.event_type,
                filter_rules: Json::of(&draft.filter_rules),
                enabled: true,
                created_at: Timestamp::MIN,
                since_seq: 0,
            };
            let (tenant, id) = (Some(tenant.clone()), known.id.as_str().into());
            PutRecord {
                key: RecordKey { kind: RecordKind::Subscription, tenant, id },
                value: Some(RecordValue::Bytes(serde_json::to_vec(&known).unwrap().into())),
                expires_at: None,
                expected: None,
            }
        })
        .collect();
    for some in records.chunks(1_000) {
        let put = PutRecords { records: some.to_vec(), unused: None };
        block_on(backend.execute(vec![Command::PutRecords(put)])).unwrap();
    }
}

/// Subscriptions whose rules no index helps with: each is tried for each event, and none matches.
fn hostile(backend: &Memory, count: usize) {
    let rules = (0..count).map(|n| {
        json!({
            "a": { "nin": [1, 2, 3] }, "b": { "ne": n }, "c": { "nin": [n] }, "d": { "ne": "gone" }, "e": { "nin": [0] }
        })
    });
    store_subscriptions(backend, "hostile", rules);
}

/// A tenant with 100,000 subscriptions of the worst kind holds up nobody but itself. (A build without optimization has
/// a tenth of them, which take as long.)
#[test]
fn costly_rules_of_one_tenant_hold_up_no_other() {
    const EVENTS: usize = 20;
    const SUBSCRIPTIONS: usize = if cfg!(debug_assertions) { 10_000 } else { 100_000 };
    let clock = ManualClock::default();
    let backend = Arc::new(MemoryBackend::new(clock.clone(), Policy::default(), 1));
    hostile(&backend, SUBSCRIPTIONS);
    let mut lab = Lab::on(backend, clock, ScriptsConfig::default());
    lab.script("quick", "ok", "x");
    lab.settle();
    lab.fake.has_threads.store(true, Ordering::SeqCst);
    let alone = std::time::Instant::now();
    lab.publish("x", &json!({}));
    let alone = alone.elapsed();
    assert_eq!(lab.ran(), ["quick"]);
    // Each of these takes longer than the whole of a quick run.
    for _ in 0..EVENTS {
        lab.publish_of("hostile", "x", &json!({ "a": 0, "b": -1, "c": -1, "d": 1, "e": 0 }));
    }
    let begin = std::time::Instant::now();
    let mut slowest = Duration::ZERO;
    for n in 2..=10 {
        let begin = std::time::Instant::now();
        lab.publish_of("acme", "x", &json!({}));
        while lab.ran().len() < n && begin.elapsed() < Duration::from_secs(10) {
            lab.settle();
        }
        slowest = slowest.max(begin.elapsed());
    }
    assert!(lab.ran().iter().all(|script| script == "quick"));
    let filtered = lab.metrics().events_filtered_total;
    assert!(
        filtered < (SUBSCRIPTIONS * EVENTS) as u64,
        "the costly events are still under way after {:?}; alone a run took {alone:?}",
        begin.elapsed()
    );
    println!("{SUBSCRIPTIONS} costly subscriptions; alone {alone:?}, beside them {slowest:?} at most");
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    // The costly tenant gets all of it all the same.
    let is_done = |lab: &Lab| lab.metrics().events_filtered_total == (SUBSCRIPTIONS * EVENTS) as u64;
    while !is_done(&lab) && begin.elapsed() < Duration::from_secs(60) {
        lab.settle();
        std::thread::yield_now();
    }
    assert!(is_done(&lab));
}

/// A tenant that changes very many subscriptions waits for them; no other does, and each event meets those from
/// before it.
#[test]
fn subscriptions_that_come_in_hundreds_hold_up_no_other_tenant() {
    let mut lab = Lab::new(ScriptsConfig::default());
    lab.script("quick", "ok", "x");
    lab.script_of("busy", "any", "ok");
    lab.settle();
    // What is done apart stands still from here on.
    lab.hold(true);
    for n in 0..400 {
        lab.subscribe_of("busy", &format!("s{n}"), "any", "x", &Value::Null);
    }
    lab.publish_of("busy", "x", &json!({}));
    lab.publish("x", &json!({}));
    assert_eq!(lab.counts(), BTreeMap::from([("quick".to_owned(), 1)]));
    assert!(lab.is_apart("busy"));
    lab.hold(false);
    lab.settle();
    let counts = |any, quick| BTreeMap::from([("any".to_owned(), any), ("quick".to_owned(), quick)]);
    assert_eq!(lab.counts(), counts(400, 1), "each of them met the event");
    // The lane hears of what changes meanwhile before it comes to an event that was published later.
    lab.hold(true);
    let busy = TenantId::new("busy").unwrap();
    for n in 0..100 {
        let id = SubscriptionId::new(format!("s{n}")).unwrap();
        block_on(lab.engine.enable_subscription(&busy, &id, false)).unwrap();
        let id = SubscriptionId::new(format!("s{}", n + 100)).unwrap();
        block_on(lab.engine.unsubscribe(&busy, &id)).unwrap();
    }
    lab.subscribe_of("busy", "late", "any", "x", &Value::Null);
    lab.publish_of("busy", "x", &json!({}));
    lab.publish("x", &json!({}));
    assert_eq!(lab.counts(), counts(400, 2));
    lab.hold(false);
    lab.settle();
    assert_eq!(lab.counts(), counts(601, 2));
    // Back with the others, it is known what the lane knew; also what changed as it went back.
    for _ in 0..11 {
        lab.pass(5_000);
    }
    assert!(lab.is_apart("busy"));
    block_on(lab.engine.unsubscribe(&busy, &SubscriptionId::new("late").unwrap())).unwrap();
    for _ in 0..3 {
        lab.pass(5_000);
    }
    assert!(!lab.is_apart("busy"), "it was cheap for a while");
    lab.publish_of("busy", "x", &json!({}));
    lab.settle();
    assert_eq!(lab.counts(), counts(801, 2));
    // A tenant that is alone is not put aside: nobody waits for it.
    block_on(lab.engine.unsubscribe(&acme(), &SubscriptionId::new("quick").unwrap())).unwrap();
    lab.settle();
    for n in 400..800 {
        lab.subscribe_of("busy", &format!("s{n}"), "any", "x", &Value::Null);
    }
    lab.publish_of("busy", "x", &json!({}));
    lab.settle();
    assert!(!lab.is_apart("busy"));
    assert_eq!(lab.counts(), counts(1_401, 2));
}

/// A tenant that is alone is put aside once another comes together with its hundreds of subscriptions.
#[test]
fn a_tenant_is_alone_only_until_another_comes() {
    let mut lab = Lab::new(ScriptsConfig::default());
    lab.script_of("busy", "any", "ok");
    lab.subscribe_of("busy", "first", "any", "x", &Value::Null);
    lab.settle();
    lab.hold(true);
    for n in 0..400 {
        lab.subscribe_of("busy", &format!("s{n}"), "any", "x", &Value::Null);
    }
    lab.script("quick", "ok", "x");
    lab.publish_of("busy", "x", &json!({}));
    lab.publish("x", &json!({}));
    assert_eq!(lab.counts(), BTreeMap::from([("quick".to_owned(), 1)]));
    lab.hold(false);
    lab.settle();
    assert_eq!(lab.counts(), BTreeMap::from([("any".to_owned(), 401), ("quick".to_owned(), 1)]));
}

/// A start takes in what is there; no tenant waits for the one with the most.
#[test]
fn a_start_waits_for_nobody_who_has_very_much() {
    let clock = ManualClock::default();
    let backend = Arc::new(MemoryBackend::new(clock.clone(), Policy::default(), 1));
    let long: Vec<String> = (0..100).map(|n| format!("{n}{}", "x".repeat(1_000))).collect();
    store_subscriptions(&backend, "wide", (0..60).map(|_| json!({ "a": { "nin": long } })));
    let mut lab = Lab::on(backend, clock, ScriptsConfig::default());
    lab.script_of("wide", "any", "ok");
    lab.settle();
    assert!(!lab.is_apart("wide"), "it is alone");
    lab.script("quick", "ok", "x");
    lab.settle();
    let mut lab = lab.restart(ScriptsConfig::default());
    lab.hold(true);
    lab.publish_of("wide", "x", &json!({ "a": 1 }));
    lab.publish("x", &json!({}));
    assert_eq!(lab.counts(), BTreeMap::from([("quick".to_owned(), 1)]));
    assert!(lab.is_apart("wide"));
    lab.hold(false);
    lab.settle();
    assert_eq!(lab.counts()["any"], 60);
}

/// When nobody is subscribed any more, also the lane of the last one is given up.
#[test]
fn a_lane_without_subscriptions_ends_and_the_log_is_left_alone() {
    let mut lab = Lab::new(ScriptsConfig::default());
    lab.script("quick", "ok", "x");
    lab.script_of("busy", "any", "ok");
    lab.settle();
    for n in 0..400 {
        lab.subscribe_of("busy", &format!("s{n}"), "any", "x", &Value::Null);
    }
    lab.settle();
    assert!(lab.is_apart("busy"));
    let busy = TenantId::new("busy").unwrap();
    for n in 0..400 {
        block_on(lab.engine.unsubscribe(&busy, &SubscriptionId::new(format!("s{n}")).unwrap())).unwrap();
    }
    block_on(lab.engine.unsubscribe(&acme(), &SubscriptionId::new("quick").unwrap())).unwrap();
    lab.settle();
    assert!(lab.cursor().is_some());
    for _ in 0..15 {
        lab.pass(5_000);
    }
    assert!(!lab.is_apart("busy"));
    assert_eq!(lab.cursor(), None);
}

/// A lane goes on after a crash where it was, loses nothing, repeats nothing, and is given up when it is cheap.
#[test]
fn a_tenant_that_is_matched_apart_loses_and_repeats_nothing() {
    let mut lab = Lab::new(ScriptsConfig::default());
    // Each event brings more executions than others are to wait for.
    lab.script_of("wide", "any", "ok");
    for n in 0..1_100 {
        lab.subscribe_of("wide", &format!("s{n}"), "any", "x", &Value::Null);
    }
    lab.script("quick", "ok", "x");
    lab.settle();
    let wide = TenantId::new("wide").unwrap();
    let lane = |lab: &Lab| {
        block_on(lab.backend.record(RecordKey::scripts_cursor_of(Some(&wide)))).unwrap().is_some()
    };
    lab.publish_of("wide", "x", &json!({ "n": 0 }));
    lab.settle();
    assert!(lane(&lab));
    let done = |lab: &Lab| {
        let page = |after| block_on(lab.engine.executions(&wide, &ExecutionFilter::default(), after, 1_000));
        let first = page(None).unwrap();
        first.executions.len() + first.next.map_or(0, |next| page(Some(next)).unwrap().executions.len())
    };
    assert_eq!(done(&lab), 1_100);
    // What is published while nobody follows is found afterwards; a new life knows the lane.
    lab.tasks.clear();
    lab.publish_of("wide", "x", &json!({ "n": 1 }));
    lab.publish_of("acme", "x", &json!({ "n": 2 }));
    let mut lab = lab.restart(ScriptsConfig::default());
    lab.settle();
    assert!(lane(&lab));
    let ran = lab.ran();
    assert_eq!(ran.iter().filter(|script| *script == "any").count(), 1_100, "once each");
    assert_eq!(ran.iter().filter(|script| *script == "quick").count(), 1);
    // Subscriptions that come and go are known to the lane.
    for n in 1..1_100 {
        let id = SubscriptionId::new(format!("s{n}")).unwrap();
        block_on(lab.engine.unsubscribe(&wide, &id)).unwrap();
    }
    lab.subscribe_of("wide", "late", "any", "x", &Value::Null);
    lab.publish_of("wide", "x", &json!({ "n": 3 }));
    lab.settle();
    assert!(lane(&lab));
    assert_eq!(lab.ran().len(), ran.len() + 2);
    for _ in 0..15 {
        lab.pass(5_000);
    }
    assert!(!lane(&lab), "it is cheap again");
    lab.publish_of("wide", "x", &json!({ "n": 4 }));
    lab.settle();
    assert_eq!(lab.ran().len(), ran.len() + 4);
    assert!(!lane(&lab));
}

#[test]
fn sc_08_a_publisher_waits_for_no_script() {
    let mut lab = Lab::new(ScriptsConfig::default());
    lab.script("slow", "slow", "user.created");
    for _ in 0..20 {
        // Returns with the event durable; would it wait for the script, it would not return.
        lab.publish("user.created", &json!({}));
    }
    assert_eq!((lab.events("user.created").len(), lab.ran().len()), (20, 10), "ten run and ten wait");
    assert!(!lab.statuses().contains(&ShownStatus::Success));
    lab.fake.let_go.ring();
    lab.settle();
    assert_eq!(lab.ran().len(), 20, "a run that is over makes room for the next");
    lab.fake.let_go.ring();
    lab.settle();
    assert_eq!(lab.statuses(), [ShownStatus::Success; 20]);
}
