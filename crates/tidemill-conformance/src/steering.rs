//! Cancel, resume, and dead letters.

use serde_json::json;
use tidemill_model::{ErrorCategory, JobId, JobStatus, KnownType, Outcome, PublicState, TaskState};

use super::lab::{completed, is_lease_lost, is_not_found};
use super::leases::beat;
use super::shape::{HOUR, acme, alone, property, request, task_id, types, worker};
use super::{Lab, TestWorld};
use tidemill_engine::commit::MessageId;
use tidemill_engine::engine::EngineError;
use tidemill_engine::record::{DeadLetter, DeadLetterState};
use tidemill_engine::reply::{Ending, Refusal};

async fn cancel<W: TestWorld>(lab: &Lab<W>, job: JobId) -> usize {
    let reason = Some("wrong input".to_owned());
    lab.engine.cancel(acme(), job, "ann".to_owned(), reason).await.expect("the job may be cancelled").len()
}

/// Everything active ends in one commit: fences raised, messages gone, undispatched tasks untouched, no failure told.
pub async fn cancel_ends_everything_active<W: TestWorld>(lab: Lab<W>) {
    let job = lab.submit("a b c<a d<c").await;
    lab.submit("x").await;
    let tasks = lab.claim(2).await;
    lab.complete(&tasks[0], "{}").await;
    let held = &tasks[1];
    assert_eq!(held.spec.task_id.as_str(), "b");
    assert_eq!(cancel(&lab, job).await, 2, "b at work and c waiting for a worker");
    assert_eq!(lab.status(job).await, JobStatus::Cancelled);

    let history = lab.job_history(job).await;
    assert_eq!(types(&history), ["Job Created", "Job Cancelled"], "no Job Failure Detected");
    assert_eq!(property(&history[1], "by"), "ann");
    assert_eq!(property(&history[1], "reason"), "wrong input");
    for name in ["b", "c"] {
        let task = job.request_id(&task_id(name));
        let event = lab.history(&task).await.pop().expect("there is a history");
        assert_eq!(event.event_type.as_str(), "Task Failed");
        assert_eq!(property(&event, "errorCategory"), "cancelled");
        assert_eq!(property(&event, "source"), "api");
        assert_eq!(lab.head(&task).await.state, TaskState::Done(Outcome::Cancelled));
    }
    assert_eq!(lab.state(job, "a").await, Some(PublicState::Completed));
    assert_eq!(lab.state(job, "d").await, None);
    assert!(lab.head(&held.task.request).await.fence > held.fence, "raised");
    assert!(is_lease_lost(&lab.engine.heartbeat(beat(held)).await), "so the worker hears of it");
    assert!(is_lease_lost(&lab.report(held, completed("{}")).await));
    assert_eq!(lab.engine.queue_depth().await.expect("the backend works").messages, 1, "only x is left");
    lab.run(&["x"]).await;
    assert_eq!(lab.engine.sweep().await.expect("the backend works"), 0);
    lab.check_job(job).await;
}

/// Cancelling again changes nothing; a completed job cannot be cancelled.
pub async fn cancel_may_be_repeated<W: TestWorld>(lab: Lab<W>) {
    let job = lab.submit("a").await;
    assert_eq!(cancel(&lab, job).await, 1);
    assert_eq!(cancel(&lab, job).await, 0);
    assert_eq!(lab.count(KnownType::JobCancelled).await, 1);
    let done = lab.submit("a").await;
    lab.run(&["a"]).await;
    let answer = lab.engine.cancel(acme(), done, "ann".to_owned(), None).await;
    assert!(matches!(answer, Err(EngineError::Refused(Refusal::JobCompleted(_)))), "{answer:?}");
    let answer = lab.engine.cancel(acme(), job, String::new(), None).await;
    assert!(matches!(answer, Err(EngineError::Invalid { .. })), "{answer:?}");
    let answer = lab.engine.cancel(acme(), job, "ann".to_owned(), Some("x".repeat(2_001))).await;
    let error = answer.expect_err("the reason is too long").to_string();
    assert_eq!(error, "reason is 2001 characters long; the limit is 2000");
}

/// A cancelled job may go on: new runs, higher fences, and in the end it completes.
pub async fn resume_reopens_a_cancelled_job<W: TestWorld>(lab: Lab<W>) {
    let job = lab.submit("a b c<a+b").await;
    let before = lab.claim(1).await.remove(0);
    cancel(&lab, job).await;
    lab.pass(5);
    let resumed = lab.engine.resume_job(acme(), job, None).await.expect("two tasks were cancelled");
    assert_eq!(resumed.len(), 2);
    assert_eq!(lab.status(job).await, JobStatus::Running);
    lab.check_job(job).await;
    let tasks = lab.claim(9).await;
    assert_eq!(tasks.iter().map(|task| (task.run, task.attempt)).collect::<Vec<_>>(), [(2, 1), (2, 1)]);
    let same = tasks.iter().find(|task| task.task == before.task).expect("it is resumed");
    assert!(same.fence.0 > before.fence.0 + 1, "above the one that the cancel raised");
    assert!(is_lease_lost(&lab.report(&before, completed("{}")).await));
    for task in &tasks {
        lab.complete(task, "{}").await;
    }
    lab.run(&["c"]).await;
    assert_eq!(lab.status(job).await, JobStatus::Completed);
    lab.check_job(job).await;
}

/// Only what failed runs again, as a new run with a growing fence; what is completed stays.
pub async fn resume_opens_a_new_run<W: TestWorld>(lab: Lab<W>) {
    let job = lab.submit("a b c<b").await;
    let tasks = lab.claim(2).await;
    lab.complete(&tasks[0], "{}").await;
    let mut last = tasks[1].clone();
    for run in 2..=4u32 {
        lab.fail(&last, ErrorCategory::Validation).await;
        let resumed = lab.engine.resume_job(acme(), job, None).await.expect("b failed");
        assert_eq!(resumed, [last.task.request.clone()]);
        let pending = lab.history(&last.task.request).await.pop().expect("there is a history");
        assert_eq!((pending.event_type.as_str(), property(&pending, "run")), ("Task Pending", json!(run)));
        let head = lab.head(&last.task.request).await;
        assert_eq!((head.run, head.attempts, head.takeovers), (run, 0, 0));
        assert_eq!(lab.state(job, "b").await, Some(PublicState::Pending));
        let again = lab.claim_one().await;
        assert_eq!((again.run, again.attempt), (run, 1));
        assert!(again.fence > last.fence, "never resets");
        assert!(is_lease_lost(&lab.report(&last, completed("{}")).await), "the old run cannot write");
        last = again;
    }
    lab.complete(&last, "{}").await;
    lab.run(&["c"]).await;
    assert_eq!(lab.count(KnownType::JobCompleted).await, 1);
    lab.check_job(job).await;
}

/// Named tasks only, each of which must have failed; otherwise nothing happens.
pub async fn resume_takes_names_and_refuses_others<W: TestWorld>(lab: Lab<W>) {
    let job = lab.submit("a b c d<c").await;
    for task in &lab.claim(3).await[..2] {
        lab.fail(task, ErrorCategory::Auth).await;
    }
    let before = lab.job(job).await;
    let resume = |names: &[&str]| {
        let tasks = names.iter().map(|name| task_id(name)).collect();
        lab.engine.resume_job(acme(), job, Some(tasks))
    };
    assert!(matches!(resume(&["a", "c"]).await, Err(EngineError::Refused(Refusal::NotResumable(_)))));
    assert!(matches!(resume(&["d"]).await, Err(EngineError::Refused(Refusal::NotResumable(_)))));
    assert!(matches!(resume(&[]).await, Err(EngineError::Refused(Refusal::NothingToResume))));
    assert!(is_not_found(&resume(&["a", "zz"]).await));
    assert!(is_not_found(&lab.engine.resume_job(acme(), JobId::from_u128(9), None).await));
    assert!(is_not_found(&lab.engine.resume_task(acme(), request("zz")).await));
    assert_eq!(lab.job(job).await, before, "nothing changed");
    assert_eq!(resume(&["b", "b"]).await.expect("b failed").len(), 1);
    assert_eq!(lab.engine.resume_job(acme(), job, None).await.expect("a failed").len(), 1);
    let answer = lab.engine.resume_job(acme(), job, None).await;
    assert!(matches!(answer, Err(EngineError::Refused(Refusal::NothingToResume))), "{answer:?}");
    lab.check_job(job).await;
}

async fn exhaust<W: TestWorld>(lab: &Lab<W>) {
    for _ in 0..3 {
        let task = lab.claim_one().await;
        if let Ending::Retrying { at } = lab.fail(&task, ErrorCategory::Network).await {
            lab.pass(at.since(lab.now()));
        }
    }
}

async fn letters<W: TestWorld>(lab: &Lab<W>, state: Option<DeadLetterState>) -> Vec<DeadLetter> {
    lab.engine.dead_letters(acme(), state, None, 100).await.expect("the backend works").letters
}

/// A dead letter is kept, listed and can be run again; it is then marked and not lost.
pub async fn a_dead_letter_can_be_replayed<W: TestWorld>(lab: Lab<W>) {
    let job = lab.submit("a b<a").await;
    exhaust(&lab).await;
    lab.pass(24 * HOUR);
    let open = letters(&lab, Some(DeadLetterState::Open)).await;
    assert_eq!(open.len(), 1);
    let a = job.request_id(&task_id("a"));
    assert_eq!(lab.engine.replay(acme(), open[0].message).await.expect("it is open"), a);
    assert_eq!(lab.status(job).await, JobStatus::Running);
    lab.check_job(job).await;
    lab.run(&["a"]).await;
    lab.run(&["b"]).await;
    assert!(letters(&lab, Some(DeadLetterState::Open)).await.is_empty());
    assert_eq!(
        letters(&lab, None).await,
        [DeadLetter { state: DeadLetterState::Replayed, ..open[0].clone() }]
    );
    let answer = lab.engine.replay(acme(), open[0].message).await;
    assert!(matches!(answer, Err(EngineError::Refused(Refusal::NotOpen(_)))), "{answer:?}");
    lab.check_job(job).await;
}

/// A letter whose task has moved on cannot fail or repeat it.
pub async fn a_dead_letter_of_a_finished_task_changes_nothing<W: TestWorld>(lab: Lab<W>) {
    lab.engine.submit_task(alone("t-1")).await.expect("the task is accepted");
    exhaust(&lab).await;
    let letter = letters(&lab, None).await.remove(0);
    lab.engine.resume_task(acme(), request("t-1")).await.expect("it failed");
    lab.run(&["task"]).await;
    let before = lab.history(&request("t-1")).await;
    let is_closed = |answer: Result<_, EngineError>| {
        assert!(matches!(answer, Err(EngineError::Refused(Refusal::NotOpen(_)))), "{answer:?}");
    };
    is_closed(lab.engine.replay(acme(), letter.message).await.map(drop));
    is_closed(lab.engine.discard(acme(), letter.message).await);
    assert_eq!(letters(&lab, None).await[0].state, DeadLetterState::Replayed, "kept");
    assert!(is_not_found(&lab.engine.discard(acme(), MessageId(1)).await));
    assert_eq!(lab.history(&request("t-1")).await, before);
    assert!(lab.claim(1).await.is_empty());
}

/// The dead letters of work that runs again are closed, no matter which command lets it run again. Discarded ones
/// stay discarded, and a run that is given up again has its own letter.
pub async fn a_resume_closes_dead_letters<W: TestWorld>(lab: Lab<W>) {
    let states = async |lab: &Lab<W>| -> Vec<(u32, DeadLetterState)> {
        let mut states: Vec<_> =
            letters(lab, None).await.iter().map(|letter| (letter.run, letter.state)).collect();
        states.sort_by_key(|(run, _)| *run);
        states
    };
    let (open, replayed, discarded) =
        (DeadLetterState::Open, DeadLetterState::Replayed, DeadLetterState::Discarded);
    let job = lab.submit("a b<a").await;
    exhaust(&lab).await;
    assert_eq!(states(&lab).await, [(1, open)]);
    let lab = lab.reopen_if_it_can().await;
    lab.engine.resume_job(acme(), job, None).await.expect("a failed");
    assert_eq!(states(&lab).await, [(1, replayed)]);
    exhaust(&lab).await;
    assert_eq!(states(&lab).await, [(1, replayed), (2, open)]);
    let second = letters(&lab, Some(open)).await.remove(0);
    lab.engine.discard(acme(), second.message).await.expect("it is open");
    lab.engine.resume_task(acme(), second.request).await.expect("it failed");
    assert_eq!(states(&lab).await, [(1, replayed), (2, discarded)]);
    exhaust(&lab).await;
    let lab = lab.reopen_if_it_can().await;
    let named = vec![task_id("a")];
    lab.engine.resume_job(acme(), job, Some(named)).await.expect("a failed");
    lab.run(&["a"]).await;
    lab.run(&["b"]).await;
    assert_eq!(lab.status(job).await, JobStatus::Completed);
    let lab = lab.reopen_if_it_can().await;
    assert_eq!(states(&lab).await, [(1, replayed), (2, discarded), (3, replayed)]);
    assert!(letters(&lab, Some(open)).await.is_empty(), "what was done needs nobody");
    lab.check_job(job).await;
}

/// A replay in a cancelled job opens the job as well.
pub async fn a_replay_reopens_a_cancelled_job<W: TestWorld>(lab: Lab<W>) {
    let job = lab.submit("a b c<a").await;
    let tasks = lab.claim(2).await;
    lab.complete(&tasks[1], "{}").await;
    lab.engine
        .release(tasks[0].task.clone(), tasks[0].fence, worker("worker-1"), None)
        .await
        .expect("it is held");
    exhaust(&lab).await;
    cancel(&lab, job).await;
    assert_eq!(lab.status(job).await, JobStatus::Cancelled);
    lab.pass(5);
    let letter = letters(&lab, None).await.remove(0);
    lab.engine.replay(acme(), letter.message).await.expect("it is open");
    assert_eq!(lab.status(job).await, JobStatus::Running);
    lab.check_job(job).await;
    lab.run(&["a"]).await;
    lab.run(&["c"]).await;
    assert_eq!(lab.status(job).await, JobStatus::Completed);
    lab.check_job(job).await;
}

/// Dead letters are listed by pages, oldest first.
pub async fn dead_letters_are_listed_by_pages<W: TestWorld>(lab: Lab<W>) {
    for n in 0..5 {
        lab.engine.submit_task(alone(&format!("t-{n}"))).await.expect("the task is accepted");
        exhaust(&lab).await;
    }
    let all = letters(&lab, None).await;
    assert_eq!(
        all.iter().map(|letter| letter.request.as_str()).collect::<Vec<_>>(),
        ["t-0", "t-1", "t-2", "t-3", "t-4"]
    );
    lab.engine.discard(acme(), all[1].message).await.expect("it is open");
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = lab.engine.dead_letters(acme(), Some(DeadLetterState::Open), after, 2).await;
        let page = page.expect("the backend works");
        assert!(page.letters.len() <= 2);
        found.extend(page.letters.iter().map(|letter| letter.request.to_string()));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(found, ["t-0", "t-2", "t-3", "t-4"]);
}
