//! Bulks: a page of unparks and the bulk's new place are one commit, so that nothing is done twice.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tidemill_model::workflow::{ErrorCode, WorkflowRunId};
use tidemill_model::{TenantId, Timestamp};

use crate::engine::limits::BULK_EXECUTIONS_MAX;
use crate::engine::{Engine, EngineError, take_reply};
use crate::kernel::backend::Backend;
use crate::kernel::clock::AHEAD_MILLIS_MAX;
use crate::kernel::command::Command;
use crate::kernel::decision::{Decision, MayFail};
use crate::kernel::draft::Draft;
use crate::kernel::record::{RecordKey, RecordValue};
use crate::kernel::reply::{Refusal, Reply};
use crate::kernel::state::row::RowKey;
use crate::kernel::state::{State, TriageIndex};
use crate::parking::unpark::{self, How, Jobs, Who};
use crate::triage::changes::{check_action, check_words};
use crate::triage::view::as_of;
use crate::triage::{Bulk, BulkAction, BulkFilter, BulkId, BulkState, ErrorState, Parked};

/// A bulk as a person asks for it.
#[derive(Debug, Clone)]
pub struct NewBulk {
    pub tenant: TenantId,
    pub action: BulkAction,
    pub filter: BulkFilter,
    pub rate_per_second: Option<u32>,
    pub by: Option<String>,
    pub reason: Option<String>,
}

/// What a bulk would be about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BulkPreview {
    pub total: u64,
    /// The codes that these executions wait on, the most frequent first.
    pub by_code: Vec<(ErrorCode, u64)>,
    pub oldest: Option<Timestamp>,
    /// The oldest of them.
    pub first: Vec<Arc<Parked>>,
    /// Those that were named and do not fit, or are not parked.
    pub left_out: Vec<WorkflowRunId>,
}

/// How many parked executions a preview names, and how many codes.
const PREVIEW_MAX: usize = 10;

/// The highest rate of a bulk.
const RATE_MAX: u32 = 100_000;

/// Begins to unpark many executions.
#[derive(Debug, Clone)]
pub struct StartBulk {
    pub tenant: TenantId,
    pub id: BulkId,
    pub action: BulkAction,
    pub filter: BulkFilter,
    /// How many fit, if that had to be counted before; `None`: as many as their own records say.
    pub total: Option<u64>,
    pub rate_per_second: Option<u32>,
    pub by: Option<Arc<str>>,
    pub reason: Option<Arc<str>>,
}

impl Decision for StartBulk {
    fn log_bytes(&self) -> u64 {
        self.action.log_bytes() + 50_000
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        start(state, self, draft)
    }
}

/// Carries out the next page of a bulk.
#[derive(Debug, Clone)]
pub struct StepBulk {
    pub tenant: TenantId,
    pub bulk: BulkId,
}

impl Decision for StepBulk {
    fn touches(&self, state: &State, now: Timestamp) -> Vec<RowKey> {
        rows(state, &self.tenant, self.bulk, now)
    }

    fn may_fail_jobs(&self) -> MayFail<'_> {
        MayFail::Of(&self.tenant)
    }

    fn log_bytes(&self) -> u64 {
        12_000_000
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        step(state, &self.tenant, self.bulk, draft)
    }
}

/// Ends a bulk where it stands.
#[derive(Debug, Clone)]
pub struct CancelBulk {
    pub tenant: TenantId,
    pub bulk: BulkId,
}

impl Decision for CancelBulk {
    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        cancel(state, &self.tenant, self.bulk, draft)
    }
}

/// How many executions one page unparks.
const PAGE_MAX: usize = 100;
/// The bytes of outputs that one page writes.
const PAGE_BYTES: usize = 4 << 20;
/// How many bulks of a tenant may run at the same time.
const RUNNING_MAX: usize = 100;
/// Pages of a bulk with a rate are at least so far apart.
const STEP_MILLIS: u64 = 100;

pub(crate) fn start(state: &State, command: &StartBulk, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
    let tenant = &command.tenant;
    let bulks = state.triage().bulks(tenant);
    let running = bulks.iter().filter(|bulk| bulk.state == BulkState::Running).count();
    if running >= RUNNING_MAX {
        return Err(Refusal::TooMany { field: "bulks", count: running + 1, limit: RUNNING_MAX });
    }
    let bulk = begin(state, command, draft);
    let next = Some(draft.now()).filter(|_| bulk.state == BulkState::Running);
    Ok(Reply::Bulk { bulk, next })
}

fn begin(state: &State, command: &StartBulk, draft: &mut Draft<'_, '_>) -> Arc<Bulk> {
    let now = draft.now();
    let (tenant, filter) = (&command.tenant, &command.filter);
    let total = command.total.unwrap_or_else(|| {
        let fitting = fitting(state.triage(), tenant, filter, None).count();
        (fitting + parked_here(state, tenant, filter, draft)) as u64
    });
    let bulk = Bulk {
        id: command.id,
        action: command.action.clone(),
        filter: command.filter.clone(),
        cutoff: now,
        rate_per_second: command.rate_per_second,
        total,
        done: 0,
        failed: 0,
        skipped: 0,
        state: if total == 0 { BulkState::Done } else { BulkState::Running },
        after: None,
        created_at: now,
        stepped_at: now,
        ended_at: (total == 0).then_some(now),
        by: command.by.clone(),
        reason: command.reason.clone(),
    };
    put(state, &command.tenant, bulk, draft)
}

fn put(state: &State, tenant: &TenantId, bulk: Bulk, draft: &mut Draft<'_, '_>) -> Arc<Bulk> {
    let bulk = Arc::new(bulk);
    let expires_at = bulk.ended_at.map(|at| at.plus(draft.policy().execution_millis));
    let held = draft.notes().find(state, RecordKey::bulk(tenant, bulk.id));
    draft.notes().put(held, Some(RecordValue::Bulk(Arc::clone(&bulk))), expires_at);
    bulk
}

/// Resumes what waits on a code that was just resolved and on nothing else.
pub(crate) fn resume_settled(state: &State, tenant: &TenantId, code: &ErrorCode, draft: &mut Draft<'_, '_>) {
    let filter = BulkFilter { code: Some(code.clone()), settled: true, ..BulkFilter::default() };
    let is_there = state.triage().parked_after(tenant, Some(code), None).next().is_some();
    if !is_there && parked_here(state, tenant, &filter, draft) == 0 {
        return;
    }
    let command = StartBulk {
        tenant: tenant.clone(),
        id: BulkId::mint(draft.event_id()),
        action: unpark::settled_action(),
        filter,
        total: None,
        rate_per_second: None,
        by: Some(Arc::from("auto-resume")),
        reason: None,
    };
    begin(state, &command, draft);
}

/// How many executions fit only because of what the same commit does.
fn parked_here(state: &State, tenant: &TenantId, filter: &BulkFilter, draft: &mut Draft<'_, '_>) -> usize {
    let fitted = |id| state.triage().parked(tenant, id).is_some_and(|parked| filter.wants(parked));
    let here = draft.notes().all_parked(tenant);
    here.filter(|parked| filter.wants(parked) && !fitted(&parked.execution)).count()
}

/// Parked executions that fit, oldest first, after a place.
pub(crate) fn fitting<'s>(
    index: &'s TriageIndex,
    tenant: &TenantId,
    filter: &'s BulkFilter,
    after: Option<&(Timestamp, tidemill_model::workflow::WorkflowRunId)>,
) -> Box<dyn Iterator<Item = &'s Arc<Parked>> + 's> {
    if let Some(ids) = &filter.executions {
        let mut found: Vec<_> = ids.iter().filter_map(|id| index.parked(tenant, id)).collect();
        found.sort_by(|one, two| (one.since, &one.execution).cmp(&(two.since, &two.execution)));
        found.dedup_by(|one, two| one.execution == two.execution);
        let after = after.cloned();
        let is_after = move |parked: &&Arc<Parked>| {
            after.as_ref().is_none_or(|after| (parked.since, &parked.execution) > (after.0, &after.1))
        };
        return Box::new(found.into_iter().filter(is_after).filter(|parked| filter.wants(parked)));
    }
    let all = index.parked_after(tenant, filter.code.as_ref(), after);
    Box::new(all.filter(|parked| filter.wants(parked)))
}

/// What the next page of a bulk is about, and whether anything may follow it.
fn page(state: &State, tenant: &TenantId, bulk: &Bulk, most: usize) -> (Vec<Arc<Parked>>, bool) {
    let mut jobs = Jobs::default();
    let mut page = Vec::new();
    let fitting = fitting(state.triage(), tenant, &bulk.filter, bulk.after.as_ref());
    for parked in fitting.take_while(|parked| parked.since <= bulk.cutoff) {
        if page.len() >= most || !jobs.admits(parked) {
            return (page, true);
        }
        page.push(Arc::clone(parked));
    }
    (page, false)
}

/// How many the next page may hold.
fn allowed(bulk: &Bulk, now: Timestamp) -> usize {
    let bytes = match &bulk.action {
        BulkAction::Resume { output, .. } => output.len() + 1_024,
        BulkAction::Fail { error, cause } => error.len() + cause.len() + 1_024,
    };
    let most = (PAGE_BYTES / bytes).clamp(1, PAGE_MAX);
    let Some(rate) = bulk.rate_per_second.map(u64::from) else { return most };
    let earned = now.since(bulk.stepped_at).saturating_mul(rate) / 1_000;
    let earned = if bulk.after.is_none() { earned.max(1) } else { earned };
    // What was not used in time is not saved up for later.
    usize::try_from(earned.min(rate.max(1))).unwrap_or(most).min(most)
}

pub(crate) fn step(
    state: &State,
    tenant: &TenantId,
    id: BulkId,
    draft: &mut Draft<'_, '_>,
) -> Result<Reply, Refusal> {
    let mut bulk = (**running(state, tenant, id)?).clone();
    let now = draft.now();
    if bulk.stepped_at.since(now) > AHEAD_MILLIS_MAX {
        // The clock was set back since, and the bulk would stand still for as long.
        bulk.stepped_at = now.minus(1_000);
    }
    let most = allowed(&bulk, now);
    if most == 0 {
        let next = next_at(&bulk, now);
        return Ok(Reply::Bulk { bulk: Arc::new(bulk), next: Some(next) });
    }
    let (page, goes_on) = page(state, tenant, &bulk, most);
    for parked in &page {
        let held = draft.notes().find(state, RecordKey::triage_execution(tenant, &parked.execution));
        let place = (parked.since, parked.execution.clone());
        bulk.after = Some(place);
        if bulk.filter.settled && !crate::triage::marks::is_settled(state, tenant, held, draft) {
            bulk.skipped += 1;
            continue;
        }
        let who = Who { by: bulk.by.as_ref(), reason: bulk.reason.as_ref(), after: None };
        match unpark::unpark(state, tenant, &parked.execution, How::Act(&bulk.action), &who, draft) {
            Ok(()) => bulk.done += 1,
            Err(_) => bulk.failed += 1,
        }
    }
    if let Some(rate) = bulk.rate_per_second.map(u64::from) {
        let paid = bulk.stepped_at.plus(page.len() as u64 * 1_000 / rate.max(1));
        bulk.stepped_at = paid.max(now.minus(1_000));
    } else {
        bulk.stepped_at = now;
    }
    if !goes_on {
        bulk.state = BulkState::Done;
        bulk.ended_at = Some(now);
        if bulk.filter.settled {
            // Which of them had nothing left to mend was not known for all when it began.
            bulk.total = bulk.done + bulk.failed;
        }
    }
    let next = goes_on.then(|| next_at(&bulk, now));
    let bulk = put(state, tenant, bulk, draft);
    Ok(Reply::Bulk { bulk, next })
}

/// When the next page may be.
fn next_at(bulk: &Bulk, now: Timestamp) -> Timestamp {
    bulk.rate_per_second.map_or(now, |rate| {
        let one = 1_000_u64.div_ceil(u64::from(rate.max(1)));
        bulk.stepped_at.plus(one.max(STEP_MILLIS))
    })
}

pub(crate) fn cancel(
    state: &State,
    tenant: &TenantId,
    id: BulkId,
    draft: &mut Draft<'_, '_>,
) -> Result<Reply, Refusal> {
    let bulk = (**running(state, tenant, id)?).clone();
    let ended = Bulk { state: BulkState::Cancelled, ended_at: Some(draft.now()), ..bulk };
    let bulk = put(state, tenant, ended, draft);
    Ok(Reply::Bulk { bulk, next: None })
}

fn running<'s>(state: &'s State, tenant: &TenantId, id: BulkId) -> Result<&'s Arc<Bulk>, Refusal> {
    match state.triage().bulk(tenant, id) {
        Some(bulk) if bulk.state == BulkState::Running => Ok(bulk),
        Some(_) => Err(Refusal::BulkEnded(id)),
        None => Err(Refusal::NotFound { what: "bulk", id: id.to_string() }),
    }
}

/// The rows that the next page of a bulk needs.
pub(crate) fn rows(state: &State, tenant: &TenantId, id: BulkId, now: Timestamp) -> Vec<RowKey> {
    let Some(bulk) = state.triage().bulk(tenant, id) else { return Vec::new() };
    let (page, _) = page(state, tenant, bulk, allowed(bulk, now));
    page.iter().flat_map(|parked| unpark::rows(state, tenant, &parked.execution)).collect()
}

impl<B: Backend> Engine<B> {
    /// What a bulk with this filter would be about now.
    pub async fn preview_bulk(
        &self,
        tenant: &TenantId,
        filter: &BulkFilter,
    ) -> Result<BulkPreview, EngineError> {
        check_filter(filter)?;
        if filter.settled {
            let fitting = self.inner.backend.look(|state| {
                let index = state.triage();
                let all = fitting(index, tenant, filter, None);
                all.cloned().collect::<Vec<_>>()
            });
            let mut settled = Vec::new();
            for parked in fitting.await? {
                if self.is_settled(tenant, &parked).await? {
                    settled.push(parked);
                }
            }
            return Ok(preview_of(filter, settled.iter()));
        }
        let preview = |state: &State| preview_of(filter, fitting(state.triage(), tenant, filter, None));
        Ok(self.inner.backend.look(preview).await?)
    }

    /// Whether none of a parked execution's errors has to be mended any more.
    async fn is_settled(&self, tenant: &TenantId, parked: &Parked) -> Result<bool, EngineError> {
        let now = self.inner.clock.now();
        for code in &parked.codes {
            let group = self.inner.backend.look(|state| state.triage().group(tenant, code).cloned()).await?;
            let Some(group) = group.map(|group| as_of(&group, now)) else { continue };
            let counts = group.counts();
            if counts.open + counts.unrecoverable == 0 {
                continue;
            }
            let key = RecordKey::triage_error(tenant, code, &parked.execution);
            let record = self.inner.backend.record(key).await?;
            if let Some(RecordValue::TriageError(error)) = record.map(|record| record.value) {
                let state = group.state_of(error.state, error.clock);
                if !matches!(state, ErrorState::Resolved | ErrorState::Ignored) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Begins to unpark all executions that fit and are parked now. The server goes on by itself.
    pub async fn start_bulk(&self, request: NewBulk) -> Result<Arc<Bulk>, EngineError> {
        let NewBulk { tenant, action, filter, rate_per_second, by, reason } = request;
        check_action(&action)?;
        check_filter(&filter)?;
        check_words(by.as_deref(), reason.as_deref())?;
        if let Some(rate) = rate_per_second.filter(|rate| !(1..=RATE_MAX).contains(rate)) {
            let problem = format!("is {rate}; it must be from 1 to {RATE_MAX}");
            return Err(EngineError::invalid("ratePerSecond", problem));
        }
        // A decision must not check for very many errors whether they are open, so they are counted here.
        let total =
            if filter.settled { Some(self.preview_bulk(&tenant, &filter).await?.total) } else { None };
        let command = StartBulk {
            tenant,
            id: BulkId::mint(self.mint_event_id()),
            action,
            filter,
            total,
            rate_per_second,
            by: by.map(Arc::from),
            reason: reason.map(Arc::from),
        };
        let reply = self.execute(Command::StartBulk(command)).await?;
        take_reply!(reply, Reply::Bulk { bulk, .. } => bulk)
    }

    pub async fn bulk(&self, tenant: &TenantId, id: BulkId) -> Result<Option<Arc<Bulk>>, EngineError> {
        Ok(self.inner.backend.look(|state| state.triage().bulk(tenant, id).cloned()).await?)
    }

    /// A tenant's bulks, newest first.
    pub async fn bulks(&self, tenant: &TenantId) -> Result<Vec<Arc<Bulk>>, EngineError> {
        Ok(self.inner.backend.look(|state| state.triage().bulks(tenant)).await?)
    }

    /// Stops a bulk. What it did stays done.
    pub async fn cancel_bulk(&self, tenant: TenantId, id: BulkId) -> Result<Arc<Bulk>, EngineError> {
        let reply = self.execute(Command::CancelBulk(CancelBulk { tenant, bulk: id })).await?;
        take_reply!(reply, Reply::Bulk { bulk, .. } => bulk)
    }
}

fn preview_of<'p>(filter: &BulkFilter, all: impl Iterator<Item = &'p Arc<Parked>>) -> BulkPreview {
    let mut preview = BulkPreview::default();
    let mut left_out: BTreeSet<_> = filter.executions.iter().flatten().collect();
    let mut codes: HashMap<&ErrorCode, u64> = HashMap::new();
    for parked in all {
        preview.total += 1;
        left_out.remove(&parked.execution);
        preview.oldest.get_or_insert(parked.since);
        if preview.first.len() < PREVIEW_MAX {
            preview.first.push(Arc::clone(parked));
        }
        for code in &parked.codes {
            *codes.entry(code).or_default() += 1;
        }
    }
    let mut codes: Vec<_> = codes.into_iter().map(|(code, count)| (code.clone(), count)).collect();
    codes.sort_by(|one, two| two.1.cmp(&one.1).then_with(|| one.0.cmp(&two.0)));
    codes.truncate(PREVIEW_MAX);
    preview.by_code = codes;
    preview.left_out = left_out.into_iter().cloned().collect();
    preview
}

fn check_filter(filter: &BulkFilter) -> Result<(), EngineError> {
    let listed = filter.executions.as_ref().map_or(0, Vec::len);
    if listed > BULK_EXECUTIONS_MAX {
        let refusal = Refusal::TooMany { field: "executionIds", count: listed, limit: BULK_EXECUTIONS_MAX };
        return Err(refusal.into());
    }
    Ok(())
}
