//! Which rows a command needs in memory before it can be decided.

use crate::command::{Command, Once, ResumeTarget};
use crate::commit::TaskKey;
use crate::record::{Effect, RecordKey, RecordValue};
use crate::state::State;
use crate::state::row::RowKey;

impl Command {
    /// The rows to load first, as far as they are not in memory. Live work always is.
    pub fn touches(&self, state: &State) -> Vec<RowKey> {
        let mut keys = Vec::new();
        match self {
            Self::SubmitJob(command) => {
                once(command.once.as_ref(), &mut keys);
                // A repeat answers with the earlier job, which is known once the key is here.
                let key = command.once.as_ref().map(|once| &once.key);
                if let Some(RecordValue::Idempotency(earlier)) =
                    key.and_then(|key| state.record(key)).map(|record| &record.value)
                    && let Effect::Job(job) = earlier.effect
                {
                    keys.push(RowKey::Job(command.job.tenant.clone(), job));
                }
            }
            Self::SubmitTask(command) => {
                once(command.once.as_ref(), &mut keys);
                let task = &command.task;
                keys.push(task_row(&TaskKey { tenant: task.tenant.clone(), request: task.request.clone() }));
            }
            Self::AddTasks(command) => keys.push(RowKey::Job(command.tenant.clone(), command.job)),
            Self::Begin(command) => keys.push(task_row(&command.task)),
            Self::Heartbeat(command) => keys.push(task_row(&command.task)),
            Self::Finish(command) => keys.push(task_row(&command.task)),
            Self::Release(command) => keys.push(task_row(&command.task)),
            Self::Resume(command) => keys.push(match &command.target {
                ResumeTarget::Job { job, .. } => RowKey::Job(command.tenant.clone(), *job),
                ResumeTarget::Task(request) => {
                    task_row(&TaskKey { tenant: command.tenant.clone(), request: request.clone() })
                }
            }),
            Self::Cancel(command) => keys.push(RowKey::Job(command.tenant.clone(), command.job)),
            Self::Advance { tenant, job } => keys.push(RowKey::Job(tenant.clone(), *job)),
            Self::Publish(command) => keys.extend(
                command
                    .events
                    .iter()
                    .map(|event| RowKey::Entity(command.tenant.clone(), event.entity.clone())),
            ),
            Self::Send(command) => {
                let task = &command.task;
                keys.push(task_row(&TaskKey { tenant: task.tenant.clone(), request: task.request.clone() }));
            }
            Self::Replay { tenant, message } | Self::Discard { tenant, message } => {
                let key = RecordKey::dead_letter(tenant, *message);
                // The task is known once the letter is here.
                if let Some(RecordValue::DeadLetter(letter)) = state.record(&key).map(|record| &record.value)
                {
                    keys.push(task_row(&TaskKey { tenant: tenant.clone(), request: letter.request.clone() }));
                }
                keys.push(RowKey::Record(key));
            }
            Self::PutRecord(command) => keys.push(RowKey::Record(command.key.clone())),
            Self::Claim(_)
            | Self::Receive(_)
            | Self::Sweep(_)
            | Self::Recover { .. }
            | Self::Delete { .. }
            | Self::ChangeVisibility { .. } => {}
        }
        keys.retain(|key| !state.is_loaded(key));
        keys
    }
}

/// A task's row, or that of its whole job.
pub(super) fn task_row(task: &TaskKey) -> RowKey {
    match task.request.job_part() {
        Some(job) => RowKey::Job(task.tenant.clone(), job),
        None => RowKey::Task(task.clone()),
    }
}

fn once(once: Option<&Once>, keys: &mut Vec<RowKey>) {
    keys.extend(once.map(|once| RowKey::Record(once.key.clone())));
}
