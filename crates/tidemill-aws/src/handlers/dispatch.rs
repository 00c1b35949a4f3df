//! dispatcher: makes sure that what is ready in an event's job was dispatched, and that its tickets were sent.
//!
//! Normally the commit of a task's end has dispatched what follows, and its writer has sent the tickets. This is for writers
//! that died in between.

use std::time::Duration;

use tidemill_engine::engine::{Engine, EngineError};
use tidemill_engine::reply::Refusal;
use tidemill_model::{JobId, TenantId};

use super::bus_event::BusEvent;
use crate::backend::Aws;

/// How long the writer of a commit has for its tickets, at most, before they are sent from here.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Dispatched {
    /// How many tasks were ready and nobody had dispatched them.
    pub tasks: u32,
    /// How many groups of the log were sent again.
    pub groups: u64,
}

/// An event without a job of ours asks for nothing.
pub async fn dispatch(engine: &Engine<Aws>, event: &BusEvent) -> Result<Dispatched, EngineError> {
    let fields = event.fields();
    let tenant = fields.tenant_id.as_str().and_then(|tenant| TenantId::new(tenant).ok());
    let job = fields.properties.job_id.as_str().and_then(|job| JobId::new(job).ok());
    let (Some(tenant), Some(job)) = (tenant, job) else { return Ok(Dispatched::default()) };
    let tasks = match engine.advance(tenant, job).await {
        Ok(tasks) => tasks,
        Err(EngineError::Refused(Refusal::NotFound { .. })) => return Ok(Dispatched::default()),
        Err(error) => return Err(error),
    };
    engine.backend().own_sent().await;
    let groups = engine.backend().push_outbox(PATIENCE.min(engine.backend().patience)).await?;
    Ok(Dispatched { tasks, groups })
}
