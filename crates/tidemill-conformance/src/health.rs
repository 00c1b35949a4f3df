//! Checks of health: what they see, what they say, and that they change nothing.

use tidemill_model::events::properties::{HealthLevel, TaskHealthCheck};
use tidemill_model::{ErrorCategory, Event, OnFailure, TaskOptions, WorkerId};

use super::leases::beat;
use super::shape::{HOUR, LEASE, MINUTE, SECOND, acme, alone, entity, graph, job_of, other, property, spec};
use super::{Lab, TestWorld};
use tidemill_engine::backend::Backend;
use tidemill_engine::engine::TaskRequest;
use tidemill_engine::health::{FindingKind, HealthReport, TASKS_MAX};
use tidemill_engine::reply::Ending;

async fn check<W: TestWorld>(lab: &Lab<W>) -> HealthReport {
    lab.engine.check_health(&acme()).await.expect("the backend works")
}

/// The newest event of the checks of `acme`, whole.
async fn told<W: TestWorld>(lab: &Lab<W>) -> Event {
    let entity = entity("SYSTEM", "health-check");
    let event = lab.engine.backend().latest(acme(), entity).await.expect("the backend works");
    lab.engine.rehydrate(event.expect("a check leaves an event")).await.expect("the event is whole")
}

/// A task's name, health, times, last event and worker.
type Listed<'r> = (&'r str, HealthLevel, u64, u64, &'r str, Option<&'r str>);

fn listed(report: &HealthReport) -> Vec<Listed<'_>> {
    report
        .tasks
        .iter()
        .map(|task| {
            let name = task.request_id.as_str().rsplit('_').next().unwrap_or_default();
            let worker = task.worker_id.as_ref().map(WorkerId::as_str);
            let since = task.time_since_last_event;
            (name, task.health, task.elapsed, since, task.last_event_type.as_str(), worker)
        })
        .collect()
}

/// Every task that is processing is listed, the worst first, with what its events say; the event says the same, and no
/// task has noticed.
pub async fn a_check_lists_what_is_processing<W: TestWorld>(lab: Lab<W>) {
    let job = lab.engine.submit_job(job_of(graph("a b c<a d"))).await.expect("the job is accepted").job;
    // Two events of a task never have the same time.
    lab.pass(1);
    let tasks = lab.claim(2).await;
    let ids: Vec<_> = tasks.iter().map(|task| &task.task.request).collect();
    lab.pass(30 * SECOND);
    lab.engine.heartbeat(beat(&tasks[1])).await.expect("the lease is held");
    lab.pass(LEASE - 30 * SECOND + 1);
    let before = (lab.head(ids[0]).await, lab.head(ids[1]).await, lab.job(job).await);
    let report = check(&lab).await;
    let names: Vec<_> = tasks.iter().map(|task| task.spec.task_id.as_str()).collect();
    assert_eq!(
        listed(&report),
        [
            (
                names[0],
                HealthLevel::Warning,
                LEASE + 1,
                LEASE + 1,
                "Task Processing Started",
                Some("worker-1")
            ),
            (names[1], HealthLevel::Healthy, LEASE + 1, 15_001, "Task Heartbeat", Some("worker-1")),
        ]
    );
    let summary = report.summary;
    assert_eq!((summary.total_processing, summary.healthy, summary.warning), (2, 1, 1));
    assert_eq!((summary.critical, summary.overtime, report.checked_at), (0, 0, lab.now()));
    assert!(report.is_healthy() && report.findings.is_empty());
    let event = told(&lab).await;
    assert_eq!((event.id, event.event_type.as_str()), (report.event_id, "Task Health Check"));
    assert_eq!(&*event.context.origin, "health-check");
    let said: TaskHealthCheck = event.properties.read().expect("it can be read");
    assert_eq!((said.summary, said.tasks), (report.summary, report.tasks));
    let mut fields: Vec<String> = event
        .properties
        .read::<serde_json::Map<_, _>>()
        .expect("an object")
        .into_iter()
        .map(|it| it.0)
        .collect();
    fields.sort();
    assert_eq!(fields, ["summary", "tasks"]);
    assert_eq!((lab.head(ids[0]).await, lab.head(ids[1]).await, lab.job(job).await), before);
    // Silent for four leases, or at work for more than an hour.
    lab.pass(3 * LEASE);
    lab.engine.heartbeat(beat(&tasks[1])).await.expect("the lease is held");
    let report = check(&lab).await;
    assert_eq!((report.tasks[0].health, report.is_healthy()), (HealthLevel::Critical, false));
    lab.pass(HOUR);
    lab.engine.heartbeat(beat(&tasks[1])).await.expect("the lease is held");
    let report = check(&lab).await;
    assert_eq!(
        (report.tasks[0].health, report.tasks[1].health),
        (HealthLevel::Critical, HealthLevel::Overtime)
    );
    for task in &tasks {
        lab.complete(task, "{}").await;
    }
    assert_eq!(check(&lab).await.summary.total_processing, 0);
}

/// A task in the pause before its next attempt is well, however long the pause; it is missed once nobody takes it.
pub async fn a_task_that_waits_for_its_retry_is_not_stuck<W: TestWorld>(lab: Lab<W>) {
    lab.submit("a").await;
    let task = lab.claim_one().await;
    let Ending::Retrying { at } = lab.fail(&task, ErrorCategory::RateLimit).await else { panic!("a retry") };
    lab.pass(at.since(lab.now()) - 1);
    let waiting = ("a", HealthLevel::Healthy, 0, 0, "Task Processing Failed", None);
    assert_eq!(listed(&check(&lab).await), [waiting]);
    lab.pass(1 + LEASE);
    assert_eq!(check(&lab).await.tasks[0].health, HealthLevel::Healthy);
    lab.pass(1);
    assert_eq!(check(&lab).await.tasks[0].health, HealthLevel::Warning);
    lab.pass(3 * LEASE);
    assert_eq!(check(&lab).await.tasks[0].health, HealthLevel::Critical);
    let again = lab.claim_one().await;
    assert_eq!(check(&lab).await.tasks[0].health, HealthLevel::Healthy, "somebody took it");
    lab.complete(&again, "{}").await;
}

/// Each tenant has its own checks, events and results, and there is an event although nothing runs.
pub async fn a_check_is_about_one_tenant<W: TestWorld>(lab: Lab<W>) {
    assert_eq!(lab.engine.last_health(&acme()).await.expect("the backend works"), None);
    lab.submit("a").await;
    lab.claim_one().await;
    let report = lab.engine.check_health(&other()).await.expect("the backend works");
    assert_eq!((report.summary.total_processing, report.tasks.len()), (0, 0));
    assert_eq!(lab.engine.last_health(&acme()).await.expect("the backend works"), None);
    let checked = lab.engine.check_health_of_all(&other()).await.expect("the backend works");
    assert_eq!(checked, 2);
    let own = lab.engine.last_health(&acme()).await.expect("the backend works").expect("it was checked");
    assert_eq!(own.summary.total_processing, 1);
    assert_eq!(property(&told(&lab).await, "summary")["totalProcessing"], 1);
    let counted = lab.engine.last_checks();
    assert_eq!(counted.into_keys().collect::<Vec<_>>(), [acme(), other()]);
    // The one with work that nobody asked about is checked by itself.
    lab.pass(MINUTE);
    assert_eq!(lab.engine.check_health_of_all(&acme()).await.expect("the backend works"), 1);
}

/// Tasks that nobody starts and executions that nobody resumes are found after a while; parked tasks are not stuck.
pub async fn what_stands_for_too_long_is_found<W: TestWorld>(lab: Lab<W>) {
    let options = TaskOptions { on_failure: OnFailure::Park, ..TaskOptions::default() };
    lab.engine.submit_task(TaskRequest { options, ..alone("parks") }).await.expect("the task is accepted");
    let task = lab.claim_one().await;
    assert_eq!(lab.fail(&task, ErrorCategory::Auth).await, Ending::Parked);
    lab.engine.submit_task(alone("waits")).await.expect("the task is accepted");
    lab.pass(15 * MINUTE);
    let report = check(&lab).await;
    assert!(report.is_healthy() && report.tasks.is_empty(), "{report:?}");
    lab.pass(1);
    let report = check(&lab).await;
    let [found] = &report.findings[..] else { panic!("one finding: {report:?}") };
    assert_eq!(
        (found.kind, found.count, &found.examples[..]),
        (FindingKind::Pending, 1, &["waits".to_owned()][..])
    );
    assert!(!report.is_healthy() && report.summary.total_processing == 0);
    let waits = lab.claim_one().await;
    lab.complete(&waits, "{}").await;
    assert!(check(&lab).await.is_healthy());
    lab.pass(24 * HOUR);
    let report = check(&lab).await;
    // Nothing delivers here, so alerts for people wait as well.
    let found = report.findings.iter().filter(|found| found.kind != FindingKind::Outbound);
    let [found] = &found.collect::<Vec<_>>()[..] else { panic!("one finding: {report:?}") };
    assert_eq!(
        (found.kind, found.count, &found.examples[..]),
        (FindingKind::Parked, 1, &["parks".to_owned()][..])
    );
}

/// The result of the last check outlives the process.
pub async fn the_last_check_is_kept<W: TestWorld>(lab: Lab<W>) {
    lab.submit("a").await;
    lab.claim_one().await;
    lab.pass(5 * MINUTE);
    let report = check(&lab).await;
    assert_eq!(report.summary.critical, 1);
    let lab = lab.reopen_if_it_can().await;
    let last = lab.engine.last_health(&acme()).await.expect("the backend works");
    assert_eq!(last, Some(report));
    assert_eq!(check(&lab).await.summary.critical, 1);
}

/// Of very many tasks the worst are listed, and all are counted; an event that is too large for its place is whole.
pub async fn the_worst_of_many_tasks_are_listed<W: TestWorld>(lab: Lab<W>) {
    let (long, worker) = ("x".repeat(195), "w".repeat(80));
    let tasks = (0..TASKS_MAX + 100).map(|n| spec(&format!("{long}-{n}"), &[])).collect();
    lab.engine.submit_job(job_of(tasks)).await.expect("the job is accepted");
    let stuck = lab.claim(100).await;
    lab.pass(5 * MINUTE);
    let mut fine = 0;
    while fine < TASKS_MAX {
        let claimed = lab.claim_as(&worker, 250).await;
        assert!(!claimed.is_empty(), "there are more");
        // Those that were claimed before may be taken over now.
        fine += claimed.iter().filter(|task| !stuck.iter().any(|old| old.task == task.task)).count();
    }
    lab.pass(5 * MINUTE);
    let report = check(&lab).await;
    assert_eq!(report.tasks.len(), TASKS_MAX);
    assert_eq!(report.summary.total_processing as usize, TASKS_MAX + 100);
    assert_eq!(report.summary.critical as usize, TASKS_MAX + 100);
    let event = told(&lab).await;
    let said: TaskHealthCheck = event.properties.read().expect("it can be read");
    assert_eq!((said.summary, said.tasks), (report.summary, report.tasks));
    let entity = entity("SYSTEM", "health-check");
    let stored = lab.engine.backend().latest(acme(), entity).await.expect("the backend works");
    let stored = stored.expect("a check leaves an event");
    assert!(stored.properties.len() < 10_000, "what is large lies elsewhere");
}
