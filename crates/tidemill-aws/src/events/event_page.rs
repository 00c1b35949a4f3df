//! Questions for events, answered by the indexes of the table.
//!
//! An index is sorted by time only, and gives events of one millisecond in any order; it may also be a little behind. So
//! a page is read until the millisecond of its last event is complete, joined with the events that may not be in the table
//! yet, and cut again.

use std::collections::BTreeMap;

use tidemill_engine::backend::Fault;
use tidemill_model::events::event_query::{EventPage, EventQuery, Order};
use tidemill_model::events::key::Index;
use tidemill_model::{Event, Position, Timestamp};

use crate::connection::Connection;
use crate::events::event_item::read_event;
use crate::fault::unavailable;
use crate::table::item::text;

/// The page of a query over the table and `unsaved`, without what is past its time to live.
pub(crate) async fn page(
    connection: &Connection,
    table: &str,
    query: &EventQuery,
    unsaved: Vec<Event>,
    now: Timestamp,
) -> Result<EventPage, Fault> {
    let mut found: BTreeMap<Position, Event> = BTreeMap::new();
    let mut last = None;
    // Up to where the table was read; nothing is known of what lies behind.
    let mut horizon: Option<Timestamp> = None;
    loop {
        let answer = ask(connection, table, query, last).await?;
        last = answer.last_evaluated_key;
        for item in answer.items.unwrap_or_default() {
            // Others may write to the table, too. What is no event of ours must not hide those that are.
            let Ok(event) = read_event(item) else { continue };
            horizon = Some(event.timestamp);
            if query.matches(&event) && query.is_after_cursor(event.position()) && !event.is_outlived(now) {
                found.insert(event.position(), event);
            }
        }
        if last.is_none() {
            horizon = None;
            break;
        }
        let complete = found.keys().filter(|position| horizon != Some(position.timestamp)).count();
        if complete > query.limit {
            break;
        }
    }
    let is_known = |event: &Event| {
        horizon.is_none_or(|horizon| match query.order {
            Order::Ascending => event.timestamp < horizon,
            Order::Descending => event.timestamp > horizon,
        })
    };
    found.retain(|_, event| is_known(event));
    for event in unsaved {
        if query.matches(&event) && is_known(&event) && !event.is_outlived(now) {
            found.entry(event.position()).or_insert(event);
        }
    }
    Ok(query.select(found.values()))
}

async fn ask(
    connection: &Connection,
    table: &str,
    query: &EventQuery,
    last: Option<crate::table::item::Item>,
) -> Result<aws_sdk_dynamodb::operation::query::QueryOutput, Fault> {
    let prefix = query.path.prefix(&query.tenant);
    let [pk, sk] = prefix.index.attributes();
    // The cursor's own millisecond is read again: others of it may come behind the cursor.
    let after = query.after.map(|cursor| cursor.position.timestamp);
    let (from, to) = match query.order {
        Order::Ascending => (query.from.max(after), query.to),
        Order::Descending => (query.from, query.to.into_iter().chain(after).min()),
    };
    let ask =
        connection.dynamo.query().table_name(table).set_index_name(prefix.index.name().map(str::to_owned));
    let ask = ask
        .key_condition_expression("#pk = :pk AND #sk BETWEEN :from AND :to")
        .expression_attribute_names("#pk", pk)
        .expression_attribute_names("#sk", sk)
        .expression_attribute_values(":pk", text(prefix.pk.clone()))
        .expression_attribute_values(":from", text(prefix.lower(from.unwrap_or(Timestamp::MIN))))
        .expression_attribute_values(":to", text(prefix.upper(to.unwrap_or(Timestamp::MAX))))
        .scan_index_forward(query.order == Order::Ascending)
        .consistent_read(prefix.index == Index::Primary)
        .set_exclusive_start_key(last);
    // Three of the indexes do not name the tenant. What is left out counts for a limit, so there each call takes a whole MB.
    let ask = match prefix.index {
        Index::Gsi1 | Index::Gsi2 | Index::Gsi3 => ask
            .filter_expression("tenantId = :tenant")
            .expression_attribute_values(":tenant", text(query.tenant.as_str())),
        // A few more than wanted, since some may be of the cursor's millisecond or past their time.
        _ => ask.limit(i32::try_from(query.limit.saturating_add(10)).unwrap_or(i32::MAX)),
    };
    ask.send().await.map_err(|error| unavailable("Query", error))
}
