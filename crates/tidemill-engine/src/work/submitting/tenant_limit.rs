//! How much unfinished work a tenant may have. Whatever brings new tasks asks here, once it knows that they are new.

use std::sync::Arc;

use tidemill_model::{TaskSpec, TenantId};

use crate::kernel::commit::{RecordWrite, TaskKey};
use crate::kernel::draft::{Draft, spec_of};
use crate::kernel::reply::Refusal;
use crate::kernel::state::job::{Job, spec_bytes};
use crate::kernel::state::{Load, State, TaskPlace, TaskRef};

/// Names of the limits, as operators set them.
const TASKS: &str = "TENANT_TASKS_MAX";
const BYTES: &str = "TENANT_BYTES_MAX";

/// Refuses `tasks` if the tenant would have too many, or too large ones, with what this commit brings already.
pub(crate) fn check<'t>(
    state: &State,
    tenant: &TenantId,
    tasks: impl IntoIterator<Item = &'t Arc<TaskSpec>>,
    draft: &Draft<'_, '_>,
) -> Result<(), Refusal> {
    check_with(state, tenant, Load::default(), tasks, draft)
}

/// Like `check`, for tasks of a job that there is: if it is at rest, it wakes, and what waits in it counts again.
pub(crate) fn check_in_job<'t>(
    state: &State,
    job: &Job,
    tasks: impl IntoIterator<Item = &'t Arc<TaskSpec>>,
    draft: &Draft<'_, '_>,
) -> Result<(), Refusal> {
    check_with(state, &job.head.tenant, Load::of_woken(job), tasks, draft)
}

/// Refuses to run a task again if there is no room for it. One that has not ended counts already.
pub(crate) fn check_again(
    state: &State,
    key: &TaskKey,
    task: &TaskRef<'_>,
    draft: &Draft<'_, '_>,
) -> Result<(), Refusal> {
    let ended = (!task.entry.is_live()).then(|| spec_of(task));
    match task.place {
        TaskPlace::InJob { job, .. } => check_in_job(state, job, &ended, draft),
        TaskPlace::Alone(_) => check(state, &key.tenant, &ended, draft),
    }
}

fn check_with<'t>(
    state: &State,
    tenant: &TenantId,
    woken: Load,
    tasks: impl IntoIterator<Item = &'t Arc<TaskSpec>>,
    draft: &Draft<'_, '_>,
) -> Result<(), Refusal> {
    #[cfg(feature = "faults")]
    if draft.policy().faults.ignore_tenant_limits {
        return Ok(());
    }
    let mut tasks = tasks.into_iter().peekable();
    if woken == Load::default() && tasks.peek().is_none() {
        // What adds nothing is not refused, even if the limit is lower than it was.
        return Ok(());
    }
    let known = state.load_of(tenant);
    let mut load = Load { tasks: known.tasks + woken.tasks, bytes: known.bytes + woken.bytes };
    let count = |load: Load, spec: &Arc<TaskSpec>| load.and(spec_bytes(spec));
    for write in &draft.commit().records {
        load = match write {
            RecordWrite::Job(new) if new.tenant == *tenant => new.tasks.iter().fold(load, count),
            RecordWrite::JobTasks { tenant: owner, tasks, .. } if owner == tenant => {
                tasks.iter().fold(load, count)
            }
            RecordWrite::Task(new) if new.tenant == *tenant => count(load, &new.spec),
            _ => load,
        };
    }
    let load = tasks.fold(load, count);
    let limits = [
        ("tasks", TASKS, load.tasks, draft.policy().tenant_tasks_max),
        ("bytes of tasks", BYTES, load.bytes, draft.policy().tenant_bytes_max),
    ];
    match limits.into_iter().find(|(_, _, count, max)| count > max) {
        Some((what, limit, count, max)) => Err(Refusal::TenantFull { what, limit, count, max }),
        None => Ok(()),
    }
}

/// Refuses work that makes the unfinished tasks of a tenant larger than they may be.
pub(crate) fn check_growth(
    state: &State,
    tenant: &TenantId,
    bytes: usize,
    draft: &Draft<'_, '_>,
) -> Result<(), Refusal> {
    #[cfg(feature = "faults")]
    if draft.policy().faults.ignore_tenant_limits {
        return Ok(());
    }
    let (count, max) = (state.load_of(tenant).bytes + bytes, draft.policy().tenant_bytes_max);
    if bytes > 0 && count > max {
        return Err(Refusal::TenantFull { what: "bytes of tasks", limit: BYTES, count, max });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::command::{
        AddTasks, Cancel, Command, Listed, Replay, Resume, ResumeTarget, Send, SubmitTask,
    };
    use crate::kernel::commit::MessageId;
    use crate::kernel::fixture::{Fixture, alone, completed, failed, key, spec, submit_job, tenant};
    use crate::kernel::record::{DeadLetter, DeadLetterState, Record, RecordKey, RecordValue};
    use tidemill_model::{ErrorCategory, JobId, Json};

    fn is_full<T>(answer: &Result<T, Refusal>) -> bool {
        matches!(answer, Err(Refusal::TenantFull { limit: TASKS, .. }))
    }

    #[test]
    fn a_tenant_has_no_more_unfinished_tasks_than_it_may() {
        let mut fixture = Fixture::new();
        fixture.policy.tenant_tasks_max = 3;
        fixture.submit_job(vec![spec("a", &[]), spec("b", &["a"])]);
        let two = submit_job(JobId::from_u128(8), vec![spec("a", &[]), spec("b", &[])]);
        let send = |id: &str| Command::Send(Send { task: alone(id), run: 1, delay_millis: 0 });
        let task = |id: &str| Command::SubmitTask(SubmitTask { task: alone(id), once: Vec::new() });
        assert!(is_full(&fixture.run(&Command::SubmitJob(two.clone()))), "two and two are more than three");
        fixture.run(&send("t-1")).unwrap();
        fixture.run(&send("t-1")).expect("it is no other task");
        for command in [send("t-2"), task("t-3")] {
            assert!(is_full(&fixture.run(&command)), "{command:?}");
        }
        assert_eq!(fixture.state.load_of(&tenant()), fixture.state.count_load_of(&tenant()));
        let held = fixture.claim(9);
        let own = held.iter().find(|held| held.task == key("t-1")).unwrap();
        fixture.finish(&own.task, own.fence, completed()).unwrap();
        fixture.run(&task("t-3")).expect("another one is finished");
        assert_eq!(fixture.state.load_of(&tenant()).tasks, 3);
        fixture.restart();
        assert_eq!(fixture.state.load_of(&tenant()), fixture.state.count_load_of(&tenant()));
        assert_eq!(fixture.state.load_of(&tenant()).tasks, 3);
    }

    fn resume(target: ResumeTarget) -> Command {
        Command::Resume(Resume { tenant: tenant(), target })
    }

    fn resume_job(job: JobId) -> Command {
        resume(ResumeTarget::Job { job, tasks: None })
    }

    /// Submits a job `a -> b` and has its first task fail, so that it is at rest.
    fn failed_job(fixture: &mut Fixture, number: u128) -> JobId {
        let job = JobId::from_u128(number);
        let tasks = vec![spec("a", &[]), spec("b", &["a"])];
        fixture.run(&Command::SubmitJob(submit_job(job, tasks))).unwrap();
        let held = fixture.claim(1).remove(0);
        fixture.finish(&held.task, held.fence, failed(ErrorCategory::Auth)).unwrap();
        assert_eq!(fixture.state.load_of(&tenant()).tasks, 0, "it is at rest");
        job
    }

    /// A tenant with a job that runs and one at rest, which there is no room for; the first, and what would wake the other.
    fn full() -> (Fixture, JobId, [Command; 5]) {
        let mut fixture = Fixture::new();
        fixture.policy.tenant_tasks_max = 3;
        let jobs = [11, 12].map(|number| failed_job(&mut fixture, number));
        let request = jobs[1].request_id(&tidemill_model::TaskId::trusted("a"));
        fixture.run(&resume_job(jobs[0])).unwrap();
        let message = MessageId(77);
        let letter = DeadLetter {
            message,
            request: request.clone(),
            run: 1,
            reason: "lost".into(),
            since: fixture.now,
            state: DeadLetterState::Open,
            last_error: None,
        };
        let record = Record { version: 1, expires_at: None, value: RecordValue::DeadLetter(letter) };
        let key = RecordKey::dead_letter(&tenant(), message);
        fixture.state.apply_record(&RecordWrite::Put { key, record: Some(record) });
        let add = AddTasks {
            tenant: tenant(),
            job: jobs[1],
            tasks: Arc::new(vec![Arc::new(spec("c", &[]))]),
            listed: Listed::Inline(Json::trusted("[]")),
        };
        let wakers = [
            resume_job(jobs[1]),
            resume(ResumeTarget::Job {
                job: jobs[1],
                tasks: Some(vec![tidemill_model::TaskId::trusted("a")]),
            }),
            resume(ResumeTarget::Task(request)),
            Command::Replay(Replay { tenant: tenant(), message }),
            Command::AddTasks(add),
        ];
        (fixture, jobs[0], wakers)
    }

    #[test]
    fn a_job_at_rest_is_woken_only_if_there_is_room_for_it() {
        for at in 0..5 {
            let (mut fixture, running, wakers) = full();
            let (waker, before) = (&wakers[at], fixture.state.load_of(&tenant()));
            assert!(is_full(&fixture.run(waker)), "{waker:?}");
            assert_eq!(fixture.state.load_of(&tenant()), before);
            let cancel = Cancel { tenant: tenant(), job: running, by: "ann".to_owned(), reason: None };
            fixture.run(&Command::Cancel(cancel)).expect("what makes room is never refused");
            fixture.run(waker).unwrap_or_else(|refusal| panic!("{waker:?}: {refusal}"));
            assert!(fixture.state.load_of(&tenant()).tasks >= 2);
            assert_eq!(fixture.state.load_of(&tenant()), fixture.state.count_load_of(&tenant()));
        }
    }

    #[test]
    fn a_failed_task_counts_again_when_it_is_resumed() {
        let mut fixture = Fixture::new();
        fixture.policy.tenant_tasks_max = 2;
        let job = fixture.submit_job(vec![spec("a", &[]), spec("b", &[])]);
        fixture.policy.tenant_tasks_max = 3;
        fixture.submit_task("t-1");
        let held = fixture.claim(3);
        for task in &held[..2] {
            fixture.finish(&task.task, task.fence, failed(ErrorCategory::Auth)).unwrap();
        }
        fixture.policy.tenant_tasks_max = 2;
        assert_eq!(fixture.state.load_of(&tenant()).tasks, 1);
        assert!(is_full(&fixture.run(&resume_job(job))), "one and two are more than two");
        fixture
            .run(&resume(ResumeTarget::Task(held[0].task.request.clone())))
            .expect("there is room for one");
        let last = resume(ResumeTarget::Task(held[1].task.request.clone()));
        assert!(is_full(&fixture.run(&last)));
        fixture.finish(&held[2].task, held[2].fence, completed()).unwrap();
        fixture.run(&last).expect("another one is finished");
        assert_eq!(fixture.state.load_of(&tenant()), fixture.state.count_load_of(&tenant()));
    }

    #[test]
    fn bytes_count_as_well_and_the_limit_is_named() {
        let mut fixture = Fixture::new();
        fixture.policy.tenant_bytes_max = 200;
        fixture.submit_task("t-1");
        let task = Command::SubmitTask(SubmitTask { task: alone("t-2"), once: Vec::new() });
        fixture.run(&task).unwrap();
        let task = Command::SubmitTask(SubmitTask { task: alone("t-3"), once: Vec::new() });
        let refused = fixture.run(&task).unwrap_err().to_string();
        assert!(refused.starts_with("unfinished bytes of tasks of the tenant would be"), "{refused}");
        assert!(refused.ends_with("TENANT_BYTES_MAX is 200"), "{refused}");
    }
}
