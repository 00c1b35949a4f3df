//! `GetItem` and `BatchGetItem`: items by their keys.

use serde_json::Value;

use super::members::{Members, body};
use super::read_options::{ReturnConsumedCapacity, consumed_capacity};
use crate::dynamodb::error::DynamoDbError;
use crate::dynamodb::expression::{ExpressionKind, ItemProjection};
use crate::dynamodb::value::Item;
use crate::dynamodb::value_json::item_from_json;

/// How many items a batch may ask for.
pub const BATCH_GET_MAX: usize = 100;

/// A request for one item. Whether the key is one, the table's keys say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GetItemRequest {
    pub table_name: String,
    pub key: Item,
    pub projection: Option<ItemProjection>,
    pub is_consistent: bool,
    pub consumed_capacity: ReturnConsumedCapacity,
}

/// A request for items of several tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchGetItemRequest {
    pub tables: Vec<TableKeys>,
    pub consumed_capacity: ReturnConsumedCapacity,
}

/// The items that a batch asks of one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableKeys {
    pub table_name: String,
    pub keys: Vec<Item>,
    pub projection: Option<ItemProjection>,
    pub is_consistent: bool,
}

impl GetItemRequest {
    pub fn parse(bytes: &[u8]) -> Result<Self, DynamoDbError> {
        let fields = body(bytes)?;
        let mut members = Members::new(&fields);
        let table_name = members.table_name()?;
        if members.get("Key").is_none() {
            members.breaks("Key", None, "Member must not be null");
        }
        let consumed_capacity = consumed_capacity(&mut members)?;
        members.checked()?;
        let key = members.item("Key")?.unwrap_or_default();
        let (projection, is_consistent) = wanted(&members)?;
        Ok(Self { table_name, key, projection, is_consistent, consumed_capacity })
    }
}

impl BatchGetItemRequest {
    pub fn parse(bytes: &[u8]) -> Result<Self, DynamoDbError> {
        let fields = body(bytes)?;
        let mut members = Members::new(&fields);
        let consumed_capacity = consumed_capacity(&mut members)?;
        let requests = request_items(&mut members)?;
        members.checked()?;
        // Counted before a key is read: each is compared with all others of its table.
        let keys_of = |json: &Value| json.get("Keys").and_then(Value::as_array).map_or(0, Vec::len);
        if requests.iter().map(|(_, json)| keys_of(json)).sum::<usize>() > BATCH_GET_MAX {
            let message = "Too many items requested for the BatchGetItem call";
            return Err(DynamoDbError::validation(message));
        }
        let tables = requests.into_iter().map(|(name, json)| TableKeys::read(name, json));
        Ok(Self { tables: tables.collect::<Result<_, _>>()?, consumed_capacity })
    }
}

impl TableKeys {
    fn read(table_name: &str, json: &Value) -> Result<Self, DynamoDbError> {
        let mut members = Members::of(json)?;
        let table_name = members.name("RequestItems", table_name);
        let keys: &[Value] = match members.get("Keys") {
            Some(Value::Array(keys)) => keys,
            Some(_) => return Err(DynamoDbError::Serialization("Unexpected field type".to_owned())),
            None => &[],
        };
        if keys.is_empty() {
            let place = format!("requestItems.{table_name}.member.keys");
            members.breaks(&place, None, "Member must have length greater than or equal to 1");
        }
        members.checked()?;
        let keys = keys.iter().map(item_from_json).collect::<Result<Vec<_>, _>>()?;
        if (1..keys.len()).any(|at| keys[..at].contains(&keys[at])) {
            return Err(DynamoDbError::validation("Provided list of item keys contains duplicates"));
        }
        let (projection, is_consistent) = wanted(&members)?;
        Ok(Self { table_name, keys, projection, is_consistent })
    }
}

/// The tables of a batch and what is asked of each.
pub(super) fn request_items<'b>(
    members: &mut Members<'b>,
) -> Result<Vec<(&'b str, &'b Value)>, DynamoDbError> {
    let Some(tables) = members.object("RequestItems")? else {
        members.breaks("RequestItems", None, "Member must not be null");
        return Ok(Vec::new());
    };
    if tables.is_empty() {
        members.breaks("RequestItems", Some("{}"), "Member must have length greater than or equal to 1");
    }
    Ok(tables.iter().map(|(name, json)| (name.as_str(), json)).collect())
}

/// The parts of the items that are wanted, and whether they must be the newest.
fn wanted(members: &Members<'_>) -> Result<(Option<ItemProjection>, bool), DynamoDbError> {
    members.refuses_legacy(&[("AttributesToGet", "ProjectionExpression")])?;
    let mut placeholders = members.placeholders(&[ExpressionKind::Projection])?;
    let projection = members.projection(&mut placeholders)?;
    placeholders.all_used()?;
    Ok((projection, members.flag("ConsistentRead")?.unwrap_or(false)))
}
