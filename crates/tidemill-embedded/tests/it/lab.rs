//! What the tests of whole stores share: directories, and a store with hands on it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidemill_embedded::data_lock::DataLock;
use tidemill_embedded::import_dir::import_into;
use tidemill_embedded::log::LogConfig;
use tidemill_embedded::real_disk::RealDisk;
use tidemill_embedded::store::retention::Retention;
use tidemill_embedded::store::watch::Progress;
use tidemill_embedded::{Store, StoreOptions};
use tidemill_engine::backend::Fault;
use tidemill_engine::command::{
    Claim, Command, Finish, Heartbeat, Once, Prepared, Publish, PublishedEvent, Report, Spent, SubmitJob,
    SubmitTask,
};
use tidemill_engine::commit::{NewJob, NewTask};
use tidemill_engine::record::{RecordKey, RecordKind, RecordValue};
use tidemill_engine::reply::{Assignment, Refusal, Reply};
use tidemill_engine::state::row::RowKey;
use tidemill_model::{
    AppName, Context, Entity, EntityId, EntityType, ErrorCategory, EventType, JobId, Json, Owner, RequestId,
    RetryPolicy, TaskId, TaskName, TaskOptions, TaskSpec, TenantId, Timestamp, WorkerId,
};

pub(crate) const START: u64 = 1_700_000_000_000;
pub(crate) const DAY: u64 = 24 * 3_600_000;

/// A directory that goes with the test.
pub(crate) struct Fresh(pub(crate) PathBuf);

impl Fresh {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("tidemill-it-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl std::ops::Deref for Fresh {
    type Target = Path;
    fn deref(&self) -> &Path {
        &self.0
    }
}

/// Says something that is seen even when the test passes: its harness only keeps back what is printed by macros.
pub(crate) fn announce(text: &str) {
    use std::io::Write;
    let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// Small files, so that a few dozen commands fill several segments.
pub(crate) fn small() -> StoreOptions {
    StoreOptions {
        log: LogConfig {
            segment_bytes: 32 << 10,
            hasty_segment_bytes: 16 << 10,
            block_bytes: 2 << 10,
            cache_bytes: 64 << 10,
            dictionary_bytes: 4 << 10,
            compression_level: 1,
        },
        ..StoreOptions::default()
    }
}

pub(crate) fn tenant(name: &str) -> TenantId {
    TenantId::new(name).unwrap()
}

pub(crate) fn acme() -> TenantId {
    tenant("acme")
}

pub(crate) fn json(text: &str) -> Json {
    Json::parse(text.to_owned()).unwrap()
}

pub(crate) fn unwatched(_: Progress) {}

pub(crate) fn spec(id: &str, depends_on: &[&str]) -> TaskSpec {
    TaskSpec {
        task_id: TaskId::new(id).unwrap(),
        name: TaskName::new("noop").unwrap(),
        depends_on: depends_on.iter().map(|id| TaskId::new(id).unwrap()).collect(),
        input: Json::empty_object(),
        options: TaskOptions::default(),
    }
}

/// One root, two in the middle, one that waits for both.
pub(crate) fn diamond() -> Vec<TaskSpec> {
    vec![spec("a", &[]), spec("b", &["a"]), spec("c", &["a"]), spec("d", &["b", "c"])]
}

pub(crate) fn submit_job(job: JobId, tasks: Vec<TaskSpec>, once: Option<&str>) -> Command {
    let request = RequestId::new(format!("request-{job}")).unwrap();
    let listed = Json::of(&tasks);
    let created = format!(
        r#"{{"jobId":"{job}","requestId":"{request}","tasks":{},"totalTasks":{}}}"#,
        listed.as_str(),
        tasks.len()
    );
    Command::SubmitJob(SubmitJob {
        job: NewJob {
            tenant: acme(),
            app: AppName::new("shop").unwrap(),
            job,
            request,
            name: Some("nightly".into()),
            created_at: Timestamp::MIN,
            tasks: tasks.into_iter().map(Arc::new).collect(),
        },
        created: Prepared { id: None, properties: json(&created) },
        once: Vec::from_iter(once.map(|key| Once {
            key: RecordKey::idempotency(&acme(), "jobs", key),
            body_hash: [7; 32],
            lasting: false,
        })),
        budget: None,
        callback: None,
    })
}

pub(crate) fn submit_task(request: &str, input: &str) -> Command {
    let retry = RetryPolicy { max_attempts: 2, first_delay: 1_000, max_delay: 5_000, on_timeout: false };
    let options = TaskOptions {
        retry: Some(retry),
        timeout_ms: Some(9_000),
        execution: Some(json(r#"{"x": [1, null]}"#)),
        agent: false,
        ..TaskOptions::default()
    };
    Command::SubmitTask(SubmitTask {
        task: NewTask {
            tenant: acme(),
            app: AppName::new("shop").unwrap(),
            request: RequestId::new(request).unwrap(),
            spec: Arc::new(TaskSpec { input: json(input), options, ..spec("task", &[]) }),
        },
        once: Vec::new(),
    })
}

pub(crate) fn store_entity(id: &str) -> Entity {
    Entity { kind: EntityType::new("STORE").unwrap(), id: EntityId::new(id).unwrap() }
}

pub(crate) fn publish(
    entity: &str,
    properties: Prepared,
    timestamp: Option<Timestamp>,
    ttl: Option<u64>,
) -> Command {
    Command::Publish(Publish {
        tenant: acme(),
        app: AppName::new("shop").unwrap(),
        context: Context { environment: "dev".into(), origin: "test".into(), worker_id: None },
        events: vec![PublishedEvent {
            entity: store_entity(entity),
            event_type: EventType::new("store.changed").unwrap(),
            timestamp,
            properties,
            ttl,
            workflow: None,
        }],
    })
}

pub(crate) fn plain(properties: &str) -> Prepared {
    Prepared { id: None, properties: json(properties) }
}

pub(crate) fn worker() -> WorkerId {
    WorkerId::new("w").unwrap()
}

pub(crate) fn claim(max: usize, generation: u64) -> Command {
    let owner = Owner { worker: "w".into(), generation: Some(generation) };
    Command::Claim(Claim { owner, worker: worker(), max, tenants: None, begin: Some(7) })
}

pub(crate) fn complete(task: &Assignment, output: &str) -> Command {
    finish(
        task,
        Report::Completed {
            output: Some(json(output)),
            overflow: None,
            duration_millis: 1,
            exit_code: 0,
            artifacts: Vec::new(),
        },
    )
}

pub(crate) fn fail(task: &Assignment, category: ErrorCategory) -> Command {
    finish(task, Report::Failed { error: "it broke".into(), category, retry_after_millis: None })
}

pub(crate) fn finish(task: &Assignment, report: Report) -> Command {
    Command::Finish(Finish {
        task: task.task.clone(),
        fence: task.fence,
        worker: worker(),
        report,
        spent: Spent::default(),
        cause: None,
        digest: 0,
    })
}

pub(crate) fn beat(task: &Assignment) -> Command {
    Command::Heartbeat(Heartbeat {
        task: task.task.clone(),
        fence: task.fence,
        worker: worker(),
        process_id: 7,
        rss: 1,
        last_activity: None,
    })
}

/// A store on the file system and a clock that the test moves.
pub(crate) struct Lab {
    pub(crate) store: Store,
    pub(crate) now: Timestamp,
}

impl Lab {
    /// All dead letters, of any kind.
    pub(crate) fn letters(&self) -> Vec<RecordValue> {
        self.store
            .records(RecordKind::DeadLetter)
            .unwrap()
            .into_iter()
            .map(|(_, record)| record.value)
            .collect()
    }

    /// A store that keeps events for `days`, at its beginning.
    pub(crate) fn begun(dir: &Path, days: u64) -> Self {
        Self::keeping(dir, days, Timestamp::clamped(START))
    }

    /// A store that keeps events for `days`.
    pub(crate) fn keeping(dir: &Path, days: u64, now: Timestamp) -> Self {
        let retention = Retention { event_millis: days * DAY, heartbeat_millis: DAY };
        let options = StoreOptions { retention, ..small() };
        Self { store: Store::open(Arc::new(RealDisk::new(dir).unwrap()), options).unwrap(), now }
    }

    pub(crate) fn open(dir: &Path) -> Self {
        Self::try_open(dir).unwrap()
    }

    pub(crate) fn try_open(dir: &Path) -> Result<Self, Fault> {
        let store = Store::open(Arc::new(RealDisk::new(dir).unwrap()), small())?;
        Ok(Self { store, now: Timestamp::clamped(START) })
    }

    pub(crate) fn at(mut self, now: Timestamp) -> Self {
        self.now = now;
        self
    }

    pub(crate) fn pass(&mut self, millis: u64) {
        self.now = self.now.plus(millis);
    }

    /// Whether the store has a row.
    pub(crate) fn has_row(&self, key: &RowKey) -> bool {
        self.store.row(key).unwrap().is_some()
    }

    /// Runs a command a millisecond after the last one.
    pub(crate) fn run(&mut self, command: Command) -> Result<Reply, Refusal> {
        self.pass(1);
        self.store.execute(&[command], self.now).unwrap().remove(0)
    }

    pub(crate) fn claim(&mut self, max: usize) -> Vec<Assignment> {
        match self.run(claim(max, 1)) {
            Ok(Reply::Claimed { tasks, .. }) => tasks,
            other => panic!("{other:?}"),
        }
    }

    /// Completes whatever can be claimed until nothing can.
    pub(crate) fn work_off(&mut self) -> usize {
        let mut done = 0;
        loop {
            let tasks = self.claim(8);
            if tasks.is_empty() {
                return done;
            }
            for task in tasks {
                self.run(complete(&task, "{}")).unwrap();
                done += 1;
            }
        }
    }

    pub(crate) fn seal_all(&mut self) {
        while self.store.seal().unwrap() {}
    }

    pub(crate) fn assert_clean(&self) {
        let findings = self.store.verify().unwrap();
        assert!(findings.is_clean(), "{:#?}", findings.differences);
    }

    /// Makes the derived rows again from what is left of the log.
    pub(crate) fn rebuilt(self, dir: &Path, days: u64) -> Self {
        let now = self.now;
        drop(self);
        std::fs::remove_file(dir.join("derived/rows.redb")).unwrap();
        let lab = Self::keeping(dir, days, now);
        lab.assert_clean();
        lab
    }

    pub(crate) fn export(&mut self) -> String {
        let mut out = Vec::new();
        self.store.export(&mut out, &mut unwatched).unwrap();
        String::from_utf8(out).unwrap()
    }
}

/// What an export says with one thing changed does not come in.
pub(crate) fn assert_not_imported(text: &str, from: &str, to: &str, now: Timestamp) {
    let dir = Fresh::new();
    let lock = DataLock::take(&dir).unwrap();
    let broken = text.replacen(from, to, 1);
    assert_ne!(broken, text, "{from}");
    let imported = import_into(&dir, &lock, small(), &mut broken.as_bytes(), now, &mut unwatched);
    assert!(imported.is_err(), "{to}");
}
