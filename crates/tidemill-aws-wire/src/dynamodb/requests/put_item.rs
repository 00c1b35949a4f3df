//! `PutItem` and `BatchWriteItem`: items that are stored.

use serde_json::Value;

use super::get_item::request_items;
use super::members::{Members, body};
use super::read_options::{ReturnConsumedCapacity, consumed_capacity};
use crate::dynamodb::error::DynamoDbError;
use crate::dynamodb::expression::{ExpressionKind, ItemCondition};
use crate::dynamodb::value::Item;

/// How many items a batch may write.
pub const BATCH_WRITE_MAX: usize = 25;

/// A request to store an item. Whether it has the keys of the table, and how large it is, the caller asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutItemRequest {
    pub table_name: String,
    pub item: Item,
    /// What must hold for the item that is stored under the same key.
    pub condition: Option<ItemCondition>,
    /// Whether the item that was there before comes back.
    pub returns_old: bool,
    /// Whether the item that is there comes back when the condition does not hold.
    pub returns_old_on_failure: bool,
    pub consumed_capacity: ReturnConsumedCapacity,
}

/// A request to write items of several tables. Each stands alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchWriteItemRequest {
    pub tables: Vec<(String, Vec<WriteRequest>)>,
    pub consumed_capacity: ReturnConsumedCapacity,
}

/// One item of a batch that is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteRequest {
    Put(Item),
    /// The key of what is to be deleted.
    Delete(Item),
}

impl PutItemRequest {
    pub fn parse(bytes: &[u8]) -> Result<Self, DynamoDbError> {
        let fields = body(bytes)?;
        let mut members = Members::new(&fields);
        let table_name = members.table_name()?;
        if members.get("Item").is_none() {
            members.breaks("Item", None, "Member must not be null");
        }
        let words = [
            ("ALL_NEW", None),
            ("UPDATED_OLD", None),
            ("ALL_OLD", Some(true)),
            ("NONE", Some(false)),
            ("UPDATED_NEW", None),
        ];
        let returns = members.word("ReturnValues", &words)?;
        let words = [("ALL_OLD", true), ("NONE", false)];
        let returns_old_on_failure =
            members.word("ReturnValuesOnConditionCheckFailure", &words)?.unwrap_or(false);
        let consumed_capacity = consumed_capacity(&mut members)?;
        members.word("ReturnItemCollectionMetrics", &[("SIZE", ()), ("NONE", ())])?;
        members.checked()?;
        members.refuses_legacy(&[
            ("Expected", "ConditionExpression"),
            ("ConditionalOperator", "ConditionExpression"),
        ])?;
        let item = members.item("Item")?.unwrap_or_default();
        let returns_old = returns
            .unwrap_or(Some(false))
            .ok_or_else(|| DynamoDbError::validation("ReturnValues can only be ALL_OLD or NONE"))?;
        let mut placeholders = members.placeholders(&[ExpressionKind::Condition])?;
        let condition = members.condition(ExpressionKind::Condition, &mut placeholders)?;
        placeholders.all_used()?;
        Ok(Self { table_name, item, condition, returns_old, returns_old_on_failure, consumed_capacity })
    }

    /// Whether the put may go on, seen what is stored under its key.
    pub fn judge(&self, stored: Option<&Item>) -> Result<(), DynamoDbError> {
        let nothing = Item::new();
        let holds =
            self.condition.as_ref().is_none_or(|condition| condition.holds(stored.unwrap_or(&nothing)));
        if holds {
            return Ok(());
        }
        let item = stored.filter(|_| self.returns_old_on_failure).cloned();
        Err(DynamoDbError::ConditionalCheckFailed { item })
    }
}

impl BatchWriteItemRequest {
    pub fn parse(bytes: &[u8]) -> Result<Self, DynamoDbError> {
        let fields = body(bytes)?;
        let mut members = Members::new(&fields);
        let consumed_capacity = consumed_capacity(&mut members)?;
        members.word("ReturnItemCollectionMetrics", &[("SIZE", ()), ("NONE", ())])?;
        let mut tables = Vec::new();
        for (name, json) in request_items(&mut members)? {
            let name = members.name("RequestItems", name);
            let Value::Array(writes) = json else {
                return Err(DynamoDbError::Serialization("Unexpected field type".to_owned()));
            };
            if writes.is_empty() || writes.len() > BATCH_WRITE_MAX {
                let rule = "Map value must satisfy constraint: [Member must have length less than or equal to 25, \
                            Member must have length greater than or equal to 1]";
                members.breaks("RequestItems", Some(&format!("{{{name}=[{}]}}", writes.len())), rule);
                continue;
            }
            tables.push((name, writes));
        }
        members.checked()?;
        let read = |(name, writes): (String, &Vec<Value>)| {
            Ok((name, writes.iter().map(WriteRequest::read).collect::<Result<Vec<_>, _>>()?))
        };
        let tables = tables.into_iter().map(read).collect::<Result<Vec<_>, DynamoDbError>>()?;
        if tables.iter().map(|(_, writes)| writes.len()).sum::<usize>() > BATCH_WRITE_MAX {
            let message = "Too many items requested for the BatchWriteItem call";
            return Err(DynamoDbError::validation(message));
        }
        Ok(Self { tables, consumed_capacity })
    }
}

impl WriteRequest {
    fn read(json: &Value) -> Result<Self, DynamoDbError> {
        let members = Members::of(json)?;
        let (put, delete) = (members.get("PutRequest"), members.get("DeleteRequest"));
        let part = |json: &Value, name: &str| {
            let mut members = Members::of(json)?;
            if members.get(name).is_none() {
                members.breaks(name, None, "Member must not be null");
            }
            members.checked()?;
            Ok::<_, DynamoDbError>(members.item(name)?.unwrap_or_default())
        };
        match (put, delete) {
            (Some(put), None) => Ok(Self::Put(part(put, "Item")?)),
            (None, Some(delete)) => Ok(Self::Delete(part(delete, "Key")?)),
            // AWS says this of neither and of both.
            _ => Err(DynamoDbError::validation(
                "Supplied AttributeValue has more than one datatypes set, must contain exactly one of the supported datatypes",
            )),
        }
    }

    /// As it came, for the answer of a batch of which not everything was done.
    pub fn to_json(&self) -> Value {
        use serde_json::json;

        use crate::dynamodb::value_json::item_to_json;
        match self {
            Self::Put(item) => json!({"PutRequest": {"Item": item_to_json(item)}}),
            Self::Delete(key) => json!({"DeleteRequest": {"Key": item_to_json(key)}}),
        }
    }
}
