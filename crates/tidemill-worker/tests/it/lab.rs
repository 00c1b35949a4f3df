//! A data directory with its engine, a spawner and a worker, all fresh.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidemill_embedded::{Embedded, StoreOptions};
use tidemill_engine::backend::Backend;
use tidemill_engine::clock::SystemClock;
use tidemill_engine::commit::TaskKey;
use tidemill_engine::engine::{Engine, EngineConfig, JobRequest, PageRequest, TaskRequest};
use tidemill_engine::policy::Policy;
use tidemill_engine::reads::Reads as _;
use tidemill_model::work::runner_spec::{Run, RunnerSpec};
use tidemill_model::{
    AppName, Event, JobId, Json, RequestId, RetryPolicy, TaskHead, TaskId, TaskName, TaskOptions,
    TaskSecrets, TaskSpec, TenantId, WorkerId,
};
use tidemill_worker::spawner::{Spawner, SpawnerConfig};
use tidemill_worker::{
    CommandConfig, CommandWorker, EngineSource, EngineSourceConfig, LogLine, LogSink, WorkerHandle,
};

/// A directory that is removed with the test.
#[derive(Debug)]
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn fresh() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name =
            format!("tidemill-worker-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path.canonicalize().unwrap())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Keeps the lines that tasks printed, as they are shown.
#[derive(Debug, Default)]
pub(crate) struct Lines(Mutex<Vec<String>>);

impl LogSink for Lines {
    fn line(&self, line: &LogLine<'_>) {
        self.0.lock().unwrap().push(line.to_string());
    }

    fn trouble(&self, text: &str) {
        self.0.lock().unwrap().push(text.to_owned());
    }
}

pub(crate) struct Lab {
    pub(crate) engine: Engine<Embedded>,
    pub(crate) spawner: Spawner,
    pub(crate) lines: Arc<Lines>,
    pub(crate) config: CommandConfig,
    workers: Vec<WorkerHandle>,
    pub(crate) directory: Directory,
}

pub(crate) fn tenant() -> TenantId {
    TenantId::new("acme").unwrap()
}

pub(crate) fn spawner_config(data_id: &str, generation: u64) -> SpawnerConfig {
    SpawnerConfig {
        program: env!("CARGO_BIN_EXE_tidemill-test-spawner").into(),
        arguments: Vec::new(),
        data_id: data_id.to_owned(),
        generation,
        run_as: None,
    }
}

pub(crate) fn shell(text: &str) -> RunnerSpec {
    RunnerSpec { run: Some(Run::Shell(text.to_owned())), ..RunnerSpec::default() }
}

pub(crate) fn argv(arguments: &[&str]) -> RunnerSpec {
    let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
    RunnerSpec { run: Some(Run::Argv(arguments)), ..RunnerSpec::default() }
}

/// Tries again at once.
pub(crate) fn options(execution: &RunnerSpec) -> TaskOptions {
    let retry = RetryPolicy { first_delay: 1, max_delay: 1, ..RetryPolicy::default() };
    TaskOptions { retry: Some(retry), execution: Some(Json::of(execution)), ..TaskOptions::default() }
}

pub(crate) fn environment() -> Vec<(OsString, OsString)> {
    let path = std::env::vars_os().find(|(name, _)| name == "PATH").expect("there is a PATH");
    vec![path]
}

impl Lab {
    /// An engine without a worker.
    pub(crate) fn idle() -> Self {
        Self::with_policy(Policy::default())
    }

    pub(crate) fn with_policy(policy: Policy) -> Self {
        let directory = Directory::fresh();
        let engine = open(&directory.0.join("data"), policy);
        let data_id = directory.0.file_name().unwrap().to_str().unwrap().to_owned();
        let spawner =
            Spawner::start(spawner_config(&data_id, engine.backend().generation())).expect("it starts");
        let lines = Arc::new(Lines::default());
        let mut config = CommandConfig::new(directory.0.join("output"), environment());
        config.sink = Arc::clone(&lines) as _;
        Self { engine, spawner, lines, config, workers: Vec::new(), directory }
    }

    /// With a worker.
    pub(crate) fn working() -> Self {
        let mut lab = Self::idle();
        lab.work("worker-1");
        lab
    }

    pub(crate) fn source(&self, worker: &str) -> EngineSource<Embedded> {
        let config = EngineSourceConfig {
            worker: WorkerId::new(worker).unwrap(),
            generation: Some(self.engine.backend().generation()),
            tenants: None,
        };
        EngineSource::new(self.engine.clone(), config)
    }

    /// Starts one more worker.
    pub(crate) fn work(&mut self, name: &str) {
        let worker = CommandWorker::new(self.source(name), self.spawner.clone(), self.config.clone());
        self.workers.push(worker.expect("the output directory opens").start());
    }

    pub(crate) async fn shut_down(&mut self, grace: Duration) {
        for worker in self.workers.drain(..) {
            worker.shut_down(grace).await;
        }
    }

    pub(crate) async fn submit(&self, id: &str, input: &str, options: TaskOptions) -> TaskKey {
        let request = TaskRequest {
            tenant: tenant(),
            app: AppName::new("app").unwrap(),
            request: Some(RequestId::new(id).unwrap()),
            name: TaskName::new("step").unwrap(),
            input: Json::parse(input.to_owned()).unwrap(),
            options,
            idempotency: None,
        };
        let request = self.engine.submit_task(request).await.unwrap().request;
        TaskKey { tenant: tenant(), request }
    }

    pub(crate) async fn submit_job(&self, id: &str, execution: &RunnerSpec) -> (JobId, TaskKey) {
        let spec = TaskSpec {
            task_id: TaskId::new(id).unwrap(),
            name: TaskName::new("step").unwrap(),
            depends_on: Vec::new(),
            input: Json::empty_object(),
            options: options(execution),
        };
        let job = self.submit_tasks(vec![spec]).await;
        (job, TaskKey { tenant: tenant(), request: job.request_id(&TaskId::new(id).unwrap()) })
    }

    /// Submits a job of these tasks.
    pub(crate) async fn submit_tasks(&self, tasks: Vec<TaskSpec>) -> JobId {
        let request = JobRequest {
            tenant: tenant(),
            app: AppName::new("app").unwrap(),
            request: None,
            name: None,
            budget: None,
            callback: None,
            tasks,
            idempotency: None,
        };
        self.engine.submit_job(request).await.unwrap().job
    }

    /// Runs one command as a task of its own and gives its last event.
    pub(crate) async fn run(&self, id: &str, execution: &RunnerSpec) -> Ended {
        let key = self.submit(id, "{}", options(execution)).await;
        self.ended(&key).await
    }

    /// Waits until a task is done.
    pub(crate) async fn ended(&self, key: &TaskKey) -> Ended {
        self.until(key, Ended::is_done).await
    }

    /// Waits until the history of a task is as wanted.
    pub(crate) async fn until(&self, key: &TaskKey, is_wanted: impl Fn(&Ended) -> bool) -> Ended {
        let waiting = async {
            loop {
                let change = self.engine.backend().change();
                let ended = self.history(key).await;
                if is_wanted(&ended) {
                    return ended;
                }
                self.engine.backend().changed(change).await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("it happens in time")
    }

    /// Waits until the head of a task is as wanted.
    pub(crate) async fn until_head(&self, key: &TaskKey, is_wanted: impl Fn(&TaskHead) -> bool) {
        let waiting = async {
            loop {
                let change = self.engine.backend().change();
                let task = self.engine.backend().task(key.clone()).await.unwrap();
                if task.and_then(|task| task.head).is_some_and(|head| is_wanted(&head)) {
                    return;
                }
                self.engine.backend().changed(change).await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("it happens in time");
    }

    pub(crate) async fn history(&self, key: &TaskKey) -> Ended {
        let page = self.engine.history(key, PageRequest::default(), true).await.unwrap();
        Ended { events: page.events }
    }

    /// The lines that were shown, without the names of the tasks that printed them.
    pub(crate) fn shown(&self) -> Vec<String> {
        self.lines.0.lock().unwrap().clone()
    }

    pub(crate) fn output(&self, path: &str) -> PathBuf {
        self.directory.0.join("output").join(path)
    }

    pub(crate) async fn blob(&self, key: &TaskKey, path: &str) -> Option<Vec<u8>> {
        let key_text = format!("task/logs/{}/{path}", key.request);
        self.engine.backend().blob(key.tenant.clone(), key_text).await.unwrap()
    }
}

pub(crate) fn open(dir: &Path, policy: Policy) -> Engine<Embedded> {
    static SEED: AtomicU64 = AtomicU64::new(1);
    let clock = Arc::new(SystemClock::start());
    let seed = SEED.fetch_add(2, Ordering::Relaxed) + (u64::from(std::process::id()) << 32);
    let store = StoreOptions { seed, policy: policy.clone(), ..StoreOptions::default() };
    let backend = Embedded::open(dir, store, Arc::clone(&clock) as _).expect("the data directory opens");
    Engine::new(backend, clock, seed + 1, EngineConfig { policy, ..EngineConfig::default() })
}

/// The history of a task.
pub(crate) struct Ended {
    pub(crate) events: Vec<Event>,
}

impl Ended {
    pub(crate) fn types(&self) -> Vec<&str> {
        self.events.iter().map(|event| event.event_type.as_str()).collect()
    }

    pub(crate) fn count(&self, event_type: &str) -> usize {
        self.types().iter().filter(|found| **found == event_type).count()
    }

    pub(crate) fn is_done(&self) -> bool {
        self.types().iter().any(|found| matches!(*found, "Task Completed" | "Task Failed" | "Task Timeout"))
    }

    pub(crate) fn last(&self) -> serde_json::Value {
        self.events.last().expect("there are events").properties.read().unwrap()
    }

    pub(crate) fn first_of(&self, event_type: &str) -> serde_json::Value {
        let event = self.events.iter().find(|event| event.event_type.as_str() == event_type);
        event.unwrap_or_else(|| panic!("no {event_type} in {:?}", self.types())).properties.read().unwrap()
    }

    pub(crate) fn output(&self) -> serde_json::Value {
        assert_eq!(self.types().last(), Some(&"Task Completed"), "{:?}", self.last());
        self.last()["output"].clone()
    }

    /// The category and the text of the failure that ended it.
    pub(crate) fn failure(&self) -> (String, String) {
        let last = self.last();
        let text = |name: &str| last[name].as_str().unwrap_or_else(|| panic!("{last}")).to_owned();
        (text("errorCategory"), text("error"))
    }
}

/// Whether a process of this id lives.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

/// Waits until something outside of the engine is so.
pub(crate) async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(std::time::Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The numbers in a file, one a line, once there are `count`.
pub(crate) async fn pids_in(path: &Path, count: usize) -> Vec<u32> {
    let read = || -> Vec<u32> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines().filter(|line| !line.is_empty()).filter_map(|line| line.parse().ok()).collect()
    };
    eventually(&format!("{count} numbers in {}", path.display()), || read().len() >= count).await;
    read()
}

/// The variables that tasks may be given.
pub(crate) fn listed(names: &str) -> TaskSecrets {
    TaskSecrets::parse(names, |_| false).unwrap()
}

pub(crate) fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}
