//! What an event of another sender means, read before the decision: decisions read no JSON.

use std::borrow::Cow;

use serde::Deserialize;
use tidemill_model::{
    ErrorCategory, Event, Fence, JobId, KnownType, RequestId, TaskName, Timestamp, WorkerId,
};

use crate::engine::EngineError;
use crate::engine::limits::LEASE_AHEAD_MILLIS_MAX;
use crate::kernel::commit::TaskKey;

/// Moments below this are seconds.
const SECONDS_BELOW: u64 = 100_000_000_000;
/// The name of a task that nobody named.
pub(crate) const NAMELESS: &str = "message";

/// What an event says beside being a fact.
#[derive(Debug, Clone)]
pub enum Meaning {
    /// It is a fact and nothing else.
    Fact,
    OfTask(TaskSaying),
    /// The state of a job of the engine, which the engine reports itself.
    OfJob {
        job: JobId,
        known: KnownType,
    },
}

/// What an event says of a task.
#[derive(Debug, Clone)]
pub struct TaskSaying {
    pub task: TaskKey,
    /// The name of the task, if it is not known yet.
    pub name: TaskName,
    pub worker: WorkerId,
    /// What the event says of run and fence. Senders that know neither leave them out.
    pub run: Option<u32>,
    pub fence: Option<Fence>,
    pub said: Said,
}

/// The transition of a task that an event stands for.
#[derive(Debug, Clone)]
pub enum Said {
    /// Nothing changes by it.
    Fact,
    Started {
        until: Option<Timestamp>,
    },
    Heartbeat {
        until: Option<Timestamp>,
    },
    AttemptFailed {
        error: String,
        category: ErrorCategory,
    },
    Completed,
    Failed {
        error: String,
        category: ErrorCategory,
        retry_count: Option<u32>,
        is_dead_letter: bool,
    },
    TimedOut,
}

/// The properties that have a meaning. All others are the sender's own.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Properties<'p> {
    #[serde(borrow)]
    name: Option<Cow<'p, str>>,
    #[serde(borrow)]
    request_id: Option<Cow<'p, str>>,
    #[serde(borrow)]
    worker_id: Option<Cow<'p, str>>,
    run: Option<u32>,
    fence: Option<Fence>,
    effective_until: Option<u64>,
    /// Read only so that a fold of the task's events never meets a number that is none.
    #[serde(rename = "attemptNumber")]
    _attempt_number: Option<u32>,
    retry_count: Option<u32>,
    counted: Option<bool>,
    parked: Option<bool>,
    #[serde(borrow)]
    error: Option<Cow<'p, str>>,
    #[serde(borrow)]
    error_category: Option<Cow<'p, str>>,
    #[serde(borrow)]
    source: Option<Cow<'p, str>>,
}

/// Reads what an event means. `sender` is whose it is if it does not say so.
pub(crate) fn of(event: &Event, sender: &str, now: Timestamp) -> Result<Meaning, EngineError> {
    let known = KnownType::from_name(event.event_type.as_str());
    match event.entity.kind.as_str() {
        "TASK" => of_task(event, known, sender, now).map(Meaning::OfTask),
        "JOB" => match (JobId::new(event.entity.id.as_str()), known) {
            (Ok(job), Some(known)) => Ok(Meaning::OfJob { job, known }),
            (Ok(_), None) => Err(EngineError::invalid("entityId", "names a job of the engine")),
            // Jobs of other systems are theirs.
            (Err(_), _) => Ok(Meaning::Fact),
        },
        _ if known.is_some() && known != Some(KnownType::TaskHealthCheck) => {
            let problem = format!("is {}, which is said of tasks and jobs only", event.event_type);
            Err(EngineError::invalid("eventType", problem))
        }
        _ => Ok(Meaning::Fact),
    }
}

fn of_task(
    event: &Event,
    known: Option<KnownType>,
    sender: &str,
    now: Timestamp,
) -> Result<TaskSaying, EngineError> {
    let request = RequestId::new(event.entity.id.as_str())
        .map_err(|bad| EngineError::invalid("entityId", bad.problem.to_string()))?;
    let properties: Properties<'_> = event
        .properties
        .read()
        .map_err(|error| EngineError::invalid("properties", format!("cannot be read: {error}")))?;
    if properties.request_id.as_ref().is_some_and(|given| *given != request.as_str()) {
        return Err(EngineError::invalid(
            "properties.requestId",
            format!("is not {request}, as the entity is"),
        ));
    }
    for (field, is_given) in [
        ("properties.parked", properties.parked.is_some()),
        ("properties.counted", properties.counted.is_some()),
    ] {
        if is_given {
            return Err(EngineError::invalid(field, "is written by the engine only"));
        }
    }
    let worker = event.context.worker_id.clone();
    let worker = match (worker, properties.worker_id.as_deref()) {
        (Some(worker), _) => worker,
        (None, given) => WorkerId::new(given.unwrap_or(sender))
            .map_err(|bad| EngineError::invalid("properties.workerId", bad.problem.to_string()))?,
    };
    let name = properties.name.as_deref().unwrap_or(NAMELESS);
    let name = TaskName::new(name)
        .map_err(|bad| EngineError::invalid("properties.name", bad.problem.to_string()))?;
    let until = properties.effective_until.map(|until| moment(until, now)).transpose()?;
    let error = || properties.error.as_deref().unwrap_or("unknown error").to_owned();
    // Other senders may have categories of their own.
    let category = || {
        let named = properties.error_category.as_deref().and_then(ErrorCategory::from_name);
        named.unwrap_or(ErrorCategory::Unknown)
    };
    let said = match known {
        Some(KnownType::TaskProcessingStarted) => Said::Started { until },
        Some(KnownType::TaskHeartbeat) => Said::Heartbeat { until },
        Some(KnownType::TaskProcessingFailed) => Said::AttemptFailed { error: error(), category: category() },
        Some(KnownType::TaskCompleted) => Said::Completed,
        Some(KnownType::TaskTimeout) => Said::TimedOut,
        Some(KnownType::TaskFailed) => Said::Failed {
            error: error(),
            category: category(),
            retry_count: properties.retry_count,
            is_dead_letter: properties.source.as_deref() == Some("dlq"),
        },
        Some(KnownType::TaskPending) | None => Said::Fact,
        Some(other) => {
            let problem = format!("is {}, which is not said of tasks", other.as_str());
            return Err(EngineError::invalid("eventType", problem));
        }
    };
    let task = TaskKey { tenant: event.tenant.clone(), request };
    Ok(TaskSaying { task, name, worker, run: properties.run, fence: properties.fence, said })
}

/// A moment in seconds or milliseconds, not too far ahead.
fn moment(given: u64, now: Timestamp) -> Result<Timestamp, EngineError> {
    const FIELD: &str = "properties.effectiveUntil";
    let millis = if given < SECONDS_BELOW { given.saturating_mul(1_000) } else { given };
    let until = Timestamp::new(FIELD, millis).map_err(|bad| EngineError::invalid(FIELD, bad.to_string()))?;
    if until.since(now) > LEASE_AHEAD_MILLIS_MAX {
        let problem = format!("lies {} ms ahead; the limit is {LEASE_AHEAD_MILLIS_MAX}", until.since(now));
        return Err(EngineError::invalid(FIELD, problem));
    }
    Ok(until)
}
