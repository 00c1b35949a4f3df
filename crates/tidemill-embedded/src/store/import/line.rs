//! What a line of an export says.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::value::RawValue;
use tidemill_engine::commit::{Message, MessageId, NewTask, TaskKey};
use tidemill_engine::execution::{ScriptExecution, ScriptLetter};
use tidemill_engine::outbound::{Delivery, DeliveryLetter};
use tidemill_engine::record::{
    DeadLetter, DeadLetterState, Effect, Idempotency, Record, RecordKey, RecordKind, RecordValue,
};
use tidemill_engine::state::job::JobHead;
use tidemill_engine::state::queue::Queued;
use tidemill_engine::state::stream::Stream;
use tidemill_engine::triage::{Bulk, ErrorGroup, Parked, TriageError, TriageExecution};
use tidemill_model::values::hex;
use tidemill_model::{
    Allowance, CallbackUrl, Entity, Event, Fence, JobCounts, JobId, Outcome, TaskHead, TaskSpec, TaskState,
    TenantBudget, TenantId, Timestamp, UsageSum,
};

use super::fields::{BadField, Fields};
use tidemill_engine::export::line::{kind_name, letter_state_name};
use tidemill_engine::export::{ExportTally, is_exported};

pub(super) enum Line {
    Header {
        format: String,
        version: u32,
        /// Whether the exported store had keys. Former releases did not say.
        keys: Option<bool>,
    },
    Blob {
        tenant: TenantId,
        key: String,
        bytes: Vec<u8>,
        more: bool,
    },
    Event {
        ordinal: Option<u64>,
        late: bool,
        event: Box<Event>,
    },
    /// The head without counts and history.
    Job {
        head: Box<JobHead>,
        told: Option<StreamSummary>,
    },
    JobTasks {
        job: JobId,
        first: usize,
        tasks: Vec<Arc<TaskSpec>>,
    },
    Task(Box<TaskLine>),
    Message(Box<Queued>),
    Record(RecordKey, Record),
    Entity {
        tenant: TenantId,
        entity: Entity,
        told: StreamSummary,
    },
    End(ExportTally),
}

pub(super) struct TaskLine {
    pub(super) key: TaskKey,
    pub(super) alone: Option<Arc<NewTask>>,
    pub(super) head: Option<TaskHead>,
    pub(super) message: Option<MessageId>,
    pub(super) told: Option<StreamSummary>,
}

/// What is said of a history beside its events.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamSummary {
    pub(super) events: u64,
    pub(super) aside: u64,
    pub(super) last_timestamp: Option<Timestamp>,
}

impl Line {
    pub(super) fn read(text: &str) -> Result<Self, BadField> {
        let mut fields = Fields::of_line(text)?;
        let kind: String = fields.required("kind")?;
        let line = match kind.as_str() {
            // A newer one may hold more; its version is what matters then.
            "header" => return Self::header(&mut fields),
            "blob" => Self::blob(&mut fields)?,
            "event" => Self::event(&mut fields)?,
            "job" => Self::job(&mut fields)?,
            "jobTasks" => Self::job_tasks(&mut fields)?,
            "task" => Self::task(&mut fields)?,
            "message" => Self::message(&mut fields)?,
            "record" => Self::record(&mut fields)?,
            "entity" => Self::entity(&mut fields)?,
            "end" => Self::end(&mut fields)?,
            other => return Err(BadField::new("kind", format!("is {other:?}, which is no kind of line"))),
        };
        fields.finish().map(|()| line)
    }

    /// How many values it brings that not all readers of JSON can read.
    pub(super) fn unreadable(&self) -> u64 {
        let count = |is_unreadable: bool| u64::from(is_unreadable);
        match self {
            Self::Event { event, .. } => count(event.properties.problem().is_some()),
            Self::JobTasks { tasks, .. } => {
                tasks.iter().map(|task| count(task.input.problem().is_some())).sum()
            }
            Self::Task(task) => {
                count(task.alone.as_ref().is_some_and(|alone| alone.spec.input.problem().is_some()))
            }
            _ => 0,
        }
    }

    fn header(fields: &mut Fields<'_>) -> Result<Self, BadField> {
        Ok(Self::Header {
            format: fields.required("format")?,
            version: fields.required("version")?,
            keys: fields.optional("keys")?,
        })
    }

    fn blob(fields: &mut Fields<'_>) -> Result<Self, BadField> {
        Ok(Self::Blob {
            tenant: fields.required("tenantId")?,
            key: fields.required("key")?,
            bytes: fields.text("bytes", |text| BASE64.decode(text).ok())?,
            more: fields.optional("more")?.unwrap_or(false),
        })
    }

    fn event(fields: &mut Fields<'_>) -> Result<Self, BadField> {
        let ordinal = fields.optional_number("ordinal")?;
        let late = fields.optional("late")?.unwrap_or(false);
        let event = Event::from_json(fields.required_raw("event")?.get()).map_err(|bad| {
            let text = bad.to_string();
            // The message of a bad field begins with its name.
            match bad.field().and_then(|field| Some((field, text.strip_prefix(field)?))) {
                Some((field, problem)) => BadField::new(format!("event.{field}"), problem.trim_start()),
                None => BadField::wrong("event", &text),
            }
        })?;
        Ok(Self::Event { ordinal, late, event: Box::new(event) })
    }

    fn job(fields: &mut Fields<'_>) -> Result<Self, BadField> {
        let head = JobHead {
            tenant: fields.required("tenantId")?,
            app: fields.required("appName")?,
            job: fields.required("jobId")?,
            request: fields.required("requestId")?,
            name: fields.optional::<String>("name")?.map(Arc::from),
            created_at: fields.required("createdAt")?,
            completed_at: fields.optional("completedAt")?,
            cancelled: fields.optional("cancelled")?.unwrap_or(false),
            counts: JobCounts::default(),
            stream: Stream::default(),
            version: fields.number("changes")?,
            allowance: fields.object("allowance")?.map(allowance).transpose()?.map(Box::new),
            hops: fields.optional_count("hops")?.unwrap_or(0),
            callback: fields.optional::<String>("callbackUrl")?.map(|url| callback(&url)).transpose()?,
        };
        Ok(Self::Job { head: Box::new(head), told: stream_summary(fields)? })
    }

    fn job_tasks(fields: &mut Fields<'_>) -> Result<Self, BadField> {
        let (job, first) = (fields.required("jobId")?, fields.required("first")?);
        let raw: Vec<&RawValue> = serde_json::from_str(fields.required_raw("tasks")?.get())
            .map_err(|error| BadField::wrong("tasks", &error))?;
        let mut tasks = Vec::with_capacity(raw.len());
        for (at, task) in raw.into_iter().enumerate() {
            let spec = serde_json::from_str::<TaskSpec>(task.get());
            tasks.push(Arc::new(spec.map_err(|error| BadField::wrong(format!("tasks[{at}]"), &error))?));
        }
        Ok(Self::JobTasks { job, first, tasks })
    }

    fn task(fields: &mut Fields<'_>) -> Result<Self, BadField> {
        let key = TaskKey { tenant: fields.required("tenantId")?, request: fields.required("requestId")? };
        let alone = if key.request.job_part().is_some() {
            None
        } else {
            let (app, spec) = (fields.required("appName")?, Arc::new(fields.required("task")?));
            Some(Arc::new(NewTask { tenant: key.tenant.clone(), app, request: key.request.clone(), spec }))
        };
        let head = fields.object("head")?.map(head).transpose()?;
        if alone.is_some() && head.is_none() {
            return Err(BadField::new("head", "is missing"));
        }
        let message = match fields.optional::<String>("message")? {
            None => None,
            Some(text) => Some(message_id(&text).ok_or_else(|| BadField::new("message", "is not an id"))?),
        };
        Ok(Self::Task(Box::new(TaskLine { key, alone, head, message, told: stream_summary(fields)? })))
    }

    fn message(fields: &mut Fields<'_>) -> Result<Self, BadField> {
        let message = Message {
            id: fields.text("id", message_id)?,
            task: TaskKey { tenant: fields.required("tenantId")?, request: fields.required("requestId")? },
            run: fields.count("run")?,
            not_before: fields.required("notBefore")?,
            priority: fields.optional("priority")?.unwrap_or(0),
            key: fields.optional::<String>("key")?.map(Arc::from),
            wait_millis: 0,
        };
        let visible_at = fields.optional("visibleAt")?.unwrap_or(message.not_before);
        let deliveries = fields.optional_count("deliveries")?.unwrap_or(0);
        let receives = fields.optional_count("receives")?.unwrap_or(0);
        let wait_millis = fields.optional("waitMillis")?.unwrap_or(0);
        Ok(Self::Message(Box::new(Queued { message, visible_at, deliveries, receives, wait_millis })))
    }

    fn record(fields: &mut Fields<'_>) -> Result<Self, BadField> {
        let kind = fields.text("record", |text| {
            RecordKind::ALL.into_iter().find(|kind| is_exported(*kind) && kind_name(*kind) == text)
        })?;
        let (tenant, id) = (fields.optional("tenantId")?, fields.required::<String>("id")?.into());
        let (version, expires_at) = (fields.number("version")?, fields.optional("expiresAt")?);
        let value = if let Some(once) = fields.object("idempotency")? {
            RecordValue::Idempotency(idempotency(once)?)
        } else if let Some(letter) = fields.object("deadLetter")? {
            RecordValue::DeadLetter(dead_letter(letter)?)
        } else if let Some(sum) = fields.optional::<UsageSum>("usage")? {
            RecordValue::Usage(sum)
        } else if let Some(execution) = fields.optional::<ScriptExecution>("execution")? {
            RecordValue::Execution(Box::new(execution))
        } else if let Some(letter) = fields.optional::<ScriptLetter>("scriptLetter")? {
            RecordValue::ScriptLetter(Box::new(letter))
        } else if let Some(group) = fields.optional::<ErrorGroup>("errorGroup")? {
            RecordValue::ErrorGroup(Arc::new(group))
        } else if let Some(error) = fields.optional::<TriageError>("triageError")? {
            RecordValue::TriageError(Arc::new(error))
        } else if let Some(execution) = fields.optional::<TriageExecution>("triageExecution")? {
            RecordValue::TriageExecution(Arc::new(execution))
        } else if let Some(parked) = fields.optional::<Parked>("parked")? {
            RecordValue::Parked(Arc::new(parked))
        } else if let Some(bulk) = fields.optional::<Bulk>("bulk")? {
            RecordValue::Bulk(Arc::new(bulk))
        } else if let Some(delivery) = fields.optional::<Delivery>("delivery")? {
            RecordValue::Delivery(Box::new(delivery))
        } else if let Some(letter) = fields.optional::<DeliveryLetter>("deliveryLetter")? {
            RecordValue::DeliveryLetter(Box::new(letter))
        } else if let Some(budget) = fields.object("budget")? {
            RecordValue::Budget(tenant_budget(budget)?)
        } else {
            RecordValue::Bytes(fields.text("bytes", |text| BASE64.decode(text).ok())?.into())
        };
        Ok(Self::Record(RecordKey { kind, tenant, id }, Record { version, expires_at, value }))
    }

    fn entity(fields: &mut Fields<'_>) -> Result<Self, BadField> {
        let tenant = fields.required("tenantId")?;
        let entity = Entity { kind: fields.required("entityType")?, id: fields.required("entityId")? };
        let told = stream_summary(fields)?.ok_or_else(|| BadField::new("stream", "is missing"))?;
        Ok(Self::Entity { tenant, entity, told })
    }

    fn end(fields: &mut Fields<'_>) -> Result<Self, BadField> {
        Ok(Self::End(ExportTally {
            events: fields.required("events")?,
            blobs: fields.required("blobs")?,
            jobs: fields.required("jobs")?,
            tasks: fields.required("tasks")?,
            messages: fields.required("messages")?,
            records: fields.required("records")?,
            entities: fields.required("entities")?,
        }))
    }
}

fn head(mut fields: Fields<'_>) -> Result<TaskHead, BadField> {
    let head = TaskHead {
        state: fields.text("state", |text| {
            Some(match text {
                "queued" => TaskState::Queued,
                "parked" => TaskState::Parked,
                "completed" => TaskState::Done(Outcome::Completed),
                "failed" => TaskState::Done(Outcome::Failed),
                "timedOut" => TaskState::Done(Outcome::TimedOut),
                "cancelled" => TaskState::Done(Outcome::Cancelled),
                _ => return None,
            })
        })?,
        run: fields.count("run")?,
        attempts: fields.count("attempts")?,
        takeovers: fields.count("takeovers")?,
        fence: Fence(fields.number("fence")?),
        begun: fields.optional("begun")?.unwrap_or(false),
        last_error: fields.optional("lastError")?,
        // The worker that reported it talks to another store.
        failed_fence: None,
        crashes: 0,
        reported: None,
        session: fields.optional("sessionId")?,
        letter: match fields.optional::<String>("letter")? {
            None => None,
            Some(text) => Some(message_id(&text).ok_or_else(|| BadField::new("letter", "is not an id"))?.0),
        },
        reworked: fields.optional("reworked")?.unwrap_or_default(),
    };
    fields.finish().map(|()| head)
}

fn stream_summary(fields: &mut Fields<'_>) -> Result<Option<StreamSummary>, BadField> {
    let Some(mut fields) = fields.object("stream")? else { return Ok(None) };
    let told = StreamSummary {
        events: fields.number("events")?,
        aside: fields.optional_number("aside")?.unwrap_or(0),
        last_timestamp: fields.optional("lastTimestamp")?,
    };
    fields.finish().map(|()| Some(told))
}

fn idempotency(mut fields: Fields<'_>) -> Result<Idempotency, BadField> {
    let body_hash = fields.text("bodyHash", hex::decode)?;
    let (job, request) = (fields.optional("jobId")?, fields.optional("requestId")?);
    let effect = match (job, request, fields.optional("eventId")?) {
        (Some(job), None, None) => Effect::Job(job),
        (None, Some(request), None) => Effect::Task(request),
        (None, None, Some(event)) => Effect::Event(event),
        _ => return Err(BadField::new("idempotency", "needs one of jobId, requestId and eventId")),
    };
    fields.finish().map(|()| Idempotency { body_hash, effect })
}

fn dead_letter(mut fields: Fields<'_>) -> Result<DeadLetter, BadField> {
    let letter = DeadLetter {
        message: fields.text("message", message_id)?,
        request: fields.required("requestId")?,
        run: fields.count("run")?,
        reason: fields.required::<String>("reason")?.into(),
        since: fields.required("since")?,
        state: fields.text("state", |text| {
            [DeadLetterState::Open, DeadLetterState::Replayed, DeadLetterState::Discarded]
                .into_iter()
                .find(|state| letter_state_name(*state) == text)
        })?,
        last_error: fields.optional("lastError")?,
    };
    fields.finish().map(|()| letter)
}

fn tenant_budget(mut fields: Fields<'_>) -> Result<TenantBudget, BadField> {
    let (period, current) = (fields.required("period")?, fields.count("current")?);
    Ok(TenantBudget { period, current, allowance: allowance(fields)? })
}

fn callback(url: &str) -> Result<Arc<str>, BadField> {
    let url = CallbackUrl::new(url).map_err(|bad| BadField::new("callbackUrl", bad.to_string()))?;
    Ok(Arc::clone(url.text()))
}

fn allowance(mut fields: Fields<'_>) -> Result<Allowance, BadField> {
    let allowance = Allowance { budget: fields.required("budget")?, spent: fields.required("spent")? };
    fields.finish().map(|()| allowance)
}

fn message_id(text: &str) -> Option<MessageId> {
    let fits = text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    fits.then(|| u128::from_str_radix(text, 16).ok().map(MessageId)).flatten()
}
