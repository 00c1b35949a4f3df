//! reconcile: finds whatever stands still and sets it moving. To be called every minute or so; a call too many costs little.

use std::time::Duration;

use tidemill_engine::engine::{Engine, EngineError};

use crate::backend::Aws;
use crate::housekeeping::Housekept;

/// How long the outbox must stand still, at most, before it is sent from here.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Reconciled {
    /// Tasks and messages that stood still.
    pub repaired: u64,
    /// Groups of the log that were committed and not sent.
    #[serde(rename = "groupsSent")]
    pub groups: u64,
    /// Tickets that were lost.
    pub tickets: usize,
    /// What was let go.
    #[serde(flatten)]
    pub let_go: Housekept,
}

pub async fn reconcile(engine: &Engine<Aws>) -> Result<Reconciled, EngineError> {
    let backend = engine.backend();
    let repaired = engine.sweep().await?;
    backend.own_sent().await;
    let groups = backend.push_outbox(PATIENCE.min(backend.patience)).await?;
    let tickets = backend.mend_tickets().await?;
    backend.flush().await?;
    let let_go = backend.keep_house().await?;
    backend.own_sent().await;
    Ok(Reconciled { repaired, groups, tickets, let_go })
}
