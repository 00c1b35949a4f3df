//! The lines of an export. Field names are a promise to every file that exists.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Serialize;
use tidemill_model::values::hex;
use tidemill_model::{
    AppName, Budget, EntityId, EntityType, ErrorCategory, EventId, Fence, JobId, Json, LastError, Outcome,
    Period, RequestId, SessionId, Spending, TaskHead, TaskSpec, TaskState, TenantId, Timestamp, UsageSum,
};

use crate::export::ExportTally;
use crate::kernel::commit::{MessageId, TaskKey};
use crate::kernel::record::{self, DeadLetterState, Effect, RecordKey, RecordKind, RecordValue};
use crate::kernel::state::job::JobHead;
use crate::kernel::state::queue::Queued;
use crate::kernel::state::row::{Row, StoredTask};
use crate::kernel::state::stream;
use crate::outbound::{Delivery, DeliveryLetter};
use crate::scripts::execution::{ScriptExecution, ScriptLetter};
use crate::triage::{Bulk, ErrorGroup, Parked, TriageError, TriageExecution};

#[derive(Serialize)]
pub struct HeaderLine {
    pub kind: &'static str,
    pub format: &'static str,
    pub version: u32,
    /// Whether there were API keys, which stay behind.
    pub keys: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlobLine<'a> {
    pub kind: &'static str,
    pub tenant_id: &'a TenantId,
    pub key: &'a str,
    pub bytes: String,
    /// Whether the next line goes on with it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobLine<'a> {
    kind: &'static str,
    tenant_id: &'a TenantId,
    app_name: &'a AppName,
    job_id: JobId,
    request_id: &'a RequestId,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    completed_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cancelled: bool,
    /// How often the job or one of its tasks changed.
    changes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    allowance: Option<Allowance>,
    /// How many scripts stand between it and what came from outside.
    #[serde(skip_serializing_if = "tidemill_model::is_default")]
    hops: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    callback_url: Option<&'a str>,
    stream: StreamSummary,
}

/// A budget and what was used of it.
#[derive(Serialize)]
struct Allowance {
    budget: Budget,
    spent: Spending,
}

#[derive(Serialize)]
struct TenantBudget {
    period: Period,
    /// The day or month that `spent` is about.
    current: u32,
    #[serde(flatten)]
    allowance: Allowance,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobTasksLine {
    pub kind: &'static str,
    pub job_id: JobId,
    /// The place of the first of these tasks in its job.
    pub first: usize,
    pub tasks: Vec<Json>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskLine<'a> {
    kind: &'static str,
    tenant_id: &'a TenantId,
    request_id: &'a RequestId,
    /// With `task`, for a task without a job.
    #[serde(skip_serializing_if = "Option::is_none")]
    app_name: Option<&'a AppName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<&'a TaskSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    head: Option<Head>,
    /// The message that stands for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    stream: StreamSummary,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    state: &'static str,
    run: u32,
    attempts: u32,
    takeovers: u32,
    fence: Fence,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    begun: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<ErrorCategory>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<SessionId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    letter: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reworked: Option<Fence>,
}

/// What is known of a history beside its events, some of which may have expired.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StreamSummary {
    events: u64,
    /// Heartbeats, or events that came late; they count apart.
    #[serde(skip_serializing_if = "tidemill_model::is_default")]
    aside: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_timestamp: Option<Timestamp>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageLine<'a> {
    kind: &'static str,
    id: String,
    tenant_id: &'a TenantId,
    request_id: &'a RequestId,
    run: u32,
    not_before: Timestamp,
    visible_at: Timestamp,
    deliveries: u32,
    #[serde(skip_serializing_if = "tidemill_model::is_default")]
    receives: u64,
    #[serde(skip_serializing_if = "tidemill_model::is_default")]
    wait_millis: u64,
    #[serde(skip_serializing_if = "is_plain")]
    priority: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordLine<'a> {
    kind: &'static str,
    record: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant_id: Option<&'a TenantId>,
    id: &'a str,
    version: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency: Option<Idempotency<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_letter: Option<DeadLetter<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<UsageSum>,
    #[serde(skip_serializing_if = "Option::is_none")]
    budget: Option<TenantBudget>,
    #[serde(skip_serializing_if = "Option::is_none")]
    execution: Option<&'a ScriptExecution>,
    #[serde(skip_serializing_if = "Option::is_none")]
    script_letter: Option<&'a ScriptLetter>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_group: Option<&'a ErrorGroup>,
    #[serde(skip_serializing_if = "Option::is_none")]
    triage_error: Option<&'a TriageError>,
    #[serde(skip_serializing_if = "Option::is_none")]
    triage_execution: Option<&'a TriageExecution>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parked: Option<&'a Parked>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bulk: Option<&'a Bulk>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delivery: Option<&'a Delivery>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delivery_letter: Option<&'a DeliveryLetter>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Idempotency<'a> {
    body_hash: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    job_id: Option<JobId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'a RequestId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_id: Option<EventId>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DeadLetter<'a> {
    message: String,
    request_id: &'a RequestId,
    run: u32,
    reason: &'a str,
    since: Timestamp,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<&'a LastError>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EntityLine<'a> {
    pub kind: &'static str,
    pub tenant_id: &'a TenantId,
    pub entity_type: &'a EntityType,
    pub entity_id: &'a EntityId,
    pub stream: StreamSummary,
}

#[derive(Serialize)]
pub struct EndLine {
    pub kind: &'static str,
    #[serde(flatten)]
    pub tally: ExportTally,
}

impl<'a> JobLine<'a> {
    pub fn of(head: &'a JobHead) -> Self {
        Self {
            kind: "job",
            tenant_id: &head.tenant,
            app_name: &head.app,
            job_id: head.job,
            request_id: &head.request,
            name: head.name.as_deref(),
            created_at: head.created_at,
            completed_at: head.completed_at,
            cancelled: head.cancelled,
            changes: head.version,
            allowance: head.allowance.as_deref().map(Allowance::of),
            hops: head.hops,
            callback_url: head.callback.as_deref(),
            stream: StreamSummary::of(&head.stream),
        }
    }
}

impl Allowance {
    fn of(allowance: &tidemill_model::Allowance) -> Self {
        Self { budget: allowance.budget, spent: allowance.spent }
    }
}

impl<'a> TaskLine<'a> {
    pub fn of(key: &'a TaskKey, row: &'a StoredTask) -> Self {
        Self {
            kind: "task",
            tenant_id: &key.tenant,
            request_id: &key.request,
            app_name: row.alone.as_ref().map(|alone| &alone.app),
            task: row.alone.as_ref().map(|alone| &*alone.spec),
            head: row.entry.head.as_ref().map(Head::of),
            message: row.entry.message.map(digits),
            stream: StreamSummary::of(&row.entry.stream),
        }
    }
}

impl Head {
    fn of(head: &TaskHead) -> Self {
        Self {
            state: state_name(&head.state),
            run: head.run,
            attempts: head.attempts,
            takeovers: head.takeovers,
            fence: head.fence,
            begun: head.begun,
            last_error: head.last_error,
            session_id: head.session.clone(),
            letter: head.letter.map(|letter| digits(MessageId(letter))),
            reworked: Some(head.reworked).filter(|fence| fence.0 > 0),
        }
    }
}

fn state_name(state: &TaskState) -> &'static str {
    match state {
        // A lease is a promise between this store and a worker; elsewhere the task waits again.
        TaskState::Queued | TaskState::Leased(_) => "queued",
        TaskState::Parked => "parked",
        TaskState::Done(Outcome::Completed) => "completed",
        TaskState::Done(Outcome::Failed) => "failed",
        TaskState::Done(Outcome::TimedOut) => "timedOut",
        TaskState::Done(Outcome::Cancelled) => "cancelled",
    }
}

impl StreamSummary {
    pub fn of(stream: &stream::Stream) -> Self {
        Self {
            events: stream.version(),
            aside: stream.history.aside.count(),
            last_timestamp: stream.last_timestamp(),
        }
    }
}

impl<'a> MessageLine<'a> {
    /// `task` is the row of the task that the message is for. Leases stay behind, so a message that is hidden by one may
    /// be delivered as soon as it might have been without.
    pub fn of(queued: &'a Queued, task: Option<&Row>) -> Self {
        let message = &queued.message;
        let is_leased = match task {
            Some(Row::Task(StoredTask { entry, .. })) => {
                entry.message == Some(message.id)
                    && entry.head.as_ref().is_some_and(|head| matches!(head.state, TaskState::Leased(_)))
            }
            _ => false,
        };
        let visible_at = if is_leased { message.not_before } else { queued.visible_at };
        Self {
            kind: "message",
            id: digits(message.id),
            tenant_id: &message.task.tenant,
            request_id: &message.task.request,
            run: message.run,
            not_before: message.not_before,
            visible_at,
            deliveries: queued.deliveries,
            receives: queued.receives.into(),
            wait_millis: if visible_at == queued.visible_at { queued.wait_millis } else { 0 },
            priority: message.priority,
            key: message.key.as_deref(),
        }
    }
}

impl<'a> RecordLine<'a> {
    pub fn of(key: &'a RecordKey, record: &'a record::Record) -> Self {
        let mut line = Self {
            kind: "record",
            record: kind_name(key.kind),
            tenant_id: key.tenant.as_ref(),
            id: &key.id,
            version: record.version,
            expires_at: record.expires_at,
            idempotency: None,
            dead_letter: None,
            usage: None,
            budget: None,
            execution: None,
            script_letter: None,
            error_group: None,
            triage_error: None,
            triage_execution: None,
            parked: None,
            bulk: None,
            delivery: None,
            delivery_letter: None,
            bytes: None,
        };
        match &record.value {
            RecordValue::Bytes(bytes) => line.bytes = Some(BASE64.encode(bytes)),
            RecordValue::Idempotency(once) => {
                let (job_id, request_id, event_id) = match &once.effect {
                    Effect::Job(job) => (Some(*job), None, None),
                    Effect::Task(request) => (None, Some(request), None),
                    Effect::Event(event) => (None, None, Some(*event)),
                };
                let body_hash = hex::encode(&once.body_hash);
                line.idempotency = Some(Idempotency { body_hash, job_id, request_id, event_id });
            }
            RecordValue::DeadLetter(letter) => {
                line.dead_letter = Some(DeadLetter {
                    message: digits(letter.message),
                    request_id: &letter.request,
                    run: letter.run,
                    reason: &letter.reason,
                    since: letter.since,
                    state: letter_state_name(letter.state),
                    last_error: letter.last_error.as_ref(),
                });
            }
            RecordValue::Execution(execution) => line.execution = Some(execution),
            RecordValue::ScriptLetter(letter) => line.script_letter = Some(letter),
            RecordValue::ErrorGroup(group) => line.error_group = Some(group),
            RecordValue::TriageError(error) => line.triage_error = Some(error),
            RecordValue::TriageExecution(execution) => line.triage_execution = Some(execution),
            RecordValue::Parked(parked) => line.parked = Some(parked),
            RecordValue::Bulk(bulk) => line.bulk = Some(bulk),
            RecordValue::Delivery(delivery) => line.delivery = Some(delivery),
            RecordValue::DeliveryLetter(letter) => line.delivery_letter = Some(letter),
            // Its kind is not exported.
            RecordValue::Token(_) => {}
            RecordValue::Usage(sum) => line.usage = Some(*sum),
            RecordValue::Budget(budget) => {
                let (period, current) = (budget.period, budget.current);
                let allowance = Allowance::of(&budget.allowance);
                line.budget = Some(TenantBudget { period, current, allowance });
            }
        }
        line
    }
}

/// What a kind of records is called in an export.
pub fn kind_name(kind: RecordKind) -> &'static str {
    match kind {
        RecordKind::Idempotency => "idempotency",
        RecordKind::DeadLetter => "deadLetter",
        RecordKind::Definition => "definition",
        RecordKind::Cursor => "cursor",
        RecordKind::Script => "script",
        RecordKind::Subscription => "subscription",
        RecordKind::Execution => "execution",
        RecordKind::ApiKey => "apiKey",
        RecordKind::Triage => "triage",
        RecordKind::Schedule => "schedule",
        RecordKind::System => "system",
        RecordKind::Usage => "usage",
        RecordKind::Budget => "budget",
        RecordKind::ErrorGroup => "errorGroup",
        RecordKind::Parked => "parked",
        RecordKind::Token => "token",
        RecordKind::Bulk => "bulk",
        RecordKind::Delivery => "delivery",
    }
}

pub fn letter_state_name(state: DeadLetterState) -> &'static str {
    match state {
        DeadLetterState::Open => "open",
        DeadLetterState::Replayed => "replayed",
        DeadLetterState::Discarded => "discarded",
    }
}

fn digits(message: MessageId) -> String {
    format!("{:032x}", message.0)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_plain(value: &i32) -> bool {
    *value == 0
}
