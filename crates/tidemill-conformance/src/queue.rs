//! The queue: visibility, receive counts, receipts, delays, waiting, dead letters.

use std::pin::pin;

use tidemill_model::{Outcome, PublicState, RequestId, TaskState, TenantId};

use super::shape::{MINUTE, SECOND, acme, alone, app, json, key, other, property, request, tenants, types};
use super::{Lab, TestWorld, poll_once};
use tidemill_engine::commit::Receipt;
use tidemill_engine::engine::limits::{DELAY_MILLIS_MAX, VISIBILITY_MILLIS_MAX};
use tidemill_engine::engine::{DeliveredMessage, EngineError, NewMessage};
use tidemill_engine::record::DeadLetterState;

/// A message for a task of any tenant.
pub(super) fn message_for(tenant: TenantId, task: &RequestId) -> NewMessage {
    NewMessage {
        tenant,
        app: app("orders"),
        request: Some(task.clone()),
        name: alone("unused").name,
        input: json("{}"),
        run: 1,
        delay_millis: 0,
    }
}

async fn send<W: TestWorld>(lab: &Lab<W>, id: &str, delay_millis: u64) {
    let message = NewMessage { delay_millis, ..message_for(acme(), &request(id)) };
    lab.engine.send(message).await.expect("the message is accepted");
}

pub(super) async fn receive<W: TestWorld>(
    lab: &Lab<W>,
    visibility_millis: Option<u64>,
) -> Vec<DeliveredMessage> {
    lab.engine.receive(None, 10, visibility_millis).await.expect("the backend works").messages
}

async fn depth<W: TestWorld>(lab: &Lab<W>) -> (usize, usize) {
    let depth = lab.engine.queue_depth().await.expect("the backend works");
    (depth.messages, depth.ready)
}

/// A message is hidden for as long as the receiver asked, then comes again with a higher count.
pub async fn a_received_message_is_hidden_for_a_while<W: TestWorld>(lab: Lab<W>) {
    send(&lab, "t-1", 0).await;
    for (count, (asked, hidden)) in (1..).zip([(Some(5 * SECOND), 5 * SECOND), (None, 30 * SECOND)]) {
        let received = receive(&lab, asked).await;
        assert_eq!(received.iter().map(|delivery| delivery.deliveries).collect::<Vec<_>>(), [count]);
        assert_eq!(received[0].message.task, key("t-1"));
        assert_eq!(depth(&lab).await, (1, 0));
        lab.pass(hidden - 1);
        assert!(receive(&lab, asked).await.is_empty(), "delivery {count}");
        lab.pass(1);
        assert_eq!(depth(&lab).await, (1, 1));
    }
    assert_eq!(receive(&lab, Some(SECOND)).await.len(), 1);
}

/// Longer, shorter, or at once: by the receipt of the newest delivery.
pub async fn visibility_can_be_changed<W: TestWorld>(lab: Lab<W>) {
    send(&lab, "t-1", 0).await;
    let receipt = receive(&lab, Some(10 * SECOND)).await[0].receipt;
    let change = |millis| lab.engine.change_visibility(Some(acme()), receipt, millis);
    assert!(change(MINUTE).await.expect("the backend works"));
    lab.pass(MINUTE - 1);
    assert!(receive(&lab, None).await.is_empty());
    assert!(change(0).await.expect("the backend works"), "it is still the newest delivery");
    let again = receive(&lab, Some(SECOND)).await;
    assert_eq!(again[0].deliveries, 2, "a change of visibility is no delivery");
    assert!(!change(MINUTE).await.expect("the backend works"), "the receipt is old");
    lab.pass(SECOND);
    assert_eq!(receive(&lab, None).await.len(), 1);
}

/// A receipt that is not the newest neither deletes nor hides.
pub async fn a_stale_receipt_has_no_effect<W: TestWorld>(lab: Lab<W>) {
    send(&lab, "t-1", 0).await;
    let old = receive(&lab, Some(SECOND)).await[0].receipt;
    lab.pass(SECOND);
    let new = receive(&lab, Some(SECOND)).await[0].receipt;
    assert!(!lab.engine.delete(Some(acme()), old).await.expect("the backend works"));
    let future = Receipt { delivery: new.delivery + 1, ..new };
    assert!(!lab.engine.delete(Some(acme()), future).await.expect("the backend works"));
    assert_eq!(depth(&lab).await.0, 1);
    assert!(lab.engine.delete(Some(acme()), new).await.expect("the backend works"));
    assert!(!lab.engine.delete(Some(acme()), new).await.expect("the backend works"), "once");
    assert_eq!(depth(&lab).await, (0, 0));
    lab.pass(MINUTE);
    assert!(receive(&lab, None).await.is_empty(), "gone for good");
}

/// A claim makes the receipts before it stale, as any delivery does.
pub async fn a_claim_makes_older_receipts_stale<W: TestWorld>(lab: Lab<W>) {
    lab.engine.submit_task(alone("t-1")).await.expect("the task is accepted");
    let old = receive(&lab, Some(SECOND)).await[0].receipt;
    lab.pass(SECOND);
    let task = lab.claim_one().await;
    assert!(!lab.engine.delete(None, old).await.expect("the backend works"));
    assert!(!lab.engine.change_visibility(None, old, 0).await.expect("the backend works"));
    assert!(lab.claim(1).await.is_empty());
    lab.complete(&task, "{}").await;
}

/// Not before its time, to the millisecond.
pub async fn a_delayed_message_waits<W: TestWorld>(lab: Lab<W>) {
    for (id, delay) in [("t-3", 3 * SECOND), ("t-1", SECOND), ("t-2", 2 * SECOND)] {
        send(&lab, id, delay).await;
    }
    assert_eq!(depth(&lab).await, (3, 0));
    for id in ["t-1", "t-2", "t-3"] {
        lab.pass(SECOND - 1);
        assert!(receive(&lab, None).await.is_empty());
        lab.pass(1);
        let received = receive(&lab, None).await;
        assert_eq!(received.iter().map(|delivery| &delivery.message.task).collect::<Vec<_>>(), [&key(id)]);
    }
}

/// An empty answer says when to look again.
pub async fn an_empty_answer_tells_when_to_look_again<W: TestWorld>(lab: Lab<W>) {
    send(&lab, "t-1", 7 * SECOND).await;
    let due = lab.now().plus(7 * SECOND);
    assert_eq!(lab.engine.receive(None, 1, None).await.expect("the backend works").next, Some(due));
    let claim = super::lab::claim_request("worker-1", 1);
    assert_eq!(lab.engine.claim(claim.clone()).await.expect("the claim is accepted").next, Some(due));
    lab.pass(7 * SECOND);
    assert_eq!(lab.claim(1).await.len(), 1);
    lab.engine.send(message_for(acme(), &request("t-1"))).await.expect("the message is accepted");
    let next = lab.engine.claim(claim).await.expect("the claim is accepted").next;
    assert!(next.is_some_and(|next| next > lab.now()), "somebody is at it until {next:?}");
    send(&lab, "t-2", 0).await;
    lab.run(&["task"]).await;
    send(&lab, "t-2", 0).await;
    let claimed =
        lab.engine.claim(super::lab::claim_request("worker-1", 1)).await.expect("the claim is accepted");
    assert_eq!(claimed.next, Some(lab.now()), "something was dropped, so the next look may find more");
}

/// A message that arrives wakes a waiting worker.
pub async fn waiting_ends_when_a_message_arrives<W: TestWorld>(lab: Lab<W>) {
    let mut waiting = pin!(lab.engine.work_arrived(None));
    let early = poll_once(waiting.as_mut()).await.is_ready();
    lab.engine.submit_task(alone("t-1")).await.expect("the task is accepted");
    if !early {
        waiting.await;
    }
    // A message that is there already needs no waiting.
    lab.engine.work_arrived(None).await;
    assert_eq!(lab.claim(1).await.len(), 1);
}

/// A worker that waits for other tenants' messages does not take the wake-up of one that can serve this tenant.
pub async fn waiting_ends_for_those_who_serve_the_tenant<W: TestWorld>(lab: Lab<W>) {
    let mut strangers = pin!(lab.engine.work_arrived(Some(tenants(&[other()]))));
    let _ = poll_once(strangers.as_mut()).await;
    let mut waiting = pin!(lab.engine.work_arrived(Some(tenants(&[acme()]))));
    let early = poll_once(waiting.as_mut()).await.is_ready();
    lab.engine.submit_task(alone("t-1")).await.expect("the task is accepted");
    if !early {
        waiting.await;
    }
    assert_eq!(lab.claim_for(&acme(), 1).await.len(), 1);
}

/// A message that comes due wakes a waiting worker, and so does one that is given back.
pub async fn waiting_ends_when_a_message_comes_due<W: TestWorld>(lab: Lab<W>) {
    send(&lab, "t-1", 5 * SECOND).await;
    {
        let mut waiting = pin!(lab.engine.work_arrived(None));
        let early = poll_once(waiting.as_mut()).await.is_ready();
        lab.pass(5 * SECOND);
        if !early {
            waiting.await;
        }
    }
    let task = lab.claim_one().await;
    let mut waiting = pin!(lab.engine.work_arrived(None));
    let early = poll_once(waiting.as_mut()).await.is_ready();
    let worker = super::shape::worker("worker-1");
    lab.engine.release(task.task.clone(), task.fence, worker, None).await.expect("it is held");
    if !early {
        waiting.await;
    }
    lab.claim_one().await;
}

/// After three receives without an end the message is a dead letter, the task fails, and a replay runs it.
pub async fn a_message_received_too_often_becomes_a_dead_letter<W: TestWorld>(lab: Lab<W>) {
    lab.engine.submit_task(alone("t-1")).await.expect("the task is accepted");
    for count in 1..=3 {
        assert_eq!(receive(&lab, Some(SECOND)).await[0].deliveries, count);
        lab.pass(SECOND);
    }
    assert!(receive(&lab, Some(SECOND)).await.is_empty(), "no fourth delivery");
    assert_eq!(depth(&lab).await, (0, 0));
    let failed = lab.history(&request("t-1")).await;
    assert_eq!(types(&failed), ["Task Pending", "Task Failed"]);
    assert_eq!(property(&failed[1], "source"), "dlq");
    assert_eq!(property(&failed[1], "error"), "max retries exhausted, moved to DLQ");
    assert_eq!(property(&failed[1], "errorCategory"), "unknown");
    let open = Some(DeadLetterState::Open);
    let letters = lab.engine.dead_letters(acme(), open, None, 9).await.expect("the backend works").letters;
    assert_eq!(letters.len(), 1);
    lab.engine.replay(acme(), letters[0].message).await.expect("it is open");
    lab.run(&["task"]).await;
    lab.check_task(&request("t-1")).await;
}

/// Receives by hand and claims of workers do not use up each other's tries.
pub async fn receives_and_claims_are_counted_apart<W: TestWorld>(lab: Lab<W>) {
    lab.engine.submit_task(alone("t-1")).await.expect("the task is accepted");
    for attempt in 1..=2 {
        let task = lab.claim_one().await;
        assert_eq!(task.attempt, attempt);
        let ending = lab.fail(&task, tidemill_model::ErrorCategory::Network).await;
        let tidemill_engine::reply::Ending::Retrying { at } = ending else { panic!("{ending:?}") };
        lab.pass(at.since(lab.now()));
    }
    for count in 1..=3 {
        let received = receive(&lab, Some(SECOND)).await;
        assert_eq!(received[0].deliveries, count, "claims are not among them");
        assert_eq!(received[0].receipt.delivery, count + 2, "but a receipt is of one delivery alone");
        lab.pass(SECOND);
    }
    let task = lab.claim_one().await;
    assert_eq!(task.attempt, 3, "receives are not among them");
    lab.complete(&task, "{}").await;
    let letters = lab.engine.dead_letters(acme(), None, None, 9).await.expect("the backend works").letters;
    assert!(letters.is_empty());
    lab.check_task(&request("t-1")).await;
}

/// A message of a task that is done or being run cannot fail it, however often it was received.
pub async fn a_dead_letter_never_fails_a_finished_or_running_task<W: TestWorld>(lab: Lab<W>) {
    for id in ["done", "running"] {
        lab.engine.submit_task(alone(id)).await.expect("the task is accepted");
        let task = lab.claim_one().await;
        send(&lab, id, 0).await;
        if id == "done" {
            lab.complete(&task, "{}").await;
        }
        for _ in 0..4 {
            receive(&lab, Some(0)).await;
        }
    }
    assert!(receive(&lab, Some(0)).await.is_empty());
    assert_eq!(lab.head(&request("done")).await.state, TaskState::Done(Outcome::Completed));
    assert!(matches!(lab.head(&request("running")).await.state, TaskState::Leased(_)));
    assert_eq!(lab.count(tidemill_model::KnownType::TaskFailed).await, 0);
    let letters = lab.engine.dead_letters(acme(), None, None, 9).await.expect("the backend works").letters;
    assert_eq!(letters.len(), 2, "archived");
}

/// A message for a task that nobody announced runs it; its state is none until it begins.
pub async fn a_message_without_a_task_runs_one<W: TestWorld>(lab: Lab<W>) {
    let message = NewMessage { input: json(r#"{"n":1}"#), ..message_for(acme(), &request("raw-1")) };
    lab.engine.send(message).await.expect("the message is accepted");
    assert_eq!(lab.task(&request("raw-1")).await.state, None);
    let task = lab.claim_one().await;
    assert_eq!((task.task.request.as_str(), task.input().as_str()), ("raw-1", r#"{"n":1}"#));
    assert_eq!(lab.task(&request("raw-1")).await.state, Some(PublicState::Processing));
    lab.complete(&task, "{}").await;
    assert_eq!(types(&lab.history(&request("raw-1")).await), ["Task Processing Started", "Task Completed"]);
    lab.check_task(&request("raw-1")).await;
}

/// Refusals name the bounds.
pub async fn a_raw_request_out_of_bounds_is_refused<W: TestWorld>(lab: Lab<W>) {
    let send = |delay_millis, run| NewMessage { run, delay_millis, ..message_for(acme(), &request("t-1")) };
    for (message, field) in [(send(DELAY_MILLIS_MAX + 1, 1), "delay"), (send(0, 0), "run")] {
        let answer = lab.engine.send(message).await;
        assert!(
            matches!(&answer, Err(EngineError::Invalid { field: found, .. }) if found == field),
            "{answer:?}"
        );
    }
    for (max, visibility, field) in
        [(0, None, "max"), (257, None, "max"), (1, Some(VISIBILITY_MILLIS_MAX + 1), "visibility")]
    {
        let answer = lab.engine.receive(None, max, visibility).await;
        assert!(
            matches!(&answer, Err(EngineError::Invalid { field: found, .. }) if found == field),
            "{answer:?}"
        );
    }
    assert_eq!(depth(&lab).await, (0, 0));
}
