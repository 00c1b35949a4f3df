//! What decisions and readers must find at once: all groups of errors, all parked executions and all bulks.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use tidemill_model::workflow::{ErrorCode, WorkflowRunId};
use tidemill_model::{TenantId, Timestamp};

use crate::kernel::notice::Notice;
use crate::kernel::record::{Record, RecordKey, RecordKind, RecordValue};
use crate::kernel::state::Map;
use crate::triage::{Bulk, BulkId, BulkState, ErrorCounts, ErrorGroup, Parked, ParkedKey};

/// Where a parked execution stands in its list.
pub type ParkedAt = (Timestamp, WorkflowRunId);

#[derive(Debug, Clone, Default)]
pub struct TriageIndex {
    tenants: BTreeMap<TenantId, OfTenant>,
    /// When something is to be done about which execution.
    due: BTreeSet<(Timestamp, TenantId, WorkflowRunId)>,
    running: BTreeSet<(TenantId, BulkId)>,
    /// Rung when something may have to be done earlier than before.
    nearer: Notice,
    /// Rung when an execution's wait ends.
    ended: Notice,
}

#[derive(Debug, Clone, Default)]
struct OfTenant {
    groups: Map<ErrorCode, Counted>,
    parked: Map<WorkflowRunId, Arc<Parked>>,
    by_age: BTreeSet<ParkedAt>,
    by_code: Map<ErrorCode, BTreeSet<ParkedAt>>,
    /// Those that an alarm reported, by the moment at which they are given up.
    expiring: BTreeSet<ParkedAt>,
    bulks: BTreeMap<BulkId, Arc<Bulk>>,
}

/// Parked executions that will be given up, as an alarm reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expiring {
    pub count: usize,
    /// The one that is given up first.
    pub first: Arc<Parked>,
}

/// A group with what is counted of it, so that a list of very many needs to look at few of them.
#[derive(Debug, Clone)]
struct Counted {
    group: Arc<ErrorGroup>,
    counts: ErrorCounts,
    is_ignored: bool,
}

/// A group as a list sees it.
#[derive(Debug, Clone, Copy)]
pub struct CountedGroup<'s> {
    pub code: &'s ErrorCode,
    pub group: &'s Arc<ErrorGroup>,
    /// What was counted in all places.
    pub counts: ErrorCounts,
    /// Whether it was ignored when it changed last; that may have ended since.
    pub is_ignored: bool,
}

/// What is to be done by some moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TriageDue {
    pub parked: Vec<ParkedKey>,
    pub bulks: Vec<(TenantId, BulkId)>,
    /// When the next parked execution comes due that is not yet.
    pub next: Option<Timestamp>,
}

impl TriageIndex {
    pub fn group_count(&self, tenant: &TenantId) -> usize {
        self.tenants.get(tenant).map_or(0, |own| own.groups.len())
    }

    /// A tenant's groups, in no order.
    pub fn groups(&self, tenant: &TenantId) -> Vec<Arc<ErrorGroup>> {
        let own = self.tenants.get(tenant);
        own.map_or_else(Vec::new, |own| own.groups.values().map(|own| Arc::clone(&own.group)).collect())
    }

    /// A tenant's groups with what is counted of them, in no order.
    pub fn counted<'s>(&'s self, tenant: &TenantId) -> impl Iterator<Item = CountedGroup<'s>> + use<'s> {
        let own = self.tenants.get(tenant).into_iter().flat_map(|own| &own.groups);
        own.map(|(code, Counted { group, counts, is_ignored })| CountedGroup {
            code,
            group,
            counts: *counts,
            is_ignored: *is_ignored,
        })
    }

    pub fn group(&self, tenant: &TenantId, code: &ErrorCode) -> Option<&Arc<ErrorGroup>> {
        self.tenants.get(tenant)?.groups.get(code).map(|own| &own.group)
    }

    /// The tenants with groups or parked executions.
    pub fn tenants(&self) -> impl Iterator<Item = &TenantId> {
        self.tenants.keys()
    }

    pub fn parked_count(&self, tenant: &TenantId) -> usize {
        self.tenants.get(tenant).map_or(0, |own| own.parked.len())
    }

    pub fn parked(&self, tenant: &TenantId, execution: &WorkflowRunId) -> Option<&Arc<Parked>> {
        self.tenants.get(tenant)?.parked.get(execution)
    }

    /// A tenant's parked executions that an alarm reported; `None` if there are none.
    pub fn expiring(&self, tenant: &TenantId) -> Option<Expiring> {
        let own = self.tenants.get(tenant)?;
        let (_, first) = own.expiring.first()?;
        Some(Expiring { count: own.expiring.len(), first: Arc::clone(own.parked.get(first)?) })
    }

    /// A tenant's parked executions after `after`, oldest first; with a code, only those that have it.
    pub fn parked_after<'s>(
        &'s self,
        tenant: &TenantId,
        code: Option<&ErrorCode>,
        after: Option<&ParkedAt>,
    ) -> impl Iterator<Item = &'s Arc<Parked>> + use<'s> {
        let own = self.tenants.get(tenant);
        let list = own.and_then(|own| match code {
            Some(code) => own.by_code.get(code),
            None => Some(&own.by_age),
        });
        let from = after.cloned().map_or(Bound::Unbounded, Bound::Excluded);
        let places = list.into_iter().flat_map(move |list| list.range((from.clone(), Bound::Unbounded)));
        places.filter_map(move |(_, id)| own.and_then(|own| own.parked.get(id)))
    }

    pub fn bulk(&self, tenant: &TenantId, id: BulkId) -> Option<&Arc<Bulk>> {
        self.tenants.get(tenant)?.bulks.get(&id)
    }

    /// A tenant's bulks, newest first.
    pub fn bulks(&self, tenant: &TenantId) -> Vec<Arc<Bulk>> {
        let own = self.tenants.get(tenant);
        own.map_or_else(Vec::new, |own| own.bulks.values().rev().cloned().collect())
    }

    /// What is to be done at `now`, at most `limit` of the parked.
    pub fn due(&self, now: Timestamp, limit: usize) -> TriageDue {
        let key = |(_, tenant, execution): &(Timestamp, TenantId, WorkflowRunId)| ParkedKey {
            tenant: tenant.clone(),
            execution: execution.clone(),
        };
        let parked = self.due.iter().take_while(|(at, ..)| *at <= now).take(limit).map(key).collect();
        let next = self.due.iter().find(|(at, ..)| *at > now).map(|(at, ..)| *at);
        TriageDue { parked, bulks: self.running.iter().cloned().collect(), next }
    }

    /// Rung when something may have to be done earlier than before.
    pub fn nearer(&self) -> Notice {
        self.nearer.clone()
    }

    /// Rung when an execution's wait ends.
    pub fn ended(&self) -> Notice {
        self.ended.clone()
    }

    /// Rings the bells of another, whose listeners go on with this one.
    pub(super) fn take_over(&mut self, former: &Self) {
        self.nearer = former.nearer();
        self.ended = former.ended();
    }

    /// Takes note of a record as it stands now.
    pub(super) fn note(&mut self, key: &RecordKey, record: Option<&Record>) {
        let Some(tenant) = &key.tenant else { return };
        match (key.kind, record.map(|record| &record.value)) {
            (RecordKind::ErrorGroup, Some(RecordValue::ErrorGroup(group))) => {
                let counts = group.counts();
                let is_ignored = group.is_ignored();
                let counted = Counted { group: Arc::clone(group), counts, is_ignored };
                self.own(tenant).groups.insert(group.code.clone(), counted);
            }
            (RecordKind::ErrorGroup, _) => {
                self.own(tenant).groups.remove(&*key.id);
                self.part_with(tenant);
            }
            (RecordKind::Parked, value) => {
                let parked = match value {
                    Some(RecordValue::Parked(parked)) => Some(parked),
                    _ => None,
                };
                self.note_parked(tenant, &key.id, parked);
                self.part_with(tenant);
            }
            (RecordKind::Bulk, Some(RecordValue::Bulk(bulk))) => {
                let place = (tenant.clone(), bulk.id);
                if bulk.state == BulkState::Running {
                    if self.running.insert(place) {
                        self.nearer.ring();
                    }
                } else {
                    self.running.remove(&place);
                }
                self.own(tenant).bulks.insert(bulk.id, Arc::clone(bulk));
            }
            (RecordKind::Bulk, _) => {
                if let Ok(id) = BulkId::new(&*key.id) {
                    self.own(tenant).bulks.remove(&id);
                    self.running.remove(&(tenant.clone(), id));
                    self.part_with(tenant);
                }
            }
            _ => {}
        }
    }

    fn own(&mut self, tenant: &TenantId) -> &mut OfTenant {
        if !self.tenants.contains_key(tenant) {
            self.tenants.insert(tenant.clone(), OfTenant::default());
        }
        self.tenants.get_mut(tenant).expect("it was just put there")
    }

    fn part_with(&mut self, tenant: &TenantId) {
        let is_bare = |own: &OfTenant| own.groups.is_empty() && own.parked.is_empty() && own.bulks.is_empty();
        if self.tenants.get(tenant).is_some_and(is_bare) {
            self.tenants.remove(tenant);
        }
    }

    fn note_parked(&mut self, tenant: &TenantId, id: &str, parked: Option<&Arc<Parked>>) {
        let own = self.own(tenant);
        let before = match parked {
            Some(parked) => own.parked.insert(parked.execution.clone(), Arc::clone(parked)),
            None => own.parked.remove(id),
        };
        if let Some(before) = &before {
            let place = (before.since, before.execution.clone());
            own.by_age.remove(&place);
            own.expiring.remove(&(before.deadline, before.execution.clone()));
            for code in &before.codes {
                if let Some(list) = own.by_code.get_mut(code) {
                    list.remove(&place);
                    if list.is_empty() {
                        own.by_code.remove(code);
                    }
                }
            }
        }
        if let Some(parked) = parked {
            let place = (parked.since, parked.execution.clone());
            for code in &parked.codes {
                own.by_code.entry(code.clone()).or_default().insert(place.clone());
            }
            own.by_age.insert(place);
            if parked.is_told {
                own.expiring.insert((parked.deadline, parked.execution.clone()));
            }
        }
        let first = self.due.first().map(|(at, ..)| *at);
        if let Some(before) = &before {
            self.due.remove(&(before.due_at(), tenant.clone(), before.execution.clone()));
        }
        if let Some(parked) = parked {
            self.due.insert((parked.due_at(), tenant.clone(), parked.execution.clone()));
            if first.is_none_or(|first| parked.due_at() < first) {
                self.nearer.ring();
            }
        } else if before.is_some() {
            self.ended.ring();
        }
    }
}
