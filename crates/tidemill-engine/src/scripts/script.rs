//! Scripts: written, versioned, looked up.
//!
//! A script stands under its id. Every version stays for good under a key of its own, which no list of ids meets; a
//! removal leaves the number of the last version behind, so versions never start again. Whether a script compiles is
//! asked before it comes here. A script with subscriptions cannot be removed.
//!
//! Only engines change these records, and most stores have one engine: how many records there are is counted once and
//! then kept in memory, until another engine writes. The router learns of every change by `script_changes`.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tidemill_matcher::subscription::SUBSCRIPTIONS_MAX;
use tidemill_model::authored::script::SCRIPTS_MAX;
use tidemill_model::{FieldProblems, Script, ScriptDraft, ScriptId, SubscriptionId, TenantId};

use crate::definitions::definition::{put, read};
use crate::engine::limits::LIST_MAX;
use crate::engine::{Engine, EngineError, check};
use crate::kernel::backend::{Backend, Fault};
use crate::kernel::command::{PutRecord, PutRecords};
use crate::kernel::notice::{Listening, Notice};
use crate::kernel::reads::Reads as _;
use crate::kernel::record::{RecordKey, RecordKind};
use crate::kernel::reply::Refusal;

/// Why a script or subscription was not changed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ScriptError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Remove them first.
    #[error("script {script} has {count} subscriptions; remove them first")]
    Subscribed { script: ScriptId, count: usize },
}

impl From<Refusal> for ScriptError {
    fn from(refusal: Refusal) -> Self {
        Self::Engine(refusal.into())
    }
}

impl From<Fault> for ScriptError {
    fn from(fault: Fault) -> Self {
        Self::Engine(fault.into())
    }
}

/// How a script is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteScript {
    /// Refused if the id is taken.
    Create,
    /// Refused if there is none, or if it is not at the version `if_match`.
    Replace { if_match: Option<u64> },
}

/// What was written or removed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ScriptChange {
    Script(TenantId, ScriptId),
    Subscription(TenantId, SubscriptionId),
}

/// What changed since the last `take`. A change is here before its author has an answer.
#[derive(Debug, Default)]
pub struct ScriptChanges {
    changed: Mutex<BTreeSet<ScriptChange>>,
    notice: Notice,
}

impl ScriptChanges {
    /// Everything that changed, each thing once. There is one taker.
    pub fn take(&self) -> Vec<ScriptChange> {
        std::mem::take(&mut *self.lock()).into_iter().collect()
    }

    /// Whether a subscription of another tenant changed since somebody last asked.
    pub(crate) fn has_change_of_another(&self, tenant: &TenantId) -> bool {
        let changed = self.lock();
        let least = ScriptChange::Subscription(TenantId::trusted(""), SubscriptionId::trusted(""));
        // They lie in order, so that another tenant's are at either end.
        let mut subscriptions = changed.range(least..);
        let is_other = |change: Option<&ScriptChange>| matches!(change, Some(ScriptChange::Subscription(other, _)) if other != tenant);
        is_other(subscriptions.next()) || is_other(subscriptions.next_back())
    }

    /// Begins to listen: the answer resolves with the first change after this call.
    pub fn listen(&self) -> Listening {
        self.notice.listen()
    }

    pub(crate) fn note_change(&self, change: ScriptChange) {
        self.lock().insert(change);
        self.notice.ring();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<ScriptChange>> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is known of scripts without asking the store.
#[derive(Debug, Default)]
pub(crate) struct Scripts {
    changes: ScriptChanges,
    books: Mutex<HashMap<TenantId, Book, foldhash::fast::RandomState>>,
}

/// How many there are of a tenant's. Reserved before they are written, so that a limit holds for concurrent requests.
#[derive(Debug, Default)]
struct Book {
    scripts: usize,
    subscriptions: usize,
    /// Subscriptions of each script; a script without any has no entry.
    of_script: HashMap<ScriptId, usize, foldhash::fast::RandomState>,
    /// Scripts that are being removed: nobody may subscribe to them meanwhile.
    going: BTreeSet<ScriptId>,
}

/// The number of the last version of a script that was removed.
#[derive(Debug, Serialize, Deserialize)]
struct Gone {
    version: u64,
}

/// How often a write is tried again when somebody else was faster.
pub(crate) const WRITES_MAX: u32 = 16;
/// Scripts are read in pages of this size, because they may be long.
const SCRIPTS_AT_ONCE: usize = 32;
/// No id begins with it, and it sorts behind all of them.
const VERSION_MARK: char = '~';

impl<B: Backend> Engine<B> {
    /// Tells what changes among scripts and subscriptions.
    pub fn script_changes(&self) -> &ScriptChanges {
        &self.inner.scripts.changes
    }

    /// Another process on the same store wrote or removed a record. The backend calls this before events that were committed
    /// with it or after it can be read here.
    pub fn note_record_change(&self, key: &RecordKey) {
        if key.kind == RecordKind::ApiKey {
            self.inner.keys.forget(&key.id);
        }
        let (Some(tenant), id) = (&key.tenant, &*key.id) else { return };
        let change = match key.kind {
            RecordKind::Subscription => {
                ScriptChange::Subscription(tenant.clone(), SubscriptionId::trusted(id))
            }
            RecordKind::Script => ScriptChange::Script(tenant.clone(), ScriptId::trusted(id)),
            _ => return,
        };
        // They are counted anew when it matters next.
        self.inner.scripts.books.lock().unwrap_or_else(PoisonError::into_inner).remove(tenant);
        self.script_changes().note_change(change);
    }

    /// Writes a script that compiles and gives it as it stands then.
    pub async fn put_script(
        &self,
        tenant: &TenantId,
        draft: ScriptDraft,
        how: WriteScript,
    ) -> Result<Script, ScriptError> {
        let id = draft.id.clone().unwrap_or_else(|| ScriptId::trusted(&self.mint_event_id().to_string()));
        if how != WriteScript::Create {
            return self.write_script(tenant, &id, &draft, how).await;
        }
        self.counted(tenant).await?;
        self.inner.scripts.change(tenant, |book| {
            book.scripts += 1;
            if book.scripts > SCRIPTS_MAX {
                book.scripts -= 1;
                return Err(too_many("scripts", SCRIPTS_MAX));
            }
            Ok(())
        })?;
        let written = self.write_script(tenant, &id, &draft, how).await;
        if written.is_err() {
            self.inner.scripts.change(tenant, |book| book.scripts = book.scripts.saturating_sub(1));
        }
        written
    }

    async fn write_script(
        &self,
        tenant: &TenantId,
        id: &ScriptId,
        draft: &ScriptDraft,
        how: WriteScript,
    ) -> Result<Script, ScriptError> {
        let key = script_key(tenant, id);
        for _ in 0..WRITES_MAX {
            let (at, known) = self.stored::<Script>(&key).await?;
            match (how, &known) {
                (WriteScript::Create, Some(_)) => return Err(exists("script", id.as_str())),
                (WriteScript::Replace { .. }, None) => return Err(unknown("script", id.as_str())),
                (WriteScript::Replace { if_match: Some(expected) }, Some(known))
                    if known.version != expected =>
                {
                    return Err(Refusal::RecordConflict { expected, actual: known.version }.into());
                }
                _ => {}
            }
            let before = match &known {
                Some(known) => known.version,
                None => self.stored::<Gone>(&gone_key(tenant, id)).await?.1.map_or(0, |gone| gone.version),
            };
            let now = self.inner.clock.now();
            let script = Script {
                id: id.clone(),
                name: draft.name.clone(),
                source: draft.source.clone(),
                grants: draft.grants.clone(),
                version: before + 1,
                created_at: known.map_or(now, |known| known.created_at),
                updated_at: now,
            };
            let version = version_key(tenant, id, script.version);
            let records = vec![put(key.clone(), &script, at), put(version, &script, 0)];
            match self.put_records(PutRecords { records, unused: None }).await {
                Err(EngineError::Refused(Refusal::RecordConflict { .. })) => {}
                Err(error) => return Err(error.into()),
                Ok(()) => {
                    self.script_changes().note_change(ScriptChange::Script(tenant.clone(), id.clone()));
                    return Ok(script);
                }
            }
        }
        Err(Fault::Damaged(format!("the script {id} changes all the time")).into())
    }

    /// A script as it stands, or at one of its versions. A version can be read after the removal too.
    pub async fn script(
        &self,
        tenant: &TenantId,
        id: &ScriptId,
        version: Option<u64>,
    ) -> Result<Option<Script>, EngineError> {
        let key = match version {
            None => script_key(tenant, id),
            Some(version) => version_key(tenant, id, version),
        };
        Ok(self.stored(&key).await?.1)
    }

    /// A tenant's scripts as they stand, by id, those after `after`.
    pub async fn scripts(
        &self,
        tenant: &TenantId,
        after: Option<&ScriptId>,
        limit: usize,
    ) -> Result<Vec<Script>, EngineError> {
        check::count("limit", limit, LIST_MAX)?;
        let mut found: Vec<Script> = Vec::new();
        let mut from = after.map(|id| Arc::from(id.as_str()));
        loop {
            let most = SCRIPTS_AT_ONCE.min(limit - found.len());
            let page =
                self.inner.backend.records(RecordKind::Script, Some(tenant.clone()), from.take(), most);
            let records = page.await?;
            let is_last = records.len() < most;
            for (key, record) in records {
                // Versions sort behind all ids.
                if key.id.starts_with(VERSION_MARK) {
                    return Ok(found);
                }
                found.push(read(&key, &record)?);
                from = Some(key.id);
            }
            if is_last || found.len() == limit {
                return Ok(found);
            }
        }
    }

    /// Removes a script without subscriptions. Its versions stay readable.
    pub async fn remove_script(
        &self,
        tenant: &TenantId,
        id: &ScriptId,
        if_match: Option<u64>,
    ) -> Result<(), ScriptError> {
        self.counted(tenant).await?;
        self.inner.scripts.change(tenant, |book| {
            if let Some(&count) = book.of_script.get(id) {
                return Err(ScriptError::Subscribed { script: id.clone(), count });
            }
            book.going.insert(id.clone());
            Ok(())
        })?;
        let removed = self.erase_script(tenant, id, if_match).await;
        self.inner.scripts.change(tenant, |book| {
            book.going.remove(id);
            if removed.is_ok() {
                book.scripts = book.scripts.saturating_sub(1);
            }
        });
        removed
    }

    async fn erase_script(
        &self,
        tenant: &TenantId,
        id: &ScriptId,
        if_match: Option<u64>,
    ) -> Result<(), ScriptError> {
        let key = script_key(tenant, id);
        for _ in 0..WRITES_MAX {
            let (at, known) = self.stored::<Script>(&key).await?;
            let known = known.ok_or_else(|| unknown("script", id.as_str()))?;
            if let Some(expected) = if_match.filter(|expected| *expected != known.version) {
                return Err(Refusal::RecordConflict { expected, actual: known.version }.into());
            }
            let gone = gone_key(tenant, id);
            let (gone_at, _) = self.stored::<Gone>(&gone).await?;
            let records =
                vec![removal(key.clone(), at), put(gone, &Gone { version: known.version }, gone_at)];
            match self.put_records(PutRecords { records, unused: None }).await {
                Err(EngineError::Refused(Refusal::RecordConflict { .. })) => {}
                Err(error) => return Err(error.into()),
                Ok(()) => {
                    self.script_changes().note_change(ScriptChange::Script(tenant.clone(), id.clone()));
                    return Ok(());
                }
            }
        }
        Err(Fault::Damaged(format!("the script {id} changes all the time")).into())
    }

    pub(crate) async fn must_exist(&self, tenant: &TenantId, script: &ScriptId) -> Result<(), ScriptError> {
        match self.inner.backend.record(script_key(tenant, script)).await? {
            Some(_) => Ok(()),
            None => Err(no_such_script(script)),
        }
    }

    /// What a record holds, and its version.
    pub(crate) async fn stored<T: for<'de> Deserialize<'de>>(
        &self,
        key: &RecordKey,
    ) -> Result<(u64, Option<T>), EngineError> {
        match self.inner.backend.record(key.clone()).await? {
            None => Ok((0, None)),
            Some(record) => Ok((record.version, Some(read(key, &record)?))),
        }
    }

    /// Counts a tenant's scripts and subscriptions, the first time that it matters. Nothing is written without it, so
    /// callers that count at the same time find the same.
    pub(crate) async fn counted(&self, tenant: &TenantId) -> Result<(), EngineError> {
        if self.inner.scripts.books().contains_key(tenant) {
            return Ok(());
        }
        let mut book = Book::default();
        let mut last: Option<ScriptId> = None;
        loop {
            let page = self.scripts(tenant, last.as_ref(), SCRIPTS_AT_ONCE).await?;
            book.scripts += page.len();
            last = page.last().map(|script| script.id.clone());
            if page.len() < SCRIPTS_AT_ONCE {
                break;
            }
        }
        let mut from = None;
        loop {
            let page = self.subscription_page(tenant, from.take()).await?;
            for subscription in &page {
                book.add(&subscription.script_id, true);
            }
            if page.len() < LIST_MAX {
                break;
            }
            from = page.last().map(|last| Arc::from(last.id.as_str()));
        }
        self.inner.scripts.books().entry(tenant.clone()).or_insert(book);
        Ok(())
    }
}

impl Scripts {
    fn books(&self) -> MutexGuard<'_, HashMap<TenantId, Book, foldhash::fast::RandomState>> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the book of a tenant that was counted.
    fn change<T>(&self, tenant: &TenantId, change: impl FnOnce(&mut Book) -> T) -> T {
        change(self.books().entry(tenant.clone()).or_default())
    }

    /// Takes a place for a subscription of a script; `more` if there is one more in all.
    pub(crate) fn reserve(
        &self,
        tenant: &TenantId,
        script: &ScriptId,
        more: bool,
    ) -> Result<(), ScriptError> {
        self.change(tenant, |book| {
            if book.going.contains(script) {
                return Err(no_such_script(script));
            }
            if more && book.subscriptions >= SUBSCRIPTIONS_MAX {
                return Err(too_many("subscriptions", SUBSCRIPTIONS_MAX));
            }
            book.add(script, more);
            Ok(())
        })
    }

    /// Gives a place back; `less` if there is one less in all.
    pub(crate) fn release(&self, tenant: &TenantId, script: &ScriptId, less: bool) {
        self.change(tenant, |book| book.take(script, less));
    }
}

impl Book {
    fn add(&mut self, script: &ScriptId, more: bool) {
        *self.of_script.entry(script.clone()).or_default() += 1;
        self.subscriptions += usize::from(more);
    }

    fn take(&mut self, script: &ScriptId, less: bool) {
        if let Some(count) = self.of_script.get_mut(script) {
            *count -= 1;
            if *count == 0 {
                self.of_script.remove(script);
            }
        }
        self.subscriptions = self.subscriptions.saturating_sub(usize::from(less));
    }
}

fn script_key(tenant: &TenantId, id: &ScriptId) -> RecordKey {
    RecordKey { kind: RecordKind::Script, tenant: Some(tenant.clone()), id: Arc::from(id.as_str()) }
}

fn version_key(tenant: &TenantId, id: &ScriptId, version: u64) -> RecordKey {
    let id = Arc::from(format!("{VERSION_MARK}{id}@{version}"));
    RecordKey { kind: RecordKind::Script, tenant: Some(tenant.clone()), id }
}

fn gone_key(tenant: &TenantId, id: &ScriptId) -> RecordKey {
    let id = Arc::from(format!("{VERSION_MARK}{id}"));
    RecordKey { kind: RecordKind::Script, tenant: Some(tenant.clone()), id }
}

pub(crate) fn removal(key: RecordKey, expected: u64) -> PutRecord {
    PutRecord { key, value: None, expires_at: None, expected: Some(expected) }
}

pub(crate) fn exists(what: &'static str, id: &str) -> ScriptError {
    Refusal::Exists { what, id: id.to_owned() }.into()
}

pub(crate) fn unknown(what: &'static str, id: &str) -> ScriptError {
    Refusal::NotFound { what, id: id.to_owned() }.into()
}

pub(crate) fn too_many(field: &'static str, limit: usize) -> ScriptError {
    Refusal::TooMany { field, count: limit + 1, limit }.into()
}

pub(crate) fn no_such_script(script: &ScriptId) -> ScriptError {
    let message = format!("names the script {script:?}, which does not exist");
    EngineError::Fields(FieldProblems::one("scriptId", "UNKNOWN_SCRIPT", message)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_has_so_many_subscriptions_and_no_more() {
        let (tenant, script) = (TenantId::trusted("acme"), ScriptId::trusted("greet"));
        let scripts = Scripts::default();
        scripts.change(&tenant, |book| book.subscriptions = SUBSCRIPTIONS_MAX - 1);
        scripts.reserve(&tenant, &script, true).expect("there is room for one");
        let refused = scripts.reserve(&tenant, &script, true);
        assert!(
            matches!(refused, Err(ScriptError::Engine(EngineError::Refused(Refusal::TooMany { .. })))),
            "{refused:?}"
        );
        scripts.reserve(&tenant, &script, false).expect("a change needs no room");
        scripts.release(&tenant, &script, false);
        scripts.reserve(&TenantId::trusted("other"), &script, true).expect("others have room of their own");
        scripts.release(&tenant, &script, true);
        scripts.reserve(&tenant, &script, true).expect("there is room again");
    }

    #[test]
    fn changes_of_other_tenants_are_told_apart() {
        let (one, two) = (TenantId::trusted("one"), TenantId::trusted("two"));
        let subscription =
            |tenant: &TenantId, id| ScriptChange::Subscription(tenant.clone(), SubscriptionId::trusted(id));
        let changes = ScriptChanges::default();
        changes.note_change(ScriptChange::Script(two.clone(), ScriptId::trusted("s")));
        assert!(!changes.has_change_of_another(&one), "a script matches nothing");
        changes.note_change(subscription(&one, "a"));
        changes.note_change(subscription(&one, "b"));
        assert!(!changes.has_change_of_another(&one));
        assert!(changes.has_change_of_another(&two));
        changes.note_change(subscription(&two, "a"));
        assert!(changes.has_change_of_another(&one) && changes.has_change_of_another(&two));
        changes.take();
        assert!(!changes.has_change_of_another(&two));
    }
}
