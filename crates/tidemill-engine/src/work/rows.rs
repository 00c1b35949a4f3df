//! The rows that commands about jobs and tasks need in memory, and how large tasks are in the log.

use std::sync::Arc;

use tidemill_model::{JobId, TaskHead, TaskSpec, TenantId};

use crate::kernel::command::Once;
use crate::kernel::commit::TaskKey;
use crate::kernel::state::State;
use crate::kernel::state::row::RowKey;
use crate::queue::dead_letter;
use crate::triage::ingest;

/// A task's row, or that of its whole job.
pub(crate) fn task_row(task: &TaskKey) -> RowKey {
    match task.request.job_part() {
        Some(job) => RowKey::Job(task.tenant.clone(), job),
        None => RowKey::Task(task.clone()),
    }
}

/// A task that is steered from outside, and what is known of its errors if it is parked.
pub(crate) fn steered_rows(state: &State, key: &TaskKey) -> Vec<RowKey> {
    let mut rows = vec![task_row(key)];
    let Some(task) = state.task(key) else { return rows };
    if task.entry.head.as_ref().is_some_and(TaskHead::is_parked) {
        rows.extend(ingest::task_rows(state, &key.tenant, &key.request));
    }
    rows.extend(dead_letter::letter_row(&key.tenant, task.entry));
    rows
}

/// The dead letters of a job's failed tasks.
pub(crate) fn letter_rows(state: &State, tenant: &TenantId, id: JobId) -> Vec<RowKey> {
    let Some(job) = state.job(tenant, id) else { return Vec::new() };
    let entries = job.failed.iter().map(|index| &job.node(*index).entry);
    entries.filter_map(|entry| dead_letter::letter_row(tenant, entry)).collect()
}

/// A job that is steered from outside, and what is known of the errors of its parked tasks.
pub(crate) fn job_rows(state: &State, tenant: &TenantId, id: JobId) -> Vec<RowKey> {
    let mut rows = vec![RowKey::Job(tenant.clone(), id)];
    if let Some(job) = state.job(tenant, id) {
        let parked = job.parked.iter().map(|index| job.request_of(*index));
        rows.extend(parked.flat_map(|request| ingest::task_rows(state, tenant, &request)));
    }
    rows
}

/// The records of promises that repeating a request changes nothing.
pub(crate) fn once_rows(once: &[Once]) -> impl Iterator<Item = RowKey> {
    once.iter().map(|once| RowKey::Record(once.key.clone()))
}

/// About how many bytes new tasks put into the log at most.
pub(crate) fn tasks_bytes(tasks: &[Arc<TaskSpec>]) -> u64 {
    tasks.len() as u64 * 1_200 + inputs_bytes(tasks)
}

/// How many bytes the inputs of tasks have.
pub(crate) fn inputs_bytes(tasks: &[Arc<TaskSpec>]) -> u64 {
    tasks.iter().map(|task| task.input.len() as u64).sum()
}

#[cfg(test)]
mod tests {
    use crate::kernel::command::Command;
    use crate::kernel::record::RecordKey;
    use tidemill_model::JobId;

    use super::*;
    use crate::kernel::fixture::{Fixture, key, spec, submit_job, tenant};

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
