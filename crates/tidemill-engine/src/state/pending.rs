//! Which executions are to run, and when. The records themselves may have left memory.

use std::collections::{BTreeMap, BTreeSet};

use tidemill_model::{TenantId, Timestamp};

use super::Map;
use crate::execution::{ExecutionId, ExecutionKey};
use crate::record::{Record, RecordKey, RecordKind, RecordValue};

/// Executions that are queued or to be tried again, by tenant and moment.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Pending {
    tenants: BTreeMap<TenantId, BTreeSet<(Timestamp, ExecutionId)>>,
    moments: Map<ExecutionKey, Timestamp>,
}

/// What is to run by some moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DueExecutions {
    /// The tenants in turn, the earliest of each first.
    pub due: Vec<ExecutionKey>,
    /// When the next one comes due that is not yet.
    pub next: Option<Timestamp>,
    /// How many wait in all, due or not.
    pub pending: usize,
    /// The tenant with most of them.
    pub fullest: Option<TenantId>,
}

impl Pending {
    pub fn len(&self) -> usize {
        self.moments.len()
    }

    pub fn is_empty(&self) -> bool {
        self.moments.is_empty()
    }

    pub fn of(&self, tenant: &TenantId) -> usize {
        self.tenants.get(tenant).map_or(0, BTreeSet::len)
    }

    /// What is due at `now`, without what `skip` names, at most `limit`.
    pub fn due(&self, now: Timestamp, limit: usize, skip: impl Fn(&ExecutionKey) -> bool) -> DueExecutions {
        let mut lanes: Vec<_> = self
            .tenants
            .iter()
            .map(|(tenant, waiting)| {
                let key = move |(_, id): &(Timestamp, ExecutionId)| ExecutionKey {
                    tenant: tenant.clone(),
                    id: *id,
                };
                waiting.iter().take_while(move |(at, _)| *at <= now).map(key)
            })
            .collect();
        let mut due = Vec::new();
        while !lanes.is_empty() && due.len() < limit {
            lanes.retain_mut(|lane| {
                let next = if due.len() < limit { lane.find(|key| !skip(key)) } else { None };
                let goes_on = next.is_some();
                due.extend(next);
                goes_on
            });
        }
        let later = |waiting: &BTreeSet<(Timestamp, ExecutionId)>| {
            waiting.range((now.plus(1), ExecutionId::from_u128(0))..).next().map(|(at, _)| *at)
        };
        let fullest = self.tenants.iter().max_by_key(|(_, waiting)| waiting.len());
        DueExecutions {
            due,
            next: self.tenants.values().filter_map(later).min(),
            pending: self.len(),
            fullest: fullest.map(|(tenant, _)| tenant.clone()),
        }
    }

    /// Takes note of a record as it stands now.
    pub(super) fn note(&mut self, key: &RecordKey, record: Option<&Record>) {
        if key.kind != RecordKind::Execution {
            return;
        }
        let Some(key) = key.as_execution() else { return };
        let moment = record.and_then(|record| match &record.value {
            RecordValue::Execution(execution) => {
                execution.status.is_pending().then_some(execution.next_run_at)
            }
            _ => None,
        });
        let before = match moment {
            Some(moment) => self.moments.insert(key.clone(), moment),
            None => self.moments.remove(&key),
        };
        if before == moment {
            return;
        }
        if let Some(before) = before
            && let Some(waiting) = self.tenants.get_mut(&key.tenant)
        {
            waiting.remove(&(before, key.id));
            if waiting.is_empty() {
                self.tenants.remove(&key.tenant);
            }
        }
        if let Some(moment) = moment {
            self.tenants.entry(key.tenant).or_default().insert((moment, key.id));
        }
    }
}
