//! Control records: everything durable that is neither an event nor a task, job or message.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidemill_model::workflow::{self, ErrorCode};
use tidemill_model::{
    Day, EventId, JobId, LastError, Month, RequestId, TaskName, TenantBudget, TenantId, Timestamp, UsageSum,
};

use crate::kernel::commit::MessageId;
use crate::outbound::{Delivery, DeliveryId, DeliveryKey, DeliveryLetter};
use crate::scripts::execution::{ExecutionId, ExecutionKey, ScriptExecution, ScriptLetter};
use crate::triage::{Bulk, BulkId, ErrorGroup, Parked, StoredToken, TriageError, TriageExecution};

/// What a record is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordKind {
    Idempotency,
    DeadLetter,
    Definition,
    Cursor,
    Script,
    Subscription,
    Execution,
    ApiKey,
    Triage,
    Schedule,
    /// The life of the data directory, the last import and the like.
    System,
    /// What agents used, summed.
    Usage,
    /// What the agents of a tenant may use. Always in memory: claims look at it.
    Budget,
    /// All errors of a code. Always in memory.
    ErrorGroup,
    /// Executions that wait. Always in memory.
    Parked,
    /// Tokens of executions that wait or waited, by their digests.
    Token,
    /// Wishes about many parked executions. Always in memory.
    Bulk,
    /// A delivery that has not arrived.
    Delivery,
}

impl RecordKind {
    pub const ALL: [Self; 18] = [
        Self::Idempotency,
        Self::DeadLetter,
        Self::Definition,
        Self::Cursor,
        Self::Script,
        Self::Subscription,
        Self::Execution,
        Self::ApiKey,
        Self::Triage,
        Self::Schedule,
        Self::System,
        Self::Usage,
        Self::Budget,
        Self::ErrorGroup,
        Self::Parked,
        Self::Token,
        Self::Bulk,
        Self::Delivery,
    ];

    /// Whether records of this kind stay in memory, so that any decision can look at them.
    pub fn stays_in_memory(self) -> bool {
        matches!(self, Self::Budget | Self::ErrorGroup | Self::Parked | Self::Bulk)
    }

    /// Whether a store lists records of this kind as open while they must be known from the start.
    pub fn may_be_open(self) -> bool {
        matches!(self, Self::Execution | Self::Delivery) || self.stays_in_memory()
    }
}

/// Which record. Records without a tenant belong to the installation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordKey {
    pub kind: RecordKind,
    pub tenant: Option<TenantId>,
    pub id: Arc<str>,
}

impl RecordKey {
    /// The mark of a store whose keys were left behind when it was imported: it stays closed until a key is made.
    pub fn closed() -> Self {
        Self { kind: RecordKind::System, tenant: None, id: Arc::from("closed") }
    }
}

/// A record as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Counts from 1.
    pub version: u64,
    /// When it may be forgotten.
    pub expires_at: Option<Timestamp>,
    pub value: RecordValue,
}

/// What a record holds. Decisions read the typed ones; the rest is opaque to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordValue {
    Bytes(Arc<[u8]>),
    Idempotency(Idempotency),
    DeadLetter(DeadLetter),
    Usage(UsageSum),
    Budget(TenantBudget),
    Execution(Box<ScriptExecution>),
    ScriptLetter(Box<ScriptLetter>),
    ErrorGroup(Arc<ErrorGroup>),
    TriageError(Arc<TriageError>),
    TriageExecution(Arc<TriageExecution>),
    Parked(Arc<Parked>),
    Token(Box<StoredToken>),
    Bulk(Arc<Bulk>),
    Delivery(Box<Delivery>),
    DeliveryLetter(Box<DeliveryLetter>),
}

/// Which attempts a sum is about, within a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageOf<'a> {
    /// All of them.
    Tenant,
    Definition(&'a TaskName),
    Day(Day),
    Month(Month),
    DayAndDefinition(Day, &'a TaskName),
    Job(JobId),
}

/// A request that was carried out once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// SHA-256 or any other digest of the request body.
    pub body_hash: [u8; 32],
    pub effect: Effect,
}

/// What the request made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    Job(JobId),
    Task(RequestId),
    Event(EventId),
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Job(job) => write!(f, "job {job}"),
            Self::Task(request) => write!(f, "task {request}"),
            Self::Event(event) => write!(f, "event {event}"),
        }
    }
}

/// A message that will not be delivered again unless somebody replays it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    pub message: MessageId,
    pub request: RequestId,
    pub run: u32,
    pub reason: Arc<str>,
    pub since: Timestamp,
    pub state: DeadLetterState,
    /// Why its task was given up. Letters of former releases have none.
    pub last_error: Option<LastError>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadLetterState {
    Open,
    Replayed,
    Discarded,
}

/// Stands between a route and a key. Neither can hold it, so keys of different routes never meet.
const ROUTE_END: char = '\u{1f}';

/// What the ids of sums begin with.
pub(crate) const DEFINITION_USAGE: &str = "definition/";
pub(crate) const DAY_USAGE: &str = "day/";
pub(crate) const DAY_AND_DEFINITION_USAGE: &str = "day-definition/";
pub(crate) const JOB_USAGE: &str = "job/";

/// What the ids of scripts' dead letters begin with. Those of messages are digits and sort before.
pub(crate) const SCRIPT_LETTER: &str = "script/";

/// What the ids of deliveries' dead letters begin with. They stand between the two others.
pub(crate) const DELIVERY_LETTER: &str = "event/";

/// What the ids of triage records begin with.
pub(crate) const TRIAGE_ERROR: &str = "error/";
pub(crate) const TRIAGE_EXECUTION: &str = "execution/";

/// The place in the log up to which events were matched with subscriptions.
const SCRIPTS_CURSOR: &str = "scripts";

/// What the ids of alerts begin with.
pub(crate) const ALERT: &str = "alert/";

/// The id of what is kept of the last check of health.
pub(crate) const HEALTH: &str = "health-check";

impl RecordKey {
    pub fn idempotency(tenant: &TenantId, route: &str, key: &str) -> Self {
        Self {
            kind: RecordKind::Idempotency,
            tenant: Some(tenant.clone()),
            id: Arc::from(format!("{route}{ROUTE_END}{key}")),
        }
    }

    pub fn dead_letter(tenant: &TenantId, message: MessageId) -> Self {
        Self {
            kind: RecordKind::DeadLetter,
            tenant: Some(tenant.clone()),
            id: Arc::from(format!("{:032x}", message.0)),
        }
    }

    pub fn usage(tenant: &TenantId, of: UsageOf<'_>) -> Self {
        let id = match of {
            UsageOf::Tenant => "tenant".to_owned(),
            UsageOf::Definition(name) => format!("{DEFINITION_USAGE}{name}"),
            UsageOf::Day(day) => format!("{DAY_USAGE}{day}"),
            UsageOf::Month(month) => format!("month/{month}"),
            UsageOf::DayAndDefinition(day, name) => format!("{DAY_AND_DEFINITION_USAGE}{day}/{name}"),
            // The newest job comes first.
            UsageOf::Job(job) => format!("{JOB_USAGE}{:032x}", !job.as_u128()),
        };
        Self { kind: RecordKind::Usage, tenant: Some(tenant.clone()), id: Arc::from(id) }
    }

    pub fn budget(tenant: &TenantId) -> Self {
        Self { kind: RecordKind::Budget, tenant: Some(tenant.clone()), id: Arc::from("tenant") }
    }

    /// The newest comes first.
    pub fn execution(tenant: &TenantId, id: ExecutionId) -> Self {
        let id = format!("{:032x}", !id.as_u128());
        Self { kind: RecordKind::Execution, tenant: Some(tenant.clone()), id: Arc::from(id) }
    }

    /// The execution that this is the record of.
    pub fn as_execution(&self) -> Option<ExecutionKey> {
        let is_execution = self.kind == RecordKind::Execution && self.id.len() == 32;
        let bits = u128::from_str_radix(self.id.get(..).filter(|_| is_execution)?, 16).ok()?;
        Some(ExecutionKey { tenant: self.tenant.clone()?, id: ExecutionId::from_u128(!bits) })
    }

    pub fn script_letter(tenant: &TenantId, id: ExecutionId) -> Self {
        let id = format!("{SCRIPT_LETTER}{:032x}", id.as_u128());
        Self { kind: RecordKind::DeadLetter, tenant: Some(tenant.clone()), id: Arc::from(id) }
    }

    pub fn delivery(tenant: &TenantId, id: DeliveryId) -> Self {
        Self::of_tenant(RecordKind::Delivery, tenant, Arc::from(format!("{:032x}", id.as_u128())))
    }

    /// The delivery that this is the record of.
    pub fn as_delivery(&self) -> Option<DeliveryKey> {
        let is_delivery = self.kind == RecordKind::Delivery && self.id.len() == 32;
        let bits = u128::from_str_radix(self.id.get(..).filter(|_| is_delivery)?, 16).ok()?;
        Some(DeliveryKey { tenant: self.tenant.clone()?, id: DeliveryId(EventId::from_u128(bits)) })
    }

    pub fn delivery_letter(tenant: &TenantId, id: DeliveryId) -> Self {
        let id = format!("{DELIVERY_LETTER}{:032x}", id.as_u128());
        Self::of_tenant(RecordKind::DeadLetter, tenant, Arc::from(id))
    }

    pub fn scripts_cursor() -> Self {
        Self::scripts_cursor_of(None)
    }

    /// The cursor of a tenant whose events are matched on their own, or that of all others.
    pub fn scripts_cursor_of(lane: Option<&TenantId>) -> Self {
        Self { kind: RecordKind::Cursor, tenant: lane.cloned(), id: Arc::from(SCRIPTS_CURSOR) }
    }

    /// An alert that stands.
    pub fn alert(tenant: &TenantId, name: &str) -> Self {
        let id = Arc::from(format!("{ALERT}{name}"));
        Self { kind: RecordKind::System, tenant: Some(tenant.clone()), id }
    }

    /// What is kept of the last check of health.
    pub fn health(tenant: &TenantId) -> Self {
        Self::of_tenant(RecordKind::System, tenant, Arc::from(HEALTH))
    }

    pub fn error_group(tenant: &TenantId, code: &ErrorCode) -> Self {
        Self::of_tenant(RecordKind::ErrorGroup, tenant, Arc::from(code.as_str()))
    }

    pub fn triage_error(tenant: &TenantId, code: &ErrorCode, execution: &workflow::WorkflowRunId) -> Self {
        let id = format!("{TRIAGE_ERROR}{code}{ROUTE_END}{execution}");
        Self::of_tenant(RecordKind::Triage, tenant, Arc::from(id))
    }

    pub fn triage_execution(tenant: &TenantId, execution: &workflow::WorkflowRunId) -> Self {
        Self::of_tenant(RecordKind::Triage, tenant, Arc::from(format!("{TRIAGE_EXECUTION}{execution}")))
    }

    pub fn parked(tenant: &TenantId, execution: &workflow::WorkflowRunId) -> Self {
        Self::of_tenant(RecordKind::Parked, tenant, Arc::from(execution.as_str()))
    }

    /// `digest` is that of the token.
    pub fn token(tenant: &TenantId, digest: &Arc<str>) -> Self {
        Self::of_tenant(RecordKind::Token, tenant, Arc::clone(digest))
    }

    pub fn bulk(tenant: &TenantId, id: BulkId) -> Self {
        Self::of_tenant(RecordKind::Bulk, tenant, Arc::from(id.to_string()))
    }

    fn of_tenant(kind: RecordKind, tenant: &TenantId, id: Arc<str>) -> Self {
        Self { kind, tenant: Some(tenant.clone()), id }
    }
}
