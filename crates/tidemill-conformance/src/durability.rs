//! What was acknowledged is there after the process died and came back.
//!
//! A backend that cannot be opened again passes these by doing nothing.

use tidemill_model::events::access_path::AccessPath;
use tidemill_model::events::overflow::DETAIL_BYTES_MAX;
use tidemill_model::{ErrorCategory, Event, JobStatus, KnownType};

use super::lab::{GENERATION, claim_request, completed, is_lease_lost};
use super::leases::beat;
use super::queue::message_for;
use super::shape::{
    HOUR, SECOND, acme, alone, app, event, graph, job_of, long_text, names, request, task_id,
};
use super::{Lab, TestWorld};
use tidemill_engine::backend::{Backend, JobSnapshot, QueueDepth, TaskSnapshot};
use tidemill_engine::engine::{
    Claimant, EngineError, EventBatch, IdempotencyKey, JobRequest, NewMessage, WorkReport,
};
use tidemill_engine::record::DeadLetter;
use tidemill_engine::reply::{Ending, Refusal};

/// Everything that can be seen of the tenant `acme`.
#[derive(Debug, PartialEq)]
struct Sight {
    events: Vec<Event>,
    jobs: Vec<JobSnapshot>,
    tasks: Vec<TaskSnapshot>,
    letters: Vec<DeadLetter>,
    queue: QueueDepth,
}

async fn look<W: TestWorld>(lab: &Lab<W>) -> Sight {
    let jobs = lab.engine.jobs(acme(), None, None, 1_000).await.expect("the backend works");
    let mut tasks = Vec::new();
    for job in &jobs {
        tasks.extend(lab.engine.job_tasks(acme(), job.head.job, 0, 1_000).await.expect("the backend works"));
    }
    let letters =
        lab.engine.dead_letters(acme(), None, None, 1_000).await.expect("the backend works").letters;
    let queue = lab.engine.queue_depth().await.expect("the backend works");
    Sight { events: lab.events(AccessPath::Tenant).await, jobs, tasks, letters, queue }
}

/// Work in every state: completed, failed, retrying, held, waiting, cancelled, resumed, grown, dead-lettered.
async fn busy<W: TestWorld>(lab: &Lab<W>) {
    let first = lab.submit("a b c<a+b d<c").await;
    lab.run(&["a", "b"]).await;
    lab.engine.add_tasks(acme(), first, graph("e<a f<e")).await.expect("the tasks are accepted");
    lab.run(&["c", "e"]).await;
    let held = lab.claim(1).await;
    lab.pass(SECOND);
    lab.engine.heartbeat(beat(&held[0])).await.expect("the lease is held");
    let cancelled = lab.submit("x y<x").await;
    lab.engine.cancel(acme(), cancelled, "ann".to_owned(), None).await.expect("the job is running");
    let failed = lab.submit("p q<p").await;
    for task in lab.claim(9).await {
        lab.fail(&task, if task.job == Some(failed) { ErrorCategory::Auth } else { ErrorCategory::Network })
            .await;
    }
    lab.engine.resume_job(acme(), failed, None).await.expect("p failed");
    let resumed = lab.claim(9).await;
    for task in &resumed {
        lab.fail(task, ErrorCategory::Auth).await;
    }
    lab.engine.submit_task(alone("t-1")).await.expect("the task is accepted");
    for _ in 0..3 {
        let Some(task) = lab.claim(9).await.into_iter().find(|task| task.job.is_none()) else { continue };
        if let Ending::Retrying { at } = lab.fail(&task, ErrorCategory::Network).await {
            lab.pass(at.since(lab.now()));
        }
    }
    let large = long_text(DETAIL_BYTES_MAX);
    lab.engine.submit_task(alone("t-2")).await.expect("the task is accepted");
    if let Some(task) = lab.claim(9).await.into_iter().find(|task| task.task.request == request("t-2")) {
        lab.report(&task, WorkReport::completed(large, 1)).await.expect("the outcome is taken");
    }
    let events = (0..20).map(|n| event("s-1", "stock.counted", &format!(r#"{{"n":{n}}}"#))).collect();
    let publish = EventBatch { tenant: acme(), app: app("orders"), origin: "test".to_owned(), events };
    lab.engine.publish(publish).await.expect("the events are accepted");
    let later = NewMessage { delay_millis: HOUR, ..message_for(acme(), &request("t-3")) };
    lab.engine.send(later).await.expect("the message is accepted");
}

/// Every event, job, task, letter and message, as it was.
pub async fn everything_acknowledged_is_there_after_reopen<W: TestWorld>(lab: Lab<W>) {
    busy(&lab).await;
    let before = look(&lab).await;
    assert!(before.events.len() > 50 && before.jobs.len() == 3);
    let Some(lab) = lab.reopen().await else { return };
    let after = look(&lab).await;
    assert_eq!(after, before);
    for job in after.jobs {
        lab.check_job(job.head.job).await;
    }
    let Some(lab) = lab.reopen().await else { return };
    assert_eq!(look(&lab).await, before, "and once more");
}

/// A job whose process dies after every step still runs each task once and completes.
pub async fn a_job_survives_a_restart_after_every_step<W: TestWorld>(mut lab: Lab<W>) {
    let job = lab.submit("a b<a c<a d<b+c").await;
    let mut ran = Vec::new();
    while lab.status(job).await == JobStatus::Running {
        let tasks = lab.claim(9).await;
        assert!(!tasks.is_empty(), "something can run after {ran:?}");
        for task in tasks {
            let Some(again) = lab.reopen().await else { return };
            lab = again;
            lab.complete(&task, "{}").await;
            ran.push(task.spec.task_id.to_string());
        }
        let Some(again) = lab.reopen().await else { return };
        lab = again;
    }
    ran.sort_unstable();
    assert_eq!(ran, ["a", "b", "c", "d"]);
    assert_eq!(lab.count(KnownType::JobCompleted).await, 1);
    lab.check_job(job).await;
}

/// Keys and ids that were used stay used.
pub async fn dedupe_survives<W: TestWorld>(lab: Lab<W>) {
    let key = |body| IdempotencyKey {
        route: "POST /v1/jobs".to_owned(),
        key: "k-1".to_owned(),
        body_hash: [body; 32],
    };
    let keyed = |body| JobRequest { idempotency: Some(key(body)), ..job_of(graph("a")) };
    let named = |tasks| JobRequest { request: Some(request("req-1")), ..job_of(graph(tasks)) };
    let first = lab.engine.submit_job(keyed(1)).await.expect("the job is accepted").job;
    let second = lab.engine.submit_job(named("b")).await.expect("the job is accepted").job;
    lab.engine.submit_task(alone("t-1")).await.expect("the task is accepted");
    lab.run(&["a", "b", "task"]).await;
    let Some(lab) = lab.reopen().await else { return };
    assert_eq!(lab.engine.submit_job(keyed(1)).await.expect("the job is known").job, first);
    assert!(matches!(
        lab.engine.submit_job(keyed(2)).await,
        Err(EngineError::Refused(Refusal::IdempotencyConflict { .. }))
    ));
    assert_eq!(lab.engine.submit_job(named("b")).await.expect("the job is known").job, second);
    assert!(lab.engine.submit_job(named("c")).await.is_err());
    assert!(lab.engine.submit_task(alone("t-1")).await.expect("the task is known").repeated);
    assert!(lab.claim(9).await.is_empty(), "nothing runs again");
    lab.pass(24 * HOUR);
    let Some(lab) = lab.reopen().await else { return };
    assert!(!lab.engine.submit_job(keyed(2)).await.expect("the key is free again").repeated);
}

/// A fence outlives the process that gave it: the holder goes on, and a replaced one stays out.
pub async fn fences_survive<W: TestWorld>(lab: Lab<W>) {
    let job = lab.submit("a b").await;
    let tasks = lab.claim(2).await;
    let (held, lost) = (&tasks[0], &tasks[1]);
    lab.pass(30 * SECOND);
    lab.engine.heartbeat(beat(held)).await.expect("the lease is held");
    lab.pass(20 * SECOND);
    let taken = lab.claim(1).await.remove(0);
    assert_eq!(taken.task, lost.task);
    let Some(lab) = lab.reopen().await else { return };
    assert!(lab.claim(9).await.is_empty(), "both are held");
    lab.engine.heartbeat(beat(held)).await.expect("the lease is held");
    assert!(is_lease_lost(&lab.report(lost, completed("{}")).await));
    lab.complete(held, "{}").await;
    lab.fail(&taken, ErrorCategory::Auth).await;
    lab.engine.resume_job(acme(), job, None).await.expect("b failed");
    let Some(lab) = lab.reopen().await else { return };
    assert!(lab.report(held, completed("{}")).await.expect("the outcome is known").repeated);
    let again = lab.claim_one().await;
    assert!(again.fence > taken.fence, "never resets");
    assert!(is_lease_lost(&lab.report(&taken, completed("{}")).await));
    lab.complete(&again, "{}").await;
    lab.check_job(job).await;
}

/// Delays, hidden messages and receive counts go on where they were.
pub async fn delayed_messages_survive<W: TestWorld>(lab: Lab<W>) {
    let later = NewMessage { delay_millis: 10 * SECOND, ..message_for(acme(), &request("t-1")) };
    lab.engine.send(later).await.expect("the message is accepted");
    lab.engine.submit_task(alone("t-2")).await.expect("the task is accepted");
    let received = lab.engine.receive(None, 9, Some(20 * SECOND)).await.expect("the backend works").messages;
    assert_eq!(received.len(), 1);
    let Some(lab) = lab.reopen().await else { return };
    lab.pass(10 * SECOND - 1);
    assert!(lab.claim(9).await.is_empty());
    lab.pass(1);
    assert_eq!(lab.claim_one().await.task.request, request("t-1"));
    let Some(lab) = lab.reopen().await else { return };
    lab.pass(10 * SECOND);
    let again = lab.engine.receive(None, 9, None).await.expect("the backend works").messages;
    assert_eq!((again.len(), again[0].deliveries), (1, 2), "counted on");
    assert!(lab.engine.delete(None, again[0].receipt).await.expect("the backend works"));
    let Some(lab) = lab.reopen().await else { return };
    assert_eq!(
        lab.engine.queue_depth().await.expect("the backend works").messages,
        1,
        "the deleted one stays away"
    );
}

/// The next life takes back what the last one held, without waiting for the leases.
pub async fn the_next_life_recovers_the_leases<W: TestWorld>(lab: Lab<W>) {
    let job = lab.submit("a b c<a+b").await;
    let tasks = lab.claim(2).await;
    let Some(lab) = lab.reopen().await else { return };
    assert_eq!(lab.engine.recover(GENERATION + 1).await.expect("the backend works"), 2);
    let claim = Claimant { generation: Some(GENERATION + 1), ..claim_request("worker-2", 9) };
    let again = lab.engine.claim(claim).await.expect("the claim is accepted").tasks;
    assert_eq!(again.len(), 2);
    assert!(is_lease_lost(&lab.report(&tasks[0], completed("{}")).await));
    for task in &again {
        lab.complete(task, "{}").await;
    }
    assert_eq!(names(&lab.claim(9).await), ["c"]);
    lab.check_job(job).await;
}

/// Large values, records and finished work are found again, and children get their parents' outputs.
pub async fn blobs_and_records_survive<W: TestWorld>(lab: Lab<W>) {
    lab.submit("a b<a").await;
    let large = long_text(DETAIL_BYTES_MAX);
    let task = lab.claim_one().await;
    lab.report(&task, WorkReport::completed(large.clone(), 1)).await.expect("the outcome is taken");
    lab.execute(super::records::put("d-1", &[1, 2], None)).await.expect("any version");
    let Some(lab) = lab.reopen().await else { return };
    let child = lab.claim_one().await;
    let work = lab.engine.work_of(&child).await.expect("the output is there");
    assert_eq!(work.dependency_outputs, [(task_id("a"), large)]);
    let record =
        lab.world.backend().record(super::records::record_key("d-1")).await.expect("the backend works");
    assert_eq!(record.map(|record| record.version), Some(1));
    assert!(lab.execute(super::records::put("d-1", &[3], Some(0))).await.is_err(), "it exists");
}
