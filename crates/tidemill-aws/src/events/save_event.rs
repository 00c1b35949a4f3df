//! Storing an event that came from the bus. It has its keys; storing it twice changes nothing.

use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use tidemill_engine::backend::Fault;
use tidemill_model::{Event, Json, Timestamp};

use crate::connection::Connection;
use crate::events::event_item::event_item;
use crate::fault::{causes, damaged, is_refused, unavailable};

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
    let mut event = Event::from_detail(detail, received_at)
        .map_err(|error| damaged(format!("what came from the bus is no event: {error}")))?;
    event.properties = Json::trusted(&compact(event.properties.as_str()));
    put_event(connection, table, &event).await
}

pub(crate) async fn put_event(connection: &Connection, table: &str, event: &Event) -> Result<Saved, Fault> {
    let put = connection.dynamo.put_item().table_name(table).set_item(Some(event_item(event)?));
    match put.condition_expression("attribute_not_exists(PK)").send().await {
        Ok(_) => Ok(Saved::New),
        Err(error) if is_refused(&error) => Ok(Saved::Known),
        Err(error) if error.code() == Some("ValidationException") => {
            Err(damaged(format!("event {}: {}", event.id, causes(&error))))
        }
        Err(error) => Err(unavailable("PutItem", error)),
    }
}

/// JSON without the spaces between its parts: a bus may write it anew, and readers want what was sent.
fn compact(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let (mut is_text, mut is_escaped) = (false, false);
    for c in json.chars() {
        if is_text {
            is_text = c != '"' || is_escaped;
            is_escaped = c == '\\' && !is_escaped;
        } else if c.is_ascii_whitespace() {
            continue;
        } else {
            is_text = c == '"';
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_between_parts_go_and_no_others() {
        for (json, expected) in [
            ("{ }", "{}"),
            ("{\n  \"a\" : [ 1.0 , 2e3 ],\t\"b c\": \" d \"\r\n}", r#"{"a":[1.0,2e3],"b c":" d "}"#),
            (r#"{"a": "x\\", "b": "\" : y"}"#, r#"{"a":"x\\","b":"\" : y"}"#),
        ] {
            assert_eq!(compact(json), expected);
        }
    }
}
