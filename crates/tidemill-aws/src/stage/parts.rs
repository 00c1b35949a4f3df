//! The parts that belong to a stage, as its table remembers them.
//!
//! A process that opens a stage with another bucket would put objects where the other processes do not look, and on
//! another bus its events would be lost silently. So the first process that names a part decides, and the stage
//! refuses others.

use aws_sdk_dynamodb::operation::get_item::GetItemError;
use tidemill_engine::backend::Fault;

use crate::bus::outbox::Bus;
use crate::connection::Connection;
use crate::fault::{causes, unavailable};
use crate::stage::options::AwsOptions;
use crate::table::item::{Item, key_of, read_text, text};

const STAGE: &str = "STAGE";

/// Compares the parts that are named with those of the stage, and notes those that nobody named before.
pub(crate) async fn check(connection: &Connection, options: &AwsOptions) -> Result<(), Fault> {
    let bus = if let Bus::Named(bus) = &options.bus { Some(bus.as_str()) } else { None };
    let queue = options.queue_url.as_deref().map(queue_name);
    let parts = [
        ("bucket", "S3_BUCKET", Some(options.bucket.as_str())),
        ("bus", "EVENTBRIDGE_BUS_NAME", bus),
        ("queue", "SQS_QUEUE_URL", queue),
    ];
    let key = key_of(&format!("CURSOR#{}", options.shard), STAGE);
    let get = connection.dynamo.get_item().table_name(&options.table).set_key(Some(key.clone()));
    let found = get.consistent_read(true).send().await.map_err(|error| {
        if error.as_service_error().is_some_and(GetItemError::is_resource_not_found_exception) {
            let table = &options.table;
            return Fault::Unavailable(format!(
                "there is no table {table} here; DYNAMODB_EVENTS_TABLE_NAME and AWS_REGION say where to look ({})",
                causes(&error)
            ));
        }
        unavailable("GetItem", error)
    })?;
    let mut known = found.item.unwrap_or_default();
    let is_new = |known: &Item, name: &str| !known.contains_key(name);
    let new: Vec<_> = parts
        .iter()
        .filter_map(|(name, _, own)| Some((*name, (*own)?)).filter(|_| is_new(&known, name)))
        .collect();
    if !new.is_empty() {
        let mut update = connection.dynamo.update_item().table_name(&options.table).set_key(Some(key));
        let mut changes = Vec::new();
        for (name, own) in new {
            changes.push(format!("#{name} = if_not_exists(#{name}, :{name})"));
            update = update.expression_attribute_names(format!("#{name}"), name);
            update = update.expression_attribute_values(format!(":{name}"), text(own));
        }
        let update = update
            .update_expression(format!("SET {}", changes.join(", ")))
            .return_values(aws_sdk_dynamodb::types::ReturnValue::AllNew);
        let updated = update.send().await.map_err(|error| unavailable("UpdateItem", error))?;
        known = updated.attributes.unwrap_or_default();
    }
    for (name, setting, own) in parts {
        if let (Some(own), Ok(theirs)) = (own, read_text(&known, name))
            && own != theirs
        {
            let (table, shard) = (&options.table, &options.shard);
            return Err(Fault::Unavailable(format!(
                "{setting} names the {name} {own}, and the stage in table {table} uses {theirs}; \
                 if that is meant to change, remove `{name}` from its item CURSOR#{shard} / {STAGE}"
            )));
        }
    }
    Ok(())
}

/// The account and the name of a queue. Its host may be written in several ways.
fn queue_name(url: &str) -> &str {
    let name = url.rfind('/').unwrap_or(0);
    let account = url[..name].rfind('/').map_or(0, |at| at + 1);
    &url[account..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_known_by_account_and_name() {
        for (url, name) in [
            ("https://sqs.eu-west-1.amazonaws.com/123/tasks", "123/tasks"),
            ("http://127.0.0.1:4566/123/tasks", "123/tasks"),
            ("tasks", "tasks"),
        ] {
            assert_eq!(queue_name(url), name);
        }
    }
}
