//! Leases and fences: one worker at a time, and one outcome per run.

use tidemill_model::events::properties::{Activity, ActivityKind};
use tidemill_model::{ErrorCategory, Fence, KnownType, Outcome, PublicState, TaskState};

use super::lab::{GENERATION, claim_request, completed, finish_request, is_lease_lost};
use super::shape::{
    LEASE, SECOND, acme, alone, app, job_of, key, names, property, request, spec, types, worker,
};
use super::{Lab, TestWorld};
use tidemill_engine::engine::{Claimant, EngineError, HeartbeatReport, NewMessage, Signal, WorkReport};
use tidemill_engine::record::DeadLetterState;
use tidemill_engine::reply::{Assignment, Ending, Refusal};

pub(super) fn beat(task: &Assignment) -> HeartbeatReport {
    HeartbeatReport {
        task: task.task.clone(),
        fence: task.fence,
        worker: worker("worker-1"),
        process_id: 4_711,
        rss: 1_024,
        last_activity: None,
    }
}

/// Another message for a task of `acme`, as when a queue delivers twice.
pub(super) fn duplicate(task: &str, run: u32) -> NewMessage {
    let alone = alone("unused");
    NewMessage {
        tenant: acme(),
        app: app("orders"),
        request: Some(request(task)),
        name: alone.name,
        input: alone.input,
        run,
        delay_millis: 0,
    }
}

async fn one_task<W: TestWorld>(lab: &Lab<W>) -> Assignment {
    lab.engine.submit_task(alone("t-1")).await.expect("the task is accepted");
    lab.claim_one().await
}

/// A worker that was replaced can neither finish nor renew nor release nor begin.
pub async fn refuses_a_stale_fence<W: TestWorld>(lab: Lab<W>) {
    let old = one_task(&lab).await;
    lab.pass(LEASE + 1);
    let new = lab.claim_as("worker-2", 1).await.remove(0);
    assert!(new.fence > old.fence);
    let before = lab.history(&request("t-1")).await;
    let (task, worker) = (old.task.clone(), worker("worker-1"));
    assert!(is_lease_lost(&lab.report(&old, completed("{}")).await));
    assert!(is_lease_lost(&lab.report(&old, WorkReport::failed("x", ErrorCategory::Auth)).await));
    assert!(is_lease_lost(&lab.engine.heartbeat(beat(&old)).await));
    assert!(is_lease_lost(&lab.engine.begin(task.clone(), old.fence, worker.clone(), 1.into()).await));
    assert!(is_lease_lost(&lab.engine.release(task, old.fence, worker, Some("shutdown".to_owned())).await));
    let future = Assignment { fence: Fence(new.fence.0 + 1), ..new.clone() };
    assert!(is_lease_lost(&lab.report(&future, completed("{}")).await));
    assert_eq!(lab.history(&request("t-1")).await, before, "nothing was written");
    lab.complete(&new, "{}").await;
    lab.check_task(&request("t-1")).await;
}

/// Whatever is reported after the outcome changes nothing.
pub async fn one_outcome_per_run<W: TestWorld>(lab: Lab<W>) {
    let task = one_task(&lab).await;
    lab.complete(&task, r#"{"n":1}"#).await;
    let before = lab.history(&request("t-1")).await;
    for report in [
        WorkReport::failed("x", ErrorCategory::Auth),
        WorkReport::failed("x", ErrorCategory::Network),
        WorkReport::timed_out(1, 2, Signal::Kill),
    ] {
        let answer = lab.report(&task, report).await;
        let is_told = matches!(answer, Err(EngineError::Refused(Refusal::OutcomeDiffers { .. })));
        assert!(is_told, "{answer:?}");
    }
    assert!(is_lease_lost(&lab.engine.heartbeat(beat(&task)).await));
    assert_eq!(lab.history(&request("t-1")).await, before);
}

/// A worker that did not hear the answer may ask again and hears the same, and nothing is written twice.
pub async fn a_repeated_finish_is_answered_alike<W: TestWorld>(lab: Lab<W>) {
    let timeout = WorkReport::timed_out(1, 2, Signal::Term);
    let reports = [
        ("t-1", completed(r#"{"n":1}"#)),
        ("t-2", WorkReport::failed("x", ErrorCategory::Validation)),
        ("t-3", timeout),
        ("t-4", WorkReport::failed("x", ErrorCategory::Network)),
    ];
    for (id, report) in reports {
        lab.engine.submit_task(alone(id)).await.expect("the task is accepted");
        let task = lab.claim_one().await;
        let first = lab.report(&task, report.clone()).await.expect("the outcome is taken");
        let before = lab.history(&request(id)).await;
        lab.pass(10);
        let again = lab.report(&task, report).await.expect("the outcome is known");
        assert_eq!((again.ending, first.repeated, again.repeated), (first.ending, false, true), "{id}");
        assert_eq!(lab.history(&request(id)).await, before, "{id}");
    }
}

/// Silence is judged by the store's clock: the lease's last millisecond still counts.
pub async fn a_takeover_waits_for_the_lease_and_raises_the_fence<W: TestWorld>(lab: Lab<W>) {
    let old = one_task(&lab).await;
    assert_eq!(old.lease_until, lab.now().plus(LEASE));
    for _ in 0..45 {
        assert!(lab.claim_as("worker-2", 1).await.is_empty(), "at {}", lab.now());
        lab.pass(SECOND);
    }
    assert_eq!(lab.now(), old.lease_until);
    lab.engine.send(duplicate("t-1", 1)).await.expect("the message is accepted");
    assert!(lab.claim_as("worker-2", 1).await.is_empty(), "in the last millisecond");
    lab.pass(1);
    let new = lab.claim_as("worker-2", 1).await.remove(0);
    assert!(new.fence > old.fence);
    assert_eq!((new.run, new.attempt), (1, 1), "no attempt has ended");
    let head = lab.head(&request("t-1")).await;
    assert_eq!((head.takeovers, head.attempts, head.fence), (1, 0, new.fence));
}

/// As long as nobody took over, a late worker may still bring its result.
pub async fn a_late_finish_without_a_takeover_is_taken<W: TestWorld>(lab: Lab<W>) {
    let task = one_task(&lab).await;
    lab.pass(10 * LEASE);
    lab.complete(&task, "{}").await;
    assert!(lab.claim(1).await.is_empty());
    lab.check_task(&request("t-1")).await;
}

/// A second message of a task that is being run waits, and the wait does not count as a delivery.
pub async fn a_busy_message_is_hidden_and_not_counted<W: TestWorld>(lab: Lab<W>) {
    let task = one_task(&lab).await;
    lab.engine.send(duplicate("t-1", 1)).await.expect("the message is accepted");
    for _ in 0..5 {
        assert!(lab.claim_as("worker-2", 1).await.is_empty());
        lab.pass(SECOND);
    }
    let depth = lab.engine.queue_depth().await.expect("the backend works");
    assert_eq!((depth.messages, depth.ready), (2, 0), "hidden, not gone");
    lab.engine.heartbeat(beat(&task)).await.expect("the lease is held");
    lab.pass(42 * SECOND);
    // Its own message is hidden by the heartbeat; the duplicate shows up, for the first time as far as it is counted.
    let received = lab.engine.receive(None, 5, None).await.expect("the backend works").messages;
    assert_eq!(received.iter().map(|delivery| delivery.deliveries).collect::<Vec<_>>(), [1]);
    lab.complete(&task, "{}").await;
    assert_eq!(lab.head(&request("t-1")).await.attempts, 1);
}

/// At-least-once delivery does not become a second execution.
pub async fn a_duplicate_after_the_end_is_dropped<W: TestWorld>(lab: Lab<W>) {
    for (id, report) in [("t-1", completed("{}")), ("t-2", WorkReport::failed("x", ErrorCategory::Auth))] {
        lab.engine.submit_task(alone(id)).await.expect("the task is accepted");
        let task = lab.claim_one().await;
        lab.report(&task, report).await.expect("the outcome is taken");
        lab.engine.send(duplicate(id, 1)).await.expect("the message is accepted");
        lab.pass(100 * LEASE);
        assert!(lab.claim(10).await.is_empty(), "{id}");
        let depth = lab.engine.queue_depth().await.expect("the backend works");
        assert_eq!(depth.messages, 0, "{id}: it is gone");
        lab.check_task(&request(id)).await;
    }
    let letters = lab.engine.dead_letters(acme(), None, None, 10).await.expect("the backend works");
    assert!(letters.letters.is_empty(), "it was no failure");
}

/// After a resume, messages of the run before mean nothing.
pub async fn a_message_of_an_older_run_is_dropped<W: TestWorld>(lab: Lab<W>) {
    let task = one_task(&lab).await;
    lab.fail(&task, ErrorCategory::Auth).await;
    lab.engine.send(duplicate("t-1", 1)).await.expect("the message is accepted");
    lab.engine.resume_task(acme(), request("t-1")).await.expect("it failed");
    let again = lab.claim_one().await;
    assert_eq!((again.run, again.attempt), (2, 1));
    lab.complete(&again, "{}").await;
    assert!(lab.claim(10).await.is_empty());
    assert_eq!(lab.engine.queue_depth().await.expect("the backend works").messages, 0);
    assert_eq!(lab.engine.sweep().await.expect("the backend works"), 0);
}

/// A task that kills its workers is given up after ten takeovers: dead letter, `Task Failed` from the queue.
pub async fn takeovers_are_limited<W: TestWorld>(lab: Lab<W>) {
    let job = lab.submit("a b<a").await;
    let mut fences = Vec::new();
    for _ in 0..11 {
        let task = lab.claim_one().await;
        fences.push(task.fence);
        lab.pass(LEASE + 2);
    }
    assert!(fences.is_sorted_by(|a, b| a < b));
    assert!(lab.claim(1).await.is_empty(), "not once more");
    let a = job.request_id(&super::shape::task_id("a"));
    let head = lab.head(&a).await;
    assert_eq!(head.state, TaskState::Done(Outcome::Failed));
    assert!(head.fence > fences[10], "the last worker cannot write any more");
    let failed = lab.history(&a).await.pop().expect("there is a history");
    assert_eq!(failed.event_type.as_str(), "Task Failed");
    assert_eq!(property(&failed, "source"), "dlq");
    assert_eq!(property(&failed, "retryCount"), 0);
    assert_eq!(lab.count(KnownType::JobFailureDetected).await, 1);
    let letters = lab.engine.dead_letters(acme(), Some(DeadLetterState::Open), None, 10).await;
    assert_eq!(letters.expect("the backend works").letters.len(), 1);
    lab.check_job(job).await;
}

/// A task that is given up is given up once, however many messages it has.
pub async fn a_task_with_two_messages_is_given_up_once<W: TestWorld>(lab: Lab<W>) {
    one_task(&lab).await;
    for _ in 0..10 {
        lab.pass(LEASE + 2);
        lab.claim_one().await;
    }
    lab.pass(LEASE + 2);
    for _ in 0..3 {
        lab.engine.send(duplicate("t-1", 1)).await.expect("the message is accepted");
    }
    for _ in 0..5 {
        assert!(lab.claim(1).await.is_empty());
    }
    assert_eq!(lab.count(KnownType::TaskFailed).await, 1);
    let letters = lab.engine.dead_letters(acme(), None, None, 10).await.expect("the backend works").letters;
    assert_eq!(letters.len(), 1);
    lab.check_task(&request("t-1")).await;
}

/// Several tasks of one job that are given up at once are reported one after the other.
pub async fn tasks_given_up_together_are_reported_one_by_one<W: TestWorld>(lab: Lab<W>) {
    let job = lab.submit("a b c").await;
    for _ in 0..11 {
        assert_eq!(lab.claim(3).await.len(), 3);
        lab.pass(LEASE + 2);
    }
    for _ in 0..10 {
        assert!(lab.claim(3).await.is_empty());
    }
    let reports = lab.job_history(job).await.split_off(1);
    assert_eq!(types(&reports), ["Job Failure Detected"; 3]);
    assert!(reports.is_sorted_by(|a, b| a.timestamp < b.timestamp), "strictly");
    let failed = |report| {
        let statuses = property(report, "taskStatuses");
        statuses.as_object().map_or(0, |all| all.values().filter(|state| *state == "failed").count())
    };
    assert_eq!(reports.iter().map(failed).collect::<Vec<_>>(), [1, 2, 3]);
    lab.check_job(job).await;
}

/// A worker that shuts down gives its task back; that is no failure.
pub async fn a_release_counts_no_attempt<W: TestWorld>(lab: Lab<W>) {
    let mut task = one_task(&lab).await;
    for round in 1..=5u64 {
        let reason = (round % 2 == 0).then(|| "worker shutdown".to_owned());
        lab.engine
            .release(task.task.clone(), task.fence, worker("worker-1"), reason)
            .await
            .expect("it is held");
        lab.check_task(&request("t-1")).await;
        let again = lab.claim_one().await;
        assert_eq!((again.attempt, again.run), (1, 1));
        assert!(again.fence > task.fence);
        task = again;
    }
    let head = lab.head(&request("t-1")).await;
    assert_eq!((head.attempts, head.takeovers), (0, 0));
    assert_eq!(lab.count(KnownType::TaskProcessingFailed).await, 2, "those with a reason");
    lab.complete(&task, "{}").await;
}

/// Each heartbeat moves the lease forward, is numbered, and is all it does.
pub async fn heartbeats_extend_the_lease_and_change_no_state<W: TestWorld>(lab: Lab<W>) {
    let job = lab.engine.submit_job(job_of(vec![spec("a", &[])])).await.expect("the job is accepted").job;
    let task = lab.claim_one().await;
    let before = (lab.head(&task.task.request).await, lab.job(job).await);
    for number in 1..=3u64 {
        lab.pass(20 * SECOND);
        let activity =
            Activity { kind: ActivityKind::StepRunning, step_name: "parse".to_owned(), timestamp: lab.now() };
        let request = HeartbeatReport { last_activity: Some(activity), ..beat(&task) };
        let until = lab.engine.heartbeat(request).await.expect("the lease is held");
        assert_eq!(until, lab.now().plus(LEASE));
        let event = lab.history(&task.task.request).await.pop().expect("there is a history");
        assert_eq!(property(&event, "heartbeatNumber"), number);
        assert_eq!(property(&event, "requestId"), task.task.request.as_str());
        // Heartbeats are most of all events: they say which task, and that tells its job.
        assert!(property(&event, "jobId").is_null() && property(&event, "taskId").is_null());
        assert_eq!(property(&event, "effectiveUntil"), until.millis());
        assert_eq!(property(&event, "elapsedMs"), number * 20_000);
        assert_eq!(property(&event, "lastActivity")["stepName"], "parse");
        assert!(lab.claim_as("worker-2", 1).await.is_empty());
    }
    let after = (lab.head(&task.task.request).await, lab.job(job).await);
    let calm = |mut head: tidemill_model::TaskHead| {
        head.state = TaskState::Queued;
        head
    };
    assert_eq!(calm(after.0), calm(before.0), "all but the lease");
    assert_eq!(after.1, before.1, "the job has not noticed");
    lab.complete(&task, "{}").await;
}

/// States rest on events that are kept, so a heartbeat that comes first says that work began as well.
pub async fn a_heartbeat_before_the_beginning_begins<W: TestWorld>(lab: Lab<W>) {
    lab.engine.submit_task(alone("t-1")).await.expect("the task is accepted");
    let claim = Claimant { begin: None, ..claim_request("worker-1", 1) };
    let task = lab.engine.claim(claim).await.expect("the claim is accepted").tasks.remove(0);
    assert_eq!(lab.task(&request("t-1")).await.state, Some(PublicState::Pending));
    lab.engine.heartbeat(beat(&task)).await.expect("the lease is held");
    assert_eq!(lab.task(&request("t-1")).await.state, Some(PublicState::Processing));
    let history = lab.history(&request("t-1")).await;
    assert_eq!(types(&history), ["Task Pending", "Task Processing Started", "Task Heartbeat"]);
}

/// A worker with child processes says when its child runs; the fence was durable before.
pub async fn begin_names_the_process<W: TestWorld>(lab: Lab<W>) {
    lab.engine.submit_task(alone("t-1")).await.expect("the task is accepted");
    let claim = Claimant { begin: None, ..claim_request("worker-1", 1) };
    let task = lab.engine.claim(claim).await.expect("the claim is accepted").tasks.remove(0);
    assert_eq!(lab.head(&request("t-1")).await.fence, task.fence);
    let started = lab.engine.begin(task.task.clone(), task.fence, worker("worker-1"), 99.into()).await;
    started.expect("the lease is held");
    let event = lab.history(&request("t-1")).await.pop().expect("there is a history");
    assert_eq!(event.event_type.as_str(), "Task Processing Started");
    assert_eq!(property(&event, "processId"), 99);
    assert_eq!(property(&event, "effectiveUntil"), task.lease_until.millis());
    assert_eq!(property(&event, "fence"), task.fence.0);
    assert_eq!(event.context.worker_id, Some(worker("worker-1")));
}

/// Leases of former lives are free at once, those of this life and of remote workers are not.
pub async fn recover_releases_leases_of_former_generations<W: TestWorld>(lab: Lab<W>) {
    let lives = [("t-1", Some(GENERATION)), ("t-2", Some(GENERATION + 1)), ("t-3", None)];
    let mut held = Vec::new();
    for (id, generation) in lives {
        lab.engine.submit_task(alone(id)).await.expect("the task is accepted");
        let claim = Claimant { generation, ..claim_request("worker-1", 1) };
        held.extend(lab.engine.claim(claim).await.expect("the claim is accepted").tasks);
    }
    assert_eq!(lab.engine.recover(GENERATION + 1).await.expect("the backend works"), 1);
    assert!(is_lease_lost(&lab.report(&held[0], completed("{}")).await), "the old life is over");
    let claim = Claimant { generation: Some(GENERATION + 1), ..claim_request("worker-2", 10) };
    let again = lab.engine.claim(claim).await.expect("the claim is accepted").tasks;
    assert_eq!(again.iter().map(|task| &task.task).collect::<Vec<_>>(), [&key("t-1")]);
    assert!(again[0].fence > held[0].fence);
    let interrupted = lab.head(&request("t-1")).await;
    assert_eq!((interrupted.takeovers, interrupted.crashes), (0, 1), "a crash of the server is no takeover");
    for task in [&again[0], &held[1], &held[2]] {
        lab.complete(task, "{}").await;
    }
    assert_eq!(lab.engine.recover(GENERATION + 1).await.expect("the backend works"), 0);
}

/// What was running in three crashes of the server in a row runs alone, and is given up only if the server crashes under it
/// once more. What ran beside it goes on.
pub async fn a_task_that_crashes_the_server_is_found_by_running_it_alone<W: TestWorld>(lab: Lab<W>) {
    let mut lab = lab;
    let job = lab.submit("culprit neighbour").await;
    let claim = async |lab: &Lab<W>, generation| {
        let claim = Claimant { generation: Some(generation), ..claim_request("worker-1", 9) };
        lab.engine.claim(claim).await.expect("the claim is accepted").tasks
    };
    for life in GENERATION..=GENERATION + 2 {
        assert_eq!(claim(&lab, life).await.len(), 2, "life {life}");
        lab = lab.reopen_if_it_can().await;
        assert_eq!(lab.engine.recover(life + 1).await.expect("the backend works"), 2);
    }
    let mut life = GENERATION + 3;
    for _ in 0..2 {
        let alone = claim(&lab, life).await;
        assert_eq!(alone.len(), 1, "each of them runs alone: {alone:?}");
        assert!(claim(&lab, life).await.is_empty(), "and nothing beside it");
        if alone[0].spec.task_id.as_str() == "neighbour" {
            lab.complete(&alone[0], "{}").await;
            continue;
        }
        life += 1;
        lab = lab.reopen_if_it_can().await;
        assert_eq!(lab.engine.recover(life).await.expect("the backend works"), 1);
    }
    assert!(claim(&lab, life).await.is_empty());
    assert_eq!(lab.state(job, "neighbour").await, Some(PublicState::Completed));
    let culprit = job.request_id(&super::shape::task_id("culprit"));
    let failed = lab.history(&culprit).await.pop().expect("there is a history");
    assert_eq!((failed.event_type.as_str(), property(&failed, "source")), ("Task Failed", "dlq".into()));
    assert_eq!(property(&failed, "error"), "the server crashed again while it ran alone, moved to DLQ");
    let letters = lab.engine.dead_letters(acme(), Some(DeadLetterState::Open), None, 10).await;
    assert_eq!(letters.expect("the backend works").letters.len(), 1);
    lab.check_job(job).await;
}

/// A repeated report gets the same answer as before; another one under the same fence gets the answer that it does
/// not count.
pub async fn another_outcome_for_a_recorded_fence_is_refused<W: TestWorld>(lab: Lab<W>) {
    let task = one_task(&lab).await;
    let long = format!("{:?}", "x".repeat(300_000));
    let differs =
        |answer: Result<_, _>| matches!(answer, Err(EngineError::Refused(Refusal::OutcomeDiffers { .. })));
    let fail = |text: &str| WorkReport::failed(text, tidemill_model::ErrorCategory::Network);
    lab.report(&task, fail("it broke")).await.expect("the outcome is taken");
    let lab = lab.reopen_if_it_can().await;
    assert!(lab.report(&task, fail("it broke")).await.expect("it is known").repeated);
    assert!(differs(lab.report(&task, fail("it broke in another way")).await));
    assert!(differs(lab.report(&task, completed("{}")).await));
    lab.pass(super::shape::HOUR);
    let again = lab.claim_one().await;
    assert!(is_lease_lost(&lab.report(&task, fail("it broke")).await), "another attempt is under way");
    lab.report(&again, completed(&long)).await.expect("the outcome is taken");
    let lab = lab.reopen_if_it_can().await;
    assert!(lab.report(&again, completed(&long)).await.expect("it is known").repeated, "a large one too");
    for other in [completed("{}"), completed(&long.replace('x', "y")), fail("it broke")] {
        assert!(differs(lab.report(&again, other).await));
    }
    assert_eq!(lab.count(KnownType::TaskCompleted).await, 1);
}

/// A worker may bring a result and take the next task in one commit; a refused result does not keep it from working.
pub async fn finish_and_claim_are_one_step<W: TestWorld>(lab: Lab<W>) {
    lab.submit("a b<a c<b").await;
    let a = lab.claim_one().await;
    let answer =
        lab.engine.finish_and_claim(finish_request(&a, completed("{}")), claim_request("worker-1", 1)).await;
    let (finished, claimed) = answer.expect("the backend works");
    assert_eq!(finished.expect("the outcome is taken").ending, Ending::Done(Outcome::Completed));
    let b = &claimed.tasks[0];
    assert_eq!(b.spec.task_id.as_str(), "b", "the child is claimed by the commit that made it ready");

    let stale = Assignment { fence: Fence(0), ..b.clone() };
    lab.engine.submit_task(alone("t-1")).await.expect("the task is accepted");
    for (task, is_stale, next) in [(&stale, true, "task"), (b, false, "c")] {
        let report = finish_request(task, completed("{}"));
        let answer = lab.engine.finish_and_claim(report, claim_request("worker-1", 9)).await;
        let (finished, claimed) = answer.expect("the backend works");
        assert_eq!((is_lease_lost(&finished), finished.is_ok()), (is_stale, !is_stale));
        assert_eq!(names(&claimed.tasks), [next]);
    }
}

/// Categories and sizes are checked before anything is written.
pub async fn a_malformed_report_is_refused<W: TestWorld>(lab: Lab<W>) {
    let task = one_task(&lab).await;
    let before = lab.history(&request("t-1")).await;
    let limit = tidemill_engine::engine::limits::OUTPUT_BYTES_MAX;
    let large = WorkReport::completed(super::shape::long_text(limit), 1);
    let later = WorkReport::Failed {
        error: "x".to_owned(),
        category: ErrorCategory::Network,
        retry_after_millis: Some(u64::MAX),
        code: None,
        usage: None,
        session_id: None,
    };
    for (report, expected) in [
        (large, "output is 16777218 bytes; the limit is 16777216"),
        (
            WorkReport::failed("x", ErrorCategory::Cancelled),
            "errorCategory is cancelled; only a cancel writes that",
        ),
        (later, "retryAfter is 18446744073709551615; it must be from 0 to 604800000"),
    ] {
        let error = lab.report(&task, report).await.expect_err(expected);
        assert_eq!(error.to_string(), expected);
    }
    let claim = |max| lab.engine.claim(claim_request("worker-1", max));
    assert!(matches!(claim(0).await, Err(EngineError::Invalid { .. })));
    assert!(matches!(claim(257).await, Err(EngineError::Invalid { .. })));
    let unknown = Assignment { task: key("nobody"), ..task.clone() };
    let answer = lab.report(&unknown, completed("{}")).await;
    assert!(matches!(answer, Err(EngineError::Refused(Refusal::NotFound { .. }))), "{answer:?}");
    assert_eq!(lab.history(&request("t-1")).await, before);
    lab.complete(&task, "{}").await;
}
