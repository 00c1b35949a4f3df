//! Row keys as bytes: a table, then parts in an order that makes the needed scans prefixes.

use crate::kernel::record::{RecordKey, RecordKind};
use crate::kernel::state::row::RowKey;
use tidemill_model::{JobId, TenantId};

use crate::kernel::codec::stored::Stored;

pub const TASK: u8 = 1;
pub const JOB: u8 = 2;
pub const JOB_TASKS: u8 = 3;
pub const MESSAGE: u8 = 4;
pub const RECORD: u8 = 5;
pub const ENTITY: u8 = 6;

/// Ends a text within a key. No id holds it.
const END: u8 = 0;

/// The key under which a row is kept.
pub fn bytes_of(key: &RowKey) -> Vec<u8> {
    let mut out = Vec::with_capacity(112);
    put_bytes(key, &mut out);
    out
}

/// Appends the key under which a row is kept.
pub fn put_bytes(key: &RowKey, out: &mut Vec<u8>) {
    match key {
        RowKey::Task(task) => {
            put(out, TASK, &task.tenant);
            out.extend_from_slice(task.request.as_str().as_bytes());
        }
        RowKey::Job(tenant, job) => {
            put(out, JOB, tenant);
            out.extend_from_slice(&job.as_u128().to_be_bytes());
        }
        RowKey::JobTasks(tenant, job, first) => {
            put(out, JOB_TASKS, tenant);
            out.extend_from_slice(&job.as_u128().to_be_bytes());
            out.extend_from_slice(&first.to_be_bytes());
        }
        RowKey::Message(message) => {
            out.push(MESSAGE);
            out.extend_from_slice(&message.0.to_be_bytes());
        }
        RowKey::Record(key) => {
            put_records_of(key.kind, key.tenant.as_ref(), out);
            out.extend_from_slice(key.id.as_bytes());
        }
        RowKey::Entity(tenant, entity) => {
            put(out, ENTITY, tenant);
            out.extend_from_slice(entity.kind.as_str().as_bytes());
            out.push(END);
            out.extend_from_slice(entity.id.as_str().as_bytes());
        }
    }
}

/// What the keys of a tenant's jobs begin with.
pub fn jobs_of(tenant: &TenantId) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, JOB, tenant);
    out
}

/// The key that follows those of a tenant's jobs before `before`, or of all.
pub fn jobs_before(tenant: &TenantId, before: Option<JobId>) -> Vec<u8> {
    let mut out = jobs_of(tenant);
    match before {
        Some(before) => out.extend_from_slice(&before.as_u128().to_be_bytes()),
        None => out.extend_from_slice(&[0xff; 17]),
    }
    out
}

/// What the keys of a job's task lists begin with.
pub fn tasks_of(tenant: &TenantId, job: JobId) -> Vec<u8> {
    let mut out = Vec::with_capacity(48);
    put(&mut out, JOB_TASKS, tenant);
    out.extend_from_slice(&job.as_u128().to_be_bytes());
    out
}

/// What the keys of a job's tasks begin with.
pub fn entries_of(tenant: &TenantId, job: JobId) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    put(&mut out, TASK, tenant);
    out.extend_from_slice(format!("{job}_").as_bytes());
    out
}

/// What the keys of a kind of records begin with.
pub fn records_of(kind: RecordKind, tenant: Option<&TenantId>) -> Vec<u8> {
    let mut out = Vec::with_capacity(32);
    put_records_of(kind, tenant, &mut out);
    out
}

fn put_records_of(kind: RecordKind, tenant: Option<&TenantId>, out: &mut Vec<u8>) {
    out.push(RECORD);
    kind.put(out);
    if let Some(tenant) = tenant {
        out.extend_from_slice(tenant.as_str().as_bytes());
    }
    out.push(END);
}

/// What the keys of a kind of records begin with, whatever the tenant.
pub fn records_of_all(kind: RecordKind) -> Vec<u8> {
    let mut out = vec![RECORD];
    kind.put(&mut out);
    out
}

/// The row key that `bytes_of` made these bytes of.
pub fn parse(bytes: &[u8]) -> Option<RowKey> {
    let (table, rest) = bytes.split_first()?;
    let split = |bytes: &'_ [u8]| -> Option<(TenantId, usize)> {
        let end = bytes.iter().position(|byte| *byte == END)?;
        Some((TenantId::trusted(text(&bytes[..end])?), end + 1))
    };
    Some(match *table {
        TASK => {
            let (tenant, at) = split(rest)?;
            let request = tidemill_model::RequestId::trusted(text(&rest[at..])?);
            RowKey::Task(crate::kernel::commit::TaskKey { tenant, request })
        }
        JOB => {
            let (tenant, at) = split(rest)?;
            RowKey::Job(tenant, JobId::from_u128(u128::from_be_bytes(rest[at..].try_into().ok()?)))
        }
        JOB_TASKS => {
            let (tenant, at) = split(rest)?;
            let (job, first) = rest[at..].split_first_chunk::<16>()?;
            let first = u32::from_be_bytes(first.try_into().ok()?);
            RowKey::JobTasks(tenant, JobId::from_u128(u128::from_be_bytes(*job)), first)
        }
        MESSAGE => {
            RowKey::Message(crate::kernel::commit::MessageId(u128::from_be_bytes(rest.try_into().ok()?)))
        }
        RECORD => {
            let (kind, rest) = rest.split_first()?;
            let kind = RecordKind::take(&mut super::bytes::Reader::new(&[*kind])).ok()?;
            let end = rest.iter().position(|byte| *byte == END)?;
            let tenant = (end > 0).then(|| text(&rest[..end])).flatten().map(TenantId::trusted);
            RowKey::Record(RecordKey { kind, tenant, id: text(&rest[end + 1..])?.into() })
        }
        ENTITY => {
            let (tenant, at) = split(rest)?;
            let rest = &rest[at..];
            let end = rest.iter().position(|byte| *byte == END)?;
            let kind = tidemill_model::EntityType::trusted(text(&rest[..end])?);
            let id = tidemill_model::EntityId::trusted(text(&rest[end + 1..])?);
            RowKey::Entity(tenant, tidemill_model::Entity { kind, id })
        }
        _ => return None,
    })
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

fn put(out: &mut Vec<u8>, table: u8, tenant: &TenantId) {
    out.push(table);
    out.extend_from_slice(tenant.as_str().as_bytes());
    out.push(END);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::commit::{MessageId, TaskKey};
    use tidemill_model::{Entity, EntityId, EntityType, RequestId};

    #[test]
    fn keys_come_back_and_tenants_do_not_mix() {
        let tenant = TenantId::new("t").unwrap();
        let job = JobId::from_u128(9);
        let entity = Entity { kind: EntityType::new("STORE").unwrap(), id: EntityId::new("a b").unwrap() };
        let task = TaskKey { tenant: tenant.clone(), request: RequestId::new("r-1").unwrap() };
        for key in [
            RowKey::Task(task),
            RowKey::Job(tenant.clone(), job),
            RowKey::JobTasks(tenant.clone(), job, 7),
            RowKey::Message(MessageId(3)),
            RowKey::Record(RecordKey::idempotency(&tenant, "POST /v1/jobs", "k")),
            RowKey::Record(RecordKey { kind: RecordKind::System, tenant: None, id: "x".into() }),
            RowKey::Entity(tenant.clone(), entity),
        ] {
            assert_eq!(parse(&bytes_of(&key)), Some(key));
        }
        let longer = TenantId::new("t2").unwrap();
        assert!(!bytes_of(&RowKey::Job(longer, job)).starts_with(&jobs_of(&tenant)));
    }
}
