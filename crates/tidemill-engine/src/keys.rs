//! API keys: made, listed, revoked, recognised.
//!
//! Every request is recognised by a key, so the engine keeps keys that it has seen in memory. A revocation changes
//! them before it is answered; a revocation by another process on the same store, as soon as this one reads it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidemill_model::values::hex;
use tidemill_model::{ApiKeyRecord, ApiToken, KeyId, Role, TenantId};

use crate::definitions::definition::{put, read};
use crate::engine::limits::{KEY_TENANTS_MAX, LIST_MAX};
use crate::engine::{Engine, EngineError, check};
use crate::kernel::backend::{Backend, Fault};
use crate::kernel::command::PutRecords;
use crate::kernel::reads::Reads as _;
use crate::kernel::record::{RecordKey, RecordKind};
use crate::kernel::reply::Refusal;
use crate::triage::TokenFault;

/// What is known of keys without asking the store.
#[derive(Debug, Default)]
pub(crate) struct KnownKeys {
    /// Whether there is a key at all; once there is, it stays so.
    any: AtomicBool,
    seen: Mutex<Seen>,
    /// Counts keys that others changed.
    changes: AtomicU64,
}

type Seen = HashMap<KeyId, Arc<ApiKeyRecord>, foldhash::fast::RandomState>;

/// A sealed secret has a nonce before it and a tag behind it.
const SEALED_SECRET_BYTES: usize = 12 + ApiToken::SECRET_LENGTH + 16;

/// How many keys are kept at hand.
const SEEN_MAX: usize = 1_024;

impl KnownKeys {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a key that was read after `changes` changes. One that is kept already is newer, or the same.
    fn keep(&self, record: &ApiKeyRecord, changes: u64) {
        let mut seen = self.seen();
        // What was read may be what it was before somebody changed it.
        if self.changes.load(Ordering::Acquire) != changes {
            return;
        }
        if seen.len() >= SEEN_MAX {
            seen.retain(|_, record| record.revoked_at.is_some());
        }
        // Revoked ones must not be forgotten while a reader may still bring back what they were before.
        if seen.len() < SEEN_MAX {
            seen.entry(record.id.clone()).or_insert_with(|| Arc::new(record.clone()));
        }
    }

    fn revoke(&self, record: &ApiKeyRecord) {
        self.seen().insert(record.id.clone(), Arc::new(record.clone()));
    }

    /// Another process changed a key: it is read again when it is shown next.
    pub(crate) fn forget(&self, id: &str) {
        let mut seen = self.seen();
        self.changes.fetch_add(1, Ordering::AcqRel);
        seen.retain(|known, _| known.as_str() != id);
    }
}

impl<B: Backend> Engine<B> {
    /// Makes a key. The token is not kept anywhere: show it once.
    pub async fn create_key(
        &self,
        tenants: Vec<TenantId>,
        role: Role,
        label: Option<String>,
    ) -> Result<(ApiKeyRecord, ApiToken), EngineError> {
        self.make_key(tenants, role, label, false).await
    }

    /// Makes a key that clients of AWS sign with too. Its secret is kept, sealed.
    pub async fn create_signing_key(
        &self,
        tenants: Vec<TenantId>,
        role: Role,
        label: Option<String>,
    ) -> Result<(ApiKeyRecord, ApiToken), EngineError> {
        self.make_key(tenants, role, label, true).await
    }

    async fn make_key(
        &self,
        tenants: Vec<TenantId>,
        role: Role,
        label: Option<String>,
        is_signing: bool,
    ) -> Result<(ApiKeyRecord, ApiToken), EngineError> {
        let count_max = if role == Role::Worker { KEY_TENANTS_MAX } else { 1 };
        check::count("tenants", tenants.len(), count_max)?;
        if let Some(label) = &label {
            check::name("label", label)?;
        }
        let (mut id, mut secret) = ([0; 9], [0; 32]);
        let filled = getrandom::fill(&mut id).and_then(|()| getrandom::fill(&mut secret));
        filled.map_err(|error| Fault::Stopped(format!("the system gives no random bytes: {error}")))?;
        let token = ApiToken::from_random(id, secret);
        let sealed_secret = if is_signing {
            let sealed = self.inner.tokens.seal_text(&sealed_under(token.id()), token.secret())?;
            Some(hex::encode(&sealed))
        } else {
            None
        };
        let record = ApiKeyRecord {
            id: token.id().clone(),
            hash: token.hash(),
            tenants,
            role,
            label,
            created_at: self.inner.clock.now(),
            revoked_at: None,
            sealed_secret,
        };
        let records = vec![put(key_of(token.id()), &record, 0)];
        self.put_records(PutRecords { records, unused: None }).await?;
        self.inner.keys.any.store(true, Ordering::Release);
        Ok((record, token))
    }

    /// All keys by id, revoked ones included, those after `after`.
    pub async fn keys(&self, after: Option<&KeyId>, limit: usize) -> Result<Vec<ApiKeyRecord>, EngineError> {
        check::count("limit", limit, LIST_MAX)?;
        let after = after.map(|id| Arc::from(id.as_str()));
        let records = self.inner.backend.records(RecordKind::ApiKey, None, after, limit).await?;
        records.iter().map(|(key, record)| read(key, record)).collect()
    }

    /// Puts a key out of force, at once and for good. Repeating it changes nothing.
    pub async fn revoke_key(&self, id: &KeyId) -> Result<ApiKeyRecord, EngineError> {
        let key = key_of(id);
        let Some(record) = self.inner.backend.record(key.clone()).await? else {
            return Err(Refusal::NotFound { what: "key", id: id.to_string() }.into());
        };
        let known: ApiKeyRecord = read(&key, &record)?;
        if known.revoked_at.is_some() {
            self.inner.keys.revoke(&known);
            return Ok(known);
        }
        let revoked = ApiKeyRecord { revoked_at: Some(self.inner.clock.now()), ..known };
        // Nothing but a revocation changes a key, so a faster caller did the same.
        let records = vec![put(key, &revoked, record.version)];
        match self.put_records(PutRecords { records, unused: None }).await {
            Err(EngineError::Refused(Refusal::RecordConflict { .. })) | Ok(()) => {
                self.inner.keys.revoke(&revoked);
                Ok(revoked)
            }
            Err(error) => Err(error),
        }
    }

    /// Whose key this is, if it is one and in force.
    pub async fn authenticate(&self, token: &str) -> Result<Option<ApiKeyRecord>, EngineError> {
        let Ok(token) = ApiToken::parse(token) else { return Ok(None) };
        let known = self.known_key(token.id()).await?;
        Ok(known.filter(|known| known.admits(&token)).map(|known| (*known).clone()))
    }

    /// The key of this id and its secret, if clients of AWS may sign with it and it is in force.
    pub async fn signing_key(&self, id: &str) -> Result<Option<(ApiKeyRecord, String)>, EngineError> {
        let Ok(id) = KeyId::new(id) else { return Ok(None) };
        let Some(known) = self.known_key(&id).await?.filter(|known| known.revoked_at.is_none()) else {
            return Ok(None);
        };
        let Some(sealed) = known.sealed_secret.as_deref() else { return Ok(None) };
        let sealed: [u8; SEALED_SECRET_BYTES] = hex::decode(sealed).ok_or(TokenFault::Damaged)?;
        let secret = self.inner.tokens.open_text(&sealed_under(&id), &sealed)?;
        Ok(Some(((*known).clone(), secret)))
    }

    /// A key, in force or not.
    async fn known_key(&self, id: &KeyId) -> Result<Option<Arc<ApiKeyRecord>>, EngineError> {
        if let Some(known) = self.inner.keys.seen().get(id) {
            return Ok(Some(Arc::clone(known)));
        }
        let key = key_of(id);
        let changes = self.inner.keys.changes.load(Ordering::Acquire);
        let Some(record) = self.inner.backend.record(key.clone()).await? else { return Ok(None) };
        let known: ApiKeyRecord = read(&key, &record)?;
        self.inner.keys.keep(&known, changes);
        Ok(Some(Arc::new(known)))
    }

    /// Whether a key that was seen before is still in force.
    pub async fn is_in_force(&self, id: &KeyId) -> Result<bool, EngineError> {
        if let Some(known) = self.inner.keys.seen().get(id) {
            return Ok(known.revoked_at.is_none());
        }
        let key = key_of(id);
        let Some(record) = self.inner.backend.record(key.clone()).await? else { return Ok(false) };
        let known: ApiKeyRecord = read(&key, &record)?;
        Ok(known.revoked_at.is_none())
    }

    /// Whether it is known, without asking the store, that a key was ever made. That is for good.
    pub fn is_keyed(&self) -> bool {
        self.inner.keys.any.load(Ordering::Acquire)
    }

    /// Whether a key was ever made, here or where the store was imported from. Revoked ones count: taking the last key
    /// away must not open the door, and neither must a copy without keys.
    pub async fn has_keys(&self) -> Result<bool, EngineError> {
        if self.is_keyed() {
            return Ok(true);
        }
        let any = is_guarded(&*self.inner.backend).await?;
        if any {
            self.inner.keys.any.store(true, Ordering::Release);
        }
        Ok(any)
    }

    /// Whether nobody can come in at all: there were keys where the store was imported from, and none was made since.
    pub async fn is_closed(&self) -> Result<bool, EngineError> {
        let backend = &*self.inner.backend;
        Ok(!has_any_key(backend).await? && backend.record(RecordKey::closed()).await?.is_some())
    }
}

/// Whether a store has or had keys, which an export notes.
pub async fn is_guarded<B: Backend>(backend: &B) -> Result<bool, Fault> {
    Ok(has_any_key(backend).await? || backend.record(RecordKey::closed()).await?.is_some())
}

async fn has_any_key<B: Backend>(backend: &B) -> Result<bool, Fault> {
    Ok(!backend.records(RecordKind::ApiKey, None, None, 1).await?.is_empty())
}

/// What the secret of a key is sealed under: that of one key is not opened as another's.
fn sealed_under(id: &KeyId) -> String {
    format!("key {id}")
}

fn key_of(id: &KeyId) -> RecordKey {
    RecordKey { kind: RecordKind::ApiKey, tenant: None, id: Arc::from(id.as_str()) }
}
