//! workflow-event: takes in workflow events from the bus.

use tidemill_engine::engine::{Engine, EngineError, IngestRequest, Ingested};
use tidemill_model::workflow::WorkflowMessage;
use tidemill_model::{AppName, TenantId};

use super::bus_event::BusEvent;
use crate::backend::Aws;

/// The component that workflow events are recorded with.
const ORIGIN: &str = "workflow-event";

/// An event that comes again changes nothing: it has its own id.
pub async fn workflow_event(
    engine: &Engine<Aws>,
    tenant: TenantId,
    app: AppName,
    event: &BusEvent,
) -> Result<Vec<Ingested>, EngineError> {
    let message = WorkflowMessage::read("", event.json(), engine.families())?;
    let request = IngestRequest { tenant, app, origin: ORIGIN.to_owned(), messages: vec![message] };
    let ingested = engine.ingest(request).await?;
    engine.backend().own_sent().await;
    Ok(ingested)
}
