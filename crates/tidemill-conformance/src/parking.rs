//! Tasks that are parked when they fail for good, and how they go on.

use tidemill_model::workflow::{ErrorCode, ErrorFingerprint, WorkflowRunId};
use tidemill_model::{
    ErrorCategory, JobId, JobStatus, KnownType, OnFailure, Outcome, PublicState, RequestId, TaskOptions,
    TaskSpec, TaskState,
};

use super::lab::{GENERATION, completed, is_lease_lost, is_outcome_different, value};
use super::leases::beat;
use super::shape::{HOUR, LEASE, acme, alone, graph, job_of, json, names, property, request, task_id, types};
use super::{Lab, TestWorld};
use tidemill_engine::backend::Backend;
use tidemill_engine::command::{Command, LookAfterParked, Recover};
use tidemill_engine::engine::{
    BulkAction, EngineError, JobRequest, Signal, TaskRequest, UnparkRequest, WorkReport,
};
use tidemill_engine::reply::{Assignment, Ending, Refusal, Reply};
use tidemill_engine::triage::{ErrorState, ParkedKey};

/// Tasks that are parked when they fail for good.
fn parking(tasks: Vec<TaskSpec>, names: &[&str]) -> Vec<TaskSpec> {
    let park = |mut task: TaskSpec| {
        if names.contains(&task.task_id.as_str()) {
            task.options.on_failure = OnFailure::Park;
        }
        task
    };
    tasks.into_iter().map(park).collect()
}

async fn submit<W: TestWorld>(lab: &Lab<W>, tasks: &str, parked: &[&str]) -> JobId {
    let request = JobRequest { name: Some("nightly".to_owned()), ..job_of(parking(graph(tasks), parked)) };
    lab.engine.submit_job(request).await.expect("the job is accepted").job
}

/// A job `a, b<a` whose first task is parked, as it was claimed.
async fn one_parked<W: TestWorld>(lab: &Lab<W>) -> (JobId, Assignment) {
    let job = submit(lab, "a b<a", &["a"]).await;
    let a = lab.claim_one().await;
    lab.fail(&a, ErrorCategory::Auth).await;
    (job, a)
}

/// A job whose roots are `a` and `b`, with both of them parked.
async fn two_parked<W: TestWorld>(lab: &Lab<W>, tasks: &str) -> (JobId, [RequestId; 2]) {
    let job = submit(lab, tasks, &["a", "b"]).await;
    for task in lab.claim(9).await {
        lab.fail(&task, ErrorCategory::Auth).await;
    }
    (job, ["a", "b"].map(|name| job.request_id(&task_id(name))))
}

fn parking_alone(id: &str, park_timeout_ms: Option<u64>) -> TaskRequest {
    let options = TaskOptions { on_failure: OnFailure::Park, park_timeout_ms, ..TaskOptions::default() };
    TaskRequest { options, ..alone(id) }
}

fn execution(request: &RequestId) -> WorkflowRunId {
    WorkflowRunId::from(request)
}

fn resume(output: &str, rerun: bool) -> BulkAction {
    BulkAction::Resume { output: json(output), rerun }
}

pub(super) fn failing() -> BulkAction {
    BulkAction::Fail { error: "ResolutionFailed".into(), cause: "Unable to resolve errors".into() }
}

pub(super) async fn unpark<W: TestWorld>(
    lab: &Lab<W>,
    request: &RequestId,
    how: BulkAction,
) -> Result<(), EngineError> {
    let (by, reason) = (Some("ann".to_owned()), Some("mended".to_owned()));
    lab.engine.unpark(UnparkRequest { tenant: acme(), execution: execution(request), how, by, reason }).await
}

fn is_not_parked(answer: &Result<(), EngineError>) -> bool {
    matches!(answer, Err(EngineError::Refused(Refusal::NotParked(_))))
}

async fn is_parked<W: TestWorld>(lab: &Lab<W>, request: &RequestId) -> bool {
    let known = lab.engine.triage_execution(&acme(), &execution(request)).await.expect("the backend works");
    let listed = known.is_some_and(|known| known.parked.is_some() && known.execution.parked);
    let head = lab.head(request).await.is_parked();
    assert_eq!(listed, head, "{request} is parked in both places or in none");
    head
}

/// The state of each error of a task.
async fn errors<W: TestWorld>(lab: &Lab<W>, request: &RequestId) -> Vec<(String, u64, ErrorState)> {
    let known =
        lab.engine.errors_of_execution(&acme(), &execution(request)).await.expect("the backend works");
    known.into_iter().map(|shown| (shown.error.code.to_string(), shown.error.count, shown.state)).collect()
}

/// A failure that is not tried again parks: no lease, no message, `processing`, the job `failing`, and the events say so.
pub async fn a_failed_task_is_parked<W: TestWorld>(lab: Lab<W>) {
    let job = submit(&lab, "a b<a c", &["a"]).await;
    let tasks = lab.claim(9).await;
    lab.complete(&tasks[1], "{}").await;
    let a = &tasks[0];
    assert_eq!(lab.fail(a, ErrorCategory::Auth).await, Ending::Parked);
    let id = &a.task.request;
    let head = lab.head(id).await;
    assert_eq!((head.state.clone(), head.attempts, head.fence), (TaskState::Parked, 1, a.fence));
    assert_eq!(lab.state(job, "a").await, Some(PublicState::Processing));
    let kept = lab.job(job).await;
    assert_eq!(
        (kept.status, kept.head.counts.parked, kept.head.counts.processing),
        (JobStatus::Failing, 1, 1)
    );
    assert!(kept.head.has_stopped() && !kept.head.is_at_rest());
    assert!(is_parked(&lab, id).await);
    assert_eq!(lab.engine.queue_depth().await.expect("the backend works").messages, 0);

    let history = lab.history(id).await;
    let told = ["Task Pending", "Task Processing Started", "Task Processing Failed", "WorkflowEvent"];
    assert_eq!(types(&history), told);
    assert_eq!(property(&history[2], "parked"), true);
    assert_eq!(property(&history[2], "errorCategory"), "auth");
    let workflow = value(&history[3].properties);
    let code = ErrorFingerprint::of(ErrorCategory::Auth, "work", "it broke", None).code;
    assert_eq!(workflow["executionId"], id.as_str());
    assert_eq!(workflow["status"], "FAILED");
    assert_eq!((workflow["phase"].as_str(), workflow["step"].as_str()), (Some("nightly"), Some("a")));
    assert_eq!(
        (workflow["county"].as_str(), workflow["taskToken"].as_str()),
        (Some("-"), Some("[REDACTED]"))
    );
    assert_eq!(workflow["errors"][0]["code"], code.as_str());
    assert_eq!(workflow["errors"][0]["details"]["error"], "it broke");
    assert_eq!(types(&lab.job_history(job).await), ["Job Created"], "it has not failed");
    assert_eq!(errors(&lab, id).await, [(code.to_string(), 1, ErrorState::Open)]);
    lab.check_job(job).await;

    // It stands still: nothing to claim, nothing to sweep, and its worker is out.
    lab.pass(HOUR);
    assert_eq!(lab.engine.sweep().await.expect("the backend works"), 0);
    assert!(lab.claim(9).await.is_empty());
    assert!(is_outcome_different(&lab.report(a, completed("{}")).await));
    assert!(is_lease_lost(&lab.engine.heartbeat(beat(a)).await));
    let again = lab.report(a, WorkReport::failed("it broke", ErrorCategory::Auth)).await;
    assert!(again.is_ok_and(|known| known.repeated && known.ending == Ending::Parked), "its report is known");
    assert_eq!(lab.history(id).await.len(), 4);
}

/// Each way in which a task can fail for good.
pub async fn every_end_of_a_failing_task_parks<W: TestWorld>(lab: Lab<W>) {
    let submit = async |id: &str| {
        lab.engine.submit_task(parking_alone(id, None)).await.expect("the task is accepted");
        lab.claim_one().await
    };
    let parked = async |id: &str, category: ErrorCategory, attempts: u32| {
        let id = request(id);
        assert!(is_parked(&lab, &id).await, "{id}");
        let head = lab.head(&id).await;
        assert_eq!((head.last_error, head.attempts), (Some(category), attempts), "{id}");
        let history = lab.history(&id).await;
        assert!(
            types(&history).ends_with(&["Task Processing Failed", "WorkflowEvent"]),
            "{:?}",
            types(&history)
        );
        assert_eq!(errors(&lab, &id).await.len(), 1, "{id}");
        lab.check_task(&id).await;
    };

    let task = submit("timed-out").await;
    let report = WorkReport::timed_out(1_000, 1_001, Signal::Kill);
    assert_eq!(lab.report(&task, report).await.expect("the outcome is taken").ending, Ending::Parked);
    parked("timed-out", ErrorCategory::Timeout, 1).await;

    let mut task = submit("exhausted").await;
    let mut attempts = 1;
    while let Ending::Retrying { at } = lab.fail(&task, ErrorCategory::Network).await {
        lab.pass(at.since(lab.now()));
        task = lab.claim_one().await;
        attempts += 1;
    }
    parked("exhausted", ErrorCategory::Network, attempts).await;
    assert!(attempts > 1);

    submit("silent").await;
    for _ in 0..30 {
        if lab.head(&request("silent")).await.is_parked() {
            break;
        }
        lab.pass(LEASE + 2_000);
        lab.claim(1).await;
    }
    parked("silent", ErrorCategory::Unknown, 0).await;
    let letters = lab.engine.dead_letters(acme(), None, None, 9).await.expect("the backend works").letters;
    assert!(letters.is_empty(), "what is parked is no dead letter: {letters:?}");
}

/// An output for a parked task completes it and starts its dependents in the same commit, once.
pub async fn an_output_lets_a_job_go_on<W: TestWorld>(lab: Lab<W>) {
    let (job, a) = one_parked(&lab).await;
    let id = &a.task.request;
    unpark(&lab, id, resume(r#"{"rows":7}"#, false)).await.expect("it is parked");
    let head = lab.head(id).await;
    assert_eq!((head.state.clone(), head.fence), (TaskState::Done(Outcome::Completed), a.fence.next()));
    let completed_event = lab.history(id).await.pop().expect("there is a history");
    assert_eq!(completed_event.event_type.as_str(), "Task Completed");
    assert_eq!(property(&completed_event, "source"), "resume");
    let pending = lab.history(&job.request_id(&task_id("b"))).await;
    assert_eq!(pending[0].received_at, completed_event.received_at, "in the same commit");
    assert_eq!(lab.status(job).await, JobStatus::Running);
    assert!(!is_parked(&lab, id).await);
    assert!(is_not_parked(&unpark(&lab, id, resume("{}", false)).await), "a wait ends once");
    assert!(is_not_parked(&unpark(&lab, id, failing()).await));
    assert!(is_lease_lost(&lab.report(&a, completed("{}")).await), "the worker of the past is out");
    let b = lab.claim_one().await;
    let work = lab.engine.work_of(&b).await.expect("the outputs are there");
    assert_eq!(value(&work.input)["dependencyOutputs"]["a"], serde_json::json!({ "rows": 7 }));
    lab.complete(&b, "{}").await;
    assert_eq!(lab.status(job).await, JobStatus::Completed);
    assert!(errors(&lab, id).await.iter().all(|(.., state)| *state == ErrorState::Resolved));
    lab.check_job(job).await;
    let told = lab.count(KnownType::ExecutionResumed).await;
    assert_eq!(told, 1, "who did it and why is told");
}

/// A parked task that is run again has a new run; when it completes its error is resolved.
pub async fn a_parked_task_may_run_again<W: TestWorld>(lab: Lab<W>) {
    let (job, [a, b]) = two_parked(&lab, "a b c<a+b").await;
    assert_eq!(lab.job(job).await.head.counts.parked, 2);
    unpark(&lab, &a, resume("{}", true)).await.expect("it is parked");
    assert!(!is_parked(&lab, &a).await && is_parked(&lab, &b).await);
    assert_eq!(lab.status(job).await, JobStatus::Failing);
    assert!(is_not_parked(&unpark(&lab, &a, resume("{}", true)).await));
    // The ordinary resume of the job does the same with what is left.
    let resumed = lab.engine.resume_job(acme(), job, None).await.expect("b is parked");
    assert_eq!(resumed, std::slice::from_ref(&b));
    assert!(!is_parked(&lab, &b).await);
    assert!(is_not_parked(&unpark(&lab, &b, resume("{}", false)).await));
    assert_eq!(lab.status(job).await, JobStatus::Running);
    lab.check_job(job).await;
    let tasks = lab.claim(9).await;
    assert_eq!(names(&tasks), ["a", "b"]);
    assert!(tasks.iter().all(|task| task.run == 2));
    assert_eq!(errors(&lab, &a).await[0].2, ErrorState::Open);
    // It fails again: one error, two occurrences.
    assert_eq!(lab.fail(&tasks[0], ErrorCategory::Auth).await, Ending::Parked);
    assert_eq!(errors(&lab, &a).await.iter().map(|error| error.1).collect::<Vec<_>>(), [2]);
    lab.engine.resume_task(acme(), a.clone()).await.expect("it is parked");
    lab.complete(&tasks[1], "{}").await;
    lab.run(&["a"]).await;
    lab.run(&["c"]).await;
    assert_eq!(lab.status(job).await, JobStatus::Completed);
    for id in [&a, &b] {
        assert!(errors(&lab, id).await.iter().all(|(.., state)| *state == ErrorState::Resolved), "{id}");
    }
    lab.check_job(job).await;
}

/// Failing a parked task fails it as any other: the failure counts for its job, and the task can be resumed later.
pub async fn a_parked_task_may_be_failed<W: TestWorld>(lab: Lab<W>) {
    let (job, a) = one_parked(&lab).await;
    let id = &a.task.request;
    unpark(&lab, id, failing()).await.expect("it is parked");
    assert_eq!(lab.head(id).await.state, TaskState::Done(Outcome::Failed));
    let failed = lab.history(id).await.pop().expect("there is a history");
    assert_eq!(property(&failed, "error"), "ResolutionFailed: Unable to resolve errors");
    assert_eq!(
        (property(&failed, "source"), property(&failed, "code")),
        ("api".into(), "ResolutionFailed".into())
    );
    assert_eq!(lab.status(job).await, JobStatus::Failed);
    assert_eq!(types(&lab.job_history(job).await), ["Job Created", "Job Failure Detected"]);
    assert!(is_not_parked(&unpark(&lab, id, resume("{}", false)).await));
    assert_eq!(errors(&lab, id).await.iter().map(|error| error.1).collect::<Vec<_>>(), [1], "it failed once");
    lab.engine.resume_task(acme(), id.clone()).await.expect("it is failed");
    lab.run(&["a"]).await;
    lab.run(&["b"]).await;
    lab.check_job(job).await;
}

/// A task that nobody comes for is failed when its time is over, its own or that of all.
pub async fn a_parked_task_waits_for_its_time<W: TestWorld>(lab: Lab<W>) {
    lab.engine.submit_task(parking_alone("short", Some(HOUR))).await.expect("the task is accepted");
    lab.fail(&lab.claim_one().await, ErrorCategory::Auth).await;
    lab.engine.submit_task(parking_alone("long", None)).await.expect("the task is accepted");
    lab.fail(&lab.claim_one().await, ErrorCategory::Auth).await;
    let look = async || {
        let keys = ["short", "long"]
            .map(|id| ParkedKey { tenant: acme(), execution: execution(&request(id)) })
            .to_vec();
        match lab.execute(Command::LookAfterParked(LookAfterParked { keys })).await {
            Ok(Reply::LookedAfter { expired, told }) => (expired, told),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(look().await, (0, 0));
    lab.pass(HOUR - 60_000);
    assert_eq!(look().await, (0, 1), "an alarm before it is given up");
    assert_eq!(look().await, (0, 0), "one is enough");
    lab.pass(60_000);
    assert_eq!(look().await, (1, 0));
    let id = request("short");
    let failed = lab.history(&id).await.pop().expect("there is a history");
    assert_eq!(
        (property(&failed, "source"), property(&failed, "code")),
        ("expired".into(), "PARK_EXPIRED".into())
    );
    assert_eq!(lab.head(&id).await.state, TaskState::Done(Outcome::Failed));
    assert!(is_parked(&lab, &request("long")).await);
    let answer = unpark(&lab, &id, resume("{}", false)).await;
    assert!(matches!(answer, Err(EngineError::Refused(Refusal::TokenExpired(_)))), "{answer:?}");
    lab.pass(8 * 24 * HOUR);
    assert_eq!(look().await.0, 1);
    lab.check_task(&id).await;
    lab.check_task(&request("long")).await;
}

/// A cancel ends what is parked too, and nobody can resume it afterwards.
pub async fn cancel_ends_what_is_parked<W: TestWorld>(lab: Lab<W>) {
    let (job, a) = one_parked(&lab).await;
    let id = &a.task.request;
    lab.engine.cancel(acme(), job, "ann".to_owned(), None).await.expect("the job is open");
    assert_eq!(lab.status(job).await, JobStatus::Cancelled);
    assert_eq!(lab.head(id).await.state, TaskState::Done(Outcome::Cancelled));
    assert!(!is_parked(&lab, id).await);
    assert!(is_not_parked(&unpark(&lab, id, resume("{}", false)).await));
    lab.check_job(job).await;

    lab.engine.submit_task(parking_alone("t-1", None)).await.expect("the task is accepted");
    lab.fail(&lab.claim_one().await, ErrorCategory::Auth).await;
    let ended = lab.engine.cancel_task(acme(), request("t-1"), "ann".to_owned(), None).await;
    assert!(ended.expect("it is open"));
    assert!(!is_parked(&lab, &request("t-1")).await);
    lab.check_task(&request("t-1")).await;
}

/// Failures of tasks that are not parked are counted too: what is alike has one code, and a later success resolves it.
pub async fn failures_are_grouped_by_what_they_say<W: TestWorld>(lab: Lab<W>) {
    let fail = async |task: &Assignment, error: &str, code: Option<&str>| {
        let report = WorkReport::Failed {
            error: error.to_owned(),
            category: ErrorCategory::Validation,
            retry_after_millis: None,
            code: code.map(str::to_owned),
            usage: None,
            session_id: None,
        };
        lab.report(task, report).await.expect("the outcome is taken")
    };
    let job = lab.submit("a b c d").await;
    let tasks = lab.claim(9).await;
    for (task, error) in tasks.iter().zip(["row 12 of parcel \"x\" is bad", "row 9 of parcel \"y\" is bad"]) {
        assert_eq!(fail(task, error, None).await.ending, Ending::Done(Outcome::Failed));
    }
    fail(&tasks[2], "no such column", None).await;
    fail(&tasks[3], "the county is odd", Some("20Cook")).await;
    let codes: Vec<_> = {
        let mut codes = Vec::new();
        for task in &tasks {
            codes.push(errors(&lab, &task.task.request).await.remove(0).0);
        }
        codes
    };
    assert_eq!(codes[0], codes[1]);
    assert_ne!(codes[0], codes[2]);
    assert_eq!(codes[3], "20Cook", "its own code");
    let code = ErrorCode::new(&codes[0]).expect("a code");
    let group =
        lab.engine.error_group(&acme(), &code).await.expect("the backend works").expect("it is there");
    assert_eq!((group.counts.occurrences, group.counts.open), (2, 2));
    lab.engine.resume_job(acme(), job, Some(vec![task_id("a")])).await.expect("a failed");
    lab.run(&["a"]).await;
    let group =
        lab.engine.error_group(&acme(), &code).await.expect("the backend works").expect("it is there");
    assert_eq!((group.counts.occurrences, group.counts.open, group.counts.resolved), (2, 1, 1));
    // A cancel is no error.
    let other = lab.submit("x").await;
    lab.engine.cancel(acme(), other, "ann".to_owned(), None).await.expect("the job is open");
    let x = other.request_id(&task_id("x"));
    assert!(lab.engine.triage_execution(&acme(), &execution(&x)).await.expect("the backend works").is_none());
}

/// What is parked is parked after a restart, and goes on as if nothing had been.
pub async fn parked_tasks_survive<W: TestWorld>(lab: Lab<W>) {
    let (job, [a, b]) = two_parked(&lab, "a b c<a d<b e<c+d").await;
    let Some(lab) = lab.reopen().await else { return };
    lab.world
        .backend()
        .execute(vec![Command::Recover(Recover { generation: GENERATION + 1 })])
        .await
        .expect("it works");
    assert!(is_parked(&lab, &a).await && is_parked(&lab, &b).await);
    assert_eq!(lab.job(job).await.head.counts.parked, 2);
    assert_eq!(lab.status(job).await, JobStatus::Failing);
    lab.check_job(job).await;
    unpark(&lab, &a, resume("{}", false)).await.expect("it is parked");
    let Some(lab) = lab.reopen().await else { return };
    assert!(!is_parked(&lab, &a).await && is_parked(&lab, &b).await);
    assert!(is_not_parked(&unpark(&lab, &a, resume("{}", false)).await), "also not in the next life");
    unpark(&lab, &b, resume("{}", true)).await.expect("it is parked");
    let Some(lab) = lab.reopen().await else { return };
    let tasks = lab.claim_as("worker-2", 9).await;
    assert_eq!(names(&tasks), ["b", "c"]);
    for task in &tasks {
        lab.complete(task, "{}").await;
    }
    lab.run(&["d"]).await;
    lab.run(&["e"]).await;
    assert_eq!(lab.status(job).await, JobStatus::Completed);
    assert!(errors(&lab, &b).await.iter().all(|(.., state)| *state == ErrorState::Resolved));
    lab.check_job(job).await;
}
