//! All tasks by state: four sets that do not overlap and leave nothing out.

use std::collections::BTreeSet;

use tidemill_model::events::fold::StateSets;
use tidemill_model::{ErrorCategory, JobId, RequestId, TenantId};

use super::shape::{acme, alone, app, graph, job_of, other, request, task_id};
use super::{Lab, TestWorld};
use tidemill_engine::engine::{JobRequest, Signal, WorkReport};

async fn sets<W: TestWorld>(lab: &Lab<W>) -> StateSets {
    lab.engine.task_states(acme(), None).await.expect("the backend works")
}

fn ids(set: &BTreeSet<(TenantId, RequestId)>) -> Vec<String> {
    set.iter().map(|(_, task)| task.to_string()).collect()
}

fn of(job: JobId, task: &str) -> String {
    job.request_id(&task_id(task)).to_string()
}

/// Timeouts and final failures are failed, retries are processing, and nothing is in two sets.
pub async fn the_four_sets_are_disjoint_and_complete<W: TestWorld>(lab: Lab<W>) {
    for id in ["t-1", "t-2", "t-3", "t-4", "t-5", "t-6"] {
        lab.engine.submit_task(alone(id)).await.expect("the task is accepted");
    }
    let tasks = lab.claim(5).await;
    let waiting = (1..=6)
        .map(|n| format!("t-{n}"))
        .find(|id| tasks.iter().all(|task| task.task.request.as_str() != id));
    let timeout = WorkReport::timed_out(1, 1, Signal::Term);
    lab.complete(&tasks[0], "{}").await;
    lab.fail(&tasks[1], ErrorCategory::Auth).await;
    lab.report(&tasks[2], timeout).await.expect("the outcome is taken");
    lab.fail(&tasks[3], ErrorCategory::Network).await;
    let [completed, auth, timed_out, retried, held] =
        [0, 1, 2, 3, 4].map(|at| tasks[at].task.request.to_string());
    let found = sets(&lab).await;
    assert_eq!(ids(&found.completed), [completed]);
    assert_eq!(ids(&found.failed), [auth, timed_out]);
    assert_eq!(ids(&found.processing), [retried, held]);
    assert_eq!(ids(&found.pending), [waiting.expect("one is left")]);
}

/// A resumed task leaves the failed ones and is pending, then processing, then completed.
pub async fn a_resumed_task_changes_its_set<W: TestWorld>(lab: Lab<W>) {
    lab.engine.submit_task(alone("t-1")).await.expect("the task is accepted");
    let task = lab.claim_one().await;
    lab.fail(&task, ErrorCategory::Auth).await;
    assert_eq!(ids(&sets(&lab).await.failed), ["t-1"]);
    lab.engine.resume_task(acme(), request("t-1")).await.expect("it failed");
    let found = sets(&lab).await;
    assert_eq!((ids(&found.pending), found.failed.len()), (vec!["t-1".to_owned()], 0));
    let task = lab.claim_one().await;
    assert_eq!(ids(&sets(&lab).await.processing), ["t-1"]);
    lab.complete(&task, "{}").await;
    let found = sets(&lab).await;
    assert_eq!(
        (ids(&found.completed), found.pending.len(), found.failed.len()),
        (vec!["t-1".to_owned()], 0, 0)
    );
}

/// Tasks of jobs count as well, undispatched ones not; tenants and applications are kept apart.
pub async fn sets_are_by_tenant_and_application<W: TestWorld>(lab: Lab<W>) {
    let job = lab.submit("a b<a").await;
    let billing = JobRequest { app: app("billing"), ..job_of(graph("x")) };
    let billing = lab.engine.submit_job(billing).await.expect("the job is accepted").job;
    let foreign = JobRequest { tenant: other(), ..job_of(graph("y")) };
    lab.engine.submit_job(foreign).await.expect("the job is accepted");
    let mut expected = vec![of(job, "a"), of(billing, "x")];
    expected.sort_unstable();
    assert_eq!(ids(&sets(&lab).await.pending), expected);
    let found = lab.engine.task_states(acme(), Some(app("billing"))).await.expect("the backend works");
    assert_eq!(ids(&found.pending), [of(billing, "x")]);
    let theirs = lab.engine.task_states(other(), None).await.expect("the backend works");
    assert_eq!(theirs.pending.len(), 1);
    assert_eq!(lab.claim(9).await.len(), 3);
    assert_eq!(ids(&sets(&lab).await.processing), expected);
}
