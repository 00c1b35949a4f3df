//! A host that does what a script's source says, on a clock that the test moves.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use serde_json::{Value, json};
use tidemill_conformance::{ManualClock, block_on};
use tidemill_engine::Engine;
use tidemill_engine::backend::Backend;
use tidemill_engine::clock::Clock;
use tidemill_engine::command::{Command, Prepared, Publish, PublishedEvent};
use tidemill_engine::engine::{
    EngineConfig, EventBatch, ExecutionFilter, LetterFilter, NewEvent, ShownExecution, ShownStatus,
    WriteScript,
};
use tidemill_engine::execution::ScriptLetter;
use tidemill_engine::memory::MemoryBackend;
use tidemill_engine::notice::Notice;
use tidemill_engine::policy::Policy;
use tidemill_engine::record::{RecordKey, RecordValue};
use tidemill_engine::scripts::{
    RunCall, RunDone, RunFailed, ScriptHost, ScriptMetrics, ScriptRun, Scripts, ScriptsConfig,
};
use tidemill_matcher::SubscriptionDraft;
use tidemill_model::events::access_path::AccessPath;
use tidemill_model::events::event_query::EventQuery;
use tidemill_model::{
    AppName, Entity, EntityId, EntityType, Event, EventId, EventType, JobId, Json, ScriptDraft, ScriptId,
    TenantId,
};

pub(crate) type Memory = MemoryBackend<ManualClock>;

/// Does what the source says: `ok`, `throw`, `deny`, `slow` (until it is let go), `big`, `half`,
/// `publish TYPE`, `job NAME`.
#[derive(Debug, Clone)]
pub(crate) struct FakeHost(pub(crate) Arc<Fake>);

#[derive(Debug)]
pub(crate) struct Fake {
    pub(crate) clock: ManualClock,
    pub(crate) ticked: Notice,
    pub(crate) let_go: Notice,
    pub(crate) log: Mutex<Vec<Ran>>,
    pub(crate) under_way: Mutex<BTreeMap<String, usize>>,
    pub(crate) most: Mutex<usize>,
    /// Whether work that takes long is done by a thread of its own, as it is in a server.
    pub(crate) has_threads: AtomicBool,
    /// Whether work that takes long is held up, until `let_go` is rung.
    pub(crate) is_held: AtomicBool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ran {
    pub(crate) tenant: String,
    pub(crate) script: String,
    pub(crate) at: u64,
    pub(crate) data: Value,
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
            "env" => {
                let (definition, variable) = rest.split_once(' ').unwrap();
                calls.push(RunCall::SubmitJob {
                    id: JobId::mint(id(2)),
                    spec: Json::of(
                        &json!({ "tasks": [{ "taskId": "a", "name": definition, "env": { variable: "x" } }] }),
                    ),
                });
            }
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
pub(crate) struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

pub(crate) type Task = Pin<Box<dyn Future<Output = ()>>>;

/// An engine on memory, and the tasks that route and run.
pub(crate) struct Lab {
    pub(crate) engine: Engine<Memory>,
    pub(crate) backend: Arc<Memory>,
    pub(crate) fake: Arc<Fake>,
    pub(crate) scripts: Scripts<Memory, FakeHost>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) flag: Arc<Flag>,
}

impl Lab {
    pub(crate) fn new(config: ScriptsConfig) -> Self {
        let clock = ManualClock::default();
        let backend = Arc::new(MemoryBackend::new(clock.clone(), Policy::default(), 1));
        Self::on(backend, clock, config)
    }

    pub(crate) fn on(backend: Arc<Memory>, clock: ManualClock, config: ScriptsConfig) -> Self {
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

    pub(crate) fn start(&mut self) {
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
    pub(crate) fn restart(self, config: ScriptsConfig) -> Self {
        let Self { backend, fake, tasks, .. } = self;
        drop(tasks);
        Self::on(backend, fake.clock.clone(), config)
    }

    /// Lets everything happen that can happen now.
    pub(crate) fn settle(&mut self) {
        let waker = Waker::from(Arc::clone(&self.flag));
        let mut context = Context::from_waker(&waker);
        self.flag.0.store(true, Ordering::SeqCst);
        while self.flag.0.swap(false, Ordering::SeqCst) {
            self.tasks.retain_mut(|task| task.as_mut().poll(&mut context).is_pending());
        }
    }

    pub(crate) fn pass(&mut self, millis: u64) {
        self.fake.clock.advance(millis);
        self.fake.ticked.ring();
        self.settle();
    }

    pub(crate) fn script_of(&mut self, tenant: &str, id: &str, source: &str) {
        let draft = ScriptDraft {
            id: Some(ScriptId::new(id).unwrap()),
            name: id.to_owned(),
            source: source.to_owned(),
            grants: Vec::new(),
        };
        block_on(self.engine.put_script(&TenantId::new(tenant).unwrap(), draft, WriteScript::Create))
            .unwrap();
    }

    pub(crate) fn subscribe_of(
        &mut self,
        tenant: &str,
        id: &str,
        script: &str,
        event_type: &str,
        rules: &Value,
    ) {
        let draft = SubscriptionDraft::read(json!({
            "id": id, "scriptId": script, "eventType": event_type, "filterRules": rules
        }));
        block_on(self.engine.subscribe(&TenantId::new(tenant).unwrap(), draft.unwrap())).unwrap();
    }

    /// A script of `acme` and its subscription, both with this name.
    pub(crate) fn script(&mut self, id: &str, source: &str, event_type: &str) {
        self.script_of("acme", id, source);
        self.subscribe_of("acme", id, id, event_type, &Value::Null);
    }

    pub(crate) fn publish_of(&mut self, tenant: &str, event_type: &str, data: &Value) {
        let event = NewEvent {
            entity: Entity { kind: EntityType::new("USER").unwrap(), id: EntityId::new("u-1").unwrap() },
            event_type: EventType::new(event_type).unwrap(),
            timestamp: None,
            properties: Json::of(data),
            ttl: None,
        };
        let (tenant, app) = (TenantId::new(tenant).unwrap(), AppName::new("shop").unwrap());
        let request = EventBatch { tenant, app, origin: "test".to_owned(), events: vec![event] };
        block_on(self.engine.publish(request)).unwrap();
    }

    /// Events of `acme` as they are, past all checks.
    pub(crate) fn write(&self, event_type: &str, events: &[(Option<EventId>, &str)]) {
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

    pub(crate) fn publish(&mut self, event_type: &str, data: &Value) {
        self.publish_of("acme", event_type, data);
        self.settle();
    }

    pub(crate) fn hold(&self, is_held: bool) {
        self.fake.is_held.store(is_held, Ordering::SeqCst);
        self.fake.let_go.ring();
    }

    pub(crate) fn is_apart(&self, tenant: &str) -> bool {
        let key = RecordKey::scripts_cursor_of(Some(&TenantId::new(tenant).unwrap()));
        block_on(self.backend.record(key)).unwrap().is_some()
    }

    /// Runs of each script so far.
    pub(crate) fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for script in self.ran() {
            *counts.entry(script).or_default() += 1;
        }
        counts
    }

    pub(crate) fn ran(&self) -> Vec<String> {
        self.fake.log.lock().unwrap().iter().map(|ran| ran.script.clone()).collect()
    }

    pub(crate) fn moments(&self) -> Vec<u64> {
        self.fake.log.lock().unwrap().iter().map(|ran| ran.at).collect()
    }

    pub(crate) fn metrics(&self) -> ScriptMetrics {
        block_on(self.engine.script_metrics()).unwrap()
    }

    pub(crate) fn executions(&self) -> Vec<ShownExecution> {
        block_on(self.engine.executions(&acme(), &ExecutionFilter::default(), None, 1_000))
            .unwrap()
            .executions
    }

    pub(crate) fn statuses(&self) -> Vec<ShownStatus> {
        self.executions().into_iter().map(|shown| shown.status).collect()
    }

    pub(crate) fn letters(&self) -> Vec<ScriptLetter> {
        block_on(self.engine.script_letters(&acme(), &LetterFilter::default(), None, 1_000)).unwrap().letters
    }

    pub(crate) fn cursor(&self) -> Option<(u64, u64)> {
        let record = block_on(self.backend.record(RecordKey::scripts_cursor())).unwrap()?;
        match record.value {
            RecordValue::Bytes(bytes) => {
                Some((u64::from_le_bytes(bytes.as_ref().try_into().unwrap()), record.version))
            }
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn events(&self, event_type: &str) -> Vec<Event> {
        let path = AccessPath::narrowest(Some(EventType::new(event_type).unwrap()), None, None);
        block_on(self.engine.events(EventQuery::all(acme(), path), true)).unwrap().events
    }
}

pub(crate) fn acme() -> TenantId {
    TenantId::new("acme").unwrap()
}

pub(crate) fn one_worker() -> ScriptsConfig {
    ScriptsConfig { workers: 1, ..ScriptsConfig::default() }
}
