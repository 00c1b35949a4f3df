//! Handlers inside the program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tidemill_engine::policy::Policy;
use tidemill_model::{ErrorCategory, Json, WorkerId};
use tidemill_worker::{Handlers, NativeWorker, TaskError, WorkerConfig};
use tokio::sync::Notify;

use crate::lab::{Lab, shell};

/// Rings when it is dropped.
struct Bell(Arc<Notify>);

impl Drop for Bell {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// Notes that it was dropped.
struct Gone(Arc<AtomicBool>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_ends_a_handler_at_once_and_its_slot_goes_on() {
    let lab = Lab::idle();
    let (started, dropped) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (starts, drops) = (Arc::clone(&started), Arc::clone(&dropped));
    let handlers = Handlers::new()
        .on("step", move |task| {
            let (starts, bell) = (Arc::clone(&starts), Bell(Arc::clone(&drops)));
            async move {
                if task.task.as_str() == "quick" {
                    std::mem::forget(bell);
                    return Ok(Json::empty_object());
                }
                starts.notify_one();
                std::future::pending::<()>().await;
                drop(bell);
                Ok(Json::empty_object())
            }
        })
        .unwrap();
    // No heartbeat tells it within the time of this test.
    let config = WorkerConfig {
        slots: 1,
        heartbeat: Duration::from_secs(3_600),
        ..WorkerConfig::new(WorkerId::new("native-1").unwrap())
    };
    let worker = NativeWorker::new(lab.engine.clone(), handlers, config).start();
    let (job, key) = lab.submit_job("slow", &shell("true")).await;
    started.notified().await;
    lab.engine.cancel(key.tenant.clone(), job, "test".to_owned(), None).await.unwrap();
    tokio::time::timeout(Duration::from_secs(30), dropped.notified()).await.expect("the handler is dropped");
    let (_, key) = lab.submit_job("quick", &shell("true")).await;
    lab.ended(&key).await.output();
    worker.shut_down(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outcome_that_is_refused_fails_the_task_with_the_reason() {
    for (task, named) in [
        ("too-large", "output"),
        ("too-deep", "101 levels"),
        ("cancelled", "cancelled"),
        ("far-away", "retryAfter"),
    ] {
        let lab = Lab::idle();
        let handlers = Handlers::new().on("step", |task| async move {
            match task.task.as_str() {
                "too-large" => Ok(Json::of(&"x".repeat(17 << 20))),
                "too-deep" => Ok(Json::parse("[".repeat(101) + &"]".repeat(101)).expect("it is JSON")),
                "cancelled" => Err(TaskError::new(ErrorCategory::Cancelled, "no")),
                _ => Err(TaskError { retry_after_millis: Some(u64::MAX), ..TaskError::retryable("later") }),
            }
        });
        let config = WorkerConfig { slots: 1, ..WorkerConfig::new(WorkerId::new("native-1").unwrap()) };
        let worker = NativeWorker::new(lab.engine.clone(), handlers.unwrap(), config).start();
        let (_, key) = lab.submit_job(task, &shell("true")).await;
        let ended = lab.ended(&key).await;
        let (category, text) = ended.failure();
        assert!(text.contains(named) && category == "validation", "{task}: {category} {text}");
        assert_eq!(ended.last()["retryCount"], 1, "{task}");
        worker.shut_down(Duration::from_secs(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_blocks_its_thread_keeps_its_lease() {
    assert_blocked_tasks_run_once(&["blocks"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_that_block_every_thread_keep_their_leases() {
    assert_blocked_tasks_run_once(&["one", "two"]).await;
}

/// Handlers that block their threads for longer than a lease each run once.
#[expect(clippy::disallowed_methods, reason = "the handler is to block its thread for longer than a lease")]
async fn assert_blocked_tasks_run_once(tasks: &[&str]) {
    let lab = Lab::with_policy(Policy { lease_millis: 1_500, ..Policy::default() });
    let runs = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&runs);
    let handlers = Handlers::new().on("step", move |_| {
        let counted = Arc::clone(&counted);
        async move {
            counted.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_secs(4));
            Ok(Json::empty_object())
        }
    });
    let config = WorkerConfig {
        slots: 2,
        heartbeat: Duration::from_millis(300),
        ..WorkerConfig::new(WorkerId::new("native-1").unwrap())
    };
    let worker = NativeWorker::new(lab.engine.clone(), handlers.unwrap(), config).start();
    let mut keys = Vec::new();
    for task in tasks {
        keys.push(lab.submit_job(task, &shell("true")).await.1);
    }
    for key in &keys {
        lab.ended(key).await.output();
    }
    assert_eq!(usize::try_from(runs.load(Ordering::Relaxed)), Ok(tasks.len()));
    worker.shut_down(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_without_heartbeats_ends_before_another_begins() {
    let lab = Lab::with_policy(Policy { lease_millis: 4_000, ..Policy::default() });
    let is_over = Arc::new(AtomicBool::new(false));
    let handlers = || {
        let is_over = Arc::clone(&is_over);
        let handlers = Handlers::new().on("step", move |task| {
            let is_over = Arc::clone(&is_over);
            async move {
                if task.fence.0 == 1 {
                    let _gone = Gone(is_over);
                    return std::future::pending().await;
                }
                Ok(Json::of(&is_over.load(Ordering::SeqCst)))
            }
        });
        handlers.unwrap()
    };
    let config = |name: &str, heartbeat| WorkerConfig {
        slots: 1,
        heartbeat,
        ..WorkerConfig::new(WorkerId::new(name).unwrap())
    };
    // As if none of its heartbeats came through.
    let silent = config("silent", Duration::from_secs(3_600));
    let silent = NativeWorker::new(lab.engine.clone(), handlers(), silent).start();
    let (_, key) = lab.submit_job("slow", &shell("true")).await;
    lab.until(&key, |history| history.count("Task Processing Started") == 1).await;
    let other = config("other", Duration::from_secs(1));
    let other = NativeWorker::new(lab.engine.clone(), handlers(), other).start();
    let ended = lab.ended(&key).await;
    assert_eq!((ended.output(), ended.last()["fence"].as_u64()), (serde_json::json!(true), Some(2)));
    for worker in [silent, other] {
        worker.shut_down(Duration::from_secs(10)).await;
    }
}
