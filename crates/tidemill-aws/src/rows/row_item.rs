//! Where rows lie in the table. What is listed together shares a partition and is sorted as it is listed.

use tidemill_engine::codec::BadBytes;
use tidemill_engine::codec::stored::{Stored, read_all, read_all_v1};
use tidemill_engine::commit::TaskKey;
use tidemill_engine::record::{RecordKey, RecordKind};
use tidemill_engine::state::row::{Row, RowKey};
use tidemill_model::{JobId, RequestId, TenantId};

/// The form of rows that this release writes.
const VERSION: u8 = 2;
/// The form before: fields without numbers.
const VERSION_1: u8 = 1;
/// What the sort keys of a job's lists of tasks begin with.
pub(crate) const TASK_LISTS: &str = "LIST#";
/// What the sort keys of a job's tasks begin with.
const TASKS: &str = "TASK#";
/// The sort key of a row that is alone in its partition.
const ALONE: &str = "ROW";

/// Partition key and sort key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) pk: String,
    pub(crate) sk: String,
}

pub(crate) fn place(shard: &str, key: &RowKey) -> Place {
    let alone = |pk: String| Place { pk, sk: ALONE.to_owned() };
    match key {
        RowKey::Task(task) => match task.request.job_part() {
            Some(job) => {
                Place { pk: job_partition(shard, &task.tenant, job), sk: format!("{TASKS}{}", task.request) }
            }
            None => alone(format!("ROW#{shard}#TASK#{}#{}", task.tenant, task.request)),
        },
        RowKey::Job(tenant, job) => Place { pk: jobs_partition(shard, tenant), sk: job.to_string() },
        RowKey::JobTasks(tenant, job, first) => {
            Place { pk: job_partition(shard, tenant, *job), sk: task_list_name(*first) }
        }
        RowKey::Message(message) => {
            Place { pk: messages_partition(shard), sk: format!("{:032x}", message.0) }
        }
        RowKey::Record(key) => Place {
            pk: records_partition(shard, key.kind),
            sk: format!("{}{}", records_prefix(key.tenant.as_ref()), key.id),
        },
        RowKey::Entity(tenant, entity) => {
            alone(format!("ROW#{shard}#ENTITY#{tenant}#{}#{}", entity.kind, entity.id))
        }
    }
}

/// The tasks of a job and their lists.
pub(crate) fn job_partition(shard: &str, tenant: &TenantId, job: JobId) -> String {
    format!("ROW#{shard}#JOB#{tenant}#{job}")
}

/// The sort key of the list of tasks that begins with the index `first`.
pub(crate) fn task_list_name(first: u32) -> String {
    format!("{TASK_LISTS}{first:010}")
}

/// The key of a row in the partition of a job, by its sort key.
pub(crate) fn part_of_job(tenant: &TenantId, job: JobId, sk: &str) -> Option<RowKey> {
    if let Some(digits) = sk.strip_prefix(TASK_LISTS) {
        return Some(RowKey::JobTasks(tenant.clone(), job, digits.parse().ok()?));
    }
    let request = RequestId::trusted(sk.strip_prefix(TASKS)?);
    Some(RowKey::Task(TaskKey { tenant: tenant.clone(), request }))
}

/// The heads of a tenant's jobs, sorted by their ids.
pub(crate) fn jobs_partition(shard: &str, tenant: &TenantId) -> String {
    format!("ROW#{shard}#JOBS#{tenant}")
}

/// All messages.
pub(crate) fn messages_partition(shard: &str) -> String {
    format!("ROW#{shard}#MESSAGES")
}

/// All records of a kind.
pub(crate) fn records_partition(shard: &str, kind: RecordKind) -> String {
    let mut tag = Vec::new();
    kind.put(&mut tag);
    format!("ROW#{shard}#RECORD#{:02}", tag[0])
}

/// What the sort keys of a tenant's records begin with. No name of a tenant holds anything that sorts before `#`, so the
/// keys are sorted by tenant and then by id.
pub(crate) fn records_prefix(tenant: Option<&TenantId>) -> String {
    format!("{}#", tenant.map_or("", TenantId::as_str))
}

/// The key of a record by its sort key.
pub(crate) fn record_key(kind: RecordKind, sk: &str) -> Option<RecordKey> {
    let (tenant, id) = sk.split_once('#')?;
    let tenant = (!tenant.is_empty()).then(|| TenantId::trusted(tenant));
    Some(RecordKey { kind, tenant, id: id.into() })
}

pub(crate) fn row_bytes(row: &Row) -> Vec<u8> {
    let mut out = vec![VERSION];
    row.put(&mut out);
    out
}

pub(crate) fn read_row(bytes: &[u8]) -> Result<Row, BadBytes> {
    match bytes.split_first() {
        Some((&VERSION, rest)) => read_all(rest),
        Some((&VERSION_1, rest)) => read_all_v1(rest),
        _ => Err(BadBytes("has a version this release does not know")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_listed_together_is_sorted_as_it_is_listed() {
        let sk = |tenant: Option<&str>, id: &str| {
            let tenant = tenant.map(TenantId::trusted);
            place("0", &RowKey::Record(RecordKey { kind: RecordKind::Script, tenant, id: id.into() })).sk
        };
        let sorted = [
            sk(None, "z"),
            sk(Some("a"), ""),
            sk(Some("a"), "1"),
            sk(Some("a-b"), "0"),
            sk(Some("a_b"), "0"),
        ];
        assert!(sorted.is_sorted(), "{sorted:?}");
        for text in &sorted {
            let key = record_key(RecordKind::Script, text).unwrap();
            assert_eq!(sk(key.tenant.as_ref().map(TenantId::as_str), &key.id), *text);
        }
        let tenant = TenantId::trusted("t");
        let lists = [0, 64, 640, 6_400]
            .map(|first| place("0", &RowKey::JobTasks(tenant.clone(), JobId::from_u128(1), first)));
        assert!(lists.is_sorted_by_key(|place| place.sk.clone()));
        let task = TaskKey { tenant, request: RequestId::trusted("r") };
        assert_eq!(place("0", &RowKey::Task(task)).pk, "ROW#0#TASK#t#r");
    }
}
