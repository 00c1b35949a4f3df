//! Why a task failed, behind what ended it.

use tidemill_model::work::last_error::{RECEIVED_TOO_OFTEN, RETRIES_EXHAUSTED};
use tidemill_model::{ErrorCategory, LastError, OnFailure};

use super::parking::{failing, unpark};
use super::queue::receive;
use super::shape::{LEASE, SECOND, acme, alone, key, request, worker};
use super::{Lab, TestWorld};
use tidemill_engine::engine::{Signal, TaskDetail, TaskRequest, WorkReport};
use tidemill_engine::record::DeadLetter;
use tidemill_engine::reply::Ending;

/// What an interpreter prints.
const TRACEBACK: &str = "exit code 1: Traceback:\n  File \"x.py\", line 3\nValueError: bad row";

async fn detail<W: TestWorld>(lab: &Lab<W>, id: &str) -> TaskDetail {
    lab.world.settled().await;
    lab.engine.task_detail(key(id)).await.expect("the backend works").expect("the task is there")
}

async fn told<W: TestWorld>(lab: &Lab<W>, id: &str) -> Option<(String, ErrorCategory)> {
    detail(lab, id).await.last_error.map(|last| (last.message, last.category))
}

async fn letter<W: TestWorld>(lab: &Lab<W>, id: &str) -> DeadLetter {
    let letters = lab.engine.dead_letters(acme(), None, None, 100).await.expect("the backend works").letters;
    letters.into_iter().find(|letter| letter.request == request(id)).expect("it has a letter")
}

/// Fails the task `times` times, each time with the next of these words.
async fn fail<W: TestWorld>(lab: &Lab<W>, words: &[&str]) -> Ending {
    let mut ending = Ending::Parked;
    for said in words {
        let task = lab.claim_one().await;
        let report = WorkReport::failed(*said, ErrorCategory::Network);
        ending = lab.report(&task, report).await.expect("the outcome is taken").ending;
        if let Ending::Retrying { at } = ending {
            lab.pass(at.since(lab.now()));
        }
    }
    ending
}

/// The message of the last attempt is shown while the task is tried again, when no attempt is left, in its dead
/// letter, in the list of a job, and after a restart; a new run begins without.
pub async fn the_last_error_is_what_the_last_attempt_said<W: TestWorld>(lab: Lab<W>) {
    lab.engine.submit_task(alone("t-1")).await.expect("the task is accepted");
    assert_eq!(told(&lab, "t-1").await, None);
    fail(&lab, &["first"]).await;
    assert_eq!(told(&lab, "t-1").await, Some(("first".to_owned(), ErrorCategory::Network)));
    // One that was given back is no attempt.
    let task = lab.claim_one().await;
    let reason = Some("the worker stops".to_owned());
    lab.engine.release(task.task, task.fence, worker("worker-1"), reason).await.expect("it is held");
    assert_eq!(told(&lab, "t-1").await, Some(("first".to_owned(), ErrorCategory::Network)));
    fail(&lab, &["second", TRACEBACK]).await;
    let job = lab.submit("a b").await;
    let tasks = lab.claim(2).await;
    lab.report(&tasks[0], WorkReport::failed("no such row", ErrorCategory::NotFound)).await.expect("taken");
    lab.complete(&tasks[1], "{}").await;

    let lab = lab.reopen_if_it_can().await;
    let known = LastError::new(TRACEBACK, ErrorCategory::Network);
    let ended = detail(&lab, "t-1").await;
    assert_eq!(ended.error.as_deref(), Some(RETRIES_EXHAUSTED), "the event's own words");
    assert_eq!(ended.last_error.as_ref(), Some(&known));
    let kept = letter(&lab, "t-1").await;
    assert_eq!((&*kept.reason, kept.last_error), (RETRIES_EXHAUSTED, Some(known)));
    lab.world.settled().await;
    let listed = lab.engine.job_task_details(acme(), job, 0, 10).await.expect("the backend works");
    let listed: Vec<_> = listed.into_iter().map(|task| task.last_error).collect();
    assert_eq!(listed, [Some(LastError::new("no such row", ErrorCategory::NotFound)), None]);

    lab.engine.resume_task(acme(), request("t-1")).await.expect("it failed");
    assert_eq!(told(&lab, "t-1").await, None, "another run");
    lab.run(&["task"]).await;
    assert_eq!(told(&lab, "t-1").await, None, "it is completed");
}

/// A task that ends without the words of an attempt says why, or nothing.
pub async fn every_end_has_its_last_error<W: TestWorld>(lab: Lab<W>) {
    let submit = async |request: TaskRequest| {
        lab.engine.submit_task(request).await.expect("the task is accepted");
    };
    submit(alone("timed-out")).await;
    let report = WorkReport::timed_out(1_000, 1_001, Signal::Kill);
    lab.report(&lab.claim_one().await, report).await.expect("the outcome is taken");
    let late = ("timed out after 1000 ms".to_owned(), ErrorCategory::Timeout);
    assert_eq!(told(&lab, "timed-out").await, Some(late));

    let cancel = async |id: &str| {
        let cancelled = lab.engine.cancel_task(acme(), request(id), "ann".to_owned(), None).await;
        cancelled.expect("it waits");
    };
    submit(alone("cancelled")).await;
    cancel("cancelled").await;
    assert_eq!(told(&lab, "cancelled").await, None, "nothing went wrong");
    submit(alone("given-up")).await;
    fail(&lab, &["no route"]).await;
    cancel("given-up").await;
    assert_eq!(told(&lab, "given-up").await, Some(("no route".to_owned(), ErrorCategory::Network)));

    submit(alone("silent")).await;
    for _ in 0..11 {
        lab.claim_one().await;
        lab.pass(LEASE + 2);
    }
    assert!(lab.claim(1).await.is_empty(), "not once more");
    let silent = "taken from silent workers too often, moved to DLQ".to_owned();
    assert_eq!(told(&lab, "silent").await, Some((silent.clone(), ErrorCategory::Unknown)));
    assert_eq!(letter(&lab, "silent").await.last_error, Some(LastError::new(silent, ErrorCategory::Unknown)));

    submit(alone("received")).await;
    fail(&lab, &["no route"]).await;
    for expected in [1, 1, 1, 0] {
        assert_eq!(receive(&lab, Some(SECOND)).await.len(), expected);
        lab.pass(SECOND);
    }
    let received = (RECEIVED_TOO_OFTEN.to_owned(), ErrorCategory::Network);
    assert_eq!(told(&lab, "received").await, Some(received));

    let mut parking = alone("parked");
    parking.options.on_failure = OnFailure::Park;
    submit(parking).await;
    assert_eq!(fail(&lab, &["one", "two", "three"]).await, Ending::Parked);
    let three = Some(("three".to_owned(), ErrorCategory::Network));
    assert_eq!(told(&lab, "parked").await, three);
    unpark(&lab, &request("parked"), failing()).await.expect("it is parked");
    assert_eq!(told(&lab, "parked").await, three, "whoever failed it is told beside it");
    assert_ne!(detail(&lab, "parked").await.error.as_deref(), Some("three"));
}
