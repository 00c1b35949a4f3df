//! Triage records that a command reads and writes: each is copied once, changed as often as needed, and put once.
//!
//! A command may hold a hundred events of one code. The copies are part of the draft, so that all parts of a decision
//! see what the others did.

use std::collections::HashMap;
use std::sync::Arc;

use tidemill_model::{TenantId, Timestamp};

use crate::kernel::commit::{Commit, RecordWrite};
use crate::kernel::record::{Record, RecordKey, RecordValue};
use crate::kernel::state::State;
use crate::triage::{ErrorGroup, Parked, StoredToken, TriageError, TriageExecution};

/// The place of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held(usize);

#[derive(Debug, Default)]
pub(crate) struct Notes {
    places: HashMap<RecordKey, Held, foldhash::fast::RandomState>,
    /// In the order of their first use, which is that of the commit.
    copies: Vec<Copied>,
    /// Groups that this command makes.
    pub(crate) new_groups: usize,
}

#[derive(Debug)]
struct Copied {
    key: RecordKey,
    version: u64,
    value: Option<RecordValue>,
    expires_at: Option<Timestamp>,
    is_changed: bool,
}

macro_rules! typed {
    ($read:ident, $variant:ident, $type:ty) => {
        pub(crate) fn $read(&self, held: Held) -> Option<&$type> {
            match &self.copies[held.0].value {
                Some(RecordValue::$variant(value)) => Some(value),
                _ => None,
            }
        }
    };
}

impl Notes {
    /// The copy of a record; of none if there is none.
    pub(crate) fn find(&mut self, state: &State, key: RecordKey) -> Held {
        if let Some(held) = self.places.get(&key) {
            return *held;
        }
        let record = state.record(&key);
        let held = Held(self.copies.len());
        self.copies.push(Copied {
            key: key.clone(),
            version: record.map_or(0, |record| record.version),
            value: record.map(|record| record.value.clone()),
            expires_at: record.and_then(|record| record.expires_at),
            is_changed: false,
        });
        self.places.insert(key, held);
        held
    }

    typed!(group, ErrorGroup, ErrorGroup);
    typed!(error, TriageError, TriageError);
    typed!(execution, TriageExecution, TriageExecution);
    typed!(parked, Parked, Parked);
    typed!(token, Token, StoredToken);

    /// Executions of a tenant that are parked, as far as this command looked at them.
    pub(crate) fn all_parked<'n>(&'n self, tenant: &'n TenantId) -> impl Iterator<Item = &'n Parked> {
        self.copies.iter().filter(|copy| copy.key.tenant.as_ref() == Some(tenant)).filter_map(|copy| {
            match &copy.value {
                Some(RecordValue::Parked(parked)) => Some(&**parked),
                _ => None,
            }
        })
    }

    pub(crate) fn is_there(&self, held: Held) -> bool {
        self.copies[held.0].value.is_some()
    }

    pub(crate) fn value(&self, held: Held) -> Option<&RecordValue> {
        self.copies[held.0].value.as_ref()
    }

    /// Changes a group, if it is there.
    pub(crate) fn change_group<T>(
        &mut self,
        held: Held,
        change: impl FnOnce(&mut ErrorGroup) -> T,
    ) -> Option<T> {
        let copy = &mut self.copies[held.0];
        let Some(RecordValue::ErrorGroup(group)) = &mut copy.value else { return None };
        copy.is_changed = true;
        Some(change(Arc::make_mut(group)))
    }

    pub(crate) fn change_execution<T>(
        &mut self,
        held: Held,
        change: impl FnOnce(&mut TriageExecution) -> T,
    ) -> Option<T> {
        let copy = &mut self.copies[held.0];
        let Some(RecordValue::TriageExecution(execution)) = &mut copy.value else { return None };
        copy.is_changed = true;
        Some(change(Arc::make_mut(execution)))
    }

    pub(crate) fn change_error<T>(
        &mut self,
        held: Held,
        change: impl FnOnce(&mut TriageError) -> T,
    ) -> Option<T> {
        let copy = &mut self.copies[held.0];
        let Some(RecordValue::TriageError(error)) = &mut copy.value else { return None };
        copy.is_changed = true;
        Some(change(Arc::make_mut(error)))
    }

    /// Puts a record, or removes it.
    pub(crate) fn put(&mut self, held: Held, value: Option<RecordValue>, expires_at: Option<Timestamp>) {
        let copy = &mut self.copies[held.0];
        copy.is_changed = true;
        copy.value = value;
        copy.expires_at = expires_at;
    }

    pub(crate) fn expire(&mut self, held: Held, at: Option<Timestamp>) {
        let copy = &mut self.copies[held.0];
        copy.is_changed |= copy.expires_at != at;
        copy.expires_at = at;
    }

    /// Writes what changed.
    pub(crate) fn flush(self, commit: &mut Commit) {
        for copy in self.copies {
            let Copied { key, version, value, expires_at, is_changed } = copy;
            if !is_changed || (version == 0 && value.is_none()) {
                continue;
            }
            let record = value.map(|value| Record { version: version + 1, expires_at, value });
            commit.records.push(RecordWrite::Put { key, record });
        }
    }
}
