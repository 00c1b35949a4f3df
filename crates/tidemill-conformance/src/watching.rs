//! Watching: leases that end, tasks in detail, and many jobs at once.

use std::pin::pin;

use serde_json::json;
use tidemill_model::events::overflow::DETAIL_BYTES_MAX;
use tidemill_model::events::properties::{Activity, ActivityKind, Usage};
use tidemill_model::{ErrorCategory, JobStatus, KnownType, Outcome, PublicState, TaskState};

use super::lab::{is_lease_lost, is_not_found, value};
use super::leases::beat;
use super::shape::{
    LEASE, MINUTE, SECOND, acme, alone, graph, job_of, key, long_text, other, property, request, task_id,
    types,
};
use super::{Lab, TestWorld, poll_once};
use tidemill_engine::engine::limits::LISTED_OUTPUT_BYTES_MAX;
use tidemill_engine::engine::{
    EngineError, HeartbeatReport, JobFilter, JobRequest, Signal, TaskDetail, WorkReport,
};
use tidemill_engine::reply::{Ending, Refusal};

/// A cancel tells the worker at once; other tasks' workers hear nothing.
pub async fn a_cancel_revokes_the_leases_of_the_job<W: TestWorld>(lab: Lab<W>) {
    let job = lab.submit("a b").await;
    let bystander = lab.submit("x").await;
    let tasks = lab.claim(3).await;
    let [a, b, x] = &tasks[..] else { panic!("{tasks:?}") };
    assert_eq!(x.job, Some(bystander));
    let mut watches = Box::pin(async {
        lab.engine.revoked(&a.task, a.fence).await;
        lab.engine.revoked(&b.task, b.fence).await;
    });
    let mut other_watch = pin!(lab.engine.revoked(&x.task, x.fence));
    assert!(poll_once(watches.as_mut()).await.is_pending());
    assert!(poll_once(other_watch.as_mut()).await.is_pending());
    let unpolled = lab.engine.revoked(&b.task, b.fence);
    lab.engine.cancel(acme(), job, "ann".to_owned(), None).await.expect("the job runs");
    watches.await;
    unpolled.await;
    lab.engine.revoked(&a.task, a.fence).await;
    assert!(poll_once(other_watch.as_mut()).await.is_pending(), "x goes on");
    lab.complete(x, "{}").await;
}

/// A claim that takes a task over tells the worker that lost it, and not the one that got it.
pub async fn a_takeover_revokes_the_lease_before_it<W: TestWorld>(lab: Lab<W>) {
    lab.engine.submit_task(alone("t-1")).await.expect("the task is accepted");
    let old = lab.claim_one().await;
    let mut lost = pin!(lab.engine.revoked(&old.task, old.fence));
    assert!(poll_once(lost.as_mut()).await.is_pending());
    lab.engine.heartbeat(beat(&old)).await.expect("it is held");
    assert!(poll_once(lost.as_mut()).await.is_pending(), "a heartbeat ends nothing");
    lab.pass(LEASE + SECOND);
    let new = lab.claim_one().await;
    lost.await;
    let mut held = pin!(lab.engine.revoked(&new.task, new.fence));
    assert!(poll_once(held.as_mut()).await.is_pending());
    lab.complete(&new, "{}").await;
}

/// A task on its own is cancelled: it fails as cancelled, its worker learns it and can write nothing, a resume
/// reopens it.
pub async fn a_task_on_its_own_can_be_cancelled<W: TestWorld>(lab: Lab<W>) {
    let cancel = |id: &str, reason: Option<&str>| {
        lab.engine.cancel_task(acme(), request(id), "ann".to_owned(), reason.map(str::to_owned))
    };
    lab.engine.submit_task(alone("held")).await.expect("the task is accepted");
    let held = lab.claim_one().await;
    lab.engine.submit_task(alone("queued")).await.expect("the task is accepted");
    let mut watch = pin!(lab.engine.revoked(&held.task, held.fence));
    assert!(poll_once(watch.as_mut()).await.is_pending());
    assert!(cancel("held", Some("wrong input")).await.expect("it runs"));
    watch.await;
    assert!(cancel("queued", None).await.expect("it waits"));
    for (id, error) in [("held", "cancelled by ann: wrong input"), ("queued", "cancelled by ann")] {
        let event = lab.history(&request(id)).await.pop().expect("there is a history");
        assert_eq!(event.event_type.as_str(), "Task Failed");
        assert_eq!(property(&event, "errorCategory"), "cancelled");
        assert_eq!(property(&event, "source"), "api");
        assert_eq!(property(&event, "error"), error);
        assert_eq!(lab.head(&request(id)).await.state, TaskState::Done(Outcome::Cancelled));
        assert!(!cancel(id, None).await.expect("it is cancelled"), "repeating changes nothing");
        lab.check_task(&request(id)).await;
    }
    assert!(is_lease_lost(&lab.engine.heartbeat(beat(&held)).await));
    assert!(is_lease_lost(&lab.report(&held, super::lab::completed("{}")).await));
    assert_eq!(lab.engine.queue_depth().await.expect("the backend works").messages, 0);
    assert_eq!(lab.engine.sweep().await.expect("the backend works"), 0);
    lab.engine.resume_task(acme(), request("held")).await.expect("it was cancelled");
    lab.run(&["task"]).await;
    let answer = cancel("held", None).await;
    assert!(matches!(answer, Err(EngineError::Refused(Refusal::TaskEnded(_)))), "{answer:?}");
    assert!(is_not_found(&cancel("nowhere", None).await));
    let foreign = lab.engine.cancel_task(other(), request("held"), "bob".to_owned(), None).await;
    assert!(is_not_found(&foreign));
    let job = lab.submit("a").await;
    let task = job.request_id(&task_id("a"));
    let answer = cancel(task.as_str(), None).await;
    assert!(matches!(answer, Err(EngineError::Refused(Refusal::PartOfJob { .. }))), "{answer:?}");
    lab.check_task(&request("held")).await;
}

/// What an agent used is in the event of its completion, beside an output of any size.
pub async fn usage_is_recorded_with_the_completion<W: TestWorld>(lab: Lab<W>) {
    let usage = Usage { input_tokens: 1_200, output_tokens: 340, cache_read_tokens: 56, ..Usage::default() };
    for (id, output) in [("small", long_text(10)), ("large", long_text(DETAIL_BYTES_MAX + 1_000))] {
        lab.engine.submit_task(alone(id)).await.expect("the task is accepted");
        let task = lab.claim_one().await;
        let report = WorkReport::Completed {
            output: Some(output.clone()),
            duration_millis: 7,
            exit_code: 0,
            artifacts: Vec::new(),
            usage: Some(usage),
            session_id: None,
        };
        lab.report(&task, report).await.expect("the outcome is taken");
        let event = lab.history(&request(id)).await.pop().expect("there is a history");
        let expected = json!({ "inputTokens": 1_200, "outputTokens": 340, "cacheReadTokens": 56 });
        assert_eq!(property(&event, "usage"), expected, "{id}");
        assert_eq!(value(&event.properties)["output"], value(&output), "{id}");
        let detail = detail(&lab, id).await;
        assert_eq!((detail.usage, detail.output), (Some(usage), Some(output)), "{id}");
    }
}

/// Secrets do not reach an event, by whichever way a text comes.
pub async fn texts_are_cleaned_before_they_are_stored<W: TestWorld>(lab: Lab<W>) {
    let secret = "AKIAIOSFODNN7EXAMPLE";
    let text = format!("denied for {secret}");
    for category in [ErrorCategory::Auth, ErrorCategory::Network] {
        let id = format!("t-{}", category.as_str());
        lab.engine.submit_task(alone(&id)).await.expect("the task is accepted");
        let task = lab.claim_one().await;
        lab.report(&task, WorkReport::failed(&text, category)).await.expect("the outcome is taken");
    }
    lab.engine.submit_task(alone("t-3")).await.expect("the task is accepted");
    let task = lab.claim_one().await;
    let worker = super::shape::worker("worker-1");
    let activity =
        Activity { kind: ActivityKind::StepRunning, step_name: text.clone(), timestamp: lab.now() };
    let beat = HeartbeatReport {
        task: task.task.clone(),
        fence: task.fence,
        worker: worker.clone(),
        process_id: 1,
        rss: 0,
        last_activity: Some(activity),
    };
    lab.engine.heartbeat(beat).await.expect("it is held");
    lab.engine.release(task.task, task.fence, worker, Some(text.clone())).await.expect("it is held");
    lab.engine
        .cancel_task(acme(), request("t-3"), "ann".to_owned(), Some(text.clone()))
        .await
        .expect("it waits");
    let job = lab.submit("a").await;
    lab.engine.cancel(acme(), job, "ann".to_owned(), Some(text)).await.expect("it runs");
    let events = lab.events(tidemill_model::events::access_path::AccessPath::Tenant).await;
    let told: Vec<_> =
        events.iter().filter(|event| event.properties.as_str().contains("[REDACTED]")).collect();
    let mut told: Vec<_> = told.iter().map(|event| event.event_type.as_str()).collect();
    told.sort_unstable();
    let expected = [
        "Job Cancelled",
        "Task Failed",
        "Task Failed",
        "Task Heartbeat",
        "Task Processing Failed",
        "Task Processing Failed",
    ];
    assert_eq!(told, expected);
    assert!(events.iter().all(|event| !event.properties.as_str().contains(secret)));
}

async fn detail<W: TestWorld>(lab: &Lab<W>, id: &str) -> TaskDetail {
    lab.world.settled().await;
    lab.engine.task_detail(key(id)).await.expect("the backend works").expect("the task is there")
}

/// Attempts, times, leases, errors and outputs, through the life of a task.
pub async fn a_task_is_told_in_detail<W: TestWorld>(lab: Lab<W>) {
    assert_eq!(lab.engine.task_detail(key("t-1")).await.expect("the backend works"), None);
    lab.engine.submit_task(alone("t-1")).await.expect("the task is accepted");
    let waiting = detail(&lab, "t-1").await;
    assert_eq!((waiting.attempt, waiting.started_at, waiting.effective_until), (0, None, None));
    lab.pass(SECOND);
    let first = lab.claim_one().await;
    let started = lab.now();
    let running = detail(&lab, "t-1").await;
    assert_eq!((running.attempt, running.started_at), (1, Some(started)));
    assert_eq!(running.effective_until, Some(first.lease_until));
    assert_eq!(running.worker_id.as_deref(), Some("worker-1"));
    lab.pass(SECOND);
    let Ending::Retrying { at } = lab.fail(&first, ErrorCategory::Network).await else {
        panic!("it is tried again")
    };
    let between = detail(&lab, "t-1").await;
    assert_eq!((between.attempt, between.started_at, between.finished_at), (1, Some(started), None));
    assert_eq!(
        (between.error.as_deref(), between.error_category),
        (Some("it broke"), Some(ErrorCategory::Network))
    );
    assert_eq!((between.effective_until, between.retrying), (None, true));
    lab.pass(at.since(lab.now()));
    let second = lab.claim_one().await;
    let started = lab.now();
    assert_eq!(detail(&lab, "t-1").await.attempt, 2);
    lab.pass(SECOND);
    lab.complete(&second, r#"{"n":1}"#).await;
    let done = detail(&lab, "t-1").await;
    assert_eq!((done.attempt, done.started_at, done.finished_at), (2, Some(started), Some(lab.now())));
    assert_eq!(done.output.as_ref().map(tidemill_model::Json::as_str), Some(r#"{"n":1}"#));
    assert_eq!((done.error, done.error_category, done.duration_ms), (None, None, Some(5)));
    assert_eq!((done.effective_until, done.worker_id, done.retrying), (None, None, false));

    lab.engine.submit_task(alone("t-2")).await.expect("the task is accepted");
    let task = lab.claim_one().await;
    let report = WorkReport::timed_out(1_000, 6_000, Signal::Kill);
    lab.report(&task, report).await.expect("the outcome is taken");
    let timed_out = detail(&lab, "t-2").await;
    assert_eq!(timed_out.error.as_deref(), Some("timed out after 1000 ms"));
    assert_eq!(
        (timed_out.error_category, timed_out.duration_ms),
        (Some(ErrorCategory::Timeout), Some(6_000))
    );
    lab.pass(SECOND);
    lab.engine.resume_task(acme(), request("t-2")).await.expect("it timed out");
    let again = detail(&lab, "t-2").await;
    assert_eq!((again.run, again.attempt, again.started_at, again.error), (2, 0, None, None));
}

/// The tasks of a job: what they wait for, and outputs as far as they are small.
pub async fn the_tasks_of_a_job_are_told_in_detail<W: TestWorld>(lab: Lab<W>) {
    let job = lab.submit("a b c d<a+b+c e<d").await;
    let tasks = lab.claim(3).await;
    lab.complete(&tasks[0], r#"{"n":1}"#).await;
    let report = |output| WorkReport::completed(output, 5);
    lab.report(&tasks[1], report(long_text(LISTED_OUTPUT_BYTES_MAX))).await.expect("the outcome is taken");
    let listed = lab.engine.job_task_details(acme(), job, 0, 1_000).await.expect("the backend works");
    let blocked: Vec<Vec<&str>> = listed
        .iter()
        .map(|detail| detail.task.blocked_by.iter().map(tidemill_model::TaskId::as_str).collect())
        .collect();
    assert_eq!(blocked, [vec![], vec![], vec![], vec!["c"], vec!["d"]]);
    lab.report(&tasks[2], report(long_text(DETAIL_BYTES_MAX + 1))).await.expect("the outcome is taken");
    let listed = lab.engine.job_task_details(acme(), job, 0, 1_000).await.expect("the backend works");
    let outputs: Vec<_> =
        listed.iter().map(|detail| (detail.output.is_some(), detail.output_omitted)).collect();
    assert_eq!(outputs, [(true, false), (false, true), (false, true), (false, false), (false, false)]);
    assert_eq!(listed[3].task.state, Some(PublicState::Pending));
    for name in ["b", "c"] {
        let whole = detail(&lab, job.request_id(&task_id(name)).as_str()).await;
        assert!(whole.output.is_some() && !whole.output_omitted, "{name} is shown whole alone");
    }
    let page = lab.engine.job_task_details(acme(), job, 3, 1).await.expect("the backend works");
    assert_eq!(page.len(), 1);
    assert_eq!(page[0].task.spec.task_id.as_str(), "d");
}

async fn submit_named<W: TestWorld>(lab: &Lab<W>, name: &str) -> tidemill_model::JobId {
    let request = JobRequest { name: Some(name.to_owned()), ..job_of(graph("a")) };
    lab.engine.submit_job(request).await.expect("the job is accepted").job
}

/// Jobs are found by status, name and time, newest first, in pages.
pub async fn jobs_are_found_by_what_they_are<W: TestWorld>(lab: Lab<W>) {
    let mut jobs = Vec::new();
    let start = lab.now();
    for number in 0..6 {
        jobs.push(submit_named(&lab, if number % 2 == 0 { "even" } else { "odd" }).await);
        lab.pass(MINUTE);
    }
    for task in lab.claim(3).await {
        lab.fail(&task, ErrorCategory::Auth).await;
    }
    let at = |number: u64| Some(start.plus(number * MINUTE));
    let (even, failed) = (Some("even".to_owned()), Some(JobStatus::Failed));
    for (filter, expected) in [
        (JobFilter::default(), vec![5, 4, 3, 2, 1, 0]),
        (JobFilter { name: even.clone(), ..JobFilter::default() }, vec![4, 2, 0]),
        (JobFilter { status: failed, ..JobFilter::default() }, vec![2, 1, 0]),
        (JobFilter { status: failed, name: even.clone(), ..JobFilter::default() }, vec![2, 0]),
        (JobFilter { created_from: at(2), created_before: at(4), ..JobFilter::default() }, vec![3, 2]),
        (JobFilter { created_from: at(5), ..JobFilter::default() }, vec![5]),
        (JobFilter { created_before: at(1), ..JobFilter::default() }, vec![0]),
        (JobFilter { name: Some("eve".to_owned()), ..JobFilter::default() }, vec![]),
    ] {
        for page in [1, 2, 100] {
            let mut found = Vec::new();
            loop {
                let before = found.last().copied();
                let jobs =
                    lab.engine.find_jobs(acme(), &filter, before, page).await.expect("the backend works");
                found.extend(jobs.iter().map(|job| job.head.job));
                if jobs.len() < page {
                    break;
                }
            }
            let expected: Vec<_> = expected.iter().map(|number| jobs[*number]).collect();
            assert_eq!(found, expected, "{filter:?} in pages of {page}");
        }
    }
    let theirs = lab.engine.find_jobs(other(), &JobFilter::default(), None, 10).await;
    assert!(theirs.expect("the backend works").is_empty());
}

/// Many jobs are resumed and cancelled by a filter, up to a limit, and the answer says which.
pub async fn many_jobs_are_steered_at_once<W: TestWorld>(lab: Lab<W>) {
    let mut jobs = Vec::new();
    for number in 0..5 {
        jobs.push(submit_named(&lab, if number == 4 { "odd" } else { "even" }).await);
        lab.pass(5);
    }
    for task in lab.claim(5).await {
        lab.fail(&task, ErrorCategory::Auth).await;
    }
    let even = JobFilter { name: Some("even".to_owned()), ..JobFilter::default() };
    let retried = lab.engine.retry_many(acme(), even.clone(), 3).await.expect("the backend works");
    assert_eq!((retried.jobs, retried.more), (vec![jobs[3], jobs[2], jobs[1]], true));
    let retried = lab.engine.retry_many(acme(), even.clone(), 3).await.expect("the backend works");
    assert_eq!((retried.jobs, retried.more), (vec![jobs[0]], false));
    assert_eq!(lab.status(jobs[4]).await, JobStatus::Failed, "its name is another");
    let none = lab.engine.retry_many(other(), JobFilter::default(), 3).await.expect("the backend works");
    assert!(none.jobs.is_empty());
    let tasks = lab.claim(1).await;
    lab.complete(&tasks[0], "{}").await;
    let cancelled =
        lab.engine.cancel_many(acme(), even, "ann", Some("wrong"), 100).await.expect("the backend works");
    assert_eq!((cancelled.jobs.len(), cancelled.more), (3, false), "the fourth is completed");
    assert_eq!(lab.count(KnownType::JobCancelled).await, 3);
    for job in &cancelled.jobs {
        assert_eq!(lab.status(*job).await, JobStatus::Cancelled);
        assert_eq!(types(&lab.job_history(*job).await).last(), Some(&"Job Cancelled"));
    }
    let (nothing, long) =
        (JobFilter { name: Some("none".to_owned()), ..JobFilter::default() }, "x".repeat(2_001));
    let answer = lab.engine.cancel_many(acme(), nothing, "ann", Some(&long), 1).await;
    assert!(
        matches!(answer, Err(EngineError::Invalid { .. })),
        "bad input is refused though nothing matches"
    );
    for limit in [0, 1_001] {
        let answer = lab.engine.retry_many(acme(), JobFilter::default(), limit).await;
        assert!(matches!(answer, Err(EngineError::Invalid { .. })), "{limit}");
    }
}
