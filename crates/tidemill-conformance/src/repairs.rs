//! Groups of commands, and the repairs that nobody asks for.

use tidemill_model::{JobStatus, KnownType, Outcome, PublicState};

use super::lab::GENERATION;
use super::queue::message_for;
use super::shape::{HOUR, LEASE, SECOND, acme, alone, json, key, names, request, worker};
use super::{Lab, TestWorld, side_by_side};
use tidemill_engine::backend::Backend;
use tidemill_engine::command::{Claim, Command, Delete, Finish, Recover, Report, Spent, SubmitTask};
use tidemill_engine::commit::NewTask;
use tidemill_engine::engine::NewMessage;
use tidemill_engine::reply::{Ending, Refusal, Reply};

fn submit(id: &str) -> Command {
    let sent = alone(id);
    let mut spec = super::shape::spec("task", &[]);
    spec.name = sent.name;
    let task = NewTask { tenant: acme(), app: sent.app, request: request(id), spec: spec.into() };
    Command::SubmitTask(SubmitTask { task, once: Vec::new() })
}

fn claim(max: usize) -> Command {
    let worker = worker("worker-1");
    let owner = tidemill_model::Owner { worker: worker.as_str().into(), generation: Some(GENERATION) };
    Command::Claim(Claim { owner, worker, max, tenants: None, begin: Some(1) })
}

fn finish(id: &str, fence: u64) -> Command {
    let report = Report::Completed {
        output: Some(json("{}")),
        overflow: None,
        duration_millis: 1,
        exit_code: 0,
        artifacts: Vec::new(),
    };
    let fence = tidemill_model::Fence(fence);
    Command::Finish(Finish {
        task: key(id),
        fence,
        worker: worker("worker-1"),
        report,
        spent: Spent::default(),
        cause: None,
        digest: 0,
    })
}

/// A whole life in one group: each command decides on what those before it did.
pub async fn each_command_sees_those_before_it<W: TestWorld>(lab: Lab<W>) {
    let group = vec![submit("t-1"), claim(9), finish("t-1", 1), submit("t-1"), claim(9)];
    let answers = lab.world.backend().execute(group).await.expect("the backend works");
    assert_eq!(answers.len(), 5);
    assert!(matches!(&answers[1], Ok(Reply::Claimed { tasks, .. }) if tasks.len() == 1), "{answers:?}");
    let done = Ending::Done(Outcome::Completed);
    let is_first =
        |answer: &_| matches!(answer, Ok(Reply::Finished { ending, ended: Some(_) }) if *ending == done);
    assert!(is_first(&answers[2]), "{answers:?}");
    assert_eq!(answers[3], Ok(Reply::TaskSubmitted { request: request("t-1"), repeated: true }));
    assert!(matches!(&answers[4], Ok(Reply::Claimed { tasks, .. }) if tasks.is_empty()));
    assert_eq!(lab.task(&request("t-1")).await.state, Some(PublicState::Completed));
    lab.check_task(&request("t-1")).await;
}

/// A command that is refused leaves no trace and does not stop the others.
pub async fn a_refused_command_does_not_stop_the_others<W: TestWorld>(lab: Lab<W>) {
    let group = vec![
        submit("t-1"),
        finish("t-1", 1),
        finish("nobody", 1),
        claim(1),
        finish("t-1", 7),
        finish("t-1", 1),
    ];
    let answers = lab.world.backend().execute(group).await.expect("the backend works");
    let refused: Vec<_> = answers.iter().map(Result::is_err).collect();
    assert_eq!(refused, [false, true, true, false, true, false]);
    assert!(matches!(answers[2], Err(Refusal::NotFound { .. })));
    assert_eq!(lab.count(KnownType::TaskCompleted).await, 1);
    assert!(lab.world.backend().execute(Vec::new()).await.expect("an empty group is fine").is_empty());
}

/// Many callers at once: every task is claimed by one of them.
pub async fn racing_claims_have_one_winner<W: TestWorld>(lab: Lab<W>) {
    for n in 0..40 {
        lab.engine.submit_task(alone(&format!("t-{n}"))).await.expect("the task is accepted");
    }
    let names: Vec<_> = (0..10).map(|n| format!("worker-{n}")).collect();
    let mut won = Vec::new();
    loop {
        let claims = side_by_side(names.iter().map(|name| lab.claim_as(name, 1))).await;
        let claimed: Vec<_> = claims.into_iter().flatten().collect();
        if claimed.is_empty() {
            break;
        }
        won.extend(claimed.iter().map(|task| task.task.clone()));
    }
    assert_eq!(won.len(), 40);
    won.sort_unstable();
    won.dedup();
    assert_eq!(won.len(), 40, "each once");
    assert_eq!(lab.count(KnownType::TaskProcessingStarted).await, 40);
    assert_eq!(lab.count(KnownType::TaskFailed).await, 0);
}

/// A message that got lost is put back by the sweep, at once for a waiting task and after the lease for a held one.
pub async fn the_sweep_repairs_a_deleted_message<W: TestWorld>(lab: Lab<W>) {
    let job = lab.submit("a b<a").await;
    let lose = || async {
        for delivery in lab.engine.receive(None, 10, Some(SECOND)).await.expect("the backend works").messages
        {
            lab.engine.delete(None, delivery.receipt).await.expect("the backend works");
        }
    };
    lose().await;
    assert!(lab.claim(9).await.is_empty(), "it stands still");
    assert_eq!(lab.engine.sweep().await.expect("the backend works"), 1);
    assert_eq!(lab.engine.sweep().await.expect("the backend works"), 0);
    let task = lab.claim_one().await;
    lab.pass(LEASE + 2);
    lose().await;
    assert_eq!(
        lab.engine.sweep().await.expect("the backend works"),
        1,
        "the lease is over and no message is left"
    );
    let again = lab.claim_one().await;
    assert!(again.fence > task.fence);
    lab.complete(&again, "{}").await;
    lose().await;
    assert_eq!(lab.engine.sweep().await.expect("the backend works"), 1);
    lab.run(&["b"]).await;
    assert_eq!(lab.status(job).await, JobStatus::Completed);
    lab.check_job(job).await;
}

/// A process that was started with its clock ahead is started again with the right time: nothing waits for the time that
/// the first one told.
pub async fn a_clock_set_back_across_a_restart_strands_nothing<W: TestWorld>(lab: Lab<W>) {
    lab.pass(HOUR);
    let job = lab.submit("a b<a c").await;
    let task = lab.claim(9).await.remove(0);
    assert_eq!(names(std::slice::from_ref(&task)), ["a"]);
    lab.complete(&task, "{}").await;
    lab.engine.submit_task(alone("t-1")).await.expect("the task is accepted");
    let later = NewMessage { delay_millis: 10 * SECOND, ..message_for(acme(), &request("t-2")) };
    lab.engine.send(later).await.expect("the message is accepted");
    lab.clock.set_back(HOUR);
    let Some(lab) = lab.reopen().await else { return };
    lab.execute(Command::Recover(Recover { generation: GENERATION + 1 }))
        .await
        .expect("leases are taken back");
    lab.engine.sweep().await.expect("the backend works");
    let tasks = lab.claim(9).await;
    assert_eq!(names(&tasks), ["b", "c", "task"], "the join, what was given back, and the fresh one");
    for task in &tasks {
        lab.complete(task, "{}").await;
    }
    assert_eq!(lab.status(job).await, JobStatus::Completed);
    lab.pass(10 * SECOND);
    assert_eq!(lab.claim(9).await.len(), 1, "what was to wait waits as long as it was to");
    lab.check_job(job).await;
}

/// With nothing wrong the sweep writes nothing, however much there is.
pub async fn the_sweep_leaves_sound_work_alone<W: TestWorld>(lab: Lab<W>) {
    let tasks = (0..1_500).map(|n| super::shape::spec(&format!("t{n}"), &[])).collect();
    let job = lab.engine.submit_job(super::shape::job_of(tasks)).await.expect("the job is accepted").job;
    lab.claim(256).await;
    let before = lab.engine.queue_depth().await.expect("the backend works");
    assert_eq!(lab.engine.sweep().await.expect("the backend works"), 0);
    assert_eq!(lab.engine.advance(acme(), job).await.expect("the job is there"), 0);
    assert_eq!(lab.engine.queue_depth().await.expect("the backend works"), before);
}

/// More than one sweep can look at in one go is repaired all the same.
pub async fn the_sweep_goes_on_until_all_is_repaired<W: TestWorld>(lab: Lab<W>) {
    let tasks = (0..1_200).map(|n| super::shape::spec(&format!("t{n}"), &[])).collect();
    lab.engine.submit_job(super::shape::job_of(tasks)).await.expect("the job is accepted");
    loop {
        let received = lab.engine.receive(None, 256, Some(SECOND)).await.expect("the backend works").messages;
        if received.is_empty() {
            break;
        }
        let group = received
            .iter()
            .map(|one| Command::Delete(Delete { tenant: None, receipt: one.receipt }))
            .collect();
        lab.world.backend().execute(group).await.expect("the backend works");
    }
    assert_eq!(lab.engine.queue_depth().await.expect("the backend works").messages, 0);
    assert_eq!(lab.engine.sweep().await.expect("the backend works"), 1_200);
    assert_eq!(lab.engine.queue_depth().await.expect("the backend works").ready, 1_200);
}
