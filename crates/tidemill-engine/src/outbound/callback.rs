//! Callbacks: the commit that brings a job to rest also makes the delivery to the URL that the job names. It makes
//! the alert about a failed job too, if people want one.
//!
//! Jobs come to rest in many ways: the last task ends, somebody cancels, a wait is given up. So this looks at what a
//! decision has drafted, not at the decisions.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;
use tidemill_model::{
    Event, EventId, JobCounts, JobId, JobStatus, Json, Outcome, PublicState, RequestId, TaskHead, TaskId,
    TenantId, Timestamp,
};

use crate::kernel::commit::{Commit, RecordWrite, TaskChangeKind};
use crate::kernel::draft::Draft;
use crate::kernel::policy::Policy;
use crate::kernel::state::job::{Job, JobHead};
use crate::kernel::state::{State, change_head};
use crate::outbound::{FailedJob, Target, outbox};
use crate::scripts::execution::SourceEvent;

/// The body of a callback.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AtRest<'a> {
    job_id: JobId,
    request_id: &'a RequestId,
    name: Option<&'a str>,
    status: JobStatus,
    counts: JobCounts,
    event_id: EventId,
    tenant_id: &'a TenantId,
    at: Timestamp,
}

/// Enqueues the deliveries about jobs that this decision brings to rest.
pub(crate) fn enqueue_deliveries(state: &State, draft: &mut Draft<'_, '_>) {
    #[cfg(feature = "faults")]
    if draft.policy().faults.skip_callback {
        return;
    }
    let mut failed: BTreeMap<TenantId, Vec<(FailedJob, SourceEvent)>> = BTreeMap::new();
    for (tenant, id) in ended(state, draft.commit(), draft.policy()) {
        let Some(job) = state.job(&tenant, id) else { continue };
        let head = head_after(job, draft.commit());
        let is_news = !job.head.is_at_rest() || job.head.status() != head.status();
        if !head.is_at_rest() || !is_news {
            continue;
        }
        let Some(event) = event_of(job, draft) else { continue };
        if head.status() == JobStatus::Failed && people_want(job, draft.policy()) {
            let task = failed_task(job, draft.commit());
            let (job, name, tasks) = (head.job, head.name.clone(), head.counts.failed);
            let told = task.map(|(task, run)| (FailedJob { job, name, task, tasks, run }, event.clone()));
            failed.entry(tenant).or_default().extend(told);
        }
        let Some(url) = head.callback.clone() else { continue };
        let body = Json::of(&AtRest {
            job_id: head.job,
            request_id: &head.request,
            name: head.name.as_deref(),
            status: head.status(),
            counts: head.counts,
            event_id: event.id,
            tenant_id: &head.tenant,
            at: event.timestamp,
        });
        outbox::begin(&head.tenant, Target::Callback(url), event, body, draft);
    }
    for (tenant, jobs) in failed {
        outbox::jobs_failed(state, &tenant, &jobs, draft);
    }
}

/// Whether people are to hear if a job fails.
fn people_want(job: &Job, policy: &Policy) -> bool {
    #[cfg(feature = "faults")]
    if policy.faults.skip_job_failed {
        return false;
    }
    let wanted = policy.job_failed.as_ref();
    wanted.is_some_and(|wanted| wanted.want(&job.head.tenant, job.head.name.as_deref()))
}

/// The task that failed last, as far as it is known, with its run: one that fails here, else the first that had failed.
fn failed_task(job: &Job, commit: &Commit) -> Option<(TaskId, Option<u32>)> {
    let here = commit.tasks.iter().rev().find_map(|change| match change.kind {
        TaskChangeKind::Finish { outcome: Outcome::Failed | Outcome::TimedOut, .. } => {
            let (of, task) = change.task.request.parts()?;
            job.index_of(task).filter(|_| of == job.head.job)
        }
        _ => None,
    });
    let index = here.or_else(|| job.failed.first().copied())?;
    let node = job.node(index);
    Some((node.spec.task_id.clone(), node.entry.head.as_ref().map(|head| head.run)))
}

/// The jobs of which somebody wants to hear and of which a task ends here, or which are cancelled. No other comes to rest.
fn ended(state: &State, commit: &Commit, policy: &Policy) -> BTreeSet<(TenantId, JobId)> {
    let of_tasks = commit.tasks.iter().filter_map(|change| match change.kind {
        TaskChangeKind::Finish { .. } => Some((&change.task.tenant, change.task.request.job_part()?)),
        _ => None,
    });
    let cancelled = commit.records.iter().filter_map(|write| match write {
        RecordWrite::JobCancelled { tenant, job, cancelled: true } => Some((tenant, *job)),
        _ => None,
    });
    let is_wanted = |(tenant, job): &(&TenantId, JobId)| {
        state.job(tenant, *job).is_some_and(|job| job.head.callback.is_some() || people_want(job, policy))
    };
    let ended = of_tasks.chain(cancelled).filter(is_wanted);
    ended.map(|(tenant, job)| (tenant.clone(), job)).collect()
}

/// The job as it stands once the commit is made.
fn head_after(job: &Job, commit: &Commit) -> JobHead {
    let mut head = job.head.clone();
    for write in &commit.records {
        match write {
            RecordWrite::JobCancelled { job, cancelled, .. } if *job == head.job => {
                head.cancelled = *cancelled;
            }
            RecordWrite::JobTasks { job, tasks, .. } if *job == head.job => {
                head.counts.waiting += u32::try_from(tasks.len()).unwrap_or(u32::MAX);
            }
            _ => {}
        }
    }
    // A task may change more than once.
    let mut tasks: HashMap<&str, Option<TaskHead>> = HashMap::new();
    for change in &commit.tasks {
        let Some((_, task)) = change.task.request.parts().filter(|(of, _)| *of == head.job) else { continue };
        let known = || job.index_of(task).and_then(|index| job.node(index).entry.head.clone());
        let slot = tasks.entry(task).or_insert_with(known);
        let before = states_of(slot.as_ref());
        change_head(slot, &change.kind);
        let after = states_of(slot.as_ref());
        *head.counts.of(before.0) -= 1;
        *head.counts.of(after.0) += 1;
        head.counts.parked += after.1;
        head.counts.parked -= before.1;
    }
    head
}

/// What users see of a task, and 1 if it is parked.
fn states_of(head: Option<&TaskHead>) -> (Option<PublicState>, u32) {
    (head.map(TaskHead::public_state), u32::from(head.is_some_and(TaskHead::is_parked)))
}

/// The event that tells it: the last of the job here, else the last of one of its tasks.
fn event_of(job: &Job, draft: &Draft<'_, '_>) -> Option<SourceEvent> {
    let entity = draft.site().job(job.head.job);
    let events = || draft.commit().events.iter().rev();
    let of_task = |event: &&Event| {
        let task = RequestId::trusted(event.entity.id.as_str());
        task.job_part() == Some(job.head.job) && event.entity == draft.site().task(&task)
    };
    events().find(|event| event.entity == entity).or_else(|| events().find(of_task)).map(SourceEvent::of)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};
    use tidemill_model::workflow::WorkflowRunId;
    use tidemill_model::{ErrorCategory, OnFailure, TaskSpec};

    use super::*;
    use crate::kernel::command::{
        Cancel, Command, DeliveryEnd, EndDelivery, LookAfterParked, Report, Resume, ResumeTarget, Unpark,
    };
    use crate::kernel::commit::TaskKey;
    use crate::kernel::fixture::{Fixture, completed, failed, key, spec, submit_job, tenant, timed_out};
    use crate::kernel::id_source::IdSource;
    use crate::kernel::policy::AlertTargets;
    use crate::kernel::record::RecordValue;
    use crate::outbound::{Delivery, JobFailedAlerts, Lane};
    use crate::triage::{BulkAction, ParkedKey};

    const URL: &str = "https://hooks.example.com/done";

    fn job() -> JobId {
        JobId::from_u128(7)
    }

    fn task(name: &str) -> TaskKey {
        key(job().request_id(&tidemill_model::TaskId::trusted(name)).as_str())
    }

    fn parking(name: &str, parents: &[&str]) -> TaskSpec {
        let mut spec = spec(name, parents);
        spec.options.on_failure = OnFailure::Park;
        spec
    }

    fn with_callback(tasks: Vec<TaskSpec>) -> Fixture {
        let mut fixture = Fixture::new();
        let mut submit = submit_job(job(), tasks);
        submit.callback = Some(Arc::from(URL));
        fixture.run(&Command::SubmitJob(submit)).unwrap();
        fixture
    }

    /// The callbacks that a commit begins.
    fn begun(commit: &Commit) -> Vec<Delivery> {
        let of = |write: &RecordWrite| match write {
            RecordWrite::Put { record: Some(record), .. } => match &record.value {
                RecordValue::Delivery(delivery) => Some((**delivery).clone()),
                _ => None,
            },
            _ => None,
        };
        commit.records.iter().filter_map(of).collect()
    }

    /// Runs a command and gives what it tells: the status, and the event that says it.
    fn told(fixture: &mut Fixture, command: &Command) -> Vec<(String, String)> {
        let (commit, _) = fixture.run(command).unwrap();
        let told = begun(&commit).into_iter().map(|delivery| {
            let body: Value = delivery.body.read().unwrap();
            assert_eq!(delivery.target, Target::Callback(Arc::from(URL)));
            assert!(commit.events.iter().any(|event| event.id == delivery.event.id), "it came with it");
            (body["status"].as_str().unwrap().to_owned(), delivery.event.event_type.as_str().to_owned())
        });
        told.collect()
    }

    fn finish(fixture: &mut Fixture, name: &str, report: Report) -> Vec<(String, String)> {
        let head = fixture.state.task(&task(name)).unwrap().entry.head.clone().unwrap();
        let finish = crate::kernel::command::Finish {
            task: task(name),
            fence: head.fence,
            worker: crate::kernel::fixture::worker(),
            report,
            spent: crate::kernel::command::Spent::default(),
            cause: None,
            digest: 0,
        };
        told(fixture, &Command::Finish(finish))
    }

    fn cancel() -> Command {
        Command::Cancel(Cancel { tenant: tenant(), job: job(), by: "ann".to_owned(), reason: None })
    }

    fn resume() -> Command {
        let target = ResumeTarget::Job { job: job(), tasks: None };
        Command::Resume(Resume { tenant: tenant(), target })
    }

    fn pair(status: &str, event: &str) -> Vec<(String, String)> {
        vec![(status.to_owned(), event.to_owned())]
    }

    #[test]
    fn a_completed_job_is_told_with_all_it_is() {
        let mut fixture = with_callback(vec![spec("a", &[]), spec("b", &["a"])]);
        fixture.claim(1);
        assert_eq!(finish(&mut fixture, "a", completed()), [], "b is left");
        let fence = fixture.claim(1).remove(0).fence;
        let finish = crate::kernel::command::Finish {
            task: task("b"),
            fence,
            worker: crate::kernel::fixture::worker(),
            report: completed(),
            spent: crate::kernel::command::Spent::default(),
            cause: None,
            digest: 0,
        };
        let (commit, _) = fixture.run(&Command::Finish(finish)).unwrap();
        let [delivery] = &begun(&commit)[..] else { panic!("one callback") };
        let event = commit.events.iter().find(|event| event.event_type.as_str() == "Job Completed").unwrap();
        let body: Value = delivery.body.read().unwrap();
        assert_eq!(
            body,
            json!({
                "jobId": job().to_string(), "requestId": "req-1", "name": null, "status": "completed",
                "counts": { "waiting": 0, "pending": 0, "processing": 0, "completed": 2, "failed": 0 },
                "eventId": event.id.to_string(), "tenantId": "acme", "at": event.timestamp.millis(),
            })
        );
        assert_eq!((delivery.attempts, delivery.next_try_at), (0, fixture.now));
    }

    #[test]
    fn each_way_to_rest_is_told_once_and_again_after_a_resume() {
        // Nothing else goes on.
        for (report, event) in
            [(failed(ErrorCategory::Auth), "Job Failure Detected"), (timed_out(), "Job Failure Detected")]
        {
            let mut fixture = with_callback(vec![spec("a", &[]), spec("b", &["a"])]);
            fixture.claim(1);
            assert_eq!(finish(&mut fixture, "a", report), pair("failed", event));
            assert_eq!(told(&mut fixture, &resume()), []);
            fixture.claim(1);
            assert_eq!(finish(&mut fixture, "a", completed()), []);
            fixture.claim(1);
            assert_eq!(finish(&mut fixture, "b", completed()), pair("completed", "Job Completed"));
        }
        // The failure came before the rest.
        let mut fixture = with_callback(vec![spec("a", &[]), spec("b", &[])]);
        fixture.claim(2);
        assert_eq!(finish(&mut fixture, "a", failed(ErrorCategory::Auth)), []);
        assert_eq!(finish(&mut fixture, "b", completed()), pair("failed", "Task Completed"));
        assert_eq!(told(&mut fixture, &cancel()), pair("cancelled", "Job Cancelled"));
        assert_eq!(told(&mut fixture, &cancel()), [], "it is cancelled already");
        assert_eq!(told(&mut fixture, &resume()), []);
        assert_eq!(told(&mut fixture, &cancel()), pair("cancelled", "Job Cancelled"));
        // What is tried again is not at rest.
        let mut fixture = with_callback(vec![spec("a", &[])]);
        for last in [false, false, true] {
            fixture.now = fixture.now.plus(3_600_000);
            fixture.claim(1);
            let expected = if last { pair("failed", "Job Failure Detected") } else { Vec::new() };
            assert_eq!(finish(&mut fixture, "a", failed(ErrorCategory::Network)), expected);
        }
        // Nobody asked for it.
        let mut fixture = Fixture::new();
        fixture.submit_job(vec![spec("a", &[])]);
        fixture.claim(1);
        assert_eq!(finish(&mut fixture, "a", completed()), []);
    }

    #[test]
    fn a_parked_job_is_told_once_its_wait_is_over() {
        let fail = BulkAction::Fail { error: Arc::from("Broken"), cause: Arc::from("for good") };
        let output = BulkAction::Resume { output: Json::trusted("{}"), rerun: false };
        let execution = || WorkflowRunId::from(&task("a").request);
        let unpark = |how| {
            let unpark = Unpark { tenant: tenant(), execution: execution(), how, by: None, reason: None };
            Command::Unpark(unpark)
        };
        let expire = Command::LookAfterParked(LookAfterParked {
            keys: vec![ParkedKey { tenant: tenant(), execution: execution() }],
        });
        for (command, later, status) in [
            (unpark(fail), 0, "failed"),
            (unpark(output), 0, "completed"),
            (expire, u64::MAX >> 20, "failed"),
            (cancel(), 0, "cancelled"),
        ] {
            let mut fixture = with_callback(vec![parking("a", &[])]);
            fixture.claim(1);
            assert_eq!(finish(&mut fixture, "a", failed(ErrorCategory::Auth)), [], "it waits");
            fixture.now = fixture.now.plus(later);
            let told = told(&mut fixture, &command);
            assert_eq!(told.iter().map(|(status, _)| status.as_str()).collect::<Vec<_>>(), [status]);
        }
    }

    /// A fixture that reports failed jobs after ten seconds.
    fn with_alerts(names: &str) -> Fixture {
        let mut fixture = Fixture::new();
        fixture.policy.alerts = AlertTargets { people: true, webhook: true };
        fixture.policy.job_failed = Some(Arc::new(JobFailedAlerts::parse(names, 10_000)));
        fixture
    }

    /// Submits a job of one task and has it fail.
    fn one_fails(fixture: &mut Fixture, number: u128, name: Option<&str>) -> Commit {
        let mut submit = submit_job(JobId::from_u128(number), vec![spec("a", &[])]);
        submit.job.name = name.map(Arc::from);
        submit.job.request = RequestId::trusted(&format!("req-{number}"));
        fixture.run(&Command::SubmitJob(submit)).unwrap();
        let task = fixture.claim(1).remove(0);
        let finish = crate::kernel::command::Finish {
            task: task.task,
            fence: task.fence,
            worker: crate::kernel::fixture::worker(),
            report: failed(ErrorCategory::Auth),
            spent: crate::kernel::command::Spent::default(),
            cause: None,
            digest: 0,
        };
        fixture.run(&Command::Finish(finish)).unwrap().0
    }

    fn ended(delivery: &Delivery, told: u32) -> Command {
        let (tenant, end) = (tenant(), DeliveryEnd::Arrived);
        Command::EndDelivery(EndDelivery { tenant, delivery: delivery.id, attempt: 1, told, end })
    }

    #[test]
    fn a_thousand_failed_jobs_are_one_alert_for_each_place() {
        let mut fixture = with_alerts("");
        for number in 1..=1_000 {
            let begun = begun(&one_fails(&mut fixture, number, Some("nightly")));
            assert_eq!(begun.len(), 2, "each failure is in a commit of its own: {number}");
        }
        fixture.restart();
        assert_eq!(fixture.state.deliveries().count(&tenant(), Lane::People), 1);
        assert_eq!(fixture.state.deliveries().count(&tenant(), Lane::AlertWebhook), 1);
        let begun = begun(&one_fails(&mut fixture, 1_001, None));
        let [people, webhook] = &begun[..] else { panic!("{begun:?}") };
        assert_eq!((&people.target, &webhook.target), (&Target::People, &Target::AlertWebhook));
        for delivery in [people, webhook] {
            let told = delivery.failed_jobs.as_ref().unwrap();
            assert_eq!((told.count, told.named.len(), delivery.attempts), (1_001, 10, 0));
            assert_eq!(delivery.next_try_at, fixture.now.plus(10_000));
            assert_eq!((told.named[0].job, told.named[0].task.as_str()), (JobId::from_u128(1), "a"));
        }
        // Somebody began to send it before the last one joined: that told too little.
        let refused = fixture.run(&ended(people, 1_000)).unwrap_err();
        assert_eq!(refused, crate::kernel::reply::Refusal::NotDelivering { id: people.id, attempt: 1 });
        fixture.run(&ended(people, 1_001)).unwrap();
        assert_eq!(fixture.state.deliveries().count(&tenant(), Lane::People), 0);
    }

    #[test]
    fn what_is_due_or_was_tried_is_not_joined() {
        let mut fixture = with_alerts("");
        let first = begun(&one_fails(&mut fixture, 1, None));
        fixture.now = fixture.now.plus(10_000);
        let second = begun(&one_fails(&mut fixture, 2, None));
        assert_ne!(first[0].id, second[0].id, "its time has come");
        let end = DeliveryEnd::Failed { error: Arc::from("answered 500") };
        let command = EndDelivery { tenant: tenant(), delivery: second[0].id, attempt: 1, told: 1, end };
        fixture.run(&Command::EndDelivery(command)).unwrap();
        let third = begun(&one_fails(&mut fixture, 3, None));
        assert_ne!(second[0].id, third[0].id, "it was tried");
        assert_eq!(second[1].id, third[1].id, "the other place was not");
        fixture.now = Timestamp::clamped(fixture.now.millis() - 3_600_000);
        let fourth = begun(&one_fails(&mut fixture, 4, None));
        assert_ne!(third[0].id, fourth[0].id, "the clock was set back, and it is due");
    }

    #[test]
    fn only_jobs_that_failed_and_are_wanted_are_told() {
        let mut fixture = with_alerts("nightly-*");
        assert_eq!(begun(&one_fails(&mut fixture, 1, Some("other"))), []);
        assert_eq!(begun(&one_fails(&mut fixture, 2, None)), []);
        assert_eq!(begun(&one_fails(&mut fixture, 3, Some("nightly-load"))).len(), 2);
        // A failure that another task outlives is reported when the job is at rest, and a cancelled job is none.
        let mut fixture = with_alerts("");
        fixture.submit_job(vec![spec("a", &[]), spec("b", &[]), spec("c", &[])]);
        fixture.claim(2);
        for (name, report) in [("a", failed(ErrorCategory::Auth)), ("b", completed())] {
            let head = fixture.state.task(&task(name)).unwrap().entry.head.clone().unwrap();
            fixture.finish(&task(name), head.fence, report).unwrap();
            assert!(fixture.state.deliveries().is_empty(), "c is left");
        }
        fixture.claim(1);
        let head = fixture.state.task(&task("c")).unwrap().entry.head.clone().unwrap();
        fixture.finish(&task("c"), head.fence, completed()).unwrap();
        let key = fixture.state.deliveries().gathering(&tenant(), Lane::People).unwrap();
        let record =
            fixture.state.record(&crate::kernel::record::RecordKey::delivery(&tenant(), key.id)).unwrap();
        let RecordValue::Delivery(delivery) = &record.value else { panic!("{record:?}") };
        assert_eq!(delivery.failed_jobs.as_ref().unwrap().named[0].task.as_str(), "a");
        assert_eq!(delivery.event.event_type.as_str(), "Task Completed");
        let mut fixture = with_alerts("");
        fixture.submit_job(vec![spec("a", &[])]);
        assert_eq!(begun(&fixture.run(&cancel()).unwrap().0), []);
    }

    /// In every case the callback says what the state says, when the state says it for the first time.
    #[test]
    fn what_is_told_is_what_the_state_says() {
        let mut rests = 0;
        for seed in 1..=400 {
            let mut chance = IdSource::new(seed);
            let mut pick = |count: u64| usize::try_from(chance.random() % count).unwrap();
            let tasks = vec![spec("a", &[]), parking("b", &[]), spec("c", &["a"]), parking("d", &["a", "b"])];
            let mut fixture = with_callback(tasks);
            let names = ["a", "b", "c", "d"];
            for step in 0..40 {
                fixture.now = fixture.now.plus(3_600_000);
                let name = names[pick(4)];
                let report =
                    [completed(), failed(ErrorCategory::Auth), timed_out(), completed()][pick(4)].clone();
                let head = fixture.state.task(&task(name)).and_then(|task| task.entry.head.clone());
                let unpark = |how| {
                    let execution = WorkflowRunId::from(&task(name).request);
                    Command::Unpark(Unpark { tenant: tenant(), execution, how, by: None, reason: None })
                };
                let command = match pick(12) {
                    0 => cancel(),
                    1 => resume(),
                    2 => unpark(BulkAction::Fail { error: Arc::from("Broken"), cause: Arc::from("") }),
                    3 => unpark(BulkAction::Resume { output: Json::trusted("{}"), rerun: false }),
                    4 => unpark(BulkAction::Resume { output: Json::trusted("{}"), rerun: true }),
                    5 => Command::Resume(Resume {
                        tenant: tenant(),
                        target: ResumeTarget::Task(task(name).request),
                    }),
                    6..=8 => crate::kernel::fixture::claim(1),
                    _ => {
                        let Some(head) = head else { continue };
                        Command::Finish(crate::kernel::command::Finish {
                            task: task(name),
                            fence: head.fence,
                            worker: crate::kernel::fixture::worker(),
                            report,
                            spent: crate::kernel::command::Spent::default(),
                            cause: None,
                            digest: 0,
                        })
                    }
                };
                let before = fixture.state.job(&tenant(), job()).unwrap().head.clone();
                let Ok((commit, _)) = fixture.run(&command) else { continue };
                let after = fixture.state.job(&tenant(), job()).unwrap().head.clone();
                let is_news =
                    after.is_at_rest() && (!before.is_at_rest() || before.status() != after.status());
                let begun = begun(&commit);
                assert_eq!(begun.len(), usize::from(is_news), "seed {seed}, step {step}: {command:?}");
                rests += begun.len();
                for delivery in begun {
                    let body: Value = delivery.body.read().unwrap();
                    let known = json!([after.status(), after.counts, delivery.event.id.to_string()]);
                    assert_eq!(
                        json!([body["status"], body["counts"], body["eventId"]]),
                        known,
                        "seed {seed}"
                    );
                }
            }
        }
        assert!(rests > 400, "{rests}");
    }
}
