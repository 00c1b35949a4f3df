//! The bus: events that clients put, each taken in as what it says.
//!
//! A `log-event` is an event of the table with its own keys. Events of workflow families go to triage. Any other becomes an
//! event of the application that its source names.

use tidemill_aws_wire::WireAnswer;
use tidemill_aws_wire::call::EventBridgeOperation;
use tidemill_aws_wire::dialect::Dialect;
use tidemill_aws_wire::eventbridge::{
    EventBusShown, EventEntry, ListEventBuses, PutEvents, RefusedEntry, bus_not_found,
    describe_event_bus_answer, list_event_buses_answer, put_events_answer, read_describe_event_bus,
};
use tidemill_aws_wire::json_fault::JsonFault;
use tidemill_engine::engine::{EngineError, EventBatch, IngestRequest, NewEvent};
use tidemill_model::workflow::WorkflowMessage;
use tidemill_model::{AppName, Entity, EntityId, EntityType, EventType, Json, TenantId, Timestamp};

use crate::gateway::names::ACCOUNT;
use crate::gateway::passed::Passed;

/// What senders of events of the table call them.
const LOG_EVENT: &str = "log-event";
/// What the source of such an event begins with; the rest is the app.
const SOURCE_PREFIX: &str = "task-workflow.";
/// What the log and metrics call those who put events on the bus.
const ORIGIN: &str = "event-bus";

pub(crate) async fn answer(call: &Passed<'_>, operation: EventBridgeOperation) -> WireAnswer {
    let answered = match operation {
        EventBridgeOperation::PutEvents => put_events(call).await,
        EventBridgeOperation::ListEventBuses => list_buses(call),
        EventBridgeOperation::DescribeEventBus => describe_bus(call),
    };
    answered.unwrap_or_else(|fault| fault.answer(Dialect::EventBridge, call.request_id))
}

async fn put_events(call: &Passed<'_>) -> Result<WireAnswer, JsonFault> {
    let request = PutEvents::read(call.body)?;
    let mut outcomes = Vec::with_capacity(request.entries.len());
    for entry in request.entries {
        outcomes.push(match entry {
            Ok(entry) => put_event(call, entry).await,
            Err(refused) => Err(refused),
        });
    }
    Ok(put_events_answer(&outcomes))
}

async fn put_event(call: &Passed<'_>, entry: EventEntry) -> Result<String, RefusedEntry> {
    if entry.bus != call.names.bus {
        return Err(invalid(format!("Event bus {} does not exist.", entry.bus)));
    }
    if entry.detail_type == LOG_EVENT {
        return put_log_event(call, &entry).await;
    }
    let families = call.app.engine().families();
    let is_known = families.iter().any(|family| family.kind(&entry.detail_type).is_some());
    if is_known { put_workflow_event(call, &entry).await } else { put_other_event(call, &entry).await }
}

/// An event of the table, with its own keys.
async fn put_log_event(call: &Passed<'_>, entry: &EventEntry) -> Result<String, RefusedEntry> {
    let app = entry.source.strip_prefix(SOURCE_PREFIX).map(AppName::new).and_then(Result::ok);
    let app = app.unwrap_or_else(|| call.app.config().app.clone());
    let engine = call.app.engine();
    let event = engine.read_sent(&entry.detail, &app).map_err(|error| refused(&error))?;
    check_tenant(call, &event.tenant)?;
    let taken = engine.take_in(event, call.caller.name()).await.map_err(|error| refused(&error))?;
    Ok(taken.event.to_string())
}

/// An event of a workflow, for triage. Only the sources of its family may send it.
async fn put_workflow_event(call: &Passed<'_>, entry: &EventEntry) -> Result<String, RefusedEntry> {
    let engine = call.app.engine();
    let envelope = serde_json::json!({
        "source": entry.source,
        "detail-type": entry.detail_type,
        "time": entry.time_millis,
        "detail": serde_json::from_str::<serde_json::Value>(&entry.detail).unwrap_or_default(),
    });
    let message = WorkflowMessage::read("", &Json::of(&envelope), engine.families()).map_err(|problems| {
        let text: Vec<String> =
            problems.listed.iter().map(|problem| format!("{} {}", problem.path, problem.message)).collect();
        invalid(text.join("; "))
    })?;
    let request = IngestRequest {
        tenant: own_tenant(call)?,
        app: call.app.config().app.clone(),
        origin: ORIGIN.to_owned(),
        messages: vec![message],
    };
    let taken = engine.ingest(request).await.map_err(|error| refused(&error))?;
    taken.first().map(|one| one.event.to_string()).ok_or_else(|| invalid("nothing was taken in".to_owned()))
}

/// Any other event is one of the application that its source names.
async fn put_other_event(call: &Passed<'_>, entry: &EventEntry) -> Result<String, RefusedEntry> {
    let event_type = EventType::new(&entry.detail_type).map_err(|bad| named("DetailType", bad.problem))?;
    let id = EntityId::new(&entry.source).map_err(|bad| named("Source", bad.problem))?;
    let properties = Json::parse(entry.detail.clone())
        .map_err(|_| RefusedEntry::new("MalformedDetail", "Detail is malformed."))?;
    let timestamp = match entry.time_millis.map(u64::try_from) {
        None => None,
        Some(Ok(millis)) => Some(Timestamp::new("Time", millis).map_err(|bad| named("Time", bad))?),
        Some(Err(_)) => return Err(invalid("Parameter Time is not valid.".to_owned())),
    };
    let event = NewEvent {
        entity: Entity { kind: EntityType::trusted("APP"), id },
        event_type,
        timestamp,
        properties,
        ttl: None,
    };
    let batch = EventBatch {
        tenant: own_tenant(call)?,
        app: call.app.config().app.clone(),
        origin: ORIGIN.to_owned(),
        events: vec![event],
    };
    let stored = call.app.engine().publish(batch).await.map_err(|error| refused(&error))?;
    stored.first().map(|(id, _)| id.to_string()).ok_or_else(|| invalid("nothing was stored".to_owned()))
}

fn own_tenant(call: &Passed<'_>) -> Result<TenantId, RefusedEntry> {
    call.caller.tenant().cloned().ok_or_else(|| denied("the key has no tenant"))
}

fn check_tenant(call: &Passed<'_>, tenant: &TenantId) -> Result<(), RefusedEntry> {
    if call.caller.tenants().contains(tenant) {
        return Ok(());
    }
    Err(denied("the key is not one of this tenant"))
}

fn denied(why: &str) -> RefusedEntry {
    RefusedEntry::new("AccessDeniedException", format!("Access is denied: {why}."))
}

fn invalid(message: String) -> RefusedEntry {
    RefusedEntry::new("InvalidArgument", message)
}

fn named(parameter: &str, problem: impl std::fmt::Display) -> RefusedEntry {
    invalid(format!("Parameter {parameter} is not valid. Reason: {problem}."))
}

/// Why the engine did not take an event, as the bus says it. Clients try again what the store could not do.
fn refused(error: &EngineError) -> RefusedEntry {
    match error {
        EngineError::Fault(fault) => {
            tidemill_engine::warn_seldom!(fault, "an event of the bus could not be stored");
            RefusedEntry::new("InternalFailure", "The event could not be stored. Try again.")
        }
        error => {
            let problem = crate::problem::Problem::from(error.clone());
            invalid(format!("{}: {}", problem.code, problem.detail))
        }
    }
}

fn shown(call: &Passed<'_>) -> EventBusShown {
    let (name, region) = (call.names.bus.clone(), &call.names.region);
    EventBusShown { arn: format!("arn:aws:events:{region}:{ACCOUNT}:event-bus/{name}"), name }
}

fn list_buses(call: &Passed<'_>) -> Result<WireAnswer, JsonFault> {
    let request = ListEventBuses::read(call.body)?;
    let is_asked_for = request.name_prefix.is_none_or(|prefix| call.names.bus.starts_with(&prefix));
    let buses = if is_asked_for { vec![shown(call)] } else { Vec::new() };
    Ok(list_event_buses_answer(&buses))
}

fn describe_bus(call: &Passed<'_>) -> Result<WireAnswer, JsonFault> {
    let name = read_describe_event_bus(call.body)?;
    if name != call.names.bus {
        return Err(bus_not_found(&name));
    }
    Ok(describe_event_bus_answer(&shown(call)))
}
