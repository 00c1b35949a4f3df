//! Leases: kept, lost, given back, taken over.

use std::future::Future;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tidemill_embedded::Embedded;
use tidemill_engine::command::Spent;
use tidemill_engine::engine::{NewMessage, ParentFiles};
use tidemill_engine::policy::Policy;
use tidemill_model::work::runner_spec::RunnerSpec;
use tidemill_model::{RetryPolicy, TaskOptions};
use tidemill_worker::source::{AttemptEnd, Beat, Followed, HeldTask, Pulse, SourceError, TaskSource};
use tidemill_worker::{CommandWorker, EngineSource, kill_leftovers};
use tokio::sync::watch;

use crate::lab::{Directory, Lab, eventually, is_alive, open, options, pids_in, shell, tenant};

fn kill(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}

/// A source that can be made to fail or to stand still.
#[derive(Clone)]
struct Faulty {
    inner: EngineSource<Embedded>,
    heartbeats: Arc<AtomicU32>,
    heartbeats_fail: Arc<AtomicBool>,
    finishes_fail: Arc<AtomicBool>,
    blobs_fail: Arc<AtomicBool>,
    blob_tries: Arc<AtomicU32>,
    frozen: watch::Sender<bool>,
    hears_revocation: bool,
    /// How long the answer to a claim is under way.
    claims_take: Duration,
}

impl Faulty {
    fn new(inner: EngineSource<Embedded>) -> Self {
        Self {
            inner,
            heartbeats: Arc::default(),
            heartbeats_fail: Arc::default(),
            finishes_fail: Arc::default(),
            blobs_fail: Arc::default(),
            blob_tries: Arc::default(),
            frozen: watch::Sender::new(false),
            hears_revocation: false,
            claims_take: Duration::ZERO,
        }
    }

    async fn freeze(&self) {
        self.frozen.subscribe().wait_for(|frozen| *frozen).await.unwrap();
    }

    async fn thaw(&self) {
        self.frozen.subscribe().wait_for(|frozen| !frozen).await.unwrap();
    }
}

impl TaskSource for Faulty {
    async fn claim(&self, slots: usize, wait: Duration) -> Result<Vec<HeldTask>, SourceError> {
        self.thaw().await;
        tokio::select! {
            claimed = self.inner.claim(slots, wait) => {
                tokio::time::sleep(self.claims_take).await;
                claimed
            }
            () = self.freeze() => Ok(Vec::new()),
        }
    }

    async fn begin(&self, claim: &HeldTask, pid: u32) -> Result<(), SourceError> {
        self.thaw().await;
        self.inner.begin(claim, pid).await
    }

    async fn heartbeat(&self, claim: &HeldTask, pulse: Pulse) -> Result<Beat, SourceError> {
        self.thaw().await;
        self.heartbeats.fetch_add(1, Ordering::Relaxed);
        if self.heartbeats_fail.load(Ordering::Relaxed) {
            return Err(SourceError::Unavailable("on purpose".to_owned()));
        }
        self.inner.heartbeat(claim, pulse).await
    }

    async fn finish(&self, claim: &HeldTask, end: AttemptEnd) -> Result<Followed, SourceError> {
        self.thaw().await;
        if self.finishes_fail.load(Ordering::Relaxed) {
            return Err(SourceError::Unavailable("on purpose".to_owned()));
        }
        self.inner.finish(claim, end).await
    }

    async fn finish_and_claim(&self, claim: &HeldTask, end: AttemptEnd) -> Result<Followed, SourceError> {
        self.thaw().await;
        if self.finishes_fail.load(Ordering::Relaxed) {
            return Err(SourceError::Unavailable("on purpose".to_owned()));
        }
        self.inner.finish_and_claim(claim, end).await
    }

    async fn release(&self, claim: &HeldTask, reason: String, spent: Spent) -> Result<(), SourceError> {
        TaskSource::release(&self.inner, claim, reason, spent).await
    }

    async fn artifact(
        &self,
        claim: &HeldTask,
        parent: &ParentFiles,
        path: &str,
    ) -> Result<Vec<u8>, SourceError> {
        self.inner.artifact(claim, parent, path).await
    }

    async fn put_blob(&self, claim: &HeldTask, path: &str, bytes: Vec<u8>) -> Result<(), SourceError> {
        self.blob_tries.fetch_add(1, Ordering::Relaxed);
        if self.blobs_fail.load(Ordering::Relaxed) {
            return Err(SourceError::Unavailable("on purpose".to_owned()));
        }
        self.inner.put_blob(claim, path, bytes).await
    }

    fn log(&self, claim: &HeldTask, bytes: &[u8]) {
        self.inner.log(claim, bytes);
    }

    fn log_end(&self, claim: &HeldTask) {
        self.inner.log_end(claim);
    }

    fn revoked(&self, claim: &HeldTask) -> impl Future<Output = ()> + Send {
        let revoked = self.inner.revoked(claim);
        let hears = self.hears_revocation;
        async move {
            if hears {
                revoked.await;
            } else {
                std::future::pending::<()>().await;
            }
        }
    }
}

fn start(lab: &Lab, source: Faulty) -> tidemill_worker::WorkerHandle {
    CommandWorker::new(source, lab.spawner.clone(), lab.config.clone()).unwrap().start()
}

#[tokio::test(flavor = "multi_thread")]
async fn wk_22_heartbeats_tell_memory_and_activity_and_keep_the_lease() {
    let policy = Policy { lease_millis: 2_000, ..Policy::default() };
    let mut lab = Lab::with_policy(policy);
    (lab.config.heartbeat, lab.config.lease) = (Duration::from_millis(300), Duration::from_secs(2));
    lab.work("worker-1");
    // Another worker finds nothing to take.
    lab.work("worker-2");
    let text = r#"sleep 0.5; echo '@@tidemill {"kind":"activity","type":"sdk_query","stepName":"ask"}'; sleep 3 & wait"#;
    let key = lab.submit("req-1", "{}", options(&shell(text))).await;
    let ended = lab.ended(&key).await;
    ended.output();
    assert_eq!(ended.count("Task Processing Started"), 1);
    let started = ended.first_of("Task Processing Started");
    assert_ne!(started["processId"].as_u64(), Some(u64::from(std::process::id())));
    let beats: Vec<serde_json::Value> = ended
        .events
        .iter()
        .filter(|event| event.event_type.as_str() == "Task Heartbeat")
        .map(|event| event.properties.read().unwrap())
        .collect();
    assert!(beats.len() >= 5, "{}", beats.len());
    let last = beats.last().unwrap();
    assert_eq!(last["processId"], started["processId"]);
    assert_eq!(beats[0]["lastActivity"]["type"], "waiting", "before any report");
    // The last one may find nothing any more.
    let rss = beats.iter().filter_map(|beat| beat["memoryUsage"]["rss"].as_u64()).max();
    assert!(rss > Some(100_000), "{rss:?}");
    assert_eq!(last["lastActivity"]["type"], "sdk_query");
    assert_eq!(last["lastActivity"]["stepName"], "ask");
    let numbers: Vec<_> = beats.iter().filter_map(|beat| beat["heartbeatNumber"].as_u64()).collect();
    assert_eq!(numbers, (1..=beats.len() as u64).collect::<Vec<_>>());
    // The outcome is the last word.
    assert_eq!(ended.types().last(), Some(&"Task Completed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn wk_09_after_three_failed_extensions_the_child_is_killed_and_nothing_written() {
    let policy = Policy { lease_millis: 6_000, ..Policy::default() };
    let mut lab = Lab::with_policy(policy);
    (lab.config.heartbeat, lab.config.lease) = (Duration::from_millis(500), Duration::from_secs(6));
    let source = Faulty::new(lab.source("worker-1"));
    source.heartbeats_fail.store(true, Ordering::Relaxed);
    let worker = start(&lab, source.clone());
    let pids = lab.directory.0.join("pids");
    let text = format!("echo $$ >> {}; exec sleep 300", pids.display());
    let key = lab.submit("req-1", "{}", options(&shell(&text))).await;
    let first = pids_in(&pids, 1).await[0];
    eventually("the child is killed", || !is_alive(first)).await;
    assert_eq!(source.heartbeats.load(Ordering::Relaxed), 3, "no fourth one");
    source.heartbeats_fail.store(false, Ordering::Relaxed);
    // The task is taken again when its lease is over, and its first run left no outcome.
    let second = pids_in(&pids, 2).await[1];
    assert!(is_alive(second));
    let history = lab.history(&key).await;
    assert_eq!(
        history.count("Task Processing Failed") + history.count("Task Failed"),
        0,
        "{:?}",
        history.types()
    );
    drop(worker);
    eventually("a worker that is dropped kills its child", || !is_alive(second)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn id_14_a_worker_that_wakes_after_a_takeover_writes_nothing() {
    let policy = Policy { lease_millis: 1_000, ..Policy::default() };
    let mut lab = Lab::with_policy(policy);
    (lab.config.heartbeat, lab.config.lease) = (Duration::from_millis(300), Duration::from_secs(1));
    let sleeper = Faulty::new(lab.source("sleeper"));
    let first = start(&lab, sleeper.clone());
    let pids = lab.directory.0.join("pids");
    let go = lab.directory.0.join("go");
    // The first one waits for a sign, the second one is done at once.
    let text = format!(
        "echo $$ >> {0}; if [ $TIDEMILL_FENCE = 1 ]; then while [ ! -e {1} ]; do sleep 0.02; done; fi; echo \"{{\\\"fence\\\":$TIDEMILL_FENCE}}\"",
        pids.display(),
        go.display()
    );
    let key = lab.submit("req-1", "{}", options(&shell(&text))).await;
    pids_in(&pids, 1).await;
    sleeper.frozen.send_replace(true);
    lab.work("worker-2");
    let ended = lab.ended(&key).await;
    assert_eq!(ended.output(), serde_json::json!({"fence": 2}));
    std::fs::write(&go, "").unwrap();
    sleeper.frozen.send_replace(false);
    first.shut_down(Duration::from_secs(30)).await;
    let after = lab.history(&key).await;
    assert_eq!(after.types(), ended.types(), "nothing was written after the outcome");
    assert_eq!(after.count("Task Completed"), 1);
    let shown = std::fs::read_to_string(lab.output("req-1/logs/output.log")).unwrap();
    assert_eq!(shown, "{\"fence\":2}\n", "the directory is that of the attempt that counts");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_that_hangs_does_not_keep_a_child_alive_beyond_its_lease() {
    let policy = Policy { lease_millis: 4_000, ..Policy::default() };
    let mut lab = Lab::with_policy(policy);
    (lab.config.heartbeat, lab.config.lease) = (Duration::from_secs(1), Duration::from_secs(4));
    let cut_off = Faulty::new(lab.source("cut-off"));
    let first = start(&lab, cut_off.clone());
    let pids = lab.directory.0.join("pids");
    let text = second_looks_for_first(&pids);
    let key = lab.submit("req-1", "{}", options(&shell(&text))).await;
    pids_in(&pids, 1).await;
    cut_off.frozen.send_replace(true);
    lab.work("worker-2");
    let ended = lab.ended(&key).await;
    assert_eq!(ended.output(), serde_json::json!({"alone": true}));
    assert_eq!(ended.count("Task Completed"), 1);
    cut_off.frozen.send_replace(false);
    first.shut_down(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_counted_from_when_it_was_asked_for() {
    let policy = Policy { lease_millis: 6_000, ..Policy::default() };
    let mut lab = Lab::with_policy(policy);
    (lab.config.heartbeat, lab.config.lease) = (Duration::from_secs(2), Duration::from_secs(6));
    lab.config.slots = 1;
    // The answer comes when half of the lease is over, and no heartbeat ever does.
    let mut far_away = Faulty::new(lab.source("far-away"));
    far_away.claims_take = Duration::from_secs(3);
    far_away.heartbeats_fail.store(true, Ordering::Relaxed);
    let first = start(&lab, far_away.clone());
    let pids = lab.directory.0.join("pids");
    let text = second_looks_for_first(&pids);
    let key = lab.submit("req-1", "{}", options(&shell(&text))).await;
    pids_in(&pids, 1).await;
    lab.work("worker-2");
    let ended = lab.ended(&key).await;
    assert_eq!(ended.output(), serde_json::json!({"alone": true}));
    assert_eq!(ended.last()["fence"], 2);
    first.shut_down(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_whose_lease_is_over_is_not_started() {
    let policy = Policy { lease_millis: 1_500, ..Policy::default() };
    let mut lab = Lab::with_policy(policy);
    (lab.config.heartbeat, lab.config.lease) = (Duration::from_millis(300), Duration::from_millis(1_500));
    // The answer comes when the lease is over.
    let mut far_away = Faulty::new(lab.source("far-away"));
    far_away.claims_take = Duration::from_secs(2);
    let first = start(&lab, far_away.clone());
    let pids = lab.directory.0.join("pids");
    let key = lab
        .submit("req-1", "{}", options(&shell(&format!("echo $TIDEMILL_FENCE >> {}", pids.display()))))
        .await;
    // It was claimed and came too late.
    lab.until_head(&key, |head| head.fence.0 >= 2).await;
    lab.work("worker-2");
    let ended = lab.ended(&key).await;
    ended.output();
    first.shut_down(Duration::from_secs(10)).await;
    let fences = pids_in(&pids, 1).await;
    assert_eq!(fences.len(), 1, "{fences:?}");
    assert_eq!(ended.last()["fence"], fences[0]);
    assert!(fences[0] >= 3, "those before came too late");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_kept_while_a_child_is_killed_for_its_time() {
    let policy = Policy { lease_millis: 2_000, ..Policy::default() };
    let mut lab = Lab::with_policy(policy);
    (lab.config.heartbeat, lab.config.lease) = (Duration::from_millis(200), Duration::from_secs(2));
    // Longer than the lease.
    lab.config.kill_grace = Duration::from_secs(4);
    lab.work("worker-1");
    lab.work("worker-2");
    let stubborn = "trap '' TERM; while :; do sleep 0.05; done";
    let timed = TaskOptions { timeout_ms: Some(1_000), ..options(&shell(stubborn)) };
    let timed = lab.submit("timed", "{}", timed).await;
    let idle = RunnerSpec { idle_timeout_ms: Some(1_000), ..shell(stubborn) };
    let retry = RetryPolicy { max_attempts: 1, ..RetryPolicy::default() };
    let idle = TaskOptions { retry: Some(retry), ..options(&idle) };
    let idle = lab.submit("idle", "{}", idle).await;
    let timed = lab.ended(&timed).await;
    assert_eq!(timed.types().last(), Some(&"Task Timeout"));
    assert_eq!(timed.last()["signal"], "SIGKILL");
    assert_eq!(timed.count("Task Processing Started"), 1, "{:?}", timed.types());
    let idle = lab.ended(&idle).await;
    assert_eq!(idle.failure().0, "timeout");
    assert_eq!(idle.count("Task Processing Started"), 1, "{:?}", idle.types());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_kept_until_the_outcome_is_taken() {
    let policy = Policy { lease_millis: 2_000, ..Policy::default() };
    let mut lab = Lab::with_policy(policy);
    (lab.config.heartbeat, lab.config.lease) = (Duration::from_millis(200), Duration::from_secs(2));
    let source = Faulty::new(lab.source("worker-1"));
    source.finishes_fail.store(true, Ordering::Relaxed);
    let worker = start(&lab, source.clone());
    let pids = lab.directory.0.join("pids");
    let text = format!("echo $$ >> {}; [ $TIDEMILL_FENCE = 1 ]", pids.display());
    let key = lab.submit("req-1", "{}", options(&shell(&text))).await;
    pids_in(&pids, 1).await;
    lab.work("worker-2");
    // Well beyond what the claim alone would last.
    lab.until(&key, |history| history.count("Task Heartbeat") >= 20 || history.is_done()).await;
    source.finishes_fail.store(false, Ordering::Relaxed);
    let ended = lab.ended(&key).await;
    ended.output();
    assert_eq!(ended.count("Task Processing Started"), 1, "{:?}", ended.types());
    worker.shut_down(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outcome_is_offered_until_somebody_else_has_the_task() {
    let policy = Policy { lease_millis: 1_500, ..Policy::default() };
    let mut lab = Lab::with_policy(policy);
    (lab.config.heartbeat, lab.config.lease) = (Duration::from_millis(200), Duration::from_millis(1_500));
    lab.config.slots = 1;
    // Nothing is heard of the store while the lease runs out.
    let source = Faulty::new(lab.source("worker-1"));
    source.finishes_fail.store(true, Ordering::Relaxed);
    source.heartbeats_fail.store(true, Ordering::Relaxed);
    let worker = start(&lab, source.clone());
    let key = lab.submit("req-1", "{}", options(&shell("echo '{\"cost\":100}'"))).await;
    let began = std::time::Instant::now();
    eventually("the lease is over", || began.elapsed() > Duration::from_secs(4)).await;
    source.finishes_fail.store(false, Ordering::Relaxed);
    let ended = lab.ended(&key).await;
    assert_eq!(ended.output()["cost"], 100);
    assert_eq!(ended.count("Task Processing Started"), 1, "{:?}", ended.types());
    worker.shut_down(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn that_an_outcome_is_given_up_is_told() {
    let mut lab = Lab::idle();
    lab.config.persistence = Duration::from_millis(100);
    let source = Faulty::new(lab.source("worker-1"));
    source.finishes_fail.store(true, Ordering::Relaxed);
    let worker = start(&lab, source);
    lab.submit("req-1", "{}", options(&shell("true"))).await;
    let told = "the outcome could not be recorded and is given up: on purpose";
    eventually("it is told", || lab.shown().iter().any(|line| line.contains(told))).await;
    worker.shut_down(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_could_not_be_stored_are_not_deleted() {
    let mut lab = Lab::idle();
    lab.config.keep_files = false;
    lab.config.upload_patience = Duration::from_millis(100);
    let source = Faulty::new(lab.source("worker-1"));
    source.blobs_fail.store(true, Ordering::Relaxed);
    let worker = start(&lab, source.clone());
    let text = "echo kept > $TIDEMILL_OUTPUT_DIR/artifacts/a.txt";
    lab.run("failed", &shell(&format!("{text}; exit 3"))).await;
    source.blobs_fail.store(false, Ordering::Relaxed);
    lab.run("stored", &shell(text)).await.output();
    worker.shut_down(Duration::from_secs(10)).await;
    assert_eq!(std::fs::read_to_string(lab.output("failed/artifacts/a.txt")).unwrap(), "kept\n");
    assert!(!lab.output("stored").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_upload_does_not_fail_a_task() {
    let mut lab = Lab::idle();
    lab.config.upload_patience = Duration::from_millis(500);
    let source = Faulty::new(lab.source("worker-1"));
    source.blobs_fail.store(true, Ordering::Relaxed);
    let worker = start(&lab, source.clone());
    let ended = lab.run("req-1", &shell("echo '{\"a\":1}'")).await;
    assert_eq!(ended.output(), serde_json::json!({"a": 1}));
    assert!(source.blob_tries.load(Ordering::Relaxed) >= 2);
    let log = std::fs::read_to_string(lab.output("req-1/logs/output.log")).unwrap();
    assert!(log.contains("logs/output.log could not be kept"), "{log}");
    worker.shut_down(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_not_completed_without_its_artifacts() {
    let mut lab = Lab::idle();
    lab.config.upload_patience = Duration::from_millis(100);
    let source = Faulty::new(lab.source("worker-1"));
    source.blobs_fail.store(true, Ordering::Relaxed);
    let worker = start(&lab, source.clone());
    let text = "echo precious > $TIDEMILL_OUTPUT_DIR/artifacts/data.csv; echo '{}'";
    let key = lab.submit("req-1", "{}", options(&shell(text))).await;
    // The log is given up after a tenth of a second. The pauses grow from a fifth of a second on.
    eventually("it is tried for longer", || source.blob_tries.load(Ordering::Relaxed) > 5).await;
    assert!(!lab.history(&key).await.is_done());
    source.blobs_fail.store(false, Ordering::Relaxed);
    let ended = lab.ended(&key).await;
    ended.output();
    assert_eq!(ended.last()["artifacts"][0]["path"], "r1-a1/artifacts/data.csv", "{}", ended.last());
    assert_eq!(ended.count("Task Processing Started"), 1, "{:?}", ended.types());
    let kept = lab.blob(&key, "r1-a1/artifacts/data.csv").await;
    assert_eq!(kept.as_deref(), Some(&b"precious\n"[..]));
    worker.shut_down(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_whose_artifacts_are_never_taken_runs_again() {
    let mut lab = Lab::idle();
    lab.config.upload_patience = Duration::from_millis(100);
    lab.config.persistence = Duration::from_millis(100);
    let source = Faulty::new(lab.source("worker-1"));
    source.blobs_fail.store(true, Ordering::Relaxed);
    let worker = start(&lab, source.clone());
    let text = "echo precious > $TIDEMILL_OUTPUT_DIR/artifacts/data.csv; echo '{}'";
    let key = lab.submit("req-1", "{}", options(&shell(text))).await;
    let told = "files of a task cannot be stored";
    eventually("it is told", || lab.shown().iter().any(|line| line.contains(told))).await;
    source.blobs_fail.store(false, Ordering::Relaxed);
    let ended = lab.ended(&key).await;
    ended.output();
    assert_eq!(ended.last()["artifacts"][0]["path"], "r1-a1/artifacts/data.csv", "no attempt is counted");
    assert_eq!(ended.first_of("Task Processing Failed")["counted"], false, "{:?}", ended.types());
    worker.shut_down(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_offered_until_it_is_taken() {
    let lab = Lab::idle();
    let source = Faulty::new(lab.source("worker-1"));
    source.blobs_fail.store(true, Ordering::Relaxed);
    let worker = start(&lab, source.clone());
    let key = lab.submit("req-1", "{}", options(&shell("echo said"))).await;
    eventually("more tries than there used to be", || source.blob_tries.load(Ordering::Relaxed) > 3).await;
    assert!(!lab.history(&key).await.is_done());
    source.blobs_fail.store(false, Ordering::Relaxed);
    lab.ended(&key).await.output();
    assert_eq!(lab.blob(&key, "r1-a1/logs/output.log").await.as_deref(), Some(&b"said\n"[..]));
    worker.shut_down(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wk_23_a_shutdown_lets_tasks_end_and_gives_back_the_rest() {
    let mut lab = Lab::working();
    let dir = lab.directory.0.clone();
    let go = dir.join("go");
    let quick = format!(
        "echo $$ >> {0}/quick; while [ ! -e {1} ]; do sleep 0.02; done; echo '{{\"ok\":1}}'",
        dir.display(),
        go.display()
    );
    let quick = lab.submit("quick", "{}", options(&shell(&quick))).await;
    let slow = format!("trap '' TERM; echo $$ >> {}/slow; sleep 300 & wait; sleep 300", dir.display());
    let slow = lab.submit("slow", "{}", options(&shell(&slow))).await;
    pids_in(&dir.join("quick"), 1).await;
    let pid = pids_in(&dir.join("slow"), 1).await[0];
    std::fs::write(&go, "").unwrap();
    lab.config.kill_grace = Duration::from_secs(1);
    lab.shut_down(Duration::from_secs(2)).await;
    assert_eq!(lab.history(&quick).await.output(), serde_json::json!({"ok": 1}));
    assert!(!is_alive(pid));
    let history = lab.history(&slow).await;
    let failed = history.first_of("Task Processing Failed");
    assert_eq!(
        (failed["error"].as_str(), failed["counted"].as_bool()),
        (Some("worker shutdown"), Some(false))
    );
    assert!(!lab.output("slow").exists());
    // Another worker takes it at once.
    let waiting = lab.submit("waiting", "{}", options(&shell("true"))).await;
    lab.work("worker-2");
    lab.ended(&waiting).await.output();
    assert_eq!(pids_in(&dir.join("slow"), 2).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn wk_02_no_more_tasks_run_at_once_than_there_are_slots() {
    let mut lab = Lab::idle();
    lab.config.slots = 3;
    lab.work("worker-1");
    let dir = lab.directory.0.display().to_string();
    let go = lab.directory.0.join("go");
    let text = format!("echo $$ >> {dir}/pids; while [ ! -e {dir}/go ]; do sleep 0.02; done");
    let mut keys = Vec::new();
    for n in 0..6 {
        keys.push(lab.submit(&format!("req-{n}"), "{}", options(&shell(&text))).await);
    }
    pids_in(&lab.directory.0.join("pids"), 3).await;
    let depth = lab.engine.queue_depth().await.unwrap();
    assert_eq!((depth.messages, depth.ready), (6, 3), "nothing is held that cannot run");
    std::fs::write(&go, "").unwrap();
    for key in &keys {
        lab.ended(key).await.output();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn id_01_a_thousand_duplicated_messages_and_three_workers_give_one_outcome_each() {
    // A duplicate that comes while a task runs is put off until just after its lease would end.
    let mut lab = Lab::with_policy(Policy { lease_millis: 10_000, ..Policy::default() });
    (lab.config.heartbeat, lab.config.lease) = (Duration::from_secs(3), Duration::from_secs(10));
    let count = 1_000;
    let mut keys = Vec::new();
    let execution = tidemill_model::work::runner_spec::RunnerSpec {
        run: Some(tidemill_model::work::runner_spec::Run::Argv(vec!["/bin/true".to_owned()])),
        ..Default::default()
    };
    for n in 0..count {
        let key = lab.submit(&format!("req-{n}"), "{}", options(&execution)).await;
        let message = NewMessage {
            tenant: tenant(),
            app: tidemill_model::AppName::new("app").unwrap(),
            request: Some(key.request.clone()),
            name: tidemill_model::TaskName::new("step").unwrap(),
            input: tidemill_model::Json::empty_object(),
            run: 1,
            delay_millis: 0,
        };
        lab.engine.send(message).await.unwrap();
        keys.push(key);
    }
    for worker in ["worker-1", "worker-2", "worker-3"] {
        lab.work(worker);
    }
    for key in &keys {
        lab.ended(key).await;
    }
    let waiting = async {
        loop {
            let change = lab.engine.backend().change();
            if lab.engine.queue_depth().await.unwrap().messages == 0 {
                return;
            }
            lab.engine.backend().changed(change).await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("duplicates are deleted");
    lab.shut_down(Duration::from_secs(30)).await;
    for key in &keys {
        let history = lab.history(key).await;
        let expected = ["Task Pending", "Task Processing Started", "Task Completed"];
        assert_eq!(history.types(), expected, "{}", key.request);
    }
}

/// The other process of the tests below: a server with a worker on a data directory, until it is killed.
#[test]
#[ignore = "started by the tests that kill it"]
fn server_process() {
    #[expect(clippy::disallowed_methods, reason = "the test that starts this process says where it works")]
    let Ok(dir) = std::env::var("TIDEMILL_TEST_DIR") else { return };
    let dir = std::path::PathBuf::from(dir);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let engine = open(&dir.join("data"), Policy::default());
        let generation = engine.backend().generation();
        let spawner =
            tidemill_worker::spawner::Spawner::start(crate::lab::spawner_config("killed", generation))
                .unwrap();
        std::fs::write(dir.join("spawner"), format!("{}\n", spawner.pids()[0])).unwrap();
        let source = EngineSource::new(
            engine,
            tidemill_worker::EngineSourceConfig {
                worker: tidemill_model::WorkerId::new("worker-1").unwrap(),
                generation: Some(generation),
                tenants: None,
            },
        );
        let config = tidemill_worker::CommandConfig::new(dir.join("output"), crate::lab::environment());
        let _worker = CommandWorker::new(source, spawner, config).unwrap().start();
        std::future::pending::<()>().await;
    });
}

fn server(dir: &Directory) -> std::process::Child {
    std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "leases::server_process", "--ignored", "--nocapture"])
        .env("TIDEMILL_TEST_DIR", &dir.0)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap()
}

/// Prepares a data directory with one task that leaves processes everywhere.
async fn with_daemons(dir: &Directory) -> tidemill_engine::commit::TaskKey {
    let mut lab = Lab::idle();
    let pids = dir.0.join("pids");
    let text = format!(
        "[ $TIDEMILL_FENCE = 1 ] || exit 0
         echo $$ >> {0}; (setsid sh -c 'trap \"\" TERM; echo $$ >> {0}; while :; do sleep 300; done' &)
         (sleep 300 & echo $! >> {0}); trap '' TERM; sleep 300 & wait; sleep 300",
        pids.display()
    );
    lab.engine = open(&dir.0.join("data"), Policy::default());
    let key = lab.submit("req-1", "{}", options(&shell(&text))).await;
    drop(lab);
    key
}

#[tokio::test(flavor = "multi_thread")]
async fn id_06_a_killed_server_leaves_nothing_running_and_its_task_runs_again() {
    for kill_spawner_too in [false, true] {
        let dir = Directory::fresh();
        let key = with_daemons(&dir).await;
        let mut server = server(&dir);
        let pids = pids_in(&dir.0.join("pids"), 3).await;
        let spawner = pids_in(&dir.0.join("spawner"), 1).await[0];
        if kill_spawner_too {
            // Stopped first, so that neither can clean up after the other.
            kill(server.id(), Signal::STOP);
            kill(spawner, Signal::KILL);
        }
        server.kill().unwrap();
        assert_eq!(server.wait().unwrap().signal(), Some(9));
        let mut lab = Lab::idle();
        eventually("the spawner is gone", || !is_alive(spawner)).await;
        lab.engine = open(&dir.0.join("data"), Policy::default());
        let generation = lab.engine.backend().generation();
        let leftovers =
            tokio::task::spawn_blocking(move || kill_leftovers("killed", generation)).await.unwrap();
        assert_eq!(leftovers.survivors, [0_u32; 0]);
        assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
        if kill_spawner_too {
            assert!(!leftovers.killed.is_empty(), "what the children had started was left");
        }
        assert_eq!(lab.engine.recover(generation).await.unwrap(), 1);
        lab.work("worker-2");
        let ended = lab.ended(&key).await;
        ended.output();
        assert_eq!(ended.count("Task Completed"), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_spawner_is_replaced_and_leaves_nothing_running() {
    let lab = Lab::working();
    let pids = lab.directory.0.join("pids");
    let text = format!(
        "[ $TIDEMILL_FENCE = 1 ] || {{ echo \"{{\\\"attempt\\\":$TIDEMILL_ATTEMPT}}\"; exit 0; }}
         echo $$ >> {0}; (setsid sh -c 'trap \"\" TERM; echo $$ >> {0}; while :; do sleep 300; done' &)
         sleep 300 & wait",
        pids.display()
    );
    let key = lab.submit("req-1", "{}", options(&shell(&text))).await;
    let pids = pids_in(&pids, 2).await;
    let spawner = lab.spawner.pids()[0];
    kill(spawner, Signal::KILL);
    let ended = lab.ended(&key).await;
    assert_eq!(ended.output(), serde_json::json!({"attempt": 1}), "it was no fault of the task");
    assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
    let failed = ended.first_of("Task Processing Failed");
    assert_eq!(failed["counted"], false);
    assert!(failed["error"].as_str().unwrap().contains("the process that starts tasks is gone"), "{failed}");
    assert!(!lab.spawner.pids().contains(&spawner));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spawner_that_hangs_is_replaced() {
    let lab = Lab::working();
    let spawner = lab.spawner.pids()[0];
    kill(spawner, Signal::STOP);
    let ended = lab.run("req-1", &shell("true")).await;
    ended.output();
    let failed = ended.first_of("Task Processing Failed");
    assert_eq!(failed["counted"], false);
    assert!(failed["error"].as_str().unwrap().contains("did not answer"), "{failed}");
    eventually("it is gone", || !is_alive(spawner)).await;
}

/// The second attempt looks for the first. SIGTERM would not be enough to end it.
fn second_looks_for_first(pids: &Path) -> String {
    format!(
        "trap '' TERM; echo $$ >> {0}
         if [ $TIDEMILL_FENCE = 1 ]; then while :; do sleep 0.05; done; fi
         if kill -0 $(head -n 1 {0}); then echo '{{\"alone\":false}}'; else echo '{{\"alone\":true}}'; fi",
        pids.display()
    )
}
