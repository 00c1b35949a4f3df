//! save-event: stores what came over the bus. Its type may be any.

use tidemill_engine::backend::Fault;
use tidemill_model::Timestamp;

use super::bus_event::BusEvent;
use crate::connection::Connection;
use crate::events::save_event::{Saved, save_event as save};

pub async fn save_event(
    connection: &Connection,
    table: &str,
    event: &BusEvent,
    received_at: Timestamp,
) -> Result<Saved, Fault> {
    save(connection, table, event.detail(), received_at).await
}
