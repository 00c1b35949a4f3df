//! Jobs that grow while they run.

use tidemill_model::work::dag_violation::DagViolation;
use tidemill_model::{ErrorCategory, JobId, JobStatus, KnownType};

use super::lab::is_not_found;
use super::shape::{acme, graph, property, spec, task_id, types};
use super::{Lab, TestWorld, side_by_side};
use tidemill_engine::engine::{AddedTasks, EngineError};
use tidemill_engine::reply::Refusal;

fn is_graph_refusal<T>(answer: &Result<T, EngineError>, code: &str) -> bool {
    matches!(answer, Err(EngineError::Refused(Refusal::Graph(found))) if found.listed.iter().any(|one| one.code() == code))
}

/// What waits for nothing unfinished starts in the same commit; the rest when its parents are done.
pub async fn added_tasks_with_satisfied_dependencies_start_at_once<W: TestWorld>(lab: Lab<W>) {
    let job = lab.submit("a b").await;
    let tasks = lab.claim(2).await;
    lab.complete(&tasks[0], "{}").await;
    let added = lab
        .engine
        .add_tasks(acme(), job, graph("f<a g h<b i<g j<a+g"))
        .await
        .expect("the tasks are accepted");
    let dispatched = vec![task_id("f"), task_id("g")];
    assert_eq!(added, AddedTasks { previous_total: 2, total: 7, dispatched });
    assert_eq!(types(&lab.job_history(job).await), ["Job Created", "Job Tasks Added"]);
    let event = lab.job_history(job).await.pop().expect("there is a history");
    assert_eq!(property(&event, "previousTotalTasks"), 2);
    assert_eq!(property(&event, "totalTasksNow"), 7);
    assert_eq!(property(&event, "newTasks")[2]["dependsOn"][0], "b");
    lab.run(&["f", "g"]).await;
    lab.run(&["i", "j"]).await;
    lab.complete(&tasks[1], "{}").await;
    lab.run(&["h"]).await;
    assert_eq!(lab.status(job).await, JobStatus::Completed);
    let listed = lab.engine.job_tasks(acme(), job, 0, 100).await.expect("the backend works");
    assert_eq!(listed.len(), 7, "the view shows the added ones too");
    lab.check_job(job).await;
}

/// A job that is over stays over; one that failed may grow.
pub async fn adding_to_a_completed_or_cancelled_job_is_refused<W: TestWorld>(lab: Lab<W>) {
    let job = lab.submit("a").await;
    lab.run(&["a"]).await;
    let answer = lab.engine.add_tasks(acme(), job, graph("b<a")).await;
    assert!(
        matches!(answer, Err(EngineError::Refused(Refusal::JobCompleted(id))) if id == job),
        "{answer:?}"
    );
    let job = lab.submit("a").await;
    lab.engine.cancel(acme(), job, "test".to_owned(), None).await.expect("the job is running");
    let answer = lab.engine.add_tasks(acme(), job, graph("b")).await;
    assert!(
        matches!(answer, Err(EngineError::Refused(Refusal::JobCancelled(id))) if id == job),
        "{answer:?}"
    );
    assert!(is_not_found(&lab.engine.add_tasks(acme(), JobId::from_u128(1), graph("b")).await));
    assert_eq!(lab.count(KnownType::JobTasksAdded).await, 0);
}

/// What depends on a failed task is accepted and waits for the resume.
pub async fn a_task_added_below_a_failed_one_waits_for_the_resume<W: TestWorld>(lab: Lab<W>) {
    let job = lab.submit("a").await;
    let task = lab.claim_one().await;
    lab.fail(&task, ErrorCategory::Auth).await;
    let added = lab.engine.add_tasks(acme(), job, graph("b<a c")).await.expect("the tasks are accepted");
    assert_eq!(added.dispatched, [task_id("c")]);
    assert_eq!(lab.status(job).await, JobStatus::Failing);
    lab.run(&["c"]).await;
    assert_eq!(lab.status(job).await, JobStatus::Failed);
    lab.engine.resume_job(acme(), job, None).await.expect("a failed");
    lab.run(&["a"]).await;
    lab.run(&["b"]).await;
    assert_eq!(lab.status(job).await, JobStatus::Completed);
    lab.check_job(job).await;
}

/// Twenty additions side by side: totals without gap or overlap, and everything runs once.
pub async fn concurrent_additions_keep_totals<W: TestWorld>(lab: Lab<W>) {
    let job = lab.submit("a b c d e").await;
    let additions =
        (0..20).map(|n| lab.engine.add_tasks(acme(), job, vec![spec(&format!("x{n:02}"), &["a"])]));
    let mut totals: Vec<_> = side_by_side(additions)
        .await
        .into_iter()
        .map(|added| added.expect("the task is accepted"))
        .map(|added| (added.previous_total, added.total))
        .collect();
    totals.sort_unstable();
    assert_eq!(totals, (5..25).map(|before| (before, before + 1)).collect::<Vec<_>>());
    lab.run(&["a", "b", "c", "d", "e"]).await;
    let names: Vec<_> = (0..20).map(|n| format!("x{n:02}")).collect();
    lab.run(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    assert_eq!(lab.count(KnownType::JobCompleted).await, 1);
    lab.check_job(job).await;
}

/// Two additions of the same name: one of them wins.
pub async fn an_added_name_is_taken_once<W: TestWorld>(lab: Lab<W>) {
    let job = lab.submit("a").await;
    let twins = side_by_side((0..2).map(|_| lab.engine.add_tasks(acme(), job, graph("b")))).await;
    assert_eq!(twins.iter().filter(|answer| answer.is_ok()).count(), 1);
    assert!(twins.iter().any(|answer| is_graph_refusal(answer, "DUPLICATE_TASK_ID")));
    lab.run(&["a", "b"]).await;
    lab.check_job(job).await;
}

/// An addition is checked against the whole job, and a bad one changes nothing.
pub async fn a_bad_addition_changes_nothing<W: TestWorld>(lab: Lab<W>) {
    let job = lab.submit("a b<a").await;
    let reserved = || {
        let mut task = spec("r", &[]);
        task.input = super::shape::json(r#"{"dependencyOutputs":{}}"#);
        vec![task]
    };
    for (tasks, code) in [
        (graph("a"), "DUPLICATE_TASK_ID"),
        (graph("c c"), "DUPLICATE_TASK_ID"),
        (graph("c<zz"), "UNKNOWN_DEPENDENCY"),
        (graph("c<c"), "SELF_DEPENDENCY"),
        (graph("c<a+a"), "DUPLICATE_DEPENDENCY"),
        (graph("c<d d<c"), "CYCLE"),
        (Vec::new(), "EMPTY_TASKS"),
        (reserved(), "INVALID_INPUT"),
    ] {
        let answer = lab.engine.add_tasks(acme(), job, tasks).await;
        assert!(is_graph_refusal(&answer, code), "{code}: {answer:?}");
    }
    assert_eq!(types(&lab.job_history(job).await), ["Job Created"]);
    assert_eq!(lab.job(job).await.head.counts.total(), 2);
    lab.run(&["a"]).await;
    lab.run(&["b"]).await;
    lab.check_job(job).await;
}

/// The limit of 100,000 holds for the job as a whole.
pub async fn a_job_cannot_grow_beyond_the_limit<W: TestWorld>(lab: Lab<W>) {
    let job = lab.submit("a").await;
    let tasks = (0..100_000).map(|n| spec(&format!("t{n}"), &["a"])).collect();
    let answer = lab.engine.add_tasks(acme(), job, tasks).await;
    let Err(EngineError::Refused(Refusal::Graph(found))) = answer else { panic!("refused: {answer:?}") };
    assert_eq!(found.listed, [DagViolation::TooManyTasks { count: 100_001 }]);
    assert_eq!(found.to_string(), "the job has 100001 tasks; the limit is 100000");
    assert_eq!(lab.job(job).await.head.counts.total(), 1);
}
