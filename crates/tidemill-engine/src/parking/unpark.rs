//! Unpark: an execution that waited goes on, fails, or is given up. Each wait ends once.

use std::collections::HashSet;
use std::sync::Arc;

use serde::Serialize;
use tidemill_model::workflow::{self, WorkflowRunId};
use tidemill_model::{
    AppName, Entity, EntityId, EntityType, JobId, Json, KnownType, RequestId, TenantId, Timestamp,
};

use crate::engine::{Engine, EngineError, take_reply};
use crate::kernel::backend::Backend;
use crate::kernel::command::Command;
use crate::kernel::commit::TaskKey;
use crate::kernel::decision::{Decision, MayFail};
use crate::kernel::draft::{By, Draft, Subject};
use crate::kernel::record::{RecordKey, RecordValue};
use crate::kernel::reply::{Refusal, Reply};
use crate::kernel::site::Origin;
use crate::kernel::state::State;
use crate::kernel::state::row::RowKey;
use crate::outbound::outbox;
use crate::parking::{park, wait};
use crate::triage::changes::{check_action, check_words};
use crate::triage::notes::Held;
use crate::triage::{BulkAction, Parked, ParkedKey, TokenState, Unparked, WORKFLOW_ENTITY, ingest, marks};

#[derive(Debug, Clone)]
pub struct UnparkRequest {
    pub tenant: TenantId,
    pub execution: WorkflowRunId,
    pub how: BulkAction,
    pub by: Option<String>,
    pub reason: Option<String>,
}

/// Ends the wait of a parked execution.
#[derive(Debug, Clone)]
pub struct Unpark {
    pub tenant: TenantId,
    pub execution: workflow::WorkflowRunId,
    pub how: BulkAction,
    pub by: Option<Arc<str>>,
    pub reason: Option<Arc<str>>,
}

impl Decision for Unpark {
    fn touches(&self, state: &State, _now: Timestamp) -> Vec<RowKey> {
        rows(state, &self.tenant, &self.execution)
    }

    fn may_fail_jobs(&self) -> MayFail<'_> {
        MayFail::Of(&self.tenant)
    }

    fn log_bytes(&self) -> u64 {
        self.how.log_bytes() + 50_000
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        decide(state, self, draft)
    }
}

/// Gives up parked executions whose time is over, and raises an alarm for those whose time is nearly over.
#[derive(Debug, Clone)]
pub struct LookAfterParked {
    pub keys: Vec<ParkedKey>,
}

impl Decision for LookAfterParked {
    fn touches(&self, state: &State, _now: Timestamp) -> Vec<RowKey> {
        look_after_rows(state, &self.keys)
    }

    fn may_fail_jobs(&self) -> MayFail<'_> {
        MayFail::OfAnyTenant
    }

    fn log_bytes(&self) -> u64 {
        self.keys.len() as u64 * 8_000
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        look_after(state, &self.keys, draft)
    }
}

/// The application that these events come from.
const APP: &str = "tidemill";
/// The entity of events about parked executions as a whole.
const ENTITY: &str = "workflow";
/// A larger output is not repeated in the event that tells of it.
const TOLD_OUTPUT_BYTES_MAX: usize = 16 * 1024;
/// The error in the event about a wait that was given up.
const GIVEN_UP: &str = "ParkTimeout";

pub(crate) fn decide(state: &State, command: &Unpark, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
    let who = Who { by: command.by.as_ref(), reason: command.reason.as_ref(), after: None };
    unpark(state, &command.tenant, &command.execution, How::Act(&command.how), &who, draft)?;
    Ok(Reply::Unparked)
}

/// How a wait ends.
#[derive(Debug, Clone, Copy)]
pub(crate) enum How<'a> {
    Act(&'a BulkAction),
    Expire,
}

/// The author of the end of a wait, why, and after which event of the same commit.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Who<'a> {
    pub(crate) by: Option<&'a Arc<str>>,
    pub(crate) reason: Option<&'a Arc<str>>,
    pub(crate) after: Option<Timestamp>,
}

pub(crate) fn unpark(
    state: &State,
    tenant: &TenantId,
    id: &WorkflowRunId,
    how: How<'_>,
    who: &Who<'_>,
    draft: &mut Draft<'_, '_>,
) -> Result<(), Refusal> {
    let held = draft.notes().find(state, RecordKey::triage_execution(tenant, id));
    let Some(known) = draft.notes().execution(held) else {
        return Err(Refusal::NotFound { what: "execution", id: id.to_string() });
    };
    if !known.parked {
        return Err(match known.token {
            TokenState::Expired => Refusal::TokenExpired(id.clone()),
            _ => Refusal::NotParked(id.clone()),
        });
    }
    let task = known.task.clone().map(|request| TaskKey { tenant: tenant.clone(), request });
    let (by, reason, at) = (who.by.cloned(), who.reason.cloned(), draft.now());
    let (outcome, token) = match how {
        How::Act(BulkAction::Resume { output, .. }) => {
            (Unparked::Resumed { output: output.clone(), at, by, reason }, TokenState::Used)
        }
        How::Act(BulkAction::Fail { error, cause }) => {
            let (error, cause) = (Arc::clone(error), Arc::clone(cause));
            (Unparked::Failed { error, cause, at, by, reason }, TokenState::Used)
        }
        How::Expire => (Unparked::Expired { at }, TokenState::Expired),
    };
    if let Some(task) = &task {
        park::go_on(state, draft, task, how)?;
    }
    append_event(state, tenant, id, how, who, draft);
    wait::end_wait(state, tenant, held, outcome, token, draft);
    Ok(())
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Told<'a> {
    execution_id: &'a WorkflowRunId,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<&'a Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'a Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a Arc<str>>,
}

fn append_event(
    state: &State,
    tenant: &TenantId,
    id: &WorkflowRunId,
    how: How<'_>,
    who: &Who<'_>,
    draft: &mut Draft<'_, '_>,
) {
    let mut told =
        Told { execution_id: id, output: None, error: None, cause: None, by: who.by, reason: who.reason };
    let known = match how {
        How::Act(BulkAction::Resume { output, .. }) => {
            told.output = Some(output).filter(|output| output.len() <= TOLD_OUTPUT_BYTES_MAX);
            KnownType::ExecutionResumed
        }
        How::Act(BulkAction::Fail { error, cause }) => {
            (told.error, told.cause) = (Some(&**error), Some(&**cause));
            KnownType::ExecutionFailed
        }
        How::Expire => {
            told.error = Some(GIVEN_UP);
            KnownType::ExecutionExpired
        }
    };
    let entity = entity_of(id);
    let last = state.stream(tenant, &entity).and_then(|stream| stream.last_timestamp()).max(who.after);
    let mut subject = Subject { tenant: tenant.clone(), app: AppName::trusted(APP), entity, last };
    draft.event(&mut subject, known, By::component(Origin::ProducerApi), Json::of(&told));
}

/// The entity of an execution that runs elsewhere.
pub(crate) fn entity_of(id: &WorkflowRunId) -> Entity {
    Entity { kind: EntityType::trusted(WORKFLOW_ENTITY), id: EntityId::trusted(id.as_str()) }
}

/// Lets an execution go on if none of its errors has to be mended any more.
pub(crate) fn resume_if_settled(
    state: &State,
    tenant: &TenantId,
    held: Held,
    after: Timestamp,
    draft: &mut Draft<'_, '_>,
) -> Result<(), Refusal> {
    let Some(known) = draft.notes().execution(held).filter(|known| known.parked) else { return Ok(()) };
    let id = known.id.clone();
    if !marks::is_settled(state, tenant, held, draft) {
        return Ok(());
    }
    let by: Arc<str> = Arc::from("auto-resume");
    let who = Who { by: Some(&by), reason: None, after: Some(after) };
    unpark(state, tenant, &id, How::Act(&settled_action()), &who, draft)
}

/// What executions get that go on because their errors were mended.
pub(crate) fn settled_action() -> BulkAction {
    BulkAction::Resume { output: Json::trusted(r#"{"resolved":true}"#), rerun: false }
}

/// The rows that ending a wait needs.
pub(crate) fn rows(state: &State, tenant: &TenantId, id: &WorkflowRunId) -> Vec<RowKey> {
    let mut rows = ingest::execution_rows(state, tenant, id);
    rows.push(RowKey::Entity(tenant.clone(), entity_of(id)));
    if let Some(request) = state.triage().parked(tenant, id).and_then(|parked| parked.task.clone()) {
        rows.push(crate::work::rows::task_row(&TaskKey { tenant: tenant.clone(), request }));
    }
    rows
}

/// The rows that looking after parked executions needs.
pub(crate) fn look_after_rows(state: &State, keys: &[ParkedKey]) -> Vec<RowKey> {
    let mut all: Vec<_> = keys.iter().flat_map(|key| rows(state, &key.tenant, &key.execution)).collect();
    all.extend(keys.iter().map(|key| RowKey::Entity(key.tenant.clone(), Entity::system(ENTITY))));
    all
}

/// Which jobs a commit has touched. Two tasks of one job are never unparked together: the second would not see what
/// the first made of their children.
#[derive(Debug, Default)]
pub(crate) struct Jobs(HashSet<JobId>);

impl Jobs {
    /// Whether the execution may be handled in this commit.
    pub(crate) fn admits(&mut self, parked: &Parked) -> bool {
        let job = parked.task.as_ref().and_then(RequestId::job_part);
        job.is_none_or(|job| self.0.insert(job))
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Expiring<'a> {
    kind: &'static str,
    execution_id: &'a WorkflowRunId,
    since: Timestamp,
    deadline: Timestamp,
    codes: &'a [tidemill_model::workflow::ErrorCode],
    message: String,
}

pub(crate) fn look_after(
    state: &State,
    keys: &[ParkedKey],
    draft: &mut Draft<'_, '_>,
) -> Result<Reply, Refusal> {
    let now = draft.now();
    let mut jobs = Jobs::default();
    let mut alerts: Vec<Subject> = Vec::new();
    let (mut expired, mut told) = (0, 0);
    for ParkedKey { tenant, execution } in keys {
        let Some(parked) = state.triage().parked(tenant, execution).cloned() else { continue };
        if parked.deadline <= now {
            if jobs.admits(&parked) {
                unpark(state, tenant, execution, How::Expire, &Who::default(), draft)?;
                expired += 1;
            }
            continue;
        }
        if parked.is_told || parked.alarm_at > now {
            continue;
        }
        let place = draft.notes().find(state, RecordKey::parked(tenant, execution));
        let marked = Parked { is_told: true, ..(*parked).clone() };
        draft.notes().put(place, Some(RecordValue::Parked(Arc::new(marked))), None);
        let expiring = Expiring {
            kind: "parked_expiring",
            execution_id: execution,
            since: parked.since,
            deadline: parked.deadline,
            codes: &parked.codes,
            message: format!("{execution} is parked and will be given up soon"),
        };
        let place = alerts.iter().position(|subject| subject.tenant == *tenant).unwrap_or_else(|| {
            let entity = Entity::system(ENTITY);
            let last = state.stream(tenant, &entity).and_then(|stream| stream.last_timestamp());
            let app = AppName::trusted(APP);
            alerts.push(Subject { tenant: tenant.clone(), app, entity, last });
            alerts.len() - 1
        });
        let subject = &mut alerts[place];
        let by = By::component(Origin::Dispatcher);
        draft.event(subject, KnownType::AlertRaised, by, Json::of(&expiring));
        outbox::standing(tenant, expiring.kind, &expiring.message, true, draft);
        told += 1;
    }
    Ok(Reply::LookedAfter { expired, told })
}

impl<B: Backend> Engine<B> {
    /// Ends the wait of a parked execution.
    pub async fn unpark(&self, request: UnparkRequest) -> Result<(), EngineError> {
        let UnparkRequest { tenant, execution, how, by, reason } = request;
        check_action(&how)?;
        check_words(by.as_deref(), reason.as_deref())?;
        let (by, reason) = (by.map(Arc::from), reason.map(Arc::from));
        let command = Unpark { tenant, execution, how, by, reason };
        let reply = self.execute(Command::Unpark(command)).await?;
        take_reply!(reply, Reply::Unparked => ())
    }
}
