//! A tenant can neither see nor touch what is another's, whatever it knows of its ids.

use tidemill_model::events::access_path::AccessPath;
use tidemill_model::{Entity, ErrorCategory, JobStatus, PublicState};

use super::lab::{claim_request, completed, finish_request, is_not_found};
use super::leases::beat;
use super::shape::{acme, alone, graph, job_of, names, other, request, task_id, tenants, worker};
use super::{Lab, TestWorld};
use tidemill_engine::backend::Backend;
use tidemill_engine::commit::TaskKey;
use tidemill_engine::engine::{Claimant, JobRequest, PageRequest, TaskRequest};
use tidemill_engine::reads::Reads as _;
use tidemill_engine::record::{RecordKey, RecordKind};
use tidemill_engine::reply::Assignment;

fn foreign(task: &TaskKey) -> TaskKey {
    TaskKey { tenant: other(), ..task.clone() }
}

/// Every read of a foreign id is a read of something that is not there.
pub async fn no_read_crosses_tenants<W: TestWorld>(lab: Lab<W>) {
    let job = lab.submit("a b<a").await;
    lab.engine.submit_task(alone("t-1")).await.expect("the task is accepted");
    for task in lab.claim(9).await {
        lab.fail(&task, ErrorCategory::Network).await;
    }
    let a = TaskKey { tenant: other(), request: job.request_id(&task_id("a")) };
    assert!(lab.engine.job(other(), job).await.expect("the backend works").is_none());
    assert!(lab.engine.job_tasks(other(), job, 0, 10).await.expect("the backend works").is_empty());
    assert!(lab.engine.jobs(other(), None, None, 10).await.expect("the backend works").is_empty());
    for task in [a.clone(), TaskKey { tenant: other(), request: request("t-1") }] {
        assert!(lab.engine.task(task.clone()).await.expect("the backend works").is_none());
        let page =
            lab.engine.history(&task, PageRequest::default(), true).await.expect("the query is answered");
        assert!(page.events.is_empty());
        let latest = lab.engine.latest(other(), Entity::task(&task.request)).await;
        assert!(latest.expect("the backend works").is_none());
        assert!(is_not_found(&lab.engine.message_body(&task).await));
    }
    assert!(lab.engine.latest(other(), Entity::job(job)).await.expect("the backend works").is_none());
    assert!(lab.events_of(other(), AccessPath::Tenant).await.is_empty());
    let states = lab.engine.task_states(other(), None).await.expect("the backend works");
    assert_eq!(states, tidemill_model::events::fold::StateSets::default());
}

/// Every command on a foreign id is refused as unknown and changes nothing.
pub async fn no_command_crosses_tenants<W: TestWorld>(lab: Lab<W>) {
    let job = lab.submit("a b<a").await;
    let task = lab.claim_one().await;
    let before =
        (lab.events(AccessPath::Tenant).await, lab.job(job).await, lab.head(&task.task.request).await);
    let theirs = Assignment { task: foreign(&task.task), ..task.clone() };
    let (engine, key, me) = (&lab.engine, theirs.task.clone(), worker("worker-1"));
    assert!(is_not_found(&engine.finish(finish_request(&theirs, completed("{}"))).await));
    assert!(is_not_found(&engine.heartbeat(beat(&theirs)).await));
    assert!(is_not_found(&engine.begin(key.clone(), task.fence, me.clone(), 1.into()).await));
    assert!(is_not_found(&engine.release(key.clone(), task.fence, me, None).await));
    assert!(is_not_found(&engine.add_tasks(other(), job, graph("c")).await));
    assert!(is_not_found(&engine.cancel(other(), job, "eve".to_owned(), None).await));
    assert!(is_not_found(&engine.resume_job(other(), job, None).await));
    assert!(is_not_found(&engine.resume_task(other(), key.request.clone()).await));
    assert!(is_not_found(&engine.advance(other(), job).await));
    assert!(is_not_found(&engine.send(super::queue::message_for(other(), &key.request)).await));
    let after =
        (lab.events(AccessPath::Tenant).await, lab.job(job).await, lab.head(&task.task.request).await);
    assert_eq!(after, before);
    assert!(lab.events_of(other(), AccessPath::Tenant).await.is_empty());
    lab.complete(&task, "{}").await;
}

/// A receipt and a dead letter of another tenant are as good as none.
pub async fn no_message_crosses_tenants<W: TestWorld>(lab: Lab<W>) {
    lab.engine.submit_task(alone("t-1")).await.expect("the task is accepted");
    let received = lab.engine.receive(Some(tenants(&[other()])), 9, None).await.expect("the backend works");
    assert!(received.messages.is_empty());
    let received = lab.engine.receive(None, 9, None).await.expect("the backend works").messages;
    let receipt = received[0].receipt;
    assert!(!lab.engine.delete(Some(other()), receipt).await.expect("the backend works"));
    assert!(!lab.engine.change_visibility(Some(other()), receipt, 0).await.expect("the backend works"));
    assert!(lab.engine.change_visibility(Some(acme()), receipt, 0).await.expect("the backend works"));
    for _ in 0..3 {
        lab.engine.receive(None, 9, Some(0)).await.expect("the backend works");
    }
    let letters = lab.engine.dead_letters(acme(), None, None, 9).await.expect("the backend works").letters;
    let theirs = lab.engine.dead_letters(other(), None, None, 9).await.expect("the backend works").letters;
    assert_eq!((letters.len(), theirs.len()), (1, 0));
    assert!(is_not_found(&lab.engine.replay(other(), letters[0].message).await));
    assert!(is_not_found(&lab.engine.discard(other(), letters[0].message).await));
    lab.engine.replay(acme(), letters[0].message).await.expect("it is open");
}

/// Blobs and records of the same name are two.
pub async fn blobs_and_records_are_kept_apart<W: TestWorld>(lab: Lab<W>) {
    let backend = lab.world.backend();
    backend.put_blob(acme(), "x".to_owned(), vec![1]).await.expect("the backend works");
    assert_eq!(backend.blob(other(), "x".to_owned()).await.expect("the backend works"), None);
    backend.put_blob(other(), "x".to_owned(), vec![2]).await.expect("the backend works");
    assert_eq!(backend.blob(acme(), "x".to_owned()).await.expect("the backend works"), Some(vec![1]));
    lab.execute(super::records::put("d-1", &[1], None)).await.expect("any version");
    let theirs = RecordKey { tenant: Some(other()), ..super::records::record_key("d-1") };
    assert_eq!(backend.record(theirs).await.expect("the backend works"), None);
    for tenant in [Some(other()), None] {
        let found =
            backend.records(RecordKind::Definition, tenant, None, 9).await.expect("the backend works");
        assert!(found.is_empty());
    }
}

/// A worker serves the tenants its key names, and books under the right one.
pub async fn a_claim_serves_the_named_tenants_only<W: TestWorld>(lab: Lab<W>) {
    for tenant in [acme(), other()] {
        let job = JobRequest { tenant: tenant.clone(), ..job_of(graph("a b")) };
        lab.engine.submit_job(job).await.expect("the job is accepted");
        lab.engine
            .submit_task(TaskRequest { tenant, ..alone("t-1") })
            .await
            .expect("the same id in each tenant");
    }
    let tasks = lab.claim_for(&other(), 9).await;
    assert_eq!(tasks.len(), 3);
    assert!(tasks.iter().all(|task| task.task.tenant == other()));
    for task in &tasks {
        lab.complete(task, "{}").await;
    }
    let nobody = Claimant { tenants: Some(tenants(&[])), ..claim_request("worker-1", 9) };
    assert!(lab.engine.claim(nobody).await.expect("the claim is accepted").tasks.is_empty());
    assert!(lab.claim_for(&other(), 9).await.is_empty());
    let jobs = lab.engine.jobs(other(), None, None, 9).await.expect("the backend works");
    assert_eq!(jobs[0].status, JobStatus::Completed);
    assert_eq!(
        lab.task(&request("t-1")).await.state,
        Some(PublicState::Pending),
        "the other one of that name"
    );
    assert_eq!(names(&lab.claim(9).await), ["a", "b", "task"]);
}

/// A tenant with a long backlog does not hold up the others.
pub async fn tenants_take_turns<W: TestWorld>(lab: Lab<W>) {
    let many = (0..50).map(|n| super::shape::spec(&format!("t{n}"), &[])).collect();
    lab.engine.submit_job(job_of(many)).await.expect("the job is accepted");
    lab.engine
        .submit_job(JobRequest { tenant: other(), ..job_of(graph("a b")) })
        .await
        .expect("the job is accepted");
    let mut tasks = Vec::new();
    for _ in 0..4 {
        tasks.extend(lab.claim(1).await);
    }
    assert_eq!(tasks.iter().filter(|task| task.task.tenant == other()).count(), 2);
}
