//! How large commits and commands are, so that what does not fit is refused before anything is changed.

use tidemill_engine::command::Command;
use tidemill_engine::commit::{Commit, RecordWrite, TaskKey};
use tidemill_engine::record::RecordValue;
use tidemill_engine::state::job::spec_bytes;
use tidemill_model::{Event, TaskSpec};

use crate::log::LogConfig;

/// What an entry takes beside its texts, at most.
const ENTRY_BYTES: usize = 160;

/// The open group takes nothing more once it has this many bytes, and carried rows are written in groups of this
/// size.
///
/// Half a segment: small segments mean small groups.
pub(crate) fn group_bytes(config: &LogConfig) -> usize {
    usize::try_from(config.segment_bytes / 2).unwrap_or(usize::MAX).min(GROUP_BYTES)
}

const GROUP_BYTES: usize = 32 << 20;

/// How much room in the log the commands may need, with some to spare.
pub(crate) fn wanted(config: &LogConfig, commands: &[Command]) -> u64 {
    // No more for one command than half a segment: small segments mean small commands.
    let most = config.segment_bytes / 2;
    commands.iter().map(|command| command.log_bytes().min(most)).sum::<u64>() + config.segment_bytes / 64
}

/// How many bytes a commit takes in a group, at most.
pub(super) fn commit_bytes(commit: &Commit) -> usize {
    let records: usize = commit.records.iter().map(record_bytes).sum();
    let tasks: usize = commit.tasks.iter().map(|change| task_bytes(&change.task) + WORKER_BYTES).sum();
    let messages: usize = commit.enqueue.iter().map(|message| task_bytes(&message.task)).sum();
    let events: usize = commit.events.iter().map(event_bytes).sum();
    records + tasks + messages + events + (commit.visibility.len() + commit.settle.len()) * ENTRY_BYTES
}

/// What the name of a lease's owner takes, at most.
const WORKER_BYTES: usize = 300;

fn task_bytes(task: &TaskKey) -> usize {
    task.tenant.as_str().len() + task.request.as_str().len() + ENTRY_BYTES
}

fn specs_bytes<'a>(specs: impl IntoIterator<Item = &'a std::sync::Arc<TaskSpec>>) -> usize {
    specs.into_iter().map(|spec| spec_bytes(spec)).sum()
}

fn record_bytes(write: &RecordWrite) -> usize {
    let texts = match write {
        RecordWrite::Job(job) => {
            let names = job.tenant.as_str().len() + job.app.as_str().len() + job.request.as_str().len();
            names + job.name.as_ref().map_or(0, |name| name.len()) + specs_bytes(&job.tasks)
        }
        RecordWrite::JobTasks { tenant, tasks: specs, .. } | RecordWrite::JobSpecs { tenant, specs, .. } => {
            tenant.as_str().len() + specs_bytes(specs.iter())
        }
        RecordWrite::AloneSpec { task, spec } => task_bytes(task) + spec_bytes(spec),
        RecordWrite::JobCancelled { tenant, .. }
        | RecordWrite::JobAllowance { tenant, .. }
        | RecordWrite::JobHops { tenant, .. } => tenant.as_str().len(),
        RecordWrite::JobCallback { tenant, url, .. } => tenant.as_str().len() + url.len(),
        RecordWrite::Task(task) => {
            let names = task.tenant.as_str().len() + task.app.as_str().len() + task.request.as_str().len();
            names + spec_bytes(&task.spec)
        }
        RecordWrite::Put { key, record } => {
            let value = record.as_ref().map_or(0, |record| match &record.value {
                RecordValue::Bytes(bytes) => bytes.len(),
                RecordValue::Idempotency(_) => 400,
                RecordValue::Usage(_) | RecordValue::Budget(_) => 100,
                RecordValue::Execution(execution) => execution.len(),
                RecordValue::ScriptLetter(letter) => letter.len(),
                RecordValue::ErrorGroup(group) => group.len(),
                RecordValue::TriageError(error) => error.len(),
                RecordValue::TriageExecution(execution) => execution.len(),
                RecordValue::Parked(parked) => parked.len(),
                RecordValue::Token(token) => token.len(),
                RecordValue::Bulk(bulk) => bulk.len(),
                RecordValue::Delivery(delivery) => delivery.len(),
                RecordValue::DeliveryLetter(letter) => letter.len(),
                RecordValue::DeadLetter(letter) => letter.reason.len() + letter.request.as_str().len(),
            });
            key.id.len() + key.tenant.as_ref().map_or(0, |tenant| tenant.as_str().len()) + value
        }
    };
    texts + ENTRY_BYTES
}

fn event_bytes(event: &Event) -> usize {
    let context = &event.context;
    let worker = context.worker_id.as_ref().map_or(0, |worker| worker.as_str().len());
    event.properties.len()
        + event.tenant.as_str().len()
        + event.app.as_str().len()
        + event.entity.kind.as_str().len()
        + event.entity.id.as_str().len()
        + event.event_type.as_str().len()
        + context.environment.len()
        + context.origin.len()
        + worker
        + ENTRY_BYTES
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tidemill_engine::backend::Answer;
    use tidemill_engine::command::{Prepared, SubmitJob};
    use tidemill_engine::commit::NewJob;
    use tidemill_engine::policy::Policy;
    use tidemill_engine::reply::Refusal;
    use tidemill_engine::site::Site;
    use tidemill_model::{
        AppName, JobId, Json, RequestId, TaskId, TaskName, TaskOptions, TenantId, Timestamp,
    };

    use super::super::Tell;
    use super::super::decider::{Decider, Wakeups};
    use super::super::rows::row_store::RowStore;
    use super::super::rows::row_trouble::RowConfig;
    use super::*;
    use crate::disk::Disk;
    use crate::log::{Group, Seq};
    use crate::real_disk::RealDisk;

    fn submit(job: u128, tasks: usize) -> Command {
        let spec = |index: usize| {
            Arc::new(TaskSpec {
                task_id: TaskId::new(format!("task-{index}")).unwrap(),
                name: TaskName::new("noop").unwrap(),
                depends_on: Vec::new(),
                input: Json::parse(format!(r#"{{"n":{index}}}"#)).unwrap(),
                options: TaskOptions::default(),
            })
        };
        Command::SubmitJob(SubmitJob {
            job: NewJob {
                tenant: TenantId::new("acme").unwrap(),
                app: AppName::new("shop").unwrap(),
                job: JobId::from_u128(job),
                request: RequestId::new("r").unwrap(),
                name: None,
                created_at: Timestamp::MIN,
                tasks: (0..tasks).map(spec).collect(),
            },
            created: Prepared { id: None, properties: Json::empty_object() },
            once: Vec::new(),
            budget: None,
            callback: None,
        })
    }

    #[test]
    fn what_does_not_fit_into_a_group_is_refused_and_the_rest_goes_on() {
        let dir = std::env::temp_dir().join(format!("tidemill-size-{}", std::process::id()));
        let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(&dir).unwrap());
        let rows = Arc::new(RowStore::open(&disk, RowConfig::USUAL, &Tell::default()).unwrap());
        let mut decider = Decider::new(rows, Policy::default(), Site::default(), 1, Seq::FIRST);
        decider.group_bytes_max = 20_000;
        let (mut group, mut wakeups) = (Group::new(), Wakeups::default());
        let mut decide = |job: u128, tasks: usize| -> (Answer, usize) {
            let now = Timestamp::clamped(1_700_000_000_000);
            let answer = decider.decide(&submit(job, tasks), now, &mut group, &mut wakeups).unwrap();
            (answer, group.byte_count())
        };
        let (answer, filled) = decide(1, 10);
        assert!(answer.is_ok() && filled < 20_000, "{filled}");
        let (answer, left) = decide(2, 40);
        assert!(matches!(answer, Err(Refusal::TooLarge { field: "tasks", .. })), "{answer:?}");
        assert_eq!(left, filled, "nothing of it is there");
        let (answer, filled) = decide(3, 1);
        assert!(answer.is_ok() && filled > left);
        std::fs::remove_dir_all(dir).unwrap();
    }
}
