//! Jobs of async functions, from submit to done.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tidemill::{Handlers, Host, HostOptions, JobId, JobStatus, Json, TaskError, TaskOptions, TaskSpec, task};
use tidemill_engine::commit::TaskKey;
use tidemill_engine::engine::{BulkAction, UnparkRequest};
use tidemill_model::workflow::WorkflowRunId;
use tidemill_model::{ErrorCategory, OnFailure, Outcome, RetryPolicy, TaskHead, TaskId, TenantId};

/// A data directory that is removed with the test.
struct Directory(PathBuf);

impl Directory {
    fn fresh() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("tidemill-host-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn open(directory: &Directory, handlers: Handlers) -> Host {
    let options = HostOptions { slots: 8, ..HostOptions::default() };
    Host::open(&directory.0, handlers, options).await.expect("the host opens")
}

async fn head(host: &Host, job: JobId, task: &str) -> TaskHead {
    let request = job.request_id(&TaskId::new(task).unwrap());
    let key = TaskKey { tenant: TenantId::new("default").unwrap(), request };
    host.engine().task(key).await.unwrap().expect("the task is there").head.expect("it was dispatched")
}

/// Tries again at once.
fn eager(spec: TaskSpec) -> TaskSpec {
    let retry = Some(RetryPolicy { first_delay: 1, max_delay: 1, ..RetryPolicy::default() });
    TaskSpec { options: TaskOptions { retry, ..spec.options.clone() }, ..spec }
}

#[tokio::test]
async fn children_get_what_their_parents_gave() {
    let directory = Directory::fresh();
    let handlers = Handlers::new()
        .on("one", |_| async { Ok(Json::of(&1)) })
        .unwrap()
        .on("sum", |task| async move {
            let parts: Vec<i64> =
                task.dependency_outputs.iter().map(|(_, output)| output.read().unwrap()).collect();
            Ok(Json::of(&parts.iter().sum::<i64>()))
        })
        .unwrap();
    let host = open(&directory, handlers).await;
    let tasks =
        [("a", "one", &[][..]), ("b", "one", &[]), ("c", "sum", &["a", "b"]), ("d", "sum", &["c", "a"])];
    let tasks = tasks.map(|(id, name, parents)| task(id, name, parents).unwrap()).to_vec();
    let job = host.submit("sums", tasks).await.unwrap();
    assert_eq!(host.wait(job).await.unwrap(), JobStatus::Completed);
    let request = job.request_id(&TaskId::new("d").unwrap());
    let entity = tidemill_model::Entity::task(&request);
    let last = host.engine().latest(TenantId::new("default").unwrap(), entity).await.unwrap().unwrap();
    assert!(last.properties.as_str().contains(r#""output":3"#), "{}", last.properties.as_str());
    host.shut_down().await;
}

#[tokio::test]
async fn a_failing_task_is_tried_again_and_then_given_up() {
    let directory = Directory::fresh();
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let handlers = Handlers::new()
        .on("flaky", move |task| {
            counted.fetch_add(1, Ordering::Relaxed);
            async move {
                match task.attempt {
                    1 => Err(TaskError::retryable("connection reset")),
                    _ => Ok(Json::empty_object()),
                }
            }
        })
        .unwrap()
        .on("hopeless", |_| async { Err(TaskError::retryable("still down")) })
        .unwrap()
        .on("wrong", |_| async { Err(TaskError::fatal("no such store")) })
        .unwrap()
        .on("panicking", |_| async { panic!("index out of bounds") })
        .unwrap();
    let host = open(&directory, handlers).await;
    let names = ["flaky", "hopeless", "wrong", "panicking", "nobody"];
    let tasks = names.map(|name| eager(task(name, name, &[]).unwrap())).to_vec();
    let job = host.submit("failures", tasks).await.unwrap();
    assert_eq!(host.wait(job).await.unwrap(), JobStatus::Failed);
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    for (name, outcome, attempts, category) in [
        ("flaky", Outcome::Completed, 2, Some(ErrorCategory::ServerError)),
        ("hopeless", Outcome::Failed, 3, Some(ErrorCategory::ServerError)),
        ("wrong", Outcome::Failed, 1, Some(ErrorCategory::Validation)),
        ("panicking", Outcome::Failed, 1, Some(ErrorCategory::Programming)),
        ("nobody", Outcome::Failed, 1, Some(ErrorCategory::NotFound)),
    ] {
        let head = head(&host, job, name).await;
        assert_eq!(
            (head.outcome(), head.attempts, head.last_error),
            (Some(outcome), attempts, category),
            "{name}"
        );
    }
    host.shut_down().await;
}

#[tokio::test]
async fn a_task_that_takes_too_long_times_out() {
    let directory = Directory::fresh();
    let handlers = Handlers::new().on("slow", |_| std::future::pending()).unwrap();
    let host = open(&directory, handlers).await;
    let mut spec = task("slow", "slow", &[]).unwrap();
    spec.options.timeout_ms = Some(1_000);
    let job = host.submit("slow", vec![spec]).await.unwrap();
    assert_eq!(host.wait(job).await.unwrap(), JobStatus::Failed);
    assert_eq!(head(&host, job, "slow").await.outcome(), Some(Outcome::TimedOut));
    host.shut_down().await;
}

/// A task that does not end in time is given back: the next life takes it as if nothing had happened.
#[tokio::test]
async fn a_shutdown_gives_back_what_does_not_end() {
    let directory = Directory::fresh();
    let started = Arc::new(tokio::sync::Notify::new());
    let begun = Arc::clone(&started);
    let hanging = Handlers::new()
        .on("work", move |_| {
            begun.notify_one();
            std::future::pending()
        })
        .unwrap();
    let options = HostOptions { grace: std::time::Duration::ZERO, ..HostOptions::default() };
    let host = Host::open(&directory.0, hanging, options).await.unwrap();
    let job = host.submit("given back", vec![task("a", "work", &[]).unwrap()]).await.unwrap();
    started.notified().await;
    host.shut_down().await;

    let working = Handlers::new().on("work", |_| async { Ok(Json::empty_object()) }).unwrap();
    let host = open(&directory, working).await;
    assert_eq!(host.wait(job).await.unwrap(), JobStatus::Completed);
    let head = head(&host, job, "a").await;
    assert_eq!((head.attempts, head.takeovers, head.fence.0), (1, 0, 2));
    host.shut_down().await;
}

/// The first life takes a task and dies; the second one runs it at once, without waiting for the lease to end.
#[tokio::test]
async fn work_goes_on_in_the_next_life() {
    let directory = Directory::fresh();
    let started = Arc::new(tokio::sync::Notify::new());
    let begun = Arc::clone(&started);
    let hanging = Handlers::new()
        .on("work", move |_| {
            begun.notify_one();
            std::future::pending()
        })
        .unwrap();
    let host = open(&directory, hanging).await;
    let job = host.submit("two lives", vec![task("a", "work", &[]).unwrap()]).await.unwrap();
    started.notified().await;
    drop(host);

    let working = Handlers::new().on("work", |_| async { Ok(Json::empty_object()) }).unwrap();
    let host = loop {
        // The slots of the first life let go of the directory when their runtime has dropped them.
        match Host::open(&directory.0, working.clone(), HostOptions::default()).await {
            Ok(host) => break host,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    assert_eq!(host.wait(job).await.unwrap(), JobStatus::Completed);
    let head = head(&host, job, "a").await;
    assert_eq!((head.attempts, head.takeovers, head.fence.0), (1, 0, 2));
    host.shut_down().await;
}

/// A task that failed for good and is parked: a caller that waits for the job learns it, and may let it go on or
/// leave it.
#[tokio::test]
async fn a_job_with_a_parked_task_keeps_nobody_waiting() {
    let directory = Directory::fresh();
    let handlers = Handlers::new()
        .on("break", |_| async { Err(TaskError::fatal("no such column")) })
        .unwrap()
        .on("pass", |_| async { Ok(Json::empty_object()) })
        .unwrap();
    let host = open(&directory, handlers).await;
    let parking = |timeout: Option<u64>| {
        let mut first = task("first", "break", &[]).unwrap();
        first.options.on_failure = OnFailure::Park;
        first.options.park_timeout_ms = timeout;
        vec![first, task("second", "pass", &["first"]).unwrap()]
    };
    let job = host.submit("parks", parking(None)).await.unwrap();
    assert_eq!(host.wait(job).await.unwrap(), JobStatus::Failing);
    assert!(head(&host, job, "first").await.is_parked());
    let request = UnparkRequest {
        tenant: TenantId::new("default").unwrap(),
        execution: WorkflowRunId::from(&job.request_id(&TaskId::new("first").unwrap())),
        how: BulkAction::Resume { output: Json::empty_object(), rerun: false },
        by: None,
        reason: None,
    };
    host.engine().unpark(request).await.unwrap();
    assert_eq!(host.wait(job).await.unwrap(), JobStatus::Completed);
    // Nobody comes for this one: the host gives it up by itself.
    let job = host.submit("parks", parking(Some(300))).await.unwrap();
    while host.wait(job).await.unwrap() != JobStatus::Failed {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(head(&host, job, "first").await.outcome(), Some(Outcome::Failed));
    host.shut_down().await;
}
