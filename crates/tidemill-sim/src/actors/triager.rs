//! The actor behind workflows: executions that fail and wait, marks on their errors, and the ends of their waits.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidemill_engine::command::{
    CancelBulk, Command, LookAfterParked, Prepared, Publish, PublishedEvent, StartBulk, StepBulk, Unpark,
};
use tidemill_engine::commit::TaskKey;
use tidemill_engine::triage::{
    BulkAction, BulkFilter, BulkId, Cell, ErrorMark, MarkItem, NewToken, ParkedKey, StatusItem, Until,
    WORKFLOW_ENTITY, WorkflowItem,
};
use tidemill_model::workflow::{ErrorCode, WorkflowRunId, WorkflowStatus};
use tidemill_model::{
    AppName, Context, Entity, EntityId, EntityType, EventId, EventType, Json, TenantId, Timestamp,
};

use crate::rng::Rng;

/// How many of what was said is said again now and then.
const REMEMBERED_MAX: usize = 40;
const CODES: u64 = 6;
const EXECUTIONS: u64 = 12;
/// What the names of executions begin with that run elsewhere.
const ELSEWHERE: &str = "run-";

/// Whether an execution is none of this world's tasks.
pub(crate) fn is_elsewhere(id: &str) -> bool {
    id.starts_with(ELSEWHERE)
}

/// What an event of a workflow says, as its properties tell it to the oracle.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Said {
    number: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) execution: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mark: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) until: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) occurrences: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<WorkflowStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) step: Option<String>,
    pub(crate) whole_second: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) errors: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Triager {
    rng: Rng,
    tenants: Vec<TenantId>,
    number: u64,
    /// Commands that may come again.
    said: Vec<(TenantId, PublishedEvent)>,
    bulks: Vec<(TenantId, BulkId)>,
}

impl Triager {
    pub(crate) fn new(rng: Rng, tenants: Vec<TenantId>) -> Self {
        Self { rng, tenants, number: 0, said: Vec::new(), bulks: Vec::new() }
    }

    fn tenant(&mut self) -> TenantId {
        self.rng.pick(&self.tenants).expect("there are tenants").clone()
    }

    fn code(&mut self) -> String {
        format!("2{}code", self.rng.below(CODES))
    }

    fn execution(&mut self) -> String {
        format!("{ELSEWHERE}{}", self.rng.below(EXECUTIONS))
    }

    /// Ends the wait of a task, one way or another.
    pub(crate) fn unpark_task(&mut self, parked: &[TaskKey]) -> Option<Command> {
        let TaskKey { tenant, request } = self.rng.pick(parked)?.clone();
        let output = Json::trusted(r#"{"resolved":true}"#);
        let how = match self.rng.below(10) {
            0..=3 => BulkAction::Resume { output, rerun: false },
            4..=7 => BulkAction::Resume { output, rerun: true },
            _ => BulkAction::Fail { error: Arc::from("E"), cause: Arc::from("none") },
        };
        let execution = WorkflowRunId::from(&request);
        if self.rng.chance(100) {
            return Some(Command::LookAfterParked(LookAfterParked {
                keys: vec![ParkedKey { tenant, execution }],
            }));
        }
        Some(Command::Unpark(Unpark { tenant, execution, how, by: None, reason: None }))
    }

    fn next(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Events of one tenant, now and then one that came before.
    pub(crate) fn publish_events(&mut self, now: Timestamp) -> Command {
        let tenant = self.tenant();
        let count = 1 + self.rng.index(4);
        let mut events = Vec::with_capacity(count);
        for _ in 0..count {
            let known = self.rng.chance(150).then(|| self.rng.pick(&self.said).cloned()).flatten();
            if let Some((_, event)) = known.filter(|(known, _)| *known == tenant) {
                events.push(event);
                continue;
            }
            let event = self.status(now);
            if event.workflow.as_ref().is_some_and(|item| item.once().is_some()) {
                self.said.push((tenant.clone(), event.clone()));
                let excess = self.said.len().saturating_sub(REMEMBERED_MAX);
                self.said.drain(..excess);
            }
            events.push(event);
        }
        publish(tenant, events)
    }

    fn status(&mut self, now: Timestamp) -> PublishedEvent {
        let number = self.next();
        let status = self.rng.weighted(&[
            (5, WorkflowStatus::Failed),
            (2, WorkflowStatus::InProgress),
            (1, WorkflowStatus::Scheduled),
            (2, WorkflowStatus::Succeeded),
        ]);
        let execution = self.execution();
        let errors: Vec<String> = (0..self.rng.below(4)).map(|_| self.code()).collect();
        let step = ["Transform", "SVL"][self.rng.index(2)].to_owned();
        let has_token = status == WorkflowStatus::Failed && self.rng.chance(700);
        // A token that is known already parks nobody.
        let old = self.rng.chance(100);
        let token = has_token.then(|| format!("token-{}", if old { number / 2 } else { number }));
        let whole_second = self.rng.chance(300);
        let timestamp = match self.rng.below(4) {
            0 => Some(now.minus(self.rng.below(5_000))),
            1 => Some(now.plus(self.rng.below(2_000))),
            _ => None,
        };
        let once = self.rng.chance(600).then(|| {
            let mut once = [0; 32];
            once[..8].copy_from_slice(&number.to_be_bytes());
            once
        });
        let said = Said {
            number,
            execution: Some(execution.clone()),
            code: None,
            mark: None,
            until: None,
            occurrences: None,
            status: Some(status),
            step: Some(step.clone()),
            whole_second,
            token: token.clone(),
            errors: errors.clone(),
        };
        let item = StatusItem {
            once,
            execution: WorkflowRunId::trusted(&execution),
            cell: Cell {
                county: Arc::from(format!("county-{}", self.rng.below(3))),
                data_group_label: None,
                phase: Arc::from("Transform"),
                step: Arc::from(step),
            },
            status,
            whole_second,
            token: token
                .map(|token| NewToken { sealed: Arc::from(token.as_bytes()), digest: Arc::from(token) }),
            errors: errors.iter().map(|code| ErrorCode::trusted(code)).collect(),
        };
        event(&execution, &said, timestamp, WorkflowItem::Status(Box::new(item)))
    }

    /// Somebody says what is to become of errors.
    pub(crate) fn mark(&mut self, now: Timestamp) -> Command {
        let number = self.next();
        let tenant = self.tenant();
        let execution = self.rng.chance(500).then(|| self.execution());
        let code = (execution.is_none() || self.rng.chance(500)).then(|| self.code());
        let kinds = ["resolve", "unrecoverable", "reopen", "ignore"];
        let kind = kinds[self.rng.index(if execution.is_some() { 3 } else { 4 })];
        let is_ignored = kind == "ignore";
        let time = (is_ignored && self.rng.chance(500)).then(|| now.plus(1 + self.rng.below(60_000)));
        let occurrences = (is_ignored && self.rng.chance(500)).then(|| 1 + self.rng.below(5));
        let mark = match kind {
            "resolve" => ErrorMark::Resolve,
            "unrecoverable" => ErrorMark::Unrecoverable,
            "reopen" => ErrorMark::Reopen,
            _ => ErrorMark::Ignore(Until { time, occurrences }),
        };
        let said = Said {
            number,
            execution: execution.clone(),
            code: code.clone(),
            mark: Some(kind.to_owned()),
            until: time,
            occurrences,
            status: None,
            step: None,
            whole_second: false,
            token: None,
            errors: Vec::new(),
        };
        let item = MarkItem {
            once: None,
            execution: execution.as_deref().map(WorkflowRunId::trusted),
            code: code.as_deref().map(ErrorCode::trusted),
            mark,
            by: Some(Arc::from("ann")),
            reason: None,
        };
        let entity = execution.as_deref().unwrap_or("codes").to_owned();
        publish(tenant, vec![event(&entity, &said, None, WorkflowItem::Mark(Box::new(item)))])
    }

    /// Somebody ends a wait, or many, or looks for waits that took too long.
    pub(crate) fn unpark(&mut self, now: Timestamp) -> Option<Command> {
        let tenant = self.tenant();
        let action = if self.rng.chance(700) {
            BulkAction::Resume { output: Json::trusted(r#"{"resolved":true}"#), rerun: false }
        } else {
            BulkAction::Fail { error: Arc::from("E"), cause: Arc::from("none") }
        };
        Some(match self.rng.below(10) {
            0..=3 => {
                let execution = WorkflowRunId::trusted(&self.execution());
                Command::Unpark(Unpark { tenant, execution, how: action, by: None, reason: None })
            }
            4 => {
                let id = BulkId::mint(self.rng.event_id(now));
                self.bulks.push((tenant.clone(), id));
                let code = self.rng.chance(700).then(|| ErrorCode::trusted(&self.code()));
                Command::StartBulk(StartBulk {
                    tenant,
                    id,
                    action,
                    filter: BulkFilter { code, ..BulkFilter::default() },
                    total: None,
                    rate_per_second: self.rng.chance(300).then_some(1),
                    by: None,
                    reason: None,
                })
            }
            5..=6 => {
                let (tenant, bulk) = self.rng.pick(&self.bulks)?.clone();
                Command::StepBulk(StepBulk { tenant, bulk })
            }
            7 if self.rng.chance(200) => {
                let (tenant, bulk) = self.rng.pick(&self.bulks)?.clone();
                Command::CancelBulk(CancelBulk { tenant, bulk })
            }
            _ => {
                let key = |number: u64| ParkedKey {
                    tenant: tenant.clone(),
                    execution: WorkflowRunId::trusted(&format!("run-{number}")),
                };
                Command::LookAfterParked(LookAfterParked { keys: (0..EXECUTIONS).map(key).collect() })
            }
        })
    }
}

fn publish(tenant: TenantId, events: Vec<PublishedEvent>) -> Command {
    let context = Context { environment: Arc::from("dev"), origin: Arc::from("workflow"), worker_id: None };
    Command::Publish(Publish { tenant, app: AppName::trusted("flow"), context, events })
}

fn event(id: &str, said: &Said, timestamp: Option<Timestamp>, item: WorkflowItem) -> PublishedEvent {
    PublishedEvent {
        entity: Entity { kind: EntityType::trusted(WORKFLOW_ENTITY), id: EntityId::trusted(id) },
        event_type: EventType::trusted("WorkflowEvent"),
        timestamp,
        properties: Prepared { id: None::<EventId>, properties: Json::of(said) },
        ttl: None,
        workflow: Some(item),
    }
}

/// The names that the world uses, for checks of all of them.
pub(crate) fn codes() -> impl Iterator<Item = ErrorCode> {
    (0..CODES).map(|number| ErrorCode::trusted(&format!("2{number}code")))
}

pub(crate) fn executions() -> impl Iterator<Item = WorkflowRunId> {
    (0..EXECUTIONS).map(|number| WorkflowRunId::trusted(&format!("run-{number}")))
}
