//! A node: a store that this process has open, its engine, and what keeps it going.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tidemill::host::random_seed;
use tidemill::{Embedded, OpenError, StoreOptions};
use tidemill_engine::backend::{Backend, Fault};
use tidemill_engine::clock::SystemClock;
use tidemill_engine::engine::{Engine, EngineConfig, EngineError, PULSE_EVERY};
use tidemill_engine::outbound::{Courier, IN_FLIGHT_MAX};
use tidemill_engine::reads::Reads as _;
use tidemill_engine::record::RecordKind;
use tidemill_engine::scripts::{Scripts, ScriptsConfig};
use tidemill_engine::site::Site;
use tidemill_engine::state::Room;
use tidemill_engine::triage::{TokenSealer, TriageKeeper, TriageTimer};
use tidemill_engine::warn_seldom;
use tidemill_model::{ErrorSanitizer, TenantId, Timestamp, WorkerId};
use tidemill_outbound::HttpSender;
use tidemill_worker::log_sink::LogSink;
use tidemill_worker::spawner::{Spawner, SpawnerConfig};
use tidemill_worker::{
    CommandConfig, CommandWorker, EngineSource, EngineSourceConfig, WorkerHandle, kill_leftovers,
};
use tokio::task::{JoinHandle, JoinSet};

use crate::config::{Resolved, Role, Values, names_secret};
use crate::file_limit::limit_of_children;
use crate::home::Home;
use crate::logging;
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
    #[error("the output directory {} cannot be used: {error}; make it writable, or set OUTPUT_DIR", dir.display())]
    Output { dir: PathBuf, error: std::io::Error },
    #[error("{0}")]
    TokenKey(String),
    /// The data directory may be somebody else's.
    #[error("{0}")]
    Foreign(String),
}

/// An open store with its engine.
pub(crate) struct Node<B> {
    /// Where it is, for people.
    place: String,
    tenant: TenantId,
    engine: Engine<B>,
    /// How this process claims tasks.
    claims: EngineSourceConfig,
    life: Life,
    _recovering: Option<Recovering>,
    _pulse: Option<Pulse>,
}

/// What marks the processes that this one starts, so that what a former life left behind is found.
#[derive(Debug, Clone)]
pub(crate) struct Life {
    /// Names the store on this machine.
    pub(crate) data_id: String,
    pub(crate) generation: u64,
}

impl Life {
    /// Of a process that starts no tasks.
    #[cfg(feature = "aws")]
    pub(crate) fn nowhere() -> Self {
        Self { data_id: String::new(), generation: 0 }
    }

    /// Ends what former lives left running. Before their leases go to others nothing of them may run any more.
    pub(crate) async fn end_former(&self) {
        let Self { data_id, generation } = self.clone();
        let killed = tokio::task::spawn_blocking(move || kill_leftovers(&data_id, generation)).await;
        if let Err(error) = killed {
            tracing::warn!(%error, "what former lives left running could not be looked for");
        }
    }
}

impl Node<Embedded> {
    /// Opens the data directory and takes back what a former life held. Needs a tokio runtime.
    pub(crate) async fn open(config: &Resolved) -> Result<Self, NodeError> {
        let values = &config.values;
        let data = crate::data_dir::trusted(config).map_err(NodeError::Foreign)?;
        let clock = Arc::new(SystemClock::start());
        let options = StoreOptions {
            policy: values.policy(),
            site: Site::new(&values.environment),
            seed: random_seed(),
            ..StoreOptions::default()
        };
        let token_key = TokenKey::of(data, values.token_key_file.as_deref(), values.token_key.as_deref());
        token_key.check().map_err(NodeError::TokenKey)?;
        let engine_config = engine_config(config, TokenSealer::new(move || token_key.get()));
        let backend = Embedded::open(data, options, Arc::clone(&clock) as _)?;
        let generation = backend.generation();
        let engine = Engine::new(backend, clock, random_seed(), engine_config);
        let life = Life { data_id: data_id(data), generation };
        if generation > 1 {
            life.end_former().await;
        }
        let recovering = match engine.recover(generation).await {
            // Nobody can claim anything either, so it is as well done later.
            Err(EngineError::Fault(Fault::Full(_))) => Some(Recovering::begin(&engine, generation)),
            recovered => {
                recovered?;
                None
            }
        };
        let worker = WorkerId::trusted(&format!("command-{}", std::process::id()));
        let claims = EngineSourceConfig { worker, generation: Some(generation), tenants: None };
        let (place, tenant) = (values.data.display().to_string(), values.tenant.clone());
        let pulse = Some(Pulse(tokio::spawn(pulse(engine.clone()))));
        Ok(Self { place, tenant, engine, claims, life, _recovering: recovering, _pulse: pulse })
    }
}

/// How often it is tried to take back what former lives held, while there is no space for it.
const RECOVER_RETRY: Duration = Duration::from_secs(1);

/// Takes back what former lives held once there is space. Ends with its handle.
struct Recovering(JoinHandle<()>);

impl Recovering {
    fn begin<B: Backend>(engine: &Engine<B>, generation: u64) -> Self {
        let engine = engine.clone();
        Self(tokio::spawn(async move {
            while let Err(EngineError::Fault(Fault::Full(_))) = engine.recover(generation).await {
                tokio::time::sleep(RECOVER_RETRY).await;
            }
        }))
    }
}

impl Drop for Recovering {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(feature = "aws")]
impl Node<tidemill_aws::Aws> {
    /// A stage, by the name of its table.
    pub(crate) fn on_aws(
        table: &str,
        tenant: TenantId,
        engine: Engine<tidemill_aws::Aws>,
        claims: EngineSourceConfig,
        life: Life,
    ) -> Self {
        // Others give tasks on while this process stands still, and may.
        let (place, recovering, pulse) = (format!("the table {table}"), None, None);
        Self { place, tenant, engine, claims, life, _recovering: recovering, _pulse: pulse }
    }
}

impl<B: Home> Node<B> {
    pub(crate) fn engine(&self) -> &Engine<B> {
        &self.engine
    }

    /// Whose jobs commands of this process work on.
    pub(crate) fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// What the worker of this process is called.
    pub(crate) fn worker_id(&self) -> &str {
        self.claims.worker.as_str()
    }

    /// Where the store is, for people.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// Starts to run tasks.
    pub(crate) fn start_worker(
        &self,
        config: &Resolved,
        sink: Arc<dyn LogSink>,
        scripts: &ScriptPool,
    ) -> Result<WorkerHandle, NodeError> {
        Ok(self.prepare_worker(config, sink, scripts)?.start())
    }

    /// A worker that has all it needs and claims nothing yet.
    pub(crate) fn prepare_worker(
        &self,
        config: &Resolved,
        sink: Arc<dyn LogSink>,
        scripts: &ScriptPool,
    ) -> Result<CommandWorker<EngineSource<B>>, NodeError> {
        let spawner = start_spawner(&self.life, &config.values);
        let spawner = spawner.map_err(NodeError::Spawner)?;
        let source = EngineSource::new(self.engine.clone(), self.claims.clone());
        let mut command = command_config(config, sink, scripts);
        command.slot_meter = self.engine.slot_meter().clone();
        let dir = &config.values.output_dir;
        let worker = CommandWorker::new(source, spawner, command);
        worker.map_err(|error| NodeError::Output { dir: dir.clone(), error })
    }

    /// Starts one of the things that only one process does at a time. Health may be off.
    pub(crate) fn start_duty(&self, role: Role, config: &DutyConfig) -> Option<Duty<B>> {
        let values = &config.values;
        match role {
            Role::Api | Role::Worker => None,
            Role::Timers => {
                Some(Duty::Timers { _sweeper: self.start_sweeper(values), _triage: self.start_triage() })
            }
            Role::Scripts => Some(Duty::Scripts(self.start_scripts(values, config.scripts.clone()))),
            Role::Courier => {
                let deliveries = self.start_deliveries(values, config.sanitizer.clone());
                Some(Duty::Courier { _deliveries: deliveries })
            }
            Role::Health => self.start_health(values).map(|timer| Duty::Health { _timer: timer }),
        }
    }

    /// Looks for what stands still, at once and then at an interval.
    pub(crate) fn start_sweeper(&self, values: &Values) -> Sweeper {
        Sweeper(tokio::spawn(sweep(self.engine.clone(), values.sweep_every)))
    }

    /// Carries out bulks and looks after parked executions.
    pub(crate) fn start_triage(&self) -> Triage {
        let keeper = TriageKeeper::new(self.engine.clone(), TokioTimer);
        Triage(tokio::spawn(async move { keeper.run().await }))
    }

    /// Checks the health of tasks at an interval, if the settings say so.
    fn start_health(&self, values: &Values) -> Option<HealthTimer> {
        let check = check_health(self.engine.clone(), self.tenant.clone(), values.health_every?);
        Some(HealthTimer(tokio::spawn(check)))
    }

    /// Starts the courier.
    pub(crate) fn start_courier(&self, config: &Resolved) -> Deliveries<B> {
        self.start_deliveries(&config.values, config.sanitizer())
    }

    fn start_deliveries(&self, values: &Values, sanitizer: ErrorSanitizer) -> Deliveries<B> {
        let http = HttpSender::new(values.outbound.clone(), sanitizer, logging::alert);
        let sender = B::sender(&self.engine, http);
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
    pub(crate) fn start_scripts(&self, values: &Values, pool: ScriptPool) -> ScriptsHandle<B> {
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
        let waiting =
            backend.look(|state| state.pending().due(Timestamp::MAX, &Room::of(0), |_| false)).await?;
        Ok(!subscribed.is_empty() || waiting.pending > 0)
    }
}

/// What the engine is set up with, whatever its backend.
pub(crate) fn engine_config(config: &Resolved, tokens: TokenSealer) -> EngineConfig {
    let values = &config.values;
    EngineConfig {
        families: Arc::new(config.workflows.families.clone()),
        tokens: Arc::new(tokens),
        environment: values.environment.clone(),
        health: values.health,
        policy: values.policy(),
        callback_hosts: values.outbound.allowed_hosts.clone(),
        dashboard_url: values.public_url.clone(),
        sanitizer: Arc::new(config.sanitizer()),
        ..EngineConfig::default()
    }
}

/// Names a directory on this machine, whatever path it is reached by.
fn data_id(dir: &Path) -> String {
    let path = std::fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    id_of(&path.to_string_lossy())
}

/// What duties are carried out with.
#[derive(Clone)]
pub(crate) struct DutyConfig {
    pub(crate) values: Values,
    pub(crate) sanitizer: ErrorSanitizer,
    pub(crate) scripts: ScriptPool,
}

/// Something that one process does at a time. It ends with its handle.
pub(crate) enum Duty<B: Home> {
    Timers { _sweeper: Sweeper, _triage: Triage },
    Scripts(ScriptsHandle<B>),
    Courier { _deliveries: Deliveries<B> },
    Health { _timer: HealthTimer },
}

impl<B: Home> Duty<B> {
    /// Ends in order: running scripts may go on for `grace`.
    pub(crate) async fn end(self, grace: Duration) {
        if let Self::Scripts(scripts) = self {
            scripts.shut_down(grace).await;
        }
    }
}

/// Scripts that run for events. Dropping it ends them.
pub(crate) struct ScriptsHandle<B> {
    scripts: Scripts<B, ScriptPool>,
    tasks: JoinSet<()>,
}

impl<B: Backend> ScriptsHandle<B> {
    fn start(scripts: Scripts<B, ScriptPool>) -> Self {
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

    /// Begins nothing more and lets running scripts end, for `grace`. What waits stays for the next time.
    pub(crate) async fn shut_down(mut self, grace: Duration) {
        self.scripts.stop();
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        // What has not ended by then is ended.
        let _ = tokio::time::timeout(grace, ended).await;
        self.tasks.shutdown().await;
    }
}

/// Deliveries under way. They end with their handle, and what was not recorded is tried again the next time.
pub(crate) struct Deliveries<B: Home> {
    courier: Courier<B, B::Sender>,
    tenant: TenantId,
    _tasks: JoinSet<()>,
}

impl<B: Home> Deliveries<B> {
    /// Waits for `grace` until webhooks and callbacks have arrived or are given up; whether none waits any more.
    pub(crate) async fn finish(&self, grace: Duration) -> bool {
        tokio::time::timeout(grace, self.courier.until_delivered(&self.tenant)).await.is_ok()
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
struct Pulse(JoinHandle<()>);

impl Drop for Pulse {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Lets the engine see when this process stood still.
async fn pulse<B: Backend>(engine: Engine<B>) {
    loop {
        engine.pulse();
        tokio::time::sleep(PULSE_EVERY).await;
    }
}

/// Ends with its handle.
pub(crate) struct Sweeper(JoinHandle<()>);

impl Drop for Sweeper {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn sweep<B: Home>(engine: Engine<B>, every: Duration) {
    loop {
        // A store that cannot answer now is asked again the next time.
        if let Err(error) = engine.sweep().await {
            warn_seldom!(error, "the sweep for what stands still failed");
        }
        engine.backend().tidy().await;
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
async fn check_health<B: Backend>(engine: Engine<B>, tenant: TenantId, every: Duration) {
    let mut pause = engine.until_health_check(&tenant, every).await.unwrap_or_else(|error| {
        tracing::warn!(%error, "when health was last checked is not known");
        every
    });
    loop {
        tokio::time::sleep(pause).await;
        // A store that cannot answer now is asked again the next time.
        if let Err(error) = engine.check_health_of_all(&tenant).await {
            tracing::warn!("the check of health failed: {error}");
        }
        pause = every;
    }
}

/// Starts this program again as the one that starts tasks.
pub(crate) fn start_spawner(life: &Life, values: &Values) -> std::io::Result<Spawner> {
    let mut config = SpawnerConfig::new(life.data_id.clone(), life.generation)?;
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
    command.task_secrets = values.task_secrets.clone().unwrap_or_default();
    command.names_secret = names_secret;
    command.check_output = tidemill_agent::check_output;
    // Without its own path there are no agents here; other tasks need none.
    if let Ok(program) = std::env::current_exe() {
        command.agent_program = vec![program.into(), AGENT_TASK.into()];
    }
    command.scripts = Some(Arc::new(scripts.clone()));
    command.input_arg = values.input_arg;
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
