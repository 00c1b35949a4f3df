//! Routing and running with a host that does what a script's source says, on a clock that the test moves.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use serde_json::{Value, json};
use tidemill_engine::Engine;
use tidemill_engine::backend::Backend;
use tidemill_engine::clock::Clock;
use tidemill_engine::command::{Command, Prepared, Publish, PublishedEvent, PutRecord, PutRecords};
use tidemill_engine::conformance::{ManualClock, block_on};
use tidemill_engine::engine::{
    Define, EVENTS_LOOKED_AT_MAX, EngineConfig, ExecutionFilter, LetterFilter, NewEvent, PublishRequest,
    ShownExecution, ShownStatus, WriteScript,
};
use tidemill_engine::execution::{ExecutionId, ScriptLetter};
use tidemill_engine::memory::MemoryBackend;
use tidemill_engine::notice::Notice;
use tidemill_engine::policy::Policy;
use tidemill_engine::record::{RecordKey, RecordKind, RecordValue};
use tidemill_engine::scripts::{
    RunCall, RunDone, RunFailed, ScriptHost, ScriptMetrics, ScriptRun, Scripts, ScriptsConfig,
};
use tidemill_model::access_path::AccessPath;
use tidemill_model::event_query::EventQuery;
use tidemill_model::{
    AppName, DefinitionDraft, Entity, EntityId, EntityType, Event, EventId, EventType, JobId, Json,
    ScriptDraft, ScriptId, Subscription, SubscriptionDraft, SubscriptionId, TenantId, Timestamp,
};

type Memory = MemoryBackend<ManualClock>;

/// Does what the source says: `ok`, `throw`, `deny`, `slow` (until it is let go), `big`, `half`,
/// `publish TYPE`, `job NAME`.
#[derive(Debug, Clone)]
struct FakeHost(Arc<Fake>);

#[derive(Debug)]
struct Fake {
    clock: ManualClock,
    ticked: Notice,
    let_go: Notice,
    log: Mutex<Vec<Ran>>,
    under_way: Mutex<BTreeMap<String, usize>>,
    most: Mutex<usize>,
    /// Whether work that takes long is done by a thread of its own, as it is in a server.
    has_threads: AtomicBool,
    /// Whether work that takes long is held up, until `let_go` is rung.
    is_held: AtomicBool,
}

#[derive(Debug, Clone, PartialEq)]
struct Ran {
    tenant: String,
    script: String,
    at: u64,
    data: Value,
}

impl ScriptHost for FakeHost {
    async fn run(&self, run: ScriptRun) -> Result<RunDone, RunFailed> {
        let fake = &self.0;
        let tenant = run.tenant.to_string();
        fake.log.lock().unwrap().push(Ran {
            tenant: tenant.clone(),
            script: run.script.id.to_string(),
            at: fake.clock.now().millis() - ManualClock::START,
            data: run.data.read().unwrap(),
        });
        {
            let mut under_way = fake.under_way.lock().unwrap();
            *under_way.entry(tenant.clone()).or_default() += 1;
            let total = under_way.values().sum();
            let mut most = fake.most.lock().unwrap();
            *most = (*most).max(total);
        }
        let took = Duration::from_millis(3);
        let id = |n: u128| EventId::from_u128(run.execution.as_u128() ^ n);
        let mut calls = Vec::new();
        let mut result = json!({ "ran": run.script.name });
        let mut logs = None;
        let (verb, rest) = run.script.source.split_once(' ').unwrap_or((&run.script.source, ""));
        let mut failed = None;
        let mut half = false;
        match verb {
            "ok" => {}
            "log" => {
                logs = Some(Json::of(&json!([{ "level": "info", "text": "Bearer abcdefgh12345678 is in" }])));
            }
            "fail" => {
                logs = Some(Json::of(&json!([{ "level": "warn", "text": "password=hunter22secret" }])));
                failed = Some(("script", false));
            }
            "throw" => failed = Some(("script", true)),
            "deny" => failed = Some(("permission", false)),
            "slow" => fake.let_go.listen().await,
            "big" => result = json!("x".repeat(70_000)),
            "half" => half = true,
            "publish" => calls.push(RunCall::Publish {
                id: id(1),
                event_type: EventType::new(rest).unwrap(),
                data: run.data.clone(),
            }),
            "job" => calls.push(RunCall::SubmitJob {
                id: JobId::mint(id(2)),
                spec: Json::of(&json!({ "tasks": [{ "taskId": "a", "name": rest }] })),
            }),
            "inline" => calls.push(RunCall::SubmitJob {
                id: JobId::mint(id(2)),
                spec: Json::of(&json!({ "tasks": [{ "taskId": "a", "run": "rm -r /" }] })),
            }),
            "resolve" => {
                calls.push(RunCall::ResolveError { id: id(3), error: Json::parse(rest.to_owned()).unwrap() });
            }
            other => panic!("{other}"),
        }
        *fake.under_way.lock().unwrap().get_mut(&tenant).unwrap() -= 1;
        match failed {
            None => {
                let broken = half.then(|| Json::parse(r#""\ud800""#.to_owned()).unwrap());
                Ok(RunDone { result: broken.unwrap_or_else(|| Json::of(&result)), logs, calls, took })
            }
            Some((class, is_transient)) => Err(RunFailed {
                class: class.into(),
                is_transient,
                message: "password=hunter22secret".into(),
                stack: "at greet:1:1".into(),
                logs,
                took,
            }),
        }
    }

    async fn sleep(&self, time: Duration) {
        let until = self.0.clock.now().plus(u64::try_from(time.as_millis()).unwrap());
        loop {
            let ticked = self.0.ticked.listen();
            if self.0.clock.now() >= until {
                return;
            }
            ticked.await;
        }
    }

    async fn aside<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        while self.0.is_held.load(Ordering::SeqCst) {
            self.0.let_go.listen().await;
        }
        if !self.0.has_threads.load(Ordering::SeqCst) {
            return Some(work());
        }
        let (done, slot) = (Notice::default(), Arc::new(Mutex::new(None)));
        let heard = done.listen();
        let thread = std::thread::spawn({
            let slot = Arc::clone(&slot);
            move || {
                *slot.lock().unwrap() = Some(work());
                done.ring();
            }
        });
        heard.await;
        thread.join().ok()?;
        slot.lock().unwrap().take()
    }
}

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// An engine on memory, and the tasks that route and run.
struct Lab {
    engine: Engine<Memory>,
    backend: Arc<Memory>,
    fake: Arc<Fake>,
    scripts: Scripts<Memory, FakeHost>,
    tasks: Vec<Task>,
    flag: Arc<Flag>,
}

impl Lab {
    fn new(config: ScriptsConfig) -> Self {
        let clock = ManualClock::default();
        let backend = Arc::new(MemoryBackend::new(clock.clone(), Policy::default(), 1));
        Self::on(backend, clock, config)
    }

    fn on(backend: Arc<Memory>, clock: ManualClock, config: ScriptsConfig) -> Self {
        let engine = Engine::new(Arc::clone(&backend), clock.clone(), 2, EngineConfig::default());
        let fake = Arc::new(Fake {
            clock,
            ticked: Notice::default(),
            let_go: Notice::default(),
            log: Mutex::default(),
            under_way: Mutex::default(),
            most: Mutex::default(),
            has_threads: AtomicBool::new(false),
            is_held: AtomicBool::new(false),
        });
        let scripts = Scripts::new(engine.clone(), FakeHost(Arc::clone(&fake)), config);
        let mut lab = Self { engine, backend, fake, scripts, tasks: Vec::new(), flag: Arc::default() };
        lab.start();
        lab
    }

    fn start(&mut self) {
        let scripts = self.scripts.clone();
        self.tasks.push(Box::pin(async move { scripts.route().await }));
        let scripts = self.scripts.clone();
        self.tasks.push(Box::pin(async move { scripts.route_aside().await }));
        let scripts = self.scripts.clone();
        self.tasks.push(Box::pin(async move { scripts.feed().await }));
        for _ in 0..self.scripts.places() {
            let scripts = self.scripts.clone();
            self.tasks.push(Box::pin(async move { scripts.work().await }));
        }
    }

    /// Kills what runs, and starts anew on the same data.
    fn restart(self, config: ScriptsConfig) -> Self {
        let Self { backend, fake, tasks, .. } = self;
        drop(tasks);
        Self::on(backend, fake.clock.clone(), config)
    }

    /// Lets everything happen that can happen now.
    fn settle(&mut self) {
        let waker = Waker::from(Arc::clone(&self.flag));
        let mut context = Context::from_waker(&waker);
        self.flag.0.store(true, Ordering::SeqCst);
        while self.flag.0.swap(false, Ordering::SeqCst) {
            self.tasks.retain_mut(|task| task.as_mut().poll(&mut context).is_pending());
        }
    }

    fn pass(&mut self, millis: u64) {
        self.fake.clock.advance(millis);
        self.fake.ticked.ring();
        self.settle();
    }

    fn script_of(&mut self, tenant: &str, id: &str, source: &str) {
        let draft = ScriptDraft {
            id: Some(ScriptId::new(id).unwrap()),
            name: id.to_owned(),
            source: source.to_owned(),
            grants: Vec::new(),
        };
        block_on(self.engine.put_script(&TenantId::new(tenant).unwrap(), draft, WriteScript::Create))
            .unwrap();
    }

    fn subscribe_of(&mut self, tenant: &str, id: &str, script: &str, event_type: &str, rules: &Value) {
        let draft = SubscriptionDraft::read(json!({
            "id": id, "scriptId": script, "eventType": event_type, "filterRules": rules
        }));
        block_on(self.engine.subscribe(&TenantId::new(tenant).unwrap(), draft.unwrap())).unwrap();
    }

    /// A script of `acme` and its subscription, both with this name.
    fn script(&mut self, id: &str, source: &str, event_type: &str) {
        self.script_of("acme", id, source);
        self.subscribe_of("acme", id, id, event_type, &Value::Null);
    }

    fn publish_of(&mut self, tenant: &str, event_type: &str, data: &Value) {
        let event = NewEvent {
            entity: Entity { kind: EntityType::new("USER").unwrap(), id: EntityId::new("u-1").unwrap() },
            event_type: EventType::new(event_type).unwrap(),
            timestamp: None,
            properties: Json::of(data),
            ttl: None,
        };
        let (tenant, app) = (TenantId::new(tenant).unwrap(), AppName::new("shop").unwrap());
        let request = PublishRequest { tenant, app, origin: "test".to_owned(), events: vec![event] };
        block_on(self.engine.publish(request)).unwrap();
    }

    /// Events of `acme` as they are, past all checks.
    fn write(&self, event_type: &str, events: &[(Option<EventId>, &str)]) {
        let events = events.iter().map(|(id, properties)| PublishedEvent {
            entity: Entity { kind: EntityType::new("USER").unwrap(), id: EntityId::new("u-1").unwrap() },
            event_type: EventType::new(event_type).unwrap(),
            timestamp: None,
            properties: Prepared { id: *id, properties: Json::parse((*properties).to_owned()).unwrap() },
            ttl: None,
            workflow: None,
        });
        let context =
            tidemill_model::Context { environment: "test".into(), origin: "test".into(), worker_id: None };
        let (tenant, app) = (acme(), AppName::new("shop").unwrap());
        let publish = Publish { tenant, app, context, events: events.collect() };
        block_on(self.backend.execute(vec![Command::Publish(publish)])).unwrap();
    }

    fn publish(&mut self, event_type: &str, data: &Value) {
        self.publish_of("acme", event_type, data);
        self.settle();
    }

    fn hold(&self, is_held: bool) {
        self.fake.is_held.store(is_held, Ordering::SeqCst);
        self.fake.let_go.ring();
    }

    fn is_apart(&self, tenant: &str) -> bool {
        let key = RecordKey::scripts_cursor_of(Some(&TenantId::new(tenant).unwrap()));
        block_on(self.backend.record(key)).unwrap().is_some()
    }

    /// Runs of each script so far.
    fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for script in self.ran() {
            *counts.entry(script).or_default() += 1;
        }
        counts
    }

    fn ran(&self) -> Vec<String> {
        self.fake.log.lock().unwrap().iter().map(|ran| ran.script.clone()).collect()
    }

    fn moments(&self) -> Vec<u64> {
        self.fake.log.lock().unwrap().iter().map(|ran| ran.at).collect()
    }

    fn metrics(&self) -> ScriptMetrics {
        block_on(self.engine.script_metrics()).unwrap()
    }

    fn executions(&self) -> Vec<ShownExecution> {
        block_on(self.engine.executions(&acme(), &ExecutionFilter::default(), None, 1_000))
            .unwrap()
            .executions
    }

    fn statuses(&self) -> Vec<ShownStatus> {
        self.executions().into_iter().map(|shown| shown.status).collect()
    }

    fn letters(&self) -> Vec<ScriptLetter> {
        block_on(self.engine.script_letters(&acme(), &LetterFilter::default(), None, 1_000)).unwrap().letters
    }

    fn cursor(&self) -> Option<(u64, u64)> {
        let record = block_on(self.backend.record(RecordKey::scripts_cursor())).unwrap()?;
        match record.value {
            RecordValue::Bytes(bytes) => {
                Some((u64::from_le_bytes(bytes.as_ref().try_into().unwrap()), record.version))
            }
            other => panic!("{other:?}"),
        }
    }

    fn events(&self, event_type: &str) -> Vec<Event> {
        let path = AccessPath::narrowest(Some(EventType::new(event_type).unwrap()), None, None);
        block_on(self.engine.events(EventQuery::all(acme(), path), true)).unwrap().events
    }
}

fn acme() -> TenantId {
    TenantId::new("acme").unwrap()
}

fn one_worker() -> ScriptsConfig {
    ScriptsConfig { workers: 1, ..ScriptsConfig::default() }
}

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
    let request = PublishRequest {
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
        let request = PublishRequest { tenant, app, origin: "test".to_owned(), events: vec![event] };
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

/// Who changes very many subscriptions waits for them; nobody else does, and each event meets what was there before it.
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
    // Whoever is alone is not put aside: nobody waits for it.
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

/// Nobody waits for a tenant that is alone, but for one who comes together with its hundreds of subscriptions.
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

/// A start takes in what is there; nobody waits for the one who has the most.
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
