//! A node: a data directory that this process holds, its engine, and what keeps it going.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tidemill::host::random_seed;
use tidemill::{Embedded, Engine, OpenError, StoreOptions};
use tidemill_engine::backend::Backend;
use tidemill_engine::clock::SystemClock;
use tidemill_engine::engine::{EngineConfig, EngineError};
use tidemill_engine::outbound::{Courier, IN_FLIGHT_MAX};
use tidemill_engine::record::RecordKind;
use tidemill_engine::scripts::{Scripts, ScriptsConfig};
use tidemill_engine::site::Site;
use tidemill_engine::state::Room;
use tidemill_engine::triage::{TokenSealer, TriageKeeper, TriageTimer};
use tidemill_model::{TenantId, Timestamp, WorkerId};
use tidemill_worker::log_sink::LogSink;
use tidemill_worker::spawner::{Spawner, SpawnerConfig};
use tidemill_worker::{
    CommandConfig, CommandWorker, EngineSource, EngineSourceConfig, WorkerHandle, kill_leftovers,
};
use tokio::task::{JoinHandle, JoinSet};

use crate::config::{Resolved, Values};
use crate::file_limit::limit_of_children;
use crate::logging;
use crate::outbound::HttpSender;
use crate::script_pool::ScriptPool;
use crate::token_key::TokenKey;
use crate::traces::Traces;

/// The hidden command that carries out the task of an agent.
const AGENT_TASK: &str = "agent-task";

#[derive(Debug, thiserror::Error)]
pub(crate) enum NodeError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("the process that starts tasks cannot be started: {0}")]
    Spawner(std::io::Error),
    #[error("the output directory cannot be used: {0}")]
    Output(std::io::Error),
    #[error("{0}")]
    TokenKey(String),
}

/// An open data directory with its engine.
pub(crate) struct Node {
    dir: PathBuf,
    tenant: TenantId,
    engine: Engine,
    generation: u64,
}

impl Node {
    /// Opens the data directory and takes back what a former life held. Needs a tokio runtime.
    pub(crate) async fn open(config: &Resolved) -> Result<Self, NodeError> {
        let values = &config.values;
        let clock = Arc::new(SystemClock::start());
        let options = StoreOptions {
            policy: values.policy(),
            site: Site::new(&values.environment),
            seed: random_seed(),
            ..StoreOptions::default()
        };
        let token_key = TokenKey::of(&values.data, values.token_key_file.as_deref());
        token_key.check().map_err(NodeError::TokenKey)?;
        let engine_config = EngineConfig {
            families: Arc::new(config.workflows.families.clone()),
            tokens: Arc::new(TokenSealer::new(move || token_key.get())),
            environment: values.environment.clone(),
            health: values.health,
            policy: values.policy(),
            callback_hosts: values.outbound.allowed_hosts.clone(),
            sanitizer: Arc::new(config.sanitizer()),
            ..EngineConfig::default()
        };
        let backend = Embedded::open(&values.data, options, Arc::clone(&clock) as _)?;
        let generation = backend.generation();
        let engine = Engine::new(backend, clock, random_seed(), engine_config);
        let node = Self { dir: values.data.clone(), tenant: values.tenant.clone(), engine, generation };
        // Before its leases go to others, nothing of a former life may run any more.
        if generation > 1 {
            let (data_id, generation) = (node.data_id(), node.generation);
            let _ = tokio::task::spawn_blocking(move || kill_leftovers(&data_id, generation)).await;
        }
        node.engine.recover(generation).await?;
        Ok(node)
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Whose jobs commands of this process work on.
    pub(crate) fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Starts to run tasks.
    pub(crate) fn start_worker(
        &self,
        config: &Resolved,
        sink: Arc<dyn LogSink>,
        scripts: &ScriptPool,
    ) -> Result<WorkerHandle, NodeError> {
        let spawner = start_spawner(self.data_id(), self.generation, &config.values);
        let spawner = spawner.map_err(NodeError::Spawner)?;
        let source = EngineSourceConfig {
            worker: Self::worker_id(),
            generation: Some(self.generation),
            tenants: None,
        };
        let source = EngineSource::new(self.engine.clone(), source);
        let mut command = command_config(config, sink, scripts);
        command.slot_meter = self.engine.slot_meter().clone();
        let worker = CommandWorker::new(source, spawner, command);
        Ok(worker.map_err(NodeError::Output)?.start())
    }

    /// What the worker of this process is called.
    pub(crate) fn worker_id() -> WorkerId {
        WorkerId::trusted(&format!("command-{}", std::process::id()))
    }

    /// Looks for what stands still, at once and then every so often.
    pub(crate) fn start_sweeper(&self, values: &Values) -> Sweeper {
        Sweeper(tokio::spawn(sweep(self.engine.clone(), values.sweep_every)))
    }

    /// Carries out bulks and looks after parked executions.
    pub(crate) fn start_triage(&self) -> Triage {
        let keeper = TriageKeeper::new(self.engine.clone(), TokioTimer);
        Triage(tokio::spawn(async move { keeper.run().await }))
    }

    /// Checks the health of tasks every so often, if it is to be.
    pub(crate) fn start_health(&self, values: &Values) -> Option<HealthTimer> {
        let check = check_health(self.engine.clone(), self.tenant.clone(), values.health_every?);
        Some(HealthTimer(tokio::spawn(check)))
    }

    /// Starts to tell others what they are to be told.
    pub(crate) fn start_courier(&self, config: &Resolved) -> Deliveries {
        let sender = HttpSender::new(config.values.outbound.clone(), config.sanitizer());
        let courier = Courier::new(self.engine.clone(), sender);
        let mut tasks = JoinSet::new();
        for _ in 0..IN_FLIGHT_MAX {
            let own = courier.clone();
            tasks.spawn(async move { own.work().await });
        }
        Deliveries { courier, tenant: self.tenant.clone(), _tasks: tasks }
    }

    /// Starts to tell a collector of traces what happens, if one is set.
    pub(crate) fn start_traces(&self, values: &Values) -> Option<Traces> {
        values.traces.as_ref().map(|settings| Traces::start(self.engine.clone(), settings))
    }

    /// Starts to run scripts for events.
    pub(crate) fn start_scripts(&self, values: &Values, pool: ScriptPool) -> ScriptsHandle {
        let config = ScriptsConfig {
            workers: values.script_workers,
            buffer: values.script_buffer,
            max_retries: values.script_retries_max,
            publish_rate: values.script_publish_rate,
            seed: random_seed(),
        };
        ScriptsHandle::start(Scripts::new(self.engine.clone(), pool, config))
    }

    /// Whether there is anything that scripts could be run for.
    pub(crate) async fn has_scripts(&self) -> Result<bool, EngineError> {
        let backend = self.engine.backend();
        let subscribed = backend.all_records(RecordKind::Subscription, None, 1).await?;
        let waiting = backend.due_executions(Timestamp::MAX, &Room::of(0), |_| false).await?;
        Ok(!subscribed.is_empty() || waiting.pending > 0)
    }

    /// Names the directory on this machine, whatever path it is reached by.
    fn data_id(&self) -> String {
        let path = std::fs::canonicalize(&self.dir).unwrap_or_else(|_| self.dir.clone());
        id_of(&path.to_string_lossy())
    }
}

/// Scripts that run for events. Dropping it ends them.
pub(crate) struct ScriptsHandle {
    scripts: Scripts<Embedded, ScriptPool>,
    tasks: JoinSet<()>,
}

impl ScriptsHandle {
    fn start(scripts: Scripts<Embedded, ScriptPool>) -> Self {
        let mut tasks = JoinSet::new();
        let own = scripts.clone();
        tasks.spawn(async move { own.route().await });
        let own = scripts.clone();
        tasks.spawn(async move { own.route_aside().await });
        let own = scripts.clone();
        tasks.spawn(async move { own.feed().await });
        for _ in 0..scripts.places() {
            let own = scripts.clone();
            tasks.spawn(async move { own.work().await });
        }
        Self { scripts, tasks }
    }

    /// Begins nothing more and lets running scripts end, for so long. What waits stays for the next time.
    pub(crate) async fn shut_down(mut self, grace: Duration) {
        self.scripts.stop();
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(grace, ended).await;
        self.tasks.shutdown().await;
    }
}

/// Deliveries under way. They end with their handle, and what was not recorded is tried again the next time.
pub(crate) struct Deliveries {
    courier: Courier<Embedded, HttpSender>,
    tenant: TenantId,
    _tasks: JoinSet<()>,
}

impl Deliveries {
    /// Waits until webhooks and callbacks have arrived or are given up, for so long; whether none waits any more.
    pub(crate) async fn finish(&self, grace: Duration) -> bool {
        tokio::time::timeout(grace, self.courier.until_told(&self.tenant)).await.is_ok()
    }
}

/// Ends with its handle. What it was doing is done wholly or not at all.
pub(crate) struct Triage(JoinHandle<()>);

impl Drop for Triage {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct TokioTimer;

impl TriageTimer for TokioTimer {
    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

/// Ends with its handle.
pub(crate) struct Sweeper(JoinHandle<()>);

impl Drop for Sweeper {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn sweep(engine: Engine, every: Duration) {
    loop {
        // A store that cannot answer now is asked again the next time.
        let _ = engine.sweep().await;
        tokio::time::sleep(every).await;
    }
}

/// Ends with its handle.
pub(crate) struct HealthTimer(JoinHandle<()>);

impl Drop for HealthTimer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The first check is due one interval after the last one of a former life, or at once.
async fn check_health(engine: Engine, tenant: TenantId, every: Duration) {
    let mut pause = engine.until_health_check(&tenant, every).await.unwrap_or(every);
    loop {
        tokio::time::sleep(pause).await;
        // A store that cannot answer now is asked again the next time.
        if let Err(error) = engine.check_health_of_all(&tenant).await {
            logging::trouble(&format!("the check of health failed: {}", engine.clean(&error.to_string())));
        }
        pause = every;
    }
}

/// Starts this program again as the one that starts tasks.
pub(crate) fn start_spawner(data_id: String, generation: u64, values: &Values) -> std::io::Result<Spawner> {
    let mut config = SpawnerConfig::new(data_id, generation)?;
    config.arguments.extend(limit_of_children());
    config.run_as = values.run_as;
    Spawner::start(config)
}

/// How tasks are run, by what was set.
pub(crate) fn command_config(
    config: &Resolved,
    sink: Arc<dyn LogSink>,
    scripts: &ScriptPool,
) -> CommandConfig {
    let values = &config.values;
    let mut environment = config.environment.clone();
    environment.extend(values.of_agents.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    let environment = environment.into_iter().map(|(name, value)| (name.into(), value.into()));
    let mut command = CommandConfig::new(values.output_dir.clone(), environment.collect());
    // Without its own path there are no agents here; other tasks need none.
    if let Ok(program) = std::env::current_exe() {
        command.agent_program = vec![program.into(), AGENT_TASK.into()];
    }
    command.scripts = Some(Arc::new(scripts.clone()));
    command.slots = values.slots;
    command.claim_max = values.claim_max;
    command.wait = values.claim_wait;
    command.heartbeat = values.heartbeat_every;
    command.lease = Duration::from_millis(values.lease_millis());
    command.timeout = values.timeout;
    command.idle_timeout = values.idle_timeout;
    command.tenant = Some(values.tenant.clone());
    command.keep_files = !values.delete_files;
    command.is_traced = values.traces.is_some();
    command.sink = sink;
    command
}

/// Sixteen hex digits that depend on the text alone.
pub(crate) fn id_of(text: &str) -> String {
    // FNV-1a: stable for ever, which the standard hasher does not promise.
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}
