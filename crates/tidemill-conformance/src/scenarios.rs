//! Whole stories, by name: five of idempotency and one of a job.

use tidemill_model::events::access_path::AccessPath;
use tidemill_model::{JobStatus, KnownType, PublicState};

use super::lab::{claim_request, completed, is_lease_lost};
use super::leases::{beat, duplicate};
use super::shape::{MINUTE, SECOND, alone, names, property, request, types};
use super::{Lab, TestWorld, side_by_side};

/// Null, started, executed, completed, message deleted.
pub async fn idempotency_1_happy_path<W: TestWorld>(lab: Lab<W>) {
    lab.engine.send(duplicate("t-1", 1)).await.expect("the message is accepted");
    assert_eq!(lab.task(&request("t-1")).await.state, None);
    let task = lab.claim_one().await;
    assert_eq!(lab.task(&request("t-1")).await.state, Some(PublicState::Processing));
    lab.complete(&task, "{}").await;
    assert_eq!(types(&lab.history(&request("t-1")).await), ["Task Processing Started", "Task Completed"]);
    assert_eq!(lab.engine.queue_depth().await.expect("the backend works").messages, 0);
}

/// A second delivery of a completed task is deleted without execution.
pub async fn idempotency_2_duplicate_delivery<W: TestWorld>(lab: Lab<W>) {
    lab.engine.submit_task(alone("t-1")).await.expect("the task is accepted");
    lab.run(&["task"]).await;
    lab.engine.send(duplicate("t-1", 1)).await.expect("the message is accepted");
    assert!(lab.claim_as("worker-2", 1).await.is_empty());
    assert_eq!(lab.engine.queue_depth().await.expect("the backend works").messages, 0);
    assert_eq!(lab.count(KnownType::TaskProcessingStarted).await, 1);
}

/// Two workers, one task, two messages: one proceeds, the other backs off and nothing fails.
pub async fn idempotency_3_race_of_two_workers<W: TestWorld>(lab: Lab<W>) {
    for n in 0..25 {
        let id = format!("t-{n}");
        lab.engine.submit_task(alone(&id)).await.expect("the task is accepted");
        lab.engine.send(duplicate(&id, 1)).await.expect("the message is accepted");
        let claims = ["worker-1", "worker-2"].map(|name| lab.engine.claim(claim_request(name, 1)));
        let won: Vec<_> = side_by_side(claims)
            .await
            .into_iter()
            .flat_map(|claimed| claimed.expect("the claim is accepted").tasks)
            .collect();
        assert_eq!(won.len(), 1, "one winner for {id}");
        lab.complete(&won[0], "{}").await;
        let head = lab.head(&request(&id)).await;
        assert_eq!((head.attempts, head.takeovers), (1, 0));
    }
    assert_eq!(lab.count(KnownType::TaskProcessingStarted).await, 25);
    assert_eq!(lab.count(KnownType::TaskFailed).await, 0);
}

/// A worker dies ten seconds into its lease; after the lease another one takes over and the dead one cannot write.
pub async fn idempotency_4_worker_crash_recovery<W: TestWorld>(lab: Lab<W>) {
    lab.engine.submit_task(alone("t-1")).await.expect("the task is accepted");
    let dead = lab.claim_as("worker-1", 1).await.remove(0);
    lab.pass(10 * SECOND);
    assert!(lab.claim_as("worker-2", 1).await.is_empty(), "the lease still holds");
    lab.pass(5 * MINUTE);
    let task = lab.claim_as("worker-2", 1).await.remove(0);
    assert!(task.fence > dead.fence);
    assert!(is_lease_lost(&lab.report(&dead, completed("{}")).await));
    lab.complete(&task, "{}").await;
    let history = lab.history(&request("t-1")).await;
    let expected = ["Task Pending", "Task Processing Started", "Task Processing Started", "Task Completed"];
    assert_eq!(types(&history), expected);
    let until = property(&history[1], "effectiveUntil").as_u64();
    assert!(
        until.is_some_and(|until| until < history[2].timestamp.millis()),
        "the event alone tells that it expired"
    );
}

/// A long task renews its lease; a second worker at second 50 leaves it alone.
pub async fn idempotency_5_long_task_with_heartbeats<W: TestWorld>(lab: Lab<W>) {
    lab.engine.submit_task(alone("t-1")).await.expect("the task is accepted");
    let task = lab.claim_one().await;
    lab.pass(20 * SECOND);
    let until = lab.engine.heartbeat(beat(&task)).await.expect("the lease is held");
    assert_eq!(until, lab.now().plus(45 * SECOND));
    lab.pass(30 * SECOND);
    assert!(lab.claim_as("worker-2", 1).await.is_empty());
    lab.engine.send(duplicate("t-1", 1)).await.expect("the message is accepted");
    assert!(lab.claim_as("worker-2", 1).await.is_empty());
    lab.pass(5 * SECOND);
    lab.complete(&task, "{}").await;
    lab.pass(5 * MINUTE);
    assert!(lab.claim_as("worker-2", 1).await.is_empty());
    assert_eq!(lab.count(KnownType::TaskCompleted).await, 1);
}

/// A sample job: A and B, then C and D, then E, then the job is completed.
pub async fn the_sample_flow_reproduces<W: TestWorld>(lab: Lab<W>) {
    let job = lab.submit("A B C<A D<A E<C+D").await;
    assert_eq!(types(&lab.job_history(job).await), ["Job Created"]);
    let mut steps = Vec::new();
    while lab.status(job).await == JobStatus::Running {
        lab.pass(10);
        let tasks = lab.claim(9).await;
        steps.push(names(&tasks).join(" "));
        for task in &tasks {
            lab.pass(10);
            lab.complete(task, "{}").await;
        }
    }
    assert_eq!(steps, ["A B", "C D", "E"]);
    let story: Vec<String> = lab
        .events(AccessPath::Tenant)
        .await
        .iter()
        .map(|event| match property(event, "taskId").as_str() {
            Some(task) => format!("{} {task}", event.event_type),
            None => event.event_type.to_string(),
        })
        .collect();
    let place = |text: &str| {
        let found: Vec<_> =
            story.iter().enumerate().filter(|(_, told)| *told == text).map(|(at, _)| at).collect();
        assert_eq!(found.len(), 1, "{text} once in {story:?}");
        found[0]
    };
    for task in ["A", "B", "C", "D", "E"] {
        let life = ["Task Pending", "Task Processing Started", "Task Completed"]
            .map(|step| place(&format!("{step} {task}")));
        assert!(life.is_sorted(), "{task} in {story:?}");
    }
    for (parent, child) in [("A", "C"), ("A", "D"), ("C", "E"), ("D", "E")] {
        let waited = place(&format!("Task Completed {parent}")) < place(&format!("Task Pending {child}"));
        assert!(waited, "{child} waits for {parent} in {story:?}");
    }
    assert_eq!((place("Job Created"), place("Job Completed")), (0, story.len() - 1));
    assert_eq!(story.len(), 2 + 3 * 5);
    lab.check_job(job).await;
}
