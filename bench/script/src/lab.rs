//! A data directory with an engine on it and scripts that run for its events, as a server has them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use serde_json::{Value, json};
use tidemill_embedded::{Embedded, StoreOptions};
use tidemill_engine::Engine;
use tidemill_engine::clock::SystemClock;
use tidemill_engine::engine::{EngineConfig, EventBatch, NewEvent, WriteScript};
use tidemill_engine::execution::ExecutionId;
use tidemill_engine::scripts::{ScriptMetrics, Scripts, ScriptsConfig};
use tidemill_matcher::SubscriptionDraft;
use tidemill_model::{
    AppName, Entity, EntityId, EntityType, EventId, EventType, Json, ScriptDraft, ScriptId, SubscriptionId,
    TenantId,
};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::EVENT;
use crate::config::Values;
use crate::counting_disk::{CountingDisk, Counts};
use crate::script_pool::ScriptPool;
use crate::watched::{End, Watched, WatchedHost};

pub const TYPE: &str = "order.placed";
const SCRIPT: &str = "handler";

pub struct Lab {
    pub publisher: Publisher,
    pub watched: Arc<Watched>,
    counts: Arc<Counts>,
    runs: Arc<Mutex<HashMap<ExecutionId, Instant>>>,
    scripts: Scripts<Watched, WatchedHost>,
    tasks: JoinSet<()>,
    dir: PathBuf,
}

/// Publishes orders. Clones share it.
#[derive(Clone)]
pub struct Publisher {
    engine: Engine<Watched>,
    tenant: TenantId,
    app: AppName,
    event_type: EventType,
    event: Json,
    count: Arc<AtomicU64>,
}

impl Lab {
    pub fn start(runtime: &Runtime, dir: &Path, name: &str) -> Self {
        let dir = dir.join(name);
        let _ = std::fs::remove_dir_all(&dir);
        let counts = Arc::new(Counts::default());
        let disk = CountingDisk::new(&dir, &counts).expect("the directory can be used");
        let options = StoreOptions { seed: u64::from(std::process::id()), ..StoreOptions::default() };
        let clock = Arc::new(SystemClock::start());
        let store = Embedded::open_on(Arc::new(disk), options, Arc::clone(&clock) as _).expect("it opens");
        let watched = Arc::new(Watched::new(store));
        let engine = Engine::new(Arc::clone(&watched), clock, 7, EngineConfig::default());
        let runs = Arc::default();
        let host = WatchedHost { pool: ScriptPool::new(&Values::default()), runs: Arc::clone(&runs) };
        let workers = Values::default().script_workers;
        let config = ScriptsConfig { workers, seed: 11, ..ScriptsConfig::default() };
        let scripts = Scripts::new(engine.clone(), host, config);
        let mut tasks = JoinSet::new();
        let own = scripts.clone();
        tasks.spawn_on(async move { own.route().await }, runtime.handle());
        let own = scripts.clone();
        tasks.spawn_on(async move { own.route_aside().await }, runtime.handle());
        let own = scripts.clone();
        tasks.spawn_on(async move { own.feed().await }, runtime.handle());
        for _ in 0..scripts.places() {
            let own = scripts.clone();
            tasks.spawn_on(async move { own.work().await }, runtime.handle());
        }
        let publisher = Publisher {
            engine,
            tenant: TenantId::new("bench").expect("a tenant"),
            app: AppName::new("shop").expect("an app"),
            event_type: EventType::new(TYPE).expect("a type"),
            event: Json::parse(EVENT.to_owned()).expect("JSON"),
            count: Arc::default(),
        };
        Self { publisher, watched, counts, runs, scripts, tasks, dir }
    }

    /// A script that a subscription can name.
    pub fn script(&self, runtime: &Runtime, source: &str) {
        let draft = ScriptDraft {
            id: Some(ScriptId::new(SCRIPT).expect("an id")),
            name: SCRIPT.to_owned(),
            source: source.to_owned(),
            grants: Vec::new(),
        };
        let Publisher { engine, tenant, .. } = &self.publisher;
        runtime.block_on(engine.put_script(tenant, draft, WriteScript::Create)).expect("it is written");
    }

    /// Subscriptions with ids and rules, some at a time.
    pub fn subscribe(&self, runtime: &Runtime, all: impl Iterator<Item = (String, Value)>) {
        let drafts: Vec<_> = all
            .map(|(id, rules)| {
                let draft = json!({ "id": id, "scriptId": SCRIPT, "eventType": TYPE, "filterRules": rules });
                SubscriptionDraft::read(draft).expect("it is right")
            })
            .collect();
        for some in drafts.chunks(64) {
            let made: JoinSet<_> = some
                .iter()
                .cloned()
                .map(|draft| {
                    let Publisher { engine, tenant, .. } = self.publisher.clone();
                    async move { engine.subscribe(&tenant, draft).await.expect("it is made") }
                })
                .fold(JoinSet::new(), |mut all, one| {
                    all.spawn_on(one, runtime.handle());
                    all
                });
            runtime.block_on(made.join_all());
        }
    }

    /// Syncs that an answer waited for.
    pub fn syncs(&self) -> u64 {
        self.counts.syncs.load(Ordering::Relaxed)
    }

    /// Waits until `count` executions have ended, and takes their ends.
    pub fn ends(&self, runtime: &Runtime, count: u64) -> HashMap<ExecutionId, End> {
        let count = u32::try_from(count).expect("not so many");
        runtime.block_on(async { self.watched.ended.acquire_many(count).await.expect("open").forget() });
        self.watched.take_ends()
    }

    /// When runs were over, since the last call.
    pub fn runs(&self) -> HashMap<ExecutionId, Instant> {
        std::mem::take(&mut *self.runs.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn end(mut self, runtime: &Runtime) {
        self.scripts.stop();
        runtime.block_on(async { while self.tasks.join_next().await.is_some() {} });
        let dir = self.dir.clone();
        drop(self);
        let _ = std::fs::remove_dir_all(dir);
    }
}

impl Publisher {
    /// Publishes one order and waits until it is durable.
    pub async fn publish(&self) -> EventId {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let entity = Entity {
            kind: EntityType::new("ORDER").expect("a type"),
            id: EntityId::new(format!("order-{}", number % 10_000)).expect("an id"),
        };
        let event = NewEvent {
            entity,
            event_type: self.event_type.clone(),
            timestamp: None,
            properties: self.event.clone(),
            ttl: None,
        };
        let request = EventBatch {
            tenant: self.tenant.clone(),
            app: self.app.clone(),
            origin: "bench".to_owned(),
            events: vec![event],
        };
        self.engine.publish(request).await.expect("it is published")[0].0
    }
}

impl Publisher {
    pub async fn metrics(&self) -> ScriptMetrics {
        self.engine.script_metrics().await.expect("the store answers")
    }
}

/// The execution of a subscription for an event.
pub fn execution(event: EventId, subscription: &str) -> ExecutionId {
    ExecutionId::of(event, &SubscriptionId::new(subscription).expect("an id"))
}
