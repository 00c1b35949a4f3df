//! Repeating a request changes nothing.

use tidemill_model::KnownType;

use super::shape::{HOUR, acme, alone, graph, job_of, json, other, request};
use super::{Lab, TestWorld, side_by_side};
use tidemill_engine::engine::{EngineError, IdempotencyKey, JobRequest, TaskRequest};
use tidemill_engine::reply::Refusal;

fn key(text: &str, body: u8) -> IdempotencyKey {
    IdempotencyKey { route: "POST /v1/jobs".to_owned(), key: text.to_owned(), body_hash: [body; 32] }
}

fn is_conflict<T>(answer: &Result<T, EngineError>) -> bool {
    matches!(answer, Err(EngineError::Refused(Refusal::IdempotencyConflict { .. })))
}

/// The same key and body give the first job again, even when it is long over.
pub async fn the_same_key_and_body_give_the_same_job<W: TestWorld>(lab: Lab<W>) {
    let submit =
        || lab.engine.submit_job(JobRequest { idempotency: Some(key("k-1", 1)), ..job_of(graph("a b")) });
    let first = submit().await.expect("the job is accepted");
    lab.pass(5);
    let again = submit().await.expect("the job is known");
    assert!(!first.repeated && again.repeated);
    assert_eq!(tidemill_engine::engine::SubmittedJob { repeated: false, ..again }, first);
    lab.run(&["a", "b"]).await;
    lab.pass(HOUR);
    assert_eq!(submit().await.expect("the job is known").job, first.job);
    assert_eq!(lab.count(KnownType::JobCreated).await, 1);
}

/// Sent twice at the same time it is still one job.
pub async fn a_key_used_twice_at_once_makes_one_job<W: TestWorld>(lab: Lab<W>) {
    let submits = (0..8).map(|_| {
        lab.engine.submit_job(JobRequest { idempotency: Some(key("k-1", 1)), ..job_of(graph("a")) })
    });
    let answers = side_by_side(submits).await;
    let jobs: Vec<_> = answers.into_iter().map(|answer| answer.expect("the job is accepted")).collect();
    assert!(jobs.iter().all(|job| job.job == jobs[0].job));
    assert_eq!(jobs.iter().filter(|job| !job.repeated).count(), 1);
    assert_eq!(lab.count(KnownType::JobCreated).await, 1);
}

/// Another body under the same key is refused; another route or tenant is another key.
pub async fn another_body_under_the_same_key_is_refused<W: TestWorld>(lab: Lab<W>) {
    let submit = |idempotency, tenant| {
        lab.engine.submit_job(JobRequest { tenant, idempotency: Some(idempotency), ..job_of(graph("a")) })
    };
    let first = submit(key("k-1", 1), acme()).await.expect("the job is accepted").job;
    assert!(is_conflict(&submit(key("k-1", 2), acme()).await));
    let route = IdempotencyKey { route: "POST /v2/jobs".to_owned(), ..key("k-1", 2) };
    assert_ne!(submit(route, acme()).await.expect("another route").job, first);
    assert_ne!(submit(key("k-1", 2), other()).await.expect("another tenant").job, first);
    assert_eq!(lab.count(KnownType::JobCreated).await, 2);
}

/// A key is kept for 24 hours and means nothing afterwards.
pub async fn a_key_expires_after_a_day<W: TestWorld>(lab: Lab<W>) {
    let submit = |body| {
        lab.engine.submit_job(JobRequest { idempotency: Some(key("k-1", body)), ..job_of(graph("a")) })
    };
    let first = submit(1).await.expect("the job is accepted").job;
    lab.pass(24 * HOUR - 1);
    assert_eq!(submit(1).await.expect("the job is known").job, first);
    assert!(is_conflict(&submit(2).await));
    lab.pass(1);
    let second = submit(2).await.expect("the key is free again");
    assert!(!second.repeated && second.job != first);
    assert!(submit(2).await.expect("the job is known").repeated, "kept anew");
}

/// Without a key, the client's own requestId says that two submissions are one.
pub async fn a_request_id_stands_in_for_a_key<W: TestWorld>(lab: Lab<W>) {
    let submit = |tasks: &str, name: Option<&str>| {
        let name = name.map(str::to_owned);
        lab.engine.submit_job(JobRequest { request: Some(request("req-789")), name, ..job_of(graph(tasks)) })
    };
    let first = submit("a", None).await.expect("the job is accepted");
    assert_eq!(first.request, request("req-789"));
    let again = submit("a", None).await.expect("the job is known");
    assert_eq!((again.job, again.repeated), (first.job, true));
    assert!(is_conflict(&submit("a b", None).await));
    assert!(is_conflict(&submit("a", Some("other")).await));
    assert_eq!(lab.count(KnownType::JobCreated).await, 1);
}

/// A standalone task's id is unique in its tenant: the same again is a repeat, something else is refused.
pub async fn a_task_id_is_used_once<W: TestWorld>(lab: Lab<W>) {
    let first = lab.engine.submit_task(alone("t-1")).await.expect("the task is accepted");
    assert!(!first.repeated);
    assert!(lab.engine.submit_task(alone("t-1")).await.expect("the task is known").repeated);
    let changed = TaskRequest { input: json(r#"{"n":1}"#), ..alone("t-1") };
    let answer = lab.engine.submit_task(changed.clone()).await;
    assert!(matches!(answer, Err(EngineError::Refused(Refusal::RequestTaken(_)))), "{answer:?}");
    lab.run(&["task"]).await;
    lab.pass(1_000 * HOUR);
    assert!(lab.engine.submit_task(alone("t-1")).await.expect("the task is known").repeated, "for ever");
    assert!(lab.engine.submit_task(changed).await.is_err());
    assert!(lab.claim(1).await.is_empty(), "it does not run again");
    assert_eq!(lab.count(KnownType::TaskPending).await, 1);
}

/// A key works for tasks too, and gives the minted id again.
pub async fn a_key_gives_the_same_task<W: TestWorld>(lab: Lab<W>) {
    let submit = |body| {
        let idempotency = Some(key("k-1", body));
        lab.engine.submit_task(TaskRequest { request: None, idempotency, ..alone("unused") })
    };
    let first = submit(1).await.expect("the task is accepted");
    let again = submit(1).await.expect("the task is known");
    assert_eq!((again.request, again.repeated), (first.request, true));
    assert!(is_conflict(&submit(2).await));
    let job = JobRequest { idempotency: Some(key("k-1", 1)), ..job_of(graph("a")) };
    assert!(is_conflict(&lab.engine.submit_job(job).await), "the key belongs to a task");
    assert_eq!(lab.count(KnownType::TaskPending).await, 1);
}

/// A requestId is good for one job, whatever keys come with it and however old they are.
pub async fn a_request_id_outlives_its_keys<W: TestWorld>(lab: Lab<W>) {
    let submit = |idempotency, tasks: &str| {
        let request = Some(request("req-1"));
        lab.engine.submit_job(JobRequest { request, idempotency, ..job_of(graph(tasks)) })
    };
    let first = submit(Some(key("k-1", 1)), "a").await.expect("the job is accepted").job;
    for idempotency in [Some(key("k-2", 1)), None, Some(key("k-1", 1)), Some(key("k-2", 1))] {
        let again = submit(idempotency.clone(), "a").await.expect("the job is known");
        assert_eq!((again.job, again.repeated), (first, true), "{idempotency:?}");
    }
    assert!(is_conflict(&submit(Some(key("k-3", 1)), "a b").await), "the requestId has another body");
    assert!(is_conflict(&submit(Some(key("k-1", 2)), "a").await), "the key has another body");
    assert!(is_conflict(&submit(Some(key("k-2", 2)), "a").await), "a repeat keeps its key too");
    lab.pass(25 * HOUR);
    assert_eq!(submit(Some(key("k-1", 1)), "a").await.expect("the job is known").job, first);
    // A key of one job and the requestId of another.
    let other = JobRequest { idempotency: Some(key("k-9", 1)), ..job_of(graph("a")) };
    lab.engine.submit_job(other).await.expect("the job is accepted");
    assert!(is_conflict(&submit(Some(key("k-9", 1)), "a").await));
    assert_eq!(lab.count(KnownType::JobCreated).await, 2);
}

/// The same for a task: its id names one task of one app, whatever keys come with it.
pub async fn a_task_id_outlives_its_keys<W: TestWorld>(lab: Lab<W>) {
    let submit = |id: &str, idempotency| lab.engine.submit_task(TaskRequest { idempotency, ..alone(id) });
    submit("t-1", Some(key("k-1", 1))).await.expect("the task is accepted");
    for idempotency in [Some(key("k-2", 1)), None, Some(key("k-1", 1))] {
        let again = submit("t-1", idempotency).await.expect("the task is known");
        assert_eq!((again.request, again.repeated), (request("t-1"), true));
    }
    submit("t-2", None).await.expect("the task is accepted");
    assert!(is_conflict(&submit("t-2", Some(key("k-1", 1))).await), "the key names another task");
    let app = tidemill_model::AppName::trusted("another");
    let answer = lab.engine.submit_task(TaskRequest { app, ..alone("t-1") }).await;
    assert!(matches!(answer, Err(EngineError::Refused(Refusal::RequestTaken(_)))), "{answer:?}");
    assert_eq!(lab.count(KnownType::TaskPending).await, 2);
}

/// What a route ends with and what a key begins with do not run together.
pub async fn keys_of_different_routes_do_not_meet<W: TestWorld>(lab: Lab<W>) {
    let submit = |route: &str, text: &str| {
        let idempotency = Some(IdempotencyKey { route: route.to_owned(), ..key(text, 1) });
        lab.engine.submit_job(JobRequest { idempotency, ..job_of(graph("a")) })
    };
    let first = submit("jobs", "a b").await.expect("the job is accepted").job;
    let second = submit("jobs a", "b").await.expect("another route");
    assert!(!second.repeated && second.job != first);
}
