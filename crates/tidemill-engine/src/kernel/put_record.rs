//! Put control records, on condition of the versions they have.

use tidemill_model::{RunnerSpec, TaskName, TaskSpec, TenantId, Timestamp};

use crate::kernel::commit::RecordWrite;
use crate::kernel::decision::Decision;
use crate::kernel::draft::Draft;
use crate::kernel::record::{Record, RecordKey, RecordValue};
use crate::kernel::reply::{Refusal, Reply};
use crate::kernel::state::State;
use crate::kernel::state::row::RowKey;

#[derive(Debug, Clone)]
pub struct PutRecord {
    pub key: RecordKey,
    /// `None` removes it.
    pub value: Option<RecordValue>,
    pub expires_at: Option<Timestamp>,
    /// The version it must have; 0 means absent, `None` any.
    pub expected: Option<u64>,
}

impl Decision for PutRecord {
    fn touches(&self, _state: &State, _now: Timestamp) -> Vec<RowKey> {
        vec![RowKey::Record(self.key.clone())]
    }

    fn large_field(&self) -> &'static str {
        "record"
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        decide(state, self, draft)
    }
}

/// Writes records, all of them or none.
#[derive(Debug, Clone)]
pub struct PutRecords {
    pub records: Vec<PutRecord>,
    /// A task definition that no open task may rest on.
    pub unused: Option<(TenantId, TaskName)>,
}

impl Decision for PutRecords {
    fn touches(&self, _state: &State, _now: Timestamp) -> Vec<RowKey> {
        self.records.iter().map(|put| RowKey::Record(put.key.clone())).collect()
    }

    fn large_field(&self) -> &'static str {
        "record"
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        decide_all(state, self, draft)
    }
}

pub(crate) fn decide(
    state: &State,
    command: &PutRecord,
    draft: &mut Draft<'_, '_>,
) -> Result<Reply, Refusal> {
    put(state, command, draft).map(|version| Reply::RecordPut { version })
}

/// Writes several records: what one of them refuses, refuses them all.
pub(crate) fn decide_all(
    state: &State,
    command: &PutRecords,
    draft: &mut Draft<'_, '_>,
) -> Result<Reply, Refusal> {
    if let Some((tenant, name)) = &command.unused
        && is_used(state, tenant, name)
    {
        return Err(Refusal::InUse { what: "task definition", id: name.to_string() });
    }
    for record in &command.records {
        put(state, record, draft)?;
    }
    Ok(Reply::RecordsPut)
}

/// Whether a task that is not finished rests on a definition. Open work is always in memory.
fn is_used(state: &State, tenant: &TenantId, name: &TaskName) -> bool {
    let rests_on = |spec: &TaskSpec| {
        spec.name == *name && spec.options.execution.as_ref().is_some_and(RunnerSpec::names_definition)
    };
    let jobs = state.jobs().filter(|job| job.head.tenant == *tenant && !job.head.is_at_rest());
    let mut open = jobs
        .flat_map(|job| &job.nodes)
        .filter(|node| node.entry.head.as_ref().is_none_or(|head| head.outcome().is_none()));
    let mut alone = state.alone().filter(|(key, alone)| key.tenant == *tenant && alone.entry.is_live());
    open.any(|node| rests_on(&node.spec)) || alone.any(|(_, alone)| rests_on(&alone.task.spec))
}

fn put(state: &State, command: &PutRecord, draft: &mut Draft<'_, '_>) -> Result<u64, Refusal> {
    let actual = state.record(&command.key).map_or(0, |record| record.version);
    if let Some(expected) = command.expected
        && expected != actual
    {
        return Err(Refusal::RecordConflict { expected, actual });
    }
    let version = actual + 1;
    let record = command.value.clone().map(|value| Record { version, expires_at: command.expires_at, value });
    draft.record(RecordWrite::Put { key: command.key.clone(), record });
    Ok(version)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::kernel::command::Command;
    use crate::kernel::fixture::{Fixture, tenant};
    use crate::kernel::record::{RecordKey, RecordKind, RecordValue};

    fn put_at(id: &str, expected: u64) -> PutRecord {
        let key = RecordKey { kind: RecordKind::Script, tenant: Some(tenant()), id: Arc::from(id) };
        let value = Some(RecordValue::Bytes(Arc::from(id.as_bytes())));
        PutRecord { key, value, expires_at: None, expected: Some(expected) }
    }

    #[test]
    fn records_are_put_all_or_none() {
        let mut fixture = Fixture::new();
        let put = |records| Command::PutRecords(PutRecords { records, unused: None });
        fixture.run(&put(vec![put_at("a", 0), put_at("b", 0)])).unwrap();
        for (records, expected) in [
            (vec![put_at("a", 1), put_at("b", 0)], (1, 1)),
            (vec![put_at("a", 0), put_at("b", 1)], (1, 1)),
            (vec![put_at("a", 1), put_at("b", 1)], (2, 2)),
        ] {
            let refused = fixture.run(&put(records)).is_err();
            let version = |id| fixture.state.record(&put_at(id, 0).key).unwrap().version;
            assert_eq!(((version("a"), version("b")), refused), (expected, expected == (1, 1)));
        }
    }
}
