//! Failures: which are tried again, when, and what happens when no attempt is left.

use tidemill_model::{ErrorCategory, KnownType, Outcome, PublicState, RetryPolicy};

use super::lab::completed;
use super::leases::duplicate;
use super::shape::{SECOND, acme, alone, job_of, property, request, spec, task_id, types};
use super::{Lab, TestWorld};
use tidemill_engine::engine::{Signal, WorkReport};
use tidemill_engine::record::DeadLetterState;
use tidemill_engine::reply::Ending;

fn retrying_after<W: TestWorld>(lab: &Lab<W>, ending: Ending) -> u64 {
    match ending {
        Ending::Retrying { at } => at.since(lab.now()),
        Ending::Done(_) | Ending::Parked => panic!("another attempt follows, not {ending:?}"),
    }
}

/// About 5 s, then about 10 s, then no more; the lease is free at once and the state stays `processing`.
pub async fn retries_follow_the_schedule<W: TestWorld>(lab: Lab<W>) {
    lab.engine.submit_task(alone("t-1")).await.expect("the task is accepted");
    for (attempt, middle) in [(1, 5 * SECOND), (2, 10 * SECOND)] {
        let task = lab.claim_one().await;
        assert_eq!(task.attempt, attempt);
        let delay = retrying_after(&lab, lab.fail(&task, ErrorCategory::Network).await);
        assert!((middle * 4 / 5..=middle * 6 / 5).contains(&delay), "attempt {attempt}: {delay} ms");
        assert_eq!(lab.task(&request("t-1")).await.state, Some(PublicState::Processing));
        lab.check_task(&request("t-1")).await;
        lab.pass(delay - 1);
        assert!(lab.claim(1).await.is_empty(), "a millisecond early");
        lab.pass(1);
    }
    let task = lab.claim_one().await;
    assert_eq!(task.attempt, 3);
    lab.complete(&task, "{}").await;
    let numbers: Vec<_> = lab.history(&request("t-1")).await;
    let failures = numbers.iter().filter(|event| event.event_type.as_str() == "Task Processing Failed");
    assert_eq!(failures.map(|event| property(event, "attemptNumber")).collect::<Vec<_>>(), [1, 2]);
    lab.check_task(&request("t-1")).await;
}

/// The third failure is the last: the message is kept as a dead letter and the task fails, told by the queue.
pub async fn exhaustion_makes_a_dead_letter_and_fails_the_task<W: TestWorld>(lab: Lab<W>) {
    lab.engine.submit_task(alone("t-1")).await.expect("the task is accepted");
    for _ in 0..2 {
        let task = lab.claim_one().await;
        let delay = retrying_after(&lab, lab.fail(&task, ErrorCategory::RateLimit).await);
        lab.pass(delay);
    }
    let task = lab.claim_one().await;
    assert_eq!(lab.fail(&task, ErrorCategory::ServerError).await, Ending::Done(Outcome::Failed));
    let mut history = lab.history(&request("t-1")).await;
    let expected = ["Task Processing Started", "Task Processing Failed"].repeat(3);
    assert_eq!(types(&history), [vec!["Task Pending"], expected, vec!["Task Failed"]].concat());
    let failed = history.pop().expect("there is a history");
    assert_eq!(property(&failed, "source"), "dlq");
    assert_eq!(property(&failed, "retryCount"), 3);
    assert_eq!(property(&failed, "errorCategory"), "server-error");
    assert_eq!(property(&failed, "error"), "max retries exhausted, moved to DLQ");
    assert_eq!(&*failed.context.origin, "dlq-processor");
    let page = lab.engine.dead_letters(acme(), None, None, 10).await.expect("the backend works");
    let [letter] = page.letters.as_slice() else { panic!("one letter: {page:?}") };
    assert_eq!((&letter.request, letter.run, letter.state), (&request("t-1"), 1, DeadLetterState::Open));
    lab.pass(24 * super::shape::HOUR);
    assert!(lab.claim(1).await.is_empty(), "no fourth execution");
    lab.check_task(&request("t-1")).await;
}

/// An error that no further attempt can help ends the run at once, told by the worker, and once.
pub async fn a_final_failure_ends_the_task_once<W: TestWorld>(lab: Lab<W>) {
    let job = lab.submit("a b<a").await;
    let task = lab.claim_one().await;
    assert_eq!(lab.fail(&task, ErrorCategory::Auth).await, Ending::Done(Outcome::Failed));
    let history = lab.history(&task.task.request).await;
    assert_eq!(types(&history), ["Task Pending", "Task Processing Started", "Task Failed"]);
    assert_eq!(property(&history[2], "source"), "worker");
    assert_eq!(property(&history[2], "retryCount"), 1);
    assert_eq!(property(&history[2], "error"), "it broke");
    assert!(lab.claim(1).await.is_empty());
    let letters = lab.engine.dead_letters(acme(), None, None, 10).await.expect("the backend works");
    assert!(letters.letters.is_empty());
    assert_eq!(lab.count(KnownType::JobFailureDetected).await, 1);
    assert_eq!(lab.state(job, "b").await, None);
    lab.check_job(job).await;
}

/// Every category is tried again or not, as the table of the model says.
pub async fn the_category_decides_whether_it_is_tried_again<W: TestWorld>(lab: Lab<W>) {
    for category in ErrorCategory::ALL.into_iter().filter(|category| *category != ErrorCategory::Cancelled) {
        let id = format!("t-{}", category.as_str());
        lab.engine.submit_task(alone(&id)).await.expect("the task is accepted");
        let task = lab.claim_one().await;
        let ending = lab.fail(&task, category).await;
        assert_eq!(matches!(ending, Ending::Retrying { .. }), category.is_retryable(), "{category:?}");
        lab.check_task(&request(&id)).await;
    }
}

/// With `onTimeout` a timeout is a failed attempt of the category `timeout` that is tried again; the last one is terminal.
pub async fn a_timeout_is_tried_again_if_the_task_asks_for_it<W: TestWorld>(lab: Lab<W>) {
    let mut task = alone("t-1");
    task.options.retry = Some(RetryPolicy { on_timeout: true, ..RetryPolicy::default() });
    lab.engine.submit_task(task).await.expect("the task is accepted");
    let late = || WorkReport::timed_out(1_000, 1_001, Signal::Term);
    for (attempt, middle) in [(1, 5 * SECOND), (2, 10 * SECOND)] {
        let task = lab.claim_one().await;
        assert_eq!(task.attempt, attempt);
        let ending = lab.report(&task, late()).await.expect("the outcome is taken").ending;
        let again = lab.report(&task, late()).await.expect("it is known");
        assert_eq!((again.ending, again.repeated), (ending, true));
        let delay = retrying_after(&lab, ending);
        assert!((middle * 4 / 5..=middle * 6 / 5).contains(&delay), "attempt {attempt}: {delay} ms");
        lab.check_task(&request("t-1")).await;
        lab.pass(delay);
    }
    let task = lab.claim_one().await;
    let ending = lab.report(&task, late()).await.expect("the outcome is taken").ending;
    assert_eq!(ending, Ending::Done(Outcome::TimedOut));
    let history = lab.history(&request("t-1")).await;
    let attempt = ["Task Processing Started", "Task Processing Failed"];
    let last = ["Task Processing Started", "Task Timeout"];
    assert_eq!(types(&history), [&["Task Pending"], &attempt[..], &attempt[..], &last[..]].concat());
    assert_eq!(property(&history[2], "errorCategory"), "timeout");
    assert_eq!(property(&history[2], "error"), "timed out after 1000 ms");
    assert_eq!(
        (property(&history[2], "attemptNumber"), property(&history[4], "attemptNumber")),
        (1.into(), 2.into())
    );
    let letters = lab.engine.dead_letters(acme(), None, None, 10).await.expect("the backend works");
    assert!(letters.letters.is_empty(), "a timeout is no dead letter");
    lab.check_task(&request("t-1")).await;
    // What succeeds in time ends the task as ever.
    let mut task = alone("t-2");
    task.options.retry = Some(RetryPolicy { on_timeout: true, ..RetryPolicy::default() });
    lab.engine.submit_task(task).await.expect("the task is accepted");
    let first = lab.claim_one().await;
    let delay = retrying_after(&lab, lab.report(&first, late()).await.expect("the outcome is taken").ending);
    lab.pass(delay);
    lab.run(&["task"]).await;
    lab.check_task(&request("t-2")).await;
}

/// A timeout is terminal, counts as an attempt and tells the job.
pub async fn a_timeout_is_terminal<W: TestWorld>(lab: Lab<W>) {
    let job = lab.submit("a b<a").await;
    let task = lab.claim_one().await;
    let report = WorkReport::timed_out(200_000, 205_003, Signal::Kill);
    let ending = lab.report(&task, report).await.expect("the outcome is taken").ending;
    assert_eq!(ending, Ending::Done(Outcome::TimedOut));
    let event = lab.history(&task.task.request).await.pop().expect("there is a history");
    assert_eq!(event.event_type.as_str(), "Task Timeout");
    assert_eq!(property(&event, "timeoutMs"), 200_000);
    assert_eq!(property(&event, "elapsedMs"), 205_003);
    assert_eq!(property(&event, "signal"), "SIGKILL");
    assert_eq!(lab.state(job, "a").await, Some(PublicState::Failed));
    assert_eq!(lab.count(KnownType::JobFailureDetected).await, 1);
    assert!(lab.claim(1).await.is_empty());
    lab.check_job(job).await;
    lab.engine.resume_job(acme(), job, None).await.expect("it may be resumed");
    lab.run(&["a"]).await;
    lab.run(&["b"]).await;
    lab.check_job(job).await;
}

/// A task's own policy replaces the default.
pub async fn a_tasks_own_policy_rules<W: TestWorld>(lab: Lab<W>) {
    let mut once = spec("once", &[]);
    once.options.retry = Some(RetryPolicy { max_attempts: 1, first_delay: 1, ..RetryPolicy::default() });
    let mut often = spec("often", &[]);
    often.options.retry =
        Some(RetryPolicy { max_attempts: 5, first_delay: 100, max_delay: 300, ..RetryPolicy::default() });
    let job = lab.engine.submit_job(job_of(vec![once, often])).await.expect("the job is accepted").job;
    let mut attempts = 0;
    for _ in 0..8 {
        for task in lab.claim(2).await {
            attempts += 1;
            if let Ending::Retrying { at } = lab.fail(&task, ErrorCategory::Unknown).await {
                assert!(at.since(lab.now()) <= 360, "the cap and a fifth");
            }
        }
        lab.pass(400);
    }
    assert_eq!(attempts, 1 + 5);
    assert_eq!(lab.head(&job.request_id(&task_id("often"))).await.attempts, 5);
    lab.check_job(job).await;
}

/// The failing side may ask for more time than the schedule gives, not for less.
pub async fn a_longer_delay_that_was_asked_for_wins<W: TestWorld>(lab: Lab<W>) {
    for (id, asked, least) in [("t-1", 60 * SECOND, 60 * SECOND), ("t-2", 1, 4 * SECOND)] {
        lab.engine.submit_task(alone(id)).await.expect("the task is accepted");
        let task = lab.claim_one().await;
        let report = WorkReport::Failed {
            error: "slow down".to_owned(),
            category: ErrorCategory::RateLimit,
            retry_after_millis: Some(asked),
            code: None,
            usage: None,
            session_id: None,
        };
        let ending = lab.report(&task, report).await.expect("the outcome is taken").ending;
        assert!(retrying_after(&lab, ending) >= least, "{id}: {ending:?}");
    }
}

/// A second message of the same task does not start the next attempt early.
pub async fn a_duplicate_does_not_cut_the_delay_short<W: TestWorld>(lab: Lab<W>) {
    lab.engine.submit_task(alone("t-1")).await.expect("the task is accepted");
    let task = lab.claim_one().await;
    let delay = retrying_after(&lab, lab.fail(&task, ErrorCategory::Network).await);
    lab.engine.send(duplicate("t-1", 1)).await.expect("the message is accepted");
    assert!(lab.claim(1).await.is_empty());
    lab.pass(delay - 1);
    assert!(lab.claim(1).await.is_empty());
    lab.pass(1);
    let again = lab.claim_one().await;
    assert_eq!(again.attempt, 2);
    lab.report(&again, completed("{}")).await.expect("the outcome is taken");
}

/// An error text is cut, not refused: a failure must not get lost because it is long.
pub async fn a_long_error_is_cut<W: TestWorld>(lab: Lab<W>) {
    lab.engine.submit_task(alone("t-1")).await.expect("the task is accepted");
    let task = lab.claim_one().await;
    let report = WorkReport::failed("é".repeat(1_000_000), ErrorCategory::Programming);
    lab.report(&task, report).await.expect("the outcome is taken");
    let event = lab.history(&request("t-1")).await.pop().expect("there is a history");
    assert_eq!(property(&event, "error").as_str().map(|text| text.chars().count()), Some(2_000));
}
