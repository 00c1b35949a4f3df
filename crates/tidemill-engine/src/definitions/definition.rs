//! Task definitions: written, versioned, looked up.
//!
//! The current definition stands under its name. Every version stays for good under a key of its own, which no list of
//! names meets, so a job that pinned it can always be carried out. A removal leaves the number of the last version
//! behind: versions never start again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tidemill_model::{
    Definition, DefinitionDraft, Pinned, ResolvedRunner, Runner, RunnerSpec, TaskName, TaskSpec, TenantId,
};

use crate::engine::limits::LIST_MAX;
use crate::engine::{Engine, EngineError, check, take_reply};
use crate::kernel::backend::{Backend, Fault};
use crate::kernel::command::{Command, PutRecord, PutRecords};
use crate::kernel::commit::TaskKey;
use crate::kernel::reads::Reads as _;
use crate::kernel::record::{Record, RecordKey, RecordKind, RecordValue};
use crate::kernel::reply::{Assignment, Refusal, Reply};

/// How a definition is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Define {
    /// Refused if the name is taken.
    Create,
    /// Refused if there is none, or if it is not at the version `if_match`.
    Replace { if_match: Option<u64> },
}

/// What stands under a definition's name.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Current {
    /// The newest version there ever was.
    version: u64,
    /// `None` once it was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    definition: Option<Definition>,
}

/// Versions that were looked up. They never change, so they are never out of date.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    known: Mutex<HashMap<(TenantId, Pinned), Arc<Definition>, foldhash::fast::RandomState>>,
}

/// How many versions are kept at hand.
const VERSIONS_MAX: usize = 1_024;
/// How often a write is tried again when somebody else was faster.
const WRITES_MAX: u32 = 16;

impl<B: Backend> Engine<B> {
    /// Writes a definition and gives it as it stands then.
    pub async fn define(
        &self,
        tenant: TenantId,
        draft: DefinitionDraft,
        how: Define,
    ) -> Result<Definition, EngineError> {
        for _ in 0..WRITES_MAX {
            let key = current_key(&tenant, &draft.name);
            let (at, current) = self.current(&key).await?;
            let known = current.as_ref().and_then(|current| current.definition.as_ref());
            match (how, known) {
                (Define::Create, Some(_)) => return Err(exists(&draft.name)),
                (Define::Replace { .. }, None) => return Err(unknown(draft.name.as_str())),
                (Define::Replace { if_match: Some(expected) }, Some(known)) if known.version != expected => {
                    return Err(Refusal::RecordConflict { expected, actual: known.version }.into());
                }
                _ => {}
            }
            let now = self.inner.clock.now();
            let version = current.as_ref().map_or(0, |current| current.version) + 1;
            let created_at = known.map_or(now, |known| known.created_at);
            let definition = Definition { draft: draft.clone(), version, created_at, updated_at: now };
            let pinned = version_key(&tenant, &draft.name, version);
            let records = vec![
                put(key, &Current { version, definition: Some(definition.clone()) }, at),
                put(pinned, &definition, 0),
            ];
            match self.put_records(PutRecords { records, unused: None }).await {
                Err(EngineError::Refused(Refusal::RecordConflict { .. })) => {}
                written => return written.map(|()| definition),
            }
        }
        Err(Fault::Damaged(format!("the definition {} changes all the time", draft.name)).into())
    }

    /// A definition as it stands, or at one of its versions. A version can be read after the removal too.
    pub async fn definition(
        &self,
        tenant: TenantId,
        name: &TaskName,
        version: Option<u64>,
    ) -> Result<Option<Definition>, EngineError> {
        match version {
            None => Ok(self.current(&current_key(&tenant, name)).await?.1.and_then(|found| found.definition)),
            Some(version) => {
                let pinned = Pinned { name: name.clone(), version };
                Ok(self.pinned(&tenant, pinned).await?.map(|found| (*found).clone()))
            }
        }
    }

    /// A tenant's definitions as they stand, by name, those after `after`.
    pub async fn definitions(
        &self,
        tenant: TenantId,
        after: Option<TaskName>,
        limit: usize,
    ) -> Result<Vec<Definition>, EngineError> {
        check::count("limit", limit, LIST_MAX)?;
        let mut found = Vec::new();
        let mut from = after.map(|name| Arc::from(name.as_str()));
        loop {
            let page = (RecordKind::Definition, Some(tenant.clone()), from.take(), LIST_MAX);
            let records = self.inner.backend.records(page.0, page.1, page.2, page.3).await?;
            let is_last = records.len() < LIST_MAX;
            for (key, record) in records {
                // Versions sort behind all names.
                if key.id.starts_with(VERSION_MARK) || found.len() == limit {
                    return Ok(found);
                }
                found.extend(read::<Current>(&key, &record)?.definition);
                from = Some(key.id);
            }
            if is_last {
                return Ok(found);
            }
        }
    }

    /// Removes a definition, unless a task that is not finished rests on it. Its versions stay readable.
    pub async fn undefine(
        &self,
        tenant: TenantId,
        name: &TaskName,
        if_match: Option<u64>,
    ) -> Result<(), EngineError> {
        for _ in 0..WRITES_MAX {
            let key = current_key(&tenant, name);
            let (at, current) = self.current(&key).await?;
            let known =
                current.and_then(|current| current.definition).ok_or_else(|| unknown(name.as_str()))?;
            if let Some(expected) = if_match.filter(|expected| *expected != known.version) {
                return Err(Refusal::RecordConflict { expected, actual: known.version }.into());
            }
            let records = vec![put(key, &Current { version: known.version, definition: None }, at)];
            let unused = Some((tenant.clone(), name.clone()));
            match self.put_records(PutRecords { records, unused }).await {
                Err(EngineError::Refused(Refusal::RecordConflict { .. })) => {}
                written => return written,
            }
        }
        Err(Fault::Damaged(format!("the definition {name} changes all the time")).into())
    }

    /// How a claimed task is carried out. A task that says nothing of it, as one that began with a message by hand,
    /// gets the definition of its name, else a handler inside the embedding program.
    pub async fn execution_of(&self, assignment: &Assignment) -> Result<ResolvedRunner, EngineError> {
        self.execution_of_task(&assignment.task, &assignment.spec).await
    }

    pub(crate) async fn execution_of_task(
        &self,
        task: &TaskKey,
        spec: &TaskSpec,
    ) -> Result<ResolvedRunner, EngineError> {
        let tenant = &task.tenant;
        let Some(json) = &spec.options.execution else {
            let found = self.definition(tenant.clone(), &spec.name, None).await?;
            let execution = found.map_or_else(ResolvedRunner::native, |definition| resolved(&definition));
            if execution.runner == Runner::Agent {
                // Nobody could know this when it was claimed.
                self.check_budget(tenant).await?;
            }
            return Ok(execution);
        };
        let own: RunnerSpec = json.read().map_err(|error| {
            let request = &task.request;
            Fault::Damaged(format!("the execution of task {request} cannot be read: {error}"))
        })?;
        let mut execution = match &own.definition {
            Some(pinned) => match self.pinned(tenant, pinned.clone()).await? {
                Some(definition) => resolved(&definition),
                None => return Err(unknown(&format!("{} at version {}", pinned.name, pinned.version))),
            },
            None if own.run.is_some() => {
                ResolvedRunner { runner: Runner::Command, ..ResolvedRunner::native() }
            }
            None if own.agent.is_some() => {
                ResolvedRunner { runner: Runner::Agent, ..ResolvedRunner::native() }
            }
            None if own.script.is_some() => {
                ResolvedRunner { runner: Runner::Script, ..ResolvedRunner::native() }
            }
            None => ResolvedRunner::native(),
        };
        execution.script = own.script.or(execution.script);
        execution.command = own.run.or(execution.command);
        execution.agent = own.agent.or(execution.agent);
        execution.env.extend(own.env);
        if own.definition.is_none() {
            execution.secrets = own.secrets;
            execution.path = own.path;
        }
        execution.labels.extend(own.labels);
        execution.idle_timeout_ms = own.idle_timeout_ms.or(execution.idle_timeout_ms);
        Ok(execution)
    }

    /// One version, from memory if it was looked up before.
    async fn pinned(
        &self,
        tenant: &TenantId,
        pinned: Pinned,
    ) -> Result<Option<Arc<Definition>>, EngineError> {
        let place = (tenant.clone(), pinned);
        if let Some(known) = self.inner.versions.lock().get(&place) {
            return Ok(Some(Arc::clone(known)));
        }
        let key = version_key(tenant, &place.1.name, place.1.version);
        let Some(record) = self.inner.backend.record(key.clone()).await? else { return Ok(None) };
        let definition = Arc::new(read::<Definition>(&key, &record)?);
        let mut known = self.inner.versions.lock();
        if known.len() >= VERSIONS_MAX {
            known.clear();
        }
        known.insert(place, Arc::clone(&definition));
        Ok(Some(definition))
    }

    /// What stands under a name, and the version of its record.
    async fn current(&self, key: &RecordKey) -> Result<(u64, Option<Current>), EngineError> {
        match self.inner.backend.record(key.clone()).await? {
            None => Ok((0, None)),
            Some(record) => Ok((record.version, Some(read(key, &record)?))),
        }
    }

    pub(crate) async fn put_records(&self, records: PutRecords) -> Result<(), EngineError> {
        let reply = self.execute(Command::PutRecords(records)).await?;
        take_reply!(reply, Reply::RecordsPut => ())
    }
}

impl Versions {
    fn lock(
        &self,
    ) -> std::sync::MutexGuard<'_, HashMap<(TenantId, Pinned), Arc<Definition>, foldhash::fast::RandomState>>
    {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a definition says, without a task's own settings.
fn resolved(definition: &Definition) -> ResolvedRunner {
    let draft = &definition.draft;
    ResolvedRunner {
        runner: draft.runner,
        command: draft.command.clone(),
        agent: draft.agent(),
        script: draft.script.clone().filter(|_| draft.runner == Runner::Script),
        env: draft.env.clone(),
        secrets: draft.secrets.clone(),
        path: draft.path.clone(),
        input_arg: draft.input_arg,
        idle_timeout_ms: draft.idle_timeout.map(|span| span.0),
        definition: Some(Pinned { name: draft.name.clone(), version: definition.version }),
        labels: draft.labels.clone(),
    }
}

/// No name begins with it, and it sorts behind all of them.
const VERSION_MARK: char = '~';

fn current_key(tenant: &TenantId, name: &TaskName) -> RecordKey {
    RecordKey { kind: RecordKind::Definition, tenant: Some(tenant.clone()), id: Arc::from(name.as_str()) }
}

fn version_key(tenant: &TenantId, name: &TaskName, version: u64) -> RecordKey {
    let id = Arc::from(format!("{VERSION_MARK}{name}@{version}"));
    RecordKey { kind: RecordKind::Definition, tenant: Some(tenant.clone()), id }
}

/// A record to write in JSON, if it is at the version `expected`.
pub(crate) fn put(key: RecordKey, value: &impl Serialize, expected: u64) -> PutRecord {
    let bytes = serde_json::to_vec(value).expect("our values have string keys only");
    let value = Some(RecordValue::Bytes(Arc::from(bytes)));
    PutRecord { key, value, expires_at: None, expected: Some(expected) }
}

/// A record that was written in JSON.
pub(crate) fn read<T: for<'de> Deserialize<'de>>(key: &RecordKey, record: &Record) -> Result<T, EngineError> {
    let damaged = |problem: String| Fault::Damaged(format!("the record {} {problem}", key.id));
    let RecordValue::Bytes(bytes) = &record.value else {
        return Err(damaged("is of another kind".to_owned()).into());
    };
    Ok(serde_json::from_slice(bytes).map_err(|error| damaged(format!("cannot be read: {error}")))?)
}

fn exists(name: &TaskName) -> EngineError {
    Refusal::Exists { what: "task definition", id: name.to_string() }.into()
}

fn unknown(name: &str) -> EngineError {
    Refusal::NotFound { what: "task definition", id: name.to_owned() }.into()
}
