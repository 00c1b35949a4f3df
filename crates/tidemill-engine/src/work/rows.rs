//! Which rows a command needs in memory before it can be decided.

use tidemill_model::{Entity, JobId, TaskHead, TenantId, Timestamp};

use crate::health;
use crate::kernel::command::{
    Advance, BudgetTarget, ChangeTarget, Command, DeliveryEnd, Discard, DiscardDelivery, DiscardLetter,
    ExecutionEnd, Finish, Forget, KeepLetter, LookAfterParked, Once, Publish, Replay, ReplayDelivery,
    ReplayLetter, Report, ResumeTarget, ScriptEffect, StepBulk, SubmitJob,
};
use crate::kernel::commit::TaskKey;
use crate::kernel::record::{Effect, RecordKey, RecordValue, UsageOf};
use crate::kernel::state::State;
use crate::kernel::state::row::RowKey;
use crate::outbound::DeliveryKey;
use crate::parking::unpark;
use crate::queue::dead_letter;
use crate::scripts::end;
use crate::scripts::execution::ExecutionId;
use crate::triage::WorkflowItem;
use crate::triage::{bulk_steps, ingest};
use crate::usage::charge;
use crate::work::{claim, finish};

impl Command {
    /// The rows to load first, as far as they are not in memory. Live work always is.
    #[expect(clippy::too_many_lines, reason = "one arm for each command")]
    pub fn touches(&self, state: &State, now: Timestamp) -> Vec<RowKey> {
        let mut keys = Vec::new();
        match self {
            Self::SubmitJob(command) => keys.extend(submission(state, command)),
            Self::SubmitTask(command) => {
                keys.extend(once(&command.once));
                let task = &command.task;
                keys.push(task_row(&TaskKey { tenant: task.tenant.clone(), request: task.request.clone() }));
            }
            Self::AddTasks(command) => keys.push(RowKey::Job(command.tenant.clone(), command.job)),
            Self::ChangeTasks(command) => keys.extend(match &command.target {
                ChangeTarget::Job { job, .. } => job_rows(state, &command.tenant, *job),
                ChangeTarget::Alone { request, .. } => {
                    let key = TaskKey { tenant: command.tenant.clone(), request: request.clone() };
                    steered_rows(state, &key)
                }
            }),
            Self::Begin(command) => keys.push(task_row(&command.task)),
            Self::Heartbeat(command) => keys.push(task_row(&command.task)),
            Self::Finish(command) => {
                keys.push(task_row(&command.task));
                keys.extend(finish_rows(state, command));
                if command.spent.usage.is_some() {
                    keys.extend(sums(state, &command.task, now));
                }
            }
            Self::Release(command) => {
                keys.push(task_row(&command.task));
                if command.spent.usage.is_some() {
                    keys.extend(sums(state, &command.task, now));
                }
            }
            Self::Resume(command) => match &command.target {
                ResumeTarget::Job { job, .. } => {
                    keys.extend(job_rows(state, &command.tenant, *job));
                    keys.extend(letter_rows(state, &command.tenant, *job));
                }
                ResumeTarget::Task(request) => {
                    let key = TaskKey { tenant: command.tenant.clone(), request: request.clone() };
                    keys.extend(steered_rows(state, &key));
                }
            },
            Self::Cancel(command) => keys.extend(job_rows(state, &command.tenant, command.job)),
            Self::CancelTask(command) => {
                let key = TaskKey { tenant: command.tenant.clone(), request: command.request.clone() };
                keys.extend(steered_rows(state, &key));
            }
            Self::Advance(Advance { tenant, job }) => keys.push(RowKey::Job(tenant.clone(), *job)),
            Self::Publish(command) => keys.extend(entities(state, command)),
            Self::Send(command) => {
                let task = &command.task;
                keys.push(task_row(&TaskKey { tenant: task.tenant.clone(), request: task.request.clone() }));
            }
            Self::Replay(Replay { tenant, message }) | Self::Discard(Discard { tenant, message }) => {
                let key = RecordKey::dead_letter(tenant, *message);
                // The task is known once the letter is here.
                if let Some(RecordValue::DeadLetter(letter)) = state.record(&key).map(|record| &record.value)
                {
                    let key = TaskKey { tenant: tenant.clone(), request: letter.request.clone() };
                    keys.extend(steered_rows(state, &key));
                }
                keys.push(RowKey::Record(key));
            }
            Self::Match(command) => {
                keys.push(RowKey::Record(RecordKey::scripts_cursor_of(command.lane.as_ref())));
                keys.extend(command.executions.iter().map(|new| {
                    let id = ExecutionId::of(new.event.id, &new.subscription);
                    RowKey::Record(RecordKey::execution(&new.tenant, id))
                }));
            }
            Self::EndExecution(command) => {
                keys.push(RowKey::Record(RecordKey::execution(&command.tenant, command.execution)));
                if command.end.may_bury() {
                    keys.push(RowKey::Record(RecordKey::script_letter(&command.tenant, command.execution)));
                }
                if let ExecutionEnd::Succeeded { effects, .. } = &command.end {
                    keys.extend(effects.iter().flat_map(|effect| match effect {
                        ScriptEffect::Publish(publish) => entities(state, publish),
                        ScriptEffect::SubmitJob(submit) => submission(state, submit),
                    }));
                }
            }
            Self::ReplayLetter(ReplayLetter { tenant, letter })
            | Self::DiscardLetter(DiscardLetter { tenant, letter }) => {
                keys.push(RowKey::Record(RecordKey::script_letter(tenant, *letter)));
            }
            Self::EndDelivery(command) => {
                keys.push(RowKey::Record(RecordKey::delivery(&command.tenant, command.delivery)));
                if let DeliveryEnd::Failed { .. } = command.end {
                    keys.push(RowKey::Record(RecordKey::delivery_letter(&command.tenant, command.delivery)));
                }
            }
            Self::KeepLetter(KeepLetter { tenant, letter }) => {
                keys.push(RowKey::Record(RecordKey::delivery_letter(tenant, letter.id)));
            }
            Self::ReplayDelivery(ReplayDelivery { tenant, letter })
            | Self::DiscardDelivery(DiscardDelivery { tenant, letter }) => {
                keys.push(RowKey::Record(RecordKey::delivery_letter(tenant, *letter)));
            }
            Self::Alert(command) => {
                keys.push(RowKey::Entity(command.tenant.clone(), Entity::system(end::ENTITY)));
                keys.push(RowKey::Record(RecordKey::alert(&command.tenant, command.name)));
            }
            Self::RecordHealth(command) => {
                keys.push(RowKey::Entity(command.tenant.clone(), Entity::system(health::ENTITY)));
                keys.push(RowKey::Record(RecordKey::health(&command.tenant)));
            }
            Self::Forget(Forget { keys: records }) => {
                keys.extend(records.iter().cloned().map(RowKey::Record));
                keys.extend(records.iter().flat_map(|key| ingest::forget_rows(state, key)));
            }
            Self::Unpark(command) => {
                keys.extend(unpark::rows(state, &command.tenant, &command.execution));
            }
            Self::LookAfterParked(LookAfterParked { keys: parked }) => {
                keys.extend(unpark::look_after_rows(state, parked));
            }
            Self::StepBulk(StepBulk { tenant, bulk }) => {
                keys.extend(bulk_steps::rows(state, tenant, *bulk, now));
            }
            Self::PutRecord(command) => keys.push(RowKey::Record(command.key.clone())),
            Self::PutRecords(command) => {
                keys.extend(command.records.iter().map(|put| RowKey::Record(put.key.clone())));
            }
            Self::SetBudget(command) => keys.extend(match command.target {
                BudgetTarget::Job(job) => [
                    RowKey::Job(command.tenant.clone(), job),
                    RowKey::Record(RecordKey::usage(&command.tenant, UsageOf::Job(job))),
                ],
                BudgetTarget::Tenant(period) => [
                    RowKey::Record(RecordKey::budget(&command.tenant)),
                    RowKey::Record(charge::spent_in(&command.tenant, period, now)),
                ],
            }),
            Self::Claim(command) => {
                keys.extend(delivered_rows(state, command.tenants.as_deref(), command.max));
            }
            Self::Receive(command) => {
                keys.extend(delivered_rows(state, command.tenants.as_deref(), command.max));
            }
            Self::StartBulk(_)
            | Self::CancelBulk(_)
            | Self::Sweep(_)
            | Self::Recover(_)
            | Self::Delete(_)
            | Self::ChangeVisibility(_) => {}
        }
        let alerts = self.alerts_to_join(state).into_iter();
        keys.extend(alerts.map(|key| RowKey::Record(RecordKey::delivery(&key.tenant, key.id))));
        keys.retain(|key| !state.is_loaded(key));
        keys
    }

    /// The alerts about failed jobs that those join which fail by this command: of its tenant, if it has one.
    fn alerts_to_join(&self, state: &State) -> Vec<DeliveryKey> {
        let of = |tenant: Option<&TenantId>| state.deliveries().gatherings(tenant);
        match self {
            Self::Finish(command) => of(Some(&command.task.tenant)),
            Self::CancelTask(command) => of(Some(&command.tenant)),
            Self::Unpark(command) => of(Some(&command.tenant)),
            Self::StepBulk(StepBulk { tenant, .. }) => of(Some(tenant)),
            Self::LookAfterParked(_)
            | Self::Claim(_)
            | Self::Receive(_)
            | Self::Release(_)
            | Self::Sweep(_)
            | Self::Recover(_) => of(None),
            _ => Vec::new(),
        }
    }
}

/// A task's row, or that of its whole job.
pub(crate) fn task_row(task: &TaskKey) -> RowKey {
    match task.request.job_part() {
        Some(job) => RowKey::Job(task.tenant.clone(), job),
        None => RowKey::Task(task.clone()),
    }
}

/// What is known of a task's errors, where the end of an attempt changes it. A task that comes to a good end in its first
/// run has none.
fn finish_rows(state: &State, command: &Finish) -> Vec<RowKey> {
    let task = state.task(&command.task);
    let head = task.as_ref().and_then(|task| task.entry.head.as_ref());
    let changes = match &command.report {
        Report::Completed { .. } => head.is_some_and(finish::may_have_failed),
        Report::Failed { .. } | Report::TimedOut { .. } => true,
    };
    if changes { ingest::task_rows(state, &command.task.tenant, &command.task.request) } else { Vec::new() }
}

/// A task that is steered from outside, and what is known of its errors if it is parked.
fn steered_rows(state: &State, key: &TaskKey) -> Vec<RowKey> {
    let mut rows = vec![task_row(key)];
    let Some(task) = state.task(key) else { return rows };
    if task.entry.head.as_ref().is_some_and(TaskHead::is_parked) {
        rows.extend(ingest::task_rows(state, &key.tenant, &key.request));
    }
    rows.extend(dead_letter::letter_row(&key.tenant, task.entry));
    rows
}

/// The dead letters of a job's failed tasks.
fn letter_rows(state: &State, tenant: &TenantId, id: JobId) -> Vec<RowKey> {
    let Some(job) = state.job(tenant, id) else { return Vec::new() };
    let entries = job.failed.iter().map(|index| &job.node(*index).entry);
    entries.filter_map(|entry| dead_letter::letter_row(tenant, entry)).collect()
}

/// A job that is steered from outside, and what is known of the errors of its parked tasks.
fn job_rows(state: &State, tenant: &TenantId, id: JobId) -> Vec<RowKey> {
    let mut rows = vec![RowKey::Job(tenant.clone(), id)];
    if let Some(job) = state.job(tenant, id) {
        let parked = job.parked.iter().map(|index| job.request_of(*index));
        rows.extend(parked.flat_map(|request| ingest::task_rows(state, tenant, &request)));
    }
    rows
}

/// What is known of the errors of tasks that a delivery may give up: none is known of a task in its first run.
fn delivered_rows(state: &State, tenants: Option<&[TenantId]>, max: usize) -> Vec<RowKey> {
    let serves = |tenant: &TenantId| tenants.is_none_or(|tenants| tenants.contains(tenant));
    let mut rows = Vec::new();
    let mut sound = 0;
    for queued in state.queue().deliverable(serves).take(max.saturating_add(claim::LOOK_AHEAD)) {
        let key = &queued.message.task;
        let task = state.task(key);
        match task.and_then(|task| task.entry.head.as_ref()) {
            Some(head) if head.run > 1 => rows.extend(ingest::task_rows(state, &key.tenant, &key.request)),
            Some(_) => sound += 1,
            None => {}
        }
        if sound >= max {
            break;
        }
    }
    rows
}

/// What an attempt is added to. The name of the task is known once the task is here.
fn sums(state: &State, key: &TaskKey, now: Timestamp) -> Vec<RowKey> {
    let Some(task) = state.task(key) else { return Vec::new() };
    // The event that tells it is stamped now, or just after the task's last one.
    let at = task.entry.stream.last_timestamp().filter(|last| *last >= now).map_or(now, |last| last.plus(1));
    let mut rows: Vec<_> = charge::sums_of(key, &task, at).into_iter().map(RowKey::Record).collect();
    rows.push(RowKey::Entity(key.tenant.clone(), Entity::system(charge::BUDGET_ENTITY)));
    rows
}

/// What decides whether a job was submitted before.
fn submission(state: &State, command: &SubmitJob) -> Vec<RowKey> {
    let mut keys: Vec<_> = once(&command.once).collect();
    // A repeat answers with the earlier job, which is known once the key is here.
    for once in &command.once {
        if let Some(RecordValue::Idempotency(earlier)) = state.record(&once.key).map(|record| &record.value)
            && let Effect::Job(job) = earlier.effect
        {
            keys.push(RowKey::Job(command.job.tenant.clone(), job));
        }
    }
    keys
}

/// The entities of published events, and what those of workflows need.
fn entities(state: &State, command: &Publish) -> Vec<RowKey> {
    let entity = |event: &crate::kernel::command::PublishedEvent| {
        RowKey::Entity(command.tenant.clone(), event.entity.clone())
    };
    // An execution and an error each, mostly.
    let mut rows = Vec::with_capacity(3 * command.events.len());
    rows.extend(command.events.iter().map(entity));
    for item in command.events.iter().filter_map(|event| event.workflow.as_ref()) {
        ingest::item_rows(state, &command.tenant, item, &mut rows);
        if let Some(execution) = item.execution().filter(|_| matches!(item, WorkflowItem::Mark(_))) {
            // It may go on because of it.
            rows.extend(unpark::rows(state, &command.tenant, execution));
        }
    }
    rows
}

fn once(once: &[Once]) -> impl Iterator<Item = RowKey> {
    once.iter().map(|once| RowKey::Record(once.key.clone()))
}

#[cfg(test)]
mod tests {
    use tidemill_model::JobId;

    use crate::kernel::fixture::{Fixture, key, spec, submit_job, tenant};
    use crate::work::rows::*;

    #[test]
    fn a_repeated_submission_needs_the_key_and_then_the_job() {
        let mut fixture = Fixture::new();
        let record = RecordKey::idempotency(&tenant(), "POST /v1/jobs", "k-1");
        let submit = |job: u128| {
            let mut command = submit_job(JobId::from_u128(job), vec![spec("a", &[])]);
            command.once = vec![Once { key: record.clone(), body_hash: [1; 32], lasting: false }];
            Command::SubmitJob(command)
        };
        assert_eq!(submit(1).touches(&fixture.state, fixture.now), [RowKey::Record(record.clone())]);
        fixture.run(&submit(1)).unwrap();
        assert_eq!(submit(2).touches(&fixture.state, fixture.now), [], "all of it is in memory");
        // A state that knows the key and has let the job go.
        let mut rest = State::default();
        let kept = fixture.state.record(&record).cloned().unwrap();
        rest.load(RowKey::Record(record.clone()), crate::kernel::state::row::Row::Record(kept));
        assert_eq!(submit(2).touches(&rest, fixture.now), [RowKey::Job(tenant(), JobId::from_u128(1))]);
    }

    #[test]
    fn a_task_of_a_job_is_loaded_with_its_job() {
        let job = JobId::from_u128(7);
        let task = job.request_id(&tidemill_model::TaskId::trusted("a"));
        for (request, expected) in
            [(task.as_str(), RowKey::Job(tenant(), job)), ("t-1", RowKey::Task(key("t-1")))]
        {
            assert_eq!(task_row(&key(request)), expected);
        }
    }
}
