//! Storing an event that came from the bus. It has its keys; storing it twice changes nothing.

use aws_sdk_dynamodb::error::{DisplayErrorContext, ProvideErrorMetadata};
use tidemill_engine::backend::Fault;
use tidemill_model::{Event, Timestamp};

use crate::connection::Connection;
use crate::event_item::event_item;
use crate::fault::{damaged, is_refused, unavailable};

/// Whether an event was new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Saved {
    New,
    /// It was there before, and stays as it was.
    Known,
}

/// Stores the detail of an event of the bus, received now. Its type may be any.
pub async fn save_event(
    connection: &Connection,
    table: &str,
    detail: &str,
    received_at: Timestamp,
) -> Result<Saved, Fault> {
    let event = Event::from_detail(detail, received_at)
        .map_err(|error| damaged(format!("what came from the bus is no event: {error}")))?;
    put_event(connection, table, &event).await
}

pub(crate) async fn put_event(connection: &Connection, table: &str, event: &Event) -> Result<Saved, Fault> {
    let put = connection.dynamo.put_item().table_name(table).set_item(Some(event_item(event)?));
    match put.condition_expression("attribute_not_exists(PK)").send().await {
        Ok(_) => Ok(Saved::New),
        Err(error) if is_refused(&error) => Ok(Saved::Known),
        Err(error) if error.code() == Some("ValidationException") => {
            Err(damaged(format!("event {}: {}", event.id, DisplayErrorContext(error))))
        }
        Err(error) => Err(unavailable("PutItem", error)),
    }
}
