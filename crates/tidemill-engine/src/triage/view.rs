//! Triage, as callers see it. All of it is read from records; only details of occurrences are read from the log.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use tidemill_model::events::access_path::AccessPath;
use tidemill_model::events::event_query::EventQuery;
use tidemill_model::workflow::{ErrorCode, ErrorType, WorkflowRunId, WorkflowStatus};
use tidemill_model::{Entity, EntityId, EntityType, EventId, Json, RequestId, TenantId, Timestamp};

use crate::engine::limits::LIST_MAX;
use crate::engine::{Engine, EngineError, check};
use crate::kernel::backend::Backend;
use crate::kernel::reads::Reads as _;
use crate::kernel::record::{RecordKey, RecordKind, RecordValue, TRIAGE_EXECUTION};
use crate::kernel::state::{CountedGroup, ParkedAt};
use crate::triage::bulk_steps::fitting;
use crate::triage::{
    BulkFilter, Cell, ErrorCounts, ErrorGroup, ErrorState, GroupKind, Parked, TriageError, TriageExecution,
    WORKFLOW_ENTITY,
};

/// Which groups. Without anything, all.
#[derive(Debug, Clone, Default)]
pub struct GroupFilter {
    pub code: Option<ErrorCode>,
    pub error_type: Option<ErrorType>,
    pub county: Option<String>,
    pub phase: Option<String>,
    pub step: Option<String>,
    /// With at least one error of this state.
    pub state: Option<ErrorState>,
    pub kind: Option<GroupKind>,
    /// In its code or title, whatever the case of letters.
    pub text: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum GroupSort {
    /// The most occurrences first.
    #[default]
    Count,
    /// The latest first.
    Recent,
    /// The most executions first; those of the filter's state, if it names one.
    Executions,
}

/// A group, and what was counted in the places that fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownGroup {
    pub group: Arc<ErrorGroup>,
    pub counts: ErrorCounts,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupPage {
    pub groups: Vec<ShownGroup>,
    /// How many fit in all.
    pub total: usize,
    /// Where to go on; `None` when nothing follows.
    pub next: Option<usize>,
}

/// An error of an execution as it stands now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownError {
    pub error: TriageError,
    pub state: ErrorState,
    /// The step that had it has succeeded since.
    pub stale: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorPage {
    pub errors: Vec<ShownError>,
    pub next: Option<WorkflowRunId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownOccurrence {
    pub execution: WorkflowRunId,
    pub event: EventId,
    pub index: u32,
    pub at: Timestamp,
    /// As the event tells them; `None` when the log has forgotten it.
    pub details: Option<Json>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownTriageExecution {
    pub execution: TriageExecution,
    pub parked: Option<Arc<Parked>>,
}

/// Which executions. Without anything, all.
#[derive(Debug, Clone, Default)]
pub struct TriageFilter {
    pub status: Option<WorkflowStatus>,
    pub county: Option<String>,
    pub phase: Option<String>,
    pub step: Option<String>,
    pub code: Option<ErrorCode>,
    /// With a code of this type.
    pub error_type: Option<ErrorType>,
    /// Only those that wait, or only those that do not.
    pub parked: Option<bool>,
}

impl TriageFilter {
    fn wants(&self, known: &TriageExecution) -> bool {
        let of_type = |wanted| known.codes.iter().any(|code| code.error_type() == wanted);
        self.status.is_none_or(|status| status == known.status)
            && is(self.county.as_ref(), &known.cell.county)
            && is(self.phase.as_ref(), &known.cell.phase)
            && is(self.step.as_ref(), &known.cell.step)
            && self.code.as_ref().is_none_or(|code| known.codes.contains(code))
            && self.error_type.is_none_or(of_type)
            && self.parked.is_none_or(|parked| parked == known.parked)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TriageExecutionPage {
    pub executions: Vec<ShownTriageExecution>,
    pub next: Option<WorkflowRunId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParkedPage {
    /// Oldest first.
    pub parked: Vec<Arc<Parked>>,
    pub next: Option<ParkedAt>,
    /// How many the tenant has in all.
    pub total: usize,
}

/// What was counted, for metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TriageMetrics {
    pub by_type: Vec<(TenantId, ErrorType, ErrorCounts)>,
    pub parked: Vec<(TenantId, usize)>,
}

fn is(wanted: Option<&String>, found: &str) -> bool {
    wanted.is_none_or(|wanted| wanted == found)
}

impl GroupFilter {
    fn wants_cell(&self, cell: &Cell) -> bool {
        is(self.county.as_ref(), &cell.county)
            && is(self.phase.as_ref(), &cell.phase)
            && is(self.step.as_ref(), &cell.step)
    }

    fn wants_all_cells(&self) -> bool {
        self.county.is_none() && self.phase.is_none() && self.step.is_none()
    }

    /// Whether what is counted of a group in all is enough to know if and where it stands.
    fn is_plain(&self) -> bool {
        self.text.is_none() && self.wants_all_cells()
    }

    /// How far in front a group stands.
    fn rank_of(&self, sort: GroupSort, counts: &ErrorCounts, group: &ErrorGroup) -> u64 {
        match sort {
            GroupSort::Count => counts.occurrences,
            GroupSort::Recent => group.last_seen.millis(),
            GroupSort::Executions => self.state.map_or_else(|| counts.executions(), |state| counts.of(state)),
        }
    }

    /// Where a group stands, if it fits a plain filter.
    fn rank<'s>(
        &self,
        counted: CountedGroup<'s>,
        sort: GroupSort,
        now: Timestamp,
    ) -> Option<Ranked<&'s Arc<ErrorGroup>>> {
        let CountedGroup { code, group, counts, is_ignored } = counted;
        let fits = self.code.as_ref().is_none_or(|wanted| wanted == code)
            && self.error_type.is_none_or(|wanted| wanted == code.error_type())
            && self.kind.is_none_or(|wanted| wanted == group.kind);
        if !fits {
            return None;
        }
        let counts = if is_ignored { as_of(group, now).counts() } else { counts };
        if self.state.is_some_and(|state| counts.of(state) == 0) {
            return None;
        }
        Some(Ranked { rank: self.rank_of(sort, &counts, group), counts, group })
    }

    /// What fits of a group; `None` if nothing does. `text` is in lower case.
    fn select(&self, group: &Arc<ErrorGroup>, text: Option<&str>, now: Timestamp) -> Option<ShownGroup> {
        let code = &group.code;
        let fits = self.code.as_ref().is_none_or(|wanted| wanted == code)
            && self.error_type.is_none_or(|wanted| wanted == code.error_type())
            && self.kind.is_none_or(|wanted| wanted == group.kind)
            && text.is_none_or(|text| {
                let has = |found: &str| found.to_lowercase().contains(text);
                has(code.as_str()) || group.title.as_deref().is_some_and(has)
            });
        if !fits {
            return None;
        }
        let group = as_of(group, now);
        let counts = if self.wants_all_cells() {
            group.counts()
        } else {
            let mut counts = ErrorCounts::default();
            let mut any = false;
            for cell in group.cells.iter().filter(|cell| self.wants_cell(&cell.cell)) {
                counts.add(&cell.counts);
                any = true;
            }
            if !any {
                return None;
            }
            counts
        };
        let in_state = self.state.is_none_or(|state| counts.of(state) > 0);
        in_state.then_some(ShownGroup { group, counts })
    }
}

/// A group in the order of a list.
struct Ranked<G> {
    rank: u64,
    counts: ErrorCounts,
    group: G,
}

impl<G: AsRef<ErrorGroup>> Ranked<G> {
    fn order(&self, other: &Self) -> Ordering {
        let by_code = || self.group.as_ref().code.cmp(&other.group.as_ref().code);
        other.rank.cmp(&self.rank).then_with(by_code)
    }
}

/// The first `end` of a list, in no order, and how long it was.
fn leading<G: AsRef<ErrorGroup>>(mut found: Vec<Ranked<G>>, end: usize) -> (Vec<Ranked<G>>, usize) {
    let total = found.len();
    // Only what is shown has to be in order.
    if end < total {
        found.select_nth_unstable_by(end, Ranked::order);
        found.truncate(end);
    }
    (found, total)
}

/// A group as it is at this moment.
pub(crate) fn as_of(group: &Arc<ErrorGroup>, now: Timestamp) -> Arc<ErrorGroup> {
    if !group.is_ignored() {
        return Arc::clone(group);
    }
    let mut group = (**group).clone();
    group.lapse(now);
    Arc::new(group)
}

impl<B: Backend> Engine<B> {
    /// A tenant's groups of errors.
    pub async fn error_groups(
        &self,
        tenant: &TenantId,
        filter: &GroupFilter,
        sort: GroupSort,
        offset: usize,
        limit: usize,
    ) -> Result<GroupPage, EngineError> {
        check::count("limit", limit, LIST_MAX)?;
        let now = self.inner.clock.now();
        let end = offset.saturating_add(limit);
        let (mut found, total) = if filter.is_plain() {
            // What is counted is at hand: nothing else is looked at of a group that is not shown.
            self.inner
                .backend
                .look(|state| {
                    let index = state.triage();
                    let found = index.counted(tenant).filter_map(|group| filter.rank(group, sort, now));
                    let (leading, total) = leading(found.collect(), end);
                    let shown = |ranked: Ranked<&Arc<ErrorGroup>>| Ranked {
                        rank: ranked.rank,
                        counts: ranked.counts,
                        group: Arc::clone(ranked.group),
                    };
                    (leading.into_iter().map(shown).collect(), total)
                })
                .await?
        } else {
            let groups = self.inner.backend.look(|state| state.triage().groups(tenant)).await?;
            let text = filter.text.as_ref().map(|text| text.to_lowercase());
            let selected = groups.iter().filter_map(|group| {
                let ShownGroup { group, counts } = filter.select(group, text.as_deref(), now)?;
                Some(Ranked { rank: filter.rank_of(sort, &counts, &group), counts, group })
            });
            leading(selected.collect(), end)
        };
        found.sort_by(Ranked::order);
        let shown = |ranked: Ranked<Arc<ErrorGroup>>| ShownGroup {
            group: as_of(&ranked.group, now),
            counts: ranked.counts,
        };
        let groups: Vec<_> = found.into_iter().skip(offset).map(shown).collect();
        let next = (end < total).then_some(end);
        Ok(GroupPage { groups, total, next })
    }

    pub async fn error_group(
        &self,
        tenant: &TenantId,
        code: &ErrorCode,
    ) -> Result<Option<ShownGroup>, EngineError> {
        let now = self.inner.clock.now();
        let group = self.inner.backend.look(|state| state.triage().group(tenant, code).cloned()).await?;
        Ok(group.map(|group| {
            let group = as_of(&group, now);
            ShownGroup { counts: group.counts(), group }
        }))
    }

    /// Groups with something to mend, the most frequent first.
    pub async fn candidates(
        &self,
        tenant: &TenantId,
        offset: usize,
        limit: usize,
    ) -> Result<GroupPage, EngineError> {
        let open = GroupFilter { state: Some(ErrorState::Open), ..GroupFilter::default() };
        self.error_groups(tenant, &open, GroupSort::Count, offset, limit).await
    }

    /// The newest occurrences of a code with their details, newest first.
    pub async fn samples(
        &self,
        tenant: &TenantId,
        group: &ErrorGroup,
    ) -> Result<Vec<ShownOccurrence>, EngineError> {
        let mut shown = Vec::with_capacity(group.samples.len());
        for sample in group.samples.iter().rev() {
            let entity = entity_of(&sample.execution, sample.of_task);
            let details = self.details(tenant, entity, sample.event, sample.index, sample.at).await?;
            shown.push(ShownOccurrence {
                execution: sample.execution.clone(),
                event: sample.event,
                index: sample.index,
                at: sample.at,
                details,
            });
        }
        Ok(shown)
    }

    /// The newest occurrences of an error with their details, newest first.
    pub async fn occurrences(
        &self,
        tenant: &TenantId,
        error: &TriageError,
    ) -> Result<Vec<ShownOccurrence>, EngineError> {
        let known = self.known_execution(tenant, &error.execution).await?;
        let of_task = known.is_some_and(|known| known.task.is_some());
        let mut shown = Vec::with_capacity(error.occurrences.len());
        for occurrence in error.occurrences.iter().rev() {
            let entity = entity_of(&error.execution, of_task);
            let details =
                self.details(tenant, entity, occurrence.event, occurrence.index, occurrence.at).await?;
            shown.push(ShownOccurrence {
                execution: error.execution.clone(),
                event: occurrence.event,
                index: occurrence.index,
                at: occurrence.at,
                details,
            });
        }
        Ok(shown)
    }

    /// What an event says of one of its errors.
    async fn details(
        &self,
        tenant: &TenantId,
        entity: Entity,
        event: EventId,
        index: u32,
        at: Timestamp,
    ) -> Result<Option<Json>, EngineError> {
        let path = AccessPath::Entity(entity);
        let query = EventQuery { from: Some(at), to: Some(at), ..EventQuery::all(tenant.clone(), path) };
        let page = self.inner.backend.events(query).await?;
        let Some(found) = page.events.into_iter().find(|found| found.id == event) else { return Ok(None) };
        let found = self.rehydrate(found).await?;
        let Ok(value) = found.properties.read::<serde_json::Value>() else { return Ok(None) };
        // An event of a task tells one error, and all of it is its details.
        let details = match value.get("errors") {
            Some(errors) => errors.get(index as usize).and_then(|error| error.get("details")).cloned(),
            None => Some(value),
        };
        Ok(details.map(|details| Json::of(&details)))
    }

    /// The executions that had a code, after `after`, in the order of their ids.
    pub async fn errors_of_code(
        &self,
        tenant: &TenantId,
        code: &ErrorCode,
        state: Option<ErrorState>,
        after: Option<WorkflowRunId>,
        limit: usize,
    ) -> Result<ErrorPage, EngineError> {
        check::count("limit", limit, LIST_MAX)?;
        let Some(ShownGroup { group, .. }) = self.error_group(tenant, code).await? else {
            return Ok(ErrorPage { errors: Vec::new(), next: None });
        };
        let begin = RecordKey::triage_error(tenant, code, &WorkflowRunId::trusted("")).id;
        let mut from =
            after.map_or(Arc::clone(&begin), |after| RecordKey::triage_error(tenant, code, &after).id);
        let mut errors: Vec<ShownError> = Vec::new();
        loop {
            let most = (limit - errors.len() + 1).min(LIST_MAX);
            let page = (RecordKind::Triage, Some(tenant.clone()), Some(Arc::clone(&from)), most);
            let records = self.inner.backend.records(page.0, page.1, page.2, page.3).await?;
            let is_last = records.len() < most;
            for (key, record) in records {
                if !key.id.starts_with(&*begin) {
                    return Ok(ErrorPage { errors, next: None });
                }
                if errors.len() == limit {
                    let next = errors.last().map(|shown| shown.error.execution.clone());
                    return Ok(ErrorPage { errors, next });
                }
                from = key.id;
                let RecordValue::TriageError(error) = record.value else { continue };
                let stands = group.state_of(error.state, error.clock);
                if state.is_none_or(|state| state == stands) {
                    let error = Arc::unwrap_or_clone(error);
                    errors.push(ShownError { error, state: stands, stale: false });
                }
            }
            if is_last {
                return Ok(ErrorPage { errors, next: None });
            }
        }
    }

    /// All errors of an execution, in the order of their first occurrence.
    pub async fn errors_of_execution(
        &self,
        tenant: &TenantId,
        execution: &WorkflowRunId,
    ) -> Result<Vec<ShownError>, EngineError> {
        let Some(known) = self.known_execution(tenant, execution).await? else { return Ok(Vec::new()) };
        let now = self.inner.clock.now();
        let mut shown = Vec::with_capacity(known.codes.len());
        for code in &known.codes {
            let record = self.inner.backend.record(RecordKey::triage_error(tenant, code, execution)).await?;
            let Some(RecordValue::TriageError(error)) = record.map(|record| record.value) else { continue };
            let group = self.inner.backend.look(|state| state.triage().group(tenant, code).cloned()).await?;
            let Some(group) = group.map(|group| as_of(&group, now)) else { continue };
            let state = group.state_of(error.state, error.clock);
            let step = group.cells.get(error.cell as usize).map(|cell| &cell.cell.step);
            let is_stale = state == ErrorState::Open
                && known.status == WorkflowStatus::Succeeded
                && known.status_at >= error.last_seen
                && step == Some(&known.cell.step);
            let error = Arc::unwrap_or_clone(error);
            shown.push(ShownError { error, state, stale: is_stale });
        }
        Ok(shown)
    }

    pub async fn triage_execution(
        &self,
        tenant: &TenantId,
        id: &WorkflowRunId,
    ) -> Result<Option<ShownTriageExecution>, EngineError> {
        let Some(execution) = self.known_execution(tenant, id).await? else { return Ok(None) };
        let parked = self.inner.backend.look(|state| state.triage().parked(tenant, id).cloned()).await?;
        Ok(Some(ShownTriageExecution { execution, parked }))
    }

    /// A tenant's executions after `after`, in the order of their ids.
    pub async fn triage_executions(
        &self,
        tenant: &TenantId,
        filter: &TriageFilter,
        after: Option<WorkflowRunId>,
        limit: usize,
    ) -> Result<TriageExecutionPage, EngineError> {
        check::count("limit", limit, LIST_MAX)?;
        let mut from = after.map_or_else(
            || Arc::from(TRIAGE_EXECUTION),
            |after| RecordKey::triage_execution(tenant, &after).id,
        );
        let mut executions: Vec<ShownTriageExecution> = Vec::new();
        let mut next = None;
        'pages: loop {
            let page = (RecordKind::Triage, Some(tenant.clone()), Some(Arc::clone(&from)), LIST_MAX);
            let records = self.inner.backend.records(page.0, page.1, page.2, page.3).await?;
            let is_last = records.len() < LIST_MAX;
            for (key, record) in records {
                let RecordValue::TriageExecution(known) = record.value else { continue };
                from = key.id;
                if !filter.wants(&known) {
                    continue;
                }
                if executions.len() == limit {
                    next = executions.last().map(|shown| shown.execution.id.clone());
                    break 'pages;
                }
                let execution = Arc::unwrap_or_clone(known);
                executions.push(ShownTriageExecution { execution, parked: None });
            }
            if is_last {
                break;
            }
        }
        let executions = self.inner.backend.look(|state| {
            let index = state.triage();
            for shown in &mut executions {
                shown.parked = index.parked(tenant, &shown.execution.id).cloned();
            }
            executions
        });
        Ok(TriageExecutionPage { executions: executions.await?, next })
    }

    /// A tenant's parked executions that fit, oldest first, those after `after`.
    pub async fn parked(
        &self,
        tenant: &TenantId,
        filter: &BulkFilter,
        after: Option<ParkedAt>,
        limit: usize,
    ) -> Result<ParkedPage, EngineError> {
        check::count("limit", limit, LIST_MAX)?;
        let page = self.inner.backend.look(|state| {
            let index = state.triage();
            let mut found = fitting(index, tenant, filter, after.as_ref());
            let parked: Vec<_> = found.by_ref().take(limit).cloned().collect();
            let more = found.next().is_some();
            let last = parked.last().map(|parked| (parked.since, parked.execution.clone()));
            ParkedPage { next: last.filter(|_| more), parked, total: index.parked_count(tenant) }
        });
        Ok(page.await?)
    }

    /// What was counted, of all tenants.
    pub async fn triage_metrics(&self) -> Result<TriageMetrics, EngineError> {
        let now = self.inner.clock.now();
        let (by_type, parked) = self
            .inner
            .backend
            .look(|state| {
                let index = state.triage();
                let tenants: Vec<_> = index.tenants().cloned().collect();
                let mut by_type: BTreeMap<(TenantId, ErrorType), ErrorCounts> = BTreeMap::new();
                for tenant in &tenants {
                    let mut own: BTreeMap<ErrorType, ErrorCounts> = BTreeMap::new();
                    for group in index.counted(tenant) {
                        let lapsed = group.is_ignored.then(|| as_of(group.group, now).counts());
                        let counts = lapsed.unwrap_or(group.counts);
                        own.entry(group.code.error_type()).or_default().add(&counts);
                    }
                    by_type.extend(own.into_iter().map(|(kind, counts)| ((tenant.clone(), kind), counts)));
                }
                let count = |tenant: &TenantId| (tenant.clone(), index.parked_count(tenant));
                (by_type, tenants.iter().map(count).collect())
            })
            .await?;
        let by_type = by_type.into_iter().map(|((tenant, kind), counts)| (tenant, kind, counts)).collect();
        Ok(TriageMetrics { by_type, parked })
    }
}

/// Where the events of an execution are.
fn entity_of(execution: &WorkflowRunId, of_task: bool) -> Entity {
    if of_task {
        return Entity::task(&RequestId::trusted(execution.as_str()));
    }
    Entity { kind: EntityType::trusted(WORKFLOW_ENTITY), id: EntityId::trusted(execution.as_str()) }
}
