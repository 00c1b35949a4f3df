//! Routing and running of scripts.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tidemill_conformance::block_on;
use tidemill_engine::clock::Clock;
use tidemill_engine::engine::{Define, EVENTS_LOOKED_AT_MAX, EventBatch, NewEvent, ShownStatus, WriteScript};
use tidemill_engine::execution::ExecutionId;
use tidemill_engine::scripts::ScriptsConfig;
use tidemill_model::{
    AppName, DefinitionDraft, Entity, EntityId, EntityType, EventId, EventType, Json, ScriptDraft, ScriptId,
    SubscriptionId,
};

use crate::script_lab::{Lab, acme, one_worker};

#[test]
fn an_event_runs_every_script_that_wants_it_and_no_other() {
    let mut lab = Lab::new(ScriptsConfig::default());
    lab.publish("user.created", &json!({ "role": "admin" }));
    for name in ["a", "b", "c"] {
        lab.script(name, "ok", "user.created");
    }
    lab.script_of("acme", "admins", "ok");
    lab.subscribe_of("acme", "admins", "admins", "user.created", &json!({ "role": "admin" }));
    lab.script_of("other", "theirs", "ok");
    lab.subscribe_of("other", "theirs", "theirs", "user.created", &Value::Null);
    lab.script("deleted", "ok", "user.deleted");
    lab.settle();
    assert!(lab.ran().is_empty(), "what came before is not seen");
    lab.publish("user.created", &json!({ "role": "guest" }));
    lab.publish("user.created", &json!({ "role": "admin" }));
    lab.publish("user.unknown", &json!({}));
    let mut ran = lab.ran();
    ran.sort();
    assert_eq!(ran, ["a", "a", "admins", "b", "b", "c", "c"]);
    assert_eq!(lab.statuses(), [ShownStatus::Success; 7]);
    let metrics = lab.metrics();
    assert_eq!((metrics.events_matched_total, metrics.events_filtered_total), (7, 1));
    assert_eq!((metrics.executions_queued_total, metrics.executions_success_total), (7, 7));
    assert_eq!((metrics.dlq_events_total, metrics.queue_depth_gauge), (0, 0));
    assert_eq!(metrics.execution_duration_histogram.count, 7);
    // Disabled ones see nothing, and enabled again only what comes then.
    let id = SubscriptionId::new("a").unwrap();
    block_on(lab.engine.enable_subscription(&acme(), &id, false)).unwrap();
    lab.publish("user.created", &json!({}));
    assert_eq!(lab.ran().len(), 9);
    block_on(lab.engine.enable_subscription(&acme(), &id, true)).unwrap();
    lab.publish("user.created", &json!({}));
    assert_eq!(lab.ran().len(), 12);
}

#[test]
fn retries_come_after_two_four_and_eight_seconds_and_hold_up_nobody() {
    let mut lab = Lab::new(one_worker());
    lab.script("bad", "throw", "x");
    lab.script("good", "ok", "y");
    lab.publish("x", &json!({ "n": 1 }));
    assert_eq!(lab.statuses(), [ShownStatus::Retrying]);
    lab.publish("y", &json!({}));
    assert_eq!(lab.ran(), ["bad", "good"], "it waits without a place");
    for _ in 0..200 {
        lab.pass(100);
    }
    let moments: Vec<_> = lab.moments();
    assert_eq!(moments, [0, 0, 2_000, 6_000, 14_000]);
    let letters = lab.letters();
    let [letter] = &letters[..] else { panic!("{letters:?}") };
    assert_eq!((letter.retry_count, letter.script_id.as_str()), (3, "bad"));
    assert_eq!((&*letter.error.class, &*letter.error.stack), ("script", "at greet:1:1"));
    assert!(!letter.error.message.contains("hunter22"), "{}", letter.error.message);
    assert_eq!(letter.event.data.as_ref().unwrap().as_str(), r#"{"n":1}"#);
    let metrics = lab.metrics();
    assert_eq!(metrics.executions_failed_total, BTreeMap::from([("script".to_owned(), 4)]));
    assert_eq!((metrics.dlq_events_total, metrics.queue_depth_gauge), (1, 0));
    // Replayed after a fix: that script for that event and nothing else.
    let draft = ScriptDraft { id: None, name: "bad".into(), source: "ok".into(), grants: Vec::new() };
    let draft = ScriptDraft { id: Some(ScriptId::new("bad").unwrap()), ..draft };
    block_on(lab.engine.put_script(&acme(), draft, WriteScript::Replace { if_match: None })).unwrap();
    let again = block_on(lab.engine.replay_letter(acme(), letter.id)).unwrap();
    lab.settle();
    let shown = block_on(lab.engine.execution(&acme(), again)).unwrap().unwrap();
    assert_eq!((shown.status, shown.execution.attempts), (ShownStatus::Success, 1));
    assert_eq!(lab.ran().len(), 6);
}

#[test]
fn what_no_try_helps_is_dead_at_once() {
    let mut lab = Lab::new(ScriptsConfig { max_retries: 1, ..ScriptsConfig::default() });
    lab.script("denied", "deny", "x");
    lab.script("resolver", "resolve {}", "x");
    lab.script("inline", "inline", "x");
    lab.script("unknown", "job nothing", "x");
    lab.script("reserved", "publish Task Completed", "x");
    lab.publish("x", &json!({}));
    let letters = lab.letters();
    assert_eq!(letters.len(), 5, "{letters:?}");
    assert!(letters.iter().all(|letter| letter.retry_count == 0));
    let of = |script: &str| letters.iter().find(|letter| letter.script_id.as_str() == script).unwrap();
    assert_eq!(&*of("denied").error.class, "permission");
    assert!(of("resolver").error.message.contains("resolveError needs"), "{:?}", of("resolver").error);
    assert!(of("inline").error.message.contains("tasks[0].run"), "{:?}", of("inline").error);
    assert!(of("unknown").error.message.contains("nothing"), "{:?}", of("unknown").error);
    assert!(of("reserved").error.message.contains("reserved"), "{:?}", of("reserved").error);
    assert_eq!(lab.events("Task Completed"), []);
    assert_eq!(lab.metrics().executions_failed_total["validation"], 4);
    // A result that is too large is tried again, as often as it is set.
    lab.script("big", "big", "y");
    lab.publish("y", &json!({}));
    lab.pass(60_000);
    let letters = lab.letters();
    let big = letters.iter().find(|letter| letter.script_id.as_str() == "big").unwrap();
    assert_eq!((&*big.error.class, big.retry_count), ("output", 1));
}

#[test]
fn what_scripts_cause_ends() {
    let mut lab = Lab::new(ScriptsConfig::default());
    lab.script("echo", "publish ping", "ping");
    lab.publish("ping", &json!({ "n": 7 }));
    let events = lab.events("ping");
    assert_eq!(events.len(), 9, "one from outside and eight hops");
    let origins: Vec<_> = events.iter().map(|event| event.context.origin.to_string()).collect();
    assert_eq!(origins[0], "test");
    for hop in 1..=8 {
        assert!(origins.contains(&format!("script/{hop}")), "{origins:?}");
    }
    let letters = lab.letters();
    let [letter] = &letters[..] else { panic!("{letters:?}") };
    assert!(letter.error.message.starts_with("hop limit"));
    assert_eq!(lab.executions().len(), 9);
}

#[test]
fn a_script_submits_a_job_of_stored_definitions_and_its_events_carry_the_hop() {
    let mut lab = Lab::new(ScriptsConfig::default());
    let draft = DefinitionDraft::read(json!({ "name": "repair", "runner": "command", "command": ["true"] }));
    block_on(lab.engine.define(acme(), draft.unwrap(), Define::Create)).unwrap();
    lab.script("repairer", "job repair", "broken");
    lab.script("again", "job repair", "Task Pending");
    lab.publish("broken", &json!({}));
    // Each job's task is pending, which submits the next one, until it ends.
    let jobs = block_on(lab.engine.jobs(acme(), None, None, 100)).unwrap();
    let mut hops: Vec<_> = jobs.iter().map(|job| job.head.hops).collect();
    hops.sort_unstable();
    assert_eq!(hops, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(lab.letters().len(), 1);
}

/// Variables by which programs are made to run other code, or to send what they hold elsewhere.
#[test]
fn a_script_sets_no_variable_that_a_definition_does_not_open() {
    let mut lab = Lab::new(ScriptsConfig::default());
    let variables = ["TAR_OPTIONS", "LESSOPEN", "CC", "ANTHROPIC_BASE_URL", "HTTPS_PROXY"];
    let env: BTreeMap<_, _> = variables.iter().map(|name| (*name, "")).collect();
    let draft = json!({ "name": "pack", "command": ["tar", "-c", "."], "env": env, "openEnv": ["REGION"] });
    let draft = DefinitionDraft::read(draft).unwrap();
    block_on(lab.engine.define(acme(), draft, Define::Create)).unwrap();
    for variable in variables {
        let id = variable.to_ascii_lowercase();
        lab.script(&id, &format!("env pack {variable}"), "x");
    }
    lab.script("allowed", "env pack REGION", "y");
    lab.publish("x", &json!({}));
    let letters = lab.letters();
    assert_eq!(letters.len(), variables.len(), "{letters:?}");
    for variable in variables {
        let id = variable.to_ascii_lowercase();
        let letter = letters.iter().find(|letter| letter.script_id.as_str() == id).unwrap();
        let expected = format!("tasks[0].env.{variable} is not open");
        assert!(letter.error.message.contains(&expected), "{:?}", letter.error);
    }
    assert_eq!(block_on(lab.engine.jobs(acme(), None, None, 100)).unwrap().len(), 0, "nothing is submitted");
    lab.publish("y", &json!({}));
    assert_eq!(block_on(lab.engine.jobs(acme(), None, None, 100)).unwrap().len(), 1);
}

#[test]
fn a_restart_repeats_nothing_and_forgets_nothing() {
    let mut lab = Lab::new(ScriptsConfig::default());
    lab.script("slow", "slow", "x");
    for n in 0..30 {
        lab.publish("x", &json!({ "n": n }));
    }
    assert_eq!(lab.fake.most.lock().unwrap().to_owned(), 10);
    assert_eq!(lab.statuses().iter().filter(|status| **status == ShownStatus::Processing).count(), 10);
    assert_eq!(lab.metrics().queue_depth_gauge, 30);
    let mut lab = lab.restart(ScriptsConfig::default());
    lab.settle();
    assert_eq!(lab.ran().len(), 10, "those that were under way run again");
    for _ in 0..3 {
        lab.fake.let_go.ring();
        lab.settle();
    }
    assert_eq!(lab.statuses(), [ShownStatus::Success; 30]);
    let mut seen: Vec<_> = lab.fake.log.lock().unwrap().iter().map(|ran| ran.data["n"].as_u64()).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..30).map(Some).collect::<Vec<_>>());
    let mut lab = lab.restart(ScriptsConfig::default());
    lab.settle();
    assert!(lab.ran().is_empty());
    lab.publish("x", &json!({}));
    assert_eq!(lab.ran().len(), 1);
}

#[test]
fn a_stop_lets_runs_end_and_leaves_the_rest() {
    let mut lab = Lab::new(one_worker());
    lab.script("slow", "slow", "x");
    lab.publish("x", &json!({}));
    lab.publish("x", &json!({}));
    lab.scripts.stop();
    lab.settle();
    assert_eq!(lab.tasks.len(), 1, "the one that runs a script is left");
    lab.fake.let_go.ring();
    lab.settle();
    assert!(lab.tasks.is_empty());
    let mut statuses = lab.statuses();
    statuses.sort_by_key(|status| status.as_str());
    assert_eq!(statuses, [ShownStatus::Queued, ShownStatus::Success]);
}

#[test]
fn where_nothing_matches_hardly_anything_is_written() {
    let mut lab = Lab::new(ScriptsConfig::default());
    lab.publish("x", &json!({}));
    lab.pass(60_000);
    assert_eq!(lab.cursor(), None, "nobody follows, so nothing is held up");
    lab.script("a", "ok", "wanted");
    lab.settle();
    let (place, version) = lab.cursor().unwrap();
    assert_eq!((place, version), (1, 1));
    for _ in 0..100 {
        lab.publish("x", &json!({}));
    }
    assert_eq!(lab.cursor(), Some((1, 1)));
    lab.pass(5_000);
    assert_eq!(lab.cursor(), Some((101, 2)), "after some quiet");
    lab.publish("wanted", &json!({}));
    assert_eq!(lab.cursor(), Some((102, 3)), "with what matched");
    lab.publish("x", &json!({}));
    lab.scripts.stop();
    lab.settle();
    assert_eq!(lab.cursor(), Some((103, 4)), "at a clean end");
    let mut lab = lab.restart(ScriptsConfig::default());
    lab.settle();
    block_on(lab.engine.unsubscribe(&acme(), &SubscriptionId::new("a").unwrap())).unwrap();
    lab.settle();
    assert_eq!(lab.cursor(), None);
}

#[test]
fn a_large_event_is_looked_up_and_one_that_is_gone_is_told() {
    let mut lab = Lab::new(one_worker());
    lab.script("slow", "slow", "x");
    let large = json!({ "text": "x".repeat(30_000) });
    let huge = json!({ "text": "y".repeat(400_000) });
    lab.publish("x", &large);
    lab.publish("x", &huge);
    assert!(lab.executions().iter().all(|shown| shown.execution.event.data.is_none()
        || shown.execution.event.data.as_ref().unwrap().len() < 16_384));
    for _ in 0..2 {
        lab.fake.let_go.ring();
        lab.settle();
    }
    let data: Vec<_> = lab.fake.log.lock().unwrap().iter().map(|ran| ran.data.clone()).collect();
    assert_eq!(data, [large.clone(), huge]);
    // One that fails keeps its data in its letter.
    lab.script("deny", "deny", "z");
    lab.publish("z", &large);
    assert_eq!(lab.letters()[0].event.data.as_ref().unwrap().read::<Value>().unwrap(), large);
    // An event past its own time to live is gone when its turn comes.
    lab.publish("x", &json!({}));
    let event = NewEvent {
        entity: Entity { kind: EntityType::new("USER").unwrap(), id: EntityId::new("u-2").unwrap() },
        event_type: EventType::new("x").unwrap(),
        timestamp: None,
        properties: Json::of(&large),
        ttl: Some(lab.fake.clock.now().millis() / 1_000 + 5),
    };
    let request = EventBatch {
        tenant: acme(),
        app: AppName::new("shop").unwrap(),
        origin: "test".to_owned(),
        events: vec![event],
    };
    block_on(lab.engine.publish(request)).unwrap();
    lab.settle();
    lab.pass(10_000);
    lab.fake.let_go.ring();
    lab.settle();
    let letters = lab.letters();
    let expired = letters.iter().find(|letter| letter.script_id.as_str() == "slow").unwrap();
    assert_eq!((&*expired.error.message, expired.retry_count), ("event expired", 0));
}

#[test]
fn alerts_are_raised_and_cleared_as_events() {
    let mut lab =
        Lab::new(ScriptsConfig { workers: 1, buffer: 10, max_retries: 0, ..ScriptsConfig::default() });
    lab.script("bad", "deny", "x");
    for _ in 0..19 {
        lab.publish("x", &json!({}));
    }
    assert_eq!(lab.events("Alert Raised"), []);
    lab.publish("x", &json!({}));
    let raised = lab.events("Alert Raised");
    assert_eq!(raised.len(), 1);
    let told: Value = raised[0].properties.read().unwrap();
    assert_eq!((&told["alert"], &told["valuePercent"]), (&json!("script_failure_rate"), &json!(100)));
    assert_eq!(lab.engine.alerts(Some(&acme())).len(), 1);
    for _ in 0..20 {
        lab.pass(30_000);
    }
    assert_eq!(lab.events("Alert Cleared").len(), 1);
    assert!(lab.engine.alerts(None).is_empty());
    // More wait than nine in ten of the buffer.
    lab.script("slow", "slow", "y");
    for _ in 0..20 {
        lab.publish("y", &json!({}));
    }
    let raised = lab.events("Alert Raised");
    let told: Value = raised.last().unwrap().properties.read().unwrap();
    assert_eq!(told["alert"], "script_queue_depth");
    for _ in 0..25 {
        lab.fake.let_go.ring();
        lab.settle();
    }
    lab.pass(30_000);
    assert_eq!(lab.events("Alert Cleared").len(), 2);
}

#[test]
fn what_was_matched_runs_without_its_subscription_and_not_without_its_script() {
    let mut lab = Lab::new(one_worker());
    lab.script("slow", "slow", "hold");
    lab.script("kept", "ok", "x");
    lab.script("gone", "ok", "x");
    lab.publish("hold", &json!({}));
    lab.publish("x", &json!({}));
    for id in ["kept", "gone"] {
        block_on(lab.engine.unsubscribe(&acme(), &SubscriptionId::new(id).unwrap())).unwrap();
    }
    block_on(lab.engine.remove_script(&acme(), &ScriptId::new("gone").unwrap(), None)).unwrap();
    lab.fake.let_go.ring();
    lab.settle();
    assert_eq!(lab.ran(), ["slow", "kept"]);
    let letters = lab.letters();
    let [letter] = &letters[..] else { panic!("{letters:?}") };
    assert_eq!((letter.script_id.as_str(), &*letter.error.message), ("gone", "script deleted"));
}

#[test]
fn what_readers_cannot_read_is_refused_by_name() {
    let lab = Lab::new(ScriptsConfig::default());
    let deep = format!(r#"{{"a":{}1{}}}"#, "[".repeat(100), "]".repeat(100));
    for (properties, problem) in [
        (r#"{"n":1e999}"#, "holds a number beyond the range of a double"),
        (r#"{"a":["\ud800"]}"#, "holds a text with half of a surrogate pair"),
        (r#"{"\ud800":1}"#, "holds a text with half of a surrogate pair"),
        (&*deep, "is nested 101 levels deep; the limit is 100"),
    ] {
        let event = NewEvent {
            entity: Entity { kind: EntityType::new("USER").unwrap(), id: EntityId::new("u-1").unwrap() },
            event_type: EventType::new("x").unwrap(),
            timestamp: None,
            properties: Json::parse(properties.to_owned()).unwrap(),
            ttl: None,
        };
        let (tenant, app) = (acme(), AppName::new("shop").unwrap());
        let request = EventBatch { tenant, app, origin: "test".to_owned(), events: vec![event] };
        let refused = block_on(lab.engine.publish(request)).unwrap_err();
        assert_eq!(refused.to_string(), format!("events[0].properties {problem}"));
    }
    assert!(lab.events("x").is_empty());
}

#[test]
fn a_result_that_readers_cannot_read_is_an_error_of_its_run() {
    let mut lab = Lab::new(ScriptsConfig { max_retries: 0, ..ScriptsConfig::default() });
    lab.script("half", "half", "x");
    lab.publish("x", &json!({}));
    let letters = lab.letters();
    let [letter] = &letters[..] else { panic!("{letters:?}") };
    let expected = "the result holds a text with half of a surrogate pair";
    assert_eq!((&*letter.error.class, &*letter.error.message), ("output", expected));
}

#[test]
fn an_event_of_old_that_cannot_be_read_is_a_dead_letter_of_all_who_might_want_it() {
    let mut lab = Lab::new(ScriptsConfig::default());
    lab.script("all", "ok", "x");
    lab.script_of("acme", "some", "ok");
    lab.subscribe_of("acme", "some", "some", "x", &json!({ "n": { "gt": 7 } }));
    lab.script("none", "ok", "y");
    lab.write("x", &[(None, r#"{"n":1e999}"#)]);
    lab.settle();
    assert!(lab.ran().is_empty());
    let letters = lab.letters();
    let mut scripts: Vec<_> = letters.iter().map(|letter| letter.script_id.as_str()).collect();
    scripts.sort_unstable();
    assert_eq!(scripts, ["all", "some"]);
    for letter in &letters {
        let expected = "the event cannot be read: it holds a number beyond the range of a double";
        assert_eq!((&*letter.error.class, &*letter.error.message), ("validation", expected));
    }
}

/// What a script was told as the id of its call is the id of the event.
#[test]
fn an_error_is_resolved_by_the_event_that_the_script_was_told() {
    let mut lab = Lab::new(ScriptsConfig::default());
    lab.script("mend", r#"resolve {"errorCode":"01256"}"#, "x");
    lab.publish("x", &json!({}));
    let [execution] = &lab.executions()[..] else { panic!("one ran") };
    assert_eq!(execution.status, ShownStatus::Success);
    let ids: Vec<_> = lab.events("ElephantErrorResolved").iter().map(|event| event.id.as_u128()).collect();
    let execution = ExecutionId::of(execution.execution.event.id, &SubscriptionId::new("mend").unwrap());
    assert_eq!(ids, [execution.as_u128() ^ 3]);
}

/// An event whose id says nothing of its place is found among the newest, and the search for one that is not there ends.
#[test]
fn an_event_is_looked_for_among_so_many_and_no_more() {
    let lab = Lab::new(ScriptsConfig::default());
    // Ids of a time long gone, as the events of a script have that ran for an old event.
    let (first, last) = (
        EventId::from_u128(0x0170_0000_0000_7000_8000_0000_0000_0001),
        EventId::from_u128(0x0170_0000_0000_7000_8000_0000_0000_0002),
    );
    // The log's own beginning is where one so old would lie.
    for _ in 0..3 {
        lab.write("x", &vec![(None, "{}"); 1_000]);
    }
    lab.write("x", &[(Some(first), "{}")]);
    let stored = block_on(lab.engine.find_event(&acme(), first, None)).unwrap().unwrap().event;
    lab.fake.clock.advance(3_600_000);
    for _ in 0..EVENTS_LOOKED_AT_MAX / 1_000 {
        lab.write("x", &vec![(None, "{}"); 1_000]);
    }
    lab.write("x", &[(Some(last), "{}")]);
    let found =
        |id, time| block_on(lab.engine.find_event(&acme(), id, time)).unwrap().map(|found| found.event.id);
    assert_eq!(found(last, None), Some(last));
    assert_eq!(found(first, None), None, "it is older than the newest, and its id does not tell its time");
    assert_eq!(found(first, Some(stored.timestamp)), Some(first));
    assert_eq!(found(EventId::from_u128(7), None), None);
}

#[test]
fn what_must_not_be_seen_is_not_stored() {
    let mut lab = Lab::new(ScriptsConfig::default());
    lab.script("log", "log", "x");
    lab.script("fail", "fail", "x");
    lab.publish("x", &json!({}));
    let logs: Vec<_> = lab.executions().into_iter().filter_map(|shown| shown.execution.logs).collect();
    assert_eq!(logs.len(), 2);
    let text = format!("{logs:?}{:?}{:?}", lab.letters(), lab.executions());
    assert!(!text.contains("abcdefgh12345678") && !text.contains("hunter22secret"), "{text}");
    assert!(text.contains("is in") && text.contains("password="), "the rest stays: {text}");
}

/// Above the rate a run fails and is tried again, and nothing of it is published meanwhile.
#[test]
fn scripts_publish_at_most_so_many_events_in_a_second() {
    let mut lab = Lab::new(ScriptsConfig { publish_rate: 5, ..ScriptsConfig::default() });
    lab.script("echo", "publish y", "x");
    lab.script_of("other", "echo", "publish y");
    lab.subscribe_of("other", "echo", "echo", "x", &Value::Null);
    for n in 0..8 {
        lab.publish("x", &json!({ "n": n }));
    }
    assert_eq!(lab.events("y").len(), 5);
    let retrying: Vec<_> =
        lab.executions().into_iter().filter(|shown| shown.status == ShownStatus::Retrying).collect();
    assert_eq!(retrying.len(), 3);
    let error = retrying[0].execution.error.clone().unwrap();
    assert_eq!(&*error.class, "rate_limit");
    assert!(error.message.contains("5 events per second"), "{error:?}");
    lab.publish_of("other", "x", &json!({}));
    lab.settle();
    let done = lab.metrics().executions_success_total;
    assert_eq!(done, 6, "another tenant has a rate of its own");
    lab.pass(2_000);
    assert_eq!(lab.events("y").len(), 8, "each of them once");
    assert_eq!(lab.statuses(), [ShownStatus::Success; 8]);
}

#[test]
fn alerts_survive_a_restart_and_are_cleared_after_it() {
    let config = ScriptsConfig { max_retries: 0, ..ScriptsConfig::default() };
    let mut lab = Lab::new(config);
    lab.script("bad", "deny", "x");
    for _ in 0..20 {
        lab.publish("x", &json!({}));
    }
    let raised = lab.engine.alerts(Some(&acme()));
    assert_eq!(raised.len(), 1);
    lab.fake.clock.advance(5_000);
    let mut lab = lab.restart(config);
    lab.settle();
    assert_eq!(lab.engine.alerts(Some(&acme())), raised, "it stands as it was raised");
    lab.pass(30_000);
    assert_eq!(lab.engine.alerts(None), raised);
    for _ in 0..11 {
        lab.pass(30_000);
    }
    assert_eq!(lab.engine.alerts(None), []);
    assert_eq!((lab.events("Alert Raised").len(), lab.events("Alert Cleared").len()), (1, 1));
    let mut lab = lab.restart(config);
    lab.settle();
    assert_eq!(lab.engine.alerts(None), [], "what was cleared stays cleared");
}
